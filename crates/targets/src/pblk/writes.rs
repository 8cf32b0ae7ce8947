//! The way into the buffer: writes, trims, and parts of blocks whose old bytes have
//! arrived.
//!
//! Guarantees: what a request covers goes to the buffer block by block, in the
//! order in which requests came; a part of a block goes around its newest bytes.
//! A request that finds no room waits, and those behind it.

use device::OpenChannel;
use flash::Tag;
use port::{BLOCK_BYTES, BlockOp, Status, Time};

use super::map::Place;
use super::mutation::{Mutation, is};
use super::requests::{Partial, Request};
use super::units::Slot;
use super::{PARTIALS_OF_READS, Pblk};

impl<D: OpenChannel> Pblk<D> {
    /// Puts into the buffer what waits for it, as far as there is room. On a
    /// drive that is read-only it is given up.
    #[inline]
    pub(super) fn stage(&mut self, now: Time) {
        if self.host.waiting.is_empty() && self.host.merges.is_empty() {
            return;
        }
        if self.facts.read_only {
            self.give_up_waiting(now);
        } else if !self.waits_for_unit() {
            self.stage_all(now);
        }
    }

    /// Whether there is no unit to gather in, and the first that waits is a
    /// whole block that needs one: the usual case of a drive that is busy.
    #[inline]
    fn waits_for_unit(&self) -> bool {
        let has_free = self.units.has_free();
        let Some(&slot) =
            self.host.waiting.front().filter(|_| !has_free && self.host.merges.is_empty())
        else {
            return false;
        };
        let request = &self.host.requests[slot];
        if self.units.filling[request.stream].is_some() {
            return false;
        }
        let &Request { op, offset, len, taken, .. } = request;
        let is_whole = (offset + taken) % BLOCK_BYTES == 0 && len - taken >= BLOCK_BYTES;
        op == BlockOp::Write && is_whole
    }

    fn stage_all(&mut self, now: Time) {
        while let Some(&number) = self.host.merges.front() {
            if !self.merge(now, number) {
                return;
            }
            self.host.merges.pop_front();
        }
        while let Some(&slot) = self.host.waiting.front() {
            let is_taken = match self.host.requests[slot].is_block_of_write() {
                true => self.stage_whole(now, slot),
                false => self.stage_request(now, slot),
            };
            if !is_taken {
                return;
            }
            self.host.waiting.pop();
        }
    }

    /// Takes a write of one whole block, the usual case. False when the buffer is
    /// full.
    #[inline]
    fn stage_whole(&mut self, now: Time, slot: u32) -> bool {
        let Request { offset, stream, .. } = self.host.requests[slot];
        let Some(held) = self.slot_for(offset / BLOCK_BYTES, stream) else { return false };
        let request = &mut self.host.requests[slot];
        request.taken = BLOCK_BYTES;
        if !request.data.is_empty() {
            self.units.data_mut(held).copy_from_slice(request.data.bytes());
        }
        self.send_full_unit(stream);
        self.write_taken(now, slot);
        true
    }

    /// Takes the blocks of a write, zeroing or trim, one by one. False when
    /// the buffer is full, or as many parts of blocks are being read as may be.
    #[inline]
    fn stage_request(&mut self, now: Time, slot: u32) -> bool {
        loop {
            let request = &self.host.requests[slot];
            let (op, at) = (request.op, request.taken);
            if at == request.len {
                if request.left == 0 {
                    self.write_taken(now, slot);
                }
                return true;
            }
            let (lba, from, part) = Self::part(request, at);
            let tears = is(Mutation::TearZeroes) && op == BlockOp::WriteZeroes;
            let part = if tears && self.kept > 512 { part.min(512) } else { part };
            let whole = part as u64 == BLOCK_BYTES;
            let taken = match (op, whole) {
                (BlockOp::Trim | BlockOp::WriteZeroes, true) => self.unmap(lba),
                (BlockOp::Trim, false) => true,
                (_, true) => self.stage_block(slot, lba, at),
                (_, false) => self.stage_part(now, slot, (lba, from, part), at),
            };
            if !taken {
                return false;
            }
            self.host.requests[slot].taken += part as u64;
        }
    }

