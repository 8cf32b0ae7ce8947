//! Power cuts of a cached medium: what was synced is there, and what a
//! descriptor says is programmed reads as it was programmed.

use std::collections::HashMap;

use crate::common::*;
use device::{Device, OpenChannel, VectorOp};
use faults::{CachedMedium, CheckedMedium, FaultyMedium, PowerCut};
use flash::{
    Cause, Chunk, ChunkState, FailedRun, Geometry, Medium, Moved, Ppa, RamMedium, TAG_BYTES, Tag,
    Timing,
};
use port::Status;
use port::random::mix;
use proptest::prelude::*;

/// The chunks that the tests use; few, so that they are erased often.
const CHUNKS: usize = 5;

/// A block's content: a number that no other block has, and whether it is
/// stored whole.
type Content = (u64, bool);

/// What a model knows of a chunk: its wear and the blocks of each life, by
/// wear.
#[derive(Clone, Default)]
struct Model {
    wear: u32,
    lives: HashMap<u32, Vec<Content>>,
}

impl Model {
    fn blocks(&self) -> &[Content] {
        self.lives.get(&self.wear).map_or(&[], Vec::as_slice)
    }

    /// Wear and blocks.
    fn mark(&self) -> (u32, usize) {
        (self.wear, self.blocks().len())
    }
}

/// Marks of all chunks.
type Marks = [(u32, usize); CHUNKS];

/// How often each thing happened to a chunk that was not synced.
#[derive(Debug, Default)]
struct Seen {
    revived: u32,
    cut_back: u32,
    kept: u32,
    some: u32,
    erased: u32,
}

/// A medium at work, as a drive uses one, and what it must have.
struct Work<M> {
    g: Geometry,
    medium: CheckedMedium<M>,
    chunks: [Model; CHUNKS],
    synced: Marks,
    /// What was there when a barrier was first asked for that is not done.
    asked: Option<Marks>,
    /// Erases that are not synced: chunk, wear after it, what was there.
    erases: Vec<(usize, u32, Marks)>,
    next: u64,
    seen: Seen,
    /// Damage that was made on purpose: nothing may be wrong, but may fail.
    damaged: bool,
}

fn fill(content: Content, kept: u32) -> (Vec<u8>, [u8; TAG_BYTES]) {
    let bytes = if content.1 { 4096 } else { kept as usize };
    let words = (0..bytes as u64 / 8).map(|i| mix(content.0 << 12 | i >> 6).rotate_left(i as u32));
    let data = words.flat_map(u64::to_le_bytes).collect();
    let mut tag = [0; TAG_BYTES];
    Tag { id: mix(content.0) >> 40, seq: content.0 }.store(&mut tag);
    (data, tag)
}

/// Asks until it is done.
fn done(mut ask: impl FnMut() -> Moved) -> Moved {
    (0..1000).map(|_| ask()).find(|moved| *moved != Moved::Pending).expect("it ends")
}

impl<M: PowerCut> Work<M> {
    fn new(g: Geometry, below: M) -> Work<M> {
        Work {
            g,
            medium: CheckedMedium::new(&g, below).unwrap(),
            chunks: Default::default(),
            synced: [(0, 0); CHUNKS],
            asked: None,
            erases: Vec::new(),
            next: 1,
            seen: Seen::default(),
            damaged: false,
        }
    }

    fn index(&self, chunk: usize) -> usize {
        // One in each parallel unit, then the second one of the first.
        self.g.chunk_of(chunk % 4, chunk as u32 / 4)
    }

    fn marks(&self) -> Marks {
        std::array::from_fn(|c| self.chunks[c].mark())
    }

    fn descriptor(&self, chunk: usize) -> Chunk {
        let (wear, blocks) = self.chunks[chunk].mark();
        let state = match blocks as u32 {
            0 => ChunkState::Free,
            n if n == self.g.chunk_blocks() => ChunkState::Closed,
            _ => ChunkState::Open,
        };
        Chunk { state, wp: blocks as u32, programmed: blocks as u32, wear, ..Chunk::default() }
    }

    fn describe(&mut self, chunk: usize) {
        let descriptor = self.descriptor(chunk);
        self.medium.describe(self.index(chunk), &descriptor);
    }

