//! What a trace says: a summary for each dispatch queue, and the slowest
//! requests. Exact, from sorted lists; nothing here fails.

use std::cmp::Reverse;

use blkmq::{Life, NO_TAG};

/// One stage of the requests' lives, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stage {
    /// The mean.
    pub mean: f64,
    /// What 99 percent do not exceed.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl Stage {
    /// A stage of these requests; zeros when there are none.
    fn of(lives: &[&Life], stage: impl Fn(&Life) -> u64) -> Stage {
        let mut times: Vec<u64> = lives.iter().map(|life| stage(life)).collect();
        times.sort_unstable();
        let Some(&max) = times.last() else { return Stage::default() };
        let sum: u128 = times.iter().map(|&ns| u128::from(ns)).sum();
        let rank = (times.len() * 99).div_ceil(100);
        Stage { mean: sum as f64 / times.len() as f64, p99: times[rank - 1], max }
    }
}

/// A dispatch queue's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueSummary {
    /// Which queue.
    pub queue: u16,
    /// Requests.
    pub requests: u64,
    /// Of these, merged into another one.
    pub merged: u64,
    /// Of these, ended without success.
    pub failed: u64,
    /// From submission to dispatch: staged, and waiting for a tag.
    pub staged: Stage,
    /// At the device.
    pub device: Stage,
    /// From completion until the submitter was told.
    pub late: Stage,
    /// All of it.
    pub total: Stage,
    /// Most requests at the device at once. One that completed in the instant
    /// in which it was dispatched counts for itself alone.
    pub deepest: u64,
}

/// A summary of each queue that has requests, in the queues' order.
pub fn summarize(lives: &[Life]) -> Vec<QueueSummary> {
    let mut sorted: Vec<&Life> = lives.iter().collect();
    sorted.sort_by_key(|life| life.queue);
    sorted.chunk_by(|a, b| a.queue == b.queue).map(summary).collect()
}

/// A summary of one queue's requests.
fn summary(lives: &[&Life]) -> QueueSummary {
    let count = |which: fn(&Life) -> bool| lives.iter().filter(|life| which(life)).count() as u64;
    QueueSummary {
        queue: lives.first().map_or(0, |life| life.queue),
        requests: lives.len() as u64,
        merged: count(|life| life.parts == 0),
        failed: count(|life| !life.status.is_ok()),
        staged: Stage::of(lives, Life::staged),
        device: Stage::of(lives, Life::device),
        late: Stage::of(lives, Life::late),
        total: Stage::of(lives, Life::total),
        deepest: deepest(lives),
    }
}

/// Most commands between dispatch and completion at once.
fn deepest(lives: &[&Life]) -> u64 {
    let at_device = |life: &&&Life| life.parts > 0 && life.tag != NO_TAG;
    let commands = || lives.iter().filter(at_device);
    let lasting = || commands().filter(|life| life.device() > 0);
    let mut starts: Vec<_> = lasting().map(|life| life.dispatched).collect();
    let mut ends: Vec<_> = lasting().map(|life| life.completed).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let (mut ended, mut deepest) = (0, u64::from(commands().next().is_some()));
    for (before, start) in starts.iter().enumerate() {
        while ends.get(ended).is_some_and(|end| end <= start) {
            ended += 1;
        }
        deepest = deepest.max((before + 1 - ended) as u64);
    }
    deepest
}

/// The `count` requests that took longest, the slowest first; of equals the
/// one that was submitted first.
pub fn slowest(lives: &[Life], count: usize) -> Vec<Life> {
    let key = |life: &&Life| (Reverse(life.total()), life.submitted, life.core, life.id);
    let mut sorted: Vec<&Life> = lives.iter().collect();
    if count < sorted.len() {
        sorted.select_nth_unstable_by_key(count, key);
        sorted.truncate(count);
    }
    sorted.sort_by_key(key);
    sorted.into_iter().copied().collect()
}
