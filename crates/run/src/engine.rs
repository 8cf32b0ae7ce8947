//! A drive as a disk of files. Its time is the wall's while nothing is asked of it. Nothing here
//! waits:
//!
//! - What the file system asks goes ahead in virtual time, and whoever asked waits on the wall
//!   until the drive has got there. What is asked meanwhile begins when the drive is done with
//!   that: calls of the file system wait for each other, the blocks of one call do not.
//! - Reads of data that the program has in memory anyway, and that are asked for their time only,
//!   go along with the wall, as many as come, beside each other and beside what goes ahead.
//! - A flush of a drive whose bytes are in a file ends when the disk below has them. Whoever has
//!   the bell ([`DriveDisk::bell`]) need not wait for that: it rings when it is time to look. The
//!   drive's own time stands still meanwhile, and so reads that go along wait, too.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use drive::patience::Patience;
use drive::whole::{Boxed, devices};
use files::{BLOCK, Disk, DiskError, Request};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time, Turn};

use crate::bell::Bell;

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
/// The number of a flush that nobody waits for.
const FLUSH: u64 = 1 << 62;

/// Events at one moment after which the drive waits for a disk, most likely.
const SAME_EVENTS: u32 = 64;
/// It is looked again after that, should nobody ring.
const LOOK: Duration = Duration::from_millis(1);

/// A flush that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    None,
    UnderWay,
    Over(Status),
}

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
    flush: Flush,
    /// Who need not wait for a disk is told by it.
    bell: Option<Bell>,
    /// The drive waits for a disk, and is looked at then, if nothing rings.
    look_at: Option<Instant>,
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
            flush: Flush::None,
            bell: None,
            look_at: None,
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
                    if self.flush == Flush::UnderWay {
                        // Who asks for it goes on with the rest.
                        return;
                    }
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
            if done.id == FLUSH {
                self.flush = Flush::Over(done.status);
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

    /// Begins a flush. None is under way.
    fn begin_flush(&mut self) -> Result<(), Status> {
        self.catch_up();
        while self.inside >= self.cmds.capacity() {
            if let Some(at) = self.turn()? {
                self.patience.look(at);
            }
        }
        self.flush = Flush::UnderWay;
        self.look_at = None;
        self.put(BlockOp::Flush, (0, 0), FLUSH, None)
    }

    /// Goes on with the flush under way, as far as the disk is, or to its end with `wait`; whether
    /// it is over.
    fn flushed(&mut self, wait: bool) -> Result<bool, Status> {
        if !wait && self.flush == Flush::UnderWay && self.is_early() {
            return Ok(false);
        }
        self.look_at = None;
        let mut same = (Time::ZERO, 0);
        while self.flush == Flush::UnderWay {
            let Some(at) = self.turn()? else { continue };
            same = if at == same.0 { (at, same.1 + 1) } else { (at, 0) };
            if !wait && self.bell.is_some() && same.1 >= SAME_EVENTS {
                self.look_at = Some(Instant::now() + LOOK);
                return Ok(false);
            }
            if wait || self.bell.is_none() {
                self.patience.look(at);
            }
        }
        match std::mem::replace(&mut self.flush, Flush::None) {
            Flush::Over(status) if !status.is_ok() => Err(status),
            _ => Ok(true),
        }
    }

    /// Whether the drive waits for a disk that has not rung.
    fn is_early(&self) -> bool {
        let Some(at) = self.look_at else { return false };
        let rang = self.bell.as_ref().is_some_and(Bell::has_rung);
        !rang && Instant::now() < at
    }

    /// Lets something happen in the drive; the moment, where it stays at that.
    fn turn(&mut self) -> Result<Option<Time>, Status> {
        let stays = match self.drive.turn(self.now, None, &mut self.cmds, &mut self.done) {
            Turn::Quiet => return Err(Status::INTERNAL),
            Turn::Completed(at) => {
                self.now = self.now.max(at);
                None
            }
            Turn::Stays(at) => {
                self.now = self.now.max(at);
                Some(at)
            }
        };
        self.take(&mut Bytes::None);
        self.send_waiting();
        Ok(stays)
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

    /// When to look for the next, or for the end of a flush, while there are any.
    pub fn next_look(&self) -> Option<Instant> {
        let engine = self.0.borrow();
        let (at, time) = engine.began?;
        let next = match engine.over.front() {
            Some(over) => Some(over.1),
            // Its time stands still.
            None if engine.along.is_empty() || engine.look_at.is_some() => None,
            None => engine.drive.next_event().map(|event| event.max(engine.now)),
        };
        let next = next.map(|next| at + Duration::from_nanos(next.since(time)));
        next.into_iter().chain(engine.look_at).min()
    }

    /// What can be read when a disk has done what the drive waits for. From now on flushes are
    /// begun for which nobody waits.
    pub fn bell(&self) -> io::Result<OwnedFd> {
        let mut engine = self.0.borrow_mut();
        let (bell, file) = Bell::new()?;
        for wakes in devices(&*engine.drive).filter_map(|it| it.medium().wakes()) {
            let bell = bell.clone();
            wakes.set(move || bell.ring(), || false);
        }
        engine.bell = Some(bell);
        Ok(file)
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
            match engine.turn() {
                Ok(Some(at)) => engine.patience.look(at),
                Ok(None) => {}
                Err(_) => break,
            }
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

    fn begin_flush(&mut self) -> Result<(), DiskError> {
        self.0.borrow_mut().begin_flush().map_err(flush_error)
    }

    fn flushed(&mut self, wait: bool) -> Result<bool, DiskError> {
        self.0.borrow_mut().flushed(wait).map_err(flush_error)
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        if blocks == 0 {
            return Ok(());
        }
        self.ask(Request::Trim, at, blocks, Bytes::None)
    }
}

fn flush_error(status: Status) -> DiskError {
    DiskError { request: Request::Flush, at: 0, blocks: 0, status }
}
