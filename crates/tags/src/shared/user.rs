//! A user of a set of tags: how it takes tags and gives them back, and waits in line.

use std::sync::Arc;

use super::{LEAST_SHARE, SharedTags, TagUser};
use crate::sync::{Mistake, Ordering, fence, planted};
use crate::waiters::PATIENCE;

impl TagUser {
    /// A tag, or `None` when none is free, or others wait: then it is at its
    /// share, or they are first. It now stands in line, unless it is at its
    /// share, and should ask [`TagUser::may_try`] before it tries again.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.is_let_in() {
            let free = !self.set.words[self.hint].taken.load(Ordering::Relaxed);
            if let Some(tag) = self.take_lowest(free) {
                return Some(tag);
            }
        }
        self.take_anywhere()
    }

    /// Takes the lowest of the tags `free` of the word at the hint, if there
    /// is one and nobody was faster.
    #[inline]
    fn take_lowest(&mut self, free: u64) -> Option<u32> {
        if free == 0 {
            return None;
        }
        let bit = free & free.wrapping_neg();
        let word = &self.set.words[self.hint];
        // Acquire: as in `take_bits`.
        let won =
            word.taken.compare_exchange(!free, !free | bit, Ordering::Acquire, Ordering::Relaxed);
        won.ok()?;
        self.held += 1;
        Some(((self.hint as u32) << self.set.shift) + bit.trailing_zeros())
    }

    /// [`TagUser::take`] when the first look found nothing.
    fn take_anywhere(&mut self) -> Option<u32> {
        let mut taken = None;
        self.take_batch(1, &mut |tag| taken = Some(tag));
        taken
    }

    /// Gives `put` up to `n` tags, as many as are free and, while others wait,
    /// in this user's share. Returns how many. When there is none, as [`TagUser::take`].
    #[inline]
    pub fn take_batch(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        if !self.is_let_in() || n == 0 {
            return self.take_late(n, put);
        }
        match self.scan(n, put) {
            0 => self.wait(n, put),
            got => got,
        }
    }

    /// Gives a tag back that this user holds.
    ///
    /// # Panics
    /// When the tag is not of this set, or this user holds none. In debug
    /// builds also when the tag was given back already.
    #[inline]
    pub fn give(&mut self, tag: u32) {
        let (word, bit) = self.set.locate(tag);
        self.set.give_bits(&self.set.words[word], bit);
        self.come_home(word);
        self.given(1);
    }

    /// Gives tags back that this user holds. Neighbours from the same word,
    /// as [`TagUser::take_batch`] gives them, go back with one operation.
    ///
    /// # Panics
    /// As [`TagUser::give`].
    #[inline]
    pub fn give_batch(&mut self, tags: &[u32]) {
        let Some(&first) = tags.first() else { return };
        let (mut word, mut bits) = self.set.locate(first);
        for &tag in &tags[1..] {
            let (next, bit) = self.set.locate(tag);
            if next != word {
                self.set.give_bits(&self.set.words[word], bits);
                self.come_home(word);
                (word, bits) = (next, 0);
            }
            debug_assert!(bits & bit == 0, "tag {tag} was given back twice");
            bits |= bit;
        }
        self.set.give_bits(&self.set.words[word], bits);
        self.come_home(word);
        self.given(tags.len() as u32);
    }

    /// Whether to try is worth while: this user was woken, or it is not in
    /// line and may take more, and did not just find that there is none. Does
    /// not say that a tag is free.
    #[inline]
    pub fn may_try(&mut self) -> bool {
        if self.place.is_some() { self.seat.is_woken() } else { !self.full && self.room() > 0 }
    }

    /// As [`TagUser::may_try`], by the share that this user last knew of.
    #[inline]
    pub fn might_try(&self) -> bool {
        if self.place.is_some() {
            return self.seat.is_woken();
        }
        let most = if self.set.line.is_open() { self.set.depth } else { self.share.max(1) };
        !self.full && self.held < most
    }

    /// Whether this user stands in line.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.place.is_some()
    }

    /// Whether this user stands in line while a tag is free, and it is somebody
    /// else's turn: it is worth while to [`TagUser::poll`].
    pub fn is_passed(&self) -> bool {
        self.place.is_some() && !self.seat.is_woken() && self.set.has_free()
    }

    /// For a user in line, as often as it looks whether it may try: when it
    /// saw a free tag so often that whose turn it is does not look, the turn
    /// goes to the next.
    pub fn poll(&mut self) {
        self.passed = if self.is_passed() { self.passed + 1 } else { 0 };
        if self.passed == PATIENCE {
            self.passed = 0;
            self.set.line.wake_next();
        }
    }

    /// How many tags this user holds.
    #[inline]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// How many tags this user may hold while somebody waits. It may hold more
    /// for a while after it took them while nobody did.
    #[inline]
    pub fn share(&mut self) -> u32 {
        // An idle user would count when it takes its first tag.
        let idle = u32::from(!self.active);
        let users = self.set.active.load(Ordering::Relaxed) + idle;
        if users != self.share_of {
            self.share_of = users;
            let even = self.set.depth.div_ceil(users.max(1));
            self.share = even.max(LEAST_SHARE).min(self.set.depth);
        }
        self.share
    }

    /// Leaves the line, for a user that has no use for a tag any more.
    pub fn stop_waiting(&mut self) {
        self.leave_line();
    }

    /// Leaves the line and gives this user's share to the others, until it
    /// takes its next tag. Changes nothing while it holds tags. Returns
    /// whether the user is idle.
    pub fn set_idle(&mut self) -> bool {
        if self.held > 0 {
            return false;
        }
        self.leave_line();
        if self.active {
            self.active = false;
            self.set.active.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }

    /// The set.
    pub fn set(&self) -> &Arc<SharedTags> {
        &self.set
    }

    /// Whether this user may take all that is free: nobody waits.
    #[inline]
    fn is_let_in(&self) -> bool {
        self.place.is_none() && self.active && self.set.line.is_open()
    }

    /// How many tags more this user may take.
    #[inline]
    fn room(&mut self) -> u32 {
        let most = if self.set.line.is_open() { self.set.depth } else { self.share() };
        most.saturating_sub(self.held)
    }

    /// Takes up to `n` tags wherever they are. `n` is at least 1.
    #[inline]
    fn scan(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        let mut left = self.look(n, put);
        if left > 0 {
            left = self.look_elsewhere(left, put);
        }
        self.held += n - left;
        n - left
    }

    /// Takes up to `n` tags of the word at the hint; how many it still wants.
    #[inline]
    fn look(&self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        let (set, mut left) = (&*self.set, n);
        let base = (self.hint as u32) << set.shift;
        // A second look, because what was given back to a word comes apart from
        // what was never taken.
        for _ in 0..2 {
            let mut bits = set.take_bits(&set.words[self.hint], left);
            while bits != 0 {
                put(base + bits.trailing_zeros());
                bits &= bits - 1;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        left
    }

    /// [`TagUser::look`] in all words: first in those of its own, from behind
    /// the hint on, then in the others'. The hint is left where it found the
    /// last.
    fn look_elsewhere(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        let (home, mut left) = (self.home.clone(), n);
        for _ in home.clone() {
            let next = self.hint + 1;
            self.hint = if home.contains(&next) { next } else { home.start };
            left = self.look(left, put);
            if left == 0 {
                return 0;
            }
        }
        for word in (home.end..self.set.words.len()).chain(0..home.start) {
            self.hint = word;
            left = self.look(left, put);
            if left == 0 {
                return 0;
            }
        }
        self.hint = home.start;
        left
    }

    /// Takes when this is the first time, or somebody waits.
    #[cold]
    fn take_late(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        if self.place.is_some() {
            return self.take_in_line(n, put);
        }
        if n > 0 && !self.active {
            self.active = true;
            self.set.active.fetch_add(1, Ordering::Relaxed);
        }
        let n = n.min(self.room());
        if n == 0 {
            return 0;
        }
        let got = if self.set.line.is_open() { self.scan(n, put) } else { 0 };
        if got > 0 { got } else { self.wait(n, put) }
    }

    /// Takes if it is this user's turn.
    fn take_in_line(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        if n == 0 || !self.seat.is_woken() {
            return 0;
        }
        let n = n.min(self.room());
        let mut got = 0;
        if n > 0 {
            got = self.scan(n, put);
            if got == 0 {
                self.place = self.place.map(|place| self.set.line.back_to_front(&self.seat, place));
                got = self.look_again(n, put);
            }
        }
        // It has tags, or its share is used up: the turn goes to the next.
        if got > 0 || n == 0 {
            self.leave_line();
        }
        got
    }

    /// Joins the line, unless this user holds its share: then its own tags are
    /// what it waits for.
    #[cold]
    fn wait(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        if self.held >= self.share() {
            self.full = true;
            return 0;
        }
        let (place, first) = self.set.line.enrol(&self.seat);
        self.place = Some(place);
        let got = if first { self.look_again(n, put) } else { 0 };
        if got > 0 {
            self.leave_line();
        }
        got
    }

    /// Looks for tags after joining the line: whatever is given back and not
    /// seen here is given by one that sees this user in line.
    fn look_again(&mut self, n: u32, put: &mut impl FnMut(u32)) -> u32 {
        if planted(Mistake::NoSecondLook) {
            return 0;
        }
        fence(Ordering::SeqCst);
        self.scan(n, put)
    }

    /// A tag of this word was given back: one that has been among others' words looks in it
    /// first, if it is of its own.
    #[inline]
    fn come_home(&mut self, word: usize) {
        if !self.home.contains(&self.hint) && self.home.contains(&word) {
            self.hint = word;
        }
    }

    fn leave_line(&mut self) {
        if let Some(place) = self.place.take() {
            self.set.line.leave(&self.seat, place);
        }
    }

    /// Counts `n` tags given back and looks for waiters.
    #[inline]
    fn given(&mut self, n: u32) {
        assert!(n <= self.held, "{n} tags given back by a user that holds {}", self.held);
        self.held -= n;
        self.full = false;
        if self.set.line.has_waiters() {
            self.set.line.freed(n, self.held == 0);
        }
    }
}

impl Drop for TagUser {
    fn drop(&mut self) {
        self.leave_line();
        if self.active {
            self.set.active.fetch_sub(1, Ordering::Relaxed);
        }
        self.set.users.fetch_sub(1, Ordering::Relaxed);
        // The tags that it still holds never come back, so those before them
        // are the last.
        if self.held > 0 && self.set.line.has_waiters() {
            self.set.line.freed(0, true);
        }
    }
}
