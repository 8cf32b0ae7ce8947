//! The requests of one connection that are not answered yet, and their
//! buffers.
//!
//! A request is one piece, or several when it is longer than the drive or a
//! buffer takes; it ends when all of them have. Trims and writes of zeros, which
//! take the drive long and have no data, go one piece after the other, few bytes
//! at once, so that others have their turn in between. Reads and writes go as many
//! bytes at once as are the connection's share of what the drive may have, and at
//! least one piece: so what comes from others never waits behind all of a long
//! pipeline.
//!
//! Buffers for some short requests are had when the connection begins. More are
//! taken from the budget of all connections when they are needed, kept while
//! there is something to do, and given back then.

use std::collections::VecDeque;

use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Pieces, Ring, Shape, Status,
};

use super::budget::Membership;
use super::protocol::{self, MAX_REQUEST};
use super::session::Io;
use crate::grow;

/// Requests in flight on one connection; further ones wait in the socket.
pub const SLOTS: usize = 256;
/// Bytes of trims and writes of zeros that the drive has at once, of all
/// connections that use it: they stop it for less than a millisecond. And what
/// each may have whatever the others do, with which it begins after a rest, as it
/// does not know how many there are.
const ZEROED: u64 = 16 << 20;
const LEAST_ZEROED: u64 = 1 << 20;
/// The same of reads and writes; one piece each may always have.
const DATA: u64 = 4 << 20;
const LEAST_DATA: u64 = 64 << 10;
/// Buffers of each length, shortest first. The last length also makes up
/// longer requests, so there are enough of it for the longest and some.
const SMALL: (usize, usize) = (BLOCK_BYTES as usize, SLOTS);
const MIDDLE: (usize, usize) = (64 << 10, 64);
const LARGE: usize = 256 << 10;
const LARGE_SPARE: usize = 4;

/// Short buffers that are made together, and that a connection begins with.
const TOGETHER: usize = 16;
/// Memory of a connection beside buffers for data, in bytes, about: its
/// requests, what it received, and what its thread uses.
const FIXED: u64 = 208 << 10;

/// The share of one of so many in `all`: a part of it that leaves no rest, so that
/// no block is cut.
#[inline]
fn share(all: u64, least: u64, users: usize, rests: bool) -> u64 {
    if rests { least } else { (all / users.next_power_of_two() as u64).max(least) }
}

/// "No piece": the end of a list.
const NONE: u32 = u32::MAX;

struct Class {
    bytes: usize,
    free: Vec<Buffer>,
    /// How many there are, and may be.
    made: usize,
    most: usize,
    /// How many are made together, and how many the connection begins with.
    together: usize,
    own: usize,
}

impl Class {
    /// How many more have to be made so that `count` are free; `None` when there
    /// may not be so many.
    #[inline]
    fn lacks(&self, count: usize) -> Option<usize> {
        let lacks = count.saturating_sub(self.free.len()).next_multiple_of(self.together);
        (self.made + lacks <= self.most).then_some(lacks)
    }

    fn make(&mut self, count: usize) -> Result<(), OutOfMemory> {
        for _ in 0..count / self.together {
            self.free.extend(Buffer::carve(self.together, self.bytes)?);
            self.made += self.together;
        }
        Ok(())
    }

    /// Bytes beyond those that the connection began with.
    fn extra(&self) -> u64 {
        (self.made.saturating_sub(self.own) * self.bytes) as u64
    }
}

struct Piece {
    slot: u16,
    class: u8,
    next: u32,
    len: u32,
    home: Pieces,
    data: Buffer,
    /// The drive has it, of a request whose pieces go one after the other.
    is_inside: bool,
}

