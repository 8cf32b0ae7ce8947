//! Values of a command's options, read from text: whole numbers of a range,
//! counts, times. Fails with words for who wrote one that is wrong.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::units::{self, UnitError};

/// A whole number of a range.
pub fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: Copy + Display + PartialOrd + TryFrom<u64> + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse::<u64>().ok().and_then(|n| T::try_from(n).ok());
        number.filter(|n| range.contains(n)).ok_or_else(|| {
            format!("write a whole number from {} to {}", range.start(), range.end())
        })
    }
}

/// A decimal count or rate that is not zero.
pub fn count(text: &str) -> Result<u64, String> {
    match units::rate(text) {
        Ok(0) => Err("it must be more than zero".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("write a number, for example 5M or 100k".into()),
    }
}

/// A time in ns; a bare number is seconds.
pub fn time(text: &str) -> Result<u64, String> {
    let is_bare = text.trim_end().ends_with(|c: char| c.is_ascii_digit());
    let read =
        if is_bare { units::duration_ns(&format!("{text}s")) } else { units::duration_ns(text) };
    read.map_err(|e| UnitError { text: text.into(), ..e }.to_string())
}

/// A time that is not zero.
pub fn duration(text: &str) -> Result<u64, String> {
    match time(text)? {
        0 => Err("it must be more than zero".into()),
        ns => Ok(ns),
    }
}
