//! The way to flash: rows striped over the parallel units, and what follows
//! when one is programmed.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::{Geometry, Ppa};
use port::{Status, Time};

use super::map::Place;
use super::space::OpenChunk;
use super::{Cookie, Pblk};

/// User rows at one parallel unit: one being programmed, one behind it.
const ROWS_PER_PU: u8 = 2;

/// Free chunks that the user stream leaves to collection.
pub(super) const USER_LEAVES: usize = 1;

#[derive(Debug, Default)]
struct PuStripe {
    pu: usize,
    open: Option<OpenChunk>,
    /// User rows on their way.
    rows: u8,
}

/// Round robin over the parallel units that can take a row, channels first.
pub(super) struct Stripe {
    /// By rank: the place in the round.
    pus: Vec<PuStripe>,
    /// Rank by parallel unit.
    ranks: Vec<u32>,
    /// A bit for each rank: can take a row.
    able: Vec<u64>,
    next: usize,
    /// Full units that wait for a parallel unit.
    pub ready: VecDeque<u32>,
}

impl Stripe {
    pub fn new(geometry: &Geometry) -> Stripe {
        let mut ranks = vec![u32::MAX; geometry.pu_slots()];
        let mut pus = Vec::new();
        for (rank, pu) in geometry.pus_channels_first().enumerate() {
            ranks[pu] = rank as u32;
            pus.push(PuStripe { pu, ..PuStripe::default() });
        }
        let able = vec![0; pus.len().div_ceil(64)];
        Stripe { pus, ranks, able, next: 0, ready: VecDeque::with_capacity(64) }
    }

    /// A parallel unit's place in the round.
    #[inline]
    pub fn rank(&self, pu: usize) -> usize {
        self.ranks[pu] as usize
    }

    /// The parallel unit at a place in the round.
    #[inline]
    pub fn pu(&self, rank: usize) -> usize {
        self.pus[rank].pu
    }

    /// A parallel unit goes on with a chunk that was begun before the start.
    pub fn go_on(&mut self, pu: usize, open: OpenChunk) {
        self.pus[self.ranks[pu] as usize].open = Some(open);
    }

    /// User rows on their way to a parallel unit.
    #[inline]
    pub fn rows(&self, pu: usize) -> u8 {
        self.pus[self.ranks[pu] as usize].rows
    }

    /// No user row is on its way to a parallel unit, and no chunk is open for
    /// one.
    pub fn is_idle(&self, pu: usize) -> bool {
        let stripe = &self.pus[self.ranks[pu] as usize];
        stripe.rows == 0 && stripe.open.is_none()
    }

    /// The next rank that can take a row.
    #[inline]
    fn choose(&mut self) -> Option<usize> {
        let words = self.able.len();
        let (start, bit) = (self.next / 64, self.next % 64);
        for i in 0..=words {
            let at = (start + i) % words;
            let mut word = self.able[at];
            if i == 0 {
                word &= u64::MAX << bit;
            }
            if word != 0 {
                let rank = at * 64 + word.trailing_zeros() as usize;
                self.next = if rank + 1 == self.pus.len() { 0 } else { rank + 1 };
                return Some(rank);
            }
        }
        None
    }

