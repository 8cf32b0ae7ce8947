//! Which commands may run at once: those that have no key in common, or only
//! read it.
//!
//! A key's lock is one of a fixed number of stripes, found by its hash. A
//! command takes all that it needs or none, so none waits for another in a
//! circle; it waits in the line of a stripe that is taken, and newcomers stand
//! behind it. One that has several keys may be overtaken while it waits. A
//! command on everything waits until nothing runs, and keeps all others out
//! meanwhile. Reads of one record need no lock ([`Claim::only_looks`]).

use std::collections::VecDeque;

use waiting::speculate::{Token, Written};
use xxhash_rust::xxh3::xxh3_64;

/// Stripes; a power of two.
const STRIPES: usize = 4096;

#[derive(Default)]
struct Stripe {
    readers: u32,
    is_written: bool,
    line: VecDeque<u32>,
}

/// What a command holds, or wants.
#[derive(Default, Debug)]
pub struct Claim {
    /// Stripes, each once, in order.
    stripes: Vec<u16>,
    writes: bool,
    everything: bool,
    /// It needs no locks; the stripes tell what it can have seen.
    looks: bool,
    is_held: bool,
}

impl Claim {
    /// Wants to read or write `keys`.
    pub fn on<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>, writes: bool) {
        self.stripes.clear();
        self.stripes.extend(keys.map(|key| xxh3_64(key) as u16 & (STRIPES - 1) as u16));
        if self.stripes.len() > 1 {
            self.stripes.sort_unstable();
            self.stripes.dedup();
        }
        (self.writes, self.everything, self.looks) = (writes, false, false);
    }

    /// How many locks it has or wants.
    pub fn len(&self) -> usize {
        self.stripes.len()
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        self.stripes.capacity() * size_of::<u16>()
    }

    /// Gives memory back that is seldom needed.
    pub fn shrink(&mut self) {
        self.stripes.clear();
        self.stripes.shrink_to(1024);
    }

    /// Wants everything.
    pub fn on_everything(&mut self) {
        self.stripes.clear();
        (self.writes, self.everything, self.looks) = (true, true, false);
    }

    /// Reads so that no lock is needed.
    pub fn only_looks(&mut self) {
        self.looks = true;
    }
}

/// All locks.
pub struct Locks {
    stripes: Vec<Stripe>,
    /// Claims that are held, and those of them that write.
    running: usize,
    writing: usize,
    /// Who has or wants everything.
    owner: Option<u32>,
    /// Who waits for that to end.
    gate: VecDeque<u32>,
    /// Who may try again.
    pub retry: VecDeque<u32>,
    /// The last write of each stripe.
    written: Written,
}

impl Locks {
    /// No lock is held.
    pub fn new() -> Locks {
        Locks {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            running: 0,
            writing: 0,
            owner: None,
            gate: VecDeque::new(),
            retry: VecDeque::new(),
            written: Written::new(STRIPES),
        }
    }

    /// Takes all that `claim` wants for `who`. When that cannot be, `who` is
    /// put into [`Locks::retry`] later.
    pub fn take(&mut self, who: u32, claim: &mut Claim, again: bool) -> bool {
        if claim.looks {
            return true;
        }
        if self.owner.is_some_and(|owner| owner != who) {
            self.gate.push_back(who);
            return false;
        }
        if claim.everything {
            self.owner = Some(who);
            claim.is_held = self.running == 0;
            self.running += usize::from(claim.is_held);
            self.writing += usize::from(claim.is_held);
            return claim.is_held;
        }
        let is_taken = |&&i: &&u16| {
            let stripe = &self.stripes[usize::from(i)];
            stripe.is_written
                || (claim.writes && stripe.readers > 0)
                || (!again && !stripe.line.is_empty())
        };
        if let Some(&taken) = claim.stripes.iter().find(is_taken) {
            self.stripes[usize::from(taken)].line.push_back(who);
            return false;
        }
        for &i in &claim.stripes {
            let stripe = &mut self.stripes[usize::from(i)];
            if claim.writes { stripe.is_written = true } else { stripe.readers += 1 }
        }
        claim.is_held = true;
        self.running += 1;
        self.writing += usize::from(claim.writes);
        true
    }

    /// Whether somebody holds, to write, a lock of `claim`, or any lock where
    /// it names none.
    pub fn is_written(&self, claim: &Claim) -> bool {
        let all = claim.stripes.is_empty() || self.owner.is_some();
        (all && self.writing > 0)
            || claim.stripes.iter().any(|&i| self.stripes[usize::from(i)].is_written)
    }

    /// Whether somebody holds any lock to write.
    pub fn is_anything_written(&self) -> bool {
        self.writing > 0
    }

    /// Forgets that `who` waits for `claim`.
    pub fn forget(&mut self, who: u32, claim: &Claim) {
        let others = |&waits: &u32| waits != who;
        self.gate.retain(others);
        self.retry.retain(others);
        for &i in &claim.stripes {
            self.stripes[usize::from(i)].line.retain(others);
        }
        if self.owner == Some(who) && !claim.is_held {
            self.owner = None;
            self.retry.append(&mut self.gate);
        }
    }

    /// Says that what `claim` holds was written, and by which token that is known.
    pub fn wrote(&mut self, claim: &Claim, token: Token) {
        if claim.everything {
            self.written.wrote_all(token);
        }
        for &i in &claim.stripes {
            self.written.wrote(i.into(), token);
        }
    }

