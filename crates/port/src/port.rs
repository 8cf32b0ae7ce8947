//! The port: the one interface between layers.

use crate::{Ring, Time};

/// A layer, seen from above.
///
/// The rules, which every port keeps and every caller may rely on:
/// - Time never goes back: `now` and `to` are at least every time given
///   before.
/// - `advance(to)` is called with `to` at most `next_event()`. A layer never
///   advances the one below past its next event, and reacts at that event's
///   own time however late the poll came: a late poll delays only what the
///   host sees, never what the drive does.
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

    /// When something happens inside next, completions aside that only wait to
    /// be taken: what must be handled before a later command is submitted.
    /// Never earlier than the next event says.
    #[inline]
    fn next_inside(&self) -> Option<Time> {
        self.next_event()
    }

    /// Lets all that is due at `to` happen and puts what completed into
    /// `done`. What does not fit stays inside until the next call.
    fn advance(&mut self, to: Time, done: &mut Ring<Self::Done>);

    /// Says that `cmd` will probably be submitted soon, so that its map entry
    /// can be fetched into the cache. Changes nothing that can be observed.
    #[inline]
    fn hint(&self, _cmd: &Self::Cmd) {}
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
    fn next_inside(&self) -> Option<Time> {
        (**self).next_inside()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<Self::Done>) {
        (**self).advance(to, done);
    }

    #[inline]
    fn hint(&self, cmd: &Self::Cmd) {
        (**self).hint(cmd);
    }
}
