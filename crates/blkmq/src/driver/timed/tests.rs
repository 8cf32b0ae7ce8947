//! Tests of the timed null driver.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn request(id: u64, op: BlockOp, offset: u64, len: u64) -> BlockReq {
    BlockReq::new(id, op, offset, len, Buffer::empty())
}

fn open(options: TimedOptions) -> Vec<TimedQueue> {
    Timed::new(options).unwrap().open()
}

/// Submits reads of `len` bytes and gives how many were taken.
fn submit(queue: &mut TimedQueue, now: u64, ids: std::ops::Range<u64>, len: u64) -> usize {
    let mut cmds = Ring::new(1024);
    for id in ids.clone() {
        cmds.push(request(id, BlockOp::Read, 0, len)).unwrap();
    }
    queue.submit(Time(now), &mut cmds);
    (ids.end - ids.start) as usize - cmds.len()
}

/// Lets everything up to `to` happen; ids and times, as they come.
fn until(queue: &mut TimedQueue, to: u64) -> Vec<(u64, u64)> {
    let (mut done, mut seen) = (Ring::new(2), Vec::new());
    while let Some(at) = queue.next_event().filter(|at| at.0 <= to) {
        queue.advance(at, &mut done);
        assert!(!done.is_empty(), "an event of this device is a completion");
        seen.extend(done.drain().map(|d| {
            assert_eq!(d.at, at, "it completes at its event");
            (d.id, d.at.0)
        }));
    }
    seen
}

#[test]
fn a_server_takes_one_request_at_a_time() {
    let options = TimedOptions { servers: Some(2), ..TimedOptions::default() };
    let queue = &mut open(options)[0];
    assert_eq!(submit(queue, 100, 0..5, 4096), 5);
    let ends = until(queue, u64::MAX);
    assert_eq!(ends, [(0, 10_100), (1, 10_100), (2, 20_100), (3, 20_100), (4, 30_100)]);
    assert_eq!(queue.next_event(), None);
}

#[test]
fn without_a_number_of_servers_nothing_waits() {
    let queue = &mut open(TimedOptions { hw_queue_depth: 3, ..TimedOptions::default() })[0];
    assert_eq!(submit(queue, 0, 0..5, 4096), 3, "the depth is the limit");
    assert_eq!(submit(queue, 4, 5..6, 4096), 0);
    assert_eq!(until(queue, u64::MAX), [(0, 10_000), (1, 10_000), (2, 10_000)]);
    assert_eq!(submit(queue, 10_000, 5..6, 4096), 1);
    assert_eq!(until(queue, u64::MAX), [(5, 20_000)]);
}

#[test]
fn a_late_look_changes_nothing_but_who_sees_it_when() {
    let queue = &mut open(TimedOptions::default())[0];
    submit(queue, 0, 0..1, 4096);
    let mut done = Ring::new(4);
    queue.advance(Time(9_999), &mut done);
    assert!(done.is_empty());
    queue.advance(Time(70_000), &mut done);
    assert_eq!(done.pop().map(|d| d.at), Some(Time(10_000)));
}

#[test]
fn queues_share_servers_where_they_are_the_devices() {
    let options = TimedOptions {
        submit_queues: 2,
        servers: Some(1),
        shared_servers: true,
        ..TimedOptions::default()
    };
    let mut queues = open(options);
    submit(&mut queues[0], 0, 0..2, 4096);
    submit(&mut queues[1], 0, 2..3, 4096);
    assert_eq!(until(&mut queues[0], u64::MAX), [(0, 10_000), (1, 20_000)]);
    assert_eq!(until(&mut queues[1], u64::MAX), [(2, 30_000)]);

    let mut queues = open(TimedOptions { shared_servers: false, ..options });
    submit(&mut queues[0], 0, 0..2, 4096);
    submit(&mut queues[1], 0, 2..3, 4096);
    assert_eq!(until(&mut queues[1], u64::MAX), [(2, 10_000)]);
}

#[test]
fn all_queues_share_the_rate() {
    let options = TimedOptions { submit_queues: 2, mbps: 1000, ..TimedOptions::default() };
    let mut queues = open(options);
    // 1 MiB at 1000 MiB/s: 1 ms.
    submit(&mut queues[0], 0, 0..2, MIB);
    submit(&mut queues[1], 0, 2..3, MIB);
    assert_eq!(until(&mut queues[0], u64::MAX), [(0, 1_000_000), (1, 2_000_000)]);
    assert_eq!(until(&mut queues[1], u64::MAX), [(2, 3_000_000)]);
    // After a pause nothing is owed. 4 KiB take 3906.25 ns, rounded up, which
    // the server's time hides.
    submit(&mut queues[1], 9_000_000, 3..7, 4096);
    let ends = until(&mut queues[1], u64::MAX).into_iter().map(|(_, at)| at - 9_000_000);
    assert_eq!(ends.collect::<Vec<_>>(), [10_000, 10_000, 11_721, 15_628]);
}

