//! Short work, cut at every event.
//!
//! A script is lines of text:
//!
//! | line | does |
//! |---|---|
//! | `write 5`, `write 5+3`, `write 5 fua` | writes block 5; 5 to 7; with FUA |
//! | `write 5.2+3` | writes sectors 2 to 4 of block 5 |
//! | `read`, `trim`, `zeroes` | the same ranges |
//! | `flush` | a flush |
//! | `churn 20` | 20 writes of one block, all over the drive, 4 at once |
//! | `wait` | until all that was sent has completed |
//! | `begin` | what stands before it is done without a cut |
//! | `power` | the end of a phase: after it power goes, if it did not before |
//! | `recovery` | the recovery that follows is cut at every event, too |
//!
//! Requests are sent without waiting for each other, unless `wait` says so.
//! Each phase is cut at every event, in every combination. After the last
//! recovery everything is checked, recovered and checked again, and the drive
//! must take writes to all of its blocks.

use flash::{Dimensions, Geometry, Queues, ReadCache, Timing};
use port::{BLOCK_BYTES, BlockOp, SECTOR_BYTES};
use targets::{Pblk, Victim, with_reserve};
use thiserror::Error;

use crate::life::Living;
use crate::machine::{Ask, MOST_AT_ONCE, Machine, Violation};
use crate::setup::{LinkAt, Setup, Work};
use crate::species::Species;
use crate::trouble::Troubles;

/// Sectors of a block.
const SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// Requests at once of a churn.
const CHURN_AT_ONCE: usize = 4;

/// A line of a script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(Ask),
    Churn(u64),
    Wait,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: `{text}` is no step; it takes {takes}")]
pub struct ScriptError {
    /// Its number, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
    /// What would be right.
    pub takes: &'static str,
}

/// Short work.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it is about.
    pub name: String,
    prelude: Vec<Step>,
    phases: Vec<Vec<Step>>,
    recovery: bool,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Runs, each with its own cuts.
    pub runs: u64,
    /// Runs in which power went before the work was done.
    pub cut: u64,
    /// Runs in which recovery was cut.
    pub cut_recoveries: u64,
    /// Chunks collected, over all runs.
    pub collections: u64,
}

/// A violation, and the cuts that lead to it.
#[derive(Clone, Debug, Error)]
#[error("{script}: cut after {cuts:?} events of its phases: {violation}")]
pub struct BrokenScript {
    /// The script's name.
    pub script: String,
    /// Events of each phase, then of the recovery.
    pub cuts: Vec<u64>,
    /// What was seen.
    pub violation: Violation,
}

/// `5`, `5+3`, `5.2` or `5.2+3` as first sector and sectors.
fn range(text: &str) -> Option<(u64, u64)> {
    let (start, count) = match text.split_once('+') {
        Some((start, count)) => (start, count.parse().ok()?),
        None => (text, 1),
    };
    let (first, count) = match start.split_once('.') {
        Some((block, sector)) => {
            (block.parse::<u64>().ok()? * SECTORS + sector.parse::<u64>().ok()?, count)
        }
        None => (start.parse::<u64>().ok()? * SECTORS, count * SECTORS),
    };
    (count > 0).then_some((first, count))
}

fn step(words: &[&str]) -> Option<Step> {
    let op = match *words.first()? {
        "wait" => return Some(Step::Wait),
        "churn" => return Some(Step::Churn(words.get(1)?.parse().ok()?)),
        "flush" => {
            return Some(Step::Ask(Ask { op: BlockOp::Flush, fua: false, sector: 0, count: 0 }));
        }
        "write" => BlockOp::Write,
        "read" => BlockOp::Read,
        "trim" => BlockOp::Trim,
        "zeroes" => BlockOp::WriteZeroes,
        _ => return None,
    };
    let (sector, count) = range(words.get(1)?)?;
    let fua = match words.get(2) {
        None => false,
        Some(&"fua") => true,
        Some(_) => return None,
    };
    Some(Step::Ask(Ask { op, fua, sector, count }))
}

impl Script {
    /// Reads a script. Empty lines, and what follows a `#`, say nothing.
    pub fn parse(name: &str, text: &str) -> Result<Script, ScriptError> {
        let mut script = Script {
            name: name.into(),
            prelude: Vec::new(),
            phases: vec![Vec::new()],
            recovery: false,
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let words: Vec<&str> = line.split_whitespace().collect();
            let phase = script.phases.last_mut().expect("there is one");
            match words[..] {
                [] => {}
                ["begin"] => script.prelude = std::mem::take(phase),
                ["power"] => script.phases.push(Vec::new()),
                ["recovery"] => script.recovery = true,
                _ => phase.push(step(&words).ok_or_else(|| ScriptError {
                    line: number + 1,
                    text: line.into(),
                    takes: "write, read, trim, zeroes RANGE [fua], flush, churn N, wait, begin, \
                            power or recovery; RANGE is BLOCK[.SECTOR][+COUNT]",
                })?),
            }
        }
        Ok(script)
    }

