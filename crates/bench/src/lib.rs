//! `ssdkit bench`: from the command line to the report.
//!
//! Preconditioning and reading back are always in virtual time for a drive in
//! this process: they are not measured, and drive time costs nothing. A drive
//! in a file is shut down when the bench ends or is stopped. A new drive that is
//! read is written first, unless somebody says otherwise. Fails when options
//! contradict the drive, when a request fails before anything was measured or
//! somebody stops it there, and, after the report, when a request failed or gave
//! wrong data. [`replay`] takes the requests from a trace.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use measure::units::size_binary;
use measure::{Cpu, Direction, Gc, Report, Row, SteadyState, WriteAmplification, units};
use port::{BLOCK_BYTES, BlockOp, Shape};
use report::{OutFile, Run, page};
use serde_json::{Value, json};
use workload::{Arrivals as Starts, Order, Pattern, Rate};

use crate::bursts::BurstReport;
use crate::jobs::JobReport;
use crate::ours::{Prepared, ours};
use crate::served::{channelled, served};
use crate::slowest::SlowestReport;
use drive::error::Error;
use drive::memory;
use drive::restore::Restored;
use drive::spec::{DriveConfig, DriveSpec, FileSpec};
use drive::stack::{self, needs_blocks};
use load::cpu::Mark;
use load::driver::{ClockKind, Driver};
use load::load::{Load, Pace, Played, Share};
use load::runner::{Plan, Runner, Until};
use load::tally::Tally;
use load::verify::Verifier;
use load::watch::Watch;

mod args;
mod below;
mod bursts;
mod explain;
mod jobs;
pub mod life;
mod ours;
mod outcome;
mod physics;
pub mod replay;
mod seeds;
mod served;
mod slowest;
mod spans;
pub mod stand;
mod there;
mod void;

pub use self::replay::ReplayArgs;
pub use args::{
    Arrivals, BenchArgs, BenchCommand, BurstArgs, End, Hot, Job, Precondition, Range, Rw,
};
pub use explain::{ExplainArgs, ExplainCommand, Explained, ServedArgs, explain};
pub use outcome::{OpenLoop, Outcome};
pub use void::{IN_MEMORY, reads_holes, why_void};
use void::{left_inside, saturated, void};

/// Runs, and prints the report to `out`.
pub fn run(args: &BenchCommand, out: &mut dyn Write) -> Result<(), Error> {
    match args.seeds {
        Some(seeds) => seeds::run(&args.bench, seeds, out),
        None => run_one(&args.bench, out),
    }
}

fn run_one(args: &BenchArgs, out: &mut dyn Write) -> Result<(), Error> {
    let (outcome, written) = measure_and_draw(args)?;
    outcome.print(args.json, out)?;
    written
}

/// Runs, and writes its page where one is asked for. What was measured is told, whatever
/// becomes of its page.
pub fn measure_and_draw(args: &BenchArgs) -> Result<(Outcome, Result<(), Error>), Error> {
    let args = &BenchArgs { drive: args.drive.found()?, ..args.clone() };
    args.check()?;
    let page = args.report.as_ref().map(|path| page_file(path)).transpose()?;
    let mut watch = Watch::terminal(args.max_time.map(Duration::from_nanos))?;
    let outcome = measure(args, &mut watch);
    watch.end();
    let outcome = outcome?;
    let written = page.map_or(Ok(()), |file| write_page(file, &outcome));
    Ok((outcome, written))
}

/// The file that a page goes to.
fn page_file(path: &Path) -> Result<OutFile, Error> {
    OutFile::page(path).map_err(|e| Error::Usage(format!("--report {}: {e}", path.display())))
}

/// Writes the page of a run.
fn write_page(file: OutFile, outcome: &Outcome) -> Result<(), Error> {
    let run = as_run(&file.path().display().to_string(), outcome.to_json())?;
    write_pages(file, &[run])
}

