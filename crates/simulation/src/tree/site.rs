//! Where a tree stands: the drive below its store, the flash and its power.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use btree::store::no_clock;
use btree::{AnyStore, BatchStore, Error, InPlaceStore, LogStore, PageStore, StoreError, Tree};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Time};
use targets::Batch;

use super::pages::Line;
use super::{Host, StoreKind};
use crate::battery::Battery;
use crate::drive::Drive;
use crate::machine::{self, CHECK_BLOCKS, MOST_AT_ONCE, Violation, is_done, wrong};
use crate::rig::Rig;
use crate::stack::Stack;
use crate::trouble::{Struck, Troubles};

/// The least number of a request that looks at a block.
const LOOKS: u64 = 1 << 40;

/// The drive below the store, to be looked at.
enum Below {
    Blocks(Rc<RefCell<Stack>>),
    Batch(Rc<RefCell<Batch<Drive>>>),
}

/// See the head of this file.
pub struct Site {
    /// Which drive, store and tree.
    pub host: Host,
    /// The flash and its power, and what was done and seen.
    pub rig: Rig,
    battery: Option<Battery>,
    below: Option<Below>,
    /// The drive's time.
    pub clock: Rc<Cell<Time>>,
    /// Something was written to the flash; the tree was made.
    used: bool,
    made: bool,
}

impl Site {
    /// A new drive, without power. `traced` is a key whose history is kept.
    pub(crate) fn new(host: Host, traced: Option<u64>) -> Site {
        let rig = Rig::new(&host.setup, None, traced);
        Site {
            battery: machine::battery(&host.setup, &rig.flash, host.setup.seed),
            rig,
            below: None,
            clock: Rc::default(),
            used: false,
            made: false,
            host,
        }
    }

    pub(crate) fn note(&mut self, key: Option<u64>, words: impl FnOnce() -> String) {
        let about = |traced| key.is_none_or(|key| key == traced);
        self.rig.note(self.clock.get(), about, words);
    }

    /// The store of a drive that starts; a new one if there is none yet.
    pub(crate) fn start(
        &mut self,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<AnyStore<'static>, String> {
        self.clock = Rc::default();
        match self.host.store {
            StoreKind::Batch(config) => self.start_batch(config, troubles, seed),
            StoreKind::Log(_) | StoreKind::InPlace(_) => self.start_blocks(troubles, seed),
        }
    }

    /// The tree in a store that was started.
    pub(crate) fn tree<S: PageStore>(&mut self, store: S) -> Result<Tree<S>, String> {
        let now = self.clock.get();
        let make = if self.made { Tree::open } else { Tree::create };
        make(store, self.host.tree, now).map_err(|error| self.refused(error))
    }

    /// All that is to be found later was made.
    pub(crate) fn made(&mut self) {
        self.made = true;
    }

    /// Power goes. Gives nothing of the drive back.
    pub(crate) fn power_down(&mut self) {
        self.rig.flash.power().off();
        self.note(None, || "power goes".into());
        let did = match self.below.take() {
            Some(Below::Blocks(stack)) => {
                let stack = stack.borrow();
                self.rig.counts.merged += stack.merged();
                let counters = stack.counters();
                Some((counters.collections, counters.erases, stack.delays()))
            }
            Some(Below::Batch(target)) => {
                let (target, counters) = (target.borrow(), target.borrow().counters());
                Some((counters.collections, counters.erases, target.below().delays()))
            }
            None => None,
        };
        if let Some((collected, erased, delays)) = did {
            self.rig.count_cut(&self.host.setup, collected, erased, delays);
        }
    }

    /// The drive is gone, though nothing was cut.
    pub(crate) fn forget(&mut self) {
        self.below = None;
    }

    /// Another drive in the place of one that is of no more use.
    pub(crate) fn replace(&mut self) {
        let seed = self.rig.renew(&self.host.setup);
        self.battery = machine::battery(&self.host.setup, &self.rig.flash, seed);
        (self.used, self.made) = (false, false);
    }

    /// Chunks collected since power came.
    pub(crate) fn collections(&self) -> u64 {
        match &self.below {
            Some(Below::Blocks(stack)) => stack.borrow().counters().collections,
            Some(Below::Batch(target)) => target.borrow().counters().collections,
            None => 0,
        }
    }

    /// Whether a start may be refused: something failed in it, since what had been struck
    /// before, the drive is at its end, or a block of it is lost to what failed earlier, which
    /// shows.
    pub(crate) fn may_refuse(&self, before: Struck) -> Result<bool, Violation> {
        let now = self.rig.flash.struck();
        let since =
            [now.reads - before.reads, now.programs - before.programs, now.erases - before.erases];
        let setup = &self.host.setup;
        let is_over = setup.species.may_end(setup, &self.rig.flash, &(0..setup.blocks()));
        Ok(is_over || since.iter().any(|&count| count > 0) || self.has_lost_a_block()?)
    }

