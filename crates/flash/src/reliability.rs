//! How reliable flash is: raw bit errors and their correction, programs and
//! erases that fail, chunks that are bad from the factory.
//!
//! A model, not a simulation of cells: the raw bit error rate (RBER) of a
//! chunk follows from its wear, its age and its reads, that of a page also from its
//! type and its word line; the errors of one read are drawn from the binomial distribution with that rate. All draws are
//! hashes of a seed and of what is read, and powers are those of `libm`, so that
//! the same run gives the same errors, on every machine. `docs/reliability.md` has formulas and sources.
//!
//! Nothing fails here. Numbers outside their ranges are for the profile to
//! refuse; whatever they are, a rate stays between 0 and 0.5.

use libm::{exp, log, pow};
use port::BLOCK_BYTES;
use port::random::{self, STEP, unit};

use crate::{BlockBits, Chunk, MAX_ROW_BLOCKS, Ppa};

/// Error counts of which the mean is above this are not drawn but taken as
/// their mean: far beyond any code.
const LARGEST_MEAN: f64 = 600.0;

/// The reliability of a kind of drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Reliability {
    /// Whether any of it is modelled.
    pub errors: bool,
    /// RBER of a new chunk that was just programmed, 0 to 0.5.
    pub rber_base: f64,
    /// RBER that wear has added at the rated endurance, 0 to 0.5.
    pub rber_wear: f64,
    /// The power of the wear with which it grows.
    pub wear_power: f64,
    /// Age at which the RBER of new data has doubled, in ns; 0 for never.
    pub retention_time: u64,
    /// The power of the age with which it grows.
    pub retention_power: f64,
    /// RBER that each array read adds to its chunk, at the rated endurance.
    pub read_disturb: f64,
    /// What the rate of a page type is to the chunk's: wide page `p` has type
    /// `p % page_rber.len()`. At least one.
    pub page_rber: Vec<f64>,
    /// How far the word lines of a block are apart: the first one's rate is this share
    /// of the chunk's less, the last one's as much more, and those between lie on a
    /// line. 0 to 1.
    pub layer_rber: f64,
    /// Bytes that are corrected together: 512, 1024, 2048 or 4096.
    pub codeword: u32,
    /// Bit errors that can be corrected in a codeword.
    pub correctable: u32,
    /// Most times that an array read is repeated with other reference
    /// voltages.
    pub read_retries: u32,
    /// What each repetition leaves of the RBER, 0 to 1.
    pub retry_gain: f64,
    /// What the controller takes to find that a read is to be repeated, in ns: then
    /// the data of each try go out to it. 0 where the chip repeats by itself.
    pub decode: u64,
    /// Probability that a program fails, at the rated endurance.
    pub program_failure: f64,
    /// Probability that an erase fails, at the rated endurance.
    pub erase_failure: f64,
    /// The power of the wear with which both grow.
    pub failure_power: f64,
    /// Share of what is a chunk's on one channel that is bad from the factory, 0 to 0.5.
    pub factory_bad: f64,
    /// Whether a bad one of a super-channel is made up for by the good one of a chunk
    /// that is bad on another channel: the remap checker.
    pub remap: bool,
    /// Whether a chunk goes offline at its rated endurance, whatever its
    /// erases do.
    pub endurance_cliff: bool,
    /// Wear index above the mean at which the drive says so, 1 to 255; 0 for
    /// never.
    pub wear_notice: u32,
}

impl Default for Reliability {
    /// No errors.
    fn default() -> Reliability {
        Reliability {
            errors: false,
            rber_base: 0.0,
            rber_wear: 0.0,
            wear_power: 1.0,
            retention_time: 0,
            retention_power: 1.0,
            read_disturb: 0.0,
            page_rber: vec![1.0],
            layer_rber: 0.0,
            codeword: 1024,
            correctable: 72,
            read_retries: 0,
            retry_gain: 0.5,
            decode: 0,
            program_failure: 0.0,
            erase_failure: 0.0,
            failure_power: 1.0,
            factory_bad: 0.0,
            remap: false,
            endurance_cliff: true,
            wear_notice: 0,
        }
    }
}

/// What an array read of some blocks of one row comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sensed {
    /// Repetitions that it took.
    pub retries: u32,
    /// Bit `i` is set when block `i` could not be corrected after all of them.
    pub failed: BlockBits,
    /// Raw errors in the worst codeword, before any repetition.
    pub worst: u32,
}

