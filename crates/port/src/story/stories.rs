//! What a layer keeps to tell stories, and of which somebody will ask.

use super::{Latest, Part, Story};
use crate::Time;

/// Which stories somebody will ask for: of what takes so long, and of all that ends from
/// some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of what takes so many ns or more.
    pub from: u64,
    /// Of all that ends then or later.
    pub since: Time,
}

impl Wanted {
    /// All of them.
    pub const ALL: Wanted = Wanted { from: 0, since: Time::ZERO };

    /// Whether somebody asks for one that takes so long and ends then.
    #[inline]
    pub fn has(&self, ns: u64, end: Time) -> bool {
        ns >= self.from || end >= self.since
    }
}

/// What a layer keeps to tell stories: when each command came, and the stories of
/// completions, by how many were before them.
pub struct Stories {
    came: Box<[Time]>,
    told: Latest<Story>,
    wanted: Wanted,
}

impl Stories {
    /// For commands with numbers below `numbers`, of which `waiting` have ended and
    /// were not given yet: of these nothing is known.
    pub fn new(numbers: usize, waiting: usize) -> Box<Stories> {
        let (came, told) = (vec![Time::ZERO; numbers].into(), Latest::new(numbers, waiting));
        Box::new(Stories { came, told, wanted: Wanted::ALL })
    }

    /// From now on nobody asks for others.
    pub fn tell_only(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// A command came.
    #[inline]
    pub fn came(&mut self, number: u32, now: Time) {
        self.came[number as usize] = now;
    }

    /// When a command came.
    #[inline]
    pub fn when(&self, number: u32) -> Time {
        self.came[number as usize]
    }

    /// Whether somebody asks for one that takes so long and ends then.
    #[inline]
    pub fn asks(&self, ns: u64, end: Time) -> bool {
        self.wanted.has(ns, end)
    }

    /// Goes past the next completion, if nobody asks for one that took so long and ends
    /// now.
    #[inline]
    pub fn pass_over(&mut self, ns: u64, now: Time) -> bool {
        let is_short = !self.asks(ns, now);
        if is_short {
            self.told.pass_over();
        }
        is_short
    }

    /// The story of the next completion, which begins and ends then so far.
    #[inline]
    pub fn tell(&mut self, at: Time) -> &mut Story {
        let story = self.told.tell();
        story.restart(at);
        story
    }

    /// The story of the next completion.
    #[inline]
    pub fn put(&mut self, story: &Story) {
        *self.told.tell() = *story;
    }

    /// The story of a command that came then and ends now, of which `below` tells what the
    /// layer below knows, if it does: as [`Story::around`].
    #[inline]
    pub fn end(
        &mut self,
        came: Time,
        below: impl FnOnce(&mut Story) -> bool,
        wait: Part,
        now: Time,
    ) {
        let story = self.told.tell();
        let is_told = below(story);
        story.around(is_told, came, wait, now);
    }

    /// Tells the story of a completion that so many were before in place of another; false
    /// where it is not there any more.
    #[inline]
    pub fn tell_of(&self, number: u64, story: &mut Story) -> bool {
        self.told.get(number).map(|told| *story = *told).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_tells_of_each_command_in_turn() {
        let mut stories = Stories::new(4, 1);
        stories.came(2, Time(5));
        stories.came(3, Time(9));
        let below = |story: &mut Story| {
            *story = Story::at(Time(7));
            story.pass(Part::Array, Time(30));
            true
        };
        stories.end(stories.when(2), below, Part::Queue, Time(30));
        stories.end(stories.when(3), below, Part::Parity, Time(30));
        stories.end(stories.when(3), |_| false, Part::Parity, Time(30));
        let get = |stories: &Stories, number| {
            let mut story = Story::at(Time(99));
            stories.tell_of(number, &mut story).then_some(story)
        };
        assert_eq!(get(&stories, 0), Some(Story::default()));
        let story = get(&stories, 1).unwrap();
        assert_eq!((story.ns_of(Part::Queue), story.ns_of(Part::Array)), (2, 23));
        for (number, part) in [(2, Part::Parity), (3, Part::Target)] {
            assert_eq!(get(&stories, number).unwrap().ns_of(part), 21);
        }
        assert_eq!(get(&stories, 4), None);
        stories.tell_only(Wanted { from: 10, since: Time(50) });
        assert!(stories.pass_over(9, Time(49)) && !stories.pass_over(10, Time(49)));
        assert!(!stories.pass_over(9, Time(50)), "all that ends then is asked for");
        (0..8).for_each(|at| _ = stories.tell(Time(at)));
        assert_eq!(get(&stories, 4), None, "others lie there");
        assert_eq!(get(&stories, 12).unwrap().start(), Time(7));
    }
}
