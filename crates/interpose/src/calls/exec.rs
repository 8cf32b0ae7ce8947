//! Programs that begin. What is on the drive is read from it. Of a process that nobody may look
//! into no call could be told, so none becomes one.

use rustix::fs::{Access, FileType, access, fstat};
use rustix::io::Errno;

use super::{Carried, data};
use crate::notify::{Call, Reply};
use crate::path;
use crate::supervisor::Session;
use crate::tree::Key;
use crate::watcher::Way;

pub(super) fn exec(session: &mut Session, call: &Call) -> Carried {
    session.processes.masks_change(call.thread);
    let (folder, n, flags) = match call.number {
        libc::SYS_execveat => (call.int(0), 1, call.int(4)),
        _ => (libc::AT_FDCWD, 0, 0),
    };
    let file = path::argument(call, n).and_then(|path| {
        if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            session.processes.file(call.thread, folder)
        } else {
            path::file(&mut session.processes, call.thread, folder, path, true)
        }
    });
    let file = match file {
        Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(errno),
        // The kernel says what is to be said.
        Err(_) => return Ok(Reply::Continue),
        Ok(file) => file,
    };
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Reply::Continue);
    }
    if !session.sees_all && access(path::of_open(&file), Access::READ_OK).is_err() {
        session.refuse("running a program that may not be read");
        return Err(Errno::ACCESS);
    }
    if let Some(inode) = session.tree.get(Key::of(&stat)).filter(|_| session.wants.reads)
        && stat.st_size > 0
    {
        data::transfer(session, inode, (0, stat.st_size as u64), Way::Read)?;
    }
    Ok(Reply::Continue)
}

/// `PR_SET_DUMPABLE` to 0.
pub(super) fn hide(session: &mut Session) -> Carried {
    if session.sees_all {
        return Ok(Reply::Continue);
    }
    session.refuse("PR_SET_DUMPABLE");
    Err(Errno::PERM)
}
