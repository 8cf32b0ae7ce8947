//! Streams: writes of different placements lie in different chunks, and what is
//! given up together is erased together.
//!
//! One parallel unit, no time passes in the drive.

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Moved, Ppa, TAG_BYTES, Tag, Timing};
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, Victim, WriteCounters, reserve_chunks};

type Drive = Pblk<Device<ScriptedMedium>>;

const DATA_CHUNKS: u32 = 64;

struct Rig {
    drive: Drive,
    geometry: Geometry,
    rng: u64,
}

fn config(geometry: &Geometry, streams: u32) -> PblkConfig {
    let blocks = u64::from(DATA_CHUNKS * geometry.chunk_blocks()) * 8 / 10;
    let (bytes, victim) = (blocks * BLOCK_BYTES, Victim::Greedy);
    PblkConfig { streams, victim, ..PblkConfig::new(bytes, DATA_CHUNKS, 1) }
}

impl Rig {
    fn new(streams: u32) -> Result<Rig, PblkError> {
        let data =
            Dimensions { chunks: DATA_CHUNKS, pages: 16, page_bytes: 16384, ..Dimensions::LEAST };
        let chunks = DATA_CHUNKS + reserve_chunks(&data, streams);
        let geometry = Geometry::new(Dimensions { chunks, ..data }).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 8, ());
        let device = Device::new(&geometry, &Timing::default(), medium).unwrap();
        let drive = Pblk::new(device, config(&geometry, streams))?;
        Ok(Rig { drive, geometry, rng: 5 })
    }

    fn blocks(&self) -> u64 {
        self.drive.shape().bytes / BLOCK_BYTES
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((u128::from(self.rng) * u128::from(bound)) >> 64) as u64
    }

    /// One request. Gives the value of a block that is read.
    fn ask(&mut self, op: BlockOp, block: u64, placement: u8, value: u64) -> u64 {
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = if data { Buffer::zeroed(8).unwrap() } else { Buffer::empty() };
        if op == BlockOp::Write {
            buffer.bytes_mut().copy_from_slice(&value.to_le_bytes());
        }
        let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
        let offset = block * len;
        let (mut queue, mut done) = (Ring::new(1), Ring::new(1024));
        queue.put(|| BlockReq { placement, ..BlockReq::new(0, op, offset, len, buffer) });
        loop {
            self.drive.submit(Time::ZERO, &mut queue);
            self.drive.advance(Time::ZERO, &mut done);
            if let Some(done) = done.pop() {
                assert_eq!(done.status, Status::SUCCESS);
                let bytes = done.buffer.bytes().try_into();
                return bytes.map_or(0, u64::from_le_bytes);
            }
        }
    }

    fn write(&mut self, block: u64, placement: u8) {
        self.ask(BlockOp::Write, block, placement, block);
    }

    /// Overwrites: nine of ten go to a tenth of the blocks. `places` says whether
    /// these say so.
    fn overwrite(&mut self, count: u64, places: bool) {
        let (blocks, hot) = (self.blocks(), self.blocks() / 10);
        for _ in 0..count {
            let is_hot = self.below(10) < 9;
            let block = if is_hot { self.below(hot) } else { hot + self.below(blocks - hot) };
            self.write(block, u8::from(is_hot && places));
        }
    }

    /// Write amplification when steady.
    fn steady(mut self, places: bool) -> f64 {
        let blocks = self.blocks();
        (0..blocks).for_each(|block| self.write(block, 0));
        self.overwrite(6 * blocks, places);
        let before = self.drive.counters();
        self.overwrite(4 * blocks, places);
        let after = self.drive.counters();
        let written = |c: WriteCounters| c.user + c.gc + c.padding;
        (written(after) - written(before)) as f64 / (after.user - before.user) as f64
    }

    /// The drive after a power cut.
    fn cut(self) -> Rig {
        let Rig { drive, geometry, rng } = self;
        let config = drive.config();
        let device = drive.into_device();
        let chunks = device.chunks().to_vec();
        let device = Device::restore(&geometry, &Timing::default(), device.cut(), &chunks).unwrap();
        let (drive, _) = Pblk::recover(device, config, Time::ZERO).unwrap();
        Rig { drive, geometry, rng }
    }

    /// The logical blocks in each chunk with data.
    fn chunks(self) -> Vec<Vec<u64>> {
        let device = self.drive.into_device();
        let written: Vec<u32> = device.chunks().iter().map(|chunk| chunk.programmed).collect();
        let mut medium = device.cut();
        let mut of = |(chunk, programmed): (usize, &u32)| {
            let mut found = Vec::new();
            for block in 0..*programmed {
                let ppa = Ppa(self.geometry.chunk_start(chunk).0 + u64::from(block));
                let mut tag = [0; TAG_BYTES];
                assert_eq!(medium.below().read(ppa, 1, &mut [], &mut tag), Moved::Done);
                found.push(Tag::load(&tag).id);
            }
            found.retain(|&id| id >> 62 == 0);
            found
        };
        written.iter().enumerate().map(&mut of).filter(|found| !found.is_empty()).collect()
    }
}

