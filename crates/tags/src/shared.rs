//! One set of tags for several users: dispatch queues or cores.
//!
//! Guarantees: a tag is with one user at a time; what its holder wrote before
//! giving it back is visible to the next; a tag given back can be had again;
//! while nobody waits a user may have all tags, and while somebody does none
//! takes beyond its share; waiting is fair (see `waiters.rs`). Taking
//! and giving back never block while nobody waits; joining and leaving the
//! line takes a short lock. Nothing allocates but making a set or a user.
//!
//! A user that is dropped while it holds tags leaves them taken for ever.

mod user;

use std::ops::Range;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::waiters::{Line, Place, Seat};
use crate::{BadDepth, check_depth};

/// No share is smaller than this, whatever the number of users.
const LEAST_SHARE: u32 = 4;
/// As many users as any set has words for, where it has as many tags.
const FEW: usize = 4;

/// Up to 64 tags.
struct Word {
    /// The tags that are out or in `cleared`. Bits past the depth are always
    /// set. Takers write it.
    taken: CachePadded<AtomicU64>,
    /// The tags that were given back since they were moved last. Givers write
    /// it. A bit here is also set in `taken`.
    cleared: CachePadded<AtomicU64>,
}

/// A set of tags, used through [`TagUser`]s.
///
/// ```
/// let set = tags::SharedTags::new(32)?;
/// let (mut a, mut b) = (set.user(), set.user());
/// let mut mine = Vec::new();
/// assert_eq!(a.take_batch(8, &mut |tag| mine.push(tag)), 8);
/// let other = b.take().unwrap();
/// assert!(!mine.contains(&other));
/// a.give_batch(&mine);
/// b.give(other);
/// # Ok::<(), tags::BadDepth>(())
/// ```
pub struct SharedTags {
    words: Box<[Word]>,
    /// log2 of the bits used of each word.
    shift: u32,
    depth: u32,
    /// Users that take tags now and then. Changes only when one becomes
    /// active or idle.
    active: CachePadded<AtomicU32>,
    line: Line,
    /// For how many users it was made.
    made_for: usize,
    /// Users that there are, and that there ever were.
    users: AtomicUsize,
    numbers: AtomicUsize,
}

/// One user's handle: one for each dispatch queue or core. It remembers where
/// to look first and how many tags it holds. A tag is given back through the
/// handle that it was taken with.
///
/// A user takes part in the shares from its first tag until
/// [`TagUser::set_idle`]. A user that finds no tag stands in line from then
/// on: [`TagUser::take`] gives it none until [`TagUser::may_try`] says so.
pub struct TagUser {
    set: Arc<SharedTags>,
    seat: Arc<Seat>,
    /// Where it stands in line.
    place: Option<Place>,
    /// Its own words, in which it looks before it looks in those of others.
    home: Range<usize>,
    /// The word to look into first.
    hint: usize,
    held: u32,
    /// It has its share and found no more, and gave none back since.
    full: bool,
    /// Polls in a row that saw a free tag and somebody else's turn.
    passed: u32,
    active: bool,
    /// Its share while somebody waits, when `share_of` users were active.
    share: u32,
    share_of: u32,
}

impl SharedTags {
    /// A set of tags 0 to `depth` − 1, for few users.
    ///
    /// # Errors
    /// When `depth` is not from 1 to [`MAX_DEPTH`](crate::MAX_DEPTH).
    pub fn new(depth: u32) -> Result<Arc<SharedTags>, BadDepth> {
        SharedTags::for_users(depth, FEW)
    }

    /// The same for so many users, each of which has words of its own, where
    /// there are as many tags: it takes from others' when it has all of its own.
    ///
    /// # Errors
    /// As [`SharedTags::new`].
    pub fn for_users(depth: u32, users: usize) -> Result<Arc<SharedTags>, BadDepth> {
        check_depth(depth)?;
        let shift = word_shift(depth, users);
        let bits = 1 << shift;
        let word = |i: u32| Word {
            taken: CachePadded::new(AtomicU64::new(!ones((depth - i * bits).min(bits)))),
            cleared: CachePadded::new(AtomicU64::new(0)),
        };
        Ok(Arc::new(SharedTags {
            words: (0..depth.div_ceil(bits)).map(word).collect(),
            shift,
            depth,
            active: CachePadded::new(AtomicU32::new(0)),
            line: Line::new(depth),
            made_for: users.max(1),
            users: AtomicUsize::new(0),
            numbers: AtomicUsize::new(0),
        }))
    }

    /// A new user, idle, that polls when it has to wait.
    pub fn user(self: &Arc<Self>) -> TagUser {
        let users = self.users.fetch_add(1, Ordering::Relaxed) + 1;
        self.line.reserve(users);
        let home = self.home(self.numbers.fetch_add(1, Ordering::Relaxed));
        TagUser {
            hint: home.start,
            home,
            set: self.clone(),
            seat: Seat::new(),
            place: None,
            held: 0,
            full: false,
            passed: 0,
            active: false,
            share: 0,
            share_of: 0,
        }
    }

