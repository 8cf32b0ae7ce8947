//! The user's side: reads, writes, trims, flushes, and parts of blocks.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::{Ppa, Tag};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Pieces, Status, Time};

use super::failures::is_read;
use super::map::Place;
use super::mutation::{Mutation, is};
use super::units::Slot;
use super::{BACKLOG, Cookie, DEPTH, PARTIALS_OF_READS, Pblk};

/// A request at work.
#[derive(Debug)]
pub(super) struct Request {
    id: u64,
    op: BlockOp,
    fua: bool,
    offset: u64,
    len: u64,
    /// The buffer of a read that goes in pieces.
    pieces: Pieces,
    /// The buffer of a write, or of a read that was done in one.
    data: Buffer,
    /// Parts not done yet.
    left: u32,
    /// Bytes of a write that are in the buffer or on their way to it.
    taken: u64,
    status: Status,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            id: 0,
            op: BlockOp::Flush,
            fua: false,
            offset: 0,
            len: 0,
            pieces: Pieces::default(),
            data: Buffer::empty(),
            left: 0,
            taken: 0,
            status: Status::SUCCESS,
        }
    }
}

/// A flush, or a write that ends with one, that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flush {
    /// User rows up to this number must be programmed.
    seq: u64,
    /// Records up to this number must be.
    record: u64,
    request: u32,
}

/// A part of a block whose old bytes are needed: to be read, or to be written
/// around.
#[derive(Debug)]
pub(super) struct Partial {
    request: u32,
    lba: u64,
    /// First byte and length in the block.
    from: usize,
    len: usize,
    /// Where a write's bytes begin in its request's buffer.
    source: usize,
    /// A read's piece of its request's buffer.
    piece: Buffer,
    /// The block's old bytes.
    scratch: Buffer,
    /// Where they were read.
    place: Place,
    /// How often its chunk had been erased then.
    wear: u32,
}