/// How near a chunk's reads are to what can be corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ErrorLevel {
    /// At most half of it.
    #[default]
    Fine = 0,
    /// Above a half.
    Low = 1,
    /// Above three quarters.
    Medium = 2,
    /// Above seven eighths, or corrected only after a repetition.
    High = 3,
    /// Beyond.
    Unrecoverable = 4,
}

impl ErrorLevel {
    /// All, by number.
    pub const ALL: [ErrorLevel; 5] = [
        ErrorLevel::Fine,
        ErrorLevel::Low,
        ErrorLevel::Medium,
        ErrorLevel::High,
        ErrorLevel::Unrecoverable,
    ];

    /// The level of that number.
    pub fn from_number(number: u8) -> Option<ErrorLevel> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl Reliability {
    /// The share of its rated `endurance` that a chunk in use has had: an
    /// erase and the program after it are one cycle. 0 where there is no end.
    pub fn wear_share(wear: u32, endurance: u32) -> f64 {
        if endurance == u32::MAX {
            0.0
        } else {
            (f64::from(wear) + 1.0) / f64::from(endurance.max(1))
        }
    }

    /// The raw bit error rate of a chunk: `share` of its endurance used, its
    /// data `age` ns old, read `reads` times since its erase.
    pub fn rber(&self, share: f64, age: u64, reads: u32) -> f64 {
        let written = self.rber_base + self.rber_wear * pow(share, self.wear_power);
        let aged = match self.retention_time {
            0 => 0.0,
            time => pow(age as f64 / time as f64, self.retention_power),
        };
        let disturbed = self.read_disturb * share * f64::from(reads);
        (written * (1.0 + aged) + disturbed).clamp(0.0, 0.5)
    }

    /// What the rate of a wide page is to its chunk's, of so many pages, of which a
    /// word line has some.
    pub fn page_share(&self, page: u32, pages: u32, word_line: u32) -> f64 {
        let of_type = self.page_rber[page as usize % self.page_rber.len()];
        let last = pages.div_ceil(word_line) - 1;
        let height = f64::from(page / word_line) / f64::from(last.max(1));
        of_type * (1.0 + self.layer_rber * (2.0 * height - 1.0))
    }

    /// The same of the worst page that there may be.
    pub fn worst_share(&self) -> f64 {
        self.page_rber.iter().copied().fold(0.0, f64::max) * (1.0 + self.layer_rber)
    }

    /// Bits of a codeword.
    pub fn codeword_bits(&self) -> u32 {
        self.codeword * 8
    }

    /// Draws the raw errors of an array read of `count` blocks of a row from `at`
    /// on, with the given rate. `chunk` is as it was before the read. The same bits
    /// are wrong in every repetition, of which each leaves fewer.
    pub fn sense(&self, seed: u64, at: Ppa, count: u32, chunk: &Chunk, rber: f64) -> Sensed {
        let codewords = (BLOCK_BYTES as u32 / self.codeword.max(1)).max(1);
        let life = (u64::from(chunk.wear) << 32) | u64::from(chunk.reads);
        let mut draws = [0.0f64; MAX_ROW_BLOCKS as usize];
        let draws = &mut draws[..count as usize];
        for (block, draw) in (at.0..).zip(draws.iter_mut()) {
            let key = mix(seed ^ mix(block ^ mix(life)));
            // A block is as good as its worst codeword.
            let each = (0..u64::from(codewords)).map(|word| unit(mix(key ^ word)));
            *draw = each.fold(0.0, f64::max);
        }
        let highest = draws.iter().copied().fold(0.0, f64::max);
        let mut sensed = Sensed { worst: self.errors_at(rber, highest), ..Sensed::default() };
        if sensed.worst <= self.correctable {
            return sensed;
        }
        let mut rate = rber;
        loop {
            let limit = self.correctable_share(rate);
            let failed = |(i, &draw): (usize, &f64)| BlockBits::from(draw >= limit) << i;
            sensed.failed = draws.iter().enumerate().map(failed).sum();
            if sensed.failed == 0 || sensed.retries == self.read_retries {
                return sensed;
            }
            sensed.retries += 1;
            rate *= self.retry_gain;
        }
    }

    /// The raw errors of a codeword that is at `draw`, 0 to below 1, of all
    /// codewords in their order of badness: the inverse of the binomial
    /// distribution.
    pub fn errors_at(&self, rber: f64, draw: f64) -> u32 {
        let mut errors = Binomial::new(self.codeword_bits(), rber);
        if errors.mean() > LARGEST_MEAN {
            return errors.mean() as u32;
        }
        while draw >= errors.below_or_at && errors.step() {}
        errors.count
    }

    /// The share of all codewords that have no more errors than can be
    /// corrected.
    pub fn correctable_share(&self, rber: f64) -> f64 {
        let mut errors = Binomial::new(self.codeword_bits(), rber);
        if errors.mean() > LARGEST_MEAN {
            return if self.correctable < errors.mean() as u32 { 0.0 } else { 1.0 };
        }
        while errors.count < self.correctable && errors.step() {}
        // What is left is too small to be told from nothing.
        if errors.is_over() { 1.0 } else { errors.below_or_at }
    }

    /// How near a read came to what can be corrected.
    pub fn level(&self, sensed: &Sensed) -> ErrorLevel {
        let (worst, most) = (u64::from(sensed.worst) * 8, u64::from(self.correctable));
        if sensed.failed != 0 {
            ErrorLevel::Unrecoverable
        } else if sensed.retries > 0 || worst > most * 7 {
            ErrorLevel::High
        } else if worst > most * 6 {
            ErrorLevel::Medium
        } else if worst > most * 4 {
            ErrorLevel::Low
        } else {
            ErrorLevel::Fine
        }
    }

    /// Whether the program that begins at `at` fails, in a chunk of this wear.
    pub fn program_fails(&self, seed: u64, at: Ppa, wear: u32, endurance: u32) -> bool {
        let chance = self.program_failure;
        self.fails(chance, Reliability::wear_share(wear, endurance), [seed, 1, at.0, wear.into()])
    }

    /// Whether the erase fails that brings the chunk at `at` to this wear.
    pub fn erase_fails(&self, seed: u64, at: Ppa, wear: u32, endurance: u32) -> bool {
        let share = Reliability::wear_share(wear.saturating_sub(1), endurance);
        self.fails(self.erase_failure, share, [seed, 2, at.0, wear.into()])
    }

    /// Whether the chunk at `at` is bad from the factory on that channel of those that
    /// share its transfers.
    pub fn is_factory_bad(&self, seed: u64, at: Ppa, channel: u32) -> bool {
        let what = [seed, 3, at.0, channel.into()];
        self.errors && self.factory_bad > 0.0 && draw(what) < self.factory_bad
    }

    fn fails(&self, chance: f64, share: f64, what: [u64; 4]) -> bool {
        if !self.errors || chance <= 0.0 {
            return false;
        }
        draw(what) < chance * pow(share, self.failure_power)
    }
}

/// A number that depends on all bits of `x`.
#[inline]
fn mix(x: u64) -> u64 {
    random::mix(x.wrapping_add(STEP))
}

/// A number from 0 to below 1 that depends on all of them.
fn draw(what: [u64; 4]) -> f64 {
    unit(what.into_iter().fold(0, |all, word| mix(all ^ word)))
}

/// The binomial distribution, walked from zero upwards.
struct Binomial {
    bits: f64,
    /// p / (1 - p).
    odds: f64,
    /// How far it is.
    count: u32,
    /// Probability of `count`.
    here: f64,
    /// Probability of `count` or less.
    below_or_at: f64,
}

impl Binomial {
    fn new(bits: u32, rate: f64) -> Binomial {
        let bits = f64::from(bits);
        let none = exp(bits * log(1.0 - rate));
        Binomial { bits, odds: rate / (1.0 - rate), count: 0, here: none, below_or_at: none }
    }

