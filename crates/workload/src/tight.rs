//! A tight loop: random requests of one size, a fixed number outside, and as
//! little else as can be. What it measures is what is below it.
//!
//! Guarantees: at most `depth` requests are outside; addresses depend on the
//! seed alone; buffers come back and are used again; nothing is allocated
//! after it is made. It reads no clock: who drives it says what time it is.
//! Fails only when there is no memory for buffers.

use port::lazy::OutOfMemory;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Time};

use crate::rng::Rng;

/// What the loop asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TightOptions {
    /// Reads or writes.
    pub op: BlockOp,
    /// Bytes of each request; a multiple of what the drive takes.
    pub len: u64,
    /// Requests outside.
    pub depth: usize,
    /// Most requests that are submitted or taken back at once: 1 is one by
    /// one, `depth` is in batches.
    pub batch: usize,
    /// Where the addresses come from.
    pub seed: u64,
}

/// A tight loop over a drive.
pub struct Tight {
    rng: Rng,
    options: TightOptions,
    places: u64,
    reqs: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// Buffers of requests that have not begun.
    idle: Vec<Buffer>,
    completed: u64,
    errors: u64,
}

impl Tight {
    /// A loop over a drive of this shape, with nothing outside yet.
    ///
    /// # Panics
    /// When `depth`, `batch` or `len` is zero, or the drive is shorter than a
    /// request.
    pub fn new(shape: &Shape, options: TightOptions) -> Result<Tight, OutOfMemory> {
        let TightOptions { len, depth, batch, seed, .. } = options;
        assert!(depth > 0 && batch > 0 && len > 0 && len <= shape.bytes, "{options:?}");
        Ok(Tight {
            rng: Rng::new(seed, 0),
            options,
            places: shape.bytes / len,
            reqs: Ring::new(depth),
            done: Ring::new(batch.min(depth)),
            idle: Buffer::carve(depth, shape.stored(len))?,
            completed: 0,
            errors: 0,
        })
    }

    /// Requests completed since it was made.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Of these, failed.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Requests outside, those included that were refused so far.
    pub fn outside(&self) -> usize {
        self.options.depth - self.idle.len()
    }

    /// One turn: takes at most a batch of completions and submits as many new
    /// requests. Gives how many completed.
    #[inline]
    pub fn turn<P>(&mut self, now: Time, drive: &mut P) -> usize
    where
        P: Port<Cmd = BlockReq, Done = BlockDone>,
    {
        drive.advance(now, &mut self.done);
        let done = self.done.len();
        while let Some(BlockDone { status, buffer, .. }) = self.done.pop() {
            self.errors += u64::from(!status.is_ok());
            self.ask(drive, buffer);
        }
        while self.reqs.len() < self.options.batch
            && let Some(buffer) = self.idle.pop()
        {
            self.ask(drive, buffer);
        }
        self.completed += done as u64;
        drive.submit(now, &mut self.reqs);
        done
    }

    /// Takes what is outside back, and asks for nothing more. Gives how many
    /// completed.
    pub fn settle<P>(&mut self, now: Time, drive: &mut P) -> usize
    where
        P: Port<Cmd = BlockReq, Done = BlockDone>,
    {
        drive.submit(now, &mut self.reqs);
        drive.advance(now, &mut self.done);
        let done = self.done.len();
        for BlockDone { status, buffer, .. } in self.done.drain() {
            self.errors += u64::from(!status.is_ok());
            self.idle.push(buffer);
        }
        self.completed += done as u64;
        done
    }

    #[inline(always)]
    fn ask<P>(&mut self, drive: &P, buffer: Buffer)
    where
        P: Port<Cmd = BlockReq, Done = BlockDone>,
    {
        let TightOptions { op, len, .. } = self.options;
        let offset = self.rng.below(self.places) * len;
        self.reqs.put(|| BlockReq::new(0, op, offset, len, buffer));
        let last = self.reqs.len() - 1;
        if let Some(req) = self.reqs.get(last) {
            drive.hint(req);
        }
    }
}
