//! A served drive as a port, on a clock: what it is told of is the time, and it looks for
//! answers without waiting for any.
//!
//! While requests are out it has an event, at which it looks: 10 us after they were sent,
//! and then each time an eighth of the time that nothing came later, up to 1 ms. So its
//! events are not the served drive's, and no run of one is the same twice. Nothing is
//! allocated once requests of the largest size have passed.
//!
//! May fail: the server goes away, breaks the protocol, or says nothing for a minute. Then all that is out fails, and all that comes: what became of writes that
//! were out nobody knows.

use std::time::{Duration, Instant};

use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Slots, Status, Time,
};

use super::client::{Client, ClientError};
use super::protocol::{SEND_FLUSH, SEND_FUA, SEND_WRITE_ZEROES, status};

/// Requests that may be out at once.
const DEPTH: usize = 1024;
/// Bytes of the longest read or write.
const MOST: u64 = 1 << 20;
/// How soon and how seldom it is looked, ns.
const LOOKS: (u64, u64) = (10_000, 1_000_000);
/// How long nothing may come, whatever the caller's time says: at its end that runs ahead.
const SILENCE: Duration = Duration::from_secs(20);

/// A served drive.
pub struct Remote {
    client: Client,
    bytes: u64,
    most: u64,
    /// Requests that are out, by their numbers there.
    out: Slots<Option<BlockReq>>,
    ready: Ring<BlockDone>,
    now: Time,
    /// When it is looked next, while something is out.
    look: Time,
    /// When something was sent or came last.
    since: Time,
    heard: Instant,
    lost: Option<ClientError>,
}

impl Remote {
    /// Over a connection. Fails where the server cannot do all that a drive does: flush,
    /// write through, and give zeros for what is given up.
    pub fn new(client: Client) -> Result<Remote, ClientError> {
        let lacks = |flag: u16| client.flags() & flag == 0;
        let what = [
            (u64::from(client.unit()) > BLOCK_BYTES, "it takes no blocks of 4 KiB"),
            (u64::from(client.most()) < BLOCK_BYTES, "it takes no blocks of 4 KiB"),
            (lacks(SEND_FLUSH), "it does not flush"),
            (lacks(SEND_FUA), "it does not write through"),
            (lacks(SEND_WRITE_ZEROES), "it does not write zeros"),
        ];
        if let Some((_, what)) = what.into_iter().find(|(lacks, _)| *lacks) {
            return Err(ClientError::Lacks(what));
        }
        Ok(Remote {
            bytes: client.size() / BLOCK_BYTES * BLOCK_BYTES,
            most: MOST.min(u64::from(client.most()) / BLOCK_BYTES * BLOCK_BYTES),
            client,
            out: Slots::new(DEPTH),
            ready: Ring::new(DEPTH),
            now: Time::ZERO,
            look: Time::ZERO,
            since: Time::ZERO,
            heard: Instant::now(),
            lost: None,
        })
    }

    /// The drive's outside. What is left over after whole blocks is not used.
    pub fn shape(&self) -> Shape {
        Shape { bytes: self.bytes, kept: BLOCK_BYTES as u32, max_bytes: self.most, depth: DEPTH }
    }

    /// Why nothing goes any more, if that is so.
    pub fn lost(&self) -> Option<&ClientError> {
        self.lost.as_ref()
    }

    /// Says goodbye.
    pub fn close(self) -> Result<(), ClientError> {
        match self.lost {
            Some(e) => Err(e),
            None => self.client.close(),
        }
    }

    fn send(&mut self, req: BlockReq) -> Result<(), ClientError> {
        // What a trim leaves the protocol does not say; zeros may be holes.
        let op = if req.op == BlockOp::Trim { BlockOp::WriteZeroes } else { req.op };
        let fua = req.fua && !matches!(op, BlockOp::Read | BlockOp::Flush);
        // A flush is of the whole drive.
        let is_flush = op == BlockOp::Flush;
        let (offset, len) = if is_flush { (0, 0) } else { (req.offset, req.len) };
        let id = self.out.take(Some(req));
        let data = match &self.out[id] {
            Some(req) if op == BlockOp::Write => req.buffer.bytes(),
            _ => &[],
        };
        self.client.submit(op, offset, len, fua, id.into(), data)
    }

    /// Looks what has come.
    fn poll(&mut self) -> Result<usize, ClientError> {
        let (out, ready, now) = (&mut self.out, &mut self.ready, self.now);
        let mut is_odd = false;
        let came = self.client.poll(&mut |id, error, data| {
            let id = id as u32;
            let Some(mut req) = out[id].take() else {
                is_odd = true;
                return;
            };
            out.give(id);
            let mut buffer = std::mem::replace(&mut req.buffer, Buffer::empty());
            if req.op == BlockOp::Read && data.len() == buffer.len() {
                buffer.bytes_mut().copy_from_slice(data);
            }
            let (id, op, status) = (req.id, req.op, status(error));
            ready.put(|| BlockDone { id, op, status, at: now, buffer });
        })?;
        match is_odd {
            true => Err(ClientError::Protocol("a reply to no request")),
            false => Ok(came),
        }
    }

    /// It looks, and decides when it looks again.
    fn look(&mut self) {
        let came = self.poll();
        match came {
            Ok(0) => {
                let time = self.heard.elapsed();
                if time > SILENCE {
                    let outstanding = self.out.live();
                    self.lose(ClientError::Silent { time, outstanding });
                }
            }
            Ok(_) => (self.since, self.heard) = (self.now, Instant::now()),
            Err(e) => self.lose(e),
        }
        let after = (self.now.since(self.since) / 8).clamp(LOOKS.0, LOOKS.1);
        self.look = self.now + after;
    }

    /// Nothing goes any more.
    fn lose(&mut self, e: ClientError) {
        self.lost = Some(e);
        for id in 0..self.out.capacity() as u32 {
            if let Some(req) = self.out[id].take() {
                self.out.give(id);
                self.fail(req);
            }
        }
    }

    fn fail(&mut self, BlockReq { id, op, buffer, .. }: BlockReq) {
        let (status, at) = (Status::INTERNAL, self.now);
        self.ready.put(|| BlockDone { id, op, status, at, buffer });
    }
}

impl Port for Remote {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.now = self.now.max(now);
        let before = self.out.live();
        let mut is_new = false;
        while self.out.live() + self.ready.len() < DEPTH
            && let Some(req) = cmds.pop()
        {
            if self.lost.is_some() {
                self.fail(req);
            } else if let Err(e) = self.send(req) {
                self.lose(e);
            }
            is_new = true;
        }
        if is_new && self.lost.is_none() {
            if let Err(e) = self.client.flush_sends() {
                return self.lose(e);
            }
            if before == 0 {
                self.heard = Instant::now();
            }
            // Where answers are awaited already, no send puts the look for them off.
            let look = self.now + LOOKS.0;
            self.look = if before == 0 { look } else { self.look.min(look) };
            self.since = self.now;
        }
    }

    fn next_event(&self) -> Option<Time> {
        match self.ready.is_empty() {
            true => (self.out.live() > 0).then_some(self.look),
            false => Some(self.now),
        }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.now = self.now.max(to);
        if self.out.live() > 0 && self.look <= self.now && self.lost.is_none() {
            self.look();
        }
        self.ready.pour(done);
    }
}
