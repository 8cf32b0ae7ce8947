//! Measures a drive of this process: a `mem:` drive, a drive file, a copy of one.
//!
//! It is preconditioned and read back in virtual time, without a block layer, and
//! shut down at the end where it outlives the process.

use std::ops::Range;

use measure::SteadyState;
use port::{BLOCK_BYTES, Time};

use crate::args::{BenchArgs, Precondition};
use crate::below::{self, Run};
use crate::outcome::Outcome;
use crate::physics::Physics;
use crate::{Bench, in_few_words, load, pattern, spans};
use drive::array::ArrayReport;
use drive::caches::Caches;
use drive::chunk_map::ChunkMap;
use drive::energy::EnergyReport;
use drive::error::Error;
use drive::flash_errors::FlashErrors;
use drive::image;
use drive::power::PowerReport;
use drive::restore::Restored;
use drive::slc::SlcReport;
use drive::spec::{DriveConfig, DriveSpec};
use drive::stack::needs_stories;
use drive::whole::{Boxed, Drive, Ended, Observed};
use flash::Energy;
use load::driver::{ClockKind, Driver, Real, Virtual};
use load::verify::Verifier;
use load::watch::Watch;

/// Measures a drive in this process.
pub(crate) fn ours(
    args: &BenchArgs,
    mut drive: Restored,
    watch: &mut Watch,
) -> Result<Outcome, Error> {
    let new = !drive.was_written();
    if drive.drive.outlives()
        && let Err(e) = args.check_written(new)
    {
        drive.put_away()?;
        return Err(e);
    }
    let args = &args.settled(new);
    if args.slowest.is_some()
        && let Err(e) = needs_stories(&drive.config)
    {
        drive.put_away()?;
        return Err(e);
    }
    if let Err(e) = args.queues_of_jobs(&drive.config.profile.queues) {
        drive.put_away()?;
        return Err(e);
    }
    let spans = match spans::of(args, &drive.config, drive.drive.shape().bytes) {
        Ok(spans) => spans,
        Err(e) => {
            drive.put_away()?;
            return Err(e);
        }
    };
    if args.verify && !new && args.precondition() == Precondition::None {
        drive.put_away()?;
        return Err(Error::Usage(
            "--verify knows only what it wrote, and something is on this drive: add \
             --precondition seq, which writes over it first"
                .into(),
        ));
    }
    let is_part = spans::are_part(&spans, &drive.config, drive.drive.shape().bytes);
    let mut prepared = None;
    if let Some(path) = &args.snapshot {
        let ready = drive.ready();
        let Restored { config, seed, drive: whole, .. } = drive;
        let (ended, about) = prepare(args, (whole, ready), &spans, watch)?;
        watch.phase("saving the snapshot");
        let mut ended = ended;
        image::save(path, &config, seed, &mut ended)?;
        drive = Restored::recovered(config, seed, ended.shards, true)?;
        prepared = Some(about);
    }
    let recovery = drive.recovery;
    let ready = drive.ready();
    let Restored { config, drive, .. } = drive;
    let config = &config;
    let raised_spare = config.raised_spare();
    let mut outcome = Ours { args, config, watch, ready, spans, prepared }.measure(drive)?;
    outcome.recovery = recovery;
    outcome.look_for_reads_of_nothing(args, new);
    outcome.look_for_a_new_drive(args, new);
    if new && is_part {
        outcome.look_for_an_empty_rest(args);
    }
    outcome.raised_spare = raised_spare;
    Ok(outcome)
}

/// What was done to a drive before it is measured: its steady state, and who
/// verifies.
pub(crate) struct Prepared {
    pub steady: Option<SteadyState>,
    pub verifier: Option<Verifier>,
}

