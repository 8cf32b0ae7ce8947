//! Answers that wait: for a time, for what the watcher has under way, or until what an effect
//! depends on is durable. Each thread of the program waits for one at most, so there are no more
//! than it has threads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::notify::Reply;

/// Effects that were held up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many.
    pub count: u64,
    /// For how long, in all.
    pub time: Duration,
}

/// A call that is carried out when it is answered.
struct Effect {
    /// By which it is answered.
    id: u64,
    reply: Reply,
    awaited: u64,
    since: Instant,
}

/// What an answer waits for.
#[derive(Default)]
pub(crate) struct Until {
    pub at: Option<Instant>,
    pub tickets: Vec<u64>,
}

impl Until {
    /// Whether there is nothing to wait for.
    pub fn is_now(&self) -> bool {
        self.tickets.is_empty() && self.at.is_none_or(|at| at <= Instant::now())
    }
}

/// An answer that waits.
struct Answer {
    reply: Reply,
    at: Option<Instant>,
    tickets: usize,
}

/// Answers that wait.
#[derive(Default)]
pub(crate) struct HeldAnswers {
    /// Which are due when, when their tickets are over.
    timed: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Which call each ticket is of.
    tickets: HashMap<u64, u64>,
    /// By the call.
    answers: HashMap<u64, Answer>,
    /// In their order, and so in that of their numbers.
    effects: VecDeque<Effect>,
    pub effects_held: Held,
}

impl HeldAnswers {
    /// Holds an answer.
    pub fn hold(&mut self, id: u64, reply: Reply, until: Until) {
        let Until { at, tickets } = until;
        self.tickets.extend(tickets.iter().map(|&ticket| (ticket, id)));
        let answer = Answer { reply, at, tickets: tickets.len() };
        if answer.tickets == 0 {
            self.timed.push(Reverse((at.unwrap_or_else(Instant::now), id)));
        }
        self.answers.insert(id, answer);
    }

    /// A ticket is over. An error takes the place of the call's result.
    pub fn over(&mut self, ticket: u64, error: Option<Errno>) {
        let Some(id) = self.tickets.remove(&ticket) else { return };
        let Some(answer) = self.answers.get_mut(&id) else { return };
        answer.tickets -= 1;
        if let Some(errno) = error {
            answer.reply = Reply::Error(errno);
        }
        if answer.tickets == 0 {
            self.timed.push(Reverse((answer.at.unwrap_or_else(Instant::now), id)));
        }
    }

    /// Holds a call that is to be carried out, until that number is reached.
    pub fn hold_effect(&mut self, id: u64, reply: Reply, awaited: u64) {
        debug_assert!(self.effects.back().is_none_or(|it| it.awaited <= awaited));
        self.effects.push_back(Effect { id, reply, awaited, since: Instant::now() });
        self.effects_held.count += 1;
    }

    /// An answer that is due, and the call that it is of.
    pub fn due(&mut self, reached: u64) -> Option<(u64, Reply)> {
        if let Some(effect) = self.effects.pop_front_if(|it| it.awaited <= reached) {
            self.effects_held.time += effect.since.elapsed();
            return Some((effect.id, effect.reply));
        }
        while self.next_at().is_some_and(|at| at <= Instant::now()) {
            let Some(Reverse((_, id))) = self.timed.pop() else { break };
            if let Some(answer) = self.answers.remove(&id) {
                return Some((id, answer.reply));
            }
        }
        None
    }

    /// When the next is due, of those whose time is known.
    pub fn next_at(&self) -> Option<Instant> {
        self.timed.peek().map(|it| it.0.0)
    }
}
