//! A drive in this process, found again on its medium: a drive file, or a
//! snapshot that is loaded into memory.
//!
//! Guarantees: a copy never changes its file, and the same copy twice is the
//! same drive, to the bit. Fails as opening and recovery do, and without
//! memory.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use device::Device;
use drivefile::{FileError, Opened};
use measure::units;
use nvram::{NvRam, Started};
use port::Time;
use serde_json::{Value, json};
use targets::WriteCounters;

use crate::backing::{Backing, Store};
use crate::error::Error;
use crate::memory;
use crate::spec::DriveConfig;
use crate::spec::file::{OpenFile, file_error};
use crate::stack::{self, empty_journal};
use crate::whole::{Boxed, Drive, Ended, Left, Observed, devices};

/// A recovery that took longer than this, on the wall or of drive time, is
/// told of, in ns.
const MOMENT: u64 = 10_000_000;

/// How a drive was found again.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Time on the wall.
    pub wall: Duration,
    /// Drive time.
    pub drive: Time,
    /// Whether it had been shut down.
    pub clean: bool,
    /// What its protected cache did, if it has one.
    pub journal: Option<Started>,
}

impl Recovery {
    /// Whether it took more than a moment, or something is to be told.
    pub fn took_long(&self) -> bool {
        let gone = self.journal.is_some_and(|started| started.gone > 0);
        gone || self.drive.0.max(self.wall.as_nanos() as u64) > MOMENT
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "wall_seconds": self.wall.as_secs_f64(),
            "drive_seconds": self.drive.0 as f64 / 1e9,
            "clean": self.clean,
            "written_again": self.journal.map(|started| started.entries),
            "gone_bytes": self.journal.map(|started| started.gone),
        })
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wall, drive) = (self.wall.as_nanos() as f64, self.drive.0 as f64);
        let after = if self.clean { "a clean end" } else { "a cut" };
        let (wall, drive) = (units::time_ns(wall), units::time_ns(drive));
        write!(f, "after {after}: {wall} on the wall, {drive} of drive time")?;
        let Some(Started { entries, gone, .. }) = self.journal else { return Ok(()) };
        write!(f, "; {entries} requests written again from the protected cache")?;
        if gone > 0 {
            write!(
                f,
                ", and {gone} bytes of it gone with the host or its disk, none of them flushed"
            )?;
        }
        Ok(())
    }
}

/// A drive, and what it is.
pub struct Restored {
    /// Its configuration.
    pub config: DriveConfig,
    /// The seed of its policies.
    pub seed: u64,
    /// The drive.
    pub drive: Boxed,
    /// How it was found again; none of a new one.
    pub recovery: Option<Recovery>,
}

/// Time off, in ns, after which a drive that is damaged may be so for that.
const LONG_OFF: u64 = 180 * 86_400_000_000_000;

/// Why what is on a drive file may not be found, beside that it is not there.
pub struct Doubt {
    error: Arc<OnceLock<FileError>>,
    name: String,
    can_fade: bool,
    away: u64,
}

impl Doubt {
    /// Of one that was opened.
    pub fn of(open: &OpenFile) -> Doubt {
        let OpenFile { config, away, opened, .. } = open;
        let can_fade = config.profile.reliability.errors;
        let (name, away) = (config.name.clone(), *away);
        Doubt { error: opened.medium.later_error(), name, can_fade, away }
    }

    /// What was found of it. Where its disk was away nothing is: what was not found may be
    /// there.
    pub fn found<T>(&self, found: Result<T, Error>) -> Result<T, Error> {
        match self.error.get() {
            Some(error @ FileError::Away { .. }) => Err(file_error(&self.name, error.clone())),
            _ => found.map_err(|e| self.faded(e)),
        }
    }

    /// What an error of recovery says of a drive that was off for long by the clock, if its
    /// data can fade.
    fn faded(&self, e: Error) -> Error {
        if !self.can_fade || self.away < LONG_OFF || !matches!(e, Error::Recovery { .. }) {
            return e;
        }
        let days = self.away / 86_400_000_000_000;
        Error::Failed(format!(
            "{e}; by this host's clock the drive was off for {days} days, in which data fade: if \
             the clock is wrong, set it and open the drive again"
        ))
    }
}

/// The device of a drive whose target is not of blocks, which is still to be found again.
pub struct OpenDevice {
    /// The drive's configuration.
    pub config: DriveConfig,
    /// The seed of its policies.
    pub seed: u64,
    /// The device.
    pub device: Device<Backing>,
    /// Whether it had been shut down.
    pub clean: bool,
    /// Why what is on it may not be found.
    pub doubt: Doubt,
}

