//! Benches of drives below a block layer: a `mem:` drive that was lent to it,
//! the null drivers, and block devices and files.
//!
//! ```text
//!  load ─▶ Virtual ─▶ Cores ─▶ contexts        one thread, virtual time
//!  load ─▶ Clocked ─▶ context   (each core)    a thread a core, real time
//! ```
//!
//! Storage is preconditioned through a layer of its own, so that the
//! accounts are of what is measured. Fails as a bench does, and when a drive
//! would be written over that nobody said may be. A file that it made is then gone again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use blkmq::driver::any::Any;
use blkmq::driver::null::Null;
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Config, Context, Driver as BlockDriver, HardwareQueue, Monitor, Topology};
use device::hosted::{Hosted, HostedError, HostedOptions};
use device::realtime::Clock;
use hosting::hosted::HostedDriver;
use hosting::inline::Inline;
use measure::SteadyState;
use port::{BlockDone, BlockReq, Shape, Time};
use serde_json::{Value, json};
use storage::Storage;
use waiting::Strategy;

use crate::args::{BenchArgs, Precondition};
use crate::there::There;
use crate::void::{IN_MEMORY, reads_holes};
use crate::{Bench, Measured, Outcome, load, pattern, plan};
use drive::error::Error;
use drive::lent::{Figures, Lent, Owner};
use drive::memory;
use drive::spec::{NullSpec, StorageSpec};
use drive::whole::{Boxed, Drive, apart, together};
use load::blocks::{Accounts, Completion, Dispatch, Tracing};
use load::clocked::{Clocked, Ways};
use load::cores::{Cores, Route};
use load::driver::ClockKind;
use load::driver::Virtual;
use load::load::Load;
use load::pollers::{self, Pollers};
use load::real::{self, Company, Course};
use load::tally::Tally;
use load::watch::Watch;

/// What is known of a drive besides its queues.
struct Known {
    shape: Shape,
    /// What its shards tell of themselves, if they do.
    figures: Vec<Arc<Figures>>,
    /// Whether it says when it completed a request.
    tells_when: bool,
    /// Whether it goes on while nobody looks.
    runs_alone: bool,
    strategy: Strategy,
}

/// A measurement.
pub(crate) struct Run {
    pub measured: Measured,
    /// Of the block layer, if it went through one.
    pub accounts: Option<Accounts>,
    warnings: Vec<String>,
    /// Why the trace is not whole. What was measured is told all the same.
    untraced: Option<String>,
}

impl Run {
    /// One without a block layer.
    pub fn plain(measured: Measured) -> Run {
        Run { measured, accounts: None, warnings: Vec::new(), untraced: None }
    }

    pub fn finish(
        self,
        bench: &Bench,
        steady: Option<SteadyState>,
        drive: Value,
        few_words: Value,
    ) -> Outcome {
        let mut outcome = bench.outcome(self.measured, steady, drive, few_words);
        outcome.block_layer = self.accounts;
        outcome.warnings.extend(self.warnings);
        let problems = [outcome.problem.take(), self.untraced];
        let problems: Vec<String> = problems.into_iter().flatten().collect();
        outcome.problem = (!problems.is_empty()).then(|| problems.join("; "));
        outcome
    }
}

/// A bench that goes through contexts.
struct Layer<'a, 'b, Q: HardwareQueue> {
    bench: &'b mut Bench<'a>,
    contexts: Vec<Context<Q>>,
    monitor: Monitor,
    known: Known,
    /// Set where cores poll what others need, when one of them went away.
    broken: Option<Arc<AtomicBool>>,
}

