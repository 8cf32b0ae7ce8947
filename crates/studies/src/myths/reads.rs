//! "On flash-based SSDs, reads are cheaper than writes" (section 2.3, 3): what a read waits
//! for that a buffered write does not. Why is told by the requests themselves.

use bench::Outcome;
use measure::Summary;
use report::Plot;
use serde_json::Value;

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::{drive, picture};
use drive::error::Error;

const POINT: &str = "sec. 2.3 (3): \"reads are cheaper than writes\"";
const HIDE: &str = "\"it is not possible to hide this latency behind a safe cache, as it is the \
                    case for writes\"";
/// "wait 3ms for the completion of an erase operation on that LUN".
const ERASE: f64 = 3e6;
/// So many of the slowest requests are asked where their time went.
const SLOWEST: u32 = 1000;

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    // Half of what the drive can do with this mix.
    let (rate, ios) = lab.options.pick(("30k", "1M"), ("7500", "100k"));
    let args = format!(
        "{} --rw randrw --rate {rate} --arrivals poisson --ios {ios} --precondition steady \
         --steady-rounds 3 --steady-round 1s --slowest {SLOWEST}",
        drive(lab, "")
    );
    let outcome = lab.bench("reads and writes, collecting", &args)?;
    let pictures = plot(&outcome).and_then(|plot| picture("myths-reads", &plot));
    Ok(Findings { rows: rows(&outcome), notes: vec![], pictures: pictures.into_iter().collect() })
}

fn rows(outcome: &Outcome) -> Vec<Row> {
    let of = |direction: &Option<measure::Direction>| direction.map(|d| d.latency_ns);
    let (reads, writes) = (of(&outcome.report.read), of(&outcome.report.write));
    let us = |summary: &Option<Summary>, figure: fn(&Summary) -> Option<f64>| {
        Runs::one(summary.as_ref().and_then(figure).unwrap_or(f64::NAN) / 1e3)
    };
    let longest = |summary: &Summary| summary.max.map(|ns| ns as f64);
    let slow = Slow::of(outcome);
    vec![
        Row::order(
            POINT,
            "us",
            HIDE,
            [("mean read", us(&reads, |s| s.mean)), ("mean write", us(&writes, |s| s.mean))],
        ),
        Row::order(
            POINT,
            "us",
            HIDE,
            [("longest read", us(&reads, longest)), ("longest write", us(&writes, longest))],
        ),
        Row::band(
            POINT,
            "the longest that a read waits for an erase",
            "us",
            Reference::Paper(ERASE / 1e3),
            Runs::one(slow.longest / 1e3),
            0.9..=1.05,
        ),
        Row::within(
            POINT,
            "part of the longest read behind an erase",
            "%",
            "\"if that LUN or the associated channel is busy, then the read operation must wait\"",
            Runs::one(slow.of_longest),
            80.0..=100.0,
        ),
        Row::shown(
            POINT,
            "reads among the 1000 slowest requests",
            "%",
            Reference::Silent,
            Runs::one(slow.reads),
            "the paper gives no share",
        ),
        Row::shown(
            POINT,
            "part of their time behind an erase",
            "%",
            Reference::Silent,
            Runs::one(slow.behind_erases),
            "the paper gives no share",
        ),
    ]
}

/// What the slowest requests say, in ns and percent.
struct Slow {
    longest: f64,
    of_longest: f64,
    reads: f64,
    behind_erases: f64,
}

impl Slow {
    fn of(outcome: &Outcome) -> Slow {
        let all = outcome.slowest.as_ref().map_or(Value::Null, |slowest| slowest.to_json());
        let all = all.as_array().cloned().unwrap_or_default();
        let reads: Vec<&Value> = all.iter().filter(|one| one["op"] == "read").collect();
        let latency = |one: &Value| one["latency_ns"].as_f64().unwrap_or(f64::NAN);
        let behind: f64 = all.iter().map(behind_erases).sum();
        let first = reads.first();
        Slow {
            longest: reads.iter().map(|one| behind_erases(one)).fold(0.0, f64::max),
            of_longest: first.map_or(f64::NAN, |one| 100.0 * behind_erases(one) / latency(one)),
            reads: 100.0 * reads.len() as f64 / all.len() as f64,
            behind_erases: 100.0 * behind / all.iter().map(latency).sum::<f64>(),
        }
    }
}

/// How long a request waited for erases, in ns.
fn behind_erases(request: &Value) -> f64 {
    let parts = request["parts"].as_array().map_or(&[][..], |parts| parts);
    let is_erase = |part: &&Value| part["behind"].as_str().is_some_and(|b| b.starts_with("erase"));
    parts.iter().filter(is_erase).filter_map(|part| part["ns"].as_f64()).sum()
}

fn plot(outcome: &Outcome) -> Option<Plot> {
    let line = |name: &str, of: &Option<measure::Direction>| {
        let s = of.as_ref()?.latency_ns;
        let points = [(0.3, s.p50), (1.0, s.p90), (2.0, s.p99), (3.0, s.p999), (4.0, s.p9999)];
        let points = points.iter().filter_map(|&(x, ns)| Some((x, ns? as f64)));
        Some((name.to_string(), points.collect()))
    };
    Some(Plot {
        caption: "Latency that so many of the reads and of the writes stay below, on a drive that \
                  collects: writes end in the buffer, reads wait for dies."
            .into(),
        along: ("share of requests", |nines| {
            format!("{} %", (1e4 * (1.0 - 10f64.powf(-nines))).round() / 100.0)
        }),
        height: ("latency", measure::units::time_ns),
        is_log: true,
        lines: vec![line("reads", &outcome.report.read)?, line("writes", &outcome.report.write)?],
    })
}
