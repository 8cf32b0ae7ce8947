//! A device and a core in virtual time, to try strategies on.

use std::collections::BTreeSet;

use port::{BlockOp, Time};

use super::{Source, Waiter};

/// What a core is like.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    /// How late a sleep ends, at least and at most, in ns.
    pub error: (u64, u64),
    /// Processor time of a sleep in ns.
    pub cost: u64,
}

/// As a machine of one's own is.
pub const GOOD: Core = Core { error: (3_500, 5_500), cost: 2_500 };
/// As a nested virtual machine may be.
pub const BAD: Core = Core { error: (27_000, 42_000), cost: 25_000 };

/// Virtual time, in which looking takes 40 ns and a clock read 25.
pub struct Sim {
    pub core: Core,
    time: u64,
    cpu: u64,
    /// Of requests, and of errors: those are the same for all strategies.
    random: [u64; 2],
    /// When requests complete, and their tags.
    inside: BTreeSet<(u64, u64)>,
}

impl Sim {
    pub fn new(core: Core) -> Sim {
        Sim { core, time: 0, cpu: 0, random: [1, 2], inside: BTreeSet::new() }
    }

    /// The time, looked at from outside.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The next number below `below` of a stream.
    fn random(&mut self, stream: usize, below: u64) -> u64 {
        let random = &mut self.random[stream];
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*random >> 33) % below.max(1)
    }

    /// A number below 1000 for the next request.
    pub fn next_random(&mut self) -> u64 {
        self.random(0, 1000)
    }

    /// A submitter that computes for so long.
    pub fn busy(&mut self, ns: u64) {
        self.time += ns;
        self.cpu += ns;
    }

    pub fn submit(&mut self, waiter: &mut Waiter, tag: u64, takes: u64) {
        waiter.submitted(tag, BlockOp::Read, 4096, Time(self.time));
        self.inside.insert((self.time + takes, tag));
        self.busy(200);
    }

    /// Takes all that completed. Gives how many.
    pub fn reap(&mut self, waiter: &mut Waiter) -> usize {
        let mut count = 0;
        while let Some((at, tag)) = self.inside.first().copied().filter(|(at, _)| *at <= self.time)
        {
            self.inside.remove(&(at, tag));
            waiter.completed(tag, Time(at), Time(self.time));
            self.busy(50);
            count += 1;
        }
        count
    }

    /// Takes what completed, from a device that does not say when it did.
    pub fn reap_untold(&mut self, waiter: &mut Waiter) {
        while let Some((at, tag)) = self.inside.first().copied().filter(|(at, _)| *at <= self.time)
        {
            self.inside.remove(&(at, tag));
            waiter.completed(tag, Time(self.time), Time(self.time));
        }
    }

    pub fn cpu_used(&self) -> u64 {
        self.cpu
    }

    fn away(&mut self, until: u64) {
        let (least, most) = self.core.error;
        let error = least + self.random(1, most - least);
        self.time += until.saturating_sub(self.time) + error;
        self.cpu += self.core.cost;
    }
}

impl Source for Sim {
    fn now(&mut self) -> Time {
        self.busy(25);
        Time(self.time)
    }

    fn look(&mut self) -> bool {
        self.busy(40);
        self.inside.first().is_some_and(|(at, _)| *at <= self.time)
    }

    fn sleep(&mut self, until: Option<Time>) {
        let next = self.inside.first().map(|(at, _)| *at);
        let until = next.into_iter().chain(until.map(|t| t.0)).min();
        self.away(until.expect("somebody sleeps and nothing is to come"));
    }

    fn nap(&mut self, until: Time) {
        self.away(until.0);
    }

    fn cpu(&mut self) -> u64 {
        self.busy(300);
        self.cpu_used()
    }
}
