//! The file or device below: found, opened, locked and measured.
//!
//! Guarantees: what is open for writing is ours alone among those who ask, by
//! an exclusive advisory lock on a file and an exclusive open of a device; a
//! mounted device is refused. Fails with [`OpenError`].

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::{BLOCK_BYTES, BlockReq, SECTOR_BYTES};
use rustix::fs::{self as sys, AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::options::StorageOptions;

/// File systems that keep their files in memory: tmpfs and ramfs, by the system's numbers.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// An open file or block device.
#[derive(Debug)]
pub(crate) struct Backing {
    fd: OwnedFd,
    /// Whether it is a block device.
    device: bool,
    /// Bytes used, a multiple of a logical block.
    pub bytes: u64,
    /// What offset and length of a read or write are multiples of.
    unit: u64,
    /// What the address of its buffer is a multiple of.
    memory: usize,
    /// What offset and length of a trim are multiples of.
    pub trim_unit: u64,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// Whether it went away.
    gone: AtomicBool,
}

impl Backing {
    /// Opens, locks and measures what is at `path`.
    pub fn open(path: &Path, options: &StorageOptions) -> Result<Backing, OpenError> {
        let device = is_device(path)?;
        let fd = patiently(|| open_and_lock(path, device, options))?;
        let system = |doing, source: Errno| OpenError::System {
            path: path.into(),
            doing,
            source: source.into(),
        };
        let end =
            sys::seek(&fd, sys::SeekFrom::End(0)).map_err(|e| system("finding its end", e))?;
        let bytes = end - end % BLOCK_BYTES;
        if bytes == 0 {
            return Err(OpenError::TooSmall { path: path.into(), bytes: end });
        }
        let sector = match device {
            true => {
                sys::ioctl_blksszget(&fd).map_err(|e| system("asking its sector size", e))?.into()
            }
            false => SECTOR_BYTES,
        };
        let (unit, memory) = if options.direct { direct_units(&fd, path, sector)? } else { (1, 1) };
        Ok(Backing {
            fd,
            device,
            bytes,
            unit,
            memory,
            trim_unit: if device { sector } else { 1 },
            read_only: options.read_only,
            gone: AtomicBool::new(false),
        })
    }

    /// The file, for the kernel.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether it is a file of a file system in memory.
    pub fn is_in_memory(&self) -> bool {
        let kind = sys::fstatfs(&self.fd).map(|about| about.f_type as u32);
        !self.device && kind.is_ok_and(|kind| IN_MEMORY.contains(&kind))
    }

    /// What offset and length of a read or write are multiples of, in bytes.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether the data of a read or write lies as the device wants it.
    #[inline]
    pub fn aligned(&self, req: &BlockReq) -> bool {
        (req.offset | req.len).is_multiple_of(self.unit)
            && (req.buffer.bytes().as_ptr() as usize).is_multiple_of(self.memory)
    }

    /// Whether a read or write that came so far can go on from there.
    pub fn can_go_on(&self, done: u64) -> bool {
        done.is_multiple_of(self.unit)
    }

    /// Whether it went away.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Says that it went away.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Looks whether it went away, after an error: a device that was removed
    /// has no bytes any more.
    pub fn look(&self) -> bool {
        let empty = || matches!(sys::seek(&self.fd, sys::SeekFrom::End(0)), Ok(0) | Err(_));
        if self.device && empty() {
            self.set_gone();
        }
        self.is_gone()
    }

    /// What the system says of whether its device can be polled; `None` when
    /// it says nothing, as for a file system over several devices.
    pub fn has_poll_queues(&self) -> Option<bool> {
        let stat = sys::fstat(&self.fd).ok()?;
        let number = if self.device { stat.st_rdev } else { stat.st_dev };
        let at = format!("/sys/dev/block/{}:{}", sys::major(number), sys::minor(number));
        let read = |tail: &str| fs::read_to_string(format!("{at}/{tail}")).ok();
        // A partition has the queue of its disk.
        let text = read("queue/io_poll").or_else(|| read("../queue/io_poll"))?;
        Some(text.trim() != "0")
    }
}

#[cfg(test)]
impl Backing {
    /// Any open file as if it were a drive of so many bytes.
    pub fn pretend(fd: OwnedFd, bytes: u64) -> Backing {
        let gone = AtomicBool::new(false);
        Backing {
            fd,
            device: false,
            bytes,
            unit: 1,
            memory: 1,
            trim_unit: 1,
            read_only: false,
            gone,
        }
    }
}

/// Whether there is a block device, rather than a file, at `path`.
fn is_device(path: &Path) -> Result<bool, OpenError> {
    let stat = sys::stat(path).map_err(|e| match e {
        Errno::NOENT | Errno::NOTDIR => OpenError::Missing { path: path.into() },
        e => OpenError::System { path: path.into(), doing: "looking for it", source: e.into() },
    })?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(false),
        FileType::BlockDevice => return Ok(true),
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "something else",
    };
    Err(OpenError::NotADrive { path: path.into(), kind })
}

/// Tries for a tenth of a second while it is in use: the kernel lets a ring's
/// file go a little after the ring.
fn patiently<T>(mut open: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    for _ in 0..20 {
        match open() {
            Err(OpenError::InUse { .. }) => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
    open()
}

fn open_and_lock(
    path: &Path,
    device: bool,
    options: &StorageOptions,
) -> Result<OwnedFd, OpenError> {
    let mut flags = OFlags::CLOEXEC;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if options.direct {
        flags |= OFlags::DIRECT;
    }
    let ours = !options.read_only;
    if device && ours {
        flags |= OFlags::EXCL;
    }
    let fd = sys::open(path, flags, Mode::empty()).map_err(|e| refused(path, e, options))?;
    if !device && ours {
        sys::flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            Errno::WOULDBLOCK => {
                OpenError::InUse { path: path.into(), by: "another program has locked it" }
            }
            e => OpenError::System { path: path.into(), doing: "locking it", source: e.into() },
        })?;
    }
    Ok(fd)
}

/// What it means that it does not open.
fn refused(path: &Path, e: Errno, options: &StorageOptions) -> OpenError {
    let (path, source) = (path.to_path_buf(), io::Error::from(e));
    match e {
        Errno::NOENT => OpenError::Missing { path },
        Errno::BUSY => OpenError::InUse { path, by: "it is mounted, or another program has it" },
        Errno::INVAL if options.direct => OpenError::NoDirect { path },
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY if !options.read_only => {
            OpenError::NoWrite { path, source }
        }
        _ => OpenError::System { path, doing: "opening it", source },
    }
}

/// What direct requests are aligned to: offset and length, and memory.
/// Kernels before 6.1 do not say; then a sector is right for both.
fn direct_units(fd: &OwnedFd, path: &Path, sector: u64) -> Result<(u64, usize), OpenError> {
    let asked = sys::statx(fd.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let said = asked.ok().filter(|s| s.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let Some(said) = said else { return Ok((sector, sector as usize)) };
    if said.stx_dio_offset_align == 0 {
        return Err(OpenError::NoDirect { path: path.into() });
    }
    Ok((said.stx_dio_offset_align.into(), said.stx_dio_mem_align.max(1) as usize))
}
