//! How the cores that share a driver's queue get into it.
//!
//! Each has a way in of its own. Where the driver can be entered by several at
//! once ([`HardwareQueue::entrance`]) that is one of the driver's, and nothing is
//! shared but tags. Where it takes one at a time, who finds it taken leaves its
//! requests there and goes on; who is inside takes them along, and puts each
//! completion where the core finds it whose request it is. Each core has tags of
//! its own then; the driver's tag belongs to the queue, and a request has it from
//! when the driver has room until it completes.
//!
//! Guarantees: on the way of a request nobody waits for another core. What one
//! left is taken by whoever is inside next: by itself at its own next look, at the
//! latest. A core that stands still keeps nobody waiting, as what it did not look
//! at holds no tag of the driver's. Asking back, resetting and saying that it is
//! gone wait for the one inside.
//!
//! Fails where memory ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::lazy::table;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use tags::{Handover, Inbox, OwnTags, Sender, inbox, inbox_bytes};

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

    /// Since when a request is in the driver's hands, where it may have waited for
    /// that: `now` while it waits.
    pub fn since(&self, id: u64, now: Time) -> Option<Time> {
        match self {
            Below::Own(_) => None,
            Below::Joint(entrance) => entrance.since(id, now),
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
    /// What was left or brought, and has no tag of the driver's yet.
    cmds: Ring<BlockReq>,
    /// Has one, and the driver did not take it yet.
    ready: Ring<BlockReq>,
    done: Ring<BlockDone>,
    tags: OwnTags,
    /// By tag of the driver's.
    held: Box<[Held]>,
}

/// A tag of the driver's.
#[derive(Clone, Copy)]
struct Held {
    /// How often it was given to a request.
    times: u32,
    /// The request that has it, by the id that its core gave it.
    of: Option<(u64, BlockOp)>,
    /// Since when.
    since: Time,
}

/// Above the tag in the ids that the driver is given here: no core has this
/// entrance.
const INSIDE: u64 = 0xFFFF << 16;

impl Held {
    /// The id that the driver is given for the request that has tag `tag`.
    #[inline]
    fn name(&self, tag: usize) -> u64 {
        u64::from(self.times) << 32 | INSIDE | tag as u64
    }
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
    let (depth, all) = (queue.depth(), users * tags);
    let inside = Inside {
        queue,
        cmds: Ring::try_new(all, what)?,
        ready: Ring::try_new(depth, what)?,
        done: Ring::try_new(depth, what)?,
        tags: OwnTags::new(depth as u32)?,
        held: table(Held { times: 0, of: None, since: Time::ZERO }, depth, what)?,
    };
    let joint = Arc::new(Joint {
        door: Handover::new(inside, all)?,
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

/// Bytes of memory that a queue of so many places takes for so many users besides
/// the driver's, where it takes one core at a time. Each user has `tags`.
pub(crate) fn joint_bytes(depth: usize, users: usize, tags: usize) -> u64 {
    let all = users.saturating_mul(tags);
    let boxes = (users as u64).saturating_mul(inbox_bytes::<BlockDone>(tags));
    let rings = [all, depth].map(Ring::<BlockReq>::bytes).into_iter().sum::<u64>();
    let each = size_of::<Held>() + size_of::<u16>();
    let inside = Ring::<BlockDone>::bytes(depth) + (depth * each) as u64;
    boxes.saturating_add(rings).saturating_add(inside + inbox_bytes::<BlockReq>(all))
}

impl<Q: HardwareQueue> Inside<Q> {
    /// Takes along what others left, and gives the driver what it has room for.
    #[inline]
    fn take_along(&mut self, now: Time, left: &mut Inbox<BlockReq>) {
        while let Some(req) = left.pop() {
            self.cmds.put(|| req);
        }
        self.give(now);
    }

    /// Gives the driver what it has room for, the oldest first.
    #[inline]
    fn give(&mut self, now: Time) {
        while !self.cmds.is_empty()
            && let Some(tag) = self.tags.take()
            && let Some(mut req) = self.cmds.pop()
        {
            let held = &mut self.held[tag as usize];
            held.times = held.times.wrapping_add(1);
            (held.of, held.since) = (Some((req.id, req.op)), now);
            req.id = held.name(tag as usize);
            self.ready.put(|| req);
        }
        if !self.ready.is_empty() {
            self.queue.submit(now, &mut self.ready);
        }
    }

    /// Whose request the driver has by this id, by the id that its core gave it;
    /// the tag is free then.
    #[inline]
    fn free(&mut self, name: u64) -> Option<u64> {
        let tag = tag_of(name);
        let held = self.held.get_mut(tag).filter(|held| held.name(tag) == name)?;
        let (id, _) = held.of.take()?;
        self.tags.give(tag as u32);
        Some(id)
    }

    /// Asks for a request back that an entrance gave.
    fn abort(&mut self, id: u64) -> Abort {
        if let Some(req) = take_where(&mut self.cmds, |cmd| cmd.id == id) {
            return Abort::Given(req.buffer);
        }
        let Some(tag) = self.find(id) else { return Abort::Lost };
        let given = self.recall(tag);
        if matches!(given, Abort::Given(_)) {
            self.free(self.held[tag].name(tag));
        }
        given
    }

    /// The tag of a request, by the id that its core gave it.
    fn find(&self, id: u64) -> Option<usize> {
        self.held.iter().position(|held| held.of.is_some_and(|(known, _)| known == id))
    }

    /// Asks for the request back that has this tag.
    fn recall(&mut self, tag: usize) -> Abort {
        let name = self.held[tag].name(tag);
        if let Some(req) = take_where(&mut self.ready, |cmd| cmd.id == name) {
            return Abort::Given(req.buffer);
        }
        match take_where(&mut self.done, |done| done.id == name) {
            Some(done) => Abort::Given(done.buffer),
            None => self.queue.abort(name),
        }
    }
}

/// Takes the first one out of which this is so.
fn take_where<T>(ring: &mut Ring<T>, is_it: impl Fn(&T) -> bool) -> Option<T> {
    let at = (0..ring.len()).find(|&i| ring.get(i).is_some_and(&is_it))?;
    ring.remove(at)
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
        while let Some(name) = inside.done.front().map(|one| one.id) {
            let id = inside.free(name);
            if id.is_none() && done.room() == 0 {
                // It answers nothing: who has room for it says so.
                return;
            }
            let Some(one) = inside.done.pop() else { return };
            let one = BlockDone { id: id.unwrap_or(name), ..one };
            let owner = id.map_or(self.number, entrance_of);
            if owner == self.number && done.room() > 0 {
                done.put(|| one);
            } else {
                self.joint.put(owner, one);
            }
        }
    }

    fn since(&self, id: u64, now: Time) -> Option<Time> {
        let mut guard = self.joint.door.enter();
        let (inside, left) = &mut *guard;
        while let Some(req) = left.pop() {
            inside.cmds.put(|| req);
        }
        if (0..inside.cmds.len()).any(|i| inside.cmds.get(i).is_some_and(|cmd| cmd.id == id)) {
            return Some(now);
        }
        inside.find(id).map(|tag| inside.held[tag].since)
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
        while let Some(req) = left.pop() {
            inside.cmds.put(|| req);
        }
        for cmd in cmds.drain() {
            inside.cmds.put(|| cmd);
        }
        inside.give(now);
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
        inside.give(to);
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

    /// What is inside completes as aborted by the host, where its core finds it.
    fn reset(&mut self) -> bool {
        let mut guard = self.joint.door.enter();
        let (inside, _) = &mut *guard;
        if !inside.queue.reset() {
            return false;
        }
        for tag in 0..inside.held.len() {
            let held = inside.held[tag];
            let Some((id, op)) = held.of else { continue };
            let buffer = match inside.recall(tag) {
                Abort::Given(buffer) => buffer,
                Abort::Working | Abort::Lost => Buffer::empty(),
            };
            inside.free(held.name(tag));
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

    fn takes_hints(&self) -> bool {
        matches!(self, Below::Own(queue) if queue.takes_hints())
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
