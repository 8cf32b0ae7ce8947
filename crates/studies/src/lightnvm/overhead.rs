//! Figures 6 and 7 (thesis, chapter 6, section 6.1.1): what translation costs on devices
//! that take no time, by the size of requests. In turns, by the processor's time of a
//! request, which others on the machine change little; 32 outstanding, one by one, through
//! the block layer of one core.
//!
//! "Optimal" is the block layer over a null device, or, where data are moved, over a piece of
//! memory in which they lie as in the drive; beside it the same with the page-mapped target
//! and a drive of ours that takes no time. So what is told as translation has the work of
//! the simulated drive in it.

use blkmq::driver::null::{Null, NullOptions};
use blkmq::{Context, HardwareQueue};
use hosting::inline::Inline;
use load::cpu::CpuTime;
use measure::units;
use port::{BLOCK_BYTES, BlockOp, Shape, Time};
use report::Plot;
use serde_json::json;
use workload::{Tight, TightOptions};

use super::super::{Case, Findings, Lab, Reference, Row, Runs};
use super::components::{block_layer, target};
use super::memory::InMemory;
use super::{picture, through};
use crate::layers::refused;
use drive::error::Error;

const FIGURE: &str = "figures 6 and 7: what translation costs";
const DEPTH: usize = 32;
/// Bytes of a request, in blocks.
const SIZES: [u64; 4] = [1, 8, 32, 128];
/// The rate of the paper's NVMe null device, in bytes a second.
const RATE: f64 = 380e6;

/// What is measured of each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Reads of devices that move nothing.
    Reads,
    /// Writes, to a drive never written.
    Writes,
    /// Reads of devices that keep all.
    Moved,
}
const WHATS: [(What, &str); 3] = [
    (What::Reads, "reads, nothing moved"),
    (What::Writes, "writes, nothing moved"),
    (What::Moved, "reads, data moved"),
];

/// Runs `count` requests; gives the processor's time of one, in ns.
type Once<'a> = Box<dyn FnMut() -> Result<f64, Error> + 'a>;

/// Logical bytes of a drive, and how many are asked for in a run.
#[derive(Clone, Copy)]
struct Much {
    bytes: u64,
    run: u64,
}

/// The loop over what there is: 32 outstanding, one by one.
fn run<Q: HardwareQueue>(
    context: &mut Context<Q>,
    shape: &Shape,
    (op, len): (BlockOp, u64),
    count: u64,
) -> Result<f64, Error> {
    let load = TightOptions { op, len, depth: DEPTH, batch: 1, seed: 1 };
    let mut tight = Tight::new(shape, load)?;
    let (warm, mut now) = (count / 8, 0);
    let mut turns = |tight: &mut Tight, until: u64| {
        while tight.completed() < until {
            now += 100;
            tight.turn(Time(now), context);
        }
    };
    turns(&mut tight, warm);
    let before = CpuTime::now();
    turns(&mut tight, warm + count);
    let (user, system) = CpuTime::now().since(&before);
    while tight.outside() > 0 {
        now += 100;
        tight.settle(Time(now), context);
    }
    match tight.errors() {
        0 => Ok((user + system) * 1e9 / count as f64),
        n => Err(Error::Failed(format!("{n} requests failed"))),
    }
}

/// How many requests of this length a run has.
fn count(much: Much, len: u64) -> u64 {
    (much.run / len).clamp(64, much.run / 4096)
}