    /// Tries every cut on a drive.
    pub fn explore(&self, setup: &Setup) -> Result<Explored, BrokenScript> {
        let mut cuts = vec![0; self.phases.len() + usize::from(self.recovery)];
        let mut explored = Explored::default();
        loop {
            let mut machine = Machine::new(setup.clone(), None, None);
            let ended = self.run(&mut machine, &cuts).map_err(|violation| BrokenScript {
                script: self.name.clone(),
                cuts: cuts.clone(),
                violation,
            })?;
            explored.runs += 1;
            explored.cut += u64::from(!ended[self.phases.len() - 1]);
            explored.cut_recoveries += u64::from(self.recovery && !ended[self.phases.len()]);
            explored.collections += machine.rig.counts.collections;
            // The next cuts, the last part first; a part that ended before its
            // cut has none later.
            let Some(next) = (0..cuts.len()).rev().find(|&part| !ended[part]) else {
                return Ok(explored);
            };
            cuts[next] += 1;
            cuts[next + 1..].fill(0);
        }
    }

    /// One run, with power for so many events of each part. Gives which of the
    /// parts ended before.
    fn run(&self, machine: &mut Machine, cuts: &[u64]) -> Result<Vec<bool>, Violation> {
        let mut ended = Vec::new();
        machine.power_up(u64::MAX)?;
        do_steps(machine, &self.prelude)?;
        machine.drain()?;
        for (i, phase) in self.phases.iter().enumerate() {
            if i > 0 {
                machine.power_up(u64::MAX)?;
                machine.check_all()?;
            }
            machine.rig.flash.power().lasts(cuts[i]);
            do_steps(machine, phase)?;
            ended.push(machine.drain()? && !machine.rig.is_off());
            machine.power_down();
        }
        if self.recovery {
            ended.push(machine.power_up(cuts[self.phases.len()])?);
            machine.power_down();
        }
        machine.power_up(u64::MAX)?;
        machine.check_all()?;
        machine.power_down();
        machine.power_up(u64::MAX)?;
        machine.check_all()?;
        go_on(machine)?;
        Ok(ended)
    }
}

fn do_steps(machine: &mut Machine, steps: &[Step]) -> Result<(), Violation> {
    for step in steps {
        match *step {
            Step::Ask(ask) => {
                one(machine, ask, MOST_AT_ONCE)?;
            }
            Step::Churn(writes) => churn(machine, writes)?,
            Step::Wait => {
                machine.drain()?;
            }
        }
        if machine.rig.is_off() {
            break;
        }
    }
    Ok(())
}

/// Sends a request when fewer than `at_once` are under way.
fn one(machine: &mut Machine, ask: Ask, at_once: usize) -> Result<(), Violation> {
    while machine.under_way() >= at_once {
        if !machine.step()? {
            return Ok(());
        }
    }
    machine.send(ask)
}

/// Writes all over the drive, each block as often as the others.
fn churn(machine: &mut Machine, writes: u64) -> Result<(), Violation> {
    let blocks = machine.setup.blocks();
    for i in 0..writes {
        let block = (i * 7 + i / blocks) % blocks;
        let ask = Ask { op: BlockOp::Write, fua: false, sector: block * SECTORS, count: SECTORS };
        one(machine, ask, CHURN_AT_ONCE)?;
        if machine.rig.is_off() {
            break;
        }
    }
    Ok(())
}

/// Every block can be written, twice over.
fn go_on(machine: &mut Machine) -> Result<(), Violation> {
    let blocks = machine.setup.blocks();
    churn(machine, 2 * blocks)?;
    one(machine, Ask { op: BlockOp::Flush, fua: false, sector: 0, count: 0 }, MOST_AT_ONCE)?;
    machine.drain()?;
    machine.check_now()
}

