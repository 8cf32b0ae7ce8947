//! What was programmed since a checkpoint, told by what a start finds.
//!
//! Each row of the user has a number of its own, the next one: so the highest
//! number that is found says how many rows there were. Of a row that is there
//! it is known how much of it is the user's. Rows that were erased since count
//! as the others' mean, or as full. Wear says how often a chunk was filled.
//! What is left is collection's.
//!
//! Not exact: padding in collection's erased rows counts as moved. What a journal above wrote again is told from the user's by roots alone.

use std::collections::BTreeMap;

use super::WriteCounters;

/// What a start finds of the rows since.
#[derive(Default)]
pub(super) struct Recount {
    /// Padding, by the number of its row.
    padding: BTreeMap<u64, u32>,
    /// Own blocks.
    own: u64,
    /// Erases that the chunk table does not know.
    erases: u64,
    /// Blocks of data that were programmed and erased.
    erased: u64,
}

impl Recount {
    /// A block that holds nothing.
    pub fn see_padding(&mut self, seq: u64) {
        *self.padding.entry(seq).or_default() += 1;
    }

    /// A block of the target's own.
    pub fn see_own(&mut self) {
        self.own += 1;
    }

    /// A chunk of `size` blocks was erased so often; up to `next` it was written
    /// before. Of one for own blocks only that is counted.
    pub fn see_erases(&mut self, erases: u32, size: u32, next: u32, is_own: bool) {
        self.erases += u64::from(erases);
        if erases > 0 && !is_own {
            self.erased += u64::from(erases) * u64::from(size) - u64::from(next);
        }
    }

    /// Adds it to the counters as the checkpoint has them, whose last row has number
    /// `seq`; `waiting` rows may have been in the buffer then, and counted.
    /// `copies` gives each copy that was found, by block and number: those of one
    /// block beside each other, and of one number, too.
    pub fn add(
        &self,
        copies: impl Iterator<Item = (u64, u64)>,
        (seq, highest, waiting): (u64, u64, u64),
        row: u32,
        counters: &mut WriteCounters,
    ) {
        let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut waited, mut found, mut last) = (0, 0, None);
        for (block, number) in copies {
            found += 1;
            if last.replace((block, number)) == Some((block, number)) {
                continue;
            }
            if number > seq {
                *rows.entry(number).or_default() += 1;
            } else {
                waited += u64::from(number + waiting > seq);
            }
        }
        let (mut whole, mut user, mut filled) = (0, 0, 0);
        for number in self.padding.keys().filter(|&&number| number > seq) {
            rows.entry(*number).or_default();
        }
        for (number, &blocks) in &rows {
            let padding = u64::from(self.padding.get(number).copied().unwrap_or(0));
            if blocks + padding >= u64::from(row) {
                (whole, user, filled) = (whole + 1, user + blocks, filled + padding);
            }
        }
        let all: u64 = self.padding.values().copied().map(u64::from).sum();
        let programmed = found + all + self.erased;
        let missing = highest.saturating_sub(seq).saturating_sub(whole);
        // No more than there was: a number may be damaged.
        let missing = missing.min(programmed / u64::from(row));
        let mean =
            |of: u64, none: u64| missing.saturating_mul(of).checked_div(whole).unwrap_or(none);
        user += mean(user, missing * u64::from(row));
        let padding = all + mean(filled, 0);
        counters.user += user;
        counters.padding += padding;
        counters.gc += programmed.saturating_sub(user + padding + waited);
        counters.metadata += self.own;
        counters.erases += self.erases;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(recount: &Recount, copies: &[(u64, u64)], highest: u64) -> [u64; 5] {
        let mut c = WriteCounters { user: 100, ..WriteCounters::default() };
        recount.add(copies.iter().copied(), (10, highest, 1), 4, &mut c);
        [c.user, c.gc, c.padding, c.metadata, c.erases]
    }

    #[test]
    fn rows_that_are_there_are_counted() {
        let mut recount = Recount::default();
        recount.see_padding(12);
        recount.see_own();
        // Row 11 is full and a block of it was moved, row 12 has padding; block 5
        // waited at the checkpoint, block 6 is older.
        let copies = [
            (1, 11),
            (1, 11),
            (2, 11),
            (3, 11),
            (4, 11),
            (5, 10),
            (6, 9),
            (7, 12),
            (8, 12),
            (9, 12),
        ];
        assert_eq!(added(&recount, &copies, 12), [107, 2, 1, 1, 0]);
    }

    #[test]
    fn rows_that_were_erased_are_as_the_others() {
        let mut recount = Recount::default();
        (0..2).for_each(|_| recount.see_padding(14));
        recount.see_erases(2, 16, 4, false);
        recount.see_erases(1, 16, 0, true);
        // Of rows 11 to 14 the last is whole: half of it is padding.
        let copies = [(1, 13), (2, 14), (3, 14)];
        assert_eq!(added(&recount, &copies, 14), [108, 33 - 8 - 8, 8, 0, 3]);
        // A number that cannot be is no more than what was programmed.
        let [user, gc, ..] = added(&recount, &copies, 1 << 60);
        assert!(user <= 100 + 33 && gc <= 33, "{user} {gc}");
    }

    #[test]
    fn nothing_since_is_nothing() {
        assert_eq!(added(&Recount::default(), &[], 10), [100, 0, 0, 0, 0]);
    }
}
