//! The sleep of a drive: which state it is in when nothing was inside for so long, what
//! a command waits that wakes it, and what it saved.
//!
//! States follow each other from the lightest to the deepest, as those that a drive of
//! NVM Express enters by itself. Guarantees: the same calls give the same times, and
//! each ns asleep is in one state. Nothing here fails.

use flash::{MAX_SLEEP_STATES, Sleep};

/// What a drive has slept in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slept {
    /// How often it was woken from it.
    pub exits: u64,
    /// How long it was in it, in ns.
    pub ns: u64,
}

/// By state, the lightest first; zero where a drive has no such state.
pub type SleptIn = [Slept; MAX_SLEEP_STATES];

/// A sleep state.
struct State {
    after: u64,
    wake: u64,
    /// What it takes less than at other times, in mW.
    less: u64,
}

/// The sleep of a drive. The caller knows how long nothing was inside.
pub(crate) struct Sleeper {
    states: Vec<State>,
    /// Until it was woken last.
    slept: SleptIn,
}

impl Sleeper {
    /// That of a drive that takes so much at all other times, in mW.
    pub fn new(sleep: &Sleep, idle_power: u64) -> Sleeper {
        let each = sleep.after.iter().zip(&sleep.wake).zip(&sleep.power);
        let state = |((&after, &wake), &power): ((_, _), &u64)| State {
            after,
            wake,
            less: idle_power.saturating_sub(power),
        };
        Sleeper { states: each.map(state).collect(), slept: SleptIn::default() }
    }

    /// How many states it has.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// A command comes when nothing was inside for so long. Gives what it waits if the
    /// drive slept.
    pub fn wake(&mut self, quiet: u64) -> Option<u64> {
        let state = self.states.iter().rposition(|state| state.after <= quiet)?;
        self.slept = self.slept(quiet);
        self.slept[state].exits += 1;
        Some(self.states[state].wake)
    }

    /// What it has slept when nothing was inside for so long now.
    pub fn slept(&self, quiet: u64) -> SleptIn {
        let mut slept = self.slept;
        for (n, state) in self.states.iter().enumerate() {
            let until = self.states.get(n + 1).map_or(quiet, |next| quiet.min(next.after));
            slept[n].ns += until.saturating_sub(state.after);
        }
        slept
    }

    /// What it did not take because of that, in nJ.
    pub fn saved(&self, slept: &SleptIn) -> u64 {
        let each = self.states.iter().zip(slept);
        // A mW for a ns is a pJ.
        let pj: u128 = each.map(|(state, in_it)| mul(state.less, in_it.ns)).sum();
        (pj / 1000) as u64
    }
}

fn mul(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sleeper() -> Sleeper {
        let sleep = Sleep {
            after: vec![50 * MS, 1000 * MS, 9000 * MS],
            wake: vec![100, 5 * MS, 20 * MS],
            power: vec![100, 5, 0],
        };
        Sleeper::new(&sleep, 500)
    }

    #[test]
    fn each_state_has_its_exit_from_its_first_ns_to_its_last() {
        for (quiet, waits, state) in [
            (0, None, 0),
            (50 * MS - 1, None, 0),
            (50 * MS, Some(100), 0),
            (1000 * MS - 1, Some(100), 0),
            (1000 * MS, Some(5 * MS), 1),
            (9000 * MS - 1, Some(5 * MS), 1),
            (9000 * MS, Some(20 * MS), 2),
            (u64::MAX / 2, Some(20 * MS), 2),
        ] {
            let mut sleeper = sleeper();
            assert_eq!(sleeper.wake(quiet), waits, "{quiet}");
            let exits = [0, 1, 2, 3].map(|n| u64::from(n == state && waits.is_some()));
            assert_eq!(sleeper.slept(0).map(|slept| slept.exits), exits, "{quiet}");
        }
    }

    /// The time asleep is cut at the states' beginnings, and what is saved is the sum
    /// over states.
    #[test]
    fn what_it_saved_is_the_sum_over_states() {
        let mut sleeper = sleeper();
        for quiet in [10, 70, 1500, 9100] {
            sleeper.wake(quiet * MS);
        }
        let slept = sleeper.slept(60 * MS);
        let ns = [20 + 950 + 950 + 10, 500 + 8000, 100, 0].map(|ms| ms * MS);
        assert_eq!(slept.map(|slept| slept.ns), ns);
        assert_eq!(slept.map(|slept| slept.exits), [1, 1, 1, 0]);
        let saved = (ns[0] * 400 + ns[1] * 495 + ns[2] * 500) / 1000;
        assert_eq!(sleeper.saved(&slept), saved);
    }
}