#[test]
fn what_moves_no_data_does_not_wait_for_the_rate() {
    let queue = &mut open(TimedOptions { mbps: 1, ..TimedOptions::default() })[0];
    let mut cmds = Ring::new(4);
    cmds.push(request(0, BlockOp::Trim, 0, MIB)).unwrap();
    cmds.push(request(1, BlockOp::Flush, 0, 0)).unwrap();
    queue.submit(Time::ZERO, &mut cmds);
    assert_eq!(until(queue, u64::MAX), [(0, 10_000), (1, 10_000)]);
}

#[test]
fn a_request_that_cannot_be_served_is_answered_at_once() {
    let queue = &mut open(TimedOptions { servers: Some(1), ..TimedOptions::default() })[0];
    submit(queue, 0, 0..1, 4096);
    let mut cmds = Ring::new(1);
    cmds.push(request(7, BlockOp::Read, 250 << 30, 4096)).unwrap();
    queue.submit(Time(5), &mut cmds);
    let mut done = Ring::new(1);
    queue.advance(Time(5), &mut done);
    let d = done.pop().unwrap();
    assert_eq!((d.id, d.status, d.at), (7, Status::LBA_OUT_OF_RANGE, Time(5)));
    assert_eq!(until(queue, u64::MAX), [(0, 10_000)]);
}

#[test]
fn the_slow_ones_are_as_many_as_was_asked_and_come_from_the_seed() {
    let slow = Some(Slow { completion_nsec: 1_000_000, in_65536: 6554 });
    let options = TimedOptions { slow, hw_queue_depth: 20_000, ..TimedOptions::default() };
    let slow_of = |options| {
        let queue = &mut open(options)[0];
        let mut cmds = Ring::new(20_000);
        for id in 0..20_000 {
            cmds.push(request(id, BlockOp::Read, 0, 4096)).unwrap();
        }
        queue.submit(Time::ZERO, &mut cmds);
        let late = until(queue, u64::MAX).into_iter().filter(|(_, at)| *at == 1_000_000);
        late.map(|(id, _)| id).collect::<Vec<_>>()
    };
    let first = slow_of(options);
    // 2000 are expected, with a deviation of 42.
    assert!((1800..2200).contains(&first.len()), "{}", first.len());
    assert_eq!(slow_of(options), first);
    assert_ne!(slow_of(TimedOptions { seed: 2, ..options }), first);
    let all = Some(Slow { completion_nsec: 1_000_000, in_65536: ALL });
    assert_eq!(slow_of(TimedOptions { slow: all, ..options }).len(), 20_000);
    let none = Some(Slow { completion_nsec: 1_000_000, in_65536: 0 });
    assert_eq!(slow_of(TimedOptions { slow: none, ..options }).len(), 0);
}

#[test]
fn lost_requests_stay_inside_until_they_are_given_up() {
    let options =
        TimedOptions { lost_every: Some(3), hw_queue_depth: 7, ..TimedOptions::default() };
    let queue = &mut open(options)[0];
    let mut cmds = Ring::new(8);
    for id in 0..7 {
        let buffer = Buffer::empty();
        cmds.push(BlockReq { buffer, ..request(id, BlockOp::Read, 0, 4096) }).unwrap();
    }
    queue.submit(Time::ZERO, &mut cmds);
    let ids: Vec<u64> = until(queue, u64::MAX).iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [0, 1, 3, 4, 6]);
    assert_eq!(queue.next_event(), None, "nothing happens any more");
    assert_eq!(submit(queue, 20_000, 10..20, 4096), 5, "the lost ones keep their room");
    assert!(matches!(queue.abort(2), Abort::Given(_)));
    assert!(matches!(queue.abort(2), Abort::Lost), "it is given once");
    assert_eq!(submit(queue, 20_000, 20..21, 4096), 1);
}

#[test]
fn a_request_in_service_can_be_given_up() {
    let queue = &mut open(TimedOptions { servers: Some(1), ..TimedOptions::default() })[0];
    submit(queue, 0, 0..3, 4096);
    assert!(matches!(queue.abort(1), Abort::Given(_)));
    assert_eq!(until(queue, u64::MAX), [(0, 10_000), (2, 30_000)]);
}

#[test]
fn a_device_that_is_gone_takes_and_completes_nothing() {
    let options = TimedOptions { submit_queues: 2, gone_after: Some(5), ..Default::default() };
    let mut queues = open(options);
    assert_eq!(submit(&mut queues[0], 0, 0..2, 4096), 2);
    assert!(!queues[0].is_gone() && !queues[1].is_gone());
    assert_eq!(submit(&mut queues[1], 1, 2..9, 4096), 3, "it goes with the fifth");
    for queue in &mut queues {
        assert!(queue.is_gone());
        assert_eq!((queue.next_event(), submit(queue, 2, 10..11, 4096)), (None, 0));
        let mut done = Ring::new(8);
        queue.advance(Time(1 << 40), &mut done);
        assert!(done.is_empty());
    }
    for (queue, id) in [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)] {
        assert!(matches!(queues[queue].abort(id), Abort::Given(_)), "{id}");
    }
    assert!(matches!(queues[1].abort(5), Abort::Lost), "it was never taken");
}

