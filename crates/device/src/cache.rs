//! A read cache in the controller, with read-ahead: a port over any block port.
//!
//! It keeps lines, aligned ranges of the address space, of which some blocks are
//! there. A read of blocks that are there completes at once. Another goes down, and
//! what it brings is kept; where it begins at the end of one of the last
//! [`STREAMS`] reads, and few enough are inside, what follows it up to the end of its
//! line is read ahead, and a read of that waits for it. A read that
//! is in no single line goes by the cache, and so does everything else, which is
//! dropped from it before it goes down and again when it completes; nothing of a line
//! is kept meanwhile, as the port below may give what is new by then, or not yet.
//!
//! Guarantees: a read gives what the port below would have given at some time
//! between its beginning and its end, so none gives less than one that had ended;
//! read-ahead that fails is as if it had not been done. Lines are replaced in sets of [`WAYS`], the one unused for longest
//! first. Nothing is allocated after [`Cached::new`], which fails where there is no
//! memory for it.

use flash::ReadCache;
use port::story::Wanted;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Part, Port, Ring};
use port::{Shape, Slots, Stories, Story, Time, random};

use crate::mutation::{self, Mutation};

/// Lines of a set.
const WAYS: usize = 8;
/// Lines that are read ahead at once.
const LOADS: usize = 32;
/// Stamps; lines share them.
const STAMPS: usize = 4096;
/// Reads that one may go on from: so many streams are seen side by side.
const STREAMS: usize = 16;
/// No line.
const NONE: u64 = u64::MAX;

/// What is known of changes of the lines that share it.
#[derive(Clone, Copy, Default)]
struct Stamp {
    /// How often one began or ended.
    changes: u32,
    /// How many are inside.
    inside: u32,
}

impl Stamp {
    fn change(&mut self, begins: bool) {
        self.changes = self.changes.wrapping_add(1);
        self.inside = if begins { self.inside + 1 } else { self.inside - 1 };
    }
}

/// A line of the cache.
#[derive(Clone, Copy)]
struct Line {
    /// Its number in the address space, or [`NONE`].
    number: u64,
    /// Which of its blocks are there, a bit each.
    there: u64,
    /// When it was used last, in reads.
    used: u64,
    /// Whether some of it is being read ahead.
    loads: bool,
}

/// What a request below is for.
#[derive(Clone, Copy)]
enum Kind {
    /// It goes by the cache.
    Past,
    /// A read of one line, which is kept when the counter still stands so.
    Read { stamp: u32 },
    /// Read-ahead into that line, the same.
    Load { line: u32, stamp: u32 },
}

/// A request that is below.
#[derive(Clone, Copy)]
struct Inside {
    id: u64,
    kind: Kind,
    op: BlockOp,
    /// When it came, where it is a user's.
    came: Time,
    /// Whether the drive has its address.
    is_right: bool,
    offset: u64,
    len: u64,
}

impl Default for Inside {
    fn default() -> Inside {
        let (kind, op) = (Kind::Past, BlockOp::Flush);
        Inside { id: 0, kind, op, came: Time::ZERO, is_right: true, offset: 0, len: 0 }
    }
}

/// What a cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Reads that it answered.
    pub hits: u64,
    /// Reads of one line that it did not.
    pub misses: u64,
    /// Blocks that were read ahead.
    pub ahead: u64,
}

port::sums!(CacheCounters: hits, misses, ahead);

/// A block port with a read cache before it.
pub struct Cached<P> {
    below: P,
    shape: Shape,
    config: ReadCache,
    lines: Vec<Line>,
    data: Vec<Buffer>,
    stamps: Vec<Stamp>,
    reads: u64,
    /// Where the last reads ended.
    ends: [u64; STREAMS],
    inside: Slots<Inside>,
    /// How many of these are reads of the user.
    reading: u32,
    /// Requests of the user that are inside.
    taken: usize,
    /// Buffers to read ahead into.
    spare: Vec<Buffer>,
    /// Of the buffer of each that is read ahead, what it is too long by.
    rests: Vec<Buffer>,
    /// On the way down.
    out: Ring<BlockReq>,
    /// Reads that wait for what is read ahead, and when they came.
    waiting: Ring<(Time, BlockReq)>,
    /// Completed.
    ready: Ring<BlockDone>,
    below_done: Ring<BlockDone>,
    counters: CacheCounters,
    /// Completions from below since stories are told, and these.
    heard: u64,
    told: Option<Box<Stories>>,
}

