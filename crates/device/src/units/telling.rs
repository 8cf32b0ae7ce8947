//! What parallel units tell of their operations.
//!
//! Who begins where is noted as it happens; what a history is about to lose, those are told
//! that need it. Nothing here fails.

use port::story::{Cause, Work};
use port::{Story, Time, Whose};

use super::{Op, OpKind, State, Units};
use crate::list::{List, NONE};
use crate::tales::{Access, Place, Tales};

impl Units {
    /// From now on each operation has a story, or none; `whose` says whose a command
    /// is that has some already. Of `depth` commands `waiting` have ended and were not given.
    pub fn set_stories(&mut self, on: bool, depth: (usize, usize), whose: impl Fn(u32) -> Whose) {
        self.tales = on.then(|| {
            let cause = |op: Op| match op.cmd {
                NONE => Cause::new(Work::Program, Whose::Drive),
                cmd => op.kind.of(whose(cmd)),
            };
            let active = |unit: &super::Unit| {
                let op = if unit.active == NONE { unit.paused } else { unit.active };
                cause(if op == NONE { Op::default() } else { self.ops[op] })
            };
            let ops = (0..self.ops.capacity() as u32).map(|id| cause(self.ops[id]));
            let dies = 0..self.geometry.pu_slots() as u32;
            let units = dies.map(|die| active(&self.units[die << self.register_bits]));
            let planes = self.dies.as_ref().map_or(1, |dies| dies.all.count_ones());
            Box::new(Tales::new(ops, units, planes, depth))
        });
    }

    /// The active operation of a parallel unit is done but for the bytes, and its command
    /// with it: as [`Tales::ends`].
    #[inline]
    pub fn tell(&mut self, now: Time, pu: u32, op: &Op, is_first: bool) {
        let id = self.units[pu].active;
        if let Some(tales) = &mut self.tales {
            tales.ends(now, (id, op), is_first);
        }
    }

    /// Tells the story of a command that so many ended before in place of another.
    pub fn tell_of(&self, number: u64, story: &mut Story) -> bool {
        let Some(tales) = &self.tales else { return false };
        tales.tell_of(number, story, |access| {
            let Access { kind, count, tags, inside } = *access;
            let (transfer, array) = match kind {
                OpKind::Read => {
                    let transfer = if tags { &self.transfer_tags } else { &self.transfer };
                    let same = if self.senses { None } else { self.same_read };
                    (transfer[count as usize], same.unwrap_or(0))
                }
                OpKind::Program => (self.load_time(count, inside), 0),
                OpKind::Erase => (0, 0),
            };
            [self.timing.command + transfer, array]
        })
    }

    /// An operation came that has a story, to a die that does one thing at a time.
    #[inline(always)]
    pub(super) fn note_came(&mut self, now: Time, pu: u32, id: u32, cause: Cause) {
        let waits = self.units[pu].state > State::Resting;
        if let Some(tales) = &mut self.tales
            && tales.came(now, pu, id, cause, waits)
        {
            self.read_histories(now, pu, id);
        }
    }

    /// The same to a die that may do several.
    pub(super) fn note_joined(&mut self, now: Time, home: u32, id: u32, whose: Whose) {
        let op = &self.ops[id];
        let at = (home >> self.register_bits, op.planes);
        if let Some(tales) = &mut self.tales {
            tales.came_to(now, at, id, op.kind.of(whose));
        }
    }

    /// An operation that waited has its parallel unit.
    #[inline]
    pub(super) fn note_begun(&mut self, now: Time, pu: u32, id: u32) {
        self.note_begun_at(now, pu, (pu >> self.register_bits, 0), id);
    }

    /// The same of one that takes these planes.
    #[inline]
    pub(super) fn note_begun_at(&mut self, now: Time, pu: u32, at: Place, id: u32) {
        if let Some(tales) = &mut self.tales
            && tales.begins(now, at, id)
        {
            self.read_histories(now, pu, id);
        }
    }

    /// What is inside at a die reads of its histories what is soon written over, `id`
    /// included, which may not be there yet.
    #[cold]
    #[inline(never)]
    pub(super) fn read_histories(&mut self, now: Time, pu: u32, id: u32) {
        let Units { tales: Some(tales), units, ops, sharing, register_bits, .. } = self else {
            return;
        };
        let home = pu >> *register_bits << *register_bits;
        let mut read = |id: u32| {
            if id != NONE {
                tales.read(now, id);
            }
        };
        let mut read_all = |list: List, read: &mut dyn FnMut(u32)| {
            let mut next = list.first();
            while let Some(id) = next {
                read(id);
                next = list.after(id, ops);
            }
        };
        read(id);
        read(units[home].paused);
        for list in [units[home].reads, units[home].others] {
            read_all(list, &mut read);
        }
        for register in home..home + (1 << *register_bits) {
            read(units[register].active);
            if let Some(sharing) = sharing.as_ref() {
                read_all(sharing.sharers(register), &mut read);
            }
        }
    }
}
