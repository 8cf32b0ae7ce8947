//! The server: listens, and gives each client a thread.
//!
//! On stop, requests that were received are served and answered, then the
//! drive is flushed.
//!
//! What a client can do to others is bounded: the drive has few bytes of its
//! trims and writes of zeros at once; all connections together have the memory
//! of [`Limits::memory`]; and one that is silent gives way to newcomers. What
//! is left is the drive itself, which all share.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, Scope, scope, sleep};
use std::time::{Duration, Instant};

use port::{BlockDone, BlockReq, Port, Status};
use rustix::net::{Shutdown, sockopt};
use thiserror::Error;

use super::budget::{Budget, Member};
use super::connection::{Ended, serve};
use super::exports::Exports;
use super::requests::Requests;
use super::session::Export;
use crate::drive::{DriveLost, SharedDrive};
use crate::grow;
use crate::limits::Limits;
use crate::listen::{ListenAddr, ListenError, Listener, StopHandle};

/// How long clients that do not read their replies may hold up a stop.
const GRACE: Duration = Duration::from_secs(5);
/// Stack of a connection's thread: several times what it uses.
const STACK: usize = 512 << 10;

/// Serving did not begin or end well.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The system refused something that serving needs.
    #[error("cannot serve: {0}")]
    System(#[from] io::Error),
    /// The drive panicked.
    #[error(transparent)]
    Drive(#[from] DriveLost),
}

/// What happened while serving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Connections that were served.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// Connections that were closed because the client broke the protocol.
    pub faults: u64,
    /// Connections that were closed because they were silent, or held memory
    /// and did not go on, while others needed the room.
    pub evicted: u64,
    /// What the drive said to the flush at the end, where it did not take it.
    pub unflushed: Option<Status>,
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    refused: AtomicU64,
    faults: AtomicU64,
}

/// A server that listens.
pub struct Server {
    listener: Listener,
    limits: Limits,
}

impl Server {
    /// Listens on `addr`.
    pub fn bind(addr: &ListenAddr) -> Result<Server, ListenError> {
        Ok(Server { listener: Listener::bind(addr)?, limits: Limits::default() })
    }

    /// Sets what clients may take.
    pub fn with(self, limits: Limits) -> Server {
        Server { limits, ..self }
    }

    /// Where it listens: with the port that the system chose, when it was
    /// asked to.
    pub fn addr(&self) -> Result<ListenAddr, io::Error> {
        self.listener.addr()
    }

    /// Serves `drive` until `stop`. Then answers what was received, flushes
    /// the drive, and returns. The drive must have what `exports` tell of it.
    pub fn run<P>(
        mut self,
        exports: &Exports,
        drive: &SharedDrive<P>,
        stop: &StopHandle,
    ) -> Result<Report, ServeError>
    where
        P: Port<Cmd = BlockReq, Done = BlockDone> + Send,
    {
        let budget = Budget::new(self.limits, Requests::own(exports.now().shape()));
        let counters = Counters::default();
        let accepted = scope(|scope| {
            let (budget, counters) = (&budget, &counters);
            let crew = Crew { scope, exports, drive, stop, budget, counters };
            self.listener.accept_all(
                stop,
                |sock| crew.take(sock),
                || {
                    let text = "there are no more file descriptors for clients: raise the limit \
                                (ulimit -n)";
                    budget.warn(0, text);
                    // Its descriptor is free when its thread has noticed.
                    budget.make_room();
                    crew.refuse();
                },
            );
            let stopped = drive.stop();
            finish(budget);
            stopped.map_err(ServeError::from)
        });
        accepted?;
        let flushed = drive.flush()?;
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Ok(Report {
            connections: count(&counters.connections),
            refused: count(&counters.refused),
            faults: count(&counters.faults),
            evicted: budget.evicted(),
            unflushed: (!flushed.is_ok()).then_some(flushed),
        })
    }
}

/// Lets all connections finish, those that do not within [`GRACE`] by force.
fn finish(budget: &Budget) {
    budget.shut_all(Shutdown::Read);
    let until = Instant::now() + GRACE;
    while !budget.is_empty() && Instant::now() < until {
        sleep(Duration::from_millis(1));
    }
    budget.shut_all(Shutdown::Both);
}

/// What a connection's thread needs.
struct Crew<'scope, 'env, P: Port> {
    scope: &'scope Scope<'scope, 'env>,
    exports: &'env Exports,
    drive: &'env SharedDrive<P>,
    stop: &'env StopHandle,
    budget: &'env Budget,
    counters: &'env Counters,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone> + Send> Crew<'_, '_, P> {
    fn refuse(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a client a thread, or turns it away.
    fn take(&self, sock: OwnedFd) {
        let budget = self.budget;
        if grow::ask(Requests::own(self.exports.now().shape()) as usize + STACK).is_err() {
            budget.warn(
                2,
                "the system has no more memory for clients: they are turned away (ulimit -v)",
            );
            return self.refuse();
        }
        let again = |sock| if budget.make_room() { budget.join(sock) } else { Err(sock) };
        let Ok(member) = budget.join(sock).or_else(again) else { return self.refuse() };
        let (exports, drive, stop) = (self.exports, self.drive, self.stop);
        let counters = self.counters;
        let name = "nbd".to_string();
        let thread =
            Builder::new().name(name).stack_size(STACK).spawn_scoped(self.scope, move || {
                prepare(&member.member());
                let export = Export::clone(&exports.now());
                // Of several parts another may have said so.
                let is_read_only = export.is_read_only()
                    || budget.disk_full.load(Ordering::Relaxed)
                    || (!export.has_parts() && budget.read_only.load(Ordering::Relaxed));
                let export = export.read_only(is_read_only);
                // A panic ends this connection only; one inside the drive also
                // leaves the drive's lock poisoned.
                let served = AssertUnwindSafe(|| serve(member, exports, &export, drive));
                let served = catch_unwind(served);
                if drive.is_lost() {
                    stop.stop();
                }
                count(counters, &served.unwrap_or(Ok(())));
            });
        if thread.is_err() {
            budget.warn(
                4,
                "the system gives no more threads for clients: they are turned away (ulimit -u)",
            );
            self.refuse();
        }
    }
}

/// What a connection's thread and socket are set to before the first byte.
fn prepare(sock: &Member) {
    // By default a timer is 54 us late. Where this is refused it stays so.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    // Room for a group of replies; the system's own limit holds.
    let _ = sockopt::set_socket_send_buffer_size(sock, 1 << 20);
}

fn count(counters: &Counters, ended: &Result<(), Ended>) {
    counters.connections.fetch_add(1, Ordering::Relaxed);
    match ended {
        Err(Ended::Fault) => counters.faults.fetch_add(1, Ordering::Relaxed),
        Err(Ended::Full) => counters.refused.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
}