#[test]
fn placements_lie_in_chunks_of_their_own() {
    for streams in [1, 2, 4] {
        let mut rig = Rig::new(streams).unwrap();
        // No more than is free: nothing is collected.
        let blocks = rig.blocks() / 2;
        let placement = |block: u64| block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
        (0..blocks).for_each(|block| rig.write(block, placement(block) as u8));
        let of = |block: &u64| match placement(*block) {
            known if known < u64::from(streams) => known,
            _ => 0,
        };
        let chunks = rig.chunks();
        assert!(chunks.len() > 3 * streams as usize);
        for chunk in chunks {
            assert!(chunk.iter().all(|block| of(block) == of(&chunk[0])), "{streams}: {chunk:?}");
        }
    }
}

#[test]
fn placements_lower_write_amplification() {
    let mixed = Rig::new(1).unwrap().steady(true);
    let silent = Rig::new(2).unwrap().steady(false);
    let apart = Rig::new(2).unwrap().steady(true);
    println!("mixed {mixed:.3}, two streams of which one is used {silent:.3}, apart {apart:.3}");
    assert!((silent / mixed - 1.0).abs() < 0.03, "{silent}, with one stream {mixed}");
    assert!(apart < 0.95 * mixed, "{apart}, mixed {mixed}");
}

/// A block goes from one stream to another and back while rows are gathered, and
/// is found as it was last, before a cut and behind it.
#[test]
fn what_changes_its_stream_is_found_as_it_was_last() {
    let mut rig = Rig::new(4).unwrap();
    let mut values = vec![0; 40];
    for i in 1..=3000 {
        let block = rig.below(40);
        let placement = rig.below(5) as u8;
        rig.ask(BlockOp::Write, block, placement, i);
        values[block as usize] = i;
        if rig.below(20) == 0 {
            let block = rig.below(40);
            rig.ask(BlockOp::Trim, block, 0, 0);
            values[block as usize] = 0;
        }
        let block = rig.below(40);
        assert_eq!(rig.ask(BlockOp::Read, block, 0, 0), values[block as usize]);
    }
    rig.ask(BlockOp::Flush, 0, 0, 0);
    let mut rig = rig.cut();
    for (block, value) in values.into_iter().enumerate() {
        assert_eq!(rig.ask(BlockOp::Read, block as u64, 0, 0), value, "block {block}");
    }
}

/// A checkpoint comes while a row is gathered, which gets its number later.
#[test]
fn what_is_gathered_at_a_checkpoint_is_counted_once() {
    let mut rig = Rig::new(2).unwrap();
    let rows = rig.drive.checkpoint_rows();
    for block in 0..rig.blocks() / 2 {
        rig.write(block, u8::from(block % 7 == 0));
    }
    rig.ask(BlockOp::Flush, 0, 0, 0);
    let (counted, since) = (rig.drive.counters().user, rig.drive.since_checkpoint());
    assert!((1..counted / 4 - rows / 2).contains(&since), "there was one: {since} rows since");
    assert_eq!(rig.cut().drive.counters().user, counted);
}

#[test]
fn so_many_streams_there_are_not() {
    for streams in [0, 5] {
        assert!(matches!(Rig::new(streams), Err(PblkError::Streams(n)) if n == streams));
    }
}
