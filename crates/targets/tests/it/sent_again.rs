//! A row behind one whose program failed is programmed, counts for nothing,
//! and is sent again: what is left of it where it was first is never newer
//! than what came after, whatever a checkpoint noted meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use device::{Device, Link, OpenChannel};
use faults::{Below, Fuse, Script, ScriptedMedium};
use flash::{Dimensions, Geometry, LinkTiming, Moved, Ppa, Timing};
use port::{BLOCK_BYTES, BlockOp, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const DATA_CHUNKS: u32 = 8;

/// Blocks of a row.
const ROW: u64 = 4;

/// Blocks that are written in turn: more than a row.
const BLOCKS: u64 = 5;

/// Fails the program of a certain number.
struct Failing {
    left: u32,
}

impl Script for Failing {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 { Moved::Failed } else { below.program(at, count, data, tags) }
    }
}

fn timing() -> Timing {
    Timing { read: vec![1_000], program: vec![5_000], erase: 3_000, ..Timing::default() }
}

/// What a test knows of its drive.
struct More {
    device: Rc<RefCell<Device<ScriptedMedium>>>,
    geometry: Geometry,
    config: PblkConfig,
    link: LinkTiming,
}

type Host = crate::host::Host<Pblk<Box<dyn OpenChannel>>, More>;

/// The device above its link, and a hold of it.
fn linked(
    link: LinkTiming,
    device: Device<ScriptedMedium>,
) -> (Box<dyn OpenChannel>, Rc<RefCell<Device<ScriptedMedium>>>) {
    let below = Fuse::new(device, u64::MAX);
    let device = below.drive.clone();
    (Box::new(Link::new(link, below)), device)
}

impl Host {
    /// A drive whose `fail`-th program fails. Its link is slower than its
    /// flash, so that rows are long on their way.
    fn failing(fail: u32) -> Host {
        let dim = Dimensions {
            groups: 2,
            pus: 2,
            chunks: DATA_CHUNKS,
            pages: 8,
            page_bytes: 16384,
            ..Dimensions::LEAST
        };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let link = LinkTiming {
            latency: 3_000,
            controller: 1_000,
            rate: 1_000_000_000,
            ..LinkTiming::default()
        };
        let medium = ScriptedMedium::ram(&geometry, 8, Failing { left: fail });
        let device = Device::new(&geometry, &timing(), medium).unwrap();
        let space = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
        let config = PblkConfig::new(space / 2 * BLOCK_BYTES, DATA_CHUNKS, 7);
        let (below, device) = linked(link, device);
        let drive = Pblk::new(below, config).unwrap();
        Host::new(drive, Time::ZERO, More { device, geometry, config, link })
    }

    /// Power goes, and comes again.
    fn restart(self) -> Host {
        drop(self.drive);
        let More { device, geometry, config, link } = self.more;
        let device = Rc::into_inner(device).expect("the stack is gone").into_inner();
        let chunks = device.chunks().to_vec();
        let device = Device::restore(&geometry, &timing(), device.cut(), &chunks).unwrap();
        let (below, device) = linked(link, device);
        let (drive, now) = Pblk::recover(below, config, Time::ZERO).unwrap();
        Host::new(drive, now, More { device, geometry, config, link })
    }
}

/// Writes the same blocks again and again, of which the `fail`-th row fails,
/// then from row `turn` on others, and cuts a while after: each block is as it
/// was written last.
fn cut_after(fail: u32, turn: u32) {
    let mut host = Host::failing(fail);
    let mut last = [0; 300];
    for value in 1..=ROW * u64::from(turn + 24) {
        let others = if value > ROW * u64::from(turn) { BLOCKS } else { 0 };
        // Some that stay, so that no chunk is empty.
        let block = if value % 7 == 0 { 2 * BLOCKS + value / 7 } else { others + value % BLOCKS };
        host.good(BlockOp::Write, block, value);
        last[block as usize] = value;
    }
    host.good(BlockOp::Flush, 0, 0);
    let mut host = host.restart();
    for (block, &value) in last.iter().enumerate() {
        let read = host.good(BlockOp::Read, block as u64, 0);
        assert_eq!(read, value, "block {block}: row {fail} failed, others from {turn}");
    }
}

#[test]
fn a_row_that_was_sent_again_is_not_newer_where_it_was_first() {
    for fail in 40..80 {
        for more in 4..10 {
            cut_after(fail, fail + more);
        }
    }
}
