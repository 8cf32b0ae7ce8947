//! Interrupts of a fast drive (Seppanen, sections III.B and V.B): how many completions come
//! with one (V.B), to a near or a far core (figure 3), and who does a completion's work
//! (figure 6).
//!
//! Of figure 6 the work is divided as there: one core looks for the completions of all;
//! two do, each for a half of the tags; or each for its own. There one core sends another
//! an interrupt; here it puts what it found into that core's ring, under a lock. Fails as
//! a load on several cores does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blkmq::driver::any::{Any, AnyQueue};
use blkmq::{Config, Context, Driver, Topology, build};
use device::hosted::{Coalesce, HostedOptions};
use hosting::hosted::HostedDriver;
use port::{BlockDone, BlockReq, Port, Ring, Time};
use workload::TightOptions;

use super::super::baseline::raw;
use super::super::layers::refused;
use super::super::threads::{self, Blocks, Ran, Work};
use super::super::{Lab, Reference, Row, Runs};
use super::driver::{Bench, OUTSTANDING, PAPER_NS, SERVERS, case, iops, with_share};
use drive::error::Error;

const MITIGATION: &str = "Seppanen, section V.B: completions per interrupt";
const FIGURE_3: &str = "Seppanen, figure 3: interrupts to a near and a far core";
const FIGURE_6: &str = "Seppanen, figure 6: completion work, one core's and divided";

/// A completion is told of at the latest after so many ns.
pub const LATEST: u64 = 50_000;

/// The paper's drive on a thread of its own on core `device`, which
/// interrupts this one on core `host` for `count` completions; and how many
/// interrupts there were a request.
fn interrupted(
    bench: &Bench,
    count: usize,
    host: usize,
    device: usize,
) -> Result<(Ran, f64), Error> {
    let drive = bench.drive(1, SERVERS, PAPER_NS)?;
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
    let load = TightOptions { depth: OUTSTANDING, batch: OUTSTANDING, ..bench.work.load };
    let work = Work { load, ..bench.work };
    let idle = |context: &mut Context<AnyQueue>| {
        context.wait(None);
    };
    let ran = threads::run(contexts, &[host], &shape, work, idle)?;
    let interrupts = hosted.counters().interrupts as f64;
    let requests = ran.iops * (work.ramp + work.time) as f64 / 1e9;
    Ok((ran, interrupts / requests))
}

