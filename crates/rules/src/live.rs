//! A set in use, and how another takes its place while requests go on.
//!
//! The drive has the [`Live`] set, alone; whoever installs has the [`Installer`], on any
//! thread. A new set waits in a slot between them until the drive takes it, before the next
//! request: each request is decided by one set as a whole, and none waits. The drive never
//! blocks, allocates or frees for it; the old set and its state go back through the slot.
//!
//! What the new set declares as the old one did is kept: counters, timers, the pace of
//! limits, and maps with all their entries. What is declared otherwise begins anew, a map of
//! another size or content, too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::compile::Compiled;
use crate::decision::{Address, Decision, Entry};
use crate::request::{Request, View};
use crate::state::{State, StoreError};

/// A set with its state.
struct Installed {
    rules: Compiled,
    state: State,
    /// How many were installed up to this one.
    number: u64,
}

/// Between the drive and who installs.
struct Slot {
    /// A set waits.
    waits: AtomicBool,
    /// The number of the set that the drive has.
    taken: AtomicU64,
    /// A set that waits, or, where none does, the one before the drive's.
    other: Mutex<Option<Box<Installed>>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Installed>>> {
        // Nobody leaves it half done: who held the lock only moved a box.
        self.other.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The set that a drive has.
pub struct Live {
    installed: Box<Installed>,
    slot: Arc<Slot>,
}

/// Who installs sets in a drive.
pub struct Installer {
    slot: Arc<Slot>,
    /// Sets that were installed.
    count: u64,
}

impl Live {
    /// A drive with its first set, number 0, and who installs others.
    pub fn new(rules: Compiled) -> (Live, Installer) {
        let state = State::new(rules.set());
        let slot = Slot {
            waits: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            other: Mutex::new(None),
        };
        let slot = Arc::new(slot);
        let installed = Box::new(Installed { rules, state, number: 0 });
        (Live { installed, slot: slot.clone() }, Installer { slot, count: 0 })
    }

    /// What becomes of a request, by the newest set.
    #[inline]
    pub fn decide(&mut self, request: &Request, view: &View) -> Decision {
        if self.slot.waits.load(Ordering::Acquire) {
            self.take();
        }
        let Installed { rules, state, .. } = &mut *self.installed;
        rules.decide(state, request, view)
    }

    /// Stores where a block is that a decision placed or moved. A decision of an earlier
    /// set may name an entry that there is no more: that is an error, and nothing changes.
    #[inline]
    pub fn store(&mut self, entry: Entry, address: Option<Address>) -> Result<(), StoreError> {
        let Installed { rules, state, .. } = &mut *self.installed;
        state.store(rules.set(), entry, address)
    }

    /// The set.
    pub fn rules(&self) -> &Compiled {
        &self.installed.rules
    }

    /// Its state.
    pub fn state(&self) -> &State {
        &self.installed.state
    }

    /// Its number: how many were installed up to it. It changes between two decisions only.
    #[inline]
    pub fn number(&self) -> u64 {
        self.installed.number
    }

    /// Takes the set that waits. Where somebody is just putting one there the old one goes
    /// on for now.
    #[cold]
    fn take(&mut self) {
        let Ok(mut other) = self.slot.other.try_lock() else { return };
        let Some(new) = other.as_mut() else { return };
        let old = &mut self.installed;
        new.state.keep(&new.rules.set, &mut old.state, &old.rules.set);
        std::mem::swap(new, old);
        self.slot.taken.store(self.installed.number, Ordering::Release);
        self.slot.waits.store(false, Ordering::Release);
    }
}

impl Installer {
    /// Installs a set in the drive, and gives its number. One that still waits is never used:
    /// this one comes instead of it.
    pub fn install(&mut self, rules: Compiled) -> u64 {
        self.count += 1;
        let state = State::new(rules.set());
        let new = Box::new(Installed { rules, state, number: self.count });
        let mut other = self.slot.lock();
        let old = other.replace(new);
        self.slot.waits.store(true, Ordering::Release);
        drop(other);
        drop(old);
        self.count
    }

    /// The number of the set that the drive has.
    pub fn taken(&self) -> u64 {
        self.slot.taken.load(Ordering::Acquire)
    }
}
