//! Garbage collection, by parallel unit.
//!
//! A unit collects when as many of its chunks are closed as hold data. The
//! valid blocks of the victim are read, gathered into rows of the collection
//! stream and programmed in the same unit, with the tags that they had, so
//! that recovery still finds the newest copy by its tag. The victim is erased
//! when it has no valid block left and none of its blocks is on its way.
//!
//! Collection keeps pace with the user's writes to the unit; it runs free when
//! the unit is short of chunks or has no user row on its way.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::{Geometry, Ppa, TAG_BYTES, Tag};
use port::{Buffer, OutOfMemory, Pieces, Status, Time};

use super::gulp::Gulped;
use super::map::Place;
use super::programs::USER_LEAVES;
use super::space::OpenChunk;
use super::units::{PAD, Slot};
use super::{Cookie, Pblk};

/// Reads of one unit's collection that may be under way.
pub(super) const READS_PER_PU: u32 = 2;

/// Free chunks below which collection does not wait for the user.
const URGENT_FREE: usize = 3;

/// How far a chunk's collection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stage {
    phase: Phase,
    /// Blocks read, or being read, that are not settled yet.
    pub(super) moving: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Not a victim.
    #[default]
    None,
    /// Its blocks are being read.
    Reading,
    /// All were read; some are on their way.
    Draining,
    /// It is being erased.
    Erasing,
}

/// A collection read: where, and its buffer, of which a short read takes a
/// piece.
#[derive(Debug, Default)]
pub(super) struct Survivors {
    first: Ppa,
    buffer: Pieces,
}

impl Survivors {
    /// Buffers of `bytes` for all reads that may be under way.
    pub fn all(geometry: &Geometry, bytes: usize) -> Result<Vec<Survivors>, OutOfMemory> {
        let count = (geometry.total_pus() * READS_PER_PU) as usize;
        let one = |buffer| Survivors { first: Ppa(0), buffer: Pieces::new(buffer) };
        Ok(Buffer::carve(count, bytes)?.into_iter().map(one).collect())
    }

    fn give(&mut self, piece: Buffer) {
        self.buffer.give(piece);
        self.buffer = Pieces::new(std::mem::take(&mut self.buffer).whole());
    }
}

/// The collection of one parallel unit.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) victim: Option<usize>,
    /// Where in the victim to look next.
    pub(super) next: u32,
    open: Option<OpenChunk>,
    /// The row being gathered: which of the two units, 0 or 1.
    gathering: u32,
    /// Units that are full or being programmed, of the two.
    busy: [bool; 2],
    /// Slots that reads under way will need.
    pub(super) promised: u32,
    /// Read buffers that are free, as a bit set.
    buffers: u32,
    /// Blocks that may be moved for what the user wrote, times 256.
    pub(super) credit: i64,
    /// Blocks to move for each block written, times 256.
    pace: i64,
    /// Recovery found no free chunk: until there is one, only the victim that
    /// needs the least room is sure to fit.
    pub(super) rescue: bool,
}

impl Collector {
    pub fn all(geometry: &Geometry) -> Vec<Collector> {
        let one = || Collector {
            victim: None,
            next: 0,
            open: None,
            gathering: 0,
            busy: [false; 2],
            promised: 0,
            buffers: (1 << READS_PER_PU) - 1,
            credit: 0,
            pace: 0,
            rescue: false,
        };
        (0..geometry.total_pus()).map(|_| one()).collect()
    }

    /// Goes on with a chunk that was begun before the start.
    pub fn go_on(&mut self, open: OpenChunk) {
        self.open = Some(open);
    }

    /// The user wrote to this unit: collection may go on by as much.
    #[inline]
    pub fn user_wrote(&mut self, blocks: u32) {
        self.credit += i64::from(blocks) * self.pace;
    }

    /// Whether the user has written enough for `count` blocks to be moved.
    #[inline]
    pub fn has_credit(&self, count: u32) -> bool {
        self.credit >= i64::from(count) * 256
    }

