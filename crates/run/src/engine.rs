//! A drive as a disk of files. Its time is the wall's while nothing is asked of it. Nothing here
//! waits:
//!
//! - What the file system asks goes ahead in virtual time, and whoever asked waits on the wall
//!   until the drive has got there. What is asked meanwhile begins when the drive is done with
//!   that: calls of the file system wait for each other, the blocks of one call do not.
//! - Reads of data that the program has in memory anyway, and that are asked for their time only,
//!   go along with the wall, as many as come, beside each other and beside what goes ahead.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use drive::patience::Patience;
use drive::whole::Boxed;
use files::{BLOCK, Disk, DiskError, Request};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time, Turn};

/// The most bytes of one request.
const PIECE: u64 = 128 << 10;
/// The most requests that are inside at once, as with Linux.
const DEPTH: usize = 256;

/// What was asked of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Requests.
    pub requests: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
}

/// The numbers of requests that go along with the wall are from here on, those of reads.
const ALONG: u64 = 1 << 63;

/// A read that goes along with the wall.
struct Along {
    at: u64,
    blocks: u64,
    /// Requests of it that are not over.
    left: usize,
    status: Status,
}

impl Along {
    /// One of its requests is over, with that; whether all are.
    fn is_over_with(&mut self, status: Status) -> bool {
        self.left -= 1;
        if !status.is_ok() {
            self.status = status;
        }
        self.left == 0
    }

    fn result(&self) -> Result<(), DiskError> {
        let Self { at, blocks, status, .. } = *self;
        let error = DiskError { request: Request::Read, at, blocks, status };
        if status.is_ok() { Ok(()) } else { Err(error) }
    }
}

/// A drive, and its time.
pub struct Engine {
    drive: Boxed,
    shape: Shape,
    now: Time,
    /// When the wall's time began, and the drive's then.
    began: Option<(Instant, Time)>,
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    patience: Patience,
    /// Requests of either kind that the drive has.
    inside: usize,
    /// Of reads that go along, requests that the drive does not have yet: read, offset, bytes.
    waiting: VecDeque<(u64, u64, u64)>,
    along: HashMap<u64, Along>,
    reads: u64,
    /// Those that are over, and when, by the drive's time.
    over: VecDeque<(u64, Time, Result<(), DiskError>)>,
    /// By [`Engine::kind`].
    asked: [Asked; 4],
}

impl Engine {
    fn new(drive: Boxed, ready: Time) -> Self {
        let shape = drive.shape();
        let depth = DEPTH.min(shape.depth);
        Self {
            drive,
            shape,
            now: ready,
            began: None,
            cmds: Ring::new(depth),
            done: Ring::new(depth),
            patience: Patience::default(),
            inside: 0,
            waiting: VecDeque::new(),
            along: HashMap::new(),
            reads: 0,
            over: VecDeque::new(),
            asked: [Asked::default(); 4],
        }
    }

    fn kind(op: BlockOp) -> usize {
        match op {
            BlockOp::Read => 0,
            BlockOp::Write => 1,
            BlockOp::Flush => 2,
            _ => 3,
        }
    }

    /// The drive's time by the wall.
    fn wall(&self) -> Time {
        match self.began {
            Some((at, time)) => time + at.elapsed().as_nanos() as u64,
            None => self.now,
        }
    }

    /// Lets happen in the drive what did until now.
    fn catch_up(&mut self) {
        let wall = self.wall();
        while self.now < wall {
            let Self { drive, now, cmds, done, .. } = self;
            match drive.turn(*now, Some(wall), cmds, done) {
                Turn::Completed(at) => {
                    *now = at.max(*now);
                    self.take(&mut Bytes::None);
                    self.send_waiting();
                }
                Turn::Stays(at) => {
                    *now = at.max(*now);
                    self.patience.look(at);
                }
                Turn::Quiet => *now = wall,
            }
        }
    }

    /// Takes what completed; how many were of what goes ahead, and whether one of these failed.
    fn take(&mut self, bytes: &mut Bytes) -> (usize, Status) {
        let (mut count, mut status) = (0, Status::SUCCESS);
        for done in self.done.drain() {
            self.inside -= 1;
            if done.id & ALONG != 0 {
                let read = done.id & !ALONG;
                let Some(along) = self.along.get_mut(&read) else { unreachable!("it was asked") };
                if along.is_over_with(done.status) {
                    self.over.push_back((read, self.now, along.result()));
                    self.along.remove(&read);
                }
                continue;
            }
            count += 1;
            if !done.status.is_ok() {
                status = done.status;
            } else if let Bytes::To(to) = bytes {
                let at = done.id as usize;
                to[at..at + done.buffer.len()].copy_from_slice(done.buffer.bytes());
            }
        }
        (count, status)
    }

