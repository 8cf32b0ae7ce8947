//! The cores of a block layer on one thread, for virtual time.
//!
//! Requests go to the cores' contexts as their submitters lie: in a closed
//! loop so many places of the load are a core's, in an open one cores take
//! turns. Completions come back whichever core has them.
//!
//! Guarantees: a core's requests keep their order on the way in; what a
//! context refuses waits here and goes in as soon as it has room. Cores that
//! do something at the same moment take turns at being first. The same calls
//! give the same completions. Nothing here fails.

use std::sync::Arc;

use blkmq::{Context, HardwareQueue};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Time};
use targets::WriteCounters;

use drive::lent::Figures;
use drive::whole::Observed;

/// How requests find their core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// So many numbers of requests in a row are a core's.
    Places(u64),
    /// The cores take turns.
    Turns,
}

/// All contexts of a block layer, and what waits in front of each.
pub struct Cores<Q: HardwareQueue> {
    contexts: Vec<Context<Q>>,
    waiting: Vec<Ring<BlockReq>>,
    /// Requests other than flushes that each core gave back, done.
    done: Vec<u64>,
    route: Route,
    /// The core that took the last request of an open loop.
    turn: usize,
    /// The core that is first now.
    first: usize,
    figures: Vec<Arc<Figures>>,
}

impl<Q: HardwareQueue> Cores<Q> {
    /// The cores of `contexts`, of which each is asked for at most `most`
    /// requests at once. `figures` are those of the drive below.
    pub fn new(
        contexts: Vec<Context<Q>>,
        route: Route,
        most: usize,
        figures: Vec<Arc<Figures>>,
    ) -> Cores<Q> {
        let waiting = contexts.iter().map(|_| Ring::new(most)).collect();
        let done = vec![0; contexts.len()];
        Cores { contexts, waiting, done, route, turn: 0, first: 0, figures }
    }

    /// The contexts.
    pub fn contexts(&mut self) -> &mut [Context<Q>] {
        &mut self.contexts
    }

    /// How many requests other than flushes each core gave back, those that
    /// failed apart.
    pub fn done(&self) -> &[u64] {
        &self.done
    }

    /// Lets each core take what waits for it.
    fn offer(&mut self, now: Time) {
        for core in self.in_turn() {
            if !self.waiting[core].is_empty() {
                self.contexts[core].submit(now, &mut self.waiting[core]);
            }
        }
    }

    /// All cores, from the one that is first.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<Q> {
        let (first, cores) = (self.first, self.contexts.len());
        (first..cores).chain(0..first)
    }

    fn core_of(&mut self, id: u64) -> usize {
        let cores = self.contexts.len();
        match self.route {
            Route::Places(each) => (id / each) as usize % cores,
            Route::Turns => {
                self.turn = (self.turn + 1) % cores;
                self.turn
            }
        }
    }
}

impl<Q: HardwareQueue> Port for Cores<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        if let [context] = &mut self.contexts[..] {
            context.submit(now, cmds);
            return;
        }
        while let Some(id) = cmds.front().map(|req| req.id) {
            let core = self.core_of(id);
            if self.waiting[core].room() == 0 {
                break;
            }
            let Some(req) = cmds.pop() else { break };
            self.waiting[core].put(|| req);
        }
        self.offer(now);
    }

    fn next_event(&self) -> Option<Time> {
        self.contexts.iter().filter_map(Port::next_event).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        for core in self.in_turn() {
            let before = done.len();
            self.contexts[core].advance(to, done);
            let new = (before..done.len()).filter_map(|i| done.get(i));
            self.done[core] +=
                new.filter(|one| one.op != BlockOp::Flush && one.status.is_ok()).count() as u64;
        }
        if self.contexts.len() > 1 {
            self.offer(to);
            self.first = (self.first + 1) % self.contexts.len();
        }
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        if let [context] = &self.contexts[..] {
            context.hint(req);
        }
    }
}

impl<Q: HardwareQueue> Observed for Cores<Q> {
    fn counters(&self) -> WriteCounters {
        self.figures.iter().map(|f| f.counters()).sum()
    }

    fn free_chunks(&self) -> u64 {
        self.figures.iter().map(|f| f.free_chunks()).sum()
    }
}