impl OpenDevice {
    /// That in a file, or of a copy of it in memory.
    pub fn of(open: OpenFile, copy: bool) -> Result<OpenDevice, Error> {
        let doubt = Doubt::of(&open);
        let OpenFile { config, seed, away, mut opened, .. } = open;
        let (medium, away): (Backing, u64) = match copy {
            true => (in_memory(&config, &mut opened)?, 0),
            false => (opened.medium.into(), away),
        };
        let device = stack::old_device(&config, seed, medium, &opened.chunks, away)?;
        Ok(OpenDevice { config, seed, device, clean: opened.clean, doubt })
    }
}

/// What a file holds, in memory.
fn in_memory(config: &DriveConfig, opened: &mut Opened) -> Result<Backing, Error> {
    let mut medium = memory::medium(config, config.spec.store.kept())?;
    drivefile::load(opened, &mut medium).map_err(|e| file_error(&config.name, e))?;
    Ok(medium.into())
}

/// How a drive is found again: all of it, or what can be.
type Recover =
    fn(&DriveConfig, u64, Vec<Left>, u64, Option<Store>) -> Result<stack::Assembled, Error>;

impl Restored {
    /// The drive in a file.
    pub fn opened(open: OpenFile) -> Result<Restored, Error> {
        Restored::opened_by(stack::recover, open)
    }

    /// The same where a target is not found again of several that share it
    /// ([`stack::recover_in_part`]).
    pub fn opened_in_part(open: OpenFile) -> Result<Restored, Error> {
        Restored::opened_by(stack::recover_in_part, open)
    }

    fn opened_by(recover: Recover, open: OpenFile) -> Result<Restored, Error> {
        let doubt = Doubt::of(&open);
        let OpenFile { config, seed, away, opened, .. } = open;
        let Opened { medium, chunks, clean, .. } = opened;
        let medium = Backing::from(medium);
        let journal = medium.journal();
        let shards = vec![Left { medium, chunks }];
        let restored = Restored::over(recover, (config, seed), (shards, away), clean, journal);
        let mut restored = doubt.found(restored)?;
        if let Some(shared) = restored.drive.shared_mut() {
            shared.explain_damage(|e| doubt.faded(e));
        }
        Ok(restored)
    }

    /// A copy in memory of the drive in a file.
    pub fn copied(open: OpenFile) -> Result<Restored, Error> {
        Restored::copied_by(stack::recover, open)
    }

    /// The same where a target is not found again of several that share it
    /// ([`stack::recover_in_part`]).
    pub fn copied_in_part(open: OpenFile) -> Result<Restored, Error> {
        Restored::copied_by(stack::recover_in_part, open)
    }

    fn copied_by(recover: Recover, open: OpenFile) -> Result<Restored, Error> {
        let OpenFile { config, seed, mut opened, .. } = open;
        let medium = in_memory(&config, &mut opened)?;
        let journal = match opened.medium.area() {
            Some(mut area) => {
                let copied = NvRam::copy_of(&mut area);
                let failed = |e| Error::Failed(format!("{}: its cache: {e}", config.name));
                Some(Box::new(copied.map_err(failed)?) as Store)
            }
            None => None,
        };
        let Opened { chunks, clean, .. } = opened;
        let shards = (vec![Left { medium, chunks }], 0);
        Restored::over(recover, (config, seed), shards, clean, journal)
    }

    /// The drive whose shards were left so. `clean`: it had been shut down.
    pub fn recovered(
        config: DriveConfig,
        seed: u64,
        shards: Vec<Left>,
        clean: bool,
    ) -> Result<Restored, Error> {
        let journal = match shards.iter().find_map(|left| left.medium.journal()) {
            // One that was shut down has nothing in its journal.
            None if clean => empty_journal(&config)?,
            journal => journal,
        };
        Restored::over(stack::recover, (config, seed), (shards, 0), clean, journal)
    }

    /// The same, of shards that were off for so many ns, and with the journal of a
    /// protected cache.
    fn over(
        recover: Recover,
        (config, seed): (DriveConfig, u64),
        (shards, away): (Vec<Left>, u64),
        clean: bool,
        journal: Option<Store>,
    ) -> Result<Restored, Error> {
        let began = Instant::now();
        let (drive, ready, journal) = recover(&config, seed, shards, away, journal)?;
        let recovery = Some(Recovery { wall: began.elapsed(), drive: ready, clean, journal });
        Ok(Restored { config, seed, drive, recovery })
    }

    /// When it is ready, in drive time.
    pub fn ready(&self) -> Time {
        self.recovery.map_or(Time::ZERO, |recovery| recovery.drive)
    }

    /// Whether anything was ever written to it.
    pub fn was_written(&self) -> bool {
        let WriteCounters { user, absorbed, .. } = self.drive.counters();
        // A drive of rules counts from its start on, and writes nothing of its own before.
        let is_used = |device: &Device<Backing>| {
            device.chunks().iter().any(|chunk| chunk.programmed > 0 || chunk.wear > 0)
        };
        user + absorbed > 0 || (self.config.has_rules() && devices(&self.drive).any(is_used))
    }