    fn program(&mut self, chunk: usize, pages: u32, whole: bool) {
        let at = self.chunks[chunk].blocks().len() as u32;
        let count = (pages * self.g.write_blocks()).min(self.g.chunk_blocks() - at);
        if count == 0 {
            return;
        }
        let kept = self.medium.kept();
        let whole = whole && kept != 4096;
        let (mut data, mut tags, mut contents) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let content = (self.next, whole);
            self.next += 1;
            let (block, tag) = fill(content, kept);
            data.extend(block);
            tags.extend(tag);
            contents.push(content);
        }
        let ppa = Ppa(self.g.chunk_start(self.index(chunk)).0 + u64::from(at));
        let medium = &mut self.medium;
        assert_eq!(done(|| medium.program(ppa, count, &data, &tags)), Moved::Done);
        let model = &mut self.chunks[chunk];
        model.lives.entry(model.wear).or_default().extend(contents);
        self.describe(chunk);
    }

    fn reset(&mut self, chunk: usize) {
        if self.chunks[chunk].blocks().is_empty() {
            return;
        }
        let marks = self.marks();
        let start = self.g.chunk_start(self.index(chunk));
        let medium = &mut self.medium;
        assert_eq!(done(|| medium.reset(start)), Moved::Done);
        self.chunks[chunk].wear += 1;
        self.erases.push((chunk, self.chunks[chunk].wear, marks));
        self.describe(chunk);
    }

    /// Asks for a barrier once.
    fn barrier(&mut self) {
        let marks = self.marks();
        let marks = *self.asked.get_or_insert(marks);
        match self.medium.barrier() {
            Moved::Pending => return,
            Moved::Failed => panic!("nothing fails here"),
            Moved::Done => {}
        }
        self.synced = marks;
        self.asked = None;
        self.erases.retain(|&(chunk, wear, _)| wear > marks[chunk].0);
    }

    /// Reads blocks of a chunk and compares. True when they can be read.
    fn check(&mut self, chunk: usize, from: usize, to: usize) -> bool {
        let model = &self.chunks[chunk];
        let (blocks, kept) = (&model.blocks()[from..to], self.medium.kept());
        let start = self.g.chunk_start(self.index(chunk)).0;
        let mut good = true;
        for (i, &content) in blocks.iter().enumerate() {
            let (data, tag) = fill(content, kept);
            let (mut back, mut back_tag) = (vec![0; data.len()], [0; TAG_BYTES]);
            let (medium, ppa) = (&mut self.medium, Ppa(start + (from + i) as u64));
            let moved = done(|| medium.read(ppa, 1, &mut back, &mut back_tag));
            let mut alone = [0; TAG_BYTES];
            let tags = done(|| medium.read(ppa, 1, &mut [], &mut alone));
            assert!(moved == tags || self.damaged, "the tag is as good as its block");
            if moved == Moved::Done {
                assert!(data == back, "block {from} + {i} of chunk {chunk} has wrong data");
                assert_eq!(tag, back_tag);
            }
            if tags == Moved::Done {
                assert_eq!(tag, alone);
            }
            good &= moved == Moved::Done;
        }
        good
    }

    /// Cuts the power and looks at everything.
    fn cut(mut self, seed: u64) -> Self {
        let (medium, found) = self.medium.cut(seed);
        self.medium = medium;
        let now: Marks = std::array::from_fn(|c| self.chunks[c].mark());
        let mut after = now;
        for c in 0..CHUNKS {
            let index = self.index(c);
            let chunk = found[index];
            let blocks = chunk.programmed as usize;
            after[c] = (chunk.wear, blocks);
            let (old, new) = (self.synced[c], now[c]);
            assert!((old.0..=new.0).contains(&chunk.wear), "{chunk:?} of {old:?} to {new:?}");
            assert_eq!(chunk.wp, chunk.programmed);
            assert!(chunk.programmed.is_multiple_of(self.g.write_blocks()));
            let life = self.chunks[c].lives.entry(chunk.wear).or_default();
            assert!(blocks <= life.len(), "{chunk:?} has {} blocks", life.len());
            life.truncate(blocks);
            // An erased chunk is whole until it is erased.
            if chunk.wear == old.0 && !self.damaged {
                assert!(blocks >= old.1, "synced blocks are gone: {chunk:?} of {old:?}");
            }
            self.chunks[c].wear = chunk.wear;
            // Later lives never were.
            self.chunks[c].lives.retain(|&wear, _| wear <= chunk.wear);
            let readable = self.check(c, 0, blocks);
            assert!(readable || self.damaged, "{chunk:?} of {old:?} to {new:?} cannot be read");
            self.seen.revived += u32::from(chunk.wear < new.0 && blocks > 0);
            self.seen.cut_back += u32::from(chunk.wear == new.0 && blocks < new.1);
            self.seen.some += u32::from(new.0 == old.0 && blocks > old.1 && blocks < new.1);
            self.seen.kept += u32::from(old != new && (chunk.wear, blocks) == new);
            self.seen.erased += u32::from(new.0 > old.0 && (chunk.wear, blocks) == (new.0, 0));
        }
        for (c, wear, before) in std::mem::take(&mut self.erases) {
            if self.damaged || after[c].0 < wear {
                continue;
            }
            // Those that were erased themselves later are not asked.
            for other in (0..CHUNKS).filter(|&other| now[other].0 == before[other].0) {
                assert!(
                    after[other] >= before[other],
                    "chunk {c} is erased, and chunk {other} lost what it had before: \
                     {:?} of {:?}",
                    after[other],
                    before[other]
                );
            }
        }
        self.synced = after;
        self.asked = None;
        self
    }

    /// Works at random for a while.
    fn work(mut self, random: &mut Numbers, steps: u64) -> Self {
        for _ in 0..steps {
            let chunk = random.below(CHUNKS as u64) as usize;
            match random.below(16) {
                0..8 => self.program(chunk, 1 + random.below(4) as u32, random.below(3) == 0),
                8..10 => self.reset(chunk),
                10..12 => self.barrier(),
                _ => {
                    let blocks = self.chunks[chunk].blocks().len();
                    let from = random.below(blocks as u64 + 1) as usize;
                    let to = blocks.min(from + 3);
                    assert!(self.check(chunk, from, to) || self.damaged);
                }
            }
        }
        self
    }
}

