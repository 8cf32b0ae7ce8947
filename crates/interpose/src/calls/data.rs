//! Calls that move bytes or change a file's length.

use std::os::fd::{AsRawFd, OwnedFd};

use files::{Inode, Operation};
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SeekFrom, Stat, fallocate, fstat, ftruncate, open, seek,
};
use rustix::io::Errno;

use super::{Carried, Descriptor, Mapped, descriptor, mapped, modes};
use crate::notify::{Call, Reply, last_error};
use crate::path;
use crate::process::{Source, read_word};
use crate::supervisor::Session;
use crate::watcher::{Transfer, Way};

/// A write or read as the call gives it.
struct Move {
    source: Source,
    /// The file's own position without.
    offset: Option<i64>,
    flags: i32,
}

fn as_given(call: &Call) -> Result<Move, Errno> {
    let one = || Ok(Source::one(call.thread, call.args[1], call.args[2]));
    let many = || Source::many(call.thread, call.args[1], call.args[2]);
    let at = Some(call.args[3] as i64);
    let (source, offset, flags) = match call.number {
        libc::SYS_write | libc::SYS_read => (one()?, None, 0),
        libc::SYS_pwrite64 | libc::SYS_pread64 => (one()?, at, 0),
        libc::SYS_writev | libc::SYS_readv => (many()?, None, 0),
        libc::SYS_pwritev | libc::SYS_preadv => (many()?, at, 0),
        _ => (many()?, at.filter(|&at| at != -1), call.int(5)),
    };
    if offset.is_some_and(|at| at < 0) {
        return Err(Errno::INVAL);
    }
    Ok(Move { source, offset, flags })
}

pub(super) fn write(session: &mut Session, call: &Call) -> Carried {
    match descriptor(session, call, call.int(0))? {
        Descriptor::Mapped(file) if file.is_for_writing() => write_mapped(session, call, &file),
        Descriptor::Other(stat) if session.wants.outputs => {
            if let Ok(given) = as_given(call) {
                output(session, &stat, given.source);
            }
            Ok(Reply::Continue)
        }
        _ => Ok(Reply::Continue),
    }
}

/// `O_DSYNC`. `OFlags::DSYNC` is `O_SYNC` where rustix does without libc.
const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC as u32);

fn write_mapped(session: &mut Session, call: &Call, file: &Mapped) -> Carried {
    const SYNCS: i32 = libc::RWF_DSYNC | libc::RWF_SYNC;
    let mut given = as_given(call)?;
    let is_opened = file.flags.contains(OFlags::APPEND) && given.flags & libc::RWF_NOAPPEND == 0;
    let is_append = is_opened || given.flags & libc::RWF_APPEND != 0;
    let begin = match given.offset {
        _ if is_append => file.stat.st_size as u64,
        Some(at) => at as u64,
        None => seek(&file.file, SeekFrom::Current(0))?,
    };
    let mut written = 0;
    // A sync is the watcher's, so the kernel is not asked for it.
    let flags = given.flags & !SYNCS;
    let failed = loop {
        match write_piece(session, call, file, &mut given, (begin, written), flags) {
            Ok(0) => break None,
            Ok(len) => written += len,
            Err(errno) => break Some(errno),
        }
    };
    // What went before an error is the call's result, as with the kernel.
    if let (Some(errno), 0) = (failed, written) {
        return Err(errno);
    }
    if written > 0 {
        clear_tail(&file.file, &file.stat, begin);
        session.resized(&file.file, &file.stat)?;
        modes::tell_lost(session, (&file.file, file.inode), &file.stat)?;
        if file.flags.contains(OFlags::DIRECT) {
            transfer(session, file.inode, (begin, written), Way::DirectWrite)?;
        }
        let is_sync = file.flags.contains(OFlags::SYNC) || given.flags & libc::RWF_SYNC != 0;
        if is_sync || file.flags.contains(DSYNC) || given.flags & libc::RWF_DSYNC != 0 {
            session.ask_and_tell(&Operation::Sync { inode: file.inode, data: !is_sync })?;
        }
    }
    Ok(Reply::Value(written as i64))
}

