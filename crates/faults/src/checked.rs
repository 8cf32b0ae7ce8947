//! A medium with a checksum of each block, as real drives keep.
//!
//! The sum covers the block's bytes, its tag, its address and the life of its
//! chunk (how often it was erased). So a damaged, torn, stale, lost or
//! misdirected block reads as [`Moved::Failed`], never as wrong data. A block
//! that was never programmed through this medium cannot be read, unless it was
//! there from the start ([`CheckedMedium::over`]). Nor can the kept bytes of a
//! block that was stored whole, where they are not all of it.
//!
//! Real drives store the sum beside its block. Here it is in a table, 4 bytes
//! a block of address space, which is for small drives. Sums that were
//! replaced since the last barrier are kept, so that after a power cut a block
//! that is old, whole and in its place is known to be so.

use flash::{Chunk, Geometry, Medium, Moved, Ppa, TAG_BYTES};
use port::{BLOCK_BYTES, Lazy, OutOfMemory};
use xxhash_rust::xxh3::Xxh3;

use crate::PowerCut;
use crate::cached::settle_chunk;
use crate::medium::{each, settle};
use crate::over::{over_another_medium, passed_on};

/// Sums and descriptors that were replaced, kept at most; then a barrier is
/// asked for.
const LIMIT: usize = 1 << 20;

/// A block's sum, or 0 for none. The lowest bit says that it is stored whole
/// on a medium that keeps less.
type Sum = u32;

/// A chunk from one erase to the next.
#[derive(Clone, Copy, Default)]
struct Life {
    /// Its number.
    now: u32,
    /// The highest number so far; higher where a cut brought an older one back.
    last: u32,
    /// Something was programmed in it.
    begun: bool,
}

/// What was before it was replaced.
#[derive(Clone, Copy)]
enum Undo {
    Sum { ppa: u64, was: Sum },
    Chunk { index: usize, was: Chunk, life: u32 },
}

/// A medium that knows whether its blocks are what was stored.
pub struct CheckedMedium<M> {
    geometry: Geometry,
    below: M,
    sums: Lazy<Sum>,
    lives: Vec<Life>,
    /// What the drive said of each chunk last, and in which life.
    described: Vec<(Chunk, u32)>,
    /// Since the last barrier, oldest first.
    undo: Vec<Undo>,
    /// How much of that the barrier covers that is asked for.
    asked: Option<usize>,
    /// How many were dropped, being settled.
    dropped: u64,
    /// Up to where the barrier from above goes.
    wanted: Option<u64>,
    /// Room for what the caller does not want to read.
    data: Vec<u8>,
    tags: Vec<u8>,
    /// A barrier that nobody above had asked for failed.
    failed: bool,
    /// Reads that found a block that was not what had been stored.
    refused: u64,
}

impl<M: Medium> CheckedMedium<M> {
    /// Sums over `below`, which is empty.
    pub fn new(geometry: &Geometry, below: M) -> Result<CheckedMedium<M>, OutOfMemory> {
        let slots = geometry.chunk_slots();
        Ok(CheckedMedium {
            geometry: *geometry,
            sums: Lazy::zeroed(1 << geometry.address_bits(), "the medium's checksums")?,
            lives: vec![Life::default(); slots],
            described: vec![(Chunk::default(), 0); slots],
            undo: Vec::new(),
            asked: None,
            dropped: 0,
            wanted: None,
            data: Vec::new(),
            tags: Vec::new(),
            failed: false,
            refused: 0,
            below,
        })
    }

