//! A drive whose chunks wear and are disturbed by reads: what it tells of them
//! leads to their being written anew, before they cannot be read.

use crate::host::Host;
use device::{Device, OpenChannel};
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Reliability, Timing};
use port::{BLOCK_BYTES, BlockOp, Status, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const DATA_CHUNKS: u32 = 8;

/// Every read of a block adds to the error rate of its chunk, and much.
fn disturbed() -> Reliability {
    Reliability {
        errors: true,
        rber_base: 1e-3,
        read_disturb: 1e-4,
        codeword: 1024,
        correctable: 40,
        read_retries: 5,
        retry_gain: 0.6,
        ..Reliability::default()
    }
}

pub const DAY: u64 = 86_400_000_000_000;

/// Age makes data unreadable within months. Reads change nothing.
pub fn forgetful() -> Reliability {
    Reliability {
        errors: true,
        rber_base: 3e-3,
        retention_time: 10 * DAY,
        correctable: 100,
        read_retries: 1,
        retry_gain: 0.8,
        ..Reliability::default()
    }
}

fn timing() -> Timing {
    Timing {
        read: vec![50_000],
        program: vec![600_000],
        erase: 3_000_000,
        endurance: 1000,
        ..Timing::default()
    }
}

/// A drive of so many blocks.
type Rig = Host<Pblk<Device<ScriptedMedium>>, u64>;

impl Rig {
    /// With chunks of so many rows.
    fn of(reliability: &Reliability, pages: u32) -> Rig {
        let data = Dimensions {
            groups: 2,
            chunks: DATA_CHUNKS,
            pages,
            page_bytes: 8192,
            ..Dimensions::LEAST
        };
        let geometry = Geometry::new(with_reserve(data)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 8, ());
        let device = Device::with(&geometry, &timing(), reliability, 7, medium).unwrap();
        let space = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
        let blocks = space * 3 / 4;
        let bytes = blocks * BLOCK_BYTES;
        let config = PblkConfig::new(bytes, DATA_CHUNKS, 1);
        let drive = Pblk::new(device, config).unwrap();
        Rig::new(drive, Time::ZERO, blocks)
    }

    /// As whoever serves a drive does now and then.
    fn tend(&mut self) {
        self.drive.device_mut().patrol(self.now);
        self.drive.heed_notices(self.now);
        self.rest();
    }

    /// Goes, with or without a shutdown, and comes back at the same time.
    fn restart(mut self, reliability: &Reliability, is_clean: bool) -> Rig {
        if is_clean {
            self.drive.close(self.now);
            self.rest();
            assert!(self.drive.is_closed());
        }
        let (config, device) = (self.drive.config(), self.drive.into_device());
        let (geometry, chunks) = (*device.geometry(), device.chunks().to_vec());
        let medium = device.cut();
        let device =
            Device::restore_with(&geometry, &timing(), reliability, 7, medium, &chunks).unwrap();
        let (drive, now) = Pblk::recover(device, config, self.now).expect("it opens");
        Rig { drive, now, ..self }
    }

    fn read_all(&mut self) {
        for block in 0..self.more {
            assert_eq!(self.good(BlockOp::Read, block, 0), block + 1);
        }
    }
}

#[test]
fn what_is_read_often_is_written_anew() {
    let mut rig = Rig::of(&disturbed(), 8);
    for i in 0..rig.more * 12 {
        rig.good(BlockOp::Write, i * 7 % rig.more, i * 7 % rig.more + 1);
    }
    let before = rig.drive.counters();
    for i in 0..40_000 {
        let block = i % 3;
        assert_eq!(rig.good(BlockOp::Read, block, 0), block + 1);
    }
    let after = rig.drive.counters();
    assert!(after.refreshed > before.refreshed + 5, "{before:?} {after:?}");
    for block in 0..rig.more {
        assert_eq!(rig.good(BlockOp::Read, block, 0), block + 1);
    }
    assert_eq!(rig.drive.counters().lost, 0);
}

/// Written once and left for months: with a read of one block now and then all
/// is written anew in time, also what nobody reads. Without it is lost.
#[test]
fn what_nobody_reads_is_written_anew_before_it_is_lost() {
    for is_looked_after in [true, false] {
        let mut rig = Rig::of(&forgetful(), 8);
        for block in 0..rig.more {
            rig.good(BlockOp::Write, block, block + 1);
        }
        rig.rest();
        for i in 0..360 {
            rig.now = Time(rig.now.0 + DAY / 3);
            if is_looked_after {
                rig.good(BlockOp::Write, rig.more - 1 - i % 4, rig.more - i % 4);
                rig.good(BlockOp::Read, rig.more - 1, 0);
                rig.rest();
            }
        }
        let mut lost = 0;
        for block in 0..rig.more {
            match rig.block(BlockOp::Read, block, 0) {
                (Status::SUCCESS, read) => assert_eq!(read, block + 1),
                (status, _) => {
                    assert_eq!(status, Status::UNRECOVERED_READ);
                    lost += 1;
                }
            }
        }
        let refreshed = rig.drive.counters().refreshed;
        if is_looked_after {
            assert_eq!((lost, rig.drive.counters().lost), (0, 0), "refreshed {refreshed}");
            assert!(refreshed > 30, "{refreshed}");
        } else {
            assert!(lost > rig.more / 2, "{lost} of {}", rig.more);
        }
    }
}

/// Served for months and written little: neither what the target keeps for
/// itself nor chunks that hardly fill may grow as old as the drive.
#[test]
fn a_drive_that_is_hardly_written_opens_after_months() {
    for is_clean in [true, false] {
        let model = forgetful();
        let mut rig = Rig::of(&model, 64);
        (0..rig.more).for_each(|block| _ = rig.good(BlockOp::Write, block, block + 1));
        rig.fua = true;
        for month in 0..4 {
            for day in 0..30 {
                rig.now = Time(rig.now.0 + DAY);
                let block = (month * 30 + day) * 7 % rig.more;
                rig.good(BlockOp::Write, block, block + 1);
                rig.tend();
            }
            rig = rig.restart(&model, is_clean);
            rig.read_all();
            assert_eq!(rig.drive.counters().lost, 0);
        }
    }
}

/// Flash that is worn out: also what was just written reads as bad. A chunk is
/// not left at its first read for that.
#[test]
fn a_chunk_of_a_worn_drive_is_filled_though_it_is_read() {
    let worn = Reliability { rber_base: 9.5e-3, retention_time: 0, ..forgetful() };
    let mut rig = Rig::of(&worn, 64);
    rig.fua = true;
    for i in 0..1000 {
        rig.good(BlockOp::Write, i % 16, i + 1);
        let (status, _) = rig.block(BlockOp::Read, i % 16, 0);
        assert!([Status::SUCCESS, Status::HIGH_ECC].contains(&status));
    }
    assert!(rig.drive.device().errors().retried_reads > 10, "it is worn");
    assert!(rig.drive.counters().refreshed < 4, "{:?}", rig.drive.counters());
}
