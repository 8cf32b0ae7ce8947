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
        let processes = &mut session.processes;
        let file = path::argument(call, 0)
            .and_then(|path| path::file(processes, call.thread, libc::AT_FDCWD, path, true));
        // What is wrong with a path the kernel says.
        file.ok().filter(|file| matches!(session.tree.find(file), Ok(Some(_))))
    };
    let Some(file) = file else { return Ok(Reply::Continue) };
    // What nobody has any more takes none.
    session.make_room();
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
