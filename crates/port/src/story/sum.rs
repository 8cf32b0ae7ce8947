//! The stories of many requests as one.
//!
//! Guarantees: sums are exact, however many requests there were and however long each
//! took, so that parts sum to the time. Nothing here fails.

use super::{Cause, PARTS, Part, Story, named};

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
        add(&mut self.parts, story.parts);
        add(&mut self.die, story.die);
    }

    /// These, too.
    pub fn join(&mut self, other: &StorySum) {
        add(&mut self.parts, other.parts);
        add(&mut self.die, other.die);
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

/// Adds each to its own.
#[inline]
fn add<N: Into<u128>>(all: &mut [u128], more: impl IntoIterator<Item = N>) {
    all.iter_mut().zip(more).for_each(|(all, ns)| *all += ns.into());
}
