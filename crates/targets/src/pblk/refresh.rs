//! Chunks that are collected because somebody asked: the drive, which sees the
//! error rate rise; wear leveling; a failed program.
//!
//! Each parallel unit has a queue of them. It is bounded: a chunk is in it once.

use device::OpenChannel;
use device::notices::{Notice, NoticeState};
use flash::{ErrorLevel, Ppa};
use port::Time;

use super::Pblk;
use super::programs::USER_LEAVES;

impl<D: OpenChannel> Pblk<D> {
    /// Has what the chunk of `ppa` holds written anew, since the drive says that
    /// its error rate rises: data are collected next, what the target keeps for
    /// itself goes elsewhere with a checkpoint. False, and nothing happens, where
    /// there is nothing to do: it is free, or to be emptied anyhow, or there is no
    /// such chunk; or it cannot be left now.
    pub fn refresh_chunk(&mut self, now: Time, ppa: Ppa) -> bool {
        let is_begun = self.begin_refresh(ppa);
        if is_begun {
            self.follow(now);
        }
        is_begun
    }

    fn begin_refresh(&mut self, ppa: Ppa) -> bool {
        if !self.geometry.contains(ppa) || self.saved.checkpoint.closing {
            return false;
        }
        let chunk = self.geometry.chunk_index(ppa);
        let is_begun = if self.is_anchor(chunk) {
            self.refresh_anchor(chunk)
        } else if self.saved.meta.chunks.contains_key(&chunk) {
            self.refresh_own(chunk)
        } else {
            self.leave_open(chunk);
            self.space.is_closed(chunk) && self.ask(chunk)
        };
        if is_begun {
            self.counters.refreshed += 1;
            self.touch(self.stripe.rank(self.geometry.pu_index(ppa)));
        }
        is_begun
    }

    /// Closes a chunk that is open for data as it is: else it may take a row now
    /// and then for years, each of which is as old as its first. Not while a row is
    /// on its way to it, or its unit has too little to go on with.
    ///
    /// Nor when it was a read that told, which tells once: on a worn drive new data
    /// may be as bad, and each chunk would be left at its first read. The drive
    /// tells of age again and again.
    fn leave_open(&mut self, chunk: usize) {
        let rank = self.rank_of_chunk(chunk);
        let pu = self.stripe.pu(rank);
        let open = {
            let mut all = self.stripe.opened(rank).chain(self.collectors.of[rank].open);
            all.find(|open| open.chunk() == chunk)
        };
        let Some(open) = open else { return };
        let may_be_read = self.device.chunk(chunk).level >= ErrorLevel::High;
        if may_be_read && !std::mem::replace(&mut self.chunks[chunk].told, true) {
            return;
        }
        if self.chunks[chunk].rows > 0 || self.space.pus[pu].free() <= USER_LEAVES {
            return;
        }
        self.stripe.leave(rank, chunk);
        self.collectors.of[rank].open.take_if(|open| open.chunk() == chunk);
        self.chunks[chunk].end = open.next;
        self.space.close(chunk);
        self.refresh(pu);
    }

    /// Refreshes the chunks of which the drive tells that their error rate is
    /// high, or that something in them could not be read.
    #[inline]
    pub(super) fn take_notices(&mut self) {
        while let Some(notice) = self.device.take_notice() {
            self.heed(notice);
        }
    }

    #[cold]
    fn heed(&mut self, notice: Notice) {
        if matches!(notice.state, NoticeState::RateHigh | NoticeState::Unrecoverable) {
            self.begin_refresh(notice.ppa);
        }
    }

    /// Does the same where no completion comes: the drive was told to look by itself.
    pub fn heed_notices(&mut self, now: Time) {
        self.take_notices();
        self.follow(now);
    }

    /// Puts a chunk down to be collected next. False where it is already.
    pub(super) fn ask(&mut self, chunk: usize) -> bool {
        if std::mem::replace(&mut self.chunks[chunk].asked, true) {
            return false;
        }
        let rank = self.rank_of_chunk(chunk);
        let number = chunk & ((1 << self.geometry.chunk_bits()) - 1);
        self.collectors.of[rank].asked.push_back(number as u32);
        true
    }
}
