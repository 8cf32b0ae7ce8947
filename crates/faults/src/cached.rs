//! A medium with a cache that loses what was not synced when power goes: a
//! drive file in the cache of a host that crashes.
//!
//! Guarantees: what was done before a barrier was asked for is there after a
//! cut when the barrier was done. Of what came later a cut keeps any part, in
//! any order: each block is old, new or torn, each descriptor one of those it
//! had. But, as a drive file does, an erase is never there without all that was
//! done before it, and an erased chunk is programmed only when its erase is
//! durable.
//!
//! What was not synced is held here, up to a limit; then it is written back.
//! Where the medium below fails to take it, the next barrier fails.

mod cut;

use std::collections::BTreeMap;

use flash::{Chunk, Geometry, Medium, Moved, Ppa, TAG_BYTES};
use port::{BLOCK_BYTES, Lazy, OutOfMemory};

use self::cut::Piece;
pub(crate) use self::cut::settle_chunk;
use crate::medium::{each, settle};
use crate::over::over_another_medium;

/// Blocks that are held at most, unless told otherwise.
const LIMIT: usize = 1 << 16;

/// Something that was done and is not durable.
#[derive(Clone, Copy)]
enum Step {
    /// Blocks `first` to `first + count - 1` of those that are held.
    Program { first: usize, count: u32 },
    /// The erase of a chunk.
    Reset { index: usize },
    /// What a chunk was, and what it is.
    Describe { index: usize, was: Chunk, now: Chunk },
}

/// A block that is held: where its bytes are.
#[derive(Clone, Copy)]
struct Held {
    ppa: u64,
    at: usize,
    bytes: usize,
}

/// A medium that must be synced.
pub struct CachedMedium<M> {
    geometry: Geometry,
    below: M,
    limit: usize,
    steps: Vec<Step>,
    held: Vec<Held>,
    bytes: Vec<u8>,
    tags: Vec<u8>,
    /// Number in `held`, plus one, of the newest copy of a block; 0 for none.
    newest: Lazy<u32>,
    /// By chunk, whether a reset of it is held.
    erased: Vec<bool>,
    /// By chunk, whether a reset came since the chunk was described.
    resets: Vec<bool>,
    /// By chunk, blocks from its start that the medium below may have.
    stored: Vec<u32>,
    /// What the drive said of each chunk last.
    chunks: Vec<Chunk>,
    /// Steps that the medium below has.
    sent: usize,
    /// Steps that the barrier below covers that is asked for.
    asked: Option<usize>,
    /// Steps that were forgotten since the beginning, being durable.
    durable: u64,
    /// Steps since the beginning that the barrier from above covers.
    wanted: Option<u64>,
    /// The medium below refused something that was done here.
    failed: bool,
}

impl<M: Medium> CachedMedium<M> {
    /// A cache over `below`, which is empty.
    pub fn new(geometry: &Geometry, below: M) -> Result<CachedMedium<M>, OutOfMemory> {
        let slots = geometry.chunk_slots();
        Ok(CachedMedium {
            geometry: *geometry,
            below,
            limit: LIMIT,
            steps: Vec::new(),
            held: Vec::new(),
            bytes: Vec::new(),
            tags: Vec::new(),
            newest: Lazy::zeroed(1 << geometry.address_bits(), "the medium's cache")?,
            erased: vec![false; slots],
            resets: vec![false; slots],
            stored: vec![0; slots],
            chunks: vec![Chunk::default(); slots],
            sent: 0,
            asked: None,
            durable: 0,
            wanted: None,
            failed: false,
        })
    }

    /// The same that holds at most `blocks` blocks, or those of one program
    /// where that is more.
    pub fn with_limit(self, blocks: usize) -> CachedMedium<M> {
        CachedMedium { limit: blocks, ..self }
    }

