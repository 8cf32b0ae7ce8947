//! Answers that wait: for a time, or until what an effect depends on is durable. Each thread of
//! the program waits for one at most, so there are no more than it has threads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

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

/// Answers that wait.
#[derive(Default)]
pub(crate) struct HeldAnswers {
    /// Which are due when.
    timed: BinaryHeap<Reverse<(Instant, u64)>>,
    replies: HashMap<u64, Reply>,
    /// In their order, and so in that of their numbers.
    effects: VecDeque<Effect>,
    pub effects_held: Held,
}

impl HeldAnswers {
    /// Holds an answer up to a time.
    pub fn hold_until(&mut self, at: Instant, id: u64, reply: Reply) {
        self.timed.push(Reverse((at, id)));
        self.replies.insert(id, reply);
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
            if let Some(reply) = self.replies.remove(&id) {
                listener.reply(id, &reply);
            }
        }
        None
    }
}
