//! A drive's temperature: of first order, exact, in whole numbers.
//!
//! What is taken of energy heats one mass, which cools towards what is around it. With
//! the same power for some time the rise above that goes from what it was to power
//! times resistance, as 1 - e^(-t / T). A look reckons with the mean power since the
//! last one, and a drive that works is looked at each [`LOOK`] at most: so what a look
//! costs is nothing beside what a drive does in that time.
//!
//! Guarantees: the same looks with the same energy give the same temperatures, on
//! any machine and in any build. It cannot fail.

use flash::Temperature;
use port::Time;

/// The least time between two looks, in ns.
const LOOK: u64 = 1_000_000;

/// Thousandths of a kelvin, in pK, and the most that it is reckoned with.
const MILLI: u128 = 1_000_000_000;
const MOST: u128 = 10_000_000_000 * MILLI;

/// One, of a share in fixed point.
const ONE: u128 = 1 << 62;

/// The temperature of a drive, and whether it throttles.
#[derive(Clone)]
pub(crate) struct Thermal {
    config: Temperature,
    last: Time,
    /// Energy taken until then, in nJ.
    spent: u64,
    /// How much warmer it is than what is around it, and was at most, in pK.
    rise: u128,
    highest: u128,
    throttles: bool,
    /// How long it throttled until the last look, in ns.
    throttled: u64,
}

impl Thermal {
    /// One that is as warm as what is around it at that time, until which so much was
    /// taken.
    pub fn new(config: Temperature, last: Time, spent: u64) -> Thermal {
        let (rise, highest, throttles, throttled) = (0, 0, false, 0);
        Thermal { config, last, spent, rise, highest, throttles, throttled }
    }

    /// How it is then, where so much was taken in all until then.
    pub fn at(&self, now: Time, spent: u64) -> Thermal {
        let mut then = self.clone();
        if now > self.last {
            then.look(now, spent);
        }
        then
    }

    /// Whether it is time to look again.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.next_look()
    }

    /// When it is.
    #[inline]
    pub fn next_look(&self) -> Time {
        self.last + LOOK
    }

    /// So much was taken in all until now.
    pub fn look(&mut self, now: Time, spent: u64) {
        let time = now - self.last;
        let energy = u128::from(spent.saturating_sub(self.spent));
        let end = energy * u128::from(self.config.resistance) * MILLI / u128::from(time);
        let left = decay(time, self.config.time);
        self.rise = (self.rise * left + end.min(MOST) * (ONE - left)) >> 62;
        self.highest = self.highest.max(self.rise);
        self.throttled += if self.throttles { time } else { 0 };
        (self.last, self.spent) = (now, spent);
        let is_above = match self.throttles {
            true => self.temperature() > self.config.throttle_until,
            false => self.temperature() >= self.config.throttle_from,
        };
        self.throttles = self.config.throttle_rate > 0 && is_above;
    }

    /// Whether it is too warm.
    #[inline]
    pub fn throttles(&self) -> bool {
        self.throttles
    }

    /// How long it was, in ns.
    pub fn throttled(&self) -> u64 {
        self.throttled
    }

    /// In thousandths of a degree.
    pub fn temperature(&self) -> u64 {
        self.config.ambient + (self.rise / MILLI) as u64
    }

    /// The highest so far.
    pub fn highest(&self) -> u64 {
        self.config.ambient + (self.highest / MILLI) as u64
    }
}

/// e^(-ns / of), in fixed point: a series, of so small a part that it ends soon, and
/// squared again.
fn decay(ns: u64, of: u64) -> u128 {
    const HALVINGS: u32 = 8;
    let ratio = (u128::from(ns) << 62) / u128::from(of);
    if ratio >= 44 * ONE {
        return 0;
    }
    let part = ratio >> HALVINGS;
    let series = (1..=12).rev().fold(ONE, |rest, n| ONE - ((part * rest) >> 62) / n);
    (0..HALVINGS).fold(series, |power, _| (power * power) >> 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_exponential() {
        for (ns, of) in [(0, 1), (1, 1 << 40), (1, 1000), (3, 10), (1, 1), (7, 1), (40, 1)] {
            let (share, exact) =
                (decay(ns, of) as f64 / ONE as f64, (-(ns as f64) / of as f64).exp());
            assert!((share - exact).abs() < 1e-15, "{ns} / {of}: {share} {exact}");
        }
        assert_eq!(decay(u64::MAX, 1), 0);
    }

    /// Two watts at 10 K/W and a time of 30 s, from 25 degrees: 45 in the end.
    #[test]
    fn the_temperature_follows_the_closed_form() {
        let config = Temperature {
            ambient: 25_000,
            resistance: 10_000,
            time: 30_000_000_000,
            ..Temperature::default()
        };
        let mut thermal = Thermal::new(config, Time::ZERO, 0);
        // However often somebody looks.
        for (step, until) in [(1_700_000, 20), (1_000_000_000, 60), (300_000_000_000, 3660)] {
            while thermal.last.0 + step <= until * 1_000_000_000 {
                let now = thermal.last + step;
                assert!(thermal.is_due(now));
                thermal.look(now, now.0 * 2);
            }
            let seconds = thermal.last.0 as f64 / 1e9;
            let exact = 20.0 * (1.0 - (-seconds / 30.0).exp());
            let rise = thermal.rise as f64 / 1e12;
            assert!((rise - exact).abs() < 1e-7, "{seconds} s: {rise} {exact}");
        }
        // And down again.
        let (start, spent) = (thermal.last, thermal.spent);
        thermal.look(start + 30_000_000_000, spent);
        assert_eq!(thermal.temperature(), 25_000 + 7_357);
        assert!((44_999..=45_000).contains(&thermal.highest()), "{}", thermal.highest());
    }
}