impl<Q: HardwareQueue + Send> Layer<'_, '_, Q> {
    /// Measures in virtual time, on this thread, from `now` on. The drive is
    /// let go.
    fn in_virtual_time(self, now: Time) -> Result<Run, Error> {
        let Layer { bench, contexts, monitor, known, .. } = self;
        let args = bench.args;
        let mut load = load(args, &known.shape, &bench.pattern)?;
        let each = args.qd * args.threads;
        let route = if args.rate.is_some() { Route::Turns } else { Route::Places(each.into()) };
        let mut cores = Cores::new(contexts, route, load.slots(), known.figures);
        let name = args.drive.to_string();
        let when = (now, args.ramp.is_some());
        bench.runner.tracing = Tracing::new(&args.blocks, cores.contexts(), &name, when)?;
        let mut driver = Virtual::at(cores, now);
        let measured = bench.measure(&mut driver, &mut load);
        let mut cores = driver.into_drive().0;
        let mut warnings = faults(cores.contexts());
        let untraced = stop(bench.runner.tracing.take(), &mut warnings);
        let done = cores.done().to_vec();
        let accounts = Accounts::read(&args.blocks, &monitor, None, done);
        Ok(Run { measured: measured?, accounts: Some(accounts), warnings, untraced })
    }

    /// Measures on the clock, with a thread for each core, and reads back what
    /// was written if `read_back`. The contexts are let go.
    fn on_the_clock(self, clock: Clock, read_back: bool) -> Result<Run, Error> {
        let Layer { bench, mut contexts, monitor, known, broken } = self;
        let args = bench.args;
        let cores = contexts.len();
        let mut loads = match bench.recorded(&known.shape)? {
            Some(trace) => vec![trace],
            None => (0..cores)
                .map(|core| bench.load_of_core(&known.shape, core, cores))
                .collect::<Result<Vec<_>, _>>()?,
        };
        let Known { tells_when, strategy, .. } = known;
        let config = args.blocks.config()?;
        let plug = config.plug.map(|p| p.ns);
        let meanwhile = cores > 1 || known.runs_alone;
        let ways = Ways { tells_when, strategy, plug, meanwhile, figures: known.figures };
        let company = broken.map(|broken| Company::new(cores, broken));
        let course = Course { clock, ways, plan: plan(args), pin: args.blocks.pin, company };
        let name = args.drive.to_string();
        let when = (clock.now(), args.ramp.is_some());
        bench.runner.tracing = Tracing::new(&args.blocks, &mut contexts, &name, when)?;
        let mut done = Vec::new();
        let measured = bench.timed(|runner| {
            let tallies = real::run(&mut contexts, &mut loads, runner, &course)?;
            done = tallies.iter().map(|tally| tally.all().count()).collect();
            Ok(Tally::merge(tallies))
        });
        // Also when it failed: faults may be why, and the trace shall end.
        let mut warnings = faults(&mut contexts);
        let untraced = stop(bench.runner.tracing.take(), &mut warnings);
        let accounts = Accounts::read(&args.blocks, &monitor, Some(strategy), done);
        let mut measured = measured?;
        measured.played = loads.into_iter().find_map(Load::into_played);
        if read_back && let Some(first) = contexts.first_mut() {
            let slots = load::runner::DEPTH as usize;
            let mut driver = Clocked::new(first, clock, slots, course.ways.clone());
            measured = bench.read_back(&mut driver, measured)?;
        }
        Ok(Run { measured, accounts: Some(accounts), warnings, untraced })
    }
}

/// A block layer over a driver, where its tables fit. All but the bare null
/// driver, of which each instruction counts, come as one type: a bench through a
/// layer is compiled for two.
pub(crate) fn layer<D: BlockDriver>(
    config: &Config,
    driver: D,
) -> Result<blkmq::Layer<D::Queue>, Error> {
    memory::ask_queues(blkmq::tables(config, &driver)?)?;
    Ok(blkmq::build(config, driver)?)
}

/// Ends a trace, if there was one. Gives why it could not be written.
fn stop(tracing: Option<Tracing>, warnings: &mut Vec<String>) -> Option<String> {
    match tracing?.stop() {
        Ok(missing) => {
            warnings.extend(missing);
            None
        }
        Err(e) => Some(e.to_string()),
    }
}

/// What went wrong in the layer, in words.
fn faults<Q: HardwareQueue>(contexts: &mut [Context<Q>]) -> Vec<String> {
    contexts.iter_mut().flat_map(Context::faults).map(|fault| fault.to_string()).collect()
}