#[test]
fn parameters_outside_their_range_are_refused() {
    let ok = TimedOptions::default();
    let slow = |completion_nsec, in_65536| Some(Slow { completion_nsec, in_65536 });
    for bad in [
        TimedOptions { submit_queues: 0, ..ok },
        TimedOptions { hw_queue_depth: MOST_DEPTH + 1, ..ok },
        TimedOptions { gb: MOST_GB + 1, ..ok },
        TimedOptions { completion_nsec: MOST_NSEC + 1, ..ok },
        TimedOptions { mbps: MOST_MBPS + 1, ..ok },
        TimedOptions { servers: Some(0), ..ok },
        TimedOptions { slow: slow(1, ALL + 1), ..ok },
        TimedOptions { slow: slow(MOST_NSEC + 1, 1), ..ok },
        TimedOptions { lost_every: Some(0), ..ok },
        TimedOptions { gone_after: Some(0), ..ok },
    ] {
        assert!(matches!(Timed::new(bad), Err(ConfigError::Range { .. })), "{bad:?}");
    }
}

/// The device as a story: arrivals, a waiting line, servers that take the
/// next when they are done. Gives who ends when.
fn model(arrivals: &[u64], times: &[u64], servers: usize) -> Vec<(u64, u64)> {
    let (mut waiting, mut busy, mut ended) = (VecDeque::new(), Vec::new(), Vec::new());
    let mut next = 0;
    loop {
        let end = busy.iter().map(|(at, _)| *at).min();
        let arrival = arrivals.get(next).copied();
        // A server that is done at the moment of an arrival is free for it.
        let Some(now) = [end, arrival].into_iter().flatten().min() else { return ended };
        if end == Some(now) {
            let i = busy.iter().position(|(at, _)| *at == now).unwrap();
            let (at, id) = busy.remove(i);
            ended.push((id, at));
        } else {
            waiting.push_back(next as u64);
            next += 1;
        }
        while busy.len() < servers
            && let Some(id) = waiting.pop_front()
        {
            busy.push((now + times[id as usize], id));
        }
    }
}

proptest! {
    #[test]
    fn it_is_a_line_before_servers(
        gaps in proptest::collection::vec(0u64..3_000, 1..60),
        servers in 1usize..6,
        shared: bool,
        seed: u64,
        in_65536 in 0u32..=ALL,
    ) {
        let slow = Some(Slow { completion_nsec: 7_001, in_65536 });
        let (servers, depth) = (Some(servers), 64);
        let options = TimedOptions {
            servers, slow, seed, shared_servers: shared, hw_queue_depth: depth,
            completion_nsec: 1_000, ..TimedOptions::default()
        };
        let arrivals: Vec<u64> =
            gaps.iter().scan(0, |t, gap| { *t += gap; Some(*t) }).collect();
        let mut pace = Pace::new(&options, 0);
        let times: Vec<u64> = gaps.iter().map(|_| pace.service()).collect();

        let queue = &mut open(options)[0];
        let mut seen = Vec::new();
        for (id, now) in arrivals.iter().enumerate() {
            seen.extend(until(queue, *now));
            prop_assert_eq!(submit(queue, *now, id as u64..id as u64 + 1, 4096), 1);
        }
        seen.extend(until(queue, u64::MAX));
        prop_assert!(seen.is_sorted_by_key(|(_, at)| *at));
        let mut expected = model(&arrivals, &times, servers.unwrap());
        seen.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn no_more_bytes_pass_than_the_rate_allows(
        requests in proptest::collection::vec((0u64..20_000, 1u64..=256), 1..60),
        mbps in 1u64..20_000,
        servers in proptest::option::of(1usize..5),
    ) {
        let options = TimedOptions { mbps, servers, ..TimedOptions::default() };
        let queue = &mut open(options)[0];
        let (mut now, mut ends, mut blocks) = (0, Vec::new(), vec![]);
        for (id, (gap, len)) in requests.into_iter().enumerate() {
            now += gap;
            ends.extend(until(queue, now));
            submit(queue, now, id as u64..id as u64 + 1, len * 4096);
            blocks.push((now, len * 4096));
        }
        ends.extend(until(queue, u64::MAX));
        prop_assert_eq!(ends.len(), blocks.len());
        // Whatever came from some arrival on has not passed sooner than the
        // rate allows.
        ends.sort_unstable();
        for (from, (first, _)) in blocks.iter().enumerate() {
            let mut bytes = 0u128;
            for ((arrival, len), (_, end)) in blocks.iter().zip(&ends).skip(from) {
                bytes += u128::from(*len);
                let least = bytes * 1_000_000_000 / u128::from(mbps << 20);
                let took = u128::from(end - first);
                prop_assert!(took >= least, "from {from}: {took} ns, at least {least}");
                prop_assert!(*end >= arrival + 10_000);
            }
        }
    }
}
