//! The way to flash: rows striped over the parallel units, and what follows
//! when one is programmed.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::Ppa;
use port::{OutOfMemory, Whose};

use super::map::Place;
use super::space::OpenChunk;
use super::{Cookie, Pblk};

/// Free chunks that the user stream leaves to collection.
pub(super) const USER_LEAVES: usize = 1;

impl<D: OpenChannel> Pblk<D> {
    /// Looks again whether a parallel unit can take a user row.
    #[inline]
    pub(super) fn refresh(&mut self, pu: usize) {
        let rank = self.stripe.rank(pu);
        let stripe = &self.stripe.pus[rank];
        let able = stripe.rows < self.stripe.most
            && self.has_chunk(pu, rank)
            && (self.has_level(pu, rank) || self.cannot_collect(pu, rank));
        self.stripe.able.set(rank, able);
    }

    /// Sends full units of the user while parallel units can take them.
    #[inline]
    pub(super) fn send_ready(&mut self) {
        while !self.stripe.ready.is_empty()
            && let Some(rank) = self.stripe.choose()
        {
            let unit = self.stripe.ready.pop().expect("there is one");
            self.send_row(unit, rank);
        }
    }

    /// Sends the units whose copies may be older than some on their way, as far as
    /// there are rows for them.
    #[inline]
    pub(super) fn send_older(&mut self) {
        if self.saved.checkpoint.is_settling() {
            return;
        }
        for _ in 0..self.stripe.older.len() {
            let unit = self.stripe.older.pop().expect("they were counted");
            let is_sent = match self.units.is_user(unit) {
                true => self.send_again(unit),
                false => self.send_moved_row(unit) || self.send_stranded_row(unit),
            };
            if !is_sent {
                self.stripe.older.put(|| unit);
            }
        }
    }

    /// Sends a unit of the user of which a program failed.
    #[cold]
    fn send_again(&mut self, unit: u32) -> bool {
        let Some(rank) = self.stripe.choose() else { return false };
        self.void_dead(unit);
        self.send_row(unit, rank);
        true
    }

    /// Sends a row of survivors whose own unit has no chunk for it to another one.
    #[cold]
    fn send_stranded_row(&mut self, unit: u32) -> bool {
        let Some(rank) = self.stripe.choose() else { return false };
        self.begin_moved_row(unit);
        self.send_row(unit, rank);
        self.touch(self.units.rank_of(unit));
        true
    }

    /// Sends a row to a parallel unit that is able. What the user writes lets its
    /// collection go on.
    fn send_row(&mut self, unit: u32, rank: usize) {
        let stream = self.units.unit(unit).stream.into();
        let (pu, open) = self.take_row(rank, stream);
        self.stripe.pus[rank].rows += 1;
        self.units.unit_mut(unit).striped = true;
        self.program(unit, open);
        self.collect(pu);
        self.refresh(pu);
    }

    /// The next row of a stream in the parallel unit at a place in the round.
    #[inline]
    fn take_row(&mut self, rank: usize, stream: usize) -> (usize, OpenChunk) {
        let pu = self.stripe.pu(rank);
        let (stream, open) = match self.stripe.pus[rank].open[stream] {
            Some(open) => (stream, open),
            None => self.open_for(pu, rank, stream),
        };
        let open_next = self.advance_open(open);
        self.stripe.set_open(rank, stream, open_next);
        self.user_wrote(pu, rank);
        (pu, open)
    }

    /// A chunk for a stream that has none. Where no more is free than is left to
    /// collection, the row goes to another's: so a unit that is able takes rows of
    /// all.
    fn open_for(&mut self, pu: usize, rank: usize, stream: usize) -> (usize, OpenChunk) {
        if self.space.pus[pu].free() <= USER_LEAVES
            && let Some(other) = self.stripe.pus[rank].open.iter().position(Option::is_some)
            && let Some(open) = self.stripe.pus[rank].open[other]
        {
            return (other, open);
        }
        (stream, self.space.open(pu).expect("an able unit has a chunk"))
    }

