//! Against a plain model: a list of blocks for each superblock.
//!
//! Random writes, reads, resets and cuts. What was written reads back, before
//! and after a unit is lost; with two units of a group lost it reads back or is
//! an error, and is never anything else.

use crate::common::{Broken, Fused, Random, durable, power_cut, timing};
use device::{Content, Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{ChunkState, Dimensions, Geometry, Ppa, RamMedium, TAG_BYTES, Timing};
use parity::{Parity, ParityError};
use port::{Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;

/// What a block may be: written with these numbers, zero standing for zeros.
type Values = Vec<u64>;

#[derive(Clone, Debug, Default)]
struct Block {
    values: Values,
    /// Its write was completed.
    is_sure: bool,
}

#[derive(Clone, Debug, Default)]
struct Model {
    blocks: Vec<Block>,
    whole: bool,
    /// A unit was lost or a program failed: it takes no more.
    closed: bool,
    wear: u32,
    /// Blocks that were there after the last cut.
    after_cut: usize,
}

struct Bench {
    drive: Parity<Fused>,
    broken: Broken,
    width: u32,
    timing: Timing,
    now: Time,
    random: Random,
    models: Vec<Model>,
    sbs: Vec<usize>,
    ids: u64,
}

/// The bytes of a block of number `value`.
fn bytes(value: u64, data: &mut [u8], tag: &mut [u8]) {
    for (i, byte) in data.iter_mut().enumerate() {
        *byte = if value == 0 { 0 } else { (value.wrapping_mul(0x9e37_79b9) >> (i % 32)) as u8 };
    }
    tag[..8].copy_from_slice(&value.to_le_bytes());
    tag[8..16].copy_from_slice(&(value * 3).to_le_bytes());
}

impl Bench {
    fn new(dim: Dimensions, width: u32, kept: u32, instant: bool, seed: u64) -> Bench {
        let geometry = Geometry::new(dim).unwrap();
        let broken = Broken::default();
        let timing = if instant { Timing::default() } else { timing() };
        let medium = durable(&geometry, kept, &broken);
        let device = Device::new(&geometry, &timing, medium).unwrap();
        let drive = Parity::new(Fused::new(device, u64::MAX), width).unwrap();
        let upper = *drive.geometry();
        let units = upper.pus_channels_first();
        let sbs: Vec<usize> =
            units.flat_map(|pu| (0..upper.chunks()).map(move |n| upper.chunk_of(pu, n))).collect();
        let models = vec![Model::default(); sbs.len()];
        let (now, random) = (Time::ZERO, Random(seed));
        Bench { drive, broken, width, timing, now, random, models, sbs, ids: 0 }
    }

    fn start(&self, of: usize) -> u64 {
        self.drive.geometry().chunk_start(self.sbs[of]).0
    }

    /// Does all at once; `None` for what the cut swallowed.
    fn run(&mut self, cmds: Vec<VectorCmd>) -> Vec<Option<VectorDone>> {
        let count = cmds.len();
        let (mut queue, mut done) = (Ring::new(count.max(1)), Ring::new(count.max(1)));
        for (i, cmd) in cmds.into_iter().enumerate() {
            queue.push(VectorCmd { cookie: i as u64, ..cmd }).unwrap();
        }
        let mut all: Vec<Option<VectorDone>> = (0..count).map(|_| None).collect();
        let mut left = count;
        while left > 0 {
            self.drive.submit(self.now, &mut queue);
            let Some(at) = self.drive.next_event() else {
                assert_eq!(self.drive.below().left.get(), 0, "the drive hangs");
                break;
            };
            self.now = self.now.max(at);
            self.drive.advance(self.now, &mut done);
            while let Some(d) = done.pop() {
                let i = d.cookie as usize;
                assert!(all[i].replace(d).is_none(), "completes once");
                left -= 1;
            }
        }
        all
    }

    fn cmd(&self, op: VectorOp, content: Content, ppa: u64, count: usize) -> VectorCmd {
        let (each, tag) = content.each(self.drive.kept());
        let bytes = if op == VectorOp::Reset { 0 } else { count * (each + tag) };
        let buffer = Buffer::zeroed(bytes).unwrap();
        VectorCmd::new(0, op, content, (Ppa(ppa), count as u8), buffer)
    }

    /// Some writes at once, to some superblocks.
    fn write(&mut self) {
        let upper = *self.drive.geometry();
        let (mut cmds, mut notes) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(6) {
            let of = self.random.below(self.models.len() as u64 / 2) as usize;
            let from = self.models[of].blocks.len() as u32;
            if self.models[of].closed || from == upper.chunk_blocks() {
                continue;
            }
            if from == 0 {
                self.models[of].whole = self.random.below(3) == 0;
            }
            let content = match self.models[of].whole {
                true => Content::Whole,
                false if self.random.below(4) == 0 => Content::Data,
                false => Content::Tagged,
            };
            let unit =
                if self.random.below(4) == 0 { upper.write_blocks() } else { upper.row_blocks() };
            let most = 64.min(upper.chunk_blocks() - from) / unit;
            if most == 0 {
                continue;
            }
            let most = if self.random.below(2) == 0 { 1 } else { most };
            let count = (1 + self.random.below(most.into())) as usize * unit as usize;
            let mut cmd =
                self.cmd(VectorOp::Write, content, self.start(of) + u64::from(from), count);
            let (each, tag) = content.each(self.drive.kept());
            let (data, tags) = cmd.buffer.bytes_mut().split_at_mut(count * each);
            for i in 0..count {
                self.ids += 1;
                let mut none = [0; TAG_BYTES];
                let to = if tag > 0 { &mut tags[i * tag..][..tag] } else { &mut none[..] };
                bytes(self.ids, &mut data[i * each..][..each], to);
                // Without its tag a block has that of zero.
                let value = if tag == 0 { self.ids | 1 << 63 } else { self.ids };
                self.models[of].blocks.push(Block { values: vec![value], is_sure: false });
            }
            cmds.push(cmd);
            notes.push((of, from as usize, count));
        }
        for (done, (of, from, count)) in self.run(cmds).into_iter().zip(notes) {
            match done {
                Some(done) if done.status.is_ok() => {
                    let blocks = &mut self.models[of].blocks[from..from + count];
                    blocks.iter_mut().for_each(|block| block.is_sure = true);
                }
                Some(_) => panic!("a write failed"),
                None => {
                    let blocks = &mut self.models[of].blocks[from..from + count];
                    blocks.iter_mut().for_each(|block| block.values.push(0));
                }
            }
        }
    }

    fn reset(&mut self) {
        let of = self.random.below(self.models.len() as u64) as usize;
        if self.models[of].blocks.is_empty() {
            return;
        }
        let before = self.drive.chunk(self.sbs[of]);
        let cmd = self.cmd(VectorOp::Reset, Content::Data, self.start(of), 1);
        match self.run(vec![cmd]).pop().unwrap() {
            Some(done) => {
                assert_eq!(done.status, Status::SUCCESS);
                let after = self.drive.chunk(self.sbs[of]);
                assert_eq!((after.state, after.wear), (ChunkState::Free, before.wear + 1));
                self.models[of] = Model { wear: after.wear, ..Model::default() };
            }
            // Its blocks may be there or not: it is not read any more.
            None => self.models[of].closed = true,
        }
    }

    /// Whether what was read of a block is one of its values. Then it is the
    /// only one.
    fn see(&mut self, of: usize, block: usize, content: Content, data: &[u8], tag: &[u8]) {
        let values = self.models[of].blocks[block].values.clone();
        let fits = |&&value: &&u64| {
            let (mut d, mut t) = (vec![0; data.len()], [0; TAG_BYTES]);
            bytes(value & !(1 << 63), &mut d, &mut t);
            if value >> 63 == 1 {
                t = [0; TAG_BYTES];
            }
            d == data && (tag.is_empty() || t == tag)
        };
        let found: Values = values.iter().filter(fits).copied().collect();
        assert!(
            !found.is_empty(),
            "superblock {of} block {block} as {content:?}: {values:?}, got tag {tag:?}"
        );
        self.models[of].blocks[block].values = found;
    }

    /// Reads a run, or blocks of several superblocks. `may_fail` says which
    /// may be errors.
    fn read(
        &mut self,
        blocks: &[(usize, usize)],
        content: Content,
        may_fail: impl Fn(usize, usize) -> bool,
    ) {
        let mut cmd = self.cmd(VectorOp::Read, content, 0, blocks.len());
        let ppas: Vec<Ppa> =
            blocks.iter().map(|&(of, block)| Ppa(self.start(of) + block as u64)).collect();
        let is_run = ppas.windows(2).all(|two| two[1].0 == two[0].0 + 1);
        if is_run && self.random.below(2) == 0 {
            cmd.ppa = ppas[0];
        } else {
            cmd.list = Some(ppas[..].into());
        }
        let had_list = cmd.list.is_some();
        let done = self.run(vec![cmd]).pop().unwrap().expect("power is on");
        assert_eq!(done.list.is_some(), had_list);
        let (each, tag) = content.each(self.drive.kept());
        let (data, tags) = done.buffer.bytes().split_at(blocks.len() * each);
        for (i, &(of, block)) in blocks.iter().enumerate() {
            if done.failed >> i & 1 == 1 {
                assert_eq!(done.status, Status::UNRECOVERED_READ);
                assert!(may_fail(of, block), "superblock {of} block {block} as {content:?}");
                continue;
            }
            let tag = &tags[i * tag..][..tag];
            self.see(of, block, content, &data[i * each..][..each], tag);
        }
        assert!(done.status.is_ok() || done.failed != 0);
    }

    fn content(&mut self, of: usize) -> Content {
        match (self.models[of].whole, self.random.below(3)) {
            (_, 0) => Content::Tags,
            (true, _) => Content::Whole,
            (false, 1) => Content::Data,
            (false, _) => Content::Tagged,
        }
    }

    fn read_some(&mut self) {
        let of = self.random.below(self.models.len() as u64) as usize;
        let len = self.models[of].blocks.len();
        if self.models[of].closed || len == 0 {
            return;
        }
        let count = 1 + self.random.below(64.min(len as u64)) as usize;
        let from = self.random.below((len - count + 1) as u64) as usize;
        let content = self.content(of);
        let mut blocks: Vec<(usize, usize)> = (from..from + count).map(|b| (of, b)).collect();
        if self.random.below(3) == 0 {
            blocks.reverse();
        }
        self.read(&blocks, content, |_, _| false);
    }

    /// Power goes after some events of what is done next, and comes back.
    fn cut(&mut self) {
        self.drive.below().left.set(self.random.below(12));
        if self.random.below(4) == 0 {
            self.reset()
        } else {
            self.write()
        }
        self.power_up();
    }

    fn power_up(&mut self) {
        let device = self.drive.below().drive.clone();
        let broken = Broken::default();
        let geometry = *device.borrow().geometry();
        let kept = self.drive.kept();
        let medium = durable(&geometry, kept, &broken);
        let dummy = Device::new(&geometry, &self.timing, medium).unwrap();
        drop(std::mem::replace(
            &mut self.drive,
            Parity::new(Fused::new(dummy, 0), self.width).unwrap(),
        ));
        let device = std::rc::Rc::into_inner(device).unwrap().into_inner();
        let mut medium = device.cut();
        let chunks = power_cut(&mut medium, self.random.below(u64::MAX));
        let device = Device::restore(&geometry, &self.timing, medium, &chunks).unwrap();
        self.drive = Parity::new(Fused::new(device, u64::MAX), self.width).unwrap();
        self.now = Time::ZERO;
        for of in 0..self.models.len() {
            let chunk = self.drive.chunk(self.sbs[of]);
            assert!(chunk.wear >= self.models[of].wear);
            // What a cut reset left is of the life that it was written in.
            assert!(chunk.wp == 0 || chunk.wear == self.models[of].wear);
            if self.models[of].closed && chunk.wp == 0 {
                // It was erased.
                self.models[of] = Model { wear: chunk.wear, ..Model::default() };
            } else if !self.models[of].closed {
                let blocks = &mut self.models[of].blocks;
                assert!(blocks.iter().skip(chunk.wp as usize).all(|block| !block.is_sure));
                assert!(chunk.wp as usize <= blocks.len());
                blocks.truncate(chunk.wp as usize);
                self.models[of].after_cut = chunk.wp as usize;
            }
        }
    }

    /// Reads all, in several ways.
    fn read_all(&mut self, may_fail: impl Fn(&Bench, usize, usize) -> bool) {
        for of in 0..self.models.len() {
            let len = self.models[of].blocks.len();
            if self.models[of].closed {
                continue;
            }
            for from in (0..len).step_by(64) {
                let blocks: Vec<_> = (from..len.min(from + 64)).map(|b| (of, b)).collect();
                let allowed: Vec<bool> =
                    blocks.iter().map(|&(of, block)| may_fail(self, of, block)).collect();
                let content = self.content(of);
                self.read(&blocks, content, |_, block| allowed[block - from]);
            }
        }
    }

    /// Whether the stripe of a block has its parity. Of a superblock that was
    /// not written since a cut the last stripes may have none; else each has.
    fn is_protected(&self, of: usize, block: usize) -> bool {
        let (upper, below) = (*self.drive.geometry(), *self.drive.below().geometry());
        let (unit, number) = (of as u32 / upper.chunks(), of as u32 % upper.chunks());
        let member = unit * self.width + number % self.width;
        let unit = below.pus_channels_first().nth(member as usize).unwrap();
        let parity = self.drive.below().chunk(below.chunk_of(unit, number)).programmed;
        let stripe_blocks = (self.width - 1) * upper.row_blocks();
        let stripe = block as u32 / stripe_blocks;
        let has_parity = parity >= (stripe + 1) * upper.row_blocks();
        let model = &self.models[of];
        let is_whole = (stripe + 1) * stripe_blocks <= model.blocks.len() as u32;
        assert!(has_parity || !is_whole || model.after_cut == model.blocks.len());
        assert!(is_whole || !has_parity);
        has_parity
    }
}

fn dims() -> impl Strategy<Value = (Dimensions, u32)> {
    let shape = (2u32..5, 1u32..4, 1u32..6, 1u32..4, 0u32..2);
    let at_once = prop_oneof![2 => Just(1u32), 1 => 2u32..5];
    (shape, at_once, 0usize..8).prop_filter_map(
        "a width that divides",
        |(shape, pages_at_once, pick)| {
            let units = shape.0 * shape.1;
            let widths: Vec<u32> =
                (3..=units).filter(|width| units.is_multiple_of(*width)).collect();
            let width = *widths.get(pick % widths.len().max(1))?;
            let (groups, pus, pages) = (shape.0, shape.1, shape.2 * pages_at_once);
            let (planes, page_bytes) = (shape.3, 4096 << shape.4);
            Some((
                Dimensions { groups, pus, chunks: 5, pages, planes, page_bytes, pages_at_once },
                width,
            ))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_was_written_reads_back(
        (dim, width) in dims(),
        kept in prop_oneof![1 => Just(4096u32), 3 => Just(8), 1 => Just(0)],
        instant in prop::bool::weighted(0.2),
        seed: u64,
        cuts: bool,
    ) {
        let mut bench = Bench::new(dim, width, kept, instant, seed);
        for _ in 0..60 {
            match bench.random.below(12) {
                0 => bench.reset(),
                1..4 => bench.read_some(),
                4 if cuts => bench.cut(),
                _ => bench.write(),
            }
        }
        bench.read_all(|_, _, _| false);
        // One unit is lost; what is not in a whole stripe may be, too.
        let below = *bench.drive.below().geometry();
        let units: Vec<usize> = below.pus_channels_first().collect();
        let first = bench.random.below(units.len() as u64) as usize;
        bench.broken.units.borrow_mut().insert(units[first]);
        bench.read_all(|bench, of, block| !bench.is_protected(of, block));
        prop_assert!(bench.drive.counters().lost == 0 || bench.models.iter().any(|m| !m.blocks.is_empty()));
        // Another of the same group: errors, but nothing wrong.
        let group = first - first % width as usize;
        let second = group + (first - group + 1) % width as usize;
        bench.broken.units.borrow_mut().insert(units[second]);
        bench.read_all(|_, _, _| true);
    }
}

fn full(width: u32) -> Bench {
    let dim = Dimensions {
        groups: 4,
        chunks: 5,
        pages: 6,
        planes: 2,
        page_bytes: 8192,
        ..Dimensions::LEAST
    };
    let mut bench = Bench::new(dim, width, 8, false, 7);
    let size = bench.drive.geometry().chunk_blocks() as usize;
    while bench.models[..2].iter().any(|model| model.blocks.len() < size) {
        bench.write();
    }
    bench
}

/// A lost unit costs no block, and each is rebuilt from all others.
/// A drive that limits its open chunks, in all or of a unit, is refused by name.
#[test]
fn drives_that_limit_their_open_chunks_are_refused() {
    let dim = Dimensions { groups: 3, chunks: 4, pages: 2, ..Dimensions::LEAST };
    let (geometry, none) = (Geometry::new(dim).unwrap(), u32::MAX);
    for (open_chunks, open_chunks_pu, is_refused) in
        [(none, none, false), (1000, none, true), (none, 1000, true)]
    {
        let timing = Timing { open_chunks, open_chunks_pu, ..Timing::default() };
        let medium = RamMedium::new(&geometry, 8).unwrap();
        let error = Parity::new(Device::new(&geometry, &timing, medium).unwrap(), 3).err();
        assert_eq!(matches!(error, Some(ParityError::OpenChunks)), is_refused, "{error:?}");
        assert_eq!(error.is_some(), is_refused, "{error:?}");
    }
}

#[test]
fn a_lost_unit_is_rebuilt() {
    let mut bench = full(4);
    let unit = bench.drive.below().geometry().pus_channels_first().nth(2).unwrap();
    bench.broken.units.borrow_mut().insert(unit);
    bench.read_all(|_, _, _| false);
    let counters = bench.drive.counters();
    let blocks: usize = bench.models.iter().map(|model| model.blocks.len()).sum();
    assert!(counters.rebuilt > blocks as u64 / 5 && counters.lost == 0, "{counters:?}");
    assert_eq!(counters.read, 3 * counters.rebuilt);
    // It tells of the superblocks.
    let mut told = Vec::new();
    while let Some(notice) = bench.drive.take_notice() {
        assert_eq!(notice.number, told.len() as u64 + 1);
        told.push(notice.ppa);
    }
    assert!(told.contains(&Ppa(bench.start(0))) || told.contains(&Ppa(bench.start(1))));
}

/// A read error that passes costs a read: nothing is rebuilt, and no superblock
/// is written anew for it.
#[test]
fn an_error_that_passes_is_read_again() {
    let mut bench = full(4);
    for _ in 0..20 {
        // Of a row, and then of one of its blocks.
        bench.broken.reads.set(2);
        bench.read_all(|_, _, _| false);
        assert_eq!(bench.broken.reads.get(), 0);
    }
    let counters = bench.drive.counters();
    assert_eq!((counters.rebuilt, counters.lost), (0, 0), "{counters:?}");
    assert_eq!(bench.drive.take_notice(), None);
}

/// Two lost units of a group are an error.
#[test]
fn two_lost_units_are_an_error() {
    let mut bench = full(4);
    let units: Vec<usize> = bench.drive.below().geometry().pus_channels_first().collect();
    bench.broken.units.borrow_mut().extend([units[0], units[3]]);
    bench.read_all(|_, _, _| true);
    assert!(bench.drive.counters().lost > 0);
}

/// A short read is one read of one unit; a rebuilt one takes no longer than a
/// read of all others.
#[test]
fn a_short_read_is_one_read() {
    let mut bench = full(4);
    let reads = |bench: &Bench| bench.drive.below().drive.borrow().counters().reads;
    let content = if bench.models[0].whole { Content::Whole } else { Content::Data };
    let (before, now) = (reads(&bench), bench.now);
    bench.read(&[(0, 3)], content, |_, _| false);
    assert_eq!(reads(&bench), before + 1);
    let alone = bench.now.since(now);
    let home = bench.drive.below().geometry().pus_channels_first().nth(1).unwrap();
    bench.broken.units.borrow_mut().insert(home);
    let now = bench.now;
    bench.read(&[(0, 3)], content, |_, _| false);
    let rebuilt = bench.now.since(now);
    assert!(rebuilt > alone && rebuilt < 4 * alone, "{alone} ns, rebuilt {rebuilt} ns");
    println!("a read takes {alone} ns, one that is rebuilt {rebuilt} ns");
}
