//! A batched target on flash that ages and wears: what the drive tells of its
//! data leads to their being written anew before they cannot be read, and chunks
//! with what nobody writes do not stay behind.

use std::cell::RefCell;
use std::rc::Rc;

use crate::batch_world::{Random, batch_buffer, value_of};
use crate::disturb::{DAY, forgetful};
use device::{Device, OpenChannel};
use faults::{Fuse, ScriptedMedium};
use flash::{Dimensions, Geometry, Reliability, Timing};
use port::{BatchOp, BatchReq, Buffer, Port, Ring, Status, Time};
use targets::{Batch, BatchConfig};

struct Rig {
    drive: Batch<Box<dyn OpenChannel>>,
    device: Rc<RefCell<Device<ScriptedMedium>>>,
    geometry: Geometry,
    now: Time,
    pages: u64,
    values: Vec<u64>,
}

impl Rig {
    fn new(reliability: &Reliability, fill: u64) -> Rig {
        let dim = Dimensions {
            groups: 2,
            pus: 2,
            chunks: 32,
            pages: 8,
            page_bytes: 8192,
            ..Dimensions::LEAST
        };
        let geometry = Geometry::new(dim).unwrap();
        let timing = Timing {
            read: vec![50_000],
            program: vec![600_000],
            erase: 3_000_000,
            endurance: 3000,
            ..Timing::default()
        };
        let medium = ScriptedMedium::ram(&geometry, 8, ());
        let device = Device::with(&geometry, &timing, reliability, 7, medium).unwrap();
        let config = BatchConfig {
            max_pages: 16,
            batches: 4,
            depth: 64,
            log_rows: 12,
            checkpoint_every: 0,
            ..BatchConfig::for_geometry(&geometry, 0.1)
        };
        let pages = config.capacity(&geometry) * fill / 100;
        let config = BatchConfig { pages, ..config };
        let below = Fuse::new(device, u64::MAX);
        let device = below.drive.clone();
        let below: Box<dyn OpenChannel> = Box::new(below);
        let drive = Batch::open(below, config, Time::ZERO).unwrap();
        let (now, values) = (drive.now(), vec![0; pages as usize]);
        let mut rig = Rig { now, drive, device, geometry, pages, values };
        for first in (0..pages).step_by(16) {
            rig.write(&(first..pages.min(first + 16)).collect::<Vec<u64>>());
        }
        rig
    }

    fn ask(&mut self, op: BatchOp, lpid: u64, buffer: Buffer) -> (Status, Buffer) {
        let (mut queue, mut done) = (Ring::new(1), Ring::new(8));
        queue.push(BatchReq { id: 1, op, lpid, buffer }).unwrap();
        self.drive.submit(self.now, &mut queue);
        loop {
            let at = self.drive.next_event().expect("a request ends");
            self.now = self.now.max(at);
            self.drive.advance(self.now, &mut done);
            if let Some(done) = done.pop() {
                return (done.status, done.buffer);
            }
        }
    }

    fn write(&mut self, lpids: &[u64]) {
        let next = self.values.iter().max().unwrap() + 1;
        let values: Vec<u64> = (next..next + lpids.len() as u64).collect();
        let (status, _) = self.ask(BatchOp::WriteBatch, 0, batch_buffer(lpids, &values, 8));
        assert_eq!(status, Status::SUCCESS);
        lpids.iter().zip(values).for_each(|(&lpid, value)| self.values[lpid as usize] = value);
    }

    /// Lets all that is under way end.
    fn rest(&mut self) {
        while let Some(at) = self.drive.next_event() {
            self.now = self.now.max(at);
            self.drive.advance(self.now, &mut Ring::new(1));
        }
    }

    /// How many pages cannot be read; the others are as they were written.
    fn unreadable(&mut self) -> usize {
        let mut bad = 0;
        for lpid in 0..self.pages {
            let (status, buffer) = self.ask(BatchOp::Read, lpid, Buffer::zeroed(8).unwrap());
            if status.is_ok() || status == Status::HIGH_ECC {
                assert_eq!(value_of(buffer.bytes()), self.values[lpid as usize], "page {lpid}");
            } else {
                bad += 1;
            }
        }
        bad
    }

    /// Erases of the chunks that are no slot: least, mean and most.
    fn wear(&self) -> (u32, f64, u32) {
        let units: Vec<usize> = self.geometry.pus_channels_first().collect();
        let numbers = 2..self.geometry.chunks();
        let chunks =
            units.iter().flat_map(|&unit| numbers.clone().map(move |number| (unit, number)));
        let wear: Vec<u32> = chunks
            .map(|(unit, number)| self.geometry.chunk_of(unit, number))
            .map(|chunk| self.drive.below().chunk(chunk).wear)
            .collect();
        let sum: u64 = wear.iter().map(|&wear| u64::from(wear)).sum();
        (*wear.iter().min().unwrap(), sum as f64 / wear.len() as f64, *wear.iter().max().unwrap())
    }
}

#[test]
fn data_that_age_are_written_anew() {
    for tended in [false, true] {
        let mut rig = Rig::new(&forgetful(), 76);
        assert_eq!(rig.unreadable(), 0);
        for _ in 0..240 {
            rig.now += DAY / 4;
            if tended {
                let now = rig.now;
                rig.device.borrow_mut().patrol(now);
                rig.drive.heed_notices(now);
                rig.rest();
            }
        }
        let bad = rig.unreadable();
        let counters = rig.drive.counters();
        if tended {
            assert_eq!((bad, counters.stuck), (0, 0));
            assert!(counters.refreshed > 20, "{counters:?}");
        } else {
            assert!(bad > 0, "it ages");
        }
    }
}

/// 90 % of the writes go to a tenth of the pages: what is never written moves.
#[test]
fn chunks_with_what_nobody_writes_wear_too() {
    let mut rig = Rig::new(&Reliability::default(), 90);
    let mut random = Random(5);
    let hot = rig.pages / 10;
    while rig.wear().1 < 100.0 {
        for _ in 0..100 {
            let lpids: Vec<u64> = (0..8).map(|_| random.below(hot)).collect();
            let mut lpids = lpids;
            lpids.sort_unstable();
            lpids.dedup();
            rig.write(&lpids);
        }
    }
    let (least, mean, most) = rig.wear();
    let counters = rig.drive.counters();
    // 1 in 150 of the endurance, and what comes until a chunk is looked at.
    assert!(f64::from(least) > mean - 60.0, "{least} of {mean}, {counters:?}");
    assert!(f64::from(most) < mean + 60.0, "{most} of {mean}");
    // What that costs: at most so many chunks moved once while others wear by 20.
    assert!(counters.leveled > 10 && counters.leveled * 20 <= counters.erases, "{counters:?}");
    assert_eq!(rig.unreadable(), 0);
}