/// The next bytes of a write; how many the kernel took, 0 at the end.
fn write_piece(
    session: &mut Session,
    call: &Call,
    file: &Mapped,
    given: &mut Move,
    (begin, written): (u64, u64),
    flags: i32,
) -> Result<u64, Errno> {
    let len = given.source.fill(session.buffer.bytes())?;
    if len == 0 && (written > 0 || given.source.len() > 0) {
        return Ok(0);
    }
    if !session.listener.is_waiting(call) {
        return Err(Errno::SRCH);
    }
    let offset = begin + written;
    let data = session.buffer.bytes()[..len].to_vec();
    let mut operation = Operation::Write { inode: file.inode, offset, data };
    if len > 0 {
        session.ask(&operation)?;
    }
    let at = given.offset.map_or(-1, |_| offset as i64);
    let piece = libc::iovec { iov_base: session.buffer.bytes().as_mut_ptr().cast(), iov_len: len };
    // SAFETY: the piece is the buffer's beginning, which is only read.
    let write = || match unsafe { libc::pwritev2(file.file.as_raw_fd(), &piece, 1, at, flags) } {
        taken @ 0.. => Ok(taken),
        _ => Err(last_error()),
    };
    let taken = with_room(session, write)?;
    if taken > 0 {
        if let Operation::Write { data, .. } = &mut operation {
            data.truncate(taken as usize);
        }
        session.tell(&operation)?;
    }
    if (taken as usize) < len {
        // The kernel has no room for more; the call ends here.
        given.source = Source::one(call.thread, 0, 0);
    }
    Ok(taken as u64)
}

/// Has the kernel do what takes room where the folder is. Where there is none, files that nobody
/// has any more give theirs back first.
fn with_room<T>(session: &mut Session, take: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match take() {
        Err(Errno::NOSPC) if session.make_room() => take(),
        done => done,
    }
}

/// A file has grown, and nothing was written up to there: what memory of it had in the last page
/// behind its end is no part of it. Some file systems keep that. The call is done, so where
/// this is not possible it stays as they have it.
fn clear_tail(file: &OwnedFd, before: &Stat, up_to: u64) {
    let end = before.st_size as u64;
    let up_to = up_to.min(end.next_multiple_of(4096));
    if up_to > end {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(file, punch, end, up_to - end);
    }
}

fn output(session: &mut Session, stat: &Stat, mut source: Source) {
    let mut buffer = std::mem::take(&mut session.spare);
    buffer.resize(64 << 10, 0);
    while let Ok(len @ 1..) = source.fill(&mut buffer) {
        session.output(stat, &buffer[..len]);
    }
    session.spare = buffer;
}

/// What is sent to sockets.
pub(super) fn send(session: &mut Session, call: &Call) -> Carried {
    let Descriptor::Other(stat) = descriptor(session, call, call.int(0))? else {
        return Ok(Reply::Continue);
    };
    let message = |address: u64| {
        let pieces = read_word(call.thread, address.wrapping_add(16))?;
        let count = read_word(call.thread, address.wrapping_add(24))?;
        Source::many(call.thread, pieces, count)
    };
    /// `struct mmsghdr`: a message and what was sent of it.
    const MESSAGE: u64 = 64;
    let sources = match call.number {
        libc::SYS_sendto => vec![Source::one(call.thread, call.args[1], call.args[2])],
        libc::SYS_sendmsg => message(call.args[1]).into_iter().collect(),
        _ => (0..call.args[2].min(1024))
            .map_while(|n| message(call.args[1].wrapping_add(n * MESSAGE)).ok())
            .collect(),
    };
    for source in sources {
        output(session, &stat, source);
    }
    Ok(Reply::Continue)
}

pub(super) fn transfer(
    session: &mut Session,
    inode: Inode,
    (offset, len): (u64, u64),
    way: Way,
) -> Result<(), Errno> {
    let answer = session.watcher().transfer(&Transfer { inode, offset, len, way });
    session.take(answer)
}

