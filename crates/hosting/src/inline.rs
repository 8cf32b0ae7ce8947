//! A block drive below the block layer, on the thread that polls it: one
//! dispatch queue over any port of block requests.
//!
//! In virtual time it is the port itself. On the processor's clock it handles
//! each event at that event's own time, however late the poll comes
//! (`device::realtime`). Nothing here fails.

use blkmq::{Abort, Driver, HardwareQueue};
use device::realtime::RealTime;
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};

/// The driver of one inline drive.
pub struct Inline<P> {
    port: P,
    shape: Shape,
    depth: usize,
}

impl<P> Inline<P> {
    /// A drive of this shape with `depth` requests inside at most; at least 1.
    pub fn new(port: P, shape: Shape, depth: usize) -> Inline<P> {
        Inline { port, shape, depth: depth.max(1) }
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Driver for Inline<P> {
    type Queue = InlineQueue<P>;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn queues(&self) -> [usize; 3] {
        [1, 0, 0]
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn open(self) -> Vec<InlineQueue<P>> {
        vec![InlineQueue { real: RealTime::new(self.port), depth: self.depth }]
    }
}

/// The queue of an inline drive.
pub struct InlineQueue<P: Port> {
    real: RealTime<P>,
    depth: usize,
}

impl<P: Port> InlineQueue<P> {
    /// The drive.
    pub fn drive(&self) -> &P {
        self.real.port()
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for InlineQueue<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.real.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.real.next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.real.poll(to, done);
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.real.port().hint(req);
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> HardwareQueue for InlineQueue<P> {
    fn depth(&self) -> usize {
        self.depth
    }

    /// A drive of ours loses nothing, as long as something is still to happen
    /// in it.
    fn abort(&mut self, _id: u64) -> Abort {
        if self.real.next_event().is_some() { Abort::Working } else { Abort::Lost }
    }
}
