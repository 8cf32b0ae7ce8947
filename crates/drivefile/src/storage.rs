//! What a drive file lies on: bytes that can be read, written, synced and
//! given back. Small, so that a test can implement it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, major, minor};
use rustix::io::{Errno, ReadWriteFlags, pwritev, pwritev2};

use crate::FileError;

/// Bytes at offsets. All calls may come from two threads at once, for
/// different ranges.
pub trait Storage: Send + Sync {
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
    /// Gives the space of a range back; it reads as zeros then, or as before
    /// where that cannot be.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
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
}

/// The beginning of 2020: a clock that is before it was never set.
const CLOCK_SET: u32 = 1_577_836_800;

/// A locked file of the system: alone, or together with others that only read.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
}

/// How often a lock is tried: a child that is just being started has a copy of
/// every lock for a moment.
const LOCK_TRIES: u32 = 5;

impl FileStorage {
    /// Makes an empty file, which must not exist, and locks it.
    pub fn create(path: &Path) -> Result<FileStorage, FileError> {
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = made.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: path.into() },
            _ => named(path, "making it", &e),
        })?;
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
        Ok(FileStorage { file })
    }

    /// Opens and locks a regular file.
    pub fn open(path: &Path, read_only: bool) -> Result<FileStorage, FileError> {
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
        let file = opened.map_err(|e| refused(path, read_only, &e))?;
        lock(
            &file,
            path,
            match read_only {
                true => FlockOperation::NonBlockingLockShared,
                false => FlockOperation::NonBlockingLockExclusive,
            },
        )?;
        Ok(FileStorage { file })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// What the system said about a file's name.
fn named(path: &Path, doing: &'static str, e: &io::Error) -> FileError {
    let reason = format!("{}: {e}", path.display());
    FileError::System { doing, reason, kind: e.kind() }
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

fn lock(file: &File, path: &Path, how: FlockOperation) -> Result<(), FileError> {
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
    let by = holder(file).map_or("another process".into(), |id| format!("process {id}"));
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

impl Storage for FileStorage {
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
        self.file.sync_data()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, offset, len).map_err(io::Error::from)
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
}
