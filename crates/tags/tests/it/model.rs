//! Shared tags against a set, several users interleaved on one thread.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use tags::{SharedTags, TagUser};

#[derive(Clone, Copy, Debug)]
enum Op {
    Take(u32),
    /// Take only if woken, or not in line.
    Poll(u32),
    Give(u32),
    GiveMany(u32),
    Stop,
    Idle,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u32..12).prop_map(Op::Take),
        4 => (1u32..4).prop_map(Op::Poll),
        4 => (0u32..64).prop_map(Op::Give),
        2 => (0u32..64).prop_map(Op::GiveMany),
        1 => Just(Op::Stop),
        1 => Just(Op::Idle),
    ]
}

struct One {
    user: TagUser,
    held: Vec<u32>,
    active: bool,
    /// How often others were served since it was woken for nothing, if it
    /// waits and was.
    behind: Option<usize>,
}

struct Model {
    set: Arc<SharedTags>,
    users: Vec<One>,
    out: BTreeSet<u32>,
}

impl Model {
    fn new(depth: u32, users: usize) -> Model {
        let set = SharedTags::new(depth).unwrap();
        let one = || One { user: set.user(), held: Vec::new(), active: false, behind: None };
        let users = (0..users).map(|_| one()).collect();
        Model { set, users, out: BTreeSet::new() }
    }

    fn free(&self) -> u32 {
        self.set.depth() - self.out.len() as u32
    }

    fn share(&self) -> u32 {
        let active = self.users.iter().filter(|one| one.active).count() as u32;
        self.set.depth().div_ceil(active.max(1)).max(4).min(self.set.depth())
    }

    fn run(&mut self, who: usize, op: Op) {
        match op {
            Op::Take(n) => self.take(who, n),
            Op::Poll(n) if self.users[who].user.may_try() => self.take(who, n),
            Op::Poll(_) => (),
            Op::Give(n) => self.give(who, n, 1),
            Op::GiveMany(n) => self.give(who, n, n as usize % 9),
            Op::Stop => {
                self.users[who].user.stop_waiting();
                self.users[who].behind = None;
            }
            Op::Idle => {
                let one = &mut self.users[who];
                let idle = one.user.set_idle();
                assert_eq!(idle, one.held.is_empty());
                one.active &= !idle;
                one.behind = one.behind.filter(|_| !idle);
            }
        }
        self.check();
    }

    fn take(&mut self, who: usize, n: u32) {
        let nobody_waits = self.users.iter().all(|one| !one.user.is_waiting());
        let waits = |(other, one): (usize, &mut One)| {
            other != who && one.user.is_waiting() && !one.user.may_try()
        };
        let others_wait = self.users.iter_mut().enumerate().any(waits);
        let free = self.free();
        self.users[who].active |= n > 0;
        let share = self.share();
        let one = &mut self.users[who];
        let was_waiting = one.user.is_waiting();
        let was_woken = was_waiting && one.user.may_try();
        let held = one.held.len() as u32;
        let mut got = Vec::new();
        let count = one.user.take_batch(n, &mut |tag| got.push(tag));

        assert_eq!(count as usize, got.len());
        assert!(count <= n);
        let most = n.min(share.saturating_sub(held)).min(free);
        if others_wait {
            assert!(count <= most, "{held} + {count} of a share of {share}");
        }
        if nobody_waits {
            assert_eq!(count, n.min(free), "all that is free");
        }
        if was_woken {
            assert!(count >= most, "at least its share");
        }
        if was_waiting && !was_woken {
            assert_eq!(count, 0, "not its turn");
        }
        if n > 0 && count == 0 && share > held {
            assert!(one.user.is_waiting());
        }
        if n > 0 && !was_waiting && share <= held {
            assert!(!one.user.is_waiting(), "its own tags are what it waits for");
        }
        if !one.user.is_waiting() {
            one.behind = None;
        } else if was_woken && n > 0 {
            one.behind.get_or_insert(0);
        }
        one.held.extend(&got);
        for tag in got {
            assert!(tag < self.set.depth() && self.out.insert(tag), "tag {tag} is out");
        }
        if count > 0 {
            self.served(who);
        }
    }

