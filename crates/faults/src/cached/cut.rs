//! What a cut leaves of a medium with a cache: any part of what was not synced.

use std::collections::BTreeMap;

use flash::{Chunk, ChunkState, Medium, Ppa, TAG_BYTES};
use port::random::Random;
use port::{BLOCK_BYTES, SECTOR_BYTES};

use super::{CachedMedium, Step};
use crate::PowerCut;

/// A block's bytes.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) data: Vec<u8>,
    pub(super) tag: [u8; TAG_BYTES],
}

/// What a cut leaves of a chunk.
#[derive(Default)]
struct Left {
    /// Its old blocks are gone.
    erased: bool,
    /// Its new ones, torn or not.
    blocks: BTreeMap<u32, Piece>,
}

/// What happens to a block that is written when power goes.
#[derive(Clone, Copy)]
enum Fate {
    New,
    Lost,
    Torn,
}

/// A cut at work.
struct Cut<'a, M> {
    cache: &'a mut CachedMedium<M>,
    chunks: &'a mut [Chunk],
    left: BTreeMap<usize, Left>,
    random: Random,
}

impl<M: Medium> Cut<'_, M> {
    /// Applies a step.
    fn apply(&mut self, step: Step, mut fate: impl FnMut(&mut Random) -> Fate) {
        match step {
            Step::Program { first, count } => {
                for number in first..first + count as usize {
                    let fate = fate(&mut self.random);
                    self.store(number, fate);
                }
            }
            Step::Reset { index } => {
                let left = self.left.entry(index).or_default();
                left.erased = true;
                left.blocks.clear();
            }
            Step::Describe { index, now, .. } => {
                self.chunks[index] = now;
            }
        }
    }

    /// Stores a block that is held, or a part of it, or nothing.
    fn store(&mut self, number: usize, fate: Fate) {
        let held = self.cache.held[number];
        let mut piece = Piece {
            data: self.cache.bytes[held.at..held.at + held.bytes].to_vec(),
            tag: self.cache.tags[number * TAG_BYTES..][..TAG_BYTES].try_into().expect("a tag"),
        };
        let index = self.cache.geometry.chunk_index(Ppa(held.ppa));
        let block = self.cache.geometry.block(Ppa(held.ppa));
        let left = self.left.entry(index).or_default();
        match fate {
            Fate::Lost => return,
            Fate::New => {}
            Fate::Torn => {
                let old = match left.blocks.get(&block) {
                    Some(piece) => Some(piece.clone()),
                    None if left.erased || block >= self.cache.stored[index] => None,
                    None => self.cache.piece_below(held.ppa),
                };
                tear(&mut piece, old.as_ref(), &mut self.random);
            }
        }
        self.left.get_mut(&index).expect("it was looked at").blocks.insert(block, piece);
    }

    /// Applies some of the steps from `from` on, in any order.
    fn scatter(&mut self, from: usize) {
        let mut chosen: Vec<(Step, u64)> = Vec::new();
        // Whether only erases came so far, and all were made; whose were, and
        // whose were not.
        let (mut ahead, mut made, mut later) = (true, Vec::new(), Vec::new());
        for &step in &self.cache.steps[from..] {
            let kept = match step {
                // The erase that was not made, and what came of it.
                Step::Reset { .. } if !ahead => false,
                Step::Describe { index, .. } if later.contains(&index) => false,
                // An erase is made by saying so.
                Step::Describe { index, .. } if made.contains(&index) => true,
                _ => self.random.chance(0.6),
            };
            let how = self.random.bits();
            if kept {
                chosen.push((step, how));
            }
            match step {
                Step::Reset { index } if kept => made.push(index),
                Step::Reset { index } => later.push(index),
                _ => {}
            }
            ahead &= kept && matches!(step, Step::Reset { .. });
        }
        for i in (1..chosen.len()).rev() {
            let other = self.random.below(i as u64 + 1) as usize;
            chosen.swap(i, other);
        }
        for (step, how) in chosen {
            // Half of the programs are stored whole.
            self.apply(step, |random| match random.below(8) {
                _ if how & 1 == 1 => Fate::New,
                0..3 => Fate::Torn,
                3..5 => Fate::Lost,
                _ => Fate::New,
            });
        }
    }

    /// Makes the medium below have what is left.
    fn realise(self) {
        let Cut { cache, left, .. } = self;
        for (index, Left { erased, mut blocks }) in left {
            let stored = cache.stored[index];
            let over = blocks.keys().next().is_some_and(|&block| block < stored);
            if !erased && over {
                cache.gather(index, stored, &mut blocks);
            }
            cache.rewrite(index, erased || over, &blocks);
        }
    }
}

