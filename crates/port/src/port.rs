//! The port: the one interface between layers.

use crate::story::Wanted;
use crate::{Ring, Story, Time};

/// How a turn in virtual time ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// At this time something completed.
    Completed(Time),
    /// Nothing more happens until the time that was given, or nothing at all without
    /// a command.
    Quiet,
    /// The next event is of the same time as the last, this one: the medium may not
    /// have moved the bytes yet.
    Stays(Time),
}

/// A layer, seen from above.
///
/// The rules, which every port keeps and every caller may rely on:
/// - Time never goes back: `now` and `to` are at least every time given
///   before.
/// - `advance(to)` is called with `to` at most `next_event()`. A layer never
///   advances the one below past its next event, and reacts at that event's
///   own time however late the poll came: a late poll delays only what the
///   host sees, never what the drive does. On a clock an event may be in the past,
///   when a medium has moved bytes that were waited for: then `to` is the latest
///   time that was given.
/// - After `advance(to)` the next event is later than `to`, unless
///   completions did not fit in `done` or the medium has not moved the bytes
///   yet; then it stays and `advance` is called again.
/// - Every command that was taken completes exactly once and gives its buffer
///   back, whatever went wrong.
/// - The same calls give the same completions, to the bit.
pub trait Port {
    /// What goes in.
    type Cmd;
    /// What comes out.
    type Done;

    /// Takes a prefix of `cmds` at the time `now`. What stays in the ring was
    /// refused: the layer is full, and there is room again after some
    /// completion.
    fn submit(&mut self, now: Time, cmds: &mut Ring<Self::Cmd>);

    /// When something happens next, or `None` when nothing will without a
    /// command.
    fn next_event(&self) -> Option<Time>;

    /// Lets all that is due at `to` happen and puts what completed into
    /// `done`. What does not fit stays inside until the next call.
    fn advance(&mut self, to: Time, done: &mut Ring<Self::Done>);

    /// A turn in virtual time: submits a prefix of `cmds` at `now` and lets events
    /// happen, each at its own time, until one completes something, or the next is
    /// later than `until`. What was refused is submitted again after each event.
    ///
    /// Whoever has a port behind a table calls this once a turn, and the loop
    /// inside is compiled for the port. A layer over another gives the turn to that
    /// one as long as nothing happens in itself: an event that leads to nothing above
    /// then passes through no layer.
    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<Self::Cmd>,
        done: &mut Ring<Self::Done>,
    ) -> Turn {
        if !cmds.is_empty() {
            self.submit(now, cmds);
        }
        turn_by_events(self, until, cmds, done)
    }

    /// Handles every event that is due at `to`, each at its own time, until `done`
    /// is full. `last` becomes the time of the last one, if that is later. False
    /// when something is left: `done` is full, or an event stays because the medium
    /// has not moved the bytes. As with [`Port::turn`], it is one call through a
    /// table.
    fn catch_up(&mut self, last: &mut Time, to: Time, done: &mut Ring<Self::Done>) -> bool {
        while let Some(at) = self.next_event() {
            if at > to {
                return true;
            }
            let before = done.len();
            if done.room() == 0 {
                return false;
            }
            *last = (*last).max(at);
            self.advance(*last, done);
            if self.next_event().is_some_and(|next| next <= *last) && done.len() == before {
                return false;
            }
        }
        true
    }

    /// Says that `cmd` will probably be submitted soon, so that its map entry
    /// can be fetched into the cache. Changes nothing that can be observed.
    #[inline]
    fn hint(&self, _cmd: &Self::Cmd) {}

    /// Whether hints are of use to it. Asked once, by who would have to look ahead for them.
    fn takes_hints(&self) -> bool {
        true
    }

    /// From now on it tells of each command where its time went, or no more. To be
    /// called while nothing of the caller's is inside. A port that is not written
    /// for it tells nothing: for whoever is above all its time is its own.
    fn set_stories(&mut self, _on: bool) {}

    /// It may leave out all others, as its caller will not ask for them.
    fn tell_only(&mut self, _wanted: Wanted) {}

    /// Tells the story of a completion that so many were given before, since it was asked to
    /// tell, in place of what is there; false where it has none. It is there until more is
    /// submitted, or time goes on; many a port makes it only now.
    fn tell_story(&self, _number: u64, _story: &mut Story) -> bool {
        false
    }

    /// The same as a value. Not to be overridden: layers ask as above.
    fn story(&self, number: u64) -> Option<Story> {
        let mut story = Story::default();
        self.tell_story(number, &mut story).then_some(story)
    }
}

/// The rest of a turn, when `cmds` were submitted: event by event, by
/// [`Port::next_event`] and [`Port::advance`] alone.
#[inline]
pub fn turn_by_events<P: Port + ?Sized>(
    port: &mut P,
    until: Option<Time>,
    cmds: &mut Ring<P::Cmd>,
    done: &mut Ring<P::Done>,
) -> Turn {
    let mut last = None;
    loop {
        let next = port.next_event();
        let Some(at) = next.filter(|&at| until.is_none_or(|until| at <= until)) else {
            return Turn::Quiet;
        };
        if last == Some(at) {
            return Turn::Stays(at);
        }
        port.advance(at, done);
        if !done.is_empty() {
            return Turn::Completed(at);
        }
        last = Some(at);
        if !cmds.is_empty() {
            port.submit(at, cmds);
        }
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<Self::Cmd>) {
        (**self).submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        (**self).next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<Self::Done>) {
        (**self).advance(to, done);
    }

    #[inline]
    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<Self::Cmd>,
        done: &mut Ring<Self::Done>,
    ) -> Turn {
        (**self).turn(now, until, cmds, done)
    }

    #[inline]
    fn catch_up(&mut self, last: &mut Time, to: Time, done: &mut Ring<Self::Done>) -> bool {
        (**self).catch_up(last, to, done)
    }

    #[inline]
    fn hint(&self, cmd: &Self::Cmd) {
        (**self).hint(cmd);
    }

    fn set_stories(&mut self, on: bool) {
        (**self).set_stories(on);
    }

    fn tell_only(&mut self, wanted: Wanted) {
        (**self).tell_only(wanted);
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        (**self).tell_story(number, story)
    }
}
