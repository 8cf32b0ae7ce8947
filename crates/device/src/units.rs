//! Parallel units and channels: who works when.
//!
//! An operation is one access of one parallel unit: a read of a wide page or a
//! part of it, a row program, an erase. Its life: command on the channel, transfer in (program),
//! array, transfer out (read). Parallel units work in parallel unless they
//! meet on their channel (C5); a parallel unit does one operation at a time
//! (C6), and holds its page register until the transfer out is over. Reads go
//! first where the drive says so, both at the die and on the channel, and may
//! suspend a program or erase. Everything else is first come, first served.
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

use flash::{Geometry, Ppa, Timing};
use port::story::{Cause, Work};
use port::{OutOfMemory, Slots, Stories, Time, Whose};

use crate::list::{Linked, List, NONE, Table};
use crate::slc::{Slc, SlcHealth, Upkeep};
use crate::tales::Tales;
use crate::timeline::Timeline;

/// What an operation does to the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OpKind {
    #[default]
    Read,
    Program,
    Erase,
}

impl OpKind {
    /// What it is to those that wait behind it.
    fn of(self, whose: Whose) -> Cause {
        let work = match self {
            OpKind::Read => Work::Read,
            OpKind::Program => Work::Program,
            OpKind::Erase => Work::Erase,
        };
        Cause::new(work, whose)
    }
}

/// One access of one parallel unit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Op {
    next: u32,
    /// The command it belongs to. [`NONE`] where the parallel unit keeps its SLC
    /// area: that is an erase, whatever it does.
    pub cmd: u32,
    /// First block.
    pub ppa: Ppa,
    /// Which of the command's addresses is `ppa`.
    pub first: u8,
    /// Blocks.
    pub count: u8,
    pub kind: OpKind,
    /// A read of which only the tags are wanted.
    pub tags: bool,
    /// Reads that went before it after it had begun.
    suspended: u32,
}

impl Op {
    pub fn new(cmd: u32, kind: OpKind, ppa: Ppa, first: u8, count: u8) -> Op {
        Op { next: NONE, cmd, ppa, first, count, kind, tags: false, suspended: 0 }
    }

    /// The same, of which only the tags are wanted, or not.
    pub fn of_tags(self, tags: bool) -> Op {
        Op { tags, ..self }
    }
}

impl Linked for Op {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

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

#[derive(Clone, Copy)]
struct Channel {
    /// The parallel unit that has the channel.
    owner: u32,
    /// When its transfer ends.
    end: Time,
    /// Transfers of reads that went before something else since the last of
    /// that ended.
    passed: u32,
    /// Waiting for reads: commands and data out.
    reads: List,
    /// Waiting for programs and erases.
    others: List,
}

impl Default for Channel {
    fn default() -> Channel {
        let (reads, others) = (List::default(), List::default());
        Channel { owner: NONE, end: Time::ZERO, passed: 0, reads, others }
    }
}

impl Channel {
    /// The parallel unit has the channel for so long.
    #[inline(always)]
    fn grant(&mut self, timeline: &mut Timeline, now: Time, pu: u32, time: u64) {
        (self.owner, self.end) = (pu, now + time);
        timeline.set_transfer(pu, self.end);
    }
}

/// Counts one more, where `limit` allows that; all ones is no limit.
#[inline]
fn one_more(count: &mut u32, limit: u32) -> bool {
    let may = *count < limit || limit == u32::MAX;
    *count = count.saturating_add(u32::from(may));
    may
}

/// All parallel units and channels of a drive. Where a function gives a
/// parallel unit, its active operation is done but for the bytes: the caller
/// moves them and then calls [`Units::release`], or [`Units::retry`]. Or, where
/// reads are asked how long they take, [`Units::is_sensing`] is true and
/// [`Units::sense`] lets it go on.
pub(crate) struct Units {
    geometry: Geometry,
    timing: Timing,
    /// tR, where all pages have the same and none is in an SLC cache.
    same_read: Option<u64>,
    /// Whether each read is asked how long its array read takes.
    senses: bool,
    /// Transfer time by number of blocks.
    transfer: Vec<u64>,
    /// The same of the tags alone.
    transfer_tags: Vec<u64>,
    pub ops: Slots<Op>,
    units: Table<Unit>,
    channels: Table<Channel>,
    timeline: Timeline,
    /// The SLC cache, if there is one.
    slc: Option<Box<Slc>>,
    /// What stories are made of, where they are told.
    tales: Option<Box<Tales>>,
    /// Suspensions so far.
    pub suspends: u64,
}

impl Units {
    /// Bytes of memory that they take.
    pub fn tables(geometry: &Geometry, timing: &Timing, max_ops: usize) -> u64 {
        let units = geometry.pu_slots() * size_of::<Unit>() + max_ops * (size_of::<Op>() + 4);
        let timeline = Timeline::bytes(geometry);
        (units + timeline) as u64 + Slc::tables(geometry, timing)
    }

