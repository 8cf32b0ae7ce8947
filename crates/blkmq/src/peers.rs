//! The other cores: how completions reach them, and what is left behind by
//! those that went.
//!
//! Guarantees: a completion handed over is found by its core. What a core that
//! went has in a queue that others use too stays there, with its tags, until it
//! completes or is given up: the other cores take turns at looking, until nothing
//! of those that went is left. While nothing is, this costs them one load of a
//! line that nobody writes. Nothing here fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use port::Time;
use tags::Sender;

use crate::context::{Found, Lane};
use crate::driver::HardwareQueue;

/// All cores of a layer.
pub(crate) struct Peers<Q> {
    senders: Vec<Sender<Found>>,
    /// By core.
    gone: Box<[AtomicBool]>,
    any_left: AtomicBool,
    /// What cores left.
    left: Mutex<Vec<Lane<Q>>>,
}

impl<Q: HardwareQueue> Peers<Q> {
    /// The cores with these inboxes.
    pub fn new(senders: Vec<Sender<Found>>) -> Peers<Q> {
        let gone = senders.iter().map(|_| AtomicBool::new(false)).collect();
        Peers { senders, gone, any_left: AtomicBool::new(false), left: Mutex::default() }
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
