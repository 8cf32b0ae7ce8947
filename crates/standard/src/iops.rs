//! `iops`: the matrix of mixes and sizes, to steady state (SNIA PTS, IOPS test).
//!
//! The drive is purged and written twice over in order, and then at random until it collects,
//! where it tells. A round runs random requests
//! of each of seven mixes and eight sizes for a period; rounds go on until the IOPS of
//! 4 KiB writes are steady. A cell is the mean of the last window's rounds.

use measure::units::{size_binary, time_ns};

use crate::Test;
use crate::outcome::Findings;
use crate::session::{Access, Halt, Session, cells, iops, mix};
use crate::table::{Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "iops",
    about: "random requests of 7 mixes and 8 sizes, in rounds until steady",
    takes: ("5 to 25 rounds of 56 min", "minutes"),
    needs_arrivals: false,
    depth: Some(32),
    period: Some(|session| session.period()),
    run,
};

/// Reads of the mixes, in percent.
pub const MIXES: [u8; 7] = [100, 95, 65, 50, 35, 5, 0];
/// Bytes of a request.
pub const SIZES: [u64; 8] =
    [1024 << 10, 128 << 10, 64 << 10, 32 << 10, 16 << 10, 8 << 10, 4 << 10, 512];

fn run(session: &mut Session) -> Result<Findings, Halt> {
    let (sizes, depth) = (session.sizes(&SIZES)?, session.depth);
    let (cells, tracked) = cells(&MIXES, &sizes)?;
    session.fill()?;
    session.age_until_it_collects()?;
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    let each = format!("{} runs of {}", cells.len(), time_ns(session.period() as f64));
    let what = [("4 KiB random writes, IOPS", Unit::Iops)];
    let search = session.until_steady(each, &what, true, |session, _| {
        let measured = cells
            .iter()
            .map(|&(reads, bs)| Ok(iops(&session.alone(&Access::random(bs, reads, depth))?)));
        let measured = measured.collect::<Result<Vec<f64>, Halt>>()?;
        let value = measured[tracked];
        rounds.push(measured);
        Ok(vec![value])
    })?;
    let last = &rounds[search.first()..];
    let mean = |n: usize| last.iter().map(|round| round[n]).sum::<f64>() / last.len() as f64;
    let columns = sizes.iter().map(|&bs| size_binary(bs)).collect();
    let mut table = Table::new("IOPS, R/W", Unit::Iops, columns);
    for (row, &reads) in MIXES.iter().enumerate() {
        let of = |column| Some(mean(row * sizes.len() + column));
        table.push(&mix(reads), (0..sizes.len()).map(of).collect());
    }
    let headline = format!("4 KiB random writes {}", Unit::Iops.whole_text(mean(tracked)));
    Ok(Findings { headline, tables: vec![table], ..Findings::of(vec![search]) })
}
