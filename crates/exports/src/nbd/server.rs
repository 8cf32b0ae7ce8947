//! The server: listens, and gives each client a thread.
//!
//! On stop, requests that were received are served and answered, then the
//! drive is flushed. A client can only harm its own connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, scope, sleep};
use std::time::{Duration, Instant};

use port::{BlockDone, BlockReq, Port, Status};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown, sockopt};
use thiserror::Error;

use super::connection::{Ended, serve};
use super::session::Export;
use crate::drive::{DriveLost, SEATS, SharedDrive};
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
    /// The flush at the end failed.
    #[error("the drive did not take the last flush: {0}; what clients did not flush may be lost")]
    Flush(Status),
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
}

impl Server {
    /// Listens on `addr`.
    pub fn bind(addr: &ListenAddr) -> Result<Server, ListenError> {
        Ok(Server { listener: Listener::bind(addr)? })
    }

    /// Where it listens: with the port that the system chose, when it was
    /// asked to.
    pub fn addr(&self) -> Result<ListenAddr, io::Error> {
        self.listener.addr()
    }

    /// Serves `drive` until `stop`. Then answers what was received, flushes
    /// the drive, and returns. The drive must have the shape that `export`
    /// was made with.
    pub fn run<P>(
        self,
        export: &Export,
        drive: &SharedDrive<P>,
        stop: &StopHandle,
    ) -> Result<Report, ServeError>
    where
        P: Port<Cmd = BlockReq, Done = BlockDone> + Send,
    {
        let sockets = Sockets::new();
        let counters = Counters::default();
        let accepted = scope(|scope| {
            let (sockets, counters) = (&sockets, &counters);
            let crew = Crew { scope, export, drive, stop, sockets, counters };
            let accepted = self.accept_all(&crew, stop);
            let stopped = drive.stop();
            sockets.finish();
            accepted.and(stopped.map_err(ServeError::from))
        });
        accepted?;
        match drive.flush()? {
            Status::SUCCESS => {}
            status => return Err(ServeError::Flush(status)),
        }
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Ok(Report {
            connections: count(&counters.connections),
            refused: count(&counters.refused),
            faults: count(&counters.faults),
        })
    }

    /// Takes clients until asked to stop.
    fn accept_all<P>(&self, crew: &Crew<'_, '_, P>, stop: &StopHandle) -> Result<(), ServeError>
    where
        P: Port<Cmd = BlockReq, Done = BlockDone> + Send,
    {
        while !stop.is_stopped() {
            let bell = PollFd::from_borrowed_fd(stop.bell(), PollFlags::IN);
            let clients = PollFd::from_borrowed_fd(self.listener.fd(), PollFlags::IN);
            crate::drive::sleep(&mut [bell, clients], None);
            match self.listener.accept() {
                Ok(sock) => crew.take(sock),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The client left, or there are too many open files: neither
                // lasts, and neither is a reason to leave the others.
                Err(_) => sleep(Duration::from_millis(10)),
            }
        }
        Ok(())
    }
}

/// The sockets of all connections, so that they can be shut down.
struct Sockets(Mutex<Vec<Option<Arc<OwnedFd>>>>);

impl Sockets {
    fn new() -> Sockets {
        Sockets(Mutex::new(vec![None; SEATS]))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Option<Arc<OwnedFd>>>> {
        // Nothing that is done under this lock can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sock: &Arc<OwnedFd>) -> Option<usize> {
        let mut all = self.all();
        let free = all.iter().position(Option::is_none)?;
        all[free] = Some(sock.clone());
        Some(free)
    }

    fn remove(&self, place: usize) {
        self.all()[place] = None;
    }

    fn shut(&self, how: Shutdown) {
        for sock in self.all().iter().flatten() {
            // It may be closed by the client already.
            let _ = shutdown(sock, how);
        }
    }

    /// Lets all connections finish, those that do not within [`GRACE`] by
    /// force.
    fn finish(&self) {
        self.shut(Shutdown::Read);
        let until = Instant::now() + GRACE;
        while self.all().iter().any(Option::is_some) && Instant::now() < until {
            sleep(Duration::from_millis(1));
        }
        self.shut(Shutdown::Both);
    }
}

/// What a connection's thread needs.
struct Crew<'scope, 'env, P: Port> {
    scope: &'scope Scope<'scope, 'env>,
    export: &'env Export,
    drive: &'env SharedDrive<P>,
    stop: &'env StopHandle,
    sockets: &'env Sockets,
    counters: &'env Counters,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone> + Send> Crew<'_, '_, P> {
    /// Gives a client a thread, or turns it away.
    fn take(&self, sock: OwnedFd) {
        let sock = Arc::new(sock);
        let Some(place) = self.sockets.add(&sock) else {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let leave = Leave { sockets: self.sockets, place };
        let (export, drive, stop) = (self.export, self.drive, self.stop);
        let counters = self.counters;
        let name = format!("nbd-{place}");
        let thread =
            Builder::new().name(name).stack_size(STACK).spawn_scoped(self.scope, move || {
                let _leave = leave;
                prepare(&sock);
                // A panic ends this connection only; one inside the drive also
                // leaves the drive's lock poisoned.
                let served = catch_unwind(AssertUnwindSafe(|| serve(sock.as_fd(), export, drive)));
                if drive.is_lost() {
                    stop.stop();
                }
                count(counters, &served.unwrap_or(Ok(())));
            });
        if thread.is_err() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Gives a connection's place free, also when its thread panics or never ran.
struct Leave<'a> {
    sockets: &'a Sockets,
    place: usize,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.sockets.remove(self.place);
    }
}

/// What a connection's thread and socket are set to before the first byte.
fn prepare(sock: &OwnedFd) {
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
