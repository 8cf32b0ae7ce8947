//! Writes to a block drive that are not waited for.

use port::{BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Port, Ring, SECTOR_BYTES, Shape};
use port::{Status, Time};
use thiserror::Error;

use super::tokens::{Token, Tokens};

/// The number of a flush, above those of writes.
const FLUSH: u64 = u64::MAX;

/// Why a write was not taken, or what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DiskError {
    /// As many are under way as may be, or one of the same sectors is.
    #[error("too many writes are under way, or one to the same sectors is: poll, then write again")]
    Busy,
    /// It cannot be asked for so.
    #[error(
        "a write of {len} bytes at {offset} is none for this drive: {status}; the longest is {longest} bytes"
    )]
    Refused {
        /// Where to.
        offset: u64,
        /// How much.
        len: usize,
        /// What the drive would say.
        status: Status,
        /// The longest that there is room for, in bytes.
        longest: usize,
    },
    /// The drive failed, now or before.
    #[error(
        "the drive failed to {what}: {status}; what was not durable by then may be lost, and nothing is written any more: read what there is, and begin again"
    )]
    Failed {
        /// What it was to do: "write" or "flush".
        what: &'static str,
        /// What it said.
        status: Status,
    },
}

/// A write under way.
struct Open {
    token: Token,
    offset: u64,
    len: u64,
    /// What it does not use of its buffer.
    rest: Buffer,
}

/// A block drive, written to without waiting. Each write is copied, so that the caller's bytes
/// are its own again at once; it goes to the drive at once, too. Flushes come by themselves, one
/// at a time ([`Disk::poll`]), each for all that was written before.
///
/// Time is the caller's: `now` never goes back, and [`Disk::next_event`] says when to poll. So
/// it lives in virtual time and in real time.
pub struct Disk<P> {
    port: P,
    shape: Shape,
    tokens: Tokens,
    writes: Box<[Option<Open>]>,
    /// Of those that are not under way.
    buffers: Vec<Buffer>,
    longest: usize,
    /// The flush that is next to be sent, and for how many writes under way it waits; `None`
    /// where it was sent, or there is none.
    ahead: Option<(Token, usize)>,
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    failed: Option<DiskError>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Disk<P> {
    /// The drive `port` of this shape, which keeps bytes, with up to `depth` writes under way
    /// of up to `longest` bytes. Takes memory for all of them now.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn new(
        port: P,
        shape: Shape,
        depth: usize,
        longest: usize,
    ) -> Result<Disk<P>, OutOfMemory> {
        // A flush stands beside them.
        let depth = depth.clamp(1, shape.depth.saturating_sub(1).max(1));
        let longest = longest.next_multiple_of(SECTOR_BYTES as usize);
        let longest = longest.min(shape.max_bytes as usize);
        Ok(Disk {
            port,
            shape,
            tokens: Tokens::default(),
            writes: (0..depth).map(|_| None).collect(),
            buffers: Buffer::carve(depth, longest)?,
            longest,
            ahead: None,
            cmds: Ring::new(depth + 1),
            done: Ring::new(depth + 1),
            failed: None,
        })
    }

    /// Writes, and does not wait: the token says when it is durable.
    ///
    /// # Errors
    /// [`DiskError`]; nothing was written then. Once the drive has failed a write or a flush
    /// each is [`DiskError::Failed`].
    pub fn write(&mut self, now: Time, offset: u64, bytes: &[u8]) -> Result<Token, DiskError> {
        self.advance(now);
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (len, longest) = (bytes.len(), self.longest);
        if len > longest {
            return Err(DiskError::Refused { offset, len, status: Status::INVALID_FIELD, longest });
        }
        let free = self.writes.iter().position(Option::is_none);
        let Some(id) = free.filter(|_| !self.is_written(offset, len as u64)) else {
            return Err(DiskError::Busy);
        };
        let mut rest = self.buffers.pop().expect("as many as writes");
        let mut buffer = rest.split_to(len);
        buffer.bytes_mut().copy_from_slice(bytes);
        let req = BlockReq::new(id as u64, BlockOp::Write, offset, len as u64, buffer);
        let status = self.shape.check(&req);
        if !status.is_ok() {
            self.give(req.buffer, rest);
            return Err(DiskError::Refused { offset, len, status, longest });
        }
        let token = self.tokens.issue();
        self.writes[id] = Some(Open { token, offset, len: len as u64, rest });
        self.cmds.put(|| req);
        self.port.submit(now, &mut self.cmds);
        Ok(token)
    }

    /// Lets happen what is due at `now`, and begins a flush where one is wanted.
    pub fn poll(&mut self, now: Time) {
        self.advance(now);
        if self.tokens.wants_flush() {
            self.ahead = Some((self.tokens.begin_flush(), self.writes.iter().flatten().count()));
        }
        self.send_flush(now);
    }

    /// When to poll next; `None` when nothing is under way.
    pub fn next_event(&self) -> Option<Time> {
        self.port.next_event()
    }

    /// Which writes are durable.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Why the drive failed, once it has.
    pub fn failed(&self) -> Option<DiskError> {
        self.failed
    }

    /// The drive.
    pub fn port(&self) -> &P {
        &self.port
    }

    fn is_written(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.writes.iter().flatten().any(|one| one.offset < end && offset < one.offset + one.len)
    }

    /// Puts a buffer together again.
    fn give(&mut self, mut buffer: Buffer, rest: Buffer) {
        let joined = buffer.join(rest);
        assert!(joined.is_ok(), "the drive gives the same buffer back");
        self.buffers.push(buffer);
    }

    fn advance(&mut self, now: Time) {
        while let Some(at) = self.port.next_event().filter(|&at| at <= now) {
            self.port.advance(at, &mut self.done);
            let is_still = self.done.is_empty() && self.port.next_event() == Some(at);
            while let Some(done) = self.done.pop() {
                self.ended(done);
            }
            self.send_flush(at);
            if is_still {
                // The medium has not moved the bytes yet.
                break;
            }
        }
        self.port.submit(now, &mut self.cmds);
    }

    fn ended(&mut self, done: BlockDone) {
        let is_good = done.status.is_ok();
        if done.id == FLUSH {
            self.tokens.end_flush(is_good);
            return self.note(is_good, "flush", done.status);
        }
        let open = self.writes[done.id as usize].take().expect("each ends once");
        self.give(done.buffer, open.rest);
        if let Some((_, ahead)) = self.ahead.as_mut().filter(|flush| open.token <= flush.0) {
            *ahead -= 1;
        }
        if !is_good {
            self.tokens.fail(open.token);
            self.note(false, "write", done.status);
        }
    }

    fn note(&mut self, is_good: bool, what: &'static str, status: Status) {
        if !is_good {
            self.failed.get_or_insert(DiskError::Failed { what, status });
        }
    }

    /// Sends the flush once all writes have ended that it is for.
    fn send_flush(&mut self, now: Time) {
        if self.ahead.is_none_or(|(_, ahead)| ahead > 0) {
            return;
        }
        self.ahead = None;
        let buffer = Buffer::default();
        self.cmds.put(|| BlockReq::new(FLUSH, BlockOp::Flush, 0, 0, buffer));
        self.port.submit(now, &mut self.cmds);
    }
}