    /// Shuts it down again.
    pub fn put_away(self) -> Result<(), Error> {
        let ready = self.ready();
        let Restored { config, drive, .. } = self;
        if !drive.outlives() {
            return Ok(());
        }
        drive.end(ready).and_then(Ended::put_away).map_err(|e| e.of_drive(config.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image;
    use crate::spec::DriveSpec;
    use crate::spec::file::FileSpec;
    use flash::{Chunk, ChunkState};
    use port::random::Random;
    use port::{BlockDone, BlockOp, BlockReq, Buffer, Ring, Status};

    const DAY: u64 = 86_400_000_000_000;

    /// Makes a drive in a file, of a name in memory.
    fn create(path: &str, name: &str) {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        image::create(path, &spec.resolve().unwrap(), 1, image::Making::default()).unwrap();
    }

    /// One request at `now`; gives its status and when it ended.
    fn act(drive: &mut Boxed, now: Time, op: BlockOp, offset: u64) -> (Status, Time) {
        let (mut cmds, mut done) = (Ring::new(1), Ring::<BlockDone>::new(1));
        let len = if op == BlockOp::Flush { 0 } else { 64 << 10 };
        let buffer = Buffer::zeroed(len as usize).unwrap();
        cmds.put(|| BlockReq::new(0, op, offset, len, buffer));
        drive.submit(now, &mut cmds);
        loop {
            let at = drive.next_event().expect("it is inside");
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                return (done.status, at);
            }
        }
    }

    /// Lets all happen that is under way.
    fn settle(drive: &mut Boxed) -> Time {
        let (mut done, mut now) = (Ring::new(8), Time::ZERO);
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
            now = at;
        }
        now
    }

    /// Fills a drive, and flushes.
    fn fill(mut drive: Boxed) {
        let mut now = Time::ZERO;
        for offset in (0..drive.shape().bytes).step_by(64 << 10) {
            now = act(&mut drive, now, BlockOp::Write, offset).1;
        }
        now = act(&mut drive, now, BlockOp::Flush, 0).1;
        drive.end(now).unwrap().put_away().unwrap();
    }

    /// Looks after a drive so often; gives how many chunks were refreshed, and
    /// whether all can be read.
    fn tend(mut drive: Boxed, times: u32) -> (u64, bool) {
        let mut now = settle(&mut drive);
        for _ in 0..times {
            now += DAY / 4;
            drive.tend(now);
            now = now.max(settle(&mut drive));
        }
        let mut good = true;
        for offset in (0..drive.shape().bytes).step_by(64 << 10) {
            let (status, at) = act(&mut drive, now, BlockOp::Read, offset);
            (now, good) = (at, good && status.is_ok());
        }
        (drive.counters().refreshed, good)
    }

    /// A drive that seems to have been off for ages is not there; with the right clock
    /// it is.
    #[test]
    fn what_a_wrong_clock_does_is_told_and_harms_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ssd").display().to_string();
        create(
            &path,
            "mem:tlc,size=8M,groups=2,pus=2,pages=16,errors=true,factory_bad=0,program_failure=0,\
             erase_failure=0,read_retries=0,correctable=40,retention_time=1d,retention_power=1",
        );
        let open = |days: u64| {
            let mut open = FileSpec::new(&path).open(false).unwrap();
            open.away = days * DAY;
            Restored::opened(open)
        };
        fill(open(0).unwrap().drive);
        let Err(e) = open(30 * 365) else { panic!("nothing is kept for so long") };
        assert!(e.to_string().contains("off for 10950 days"), "{e}");
        assert!(e.to_string().contains("the clock is wrong"), "{e}");
        let mut drive = open(0).unwrap().drive;
        let now = settle(&mut drive);
        assert!(act(&mut drive, now, BlockOp::Read, 0).0.is_ok());
    }

