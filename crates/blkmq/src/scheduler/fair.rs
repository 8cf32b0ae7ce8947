//! The fair scheduler: each core its share.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, 1996). A request costs 1 for
//! each 4 KiB that it reads or writes, rounded up, and at least 1; flushes,
//! trims and write-zeroes move no data and cost 1. Virtual time is the start
//! of the request that went out last. A request starts when its core's last
//! one ended, or at the present virtual time if that is later, and ends its
//! cost divided by its core's weight after; the earliest start goes out next.
//!
//! Guarantees: while two cores both have requests staged, what they got,
//! divided by their weights, differs by at most one request of each, so
//! divided. A core that was idle starts at the present: it has saved up
//! nothing, and it goes before cores that have had their share. A core's own
//! requests keep their order.

use port::lazy::room_for;
use port::{BLOCK_BYTES, BlockOp, BlockReq};

use super::links::{Links, List};
use super::{FairOptions, WHAT};
use crate::error::ConfigError;
use crate::staging::Table;
use crate::topology::MOST_CORES;

/// The largest weight.
pub const MOST_WEIGHT: u32 = 1000;

/// Virtual time of a request that costs 1, of a core of weight 1. Large, so
/// that dividing it by a weight rounds off less than a thousandth.
const UNIT: u64 = 1 << 20;
/// The most that a request costs: 256 MiB.
const MOST_COST: u64 = 1 << 16;
/// When virtual time is set back to zero, far from where it would overflow.
const SET_BACK: u64 = 1 << 62;

/// A core's requests.
#[derive(Debug)]
struct Flow {
    list: List,
    /// When its oldest request starts; without one, when its last one ended.
    start: u64,
    /// Virtual time of a cost of 1.
    step: u64,
}

/// A core with requests, and when its oldest one starts. Of equal ones, the
/// one that came first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    start: u64,
    came: u64,
    core: u32,
}

/// The scheduler.
#[derive(Debug)]
pub(crate) struct Fair {
    flows: Box<[Flow]>,
    links: Links,
    /// A heap of the cores that have requests, the earliest on top.
    turns: Vec<Turn>,
    /// Virtual time.
    now: u64,
    /// Turns so far.
    came: u64,
}

impl Fair {
    /// For at most `depth` requests of `cores` cores.
    pub fn new(options: &FairOptions, depth: usize, cores: usize) -> Result<Fair, ConfigError> {
        ConfigError::range("cores", cores, 1, MOST_CORES)?;
        ConfigError::range("number of weights", options.weights.len(), 0, cores)?;
        for &weight in &options.weights {
            ConfigError::range("weight", weight as usize, 1, MOST_WEIGHT as usize)?;
        }
        let flow = |core| {
            let weight = options.weights.get(core).copied().unwrap_or(1);
            Flow { list: List::EMPTY, start: 0, step: UNIT / u64::from(weight) }
        };
        let mut flows = room_for(cores, WHAT)?;
        flows.extend((0..cores).map(flow));
        Ok(Fair {
            flows: flows.into(),
            links: Links::new(depth)?,
            turns: room_for(cores, WHAT)?,
            now: 0,
            came: 0,
        })
    }

    /// Bytes of memory that it takes.
    pub fn bytes(depth: usize, cores: usize) -> u64 {
        let core = size_of::<Flow>() + size_of::<Turn>();
        Links::bytes(depth) + cores as u64 * core as u64
    }

    /// Puts entry `slot` of core `from` in.
    ///
    /// # Panics
    /// When there is no such core.
    pub fn push(&mut self, slot: u32, from: u32) {
        let flow = &mut self.flows[from as usize];
        let idle = flow.list.head().is_none();
        self.links.push(&mut flow.list, slot);
        if idle {
            flow.start = flow.start.max(self.now);
            let turn = Turn { start: flow.start, came: self.came, core: from };
            self.came += 1;
            self.turns.push(turn);
            self.sift_up(self.turns.len() - 1);
        }
    }

    /// Takes the entry that goes out next.
    pub fn pop(&mut self, table: &Table) -> Option<u32> {
        let Turn { start, core, .. } = *self.turns.first()?;
        let flow = &mut self.flows[core as usize];
        let slot = flow.list.head().expect("a core with a turn has a request");
        self.links.remove(&mut flow.list, slot);
        self.now = start;
        flow.start = start + cost(&table[slot].out.req) * flow.step;
        if flow.list.head().is_some() {
            self.turns[0] = Turn { start: flow.start, came: self.came, core };
            self.came += 1;
        } else {
            self.turns.swap_remove(0);
        }
        self.sift_down();
        if self.now >= SET_BACK {
            self.set_back();
        }
        Some(slot)
    }

    /// Moves a turn up to its place in the heap.
    fn sift_up(&mut self, mut at: usize) {
        while at > 0 && self.turns[at] < self.turns[(at - 1) / 2] {
            self.turns.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Moves the turn on top down to its place in the heap.
    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(turn) = self.turns.get(left) else { return };
            let least = if self.turns.get(right).is_some_and(|r| r < turn) { right } else { left };
            if self.turns[at] <= self.turns[least] {
                return;
            }
            self.turns.swap(at, least);
            at = least;
        }
    }

    /// Starts virtual time at zero again. What lies ahead keeps its distance;
    /// what lies behind counts as now, as it would anyhow.
    #[cold]
    fn set_back(&mut self) {
        for flow in &mut self.flows {
            flow.start = flow.start.saturating_sub(self.now);
        }
        for turn in &mut self.turns {
            turn.start = turn.start.saturating_sub(self.now);
        }
        self.now = 0;
    }
}

/// What a request costs.
#[inline]
fn cost(req: &BlockReq) -> u64 {
    match req.op {
        BlockOp::Read | BlockOp::Write => req.len.div_ceil(BLOCK_BYTES).clamp(1, MOST_COST),
        BlockOp::Flush | BlockOp::Trim | BlockOp::WriteZeroes => 1,
    }
}

#[cfg(test)]
mod tests;
