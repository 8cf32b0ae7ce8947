//! Another scheduler for a layer that runs.

use crate::common::{Chaos, Faults, topology};
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::scheduler::{DeadlineOptions, FairOptions};
use blkmq::{Config, ConfigError, SchedulerKind, Spread, build};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};
use workload::Rng;

fn read(id: u64, block: u64) -> BlockReq {
    BlockReq::new(id, BlockOp::Read, block * 4096, 4096, Buffer::empty())
}

/// The order in which reads of these blocks complete on a device that takes one
/// after the other, when the scheduler is changed while they are staged.
fn order(before: SchedulerKind, after: &SchedulerKind, blocks: [u64; 5]) -> Vec<u64> {
    let options = TimedOptions { hw_queue_depth: 1, ..TimedOptions::default() };
    let config = Config { scheduler: before, ..Config::new(topology(1, 1)) };
    let (mut contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
    let context = &mut contexts[0];
    let (mut reqs, mut done, mut seen) = (Ring::new(5), Ring::new(5), Vec::new());
    blocks.iter().for_each(|&block| reqs.put(|| read(block, block)));
    context.submit(Time(0), &mut reqs);
    context.set_scheduler(after).unwrap();
    while let Some(at) = context.next_event() {
        context.advance(at, &mut done);
        seen.extend(done.drain().map(|one| one.id));
    }
    assert_eq!(context.outside(), 0);
    seen
}

#[test]
fn what_is_staged_goes_out_as_the_new_one_says() {
    let deadline = SchedulerKind::Deadline(DeadlineOptions::default());
    // The first is with the device already.
    let by_address = order(SchedulerKind::None, &deadline, [9, 4, 7, 2, 5]);
    assert_eq!(by_address, [9, 2, 4, 5, 7]);
    // The deadline scheduler had the lowest address first.
    let as_they_came = order(deadline, &SchedulerKind::None, [9, 4, 7, 2, 5]);
    assert_eq!(as_they_came, [2, 9, 4, 7, 5]);
}

#[test]
fn one_that_cannot_be_changes_nothing() {
    let options = TimedOptions::default();
    let (mut contexts, _) =
        build(&Config::new(topology(1, 1)), Timed::new(options).unwrap()).unwrap();
    let bad = SchedulerKind::Fair(FairOptions { weights: vec![0] });
    assert!(matches!(contexts[0].set_scheduler(&bad), Err(ConfigError::Range { .. })));
}

/// Switched all the time, in every way of sharing: each comes back once.
#[test]
fn nothing_is_lost_by_it() {
    let kinds = [
        SchedulerKind::None,
        SchedulerKind::Deadline(DeadlineOptions::default()),
        SchedulerKind::Fair(FairOptions { weights: vec![3] }),
    ];
    for (seed, staging) in (0..12).zip([Spread::One, Spread::PerSocket, Spread::PerCore].repeat(4))
    {
        let mut rng = Rng::new(seed, 1);
        let config = Config { staging, staging_depth: 6, ..Config::new(topology(3, 2)) };
        let queues = [1 + rng.below(3) as usize, 0, 0];
        let faults = Faults::default();
        let device = Chaos { queues, depth: 2, shares_tags: false, faults, longest: 500, seed };
        let (mut contexts, _) = build(&config, device).unwrap();
        let (mut reqs, mut done, mut now) = (Ring::new(1), Ring::new(8), Time(0));
        let (mut asked, mut seen) = (0, Vec::new());
        while seen.len() < 600 {
            let core = rng.below(3) as usize;
            if asked < 600 {
                reqs.put(|| read(asked, rng.below(64)));
                contexts[core].submit(now, &mut reqs);
                asked += 1 - reqs.len() as u64;
                reqs.drain().for_each(drop);
            }
            contexts[core].set_scheduler(&kinds[rng.below(3) as usize]).unwrap();
            now = contexts.iter().filter_map(Port::next_event).min().map_or(now, |at| at.max(now));
            for context in &mut contexts {
                context.advance(now, &mut done);
                seen.extend(done.drain().map(|one| one.id));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..600).collect::<Vec<u64>>());
    }
}