/// A report as pages and comparisons take it.
fn as_run(name: &str, report: Value) -> Result<Run, Error> {
    let run = Run::from_json(name, report);
    run.map_err(|e| Error::Failed(format!("no page can be made of it: {e}")))
}

fn write_pages(file: OutFile, runs: &[Run]) -> Result<(), Error> {
    let name = file.path().display().to_string();
    file.write(&page(runs)).map_err(|e| Error::system(&format!("write {name}"), &e))
}

/// Bytes that a run writes at most, as far as that is known.
fn most_written(args: &BenchArgs) -> u64 {
    match args.end() {
        _ if !args.is_any(|load| load.rw.writes()) => 0,
        End::Ios(ios) => ios.saturating_mul(args.most_bytes()),
        End::Time(_) => u64::MAX,
    }
}

/// Runs. A path that leads to a drive file must have been found
/// ([`DriveSpec::found`]).
pub fn measure(args: &BenchArgs, watch: &mut Watch) -> Result<Outcome, Error> {
    let began = Instant::now();
    let mut outcome = any(args, watch)?;
    outcome.report.wall_seconds = began.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Measures a drive of any kind.
fn any(args: &BenchArgs, watch: &mut Watch) -> Result<Outcome, Error> {
    match &args.drive {
        DriveSpec::Memory(spec) => {
            let args = &args.settled(true);
            let mut config = spec.resolve()?;
            config.faults = args.faults.read(args.seed)?;
            let is_written = args.precondition() != Precondition::None;
            let on_a_clock = args.clock() == ClockKind::Real;
            if !is_written && !on_a_clock && most_written(args) > memory::free() {
                memory::tell(&config);
            }
            ours(args, in_memory(config, (args.seed, on_a_clock, is_written), watch)?, watch)
        }
        DriveSpec::File(spec) => in_a_file(args, spec, watch),
        DriveSpec::Nbd(address) => served(args, address, watch),
        DriveSpec::Channel(spec) => channelled(args, spec, watch),
        DriveSpec::Null(spec) => below::null(args, spec, watch),
        DriveSpec::Storage(spec) => below::storage(args, spec, watch),
    }
}

/// A new drive in memory, of a seed. One `on_a_clock` takes all its memory now; where
/// that or all of it `is_written`, there must be so much.
fn in_memory(
    mut config: DriveConfig,
    (seed, on_a_clock, is_written): (u64, bool, bool),
    watch: &mut Watch,
) -> Result<Restored, Error> {
    if on_a_clock {
        config.set_on_a_clock();
    }
    if on_a_clock || is_written {
        memory::ask_written(&config)?;
    }
    let drive = if on_a_clock {
        watch.phase("taking memory");
        stack::build_populated(&config, seed, || watch.look(0.0))?
    } else {
        stack::build(&config, seed)?
    };
    Ok(Restored { config, seed, drive, recovery: None })
}

/// The drive in a file, where it may be written over, or nothing is on it.
fn guarded(drive: Restored, path: &str, may: bool) -> Result<Restored, Error> {
    if may || !drive.was_written() {
        return Ok(drive);
    }
    drive.put_away()?;
    Err(Error::Usage(format!(
        "this writes over what is on the drive in {path}: add --destroy if it may be lost, \
         or measure a copy in memory, ssd:{path},copy=yes"
    )))
}

/// Measures a drive file, or a copy of it in memory.
fn in_a_file(args: &BenchArgs, spec: &FileSpec, watch: &mut Watch) -> Result<Outcome, Error> {
    watch.phase("opening the drive");
    let faults = args.faults.read(args.seed)?;
    let mut open = spec.open(false)?;
    open.config.faults = faults;
    let fit = args.check_kept(&open.config.spec).and_then(|()| needs_blocks(&open.config));
    let of_file = !spec.copy && open.is_new();
    let open = open.if_fit(fit.and_then(|()| args.check_written(of_file)))?;
    if spec.copy {
        return ours(args, Restored::copied(open)?, watch);
    }
    let drive = guarded(Restored::opened(open)?, &spec.path, !args.writes() || args.destroy)?;
    ours(args, drive, watch)
}

/// What the command line asks of a drive of this shape.
pub fn pattern(args: &BenchArgs, shape: &Shape) -> Result<Pattern, Error> {
    let Range { offset, len: length } = args.range.unwrap_or(Range { offset: 0, len: shape.bytes });
    // The command line made sure that the sum is a number.
    if offset + length > shape.bytes {
        return Err(Error::Usage(format!(
            "--range ends at {}, but the drive has {}: make the range smaller",
            size_binary(offset + length),
            size_binary(shape.bytes)
        )));
    }
    if !offset.is_multiple_of(args.bs.into()) {
        return Err(Error::Usage(format!(
            "--range starts at {}, which is not a multiple of --bs: use {}",
            size_binary(offset),
            size_binary(offset - offset % u64::from(args.bs))
        )));
    }
    let order = match (args.zipf, args.hot) {
        (Some(theta), _) => Order::Zipf { theta },
        (None, Some(hot)) => Order::HotCold {
            accesses_percent: hot.accesses as u8,
            range_percent: hot.space as u8,
            placed: args.placement,
        },
        (None, None) if args.rw.is_random() => Order::Uniform,
        (None, None) => Order::Sequential,
    };
    let pattern = Pattern {
        offset,
        length,
        bs: args.bs.into(),
        varied: None,
        read_percent: args.reads() as u8,
        trim_percent: if args.rw == Rw::Trim { 100 } else { 0 },
        order,
        fua_every: args.fua_every.unwrap_or(0),
        flush_every: args.flush_every.unwrap_or(0),
    };
    let pattern = args.varied().map_or(pattern, |varied| pattern.of_sizes(varied));
    pattern.check().map_err(|e| Error::Usage(e.to_string()))?;
    Ok(pattern)
}

/// The load that the command line asks of a drive of this shape, of all cores.
pub(crate) fn load(args: &BenchArgs, shape: &Shape, pattern: &Pattern) -> Result<Load, Error> {
    let submitters = args.threads * args.blocks.cores.unwrap_or(1);
    let pace = pace(args, (0, 1))?;
    let load = Load::part(shape, pattern, pace, Share::whole(submitters), args.seed)?;
    Ok(load.in_batches(args.blocks.batch.unwrap_or(1) as usize))
}

/// When requests start of a core, of so many.
fn pace(args: &BenchArgs, (core, cores): (u64, u64)) -> Result<Pace, Error> {
    Ok(match (args.rate, args.arrivals) {
        (None, _) => Pace::Closed { depth: args.qd },
        (Some(rate), arrivals) => {
            let rate = match arrivals {
                Arrivals::Fixed => Rate::Fixed(rate),
                Arrivals::Poisson => Rate::Exponential(rate),
            };
            let starts = Starts::new(rate, args.seed, (core, cores));
            Pace::Open(starts.map_err(|e| Error::Usage(e.to_string()))?)
        }
    })
}

pub(crate) fn plan(args: &BenchArgs) -> Plan {
    let until = match args.end() {
        End::Ios(ios) => Until::Ios(ios),
        End::Time(ns) => Until::Time(ns),
    };
    Plan { ramp: args.ramp.unwrap_or(0), until, count: true }
}

/// The drive in one line.
pub(crate) fn in_few_words(config: &DriveConfig) -> Value {
    let size = |bytes: u64| units::capacity(bytes).replace(' ', "");
    let mut json = json!({
        "name": config.name,
        "size": size(config.size),
        "spare": (config.spare() * 1e4).round() / 1e4,
        "data_chunks": u64::from(config.data_chunks()) * u64::from(config.geometry.total_pus()),
    });
    if config.end() < config.size {
        json["addresses_end"] = size(config.end()).into();
    }
    json
}

/// What was measured, and how long that took.
pub(crate) struct Measured {
    pub tally: Tally,
    wall: f64,
    cpu: (f64, f64),
    /// What each of several loads did.
    pub jobs: Vec<JobReport>,
    /// What became of a trace, where one was replayed.
    pub played: Option<Played>,
}

/// A measurement under way.
pub(crate) struct Bench<'a> {
    pub args: &'a BenchArgs,
    shape: Shape,
    pub pattern: Pattern,
    pub runner: Runner<'a>,
    /// What requests of a trace are fitted to: the drive's unit, and its longest request.
    pub takes: replay::Takes,
    /// What is written before it is measured, where anything is.
    pub spans: Vec<std::ops::Range<u64>>,
    real: bool,
}

