//! The requests of a channel that are inside the drive, and the server's own memory
//! for their data.
//!
//! Guarantees: a channel has no more inside than it has places, and no more work at
//! once than [`SHARE`], unless that is a single request; all memory is taken when it
//! is made. Making it may fail: for want of memory.

use channels::wire::{MAX_DEPTH, Request};
use port::{BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Ring, Shape, Status};
use tags::OwnTags;

/// The most bytes of reads and writes that a channel has inside at once, so that
/// others have their turn; longer requests than this are not taken.
pub const SHARE: u32 = 1 << 20;
/// So many bytes of a trim or write of zeros count as one.
const LIGHTER: u32 = 16;
/// What the smallest request counts as, and a flush, which has no bytes and costs others.
const LEAST: u32 = 4 << 10;
const FLUSH: u32 = 64 << 10;
/// The longest trim or write of zeros.
pub const MOST_TRIM: u32 = SHARE * LIGHTER;
/// With so much inside a channel's turns come after those of who has less.
const HEAVY: u32 = 256 << 10;

/// What is inside for one request.
#[derive(Debug, Default)]
struct Slot {
    id: u64,
    /// Where its data are for the client.
    buffer: u32,
    weight: u32,
    /// What the drive has not of its memory.
    memory: Buffer,
}

/// All of them.
pub struct Slots {
    shape: Shape,
    /// The longest read or write, in bytes of the drive.
    most: u32,
    slots: Box<[Slot]>,
    free: OwnTags,
    /// The sum of all weights.
    inside: u32,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The client's number.
    pub id: u64,
    /// How.
    pub status: Status,
    /// The data of a read that went well, and where the client wants them.
    pub data: Option<(u32, &'a [u8])>,
}

impl Slots {
    /// Of a channel that may have `depth` requests of up to `most` bytes out.
    ///
    /// # Panics
    /// When `depth` is none that a channel can have.
    pub fn new(shape: Shape, depth: u32, most: u32) -> Result<Slots, OutOfMemory> {
        assert!((1..=MAX_DEPTH).contains(&depth), "a channel's depth");
        let memory = Buffer::carve(depth as usize, shape.stored(most.into()))?;
        let slot = |memory| Slot { memory, ..Slot::default() };
        let slots = memory.into_iter().map(slot).collect();
        let free = OwnTags::new(depth).expect("it is in range");
        Ok(Slots { shape, most, slots, free, inside: 0 })
    }

    /// Bytes that it takes.
    pub fn bytes(shape: Shape, depth: u32, most: u32) -> u64 {
        let each = shape.stored(most.into()) + size_of::<Slot>() + size_of::<BlockReq>();
        u64::from(depth) * (each + size_of::<BlockDone>()) as u64
    }

    /// How many are inside.
    #[inline]
    pub fn count(&self) -> u32 {
        self.free.live()
    }

    /// Whether there is room for another.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.free.room() > 0 && self.inside < SHARE
    }

    /// Whether the drive has much to do for it at once.
    #[inline]
    pub fn is_heavy(&self) -> bool {
        self.inside >= HEAVY
    }

    /// Takes a request in, and puts it at the end of `cmds` as one of `seat`'s; `data` copies
    /// those of a write from where the client has them. `fits` is whether so many bytes from
    /// there on are the client's.
    ///
    /// # Errors
    /// The status that answers what the drive cannot be asked.
    ///
    /// # Panics
    /// Unless there is room, in `cmds` as well.
    #[inline(always)]
    pub fn admit(
        &mut self,
        request: Request,
        (seat, cmds): (usize, &mut Ring<BlockReq>),
        fits: impl FnOnce(u32, usize) -> bool,
        data: impl FnOnce(u32, &mut [u8]),
    ) -> Result<(), Status> {
        let Request { id, op, fua, placement, offset, len, buffer } = request;
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        let stored = if moves { self.shape.stored(len.into()) } else { 0 };
        let most = if moves { self.most } else { MOST_TRIM };
        if op != BlockOp::Flush && len > most || moves && !fits(buffer, stored) {
            return Err(Status::INVALID_FIELD);
        }
        let (offset, len) = if op == BlockOp::Flush { (0, 0) } else { (offset, len) };
        let tag = self.free.take().expect("the caller saw room");
        let slot = &mut self.slots[tag as usize];
        slot.weight = match op {
            BlockOp::Flush => FLUSH,
            _ if moves => len.max(LEAST),
            _ => (len / LIGHTER).max(LEAST),
        };
        (slot.id, slot.buffer) = (id, buffer);
        self.inside += slot.weight;
        let (id, len) = ((seat as u64) << 32 | u64::from(tag), len.into());
        // All of it is made in its place: what is moved there stalls the processor.
        cmds.put(|| {
            let mut own = match stored {
                0 => Buffer::empty(),
                all if all == slot.memory.len() => std::mem::take(&mut slot.memory),
                part => slot.memory.split_to(part),
            };
            if op == BlockOp::Write {
                data(buffer, own.bytes_mut());
            }
            BlockReq { id, op, fua, placement, queue: 0, offset, len, buffer: own }
        });
        Ok(())
    }

