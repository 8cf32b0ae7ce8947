//! A drive as a disk of files. Its time is the wall's while nothing is asked of it; a request goes
//! ahead in virtual time, and whoever asked waits on the wall until the drive has got there. So a
//! sync takes what the drive takes, and nothing here waits.
//!
//! What is asked while the drive is ahead begins when it is done with what was before: calls of
//! the file system wait for each other, the blocks of one call do not.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use drive::patience::Patience;
use drive::whole::Boxed;
use files::{BLOCK, Disk, DiskError, Request};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time, Turn};

/// The most bytes of one request.
const PIECE: u64 = 128 << 10;
/// The most requests that are inside at once.
const DEPTH: usize = 32;

/// What was asked of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Requests.
    pub requests: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
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
                Turn::Completed(at) | Turn::Stays(at) => *now = at.max(*now),
                Turn::Quiet => *now = wall,
            }
        }
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
        let (mut next, mut inside, mut status) = (0, 0, Status::SUCCESS);
        let mut has_more = true;
        while has_more || inside > 0 {
            while has_more && inside < self.cmds.capacity() {
                let size = (len - next).min(piece);
                if let Err(failed) = self.put(op, (offset + next, size), next, bytes) {
                    (status, has_more) = (failed, false);
                    break;
                }
                (next, inside) = (next + size, inside + 1);
                has_more = next < len;
            }
            if inside == 0 {
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
            for done in self.done.drain() {
                inside -= 1;
                if !done.status.is_ok() {
                    status = done.status;
                } else if let Bytes::To(to) = bytes {
                    let at = done.id as usize;
                    to[at..at + done.buffer.len()].copy_from_slice(done.buffer.bytes());
                }
            }
        }
        if status.is_ok() { Ok(()) } else { Err(status) }
    }

    fn put(
        &mut self,
        op: BlockOp,
        (offset, size): (u64, u64),
        at: u64,
        bytes: &Bytes,
    ) -> Result<(), Status> {
        let moved = if matches!(bytes, Bytes::None) { 0 } else { size as usize };
        let mut buffer = Buffer::zeroed(moved).map_err(|_| Status::INTERNAL)?;
        if let Bytes::From(from) = bytes {
            buffer.bytes_mut().copy_from_slice(&from[at as usize..][..moved]);
        }
        let asked = &mut self.asked[Self::kind(op)];
        asked.requests += 1;
        asked.bytes += moved as u64;
        self.cmds.put(|| BlockReq::new(at, op, offset, size, buffer));
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
            .then(|| at + std::time::Duration::from_nanos(engine.now.since(time)))
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
