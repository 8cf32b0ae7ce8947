//! How much room there is: of mapped files what the watcher has for them.

use std::os::fd::AsRawFd;

use super::{Carried, mapped};
use crate::notify::{Call, Reply, last_error};
use crate::path;
use crate::process;
use crate::supervisor::Session;

pub(super) fn look(session: &mut Session, call: &Call) -> Carried {
    let file = if call.number == libc::SYS_fstatfs {
        mapped(session, call, call.int(0))?.map(|it| it.file)
    } else {
        let path = path::argument(call, 0)?;
        let file = path::file(&mut session.processes, call.thread, libc::AT_FDCWD, path, true)?;
        session.tree.find(&file)?.map(|_| file)
    };
    let Some(file) = file else { return Ok(Reply::Continue) };
    let Some(room) = session.watcher().room() else { return Ok(Reply::Continue) };
    // SAFETY: it is numbers only.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to `about` only.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) } < 0 {
        return Err(last_error());
    }
    (about.f_bsize, about.f_frsize) = (room.block as _, room.block as _);
    about.f_blocks = room.blocks as _;
    (about.f_bfree, about.f_bavail) = (room.free as _, room.free as _);
    if !session.listener.is_waiting(call) {
        return Ok(Reply::Continue);
    }
    process::write(call.thread, call.args[1], &about)?;
    Ok(Reply::Value(0))
}
