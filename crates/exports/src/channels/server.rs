//! The server: listens, hands channels over, and gives each a thread.
//!
//! On stop, requests that were taken are served and answered, then the drive is
//! flushed. What a client can do to others is bounded: each channel has all its memory
//! from the beginning, all together have [`Limits::memory`]; and of the drive each has
//! a share at a time. A client that is refused is told why.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, Scope, scope};
use std::time::{Duration, Instant};

use channels::handshake::{Patience, hand_over, hear, refuse};
use channels::wire::{End, Hello, MAX_DEPTH, MAX_MEMORY, VERSION, Welcome};
use channels::{Layout, Region};
use port::units::size_binary;
use port::{BlockDone, BlockReq, Port, Shape, Status};
use rustix::net::sockopt;

use super::connection::{Connection, Ending, Parts};
use super::slots::{MOST_TRIM, SHARE, Slots};
use crate::drive::SharedDrive;
use crate::limits::Limits;
use crate::listen::{ListenAddr, ListenError, Listener, StopHandle};
use crate::nbd::ServeError;

/// The most channels.
const MOST: u64 = 1024;
/// Stack of a channel's thread: several times what it uses.
const STACK: usize = 256 << 10;

/// What happened while serving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Channels that were served.
    pub channels: u64,
    /// Clients that were given none.
    pub refused: u64,
    /// Channels that ended because the client broke the protocol.
    pub faults: u64,
    /// What the drive said to the flush at the end, where it did not take it.
    pub unflushed: Option<Status>,
}

#[derive(Debug, Default)]
struct Counters {
    channels: AtomicU64,
    refused: AtomicU64,
    faults: AtomicU64,
    /// Channels that there are now, and their bytes.
    open: AtomicU64,
    bytes: AtomicU64,
}

/// What is served, and how.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The drive's shape.
    pub shape: Shape,
    /// Whether clients are told that it takes no writes. It is the drive that refuses
    /// them.
    pub is_read_only: bool,
    /// How long a channel's thread looks for requests before it sleeps.
    pub linger: Duration,
}

/// A server that listens.
pub struct Server {
    listener: Listener,
    limits: Limits,
}

impl Server {
    /// Listens on a Unix socket.
    pub fn bind(path: &std::path::Path) -> Result<Server, ListenError> {
        let listener = Listener::bind(&ListenAddr::Unix(path.into()))?;
        Ok(Server { listener, limits: Limits::default() })
    }

    /// Sets what clients may take.
    pub fn with(self, limits: Limits) -> Server {
        Server { limits, ..self }
    }

    /// Serves `drive` until `stop`. Then answers what was taken, flushes the drive, and
    /// returns.
    pub fn run<P>(
        mut self,
        served: Served,
        drive: &SharedDrive<P>,
        stop: &StopHandle,
    ) -> Result<Report, ServeError>
    where
        P: Port<Cmd = BlockReq, Done = BlockDone> + Send,
    {
        let counters = Counters::default();
        let stopped = scope(|scope| {
            let (counters, limits) = (&counters, self.limits);
            let crew = Crew { scope, served, drive, stop, limits, counters };
            let unseated = || {
                (limits.warn)(
                    "there are no more file descriptors for channels: raise the limit (ulimit -n)",
                );
                crew.refuse();
            };
            self.listener.accept_all(stop, |socket| crew.take(socket), unseated);
            drive.stop()
        });
        stopped?;
        let flushed = drive.flush()?;
        let unflushed = (!flushed.is_ok()).then_some(flushed);
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let (channels, refused) = (count(&counters.channels), count(&counters.refused));
        Ok(Report { channels, refused, faults: count(&counters.faults), unflushed })
    }
}

/// What a channel's thread needs.
struct Crew<'scope, 'env, P: Port> {
    scope: &'scope Scope<'scope, 'env>,
    served: Served,
    drive: &'env SharedDrive<P>,
    stop: &'env StopHandle,
    limits: Limits,
    counters: &'env Counters,
}

