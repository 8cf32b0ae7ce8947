//! A layer over any driver does what one over the driver itself does.

use crate::common::topology;
use blkmq::driver::any::Any;
use blkmq::driver::null::{Null, NullOptions};
use blkmq::driver::timed::{Slow, Timed, TimedOptions};
use blkmq::{Config, Driver, HardwareQueue, Spread, build, tables};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};

/// What three cores see of 90 reads over `driver`: core, request, and when.
fn seen<D: Driver>(staging: Spread, driver: D) -> Vec<(usize, u64, Time)> {
    let config = Config { staging, ..Config::new(topology(3, 1)) };
    let (mut contexts, _) = build(&config, driver).unwrap();
    let (mut reqs, mut done, mut seen) = (Ring::new(1), Ring::new(8), Vec::new());
    for id in 0..90 {
        reqs.put(|| BlockReq::new(id, BlockOp::Read, id << 12, 4096, Buffer::empty()));
        contexts[id as usize % 3].submit(Time(id * 10), &mut reqs);
        assert!(reqs.is_empty());
    }
    while let Some(at) = contexts.iter().filter_map(Port::next_event).min() {
        for (core, context) in contexts.iter_mut().enumerate() {
            context.advance(at, &mut done);
            seen.extend(done.drain().map(|one| (core, one.id, one.at)));
        }
    }
    seen
}

#[test]
fn every_request_completes_as_over_the_driver_itself() {
    let slow = Some(Slow { completion_nsec: 70_000, in_65536: 9000 });
    let options = TimedOptions { servers: Some(2), slow, ..TimedOptions::default() };
    for staging in [Spread::One, Spread::PerCore] {
        let plain = seen(staging, Timed::new(options).unwrap());
        assert_eq!(plain.len(), 90);
        assert_eq!(seen(staging, Any(Timed::new(options).unwrap())), plain);
    }
}

#[test]
fn what_a_driver_says_of_itself_is_told() {
    let options = NullOptions { submit_queues: 2, poll_queues: 3, ..NullOptions::default() };
    let (null, config) = (Null::new(options).unwrap(), Config::new(topology(5, 1)));
    let any = Any(null);
    assert_eq!((any.queues(), any.depth(), any.shape()), ([2, 0, 3], null.depth(), null.shape()));
    assert_eq!(any.entrance_bytes(), null.entrance_bytes());
    assert_eq!(tables(&config, &any).is_ok(), tables(&config, &null).is_ok());
    let queue = any.open().remove(0);
    assert!(queue.entrance().is_some(), "cores can be inside at the same time");
    let timed = Any(Timed::new(TimedOptions::default()).unwrap()).open().remove(0);
    assert!(timed.entrance().is_none());
}
