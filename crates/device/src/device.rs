//! The open-channel drive.
//!
//! Guarantees: commands are checked against the geometry and the chunk rules
//! before anything happens, and a refused command changes nothing; the write
//! pointer moves when a write is taken, and a block can be read from the
//! moment its program ends; a command completes when its last operation does,
//! at that event's own time. The same commands at the same times give the same
//! completions. A block whose program failed is never read until its chunk is
//! erased. It never fails as a whole: an error is the completion's.

mod admission;
mod bytes;
mod copyback;
mod count;
mod entry;
mod flaws;
mod health;
mod life;

pub use count::ChunkCount;
pub use flaws::ErrorCounters;
pub use health::{Health, Wear};

use std::collections::VecDeque;

use flash::{BlockBits, Chunk, ChunkState, Geometry, Medium, Moved, Ppa, Timing};
use port::{Buffer, Port, Ring, Slots, Status, Story, Time, Turn};
use port::{Whose, turn_by_events};

use crate::command::{
    Addresses, Content, MAX_ADDRESSES, OpenChannel, VectorCmd, VectorDone, VectorOp,
};
use crate::notices::Notice;
use crate::opened::Opened;
use crate::units::Units;
use flaws::Flaws;

/// Commands that may be inside at once.
pub const MAX_DEPTH: usize = 1024;

/// Operations that may be inside at once, and on a drive of few units: enough
/// there for a command of one operation in each place.
const MAX_OPS: usize = 8192;
const FEW_OPS: usize = 2048;

/// Parallel units up to which a drive has few.
const FEW_UNITS: u32 = 8;

/// How many commands ahead of the one being taken the medium is told of.
const HINTED_AHEAD: usize = 3;

/// Copy commands that may be inside at once; each has a buffer.
const MAX_COPIES: usize = 8;

/// Operations that must be free for a command to be let in: its own, and those
/// of the second half of every copy.
const OPS_NEEDED: usize = MAX_ADDRESSES * (1 + MAX_COPIES);

/// On a clock, a medium that has not moved the bytes yet is asked again after
/// the first of these times, in ns. For a flush that is a quarter of the time
/// that it took so far, within the two, or the second where the medium says when
/// it has.
const RETRY: (u64, u64) = (100_000, 2_000_000);

/// A flush inside the drive.
struct Flush {
    came: Time,
    /// When the medium is to be asked, again perhaps.
    ask: Time,
    command: u32,
}

/// What a drive has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Array reads.
    pub reads: u64,
    /// Array programs.
    pub programs: u64,
    /// Erases.
    pub erases: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks programmed.
    pub blocks_programmed: u64,
    /// Programs and erases suspended for a read.
    pub suspends: u64,
    /// Reads that needed no array read, as another's gave their page; not in `reads`.
    pub shared: u64,
    /// Array reads that began with another's, on another plane of its die.
    pub joined: u64,
    /// Rows copied inside their dies: among `programs`, and the sensing of each of their
    /// pages among `reads`.
    pub copybacks: u64,
}

/// A command at work.
struct Command {
    cmd: VectorCmd,
    /// Operations to go.
    left: u32,
    failed: BlockBits,
    status: Status,
    /// Whether a copy is writing.
    writing: bool,
    /// A copy of a row inside its unit.
    inside: bool,
}

impl Default for Command {
    fn default() -> Command {
        let cmd = VectorCmd {
            whose: Whose::User,
            ..VectorCmd::new(0, VectorOp::Read, Content::Data, (Ppa(0), 0), Buffer::empty())
        };
        let (writing, inside) = (false, false);
        Command { cmd, left: 0, failed: 0, status: Status::SUCCESS, writing, inside }
    }
}

/// An open-channel drive over a medium.
pub struct Device<M> {
    geometry: Geometry,
    chunks: Box<[Chunk]>,
    /// A bit for each chunk: closed, and all of it programmed. So that a read
    /// mostly needs no descriptor; those of a large drive exceed the caches.
    whole: Box<[u64]>,
    /// A bit for each chunk: its erase is on its way.
    erasing: Box<[u64]>,
    /// Where chunks that are open at a time are limited.
    opened: Option<Box<Opened>>,
    /// No operation takes any time, and none is looked at closely.
    instant: bool,
    /// Errors or energy are modelled, or something has failed: operations are
    /// looked at closely.
    closely: bool,
    /// Erases after which a chunk goes offline whatever the erase does.
    cliff: u32,
    flaws: Box<Flaws>,
    units: Units,
    commands: Slots<Command>,
    ready: Ring<VectorDone>,
    copy_buffers: Vec<Buffer>,
    /// A row on its way from one place in its unit to another.
    copied_row: Buffer,
    /// Flushes for which the medium has been asked, or is to be, oldest first.
    flushes: VecDeque<Flush>,
    /// Time passes while the medium moves bytes.
    on_a_clock: bool,
    medium: M,
    /// Bytes that the medium keeps of each block.
    kept: u32,
    /// It keeps none, and reads of data need not be asked for.
    gives_nothing: bool,
    counters: Counters,
}