    /// Whether the drive, which started, does not give one of its blocks.
    fn has_lost_a_block(&self) -> Result<bool, Violation> {
        let Some(Below::Blocks(stack)) = &self.below else { return Ok(false) };
        let (mut stack, mut now) = (stack.borrow_mut(), self.clock.get());
        // Power that was to go in the start stays for this.
        self.rig.flash.power().lasts(u64::MAX);
        let blocks = stack.shape().bytes / BLOCK_BYTES;
        let (mut reqs, mut done) = (Ring::new(1), Ring::new(MOST_AT_ONCE));
        for block in 0..blocks {
            let buffer = Buffer::zeroed(BLOCK_BYTES as usize).expect("memory for a block");
            let (offset, len) = (block * BLOCK_BYTES, BLOCK_BYTES);
            reqs.put(|| BlockReq::new(LOOKS + block, BlockOp::Read, offset, len, buffer));
            loop {
                stack.submit(now, &mut reqs);
                // The store may have left something inside.
                let ended = done.drain().find(|one: &BlockDone| one.id == LOOKS + block);
                match ended {
                    Some(one) if is_done(one.status) => break,
                    Some(_) => return Ok(true),
                    None => {}
                }
                let at = stack.next_event().filter(|_| !self.rig.is_off());
                now = now.max(at.ok_or_else(|| wrong(Some(block), "a look at a block hangs"))?);
                stack.advance(now, &mut done);
            }
            self.rig.flash.power().progress();
        }
        Ok(false)
    }

    /// Why a store or tree is not there: a failed operation of the drive, or a log that has no
    /// room over segments that it cannot read, either of which needs a reason. What only damage
    /// explains is nobody's excuse.
    fn refused(&self, error: Error) -> String {
        match error {
            Error::Store(StoreError::Drive { .. } | StoreError::NoSpace { segments: 1.., .. }) => {
                error.to_string()
            }
            _ if self.rig.is_off() => error.to_string(),
            _ => panic!("a tree that was only cut does not open: {error}"),
        }
    }

    fn start_batch(
        &mut self,
        config: targets::BatchConfig,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<AnyStore<'static>, String> {
        let fresh = !std::mem::replace(&mut self.used, true);
        let powered = self.rig.flash.drive(&self.host.setup.timing, fresh, seed);
        let powered = powered.expect("memory for a drive");
        let below = Drive::new(powered, &self.rig.flash, troubles, seed);
        let below = below.expect("the rules are for vector commands");
        let target = Batch::open(below, config, Time::ZERO).map_err(|error| error.to_string())?;
        self.clock.set(target.now());
        let (shape, target) = (*target.shape(), Rc::new(RefCell::new(target)));
        self.below = Some(Below::Batch(target.clone()));
        let store = BatchStore::new(self.line(target), shape, shape.max_pages as usize, no_clock);
        let redo = if self.made { 0 } else { self.host.redo };
        let store = store.and_then(|store| store.with_redo(redo));
        Ok(Box::new(store.expect("such a drive will do")))
    }

    fn start_blocks(
        &mut self,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<AnyStore<'static>, String> {
        let fresh = !std::mem::replace(&mut self.used, true);
        let setup = &self.host.setup;
        let below = (&self.rig.flash, self.battery.as_ref());
        let started = Stack::start(setup, below, fresh, troubles, seed);
        let (stack, at) = started.map_err(|error| error.to_string())?;
        let stack = stack.layered(setup, None, seed);
        self.clock.set(at);
        let max_bytes = CHECK_BLOCKS * BLOCK_BYTES;
        let shape = Shape { max_bytes, depth: MOST_AT_ONCE, ..stack.shape() };
        let stack = Rc::new(RefCell::new(stack));
        self.below = Some(Below::Blocks(stack.clone()));
        let line = self.line(stack);
        let opens = self.made;
        let store = match self.host.store {
            StoreKind::Log(config) => {
                let make = if opens { LogStore::open } else { LogStore::create };
                make(line, shape, config, at).map(|store| Box::new(store) as AnyStore)
            }
            StoreKind::InPlace(config) => {
                let make = if opens { InPlaceStore::open } else { InPlaceStore::create };
                make(line, shape, config, at).map(|store| Box::new(store) as AnyStore)
            }
            StoreKind::Batch(_) => unreachable!("it is over another target"),
        };
        store.map_err(|error| self.refused(Error::Store(error)))
    }

    fn line<P>(&self, port: Rc<RefCell<P>>) -> Line<P> {
        Line { port, power: self.rig.flash.shared_power().clone(), clock: self.clock.clone() }
    }
}
