//! The other cores: how completions reach them, and what is left behind by
//! those that went.
//!
//! Guarantees: a completion handed over is found by its core. What a core that
//! went has in a queue that others use too stays there, with its tags, until it
//! completes or is given up: the other cores take turns at looking, until nothing
//! of those that went is left. While nothing is, this costs them one load of a
//! line that nobody writes. Nothing here fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use port::Time;
use tags::{Gate, Sender};

use crate::context::{Found, Lane};
use crate::driver::HardwareQueue;

/// All cores of a layer.
pub(crate) struct Peers<Q> {
    senders: Vec<Sender<Found>>,
    /// What every request goes through.
    pub gate: Arc<Gate>,
    /// By core.
    gone: Box<[AtomicBool]>,
    any_left: AtomicBool,
    /// What cores left.
    left: Mutex<Vec<Lane<Q>>>,
    /// How many lanes that are, with those that somebody looks at just now.
    abandoned: AtomicUsize,
}

impl<Q: HardwareQueue> Peers<Q> {
    /// The cores with these inboxes.
    pub fn new(senders: Vec<Sender<Found>>) -> Peers<Q> {
        let gone = senders.iter().map(|_| AtomicBool::new(false)).collect();
        let (gate, left) = (Gate::new(senders.len()), Mutex::default());
        let (any_left, abandoned) = (AtomicBool::new(false), AtomicUsize::new(0));
        Peers { senders, gate, gone, any_left, left, abandoned }
    }

    /// Hands a completion to a core. Nobody asks for that of one that went.
    ///
    /// # Panics
    /// When its inbox is full: it has room for all that may be on its way.
    pub fn send(&self, core: u32, found: Found) {
        if !self.is_gone(core) {
            let sent = self.senders[core as usize].push(found);
            assert!(sent.is_ok(), "a core has room for all that may be on its way to it");
        }
    }

    /// Whether a core went.
    pub fn is_gone(&self, core: u32) -> bool {
        self.gone[core as usize].load(Ordering::Acquire)
    }

    /// A core goes.
    pub fn go(&self, core: u32) {
        self.gone[core as usize].store(true, Ordering::Release);
    }

    /// Whether a core left something behind.
    #[inline]
    pub fn any_left(&self) -> bool {
        self.any_left.load(Ordering::Acquire)
    }

    /// Counts one more lane that a core leaves behind.
    pub fn abandon(&self) {
        self.abandoned.fetch_add(1, Ordering::Release);
    }

    /// Counts one less: nothing is in it any more.
    pub fn forget(&self) {
        self.abandoned.fetch_sub(1, Ordering::Release);
    }

    /// Whether something that was left behind has not ended.
    pub fn has_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire) > 0
    }

    /// Leaves a lane for others to look at.
    pub fn leave(&self, lane: Lane<Q>) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.insert(0, lane);
        self.any_left.store(true, Ordering::Release);
    }

    /// Does something with what was left, unless another core does.
    fn with_left<R>(&self, f: impl FnOnce(&mut Vec<Lane<Q>>) -> Option<R>) -> Option<R> {
        match self.left.try_lock() {
            Ok(mut left) => f(&mut left),
            Err(TryLockError::Poisoned(poisoned)) => f(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// When something happens next in what was left behind.
    #[cold]
    pub fn next_left(&self) -> Option<Time> {
        let next = |lane: &Lane<Q>| lane.queue.peek().next_event();
        self.with_left(|left| left.iter().filter_map(next).min())
    }

    /// A lane to look at, whose turn it is: give it back with [`Peers::leave`],
    /// unless nothing of those that went is in it.
    pub fn take_left(&self) -> Option<Lane<Q>> {
        self.with_left(|left| {
            let lane = left.pop();
            self.any_left.store(!left.is_empty(), Ordering::Release);
            lane
        })
    }
}
