//! What a drive file lies on: bytes that can be read, written, synced and
//! given back. Small, so that a test can implement it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, OFlags, SeekFrom, fadvise, fallocate, fdatasync, flock,
    major, minor, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pwritev, pwritev2};

use crate::FileError;

/// Bytes at offsets. All calls may come from two threads at once, for
/// different ranges.
pub trait FileIo: Send + Sync {
    /// Fills `bytes` from `offset` on. Past the end it fails.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes all of `first` at `offset`, and all of `second` behind it.
    fn write_both(&self, offset: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        self.write(offset, first)?;
        self.write(offset + first.len() as u64, second)
    }
    /// Writes all of `bytes` at `offset`; they are durable when it returns.
    /// Nothing else need be.
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything that was written before it was called is
    /// durable.
    fn sync(&self) -> io::Result<()>;
    /// Says that the sync that began last has returned, to a disk on which that is
    /// later.
    fn note_synced(&self) {}
    /// Forgets what is remembered of a range and is not waiting to be written:
    /// what is read of it from now on is what the disk has.
    fn reread(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Gives the space of a range back; it reads as zeros then, or as before
    /// where that cannot be.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Whether all of its space was taken before it was needed: then it is kept, and what is
    /// written again is nothing new to the file system, which makes a sync short.
    fn is_preallocated(&self) -> bool;
    /// Sets space aside for so many bytes, where the system can: then there is room for them.
    fn set_aside(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
    /// Its length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Makes it this long; what is new reads as zeros and takes no space.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Bytes that it takes on the disk.
    fn used(&self) -> io::Result<u64>;
    /// The host's time, in seconds since 1970; 0 where it is not known.
    fn seconds(&self) -> u32 {
        0
    }
    /// Its length in bytes; none of a file that was deleted, and so does not outlive whoever
    /// has it open.
    fn lasting_bytes(&self) -> io::Result<Option<u64>> {
        self.bytes().map(Some)
    }
}

/// Whether the host's disk cannot read what it has there. Of an opened drive file that is
/// damage of a place and nothing else: of all others the system says other things, or
/// [`crate::guarded`] does.
pub(crate) fn is_unreadable(e: &io::Error) -> bool {
    nvram::is_of_the_disk(e)
}

/// Fills `bytes` from `offset` on: with zeros where the disk cannot read them, for those
/// who see by a checksum what is damaged, and have another copy.
pub(crate) fn read_or_zeros(storage: &dyn FileIo, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    match storage.read(offset, bytes) {
        Err(e) if is_unreadable(&e) => {
            bytes.fill(0);
            Ok(())
        }
        read => read,
    }
}

/// The beginning of 2020: a clock that is before it was never set.
const CLOCK_SET: u32 = 1_577_836_800;

/// A locked file of the system: alone, or together with others that only read. Dropping it
/// gives the lock back, also where a process that was forked meanwhile has the file open.
#[derive(Debug)]
pub struct SystemFile {
    file: File,
    /// Opened for reading only.
    read_only: bool,
    /// The process that locked it.
    process: u32,
}

/// The longest pages that a host has.
const LARGE_PAGE: u64 = 4 << 20;

/// How often a lock is tried: a child that is just being started has a copy of
/// every lock for a moment.
const LOCK_TRIES: u32 = 5;

/// How often the system's list of locks is read: one is left out now and then
/// while others come and go.
const LOCK_LOOKS: u32 = 8;

/// How often a name is opened that gets another file meanwhile.
const OPEN_TRIES: u32 = 8;

impl SystemFile {
    /// Makes an empty file, which must not exist, and locks it.
    pub fn create(path: &Path) -> Result<SystemFile, FileError> {
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = made.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: path.into() },
            _ => named(path, "making it", &e),
        })?;
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
        Ok(SystemFile { file, read_only: false, process: process::id() })
    }

    /// Opens and locks a regular file: the one of this name when it is locked.
    pub fn open(path: &Path, read_only: bool) -> Result<SystemFile, FileError> {
        SystemFile::open_locking(path, read_only, lock)
    }

    /// The same, locking it with `lock`.
    pub(crate) fn open_locking(
        path: &Path,
        read_only: bool,
        mut lock: impl FnMut(&File, &Path, FlockOperation) -> Result<(), FileError>,
    ) -> Result<SystemFile, FileError> {
        let how = match read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        for _ in 0..OPEN_TRIES {
            let file = open_regular(path, read_only)?;
            lock(&file, path, how)?;
            let storage = SystemFile { file, read_only, process: process::id() };
            // Another file may have taken its name before it was locked.
            if storage.is_in(fs::metadata(path)) {
                return Ok(storage);
            }
        }
        Err(FileError::InUse { path: path.into(), by: "processes that replace it".into() })
    }

    /// Whether it is the file of this name.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.is_in(path.symlink_metadata())
    }

    /// Whether it is the file that this tells of.
    fn is_in(&self, about: io::Result<fs::Metadata>) -> bool {
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        self.file.metadata().is_ok_and(|own| about.is_ok_and(|b| same(own, b)))
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_a_hole(&self) -> bool {
        seek(&self.file, SeekFrom::Data(0)) == Err(Errno::NXIO)
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for SystemFile {
    fn drop(&mut self) {
        // A process that was forked shares the lock: closing alone would leave it to that,
        // and that one is not to take it from its parent.
        if self.process == process::id() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

fn open_regular(path: &Path, read_only: bool) -> Result<File, FileError> {
    // A pipe must not make the open wait.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let kind = fs::metadata(path).map_err(|e| refused(path, read_only, &e))?.file_type();
    if !kind.is_file() {
        let kind = match () {
            () if kind.is_dir() => "a directory",
            () if kind.is_block_device() => "a block device",
            () if kind.is_char_device() => "a character device",
            () if kind.is_fifo() => "a pipe",
            () => "no regular file",
        };
        return Err(FileError::NotAFile { path: path.into(), kind });
    }
    let opened = OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path);
    opened.map_err(|e| refused(path, read_only, &e))
}

/// What the system said about a file's name.
fn named(path: &Path, doing: &'static str, e: &io::Error) -> FileError {
    let reason = format!("{}: {e}", path.display());
    FileError::refused(doing, reason, e)
}

/// Why a file cannot be opened.
fn refused(path: &Path, read_only: bool, e: &io::Error) -> FileError {
    match e.kind() {
        io::ErrorKind::NotFound => FileError::Missing { path: path.into() },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
            FileError::NoWrite { path: path.into(), reason: e.to_string() }
        }
        _ => named(path, "opening it", e),
    }
}

pub(crate) fn lock(file: &File, path: &Path, how: FlockOperation) -> Result<(), FileError> {
    for attempt in 1.. {
        match flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if attempt < LOCK_TRIES => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => break,
            Err(e) => return Err(named(path, "locking it", &e.into())),
        }
    }
    let by = (0..LOCK_LOOKS).find_map(|_| holder(file));
    let by = by.map_or("another process".into(), |id| format!("process {id}"));
    Err(FileError::InUse { path: path.into(), by })
}

/// The process that holds the lock, where the system tells.
fn holder(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let (device, inode) = (about.dev(), about.ino());
    let name = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:56789 0 EOF
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "FLOCK").then_some(())?;
        let id = words.nth(2)?.parse().ok()?;
        (words.next()? == name).then_some(id)
    })
}

