//! What a connection has received and not looked at, and the negotiation that it
//! begins with.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::connection::Ended;
use super::session::{Export, Negotiation, Progress};
use crate::drive::sleep;

/// Received bytes that wait to be looked at.
const INBUF: usize = 64 << 10;

/// Received bytes that have not been looked at.
pub(super) struct Input {
    pub(super) buffer: Box<[u8]>,
    start: usize,
    pub(super) end: usize,
}

impl Input {
    pub(super) fn new() -> Input {
        const { assert!(INBUF >= Negotiation::BUFFER) };
        Input { buffer: vec![0; INBUF].into(), start: 0, end: 0 }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    pub(super) fn used(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
    }

    /// Moves what is left to the front, to make room.
    #[inline]
    pub(super) fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Receives what is there: `None` when nothing is, zero at the end.
    #[inline]
    pub(super) fn receive(
        &mut self,
        sock: BorrowedFd<'_>,
        flags: RecvFlags,
    ) -> Result<Option<usize>, Errno> {
        self.compact();
        let got = recv(sock, &mut self.buffer[self.end..], flags).map(|(n, _)| n);
        let n = some_unless_empty(got)?;
        self.end += n.unwrap_or(0);
        Ok(n)
    }
}

/// "Nothing there now" is not an error.
#[inline]
pub(super) fn some_unless_empty(got: Result<usize, Errno>) -> Result<Option<usize>, Errno> {
    match got {
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Runs the negotiation. Gives what transmission is of, if it follows.
pub(super) fn negotiate<'e>(
    sock: BorrowedFd<'_>,
    export: &'e Export,
    input: &mut Input,
    most: Duration,
) -> Result<Option<&'e Export>, Ended> {
    let until = Instant::now() + most;
    let mut out = Vec::new();
    let mut negotiation = Negotiation::start(&mut out);
    loop {
        let (used, progress) = negotiation.step(export, input.bytes(), &mut out);
        input.used(used);
        // Answers go out before more is looked at, so that they are bounded.
        send_all(sock, &out, until)?;
        out.clear();
        match progress {
            Progress::Transmission => return Ok(Some(negotiation.chosen(export))),
            // Only bytes that cannot be answered are closed upon at once.
            Progress::Close => return if used == 0 { Err(Ended::Fault) } else { Ok(None) },
            Progress::More if used > 0 => continue,
            Progress::More => {}
        }
        wait_until(sock, PollFlags::IN, until)?;
        if input.receive(sock, RecvFlags::DONTWAIT)? == Some(0) {
            return Ok(None);
        }
    }
}

/// Sends all of `bytes` before `until`, however slowly the client reads.
fn send_all(sock: BorrowedFd<'_>, mut bytes: &[u8], until: Instant) -> Result<(), Ended> {
    while !bytes.is_empty() {
        match send(sock, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::AGAIN) => wait_until(sock, PollFlags::OUT, until)?,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn wait_until(sock: BorrowedFd<'_>, what: PollFlags, until: Instant) -> Result<(), Ended> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Ended::Fault);
    }
    sleep(&mut [PollFd::from_borrowed_fd(sock, what)], Some(left));
    Ok(())
}
