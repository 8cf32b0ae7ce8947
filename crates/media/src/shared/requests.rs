//! Requests on their way in: whose each is, and what is done with one of several targets.
//!
//! Guarantees: they are taken in their order; what is nobody's is answered with
//! `LBA_OUT_OF_RANGE`. Nothing fails.

use device::OpenChannel;
use ftl::Over;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Pieces, Ring, Status};

use super::{DONE, Guest, Life, Shared, UNCUT, Whole};
use crate::mutation::{self, Mutation};
use crate::partition::Partition;

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Shared<D, T> {
    /// Takes the first of `cmds`; false where there is no room for it.
    pub(super) fn accept(&mut self, cmds: &mut Ring<BlockReq>) -> bool {
        // What ended before is to be taken first, so that it always has room.
        let Some(req) = cmds.front().filter(|_| self.ready.len() < DONE) else { return false };
        let status = self.shape.check(req);
        if !status.is_ok() {
            return self.refuse(cmds, status);
        }
        if req.op == BlockOp::Flush {
            return self.spread(cmds);
        }
        let (first, end) = (req.offset, req.offset + req.len);
        let Some(home) = self.serving(first) else {
            return self.refuse(cmds, Status::LBA_OUT_OF_RANGE);
        };
        let guest = self.guest(home);
        if end > guest.end() || req.len > guest.shape.max_bytes && is_data(req.op) {
            return self.spread(cmds);
        }
        if guest.inside.room() == 0 || guest.waiting.room() == 0 {
            return false;
        }
        let slot = guest.inside.take_as_is();
        let whole = &mut guest.inside[slot];
        (whole.id, whole.left) = (req.id, UNCUT);
        let first = guest.first;
        guest.held += 1;
        let req = cmds.pop_to(&mut guest.waiting);
        (req.id, req.offset) = (name(home, slot), req.offset - first);
        self.waiting |= 1 << home;
        true
    }

    /// Answers the first of `cmds` with an error.
    #[cold]
    fn refuse(&mut self, cmds: &mut Ring<BlockReq>, status: Status) -> bool {
        let Some(BlockReq { id, op, buffer, .. }) = cmds.pop() else { return false };
        let at = self.now;
        self.ready.put(|| BlockDone { id, op, status, at, buffer });
        true
    }

    /// The part of a request that is a target's: the first address and the one behind the
    /// last. A flush of no length is of all.
    fn share(&self, n: usize, req: &BlockReq) -> Option<(u64, u64)> {
        let guest = self.guests[n].as_ref().filter(|guest| guest.life == Life::Serves)?;
        let all = req.op == BlockOp::Flush && req.len == 0;
        let end = if all { u64::MAX } else { req.offset.saturating_add(req.len) };
        let first = if all { 0 } else { req.offset };
        let (first, end) = (first.max(guest.first), end.min(guest.end()));
        (first < end).then_some((first, end))
    }

    /// Takes the first of `cmds`, a piece for each target that has some of it, or more where
    /// the target takes less at once; false where there is no room for them. One of which some
    /// is nobody's is refused.
    fn spread(&mut self, cmds: &mut Ring<BlockReq>) -> bool {
        let Some(req) = cmds.front() else { return false };
        let (mut home, mut left, mut covered) = (None, 0, 0);
        for n in 0..self.guests.len() {
            let Some((first, end)) = self.share(n, req) else { continue };
            let guest = self.guests[n].as_ref().expect("it has a share");
            let pieces = (end - first).div_ceil(guest.most(req.op));
            let has_room = guest.waiting.room() as u64 >= pieces;
            if !has_room || (home.is_none() && guest.inside.room() == 0) {
                return false;
            }
            home = home.or(Some(n));
            (left, covered) = (left + pieces as u32, covered + (end - first));
        }
        let is_flush = req.op == BlockOp::Flush;
        let Some(home) = home.filter(|_| is_flush || covered == req.len) else {
            let status = if is_flush { Status::SUCCESS } else { Status::LBA_OUT_OF_RANGE };
            return self.refuse(cmds, status);
        };
        let Some(mut req) = cmds.pop() else { return false };
        if is_flush && mutation::is(Mutation::FlushFirst) {
            left = 1;
        } else if req.op == BlockOp::Write && mutation::is(Mutation::DropPiece) {
            left -= 1;
        }
        let (status, at) = (Status::SUCCESS, self.now);
        let buffer = Pieces::new(std::mem::take(&mut req.buffer));
        let whole = Whole { id: req.id, op: req.op, status, at, left, buffer };
        let slot = self.guest(home).inside.take(whole);
        let is_data = is_data(req.op);
        // In the order of addresses, as the buffer is cut from its start.
        let mut next = if is_flush { 0 } else { req.offset };
        for _ in 0..left {
            let parts = (0..self.guests.len()).filter_map(|n| Some((n, self.share(n, &req)?)));
            let parts = parts.filter(|&(_, (_, end))| end > next);
            let Some((n, (first, end))) = parts.min_by_key(|&(_, (first, _))| first) else { break };
            let first = first.max(next);
            let end = end.min(first.saturating_add(self.guest(n).most(req.op)));
            next = end;
            let bytes = if is_data { self.shape.stored(end - first) } else { 0 };
            let buffer = match is_data {
                true => self.guest(home).inside[slot].buffer.take(bytes),
                false => Buffer::empty(),
            };
            let guest = self.guest(n);
            let (offset, len) = match is_flush {
                true => (0, 0),
                false => (first - guest.first, end - first),
            };
            let BlockReq { op, fua, placement, queue, .. } = req;
            let id = name(home, slot);
            guest.held += 1;
            let piece = BlockReq { id, op, fua, placement, queue, offset, len, buffer };
            guest.waiting.put(|| piece);
            self.waiting |= 1 << n;
        }
        true
    }
}

/// Whether requests have data, of which a target takes so many bytes at once.
fn is_data(op: BlockOp) -> bool {
    matches!(op, BlockOp::Read | BlockOp::Write)
}

impl<T> Guest<T> {
    /// Bytes that the target takes at once.
    fn most(&self, op: BlockOp) -> u64 {
        if is_data(op) { self.shape.max_bytes } else { u64::MAX }
    }
}

/// What a target is told of a request: who waits for it, and where it is noted.
fn name(home: usize, slot: u32) -> u64 {
    (home as u64) << 32 | u64::from(slot)
}