/// The kernel reads, when the watcher lets it.
pub(super) fn read(session: &mut Session, call: &Call) -> Carried {
    let Some(file) = mapped(session, call, call.int(0))?.filter(Mapped::is_for_reading) else {
        return Ok(Reply::Continue);
    };
    let given = as_given(call)?;
    let offset = match given.offset {
        Some(at) => at as u64,
        None => seek(&file.file, SeekFrom::Current(0))?,
    };
    let len = given.source.len().min((file.stat.st_size as u64).saturating_sub(offset));
    if len > 0 {
        let is_direct = file.flags.contains(OFlags::DIRECT);
        let way = if is_direct { Way::DirectRead } else { Way::Read };
        transfer(session, file.inode, (offset, len), way)?;
    }
    Ok(Reply::Continue)
}

pub(super) fn truncate(session: &mut Session, call: &Call) -> Carried {
    let size = call.args[1];
    if size > i64::MAX as u64 {
        // The kernel refuses it before anything else.
        return Ok(Reply::Continue);
    }
    let file = if call.number == libc::SYS_ftruncate {
        match mapped(session, call, call.int(0))? {
            Some(file) if file.is_for_writing() => file.file,
            _ => return Ok(Reply::Continue),
        }
    } else {
        let path = path::argument(call, 0)?;
        path::file(&mut session.processes, call.thread, libc::AT_FDCWD, path, true)?
    };
    let Some(inode) = session.tree.find(&file)? else { return Ok(Reply::Continue) };
    let before = fstat(&file)?;
    let is_file = before.st_mode & libc::S_IFMT == libc::S_IFREG;
    if !is_file || !session.listener.is_waiting(call) {
        return Ok(Reply::Continue);
    }
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let by_path = (call.number == libc::SYS_truncate)
        .then(|| open(path::of_open(&file), flags, Mode::empty()))
        .transpose()?;
    let operation = Operation::Truncate { inode, size };
    session.ask(&operation)?;
    match &by_path {
        None => ftruncate(&file, size)?,
        // Unlike the other it leaves the times where the length stays.
        Some(_) => {
            let name = std::ffi::CString::new(path::of_open(&file)).expect("no zero in it");
            // SAFETY: it reads the name.
            if unsafe { libc::truncate(name.as_ptr(), size as i64) } < 0 {
                return Err(last_error());
            }
        }
    }
    clear_tail(by_path.as_ref().unwrap_or(&file), &before, size);
    session.tell(&operation)?;
    session.resized(&file, &before)?;
    modes::tell_lost(session, (&file, inode), &before)?;
    Ok(Reply::Value(0))
}

pub(super) fn allocate(session: &mut Session, call: &Call) -> Carried {
    let Some(file) = mapped(session, call, call.int(0))?.filter(Mapped::is_for_writing) else {
        return Ok(Reply::Continue);
    };
    let (mode, offset, len) = (call.int(1), call.args[2], call.args[3]);
    let is_wrong = offset > i64::MAX as u64 || len > i64::MAX as u64 || len == 0;
    if is_wrong || offset + len > i64::MAX as u64 {
        return Ok(Reply::Continue);
    }
    let inode = file.inode;
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    // Behind the end there is nothing to punch.
    let held = len.min((file.stat.st_size as u64).saturating_sub(offset));
    let punch = Operation::Punch { inode, offset, len: held };
    let room = Operation::Allocate { inode, offset, len, keep_size };
    let operations = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => vec![room],
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => vec![punch],
        libc::FALLOC_FL_ZERO_RANGE => vec![punch, room],
        _ => return Err(Errno::OPNOTSUPP),
    };
    let operations: Vec<Operation> = operations
        .into_iter()
        .filter(|operation| !matches!(operation, Operation::Punch { len: 0, .. }))
        .collect();
    for operation in &operations {
        session.ask(operation)?;
    }
    let number = file.file.as_raw_fd();
    with_room(session, || {
        // SAFETY: numbers only.
        match unsafe { libc::fallocate(number, mode, offset as i64, len as i64) } {
            0.. => Ok(()),
            _ => Err(last_error()),
        }
    })?;
    if !keep_size {
        clear_tail(&file.file, &file.stat, offset + len);
    }
    for operation in &operations {
        session.tell(operation)?;
    }
    session.resized(&file.file, &file.stat)?;
    modes::tell_lost(session, (&file.file, inode), &file.stat)?;
    Ok(Reply::Value(0))
}