/// Works and cuts a few times.
fn life<M: PowerCut>(below: M, seed: u64, seen: &mut Seen) {
    let mut random = Numbers(seed);
    let mut work = Work::new(geometry(), below);
    for _ in 0..4 {
        let steps = random.below(60);
        work = work.work(&mut random, steps);
        work = work.cut(random.below(u64::MAX));
    }
    seen.revived += work.seen.revived;
    seen.cut_back += work.seen.cut_back;
    seen.kept += work.seen.kept;
    seen.some += work.seen.some;
    seen.erased += work.seen.erased;
}

fn ram(kept: u32) -> RamMedium {
    RamMedium::new(&geometry(), kept).unwrap()
}

fn cached<M: Medium>(below: M, limit: usize) -> CachedMedium<M> {
    CachedMedium::new(&geometry(), below).unwrap().with_limit(limit)
}

#[test]
fn cuts_leave_what_they_may() {
    let mut seen = Seen::default();
    for seed in 0..900 {
        let kept = [4096, 8, 0][seed as usize % 3];
        let limit = [1 << 16, 40, 8, 1][seed as usize / 3 % 4];
        life(cached(ram(kept), limit), seed, &mut seen);
    }
    let Seen { revived, cut_back, kept, some, erased } = seen;
    let least = revived.min(cut_back).min(kept).min(some).min(erased);
    assert!(least > 50, "everything happens: {seen:?}");
}

#[test]
fn cuts_of_slow_media_leave_what_they_may() {
    let slow = medium_rules(&["medium:slow,probability=0.3,pending=3"]);
    let mut seen = Seen::default();
    for seed in 0..400 {
        let kept = [4096, 8, 0][seed as usize % 3];
        let below = FaultyMedium::new(&geometry(), ram(kept), &slow, seed).unwrap();
        let cache = cached(below, [1 << 16, 30][seed as usize % 2]);
        let above = FaultyMedium::new(&geometry(), cache, &slow, seed + 1).unwrap();
        life(above, seed, &mut seen);
    }
    assert!(seen.cut_back > 50, "{seen:?}");
}