/// Measures a drive in this process below a block layer, from `now` on. Gives it
/// back, and its time.
pub(crate) fn ours(
    args: &BenchArgs,
    bench: &mut Bench<'_>,
    drive: Boxed,
    now: Time,
) -> Result<(Run, Boxed, Time), Error> {
    match args.clock() {
        ClockKind::Virtual => in_virtual_time(args, bench, drive, now),
        ClockKind::Real => on_the_clock(args, bench, drive, now),
    }
}

/// Requests inside a dispatch queue of a mem: drive.
fn dispatch_depth(args: &BenchArgs, shape: &Shape) -> usize {
    args.blocks.dispatch_depth.map_or(shape.depth, |n| n as usize)
}

fn in_virtual_time(
    args: &BenchArgs,
    bench: &mut Bench<'_>,
    drive: Boxed,
    now: Time,
) -> Result<(Run, Boxed, Time), Error> {
    let shape = drive.shape();
    let (lent, owner) = Lent::new(drive, Time::ZERO);
    let driver = Inline::new(lent, shape, dispatch_depth(args, &shape));
    let (contexts, monitor) = layer(&args.blocks.config()?, Any(driver))?;
    let known = known(shape, &owner, Strategy::Poll);
    let run = Layer { bench, contexts, monitor, known, broken: None }.in_virtual_time(now)?;
    let end = run.measured.tally.end.max(now);
    Ok((run, owner.take_back()?, end))
}

/// On the clock the layer's time begins at zero, where the drive's is `base`.
fn on_the_clock(
    args: &BenchArgs,
    bench: &mut Bench<'_>,
    mut drive: Boxed,
    base: Time,
) -> Result<(Run, Boxed, Time), Error> {
    drive.set_on_a_clock(true);
    let shape = drive.shape();
    if args.blocks.cores() > 1 && args.blocks.dispatch.unwrap_or_default() == Dispatch::Inline {
        match apart(drive) {
            Ok(shards) => return by_pollers(args, bench, (shards, shape), base),
            Err(whole) => drive = whole,
        }
    }
    let depth = dispatch_depth(args, &shape);
    let (lent, owner) = Lent::new(drive, base);
    let config = args.blocks.config()?;
    let (run, clock) = match args.blocks.dispatch.unwrap_or_default() {
        Dispatch::Inline => {
            let (contexts, monitor) = layer(&config, Any(Inline::new(lent, shape, depth)))?;
            let (known, clock) = (known(shape, &owner, Strategy::Poll), Clock::start());
            let layer = Layer { bench, contexts, monitor, known, broken: None };
            (layer.on_the_clock(clock, false)?, clock)
        }
        Dispatch::Hosted(queues) => {
            args.blocks.check_weights(queues)?;
            let core = args.blocks.pin.then_some(args.blocks.cores());
            let options = HostedOptions { queues, depth, core, ..HostedOptions::default() };
            let (driver, hosted) = host(lent, shape, options)?;
            let (contexts, monitor) = layer(&config, Any(driver))?;
            let known = known(shape, &owner, strategy(args, queues, false)?);
            let known = Known { runs_alone: true, ..known };
            let layer = Layer { bench, contexts, monitor, known, broken: None };
            let clock = hosted.clock();
            let run = layer.on_the_clock(clock, false);
            // After the contexts nobody waits for what is inside.
            drop(hosted.leave());
            (run?, clock)
        }
    };
    let mut drive = owner.take_back()?;
    drive.set_on_a_clock(false);
    Ok((run, drive, base + clock.now().0))
}