/// Preconditions a drive and ends it.
fn prepare(
    args: &BenchArgs,
    (drive, ready): (Boxed, Time),
    spans: &[Range<u64>],
    watch: &mut Watch,
) -> Result<(Ended, Prepared), Error> {
    let shape = drive.shape();
    let pattern = pattern(args, &shape)?;
    let mut load = load(args, &shape, &pattern)?;
    let bench = Bench::new(args, &shape, pattern, watch)?;
    let mut bench = Bench { spans: spans.to_vec(), ..bench };
    let mut driver = Virtual::at(drive, ready);
    let steady = bench.prepare(&mut driver, &mut load, None);
    let verifier = bench.runner.verifier.take();
    let (drive, now) = driver.into_drive();
    // What did not go into the flash is in no copy of it.
    let fault = drive.fault().map(|(why, _)| why);
    let ended = drive.end(now).map_err(|e| e.of_drive(&args.drive))?;
    if let Some(why) = fault {
        ended.put_away()?;
        return Err(Error::Failed(format!("{why}: a snapshot would have older data")));
    }
    Ok((ended, Prepared { steady: steady?, verifier }))
}

/// How a drive is measured.
struct Ours<'a> {
    args: &'a BenchArgs,
    config: &'a DriveConfig,
    watch: &'a mut Watch,
    ready: Time,
    spans: Vec<Range<u64>>,
    prepared: Option<Prepared>,
}

/// What the drive had taken of energy when it began to be measured, and at the end.
type Spent = Option<(Energy, Energy)>;

impl Ours<'_> {
    fn measure(self, drive: Boxed) -> Result<Outcome, Error> {
        let Ours { args, config, watch, ready, spans, prepared } = self;
        let shape = drive.shape();
        let pattern = pattern(args, &shape)?;
        let mut load = load(args, &shape, &pattern)?;
        let mut driver = Virtual::at(drive, ready);
        let mut bench = Bench { spans, ..Bench::new(args, &shape, pattern, watch)? };
        let steady = match bench.prepare(&mut driver, &mut load, prepared) {
            Ok(steady) => steady,
            Err(e) => return Err(ended(driver, &args.drive, e)),
        };
        driver.drive_mut().begin_faults();
        let before = (driver.drive().parity(), driver.drive().slc());
        let caches = Caches::of(driver.drive());
        let errors = FlashErrors::of(driver.drive());
        let array = ArrayReport::of(driver.drive());
        let rested = driver.drive().power(driver.now());
        let (mut run, mut driver, spent) = if args.blocks.are_given() {
            drop(load);
            through_layer(args, &mut bench, driver)?
        } else {
            directly(config, &mut bench, driver, &mut load)?
        };
        // Before it is read back, which is no part of the run.
        let after = (driver.drive().parity(), driver.drive().slc());
        let caches = Caches::of(driver.drive()).since(&caches);
        let errors = FlashErrors::of(driver.drive()).since(&errors);
        let array = ArrayReport::of(driver.drive()).since(&array);
        let power = driver.drive().power(driver.now());
        let pus = config.geometry.dimensions().pus;
        let chunks = args.is_drawn().then(|| ChunkMap::of(driver.drive())).flatten();
        let dies = run.measured.tally.dies.as_ref().map(|dies| (dies.busy(), pus));
        run.measured = match bench.read_back(&mut driver, run.measured) {
            Ok(measured) => measured,
            Err(e) => return Err(ended(driver, &args.drive, e)),
        };
        let (first, last) = (&run.measured.tally.before, &run.measured.tally.after);
        // A formula says nothing of a trace.
        let is_steady = steady.is_some_and(|steady| steady.reached) && args.replay.is_none();
        let user = (last.user - first.user) * BLOCK_BYTES;
        let physics = Physics::of(config, &bench.pattern, (first, last), is_steady);
        let drive = physics.tell(config.effective());
        let few_words = physics.tell_short(in_few_words(config));
        let mut outcome = run.finish(&bench, steady, drive, few_words);
        outcome.state_hash = args.json.then(|| driver.drive().state_hash());
        outcome.injected = driver.drive().injected();
        outcome.add_parity(before.0, after.0);
        outcome.slc = SlcReport::new(&config.geometry, &before.1, &after.1);
        // With a ramp they are of different spans.
        if args.ramp.is_none() {
            let all = match &outcome.parity {
                Some(parity) => parity.amplification(),
                None => outcome.report.write_amplification.as_ref().map(|wa| wa.total),
            };
            outcome.slc = outcome.slc.map(|slc| slc.beside(all, user));
        }
        outcome.caches = caches;
        outcome.flash_errors = errors;
        outcome.array = array;
        (outcome.dies, outcome.chunks) = (dies, chunks.map(|chunks| (chunks, pus)));
        outcome.read_only = driver.drive().is_read_only();
        outcome.power = PowerReport::new(rested, power);
        outcome.look_for_a_ramp(args);
        let ios = outcome.report.ios;
        outcome.energy = spent.and_then(|(rested, all)| EnergyReport::new(&rested, &all, ios));
        match put_away(driver, &args.drive) {
            Ok(warning) => outcome.warnings.extend(warning),
            Err(e) => outcome.blame_file(&e),
        }
        Ok(outcome)
    }
}

