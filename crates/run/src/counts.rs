//! How many calls of each kind the program made on its files, and how long the drive kept them.

use std::time::{Duration, Instant};

use files::Operation;
use measure::{Histogram, Summary};

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// How long the drive kept them, in all.
    pub time: Duration,
    /// Bytes, of those that have any.
    pub bytes: u64,
}

/// The kinds that are told apart, and their names.
pub const KINDS: [&str; 6] = ["writes", "reads", "syncs", "names", "sizes", "modes"];

pub const WRITES: usize = 0;
pub const READS: usize = 1;

/// The kind of the calls that an operation is of.
pub fn kind(operation: &Operation) -> usize {
    match operation {
        Operation::Write { .. } => WRITES,
        Operation::Sync { .. } | Operation::SyncAll => 2,
        Operation::Create { .. }
        | Operation::Link { .. }
        | Operation::Remove { .. }
        | Operation::Forget { .. }
        | Operation::Rename { .. } => 3,
        Operation::Truncate { .. } | Operation::Allocate { .. } | Operation::Punch { .. } => 4,
        Operation::Mode { .. } => 5,
    }
}

/// What a call was told of: since when, and how long the drive keeps it.
#[derive(Clone, Copy)]
struct Told {
    since: Instant,
    time: Duration,
}

/// All calls. One may be told in pieces, and of several kinds: it counts once for each.
#[derive(Default)]
pub struct Counts {
    /// By [`KINDS`].
    pub calls: [Calls; KINDS.len()],
    /// How long each was kept that was.
    waited: [Histogram; KINDS.len()],
    /// Of each kind, what the call in progress was told of.
    of_call: [Option<Told>; KINDS.len()],
}

impl Counts {
    /// The next call begins.
    pub fn begins(&mut self) {
        for (waited, told) in self.waited.iter_mut().zip(&mut self.of_call) {
            if let Some(Told { time, .. }) = told.take().filter(|told| !told.time.is_zero()) {
                waited.record(time.as_nanos() as u64);
            }
        }
    }

    /// How long the calls of each kind were kept that were, when the last one is over.
    pub fn waited(&mut self) -> [Summary; KINDS.len()] {
        self.begins();
        self.waited.each_ref().map(Histogram::summary)
    }

    /// The call in progress, which came then, is of that kind, and moves so many bytes.
    pub fn count(&mut self, kind: usize, came: Instant, bytes: u64) {
        let calls = &mut self.calls[kind];
        calls.count += u64::from(self.of_call[kind].is_none());
        calls.bytes += bytes;
        self.of_call[kind].get_or_insert(Told { since: came, time: Duration::ZERO });
    }

    /// The same, and the drive keeps it until then.
    pub fn keeps(&mut self, kind: usize, came: Instant, bytes: u64, until: Option<Instant>) {
        self.count(kind, came, bytes);
        let (Some(told), Some(until)) = (&mut self.of_call[kind], until) else { return };
        let time = until.saturating_duration_since(told.since).max(told.time);
        self.calls[kind].time += time - told.time;
        told.time = time;
    }

    /// A call that had to wait is over.
    pub fn kept(&mut self, kind: usize, time: Duration) {
        self.calls[kind].time += time;
        self.waited[kind].record(time.as_nanos() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it waits for grows with its pieces, and is counted as long as it is.
    #[test]
    fn a_call_in_pieces_is_one() {
        let (mut counts, came) = (Counts::default(), Instant::now());
        let us = Duration::from_micros;
        counts.begins();
        for (piece, until) in [(0, 30), (1, 20), (2, 50)] {
            let came = came + us(piece);
            counts.keeps(WRITES, came, 4096, Some(came + us(until)));
        }
        counts.keeps(WRITES, came, 1, None);
        let expected = Calls { count: 1, time: us(52), bytes: 3 * 4096 + 1 };
        assert_eq!(counts.calls[WRITES], expected);
        counts.begins();
        counts.count(WRITES, came, 0);
        assert_eq!(counts.calls[WRITES], Calls { count: 2, ..expected });
        counts.kept(WRITES, us(9));
        let waited = counts.waited()[WRITES];
        assert_eq!((waited.n, waited.max), (2, Some(52_000)), "who did not wait is not among them");
    }
}
