//! A block drive shared by many threads that wait for their requests.
//!
//! Each thread starts requests and waits for them. One of those that wait, the
//! leader, polls the drive, wakes the others when theirs end, and gives way to
//! threads with work to do between two polls; the others sleep. So there is no
//! polling thread, and no thread is woken for nothing. Buffers are kept for
//! reuse, by their length.
//!
//! Fails with what the drive says of a request. A drive that is gone never
//! ends a request: it must outlive the disk.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use btree::Awaited;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};

use crate::files::FileError;

/// A drive that any thread may use, one at a time.
pub type SharedDrive = Box<dyn Awaited<Cmd = BlockReq, Done = BlockDone> + Send>;

/// Requests that may be under way at once.
const SLOTS: usize = 1024;
/// Buffers of one length that are kept.
const KEPT: usize = 256;

/// A request under way. It must be waited for, or its slot is lost.
#[must_use]
#[derive(Debug)]
pub struct Ticket(u32);

/// A request's state.
enum Slot {
    Free,
    /// With the drive; this thread sleeps until it ends.
    Outside(Option<Thread>),
    Ended(BlockDone),
}

/// What the disk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Read requests.
    pub reads: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Flushes.
    pub flushes: u64,
}

struct Inner {
    drive: SharedDrive,
    now: Time,
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Who polls.
    leader: Option<u32>,
    /// Requests whose threads went to sleep; those that ended are among them.
    asleep: VecDeque<u32>,
    /// Buffers, by their blocks.
    pools: Vec<Vec<Buffer>>,
    counters: DiskCounters,
}

/// The disk.
pub struct Disk {
    inner: Mutex<Inner>,
    shape: Shape,
}

impl Inner {
    /// Gives the drive what waits, and takes what ended.
    fn poll(&mut self) {
        if !self.cmds.is_empty() {
            self.drive.submit(self.now, &mut self.cmds);
        }
        if let Some(at) = self.drive.next_event() {
            self.now = self.now.max(at);
            self.drive.advance(at, &mut self.done);
        }
        while let Some(done) = self.done.pop() {
            let slot = &mut self.slots[done.id as usize];
            if let Slot::Outside(Some(sleeper)) = std::mem::replace(slot, Slot::Ended(done)) {
                sleeper.unpark();
            }
        }
    }

    /// What the request gave, if it has ended.
    fn take(&mut self, ticket: &Ticket) -> Option<BlockDone> {
        let slot = &mut self.slots[ticket.0 as usize];
        if !matches!(slot, Slot::Ended(_)) {
            return None;
        }
        let Slot::Ended(done) = std::mem::replace(slot, Slot::Free) else { return None };
        self.free.push(ticket.0);
        if self.leader == Some(ticket.0) {
            self.leader = None;
            self.wake_next();
        }
        Some(done)
    }

    /// Wakes one that sleeps, to lead.
    fn wake_next(&mut self) {
        while let Some(next) = self.asleep.pop_front() {
            if let Slot::Outside(sleeper) = &mut self.slots[next as usize]
                && let Some(sleeper) = sleeper.take()
            {
                return sleeper.unpark();
            }
        }
    }
}

impl Disk {
    /// The disk on `drive`.
    pub fn new(drive: SharedDrive, shape: Shape) -> Disk {
        let inner = Inner {
            drive,
            now: Time::ZERO,
            cmds: Ring::new(SLOTS),
            done: Ring::new(SLOTS),
            slots: (0..SLOTS).map(|_| Slot::Free).collect(),
            free: (0..SLOTS as u32).rev().collect(),
            leader: None,
            asleep: VecDeque::with_capacity(SLOTS),
            pools: Vec::new(),
            counters: DiskCounters::default(),
        };
        Disk { inner: Mutex::new(inner), shape }
    }

    /// The drive's outside.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What it has done so far.
    pub fn counters(&self) -> DiskCounters {
        self.lock().counters
    }

    /// The drive again. No request may be under way.
    pub fn into_drive(self) -> SharedDrive {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner).drive
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `blocks` blocks, with anything in it.
    pub fn buffer(&self, blocks: usize) -> Result<Buffer, FileError> {
        let kept = self.lock().pools.get_mut(blocks).and_then(Vec::pop);
        match kept {
            Some(buffer) => Ok(buffer),
            None => Buffer::zeroed(blocks * BLOCK_BYTES as usize).map_err(|_| FileError::Memory),
        }
    }

    /// Keeps a buffer for reuse.
    pub fn give_back(&self, buffer: Buffer) {
        keep(&mut self.lock(), buffer);
    }

    /// Starts a request; `buffer` is as long as `len` where it has data.
    pub fn start(&self, op: BlockOp, offset: u64, len: u64, buffer: Buffer) -> Ticket {
        let mut inner = self.lock();
        let slot = loop {
            match inner.free.pop() {
                Some(slot) => break slot,
                None => {
                    inner.poll();
                    drop(inner);
                    thread::yield_now();
                    inner = self.lock();
                }
            }
        };
        let c = &mut inner.counters;
        match op {
            BlockOp::Read => {
                (c.reads, c.blocks_read) = (c.reads + 1, c.blocks_read + len / BLOCK_BYTES)
            }
            BlockOp::Write => {
                (c.writes, c.blocks_written) = (c.writes + 1, c.blocks_written + len / BLOCK_BYTES);
            }
            BlockOp::Flush => c.flushes += 1,
            BlockOp::Trim | BlockOp::WriteZeroes => {}
        }
        inner.slots[slot as usize] = Slot::Outside(None);
        let req = BlockReq::new(u64::from(slot), op, offset, len, buffer);
        let kept = inner.cmds.push(req);
        assert!(kept.is_ok(), "the ring has room for all slots");
        let Inner { drive, cmds, now, .. } = &mut *inner;
        drive.submit(*now, cmds);
        Ticket(slot)
    }

    /// Waits for a request. Gives its buffer back.
    pub fn wait(&self, ticket: Ticket) -> Result<Buffer, FileError> {
        let mut inner = self.lock();
        loop {
            if let Some(done) = inner.take(&ticket) {
                drop(inner);
                return outcome(done);
            }
            if inner.leader.is_none_or(|leader| leader == ticket.0) {
                inner.leader = Some(ticket.0);
                inner.poll();
                if matches!(inner.slots[ticket.0 as usize], Slot::Ended(_)) {
                    continue;
                }
                drop(inner);
                thread::yield_now();
            } else {
                let slot = &mut inner.slots[ticket.0 as usize];
                if let Slot::Outside(sleeper) = slot
                    && sleeper.replace(thread::current()).is_none()
                {
                    inner.asleep.push_back(ticket.0);
                }
                drop(inner);
                thread::park();
            }
            inner = self.lock();
        }
    }

    /// Makes all that was written durable.
    pub fn flush(&self) -> Result<(), FileError> {
        self.wait(self.start(BlockOp::Flush, 0, 0, Buffer::empty())).map(drop)
    }
}

fn keep(inner: &mut Inner, buffer: Buffer) {
    let blocks = buffer.len() / BLOCK_BYTES as usize;
    if blocks >= inner.pools.len() {
        inner.pools.resize_with(blocks + 1, Vec::new);
    }
    let pool = &mut inner.pools[blocks];
    if pool.len() < KEPT {
        pool.push(buffer);
    }
}

fn outcome(done: BlockDone) -> Result<Buffer, FileError> {
    if done.status == Status::SUCCESS {
        return Ok(done.buffer);
    }
    Err(FileError::Drive { op: done.op, status: done.status })
}
