//! What is told of each job: those of a group together where that is asked for.
//!
//! Guarantees: figures are sums of what was measured; a percentile is that of all
//! latencies together. Nothing here fails.

use bench::{OpenLoop, why_void};
use load::tally::Tally;
use measure::Row;
use measure::why::{Asks, Why};
use port::BlockOp;

use crate::job::Job;
use crate::run::{All, Ran};

/// Why figures mean nothing, if they do not: by what was measured, or by what was `known`.
pub fn void(tally: &Tally, known: &Option<String>) -> Option<String> {
    let why = why_void(tally, tally.all().count(), tally.bytes(BlockOp::Read));
    why.or_else(|| known.clone())
}

/// As many requests that were due in the time of a job must not have been made where the drive
/// is told as slower: fewer may have come while the last one was waited for.
const MISSING: u128 = 100;

/// What is to be known of a clone whose requests come at a rate that it did not keep. `runtime`
/// is that of its job in ns, if it has one: then it does not matter how few were done of what was
/// due in it.
pub fn behind(tally: &Tally, rate: u64, runtime: Option<u64>) -> Option<String> {
    let flushes = tally.latency(BlockOp::Flush).count();
    let requests = tally.all().count() + flushes + tally.failed;
    let reached = OpenLoop::new(rate, requests, tally.seconds());
    let has_time = |ns: &u64| tally.seconds() * 1e9 >= *ns as f64;
    let due = runtime.filter(has_time).map(|ns| u128::from(rate) * u128::from(ns) / 1_000_000_000);
    let done = u128::from(requests);
    let is_late = |due: u128| due >= done + MISSING && done * 100 < due * 95;
    let words = format!(
        "{rate} a second asked, {:.0} reached: the drive is slower, and latencies are those of a \
         queue that grows",
        reached.reached
    );
    (reached.behind || due.is_some_and(is_late)).then_some(words)
}

/// A job, or those of a group, and what was done.
pub struct Told<'a> {
    /// The job; of a group the first one.
    pub job: &'a Job,
    /// Its group.
    pub group: u32,
    /// The round that it ran in, of a group the first.
    pub round: usize,
    /// Clones that are in it.
    pub clones: usize,
    /// What they ask a drive for.
    pub asks: Asks,
    /// What was measured.
    pub tally: Tally,
    /// Processor time of its rounds: of the user and of the system, in seconds.
    pub cpu: (f64, f64),
    /// What measuring its rounds took on the wall, in seconds.
    pub wall: f64,
    /// The same with what was before it and after it.
    pub wall_in_all: f64,
    /// Requests of all in its round.
    pub round_ios: u64,
    /// Whether what the drive did was for it alone.
    pub is_alone: bool,
    /// Requests out, where all clones keep the same number out: neither those that come at
    /// a rate nor those that pause do.
    pub depth: Option<u32>,
    /// Why its figures mean nothing, whatever was measured, if they do not.
    pub known_void: Option<String>,
}

impl<'a> Told<'a> {
    /// All that is told, in order.
    pub fn all(jobs: &'a [Job], all: All) -> Vec<Told<'a>> {
        let mut told: Vec<(Told<'a>, Vec<Tally>)> = Vec::new();
        let mut open: Option<u32> = None;
        for Ran { task, round, tally, cpu, wall, wall_in_all, round_ios, is_alone, void, .. } in
            all.ran
        {
            let job = &jobs[task.job];
            let joins = job.company.is_together && open == Some(task.group);
            open = job.company.is_together.then_some(task.group);
            let keeps = job.pace.rate.is_none() && job.pace.think.is_none();
            let most = tally.all().count().min(u32::MAX.into()) as u32;
            let depth = keeps.then_some(job.pace.depth.min(most));
            match told.last_mut().filter(|_| joins) {
                Some((one, tallies)) => {
                    one.clones += 1;
                    one.is_alone = false;
                    one.known_void = one.known_void.take().or(void);
                    one.asks = one.asks.or(job.asks());
                    one.depth = one.depth.filter(|&own| Some(own) == depth);
                    tallies.push(tally);
                }
                None => {
                    let (group, clones) = (task.group, 1);
                    let none = Tally::new();
                    let one = Told {
                        job,
                        group,
                        round,
                        clones,
                        asks: job.asks(),
                        tally: none,
                        cpu,
                        wall,
                        wall_in_all,
                        round_ios,
                        is_alone,
                        depth,
                        known_void: void,
                    };
                    told.push((one, vec![tally]));
                }
            }
        }
        let merged = |(one, tallies)| Told { tally: Tally::merge(tallies), ..one };
        told.into_iter().map(merged).collect()
    }

    /// Where the time of its requests went, where that was kept: with `all` that ran, of
    /// which those of its round may have delayed it, and those of rounds before by what
    /// they left on its way.
    pub fn why(&'a self, all: &'a [Told]) -> Why<'a> {
        let until = all.iter().filter(|one| one.round <= self.round);
        Why::of_loads(until.map(|one| {
            let causes = self.tally.causes.as_ref().filter(|_| std::ptr::eq(one, self));
            (format!("[{}]", one.job.name), one.asks, causes)
        }))
    }

    /// Why a run fails, if it does.
    pub fn problem(&self) -> Option<String> {
        self.tally.problem().map(|what| format!("[{}] {what}", self.job.name))
    }

    /// Why its figures mean nothing, if they do not.
    pub fn void(&self) -> Option<String> {
        void(&self.tally, &self.known_void)
    }

    /// Rows of a second each, where all is of this kind of request, so that they are its.
    pub fn rows_of(&self, op: BlockOp) -> Vec<Row> {
        let only = self.tally.all().count() == self.tally.latency(op).count();
        if only { self.tally.rows() } else { Vec::new() }
    }

    /// Seconds of drive time.
    pub fn seconds(&self) -> f64 {
        self.tally.seconds()
    }
}
