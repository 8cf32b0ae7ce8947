//! Memory that is a file: what the program changes there is told when something asks for it.

use files::{Inode, Operation};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Carried, Mapped, effects, mapped};
use crate::notify::{Call, Reply};
use crate::process;
use crate::supervisor::Session;

/// Tells what changed in one file.
pub(super) fn tell_changes(session: &mut Session, inode: Inode) -> Result<(), Errno> {
    if session.mappings.is_empty() {
        return Ok(());
    }
    let mut mappings = std::mem::take(&mut session.mappings);
    let mut failed = Ok(());
    let found = mappings.changes(inode, &mut |operation| {
        // It is in memory already: who refuses it gets it with the next sync again.
        let told = session.tell(&operation);
        failed = failed.and(told);
    });
    session.mappings = mappings;
    found.and(failed)
}

/// Tells what changed in all.
pub(crate) fn tell_mapped(session: &mut Session) {
    for inode in session.mappings.all() {
        // Nobody waits for it.
        let _ = tell_changes(session, inode);
    }
}

/// The filter lets only shared ones come here, and unless effects are told only writable ones.
pub(super) fn map(session: &mut Session, call: &Call) -> Carried {
    if session.wants.effects && effects::shares(session, call) {
        session.watcher().shares();
    }
    if call.int(2) & libc::PROT_WRITE == 0 {
        return Ok(Reply::Continue);
    }
    let file = mapped(session, call, call.int(4))?;
    if let Some(file) = file.filter(Mapped::is_for_writing).filter(|it| it.mode() == OFlags::RDWR) {
        session.mappings.track(file.inode, &file.file)?;
    }
    Ok(Reply::Continue)
}

/// Memory that others see, and that has no file; or that a pipe has.
pub(super) fn share(session: &mut Session) -> Carried {
    session.watcher().shares();
    Ok(Reply::Continue)
}

/// `MS_SYNC` is a sync of the files whose memory it is.
pub(super) fn sync(session: &mut Session, call: &Call) -> Carried {
    if session.mappings.is_empty() {
        return Ok(Reply::Continue);
    }
    let until = call.args[0].saturating_add(call.args[1].max(1));
    let kernels = process::mapped_inodes(call.thread, call.args[0]..until);
    for inode in session.mappings.of_kernel(&kernels) {
        tell_changes(session, inode)?;
        if call.int(2) & libc::MS_SYNC != 0 {
            session.ask_and_tell(&Operation::Sync { inode, data: true })?;
        }
    }
    Ok(Reply::Continue)
}

/// What changed in the files whose memory goes.
pub(super) fn unmap(session: &mut Session, call: &Call) -> Carried {
    if session.mappings.is_empty() {
        return Ok(Reply::Continue);
    }
    let until = call.args[0].saturating_add(call.args[1].max(1));
    let kernels = process::mapped_inodes(call.thread, call.args[0]..until);
    for inode in session.mappings.of_kernel(&kernels) {
        // Nobody waits for it.
        let _ = tell_changes(session, inode);
    }
    Ok(Reply::Continue)
}

pub(super) fn exit(session: &mut Session, call: &Call) -> Carried {
    tell_mapped(session);
    if let Ok(process) = session.processes.process(call.thread) {
        session.watcher().exiting(process, call.int(0) & 0xff);
    }
    Ok(Reply::Continue)
}