/// The same, each core with shards of its own.
fn by_pollers(
    args: &BenchArgs,
    bench: &mut Bench<'_>,
    (shards, shape): (Vec<Boxed>, Shape),
    base: Time,
) -> Result<(Run, Boxed, Time), Error> {
    let each = shards[0].shape();
    let (lent, owners): (Vec<_>, Vec<_>) =
        shards.into_iter().map(|shard| Lent::new(shard, base)).unzip();
    let broken = Arc::new(AtomicBool::new(false));
    let count = (args.blocks.cores(), dispatch_depth(args, &shape));
    args.blocks.check_weights(count.0)?;
    memory::ask_queues(pollers::bytes(count.0, owners.len(), each.depth))?;
    let pollers = Pollers::new(lent, (shape.bytes, each), count, &broken);
    let (contexts, monitor) = layer(&args.blocks.config()?, Any(pollers))?;
    let figures = owners.iter().map(|owner| owner.figures.clone()).collect();
    let strategy = Strategy::Poll;
    let known = Known { shape, figures, tells_when: true, runs_alone: true, strategy };
    let clock = Clock::start();
    let layer = Layer { bench, contexts, monitor, known, broken: Some(broken) };
    let run = layer.on_the_clock(clock, false)?;
    let is_late = run.accounts.as_ref().is_some_and(|all| all.gave_up());
    let mut now = base + clock.now().0;
    let mut shards = Vec::new();
    for owner in owners {
        let mut shard = owner.take_back()?;
        shard.set_on_a_clock(false);
        let mut shard = Virtual::at(shard, now);
        if is_late || run.measured.tally.left > 0 {
            // What was given up is still in it, and would complete to nobody.
            shard.drain();
        }
        let (shard, at) = shard.into_drive();
        now = now.max(at);
        shards.push(shard);
    }
    // All are at one time again.
    let shards = shards.into_iter().map(|shard| Virtual::at(shard, now).into_drive().0).collect();
    Ok((run, together(shards, shape.bytes), now))
}

fn host(
    lent: Lent,
    shape: Shape,
    options: HostedOptions,
) -> Result<(HostedDriver, Hosted<Lent>), Error> {
    memory::ask_queues(options.tables::<BlockReq, BlockDone>())?;
    HostedDriver::start(lent, shape, options).map_err(|e| match &e {
        HostedError::System { what: "core", source } => Error::Usage(format!(
            "the drive's thread cannot be pinned to processor {}, behind those of the cores: \
             {source}; lower --cores, or leave --pin out",
            options.core.unwrap_or(0)
        )),
        _ => Error::Failed(e.to_string()),
    })
}

fn known(shape: Shape, owner: &Owner, strategy: Strategy) -> Known {
    let (figures, runs_alone) = (vec![owner.figures.clone()], false);
    Known { shape, figures, tells_when: true, runs_alone, strategy }
}

/// How completions of a drive that interrupts are waited for. A core that has
/// its dispatch queue alone is woken for all that it waits for, whatever else
/// it shares; cores that share one would take each other's interrupts.
fn strategy(args: &BenchArgs, queues: usize, polled: bool) -> Result<Strategy, Error> {
    let shared = args.blocks.cores() > queues;
    match args.blocks.completion {
        Some(Completion::Poll) => Ok(Strategy::Poll),
        None if shared || polled => Ok(Strategy::Poll),
        None => Ok(Strategy::Interrupt),
        Some(_) if polled => Err(Error::Usage(
            "poll= in the drive's name is for submitters that poll: take --completion poll, \
             or poll=no"
                .into(),
        )),
        Some(_) if shared => Err(Error::Usage(format!(
            "cores that share a dispatch queue poll it: take --completion poll, or a queue for \
             each of the {} cores",
            args.blocks.cores()
        ))),
        Some(other) => Ok(other.strategy()),
    }
}

/// Measures the null driver, or the timed one.
pub(crate) fn null(args: &BenchArgs, spec: &NullSpec, watch: &mut Watch) -> Result<Outcome, Error> {
    if spec.is_timed() {
        let driver = Timed::new(TimedOptions { seed: args.seed, ..spec.options })?;
        nothing(args, Any(driver), true, watch)
    } else {
        nothing(args, Null::new(spec.untimed())?, false, watch)
    }
}

