//! `pessimistic`: the worst that a user may meet (Seppanen, O'Keefe and Lilja, "High
//! Performance Solid State Storage Under Linux", 2010, section III).
//!
//! The drive is full, nothing is trimmed, requests are random and small, 128 are
//! outstanding, and 20 s of warm-up are not counted before 20 s that are. Before the first
//! run the drive is written over at random once, so that it collects.

use load::runner::{Plan, Until};
use measure::units::size_binary;
use port::BlockOp;

use crate::Test;
use crate::outcome::Findings;
use crate::session::{Access, Halt, Session, iops, throughput};
use crate::table::{Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "pessimistic",
    about: "a full drive, no trim, random requests of 512 B to 64 KiB, 128 outstanding",
    takes: ("3 drive fills and 11 min", "minutes"),
    needs_arrivals: false,
    depth: Some(128),
    period: Some(period),
    run,
};

const SIZES: [u64; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The longest that a run is warmed up, and measured, in ns.
const TIME: u64 = 20_000_000_000;

fn period(session: &Session) -> u64 {
    session.period().min(TIME)
}

fn run(session: &mut Session) -> Result<Findings, Halt> {
    let sizes = session.sizes(&SIZES)?;
    session.fill()?;
    session.age()?;
    let depth = session.depth;
    let ns = period(session);
    let plan = Plan { ramp: ns, until: Until::Time(ns), count: true };
    let both = || vec!["reads".to_string(), "writes".into()];
    let mut rates = Table::new("IOPS", Unit::Iops, both());
    let mut bytes = Table::new("throughput", Unit::BytesPerSecond, both());
    let columns = ["reads, mean", "p99.9", "max", "writes, mean", "p99.9", "max"];
    let mut times = Table::new("latency", Unit::Ns, columns.map(String::from).to_vec());
    let mut samples =
        Table::new("requests", Unit::Count, vec!["reads, N".into(), "writes, N".into()]);
    let mut headline = String::new();
    for bs in sizes {
        let [mut rate, mut moved, mut time, mut number] = [const { Vec::new() }; 4];
        for (reads, op) in [(100, BlockOp::Read), (0, BlockOp::Write)] {
            let access = Access::random(bs, reads, depth);
            session.phase(&access.text());
            let mut load = session.load(&access)?;
            let tally = session.measure(&mut load, plan)?;
            let latency = tally.latency(op).summary();
            rate.push(Some(iops(&tally)));
            moved.push(Some(throughput(&tally, bs)));
            number.push(Some(latency.n as f64));
            let [p999, max] = [latency.p999, latency.max].map(|ns| ns.map(|ns| ns as f64));
            time.extend([latency.mean, p999, max]);
        }
        let name = size_binary(bs);
        if bs == 4 << 10 {
            headline = format!(
                "{name} random reads {}, writes {}",
                Unit::Iops.whole_text(rate[0].unwrap_or(0.0)),
                Unit::Iops.whole_text(rate[1].unwrap_or(0.0))
            );
        }
        rates.push(&name, rate);
        bytes.push(&name, moved);
        times.push(&name, time);
        samples.push(&name, number);
    }
    Ok(Findings { headline, tables: vec![rates, bytes, times, samples], ..Findings::default() })
}