    pub fn new(geometry: &Geometry, timing: &Timing, max_ops: usize) -> Result<Units, OutOfMemory> {
        let groups = geometry.dimensions().groups as usize;
        let most = geometry.row_blocks().max(64);
        // One more for each parallel unit that may fold, which it keeps.
        let folds = if timing.slc.is_on() { geometry.total_pus() as usize } else { 0 };
        let mut ops = Slots::new(max_ops + folds);
        let slc = Slc::new(geometry, timing, || ops.take(Op::default()))?;
        let same_read = timing.read.len() == 1 && slc.is_none();
        // With none, what never ceases to be written would starve reads.
        let read_burst = timing.read_burst.max(1);
        Ok(Units {
            geometry: *geometry,
            timing: Timing { read_burst, ..timing.clone() },
            same_read: same_read.then(|| timing.read[0]),
            senses: false,
            transfer: (0..=most).map(|n| timing.transfer(n)).collect(),
            transfer_tags: (0..=most).map(|n| timing.transfer_tags(n)).collect(),
            ops,
            units: Table::new(geometry.pu_slots()),
            channels: Table::new(groups),
            timeline: Timeline::new(geometry),
            slc,
            tales: None,
            suspends: 0,
        })
    }

    /// From now on each operation has a story, or none; `whose` says whose a command
    /// is that has some already.
    pub fn set_stories(&mut self, on: bool, whose: impl Fn(u32) -> Whose) {
        self.tales = on.then(|| {
            let cause = |op: Op| match op.cmd {
                NONE => Cause::new(Work::Program, Whose::Drive),
                cmd => op.kind.of(whose(cmd)),
            };
            let active = |unit: &Unit| {
                let op = if unit.active == NONE { unit.paused } else { unit.active };
                cause(if op == NONE { Op::default() } else { self.ops[op] })
            };
            let ops = (0..self.ops.capacity() as u32).map(|id| cause(self.ops[id]));
            let units = (0..self.geometry.pu_slots() as u32).map(|pu| active(&self.units[pu]));
            Box::new(Tales::new(ops, units))
        });
    }

    /// Tells of the operation that a parallel unit has done but for the bytes.
    #[inline]
    pub fn tell(&self, now: Time, pu: u32, op: &Op, stories: &mut Stories) {
        let Op { kind, count, tags, .. } = *op;
        let (transfer, array) = match kind {
            OpKind::Read => {
                let transfer = if tags { &self.transfer_tags } else { &self.transfer };
                let same = if self.senses { None } else { self.same_read };
                (transfer[count as usize], same.unwrap_or(0))
            }
            OpKind::Program => (self.transfer[count as usize], 0),
            OpKind::Erase => (0, 0),
        };
        if let Some(tales) = &self.tales {
            tales.ends(
                now,
                self.units[pu].active,
                [self.timing.command + transfer, array],
                stories,
            );
        }
    }

    /// From now on each read is asked how long its array read takes, or not.
    /// Only while nothing is under way.
    pub fn set_senses(&mut self, senses: bool) {
        self.senses = senses;
    }

    /// Whether the read that a parallel unit works on waits for
    /// [`Units::sense`].
    #[inline]
    pub fn is_sensing(&self, pu: u32) -> bool {
        self.units[pu].state == State::Sensing
    }