    /// Gives the medium below all steps up to `upto`.
    fn write_back(&mut self, upto: usize) -> Moved {
        while self.sent < upto {
            let moved = match self.steps[self.sent] {
                Step::Program { first, count } => {
                    let Held { ppa, at, bytes } = self.held[first];
                    self.make_room(Ppa(ppa));
                    let data = &self.bytes[at..at + bytes * count as usize];
                    let tags = &self.tags[first * TAG_BYTES..][..count as usize * TAG_BYTES];
                    self.below.program(Ppa(ppa), count, data, tags)
                }
                Step::Reset { index } => self.below.reset(self.geometry.chunk_start(index)),
                Step::Describe { index, now, .. } => {
                    self.below.describe(index, &now);
                    Moved::Done
                }
            };
            if moved == Moved::Pending {
                return Moved::Pending;
            }
            self.failed |= moved == Moved::Failed;
            match self.steps[self.sent] {
                Step::Program { first, count } => {
                    let ppa = Ppa(self.held[first].ppa);
                    let stored = &mut self.stored[self.geometry.chunk_index(ppa)];
                    *stored = (*stored).max(self.geometry.block(ppa) + count);
                }
                Step::Reset { index } => self.stored[index] = 0,
                Step::Describe { .. } => {}
            }
            self.sent += 1;
        }
        Moved::Done
    }

    /// Takes what the medium below has at `ppa` and behind it in the chunk
    /// away, so that it can be programmed. After a cut there may be something.
    fn make_room(&mut self, ppa: Ppa) {
        let (index, block) = (self.geometry.chunk_index(ppa), self.geometry.block(ppa));
        if block >= self.stored[index] {
            return;
        }
        let mut blocks = BTreeMap::new();
        self.gather(index, block, &mut blocks);
        self.rewrite(index, true, &blocks);
    }

    /// Adds the blocks that the medium below has of a chunk, up to block
    /// `end`, to those that are there.
    fn gather(&mut self, index: usize, end: u32, blocks: &mut BTreeMap<u32, Piece>) {
        let start = self.geometry.chunk_start(index).0;
        for block in 0..end {
            if !blocks.contains_key(&block)
                && let Some(piece) = self.piece_below(start + u64::from(block))
            {
                blocks.insert(block, piece);
            }
        }
    }

    /// Makes a chunk of the medium below have these blocks, after a reset or
    /// besides those that it has.
    fn rewrite(&mut self, index: usize, reset: bool, blocks: &BTreeMap<u32, Piece>) {
        let start = self.geometry.chunk_start(index);
        if reset {
            self.failed |= settle(|| self.below.reset(start)) == Moved::Failed;
            self.stored[index] = 0;
        }
        for (&block, piece) in blocks {
            let at = Ppa(start.0 + u64::from(block));
            let moved = settle(|| self.below.program(at, 1, &piece.data, &piece.tag));
            self.failed |= moved == Moved::Failed;
            self.stored[index] = self.stored[index].max(block + 1);
        }
    }

    /// A block as the medium below has it, whole if it was stored so.
    fn piece_below(&mut self, ppa: u64) -> Option<Piece> {
        [BLOCK_BYTES as usize, self.below.kept() as usize].into_iter().find_map(|bytes| {
            let mut piece = Piece { data: vec![0; bytes], tag: [0; TAG_BYTES] };
            let read = settle(|| self.below.read(Ppa(ppa), 1, &mut piece.data, &mut piece.tag));
            (read == Moved::Done).then_some(piece)
        })
    }

    /// Asks for a barrier below that covers all steps, or goes on with one.
    fn sync(&mut self) -> Moved {
        let covered = *self.asked.get_or_insert(self.steps.len());
        if self.write_back(covered) == Moved::Pending {
            return Moved::Pending;
        }
        let moved = self.below.barrier();
        if moved != Moved::Pending {
            self.failed |= moved == Moved::Failed;
            self.asked = None;
            self.forget(covered);
        }
        moved
    }

    /// Forgets the first `n` steps, which are durable.
    fn forget(&mut self, n: usize) {
        self.durable += n as u64;
        for step in self.steps.drain(..n) {
            match step {
                Step::Program { first, count } => {
                    let held = &self.held[first..first + count as usize];
                    held.iter().for_each(|held| self.newest[held.ppa as usize] = 0);
                }
                Step::Reset { index } => self.erased[index] = false,
                Step::Describe { .. } => {}
            }
        }
        self.sent -= n;
        let first = self.steps.iter().find_map(|step| match step {
            Step::Program { first, .. } => Some(*first),
            _ => None,
        });
        let gone = first.unwrap_or(self.held.len());
        let bytes = self.held.get(gone).map_or(self.bytes.len(), |held| held.at);
        self.held.drain(..gone);
        self.bytes.drain(..bytes);
        self.tags.drain(..gone * TAG_BYTES);
        for (number, held) in self.held.iter_mut().enumerate() {
            held.at -= bytes;
            self.newest[held.ppa as usize] = number as u32 + 1;
        }
        for step in &mut self.steps {
            match step {
                Step::Program { first, .. } => *first -= gone,
                Step::Reset { index } => self.erased[*index] = true,
                Step::Describe { .. } => {}
            }
        }
    }

