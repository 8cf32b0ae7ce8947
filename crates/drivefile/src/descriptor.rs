//! What is known of a chunk, as it lies in the file.
//!
//! Guarantees: what [`Descriptor::encode`] gives decodes as the same; bytes
//! that were changed, or belong to another chunk, are refused. 64 zeros are a
//! chunk that was never described: free and new.
//!
//! A descriptor says how much was programmed at the ends of the last two sync
//! generations, too. So at an open it is known how much of a chunk was synced:
//! damage there is damage, and what came after may rightly be lost. And so
//! the state can have a sum over all chunks of what was synced
//! ([`Descriptor::share`]), by which zeros in the place of a descriptor, or an
//! older one, are told from what was there: whichever of the later changes
//! reached the disk, each descriptor still says what it was at that sync.

use flash::{Cause, Chunk, ChunkState, FailedRun};
use port::random::{STEP, mix};

use crate::header::{checksum, put_u32, put_u64, u32_at, u64_at};

/// Bytes of a descriptor. A sector holds whole ones, so none is ever torn.
pub const DESCRIPTOR_BYTES: usize = 64;

/// Bytes of [`Chunk::to_bytes`].
const CHUNK_BYTES: usize = 32;

/// Where the chunk's own bytes begin.
const CHUNK: usize = DESCRIPTOR_BYTES - CHUNK_BYTES;

/// From here on the bytes of the next life are those of its chunk: its age and
/// its failed programs.
const NEXT: usize = 20;

/// The chunk was erased; the rest tells of its life before.
const ERASED: u8 = 1;

/// In the life after, it is told that the chunk is worn.
const WORN: u8 = 2;

/// The life after ended, too, without a block: two erases have been.
const TWICE: u8 = 4;

/// Two bits from here on: why the chunk is offline in the life after.
const CAUSE_BITS: u8 = 3;
const CAUSE: u8 = 3 << CAUSE_BITS;

/// What the file knows of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The chunk, [at rest](at_rest). Its wear is the number of its life.
    pub chunk: Chunk,
    /// Blocks programmed at the end of the generation before `generation`, and
    /// of the one before that. More than there are now where the chunk lost
    /// them without an erase: it went offline.
    pub ends: [u32; 2],
    /// The sync generation in which its life or its blocks last changed.
    pub generation: u64,
    /// The life of `chunk` ended in `generation`, and this is how the next one
    /// has begun, as [`next_life`] says it. Until the generation is synced the
    /// chunk still has what it had.
    pub next: Option<Chunk>,
}

/// A chunk as it is after a restart: what was on its way never happened, and
/// where no block can be read nothing is known of any. An offline one has none.
pub fn at_rest(chunk: &Chunk, size: u32) -> Chunk {
    let (mut chunk, closed_early) = (*chunk, chunk.is_closed_early(size));
    if chunk.state == ChunkState::Offline {
        chunk.programmed = 0;
    } else {
        chunk.state = match chunk.programmed {
            0 => ChunkState::Free,
            programmed if programmed == size || closed_early => ChunkState::Closed,
            _ => ChunkState::Open,
        };
    }
    chunk.wp = chunk.programmed;
    if chunk.programmed == 0 {
        chunk.erased();
    }
    chunk
}

/// The beginning of a life, at rest, as far as it is kept while the erase is
/// not durable: all but how often it was read. Nothing where a block was
/// programmed, which cannot have been before that: only programs that failed,
/// and so stored nothing, are known then.
pub fn next_life(chunk: &Chunk) -> Option<Chunk> {
    let failed: u32 = chunk.failed.iter().map(|run| run.count()).sum();
    let begun = Chunk { reads: 0, level: Default::default(), ..*chunk };
    if failed == chunk.programmed { Some(begun) } else { None }
}

impl Descriptor {
    /// Goes on in a later generation.
    pub fn turn(&mut self, generation: u64) {
        if generation == self.generation {
            return;
        }
        let programmed = self.chunk.programmed;
        let before = if generation == self.generation + 1 { self.ends[0] } else { programmed };
        self.ends = [programmed, before];
        self.generation = generation;
    }

    /// The number of the life after the erase.
    pub fn next_wear(&self) -> u32 {
        self.chunk.wear.saturating_add(1)
    }

    /// Whether a chunk erased so often may be told of before the first of the
    /// erases is durable. A second one is not begun until then, but may fail,
    /// or be refused by a chunk that is worn out.
    pub fn may_be_next(&self, wear: u32) -> bool {
        wear == self.next_wear() || wear == self.next_wear().saturating_add(1)
    }

