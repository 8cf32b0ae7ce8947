//! A drive on a stand: for whoever measures it more than once, as a standard test does.
//!
//! Guarantees: what writes over something needs the same leave as a bench; a drive in
//! this process is prepared in virtual time, whatever it is measured in; one in a file is
//! shut down at the end, whatever happened; a file that was made for a test that fails goes
//! again. Storage is driven from one core. Fails as
//! opening a drive for a bench does.

use blkmq::{Config, Topology};
use device::realtime::Clock;
use port::{BLOCK_BYTES, SECTOR_BYTES, Shape};
use serde_json::{Value, json};
use storage::Storage;
use waiting::Strategy;

use crate::below::layer;
use crate::ours::{ended, put_away};
use crate::there::There;
use crate::{guarded, in_few_words, in_memory};
use blkmq::driver::any::Any;
use drive::error::Error;
use drive::restore::Restored;
use drive::say::say;
use drive::spec::{DriveConfig, DriveSpec, FileSpec, StorageSpec};
use drive::stack::{needs_blocks, needs_stories};
use drive::whole::Boxed;
use load::channel::Channelled;
use load::clocked::{Clocked, Ways};
use load::driver::{ClockKind, Driver, Real, Virtual};
use load::runner;
use load::served::{Remote, Served};
use load::watch::Watch;

/// Which drive, and what may be done to it.
#[derive(Clone, Debug)]
pub struct StandArgs {
    /// The drive, of which a path to a drive file was found ([`DriveSpec::found`]).
    pub drive: DriveSpec,
    /// What random numbers of its policies come from.
    pub seed: u64,
    /// Whether anything is written to it.
    pub writes: bool,
    /// Whether what is on it may be lost.
    pub destroy: bool,
    /// In whose time it is measured; by default virtual for a drive of this process.
    pub clock: Option<ClockKind>,
    /// Requests outside at most, of storage.
    pub depth: usize,
    /// The longest of them, in bytes; 0 for the longest that the drive takes.
    pub most: u64,
}

/// What is known of a drive on a stand.
#[derive(Clone, Debug)]
pub struct About {
    /// Its effective configuration.
    pub drive: Value,
    /// The same in few words.
    pub few_words: Value,
    /// What a reader must know of it.
    pub notes: Vec<String>,
    /// Whether nothing was ever written to it, as far as that is known.
    pub is_new: bool,
    /// Whether it tells what it wrote, collected, and read in vain.
    pub tells: bool,
    /// Why it cannot tell where the time of its requests goes, if it cannot.
    pub tells_no_stories: Option<String>,
    /// Whether it is a drive of this process.
    pub is_ours: bool,
    /// Whether its requests go through the system's page cache.
    pub is_cached: bool,
    /// Whether it is a file that lies in memory.
    pub is_in_memory: bool,
    /// Whether it takes trims, as far as that is known.
    pub takes_trims: bool,
    /// Whether requests may come when they are due, and of several loads.
    pub takes_arrivals: bool,
    /// Bytes of the smallest request, and of the largest.
    pub sizes: (u64, u64),
    /// Bytes of the write buffer of its target, and of a chunk of each of its parallel
    /// units; none where nobody tells.
    pub inside: Option<(u64, u64)>,
    /// In whose time it is measured.
    pub clock: ClockKind,
}

/// Who moves its requests.
enum Under<'a> {
    /// A drive of this process; none only while it is on a clock.
    Ours(Option<Virtual<Boxed>>),
    Other(&'a mut dyn Driver),
}

/// A drive on a stand.
pub struct Stand<'a> {
    under: Under<'a>,
    /// Its outside.
    pub shape: Shape,
    /// What is known of it.
    pub about: About,
}

impl Stand<'_> {
    /// What drives it while it is prepared: in virtual time where it can be.
    ///
    /// # Panics
    /// While it is measured.
    pub fn driver(&mut self) -> &mut dyn Driver {
        match &mut self.under {
            Under::Ours(ours) => ours.as_mut().expect("it is not being measured"),
            Under::Other(other) => *other,
        }
    }

    /// Does `run` with what drives it while it is measured. Where that fails, what is
    /// inside ends, and is dropped.
    pub fn measured<T, E>(
        &mut self,
        run: impl FnOnce(&mut dyn Driver) -> Result<T, E>,
    ) -> Result<T, E> {
        let Under::Ours(ours) = &mut self.under else { return run(self.driver()) };
        if self.about.clock == ClockKind::Virtual {
            return run(self.driver());
        }
        let mut real = Real::new(ours.take().expect("it is not being measured"));
        let result = run(&mut real);
        let mut back = real.into_virtual();
        if result.is_err() {
            back.drain();
        }
        *ours = Some(back);
        result
    }
}

