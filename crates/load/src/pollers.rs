//! The shards of a drive, each polled by one of several cores.
//!
//! ```text
//!  core 0: load ─▶ context ─▶ Poller            core 1: load ─▶ context ─▶ Poller
//!                              │   ╲──── ring ─────▶ shard 1 ◀──── │
//!                              ▼ ──▶ shard 0 ◀──── ring ──────────╱
//! ```
//!
//! A poller is a core's dispatch queue to the whole drive, and polls the shards
//! that are its own: it serves them also to the other pollers. A request for a
//! shard of another goes there by a ring of one producer and comes back by one, all
//! of a turn at once. Its buffer stays where it is: the shard's core copies.
//! Nothing else is shared, and nobody sleeps. So a shard is looked at as often as
//! its poller is, which therefore goes on until all have ended
//! ([`crate::real::Course`]).
//!
//! A shard sees arrivals by its poller's clock, and does what it would do for the
//! same arrivals by itself, to the bit. Nothing here fails; when a core's thread
//! died, the drive is gone.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blkmq::driver::Abort;
use blkmq::{Driver, HardwareQueue};
use device::queue::{DriveEnd, HostEnd, queue_pair};
use device::realtime::RealTime;
use port::{BlockDone, BlockReq, Port, Ring, Shape, Striped, Time};

/// Completions that are taken from a shard at once.
const DONE: usize = 64;

/// Where the number of a poller is in the ids of its requests.
const POLLER: u32 = 32;

/// A poller's end of the rings to a shard of another.
type There = HostEnd<BlockReq, BlockDone>;

/// A shard's end of the rings to another poller, and what completed of its
/// requests in this turn.
#[repr(align(128))]
struct Client {
    end: DriveEnd<BlockReq, BlockDone>,
    done: Ring<BlockDone>,
}

/// A shard of this poller's own.
#[repr(align(128))]
struct Here<P: Port> {
    real: RealTime<P>,
    /// The number of this poller, and the others in the order of theirs.
    own: usize,
    clients: Vec<Client>,
    /// What the others asked for and the shard did not take yet, and what this
    /// poller did.
    theirs: Ring<BlockReq>,
    mine: Ring<BlockReq>,
    /// The shard was full: at the next look what is this poller's goes first.
    is_own_turn: bool,
    done: Ring<BlockDone>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Here<P> {
    /// Takes what the other pollers ask for.
    fn take(&mut self) {
        for client in &mut self.clients {
            let theirs = &mut self.theirs;
            let before = theirs.len();
            client.end.take(theirs.room(), |req| theirs.put(|| req));
            let new = (before..theirs.len()).filter_map(|i| theirs.get(i));
            new.for_each(|req| self.real.port().hint(req));
        }
    }

    /// A look at the shard for all of its clients. `done` has room for [`DONE`].
    ///
    /// The others are served first, so that they have what they wait for while this
    /// poller goes on with its own; where the shard is full, they take turns.
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.take();
        if self.is_own_turn {
            self.real.submit(to, &mut self.mine);
        }
        self.real.submit(to, &mut self.theirs);
        self.real.poll(to, &mut self.done);
        self.give(done);
        self.real.submit(to, &mut self.mine);
        self.is_own_turn = !self.is_own_turn && !self.mine.is_empty();
    }

    /// Gives what completed to whom it belongs.
    fn give(&mut self, done: &mut Ring<BlockDone>) {
        while let Some(one) = self.done.front() {
            let poller = (one.id >> POLLER) as usize;
            let all = match poller.cmp(&self.own) {
                Equal => &mut *done,
                Less => &mut self.clients[poller].done,
                Greater => &mut self.clients[poller - 1].done,
            };
            self.done.pop_to(all);
        }
        for Client { end, done } in &mut self.clients {
            end.complete_all(done);
        }
    }
}

