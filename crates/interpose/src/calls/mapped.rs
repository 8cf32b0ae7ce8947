//! Memory that is a file: what the program changes there is told when something asks for it.

use std::ops::Range;

use files::{Inode, Operation};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Carried, Mapped, effects, mapped};
use crate::memory;
use crate::notify::{Call, Reply};
use crate::supervisor::Session;

const PAGE: u64 = 4096;

/// All pages of a file.
const ALL: Range<u64> = 0..u64::MAX;

/// Tells what changed in some pages of a file. Where there is no room for all, files go first that
/// nobody has any more, this one perhaps among them, and the rest is told again.
fn tell_pages(session: &mut Session, inode: Inode, pages: Range<u64>) -> Result<(), Errno> {
    match tell_once(session, inode, pages.clone()) {
        Err(Errno::NOSPC) if session.make_room() => tell_once(session, inode, pages),
        told => told,
    }
}

fn tell_once(session: &mut Session, inode: Inode, pages: Range<u64>) -> Result<(), Errno> {
    // Nothing is to ask for room meanwhile, which may drop files that are mapped.
    let mut mappings = std::mem::take(&mut session.mappings);
    let mut failed = Ok(());
    let found = mappings.changes(inode, pages, &mut |operation| {
        let asked = session.watcher().before(&operation);
        // It is in memory already: who refuses it gets it with the next sync again.
        let told = asked.and_then(|()| session.tell(&operation));
        failed = failed.and(told);
        told
    });
    session.mappings = mappings;
    found.and(failed)
}

/// Tells what changed in one file. When nobody has it mapped any more, that was the last.
pub(super) fn tell_changes(session: &mut Session, inode: Inode) -> Result<(), Errno> {
    if !session.mappings.looks_at(inode) {
        return Ok(());
    }
    let is_mapped = session.mappings.is_mapped(inode);
    let told = tell_pages(session, inode, ALL);
    if !is_mapped && told.is_ok() {
        session.mappings.close(inode);
    }
    told
}

/// Tells what changed in all; the first error that was met.
pub(crate) fn tell_mapped(session: &mut Session) -> Result<(), Errno> {
    let mut told = Ok(());
    for inode in session.mappings.all() {
        told = told.and(tell_changes(session, inode));
    }
    told
}

/// The same, and gives back files that nobody has mapped, also such as could not be written.
pub(crate) fn close_mapped(session: &mut Session) {
    // Nobody waits for it.
    let _ = tell_mapped(session);
    for inode in session.mappings.all() {
        if !session.mappings.looks_at(inode) && !session.mappings.is_mapped(inode) {
            session.mappings.close(inode);
        }
    }
}

/// Tells what changed in memory of the process.
fn tell_inside(session: &mut Session, thread: u32, addresses: Range<u64>) {
    if session.mappings.is_empty() {
        return;
    }
    let areas = memory::areas(thread, addresses).unwrap_or_default();
    for (inode, pages) in session.mappings.inside(&areas) {
        // Nobody waits for it.
        let _ = tell_pages(session, inode, pages);
    }
}

/// Addresses of a call.
fn addresses(call: &Call) -> Range<u64> {
    call.args[0]..call.args[0].saturating_add(call.args[1].max(1))
}

/// The filter lets only shared ones come here.
pub(super) fn map(session: &mut Session, call: &Call) -> Carried {
    if session.wants.effects && effects::shares(session, call) {
        session.watcher().shares();
    }
    let file = mapped(session, call, call.int(4))?;
    let is_writable = |it: &Mapped| it.is_for_writing() && it.mode() == OFlags::RDWR;
    let Some(file) = file.filter(is_writable) else { return Ok(Reply::Continue) };
    let process = session.processes.process(call.thread)?;
    // It may become writable later.
    session.mappings.open(file.inode, &file.file, process)?;
    if call.int(2) & libc::PROT_WRITE != 0 {
        let first = call.args[5] / PAGE;
        let pages = first..first.saturating_add(call.args[1].div_ceil(PAGE));
        session.mappings.track(file.inode, pages, process)?;
    }
    Ok(Reply::Continue)
}

/// Memory becomes writable.
pub(super) fn protect(session: &mut Session, call: &Call) -> Carried {
    if session.mappings.is_empty() {
        return Ok(Reply::Continue);
    }
    let process = session.processes.process(call.thread)?;
    let areas = memory::areas(call.thread, addresses(call)).unwrap_or_default();
    for (inode, pages) in session.mappings.inside(&areas) {
        session.mappings.track(inode, pages, process)?;
    }
    Ok(Reply::Continue)
}

/// Memory becomes longer or shorter, or lies elsewhere.
pub(super) fn remap(session: &mut Session, call: &Call) -> Carried {
    if session.mappings.is_empty() {
        return Ok(Reply::Continue);
    }
    let process = session.processes.process(call.thread)?;
    let areas = memory::areas(call.thread, addresses(call)).unwrap_or_default();
    for (inode, pages) in session.mappings.inside(&areas) {
        let longer = pages.start..pages.start.saturating_add(call.args[2].div_ceil(PAGE));
        if areas.iter().any(|it| it.is_writable) {
            session.mappings.track(inode, longer, process)?;
        }
        let _ = tell_pages(session, inode, pages);
    }
    Ok(Reply::Continue)
}

/// Memory that others see, and that has no file; or that a pipe has.
pub(super) fn share(session: &mut Session) -> Carried {
    session.watcher().shares();
    Ok(Reply::Continue)
}

/// `MS_SYNC` is a sync of the files whose memory it is, as far as these addresses go.
pub(super) fn sync(session: &mut Session, call: &Call) -> Carried {
    if session.mappings.is_empty() {
        return Ok(Reply::Continue);
    }
    let Ok(areas) = memory::areas(call.thread, addresses(call)) else { return Err(Errno::IO) };
    let inside = session.mappings.inside(&areas);
    for (inode, pages) in &inside {
        tell_pages(session, *inode, pages.clone())?;
    }
    let mut inodes: Vec<Inode> = inside.into_iter().map(|it| it.0).collect();
    inodes.dedup();
    for inode in inodes.into_iter().filter(|_| call.int(2) & libc::MS_SYNC != 0) {
        session.ask_and_tell(&Operation::Sync { inode, data: true })?;
    }
    Ok(Reply::Continue)
}

/// What changed in the files whose memory goes.
pub(super) fn unmap(session: &mut Session, call: &Call) -> Carried {
    tell_inside(session, call.thread, addresses(call));
    Ok(Reply::Continue)
}

pub(super) fn exit(session: &mut Session, call: &Call) -> Carried {
    tell_inside(session, call.thread, 0..u64::MAX);
    if let Ok(process) = session.processes.process(call.thread) {
        session.watcher().exiting(process, call.int(0) & 0xff);
    }
    Ok(Reply::Continue)
}
