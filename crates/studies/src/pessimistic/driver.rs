//! Driver variants on a fast drive (Seppanen, section V.A, figure 5).
//!
//! The drive is the timed null driver: 128 commands at once, each its time.
//! What is fitted is that time, twice. First so that the drive is the paper's;
//! beside our request queue that drive is slow, and so it shows less than it
//! showed them. Then so that it is as fast beside our request queue as theirs
//! was beside its own: "no benefit" of 128 entries below a request queue says
//! that the queue could do no more than the drive could with 32.
//! Fails as a load on several cores does.

use blkmq::driver::any::Any;
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Driver, Merge, SchedulerKind, Topology};
use port::{BlockOp, Shape};
use serde_json::json;
use workload::TightOptions;

use super::super::baseline::{raw, sq};
use super::super::layers::refused;
use super::super::scsi::Scsi;
use super::super::threads::{self, Blocks, Ran, Work};
use super::super::{Case, Lab, Reference, Row, Runs, Turns};
use drive::error::Error;

const FIGURE_5: &str = "Seppanen, figure 5: driver variants on the paper's drive";
const SCALED: &str = "the same, on a drive as fast beside our request queue";

/// Commands that the drive works on at once.
pub const SERVERS: usize = 128;
/// Requests outstanding in all, as the paper's 128 threads have.
pub const OUTSTANDING: usize = 128;
/// "Over 1.1 million IOPS".
pub const PAPER: f64 = 1.1e6;
/// 557 MB/s of 512 bytes.
const BOTH: f64 = 557e6 / 512.0;
/// The most submitting cores: as many as the paper's machine has.
const MOST_CORES: usize = 8;

/// How requests get to the drive.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Variant {
    /// A request queue with an elevator, and a layer of SCSI commands.
    Layered,
    /// A request queue with an elevator.
    Queue,
    /// Directly into the driver.
    Direct,
}

/// A variant, entries of the drive's queue, and a drive's time.
type Way = (Variant, usize);

const WAYS: [Way; 5] = [
    (Variant::Layered, 32),
    (Variant::Queue, 32),
    (Variant::Direct, 32),
    (Variant::Queue, 128),
    (Variant::Direct, 128),
];

fn name((variant, entries): Way) -> String {
    let variant = match variant {
        Variant::Layered => "SCSI and request queue",
        Variant::Queue => "request queue",
        Variant::Direct => "direct",
    };
    format!("{variant}, {entries} entries")
}

/// The cores, and the work of each, with which everything is measured.
#[derive(Clone)]
pub struct Bench {
    /// The cores, by their numbers in the system.
    pub on: Vec<usize>,
    topology: Topology,
    /// What each does.
    pub work: Work,
    seed: u64,
}

impl Bench {
    /// As many of the cores that there are as the paper's machine has.
    pub fn new(lab: &Lab) -> Result<Bench, Error> {
        let (mut on, _) = lab.options.topology()?;
        // So that 32 and 128 divide by them.
        let cores = 1 << on.len().min(MOST_CORES).ilog2();
        on.truncate(cores);
        let topology = Topology::new(cores, 1).map_err(refused)?;
        let (ramp, time) = lab.options.pick((30_000_000, 200_000_000), (2_000_000, 15_000_000));
        let (op, seed) = (BlockOp::Read, lab.options.seed);
        let load = TightOptions { op, len: 4096, depth: OUTSTANDING / cores, batch: 1, seed };
        Ok(Bench { on, topology, work: Work { load, ramp, time }, seed })
    }

    /// How many cores submit.
    pub fn cores(&self) -> usize {
        self.topology.cores()
    }

    /// The drive with so many queues of so many entries, and `ns` a command.
    pub fn drive(&self, queues: usize, entries: usize, ns: u64) -> Result<Timed, Error> {
        let options = TimedOptions {
            submit_queues: queues,
            hw_queue_depth: entries,
            completion_nsec: ns,
            servers: Some(SERVERS),
            shared_servers: true,
            seed: self.seed,
            ..TimedOptions::default()
        };
        Timed::new(options).map_err(refused)
    }

    /// Runs the work over a port for each core.
    pub fn run<P: Blocks + Send>(&self, ports: Vec<P>, shape: &Shape) -> Result<Ran, Error> {
        threads::run(ports, &self.on, shape, self.work, |_| ())
    }

