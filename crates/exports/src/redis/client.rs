//! A connection: what was received and is not understood yet, and replies
//! that are not taken yet.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use waiting::speculate::Tokens;

use super::replies::Replies;
use super::resp::Parser;
use crate::grow::grow;

/// Bytes that are read at once.
const READ: usize = 16 << 10;
/// Bytes that are sent before it is another's turn.
const SEND: u64 = 256 << 10;
/// Bytes that are read of one that has replies to take first.
const AHEAD: usize = 64 << 10;
/// Memory for input that an idle connection keeps.
const KEEP: usize = 32 << 10;

/// A connection.
pub struct Client {
    pub sock: OwnedFd,
    /// What was received; the command that is next begins at `start`.
    pub input: Vec<u8>,
    pub start: usize,
    pub parser: Parser,
    /// Replies that are not sent.
    pub replies: Replies,
    pub readable: bool,
    pub writable: bool,
    /// The client sends no more; what it sent may still be there to read.
    pub is_ending: bool,
    /// Nobody is there to take replies; what it sent may still be there to read.
    pub is_gone: bool,
    /// No more commands are taken; replies are still sent.
    pub is_closing: bool,
    /// Nothing can be sent any more.
    pub is_broken: bool,
    /// The system has no memory for what it sends.
    pub is_denied: bool,
    pub is_busy: bool,
    /// It is in line for a turn, or for a flush.
    pub has_turn: bool,
    pub is_holding: bool,
    /// When it last said something that makes sense or took a reply, and
    /// whether it ever did.
    pub heard: Instant,
    pub has_spoken: bool,
    /// It is counted among those who have been silent.
    pub is_silent: bool,
    /// The command under way ends soon with an error.
    pub is_refused: bool,
    /// Memory that it is known to have, in bytes, and what of this comes back
    /// soon as it ends.
    pub counted: u64,
    pub ending: u64,
}

impl Client {
    /// One that came now, whose arguments have so many bytes at most.
    pub fn new(sock: OwnedFd, now: Instant, longest: usize) -> Client {
        Client {
            sock,
            input: Vec::new(),
            start: 0,
            parser: Parser::new(longest),
            replies: Replies::default(),
            readable: true,
            writable: true,
            is_ending: false,
            is_gone: false,
            is_closing: false,
            is_broken: false,
            is_denied: false,
            is_busy: false,
            has_turn: false,
            is_holding: false,
            heard: now,
            has_spoken: false,
            is_silent: false,
            is_refused: false,
            counted: 0,
            ending: 0,
        }
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Client>() + self.input.capacity() + self.replies.memory() + self.parser.memory()
    }

    /// Bytes of replies that it has not taken.
    pub fn unread(&self) -> usize {
        self.replies.out.len()
    }

    /// Gives memory back of what was taken in whole.
    pub fn tidy(&mut self) {
        if self.start == self.input.len() && !self.is_busy {
            self.input.clear();
            self.input.shrink_to(KEEP);
            self.start = 0;
        }
    }

    /// Reads what there is, at most [`READ`] bytes or what it has room for.
    /// Gives how many.
    pub fn read(&mut self) -> usize {
        self.tidy();
        if self.start >= READ {
            self.input.drain(..self.start);
            self.start = 0;
        }
        if grow(&mut self.input, READ).is_err() {
            (self.readable, self.is_denied) = (false, true);
            return 0;
        }
        let room = self.input.capacity() - self.input.len();
        match rustix::io::read(&self.sock, spare_capacity(&mut self.input)) {
            Ok(0) => (self.readable, self.is_closing) = (false, true),
            // Less than there was room for is all there was; the end is told
            // apart, unless that was told already.
            Ok(n) => {
                self.readable = n == room || self.is_ending;
                return n;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => self.readable = false,
            Err(_) => (self.readable, self.is_broken) = (false, true),
        }
        0
    }

    /// Reads some of what is there of one that has replies to take before its next
    /// command: it may take them only when it has sent all that it has to say.
    pub fn read_ahead(&mut self) {
        let left = |client: &Client| client.input.len() - client.start;
        while self.readable && !self.is_closing && left(self) < AHEAD {
            self.read();
        }
    }

    /// Sends what may be sent now, at most [`SEND`] bytes. Gives whether there is
    /// more that the socket might take. One whose reply must not be seen is told, and broken.
    pub fn send(&mut self, tokens: &Tokens, now: Instant) -> bool {
        let end = self.replies.ready(tokens, self.is_busy);
        let out = &mut self.replies.out;
        let most = end.min(out.begin() + SEND);
        while out.begin() < most && self.writable && !self.is_broken {
            match send(&self.sock, out.first(most), SendFlags::NOSIGNAL) {
                Ok(n) => {
                    out.take(n);
                    self.heard = now;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(_) => self.is_broken = true,
            }
        }
        if self.replies.is_lost() {
            if let Some(words) = self.replies.last_words().filter(|_| !self.is_broken) {
                // It may have gone.
                let _ = send(&self.sock, &words, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
            self.is_broken = true;
        }
        self.replies.out.begin() < end && self.writable && !self.is_broken
    }

    /// Whether the system had no memory for what it sent or is to get, so that it
    /// cannot go on.
    pub fn lacks_memory(&self) -> bool {
        !self.is_broken && (self.is_denied || self.replies.out.is_short())
    }

    /// Whether all is done. One that is broken waits for no turn: what it has would
    /// stay until those before it have had theirs.
    pub fn is_over(&self) -> bool {
        let is_done = self.is_closing && self.unread() == 0 && !self.has_turn;
        !(self.is_busy || self.is_holding) && (self.is_broken || is_done)
    }
}