    /// Takes the place of what was known, in the same life.
    pub fn replace(&mut self, chunk: &Chunk) {
        let before = std::mem::replace(&mut self.chunk, *chunk);
        // Of blocks that are gone it is no longer known which ones failed.
        self.ends = self.ends.map(|end| if stores(&before, end) { end } else { 0 });
    }

    /// What chunk `number` adds to the sum over all of what they have, once all
    /// that was described is synced.
    #[inline]
    pub fn share(&self, number: usize) -> u64 {
        if self.next.is_some() {
            // Nothing is stored in the next life yet.
            return 0;
        }
        share(number, &self.chunk, self.chunk.programmed)
    }

    /// What it added to the sum that was written when generation `synced` had
    /// ended.
    pub fn share_at(&self, number: usize, synced: u64) -> u64 {
        if self.generation <= synced {
            return self.share(number);
        }
        share(number, &self.chunk, self.durable(synced))
    }

    /// Begins the next life, if there is one.
    pub fn begin_next(&mut self) {
        if let Some(next) = self.next.take() {
            (self.chunk, self.ends) = (next, [0, 0]);
        }
    }

    /// Takes back what was programmed from block `until` on. The chunk was open
    /// when it had no more than that.
    pub fn cut(&mut self, until: u32, size: u32) {
        let chunk = &mut self.chunk;
        (chunk.programmed, chunk.state) = (until, ChunkState::Open);
        chunk.cause = Cause::Untold;
        for run in &mut chunk.failed {
            if run.block() + run.count() > until {
                *run = Default::default();
            }
        }
        *chunk = at_rest(chunk, size);
    }

    /// Blocks that were programmed when generation `synced` ended.
    pub fn durable(&self, synced: u64) -> u32 {
        match self.generation.saturating_sub(synced) {
            0 => self.chunk.programmed,
            1 => self.ends[0],
            _ => self.ends[1],
        }
    }

    /// Which blocks came with a generation that may not be synced, where they matter
    /// and it is known: the first, and the first behind them.
    pub fn came_with(&self, generation: u64) -> Option<(u32, u32)> {
        let [last, before] = self.ends;
        let (from, to) = match self.generation.checked_sub(generation)? {
            // What it had goes with it.
            0 if self.next.is_some() => return None,
            0 => (last, self.chunk.programmed),
            1 => (before, last),
            _ => return None,
        };
        (from < to && self.chunk.state != ChunkState::Offline).then_some((from, to))
    }

    /// Whether `chunk`, at rest, differs only in what reads have changed: the
    /// same blocks are there, in the same life.
    pub fn was_only_read(&self, chunk: &Chunk) -> bool {
        let Chunk { reads, level, worn, .. } = self.chunk;
        self.next.is_none() && Chunk { reads, level, worn, ..*chunk } == self.chunk
    }

    /// Its bytes, as those of chunk `number` of the file.
    pub fn encode(&self, number: u64) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        put_u32(&mut bytes, 4, self.ends[0]);
        put_u32(&mut bytes, 8, self.ends[1]);
        bytes[12..18].copy_from_slice(&self.generation.to_le_bytes()[..6]);
        if let Some(next) = &self.next {
            let flag = |set: bool, flag: u8| if set { flag } else { 0 };
            bytes[18] = ERASED | flag(next.worn, WORN) | flag(next.wear > self.next_wear(), TWICE);
            bytes[18] |= (next.cause as u8) << CAUSE_BITS;
            bytes[19] = next.state as u8;
            bytes[NEXT..CHUNK].copy_from_slice(&next.to_bytes()[NEXT..]);
        }
        bytes[CHUNK..].copy_from_slice(&self.chunk.to_bytes());
        let sum = sum(&bytes, number);
        put_u32(&mut bytes, 0, sum);
        bytes
    }

    /// The descriptor of chunk `number`, of `size` blocks; or what is wrong
    /// with it.
    ///
    /// # Panics
    /// With fewer than [`DESCRIPTOR_BYTES`].
    pub fn decode(bytes: &[u8], number: u64, size: u32) -> Result<Descriptor, &'static str> {
        let bytes = &bytes[..DESCRIPTOR_BYTES];
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(Descriptor::default());
        }
        if u32_at(bytes, 0) != sum(bytes, number) {
            return Err("its checksum is wrong");
        }
        let own = bytes[CHUNK..].first_chunk().expect("32 bytes");
        let chunk = decode_chunk(own, size)?;
        let ends = [u32_at(bytes, 4), u32_at(bytes, 8)];
        if ends.iter().any(|&end| end > size) {
            return Err("it counts more blocks than there can be");
        }
        let generation = u64_at(bytes, 12) & MAX_GENERATION;
        let mut descriptor = Descriptor { chunk, ends, generation, next: None };
        if bytes[18] & !(ERASED | WORN | TWICE | CAUSE) != 0 {
            return Err("it has unknown flags");
        }
        if bytes[18] & ERASED != 0 {
            let more = u32::from(bytes[18] & TWICE != 0);
            let wear = descriptor.next_wear().saturating_add(more);
            descriptor.next = Some(decode_next(bytes, wear, size)?);
        } else if bytes[18..CHUNK].iter().any(|&byte| byte != 0) {
            return Err("it tells of a next life that has not begun");
        }
        Ok(descriptor)
    }
}

