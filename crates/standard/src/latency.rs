//! `latency`: one request at a time (SNIA PTS, LAT test).
//!
//! The drive is purged and written twice over in order, and then at random until it collects,
//! where it tells. A round runs random reads,
//! requests of which 65 % are reads, and writes, of 8 KiB, 4 KiB and 512 bytes, for a
//! period each with one outstanding; rounds go on until the mean latency of 4 KiB writes
//! is steady. Figures are of all requests of the last window's rounds: histograms are
//! merged.

use measure::Histogram;
use measure::units::{size_binary, time_ns};

use crate::Test;
use crate::outcome::Findings;
use crate::session::{Access, Halt, P999, Session, TRACKED, cells, enough, mix};
use crate::table::{Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "latency",
    about: "one request at a time, 3 mixes and 3 sizes, in rounds until steady",
    takes: ("5 to 25 rounds of 9 min", "seconds"),
    needs_arrivals: false,
    depth: None,
    period: Some(|session| session.period_for_a_tail()),
    run,
};

const MIXES: [u8; 3] = [100, 65, 0];
const SIZES: [u64; 3] = [8 << 10, 4 << 10, 512];

fn run(session: &mut Session) -> Result<Findings, Halt> {
    let sizes = session.sizes(&SIZES)?;
    let (cells, tracked) = cells(&MIXES, &sizes)?;
    session.fill()?;
    session.age_until_it_collects()?;
    let period = session.period_for_a_tail();
    let mut rounds: Vec<Vec<Histogram>> = Vec::new();
    let each = format!("{} runs of {}", cells.len(), time_ns(period as f64));
    let what = [("4 KiB random writes, mean latency", Unit::Ns)];
    let window = session.window();
    let search = session.until_steady(each, &what, true, |session, _| {
        let mut measured = Vec::new();
        for &(reads, bs) in &cells {
            let mut load = session.load(&Access::random(bs, reads, 1))?;
            measured.push(session.measure(&mut load, session.for_time(period))?.all());
        }
        let value = measured[tracked].mean().unwrap_or(0.0);
        rounds.push(measured);
        if rounds.len() > window {
            rounds.remove(0);
        }
        Ok(vec![value])
    })?;
    let merged = |n: usize| {
        let mut all = Histogram::new();
        rounds.iter().for_each(|round| all.merge(&round[n]));
        all
    };
    let columns = ["mean", "p50", "p99", "p99.9", "max"].map(String::from).to_vec();
    let mut table = Table::new("latency, R/W", Unit::Ns, columns);
    let mut samples = Table::new("requests", Unit::Count, vec!["N".into()]);
    let mut headline = String::new();
    for (n, &(reads, bs)) in cells.iter().enumerate() {
        let name = format!("{} {}", mix(reads), size_binary(bs));
        let summary = enough(&merged(n), P999, &name)?;
        let of = |value: Option<u64>| value.map(|ns| ns as f64);
        let row =
            vec![summary.mean, of(summary.p50), of(summary.p99), of(summary.p999), of(summary.max)];
        if bs == TRACKED && reads != 65 {
            let what = if reads == 0 { ", writes" } else { "4 KiB reads" };
            let [mean, p999] = [row[0], row[3]].map(|ns| Unit::Ns.text(ns.unwrap_or(0.0)));
            headline += &format!("{what} mean {mean}, p99.9 {p999}");
        }
        table.push(&name, row);
        samples.push(&name, vec![Some(summary.n as f64)]);
    }
    Ok(Findings { headline, tables: vec![table, samples], ..Findings::of(vec![search]) })
}
