//! What the values of keys may be.
//!
//! Of each key the values that it may have after a cut, in their order: the first is
//! there for sure but for those behind it. What was asked before a request has been done
//! before it; what ended before a flush was asked for is there when that has ended.

use std::collections::VecDeque;

/// A value: its number, which all of its bytes tell, and its length; or none.
pub type Value = Option<(u64, u64)>;

/// What a put or delete makes of a key.
#[derive(Clone, Copy, Debug)]
struct State {
    /// The number of its request.
    number: u64,
    value: Value,
    ended: bool,
    /// Nobody knows whether it was done.
    is_unsure: bool,
}

/// All keys.
pub struct Model {
    keys: Vec<VecDeque<State>>,
    next: u64,
}

const NOTHING: State = State { number: 0, value: None, ended: true, is_unsure: false };

impl Model {
    /// So many keys, none of which is there.
    pub fn new(keys: u64) -> Model {
        Model { keys: (0..keys).map(|_| VecDeque::from([NOTHING])).collect(), next: 0 }
    }

    /// Nothing is there any more.
    pub fn replace(&mut self) {
        *self = Model { next: self.next, ..Model::new(self.keys.len() as u64) };
    }

    /// The number of a request.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A put or delete is asked for.
    pub fn write(&mut self, key: u64, number: u64, value: Value) {
        self.keys[key as usize].push_back(State { number, value, ended: false, is_unsure: false });
    }

    /// It has ended, and is `durable` or not.
    pub fn wrote(&mut self, key: u64, number: u64, durable: bool) {
        let states = &mut self.keys[key as usize];
        states.iter_mut().filter(|state| state.number == number).for_each(|s| s.ended = true);
        if durable {
            self.settle(key, number);
        }
    }

    /// It was refused: it is not there.
    pub fn refused(&mut self, key: u64, number: u64) {
        self.keys[key as usize].retain(|state| state.number != number);
    }

    /// It failed: it may be there or not.
    pub fn failed(&mut self, key: u64, number: u64) {
        let states = self.keys[key as usize].iter_mut();
        states.filter(|state| state.number == number).for_each(|state| state.is_unsure = true);
    }

    /// It could not be read after a cut: it is any of what it may be.
    pub fn lost(&mut self, key: u64) {
        for state in self.keys[key as usize].iter_mut().skip(1) {
            (state.ended, state.is_unsure) = (false, true);
        }
    }

    /// What a request of this number may find, the newest first: one, as long as nothing failed.
    pub fn before(&self, key: u64, number: u64) -> impl Iterator<Item = Value> {
        let states = self.keys[key as usize].iter().rev();
        let mut is_open = true;
        let before = states.filter(move |state| state.number < number);
        let may_be = before.take_while(move |state| {
            let was_open = is_open;
            is_open = was_open && state.is_unsure;
            was_open
        });
        may_be.map(|state| state.value)
    }

    /// Shut down in good order: what has ended is there.
    pub fn closed(&mut self) {
        self.ended().into_iter().for_each(|(key, number)| self.settle(key, number));
    }

    /// Of each key the last that has ended: a flush makes it durable.
    pub fn ended(&self) -> Vec<(u64, u64)> {
        let last = |states: &VecDeque<State>| {
            states.iter().rev().find(|state| state.ended).map_or(0, |state| state.number)
        };
        (0..).zip(self.keys.iter().map(last)).collect()
    }

    /// That one is durable, and those before it are gone.
    pub fn settle(&mut self, key: u64, number: u64) {
        let states = &mut self.keys[key as usize];
        while states.len() > 1 && states.get(1).is_some_and(|state| state.number <= number) {
            states.pop_front();
        }
    }

    /// After a cut, or at rest, this was found: one of what it may be, or the last.
    pub fn found(&mut self, key: u64, value: Value, at_rest: bool) -> Result<(), String> {
        let fits = match at_rest {
            true => self.before(key, u64::MAX).any(|may_be| may_be == value),
            false => self.keys[key as usize].iter().any(|state| state.value == value),
        };
        let states = &mut self.keys[key as usize];
        if !fits {
            return Err(format!("it is {value:?}, and may be {states:?}"));
        }
        *states = VecDeque::from([State { value, ..NOTHING }]);
        Ok(())
    }

    /// Whether from the last that has ended on a key is there all the while, and whether
    /// it may be there at all.
    pub fn since_ended(&self, key: u64) -> (bool, bool) {
        let last = self.keys[key as usize].iter().rposition(|state| state.ended).unwrap_or(0);
        let mut states = self.keys[key as usize].iter().skip(last);
        (states.clone().all(|s| s.value.is_some()), states.any(|s| s.value.is_some()))
    }

    /// What all values take that may be there now, or are on their way.
    pub fn taken(&self, of: impl Fn(u64) -> u64) -> u64 {
        let newest = |states: &VecDeque<State>| -> u64 {
            let last = states.iter().rposition(|state| state.ended).unwrap_or(0);
            states.iter().skip(last).flat_map(|state| state.value).map(|(_, len)| of(len)).sum()
        };
        self.keys.iter().map(newest).sum()
    }

    /// Whether a key is there when all has ended.
    pub fn is_there(&self, key: u64) -> bool {
        self.keys[key as usize].back().is_some_and(|state| state.value.is_some())
    }
}
