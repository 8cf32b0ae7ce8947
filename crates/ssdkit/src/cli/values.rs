//! Values of options, read from text.

use std::fmt::Display;
use std::ops::RangeInclusive;

use measure::units::{self, UnitError};
use port::SECTOR_BYTES;

/// A request's size.
pub(super) fn block_size(text: &str) -> Result<u32, String> {
    let bytes = units::size(text).map_err(|e| e.to_string())?;
    if !(SECTOR_BYTES..=1 << 20).contains(&bytes) || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err("a request is 512 bytes to 1M, in multiples of 512".into());
    }
    Ok(bytes as u32)
}

/// A key and what it is set to.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, for example suspend=true")?;
    Ok((key.trim().into(), value.trim().into()))
}

/// A whole number of a range.
pub(crate) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
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
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match units::rate(text) {
        Ok(0) => Err("it must be more than zero".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("write a number, for example 5M or 100k".into()),
    }
}

/// A time in ns; a bare number is seconds.
pub(crate) fn time(text: &str) -> Result<u64, String> {
    let is_bare = text.trim_end().ends_with(|c: char| c.is_ascii_digit());
    let read =
        if is_bare { units::duration_ns(&format!("{text}s")) } else { units::duration_ns(text) };
    read.map_err(|e| UnitError { text: text.into(), ..e }.to_string())
}

/// A time that is not zero.
pub(crate) fn duration(text: &str) -> Result<u64, String> {
    match time(text)? {
        0 => Err("it must be more than zero".into()),
        ns => Ok(ns),
    }
}

/// The skew of Zipf's law.
pub(super) fn theta(text: &str) -> Result<f64, String> {
    let theta = text.parse::<f64>().ok().filter(|t| *t > 0.0 && *t <= 5.0);
    theta.ok_or_else(|| "write a number above 0 and at most 5, for example 0.99".into())
}