/// Operations that may be inside a drive.
fn most_ops(geometry: &Geometry) -> usize {
    if geometry.total_pus() <= FEW_UNITS { FEW_OPS } else { MAX_OPS }
}

impl<M: Medium> Device<M> {
    /// Whether all of a chunk can be read, by [`Geometry::chunk_index`]. False
    /// past the end.
    #[inline]
    fn is_whole(&self, index: usize) -> bool {
        self.whole.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Looks again whether a chunk is free.
    #[inline]
    fn note_free(&mut self, index: usize) {
        self.units.set_free(index, self.chunks[index].state == ChunkState::Free);
    }

    /// Looks again whether all of a chunk can be read, and whether it is open.
    #[inline]
    fn note_whole(&mut self, index: usize) {
        if let Some(opened) = &mut self.opened {
            let pu = index >> self.geometry.chunk_bits();
            opened.note(index, pu, self.chunks[index].state == ChunkState::Open);
        }
        let chunk = &self.chunks[index];
        let whole =
            chunk.state == ChunkState::Closed && chunk.programmed == self.geometry.chunk_blocks();
        let bit = 1 << (index % 64);
        if whole {
            self.whole[index / 64] |= bit;
        } else {
            self.whole[index / 64] &= !bit;
        }
    }

    /// Handles all events until one has completed something, and those of its time; or
    /// until the next is later than `until`. Flushes are not looked at.
    fn run(&mut self, until: Time) -> Turn {
        if self.units.tales.is_some() {
            self.run_on::<true>(until)
        } else {
            self.run_on::<false>(until)
        }
    }

    /// The same. Whether stories are told is looked at once, and no more where they are
    /// not: so it is below, too.
    #[inline(never)]
    fn run_on<const TOLD: bool>(&mut self, until: Time) -> Turn {
        if self.ready.front().is_some_and(|done| done.at > until) {
            return Turn::Quiet;
        }
        let mut to = self.ready.front().map_or(until, |done| done.at);
        while let Ok((now, finished)) = self.units.step::<TOLD>(to) {
            if finished.is_none() {
                continue;
            }
            let goes_on = self.finish::<TOLD>(now, finished);
            if !self.ready.is_empty() {
                to = now;
            } else if !goes_on {
                return Turn::Stays(now);
            }
            if !goes_on {
                break;
            }
        }
        self.ready.front().map_or(Turn::Quiet, |done| Turn::Completed(done.at))
    }

    /// The same of what is done when it comes.
    #[inline(never)]
    fn finish_at_once(&mut self, now: Time, finished: Option<u32>) {
        self.finish::<true>(now, finished);
    }

    /// Moves the bytes of finished operations, as long as there are any.
    /// False when the medium has not moved them yet.
    #[inline(always)]
    fn finish<const TOLD: bool>(&mut self, now: Time, mut finished: Option<u32>) -> bool {
        while let Some(pu) = finished {
            if self.closely && self.units.is_sensing(pu) {
                finished = self.sense(now, pu);
                continue;
            }
            let op = self.units.active(pu);
            let moved = self.move_bytes(now, pu, &op);
            if moved == Moved::Pending {
                return self.wait_for_bytes(now, pu);
            }
            if TOLD && self.units.tales.is_some() {
                self.tell(now, pu, &op);
            }
            finished = self.units.release::<TOLD>(now, pu);
            self.op_done(now, pu, &op, moved);
        }
        true
    }

    #[inline(always)]
    fn command_done(&mut self, now: Time, id: u32) {
        if self.commands[id].cmd.op == VectorOp::Copy && self.copy_goes_on(now, id) {
            return;
        }
        let Command { cmd, status, failed, .. } = &mut self.commands[id];
        self.ready.put(|| VectorDone {
            cookie: cmd.cookie,
            status: *status,
            failed: *failed,
            at: now,
            list: cmd.list.take(),
            buffer: std::mem::take(&mut cmd.buffer),
        });
        self.commands.give(id);
    }

    /// A half of a copy is done. Whether there is another.
    #[cold]
    fn copy_goes_on(&mut self, now: Time, id: u32) -> bool {
        let command = &mut self.commands[id];
        if !command.writing && command.status.is_ok() {
            self.copy_write(now, id);
            return true;
        }
        if !command.inside {
            self.copy_buffers.push(std::mem::take(&mut command.cmd.buffer));
        }
        if self.units.tales.is_some() {
            self.tell_at_once(now);
        }
        false
    }

    /// The second half of a copy: the blocks are in the drive's buffer.
    #[cold]
    fn copy_write(&mut self, now: Time, id: u32) {
        self.commands[id].writing = true;
        let command = std::mem::take(&mut self.commands[id]);
        let entered = self.enter_writes(&command.cmd, true);
        self.commands[id] = command;
        match entered {
            Ok(()) => self.launch(now, id),
            Err((status, failed)) => {
                self.commands[id].status = status;
                self.commands[id].failed = failed;
                self.command_done(now, id);
            }
        }
    }

    /// Whether the command at the front can be let in.
    #[inline]
    fn has_room(&self, cmd: &VectorCmd) -> bool {
        self.commands.live() + self.ready.len() < MAX_DEPTH
            && self.units.ops.room() >= OPS_NEEDED
            && (cmd.op != VectorOp::Copy || !self.copy_buffers.is_empty() || self.is_inside(cmd))
    }
}

impl<M: Medium> Port for Device<M> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        while let Some(cmd) = cmds.front() {
            if !self.has_room(cmd) {
                return;
            }
            if !self.gives_nothing
                && let Some(ahead) = cmds.get(HINTED_AHEAD)
                && ahead.op == VectorOp::Read
            {
                self.medium.hint(ahead.ppa);
            }
            let cmd = cmds.get_mut(0).expect("it was looked at");
            if self.instant && self.pass_read(cmd) {
                let (cookie, buffer) = (cmd.cookie, std::mem::take(&mut cmd.buffer));
                let (status, failed, list) = (Status::SUCCESS, 0, None);
                self.ready.put(|| VectorDone { cookie, status, failed, at: now, list, buffer });
                cmds.pop();
                continue;
            }
            self.start(now, cmds);
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        if let Some(done) = self.ready.front() {
            return Some(done.at);
        }
        let event = self.units.next_event();
        let Some(flush) = self.flushes.front() else { return event };
        let has_news = self.on_a_clock && self.medium.has_news() == Some(true);
        let ask = if has_news { flush.came } else { flush.ask };
        Some(event.map_or(ask, |event| event.min(ask)))
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.run(to);
        if !self.flushes.is_empty() {
            self.ask_barrier(to);
        }
        self.ready.pour(done);
    }

