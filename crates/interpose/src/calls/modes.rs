//! Permission bits, and access lists, which would change them: those are refused, as by a file
//! system without them, and programs then set the bits.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use files::{Inode, Operation};
use rustix::fs::{Mode, OFlags, Stat, fstat};
use rustix::io::Errno;

use super::{Carried, mapped};
use crate::notify::{Call, Reply, last_error};
use crate::path;
use crate::supervisor::Session;

/// Bits by which a program runs as its file's owner or group.
const RUNS_AS: u32 = libc::S_ISUID | libc::S_ISGID;

/// The file that a call is for, where it may be a mapped one.
fn file(session: &mut Session, call: &Call) -> Result<Option<(OwnedFd, u64)>, Errno> {
    let by_descriptor = |session: &mut Session, n| {
        let file = mapped(session, call, n)?;
        Ok(file.filter(|it| !it.flags.contains(OFlags::PATH)).map(|it| it.file))
    };
    let (folder, path, mode, flags) = match call.number {
        libc::SYS_fchmod => {
            return Ok(by_descriptor(session, call.int(0))?.map(|file| (file, call.args[1])));
        }
        libc::SYS_fchmodat => (call.int(0), path::argument(call, 1)?, call.args[2], 0),
        libc::SYS_fchmodat2 => (call.int(0), path::argument(call, 1)?, call.args[2], call.int(3)),
        _ => (libc::AT_FDCWD, path::argument(call, 0)?, call.args[1], 0),
    };
    if flags & libc::AT_SYMLINK_NOFOLLOW != 0 && flags & libc::AT_EMPTY_PATH == 0 {
        let file = path::file(&mut session.processes, call.thread, folder, path, false)?;
        // Of a symbolic link the kernel refuses it.
        let is_link = fstat(&file)?.st_mode & libc::S_IFMT == libc::S_IFLNK;
        return Ok((!is_link).then_some((file, mode)));
    }
    if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        let file = session.processes.file(call.thread, folder)?;
        return Ok(Some((file, mode)));
    }
    Ok(Some((path::file(&mut session.processes, call.thread, folder, path, true)?, mode)))
}

pub(super) fn chmod(session: &mut Session, call: &Call) -> Carried {
    let Some((file, mode)) = file(session, call)? else { return Ok(Reply::Continue) };
    let Some(inode) = session.tree.find(&file)? else { return Ok(Reply::Continue) };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let mode = Mode::from_bits_truncate(mode as u32 & 0o7777);
    session.ask(&Operation::Mode { inode, mode: mode.bits() as u16 })?;
    rustix::fs::chmod(path::of_open(&file), mode)?;
    // The kernel may drop some of them.
    let mode = (fstat(&file)?.st_mode & 0o7777) as u16;
    session.tell(&Operation::Mode { inode, mode })?;
    Ok(Reply::Value(0))
}

/// The kernel takes the bits by which a file runs as its owner when somebody else changes it.
pub(super) fn tell_lost(
    session: &mut Session,
    (file, inode): (impl AsFd, Inode),
    before: &Stat,
) -> Result<(), Errno> {
    if before.st_mode & RUNS_AS == 0 {
        return Ok(());
    }
    let mode = fstat(file)?.st_mode;
    if mode == before.st_mode {
        return Ok(());
    }
    session.tell(&Operation::Mode { inode, mode: (mode & 0o7777) as u16 })
}

/// Owners are the kernel's alone, but not the bits that go with the old one.
pub(super) fn chown(session: &mut Session, call: &Call) -> Carried {
    let nofollow = libc::AT_SYMLINK_NOFOLLOW;
    let (folder, n, flags) = match call.number {
        libc::SYS_fchown => (call.int(0), None, 0),
        libc::SYS_fchownat => (call.int(0), Some(1), call.int(4)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => (libc::AT_FDCWD, Some(0), nofollow),
        _ => (libc::AT_FDCWD, Some(0), 0),
    };
    let (owner, group) = match n {
        Some(1) => (call.args[2], call.args[3]),
        _ => (call.args[1], call.args[2]),
    };
    let path = n.map_or(Ok(Vec::new()), |n| path::argument(call, n))?;
    let file = if path.is_empty() {
        let is_ours = n.is_none() || flags & libc::AT_EMPTY_PATH != 0;
        match mapped(session, call, folder)?.filter(|_| is_ours) {
            Some(file) if n.is_some() || !file.flags.contains(OFlags::PATH) => file.file,
            _ => return Ok(Reply::Continue),
        }
    } else {
        path::file(&mut session.processes, call.thread, folder, path, flags & nofollow == 0)?
    };
    let (inode, before) = (session.tree.find(&file)?, fstat(&file)?);
    let is_file = before.st_mode & libc::S_IFMT == libc::S_IFREG;
    let Some(inode) = inode.filter(|_| is_file && before.st_mode & RUNS_AS != 0) else {
        return Ok(Reply::Continue);
    };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let mode = (before.st_mode & 0o777) as u16;
    session.ask(&Operation::Mode { inode, mode })?;
    let (owner, group) = (owner as u32, group as u32);
    // SAFETY: an open file, and numbers; the empty path is only read.
    let changed = unsafe {
        libc::fchownat(file.as_raw_fd(), c"".as_ptr(), owner, group, libc::AT_EMPTY_PATH)
    };
    if changed < 0 {
        return Err(last_error());
    }
    tell_lost(session, (&file, inode), &before)?;
    Ok(Reply::Value(0))
}

/// Other masks of new files' bits hold from now on.
pub(super) fn mask(session: &mut Session, call: &Call) -> Carried {
    session.processes.masks_change(call.thread);
    Ok(Reply::Continue)
}

/// Other attributes are the kernel's alone.
pub(super) fn attribute(session: &mut Session, call: &Call) -> Carried {
    let name = path::argument(call, 1)?;
    if !name.starts_with(b"system.posix_acl_") {
        return Ok(Reply::Continue);
    }
    let file = if call.number == libc::SYS_fsetxattr {
        match mapped(session, call, call.int(0))? {
            Some(file) => file.file,
            None => return Ok(Reply::Continue),
        }
    } else {
        let (path, follow) = (path::argument(call, 0)?, call.number == libc::SYS_setxattr);
        path::file(&mut session.processes, call.thread, libc::AT_FDCWD, path, follow)?
    };
    match session.tree.find(&file)? {
        Some(_) => Err(Errno::OPNOTSUPP),
        None => Ok(Reply::Continue),
    }
}