    /// Lets a read enter the array, which repeats it so many times: each takes
    /// a command and a tR more.
    pub fn sense(&mut self, now: Time, pu: u32, retries: u32) -> Option<u32> {
        let op = self.active(pu);
        let read = self.read_time(pu, op.ppa, op.count);
        let more = u64::from(retries) * (self.timing.command + read);
        if let Some(tales) = &mut self.tales {
            tales.repeats(self.units[pu].active, more);
        }
        let time = read + more;
        let finished = self.work(now, pu, time);
        self.settle(pu, finished)
    }

    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        self.timeline.next()
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
        let pu = self.geometry.pu_index(op.ppa) as u32;
        let is_read = op.kind == OpKind::Read;
        let id = self.ops.take_as_is();
        let held = &mut self.ops[id];
        (held.cmd, held.ppa, held.kind) = (op.cmd, op.ppa, op.kind);
        (held.first, held.count, held.suspended) = (op.first, op.count, 0);
        held.tags = op.tags;
        if self.tales.is_some() {
            self.note_came(now, pu, id, whose);
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
                self.try_suspend(now, pu);
                self.timeline.settle(pu);
            }
        } else {
            unit.others.push(id, &mut self.ops);
        }
        None
    }

    /// An operation came that has a story.
    #[cold]
    #[inline(never)]
    fn note_came(&mut self, now: Time, pu: u32, id: u32, whose: Whose) {
        let waits = self.units[pu].state > State::Resting;
        if let Some(tales) = &mut self.tales {
            tales.came(now, pu, id, self.ops[id].kind.of(whose), waits);
        }
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
    #[inline]
    pub fn step<const TOLD: bool>(&mut self, to: Time) -> Result<(Time, Option<u32>), ()> {
        let (pu, now) = self.timeline.due(to).ok_or(())?;
        let state = self.units[pu].state;
        let finished = if state == State::In || state == State::Out {
            self.bus_end(now, pu, state)
        } else {
            self.timeline.clear(pu);
            match state {
                State::Array => self.array_end(now, pu),
                State::Suspending => self.start_read::<TOLD>(now, pu),
                State::Finishing => Some(pu),
                State::Resting => self.keep(now, pu),
                _ => unreachable!("such a unit has no event"),
            }
        };
        Ok((now, self.settle(pu, finished)))
    }

    /// Ends the active operation and starts the next.
    #[inline(always)]
    pub fn release<const TOLD: bool>(&mut self, now: Time, pu: u32) -> Option<u32> {
        let unit = &mut self.units[pu];
        if unit.passed > 0 && self.ops[unit.active].kind != OpKind::Read {
            unit.passed = 0;
        }
        self.ops.give(unit.active);
        unit.active = NONE;
        let finished = self.start_next::<TOLD>(now, pu);
        self.settle(pu, finished)
    }

    /// The bytes could not be moved yet: the end comes again, at `at`.
    pub fn retry(&mut self, at: Time, pu: u32) {
        self.timeline.set(pu, false, at);
        self.timeline.settle(pu);
    }

    #[inline(always)]
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
            if let Some(tales) = &mut self.tales {
                tales.begins(now, pu, unit.active);
                tales.takes(unit.active, self.timing.resume_time);
            }
            return self.work(now, pu, left);
        }
        let Some(id) = unit.others.pop(&mut self.ops) else {
            return self.rest(now, pu);
        };
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
        if let (true, Some(tales)) = (TOLD, &mut self.tales) {
            tales.begins(now, pu, id);
        }
        self.start(now, pu, id)
    }

    /// Whether one more read may go before what else waits, so that no stream
    /// of reads can starve it. Before a paused operation it counts as a
    /// suspension of that.
    #[inline]
    fn may_pass(&mut self, pu: u32) -> bool {
        let unit = &mut self.units[pu];
        if unit.paused == NONE && unit.others.is_empty() {
            return true;
        }
        if !one_more(&mut unit.passed, self.timing.read_burst) {
            return false;
        }
        unit.paused == NONE
            || one_more(&mut self.ops[unit.paused].suspended, self.timing.suspend_limit)
    }

    /// Starts an operation: its command goes to the parallel unit, and the data of
    /// a program. Gives the parallel unit, as all below, when all is over at once.
    #[inline(always)]
    fn start(&mut self, now: Time, pu: u32, id: u32) -> Option<u32> {
        self.units[pu].active = id;
        let Op { kind, count, .. } = self.ops[id];
        let mut time = self.timing.command;
        if kind == OpKind::Program {
            time += self.transfer[count as usize];
        }
        if time == 0 {
            return self.enter(now, pu);
        }
        self.use_bus(now, pu, State::In, kind == OpKind::Read, time);
        None
    }

    /// The array begins.
    #[inline(always)]
    fn enter(&mut self, now: Time, pu: u32) -> Option<u32> {
        let Op { kind, ppa, count, .. } = self.ops[self.units[pu].active];
        let time = match kind {
            OpKind::Read if self.senses => {
                self.units[pu].state = State::Sensing;
                return Some(pu);
            }
            OpKind::Read => match self.same_read {
                Some(time) => time,
                None => self.read_time(pu, ppa, count),
            },
            OpKind::Program => self.program_time(pu, ppa, count),
            OpKind::Erase => self.takes(pu, self.timing.erase),
        };
        self.work(now, pu, time)
    }

    /// The array works for `time`.
    #[inline(always)]
    fn work(&mut self, now: Time, pu: u32, time: u64) -> Option<u32> {
        if time == 0 {
            return self.array_end(now, pu);
        }
        self.start_array(now, pu, time);
        None
    }

    /// The array is through.
    #[inline(always)]
    fn array_end(&mut self, now: Time, pu: u32) -> Option<u32> {
        let Op { cmd, kind, count, tags, .. } = self.ops[self.units[pu].active];
        if kind == OpKind::Read {
            let transfer = if tags { &self.transfer_tags } else { &self.transfer };
            let time = transfer[count as usize];
            if time > 0 {
                self.use_bus(now, pu, State::Out, true, time);
                return None;
            }
        } else if cmd == NONE {
            return self.kept(now, pu);
        }
        self.units[pu].state = State::Finishing;
        Some(pu)
    }

    /// Takes the channel for `time`, at once or when its turn comes.
    #[inline(always)]
    fn use_bus(&mut self, now: Time, pu: u32, state: State, is_read: bool, time: u64) {
        let unit = &mut self.units[pu];
        (unit.state, unit.bus_time) = (state, time);
        let number = self.channel_of(pu);
        let channel = &mut self.channels[number];
        let owner = channel.owner;
        if owner == NONE {
            channel.grant(&mut self.timeline, now, pu, time);
        } else if is_read && self.timing.suspend_transfer && self.is_interrupted(number, owner) {
            let channel = &mut self.channels[number];
            self.units[owner].bus_time = channel.end.since(now);
            channel.others.push_front(owner, &mut self.units);
            channel.grant(&mut self.timeline, now, pu, time);
        } else {
            let channel = &mut self.channels[number];
            let first = is_read && self.timing.reads_first;
            let list = if first { &mut channel.reads } else { &mut channel.others };
            list.push(pu, &mut self.units);
        }
    }

    /// The number of its channel.
    #[inline(always)]
    fn channel_of(&self, pu: u32) -> u32 {
        self.geometry.group_of_pu(pu as usize) as u32
    }

    /// Whether a read takes a channel from its owner, which is counted.
    fn is_interrupted(&mut self, number: u32, owner: u32) -> bool {
        self.active(owner).kind == OpKind::Program
            && one_more(&mut self.channels[number].passed, self.timing.read_burst)
    }

    /// The channel's transfer is over: the next that waits has it.
    #[inline(always)]
    fn bus_end(&mut self, now: Time, pu: u32, state: State) -> Option<u32> {
        let number = self.channel_of(pu);
        let channel = &mut self.channels[number];
        debug_assert_eq!(channel.owner, pu);
        if channel.passed > 0 && self.ops[self.units[pu].active].kind != OpKind::Read {
            channel.passed = 0;
        }
        let alone = channel.others.is_empty();
        let reads_go = alone || channel.reads.is_empty();
        let next = if reads_go || one_more(&mut channel.passed, self.timing.read_burst) {
            channel.reads.pop(&mut self.units)
        } else {
            None
        };
        match next.or_else(|| channel.others.pop(&mut self.units)) {
            Some(next) => {
                let time = self.units[next].bus_time;
                channel.grant(&mut self.timeline, now, next, time);
            }
            None => {
                channel.owner = NONE;
                self.timeline.end_transfer(number);
            }
        }
        if state == State::In {
            return self.enter(now, pu);
        }
        self.units[pu].state = State::Finishing;
        Some(pu)
    }

    #[inline(always)]
    fn start_array(&mut self, now: Time, pu: u32, time: u64) {
        let (unit, end) = (&mut self.units[pu], now + time);
        (unit.state, unit.array_end) = (State::Array, end);
        let is_read = self.ops[unit.active].kind == OpKind::Read;
        self.timeline.set(pu, is_read, end);
        if self.timing.suspend && !unit.reads.is_empty() {
            self.try_suspend(now, pu);
        }
    }

    /// Suspends a program or erase for a read, where that is allowed and
    /// sooner than waiting for the end.
    #[inline(never)]
    fn try_suspend(&mut self, now: Time, pu: u32) {
        let unit = &mut self.units[pu];
        let op = &mut self.ops[unit.active];
        let left = unit.array_end.since(now);
        if op.kind == OpKind::Read
            || left <= self.timing.suspend_time
            || op.suspended >= self.timing.suspend_limit
            || !one_more(&mut unit.passed, self.timing.read_burst)
        {
            return;
        }
        op.suspended = op.suspended.saturating_add(1);
        self.suspends += 1;
        if let Some(tales) = &mut self.tales {
            tales.suspended(now, pu, unit.active, self.timing.suspend_time);
        }
        unit.paused = std::mem::replace(&mut unit.active, NONE);
        unit.paused_left = left;
        unit.state = State::Suspending;
        self.timeline.clear(pu);
        self.timeline.set(pu, true, now + self.timing.suspend_time);
    }

    /// tR of neighbours in a wide page, which a parallel unit reads.
    #[inline(never)]
    fn read_time(&mut self, pu: u32, ppa: Ppa, count: u8) -> u64 {
        let time = match &self.slc {
            Some(slc) if slc.has(ppa, count.into()) => slc.config.read,
            _ => self.timing.read_of(self.geometry.wide_page(ppa)),
        };
        self.takes(pu, time)
    }

    /// What a parallel unit works on takes so much array time.
    #[inline]
    fn takes(&mut self, pu: u32, time: u64) -> u64 {
        if let Some(tales) = &mut self.tales {
            tales.takes(self.units[pu].active, time);
        }
        time
    }

    /// tPROG of a program that enters the array now: in the SLC cache, where
    /// that takes it, else in the slow cells.
    #[inline]
    fn program_time(&mut self, pu: u32, ppa: Ppa, count: u8) -> u64 {
        let time = if let Some(slc) = &mut self.slc
            && slc.take(pu, ppa, count)
        {
            slc.program_time()
        } else {
            self.timing.program_of(self.geometry.row(ppa))
        };
        self.takes(pu, time)
    }

    /// The parallel unit has nothing to do.
    #[inline]
    fn rest(&mut self, now: Time, pu: u32) -> Option<u32> {
        if self.slc.is_some() {
            self.rest_with_area(now, pu);
        }
        None
    }

    /// The same where there is an SLC cache: it is kept after a while, or at
    /// once if its area is pressed.
    #[cold]
    fn rest_with_area(&mut self, now: Time, pu: u32) {
        let slc = self.slc.as_mut().expect("the caller saw it");
        if slc.next(pu).is_none() {
            return;
        }
        if slc.is_pressed(pu) {
            self.keep(now, pu);
            return;
        }
        self.units[pu].state = State::Resting;
        self.timeline.set(pu, false, now + slc.config.idle);
    }

    /// Begins the next work on the SLC area of a parallel unit that has nothing
    /// else to do, if there is any.
    #[cold]
    fn keep(&mut self, now: Time, pu: u32) -> Option<u32> {
        self.units[pu].state = State::Idle;
        let slc = self.slc.as_mut().expect("the unit has an area");
        let upkeep = slc.next(pu)?;
        slc.begin(pu, upkeep);
        let (ppa, time, work) = match upkeep {
            Upkeep::Erase => (Ppa(0), self.timing.erase, Work::Erase),
            Upkeep::Fold(ppa) => {
                let slow = self.timing.program_of(self.geometry.row(ppa));
                (ppa, slc.read_time() + slow, Work::Program)
            }
        };
        if let Some(tales) = &mut self.tales {
            tales.keeps(now, pu, Cause::new(work, Whose::Drive));
        }
        let id = slc.op(pu);
        self.ops[id] = Op::new(NONE, OpKind::Erase, ppa, 0, 0);
        self.units[pu].active = id;
        self.start_array(now, pu, time);
        None
    }

    /// A piece of work on an SLC area is done: what waits comes next, then more
    /// of the same.
    #[cold]
    fn kept(&mut self, now: Time, pu: u32) -> Option<u32> {
        self.slc.as_mut().expect("the unit has an area").end(pu);
        let unit = &mut self.units[pu];
        unit.active = NONE;
        if unit.others.is_empty() {
            // Nothing has waited while reads went before this.
            unit.passed = 0;
            if unit.reads.is_empty() {
                return self.keep(now, pu);
            }
        }
        self.start_next::<true>(now, pu)
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

    /// How the SLC cache is; zeros where there is none.
    pub fn slc_health(&self) -> SlcHealth {
        self.slc.as_ref().map_or_else(SlcHealth::default, |slc| slc.health())
    }
}
