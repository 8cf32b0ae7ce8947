//! The controller's cores: when a command is taken.

use port::Time;

/// Cores that take commands, first come, first served, each one at a time.
pub(crate) struct Cores {
    /// When each has done what it was given. Empty where each command has its own.
    free: Vec<Time>,
}

impl Cores {
    /// So many cores; 0 for one a command.
    pub fn new(cores: u32) -> Cores {
        Cores { free: vec![Time::ZERO; cores as usize] }
    }

    /// When one is free; `None` where each command has its own.
    #[inline]
    pub fn next_free(&self) -> Option<Time> {
        self.free.iter().min().copied()
    }

    /// Gives a command that came at `at` and takes so long to the core that is free
    /// first. Says when it is done.
    #[inline]
    pub fn take(&mut self, at: Time, work: u64) -> Time {
        let Some(free) = self.free.iter_mut().min() else { return at + work };
        *free = (*free).max(at) + work;
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_one_command_at_a_time() {
        let take = |cores, works: &[u64]| -> Vec<u64> {
            let mut cores = Cores::new(cores);
            works.iter().map(|&work| cores.take(Time(100), work).0 - 100).collect()
        };
        assert_eq!(take(0, &[5, 5, 5]), [5, 5, 5]);
        assert_eq!(take(1, &[5, 3, 5]), [5, 8, 13]);
        assert_eq!(take(2, &[9, 3, 5, 4]), [9, 3, 8, 12]);
    }

    /// M/D/1: commands that come at random to one core wait for w D / 2 (1 - w) in
    /// the mean, w being the core's load and D what each takes of it.
    #[test]
    fn waiting_is_as_the_formula_says() {
        let work = 1_000u64;
        for load in [0.3, 0.6, 0.8] {
            let (mut cores, mut rng) = (Cores::new(1), port::random::Random::new(1, 0));
            let (mut at, mut waited, commands) = (0.0f64, 0u64, 4_000_000u64);
            for _ in 0..commands {
                at -= (1.0 - port::random::unit(rng.bits())).ln() * work as f64 / load;
                waited += cores.take(Time(at as u64), work).0 - at as u64 - work;
            }
            let (mean, formula) =
                (waited as f64 / commands as f64, work as f64 * load / (2.0 * (1.0 - load)));
            assert!((mean / formula - 1.0).abs() < 0.02, "{load}: {mean} for {formula}");
        }
    }

    #[test]
    fn an_idle_core_begins_when_the_command_comes() {
        let mut cores = Cores::new(1);
        assert_eq!(cores.take(Time(10), 5), Time(15));
        assert_eq!(cores.take(Time(40), 5), Time(45));
        assert_eq!(cores.take(Time(41), 0), Time(45));
    }
}
