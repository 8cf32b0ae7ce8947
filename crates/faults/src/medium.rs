//! A medium that damages, loses and refuses.
//!
//! Damage is kept here, not in the medium below: what a block should have is
//! below, what is wrong with it is in a table that reads look into. So a
//! fault touches the block it is about and no other, on any medium. Damage
//! goes when its block is programmed again or its chunk is reset.
//!
//! An operation's fate is drawn when it is first asked for, and stays the same
//! while the answer is [`Moved::Pending`].

use std::collections::HashMap;

use flash::{Chunk, Geometry, Medium, Moved, Ppa, TAG_BYTES};
use port::random::Random;
use port::{BLOCK_BYTES, SECTOR_BYTES};

use crate::PowerCut;
use crate::over::{over_another_medium, passed_on};
use crate::ranges::Ranges;
use crate::rule::{Access, Counter, MediumFault, MediumRule, Span, WrongPort};

/// Damaged blocks that need no more memory for the tables.
const USUAL: usize = 256;

/// Asks until the medium has moved the bytes.
pub(crate) fn settle(mut ask: impl FnMut() -> Moved) -> Moved {
    loop {
        let moved = ask();
        if moved != Moved::Pending {
            return moved;
        }
    }
}

/// Bytes of each block in a buffer of `len` for `count` blocks.
pub(crate) fn each(len: usize, count: u32) -> usize {
    len / (count as usize).max(1)
}

/// A rule at work.
struct Active {
    fault: MediumFault,
    counter: Counter,
    /// Addresses that fail from now on.
    bad: Ranges,
    /// Barriers fail from now on.
    bad_flush: bool,
}

impl Active {
    /// Whether an operation on `range` is struck. A barrier has no range.
    fn strikes(&mut self, range: &Option<std::ops::Range<u64>>) -> bool {
        let permanent = matches!(self.fault, MediumFault::Fail { permanent: true, .. });
        let part = match range {
            None if self.bad_flush => return true,
            None if self.counter.has_span() => return false,
            None => None,
            Some(range) if self.bad.overlaps(range) => return true,
            Some(range) => Some(self.counter.part_of(range)),
        };
        if part.as_ref().is_some_and(|part| part.is_empty()) || !self.counter.strikes() {
            return false;
        }
        match part {
            _ if !permanent => {}
            Some(part) => self.bad.insert(part),
            None => self.bad_flush = true,
        }
        true
    }
}

/// What becomes of an operation.
#[derive(Clone, Copy)]
enum Fate {
    Good,
    Fail,
    Lost,
    /// The random numbers of the tear.
    Torn(u64),
    Misdirected(Ppa),
}

/// An operation that was asked for and is not done.
struct Asked {
    access: Access,
    at: Ppa,
    /// Answers to go.
    pending: u32,
    fate: Fate,
}

/// What a block has in place of what the medium below has.
#[derive(Default)]
struct Wrong {
    data: Vec<u8>,
    tag: [u8; TAG_BYTES],
}

/// A medium with faults.
pub struct FaultyMedium<M> {
    geometry: Geometry,
    below: M,
    rules: Vec<Active>,
    asked: Vec<Asked>,
    /// Damaged blocks, by address, and where their bytes are.
    wrong: HashMap<u64, u32>,
    store: Vec<Wrong>,
    free: Vec<u32>,
    /// Flipped bytes, by address: which byte, tag first, and which bits.
    flips: HashMap<u64, (u64, u8)>,
}

impl<M: Medium> FaultyMedium<M> {
    /// Faults in `below`. The first rule that strikes an operation decides its
    /// fate; being slow and rot come on top.
    pub fn new(
        geometry: &Geometry,
        below: M,
        rules: &[MediumRule],
        seed: u64,
    ) -> Result<FaultyMedium<M>, WrongPort> {
        let mut medium = FaultyMedium {
            geometry: *geometry,
            below,
            rules: Vec::new(),
            asked: Vec::new(),
            wrong: HashMap::with_capacity(USUAL),
            store: Vec::new(),
            free: Vec::new(),
            flips: HashMap::with_capacity(USUAL),
        };
        medium.set_rules(rules, seed)?;
        Ok(medium)
    }

