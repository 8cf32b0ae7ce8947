//! Numbers with units, as profiles write them: exact both ways.
//!
//! A number is decimal digits with an optional fraction; what would have to be
//! rounded is refused, so that a printed profile is the profile itself.

use port::units::parse;

const TIME: &[(&str, u64)] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const RATE: &[(&str, u64)] =
    &[("B/s", 1), ("kB/s", 1_000), ("MB/s", 1_000_000), ("GB/s", 1_000_000_000)];
const SIZE: &[(&str, u64)] = &[("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
const AGE: &[(&str, u64)] = &[
    ("ns", 1),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const SMALL_ENERGY: &[(&str, u64)] =
    &[("pJ", 1), ("nJ", 1_000), ("uJ", 1_000_000), ("mJ", 1_000_000_000)];
const ENERGY: &[(&str, u64)] = &[("nJ", 1), ("uJ", 1_000), ("mJ", 1_000_000)];
const PERCENT: &[(&str, u64)] = &[("%", 1_000)];
const POWER: &[(&str, u64)] = &[("mW", 1), ("W", 1_000)];
const TEMPERATURE: &[(&str, u64)] = &[("C", 1_000)];
const RESISTANCE: &[(&str, u64)] = &[("mK/W", 1), ("K/W", 1_000)];

/// The longest time a profile may name: 1000 s.
const LONGEST: u64 = 1_000_000_000_000;

/// Nanoseconds; `0` needs no unit.
pub fn time(text: &str) -> Option<u64> {
    let ns = if text.trim() == "0" { 0 } else { scaled(text, TIME)? };
    (ns <= LONGEST).then_some(ns)
}

/// The lowest rate that a profile may name, in bytes a second: the longest queue of
/// the longest transfers still ends in the time that there is.
const SLOWEST: u64 = 1_000;

/// Bytes a second, decimal; `none` is 0, which stands for no limit.
pub fn rate(text: &str) -> Option<u64> {
    match text.trim() {
        "none" => Some(0),
        text => scaled(text, RATE).filter(|&rate| rate >= SLOWEST),
    }
}

/// Bytes, binary: `4k` is 4096. `B` and `iB` may follow.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix("ib").or_else(|| text.strip_suffix('b')).unwrap_or(&text);
    scaled(text, SIZE)
}

/// Nanoseconds of an age; `none` is 0, which stands for never.
pub fn age(text: &str) -> Option<u64> {
    match text.trim() {
        "none" => Some(0),
        text => scaled(text, AGE).filter(|&ns| ns > 0),
    }
}

/// Thousandths of a percent.
pub fn percent(text: &str) -> Option<u64> {
    scaled(text, PERCENT)
}

/// Picojoules.
pub fn small_energy(text: &str) -> Option<u64> {
    with_zero(text, SMALL_ENERGY)
}

/// Nanojoules.
pub fn energy(text: &str) -> Option<u64> {
    with_zero(text, ENERGY)
}

/// Milliwatts.
pub fn power(text: &str) -> Option<u64> {
    with_zero(text, POWER)
}

/// Thousandths of a degree Celsius.
pub fn temperature(text: &str) -> Option<u64> {
    scaled(text, TEMPERATURE).filter(|&mc| mc <= 1_000_000)
}

/// Thousandths of a kelvin a watt.
pub fn resistance(text: &str) -> Option<u64> {
    scaled(text, RESISTANCE).filter(|&mk| mk <= 1_000_000)
}

/// `0` needs no unit.
fn with_zero(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    if text.trim() == "0" { Some(0) } else { scaled(text, units) }
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    parse(text.trim(), units).ok()
}

/// A time as [`time`] reads it.
pub fn show_time(ns: u64) -> String {
    show(ns, TIME, 3)
}

/// A rate as [`rate`] reads it.
pub fn show_rate(rate: u64) -> String {
    if rate == 0 { "none".into() } else { show(rate, RATE, 3) }
}

/// A size as [`size`] reads it.
pub fn show_size(bytes: u64) -> String {
    show(bytes, SIZE, 0)
}

/// An age as [`age`] reads it.
pub fn show_age(ns: u64) -> String {
    if ns == 0 { "none".into() } else { show(ns, AGE, 0) }
}

/// A share as [`percent`] reads it.
pub fn show_percent(share: u64) -> String {
    let text = format!("{}.{:03}", share / 1000, share % 1000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// An energy as [`small_energy`] reads it.
pub fn show_small_energy(pj: u64) -> String {
    show(pj, SMALL_ENERGY, 3)
}

/// An energy as [`energy`] reads it.
pub fn show_energy(nj: u64) -> String {
    show(nj, ENERGY, 3)
}

/// A power as [`power`] reads it.
pub fn show_power(mw: u64) -> String {
    show(mw, POWER, 3)
}

/// A temperature as [`temperature`] reads it.
pub fn show_temperature(mc: u64) -> String {
    show_percent(mc).replace('%', "C")
}

/// A resistance as [`resistance`] reads it.
pub fn show_resistance(mk: u64) -> String {
    show(mk, RESISTANCE, 3)
}

/// With the largest unit that leaves at least one and at most so many decimal
/// digits behind the point, so that nothing is lost.
fn show(value: u64, units: &[(&str, u64)], digits: u32) -> String {
    let step = |scale: u64| (scale / 10u64.pow(digits)).max(1);
    let fits = |&&(_, scale): &&(&str, u64)| value >= scale && value.is_multiple_of(step(scale));
    let (unit, scale) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    let (whole, part) = (value / scale, value % scale);
    if part == 0 {
        return format!("{whole}{unit}");
    }
    let part = format!("{:03}", part / step(*scale));
    format!("{whole}.{}{unit}", part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_needed_and_known() {
        assert_eq!(time("75us"), Some(75_000));
        assert_eq!(time("3.8 ms"), Some(3_800_000));
        assert_eq!(time("0"), Some(0));
        assert_eq!(rate("333MB/s"), Some(333_000_000));
        assert_eq!(rate("2.4GB/s"), Some(2_400_000_000));
        assert_eq!(rate("none"), Some(0));
        assert_eq!(age("30d"), Some(30 * 86_400_000_000_000));
        assert_eq!((age("1.5h"), age("none")), (Some(5_400_000_000_000), Some(0)));
        assert_eq!((energy("12.5uJ"), energy("0")), (Some(12_500), Some(0)));
        assert_eq!((small_energy("40pJ"), power("0.5W")), (Some(40), Some(500)));
        assert_eq!((energy("5pJ"), power("1"), age("0"), age("3 weeks")), (None, None, None, None));
        assert_eq!(size("4k"), Some(4096));
        assert_eq!(size("1.5KiB"), Some(1536));
        assert_eq!(size("512"), Some(512));
        for bad in ["75", "", "us", "-1us", "1.us", ".5us", "1.5ns", "1e3us", "75 µs", "9999999s"]
        {
            assert_eq!(time(bad), None, "{bad}");
        }
        for bad in ["0MB/s", "333", "MB/s", "333MiB", "99999999999999GB/s"] {
            assert_eq!(rate(bad), None, "{bad}");
        }
        for bad in ["k", "4q", "0.3k", "1.2.3k", "999999999999g"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_shown_is_short_and_exact() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (3_800_000, "3.8ms"),
            (56_500, "56.5us"),
            (43_186, "43.186us"),
            (1_000_050, "1000.05us"),
            (1_000_000_001, "1000000.001us"),
        ] {
            assert_eq!(show_time(ns), text);
        }
        assert_eq!(show_rate(3_200_000_000), "3.2GB/s");
        assert_eq!(show_rate(1_500), "1.5kB/s");
        assert_eq!(show_size(1536), "1536");
        assert_eq!(show_size(16384), "16k");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(n in any::<u64>(), digits in 0u32..13) {
            let n = n / 10u64.pow(digits) * 10u64.pow(digits);
            prop_assert_eq!(time(&show_time(n % (LONGEST + 1))), Some(n % (LONGEST + 1)));
            let is_rate = n == 0 || n >= SLOWEST;
            prop_assert_eq!(rate(&show_rate(n)), is_rate.then_some(n));
            prop_assert_eq!(size(&show_size(n)), Some(n));
            prop_assert_eq!(age(&show_age(n)), Some(n));
            prop_assert_eq!(percent(&show_percent(n)), Some(n));
            prop_assert_eq!(energy(&show_energy(n)), Some(n));
            prop_assert_eq!(small_energy(&show_small_energy(n)), Some(n));
            prop_assert_eq!(power(&show_power(n)), Some(n));
            let few = n % 1_000_001;
            prop_assert_eq!(temperature(&show_temperature(few)), Some(few));
            prop_assert_eq!(resistance(&show_resistance(few)), Some(few));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (time(&text), rate(&text), size(&text));
            let _ = (temperature(&text), resistance(&text));
            let _ = (percent(&text), age(&text), energy(&text), small_energy(&text), power(&text));
        }
    }
}