    /// Nobody who was robbed stands behind others for long: each of those
    /// woken before may be served, and one from each of the eight queues.
    fn served(&mut self, who: usize) {
        let most = self.users.len() + 8;
        for (_, one) in self.users.iter_mut().enumerate().filter(|&(other, _)| other != who) {
            if let Some(behind) = &mut one.behind {
                *behind += 1;
                assert!(*behind <= most, "others were served {behind} times");
            }
        }
    }

    fn give(&mut self, who: usize, from: u32, n: usize) {
        let one = &mut self.users[who];
        if one.held.is_empty() {
            return;
        }
        let from = from as usize % one.held.len();
        let to = (from + n).min(one.held.len());
        let back: Vec<u32> = one.held.drain(from..to).collect();
        for tag in &back {
            self.out.remove(tag);
        }
        match back[..] {
            [tag] => one.user.give(tag),
            _ => one.user.give_batch(&back),
        }
    }

    fn check(&mut self) {
        assert_eq!(self.set.live(), self.out.len() as u32);
        let active = self.users.iter().filter(|one| one.active).count() as u32;
        assert_eq!(self.set.active_users(), active);
        let (mut waiting, mut woken) = (0, 0);
        for one in &mut self.users {
            assert_eq!(one.user.held() as usize, one.held.len());
            if one.user.is_waiting() {
                let turn = one.user.may_try();
                woken += u32::from(turn);
                waiting += u32::from(!turn);
            }
        }
        let free = self.free();
        if waiting > 0 && woken == 0 {
            assert!(free < self.set.wake_batch(), "{free} free, {waiting} wait, nobody is woken");
            assert!(free == 0 || !self.out.is_empty(), "nobody is left to wake them");
        }
    }