    /// Gives the drive what waits of reads, as far as it has room.
    fn send_waiting(&mut self) {
        while self.inside < self.cmds.capacity() {
            let Some((read, offset, size)) = self.waiting.pop_front() else { break };
            if let Err(status) = self.put(BlockOp::Read, (offset, size), ALONG | read, None) {
                let Some(along) = self.along.get_mut(&read) else { unreachable!("it was asked") };
                if along.is_over_with(status) {
                    self.over.push_back((read, self.now, along.result()));
                    self.along.remove(&read);
                }
            }
        }
        if !self.cmds.is_empty() {
            self.drive.submit(self.now, &mut self.cmds);
        }
    }

    /// Begins a read of runs of blocks, whose bytes nobody wants; its number.
    fn read_along(&mut self, runs: &[Range<u64>]) -> u64 {
        self.catch_up();
        self.reads += 1;
        let (read, piece) = (self.reads, PIECE.min(self.shape.max_bytes));
        for run in runs {
            let (mut at, end) = (run.start * BLOCK as u64, run.end * BLOCK as u64);
            while at < end {
                let size = (end - at).min(piece);
                self.waiting.push_back((read, at, size));
                at += size;
            }
        }
        let left = self.waiting.iter().filter(|it| it.0 == read).count();
        let at = runs.first().map_or(0, |run| run.start);
        let blocks = runs.iter().map(|run| run.end - run.start).sum();
        self.along.insert(read, Along { at, blocks, left, status: Status::SUCCESS });
        self.send_waiting();
        read
    }

    /// Carries out requests for whole blocks; `each` gets what was read of it, or gives what is
    /// to be written.
    fn carry_out(
        &mut self,
        op: BlockOp,
        (offset, len): (u64, u64),
        bytes: &mut Bytes,
    ) -> Result<(), Status> {
        self.catch_up();
        let piece = match op {
            BlockOp::Read | BlockOp::Write => PIECE.min(self.shape.max_bytes),
            _ => u64::MAX,
        };
        let (mut next, mut ahead, mut status) = (0, 0, Status::SUCCESS);
        let mut has_more = true;
        while has_more || ahead > 0 {
            while has_more && self.inside < self.cmds.capacity() {
                let size = (len - next).min(piece);
                let from = match bytes {
                    Bytes::From(from) => Some(&from[next as usize..][..size as usize]),
                    _ => None,
                };
                if let Err(failed) = self.put(op, (offset + next, size), next, from) {
                    (status, has_more) = (failed, false);
                    break;
                }
                (next, ahead) = (next + size, ahead + 1);
                has_more = next < len;
            }
            if ahead == 0 && !has_more {
                break;
            }
            match self.drive.turn(self.now, None, &mut self.cmds, &mut self.done) {
                Turn::Completed(at) => self.now = self.now.max(at),
                Turn::Quiet => return Err(Status::INTERNAL),
                Turn::Stays(at) => {
                    self.now = self.now.max(at);
                    self.patience.look(at);
                }
            }
            let (over, failed) = self.take(bytes);
            ahead -= over;
            if !failed.is_ok() {
                status = failed;
            }
        }
        self.send_waiting();
        if status.is_ok() { Ok(()) } else { Err(status) }
    }

    /// Puts a request where the drive takes it from.
    fn put(
        &mut self,
        op: BlockOp,
        (offset, size): (u64, u64),
        id: u64,
        from: Option<&[u8]>,
    ) -> Result<(), Status> {
        let moved = if matches!(op, BlockOp::Read | BlockOp::Write) { size } else { 0 };
        let mut buffer = Buffer::zeroed(moved as usize).map_err(|_| Status::INTERNAL)?;
        if let Some(from) = from {
            buffer.bytes_mut().copy_from_slice(from);
        }
        let asked = &mut self.asked[Self::kind(op)];
        asked.requests += 1;
        asked.bytes += moved;
        self.inside += 1;
        self.cmds.put(|| BlockReq::new(id, op, offset, size, buffer));
        Ok(())
    }
}

