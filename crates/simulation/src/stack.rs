//! The stacks that are simulated: a target, a drive, a link somewhere, perhaps a
//! protected cache above, a read cache, and perhaps the block layer above all.

use std::error::Error;

use device::{BufferMemory, Buffered, Cached, Coarse, Link, Queued};
use ftl::WriteCounters;
use nvram::{Journal, JournalError, Protected};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, OutOfMemory, Port, Ring, Shape, Time};
use thiserror::Error;

use crate::battery::Battery;
use crate::drive::Drive;
use crate::layered::{LayerBreak, Layered};
use crate::machine::{CHECK_BLOCKS, MOST_AT_ONCE};
use crate::power::Flash;
use crate::setup::{LinkAt, Setup};
use crate::shared::Tenants;
use crate::species::{Alive, Host, Lower};
use crate::trouble::Troubles;

/// A drive that does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The target does not.
    #[error(transparent)]
    Target(Box<dyn Error + Send + Sync>),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The protected cache does not.
    #[error(transparent)]
    Cache(#[from] JournalError),
}

/// A target over a drive, and perhaps a link above.
pub enum Under {
    /// No link above; there may be one below.
    Direct(Box<dyn Alive>),
    /// The same, and a map of units of several blocks.
    Coarse(Box<Coarse<Box<dyn Alive>>>),
    /// A conventional drive behind a link.
    Linked(Box<Link<Box<dyn Alive>>>),
    /// One whose data cross the memory of a buffer.
    Buffered(Box<Link<Buffered<Box<dyn Alive>>>>),
    /// One with submission queues before it.
    Queued(Box<Queued<Box<dyn Alive>>>),
}

/// Calls the same of whichever stack it is.
macro_rules! each {
    ($stack:expr, $port:ident => $call:expr) => {
        match $stack {
            Under::Direct($port) => $call,
            Under::Coarse($port) => $call,
            Under::Linked($port) => $call,
            Under::Buffered($port) => $call,
            Under::Queued($port) => $call,
        }
    };
}

impl Under {
    /// See [`Stack::start`].
    fn start(
        setup: &Setup,
        flash: &Flash,
        fresh: bool,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<(Under, Time), StartError> {
        let drive = flash.drive(&setup.timing, fresh, seed)?;
        let drive = Drive::new(drive, flash, troubles, seed);
        let drive = drive.expect("the rules are for vector commands");
        let drive = drive.with_parity(setup.parity, flash).expect("a setup's width fits its drive");
        let buffer = (setup.buffer_rate > 0).then(|| BufferMemory::new(setup.buffer_rate));
        let lower: Lower = match (setup.link_at, &buffer) {
            (LinkAt::Below, _) => Box::new(Link::new(setup.link, drive)),
            (_, Some(memory)) => Box::new(Buffered::new(memory.clone(), drive)),
            (LinkAt::Nowhere | LinkAt::Above, None) => Box::new(drive),
        };
        let (target, at) = setup.species.start(lower, setup, fresh).map_err(StartError::Target)?;
        let under = match setup.link_at {
            LinkAt::Above => match buffer {
                Some(memory) => {
                    let target = Buffered::new(memory, target);
                    Under::Buffered(Box::new(Link::new(setup.link, target)))
                }
                None if setup.queues.is_on() => {
                    let link = Link::new(setup.link, target);
                    Under::Queued(Box::new(Queued::new(&setup.queues, link)))
                }
                None => Under::Linked(Box::new(Link::new(setup.link, target))),
            },
            LinkAt::Below | LinkAt::Nowhere if setup.unit > 1 => {
                let shape = target.shape();
                Under::Coarse(Box::new(Coarse::new(setup.unit * BLOCK_BYTES, target, shape)?))
            }
            LinkAt::Below | LinkAt::Nowhere => Under::Direct(target),
        };
        Ok((under, at))
    }

    fn target(&self) -> &dyn Alive {
        match self {
            Under::Direct(target) => &**target,
            Under::Coarse(units) => &**units.below(),
            Under::Linked(link) => &**link.below(),
            Under::Buffered(link) => &**link.below().below(),
            Under::Queued(queues) => &**queues.below().below(),
        }
    }

    fn target_mut(&mut self) -> &mut dyn Alive {
        match self {
            Under::Direct(target) => &mut **target,
            Under::Coarse(units) => &mut **units.below_mut(),
            Under::Linked(link) => &mut **link.below_mut(),
            Under::Buffered(link) => &mut **link.below_mut().below_mut(),
            Under::Queued(queues) => &mut **queues.below_mut().below_mut(),
        }
    }

    fn shape(&self) -> Shape {
        self.target().shape()
    }

    fn drive(&self) -> &Drive {
        self.target().below().drive()
    }
}

impl Port for Under {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        each!(self, port => port.submit(now, reqs));
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        each!(self, port => port.next_event())
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        each!(self, port => port.advance(to, done));
    }
}

