//! Study `pessimistic`: what stands between a fast drive and its applications
//! (Seppanen, O'Keefe and Lilja, *High Performance Solid State Storage Under
//! Linux*), the part that concerns the block layer: its sections V.A and V.B.
//!
//! The drive is the timed null driver: 128 commands at once, each its time.
//! What is fitted is that time, twice. First so that the drive is the paper's;
//! beside our request queue that drive is slow, and so it shows less than it
//! showed them. Then so that it is as fast beside our request queue as theirs
//! was beside its own: "no benefit" of 128 entries below a request queue says
//! that the queue could do no more than the drive could with 32.

use blkmq::driver::any::{Any, AnyQueue};
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Config, Context, Driver, Merge, SchedulerKind, Topology, build};
use device::hosted::{Coalesce, HostedOptions};
use hosting::hosted::HostedDriver;
use port::{BlockOp, Shape};
use serde_json::json;
use workload::TightOptions;

use super::baseline::{raw, sq};
use super::layers::refused;
use super::scsi::Scsi;
use super::threads::{self, Blocks, Ran, Work};
use super::{Case, Findings, Lab, Reference, Row, Runs, Study, Turns};
use drive::error::Error;

/// The study.
pub const STUDY: Study = Study {
    name: "pessimistic",
    about: "driver variants and interrupts of a fast drive (Seppanen, sec. V)",
    run,
};

const FIGURE_5: &str = "Seppanen, figure 5: driver variants on the paper's drive";
const SCALED: &str = "the same, on a drive as fast beside our request queue";
const MITIGATION: &str = "Seppanen, section V.B: completions per interrupt";
const FIGURE_3: &str = "Seppanen, figure 3: interrupts to a near and a far core";

/// Commands that the drive works on at once.
const SERVERS: usize = 128;
/// Requests outstanding in all, as the paper's 128 threads have.
const OUTSTANDING: usize = 128;
/// "Over 1.1 million IOPS".
const PAPER: f64 = 1.1e6;
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
struct Bench {
    on: Vec<usize>,
    topology: Topology,
    work: Work,
    seed: u64,
}

