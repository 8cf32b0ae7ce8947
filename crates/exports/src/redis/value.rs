//! What stands in the store: keys and values of Redis as records.
//!
//! | record | key | value |
//! |---|---|---|
//! | format | `!` | [`FORMAT`] |
//! | string | `k` key | 0, bytes |
//! | hash | `k` key | 1, for each field: length of name (u32), of value (u32), name, value |
//! | sorted set | `k` key | 2, number of members (u64) |
//! | member | `m` length of key (u16, big-endian) key member | score |
//! | index | `s` length of key (u16, big-endian) key score member | |
//!
//! A score is a double as 8 bytes that sort as it does, big-endian: the bits,
//! inverted where negative, else with the sign bit set. Other numbers are
//! little-endian. Pages are checksummed below. Records that are otherwise are
//! told as damaged.

use std::fmt::Write;

/// The value of the record that says how the others are to be read.
pub const FORMAT: &[u8] = b"ssdkit redis 1";
/// The key of that record.
pub const FORMAT_KEY: &[u8] = b"!";

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string.
    String(&'a [u8]),
    /// A hash: its packed fields.
    Hash(&'a [u8]),
    /// A sorted set: how many members it has.
    Sorted(u64),
}

impl<'a> Value<'a> {
    /// The value in a record; `None` when it is damaged.
    pub fn of(record: &'a [u8]) -> Option<Value<'a>> {
        let (kind, rest) = record.split_first()?;
        match kind {
            0 => Some(Value::String(rest)),
            1 => Some(Value::Hash(rest)),
            2 => rest.try_into().ok().map(|count| Value::Sorted(u64::from_le_bytes(count))),
            _ => None,
        }
    }

    /// What TYPE says of it.
    pub fn name(self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::Hash(_) => "hash",
            Value::Sorted(_) => "zset",
        }
    }

    /// Puts the record behind `to`.
    pub fn store(self, to: &mut Vec<u8>) {
        match self {
            Value::String(bytes) => {
                to.push(0);
                to.extend_from_slice(bytes);
            }
            Value::Hash(fields) => {
                to.push(1);
                to.extend_from_slice(fields);
            }
            Value::Sorted(count) => {
                to.push(2);
                to.extend_from_slice(&count.to_le_bytes());
            }
        }
    }
}

/// A field of a hash: name and value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// The fields of a packed hash. Ends early where it is damaged.
pub fn fields(mut packed: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        let (name, rest) = packed.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
        packed = rest;
        Some((name, value))
    })
}

/// The value of a field.
pub fn field<'a>(packed: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    fields(packed).find(|field| field.0 == name).map(|field| field.1)
}

/// Packs fields.
pub fn pack<'a>(fields: impl Iterator<Item = Field<'a>>) -> Vec<u8> {
    let mut to = Vec::new();
    for (name, value) in fields {
        to.extend_from_slice(&(name.len() as u32).to_le_bytes());
        to.extend_from_slice(&(value.len() as u32).to_le_bytes());
        to.extend_from_slice(name);
        to.extend_from_slice(value);
    }
    to
}

/// Puts the record key of a key behind `to`.
pub fn main_key(key: &[u8], to: &mut Vec<u8>) {
    to.push(b'k');
    to.extend_from_slice(key);
}

fn prefix(kind: u8, key: &[u8], to: &mut Vec<u8>) {
    to.push(kind);
    to.extend_from_slice(&(key.len() as u16).to_be_bytes());
    to.extend_from_slice(key);
}

/// The record key of a member.
pub fn member_key(key: &[u8], member: &[u8], to: &mut Vec<u8>) {
    prefix(b'm', key, to);
    to.extend_from_slice(member);
}

/// The record key of an index record; without a member, where those of a score
/// begin.
pub fn index_key(key: &[u8], score: f64, member: &[u8], to: &mut Vec<u8>) {
    prefix(b's', key, to);
    to.extend_from_slice(&ordered(score));
    to.extend_from_slice(member);
}

/// The score and the member of an index record of `key`; `None` for any other.
pub fn indexed<'a>(record: &'a [u8], key: &[u8]) -> Option<(f64, &'a [u8])> {
    let rest = record.strip_prefix(b"s")?;
    let rest = rest.strip_prefix(&(key.len() as u16).to_be_bytes())?.strip_prefix(key)?;
    let (score, member) = rest.split_first_chunk::<8>()?;
    Some((score_of(*score), member))
}

/// A score as bytes that sort as it does. Zero has no sign.
pub fn ordered(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let flip = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
    (bits ^ flip).to_be_bytes()
}

/// The score again.
pub fn score_of(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    let flip = if bits >> 63 == 1 { 1 << 63 } else { u64::MAX };
    f64::from_bits(bits ^ flip)
}

/// A score that somebody wrote; not a NaN.
pub fn parse_score(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

/// A score as it is written: the fewest digits that give it again.
pub fn show_score(score: f64, to: &mut String) {
    to.clear();
    // Writing to memory does not fail.
    let _ = if score.is_finite() && score != 0.0 && !(1e-5..1e17).contains(&score.abs()) {
        write!(to, "{score:e}")
    } else {
        write!(to, "{score}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scores_as_they_are_written() {
        let mut text = String::new();
        for (score, shown) in
            [(3.0, "3"), (-0.5, "-0.5"), (f64::INFINITY, "inf"), (1e300, "1e300"), (0.0, "0")]
        {
            show_score(score, &mut text);
            assert_eq!(text, shown);
            assert_eq!(parse_score(text.as_bytes()), Some(score));
        }
        assert_eq!(parse_score(b"+inf"), Some(f64::INFINITY));
        assert_eq!([parse_score(b"nan"), parse_score(b""), parse_score(b"1 ")], [None; 3]);
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    proptest! {
        #[test]
        fn scores_sort(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(a.partial_cmp(&b), Some(score_of(ordered(a)).total_cmp(&score_of(ordered(b)))));
            prop_assert_eq!(score_of(ordered(a)), a);
            prop_assert!(a == b || (a < b) == (ordered(a) < ordered(b)));
        }

        #[test]
        fn hashes_come_back(all: Vec<(Vec<u8>, Vec<u8>)>, garbage: Vec<u8>) {
            let packed = pack(all.iter().map(|(name, value)| (&name[..], &value[..])));
            let back: Vec<_> = fields(&packed).map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(back, all);
            fields(&garbage).for_each(drop);
        }

        #[test]
        fn an_index_record_is_of_its_key_only(
            key: Vec<u8>, other: Vec<u8>, score in -1e9..1e9, member: Vec<u8>,
        ) {
            let mut record = Vec::new();
            index_key(&key, score, &member, &mut record);
            prop_assert_eq!(indexed(&record, &key), Some((score, &member[..])));
            prop_assert!(other == key || indexed(&record, &other).is_none());
        }
    }
}
