//! Chunks that are collected because somebody asked: the drive, which sees the
//! error rate rise; wear leveling; a failed program.
//!
//! Each parallel unit has a queue of them. It is bounded: a chunk is in it once.

use device::OpenChannel;
use device::notices::NoticeState;
use flash::Ppa;
use port::Time;

use super::Pblk;

impl<D: OpenChannel> Pblk<D> {
    /// Puts the chunk of `ppa` down to be collected next, since the drive says
    /// that its error rate rises. False, and nothing happens, where there is
    /// nothing to do: it is not full, or is to be collected anyhow, or there is
    /// no such chunk.
    pub fn refresh_chunk(&mut self, now: Time, ppa: Ppa) -> bool {
        if !self.geometry.contains(ppa) {
            return false;
        }
        let chunk = self.geometry.chunk_index(ppa);
        if !self.space.is_closed(chunk) || !self.ask(chunk) {
            return false;
        }
        self.counters.refreshed += 1;
        self.collect(now, self.geometry.pu_index(ppa));
        self.submit_out(now);
        true
    }

    /// Refreshes the chunks of which the drive tells that their error rate is
    /// high, or that something in them could not be read.
    #[inline]
    pub fn heed_notices(&mut self, now: Time) {
        while let Some(notice) = self.device.take_notice() {
            if matches!(notice.state, NoticeState::RateHigh | NoticeState::Unrecoverable) {
                self.refresh_chunk(now, notice.ppa);
            }
        }
    }

    /// Puts a chunk down to be collected next. False where it is already.
    pub(super) fn ask(&mut self, chunk: usize) -> bool {
        if std::mem::replace(&mut self.chunks[chunk].asked, true) {
            return false;
        }
        let rank = self.rank_of_chunk(chunk);
        let number = chunk & ((1 << self.geometry.chunk_bits()) - 1);
        self.collectors[rank].asked.push_back(number as u32);
        true
    }
}
