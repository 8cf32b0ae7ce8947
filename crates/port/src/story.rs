//! A request's story: where its time went.
//!
//! Each layer tells what it knows of a command beside the completion, by
//! [`Port::tell_story`](crate::Port::tell_story), where it was asked to; the one
//! above adds what passed before and after. A command of several below has the
//! story of the one that ended last, and before it the wait until that was sent.
//!
//! Guarantees: a story covers its time without a gap, so that its parts sum to it
//! exactly, in drive time; nothing is allocated once a layer is asked to tell.
//! Nothing here fails.

mod latest;
mod stories;
mod sum;

pub use latest::Latest;
pub use stories::{Stories, Wanted};
pub use sum::{ShortSum, StorySum};

use crate::Time;

/// What a part of a request's time went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// It waited until the layer below took it, which was full.
    Queue,
    /// On the link between host and drive, both ways.
    Link,
    /// In the controller's pipeline, which each command passes.
    Controller,
    /// It waited for a core of the controller, and had it.
    Core,
    /// Its data waited for the memory of the controller's buffer, and crossed it.
    Buffer,
    /// In a target that tells no more.
    Target,
    /// No room in the target's buffer: rows before it were on their way to flash.
    RoomRows,
    /// No room in the target's buffer: rows before it waited for collection.
    RoomCollection,
    /// No room in the target's buffer: rows before it were on their way to flash, and
    /// the drive folded its SLC cache there.
    RoomFolds,
    /// A part of a block waited for the old bytes around it.
    Partial,
    /// A trim waited for the log that records it.
    Log,
    /// A flush, or a write that ends with one, waited for rows to be in flash.
    Flush,
    /// Its page of the map was not there yet, and was read; what that read waited for
    /// its die is told as of any other.
    Map,
    /// It waited for its stripe of parity, or for a block to be rebuilt.
    Parity,
    /// It waited for its channel.
    Channel,
    /// On the channel: command and data.
    Transfer,
    /// In the array.
    Array,
    /// In the array again, since the read before had too many errors.
    Retries,
    /// The drive slept, and was woken.
    Waking,
    /// The drive was too warm, and let commands pass one by one.
    Throttled,
}

/// All parts but the waits for a die.
const PARTS: [(Part, &str, Option<&str>); 20] = [
    (Part::Queue, "queue", None),
    (Part::Link, "link", None),
    (Part::Controller, "controller", None),
    (Part::Core, "core", None),
    (Part::Buffer, "buffer", None),
    (Part::Target, "target", None),
    (Part::RoomRows, "room", Some("rows on their way")),
    (Part::RoomCollection, "room", Some("collection")),
    (Part::RoomFolds, "room", Some("folds")),
    (Part::Partial, "partial block", None),
    (Part::Log, "log of trims", None),
    (Part::Flush, "flush", None),
    (Part::Map, "map", None),
    (Part::Parity, "parity", None),
    (Part::Channel, "channel", None),
    (Part::Transfer, "transfer", None),
    (Part::Array, "array", None),
    (Part::Retries, "retries", None),
    (Part::Waking, "waking", None),
    (Part::Throttled, "throttled", None),
];

/// Whose a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Whose {
    /// The user's.
    #[default]
    User,
    /// Of collection, which makes room.
    Collection,
    /// Of collection of a chunk that somebody asked for: the drive, as its error
    /// rate rises; wear leveling; after a failed program.
    Refresh,
    /// Of what a target keeps of itself.
    Metadata,
    /// Of the drive: it keeps its SLC cache.
    Drive,
}

/// What a die does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// A read of its array.
    Read,
    /// A program.
    Program,
    /// An erase.
    Erase,
}

/// What a die is occupied by: a kind of work, and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause(u8);

/// All causes, by number.
const CAUSES: [&str; Cause::COUNT] = [
    "read of user",
    "read of collection",
    "read of refresh",
    "read of metadata",
    "read of folds",
    "program of user",
    "program of collection",
    "program of refresh",
    "program of metadata",
    "program of folds",
    "erase of user",
    "erase of collection",
    "erase of refresh",
    "erase of metadata",
    "erase of folds",
];

