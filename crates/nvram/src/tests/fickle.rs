//! A drive that keeps no more than it must, and stores that do not either.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Poll;

use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Status, Time};
use workload::Rng;

use crate::{Life, NonVolatile, NvRam};

/// Logical blocks.
pub const BLOCKS: usize = 48;

/// A block: what it has for sure, and what it was given since.
#[derive(Clone, Default)]
struct Block {
    durable: u64,
    since: Vec<u64>,
}

/// A drive with a volatile cache. It ends requests in any order, overlapping
/// ones too; when power goes each block has anything it was given since it was
/// last durable. A clone is the same drive.
#[derive(Clone)]
pub struct Fickle(Rc<RefCell<Inner>>);

struct Inner {
    blocks: Vec<Block>,
    inside: Vec<(Time, BlockReq)>,
    now: Time,
    rng: Rng,
    failing: u64,
    read_only: bool,
    flushes: bool,
    /// A block, and how many writes of it are yet to be refused, as parts of
    /// one are whose rest cannot be read.
    unread: (usize, u32),
    /// A block of which nothing is taken, and what is said of it.
    refused: Option<(usize, Status)>,
    /// A block that cannot be read.
    unreadable: Option<usize>,
    /// Completions until power goes.
    left: u64,
}

impl Fickle {
    pub fn new(seed: u64) -> Fickle {
        Fickle(Rc::new(RefCell::new(Inner {
            blocks: vec![Block::default(); BLOCKS],
            inside: Vec::new(),
            now: Time::ZERO,
            rng: Rng::new(seed, 7),
            failing: 0,
            read_only: false,
            flushes: true,
            unread: (0, 0),
            refused: None,
            unreadable: None,
            left: u64::MAX,
        })))
    }

    /// Digests, of 8 bytes a block.
    pub fn shape() -> Shape {
        Shape { bytes: BLOCKS as u64 * 4096, kept: 8, max_bytes: 8 * 4096, depth: 40 }
    }

    /// So many writes and flushes in 100 fail.
    pub fn set_failing(&self, failing: u64) {
        self.0.borrow_mut().failing = failing;
    }

    /// All writes are refused.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.borrow_mut().read_only = read_only;
    }

    /// Whether flushes succeed.
    pub fn set_flushes(&self, flushes: bool) {
        self.0.borrow_mut().flushes = flushes;
    }

    /// So many writes that begin at a block are refused since it cannot be read.
    pub fn set_unread(&self, block: usize, times: u32) {
        self.0.borrow_mut().unread = (block, times);
    }

    /// What is written to a block is refused with a status.
    pub fn set_refused(&self, refused: Option<(usize, Status)>) {
        self.0.borrow_mut().refused = refused;
    }

    /// A block cannot be read.
    pub fn set_unreadable(&self, block: Option<usize>) {
        self.0.borrow_mut().unreadable = block;
    }

    /// Nothing happens any more after so many completions.
    pub fn stop_after(&self, left: u64) {
        self.0.borrow_mut().left = left;
    }

    /// What reads as what.
    pub fn contents(&self) -> Vec<u64> {
        let inner = self.0.borrow();
        inner.blocks.iter().map(|b| b.since.last().copied().unwrap_or(b.durable)).collect()
    }

    /// Power goes, and comes back.
    pub fn cut(&self) {
        let mut inner = self.0.borrow_mut();
        let Inner { blocks, inside, rng, .. } = &mut *inner;
        for (_, req) in inside.drain(..) {
            apply(blocks, rng, &req, true);
        }
        for block in blocks {
            let n = rng.below(block.since.len() as u64 + 1) as usize;
            if n > 0 {
                block.durable = block.since[n - 1];
            }
            block.since.clear();
        }
        (inner.now, inner.left) = (Time::ZERO, u64::MAX);
    }
}

/// Does what a request changes, or a part of it.
fn apply(blocks: &mut [Block], rng: &mut Rng, req: &BlockReq, in_part: bool) {
    if matches!(req.op, BlockOp::Read | BlockOp::Flush) {
        return;
    }
    let value = |i: usize| match req.op {
        BlockOp::Write => {
            u64::from_le_bytes(req.buffer.bytes()[8 * i..8 * i + 8].try_into().unwrap())
        }
        _ => 0,
    };
    let first = (req.offset / 4096) as usize;
    for i in 0..(req.len / 4096) as usize {
        if !in_part || rng.below(2) == 0 {
            blocks[first + i].since.push(value(i));
        }
    }
}

impl Inner {
    fn end(&mut self, mut req: BlockReq) -> BlockDone {
        let Inner { blocks, rng, .. } = self;
        let mut status = Status::SUCCESS;
        let first = (req.offset / 4096) as usize;
        let fails = req.op != BlockOp::Read && rng.below(100) < self.failing;
        let touches = |block: usize| (first..first + (req.len / 4096) as usize).contains(&block);
        match req.op {
            BlockOp::Read if self.unreadable.is_some_and(touches) => {
                status = Status::UNRECOVERED_READ;
            }
            BlockOp::Read => {
                for (i, out) in req.buffer.bytes_mut().chunks_exact_mut(8).enumerate() {
                    let block = &blocks[first + i];
                    let value = block.since.last().copied().unwrap_or(block.durable);
                    out.copy_from_slice(&value.to_le_bytes());
                }
            }
            BlockOp::Flush if fails || !self.flushes => status = Status::WRITE_FAULT,
            BlockOp::Flush => {
                for block in blocks {
                    block.durable = block.since.last().copied().unwrap_or(block.durable);
                    block.since.clear();
                }
            }
            _ if self.read_only => status = Status::READ_ONLY,
            _ if let Some((_, why)) = self.refused.filter(|&(block, _)| touches(block)) => {
                status = why
            }
            _ if self.unread.0 == first && self.unread.1 > 0 => {
                self.unread.1 -= 1;
                status = Status::UNRECOVERED_READ;
            }
            _ => {
                apply(blocks, rng, &req, fails);
                status = if fails { Status::WRITE_FAULT } else { status };
            }
        }
        self.left -= 1;
        BlockDone { id: req.id, op: req.op, status, at: self.now, buffer: req.buffer }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.iter().map(|(at, _)| *at).min().filter(|_| self.left > 0)
    }
}

