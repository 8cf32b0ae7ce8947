//! Numbers with units, read exactly: a number is decimal digits with an optional
//! fraction, and what would have to be rounded is refused. Sizes printed, as exactly.

use thiserror::Error;

/// What is wrong with a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// No text.
    #[error("it is empty")]
    Empty,
    /// A minus sign.
    #[error("it is negative")]
    Negative,
    /// No number at the start.
    #[error("it does not start with a number")]
    NoNumber,
    /// A number without a unit where one is needed.
    #[error("it has no unit")]
    NoUnit,
    /// Something else than a unit after the number.
    #[error("what follows the number is not a unit")]
    BadUnit,
    /// More than 2^64 - 1 of the smallest unit.
    #[error("it is too large")]
    TooLarge,
    /// A fraction of the smallest unit.
    #[error("it is not a whole number of the smallest unit")]
    NotWhole,
}

/// Prints a size, binary and exact: `512 B`, `4 KiB`, `1 MiB`. It uses the largest unit of
/// which the size is a whole multiple.
pub fn size_binary(bytes: u64) -> String {
    let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, f)| bytes > 0 && bytes.is_multiple_of(*f)) {
        Some((name, f)) => format!("{} {name}", bytes / f),
        None => format!("{bytes} B"),
    }
}

/// Reads a number followed by one of `units`, by their names and factors, in the
/// smallest of them; an empty name is the factor of a bare number.
pub fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, Problem> {
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    if text.starts_with('-') {
        return Err(Problem::Negative);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return Err(Problem::NoNumber);
    }
    let factor = units.iter().find(|(name, _)| *name == unit).map(|&(_, f)| u128::from(f));
    let factor = factor.ok_or(if unit.is_empty() { Problem::NoUnit } else { Problem::BadUnit })?;
    let whole: u64 = whole.parse().map_err(|_| Problem::TooLarge)?;
    // Zeros at the end say nothing; 19 digits are more than any unit divides.
    let part = part.trim_end_matches('0');
    if part.len() > 19 {
        return Err(Problem::NotWhole);
    }
    let scale = 10u128.pow(part.len() as u32);
    let part = part.parse::<u64>().map_or(0, u128::from) * factor;
    if !part.is_multiple_of(scale) {
        return Err(Problem::NotWhole);
    }
    u64::try_from(u128::from(whole) * factor + part / scale).map_err(|_| Problem::TooLarge)
}
