//! Requests: how they come in and end, and reads.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::Ppa;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Pieces, Status, Time};

use super::failures::is_read;
use super::map::Place;
use super::{BACKLOG, Cookie, DEPTH, PARTIALS_OF_READS, Pblk};

/// A request at work.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) op: BlockOp,
    pub(super) fua: bool,
    /// The stream that a write is of.
    pub(super) stream: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The buffer of a read that goes in pieces.
    pub(super) pieces: Pieces,
    /// The buffer of a write, or of a read that was done in one.
    pub(super) data: Buffer,
    /// Parts not done yet.
    pub(super) left: u32,
    /// Bytes of a write that are in the buffer or on their way to it.
    pub(super) taken: u64,
    pub(super) status: Status,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            id: 0,
            op: BlockOp::Flush,
            fua: false,
            stream: 0,
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

impl Request {
    /// Whether it writes one whole block.
    #[inline]
    pub(super) fn is_block_of_write(&self) -> bool {
        self.op == BlockOp::Write
            && self.len == BLOCK_BYTES
            && self.offset.is_multiple_of(BLOCK_BYTES)
    }
}

/// A part of a block whose old bytes are needed: to be read, or to be written
/// around.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) request: u32,
    pub(super) lba: u64,
    /// First byte and length in the block.
    pub(super) from: usize,
    pub(super) len: usize,
    /// Where a write's bytes begin in its request's buffer.
    pub(super) source: usize,
    /// A read's piece of its request's buffer.
    pub(super) piece: Buffer,
    /// The block's old bytes.
    pub(super) scratch: Buffer,
    /// Where they were read.
    pub(super) place: Place,
    /// How often its chunk had been erased then.
    pub(super) wear: u32,
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
        self.host.requests.live() + self.host.ready.len() < DEPTH
            && self.wire.out.len() < BACKLOG
            && (whole || self.has_partials(req))
    }

    /// Whether a request for parts of blocks has the partials that it needs.
    #[cold]
    fn has_partials(&self, req: &BlockReq) -> bool {
        req.op != BlockOp::Read
            || self.host.partials.room() >= PARTIALS_OF_READS
            || self.kept as u64 != BLOCK_BYTES
    }

    /// Lets a request in. One whole block is the usual case: it is told by a
    /// few comparisons, and its fields stay in registers.
    #[inline(always)]
    pub(super) fn accept(&mut self, now: Time, req: BlockReq) {
        let BlockReq { id, op, fua, placement, queue, offset, len, buffer } = req;
        let is_block = len == BLOCK_BYTES
            && offset.is_multiple_of(BLOCK_BYTES)
            && offset < self.shape.bytes
            && buffer.len() == self.kept;
        if is_block && op == BlockOp::Read {
            self.read_block(now, id, offset, buffer);
        } else if is_block && op == BlockOp::Write && !fua && !self.facts.read_only {
            if !self.write_block(offset, placement, &buffer) {
                return self.queue_block(now, id, (offset, placement), buffer);
            }
            self.host.ready.put(|| BlockDone { id, op, status: Status::SUCCESS, at: now, buffer });
            if self.told.is_some() {
                self.tell_at_once(now);
            }
        } else {
            self.accept_any(now, BlockReq { id, op, fua, placement, queue, offset, len, buffer });
        }
    }

    /// The same of one that had to wait.
    #[inline(never)]
    pub(super) fn accept_late(&mut self, now: Time, req: BlockReq) {
        self.accept(now, req);
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
            self.host.ready.put(|| BlockDone { id, op, status, at: now, buffer });
            if self.told.is_some() {
                self.tell_at_once(now);
            }
            return;
        };
        let slot = self.host.requests.take_as_is();
        let request = &mut self.host.requests[slot];
        (request.id, request.op, request.fua) = (id, op, false);
        (request.offset, request.len, request.taken) = (offset, len, 0);
        (request.left, request.status) = (1, Status::SUCCESS);
        self.send_read(|chunk| Cookie::Read(slot, chunk), ppa, 1, buffer);
        if self.told.is_some() {
            self.begin_story(slot, now);
        }
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
    fn write_block(&mut self, offset: u64, placement: u8, buffer: &Buffer) -> bool {
        if !self.host.waiting.is_empty() || !self.host.merges.is_empty() {
            return false;
        }
        let stream = self.stream_of(placement);
        let Some(held) = self.slot_for(offset / BLOCK_BYTES, stream) else { return false };
        if !buffer.is_empty() {
            self.units.data_mut(held).copy_from_slice(buffer.bytes());
        }
        self.send_full_unit(stream);
        true
    }

    /// The stream of writes with this placement.
    #[inline]
    fn stream_of(&self, placement: u8) -> usize {
        if u32::from(placement) < self.config.streams { placement.into() } else { 0 }
    }

    /// Lets any request in.
    fn accept_any(&mut self, now: Time, req: BlockReq) {
        let mut status = self.shape.check(&req);
        if self.facts.read_only && !matches!(req.op, BlockOp::Read | BlockOp::Flush) {
            status = status.and(Status::READ_ONLY);
        }
        let BlockReq { id, op, fua, placement, offset, len, buffer, .. } = req;
        if !status.is_ok() {
            self.host.ready.put(|| BlockDone { id, op, status, at: now, buffer });
            if self.told.is_some() {
                self.tell_at_once(now);
            }
            return;
        }
        let slot = self.begin_request(now, (id, op, fua), (offset, len, placement));
        let request = &mut self.host.requests[slot];
        if op == BlockOp::Read {
            request.pieces = Pieces::new(buffer);
            self.read(now, slot);
            return;
        }
        request.data = buffer;
        if op == BlockOp::Flush {
            self.flush(now, slot);
        } else {
            self.wait_for_room(now, slot);
        }
    }

    /// Lets a request in that is not done at once.
    #[inline]
    fn begin_request(
        &mut self,
        now: Time,
        (id, op, fua): (u64, BlockOp, bool),
        (offset, len, placement): (u64, u64, u8),
    ) -> u32 {
        let stream = self.stream_of(placement);
        let slot = self.host.requests.take_as_is();
        let request = &mut self.host.requests[slot];
        (request.id, request.op, request.fua) = (id, op, fua);
        (request.offset, request.len, request.taken) = (offset, len, 0);
        (request.left, request.status) = (0, Status::SUCCESS);
        request.stream = stream;
        if self.told.is_some() {
            self.begin_any_story(slot, now);
        }
        slot
    }

    /// Lets one whole block of a write wait for room.
    fn queue_block(&mut self, now: Time, id: u64, (offset, placement): (u64, u8), buffer: Buffer) {
        let kind = (id, BlockOp::Write, false);
        let slot = self.begin_request(now, kind, (offset, BLOCK_BYTES, placement));
        self.host.requests[slot].data = buffer;
        self.wait_for_room(now, slot);
    }

    /// A write, zeroing or trim gets in line. Behind others it has to wait: what
    /// they wait for does not come by what is let in.
    #[inline]
    fn wait_for_room(&mut self, now: Time, slot: u32) {
        let is_first = self.host.waiting.is_empty();
        self.host.waiting.put(|| slot);
        if is_first {
            self.stage(now);
        }
    }

    /// Ends a request.
    #[inline(always)]
    pub(super) fn complete(&mut self, now: Time, slot: u32) {
        self.complete_with(now, slot, |request| std::mem::take(&mut request.data));
    }

    /// The same, with this buffer.
    #[inline(always)]
    fn complete_with(&mut self, now: Time, slot: u32, buffer: impl FnOnce(&mut Request) -> Buffer) {
        self.host.requests.give(slot);
        let request = &mut self.host.requests[slot];
        self.host.ready.put(|| BlockDone {
            id: request.id,
            op: request.op,
            status: request.status,
            at: now,
            buffer: buffer(request),
        });
        if self.told.is_some() {
            self.end_story(slot, now);
        }
    }

    /// Ends a read whose pieces are all back.
    pub(super) fn complete_pieces(&mut self, now: Time, slot: u32) {
        let request = &mut self.host.requests[slot];
        request.data = std::mem::take(&mut request.pieces).whole();
        self.complete(now, slot);
    }

    /// The block at `at` bytes into a request, and the part of it that the
    /// request covers: block, first byte, length.
    #[inline]
    pub(super) fn part(request: &Request, at: u64) -> (u64, usize, usize) {
        let position = request.offset + at;
        let from = position % BLOCK_BYTES;
        let len = (BLOCK_BYTES - from).min(request.len - at);
        (position / BLOCK_BYTES, from as usize, len as usize)
    }

    #[inline(never)]
    fn read(&mut self, now: Time, slot: u32) {
        let len = self.host.requests[slot].len;
        let mut at = 0;
        while at < len {
            let (lba, from, part) = Self::part(&self.host.requests[slot], at);
            let place = self.map.get(lba);
            if part as u64 != BLOCK_BYTES {
                self.read_part(slot, lba, from, part, place);
                at += part as u64;
            } else if let Some(ppa) = place.ppa() {
                let whole_blocks = (len - at) / BLOCK_BYTES;
                let count = self.neighbours(lba, ppa, whole_blocks);
                let request = &mut self.host.requests[slot];
                let piece = request.pieces.take(count as usize * self.kept);
                request.left += 1;
                self.send_read(|chunk| Cookie::Read(slot, chunk), ppa, count, piece);
                at += u64::from(count) * BLOCK_BYTES;
            } else {
                self.read_held(slot, place, 0, self.kept);
                at += BLOCK_BYTES;
            }
        }
        if self.host.requests[slot].left == 0 {
            self.complete_pieces(now, slot);
        }
    }

    /// How many blocks from `lba` on lie side by side in the row of `ppa`.
    #[inline]
    fn neighbours(&self, lba: u64, ppa: Ppa, most: u64) -> u32 {
        if most == 1 {
            return 1;
        }
        let most = most.min(u64::from(self.geometry.row_blocks() - self.geometry.in_row(ppa)));
        let mut count = 1;
        while count < most && self.map.get(lba + count) == Place::flash(Ppa(ppa.0 + count)) {
            count += 1;
        }
        count as u32
    }

    /// Reads what is in the buffer, nowhere, or lost.
    fn read_held(&mut self, slot: u32, place: Place, from: usize, len: usize) {
        if place == Place::LOST {
            let status = &mut self.host.requests[slot].status;
            *status = status.and(Status::UNRECOVERED_READ);
        }
        self.counters.nothing += u64::from(place.slot().is_none() && place != Place::LOST);
        let pieces = &mut self.host.requests[slot].pieces;
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
        let request = &mut self.host.requests[slot];
        let piece = request.pieces.take(len);
        request.left += 1;
        let partial = Partial { request: slot, lba, from, len, piece, place, ..Partial::default() };
        let number = self.host.partials.take(partial);
        self.fetch(number);
    }

    /// Reads the old bytes of a partial's block.
    pub(super) fn fetch(&mut self, number: u32) {
        let partial = &mut self.host.partials[number];
        let ppa = partial.place.ppa().expect("only flash is fetched");
        partial.wear = self.device.chunk(self.geometry.chunk_index(ppa)).wear;
        let scratch = match std::mem::take(&mut partial.scratch) {
            held if !held.is_empty() => held,
            _ => self.host.scratch.pop().expect("each partial has a scratch block"),
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
        let request = &mut self.host.requests[slot];
        request.status = request.status.and(status);
        request.left -= 1;
        if request.len == BLOCK_BYTES && request.offset.is_multiple_of(BLOCK_BYTES) {
            self.complete_with(now, slot, |_| buffer);
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
        self.facts.news = true;
        let slot = self.host.partials[number].request;
        if self.told.is_some() && self.host.requests[slot].op != BlockOp::Read {
            self.fetch_story(slot, now);
        }
        let partial = &mut self.host.partials[number];
        partial.scratch = done.buffer;
        let is_read = is_read(done.status);
        if is_read && self.host.requests[slot].op != BlockOp::Read {
            self.host.merges.push_back(number);
            return;
        }
        let mut piece = std::mem::take(&mut partial.piece);
        if is_read {
            let range = partial.from..partial.from + partial.len;
            piece.bytes_mut().copy_from_slice(&partial.scratch.bytes()[range]);
        }
        let request = &mut self.host.requests[slot];
        if request.op == BlockOp::Read {
            request.pieces.give(piece);
        }
        request.status = request.status.and(done.status);
        self.end_partial(now, number);
    }

    pub(super) fn end_partial(&mut self, now: Time, number: u32) {
        let partial = std::mem::take(&mut self.host.partials[number]);
        self.host.partials.give(number);
        self.host.scratch.push(partial.scratch);
        let request = &mut self.host.requests[partial.request];
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
}