impl Default for Partial {
    fn default() -> Partial {
        Partial {
            request: 0,
            lba: 0,
            from: 0,
            len: 0,
            source: 0,
            piece: Buffer::empty(),
            scratch: Buffer::empty(),
            place: Place::UNMAPPED,
            wear: 0,
        }
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Whether a request can be let in now. A read takes its partials at once,
    /// two at most; a write takes one whenever it comes to a part of a block, and
    /// waits where there are only those left that are for reads.
    #[inline]
    pub(super) fn has_room(&self, req: &BlockReq) -> bool {
        let whole = (req.offset | req.len).is_multiple_of(BLOCK_BYTES);
        self.requests.live() + self.ready.len() < DEPTH
            && self.out.len() < BACKLOG
            && (whole || self.has_partials(req))
    }

    /// Whether a request for parts of blocks has the partials that it needs.
    #[cold]
    fn has_partials(&self, req: &BlockReq) -> bool {
        req.op != BlockOp::Read
            || self.partials.room() >= PARTIALS_OF_READS
            || self.kept as u64 != BLOCK_BYTES
    }

    /// Lets a request in. One whole block is the usual case: it is told by a
    /// few comparisons, and its fields stay in registers.
    #[inline]
    pub(super) fn accept(&mut self, now: Time, req: BlockReq) {
        let BlockReq { id, op, fua, offset, len, buffer } = req;
        let is_block = len == BLOCK_BYTES
            && offset.is_multiple_of(BLOCK_BYTES)
            && offset < self.shape.bytes
            && buffer.len() == self.kept;
        if is_block && op == BlockOp::Read {
            self.read_block(now, id, offset, buffer);
        } else if is_block && op == BlockOp::Write && !fua && self.write_block(offset, &buffer) {
            self.ready.put(|| BlockDone { id, op, status: Status::SUCCESS, at: now, buffer });
        } else {
            self.accept_any(now, BlockReq { id, op, fua, offset, len, buffer });
        }
    }

    /// Reads one whole block.
    #[inline]
    fn read_block(&mut self, now: Time, id: u64, offset: u64, mut buffer: Buffer) {
        let (op, len) = (BlockOp::Read, BLOCK_BYTES);
        let place = self.map.get(offset / BLOCK_BYTES);
        let Some(ppa) = place.ppa() else {
            let mut status = Status::SUCCESS;
            if place == Place::LOST {
                status = Status::UNRECOVERED_READ;
            } else {
                self.copy_held(place, buffer.bytes_mut());
            }
            self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
            return;
        };
        let slot = self.requests.take_as_is();
        let request = &mut self.requests[slot];
        (request.id, request.op, request.fua) = (id, op, false);
        (request.offset, request.len, request.taken) = (offset, len, 0);
        (request.left, request.status) = (1, Status::SUCCESS);
        self.send_read(|chunk| Cookie::Read(slot, chunk), ppa, 1, buffer);
    }

    /// Copies a block that is in the buffer, or nowhere.
    fn copy_held(&mut self, place: Place, to: &mut [u8]) {
        self.counters.nothing += u64::from(place.slot().is_none());
        if to.is_empty() {
            return;
        }
        match place.slot() {
            Some(held) => to.copy_from_slice(self.units.data(held)),
            None => to.fill(0),
        }
    }

    /// Takes one whole block of a write, if there is room and nothing waits
    /// for it.
    #[inline]
    fn write_block(&mut self, offset: u64, buffer: &Buffer) -> bool {
        if self.read_only || !self.waiting.is_empty() || !self.merges.is_empty() {
            return false;
        }
        let Some(held) = self.slot_for(offset / BLOCK_BYTES) else { return false };
        if !buffer.is_empty() {
            self.units.data_mut(held).copy_from_slice(buffer.bytes());
        }
        self.send_full_unit();
        true
    }

    /// Lets any request in.
    fn accept_any(&mut self, now: Time, req: BlockReq) {
        let mut status = self.shape.check(&req);
        if self.read_only && !matches!(req.op, BlockOp::Read | BlockOp::Flush) {
            status = status.and(Status::READ_ONLY);
        }
        let BlockReq { id, op, fua, offset, len, buffer } = req;
        if !status.is_ok() {
            self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
            return;
        }
        let slot = self.requests.take_as_is();
        let request = &mut self.requests[slot];
        (request.id, request.op, request.fua) = (id, op, fua);
        (request.offset, request.len, request.taken) = (offset, len, 0);
        (request.left, request.status) = (0, Status::SUCCESS);
        if op == BlockOp::Read {
            request.pieces = Pieces::new(buffer);
            self.read(now, slot);
            return;
        }
        request.data = buffer;
        if op == BlockOp::Flush {
            self.flush(now, slot);
        } else {
            self.waiting.push_back(slot);
            self.stage(now);
        }
    }

    /// Ends a request.
    #[inline]
    fn complete(&mut self, now: Time, slot: u32) {
        self.requests.give(slot);
        let request = &mut self.requests[slot];
        self.ready.put(|| BlockDone {
            id: request.id,
            op: request.op,
            status: request.status,
            at: now,
            buffer: std::mem::take(&mut request.data),
        });
    }

    /// Ends a read whose pieces are all back.
    fn complete_pieces(&mut self, now: Time, slot: u32) {
        let request = &mut self.requests[slot];
        request.data = std::mem::take(&mut request.pieces).whole();
        self.complete(now, slot);
    }

    /// The block at `at` bytes into a request, and the part of it that the
    /// request covers: block, first byte, length.
    #[inline]
    fn part(request: &Request, at: u64) -> (u64, usize, usize) {
        let position = request.offset + at;
        let from = position % BLOCK_BYTES;
        let len = (BLOCK_BYTES - from).min(request.len - at);
        (position / BLOCK_BYTES, from as usize, len as usize)
    }

    #[inline(never)]
    fn read(&mut self, now: Time, slot: u32) {
        let len = self.requests[slot].len;
        let mut at = 0;
        while at < len {
            let (lba, from, part) = Self::part(&self.requests[slot], at);
            let place = self.map.get(lba);
            if part as u64 != BLOCK_BYTES {
                self.read_part(slot, lba, from, part, place);
                at += part as u64;
            } else if let Some(ppa) = place.ppa() {
                let whole_blocks = (len - at) / BLOCK_BYTES;
                let count = self.neighbours(lba, ppa, whole_blocks);
                let request = &mut self.requests[slot];
                let piece = request.pieces.take(count as usize * self.kept);
                request.left += 1;
                self.send_read(|chunk| Cookie::Read(slot, chunk), ppa, count, piece);
                at += u64::from(count) * BLOCK_BYTES;
            } else {
                self.read_held(slot, place, 0, self.kept);
                at += BLOCK_BYTES;
            }
        }
        if self.requests[slot].left == 0 {
            self.complete_pieces(now, slot);
        }
    }

    /// How many blocks from `lba` on lie side by side in the row of `ppa`.
    #[inline]
    fn neighbours(&self, lba: u64, ppa: Ppa, most: u64) -> u32 {
        let row = u64::from(self.geometry.row_blocks());
        let most = most.min(row - (ppa.0 & (row - 1))).min(device::MAX_ADDRESSES as u64);
        let mut count = 1;
        while count < most && self.map.get(lba + count) == Place::flash(Ppa(ppa.0 + count)) {
            count += 1;
        }
        count as u32
    }

    /// Reads what is in the buffer, nowhere, or lost.
    fn read_held(&mut self, slot: u32, place: Place, from: usize, len: usize) {
        if place == Place::LOST {
            let status = &mut self.requests[slot].status;
            *status = status.and(Status::UNRECOVERED_READ);
        }
        self.counters.nothing += u64::from(place.slot().is_none() && place != Place::LOST);
        let pieces = &mut self.requests[slot].pieces;
        let mut piece = pieces.take(len);
        if len > 0 {
            match place.slot() {
                Some(held) => {
                    piece.bytes_mut().copy_from_slice(&self.units.data(held)[from..from + len]);
                }
                None => piece.bytes_mut().fill(0),
            }
        }
        pieces.give(piece);
    }

    fn read_part(&mut self, slot: u32, lba: u64, from: usize, len: usize, place: Place) {
        if place.ppa().is_none() {
            self.read_held(slot, place, from, len);
            return;
        }
        let request = &mut self.requests[slot];
        let piece = request.pieces.take(len);
        request.left += 1;
        let partial = Partial { request: slot, lba, from, len, piece, place, ..Partial::default() };
        let number = self.partials.take(partial);
        self.fetch(number);
    }

    /// Reads the old bytes of a partial's block.
    fn fetch(&mut self, number: u32) {
        let partial = &mut self.partials[number];
        let ppa = partial.place.ppa().expect("only flash is fetched");
        partial.wear = self.device.chunk(self.geometry.chunk_index(ppa)).wear;
        let scratch = match std::mem::take(&mut partial.scratch) {
            held if !held.is_empty() => held,
            _ => self.scratch.pop().expect("each partial has a scratch block"),
        };
        self.send_read(|chunk| Cookie::Partial(number, chunk), ppa, 1, scratch);
    }

    /// Sends a read of neighbours in a row, for a user: until it has ended their
    /// chunk is not erased.
    #[inline(always)]
    fn send_read(
        &mut self,
        cookie: impl FnOnce(usize) -> Cookie,
        ppa: Ppa,
        count: u32,
        buffer: Buffer,
    ) {
        let chunk = self.geometry.chunk_index(ppa);
        self.readers.begin(chunk);
        let cookie = cookie(chunk);
        self.send(|| Self::run(cookie, VectorOp::Read, ppa, count, Content::Data, buffer));
    }

    /// Such a read has ended.
    #[inline(always)]
    pub(super) fn end_read(&mut self, chunk: usize) {
        if self.readers.end(chunk) {
            self.erase(chunk);
        }
    }

    #[inline(always)]
    pub(super) fn read_done(&mut self, now: Time, slot: u32, status: Status, buffer: Buffer) {
        let request = &mut self.requests[slot];
        request.status = request.status.and(status);
        request.left -= 1;
        if request.len == BLOCK_BYTES && request.offset.is_multiple_of(BLOCK_BYTES) {
            request.data = buffer;
            self.complete(now, slot);
            return;
        }
        request.pieces.give(buffer);
        if request.left == 0 {
            self.complete_pieces(now, slot);
        }
    }

    #[cold]
    pub(super) fn partial_done(&mut self, now: Time, number: u32, done: VectorDone) {
        // A write may wait for these bytes, or for what this one had.
        self.news = true;
        let partial = &mut self.partials[number];
        partial.scratch = done.buffer;
        let slot = partial.request;
        let is_read = is_read(done.status);
        if is_read && self.requests[slot].op != BlockOp::Read {
            self.merges.push_back(number);
            return;
        }
        let mut piece = std::mem::take(&mut partial.piece);
        if is_read {
            let range = partial.from..partial.from + partial.len;
            piece.bytes_mut().copy_from_slice(&partial.scratch.bytes()[range]);
        }
        let request = &mut self.requests[slot];
        if request.op == BlockOp::Read {
            request.pieces.give(piece);
        }
        request.status = request.status.and(done.status);
        self.end_partial(now, number);
    }

    fn end_partial(&mut self, now: Time, number: u32) {
        let partial = std::mem::take(&mut self.partials[number]);
        self.partials.give(number);
        self.scratch.push(partial.scratch);
        let request = &mut self.requests[partial.request];
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        if request.op == BlockOp::Read {
            self.complete_pieces(now, partial.request);
        } else if request.taken == request.len {
            self.write_taken(now, partial.request);
        }
    }

    /// Puts into the buffer what waits for it, as far as there is room. On a
    /// drive that is read-only it is given up.
    #[inline]
    pub(super) fn stage(&mut self, now: Time) {
        if self.waiting.is_empty() && self.merges.is_empty() {
            return;
        }
        if self.read_only {
            self.give_up_waiting(now);
        } else if !self.waits_for_unit() {
            self.stage_all(now);
        }
    }

    /// Whether there is no unit to gather in, and the first that waits is a
    /// whole block that needs one: the usual case of a drive that is busy.
    #[inline]
    fn waits_for_unit(&self) -> bool {
        let is_full = self.filling.is_none() && !self.units.has_free();
        let Some(&slot) = self.waiting.front().filter(|_| is_full && self.merges.is_empty()) else {
            return false;
        };
        let Request { op, offset, len, taken, .. } = self.requests[slot];
        let is_whole = (offset + taken) % BLOCK_BYTES == 0 && len - taken >= BLOCK_BYTES;
        op == BlockOp::Write && is_whole
    }

    fn stage_all(&mut self, now: Time) {
        while let Some(&number) = self.merges.front() {
            if !self.merge(now, number) {
                return;
            }
            self.merges.pop_front();
        }
        while let Some(&slot) = self.waiting.front() {
            if !self.stage_request(now, slot) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Takes the blocks of a write, zeroing or trim, one by one. False when
    /// the buffer is full, or as many parts of blocks are being read as may be.
    #[inline]
    fn stage_request(&mut self, now: Time, slot: u32) -> bool {
        loop {
            let request = &self.requests[slot];
            let (op, at) = (request.op, request.taken);
            if at == request.len {
                if request.left == 0 {
                    self.write_taken(now, slot);
                }
                return true;
            }
            let (lba, from, part) = Self::part(request, at);
            let whole = part as u64 == BLOCK_BYTES;
            let taken = match (op, whole) {
                (BlockOp::Trim | BlockOp::WriteZeroes, true) => self.unmap(lba),
                (BlockOp::Trim, false) => true,
                (_, true) => self.stage_block(slot, lba, at),
                (_, false) => self.stage_part(slot, lba, from, part, at),
            };
            if !taken {
                return false;
            }
            self.requests[slot].taken += part as u64;
        }
    }

    /// All parts of a write are in the buffer.
    fn write_taken(&mut self, now: Time, slot: u32) {
        if self.requests[slot].fua {
            self.flush(now, slot);
        } else {
            self.complete(now, slot);
        }
    }

    #[inline]
    fn stage_block(&mut self, slot: u32, lba: u64, at: u64) -> bool {
        let Some(held) = self.slot_for(lba) else { return false };
        let start = (at * self.kept as u64 / BLOCK_BYTES) as usize;
        let bytes = &self.requests[slot].data.bytes()[start..start + self.kept];
        self.units.data_mut(held).copy_from_slice(bytes);
        self.send_full_unit();
        true
    }

    /// A slot in the unit being gathered for a new copy of `lba`; its bytes
    /// are the caller's to write, and then [`Pblk::send_full_unit`].
    #[inline]
    fn slot_for(&mut self, lba: u64) -> Option<u32> {
        let place = self.map.get(lba);
        if let Some(held) = place.slot()
            && self.filling == Some(self.units.unit_of(held))
        {
            self.counters.absorbed += 1;
            return Some(held);
        }
        let unit = match self.filling {
            Some(unit) => unit,
            None => self.units.begin()?,
        };
        self.filling = Some(unit);
        let tag = Tag { id: lba, seq: self.units.unit(unit).seq };
        let held = self.units.add(unit, Slot { lba, old: place, live: true }, tag, |_| {});
        self.map.set(lba, Place::buffer(held));
        self.counters.user += 1;
        Some(held)
    }

    #[inline]
    fn send_full_unit(&mut self) {
        if let Some(unit) = self.filling
            && self.units.is_full(unit)
        {
            self.filling = None;
            self.stripe.ready.push_back(unit);
            self.news = true;
        }
    }

    /// Takes a part of a block: around bytes that are in the buffer or zero at
    /// once, around bytes in flash when they have been read. False when it has
    /// to wait.
    #[inline(never)]
    fn stage_part(&mut self, slot: u32, lba: u64, from: usize, len: usize, at: u64) -> bool {
        let place = self.map.get(lba);
        let source = at as usize;
        let partial =
            Partial { request: slot, lba, from, len, source, place, ..Partial::default() };
        if place.ppa().is_some() {
            if self.partials.room() <= PARTIALS_OF_READS {
                return false;
            }
            self.requests[slot].left += 1;
            let number = self.partials.take(partial);
            self.fetch(number);
            return true;
        }
        if place == Place::LOST {
            // The bytes around it cannot be had.
            let status = &mut self.requests[slot].status;
            *status = status.and(Status::UNRECOVERED_READ);
            return true;
        }
        self.write_part(&partial)
    }

    /// Writes a part of a block into a new copy of it, whose other bytes come
    /// from the buffer, from the partial's scratch block, or are zero.
    fn write_part(&mut self, partial: &Partial) -> bool {
        let place = self.map.get(partial.lba);
        let Some(held) = self.slot_for(partial.lba) else { return false };
        match place.slot() {
            Some(old) if old == held => {}
            Some(old) => self.units.copy(old, held),
            // It was given up. Of a lost one no part is written.
            None if place.ppa().is_none() => self.units.data_mut(held).fill(0),
            None => self.units.data_mut(held).copy_from_slice(partial.scratch.bytes()),
        }
        let range = partial.from..partial.from + partial.len;
        let to = &mut self.units.data_mut(held)[range];
        let request = &self.requests[partial.request];
        if request.op == BlockOp::Write {
            let end = partial.source + partial.len;
            to.copy_from_slice(&request.data.bytes()[partial.source..end]);
        } else {
            to.fill(0);
        }
        self.send_full_unit();
        true
    }

    /// The old bytes have arrived: writes around them, unless the block has
    /// moved in flash meanwhile; then they are read again. Bytes of a block that
    /// was lost meanwhile are as good as not read.
    #[inline(never)]
    fn merge(&mut self, now: Time, number: u32) -> bool {
        let place = self.map.get(self.partials[number].lba);
        if place == Place::LOST {
            let request = &mut self.requests[self.partials[number].request];
            request.status = request.status.and(Status::UNRECOVERED_READ);
            self.end_partial(now, number);
            return true;
        }
        if self.has_moved(&self.partials[number], place) {
            self.partials[number].place = place;
            self.fetch(number);
            return true;
        }
        let partial = std::mem::take(&mut self.partials[number]);
        let written = self.write_part(&partial);
        self.partials[number] = partial;
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
        if !self.log.has_room() {
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
            if !self.units.unit(self.units.unit_of(slot)).sent && !is(Mutation::SendStale) {
                self.units.void(slot);
                self.flush_records();
            }
        }
    }

    /// A copy that a flush waits for was given up and will not be on flash: in
    /// its place the flush waits for the record that says so.
    pub(super) fn flush_records(&mut self) {
        let last = self.log.last;
        self.flushes.iter_mut().skip(self.syncing).for_each(|flush| flush.record = last);
        if self.flushes.len() > self.syncing && last > self.log.durable {
            self.want_log();
        }
    }

    /// Sends the row being gathered, full or not.
    pub(super) fn send_part_unit(&mut self) {
        if let Some(unit) = self.filling.take() {
            self.counters.padding += u64::from(self.units.pad(unit));
            self.stripe.ready.push_back(unit);
            self.news = true;
        }
    }

    /// Completes a request when all that was in the buffer before it is in
    /// flash, and what was given up is recorded there.
    fn flush(&mut self, now: Time, slot: u32) {
        if self.dead {
            self.requests[slot].status = self.requests[slot].status.and(Status::WRITE_FAULT);
            self.complete(now, slot);
            return;
        }
        self.send_part_unit();
        if self.log.last > self.log.durable {
            self.want_log();
        }
        let (mut seq, mut record) = (self.units.last_seq(), self.log.last);
        if is(Mutation::FlushEarly) {
            seq = seq.saturating_sub(1);
        } else if is(Mutation::FlushWithoutLog) {
            record = 0;
        }
        self.flushes.push_back(Flush { seq, record, request: slot });
        self.news = true;
    }

    /// A chunk is worn out or retired. When the others have no more room than
    /// the data and one chunk a unit for what is in the buffer, or half of the
    /// spare where that is less, the drive turns read-only.
    pub(super) fn lose(&mut self, chunk: usize) {
        let left = self.space.lose(chunk);
        // Its level has fallen by a chunk.
        let rank = self.rank_of_chunk(chunk);
        self.collectors[rank].padded = None;
        let (size, pus) = (self.geometry.chunk_blocks(), u64::from(self.geometry.total_pus()));
        let spare = self.config.unit_blocks(size) * pus - self.map.blocks();
        let needed = self.map.blocks() + (pus * u64::from(size)).min(spare / 2);
        if left <= needed {
            self.stop_writing();
        }
        self.refresh(self.stripe.pu(rank));
        self.touch(rank);
    }

    /// Nothing new can be made durable any more: the drive turns read-only, and
    /// flushes that wait fail.
    pub(super) fn give_up_writing(&mut self) {
        self.dead = true;
        self.stop_writing();
    }

    /// Turns read-only: writes that wait for the buffer are given up.
    pub(super) fn stop_writing(&mut self) {
        self.read_only = true;
        self.news = true;
    }

    /// Writes that wait for the buffer of a drive that is read-only.
    #[cold]
    fn give_up_waiting(&mut self, now: Time) {
        while let Some(number) = self.merges.pop_front() {
            let slot = self.partials[number].request;
            self.requests[slot].status = Status::READ_ONLY;
            self.end_partial(now, number);
        }
        while let Some(slot) = self.waiting.pop_front() {
            let request = &mut self.requests[slot];
            request.status = Status::READ_ONLY;
            request.taken = request.len;
            if request.left == 0 {
                self.write_taken(now, slot);
            }
        }
    }

    /// Completes all flushes with an error: what they wait for is not to be
    /// had.
    pub(super) fn fail_flushes(&mut self, now: Time) {
        self.syncing = 0;
        while let Some(flush) = self.flushes.pop_front() {
            let status = &mut self.requests[flush.request].status;
            *status = status.and(Status::WRITE_FAULT);
            self.complete(now, flush.request);
        }
    }

    /// Completes the flushes whose rows are all in flash; where the drive has a
    /// cache, after it was flushed too. Where nothing can be made durable any more
    /// they fail.
    #[inline]
    pub(super) fn end_flushes(&mut self, now: Time) {
        if self.flushes.is_empty() {
            return;
        }
        if self.dead {
            self.fail_flushes(now);
        } else if self.syncing == 0 {
            self.end_ready_flushes(now);
        }
    }

    fn end_ready_flushes(&mut self, now: Time) {
        let (seq, record) = (self.units.durable_seq(), self.log.durable);
        let ready = |flush: &&Flush| flush.seq <= seq && flush.record <= record;
        let count = self.flushes.iter().take_while(ready).count();
        if count > 0 && self.device.is_cached() {
            self.syncing = count;
            let (cookie, op) = (Cookie::Flush, VectorOp::Flush);
            self.send(|| Self::run(cookie, op, Ppa(0), 0, Content::Data, Buffer::empty()));
            return;
        }
        for _ in 0..count {
            let flush = self.flushes.pop_front().expect("they were counted");
            self.complete(now, flush.request);
        }
    }

    /// The drive's flush is over.
    #[cold]
    pub(super) fn flush_done(&mut self, now: Time, status: Status) {
        for _ in 0..std::mem::take(&mut self.syncing) {
            let flush = self.flushes.pop_front().expect("they were counted");
            let request = &mut self.requests[flush.request];
            request.status = request.status.and(status);
            self.complete(now, flush.request);
        }
        self.news = true;
    }
}
