//! Opens that create or cut a file. Others the kernel does: they change nothing.

use std::os::fd::OwnedFd;

use files::{Inode, Kind, Operation};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::{Carried, modes};
use crate::notify::{Call, Reply};
use crate::path::{self, Follow, Place};
use crate::process::read_word;
use crate::supervisor::Session;
use crate::tree::Key;

struct Open {
    folder: i32,
    path: Vec<u8>,
    flags: OFlags,
    mode: Mode,
}

fn flags(call: &Call) -> Result<OFlags, Errno> {
    let given = |bits: u64| OFlags::from_bits_retain(bits as u32);
    Ok(match call.number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => given(call.args[1]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC,
        libc::SYS_openat => given(call.args[2]),
        _ => given(how(call, 0)?),
    })
}

/// A word of `struct open_how`: flags, mode, and how the path is resolved.
fn how(call: &Call, n: u64) -> Result<u64, Errno> {
    read_word(call.thread, call.args[2].wrapping_add(8 * n))
}

fn as_given(call: &Call, flags: OFlags) -> Result<Open, Errno> {
    let mode = |bits: u64| Mode::from_bits_truncate(bits as u32);
    let path = |n| path::argument(call, n);
    #[cfg(target_arch = "x86_64")]
    if let libc::SYS_open | libc::SYS_creat = call.number {
        let mode = mode(call.args[if call.number == libc::SYS_open { 2 } else { 1 }]);
        return Ok(Open { folder: libc::AT_FDCWD, path: path(0)?, flags, mode });
    }
    let (folder, path) = (call.int(0), path(1)?);
    if call.number == libc::SYS_openat {
        return Ok(Open { folder, path, flags, mode: mode(call.args[3]) });
    }
    if how(call, 2)? != 0 && flags.intersects(OFlags::CREATE | OFlags::TRUNC) {
        // Programs then open as ever.
        return Err(Errno::NOSYS);
    }
    Ok(Open { folder, path, flags, mode: mode(how(call, 1)?) })
}

/// Whether an open may make or cut a file.
fn changes(flags: OFlags) -> bool {
    let is_nameless = flags.contains(OFlags::TMPFILE);
    let changes = flags.intersects(OFlags::CREATE | OFlags::TRUNC) || is_nameless;
    changes && !flags.contains(OFlags::PATH)
}

pub(super) fn open(session: &mut Session, call: &Call) -> Carried {
    // Most opens only read, and where they lead is the kernel's to find.
    let flags = flags(call)?;
    if !changes(flags) {
        return Ok(Reply::Continue);
    }
    let open = as_given(call, flags)?;
    let is_nameless = open.flags.contains(OFlags::TMPFILE);
    if open.flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
        // So since Linux 6.4, before the path is looked at; older ones made a file.
        return Err(Errno::INVAL);
    }
    if is_nameless {
        return nameless(session, call, open);
    }
    let is_new_only = open.flags.contains(OFlags::CREATE | OFlags::EXCL);
    let follow = match open.flags {
        flags if flags.contains(OFlags::NOFOLLOW) || is_new_only => Follow::No,
        flags if flags.contains(OFlags::CREATE) => Follow::ToMake,
        _ => Follow::Yes,
    };
    let place = path::place(&mut session.processes, call.thread, open.folder, open.path, follow)?;
    if path::is_of_proc(&place.folder) {
        return again(session, call, &place, open.flags);
    }
    let Some(parent) = session.tree.find(&place.folder)? else {
        return other_name(session, call, &place, open.flags);
    };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    if open.flags.contains(OFlags::CREATE) && place.raw.ends_with(b"/") {
        return Err(Errno::ISDIR);
    }
    match statat(&place.folder, place.name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => there(session, &place, open.flags, &stat),
        Err(Errno::NOENT) if open.flags.contains(OFlags::CREATE) => {
            let umask = session.processes.umask(call.thread)?;
            create(session, &place, parent, open.flags, open.mode.difference(umask))
        }
        Err(errno) => Err(errno),
    }
}

/// Opens for the program.
fn opened(place: &Place, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    // Nobody but us may give it on by an exec.
    with_no_mask(|| {
        openat(&place.folder, place.raw.as_slice(), flags | OFlags::CLOEXEC | OFlags::NOCTTY, mode)
    })
}

/// Runs with no mask of file bits: the program's was applied already.
pub(super) fn with_no_mask<T>(run: impl FnOnce() -> T) -> T {
    let before = rustix::process::umask(Mode::empty());
    let result = run();
    rustix::process::umask(before);
    result
}

