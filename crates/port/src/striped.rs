//! Shards: one block drive made of several, that share nothing.
//!
//! ```text
//!  address   0      64K    128K   192K   256K
//!            ├──0───┼──1───┼──2───┼──0───┼── ...      three shards
//! ```
//!
//! Addresses go round the shards in stripes of [`STRIPE`]. A request inside a
//! stripe goes to its shard as it is; one that crosses stripes is cut in pieces,
//! which share its buffer, and completes once, when the last piece has, with the
//! worst of their statuses. A trim or a write of zeros is one piece for each shard
//! that it touches, and a flush goes to all. What a shard refuses waits here, in
//! order: as much again as it takes at once. Only where that is full, too, does the
//! next request for it hold up those behind it, for whatever shard.
//!
//! Guarantees: the rules of [`Port`], over shards that keep them; pieces go to a
//! shard in the order in which their requests came; requests are given in the order in
//! which they were seen to end, whether stories are told or not; nothing is allocated
//! after it is made. Nothing here fails.

use crate::{
    BlockDone, BlockOp, BlockReq, Buffer, Part, Pieces, Port, Ring, Shape, Slots, Status, Stories,
    Story, Time,
};

/// Bytes that are of one shard before the next one's begin. A short request is
/// seldom cut, and a long one keeps all shards busy.
pub const STRIPE: u64 = 64 << 10;

/// Completions that are taken from a shard at once.
const DONE: usize = 64;

/// Of a drive's first `bytes`, how many lie in one of its shards.
pub fn share(bytes: u64, shards: usize, shard: usize) -> u64 {
    let round = STRIPE * shards as u64;
    let rest = (bytes % round).saturating_sub(STRIPE * shard as u64);
    bytes / round * STRIPE + rest.min(STRIPE)
}

/// A request that is inside.
#[derive(Debug)]
struct Whole {
    id: u64,
    op: BlockOp,
    status: Status,
    at: Time,
    /// Pieces to come.
    left: u32,
    buffer: Pieces,
}

/// Left of a request that its shard has as it is.
const UNCUT: u32 = u32::MAX;

impl Whole {
    /// A piece of it has come back.
    fn end(&mut self, piece: BlockDone) {
        let BlockDone { op, status, at, buffer, .. } = piece;
        if self.left == UNCUT {
            let buffer = Pieces::new(buffer);
            *self = Whole { id: self.id, op, status, at, left: 0, buffer };
            return;
        }
        self.status = worst(self.status, status);
        self.at = self.at.max(at);
        self.buffer.give(buffer);
        self.left -= 1;
    }
}

impl Default for Whole {
    fn default() -> Whole {
        let (op, status, buffer) = (BlockOp::Flush, Status::SUCCESS, Pieces::default());
        Whole { id: 0, op, status, at: Time::ZERO, left: 0, buffer }
    }
}

/// A shard, and what it has not taken yet. It has lines of its own: it may be
/// beside one of another thread.
#[repr(align(128))]
struct Shard<P> {
    port: P,
    waiting: Ring<BlockReq>,
    /// Completions of it since stories are told.
    heard: u64,
}

