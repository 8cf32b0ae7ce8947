//! A drive in this process, found again on its medium: a drive file, or a
//! snapshot that is loaded into memory.
//!
//! Guarantees: a copy never changes its file, and the same copy twice is the
//! same drive, to the bit. Fails as opening and recovery do, and without
//! memory.

use std::fmt;
use std::time::{Duration, Instant};

use drivefile::{DriveFile, Opened};
use flash::{Chunk, RamMedium};
use measure::units;
use nvram::{NvRam, Started};
use port::Time;
use serde_json::{Value, json};
use targets::WriteCounters;

use crate::drive::DriveConfig;
use crate::drive::file::{OpenFile, file_error};
use crate::error::Error;
use crate::stack::{Backing, Drive, Observed, Stack, Store, Visitor, empty_journal};

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
            write!(f, ", and {gone} bytes of it gone with the host, none of them flushed")?;
        }
        Ok(())
    }
}

/// A drive, and what it is.
pub struct Restored<M: Backing> {
    /// Its configuration.
    pub config: DriveConfig,
    /// The seed of its policies.
    pub seed: u64,
    /// The drive.
    pub stack: Stack<M>,
    /// How it was found again; none of a new one.
    pub recovery: Option<Recovery>,
}

impl Restored<DriveFile> {
    /// The drive in a file.
    pub fn opened(open: OpenFile) -> Result<Restored<DriveFile>, Error> {
        let OpenFile { config, seed, opened, .. } = open;
        let Opened { medium, chunks, clean, .. } = opened;
        Restored::recovered(config, seed, medium, &chunks, clean)
    }
}

impl Restored<RamMedium> {
    /// A copy in memory of the drive in a file.
    pub fn copied(open: OpenFile) -> Result<Restored<RamMedium>, Error> {
        let OpenFile { config, seed, mut opened, .. } = open;
        let mut medium = RamMedium::new(&config.geometry, config.spec.store.kept())?;
        drivefile::load(&mut opened, &mut medium).map_err(|e| file_error(&config.name, e))?;
        let journal = match opened.medium.area() {
            Some(mut area) => {
                let copied = NvRam::copy_of(&mut area);
                let failed = |e| Error::Failed(format!("{}: its cache: {e}", config.name));
                Some(Box::new(copied.map_err(failed)?) as Store)
            }
            None => None,
        };
        let Opened { chunks, clean, .. } = opened;
        Restored::over(config, seed, medium, &chunks, clean, journal)
    }
}

impl<M: Backing> Restored<M> {
    /// The drive that a medium holds. `clean`: it had been shut down.
    pub fn recovered(
        config: DriveConfig,
        seed: u64,
        medium: M,
        chunks: &[Chunk],
        clean: bool,
    ) -> Result<Restored<M>, Error> {
        let journal = match medium.journal() {
            // One that was shut down has nothing in its journal.
            None if clean => empty_journal(&config)?,
            journal => journal,
        };
        Restored::over(config, seed, medium, chunks, clean, journal)
    }

    /// The same, with the journal of a protected cache.
    fn over(
        config: DriveConfig,
        seed: u64,
        medium: M,
        chunks: &[Chunk],
        clean: bool,
        journal: Option<Store>,
    ) -> Result<Restored<M>, Error> {
        let began = Instant::now();
        let (stack, drive, journal) = Stack::recover(&config, seed, medium, chunks, journal)?;
        let recovery = Some(Recovery { wall: began.elapsed(), drive, clean, journal });
        Ok(Restored { config, seed, stack, recovery })
    }

    /// When it is ready, in drive time.
    pub fn ready(&self) -> Time {
        self.recovery.map_or(Time::ZERO, |recovery| recovery.drive)
    }

    /// Whether anything was ever written to it.
    pub fn was_written(&self) -> bool {
        let WriteCounters { user, absorbed, .. } = match &self.stack {
            Stack::Plain(drive) => drive.counters(),
            Stack::Host(drive) => drive.counters(),
            Stack::Device(link) => link.below().counters(),
            Stack::Layered(drive) => drive.counters(),
            Stack::ProtectedHost(drive) => drive.below().counters(),
            Stack::ProtectedDevice(link) => link.below().below().counters(),
        };
        user + absorbed > 0
    }

    /// Shuts it down again.
    pub fn put_away(self) -> Result<(), Error> {
        let ready = self.ready();
        if M::OUTLIVES { self.stack.visit(PutAway(ready)) } else { Ok(()) }
    }
}

/// Shuts a drive down.
struct PutAway(Time);

impl<M: Backing> Visitor<M> for PutAway {
    type Out = Result<(), Error>;

    fn visit<D: Drive<Medium = M>>(self, drive: D) -> Self::Out {
        drive.end(self.0)?.medium.put_away()
    }
}
