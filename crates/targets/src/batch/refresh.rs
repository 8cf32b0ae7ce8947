//! Chunks that are collected because somebody asked: the drive, which tells that
//! data are about to become unreadable, and static wear leveling.
//!
//! A chunk that holds what nobody writes is never collected, and stays behind
//! while the others wear. With each erase a few chunks are looked at; one that is
//! 1 part in [`BEHIND`] of the endurance behind the mean is collected, and used
//! itself, since the least erased free chunk is taken first. Each chunk is moved
//! for that at most once while the others wear by as much: with an endurance of
//! E, that adds at most [`BEHIND`] / E to the erases.
//!
//! A chunk is in the queue once. Those that the log holds wait for a checkpoint.
//! With a chunk whose data have aged go those that were begun before it and are
//! not full yet.

use device::OpenChannel;
use device::notices::NoticeState;
use port::Time;

use super::Batch;
use super::space::Use;

/// How far a chunk may fall behind, as a part of the endurance: 1 in this.
const BEHIND: u64 = 150;

/// Chunks looked at after each erase.
const LOOKS: usize = 16;

/// Chunks that were asked for and are looked at for one to collect.
const ASKED: usize = 16;

impl<D: OpenChannel> Batch<D> {
    /// Has the chunks collected of which the drive tells that their error rate
    /// is high, or that something in them could not be read. To be called after
    /// the drive was told to look by itself.
    pub fn heed_notices(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.take_notices() {
            self.pump(self.now);
        }
    }

    /// Takes the drive's notices. True if there is something to collect.
    pub(super) fn take_notices(&mut self) -> bool {
        let mut any = false;
        while let Some(notice) = self.device.take_notice() {
            let ages = matches!(notice.state, NoticeState::RateHigh | NoticeState::Unrecoverable);
            if ages && self.geometry.contains(notice.ppa) {
                any |= self.refresh_chunk(self.geometry.chunk_index(notice.ppa));
            }
        }
        any
    }

    /// What a chunk holds is to be written anew.
    fn refresh_chunk(&mut self, chunk: usize) -> bool {
        let held = self.space.chunks[chunk];
        if held.usage == Use::Slot || held.log_rows > 0 {
            // The next record goes elsewhere, and lets the log before it go.
            self.checkpoint.asked = true;
        }
        let asked = self.ask(chunk);
        self.counters.refreshed += u64::from(asked);
        // Of those that are not full the drive does not tell by itself.
        let since = self.device.chunk(chunk).since;
        while let Some(open) = self.space.open_chunk(|open| {
            let open = self.device.chunk(open);
            open.programmed > 0 && open.since > 0 && open.since <= since
        }) {
            self.space.close(open);
            self.counters.refreshed += u64::from(self.ask(open));
        }
        asked || held.usage == Use::Slot
    }

    /// Puts a chunk down to be collected. False where there is nothing to do: it
    /// is not full, is down already, or cannot be read.
    fn ask(&mut self, chunk: usize) -> bool {
        let held = &mut self.space.chunks[chunk];
        if held.usage != Use::Closed || held.victim || held.asked || held.stuck || held.failed {
            return false;
        }
        held.asked = true;
        self.asked.push_back(chunk);
        self.changes += 1;
        true
    }

    /// A chunk that was asked for and can be collected now.
    pub(super) fn next_asked(&mut self) -> Option<usize> {
        // Its survivors take room before it gives any.
        if self.space.free() <= self.layout.reserve / 2 {
            return None;
        }
        for _ in 0..self.asked.len().min(ASKED) {
            let chunk = self.asked.pop_front().expect("they were counted");
            if self.space.can_go(chunk, self.garbage.valid(chunk)) {
                self.space.chunks[chunk].asked = false;
                return Some(chunk);
            }
            let held = &mut self.space.chunks[chunk];
            // What is a victim, or was erased, is seen to.
            held.asked = held.usage == Use::Closed && !held.victim && !held.stuck;
            if held.asked {
                self.asked.push_back(chunk);
            }
        }
        None
    }

    /// A chunk was erased: looks whether one of a few others has fallen behind.
    /// One at a time.
    pub(super) fn level_wear(&mut self) {
        if !self.asked.is_empty() {
            return;
        }
        let behind = (u64::from(self.device.timing().endurance) / BEHIND).max(2);
        let chunks = u64::from(self.geometry.total_pus()) * u64::from(self.geometry.chunks());
        let mean = self.wear.total() / chunks;
        for _ in 0..LOOKS {
            let chunk = self.looked;
            self.looked = (chunk + 1) % self.space.chunks.len();
            let is_behind = u64::from(self.wear.get(chunk)) + behind < mean;
            if is_behind && self.ask(chunk) {
                self.counters.leveled += 1;
                return;
            }
        }
    }
}