    /// All parts of a write are in the buffer.
    pub(super) fn write_taken(&mut self, now: Time, slot: u32) {
        // One that was given up promises nothing.
        if self.host.requests[slot].fua && self.host.requests[slot].status.is_ok() {
            self.flush(now, slot);
        } else {
            self.complete(now, slot);
        }
    }

    #[inline]
    fn stage_block(&mut self, slot: u32, lba: u64, at: u64) -> bool {
        let stream = self.host.requests[slot].stream;
        let Some(held) = self.slot_for(lba, stream) else { return false };
        let start = (at * self.kept as u64 / BLOCK_BYTES) as usize;
        let bytes = &self.host.requests[slot].data.bytes()[start..start + self.kept];
        self.units.data_mut(held).copy_from_slice(bytes);
        self.send_full_unit(stream);
        true
    }

    /// A slot in the unit that a stream gathers for a new copy of `lba`; its bytes
    /// are the caller's to write, and then [`Pblk::send_full_unit`]. A copy that is
    /// being gathered, in whatever stream, is overwritten where it is: so of a block
    /// there is one at most that has no number yet, and numbers are in the order of
    /// writes.
    #[inline]
    pub(super) fn slot_for(&mut self, lba: u64, stream: usize) -> Option<u32> {
        let place = self.map.get(lba);
        if let Some(held) = place.slot()
            && self.units.is_gathering(self.units.unit_of(held))
            && !(is(Mutation::GatherTwice) && self.is_of_other(held, stream))
        {
            self.counters.absorbed += 1;
            return Some(held);
        }
        let unit = match self.units.filling[stream] {
            Some(unit) => unit,
            None => self.units.begin(stream)?,
        };
        self.units.filling[stream] = Some(unit);
        let tag = Tag { id: lba, seq: 0 };
        let held = self.units.add(unit, Slot { lba, old: place, live: true }, tag, |_| {});
        self.map.set(lba, Place::buffer(held));
        self.counters.user += 1;
        Some(held)
    }

    /// Whether a slot is in a unit that another stream gathers.
    fn is_of_other(&self, slot: u32, stream: usize) -> bool {
        self.units.filling[stream] != Some(self.units.unit_of(slot))
    }

    #[inline]
    pub(super) fn send_full_unit(&mut self, stream: usize) {
        if let Some(unit) = self.units.filling[stream]
            && self.units.is_full(unit)
        {
            self.units.filling[stream] = None;
            self.end_gathering(unit);
        }
    }

    /// A unit takes no more blocks. It is sent after all that were before it.
    #[inline]
    fn end_gathering(&mut self, unit: u32) {
        self.units.number(unit);
        self.stripe.ready.put(|| unit);
        self.facts.news = true;
    }

    /// Takes a part of a block: around bytes that are in the buffer or zero at
    /// once, around bytes in flash when they have been read. False when it has
    /// to wait.
    #[inline(never)]
    fn stage_part(
        &mut self,
        now: Time,
        slot: u32,
        (lba, from, len): (u64, usize, usize),
        at: u64,
    ) -> bool {
        let place = self.map.get(lba);
        let source = at as usize;
        let partial =
            Partial { request: slot, lba, from, len, source, place, ..Partial::default() };
        if place.ppa().is_some() {
            if self.host.partials.room() <= PARTIALS_OF_READS {
                return false;
            }
            if self.told.is_some() {
                self.wait_story(slot, now);
            }
            self.host.requests[slot].left += 1;
            let number = self.host.partials.take(partial);
            self.fetch(number);
            return true;
        }
        if place == Place::LOST {
            // The bytes around it cannot be had.
            let status = &mut self.host.requests[slot].status;
            *status = status.and(Status::UNRECOVERED_READ);
            return true;
        }
        self.write_part(&partial)
    }

