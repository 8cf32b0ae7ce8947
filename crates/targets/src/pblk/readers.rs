//! Which chunks users are reading.
//!
//! A drive may do an erase before a read that was sent earlier: it owes reads
//! no more than other commands. So a chunk is erased, or retired, when the last
//! read of it has ended. Guarantees: no read is under way of a chunk that
//! [`Readers::hold`] let go; whoever it held back is told by [`Readers::end`],
//! once.

use port::OutOfMemory;
use port::lazy::table;

use super::mutation::{Mutation, is};

/// The erase waits: beside the count of reads.
const HELD: u32 = 1 << 31;

/// Reads under way, by [`flash::Geometry::chunk_index`].
pub(super) struct Readers {
    of: Box<[u32]>,
}

impl Readers {
    /// Bytes that it takes for each chunk.
    pub const BYTES: u64 = size_of::<u32>() as u64;

    pub fn new(chunks: usize) -> Result<Readers, OutOfMemory> {
        Ok(Readers { of: table(0, chunks, "the target's readers")? })
    }

    /// A read of a chunk is sent.
    #[inline]
    pub fn begin(&mut self, chunk: usize) {
        self.of[chunk] += 1;
    }

    /// A read of a chunk has ended. Says whether it was the last that an erase
    /// waits for.
    #[inline]
    pub fn end(&mut self, chunk: usize) -> bool {
        self.of[chunk] -= 1;
        self.of[chunk] == HELD
    }

    /// Whether the erase of a chunk waits for reads. It is asked for again when
    /// the last has ended.
    pub fn hold(&mut self, chunk: usize) -> bool {
        let reads = self.of[chunk] & !HELD;
        let holds = reads > 0 && !is(Mutation::EraseUnderReads);
        self.of[chunk] = if holds { reads | HELD } else { reads };
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erase_waits_for_the_last_read() {
        let mut readers = Readers::new(2).unwrap();
        assert!(!readers.hold(0), "nobody reads it");
        readers.begin(0);
        readers.begin(0);
        readers.begin(1);
        assert!(readers.hold(0) && readers.hold(0));
        assert!(!readers.end(1) && !readers.end(0), "another one reads it");
        assert!(readers.end(0) && !readers.hold(0));
        // That was then.
        readers.begin(0);
        assert!(!readers.end(0));
    }
}
