//! Chunks that are open, on a drive that limits how many.
//!
//! A limit (`open_chunks` and `open_chunks_pu` of [`flash::Timing`], maxoc and maxocpu
//! of Open-Channel SSD 2.0) is kept here, below all else: a write that begins a chunk
//! waits until there is room for one more, and what goes to that chunk waits behind it.
//! Who sends it only sees programs that take longer.
//!
//! A drive *goes on with* one chunk for each stream of a parallel unit, one for its
//! collection and one for own blocks, and with one of each mirror of the root. All
//! others that are open end by themselves, as their last row is on its way, or were
//! left: a program of them failed, they have aged, or the next root does not fit. These
//! are padded to their ends, a row after the other, when room is waited for. A pad of a
//! failed chunk goes well or fails, and the third failure closes it.
//!
//! Guarantees: with room for all chunks that a drive goes on with ([`needed`]), no write
//! makes more chunks open than the limits, and each that waits goes on: of the chunks
//! that are open and do not end by themselves some was left, or not all that it goes on
//! with are open. Only where a chunk cannot be padded, as nothing reaches it any more,
//! may room never come: then the drive is asked all the same, and what it refuses is a
//! failed program.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorCmd, VectorOp};
use flash::{ChunkState, Geometry, Ppa, TAG_BYTES, Tag, Timing};
use port::{BLOCK_BYTES, Buffer, OutOfMemory, Scratch};

use super::ends::END;
use super::root::{Mirror, Root};
use super::{Cookie, Pblk};

/// Chunks with which a drive of so many streams goes on: in all, and in a parallel unit
/// at most.
pub(super) fn needed(geometry: &Geometry, streams: u32) -> (u32, u32) {
    let units = geometry.total_pus();
    (units * (streams + 2) + units.min(2), streams + 3)
}

/// A chunk that is open, or is about to be.
struct Open {
    chunk: usize,
    /// Writes on their way to it.
    inside: u32,
    /// An erase of it is on its way, and no write behind it.
    erasing: bool,
    /// A pad of it was not even tried.
    lost: bool,
}

/// The open chunks of a drive that limits them.
pub(super) struct Openings {
    most: usize,
    most_of_pu: usize,
    /// By parallel unit.
    of: Vec<Vec<Open>>,
    all: usize,
    /// What waits, oldest first: writes to chunks for which there is no room, and
    /// what is to follow these.
    waiting: VecDeque<VectorCmd>,
    /// A pad is on its way.
    pads: bool,
    /// What it is sent in.
    buffer: Scratch,
}

impl Openings {
    /// Of a drive none of whose chunks is open; none without a limit.
    pub fn new(geometry: &Geometry, timing: &Timing) -> Result<Option<Box<Openings>>, OutOfMemory> {
        if !timing.limits_open() {
            return Ok(None);
        }
        let bytes = geometry.row_blocks() as usize * (BLOCK_BYTES as usize + TAG_BYTES);
        Ok(Some(Box::new(Openings {
            most: timing.open_chunks as usize,
            most_of_pu: timing.open_chunks_pu as usize,
            of: (0..geometry.pu_slots()).map(|_| Vec::new()).collect(),
            all: 0,
            waiting: VecDeque::new(),
            pads: false,
            buffer: Scratch::new(Buffer::zeroed(bytes)?),
        })))
    }

    fn has_room(&self, pu: usize) -> bool {
        self.all < self.most && self.of[pu].len() < self.most_of_pu
    }

    fn find(&mut self, pu: usize, chunk: usize) -> Option<&mut Open> {
        self.of[pu].iter_mut().find(|open| open.chunk == chunk)
    }

    fn add(&mut self, pu: usize, chunk: usize, inside: u32) {
        self.of[pu].push(Open { chunk, inside, erasing: false, lost: false });
        self.all += 1;
    }

    /// Whether a command for a chunk can go now; it is entered then.
    fn enter(&mut self, pu: usize, chunk: usize, erases: bool) -> bool {
        let has_room = self.has_room(pu);
        match self.find(pu, chunk) {
            Some(open) if erases && open.inside > 0 => return false,
            Some(open) if erases => open.erasing = true,
            Some(open) => (open.inside, open.erasing) = (open.inside + 1, false),
            None if erases => {}
            None if has_room => self.add(pu, chunk, 1),
            None => return false,
        }
        true
    }

    /// The next command that can go.
    fn next(&mut self, geometry: &Geometry) -> Option<VectorCmd> {
        for i in 0..self.waiting.len() {
            let (chunk, erases) = target(geometry, &self.waiting[i]);
            let is_first = self.waiting.range(..i).all(|cmd| target(geometry, cmd).0 != chunk);
            let pu = geometry.pu_index(geometry.chunk_start(chunk));
            if is_first && self.enter(pu, chunk, erases) {
                return self.waiting.remove(i);
            }
        }
        None
    }

    /// Whether something is on its way that may end with fewer open chunks.
    fn is_busy(&self) -> bool {
        self.pads || self.of.iter().flatten().any(|open| open.inside > 0 || open.erasing)
    }
}

/// The chunk that a command writes or erases, and whether it erases.
fn target(geometry: &Geometry, cmd: &VectorCmd) -> (usize, bool) {
    (geometry.chunk_index(cmd.ppa), cmd.op.erases())
}

impl<D: OpenChannel> Pblk<D> {
    /// Sends a command down that writes or erases a chunk.
    #[inline(always)]
    pub(super) fn send_write(&mut self, make: impl FnOnce() -> VectorCmd) {
        match &mut self.openings {
            None => self.wire.out.put(make),
            Some(openings) => {
                openings.waiting.push_back(make());
                self.facts.news = true;
                self.send_openings();
            }
        }
    }

