//! Who is told what a program does.

use std::os::fd::OwnedFd;
use std::time::Instant;

use files::{Inode, Operation};
use rustix::io::Errno;

/// What a watcher wants to hear of beside operations. Each costs the program time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Reads of mapped files, by [`Watcher::transfer`].
    pub reads: bool,
    /// What is written or sent to what is not mapped, by [`Watcher::output`].
    pub outputs: bool,
    /// What others can see, to hold it up: [`Watcher::awaited`].
    pub effects: bool,
    /// Who asks how much room there is, to tell it: [`Watcher::room`].
    pub room: bool,
}

/// How much room files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a block.
    pub block: u64,
    /// Blocks that files can have in all.
    pub blocks: u64,
    /// How many of them are left.
    pub free: u64,
}

/// When the program gets the answer to its call, and whether an error in place of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Not before then; at once without.
    pub at: Option<Instant>,
    /// Not before [`Watcher::over`] gives this number, which no other answer has.
    pub ticket: Option<u64>,
    /// The call fails with it.
    pub error: Option<Errno>,
}

impl Answer {
    /// As the kernel has it, at once.
    pub const NOW: Self = Self { at: None, ticket: None, error: None };

    /// As the kernel has it, at that time.
    pub fn at(at: Instant) -> Self {
        Self { at: Some(at), ..Self::NOW }
    }
}

/// Bytes of a mapped file on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Read, through the page cache.
    Read,
    /// Read past the page cache (`O_DIRECT`).
    DirectRead,
    /// Written past the page cache; the write itself was told before as an operation.
    DirectWrite,
}

/// A read, or a write that does not stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Of which file.
    pub inode: Inode,
    /// In bytes.
    pub offset: u64,
    /// In bytes, as asked; a read may end earlier.
    pub len: u64,
    /// Which way.
    pub way: Way,
}

/// Whether the program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It does; the watcher is asked again at that time at the latest.
    Go(Option<Instant>),
    /// All its processes are killed.
    Stop,
}

/// Gets what a program does, in the order in which it happens. It is called on the supervisor's
/// thread: as long as it takes, no call of the program goes on.
pub trait Watcher {
    /// What it wants to hear of. Asked once, before the program starts.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// A file that can be read when [`Watcher::course`] is to be asked before the time that it
    /// named; what is in it, up to 8 bytes, is read for that. Asked once, before the program starts.
    fn bell(&mut self) -> Option<OwnedFd> {
        None
    }

    /// The program makes a call: what is told until the next is of this one, or what the end of
    /// others left.
    fn begins(&mut self) {}

    /// This is about to happen. With an error nothing does, and the program gets the error.
    fn before(&mut self, operation: &Operation) -> Result<(), Errno> {
        let _ = operation;
        Ok(())
    }

    /// This has happened to the kernel's view; of a write what the kernel took of it. A sync has
    /// no part in the kernel: it is what the answer says. Errors of other operations come too late
    /// to keep the kernel's view from changing.
    fn after(&mut self, operation: &Operation) -> Answer;

    /// The next answer that waited by its number, and whether an error in place of the result.
    fn over(&mut self) -> Option<(u64, Option<Errno>)> {
        None
    }

    /// Bytes go between drive and program.
    fn transfer(&mut self, transfer: &Transfer) -> Answer {
        let _ = transfer;
        Answer::NOW
    }

    /// How much room the mapped files have. Without an answer the program hears of the folder's.
    fn room(&mut self) -> Option<Room> {
        None
    }

    /// The program is about to write this where nothing is mapped: 1 and 2 are what it got as
    /// standard output and error, others get numbers from 3 on as they come. Of a call that
    /// writes only a part of it, or fails, all is told.
    fn output(&mut self, stream: u32, data: &[u8]) {
        let _ = (stream, data);
    }

    /// A call was refused that would go past the supervisor; told once for each.
    fn refused(&mut self, call: &'static str) {
        let _ = call;
    }

    /// A process says that it ends, with this code.
    fn exiting(&mut self, process: u32, code: i32) {
        let _ = (process, code);
    }

    /// What the program would wait for, were it about to do what others can see: to write, send,
    /// make, remove, signal or end something outside the mapped files. Nothing where none is given.
    /// Numbers never become less.
    fn awaited(&mut self) -> Option<u64> {
        None
    }

    /// It is about to, and waits until [`Watcher::reached`] is at that number. Calls of other
    /// threads go on.
    fn holds(&mut self, number: u64) {
        let _ = number;
    }

    /// What waits for numbers up to this may happen.
    fn reached(&mut self) -> u64 {
        u64::MAX
    }

    /// From now on the program has memory that others see, and no call tells what it writes there.
    fn shares(&mut self) {}

    /// Asked after each call, when the time has come that it named, and when its bell rings.
    fn course(&mut self) -> Course {
        Course::Go(None)
    }
}
