//! Jobs on a drive: who runs with whom, and what each asks of a drive of some size.
//!
//! Guarantees: rounds and groups are fio's: a round ends before a job with `stonewall`, a
//! group before that or one with `new_group`, and a clone of a job begins neither. What
//! is asked lies on the drive. Fails where it does not, with the job's line.

use bench::stand::About;
use drive::error::Error;
use load::bursts::Pauses;
use load::load::{Load, MOST_BUFFERS, MOST_SLOTS, Pace, Share};
use load::runner::{Part, Plan, Until};
use measure::units::size_binary;
use measure::why::Asks;
use port::random::STEP;
use port::{BLOCK_BYTES, Shape};
use workload::{Arrivals, Order, Pattern, Rate, Sizes};

use crate::error::JobError;
use crate::job::{Does, Job, Skew};
use crate::value::Amount;

/// Clones of all jobs, at most.
pub const MOST_TASKS: u64 = 1024;

/// One clone of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which job, from 0.
    pub job: usize,
    /// Which clone of it, from 0.
    pub clone: u32,
    /// Its number among all clones of all jobs, from 0.
    pub number: u64,
    /// Its group.
    pub group: u32,
}

/// Clones of jobs, by round: those of one run at the same time.
pub fn rounds(jobs: &[Job]) -> Result<Vec<Vec<Task>>, JobError> {
    let (mut rounds, mut number, mut group): (Vec<Vec<Task>>, u64, u32) = (Vec::new(), 0, 0);
    for (n, job) in jobs.iter().enumerate() {
        if number + u64::from(job.company.clones) > MOST_TASKS {
            let what = format!("there are more than {MOST_TASKS} jobs: lower numjobs=");
            return Err(JobError::Line { at: job.at.clone(), what });
        }
        if (job.company.waits || job.company.is_new_group) && n > 0 {
            group += 1;
        }
        if job.company.waits || rounds.is_empty() {
            rounds.push(Vec::new());
        }
        for clone in 0..job.company.clones {
            let task = Task { job: n, clone, number, group };
            rounds.last_mut().into_iter().for_each(|round| round.push(task));
            number += 1;
        }
    }
    Ok(rounds)
}

/// Whether the requests of clones that run at the same time are within the bounds of one
/// load, all together. Fails with the line of the job that goes past them.
pub fn fit(jobs: &[Job], tasks: &[Task], asked: &[Asked], shape: &Shape) -> Result<(), Error> {
    let (mut slots, mut bytes) = (0u64, 0u64);
    for (task, asked) in tasks.iter().zip(asked) {
        let job = &jobs[task.job];
        let (own, each) = (job.slots(shape) as u64, shape.stored(asked.pattern.most()) as u64);
        slots += own;
        bytes = bytes.saturating_add(own.saturating_mul(each));
        if slots > MOST_SLOTS || bytes > MOST_BUFFERS {
            return Err(job.wrong(format!(
                "jobs that run at the same time have at most {MOST_SLOTS} requests out, with \
                 {} GiB of buffers, all together: lower iodepth=, numjobs= or bs=, or add stonewall",
                MOST_BUFFERS >> 30
            )));
        }
    }
    Ok(())
}

/// What a clone asks of a drive of some shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Its accesses.
    pub pattern: Pattern,
    /// Requests until it ends; bytes, where their sizes vary.
    pub left: u64,
    /// Its seed.
    pub seed: u64,
}

impl Job {
    fn wrong(&self, what: impl Into<String>) -> Error {
        JobError::Line { at: self.at.clone(), what: format!("[{}] {}", self.name, what.into()) }
            .into()
    }

    /// The one size of its requests, where they have one.
    pub fn one_size(&self) -> Option<u64> {
        match (self.access.sizes.reads, self.access.sizes.others) {
            (Sizes::One(reads), Sizes::One(others)) if reads == others => Some(reads.into()),
            _ => None,
        }
    }

