//! Small cases in every interleaving. Runs only with `--cfg loom`:
//! `RUSTFLAGS="--cfg loom" cargo test -p ssdkit-tags --release --test it`.
#![cfg(loom)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use tags::{Armed, Gate, Handover, Mistake, SharedTags, Stamped, TagUser, Word, inbox, plant};

/// Every interleaving with at most this many preemptions.
fn model(preemptions: usize, case: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(case);
}

/// That a mistake makes a case fail.
fn finds(mistake: Mistake, case: impl FnOnce() + std::panic::UnwindSafe) {
    plant(Some(mistake));
    let found = std::panic::catch_unwind(case).is_err();
    plant(None);
    assert!(found, "{mistake:?} was not found");
}

/// Memory that goes with each tag. Loom fails the test when two holders touch
/// it with nothing between them.
struct Slots(Vec<UnsafeCell<u32>>);

// SAFETY: loom checks the accesses; that is the test.
unsafe impl Sync for Slots {}

impl Slots {
    fn new(depth: u32) -> Arc<Slots> {
        Arc::new(Slots((0..depth).map(|_| UnsafeCell::new(0)).collect()))
    }

    fn touch(&self, tag: u32) {
        // SAFETY: loom checks that no other access is at the same time.
        self.0[tag as usize].with_mut(|slot| unsafe { *slot += 1 });
    }
}

fn take(user: &mut TagUser, n: u32, slots: &Slots) -> Vec<u32> {
    let mut got = Vec::new();
    user.take_batch(n, &mut |tag| {
        slots.touch(tag);
        got.push(tag);
    });
    got
}

fn give(user: &mut TagUser, tags: Vec<u32>, slots: &Slots) {
    for &tag in &tags {
        slots.touch(tag);
    }
    user.give_batch(&tags);
}

/// With nobody else running, all who wait are served in a few turns.
fn serve(users: &mut [TagUser], slots: &Slots) {
    for _ in 0..users.len() {
        for user in users.iter_mut() {
            if user.is_waiting() && user.may_try() {
                let got = take(user, 1, slots);
                give(user, got, slots);
            }
        }
    }
    assert!(users.iter().all(|user| !user.is_waiting()), "a wake was lost");
    assert_eq!(users[0].set().live(), 0);
}

/// Runs `a` beside `b`, each with a user, then serves who waits.
fn two(
    set: &Arc<SharedTags>,
    slots: &Arc<Slots>,
    mut a: impl FnMut(&mut TagUser, &Slots) + Send + 'static,
    mut b: impl FnMut(&mut TagUser, &Slots),
) {
    let (mut first, mut second) = (set.user(), set.user());
    let other = slots.clone();
    let thread = thread::spawn(move || {
        a(&mut first, &other);
        first
    });
    b(&mut second, slots);
    let first = thread.join().unwrap();
    serve(&mut [first, second], slots);
}

fn take_and_give(n: u32, turns: u32) -> impl FnMut(&mut TagUser, &Slots) + Send + 'static {
    move |user, slots| {
        for _ in 0..turns {
            let got = take(user, n, slots);
            give(user, got, slots);
        }
    }
}

#[test]
fn one_tag_is_with_one_user() {
    model(3, || {
        let set = SharedTags::new(1).unwrap();
        two(&set, &Slots::new(1), take_and_give(1, 2), take_and_give(1, 2));
    });
}

/// [`TagUser::take`] is a way of its own through the code.
fn take_one_and_give(turns: u32) -> impl FnMut(&mut TagUser, &Slots) + Send + 'static {
    move |user, slots| {
        for _ in 0..turns {
            if let Some(tag) = user.take() {
                slots.touch(tag);
                slots.touch(tag);
                user.give(tag);
            }
        }
    }
}

#[test]
fn one_by_one_is_with_one_user() {
    model(2, || {
        let set = SharedTags::new(2).unwrap();
        two(&set, &Slots::new(2), take_one_and_give(3), take_one_and_give(2));
    });
}