/// A block drive, from the host's side down to the flash.
pub enum Stack {
    /// The target, and the journal of a cache that was above it until it was
    /// shut down.
    Plain(Under, Option<Journal<Battery>>),
    /// With a protected cache.
    Protected(Box<Protected<Under, Battery>>),
    /// One of these below a read cache.
    Cached(Box<Cached<Stack>>),
    /// One of these below the block layer.
    Layered(Box<Layered>),
}

impl Stack {
    /// The stack of a setup over flash: `fresh` where nothing was written to
    /// it, else recovered. It has these troubles, decided by `seed`, and a
    /// protected cache in the battery's memory where there is one. Gives it and
    /// the time at which it is ready.
    pub fn start(
        setup: &Setup,
        (flash, battery): (&Flash, Option<&Battery>),
        fresh: bool,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<(Stack, Time), StartError> {
        let (under, at) = Under::start(setup, flash, fresh, troubles, seed)?;
        let (stack, shape, at) = match battery {
            None => {
                let shape = under.shape();
                (Stack::Plain(under, None), shape, at)
            }
            Some(battery) => {
                if fresh {
                    battery.format()?;
                }
                let shape = protected_shape(under.shape());
                let (protected, started) = Protected::start(under, shape, battery.clone(), at)?;
                (Stack::Protected(Box::new(protected)), shape, started.ready)
            }
        };
        let stack = match setup.read_cache {
            cache if cache.is_on() => Stack::Cached(Box::new(Cached::new(cache, stack, shape)?)),
            _ => stack,
        };
        Ok((stack, at))
    }

    /// The same below the block layer of a setup, if it has one; that may break
    /// a promise.
    pub fn layered(self, setup: &Setup, broken: Option<LayerBreak>, seed: u64) -> Stack {
        let Some(layers) = &setup.layers else { return self };
        Stack::Layered(Box::new(Layered::new(self, layers, broken, seed)))
    }

    fn of_under<R>(&self, what: impl FnOnce(&Under) -> R) -> R {
        match self {
            Stack::Plain(under, _) => what(under),
            Stack::Protected(protected) => what(protected.below()),
            Stack::Cached(cached) => cached.below().of_under(what),
            Stack::Layered(layered) => layered.ask(|stack| stack.of_under(what)),
        }
    }

    /// What a host may send.
    pub fn shape(&self) -> Shape {
        self.of_under(Under::shape)
    }

    /// A host that knows the target.
    pub fn host(&self) -> Host {
        self.of_under(|under| under.target().host())
    }

    /// What the target wrote and collected since power came.
    pub fn counters(&self) -> WriteCounters {
        self.of_under(|under| under.target().counters())
    }

    /// Pages of its map that the target read since power came, as a request needed them.
    pub fn map_reads(&self) -> u64 {
        let counters = self.of_under(|under| under.target().map_cache());
        counters.map_or(0, |counters| counters.read)
    }

    /// Whether the drive did not take what its cache has.
    pub fn is_frozen(&self) -> bool {
        match self {
            Stack::Plain(..) => false,
            Stack::Protected(protected) => protected.frozen().is_some(),
            Stack::Cached(cached) => cached.below().is_frozen(),
            Stack::Layered(layered) => layered.ask(Stack::is_frozen),
        }
    }

    /// Several targets, one of which may be asked by key, with nothing above but a link.
    pub(crate) fn tenants(&mut self) -> Option<&mut Tenants> {
        match self {
            Stack::Plain(under, _) => under.target_mut().tenants(),
            Stack::Protected(_) | Stack::Cached(_) | Stack::Layered(_) => None,
        }
    }

    /// Operations of the drive that were late.
    pub fn delays(&self) -> u64 {
        self.of_under(|under| under.drive().delays())
    }

    /// Reads that a read cache answered.
    pub fn cache_hits(&self) -> u64 {
        match self {
            Stack::Plain(..) | Stack::Protected(_) => 0,
            Stack::Cached(cached) => cached.counters().hits,
            Stack::Layered(layered) => layered.ask(Stack::cache_hits),
        }
    }

    /// Requests that the block layer merged with another.
    pub fn merged(&self) -> u64 {
        if let Stack::Layered(layered) = self { layered.merged() } else { 0 }
    }

    /// See [`Layered::failed_with`].
    pub fn failed_with(&self, op: BlockOp, bytes: (u64, u64)) -> (u64, u64) {
        if let Stack::Layered(layered) = self { layered.failed_with(op, bytes) } else { bytes }
    }

    /// A hash of the target and of the drive.
    pub fn state_hash(&self) -> u64 {
        self.of_under(|under| {
            let target = under.target().state_hash();
            workload::rng::mix(target) ^ under.drive().state_hash()
        })
    }

    /// Whether it can be shut down: nothing is inside.
    pub fn is_idle(&self) -> bool {
        match self {
            Stack::Plain(..) => true,
            Stack::Protected(protected) => protected.is_idle(),
            Stack::Cached(cached) => cached.is_idle() && cached.below().is_idle(),
            Stack::Layered(layered) => layered.is_idle(),
        }
    }

    /// Shuts it down; it is idle. The block layer and caches are taken
    /// off. See [`ftl::Target::close`].
    pub fn close(self, now: Time) -> Stack {
        let (mut under, journal) = match self {
            Stack::Plain(under, journal) => (under, journal),
            Stack::Protected(protected) => protected.into_below(),
            Stack::Cached(cached) => return cached.into_below().close(now),
            Stack::Layered(layered) => return layered.into_below().close(now),
        };
        under.target_mut().close(now);
        Stack::Plain(under, journal)
    }

    /// Whether it is shut down, and all is durable.
    pub fn is_closed(&self) -> bool {
        self.of_under(|under| under.target().is_closed())
    }

    /// Forgets what the protected cache had, which is all on flash now.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        match self {
            Stack::Plain(_, Some(journal)) => journal.clear(),
            _ => Ok(()),
        }
    }
}

