//! What a driver offers to the block layer.
//!
//! ```text
//!  Driver  ──open──▶  one HardwareQueue for each dispatch queue
//!    │                  │
//!    │ how many queues, │ a port: block requests in, completions out,
//!    │ of which kinds,  │ whose ids are the block layer's tags
//!    │ which core's     │
//!    │ requests go where
//! ```
//!
//! A queue is a [`Port`], so every block target of ours is one, and a filter
//! that is a port over a port fits between. It promises what ports promise,
//! with one relaxation: a driver of something outside this process, or on
//! another thread, may be advanced later than its next event and says what it
//! sees then; while it has requests inside its next event is the time it was
//! last given, which means "look again".
//!
//! Nothing here fails.

pub mod any;
pub mod null;
pub mod timed;

use std::time::Duration;

use port::{BlockDone, BlockReq, Buffer, Port, Shape};

use crate::topology::{Spread, Topology};

/// The kinds of dispatch queues, as Linux has them. A driver may have queues
/// of the first kind only; requests of a kind it has no queue for go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// For everything that has no queue of its own kind.
    Default = 0,
    /// For reads.
    Read = 1,
    /// For requests whose submitter polls.
    Poll = 2,
}

impl QueueKind {
    /// All kinds, in the order in which a driver's queues are numbered.
    pub const ALL: [QueueKind; 3] = [QueueKind::Default, QueueKind::Read, QueueKind::Poll];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            QueueKind::Default => "default",
            QueueKind::Read => "read",
            QueueKind::Poll => "poll",
        }
    }
}

/// What a driver says to giving up a request that takes too long.
#[derive(Debug)]
pub enum Abort {
    /// It is given up: it will not complete, nor touch the device or its
    /// buffer any more. Here is the buffer.
    Given(Buffer),
    /// It is still being worked on and completes for certain, in its own
    /// time. The driver is asked again after another timeout.
    Working,
    /// It was asked for, or the driver cannot tell. If it does not complete
    /// within another timeout either, the queue is reset.
    Lost,
}

/// The tag in the id of a request: a number below the queue's depth, or that of
/// the deepest where queues share their tags. No two that are inside have one.
#[inline(always)]
pub fn tag_of(id: u64) -> usize {
    usize::from(id as u16)
}

/// The entrance of the queue that the id of a request is from.
#[inline]
pub(crate) fn entrance_of(id: u64) -> usize {
    usize::from((id >> 16) as u16)
}

/// A driver's side of one dispatch queue. The ids of its requests and
/// completions are the block layer's: see [`tag_of`].
pub trait HardwareQueue: Port<Cmd = BlockReq, Done = BlockDone> {
    /// Most requests inside at once; at least 1.
    fn depth(&self) -> usize;

    /// Another entrance to the same queue, for a core that is inside at the same
    /// time as others; `None` where one at a time may be. What goes in by one
    /// entrance completes there, and ends with it when it is dropped. At most
    /// `depth` requests are inside by all of them.
    fn entrance(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Whether the device went away: nothing that is inside completes any
    /// more, and nothing is taken.
    fn is_gone(&self) -> bool {
        false
    }

    /// Asks for a request back: one that takes too long, or whose device is
    /// gone, or that a reset left. Does not wait. A request that is let go
    /// later completes then, as any does.
    fn abort(&mut self, _id: u64) -> Abort {
        Abort::Lost
    }

    /// Makes sure that nothing that is inside touches the device or its buffer
    /// any more; the queue goes on empty. False when it cannot be: then the
    /// device is given nothing more, by any of its queues.
    fn reset(&mut self) -> bool {
        false
    }

    /// Sleeps until there is something to see, or until `timeout` has passed;
    /// `None` is for ever. True when there is something to see. A queue that
    /// only polls returns at once.
    fn wait(&mut self, _timeout: Option<Duration>) -> bool {
        true
    }
}

/// A device's driver.
pub trait Driver {
    /// Its queues.
    type Queue: HardwareQueue;

    /// The outside of the device.
    fn shape(&self) -> Shape;

    /// How many dispatch queues it has of each kind, in the order of
    /// [`QueueKind::ALL`].
    fn queues(&self) -> [usize; 3];

    /// Which of its queues of `kind` takes the requests of `core`; smaller
    /// than the number of them. The default spreads cores over queues so that
    /// neighbours share.
    fn map(&self, topology: &Topology, kind: QueueKind, core: usize) -> usize {
        let queues = self.queues()[kind as usize];
        Spread::Count(queues).place(topology, core)
    }

    /// Whether all its queues share one set of tags, as a device with one
    /// command table for all of them has.
    fn shares_tags(&self) -> bool {
        false
    }

    /// Requests inside each of its queues, at most.
    fn depth(&self) -> usize {
        self.shape().depth
    }

    /// Bytes of memory that opening its queues takes.
    fn tables(&self) -> u64 {
        0
    }

    /// Bytes of memory that another entrance to one of its queues takes, where
    /// they have some ([`HardwareQueue::entrance`]).
    fn entrance_bytes(&self) -> Option<u64> {
        None
    }

    /// Opens the queues: all of the first kind, then the others.
    fn open(self) -> Vec<Self::Queue>;
}
