//! How the cores that share a driver's queue get into it.
//!
//! Each has a way in of its own. Where the driver can be entered by several at
//! once ([`HardwareQueue::entrance`]) that is one of the driver's, and nothing is
//! shared but tags. Where it takes one at a time, who finds it taken leaves its
//! requests there and goes on; who is inside takes them along, and puts each
//! completion where the core finds it whose request it is.
//!
//! Guarantees: on the way of a request nobody waits for another core. What one
//! left is taken by whoever is inside next: by itself at its own next look, at the
//! latest. A core that stands still keeps nobody waiting. Asking back, resetting
//! and saying that it is gone wait for the one inside.
//!
//! Fails where memory ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::lazy::table;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use tags::{Handover, Inbox, Sender, inbox, inbox_bytes};

use crate::driver::{Abort, HardwareQueue, entrance_of, tag_of};
use crate::error::ConfigError;

/// What is below a dispatch queue.
pub(crate) enum Below<Q> {
    /// A queue of the driver, or an entrance that the driver gives.
    Own(Q),
    /// A queue that takes one core at a time, and others use too.
    Joint(Box<Entrance<Q>>),
}

impl<Q: HardwareQueue> Below<Q> {
    /// So many ways into a queue. Tags are below `tags`.
    pub fn ways(queue: Q, users: usize, tags: usize) -> Result<Vec<Below<Q>>, ConfigError> {
        let own: Option<Vec<Q>> = (1..users).map(|_| queue.entrance()).collect();
        match own {
            Some(others) => Ok([queue].into_iter().chain(others).map(Below::Own).collect()),
            None => joint(queue, users, tags),
        }
    }

    /// The driver's queue, unless others use it too.
    pub fn own(&self) -> Option<&Q> {
        match self {
            Below::Own(queue) => Some(queue),
            Below::Joint(_) => None,
        }
    }
}

/// What all entrances share.
struct Joint<Q> {
    door: Handover<Inside<Q>, BlockReq>,
    /// By entrance: where its completions go.
    boxes: Box<[Sender<BlockDone>]>,
    gone: AtomicBool,
    depth: usize,
}

/// What is of whoever is inside.
struct Inside<Q> {
    queue: Q,
    /// What was left and the driver had no room for yet.
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// By tag: the request that is in the driver's hands.
    held: Box<[Option<(u64, BlockOp)>]>,
}

/// A way into a queue that takes one core at a time.
pub(crate) struct Entrance<Q> {
    joint: Arc<Joint<Q>>,
    number: usize,
    found: Inbox<BlockDone>,
    last: Time,
}

fn joint<Q: HardwareQueue>(
    queue: Q,
    users: usize,
    tags: usize,
) -> Result<Vec<Below<Q>>, ConfigError> {
    let what = "a dispatch queue of several cores";
    let boxes = (0..users).map(|_| inbox(tags)).collect::<Result<Vec<_>, _>>()?;
    let (boxes, senders): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
    let depth = queue.depth();
    let (cmds, done) = (Ring::try_new(tags, what)?, Ring::try_new(tags, what)?);
    let inside = Inside { queue, cmds, done, held: table(None, tags, what)? };
    let joint = Arc::new(Joint {
        door: Handover::new(inside, tags)?,
        boxes: senders.into(),
        gone: AtomicBool::new(false),
        depth,
    });
    let entrance = |(number, found)| {
        let joint = joint.clone();
        Below::Joint(Box::new(Entrance { joint, number, found, last: Time::ZERO }))
    };
    Ok(boxes.into_iter().enumerate().map(entrance).collect())
}

/// Bytes of memory that a queue for so many users takes besides the driver's,
/// where it takes one core at a time.
pub(crate) fn joint_bytes(users: usize, tags: usize) -> u64 {
    let boxes = (users as u64).saturating_mul(inbox_bytes::<BlockDone>(tags));
    let rings = Ring::<BlockReq>::bytes(tags) + Ring::<BlockDone>::bytes(tags);
    let held = (tags * size_of::<Option<(u64, BlockOp)>>()) as u64;
    boxes.saturating_add(rings + held + inbox_bytes::<BlockReq>(tags))
}

