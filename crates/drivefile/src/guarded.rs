//! One sync at a time for all who write to a file, and no error of one
//! forgotten; and damage of a place told from a disk that is away ([`away`]).
//!
//! The system tells an error of writing back once for each opening of a file,
//! and takes what it could not write for written from then on. A drive and its
//! journal share one opening: one of them would be told, and the other would
//! take for durable what is lost. Here whoever syncs is told of an error that
//! any of them met, from then on always. Nor is a file durable that somebody
//! cuts, extends, deletes or writes over meanwhile: it will not be opened again.
//!
//! Who writes over the file, as one who copies another into it, writes over the
//! pages of states, too. So each sync compares them with what was written there
//! last. Between two syncs the drive itself leaves a part of them as it is: there
//! what somebody else wrote is found, though the drive wrote after it. Not found is who
//! writes elsewhere alone, or puts back what the file was at the last sync.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::file_io::is_unreadable;
use crate::layout::{STATE_PAGES, TABLE_OFFSET};
use crate::{FileIo, away};

/// Bytes of the pages of states, which lie one behind the other, up to the descriptors.
const STATES: usize = (TABLE_OFFSET - STATE_PAGES[0]) as usize;

/// A storage of which all openers learn of each error of a sync.
pub struct Guarded {
    storage: Arc<dyn FileIo>,
    /// How long it is.
    bytes: AtomicU64,
    /// It keeps its space.
    is_preallocated: bool,
    /// The first error; held while one syncs.
    failed: Mutex<Option<io::Error>>,
    /// The pages of states, as they were written last; held while they are written or
    /// compared. None before a session's first one, and after a write that failed.
    states: Mutex<Option<Box<[u8; STATES]>>>,
}

impl Guarded {
    pub fn new(storage: Arc<dyn FileIo>) -> Guarded {
        // Where that is not told, each sync fails.
        let bytes = storage.bytes().unwrap_or(u64::MAX);
        let (bytes, failed) = (AtomicU64::new(bytes), Mutex::new(None));
        let is_preallocated = storage.is_preallocated();
        Guarded { storage, bytes, is_preallocated, failed, states: Mutex::new(None) }
    }

    /// Does what makes something durable, if all that was to be is.
    fn durably(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failed = locked(&self.failed);
        if let Some(error) = &*failed {
            return Err(again(error));
        }
        let synced = sync().and_then(|()| self.is_there()).and_then(|()| self.has_its_states());
        if let Err(e) = &synced {
            *failed = Some(again(e));
        }
        synced
    }

    /// Writes both at `offset`, one behind the other, with `write`; takes note of it where
    /// they are states.
    #[inline]
    fn noted(
        &self,
        offset: u64,
        (first, second): (&[u8], &[u8]),
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match (STATE_PAGES[0]..TABLE_OFFSET).contains(&offset) {
            true => self.note_states(offset, &[first, second].concat(), write),
            false => write(),
        }
    }

    fn note_states(
        &self,
        offset: u64,
        bytes: &[u8],
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut states = locked(&self.states);
        let known = states.take();
        write()?;
        *states = match known {
            None => self.read_states().ok(),
            Some(mut known) => {
                let at = (offset - STATE_PAGES[0]) as usize;
                known[at..at + bytes.len()].copy_from_slice(bytes);
                Some(known)
            }
        };
        Ok(())
    }

    fn read_states(&self) -> io::Result<Box<[u8; STATES]>> {
        let mut found = Box::new([0; STATES]);
        self.storage.read(STATE_PAGES[0], &mut found[..])?;
        Ok(found)
    }

    /// Fails where somebody else has written over the states, and so over the file.
    fn has_its_states(&self) -> io::Result<()> {
        let states = locked(&self.states);
        let Some(known) = &*states else { return Ok(()) };
        match self.read_states() {
            Ok(found) if found == *known => Ok(()),
            // Nor does it say who wrote what.
            Err(e) if is_unreadable(&e) => Ok(()),
            Err(e) => Err(e),
            Ok(_) => {
                let text = "somebody wrote over the file, and what was on the drive is lost: end \
                            this, and restore the file from a copy";
                Err(io::Error::other(text))
            }
        }
    }

    /// What became of a write.
    #[inline]
    fn looked_at(&self, offset: u64, len: usize, written: io::Result<()>) -> io::Result<()> {
        written.map_err(|e| match is_unreadable(&e) {
            true => away::why_unwritten(&*self.storage, (offset, len), e),
            false => e,
        })
    }

    /// Fails where somebody else has deleted it, or changed how long it is.
    fn is_there(&self) -> io::Result<()> {
        let Some(found) = self.storage.lasting_bytes()? else {
            let text = "somebody deleted the file, and what is on the drive is gone when this \
                        ends: copy what is needed before";
            return Err(io::Error::other(text));
        };
        let bytes = self.bytes.load(Ordering::Relaxed);
        if found == bytes {
            return Ok(());
        }
        let text = format!("somebody made the file {found} bytes long, and it has {bytes}");
        Err(io::Error::other(text))
    }
}

/// The same error for somebody else: what to do about it follows from its number, too.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// What a panic elsewhere leaves is as good as before.
fn locked<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileIo for Guarded {
    #[inline]
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.storage.read(offset, bytes) {
            Err(e) if is_unreadable(&e) => away::read_again(&*self.storage, offset, bytes),
            read => read,
        }
    }

    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let written = self.noted(offset, (bytes, &[]), || self.storage.write(offset, bytes));
        self.looked_at(offset, bytes.len(), written)
    }

    #[inline]
    fn write_both(&self, offset: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        let write = || self.storage.write_both(offset, first, second);
        let written = self.noted(offset, (first, second), write);
        self.looked_at(offset, first.len() + second.len(), written)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let write = || self.storage.write_durable(offset, bytes);
        self.durably(|| self.noted(offset, (bytes, &[]), write))
    }

    fn sync(&self) -> io::Result<()> {
        self.durably(|| self.storage.sync())
    }

    fn note_synced(&self) {
        self.storage.note_synced();
    }

    fn reread(&self, offset: u64, len: u64) -> io::Result<()> {
        self.storage.reread(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.is_preallocated {
            true => Ok(()),
            false => self.storage.punch(offset, len),
        }
    }

    fn is_preallocated(&self) -> bool {
        self.is_preallocated
    }

    fn bytes(&self) -> io::Result<u64> {
        self.storage.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.durably(|| {
            self.storage.set_bytes(bytes)?;
            self.bytes.store(bytes, Ordering::Relaxed);
            Ok(())
        })
    }

    fn used(&self) -> io::Result<u64> {
        self.storage.used()
    }

    fn seconds(&self) -> u32 {
        self.storage.seconds()
    }

    fn lasting_bytes(&self) -> io::Result<Option<u64>> {
        self.storage.lasting_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_told_of_an_error_is_told_the_same() {
        let full = rustix::io::Errno::NOSPC.into();
        for error in [rustix::io::Errno::IO.into(), full, io::Error::other("somebody")] {
            let told = again(&again(&error));
            assert_eq!((told.kind(), told.to_string()), (error.kind(), error.to_string()));
            assert_eq!(nvram::advice(&told), nvram::advice(&error), "{error}");
        }
    }
}
