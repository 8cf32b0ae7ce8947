//! A client's side of a channel.
//!
//! Guarantees: with both sides awake a request and its completion take no system call;
//! nothing is allocated once it is open; no more requests are out than the channel has
//! places for. Who looks without end finds a dead server after [`QUIET`] looks in vain
//! at the latest, and who waits with the first wait in vain. The server is trusted as a
//! drive is: what it writes into buffers is what was read. May fail: the server cannot be
//! reached, refuses, goes away, or breaks the protocol. After an error the client is of no
//! more use.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tags::{Armed, Stamped};
use thiserror::Error;

use crate::handshake::{Answer, Patience, ask, connect, is_there, wake};
use crate::linger::linger;
use crate::memory::Region;
use crate::wire::{
    COMPLETION_WORDS, Completion, End, Hello, Layout, REQUEST_WORDS, Request, VERSION, Welcome,
};

/// How long a server may take to hand a channel over.
const OPENING: Duration = Duration::from_secs(10);
/// After how many polls in a row that found nothing the socket is looked at.
const QUIET: u32 = 1 << 16;

/// What is asked of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Requests that may be out: up to [`crate::wire::MAX_DEPTH`], rounded up to a power
    /// of two.
    pub depth: u32,
    /// The longest read or write, in bytes; 0 for the drive's own.
    pub most: u32,
    /// Bytes of buffers; 0 for `depth` of the longest requests.
    pub memory: u64,
    /// How long [`Client::wait`] looks for completions before it sleeps.
    pub linger: Duration,
}

impl Default for Options {
    /// 32 requests of up to 128 KiB, and 200 us awake.
    fn default() -> Options {
        Options { depth: 32, most: 128 << 10, memory: 0, linger: Duration::from_micros(200) }
    }
}

/// Why a client cannot go on.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The server cannot be reached.
    #[error("cannot connect to {}: {source}; is `ssdkit serve --channel` running there?", path.display())]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Who opens it was stopped.
    #[error("stopped before the server had handed the channel over")]
    Stopped,
    /// The system refused something.
    #[error("the channel failed: {0}")]
    System(#[from] io::Error),
    /// The server gives no channel.
    #[error("the server gives no channel: {0}")]
    Refused(String),
    /// The server does not keep to the protocol.
    #[error("the server does not speak the channels' protocol: {0}")]
    Protocol(&'static str),
    /// The channel ended.
    #[error("the channel ended with {outstanding} requests unanswered: {why}")]
    Ended {
        /// Why.
        why: &'static str,
        /// Requests that were out.
        outstanding: u32,
    },
}

/// A channel.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    region: Region,
    layout: Layout,
    welcome: Welcome,
    requests: Stamped<REQUEST_WORDS>,
    completions: Stamped<COMPLETION_WORDS>,
    /// Requests that are out.
    outside: u32,
    /// Polls in a row that found nothing.
    quiet: u32,
    linger: Duration,
}

impl Client {
    /// Opens a channel to the server that listens at `path`.
    pub fn open(path: &Path, options: &Options) -> Result<Client, ClientError> {
        Client::open_while(path, options, &|| true)
    }