    /// IOPS of `way` on a drive of `ns` a command.
    fn variant(&self, (variant, entries): Way, ns: u64) -> Result<Ran, Error> {
        let cores = self.cores();
        let elevator = SchedulerKind::Deadline(Default::default());
        match variant {
            Variant::Layered => {
                let drive = self.drive(1, entries, ns)?;
                let shape = drive.shape();
                self.run(
                    sq(Any(Scsi(drive)), cores, elevator, Merge::Full).map_err(refused)?,
                    &shape,
                )
            }
            Variant::Queue => {
                let drive = self.drive(1, entries, ns)?;
                let shape = drive.shape();
                self.run(sq(Any(drive), cores, elevator, Merge::Full).map_err(refused)?, &shape)
            }
            Variant::Direct => {
                let drive = self.drive(cores, entries / cores, ns)?;
                let shape = drive.shape();
                self.run(raw(Any(drive), cores).map_err(refused)?, &shape)
            }
        }
    }
}

/// A command's time of the paper's drive in ns: fitted, so that 128 at once
/// make its IOPS.
pub const PAPER_NS: u64 = (SERVERS as f64 * 1e9 / PAPER) as u64;
/// The rows, and the time of a command of the second drive in ns.
pub fn rows(lab: &mut Lab, bench: &Bench) -> Result<(Vec<Row>, u64), Error> {
    let papers = variants(lab, bench, PAPER_NS)?;
    let most = most(lab, bench)?;
    let scaled_ns = (32.0 * 1e9 / most.median()).max(1.0) as u64;
    let mut scaled = variants(lab, bench, scaled_ns)?;
    if let Some(why) = most.void() {
        // Nothing is known of a drive that was fitted to a disturbed run.
        scaled.iter_mut().for_each(|(_, runs)| *runs = runs.clone().voided(why));
    }
    let mut rows = on_the_papers_drive(&papers, &most);
    rows.extend(on_the_scaled_drive(&scaled, cost_of_scsi(lab, bench)?));
    Ok((rows, scaled_ns))
}

/// Something that is measured with these cores.
pub fn case(bench: &Bench, what: &str, ns: u64) -> Case {
    let cores = bench.cores();
    Case {
        what: what.into(),
        command: format!(
            "random reads, {OUTSTANDING} outstanding from {cores} cores; drive of {SERVERS} \
             servers of {ns} ns; {what}"
        ),
        configuration: json!({
            "cores": cores, "outstanding": OUTSTANDING, "servers": SERVERS,
            "completion_nsec": ns, "way": what, "bs": 4096,
        }),
    }
}

/// What a run gave, and its share of the processors.
pub fn with_share(ran: Ran) -> (f64, Option<f64>) {
    (ran.iops, ran.share)
}

/// All variants on a drive.
fn variants(lab: &mut Lab, bench: &Bench, ns: u64) -> Result<Vec<(Way, Runs)>, Error> {
    let cases = WAYS.map(|way| case(bench, &name(way), ns));
    let turns = lab.by_turns(&cases, |i| Ok(with_share(bench.variant(WAYS[i], ns)?)))?;
    Ok(WAYS.into_iter().zip(turns.iter().map(iops)).collect())
}

/// The runs of a case.
pub fn iops(turns: &Turns<f64>) -> Runs {
    turns.runs(|&iops| iops)
}

/// The most that the request queue can do: on a drive that takes no time.
fn most(lab: &mut Lab, bench: &Bench) -> Result<Runs, Error> {
    let way = (Variant::Queue, 128);
    let cases = [case(bench, "request queue, 128 entries, to fit", 0)];
    let turns = lab.by_turns(&cases, |_| Ok(with_share(bench.variant(way, 0)?)))?;
    Ok(iops(&turns[0]))
}

/// IOPS of a variant beside that of the request queue with 32 entries.
fn gain(of: &[(Way, Runs)], way: Way) -> Runs {
    let iops = |way| {
        let found = of.iter().find(|(known, _)| *known == way);
        found.expect("all were measured").1.clone()
    };
    iops(way).with(&iops((Variant::Queue, 32)), |iops, queue| iops / queue)
}

const BAR: &str = "the bars of the figure have no numbers in the text";

fn bars(figure: &str, of: &[(Way, Runs)], both: Reference) -> Vec<Row> {
    let row = |(way, runs): &(Way, Runs)| {
        let is_both = *way == (Variant::Direct, 128);
        let (reference, why) = match &both {
            Reference::Paper(_) if is_both => (both.clone(), "what the drive's time was fitted to"),
            _ => (Reference::Silent, BAR),
        };
        Row::shown(figure, &name(*way), "IOPS", reference, runs.clone(), why)
    };
    of.iter().map(row).collect()
}

const ALONE: &str = "\"insignificant benefit in moving to a make_request design [...] while \
                     retaining a 32-command queue\"";
