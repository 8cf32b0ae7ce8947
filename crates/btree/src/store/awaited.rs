//! A drive as a page store sees it: on this thread, or on another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use device::hosted::Queue;
use device::queue::Doorbell;
use device::realtime::{Clock, RealTime, fine_timers, sleep_for};
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

/// A drive on this thread, in virtual time.
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

/// A thread that drives a drive, as others see it: what wakes it, its clock, and whether it
/// has anything to do but to wait.
pub struct Sleeper {
    bell: Doorbell,
    clock: Clock,
    is_idle: AtomicBool,
}

impl Sleeper {
    /// What wakes it.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// The clock that its drive goes by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Says that it has nothing to do before the drive has done what was asked of it, or that
    /// it has. What takes long may be done on this thread meanwhile: waking another and being
    /// woken may take as long as a sync.
    pub fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Relaxed);
    }

    /// Whether it has nothing else to do.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }
}

/// A drive on this thread, in real time. What is not of this thread, as the end of a sync
/// of its file, rings a bell.
///
/// Whoever has other things to wait for sleeps on the bell, too: it is armed, then asked
/// [`Port::next_event`], and looked at when that is due or it rang.
pub struct Clocked<P: Port> {
    /// There until this is dropped.
    real: Option<RealTime<P>>,
    sleeper: Arc<Sleeper>,
    /// Commands that have not completed.
    inside: usize,
    back: Sender<P>,
}

impl<P: Port> Clocked<P> {
    /// Drives `port`, whose time begins now. It comes back when this is dropped.
    ///
    /// # Errors
    /// The system gives no bell.
    pub fn new(port: P) -> io::Result<(Clocked<P>, Receiver<P>)> {
        fine_timers();
        let (back, receiver) = channel();
        let (real, bell) = (RealTime::new(port), Doorbell::new()?);
        let (clock, is_idle) = (real.clock(), AtomicBool::new(false));
        let sleeper = Arc::new(Sleeper { bell, clock, is_idle });
        Ok((Clocked { real: Some(real), sleeper, inside: 0, back }, receiver))
    }

    /// The thread that drives it, for those who wake it.
    pub fn sleeper(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }

    #[inline]
    fn real(&self) -> &RealTime<P> {
        self.real.as_ref().expect("it is there until this is dropped")
    }

    #[inline]
    fn real_mut(&mut self) -> &mut RealTime<P> {
        self.real.as_mut().expect("it is there until this is dropped")
    }
}

impl<P: Port> Port for Clocked<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        let before = cmds.len();
        self.real_mut().submit(now, cmds);
        self.inside += before - cmds.len();
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.real().next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        let before = done.len();
        self.real_mut().poll(to, done);
        self.inside -= done.len() - before;
    }
}

impl<P: Port> Awaited for Clocked<P> {
    fn wait(&mut self) -> Option<Time> {
        if self.inside == 0 {
            return None;
        }
        let Sleeper { bell, clock, .. } = &*self.sleeper;
        bell.arm();
        let idle = self.real().idle_for();
        if let Some(None) = idle.map(sleep_for) {
            bell.disarm();
            std::hint::spin_loop();
        } else {
            bell.sleep(idle.and_then(sleep_for));
        }
        Some(clock.now())
    }

    fn advance_due(&mut self, now: Time, done: &mut Ring<P::Done>) -> bool {
        let before = done.len();
        self.advance(now, done);
        done.len() > before
    }
}

impl<P: Port> Drop for Clocked<P> {
    fn drop(&mut self) {
        if let Some(real) = self.real.take() {
            // Nobody may want it.
            let _ = self.back.send(real.into_port());
        }
    }
}
