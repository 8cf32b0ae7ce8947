//! The block request: what every front sends and every block target takes.

use crate::{Buffer, Status, Time};

/// The logical block of every drive: what one map entry stands for, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// The smallest unit a request may address, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// What a block request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockOp {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write,
    /// Make all writes and trims that completed before durable. No address: but where a
    /// drive is of several targets, one with a length is for those in that range alone.
    Flush,
    /// Give the range up; it reads as zeros.
    Trim,
    /// Make the range read as zeros.
    WriteZeroes,
}

/// A request on the drive's flat address space.
#[derive(Debug)]
pub struct BlockReq {
    /// The caller's own number; comes back in the completion.
    pub id: u64,
    /// What to do.
    pub op: BlockOp,
    /// Complete a write or trim only when it is durable.
    pub fua: bool,
    /// Of a write, with which others its blocks should lie: those of one number
    /// are likely to be given up at about the same time. 0 where nothing is known.
    /// A hint: what is read, and what is durable, does not depend on it.
    pub placement: u8,
    /// The submission queue by which it comes, of a drive that has several; the first,
    /// 0, where it has no such one. Commands of different queues keep no order.
    pub queue: u8,
    /// First byte; a multiple of [`SECTOR_BYTES`].
    pub offset: u64,
    /// Bytes; a multiple of [`SECTOR_BYTES`]. For reads and writes at most
    /// [`Shape::max_bytes`].
    pub len: u64,
    /// The data of a read or write: [`Shape::stored`]`(len)` bytes. Empty for
    /// other operations.
    pub buffer: Buffer,
}

impl BlockReq {
    /// A request that need not be durable, of the first queue, with no placement.
    #[inline]
    pub fn new(id: u64, op: BlockOp, offset: u64, len: u64, buffer: Buffer) -> BlockReq {
        BlockReq { id, op, fua: false, placement: 0, queue: 0, offset, len, buffer }
    }
}

/// A completed block request.
#[derive(Debug)]
pub struct BlockDone {
    /// The request's number.
    pub id: u64,
    /// What was asked.
    pub op: BlockOp,
    /// How it ended.
    pub status: Status,
    /// When the drive completed it, in drive time.
    pub at: Time,
    /// The request's buffer.
    pub buffer: Buffer,
}

/// The outside of a block drive: all that a front must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Logical capacity in bytes, a multiple of [`BLOCK_BYTES`].
    pub bytes: u64,
    /// How many bytes the medium keeps of each logical block: [`BLOCK_BYTES`]
    /// when it keeps the data, 8 when it keeps a 64-bit digest, 0 when it
    /// keeps nothing. Buffers carry this many bytes for each block. Where it
    /// is not [`BLOCK_BYTES`], requests must be whole blocks.
    pub kept: u32,
    /// The longest read or write, in bytes.
    pub max_bytes: u64,
    /// How many requests may be inside at once.
    pub depth: usize,
}

impl Shape {
    /// Bytes in the buffer of a request of `len` bytes.
    #[inline]
    pub fn stored(&self, len: u64) -> usize {
        if u64::from(self.kept) == BLOCK_BYTES {
            len as usize
        } else {
            (len / BLOCK_BYTES) as usize * self.kept as usize
        }
    }

    /// Whether a request can be served at all: alignment, range, length and
    /// buffer. A target answers what this says without looking further.
    #[inline]
    pub fn check(&self, req: &BlockReq) -> Status {
        let data = matches!(req.op, BlockOp::Read | BlockOp::Write);
        if req.op == BlockOp::Flush {
            return if req.buffer.is_empty() { Status::SUCCESS } else { Status::INVALID_FIELD };
        }
        let unit = if u64::from(self.kept) == BLOCK_BYTES { SECTOR_BYTES } else { BLOCK_BYTES };
        if req.len == 0 || !(req.offset | req.len).is_multiple_of(unit) {
            return Status::INVALID_FIELD;
        }
        if req.offset.checked_add(req.len).is_none_or(|end| end > self.bytes) {
            return Status::LBA_OUT_OF_RANGE;
        }
        if data && req.len > self.max_bytes {
            return Status::INVALID_FIELD;
        }
        let expected = if data { self.stored(req.len) } else { 0 };
        if req.buffer.len() != expected {
            return Status::INVALID_FIELD;
        }
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 16, depth: 8 };

    fn read(offset: u64, len: u64, buffer: usize) -> BlockReq {
        BlockReq::new(0, BlockOp::Read, offset, len, Buffer::zeroed(buffer).unwrap())
    }

    #[test]
    fn good_requests_pass() {
        assert_eq!(SHAPE.check(&read(512, 1024, 1024)), Status::SUCCESS);
        assert_eq!(SHAPE.check(&read((1 << 20) - 4096, 4096, 4096)), Status::SUCCESS);
    }

    #[test]
    fn bad_requests_are_told_apart() {
        assert_eq!(SHAPE.check(&read(1, 512, 512)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&read(0, 0, 0)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&read(0, 4096, 512)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&read(0, 1 << 17, 1 << 17)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&read(1 << 20, 512, 512)), Status::LBA_OUT_OF_RANGE);
        assert_eq!(SHAPE.check(&read(u64::MAX - 511, 512, 512)), Status::LBA_OUT_OF_RANGE);
    }

    #[test]
    fn a_digest_drive_takes_whole_blocks_only() {
        let digest = Shape { kept: 8, ..SHAPE };
        assert_eq!(digest.check(&read(0, 8192, 16)), Status::SUCCESS);
        assert_eq!(digest.check(&read(0, 512, 8)), Status::INVALID_FIELD);
    }
}
