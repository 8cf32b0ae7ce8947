//! The way to flash: rows striped over the parallel units, and what follows
//! when one is programmed.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa};
use port::{OutOfMemory, Ring, Whose};

use super::config::MAX_STREAMS;
use super::map::Place;
use super::ranks::Ranks;
use super::space::OpenChunk;
use super::{Cookie, Pblk};

/// User rows at one parallel unit for each that it can program at once: one
/// being programmed, one behind it.
const ROWS_PER_PU: u32 = 2;

const _: () = assert!(size_of::<PuStripe>() == 64, "one line of the caches");

/// Free chunks that the user stream leaves to collection.
pub(super) const USER_LEAVES: usize = 1;

/// What the stripe knows of a parallel unit, in one line of the caches.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PuStripe {
    pu: usize,
    /// By stream: set by [`Stripe::set_open`].
    open: [Option<OpenChunk>; MAX_STREAMS],
    /// Blocks left in these, not none where there is one.
    room: u32,
    /// User rows on their way.
    rows: u8,
    /// Of 256 turns, how many it lets pass, since it is more worn than others.
    rest: u8,
    /// The sum of these, up to 256.
    rested: u8,
    /// It lets this turn pass.
    passes: bool,
}

/// Round robin over the parallel units that can take a row, channels first.
pub(super) struct Stripe {
    /// By rank: the place in the round.
    pus: Vec<PuStripe>,
    /// Rank by parallel unit.
    ranks: Vec<u32>,
    /// Those that can take a row.
    able: Ranks,
    next: usize,
    /// Some let their turn pass, and no row was taken since.
    passing: bool,
    /// User rows at one parallel unit, at most.
    most: u8,
    /// Blocks of a chunk.
    size: u32,
    /// Full units of the user that wait for a parallel unit.
    pub ready: Ring<u32>,
    /// Units whose copies may be older than some on their way: of collection, and
    /// those of which a program failed. They wait while a checkpoint settles.
    pub older: Ring<u32>,
}

impl Stripe {
    /// For parallel units that program `at_once` rows at a time, and a buffer of so
    /// many rows of the user.
    pub fn new(geometry: &Geometry, at_once: u32, rows: usize) -> Stripe {
        let mut ranks = vec![u32::MAX; geometry.pu_slots()];
        let mut pus = Vec::new();
        for (rank, pu) in geometry.pus_channels_first().enumerate() {
            ranks[pu] = rank as u32;
            pus.push(PuStripe { pu, ..PuStripe::default() });
        }
        let able = Ranks::new(pus.len());
        let (ready, older) = (Ring::new(rows), Ring::new(rows + 2 * pus.len()));
        let most = ROWS_PER_PU.saturating_mul(at_once).min(u8::MAX.into()) as u8;
        let size = geometry.chunk_blocks();
        Stripe { pus, ranks, able, next: 0, passing: false, most, size, ready, older }
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

    /// A parallel unit goes on with a chunk that was begun before the start, in a
    /// stream that has none: which one it was of is not known.
    pub fn go_on(&mut self, pu: usize, open: OpenChunk) {
        let rank = self.rank(pu);
        let free = self.pus[rank].open.iter().position(Option::is_none);
        self.set_open(rank, free.expect("one for each stream"), Some(open));
    }

    /// The chunk of a stream is from now on that one, if any.
    #[inline]
    fn set_open(&mut self, rank: usize, stream: usize, open: Option<OpenChunk>) {
        let left = |open: Option<OpenChunk>| open.map_or(0, |open| self.size - open.next);
        let stripe = &mut self.pus[rank];
        stripe.room = stripe.room + left(open) - left(stripe.open[stream]);
        stripe.open[stream] = open;
    }

    /// Blocks left in the chunks open for the user at a place in the round.
    #[inline]
    pub fn room(&self, rank: usize) -> u32 {
        let left = |open: OpenChunk| self.size - open.next;
        debug_assert_eq!(self.pus[rank].room, self.opened(rank).map(left).sum::<u32>());
        self.pus[rank].room
    }

    /// The chunks open for the user at a place in the round.
    #[inline]
    pub fn opened(&self, rank: usize) -> impl Iterator<Item = OpenChunk> + '_ {
        self.pus[rank].open.iter().flatten().copied()
    }

    /// Whether a chunk is open for the user at a place in the round.
    #[inline]
    pub fn has_open(&self, rank: usize) -> bool {
        self.room(rank) > 0
    }

    /// A chunk open for the user at a place in the round is so no longer.
    pub fn take_open(&mut self, rank: usize) -> Option<OpenChunk> {
        let stream = self.pus[rank].open.iter().position(Option::is_some)?;
        let open = self.pus[rank].open[stream];
        self.set_open(rank, stream, None);
        open
    }

    /// A chunk is no longer open for the user, if it was.
    pub fn leave(&mut self, rank: usize, chunk: usize) {
        for stream in 0..MAX_STREAMS {
            if self.pus[rank].open[stream].is_some_and(|open| open.chunk() == chunk) {
                self.set_open(rank, stream, None);
            }
        }
    }