    /// All tags come back and all who wait are served.
    fn settle(&mut self) {
        for who in 0..self.users.len() {
            self.give(who, 0, usize::MAX / 2);
            self.check();
        }
        for _ in 0..self.users.len() {
            for who in 0..self.users.len() {
                if self.users[who].user.is_waiting() && self.users[who].user.may_try() {
                    self.take(who, 2);
                    self.give(who, 0, 2);
                    self.check();
                }
            }
        }
        assert!(self.users.iter().all(|one| !one.user.is_waiting()), "somebody still waits");
        for who in 0..self.users.len() {
            self.run(who, Op::Idle);
        }
        self.run(0, Op::Take(u32::MAX));
        assert_eq!(self.out.len() as u32, self.set.depth(), "tags were lost");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn is_a_set_with_fair_shares_and_a_fair_line(
        depth in prop_oneof![1u32..24, 60u32..140],
        users in 1usize..7,
        ops in prop::collection::vec((0usize..7, op()), 1..300),
    ) {
        let mut model = Model::new(depth, users);
        for (who, op) in ops {
            model.run(who % users, op);
        }
        model.settle();
    }
}

#[test]
fn a_user_has_all_tags_while_nobody_waits_and_its_share_while_somebody_does() {
    let set = SharedTags::new(32).unwrap();
    let (mut a, mut b) = (set.user(), set.user());
    let (mut all, mut own) = (Vec::new(), Vec::new());
    // b was active and is not told to be idle.
    let tag = b.take().unwrap();
    b.give(tag);
    assert_eq!(a.take_batch(99, &mut |tag| all.push(tag)), 32);
    assert_eq!(a.take(), None);
    assert!(!a.is_waiting(), "its own tags are what it waits for");
    assert_eq!(b.take(), None);
    a.give_batch(&all.split_off(16));
    assert_eq!(b.take_batch(99, &mut |tag| own.push(tag)), 16);
    a.give_batch(&all.split_off(8));
    assert_eq!(a.take_batch(99, &mut |tag| all.push(tag)), 8, "nobody waits");
}

#[test]
fn the_line_is_served_in_order() {
    let set = SharedTags::new(1).unwrap();
    let mut holder = set.user();
    let tag = holder.take().unwrap();
    let mut line: Vec<TagUser> = (0..20).map(|_| set.user()).collect();
    for user in &mut line {
        assert_eq!(user.take(), None);
        assert!(user.is_waiting());
    }
    holder.give(tag);
    assert_eq!(holder.take(), None, "newcomers are behind those who wait");
    for i in 0..line.len() {
        let woken: Vec<bool> = line.iter_mut().map(|u| u.is_waiting() && u.may_try()).collect();
        assert_eq!(woken.iter().position(|&w| w), Some(i));
        let tag = line[i].take().unwrap();
        line[i].give(tag);
    }
    assert_eq!(holder.take(), Some(0));
}

#[test]
fn a_robbed_user_is_not_robbed_again_by_newcomers() {
    let set = SharedTags::new(1).unwrap();
    let (mut a, mut b, mut thief) = (set.user(), set.user(), set.user());
    let tag = a.take().unwrap();
    assert_eq!(b.take(), None);
    a.give(tag);
    assert!(b.may_try());
    let tag = thief.take().expect("nobody stands in line while b has its turn");
    assert_eq!(b.take(), None);
    thief.give(tag);
    assert!(b.may_try());
    assert_eq!(thief.take(), None, "b comes first now");
    assert_eq!(a.take(), None);
    assert_eq!(b.take(), Some(tag));
    b.give(tag);
    assert!(thief.may_try() && thief.take() == Some(tag));
    assert!(a.is_waiting());
}

#[test]
fn nobody_is_woken_while_a_robbed_user_has_its_turn() {
    let set = SharedTags::new(2).unwrap();
    let (mut holder, mut robbed, mut thief, mut other) =
        (set.user(), set.user(), set.user(), set.user());
    let (one, two) = (holder.take().unwrap(), holder.take().unwrap());
    assert_eq!(robbed.take(), None);
    holder.give(one);
    assert_eq!(thief.take(), Some(one));
    assert_eq!(robbed.take(), None);
    thief.give(one);
    assert_eq!(other.take(), None);
    assert!(robbed.may_try());
    holder.give(two);
    assert!(!other.may_try(), "it could rob again");
    assert!(robbed.take().is_some());
    assert!(other.may_try() && other.take().is_some());
}

#[test]
fn a_wake_passes_on_when_a_user_goes() {
    for how in 0..3 {
        let set = SharedTags::new(1).unwrap();
        let (mut a, mut b, mut c) = (set.user(), set.user(), set.user());
        let tag = a.take().unwrap();
        assert_eq!((b.take(), c.take()), (None, None));
        a.give(tag);
        assert!(b.may_try() && !c.may_try());
        match how {
            0 => drop(b),
            1 => b.stop_waiting(),
            _ => assert!(b.set_idle()),
        }
        assert!(c.may_try());
        assert_eq!(c.take(), Some(tag));
    }
}

#[test]
fn waits_for_a_batch_but_not_for_ever() {
    let set = SharedTags::new(64).unwrap();
    assert_eq!(set.wake_batch(), 8);
    let mut a = set.user();
    let mut held = Vec::new();
    assert_eq!(a.take_batch(64, &mut |tag| held.push(tag)), 64);
    let mut b = set.user();
    assert_eq!(b.take(), None);
    for _ in 0..7 {
        a.give(held.pop().unwrap());
        assert!(!b.may_try());
    }
    a.give(held.pop().unwrap());
    assert!(b.may_try(), "eight make a batch");
    let mut all = Vec::new();
    assert_eq!(b.take_batch(99, &mut |tag| all.push(tag)), 8);
    assert_eq!(b.take(), None);
    b.give_batch(&all[..4]);
    assert!(!b.may_try());
    b.give_batch(&all[4..]);
    assert!(b.may_try());
    assert_eq!(b.take_batch(3, &mut |tag| all.push(tag)), 3);
    assert_eq!(b.take_batch(5, &mut |tag| all.push(tag)), 5);
    let mut c = set.user();
    assert_eq!(c.take(), None);
    a.give_batch(&held[..3]);
    assert!(!c.may_try());
    a.give_batch(&held[3..]);
    assert!(c.may_try());
}

#[test]
fn the_last_tag_of_a_user_wakes() {
    let set = SharedTags::new(64).unwrap();
    let (mut a, mut b, mut c) = (set.user(), set.user(), set.user());
    let tag = a.take().unwrap();
    assert_eq!(b.take_batch(31, &mut |_| ()), 31);
    let mut idle = set.user();
    assert_eq!(idle.take_batch(16, &mut |_| ()), 16);
    let mut rest = set.user();
    assert_eq!(rest.take_batch(13, &mut |_| ()), 13);
    // All but three are out; the wakes below are for one tag.
    assert_eq!(c.take_batch(3, &mut |_| ()), 3);
    assert_eq!(set.live(), 64);
    assert_eq!(c.take(), None);
    a.give(tag);
    assert!(c.may_try(), "a holds no more");
}
