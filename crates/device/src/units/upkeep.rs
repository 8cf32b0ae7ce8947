//! What a parallel unit does for its SLC area when it has nothing else to do.

use flash::Ppa;
use port::story::{Cause, Work};
use port::{Time, Whose};

use super::{Op, OpKind, State, Units};
use crate::list::NONE;
use crate::slc::Upkeep;

impl Units {
    /// The parallel unit has nothing to do.
    #[inline]
    pub(super) fn rest(&mut self, now: Time, pu: u32) -> Option<u32> {
        if self.slc.is_some() {
            self.rest_with_area(now, pu);
        }
        None
    }

    /// The same where there is an SLC cache: it is kept after a while, or at
    /// once if its area is pressed.
    #[cold]
    pub(super) fn rest_with_area(&mut self, now: Time, pu: u32) {
        let slc = self.slc.as_mut().expect("the caller saw it");
        let number = pu >> self.register_bits;
        if slc.next(number).is_none() {
            return;
        }
        if slc.is_pressed(number) {
            self.keep(now, pu);
            return;
        }
        self.units[pu].state = State::Resting;
        self.timeline.set(pu, false, now + slc.config.idle);
    }

    /// An operation is about to begin: whether its parallel unit has to give back a
    /// block of its SLC area first.
    #[cold]
    pub(super) fn owes_before(&mut self, pu: u32, kind: OpKind, ppa: Ppa) -> bool {
        let number = pu >> self.register_bits;
        let slc = self.slc.as_mut().filter(|_| kind == OpKind::Program);
        slc.is_some_and(|slc| slc.owes_before(number, ppa))
    }

    /// The same where it has nothing else to do: then it is at work, and the operation
    /// waits.
    #[cold]
    pub(super) fn give_back(&mut self, now: Time, pu: u32, kind: OpKind, ppa: Ppa) -> bool {
        let owes = self.owes_before(pu, kind, ppa);
        if owes {
            if self.units[pu].state == State::Resting {
                self.timeline.clear(pu);
            }
            self.keep(now, pu);
        }
        owes
    }

    /// Begins the next work on the SLC area of a parallel unit that has nothing
    /// else to do, if there is any.
    #[cold]
    pub(super) fn keep(&mut self, now: Time, pu: u32) -> Option<u32> {
        self.units[pu].state = State::Idle;
        let slc = self.slc.as_mut().expect("the unit has an area");
        let number = pu >> self.register_bits;
        let upkeep = slc.next(number)?;
        slc.begin(number, upkeep);
        let (id, read) = (slc.op(number), slc.read_time());
        let (ppa, time, work) = match upkeep {
            Upkeep::Erase => (Ppa(0), self.timing.erase, Work::Erase),
            Upkeep::Fold(ppa) => (ppa, read + self.slow_program(ppa), Work::Program),
        };
        if let Some(tales) = &mut self.tales
            && tales.keeps(now, number, id, Cause::new(work, Whose::Drive))
        {
            self.read_histories(now, pu, id);
        }
        if self.dies.is_some() {
            self.occupy(pu);
        }
        self.ops[id] = Op::new(NONE, OpKind::Erase, ppa, 0, 0);
        self.units[pu].active = id;
        self.start_array(now, pu, false, time);
        None
    }

    /// A piece of work on an SLC area is done: what waits comes next, then more
    /// of the same.
    #[cold]
    pub(super) fn kept(&mut self, now: Time, pu: u32) -> Option<u32> {
        let (number, slc) = (pu >> self.register_bits, self.slc.as_mut());
        let slc = slc.expect("the unit has an area");
        slc.end(number);
        let owes = slc.owes(number);
        let home = self.home(pu);
        self.units[pu].active = NONE;
        let all = self.dies.as_ref().map(|dies| dies.all);
        if let Some(all) = all {
            self.vacate(pu, all);
        }
        let unit = &mut self.units[home];
        if unit.others.is_empty() || owes {
            // Nothing has waited while reads went before this, or it is what waits.
            unit.passed = 0;
            let is_idle = unit.others.is_empty() && unit.reads.is_empty();
            if is_idle && (all.is_none() || self.holds_nothing(home)) {
                return self.keep(now, home);
            }
        }
        if all.is_some() {
            self.go_on(now, home);
            return None;
        }
        self.start_next::<true>(now, pu)
    }
}
