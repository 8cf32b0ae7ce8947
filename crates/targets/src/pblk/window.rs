//! The end of open chunks that cannot be read yet.
//!
//! Of an open chunk the drive does not let the last blocks be read (`unreadable` of
//! [`flash::Timing`], mw_cunits of Open-Channel SSD 2.0). A row that is programmed
//! there is durable: flushes end, older copies are given up. But it is read from
//! memory. Its bytes go to a *held* unit, whose slots the map names; what each of
//! these replaces is its own place in flash. When the drive lets the row be read,
//! since more was written behind it or its chunk is full, the map names flash, and
//! the unit is free.
//!
//! Guarantees: what the map names in flash can be read. A chunk that is left before
//! its end, as a program failed or it has aged, keeps its held rows until it is
//! collected; they are gathered from memory.
//!
//! There are units for as many rows as the open chunks of all streams and of
//! collection have unreadable. Those of chunks that were left come on top: where
//! none is free one more is made. Where the system has no memory for it the row stays
//! where it was gathered, and is read from there; the drive turns read-only.

use device::OpenChannel;
use flash::{Geometry, Ppa};
use port::OutOfMemory;

use super::Pblk;
use super::copies::UNKNOWN;
use super::limiter::CREDIT;
use super::map::Place;
use super::mutation::{Mutation, is};
use super::units::{Slot, Units};

/// Rows that are programmed and cannot be read yet.
pub(super) struct Window {
    /// Blocks at the end of an open chunk that cannot be read.
    pub unreadable: u32,
    /// The first of the units.
    first: u32,
    /// Those that are free.
    free: Vec<u32>,
    /// By rank: those with a row, oldest first.
    held: Vec<Vec<u32>>,
}

/// Rows that the open chunks of a drive may have unreadable, where so many blocks
/// of each are: those of the user's streams, and of collection.
pub(super) fn held_rows(geometry: &Geometry, streams: u32, unreadable: u32) -> u32 {
    let of_unit = u64::from(streams + 1) * u64::from(unreadable.div_ceil(geometry.row_blocks()));
    (u64::from(geometry.total_pus()) * of_unit).try_into().unwrap_or(u32::MAX)
}

impl Window {
    /// With the last `held` of the units.
    pub fn new(unreadable: u32, geometry: &Geometry, held: u32, units: &Units) -> Window {
        let all = units.count();
        let of_rank = if unreadable == 0 { 0 } else { (held / geometry.total_pus()) as usize };
        Window {
            unreadable,
            first: all - held,
            free: (all - held..all).rev().collect(),
            held: (0..geometry.total_pus()).map(|_| Vec::with_capacity(of_rank)).collect(),
        }
    }

    /// Whether there are blocks that cannot be read yet.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.unreadable > 0
    }

    /// Whether a unit is one of these.
    #[inline]
    pub fn holds(&self, unit: u32) -> bool {
        unit >= self.first
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Whether the drive lets these blocks be read.
    pub(super) fn is_readable(&self, ppa: Ppa, count: u32) -> bool {
        let chunk = self.device.chunk(self.geometry.chunk_index(ppa));
        let window = if is(Mutation::ReleaseEarly) { 0 } else { self.window.unreadable };
        chunk.read(self.geometry.block(ppa), count, window).is_ok()
    }

    /// Rows that are held in memory since they cannot be read yet.
    pub fn held_rows(&self) -> usize {
        self.window.held.iter().map(Vec::len).sum()
    }

    /// A row is programmed: lets go of those of its parallel unit that can be read
    /// now, and holds this one if it cannot. False where it can.
    #[cold]
    pub(super) fn settle_held(&mut self, unit: u32, ppa: Ppa) -> Result<bool, OutOfMemory> {
        let rank = self.stripe.rank(self.geometry.pu_index(ppa));
        self.release_readable(rank);
        if self.is_readable(ppa, self.geometry.row_blocks()) {
            return Ok(false);
        }
        let is_user = self.units.is_user(unit);
        let held = self.take_held()?;
        self.units.hold(held, unit, ppa);
        for i in 0..self.geometry.row_blocks() {
            let at = Ppa(ppa.0 + u64::from(i));
            let [slot, copy] = [unit, held].map(|unit| self.units.slot_number(unit, i));
            let Slot { lba, live, .. } = *self.units.slot(slot);
            *self.units.slot_mut(copy) = Slot { lba, old: Place::flash(at), live };
            if is_user {
                self.settle(slot, at, Place::buffer(copy));
            } else {
                let is_there = self.settle_moved(slot, at, Place::buffer(copy));
                self.units.slot_mut(copy).live = is_there;
            }
        }
        self.window.held[rank].push(held);
        Ok(true)
    }

    /// A unit to hold a row. More are needed only as chunks fail.
    fn take_held(&mut self) -> Result<u32, OutOfMemory> {
        self.window.free.pop().map_or_else(|| self.units.add_held(), Ok)
    }

    /// Lets go of the rows of a parallel unit that can be read by now.
    fn release_readable(&mut self, rank: usize) {
        let row = self.geometry.row_blocks();
        self.release_if(rank, |pblk, ppa| pblk.is_readable(ppa, row));
    }

    /// Nothing that a chunk holds counts any more: it is to be erased.
    #[cold]
    pub(super) fn release_chunk(&mut self, chunk: usize) {
        let rank = self.rank_of_chunk(chunk);
        self.release_if(rank, |pblk, ppa| pblk.geometry.chunk_index(ppa) == chunk);
    }

    fn release_if(&mut self, rank: usize, goes: impl Fn(&Self, Ppa) -> bool) {
        let mut at = 0;
        while let Some(&held) = self.window.held[rank].get(at) {
            if goes(self, self.units.unit(held).ppa) {
                self.window.held[rank].remove(at);
                self.release(held);
            } else {
                at += 1;
            }
        }
    }

    /// What names the slots of a held row names from now on what these replace: their
    /// places in flash, or where collection has moved them.
    fn release(&mut self, held: u32) {
        for i in 0..self.geometry.row_blocks() {
            let slot = self.units.slot_number(held, i);
            let Slot { lba, old, live } = *self.units.slot(slot);
            if !live {
                continue;
            }
            if self.map.get(lba) == Place::buffer(slot) {
                self.map.install(lba, old);
            } else {
                let is_linked = self.rechain(lba, Place::buffer(slot), old);
                assert!(is_linked, "a live copy is in its block's chain");
            }
        }
        self.window.free.push(held);
    }

    /// Gathers survivors of a chunk that was left from memory, where their row is
    /// held. False where it is not.
    #[cold]
    pub(super) fn gather_held(&mut self, rank: usize, first: Ppa, count: u32) -> bool {
        let row = self.geometry.row_start(first);
        let mut all = self.window.held[rank].iter();
        let Some(&held) = all.find(|&&held| self.units.unit(held).ppa == row) else {
            return false;
        };
        // The drive copies nothing that cannot be read.
        self.chunks[self.geometry.chunk_index(first)].copies = UNKNOWN;
        self.collectors.of[rank].credit -= i64::from(count) * CREDIT;
        for i in 0..count {
            let at = Ppa(first.0 + u64::from(i));
            let slot = self.units.slot_number(held, self.geometry.in_row(at));
            let to = self.gather(rank, at, self.units.tag(slot), &[]);
            self.units.copy(slot, to);
        }
        true
    }
}
