//! Where a drive's bytes are: in memory or in a drive file, and maybe damaged
//! there on purpose.
//!
//! One type for all, so that each kind of drive is compiled once. Fails as the
//! two do.

use std::sync::Arc;

use drivefile::{ChangingText, DriveFile, FileError, Wakes};
use faults::{CheckedMedium, FaultyMedium, MediumRule, WrongPort};
use flash::{Chunk, Geometry, Medium, Moved, Ppa, RamMedium};
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
    /// One of them that may be damaged, and knows when it is.
    Damaged(Box<CheckedMedium<FaultyMedium<Backing>>>),
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
    /// The same, where rules may damage what is stored. It holds what `chunks`
    /// say, by [`Geometry::chunk_index`].
    pub fn damaged(self, geometry: &Geometry, chunks: &[Chunk]) -> Result<Backing, Error> {
        let faulty = FaultyMedium::new(geometry, self, &[], 0);
        let faulty = faulty.map_err(|e| Error::Failed(e.to_string()))?;
        Ok(Backing::Damaged(Box::new(CheckedMedium::over(geometry, faulty, chunks)?)))
    }

    /// From now on these rules strike, where there may be any.
    pub fn set_rules(&mut self, rules: &[MediumRule], seed: u64) -> Result<(), WrongPort> {
        match self {
            Backing::Damaged(medium) => medium.below_mut().set_rules(rules, seed),
            _ => Ok(()),
        }
    }

    /// How often each of them struck.
    pub fn struck(&self) -> Vec<u64> {
        match self {
            Backing::Damaged(medium) => medium.below().struck().collect(),
            _ => Vec::new(),
        }
    }

    /// Where the bytes are in the end.
    fn lowest(&self) -> &Backing {
        match self {
            Backing::Damaged(medium) => medium.below().below().lowest(),
            _ => self,
        }
    }

    /// The same without who damages it; what is damaged stays so.
    pub fn into_lowest(self) -> Backing {
        match self {
            Backing::Damaged(medium) => medium.into_below().into_below().into_lowest(),
            lowest => lowest,
        }
    }

    /// Whether it is there after the process has ended.
    pub fn outlives(&self) -> bool {
        matches!(self.lowest(), Backing::File(_))
    }

    /// Bytes that it takes on the disk.
    pub fn used_bytes(&self) -> Result<u64, FileError> {
        match self.lowest() {
            Backing::File(file) => file.used_bytes(),
            _ => Ok(0),
        }
    }

    /// What its file met, from which on it does not change: [`DriveFile::error`].
    pub fn error(&self) -> Option<&FileError> {
        match self.lowest() {
            Backing::File(file) => file.error(),
            _ => None,
        }
    }

    /// Why nothing more can be written, if that is so, and whether it is for
    /// want of room where its bytes are.
    pub fn fault(&self) -> Option<(Error, bool)> {
        self.error().map(|e| (Error::File(e.to_string()), e.is_full()))
    }

    /// What it keeps beside the drive for the journal of a protected cache.
    pub fn journal(&self) -> Option<Store> {
        match self.lowest() {
            Backing::File(file) => file.area().map(|area| Box::new(area) as Store),
            _ => None,
        }
    }

    /// Who is told when a sync of its file has ended; nobody of one in memory.
    pub fn wakes(&self) -> Option<Arc<Wakes>> {
        match self.lowest() {
            Backing::File(file) => file.wakes(),
            _ => None,
        }
    }

    /// Where its file says what the drive is; none of one in memory.
    pub fn text(&self) -> Result<Option<ChangingText>, FileError> {
        match self.lowest() {
            Backing::File(file) => file.text().map(Some),
            _ => Ok(None),
        }
    }

    /// Puts it away after the drive on it was ended.
    pub fn put_away(self) -> Result<(), Error> {
        match self.into_lowest() {
            Backing::File(file) => file.close().map_err(|e| Error::File(e.to_string())),
            _ => Ok(()),
        }
    }
}

/// What any of them does.
macro_rules! either {
    ($backing:ident, $medium:ident => $does:expr) => {
        match $backing {
            Backing::Memory($medium) => $does,
            Backing::File($medium) => $does,
            Backing::Damaged($medium) => $does,
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

    fn reads_nothing_at_once(&self) -> bool {
        either!(self, medium => medium.reads_nothing_at_once())
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
    fn has_news(&self) -> Option<bool> {
        either!(self, medium => medium.has_news())
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