impl FileIo for SystemFile {
    #[inline]
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_both(&self, offset: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        match pwritev(&self.file, &[IoSlice::new(first), IoSlice::new(second)], offset) {
            Ok(written) if written == first.len() + second.len() => Ok(()),
            // Cut short, or interrupted.
            Ok(_) | Err(Errno::INTR) => {
                self.file.write_all_at(first, offset)?;
                self.file.write_all_at(second, offset + first.len() as u64)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match pwritev2(&self.file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
            Ok(written) if written == bytes.len() => Ok(()),
            // Cut short, interrupted, or not known to the file system.
            Ok(_) | Err(Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.file.write_all_at(bytes, offset)?;
                self.file.sync_data()
            }
            Err(e) => Err(e.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match fdatasync(&self.file) {
            // A file system that cannot be written has nothing to write back,
            // and may not know how.
            Err(Errno::INVAL | Errno::ROFS) if self.read_only => Ok(()),
            Err(Errno::INTR) => self.file.sync_data(),
            synced => Ok(synced?),
        }
    }

    fn reread(&self, offset: u64, len: u64) -> io::Result<()> {
        // Only whole pages are forgotten, which may be large.
        let (start, end) = (offset / LARGE_PAGE * LARGE_PAGE, offset.saturating_add(len));
        let len = end.next_multiple_of(LARGE_PAGE) - start;
        fadvise(&self.file, start, NonZeroU64::new(len), Advice::DontNeed)?;
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, offset, len).map_err(io::Error::from)
    }

    fn set_aside(&self, bytes: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            set => set.map_err(io::Error::from),
        }
    }

    fn is_preallocated(&self) -> bool {
        // Where nothing is a hole; space that was taken and never written counts as one. A file
        // system that tells of none has its space all the same, or has it not.
        let hole = seek(&self.file, SeekFrom::Hole(0));
        let has_all = |bytes| self.used().is_ok_and(|used| used >= bytes);
        self.bytes().is_ok_and(|bytes| bytes > 0 && hole == Ok(bytes) && has_all(bytes))
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.sync_all()
    }

    fn used(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn seconds(&self) -> u32 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u32::try_from(now.as_secs()).ok().filter(|&now| now >= CLOCK_SET).unwrap_or(0)
    }

    fn lasting_bytes(&self) -> io::Result<Option<u64>> {
        let about = self.file.metadata()?;
        Ok(Some(about.len()).filter(|_| about.nlink() > 0))
    }
}
