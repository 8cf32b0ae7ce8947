//! Live accounting: what each queue has done, readable while it does.
//!
//! Every count has one writer at a time, so counting is plain loads and
//! stores (`measure::live`). A dispatch queue is counted apart for each core
//! that uses it and summed when it is read; a staging queue's counts are
//! written by whoever holds it. Nothing here fails.

use std::sync::Arc;

use measure::{Counter, Histogram, LiveHistogram};

use crate::staging::StagingCounters;

/// What one core did with one dispatch queue.
#[derive(Debug, Default)]
pub(crate) struct LaneAccount {
    pub dispatched: Counter,
    pub completed: Counter,
    pub errors: Counter,
    pub timed_out: Counter,
    pub strays: Counter,
    pub latency: LiveHistogram,
}

/// What a staging queue did.
#[derive(Debug, Default)]
pub(crate) struct StagingAccount {
    pub inserted: Counter,
    pub dispatched: Counter,
    pub merged: Counter,
    pub queued: Counter,
}

impl StagingAccount {
    /// Shows what whoever holds the queue knows.
    pub fn publish(&self, counters: &StagingCounters, queued: usize) {
        self.inserted.set(counters.inserted);
        self.dispatched.set(counters.dispatched);
        self.merged.set(counters.merged);
        self.queued.set(queued as u64);
    }
}

/// Figures of a staging queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagingStats {
    /// Requests that were staged. Requests that found their dispatch queue
    /// free went past it and are not counted here.
    pub inserted: u64,
    /// Requests that left it for a dispatch queue, merged ones as one.
    pub dispatched: u64,
    /// Requests that were merged with another.
    pub merged: u64,
    /// Requests in it now.
    pub queued: u64,
}

/// Figures of a dispatch queue.
#[derive(Clone, Debug)]
pub struct DispatchStats {
    /// Requests given a tag.
    pub dispatched: u64,
    /// Requests that came back, merged ones as one, those given up included.
    pub completed: u64,
    /// Of these, with a status other than success.
    pub errors: u64,
    /// Of these, given up because they took too long.
    pub timed_out: u64,
    /// Completions that answered nothing: late ones and wrong tags.
    pub strays: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// From submission to when it was seen, in ns, of each original request.
    pub latency: Histogram,
}

/// Reads a block layer's accounts, from any thread and at any time.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(crate) staging: Vec<Arc<StagingAccount>>,
    /// By dispatch queue, then by core that uses it.
    pub(crate) dispatch: Vec<Vec<Arc<LaneAccount>>>,
}

impl Monitor {
    /// Each staging queue: of the first kind of request all queues, then of
    /// the other kinds that have dispatch queues of their own.
    pub fn staging(&self) -> Vec<StagingStats> {
        let stats = |a: &Arc<StagingAccount>| StagingStats {
            inserted: a.inserted.get(),
            dispatched: a.dispatched.get(),
            merged: a.merged.get(),
            queued: a.queued.get(),
        };
        self.staging.iter().map(stats).collect()
    }

    /// Each dispatch queue, in the driver's order.
    pub fn dispatch(&self) -> Vec<DispatchStats> {
        self.dispatch.iter().map(|lanes| DispatchStats::sum(lanes)).collect()
    }
}

impl DispatchStats {
    fn sum(lanes: &[Arc<LaneAccount>]) -> DispatchStats {
        let sum = |count: fn(&LaneAccount) -> &Counter| -> u64 {
            lanes.iter().map(|lane| count(lane).get()).sum()
        };
        // First what left, then what came, so that none is in flight less
        // than zero times.
        let completed = sum(|lane| &lane.completed);
        let dispatched = sum(|lane| &lane.dispatched);
        let mut latency = Histogram::new();
        lanes.iter().for_each(|lane| latency.merge(&lane.latency.read()));
        DispatchStats {
            dispatched,
            completed,
            errors: sum(|lane| &lane.errors),
            timed_out: sum(|lane| &lane.timed_out),
            strays: sum(|lane| &lane.strays),
            in_flight: dispatched.saturating_sub(completed),
            latency,
        }
    }
}
