//! Values as fio writes them: sizes, counts, times, yes and no, lists.
//!
//! A size and a count have the same units: with `kb_base=1024`, fio's default, k, m, g, t
//! are binary, also as kb, and kib is the decimal one; with `kb_base=1000` it is the other
//! way round. Guarantees: nothing is cut or rounded silently; nothing panics. What cannot
//! be read is `None`.

use port::units::parse;

/// An amount of bytes, or a part of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent, 0 to 100.
    Percent(u8),
}

/// What k stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// 1024, and kib is 1000: fio's default, for the sake of old files.
    #[default]
    Old,
    /// 1000, and kib is 1024.
    Si,
}

const fn units(k: u64, kib: u64) -> [(&'static str, u64); 17] {
    [
        ("", 1),
        ("b", 1),
        ("k", k),
        ("kb", k),
        ("kib", kib),
        ("m", k * k),
        ("mb", k * k),
        ("mib", kib * kib),
        ("g", k * k * k),
        ("gb", k * k * k),
        ("gib", kib * kib * kib),
        ("t", k * k * k * k),
        ("tb", k * k * k * k),
        ("tib", kib * kib * kib * kib),
        ("p", k * k * k * k * k),
        ("pb", k * k * k * k * k),
        ("pib", kib * kib * kib * kib * kib),
    ]
}

const OLD: &[(&str, u64)] = &units(1024, 1000);
const SI: &[(&str, u64)] = &units(1000, 1024);

impl Base {
    /// A size in bytes, or a count. Hexadecimal with 0x.
    pub fn number(self, text: &str) -> Option<u64> {
        let text = text.trim().to_lowercase();
        if let Some(digits) = text.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).ok();
        }
        parse(&text, if self == Base::Old { OLD } else { SI }).ok()
    }

    /// A size, or a part in percent.
    pub fn amount(self, text: &str) -> Option<Amount> {
        match text.trim().strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|&percent| percent <= 100);
                percent.map(Amount::Percent)
            }
            None => self.number(text).map(Amount::Bytes),
        }
    }
}

const TIMES: &[(&str, u64)] = &[
    ("us", 1_000),
    ("usec", 1_000),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// The longest time, in ns: ten years of 365 days.
pub const LONGEST: u64 = 3650 * 86_400_000_000_000;

/// A time in ns, at most [`LONGEST`]; a bare number is of `unit` ns.
pub fn time(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let ns = match text.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        Err(_) => parse(&text, TIMES).ok(),
    };
    ns.filter(|&ns| ns <= LONGEST)
}

/// Yes or no; a key alone is yes.
pub fn flag(value: Option<&str>) -> Option<bool> {
    match value {
        None | Some("1" | "true") => Some(true),
        Some("0" | "false") => Some(false),
        _ => None,
    }
}

/// One value each for reads, writes and trims: a list with commas, in which what is
/// missing is as the one before, and what is blank stays as it was.
pub fn sides(text: &str) -> Option<[Option<&str>; 3]> {
    let given: Vec<&str> = text.split(',').map(str::trim).collect();
    let some = |text| Some(text).filter(|text: &&str| !text.is_empty());
    match given[..] {
        [all] => Some([some(all); 3]),
        [reads, others] => Some([some(reads), some(others), some(others)]),
        [reads, writes, trims] => Some([some(reads), some(writes), some(trims)]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_fio_s() {
        let of = |text| (Base::Old.number(text), Base::Si.number(text));
        assert_eq!(of("4k"), (Some(4096), Some(4000)));
        assert_eq!(of("4KB"), (Some(4096), Some(4000)));
        assert_eq!(of("4kib"), (Some(4000), Some(4096)));
        assert_eq!(of("1g"), (Some(1 << 30), Some(1_000_000_000)));
        assert_eq!(of("512"), (Some(512), Some(512)));
        assert_eq!(of("0x200"), (Some(512), Some(512)));
        assert_eq!(of("4x"), (None, None));
        assert_eq!(Base::Old.amount("25%"), Some(Amount::Percent(25)));
        assert_eq!((Base::Old.amount("101%"), Base::Old.amount("-1")), (None, None));
    }

    #[test]
    fn times_have_the_unit_of_their_key() {
        assert_eq!(time("10", 1_000_000_000), Some(10_000_000_000));
        assert_eq!(time("10", 1_000), Some(10_000));
        assert_eq!((time("2m", 1), time("5msec", 1)), (Some(120_000_000_000), Some(5_000_000)));
        assert_eq!((time("1d", 1), time("x", 1)), (Some(86_400_000_000_000), None));
        assert_eq!(time("18446744073709551615", 1000), None);
        assert_eq!((time("3650d", 1), time("3651d", 1)), (Some(LONGEST), None));
        assert_eq!(time("18446744073", 1_000_000_000), None);
    }

    #[test]
    fn sides_are_reads_writes_and_trims() {
        assert_eq!(sides("4k"), Some([Some("4k"); 3]));
        assert_eq!(sides("4k,8k"), Some([Some("4k"), Some("8k"), Some("8k")]));
        assert_eq!(sides(",8k"), Some([None, Some("8k"), Some("8k")]));
        assert_eq!(sides("1,2,3,4"), None);
        assert_eq!((flag(None), flag(Some("0")), flag(Some("x"))), (Some(true), Some(false), None));
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_none(text in "[0-9]{0,22}[a-z%.x]{0,5}|.{0,20}") {
            let _ = (Base::Old.amount(&text), Base::Si.number(&text), time(&text, 1_000_000_000));
            let _ = (flag(Some(&text)), sides(&text));
        }
    }
}