/// Where the bytes of requests go.
enum Bytes<'a> {
    None,
    From(&'a [u8]),
    To(&'a mut [u8]),
}

/// A disk of files, shared by the file system and who keeps its time.
#[derive(Clone)]
pub struct DriveDisk(Rc<RefCell<Engine>>);

impl DriveDisk {
    /// A drive, which is ready at that time of its own.
    pub fn new(drive: Boxed, ready: Time) -> Self {
        Self(Rc::new(RefCell::new(Engine::new(drive, ready))))
    }

    /// From now on its time is the wall's, and its faults strike.
    pub fn begin(&self) {
        let mut engine = self.0.borrow_mut();
        engine.drive.begin_faults();
        engine.began = Some((Instant::now(), engine.now));
    }

    /// When the drive is done with what was asked since its time was `since`, where something
    /// was, and that is still to come.
    pub fn until(&self, since: Time) -> Option<Instant> {
        let engine = self.0.borrow();
        let (at, time) = engine.began?;
        (engine.now > since && engine.now > engine.wall())
            .then(|| at + Duration::from_nanos(engine.now.since(time)))
    }

    /// Begins a read of runs of blocks whose bytes are in memory, along with the wall; its number.
    pub fn read_along(&self, runs: &[Range<u64>]) -> u64 {
        self.0.borrow_mut().read_along(runs)
    }

    /// The next of those reads that is over by the wall.
    pub fn over(&self) -> Option<(u64, Result<(), DiskError>)> {
        let mut engine = self.0.borrow_mut();
        engine.catch_up();
        let wall = engine.wall();
        engine.over.pop_front_if(|it| it.1 <= wall).map(|(read, _, result)| (read, result))
    }

    /// When to look for the next, while there are any.
    pub fn next_over(&self) -> Option<Instant> {
        let engine = self.0.borrow();
        let (at, time) = engine.began?;
        let next = match engine.over.front() {
            Some(over) => Some(over.1),
            None if engine.along.is_empty() => None,
            None => engine.drive.next_event().map(|event| event.max(engine.now)),
        };
        next.map(|next| at + Duration::from_nanos(next.since(time)))
    }

    /// The drive's time: it moves with what is asked.
    pub fn now(&self) -> Time {
        self.0.borrow().now
    }

    /// What was asked: reads, writes, flushes, trims.
    pub fn asked(&self) -> [Asked; 4] {
        self.0.borrow().asked
    }

    /// Looks at the drive.
    pub fn look<T>(&self, look: impl FnOnce(&Boxed) -> T) -> T {
        look(&self.0.borrow().drive)
    }

    /// The drive alone, with its time; none where somebody else still has it.
    pub fn into_drive(self) -> Option<(Boxed, Time)> {
        let mut engine = Rc::try_unwrap(self.0).ok()?.into_inner();
        engine.catch_up();
        // Who read may have been killed.
        while engine.inside > 0 {
            let Engine { drive, now, cmds, done, .. } = &mut engine;
            match drive.turn(*now, None, cmds, done) {
                Turn::Completed(at) | Turn::Stays(at) => *now = at.max(*now),
                Turn::Quiet => break,
            }
            engine.take(&mut Bytes::None);
        }
        Some((engine.drive, engine.now))
    }

    fn ask(
        &self,
        request: Request,
        at: u64,
        blocks: u64,
        mut bytes: Bytes,
    ) -> Result<(), DiskError> {
        let op = match request {
            Request::Read => BlockOp::Read,
            Request::Write => BlockOp::Write,
            Request::Flush => BlockOp::Flush,
            Request::Trim => BlockOp::Trim,
        };
        let range = (at * BLOCK as u64, blocks * BLOCK as u64);
        let mut engine = self.0.borrow_mut();
        engine.carry_out(op, range, &mut bytes).map_err(|status| DiskError {
            request,
            at,
            blocks,
            status,
        })
    }
}

impl Disk for DriveDisk {
    fn blocks(&self) -> u64 {
        self.0.borrow().shape.bytes / BLOCK as u64
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        let blocks = (bytes.len() / BLOCK) as u64;
        if blocks == 0 {
            return Ok(());
        }
        self.ask(Request::Read, at, blocks, Bytes::To(bytes))
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let blocks = (bytes.len() / BLOCK) as u64;
        if blocks == 0 {
            return Ok(());
        }
        self.ask(Request::Write, at, blocks, Bytes::From(bytes))
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.ask(Request::Flush, 0, 0, Bytes::None)
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        if blocks == 0 {
            return Ok(());
        }
        self.ask(Request::Trim, at, blocks, Bytes::None)
    }
}
