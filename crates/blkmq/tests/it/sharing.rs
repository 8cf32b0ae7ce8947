//! Cores that share queues: none waits for one that stands still, and all the
//! parts of a merged request come back, however many cores they are of.

use crate::common::topology;
use blkmq::driver::timed::{Timed, TimedOptions, TimedQueue};
use blkmq::{Config, Context, Merge, Spread, build};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};
use std::slice::from_mut;

/// Two cores with one staging queue, over a device with so many queues of one
/// request each.
fn two(queues: usize, config: impl FnOnce(Config) -> Config) -> [Context<TimedQueue>; 2] {
    let options =
        TimedOptions { submit_queues: queues, hw_queue_depth: 1, ..TimedOptions::default() };
    let config =
        config(Config { staging: Spread::One, staging_depth: 4, ..Config::new(topology(2, 1)) });
    let (contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
    contexts.try_into().ok().expect("two cores")
}

/// Submits reads of these blocks; all are taken.
fn ask(context: &mut Context<TimedQueue>, blocks: impl IntoIterator<Item = u64>) {
    let mut reqs = Ring::new(16);
    for block in blocks {
        let (op, buffer) = (BlockOp::Read, Buffer::empty());
        let offset = block * 4096;
        reqs.put(|| BlockReq::new(block, op, offset, 4096, buffer));
    }
    context.submit(Time(0), &mut reqs);
    assert!(reqs.is_empty());
}

/// Looks at these cores until nothing is out at any of them; what came back.
fn settle(contexts: &mut [Context<TimedQueue>]) -> Vec<u64> {
    let (mut ids, mut done, mut steps) = (Vec::new(), Ring::new(16), 0);
    while contexts.iter().any(|context| context.outside() > 0) {
        let next = contexts.iter().filter_map(Port::next_event).min();
        let at = next.expect("something happens, or it is stuck");
        for context in contexts.iter_mut() {
            context.advance(at, &mut done);
            ids.extend(done.drain().map(|one| one.id));
        }
        steps += 1;
        assert!(steps < 1000, "it is stuck");
    }
    ids.sort_unstable();
    ids
}

#[test]
fn nobody_waits_for_a_core_that_stands_still() {
    let [mut still, mut other] = two(2, |config| config);
    let mut done = Ring::new(1);
    ask(&mut other, 0..3);
    // It looks once, while requests of the other are staged, and never again.
    still.advance(Time(0), &mut done);
    assert_eq!(settle(&mut [other]), [0, 1, 2]);
}

/// Nor where each stages by itself, and the one that stands has all places of the
/// driver's queue.
#[test]
fn what_a_core_does_not_look_at_holds_no_place() {
    for depth in [1, 4] {
        let options =
            TimedOptions { submit_queues: 1, hw_queue_depth: depth, ..TimedOptions::default() };
        let config = Config::new(topology(2, 1));
        let (contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
        let [mut still, mut other]: [_; 2] = contexts.try_into().ok().expect("two cores");
        ask(&mut still, 0..depth as u64);
        ask(&mut other, 10..18);
        assert_eq!(settle(from_mut(&mut other)), (10..18).collect::<Vec<_>>());
        // What it has is there when it looks.
        assert_eq!(settle(from_mut(&mut still)), (0..depth as u64).collect::<Vec<_>>());
    }
}

/// A request that waits for the driver to have room does not take too long yet.
#[test]
fn what_waits_for_a_place_is_not_given_up() {
    let options = TimedOptions {
        submit_queues: 1,
        hw_queue_depth: 4,
        servers: Some(1),
        completion_nsec: 10_000,
        ..TimedOptions::default()
    };
    let config = Config { timeout: 50_000, ..Config::new(topology(2, 1)) };
    let (contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
    let mut cores: [Context<TimedQueue>; 2] = contexts.try_into().ok().expect("two cores");
    ask(&mut cores[0], 0..4);
    ask(&mut cores[1], 4..8);
    let (mut done, mut ended) = (Ring::new(16), 0);
    while cores.iter().any(|core| core.outside() > 0) {
        let at = cores.iter().filter_map(Port::next_event).min().expect("something happens");
        for core in &mut cores {
            core.advance(at, &mut done);
        }
        for one in done.drain() {
            assert!(one.status.is_ok(), "{} at {:?}: {}", one.id, one.at, one.status);
            ended += 1;
        }
    }
    assert_eq!(ended, 8);
}

#[test]
fn what_a_core_staged_does_not_stay_when_it_goes() {
    let [gone, mut other] = two(2, |config| config);
    let mut gone = gone;
    ask(&mut gone, 0..4);
    ask(&mut gone, [4]);
    let mut reqs = Ring::new(1);
    reqs.put(|| BlockReq::new(9, BlockOp::Trim, 0, 4096, Buffer::empty()));
    other.submit(Time(0), &mut reqs);
    assert_eq!(reqs.len(), 1, "the staging queue is full of the other's");
    drop(gone);
    other.submit(Time(0), &mut reqs);
    assert!(reqs.is_empty(), "there is room again");
    assert_eq!(settle(&mut [other]), [9]);
}

/// Offers a read of this block; whether it was taken.
fn offer(context: &mut Context<TimedQueue>, now: Time, block: u64) -> bool {
    let (mut reqs, op, buffer) = (Ring::new(1), BlockOp::Read, Buffer::empty());
    reqs.put(|| BlockReq::new(block, op, 0, 4096, buffer));
    context.submit(now, &mut reqs);
    reqs.is_empty()
}

#[test]
fn who_found_no_room_finds_it_before_others_stage_more() {
    let [mut much, mut little] = two(2, |config| config);
    let (mut done, now) = (Ring::new(4), Time(10_000));
    ask(&mut much, 0..4);
    ask(&mut much, [4]);
    assert!(!offer(&mut little, Time(0), 9) && !little.has_room_again());
    much.advance(now, &mut done);
    assert_eq!(done.drain().map(|one| one.id).collect::<Vec<_>>(), [0]);
    // It has more than its part of four, so the place that is free is not its.
    assert!(!offer(&mut much, now, 5) && !much.has_room_again());
    assert!(little.has_room_again());
    little.advance(now, &mut done);
    assert!(offer(&mut little, now, 9) && !little.has_room_again());
    // Nobody lacks room, so it may have all that there is.
    much.advance(Time(20_000), &mut done);
    assert!(offer(&mut much, Time(20_000), 5), "one completed");
    done.drain().for_each(drop);
    assert_eq!(settle(&mut [much, little]), [2, 3, 4, 5, 9]);
}

#[test]
fn who_goes_leaves_room_for_all_others() {
    let [mut much, mut little] = two(2, |config| config);
    let (mut done, now) = (Ring::new(4), Time(10_000));
    ask(&mut much, 0..4);
    ask(&mut much, [4]);
    assert!(!offer(&mut little, Time(0), 9));
    drop(little);
    much.advance(now, &mut done);
    assert!(offer(&mut much, now, 5), "nobody lacks room any more");
}

#[test]
fn a_merged_request_may_have_more_parts_than_one_core_has_requests() {
    let merge = |config| Config { merge: Merge::Full, ..config };
    let mut cores = two(1, merge);
    ask(&mut cores[0], [100]);
    // Nine that lie side by side, in turns: more than either may have out.
    for block in 0..8 {
        ask(&mut cores[block as usize % 2], [block]);
    }
    ask(&mut cores[1], [8]);
    assert_eq!(settle(&mut cores), [0, 1, 2, 3, 4, 5, 6, 7, 8, 100]);
}

/// Three cores with a queue each, that share so many tags. The first has all of
/// them, and the others wait.
fn three(tags: usize) -> [Context<TimedQueue>; 3] {
    let options = TimedOptions {
        submit_queues: 3,
        hw_queue_depth: tags,
        shared_tags: true,
        ..TimedOptions::default()
    };
    let config = Config::new(topology(3, 1));
    let (contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
    let mut contexts: [Context<TimedQueue>; 3] = contexts.try_into().ok().expect("three cores");
    ask(&mut contexts[0], 0..tags as u64);
    ask(&mut contexts[1], [10]);
    ask(&mut contexts[2], [11]);
    contexts
}

#[test]
fn a_shared_tag_does_not_stay_with_a_core_that_stands_still() {
    let [mut first, still, mut other] = three(1);
    let mut done = Ring::new(4);
    other.advance(Time(10_000), &mut done);
    first.advance(Time(10_000), &mut done);
    // Its tag is free, and it is the turn of who does not look.
    assert_eq!(done.drain().map(|one| one.id).collect::<Vec<_>>(), [0]);
    ask(&mut first, [0]);
    assert_eq!(settle(&mut [first, other]), [0, 11]);
    drop(still);
}

#[test]
fn nor_do_any_where_it_had_its_turn_in_vain() {
    let [mut first, mut still, other] = three(2);
    let mut done = Ring::new(4);
    first.advance(Time(10_000), &mut done);
    assert_eq!(done.drain().count(), 2);
    assert_eq!(settle(&mut [other]), [11]);
    ask(&mut first, 0..2);
    // It looks, when others were faster, and never again: its next turn is the
    // only one that there is.
    still.advance(Time(10_000), &mut done);
    assert_eq!(settle(from_mut(&mut first)), [0, 1]);
    ask(&mut first, 0..4);
    assert_eq!(settle(from_mut(&mut first)), [0, 1, 2, 3]);
    assert_eq!(settle(&mut [still]), [10]);
}
