//! Power: what a cut takes, and what it leaves.
//!
//! A cut leaves the flash: what was programmed, and what the drive told the
//! medium of its chunks. It takes everything else. Power goes at a chosen
//! event: an event of the drive, or, where one moment or one call moves the
//! bytes of several operations, between any two of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use device::{Device, OpenChannel, VectorCmd, VectorDone};
use flash::{Chunk, ChunkState, Geometry, Medium, Moved, Ppa, Timing};
use port::{OutOfMemory, Port, Ring, Time};
use workload::Rng;

use crate::breaks::{Break, Wrong};
use crate::early::EarlyDone;
use crate::nature::Wear;
use crate::ondisk::{DiskCounts, DiskTrouble};
use crate::setup::Setup;
use crate::shared::Home;
use crate::store::Store;
use crate::superblocks::Superblocks;
use crate::trouble::{Strike, Struck};
use strikes::BelowParity;

mod strikes;

/// Events without a completion after which a drive is said to hang.
const PATIENCE: u64 = 1_000_000;

/// Whether there is power, and how many events it lasts.
#[derive(Debug)]
pub struct Power {
    left: Cell<u64>,
    gone: Cell<bool>,
    /// Events since the host last saw something complete.
    since: Cell<u64>,
    /// The event of the drive that was counted last has moved no bytes yet.
    fresh: Cell<bool>,
    /// Something was programmed since it came.
    programmed: Cell<bool>,
}

impl Power {
    /// No power.
    pub(crate) fn new() -> Power {
        Power {
            left: Cell::new(u64::MAX),
            gone: Cell::new(true),
            since: Cell::new(0),
            fresh: Cell::new(false),
            programmed: Cell::new(false),
        }
    }

    /// Power comes. It goes instead of the event after `events` more.
    pub fn on(&self, events: u64) {
        self.left.set(events);
        self.gone.set(false);
        self.fresh.set(false);
        self.programmed.set(false);
        self.since.set(0);
    }

    /// Whether something was programmed since power came.
    pub(crate) fn has_programmed(&self) -> bool {
        self.programmed.get()
    }

    /// The host saw something complete.
    #[inline]
    pub fn progress(&self) {
        self.since.set(0);
    }

    /// Whether power went because a drive worked without end and completed
    /// nothing.
    pub fn is_wasted(&self) -> bool {
        self.since.get() > PATIENCE
    }

    /// Power goes now.
    pub fn off(&self) {
        self.gone.set(true);
    }

    /// From now on, power lasts `events` more.
    pub fn lasts(&self, events: u64) {
        self.left.set(events);
    }

    /// Whether power is gone.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// One more event. False when power went instead.
    #[inline]
    fn event(&self) -> bool {
        if self.gone.get() {
            return false;
        }
        let (left, since) = (self.left.get(), self.since.get() + 1);
        self.since.set(since);
        if left == 0 || since > PATIENCE {
            self.gone.set(true);
            return false;
        }
        self.left.set(left - 1);
        true
    }

    /// An event of the drive.
    #[inline]
    fn drive_event(&self) -> bool {
        self.fresh.set(true);
        self.event()
    }

    /// An operation moves its bytes. The first of an event is that event.
    #[inline]
    pub(crate) fn operation(&self) -> bool {
        if self.fresh.replace(false) { !self.gone.get() } else { self.event() }
    }
}

/// Stream of the random numbers of times without power.
const OFF: u64 = 6;

/// What a cut leaves.
pub struct Remains {
    geometry: Geometry,
    medium: Store,
    chunks: Vec<Chunk>,
    wrong: Wrong,
    /// How the flash wears out; its draws are decided by `seed`.
    wear: Option<Wear>,
    seed: u64,
    /// The drive's own time, as it was told last.
    time: u64,
    /// By chunk, whose it is where several targets share the drive.
    homes: Vec<Home>,
    /// What faults struck since the host looked, and in all.
    strikes: Vec<Strike>,
    struck: Struck,
    /// Chunks of which a program or an erase failed since power came.
    failed: Vec<bool>,
    /// Where parity puts its blocks, and what it did not get or do since power came.
    superblocks: Option<Superblocks>,
    below: BelowParity,
    /// By the first of their members, superblocks that there was reason to give up; and
    /// chunks that were given up without one.
    to_give_up: BTreeSet<usize>,
    given_up: BTreeSet<usize>,
    /// Rows that were to be put back so far, where some are not.
    put_back: Option<u64>,
}

impl Remains {
    /// Reads a block as it was programmed, whatever became of it.
    fn truth(&mut self, at: Ppa, data: &mut [u8], tag: &mut [u8]) -> Moved {
        match &mut self.medium {
            Store::Damaged(medium) => medium.truth(at, data, tag),
            medium => medium.read(at, 1, data, tag),
        }
    }
}

