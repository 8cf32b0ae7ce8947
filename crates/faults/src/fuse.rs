//! A drive that stops for ever after a number of events: power is gone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::{Notice, OpenChannel, VectorCmd, VectorDone};
use flash::{BlockBits, Chunk, Geometry, Ppa, Timing};
use port::{Port, Ring, Time};

/// A drive of which a test keeps a hold while a stack has it: it is looked at,
/// stopped, and taken out when the stack is gone. It does nothing at once.
pub struct Fuse<D> {
    /// The drive.
    pub drive: Rc<RefCell<D>>,
    /// Events until it stops.
    pub left: Rc<Cell<u64>>,
    geometry: Geometry,
    timing: Timing,
}

impl<D: OpenChannel> Fuse<D> {
    /// A drive that stops after so many events.
    pub fn new(drive: D, events: u64) -> Fuse<D> {
        let (geometry, timing) = (*drive.geometry(), drive.timing().clone());
        Fuse {
            drive: Rc::new(RefCell::new(drive)),
            left: Rc::new(Cell::new(events)),
            geometry,
            timing,
        }
    }
}

impl<D: OpenChannel> Port for Fuse<D> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        if self.left.get() > 0 {
            self.drive.borrow_mut().submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.left.get() > 0 { self.drive.borrow().next_event() } else { None }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        if self.left.get() > 0 {
            let mut drive = self.drive.borrow_mut();
            let is_event = drive.next_event().is_some_and(|at| at <= to);
            self.left.set(self.left.get() - u64::from(is_event));
            drive.advance(to, done);
        }
    }
}

impl<D: OpenChannel> OpenChannel for Fuse<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn timing(&self) -> &Timing {
        &self.timing
    }

    fn kept(&self) -> u32 {
        self.drive.borrow().kept()
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        self.drive.borrow().chunk(chunk_index)
    }

    fn failed_of(&self, ppa: Ppa, count: u32) -> BlockBits {
        self.drive.borrow().failed_of(ppa, count)
    }

    fn depth(&self) -> usize {
        self.drive.borrow().depth()
    }

    fn is_cached(&self) -> bool {
        self.drive.borrow().is_cached()
    }

    fn rows_at_once(&self) -> u32 {
        self.drive.borrow().rows_at_once()
    }

    fn copies_inside(&self) -> u32 {
        self.drive.borrow().copies_inside()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.drive.borrow_mut().take_notice()
    }
}
