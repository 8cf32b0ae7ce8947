//! Remote drives: blocks that go there, and what is kept here of what a read brings.
//!
//! Neighbours go at once, and those that find no room on the way wait, the first first. A
//! block that is read is kept where its rule says so, if no request that changes it was inside
//! at any time of the read, and its entry was neither set nor meant to be since: what is kept
//! is then what the remote drive has. All is bounded; what has no room is not kept.
//!
//! A flush goes to each remote drive where something was changed since its last one that
//! succeeded, and to the one that its rule names.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use device::OpenChannel;
use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Slots, Status, Time,
};
use rules::decision::Fill as Asked;

use crate::mutation::{self, Mutation};
use crate::rows::{Source, Stream};
use crate::waits::Wait;
use crate::work::{Outcome, Todo, Work};
use crate::{DEPTH, MAX_BLOCKS, Ruled, RuledError};

/// Commands to a remote drive that may be on their way, flushes not among them.
const COMMANDS: usize = 256;
/// Blocks that are to be kept at most, of all that are being read.
const FILLS: usize = 256;

/// The request that a flush is for at the end.
const END: u32 = u32::MAX;

/// Why a remote drive cannot be had, or ended.
pub type RemoteError = Box<dyn Error + Send + Sync>;

/// A drive elsewhere.
pub trait Remote: Port<Cmd = BlockReq, Done = BlockDone> + Send {
    /// Its outside.
    fn shape(&self) -> Shape;

    /// Shuts it down. No request is inside, and `now` is not before anything that happened.
    /// Fails where something that was flushed may be lost.
    fn end(self: Box<Self>, now: Time) -> Result<(), RemoteError>;
}

type Make = dyn Fn() -> Result<Box<dyn Remote>, RemoteError> + Send + Sync;

/// A remote drive to be had by targets. Each start of one makes it anew.
#[derive(Clone)]
pub struct RemoteDrive(Arc<Make>);

impl RemoteDrive {
    /// One that is made so.
    pub fn new(
        make: impl Fn() -> Result<Box<dyn Remote>, RemoteError> + Send + Sync + 'static,
    ) -> RemoteDrive {
        RemoteDrive(Arc::new(make))
    }
}

impl fmt::Debug for RemoteDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a remote drive")
    }
}

/// Neighbours that are to go to a remote drive at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Far {
    remote: usize,
    first: u64,
    count: u64,
}

/// A command that is on its way.
#[derive(Debug, Default)]
struct Sent {
    request: u32,
    blocks: Range<u64>,
    /// So many changes had ended there.
    changes: u64,
}

/// The way to a remote drive.
pub(crate) struct Side {
    drive: Box<dyn Remote>,
    out: Ring<BlockReq>,
    done: Ring<BlockDone>,
    sent: Slots<Sent>,
    /// Commands among them.
    commands: usize,
    /// Requests whose next block waits for room.
    pub waiting: VecDeque<u32>,
    /// Blocks of its longest read or write.
    most: u64,
    /// Changes that have ended there, and how many of these were flushed.
    changes: u64,
    flushed: u64,
}

impl Side {
    /// Takes the next of those that wait for room, if there is some.
    pub fn next_waiting(&mut self) -> Option<u32> {
        if self.commands < COMMANDS { self.waiting.pop_front() } else { None }
    }

    fn send(&mut self, sent: Sent, op: BlockOp, (fua, placement): (bool, u8), buffer: Buffer) {
        let has_blocks = op != BlockOp::Flush;
        self.commands += usize::from(has_blocks);
        let offset = sent.blocks.start * BLOCK_BYTES;
        let len = (sent.blocks.end - sent.blocks.start) * BLOCK_BYTES;
        let id = self.sent.take(sent).into();
        let queue = 0;
        self.out.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
    }
}

/// A block that is to be kept of what a read brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    slot: u32,
    pub lba: u64,
    pub owner: u64,
    unit: Option<u16>,
    application: u16,
}

/// All remote drives.
pub(crate) struct Remotes {
    /// By number of the rules.
    pub sides: Vec<Side>,
    fills: Vec<Fill>,
}

