//! Calls that make, move and remove names.

use std::os::fd::OwnedFd;

use files::{Inode, Kind, Operation};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, linkat, mkdirat, mknodat,
    openat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::open::with_no_mask;
use super::{Carried, open};
use crate::notify::{Call, Reply};
use crate::path::{self, Follow, Place};
use crate::process::Processes;
use crate::supervisor::Session;
use crate::tree::Key;

const HERE: i32 = libc::AT_FDCWD;

pub(super) fn carry_out(session: &mut Session, call: &Call) -> Carried {
    let (first, third) = (call.int(0), call.int(2));
    #[cfg(target_arch = "x86_64")]
    match call.number {
        libc::SYS_open | libc::SYS_creat => return open::open(session, call),
        libc::SYS_chmod => return super::modes::chmod(session, call),
        libc::SYS_chown | libc::SYS_lchown => return super::modes::chown(session, call),
        libc::SYS_rename => return rename(session, call, (HERE, 0), (HERE, 1), 0),
        libc::SYS_link => return link(session, call, (HERE, 0), (HERE, 1), 0),
        libc::SYS_symlink => return symlink(session, call, HERE, 1),
        libc::SYS_unlink => return remove(session, call, HERE, 0, AtFlags::empty()),
        libc::SYS_rmdir => return remove(session, call, HERE, 0, AtFlags::REMOVEDIR),
        libc::SYS_mkdir => return mkdir(session, call, HERE, 0),
        libc::SYS_mknod => return mknod(session, call, HERE, 0),
        _ => {}
    }
    match call.number {
        libc::SYS_renameat => rename(session, call, (first, 1), (third, 3), 0),
        libc::SYS_renameat2 => rename(session, call, (first, 1), (third, 3), call.int(4)),
        libc::SYS_linkat => link(session, call, (first, 1), (third, 3), call.int(4)),
        libc::SYS_symlinkat => symlink(session, call, call.int(1), 2),
        libc::SYS_unlinkat => {
            remove(session, call, first, 1, AtFlags::from_bits_retain(third as u32))
        }
        libc::SYS_mkdirat => mkdir(session, call, first, 1),
        libc::SYS_mknodat => mknod(session, call, first, 1),
        _ => Ok(Reply::Continue),
    }
}