    #[inline]
    fn set_able(&mut self, rank: usize, able: bool) {
        let (word, bit) = (rank / 64, 1u64 << (rank % 64));
        if able {
            self.able[word] |= bit;
        } else {
            self.able[word] &= !bit;
        }
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Looks again whether a parallel unit can take a user row.
    #[inline]
    pub(super) fn refresh(&mut self, pu: usize) {
        let rank = self.stripe.rank(pu);
        let stripe = &self.stripe.pus[rank];
        let space = stripe.open.is_some() || self.space.pus[pu].free.len() > USER_LEAVES;
        let able = space && stripe.rows < ROWS_PER_PU;
        self.stripe.set_able(rank, able);
    }

    /// Sends full units while parallel units can take them.
    #[inline]
    pub(super) fn pump(&mut self, now: Time) {
        while let Some(&unit) = self.stripe.ready.front() {
            let Some(rank) = self.stripe.choose() else { return };
            self.stripe.ready.pop_front();
            self.send_row(now, unit, rank);
        }
    }

    fn send_row(&mut self, now: Time, unit: u32, rank: usize) {
        let row = self.geometry.row_blocks();
        let pu = self.stripe.pu(rank);
        let open = match self.stripe.pus[rank].open {
            Some(open) => open,
            None => self.space.open(pu).expect("an able unit has a chunk"),
        };
        let after = self.advance_open(open);
        self.stripe.pus[rank].open = after;
        self.collectors[rank].user_wrote(row);
        if !self.program_at_once(now, unit, open) {
            self.stripe.pus[rank].rows += 1;
            self.program(unit, open);
        }
        self.refresh(pu);
        self.collect(now, pu);
    }

    /// Programs a unit of the user's at once, and settles it. False where that
    /// cannot be.
    fn program_at_once(&mut self, now: Time, unit: u32, open: OpenChunk) -> bool {
        let Some(status) = self.write_at_once(unit, open) else { return false };
        if status.is_ok() {
            for i in 0..self.geometry.row_blocks() {
                let at = Ppa(self.units.unit(unit).ppa.0 + u64::from(i));
                self.settle(now, self.units.slot_number(unit, i), at);
            }
            self.units.end(unit);
            self.end_flushes(now);
        } else {
            self.stripe.ready.push_front(unit);
        }
        self.close_full(open);
        true
    }

    /// Writes a unit to the next row of an open chunk, if that can be done at
    /// once.
    #[inline]
    pub(super) fn write_at_once(&mut self, unit: u32, open: OpenChunk) -> Option<Status> {
        if !self.instant {
            return None;
        }
        let row = self.geometry.row_blocks();
        let ppa = Ppa(self.geometry.chunk_start(open.chunk).0 + u64::from(open.next));
        let held = self.units.unit_mut(unit);
        held.ppa = ppa;
        let (data, tags) = held.buffer.bytes().split_at(row as usize * self.kept);
        self.device.write_at_once(ppa, row, data, tags)
    }

    /// Closes the chunk whose row `open` was, if that was its last.
    #[inline]
    pub(super) fn close_full(&mut self, open: OpenChunk) {
        if self.advance_open(open).is_none() {
            self.space.close(open.chunk);
        }
    }

    /// The open chunk after one more row; none when it is full.
    #[inline]
    pub(super) fn advance_open(&self, open: OpenChunk) -> Option<OpenChunk> {
        let next = open.next + self.geometry.row_blocks();
        if next == self.geometry.chunk_blocks() { None } else { Some(OpenChunk { next, ..open }) }
    }

    /// Sends a unit to the next row of an open chunk.
    #[inline]
    pub(super) fn program(&mut self, unit: u32, open: OpenChunk) {
        let row = self.geometry.row_blocks();
        let ppa = Ppa(self.geometry.chunk_start(open.chunk).0 + u64::from(open.next));
        let held = self.units.unit_mut(unit);
        held.ppa = ppa;
        let buffer = held.buffer.lend();
        self.send(|| {
            Self::run(Cookie::Program(unit), VectorOp::Write, ppa, row, Content::Tagged, buffer)
        });
    }

    #[inline]
    pub(super) fn program_done(&mut self, now: Time, unit: u32, done: VectorDone) {
        let held = self.units.unit_mut(unit);
        held.buffer.reclaim(done.buffer);
        let ppa = held.ppa;
        let (chunk, pu) = (self.geometry.chunk_index(ppa), self.geometry.pu_index(ppa));
        let is_user = self.units.is_user(unit);
        if done.status.is_ok() {
            self.fetch_slots(unit);
            for i in 0..self.geometry.row_blocks() {
                let slot = self.units.slot_number(unit, i);
                let at = Ppa(ppa.0 + u64::from(i));
                if is_user { self.settle(now, slot, at) } else { self.settle_moved(now, slot, at) }
            }
        }
        if self.geometry.block(ppa) + self.geometry.row_blocks() == self.geometry.chunk_blocks() {
            self.space.close(chunk);
        }
        if is_user {
            self.stripe.pus[self.stripe.ranks[pu] as usize].rows -= 1;
            if done.status.is_ok() {
                self.units.end(unit);
            } else {
                // The row stays in the buffer and goes elsewhere.
                self.stripe.ready.push_front(unit);
            }
            self.refresh(pu);
            self.stage_waiting(now);
            self.pump(now);
            self.end_flushes(now);
        } else {
            self.moved_row_done(now, pu, unit, done.status.is_ok());
        }
        self.collect(now, pu);
    }

    /// Fetches what settling a unit's slots will look at, all at once.
    #[inline]
    fn fetch_slots(&self, unit: u32) {
        for i in 0..self.geometry.row_blocks() {
            let held = self.units.slot(self.units.slot_number(unit, i));
            self.map.prefetch(held.lba);
            if let Some(ppa) = held.old.ppa() {
                self.space.prefetch(ppa);
            }
        }
    }

    /// A user slot is programmed at `at`: it replaces all older copies, and
    /// becomes what the map, or a newer slot, leads to.
    #[inline]
    fn settle(&mut self, now: Time, slot: u32, at: Ppa) {
        let held = *self.units.slot(slot);
        if !held.live {
            return;
        }
        self.space.set_valid(at);
        if self.map.get(held.lba) == Place::buffer(slot) {
            self.map.set(held.lba, Place::flash(at));
        } else {
            self.relink(held.lba, Place::buffer(slot), Place::flash(at));
        }
        self.drop_copies(now, held.old);
    }

    /// In the chain of `lba`, below the map, puts `to` in the place of `from`.
    pub(super) fn relink(&mut self, lba: u64, from: Place, to: Place) {
        let mut slot = self.map.get(lba).slot();
        while let Some(number) = slot {
            let held = self.units.slot_mut(number);
            if held.old == from {
                held.old = to;
                return;
            }
            slot = held.old.slot();
        }
        unreachable!("a live copy is in its block's chain");
    }

    /// Gives up a copy and all that are older.
    #[inline]
    pub(super) fn drop_copies(&mut self, now: Time, mut place: Place) {
        while let Some(slot) = place.slot() {
            let held = self.units.slot_mut(slot);
            held.live = false;
            place = std::mem::replace(&mut held.old, Place::UNMAPPED);
        }
        if let Some(ppa) = place.ppa() {
            self.invalidate(now, ppa);
        }
    }

    /// Gives a block in flash up.
    #[inline]
    pub(super) fn invalidate(&mut self, now: Time, ppa: Ppa) {
        if let Some(chunk) = self.space.set_invalid(ppa) {
            self.try_erase(now, chunk);
        }
    }
}
