//! Schedulers: in which order staged requests go out.
//!
//! Three of them, and a field of [`crate::Config`] chooses: `none`, first come
//! first served; `deadline`, sorted by address ([`deadline`](self::deadline));
//! `fair`, shares by weight between cores ([`fair`](self::fair)). They order
//! numbers of entries in the staging queue's table and never touch a request.
//!
//! Guarantees: what was put in comes out exactly once; the same calls give the
//! same order; no allocation after they are made. Nothing fails but options
//! outside their range, and memory when one is made.

pub(crate) mod deadline;
pub(crate) mod fair;
pub(crate) mod links;

use port::{BlockReq, Ring, Time};

use crate::context::core_of;
use crate::error::ConfigError;
use crate::staging::{Outgoing, Table};

use deadline::Deadline;
use fair::Fair;

/// How staged requests are ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SchedulerKind {
    /// First come, first served.
    #[default]
    None,
    /// Sorted by address, reads before writes, none waiting past its deadline.
    Deadline(DeadlineOptions),
    /// Between submitters, by weight.
    Fair(FairOptions),
}

/// Options of the deadline scheduler, named as Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineOptions {
    /// A read that is staged for so many ns has expired: if it is the oldest,
    /// the next batch of reads starts with it.
    pub read_expire: u64,
    /// The same for a write.
    pub write_expire: u64,
    /// Batches of reads while a write waits.
    pub writes_starved: u32,
    /// Requests of a batch, in order of address; at least 1.
    pub fifo_batch: u32,
}

impl Default for DeadlineOptions {
    /// Linux's: 500 ms, 5 s, 2 batches, 16 requests.
    fn default() -> DeadlineOptions {
        DeadlineOptions {
            read_expire: 500_000_000,
            write_expire: 5_000_000_000,
            writes_starved: 2,
            fifo_batch: 16,
        }
    }
}

/// Options of the fair scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairOptions {
    /// Weight of each core, from the first, 1 to 1000; 1 for those not given.
    pub weights: Vec<u32>,
}

/// What memory that a scheduler does not get is for.
const WHAT: &str = "a scheduler";

/// The order of what is staged.
#[derive(Debug)]
pub(crate) enum Order {
    None(Ring<u32>),
    Deadline(Deadline),
    Fair(Fair),
}

impl Order {
    /// The order of at most `depth` requests of `cores` cores.
    pub fn new(kind: &SchedulerKind, depth: usize, cores: usize) -> Result<Order, ConfigError> {
        Ok(match kind {
            SchedulerKind::None => Order::None(Ring::try_new(depth, WHAT)?),
            SchedulerKind::Deadline(options) => Order::Deadline(Deadline::new(*options, depth)?),
            SchedulerKind::Fair(options) => Order::Fair(Fair::new(options, depth, cores)?),
        })
    }

    /// Bytes of memory that it takes.
    pub fn bytes(kind: &SchedulerKind, depth: usize, cores: usize) -> u64 {
        match kind {
            SchedulerKind::None => Ring::<u32>::bytes(depth),
            SchedulerKind::Deadline(_) => Deadline::bytes(depth),
            SchedulerKind::Fair(_) => Fair::bytes(depth, cores),
        }
    }

    /// Puts entry `slot` in.
    #[inline]
    pub fn push(&mut self, slot: u32, out: &Outgoing) {
        match self {
            Order::None(ring) => ring.put(|| slot),
            Order::Deadline(deadline) => deadline.push(slot, &out.req),
            Order::Fair(fair) => fair.push(slot, core_of(out.from)),
        }
    }

    /// Takes the entry that goes out next.
    #[inline]
    pub fn pop(&mut self, now: Time, table: &Table) -> Option<u32> {
        match self {
            Order::None(ring) => ring.pop(),
            Order::Deadline(deadline) => deadline.pop(now, table),
            Order::Fair(fair) => fair.pop(table),
        }
    }

    /// Whether requests of two cores may be one: not where cores have shares.
    pub fn mixes(&self, a: u32, b: u32) -> bool {
        core_of(a) == core_of(b) || !matches!(self, Order::Fair(_))
    }

    /// Entries that may lie beside `req`, found by address.
    pub fn beside(&self, req: &BlockReq) -> [Option<u32>; 2] {
        match self {
            Order::Deadline(deadline) => deadline.beside(req),
            _ => [None; 2],
        }
    }

    /// The address of entry `slot` is now that of `req`.
    pub fn readdress(&mut self, slot: u32, req: &BlockReq) {
        if let Order::Deadline(deadline) = self {
            deadline.readdress(slot, req);
        }
    }
}
