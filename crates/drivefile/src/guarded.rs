//! One sync at a time for all who write to a file, and no error of one
//! forgotten; and damage of a place told from a disk that is away ([`away`]).
//!
//! The system tells an error of writing back once for each opening of a file,
//! and takes what it could not write for written from then on. A drive and its
//! journal share one opening: one of them would be told, and the other would
//! take for durable what is lost. Here whoever syncs is told of an error that
//! any of them met, from then on always. Nor is a file durable that somebody
//! cuts, extends or deletes meanwhile: it will not be opened again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::file_io::is_unreadable;
use crate::{FileIo, away};

/// A storage of which all openers learn of each error of a sync.
pub struct Guarded {
    storage: Arc<dyn FileIo>,
    /// How long it is.
    bytes: AtomicU64,
    /// The first error; held while one syncs.
    failed: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Guarded {
    pub fn new(storage: Arc<dyn FileIo>) -> Guarded {
        // Where that is not told, each sync fails.
        let bytes = storage.bytes().unwrap_or(u64::MAX);
        Guarded { storage, bytes: AtomicU64::new(bytes), failed: Mutex::new(None) }
    }

    /// Does what makes something durable, if all that was to be is.
    fn durably(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((kind, said)) = &*failed {
            return Err(io::Error::new(*kind, said.clone()));
        }
        let synced = sync().and_then(|()| self.is_there());
        if let Err(e) = &synced {
            *failed = Some((e.kind(), e.to_string()));
        }
        synced
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
        self.looked_at(offset, bytes.len(), self.storage.write(offset, bytes))
    }

    #[inline]
    fn write_both(&self, offset: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        let written = self.storage.write_both(offset, first, second);
        self.looked_at(offset, first.len() + second.len(), written)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.durably(|| self.storage.write_durable(offset, bytes))
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
        self.storage.punch(offset, len)
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
