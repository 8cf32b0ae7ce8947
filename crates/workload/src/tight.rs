//! A tight loop: random requests of one size, a fixed number outside, and as
//! little else as can be. What it measures is what is below it.
//!
//! Guarantees: at most `depth` requests are outside, and as many are before
//! completions are looked at, unless the drive refuses some; addresses depend on the
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

    /// One turn: has `depth` requests outside, takes at most a batch of completions and
    /// submits as many new requests. Gives how many completed.
    #[inline]
    pub fn turn<P>(&mut self, now: Time, drive: &mut P) -> usize
    where
        P: Port<Cmd = BlockReq, Done = BlockDone>,
    {
        if !self.idle.is_empty() && self.reqs.is_empty() {
            self.fill(now, drive);
        }
        drive.advance(now, &mut self.done);
        let done = self.done.len();
        while let Some(BlockDone { status, buffer, .. }) = self.done.pop() {
            self.errors += u64::from(!status.is_ok());
            self.ask(drive, buffer);
        }
        self.completed += done as u64;
        drive.submit(now, &mut self.reqs);
        done
    }

    /// Submits until `depth` requests are outside, a batch at a time, or the drive refuses
    /// one. A drive that is done at once would else never have more than a batch inside.
    #[cold]
    fn fill<P>(&mut self, now: Time, drive: &mut P)
    where
        P: Port<Cmd = BlockReq, Done = BlockDone>,
    {
        while !self.idle.is_empty() {
            while self.reqs.len() < self.options.batch
                && let Some(buffer) = self.idle.pop()
            {
                self.ask(drive, buffer);
            }
            drive.submit(now, &mut self.reqs);
            if !self.reqs.is_empty() {
                return;
            }
        }
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

#[cfg(test)]
mod tests {
    use port::Status;

    use super::*;

    /// A drive that is done with a request at once, and has room for so many.
    struct AtOnce {
        room: usize,
        ready: Ring<BlockDone>,
        /// The most and the fewest that were inside when it was asked what was done.
        most: usize,
        fewest: usize,
        /// The most that came at once.
        came: usize,
    }

    impl AtOnce {
        fn new(room: usize) -> AtOnce {
            AtOnce { room, ready: Ring::new(room), most: 0, fewest: usize::MAX, came: 0 }
        }
    }

    impl Port for AtOnce {
        type Cmd = BlockReq;
        type Done = BlockDone;

        fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
            self.came = self.came.max(reqs.len());
            while self.ready.len() < self.room
                && let Some(BlockReq { id, op, buffer, .. }) = reqs.pop()
            {
                self.ready.put(|| BlockDone { id, op, status: Status::SUCCESS, at: now, buffer });
            }
        }

        fn next_event(&self) -> Option<Time> {
            (!self.ready.is_empty()).then_some(Time::ZERO)
        }

        fn advance(&mut self, _: Time, done: &mut Ring<BlockDone>) {
            self.most = self.most.max(self.ready.len());
            self.fewest = self.fewest.min(self.ready.len());
            while done.room() > 0
                && let Some(one) = self.ready.pop()
            {
                done.put(|| one);
            }
        }
    }

    /// All that may be outside is, also where the drive is done before it is asked; one that
    /// has no room for all has as many as it takes.
    #[test]
    fn as_many_as_may_be_are_outstanding() {
        let shape = Shape { bytes: 1 << 30, kept: 0, max_bytes: 1 << 20, depth: 32 };
        for (depth, batch, room) in [(32, 1, 32), (32, 8, 32), (32, 32, 32), (1, 1, 1), (32, 1, 8)]
        {
            let options = TightOptions { op: BlockOp::Read, len: 4096, depth, batch, seed: 1 };
            let (mut tight, mut drive) = (Tight::new(&shape, options).unwrap(), AtOnce::new(room));
            let completed: usize = (0..100).map(|n| tight.turn(Time(n), &mut drive)).sum();
            assert_eq!((drive.most, drive.fewest), (room, room), "{options:?}");
            assert_eq!(completed, 100 * batch, "{options:?}");
            assert!(room < depth || drive.came <= batch, "{options:?}: {} came", drive.came);
            // One that was refused waits for room.
            let outside = depth.min(room + batch);
            assert_eq!(tight.outside(), outside, "{options:?}");
            while tight.outside() > 0 {
                tight.settle(Time(100), &mut drive);
            }
            assert_eq!((tight.errors(), tight.completed()), (0, (completed + outside) as u64));
        }
    }
}
