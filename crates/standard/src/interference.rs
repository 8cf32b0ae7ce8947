//! `interference`: a lone reader beside writers.
//!
//! The drive is filled and written over at random once. Then one reader, with one random
//! read of 4 KiB at a time, is measured alone and beside a writer with 1, 4 and 16 random
//! writes of 64 KiB outstanding. (Bjørling, González and Bonnet, "LightNVM", 2017, figure 3
//! has such a reader and writer, with one write at a time.)

use measure::units::exactly;
use port::BlockOp;

use crate::Test;
use crate::outcome::Findings;
use crate::session::{Access, Halt, P99, Session, enough, throughput};
use crate::table::{Figure, Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "interference",
    about: "one 4 KiB reader alone, and beside 64 KiB random writes",
    takes: ("3 drive fills and 20 min", "seconds"),
    needs_arrivals: true,
    depth: None,
    period: Some(period),
    run,
};

/// Writes outstanding.
const WRITERS: [u32; 4] = [0, 1, 4, 16];
/// Periods of a run: a reader by itself has few requests.
const PERIODS: u64 = 5;
const LARGE: u64 = 64 << 10;

fn period(session: &Session) -> u64 {
    PERIODS * session.period_for_a_tail()
}

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.fill()?;
    session.age()?;
    let plan = session.for_time(period(session));
    let columns = ["mean", "p50", "p99", "p99.9", "max"].map(String::from).to_vec();
    let mut times = Table::new("reads", Unit::Ns, columns);
    let columns = vec!["writes".into()];
    let mut bytes = Table::new("throughput", Unit::BytesPerSecond, columns);
    let mut samples = Table::new("reads", Unit::Count, vec!["N".into()]);
    let mut tails = Vec::new();
    for depth in WRITERS {
        let name = match depth {
            0 => "alone".to_string(),
            n => format!("beside {}", exactly(n.into(), "write")),
        };
        session.phase(&format!("reads {name}"));
        let mut loads = vec![session.load(&Access::random(4 << 10, 100, 1))?];
        if depth > 0 {
            loads.push(session.load(&Access::random(LARGE, 0, depth))?);
        }
        let tallies = session.measure_together(&mut loads, plan)?;
        let reads = enough(tallies[0].latency(BlockOp::Read), P99, &format!("reads {name}"))?;
        let of = |ns: Option<u64>| ns.map(|ns| ns as f64);
        let tail = of(reads.p99);
        times.push(&name, vec![reads.mean, of(reads.p50), tail, of(reads.p999), of(reads.max)]);
        samples.push(&name, vec![Some(reads.n as f64)]);
        bytes.push(&name, vec![tallies.get(1).map(|writes| throughput(writes, LARGE))]);
        tails.push(tail.unwrap_or(0.0));
    }
    let figures = WRITERS.iter().zip(&tails).skip(1).map(|(depth, tail)| {
        let name = format!("p99 beside {} by that alone", exactly((*depth).into(), "write"));
        Figure::new(&name, Unit::Ratio, tail / tails[0])
    });
    let figures: Vec<Figure> = figures.collect();
    let [one, .., most] = &figures[..] else { unreachable!("three") };
    let headline = format!(
        "p99 of lone reads {}, {} beside 1 write, {} beside 16",
        Unit::Ns.text(tails[0]),
        one.text(),
        most.text()
    );
    Ok(Findings { headline, figures, tables: vec![times, bytes, samples], ..Findings::default() })
}