impl Cause {
    /// How many there are.
    pub const COUNT: usize = 15;

    /// Such work, of these.
    #[inline]
    pub fn new(work: Work, whose: Whose) -> Cause {
        Cause(work as u8 * 5 + whose as u8)
    }

    /// Its number, below [`Cause::COUNT`].
    #[inline]
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// Waits for a die, by what occupied it; one more than there are causes, as
/// processors take them in pairs.
pub type Waits = [u64; Cause::COUNT + 1];

/// Where the time from `start` to `end` went, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Story {
    start: Time,
    end: Time,
    parts: [u64; PARTS.len()],
    die: Waits,
}

impl Default for Story {
    fn default() -> Story {
        Story::at(Time::ZERO)
    }
}

impl Story {
    /// One that begins and ends now.
    #[inline]
    pub fn at(now: Time) -> Story {
        Story { start: now, end: now, parts: [0; PARTS.len()], die: [0; Cause::COUNT + 1] }
    }

    /// It becomes one that begins and ends now, where it lies.
    #[inline]
    pub fn restart(&mut self, now: Time) {
        (self.start, self.end) = (now, now);
        self.parts.fill(0);
        self.die.fill(0);
    }

    /// It becomes that of an operation of a die, to which `waited` adds what that waited for
    /// behind what, and which took so long on the channel, in the array, and in the array
    /// again. What is left of its time it waited for its channel.
    #[inline]
    pub fn of_operation(
        &mut self,
        (start, end): (Time, Time),
        of: [u64; 3],
        waited: impl FnOnce(&mut Waits),
    ) {
        self.restart(start);
        self.end = end;
        waited(&mut self.die);
        let known = of.iter().chain(&self.die).sum::<u64>();
        self.parts[Part::Channel as usize] = end - start - known;
        for (part, ns) in [Part::Transfer, Part::Array, Part::Retries].into_iter().zip(of) {
            self.parts[part as usize] = ns;
        }
    }

    /// It becomes that of a command which came then and ends now, mostly by one of which the
    /// layer below told this, if it `is_told`: what was before that went to `wait`, and all of
    /// it where the one below is of another time. Where that layer tells nothing, all of it is
    /// the target's.
    #[inline]
    pub fn around(&mut self, is_told: bool, came: Time, wait: Part, now: Time) {
        if is_told && self.end == now && self.start >= came {
            return self.before(wait, came);
        }
        self.restart(came);
        self.pass(if is_told { wait } else { Part::Target }, now);
    }

    /// When it begins.
    #[inline]
    pub fn start(&self) -> Time {
        self.start
    }

    /// When it ends.
    #[inline]
    pub fn end(&self) -> Time {
        self.end
    }

    /// Its time, in ns.
    #[inline]
    pub fn ns(&self) -> u64 {
        self.end.since(self.start)
    }

    /// It began earlier: at `start`, and until now all went to `part`.
    #[inline]
    pub fn before(&mut self, part: Part, start: Time) {
        self.parts[part as usize] += self.start - start;
        self.start = start;
    }

    /// It began earlier: at `start`, and until now so many ns went to these parts, all
    /// else to `rest`.
    #[inline]
    pub fn before_with(&mut self, rest: Part, parts: [(Part, u64); 2], start: Time) {
        let mut left = self.start - start;
        for (part, ns) in parts {
            self.parts[part as usize] += ns;
            left -= ns;
        }
        self.parts[rest as usize] += left;
        self.start = start;
    }

    /// It began earlier: what happened before it, until then.
    pub fn after(&mut self, earlier: &Story) {
        debug_assert_eq!(earlier.end, self.start, "there is no gap");
        self.parts.iter_mut().zip(earlier.parts).for_each(|(all, ns)| *all += ns);
        self.die.iter_mut().zip(earlier.die).for_each(|(all, ns)| *all += ns);
        self.start = earlier.start;
    }

