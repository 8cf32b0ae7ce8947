//! The area of a drive file for the journal of a protected cache.
//!
//! Guarantees: what was written is there when the process has ended, however
//! it ended; what was synced is there when the host has crashed. A sync is
//! that of the whole file, on a thread of its own, so that a sync of the drive
//! covers what was written here before it, and no drive waits for a disk.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use nvram::{Life, NonVolatile};

use crate::FileIo;
use crate::service::Service;

/// The area, of a file that is open.
pub struct Area {
    storage: Arc<dyn FileIo>,
    start: u64,
    len: u64,
    life: Option<Life>,
    /// `None` until the first sync.
    syncer: Option<Service<(), io::Result<()>>>,
    busy: bool,
}

impl Area {
    pub(crate) fn new(storage: Arc<dyn FileIo>, start: u64, len: u64) -> Area {
        Area { storage, start, len, life: host_life(), syncer: None, busy: false }
    }

    /// Where a range lies in the file, if it is in the area.
    fn place(&self, at: u64, len: usize) -> io::Result<u64> {
        let end = at.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of its area"));
        }
        Ok(self.start + at)
    }
}

/// The host's life: the system's number of its start, where it tells.
fn host_life() -> Option<Life> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some(number.to_le_bytes()).filter(|life| *life != Life::default())
}

impl NonVolatile for Area {
    fn bytes(&self) -> u64 {
        self.len
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.storage.read(self.place(at, bytes.len())?, bytes)
    }

    #[inline]
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.storage.write(self.place(at, bytes.len())?, bytes)
    }

    #[inline]
    fn write_both(&mut self, at: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        self.storage.write_both(self.place(at, first.len() + second.len())?, first, second)
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        let syncer = match &mut self.syncer {
            Some(syncer) => syncer,
            none => {
                let storage = Arc::clone(&self.storage);
                match Service::start("journal-sync", move |()| storage.sync()) {
                    Ok(syncer) => none.insert(syncer),
                    Err(e) => return Poll::Ready(Err(e)),
                }
            }
        };
        if !self.busy {
            self.busy = true;
            syncer.begin(());
            return Poll::Pending;
        }
        let Some(answer) = syncer.poll() else { return Poll::Pending };
        self.busy = false;
        self.storage.note_synced();
        Poll::Ready(answer.and_then(|synced| synced))
    }

    fn life(&self) -> Option<Life> {
        self.life
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheMode, DriveFile, FileError, Header};
    use flash::{Dimensions, Geometry};

    fn header(journal: u64) -> Header {
        let dim = Dimensions { chunks: 2, pages: 4, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let (profile, drive) = (String::new(), String::new());
        Header { geometry, kept: 8, cache: CacheMode::Protected { journal }, profile, drive }
    }

    #[test]
    fn it_is_its_own_outlives_the_file_and_syncs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        let file = DriveFile::create(&path, &header(64 << 10)).unwrap();
        let mut area = file.area().unwrap();
        assert_eq!(area.bytes(), 64 << 10);
        assert_eq!(nvram::peek(&mut area).unwrap().used, 0);
        area.write((64 << 10) - 4, b"last").unwrap();
        area.write(4096, b"first").unwrap();
        assert!(area.write((64 << 10) - 3, b"past").is_err());
        assert!(area.read(u64::MAX, &mut [0; 4]).is_err());
        let mut polls = 0;
        while area.sync().map(Result::unwrap).is_pending() {
            polls += 1;
            std::thread::yield_now();
        }
        assert!(polls > 0);
        drop(area);
        file.close().unwrap();
        let opened = DriveFile::open(&path, true).unwrap();
        assert_eq!(opened.medium.header(), &header(64 << 10));
        let mut area = opened.medium.area().unwrap();
        let mut bytes = [0; 5];
        area.read(4096, &mut bytes).unwrap();
        assert_eq!(&bytes, b"first");
        assert!(area.write(0, b"x").is_err(), "it was opened for reading only");
    }

    #[test]
    fn a_volatile_drive_has_none_and_sizes_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        for journal in [0, 4096, 65537] {
            let error = DriveFile::create(&path, &header(journal)).err().unwrap();
            assert!(matches!(error, FileError::Range { .. }), "{error}");
        }
        let volatile = Header { cache: CacheMode::Volatile, ..header(0) };
        assert!(DriveFile::create(&path, &volatile).unwrap().area().is_none());
    }
}
