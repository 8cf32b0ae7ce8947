//! What is known of a superblock, beyond what its members' chunks say.
//!
//! The write pointer is the superblock's own while the drive is on. At the
//! start it is found: behind the last block that any member has. Blocks below
//! that which no member has were on their way when the power went: they are
//! *owed*, and read as zeros with a zero tag, before and after they are padded.
//! But where a cache below lost a row and not its stripe's parity the row is
//! rebuilt from that. A parity row is always of the rows as they were written in
//! this life.
//!
//! A superblock has *begun* when the member with its first row has a block. No
//! write to it completes before, and that member is erased before all others.
//! So of one that has not begun nothing is there, whatever the other members
//! have: rows of which none was completed, or what a reset had not erased yet.
//! It is begun only when the erases of all members are durable: so where it has
//! begun all that its members have is of this life.

use device::OpenChannel;
use flash::{Chunk, ChunkState, FailedRun, MAX_ROW_BLOCKS};

use crate::layout::Layout;
use crate::mutation::{self, Mutation};

/// No open slot.
pub(crate) const NONE: u32 = u32::MAX;

/// What the blocks of a superblock are stored as, where the medium keeps less
/// than all of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Not known: nothing was written since the start.
    #[default]
    Unknown,
    /// What the medium keeps.
    Kept,
    /// All bytes.
    Whole,
}

/// A superblock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Super {
    /// Write pointer: blocks that were written, or wait to be.
    pub wp: u32,
    /// Blocks that were there when its stripes were last forgotten; what of
    /// them is not programmed is owed.
    pub base: u32,
    /// Its slot among the open ones, or [`NONE`].
    pub open: u32,
    /// Writes and resets inside.
    pub inside: u32,
    /// The last pass over what waits that left something of it waiting.
    pub pass: u32,
    /// Erases, the last accepted one among them.
    pub life: u32,
    /// The number of the last flush that was sent before its members were
    /// erased; one sent later makes the erase durable.
    pub erased: u64,
    /// It takes no more writes until it is erased: a program failed, or a
    /// member is lost.
    pub closed: bool,
    /// It is being made ready; writes wait.
    pub busy: bool,
    /// The notice that it should be collected was given.
    pub told: bool,
    pub stored: Stored,
}

/// The descriptors of a superblock's members.
pub(crate) struct Members<'a, D> {
    pub layout: &'a Layout,
    pub device: &'a D,
    pub sb: usize,
}

