//! Which calls that the kernel carries out others can see: files that are not mapped, sockets,
//! pipes, terminals, signals, the end of a process.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};

use super::{Descriptor, descriptor};
use crate::notify::Call;
use crate::path::{self, Follow};
use crate::supervisor::Session;
use crate::tree::Key;

/// Whether others can see what the call does, which the kernel will carry out.
pub(crate) fn is_seen(session: &mut Session, call: &Call) -> bool {
    match call.number {
        // They look, or make durable what was written.
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv => false,
        libc::SYS_preadv | libc::SYS_preadv2 | libc::SYS_fsync | libc::SYS_fdatasync => false,
        libc::SYS_sync | libc::SYS_syncfs | libc::SYS_sync_file_range => false,
        libc::SYS_msync | libc::SYS_munmap => false,
        libc::SYS_prctl | libc::SYS_umask | libc::SYS_statfs | libc::SYS_fstatfs => false,
        libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_mremap => false,
        // The first that is stored there is seen.
        libc::SYS_mmap => shares(session, call),
        libc::SYS_openat => open_is_seen(session, call, call.int(0), 1),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => open_is_seen(session, call, libc::AT_FDCWD, 0),
        // The other end sees it, and who waits for a lock.
        libc::SYS_close => close_is_seen(session, call, 0),
        libc::SYS_dup3 => close_is_seen(session, call, 1),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => close_is_seen(session, call, 1),
        libc::SYS_ioctl | libc::SYS_fcntl | libc::SYS_flock => !is_mapped(session, call),
        libc::SYS_fchown | libc::SYS_fremovexattr => !is_mapped(session, call),
        libc::SYS_utimensat if call.args[1] == 0 => !is_mapped(session, call),
        libc::SYS_utimensat | libc::SYS_fchownat => !leads_to_mapped(session, call, call.int(0), 1),
        libc::SYS_removexattr | libc::SYS_lremovexattr => {
            !leads_to_mapped(session, call, libc::AT_FDCWD, 0)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown | libc::SYS_lchown | libc::SYS_utime | libc::SYS_utimes => {
            !leads_to_mapped(session, call, libc::AT_FDCWD, 0)
        }
        _ => true,
    }
}

/// Whether the descriptor is of a mapped file: what is not kept on the drive goes with the folder.
fn is_mapped(session: &mut Session, call: &Call) -> bool {
    matches!(descriptor(session, call, call.int(0)), Ok(Descriptor::Mapped(_)))
}

/// The same of a path. Where a link in its last name is not followed, it lies beside.
fn leads_to_mapped(session: &mut Session, call: &Call, folder: i32, n: usize) -> bool {
    let path = path::argument(call, n);
    let place = path
        .and_then(|it| path::place(&mut session.processes, call.thread, folder, it, Follow::Yes));
    place.is_ok_and(|it| matches!(session.tree.find(&it.folder), Ok(Some(_))))
}

/// Whether others see that the descriptor is no more: who is at the other end, or waits for its
/// lock.
fn close_is_seen(session: &mut Session, call: &Call, n: usize) -> bool {
    match descriptor(session, call, call.int(n)) {
        Ok(Descriptor::Other(stat)) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => false,
            FileType::RegularFile | FileType::Directory => {
                let about = format!("/proc/{}/fdinfo/{}", call.thread, call.int(n));
                std::fs::read_to_string(about).is_ok_and(|text| text.contains("lock:"))
            }
            _ => true,
        },
        Ok(Descriptor::Mapped(_) | Descriptor::Unknown) => false,
        Err(_) => true,
    }
}

/// Whether an open makes, cuts, or is met by others.
fn open_is_seen(session: &mut Session, call: &Call, folder: i32, n: usize) -> bool {
    let flags = OFlags::from_bits_retain(call.args[n + 1] as u32);
    if flags.intersects(OFlags::CREATE | OFlags::TRUNC) {
        return true;
    }
    let path = path::argument(call, n);
    let file =
        path.and_then(|it| path::file(&mut session.processes, call.thread, folder, it, true));
    let stat = file.and_then(|file| fstat(&file));
    stat.is_ok_and(|it| {
        let kind = FileType::from_raw_mode(it.st_mode);
        let is_to_write = flags & OFlags::RWMODE != OFlags::RDONLY;
        match kind {
            // Who has a lease of the file hears of it.
            FileType::RegularFile => is_to_write && session.tree.get(Key::of(&it)).is_none(),
            kind => kind != FileType::Directory,
        }
    })
}

/// Whether the call makes memory that others see, too, and that the program can write to.
pub(super) fn shares(session: &mut Session, call: &Call) -> bool {
    let is_other = matches!(descriptor(session, call, call.int(4)), Ok(Descriptor::Other(_)));
    let file = session.processes.file(call.thread, call.int(4));
    is_other && file.and_then(|file| fcntl_getfl(&file)).is_ok_and(|it| it.contains(OFlags::RDWR))
}