    fn mean(&self) -> f64 {
        self.bits * self.odds / (1.0 + self.odds)
    }

    /// Goes one further; false, and stays, where hardly anything is left.
    fn step(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        self.here *= (self.bits - f64::from(self.count)) / f64::from(self.count + 1) * self.odds;
        self.count += 1;
        self.below_or_at += self.here;
        true
    }

    /// Past the mean, where each is smaller than the one before it.
    fn is_over(&self) -> bool {
        f64::from(self.count) > self.mean() && self.here < 1e-20
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> Reliability {
        Reliability {
            errors: true,
            rber_base: 1e-4,
            rber_wear: 1e-3,
            wear_power: 2.0,
            retention_time: 1_000_000,
            retention_power: 0.5,
            read_disturb: 1e-9,
            ..Reliability::default()
        }
    }

    /// Probabilities of 0 to `most` errors, in logarithms of factorials.
    fn binomial(bits: u32, rate: f64, most: u32) -> Vec<f64> {
        let ln_factorial = |n: u32| (1..=n).map(|i| f64::from(i).ln()).sum::<f64>();
        let all = ln_factorial(bits);
        let of = |k: u32| {
            let ways = all - ln_factorial(k) - ln_factorial(bits - k);
            let (right, wrong) = (f64::from(bits - k), f64::from(k));
            (ways + wrong * rate.ln() + right * (-rate).ln_1p()).exp()
        };
        (0..=most).map(of).collect()
    }

    #[test]
    fn the_rate_is_the_formula() {
        let m = model();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * b, "{a} {b}");
        close(m.rber(0.0, 0, 0), 1e-4);
        close(m.rber(0.5, 0, 0), 1e-4 + 1e-3 * 0.25);
        close(m.rber(1.0, 4_000_000, 0), 1.1e-3 * (1.0 + 2.0));
        close(m.rber(0.5, 1_000_000, 1000), 3.5e-4 * 2.0 + 5e-7);
        assert_eq!(m.rber(1e9, u64::MAX, u32::MAX), 0.5);
        assert_eq!(Reliability::wear_share(99, 100), 1.0);
        assert_eq!(Reliability::wear_share(99, u32::MAX), 0.0);
    }