    /// Sums over `below`, which holds what `chunks` say, by
    /// [`Geometry::chunk_index`]: all of it is read once, and taken for right.
    /// What cannot be read now stays so.
    pub fn over(
        geometry: &Geometry,
        below: M,
        chunks: &[Chunk],
    ) -> Result<CheckedMedium<M>, OutOfMemory> {
        let mut medium = CheckedMedium::new(geometry, below)?;
        let kept = medium.below.kept() as usize;
        let (mut data, mut tag) = ([0; BLOCK_BYTES as usize], [0; TAG_BYTES]);
        for (index, chunk) in chunks.iter().enumerate() {
            medium.described[index].0 = *chunk;
            medium.lives[index].begun = chunk.programmed > 0;
            let start = geometry.chunk_start(index).0;
            for ppa in start..start + u64::from(chunk.programmed) {
                // Whole, where it was stored so, else as much as is kept.
                for bytes in [BLOCK_BYTES as usize, kept] {
                    let data = &mut data[..bytes];
                    if settle(|| medium.below.read(Ppa(ppa), 1, data, &mut tag)) == Moved::Done {
                        medium.sums[ppa as usize] = medium.sum(ppa, 0, data, &tag);
                        break;
                    }
                }
            }
        }
        Ok(medium)
    }

    /// How many reads found a block that was not what had been stored.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The sum of a block in a life of its chunk.
    fn sum(&self, ppa: u64, life: u32, data: &[u8], tag: &[u8]) -> Sum {
        let mut hash = Xxh3::with_seed(ppa ^ u64::from(life) << 44);
        hash.update(data);
        hash.update(tag);
        let is_whole = data.len() != self.below.kept() as usize;
        // Never 0, which stands for none.
        (hash.digest() as u32).max(2) & !1 | u32::from(is_whole)
    }

    /// Whether a block is what its sum says.
    fn holds(&self, ppa: u64, data: &[u8], tag: &[u8]) -> bool {
        let life = self.lives[self.geometry.chunk_index(Ppa(ppa))].now;
        self.sums[ppa as usize] == self.sum(ppa, life, data, tag)
    }

    /// A life of a chunk begins.
    fn begin_life(&mut self, chunk: usize) {
        let life = &mut self.lives[chunk];
        life.last += 1;
        *life = Life { now: life.last, last: life.last, begun: false };
    }

    /// Enters the sums of what is programmed; `done` says that it can be read.
    fn enter(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8], done: bool) {
        let chunk = self.geometry.chunk_index(at);
        // A chunk that is written from its start again was erased, though the
        // power went before this medium could do it.
        if self.geometry.block(at) == 0 && self.lives[chunk].begun {
            self.begin_life(chunk);
        }
        self.lives[chunk].begun = true;
        let (life, bytes) = (self.lives[chunk].now, each(data.len(), count));
        for i in 0..count as usize {
            let ppa = at.0 + i as u64;
            let tag = tags.get(i * TAG_BYTES..(i + 1) * TAG_BYTES).unwrap_or(&[0; TAG_BYTES]);
            let sum = self.sum(ppa, life, &data[i * bytes..][..bytes], tag);
            let was = std::mem::replace(&mut self.sums[ppa as usize], sum);
            if done && self.below.is_cached() {
                self.undo.push(Undo::Sum { ppa, was });
            }
        }
    }

    /// Reads `count` blocks of one form and looks at their sums. `None` for
    /// what the caller does not want.
    fn read_run(
        &mut self,
        at: Ppa,
        count: u32,
        bytes: usize,
        data: Option<&mut [u8]>,
        tags: Option<&mut [u8]>,
    ) -> Moved {
        let n = count as usize;
        let (mut own_data, mut own_tags) =
            (std::mem::take(&mut self.data), std::mem::take(&mut self.tags));
        own_data.resize(own_data.len().max(n * bytes), 0);
        own_tags.resize(own_tags.len().max(n * TAG_BYTES), 0);
        let data = data.unwrap_or(&mut own_data[..n * bytes]);
        let tags = tags.unwrap_or(&mut own_tags[..n * TAG_BYTES]);
        let mut moved = self.below.read(at, count, data, tags);
        let good = |i: usize| {
            let tag = &tags[i * TAG_BYTES..][..TAG_BYTES];
            self.holds(at.0 + i as u64, &data[i * bytes..][..bytes], tag)
        };
        if moved == Moved::Done && !(0..n).all(good) {
            moved = Moved::Failed;
            self.refused += 1;
        }
        (self.data, self.tags) = (own_data, own_tags);
        moved
    }

    /// Asks for a barrier below, or goes on with one.
    fn sync(&mut self) -> Moved {
        let covered = *self.asked.get_or_insert(self.undo.len());
        let moved = self.below.barrier();
        if moved != Moved::Pending {
            self.asked = None;
        }
        match moved {
            Moved::Done => {
                self.undo.drain(..covered);
                self.dropped += covered as u64;
            }
            Moved::Failed => self.failed = true,
            Moved::Pending => {}
        }
        moved
    }

    /// Whether a block is stored whole on a medium that keeps less.
    fn is_whole(&self, ppa: u64) -> bool {
        self.sums[ppa as usize] & 1 == 1
    }

    /// Bytes that a block has on the medium.
    fn bytes_of(&self, ppa: u64) -> usize {
        if self.is_whole(ppa) { BLOCK_BYTES as usize } else { self.below.kept() as usize }
    }
}