/// All cases of reads, on devices that are made once. Writes are on new ones.
fn cases(what: What, much: Much) -> Result<Vec<[Once<'static>; 2]>, Error> {
    use std::cell::RefCell;
    use std::rc::Rc;
    let kept = if what == What::Moved { 4096 } else { 0 };
    let op = if what == What::Writes { BlockOp::Write } else { BlockOp::Read };
    let geometry = through::geometry(through::data("null", much.bytes)?.1)?;
    let drive = move || -> Result<_, Error> {
        let pblk = target(much.bytes, kept, op == BlockOp::Read, |device| device)?;
        let shape = pblk.shape();
        Ok((block_layer(Inline::new(pblk, shape, DEPTH))?, shape))
    };
    let made = drive()?;
    let shape = Shape { depth: DEPTH, ..made.1 };
    let made = Rc::new(RefCell::new(made));
    let memory = match what {
        What::Moved => Some(Rc::new(RefCell::new(block_layer(InMemory::new(shape, &geometry)?)?))),
        _ => None,
    };
    let one = |blocks: u64| -> [Once<'static>; 2] {
        let len = blocks * BLOCK_BYTES;
        let (how, many) = ((op, len), count(much, len));
        let optimal: Once = match &memory {
            Some(memory) => {
                let memory = memory.clone();
                Box::new(move || run(&mut memory.borrow_mut(), &shape, how, many))
            }
            None => Box::new(move || {
                let null = NullOptions { hw_queue_depth: DEPTH, ..NullOptions::default() };
                let null = Null::new(null).map_err(refused)?;
                run(&mut block_layer(null)?, &shape, how, many)
            }),
        };
        let made = made.clone();
        let with: Once = match op {
            BlockOp::Write => Box::new(move || {
                let (mut context, shape) = drive()?;
                run(&mut context, &shape, how, many)
            }),
            _ => Box::new(move || run(&mut made.borrow_mut().0, &shape, how, many)),
        };
        [optimal, with]
    };
    Ok(SIZES.into_iter().map(one).collect())
}

/// Of each size the processor's time of a request, in ns: optimal, and with translation.
type Times = Vec<[Runs; 2]>;

fn measured(lab: &mut Lab, what: What, name: &str) -> Result<Times, Error> {
    let (bytes, run) = match what {
        What::Moved => lab.options.pick((256 << 20, 256 << 20), (64 << 20, 32 << 20)),
        // Writes are fewer than the drive has room for: nothing is collected.
        _ => lab.options.pick((2 << 30, 1 << 30), (256 << 20, 64 << 20)),
    };
    lab.watch.phase(&format!("a drive to be filled: {name}"));
    let much = Much { bytes, run };
    let mut all: Vec<Once> = cases(what, much)?.into_iter().flatten().collect();
    let described = |(i, _): (usize, &Once)| {
        let (size, who) = (SIZES[i / 2] * BLOCK_BYTES, ["optimal", "pblk"][i % 2]);
        let what = format!("{name}, {}, {who}", units::capacity(size));
        let command = format!("{} requests, {DEPTH} outstanding, one by one", count(much, size));
        Case { what, command, configuration: json!({ "bytes": size, "drive_bytes": bytes }) }
    };
    let list: Vec<Case> = all.iter().enumerate().map(described).collect();
    let turns = lab.by_turns(&list, |i| Ok((all[i]()?, None)))?;
    let runs: Vec<Runs> = turns.iter().map(|turns| turns.runs(|&ns| ns)).collect();
    Ok(runs.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect())
}

/// What of throughput translation costs, in percent.
fn cost([optimal, with]: &[Runs; 2]) -> Runs {
    optimal.with(with, |optimal, with| 100.0 * (1.0 - optimal / with))
}

/// What it takes, in ns.
fn took([optimal, with]: &[Runs; 2]) -> Runs {
    optimal.with(with, |optimal, with| with - optimal)
}

/// The rows of these figures.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let mut all = Vec::new();
    for (what, name) in WHATS {
        all.push(measured(lab, what, name)?);
    }
    let [reads, writes, moved] = &all[..] else { unreachable!("three were measured") };
    let mut rows = of_time(reads, writes);
    rows.extend(of_cost(reads, moved));
    rows.extend(of_processor(writes));
    let pictures = picture("lightnvm-overhead", &plot(reads, writes, moved));
    Ok(Findings { rows, notes: vec![], pictures: pictures.into_iter().collect() })
}

