//! The stories of many requests as one.
//!
//! Guarantees: sums are exact, however many requests there were and however long each
//! took, so that parts sum to the time. Nothing here fails.

use super::{Cause, PARTS, Part, Place, Story, Waits, named, place_of};

/// Where the time of some requests went, all of them together, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorySum {
    parts: [u128; PARTS.len()],
    die: [u128; Cause::COUNT],
}

impl StorySum {
    /// One more has this story.
    #[inline]
    pub fn note(&mut self, story: &Story) {
        add_all(&mut self.parts, story.parts);
        add_all(&mut self.die, story.die);
    }

    /// Those few, too.
    pub fn join_short(&mut self, few: &ShortSum) {
        add_all(&mut self.parts, few.parts);
        add_all(&mut self.die, few.die);
    }

    /// These, too.
    pub fn join(&mut self, other: &StorySum) {
        add_all(&mut self.parts, other.parts);
        add_all(&mut self.die, other.die);
    }

    /// What came since it was `before`.
    #[must_use]
    pub fn since(&self, before: &StorySum) -> StorySum {
        let less = |all: &mut [u128], then: &[u128]| {
            all.iter_mut().zip(then).for_each(|(all, then)| *all = all.saturating_sub(*then));
        };
        let mut since = *self;
        less(&mut since.parts, &before.parts);
        less(&mut since.die, &before.die);
        since
    }

    /// One more part, by its name; `None` where there is none of that name.
    pub fn add(&mut self, part: &str, behind: Option<&str>, ns: u128) -> Option<()> {
        match place_of(part, behind)? {
            Place::Part(number) => self.parts[number] = self.parts[number].checked_add(ns)?,
            Place::Die(number) => self.die[number] = self.die[number].checked_add(ns)?,
        }
        Some(())
    }

    /// What they took.
    pub fn ns(&self) -> u128 {
        self.parts.iter().chain(&self.die).sum()
    }

    /// The parts that are not zero: name, behind what, ns.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>, u128)> + '_ {
        named(self.parts, self.die)
    }

    /// What went to a part.
    pub fn ns_of(&self, part: Part) -> u128 {
        self.parts[part as usize]
    }
}

/// The same of so few that a number has what they took, to which one is added quickly.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortSum {
    ns: u64,
    parts: [u64; PARTS.len()],
    die: Waits,
}

impl ShortSum {
    /// One more has this story, if what all of them took is below 2^64 ns then: else false,
    /// and it is not among them.
    #[inline]
    #[must_use]
    pub fn note(&mut self, story: &Story) -> bool {
        let Some(ns) = self.ns.checked_add(story.ns()) else { return false };
        self.ns = ns;
        self.parts.iter_mut().zip(&story.parts).for_each(|(all, ns)| *all += ns);
        self.die.iter_mut().zip(&story.die).for_each(|(all, ns)| *all += ns);
        true
    }
}

/// Adds each to its own.
#[inline]
fn add_all<N: Into<u128>>(all: &mut [u128], more: impl IntoIterator<Item = N>) {
    all.iter_mut().zip(more).for_each(|(all, ns)| *all += ns.into());
}