    /// From now on there are these rules, with nothing counted. What is
    /// damaged stays so. Fails, with the rules as they were, when one can
    /// strike nothing here.
    pub fn set_rules(&mut self, rules: &[MediumRule], seed: u64) -> Result<(), WrongPort> {
        let active = |(index, rule): (usize, &MediumRule)| {
            if let Some(Span::Offset(_)) = rule.trigger.span {
                let (kind, takes, given) = ("medium", "ppa", "offset");
                return Err(WrongPort::Span { kind, takes, given });
            }
            let counter = Counter::new(rule.trigger.clone(), seed, index);
            Ok(Active { fault: rule.fault, counter, bad: Ranges::default(), bad_flush: false })
        };
        self.rules = rules.iter().enumerate().map(active).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// How often each rule struck.
    pub fn struck(&self) -> impl Iterator<Item = u64> + '_ {
        self.rules.iter().map(|active| active.counter.struck())
    }

    /// Flips `bits` of byte `byte` of a block's tag and kept data, the tag
    /// first. A block has one flipped byte at most; the last one counts.
    pub fn rot(&mut self, ppa: Ppa, byte: u64, bits: u8) {
        self.flips.insert(ppa.0, (byte, bits));
    }

    /// Blocks that read other than they were programmed.
    pub fn damaged(&self) -> usize {
        let only_flipped = self.flips.keys().filter(|ppa| !self.wrong.contains_key(ppa)).count();
        self.wrong.len() + only_flipped
    }

    /// The operation's fate, drawn when it is first asked for; `None` when it
    /// is to be asked again.
    fn ask(&mut self, access: Access, at: Ppa, count: u32) -> Option<Fate> {
        let known = self.asked.iter().position(|a| a.access == access && a.at == at);
        let index = known.unwrap_or_else(|| {
            let asked = self.draw(access, at, count);
            self.asked.push(asked);
            self.asked.len() - 1
        });
        let asked = &mut self.asked[index];
        if asked.pending > 0 {
            asked.pending -= 1;
            return None;
        }
        Some(asked.fate)
    }

    /// Answers an operation, and forgets it when it is done.
    fn answer(&mut self, access: Access, at: Ppa, moved: Moved) -> Moved {
        if moved != Moved::Pending {
            self.asked.retain(|a| a.access != access || a.at != at);
        }
        moved
    }

    fn draw(&mut self, access: Access, at: Ppa, count: u32) -> Asked {
        let range = (access != Access::Flush).then(|| at.0..at.0 + u64::from(count));
        let (mut fate, mut pending) = (Fate::Good, 0);
        for active in &mut self.rules {
            let is_rot = active.fault == MediumFault::BitRot;
            if is_rot || !active.fault.access().takes(access) || !active.strikes(&range) {
                continue;
            }
            let random = active.counter.random();
            let drawn = match active.fault {
                MediumFault::Torn => Fate::Torn(random.bits()),
                MediumFault::Lost => Fate::Lost,
                MediumFault::Misdirected => {
                    Fate::Misdirected(elsewhere(&self.geometry, at, count, random))
                }
                MediumFault::Fail { .. } => Fate::Fail,
                MediumFault::Slow { pending: times, .. } => {
                    pending = times.max(pending);
                    continue;
                }
                MediumFault::BitRot => continue,
            };
            if matches!(fate, Fate::Good) {
                fate = drawn;
            }
        }
        Asked { access, at, pending, fate }
    }

    /// Blocks read right again, whatever was wrong with them.
    fn heal(&mut self, start: u64, count: u32) {
        if self.wrong.is_empty() && self.flips.is_empty() {
            return;
        }
        for ppa in start..start + u64::from(count) {
            self.flips.remove(&ppa);
            self.free.extend(self.wrong.remove(&ppa));
        }
    }

