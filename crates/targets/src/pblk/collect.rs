//! Garbage collection, by parallel unit.
//!
//! A unit collects when it has too little room: see `limiter`. The valid blocks of the victim are read, gathered into rows of the collection
//! stream and programmed in the same unit, with the tags that they had, so
//! that recovery still finds the newest copy by its tag. The victim is erased
//! when it has no valid block left and none of its blocks is on its way.
//!
//! Collection keeps pace with the user's writes to the unit; it runs free when
//! the unit is short of chunks or has no user row on its way.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Ppa, TAG_BYTES, Tag};
use port::{Buffer, Status};

use super::collector::{Collector, Phase, READS_PER_PU, Stage, Survivors};
use super::copies::UNKNOWN;
use super::failures::{is_lost, is_read};
use super::limiter::CREDIT;
use super::map::Place;
use super::mutation::{Mutation, is};
use super::programs::USER_LEAVES;
use super::space::OpenChunk;
use super::units::{PAD, Slot};
use super::{BACKLOG, Cookie, Pblk};

impl<D: OpenChannel> Pblk<D> {
    /// Goes on with the collection of a parallel unit as far as it may.
    #[inline(always)]
    pub(super) fn collect(&mut self, pu: usize) {
        // A shutdown waits for rows, and these perhaps for room: else it begins
        // nothing more.
        if self.load.is_some() || (self.saved.checkpoint.closing && self.waiting_rows() == 0) {
            return;
        }
        let rank = self.stripe.rank(pu);
        let c = &self.collectors.of[rank];
        if c.victim.is_some() {
            if !self.waits_for_event(pu, rank) {
                self.collect_more(pu, rank);
            }
        } else if !c.asked.is_empty() || !c.again.is_empty() || self.may_begin(pu, rank) {
            self.collect_more(pu, rank);
        }
    }

    /// Whether a parallel unit has a reason to collect.
    #[inline(always)]
    fn may_begin(&self, pu: usize, rank: usize) -> bool {
        self.wants_room(pu, rank) || self.collects_idly(pu, rank)
    }

    /// Whether a victim's next read waits for reads that are under way, or for the
    /// user, who has a row on its way: mostly so. Either ends, and then
    /// collection is gone on with.
    #[inline]
    fn waits_for_event(&self, pu: usize, rank: usize) -> bool {
        let c = &self.collectors.of[rank];
        let has_leave = || c.has_credit(1) || self.is_urgent(pu, rank);
        c.buffers == 0 || (self.stripe.rows(pu) > 0 && !has_leave())
    }

    fn collect_more(&mut self, pu: usize, rank: usize) {
        loop {
            if !self.collectors.of[rank].again.is_empty() {
                if !self.read_again(pu, rank) {
                    return;
                }
                continue;
            }
            let victim = self.collectors.of[rank].victim.map(|chunk| chunk as usize);
            let Some(chunk) = victim.or_else(|| self.choose_victim(pu, rank)) else {
                self.send_part_row(pu, rank);
                return;
            };
            let Some((block, run)) =
                self.space.next_valid_run(chunk, self.collectors.of[rank].next)
            else {
                self.collectors.of[rank].victim = None;
                if self.collectors.of[rank].wins {
                    self.collectors.of[rank].draining += 1;
                }
                self.chunks[chunk].begin_draining();
                self.try_erase(chunk);
                continue;
            };
            let count = run.min(self.rows_left(pu, rank));
            if count == 0 || !self.may_read(pu, rank, count) {
                return;
            }
            self.collectors.of[rank].next = block + count;
            self.chunks[chunk].moving += count;
            self.counters.moved += u64::from(count);
            let first = Ppa(self.geometry.chunk_start(chunk).0 + u64::from(block));
            if !self.window.is_on() || !self.gather_held(rank, first, count) {
                self.read_survivors(rank, first, count);
            }
        }
    }

    /// Reads the next block that could not be read with its neighbours. False
    /// where that has to wait.
    #[inline(never)]
    fn read_again(&mut self, pu: usize, rank: usize) -> bool {
        let at = self.collectors.of[rank].again[0];
        let chunk = self.geometry.chunk_index(at);
        let is_valid = self.space.is_valid(at);
        if is_valid && (self.rows_left(pu, rank) == 0 || !self.may_read(pu, rank, 1)) {
            return false;
        }
        self.collectors.of[rank].again.pop_front();
        if is_valid {
            self.read_survivors(rank, at, 1);
        } else {
            self.chunks[chunk].moving -= 1;
            self.try_erase(chunk);
        }
        true
    }

