//! A block that collection cannot read, while a part of it is written around
//! its old bytes.

use device::Device;
use faults::{Below, Script, ScriptedMedium};
use flash::{Dimensions, Geometry, Moved, Ppa, Timing};
use port::{BlockOp, Status, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const BLOCK: u64 = 4096;

/// Gives a block to the user, and never to collection, which wants its tag, too.
struct Unmovable {
    at: Ppa,
}

impl Script for Unmovable {
    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        let bad = (at.0..at.0 + u64::from(count)).contains(&self.at.0);
        if bad && !tags.is_empty() {
            return Moved::Failed;
        }
        below.read(at, count, data, tags)
    }
}

/// A drive, and the block that cannot be moved.
type Host = crate::host::Host<Pblk<Device<ScriptedMedium>>, Ppa>;

fn host() -> Host {
    let dim = Dimensions { chunks: 6, pages: 4, page_bytes: 8192, ..Dimensions::LEAST };
    let geometry = Geometry::new(with_reserve(dim)).unwrap();
    let timing = Timing {
        read: vec![50_000],
        program: vec![600_000],
        erase: 3_000_000,
        ..Timing::default()
    };
    // The user's first chunk comes after those for roots.
    let at = geometry.chunk_start(geometry.chunk_of(0, 3));
    let medium = ScriptedMedium::ram(&geometry, BLOCK as u32, Unmovable { at });
    let device = Device::new(&geometry, &timing, medium).unwrap();
    let config = PblkConfig::new(24 * BLOCK, 6, 7);
    let drive = Pblk::new(device, config).unwrap();
    Host::new(drive, Time::ZERO, at)
}

#[test]
fn a_part_of_a_block_that_is_lost_meanwhile_is_not_written() {
    let mut met = 0;
    for steps in 0..12 {
        let mut host = host();
        for block in 0..16 {
            assert_eq!(
                host.one(BlockOp::Write, block * BLOCK, BLOCK, 0xab).status,
                Status::SUCCESS
            );
        }
        assert_eq!(host.one(BlockOp::Flush, 0, 0, 0).status, Status::SUCCESS);
        host.rest();
        assert!(host.drive.refresh_chunk(host.now, host.more));
        // Somewhere on the way to its loss.
        for _ in 0..steps {
            host.step();
        }
        let lost_before = host.drive.counters().lost > 0;
        let done = host.one(BlockOp::Write, 512, 512, 0xcd);
        let lost_after = host.drive.counters().lost > 0;
        met += u32::from(!lost_before && lost_after);
        let read = host.one(BlockOp::Read, 0, BLOCK, 0);
        if done.status == Status::SUCCESS {
            // The write was in time: the rest is as it was.
            assert_eq!(read.status, Status::SUCCESS, "after {steps} steps");
            let bytes = read.buffer.bytes();
            assert!(bytes[..512].iter().all(|&b| b == 0xab), "after {steps} steps");
            assert!(bytes[512..1024].iter().all(|&b| b == 0xcd), "after {steps} steps");
            assert!(bytes[1024..].iter().all(|&b| b == 0xab), "after {steps} steps");
        } else {
            assert_eq!(done.status, Status::UNRECOVERED_READ);
            assert_eq!(read.status, Status::UNRECOVERED_READ);
        }
    }
    assert!(met > 0, "it was lost while a part of it was written");
}