/// Measures without a block layer.
fn directly(
    config: &DriveConfig,
    bench: &mut Bench<'_>,
    mut driver: Virtual<Boxed>,
    load: &mut load::load::Load,
) -> Result<(Run, Virtual<Boxed>, Spent), Error> {
    let (args, shape) = (bench.args, driver.drive().shape());
    let mut measure = |driver: &mut dyn Driver| match args.jobs.is_empty() {
        true => bench.measure(driver, load),
        false => bench.measure_together(driver, &shape, &config.profile.queues),
    };
    let measured = match args.clock() {
        ClockKind::Virtual => measure(&mut driver),
        ClockKind::Real => {
            let mut real = Real::new(driver);
            let measured = measure(&mut real);
            driver = real.into_virtual();
            if measured.as_ref().is_ok_and(|measured| measured.tally.left > 0) {
                driver.drain();
            }
            measured
        }
    };
    match measured {
        Ok(measured) => {
            let spent = measured.tally.energy;
            Ok((Run::plain(measured), driver, Some(spent)))
        }
        Err(e) => Err(ended(driver, &args.drive, e)),
    }
}

/// Measures below a block layer.
fn through_layer(
    args: &BenchArgs,
    bench: &mut Bench<'_>,
    driver: Virtual<Boxed>,
) -> Result<(Run, Virtual<Boxed>, Spent), Error> {
    let (drive, now) = driver.into_drive();
    // Below the layer nobody can look when the ramp is over.
    let rested = args.ramp.is_none().then(|| drive.energy(now));
    let (run, drive, now) = below::ours(args, bench, drive, now)?;
    let spent = rested.map(|rested| (rested, drive.energy(now)));
    let mut driver = Virtual::at(drive, now);
    if run.accounts.as_ref().is_some_and(|all| all.gave_up()) || run.measured.tally.left > 0 {
        // What was given up is still in the drive.
        driver.drain();
    }
    Ok((run, driver, spent))
}

/// Shuts a drive down that outlives the process. Gives what went wrong with its flash;
/// fails where its file did, which is by `name`.
pub(crate) fn put_away(driver: Virtual<Boxed>, name: &DriveSpec) -> Result<Option<String>, Error> {
    let (drive, now) = driver.into_drive();
    if !drive.outlives() {
        return Ok(None);
    }
    // A failed journal has nothing to say at the end.
    let fault = drive.fault().map(|(why, _)| why);
    let ended = drive.end(now).and_then(Ended::put_away);
    match fault.or(ended.err()) {
        Some(e @ Error::File(_)) => Err(e.of_drive(name)),
        other => Ok(other.map(|e| format!("the drive was not shut down: {e}"))),
    }
}

/// Shuts a drive down after an error. Gives the error, and before it why the
/// drive failed, if it did; that alone where its file did, of which the error came.
pub(crate) fn ended(driver: Virtual<Boxed>, name: &DriveSpec, e: Error) -> Error {
    match put_away(driver, name) {
        Ok(None) => e,
        Ok(Some(why)) => Error::Failed(format!("{why}; {e}")),
        Err(of_file) => of_file,
    }
}