    /// Sends what waited and has room.
    #[cold]
    fn send_openings(&mut self) {
        let Some(openings) = &mut self.openings else { return };
        while let Some(cmd) = openings.next(&self.geometry) {
            self.wire.out.put(|| cmd);
        }
    }

    /// What is open is found on the drive, at a start.
    pub(super) fn find_open(&mut self) {
        let Some(openings) = &mut self.openings else { return };
        for pu in self.geometry.pus_channels_first() {
            for chunk in (0..self.geometry.chunks()).map(|n| self.geometry.chunk_of(pu, n)) {
                if self.device.chunk(chunk).state == ChunkState::Open {
                    openings.add(pu, chunk, 0);
                }
            }
        }
    }

    /// A write or an erase of a chunk has ended.
    #[cold]
    pub(super) fn opening_ended(&mut self, chunk: usize, erases: bool) {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        let is_open = self.device.chunk(chunk).state == ChunkState::Open;
        let Some(openings) = &mut self.openings else { return };
        let Some(open) = openings.find(pu, chunk) else { return };
        if erases {
            open.erasing = false;
        } else {
            open.inside -= 1;
        }
        if open.inside == 0 && !open.erasing && !is_open {
            openings.of[pu].retain(|open| open.chunk != chunk);
            openings.all -= 1;
        }
        self.facts.news |= !openings.waiting.is_empty();
    }

    /// Makes room for chunks that wait for it.
    #[cold]
    pub(super) fn make_openings(&mut self) {
        self.send_openings();
        let Some(openings) = &self.openings else { return };
        let Some(first) = openings.waiting.front().filter(|_| !openings.pads) else { return };
        let (pu_of_first, most) = (self.geometry.pu_index(first.ppa), openings.most_of_pu);
        // One unit's limit is not another's matter.
        let units = match openings.of[pu_of_first].len() >= most {
            true => pu_of_first..pu_of_first + 1,
            false => 0..openings.of.len(),
        };
        let mut all = openings.of[units].iter().flatten();
        if let Some(left) = all.find(|open| self.is_left(open)) {
            let chunk = left.chunk;
            self.send_pad(chunk);
        } else if !openings.is_busy() {
            // It would wait for ever.
            debug_assert!(openings.of.iter().flatten().any(|open| open.lost));
            let openings = self.openings.as_mut().expect("it was looked at");
            let cmd = openings.waiting.pop_front().expect("one waits");
            let (chunk, _) = target(&self.geometry, &cmd);
            openings.add(pu_of_first, chunk, 1);
            self.wire.out.put(|| cmd);
        }
    }

    /// Whether a chunk is open, and nothing will be written to it.
    fn is_left(&self, open: &Open) -> bool {
        let chunk = open.chunk;
        let rank = self.rank_of_chunk(chunk);
        let is = |other: Option<super::space::OpenChunk>| other.is_some_and(|o| o.chunk() == chunk);
        let goes_on = is(self.collectors.of[rank].open)
            || is(self.saved.meta.open[rank])
            || self.stripe.opened(rank).any(|other| other.chunk() == chunk)
            || self.saved.mirrors.iter().any(|mirror| self.takes_root(mirror, chunk));
        let is_open = self.device.chunk(chunk).state == ChunkState::Open;
        is_open && open.inside == 0 && !open.erasing && !open.lost && !goes_on
    }

    /// Whether a mirror goes on with a chunk.
    fn takes_root(&self, mirror: &Mirror, chunk: usize) -> bool {
        let row = self.geometry.row_blocks();
        let root = Root::rows(self.saved.meta.directory.len(), row) * row;
        let has_room = mirror.busy || mirror.next + root <= self.geometry.chunk_blocks();
        mirror.is_usable() && mirror.chunk() == chunk && has_room
    }

    /// Sends a row of padding to a chunk that was left.
    fn send_pad(&mut self, chunk: usize) {
        let (geometry, from) = (self.geometry, self.device.chunk(chunk).wp);
        let count = geometry.row_blocks() - from % geometry.row_blocks();
        // Roots are looked for block by block, each of them whole.
        let content = if self.is_anchor(chunk) { Content::Whole } else { Content::Tagged };
        let (data, tag) = content.each(self.kept as u32);
        let openings = self.openings.as_mut().expect("only there are pads");
        let mut buffer = openings.buffer.take(count as usize * (data + tag));
        // Tags of the last one may be where data are now.
        buffer.bytes_mut().fill(0);
        let end = Tag { id: END, seq: geometry.chunk_blocks().into() };
        let tags = &mut buffer.bytes_mut()[count as usize * data..];
        tags.chunks_exact_mut(tag).for_each(|to| end.store(to));
        self.counters.padding += u64::from(count);
        let ppa = Ppa(geometry.chunk_start(chunk).0 + u64::from(from));
        openings.pads = true;
        let pu = geometry.pu_index(ppa);
        openings.find(pu, chunk).expect("it is open").inside += 1;
        let (cookie, op) = (Cookie::Pad(chunk as u32, from), VectorOp::Write);
        self.wire.out.put(|| Self::run(cookie, op, ppa, count, content, buffer));
    }

    /// A row of padding is programmed, or failed. One that was not tried is not tried
    /// again.
    #[cold]
    pub(super) fn pad_done(&mut self, chunk: usize, first: u32, buffer: Buffer) {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        let is_tried = self.device.chunk(chunk).wp != first;
        let openings = self.openings.as_mut().expect("only there are pads");
        openings.pads = false;
        openings.buffer.give(buffer);
        if let Some(open) = openings.find(pu, chunk) {
            open.lost = !is_tried;
        }
        self.opening_ended(chunk, false);
    }
}