    /// It goes on to `now`, when an operation ended for which it waited: what that
    /// waited for its die is told as its own, all else went to `part`. An operation that
    /// began before the wait waited for its die first.
    pub fn wait_for(&mut self, part: Part, below: Option<&Story>, now: Time) {
        let below = below.filter(|below| below.end == now);
        let waits = below.map_or(Waits::default(), |below| below.die);
        let own = below.map_or(0, |below| below.ns() - waits.iter().sum::<u64>());
        let mut left = (now - self.end).saturating_sub(own);
        for (all, ns) in self.die.iter_mut().zip(waits) {
            let ns = ns.min(left);
            (*all, left) = (*all + ns, left - ns);
            self.end += ns;
        }
        self.parts[part as usize] += now - self.end;
        self.end = now;
    }

    /// How long it waited for dies that were busy with what is of these.
    pub fn waited_behind(&self, whose: Whose) -> u64 {
        [Work::Read, Work::Program, Work::Erase]
            .map(|work| self.behind(Cause::new(work, whose)))
            .iter()
            .sum()
    }

    /// It goes on to `end`, and that went to `part`.
    #[inline]
    pub fn pass(&mut self, part: Part, end: Time) {
        self.parts[part as usize] += end - self.end;
        self.end = end;
    }

    /// It goes on for so long, which went to `part`.
    #[inline]
    pub fn add(&mut self, part: Part, ns: u64) {
        self.parts[part as usize] += ns;
        self.end += ns;
    }

    /// It goes on for so long, which went to the part of that name; `None` where there is
    /// none, or it would go on for ever.
    pub fn add_named(&mut self, part: &str, behind: Option<&str>, ns: u64) -> Option<()> {
        self.end = Time(self.end.0.checked_add(ns)?);
        match place_of(part, behind)? {
            Place::Part(number) => self.parts[number] += ns,
            Place::Die(number) => self.die[number] += ns,
        }
        Some(())
    }

    /// It goes on by these waits for a die.
    fn wait(&mut self, die: &Waits) {
        for (all, ns) in self.die.iter_mut().zip(die) {
            *all += ns;
            self.end += *ns;
        }
    }

    /// It goes on to `now`, in the last of which a layer below tells what happened.
    /// What was before that went to `wait`, and all of it where the other began
    /// earlier than this one ended.
    pub fn go_on(&mut self, wait: Part, below: Option<&Story>, now: Time) {
        let is_since = |below: &&Story| below.end == now && below.start >= self.end;
        let Some(below) = below.filter(is_since) else {
            return self.pass(wait, now);
        };
        self.pass(wait, below.start);
        self.parts.iter_mut().zip(below.parts).for_each(|(all, ns)| *all += ns);
        self.wait(&below.die);
        self.end = now;
    }

    /// Its parts that are not zero: name, behind what, ns.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>, u64)> + '_ {
        named(self.parts, self.die)
    }

    /// What went to a part.
    pub fn ns_of(&self, part: Part) -> u64 {
        self.parts[part as usize]
    }

    /// How long it waited for a die that was occupied by that.
    pub fn behind(&self, cause: Cause) -> u64 {
        self.die[cause.number()]
    }

    /// Whether its parts sum to its time: so it is for each.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().chain(&self.die).sum::<u64>() == self.ns()
    }
}

/// Where a part is kept.
enum Place {
    Part(usize),
    Die(usize),
}

/// Where the part of a name is kept, if there is one.
fn place_of(part: &str, behind: Option<&str>) -> Option<Place> {
    if part == "die" {
        return CAUSES.iter().position(|&cause| Some(cause) == behind).map(Place::Die);
    }
    let of = |one: &(Part, &str, Option<&str>)| (one.1, one.2) == (part, behind);
    PARTS.iter().position(of).map(Place::Part)
}

