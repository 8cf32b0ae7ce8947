//! The program's calls, by kind. What a call on mapped files does the supervisor does itself; an
//! error is then the kernel's own. What is not mapped the kernel does ([`Reply::Continue`]).

mod copies;
mod data;
mod effects;
mod exec;
mod mapped;
mod modes;
mod names;
mod open;
mod room;
mod sync;

use std::os::fd::OwnedFd;

use files::Inode;
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use rustix::io::Errno;

use crate::notify::{Call, Reply};
use crate::supervisor::Session;
use crate::tree::Key;

pub(crate) use effects::is_seen;
pub(crate) use mapped::{close_mapped, tell_mapped};

pub(crate) type Carried = Result<Reply, Errno>;

/// Carries a call out, or leaves it to the kernel.
pub(crate) fn carry_out(session: &mut Session, call: &Call) -> Reply {
    let carried = match call.number {
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev => data::write(session, call),
        libc::SYS_pwritev | libc::SYS_pwritev2 => data::write(session, call),
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => data::send(session, call),
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv => data::read(session, call),
        libc::SYS_preadv | libc::SYS_preadv2 => data::read(session, call),
        libc::SYS_copy_file_range => copies::copy(session, call, 2, Errno::XDEV),
        libc::SYS_sendfile => copies::copy(session, call, 0, Errno::INVAL),
        libc::SYS_splice => copies::copy(session, call, 2, Errno::INVAL),
        libc::SYS_ioctl => copies::copy(session, call, 0, Errno::OPNOTSUPP),
        libc::SYS_ftruncate | libc::SYS_truncate => data::truncate(session, call),
        libc::SYS_fallocate => data::allocate(session, call),
        libc::SYS_fsync | libc::SYS_fdatasync => sync::file(session, call),
        libc::SYS_sync | libc::SYS_syncfs => sync::all(session, call),
        libc::SYS_sync_file_range => sync::range(session, call),
        libc::SYS_mmap => mapped::map(session, call),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => mapped::protect(session, call),
        libc::SYS_mremap => mapped::remap(session, call),
        libc::SYS_msync => mapped::sync(session, call),
        libc::SYS_munmap => mapped::unmap(session, call),
        libc::SYS_shmat | libc::SYS_vmsplice => mapped::share(session),
        libc::SYS_exit_group => mapped::exit(session, call),
        libc::SYS_openat | libc::SYS_openat2 => open::open(session, call),
        libc::SYS_fchmod | libc::SYS_fchmodat | libc::SYS_fchmodat2 => modes::chmod(session, call),
        libc::SYS_fchown | libc::SYS_fchownat => modes::chown(session, call),
        libc::SYS_setxattr | libc::SYS_lsetxattr => modes::attribute(session, call),
        libc::SYS_fsetxattr => modes::attribute(session, call),
        libc::SYS_execve | libc::SYS_execveat => exec::exec(session, call),
        libc::SYS_prctl => exec::hide(session),
        libc::SYS_umask => modes::mask(session, call),
        libc::SYS_statfs | libc::SYS_fstatfs => room::look(session, call),
        libc::SYS_io_uring_setup => refused(session, "io_uring_setup"),
        libc::SYS_io_setup => refused(session, "io_setup"),
        // A look into memory that another thread of the program is to give would wait for that
        // thread, and it for us.
        libc::SYS_userfaultfd => refused(session, "userfaultfd"),
        _ => names::carry_out(session, call),
    };
    carried.unwrap_or_else(Reply::Error)
}

fn refused(session: &mut Session, name: &'static str) -> Carried {
    session.refuse(name);
    Err(Errno::NOSYS)
}

/// An open file of the program that is mapped.
struct Mapped {
    file: OwnedFd,
    stat: Stat,
    flags: OFlags,
    inode: Inode,
}

impl Mapped {
    fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    fn is_for_writing(&self) -> bool {
        self.is_file() && !self.flags.contains(OFlags::PATH) && self.mode() != OFlags::RDONLY
    }

    fn is_for_reading(&self) -> bool {
        self.is_file() && !self.flags.contains(OFlags::PATH) && self.mode() != OFlags::WRONLY
    }

    fn mode(&self) -> OFlags {
        self.flags & OFlags::RWMODE
    }
}

/// What a descriptor of the program is.
enum Descriptor {
    Mapped(Mapped),
    /// Another file, which the kernel deals with.
    Other(Stat),
    /// None at all, or one that we may not see: the kernel says what is to be said.
    Unknown,
}

fn descriptor(session: &mut Session, call: &Call, number: i32) -> Result<Descriptor, Errno> {
    let file = match session.processes.file(call.thread, number) {
        Ok(file) => file,
        // We have no room for it: it may be a mapped one, which nobody may write to untold.
        Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(errno),
        Err(Errno::PERM) => return hidden(session, call),
        Err(_) => return Ok(Descriptor::Unknown),
    };
    let stat = fstat(&file)?;
    let Some(inode) = session.tree.get(Key::of(&stat)) else {
        return Ok(Descriptor::Other(stat));
    };
    let flags = fcntl_getfl(&file)?;
    Ok(Descriptor::Mapped(Mapped { file, stat, flags, inode }))
}

/// A descriptor of a process that nobody may look into. What is only for files may be for a mapped
/// one; anything else the kernel does.
fn hidden(session: &mut Session, call: &Call) -> Result<Descriptor, Errno> {
    let errno = match call.number {
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => Errno::IO,
        libc::SYS_sync_file_range => Errno::IO,
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_ftruncate => Errno::PERM,
        libc::SYS_fallocate | libc::SYS_fchmod => Errno::PERM,
        _ => return Ok(Descriptor::Unknown),
    };
    session.refuse("calls on files by a process that nobody may look into");
    Err(errno)
}

/// The same, where only mapped files matter.
fn mapped(session: &mut Session, call: &Call, number: i32) -> Result<Option<Mapped>, Errno> {
    match descriptor(session, call, number)? {
        Descriptor::Mapped(mapped) if session.listener.is_waiting(call) => Ok(Some(mapped)),
        _ => Ok(None),
    }
}