#[test]
fn what_a_holder_wrote_goes_along_with_the_move() {
    model(3, || {
        let set = SharedTags::new(2).unwrap();
        let moves = |user: &mut TagUser, slots: &Slots| {
            for n in [2, 1] {
                let got = take(user, n, slots);
                give(user, got, slots);
            }
        };
        two(&set, &Slots::new(2), take_one_and_give(2), moves);
    });
}

#[test]
fn the_move_passes_on_what_the_giver_wrote() {
    // One gives, another moves, a third takes what was moved.
    model(2, || {
        let set = SharedTags::new(2).unwrap();
        let slots = Slots::new(2);
        let mut giver = set.user();
        let all = take(&mut giver, 2, &slots);
        let takers = [(), ()].map(|()| {
            let (mut user, slots) = (set.user(), slots.clone());
            thread::spawn(move || {
                let got = take(&mut user, 1, &slots);
                (user, got)
            })
        });
        give(&mut giver, all, &slots);
        let [(mut a, a_got), (mut b, b_got)] = takers.map(|taker| taker.join().unwrap());
        give(&mut a, a_got, &slots);
        give(&mut b, b_got, &slots);
        serve(&mut [giver, a, b], &slots);
    });
}

#[test]
fn batches_do_not_overlap() {
    model(3, || {
        let set = SharedTags::new(3).unwrap();
        two(&set, &Slots::new(3), take_and_give(2, 2), take_and_give(2, 1));
    });
}

#[test]
fn words_are_searched_all() {
    // Depth 4 has four words of one tag.
    model(2, || {
        let set = SharedTags::new(4).unwrap();
        two(&set, &Slots::new(4), take_and_give(3, 1), take_and_give(2, 1));
    });
}

#[test]
fn nobody_misses_the_move_of_cleared_tags() {
    // All tags lie in `cleared`. Whoever moves them wants one and leaves one,
    // which for a moment is nowhere.
    model(3, || {
        let set = SharedTags::new(2).unwrap();
        let slots = Slots::new(2);
        let mut before = set.user();
        let all = take(&mut before, 2, &slots);
        give(&mut before, all, &slots);
        before.set_idle();
        drop(before);
        let (mut a, mut b) = (set.user(), set.user());
        let other = slots.clone();
        let thread = thread::spawn(move || {
            let got = take(&mut a, 1, &other);
            (a, got)
        });
        let b_got = take(&mut b, 1, &slots);
        let (mut a, a_got) = thread.join().unwrap();
        // There were two tags for two users, and none has come back yet.
        for (user, got) in [(&mut a, &a_got), (&mut b, &b_got)] {
            assert!(got.len() == 1 || (user.is_waiting() && user.may_try()), "a tag was missed");
        }
        give(&mut a, a_got, &slots);
        give(&mut b, b_got, &slots);
        serve(&mut [a, b], &slots);
    });
}

#[test]
fn no_wake_is_lost() {
    wakes();
    finds(Mistake::NoSecondLook, wakes);
}

fn wakes() {
    model(4, || {
        let set = SharedTags::new(1).unwrap();
        let slots = Slots::new(1);
        let mut a = set.user();
        let tag = take(&mut a, 1, &slots);
        let other = slots.clone();
        let thread = thread::spawn(move || {
            give(&mut a, tag, &other);
            a
        });
        let mut b = set.user();
        let got = take(&mut b, 1, &slots);
        let a = thread.join().unwrap();
        assert!(got.len() == 1 || b.may_try(), "the tag is free and b sleeps");
        give(&mut b, got, &slots);
        serve(&mut [a, b], &slots);
    });
}

