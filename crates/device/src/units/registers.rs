//! Dies with more than one page register: cache reads, cache programs, and reads
//! of planes that do not wait for each other.
//!
//! A register holds one operation from its command until it is over. A die has one
//! for each plane that reads by itself, or one, and twice as many where it has
//! cache registers. Its array is one thing apart: it senses one page on each plane
//! at a time, or it programs or erases. So while the data of one operation move, the
//! array can work at the next: the next read is sensed while the last one's data go
//! out, the next row comes in while the last one is programmed.
//!
//! A read begins when no program or erase is in the array, and the plane is sensed
//! by no other read and has a register that is free. A program begins when the die holds
//! nothing, or nothing but another program in the array, and an erase when it holds
//! nothing; a program that has its data enters the array when no read is in it. A read of one plane may go before those that wait for others,
//! of which so many are looked at; nothing goes before a read of several planes that
//! waits. All else is as in a die with one register: reads go first and suspend, no
//! more than they may. What is suspended gives up its register. The command of a
//! read goes before data that wait for the channel, so that the array is not idle
//! for as long.
//!
//! Such a die's queues are at its first register. What would be over at once is an
//! event of its own here, so that one thing is over at a time. Nothing here fails.

use flash::{Geometry, Timing};
use port::{Time, Whose};

use super::op::Sensing;
use super::sharing::Sharing;
use super::suspension::one_more;
use super::{Op, OpKind, State, Units};
use crate::list::{NONE, Table};

/// Reads that wait of which one may go before the others.
pub(super) const LOOKED_AT: usize = 16;

/// The registers of a die, as planes.
#[derive(Clone, Copy)]
struct Die {
    /// Planes of which the first and the second register hold something.
    held: [u8; 2],
    /// Planes of which a read has the array, or its command is on its way.
    sensing: u8,
    /// The register of the program or erase that has the array, or of the erase of
    /// which the command is on its way.
    working: u32,
    /// The register of a program that does not have the array yet.
    loading: u32,
}

impl Default for Die {
    fn default() -> Die {
        Die { held: [0; 2], sensing: 0, working: NONE, loading: NONE }
    }
}

/// All dies of a drive that have several registers each.
pub(super) struct Dies {
    dies: Table<Die>,
    /// Whether planes have a second register.
    cached: bool,
    /// All planes that read by themselves.
    pub all: u8,
}

/// What a die does next.
enum Next {
    /// The operation begins, in the first or second register.
    Begin(u32, usize),
    /// What was suspended goes on, in that register.
    Resume(usize),
    /// The program that has its data enters the array.
    Enter,
    /// The SLC area gives back a block first.
    GiveBack,
}

/// Bits of a register's number in its die.
pub(super) fn bits(geometry: &Geometry, timing: &Timing) -> u32 {
    let planes = if timing.plane_reads { geometry.dimensions().planes } else { 1 };
    (planes << u32::from(timing.cache_registers)).next_power_of_two().trailing_zeros()
}

impl Dies {
    /// Whether a drive's dies have several registers, or reads share what is in them.
    fn are_apart(geometry: &Geometry, timing: &Timing) -> bool {
        bits(geometry, timing) > 0 || Sharing::is_on(geometry.dimensions().planes, timing)
    }

    /// Those of a drive, where they are apart.
    pub fn new(geometry: &Geometry, timing: &Timing) -> Option<Box<Dies>> {
        if !Dies::are_apart(geometry, timing) {
            return None;
        }
        let planes = if timing.plane_reads { geometry.dimensions().planes } else { 1 };
        let all = ((1u32 << planes) - 1) as u8;
        let dies = Table::new(geometry.pu_slots());
        Some(Box::new(Dies { dies, cached: timing.cache_registers, all }))
    }

    /// Bytes of memory that they take.
    pub fn bytes(geometry: &Geometry, timing: &Timing) -> usize {
        let slots = if Dies::are_apart(geometry, timing) { geometry.pu_slots() } else { 0 };
        slots * size_of::<Die>()
    }

    /// The first or second register, where it is free on those planes.
    fn free(&self, die: &Die, planes: u8) -> Option<usize> {
        (0..=usize::from(self.cached)).find(|&which| die.held[which] & planes == 0)
    }
}

