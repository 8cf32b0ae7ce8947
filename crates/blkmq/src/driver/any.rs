//! Any driver, as one type: so a layer over whatever there is at run time is
//! compiled once.
//!
//! Each call to a queue is one through a table, for a batch of requests. What
//! differs from the driver's own queue is nothing else. Nothing here fails.

use std::time::Duration;

use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};

use super::{Abort, Driver, HardwareQueue, QueueKind};
use crate::topology::Topology;

/// A driver whose queues are of one type.
pub struct Any<D>(pub D);

/// A queue of any driver.
pub struct AnyQueue(Box<dyn Entered>);

/// A queue that can be asked for another entrance without naming its type.
trait Entered: HardwareQueue + Send {
    fn another(&self) -> Option<AnyQueue>;
}

impl<Q: HardwareQueue + Send + 'static> Entered for Q {
    fn another(&self) -> Option<AnyQueue> {
        self.entrance().map(AnyQueue::new)
    }
}

impl AnyQueue {
    fn new(queue: impl HardwareQueue + Send + 'static) -> AnyQueue {
        AnyQueue(Box::new(queue))
    }
}

impl<D: Driver<Queue: Send + 'static>> Driver for Any<D> {
    type Queue = AnyQueue;

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn queues(&self) -> [usize; 3] {
        self.0.queues()
    }

    fn map(&self, topology: &Topology, kind: QueueKind, core: usize) -> usize {
        self.0.map(topology, kind, core)
    }

    fn shares_tags(&self) -> bool {
        self.0.shares_tags()
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn tables(&self) -> u64 {
        self.0.tables()
    }

    fn entrance_bytes(&self) -> Option<u64> {
        self.0.entrance_bytes()
    }

    fn open(self) -> Vec<AnyQueue> {
        self.0.open().into_iter().map(AnyQueue::new).collect()
    }
}

impl Port for AnyQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.0.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.0.advance(to, done);
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.0.hint(req);
    }

    fn takes_hints(&self) -> bool {
        self.0.takes_hints()
    }
}

impl HardwareQueue for AnyQueue {
    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn entrance(&self) -> Option<AnyQueue> {
        self.0.another()
    }

    #[inline]
    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn abort(&mut self, id: u64) -> Abort {
        self.0.abort(id)
    }

    fn reset(&mut self) -> bool {
        self.0.reset()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.0.wait(timeout)
    }
}