#[test]
fn no_wake_is_lost_behind_others() {
    // Somebody waits already, so the newcomer joins without a look.
    model(3, || {
        let set = SharedTags::new(1).unwrap();
        let slots = Slots::new(1);
        let (mut a, mut b, mut c) = (set.user(), set.user(), set.user());
        let tag = take(&mut a, 1, &slots);
        assert!(take(&mut b, 1, &slots).is_empty());
        let other = slots.clone();
        let thread = thread::spawn(move || {
            give(&mut a, tag, &other);
            // b is woken and served beside the newcomer.
            let got = take(&mut b, 1, &other);
            give(&mut b, got, &other);
            (a, b)
        });
        let got = take(&mut c, 1, &slots);
        give(&mut c, got, &slots);
        let (a, b) = thread.join().unwrap();
        serve(&mut [a, b, c], &slots);
    });
}

#[test]
fn a_robbed_user_is_served() {
    // b was woken; a newcomer is as fast as b.
    model(3, || {
        let set = SharedTags::new(1).unwrap();
        let slots = Slots::new(1);
        let (mut a, mut b, mut c) = (set.user(), set.user(), set.user());
        let tag = take(&mut a, 1, &slots);
        assert!(take(&mut b, 1, &slots).is_empty());
        give(&mut a, tag, &slots);
        assert!(b.may_try());
        let other = slots.clone();
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                let got = take(&mut c, 1, &other);
                give(&mut c, got, &other);
            }
            c
        });
        for _ in 0..2 {
            let got = take(&mut b, 1, &slots);
            give(&mut b, got, &slots);
        }
        let c = thread.join().unwrap();
        serve(&mut [a, b, c], &slots);
    });
}

#[test]
fn a_wake_passes_on_from_one_that_leaves() {
    model(3, || {
        let set = SharedTags::new(1).unwrap();
        let slots = Slots::new(1);
        let (mut a, mut b, mut c) = (set.user(), set.user(), set.user());
        let tag = take(&mut a, 1, &slots);
        assert!(take(&mut b, 1, &slots).is_empty());
        assert!(take(&mut c, 1, &slots).is_empty());
        let other = slots.clone();
        let thread = thread::spawn(move || {
            give(&mut a, tag, &other);
            a
        });
        b.stop_waiting();
        let a = thread.join().unwrap();
        assert!(c.may_try(), "the wake went with b");
        serve(&mut [a, b, c], &slots);
    });
}

#[test]
fn users_go_idle_and_active() {
    model(3, || {
        let set = SharedTags::new(2).unwrap();
        let come_and_go = |user: &mut TagUser, slots: &Slots| {
            for _ in 0..2 {
                let got = take(user, 1, slots);
                give(user, got, slots);
                assert!(user.set_idle());
            }
        };
        two(&set, &Slots::new(2), come_and_go, come_and_go);
        assert_eq!(set.active_users(), 0);
        assert_eq!(set.user().take_batch(2, &mut |_| ()), 2);
    });
}

// In the inbox tests the reader is not on the first thread: loom remembers one
// load of each atomic, and a sender loads a stamp before it stores it, which
// would hide the reader's load before.

#[test]
fn an_inbox_is_read_while_it_is_written() {
    reads();
    finds(Mistake::StampFirst, reads);
}

fn reads() {
    model(4, || {
        let (mut inbox, sender) = inbox::<u32>(2).unwrap();
        let reader = thread::spawn(move || {
            let got: Vec<u32> = (0..3).filter_map(|_| inbox.pop()).collect();
            (inbox, got)
        });
        let sent: Vec<u32> = (0..3).filter(|&i| sender.push(i).is_ok()).collect();
        let (mut inbox, mut got) = reader.join().unwrap();
        got.extend(std::iter::from_fn(|| inbox.pop()));
        assert!(sent.len() >= 2, "two fit in any case");
        assert_eq!(got, sent);
    });
}

