//! Parallel units and channels: who works when.
//!
//! An operation is one access of one parallel unit: a read of a wide page or a
//! part of it, a row program, an erase. Its life: command on the channel,
//! transfer in (program), array, transfer out (read). Parallel units work in
//! parallel unless they meet on their channel (C5); a parallel unit does one
//! operation at a time (C6), and holds its page register until the transfer out is
//! over, unless it has several registers (see [`registers`]). Reads go first where
//! the drive says so, both at the die and on the channel, and may suspend a
//! program or erase. Everything else is first come, first served.
//!
//! No stream of reads keeps anything else waiting for ever: when
//! [`Timing::read_burst`] reads have gone before what waits at a die, or have
//! had a channel before a transfer that waits for it, that is next, and is not
//! interrupted. Nor does anything keep reads waiting: at least one goes before
//! each program or erase.
//!
//! Each parallel unit has at most one pending event: the end of its array's
//! work or of its turn on the channel. A phase that takes no time makes no
//! event.
//!
//! Where there is an SLC cache, a program goes to the area of its parallel unit
//! if that has room, and to the slow cells if not. A parallel unit that has had
//! nothing to do for a while folds, row by row: it reads the row in its area
//! and programs it into the slow cells, without the channel. A fold stands as
//! an operation that belongs to no command; it may be suspended as a program.

mod array;
mod channel;
mod copies;
mod op;
mod registers;
mod sensing;
mod sharing;
mod suspension;
mod telling;
mod upkeep;
mod work;

pub(crate) use op::{Op, OpKind};

use flash::{Geometry, Ppa, Timing};
use port::{OutOfMemory, Slots, Time, Whose};

use crate::list::{Linked, List, NONE, Table};
use crate::slc::{Slc, SlcHealth};
use crate::tales::Tales;
use crate::timeline::Timeline;
use channel::Channel;
use registers::Dies;
use sharing::Sharing;

/// What a parallel unit is doing with its active operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
enum State {
    #[default]
    Idle,
    /// Nothing to do, and when that has lasted for a while it folds.
    Resting,
    /// Command and, for a program, data on the channel, or waiting for it.
    In,
    /// A read is about to enter the array, and it is asked how long it takes.
    Sensing,
    /// The array works until `array_end`.
    Array,
    /// Data out on the channel, or waiting for it.
    Out,
    /// A suspend command takes effect.
    Suspending,
    /// All is done but the bytes.
    Finishing,
    /// The controller finds that a read is to be repeated.
    Decoding,
    /// Its die has several registers, or reads share them, and it is about to enter the
    /// array.
    Entering,
    /// Its die has several registers, and it has its data and waits for the array.
    Loaded,
}

#[derive(Clone, Copy)]
struct Unit {
    next: u32,
    state: State,
    /// The operation at work.
    active: u32,
    /// A program or erase that was suspended, and its array time to go.
    paused: u32,
    paused_left: u64,
    array_end: Time,
    /// Channel time that it needs, or still needs.
    bus_time: u64,
    /// Repetitions to go of a read whose tries all go out to the controller.
    tries: u32,
    /// Reads that went before something else since the last of that ended.
    passed: u32,
    /// Waiting reads, where reads go first.
    reads: List,
    /// Everything else that waits.
    others: List,
}

impl Default for Unit {
    fn default() -> Unit {
        Unit {
            next: NONE,
            state: State::Idle,
            active: NONE,
            paused: NONE,
            paused_left: 0,
            array_end: Time::ZERO,
            bus_time: 0,
            tries: 0,
            passed: 0,
            reads: List::default(),
            others: List::default(),
        }
    }
}

