//! Copies of a file to a pipe, a socket or another file that the kernel would make by itself, made
//! here: the kernel hands the file's own pages over, and with them what is written there later,
//! and nobody hears what they were. What does not fit goes on later, as only the program waits.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat, open, seek};
use rustix::io::{Errno, pread, write};
use rustix::net::{SendFlags, send};

use crate::notify::{Call, Reply};
use crate::path;
use crate::process;
use crate::supervisor::Session;

/// Bytes that are read and written at once.
const PIECE: u64 = 64 << 10;
/// Bytes after which other calls have their turn.
const TURN: u64 = 4 << 20;

/// Where bytes go, which never waits.
#[derive(Debug)]
pub(crate) enum Target {
    Socket(OwnedFd),
    /// Opened anew, as waiting or not is of an open file.
    Pipe(OwnedFd),
    File(OwnedFd),
}

impl Target {
    /// Nothing where the kernel copies to no such file.
    pub fn of(file: OwnedFd, stat: &Stat) -> Result<Option<Self>, Errno> {
        Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Self::Socket(file),
            FileType::Fifo => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                Self::Pipe(open(path::of_open(&file), flags, Mode::empty())?)
            }
            FileType::RegularFile => Self::File(file),
            _ => return Ok(None),
        }))
    }

    pub fn file(&self) -> &OwnedFd {
        let (Self::Socket(file) | Self::Pipe(file) | Self::File(file)) = self;
        file
    }

    fn take(&self, bytes: &[u8]) -> Result<u64, Errno> {
        let taken = match self {
            Self::Socket(file) => send(file, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Self::Pipe(file) | Self::File(file) => write(file, bytes),
        };
        taken.map(|it| it as u64)
    }
}

/// A copy that is under way.
#[derive(Debug)]
pub(crate) struct Relay {
    pub call: Call,
    pub from: OwnedFd,
    /// Where the program has the offset; the file's own position without.
    pub keeps: Option<u64>,
    pub offset: u64,
    pub left: u64,
    pub to: Target,
    pub stat: Stat,
    /// Whether it waits for room while nothing was copied, and until all was.
    pub waits: bool,
    pub is_whole: bool,
    /// What was copied.
    pub done: u64,
}

/// How far a copy came.
pub(crate) enum Step {
    Done(Reply),
    /// The rest goes on when there is room.
    Waits,
}

impl Relay {
    /// Copies what there is room for.
    pub fn step(&mut self, session: &mut Session) -> Step {
        if !session.listener.is_waiting(&self.call) {
            return Step::Done(Reply::Error(Errno::SRCH));
        }
        let mut buffer = std::mem::take(&mut session.spare);
        buffer.resize(PIECE as usize, 0);
        let copied = self.copy(session, &mut buffer);
        session.spare = buffer;
        match copied {
            Err(Errno::AGAIN) if self.waits && (self.is_whole || self.done == 0) => Step::Waits,
            Err(errno) if self.done == 0 => Step::Done(match errno {
                // The kernel says so, with its signal.
                Errno::PIPE => Reply::Continue,
                errno => Reply::Error(errno),
            }),
            _ => Step::Done(self.end()),
        }
    }

    fn copy(&mut self, session: &mut Session, buffer: &mut [u8]) -> Result<(), Errno> {
        let turn = self.done + TURN;
        while self.left > 0 {
            if self.done >= turn {
                // A file never has room later: the program asks for the rest.
                let is_over = matches!(self.to, Target::File(_));
                return if is_over { Ok(()) } else { Err(Errno::AGAIN) };
            }
            let most = self.left.min(PIECE) as usize;
            let got = pread(&self.from, &mut buffer[..most], self.offset)?;
            if got == 0 {
                break;
            }
            let taken = self.to.take(&buffer[..got])?;
            if session.wants.outputs {
                session.output(&self.stat, &buffer[..taken as usize]);
            }
            (self.offset, self.left) = (self.offset + taken, self.left - taken);
            self.done += taken;
        }
        Ok(())
    }

    /// The program hears how far it came.
    fn end(&self) -> Reply {
        let kept = match self.keeps {
            Some(address) => process::write(self.call.thread, address, &self.offset),
            None => seek(self.from.as_fd(), SeekFrom::Start(self.offset)).map(drop),
        };
        kept.map_or_else(Reply::Error, |()| Reply::Value(self.done as i64))
    }
}