impl<Q: HardwareQueue> Inside<Q> {
    /// Takes along what others left, and gives the driver what it has room for.
    #[inline]
    fn take_along(&mut self, now: Time, left: &mut Inbox<BlockReq>) {
        while let Some(req) = left.pop() {
            self.cmds.put(|| req);
        }
        if !self.cmds.is_empty() {
            let Inside { queue, cmds, held, .. } = self;
            give(queue, held, now, cmds);
        }
    }

    /// Forgets a request that is not in the driver's hands any more. False when
    /// it was not.
    #[inline]
    fn forget(&mut self, id: u64) -> bool {
        let held = self.held.get_mut(tag_of(id));
        held.and_then(|held| held.take_if(|(known, _)| *known == id)).is_some()
    }

    /// Asks for a request back that an entrance gave.
    fn abort(&mut self, id: u64) -> Abort {
        let waits = (0..self.cmds.len()).find(|&i| self.cmds.get(i).is_some_and(|c| c.id == id));
        if let Some(req) = waits.and_then(|i| self.cmds.remove(i)) {
            return Abort::Given(req.buffer);
        }
        let done = (0..self.done.len()).find(|&i| self.done.get(i).is_some_and(|d| d.id == id));
        let given = match done.and_then(|i| self.done.remove(i)) {
            Some(done) => Abort::Given(done.buffer),
            None => self.queue.abort(id),
        };
        if matches!(given, Abort::Given(_)) {
            self.forget(id);
        }
        given
    }
}

/// Gives a driver's queue what it has room for of `cmds`.
#[inline]
fn give<Q: HardwareQueue>(
    queue: &mut Q,
    held: &mut [Option<(u64, BlockOp)>],
    now: Time,
    cmds: &mut Ring<BlockReq>,
) {
    for cmd in (0..cmds.len()).filter_map(|i| cmds.get(i)) {
        held[tag_of(cmd.id)] = Some((cmd.id, cmd.op));
    }
    queue.submit(now, cmds);
    for cmd in (0..cmds.len()).filter_map(|i| cmds.get(i)) {
        held[tag_of(cmd.id)] = None;
    }
}

impl<Q: HardwareQueue> Joint<Q> {
    /// Says what the one inside sees of the device.
    #[inline]
    fn look(&self, inside: &Inside<Q>) {
        if inside.queue.is_gone() {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// Puts a completion where its core finds it.
    #[inline]
    fn put(&self, entrance: usize, done: BlockDone) {
        let sent = self.boxes[entrance].push(done);
        assert!(sent.is_ok(), "there is room for a completion of each tag");
    }
}

impl<Q: HardwareQueue> Entrance<Q> {
    /// Takes what the driver completed, as the one inside: what is this
    /// entrance's own into `done`, the rest where it is looked for.
    #[inline]
    fn collect(&self, to: Time, inside: &mut Inside<Q>, done: &mut Ring<BlockDone>) {
        inside.queue.advance(to, &mut inside.done);
        while let Some(id) = inside.done.front().map(|one| one.id) {
            let is_known = inside.forget(id);
            if !is_known && done.room() == 0 {
                // It answers nothing: who has room for it says so.
                return;
            }
            let Some(one) = inside.done.pop() else { return };
            let owner = if is_known { entrance_of(id) } else { self.number };
            if owner == self.number && done.room() > 0 {
                done.put(|| one);
            } else {
                self.joint.put(owner, one);
            }
        }
    }

    /// Takes a request out of those that completed and were not taken yet.
    fn take_found(&mut self, id: u64) -> Option<Buffer> {
        let mut first = None;
        while let Some(one) = self.found.pop() {
            if one.id == id {
                return Some(one.buffer);
            }
            let round = first == Some(one.id);
            first = first.or(Some(one.id));
            self.joint.put(self.number, one);
            if round {
                return None;
            }
        }
        None
    }
}

impl<Q: HardwareQueue> Port for Entrance<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.last = now;
        let Some(mut guard) = self.joint.door.try_enter() else {
            for cmd in cmds.drain() {
                let left = self.joint.door.leave(cmd);
                assert!(left.is_ok(), "there is room for a request of each tag");
            }
            return;
        };
        let (inside, left) = &mut *guard;
        inside.take_along(now, left);
        if inside.cmds.is_empty() {
            let Inside { queue, held, .. } = inside;
            give(queue, held, now, cmds);
        }
        self.joint.look(inside);
    }

