//! Two threads, a million tags: each is with one holder at a time.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tags::{SharedTags, TagUser, inbox};

const THREADS: u32 = 2;

/// Nothing takes that long but what waits for ever: the machine may be slow.
const LATEST: Duration = Duration::from_secs(120);

/// What a thread does that finds nothing to do: it lets others run, and fails
/// when that is all it did for very long.
#[derive(Default)]
struct Patience {
    since: Option<Instant>,
    turns: u32,
}

impl Patience {
    fn moved(&mut self) {
        self.since = None;
    }

    fn idle(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.turns = self.turns.wrapping_add(1);
        let late = self.turns.is_multiple_of(1024) && since.elapsed() > LATEST;
        assert!(!late, "nothing goes on: a wake was lost");
        thread::yield_now();
    }
}

/// Who holds each tag: 0 is nobody. Relaxed, so that the test adds no order
/// of its own.
struct Owners(Vec<AtomicU32>);

impl Owners {
    fn take(&self, tag: u32, who: u32) {
        let before = self.0[tag as usize].swap(who, Ordering::Relaxed);
        assert_eq!(before, 0, "tag {tag} is with {before} and given to {who}");
    }

    fn give(&self, tag: u32, who: u32) {
        let before = self.0[tag as usize].swap(0, Ordering::Relaxed);
        assert_eq!(before, who, "tag {tag} is with {before}");
    }
}

/// A user that takes and gives in changing amounts until it had `goal` tags.
struct Worker {
    user: TagUser,
    who: u32,
    held: Vec<u32>,
    had: u32,
    goal: u32,
    seed: u32,
}

impl Worker {
    fn random(&mut self) -> u32 {
        self.seed = self.seed.wrapping_mul(1664525).wrapping_add(1013904223);
        self.seed >> 16
    }

    /// One turn. Returns whether anything was done.
    fn turn(&mut self, owners: &Owners) -> bool {
        let r = self.random();
        let mut moved = false;
        if self.had < self.goal && self.user.may_try() {
            let (who, held) = (self.who, &mut self.held);
            let got = self.user.take_batch(1 + r % 7, &mut |tag| {
                owners.take(tag, who);
                held.push(tag);
            });
            self.had += got;
            moved = got > 0;
        }
        // Some stay out for some turns.
        let keep = if self.had < self.goal { (r as usize >> 4) % 4 } else { 0 };
        if self.held.len() > keep {
            let back = self.held.split_off(keep);
            for &tag in &back {
                owners.give(tag, self.who);
            }
            match back[..] {
                [tag] => self.user.give(tag),
                _ => self.user.give_batch(&back),
            }
            moved = true;
        }
        if self.had >= self.goal && self.held.is_empty() {
            self.user.set_idle();
        }
        moved
    }

    fn done(&self) -> bool {
        self.had >= self.goal && self.held.is_empty() && !self.user.is_waiting()
    }
}

fn stress(depth: u32, users_each: u32, total: u32) {
    let set = SharedTags::new(depth).unwrap();
    let owners = Arc::new(Owners((0..depth).map(|_| AtomicU32::new(0)).collect()));
    let thread = |t: u32| {
        let (set, owners) = (set.clone(), owners.clone());
        move || {
            let worker = |u: u32| {
                let who = 1 + t * users_each + u;
                let goal = total / THREADS / users_each;
                Worker { user: set.user(), who, held: Vec::new(), had: 0, goal, seed: who }
            };
            let mut workers: Vec<Worker> = (0..users_each).map(worker).collect();
            let mut patience = Patience::default();
            while !workers.iter().all(Worker::done) {
                let mut moved = false;
                for worker in &mut workers {
                    moved |= worker.turn(&owners);
                }
                if moved { patience.moved() } else { patience.idle() }
            }
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|t| thread::spawn(thread(t))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(set.live(), 0);
    assert_eq!(set.active_users(), 0);
    assert_eq!(set.user().take_batch(depth, &mut |_| ()), depth);
}

#[test]
fn a_roomy_set() {
    stress(256, 1, 1_000_000);
}

#[test]
fn a_set_that_is_always_short() {
    stress(5, 3, 1_000_000);
}

#[test]
fn one_tag_for_six() {
    stress(1, 3, 100_000);
}

#[test]
fn completions_change_threads() {
    const ITEMS: u64 = 500_000;
    let (mut inbox, sender) = inbox::<u64>(64).unwrap();
    let send = |from: u64| {
        let sender = sender.clone();
        move || {
            let mut patience = Patience::default();
            for i in 0..ITEMS {
                let mut item = from << 32 | i;
                while let Err(back) = sender.push(item) {
                    item = back;
                    patience.idle();
                }
                patience.moved();
            }
        }
    };
    let threads: Vec<_> = (0..2).map(|from| thread::spawn(send(from))).collect();
    let mut next = [0u64; 2];
    let mut patience = Patience::default();
    while next != [ITEMS; 2] {
        let Some(item) = inbox.pop() else {
            patience.idle();
            continue;
        };
        patience.moved();
        let from = (item >> 32) as usize;
        assert_eq!(item & 0xffff_ffff, next[from], "sender {from} in order");
        next[from] += 1;
    }
    assert_eq!(inbox.pop(), None);
    for thread in threads {
        thread.join().unwrap();
    }
}