    /// First byte and length of what a clone uses, of so many bytes.
    fn range(&self, clone: u32, bytes: u64) -> Result<(u64, u64), Error> {
        let extent = &self.extent;
        let unit = self.access.sizes.least();
        let part = |percent: u8| (u128::from(bytes) * u128::from(percent) / 100) as u64;
        let offset = match extent.offset {
            Amount::Bytes(offset) => offset,
            Amount::Percent(percent) => part(percent),
        };
        let moved = extent.increment.checked_mul(clone.into());
        let offset = moved.and_then(|moved| offset.checked_add(moved));
        // fio goes on to the next multiple.
        let offset = match extent.offset {
            Amount::Bytes(_) => offset,
            Amount::Percent(_) => offset.and_then(|at| at.checked_next_multiple_of(unit)),
        };
        let offset = offset.unwrap_or(u64::MAX);
        let Some(rest) = bytes.checked_sub(offset).filter(|&rest| rest > 0) else {
            let [offset, bytes] = [offset, bytes].map(size_binary);
            let what = format!("it begins at {offset}, but the drive has {bytes}: lower offset=");
            return Err(self.wrong(what));
        };
        let size = match extent.size {
            None => rest,
            Some(Amount::Bytes(size)) => size,
            Some(Amount::Percent(percent)) => part(percent).min(rest) / unit * unit,
        };
        if size > rest {
            let [size, offset, bytes] = [size, offset, bytes].map(size_binary);
            let what = format!(
                "it uses {size} from {offset} on, but the drive has {bytes}: lower size=, or take \
                 a larger drive"
            );
            return Err(self.wrong(what));
        }
        Ok((offset, size))
    }

    /// What a clone asks of a drive of so many bytes.
    pub fn asked(&self, task: &Task, bytes: u64) -> Result<Asked, Error> {
        let (offset, length) = self.range(task.clone, bytes)?;
        let access = &self.access;
        let order = match access.skew {
            Some(Skew::Zipf(theta)) => Order::Zipf { theta },
            Some(Skew::Pareto(h)) => Order::Pareto { h },
            None if !access.is_random => Order::Sequential,
            None if access.has_map => Order::Once,
            None => Order::Uniform,
        };
        let plain = Pattern {
            offset,
            order,
            flush_every: access.flush_every,
            trim_percent: if access.does == Does::Trims { 100 } else { 0 },
            ..Pattern::uniform(length, access.reads)
        };
        // Reads and writes in order go on each on their own.
        let is_plain = access.is_random || access.does != Does::Both;
        let pattern = match self.one_size().filter(|_| is_plain) {
            Some(bs) => Pattern { bs, ..plain },
            None => plain.of_sizes(access.sizes),
        };
        pattern.check().map_err(|e| self.wrong(e.to_string()))?;
        let left = self.left(length)?;
        let seed = self.seed.wrapping_add(STEP.wrapping_mul(task.number));
        Ok(Asked { pattern, left, seed })
    }

    /// Requests, or bytes where sizes vary, of a clone that uses so many bytes.
    fn left(&self, length: u64) -> Result<u64, Error> {
        let extent = &self.extent;
        let bytes = match extent.io_size {
            None => length,
            Some(Amount::Bytes(bytes)) => bytes,
            Some(Amount::Percent(percent)) => {
                (u128::from(length) * u128::from(percent) / 100) as u64
            }
        };
        let each = match (self.one_size(), extent.requests) {
            (None, Some(_)) => {
                return Err(self.wrong("number_ios= is of one size: take io_size="));
            }
            (None, None) => bytes,
            (Some(bs), most) => {
                let whole = if extent.io_size.is_some() { bytes.div_ceil(bs) } else { bytes / bs };
                whole.min(most.unwrap_or(u64::MAX))
            }
        };
        let all = each.checked_mul(extent.loops).filter(|&all| all > 0);
        all.ok_or_else(|| {
            self.wrong("there is nothing to do, or too much: correct io_size= or loops=")
        })
    }

