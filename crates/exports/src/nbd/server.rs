//! The server: listens, and gives each client a thread.
//!
//! A Unix socket whose server died is replaced; one that somebody listens on,
//! or a file that is no socket, is an error. The socket is removed at the end.
//! On stop, requests that were received are served and answered, then the
//! drive is flushed. A client can only harm its own connection.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, scope, sleep};
use std::time::{Duration, Instant};

use port::{BlockDone, BlockReq, Port, Status};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{Shutdown, shutdown, sockopt};
use thiserror::Error;

use super::connection::{Ended, serve};
use super::session::Export;
use crate::drive::{DriveLost, SEATS, SharedDrive};

/// How long clients that do not read their replies may hold up a stop.
const GRACE: Duration = Duration::from_secs(5);
/// Stack of a connection's thread: several times what it uses.
const STACK: usize = 512 << 10;

/// Where to listen, or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    /// A Unix socket. For this machine only, and the fastest.
    Unix(PathBuf),
    /// TCP. Nothing is encrypted and nobody is asked who they are: use a
    /// loopback address unless the network is trusted.
    Tcp(SocketAddr),
}

impl fmt::Display for ListenAddr {
    /// As an NBD URI.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddr::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            ListenAddr::Tcp(addr) => write!(f, "nbd://{addr}"),
        }
    }
}

/// Serving could not begin, or did not end well.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Somebody listens there already.
    #[error("{0} is in use by another server; choose another address or stop that one")]
    InUse(ListenAddr),
    /// A file that is no socket is in the way.
    #[error("{} exists and is not a socket; choose another path or remove it", .0.display())]
    NotASocket(PathBuf),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: ListenAddr,
        /// What the system said.
        source: io::Error,
    },
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

/// Stops a server, from any thread or a signal handler.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Stop>);

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    bell: OwnedFd,
}

impl StopHandle {
    /// A handle that nobody has stopped yet. Fails when the process may open
    /// no more files.
    pub fn new() -> Result<StopHandle, io::Error> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(StopHandle(Arc::new(Stop { asked: AtomicBool::new(false), bell })))
    }

    /// Asks the server to stop. Safe in a signal handler.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::Release);
        // A full counter rings as well.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
    }

    /// Whether it was asked.
    pub fn is_stopped(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
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

enum Listener {
    Unix { listener: UnixListener, path: PathBuf, inode: Option<(u64, u64)> },
    Tcp(TcpListener),
}

/// A server that listens.
pub struct Server {
    listener: Listener,
}

impl Server {
    /// Listens on `addr`.
    pub fn bind(addr: &ListenAddr) -> Result<Server, ServeError> {
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse(addr.clone()),
            _ => ServeError::Listen { addr: addr.clone(), source },
        };
        let listener = match addr {
            ListenAddr::Tcp(at) => {
                let listener = TcpListener::bind(at).map_err(fail)?;
                listener.set_nonblocking(true).map_err(fail)?;
                Listener::Tcp(listener)
            }
            ListenAddr::Unix(path) => {
                remove_dead(path, addr)?;
                let listener = UnixListener::bind(path).map_err(fail)?;
                listener.set_nonblocking(true).map_err(fail)?;
                let inode = inode(path);
                Listener::Unix { listener, path: path.clone(), inode }
            }
        };
        Ok(Server { listener })
    }

    /// Where it listens: with the port that the system chose, when it was
    /// asked to.
    pub fn addr(&self) -> Result<ListenAddr, io::Error> {
        match &self.listener {
            Listener::Unix { path, .. } => Ok(ListenAddr::Unix(path.clone())),
            Listener::Tcp(listener) => Ok(ListenAddr::Tcp(listener.local_addr()?)),
        }
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
            let bell = PollFd::new(&stop.0.bell, PollFlags::IN);
            let clients = PollFd::from_borrowed_fd(self.fd(), PollFlags::IN);
            crate::drive::sleep(&mut [bell, clients], None);
            match self.accept() {
                Ok(sock) => crew.take(sock),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The client left, or there are too many open files: neither
                // lasts, and neither is a reason to leave the others.
                Err(_) => sleep(Duration::from_millis(10)),
            }
        }
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.listener {
            Listener::Unix { listener, .. } => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        match &self.listener {
            Listener::Unix { listener, .. } => Ok(listener.accept()?.0.into()),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Listener::Unix { path, inode: ours, .. } = &self.listener
            && ours.is_some()
            && inode(path) == *ours
        {
            // Left behind, it is replaced by the next server.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Which file a path names now.
fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Removes a socket that nobody listens on.
fn remove_dead(path: &Path, addr: &ListenAddr) -> Result<(), ServeError> {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(ServeError::NotASocket(path.into()));
    }
    let fail = |source| ServeError::Listen { addr: addr.clone(), source };
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(fail(e)),
        // It answers, or is too busy to.
        _ => Err(ServeError::InUse(addr.clone())),
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