/// A chunk of `size` blocks, at rest.
fn decode_chunk(bytes: &[u8; CHUNK_BYTES], size: u32) -> Result<Chunk, &'static str> {
    let chunk = Chunk::from_bytes(bytes).map_err(|_| "no chunk can be as it says")?;
    if chunk.wp > size || at_rest(&chunk, size) != chunk {
        return Err("its chunk's state and counts contradict each other");
    }
    Ok(chunk)
}

/// The chunk in its next life.
fn decode_next(bytes: &[u8], wear: u32, size: u32) -> Result<Chunk, &'static str> {
    let mut next = [0; CHUNK_BYTES];
    (next[0], next[2]) = (bytes[19], u8::from(bytes[18] & WORN != 0));
    next[3] = (bytes[18] & CAUSE) >> CAUSE_BITS;
    next[NEXT..].copy_from_slice(&bytes[NEXT..CHUNK]);
    // A run's low seven bits are its count.
    let programmed = (u32_at(&next, 24) & 0x7f) + (u32_at(&next, 28) & 0x7f);
    put_u32(&mut next, 4, programmed);
    put_u32(&mut next, 8, programmed);
    put_u32(&mut next, 12, wear);
    decode_chunk(&next, size)
}

/// Whether any of a chunk's first `end` blocks was stored.
#[inline]
fn stores(chunk: &Chunk, end: u32) -> bool {
    let failed = |run: &FailedRun| end.saturating_sub(run.block()).min(run.count());
    chunk.failed.iter().map(failed).sum::<u32>() < end
}

/// What a chunk adds to the sum over all when its first `end` blocks are known.
/// Nothing where none was stored: its life is of no matter then.
#[inline]
fn share(number: usize, chunk: &Chunk, end: u32) -> u64 {
    if !stores(chunk, end) {
        return 0;
    }
    let life = u64::from(chunk.wear) << 32 | u64::from(end);
    let spread = |number: u64| mix(number.wrapping_add(STEP));
    spread(spread(number as u64) ^ life)
}

/// The last generation: it has 48 bits.
pub const MAX_GENERATION: u64 = (1 << 48) - 1;