const TOGETHER: &str = "\"these two changes combined [...] allow another large increase\"";
/// Why the two are not judged one by one.
const NOT_BOTH: &str = "little from direct alone needs a drive slower than the queue, little from \
                        128 alone one that is not: at the point between, the queue takes its part \
                        of each request's time";
/// What "insignificant" may be.
const LITTLE: std::ops::RangeInclusive<f64> = 0.8..=1.25;
/// What "large" is at least.
const MUCH: std::ops::RangeInclusive<f64> = 1.5..=f64::INFINITY;

fn on_the_papers_drive(of: &[(Way, Runs)], most: &Runs) -> Vec<Row> {
    let mut rows = bars(FIGURE_5, of, Reference::Paper(BOTH));
    let slower = "the drive is slower than our request queue, so the queue is not in its way";
    rows.push(Row::shown(
        FIGURE_5,
        "the most that our request queue can do",
        "IOPS",
        Reference::Silent,
        most.clone(),
        "the paper does not say it of theirs",
    ));
    let [direct, entries, both] = gains(of);
    let within = |what, says, runs, rule| Row::within(FIGURE_5, what, "x", says, runs, rule);
    rows.push(within("direct alone", ALONE, direct, LITTLE));
    rows.push(Row::shown(FIGURE_5, "128 alone", "x", Reference::Silent, entries, slower));
    rows.push(within("direct and 128", TOGETHER, both, MUCH));
    rows
}

fn gains(of: &[(Way, Runs)]) -> [Runs; 3] {
    [(Variant::Direct, 32), (Variant::Queue, 128), (Variant::Direct, 128)].map(|way| gain(of, way))
}

fn on_the_scaled_drive(of: &[(Way, Runs)], layer: Runs) -> Vec<Row> {
    let mut rows = bars(SCALED, of, Reference::Silent);
    let [direct, entries, both] = gains(of);
    rows.push(Row::sign(
        SCALED,
        "the SCSI layer's cost: 1 core, a drive without time",
        "ns",
        "the layered driver \"is the slowest access method\"",
        layer,
        true,
    ));
    let shown = |what, runs| Row::shown(SCALED, what, "x", Reference::Silent, runs, NOT_BOTH);
    rows.push(shown("direct alone", direct));
    rows.push(shown("128 alone", entries));
    rows.push(Row::within(SCALED, "direct and 128", "x", TOGETHER, both, MUCH));
    let named = |way: Way| {
        let found = of.iter().find(|(known, _)| *known == way);
        (name(way), found.expect("all were measured").1.clone())
    };
    for alone in [(Variant::Direct, 32), (Variant::Queue, 128)] {
        let pair = [named((Variant::Direct, 128)), named(alone)];
        rows.push(Row::order(SCALED, "IOPS", TOGETHER, pair));
    }
    rows
}

/// What the layer of SCSI commands costs a request in ns, where nothing hides
/// it: on one core, with a drive that takes no time.
fn cost_of_scsi(lab: &mut Lab, bench: &Bench) -> Result<Runs, Error> {
    let one = Bench {
        on: bench.on[..1].to_vec(),
        topology: Topology::new(1, 1).map_err(refused)?,
        ..bench.clone()
    };
    let ways = [(Variant::Layered, 32), (Variant::Queue, 32)];
    let cases = ways.map(|way| case(&one, &name(way), 0));
    let turns = lab.by_turns(&cases, |i| Ok(with_share(one.variant(ways[i], 0)?)))?;
    Ok(iops(&turns[0]).with(&iops(&turns[1]), |layered, queue| 1e9 / layered - 1e9 / queue))
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn the_papers_drive_is_fitted_to_its_iops() {
        let iops = SERVERS as f64 * 1e9 / PAPER_NS as f64;
        assert!((iops / PAPER - 1.0).abs() < 1e-4, "{iops}");
        assert!((BOTH / PAPER - 1.0).abs() < 0.02, "{BOTH}");
    }

    #[test]
    fn rules_are_judged_on_gains() {
        let of = |iops: [f64; 5]| -> Vec<(Way, Runs)> {
            WAYS.into_iter().zip(iops.map(Runs::one)).collect()
        };
        let verdicts = |iops, cost| {
            let rows = on_the_scaled_drive(&of(iops), Runs::one(cost));
            let judged = rows.iter().filter(|row| !matches!(row.verdict(), Verdict::NotGated(_)));
            judged.map(|row| row.verdict() == Verdict::Pass).collect::<Vec<_>>()
        };
        assert_eq!(verdicts([0.9, 1.0, 1.4, 1.4, 2.0], 20.0), [true; 4]);
        assert_eq!(verdicts([0.9, 1.0, 1.5, 1.5, 1.4], -1.0), [false; 4]);
    }
}
