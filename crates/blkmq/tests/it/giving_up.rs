//! Giving up very many requests, and waiting for one that a drive lost.

use crate::common::topology;
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Config, Context, Fault, HardwareQueue, build};
use device::realtime::thread_cpu;
use hosting::inline::Inline;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};

/// The most requests that a queue takes.
const MANY: u64 = 65_535;
/// Processor time for giving all of them up: a hundred times what it takes, and
/// a tenth of what it takes to look for each of them among all.
const MOST: u64 = 2_000_000_000;

fn ask<Q: HardwareQueue>(context: &mut Context<Q>, n: u64) {
    let mut reqs = Ring::new(n as usize);
    for id in 0..n {
        reqs.put(|| BlockReq::new(id, BlockOp::Read, 0, 4096, Buffer::empty()));
    }
    context.submit(Time(0), &mut reqs);
    assert!(reqs.is_empty());
}

/// Has so many requests given up by a device as `options` say. How they came
/// back, in the order of their ids.
fn give_up(options: TimedOptions) -> Vec<Status> {
    let options = TimedOptions { hw_queue_depth: MANY as usize, ..options };
    let config = Config { timeout: 1_000_000, ..Config::new(topology(1, 1)) };
    let (mut contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
    let (context, mut all) = (&mut contexts[0], Vec::new());
    ask(context, MANY);
    let (start, mut done) = (thread_cpu(), Ring::new(MANY as usize));
    while let Some(at) = context.next_event() {
        context.advance(at, &mut done);
        all.extend(done.drain().map(|one| (one.id, one.status)));
    }
    let took = thread_cpu() - start;
    assert!(took < MOST, "{took} ns of processor time");
    all.sort_unstable_by_key(|&(id, _)| id);
    assert!(all.iter().map(|&(id, _)| id).eq(0..MANY), "each comes back once");
    all.into_iter().map(|(_, status)| status).collect()
}

#[test]
fn very_many_are_given_up_as_fast_as_few() {
    let lost = TimedOptions { lost_every: Some(1), ..TimedOptions::default() };
    assert!(give_up(lost).iter().all(|&status| status == Status::ABORTED_BY_HOST));
    // Some complete in time, and some are given up while they are worked on.
    let slow = TimedOptions { completion_nsec: 50_000, servers: Some(1000), ..lost };
    let slow = TimedOptions { lost_every: Some(3), ..slow };
    let back = give_up(slow);
    let given_up = back.iter().filter(|&&status| status == Status::ABORTED_BY_HOST).count();
    assert!((1 << 14..1 << 16).contains(&given_up), "{given_up}");
}

#[test]
fn nor_does_it_take_long_when_the_device_goes() {
    // It takes one of them, so all others were not sent.
    let gone = TimedOptions { gone_after: Some(1), ..TimedOptions::default() };
    assert!(give_up(gone).iter().all(|&status| status == Status::ABORTED));
}

/// A drive that takes requests and never completes one.
struct Swallows;

impl Port for Swallows {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _: Time, cmds: &mut Ring<BlockReq>) {
        cmds.drain().for_each(drop);
    }

    fn next_event(&self) -> Option<Time> {
        None
    }

    fn advance(&mut self, _: Time, _: &mut Ring<BlockDone>) {}
}

#[test]
fn a_drive_where_nothing_happens_any_more_is_not_waited_for() {
    let shape = Shape { bytes: 1 << 20, kept: 0, max_bytes: 4096, depth: 2 };
    let config = Config { timeout: 1000, ..Config::new(topology(1, 1)) };
    let (mut contexts, _) = build(&config, Inline::new(Swallows, shape, 2)).unwrap();
    let (context, mut done) = (&mut contexts[0], Ring::new(2));
    ask(context, 1);
    for _ in 0..10 {
        let Some(at) = context.next_event() else { break };
        context.advance(at, &mut done);
    }
    let back: Vec<_> = done.drain().map(|one| (one.id, one.status)).collect();
    assert_eq!(back, [(0, Status::ABORTED)]);
    assert_eq!(context.faults().last(), Some(&Fault::Stuck { queue: 0 }));
}