#[test]
fn an_inbox_has_several_senders() {
    model(3, || {
        let (mut inbox, sender) = inbox::<Box<u32>>(2).unwrap();
        let other = sender.clone();
        let reader = thread::spawn(move || {
            let got: Vec<u32> = (0..2).filter_map(|_| inbox.pop()).map(|item| *item).collect();
            (inbox, got)
        });
        let second = thread::spawn(move || other.push(Box::new(20)).is_ok());
        let mut sent: Vec<u32> =
            [10, 11].into_iter().filter(|&i| sender.push(Box::new(i)).is_ok()).collect();
        sent.extend(second.join().unwrap().then_some(20));
        let (mut inbox, mut got) = reader.join().unwrap();
        got.extend(std::iter::from_fn(|| inbox.pop()).map(|item| *item));
        assert!(sent.len() >= 2, "two fit in any case");
        let first: Vec<u32> = got.iter().copied().filter(|&item| item < 20).collect();
        assert!(first.is_sorted(), "one sender's items stay in order");
        got.sort_unstable();
        assert_eq!(got, sent);
    });
}

#[test]
fn a_place_is_free_once_its_item_was_read() {
    // The core submits again for each completion; the device may rely on room.
    model(3, || {
        let (mut requests, submit) = inbox::<u32>(2).unwrap();
        let (mut completions, complete) = inbox::<u32>(2).unwrap();
        for request in 0..2 {
            submit.push(request).unwrap();
        }
        let core = thread::spawn(move || {
            for next in 2..4 {
                if completions.pop().is_some() {
                    submit.push(next).expect("at most two are out");
                }
            }
            completions
        });
        let mut serve = |n: u32| {
            for _ in 0..n {
                if let Some(request) = requests.pop() {
                    complete.push(request).expect("at most two are out");
                }
            }
        };
        serve(3);
        let mut completions = core.join().unwrap();
        let early = std::iter::from_fn(|| completions.pop()).count();
        serve(2);
        let late = std::iter::from_fn(|| completions.pop()).count();
        assert_eq!(early + late, 2);
    });
}

/// A core that sleeps when it has no mail, and one that sends it some. Whoever
/// sleeps is rung, or it would sleep for ever.
fn sleeps() {
    model(3, || {
        let (inbox, sender) = inbox::<u32>(2).unwrap();
        let armed = Arc::new(Armed::new());
        let bell = armed.clone();
        let sleeper = thread::spawn(move || {
            armed.arm();
            let sleeps = inbox.is_empty();
            if !sleeps {
                armed.disarm();
            }
            sleeps
        });
        sender.push(7).unwrap();
        let rang = bell.take();
        assert!(!sleeper.join().unwrap() || rang, "it sleeps, and there is mail");
    });
}

#[test]
fn who_is_about_to_sleep_sees_its_mail_or_is_rung() {
    sleeps();
    finds(Mistake::NoFence, sleeps);
}

#[test]
fn of_several_that_ring_one_wakes() {
    model(3, || {
        let armed = Arc::new(Armed::new());
        let (work, other) = (armed.clone(), armed.clone());
        armed.arm();
        let ringer = thread::spawn(move || other.take());
        let mine = work.take();
        assert!(mine != ringer.join().unwrap(), "one rings, and only one");
    });
}

/// Each goes in with what it has, or leaves it there.
fn bring(door: &Handover<Vec<u32>, u32>, item: u32) {
    match door.try_enter() {
        Some(mut inside) => {
            let (found, left) = &mut *inside;
            found.extend(std::iter::from_fn(|| left.pop()));
            found.push(item);
        }
        None => door.leave(item).unwrap(),
    }
}

#[test]
fn what_is_left_at_a_door_is_found_once() {
    model(3, || {
        let door = Arc::new(Handover::new(Vec::new(), 4).unwrap());
        let other = door.clone();
        let thread = thread::spawn(move || [1, 2].map(|item| bring(&other, item)));
        [3, 4].into_iter().for_each(|item| bring(&door, item));
        thread.join().unwrap();
        let mut inside = door.enter();
        let (found, left) = &mut *inside;
        found.extend(std::iter::from_fn(|| left.pop()));
        let of = |items: [u32; 2]| found.iter().copied().filter(move |i| items.contains(i));
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(of([3, 4]).count(), 2, "{found:?}");
        assert_eq!(of([1, 2]).count(), 2, "{found:?}");
    });
}