#[test]
fn damage_is_never_wrong_data_after_a_cut() {
    let faults = medium_rules(&[
        "medium:torn,probability=0.05",
        "medium:lost,probability=0.05",
        "medium:misdirected,probability=0.05",
        "medium:bitrot,probability=0.01",
    ]);
    let mut refused = 0;
    for seed in 0..400 {
        let kept = [4096, 8, 0][seed as usize % 3];
        let cache = cached(ram(kept), 1 << 16);
        let faulty = FaultyMedium::new(&geometry(), cache, &faults, seed).unwrap();
        let mut random = Numbers(seed);
        let mut work = Work::new(geometry(), faulty);
        work.damaged = true;
        for _ in 0..4 {
            work = work.work(&mut random, 40);
            work = work.cut(random.below(u64::MAX));
        }
        refused += work.medium.refused();
    }
    assert!(refused > 1000, "{refused} reads found damage");
}

/// An erase that fails is told by the chunk's descriptor alone. It must not be
/// there without the copies that were made before it.
#[test]
fn a_failed_erase_comes_after_what_was_done_before_it() {
    let (g, row) = (geometry(), 4);
    let (mut gone, mut kept) = (0, 0);
    for seed in 0..400 {
        let mut medium = CheckedMedium::new(&g, cached(ram(8), 1 << 10)).unwrap();
        let write = |medium: &mut CheckedMedium<_>, chunk: usize| {
            let at = g.chunk_start(chunk);
            let (data, tags) = ([7; 32], [3; 4 * TAG_BYTES]);
            assert_eq!(medium.program(at, row, &data, &tags), Moved::Done);
            let state = ChunkState::Open;
            medium.describe(chunk, &Chunk { state, wp: row, programmed: row, ..Chunk::default() });
        };
        let (from, to) = (g.chunk_of(0, 0), g.chunk_of(1, 0));
        write(&mut medium, from);
        assert_eq!(done(|| medium.barrier()), Moved::Done);
        write(&mut medium, to);
        let offline = Chunk { state: ChunkState::Offline, wear: 1, ..Chunk::default() };
        medium.describe(from, &offline);
        let (mut medium, chunks) = medium.cut(seed);
        let mut reads = |chunk| medium.read(g.chunk_start(chunk), row, &mut [0; 32], &mut []);
        if chunks[from] == offline {
            gone += 1;
            assert_eq!((chunks[to].programmed, reads(to)), (row, Moved::Done), "seed {seed}");
        } else {
            kept += 1;
            assert_eq!((chunks[from].programmed, reads(from)), (row, Moved::Done), "seed {seed}");
        }
    }
    assert!(gone > 20 && kept > 20, "{gone} and {kept}");
}

#[test]
fn a_failed_write_back_is_the_next_barriers() {
    let g = geometry();
    let fail = medium_rules(&["medium:fail,on=program,count=1"]);
    let below = FaultyMedium::new(&g, ram(8), &fail, 0).unwrap();
    let mut work = Work::new(g, cached(below, 100));
    work.program(0, 2, false);
    assert!(work.check(0, 0, 4), "the cache has it");
    assert_eq!(work.medium.barrier(), Moved::Failed);
    assert!(!work.check(0, 0, 4), "the medium does not");
    assert_eq!(work.medium.barrier(), Moved::Done);
}

#[test]
fn a_failed_program_loses_only_itself() {
    let g = geometry();
    let fail = medium_rules(&["medium:fail,on=program,from=2,count=1"]);
    for seed in 0..100 {
        let cache = cached(ram(8), 100);
        let faulty = FaultyMedium::new(&g, cache, &fail, 0).unwrap();
        let mut medium = CheckedMedium::new(&g, faulty).unwrap();
        let block = |m: &mut CheckedMedium<_>, b| m.read(Ppa(b), 1, &mut [0; 8], &mut [0; 16]);
        for row in 0..3 {
            let moved = medium.program(Ppa(row * 4), 4, &[1; 32], &[2; 64]);
            assert_eq!(moved == Moved::Failed, row == 1);
            let programmed = row as u32 * 4 + 4;
            let state = ChunkState::Open;
            medium.describe(0, &Chunk { state, wp: programmed, programmed, ..Chunk::default() });
        }
        let (mut medium, chunks) = medium.cut(seed);
        for b in 0..u64::from(chunks[0].programmed) {
            let expected = if (4..8).contains(&b) { Moved::Failed } else { Moved::Done };
            assert_eq!(block(&mut medium, b), expected, "block {b} of {:?}", chunks[0]);
        }
    }
}