impl Linked for Unit {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// All parallel units and channels of a drive. Where a function gives a
/// parallel unit, its active operation is done but for the bytes: the caller
/// moves them and then calls [`Units::release`], or [`Units::retry`]. Or, where
/// reads are asked how long they take, [`Units::is_sensing`] is true and
/// [`Units::sense`] lets it go on.
///
/// Where a die has several registers ([`registers`]) each is a unit of its own to
/// all but the queues, which are the first one's.
pub(crate) struct Units {
    geometry: Geometry,
    timing: Timing,
    /// tR, where all pages have the same and none is in an SLC cache.
    same_read: Option<u64>,
    /// Whether a quarter of a page has a tR of its own.
    partial_reads: bool,
    /// Whether each read is asked how long its array read takes.
    senses: bool,
    /// What the controller takes to find that one is to be repeated.
    decode: u64,
    /// Transfer time by number of blocks.
    transfer: Vec<u64>,
    /// The same of the tags alone.
    transfer_tags: Vec<u64>,
    pub ops: Slots<Op>,
    units: Table<Unit>,
    channels: Table<Channel>,
    /// Bits of a unit's number below that of its channel, and those of them that say
    /// which register of its die it is.
    channel_bits: u32,
    register_bits: u32,
    dies: Option<Box<Dies>>,
    /// By command, where a row comes from that is copied inside its unit, if any is.
    sources: Vec<Ppa>,
    /// What reads share, if anything; then `dies` are there, too.
    sharing: Option<Box<Sharing>>,
    /// Whether there are `dies`, or reads may be repeated.
    apart: bool,
    timeline: Timeline,
    /// The SLC cache, if there is one.
    slc: Option<Box<Slc>>,
    /// What stories are made of, where they are told.
    pub tales: Option<Box<Tales>>,
    /// How long the array of each die worked, or is to until what it is at ends, in ns;
    /// where that is asked for.
    worked: Option<Box<[u64]>>,
    /// Suspensions so far.
    pub suspends: u64,
}

impl Units {
    /// Length of arrays indexed by the number of a unit.
    pub fn slots(geometry: &Geometry, timing: &Timing) -> usize {
        geometry.pu_slots() << registers::bits(geometry, timing)
    }

    /// Bytes of memory that they take.
    pub fn tables(geometry: &Geometry, timing: &Timing, max_ops: usize) -> u64 {
        let slots = Units::slots(geometry, timing);
        let units = slots * size_of::<Unit>() + max_ops * (size_of::<Op>() + 4);
        let timeline = Timeline::bytes(geometry, slots) + Dies::bytes(geometry, timing);
        let timeline = timeline + Sharing::bytes(geometry.dimensions().planes, timing, slots);
        (units + timeline) as u64 + Slc::tables(geometry, timing)
    }

    pub fn new(geometry: &Geometry, timing: &Timing, max_ops: usize) -> Result<Units, OutOfMemory> {
        let groups = geometry.dimensions().groups as usize;
        let most = geometry.row_blocks().max(64);
        // One more for each parallel unit that may fold, which it keeps.
        let folds = if timing.slc.is_on() { geometry.total_pus() as usize } else { 0 };
        let mut ops = Slots::new(max_ops + folds);
        let slc = Slc::new(geometry, timing, || ops.take(Op::default()))?;
        let same_read = timing.read.len() == 1 && timing.read_partial.is_empty() && slc.is_none();
        // One that shares another's sensing has less of it to tell.
        let same_read = same_read && !Sharing::is_on(geometry.dimensions().planes, timing);
        // With none, what never ceases to be written would starve reads.
        let read_burst = timing.read_burst.max(1);
        let slots = Units::slots(geometry, timing);
        let dies = Dies::new(geometry, timing);
        let sharing = Sharing::new(geometry.dimensions().planes, timing, slots);
        Ok(Units {
            geometry: *geometry,
            partial_reads: !timing.read_partial.is_empty(),
            timing: Timing { read_burst, ..timing.clone() },
            same_read: same_read.then(|| timing.read[0]),
            senses: false,
            decode: 0,
            transfer: (0..=most).map(|n| timing.transfer(n)).collect(),
            transfer_tags: (0..=most).map(|n| timing.transfer_tags(n)).collect(),
            ops,
            units: Table::new(slots),
            channels: Table::new(groups),
            channel_bits: (slots / groups.next_power_of_two()).trailing_zeros(),
            register_bits: registers::bits(geometry, timing),
            apart: dies.is_some(),
            dies,
            sources: Vec::new(),
            sharing,
            timeline: Timeline::new(geometry, slots),
            slc,
            tales: None,
            worked: None,
            suspends: 0,
        })
    }

    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        self.timeline.next()
    }

    /// The first register of its die.
    #[inline]
    fn home(&self, pu: u32) -> u32 {
        pu >> self.register_bits << self.register_bits
    }

    /// The operation that a parallel unit works on.
    #[inline]
    pub fn active(&self, pu: u32) -> Op {
        self.ops[self.units[pu].active]
    }

