//! A gate that several users go through and anybody may shut.
//!
//! While it is open a user looks at it with one load of a line that nobody
//! writes. Who shuts it learns when nobody is inside: each user says so by
//! itself, once it has seen the gate shut and has nothing inside.
//!
//! Guarantees: when all have said so, nobody goes in until the gate is opened;
//! what they did before is seen by who asked. A word about an earlier time that
//! the gate was shut says nothing of this one. Several may have it shut: it
//! opens with the last. Nothing here waits for a user, and nothing fails.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::Mistake;
use crate::sync::{AtomicU64, Mutex, Ordering, lock, planted};

/// Says that a user went for good.
const GONE: u64 = u64::MAX;

/// A gate.
#[derive(Debug)]
pub struct Gate {
    /// How often it was shut and opened: odd while it is shut.
    turns: CachePadded<AtomicU64>,
    /// How many have it shut.
    holders: Mutex<u32>,
    /// By user: the turn in which it last had nothing inside.
    users: Box<[AtomicU64]>,
}

impl Gate {
    /// An open gate of so many users.
    pub fn new(users: usize) -> Arc<Gate> {
        let turns = CachePadded::new(AtomicU64::new(0));
        let users = (0..users).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Gate { turns, holders: Mutex::new(0), users })
    }

    /// Whether it is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.turns.load(Ordering::Acquire).is_multiple_of(2)
    }

    /// For a user that found it shut: it has nothing inside, and takes nothing
    /// in before it finds the gate open.
    pub fn say_empty(&self, user: usize) {
        let turn = self.turns.load(Ordering::Acquire);
        if !turn.is_multiple_of(2) {
            self.users[user].store(turn, Ordering::Release);
        }
    }

    /// A user goes, and never comes again.
    pub fn leave(&self, user: usize) {
        self.users[user].store(GONE, Ordering::Release);
    }

    /// Shuts it until what this gives is dropped.
    pub fn shut(self: &Arc<Gate>) -> Shut {
        let mut holders = lock!(self.holders);
        *holders += 1;
        if *holders == 1 {
            self.turns.fetch_add(1, Ordering::AcqRel);
        }
        drop(holders);
        Shut(self.clone())
    }
}

/// A gate that is shut, until this is dropped.
#[derive(Debug)]
pub struct Shut(Arc<Gate>);

impl Shut {
    /// Whether nobody has anything inside.
    pub fn is_empty(&self) -> bool {
        let turn = self.0.turns.load(Ordering::Acquire);
        let is_out = |user: &AtomicU64| {
            let said = user.load(Ordering::Acquire);
            said == turn || said == GONE || (planted(Mistake::OldWord) && said % 2 == 1)
        };
        self.0.users.iter().all(is_out)
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        let mut holders = lock!(self.0.holders);
        *holders -= 1;
        if *holders == 0 {
            self.0.turns.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_shut_until_the_last_lets_go_and_old_words_do_not_count() {
        let gate = Gate::new(2);
        gate.say_empty(0);
        let (first, second) = (gate.shut(), gate.shut());
        assert!(!gate.is_open() && !first.is_empty(), "what was said while it was open");
        (0..2).for_each(|user| gate.say_empty(user));
        assert!(first.is_empty() && second.is_empty());
        drop(first);
        assert!(!gate.is_open() && second.is_empty());
        drop(second);
        assert!(gate.is_open());
        let again = gate.shut();
        assert!(!again.is_empty(), "what was said the last time");
        gate.say_empty(1);
        gate.leave(0);
        assert!(again.is_empty());
    }
}
