//! A queue whose entries say themselves that they are there, in memory that the
//! two sides need not trust each other with.
//!
//! An entry is some words of 64 bits. The upper half of the last is its stamp: how
//! many entries there were up to it, the first having 1. So one line goes from one
//! side to the other for an entry, and no index lies in the memory. Memory of zeros
//! is an empty queue. There is no word of what was taken either: who puts more than
//! there are places, before the other side has taken them, overwrites them. Two such
//! queues in opposite directions need none, as a request leaves the first before its
//! answer comes by the second ([`Stamped`] says who counts what).
//!
//! Guarantees: entries come out whole and in order, each once, with what was written
//! before them; an entry is read once, so that what was checked is what is used,
//! whatever the other side writes meanwhile. Who writes garbage harms itself: it is
//! an entry, it is none yet, or it is told as [`OutOfTurn`]. Neither side waits, and
//! nothing else fails.

use thiserror::Error;

use crate::sync::{AtomicU64, Mistake, Ordering, planted};

/// Words that a queue lies in; all its accesses are atomic.
pub type Word = AtomicU64;

/// What no writer of the protocol leaves where the next entry is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an entry has the stamp {found} where {wanted} was next")]
pub struct OutOfTurn {
    /// The stamp that is next.
    pub wanted: u32,
    /// What is there.
    pub found: u32,
}

/// One side's place in a queue of `W` words an entry. A side either puts or takes.
///
/// Who puts keeps to so many that are not taken as there are places. Of two queues
/// with a place for each request: who asks has at most so many requests out, counted
/// until it took their answers; then no entry of either is overwritten.
#[derive(Clone, Debug)]
pub struct Stamped<const W: usize> {
    /// Entries so far.
    count: u32,
    /// Places less one.
    mask: u32,
}

impl<const W: usize> Stamped<W> {
    /// At the beginning of a queue.
    ///
    /// # Panics
    /// Unless `places` is a power of two, at most 2^30, and an entry has words.
    pub fn new(places: u32) -> Stamped<W> {
        assert!(places.is_power_of_two() && places <= 1 << 30 && W > 0, "{places} places");
        Stamped { count: 0, mask: places - 1 }
    }

    /// Words that a queue of so many places lies in.
    pub const fn words(places: u32) -> usize {
        places as usize * W
    }

    /// The words of the next entry.
    ///
    /// # Panics
    /// When the queue is not as long as it is to be.
    #[inline(always)]
    fn place<'a>(&self, queue: &'a [Word]) -> &'a [Word; W] {
        let at = (self.count & self.mask) as usize * W;
        queue[at..at + W].try_into().expect("it has as many words")
    }

    /// Puts an entry at the end. The upper half of its last word is the stamp's.
    #[inline(always)]
    pub fn put(&mut self, queue: &[Word], entry: [u64; W]) {
        let place = self.place(queue);
        self.count = self.count.wrapping_add(1);
        let last = entry[W - 1] & u64::from(u32::MAX) | u64::from(self.count) << 32;
        if planted(Mistake::StampFirst) {
            place[W - 1].store(last, Ordering::Release);
        }
        for (word, value) in place.iter().zip(entry).take(W - 1) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: the words before it, and the data that the entry speaks of.
        place[W - 1].store(last, Ordering::Release);
    }

    /// The next entry, if it is there; its stamp is left in it.
    ///
    /// # Errors
    /// What is there is neither the next entry nor what was there a lap ago.
    #[inline(always)]
    pub fn take(&mut self, queue: &[Word]) -> Result<Option<[u64; W]>, OutOfTurn> {
        let place = self.place(queue);
        let wanted = self.count.wrapping_add(1);
        let last = place[W - 1].load(Ordering::Acquire);
        let found = (last >> 32) as u32;
        if found != wanted {
            let before = wanted.wrapping_sub(self.mask + 1);
            let is_first_lap = self.count <= self.mask && found == 0;
            return match found == before || is_first_lap {
                true => Ok(None),
                false => Err(OutOfTurn { wanted, found }),
            };
        }
        let mut entry = [0; W];
        for (value, word) in entry.iter_mut().zip(place).take(W - 1) {
            *value = word.load(Ordering::Relaxed);
        }
        entry[W - 1] = last;
        self.count = wanted;
        Ok(Some(entry))
    }

    /// Whether [`Stamped::take`] would give an entry now.
    #[inline(always)]
    pub fn has_next(&self, queue: &[Word]) -> bool {
        let last = self.place(queue)[W - 1].load(Ordering::Acquire);
        (last >> 32) as u32 == self.count.wrapping_add(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn queue<const W: usize>(places: u32) -> Vec<Word> {
        (0..Stamped::<W>::words(places)).map(|_| Word::new(0)).collect()
    }

    #[test]
    fn counts_wrap() {
        let words = queue::<1>(4);
        let (mut put, mut take) = (Stamped::<1>::new(4), Stamped::<1>::new(4));
        // As after 2^32 less 6 entries.
        (put.count, take.count) = (u32::MAX - 5, u32::MAX - 5);
        for (i, word) in words.iter().enumerate() {
            // Count c lies at c & 3, and its stamp is c + 1.
            let count = (0..4).map(|back| u32::MAX - 6 - back).find(|c| (c & 3) as usize == i);
            word.store(u64::from(count.unwrap() + 1) << 32, Ordering::Relaxed);
        }
        for i in 0..40u64 {
            assert_eq!(take.take(&words), Ok(None));
            put.put(&words, [i]);
            assert!(take.has_next(&words));
            assert_eq!(take.take(&words).unwrap().unwrap()[0] as u32, i as u32);
        }
    }

    #[test]
    fn garbage_is_told() {
        let words = queue::<2>(4);
        let mut take = Stamped::<2>::new(4);
        for found in [2, 5, u32::MAX, u32::MAX - 3] {
            words[1].store(u64::from(found) << 32, Ordering::Relaxed);
            let told = take.take(&words);
            // What would be there of the lap before the first is let pass.
            let is_before = found == 1u32.wrapping_sub(4);
            let expected = if is_before { Ok(None) } else { Err(OutOfTurn { wanted: 1, found }) };
            assert_eq!(told, expected);
        }
    }

    proptest! {
        #[test]
        fn is_a_queue(bits in 0u32..4, ops in prop::collection::vec(any::<bool>(), 1..200)) {
            let places = 1 << bits;
            let words = queue::<2>(places);
            let (mut put, mut take) = (Stamped::<2>::new(places), Stamped::<2>::new(places));
            let mut model = VecDeque::new();
            for (i, puts) in ops.into_iter().enumerate() {
                if puts && model.len() < places as usize {
                    put.put(&words, [i as u64 * 7, i as u64]);
                    model.push_back(i as u64);
                } else {
                    prop_assert_eq!(take.has_next(&words), !model.is_empty());
                    let got = take.take(&words).unwrap();
                    let got = got.map(|[first, last]| (first, last & u64::from(u32::MAX)));
                    prop_assert_eq!(got, model.pop_front().map(|i| (i * 7, i)));
                }
            }
        }

        #[test]
        fn any_words_are_survived(words in prop::collection::vec(any::<u64>(), 8), near in any::<bool>()) {
            let queue: Vec<Word> = words
                .iter()
                .map(|&w| Word::new(if near { w & 0xf_ffff_ffff } else { w }))
                .collect();
            let mut take = Stamped::<2>::new(4);
            let mut got = 0;
            while let Ok(Some(_)) = take.take(&queue) {
                got += 1;
            }
            prop_assert!(got <= 4, "each place once");
        }
    }
}