/// All rows. Where there is one core there is one, which says so.
pub fn rows(lab: &mut Lab, bench: &Bench) -> Result<Vec<Row>, Error> {
    let (on, _) = lab.options.topology()?;
    let [host, next, ..] = on[..] else {
        let one = Runs::new(vec![]).voided("the drive has a thread of its own: it takes two cores");
        let says = "interrupts are mitigated";
        return Ok(vec![Row::order(MITIGATION, "IOPS", says, [("interrupts", one)])]);
    };
    let mut rows = mitigation(lab, bench, host, next)?;
    rows.push(far_row(near_and_far(lab, bench, &on)?));
    rows.extend(division(lab, bench)?);
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
        Ok(with_share(interrupted(bench, 1, host, if i == 0 { near } else { far })?.0))
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
        let (ran, interrupts) = interrupted(bench, COUNTS[i], host, device)?;
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

/// What a core sees of drive queues that all have, of which some core looks for the
/// completions of each.
struct Divided<Q> {
    core: usize,
    /// The queues in which it looks for completions.
    duties: Vec<usize>,
    shared: Arc<Shared<Q>>,
    found: Ring<BlockDone>,
    last: Time,
}

/// A queue for each core, and what was found for it.
struct Shared<Q> {
    queues: Vec<Mutex<Q>>,
    found: Vec<Mutex<Ring<BlockDone>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ports over `queues`, one for each core, of which the first `ways` look for completions.
fn divided<Q: Blocks>(queues: Vec<Q>, ways: usize, depth: usize) -> Vec<Divided<Q>> {
    let cores = queues.len();
    let found = (0..cores).map(|_| Mutex::new(Ring::new(depth))).collect();
    let shared = Arc::new(Shared { queues: queues.into_iter().map(Mutex::new).collect(), found });
    let one = |core| {
        let duties = (0..cores).filter(|queue| queue % ways == core).collect();
        let (shared, found) = (shared.clone(), Ring::new(depth));
        Divided { core, duties, shared, found, last: Time::ZERO }
    };
    (0..cores).map(one).collect()
}

impl<Q: Blocks> Port for Divided<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.last = now;
        lock(&self.shared.queues[self.core]).submit(now, reqs);
    }

    fn next_event(&self) -> Option<Time> {
        let waits = !lock(&self.shared.found[self.core]).is_empty();
        if waits { Some(self.last) } else { lock(&self.shared.queues[self.core]).next_event() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        for &queue in &self.duties {
            lock(&self.shared.queues[queue]).advance(to, &mut self.found);
            let mut theirs = lock(&self.shared.found[queue]);
            while let Some(one) = self.found.pop() {
                theirs.put(|| one);
            }
        }
        let mut own = lock(&self.shared.found[self.core]);
        while done.room() > 0
            && let Some(one) = own.pop()
        {
            done.put(|| one);
        }
    }
}

/// Figure 6, on a drive that takes no time: so the host is what limits, as there.
fn division(lab: &mut Lab, bench: &Bench) -> Result<Vec<Row>, Error> {
    let cores = bench.cores();
    let ways = if cores > 2 { vec![1, 2, cores] } else { vec![1, 2] };
    let name = |ways| match ways {
        1 => "one core's".to_string(),
        2 => "divided two ways".into(),
        _ => "each core's own".into(),
    };
    let cases: Vec<_> =
        ways.iter().map(|&n| case(bench, &format!("completions {}", name(n)), 0)).collect();
    let turns = lab.by_turns(&cases, |i| {
        let depth = OUTSTANDING / cores;
        let drive = bench.drive(cores, depth, 0)?;
        let shape = drive.shape();
        let queues = raw(Any(drive), cores).map_err(refused)?;
        Ok(with_share(bench.run(divided(queues, ways[i], depth), &shape)?))
    })?;
    Ok(division_rows(&turns.iter().map(iops).collect::<Vec<_>>(), name))
}

const NO_BAR: &str = "the bars of the figure have no numbers in the text";
const LITTLE_WORK: &str =
    "a completion's work here is not a kernel's, which wakes a thread for each";

fn division_rows(of: &[Runs], name: impl Fn(usize) -> String) -> Vec<Row> {
    let [one, two, ..] = of else { return Vec::new() };
    let each = of.get(2).cloned().unwrap_or_else(|| {
        Runs::new(vec![]).voided("on two cores this is the same as two ways; it takes four")
    });
    let shown = |what: &str, unit, paper, runs: Runs, why| {
        Row::shown(FIGURE_6, what, unit, paper, runs, why)
    };
    let silent = Reference::Silent;
    let says = "no division \"performs relatively poorly, while the 2-way split handler achieves \
                48% higher IOPS\"";
    vec![
        shown("one core's", "IOPS", silent.clone(), one.clone(), NO_BAR),
        shown("divided two ways", "IOPS", silent.clone(), two.clone(), NO_BAR),
        shown("each core's own", "IOPS", silent, each.clone(), NO_BAR),
        Row::order(FIGURE_6, "IOPS", says, [(name(2), two.clone()), (name(1), one.clone())]),
        shown(
            "two ways / one core's",
            "x",
            Reference::Paper(1.48),
            two.with(one, |two, one| two / one),
            LITTLE_WORK,
        ),
        shown(
            "each core's own / two ways",
            "x",
            Reference::Paper(0.83),
            each.with(two, |each, two| each / two),
            "what it loses there is the interrupt from core to core, which a kernel sends",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use blkmq::driver::null::{Null, NullOptions};
    use port::BlockOp;
    use workload::Tight;

    use super::super::super::Verdict;
    use super::*;

    /// However the work is divided, every core gets its own back.
    #[test]
    fn completions_come_back_to_their_core() {
        for ways in [1, 2, 4] {
            let options = NullOptions { submit_queues: 4, ..NullOptions::default() };
            let null = Null::new(options).unwrap();
            let shape = null.shape();
            let load = TightOptions { op: BlockOp::Read, len: 4096, depth: 8, batch: 1, seed: 1 };
            let mut all: Vec<_> = divided(null.open(), ways, 8)
                .into_iter()
                .map(|port| (port, Tight::new(&shape, load).unwrap()))
                .collect();
            for turn in 0..50 {
                for (port, tight) in &mut all {
                    tight.turn(Time(turn), port);
                }
            }
            for (_, tight) in &all {
                assert!(tight.completed() >= 40 && tight.errors() == 0, "{}", tight.completed());
            }
            assert_eq!(all.iter().filter(|(port, _)| !port.duties.is_empty()).count(), ways);
        }
    }

    #[test]
    fn dividing_is_judged_and_what_two_cores_cannot_show_is_not() {
        let verdicts = |iops: &[f64]| {
            let runs: Vec<_> = iops.iter().map(|&iops| Runs::one(iops)).collect();
            let rows = division_rows(&runs, |n| n.to_string());
            rows.iter().map(Row::verdict).collect::<Vec<_>>()
        };
        let two = verdicts(&[1.0, 1.5]);
        assert_eq!((two.len(), &two[3]), (6, &Verdict::Pass));
        assert!(matches!(&two[5], Verdict::NotGated(why) if why.contains("it takes four")));
        assert_eq!(verdicts(&[1.5, 1.0, 0.9])[3], Verdict::Fail);
    }
}
