//! A drive as a page store sees it: on this thread or on another.

use device::hosted::Queue;
use device::realtime::Clock;
use port::{Port, Ring, Time};

/// A port that can be waited for. With one on another thread time is that one's
/// own, and the next event is now when it has completed something.
pub trait Awaited: Port {
    /// Waits until something happens. Gives the time when to advance; `None`
    /// when nothing will happen.
    fn wait(&mut self) -> Option<Time>;

    /// Lets happen all that is due at `now`, as long as `done` has room and
    /// something comes of it. False when nothing has completed.
    fn advance_due(&mut self, now: Time, done: &mut Ring<Self::Done>) -> bool {
        let waiting = done.len();
        while let Some(at) = self.next_event()
            && at <= now
            && done.room() > 0
        {
            let before = done.len();
            self.advance(at, done);
            if done.len() == before && self.next_event() == Some(at) {
                break;
            }
        }
        done.len() > waiting
    }
}

impl<D: Awaited + ?Sized> Awaited for Box<D> {
    fn wait(&mut self) -> Option<Time> {
        (**self).wait()
    }

    fn advance_due(&mut self, now: Time, done: &mut Ring<D::Done>) -> bool {
        (**self).advance_due(now, done)
    }
}

/// A drive on this thread: in virtual time, or driven by its owner's clock.
#[derive(Debug)]
pub struct Inline<P>(pub P);

impl<P: Port> Port for Inline<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.0.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        self.0.advance(to, done);
    }
}

impl<P: Port> Awaited for Inline<P> {
    fn wait(&mut self) -> Option<Time> {
        self.0.next_event()
    }
}

/// A drive on a thread of its own, in real time.
pub struct Remote<C, D> {
    queue: Queue<C, D>,
    clock: Clock,
}

impl<C, D> Remote<C, D> {
    /// The drive behind `queue`.
    pub fn new(queue: Queue<C, D>) -> Remote<C, D> {
        let clock = queue.clock();
        Remote { queue, clock }
    }

    /// The queue, to sleep on.
    pub fn queue_mut(&mut self) -> &mut Queue<C, D> {
        &mut self.queue
    }
}

impl<C, D> Port for Remote<C, D> {
    type Cmd = C;
    type Done = D;

    fn submit(&mut self, _now: Time, cmds: &mut Ring<C>) {
        self.queue.submit(cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.queue.has_completions().then_some(Time::ZERO)
    }

    fn advance(&mut self, _to: Time, done: &mut Ring<D>) {
        self.queue.poll(done);
    }
}

impl<C, D> Awaited for Remote<C, D> {
    fn wait(&mut self) -> Option<Time> {
        let outside = self.queue.outside() > 0;
        (outside && self.queue.wait(None)).then(|| self.clock.now())
    }
}