fn of_time(reads: &Times, writes: &Times) -> Vec<Row> {
    let row = |what, paper, times: &Times| {
        let ours = took(&times[0]);
        Row::band(FIGURE, what, "ns", Reference::Paper(paper), ours, 0.0..=1.0)
    };
    vec![
        row("translation of a 4 KiB read, and the drive's work", 133.0, reads),
        row("of a 4 KiB write", 308.0, writes),
    ]
}

const EACH_BLOCK: &str = "here each block of a request is translated and read by itself, so \
                          translation takes as much of each, and there is little else that a \
                          longer request takes once";

fn of_cost(reads: &Times, moved: &Times) -> Vec<Row> {
    let says = "\"The highest overhead is 16% for random 4KB reads and the lowest 1.2% for 512KB\"";
    let named = |i: usize, name: &str| (name.to_owned(), cost(&moved[i]));
    let falling = [
        named(0, "cost of random reads, data moved: 4 KiB"),
        named(2, "128 KiB"),
        named(3, "512 KiB"),
    ];
    let lean = "the paper's way without translation is the kernel's, 333 ns of it the block layer; \
                ours is shorter, so the same nanoseconds are a larger share";
    let shown = |what: &str, paper, ours| {
        Row::shown(FIGURE, what, "%", Reference::Paper(paper), ours, lean)
    };
    vec![
        Row::order(FIGURE, "%", says, falling).explained(EACH_BLOCK),
        shown("the same, 4 KiB", 16.0, cost(&moved[0])),
        shown("the same, 512 KiB", 1.2, cost(&moved[3])),
        shown("nothing moved, 4 KiB", 16.0, cost(&reads[0])),
        shown("nothing moved, 512 KiB", 1.2, cost(&reads[3])),
    ]
}

fn of_processor(writes: &Times) -> Vec<Row> {
    let points = |i: usize| {
        let a_second = RATE / (SIZES[i] * BLOCK_BYTES) as f64;
        took(&writes[i]).map(|ns| 100.0 * ns * a_second / 1e9)
    };
    let says = "\"a 6% increase in CPU usage for 4KB to 0.3% increase for 512KB IOs\"";
    let (caption, two) = (Reference::Paper(0.3), "the text has another number, and is held to");
    let pair = [("processor at 380 MB/s of writes: 4 KiB", points(0)), ("512 KiB", points(3))];
    let same = "the nanoseconds of a 4 KiB write, times a constant: judged there";
    let at_512k = "of 512 KiB: \"declining to 1.3% for 512KB\"";
    let at_4k = "the processor's time at 380 MB/s, writes of 4 KiB";
    let (six, less) = (Reference::Paper(6.0), Reference::Paper(1.3));
    vec![
        Row::shown(FIGURE, at_4k, "points", six, points(0), same),
        Row::band(FIGURE, at_512k, "points", less, points(3), 0.0..=1.0),
        Row::shown(FIGURE, "the same, by the caption", "points", caption, points(3), two),
        Row::order(FIGURE, "points", says, pair),
    ]
}

fn plot(reads: &Times, writes: &Times, moved: &Times) -> Plot {
    let line = |name: &str, times: &Times| {
        let points = SIZES.iter().zip(times);
        let points = points.map(|(&blocks, one)| ((blocks as f64).log2(), cost(one).median()));
        (name.to_owned(), points.collect())
    };
    Plot {
        caption: "What of the throughput of random requests translation and the drive's work \
                  cost, against a device without both."
            .into(),
        along: ("request", |at| units::capacity((at.exp2().round() as u64) * BLOCK_BYTES)),
        height: ("cost", |percent| format!("{percent:.0} %")),
        is_log: false,
        lines: vec![
            line("reads, data moved", moved),
            line("reads, nothing moved", reads),
            line("writes, nothing moved", writes),
        ],
    }
}