/// A chunk with a failed program is retired, and the cut undoes that: what was
/// behind the failed program is there, too.
#[test]
fn a_chunk_that_is_back_has_what_was_behind_a_failed_program() {
    let (g, row) = (geometry(), 4);
    let fail = medium_rules(&["medium:fail,on=program,from=2,count=1"]);
    let (mut gone, mut kept) = (0, 0);
    for seed in 0..100 {
        let faulty = FaultyMedium::new(&g, cached(ram(8), 100), &fail, 0).unwrap();
        let mut medium = CheckedMedium::new(&g, faulty).unwrap();
        for number in 0..3 {
            let moved = medium.program(Ppa(number * 4), row, &[1; 32], &[2; 64]);
            assert_eq!(moved == Moved::Failed, number == 1);
        }
        let failed = [FailedRun::new(row, row), FailedRun::default()];
        let (wp, programmed, state) = (3 * row, 3 * row, ChunkState::Open);
        let before = Chunk { state, wp, programmed, failed, ..Chunk::default() };
        medium.describe(0, &before);
        assert_eq!(done(|| medium.barrier()), Moved::Done);
        let state = ChunkState::Offline;
        assert_eq!(medium.reset(Ppa(0)), Moved::Done);
        medium.describe(0, &Chunk { state, wear: 1, cause: Cause::Retired, ..Chunk::default() });
        let (mut medium, chunks) = medium.cut(seed);
        if chunks[0].state == ChunkState::Offline {
            gone += 1;
            continue;
        }
        kept += 1;
        assert_eq!(chunks[0], before, "seed {seed}");
        for at in [0, 8] {
            assert_eq!(medium.read(Ppa(at), row, &mut [0; 32], &mut []), Moved::Done);
        }
    }
    assert!(gone > 10 && kept > 10, "{gone} and {kept}");
}

#[test]
fn a_drive_over_a_cache_comes_back() {
    let g = geometry();
    for seed in 0..200 {
        let medium = CheckedMedium::new(&g, cached(ram(8), 1000)).unwrap();
        let mut rig = Rig::new(Device::new(&g, &Timing::default(), medium).unwrap(), 16);
        assert!(rig.port.is_cached());
        let (first, second) = (g.ppa(0, 0, 0, 0), g.ppa(0, 0, 0, 8));
        rig.submit(0, vector(0, VectorOp::Write, first, 8, 8));
        rig.submit(1, vector(1, VectorOp::Flush, first, 0, 8));
        rig.submit(2, vector(2, VectorOp::Write, second, 8, 8));
        rig.drain();
        assert!(rig.all.iter().all(|done| done.status.is_ok()));
        let (medium, chunks) = rig.port.cut().cut(seed);
        let device = Device::restore(&g, &Timing::default(), medium, &chunks).unwrap();
        let mut rig = Rig::new(device, 16);
        let wp = rig.port.chunk(g.chunk_index(first)).wp;
        assert!((8..=16).contains(&wp));
        rig.submit(0, vector(3, VectorOp::Read, first, wp as u8, 8));
        let at = Ppa(first.0 + u64::from(wp));
        rig.submit(1, vector(4, VectorOp::Write, at, 24 - wp as u8, 8));
        rig.submit(2, vector(5, VectorOp::Read, first, 24, 8));
        rig.drain();
        assert!(rig.all.iter().all(|done| done.status == Status::SUCCESS), "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_life_is_a_good_one(seed in any::<u64>(), kept in 0usize..3, limit in 1usize..60) {
        let cache = cached(ram([4096, 8, 0][kept]), limit);
        life(cache, seed, &mut Seen::default());
    }
}