/// Flash that outlives its drives, and the power of all of them.
#[derive(Clone)]
pub struct Flash {
    remains: Rc<RefCell<Remains>>,
    power: Rc<Power>,
    kept: u32,
    cached: bool,
    /// Nothing is broken.
    sound: bool,
}

impl Flash {
    /// Erased flash of a setup, and no power. What is done is durable at once,
    /// or, with a cache, when it was flushed. `broken` is what goes wrong with
    /// it.
    pub fn new(setup: &Setup, broken: Option<Break>, seed: u64) -> Result<Flash, OutOfMemory> {
        let (geometry, kept, cached) = (&setup.geometry, setup.kept, setup.troubles.cached);
        let remains = Remains {
            geometry: *geometry,
            medium: Store::new(setup, seed)?,
            chunks: vec![Chunk::default(); geometry.chunk_slots()],
            wrong: Wrong::new(broken, geometry, seed),
            wear: setup.troubles.wear.clone(),
            seed,
            time: 0,
            homes: setup.shares.as_ref().map_or(Vec::new(), |shares| shares.homes(geometry)),
            strikes: Vec::new(),
            struck: Struck::default(),
            failed: vec![false; geometry.chunk_slots()],
            superblocks: Superblocks::of(setup),
            below: BelowParity::default(),
            put_back: setup.troubles.put_back.then_some(0),
            to_give_up: BTreeSet::new(),
            given_up: BTreeSet::new(),
        };
        let (remains, power) = (Rc::new(RefCell::new(remains)), Rc::new(Power::new()));
        Ok(Flash { remains, power, kept, cached, sound: broken.is_none() })
    }

    /// Its power.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// Its power, to be kept.
    pub fn shared_power(&self) -> &Rc<Power> {
        &self.power
    }

    /// How often faults struck.
    pub fn struck(&self) -> Struck {
        let remains = self.remains.borrow();
        match &remains.medium {
            Store::Damaged(medium) => {
                let (damage, detected) = medium.struck();
                Struck { damage, detected, ..remains.struck }
            }
            Store::Cached(medium) => Struck { damage: medium.struck().sum(), ..remains.struck },
            _ => remains.struck,
        }
    }

    /// Chunks that are given up, and those of them that were so from the
    /// factory.
    pub fn bad_chunks(&self) -> (u64, u64) {
        let remains = self.remains.borrow();
        let bad = remains.chunks.iter().filter(|chunk| chunk.state == ChunkState::Offline);
        bad.fold((0, 0), |(all, new), chunk| (all + 1, new + u64::from(chunk.wear == 0)))
    }

    /// What became of a drive file, and of the disk below it.
    pub fn disk_counts(&self) -> DiskCounts {
        match &self.remains.borrow().medium {
            Store::OnDisk(medium) => medium.counts(),
            _ => DiskCounts::default(),
        }
    }

    /// The disk below a drive file will fail something.
    pub fn fail_disk(&self, trouble: DiskTrouble) {
        if let Store::OnDisk(medium) = &self.remains.borrow().medium {
            medium.fail(trouble);
        }
    }

    /// It fails nothing more.
    pub fn heal_disk(&self) {
        if let Store::OnDisk(medium) = &self.remains.borrow().medium {
            medium.heal();
        }
    }

    /// The medium is shut down in good order, if it knows of that.
    pub fn close(&self) {
        if let Store::OnDisk(medium) = &mut self.remains.borrow_mut().medium {
            medium.close();
        }
    }

    /// Power goes when the medium takes nothing more.
    fn watch(&self, moved: Moved) -> Moved {
        if moved == Moved::Failed && self.remains.borrow().medium.has_stopped() {
            self.power.off();
        }
        moved
    }

    /// A drive on it, `fresh` from the factory or as after a cut; `seed` decides
    /// what that kept of what was not flushed, and how long it took.
    pub fn drive(&self, timing: &Timing, fresh: bool, seed: u64) -> Result<Powered, OutOfMemory> {
        let (geometry, chunks, wear, own) = {
            let remains = &mut *self.remains.borrow_mut();
            remains.medium.cut(seed, &mut remains.chunks);
            remains.failed.fill(false);
            remains.below = BelowParity::default();
            (remains.geometry, remains.chunks.clone(), remains.wear.clone(), remains.seed)
        };
        let medium = self.clone();
        let device = match wear {
            None => Device::restore(&geometry, timing, medium, &chunks)?,
            Some(wear) if fresh => Device::with(&geometry, timing, &wear.reliability, own, medium)?,
            Some(wear) => {
                let model = &wear.reliability;
                let mut device =
                    Device::restore_with(&geometry, timing, model, own, medium, &chunks)?;
                let mut rng = Rng::new(seed, OFF);
                if wear.longest_off > 0 && rng.below(4) == 0 {
                    device.let_time_pass(rng.below(wear.longest_off));
                }
                device
            }
        };
        let early = self.remains.borrow().wrong.early();
        Ok(Powered { device, power: self.power.clone(), early })
    }
}

