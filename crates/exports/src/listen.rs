//! Where servers listen, and how they are stopped.
//!
//! A Unix socket whose server died is replaced; one that somebody listens on,
//! or a file that is no socket, is an error. The socket is removed at the end.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt;
use thiserror::Error;

/// How long nobody is taken when there is no descriptor for anybody.
const DEAF: Duration = Duration::from_millis(100);

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

impl ListenAddr {
    /// As it is given, whatever is spoken there.
    fn plain(&self) -> String {
        match self {
            ListenAddr::Unix(path) => path.display().to_string(),
            ListenAddr::Tcp(addr) => addr.to_string(),
        }
    }
}

/// An address cannot be listened on.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Somebody listens there already.
    #[error("{} is in use by another server; choose another address or stop that one", .0.plain())]
    InUse(ListenAddr),
    /// A file that is no socket is in the way.
    #[error("{} exists and is not a socket; choose another path or remove it", .0.display())]
    NotASocket(PathBuf),
    /// The address cannot be listened on.
    #[error("cannot listen on {}: {source}", addr.plain())]
    Listen {
        /// The address.
        addr: ListenAddr,
        /// What the system said.
        source: io::Error,
    },
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

    /// Readable when it was asked.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    /// Whether it was asked.
    pub fn is_stopped(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
}

/// A socket that listens.
#[derive(Debug)]
enum Socket {
    Unix { listener: UnixListener, path: PathBuf, inode: Option<(u64, u64)> },
    Tcp(TcpListener),
}

/// A server's ear.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// A descriptor to give up for a client that is turned away when there
    /// are no others: else it would wait, and the socket stay readable.
    spare: Option<OwnedFd>,
}

/// Who came.
#[derive(Debug)]
pub(crate) enum Guest {
    /// A client.
    Client(OwnedFd),
    /// Nobody is waiting.
    Nobody,
    /// One that has left again.
    Gone,
    /// There are no more descriptors, or no memory for one.
    Unseated,
}

impl Listener {
    /// Listens on `addr`.
    pub fn bind(addr: &ListenAddr) -> Result<Listener, ListenError> {
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse(addr.clone()),
            _ => ListenError::Listen { addr: addr.clone(), source },
        };
        let socket = match addr {
            ListenAddr::Tcp(at) => {
                let listener = TcpListener::bind(at).map_err(fail)?;
                listener.set_nonblocking(true).map_err(fail)?;
                Socket::Tcp(listener)
            }
            ListenAddr::Unix(path) => {
                remove_dead(path, addr)?;
                let listener = UnixListener::bind(path).map_err(fail)?;
                listener.set_nonblocking(true).map_err(fail)?;
                Socket::Unix { listener, path: path.clone(), inode: inode(path) }
            }
        };
        Ok(Listener { socket, spare: spare() })
    }

    /// Where it listens: with the port that the system chose, when it was
    /// asked to.
    pub(crate) fn addr(&self) -> Result<ListenAddr, io::Error> {
        match &self.socket {
            Socket::Unix { path, .. } => Ok(ListenAddr::Unix(path.clone())),
            Socket::Tcp(listener) => Ok(ListenAddr::Tcp(listener.local_addr()?)),
        }
    }

    /// Readable when a client waits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix { listener, .. } => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }

    /// Takes a client. Does not wait.
    pub(crate) fn accept(&self) -> Guest {
        let taken = match &self.socket {
            Socket::Unix { listener, .. } => listener.accept().map(|(sock, _)| sock.into()),
            Socket::Tcp(listener) => listener.accept().and_then(|(sock, _)| {
                sock.set_nodelay(true)?;
                keep_alive(sock.as_fd())?;
                Ok(sock.into())
            }),
        };
        match taken {
            Ok(sock) => Guest::Client(sock),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Guest::Nobody,
            Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Guest::Unseated,
                _ => Guest::Gone,
            },
        }
    }

    /// Gives clients to `take` until asked to stop. Where there is no descriptor for one,
    /// `unseated` is told, which may free some; then it is turned away.
    pub fn accept_all(
        &mut self,
        stop: &StopHandle,
        mut take: impl FnMut(OwnedFd),
        mut unseated: impl FnMut(),
    ) {
        let mut is_deaf = false;
        while !stop.is_stopped() {
            let bell = PollFd::from_borrowed_fd(stop.bell(), PollFlags::IN);
            let clients = PollFd::from_borrowed_fd(self.fd(), PollFlags::IN);
            let mut fds = [bell, clients];
            let fds = &mut fds[..if is_deaf { 1 } else { 2 }];
            crate::drive::sleep(fds, is_deaf.then_some(DEAF));
            is_deaf = false;
            match self.accept() {
                Guest::Client(sock) => take(sock),
                Guest::Nobody | Guest::Gone => {}
                Guest::Unseated => {
                    unseated();
                    is_deaf = !self.turn_away();
                }
            }
        }
    }

    /// Turns the first client away that waits, when there is no descriptor
    /// for it. False when not even that can be done.
    pub(crate) fn turn_away(&mut self) -> bool {
        self.spare = None;
        let is_away = !matches!(self.accept(), Guest::Unseated);
        self.spare = spare();
        is_away
    }
}

/// A descriptor that means nothing.
fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Lets the system find out within two minutes that a silent peer is no more.
fn keep_alive(sock: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_socket_keepalive(sock, true)?;
    sockopt::set_tcp_keepidle(sock, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(sock, Duration::from_secs(10))?;
    Ok(sockopt::set_tcp_keepcnt(sock, 6)?)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix { path, inode: ours, .. } = &self.socket
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
fn remove_dead(path: &Path, addr: &ListenAddr) -> Result<(), ListenError> {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.into()));
    }
    let fail = |source| ListenError::Listen { addr: addr.clone(), source };
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(fail(e)),
        // It answers, or is too busy to.
        _ => Err(ListenError::InUse(addr.clone())),
    }
}
