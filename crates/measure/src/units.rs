//! Sizes, times and rates: read from text and printed.
//!
//! Sizes are binary (`4k` and `4KiB` are 4096 bytes) but for those with a `B`, as
//! drives are sold by (`4kB` is 4000), rates decimal, times in ns, us, ms,
//! s, min (or m, as fio has it), h or d. Case does not matter, a blank before
//! the unit neither, and a fraction is taken where the result is whole (`1.5k`).
//! Whatever cannot be read is a [`UnitError`] that names the text and shows what would do;
//! nothing is rounded or cut silently.

use port::units::parse;
pub use port::units::{Problem, size_binary};
use thiserror::Error;

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a {what}: {problem}; write for example {example}")]
pub struct UnitError {
    /// The text as given.
    pub text: String,
    /// What it should have been: a size, a time or a rate.
    pub what: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
    /// Texts that would do.
    pub example: &'static str,
}

/// A kind of quantity: its name, its units with their factors, an example.
struct Kind {
    what: &'static str,
    /// An empty name is the factor of a bare number.
    units: &'static [(&'static str, u64)],
    example: &'static str,
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;

const SIZE: Kind = Kind {
    what: "size",
    units: &[
        ("", 1),
        ("b", 1),
        ("k", K),
        ("kb", 1_000),
        ("kib", K),
        ("m", M),
        ("mb", 1_000_000),
        ("mib", M),
        ("g", G),
        ("gb", 1_000_000_000),
        ("gib", G),
        ("t", T),
        ("tb", 1_000_000_000_000),
        ("tib", T),
    ],
    example: "4k, 512 or 8G",
};

const TIME: Kind = Kind {
    what: "time",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ],
    example: "5s, 250ms or 20us, in ns, us, ms, s, min, h or d",
};

const RATE: Kind = Kind {
    what: "rate",
    units: &[
        ("", 1),
        ("/s", 1),
        ("k", 1_000),
        ("k/s", 1_000),
        ("m", 1_000_000),
        ("m/s", 1_000_000),
        ("g", 1_000_000_000),
        ("g/s", 1_000_000_000),
    ],
    example: "100k or 1.5M (a second)",
};

/// Reads a size in bytes: `512`, `4k`, `1MiB`, `8G`, `960GB`. K, M, G and T, also
/// with iB, are binary; kB, MB, GB and TB are decimal.
pub fn size(text: &str) -> Result<u64, UnitError> {
    read(text, &SIZE)
}

/// Reads a time in nanoseconds: `100ns`, `20us`, `250ms`, `5s`, `2min`, `1h`, `1d`.
/// A bare number is refused.
pub fn duration_ns(text: &str) -> Result<u64, UnitError> {
    read(text, &TIME)
}

/// Reads a rate per second: `100k`, `1.5M`. K, M and G are decimal.
pub fn rate(text: &str) -> Result<u64, UnitError> {
    read(text, &RATE)
}

fn read(text: &str, kind: &Kind) -> Result<u64, UnitError> {
    parse(&text.trim().to_lowercase(), kind.units).map_err(|problem| UnitError {
        text: text.to_owned(),
        what: kind.what,
        problem,
        example: kind.example,
    })
}

/// Prints a time given in nanoseconds with three digits: `85 ns`, `12.3 us`,
/// `1.20 ms`, `3.75 s`. Whole nanoseconds below 1 us have no fraction.
pub fn time_ns(ns: f64) -> String {
    if ns.fract() == 0.0 && (0.0..1000.0).contains(&ns) {
        return format!("{ns} ns");
    }
    three_digits(ns, &["ns", "us", "ms", "s"])
}

