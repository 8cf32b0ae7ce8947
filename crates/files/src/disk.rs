//! What files lie on: blocks of 4 KiB, and what may go wrong with them.

use std::sync::Arc;

use port::Status;
use thiserror::Error;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// The bytes of a block, shared until somebody changes them.
pub type Page = Arc<[u8; BLOCK]>;

/// What was asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Blocks were read.
    Read,
    /// Blocks were written.
    Write,
    /// What was written was to be made durable.
    Flush,
    /// Blocks were given up.
    Trim,
}

/// A request that the disk did not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}: {status}", self.what())]
pub struct DiskError {
    /// What was asked.
    pub request: Request,
    /// The first block.
    pub at: u64,
    /// How many blocks.
    pub blocks: u64,
    /// How it ended.
    pub status: Status,
}

impl DiskError {
    fn what(&self) -> String {
        let Self { at, blocks, .. } = self;
        let doing = match self.request {
            Request::Read => "read",
            Request::Write => "write",
            Request::Flush => return "the drive could not make durable what was written".into(),
            Request::Trim => "give up",
        };
        match blocks {
            1 => format!("the drive could not {doing} its block {at} (of 4 KiB)"),
            n => format!("the drive could not {doing} its {n} blocks (of 4 KiB) from {at} on"),
        }
    }
}

/// A drive of blocks with a volatile cache. What was written is durable after the next flush; a
/// cut before that leaves of each block what it was or any of what was written to it since.
pub trait Disk {
    /// How many blocks there are.
    fn blocks(&self) -> u64;

    /// Reads whole blocks from `at` on.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError>;

    /// Writes whole blocks from `at` on.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Makes durable what was written.
    fn flush(&mut self) -> Result<(), DiskError>;

    /// Begins to make durable what was written until now, without waiting for it; none may be
    /// under way. Until [`Disk::flushed`] says that it is over nothing is written, flushed or given
    /// up; what is read is as ever. A disk that does not know better is done when this returns.
    fn begin_flush(&mut self) -> Result<(), DiskError> {
        self.flush()
    }

    /// Whether no flush that was begun is under way; with `wait` it comes back when that is so. An
    /// error is one of that flush, and told once.
    fn flushed(&mut self, wait: bool) -> Result<bool, DiskError> {
        let _ = wait;
        Ok(true)
    }

    /// Gives up blocks: what they hold from now on is up to the disk.
    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError>;
}

/// An error if blocks of that disk do not all exist, or bytes are not whole blocks.
pub(crate) fn within(
    disk_blocks: u64,
    request: Request,
    at: u64,
    bytes: usize,
) -> Result<(), DiskError> {
    let blocks = (bytes / BLOCK) as u64;
    if bytes.is_multiple_of(BLOCK) && at.checked_add(blocks).is_some_and(|end| end <= disk_blocks) {
        return Ok(());
    }
    Err(DiskError { request, at, blocks, status: Status::LBA_OUT_OF_RANGE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_words() {
        let told = |request, blocks| {
            DiskError { request, at: 20, blocks, status: Status::WRITE_FAULT }.to_string()
        };
        let end = "write fault (type 2, code 0x80)";
        let of_two = format!("the drive could not write its 2 blocks (of 4 KiB) from 20 on: {end}");
        assert_eq!(told(Request::Write, 2), of_two);
        let of_one = format!("the drive could not read its block 20 (of 4 KiB): {end}");
        assert_eq!(told(Request::Read, 1), of_one);
        let durable = format!("the drive could not make durable what was written: {end}");
        assert_eq!(told(Request::Flush, 0), durable);
    }
}