    /// The next chunk that was asked for, and was not collected meanwhile.
    fn take_asked(&mut self, pu: usize, rank: usize) -> Option<usize> {
        while let Some(number) = self.collectors.of[rank].asked.pop_front() {
            let chunk = self.geometry.chunk_of(pu, number);
            self.chunks[chunk].asked = false;
            let failed = self.chunks[chunk].failed;
            if !failed && !self.space.is_closed(chunk) {
                continue;
            }
            if !failed {
                self.space.take(chunk);
            }
            self.collectors.of[rank].begin_asked(chunk, !failed);
            // Its data are to be corrected.
            self.chunks[chunk].copies = UNKNOWN;
            self.chunks[chunk].phase = Phase::Reading;
            self.counters.collections += 1;
            return Some(chunk);
        }
        None
    }

    #[inline(never)]
    fn choose_victim(&mut self, pu: usize, rank: usize) -> Option<usize> {
        if let Some(chunk) = self.take_asked(pu, rank) {
            return Some(chunk);
        }
        let chunk = if self.wants_room(pu, rank) {
            self.space.take_victim(pu, self.collectors.of[rank].rescue)?
        } else if self.collects_idly(pu, rank) {
            self.space.take_idle_victim(pu)?
        } else {
            return None;
        };
        let valid = self.space.valid_blocks(chunk);
        self.collectors.of[rank].begin(chunk, valid, self.geometry.chunk_blocks());
        self.chunks[chunk].phase = Phase::Reading;
        self.counters.collections += 1;
        Some(chunk)
    }

    /// Whether `count` more blocks can be read now: a buffer is free, there is
    /// a place for the survivors, and it is time.
    fn may_read(&self, pu: usize, rank: usize, count: u32) -> bool {
        let c = &self.collectors.of[rank];
        if c.buffers == 0 || self.gathering_room(rank) < c.promised + count {
            return false;
        }
        c.has_credit(count)
            || self.is_urgent(pu, rank)
            || (self.stripe.rows(pu) == 0 && (c.is_asked || self.may_begin(pu, rank)))
    }

    /// Whether collection does not wait for the user, since the user waits for
    /// it.
    #[inline]
    pub(super) fn is_urgent(&self, pu: usize, rank: usize) -> bool {
        !self.has_level(pu, rank) || self.is_starved(pu, rank)
    }

    /// How many more survivors have rows to go to: in the open chunk, and in
    /// the free one that the user leaves. What is read can then always be
    /// programmed, and its victim erased. Where programs failed so often that
    /// there is neither, rows go to other units, as the user's do.
    pub(super) fn rows_left(&self, pu: usize, rank: usize) -> u32 {
        let c = &self.collectors.of[rank];
        let size = self.geometry.chunk_blocks();
        if !self.has_moved_row(rank) {
            return self.geometry.row_blocks();
        }
        let open = c.open.map_or(0, |open| size - open.next);
        let free = if self.space.pus[pu].free() == 0 { 0 } else { size };
        (open + free).saturating_sub(self.gathered(rank) + c.promised)
    }

    /// Whether collection has a row in its own unit.
    pub(super) fn has_moved_row(&self, rank: usize) -> bool {
        let pu = self.stripe.pu(rank);
        self.collectors.of[rank].open.is_some() || self.space.pus[pu].free() > 0
    }

    /// Survivors in rows that have not been sent.
    #[inline]
    pub(super) fn gathered(&self, rank: usize) -> u32 {
        let gathered = self.collectors.of[rank].gathered;
        debug_assert_eq!(gathered, self.count_gathered(rank));
        gathered
    }

    fn count_gathered(&self, rank: usize) -> u32 {
        let filled = |which: u32| {
            let unit = self.units.unit(self.units.collection(rank as u32, which));
            if unit.sent { 0 } else { unit.filled }
        };
        filled(0) + filled(1)
    }

    /// A row of survivors is on its way, or is back and was not programmed.
    #[inline]
    pub(super) fn note_sent(&mut self, unit: u32, sent: bool) {
        let (rank, filled) = (self.units.rank_of(unit), self.units.unit(unit).filled);
        let gathered = &mut self.collectors.of[rank].gathered;
        *gathered = if sent { *gathered - filled } else { *gathered + filled };
    }