impl Port for Stack {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        match self {
            Stack::Plain(under, _) => under.submit(now, reqs),
            Stack::Protected(protected) => protected.submit(now, reqs),
            Stack::Cached(cached) => cached.submit(now, reqs),
            Stack::Layered(layered) => layered.submit(now, reqs),
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        match self {
            Stack::Plain(under, _) => under.next_event(),
            Stack::Protected(protected) => protected.next_event(),
            Stack::Cached(cached) => cached.next_event(),
            Stack::Layered(layered) => layered.next_event(),
        }
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        match self {
            Stack::Plain(under, _) => under.advance(to, done),
            Stack::Protected(protected) => protected.advance(to, done),
            Stack::Cached(cached) => cached.advance(to, done),
            Stack::Layered(layered) => layered.advance(to, done),
        }
    }
}

/// What a protected cache lets in: no more than the machine sends, so that its
/// journal may be small.
fn protected_shape(shape: Shape) -> Shape {
    Shape { max_bytes: CHECK_BLOCKS * BLOCK_BYTES, depth: MOST_AT_ONCE, ..shape }
}

/// Bytes of a protected cache that is often full.
pub fn protected_bytes(kept: u32) -> usize {
    let longest = CHECK_BLOCKS as usize * kept as usize;
    // The journal's own bytes; then four of the longest requests.
    4096 + (4 * (longest + 512)).next_multiple_of(4096)
}
