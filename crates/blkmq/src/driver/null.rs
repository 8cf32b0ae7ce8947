//! The null driver: a device that takes no time and keeps nothing.
//!
//! What is left when it is driven is the block layer and whoever is above it.
//! Its parameters have the names of Linux's null_blk where they mean the same.
//! Requests are checked as a device would check them; reads leave their
//! buffers as they are.
//!
//! Nothing here fails but a parameter outside its range.

use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};

use super::{Abort, Driver, HardwareQueue};
use crate::error::ConfigError;

/// Parameters of the null driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullOptions {
    /// Dispatch queues for everything.
    pub submit_queues: usize,
    /// Dispatch queues for requests whose submitter polls.
    pub poll_queues: usize,
    /// Requests inside each queue at once.
    pub hw_queue_depth: usize,
    /// Capacity in GiB (2^30 bytes).
    pub gb: u64,
    /// Whether all queues share one set of tags.
    pub shared_tags: bool,
}

impl Default for NullOptions {
    fn default() -> NullOptions {
        NullOptions {
            submit_queues: 1,
            poll_queues: 0,
            hw_queue_depth: 64,
            gb: 250,
            shared_tags: false,
        }
    }
}

/// The most requests inside a queue.
pub const MOST_DEPTH: usize = 65_535;
/// The largest capacity in GiB: 8 EiB.
pub const MOST_GB: u64 = 1 << 33;

/// The null driver.
#[derive(Clone, Copy, Debug)]
pub struct Null {
    options: NullOptions,
}

impl Null {
    /// The driver with these parameters.
    pub fn new(options: NullOptions) -> Result<Null, ConfigError> {
        ConfigError::range("submit_queues", options.submit_queues, 1, crate::config::MOST_QUEUES)?;
        ConfigError::range("poll_queues", options.poll_queues, 0, crate::config::MOST_QUEUES)?;
        ConfigError::range("hw_queue_depth", options.hw_queue_depth, 1, MOST_DEPTH)?;
        ConfigError::range("gb", options.gb as usize, 1, MOST_GB as usize)?;
        Ok(Null { options })
    }
}

impl Driver for Null {
    type Queue = NullQueue;

    fn shape(&self) -> Shape {
        let NullOptions { hw_queue_depth, gb, .. } = self.options;
        Shape { bytes: gb << 30, kept: 0, max_bytes: 1 << 20, depth: hw_queue_depth }
    }

    fn queues(&self) -> [usize; 3] {
        [self.options.submit_queues, 0, self.options.poll_queues]
    }

    fn shares_tags(&self) -> bool {
        self.options.shared_tags
    }

    fn tables(&self) -> u64 {
        let NullOptions { submit_queues, poll_queues, hw_queue_depth, .. } = self.options;
        (submit_queues + poll_queues) as u64 * Ring::<BlockDone>::bytes(hw_queue_depth)
    }

    fn entrance_bytes(&self) -> Option<u64> {
        Some(Ring::<BlockDone>::bytes(self.options.hw_queue_depth))
    }

    fn open(self) -> Vec<NullQueue> {
        let count = self.options.submit_queues + self.options.poll_queues;
        (0..count).map(|_| NullQueue::new(self.shape())).collect()
    }
}

/// A dispatch queue of the null driver.
#[derive(Debug)]
pub struct NullQueue {
    shape: Shape,
    ready: Ring<BlockDone>,
}

impl NullQueue {
    /// A queue that answers for a device of this shape.
    pub fn new(shape: Shape) -> NullQueue {
        NullQueue { shape, ready: Ring::new(shape.depth) }
    }
}

impl Port for NullQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline(always)]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.ready.room() > 0
            && let Some(req) = cmds.pop()
        {
            let status = self.shape.check(&req);
            let BlockReq { id, op, buffer, .. } = req;
            self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.ready.front().map(|done| done.at)
    }

    #[inline(always)]
    fn advance(&mut self, _to: Time, done: &mut Ring<BlockDone>) {
        if done.room() > 1 {
            self.ready.pour(done);
        } else if done.room() == 1
            && let Some(one) = self.ready.pop()
        {
            done.put(|| one);
        }
    }

    fn takes_hints(&self) -> bool {
        false
    }
}

impl HardwareQueue for NullQueue {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    /// It has nothing that cores could share.
    fn entrance(&self) -> Option<NullQueue> {
        Some(NullQueue::new(self.shape))
    }

    /// All that is inside has completed.
    fn abort(&mut self, _id: u64) -> Abort {
        Abort::Working
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::{BlockOp, Buffer, Status};

    fn read(id: u64, offset: u64) -> BlockReq {
        BlockReq::new(id, BlockOp::Read, offset, 4096, Buffer::empty())
    }

    #[test]
    fn answers_at_once_and_takes_no_more_than_its_depth() {
        let null = Null::new(NullOptions { hw_queue_depth: 2, ..NullOptions::default() }).unwrap();
        let mut queue = null.open().remove(0);
        let (mut cmds, mut done) = (Ring::new(4), Ring::new(4));
        for (id, offset) in [(7, 0), (8, 250 << 30), (9, 0)] {
            cmds.push(read(id, offset)).unwrap();
        }
        queue.submit(Time(5), &mut cmds);
        assert_eq!((cmds.len(), queue.next_event()), (1, Some(Time(5))));
        queue.advance(Time(5), &mut done);
        let seen: Vec<_> = done.drain().map(|d| (d.id, d.status)).collect();
        assert_eq!(seen, [(7, Status::SUCCESS), (8, Status::LBA_OUT_OF_RANGE)]);
        assert_eq!(queue.next_event(), None);
    }

    #[test]
    fn parameters_outside_their_range_are_refused() {
        let default = NullOptions::default();
        for bad in [
            NullOptions { submit_queues: 0, ..default },
            NullOptions { hw_queue_depth: 0, ..default },
            NullOptions { hw_queue_depth: 1 << 20, ..default },
            NullOptions { gb: 0, ..default },
        ] {
            assert!(matches!(Null::new(bad), Err(ConfigError::Range { .. })), "{bad:?}");
        }
    }
}
