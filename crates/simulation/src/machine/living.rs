//! How a drive of blocks lives: reads, writes, flushes and trims, cuts, and
//! sometimes an end in good order.

use port::{BLOCK_BYTES, BlockOp, Port, SECTOR_BYTES, Time};
use workload::Rng;

use super::{Ask, MOST_AT_ONCE, Machine, Violation, battery, wrong};
use crate::breaks::Break;
use crate::life::{Living, refuses};
use crate::rig::Rig;
use crate::setup::Setup;
use crate::stack::Stack;

/// Sectors of a block.
const SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

impl Living for Machine {
    const EVENTS: &'static [u64] = &[4, 24, 120];
    const CYCLE: u64 = 200;
    const QUIET: u32 = 1000;
    const STARTS: u32 = 64;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn under_way(&self) -> usize {
        MOST_AT_ONCE - self.free.len()
    }

    fn depth(&self) -> usize {
        self.setup.work.depth.min(MOST_AT_ONCE)
    }

    fn cycle(&self, rng: &mut Rng) -> u64 {
        Self::CYCLE + rng.below(8)
    }

    fn collections(&self) -> u64 {
        self.drive.as_ref().map_or(0, |drive| drive.counters().collections)
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.drive.is_none(), "power comes after it went");
        let (seed, troubles) = self.rig.power_up(&self.setup, events);
        (self.now, self.open) = (Time::ZERO, [None; MOST_AT_ONCE]);
        self.free.clear();
        self.free.extend((0..MOST_AT_ONCE).rev());
        let fresh = !std::mem::replace(&mut self.used, true);
        self.has_map = fresh;
        let before = self.rig.flash.struck();
        let below = (&self.rig.flash, self.battery.as_ref());
        let started = Stack::start(&self.setup, below, fresh, &troubles, seed);
        self.take_strikes();
        let after = self.rig.flash.struck();
        self.start_struck = after.reads > before.reads;
        self.keys_unread = (before.keys, after.keys);
        match started {
            Ok((stack, now)) => {
                let broken = match self.broken {
                    Some(Break::Layer(broken)) => Some(broken),
                    _ => None,
                };
                let stack = stack.layered(&self.setup, broken, seed);
                let is_frozen = stack.is_frozen();
                self.host = stack.host();
                self.drive = Some(stack);
                self.now = now;
                if is_frozen && !self.may_be_frozen() {
                    let words = "a start froze the drive, and no fault says why";
                    return Err(wrong(None, words));
                }
                self.is_frozen = is_frozen;
                if !is_frozen {
                    self.empty_cache();
                }
                self.rig.counts.frozen += u64::from(is_frozen);
                Ok(self.rig.started(now, || "power comes; the drive is ready".into()))
            }
            Err(_) if self.rig.is_off() && !self.rig.flash.power().is_wasted() => {
                Ok(self.rig.cut_in_start(self.now, events))
            }
            Err(error) if self.may_refuse(&error, before) => Ok(self.rig.refused(self.now, error)),
            Err(error) => Err(wrong(None, format!("recovery failed: {error}"))),
        }
    }

    fn power_down(&mut self) {
        self.rig.flash.power().off();
        self.note(None, || "power goes".into());
        if let Some(drive) = self.drive.take() {
            let (counters, delays) = (drive.counters(), drive.delays());
            self.rig.count_cut(&self.setup, counters.collections, counters.erases, delays);
            self.rig.counts.merged += drive.merged();
            self.rig.counts.copied += counters.copied;
            self.rig.counts.map_reads += drive.map_reads();
            self.rig.counts.cache_hits += drive.cache_hits();
        }
        self.in_cache.cut();
        while self.queue.pop().is_some() {}
        while self.done.pop().is_some() {}
    }

    /// With other faults.
    fn replace(&mut self) {
        self.power_down();
        let seed = self.rig.renew(&self.setup);
        self.battery = battery(&self.setup, &self.rig.flash, seed);
        self.contract.replace();
        self.empty_cache();
        self.used = false;
        self.note(None, || "a new drive takes its place".into());
    }

    /// Whether flash that wears out, or was damaged, refused so many starts that
    /// it is too bad to be read.
    fn is_hopeless(&self) -> bool {
        let troubles = &self.setup.troubles;
        let may_be = troubles.wear.is_some() || self.rig.flash.struck().damage > 0;
        troubles.fatal || may_be && self.rig.is_hopeless()
    }

    /// One with too many bad chunks is sent back; where all have, the life is over.
    fn start(&mut self) -> Result<bool, Violation> {
        for _ in 0..Self::STARTS {
            // One that has reason to take no writes is not tried.
            if self.power_up(u64::MAX)? && !self.may_end() {
                return Ok(true);
            }
            self.replace();
        }
        self.rig.over = true;
        Ok(false)
    }

    fn restart(&mut self) -> Result<bool, Violation> {
        for _ in 0..Self::STARTS {
            if self.power_up(u64::MAX)? {
                return Ok(true);
            }
            if self.is_hopeless() {
                self.replace();
                self.start()?;
                return Ok(false);
            }
        }
        Err(refuses(Self::STARTS))
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let work = self.setup.work;
        let mut at = rng.below(1000);
        for (share, op) in [
            (work.reads, BlockOp::Read),
            (work.flushes, BlockOp::Flush),
            (work.trims, BlockOp::Trim),
            (work.zeroes, BlockOp::WriteZeroes),
        ] {
            if at < share {
                return self.ask_for(op, rng);
            }
            at -= share;
        }
        self.ask_for(BlockOp::Write, rng)
    }

    fn events_between(&self) -> u64 {
        self.setup.work.pause
    }

    fn pause(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        if self.setup.work.pause > 0 && rng.one_in(4) {
            let later = Time(self.now.0 + rng.below(50_000));
            let next = self.drive.as_ref().and_then(Stack::next_event);
            self.now = next.map_or(later, |next| later.min(next)).max(self.now);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Some(drive) = &mut self.drive else { return Ok(false) };
        if self.rig.flash.power().is_wasted() {
            return Err(self.hangs());
        }
        if self.rig.is_off() {
            return Ok(false);
        }
        let Some(at) = drive.next_event() else {
            return if self.under_way() > 0 { Err(self.hangs()) } else { Ok(false) };
        };
        self.now = self.now.max(at);
        drive.advance(self.now, &mut self.done);
        self.take_strikes();
        if self.rig.flash.power().is_wasted() {
            return Err(self.hangs());
        }
        // What ends in the moment of the cut never reaches the host.
        if self.rig.is_off() {
            return Ok(false);
        }
        while let Some(done) = self.done.pop() {
            self.completed(done)?;
        }
        self.submit();
        Ok(true)
    }

    /// Sometimes it flushes before, and sometimes the drive is shut down, in a
    /// quarter of the cases with power for some events only.
    fn stop(&mut self, rng: &mut Rng) -> Result<bool, Violation> {
        if rng.one_in(8) {
            let rests = self.drain()?;
            if rng.one_in(2) && rests {
                self.ask_for(BlockOp::Flush, rng)?;
                self.drain()?;
            }
        }
        if !rng.one_in(10) {
            return Ok(false);
        }
        if self.drain()? {
            if rng.one_in(4) {
                let most = rng.one_of(Self::EVENTS);
                self.rig.flash.power().lasts(rng.below(most));
            }
            self.close()?;
        }
        Ok(true)
    }

    fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        if at_rest { self.check_now() } else { self.check_all() }
    }

    fn end(&mut self) -> u64 {
        self.drive.as_ref().map_or(0, Stack::state_hash)
    }
}

impl Machine {
    /// Sends a request of a kind.
    fn ask_for(&mut self, op: BlockOp, rng: &mut Rng) -> Result<(), Violation> {
        if op == BlockOp::Flush {
            return self.send(Ask { op, fua: false, sector: 0, count: 0 });
        }
        let work = self.setup.work;
        let blocks = self.setup.blocks();
        let hot = rng.below(1000) < work.skew;
        let first = rng.below(if hot { blocks.div_ceil(10) } else { blocks });
        let count = (1 + rng.below(work.blocks)).min(blocks - first);
        let (mut sector, mut count) = (first * SECTORS, count * SECTORS);
        // Parts of trims that are made one may be a whole block together.
        let whole = op == BlockOp::Trim && self.setup.merges();
        if self.setup.parts && !whole && rng.one_in(2) {
            let skip = rng.below(SECTORS);
            sector += skip;
            count -= skip + rng.below(count - skip);
        }
        let fua = op != BlockOp::Read && rng.below(1000) < work.fua;
        self.send(Ask { op, fua, sector, count })
    }
}