impl<D: OpenChannel> Members<'_, D> {
    /// The chunk of data member `data`; after them comes the parity's.
    #[inline]
    pub fn chunk(&self, data: u32) -> Chunk {
        self.device.chunk(self.layout.chunk(self.sb, data))
    }

    pub fn parity(&self) -> Chunk {
        self.chunk(self.layout.data_members())
    }

    pub fn all(&self) -> impl Iterator<Item = Chunk> + '_ {
        (0..self.layout.width).map(|data| self.chunk(data))
    }

    /// Whether a member is offline.
    pub fn is_lame(&self) -> bool {
        self.all().any(|chunk| chunk.state == ChunkState::Offline)
    }

    /// Whether the member with the first row has anything.
    #[inline]
    pub fn is_begun(&self) -> bool {
        let first = self.chunk(0);
        first.programmed > 0 && first.state != ChunkState::Offline
    }

    /// The block behind the last that any member has; 0 where it has not begun.
    fn end(&self) -> u32 {
        if !self.is_begun() {
            return 0;
        }
        let mut end = 0;
        for (data, chunk) in (0..).zip(self.all()) {
            if chunk.state == ChunkState::Offline || chunk.programmed == 0 {
                continue;
            }
            let of_member = if data == self.layout.data_members() {
                chunk.programmed.div_ceil(self.layout.row) * self.layout.stripe_blocks()
            } else {
                self.layout.block_of(data, chunk.programmed - 1) + 1
            };
            end = end.max(of_member);
        }
        end
    }

    /// Whether of some stripe with parity more than one row of data is missing:
    /// the medium lost what it had. These rows are gone; one alone is rebuilt.
    fn is_torn(&self) -> bool {
        let parity = self.parity().programmed;
        let data = self.all().take(self.layout.data_members() as usize);
        data.filter(|chunk| chunk.programmed < parity).count() > 1
    }

    /// The superblock as it is found. One that is torn takes no more writes and
    /// is full: what it never had is owed.
    pub fn survey(&self) -> Super {
        let size = self.layout.chunk_blocks_below();
        let end = self.end();
        let is_over = |chunk: Chunk| chunk.state == ChunkState::Offline || chunk.is_spoilt(size);
        let closed = end > 0 && self.all().any(is_over);
        let is_torn = end > 0 && !closed && self.is_torn();
        let wp = if is_torn { self.layout.size() } else { end };
        Super { wp, base: wp, open: NONE, closed, ..Super::default() }
    }

    /// The first block of the superblock that is not there and is not owed
    /// either: all before it can be read.
    fn programmed(&self, of: &Super) -> u32 {
        if of.inside == 0 || of.closed {
            return of.wp;
        }
        let mut first = of.wp;
        for data in 0..self.layout.data_members() {
            let there = self.chunk(data).programmed.max(self.owed(data, of.base));
            if there < self.layout.chunk_blocks_below() {
                first = first.min(self.layout.block_of(data, there));
            }
        }
        first
    }

    /// How many blocks member `of` has of the first `base` of the superblock;
    /// the parity's has those of whole stripes.
    pub fn owed(&self, of: u32, base: u32) -> u32 {
        let (row, stripe_blocks) = (self.layout.row, self.layout.stripe_blocks());
        let within = (base % stripe_blocks).saturating_sub(of * row).min(row);
        base / stripe_blocks * row + within
    }

    /// The superblock as a chunk.
    pub fn describe(&self, of: &Super) -> Chunk {
        let mut chunk = Chunk::default();
        // Of one that has not begun the members' data are not its own.
        let own = if of.wp > 0 { self.layout.width } else { 0 };
        for member in self.all().take(own as usize) {
            chunk.reads = chunk.reads.max(member.reads);
            chunk.since = match chunk.since {
                0 => member.since,
                since if member.since == 0 => since,
                since => since.min(member.since),
            };
            chunk.level = chunk.level.max(member.level);
        }
        chunk.worn = self.all().any(|member| member.worn);
        let lame = self.is_lame();
        chunk.wear = self.chunk(0).wear.max(of.life);
        (chunk.wp, chunk.programmed) = (of.wp, self.programmed(of));
        chunk.state = match of.wp {
            0 if lame => ChunkState::Offline,
            0 => ChunkState::Free,
            wp if wp == self.layout.size() || of.closed || lame => ChunkState::Closed,
            _ => ChunkState::Open,
        };
        chunk.failed = self.failed(chunk.programmed);
        chunk
    }

    /// Whether all that is needed to rebuild a block should be there: the same block of all
    /// other members.
    pub fn can_rebuild(&self, block: u32) -> bool {
        let (_, own, below) = self.layout.place(block);
        if mutation::is(Mutation::ForgetTaken) && self.chunk(own).failed_of(below, 1) != 0 {
            return false;
        }
        (0..self.layout.width).filter(|&of| of != own).all(|of| {
            let chunk = self.chunk(of);
            chunk.state != ChunkState::Offline
                && below < chunk.programmed
                && chunk.failed_of(below, 1) == 0
        })
    }

    /// Whether a block is nowhere, as its program failed. A stripe has parity only where all
    /// its programs succeeded: what failed below that was one more program of a row that a cut
    /// took, and the row is rebuilt as before.
    pub fn has_failed(&self, block: u32) -> bool {
        let (_, data, below) = self.layout.place(block);
        self.chunk(data).failed_of(below, 1) != 0 && !self.can_rebuild(block)
    }

    /// The first failed programs of all members, as many as a chunk has.
    fn failed(&self, programmed: u32) -> [FailedRun; flash::chunk::MAX_FAILED] {
        let mut runs = <[FailedRun; flash::chunk::MAX_FAILED]>::default();
        if !(0..self.layout.data_members()).any(|data| self.chunk(data).has_failed()) {
            return runs;
        }
        let mut from = 0;
        for run in &mut runs {
            let Some(first) = self.next_failed(from, programmed) else { break };
            let blocks = (first..programmed).take(MAX_ROW_BLOCKS as usize);
            let count = blocks.take_while(|&block| self.has_failed(block)).count() as u32;
            *run = FailedRun::new(first, count);
            from = first + count;
        }
        runs
    }

    /// The first block from `from` on whose program failed, below `end`.
    fn next_failed(&self, from: u32, end: u32) -> Option<u32> {
        let failed = (0..self.layout.data_members()).flat_map(|data| {
            let runs = self.chunk(data).failed;
            let blocks = runs.into_iter().flat_map(|run| run.block()..run.block() + run.count());
            blocks.map(move |block| self.layout.block_of(data, block))
        });
        failed.filter(|&block| (from..end).contains(&block) && self.has_failed(block)).min()
    }
}
