//! The array of a parallel unit at work: how long it is, and what comes then.

use flash::Ppa;
use port::Time;

use super::{Op, OpKind, State, Units};
use crate::list::NONE;

impl Units {
    /// tPROG or tBERS of what enters the array now.
    #[inline(never)]
    pub(super) fn change_time(&mut self, pu: u32, kind: OpKind, ppa: Ppa, count: u8) -> u64 {
        if kind == OpKind::Erase {
            return self.takes(pu, self.timing.erase);
        }
        let Op { inside, cmd, .. } = self.ops[self.units[pu].active];
        if inside {
            return self.copy_time(pu, cmd, ppa, count);
        }
        self.program_time(pu, ppa, count)
    }

    /// The array works for `time`.
    #[inline(always)]
    pub(super) fn work(&mut self, now: Time, pu: u32, is_read: bool, time: u64) -> Option<u32> {
        if time == 0 {
            return self.array_end(now, pu);
        }
        self.start_array(now, pu, is_read, time);
        None
    }

    /// The array is through.
    #[inline(always)]
    pub(super) fn array_end(&mut self, now: Time, pu: u32) -> Option<u32> {
        let Op { cmd, kind, count, tags, .. } = self.ops[self.units[pu].active];
        if kind == OpKind::Read {
            if self.dies.is_some() && self.units[pu].tries == 0 {
                self.sensed(now, pu);
            }
            let transfer = if tags { &self.transfer_tags } else { &self.transfer };
            let time = transfer[count as usize];
            if time > 0 {
                self.use_bus(now, pu, State::Out, true, time);
                return None;
            }
            if self.units[pu].tries > 0 {
                self.start_decoding(now, pu);
                return None;
            }
        } else if cmd == NONE {
            return self.kept(now, pu);
        }
        self.units[pu].state = State::Finishing;
        Some(pu)
    }

    #[inline(always)]
    pub(super) fn start_array(&mut self, now: Time, pu: u32, is_read: bool, time: u64) {
        let (unit, end) = (&mut self.units[pu], now + time);
        (unit.state, unit.array_end) = (State::Array, end);
        if let Some(worked) = &mut self.worked {
            worked[(pu >> self.register_bits) as usize] += time;
        }
        self.timeline.set(pu, is_read, end);
        if self.timing.suspend {
            let home = self.home(pu);
            if !self.units[home].reads.is_empty() {
                self.try_suspend(now, home, pu);
            }
        }
    }

    /// What a parallel unit works on takes so much array time.
    #[inline]
    pub(super) fn takes(&mut self, pu: u32, time: u64) -> u64 {
        if let Some(tales) = &mut self.tales {
            tales.takes(self.units[pu].active, time);
        }
        time
    }

    /// tPROG of a program that enters the array now: in the SLC cache, where
    /// that takes it, else in the slow cells.
    #[inline]
    pub(super) fn program_time(&mut self, pu: u32, ppa: Ppa, count: u8) -> u64 {
        let time = if let Some(slc) = &mut self.slc
            && slc.take(pu >> self.register_bits, ppa, count)
        {
            slc.program_time()
        } else {
            self.slow_program(ppa)
        };
        self.takes(pu, time)
    }

    /// tPROG in the slow cells. What is programmed first of a chunk opens it.
    #[inline]
    pub(super) fn slow_program(&self, ppa: Ppa) -> u64 {
        self.timing.program_of(self.geometry.row(ppa), self.geometry.block(ppa) == 0)
    }
}
