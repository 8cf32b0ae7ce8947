//! The other cores: how completions reach them, and what is left behind by
//! those that went.
//!
//! Guarantees: a completion handed over is found by its core, or, once that
//! core's context was dropped, by the others, which pass on what was not its
//! own. While nobody went this costs the others one load of a line that nobody
//! writes. Nothing here fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tags::{Inbox, Sender};

/// All cores of a layer.
pub(crate) struct Peers<T> {
    senders: Vec<Sender<T>>,
    left: Vec<AtomicBool>,
    any_left: AtomicBool,
    /// Inboxes of those that left.
    inboxes: Mutex<Vec<Inbox<T>>>,
}

impl<T> Peers<T> {
    /// The cores with these inboxes.
    pub fn new(senders: Vec<Sender<T>>) -> Peers<T> {
        let left = senders.iter().map(|_| AtomicBool::new(false)).collect();
        Peers { senders, left, any_left: AtomicBool::new(false), inboxes: Mutex::default() }
    }

    /// Hands `item` to a core.
    ///
    /// # Panics
    /// When its inbox is full: it has room for all that may be on its way.
    pub fn send(&self, core: u32, item: T) {
        let sent = self.senders[core as usize].push(item);
        assert!(sent.is_ok(), "a core has room for all that may be on its way to it");
    }

    /// Whether a core's context is still there.
    pub fn is_here(&self, core: u32) -> bool {
        !self.left[core as usize].load(Ordering::Acquire)
    }

    /// Whether any core's context was dropped.
    #[inline]
    pub fn any_left(&self) -> bool {
        self.any_left.load(Ordering::Acquire)
    }

    /// A core's context is dropped; others look into its inbox from now on.
    pub fn leave(&self, core: u32, inbox: Inbox<T>) {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).push(inbox);
        self.left[core as usize].store(true, Ordering::Release);
        self.any_left.store(true, Ordering::Release);
    }

    /// The next item that was handed to a core that left.
    pub fn left_behind(&self) -> Option<T> {
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.iter_mut().find_map(Inbox::pop)
    }
}
