//! The memory of requests and checks, used again and again.
//!
//! A life sends thousands of requests and reads all of its drive hundreds of
//! times; new memory for each took a tenth of its time. What is under way when
//! power goes is lost, and taken anew.
//!
//! Guarantees: what a read leaves as it was is no value of the contract.

use port::{Buffer, SECTOR_BYTES};

use crate::machine::MOST_AT_ONCE;

/// What the first word of each sector is before a read: of a write that there
/// never was.
const NEVER: u64 = 0x7fff_ffff_ff00_0000;

/// Buffers that nobody has now.
pub struct Buffers {
    /// By request, what is left of its memory, or all of it.
    requests: [Buffer; MOST_AT_ONCE],
    /// By place in the drive, those of checks.
    checks: Vec<Buffer>,
    /// Bytes kept of a block.
    kept: usize,
    /// Bytes of the longest request.
    longest: usize,
}

fn memory(bytes: usize) -> Buffer {
    Buffer::zeroed(bytes).expect("memory for a small drive")
}

impl Buffers {
    /// For a drive that keeps so many bytes of a block, requests of up to so
    /// many blocks, and checks of so many pieces.
    pub fn new(kept: u32, blocks: u64, pieces: u64) -> Buffers {
        let kept = kept as usize;
        Buffers {
            requests: [const { Buffer::empty() }; MOST_AT_ONCE],
            checks: (0..pieces).map(|_| Buffer::empty()).collect(),
            kept,
            longest: kept * blocks as usize,
        }
    }

    /// `bytes` for a request, to be written whole or [marked](Buffers::mark).
    pub fn request(&mut self, slot: usize, bytes: usize) -> Buffer {
        let held = &mut self.requests[slot];
        if held.len() < bytes {
            *held = memory(self.longest.max(bytes));
        }
        held.split_to(bytes)
    }

    /// A request's buffer is back.
    pub fn request_done(&mut self, slot: usize, mut buffer: Buffer) {
        let rest = std::mem::take(&mut self.requests[slot]);
        if buffer.adjoins(&rest) && buffer.join(rest).is_ok() {
            self.requests[slot] = buffer;
        }
    }

    /// `bytes` for a read of one piece of the drive, marked.
    pub fn check(&mut self, piece: u64, bytes: usize) -> Buffer {
        let mut buffer = std::mem::take(&mut self.checks[piece as usize]);
        if buffer.len() != bytes {
            buffer = memory(bytes);
        }
        self.mark(&mut buffer);
        buffer
    }

    /// The buffer of a piece is back.
    pub fn check_done(&mut self, piece: u64, buffer: Buffer) {
        self.checks[piece as usize] = buffer;
    }

    /// Puts into every sector what a read must replace.
    pub fn mark(&self, buffer: &mut Buffer) {
        let each = self.kept.min(SECTOR_BYTES as usize);
        let sectors = buffer.bytes_mut().chunks_exact_mut(each);
        sectors.for_each(|sector| sector[..8].copy_from_slice(&NEVER.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_marked() {
        for kept in [8, 4096] {
            let mut buffers = Buffers::new(kept, 4, 2);
            let bytes = 2 * kept as usize;
            let mut first = buffers.request(3, bytes);
            let place = first.bytes().as_ptr();
            first.bytes_mut().fill(7);
            buffers.request_done(3, first);
            let mut again = buffers.request(3, 2 * bytes);
            assert_eq!(again.bytes().as_ptr(), place);
            buffers.mark(&mut again);
            let each = kept.min(512) as usize;
            assert!(again.bytes().chunks(each).all(|s| s[..8] == NEVER.to_le_bytes()));
            // It never comes back: power went.
            drop(again);
            assert_eq!(buffers.request(3, bytes).len(), bytes);

            let check = buffers.check(1, bytes);
            let place = check.bytes().as_ptr();
            buffers.check_done(1, check);
            let check = buffers.check(1, bytes);
            assert_eq!(check.bytes().as_ptr(), place);
            assert!(check.bytes().chunks(each).all(|s| s[..8] == NEVER.to_le_bytes()));
        }
    }
}
