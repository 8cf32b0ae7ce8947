//! What an operation takes of the drive's room, and of a file's.

use files::{Files, MOST_BYTES, Operation};

use crate::cached::pages;
use crate::engine::DriveDisk;

/// Blocks that stay free of data, so that what has filled a drive can be removed again: as many
/// as some changes of names may need.
pub const RESERVE: u64 = 256;

/// Blocks that an operation may take. What is written over takes none.
pub fn needs(operation: &Operation, files: &Files<DriveDisk>) -> u64 {
    let blocks = |offset, len| {
        let pages = pages(offset, len);
        pages.end - pages.start
    };
    match operation {
        Operation::Write { inode, offset, data } => {
            let len = data.len() as u64;
            match files.new_blocks(*inode, *offset, len) {
                Ok(0) => 0,
                new => new.unwrap_or_else(|_| blocks(*offset, len)) + RESERVE,
            }
        }
        Operation::Allocate { offset, len, .. } => blocks(*offset, *len) + RESERVE,
        Operation::Create { .. } | Operation::Link { .. } => RESERVE,
        // What it takes is within what data leave.
        Operation::Rename { .. } | Operation::Truncate { size: 1.., .. } => 1,
        Operation::Punch { .. } => 1,
        _ => 0,
    }
}

/// Whether a file would become larger than one can be.
pub fn is_too_large(operation: &Operation) -> bool {
    let end = match operation {
        Operation::Write { offset, data, .. } => offset.saturating_add(data.len() as u64),
        Operation::Allocate { offset, len, .. } => offset.saturating_add(*len),
        Operation::Truncate { size, .. } => *size,
        _ => 0,
    };
    end > MOST_BYTES
}
