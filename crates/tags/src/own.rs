//! The tags of a queue that one thread owns.
//!
//! Guarantees: no tag is out twice, as long as only tags that are out are
//! given back. What was given back last is taken first, so that the slots it
//! names are still in the cache. No allocation after `new`.
//!
//! A tag given back twice shows in the caller's slot of that tag, which is
//! then empty; it is not looked for here. Here only more tags given back than
//! are out is noticed, and panics.

use crate::{BadDepth, check_depth};

/// A bounded set of tags, not shared.
///
/// ```
/// let mut tags = tags::OwnTags::new(2)?;
/// let (a, b) = (tags.take().unwrap(), tags.take().unwrap());
/// assert_eq!(tags.take(), None);
/// tags.give(a);
/// assert_eq!(tags.take(), Some(a));
/// # tags.give(b);
/// # Ok::<(), tags::BadDepth>(())
/// ```
#[derive(Debug)]
pub struct OwnTags {
    /// The first `room` are the tags to be had, next one last.
    stack: Box<[u16]>,
    room: usize,
}

impl OwnTags {
    /// Tags 0 to `depth` − 1, all to be had, the low ones first.
    ///
    /// # Errors
    /// When `depth` is not from 1 to [`MAX_DEPTH`](crate::MAX_DEPTH).
    pub fn new(depth: u32) -> Result<OwnTags, BadDepth> {
        check_depth(depth)?;
        let stack: Box<[u16]> = (0..depth as u16).rev().collect();
        Ok(OwnTags { room: stack.len(), stack })
    }

    /// A tag, or `None` when all are out.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        let next = self.room.checked_sub(1)?;
        let tag = *self.stack.get(next)?;
        self.room = next;
        Some(u32::from(tag))
    }

    /// Gives `put` up to `n` tags. Returns how many.
    #[inline(always)]
    pub fn take_batch(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        let n = (n as usize).min(self.room);
        let left = self.room - n;
        for &tag in self.stack[left..self.room].iter().rev() {
            put(u32::from(tag));
        }
        self.room = left;
        n as u32
    }

    /// Takes a tag back that is out.
    ///
    /// # Panics
    /// When none is out. In debug builds also when the tag is not of this set.
    #[inline]
    pub fn give(&mut self, tag: u32) {
        debug_assert!(tag < self.depth(), "tag {tag} of a set of {}", self.depth());
        let Some(place) = self.stack.get_mut(self.room) else {
            panic!("tag {tag} was given back, but none was out");
        };
        *place = tag as u16;
        self.room += 1;
    }

    /// How many tags there are.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.stack.len() as u32
    }

    /// How many are out.
    #[inline]
    pub fn live(&self) -> u32 {
        (self.stack.len() - self.room) as u32
    }

    /// How many are to be had.
    #[inline]
    pub fn room(&self) -> u32 {
        self.room as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::MAX_DEPTH;

    #[test]
    fn bounds_of_depth() {
        assert_eq!(OwnTags::new(0).unwrap_err(), BadDepth(0));
        assert_eq!(OwnTags::new(MAX_DEPTH + 1).unwrap_err(), BadDepth(MAX_DEPTH + 1));
        let mut most = OwnTags::new(MAX_DEPTH).unwrap();
        let mut seen = BTreeSet::new();
        assert_eq!(most.take_batch(u32::MAX, &mut |t| assert!(seen.insert(t))), MAX_DEPTH);
        assert_eq!(seen.last(), Some(&(MAX_DEPTH - 1)));
    }

    #[test]
    #[should_panic(expected = "none was out")]
    fn one_too_many_given_back_is_noticed() {
        let mut tags = OwnTags::new(2).unwrap();
        let a = tags.take().unwrap();
        tags.give(a);
        tags.give(a);
    }

    #[test]
    fn last_in_is_first_out() {
        let mut tags = OwnTags::new(9).unwrap();
        assert_eq!(tags.take(), Some(0));
        tags.take_batch(4, &mut |_| ());
        tags.give(3);
        tags.give(1);
        let mut next = Vec::new();
        tags.take_batch(3, &mut |t| next.push(t));
        assert_eq!(next, [1, 3, 5]);
    }

    proptest! {
        #[test]
        fn is_a_set(depth in 1u32..40, ops in prop::collection::vec((any::<bool>(), 0u32..50), 1..200)) {
            let mut tags = OwnTags::new(depth).unwrap();
            let mut out = BTreeSet::new();
            for (take, n) in ops {
                match (take, n) {
                    (true, 0) => match tags.take() {
                        Some(t) => prop_assert!(t < depth && out.insert(t)),
                        None => prop_assert_eq!(out.len(), depth as usize),
                    },
                    (true, n) => {
                        let expected = n.min(depth - out.len() as u32);
                        let mut fresh = true;
                        let got = tags.take_batch(n, &mut |t| fresh &= t < depth && out.insert(t));
                        prop_assert!(fresh);
                        prop_assert_eq!(got, expected);
                    }
                    (false, n) => {
                        if let Some(&t) = out.iter().nth(n as usize % out.len().max(1)) {
                            out.remove(&t);
                            tags.give(t);
                        }
                    }
                }
                prop_assert_eq!(tags.live(), out.len() as u32);
                prop_assert_eq!(tags.room(), depth - out.len() as u32);
            }
        }
    }
}
