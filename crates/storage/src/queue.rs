//! A dispatch queue over one file or device.
//!
//! A request takes a slot, goes to the kernel by the engine's gate with the slot's
//! number as its key, and its answer brings it to `ready`, from where it is given
//! out. A polled queue has a second gate, since flushes, trims and zeroes cannot be
//! polled.
//!
//! Guarantees: those of the crate. A request is answered as soon as the queue
//! is advanced after the kernel has answered; the time of its completion is
//! the time of that. A request for which the ring has no room is asked as soon
//! as it has: a kernel thread that submits may say that requests completed
//! before it gives their places back. Giving up does not wait, but for the call that
//! an engine without a ring is in: what is asked back completes when the kernel lets
//! it go. The queue of one thread panics
//! when another drives it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blkmq::{Abort, HardwareQueue};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Slots, Status, Time};

use crate::backing::Backing;
use crate::calls::Calls;
use crate::gate::Gate;
use crate::pool::Region;
use crate::request::{Inside, Next, Plan};
use crate::ring::Refused;

/// So many requests go to a device together: it is at work on them while the next are
/// made ready. The kernel holds back all that are handed over in one call until it has seen
/// the last.
const TOGETHER: usize = 4;

/// How long a queue whose device is gone waits for the kernel to let all go.
const GONE_WAIT: Duration = Duration::from_millis(100);

/// How long a queue that is dropped waits for all of them.
const DROP_WAIT: Duration = Duration::from_secs(10);

/// A dispatch queue of real storage.
pub struct StorageQueue {
    shape: Shape,
    /// For everything, or for what is polled.
    main: Gate,
    /// Of a polled queue, for the rest.
    side: Option<Gate>,
    /// Whether the main one is polled.
    polled: bool,
    slots: Slots<Inside>,
    /// How many of them the main one has.
    in_main: usize,
    /// Slots whose answer is there, and how they ended.
    ready: Ring<(u32, Status)>,
    /// Slots to be asked, again or because the ring had no room.
    again: Ring<u32>,
    /// The device is gone, and all was asked back.
    let_go: bool,
    plan: Plan,
    /// What the registered ranges need to stay.
    regions: Vec<Region>,
    backing: Arc<Backing>,
    last: Time,
}

impl StorageQueue {
    /// A queue for what `shape` says, over gates to `backing`, of which rings are
    /// registered with it and, the first, with `regions`.
    pub(crate) fn new(
        shape: Shape,
        main: Gate,
        side: Option<Gate>,
        plan: Plan,
        regions: Vec<Region>,
        backing: Arc<Backing>,
    ) -> StorageQueue {
        StorageQueue {
            polled: side.is_some(),
            slots: Slots::new(shape.depth),
            ready: Ring::new(shape.depth),
            again: Ring::new(shape.depth),
            let_go: false,
            in_main: 0,
            last: Time::ZERO,
            shape,
            main,
            side,
            plan,
            regions,
            backing,
        }
    }

    /// What answers a request without asking the kernel.
    #[inline]
    fn check(&self, req: &BlockReq) -> Status {
        let status = self.shape.check(req);
        if !status.is_ok() {
            return status;
        }
        match req.op {
            BlockOp::Flush => Status::SUCCESS,
            BlockOp::Read if self.backing.aligned(req) => Status::SUCCESS,
            BlockOp::Read => Status::INVALID_FIELD,
            _ if self.backing.read_only => Status::READ_ONLY,
            BlockOp::Write if !self.backing.aligned(req) => Status::INVALID_FIELD,
            _ if !self.backing.can_go_on(req.offset | req.len) => Status::INVALID_FIELD,
            _ => Status::SUCCESS,
        }
    }

    /// Takes one request.
    #[inline]
    fn take(&mut self, req: BlockReq) {
        let status = self.check(&req);
        let slot = self.slots.take(Inside::new(req, &mut self.plan, &self.backing));
        if status.is_ok() {
            self.ask(slot);
        } else {
            self.ready.put(|| (slot, status));
        }
    }

    /// Asks the kernel for what slot `slot` needs next, or puts it off until
    /// the ring has room.
    #[inline]
    fn ask(&mut self, slot: u32) {
        let inside = &mut self.slots[slot];
        let ask = inside.ask(&self.plan);
        let (gate, in_main) = match &mut self.side {
            Some(side) if !inside.can_be_polled() => (side, 0),
            _ => (&mut self.main, 1),
        };
        // SAFETY: the memory is the slot's buffer or the zeros, which stay
        // where they are until the answer: `reap` alone frees a slot, and
        // `drop` waits for all of them, or leaks them.
        if unsafe { gate.ask(slot, &ask, &self.plan) } {
            self.in_main += in_main;
        } else {
            self.again.put(|| slot);
        }
    }