    /// User rows on their way to a parallel unit.
    #[inline]
    pub fn rows(&self, pu: usize) -> u8 {
        self.pus[self.ranks[pu] as usize].rows
    }

    /// No user row is on its way to a parallel unit, and no chunk is open for
    /// one.
    pub fn is_idle(&self, pu: usize) -> bool {
        let rank = self.rank(pu);
        self.pus[rank].rows == 0 && !self.has_open(rank)
    }

    /// Full units that wait for a parallel unit.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.older.len()
    }

    /// User rows at all parallel units, at most.
    pub fn most_rows(&self) -> usize {
        self.pus.len() * usize::from(self.most)
    }

    /// Whether any parallel unit can take a row.
    #[inline]
    pub fn is_able(&self) -> bool {
        !self.able.is_empty()
    }

    /// Whether the parallel unit at a place in the round can.
    pub fn is_able_at(&self, rank: usize) -> bool {
        self.able.has(rank)
    }

    /// Of 256 turns, `rest` are let pass by a parallel unit.
    pub fn rest(&mut self, rank: usize, rest: u8) {
        self.pus[rank].rest = rest;
    }

    /// The next rank that can take a row. One that lets its turn pass has the
    /// next one, so that a row never waits for it.
    #[inline]
    fn choose(&mut self) -> Option<usize> {
        let rank = self.choose_next()?;
        if self.pus[rank].rest > 0 {
            return self.choose_rested(rank);
        }
        if self.passing {
            self.end_passing();
        }
        Some(rank)
    }

    /// Goes on from a unit that may let its turn pass, to one that does not.
    /// Where no other can take the row now, it waits for one that does not rest
    /// and has a row on its way: a drive that has as much to do as it can is
    /// leveled, too.
    #[cold]
    fn choose_rested(&mut self, first: usize) -> Option<usize> {
        let mut rank = first;
        while self.lets_pass(rank) {
            rank = self.choose_next()?;
            if rank == first {
                if self.pus.iter().any(|pu| pu.rest == 0 && pu.rows > 0) {
                    return None;
                }
                break;
            }
        }
        self.end_passing();
        Some(rank)
    }

    /// Whether a unit lets this turn pass; asked again for the same row it
    /// says the same.
    fn lets_pass(&mut self, rank: usize) -> bool {
        let stripe = &mut self.pus[rank];
        if !stripe.passes {
            (stripe.rested, stripe.passes) = stripe.rested.overflowing_add(stripe.rest);
            self.passing |= stripe.passes;
        }
        stripe.passes
    }

    /// A unit takes the row.
    #[cold]
    fn end_passing(&mut self) {
        self.pus.iter_mut().for_each(|pu| pu.passes = false);
        self.passing = false;
    }

    #[inline(always)]
    fn choose_next(&mut self) -> Option<usize> {
        let rank = self.able.next(self.next)?;
        self.next = if rank + 1 == self.pus.len() { 0 } else { rank + 1 };
        Some(rank)
    }
}

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
                if is_user { self.settle(slot, at, to) } else { self.settle_moved(slot, at, to) }
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
            self.relink(held.lba, Place::buffer(slot), to);
        }
        self.drop_copies(held.old);
    }

    /// In the chain of `lba`, below the map, puts `to` in the place of `from`.
    /// The map's page changes with it: it says what is on flash.
    pub(super) fn relink(&mut self, lba: u64, from: Place, to: Place) {
        self.map.touch(self.map.page_of(lba));
        self.rechain(lba, from, to);
    }

    /// The same where what is on flash stays.
    pub(super) fn rechain(&mut self, lba: u64, from: Place, to: Place) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn a_unit_that_rests_waits_for_others_that_are_busy() {
        let dim = Dimensions { pus: 2, chunks: 4, pages: 4, ..Dimensions::LEAST };
        let mut stripe = Stripe::new(&Geometry::new(dim).unwrap(), 1, 8);
        stripe.able.set(0, true);
        stripe.rest(0, 192);
        stripe.pus[1].rows = 1;
        // Of four rows it takes one; asked again for the same row it says the
        // same, until the other one has taken it.
        let mut taken = [0; 2];
        for _ in 0..400 {
            let mut rank = stripe.choose();
            if rank.is_none() {
                assert_eq!(stripe.choose(), None);
                stripe.able.set(1, true);
                rank = stripe.choose();
                stripe.able.set(1, false);
            }
            taken[rank.unwrap()] += 1;
        }
        assert_eq!(taken, [100, 300]);
        // Nobody else will come: it takes all.
        stripe.pus[1].rows = 0;
        assert!((0..100).all(|_| stripe.choose() == Some(0)));
        // Nor do two that rest wait for each other.
        stripe.able.set(1, true);
        stripe.rest(1, 192);
        (stripe.pus[0].rows, stripe.pus[1].rows) = (1, 1);
        assert!((0..100).all(|_| stripe.choose().is_some()));
    }
}