/// What a test gave, and whether the file that the drive is in took all of it.
pub type Tested<T> = (T, Result<(), Error>);

/// Puts a drive on a stand for `test`.
pub fn on_a_stand<T>(
    args: &StandArgs,
    watch: &mut Watch,
    test: impl FnOnce(&mut Stand, &mut Watch) -> Result<T, Error>,
) -> Result<Tested<T>, Error> {
    let is_ours = matches!(args.drive, DriveSpec::Memory(_) | DriveSpec::File(_));
    if !is_ours && args.clock == Some(ClockKind::Virtual) {
        let text = "--clock virtual needs a drive in this process: take mem: or a drive file";
        return Err(Error::Usage(text.into()));
    }
    let result = match &args.drive {
        DriveSpec::Memory(spec) => {
            let config = spec.resolve()?;
            let on_a_clock = args.clock == Some(ClockKind::Real);
            let drive = in_memory(config, (args.seed, on_a_clock, true), watch)?;
            return ours(args, drive, watch, test);
        }
        DriveSpec::File(spec) => return ours(args, of_file(args, spec)?, watch, test),
        DriveSpec::Nbd(address) => {
            check_served(args)?;
            served(args, Served::connect(address, watch)?, watch, test)
        }
        DriveSpec::Channel(spec) => {
            check_served(args)?;
            let depth = u32::try_from(args.depth).unwrap_or(u32::MAX).max(runner::DEPTH);
            served(args, Channelled::open(spec, (depth, args.most), watch)?, watch, test)
        }
        DriveSpec::Storage(spec) => on_storage(args, spec, watch, test),
        DriveSpec::Null(_) => Err(Error::Usage(
            "a null: drive keeps nothing and never fills: take mem:, a drive file, a device or \
             a file"
                .into(),
        )),
    };
    Ok((result?, Ok(())))
}

fn of_file(args: &StandArgs, spec: &FileSpec) -> Result<Restored, Error> {
    let open = spec.open(false)?;
    let fit = needs_blocks(&open.config);
    let open = open.if_fit(fit)?;
    if spec.copy {
        return Restored::copied(open);
    }
    guarded(Restored::opened(open)?, &spec.path, !args.writes || args.destroy)
}

fn about_ours(args: &StandArgs, config: &DriveConfig, drive: &Boxed, is_new: bool) -> About {
    let shape = drive.shape();
    let least = if u64::from(shape.kept) == BLOCK_BYTES { SECTOR_BYTES } else { 4096 };
    let chunks = u64::from(config.above.total_pus()) * u64::from(config.above.chunk_blocks());
    About {
        drive: config.effective(),
        few_words: in_few_words(config),
        notes: config.raised_spare().map(|why| format!("spare {why}")).into_iter().collect(),
        is_new,
        tells: true,
        tells_no_stories: match args.clock {
            Some(ClockKind::Real) => Some("it tells of drive time: take --clock virtual".into()),
            _ => needs_stories(config).err().map(|e| e.to_string()),
        },
        is_ours: true,
        is_cached: false,
        is_in_memory: false,
        takes_trims: true,
        takes_arrivals: true,
        sizes: (least, shape.max_bytes),
        inside: Some((drive.memory().write_buffer, chunks * BLOCK_BYTES))
            .filter(|&(buffer, _)| buffer > 0),
        clock: args.clock.unwrap_or(ClockKind::Virtual),
    }
}