    /// Hands to the kernel what is queued, and lets it say what has completed,
    /// if that takes a system call at all.
    #[inline]
    fn enter(&mut self) -> Result<(), Refused> {
        if self.main.wants_enter(self.in_main > 0) {
            self.main.enter()?;
        }
        if let Some(side) = &mut self.side
            && side.wants_enter(false)
        {
            side.enter()?;
        }
        Ok(())
    }

    /// Takes the kernel's answers: to `ready`, or asked again.
    #[inline]
    fn reap(&mut self) {
        let StorageQueue { main, side, slots, ready, again, plan, backing, in_main, .. } = self;
        let mut answer = |slot: u32, result: i32| match slots[slot].settle(result, plan, backing) {
            Next::Done(status) => ready.put(|| (slot, status)),
            Next::Again => again.put(|| slot),
        };
        main.answers(|slot, result| {
            *in_main -= 1;
            answer(slot, result);
        });
        if let Some(side) = side {
            side.answers(answer);
        }
        if !self.again.is_empty() {
            self.ask_again();
        }
    }

    /// Asks for what is to be asked, each once.
    #[cold]
    fn ask_again(&mut self) {
        for _ in 0..self.again.len() {
            let Some(slot) = self.again.pop() else { return };
            if self.slots[slot].cancelled {
                self.ready.put(|| (slot, Status::ABORTED_BY_HOST));
            } else {
                self.ask(slot);
            }
        }
    }

    /// Gives a slot's request out.
    #[inline]
    fn give(&mut self, slot: u32) -> Inside {
        let inside = std::mem::take(&mut self.slots[slot]);
        self.slots.give(slot);
        inside
    }

    /// Sleeps in the kernel, or looks once where it must be polled, until
    /// something may have changed or `timeout` has passed.
    fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), Refused> {
        self.enter()?;
        // A ring that gives places back says nothing.
        if (self.polled && self.in_main > 0) || !self.again.is_empty() {
            std::thread::yield_now();
            return Ok(());
        }
        self.side.as_mut().unwrap_or(&mut self.main).sleep(timeout)
    }

    /// Whether the kernel has answered something.
    fn has_completion(&mut self) -> bool {
        self.main.has_answer() || self.side.as_mut().is_some_and(Gate::has_answer)
    }

    /// Whether an answer is there.
    fn has_answer(&mut self) -> bool {
        !self.ready.is_empty() || self.has_completion()
    }

    /// Goes on until `until`, or until `enough`. After that the kernel is still
    /// entered as long as it answers: this thread may have stood still all the
    /// time, with what it asked for not even handed over.
    fn settle(
        &mut self,
        until: Instant,
        enough: impl Fn(&StorageQueue) -> bool,
    ) -> Result<bool, Refused> {
        let mut is_late = false;
        loop {
            let answered = self.has_completion();
            self.reap();
            if enough(self) {
                return Ok(true);
            }
            if is_late && !answered {
                return Ok(false);
            }
            let left = until.saturating_duration_since(Instant::now());
            is_late = left.is_zero();
            self.sleep(Some(left))?;
        }
    }

    /// Where a request with this id is, if it is inside.
    fn find(&self, id: u64) -> Option<u32> {
        let is = |&slot: &u32| self.slots[slot].live && self.slots[slot].id == id;
        (0..self.shape.depth as u32).find(is)
    }

    /// Where a slot is among those that are ready.
    fn place(&self, slot: u32) -> Option<usize> {
        (0..self.ready.len()).find(|&i| self.ready.get(i).is_some_and(|r| r.0 == slot))
    }

    /// Asks the kernel to cancel slot `slot`; what is polled cannot be. Cancels
    /// go to the kernel together, when it is entered next.
    fn cancel(&mut self, slot: u32) {
        self.slots[slot].cancelled = true;
        let gate = match &mut self.side {
            Some(_) if self.slots[slot].can_be_polled() => return,
            Some(side) => side,
            None => &mut self.main,
        };
        let entered = gate.cancel(Some(slot));
        self.driven(entered);
    }

    /// Looks at how driving the rings went. A ring that takes nothing any more
    /// leads to no device.
    #[inline]
    fn driven(&self, result: Result<(), Refused>) {
        match result {
            Ok(()) => {}
            Err(Refused::Ring) => self.backing.set_gone(),
            Err(Refused::Thread) => {
                panic!("a storage queue of one thread is driven by another: open it with `shared`")
            }
        }
    }

    /// Cancels all, and waits so long. False when some are still in the kernel.
    fn let_go(&mut self, wait: Duration) -> Result<bool, Refused> {
        for slot in 0..self.shape.depth as u32 {
            self.slots[slot].cancelled = true;
        }
        let gate = if self.polled { self.side.as_mut() } else { Some(&mut self.main) };
        gate.map_or(Ok(()), |gate| gate.cancel(None))?;
        self.settle(Instant::now() + wait, |q| q.ready.len() == q.slots.live())
    }
}