    /// With no victim to fill it up and the user out of space, the row being
    /// gathered is sent as it is, so that the chunks its blocks came from can
    /// be erased. A chunk that is being erased is space that comes by itself:
    /// padding would spend as much as it wins, and could go on without end. So it
    /// could where all that was collected since the last one was spent on that.
    fn send_part_row(&mut self, pu: usize, rank: usize) {
        let c = &self.collectors.of[rank];
        let waits =
            c.promised > 0 || c.erasing > 0 || c.busy != [false; 2] || self.gathered(rank) == 0;
        if waits || !self.stripe.is_idle(pu) || self.space.pus[pu].free() > USER_LEAVES {
            return;
        }
        // Nor where the user has space in other units: this one may hold so much
        // that is valid that nothing can be won in it.
        if self.stripe.is_able() {
            return;
        }
        let (level, user) = (self.level(pu, rank), self.counters.user);
        let before = self.collectors.of[rank].padded;
        if before.is_some_and(|before| before.1 == user && before.0 >= level) {
            return;
        }
        self.collectors.of[rank].padded = Some((level, user));
        let which = self.collectors.of[rank].gathering;
        let unit = self.units.collection(rank as u32, which);
        let padding = u64::from(self.units.pad(unit));
        self.collectors.of[rank].busy[which as usize] = true;
        self.collectors.of[rank].gathering ^= 1;
        self.collectors.of[rank].gathered += padding as u32;
        self.counters.padding += padding;
        self.send_gathered(unit);
    }

    /// Free slots in the two collection units.
    #[inline]
    pub(super) fn gathering_room(&self, rank: usize) -> u32 {
        let c = &self.collectors.of[rank];
        let row = self.geometry.row_blocks();
        let unit = self.units.collection(rank as u32, c.gathering);
        let here =
            if c.busy[c.gathering as usize] { 0 } else { row - self.units.unit(unit).filled };
        let other = if c.busy[(c.gathering ^ 1) as usize] { 0 } else { row };
        here + other
    }

    fn read_survivors(&mut self, rank: usize, ppa: Ppa, count: u32) {
        let c = &mut self.collectors.of[rank];
        let which = c.buffers.trailing_zeros();
        c.buffers &= !(1 << which);
        c.promised += count;
        c.credit -= i64::from(count) * CREDIT;
        let number = rank as u32 * READS_PER_PU + which;
        let survivors = &mut self.collectors.survivors[number as usize];
        (survivors.first, survivors.count) = (ppa, count);
        let piece = survivors.buffer.take(count as usize * (self.kept + TAG_BYTES));
        let (cookie, whose) = (Cookie::Survivors(number), self.whose_moved(rank));
        self.send(|| {
            let cmd = Self::run(cookie, VectorOp::Read, ppa, count, Content::Tagged, piece);
            VectorCmd { whose, ..cmd }
        });
    }

    /// Survivors have been read: those still valid go into the row being
    /// gathered.
    #[inline]
    pub(super) fn survivors_done(&mut self, number: u32, done: VectorDone) {
        let rank = (number / READS_PER_PU) as usize;
        let Survivors { first, count, .. } = self.collectors.survivors[number as usize];
        let chunk = self.geometry.chunk_index(first);
        self.collectors.of[rank].promised -= count;
        self.collectors.of[rank].buffers |= 1 << (number % READS_PER_PU);
        // A read that names no block was not tried.
        let is_whole = is_read(done.status) || done.failed != 0;
        let unread = if is_read(done.status) { 0 } else { done.failed };
        if is_whole && unread == 0 && self.is_whole_row(first, count) {
            self.set_row_apart(rank);
        }
        for i in 0..count {
            let at = Ppa(first.0 + u64::from(i));
            let failed = unread != 0 && unread >> i & 1 == 1;
            if failed && self.space.is_valid(at) && is_lost(done.status) {
                self.survivor_failed(rank, at, count);
            } else if !failed && is_whole && self.space.is_valid(at) {
                let bytes = done.buffer.bytes();
                let start = i as usize * self.kept;
                let tag = Tag::load(&bytes[count as usize * self.kept + i as usize * TAG_BYTES..]);
                self.map.prefetch(tag.id);
                self.gather(rank, at, tag, &bytes[start..start + self.kept]);
            } else {
                // Given up meanwhile; or the drive did not even try to read:
                // then it stays where it is, and so does its chunk.
                self.chunks[chunk].moving -= 1;
            }
        }
        self.collectors.survivors[number as usize].buffer.give(done.buffer);
        self.try_erase(chunk);
        self.touch(rank);
    }

    /// A survivor could not be read: by itself, or among `count`, of which it
    /// may not be the culprit.
    #[cold]
    #[inline(never)]
    fn survivor_failed(&mut self, rank: usize, at: Ppa, count: u32) {
        if count > 1 {
            self.collectors.of[rank].again.push_back(at);
        } else {
            self.chunks[self.geometry.chunk_index(at)].moving -= 1;
            self.lose_at(at);
        }
    }