impl Remotes {
    pub fn new(drives: &[RemoteDrive], kept: u32) -> Result<Remotes, RuledError> {
        let mut sides = Vec::with_capacity(drives.len());
        for (number, RemoteDrive(make)) in drives.iter().enumerate() {
            let failed = |what| RuledError::Remote { number, what };
            let drive = make().map_err(|e| failed(e.to_string()))?;
            let shape = drive.shape();
            if shape.kept != kept {
                let its = shape.kept;
                return Err(failed(format!(
                    "it keeps {its} bytes of each block, and this drive {kept}: give both the \
                     same store"
                )));
            }
            let most = (shape.max_bytes / BLOCK_BYTES).clamp(1, MAX_BLOCKS as u64);
            let all = COMMANDS + DEPTH + 1;
            sides.push(Side {
                drive,
                out: Ring::new(all),
                done: Ring::new(all),
                sent: Slots::new(all),
                commands: 0,
                waiting: VecDeque::with_capacity(DEPTH),
                most,
                changes: 0,
                flushed: 0,
            });
        }
        let fills = Vec::with_capacity(if drives.is_empty() { 0 } else { FILLS });
        Ok(Remotes { sides, fills })
    }

    /// Bytes of the largest.
    pub fn bytes(&self) -> u64 {
        self.sides.iter().map(|side| side.drive.shape().bytes).max().unwrap_or(0)
    }

    /// What is found so is not kept.
    pub fn keep_no_more(&mut self, is_so: impl Fn(&Fill) -> bool) {
        if !self.fills.is_empty() && !mutation::is(Mutation::KeepOlder) {
            self.fills.retain(|fill| !is_so(fill));
        }
    }

    pub fn submit(&mut self, now: Time) {
        for side in &mut self.sides {
            if !side.out.is_empty() {
                side.drive.submit(now, &mut side.out);
            }
        }
    }

