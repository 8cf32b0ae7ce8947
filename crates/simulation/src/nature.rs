//! Which lives have flash that errs and wears out, a cache of SLC flash, media
//! that damage, a protected cache: what a life's drive is, beside its faults.
//!
//! A third of all lives have none of it. All of it comes from the life's seed.

use faults::{Access, MediumFault, MediumRule, Trigger};
use flash::{Reliability, SlcCache, SlcSize};
use workload::Rng;

use crate::counts::counts;

/// Stream of the random numbers of what is here.
const STREAM: u64 = 10;

/// Which of it a life has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// Flash that errs and wears out.
    pub wears: bool,
    /// An SLC cache.
    pub slc: bool,
    /// A protected cache above the target.
    pub protected: bool,
    /// A medium that damages what it stores.
    pub damages: bool,
}

impl Nature {
    /// That of a seed's life.
    pub fn of(seed: u64) -> Nature {
        let mut rng = Rng::new(seed, STREAM);
        if rng.below(3) == 0 {
            return Nature::default();
        }
        let kinds = 1 + rng.below(15);
        let has = |kind: u64| kinds & kind > 0;
        Nature { wears: has(1), slc: has(2), protected: has(4), damages: has(8) }
    }
}

counts! {
    /// Lives of one nature.
    pub struct Kind {
        /// Lives.
        pub lives: u64,
        /// Their cycles.
        pub cycles: u64,
    }
}

impl Kind {
    /// One life of so many cycles, if it is of this nature.
    pub fn of(is: bool, cycles: u64) -> Kind {
        if is { Kind { lives: 1, cycles } } else { Kind::default() }
    }
}

/// How flash wears out.
#[derive(Clone, Debug)]
pub struct Wear {
    /// Its errors.
    pub reliability: Reliability,
    /// Erases that a chunk is rated for.
    pub endurance: u32,
    /// The longest time without power, in ns.
    pub longest_off: u64,
    /// Chunks of a unit beyond those of other lives, to be lost.
    pub spare: u32,
}

impl Wear {
    /// That of a seed's life. A chunk is erased some ten times a cycle, so that
    /// many drives come to their end within a life.
    pub fn of(seed: u64) -> Wear {
        let mut rng = Rng::new(seed, STREAM + 1);
        let rng = &mut rng;
        let retention_time = rng.one_of(&[0, 200_000_000, 5_000_000_000]);
        let endurance_cliff = rng.below(2) == 0;
        let erase_failures: &[f64] = if endurance_cliff { &[0.0, 1e-2, 0.1] } else { &[1e-2, 0.1] };
        let reliability = Reliability {
            errors: true,
            rber_base: rng.one_of(&[0.0, 1e-5]),
            rber_wear: rng.one_of(&[1e-6, 3e-5, 1e-4]),
            wear_power: 1.5,
            retention_time,
            retention_power: 0.5,
            read_disturb: rng.one_of(&[0.0, 1e-7, 1e-6]),
            // One draw a block, and short sums: the model is the same.
            codeword: 4096,
            correctable: 12,
            read_retries: rng.below(4) as u32,
            retry_gain: 0.7,
            program_failure: rng.one_of(&[0.0, 1e-3, 1e-2]),
            erase_failure: rng.one_of(erase_failures),
            failure_power: rng.one_of(&[0.2, 3.0]),
            factory_bad: rng.one_of(&[0.0, 0.0, 0.02, 0.05]),
            endurance_cliff,
            wear_notice: 26,
            ..Reliability::default()
        };
        let endurance = rng.one_of(&[40, 150, 600]);
        let spare = rng.below(5) as u32;
        Wear { reliability, endurance, longest_off: 4 * retention_time, spare }
    }
}

/// The SLC cache of a seed's life, small enough to be full often.
pub fn slc(seed: u64) -> SlcCache {
    let mut rng = Rng::new(seed, STREAM + 2);
    let rng = &mut rng;
    SlcCache {
        size: SlcSize::Share(rng.one_of(&[1, 2_000, 10_000, 50_000])),
        read: rng.one_of(&[1_000, 25_000]),
        program: rng.one_of(&[10_000, 250_000]),
        idle: rng.one_of(&[1_000, 100_000, 20_000_000]),
        mark: rng.one_of(&[0, 50_000, 90_000, 100_000]),
        dynamic: rng.below(2) == 1,
        own: SlcSize::Share(rng.one_of(&[1, 1_000])),
        kept: rng.below(4) as u32,
    }
}

/// Stream of the random numbers for [`idle_collection`]. With this one the lives of
/// `tests/it/found.rs` are what they were.
const IDLE: u64 = 69;

/// How long nothing is asked of a seed's target before it collects; 0 for never, as
/// two in three. Writes mostly end at once, so that short times begin it between any
/// two.
pub fn idle_collection(seed: u64) -> u64 {
    let mut rng = Rng::new(seed, IDLE);
    if rng.below(3) > 0 { 0 } else { rng.one_of(&[1, 2_000, 100_000, 5_000_000]) }
}

/// The damage of a seed's life: blocks that are torn, lost, stored elsewhere or
/// rot, and a medium that is slow or refuses.
pub fn damage(seed: u64) -> Vec<MediumRule> {
    let mut rng = Rng::new(seed, STREAM + 4);
    let rng = &mut rng;
    let kinds = 1 + rng.below(63);
    let on = rng.one_of(&[Access::Program, Access::Read, Access::Reset]);
    let permanent = rng.below(3) == 0;
    let all = [
        (MediumFault::Torn, [2e-4, 1e-5]),
        (MediumFault::Lost, [2e-4, 1e-5]),
        (MediumFault::Misdirected, [2e-4, 1e-5]),
        (MediumFault::BitRot, [1e-4, 1e-6]),
        (MediumFault::Fail { on, permanent }, [1e-4, 1e-5]),
        (MediumFault::Slow { on: Access::Any, pending: 2 }, [1e-2, 1e-3]),
    ];
    let chosen = all.into_iter().enumerate().filter(|(bit, _)| kinds >> bit & 1 == 1);
    let rule = |(_, (fault, rates)): (usize, (MediumFault, [f64; 2]))| {
        let probability = rng.one_of(&rates);
        MediumRule { fault, trigger: Trigger { probability, ..Trigger::default() } }
    };
    chosen.map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_lives_have_none_and_all_of_it_is_met() {
        let all: Vec<Nature> = (0..3000).map(Nature::of).collect();
        let share = |of: &dyn Fn(&Nature) -> bool| all.iter().filter(|n| of(n)).count();
        assert!((900..1100).contains(&share(&|n| *n == Nature::default())));
        assert!(share(&|n| n.wears) > 800 && share(&|n| n.slc) > 800);
        assert!(share(&|n| n.protected) > 800 && share(&|n| n.damages) > 800);
        assert!(share(&|n| n.wears && n.slc && n.protected && n.damages) > 80);
    }
}