/// Those parts that are not zero, with their names.
fn named<N: Copy + Default + PartialEq>(
    parts: [N; PARTS.len()],
    die: impl IntoIterator<Item = N>,
) -> impl Iterator<Item = (&'static str, Option<&'static str>, N)> {
    let parts = PARTS.iter().zip(parts).map(|(&(_, name, behind), ns)| (name, behind, ns));
    let die = CAUSES.iter().zip(die).map(|(&cause, ns)| ("die", Some(cause), ns));
    parts.chain(die).filter(|part| part.2 != N::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_causes_have_their_names() {
        for (number, (part, ..)) in PARTS.iter().enumerate() {
            assert_eq!(*part as usize, number);
        }
        for (work, word) in
            [(Work::Read, "read"), (Work::Program, "program"), (Work::Erase, "erase")]
        {
            for (whose, name) in [
                (Whose::User, "user"),
                (Whose::Collection, "collection"),
                (Whose::Refresh, "refresh"),
                (Whose::Metadata, "metadata"),
                (Whose::Drive, "folds"),
            ] {
                let cause = Cause::new(work, whose);
                assert_eq!(CAUSES[cause.number()], format!("{word} of {name}"));
            }
        }
    }

    #[test]
    fn a_story_covers_its_time_without_a_gap() {
        let mut below = Story::at(Time(50));
        below.pass(Part::Array, Time(80));
        let mut waits = Waits::default();
        waits[Cause::new(Work::Program, Whose::Collection).number()] = 20;
        below.wait(&waits);
        let mut story = Story::at(Time(10));
        story.go_on(Part::Queue, Some(&below), Time(100));
        story.before_with(Part::Link, [(Part::Core, 0), (Part::Controller, 5)], Time(3));
        story.add(Part::Link, 7);
        assert!(story.is_whole());
        assert_eq!((story.start(), story.end()), (Time(3), Time(107)));
        let parts: Vec<_> = story.parts().collect();
        let die = ("die", Some("program of collection"), 20);
        assert_eq!(
            parts,
            [
                ("queue", None, 40),
                ("link", None, 9),
                ("controller", None, 5),
                ("array", None, 30),
                die
            ]
        );
        let mut both = StorySum::default();
        [&story, &below].into_iter().for_each(|one| both.note(one));
        assert_eq!((both.ns(), both.ns_of(Part::Array)), (104 + 50, 60));
        // By their names they are the same again.
        let (mut again, mut sum) = (Story::at(story.start()), StorySum::default());
        for (part, behind, ns) in story.parts() {
            again.add_named(part, behind, ns).unwrap();
            sum.add(part, behind, ns.into()).unwrap();
        }
        assert_eq!(again, story);
        sum.note(&below);
        assert_eq!((sum, sum.since(&both)), (both, StorySum::default()));
        for (part, behind) in [("die", None), ("room", None), ("array", Some("folds")), ("", None)]
        {
            assert!(again.add_named(part, behind, 1).is_none(), "{part}");
            assert!(sum.add(part, behind, 1).is_none(), "{part}");
        }
        // What began earlier than this ended tells nothing of what came since.
        story.go_on(Part::Flush, Some(&below), Time(120));
        assert_eq!((story.ns_of(Part::Flush), story.ns_of(Part::Array)), (13, 30));
        assert!(story.is_whole());
    }

    /// Whoever waits for another's read is told of what that waited for its die, as far
    /// as it was there.
    #[test]
    fn a_wait_for_an_operation_tells_what_that_waited_for() {
        let mut read = Story::at(Time(50));
        let mut waits = Waits::default();
        let cause = Cause::new(Work::Program, Whose::User);
        waits[cause.number()] = 100;
        read.wait(&waits);
        read.add(Part::Array, 30);
        read.add(Part::Transfer, 10);
        for (came, map, die) in [(20, 70, 100), (50, 40, 100), (110, 40, 40), (160, 30, 0)] {
            let mut story = Story::at(Time(came));
            story.wait_for(Part::Map, Some(&read), Time(190));
            assert!(story.is_whole());
            assert_eq!((story.ns_of(Part::Map), story.behind(cause)), (map, die), "{came}");
            let mut later = Story::at(Time(190));
            later.add(Part::Array, 5);
            later.after(&story);
            assert!(later.is_whole() && later.start() == Time(came));
        }
        let mut story = Story::at(Time(20));
        story.wait_for(Part::Map, Some(&read), Time(200));
        assert_eq!(story.ns_of(Part::Map), 180, "it ended before");
    }
}
