//! How long the arrays of dies work.
//!
//! Counted where an operation of an array begins, whole; what is left of it is taken off
//! for whoever asks meanwhile. It costs an addition, and nothing of it has to do with
//! stories. Nothing here fails.

use port::Time;

use super::{State, Units};

impl Units {
    /// From then on each die says how long its array works, what it is at included; or no
    /// more.
    pub fn set_die_clocks(&mut self, from: Option<Time>) {
        let dies = 0..self.geometry.pu_slots();
        self.worked = from.map(|from| dies.map(|pu| self.left(from, pu)).collect());
    }

    /// How long the array of a die worked since it says so, in ns, what it is at to its
    /// end; `None` where it does not.
    pub fn worked(&self, pu: usize) -> Option<u64> {
        Some(self.worked.as_ref()?[pu])
    }

    /// The same until `now`: of what it is at so much as is over.
    pub fn worked_until(&self, now: Time, pu: usize) -> Option<u64> {
        Some(self.worked(pu)?.saturating_sub(self.left(now, pu)))
    }

    /// What is left of what the array of a die is at, in ns.
    fn left(&self, now: Time, pu: usize) -> u64 {
        let first = (pu as u32) << self.register_bits;
        let units = (first..first + (1 << self.register_bits)).map(|unit| &self.units[unit]);
        let at_work = units.filter(|unit| unit.state == State::Array);
        at_work.map(|unit| unit.array_end.since(now)).sum()
    }

    /// The array of a unit's die works so much less than was said, and so much more.
    #[inline]
    pub(super) fn works_less(&mut self, pu: u32, less: u64, more: u64) {
        if let Some(worked) = &mut self.worked {
            let worked = &mut worked[(pu >> self.register_bits) as usize];
            *worked = worked.saturating_sub(less) + more;
        }
    }
}
