//! What a target is given of a drive.

use port::Time;

use crate::place::Place;

/// What a target is given of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its chunks.
    pub place: Place,
    /// Where its addresses begin in the block drive that all targets are together; none for
    /// the first that are free for so many.
    pub first: Option<u64>,
    /// Commands that it may have inside at once, at least 1. Those of all targets are no
    /// more than the drive takes, so that none waits for another's.
    pub depth: usize,
    /// Chunks that its target is told it may have open, and of each unit; `u32::MAX` for no
    /// limit. Those of all are no more than the drive's; nobody counts them here.
    pub open_chunks: (u32, u32),
    /// How fast chunks are handed out to it: ns of drive time from one to the next on
    /// average, 0 for no limit. A chunk is handed out when it is erased, so that a target
    /// writes no faster than so many chunks a second once all were written; the thesis,
    /// chapter 6, has that for a coarse quality of service.
    pub chunk_time: u64,
}

/// Chunks that may be handed out at once after a while without.
const BURST: u64 = 4;

/// When chunks may be handed out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    chunk_time: u64,
    /// When the next may, if nothing is saved up.
    due: u64,
}

impl Pace {
    /// So many ns from one to the next; 0 for no limit.
    pub fn new(chunk_time: u64) -> Pace {
        Pace { chunk_time, due: 0 }
    }

    /// Whether there is a limit at all.
    pub fn is_limited(&self) -> bool {
        self.chunk_time > 0
    }

    /// When the next may be handed out.
    pub fn at(&self) -> Time {
        Time(self.due.saturating_sub(self.chunk_time.saturating_mul(BURST - 1)))
    }

    /// So many are handed out at `now`.
    pub fn hand_out(&mut self, now: Time, chunks: u64) {
        let time = self.chunk_time.saturating_mul(chunks);
        self.due = self.due.max(now.0).saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_at_once_and_then_one_by_one() {
        let mut pace = Pace::new(1000);
        let mut times = Vec::new();
        let mut now = Time(50_000);
        for _ in 0..8 {
            now = now.max(pace.at());
            pace.hand_out(now, 1);
            times.push(now.0 - 50_000);
        }
        assert_eq!(times, [0, 0, 0, 0, 1000, 2000, 3000, 4000]);
        // What nobody took is saved up to the burst and no further.
        now = Time(1_000_000);
        assert!(pace.at() <= now);
        pace.hand_out(now, 6);
        assert_eq!(pace.at().0, 1_000_000 + 3000);
    }
}
