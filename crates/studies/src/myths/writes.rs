//! "On flash-based SSDs, random writes are very costly and should be avoided" (section
//! 2.3, 2): random beside sequential writes before collection starts, and after.

use bench::Outcome;
use report::Plot;

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::{DRIVE, drive, picture, thousands};
use drive::error::Error;

const POINT: &str = "sec. 2.3 (2): \"random writes are very costly\"";
const COLLECTED: &str = "sec. 2.3 (2): what they cost in collection, \"a topic for future work\"";
const FAST: &str = "\"random writes which are as fast as, or even faster than sequential writes\"";

/// A kind of writes, on a new drive and on one that collects.
struct Writes {
    /// With one request out, and with many.
    lone: Outcome,
    new: Outcome,
    old: Outcome,
}

impl Writes {
    fn measure(lab: &mut Lab, rw: &str, precondition: &str) -> Result<Writes, Error> {
        let name = drive(lab, "");
        // As many blocks as the drive has: less than its flash takes before it collects.
        let ios = lab.options.pick("262k", "65k");
        let time = lab.options.pick("2s", "500ms");
        let mut new = |qd: u32| {
            let args = format!("{name} --rw {rw} --qd {qd} --ios {ios}");
            lab.bench(&format!("{rw}, new drive, depth {qd}"), &args)
        };
        let (lone, new) = (new(1)?, new(64)?);
        let args = format!("{name} --rw {rw} --qd 64 --time {time} {precondition}");
        let old = lab.bench(&format!("{rw}, collecting"), &args)?;
        Ok(Writes { lone, new, old })
    }

    /// How often collection ran while the drive was new.
    fn early(&self) -> f64 {
        let runs = |of: &Outcome| of.report.gc.map_or(f64::NAN, |gc| gc.collections as f64);
        runs(&self.lone) + runs(&self.new)
    }

    fn amplification(&self) -> f64 {
        self.old.report.write_amplification.map_or(f64::NAN, |w| w.total)
    }
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let steady = "--precondition steady --steady-rounds 3 --steady-round 1s";
    let random = Writes::measure(lab, "randwrite", steady)?;
    let sequential = Writes::measure(lab, "write", "--precondition seq")?;
    let mut rows = before(&random, &sequential);
    rows.extend(after(&random, &sequential));
    let pictures = over_time(lab)?.and_then(|plot| picture("myths-writes", &plot));
    Ok(Findings { rows, notes: vec![], pictures: pictures.into_iter().collect() })
}

fn before(random: &Writes, sequential: &Writes) -> Vec<Row> {
    let ratio = |what: &str, ratio: f64| {
        Row::within(POINT, what, "x", FAST, Runs::one(ratio), 0.95..=f64::INFINITY)
    };
    let iops = |of: fn(&Writes) -> &Outcome| of(random).report.iops / of(sequential).report.iops;
    let mean = |of: &Writes| of.lone.report.latency_ns.mean.unwrap_or(f64::NAN);
    vec![
        ratio("IOPS, random / sequential, new drive, depth 1", iops(|w| &w.lone)),
        ratio("IOPS, random / sequential, new drive, depth 64", iops(|w| &w.new)),
        ratio("latency, sequential / random, depth 1", mean(sequential) / mean(random)),
        Row::within(
            POINT,
            "collections in these four runs",
            "runs",
            "\"the difference between random writes and sequential writes ... is rather indirect\"",
            Runs::one(random.early() + sequential.early()),
            0.0..=0.0,
        ),
    ]
}

fn after(random: &Writes, sequential: &Writes) -> Vec<Row> {
    let old = |of: &Writes| Runs::one(of.old.report.iops);
    let kept = |of: &Writes| Runs::one(of.old.report.iops / of.new.report.iops);
    let amplification = random.amplification();
    let formula = random.old.report.drive["wa_formula"].as_f64().unwrap_or(f64::NAN);
    let band = |what: &str, model, ours, band| {
        Row::band(COLLECTED, what, "x", Reference::Model(model), ours, band)
    };
    vec![
        Row::order(
            COLLECTED,
            "IOPS",
            "\"random writes have a negative impact on garbage collection\"",
            [("sequential", old(sequential)), ("random", old(random))],
        ),
        band(
            "write amplification, random: the formula",
            formula,
            Runs::one(amplification),
            0.95..=1.05,
        ),
        band(
            "write amplification, sequential: none",
            1.0,
            Runs::one(sequential.amplification()),
            1.0..=1.05,
        ),
        band(
            "IOPS, collecting / new, random: 1 / amplification",
            1.0 / amplification,
            kept(random),
            0.8..=1.0,
        ),
        band("IOPS, collecting / new, sequential", 1.0, kept(sequential), 0.95..=1.05),
    ]
}

/// Writes from when the drive is new, until well after it collects.
fn over_time(lab: &mut Lab) -> Result<Option<Plot>, Error> {
    let size = lab.options.pick("size=2G", "size=256M,groups=2");
    let time = lab.options.pick("20s", "10s");
    let mut lines = Vec::new();
    for (what, rw) in [("random", "randwrite"), ("sequential", "write")] {
        let args = format!("{DRIVE},{size} --rw {rw} --qd 64 --time {time}");
        let outcome = lab.bench(&format!("{what} writes over time"), &args)?;
        let points = outcome.report.series.iter().map(|row| (row.second, row.iops));
        lines.push((format!("{what} writes"), points.collect()));
    }
    let caption = "Writes of 4 KiB a second to a drive that is new at first: random ones are as \
                   fast as sequential ones until collection starts.";
    Ok(Some(Plot {
        caption: caption.into(),
        along: ("seconds of drive time", |seconds| format!("{seconds:.0}")),
        height: ("writes a second", thousands),
        is_log: false,
        lines,
    }))
}