/// Lines of a cache: no more than the drive has, in whole sets.
fn lines(config: &ReadCache, shape: &Shape) -> u64 {
    let line = u64::from(config.line);
    (config.size / line).clamp(1, shape.bytes.div_ceil(line)).next_multiple_of(WAYS as u64)
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Cached<P> {
    /// A cache in front of `below`, which looks like `shape`.
    pub fn new(config: ReadCache, below: P, shape: Shape) -> Result<Cached<P>, OutOfMemory> {
        let stored = shape.stored(config.line.into());
        let lines = lines(&config, &shape) as usize;
        let empty = Line { number: NONE, there: 0, used: 0, loads: false };
        let all = shape.depth + LOADS;
        Ok(Cached {
            below,
            shape,
            config,
            lines: vec![empty; lines],
            data: Buffer::carve(lines, stored)?,
            stamps: vec![Stamp::default(); STAMPS],
            reads: 0,
            ends: [u64::MAX; STREAMS],
            inside: Slots::new(all),
            reading: 0,
            taken: 0,
            spare: Buffer::carve(LOADS, stored)?,
            rests: (0..all).map(|_| Buffer::empty()).collect(),
            out: Ring::new(all),
            waiting: Ring::new(shape.depth),
            ready: Ring::new(all),
            below_done: Ring::new(all),
            counters: CacheCounters::default(),
            heard: 0,
            told: None,
        })
    }

    /// Bytes of memory that it takes.
    pub fn bytes(config: &ReadCache, shape: &Shape) -> u64 {
        let lines = lines(config, shape);
        let each = shape.stored(config.line.into()) + size_of::<Line>() + size_of::<Buffer>();
        lines.saturating_mul(each as u64)
    }

    crate::below::shows_below!(P);

    /// Whether nothing is inside, read-ahead neither.
    pub fn is_idle(&self) -> bool {
        self.taken == 0 && self.inside.live() == 0
    }

    /// What it did so far.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    fn line_of(&self, offset: u64) -> u64 {
        offset / u64::from(self.config.line)
    }

    /// Where in `lines` a line is, if it is.
    fn find(&self, number: u64) -> Option<usize> {
        self.set(number).find(|&at| self.lines[at].number == number)
    }

    /// The places where a line may be.
    fn set(&self, number: u64) -> std::ops::Range<usize> {
        let sets = (self.lines.len() / WAYS) as u64;
        let first = (random::mix(number) % sets) as usize * WAYS;
        first..first + WAYS
    }

    fn stamp(&mut self, number: u64) -> &mut Stamp {
        &mut self.stamps[random::mix(number) as usize % STAMPS]
    }

    /// The bits of the blocks that these bytes touch, or of those that they cover.
    fn bits(&self, offset: u64, len: u64, covers: bool) -> u64 {
        let from = offset % u64::from(self.config.line);
        let (first, end) = match covers {
            false => (from / BLOCK_BYTES, (from + len).div_ceil(BLOCK_BYTES)),
            true => (from.div_ceil(BLOCK_BYTES), (from + len) / BLOCK_BYTES),
        };
        let below = |n: u64| if n == 64 { u64::MAX } else { (1 << n) - 1 };
        below(end.max(first)) & !below(first)
    }

    /// Where the bytes from `offset` on begin in a line's buffer.
    fn place(&self, offset: u64) -> usize {
        self.shape.stored(offset % u64::from(self.config.line))
    }

    /// Whether a line is as it was when it was read: nothing changed of it since the stamp
    /// was taken, and nothing changes.
    fn is_as_read(&mut self, number: u64, stamp: u32) -> bool {
        let now = self.stamp(number);
        (now.inside == 0 && now.changes == stamp) || mutation::is(Mutation::KeepChanged)
    }

    /// What these bytes are begins to change, or has changed: they are there no more.
    fn forget(&mut self, offset: u64, len: u64, begins: bool) {
        let size = u64::from(self.config.line);
        let (first, last) = (self.line_of(offset), self.line_of(offset + len - 1));
        if last - first < self.lines.len() as u64 {
            for number in first..=last {
                self.stamp(number).change(begins);
                if let Some(at) = self.find(number) {
                    let from = offset.max(number * size);
                    let end = (offset + len).min((number + 1) * size);
                    self.lines[at].there &= !self.bits(from, end - from, false);
                }
            }
        } else {
            self.stamps.iter_mut().for_each(|stamp| stamp.change(begins));
            let gone = self.lines.iter_mut().filter(|l| (first..=last).contains(&l.number));
            gone.for_each(|line| line.there = 0);
        }
    }

    /// Makes room for a line, if there is any: not where all are being read ahead.
    fn make_room(&mut self, number: u64) -> Option<usize> {
        let unused = |&at: &usize| (self.lines[at].number != NONE, self.lines[at].used);
        let at = match self.find(number) {
            Some(at) => at,
            None => self.set(number).filter(|&at| !self.lines[at].loads).min_by_key(unused)?,
        };
        if self.lines[at].number != number {
            self.lines[at] = Line { number, there: 0, used: 0, loads: false };
        }
        self.lines[at].used = self.reads;
        Some(at)
    }

    /// Keeps what was read, as far as it is whole blocks.
    fn keep(&mut self, at: usize, offset: u64, len: u64, buffer: &Buffer) {
        let covered = self.bits(offset, len, true);
        if covered == 0 {
            return;
        }
        let size = u64::from(self.config.line);
        let base = offset - offset % size;
        let first = base + u64::from(covered.trailing_zeros()) * BLOCK_BYTES;
        let blocks = u64::from(covered.count_ones()) * BLOCK_BYTES;
        let (from, n) = (self.shape.stored(first - offset), self.shape.stored(blocks));
        let to = self.place(first);
        self.data[at].bytes_mut()[to..to + n].copy_from_slice(&buffer.bytes()[from..from + n]);
        self.lines[at].there |= covered;
    }

    /// Whether a request is a read that the cache looks at.
    fn is_ours(&self, req: &BlockReq) -> bool {
        req.op == BlockOp::Read
            && self.shape.check(req).is_ok()
            && self.line_of(req.offset) == self.line_of(req.offset + req.len - 1)
    }

    /// Takes a request of the user, which came at `came`. `is_new` is false for one
    /// that has waited.
    fn take(&mut self, now: Time, came: Time, mut req: BlockReq, is_new: bool) {
        if !self.is_ours(&req) {
            return self.pass(came, req);
        }
        let number = self.line_of(req.offset);
        let wanted = self.bits(req.offset, req.len, false);
        self.reads += u64::from(is_new);
        if let Some(at) = self.find(number) {
            if self.lines[at].there & wanted == wanted {
                self.lines[at].used = self.reads;
                self.counters.hits += 1;
                self.ends[self.reads as usize % STREAMS] = req.offset + req.len;
                let (from, n) = (self.place(req.offset), req.buffer.len());
                req.buffer.bytes_mut().copy_from_slice(&self.data[at].bytes()[from..from + n]);
                let BlockReq { id, op, buffer, .. } = req;
                let status = port::Status::SUCCESS;
                if let Some(told) = &mut self.told
                    && !told.pass_over(now - came, now)
                {
                    told.tell(came).pass(Part::Queue, now);
                }
                return self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
            }
            if is_new && self.lines[at].loads {
                return self.waiting.put(|| (came, req));
            }
        }
        self.counters.misses += 1;
        self.reading += 1;
        let stamp = self.stamp(number).changes;
        let (offset, end) = (req.offset, req.offset + req.len);
        self.send(came, req, Kind::Read { stamp });
        let follows = self.ends.contains(&offset);
        self.ends[self.reads as usize % STREAMS] = end;
        if follows {
            self.read_ahead(number, end);
        }
    }

    /// Sends a request by the cache.
    fn pass(&mut self, came: Time, req: BlockReq) {
        let has_address = req.op != BlockOp::Flush && req.op != BlockOp::Read;
        if has_address && self.shape.check(&req).is_ok() {
            self.forget(req.offset, req.len, true);
        }
        self.reading += u32::from(req.op == BlockOp::Read);
        self.send(came, req, Kind::Past);
    }

    /// Sends a request down. Gives the number that it has there.
    fn send(&mut self, came: Time, mut req: BlockReq, kind: Kind) -> u32 {
        let BlockReq { id, op, offset, len, .. } = req;
        let is_right = self.shape.check(&req).is_ok();
        let number = self.inside.take(Inside { id, kind, op, came, is_right, offset, len });
        req.id = u64::from(number);
        self.out.put(|| req);
        number
    }

    /// Reads what follows a read up to the end of its line.
    fn read_ahead(&mut self, number: u64, from: u64) {
        let end = ((number + 1) * u64::from(self.config.line)).min(self.shape.bytes);
        let from = from.next_multiple_of(BLOCK_BYTES);
        if self.reading > self.config.depth || from >= end || self.spare.is_empty() {
            return;
        }
        let Some(at) = self.make_room(number).filter(|&at| !self.lines[at].loads) else { return };
        let Some(mut rest) = self.spare.pop() else { return };
        let len = end - from;
        let buffer = rest.split_to(self.shape.stored(len));
        self.lines[at].loads = true;
        self.counters.ahead += len / BLOCK_BYTES;
        let stamp = self.stamp(number).changes;
        let (op, fua, placement) = (BlockOp::Read, false, 0);
        let req = BlockReq { id: 0, op, fua, placement, queue: 0, offset: from, len, buffer };
        let id = self.send(Time::ZERO, req, Kind::Load { line: at as u32, stamp });
        self.rests[id as usize] = rest;
    }

    /// What came back from below.
    fn complete(&mut self, mut done: BlockDone) {
        self.heard += 1;
        let number = done.id as u32;
        let was = self.inside[number];
        self.inside.give(number);
        let is_whole = done.status.is_ok();
        match was.kind {
            Kind::Load { line, stamp } => {
                let at = line as usize;
                self.lines[at].loads = false;
                if is_whole && self.is_as_read(self.lines[at].number, stamp) {
                    self.keep(at, was.offset, was.len, &done.buffer);
                }
                let rest = std::mem::take(&mut self.rests[number as usize]);
                done.buffer.join(rest).expect("it is the end of the same buffer");
                return self.spare.push(done.buffer);
            }
            Kind::Read { stamp } => {
                let line = self.line_of(was.offset);
                if is_whole
                    && self.is_as_read(line, stamp)
                    && let Some(at) = self.make_room(line)
                {
                    self.keep(at, was.offset, was.len, &done.buffer);
                }
                self.reading -= 1;
            }
            Kind::Past if was.op == BlockOp::Read => self.reading -= 1,
            Kind::Past if was.op != BlockOp::Flush && was.is_right => {
                self.forget(was.offset, was.len, false);
            }
            Kind::Past => {}
        }
        if let Some(told) = &mut self.told
            && !told.pass_over(done.at - was.came, done.at)
        {
            let below = |story: &mut Story| self.below.tell_story(self.heard - 1, story);
            told.end(was.came, below, Part::Queue, done.at);
        }
        done.id = was.id;
        self.ready.put(|| done);
    }

    /// Lets the port below do all that it can at `to`.
    fn work(&mut self, to: Time) {
        loop {
            if self.below.next_event().is_some_and(|at| at <= to) {
                self.below.advance(to, &mut self.below_done);
            }
            let (out, done) = (self.out.len(), self.below_done.len());
            while let Some(done) = self.below_done.pop() {
                self.complete(done);
            }
            if done > 0 {
                self.look_again(to);
            }
            if !self.out.is_empty() {
                self.below.submit(to, &mut self.out);
            }
            let is_due = self.below.next_event().is_some_and(|at| at <= to);
            if !is_due || (done == 0 && self.out.len() == out) {
                return;
            }
        }
    }

    /// What waited for something that is there now, or will not be.
    fn look_again(&mut self, now: Time) {
        for _ in 0..self.waiting.len() {
            let Some((came, req)) = self.waiting.pop() else { return };
            match self.find(self.line_of(req.offset)) {
                Some(at) if self.lines[at].loads => self.waiting.put(|| (came, req)),
                _ => self.take(now, came, req, false),
            }
        }
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for Cached<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.taken < self.shape.depth {
            let Some(req) = cmds.pop() else { break };
            self.taken += 1;
            self.take(now, now, req, true);
        }
        self.below.submit(now, &mut self.out);
    }

    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|done| done.at);
        [ready, self.below.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.work(to);
        self.taken -= self.ready.pour_due(to, done);
    }

    fn hint(&self, cmd: &BlockReq) {
        self.below.hint(cmd);
    }

    fn set_stories(&mut self, on: bool) {
        self.below.set_stories(on);
        self.heard = 0;
        self.told = on.then(|| Stories::new(self.shape.depth, self.ready.len()));
    }

    fn tell_only(&mut self, wanted: Wanted) {
        if let Some(told) = &mut self.told {
            told.tell_only(wanted);
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.told.as_ref().is_some_and(|told| told.tell_of(number, story))
    }
}