    fn next_event(&self) -> Option<Time> {
        if !self.found.is_empty() {
            return Some(self.last);
        }
        let Some(guard) = self.joint.door.try_enter() else { return Some(self.last) };
        let (inside, left) = &*guard;
        self.joint.look(inside);
        if left.is_empty() { inside.queue.next_event() } else { Some(self.last) }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        while done.room() > 0
            && let Some(one) = self.found.pop()
        {
            done.put(|| one);
        }
        let Some(mut guard) = self.joint.door.try_enter() else { return };
        let (inside, left) = &mut *guard;
        inside.take_along(to, left);
        self.collect(to, inside, done);
        self.joint.look(inside);
    }
}

impl<Q: HardwareQueue> HardwareQueue for Entrance<Q> {
    fn depth(&self) -> usize {
        self.joint.depth
    }

    fn is_gone(&self) -> bool {
        self.joint.gone.load(Ordering::Relaxed)
    }

    fn abort(&mut self, id: u64) -> Abort {
        let joint = self.joint.clone();
        let mut guard = joint.door.enter();
        let (inside, left) = &mut *guard;
        while let Some(req) = left.pop() {
            inside.cmds.put(|| req);
        }
        match self.take_found(id) {
            Some(buffer) => Abort::Given(buffer),
            None => inside.abort(id),
        }
    }

    /// What others have inside completes as aborted by the host.
    fn reset(&mut self) -> bool {
        let mut guard = self.joint.door.enter();
        let (inside, _) = &mut *guard;
        if !inside.queue.reset() {
            return false;
        }
        for tag in 0..inside.held.len() {
            let Some((id, op)) = inside.held[tag].take() else { continue };
            if entrance_of(id) == self.number {
                continue;
            }
            let buffer = match inside.queue.abort(id) {
                Abort::Given(buffer) => buffer,
                Abort::Working | Abort::Lost => Buffer::empty(),
            };
            let (status, at) = (Status::ABORTED_BY_HOST, self.last);
            self.joint.put(entrance_of(id), BlockDone { id, op, status, at, buffer });
        }
        true
    }
}

/// Does the same to either.
macro_rules! either {
    ($below:expr, $queue:ident => $do:expr) => {
        match $below {
            Below::Own($queue) => $do,
            Below::Joint($queue) => $do,
        }
    };
}

impl<Q: HardwareQueue> Port for Below<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline(always)]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        either!(self, queue => queue.submit(now, cmds));
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        either!(self, queue => queue.next_event())
    }

    #[inline(always)]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        either!(self, queue => queue.advance(to, done));
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        if let Below::Own(queue) = self {
            queue.hint(req);
        }
    }
}

impl<Q: HardwareQueue> HardwareQueue for Below<Q> {
    fn depth(&self) -> usize {
        either!(self, queue => queue.depth())
    }

    #[inline]
    fn is_gone(&self) -> bool {
        either!(self, queue => queue.is_gone())
    }

    fn abort(&mut self, id: u64) -> Abort {
        either!(self, queue => queue.abort(id))
    }

    fn reset(&mut self) -> bool {
        either!(self, queue => queue.reset())
    }

    /// Cores that share a queue would take each other's interrupts.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        either!(self, queue => queue.wait(timeout))
    }
}