    /// Begins a victim. It is to be done, with a quarter to spare, when the
    /// user has written what it frees.
    fn begin(&mut self, chunk: usize, valid: u32, size: u32) {
        self.victim = Some(chunk);
        self.next = 0;
        let freed = i64::from((size - valid).max(1));
        self.pace = i64::from(valid) * 256 * 5 / 4 / freed + 1;
        self.credit = i64::from(size / 8) * 256;
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Goes on with the collection of a parallel unit as far as it may.
    #[inline]
    pub(super) fn collect(&mut self, now: Time, pu: usize) {
        let rank = self.stripe.rank(pu);
        let space = &self.space.pus[pu];
        let pressed = self.space.is_full(pu) || space.free.len() <= USER_LEAVES;
        if self.collectors[rank].victim.is_some() || pressed {
            self.collect_more(now, pu, rank);
        }
    }

    fn collect_more(&mut self, now: Time, pu: usize, rank: usize) {
        loop {
            if self.instant && self.waits_for_gulp(pu, rank) {
                return;
            }
            let Some(chunk) = self.collectors[rank].victim.or_else(|| self.choose_victim(pu, rank))
            else {
                self.send_part_row(now, pu, rank);
                return;
            };
            let Some((block, run)) = self.space.next_valid_run(chunk, self.collectors[rank].next)
            else {
                self.collectors[rank].victim = None;
                self.chunks[chunk].phase = Phase::Draining;
                self.try_erase(now, chunk);
                continue;
            };
            if self.instant {
                match self.gulp(now, pu, rank, chunk) {
                    Gulped::Some => continue,
                    Gulped::Full => return,
                    Gulped::No => {}
                }
            }
            let count = run.min(self.rows_left(pu, rank));
            if count == 0 || !self.may_read(pu, rank, count) {
                return;
            }
            self.read_survivors(rank, chunk, block, count);
        }
    }

    fn choose_victim(&mut self, pu: usize, rank: usize) -> Option<usize> {
        if !self.space.is_full(pu) {
            return None;
        }
        let chunk = self.space.take_victim(pu, self.collectors[rank].rescue)?;
        let valid = self.space.valid_blocks(chunk);
        self.collectors[rank].begin(chunk, valid, self.geometry.chunk_blocks());
        self.chunks[chunk].phase = Phase::Reading;
        self.counters.collections += 1;
        Some(chunk)
    }

    /// Whether `count` more blocks can be read now: a buffer is free, there is
    /// a place for the survivors, and it is time.
    fn may_read(&self, pu: usize, rank: usize, count: u32) -> bool {
        let c = &self.collectors[rank];
        if c.buffers == 0 || self.gathering_room(rank) < c.promised + count {
            return false;
        }
        c.has_credit(count) || self.is_urgent(pu) || self.stripe.rows(pu) == 0
    }

    /// Whether a unit is so short of chunks that collection does not wait for
    /// the user.
    #[inline]
    pub(super) fn is_urgent(&self, pu: usize) -> bool {
        self.space.pus[pu].free.len() < URGENT_FREE
    }

    /// How many more survivors have rows to go to: in the open chunk, and in
    /// the free one that the user leaves. What is read can then always be
    /// programmed, and its victim erased.
    pub(super) fn rows_left(&self, pu: usize, rank: usize) -> u32 {
        let c = &self.collectors[rank];
        let size = self.geometry.chunk_blocks();
        let open = c.open.map_or(0, |open| size - open.next);
        let free = if self.space.pus[pu].free.is_empty() { 0 } else { size };
        (open + free).saturating_sub(self.gathered(rank) + c.promised)
    }

    /// Survivors in rows that are not full yet.
    fn gathered(&self, rank: usize) -> u32 {
        let filled = |which: u32| {
            let unit = self.units.collection(rank as u32, which);
            if self.collectors[rank].busy[which as usize] {
                0
            } else {
                self.units.unit(unit).filled
            }
        };
        filled(0) + filled(1)
    }

    /// With no victim to fill it up and the user out of space, the row being
    /// gathered is sent as it is, so that the chunks its blocks came from can
    /// be erased.
    fn send_part_row(&mut self, now: Time, pu: usize, rank: usize) {
        let c = &self.collectors[rank];
        let waits = c.promised > 0 || c.busy != [false; 2] || self.gathered(rank) == 0;
        if waits || !self.stripe.is_idle(pu) || self.space.pus[pu].free.len() > USER_LEAVES {
            return;
        }
        let which = c.gathering;
        let unit = self.units.collection(rank as u32, which);
        let padding = u64::from(self.units.pad(unit));
        self.collectors[rank].busy[which as usize] = true;
        self.collectors[rank].gathering ^= 1;
        self.counters.gc -= padding;
        self.counters.padding += padding;
        self.send_moved_row(now, rank, unit);
    }

    /// Free slots in the two collection units.
    #[inline]
    pub(super) fn gathering_room(&self, rank: usize) -> u32 {
        let c = &self.collectors[rank];
        let row = self.geometry.row_blocks();
        let unit = self.units.collection(rank as u32, c.gathering);
        let here =
            if c.busy[c.gathering as usize] { 0 } else { row - self.units.unit(unit).filled };
        let other = if c.busy[(c.gathering ^ 1) as usize] { 0 } else { row };
        here + other
    }

    fn read_survivors(&mut self, rank: usize, chunk: usize, block: u32, count: u32) {
        let c = &mut self.collectors[rank];
        let which = c.buffers.trailing_zeros();
        c.buffers &= !(1 << which);
        c.promised += count;
        c.next = block + count;
        c.credit -= i64::from(count) * 256;
        self.chunks[chunk].moving += count;
        self.counters.moved += u64::from(count);
        let number = rank as u32 * READS_PER_PU + which;
        let ppa = Ppa(self.geometry.chunk_start(chunk).0 + u64::from(block));
        let survivors = &mut self.survivors[number as usize];
        survivors.first = ppa;
        let piece = survivors.buffer.take(count as usize * (self.kept + TAG_BYTES));
        self.send(|| {
            Self::run(Cookie::Survivors(number), VectorOp::Read, ppa, count, Content::Tagged, piece)
        });
    }

    /// Survivors have been read: those still valid go into the row being
    /// gathered.
    #[inline]
    pub(super) fn survivors_done(&mut self, now: Time, number: u32, done: VectorDone) {
        let rank = (number / READS_PER_PU) as usize;
        let pu = self.stripe.pu(rank);
        let row_bytes = self.kept + TAG_BYTES;
        let count = (done.buffer.len() / row_bytes) as u32;
        let first = self.survivors[number as usize].first;
        let chunk = self.geometry.chunk_index(first);
        self.collectors[rank].promised -= count;
        self.collectors[rank].buffers |= 1 << (number % READS_PER_PU);
        for i in 0..count {
            let at = Ppa(first.0 + u64::from(i));
            if done.status.is_ok() && self.space.is_valid(at) {
                let bytes = done.buffer.bytes();
                let start = i as usize * self.kept;
                let tag = Tag::load(&bytes[count as usize * self.kept + i as usize * TAG_BYTES..]);
                self.gather(now, rank, at, tag, &bytes[start..start + self.kept]);
            } else {
                // Given up meanwhile, or unreadable: then it stays where it
                // is, and so does its chunk.
                self.chunks[chunk].moving -= 1;
            }
        }
        self.survivors[number as usize].give(done.buffer);
        self.try_erase(now, chunk);
        self.collect(now, pu);
    }

    /// Adds a survivor to the row being gathered, and sends the row when it is
    /// full.
    #[inline]
    pub(super) fn gather(&mut self, now: Time, rank: usize, at: Ppa, tag: Tag, bytes: &[u8]) {
        let c = &mut self.collectors[rank];
        if c.busy[c.gathering as usize] {
            c.gathering ^= 1;
            assert!(!c.busy[c.gathering as usize], "room was promised");
        }
        let which = c.gathering;
        let unit = self.units.collection(rank as u32, which);
        self.map.prefetch(tag.id);
        let slot = Slot { lba: tag.id, old: Place::flash(at), live: true };
        self.units.add(unit, slot, tag, |to| to.copy_from_slice(bytes));
        if self.units.is_full(unit) {
            self.collectors[rank].busy[which as usize] = true;
            self.collectors[rank].gathering ^= 1;
            self.send_moved_row(now, rank, unit);
        }
    }

    /// Sends a row of survivors to flash, or programs it at once.
    fn send_moved_row(&mut self, now: Time, rank: usize, unit: u32) {
        let open = self.next_moved_row(rank);
        if !self.move_at_once(now, rank, unit, open) {
            self.program(unit, open);
        }
    }

    /// Programs a row of survivors at once, and settles it. False where that
    /// cannot be. A row that fails is sent as a command.
    fn move_at_once(&mut self, now: Time, rank: usize, unit: u32, open: OpenChunk) -> bool {
        let Some(status) = self.write_at_once(unit, open) else { return false };
        if status.is_ok() {
            for i in 0..self.geometry.row_blocks() {
                let at = Ppa(self.units.unit(unit).ppa.0 + u64::from(i));
                self.settle_moved(now, self.units.slot_number(unit, i), at);
            }
            self.free_moved(rank, unit);
        }
        self.close_full(open);
        if !status.is_ok() {
            let next = self.next_moved_row(rank);
            self.program(unit, next);
        }
        true
    }

    /// The next row for a unit's survivors.
    fn next_moved_row(&mut self, rank: usize) -> OpenChunk {
        let pu = self.stripe.pu(rank);
        let open = match self.collectors[rank].open.take() {
            Some(open) => open,
            None => self.space.open(pu).expect("survivors are read only with rows for them"),
        };
        self.collectors[rank].open = self.advance_open(open);
        self.counters.gc += u64::from(self.geometry.row_blocks());
        self.refresh(pu);
        open
    }

    /// A moved block is programmed at `at`.
    #[inline]
    pub(super) fn settle_moved(&mut self, now: Time, slot: u32, at: Ppa) {
        let held = *self.units.slot(slot);
        if held.lba == PAD {
            return;
        }
        let from = held.old.ppa().expect("a survivor comes from flash");
        let chunk = self.geometry.chunk_index(from);
        self.chunks[chunk].moving -= 1;
        if self.space.is_valid(from) {
            self.space.set_valid(at);
            if self.map.get(held.lba) == held.old {
                self.map.set(held.lba, Place::flash(at));
            } else {
                self.relink(held.lba, held.old, Place::flash(at));
            }
            self.invalidate(now, from);
        } else {
            self.try_erase(now, chunk);
        }
    }

    /// A row of survivors was programmed, or failed and is sent again.
    pub(super) fn moved_row_done(&mut self, now: Time, pu: usize, unit: u32, programmed: bool) {
        let rank = self.stripe.rank(pu);
        if programmed {
            self.free_moved(rank, unit);
        } else {
            self.send_moved_row(now, rank, unit);
        }
    }

    /// A row of survivors can be gathered again.
    #[inline]
    fn free_moved(&mut self, rank: usize, unit: u32) {
        let which = unit - self.units.collection(rank as u32, 0);
        self.units.unit_mut(unit).filled = 0;
        self.collectors[rank].busy[which as usize] = false;
    }

    /// Erases a victim when nothing of it is needed any more.
    #[inline]
    pub(super) fn try_erase(&mut self, _now: Time, chunk: usize) {
        let stage = self.chunks[chunk];
        if stage.phase != Phase::Draining || stage.moving > 0 || self.space.valid_blocks(chunk) > 0
        {
            return;
        }
        self.chunks[chunk].phase = Phase::Erasing;
        let ppa = self.geometry.chunk_start(chunk);
        let cookie = Cookie::Reset(chunk as u32);
        self.send(|| Self::run(cookie, VectorOp::Reset, ppa, 1, Content::Data, Buffer::empty()));
    }

    /// A chunk is erased, or worn out and lost.
    pub(super) fn reset_done(&mut self, now: Time, chunk: usize, status: Status) {
        self.chunks[chunk].phase = Phase::None;
        if status.is_ok() {
            self.counters.erases += 1;
            self.space.give(chunk);
        } else {
            self.lose(now, chunk);
        }
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        let rank = self.stripe.rank(pu);
        self.collectors[rank].rescue = false;
        self.refresh(pu);
        self.pump(now);
        self.stage_waiting(now);
        self.collect(now, pu);
    }
}
