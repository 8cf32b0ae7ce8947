//! A set of parallel units, by their place in the round.

/// A bit for each place.
#[derive(Debug)]
pub(super) struct Ranks(Box<[u64]>);

impl Ranks {
    /// None of `count`.
    pub fn new(count: usize) -> Ranks {
        Ranks(vec![0; count.div_ceil(64)].into())
    }

    #[inline]
    pub fn set(&mut self, rank: usize, is_in: bool) {
        let (word, bit) = (rank / 64, 1u64 << (rank % 64));
        if is_in {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    #[inline]
    pub fn has(&self, rank: usize) -> bool {
        self.0[rank / 64] >> (rank % 64) & 1 == 1
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The first from place `from` on, then round from the beginning.
    #[inline(always)]
    pub fn next(&self, from: usize) -> Option<usize> {
        let start = from / 64;
        let word = self.0[start] & u64::MAX << (from % 64);
        if word != 0 {
            return Some(start * 64 + word.trailing_zeros() as usize);
        }
        self.next_word(start)
    }

    /// The first of the words behind the one at `start`, which comes last.
    #[inline]
    fn next_word(&self, start: usize) -> Option<usize> {
        let (before, behind) = self.0.split_at(start + 1);
        let round = behind.iter().zip(start + 1..).chain(before.iter().zip(0..));
        let (word, at) = round.into_iter().find(|&(&word, _)| word != 0)?;
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    /// Takes out all that are in the `i`th 64 places: a bit for each. `None` past
    /// the end.
    #[inline]
    pub fn take_word(&mut self, i: usize) -> Option<u64> {
        self.0.get_mut(i).map(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_round() {
        let mut ranks = Ranks::new(130);
        assert!(ranks.is_empty() && ranks.next(129).is_none());
        [3, 64, 129].into_iter().for_each(|rank| ranks.set(rank, true));
        assert_eq!([0, 4, 65, 129].map(|from| ranks.next(from)), [3, 64, 129, 129].map(Some));
        ranks.set(129, false);
        assert_eq!((ranks.next(65), ranks.has(64), ranks.has(129)), (Some(3), true, false));
        assert_eq!([0, 1, 2, 3].map(|i| ranks.take_word(i)), [Some(8), Some(1), Some(0), None]);
        assert!(ranks.is_empty());
    }
}