over_another_medium!(CheckedMedium);

impl<M: Medium> Medium for CheckedMedium<M> {
    fn kept(&self) -> u32 {
        self.below.kept()
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        if self.undo.len() > LIMIT && self.sync() == Moved::Pending {
            return Moved::Pending;
        }
        let moved = self.below.program(at, count, data, tags);
        if moved != Moved::Pending {
            // Also of what failed: then the block is not what was meant. A cut
            // does not ask for it, so that the blocks behind it count.
            self.enter(at, count, data, tags, moved == Moved::Done);
        }
        moved
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        let wanted = each(data.len(), count);
        let mut done = 0;
        while done < count {
            let start = Ppa(at.0 + u64::from(done));
            let bytes = self.bytes_of(start.0);
            if wanted != bytes && wanted != 0 {
                return Moved::Failed;
            }
            let alike = |&i: &u32| self.is_whole(start.0 + u64::from(i)) == self.is_whole(start.0);
            let n = (1..count - done).take_while(alike).count() as u32 + 1;
            let blocks = done as usize..(done + n) as usize;
            let data =
                (wanted == bytes).then(|| &mut data[blocks.start * bytes..blocks.end * bytes]);
            let tags = (!tags.is_empty())
                .then(|| &mut tags[blocks.start * TAG_BYTES..blocks.end * TAG_BYTES]);
            let moved = self.read_run(start, n, bytes, data, tags);
            if moved != Moved::Done {
                return moved;
            }
            done += n;
        }
        Moved::Done
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        let moved = self.below.reset(chunk);
        if moved == Moved::Done {
            self.begin_life(self.geometry.chunk_index(chunk));
        }
        moved
    }

    fn barrier(&mut self) -> Moved {
        // One that is under way may have been begun too early to cover all.
        let all = *self.wanted.get_or_insert(self.dropped + self.undo.len() as u64);
        loop {
            if self.sync() == Moved::Pending {
                return Moved::Pending;
            }
            if self.failed || self.dropped >= all {
                break;
            }
        }
        self.wanted = None;
        if std::mem::take(&mut self.failed) { Moved::Failed } else { Moved::Done }
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        let life = self.lives[chunk_index].now;
        let (was, before) = std::mem::replace(&mut self.described[chunk_index], (*chunk, life));
        if self.below.is_cached() {
            self.undo.push(Undo::Chunk { index: chunk_index, was, life: before });
        }
        self.below.describe(chunk_index, chunk);
    }

    passed_on!();
}

impl<M: PowerCut> CheckedMedium<M> {
    /// Power goes and comes back: the medium as it is found, and the
    /// descriptors of its chunks. What they say is programmed and was not
    /// synced has been looked at: it can be read, unless it is damaged later.
    pub fn cut(mut self, seed: u64) -> (CheckedMedium<M>, Vec<Chunk>) {
        let mut chunks: Vec<Chunk> = self.described.iter().map(|known| known.0).collect();
        self.power_cut(seed, &mut chunks);
        (self, chunks)
    }