/// Where a path that is argument `n` leads; a link in its last name is not followed.
fn place(processes: &mut Processes, call: &Call, folder: i32, n: usize) -> Result<Place, Errno> {
    path::place(processes, call.thread, folder, path::argument(call, n)?, Follow::No)
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// What has a name, if it has any.
fn named(place: &Place) -> Option<Stat> {
    statat(&place.folder, place.name(), AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Whether a name in a folder that is not mapped is that of one that is: it stays where it is, as
/// where something is mounted.
fn is_mounted(session: &Session, place: &Place) -> bool {
    named(place).is_some_and(|it| is_folder(&it) && session.tree.get(Key::of(&it)).is_some())
}

/// The file that loses a name, if it is a mapped one.
struct Loser {
    key: Key,
    is_last: bool,
    is_file: bool,
    pin: OwnedFd,
}

fn loser(session: &Session, place: &Place, stat: &Stat) -> Result<Option<Loser>, Errno> {
    let key = Key::of(stat);
    if session.tree.get(key).is_none() {
        return Ok(None);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pin = openat(&place.folder, place.name(), flags, Mode::empty())?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_last = stat.st_nlink <= 1 || is_folder(stat);
    Ok(Some(Loser { key, is_last, is_file, pin }))
}

/// With the last name the file goes; a regular one when nobody has it open.
fn lost(session: &mut Session, loser: Loser) -> Result<(), Errno> {
    if !loser.is_last {
        return Ok(());
    }
    if loser.is_file {
        session.tree.unnamed(loser.key, loser.pin);
        return Ok(());
    }
    match session.tree.forget(loser.key) {
        Some(inode) => session.tell(&Operation::Forget { inode }),
        None => Ok(()),
    }
}

fn remove(session: &mut Session, call: &Call, folder: i32, n: usize, flags: AtFlags) -> Carried {
    let place = place(&mut session.processes, call, folder, n)?;
    let Some(parent) = session.tree.find(&place.folder)? else {
        return if is_mounted(session, &place) { Err(Errno::BUSY) } else { Ok(Reply::Continue) };
    };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let loser = match named(&place) {
        Some(stat) => loser(session, &place, &stat)?,
        None => None,
    };
    let operation = Operation::Remove { parent, name: place.name().to_vec() };
    if loser.is_some() {
        session.ask(&operation)?;
    }
    unlinkat(&place.folder, place.raw.as_slice(), flags)?;
    if let Some(loser) = loser {
        session.tell(&operation)?;
        lost(session, loser)?;
    }
    Ok(Reply::Value(0))
}

/// What is made has the number that is next; how it is told, where its folder is mapped.
fn make(
    session: &mut Session,
    call: &Call,
    (folder, n): (i32, usize),
    kind: Kind,
    bits: u64,
    make: impl FnOnce(&Place, Mode) -> Result<(), Errno>,
) -> Carried {
    let place = place(&mut session.processes, call, folder, n)?;
    let Some(parent) = session.tree.find(&place.folder)? else { return Ok(Reply::Continue) };
    let mode = match kind {
        Kind::Link(_) => Mode::from_bits_truncate(0o777),
        _ => {
            let umask = session.processes.umask(call.thread)?;
            Mode::from_bits_truncate(bits as u32).difference(umask)
        }
    };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let (name, inode) = (place.name().to_vec(), session.tree.next());
    let bits = (mode.bits() & 0o7777) as u16;
    let mut operation = Operation::Create { parent, name, inode, kind, mode: bits };
    let is_new = named(&place).is_none();
    if is_new {
        session.ask(&operation)?;
    }
    with_no_mask(|| make(&place, mode))?;
    let stat = statat(&place.folder, place.name(), AtFlags::SYMLINK_NOFOLLOW)?;
    if let Operation::Create { mode, .. } = &mut operation {
        *mode = (stat.st_mode & 0o7777) as u16;
    }
    session.tree.insert(Key::of(&stat));
    session.tell(&operation)?;
    Ok(Reply::Value(0))
}

fn mkdir(session: &mut Session, call: &Call, folder: i32, n: usize) -> Carried {
    make(session, call, (folder, n), Kind::Folder, call.args[n + 1], |place, mode| {
        mkdirat(&place.folder, place.raw.as_slice(), mode)
    })
}

fn symlink(session: &mut Session, call: &Call, folder: i32, n: usize) -> Carried {
    let to = path::argument(call, 0)?;
    if to.is_empty() {
        return Err(Errno::NOENT);
    }
    make(session, call, (folder, n), Kind::Link(to.clone()), 0, |place, _| {
        symlinkat(to.as_slice(), &place.folder, place.raw.as_slice())
    })
}

/// Devices, pipes and sockets are the kernel's alone.
fn mknod(session: &mut Session, call: &Call, folder: i32, n: usize) -> Carried {
    let kind = call.args[n + 1] as u32 & libc::S_IFMT;
    if kind != 0 && kind != libc::S_IFREG {
        return Ok(Reply::Continue);
    }
    make(session, call, (folder, n), Kind::File, call.args[n + 1], |place, mode| {
        mknodat(&place.folder, place.raw.as_slice(), FileType::RegularFile, mode, 0)
    })
}

type At = (i32, usize);

fn link(session: &mut Session, call: &Call, from: At, to: At, flags: i32) -> Carried {
    let path = path::argument(call, from.1)?;
    let file = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        session.processes.file(call.thread, from.0)?
    } else {
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        path::file(&mut session.processes, call.thread, from.0, path, follow)?
    };
    let stat = fstat(&file)?;
    let inode = session.tree.get(Key::of(&stat));
    let place = place(&mut session.processes, call, to.0, to.1)?;
    let (inode, parent) = match (inode, session.tree.find(&place.folder)?) {
        (None, None) => return Ok(Reply::Continue),
        (Some(inode), Some(parent)) => (inode, parent),
        _ if named(&place).is_some() => return Err(Errno::EXIST),
        _ if place.raw.ends_with(b"/") || has_gone(&place) => return Err(Errno::NOENT),
        _ if is_folder(&stat) => return Err(Errno::PERM),
        _ => return Err(Errno::XDEV),
    };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let operation = Operation::Link { parent, name: place.name().to_vec(), inode };
    let is_new = named(&place).is_none() && !is_folder(&stat);
    if is_new {
        session.ask(&operation)?;
    }
    let name = path::of_open(&file);
    linkat(CWD, name, &place.folder, place.raw.as_slice(), AtFlags::SYMLINK_FOLLOW)?;
    session.tree.named(Key::of(&stat));
    session.tell(&operation)?;
    Ok(Reply::Value(0))
}

fn rename(session: &mut Session, call: &Call, from: At, to: At, flags: i32) -> Carried {
    let flags = RenameFlags::from_bits_retain(flags as u32);
    let is_one = !flags.contains(RenameFlags::EXCHANGE)
        || !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT);
    if flags.bits() > 7 || !is_one {
        // The kernel refuses it before anything else.
        return Ok(Reply::Continue);
    }
    let old = place(&mut session.processes, call, from.0, from.1)?;
    let new = place(&mut session.processes, call, to.0, to.1)?;
    let parents = (session.tree.find(&old.folder)?, session.tree.find(&new.folder)?);
    let (out_of, into) = match parents {
        (None, None) if is_mounted(session, &old) || is_mounted(session, &new) => {
            return Err(Errno::BUSY);
        }
        (None, None) => return Ok(Reply::Continue),
        (Some(out_of), Some(into)) => (out_of, into),
        _ => return Err(over_border(&old, &new, flags)),
    };
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    if flags.contains(RenameFlags::WHITEOUT) {
        return Err(Errno::INVAL);
    }
    let told = told(session, (&old, out_of), (&new, into), flags)?;
    if let Some((operation, _)) = &told {
        session.ask(operation)?;
    }
    renameat_with(&old.folder, old.raw.as_slice(), &new.folder, new.raw.as_slice(), flags)?;
    if let Some((operation, loser)) = told {
        session.tell(&operation)?;
        if let Some(loser) = loser {
            lost(session, loser)?;
        }
    }
    Ok(Reply::Value(0))
}

/// Whether the folder was removed: nothing can be made in it.
fn has_gone(place: &Place) -> bool {
    fstat(&place.folder).is_ok_and(|stat| stat.st_nlink == 0)
}

/// Why a rename over the border of a mapped folder fails: as between file systems, unless it
/// would fail in any case.
fn over_border(old: &Place, new: &Place, flags: RenameFlags) -> Errno {
    let is_dots = |place: &Place| matches!(place.name(), b"." | b"..");
    let is_new = named(new).is_none();
    let is_exchange = flags.contains(RenameFlags::EXCHANGE);
    if is_dots(old) {
        Errno::BUSY
    } else if is_dots(new) {
        if flags.contains(RenameFlags::NOREPLACE) { Errno::EXIST } else { Errno::BUSY }
    } else if has_gone(old) || has_gone(new) || named(old).is_none() || (is_exchange && is_new) {
        Errno::NOENT
    } else if flags.contains(RenameFlags::NOREPLACE) && !is_new {
        Errno::EXIST
    } else {
        Errno::XDEV
    }
}

/// How a rename is told, if it succeeds, and who loses a name by it.
fn told(
    session: &Session,
    (old, out_of): (&Place, Inode),
    (new, into): (&Place, Inode),
    flags: RenameFlags,
) -> Result<Option<(Operation, Option<Loser>)>, Errno> {
    let (from, to) = (named(old), named(new));
    let is_mapped = |stat: &Option<Stat>| {
        stat.as_ref().is_some_and(|stat| session.tree.get(Key::of(stat)).is_some())
    };
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let names = ((out_of, old.name().to_vec()), (into, new.name().to_vec()));
    let rename =
        |exchange| Operation::Rename { from: names.0.clone(), to: names.1.clone(), exchange };
    let is_same = matches!((&from, &to), (Some(a), Some(b)) if Key::of(a) == Key::of(b));
    if is_same {
        // Two names of one file: nothing happens.
        return Ok(None);
    }
    if exchange {
        return match (is_mapped(&from), is_mapped(&to)) {
            (true, true) => Ok(Some((rename(true), None))),
            (false, false) => Ok(None),
            // One of them is the kernel's alone.
            (true, false) => Ok(Some((rename(false), None))),
            (false, true) => {
                let back = Operation::Rename { from: names.1, to: names.0, exchange: false };
                Ok(Some((back, None)))
            }
        };
    }
    let loser = match &to {
        Some(stat) => loser(session, new, stat)?,
        None => None,
    };
    Ok(match (is_mapped(&from), loser) {
        (true, loser) => Some((rename(false), loser)),
        (false, Some(loser)) => {
            let (parent, name) = names.1;
            Some((Operation::Remove { parent, name }, Some(loser)))
        }
        (false, None) => None,
    })
}
