//! Where requests wait: for a time, for what they gave up to be written down, for their
//! limit, for room on the way to a remote drive, or for their turn in a unit. Each waits by itself, and all is bounded: no request
//! holds up another's but in the unit, or by the limit, for which both wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use device::OpenChannel;
use port::{Status, Time};
use rules::parse::{MOST_APPLICATIONS, MOST_TABLES};

use crate::mutation::{self, Mutation};
use crate::work::{Todo, Work};
use crate::{DEPTH, FORGOTTEN, Ruled};

/// Weighed reads of a unit that may be under way. With the next one at hand it is never idle.
const READS: u32 = 2;
/// What a unit's clock moves on by for a block of weight 1.
const TICK: u64 = 1 << 20;

/// For what a request waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Until(Time),
    Tombs,
    Limit,
    Unit { unit: usize, is_read: bool },
    Remote(usize),
}

/// Those that wait for one unit: the applications have it by their weights (start-time fair
/// queueing, Goyal, Vin and Cheng 1996).
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Vec<Waiter>,
    clock: u64,
    /// When what an application asked for so far is over.
    flows: Vec<(u16, u64)>,
    /// So many waited here.
    order: u64,
    /// Weighed reads under way.
    pub reads: u32,
}

#[derive(Debug)]
struct Waiter {
    slot: u32,
    start: u64,
    order: u64,
    is_read: bool,
}

impl Queue {
    fn new() -> Queue {
        let (waiting, flows) = (Vec::new(), Vec::with_capacity(MOST_APPLICATIONS));
        Queue { waiting, clock: 0, flows, order: 0, reads: 0 }
    }

    /// Whether none waits, of reads or of writes.
    pub fn is_free(&self, is_read: bool) -> bool {
        self.waiting.iter().all(|waiter| waiter.is_read != is_read)
    }

    fn push(&mut self, slot: u32, application: u16, weight: u32, is_read: bool) {
        let clock = self.clock;
        self.flows.retain(|flow| flow.1 > clock);
        let at = self.flows.iter().position(|flow| flow.0 == application).unwrap_or_else(|| {
            self.flows.push((application, clock));
            self.flows.len() - 1
        });
        let start = self.flows[at].1;
        self.flows[at].1 = start + (TICK / u64::from(weight.max(1))).max(1);
        self.order += 1;
        self.waiting.push(Waiter { slot, start, order: self.order, is_read });
    }

    /// Takes the one whose turn it is.
    fn pop(&mut self, is_read: bool) -> Option<u32> {
        let all = self.waiting.iter().enumerate().filter(|(_, w)| w.is_read == is_read);
        let (n, _) = all.min_by_key(|(_, w)| (w.start, w.order))?;
        let Waiter { slot, start, .. } = self.waiting.swap_remove(n);
        self.clock = self.clock.max(start);
        Some(slot)
    }
}

/// Requests that wait.
pub(crate) struct Waits {
    /// By request, the one whose next block waits.
    held: Vec<Option<Work>>,
    /// How many these are.
    count: u32,
    timed: BinaryHeap<Reverse<(Time, u64, u32)>>,
    /// So many waited for a time.
    order: u64,
    /// No rule has anything wait for a time.
    is_hurried: bool,
    tombs: Vec<u32>,
    limited: Vec<u32>,
    /// By limit of the set, requests under way.
    under_way: Vec<u32>,
    /// One of them has ended.
    has_ended: bool,
    /// By unit.
    pub queues: Vec<Queue>,
    /// Requests that wait for a unit.
    queued: u32,
}

impl Waits {
    pub fn new(units: usize) -> Waits {
        Waits {
            held: (0..DEPTH).map(|_| None).collect(),
            count: 0,
            timed: BinaryHeap::with_capacity(DEPTH),
            order: 0,
            is_hurried: false,
            tombs: Vec::with_capacity(DEPTH),
            limited: Vec::with_capacity(DEPTH),
            under_way: vec![0; MOST_TABLES],
            has_ended: false,
            queues: (0..units).map(|_| Queue::new()).collect(),
            queued: 0,
        }
    }