/// A user that goes through a gate to a place, beside one who shuts the gate to
/// have the place alone, twice.
fn goes_through() {
    model(3, || {
        let (gate, place) = (Gate::new(1), Slots::new(1));
        let (users_gate, users_place) = (gate.clone(), place.clone());
        let user = thread::spawn(move || {
            for _ in 0..3 {
                if users_gate.is_open() {
                    users_place.touch(0);
                } else {
                    users_gate.say_empty(0);
                }
            }
        });
        for _ in 0..2 {
            let shut = gate.shut();
            if shut.is_empty() {
                place.touch(0);
            }
        }
        user.join().unwrap();
    });
}

#[test]
fn nobody_is_behind_a_gate_that_is_shut_and_empty() {
    goes_through();
    finds(Mistake::OldWord, goes_through);
}

/// Two queues in opposite directions, of two places: one side asks three times, with at
/// most two out, the other answers each; and the data that a request speaks of.
fn asks_and_answers() {
    model(3, || {
        let queue = |words| (0..words).map(|_| Word::new(0)).collect::<Vec<_>>();
        let asked = Arc::new(queue(Stamped::<2>::words(2)));
        let answered = Arc::new(queue(Stamped::<1>::words(2)));
        let data = Slots::new(1);
        let (from, to, seen) = (asked.clone(), answered.clone(), data.clone());
        let server = thread::spawn(move || {
            let (mut take, mut put) = (Stamped::<2>::new(2), Stamped::<1>::new(2));
            let mut got = Vec::new();
            for _ in 0..3 {
                while let Some([number, last]) = take.take(&from).unwrap() {
                    assert_eq!(last as u32, number as u32 + 10, "an entry is whole");
                    if number == 1 {
                        seen.touch(0);
                    }
                    got.push(number);
                    put.put(&to, [number]);
                }
                thread::yield_now();
            }
            (got, take, put)
        });
        let (mut put, mut take) = (Stamped::<2>::new(2), Stamped::<1>::new(2));
        let (mut next, mut answers) = (1u64, Vec::new());
        data.touch(0);
        for _ in 0..3 {
            while next <= 3 && next - (answers.len() as u64) <= 2 {
                put.put(&asked, [next, next + 10]);
                next += 1;
            }
            while let Some([last]) = take.take(&answered).unwrap() {
                let number = u64::from(last as u32);
                if number == 1 {
                    data.touch(0);
                }
                answers.push(number);
            }
            thread::yield_now();
        }
        let (got, mut from_asked, mut to_answered) = server.join().unwrap();
        // What is left, with nobody else running.
        let mut all = got;
        while let Some([number, _]) = from_asked.take(&asked).unwrap() {
            all.push(number);
            to_answered.put(&answered, [number]);
        }
        assert_eq!(all, (1..next).collect::<Vec<_>>(), "each once and in order");
        answers.extend(std::iter::from_fn(|| {
            take.take(&answered).unwrap().map(|[last]| u64::from(last as u32))
        }));
        assert_eq!(answers, all, "each answer once and in order");
    });
}

#[test]
fn what_asks_and_answers_share_is_whole_and_in_order() {
    asks_and_answers();
    finds(Mistake::StampFirst, asks_and_answers);
}

/// Who waits for an entry sees it, or is rung.
fn sleeps_for_an_entry() {
    model(3, || {
        let words: Arc<Vec<Word>> = Arc::new((0..2).map(|_| Word::new(0)).collect());
        let armed = Arc::new(Armed::new());
        let (queue, bell) = (words.clone(), armed.clone());
        let sleeper = thread::spawn(move || {
            let take = Stamped::<1>::new(2);
            bell.arm();
            !take.has_next(&queue)
        });
        Stamped::<1>::new(2).put(&words, [7]);
        let rang = armed.take();
        assert!(!sleeper.join().unwrap() || rang, "it sleeps, and there is an entry");
    });
}

#[test]
fn who_waits_for_an_entry_sees_it_or_is_rung() {
    sleeps_for_an_entry();
    finds(Mistake::NoFence, sleeps_for_an_entry);
}
