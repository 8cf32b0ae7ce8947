//! How often each rule of an installed set matched. The drive counts, without a lock or a
//! locked operation; any thread may look.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::syntax::Set;

/// Counts of a set's rules since the drive was started, or the rule came.
#[derive(Debug)]
pub struct Hits {
    rules: Box<[AtomicU64]>,
    undecided: AtomicU64,
    /// The rules by their names.
    by_name: Box<[u16]>,
}

impl Hits {
    /// Of a set that was never asked.
    pub(crate) fn new(set: &Set) -> Hits {
        let mut by_name: Vec<u16> = (0..set.rules.len() as u16).collect();
        by_name.sort_unstable_by_key(|&rule| &set.rules[usize::from(rule)].name.text);
        let rules = set.rules.iter().map(|_| AtomicU64::new(0)).collect();
        Hits { rules, undecided: AtomicU64::new(0), by_name: by_name.into() }
    }

    /// How often a rule, by its number in the text, matched; one with a verdict decided as
    /// often. 0 where there is no such rule.
    pub fn of(&self, rule: usize) -> u64 {
        self.rules.get(rule).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How many requests no rule decided.
    pub fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn matched(&self, rule: u16) {
        count(&self.rules[usize::from(rule)]);
    }

    #[inline]
    pub(crate) fn matched_times(&self, rule: u16, times: u64) {
        let at = &self.rules[usize::from(rule)];
        at.store(at.load(Ordering::Relaxed) + times, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn missed(&self) {
        count(&self.undecided);
    }

    /// Goes on with the counts of another set, for rules of the same names.
    pub(crate) fn keep(&self, set: &Set, old: &Hits, was: &Set) {
        let mut left = old.by_name.iter().peekable();
        for &rule in &self.by_name {
            let name = &set.rules[usize::from(rule)].name.text;
            while left.next_if(|&&n| was.rules[usize::from(n)].name.text < *name).is_some() {}
            if let Some(n) = left.next_if(|&&n| was.rules[usize::from(n)].name.text == *name) {
                let count = old.of((*n).into());
                self.rules[usize::from(rule)].store(count, Ordering::Relaxed);
            }
        }
        self.undecided.store(old.undecided(), Ordering::Relaxed);
    }

    /// Bytes of memory that they take.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(&*self.rules) + size_of_val(&*self.by_name)) as u64
    }
}

/// One more. Only the drive counts, so nothing is lost between the two.
#[inline]
fn count(at: &AtomicU64) {
    at.store(at.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