    /// The words of the user of this number: at least one, and no other's as
    /// long as there are as many words and no more users than it was made for.
    fn home(&self, number: usize) -> Range<usize> {
        let begin = |n: usize| n * self.words.len() / self.made_for;
        let number = number % self.made_for;
        begin(number)..begin(number + 1).max(begin(number) + 1)
    }

    /// How many tags there are.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// How many tags are in a word: 64, or as many fewer as it takes to have
    /// a word for each user, and at least four, so that users do not meet
    /// at one; with fewer than four tags, one word. For up to four users,
    /// depths from 4 to 7 have one tag in a word, to 15 two, to 31 four, to 63
    /// eight, to 127 sixteen, to 255 thirty-two.
    pub fn bits_per_word(&self) -> u32 {
        1 << self.shift
    }

    /// How many tags are given back for a wake, and how many users are woken.
    pub fn wake_batch(&self) -> u32 {
        self.line.batch()
    }

    /// How many users are active.
    pub fn active_users(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// How many tags are out. Exact while nobody takes or gives; else near.
    pub fn live(&self) -> u32 {
        let bits = |word: &Word| {
            let cleared = word.cleared.load(Ordering::Relaxed);
            (word.taken.load(Ordering::Relaxed) & !cleared).count_ones()
        };
        let past_the_depth = self.words.len() as u32 * 64 - self.depth;
        self.words.iter().map(bits).sum::<u32>().saturating_sub(past_the_depth)
    }

    /// Whether a tag can be seen that is free. A hint that may be old.
    fn has_free(&self) -> bool {
        let free = |word: &Word| {
            let taken = word.taken.load(Ordering::Relaxed);
            taken != u64::MAX || word.cleared.load(Ordering::Relaxed) != 0
        };
        self.words.iter().any(free)
    }

    /// Takes up to `n` tags of a word, as bits. `n` is at least 1.
    #[inline]
    fn take_bits(&self, word: &Word, n: u32) -> u64 {
        let mut taken = word.taken.load(Ordering::Relaxed);
        while taken != u64::MAX {
            let pick = lowest(!taken, n);
            // Acquire: what the last holder wrote. It came here by way of
            // the one that moved `cleared`.
            let won = word.taken.compare_exchange_weak(
                taken,
                taken | pick,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match won {
                Ok(_) => return pick,
                Err(now) => taken = now,
            }
        }
        self.take_cleared(word, n)
    }

    /// Takes up to `n` of the tags that were given back, and moves the rest
    /// to where all can take them.
    fn take_cleared(&self, word: &Word, n: u32) -> u64 {
        if word.cleared.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let cleared = word.cleared.swap(0, Ordering::AcqRel);
        let pick = lowest(cleared, n);
        let rest = cleared & !pick;
        if rest != 0 {
            word.taken.fetch_and(!rest, Ordering::SeqCst);
            // Until now the rest could not be seen. Who looked meanwhile
            // stands in line.
            if self.line.has_waiters() {
                self.line.wake(1);
            }
        }
        pick
    }

    /// Gives tags of a word back.
    #[inline]
    fn give_bits(&self, word: &Word, bits: u64) {
        let before = word.cleared.fetch_or(bits, Ordering::SeqCst);
        debug_assert!(before & bits == 0, "a tag was given back twice");
    }

    /// The word and the bit of a tag.
    #[inline]
    fn locate(&self, tag: u32) -> (usize, u64) {
        assert!(tag < self.depth, "tag {tag} of a set of {}", self.depth);
        ((tag >> self.shift) as usize, 1 << (tag & (self.bits_per_word() - 1)))
    }
}

/// log2 of the bits used of each word, of a set for so many users.
fn word_shift(depth: u32, users: usize) -> u32 {
    const WORDS: u32 = FEW as u32;
    let words = (users.min(depth as usize) as u32).max(WORDS);
    if depth < WORDS { 6 } else { (depth / words).ilog2().min(6) }
}

/// The `n` lowest bits, all set.
fn ones(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// The `n` lowest of the set bits; all when there are no more.
#[inline]
fn lowest(bits: u64, n: u32) -> u64 {
    let mut rest = bits;
    for _ in 0..n {
        if rest == 0 {
            break;
        }
        rest &= rest - 1;
    }
    bits & !rest
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::MAX_DEPTH;

    #[test]
    fn bounds_of_depth() {
        assert_eq!(SharedTags::new(0).err(), Some(BadDepth(0)));
        assert_eq!(SharedTags::new(MAX_DEPTH + 1).err(), Some(BadDepth(MAX_DEPTH + 1)));
        let set = SharedTags::new(MAX_DEPTH).unwrap();
        let mut last = 0;
        assert_eq!(set.user().take_batch(MAX_DEPTH, &mut |tag| last = tag), MAX_DEPTH);
        assert_eq!(last, MAX_DEPTH - 1);
    }

    #[test]
    fn small_sets_have_small_words() {
        let bits = |depth| SharedTags::new(depth).unwrap().bits_per_word();
        let expected =
            [(1, 64), (3, 64), (4, 1), (7, 1), (8, 2), (32, 8), (255, 32), (256, 64), (9999, 64)];
        for (depth, word) in expected {
            assert_eq!(bits(depth), word, "depth {depth}");
        }
    }

    #[test]
    fn many_users_have_a_word_each() {
        // 512 tags of 16 users were 8 words of 64.
        for (depth, users) in [(512, 16), (512, 100), (48, 16), (4, 16), (3, 16), (65_535, 1024)] {
            let set = SharedTags::for_users(depth, users).unwrap();
            let mut all: Vec<_> = (0..users.min(depth as usize)).map(|_| set.user()).collect();
            let word = |user: &mut TagUser| user.take().unwrap() / set.bits_per_word();
            let words: std::collections::BTreeSet<_> = all.iter_mut().map(word).collect();
            assert!(
                words.len() == all.len() || depth < 4,
                "{depth} tags, {users} users: {words:?}"
            );
        }
    }

    #[test]
    fn users_start_apart() {
        let set = SharedTags::new(64).unwrap();
        let mut users: Vec<_> = (0..4).map(|_| set.user()).collect();
        let words: Vec<_> = users.iter_mut().map(|user| user.take().unwrap() / 16).collect();
        assert_eq!(words, [0, 1, 2, 3]);
    }

    #[test]
    fn users_that_have_no_more_than_their_part_never_meet_in_a_word() {
        for (depth, users) in [(64, 2), (64, 4), (512, 16), (96, 3), (48, 16)] {
            let set = SharedTags::for_users(depth, users).unwrap();
            let part = set.words.len() / users * set.bits_per_word() as usize;
            let mut all: Vec<_> = (0..users).map(|_| (set.user(), VecDeque::new())).collect();
            let mut owners = vec![None; set.words.len()];
            // The oldest goes back first, some at once, as a device does it.
            for turn in 0..200 {
                for (number, (user, held)) in all.iter_mut().enumerate() {
                    user.take_batch((part - held.len()) as u32, &mut |tag| held.push_back(tag));
                    assert_eq!(held.len(), part, "{depth} tags, {users} users");
                    let back: Vec<_> = held.drain(..(turn + number) % part + 1).collect();
                    for &tag in &back {
                        let owner = &mut owners[(tag / set.bits_per_word()) as usize];
                        assert_eq!(*owner.get_or_insert(number), number, "{depth}, {users}: {tag}");
                    }
                    user.give_batch(&back);
                }
            }
        }
    }

    #[test]
    fn who_needs_more_than_its_part_has_all() {
        let set = SharedTags::for_users(64, 2).unwrap();
        let mut other = set.user();
        let mut user = set.user();
        let mut held = Vec::new();
        for _ in 0..3 {
            while let Some(tag) = user.take() {
                held.push(tag);
            }
            assert_eq!(held.len(), 64);
            assert_eq!(held.iter().collect::<std::collections::BTreeSet<_>>().len(), 64);
            user.give_batch(&held);
            held.clear();
            user.stop_waiting();
        }
        assert!(other.take().is_some());
    }

    #[test]
    fn who_was_among_others_comes_home() {
        let set = SharedTags::for_users(64, 2).unwrap();
        let mut user = set.user();
        let mut held = Vec::new();
        user.take_batch(40, &mut |tag| held.push(tag));
        assert_eq!(held.len(), 40);
        user.give_batch(&held);
        // It could go on where it was last, among the other's.
        for _ in 0..100 {
            let tag = user.take().unwrap();
            assert!(tag < 32, "{tag}");
            user.give(tag);
        }
    }

    #[test]
    #[should_panic(expected = "tag 5 of a set of 5")]
    fn a_foreign_tag_is_noticed() {
        let mut user = SharedTags::new(5).unwrap().user();
        user.take();
        user.give(5);
    }

    #[test]
    #[should_panic(expected = "given back by a user that holds 0")]
    fn one_too_many_given_back_is_noticed() {
        let set = SharedTags::new(5).unwrap();
        let (mut a, mut b) = (set.user(), set.user());
        let tag = a.take().unwrap();
        b.give(tag);
    }

    proptest! {
        #[test]
        fn lowest_bits(bits in any::<u64>(), n in 0u32..70) {
            let low = lowest(bits, n);
            prop_assert_eq!(low & !bits, 0);
            prop_assert_eq!(low.count_ones(), n.min(bits.count_ones()));
            let rest = bits & !low;
            prop_assert!(rest == 0 || low < (rest & rest.wrapping_neg()));
        }
    }
}
