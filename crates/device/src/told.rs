//! What a port with a way down and a way up keeps to tell stories.

use port::{Part, Port, Stories, Story, Time};

use crate::link::LINK_DEPTH;

/// What it keeps.
pub(crate) struct Told {
    /// Of each command when it came, when it arrived below, and what it took of a
    /// core, with the wait for it.
    pub came: Vec<(Time, Time, u64)>,
    /// How many completions came from below.
    heard: u64,
    /// Of those on the way up, where they are asked for.
    up: Vec<Story>,
    /// Of those that were given.
    pub stories: Box<Stories>,
}

impl Told {
    pub fn new() -> Told {
        let (came, up) = (vec![Default::default(); LINK_DEPTH], vec![Story::default(); LINK_DEPTH]);
        Told { came, heard: 0, up, stories: Stories::new(LINK_DEPTH, 0) }
    }

    /// A command has completed below at `at`, and its completion is above at `arrival`.
    /// `ways` adds both ways to its story, which begins when it arrived below: it is told
    /// when the command came, and what that took of a core.
    #[inline(always)]
    pub fn hear<P: Port>(
        &mut self,
        slot: usize,
        below: &P,
        (at, arrival): (Time, Time),
        ways: impl FnOnce(&mut Story, Time, u64),
    ) {
        self.heard += 1;
        let (came, arrived, core) = self.came[slot];
        if self.stories.asks(arrival - came, arrival) {
            let story = self.of_below(slot, below, (arrived, at));
            ways(story, came, core);
        }
    }

    /// The story of the command that the layer below was heard of last, as far as it goes there.
    #[inline(never)]
    fn of_below<P: Port>(
        &mut self,
        slot: usize,
        below: &P,
        (arrived, at): (Time, Time),
    ) -> &mut Story {
        let story = &mut self.up[slot];
        let is_told = below.tell_story(self.heard - 1, story);
        story.around(is_told, arrived, Part::Queue, at);
        story
    }

    /// A completion is given.
    #[inline(always)]
    pub fn give(&mut self, slot: usize, at: Time) {
        let came = self.came[slot].0;
        if !self.stories.pass_over(at - came, at) {
            self.give_story(slot);
        }
    }

    #[inline(never)]
    fn give_story(&mut self, slot: usize) {
        self.stories.put(&self.up[slot]);
    }
}