    #[inline(always)]
    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<VectorCmd>,
        done: &mut Ring<VectorDone>,
    ) -> Turn {
        if !cmds.is_empty() {
            self.submit(now, cmds);
        }
        if !cmds.is_empty() || !self.flushes.is_empty() {
            return turn_by_events(self, until, cmds, done);
        }
        let turn = self.run(until.unwrap_or(Time(u64::MAX)));
        self.ready.pour(done);
        turn
    }

    fn set_stories(&mut self, on: bool) {
        self.units.set_stories(on, (MAX_DEPTH, self.ready.len()), |cmd| match cmd {
            cmd if (cmd as usize) < MAX_DEPTH => self.commands[cmd].cmd.whose,
            _ => Whose::User,
        });
        // What is done when it comes has no story.
        self.instant = self.timing().is_instant() && !self.closely && !on;
    }

    #[inline]
    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.units.tell_of(number, story)
    }
}

impl<M: Medium> OpenChannel for Device<M> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn timing(&self) -> &Timing {
        self.units.timing()
    }

    fn kept(&self) -> u32 {
        self.kept
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        self.chunks[chunk_index]
    }

    fn depth(&self) -> usize {
        MAX_DEPTH
    }

    fn is_cached(&self) -> bool {
        self.medium.is_cached()
    }

    fn copies_inside(&self) -> u32 {
        self.timing().copyback
    }

    #[inline]
    fn has_work_of_its_own(&self) -> bool {
        self.timing().slc.is_on()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.flaws.take_notice()
    }

    fn waited_behind(&self, number: u64, whose: [Whose; 2]) -> Option<(u64, [u64; 2])> {
        self.units.tales.as_ref()?.waited_behind(number, whose)
    }

    #[inline]
    fn hint_block(&self, ppa: Ppa) {
        if self.geometry.chunk_index(ppa) < self.chunks.len() {
            self.medium.hint(ppa);
        }
    }
}

/// A list for one or more addresses, as the vector commands take it.
impl From<&[Ppa]> for Box<Addresses> {
    /// # Panics
    /// With more than [`MAX_ADDRESSES`] addresses.
    fn from(from: &[Ppa]) -> Box<Addresses> {
        let mut list = Box::<Addresses>::default();
        list.from[..from.len()].copy_from_slice(from);
        list
    }
}
