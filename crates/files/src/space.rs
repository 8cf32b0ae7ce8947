//! Which blocks are taken. There is no map of that on the disk: a mount finds it out.

use crate::error::FilesError;
use crate::mutation::{self, Mutation};

/// A run of blocks that were given up and may still be needed after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Which blocks are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    blocks: u32,
    taken: Vec<u64>,
    free: u64,
    /// Promised to dirty pages that have no block yet.
    reserved: u64,
    /// Free when the next commit of all is durable.
    after_commit: Vec<Given>,
    /// Of metadata: then free when the journal has no more of them.
    metadata_after_commit: Vec<Given>,
    /// The same of the commit that is under way.
    in_commit: Vec<Given>,
    metadata_in_commit: Vec<Given>,
    after_checkpoint: Vec<Given>,
    /// Where the search for room begins that has no better place.
    hint: u32,
}

/// Blocks that stay free for metadata when data take room.
const SLACK: u64 = 40;

impl Space {
    /// All free but the first `fixed`.
    pub(crate) fn new(blocks: u32, fixed: u32) -> Space {
        let mut space = Space {
            blocks,
            taken: vec![0; (blocks as usize).div_ceil(64)],
            free: u64::from(blocks),
            reserved: 0,
            after_commit: Vec::new(),
            metadata_after_commit: Vec::new(),
            in_commit: Vec::new(),
            metadata_in_commit: Vec::new(),
            after_checkpoint: Vec::new(),
            hint: fixed,
        };
        space.claim(0, fixed);
        space
    }

    fn is_taken(&self, block: u32) -> bool {
        self.taken[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// Whether the block exists and is free.
    pub(crate) fn is_free(&self, block: u32) -> bool {
        block < self.blocks && !self.is_taken(block)
    }

    /// Takes blocks that are all free and exist; or changes nothing.
    pub(crate) fn claim(&mut self, start: u32, len: u32) -> bool {
        let Some(end) = start.checked_add(len).filter(|&end| end <= self.blocks) else {
            return false;
        };
        if (start..end).any(|block| self.is_taken(block)) {
            return false;
        }
        for block in start..end {
            self.taken[block as usize / 64] |= 1 << (block % 64);
        }
        self.free -= u64::from(len);
        true
    }

    fn release(&mut self, runs: &[Given]) {
        for &Given { start, len } in runs {
            for block in start..start + len {
                debug_assert!(self.is_taken(block), "block {block} is given up once");
                self.taken[block as usize / 64] &= !(1 << (block % 64));
            }
            self.free += u64::from(len);
        }
    }

    /// The first free block from `from` on, round the end.
    fn next_free(&self, from: u32) -> Option<u32> {
        let words = self.taken.len();
        let first = from as usize / 64 % words;
        // The first word comes twice: the part behind `from`, and at the end the part before.
        for n in 0..=words {
            let at = (first + n) % words;
            let below = if n == 0 { (1u64 << (from % 64)) - 1 } else { 0 };
            let free = !(self.taken[at] | below);
            let block = (at * 64) as u32 + free.trailing_zeros();
            if free != 0 && block < self.blocks {
                return Some(block);
            }
        }
        None
    }

    /// Takes one to `most` blocks in a row, at `goal` if it is free.
    pub(crate) fn take(&mut self, goal: Option<u32>, most: u32) -> Result<Given, FilesError> {
        let goal = goal.filter(|&goal| goal < self.blocks).unwrap_or(self.hint);
        let full = FilesError::NoRoom { needed: 1, free: 0 };
        let start = self.next_free(goal).ok_or(full)?;
        let end = self.blocks.min(start.saturating_add(most));
        let len = (start..end).take_while(|&block| !self.is_taken(block)).count() as u32;
        self.claim(start, len);
        self.hint = if start + len < self.blocks { start + len } else { 0 };
        Ok(Given { start, len })
    }

    /// Gives up blocks of data.
    pub(crate) fn give(&mut self, start: u32, len: u32) {
        if mutation::is(Mutation::ReuseDataEarly) {
            return self.release(&[Given { start, len }]);
        }
        self.after_commit.push(Given { start, len });
    }

    /// Gives up a block of metadata.
    pub(crate) fn give_metadata(&mut self, block: u32) {
        self.metadata_after_commit.push(Given { start: block, len: 1 });
    }

    /// A commit of all begins: what is given up from now on is not in it.
    pub(crate) fn commits(&mut self) {
        self.in_commit.append(&mut self.after_commit);
        self.metadata_in_commit.append(&mut self.metadata_after_commit);
    }

    /// The commit of all that began is durable. What became free.
    pub(crate) fn committed(&mut self) -> Vec<Given> {
        if mutation::is(Mutation::FreeWithCommit) {
            self.commits();
        }
        self.after_checkpoint.append(&mut self.metadata_in_commit);
        let mut free = std::mem::take(&mut self.in_commit);
        if mutation::is(Mutation::ReuseMetadataEarly) {
            free.append(&mut self.after_checkpoint);
        }
        self.release(&free);
        free
    }

    /// The journal has nothing that is not in place. What became free.
    pub(crate) fn checkpointed(&mut self) -> Vec<Given> {
        let free = std::mem::take(&mut self.after_checkpoint);
        self.release(&free);
        free
    }

    /// Whether blocks wait to become free.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Every block that is given up and not free yet.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Given> + '_ {
        let [data, metadata] = [&self.after_commit, &self.metadata_after_commit];
        let lists = [data, metadata, &self.in_commit, &self.metadata_in_commit];
        lists.into_iter().chain([&self.after_checkpoint]).flatten().copied()
    }

    pub(crate) fn reserve(&mut self, pages: u64) {
        self.reserved += pages;
    }

    pub(crate) fn unreserve(&mut self, pages: u64) {
        self.reserved -= pages;
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Blocks that data may still take. Some are kept for what finds the data.
    pub(crate) fn for_data(&self) -> u64 {
        self.free.saturating_sub(self.reserved + self.reserved / 100 + SLACK)
    }

    /// Blocks that metadata may still take.
    pub(crate) fn for_metadata(&self) -> u64 {
        self.free.saturating_sub(self.reserved + self.reserved / 100)
    }

    /// Blocks that are not taken.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Whether the same blocks are taken.
    pub(crate) fn same_taken(&self, other: &Space) -> bool {
        self.taken == other.taken
    }
}