    /// Adds a survivor to the row being gathered, and sends the row when it is
    /// full. Gives its slot, whose bytes are the caller's to write if there are none.
    #[inline]
    pub(super) fn gather(&mut self, rank: usize, at: Ppa, tag: Tag, bytes: &[u8]) -> u32 {
        let c = &mut self.collectors.of[rank];
        if c.busy[c.gathering as usize] {
            c.gathering ^= 1;
            assert!(!c.busy[c.gathering as usize], "room was promised");
        }
        let which = c.gathering;
        let unit = self.units.collection(rank as u32, which);
        let slot = Slot { lba: tag.id, old: Place::flash(at), live: true };
        let slot = self.units.add(unit, slot, tag, |to| {
            if !bytes.is_empty() {
                to.copy_from_slice(bytes);
            }
        });
        c.gathered += 1;
        if self.units.is_full(unit) {
            self.collectors.of[rank].busy[which as usize] = true;
            self.collectors.of[rank].gathering ^= 1;
            self.send_gathered(unit);
        }
        slot
    }

    /// A row of survivors is to be sent.
    #[inline]
    fn send_gathered(&mut self, unit: u32) {
        self.stripe.older.put(|| unit);
        self.facts.news = true;
    }

    /// Makes padding of the survivors of a row that have been given up or
    /// replaced: what is sent holds only copies that count. A survivor that is not where
    /// the map has the block of its tag is lost: a page led another block to it, damaged as
    /// no checksum showed. With that tag a start would take it for the newest copy.
    #[inline]
    pub(super) fn void_stale(&mut self, unit: u32) {
        if is(Mutation::SendStale) {
            return;
        }
        for i in 0..self.geometry.row_blocks() {
            let slot = self.units.slot_number(unit, i);
            let Slot { lba, old, .. } = *self.units.slot(slot);
            // What the map leads to is valid.
            let Some(from) = old.ppa().filter(|_| !self.leads(lba, old)) else { continue };
            let is_valid = self.space.is_valid(from);
            if is_valid && lba < self.map.blocks() && self.oldest(self.map.get(lba)) == old {
                continue;
            }
            if is_valid {
                self.lose_at(from);
            }
            self.void_survivor(slot, from);
        }
    }

    /// Whether the map leads a block to a place, with no newer copy in between.
    #[inline]
    fn leads(&self, lba: u64, to: Place) -> bool {
        lba < self.map.blocks() && self.map.get(lba) == to
    }

    #[inline(never)]
    fn void_survivor(&mut self, slot: u32, from: Ppa) {
        self.units.void(slot);
        let held = self.units.slot_mut(slot);
        (held.lba, held.old) = (PAD, Place::UNMAPPED);
        let chunk = self.geometry.chunk_index(from);
        self.chunks[chunk].moving -= 1;
        self.try_erase(chunk);
    }

    /// Sends a row of survivors to its own parallel unit. False where that has no
    /// chunk for it.
    #[inline]
    pub(super) fn send_moved_row(&mut self, unit: u32) -> bool {
        let rank = self.units.rank_of(unit);
        let Some(open) = self.next_moved_row(rank) else { return false };
        self.begin_moved_row(unit);
        self.program(unit, open);
        // It may have had the last row of its chunk: units are tended next.
        self.facts.touched.set(rank, true);
        true
    }

    /// A row of survivors is about to be sent.
    #[inline]
    pub(super) fn begin_moved_row(&mut self, unit: u32) {
        self.void_stale(unit);
        let moved = self.geometry.row_blocks() - self.units.unit(unit).padding;
        self.counters.gc += u64::from(moved);
    }

    /// The next row for a unit's survivors.
    fn next_moved_row(&mut self, rank: usize) -> Option<OpenChunk> {
        let pu = self.stripe.pu(rank);
        let began = self.collectors.of[rank].open.take();
        let open = match began {
            Some(open) => open,
            None if self.collectors.of[rank].is_cold => {
                self.space.open_worn(pu, self.wear_apart())?
            }
            None => self.space.open(pu)?,
        };
        self.collectors.of[rank].open = self.advance_open(open);
        if began.is_none() {
            self.refresh(pu);
        }
        Some(open)
    }