fn reply(file: OwnedFd, flags: OFlags) -> Reply {
    Reply::Descriptor { file, close_on_exec: flags.contains(OFlags::CLOEXEC) }
}

/// A file that has the name already.
fn there(session: &mut Session, place: &Place, flags: OFlags, stat: &Stat) -> Carried {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        // Nothing is made or cut, and a pipe may wait.
        return Ok(Reply::Continue);
    }
    let inode = session.tree.get(Key::of(stat)).filter(|_| flags.contains(OFlags::TRUNC));
    let cut = inode.map(|inode| Operation::Truncate { inode, size: 0 });
    if let Some(cut) = &cut {
        session.ask(cut)?;
    }
    let file = opened(place, flags, Mode::empty())?;
    if let (Some(cut), Some(inode)) = (&cut, inode) {
        session.tell(cut)?;
        modes::tell_lost(session, (&file, inode), stat)?;
    }
    Ok(reply(file, flags))
}

fn create(
    session: &mut Session,
    place: &Place,
    parent: Inode,
    flags: OFlags,
    mode: Mode,
) -> Carried {
    let name = place.name().to_vec();
    let (inode, bits) = (session.tree.next(), (mode.bits() & 0o7777) as u16);
    let mut operation = Operation::Create { parent, name, inode, kind: Kind::File, mode: bits };
    session.ask(&operation)?;
    let file = opened(place, flags, mode)?;
    let stat = fstat(&file)?;
    if let Operation::Create { mode, .. } = &mut operation {
        *mode = (stat.st_mode & 0o7777) as u16;
    }
    session.tree.insert(Key::of(&stat));
    session.tell(&operation)?;
    Ok(reply(file, flags))
}

/// A file of a mapped folder by a name that it has elsewhere.
fn other_name(session: &mut Session, call: &Call, place: &Place, flags: OFlags) -> Carried {
    let is_mapped = statat(&place.folder, place.name(), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| session.tree.get(Key::of(&stat)).is_some());
    match is_mapped {
        true => again(session, call, place, flags),
        false => Ok(Reply::Continue),
    }
}

/// A file that is there and named by `/proc`, as an open file is.
fn again(session: &mut Session, call: &Call, place: &Place, flags: OFlags) -> Carried {
    let look = OFlags::PATH | OFlags::CLOEXEC;
    let file = openat(&place.folder, place.raw.as_slice(), look, Mode::empty())?;
    let stat = fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let inode = session.tree.get(Key::of(&stat)).filter(|_| is_file);
    let (Some(inode), true) = (inode, flags.contains(OFlags::TRUNC)) else {
        return Ok(Reply::Continue);
    };
    if flags.contains(OFlags::CREATE | OFlags::EXCL) || !session.listener.is_waiting(call) {
        return Ok(Reply::Continue);
    }
    let cut = Operation::Truncate { inode, size: 0 };
    session.ask(&cut)?;
    let plain = flags.difference(OFlags::CREATE | OFlags::NOFOLLOW) | OFlags::CLOEXEC;
    let file = rustix::fs::open(path::of_open(&file), plain, Mode::empty())?;
    session.tell(&cut)?;
    modes::tell_lost(session, (&file, inode), &stat)?;
    Ok(reply(file, flags))
}

/// A new file without a name in a mapped folder: told as one that loses it at once.
fn nameless(session: &mut Session, call: &Call, open: Open) -> Carried {
    let folder = path::file(&mut session.processes, call.thread, open.folder, open.path, true)?;
    let Some(parent) = session.tree.find(&folder)? else { return Ok(Reply::Continue) };
    let mode = open.mode.difference(session.processes.umask(call.thread)?);
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let inode = session.tree.next();
    let name = format!(".nameless-{}", inode.0).into_bytes();
    let bits = (mode.bits() & 0o7777) as u16;
    let create =
        Operation::Create { parent, name: name.clone(), inode, kind: Kind::File, mode: bits };
    let remove = Operation::Remove { parent, name };
    session.ask(&create)?;
    session.ask(&remove)?;
    let place = Place { folder, raw: b".".to_vec() };
    let file = opened(&place, open.flags, mode)?;
    let pin =
        rustix::fs::open(path::of_open(&file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let key = Key::of(&fstat(&file)?);
    session.tree.insert(key);
    session.tree.unnamed(key, pin);
    session.tell(&create)?;
    session.tell(&remove)?;
    Ok(reply(file, open.flags))
}