    /// Block `ppa` has this in place of what is below.
    fn damage(&mut self, ppa: u64, data: &[u8], tag: &[u8; TAG_BYTES]) {
        self.heal(ppa, 1);
        let id = self.free.pop().unwrap_or_else(|| {
            self.store.push(Wrong::default());
            self.store.len() as u32 - 1
        });
        let wrong = &mut self.store[id as usize];
        wrong.data.clear();
        wrong.data.extend_from_slice(data);
        wrong.tag = *tag;
        self.wrong.insert(ppa, id);
    }

    /// Stores some sectors of a program: the first ones, or any.
    fn tear(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8], seed: u64) {
        let mut random = Random::new(seed, 0);
        let bytes = each(data.len(), count);
        // A digest is torn in its middle, a block without data at its tag.
        let sector = if bytes as u64 == BLOCK_BYTES { SECTOR_BYTES as usize } else { 4 };
        // The tag is the last sector of a block.
        let sectors = bytes / sector + 1;
        let all = count as usize * sectors;
        let first = random.below(all as u64) as usize;
        let scattered = random.chance(0.5);
        for i in 0..count as usize {
            let mut stored = |s: usize| {
                if scattered { random.chance(0.5) } else { i * sectors + s < first }
            };
            let new: u64 = (0..sectors).fold(0, |mask, s| mask | u64::from(stored(s)) << s);
            let ppa = Ppa(at.0 + i as u64);
            let block = &data[i * bytes..][..bytes];
            let tag: [u8; TAG_BYTES] = match tags.get(i * TAG_BYTES..(i + 1) * TAG_BYTES) {
                Some(tag) => tag.try_into().expect("a tag"),
                None => [0; TAG_BYTES],
            };
            if new == (1 << sectors) - 1 {
                settle(|| self.below.program(ppa, 1, block, &tag));
                self.heal(ppa.0, 1);
            } else if new != 0 {
                let (mut mixed, mut old_tag) = ([0; BLOCK_BYTES as usize], [0; TAG_BYTES]);
                let mixed = &mut mixed[..bytes];
                // What cannot be read is as good as zeros.
                settle(|| self.below.read(ppa, 1, mixed, &mut old_tag));
                for s in (0..sectors - 1).filter(|s| new >> s & 1 == 1) {
                    let part = s * sector..(s + 1) * sector;
                    mixed[part.clone()].copy_from_slice(&block[part]);
                }
                let tag = if new >> (sectors - 1) & 1 == 1 { tag } else { old_tag };
                self.damage(ppa.0, mixed, &tag);
            }
        }
    }

    /// Stores a program somewhere else.
    fn misdirect(&mut self, to: Ppa, count: u32, data: &[u8], tags: &[u8]) {
        let bytes = each(data.len(), count);
        for i in 0..count as usize {
            let mut tag = [0; TAG_BYTES];
            if !tags.is_empty() {
                tag.copy_from_slice(&tags[i * TAG_BYTES..][..TAG_BYTES]);
            }
            self.damage(to.0 + i as u64, &data[i * bytes..][..bytes], &tag);
        }
    }

    /// Lets blocks that were read rot.
    fn rot_some(&mut self, at: Ppa, count: u32) {
        let kept = u64::from(self.below.kept());
        for active in &mut self.rules {
            if active.fault != MediumFault::BitRot {
                continue;
            }
            for ppa in at.0..at.0 + u64::from(count) {
                if active.strikes(&Some(ppa..ppa + 1)) {
                    let random = active.counter.random();
                    let byte = random.below(TAG_BYTES as u64 + kept);
                    self.flips.entry(ppa).or_insert((byte, 1 << random.below(8)));
                }
            }
        }
    }

    /// Puts what is wrong with the blocks into what was read.
    fn spoil(&self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        let bytes = each(data.len(), count);
        for i in 0..count as usize {
            let ppa = at.0 + i as u64;
            let data = &mut data[i * bytes..][..bytes];
            let tag = tags.get_mut(i * TAG_BYTES..(i + 1) * TAG_BYTES);
            if let Some(&id) = self.wrong.get(&ppa) {
                let wrong = &self.store[id as usize];
                if bytes > 0 && wrong.data.len() != bytes {
                    return Moved::Failed;
                }
                data.copy_from_slice(&wrong.data[..bytes]);
                if let Some(tag) = tag {
                    tag.copy_from_slice(&wrong.tag);
                }
            }
            let Some(&(byte, bits)) = self.flips.get(&ppa) else { continue };
            let tag = tags.get_mut(i * TAG_BYTES..(i + 1) * TAG_BYTES);
            match (byte.checked_sub(TAG_BYTES as u64), tag) {
                (None, Some(tag)) => tag[byte as usize] ^= bits,
                (Some(byte), _) if bytes > 0 => data[byte as usize % bytes] ^= bits,
                _ => {}
            }
        }
        Moved::Done
    }
}

