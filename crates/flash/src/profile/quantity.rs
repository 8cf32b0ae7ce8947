//! Numbers with units, as profiles write them: exact both ways.
//!
//! A number is decimal digits with an optional fraction; what would have to be
//! rounded is refused, so that a printed profile is the profile itself.

const TIME: &[(&str, u64)] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const RATE: &[(&str, u64)] =
    &[("B/s", 1), ("kB/s", 1_000), ("MB/s", 1_000_000), ("GB/s", 1_000_000_000)];
const SIZE: &[(&str, u64)] = &[("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];

/// The longest time a profile may name: 1000 s.
const LONGEST: u64 = 1_000_000_000_000;

/// Nanoseconds; `0` needs no unit.
pub fn time(text: &str) -> Option<u64> {
    let ns = if text.trim() == "0" { 0 } else { scaled(text, TIME)? };
    (ns <= LONGEST).then_some(ns)
}

/// Bytes a second, decimal; `none` is 0, which stands for no limit.
pub fn rate(text: &str) -> Option<u64> {
    match text.trim() {
        "none" => Some(0),
        text => scaled(text, RATE).filter(|&rate| rate > 0),
    }
}

/// Bytes, binary: `4k` is 4096. `B` and `iB` may follow.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix("ib").or_else(|| text.strip_suffix('b')).unwrap_or(&text);
    scaled(text, SIZE)
}

/// A number followed by a unit, when it is a whole number of the smallest
/// unit and fits.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| if s.is_empty() { Some(0) } else { s.parse::<u64>().ok() };
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 12 {
        return None;
    }
    let parts = u128::from(digits(fraction)?) * u128::from(scale);
    let per = 10u128.pow(fraction.len() as u32);
    if !parts.is_multiple_of(per) {
        return None;
    }
    let total = u128::from(digits(whole)?) * u128::from(scale) + parts / per;
    u64::try_from(total).ok()
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
            prop_assert_eq!(rate(&show_rate(n)), Some(n));
            prop_assert_eq!(size(&show_size(n)), Some(n));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (time(&text), rate(&text), size(&text));
        }
    }
}
