//! Which of writes that overlap came later: what a read saw says so.

use super::{Cell, Contract, Entry, NONE};

impl Contract {
    /// A read that was sent at `sent` has seen this value of a cell, which it may: what had
    /// ended before came before that, and no later read sees it.
    pub fn saw(&mut self, cell: u64, value: u64, sent: u32) {
        let Cell { head, .. } = self.cells[cell as usize];
        let seen = if head == NONE { None } else { self.number_of(cell, value) };
        let Some(seen) = seen else { return };
        let (now, mut at) = (self.clock, head);
        while at != NONE {
            let Entry { op, before, dead, by } = self.entries[at as usize];
            let is_newer = by == NONE || !self.is_durable(&self.ops[by as usize]);
            if op != seen && self.ops[op as usize].end < sent && is_newer {
                let entry = &mut self.entries[at as usize];
                (entry.dead, entry.by) = (dead.min(now), seen);
            }
            at = before;
        }
        let held = &mut self.cells[cell as usize];
        held.base_dead = held.base_dead.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writes at once: which came later a read says, and it stays so.
    #[test]
    fn what_a_read_saw_is_not_followed_by_what_came_before() {
        let mut c = Contract::new(1, 1);
        let (a, b) = (c.begin(0, 1, false, false), c.begin(0, 1, false, false));
        let [a_value, b_value] = [a, b].map(|op| c.value(op, 0));
        let early = c.sent();
        c.end(a);
        let read = c.sent();
        assert!(c.may_read(0, a_value, read) && c.may_read(0, b_value, read));
        c.saw(0, b_value, early);
        assert!(c.may_read(0, a_value, read), "a had not ended when that read was sent");
        let beside = c.sent();
        c.saw(0, b_value, read);
        let later = c.sent();
        assert!(c.may_read(0, a_value, beside) && c.may_read(0, b_value, later));
        assert!(!c.may_read(0, a_value, later));
        assert!(c.may_remain(0, a_value) && c.may_remain(0, 0), "b is not durable");
        c.end(b);
        let flush = c.sent();
        c.flushed(flush);
        assert!(!c.may_remain(0, a_value) && c.may_remain(0, b_value));
    }

    /// What was there before is not seen again once something newer was.
    #[test]
    fn what_was_overtaken_is_not_read_again() {
        let mut c = Contract::new(1, 1);
        let a = c.begin(0, 1, false, false);
        let read = c.sent();
        assert!(c.may_read(0, 0, read));
        c.saw(0, c.value(a, 0), read);
        let later = c.sent();
        assert!(!c.may_read(0, 0, later) && c.may_remain(0, 0));
    }
}