/// Leaves some sectors of `piece` as they were. Its tag is the last one.
fn tear(piece: &mut Piece, old: Option<&Piece>, random: &mut Random) {
    let bytes = piece.data.len();
    let sector = if bytes as u64 == BLOCK_BYTES { SECTOR_BYTES as usize } else { 4 };
    let data: Vec<u8> = match old {
        Some(old) if old.data.len() == bytes => old.data.clone(),
        _ => vec![0; bytes],
    };
    let sectors = bytes / sector + 1;
    // Neither all nor none.
    let new = random.between(1, ((1 << sectors) - 2).max(1));
    for s in (0..sectors - 1).filter(|s| new >> s & 1 == 0) {
        let part = s * sector..(s + 1) * sector;
        piece.data[part.clone()].copy_from_slice(&data[part]);
    }
    if new >> (sectors - 1) & 1 == 0 {
        piece.tag = old.map_or([0; TAG_BYTES], |old| old.tag);
    } else if sectors == 1 {
        // A block without data is torn in its tag.
        piece.tag[8..].copy_from_slice(&old.map_or([0; TAG_BYTES], |old| old.tag)[8..]);
    }
}

impl<M: Medium + 'static> CachedMedium<M> {
    /// Power goes and comes back: the medium as it is found, with nothing
    /// held, and the descriptors that it has. They may say more than is there,
    /// or less; a [`crate::CheckedMedium`] above finds out.
    pub fn cut(mut self, seed: u64) -> (CachedMedium<M>, Vec<Chunk>) {
        let mut chunks = self.chunks.clone();
        self.power_cut(seed, &mut chunks);
        (self, chunks)
    }
}

impl<M: Medium + 'static> PowerCut for CachedMedium<M> {
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        let (sent, len) = (self.sent, self.steps.len());
        for step in self.steps[sent..].iter().rev() {
            if let Step::Describe { index, was, .. } = *step {
                chunks[index] = was;
            }
        }
        let mut random = Random::new(seed, 0);
        let (kind, some) = (random.below(6), random.between(sent as u64, len as u64) as usize);
        // All is lost; nothing is; what came last is; and any part of it is.
        let mut whole = match kind {
            0 => sent,
            1 => len,
            _ => some,
        };
        // An erase is made by saying so.
        let erase = whole > sent && matches!(self.steps[whole - 1], Step::Reset { .. });
        whole += usize::from(erase && whole < len);
        let mut cut = Cut { cache: self, chunks, left: BTreeMap::new(), random };
        for number in sent..whole {
            cut.apply(cut.cache.steps[number], |_| Fate::New);
        }
        match kind {
            2 if whole < len => {
                if let step @ Step::Program { count, .. } = cut.cache.steps[whole] {
                    let (torn, mut i) = (cut.random.below(count.into()), 0);
                    cut.apply(step, |_| {
                        i += 1;
                        if i <= torn {
                            Fate::New
                        } else if i == torn + 1 {
                            Fate::Torn
                        } else {
                            Fate::Lost
                        }
                    });
                }
            }
            3.. => cut.scatter(whole),
            _ => {}
        }
        cut.realise();
        self.sent = len;
        self.forget(len);
        (self.asked, self.wanted, self.failed) = (None, None, false);
        for chunk in chunks.iter_mut() {
            settle_chunk(chunk, self.geometry.chunk_blocks());
        }
        self.chunks.copy_from_slice(chunks);
        self.resets.fill(false);
    }
}

/// A chunk with nothing on its way.
pub(crate) fn settle_chunk(chunk: &mut Chunk, size: u32) {
    chunk.wp = chunk.programmed;
    if chunk.state != ChunkState::Offline {
        chunk.state = match chunk.wp {
            0 => ChunkState::Free,
            wp if wp == size => ChunkState::Closed,
            _ => ChunkState::Open,
        };
    }
}
