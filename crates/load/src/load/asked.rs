//! The story of a request that has ended, where somebody asks for it.
//!
//! Guarantees: it covers the time from when the request was meant to start until it was seen
//! to end, without a gap. Nothing here fails, and nothing is allocated.

use port::{BlockDone, BlockOp, Part, Story, Time};
use workload::Access;

use super::Load;
use crate::driver::Driver;
use crate::tally::Tally;
use measure::slowest::Slow;

/// One that may be asked for. Of what is above its drive nothing is told but that it was not
/// taken before.
pub(super) struct Asked<'a> {
    pub driver: &'a dyn Driver,
    /// How many completions were given before.
    pub number: u64,
    pub start: Time,
    pub now: Time,
    /// Where it is made when somebody asks first.
    pub story: &'a mut Story,
    pub is_made: bool,
}

impl Asked<'_> {
    #[inline]
    fn story(&mut self) -> &Story {
        if !self.is_made {
            self.is_made = true;
            let is_told = self.driver.tell_story(self.number, self.story);
            debug_assert!(!is_told || self.story.end() == self.now, "{:?}", self.story);
            self.story.around(is_told, self.start, Part::Queue, self.now);
            debug_assert!(self.story.is_whole(), "{:?}", self.story);
        }
        self.story
    }

    /// Whoever keeps stories in the tally takes note of this one, if he asks for it.
    #[inline]
    pub fn note(mut self, tally: &mut Tally, op: BlockOp, access: &Access) {
        let Tally { slowest: Some(slowest), tails, causes, .. } = tally else { return };
        let Access { offset, len, .. } = *access;
        let (now, number, ns) = (self.now, self.number, self.now.since(self.start));
        slowest.note(ns, || Slow::new(op, offset, len, *self.story()));
        if let Some(tails) = tails
            && op != BlockOp::Flush
        {
            tails.note(now, ns, number, || Slow::new(op, offset, len, *self.story()));
        }
        if let Some(causes) = causes {
            causes.note(op, self.story());
        }
    }
}

impl Load {
    /// Notes the stories of all that has just ended, at `now`, before it is counted: of a load
    /// that [is plain](Load::is_plain), where the time of all requests is told.
    #[inline(never)]
    pub fn tell_all(&mut self, now: Time, tally: &mut Tally, driver: &dyn Driver) {
        let Load { done, slots, story, .. } = self;
        for n in 0..done.len() {
            let Some(&BlockDone { id, op, status, .. }) = done.get(n) else { return };
            let number = tally.slowest.as_mut().map_or(0, |all| all.completed());
            let slot = &slots[id as usize];
            if status.is_ok() && slot.counted {
                let (start, story, is_made) = (slot.start, &mut **story, false);
                Asked { driver, number, start, now, story, is_made }.note(tally, op, &slot.access);
            }
        }
    }
}