    pub fn next_event(&self) -> Option<Time> {
        self.sides.iter().filter_map(|side| side.drive.next_event()).min()
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// The remote drives, of a target that is at its end.
    pub fn take_remotes(&mut self) -> impl Iterator<Item = Box<dyn Remote>> {
        std::mem::take(&mut self.remotes.sides).into_iter().map(|side| side.drive)
    }

    /// A rule asks to keep the block that is read next.
    pub(crate) fn asked_to_fill(&mut self, work: &Work, asked: &Asked) {
        let (slot, lba, application) = (work.slot, work.asked.lba, work.asked.application);
        let owner = self.owner(asked.entry);
        self.remotes.keep_no_more(|fill| fill.owner == owner);
        let is_changed = (0..DEPTH as u32).any(|slot| self.requests[slot].changes(lba));
        let is_free = !is_changed || mutation::is(Mutation::KeepOlder);
        if is_free && self.remotes.fills.len() < FILLS {
            let unit = asked.unit;
            self.remotes.fills.push(Fill { slot, lba, owner, unit, application });
        }
    }

    /// A block goes to a remote drive, with its neighbours.
    pub(crate) fn go_far(&mut self, work: &mut Work, remote: usize, is_its_turn: bool) -> Outcome {
        self.read_run(work.slot, &mut work.run);
        let (lba, side) = (work.asked.lba, &self.remotes.sides[remote]);
        if let Some(far) = &mut work.far
            && far.remote == remote
            && far.first + far.count == lba
            && far.count < side.most
        {
            far.count += 1;
            return Outcome::Done;
        }
        self.send_far(work);
        let side = &self.remotes.sides[remote];
        if side.commands >= COMMANDS || !(is_its_turn || side.waiting.is_empty()) {
            return Outcome::Waits(Wait::Remote(remote));
        }
        work.far = Some(Far { remote, first: lba, count: 1 });
        Outcome::Done
    }

    /// Sends the neighbours that were found so far.
    #[inline]
    pub(crate) fn send_far(&mut self, work: &mut Work) {
        if let Some(far) = work.far.take() {
            self.send_blocks(work, far);
        }
    }

    fn send_blocks(&mut self, work: &Work, Far { remote, first, count }: Far) {
        let (kept, request) = (self.shape.kept as usize, &mut self.requests[work.slot]);
        request.parts += 1;
        let op = request.op;
        let buffer = match op {
            BlockOp::Read | BlockOp::Write => {
                // What was written here before stays in its place.
                let before = (first - work.first) as usize * kept - request.taken(kept);
                if before > 0 {
                    let before = request.buffer.take(before);
                    request.buffer.give(before);
                }
                request.buffer.take(count as usize * kept)
            }
            _ => Buffer::empty(),
        };
        let side = &mut self.remotes.sides[remote];
        let sent = Sent { request: work.slot, blocks: first..first + count, changes: 0 };
        side.send(sent, op, (work.is_durable, work.asked.placement), buffer);
    }

    /// A flush goes to the remote drive that is named, and where it has something to do.
    pub(crate) fn flush_remotes(&mut self, slot: u32, todo: &Todo) {
        for (remote, side) in self.remotes.sides.iter_mut().enumerate() {
            let is_named = matches!(*todo, Todo::Remote(named) if named == remote);
            if is_named || side.changes > side.flushed {
                self.requests[slot].parts += 1;
                let sent = Sent { request: slot, blocks: 0..0, changes: side.changes };
                side.send(sent, BlockOp::Flush, (false, 0), Buffer::empty());
            }
        }
    }

    /// At the end flushes remote drives where that has something to do. Whether all is done.
    pub(crate) fn end_remotes(&mut self) -> bool {
        for side in &mut self.remotes.sides {
            if self.end.flushes == 0 && side.changes > side.flushed {
                self.end.flushes += 1;
                let sent = Sent { request: END, blocks: 0..0, changes: side.changes };
                side.send(sent, BlockOp::Flush, (false, 0), Buffer::empty());
            }
        }
        self.end.flushes == 0
    }

    /// What the remote drives have done.
    pub(crate) fn advance_remotes(&mut self, to: Time) {
        for remote in 0..self.remotes.sides.len() {
            let side = &mut self.remotes.sides[remote];
            if side.drive.next_event().is_some_and(|at| at <= to) {
                side.drive.advance(to, &mut side.done);
            }
            while let Some(done) = self.remotes.sides[remote].done.pop() {
                self.remote_done(to, remote, done);
            }
        }
    }

    fn remote_done(&mut self, now: Time, remote: usize, done: BlockDone) {
        let BlockDone { id, op, status, buffer, .. } = done;
        let side = &mut self.remotes.sides[remote];
        let Sent { request, blocks, changes } = std::mem::take(&mut side.sent[id as u32]);
        side.sent.give(id as u32);
        match op {
            BlockOp::Flush if status.is_ok() => side.flushed = side.flushed.max(changes),
            BlockOp::Flush => {}
            BlockOp::Read => side.commands -= 1,
            BlockOp::Write | BlockOp::Trim | BlockOp::WriteZeroes => {
                side.commands -= 1;
                side.changes += 1;
            }
        }
        if request == END {
            self.end.flushes -= 1;
            self.end.has_failed |= !status.is_ok();
            return;
        }
        if op == BlockOp::Read {
            self.keep(request, blocks, status, buffer.bytes());
        }
        if matches!(op, BlockOp::Read | BlockOp::Write) {
            self.requests[request].buffer.give(buffer);
        }
        self.part_done(now, request, status);
    }

    /// Keeps of what a read has brought what is still to be kept.
    fn keep(&mut self, slot: u32, blocks: Range<u64>, status: Status, bytes: &[u8]) {
        let (kept, mut n) = (self.shape.kept as usize, 0);
        while let Some(&fill) = self.remotes.fills.get(n) {
            if fill.slot != slot || !blocks.contains(&fill.lba) {
                n += 1;
                continue;
            }
            self.remotes.fills.remove(n);
            if status.is_ok() && self.leads(fill.owner).is_none() {
                let at = (fill.lba - blocks.start) as usize * kept;
                self.keep_block(fill, &bytes[at..at + kept]);
            }
        }
    }

    /// Keeps a block, if there is room for it without waiting.
    fn keep_block(&mut self, fill: Fill, bytes: &[u8]) {
        let Fill { owner, application, .. } = fill;
        let unit = fill.unit.map_or_else(|| self.next_unit(application), usize::from);
        if !self.waits.queues[unit].is_free(false) {
            return;
        }
        let has_room = self.has_room(unit);
        let source = Source::Copy(bytes);
        let placed = has_room.then(|| self.put(unit, Stream::User, owner, &source)).flatten();
        let Some(ppa) = placed else {
            // The next one may have room.
            self.makes_room(unit);
            return;
        };
        self.counters.user += 1;
        self.blocks.set_copy(owner, true);
        self.lead(unit, owner, ppa);
        self.collect_ahead(unit);
    }
}
