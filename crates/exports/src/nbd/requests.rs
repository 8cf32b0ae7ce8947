//! The requests of one connection that are not answered yet, and their
//! buffers.
//!
//! A request is one piece, or several when it is longer than the drive or a
//! buffer takes; it ends when all of them have. All memory is had when the
//! connection begins: address space for the longest request and for many
//! short ones, mapped where it is used.

use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Pieces, Ring, Shape, Status,
};

use super::protocol::{self, MAX_REQUEST};
use super::session::Io;

/// Requests in flight on one connection; further ones wait in the socket.
pub const SLOTS: usize = 256;
/// Buffers of each length, shortest first. The last length also makes up
/// longer requests, so there are enough of it for the longest and some.
const SMALL: (usize, usize) = (BLOCK_BYTES as usize, SLOTS);
const MIDDLE: (usize, usize) = (64 << 10, 64);
const LARGE: usize = 256 << 10;
const LARGE_SPARE: usize = 4;

/// "No piece": the end of a list.
const NONE: u32 = u32::MAX;

struct Class {
    bytes: usize,
    free: Vec<Buffer>,
}

struct Piece {
    slot: u16,
    class: u8,
    next: u32,
    len: u32,
    home: Pieces,
    data: Buffer,
}

struct Slot {
    io: Io,
    status: Status,
    /// Pieces that have not completed.
    left: u32,
    first: u32,
}

/// Requests in flight.
pub struct Requests {
    slots: Vec<Slot>,
    free_slots: Vec<u16>,
    pieces: Vec<Piece>,
    free_pieces: Vec<u32>,
    /// Empty when the drive keeps no data.
    classes: Vec<Class>,
    max_piece: usize,
}

const IDLE: Io = Io { cookie: 0, op: BlockOp::Flush, fua: false, offset: 0, len: 0 };

impl Requests {
    /// Room for the requests of one connection to a drive of this shape.
    pub fn new(shape: Shape) -> Result<Requests, OutOfMemory> {
        let most = shape.max_bytes.min(MAX_REQUEST.into()) as usize;
        let (classes, max_piece) = if shape.kept == 0 {
            (Vec::new(), most)
        } else {
            let large = LARGE.min(most);
            let count = (MAX_REQUEST as usize).div_ceil(large) + LARGE_SPARE;
            let shorter = [SMALL, MIDDLE].into_iter().filter(|&(bytes, _)| bytes < large);
            let wanted = shorter.chain([(large, count)]);
            let class = |(bytes, count)| Ok(Class { bytes, free: Buffer::carve(count, bytes)? });
            (wanted.map(class).collect::<Result<Vec<_>, OutOfMemory>>()?, large)
        };
        let pieces = (MAX_REQUEST as usize).div_ceil(max_piece) + SLOTS;
        let slot = |_| Slot { io: IDLE, status: Status::SUCCESS, left: 0, first: NONE };
        let piece = |_| Piece {
            slot: 0,
            class: 0,
            next: NONE,
            len: 0,
            home: Pieces::default(),
            data: Buffer::empty(),
        };
        Ok(Requests {
            slots: (0..SLOTS).map(slot).collect(),
            free_slots: (0..SLOTS as u16).rev().collect(),
            pieces: (0..pieces).map(piece).collect(),
            free_pieces: (0..pieces as u32).rev().collect(),
            classes,
            max_piece,
        })
    }

    /// The most commands that can be inside the drive at once.
    pub fn limit(&self) -> usize {
        self.pieces.len()
    }