    /// Makes padding of the copies of a unit that do not count any more: it
    /// failed, and may have waited for a row while newer ones were programmed and a
    /// checkpoint began.
    fn void_dead(&mut self, unit: u32) {
        for i in 0..self.geometry.row_blocks() {
            let slot = self.units.slot_number(unit, i);
            if !self.units.slot(slot).live {
                self.units.void(slot);
            }
        }
        self.flush_records();
    }

    /// Where the next row of an open chunk begins.
    #[inline]
    fn row_start(&self, open: OpenChunk) -> Ppa {
        Ppa(self.geometry.chunk_start(open.chunk()).0 + u64::from(open.next))
    }

    /// The open chunk after one more row; none when it is full.
    #[inline]
    pub(super) fn advance_open(&self, open: OpenChunk) -> Option<OpenChunk> {
        let next = open.next + self.geometry.row_blocks();
        if next == self.geometry.chunk_blocks() {
            None
        } else {
            Some(OpenChunk::new(open.chunk(), next))
        }
    }

    /// Sends a unit to the next row of an open chunk.
    #[inline]
    pub(super) fn program(&mut self, unit: u32, open: OpenChunk) {
        let (row, ppa) = (self.geometry.row_blocks(), self.row_start(open));
        self.saved.checkpoint.rows += 1;
        self.chunks[open.chunk()].rows += 1;
        let held = self.units.unit_mut(unit);
        (held.ppa, held.sent) = (ppa, true);
        let mut whose = Whose::User;
        if !self.units.is_user(unit) {
            self.note_sent(unit, true);
            whose = self.whose_moved(self.units.rank_of(unit));
        }
        self.fetch_slots(unit);
        if !self.units.is_user(unit)
            && let Some(from) = self.copied_from(unit, ppa)
        {
            return self.copy_row(unit, from, ppa, whose);
        }
        let buffer = self.units.unit_mut(unit).buffer.lend();
        self.send_write(|| {
            let (cookie, op) = (Cookie::Program(unit), VectorOp::Write);
            let cmd = Self::run(cookie, op, ppa, row, Content::Tagged, buffer);
            VectorCmd { whose, ..cmd }
        });
    }

    #[inline]
    pub(super) fn program_done(&mut self, unit: u32, done: VectorDone) {
        let is_copy = done.list.is_some();
        match done.list {
            Some(list) => self.copy_ended(unit, list, done.status.is_ok()),
            None => self.units.unit_mut(unit).buffer.reclaim(done.buffer),
        }
        let held = self.units.unit_mut(unit);
        held.sent = false;
        let before = std::mem::take(&mut held.before);
        let (ppa, striped) = (held.ppa, std::mem::take(&mut held.striped));
        let (chunk, rank) =
            (self.geometry.chunk_index(ppa), self.stripe.rank(self.geometry.pu_index(ppa)));
        let is_user = self.units.is_user(unit);
        if self.openings.is_some() {
            self.opening_ended(chunk, false);
        }
        self.chunks[chunk].rows -= 1;
        if striped {
            self.stripe.pus[rank].rows -= 1;
        }
        if before {
            self.saved.checkpoint.settled();
        }
        self.touch(rank);
        if !is_user {
            self.note_sent(unit, false);
            self.touch(self.units.rank_of(unit));
        }
        if !done.status.is_ok() {
            self.fail_chunk(chunk);
        }
        if self.chunks[chunk].failed {
            return self.row_failed(unit, chunk);
        }
        if is_copy {
            self.counters.copied += u64::from(self.geometry.row_blocks());
        }
        let Ok(is_held) = self.hold(unit, ppa) else { return self.give_up_writing() };
        if !is_held {
            for i in 0..self.geometry.row_blocks() {
                let slot = self.units.slot_number(unit, i);
                let at = Ppa(ppa.0 + u64::from(i));
                let to = Place::flash(at);
                if is_user {
                    self.settle(slot, at, to);
                } else {
                    self.settle_moved(slot, at, to);
                }
            }
        }
        self.row_ended(chunk, ppa);
        if is_user {
            self.units.end(unit);
        } else {
            self.free_moved(unit);
        }
    }