impl Port for StorageQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.last = now;
        if self.backing.is_gone() {
            return;
        }
        let mut left = cmds.len().min(self.slots.room());
        while left > 0 {
            // The page cache answers in the call, so that nothing waits for more calls.
            let together = if self.backing.unit() > 1 { left.min(TOGETHER) } else { left };
            for _ in 0..together {
                let Some(req) = cmds.pop() else { break };
                self.take(req);
            }
            left -= together;
            let entered = self.enter();
            self.driven(entered);
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        (self.slots.live() > 0).then_some(self.last)
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        if self.slots.live() == 0 {
            return;
        }
        let entered = self.enter();
        self.driven(entered);
        self.reap();
        for _ in 0..self.ready.len().min(done.room()) {
            let Some((slot, status)) = self.ready.pop() else { return };
            let Inside { id, op, buffer, .. } = self.give(slot);
            done.put(|| BlockDone { id, op, status, at: to, buffer });
        }
    }
}

impl HardwareQueue for StorageQueue {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    /// Once this is true, what is inside still completes when the kernel gives
    /// it up, unless it is aborted before.
    fn is_gone(&self) -> bool {
        self.backing.is_gone()
    }

    /// Asks the kernel to cancel the request, and does not wait: it completes
    /// when the kernel lets it go, carried out or not, and for certain: the
    /// kernel answers whatever it took. Only when the device is
    /// gone, the first call waits for all that is inside, for a tenth of a
    /// second at most. What is given back may have been carried out.
    fn abort(&mut self, id: u64) -> Abort {
        let Some(slot) = self.find(id) else { return Abort::Lost };
        if self.is_gone() && !std::mem::replace(&mut self.let_go, true) {
            let settled = self.let_go(GONE_WAIT);
            self.driven(settled.map(drop));
        }
        if let Some(place) = self.place(slot) {
            self.ready.remove(place);
            return Abort::Given(self.give(slot).buffer);
        }
        if let Some(at) = (0..self.again.len()).find(|&i| self.again.get(i) == Some(&slot)) {
            self.again.remove(at);
            return Abort::Given(self.give(slot).buffer);
        }
        self.cancel(slot);
        if self.is_gone() { Abort::Lost } else { Abort::Working }
    }

    /// Sleeps in the kernel. Returns at once while something is inside that
    /// must be polled, and, without a timeout, when nothing is inside.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        if self.has_answer() {
            return true;
        }
        if self.slots.live() == 0 {
            if let Some(timeout) = timeout {
                std::thread::sleep(timeout);
            }
            return false;
        }
        if (self.polled && self.in_main > 0) || !self.again.is_empty() {
            return true;
        }
        let slept = self.sleep(timeout);
        self.driven(slept);
        self.has_answer()
    }
}

impl Drop for StorageQueue {
    /// Cancels what is inside and waits for it, ten seconds at most. What the
    /// kernel does not let go by then, and all of it when another thread than
    /// the queue's own drops it, is leaked: its memory is never reused.
    fn drop(&mut self) {
        if self.slots.live() == 0 || matches!(self.let_go(DROP_WAIT), Ok(true)) {
            self.main.release();
            if let Some(side) = &mut self.side {
                side.release();
            }
            return;
        }
        let none = || Gate::Calls(Calls::new(self.backing.clone(), 1, None));
        std::mem::replace(&mut self.main, none()).leave();
        self.side.replace(none()).into_iter().for_each(Gate::leave);
        std::mem::forget(std::mem::replace(&mut self.slots, Slots::new(0)));
        std::mem::forget(std::mem::take(&mut self.plan.zeros));
        std::mem::forget(std::mem::take(&mut self.regions));
    }
}

#[cfg(test)]
mod tests;
