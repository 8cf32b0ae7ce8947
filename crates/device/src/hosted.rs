//! A drive on a thread of its own.
//!
//! [`Hosted`] drives a port in real time on a device thread and serves queue
//! pairs; the host keeps one [`Queue`] a thread. Guarantees: each command
//! completes once, in the queue it came from, under the number it had there.
//! The thread spins while the next event is nearer than it can wake up in
//! time, sleeps until shortly before it otherwise, and with nothing to do it
//! sleeps until a doorbell rings, using no processor time. A queue interrupts
//! (wakes its host) only if the host waits, and as its [`Coalesce`] says.
//!
//! Making it can fail: a thread, its core and one doorbell a queue are asked of
//! the system. If the port panics, every waiting host wakes up and
//! [`Hosted::stop`] passes the panic on.

mod thread;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use port::lazy::{OutOfMemory, ask_for, room_for, table};
use port::{Completed, Numbered, Port, Ring};
use thiserror::Error;

use self::thread::{Line, Server};
use crate::queue::{Doorbell, HostEnd, queue_pair};
use crate::realtime::{Clock, RealTime, pin};

/// When a waiting host is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// As soon as so many completions wait; at least 1.
    pub count: usize,
    /// Or so many ns after the first of them.
    pub time: u64,
}

impl Default for Coalesce {
    /// At once.
    fn default() -> Coalesce {
        Coalesce { count: 1, time: 0 }
    }
}

/// How a drive is hosted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostedOptions {
    /// Queue pairs; at least 1.
    pub queues: usize,
    /// Commands outside a host's hands at once, for each queue; at least 1.
    pub depth: usize,
    /// Interrupt coalescing of each queue.
    pub coalesce: Coalesce,
    /// Nanoseconds that the thread stays awake after it has had work, waiting
    /// for more. 0 sleeps at once.
    pub linger: u64,
    /// The core that the thread runs on; `None` leaves it to the system.
    pub core: Option<usize>,
}

impl Default for HostedOptions {
    /// One queue of 128, interrupts at once, 20 us awake after work.
    fn default() -> HostedOptions {
        let coalesce = Coalesce::default();
        HostedOptions { queues: 1, depth: 128, coalesce, linger: 20_000, core: None }
    }
}

/// A drive that cannot be hosted.
#[derive(Debug, Error)]
pub enum HostedError {
    /// A number is outside its range.
    #[error("{what} = {value} is out of range: it must be {range}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: usize,
        /// What it may be.
        range: &'static str,
    },
    /// The system refused.
    #[error("the system gives no {what} for the device thread")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Memory could not be had.
    #[error(
        "cannot get {} bytes of memory for {}: {}; take fewer queues or less depth",
        .0.bytes, .0.what, .0.source
    )]
    Memory(OutOfMemory),
}

impl From<OutOfMemory> for HostedError {
    fn from(e: OutOfMemory) -> HostedError {
        HostedError::Memory(e)
    }
}

impl HostedOptions {
    /// Bytes of memory that hosting a port takes whose commands and completions
    /// are `C` and `D`.
    pub fn tables<C, D>(&self) -> u64 {
        let slots = self.queues.saturating_mul(self.depth);
        let each = size_of::<C>() + size_of::<D>() + size_of::<(u32, u64)>() + size_of::<u32>();
        let rings = Ring::<C>::bytes(slots) + Ring::<D>::bytes(slots.min(MOST_DONE));
        (slots as u64).saturating_mul(each as u64).saturating_add(rings)
    }
}

/// What its tables are for.
const WHAT: &str = "the commands of a hosted drive";
/// Completions that the thread takes from its port at once.
const MOST_DONE: usize = 1024;

/// What the device thread has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedCounters {
    /// Sleeps.
    pub sleeps: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// How late a sleep ends, in ns, measured.
    pub wake_error: u64,
}

/// What all sides see.
struct Shared {
    bell: Doorbell,
    stopping: AtomicBool,
    /// What is inside is not completed.
    leaving: AtomicBool,
    /// No command is taken any more.
    closed: AtomicBool,
    sleeps: AtomicU64,
    interrupts: AtomicU64,
    wake_error: AtomicU64,
}

/// A drive on a thread of its own. Dropping it without [`Hosted::stop`] stops
/// it too and drops the port.
pub struct Hosted<P> {
    shared: Arc<Shared>,
    clock: Clock,
    thread: Option<JoinHandle<P>>,
}

/// A host's queue to a hosted drive.
pub struct Queue<C, D> {
    end: HostEnd<C, D>,
    shared: Arc<Shared>,
    bell: Arc<Doorbell>,
    clock: Clock,
}