    /// The newest copy of a block, if it is held: its number in `held`.
    fn held_at(&self, ppa: u64) -> Option<usize> {
        (self.newest[ppa as usize] as usize).checked_sub(1)
    }
}

over_another_medium!(CachedMedium);

impl<M: Medium> Medium for CachedMedium<M> {
    fn kept(&self) -> u32 {
        self.below.kept()
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let index = self.geometry.chunk_index(at);
        let waits = |m: &Self| {
            let full = m.held.len() + count as usize > m.limit && !m.steps.is_empty();
            full || m.erased[index]
        };
        while waits(self) {
            if self.sync() == Moved::Pending {
                return Moved::Pending;
            }
        }
        let (first, bytes) = (self.held.len(), each(data.len(), count));
        for i in 0..count as usize {
            let ppa = at.0 + i as u64;
            self.held.push(Held { ppa, at: self.bytes.len() + i * bytes, bytes });
            self.newest[ppa as usize] = self.held.len() as u32;
        }
        self.bytes.extend_from_slice(data);
        self.tags.extend_from_slice(tags);
        self.tags.resize(self.held.len() * TAG_BYTES, 0);
        self.steps.push(Step::Program { first, count });
        Moved::Done
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        let end = at.0 + u64::from(count);
        if self.held.is_empty() || (at.0..end).all(|ppa| self.held_at(ppa).is_none()) {
            return self.below.read(at, count, data, tags);
        }
        let wanted = each(data.len(), count);
        for i in 0..count as usize {
            let ppa = at.0 + i as u64;
            let data = &mut data[i * wanted..][..wanted];
            let tag = match tags.is_empty() {
                true => &mut [][..],
                false => &mut tags[i * TAG_BYTES..][..TAG_BYTES],
            };
            let Some(number) = self.held_at(ppa) else {
                let moved = self.below.read(Ppa(ppa), 1, data, tag);
                if moved != Moved::Done {
                    return moved;
                }
                continue;
            };
            let held = self.held[number];
            if wanted != 0 && wanted != held.bytes {
                return Moved::Failed;
            }
            data.copy_from_slice(&self.bytes[held.at..held.at + wanted]);
            if !tag.is_empty() {
                tag.copy_from_slice(&self.tags[number * TAG_BYTES..][..TAG_BYTES]);
            }
        }
        Moved::Done
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        let index = self.geometry.chunk_index(chunk);
        (self.erased[index], self.resets[index]) = (true, true);
        self.steps.push(Step::Reset { index });
        Moved::Done
    }

    fn barrier(&mut self) -> Moved {
        let all = self.durable + self.steps.len() as u64;
        let wanted = *self.wanted.get_or_insert(all);
        // A barrier that was asked for earlier covers only what was before it.
        loop {
            if self.sync() == Moved::Pending {
                return Moved::Pending;
            }
            if self.durable >= wanted {
                break;
            }
        }
        self.wanted = None;
        if std::mem::take(&mut self.failed) { Moved::Failed } else { Moved::Done }
    }

    fn is_cached(&self) -> bool {
        true
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        let was = std::mem::replace(&mut self.chunks[chunk_index], *chunk);
        let was_reset = std::mem::take(&mut self.resets[chunk_index]);
        if chunk.wear > was.wear && chunk.programmed == 0 && !was_reset {
            // An erase that failed, or a chunk that was retired: it is gone as
            // if it had been erased, and comes after what was done before.
            self.erased[chunk_index] = true;
            self.steps.push(Step::Reset { index: chunk_index });
        }
        self.steps.push(Step::Describe { index: chunk_index, was, now: *chunk });
    }

    fn hint(&self, at: Ppa) {
        self.below.hint(at);
    }

    fn hint_tag(&self, at: Ppa) {
        self.below.hint_tag(at);
    }
}