impl<'env, P: Port<Cmd = BlockReq, Done = BlockDone> + Send> Crew<'_, 'env, P> {
    fn refuse(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a client a thread, or turns it away.
    fn take(&self, socket: OwnedFd) {
        let most = MOST.min(self.limits.clients as u64);
        let Ok(open) = Held::of(&self.counters.open, 1, most) else {
            let _ = refuse(&socket, &format!("all {most} channels are taken: close one"));
            return self.refuse();
        };
        let (served, drive, stop) = (self.served, self.drive, self.stop);
        let (limits, counters) = (self.limits, self.counters);
        let thread = Builder::new().name("channel".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(self.scope, move || {
            let _open = open;
            let host = Host { served, drive, stop, limits, counters };
            // A panic ends this channel only; one inside the drive also leaves the
            // drive's lock poisoned.
            let _ = catch_unwind(AssertUnwindSafe(|| host.serve(socket)));
            if drive.is_lost() {
                stop.stop();
            }
        });
        if thread.is_err() {
            (self.limits.warn)("the system gives no more threads for channels (ulimit -u)");
            self.refuse();
        }
    }
}

/// A channel's thread.
struct Host<'env, P: Port> {
    served: Served,
    drive: &'env SharedDrive<P>,
    stop: &'env StopHandle,
    limits: Limits,
    counters: &'env Counters,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Host<'_, P> {
    /// Serves a client from its first word to its end.
    fn serve(&self, socket: OwnedFd) {
        // By default a timer is 54 us late. Where this is refused it stays so.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let who = sockopt::socket_peercred(&socket).map_or(0, |who| who.pid.as_raw_nonzero().get());
        let until = Instant::now() + self.limits.greeting;
        let patience = Patience { until, unless: Some(self.stop.bell()), goes_on: None };
        let Ok(hello) = hear(&socket, &patience) else { return self.count(&self.counters.refused) };
        let opened = hello.ok_or("it does not speak the channels' protocol".to_string());
        let (opened, _bytes) = match opened.and_then(|hello| self.open(hello, &socket)) {
            Ok(opened) => opened,
            Err(why) => {
                // One that has left needs no answer.
                let _ = refuse(&socket, &why);
                return self.count(&self.counters.refused);
            }
        };
        let (region, layout, slots, seat) = opened;
        self.count(&self.counters.channels);
        let (stop, linger) = (self.stop, self.served.linger);
        let parts = Parts { socket, region, layout, slots, seat, stop, linger };
        if Connection::new(parts).run() == Ending::Ended(End::Garbage) {
            self.count(&self.counters.faults);
            (self.limits.warn)(&format!(
                "the channel of process {who} ended: {}",
                End::Garbage.text()
            ));
        }
    }

    fn count(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes a channel and hands it over, or says why not.
    #[allow(clippy::type_complexity)]
    fn open(
        &self,
        hello: Hello,
        socket: &impl AsFd,
    ) -> Result<((Region, Layout, Slots, crate::drive::Seat<'_, P>), Held<'_>), String> {
        let shape = self.served.shape;
        if hello.version != VERSION {
            return Err(format!("it speaks version {VERSION}, and you {}", hello.version));
        }
        let most = granted(hello.most, shape);
        let all = u64::from(hello.depth) * shape.stored(most.into()) as u64;
        let memory = if hello.memory == 0 { all } else { hello.memory };
        let layout = Layout::new(hello.depth, memory).ok_or_else(|| {
            format!(
                "a depth of {} and {} of buffers cannot be: take a power of two up to {MAX_DEPTH}, \
                 and up to {}",
                hello.depth,
                size_binary(memory),
                size_binary(MAX_MEMORY)
            )
        })?;
        let bytes = layout.bytes() as u64 + Slots::bytes(shape, hello.depth, most);
        let held = Held::of(&self.counters.bytes, bytes, self.limits.memory).map_err(|left| {
            format!(
                "it needs {} of memory, and of what channels may have {} are left: ask for less \
                 depth or shorter requests, or raise --client-memory",
                size_binary(bytes),
                size_binary(left)
            )
        })?;
        let slots = Slots::new(shape, hello.depth, most).map_err(|e| e.to_string())?;
        let failed = |e: io::Error| format!("the system gives it no memory: {e}");
        let (file, region) = Region::create(layout.bytes()).map_err(failed)?;
        let seat = self.drive.sit(hello.depth as usize).map_err(|e| e.to_string())?;
        let seat = seat.ok_or("the drive has no more places")?;
        let welcome = Welcome {
            version: VERSION,
            refused: 0,
            bytes: shape.bytes,
            kept: shape.kept,
            most,
            most_trim: MOST_TRIM,
            depth: hello.depth,
            memory,
            is_read_only: self.served.is_read_only,
        };
        hand_over(socket, welcome, &file).map_err(|e| e.to_string())?;
        Ok(((region, layout, slots, seat), held))
    }
}

/// The longest read or write of a client that asked for so much.
fn granted(most: u32, shape: Shape) -> u32 {
    let longest = shape.max_bytes.min(SHARE.into()) as u32;
    if most == 0 { longest } else { most.min(longest) }
}

/// A part of something bounded, until it is dropped.
#[derive(Debug)]
struct Held<'a> {
    of: &'a AtomicU64,
    much: u64,
}

impl<'a> Held<'a> {
    /// Takes `much` of what is at most `all`, or says how much is left.
    fn of(of: &'a AtomicU64, much: u64, all: u64) -> Result<Held<'a>, u64> {
        let more = |taken: u64| taken.checked_add(much).filter(|&taken| taken <= all);
        let taken = of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(|_| Held { of, much }).map_err(|taken| all.saturating_sub(taken))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.much, Ordering::Relaxed);
    }
}
