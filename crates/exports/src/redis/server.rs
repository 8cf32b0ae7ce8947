//! The server: one thread for all connections, the store, and its drive.
//!
//! Guarantees: commands of a connection take effect one after the other, in
//! their order, and so are answered; those of different connections that have no
//! key in common wait for the drive side by side. With [`Sync::Always`] no reply
//! is sent before all is durable that it tells of, and one flush serves all that
//! were ready when it began. On stop, what was received is answered, then the
//! store is flushed.
//!
//! What a client can do to others is bounded: its commands go on for a slice of
//! work at a time, and others have their turn between; all clients together
//! have the memory of [`Limits::memory`], of which each has its share; and one
//! that is silent gives way to newcomers. Keys that a command writes are its
//! own while it goes on, all of them for FLUSHALL.
//!
//! When a flush fails, connections that wait for it end with an error, where
//! all before it is sent already; later writes are refused, and with [`Sync::Always`] reads of what was
//! not flushed, too. Other reads go on. Why is told at once, to [`Opened::failure`] and to
//! [`Limits::warn`], and at the end in [`Report::unflushed`].

use std::io;
use std::sync::{Arc, OnceLock};

use btree::{Error as TreeError, Records, Sleeper};
use rustix::io::Errno;
use thiserror::Error;

use super::database::{Database, OpenError};
use super::serving::Serving;
use crate::limits::Limits;
use crate::listen::{ListenAddr, ListenError, Listener, StopHandle};

/// When writes are durable: Redis' `appendfsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When they are answered.
    #[default]
    Always,
    /// At most about a second later.
    EverySecond,
    /// When the server has stopped, or the cache gave way.
    No,
}

impl Sync {
    /// What Redis calls it.
    pub fn name(self) -> &'static str {
        match self {
            Sync::Always => "always",
            Sync::EverySecond => "everysec",
            Sync::No => "no",
        }
    }
}

/// How a server is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// When writes are durable.
    pub sync: Sync,
    /// What clients may take.
    pub limits: Limits,
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
    /// Connections that were closed because they were silent, and commands and
    /// connections that were ended because clients had too much memory.
    pub evicted: u64,
    /// Commands that were answered.
    pub commands: u64,
    /// Flushes of the store.
    pub flushes: u64,
    /// Why it does not have all that was written: a write or a flush of it failed.
    pub unflushed: Option<TreeError>,
}

/// Why a store takes no more writes, once that is so: for another thread that is asked how it is.
pub type Failure = Arc<OnceLock<TreeError>>;

/// Serving could not begin, or could not go on.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The system refused something that serving needs.
    #[error("cannot serve: {0}")]
    System(#[from] io::Error),
}

impl From<Errno> for ServeError {
    fn from(e: Errno) -> ServeError {
        ServeError::System(e.into())
    }
}

/// The keys of a store, ready to be served.
pub struct Opened(pub(super) Database);

impl Opened {
    /// The keys in `records`, for so many clients at once. Waits for them, and
    /// reads a tree whole to count them.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(records: impl Into<Records<'static>>, clients: usize) -> Result<Opened, OpenError> {
        Database::open(records.into(), clients).map(Opened)
    }

    /// Keys that are there, as far as they were counted.
    pub fn keys(&self) -> u64 {
        self.0.keys()
    }

    /// Where it is told that it takes no more writes.
    pub fn failure(&self) -> Failure {
        self.0.failure.clone()
    }

    /// Why they were not all counted: a page that cannot be read. The keys of
    /// such a page are answered with errors, all others are served.
    pub fn uncounted(&self) -> Option<&TreeError> {
        self.0.uncounted()
    }
}

/// A server that listens.
pub struct Server {
    listener: Listener,
}

impl Server {
    /// Listens on `addr`.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(addr: &ListenAddr) -> Result<Server, ListenError> {
        Ok(Server { listener: Listener::bind(addr)? })
    }

    /// Where it listens: with the port that the system chose, when it was asked
    /// to.
    ///
    /// # Errors
    /// What the system says.
    pub fn addr(&self) -> Result<ListenAddr, io::Error> {
        self.listener.addr()
    }

    /// Serves `keys`, whose drive this thread drives, as `sleeper` says, until `stop`. Gives
    /// the records again, flushed unless the report says why not, with nothing under way in its
    /// drive.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn run(
        self,
        keys: Opened,
        sleeper: &Sleeper,
        options: Options,
        stop: &StopHandle,
    ) -> Result<(Report, Records<'static>), ServeError> {
        let database = keys.0;
        Serving::new(self.listener, database, sleeper, options, stop)?.run(stop)
    }
}
