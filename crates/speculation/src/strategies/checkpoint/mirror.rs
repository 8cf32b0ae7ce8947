//! Checkpoints by a copy of all memory beside it: one is taken by copying what was written since
//! the last, which the kernel tells, and given up by doing nothing.
//!
//! Guarantees: from one [`Mirror::take`] to the next the copy is what memory was at the first.
//! Memory is needed twice. May fail: the kernel does not tell which pages are written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::KeepError;
use super::memory::Memory;
use super::userfault::{ASYNCHRONOUS, Userfault, Written};

/// Who tells which pages were written.
enum Teller {
    /// The protection of userfaultfd, which ends by itself at the first write.
    Userfault { written: Written, _protection: Userfault },
    /// The kernel's soft-dirty bits of all pages of this process.
    SoftDirty(SoftDirty),
}

/// A copy of a memory.
pub struct Mirror {
    teller: Teller,
    copy: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Mirror {
    /// One by userfaultfd.
    pub fn by_userfault(memory: &Memory) -> Result<Mirror, KeepError> {
        let protection = Userfault::open(memory, ASYNCHRONOUS)?;
        let protect = protection.protect(memory.addresses(), true);
        protect.map_err(|e| KeepError::system("protect memory", e))?;
        Ok(Mirror::new(
            memory,
            Teller::Userfault { written: Written::open()?, _protection: protection },
        ))
    }

    /// One by soft-dirty bits.
    pub fn by_soft_dirty(memory: &Memory) -> Result<Mirror, KeepError> {
        let soft_dirty = SoftDirty::open()?;
        soft_dirty.clear()?;
        Ok(Mirror::new(memory, Teller::SoftDirty(soft_dirty)))
    }

    fn new(memory: &Memory, teller: Teller) -> Mirror {
        Mirror { teller, copy: memory.bytes().to_vec(), ranges: Vec::new() }
    }

    /// Takes one in place of the last.
    pub fn take(&mut self, memory: &Memory) -> Result<(), KeepError> {
        self.find(memory, true)?;
        for range in &self.ranges {
            self.copy[range.clone()].copy_from_slice(&memory.bytes()[range.clone()]);
        }
        Ok(())
    }

    /// Copies back what was written since.
    pub fn roll_back(&mut self, memory: &mut Memory) -> Result<(), KeepError> {
        // They stay written, so the next checkpoint copies them once more, and no copy faults.
        self.find(memory, false)?;
        for range in &self.ranges {
            memory.bytes_mut()[range.clone()].copy_from_slice(&self.copy[range.clone()]);
        }
        Ok(())
    }

    /// Finds what was written, and begins anew where that is asked for.
    fn find(&mut self, memory: &Memory, begins: bool) -> Result<(), KeepError> {
        self.ranges.clear();
        match &mut self.teller {
            Teller::Userfault { written, .. } => written.find(memory, begins, &mut self.ranges),
            Teller::SoftDirty(soft_dirty) => {
                soft_dirty.find(memory, &mut self.ranges)?;
                if begins { soft_dirty.clear() } else { Ok(()) }
            }
        }
    }
}

/// Soft-dirty bits: cleared for all pages of the process at once (Linux's `proc_pid_pagemap(5)`).
struct SoftDirty {
    clear: File,
    pagemap: File,
    words: Vec<u8>,
}

/// A page's word has this bit where it was written.
const IS_WRITTEN: u64 = 1 << 55;

impl SoftDirty {
    fn open() -> Result<SoftDirty, KeepError> {
        let absent = |file: &str, e: io::Error| KeepError::Absent(format!("{file}: {e}"));
        let clear = OpenOptions::new().write(true).open("/proc/self/clear_refs");
        let clear = clear.map_err(|e| absent("/proc/self/clear_refs", e))?;
        let pagemap = File::open("/proc/self/pagemap");
        let pagemap = pagemap.map_err(|e| absent("/proc/self/pagemap", e))?;
        Ok(SoftDirty { clear, pagemap, words: Vec::new() })
    }

    fn clear(&self) -> Result<(), KeepError> {
        (&self.clear).write_all(b"4").map_err(|e| KeepError::system("clear soft-dirty bits", e))
    }

    fn find(&mut self, memory: &Memory, found: &mut Vec<Range<usize>>) -> Result<(), KeepError> {
        let (page, addresses) = (memory.page(), memory.addresses());
        self.words.resize(addresses.len() / page * 8, 0);
        let at = addresses.start / page * 8;
        self.pagemap
            .read_exact_at(&mut self.words, at as u64)
            .map_err(|e| KeepError::system("read /proc/self/pagemap", e))?;
        written(&self.words, page, found);
        Ok(())
    }
}

/// The bytes of pages whose words say that they were written, those in a row together.
fn written(words: &[u8], page: usize, found: &mut Vec<Range<usize>>) {
    for (n, word) in words.chunks_exact(8).enumerate() {
        let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        let range = n * page..(n + 1) * page;
        match found.last_mut() {
            _ if word & IS_WRITTEN == 0 => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_a_row_are_one_range() {
        let words = [IS_WRITTEN, 0, IS_WRITTEN | 1, IS_WRITTEN, !IS_WRITTEN, IS_WRITTEN];
        let words: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let mut found = Vec::new();
        written(&words, 10, &mut found);
        assert_eq!(found, [0..10, 20..40, 50..60]);
    }
}
