//! `throughput`: large sequential reads and writes (SNIA PTS, TP test).
//!
//! For each size the drive is purged and written twice over in order. A round then reads
//! and writes in order for a period each; rounds go on until the throughput of both is
//! steady.

use measure::units::{size_binary, time_ns};

use crate::Test;
use crate::outcome::Findings;
use crate::search::Search;
use crate::session::{Access, Halt, Session, throughput};
use crate::table::{Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "throughput",
    about: "sequential reads and writes of 1 MiB and 128 KiB, in rounds until steady",
    takes: ("5 to 25 rounds of 4 min", "seconds"),
    needs_arrivals: false,
    depth: Some(32),
    period: Some(|session| session.period()),
    run,
};

/// Bytes of a request.
const SIZES: [u64; 2] = [1024 << 10, 128 << 10];

fn run(session: &mut Session) -> Result<Findings, Halt> {
    let sizes = session.sizes(&SIZES)?;
    let mut table =
        Table::new("throughput", Unit::BytesPerSecond, vec!["reads".into(), "writes".into()]);
    let (mut searches, mut headlines) = (Vec::new(), Vec::new());
    for &bs in &sizes {
        let mut search = of_size(session, bs)?;
        search.of = size_binary(bs);
        let means = search.tracks.iter().map(|track| track.window().map(|window| window.mean));
        let means: Vec<Option<f64>> = means.collect();
        for (track, mean) in search.tracks.iter().zip(&means) {
            headlines.push(format!("{} {} {}", search.of, track.what, table.cell(*mean)));
        }
        table.push(&search.of, means);
        searches.push(search);
    }
    let headline = headlines.join(", ");
    Ok(Findings { headline, tables: vec![table], ..Findings::of(searches) })
}

fn of_size(session: &mut Session, bs: u64) -> Result<Search, Halt> {
    session.fill()?;
    let (depth, period) = (session.depth, session.period());
    // They go on where they were in the round before.
    let mut reads = session.load(&Access::sequential(bs, 100, depth))?;
    let mut writes = session.load(&Access::sequential(bs, 0, depth))?;
    let each = format!("reads and writes of {}", time_ns(period as f64));
    let tracked = [("reads", Unit::BytesPerSecond), ("writes", Unit::BytesPerSecond)];
    // In order all of a block is stale before it is collected: nothing is moved.
    session.until_steady(each, &tracked, false, |session, _| {
        let reads = session.measure_warm(&mut reads, period)?;
        let writes = session.measure_warm(&mut writes, period)?;
        Ok(vec![throughput(&reads, bs), throughput(&writes, bs)])
    })
}