    /// The token of all that somebody with `claim` can have seen.
    pub fn seen(&self, claim: &Claim) -> Token {
        let all = claim.stripes.iter().map(|&i| self.written.of(i.into()));
        all.max().unwrap_or(Token::NONE)
    }

    /// Gives back what `claim` holds.
    pub fn give(&mut self, claim: &mut Claim) {
        if !std::mem::take(&mut claim.is_held) {
            return;
        }
        self.running -= 1;
        self.writing -= usize::from(claim.writes);
        if claim.everything {
            self.owner = None;
            self.retry.append(&mut self.gate);
        }
        for &i in &claim.stripes {
            let stripe = &mut self.stripes[usize::from(i)];
            if claim.writes {
                stripe.is_written = false
            } else {
                stripe.readers -= 1
            }
            if stripe.readers == 0 && !stripe.line.is_empty() {
                self.retry.append(&mut stripe.line);
            }
        }
        if self.running == 0
            && let Some(owner) = self.owner
        {
            self.retry.push_back(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use waiting::speculate::Tokens;

    /// What was written by a claim on everything is seen by each key's reader.
    #[test]
    fn a_claim_on_everything_is_seen_by_all() {
        let (mut locks, mut all, mut one) = (Locks::new(), Claim::default(), Claim::default());
        all.on_everything();
        assert!(locks.take(0, &mut all, false));
        let token = Tokens::default().issue();
        locks.wrote(&all, token);
        locks.give(&mut all);
        one.on([b"key".as_slice()].into_iter(), false);
        one.only_looks();
        assert_eq!(locks.seen(&one), token);
    }

    #[test]
    fn everything_waits_for_all_and_keeps_all_out() {
        let mut locks = Locks::new();
        let (mut a, mut all, mut b) = (Claim::default(), Claim::default(), Claim::default());
        a.on([&b"a"[..]].into_iter(), false);
        b.on([&b"b"[..]].into_iter(), false);
        all.on_everything();
        assert!(locks.take(1, &mut a, false));
        assert!(!locks.take(2, &mut all, false) && !locks.take(3, &mut b, false));
        locks.give(&mut a);
        assert_eq!(locks.retry.pop_front(), Some(2));
        assert!(locks.take(2, &mut all, true) && locks.retry.is_empty());
        locks.give(&mut all);
        assert_eq!(locks.retry.pop_front(), Some(3));
        assert!(locks.take(3, &mut b, true));
    }

    #[test]
    fn who_does_not_wait_any_more_keeps_nobody_out() {
        let mut locks = Locks::new();
        let [mut a, mut all, mut b, mut c] = std::array::from_fn(|_| Claim::default());
        a.on([&b"a"[..]].into_iter(), true);
        b.on([&b"a"[..], b"b"].into_iter(), true);
        c.on([&b"c"[..]].into_iter(), true);
        all.on_everything();
        assert!(locks.take(1, &mut a, false));
        assert!(!locks.take(2, &mut b, false) && !locks.take(3, &mut all, false));
        assert!(!locks.take(4, &mut c, false), "at the gate");
        locks.forget(3, &all);
        assert_eq!(locks.retry.pop_front(), Some(4));
        assert!(locks.take(4, &mut c, true));
        locks.forget(2, &b);
        locks.give(&mut a);
        assert!(locks.retry.is_empty());
        b.on([&b"b"[..]].into_iter(), false);
        assert!(locks.take(1, &mut a, false) && locks.is_written(&a) && !locks.is_written(&b));
    }

    proptest! {
        /// Nobody waits for ever, and a writer is alone.
        #[test]
        fn all_come_to_their_turn(
            wants in prop::collection::vec(
                (prop::collection::vec(0u8..6, 0..4), any::<bool>(), 0u8..20), 1..40),
            order in prop::collection::vec(any::<prop::sample::Index>(), 100),
        ) {
            let mut locks = Locks::new();
            let mut claims: Vec<Claim> = Vec::new();
            let (mut running, mut waiting): (Vec<usize>, usize) = (Vec::new(), 0);
            let mut order = order.iter().cycle();
            for (i, (keys, writes, all)) in wants.iter().enumerate() {
                let mut claim = Claim::default();
                if *all == 0 {
                    claim.on_everything();
                } else {
                    claim.on(keys.iter().map(std::slice::from_ref), *writes);
                }
                if locks.take(i as u32, &mut claim, false) { running.push(i) } else { waiting += 1 }
                claims.push(claim);
            }
            while !running.is_empty() {
                for (n, &i) in running.iter().enumerate() {
                    for &j in &running[..n] {
                        let (a, b) = (&claims[i], &claims[j]);
                        let both = a.stripes.iter().any(|s| b.stripes.contains(s));
                        prop_assert!(!(both && (a.writes || b.writes)));
                        prop_assert!(!a.everything && !b.everything);
                    }
                }
                let one = running.swap_remove(order.next().unwrap().index(running.len()));
                locks.give(&mut claims[one]);
                while let Some(i) = locks.retry.pop_front() {
                    if locks.take(i, &mut claims[i as usize], true) {
                        running.push(i as usize);
                        waiting -= 1;
                    }
                }
            }
            prop_assert_eq!(waiting, 0);
        }
    }
}
