//! What a client is answered: replies that are due, sent in groups.
//!
//! Guarantees: answers go out whole and in their order, each once; nothing blocks
//! in a send. What the client has not taken stays, and with it what a request
//! holds. A socket that fails ends the connection.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use port::{BlockDone, BlockReq, Port, Status};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::super::protocol::Reply;
use super::{Connection, Ended};

/// Replies in one send, and the data after which no further one is added.
const GROUP: usize = 8;
const GROUP_BYTES: usize = 64 << 10;
/// Parts of one send.
const PARTS: usize = 64;
/// What reads of a drive without data give.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A reply that is due.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// Of a request that has ended.
    Ended(u16),
    /// To a request that was refused.
    Refused(Reply),
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Connection<'_, P> {
    /// Sends the answers that are due, as far as the client takes them. One that is
    /// gone gets none.
    pub(super) fn send(&mut self) {
        while !self.answers.is_empty() {
            let (mut n, mut bytes) = (0, 0);
            while n < GROUP.min(self.answers.len()) && bytes < GROUP_BYTES {
                if let Answer::Ended(slot) = self.answers[n] {
                    bytes += self.requests.reply_bytes(slot);
                }
                n += 1;
            }
            match self.send_group(n) {
                Ok((_, true)) => self.sent = 0,
                Ok((sent, false)) => {
                    self.sent = sent;
                    return;
                }
                Err(e) => (self.leaving, self.gives_up) = (Some(Err(e.into())), true),
            }
            for answer in self.answers.drain(..n) {
                if let Answer::Ended(slot) = answer {
                    self.requests.retire(slot);
                }
            }
            if self.member.extra() > 0 {
                self.member.finished();
                if self.member.budget().is_pressed() {
                    self.requests.give_back(&mut self.member);
                }
            }
        }
    }

    /// Sends what is left of the first `n` answers. Gives how many bytes of them the
    /// client has then, and whether that is all.
    fn send_group(&self, n: usize) -> Result<(usize, bool), Errno> {
        if matches!(self.leaving, Some(Err(Ended::Socket(_)))) {
            return Ok((0, true));
        }
        let mut heads = [[0; Reply::LEN]; GROUP];
        for (head, answer) in heads.iter_mut().zip(self.answers.iter().take(n)) {
            *head = match *answer {
                Answer::Ended(slot) => {
                    // Others fail for want of room of one tenant, or as rules refuse them.
                    let budget = self.member.budget();
                    match self.requests.status(slot) {
                        Status::READ_ONLY => budget.read_only.store(true, Ordering::Relaxed),
                        Status::DISK_FULL => budget.disk_full.store(true, Ordering::Relaxed),
                        _ => {}
                    }
                    self.requests.reply(slot).to_bytes()
                }
                Answer::Refused(reply) => reply.to_bytes(),
            };
        }
        let parts = [IoSlice::new(&[]); PARTS];
        let mut parts =
            Parts { to: self, parts, n: 0, skip: self.sent, sent: self.sent, is_blocked: false };
        for (head, answer) in heads.iter().zip(self.answers.iter().take(n)) {
            parts.push(head)?;
            let Answer::Ended(slot) = *answer else { continue };
            let bytes = self.requests.reply_bytes(slot);
            if bytes > 0 && self.requests.has_data() {
                for part in self.requests.data(slot) {
                    parts.push(part)?;
                }
            } else {
                let mut left = bytes;
                while left > 0 {
                    let part = left.min(ZEROS.len());
                    parts.push(&ZEROS[..part])?;
                    left -= part;
                }
            }
        }
        parts.send()?;
        Ok((parts.sent, !parts.is_blocked))
    }

    /// Sends `parts` as far as the socket takes them. Gives how many bytes that were,
    /// and whether it was all.
    fn send_parts(&self, mut parts: &mut [IoSlice<'_>]) -> Result<(usize, bool), Errno> {
        let (flags, mut sent) = (SendFlags::NOSIGNAL | SendFlags::DONTWAIT, 0);
        while !parts.is_empty() {
            match sendmsg(self.sock, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(n) => {
                    IoSlice::advance_slices(&mut parts, n);
                    self.member.moved(n as u64);
                    sent += n;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e),
            }
        }
        Ok((sent, parts.is_empty()))
    }
}

/// Parts of a send that are being put together.
struct Parts<'a, 'c, P: Port<Cmd = BlockReq, Done = BlockDone>> {
    to: &'a Connection<'c, P>,
    parts: [IoSlice<'a>; PARTS],
    n: usize,
    /// Bytes still to come that the client has already.
    skip: usize,
    /// Bytes that it has.
    sent: usize,
    /// It takes no more for now.
    is_blocked: bool,
}

impl<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> Parts<'a, '_, P> {
    #[inline]
    fn push(&mut self, bytes: &'a [u8]) -> Result<(), Errno> {
        let had = self.skip.min(bytes.len());
        self.skip -= had;
        let bytes = &bytes[had..];
        if bytes.is_empty() {
            return Ok(());
        }
        if self.n == PARTS {
            self.send()?;
        }
        self.parts[self.n] = IoSlice::new(bytes);
        self.n += 1;
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> Result<(), Errno> {
        let n = std::mem::take(&mut self.n);
        if !self.is_blocked {
            let (sent, is_all) = self.to.send_parts(&mut self.parts[..n])?;
            (self.sent, self.is_blocked) = (self.sent + sent, !is_all);
        }
        Ok(())
    }
}
