//! Whether the sectors of a block are of one moment: what one request wrote, zeroed or trimmed
//! there is all there or not at all.

use super::{Contract, NONE, Op};

impl Contract {
    /// The operation that zeroed a cell which is zero, where only one can have that has not
    /// ended before `horizon`.
    fn zeroed_by(&self, cell: u64, horizon: u32) -> Option<&Op> {
        if horizon == 0 && self.is_base(cell, 0) {
            return None;
        }
        let (mut at, mut found) = (self.cells[cell as usize].head, None);
        while at != NONE {
            let entry = self.entries[at as usize];
            let op = &self.ops[entry.op as usize];
            if op.zero && op.end > horizon && found.replace(op).is_some() {
                return None;
            }
            at = entry.before;
        }
        found
    }

    /// Whether a block's cells, from `first` on, can be of one moment: where
    /// one shows an operation, no other that this covers shows only what was
    /// before it. Gives the cell that is torn.
    pub fn torn(&self, first: u64, values: &[u64]) -> Option<u64> {
        let cells = || (first..).zip(values.iter().copied());
        let written = || cells().filter_map(|(cell, value)| self.op_of(cell, value));
        for (cell, value) in cells() {
            let op = match value {
                0 => {
                    let shown = written().filter(|op| op.covers(cell)).map(|op| op.begin);
                    self.zeroed_by(cell, shown.max().unwrap_or(0))
                }
                value => self.op_of(cell, value),
            };
            let Some(op) = op else { continue };
            let is_older = |&(cell, other): &(u64, u64)| {
                op.covers(cell) && !self.is_left(cell, other, op.begin)
            };
            if let Some((torn, _)) = cells().find(is_older) {
                return Some(torn);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_two_moments_is_torn() {
        let mut c = Contract::new(1, 8);
        let a = c.begin(0, 8, false, false);
        c.end(a);
        let b = c.begin(0, 8, false, false);
        let mut values: Vec<u64> = (0..8).map(|i| c.value(a, i)).collect();
        assert_eq!(c.torn(0, &values), None);
        values[3] = c.value(b, 3);
        assert_eq!(c.torn(0, &values), Some(0));
        values.iter_mut().enumerate().for_each(|(i, v)| *v = c.value(b, i as u64));
        assert_eq!(c.torn(0, &values), None);
        values[7] = 0;
        assert_eq!(c.torn(0, &values), Some(7));
    }

    #[test]
    fn a_block_that_is_zeroed_in_part_is_torn() {
        let mut c = Contract::new(1, 8);
        let a = c.begin(0, 8, false, false);
        c.end(a);
        let zero = c.begin(0, 8, true, false);
        let values: Vec<u64> = (0..8).map(|i| if i < 4 { c.value(a, i) } else { 0 }).collect();
        assert_eq!(c.torn(0, &values), Some(0));
        assert_eq!(c.torn(0, &[0; 8]), None);
        // As it lets what is written beside it stand, and says nothing of what it leaves out.
        let b = c.begin(0, 4, false, false);
        let beside: Vec<u64> = (0..8).map(|i| if i < 4 { c.value(b, i) } else { 0 }).collect();
        assert_eq!(c.torn(0, &beside), None);
        c.end(zero);
        // Of two it may be either.
        c.begin(4, 4, true, false);
        assert_eq!(c.torn(0, &values), None);
        // What was zero before says nothing.
        let mut c = Contract::new(1, 8);
        let a = c.begin(0, 4, false, false);
        c.end(a);
        c.begin(0, 8, true, false);
        let values: Vec<u64> = (0..8).map(|i| if i < 4 { c.value(a, i) } else { 0 }).collect();
        assert_eq!(c.torn(0, &values), None);
    }
}