impl Units {
    fn dies(&mut self) -> &mut Dies {
        self.dies.as_mut().expect("dies have several registers")
    }

    fn die(&mut self, pu: u32) -> &mut Die {
        let number = pu >> self.register_bits;
        &mut self.dies().dies[number]
    }

    /// The planes that an operation takes: one, if it is a read there, or all.
    pub(super) fn planes_of(&self, op: &Op) -> u8 {
        let all = self.dies.as_ref().map_or(0, |dies| dies.all);
        if op.kind != OpKind::Read || all == 1 {
            return all;
        }
        let at = self.geometry.in_wide_page(op.ppa);
        let page = self.geometry.page_blocks().trailing_zeros();
        let (first, last) = (at >> page, (at + u32::from(op.count) - 1) >> page);
        if first == last { 1 << first } else { all }
    }

    /// A register has nothing to do any more.
    pub(super) fn vacate(&mut self, pu: u32, planes: u8) {
        let unit = &mut self.units[pu];
        (unit.active, unit.state) = (NONE, State::Idle);
        let which = (pu & u32::from(self.dies().cached)) as usize;
        let die = self.die(pu);
        die.held[which] &= !planes;
        if die.working == pu {
            die.working = NONE;
        }
    }

    /// An operation comes to a die.
    #[inline(never)]
    pub(super) fn join(&mut self, now: Time, home: u32, id: u32, whose: Whose) {
        self.ops[id].planes = self.planes_of(&self.ops[id]);
        self.ops[id].sensing = Sensing::Own;
        if self.tales.is_some() {
            self.note_joined(now, home, id, whose);
        }
        let unit = &mut self.units[home];
        if unit.state == State::Resting {
            unit.state = State::Idle;
            self.timeline.clear(home);
        }
        if self.shares_at_once(now, home, id) {
            return;
        }
        let first = self.ops[id].kind == OpKind::Read && self.timing.reads_first;
        let unit = &mut self.units[home];
        let list = if first { &mut unit.reads } else { &mut unit.others };
        list.push(id, &mut self.ops);
        self.go_on(now, home);
    }

    /// A die begins all that it can.
    #[inline(never)]
    pub(super) fn go_on(&mut self, now: Time, home: u32) {
        while let Some(next) = self.choose(home) {
            match next {
                Next::Begin(id, which) => self.begin(now, home, id, which),
                Next::Resume(which) => self.resume(now, home, which),
                Next::Enter => self.enter_loaded(now, home),
                Next::GiveBack => _ = self.keep(now, home),
            }
        }
        self.show_what_loads(now, home);
        let Die { held, working, .. } = *self.die(home);
        let unit = &self.units[home];
        let waits = !unit.reads.is_empty();
        if waits && self.timing.suspend && working != NONE {
            if self.units[working].state == State::Array {
                self.try_suspend(now, home, working);
            }
        } else if !waits && held == [0; 2] && unit.paused == NONE && unit.others.is_empty() {
            self.rest(now, home);
        }
        self.timeline.settle(home);
    }

    /// A program whose data come in is what others wait behind where nothing has the array.
    fn show_what_loads(&mut self, now: Time, home: u32) {
        if self.tales.is_none() {
            return;
        }
        let Die { working, sensing, loading, .. } = *self.die(home);
        let is_free = (working, sensing) == (NONE, 0) && self.units[home].paused == NONE;
        if let Some(tales) = &mut self.tales
            && is_free
            && loading != NONE
            && self.units[loading].state == State::In
        {
            let id = self.units[loading].active;
            if tales.awaits(now, home >> self.register_bits, id) {
                self.read_histories(now, home, id);
            }
        }
    }

