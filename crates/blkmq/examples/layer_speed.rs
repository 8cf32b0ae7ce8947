//! What the block layer costs on one core, over the null driver.
//!
//! `layer_speed` prints million requests a second, the median of 9 rounds, for each
//! case. `layer_speed CASE DEPTH BATCH COUNT` makes one run of COUNT requests with
//! no clock at all, for counting instructions.

use std::time::Instant;

use blkmq::driver::null::{Null, NullOptions};
use blkmq::{Config, Driver, Topology, build};
use device::realtime::Clock;
use port::{BlockDone, BlockOp, BlockReq, Port, Time};
use workload::{Tight, TightOptions};

const ROUNDS: usize = 9;
const TURN: u64 = 4_000_000;

fn null(depth: usize, shared: bool) -> Null {
    let options = NullOptions {
        hw_queue_depth: depth.max(32),
        shared_tags: shared,
        ..NullOptions::default()
    };
    Null::new(options).expect("good parameters")
}

fn tight(driver: &Null, depth: usize, batch: usize) -> Tight {
    let options = TightOptions { op: BlockOp::Read, len: 4096, depth, batch, seed: 1 };
    Tight::new(&driver.shape(), options).expect("memory")
}

/// Turns between two clock reads, such that one is read every `every` requests.
fn measure<P>(drive: &mut P, tight: &mut Tight, every: u64) -> f64
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let clock = Clock::start();
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (from, began) = (tight.completed(), Instant::now());
            while tight.completed() < from + TURN {
                let now = clock.now();
                let next = tight.completed() + every;
                loop {
                    tight.turn(now, drive);
                    if tight.completed() >= next {
                        break;
                    }
                }
            }
            (tight.completed() - from) as f64 / began.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

fn count<P>(drive: &mut P, tight: &mut Tight, requests: u64)
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let mut now = 0;
    while tight.completed() < requests {
        now += 100;
        tight.turn(Time(now), drive);
    }
    assert_eq!(tight.errors(), 0);
}

fn layer(driver: Null) -> blkmq::Context<blkmq::driver::null::NullQueue> {
    let config = Config::new(Topology::new(1, 1).expect("one core"));
    build(&config, driver).expect("a good layer").0.remove(0)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [case, depth, batch, requests] = &args[..] {
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let (depth, batch) = (number(depth) as usize, number(batch) as usize);
        let driver = null(depth, case == "shared");
        let mut load = tight(&driver, depth, batch);
        match &case[..] {
            "raw" => count(&mut driver.open().remove(0), &mut load, number(requests)),
            _ => count(&mut layer(driver), &mut load, number(requests)),
        }
        return;
    }
    for (depth, batch, every) in
        [(32, 32, 32), (128, 32, 32), (128, 128, 128), (32, 1, 32), (128, 1, 32), (1, 1, 1)]
    {
        let mut row = Vec::new();
        for (name, shared) in [("raw", false), ("mq", false), ("shared", true)] {
            let driver = null(depth, shared);
            let mut load = tight(&driver, depth, batch);
            let rate = match name {
                "raw" => measure(&mut driver.open().remove(0), &mut load, every),
                _ => measure(&mut layer(driver), &mut load, every),
            };
            row.push(format!("{name} {rate:6.1}"));
        }
        println!("depth {depth:3} batch {batch:3}, clock every {every:3}: {}", row.join("  "));
    }
}