    #[test]
    fn page_types_and_word_lines_have_their_share() {
        let m = Reliability { page_rber: vec![0.5, 1.0, 2.0], layer_rber: 0.25, ..model() };
        // Three word lines of three pages.
        let shares: Vec<f64> = (0..9).map(|page| m.page_share(page, 9, 3)).collect();
        assert_eq!(shares, [0.375, 0.75, 1.5, 0.5, 1.0, 2.0, 0.625, 1.25, 2.5]);
        assert_eq!(m.worst_share(), 2.5);
        assert_eq!(m.page_share(0, 1, 1), 0.375, "one word line alone");
        assert_eq!((model().page_share(7, 9, 3), model().worst_share()), (1.0, 1.0));
    }

    #[test]
    fn drawn_counts_are_binomial() {
        for rate in [1e-5, 3e-4, 2e-3, 6e-3] {
            let m = model();
            let expected = binomial(m.codeword_bits(), rate, 200);
            let draws = 200_000u64;
            let mut seen = vec![0u64; 201];
            for i in 0..draws {
                seen[m.errors_at(rate, unit(mix(i))) as usize] += 1;
            }
            // Chi-square over the counts of which at least 20 are expected.
            let (mut sum, mut kinds) = (0.0, 0.0);
            for (&seen, p) in seen.iter().zip(&expected) {
                let expected = p * draws as f64;
                if expected >= 20.0 {
                    sum += (seen as f64 - expected).powi(2) / expected;
                    kinds += 1.0;
                }
            }
            // Its mean is `kinds`, its deviation the root of twice that.
            assert!(sum < kinds + 5.0 * f64::sqrt(2.0 * kinds), "{rate}: {sum} of {kinds}");
        }
    }

    #[test]
    fn the_share_that_can_be_corrected_is_the_sum() {
        for (rate, correctable) in [(3e-3, 30), (6e-3, 40), (6e-3, 72), (1e-2, 72)] {
            let m = Reliability { correctable, ..model() };
            let sum: f64 = binomial(m.codeword_bits(), rate, correctable).iter().sum();
            assert!((m.correctable_share(rate) - sum).abs() < 1e-9, "{rate} {correctable}");
        }
        assert_eq!(model().correctable_share(0.0), 1.0);
        assert_eq!(model().correctable_share(0.5), 0.0);
        assert_eq!(model().errors_at(0.0, 0.999), 0);
        assert_eq!(model().errors_at(0.5, 0.0), 4096);
    }

    #[test]
    fn blocks_fail_as_often_as_the_formula_says() {
        let rate = 8e-3;
        for codeword in [512u32, 1024, 4096] {
            let m = Reliability { codeword, correctable: codeword * 8 / 100, ..model() };
            let words = 4096 / codeword;
            let p = 1.0 - m.correctable_share(rate).powi(words as i32);
            let reads = 40_000u64;
            let failed: u32 = (0..reads / 8)
                .map(|i| {
                    let chunk = Chunk { reads: i as u32, ..Chunk::default() };
                    m.sense(7, Ppa(i % 100 * 8), 8, &chunk, rate).failed.count_ones()
                })
                .sum();
            let mean = p * reads as f64;
            let deviation = (mean * (1.0 - p)).sqrt();
            assert!((f64::from(failed) - mean).abs() < 4.0 * deviation, "{failed} for {mean}");
        }
    }