    /// What a die can do next, if anything.
    fn choose(&mut self, home: u32) -> Option<Next> {
        let die = *self.die(home);
        let works = die.working != NONE;
        if !self.units[home].reads.is_empty() && self.lets_pass(home, die.loading) {
            if works {
                return None;
            }
            let next = self.choose_read(home, &die);
            if next.is_some() || !self.only_loads(&die) {
                return next;
            }
        }
        let (dies, unit) = (self.dies.as_ref()?, &self.units[home]);
        if unit.paused != NONE {
            let may = !works && die.sensing == 0;
            return dies.free(&die, dies.all).filter(|_| may).map(Next::Resume);
        }
        if die.loading != NONE {
            let is_loaded = self.units[die.loading].state == State::Loaded;
            return (is_loaded && !works && die.sensing == 0).then_some(Next::Enter);
        }
        let id = unit.others.first()?;
        let Op { kind, ppa, planes, .. } = self.ops[id];
        if self.slc.is_some() && self.owes_before(home, kind, ppa) {
            return (die.held == [0; 2]).then_some(Next::GiveBack);
        }
        let dies = self.dies.as_ref()?;
        let may = match kind {
            OpKind::Read => !works && die.sensing & planes == 0,
            OpKind::Program if works => self.programs(die.working),
            OpKind::Program | OpKind::Erase => die.held == [0; 2],
        };
        let which = dies.free(&die, planes).filter(|_| may)?;
        self.units[home].others.pop(&mut self.ops);
        Some(Next::Begin(id, which))
    }

    /// Whether a die holds nothing but a program that is to enter the array.
    fn only_loads(&self, die: &Die) -> bool {
        let second = self.dies.as_ref().is_some_and(|dies| dies.cached);
        die.loading != NONE && die.held[1 - (die.loading & u32::from(second)) as usize] == 0
    }

    /// Whether a program of a command is in the array.
    fn programs(&self, pu: u32) -> bool {
        let id = self.units[pu].active;
        id != NONE && self.ops[id].kind == OpKind::Program
    }

    /// Whether one more read may go before what else waits; see [`Units::may_pass`].
    pub(super) fn lets_pass(&self, home: u32, loading: u32) -> bool {
        let unit = &self.units[home];
        if unit.paused == NONE && unit.others.is_empty() && loading == NONE {
            return true;
        }
        let within = |count, limit| limit == u32::MAX || count < limit;
        // What only waits is suspended by none.
        let may_pass = unit.paused == NONE
            || within(self.ops[unit.paused].suspended, self.timing.suspend_limit);
        may_pass && within(unit.passed, self.timing.read_burst)
    }

    /// Counts a read that goes before what else waits.
    pub(super) fn count_pass(&mut self, home: u32, loading: u32) {
        let unit = &mut self.units[home];
        if unit.paused != NONE {
            one_more(&mut self.ops[unit.paused].suspended, self.timing.suspend_limit);
        }
        if unit.paused != NONE || !unit.others.is_empty() || loading != NONE {
            one_more(&mut unit.passed, self.timing.read_burst);
        }
    }

    /// The register of a program at a die that does not have the array yet.
    pub(super) fn loading(&mut self, home: u32) -> u32 {
        self.die(home).loading
    }

    /// The next read that can begin, which goes before what else waits.
    fn choose_read(&mut self, home: u32, die: &Die) -> Option<Next> {
        let (id, which) = self.take_read(home, die)?;
        self.count_pass(home, die.loading);
        Some(Next::Begin(id, which))
    }

    /// Takes the first read that can begin from those that wait.
    fn take_read(&mut self, home: u32, die: &Die) -> Option<(u32, usize)> {
        let (mut before, mut blocked) = (NONE, die.sensing);
        let mut id = self.units[home].reads.first()?;
        for _ in 0..LOOKED_AT {
            let planes = self.ops[id].planes;
            let dies = self.dies.as_ref()?;
            if planes & blocked == 0
                && let Some(which) = dies.free(die, planes)
            {
                self.units[home].reads.take_after(before, &mut self.ops);
                return Some((id, which));
            }
            blocked |= planes;
            if blocked == dies.all {
                return None;
            }
            before = id;
            id = self.units[home].reads.after(id, &mut self.ops)?;
        }
        None
    }

    /// An operation that waited begins: its command goes to the die, and the data of a
    /// program.
    fn begin(&mut self, now: Time, home: u32, id: u32, which: usize) {
        let planes = self.ops[id].planes;
        let second = u32::from(self.dies().cached);
        let pu = home + (planes.trailing_zeros() << second) + which as u32;
        let kind = self.ops[id].kind;
        let die = self.die(home);
        die.held[which] |= planes;
        match kind {
            OpKind::Read => die.sensing |= planes,
            OpKind::Program => die.loading = pu,
            OpKind::Erase => die.working = pu,
        }
        match (kind, &mut self.tales) {
            (OpKind::Program, Some(tales)) => tales.loads(now, id),
            _ => self.note_begun_at(now, pu, (pu >> self.register_bits, planes), id),
        }
        self.units[pu].active = id;
        let mut time = self.timing.command;
        if kind == OpKind::Program {
            time += self.load_time(self.ops[id].count, self.ops[id].inside);
        }
        if time > 0 {
            self.use_bus(now, pu, State::In, kind == OpKind::Read, time);
        } else if kind == OpKind::Program {
            self.load(now, pu);
        } else {
            self.let_enter(now, pu, kind == OpKind::Read);
        }
    }

