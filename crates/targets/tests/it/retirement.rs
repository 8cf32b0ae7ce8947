//! Chunks that are given up.

use crate::failures::{config, geometry, timing};
use crate::host::Host;
use device::Device;
use faults::{FaultPort, FaultRule, Operation, Trigger};
use flash::{RamMedium, Timing};
use port::{BLOCK_BYTES, BlockOp, Time};
use targets::{Pblk, Victim};

/// An erase that takes as long as many writes.
const ERASE: u64 = 300_000_000;

/// The first program of a chunk is refused on the way to the drive, which never hears of
/// it, and a checkpoint begins while the chunk is given up: it has no erase less than
/// none.
#[test]
fn a_checkpoint_meets_the_retirement_of_a_chunk_that_was_never_erased() {
    let mut met = 0;
    for number in 1..=24 {
        let geometry = geometry(2, 1, 1);
        let slow = Timing { erase: ERASE, ..timing(false, 0) };
        let device = Device::new(&geometry, &slow, RamMedium::new(&geometry, 8).unwrap()).unwrap();
        let trigger = Trigger { from: number, count: Some(1), ..Trigger::default() };
        let (operation, status, permanent) = (Operation::Write, None, false);
        let rule = FaultRule { operation, trigger, status, permanent, place: None };
        let below = FaultPort::new(device, &[rule], 1).unwrap();
        let drive = Pblk::new(below, config(&geometry, Victim::Greedy, 50)).unwrap();
        let mut host = Host::new(drive, Time::ZERO, ());
        let blocks = host.drive.config().bytes / BLOCK_BYTES;
        let mut retired = None;
        for write in 0..3 * blocks {
            let since = host.drive.since_checkpoint();
            host.good(BlockOp::Write, write % blocks, write);
            if host.drive.counters().retired > 0 {
                let begun = *retired.get_or_insert(host.now);
                let begins = host.drive.since_checkpoint() < since;
                met += u32::from(begins && host.now.since(begun) < ERASE);
            }
        }
        assert!(host.good(BlockOp::Read, blocks - 1, 0) > 2 * blocks);
    }
    assert!(met > 0, "no checkpoint in it");
}
