//! What a fault or a delay must know of a command and its completion.

use std::ops::Range;

use device::{MAX_ADDRESSES, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, block_bits};
use port::{BlockDone, BlockOp, BlockReq, Completed, Numbered, Status, Time};

use crate::rule::{Operation, Place, Span, WrongPort};

/// No address.
const NOWHERE: Range<u64> = 0..0;

/// A command that can be made to fail or to be late.
pub trait Command: Numbered + Sized {
    /// Its completion.
    type Done: Completion;
    /// What kind of port takes it, for errors.
    const KIND: &'static str;
    /// Where a fault strikes when its rule does not say.
    const PLACE: Place;

    /// What it asks for.
    fn operation(&self) -> Operation;
    /// How many addresses it has: 1 to [`MAX_ADDRESSES`].
    fn count(&self) -> usize;
    /// What address `i` covers; of a copy, its source and its target. Nothing
    /// of a flush.
    fn covers(&self, i: usize) -> [Range<u64>; 2];
    /// Its completion at `at`, where nothing of it was done.
    fn refuse(self, status: Status, at: Time) -> Self::Done;
    /// What a drive says when the operation fails.
    fn failure(operation: Operation) -> Status;
    /// Whether a rule can strike such commands.
    fn check(operation: Operation, span: Option<&Span>) -> Result<(), WrongPort>;
}

/// A completion that can be made to fail.
pub trait Completion: Completed {
    /// Makes the addresses whose bits are set fail. What failed already keeps
    /// its status.
    fn fail(&mut self, status: Status, failed: BlockBits);
}

impl Command for BlockReq {
    type Done = BlockDone;
    const KIND: &'static str = "block port";
    const PLACE: Place = Place::Before;

    fn operation(&self) -> Operation {
        match self.op {
            BlockOp::Read => Operation::Read,
            BlockOp::Write => Operation::Write,
            BlockOp::Flush => Operation::Flush,
            BlockOp::Trim => Operation::Trim,
            BlockOp::WriteZeroes => Operation::WriteZeroes,
        }
    }

    fn count(&self) -> usize {
        1
    }

    fn covers(&self, _i: usize) -> [Range<u64>; 2] {
        match self.op {
            BlockOp::Flush => [NOWHERE, NOWHERE],
            _ => [self.offset..self.offset.saturating_add(self.len), NOWHERE],
        }
    }

    fn refuse(self, status: Status, at: Time) -> BlockDone {
        BlockDone { id: self.id, op: self.op, status, at, buffer: self.buffer }
    }

    fn failure(operation: Operation) -> Status {
        match operation {
            Operation::Read => Status::UNRECOVERED_READ,
            Operation::Write | Operation::WriteZeroes => Status::WRITE_FAULT,
            _ => Status::INTERNAL,
        }
    }

    fn check(operation: Operation, span: Option<&Span>) -> Result<(), WrongPort> {
        let (kind, known) = (Self::KIND, "read, write, flush, trim and write-zeroes");
        match (operation, span) {
            (Operation::Reset | Operation::Copy, _) => {
                Err(WrongPort::Operation { operation, kind, known })
            }
            (_, Some(Span::Ppa(_))) => Err(WrongPort::Span { kind, takes: "offset", given: "ppa" }),
            _ => Ok(()),
        }
    }
}

impl Completion for BlockDone {
    fn fail(&mut self, status: Status, _failed: BlockBits) {
        self.status = self.status.and(status);
    }
}

/// Bits of the addresses of a command of `count`.
fn all(count: usize) -> BlockBits {
    block_bits(0, count.clamp(1, MAX_ADDRESSES))
}

impl Command for VectorCmd {
    type Done = VectorDone;
    const KIND: &'static str = "vector port";
    const PLACE: Place = Place::After;

    fn operation(&self) -> Operation {
        match self.op {
            VectorOp::Read => Operation::Read,
            VectorOp::Write => Operation::Write,
            VectorOp::Reset | VectorOp::Retire => Operation::Reset,
            VectorOp::Copy => Operation::Copy,
            VectorOp::Flush => Operation::Flush,
        }
    }

    fn count(&self) -> usize {
        if self.op == VectorOp::Flush { 1 } else { usize::from(self.count).clamp(1, MAX_ADDRESSES) }
    }

    fn covers(&self, i: usize) -> [Range<u64>; 2] {
        let one = |ppa: u64| ppa..ppa.saturating_add(1);
        match (&self.list, self.op) {
            (_, VectorOp::Flush) => [NOWHERE, NOWHERE],
            (Some(list), VectorOp::Copy) => [one(list.from[i].0), one(list.to[i].0)],
            (Some(list), _) => [one(list.from[i].0), NOWHERE],
            (None, _) => [one(self.ppa.0.saturating_add(i as u64)), NOWHERE],
        }
    }

    fn refuse(self, status: Status, at: Time) -> VectorDone {
        let failed = if self.op == VectorOp::Flush { 0 } else { all(self.count()) };
        let VectorCmd { cookie, list, buffer, .. } = self;
        VectorDone { cookie, status, failed, at, list, buffer }
    }

    fn failure(operation: Operation) -> Status {
        match operation {
            Operation::Read => Status::UNRECOVERED_READ,
            Operation::Write | Operation::Copy => Status::WRITE_FAILED_WRITE_NEXT_UNIT,
            Operation::Reset => Status::OFFLINE_CHUNK,
            Operation::Flush => Status::WRITE_FAULT,
            _ => Status::INTERNAL,
        }
    }

    fn check(operation: Operation, span: Option<&Span>) -> Result<(), WrongPort> {
        let (kind, known) = (Self::KIND, "read, write, flush, reset and copy");
        match (operation, span) {
            (Operation::Trim | Operation::WriteZeroes, _) => {
                Err(WrongPort::Operation { operation, kind, known })
            }
            (_, Some(Span::Offset(_))) => {
                Err(WrongPort::Span { kind, takes: "ppa", given: "offset" })
            }
            _ => Ok(()),
        }
    }
}

impl Completion for VectorDone {
    fn fail(&mut self, status: Status, failed: BlockBits) {
        self.status = self.status.and(status);
        self.failed |= failed;
    }
}