/// A shard, as a poller sees it.
enum Way<P: Port> {
    Here(Box<Here<P>>),
    There(There),
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for Way<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, _: Time, cmds: &mut Ring<BlockReq>) {
        match self {
            Way::Here(here) => {
                cmds.pour(&mut here.mine);
            }
            Way::There(there) => {
                there.submit(cmds);
            }
        }
    }

    /// Whoever polls looks all the time.
    fn next_event(&self) -> Option<Time> {
        Some(Time::ZERO)
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        match self {
            Way::Here(here) => here.advance(to, done),
            Way::There(there) => {
                there.poll(done);
            }
        }
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        if let Way::Here(here) = self {
            here.real.port().hint(req);
        }
    }
}

/// The driver of a drive whose shards are polled by several cores.
pub struct Pollers<P: Port> {
    pollers: Vec<Poller<P>>,
    depth: usize,
}

/// Bytes of memory that so many pollers take, of shards with so many requests each,
/// about.
pub fn bytes(count: usize, shards: usize, depth: usize) -> u64 {
    // Of each request that may be inside, its place, on its way down and back.
    let each = 4 * size_of::<BlockReq>() + 2 * size_of::<BlockDone>();
    let all = (count as u64).saturating_mul(shards as u64).saturating_mul(depth as u64);
    all.saturating_mul(each as u64)
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Pollers<P> {
    /// So many pollers, with at most `depth` requests inside each, of the shards of
    /// a drive of `bytes`, which are dealt out to them in turn. `each` is the outside
    /// of any shard, but for its bytes. The drive is gone when `broken` is set: a
    /// poller will poll no more.
    pub fn new(
        shards: Vec<P>,
        (bytes, each): (u64, Shape),
        (count, depth): (usize, usize),
        broken: &Arc<AtomicBool>,
    ) -> Pollers<P> {
        let mut ways: Vec<Vec<Way<P>>> = (0..count).map(|_| Vec::new()).collect();
        for (number, port) in shards.into_iter().enumerate() {
            let owner = number % count;
            let mut clients = Vec::new();
            for poller in (0..count).filter(|&poller| poller != owner) {
                let (there, end) = queue_pair(each.depth);
                ways[poller].push(Way::There(there));
                clients.push(Client { end, done: Ring::new(DONE) });
            }
            let here = Here {
                real: RealTime::new(port),
                own: owner,
                clients,
                theirs: Ring::new(each.depth * count),
                mine: Ring::new(each.depth),
                is_own_turn: false,
                done: Ring::new(DONE),
            };
            ways[owner].push(Way::Here(Box::new(here)));
        }
        let poller = |(number, ways)| Poller {
            striped: Striped::new(ways, bytes, each).named(number),
            broken: broken.clone(),
            last: Time::ZERO,
            depth,
        };
        Pollers { pollers: (0..).zip(ways).map(poller).collect(), depth }
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Driver for Pollers<P> {
    type Queue = Poller<P>;

    fn shape(&self) -> Shape {
        self.pollers[0].striped.shape()
    }

    fn queues(&self) -> [usize; 3] {
        [self.pollers.len(), 0, 0]
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn open(self) -> Vec<Poller<P>> {
        self.pollers
    }
}

/// A core's way to all shards, which polls its own.
pub struct Poller<P: Port> {
    striped: Striped<Way<P>>,
    broken: Arc<AtomicBool>,
    /// The latest time given.
    last: Time,
    depth: usize,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for Poller<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.last = now;
        self.striped.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        Some(self.last)
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        self.striped.look(to, done);
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.striped.hint(req);
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> HardwareQueue for Poller<P> {
    fn depth(&self) -> usize {
        self.depth
    }

    fn is_gone(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// A drive of ours loses nothing, as long as all of it is polled.
    fn abort(&mut self, _id: u64) -> Abort {
        if self.is_gone() { Abort::Lost } else { Abort::Working }
    }
}

#[cfg(test)]
mod tests;
