//! Calls that copy inside the kernel.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, SeekFrom, Stat, fcntl_getfl, fstat, seek};
use rustix::io::Errno;

use super::{Carried, Descriptor, Mapped, data::transfer, descriptor, mapped};
use crate::notify::{Call, Reply};
use crate::process::{CALL_MAX, read_word};
use crate::relay::{Relay, Target};
use crate::supervisor::Session;
use crate::tree::Key;
use crate::watcher::Way;

/// Copies to a mapped file are refused: programs then read and write by themselves, as on file
/// systems that cannot copy. Others the kernel makes; where effects wait or outputs are told, they
/// are made here.
pub(super) fn copy(session: &mut Session, call: &Call, to: usize, errno: Errno) -> Carried {
    let is_clone = call.number == libc::SYS_ioctl;
    let wants = session.wants;
    match descriptor(session, call, call.int(to))? {
        Descriptor::Mapped(file) if file.is_file() => Err(errno),
        Descriptor::Other(_) if (wants.effects || wants.outputs) && !is_clone => {
            relayed(session, call, to, errno)
        }
        _ if wants.reads && !is_clone => read_to_copy(session, call),
        _ => Ok(Reply::Continue),
    }
}

fn source(call: &Call) -> i32 {
    call.int(if call.number == libc::SYS_sendfile { 1 } else { 0 })
}

/// What of a file a call copies.
struct Part {
    /// Where the program has the offset; the file's own position without.
    keeps: Option<u64>,
    offset: u64,
    len: u64,
}

impl Part {
    /// Nothing where the file has nothing there.
    fn of(call: &Call, file: &OwnedFd, stat: &Stat) -> Result<Option<Self>, Errno> {
        // Arguments: where the offset is, the length.
        let (at, len) = if call.number == libc::SYS_sendfile { (2, 3) } else { (1, 4) };
        let keeps = Some(call.args[at]).filter(|&address| address != 0);
        let offset = match keeps {
            None => seek(file, SeekFrom::Current(0))?,
            Some(address) => read_word(call.thread, address)?,
        };
        let left = (stat.st_size as u64).saturating_sub(offset);
        let len = call.args[len].min(CALL_MAX).min(left);
        Ok((len > 0).then_some(Self { keeps, offset, len }))
    }
}

/// The kernel reads what it copies elsewhere, when the watcher lets it.
fn read_to_copy(session: &mut Session, call: &Call) -> Carried {
    let file = mapped(session, call, source(call))?.filter(Mapped::is_for_reading);
    let Some(file) = file else { return Ok(Reply::Continue) };
    if let Some(part) = Part::of(call, &file.file, &file.stat)? {
        transfer(session, file.inode, (part.offset, part.len), Way::Read)?;
    }
    Ok(Reply::Continue)
}

/// An open file of the program, mapped or not.
struct Open {
    file: OwnedFd,
    stat: Stat,
    flags: OFlags,
}

impl Open {
    fn of(session: &mut Session, call: &Call, number: i32) -> Result<Self, Errno> {
        let file = session.processes.file(call.thread, number)?;
        let (stat, flags) = (fstat(&file)?, fcntl_getfl(&file)?);
        Ok(Self { file, stat, flags })
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Whether it is not only for what that mode is for.
    fn is_more_than(&self, mode: OFlags) -> bool {
        !self.flags.contains(OFlags::PATH) && self.flags & OFlags::RWMODE != mode
    }
}

/// A copy to what is not mapped, made here: of a mapped file, and where outputs are told of any.
/// The bytes of what is no file would be gone with the look at them.
fn relayed(session: &mut Session, call: &Call, to: usize, errno: Errno) -> Carried {
    if let Descriptor::Unknown = descriptor(session, call, source(call))? {
        return Ok(Reply::Continue);
    }
    let from = Open::of(session, call, source(call))?;
    let inode = session.tree.get(Key::of(&from.stat));
    let is_file = from.kind() == FileType::RegularFile;
    match session.wants.outputs {
        true if !is_file => return Err(errno),
        false if !is_file || inode.is_none() => return Ok(Reply::Continue),
        _ if call.number == libc::SYS_copy_file_range => return Err(errno),
        _ => {}
    }
    let to = Open::of(session, call, call.int(to))?;
    let kind = to.kind();
    let is_splice = call.number == libc::SYS_splice;
    let fits = match kind {
        FileType::Fifo => !is_splice || call.args[3] == 0,
        _ => !is_splice && !to.flags.contains(OFlags::APPEND),
    };
    let fits = fits && from.is_more_than(OFlags::WRONLY) && to.is_more_than(OFlags::RDONLY);
    let Some(part) = Part::of(call, &from.file, &from.stat)?.filter(|_| fits) else {
        return Ok(Reply::Continue);
    };
    let is_asked_not_to = is_splice && call.int(5) as u32 & libc::SPLICE_F_NONBLOCK != 0;
    let waits = !to.flags.contains(OFlags::NONBLOCK) && !is_asked_not_to;
    let target = match Target::of(to.file, &to.stat) {
        // Nobody reads: the kernel says so.
        Err(Errno::NXIO) => return Ok(Reply::Continue),
        target => target.ok().flatten().ok_or(errno)?,
    };
    if let Some(inode) = inode.filter(|_| session.wants.reads) {
        transfer(session, inode, (part.offset, part.len), Way::Read)?;
    }
    Ok(Reply::Relay(Box::new(Relay {
        call: *call,
        from: from.file,
        keeps: part.keeps,
        offset: part.offset,
        left: part.len,
        to: target,
        stat: to.stat,
        waits,
        // The kernel fills a pipe once.
        is_whole: kind != FileType::Fifo,
        done: 0,
    })))
}