/// The drives that scripts run on: with time, with a link, with no time.
pub fn drives() -> [(&'static str, Setup); 3] {
    let timed = Timing {
        read: vec![50_000],
        program: vec![600_000, 900_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        suspend: true,
        suspend_time: 5_000,
        resume_time: 5_000,
        suspend_limit: 4,
        ..Timing::default()
    };
    [
        ("timed", drive(timed.clone(), LinkAt::Nowhere)),
        ("linked", drive(timed, LinkAt::Below)),
        ("instant", drive(Timing::default(), LinkAt::Nowhere)),
    ]
}

fn drive(timing: Timing, link_at: LinkAt) -> Setup {
    let data_chunks = 3;
    let dimensions = Dimensions {
        groups: 2,
        chunks: data_chunks,
        pages: 2,
        page_bytes: 8192,
        ..Dimensions::LEAST
    };
    let geometry = Geometry::new(with_reserve(dimensions)).expect("its ranges are kept");
    let space = u64::from(data_chunks * geometry.chunk_blocks() * geometry.total_pus());
    let bytes = space * 3 / 4 * BLOCK_BYTES;
    let link = device::LinkTiming {
        controller: 3_000,
        latency: 2_000,
        rate: 1_000_000_000,
        ..device::LinkTiming::default()
    };
    let work = Work {
        reads: 0,
        flushes: 0,
        trims: 0,
        zeroes: 0,
        fua: 0,
        blocks: 1,
        depth: MOST_AT_ONCE,
        skew: 0,
        pause: 0,
    };
    Setup {
        geometry,
        timing,
        kept: BLOCK_BYTES as u32,
        parts: true,
        link_at,
        link,
        queues: Queues::default(),
        buffer_rate: 0,
        buffer_rows: 0,
        species: Species::of::<Pblk<_>>(),
        bytes,
        data_chunks,
        streams: 1,
        idle_collection: 0,
        victim: Victim::Greedy,
        seed: 7,
        work,
        troubles: Troubles::default(),
        protected: false,
        parity: 0,
        unit: 1,
        map_pages: 0,
        read_cache: ReadCache::default(),
        layers: None,
        shares: None,
    }
}

/// The scripts that every change must pass, by name.
pub const SCRIPTS: [(&str, &str); 19] = [
    ("write and flush", "recovery\nwrite 1\nflush"),
    ("overwrite in one row", "recovery\nwrite 1\nwrite 1\nflush\nwait\nwrite 1\nwrite 1"),
    ("overwrite in another row", "write 1+4\nflush\nwrite 1+2\nwrite 2+4\nflush"),
    ("fua", "recovery\nwrite 3 fua\nwrite 3\nwrite 4 fua\nwait\nwrite 3"),
    ("trim and flush", "write 0+8\nflush\nbegin\ntrim 2+2\nflush\nwait\nwrite 7\nflush"),
    ("trim, then write", "write 0+8\nflush\nbegin\ntrim 2+3\nwrite 2\nflush\nwait\nwrite 3"),
    ("write, trim and write in one row", "recovery\nwrite 1\ntrim 1\nwrite 1\nflush"),
    ("trim with fua", "write 0+4\nflush\nbegin\ntrim 1+2 fua\nwait\nwrite 1"),
    ("write zeroes", "write 0+8\nflush\nbegin\nzeroes 1+3\nflush\nwait\nwrite 2\nzeroes 0\nflush"),
    ("write zeroes to parts", "write 0+4\nflush\nbegin\nzeroes 1.4+12\nflush\nwait\nzeroes 2.0+3"),
    (
        "parts of a block",
        "write 5\nflush\nbegin\nwrite 5.3+2\nflush\nwrite 5.4+3\nwrite 5.0+1\nflush",
    ),
    ("parts over two blocks", "write 4+2\nflush\nbegin\nwrite 4.6+4\nwrite 4.7+2 fua\nread 4+2"),
    ("parts of a trimmed block", "write 5\nflush\nbegin\ntrim 5\nwrite 5.3+2\nflush"),
    ("flushes at once", "write 1\nflush\nwrite 2\nflush\nflush\nwrite 1\nflush"),
    ("chunk boundary", "write 0+6\nflush\nbegin\nwrite 6+6\nflush\nwrite 0+3\nflush"),
    ("collection", "churn 90\nflush\nbegin\nchurn 24\nflush"),
    ("flush during collection", "churn 90\nflush\nbegin\nchurn 6\nflush\nchurn 6\nflush\nchurn 6"),
    ("two cuts", "write 0+4\nflush\npower\nwrite 0+2\nflush\ntrim 3\nflush"),
    ("collection, cut in recovery", "recovery\nchurn 60\nflush\nbegin\nchurn 3\nflush"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_step_is_an_error() {
        for text in ["wirte 1", "write", "write x", "write 1+0", "write 1 now", "churn"] {
            let error = Script::parse("bad", &format!("flush\n{text}")).unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (2, text));
        }
    }

    #[test]
    fn ranges_are_in_blocks_or_in_sectors() {
        assert_eq!(range("5"), Some((40, 8)));
        assert_eq!(range("5+3"), Some((40, 24)));
        assert_eq!(range("5.2"), Some((42, 1)));
        assert_eq!(range("5.2+3"), Some((42, 3)));
    }

    #[test]
    fn every_cut_of_a_script_is_tried() {
        let script = Script::parse("two", "write 0\nflush\npower\nwrite 1\nflush").unwrap();
        let (_, setup) = &drives()[0];
        let explored = script.explore(setup).unwrap();
        // Each phase is a row on its way: in, array, done.
        assert!(explored.runs >= 9 && explored.cut > 4, "{explored:?}");
    }
}