    /// An operation enters the array as the next event.
    pub(super) fn let_enter(&mut self, now: Time, pu: u32, is_read: bool) {
        self.units[pu].state = State::Entering;
        self.timeline.set(pu, is_read, now);
    }

    /// A program has its data, and waits for the array.
    fn load(&mut self, now: Time, pu: u32) {
        let unit = &mut self.units[pu];
        unit.state = State::Loaded;
        if let Some(tales) = &mut self.tales {
            tales.suspended(now, (pu >> self.register_bits, 0), unit.active, 0);
        }
    }

    /// The command of an operation is there, and the data of a program.
    #[inline(never)]
    pub(super) fn came_in(&mut self, now: Time, pu: u32) -> Option<u32> {
        if self.active(pu).kind != OpKind::Program {
            return self.enter_apart(now, pu);
        }
        self.load(now, pu);
        self.go_on(now, self.home(pu));
        None
    }

    /// The program that has its data has the array.
    fn enter_loaded(&mut self, now: Time, home: u32) {
        let die = self.die(home);
        let pu = std::mem::replace(&mut die.loading, NONE);
        die.working = pu;
        self.note_begun(now, pu, self.units[pu].active);
        self.let_enter(now, pu, false);
    }

    /// What was suspended goes on.
    fn resume(&mut self, now: Time, home: u32, which: usize) {
        let pu = home + which as u32;
        let all = self.dies().all;
        let die = self.die(home);
        die.held[which] |= all;
        die.working = pu;
        let unit = &mut self.units[home];
        let (id, left) = (std::mem::replace(&mut unit.paused, NONE), unit.paused_left);
        self.units[pu].active = id;
        self.note_begun(now, pu, id);
        let resume = self.timing.resume_time;
        if let Some(tales) = &mut self.tales {
            tales.takes(id, resume);
        }
        self.start_array(now, pu, false, left + resume);
    }

    /// A program or erase is suspended: the read goes on for which that was done.
    #[inline(never)]
    pub(super) fn make_way(&mut self, now: Time, pu: u32) {
        let (home, all) = (self.home(pu), self.dies().all);
        self.vacate(pu, all);
        let die = *self.die(home);
        let (id, which) = self.take_read(home, &die).expect("a read waits, and the array is free");
        self.begin(now, home, id, which);
        self.go_on(now, home);
    }

    /// A read was sensed: the next one may be while its data go out.
    #[inline(never)]
    pub(super) fn sensed(&mut self, now: Time, pu: u32) {
        let planes = self.active(pu).planes;
        self.units[pu].state = State::Out;
        self.note_sensed(now, pu);
        self.die(pu).sensing &= !planes;
        self.go_on(now, self.home(pu));
    }

    /// The active operation of a register has ended.
    #[inline(never)]
    pub(super) fn leave(&mut self, now: Time, pu: u32) {
        let (id, home) = (self.units[pu].active, self.home(pu));
        if self.ops[id].kind != OpKind::Read {
            self.units[home].passed = 0;
        }
        let op = self.ops[id];
        self.ops.give(id);
        if self.hands_on(now, pu, &op) {
            return;
        }
        self.vacate(pu, op.planes);
        self.go_on(now, home);
        self.pass_on(now, pu);
    }

    /// Whether no register of a die holds anything: the data of a read may still go out
    /// when what it had suspended is over.
    pub(super) fn holds_nothing(&mut self, home: u32) -> bool {
        self.die(home).held == [0; 2]
    }

    /// A die keeps its SLC area: its array and first register are taken.
    pub(super) fn occupy(&mut self, home: u32) {
        let all = self.dies().all;
        let die = self.die(home);
        (die.held[0], die.working) = (all, home);
    }
}