/// Shards that are one drive.
pub struct Striped<P> {
    shards: Vec<Shard<P>>,
    /// The logarithm of their number, where it is a power of two.
    shift: Option<u32>,
    shape: Shape,
    inside: Slots<Whole>,
    /// Those that completed and found no room yet.
    ready: Ring<u32>,
    /// Completions of a shard, on their way.
    pieces: Ring<BlockDone>,
    /// The latest time that it was given.
    now: Time,
    /// Above the lower half of all ids that go down.
    name: u64,
    stories: Option<Box<Stories>>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Striped<P> {
    /// A drive of `bytes` of these shards, each of which has its [`share`] of them.
    /// `each` is the outside of any of them, but for its bytes.
    ///
    /// # Panics
    /// Without a shard.
    pub fn new(shards: Vec<P>, bytes: u64, each: Shape) -> Striped<P> {
        let longest = (each.max_bytes / STRIPE) as usize + 2;
        let depth = each.depth * shards.len();
        let with_ring = |port| Shard { port, waiting: Ring::new(each.depth + longest), heard: 0 };
        let count = shards.len();
        Striped {
            shift: count.is_power_of_two().then(|| count.ilog2()),
            shards: shards.into_iter().map(with_ring).collect(),
            shape: Shape { bytes, depth, ..each },
            inside: Slots::new(depth),
            ready: Ring::new(depth),
            pieces: Ring::new(DONE),
            now: Time::ZERO,
            name: 0,
            stories: None,
        }
    }

    /// The same, by a number that is in the upper half of all ids that its shards see,
    /// so that they can tell it from others.
    pub fn named(mut self, number: u32) -> Striped<P> {
        self.name = u64::from(number) << 32;
        self
    }

    /// Bytes of memory that its tables take, over so many shards of this outside.
    pub fn bytes(shards: usize, each: &Shape) -> u64 {
        let longest = (each.max_bytes / STRIPE) as usize + 2;
        let depth = each.depth * shards;
        let waiting = Ring::<BlockReq>::bytes(each.depth + longest).saturating_mul(shards as u64);
        waiting + Slots::<Whole>::bytes(depth) + Ring::<u32>::bytes(depth)
    }

    /// Its outside.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How many shards it has.
    pub fn count(&self) -> usize {
        self.shards.len()
    }

    /// Whether nothing is inside.
    pub fn is_idle(&self) -> bool {
        self.inside.live() == 0
    }

    /// A shard.
    pub fn shard(&self, shard: usize) -> &P {
        &self.shards[shard].port
    }

    /// A shard, to be told what is no request.
    pub fn shard_mut(&mut self, shard: usize) -> &mut P {
        &mut self.shards[shard].port
    }

    /// The shards. What is inside is theirs to complete, and comes to nobody.
    pub fn into_shards(self) -> Vec<P> {
        self.shards.into_iter().map(|shard| shard.port).collect()
    }

    /// The shard that an address is in, and where in it.
    #[inline]
    fn place(&self, address: u64) -> (usize, u64) {
        let (stripe, count) = (address / STRIPE, self.shards.len() as u64);
        let (round, shard) = match self.shift {
            // Most often so, and division takes its time.
            Some(shift) => (stripe >> shift, stripe & (count - 1)),
            None => (stripe / count, stripe % count),
        };
        (shard as usize, round * STRIPE + address % STRIPE)
    }

    /// Takes the first of `cmds`, which lies in one stripe, and has it wait for its
    /// shard as it is. False when there is no room.
    #[inline]
    fn pass(&mut self, cmds: &mut Ring<BlockReq>, (id, offset): (u64, u64)) -> bool {
        let (shard, place) = self.place(offset);
        let waiting = &mut self.shards[shard].waiting;
        if waiting.room() == 0 {
            return false;
        }
        let slot = self.inside.take_as_is();
        let whole = &mut self.inside[slot];
        (whole.id, whole.left) = (id, UNCUT);
        if let Some(stories) = &mut self.stories {
            stories.came(slot, self.now);
        }
        let req = cmds.pop_to(waiting);
        (req.id, req.offset) = (self.name | u64::from(slot), place);
        true
    }

    /// Whether there is room for all pieces of a request that can be served.
    fn fits(&self, req: &BlockReq) -> bool {
        let is_data = matches!(req.op, BlockOp::Read | BlockOp::Write);
        let stripes = if is_data { (req.offset % STRIPE + req.len).div_ceil(STRIPE) } else { 0 };
        let pieces = stripes.div_ceil(self.shards.len() as u64).max(1);
        self.shards.iter().all(|shard| shard.waiting.room() as u64 >= pieces)
    }

    /// Takes any other, and has its pieces wait for their shards.
    fn cut(&mut self, now: Time, req: BlockReq, status: Status) {
        let BlockReq { id, op, fua, placement, queue, offset, len, buffer } = req;
        let buffer = Pieces::new(buffer);
        let slot = self.inside.take(Whole { id, op, status, at: now, left: 0, buffer });
        if let Some(stories) = &mut self.stories {
            stories.came(slot, now);
        }
        if !status.is_ok() {
            if let Some(stories) = &mut self.stories {
                stories.tell(now);
            }
            self.ready.put(|| slot);
            return;
        }
        let id = self.name | u64::from(slot);
        let piece =
            |offset, len, buffer| BlockReq { id, op, fua, placement, queue, offset, len, buffer };
        if matches!(op, BlockOp::Read | BlockOp::Write) {
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let len = (end - at).min(STRIPE - at % STRIPE);
                let (shard, place) = self.place(at);
                let buffer = self.inside[slot].buffer.take(self.shape.stored(len));
                self.shards[shard].waiting.put(|| piece(place, len, buffer));
                self.inside[slot].left += 1;
                at += len;
            }
            return;
        }
        let range = if op == BlockOp::Flush { (0, 0) } else { (offset, offset + len) };
        let count = self.shards.len();
        for (n, shard) in self.shards.iter_mut().enumerate() {
            let (at, end) = (share(range.0, count, n), share(range.1, count, n));
            if at < end || op == BlockOp::Flush {
                shard.waiting.put(|| piece(at, end - at, Buffer::empty()));
                self.inside[slot].left += 1;
            }
        }
    }

