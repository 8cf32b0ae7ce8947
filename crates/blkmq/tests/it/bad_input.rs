//! Bad configurations and bad drivers: typed errors, and nothing stuck.

use std::ops::Range;

use crate::common::{Chaos, Faults, topology};
use blkmq::driver::null::{Null, NullOptions};
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::scheduler::FairOptions;
use blkmq::{
    Config, ConfigError, Context, Driver, Fault, HardwareQueue, Plug, QueueKind, SchedulerKind,
    Spread, Topology, build,
};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};

/// A driver that lies about its queues.
struct Liar {
    queues: usize,
    opens: usize,
    maps_to: usize,
}

impl Driver for Liar {
    type Queue = <Null as Driver>::Queue;

    fn shape(&self) -> Shape {
        Null::new(NullOptions::default()).unwrap().shape()
    }

    fn queues(&self) -> [usize; 3] {
        [self.queues, 0, 0]
    }

    fn map(&self, _: &Topology, _: QueueKind, _: usize) -> usize {
        self.maps_to
    }

    fn open(self) -> Vec<Self::Queue> {
        let options = NullOptions { submit_queues: self.opens, ..NullOptions::default() };
        Null::new(options).unwrap().open()
    }
}

fn refused(config: &Config, driver: impl Driver) -> ConfigError {
    build(config, driver).err().expect("it cannot be")
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let good = Config::new(topology(2, 1));
    let null = || Null::new(NullOptions::default()).unwrap();
    let configs = [
        Config { staging: Spread::Count(0), ..good.clone() },
        Config { staging: Spread::Count(3), ..good.clone() },
        Config { staging_depth: 0, ..good.clone() },
        Config { timeout: 0, ..good.clone() },
        Config { timeout: u64::MAX, ..good.clone() },
        Config { timeout: (1 << 62) + 1, ..good.clone() },
        Config { plug: Some(Plug { requests: 0, ..Plug::default() }), ..good.clone() },
        Config { scheduler: SchedulerKind::Fair(FairOptions { weights: vec![0] }), ..good.clone() },
    ];
    for config in configs {
        let error = refused(&config, null());
        assert!(matches!(error, ConfigError::Range { .. }), "{config:?}: {error}");
    }
    let liar = |queues, opens, maps_to| refused(&good, Liar { queues, opens, maps_to });
    assert!(matches!(liar(0, 1, 0), ConfigError::Range { value: 0, .. }));
    assert!(matches!(liar(4096, 1, 0), ConfigError::Range { value: 4096, .. }));
    assert_eq!(liar(2, 1, 0), ConfigError::Queues { opened: 1, said: 2 });
    let mapping = liar(1, 1, 1);
    assert!(mapping.to_string().contains("maps core 0 to default queue 1"), "{mapping}");
}

fn ask<Q: HardwareQueue>(context: &mut Context<Q>, now: Time, ids: Range<u64>, bytes: usize) {
    let mut reqs = Ring::new(64);
    for id in ids {
        let (op, buffer) = (BlockOp::Read, Buffer::zeroed(bytes).unwrap());
        reqs.push(BlockReq::new(id, op, 0, 4096, buffer)).unwrap();
    }
    context.submit(now, &mut reqs);
    assert!(reqs.is_empty());
}

/// Goes on until nothing more happens.
fn settle<Q: HardwareQueue>(context: &mut Context<Q>) -> Vec<BlockDone> {
    let (mut all, mut done) = (Vec::new(), Ring::new(8));
    while let Some(at) = context.next_event() {
        context.advance(at, &mut done);
        all.extend(done.drain());
    }
    assert_eq!(context.outside(), 0);
    all.sort_by_key(|one| one.id);
    all
}

#[test]
fn a_request_that_never_completes_is_reported_and_its_tag_recovered() {
    let options =
        TimedOptions { hw_queue_depth: 4, lost_every: Some(4), ..TimedOptions::default() };
    let config = Config { timeout: 1_000_000, ..Config::new(topology(1, 1)) };
    let (mut contexts, monitor) = build(&config, Timed::new(options).unwrap()).unwrap();
    // Ten times as many as there are tags: lost ones must come back.
    ask(&mut contexts[0], Time(0), 0..40, 0);
    let done = settle(&mut contexts[0]);
    assert_eq!(done.len(), 40);
    let lost: Vec<&BlockDone> = done.iter().filter(|d| !d.status.is_ok()).collect();
    assert_eq!(lost.len(), 10);
    assert!(lost.iter().all(|one| one.status == Status::ABORTED_BY_HOST));
    let stats = &monitor.dispatch()[0];
    assert_eq!((stats.timed_out, stats.in_flight, stats.completed), (10, 0, 40));
    let faults = contexts[0].faults();
    assert_eq!(faults.len(), 10);
    assert!(matches!(faults[0], Fault::TimedOut { queue: 0, .. }), "{}", faults[0]);
}

#[test]
fn a_tag_completed_twice_is_noticed_and_nothing_else_disturbed() {
    let faults = Faults { double: 1, ..Faults::default() };
    let (queues, depth) = ([1, 0, 0], 4);
    let chaos = Chaos { queues, depth, shares_tags: false, faults, longest: 50, seed: 3 };
    let (mut contexts, monitor) = build(&Config::new(topology(1, 1)), chaos).unwrap();
    ask(&mut contexts[0], Time(0), 0..40, 4096);
    let done = settle(&mut contexts[0]);
    assert_eq!(done.iter().map(|d| d.id).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    assert!(done.iter().all(|d| d.status.is_ok() && d.buffer.len() == 4096));
    assert_eq!(monitor.dispatch()[0].strays, 40);
    let twice = contexts[0].faults();
    assert!(twice.iter().all(|f| matches!(f, Fault::NotInFlight { queue: 0, .. })), "{twice:?}");
}

#[test]
fn a_device_removed_with_requests_in_flight_gives_all_back() {
    let options = TimedOptions { gone_after: Some(10), ..TimedOptions::default() };
    let config = Config::new(topology(1, 1));
    let (mut contexts, monitor) = build(&config, Timed::new(options).unwrap()).unwrap();
    ask(&mut contexts[0], Time(0), 0..32, 0);
    let done = settle(&mut contexts[0]);
    assert_eq!(done.len(), 32);
    assert!(done.iter().all(|d| d.status == Status::ABORTED));
    assert_eq!(contexts[0].faults(), [Fault::Gone { queue: 0 }]);
    // What comes later is answered too.
    ask(&mut contexts[0], Time(1_000_000), 32..40, 0);
    assert_eq!(settle(&mut contexts[0]).len(), 8);
    assert_eq!(monitor.dispatch()[0].in_flight, 0);
}