    /// When the first of those that wait for a time goes on.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        self.timed.peek().map(|first| first.0.0)
    }

    /// Until when a block waits that rules delay by so many ns, if it does.
    #[inline]
    pub fn until(&self, now: Time, delay: u64) -> Option<Time> {
        (delay > 0 && !self.is_hurried).then(|| Time(now.0.saturating_add(delay)))
    }

    /// From now on rules delay nothing, nor what waits by them; or they do again. What the
    /// control plane is asked about waits for that, which answers soon.
    fn set_hurried(&mut self, is_hurried: bool, now: Time) {
        self.is_hurried = is_hurried;
        if is_hurried {
            let mut timed = std::mem::take(&mut self.timed).into_vec();
            for Reverse((at, _, slot)) in &mut timed {
                let held = self.held[*slot as usize].as_ref();
                let is_asked = held.is_some_and(|work| work.waiting.is_some());
                *at = if is_asked { *at } else { now.min(*at) };
            }
            self.timed = timed.into();
        }
    }

    /// An entry was given up: what it leads to next may be another block, for which reads that
    /// wait do not ask.
    pub fn ask_again(&mut self, owner: u64) {
        if self.count == 0 || mutation::is(Mutation::ServeGivenUp) {
            return;
        }
        for block in self.held.iter_mut().flatten().filter_map(|work| work.block.as_mut()) {
            if matches!(block.todo, Todo::Read { owner: its } if its == owner) {
                block.todo = Todo::Again;
            }
        }
    }

    /// Takes one that goes on.
    pub fn take(&mut self, slot: u32) -> Option<Work> {
        let work = self.held[slot as usize].take();
        self.count -= u32::from(work.is_some());
        work
    }

    /// Takes a place among those of a limit, if there is one.
    pub fn enter(&mut self, limit: u16, most: u32) -> bool {
        let under_way = &mut self.under_way[usize::from(limit)];
        let has_room = *under_way < most;
        *under_way += u32::from(has_room);
        has_room
    }

    /// Gives it back.
    pub fn leave(&mut self, limit: u16) {
        self.under_way[usize::from(limit)] -= 1;
        self.has_ended = true;
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// A request waits.
    pub(crate) fn hold(&mut self, work: Work, wait: Wait) {
        let (waits, slot) = (&mut self.waits, work.slot);
        match wait {
            Wait::Until(at) => {
                waits.order += 1;
                waits.timed.push(Reverse((at, waits.order, slot)));
            }
            Wait::Tombs => waits.tombs.push(slot),
            Wait::Limit => waits.limited.push(slot),
            Wait::Unit { unit, is_read } => {
                let weight = work.block.as_ref().and_then(|block| block.share).unwrap_or(1);
                waits.queues[unit].push(slot, work.asked.application, weight, is_read);
                waits.queued += 1;
            }
            Wait::Remote(remote) => self.remotes.sides[remote].waiting.push_back(slot),
        }
        waits.held[slot as usize] = Some(work);
        waits.count += 1;
    }

    fn resume(&mut self, now: Time, slot: u32) {
        if let Some(work) = self.waits.take(slot) {
            self.carry_out(now, work);
        }
    }

    /// From now on rules hold nothing back by time, or they do again.
    pub(crate) fn hurry(&mut self, is_hurried: bool, now: Time) {
        self.waits.set_hurried(is_hurried, now);
        self.wake(now);
    }

    /// Lets those go on whose time has come.
    pub(crate) fn wake(&mut self, now: Time) {
        while self.waits.next().is_some_and(|at| at <= now)
            && let Some(Reverse((_, _, slot))) = self.waits.timed.pop()
        {
            self.resume(now, slot);
        }
    }

    /// Lets those go on for which there is room now.
    pub(crate) fn let_go(&mut self, now: Time) {
        for remote in 0..self.remotes.sides.len() {
            while let Some(slot) = self.remotes.sides[remote].next_waiting() {
                if let Some(mut work) = self.waits.take(slot) {
                    work.block.iter_mut().for_each(|block| block.is_its_turn = true);
                    self.carry_out(now, work);
                }
            }
        }
        if self.waits.queued == 0 && self.waits.tombs.is_empty() && self.waits.limited.is_empty() {
            return;
        }
        while self.forgotten.len() < FORGOTTEN && !self.waits.tombs.is_empty() {
            let slot = self.waits.tombs.remove(0);
            self.resume(now, slot);
        }
        for unit in 0..self.space.units.len() {
            if self.waits.queued == 0 {
                break;
            }
            if !self.waits.queues[unit].waiting.is_empty() {
                self.serve(now, unit);
            }
        }
        while std::mem::take(&mut self.waits.has_ended) && !self.waits.limited.is_empty() {
            self.enter_limited(now);
        }
    }

    /// Lets those that wait for a unit have what there is room for.
    fn serve(&mut self, now: Time, unit: usize) {
        while self.waits.queues[unit].reads < READS && self.turn_of(now, unit, true, None) {}
        while !self.waits.queues[unit].is_free(false) {
            let has_room = self.has_room(unit);
            if !has_room && self.makes_room(unit) {
                break;
            }
            let failed = (!has_room).then_some(self.full());
            self.turn_of(now, unit, false, failed);
        }
    }

    /// The next one in a unit goes on, or fails. False where none waits.
    fn turn_of(&mut self, now: Time, unit: usize, is_read: bool, failed: Option<Status>) -> bool {
        let Some(slot) = self.waits.queues[unit].pop(is_read) else { return false };
        self.waits.queued -= 1;
        if let Some(mut work) = self.waits.take(slot) {
            if let Some(block) = &mut work.block {
                block.is_its_turn = true;
                if let Some(status) = failed {
                    block.todo = Todo::Fail(status);
                }
            }
            self.carry_out(now, work);
        }
        true
    }

    /// Whether a weighed read must wait.
    pub(crate) fn waits_to_read(&self, unit: usize) -> bool {
        let queue = &self.waits.queues[unit];
        queue.reads >= READS || !queue.is_free(true)
    }

    /// Those whose limits have room go on, the first first.
    fn enter_limited(&mut self, now: Time) {
        let mut n = 0;
        while let Some(&slot) = self.waits.limited.get(n) {
            let block =
                self.waits.held[slot as usize].as_ref().and_then(|work| work.block.as_ref());
            let depth = block.and_then(|block| block.depth);
            let is_full = depth
                .is_some_and(|depth| self.waits.under_way[usize::from(depth.limit)] >= depth.most);
            if is_full {
                n += 1;
            } else {
                self.waits.limited.remove(n);
                self.resume(now, slot);
            }
        }
    }

    /// Takes the newest set. What is under way counts among those of its limit as long as the
    /// sets declare it the same.
    pub(crate) fn look(&mut self) {
        let number = self.rules.number();
        self.rules.look();
        if self.rules.number() != number {
            self.has_new_set();
        }
    }

    /// Another set was taken.
    #[cold]
    pub(crate) fn has_new_set(&mut self) {
        // They were decided by the set before.
        self.remotes.keep_no_more(|_| true);
        let state = self.rules.state();
        self.waits.under_way.fill(0);
        for slot in 0..DEPTH as u32 {
            let request = &mut self.requests[slot];
            request.limit = request.limit.and_then(|limit| state.limit_now(limit));
            if let Some(limit) = request.limit {
                self.waits.under_way[usize::from(limit)] += 1;
            }
            if let Some(work) = &mut self.waits.held[slot as usize]
                && let Some(block) = &mut work.block
            {
                block.depth = block.depth.and_then(|depth| {
                    Some(rules::decision::Depth { limit: state.limit_now(depth.limit)?, ..depth })
                });
            }
        }
        self.waits.has_ended = true;
    }
}
