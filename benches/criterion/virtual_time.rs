//! How many requests a second pass through the whole stack in virtual time.
//!
//! A sample runs a load for so many requests as criterion asks for, on a drive
//! that was written before; only the load is timed.

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ssdkit::drive::DriveSpec;
use ssdkit::drive::stack;
use ssdkit::drive::whole::{Boxed, Drive};
use ssdkit::load::driver::{Driver, Virtual};
use ssdkit::load::load::{Load, Pace};
use ssdkit::load::runner::{Plan, Runner, Until};
use ssdkit::load::watch::Watch;
use workload::Pattern;

/// Requests in an iteration: what criterion counts as one.
const BATCH: u64 = 10_000;

/// One benchmark.
struct Case<'a> {
    criterion: &'a mut Criterion,
    name: &'a str,
    reads: u8,
    depth: u32,
    /// How often the drive is written over at random first.
    overwrites: u64,
}

impl Case<'_> {
    fn run(self, drive: Boxed) {
        let shape = drive.shape();
        let mut driver = Virtual::new(drive);
        let mut watch = Watch::quiet();
        let mut runner = Runner::new(&mut watch);
        // Once over: that is what a benchmark of the software needs.
        let fill = Pattern::precondition(shape.bytes);
        let until = Until::Ios(fill.blocks());
        let mut load = Load::new(&shape, &fill, Pace::Closed { depth: 32 }, 1, 1).expect("a load");
        let plan = Plan { ramp: 0, until, count: false };
        runner.run(&mut driver, &mut load, plan).expect("a good drive is written");
        // Until all of the drive's memory has been taken, and collection is even.
        if self.overwrites > 0 {
            let writes = Pattern::uniform(shape.bytes, 0);
            let pace = Pace::Closed { depth: self.depth };
            let mut load = Load::new(&shape, &writes, pace, 1, 1).expect("a good load");
            let until = Until::Ios(self.overwrites * shape.bytes / 4096);
            let plan = Plan { ramp: 0, until, count: false };
            runner.run(&mut driver, &mut load, plan).expect("a good drive is overwritten");
        }
        let pattern = Pattern::uniform(shape.bytes, self.reads);
        let pace = Pace::Closed { depth: self.depth };
        let mut load = Load::new(&shape, &pattern, pace, 1, 1).expect("a good load");
        let mut run = |driver: &mut Virtual<Boxed>, ios: u64| {
            let plan = Plan { ramp: 0, until: Until::Ios(ios), count: true };
            let tally = runner.run(driver, &mut load, plan).expect("a good drive goes on");
            assert_eq!(tally.errors(), 0);
        };
        assert!(driver.counters().user > 0);
        let mut group = self.criterion.benchmark_group("virtual");
        group.throughput(Throughput::Elements(BATCH));
        group.bench_function(self.name, |b| {
            b.iter_custom(|iterations| {
                let start = Instant::now();
                run(&mut driver, iterations * BATCH);
                start.elapsed()
            });
        });
        group.finish();
    }
}

fn case(
    criterion: &mut Criterion,
    name: &str,
    drive: &str,
    reads: u8,
    depth: u32,
    overwrites: u64,
) {
    let Ok(DriveSpec::Memory(spec)) = drive.parse() else { panic!("{drive} is no drive") };
    let config = spec.resolve().expect("a good drive");
    let drive = stack::build(&config, 1).expect("memory for a drive");
    Case { criterion, name, reads, depth, overwrites }.run(drive);
}

fn all(c: &mut Criterion) {
    case(c, "randread qd64, ref", "mem:ref,store=none", 100, 64, 0);
    case(c, "randwrite qd64 steady, ref", "mem:ref,store=none", 0, 64, 3);
    case(c, "randrw 70/30 qd32, tlc with data", "mem:tlc,size=1G", 70, 32, 2);
    case(c, "randread qd64, ref of 2 TB", "mem:ref,store=none,size=2T", 100, 64, 0);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = all
}
criterion_main!(benches);
