//! How many requests a second pass through the whole stack on the processor's
//! clock, polled: a drive that takes no time shows what the software costs.
//! One clock read a turn; a turn moves at most `depth` requests.

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ssdkit::drive::DriveSpec;
use ssdkit::drive::stack;
use ssdkit::drive::whole::{Boxed, Drive};
use ssdkit::load::driver::{Real, Virtual};
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
}

impl Case<'_> {
    fn run(self, drive: Boxed) {
        let shape = drive.shape();
        let mut driver = Virtual::new(drive);
        let mut watch = Watch::quiet();
        let mut runner = Runner::new(&mut watch);
        runner.precondition(&mut driver, &shape, 1).expect("a good drive is written");
        let mut driver = Real::new(driver);
        let pattern = Pattern::uniform(shape.bytes, self.reads);
        let pace = Pace::Closed { depth: self.depth };
        let mut load = Load::new(&shape, &pattern, pace, 1, 1).expect("a good load");
        let mut group = self.criterion.benchmark_group("real");
        group.throughput(Throughput::Elements(BATCH));
        group.bench_function(self.name, |b| {
            b.iter_custom(|iterations| {
                let until = Until::Ios(iterations * BATCH);
                let start = Instant::now();
                let plan = Plan { ramp: 0, until, count: true };
                let tally = runner.run(&mut driver, &mut load, plan).expect("it goes on");
                assert_eq!(tally.errors(), 0);
                start.elapsed()
            });
        });
        group.finish();
    }
}

fn case(criterion: &mut Criterion, name: &str, drive: &str, reads: u8, depth: u32) {
    let Ok(DriveSpec::Memory(spec)) = drive.parse() else { panic!("{drive} is no drive") };
    let config = spec.resolve().expect("a good drive");
    let drive = stack::build(&config, 1).expect("memory for a drive");
    Case { criterion, name, reads, depth }.run(drive);
}

fn all(c: &mut Criterion) {
    let null = "mem:null,size=1G,store=none";
    case(c, "randread one by one, null", null, 100, 1);
    case(c, "randread qd32, null", null, 100, 32);
    case(c, "randwrite qd32, null", null, 0, 32);
    let data = "mem:null,size=1G,store=memory";
    case(c, "randread qd32, null with data", data, 100, 32);
    case(c, "randwrite qd32, null with data", data, 0, 32);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = all
}
criterion_main!(benches);
