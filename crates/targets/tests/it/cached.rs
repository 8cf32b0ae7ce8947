//! A medium with a cache: a checkpoint's root is written only when what it
//! leads to is durable, however long a flush takes and whatever is written
//! meanwhile; and a medium that fails for good ends in errors.

use std::cell::Cell;
use std::rc::Rc;

use device::Device;
use faults::{Below, PowerCut, Script, ScriptedMedium};
use flash::{Dimensions, Geometry, Moved, Ppa, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const BLOCK: usize = 4096;
/// Bytes kept of a block of the user.
const KEPT: usize = 8;
/// How often a barrier is asked for until it is done.
const POLLS: u32 = 60;
/// What a root begins with.
const ROOT: &[u8] = b"ssdkit R";

/// What is seen of a medium from outside.
#[derive(Default)]
struct Seen {
    roots: Cell<u32>,
    /// Roots that were written before their pages were durable.
    early: Cell<u32>,
    /// From now on everything fails.
    broken: Cell<bool>,
}

/// Barriers take long.
struct Slow {
    seen: Rc<Seen>,
    /// Own blocks other than roots: programmed, durable, and what the barrier
    /// under way covers.
    programmed: u64,
    durable: u64,
    covered: Option<u64>,
    polls: u32,
}

impl Script for Slow {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        if self.seen.broken.get() {
            return Moved::Failed;
        }
        if data.len() == count as usize * BLOCK {
            if data.starts_with(ROOT) {
                self.seen.roots.set(self.seen.roots.get() + 1);
                let early = u32::from(self.durable < self.programmed);
                self.seen.early.set(self.seen.early.get() + early);
            } else {
                self.programmed += u64::from(count);
            }
        }
        below.program(at, count, data, tags)
    }

    fn reset(&mut self, below: Below, chunk: Ppa) -> Moved {
        if self.seen.broken.get() { Moved::Failed } else { below.reset(chunk) }
    }

    fn barrier(&mut self, _below: Below) -> Moved {
        if self.seen.broken.get() {
            return Moved::Failed;
        }
        let covered = *self.covered.get_or_insert(self.programmed);
        self.polls += 1;
        if self.polls < POLLS {
            return Moved::Pending;
        }
        (self.polls, self.covered, self.durable) = (0, None, covered);
        Moved::Done
    }

    fn is_cached(&self, _below: &dyn PowerCut) -> bool {
        true
    }
}

/// A drive under random writes of a block, so many at once.
struct Drive {
    pblk: Pblk<Device<ScriptedMedium>>,
    seen: Rc<Seen>,
    random: u64,
    blocks: u64,
}

impl Drive {
    fn new(timing: Timing) -> Drive {
        let (groups, pus, chunks, pages, planes) = (2, 2, 6, 16, 1);
        let data =
            Dimensions { groups, pus, chunks, pages, planes, page_bytes: 16384, pages_at_once: 1 };
        let geometry = Geometry::new(with_reserve(data)).unwrap();
        let blocks = 1000;
        let seen = Rc::new(Seen::default());
        let script =
            Slow { seen: seen.clone(), programmed: 0, durable: 0, covered: None, polls: 0 };
        let medium = ScriptedMedium::ram(&geometry, KEPT as u32, script);
        let device = Device::new(&geometry, &timing, medium).unwrap();
        let bytes = blocks * BLOCK as u64;
        let config = PblkConfig::new(bytes, chunks, 1);
        Drive { pblk: Pblk::new(device, config).unwrap(), seen, random: 1, blocks }
    }

    /// Does so many requests, a flush now and then. Gives the statuses of
    /// those that came back.
    fn work(&mut self, requests: u64, depth: usize) -> Vec<Status> {
        let (mut cmds, mut done) = (Ring::new(depth), Ring::<BlockDone>::new(64));
        let (mut left, mut out, mut now) = (requests, 0, Time::ZERO);
        let mut ended = Vec::new();
        loop {
            while left > 0 && out < depth && cmds.room() > 0 {
                self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(99);
                let lba = (self.random >> 33) % self.blocks;
                let flush = self.random >> 20 & 63 == 0;
                let (op, len, kept) =
                    if flush { (BlockOp::Flush, 0, 0) } else { (BlockOp::Write, BLOCK, KEPT) };
                let offset = if flush { 0 } else { lba * BLOCK as u64 };
                let buffer = if flush { Buffer::empty() } else { Buffer::zeroed(kept).unwrap() };
                cmds.put(|| BlockReq::new(left, op, offset, len as u64, buffer));
                (left, out) = (left - 1, out + 1);
            }
            if !cmds.is_empty() {
                self.pblk.submit(now, &mut cmds);
            }
            let Some(event) = self.pblk.next_event() else { return ended };
            now = now.max(event);
            self.pblk.advance(event, &mut done);
            while let Some(done) = done.pop() {
                out -= 1;
                ended.push(done.status);
            }
        }
    }
}

/// A drive without time, and one with.
fn timings() -> [Timing; 2] {
    let (read, program, erase) = (vec![50_000], vec![500_000], 3_000_000);
    [Timing::default(), Timing { read, program, erase, ..Timing::default() }]
}

#[test]
fn a_root_is_not_written_before_what_it_leads_to_is_durable() {
    for timing in timings() {
        let mut drive = Drive::new(timing);
        let ended = drive.work(60_000, 256);
        assert_eq!(ended.len(), 60_000);
        assert!(ended.iter().all(|status| status.is_ok()));
        assert!(drive.seen.roots.get() > 10, "{} roots", drive.seen.roots.get());
        assert_eq!(drive.seen.early.get(), 0, "of {} roots", drive.seen.roots.get());
    }
}

#[test]
fn a_medium_that_fails_for_good_ends_in_errors() {
    for timing in timings() {
        let mut drive = Drive::new(timing);
        assert!(drive.work(3000, 64).iter().all(|status| status.is_ok()));
        drive.seen.broken.set(true);
        let ended = drive.work(3000, 64);
        assert_eq!(ended.len(), 3000, "every request ends");
        let failed = ended.iter().filter(|status| !status.is_ok()).count();
        assert!(failed > 2000, "only {failed} failed");
        assert!(!drive.work(1, 1)[0].is_ok());
    }
}
