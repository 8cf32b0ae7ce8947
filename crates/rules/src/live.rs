//! A set in use, and how another takes its place while requests go on.
//!
//! The drive has the [`Live`] set, alone; whoever installs has the [`Installer`], on any
//! thread. A new set waits in a slot between them until the drive takes it, before the next
//! request: each request is decided by one set as a whole, and none waits. The drive never
//! blocks, allocates or frees for it; the old set and its state go back through the slot.
//!
//! What the new set declares as the old one did is kept: counters, timers, the pace of
//! limits, and maps with all their entries. What is declared otherwise begins anew, a map of
//! another size or content, too. How often rules matched goes on by their names.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::compile::Compiled;
use crate::decision::{Address, Decision, Entry};
use crate::request::{Request, View};
use crate::state::{State, StoreError};

/// A set with its state.
struct Installed {
    rules: Arc<Compiled>,
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
    kept: Mutex<Kept>,
}

/// What is behind the lock.
struct Kept {
    /// A set that waits, or, where none does, the one before the drive's.
    other: Option<Box<Installed>>,
    /// The set that the drive has.
    rules: Arc<Compiled>,
    /// Sets that were installed.
    count: u64,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nobody leaves it half done: who held the lock only moved a box.
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The set that a drive has.
pub struct Live {
    installed: Box<Installed>,
    slot: Arc<Slot>,
}

/// A set, and how many were installed up to it.
pub type Numbered = (u64, Arc<Compiled>);

/// Who installs sets in a drive, from any thread. Of two the later install wins.
#[derive(Clone)]
pub struct Installer {
    slot: Arc<Slot>,
}

impl Live {
    /// A drive with its first set, number 0, and who installs others.
    pub fn new(rules: Compiled) -> (Live, Installer) {
        let (state, rules) = (State::new(rules.set()), Arc::new(rules));
        let kept = Kept { other: None, rules: rules.clone(), count: 0 };
        let slot = Slot {
            waits: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            kept: Mutex::new(kept),
        };
        let slot = Arc::new(slot);
        let installed = Box::new(Installed { rules, state, number: 0 });
        (Live { installed, slot: slot.clone() }, Installer { slot })
    }

    /// What becomes of a request, by the newest set.
    #[inline]
    pub fn decide(&mut self, request: &Request, view: &View) -> Decision {
        self.look();
        self.decide_as_it_is(request, view)
    }

    /// The same by the set that it has, also where a newer one waits.
    #[inline]
    pub fn decide_as_it_is(&mut self, request: &Request, view: &View) -> Decision {
        let Installed { rules, state, .. } = &mut *self.installed;
        rules.decide(state, request, view)
    }

    /// Takes the newest set, as a decision does.
    #[inline]
    pub fn look(&mut self) {
        if self.slot.waits.load(Ordering::Acquire) {
            self.take();
        }
    }

    /// Stores where a block is that a decision placed or moved. A decision of an earlier
    /// set may name an entry that there is no more: that is an error, and nothing changes.
    #[inline]
    pub fn store(&mut self, entry: Entry, address: Option<Address>) -> Result<(), StoreError> {
        let Installed { rules, state, .. } = &mut *self.installed;
        state.store(rules.set(), entry, address)
    }

    /// Fetches what a decision about a block will probably look at. Changes nothing.
    #[inline]
    pub fn hint(&self, lba: u64) {
        self.installed.rules.hint(&self.installed.state, lba);
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

    /// Installs a set at once, for whoever has the drive; it allocates, frees and may wait for
    /// an [`Installer`]. Where one that such brought waits, that one is taken instead. Gives
    /// whether it is the one that was asked for.
    pub fn replace(&mut self, rules: Compiled) -> bool {
        let slot = self.slot.clone();
        let is_free = !slot.waits.load(Ordering::Acquire);
        let number = is_free.then(|| Installer { slot: slot.clone() }.install(rules));
        self.take_from(&mut slot.lock());
        number == Some(self.number())
    }

    /// Takes the set that waits. Where somebody is just putting one there the old one goes
    /// on for now.
    #[cold]
    fn take(&mut self) {
        let slot = self.slot.clone();
        if let Ok(mut kept) = slot.kept.try_lock() {
            self.take_from(&mut kept);
        }
    }

    fn take_from(&mut self, kept: &mut Kept) {
        let Kept { other: Some(new), rules, .. } = kept else { return };
        let old = &mut self.installed;
        new.state.keep(&new.rules.set, &mut old.state, &old.rules.set);
        new.rules.go_on(&old.rules);
        // Both are still held: nothing is freed.
        *rules = new.rules.clone();
        std::mem::swap(new, old);
        self.slot.taken.store(self.installed.number, Ordering::Release);
        self.slot.waits.store(false, Ordering::Release);
    }
}

impl Installer {
    /// Installs a set in the drive, and gives its number. One that still waits is never used:
    /// this one comes instead of it.
    pub fn install(&self, rules: Compiled) -> u64 {
        let state = State::new(rules.set());
        let mut new = Box::new(Installed { rules: Arc::new(rules), state, number: 0 });
        let mut kept = self.slot.lock();
        kept.count += 1;
        let number = kept.count;
        new.number = number;
        let old = kept.other.replace(new);
        self.slot.waits.store(true, Ordering::Release);
        drop(kept);
        drop(old);
        number
    }

    /// The number of the set that the drive has.
    pub fn taken(&self) -> u64 {
        self.slot.taken.load(Ordering::Acquire)
    }

    /// The set that the drive has, and how often its rules matched so far.
    pub fn rules(&self) -> Arc<Compiled> {
        self.slot.lock().rules.clone()
    }

    /// The number and the set that the drive has; and those of one that waits for the next
    /// request.
    pub fn all(&self) -> (Numbered, Option<Numbered>) {
        let kept = self.slot.lock();
        let waits = self.slot.waits.load(Ordering::Acquire);
        let next = kept.other.as_ref().filter(|_| waits);
        let next = next.map(|other| (other.number, other.rules.clone()));
        ((self.taken(), kept.rules.clone()), next)
    }
}
