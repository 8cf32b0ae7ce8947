//! A medium whose erases last only when it is synced, or when the chunk is
//! programmed again: a cut gives the other chunks back as they were. So a start
//! may find no free chunk at all. No operation fails: the drive must go on.

use std::collections::{BTreeMap, BTreeSet};

use device::{Device, OpenChannel};
use faults::{Below, PowerCut, Script, ScriptedMedium};
use flash::{ChunkState, Dimensions, Geometry, Moved, Ppa, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const BLOCK: u64 = 4096;
const DATA_CHUNKS: u32 = 4;
const BLOCKS: u64 = 60;

/// See above.
struct Undone {
    geometry: Geometry,
    /// By chunk: how far it is programmed.
    ends: BTreeMap<usize, u32>,
    /// Chunks that were erased, but not for certain.
    erased: BTreeSet<usize>,
}

impl Undone {
    fn erase(&mut self, below: Below, chunk: usize) {
        let _ = below.reset(self.geometry.chunk_start(chunk));
        self.ends.remove(&chunk);
    }
}

impl Script for Undone {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let chunk = self.geometry.chunk_index(at);
        if self.erased.remove(&chunk) {
            self.erase(below, chunk);
        }
        self.ends.insert(chunk, self.geometry.block(at) + count);
        below.program(at, count, data, tags)
    }

    fn reset(&mut self, _below: Below, chunk: Ppa) -> Moved {
        self.erased.insert(self.geometry.chunk_index(chunk));
        Moved::Done
    }

    fn barrier(&mut self, below: Below) -> Moved {
        for chunk in std::mem::take(&mut self.erased) {
            self.erase(below, chunk);
        }
        Moved::Done
    }

    fn is_cached(&self, _below: &dyn PowerCut) -> bool {
        true
    }
}

type Drive = Pblk<Device<ScriptedMedium>>;

fn drive(timing: &Timing) -> Drive {
    let (groups, pus, chunks, pages, planes) = (1, 1, DATA_CHUNKS, 5, 1);
    let dim =
        Dimensions { groups, pus, chunks, pages, planes, page_bytes: 16384, pages_at_once: 1 };
    let geometry = Geometry::new(with_reserve(dim)).unwrap();
    let script = Undone { geometry, ends: BTreeMap::new(), erased: BTreeSet::new() };
    let medium = ScriptedMedium::ram(&geometry, 8, script);
    let bytes = BLOCKS * BLOCK;
    let config = PblkConfig { victim: Victim::Random, ..PblkConfig::new(bytes, DATA_CHUNKS, 3) };
    Pblk::new(Device::new(&geometry, timing, medium).unwrap(), config).unwrap()
}

/// Power goes and comes. Gives how many chunks were erased for nothing.
fn cut(drive: Drive, timing: &Timing) -> (Drive, usize) {
    let config = drive.config();
    let device = drive.into_device();
    let (geometry, mut chunks) = (*device.geometry(), device.chunks().to_vec());
    let mut medium = device.cut();
    let script = medium.script::<Undone>();
    let undone = std::mem::take(&mut script.erased);
    for &chunk in &undone {
        let (of, end) = (&mut chunks[chunk], script.ends.get(&chunk).copied().unwrap_or(0));
        (of.wp, of.programmed, of.wear) = (end, end, of.wear - 1);
        let is_full = end == geometry.chunk_blocks();
        of.state = if is_full { ChunkState::Closed } else { ChunkState::Open };
    }
    let device = Device::restore(&geometry, timing, medium, &chunks).unwrap();
    (Pblk::recover(device, config, Time::ZERO).unwrap().0, undone.len())
}

/// So many writes, one after the other, and not to their end.
fn write(drive: &mut Drive, count: u64, random: &mut u64) {
    let (mut cmds, mut done, mut now) = (Ring::new(1), Ring::<BlockDone>::new(64), Time::ZERO);
    let mut id = 0;
    loop {
        while let Some(done) = done.pop() {
            assert!(done.status.is_ok(), "{}", done.status);
        }
        if cmds.is_empty() && id == count {
            return;
        } else if cmds.is_empty() {
            *random = random.wrapping_mul(6364136223846793005).wrapping_add(99);
            let (offset, buffer) = ((*random >> 33) % BLOCKS * BLOCK, Buffer::zeroed(8).unwrap());
            let op = BlockOp::Write;
            cmds.put(|| BlockReq::new(id, op, offset, BLOCK, buffer));
            id += 1;
        }
        drive.submit(now, &mut cmds);
        if let Some(at) = drive.next_event() {
            now = now.max(at);
            drive.advance(now, &mut done);
        }
    }
}

#[test]
fn a_start_without_a_free_chunk_goes_on_writing() {
    let (read, program, erase) = (vec![50_000], vec![500_000], 3_000_000);
    for timing in [Timing::default(), Timing { read, program, erase, ..Timing::default() }] {
        let (mut drive, mut random, mut undone) = (drive(&timing), 5u64, 0);
        for _ in 0..3000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(99);
            write(&mut drive, 1 + (random >> 40) % 150, &mut random);
            assert!(!drive.is_read_only());
            let (next, chunks) = cut(drive, &timing);
            (drive, undone) = (next, undone + chunks);
        }
        assert!(undone > 3000, "{undone} chunks came back");
    }
}