/// Another place for `count` blocks: in the same chunk, or the same place of
/// another chunk. The same place where there is no other.
fn elsewhere(geometry: &Geometry, at: Ppa, count: u32, random: &mut Random) -> Ppa {
    let (dim, block) = (geometry.dimensions(), geometry.block(at));
    let places = u64::from(geometry.chunk_blocks() + 1 - count.min(geometry.chunk_blocks()));
    let here = geometry.chunk_start(geometry.chunk_index(at));
    let in_chunk = random.chance(0.5);
    for _ in 0..8 {
        let other = if in_chunk {
            Ppa(here.0 + random.below(places))
        } else {
            let (group, pu) = (random.below(dim.groups.into()), random.below(dim.pus.into()));
            let chunk = random.below(dim.chunks.into());
            geometry.ppa(group as u32, pu as u32, chunk as u32, block)
        };
        if other != at {
            return other;
        }
    }
    at
}

over_another_medium!(FaultyMedium);

impl<M: Medium> Medium for FaultyMedium<M> {
    fn kept(&self) -> u32 {
        self.below.kept()
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let Some(fate) = self.ask(Access::Program, at, count) else { return Moved::Pending };
        let moved = match fate {
            Fate::Good => self.below.program(at, count, data, tags),
            Fate::Fail => Moved::Failed,
            _ => Moved::Done,
        };
        match fate {
            Fate::Good if moved == Moved::Done => self.heal(at.0, count),
            Fate::Torn(seed) => self.tear(at, count, data, tags, seed),
            Fate::Misdirected(to) if to != at => self.misdirect(to, count, data, tags),
            _ => {}
        }
        self.answer(Access::Program, at, moved)
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        let Some(fate) = self.ask(Access::Read, at, count) else { return Moved::Pending };
        let mut moved = match fate {
            Fate::Fail => Moved::Failed,
            _ => self.below.read(at, count, data, tags),
        };
        if moved == Moved::Done {
            self.rot_some(at, count);
            moved = self.spoil(at, count, data, tags);
        }
        self.answer(Access::Read, at, moved)
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        let blocks = self.geometry.chunk_blocks();
        let Some(fate) = self.ask(Access::Reset, chunk, blocks) else { return Moved::Pending };
        let moved = match fate {
            Fate::Fail => Moved::Failed,
            _ => self.below.reset(chunk),
        };
        if moved == Moved::Done {
            self.heal(chunk.0, blocks);
        }
        self.answer(Access::Reset, chunk, moved)
    }

    fn barrier(&mut self) -> Moved {
        let Some(fate) = self.ask(Access::Flush, Ppa(0), 0) else { return Moved::Pending };
        let moved = match fate {
            Fate::Fail => Moved::Failed,
            _ => self.below.barrier(),
        };
        self.answer(Access::Flush, Ppa(0), moved)
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        self.below.describe(chunk_index, chunk);
    }

    passed_on!();
}

impl<M: PowerCut> PowerCut for FaultyMedium<M> {
    /// Damage stays; what was asked for and not done is forgotten.
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        self.asked.clear();
        self.below.power_cut(seed, chunks);
    }
}