    /// Writes a part of a block into a new copy of it, whose other bytes come
    /// from the buffer, from the partial's scratch block, or are zero.
    fn write_part(&mut self, partial: &Partial) -> bool {
        let place = self.map.get(partial.lba);
        let stream = self.host.requests[partial.request].stream;
        let Some(held) = self.slot_for(partial.lba, stream) else { return false };
        match place.slot() {
            Some(old) if old == held => {}
            Some(old) => self.units.copy(old, held),
            // It was given up. Of a lost one no part is written.
            None if place.ppa().is_none() => self.units.data_mut(held).fill(0),
            None => self.units.data_mut(held).copy_from_slice(partial.scratch.bytes()),
        }
        let range = partial.from..partial.from + partial.len;
        let to = &mut self.units.data_mut(held)[range];
        let request = &self.host.requests[partial.request];
        if request.op == BlockOp::Write {
            let end = partial.source + partial.len;
            to.copy_from_slice(&request.data.bytes()[partial.source..end]);
        } else {
            to.fill(0);
        }
        self.send_full_unit(stream);
        true
    }

    /// The old bytes have arrived: writes around them, unless the block has
    /// moved in flash meanwhile; then they are read again. Bytes of a block that
    /// was lost meanwhile are as good as not read.
    #[inline(never)]
    fn merge(&mut self, now: Time, number: u32) -> bool {
        let place = self.map.get(self.host.partials[number].lba);
        if place == Place::LOST {
            let request = &mut self.host.requests[self.host.partials[number].request];
            request.status = request.status.and(Status::UNRECOVERED_READ);
            self.end_partial(now, number);
            return true;
        }
        if self.has_moved(&self.host.partials[number], place) {
            self.host.partials[number].place = place;
            self.fetch(number);
            return true;
        }
        let partial = std::mem::take(&mut self.host.partials[number]);
        let written = self.write_part(&partial);
        self.host.partials[number] = partial;
        if written {
            self.end_partial(now, number);
        }
        written
    }

    /// Whether a block is elsewhere in flash than where a partial read it. It is
    /// so too where the place is the same and its chunk was erased meanwhile: the
    /// read was late, and a newer copy came to lie there.
    fn has_moved(&self, partial: &Partial, place: Place) -> bool {
        let wear = |ppa| self.device.chunk(self.geometry.chunk_index(ppa)).wear;
        place.ppa().is_some_and(|ppa| place != partial.place || wear(ppa) != partial.wear)
    }

    /// Gives a block up: it reads as zeros. False when the log has no room to
    /// record it.
    #[inline(never)]
    fn unmap(&mut self, lba: u64) -> bool {
        let place = self.map.get(lba);
        if place == Place::UNMAPPED {
            return true;
        }
        if !self.saved.log.has_room() {
            self.want_log();
            return false;
        }
        let record = self.give_up(lba, false);
        self.map.set(lba, Place::UNMAPPED);
        self.void_unsent(place);
        if let Some(ppa) = self.oldest(place).ppa() {
            let chunk = self.geometry.chunk_index(ppa);
            self.chunks[chunk].given_up = record;
        }
        self.drop_copies(place);
        true
    }

    /// The durable one of a block's copies.
    pub(super) fn oldest(&self, mut place: Place) -> Place {
        while let Some(slot) = place.slot() {
            place = self.units.slot(slot).old;
        }
        place
    }

    /// Makes padding of a block's copies that have not been sent.
    fn void_unsent(&mut self, mut place: Place) {
        while let Some(slot) = place.slot() {
            place = self.units.slot(slot).old;
            let unit = self.units.unit_of(slot);
            let waits = !self.units.unit(unit).sent && !self.window.holds(unit);
            if waits && !is(Mutation::SendStale) {
                self.units.void(slot);
                self.flush_records();
            }
        }
    }

    /// Sends the rows being gathered, full or not.
    pub(super) fn send_part_units(&mut self) {
        for unit in std::mem::take(&mut self.units.filling).into_iter().flatten() {
            self.counters.padding += u64::from(self.units.pad(unit));
            self.end_gathering(unit);
        }
    }

    /// Writes that wait for the buffer of a drive that is read-only.
    #[cold]
    pub(super) fn give_up_waiting(&mut self, now: Time) {
        while let Some(number) = self.host.merges.pop_front() {
            let slot = self.host.partials[number].request;
            self.host.requests[slot].status = Status::READ_ONLY;
            self.end_partial(now, number);
        }
        while let Some(slot) = self.host.waiting.pop() {
            let request = &mut self.host.requests[slot];
            request.status = Status::READ_ONLY;
            request.taken = request.len;
            if request.left == 0 {
                self.write_taken(now, slot);
            }
        }
    }
}
