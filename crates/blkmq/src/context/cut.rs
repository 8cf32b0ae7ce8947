//! Requests that are longer than the device takes at once.
//!
//! A context cuts them into pieces, each a request of its own to everything
//! below: staged, ordered, given a tag, traced. The submitter sees none of that:
//! its request completes once, under its own id and with its own buffer, when
//! the last piece has.
//!
//! Guarantees: only what the device would take, were it not for its length, is
//! cut. Pieces lie in the order of their addresses and go in as there is room, so
//! a request may be as long as the device. One of which a piece fails has the
//! status of the first that did, and the others may have been carried out; its
//! buffer is empty where a piece came back without its own. At most [`MOST_CUT`]
//! are outside at once, one of them not cut to its end. Nothing here fails.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Pieces, SECTOR_BYTES, Shape, Slots};
use port::{Buffer, Status, Time};

/// Requests of a core that are cut at once, at most.
pub(super) const MOST_CUT: usize = 32;

/// The bit of a submitter's number that says that the request is a piece: its
/// id is then the number of the request that it is cut from.
const PIECE: u32 = 1 << 31;

/// The core of a submitter's number.
#[inline(always)]
pub(crate) fn core_of(from: u32) -> u32 {
    from & !PIECE
}

/// What is cut.
#[derive(Debug)]
struct Cut {
    id: u64,
    op: BlockOp,
    buffer: Pieces,
    /// Bytes of the buffer, and how many of them are back.
    stored: usize,
    back: usize,
    /// Pieces outside, and one more while it is not cut to its end.
    left: u32,
    status: Status,
    at: Time,
}

impl Default for Cut {
    fn default() -> Cut {
        let (id, op, status, at) = (0, BlockOp::Flush, Status::SUCCESS, Time::ZERO);
        Cut { id, op, buffer: Pieces::default(), stored: 0, back: 0, left: 0, status, at }
    }
}

/// What is left to be cut of a request.
#[derive(Debug)]
struct Rest {
    cut: u32,
    lane: usize,
    op: BlockOp,
    fua: bool,
    placement: u8,
    queue: u8,
    offset: u64,
    len: u64,
}

/// A core's requests that are cut.
pub(super) struct Cuts {
    shape: Shape,
    /// Bytes of a piece.
    piece: u64,
    cuts: Slots<Cut>,
    rest: Option<Rest>,
    /// Pieces outside.
    outside: usize,
}

impl Cuts {
    /// None so far, over a device of this shape.
    pub fn new(shape: Shape) -> Cuts {
        let whole = |unit| shape.max_bytes / unit * unit;
        let blocks = whole(BLOCK_BYTES);
        let piece = if blocks > 0 { blocks } else { whole(SECTOR_BYTES) };
        Cuts { shape, piece, cuts: Slots::new(MOST_CUT), rest: None, outside: 0 }
    }

    /// Bytes of memory that they take.
    pub fn bytes() -> u64 {
        Slots::<Cut>::bytes(MOST_CUT)
    }

    /// Whether none is outside.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cuts.live() == 0
    }

    /// Pieces outside.
    #[inline]
    pub fn outside(&self) -> usize {
        self.outside
    }

    /// The lane that what is left to be cut is for.
    #[inline]
    pub fn lane(&self) -> Option<usize> {
        self.rest.as_ref().map(|rest| rest.lane)
    }

    /// Whether a request is to be cut. Those that the device refuses for
    /// something else are not.
    #[inline]
    pub fn is_long(&self, req: &BlockReq) -> bool {
        req.len > self.shape.max_bytes && self.would_be_taken(req)
    }

    #[cold]
    fn would_be_taken(&self, req: &BlockReq) -> bool {
        let data = matches!(req.op, BlockOp::Read | BlockOp::Write);
        let any_length = Shape { max_bytes: u64::MAX, ..self.shape };
        data && self.piece > 0 && any_length.check(req).is_ok()
    }

    /// Whether there is room for another.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.rest.is_none() && self.cuts.room() > 0
    }

    /// Begins to cut a request.
    pub fn begin(&mut self, lane: usize, req: BlockReq) {
        let BlockReq { id, op, fua, placement, queue, offset, len, buffer } = req;
        let (stored, buffer, left) = (buffer.len(), Pieces::new(buffer), 1);
        let cut = self.cuts.take(Cut { id, op, buffer, stored, left, ..Cut::default() });
        self.rest = Some(Rest { cut, lane, op, fua, placement, queue, offset, len });
    }

    /// The next piece, and the number of its submitter on core `core`. Some is
    /// left to be cut.
    pub fn next(&mut self, core: u32) -> Option<(u32, BlockReq)> {
        let rest = self.rest.as_mut()?;
        let len = rest.len.min(self.piece);
        let cut = &mut self.cuts[rest.cut];
        let Rest { op, fua, placement, queue, offset, .. } = *rest;
        let buffer = cut.buffer.take(self.shape.stored(len));
        let req = BlockReq { id: rest.cut.into(), op, fua, placement, queue, offset, len, buffer };
        (rest.offset, rest.len) = (offset + len, rest.len - len);
        if rest.len == 0 {
            self.rest = None;
        } else {
            cut.left += 1;
        }
        self.outside += 1;
        Some((core | PIECE, req))
    }

    /// Takes a piece back. Gives the whole when that was the last.
    pub fn give(&mut self, piece: BlockDone) -> Option<BlockDone> {
        self.outside -= 1;
        let number = piece.id as u32;
        let cut = &mut self.cuts[number];
        if cut.status.is_ok() {
            cut.status = piece.status;
        }
        cut.at = cut.at.max(piece.at);
        if cut.buffer.has(&piece.buffer) {
            cut.back += piece.buffer.len();
            cut.buffer.give(piece.buffer);
        }
        cut.left -= 1;
        if cut.left > 0 {
            return None;
        }
        let Cut { id, op, buffer, stored, back, status, at, .. } = std::mem::take(cut);
        self.cuts.give(number);
        let is_whole = back == stored;
        // A read that gives nothing back did not read.
        let lost = op == BlockOp::Read && !is_whole && status.is_ok();
        let status = if lost { Status::INTERNAL } else { status };
        let buffer = if is_whole { buffer.whole() } else { Buffer::empty() };
        Some(BlockDone { id, op, status, at, buffer })
    }
}