/// Measures a driver that keeps nothing.
fn nothing<D>(
    args: &BenchArgs,
    driver: D,
    tells_when: bool,
    watch: &mut Watch,
) -> Result<Outcome, Error>
where
    D: BlockDriver,
    D::Queue: Send,
{
    let shape = driver.shape();
    let pattern = pattern(args, &shape)?;
    let mut bench = Bench::new(args, &shape, pattern, watch)?;
    args.blocks.check_weights(driver.queues()[0])?;
    let polled = driver.queues()[2] > 0;
    let (mut contexts, monitor) = layer(&args.blocks.config()?, driver)?;
    contexts.iter_mut().for_each(|context| context.set_polled(polled));
    let strategy = Strategy::Poll;
    let known = Known { shape, figures: Vec::new(), tells_when, runs_alone: false, strategy };
    let layer = Layer { bench: &mut bench, contexts, monitor, known, broken: None };
    let run = match args.clock() {
        ClockKind::Virtual => layer.in_virtual_time(Time::ZERO)?,
        ClockKind::Real => layer.on_the_clock(Clock::start(), false)?,
    };
    let drive = json!({ "name": args.drive.to_string(), "size_bytes": shape.bytes });
    Ok(run.finish(&bench, None, drive.clone(), drive))
}

/// Measures a block device or file.
pub(crate) fn storage(
    args: &BenchArgs,
    spec: &StorageSpec,
    watch: &mut Watch,
) -> Result<Outcome, Error> {
    let there = There::find_or_make(spec, args.writes() && !args.destroy)?;
    let new = there.is_new;
    let args = &args.settled(new);
    let writes = args.writes();
    let cores = args.blocks.cores();
    let options = spec.options(cores, writes);
    args.blocks.check_weights(options.queues)?;
    let strategy = strategy(args, options.queues, spec.poll.is_some())?;
    let mut opened = Storage::open(&spec.path, options.clone())?;
    args.check_unit(opened.unit())?;
    let in_memory = opened.is_in_memory().then(|| IN_MEMORY.to_string());
    let shape = opened.shape();
    let pattern = pattern(args, &shape)?;
    let mut bench = Bench::new(args, &shape, pattern, watch)?;
    bench.takes.unit = bench.takes.unit.max(opened.unit());
    let ways =
        Ways { tells_when: false, strategy, plug: None, meanwhile: true, figures: Vec::new() };
    let mut steady = None;
    if args.precondition() != Precondition::None {
        steady = prepare(args, &mut bench, opened, ways)?;
        opened = Storage::open(&spec.path, options.clone())?;
    }
    // As they are before it: a run may fill them.
    let reads = args.is_any(|load| load.reads() > 0);
    let (from, len) = (bench.pattern.offset, bench.pattern.length);
    let holes = if reads { reads_holes(&spec.path, from..from + len) } else { None };
    let polls = opened.polls();
    let (mut contexts, monitor) = layer(&args.blocks.config()?, Any(opened))?;
    contexts.iter_mut().for_each(|context| context.set_polled(options.poll_queues > 0));
    let known = Known { shape, figures: Vec::new(), tells_when: false, runs_alone: true, strategy };
    let layer = Layer { bench: &mut bench, contexts, monitor, known, broken: None };
    let run = layer.on_the_clock(Clock::start(), true)?;
    let name = args.drive.to_string();
    let drive = json!({
        "name": name,
        "size_bytes": shape.bytes,
        "engine": options.engine.name(),
        "direct": options.direct,
        "queues": options.queues,
        "depth": options.depth,
        "polls": polls,
        "read_only": options.read_only,
    });
    let few_words = json!({ "name": name, "size_bytes": shape.bytes });
    let mut outcome = run.finish(&bench, steady, drive, few_words);
    there.keep();
    outcome.look_for_reads_of_nothing(args, new);
    outcome.doubt(in_memory.or(holes));
    outcome.look_for_a_new_drive(args, new);
    outcome.look_for_a_page_cache(options.direct);
    Ok(outcome)
}

/// Preconditions storage through one core of a plain layer.
fn prepare(
    args: &BenchArgs,
    bench: &mut Bench<'_>,
    opened: Storage,
    ways: Ways,
) -> Result<Option<SteadyState>, Error> {
    let shape = opened.shape();
    let mut load = load(args, &shape, &bench.pattern)?;
    let (mut contexts, _) = layer(&Config::new(Topology::new(1, 1)?), Any(opened))?;
    let slots = load.slots().max(load::runner::DEPTH as usize);
    let Some(first) = contexts.first_mut() else { return Ok(None) };
    let mut driver = Clocked::new(first, Clock::start(), slots, ways);
    bench.prepare(&mut driver, &mut load, None)
}