    /// Whether a row that is programmed is held, since it cannot be read yet.
    #[inline(always)]
    fn hold(&mut self, unit: u32, ppa: Ppa) -> Result<bool, OutOfMemory> {
        if self.window.is_on() { self.settle_held(unit, ppa) } else { Ok(false) }
    }

    /// A row was programmed in vain: it stays in the buffer and goes elsewhere. One
    /// of the user counts as padding, since the one that goes elsewhere is the
    /// user's.
    #[cold]
    fn row_failed(&mut self, unit: u32, chunk: usize) {
        self.ask_failed(chunk);
        if self.units.is_user(unit) {
            self.counters.padding += u64::from(self.geometry.row_blocks());
        }
        self.stripe.older.put(|| unit);
    }

    /// A row of a chunk is programmed. Its last one need not be the last to say
    /// so: the chunk is closed when all have.
    #[inline]
    fn row_ended(&mut self, chunk: usize, ppa: Ppa) {
        let is_last = self.is_last_row(ppa);
        let stage = &mut self.chunks[chunk];
        stage.ended |= is_last;
        if stage.ended && stage.rows == 0 {
            stage.ended = false;
            self.space.close(chunk);
        }
    }

    /// Whether a row is the last of its chunk.
    #[inline]
    fn is_last_row(&self, ppa: Ppa) -> bool {
        self.geometry.block(ppa) + self.geometry.row_blocks() == self.geometry.chunk_blocks()
    }

    /// Fetches what settling a unit's slots will look at, all at once, when the
    /// unit is sent: while it is programmed there is time for that.
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

    /// A user slot is programmed at `at`: it replaces all older copies, and the map,
    /// or a newer slot, leads to `to` from now on.
    #[inline(always)]
    pub(super) fn settle(&mut self, slot: u32, at: Ppa, to: Place) {
        let held = *self.units.slot(slot);
        if !held.live {
            // Perhaps given up while it was on its way: then it is the newest
            // copy on flash until the record is there, too.
            let given_up = &mut self.chunks[self.geometry.chunk_index(at)].given_up;
            *given_up = (*given_up).max(self.saved.log.last);
            return;
        }
        self.space.set_valid(at);
        if self.map.get(held.lba) == Place::buffer(slot) {
            self.map.set(held.lba, to);
        } else {
            let is_linked = self.relink(held.lba, Place::buffer(slot), to);
            assert!(is_linked, "a live copy is in its block's chain");
        }
        self.drop_copies(held.old);
    }

    /// In the chain of `lba`, below the map, puts `to` in the place of `from`.
    /// The map's page changes with it: it says what is on flash. False where `from` is
    /// not in that chain.
    #[must_use]
    pub(super) fn relink(&mut self, lba: u64, from: Place, to: Place) -> bool {
        self.map.touch(self.map.page_of(lba));
        self.rechain(lba, from, to)
    }

    /// The same where what is on flash stays.
    #[must_use]
    pub(super) fn rechain(&mut self, lba: u64, from: Place, to: Place) -> bool {
        let mut slot = self.map.get(lba).slot();
        while let Some(number) = slot {
            let held = self.units.slot_mut(number);
            if held.old == from {
                held.old = to;
                return true;
            }
            slot = held.old.slot();
        }
        false
    }

    /// Gives up a copy and all that are older.
    #[inline(always)]
    pub(super) fn drop_copies(&mut self, mut place: Place) {
        while let Some(slot) = place.slot() {
            let held = self.units.slot_mut(slot);
            held.live = false;
            place = std::mem::replace(&mut held.old, Place::UNMAPPED);
        }
        if let Some(ppa) = place.ppa() {
            self.invalidate(ppa);
        }
    }

    /// Gives a block in flash up.
    #[inline]
    pub(super) fn invalidate(&mut self, ppa: Ppa) {
        if let Some(chunk) = self.space.set_invalid(ppa) {
            self.try_erase(chunk);
        }
    }
}
