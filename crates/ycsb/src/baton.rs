//! A baton: of several threads the one that has it goes on, the others sleep.
//!
//! It goes round in the order of their numbers, from number 0 on, and passes
//! by who has left. Nothing fails.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What goes round.
pub struct Baton {
    state: Mutex<State>,
    passed: Condvar,
}

struct State {
    holder: usize,
    /// Whether each is still there.
    runs: Vec<bool>,
}

impl Baton {
    /// For so many runners.
    pub fn new(runners: usize) -> Baton {
        Baton {
            state: Mutex::new(State { holder: 0, runs: vec![true; runners] }),
            passed: Condvar::new(),
        }
    }

    /// The runner of a number, one each. Waits until it has the baton.
    pub fn runner(&self, number: usize) -> Runner<'_> {
        let runner = Runner { baton: self, number };
        runner.wait(self.lock());
        runner
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked had changed nothing by halves.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has the baton, or waits for it; leaves when dropped.
pub struct Runner<'a> {
    baton: &'a Baton,
    number: usize,
}

impl Runner<'_> {
    /// Gives the others their turns, and waits for its own.
    pub fn pass(&self) {
        let mut state = self.baton.lock();
        self.hand_over(&mut state);
        self.wait(state);
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) {
        while state.holder != self.number {
            state = self.baton.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hand_over(&self, state: &mut State) {
        let n = state.runs.len();
        let next = (1..=n).map(|i| (self.number + i) % n).find(|&i| state.runs[i]);
        state.holder = next.unwrap_or(self.number);
        self.baton.passed.notify_all();
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let mut state = self.baton.lock();
        state.runs[self.number] = false;
        if state.holder == self.number {
            self.hand_over(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn it_goes_round_and_passes_by_who_left() {
        let (baton, order) = (Baton::new(3), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for (number, turns) in [2, 1, 4].into_iter().enumerate() {
                let (baton, order) = (&baton, &order);
                scope.spawn(move || {
                    let runner = baton.runner(number);
                    for turn in 0..turns {
                        if turn > 0 {
                            runner.pass();
                        }
                        order.lock().unwrap().push(number);
                    }
                });
            }
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 0, 2, 2, 2]);
    }
}
