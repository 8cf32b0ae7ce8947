//! What a file knows of its chunks: how their descriptors change, and when they are written.
//!
//! Guarantees: what a chunk was is known until nothing needs it any more, in case a sync of
//! what it becomes never ends. An error of writing stops the file.

use flash::Chunk;

use super::DriveFile;
use crate::claim;
use crate::descriptor::{Descriptor, next_life};
use crate::mutation::{self, Mutation};

impl DriveFile {
    /// Begins the next life of a chunk that nothing needs any more of what it had.
    #[inline]
    pub(super) fn settle(&mut self, number: usize) {
        let chunk = &mut self.chunks[number];
        let at_once = u64::from(mutation::is(Mutation::ReuseAtOnce));
        if chunk.next.is_some() && chunk.generation < self.completed + at_once {
            chunk.begin_next();
        }
    }

    /// A chunk changes in this generation.
    fn turn(&mut self, number: usize) {
        let chunk = &mut self.chunks[number];
        if chunk.generation != self.generation {
            chunk.turn(self.generation);
            if self.changed.len() <= claim::MOST {
                self.changed.push(number as u32);
            }
        }
    }

    /// Writes a descriptor that tells of something new.
    fn write_change(&mut self, number: usize) {
        self.written = self.generation;
        self.write_descriptor(number);
    }

    fn write_descriptor(&mut self, number: usize) {
        let bytes = self.chunks[number].encode(number as u64);
        if let Err(e) = self.storage.write(self.layout.descriptor(number), &bytes)
            && !mutation::is(Mutation::GoOnUnwritten)
        {
            self.fail_writing("writing a chunk's descriptor", &e);
        }
    }

    /// Takes note of what reads have changed of a chunk. Its generation stays,
    /// as its blocks do.
    pub(super) fn note_reads(&mut self, number: usize, chunk: &Chunk) {
        if self.syncer.is_some() && !self.has_failed() && self.chunks[number].chunk != *chunk {
            self.chunks[number].chunk = *chunk;
            self.write_descriptor(number);
        }
    }

    /// Ends a chunk's life. What is known of it stays, in case the erase is
    /// undone.
    pub(super) fn erase(&mut self, number: usize, next: Chunk) {
        let chunk = &mut self.chunks[number];
        self.table = self.table.wrapping_sub(chunk.share(number));
        self.turn(number);
        self.chunks[number].next = Some(next);
        self.write_change(number);
        // Its space is ever given back only if the file tells of the erase.
        if !self.has_failed() {
            self.erased.push(number as u32);
            self.begin_sync();
        }
    }

    /// Takes note of a chunk, at rest, whose erase is not durable yet. False
    /// where it cannot have become so.
    fn describe_next(&mut self, number: usize, chunk: &Chunk) -> bool {
        let held = &mut self.chunks[number];
        let next = next_life(chunk).filter(|next| held.may_be_next(next.wear));
        if next.is_some() && next != held.next {
            // Still of its generation: what is behind it may be gone already.
            held.next = next;
            self.write_change(number);
        }
        next.is_some()
    }

    /// Takes note of a chunk, at rest. False where it cannot have become so.
    pub(super) fn describe_at_rest(&mut self, number: usize, chunk: &Chunk) -> bool {
        let held = &self.chunks[number];
        if held.next.is_some() {
            return self.describe_next(number, chunk);
        }
        let (before, is_empty) = (held.chunk, (held.chunk.programmed | chunk.programmed) == 0);
        if chunk.wear == before.wear || is_empty {
            let share = held.share(number);
            self.turn(number);
            let held = &mut self.chunks[number];
            held.replace(chunk);
            self.table = self.table.wrapping_sub(share).wrapping_add(held.share(number));
            self.write_change(number);
            return true;
        }
        let erased = chunk.wear == held.next_wear() && chunk.programmed == 0;
        if erased {
            self.erase(number, *chunk);
        }
        erased
    }
}

/// The sum of what `share` says of each chunk and its number.
pub(crate) fn sum_of(chunks: &[Descriptor], share: impl Fn(&Descriptor, usize) -> u64) -> u64 {
    let shares = chunks.iter().enumerate().map(|(number, chunk)| share(chunk, number));
    shares.fold(0, u64::wrapping_add)
}