struct Slot {
    io: Io,
    status: Status,
    /// Pieces that have not completed.
    left: u32,
    first: u32,
    /// Bytes that the drive was given, and the piece behind them.
    issued: u64,
    next: u32,
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
    /// Trims and writes of zeros that are not wholly given to the drive, and how
    /// many bytes of such it has and may have.
    zeroing: VecDeque<u16>,
    zeroed: u64,
    zeroed_share: u64,
    /// Reads and writes that are not wholly given to the drive, how many bytes of
    /// such it has, and how many it may have.
    waiting: VecDeque<u16>,
    inside: u64,
    share: u64,
    /// The system did not give memory that was asked for last.
    was_denied: bool,
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
            let class = |(bytes, most)| {
                let small = bytes == SMALL.0;
                let together = if small { TOGETHER } else { 1 };
                let most = usize::next_multiple_of(most, together);
                let own = if small { TOGETHER } else { 0 };
                let mut class = Class { bytes, free: Vec::new(), made: 0, most, together, own };
                class.make(own)?;
                Ok(class)
            };
            (wanted.map(class).collect::<Result<Vec<_>, OutOfMemory>>()?, large)
        };
        let pieces = (MAX_REQUEST as usize).div_ceil(max_piece) + SLOTS;
        let slot = |_| Slot {
            io: IDLE,
            status: Status::SUCCESS,
            left: 0,
            first: NONE,
            next: NONE,
            issued: 0,
        };
        let piece = |_| Piece {
            slot: 0,
            class: 0,
            next: NONE,
            len: 0,
            home: Pieces::default(),
            data: Buffer::empty(),
            is_inside: false,
        };
        Ok(Requests {
            slots: (0..SLOTS).map(slot).collect(),
            free_slots: (0..SLOTS as u16).rev().collect(),
            pieces: (0..pieces).map(piece).collect(),
            free_pieces: (0..pieces as u32).rev().collect(),
            classes,
            max_piece,
            zeroing: VecDeque::with_capacity(SLOTS),
            zeroed: 0,
            zeroed_share: LEAST_ZEROED,
            waiting: VecDeque::with_capacity(SLOTS),
            inside: 0,
            share: LEAST_DATA,
            was_denied: false,
        })
    }

    /// What a connection begins with, in bytes, about.
    pub fn own(shape: Shape) -> u64 {
        FIXED + if shape.kept == 0 { 0 } else { (TOGETHER * SMALL.0) as u64 }
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

    /// Whether there is room for a request now, but for memory.
    #[inline]
    pub fn fits(&self, io: &Io) -> bool {
        let (class, _, count) = self.cut(io);
        let lacks =
            if self.buffered(io) { self.classes[usize::from(class)].lacks(count) } else { Some(0) };
        !self.free_slots.is_empty() && self.free_pieces.len() >= count && lacks.is_some()
    }

    /// Bytes that have to be taken before there is room for a request.
    #[inline]
    pub fn wants(&self, io: &Io) -> u64 {
        if !self.buffered(io) {
            return 0;
        }
        let (class, _, count) = self.cut(io);
        let class = &self.classes[usize::from(class)];
        class.lacks(count).map_or(0, |lacks| (lacks * class.bytes) as u64)
    }

    /// Makes the buffers that a request lacks.
    fn make(&mut self, io: &Io, member: &mut Membership<'_>) -> bool {
        self.was_denied = false;
        let bytes = self.wants(io);
        if bytes == 0 {
            return true;
        }
        let (class, _, count) = self.cut(io);
        let class = &mut self.classes[usize::from(class)];
        let lacks = class.lacks(count).unwrap_or(0);
        if !member.take(bytes) {
            return false;
        }
        let before = class.extra();
        let made = grow::ask(bytes as usize).and_then(|()| class.make(lacks));
        // What the system did not give is not held.
        member.give(bytes - (class.extra() - before));
        self.was_denied = made.is_err();
        made.is_ok()
    }

    /// Whether the system did not give the memory that was asked for last.
    pub fn was_denied(&self) -> bool {
        self.was_denied
    }

    /// Gives all memory back beyond what the connection began with, as far as
    /// it is not in use.
    pub fn give_back(&mut self, member: &mut Membership<'_>) {
        for class in &mut self.classes {
            let before = class.extra();
            // Those that were made together only go together.
            if class.together == 1 {
                class.made -= class.free.len();
                class.free = Vec::new();
            } else if class.free.len() == class.made && class.made > class.own {
                (class.free, class.made) = (Vec::new(), 0);
                // Where this fails, short requests wait for memory as others do.
                let _ = class.make(class.own);
            }
            member.give(before - class.extra());
        }
    }

    #[inline]
    fn buffered(&self, io: &Io) -> bool {
        matches!(io.op, BlockOp::Read | BlockOp::Write) && self.has_data()
    }

    /// Takes a request in, with all buffers that it needs. `None` when there
    /// is no room, or no memory, before another has ended.
    #[inline]
    pub fn admit(&mut self, io: Io, member: &mut Membership<'_>) -> Option<u16> {
        if !self.fits(&io) || !self.make(&io, member) {
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
            Slot { io, status: Status::SUCCESS, left: count as u32, first, issued: 0, next: first };
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
    /// [`limit`](Self::limit); those beyond the connection's share later.
    #[inline]
    pub fn issue(&mut self, slot: u16, seat: usize, cmds: &mut Ring<BlockReq>) {
        if is_zeroing(self.slots[usize::from(slot)].io.op) {
            self.zeroing.push_back(slot);
            return self.issue_zeroing(seat, cmds);
        }
        if !self.waiting.is_empty() || !self.issue_pieces(slot, seat, cmds) {
            self.waiting.push_back(slot);
        }
    }

    /// Puts pieces of a read, a write or a flush at the end of `cmds` as far as
    /// the share goes. Gives whether that were all.
    #[inline]
    fn issue_pieces(&mut self, slot: u16, seat: usize, cmds: &mut Ring<BlockReq>) -> bool {
        let slot = &mut self.slots[usize::from(slot)];
        while slot.next != NONE {
            let piece = &mut self.pieces[slot.next as usize];
            let inside = self.inside + u64::from(piece.len);
            if inside > self.share && self.inside > 0 {
                return false;
            }
            let req = BlockReq {
                id: (seat as u64) << 32 | u64::from(slot.next),
                op: slot.io.op,
                fua: slot.io.fua,
                placement: 0,
                queue: 0,
                offset: slot.io.offset + slot.issued,
                len: piece.len.into(),
                buffer: std::mem::take(&mut piece.data),
            };
            cmds.push(req).expect("there are no more commands than pieces");
            slot.issued += u64::from(piece.len);
            (self.inside, slot.next) = (inside, piece.next);
        }
        true
    }

    /// Has its share of what the drive may have, where so many connections use it.
    #[inline]
    fn take_shares(&mut self, users: usize) {
        let rests = self.inside == 0 && self.waiting.is_empty();
        self.share = share(DATA, LEAST_DATA, users, rests);
        let rests = self.zeroed == 0 && self.zeroing.is_empty();
        self.zeroed_share = share(ZEROED, LEAST_ZEROED, users, rests);
    }

    /// The same for requests that wait, where so many connections use the drive.
    #[inline]
    pub fn issue_waiting(&mut self, users: usize, seat: usize, cmds: &mut Ring<BlockReq>) {
        self.take_shares(users);
        while let Some(&slot) = self.waiting.front() {
            if !self.issue_pieces(slot, seat, cmds) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Puts the next pieces of trims and writes of zeros at the end of `cmds`, as
    /// many as the drive is to have.
    pub fn issue_zeroing(&mut self, seat: usize, cmds: &mut Ring<BlockReq>) {
        while let Some(&number) = self.zeroing.front() {
            let slot = &mut self.slots[usize::from(number)];
            let offset = slot.io.offset + slot.issued;
            // Pieces end at whole multiples, so that no block is cut.
            let left = u64::from(slot.io.len) - slot.issued;
            let most = self.zeroed_share;
            let len = left.min(most - offset % most);
            let piece = &mut self.pieces[slot.first as usize];
            if piece.is_inside || (self.zeroed > 0 && self.zeroed + len > most) {
                return;
            }
            (piece.is_inside, piece.len) = (true, len as u32);
            let id = (seat as u64) << 32 | u64::from(slot.first);
            let (op, fua, buffer) = (slot.io.op, slot.io.fua, Buffer::empty());
            let req = BlockReq { id, op, fua, placement: 0, queue: 0, offset, len, buffer };
            cmds.push(req).expect("there are no more commands than pieces");
            slot.issued += len;
            self.zeroed += len;
            if slot.issued == u64::from(slot.io.len) {
                self.zeroing.pop_front();
            }
        }
    }

    /// Drops what the drive was not given of trims and writes of zeros. `ended`
    /// is told of those of which it has nothing; the others end with what it has.
    pub fn give_up(&mut self, mut ended: impl FnMut(u16)) {
        for number in self.zeroing.drain(..) {
            let slot = &mut self.slots[usize::from(number)];
            slot.status = slot.status.and(Status::ABORTED);
            slot.issued = slot.io.len.into();
            if !self.pieces[slot.first as usize].is_inside {
                slot.left -= 1;
                ended(number);
            }
        }
    }

    /// Drops what the drive was not given of the reads, writes and flushes that
    /// wait and that nobody `wants`. `ended` is told of those of which it has
    /// nothing; the others end with what it has.
    pub fn drop_waiting(&mut self, wants: impl Fn(BlockOp) -> bool, mut ended: impl FnMut(u16)) {
        let (slots, pieces) = (&mut self.slots, &self.pieces);
        self.waiting.retain(|&number| {
            let slot = &mut slots[usize::from(number)];
            if wants(slot.io.op) {
                return true;
            }
            slot.status = slot.status.and(Status::ABORTED);
            while slot.next != NONE {
                slot.left -= 1;
                slot.next = pieces[slot.next as usize].next;
            }
            if slot.left == 0 {
                ended(number);
            }
            false
        });
    }

    /// Whether reads, writes or flushes wait for others of this connection.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the drive keeps pieces of long requests for a next turn.
    #[inline]
    pub fn is_zeroing(&self) -> bool {
        !self.zeroing.is_empty()
    }

    /// Whether the drive has much to do for it at once.
    #[inline]
    pub fn is_heavy(&self) -> bool {
        self.inside >= LARGE as u64 || self.zeroed > 0
    }

    /// Takes a completion in; gives the request that it ended, if it did.
    #[inline]
    pub fn complete(&mut self, done: BlockDone) -> Option<u16> {
        // The seat's number is above it.
        let piece = &mut self.pieces[done.id as u32 as usize];
        piece.data = done.buffer;
        let slot = &mut self.slots[usize::from(piece.slot)];
        slot.status = slot.status.and(done.status);
        if is_zeroing(slot.io.op) {
            piece.is_inside = false;
            self.zeroed -= u64::from(piece.len);
            if slot.issued < u64::from(slot.io.len) {
                return None;
            }
        } else {
            self.inside -= u64::from(piece.len);
        }
        slot.left -= 1;
        (slot.left == 0).then_some(piece.slot)
    }

    /// The client's number and the error of a request that has ended.
    #[inline]
    pub fn reply(&self, slot: u16) -> protocol::Reply {
        let Slot { io, status, .. } = &self.slots[usize::from(slot)];
        protocol::Reply { error: error_of(io.op, *status), cookie: io.cookie }
    }

    /// How a request has ended.
    pub fn status(&self, slot: u16) -> Status {
        self.slots[usize::from(slot)].status
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

/// Whether it takes the drive long and has no data.
fn is_zeroing(op: BlockOp) -> bool {
    matches!(op, BlockOp::Trim | BlockOp::WriteZeroes)
}

/// The protocol's word for how the drive ended a request.
fn error_of(op: BlockOp, status: Status) -> u32 {
    match status {
        // The data are whole: only the drive's own margin is small.
        Status::SUCCESS | Status::HIGH_ECC => protocol::OK,
        Status::LBA_OUT_OF_RANGE if op == BlockOp::Read => protocol::EINVAL,
        Status::LBA_OUT_OF_RANGE | Status::CAPACITY_EXCEEDED | Status::DISK_FULL => {
            protocol::ENOSPC
        }
        Status::INVALID_FIELD => protocol::EINVAL,
        Status::INVALID_OPCODE => protocol::ENOTSUP,
        Status::READ_ONLY | Status::ACCESS_DENIED => protocol::EPERM,
        Status::ABORTED => protocol::ESHUTDOWN,
        _ => protocol::EIO,
    }
}

#[cfg(test)]
mod tests;
