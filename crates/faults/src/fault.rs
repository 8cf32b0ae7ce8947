//! The port that makes operations fail.
//!
//! A port over any port of block requests or vector commands. Every command
//! that it takes completes once and gives its buffer and list back. Of a
//! vector command only the addresses that are struck fail, unless the fault
//! strikes before: then nothing is done, and all fail.

use flash::BlockBits;
use port::{Completed, Port, Ring, Status, Time};

use crate::command::{Command, Completion};
use crate::passage::{DEPTH, Passage, over_another_port};
use crate::ranges::Ranges;
use crate::rule::{Counter, FaultRule, Operation, Place, WrongPort};

/// A rule at work.
struct Active {
    rule: FaultRule,
    counter: Counter,
    place: Place,
    /// Addresses that fail from now on.
    bad: Ranges,
    /// Flushes fail from now on.
    bad_flush: bool,
}

impl Active {
    /// Whether address `i` of a command fails.
    fn strikes<C: Command>(&mut self, cmd: &C, i: usize) -> bool {
        let covers = cmd.covers(i);
        let is_flush = cmd.operation() == Operation::Flush;
        if (is_flush && self.bad_flush) || covers.iter().any(|range| self.bad.overlaps(range)) {
            return true;
        }
        let parts = covers.map(|range| self.counter.part_of(&range));
        if self.counter.has_span() && parts.iter().all(|part| part.is_empty()) {
            return false;
        }
        if !self.counter.strikes() {
            return false;
        }
        if self.rule.permanent {
            self.bad_flush |= is_flush;
            parts.into_iter().for_each(|part| self.bad.insert(part));
        }
        true
    }
}

/// What is to become of a command.
#[derive(Clone, Copy, Default)]
struct Verdict {
    status: Status,
    failed: BlockBits,
}

/// Operation faults in front of `P`.
pub struct FaultPort<P: Port> {
    passage: Passage<P, Verdict>,
    rules: Vec<Active>,
    /// Completed: failed here, or below.
    ready: Ring<P::Done>,
}

impl<P> FaultPort<P>
where
    P: Port,
    P::Cmd: Command<Done = P::Done>,
    P::Done: Completion,
{
    /// Puts the rules in front of `below`. All of them see every command; the
    /// first that strikes gives the status. Random strikes come from `seed`.
    pub fn new(below: P, rules: &[FaultRule], seed: u64) -> Result<FaultPort<P>, WrongPort> {
        FaultPort::with_depth(below, rules, seed, DEPTH)
    }

    /// The same, with at most `depth` commands inside at once, from 1 to
    /// [`DEPTH`]: it takes memory for so many.
    pub fn with_depth(
        below: P,
        rules: &[FaultRule],
        seed: u64,
        depth: usize,
    ) -> Result<FaultPort<P>, WrongPort> {
        let passage = Passage::new(below, depth);
        let ready = Ring::new(passage.depth());
        let mut port = FaultPort { passage, rules: Vec::new(), ready };
        port.set_rules(rules, seed)?;
        Ok(port)
    }

    /// From now on there are these rules, with nothing counted; none takes all
    /// faults away. Fails, with the rules as they were, when one can strike
    /// nothing here.
    pub fn set_rules(&mut self, rules: &[FaultRule], seed: u64) -> Result<(), WrongPort> {
        let active = |(index, rule): (usize, &FaultRule)| {
            P::Cmd::check(rule.operation, rule.trigger.span.as_ref())?;
            Ok(Active {
                rule: rule.clone(),
                counter: Counter::new(rule.trigger.clone(), seed, index),
                place: rule.place.unwrap_or(P::Cmd::PLACE),
                bad: Ranges::default(),
                bad_flush: false,
            })
        };
        self.rules = rules.iter().enumerate().map(active).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// How often each rule struck; what fails again for good is not counted.
    pub fn struck(&self) -> impl Iterator<Item = u64> + '_ {
        self.rules.iter().map(|active| active.counter.struck())
    }

    /// What is to become of a command, and whether it does not reach the port
    /// below.
    fn judge(&mut self, cmd: &P::Cmd) -> (Verdict, bool) {
        let operation = cmd.operation();
        let (mut verdict, mut before) = (Verdict::default(), false);
        for active in &mut self.rules {
            if !active.rule.operation.takes(operation) {
                continue;
            }
            for i in 0..cmd.count() {
                if active.strikes(cmd, i) {
                    let status = active.rule.status.unwrap_or(P::Cmd::failure(operation));
                    verdict.status = verdict.status.and(status);
                    // A flush has no address that could fail.
                    verdict.failed |= BlockBits::from(operation != Operation::Flush) << i;
                    before |= active.place == Place::Before;
                }
            }
        }
        (verdict, before)
    }
}

impl<P> Port for FaultPort<P>
where
    P: Port,
    P::Cmd: Command<Done = P::Done>,
    P::Done: Completion,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        if !self.passage.clear(now) {
            return;
        }
        while self.passage.live() + self.ready.len() < self.passage.depth() {
            let Some(cmd) = cmds.pop() else { break };
            let (verdict, before) = self.judge(&cmd);
            if before {
                self.ready.put(|| cmd.refuse(verdict.status, now));
            } else {
                self.passage.send(cmd, verdict);
            }
        }
        self.passage.clear(now);
    }

    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(Completed::at);
        [ready, self.passage.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        let ready = &mut self.ready;
        self.passage.work(to, |mut completion, verdict| {
            if !verdict.status.is_ok() {
                completion.fail(verdict.status, verdict.failed);
            }
            ready.put(|| completion);
        });
        self.ready.pour(done);
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below().hint(cmd);
    }
}

over_another_port!(FaultPort);