impl Port for Fickle {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        let mut inner = self.0.borrow_mut();
        inner.now = inner.now.max(now);
        while inner.inside.len() < 5
            && let Some(req) = cmds.pop()
        {
            assert!(!req.fua, "FUA is a plain write below");
            let at = inner.now + inner.rng.below(1000);
            inner.inside.push((at, req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.0.borrow().next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let mut inner = self.0.borrow_mut();
        while done.room() > 0
            && let Some(at) = inner.next_event().filter(|&at| at <= to)
        {
            inner.now = inner.now.max(at);
            let first = inner.inside.iter().position(|(due, _)| *due == at).unwrap();
            let (_, req) = inner.inside.swap_remove(first);
            done.put(|| inner.end(req));
        }
    }
}

/// A drive whose next event is when the first request came that is inside, as that of one is
/// which waits for a disk: it ends reads when it is asked for the third time.
#[derive(Default)]
pub struct Waiting {
    inside: Vec<(Time, BlockReq)>,
    told: Time,
    asked: u32,
}

impl Port for Waiting {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        assert!(now >= self.told, "{now:?} behind {:?}", self.told);
        self.told = now;
        self.inside.extend(cmds.drain().map(|req| (now, req)));
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.first().map(|(came, _)| *came)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        assert!(to >= self.told, "{to:?} behind {:?}", self.told);
        (self.told, self.asked) = (to, self.asked + 1);
        if self.asked.is_multiple_of(3) {
            for (_, BlockReq { id, op, buffer, .. }) in self.inside.drain(..) {
                done.put(|| BlockDone { id, op, status: Status::SUCCESS, at: to, buffer });
            }
        }
    }
}

/// A store whose writer is killed after so many bytes: the write that it dies
/// in is there in part, a sector whole or not at all.
pub struct Mortal {
    pub ram: NvRam,
    pub left: u64,
}

impl NonVolatile for Mortal {
    fn bytes(&self) -> u64 {
        self.ram.bytes()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.ram.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut n = bytes.len().min(self.left as usize);
        self.left -= n as u64;
        if n < bytes.len() {
            // Down to a sector's end, unless nothing is crossed.
            n = ((at as usize + n) / 512 * 512).saturating_sub(at as usize);
        }
        self.ram.write(at, &bytes[..n])?;
        if n < bytes.len() { Err(io::Error::other("killed")) } else { Ok(()) }
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        if self.left == 0 { Poll::Ready(Err(io::Error::other("killed"))) } else { self.ram.sync() }
    }

    fn life(&self) -> Option<Life> {
        self.ram.life()
    }
}

/// What of a store fails from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ailing {
    No,
    Sync,
    Write,
}

/// A store whose syncs take 16 polls, and that fails when it is told to.
pub struct Slow {
    pub ram: NvRam,
    /// That the sync under way took.
    pub polls: u32,
    pub ails: Rc<Cell<Ailing>>,
}

impl NonVolatile for Slow {
    fn bytes(&self) -> u64 {
        self.ram.bytes()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.ram.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self.ails.get() {
            Ailing::Write => Err(io::Error::other("no room")),
            _ => self.ram.write(at, bytes),
        }
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        self.polls = (self.polls + 1) % 16;
        if self.polls > 0 {
            return Poll::Pending;
        }
        match self.ails.get() {
            Ailing::Sync => Poll::Ready(Err(io::Error::other("no disk"))),
            _ => self.ram.sync(),
        }
    }

    fn life(&self) -> Option<Life> {
        self.ram.life()
    }
}

/// A store in a host that may crash: what was not synced is lost, sector by
/// sector. Syncs take a few polls.
pub struct Hosted {
    pub ram: NvRam,
    durable: NvRam,
    /// What is being synced, and polls that it takes.
    syncing: Option<(NvRam, u32)>,
    rng: Rng,
}

impl Hosted {
    pub fn new(ram: NvRam, seed: u64) -> Hosted {
        Hosted { durable: ram.clone(), ram, syncing: None, rng: Rng::new(seed, 9) }
    }

    /// The host crashes.
    pub fn crash(mut self, life: u8) -> NvRam {
        let now = self.ram.all().to_vec();
        for (old, new) in self.durable.all().chunks_mut(512).zip(now.chunks(512)) {
            if self.rng.below(2) == 0 {
                old.copy_from_slice(new);
            }
        }
        self.durable.set_life(Some([life; 16]));
        self.durable
    }
}

impl NonVolatile for Hosted {
    fn bytes(&self) -> u64 {
        self.ram.bytes()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.ram.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.ram.write(at, bytes)
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        let (synced, left) =
            self.syncing.take().unwrap_or_else(|| (self.ram.clone(), self.rng.below(4) as u32));
        if left > 0 {
            self.syncing = Some((synced, left - 1));
            return Poll::Pending;
        }
        self.durable = synced;
        Poll::Ready(Ok(()))
    }

    fn life(&self) -> Option<Life> {
        self.ram.life()
    }
}
