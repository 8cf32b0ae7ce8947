//! Notices: what the drive tells without being asked.
//!
//! The chunk notification log of Open-Channel SSD 2.0 (log page 0xD0). The
//! drive keeps a bounded number of notices; when they are not taken, the new
//! ones are counted as lost, and what still holds is told again later.

use flash::{ErrorLevel, Ppa};
use port::Ring;

/// Notices that wait to be taken, at most.
pub const MAX_NOTICES: usize = 256;

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeState {
    /// The error rate has become low, from nothing that matters.
    RateLow,
    /// It has become medium.
    RateMedium,
    /// It has become high: the data should be moved.
    RateHigh,
    /// Data could not be read.
    Unrecoverable,
    /// The drive has written the data anew.
    Refreshed,
    /// The chunk is worn more than the others, by the threshold.
    Worn,
}

impl NoticeState {
    /// What there is to tell of a level; nothing of the lowest.
    pub fn of_level(level: ErrorLevel) -> Option<NoticeState> {
        match level {
            ErrorLevel::Fine => None,
            ErrorLevel::Low => Some(NoticeState::RateLow),
            ErrorLevel::Medium => Some(NoticeState::RateMedium),
            ErrorLevel::High => Some(NoticeState::RateHigh),
            ErrorLevel::Unrecoverable => Some(NoticeState::Unrecoverable),
        }
    }
}

/// What a notice's address stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeMask {
    /// Logical blocks, as many as the notice says.
    Block,
    /// The chunk.
    Chunk,
    /// The parallel unit.
    Unit,
}

/// A notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Its number, from 1 on, without gaps.
    pub number: u64,
    /// Of what.
    pub ppa: Ppa,
    /// What.
    pub state: NoticeState,
    /// What `ppa` stands for.
    pub mask: NoticeMask,
    /// Blocks from `ppa` on, at least 1; 1 unless the mask is for blocks.
    pub blocks: u32,
}

/// The notices that wait, and how many there were.
pub(crate) struct Notices {
    waiting: Ring<Notice>,
    raised: u64,
    /// Notices for which there was no room.
    pub lost: u64,
}

impl Notices {
    pub fn new() -> Notices {
        Notices { waiting: Ring::new(MAX_NOTICES), raised: 0, lost: 0 }
    }

    /// False when there is no room for one more.
    pub fn raise(&mut self, ppa: Ppa, state: NoticeState, mask: NoticeMask, blocks: u32) -> bool {
        let number = self.raised + 1;
        if self.waiting.push(Notice { number, ppa, state, mask, blocks }).is_err() {
            self.lost += 1;
            return false;
        }
        self.raised = number;
        true
    }

    pub fn take(&mut self) -> Option<Notice> {
        self.waiting.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded_and_numbered() {
        let mut notices = Notices::new();
        let raise = |n: &mut Notices, at: u64| {
            n.raise(Ppa(at), NoticeState::RateHigh, NoticeMask::Chunk, 1)
        };
        for at in 0..MAX_NOTICES as u64 {
            assert!(raise(&mut notices, at));
        }
        assert!(!raise(&mut notices, 999));
        assert_eq!(notices.lost, 1);
        for number in 1..=MAX_NOTICES as u64 {
            let notice = notices.take().unwrap();
            assert_eq!((notice.number, notice.ppa), (number, Ppa(number - 1)));
        }
        assert!(notices.take().is_none());
        assert!(raise(&mut notices, 5));
        assert_eq!(notices.take().unwrap().number, MAX_NOTICES as u64 + 1, "no gap");
    }
}