/// Prints a capacity or an amount of bytes, decimal: `960 GB`, `1.92 TB`. Add
/// `/s` for throughput.
pub fn bytes_decimal(bytes: f64) -> String {
    if bytes.fract() == 0.0 && (0.0..1000.0).contains(&bytes) {
        return format!("{bytes} B");
    }
    three_digits(bytes, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Prints a capacity, binary: exact where a unit gives at most four digits
/// before the point and two behind it (`1 GiB`, `1.5 GiB`, `960 MiB`), else
/// with three digits and a `~` before them (`~25.6 GiB`).
pub fn capacity(bytes: u64) -> String {
    let units = [("TiB", T), ("GiB", G), ("MiB", M), ("KiB", K)];
    let exact = |(_, factor): &&(&str, u64)| {
        let hundredths = u128::from(bytes) * 100;
        bytes >= *factor
            && hundredths.is_multiple_of(u128::from(*factor))
            && bytes / factor < 10_000
    };
    if let Some((name, factor)) = units.iter().find(exact) {
        return format!("{} {name}", bytes as f64 / *factor as f64);
    }
    match units.iter().find(|(_, factor)| bytes >= *factor) {
        Some((name, factor)) => {
            let value = bytes as f64 / *factor as f64;
            let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
            format!("~{value:.decimals$} {name}")
        }
        None => format!("{bytes} B"),
    }
}

/// So many things of a kind, exactly: `1 run`, `1704 runs`.
pub fn exactly(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// The same with three digits: `1 run`, `1.70 k runs`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n as f64), if n == 1 { "" } else { "s" })
}

/// Prints a count with three digits: `123`, `1.23 k`, `4.56 M`, `7.89 G`.
pub fn count(n: f64) -> String {
    if n.fract() == 0.0 && (0.0..1000.0).contains(&n) {
        return format!("{n}");
    }
    three_digits(n, &["", "k", "M", "G", "T"]).trim_end().to_owned()
}

/// `value` with three digits, in the largest of `units` (a thousand apart)
/// that keeps it at least one.
fn three_digits(value: f64, units: &[&str]) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let mut scaled = value;
    let mut unit = 0;
    // 999.5 would print as 1000, so it is already one of the next unit.
    while scaled.abs() >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let decimals = match scaled.abs() {
        a if a < 9.995 => 2,
        a if a < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_binary_and_exact_where_they_can_be() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (16 << 20, "16 MiB"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.5 GiB"),
            (960 << 30, "960 GiB"),
            (5 << 38, "1.25 TiB"),
            (27_487_790_694, "~25.6 GiB"),
            (960_000_000_000, "~894 GiB"),
            ((1 << 30) - 4096, "~1024 MiB"),
            (u64::MAX, "~16777216 TiB"),
        ] {
            assert_eq!(capacity(bytes), text, "{bytes}");
        }
    }
    use proptest::prelude::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("512", 512),
            ("0", 0),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4 kb", 4000),
            ("960GB", 960_000_000_000),
            ("1.5TB", 1_500_000_000_000),
            ("1M", 1 << 20),
            ("8G", 8 << 30),
            ("2TiB", 2 << 40),
            ("1.5k", 1536),
            ("16b", 16),
            (" 1m ", 1 << 20),
            ("0.50G", 1 << 29),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration_ns("5s"), Ok(5_000_000_000));
        assert_eq!(duration_ns("250ms"), Ok(250_000_000));
        assert_eq!(duration_ns("20us"), Ok(20_000));
        assert_eq!(duration_ns("20µs"), Ok(20_000));
        assert_eq!(duration_ns("1.5 US"), Ok(1_500));
        assert_eq!(duration_ns("100ns"), Ok(100));
        assert_eq!(duration_ns("2min"), Ok(120_000_000_000));
        assert_eq!(duration_ns("10m"), Ok(600_000_000_000));
        assert_eq!(duration_ns("2d"), Ok(172_800_000_000_000));
        assert_eq!(duration_ns("5").unwrap_err().problem, Problem::NoUnit);
        assert_eq!(duration_ns("1.5ns").unwrap_err().problem, Problem::NotWhole);
        assert_eq!(duration_ns("5y").unwrap_err().problem, Problem::BadUnit);
    }

    #[test]
    fn rates_are_decimal() {
        assert_eq!(rate("100k"), Ok(100_000));
        assert_eq!(rate("1.5M"), Ok(1_500_000));
        assert_eq!(rate("250/s"), Ok(250));
    }

    #[test]
    fn errors_name_text_and_reason() {
        for (text, problem) in [
            ("", Problem::Empty),
            ("  ", Problem::Empty),
            ("-4k", Problem::Negative),
            ("k", Problem::NoNumber),
            (".5k", Problem::NoNumber),
            ("5.k", Problem::NoNumber),
            ("1.2.3k", Problem::NoNumber),
            ("٣k", Problem::NoNumber),
            ("4kk", Problem::BadUnit),
            ("4 k b", Problem::BadUnit),
            ("4x", Problem::BadUnit),
            ("0.3k", Problem::NotWhole),
            ("0.00000000000000000000000001G", Problem::NotWhole),
            ("16777216T", Problem::TooLarge),
            ("18446744073709551616", Problem::TooLarge),
            ("99999999999999999999999999999999999999999999", Problem::TooLarge),
        ] {
            assert_eq!(size(text).unwrap_err().problem, problem, "{text:?}");
        }
        assert_eq!(
            size("4x").unwrap_err().to_string(),
            "\"4x\" is not a size: what follows the number is not a unit; \
             write for example 4k, 512 or 8G"
        );
    }

    #[test]
    fn prints_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (85.0, "85 ns"),
            (85.25, "85.2 ns"),
            (999.0, "999 ns"),
            (999.6, "1.00 us"),
            (12_345.0, "12.3 us"),
            (999_499.0, "999 us"),
            (999_500.0, "1.00 ms"),
            (1_203_000.0, "1.20 ms"),
            (9_996_000.0, "10.0 ms"),
            (3.75e9, "3.75 s"),
            (7.2e12, "7200 s"),
            (f64::NAN, "n/a"),
        ] {
            assert_eq!(time_ns(ns), text);
        }
        assert_eq!(
            (counted(1, "run"), counted(1704, "run")),
            ("1 run".into(), "1.70 k runs".into())
        );
        assert_eq!((exactly(1, "run"), exactly(1704, "run")), ("1 run".into(), "1704 runs".into()));
        assert_eq!(bytes_decimal(960.0e9), "960 GB");
        assert_eq!(bytes_decimal(512.0), "512 B");
        assert_eq!(bytes_decimal(3.2e9), "3.20 GB");
        assert_eq!(count(123.0), "123");
        assert_eq!(count(1_234_567.0), "1.23 M");
        assert_eq!(count(2_500.0), "2.50 k");
        assert_eq!(count(0.5), "0.50");
        assert_eq!(size_binary(4096), "4 KiB");
        assert_eq!(size_binary(0), "0 B");
        assert_eq!(size_binary(1536), "1536 B");
    }

    proptest! {
        #[test]
        fn printed_sizes_read_back_exactly(x in any::<u64>(), shift in 0u32..64) {
            let bytes = x >> shift << (shift / 2);
            prop_assert_eq!(size(&size_binary(bytes)), Ok(bytes));
        }

        #[test]
        fn printed_times_read_back_to_three_digits(x in any::<u64>(), shift in 1u32..64) {
            let ns = x >> shift;
            let back = duration_ns(&time_ns(ns as f64)).unwrap();
            prop_assert!(back.abs_diff(ns) as f64 <= ns as f64 * 0.005, "{ns} came back as {back}");
        }

        #[test]
        fn printed_counts_read_back_to_three_digits(n in 0u64..999_000_000_000) {
            let back = rate(&count(n as f64)).unwrap();
            prop_assert!(back.abs_diff(n) as f64 <= n as f64 * 0.005, "{n} came back as {back}");
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (size(&text), duration_ns(&text), rate(&text));
        }

        #[test]
        fn nothing_like_a_number_panics(text in "-?[0-9.]{0,40}[a-zA-Z /µ]{0,4}") {
            let _ = (size(&text), duration_ns(&text), rate(&text));
        }
    }
}