impl<P> Hosted<P>
where
    P: Port + Send + 'static,
    P::Cmd: Numbered + Send,
    P::Done: Completed + Send,
{
    /// Starts the device thread. The drive's time begins now.
    #[allow(clippy::type_complexity)]
    pub fn start(
        port: P,
        options: HostedOptions,
    ) -> Result<(Hosted<P>, Vec<Queue<P::Cmd, P::Done>>), HostedError> {
        let range = |what, value, ok, range| {
            if ok { Ok(()) } else { Err(HostedError::Range { what, value, range }) }
        };
        let HostedOptions { queues, depth, coalesce, .. } = options;
        range("queues", queues, (1..=1024).contains(&queues), "1 to 1024")?;
        range("depth", depth, (1..=65536).contains(&depth), "1 to 65536")?;
        range("coalesce.count", coalesce.count, coalesce.count > 0, "at least 1")?;
        let bytes = options.tables::<P::Cmd, P::Done>();
        // A little more, for what is not counted.
        ask_for(bytes.saturating_add(bytes / 16), "the queues of a hosted drive")?;
        let new_bell =
            || Doorbell::new().map_err(|source| HostedError::System { what: "eventfd", source });
        let shared = Arc::new(Shared {
            bell: new_bell()?,
            stopping: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            wake_error: AtomicU64::new(0),
        });
        let real = RealTime::new(port);
        let clock = real.clock();
        let (mut hosts, mut lines) = (Vec::new(), Vec::new());
        for _ in 0..queues {
            let (host, drive) = queue_pair(depth);
            let bell = Arc::new(new_bell()?);
            hosts.push(Queue { end: host, shared: shared.clone(), bell: bell.clone(), clock });
            lines.push(Line { end: drive, bell, first: None });
        }
        let slots = queues * depth;
        let mut free = room_for(slots, WHAT)?;
        free.extend((0..slots as u32).rev());
        let server = Server {
            real,
            clock,
            lines,
            shared: shared.clone(),
            options,
            slots: table((0, 0), slots, WHAT)?.into_vec(),
            free,
            cmds: Ring::try_new(slots, WHAT)?,
            done: Ring::new(slots.min(MOST_DONE)),
        };
        let thread = Some(Self::spawn(server, options.core)?);
        Ok((Hosted { shared, clock, thread }, hosts))
    }

    /// Starts the thread, on its core.
    fn spawn(server: Server<P>, core: Option<usize>) -> Result<JoinHandle<P>, HostedError> {
        let (say, hear) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("device".into())
            .spawn(move || {
                let pinned = core.map_or(Ok(()), pin);
                let on_its_core = pinned.is_ok();
                // The starter waits for it.
                let _ = say.send(pinned);
                if on_its_core { server.run() } else { server.real.into_port() }
            })
            .map_err(|source| HostedError::System { what: "thread", source })?;
        match hear.recv() {
            Ok(Err(source)) => Err(HostedError::System { what: "core", source }),
            // It hears nothing only of a thread that died: `stop` tells why.
            Ok(Ok(())) | Err(_) => Ok(thread),
        }
    }
}

impl<P> Hosted<P> {
    /// The drive's clock, for latencies as the host sees them.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What the device thread has done so far.
    pub fn counters(&self) -> HostedCounters {
        HostedCounters {
            sleeps: self.shared.sleeps.load(Ordering::Relaxed),
            interrupts: self.shared.interrupts.load(Ordering::Relaxed),
            wake_error: self.shared.wake_error.load(Ordering::Relaxed),
        }
    }

    /// Takes no more commands, completes those that it has, and gives the port
    /// back. What completed can still be polled. A command that another thread
    /// submits while this is called may stay behind in its queue.
    ///
    /// # Panics
    /// With the port's own panic, if it had one.
    pub fn stop(mut self) -> P {
        self.ask_to_stop();
        let thread = self.thread.take().expect("it is taken once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Takes no more commands and gives the port back as it is, with what is
    /// inside. What nobody polled is dropped, and so is what waits in queues.
    ///
    /// # Panics
    /// With the port's own panic, if it had one.
    pub fn leave(self) -> P {
        self.shared.leaving.store(true, Ordering::SeqCst);
        self.stop()
    }

    fn ask_to_stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
    }
}

impl<P> Drop for Hosted<P> {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            // The port's panic was printed; a second one here helps nobody.
            let _ = thread.join();
        }
    }
}

impl<C, D> Queue<C, D> {
    /// Submits a prefix of `cmds` and rings the doorbell. What stays did not
    /// fit: poll first. Nothing is taken once the drive stops. Gives how many
    /// were taken.
    pub fn submit(&mut self, cmds: &mut Ring<C>) -> usize {
        if self.shared.stopping.load(Ordering::Acquire) {
            return 0;
        }
        let n = self.end.submit(cmds);
        if n > 0 {
            self.shared.bell.ring();
        }
        n
    }

    /// Moves completions into `done` while it has room. Gives how many.
    pub fn poll(&mut self, done: &mut Ring<D>) -> usize {
        self.end.poll(done)
    }

    /// Whether there are completions to poll.
    #[inline]
    pub fn has_completions(&self) -> bool {
        self.end.has_completions()
    }

    /// Sleeps until there are completions, the drive is gone, or `timeout` has
    /// passed; `None` is for ever. True when there are completions.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        if self.end.has_completions() {
            return true;
        }
        let until = timeout.and_then(|t| Instant::now().checked_add(t));
        let bell = &self.bell;
        loop {
            bell.arm();
            if self.end.has_completions() || self.is_closed() {
                bell.disarm();
                return self.end.has_completions();
            }
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                bell.disarm();
                return self.end.has_completions();
            }
            bell.sleep(left);
        }
    }

    /// The drive's clock.
    #[inline]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Commands submitted and not yet polled.
    pub fn outside(&self) -> usize {
        self.end.outside()
    }

    /// Most commands that may be outside at once.
    pub fn depth(&self) -> usize {
        self.end.depth()
    }

    /// Whether the drive is gone: nothing more completes.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::SeqCst)
    }
}