    /// Whether data travel in buffers; if not, the drive keeps none.
    pub fn has_data(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The class of a request's buffers, how long each piece is, and how
    /// many there are.
    #[inline]
    fn cut(&self, io: &Io) -> (u8, usize, usize) {
        let len = io.len as usize;
        if !matches!(io.op, BlockOp::Read | BlockOp::Write) {
            return (0, len, 1);
        }
        let fits = |c: &Class| len <= c.bytes;
        let last = self.classes.len().saturating_sub(1);
        let class = self.classes.iter().position(fits).unwrap_or(last);
        let each = self.classes.get(class).map_or(self.max_piece, |c| c.bytes);
        (class as u8, each, len.div_ceil(each))
    }

    /// Whether there is room for a request now.
    #[inline]
    pub fn fits(&self, io: &Io) -> bool {
        let (class, _, count) = self.cut(io);
        let buffers = if self.buffered(io) {
            self.classes[usize::from(class)].free.len()
        } else {
            usize::MAX
        };
        !self.free_slots.is_empty() && self.free_pieces.len() >= count && buffers >= count
    }

    #[inline]
    fn buffered(&self, io: &Io) -> bool {
        matches!(io.op, BlockOp::Read | BlockOp::Write) && self.has_data()
    }

    /// Takes a request in, with all buffers that it needs. `None` when there
    /// is no room before another has ended.
    #[inline]
    pub fn admit(&mut self, io: Io) -> Option<u16> {
        if !self.fits(&io) {
            return None;
        }
        let (class, each, count) = self.cut(&io);
        let data = self.buffered(&io);
        let slot = self.free_slots.pop()?;
        let mut first = NONE;
        // From the last to the first, so that the list begins with the first.
        for i in (0..count).rev() {
            let at = self.free_pieces.pop()?;
            let piece = &mut self.pieces[at as usize];
            let len = (io.len as usize - i * each).min(each);
            (piece.slot, piece.class, piece.next, piece.len) = (slot, class, first, len as u32);
            if data {
                let buffer = self.classes[usize::from(class)].free.pop()?;
                piece.home = Pieces::new(buffer);
                piece.data = piece.home.take(len);
            }
            first = at;
        }
        self.slots[usize::from(slot)] =
            Slot { io, status: Status::SUCCESS, left: count as u32, first };
        Some(slot)
    }

    /// The bytes of a write's buffers from `at` on, as far as they lie in one
    /// piece. Empty at the end.
    #[inline]
    pub fn fill(&mut self, slot: u16, at: u32) -> &mut [u8] {
        let (mut piece, mut at) = (self.slots[usize::from(slot)].first, at);
        while piece != NONE {
            let p = &mut self.pieces[piece as usize];
            if at < p.len {
                return &mut self.pieces[piece as usize].data.bytes_mut()[at as usize..];
            }
            at -= p.len;
            piece = p.next;
        }
        &mut []
    }

    /// Puts a request's commands at the end of `cmds`, which has room for
    /// [`limit`](Self::limit).
    #[inline]
    pub fn issue(&mut self, slot: u16, seat: usize, cmds: &mut Ring<BlockReq>) {
        let Slot { io, first, .. } = self.slots[usize::from(slot)];
        let (mut at, mut offset) = (first, io.offset);
        while at != NONE {
            let piece = &mut self.pieces[at as usize];
            let req = BlockReq {
                id: (seat as u64) << 32 | u64::from(at),
                op: io.op,
                fua: io.fua,
                offset,
                len: piece.len.into(),
                buffer: std::mem::take(&mut piece.data),
            };
            cmds.push(req).expect("there are no more commands than pieces");
            offset += u64::from(piece.len);
            at = piece.next;
        }
    }

    /// Takes a completion in; gives the request that it ended, if it did.
    #[inline]
    pub fn complete(&mut self, done: BlockDone) -> Option<u16> {
        let piece = &mut self.pieces[done.id as usize];
        piece.data = done.buffer;
        let slot = &mut self.slots[usize::from(piece.slot)];
        slot.status = slot.status.and(done.status);
        slot.left -= 1;
        (slot.left == 0).then_some(piece.slot)
    }

    /// The client's number and the error of a request that has ended.
    #[inline]
    pub fn reply(&self, slot: u16) -> protocol::Reply {
        let Slot { io, status, .. } = &self.slots[usize::from(slot)];
        protocol::Reply { error: error_of(io.op, *status), cookie: io.cookie }
    }

    /// Bytes of data in the reply of a request that has ended.
    #[inline]
    pub fn reply_bytes(&self, slot: u16) -> usize {
        let Slot { io, status, .. } = &self.slots[usize::from(slot)];
        let data = io.op == BlockOp::Read && error_of(io.op, *status) == protocol::OK;
        if data { io.len as usize } else { 0 }
    }

    /// The buffers of a request that has ended, in order.
    #[inline]
    pub fn data(&self, slot: u16) -> impl Iterator<Item = &[u8]> {
        let mut at = self.slots[usize::from(slot)].first;
        std::iter::from_fn(move || {
            let piece = self.pieces.get(at as usize)?;
            at = piece.next;
            Some(piece.data.bytes())
        })
    }

    /// Forgets a request that is answered, or that will never be issued.
    #[inline]
    pub fn retire(&mut self, slot: u16) {
        let mut at = self.slots[usize::from(slot)].first;
        while at != NONE {
            let piece = &mut self.pieces[at as usize];
            let data = std::mem::take(&mut piece.data);
            if !data.is_empty() {
                let mut home = std::mem::take(&mut piece.home);
                home.give(data);
                self.classes[usize::from(piece.class)].free.push(home.whole());
            }
            self.free_pieces.push(at);
            at = piece.next;
        }
        self.free_slots.push(slot);
    }
}

/// The protocol's word for how the drive ended a request.
fn error_of(op: BlockOp, status: Status) -> u32 {
    match status {
        // The data are whole: only the drive's own margin is small.
        Status::SUCCESS | Status::HIGH_ECC => protocol::OK,
        Status::LBA_OUT_OF_RANGE if op == BlockOp::Read => protocol::EINVAL,
        Status::LBA_OUT_OF_RANGE | Status::CAPACITY_EXCEEDED => protocol::ENOSPC,
        Status::INVALID_FIELD => protocol::EINVAL,
        Status::INVALID_OPCODE => protocol::ENOTSUP,
        Status::READ_ONLY => protocol::EPERM,
        Status::ABORTED => protocol::ESHUTDOWN,
        _ => protocol::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::Time;
    use proptest::prelude::*;

    fn requests(max_bytes: u64, kept: u32) -> Requests {
        Requests::new(Shape { bytes: 1 << 40, kept, max_bytes, depth: 8 }).unwrap()
    }

    fn io(op: BlockOp, len: u32) -> Io {
        Io { cookie: 5, op, fua: false, offset: 8192, len }
    }

    /// Completes all of `cmds` with `status`; gives the requests that ended.
    fn finish(r: &mut Requests, cmds: &mut Ring<BlockReq>, status: Status) -> Vec<u16> {
        let mut ended = Vec::new();
        while let Some(c) = cmds.pop() {
            let id = c.id & 0xffff_ffff;
            let done = BlockDone { id, op: c.op, status, at: Time::ZERO, buffer: c.buffer };
            ended.extend(r.complete(done));
        }
        ended
    }

    #[test]
    fn the_longest_request_is_cut_for_the_drive() {
        for max_bytes in [4096, 8192, 64 << 10, 100 << 12, 1 << 20, 64 << 20] {
            let mut r = requests(max_bytes, 4096);
            let mut cmds = Ring::new(r.limit());
            let slot = r.admit(io(BlockOp::Read, MAX_REQUEST)).unwrap();
            r.issue(slot, 3, &mut cmds);
            let mut next = 8192;
            for i in 0..cmds.len() {
                let c = cmds.get(i).unwrap();
                assert_eq!(c.offset, next);
                assert!(c.len <= max_bytes && c.buffer.len() as u64 == c.len && c.id >> 32 == 3);
                next += c.len;
            }
            assert_eq!(next, 8192 + u64::from(MAX_REQUEST));
            assert_eq!(finish(&mut r, &mut cmds, Status::SUCCESS), [slot]);
            assert_eq!(r.data(slot).map(<[u8]>::len).sum::<usize>(), MAX_REQUEST as usize);
            r.retire(slot);
        }
    }

    #[test]
    fn one_bad_piece_makes_a_bad_request() {
        let mut r = requests(4096, 4096);
        let mut cmds = Ring::new(r.limit());
        let slot = r.admit(io(BlockOp::Read, 3 * 4096)).unwrap();
        r.issue(slot, 0, &mut cmds);
        let mut last = Ring::new(2);
        let first = cmds.pop().unwrap();
        cmds.pour(&mut last);
        cmds.push(first).unwrap();
        assert!(finish(&mut r, &mut cmds, Status::UNRECOVERED_READ).is_empty());
        assert_eq!(finish(&mut r, &mut last, Status::SUCCESS), [slot]);
        assert_eq!(r.reply(slot).error, protocol::EIO);
        assert_eq!(r.reply_bytes(slot), 0);
    }

    #[test]
    fn each_status_has_its_error() {
        let e = error_of;
        assert_eq!(e(BlockOp::Read, Status::HIGH_ECC), protocol::OK);
        assert_eq!(e(BlockOp::Read, Status::LBA_OUT_OF_RANGE), protocol::EINVAL);
        assert_eq!(e(BlockOp::Write, Status::LBA_OUT_OF_RANGE), protocol::ENOSPC);
        assert_eq!(e(BlockOp::Write, Status::CAPACITY_EXCEEDED), protocol::ENOSPC);
        assert_eq!(e(BlockOp::Write, Status::READ_ONLY), protocol::EPERM);
        assert_eq!(e(BlockOp::Trim, Status::INVALID_OPCODE), protocol::ENOTSUP);
        assert_eq!(e(BlockOp::Read, Status::UNRECOVERED_READ), protocol::EIO);
    }

    #[test]
    fn a_drive_without_data_needs_no_buffers() {
        let mut r = requests(1 << 20, 0);
        assert!(!r.has_data());
        let mut cmds = Ring::new(r.limit());
        let slot = r.admit(io(BlockOp::Write, MAX_REQUEST)).unwrap();
        r.issue(slot, 0, &mut cmds);
        assert_eq!(cmds.len(), 32);
        assert!(cmds.front().unwrap().buffer.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn nothing_is_lost_and_all_room_comes_back(
            lens in prop::collection::vec((any::<bool>(), 1u32..1200), 1..30),
            pages in 1u64..200,
        ) {
            let mut r = requests(pages * 4096, 4096);
            let mut cmds = Ring::new(r.limit());
            let free = |r: &Requests| {
                let buffers: Vec<usize> = r.classes.iter().map(|c| c.free.len()).collect();
                (r.free_slots.len(), r.free_pieces.len(), buffers)
            };
            let before = free(&r);
            let mut admitted = Vec::new();
            for (write, sectors) in lens {
                let op = if write { BlockOp::Write } else { BlockOp::Read };
                let Some(slot) = r.admit(io(op, sectors * 512)) else { continue };
                let mut at = 0;
                loop {
                    let part = r.fill(slot, at);
                    if part.is_empty() {
                        break;
                    }
                    part.fill(slot as u8);
                    at += part.len() as u32;
                }
                prop_assert_eq!(at, sectors * 512);
                r.issue(slot, 0, &mut cmds);
                admitted.push(slot);
            }
            let mut ended = finish(&mut r, &mut cmds, Status::SUCCESS);
            ended.sort();
            admitted.sort();
            prop_assert_eq!(&ended, &admitted);
            for slot in ended {
                let same = |d: &[u8]| d == vec![slot as u8; d.len()];
                prop_assert!(r.data(slot).all(same));
                r.retire(slot);
            }
            prop_assert_eq!(free(&r), before);
        }
    }
}
