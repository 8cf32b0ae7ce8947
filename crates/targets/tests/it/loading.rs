//! A drive that was cut while collection could hardly keep up, and loads its
//! map: no user row goes to flash before that is there. Parts of blocks that are
//! written meanwhile must leave room for those that are read.

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Timing};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const BLOCK: u64 = 4096;

/// Of a page of the map.
const PAGE_BLOCKS: u64 = 1024;

const PAGES: u64 = 8;

const DATA_CHUNKS: u32 = 150;

struct Host {
    drive: Pblk<Device<ScriptedMedium>>,
    now: Time,
    queue: Ring<BlockReq>,
    open: usize,
}

fn timing() -> Timing {
    Timing { read: vec![50_000], program: vec![600_000], erase: 3_000_000, ..Timing::default() }
}

/// One unit, and pages of the map that are read one by one.
fn geometry() -> Geometry {
    let (chunks, pages, page_bytes) = (DATA_CHUNKS, 64, 4096);
    let dim = Dimensions { chunks, pages, page_bytes, ..Dimensions::LEAST };
    Geometry::new(with_reserve(dim)).unwrap()
}

fn config() -> PblkConfig {
    let bytes = PAGES * PAGE_BLOCKS * BLOCK;
    PblkConfig::new(bytes, DATA_CHUNKS, 7)
}

impl Host {
    fn new(drive: Pblk<Device<ScriptedMedium>>, now: Time) -> Host {
        Host { drive, now, queue: Ring::new(1024), open: 0 }
    }

    fn begin(&mut self, op: BlockOp, offset: u64, len: u64) {
        let buffer = Buffer::zeroed(len as usize).unwrap();
        self.queue.push(BlockReq::new(0, op, offset, len, buffer)).unwrap();
        self.open += 1;
        self.drive.submit(self.now, &mut self.queue);
    }

    /// Lets all but `left` requests end. False where the drive hangs.
    fn end(&mut self, left: usize) -> bool {
        let mut done = Ring::new(1024);
        while self.open > left {
            let Some(at) = self.drive.next_event() else { return false };
            self.now = self.now.max(at);
            self.drive.advance(self.now, &mut done);
            while let Some(done) = done.pop() {
                assert_eq!(done.status, Status::SUCCESS);
                self.open -= 1;
            }
            self.drive.submit(self.now, &mut self.queue);
        }
        true
    }

    /// Power goes and comes back.
    fn restart(self) -> Host {
        let device = self.drive.into_device();
        let chunks = device.chunks().to_vec();
        let device = Device::restore(&geometry(), &timing(), device.cut(), &chunks).unwrap();
        let (drive, now) = Pblk::recover(device, config(), Time::ZERO).unwrap();
        Host::new(drive, now)
    }
}

#[test]
fn parts_that_are_written_leave_room_for_those_that_are_read() {
    let medium = ScriptedMedium::ram(&geometry(), BLOCK as u32, ());
    let device = Device::new(&geometry(), &timing(), medium).unwrap();
    let mut host = Host::new(Pblk::new(device, config()).unwrap(), Time::ZERO);
    let blocks = PAGES * PAGE_BLOCKS;
    let mut random = 1u64;
    for i in 0..2 * blocks {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = if i < blocks { i } else { (random >> 33) % blocks };
        host.begin(BlockOp::Write, block * BLOCK, BLOCK);
        assert!(host.end(63));
    }
    let mut loading = 0;
    for cut in 0..8 {
        // Somewhere in a victim.
        for i in 0..100 + 13 * cut {
            host.begin(BlockOp::Write, (i * 97 + cut) % blocks * BLOCK, BLOCK);
            assert!(host.end(63));
        }
        host = host.restart();
        host.begin(BlockOp::Read, 0, BLOCK);
        assert!(host.end(0));
        (1..PAGES).for_each(|page| host.begin(BlockOp::Read, page * PAGE_BLOCKS * BLOCK, 512));
        (0..300).for_each(|block| host.begin(BlockOp::Write, block * BLOCK, 512));
        loading += u32::from(host.drive.is_loading());
        assert!(host.end(0), "the drive hangs with {} requests inside", host.open);
    }
    assert_eq!(loading, 8, "pages were missing");
}