    /// The same, as long as that `goes_on`: it is asked while the server is waited for.
    pub fn open_while(
        path: &Path,
        options: &Options,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Client, ClientError> {
        let until = Instant::now() + OPENING;
        let patience = Patience { until, unless: None, goes_on: Some(goes_on) };
        let unreachable = |source: io::Error| match source.kind() {
            ErrorKind::Interrupted => ClientError::Stopped,
            _ => ClientError::Connect { path: path.into(), source },
        };
        let socket = connect(path, &patience).map_err(unreachable)?;
        let depth = options.depth.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
        let Options { most, memory, linger, .. } = *options;
        let hello = Hello { version: VERSION, depth, most, memory };
        let (welcome, memory) = match ask(&socket, hello, &patience) {
            Ok(Answer::Channel(welcome, memory)) => (welcome, memory),
            Ok(Answer::Refused(why)) => return Err(ClientError::Refused(why)),
            Ok(Answer::Nonsense(what)) => return Err(ClientError::Protocol(what)),
            Err(e) if e.kind() == ErrorKind::TimedOut => {
                return Err(ClientError::Protocol("it said nothing for 10 s"));
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => return Err(ClientError::Stopped),
            Err(e) => return Err(e.into()),
        };
        let layout = Layout::new(welcome.depth, welcome.memory)
            .ok_or(ClientError::Protocol("there can be no channel as it told"))?;
        let region = Region::map(&memory, layout.bytes())?;
        let requests = Stamped::new(layout.depth);
        let completions = Stamped::new(layout.depth);
        let (outside, quiet) = (0, 0);
        Ok(Client {
            socket,
            region,
            layout,
            welcome,
            requests,
            completions,
            outside,
            quiet,
            linger,
        })
    }

    /// What the server told of the drive and of this channel.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Requests that are out.
    #[inline]
    pub fn outside(&self) -> u32 {
        self.outside
    }

    /// Puts a request in line. It reaches the drive at once where the server is awake;
    /// [`Client::kick`] wakes it. False where as many are out as may be. What makes no
    /// sense is answered with a status. The data of a write are in its buffer before.
    #[inline(always)]
    pub fn submit(&mut self, request: &Request) -> bool {
        if self.outside == self.layout.depth {
            return false;
        }
        let words = Stamped::<REQUEST_WORDS>::words(self.layout.depth);
        let queue = self.region.words(Layout::REQUESTS, words);
        self.requests.put(queue, request.to_words());
        self.outside += 1;
        true
    }

    /// Wakes the server if it sleeps. Once after as many requests as there were.
    #[inline(always)]
    pub fn kick(&self) {
        if self.region.armed(Layout::SERVER_SLEEPS).take() {
            wake(&self.socket);
        }
    }

    #[inline(always)]
    fn completed(&self) -> &[tags::Word] {
        let words = Stamped::<COMPLETION_WORDS>::words(self.layout.depth);
        self.region.words(self.layout.completions, words)
    }

    /// The next completion that is there.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<Completion>, ClientError> {
        let words = Stamped::<COMPLETION_WORDS>::words(self.layout.depth);
        let queue = self.region.words(self.layout.completions, words);
        match self.completions.take(queue) {
            Ok(Some(words)) if self.outside > 0 => {
                (self.outside, self.quiet) = (self.outside - 1, 0);
                Ok(Some(Completion::parse(words)))
            }
            Ok(None) => {
                self.quiet = self.quiet.saturating_add(1);
                if self.quiet >= QUIET && self.outside > 0 {
                    self.quiet = 0;
                    self.look_after_server()?;
                }
                Ok(None)
            }
            _ => Err(ClientError::Protocol("a completion is out of turn")),
        }
    }

    /// Whether there is a completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        self.completions.has_next(self.completed())
    }

    /// Waits until there is a completion, or for `timeout`; looks for one for a while
    /// before it sleeps. False where there is none; at once where nothing is out. A wait
    /// that brought none has looked after the server.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, ClientError> {
        if self.outside == 0 {
            return Ok(false);
        }
        if self.has_completions() {
            return Ok(true);
        }
        let until = timeout.and_then(|time| Instant::now().checked_add(time));
        let awake = timeout.map_or(self.linger, |time| time.min(self.linger));
        if linger(awake, || self.has_completions()) {
            return Ok(true);
        }
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                self.look_after_server()?;
                return Ok(self.has_completions());
            }
            self.arm();
            if self.has_completions() {
                self.disarm();
                return Ok(true);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // An interrupted sleep is a short one.
            let _ = poll(&mut fds, left.and_then(|left| left.try_into().ok()).as_ref());
            self.disarm();
            self.look_after_server()?;
        }
    }

    fn sleeps(&self) -> &Armed {
        self.region.armed(Layout::CLIENT_SLEEPS)
    }

    /// For a caller's own event loop: from now on the socket becomes readable with the
    /// next completion. Look for completions after it; then sleep.
    pub fn arm(&self) {
        self.sleeps().arm();
    }

    /// It sleeps no more.
    pub fn disarm(&self) {
        self.sleeps().disarm();
    }

    /// Takes back what made the socket readable. Fails where the channel has ended.
    pub fn look_after_server(&self) -> Result<(), ClientError> {
        // What came before the end is to be had, above all.
        if is_there(&self.socket) || self.has_completions() {
            return Ok(());
        }
        let code = self.region.number(Layout::ENDED).load(Ordering::Acquire);
        let why = End::of(code).map_or("the server is gone", End::text);
        Err(ClientError::Ended { why, outstanding: self.outside })
    }

    /// Copies bytes into the buffers.
    ///
    /// # Panics
    /// Where they are not inside.
    #[inline]
    pub fn write_buffer(&self, at: u32, from: &[u8]) {
        assert!(self.layout.has(at, from.len()), "{} bytes at {at} of the buffers", from.len());
        self.region.write(self.layout.buffers + at as usize, from);
    }

    /// Copies bytes out of the buffers.
    ///
    /// # Panics
    /// Where they are not inside.
    #[inline]
    pub fn read_buffer(&self, at: u32, to: &mut [u8]) {
        assert!(self.layout.has(at, to.len()), "{} bytes at {at} of the buffers", to.len());
        self.region.read(self.layout.buffers + at as usize, to);
    }

    /// Where the buffers begin, for who reads and writes in place: mapped as long as this
    /// client lives, aligned to 4096.
    pub fn buffers(&self) -> NonNull<u8> {
        let at = self.layout.buffers;
        assert!(at < self.layout.bytes() || self.layout.memory == 0, "they are inside");
        // One past the end at most.
        NonNull::new(self.region.start().as_ptr().wrapping_add(at)).expect("it is mapped")
    }
}

impl AsFd for Client {
    /// The socket: readable after [`Client::arm`] when there are completions, and when
    /// the server is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