impl Bench {
    fn new(lab: &Lab) -> Result<Bench, Error> {
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

    fn cores(&self) -> usize {
        self.topology.cores()
    }

    /// The drive with so many queues of so many entries, and `ns` a command.
    fn drive(&self, queues: usize, entries: usize, ns: u64) -> Result<Timed, Error> {
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

    fn run<P: Blocks + Send>(&self, ports: Vec<P>, shape: &Shape) -> Result<Ran, Error> {
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

    /// The paper's drive on a thread of its own on core `device`, which
    /// interrupts this one on core `host` for `count` completions; and how many
    /// interrupts there were a request.
    fn interrupted(&self, count: usize, host: usize, device: usize) -> Result<(Ran, f64), Error> {
        let drive = self.drive(1, SERVERS, PAPER_NS)?;
        let shape = drive.shape();
        let port = drive.open().remove(0);
        let options = HostedOptions {
            depth: OUTSTANDING,
            coalesce: Coalesce { count, time: LATEST },
            core: Some(device),
            ..HostedOptions::default()
        };
        let failed = |e: device::hosted::HostedError| Error::Failed(e.to_string());
        let (driver, hosted) = HostedDriver::start(port, shape, options).map_err(failed)?;
        let one = Topology::new(1, 1).map_err(refused)?;
        let contexts = build(&Config::new(one), Any(driver)).map_err(refused)?.0;
        let load = TightOptions { depth: OUTSTANDING, batch: OUTSTANDING, ..self.work.load };
        let work = Work { load, ..self.work };
        let idle = |context: &mut Context<AnyQueue>| {
            context.wait(None);
        };
        let ran = threads::run(contexts, &[host], &shape, work, idle)?;
        let interrupts = hosted.counters().interrupts as f64;
        let requests = ran.iops * (work.ramp + work.time) as f64 / 1e9;
        Ok((ran, interrupts / requests))
    }
}

/// A command's time of the paper's drive in ns: fitted, so that 128 at once
/// make its IOPS.
const PAPER_NS: u64 = (SERVERS as f64 * 1e9 / PAPER) as u64;
/// A completion is told of at the latest after so many ns.
const LATEST: u64 = 50_000;

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let bench = Bench::new(lab)?;
    let papers = variants(lab, &bench, PAPER_NS)?;
    let most = most(lab, &bench)?;
    let scaled_ns = (32.0 * 1e9 / most.median()).max(1.0) as u64;
    let mut scaled = variants(lab, &bench, scaled_ns)?;
    if let Some(why) = most.void() {
        // Nothing is known of a drive that was fitted to a disturbed run.
        scaled.iter_mut().for_each(|(_, runs)| *runs = runs.clone().voided(why));
    }
    let mut rows = on_the_papers_drive(&papers, &most);
    rows.extend(on_the_scaled_drive(&scaled, cost_of_scsi(lab, &bench)?));
    rows.extend(interrupts(lab, &bench)?);
    Ok(Findings::new(rows, notes(&bench, scaled_ns)))
}

fn case(bench: &Bench, what: &str, ns: u64) -> Case {
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

fn with_share(ran: Ran) -> (f64, Option<f64>) {
    (ran.iops, ran.share)
}

/// All variants on a drive.
fn variants(lab: &mut Lab, bench: &Bench, ns: u64) -> Result<Vec<(Way, Runs)>, Error> {
    let cases = WAYS.map(|way| case(bench, &name(way), ns));
    let turns = lab.by_turns(&cases, |i| Ok(with_share(bench.variant(WAYS[i], ns)?)))?;
    Ok(WAYS.into_iter().zip(turns.iter().map(iops)).collect())
}

fn iops(turns: &Turns<f64>) -> Runs {
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

/// Coalescing on two neighbouring cores, and a near against a far core.
fn interrupts(lab: &mut Lab, bench: &Bench) -> Result<Vec<Row>, Error> {
    let (on, _) = lab.options.topology()?;
    let [host, next, ..] = on[..] else {
        let one = Runs::new(vec![]).voided("the drive has a thread of its own: it takes two cores");
        let says = "interrupts are mitigated";
        return Ok(vec![Row::order(MITIGATION, "IOPS", says, [("interrupts", one)])]);
    };
    let mut rows = mitigation(lab, bench, host, next)?;
    rows.push(far_row(near_and_far(lab, bench, &on)?));
    Ok(rows)
}

/// IOPS with the drive on a core that shares its last-level cache with the
/// host's, and on one that does not, if there are both.
fn near_and_far(lab: &mut Lab, bench: &Bench, on: &[usize]) -> Result<Option<[Runs; 2]>, Error> {
    let host = on[0];
    let Some(cache) = last_cache(host) else { return Ok(None) };
    let other = |same: bool| {
        let is = |core: &usize| last_cache(*core).is_some_and(|c| (c == cache) == same);
        on[1..].iter().copied().find(is)
    };
    let (Some(near), Some(far)) = (other(true), other(false)) else { return Ok(None) };
    let cases = ["near", "far"].map(|what| case(bench, &format!("{what} interrupts"), PAPER_NS));
    let turns = lab.by_turns(&cases, |i| {
        Ok(with_share(bench.interrupted(1, host, if i == 0 { near } else { far })?.0))
    })?;
    Ok(Some([iops(&turns[0]), iops(&turns[1])]))
}

fn far_row(runs: Option<[Runs; 2]>) -> Row {
    let [near, far] = runs.unwrap_or_else(|| {
        let none = "no two cores here have different last-level caches";
        [Runs::new(vec![]).voided(none), Runs::new(vec![]).voided(none)]
    });
    let says = "a neighbour's \"cache hits allow faster response\"";
    Row::order(FIGURE_3, "IOPS", says, [("near core", near), ("far core", far)])
}

/// The cores that share a core's last-level cache, as the system names them.
fn last_cache(core: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cache/index3/shared_cpu_list");
    std::fs::read_to_string(path).ok()
}

const COUNTS: [usize; 3] = [1, 4, 16];

fn mitigation(lab: &mut Lab, bench: &Bench, host: usize, device: usize) -> Result<Vec<Row>, Error> {
    let cases = COUNTS.map(|n| case(bench, &format!("{n} completions per interrupt"), PAPER_NS));
    let turns = lab.by_turns(&cases, |i| {
        let (ran, interrupts) = bench.interrupted(COUNTS[i], host, device)?;
        Ok(((ran.iops, interrupts), ran.share))
    })?;
    let mut rows = Vec::new();
    for (n, turns) in COUNTS.iter().zip(&turns) {
        for (what, unit, runs) in [
            (format!("{n} per interrupt"), "IOPS", turns.runs(|ran| ran.0)),
            (format!("{n} per interrupt: interrupts"), "a request", turns.runs(|ran| ran.1)),
        ] {
            rows.push(Row::shown(MITIGATION, &what, unit, Reference::Silent, runs, AWAKE));
        }
    }
    Ok(rows)
}

/// Why the paper's "4 commands per interrupt worked best" is not judged.
const AWAKE: &str = "the paper: 4 \"worked best\"; here the drive interrupts only a host that \
                     sleeps, and what completes meanwhile comes with the same interrupt";

fn notes(bench: &Bench, scaled_ns: u64) -> Vec<String> {
    vec![
        format!(
            "fitted: the time of a command. {PAPER_NS} ns, so that 128 make 1.1 M IOPS; and \
             {scaled_ns} ns, so that 32 make what our request queue can do at most"
        ),
        format!(
            "{} cores submit, pinned, with {OUTSTANDING} requests outstanding in all: the paper \
             has 128 threads on 8 cores",
            bench.cores()
        ),
        "requests are of 4 KiB, the least that this drive takes, and stand for 512 B: it has no \
         bus"
        .into(),
        "request queue: one lock, an elevator that sorts (deadline) and merges while the drive is \
         busy; direct: each core into the drive, which has a lock of its own"
            .into(),
        "completion work on one core and divided (figure 6) is not here: a completion is the \
         submitting core's; cores poll, so nothing is an interrupt but where that is said"
            .into(),
        format!(
            "an interrupt here wakes a thread that sleeps; one that waits is sent after {} us at \
             the latest",
            LATEST / 1000
        ),
        "benchmark method, read-modify-write, file systems and the buffer cache (figures 1, 7 to \
         14) are not of this layer and not here"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict};
    use super::*;
    use load::watch::Watch;

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

    #[test]
    fn the_quick_study_has_all_rows() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let cores = threads::cores().unwrap().len();
        let expected = 9 + 11 + if cores > 1 { 7 } else { 1 };
        assert_eq!(outcome.rows.len(), expected);
        let both = name((Variant::Direct, 128));
        let row = outcome.rows.iter().find(|row| row.what() == both).unwrap().to_json();
        // The drive does what it was fitted to, and no more.
        assert!(row["ours"]["median"].as_f64().unwrap() < 1.2 * PAPER, "{row}");
    }
}
