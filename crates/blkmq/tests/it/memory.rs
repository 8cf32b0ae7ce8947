//! Memory: what a block layer says that it takes is what it takes, and where it
//! cannot be had is an error.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::topology;
use blkmq::driver::null::{Null, NullOptions};
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::scheduler::FairOptions;
use blkmq::{Config, ConfigError, Driver, Merge, SchedulerKind, Spread, build, scheduler, tables};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    /// How many more times memory is given before it is refused once.
    static REFUSED_AFTER: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Counts what a thread has taken and not given back, and refuses it once.
struct Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = REFUSED_AFTER.get();
        REFUSED_AFTER.set(left.wrapping_sub(u64::from(left != u64::MAX)));
        if left == 0 {
            return std::ptr::null_mut();
        }
        TAKEN.set(TAKEN.get().wrapping_add(layout.size() as u64));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.set(TAKEN.get().wrapping_sub(layout.size() as u64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Compares what a layer takes with what was said.
fn compare(config: &Config, driver: impl Driver) {
    let said = tables(config, &driver).unwrap();
    let before = TAKEN.get();
    let layer = build(config, driver).unwrap();
    let took = TAKEN.get().wrapping_sub(before);
    // Small things of each queue and core are left out.
    assert!(took <= said + said / 50, "took {took}, said {said}: {config:?}");
    assert!(said <= took + took / 10, "took {took}, said {said}: {config:?}");
    drop(layer);
}

#[test]
fn what_is_said_is_what_is_taken() {
    let options = NullOptions { hw_queue_depth: 1000, ..NullOptions::default() };
    let null = |submit_queues| Null::new(NullOptions { submit_queues, ..options }).unwrap();
    let plain = Config::new(topology(8, 2));
    let deadline = SchedulerKind::Deadline(scheduler::DeadlineOptions::default());
    let fair = SchedulerKind::Fair(FairOptions::default());
    for queues in [1, 3, 8] {
        compare(&plain, null(queues));
        compare(&Config { staging: Spread::One, ..plain.clone() }, null(queues));
        compare(&Config { staging_depth: 30_000, ..plain.clone() }, null(queues));
        compare(&Config { scheduler: deadline.clone(), ..plain.clone() }, null(queues));
        let merge = Merge::Full;
        let staging = Spread::PerSocket;
        compare(&Config { scheduler: fair.clone(), staging, merge, ..plain.clone() }, null(queues));
    }
    let options = TimedOptions {
        submit_queues: 3,
        poll_queues: 2,
        hw_queue_depth: 1000,
        shared_tags: true,
        servers: Some(500),
        ..TimedOptions::default()
    };
    compare(&plain, Timed::new(options).unwrap());
}

/// A driver whose queues take more than there is.
struct Huge(Null);

impl Driver for Huge {
    type Queue = <Null as Driver>::Queue;

    fn shape(&self) -> port::Shape {
        self.0.shape()
    }

    fn queues(&self) -> [usize; 3] {
        self.0.queues()
    }

    fn tables(&self) -> u64 {
        1 << 55
    }

    fn open(self) -> Vec<Self::Queue> {
        panic!("it was not asked whether there is room")
    }
}

#[test]
fn where_memory_ends_nothing_is_opened() {
    let huge = Huge(Null::new(NullOptions::default()).unwrap());
    let refused = build(&Config::new(topology(1, 1)), huge).err().unwrap();
    assert!(matches!(refused, ConfigError::Memory { .. }), "{refused}");
}

/// Each piece of memory that another scheduler takes is refused in turn: that is
/// an error, and the requests that are staged go out as before.
#[test]
fn a_scheduler_that_does_not_fit_is_refused() {
    let deadline = SchedulerKind::Deadline(scheduler::DeadlineOptions::default());
    let fair = SchedulerKind::Fair(FairOptions::default());
    for kind in [SchedulerKind::None, deadline, fair] {
        let options = TimedOptions { hw_queue_depth: 1, ..TimedOptions::default() };
        let config = Config::new(topology(1, 1));
        let (mut contexts, _) = build(&config, Timed::new(options).unwrap()).unwrap();
        let (mut reqs, mut done) = (Ring::new(5), Ring::new(5));
        for (id, block) in (0..).zip([9, 4, 7, 2, 5]) {
            let (op, buffer, offset) = (BlockOp::Read, Buffer::empty(), block * 4096);
            let (fua, placement, queue, len) = (false, 0, 0, 4096);
            reqs.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
        }
        contexts[0].submit(Time(0), &mut reqs);
        let mut pieces = 0;
        loop {
            REFUSED_AFTER.set(pieces);
            let set = contexts[0].set_scheduler(&kind);
            let refused = REFUSED_AFTER.replace(u64::MAX) == u64::MAX;
            match set {
                Err(ConfigError::Memory { .. }) => assert!(refused),
                Err(other) => panic!("{other}"),
                Ok(()) => break assert!(!refused, "nobody noticed"),
            }
            pieces += 1;
        }
        assert!(pieces >= 3, "{pieces} pieces");
        let mut seen = Vec::new();
        while let Some(at) = contexts[0].next_event() {
            contexts[0].advance(at, &mut done);
            seen.extend(done.drain().map(|one| one.id));
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
}
