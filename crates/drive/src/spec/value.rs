//! The keys of a drive's name and their values, as text.

use std::str::FromStr;

use measure::units;
use port::BLOCK_BYTES;

use super::DriveError;

/// A key and its value.
type Pair<'a> = (&'a str, &'a str);

/// The `key=value` parts of a drive's name, each key once.
pub(super) fn pairs(text: &str) -> Result<Vec<Pair<'_>>, DriveError> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for part in text.split(',') {
        let (key, value) =
            part.split_once('=').ok_or_else(|| DriveError::Part { part: part.into() })?;
        let (key, value) = (key.trim(), value.trim());
        if pairs.iter().any(|(seen, _)| *seen == key) {
            return Err(DriveError::Twice { key: key.into() });
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// What is named, and the `key=value` parts that follow it. `scheme` is what stood
/// before.
pub(super) fn name_and_pairs<'a>(
    scheme: &str,
    text: &'a str,
) -> Result<(&'a str, Vec<Pair<'a>>), DriveError> {
    let (name, rest) = text.split_once(',').map_or((text, None), |(n, r)| (n, Some(r)));
    if name.is_empty() {
        return Err(DriveError::scheme(format!("{scheme}:{text}")));
    }
    Ok((name, rest.map(pairs).transpose()?.unwrap_or_default()))
}

/// A number without a unit.
pub(super) fn number<T: FromStr>(key: &'static str, value: &str) -> Result<T, DriveError> {
    let takes = "a number";
    value.parse().map_err(|_| DriveError::Value { key, value: value.into(), takes })
}

/// Yes or no.
pub(super) fn flag(key: &'static str, value: &str) -> Result<bool, DriveError> {
    match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(DriveError::Value { key, value: value.into(), takes: "yes or no" }),
    }
}

/// A time that [`units::duration_ns`] reads back: the largest unit that leaves
/// a whole number.
pub(super) fn time_text(ns: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let fits = units.into_iter().find(|(_, unit)| ns > 0 && ns.is_multiple_of(*unit));
    let (name, unit) = fits.unwrap_or(("ns", 1));
    format!("{}{name}", ns / unit)
}

/// A logical capacity: at least a block, and a multiple of it.
pub(super) fn size_of(value: &str) -> Result<u64, DriveError> {
    let bytes = units::size(value).map_err(DriveError::Size)?;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        let takes = "a multiple of 4 KiB (4096 bytes) that is not zero, for example 8G; GB is \
                     decimal, 10^9 bytes, and seldom one";
        return Err(DriveError::Value { key: "size", value: value.into(), takes });
    }
    Ok(bytes)
}

/// A size that [`units::size`] reads back: the largest binary unit that
/// leaves a whole number.
pub(super) fn show_size(bytes: u64) -> String {
    units::size_binary(bytes).replace(' ', "").replace("iB", "").replace('B', "")
}