fn ours<T>(
    args: &StandArgs,
    drive: Restored,
    watch: &mut Watch,
    test: impl FnOnce(&mut Stand, &mut Watch) -> Result<T, Error>,
) -> Result<Tested<T>, Error> {
    let (is_new, ready) = (!drive.was_written(), drive.ready());
    let Restored { config, drive, .. } = drive;
    let shape = drive.shape();
    let about = about_ours(args, &config, &drive, is_new);
    let under = Under::Ours(Some(Virtual::at(drive, ready)));
    let mut stand = Stand { under, shape, about };
    let result = test(&mut stand, watch);
    let Under::Ours(Some(driver)) = stand.under else { unreachable!("it was put back") };
    match result {
        Ok(result) => {
            let put_away = put_away(driver, &args.drive);
            let warn = |warning: Option<String>| {
                warning.into_iter().for_each(|why| say(format!("warning: {why}")));
            };
            Ok((result, put_away.map(warn)))
        }
        Err(e) => Err(ended(driver, &args.drive, e)),
    }
}

/// What is known of a drive that is not of this process.
fn about_another(args: &StandArgs, shape: &Shape) -> About {
    let drive = json!({ "name": args.drive.to_string(), "size_bytes": shape.bytes });
    About {
        few_words: drive.clone(),
        drive,
        notes: Vec::new(),
        is_new: false,
        tells: false,
        tells_no_stories: Some(
            "only drives of this process tell: take mem: or a drive file".into(),
        ),
        is_ours: false,
        is_cached: false,
        is_in_memory: false,
        takes_trims: true,
        takes_arrivals: true,
        sizes: (SECTOR_BYTES, shape.max_bytes),
        inside: None,
        clock: ClockKind::Real,
    }
}

fn check_served(args: &StandArgs) -> Result<(), Error> {
    if args.writes && !args.destroy {
        return Err(Error::Usage(format!(
            "this writes over what is on {}, and nobody here knows what that is: add --destroy if \
             it may be lost",
            args.drive
        )));
    }
    Ok(())
}

fn served<T>(
    args: &StandArgs,
    mut driver: impl Remote,
    watch: &mut Watch,
    test: impl FnOnce(&mut Stand, &mut Watch) -> Result<T, Error>,
) -> Result<T, Error> {
    let offer = driver.offer();
    if args.writes && offer.is_read_only {
        return Err(Error::Usage(
            "this server can only be read, and this writes: have it serve a drive that can be \
             written"
                .into(),
        ));
    }
    let shape = driver.shape();
    let about = About {
        takes_trims: !offer.lacks.trims,
        takes_arrivals: false,
        sizes: (offer.unit.max(SECTOR_BYTES), offer.most.min(shape.max_bytes)),
        ..about_another(args, &shape)
    };
    let result = test(&mut Stand { under: Under::Other(&mut driver), shape, about }, watch)?;
    // What was measured is kept, whatever becomes of the connection.
    if let Err(why) = driver.close() {
        say(format!("warning: {why}"));
    }
    Ok(result)
}

fn on_storage<T>(
    args: &StandArgs,
    spec: &StorageSpec,
    watch: &mut Watch,
    test: impl FnOnce(&mut Stand, &mut Watch) -> Result<T, Error>,
) -> Result<T, Error> {
    if args.writes && spec.read_only {
        return Err(Error::Usage("read_only=yes takes no writes, and this writes".into()));
    }
    let there = There::find_or_make(spec, args.writes && !args.destroy)?;
    let opened = Storage::open(&spec.path, spec.options(1, args.writes))?;
    let shape = blkmq::Driver::shape(&opened);
    let about = About {
        is_new: there.is_new,
        is_cached: !spec.direct,
        is_in_memory: opened.is_in_memory(),
        sizes: (opened.unit().max(SECTOR_BYTES), shape.max_bytes),
        ..about_another(args, &shape)
    };
    let strategy = if spec.poll.is_some() { Strategy::Poll } else { Strategy::Interrupt };
    let ways =
        Ways { tells_when: false, strategy, plug: None, meanwhile: true, figures: Vec::new() };
    let (mut contexts, _) = layer(&Config::new(Topology::new(1, 1)?), Any(opened))?;
    contexts.iter_mut().for_each(|context| context.set_polled(spec.poll.is_some()));
    let Some(first) = contexts.first_mut() else {
        return Err(Error::Failed("the block layer has no core".into()));
    };
    let slots = args.depth.max(runner::DEPTH as usize);
    let mut driver = Clocked::new(first, Clock::start(), slots, ways);
    let result = test(&mut Stand { under: Under::Other(&mut driver), shape, about }, watch)?;
    there.keep();
    Ok(result)
}