    /// Gives what has ended to `tell`.
    #[inline(always)]
    pub fn complete(&mut self, mut done: BlockDone, tell: impl FnOnce(Ended<'_>)) {
        // The seat's number is above it.
        let (tag, status) = (done.id as u32, done.status);
        let slot = &mut self.slots[tag as usize];
        let is_read = done.op == BlockOp::Read && (status.is_ok() || status == Status::HIGH_ECC);
        let data = is_read.then(|| (slot.buffer, done.buffer.bytes()));
        tell(Ended { id: slot.id, status, data });
        // Where there are none nothing is moved: that would stall the processor.
        if !done.buffer.is_empty() {
            let mut own = std::mem::take(&mut done.buffer);
            own.join(std::mem::take(&mut slot.memory)).expect("its own memory comes back");
            slot.memory = own;
        }
        self.inside -= slot.weight;
        self.free.give(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: Shape = Shape { bytes: 1 << 30, kept: 4096, max_bytes: 1 << 20, depth: 8 };

    fn request(op: BlockOp, len: u32) -> Request {
        Request { id: 7, op, fua: false, placement: 0, offset: 0, len, buffer: 64 }
    }

    /// As seat 3.
    fn admit(
        slots: &mut Slots,
        request: Request,
        fits: impl FnOnce(u32, usize) -> bool,
        data: impl FnOnce(u32, &mut [u8]),
    ) -> Result<BlockReq, Status> {
        let mut cmds = Ring::new(1);
        slots.admit(request, (3, &mut cmds), fits, data)?;
        let req = cmds.pop().expect("it was put there");
        assert_eq!(req.id >> 32, 3);
        Ok(req)
    }

    fn done(req: BlockReq, status: Status) -> BlockDone {
        let BlockReq { id, op, buffer, .. } = req;
        BlockDone { id, op, status, at: port::Time::ZERO, buffer }
    }

    #[test]
    fn data_go_in_and_come_out() {
        let mut slots = Slots::new(SHAPE, 2, 8192).unwrap();
        let fits = |at, len| (at, len) == (64, 4096);
        let fill = |at: u32, to: &mut [u8]| to.fill(at as u8);
        let req = admit(&mut slots, request(BlockOp::Write, 4096), fits, fill).unwrap();
        assert_eq!((req.buffer.bytes(), slots.count()), (&[64; 4096][..], 1));
        slots.complete(done(req, Status::SUCCESS), |ended| assert_eq!(ended.data, None));
        let mut req = admit(&mut slots, request(BlockOp::Read, 4096), fits, |_, _| ()).unwrap();
        req.buffer.bytes_mut().fill(9);
        slots.complete(done(req, Status::SUCCESS), |ended| {
            assert_eq!((ended.id, ended.data), (7, Some((64, &[9; 4096][..]))));
        });
        let req = admit(&mut slots, request(BlockOp::Read, 4096), fits, |_, _| ()).unwrap();
        slots.complete(done(req, Status::UNRECOVERED_READ), |ended| assert!(ended.data.is_none()));
        assert_eq!(slots.count(), 0);
    }

    #[test]
    fn what_cannot_be_asked_is_answered() {
        let mut slots = Slots::new(SHAPE, 2, 8192).unwrap();
        for (op, len) in
            [(BlockOp::Read, 12288), (BlockOp::Write, u32::MAX), (BlockOp::Trim, MOST_TRIM + 1)]
        {
            let refused = admit(&mut slots, request(op, len), |_, _| true, |_, _| ());
            assert_eq!(refused.unwrap_err(), Status::INVALID_FIELD);
        }
        let refused = admit(&mut slots, request(BlockOp::Write, 4096), |_, _| false, |_, _| ());
        assert_eq!(refused.unwrap_err(), Status::INVALID_FIELD);
        let flush =
            admit(&mut slots, request(BlockOp::Flush, 99), |_, _| false, |_, _| ()).unwrap();
        assert_eq!((flush.len, flush.buffer.len()), (0, 0));
    }

    proptest! {
        /// There is never more inside than the share and one request, and all comes back.
        #[test]
        fn nobody_has_more_than_a_share(
            asked in prop::collection::vec((any::<bool>(), 0u32..=256), 1..100), keep in 0usize..20,
        ) {
            let mut slots = Slots::new(SHAPE, 16, 1 << 20).unwrap();
            let mut out = std::collections::VecDeque::new();
            for (trims, len) in asked {
                let op = if trims { BlockOp::Trim } else { BlockOp::Read };
                while !slots.has_room() || out.len() > keep {
                    let req = out.pop_front().expect("with nothing inside there is room");
                    slots.complete(done(req, Status::SUCCESS), |_| ());
                }
                out.push_back(admit(&mut slots, request(op, len << 12), |_, _| true, |_, _| ()).unwrap());
                prop_assert!(slots.inside < 2 * SHARE && out.len() as u32 == slots.count());
            }
            for req in out {
                slots.complete(done(req, Status::SUCCESS), |_| ());
            }
            prop_assert_eq!((slots.count(), slots.inside), (0, 0));
        }
    }
}
