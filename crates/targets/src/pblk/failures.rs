//! Failures: programs that fail, and blocks that cannot be read.
//!
//! A chunk of which a program failed is written no more. What was on its way
//! to it goes elsewhere; what it holds is moved before anything else is
//! collected; then it is retired: the drive is asked to take it offline, which
//! it remembers, and its unit has a chunk less. After a cut before that it is
//! found again by the drive's own record of the failed program, and treated in
//! the same way.
//!
//! A survivor that cannot be read is lost: it reads as an error until it is
//! written or trimmed, and its chunk becomes free as any other. Other blocks
//! are not touched.
//!
//! Guarantees: a row that fails is programmed in the end, as long as any unit
//! has a row to give. Where none has, the drive is read-only, flushes of what
//! is still in the buffer fail, and all that was written can be read.

use std::collections::BTreeMap;

use device::{Content, OpenChannel, VectorOp};
use flash::Ppa;
use port::{Buffer, Status};

pub(super) use ftl::is_read;

use super::collector::Stage;
use super::map::Place;
use super::{Cookie, Pblk};

/// No block: nothing leads to what a chunk has there.
const NOBODY: u64 = u64::MAX;

/// Whether a read failed for good. Other errors say nothing of the medium.
#[inline]
pub(super) fn is_lost(status: Status) -> bool {
    matches!(status, Status::UNRECOVERED_READ | Status::OFFLINE_CHUNK | Status::UNWRITTEN)
}

impl<D: OpenChannel> Pblk<D> {
    /// A program failed: its chunk is written no more. It is collected when
    /// nothing is on its way to it.
    #[cold]
    pub(super) fn fail_chunk(&mut self, chunk: usize) {
        let rank = self.rank_of_chunk(chunk);
        self.chunks[chunk].failed = true;
        self.stripe.leave(rank, chunk);
        self.collectors.of[rank].open.take_if(|open| open.chunk() == chunk);
        self.refresh(self.stripe.pu(rank));
        self.ask_failed(chunk);
    }

    /// Puts a failed chunk down to be collected once nothing is on its way to
    /// it.
    #[cold]
    pub(super) fn ask_failed(&mut self, chunk: usize) {
        if self.chunks[chunk].rows == 0 {
            self.ask(chunk);
        }
    }

    /// Takes up a chunk, found at the start, of which a program has failed.
    pub(super) fn found_failed(&mut self, chunk: usize) {
        self.chunks[chunk].failed = true;
        self.ask_failed(chunk);
    }

    /// Retires a failed chunk that is empty.
    #[cold]
    pub(super) fn retire(&mut self, chunk: usize) {
        self.counters.retired += 1;
        self.chunks[chunk].begin_erasing();
        self.chunks[chunk].end = self.device.chunk(chunk).wp;
        self.lose(chunk);
        self.send_retire(Cookie::Retire(chunk as u32), chunk);
    }

    /// Asks the drive to take a chunk offline. Behind all that was sent before.
    pub(super) fn send_retire(&mut self, cookie: Cookie, chunk: usize) {
        let (op, ppa) = (VectorOp::Retire, self.geometry.chunk_start(chunk));
        self.send_write(|| Self::run(cookie, op, ppa, 1, Content::Data, Buffer::empty()));
    }

    /// A chunk is offline. A drive that will not have it so knows at least of
    /// the failed program, or else the chunk may be used after a restart.
    #[cold]
    pub(super) fn retire_done(&mut self, chunk: usize) {
        self.chunks[chunk] = Stage::retired(self.chunks[chunk].end);
        self.collectors.holders.remove(&chunk);
        self.space.note_wear(chunk, self.device.chunk(chunk).wear);
        self.facts.news = true;
    }

    /// The place in the round of a chunk's parallel unit.
    pub(super) fn rank_of_chunk(&self, chunk: usize) -> usize {
        self.stripe.rank(self.geometry.pu_index(self.geometry.chunk_start(chunk)))
    }

    /// A survivor cannot be read, or is not what it should be. Whose it was is found in the
    /// map.
    #[cold]
    pub(super) fn lose_at(&mut self, at: Ppa) {
        let chunk = self.geometry.chunk_index(at);
        if !self.collectors.holders.contains_key(&chunk) {
            self.find_holders(chunk);
        }
        match self.collectors.holders[&chunk][self.geometry.block(at) as usize] {
            NOBODY => self.invalidate(at),
            lba => self.lose_block(lba, at),
        }
    }

    /// Finds of each valid block of a victim whose it is, and of all other
    /// victims at the same time: where a channel is dead they fail by turns, and
    /// this is a pass over all of the map. What is found stays until the chunk is
    /// erased: nothing is written there before.
    #[cold]
    fn find_holders(&mut self, chunk: usize) {
        self.collectors.searches += 1;
        let blocks = self.geometry.chunk_blocks() as usize;
        let victims = self.collectors.of.iter().filter_map(|c| c.victim);
        let wanted = victims.map(|victim| victim as usize).chain([chunk]);
        let wanted = wanted.filter(|victim| !self.collectors.holders.contains_key(victim));
        let mut found: BTreeMap<usize, Vec<u64>> =
            wanted.map(|victim| (victim, vec![NOBODY; blocks])).collect();
        for lba in 0..self.map.blocks() {
            if let Some(at) = self.oldest(self.map.get(lba)).ppa()
                && let Some(held) = found.get_mut(&self.geometry.chunk_index(at))
            {
                held[self.geometry.block(at) as usize] = lba;
            }
        }
        self.collectors.holders.append(&mut found);
    }

    /// Passes over the map to find whose blocks were lost, so far.
    pub fn searches(&self) -> u64 {
        self.collectors.searches
    }

    /// The copy of `lba` at `at`, the newest in flash, cannot be read.
    #[cold]
    pub(super) fn lose_block(&mut self, lba: u64, at: Ppa) {
        let place = Place::flash(at);
        if self.map.get(lba) == place {
            self.map.set(lba, Place::LOST);
        } else {
            let is_linked = self.relink(lba, place, Place::LOST);
            assert!(is_linked, "it is the block's newest copy in flash");
        }
        self.counters.lost += 1;
        let record = self.record_lost(lba);
        let chunk = self.geometry.chunk_index(at);
        self.chunks[chunk].given_up = self.chunks[chunk].given_up.max(record);
        self.invalidate(at);
    }

    /// Records that the newest copy of a block in flash is lost, but not those
    /// in the buffer, or that will be in a row being gathered, which has no number
    /// yet. A row that is held is on flash, and its number says nothing. Gives the
    /// record's number.
    fn record_lost(&mut self, lba: u64) -> u64 {
        let mut upto = self.units.last_seq();
        let mut place = self.map.get(lba);
        while let Some(slot) = place.slot() {
            let unit = self.units.unit_of(slot);
            if !self.units.is_gathering(unit) && !self.window.holds(unit) {
                upto = self.units.unit(unit).seq - 1;
            }
            place = self.units.slot(slot).old;
        }
        self.saved.log.give_up(lba, upto, true)
    }
}
