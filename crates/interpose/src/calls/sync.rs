//! Calls that make durable. On mapped files that is the drive's work and not the kernel's, whose
//! folder is only what the program sees.

use files::Operation;
use rustix::fs::OFlags;

use super::{Carried, mapped, mapped::tell_changes, mapped::tell_mapped};
use crate::notify::{Call, Reply};
use crate::supervisor::Session;

pub(super) fn file(session: &mut Session, call: &Call) -> Carried {
    match mapped(session, call, call.int(0))? {
        Some(file) if !file.flags.contains(OFlags::PATH) => {
            tell_changes(session, file.inode)?;
            let data = call.number == libc::SYS_fdatasync;
            session.ask_and_tell(&Operation::Sync { inode: file.inode, data })?;
            Ok(Reply::Value(0))
        }
        _ => Ok(Reply::Continue),
    }
}

/// `sync` goes on to the kernel, which has other files to look after.
pub(super) fn all(session: &mut Session, call: &Call) -> Carried {
    let is_one = call.number == libc::SYS_syncfs;
    if is_one && mapped(session, call, call.int(0))?.is_none() {
        return Ok(Reply::Continue);
    }
    let told = tell_mapped(session);
    let done = session.ask_and_tell(&Operation::SyncAll);
    if is_one {
        told.and(done)?;
        return Ok(Reply::Value(0));
    }
    Ok(Reply::Continue)
}

/// It promises nothing about durability: neither metadata nor the drive's cache are in it.
pub(super) fn range(session: &mut Session, call: &Call) -> Carried {
    match mapped(session, call, call.int(0))? {
        Some(file) if file.is_file() && !file.flags.contains(OFlags::PATH) => Ok(Reply::Value(0)),
        _ => Ok(Reply::Continue),
    }
}