    /// Lets a shard do all that it can at `to`, also with what it refused.
    fn work(&mut self, shard: usize, to: Time, done: &mut Ring<BlockDone>) {
        while self.shards[shard].port.next_event().is_some_and(|at| at <= to) {
            if !self.step(shard, to, done) {
                return;
            }
        }
    }

    /// Advances a shard once. False when nothing came of it.
    fn step(&mut self, shard: usize, to: Time, done: &mut Ring<BlockDone>) -> bool {
        let Striped { shards, inside, ready, pieces, stories, .. } = self;
        let Shard { port, waiting, heard } = &mut shards[shard];
        port.advance(to, pieces);
        let before = waiting.len();
        if before > 0 {
            port.submit(to, waiting);
        }
        let moved = !pieces.is_empty() || waiting.len() < before;
        while let Some(piece) = pieces.front() {
            let slot = piece.id as u32;
            let whole = &mut inside[slot];
            if let Some(stories) = stories {
                *heard += 1;
                if matches!(whole.left, 1 | UNCUT) {
                    let at = if whole.left == UNCUT { piece.at } else { whole.at.max(piece.at) };
                    let below = |story: &mut Story| port.tell_story(*heard - 1, story);
                    stories.end(stories.when(slot), below, Part::Queue, at);
                }
            } else if whole.left == UNCUT && ready.is_empty() && done.room() > 0 {
                pieces.pop_to(done).id = whole.id;
                inside.give(slot);
                continue;
            }
            pieces.pop().into_iter().for_each(|piece| whole.end(piece));
            if whole.left == 0 {
                ready.put(|| slot);
            }
        }
        moved
    }

    /// One look at each shard, whatever it says of its next event, and gives what
    /// completed: for shards that may be looked at whenever somebody likes.
    pub fn look(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.now = to;
        self.tell(done);
        for shard in 0..self.shards.len() {
            self.step(shard, to, done);
        }
        self.tell(done);
    }

    /// Gives what waits for room, as far as there is some.
    fn tell(&mut self, done: &mut Ring<BlockDone>) {
        while done.room() > 0
            && let Some(slot) = self.ready.pop()
        {
            let whole = &mut self.inside[slot];
            let (id, op, status, at) = (whole.id, whole.op, whole.status, whole.at);
            let buffer = std::mem::take(&mut whole.buffer).whole();
            done.put(|| BlockDone { id, op, status, at, buffer });
            self.inside.give(slot);
        }
    }
}

/// The worse of two, whichever came first, as that is nothing to rely on.
fn worst(one: Status, other: Status) -> Status {
    let badness = |status: Status| match status {
        Status::HIGH_ECC => 1,
        Status(code) => code,
    };
    if badness(other) > badness(one) { other } else { one }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for Striped<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.now = now;
        while self.inside.room() > 0
            && let Some(req) = cmds.front()
        {
            let status = self.shape.check(req);
            let is_data = matches!(req.op, BlockOp::Read | BlockOp::Write);
            if status.is_ok() && is_data && req.offset % STRIPE + req.len <= STRIPE {
                let whole = (req.id, req.offset);
                if !self.pass(cmds, whole) {
                    break;
                }
                continue;
            }
            if status.is_ok() && !self.fits(req) {
                break;
            }
            let Some(req) = cmds.pop() else { break };
            self.cut(now, req, status);
        }
        for Shard { port, waiting, .. } in &mut self.shards {
            if !waiting.is_empty() {
                port.submit(now, waiting);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(self.now);
        }
        self.shards.iter().filter_map(|shard| shard.port.next_event()).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.now = to;
        self.tell(done);
        for shard in 0..self.shards.len() {
            self.work(shard, to, done);
        }
        self.tell(done);
    }

    fn hint(&self, req: &BlockReq) {
        let (shard, offset) = self.place(req.offset);
        let BlockReq { id, op, fua, len, .. } = *req;
        let buffer = Buffer::empty();
        self.shards[shard]
            .port
            .hint(&BlockReq { fua, ..BlockReq::new(id, op, offset, len, buffer) });
    }

    fn set_stories(&mut self, on: bool) {
        for shard in &mut self.shards {
            shard.port.set_stories(on);
            shard.heard = 0;
        }
        let depth = self.shape.depth;
        self.stories = on.then(|| Stories::new(depth, self.ready.len()));
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.stories.as_ref().is_some_and(|stories| stories.tell_of(number, story))
    }
}

#[cfg(test)]
mod tests;