    #[test]
    fn failures_come_as_often_as_their_probability() {
        let m = Reliability {
            program_failure: 0.3,
            erase_failure: 0.2,
            failure_power: 2.0,
            factory_bad: 0.05,
            ..model()
        };
        let count = |f: &dyn Fn(u64) -> bool| (0..20_000).filter(|&i| f(i)).count() as f64;
        let near = |seen: f64, p: f64| {
            let (mean, deviation) = (20_000.0 * p, (20_000.0 * p * (1.0 - p)).sqrt());
            assert!((seen - mean).abs() < 4.0 * deviation, "{seen} for {mean}");
        };
        near(count(&|i| m.program_fails(1, Ppa(i), 99, 100)), 0.3);
        near(count(&|i| m.program_fails(1, Ppa(i), 49, 100)), 0.3 * 0.25);
        near(count(&|i| m.erase_fails(1, Ppa(i), 100, 100)), 0.2);
        near(count(&|i| m.erase_fails(1, Ppa(i), 50, 100)), 0.2 * 0.25);
        near(count(&|i| m.is_factory_bad(1, Ppa(i), 0)), 0.05);
        let off = Reliability { errors: false, ..m };
        assert_eq!(count(&|i| off.program_fails(1, Ppa(i), 99, 100)), 0.0);
        assert_eq!(count(&|i| off.is_factory_bad(1, Ppa(i), 1)), 0.0);
    }

    #[test]
    fn levels_are_shares_of_what_can_be_corrected() {
        let m = Reliability { correctable: 80, ..model() };
        let level = |worst, retries, failed| m.level(&Sensed { worst, retries, failed });
        assert_eq!(level(40, 0, 0), ErrorLevel::Fine);
        assert_eq!(level(41, 0, 0), ErrorLevel::Low);
        assert_eq!(level(61, 0, 0), ErrorLevel::Medium);
        assert_eq!(level(71, 0, 0), ErrorLevel::High);
        assert_eq!(level(90, 1, 0), ErrorLevel::High);
        assert_eq!(level(90, 1, 2), ErrorLevel::Unrecoverable);
        for (number, &level) in (0u8..).zip(&ErrorLevel::ALL) {
            assert_eq!(ErrorLevel::from_number(number), Some(level));
            assert_eq!(level as u8, number);
        }
        assert_eq!(ErrorLevel::from_number(5), None);
    }

    proptest! {
        /// Repetitions never make it worse, and stop when all is corrected.
        #[test]
        fn repetitions_help(
            seed in any::<u64>(), at in 0u64..1 << 40, count in 1..=MAX_ROW_BLOCKS, reads in any::<u32>(),
            rate in 0.0f64..0.02, retries in 0u32..6, gain in 0.3f64..1.0,
        ) {
            let m = Reliability { read_retries: retries, retry_gain: gain, ..model() };
            let chunk = Chunk { reads, ..Chunk::default() };
            let sensed = m.sense(seed, Ppa(at), count, &chunk, rate);
            prop_assert!(sensed.retries <= retries);
            prop_assert_eq!(sensed.worst > m.correctable, sensed.retries > 0 || sensed.failed != 0);
            prop_assert!(sensed.failed == 0 || sensed.retries == retries);
            if count < 64 {
                prop_assert_eq!(sensed.failed >> count, 0);
            }
            let more = Reliability { read_retries: retries + 1, ..m.clone() };
            let better = more.sense(seed, Ppa(at), count, &chunk, rate);
            prop_assert_eq!(better.failed & !sensed.failed, 0);
            prop_assert_eq!(m.sense(seed, Ppa(at), count, &chunk, rate), sensed);
        }

        #[test]
        fn more_of_anything_is_no_better(
            share in 0.0f64..3.0, age in 0u64..1 << 50, reads in 0u32..1 << 30, more in 1u32..1000,
        ) {
            let m = model();
            let here = m.rber(share, age, reads);
            prop_assert!((0.0..=0.5).contains(&here));
            prop_assert!(m.rber(share + f64::from(more), age, reads) >= here);
            prop_assert!(m.rber(share, age + u64::from(more), reads) >= here);
            prop_assert!(m.rber(share, age, reads + more) >= here);
        }
    }
}