impl<'a> Bench<'a> {
    pub fn new(
        args: &'a BenchArgs,
        shape: &Shape,
        pattern: Pattern,
        watch: &'a mut Watch,
    ) -> Result<Bench<'a>, Error> {
        let is_block = |varied: workload::Varied| varied.are_multiples_of(BLOCK_BYTES as u32);
        let is_whole =
            pattern.offset.is_multiple_of(BLOCK_BYTES) && pattern.varied.is_none_or(is_block);
        let unit = if is_whole { pattern.bs } else { 512 };
        let verifier = match args.verify {
            true => Some(Verifier::new(shape, unit, args.seed)?),
            false => None,
        };
        let real = args.clock() == ClockKind::Real;
        let slowest = args.slowest.unwrap_or(0) as usize;
        let (explains, pauses) = (args.explains, args.bursts.pauses());
        let mut runner = Runner { verifier, slowest, explains, pauses, ..Runner::new(watch) };
        (runner.charts, runner.die_clocks) = (args.is_drawn(), args.draws_dies());
        let takes = replay::Takes::of(shape);
        let spans = spans::of_whole(args, shape.bytes);
        Ok(Bench { args, shape: *shape, pattern, runner, takes, spans, real })
    }

    /// Preconditions, unless that was done. A workload that writes nothing
    /// leaves the drive as it is, which is steady.
    pub fn prepare(
        &mut self,
        driver: &mut dyn Driver,
        load: &mut Load,
        prepared: Option<Prepared>,
    ) -> Result<Option<SteadyState>, Error> {
        if let Some(prepared) = prepared {
            self.runner.verifier = prepared.verifier;
            return Ok(prepared.steady);
        }
        let kind = self.args.precondition();
        if kind == Precondition::None {
            return Ok(None);
        }
        for span in &self.spans {
            self.runner.write_over(driver, &self.shape, span.clone(), self.args.seed)?;
        }
        let rounds = self.args.rounds();
        match kind {
            Precondition::Steady if self.args.rw.writes() => {
                self.runner.settle(driver, &self.shape, load, rounds).map(Some)
            }
            Precondition::Steady => Ok(Some(SteadyState::new(true, 0, rounds.window, rounds.ns))),
            _ => Ok(None),
        }
    }

    pub fn measure(&mut self, driver: &mut dyn Driver, load: &mut Load) -> Result<Measured, Error> {
        let plan = plan(self.args);
        let Some(mut trace) = self.recorded(&self.shape)? else {
            return self.timed(|runner| runner.run(driver, load, plan));
        };
        let mut measured = self.timed(|runner| runner.run(driver, &mut trace, plan))?;
        measured.played = trace.into_played();
        Ok(measured)
    }

    /// The load of a trace, where one is replayed.
    pub fn recorded(&self, shape: &Shape) -> Result<Option<Load>, Error> {
        self.args.replay.as_ref().map(|replay| replay.load(shape, self.takes)).transpose()
    }

    /// Measures what `run` does, from when it counts.
    pub fn timed(
        &mut self,
        run: impl FnOnce(&mut Runner) -> Result<Tally, Error>,
    ) -> Result<Measured, Error> {
        self.runner.watch.phase("measuring");
        let began = Mark::now();
        let tally = run(&mut self.runner)?;
        let (wall, cpu) = tally.after_ramp.unwrap_or(began).passed();
        Ok(Measured { tally, wall, cpu, jobs: Vec::new(), played: None })
    }

    /// The part of core `core` in the load of `cores`.
    pub fn load_of_core(&self, shape: &Shape, core: usize, cores: usize) -> Result<Load, Error> {
        let args = self.args;
        let (core32, cores32) = (core as u32, cores as u32);
        let share = Share {
            first: core32 * args.threads,
            count: args.threads,
            all: cores32 * args.threads,
        };
        let pace = pace(args, (core as u64, cores as u64))?;
        let load = Load::part(shape, &self.pattern, pace, share, args.seed)?;
        Ok(load.in_batches(args.blocks.batch.unwrap_or(1) as usize))
    }

    /// With verification, reads back what was written.
    pub fn read_back(
        &mut self,
        driver: &mut dyn Driver,
        mut measured: Measured,
    ) -> Result<Measured, Error> {
        let tally = &mut measured.tally;
        let is_over = tally.interrupted || tally.lost.is_some();
        if self.runner.verifier.is_none() || self.args.reads() == 100 || is_over {
            return Ok(measured);
        }
        match self.runner.read_back(driver, &self.shape, &self.pattern, self.args.seed) {
            Ok(back) => tally.add_read_back(&back),
            Err(e) if driver.is_lost() => tally.lost = Some(format!("reading back, {e}")),
            Err(e) => return Err(e),
        }
        Ok(measured)
    }

    pub fn outcome(
        &self,
        measured: Measured,
        steady: Option<SteadyState>,
        drive: Value,
        few_words: Value,
    ) -> Outcome {
        let Measured { tally, wall, cpu, jobs, played } = measured;
        let (seconds, all) = (tally.seconds(), tally.all());
        let ios = all.count();
        let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let of = |op| tally.direction(op, seconds);
        let (read, write) = (of(BlockOp::Read), of(BlockOp::Write));
        let flush = Direction { bytes: 0, ..of(BlockOp::Flush) };
        let [reads, writes, trims, flushes] =
            [BlockOp::Read, BlockOp::Write, BlockOp::Trim, BlockOp::Flush]
                .map(|op| tally.latency(op));
        let cells = [&all, reads, writes, trims, flushes].map(|one| one.cells().collect());
        let both = read.ios > 0 && write.ios > 0;
        // What a drive that is not ours wrote is not known here.
        let tells = matches!(self.args.drive, DriveSpec::Memory(_) | DriveSpec::File(_));
        let (before, after) = (&tally.before, &tally.after);
        let grew = |get: fn(&targets::WriteCounters) -> u64| get(after) - get(before);
        let bytes = read.bytes + write.bytes;
        let requests = ios + tally.failed;
        // What fails on purpose is no error; wrong data always is.
        let mut blamed = Tally::new();
        blamed.add_errors(&tally);
        if self.args.faults.are_given() {
            blamed.failed = 0;
        }
        // What was under way when a ramp was over may be programmed after it, and is not among
        // the bytes that count.
        let left = self.args.ramp.map_or(0, |_| u64::from(self.args.qd) * self.pattern.bs);
        let report = Report {
            drive: few_words,
            workload: workload(self.args, self.real),
            ios,
            bytes,
            seconds,
            wall_seconds: wall,
            void: why_void(&tally, ios, read.bytes),
            failed_requests: tally.failed,
            iops: per_second(ios),
            bytes_per_second: per_second(bytes),
            latency_ns: all.summary(),
            distribution: all.distribution(),
            percentiles_within: tally.within(),
            read: both.then_some(read),
            write: both.then_some(write),
            write_amplification: WriteAmplification::from_blocks(
                grew(|c| c.user),
                grew(|c| c.gc),
                grew(|c| c.padding),
                grew(|c| c.metadata),
            )
            .map(|all| match grew(|c| c.user) {
                user if user * BLOCK_BYTES > write.bytes + left => {
                    all.with_bytes(user, write.bytes)
                }
                _ => all,
            }),
            steady,
            gc: tells.then(|| Gc {
                collections: grew(|c| c.collections),
                moved: grew(|c| c.moved),
                copied: grew(|c| c.copied),
            }),
            erases: tells.then(|| grew(|c| c.erases)),
            self_check_ns: tally.late.percentile(99.9),
            cpu: Cpu::new(cpu.0, cpu.1, wall, ios).with_own(tally.own.ns(), ios),
            series: match tells {
                true => tally.rows(),
                false => tally.rows().into_iter().map(Row::of_an_unknown_drive).collect(),
            },
            errors: blamed.errors(),
            seed: self.args.seed,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let played = self.args.replay.as_ref().zip(played);
        let replay = played.as_ref().map(|(replay, played)| replay.report(played));
        let open_loop = match (jobs.first(), &played) {
            (Some(first), _) => first.open_loop,
            (_, Some((replay, played))) => replay.open_loop(played, requests, seconds),
            // A flush comes at its time as any other.
            _ => self.args.rate.map(|rate| OpenLoop::new(rate, requests + flush.ios, seconds)),
        };
        let slowest = SlowestReport::of(self.args.slowest, &tally, &jobs);
        Outcome {
            cells,
            open_loop,
            new_drive: false,
            raised_spare: None,
            report,
            drive,
            flush: (flush.ios > 0).then_some(flush),
            bursts: BurstReport::new(
                self.args.bursts.pauses(),
                tally.start,
                tally.bursts,
                self.pattern.bs,
            ),
            jobs,
            problem: replay
                .as_ref()
                .and_then(|replay| replay.problem.clone())
                .into_iter()
                .chain(blamed.problem())
                .reduce(|before, next| format!("{before}; {next}")),
            replay,
            interrupted: tally.interrupted,
            left_inside: tally.left,
            state_hash: None,
            block_layer: None,
            warnings: left_inside(tally.left)
                .into_iter()
                .chain(saturated(&all))
                .chain(played.and_then(|(replay, played)| replay.no_times(&played)))
                .collect(),
            recovery: None,
            injected: Vec::new(),
            parity: None,
            slc: None,
            flash_errors: None,
            array: None,
            caches: drive::caches::Caches::default(),
            power: None,
            read_only: false,
            energy: None,
            dies: None,
            chunks: None,
            causes: tally.causes,
            slowest,
            first_failed: tally.first_failed,
        }
    }
}