/// The checksum of a descriptor and of whose it is.
fn sum(bytes: &[u8], number: u64) -> u32 {
    let mut all = [0; DESCRIPTOR_BYTES + 4];
    all[..DESCRIPTOR_BYTES - 4].copy_from_slice(&bytes[4..DESCRIPTOR_BYTES]);
    put_u64(&mut all, DESCRIPTOR_BYTES - 4, number);
    checksum(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Rng, random_chunk};
    use proptest::prelude::*;

    const SIZE: u32 = 64;

    fn descriptors() -> impl Strategy<Value = Descriptor> {
        (any::<u64>(), 0..=MAX_GENERATION).prop_map(|(seed, generation)| {
            let mut rng = Rng(seed);
            let chunk = at_rest(&random_chunk(&mut rng, SIZE), SIZE);
            let first = rng.below(u64::from(chunk.programmed) + 1) as u32;
            let ends = [first, rng.below(u64::from(first) + 1) as u32];
            let mut d = Descriptor { chunk, ends, generation, next: None };
            if rng.one_in(2) {
                let wear = d.next_wear().saturating_add(rng.below(2) as u32);
                let next = Chunk { wear, ..random_chunk(&mut rng, SIZE) };
                d.next = next_life(&at_rest(&next, SIZE));
            }
            d
        })
    }

    proptest! {
        #[test]
        fn it_comes_back(d in descriptors(), number in any::<u64>()) {
            prop_assert_eq!(Descriptor::decode(&d.encode(number), number, SIZE), Ok(d));
        }

        #[test]
        fn a_changed_byte_is_seen(
            d in descriptors(), at in 0..DESCRIPTOR_BYTES, flip in 1u8..
        ) {
            let mut bytes = d.encode(7);
            bytes[at] ^= flip;
            prop_assert!(Descriptor::decode(&bytes, 7, SIZE).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_make_sense(
            d in descriptors(), right_sum: bool,
            changes in prop::collection::vec((4..DESCRIPTOR_BYTES, any::<u8>()), 0..4),
        ) {
            let mut bytes = d.encode(3);
            changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
            if right_sum {
                let sum = sum(&bytes, 3);
                put_u32(&mut bytes, 0, sum);
            }
            if let Ok(d) = Descriptor::decode(&bytes, 3, SIZE) {
                prop_assert!(d.chunk.programmed <= SIZE && d.durable(0) <= SIZE);
                prop_assert_eq!(at_rest(&d.chunk, SIZE), d.chunk);
                prop_assert!(d.next.is_none_or(|next| next_life(&next) == Some(next)));
                prop_assert_eq!(d.encode(3), bytes);
            }
        }

        #[test]
        fn another_chunks_is_refused(d in descriptors(), a in any::<u32>(), b in any::<u32>()) {
            prop_assume!(a != b);
            prop_assert!(Descriptor::decode(&d.encode(a.into()), b.into(), SIZE).is_err());
        }

        #[test]
        fn a_cut_one_is_as_it_was_then(d in descriptors(), until in any::<prop::sample::Index>()) {
            let until = until.index(d.chunk.programmed as usize + 1) as u32;
            let mut cut = Descriptor { ends: [0, 0], ..d };
            cut.cut(until, SIZE);
            prop_assert_eq!((cut.chunk.wp, cut.chunk.programmed), (until, until));
            prop_assert!(!cut.chunk.is_closed_early(SIZE));
            prop_assert_eq!(Descriptor::decode(&cut.encode(0), 0, SIZE), Ok(cut));
        }
    }

    #[test]
    fn it_knows_what_was_synced() {
        let mut d = Descriptor::default();
        for (generation, programmed) in [(2, 8), (2, 16), (3, 24), (4, 32)] {
            d.turn(generation);
            d.chunk.programmed = programmed;
        }
        assert_eq!([4, 3, 2].map(|synced| d.durable(synced)), [32, 24, 16]);
        d.turn(9);
        assert_eq!((d.durable(8), d.durable(7)), (32, 32));
    }

    #[test]
    fn it_knows_what_it_had_whatever_it_became() {
        let full = Chunk { state: ChunkState::Closed, wp: 8, programmed: 8, ..Chunk::default() };
        let mut d = Descriptor { chunk: full, generation: 3, ..Descriptor::default() };
        let had = d.share(7);
        assert!(had != 0 && had != d.share(6));
        // It went offline, and later is told so again.
        let offline = Chunk { state: ChunkState::Offline, ..Chunk::default() };
        for generation in [4, 5] {
            d.turn(generation);
            d.replace(&offline);
            assert_eq!((d.share(7), d.share_at(7, 3)), (0, had));
            assert_eq!(Descriptor::decode(&d.encode(7), 7, SIZE), Ok(d));
        }
        // Nothing that was stored, nothing that is missed.
        let mut failed = Chunk::default();
        failed.write(0, 2, 2, 8).unwrap();
        assert!(failed.fail(0, 2));
        let mut d = Descriptor { chunk: failed, generation: 3, ..Descriptor::default() };
        d.turn(4);
        d.replace(&offline);
        assert_eq!((d.share(7), d.share_at(7, 3)), (0, 0));
    }

    #[test]
    fn a_chunk_closed_early_stays_so() {
        let mut c = Chunk::default();
        c.write(0, 8, 2, 8).unwrap();
        assert!(c.fail(0, 2) && c.fail(2, 2) && !c.fail(4, 2));
        // The program behind it has not ended yet.
        let rest = at_rest(&c, 8);
        assert_eq!((rest.state, rest.wp, rest.failed_of(0, 8)), (ChunkState::Closed, 4, 0b1111));
        assert!(rest.is_closed_early(8));
        // One of which the end is on its way is not.
        let mut c = Chunk::default();
        c.write(0, 8, 2, 8).unwrap();
        c.program(4);
        assert_eq!((c.state, at_rest(&c, 8).state), (ChunkState::Closed, ChunkState::Open));
    }
}
