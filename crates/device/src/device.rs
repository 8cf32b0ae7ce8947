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
mod copyback;
mod count;
mod flaws;
mod health;

pub use count::ChunkCount;
pub use flaws::ErrorCounters;
pub use health::{Health, WEAR_RANGES, Wear};

use std::collections::VecDeque;

use flash::{
    BlockBits, Chunk, ChunkState, Geometry, Medium, Moved, Ppa, Reliability, TAG_BYTES, Timing,
    block_bits,
};
use port::lazy::table;
use port::{Buffer, OutOfMemory, Part, Port, Ring, Slots, Status, Stories, Story, Time, Turn};
use port::{Whose, turn_by_events};
use xxhash_rust::xxh3::Xxh3;

use crate::command::{
    Addresses, Content, MAX_ADDRESSES, OpenChannel, VectorCmd, VectorDone, VectorOp,
};
use crate::notices::Notice;
use crate::opened::Opened;
use crate::units::{Op, OpKind, Units};
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
/// that it took so far, within the two.
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
            cookie: 0,
            op: VectorOp::Read,
            content: Content::Data,
            whose: Whose::User,
            count: 0,
            ppa: Ppa(0),
            list: None,
            buffer: Buffer::empty(),
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
    stories: Option<Box<Stories>>,
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
    /// A drive with all chunks free.
    pub fn new(geometry: &Geometry, timing: &Timing, medium: M) -> Result<Device<M>, OutOfMemory> {
        let ops = most_ops(geometry);
        let slots = geometry.chunk_slots();
        let kept = medium.kept();
        let copy_bytes = MAX_ADDRESSES * (kept as usize + TAG_BYTES);
        let mut device = Device {
            geometry: *geometry,
            chunks: table(Chunk::default(), slots, "the drive's chunks")?,
            whole: table(0, slots.div_ceil(64), "the drive's chunks")?,
            erasing: table(0, slots.div_ceil(64), "the drive's chunks")?,
            opened: Opened::new(geometry, timing)?,
            instant: timing.is_instant(),
            closely: false,
            cliff: timing.endurance,
            flaws: Box::new(Flaws::new(Units::slots(geometry, timing))),
            units: Units::new(geometry, timing, ops)?,
            commands: Slots::new(MAX_DEPTH),
            ready: Ring::new(MAX_DEPTH),
            stories: None,
            copy_buffers: Buffer::carve(MAX_COPIES, copy_bytes)?,
            copied_row: Buffer::empty(),
            flushes: VecDeque::new(),
            on_a_clock: false,
            gives_nothing: kept == 0 && medium.reads_nothing_at_once(),
            medium,
            kept,
            counters: Counters::default(),
        };
        device.prepare_copies()?;
        Ok(device)
    }

    /// Bytes of memory that the tables of such a drive take, those of its medium
    /// apart.
    pub fn tables(geometry: &Geometry, timing: &Timing) -> u64 {
        let slots = geometry.chunk_slots() as u64;
        let chunks = slots * size_of::<Chunk>() as u64 + 2 * slots.div_ceil(64) * 8;
        let commands = MAX_DEPTH * (size_of::<Command>() + 4 + size_of::<VectorDone>());
        let outcomes = Units::slots(geometry, timing) * size_of::<flaws::Outcome>();
        let units = Units::tables(geometry, timing, most_ops(geometry));
        chunks + (commands + outcomes) as u64 + units + Opened::tables(geometry, timing)
    }

    /// A drive that errs as `reliability` says, its draws decided by `seed`.
    /// The chunks that are bad from the factory are offline, the others free.
    pub fn with(
        geometry: &Geometry,
        timing: &Timing,
        reliability: &Reliability,
        seed: u64,
        medium: M,
    ) -> Result<Device<M>, OutOfMemory> {
        let mut device = Device::new(geometry, timing, medium)?;
        device.set_model(reliability, seed);
        device.leave_factory();
        (0..device.chunks.len()).for_each(|index| device.note_free(index));
        Ok(device)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        let (shared, joined) = self.units.shared_reads();
        let reads = self.counters.reads - shared;
        Counters { reads, suspends: self.units.suspends, shared, joined, ..self.counters }
    }

    /// Whether its time is a clock's. If not, time stands still while the
    /// medium has not moved the bytes of an operation or flush, so that its
    /// completion does not depend on how long that took. On a clock only what
    /// waits is late: the medium is asked again a little later, and all else
    /// goes on.
    pub fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.on_a_clock = on_a_clock;
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// The medium, to be told how it is to err. Its bytes are the drive's.
    pub fn medium_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    /// Power goes: what was in flight is lost, the medium keeps what was
    /// programmed.
    pub fn cut(self) -> M {
        self.medium
    }

    /// A drive made again from a medium and the chunks' descriptors, as after
    /// a power cut. Writes that were in flight never happened.
    pub fn restore(
        geometry: &Geometry,
        timing: &Timing,
        medium: M,
        chunks: &[Chunk],
    ) -> Result<Device<M>, OutOfMemory> {
        Device::restore_with(geometry, timing, &Reliability::default(), 0, medium, chunks)
    }

    /// The same of a drive that errs. Its data keep their age where the medium
    /// kept the drive's time, or its clock goes on from where it was; see
    /// [`Device::let_time_pass`].
    pub fn restore_with(
        geometry: &Geometry,
        timing: &Timing,
        reliability: &Reliability,
        seed: u64,
        medium: M,
        chunks: &[Chunk],
    ) -> Result<Device<M>, OutOfMemory> {
        let mut device = Device::new(geometry, timing, medium)?;
        assert_eq!(chunks.len(), device.chunks.len(), "descriptors of the same geometry");
        device.chunks.copy_from_slice(chunks);
        let size = geometry.chunk_blocks();
        for chunk in &mut device.chunks {
            let closed_early = chunk.is_closed_early(size);
            chunk.wp = chunk.programmed;
            if chunk.state != ChunkState::Offline {
                chunk.state = match chunk.wp {
                    0 => ChunkState::Free,
                    wp if wp == size || closed_early => ChunkState::Closed,
                    _ => ChunkState::Open,
                };
            }
            if chunk.programmed == 0 {
                // Its erase may not have ended before the cut.
                chunk.erased();
            }
        }
        (0..chunks.len()).for_each(|index| {
            device.note_whole(index);
            device.note_free(index);
        });
        if chunks.iter().any(Chunk::has_failed) {
            device.look_closely();
        }
        device.set_model(reliability, seed);
        device.resume_clock();
        Ok(device)
    }

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

    /// All chunk descriptors, by [`Geometry::chunk_index`].
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// A hash of all chunk descriptors and counters: equal where two runs were
    /// equal.
    pub fn state_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for c in &self.chunks {
            for word in [c.state as u32, c.wp, c.programmed, c.wear] {
                hash.update(&word.to_le_bytes());
            }
        }
        let c = self.counters();
        for word in [c.reads, c.programs, c.erases, c.blocks_read, c.blocks_programmed, c.suspends]
        {
            hash.update(&word.to_le_bytes());
        }
        self.flaw_words().for_each(|word| hash.update(&word.to_le_bytes()));
        hash.digest()
    }

    /// The command's runs, with the number of the first address: neighbours in one
    /// row of what is programmed, `to` there or by a write, else in one wide page.
    fn for_each_run(
        geometry: &Geometry,
        cmd: &VectorCmd,
        to: bool,
        mut f: impl FnMut(Ppa, u8, u8),
    ) {
        let count = u64::from(cmd.count);
        let address = |i: u64| match &cmd.list {
            Some(list) if to => list.to[i as usize],
            Some(list) => list.from[i as usize],
            None => Ppa(cmd.ppa.0 + i),
        };
        let mut i = 0;
        while i < count {
            let start = address(i);
            let left = match to || cmd.op == VectorOp::Write {
                true => geometry.row_blocks() - geometry.in_row(start),
                false => geometry.wide_page_blocks() - geometry.in_wide_page(start),
            };
            let mut n = 1;
            while i + n < count && n < u64::from(left) && address(i + n).0 == start.0 + n {
                n += 1;
            }
            f(start, i as u8, n as u8);
            i += n;
        }
    }

    /// Takes the command at the front, which was let in.
    #[inline(always)]
    fn start(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let cmd = cmds.front().expect("it was looked at");
        if self.may_read(cmd) && cmd.is_one_access(&self.geometry) {
            let id = self.enter(cmds);
            self.launch_one(now, id, OpKind::Read);
        } else {
            self.start_any(now, cmds);
        }
    }

    /// The same of any command.
    #[inline(never)]
    fn start_any(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let cmd = cmds.front().expect("it was looked at");
        let (op, checked) = (cmd.op, self.check(cmd));
        let answer = match checked {
            Ok(()) => self.instant.then(|| self.pass_write(cmd)).flatten(),
            Err(why) => Some(why),
        };
        if let Some((status, failed)) = answer {
            let cmd = cmds.pop().expect("it was looked at");
            self.answer(now, cmd, status, failed);
            return;
        }
        let id = self.enter(cmds);
        if op == VectorOp::Copy && self.is_inside(&self.commands[id].cmd) {
            self.begin_inside(id);
        } else if op == VectorOp::Copy {
            let scratch = self.copy_buffers.pop().expect("submit saw a copy buffer");
            self.commands[id].cmd.buffer = scratch;
        } else if op == VectorOp::Flush {
            self.flushes.push_back(Flush { came: now, ask: now, command: id });
            self.ask_barrier(now);
            return;
        }
        self.launch(now, id);
    }

    /// Puts the command at the front, which was checked, among those at work.
    #[inline(always)]
    fn enter(&mut self, cmds: &mut Ring<VectorCmd>) -> u32 {
        let id = self.commands.take_as_is();
        let command = &mut self.commands[id];
        // Whoever had this place before left nothing in it that is to be dropped.
        debug_assert!(command.cmd.list.is_none() && command.cmd.buffer.is_empty());
        let cmd = cmds.pop().expect("it was looked at");
        std::mem::forget(std::mem::replace(&mut command.cmd, cmd));
        (command.failed, command.status, command.writing) = (0, Status::SUCCESS, false);
        command.inside = false;
        id
    }

    /// Asks the medium for the barrier of the oldest flush, and once more for
    /// the next: a barrier covers only what was done before it.
    #[inline(never)]
    fn ask_barrier(&mut self, to: Time) {
        let time = self.drive_time(to);
        while let Some(flush) = self.flushes.front_mut() {
            if flush.ask > to {
                return;
            }
            // Off the clock time has stood still since it came.
            let (at, id) = (if self.on_a_clock { to } else { flush.ask }, flush.command);
            self.medium.note_time(time);
            match self.medium.barrier() {
                Moved::Pending => {
                    if self.on_a_clock {
                        flush.ask = to + (to.since(flush.came) / 4).clamp(RETRY.0, RETRY.1);
                    }
                    return;
                }
                Moved::Done => {}
                Moved::Failed => self.commands[id].status = Status::WRITE_FAULT,
            }
            if let Some(stories) = &mut self.stories {
                stories.tell(flush.came).pass(Part::Flush, at);
            }
            self.flushes.pop_front();
            self.command_done(at, id);
        }
    }

    /// Completes a command that has nothing under way.
    #[inline]
    fn answer(&mut self, now: Time, cmd: VectorCmd, status: Status, failed: BlockBits) {
        let VectorCmd { cookie, list, buffer, .. } = cmd;
        self.ready.put(|| VectorDone { cookie, status, failed, at: now, list, buffer });
        if self.stories.is_some() {
            self.tell_at_once(now);
        }
    }

    /// The story of a command that is done when it comes.
    #[cold]
    #[inline(never)]
    fn tell_at_once(&mut self, now: Time) {
        if let Some(stories) = &mut self.stories {
            stories.tell(now);
        }
    }

    /// The story of a command, if it ends with what this parallel unit has done. A
    /// copy is two operations and more, of which nothing is told.
    #[cold]
    #[inline(never)]
    fn tell(&mut self, now: Time, pu: u32, op: &Op) {
        let command = &self.commands[op.cmd];
        if let Some(stories) = &mut self.stories
            && command.left == 1
            && command.cmd.op != VectorOp::Copy
        {
            self.units.tell(now, pu, op, stories);
        }
    }

    /// Whether a command is one access, and none is under way: where no
    /// operation takes time it is then done when it comes.
    #[inline]
    fn passes(&self, cmd: &VectorCmd) -> bool {
        let is_quiet = self.instant && self.commands.live() == 0;
        is_quiet && cmd.is_one_access(&self.geometry)
    }

    /// Does a read when it comes. False, and nothing has happened, where it goes
    /// the way of all others.
    #[inline]
    fn pass_read(&mut self, cmd: &mut VectorCmd) -> bool {
        let (kept, count) = (self.medium.kept(), u32::from(cmd.count));
        let is_read = cmd.op == VectorOp::Read && count > 0 && self.passes(cmd);
        if !is_read || cmd.buffer.len() != cmd.buffer_bytes(kept) || !self.can_read(cmd.ppa, count)
        {
            return false;
        }
        let data = count as usize * cmd.content.each(kept).0;
        let (data, tags) = cmd.buffer.bytes_mut().split_at_mut(data);
        // Which blocks it is that fail is found out by an operation.
        if self.medium.read(cmd.ppa, count, data, tags) != Moved::Done {
            return false;
        }
        self.counters.reads += 1;
        self.counters.blocks_read += u64::from(count);
        true
    }

    /// Does a write that was let in when it comes. `None` where it goes the way of
    /// all others.
    #[inline]
    fn pass_write(&mut self, cmd: &VectorCmd) -> Option<(Status, BlockBits)> {
        if cmd.op != VectorOp::Write || !self.passes(cmd) {
            return None;
        }
        let count = u32::from(cmd.count);
        let data = count as usize * cmd.content.each(self.medium.kept()).0;
        let (data, tags) = cmd.buffer.bytes().split_at(data);
        let moved = self.medium.program(cmd.ppa, count, data, tags);
        if moved == Moved::Pending {
            return None;
        }
        self.counters.programs += 1;
        self.counters.blocks_programmed += u64::from(count);
        if moved == Moved::Failed {
            self.program_failed(cmd.ppa, count);
            return Some((self.program_status(cmd.ppa), block_bits(0, count as usize)));
        }
        self.programmed(self.geometry.chunk_index(cmd.ppa), count);
        Some((Status::SUCCESS, 0))
    }

    /// Gives the command's operations to the parallel units.
    #[inline(always)]
    fn launch(&mut self, now: Time, id: u32) {
        let command = &self.commands[id];
        let kind = match command.cmd.op {
            VectorOp::Write => OpKind::Program,
            VectorOp::Reset | VectorOp::Retire => OpKind::Erase,
            VectorOp::Copy if command.writing => OpKind::Program,
            VectorOp::Read | VectorOp::Copy => OpKind::Read,
            VectorOp::Flush => unreachable!("a flush is no operation of a unit"),
        };
        if command.cmd.is_one_access(&self.geometry) {
            self.launch_one(now, id, kind);
        } else {
            self.launch_many(now, id, kind);
        }
    }

    /// Gives the one operation of a command to its parallel unit.
    #[inline(always)]
    fn launch_one(&mut self, now: Time, id: u32, kind: OpKind) {
        let command = &mut self.commands[id];
        command.left = 1;
        let cmd = &command.cmd;
        if kind == OpKind::Read && cmd.content != Content::Data {
            self.medium.hint_tag(cmd.ppa);
        }
        let op = Op::new(id, kind, cmd.ppa, 0, cmd.count).of_tags(cmd.content == Content::Tags);
        let finished = self.units.enqueue(now, op, cmd.whose);
        if finished.is_some() {
            self.finish_at_once(now, finished);
        }
    }

    /// Gives the operations of a command of several runs to the parallel units.
    #[inline(never)]
    fn launch_many(&mut self, now: Time, id: u32, kind: OpKind) {
        let command = &mut self.commands[id];
        let cmd = &command.cmd;
        let (tags, whose) = (cmd.content == Content::Tags, cmd.whose);
        let inside = command.inside;
        let mut ops = [(Ppa(0), 0u8, 0u8); MAX_ADDRESSES];
        let mut n = 0;
        if kind == OpKind::Erase {
            let list = cmd.list.as_ref().expect("one reset was handled above");
            for (i, &ppa) in list.from[..cmd.count as usize].iter().enumerate() {
                ops[i] = (ppa, i as u8, 1);
            }
            n = cmd.count as usize;
        } else {
            Self::for_each_run(&self.geometry, cmd, command.writing, |ppa, first, count| {
                ops[n] = (ppa, first, count);
                n += 1;
            });
        }
        command.left = n as u32;
        for &(ppa, first, count) in &ops[..n] {
            let op = Op::new(id, kind, ppa, first, count).of_tags(tags).inside(inside);
            let finished = self.units.enqueue(now, op, whose);
            self.finish_at_once(now, finished);
        }
    }

    /// Handles all events until one has completed something, and those of its time; or
    /// until the next is later than `until`. Flushes are not looked at.
    fn run(&mut self, until: Time) -> Turn {
        if self.stories.is_some() {
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
            if TOLD && self.stories.is_some() {
                self.tell(now, pu, &op);
            }
            finished = self.units.release::<TOLD>(now, pu);
            self.op_done(now, pu, &op, moved);
        }
        true
    }

    /// The medium has not moved the bytes yet: it is asked again. Whether time goes on
    /// meanwhile.
    #[cold]
    fn wait_for_bytes(&mut self, now: Time, pu: u32) -> bool {
        let at = if self.on_a_clock { now + RETRY.0 } else { now };
        self.units.retry(now, at, pu);
        self.on_a_clock
    }

    /// Moves the bytes of an operation, and enters it when they were. Here are reads
    /// that give nothing; all others are out of line.
    #[inline(always)]
    fn move_bytes(&mut self, now: Time, pu: u32, op: &Op) -> Moved {
        if op.kind != OpKind::Read || !self.gives_nothing || self.closely {
            return self.move_any_bytes(now, pu, op);
        }
        let cmd = &self.commands[op.cmd].cmd;
        if cmd.content != Content::Data || cmd.op == VectorOp::Copy {
            return self.move_any_bytes(now, pu, op);
        }
        self.counters.reads += 1;
        self.counters.blocks_read += u64::from(op.count);
        Moved::Done
    }

    /// The same of any operation.
    #[inline(never)]
    fn move_any_bytes(&mut self, now: Time, pu: u32, op: &Op) -> Moved {
        let mut moved = Moved::Failed;
        if !self.closely {
            moved = self.transfer(op, 0, op.count);
            if moved == Moved::Failed && op.kind == OpKind::Read {
                // Which of its blocks was it?
                self.look_closely();
            }
        }
        if self.closely {
            moved = self.move_closely(pu, op);
        }
        if moved != Moved::Pending {
            self.account(now, pu, op, moved);
        }
        moved
    }

    /// Moves the bytes of `count` blocks of an operation, from its `from`th on.
    #[inline(always)]
    fn transfer(&mut self, op: &Op, from: u8, count: u8) -> Moved {
        let command = &mut self.commands[op.cmd];
        let is_copy = command.cmd.op == VectorOp::Copy;
        let content = if is_copy { Content::Tagged } else { command.cmd.content };
        // Bytes of a block, and of its tag.
        let (kept, tag) = content.each(self.kept);
        let (first, blocks) = ((op.first + from) as usize, count as usize);
        let total = command.cmd.count as usize;
        if blocks == total && op.kind == OpKind::Read {
            // All that the command reads: mostly so.
            let (data, tags) = command.cmd.buffer.bytes_mut().split_at_mut(blocks * kept);
            return self.medium.read(op.ppa, count.into(), data, &mut tags[..blocks * tag]);
        }
        let data = first * kept..(first + blocks) * kept;
        // Relative to the start of the data; the end of it without tags.
        let (tag_first, tag_bytes) = (first * tag, blocks * tag);
        let tag_start = (total - first) * kept + tag_first;
        let ppa = Ppa(op.ppa.0 + u64::from(from));
        let chunk = self.geometry.chunk_index(ppa);
        match op.kind {
            OpKind::Read => {
                let (front, rest) = command.cmd.buffer.bytes_mut().split_at_mut(data.end);
                let tags = &mut rest[tag_start - blocks * kept..][..tag_bytes];
                self.medium.read(ppa, count.into(), &mut front[data.start..], tags)
            }
            // The erase before it failed.
            OpKind::Program if self.chunks[chunk].state == ChunkState::Offline => Moved::Failed,
            OpKind::Program if op.inside => self.move_inside(op),
            OpKind::Program => {
                let bytes = command.cmd.buffer.bytes();
                let tags = &bytes[data.start + tag_start..][..tag_bytes];
                self.medium.program(ppa, count.into(), &bytes[data], tags)
            }
            OpKind::Erase => self.medium.reset(ppa),
        }
    }

    /// Tells the medium what is known of a chunk.
    #[inline]
    fn describe(&mut self, index: usize) {
        self.medium.describe(index, &self.chunks[index]);
    }

    /// Enters an operation that has happened.
    #[inline(always)]
    fn account(&mut self, now: Time, pu: u32, op: &Op, moved: Moved) {
        if self.closely {
            self.account_closely(now, pu, op);
        }
        let blocks = op.count as u32;
        match op.kind {
            OpKind::Read => {
                self.counters.reads += 1;
                self.counters.blocks_read += u64::from(blocks);
            }
            OpKind::Program => {
                self.counters.programs += 1;
                self.counters.blocks_programmed += u64::from(blocks);
                if op.inside {
                    self.account_inside(op);
                }
                if moved == Moved::Failed {
                    self.program_failed(op.ppa, blocks);
                } else {
                    self.programmed(self.geometry.chunk_index(op.ppa), blocks);
                }
            }
            OpKind::Erase => {
                let index = self.geometry.chunk_index(op.ppa);
                self.counters.erases += 1;
                self.erasing[index / 64] &= !(1 << (index % 64));
                if moved == Moved::Done {
                    self.chunks[index].erased();
                }
                self.note_free(index);
                self.describe(index);
            }
        }
    }

    /// Blocks of a chunk are programmed.
    #[inline]
    fn programmed(&mut self, index: usize, blocks: u32) {
        self.chunks[index].program(blocks);
        if self.chunks[index].programmed == self.geometry.chunk_blocks() {
            self.note_whole(index);
        }
        self.describe(index);
    }

    #[inline(always)]
    fn op_done(&mut self, now: Time, pu: u32, op: &Op, moved: Moved) {
        if moved == Moved::Failed || self.closely {
            self.judge(pu, op, moved);
        }
        let command = &mut self.commands[op.cmd];
        command.left -= 1;
        if command.left == 0 {
            self.command_done(now, op.cmd);
        }
    }

    /// Enters in its command how an operation that is looked at closely went.
    #[inline(never)]
    fn judge(&mut self, pu: u32, op: &Op, moved: Moved) {
        if moved != Moved::Failed {
            self.op_went_well(pu);
            return;
        }
        let (status, failed) = self.op_failed(pu, op);
        let command = &mut self.commands[op.cmd];
        command.status = command.status.and(status);
        command.failed |= failed;
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
        if self.stories.is_some() {
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
        match (self.flushes.front(), self.units.next_event()) {
            (None, event) => event,
            (Some(flush), None) => Some(flush.ask),
            (Some(flush), Some(event)) => Some(flush.ask.min(event)),
        }
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
        self.units.set_stories(on, |cmd| match cmd {
            cmd if (cmd as usize) < MAX_DEPTH => self.commands[cmd].cmd.whose,
            _ => Whose::User,
        });
        self.stories = on.then(|| Stories::new(MAX_DEPTH, self.ready.len()));
        // What is done when it comes has no story.
        self.instant = self.timing().is_instant() && !self.closely && !on;
    }

    #[inline]
    fn story(&self, number: u64) -> Option<&Story> {
        self.stories.as_ref()?.get(number)
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
