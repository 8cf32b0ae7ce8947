//! Where a drive's bytes are: in memory or in a drive file.
//!
//! One type for both, so that each kind of drive is compiled once. Fails as the
//! two do.

use drivefile::{DriveFile, FileError};
use flash::{Chunk, Medium, Moved, Ppa, RamMedium};
use nvram::NonVolatile;

use crate::error::Error;

/// What the journal of a protected cache lies in.
pub type Store = Box<dyn NonVolatile + Send>;

/// The medium of a drive. There is one each, so neither is boxed: that would cost
/// every access.
#[expect(clippy::large_enum_variant)]
pub enum Backing {
    /// Ends with the process.
    Memory(RamMedium),
    /// Outlives it: a drive in a file is to be ended well.
    File(DriveFile),
}

impl From<RamMedium> for Backing {
    fn from(medium: RamMedium) -> Backing {
        Backing::Memory(medium)
    }
}

impl From<DriveFile> for Backing {
    fn from(medium: DriveFile) -> Backing {
        Backing::File(medium)
    }
}

impl Backing {
    /// Whether it is there after the process has ended.
    pub fn outlives(&self) -> bool {
        matches!(self, Backing::File(_))
    }

    fn error(&self) -> Option<&FileError> {
        match self {
            Backing::Memory(_) => None,
            Backing::File(file) => file.error(),
        }
    }

    /// Why nothing more can be written, if that is so, and whether it is for
    /// want of room where its bytes are.
    pub fn fault(&self) -> Option<(Error, bool)> {
        self.error().map(|e| (Error::Failed(e.to_string()), e.is_full()))
    }

    /// What it keeps beside the drive for the journal of a protected cache.
    pub fn journal(&self) -> Option<Store> {
        match self {
            Backing::Memory(_) => None,
            Backing::File(file) => file.area().map(|area| Box::new(area) as Store),
        }
    }

    /// Puts it away after the drive on it was ended.
    pub fn put_away(self) -> Result<(), Error> {
        match self {
            Backing::Memory(_) => Ok(()),
            Backing::File(file) => file.close().map_err(|e| Error::Failed(e.to_string())),
        }
    }
}

/// What either of the two does.
macro_rules! either {
    ($backing:ident, $medium:ident => $does:expr) => {
        match $backing {
            Backing::Memory($medium) => $does,
            Backing::File($medium) => $does,
        }
    };
}

impl Medium for Backing {
    #[inline]
    fn kept(&self) -> u32 {
        either!(self, medium => medium.kept())
    }

    #[inline]
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        either!(self, medium => medium.program(at, count, data, tags))
    }

    #[inline]
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        either!(self, medium => medium.read(at, count, data, tags))
    }

    #[inline]
    fn reset(&mut self, chunk: Ppa) -> Moved {
        either!(self, medium => medium.reset(chunk))
    }

    #[inline]
    fn barrier(&mut self) -> Moved {
        either!(self, medium => medium.barrier())
    }

    #[inline]
    fn is_cached(&self) -> bool {
        either!(self, medium => medium.is_cached())
    }

    #[inline]
    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        either!(self, medium => medium.describe(chunk_index, chunk));
    }

    #[inline]
    fn note_time(&mut self, ns: u64) {
        either!(self, medium => medium.note_time(ns));
    }

    #[inline]
    fn time(&self) -> u64 {
        either!(self, medium => medium.time())
    }

    #[inline]
    fn hint(&self, at: Ppa) {
        either!(self, medium => medium.hint(at));
    }

    #[inline]
    fn hint_tag(&self, at: Ppa) {
        either!(self, medium => medium.hint_tag(at));
    }
}