    /// A moved block is programmed at `at`: the map, or a newer slot, leads to `to`
    /// from now on. False where nothing does, as it counts no more.
    #[inline(always)]
    pub(super) fn settle_moved(&mut self, slot: u32, at: Ppa, to: Place) -> bool {
        let held = *self.units.slot(slot);
        if held.lba == PAD {
            return false;
        }
        let from = held.old.ppa().expect("a survivor comes from flash");
        let chunk = self.geometry.chunk_index(from);
        self.chunks[chunk].moving -= 1;
        if !self.space.is_valid(from) {
            self.try_erase(chunk);
            return false;
        }
        if self.map.get(held.lba) == held.old {
            self.map.set(held.lba, to);
        } else {
            let is_linked = self.relink(held.lba, held.old, to);
            assert!(is_linked, "it was in its block's chain when it was sent");
        }
        self.space.set_valid(at);
        self.invalidate(from);
        true
    }

    /// A row of survivors can be gathered again.
    #[inline]
    pub(super) fn free_moved(&mut self, unit: u32) {
        let rank = self.units.rank_of(unit);
        self.note_sent(unit, true);
        let which = unit - self.units.collection(rank as u32, 0);
        let held = self.units.unit_mut(unit);
        (held.filled, held.padding, held.failed) = (0, 0, false);
        self.collectors.of[rank].busy[which as usize] = false;
    }

    /// Erases a victim when nothing of it is needed any more.
    #[inline]
    pub(super) fn try_erase(&mut self, chunk: usize) {
        let stage = self.chunks[chunk];
        if stage.phase != Phase::Draining || stage.moving > 0 || self.space.valid_blocks(chunk) > 0
        {
            return;
        }
        // Older copies of what was given up may be elsewhere: only the record
        // tells that they do not count.
        if stage.given_up > self.saved.log.durable && !is(Mutation::EraseBeforeRecord) {
            if !self.saved.log.held.contains(&chunk) {
                self.saved.log.held.push(chunk);
            }
            self.want_log();
            return;
        }
        self.chunks[chunk].phase = Phase::Erasing;
        if self.window.is_on() {
            self.release_chunk(chunk);
        }
        if !stage.failed {
            let rank = self.rank_of_chunk(chunk);
            self.collectors.of[rank].erasing += 1;
        }
        self.erase(chunk);
    }

    /// Erases a chunk, or retires it, when nobody reads it any more.
    #[inline]
    pub(super) fn erase(&mut self, chunk: usize) {
        if self.readers.hold(chunk) {
            return;
        }
        if self.wire.out.len() >= BACKLOG {
            return self.wire.erases.push(chunk as u32);
        }
        if self.chunks[chunk].failed {
            return self.retire(chunk);
        }
        let ppa = self.geometry.chunk_start(chunk);
        let cookie = Cookie::Reset(chunk as u32);
        self.send_write(|| {
            Self::run(cookie, VectorOp::Reset, ppa, 1, Content::Data, Buffer::empty())
        });
    }

    /// Goes on with the erases that waited for others to go out.
    #[cold]
    pub(super) fn erase_waiting(&mut self) {
        for chunk in std::mem::take(&mut self.wire.erases) {
            self.erase(chunk as usize);
        }
    }

    /// A chunk is erased, or worn out and lost.
    #[cold]
    pub(super) fn reset_done(&mut self, chunk: usize, status: Status) {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        let rank = self.stripe.rank(pu);
        self.chunks[chunk] = Stage { asked: self.chunks[chunk].asked, ..Stage::default() };
        if self.saved.meta.chunks.remove(&chunk).is_some() {
            self.space.keep_back(pu);
        } else {
            self.collectors.of[rank].draining -= 1;
            self.collectors.of[rank].erasing -= 1;
        }
        self.space.note_wear(chunk, self.device.chunk(chunk).wear);
        self.collectors.holders.remove(&chunk);
        if status.is_ok() {
            self.counters.erases += 1;
            self.space.give(chunk);
        } else {
            self.lose(chunk);
        }
        if self.space.pus[pu].free() > 0 {
            self.collectors.of[rank].rescue = false;
        }
        self.level_wear(pu, rank);
        self.touch(rank);
    }

    /// Whether nothing is on its way to flash, and nothing being moved or
    /// erased.
    pub(super) fn is_at_rest(&self) -> bool {
        self.units.is_at_rest()
            && self.units.filling.iter().all(Option::is_none)
            && self.stripe.waiting() == 0
            && self.collectors.of.iter().all(Collector::is_at_rest)
            && !self.chunks.iter().any(Stage::is_erasing)
            && !self.saved.meta.chunks.values().any(|own| own.erasing)
    }
}