    /// Adds an operation to its parallel unit's queue. Its fields are moved
    /// one by one: a wider copy right after they were written stalls the
    /// processor.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Time, op: Op, whose: Whose) -> Option<u32> {
        let pu = (self.geometry.pu_index(op.ppa) << self.register_bits) as u32;
        let is_read = op.kind == OpKind::Read;
        if self.slc.is_some() && self.dies.is_none() && self.units[pu].state <= State::Resting {
            self.give_back(now, pu, op.kind, op.ppa);
            self.timeline.settle(pu);
        }
        let id = self.ops.take_as_is();
        let held = &mut self.ops[id];
        (held.cmd, held.ppa, held.kind) = (op.cmd, op.ppa, op.kind);
        (held.first, held.count, held.suspended) = (op.first, op.count, 0);
        (held.tags, held.inside) = (op.tags, op.inside);
        if self.dies.is_some() {
            self.join(now, pu, id, whose);
            return None;
        }
        if self.tales.is_some() {
            self.note_came(now, pu, id, op.kind.of(whose));
        }
        let unit = &mut self.units[pu];
        if unit.state <= State::Resting {
            if unit.state == State::Resting {
                self.timeline.clear(pu);
            }
            let finished = self.start(now, pu, id);
            return self.settle(pu, finished);
        }
        if is_read && self.timing.reads_first {
            unit.reads.push(id, &mut self.ops);
            if unit.state == State::Array && self.timing.suspend {
                self.try_suspend(now, pu, pu);
                self.timeline.settle(pu);
            }
        } else {
            unit.others.push(id, &mut self.ops);
        }
        None
    }

    /// The timeline is right again when the parallel unit has done what it can:
    /// before an operation whose end is the caller's to handle it need not be.
    #[inline(always)]
    fn settle(&mut self, pu: u32, finished: Option<u32>) -> Option<u32> {
        if finished.is_none() {
            self.timeline.settle(pu);
        }
        finished
    }

    /// Handles one event that is due at `to`, at its own time. `Err` when
    /// there is none.
    #[inline(always)]
    pub fn step<const TOLD: bool>(&mut self, to: Time) -> Result<(Time, Option<u32>), ()> {
        let (pu, now) = self.timeline.due(to).ok_or(())?;
        let state = self.units[pu].state;
        let finished = if state == State::In || state == State::Out {
            self.bus_end(now, pu, state)
        } else {
            self.timeline.clear(pu);
            match state {
                State::Array => self.array_end(now, pu),
                _ => self.rare_event::<TOLD>(now, pu, state),
            }
        };
        Ok((now, self.settle(pu, finished)))
    }

    /// An event that is neither the end of a transfer nor of the array's work. Out of
    /// line, as all that is rare: what is usual then has the registers.
    #[inline(never)]
    fn rare_event<const TOLD: bool>(&mut self, now: Time, pu: u32, state: State) -> Option<u32> {
        match state {
            State::Suspending if self.dies.is_some() => {
                self.make_way(now, pu);
                None
            }
            State::Entering => self.enter_apart(now, pu),
            State::Suspending => self.start_read::<TOLD>(now, pu),
            State::Finishing => Some(pu),
            State::Decoding => self.repeat(now, pu),
            State::Resting => self.keep(now, pu),
            _ => unreachable!("such a unit has no event"),
        }
    }

    /// Ends the active operation and starts the next.
    #[inline(always)]
    pub fn release<const TOLD: bool>(&mut self, now: Time, pu: u32) -> Option<u32> {
        if self.dies.is_some() {
            self.leave(now, pu);
            return None;
        }
        let unit = &mut self.units[pu];
        if unit.passed > 0 && self.ops[unit.active].kind != OpKind::Read {
            unit.passed = 0;
        }
        self.ops.give(unit.active);
        (unit.active, unit.state) = (NONE, State::Idle);
        let finished = if unit.paused != NONE || !unit.others.is_empty() {
            self.start_next::<TOLD>(now, pu)
        } else if let Some((id, op)) = unit.reads.pop_entry(&mut self.ops) {
            unit.active = id;
            let op = *op;
            if TOLD {
                self.note_begun(now, pu, id);
            }
            self.start_op(now, pu, op)
        } else {
            self.rest(now, pu)
        };
        self.settle(pu, finished)
    }

    /// The bytes could not be moved yet: the end comes again, at `at`. Where that is
    /// later, others have the channel meanwhile.
    pub fn retry(&mut self, now: Time, at: Time, pu: u32) {
        self.timeline.set(pu, false, at);
        self.timeline.settle(pu);
        if at > now {
            self.pass_on(now, pu);
        }
    }

    /// Starts what waits, of several kinds perhaps.
    #[inline(never)]
    fn start_next<const TOLD: bool>(&mut self, now: Time, pu: u32) -> Option<u32> {
        let unit = &mut self.units[pu];
        unit.state = State::Idle;
        if !unit.reads.is_empty() && self.may_pass(pu) {
            return self.start_read::<TOLD>(now, pu);
        }
        let unit = &mut self.units[pu];
        if unit.paused != NONE {
            unit.active = std::mem::replace(&mut unit.paused, NONE);
            let left = unit.paused_left + self.timing.resume_time;
            let id = unit.active;
            self.note_begun(now, pu, id);
            if let Some(tales) = &mut self.tales {
                tales.takes(id, self.timing.resume_time);
            }
            return self.work(now, pu, false, left);
        }
        let Some(id) = unit.others.pop(&mut self.ops) else {
            return self.rest(now, pu);
        };
        if self.slc.is_some() {
            let Op { kind, ppa, .. } = self.ops[id];
            if self.give_back(now, pu, kind, ppa) {
                self.units[pu].others.push_front(id, &mut self.ops);
                return None;
            }
        }
        self.start_waiting::<TOLD>(now, pu, id)
    }

    /// Starts the first read that waits. Only called when one does.
    #[inline(always)]
    fn start_read<const TOLD: bool>(&mut self, now: Time, pu: u32) -> Option<u32> {
        let id = self.units[pu].reads.pop(&mut self.ops).expect("a read waits");
        self.start_waiting::<TOLD>(now, pu, id)
    }

    /// Starts an operation that waited.
    #[inline(always)]
    fn start_waiting<const TOLD: bool>(&mut self, now: Time, pu: u32, id: u32) -> Option<u32> {
        if TOLD {
            self.note_begun(now, pu, id);
        }
        self.start(now, pu, id)
    }

    /// Starts an operation: its command goes to the parallel unit, and the data of
    /// a program. Gives the parallel unit, as all below, when all is over at once.
    #[inline(always)]
    fn start(&mut self, now: Time, pu: u32, id: u32) -> Option<u32> {
        self.units[pu].active = id;
        self.start_op(now, pu, self.ops[id])
    }

    /// The same of the operation that is active.
    #[inline(always)]
    fn start_op(&mut self, now: Time, pu: u32, op: Op) -> Option<u32> {
        let Op { kind, ppa, count, inside, .. } = op;
        let mut time = self.timing.command;
        if kind == OpKind::Program {
            time += self.load_time(count, inside);
        }
        if time == 0 {
            return self.enter_with(now, pu, (kind, ppa, count));
        }
        self.use_bus(now, pu, State::In, kind == OpKind::Read, time);
        None
    }

    /// The array begins.
    #[inline(always)]
    fn enter(&mut self, now: Time, pu: u32) -> Option<u32> {
        let Op { kind, ppa, count, .. } = self.ops[self.units[pu].active];
        self.enter_with(now, pu, (kind, ppa, count))
    }

    /// The same, of an operation that is of this kind, from that block on, and of so
    /// many.
    #[inline(always)]
    fn enter_with(
        &mut self,
        now: Time,
        pu: u32,
        (kind, ppa, count): (OpKind, Ppa, u8),
    ) -> Option<u32> {
        let is_read = kind == OpKind::Read;
        let time = match self.same_read {
            _ if !is_read => self.change_time(pu, kind, ppa, count),
            _ if self.senses => match self.time_again(pu, ppa, count) {
                Some(time) => time,
                None => return Some(pu),
            },
            Some(time) => time,
            None => self.read_time(pu, ppa, count),
        };
        self.work(now, pu, is_read, time)
    }

    /// Whether neighbours in a wide page or row are in the SLC cache.
    #[inline]
    pub fn is_in_slc(&self, ppa: Ppa, blocks: u32) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.has(ppa, blocks))
    }

    /// A chunk is reset: what the SLC cache has of it need not be folded.
    #[inline]
    pub fn forget(&mut self, chunk_index: usize) {
        if let Some(slc) = &mut self.slc {
            slc.forget(chunk_index);
        }
    }

    /// A chunk is free, or is not: whether it lends to the SLC cache.
    #[inline]
    pub fn set_free(&mut self, chunk_index: usize, is_free: bool) {
        if let Some(slc) = &mut self.slc {
            slc.set_free(chunk_index, is_free);
        }
    }

    /// How the SLC cache is; zeros where there is none.
    pub fn slc_health(&self) -> SlcHealth {
        self.slc.as_ref().map_or_else(SlcHealth::default, |slc| slc.health())
    }
}