    /// The sum among `sums` that a block has in `life`, if it has one.
    fn find_sum(&mut self, ppa: u64, life: u32, sums: impl Iterator<Item = Sum>) -> Option<Sum> {
        for sum in sums.filter(|&sum| sum != 0) {
            let whole = sum & 1 == 1;
            let bytes = if whole { BLOCK_BYTES as usize } else { self.below.kept() as usize };
            let (mut data, mut tag) = ([0; BLOCK_BYTES as usize], [0; TAG_BYTES]);
            let data = &mut data[..bytes];
            let read = settle(|| self.below.read(Ppa(ppa), 1, data, &mut tag));
            if read == Moved::Done && self.sum(ppa, life, data, &tag) == sum {
                return Some(sum);
            }
        }
        None
    }

    /// The life of a chunk in which it was described so.
    fn life_of(&self, index: usize, chunk: &Chunk) -> u32 {
        let replaced = self.undo.iter().rev().filter_map(|undo| match undo {
            Undo::Chunk { index: i, was, life } if *i == index => Some((*was, *life)),
            _ => None,
        });
        let mut all = std::iter::once(self.described[index]).chain(replaced);
        // The drive's write pointer may be ahead of what is programmed.
        let same = |was: &Chunk| (was.wear, was.programmed) == (chunk.wear, chunk.programmed);
        all.find(|(was, _)| same(was)).map_or(self.lives[index].now, |(_, life)| life)
    }

    /// Sets the chunk back to a descriptor that survived, and that to the
    /// blocks that are there. `contested` are the sums that the chunk's blocks
    /// had since the last barrier, in the order of the addresses.
    fn find_chunk(&mut self, index: usize, chunk: &mut Chunk, contested: &[(u64, Sum)]) {
        let life = self.life_of(index, chunk);
        let (start, size) = (self.geometry.chunk_start(index).0, self.geometry.chunk_blocks());
        // A chunk that is back from its erase may have lost what it had.
        let erased = life != self.lives[index].now;
        let mut good = chunk.programmed;
        for block in 0..good {
            if chunk.failed_of(block, 1) != 0 {
                // Its program failed: nothing was ever there to be lost.
                continue;
            }
            let ppa = start + u64::from(block);
            let first = contested.partition_point(|c| c.0 < ppa);
            let known = contested[first..].iter().take_while(|c| c.0 == ppa).map(|c| c.1);
            if !erased && known.clone().next().is_none() {
                continue;
            }
            let now = self.sums[ppa as usize];
            let Some(sum) = self.find_sum(ppa, life, known.chain([now])) else {
                good = block;
                break;
            };
            self.sums[ppa as usize] = sum;
        }
        good -= good % self.geometry.write_blocks();
        // What is past the pointer is given up: were it to be found again after
        // the next cut, lost writes would come back.
        let rest = start + u64::from(good)..start + u64::from(size);
        rest.for_each(|ppa| self.sums[ppa as usize] = 0);
        chunk.programmed = good;
        settle_chunk(chunk, size);
        let lives = &mut self.lives[index];
        (lives.now, lives.begun) = (life, true);
        self.described[index] = (*chunk, life);
    }
}

impl<M: PowerCut> PowerCut for CheckedMedium<M> {
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        self.below.power_cut(seed, chunks);
        let mut contested: Vec<(u64, Sum)> = Vec::new();
        let mut touched: Vec<usize> = Vec::new();
        for undo in &self.undo {
            match *undo {
                Undo::Sum { ppa, was } => {
                    contested.push((ppa, was));
                    touched.push(self.geometry.chunk_index(Ppa(ppa)));
                }
                Undo::Chunk { index, .. } => touched.push(index),
            }
        }
        contested.sort_unstable();
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            let start = self.geometry.chunk_start(index).0;
            let end = start + u64::from(self.geometry.chunk_blocks());
            let first = contested.partition_point(|c| c.0 < start);
            let last = contested.partition_point(|c| c.0 < end);
            let mut chunk = chunks[index];
            self.find_chunk(index, &mut chunk, &contested[first..last]);
            chunks[index] = chunk;
            self.below.describe(index, &chunk);
        }
        self.undo.clear();
        (self.asked, self.wanted) = (None, None);
        // What was found is written down before anything is done with it.
        self.failed = settle(|| self.below.barrier()) == Moved::Failed;
    }
}
