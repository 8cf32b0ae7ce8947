//! The port that makes operations late.
//!
//! A port over any port of block requests or vector commands. The port below
//! does a command at its own time; its completion is held back, so that a late
//! write is still in its place. Completions come out in the order of their
//! times, which are the delayed ones. Nothing fails here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use port::{Completed, Port, Ring, Slots, Time};

use crate::command::{Command, Completion};
use crate::passage::{DEPTH, Passage, over_another_port};
use crate::rule::{Counter, DelayRule, Operation, WrongPort};

/// A rule at work.
struct Active {
    rule: DelayRule,
    counter: Counter,
}

/// Delays in front of `P`.
pub struct DelayPort<P: Port> {
    /// Each command's delay in ns.
    passage: Passage<P, u64>,
    rules: Vec<Active>,
    /// Completed below.
    held: Slots<Option<P::Done>>,
    /// When each held completion is due; those due together in the order in
    /// which they came.
    due: BinaryHeap<Reverse<(Time, u64, u32)>>,
    came: u64,
    /// Nothing is delayed any more.
    is_hurried: bool,
}

impl<P> DelayPort<P>
where
    P: Port,
    P::Cmd: Command<Done = P::Done>,
    P::Done: Completion,
{
    /// Puts the rules in front of `below`. The delays of all rules that strike
    /// a command add up. Random strikes and delays come from `seed`.
    pub fn new(below: P, rules: &[DelayRule], seed: u64) -> Result<DelayPort<P>, WrongPort> {
        DelayPort::with_depth(below, rules, seed, DEPTH)
    }

    /// The same, with at most `depth` commands inside at once, from 1 to
    /// [`DEPTH`]: it takes memory for so many.
    pub fn with_depth(
        below: P,
        rules: &[DelayRule],
        seed: u64,
        depth: usize,
    ) -> Result<DelayPort<P>, WrongPort> {
        let passage = Passage::new(below, depth);
        let depth = passage.depth();
        let mut port = DelayPort {
            passage,
            rules: Vec::new(),
            held: Slots::new(depth),
            due: BinaryHeap::with_capacity(depth),
            came: 0,
            is_hurried: false,
        };
        port.set_rules(rules, seed)?;
        Ok(port)
    }

    /// From now on there are these rules, with nothing counted; none takes all
    /// delays away but those of what is inside. Fails, with the rules as they
    /// were, when one can strike nothing here.
    pub fn set_rules(&mut self, rules: &[DelayRule], seed: u64) -> Result<(), WrongPort> {
        let active = |(index, rule): (usize, &DelayRule)| {
            P::Cmd::check(rule.operation, rule.trigger.span.as_ref())?;
            let counter = Counter::new(rule.trigger.clone(), seed, index);
            Ok(Active { rule: rule.clone(), counter })
        };
        self.rules = rules.iter().enumerate().map(active).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// From now on nothing is late any more, also of what is inside: what is held back is due
    /// at `now`, in its order. Rules go on counting.
    pub fn hurry(&mut self, now: Time) {
        self.is_hurried = true;
        let mut due = std::mem::take(&mut self.due).into_vec();
        due.sort_unstable_by_key(|&Reverse(one)| one);
        for (n, Reverse((at, came, id))) in (0..).zip(&mut due) {
            (*at, *came) = (now.min(*at), n);
            if let Some(held) = &mut self.held[*id] {
                held.set_at(*at);
            }
        }
        self.came = due.len() as u64;
        self.due = due.into();
    }

    /// How often each rule struck.
    pub fn struck(&self) -> impl Iterator<Item = u64> + '_ {
        self.rules.iter().map(|active| active.counter.struck())
    }

    /// How late a command is to be, in ns.
    fn delay_of(&mut self, cmd: &P::Cmd) -> u64 {
        let operation = cmd.operation();
        let mut sum = 0u64;
        for Active { rule, counter } in &mut self.rules {
            if !rule.operation.takes(operation)
                || (counter.has_span() && operation == Operation::Flush)
            {
                continue;
            }
            for i in 0..cmd.count() {
                let outside = |range| counter.part_of(&range).is_empty();
                if counter.has_span() && cmd.covers(i).into_iter().all(outside) {
                    continue;
                }
                if counter.strikes() {
                    let delay = counter.random().between(rule.delay.least, rule.delay.most);
                    sum = sum.saturating_add(delay);
                }
            }
        }
        sum
    }
}

impl<P> Port for DelayPort<P>
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
        while self.passage.live() + self.held.live() < self.passage.depth() {
            let Some(cmd) = cmds.pop() else { break };
            let delay = self.delay_of(&cmd);
            self.passage.send(cmd, delay);
        }
        self.passage.clear(now);
    }

    fn next_event(&self) -> Option<Time> {
        let held = self.due.peek().map(|Reverse((at, ..))| *at);
        [held, self.passage.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        let (held, due, came) = (&mut self.held, &mut self.due, &mut self.came);
        let is_hurried = self.is_hurried;
        self.passage.work(to, |mut completion, delay| {
            let delay = if is_hurried { 0 } else { delay };
            let at = Time(completion.at().0.saturating_add(delay));
            completion.set_at(at);
            *came += 1;
            due.push(Reverse((at, *came, held.take(Some(completion)))));
        });
        while done.room() > 0
            && let Some(&Reverse((at, _, id))) = due.peek()
            && at <= to
        {
            due.pop();
            let completion = held[id].take().expect("what is due is held");
            held.give(id);
            done.put(|| completion);
        }
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below().hint(cmd);
    }
}

over_another_port!(DelayPort);