impl Medium for Flash {
    #[inline]
    fn kept(&self) -> u32 {
        self.kept
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let powered = self.power.operation();
        self.power.programmed.set(powered || self.power.has_programmed());
        let moved = {
            let remains = &mut *self.remains.borrow_mut();
            match powered {
                true if remains.fails_to_put_back(at) => Moved::Failed,
                _ if !self.sound => {
                    remains.wrong.program(&mut remains.medium, powered, at, count, data, tags)
                }
                true => remains.medium.program(at, count, data, tags),
                false => Moved::Failed,
            }
        };
        self.watch(moved)
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        if !self.power.operation() {
            return Moved::Failed;
        }
        let moved = {
            let remains = &mut *self.remains.borrow_mut();
            match self.sound {
                true => remains.medium.read(at, count, data, tags),
                false => remains.wrong.read(&mut remains.medium, at, count, data, tags),
            }
        };
        self.watch(moved)
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        if !self.power.operation() {
            return Moved::Failed;
        }
        let moved = {
            let remains = &mut *self.remains.borrow_mut();
            if !self.sound {
                remains.wrong.reset(&mut remains.medium, &remains.chunks, chunk);
            }
            remains.medium.reset(chunk)
        };
        self.watch(moved)
    }

    fn barrier(&mut self) -> Moved {
        if !self.power.operation() {
            return Moved::Failed;
        }
        let moved = self.remains.borrow_mut().medium.barrier();
        self.watch(moved)
    }

    fn is_cached(&self) -> bool {
        self.cached
    }

    fn note_time(&mut self, ns: u64) {
        if !self.power.is_gone() {
            let time = &mut self.remains.borrow_mut().time;
            *time = ns.max(*time);
        }
    }

    fn time(&self) -> u64 {
        self.remains.borrow().time
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        if self.power.is_gone() {
            return;
        }
        let remains = &mut *self.remains.borrow_mut();
        remains.note_given_up(chunk_index, chunk);
        if self.sound || !remains.wrong.forgets() {
            remains.chunks[chunk_index] = *chunk;
            remains.medium.describe(chunk_index, chunk);
        }
        if remains.medium.has_stopped() {
            self.power.off();
        }
    }
}

/// A drive that stops for ever when power goes.
pub struct Powered {
    device: Device<Flash>,
    power: Rc<Power>,
    early: Option<EarlyDone>,
}

impl Port for Powered {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        if self.power.is_gone() {
            return;
        }
        if let Some(early) = &mut self.early {
            early.say(now, cmds);
        }
        self.device.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        if self.power.is_gone() {
            return None;
        }
        let early = self.early.as_ref().and_then(EarlyDone::next);
        early.or_else(|| self.device.next_event())
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        if self.power.is_gone() {
            return;
        }
        if self.device.next_event().is_some_and(|at| at <= to) {
            if !self.power.drive_event() {
                return;
            }
            self.device.advance(to, done);
            if self.power.is_gone() {
                // What ends in the moment of the cut reaches nobody.
                while done.pop().is_some() {}
                return;
            }
        }
        if let Some(early) = &mut self.early {
            early.instead(done);
        }
    }
}

impl OpenChannel for Powered {
    device::as_below!(this => this.device);
}

impl Powered {
    /// Whether power is gone.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.power.is_gone()
    }

    /// The device itself.
    pub fn device(&self) -> &Device<Flash> {
        &self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_goes_instead_of_an_event() {
        let power = Power::new();
        assert!(power.is_gone() && !power.drive_event());
        power.on(2);
        // An event, the operation that is it, and another at the same moment.
        assert!(power.drive_event() && power.operation() && power.operation());
        assert!(!power.operation() && power.is_gone());
        assert!(!power.drive_event() && !power.operation());
    }

    #[test]
    fn what_was_programmed_is_left() {
        let dim = flash::Dimensions { chunks: 2, pages: 2, ..flash::Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let setup = Setup { geometry, kept: 8, ..Setup::sound(0) };
        let mut flash = Flash::new(&setup, None, 0).unwrap();
        flash.power().on(1);
        let chunk = Chunk { programmed: 1, wp: 1, ..Chunk::default() };
        assert!(!flash.power().has_programmed());
        assert_eq!(flash.program(Ppa(0), 1, &[1; 8], &[0; 16]), Moved::Done);
        assert!(flash.power().has_programmed());
        flash.describe(0, &chunk);
        assert_eq!(flash.program(Ppa(1), 1, &[2; 8], &[0; 16]), Moved::Failed);
        flash.describe(0, &Chunk { programmed: 2, wp: 2, ..chunk });
        flash.power().on(9);
        let drive = flash.drive(&Timing::default(), false, 0).unwrap();
        assert_eq!(drive.chunk(0).programmed, 1);
        let mut data = [0; 8];
        assert_eq!(flash.read(Ppa(0), 1, &mut data, &mut []), Moved::Done);
        assert_eq!(data, [1; 8]);
    }
}
