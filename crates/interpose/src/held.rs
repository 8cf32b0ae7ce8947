//! Answers that wait: for a time, for what the watcher has under way, or until what an effect
//! depends on is durable. Each thread of the program waits for one at most, so there are no more
//! than it has threads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::notify::{Listener, Reply};

/// Effects that were held up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many.
    pub count: u64,
    /// For how long, in all.
    pub time: Duration,
}

/// The kernel will carry a call out.
struct Effect {
    /// By which it is answered.
    id: u64,
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

    /// Holds a call that the kernel is to carry out, until that number is reached.
    pub fn hold_effect(&mut self, id: u64, awaited: u64) {
        debug_assert!(self.effects.back().is_none_or(|it| it.awaited <= awaited));
        self.effects.push_back(Effect { id, awaited, since: Instant::now() });
        self.effects_held.count += 1;
    }

    /// Sends the answers that are due; when the next is.
    pub fn release(&mut self, listener: &Listener, reached: u64) -> Option<Instant> {
        while let Some(effect) = self.effects.pop_front_if(|it| it.awaited <= reached) {
            self.effects_held.time += effect.since.elapsed();
            listener.reply(effect.id, &Reply::Continue);
        }
        while let Some(&Reverse((at, id))) = self.timed.peek() {
            if at > Instant::now() {
                return Some(at);
            }
            self.timed.pop();
            if let Some(answer) = self.answers.remove(&id) {
                listener.reply(id, &answer.reply);
            }
        }
        None
    }
}