    #[test]
    fn data_age_while_a_drive_is_off_and_are_refreshed_while_it_is_idle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ssd").display().to_string();
        create(
            &path,
            "mem:tlc,size=8M,groups=2,pus=2,pages=16,errors=true,factory_bad=0,program_failure=0,\
             erase_failure=0,read_retries=0,correctable=40,retention_time=1d,retention_power=1",
        );
        let open = |days| {
            let mut open = FileSpec::new(&path).open(false).unwrap();
            open.away = days * DAY;
            Restored::opened(open).map(|found| found.drive)
        };
        fill(open(0).unwrap());
        assert_eq!(tend(open(0).unwrap(), 0), (0, true));
        // Two months at rest, looked after: written anew before they are over.
        let (refreshed, good) = tend(open(0).unwrap(), 240);
        assert!(good && refreshed > 0, "{refreshed}");
        // The same time off: too old to be read, if it is found at all.
        assert!(open(60).map_or(true, |drive| !tend(drive, 0).1));
    }

    /// What the target keeps free is not lent, in a file neither.
    #[test]
    fn a_drive_file_lends_its_slc_cache_what_one_in_memory_lends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ssd").display().to_string();
        let name = "mem:tlc,size=8M,groups=2,pus=2,pages=48,slc_cache=100%,slc_dynamic=true";
        create(&path, name);
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        let mut made = stack::build(&spec.resolve().unwrap(), 1).unwrap();
        let mut opened = Restored::opened(FileSpec::new(&path).open(false).unwrap()).unwrap().drive;
        let mut now = Time::ZERO;
        for offset in (0..made.shape().bytes).step_by(1 << 20) {
            let rows = [&made, &opened].map(|drive| drive.slc().rows);
            assert_eq!(rows[0], rows[1], "with {offset} bytes written");
            for part in (offset..offset + (1 << 20)).step_by(64 << 10) {
                let ends = [&mut made, &mut opened].map(|it| act(it, now, BlockOp::Write, part).1);
                now = ends[0].max(ends[1]);
            }
        }
        let rows = [&made, &opened].map(|drive| drive.slc().rows);
        assert!(rows[0] == rows[1] && rows[0] < made.slc().most_rows, "{rows:?}");
    }

    /// A drive file with room for just so many open chunks as the target needs, killed
    /// again and again in the midst of its writes: it is found each time, no write of it
    /// is refused, and no more chunks are open than may be.
    #[test]
    fn a_drive_file_at_its_limit_of_open_chunks_survives_kills() {
        const MOST: usize = 4 * 3 + 2;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ssd").display().to_string();
        create(
            &path,
            "mem:tlc,size=8M,groups=2,pus=2,pages=16,unreadable=20,open_chunks=14,\
             open_chunks_pu=4",
        );
        let (mut random, mut erases) = (Random::new(5, 1), 0);
        for kill in 0..40 {
            let open = FileSpec::new(&path).open(false).unwrap();
            let is_open = |chunk: &&Chunk| chunk.state == ChunkState::Open;
            let open_before = open.opened.chunks.iter().filter(is_open).count();
            let mut drive = Restored::opened(open).unwrap().drive;
            let mut now = settle(&mut drive);
            let parts = drive.shape().bytes >> 16;
            for i in 0..1 + random.below(60) {
                let at = if kill == 0 { i % parts } else { random.below(parts) };
                let (status, end) = act(&mut drive, now, BlockOp::Write, at << 16);
                assert!(status.is_ok(), "{status}");
                now = end;
                let open = drive.lower(0).device().chunks().iter().filter(is_open);
                assert!(open.count() <= MOST.max(open_before), "kill {kill}");
            }
            assert_eq!(drive.counters().retired, 0);
            erases = drive.counters().erases;
            // Dropped as it is.
        }
        assert!(erases > 20, "{erases}");
    }

    #[test]
    fn what_a_journal_had_is_not_written_by_the_user_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ssd").display().to_string();
        create(&path, "mem:tlc,size=64M,groups=2,pus=2,pages=64,cache=protected");
        let open = || Restored::opened(FileSpec::new(&path).open(false).unwrap()).unwrap();
        let (mut drive, mut now) = (open().drive, Time::ZERO);
        for i in 0..16 {
            now = act(&mut drive, now, BlockOp::Write, i * (64 << 10)).1;
        }
        settle(&mut drive);
        assert_eq!(drive.counters().user, 256);
        drop(drive);
        for entries in [16, 0] {
            let again = open();
            assert_eq!(again.recovery.unwrap().journal.unwrap().entries, entries);
            let counters = again.drive.counters();
            assert_eq!((counters.user, counters.absorbed), (256, 0), "{counters:?}");
            // Shut down, for only the target's root says which those were.
            again.put_away().unwrap();
        }
    }

    #[test]
    fn time_off_counts_from_the_last_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ssd").display().to_string();
        create(&path, "mem:null,size=8M");
        let mut open = FileSpec::new(&path).open(true).unwrap();
        open.count_time_off();
        assert_eq!(open.away, 0, "it was never used");
        for (ago, away) in [(0, 0..60), (1000, 1000..1060)] {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
            open.opened.last_used = Some(now - ago);
            open.count_time_off();
            assert!(away.contains(&(open.away / 1_000_000_000)), "{}", open.away);
        }
        // A clock that was set back.
        open.opened.last_used = Some(u64::from(u32::MAX));
        open.count_time_off();
        assert_eq!(open.away, 0);
    }
}
