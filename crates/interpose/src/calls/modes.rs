//! Permission bits, and access lists, which would change them: those are refused, as by a file
//! system without them, and programs then set the bits.

use std::os::fd::OwnedFd;

use files::Operation;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;

use super::{Carried, mapped};
use crate::notify::{Call, Reply};
use crate::path;
use crate::supervisor::Session;

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