    /// When a clone ends.
    pub fn plan(&self, asked: &Asked) -> Plan {
        let until = match (self.lasts.runtime, self.lasts.is_timed) {
            (Some(ns), true) => Until::Time(ns),
            (Some(ns), false) => Until::Either(asked.left, ns),
            (None, _) => Until::Ios(asked.left),
        };
        Plan { ramp: self.lasts.ramp, until, count: true }
    }

    /// Whether a drive takes what it asks.
    pub fn check(&self, asked: &Asked, about: &About) -> Result<(), Error> {
        let (least, most) = about.sizes;
        let sizes = &self.access.sizes;
        if !sizes.are_multiples_of(least as u32) || !asked.pattern.offset.is_multiple_of(least) {
            return Err(self.wrong(format!(
                "the drive takes multiples of {}: correct bs= and offset=",
                size_binary(least)
            )));
        }
        if sizes.most() > most && self.access.does != Does::Trims {
            let most = size_binary(most);
            return Err(self.wrong(format!("the drive takes at most {most} at once: lower bs=")));
        }
        if self.access.does == Does::Trims && !about.takes_trims {
            return Err(self.wrong("the drive takes no trims"));
        }
        if self.pace.rate.is_some() && !about.takes_arrivals {
            return Err(self.wrong("served drives are driven in a closed loop: leave the rate out"));
        }
        let is_over = |pauses: Pauses| pauses.are_over_in_time(self.plan(asked).until);
        if !self.pauses().is_none_or(is_over) {
            return Err(self.wrong(
                "the pauses of thinktime= take more than 100 years together: take shorter ones, or \
                 fewer by number_ios=, size= or runtime=",
            ));
        }
        if self.is_checked
            && self.access.does == Does::Trims
            && !sizes.are_multiples_of(BLOCK_BYTES as u32)
        {
            return Err(self.wrong("verify= of trims needs whole blocks: take a bs= of 4k"));
        }
        Ok(())
    }

    /// Requests of a clone that are out at once, at most.
    fn slots(&self, shape: &Shape) -> usize {
        match self.pace.rate {
            None => self.pace.depth as usize,
            Some(_) => shape.depth.min(self.pace.depth as usize).max(1),
        }
    }

    /// The load of a clone on a drive of this shape.
    pub fn part(&self, asked: &Asked, shape: &Shape) -> Result<Part, Error> {
        let Asked { pattern, seed, .. } = asked;
        let pace = &self.pace;
        let depth = self.slots(shape);
        let (shape, pace) = match pace.rate {
            None => (*shape, Pace::Closed { depth: pace.depth }),
            Some(rate) => {
                let rate =
                    if pace.is_poisson { Rate::Exponential(rate) } else { Rate::Fixed(rate) };
                let starts = Arrivals::new(rate, *seed, (0, 1));
                let starts = starts.map_err(|e| self.wrong(e.to_string()))?;
                (Shape { depth, ..*shape }, Pace::Open(starts))
            }
        };
        let load = Load::part(&shape, pattern, pace, Share::whole(1), *seed)?.in_time();
        let load = if self.one_size().is_none() { load.in_bytes() } else { load };
        Ok(Part { load, plan: self.plan(asked), pauses: self.pauses() })
    }

    fn pauses(&self) -> Option<Pauses> {
        self.pace.think.map(|(ns, each)| Pauses { each, ns })
    }

    /// Whether it writes or trims.
    pub fn writes(&self) -> bool {
        self.access.does != Does::Reads && self.access.reads < 100
    }

    /// Whether it reads.
    pub fn reads(&self) -> bool {
        self.access.reads > 0
    }

    /// What it asks a drive for. What is written in part is read before.
    pub fn asks(&self) -> Asks {
        let writes = self.writes() && self.access.does != Does::Trims;
        let are_blocks = self.access.sizes.are_multiples_of(BLOCK_BYTES as u32);
        Asks { reads: self.reads() || writes && !are_blocks, writes }
    }
}

#[cfg(test)]
mod tests;