/// The workload's effective configuration.
fn workload(a: &BenchArgs, is_real: bool) -> Value {
    if let Some(replay) = &a.replay {
        return replay.workload(a, is_real);
    }
    let percent = a.rw.is_mixed().then(|| a.reads());
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    json!({
        "rw": a.rw.to_string(),
        "read_percent": percent,
        "bs": a.bssplit.is_none().then_some(a.bs),
        "bssplit": a.bssplit.map(|_| a.sizes()),
        "qd": a.rate.is_none().then_some(a.qd),
        "threads": a.threads,
        "rate": a.rate,
        "arrivals": a.rate.map(|_| format!("{:?}", a.arrivals).to_lowercase()),
        "clock": if is_real { "real" } else { "virtual" },
        "precondition": format!("{:?}", a.precondition()).to_lowercase(),
        "ios": if let End::Ios(n) = a.end() { Some(n) } else { None },
        "seconds": if let End::Time(ns) = a.end() { seconds(Some(ns)) } else { None },
        "ramp_seconds": seconds(a.ramp),
        "burst": a.bursts.pauses().map(|pauses| pauses.each),
        "pause_seconds": seconds(a.bursts.pause),
        "range": a.range.map(|r| json!({ "offset": r.offset, "bytes": r.len })),
        "zipf": a.zipf,
        "hot": a.hot.map(|h| json!({ "space_percent": h.space, "accesses_percent": h.accesses })),
        "placement": a.placement.then_some(true),
        "fua_every": a.fua_every,
        "flush_every": a.flush_every,
        "verify": a.verify.then_some(true),
    })
}
