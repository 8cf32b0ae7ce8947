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
//! Members and index records whose key is no sorted set are what a cut has left of one that was
//! deleted or written over. They are of no set, and go before one of their key begins.
//!
//! A score is a double as 8 bytes that sort as it does, big-endian: the bits,
//! inverted where negative, else with the sign bit set. Other numbers are
//! little-endian. Pages are checksummed below. Records that are otherwise are
//! told as damaged.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use btree::MAX_KEY;

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

/// How many names are sought one by one. More are hashed, with a key that
/// nobody outside knows.
const FEW: usize = 16;

/// The fields of a hash, to be found by name in a time that does not grow with
/// their number.
pub struct Fields<'a> {
    /// In the order in which they were first set.
    pub all: Vec<Field<'a>>,
    places: HashMap<&'a [u8], usize>,
}

impl<'a> Fields<'a> {
    /// Those of a packed hash.
    pub fn of(packed: &'a [u8]) -> Fields<'a> {
        Fields { all: fields(packed).collect(), places: HashMap::new() }
    }

    /// The place of a field. Of one that is there twice it is the first.
    pub fn find(&mut self, name: &[u8]) -> Option<usize> {
        if self.all.len() <= FEW {
            return self.all.iter().position(|field| field.0 == name);
        }
        if self.places.is_empty() {
            let names = self.all.iter().enumerate().rev();
            self.places = names.map(|(i, field)| (field.0, i)).collect();
        }
        self.places.get(name).copied()
    }

    /// Gives a field a value.
    pub fn set(&mut self, name: &'a [u8], value: &'a [u8]) {
        if let Some(i) = self.find(name) {
            self.all[i].1 = value;
            return;
        }
        if !self.places.is_empty() {
            self.places.insert(name, self.all.len());
        }
        self.all.push((name, value));
    }
}

/// Names, to be asked whether one is among them in a time that does not grow
/// with their number.
pub enum Names<'a> {
    /// Few.
    Few(Vec<&'a [u8]>),
    /// Many.
    Many(HashSet<&'a [u8]>),
}

impl<'a> Names<'a> {
    /// These.
    pub fn of(names: impl Iterator<Item = &'a [u8]>) -> Names<'a> {
        let all: Vec<_> = names.collect();
        if all.len() <= FEW { Names::Few(all) } else { Names::Many(all.into_iter().collect()) }
    }

    /// Whether `name` is one of them.
    pub fn has(&self, name: &[u8]) -> bool {
        match self {
            Names::Few(all) => all.contains(&name),
            Names::Many(all) => all.contains(name),
        }
    }
}

/// Of each of `names` whether it is the last of its kind.
pub fn lasts<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<bool> {
    let all: Vec<_> = names.collect();
    if all.len() <= FEW {
        return (0..all.len()).map(|i| !all[i + 1..].contains(&all[i])).collect();
    }
    let mut seen = HashSet::with_capacity(all.len());
    let mut lasts: Vec<bool> = all.iter().rev().map(|name| seen.insert(*name)).collect();
    lasts.reverse();
    lasts
}

/// Makes `record`, the key of one, the least that is behind it.
pub fn next_key(record: &mut Vec<u8>) {
    if record.len() < MAX_KEY {
        return record.push(0);
    }
    // There is none that is longer: the next is not behind it, but above.
    while record.last() == Some(&u8::MAX) {
        record.pop();
    }
    if let Some(last) = record.last_mut() {
        *last += 1;
    }
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

/// The key and the member of a member's record; `None` for any other.
pub fn member_of(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = record.strip_prefix(b"m")?.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*len).into())
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

/// A score that somebody wrote, in decimal; not a NaN. As for Redis, one that is
/// too large for a double, or so small that it would be zero, is none.
pub fn parse_score(text: &[u8]) -> Option<f64> {
    let score = parse_bound(text)?;
    let digits = text.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next().unwrap_or_default();
    let is_word = !text.iter().any(u8::is_ascii_digit);
    let is_zero = !digits.iter().any(|byte| (b'1'..=b'9').contains(byte));
    let is_kept = (score.is_finite() || is_word) && (score != 0.0 || is_zero);
    is_kept.then_some(score)
}

/// A bound of scores that somebody wrote; not a NaN. What is too large is
/// infinite, what is too small is zero.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

/// A score as Redis 7.0 writes it, as `%.17g` in C: up to 17 digits, which always give it
/// again.
pub fn show_score(score: f64, to: &mut String) {
    to.clear();
    if !score.is_finite() || score == 0.0 {
        // Writing to memory does not fail.
        let _ = write!(to, "{}", score + 0.0);
        return;
    }
    let whole = format!("{score:.16e}");
    let (digits, exponent) = whole.split_once('e').unwrap_or((&whole, ""));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let behind = (16 - exponent) as usize;
        let _ = write!(to, "{score:.behind$}");
    } else {
        to.push_str(digits);
    }
    if to.contains('.') {
        to.truncate(to.trim_end_matches('0').trim_end_matches('.').len());
    }
    if !(-4..17).contains(&exponent) {
        let _ = write!(to, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scores_as_they_are_written() {
        let mut text = String::new();
        for (score, shown) in
            // As Redis 7.0.15 answers.
            [
                (3.0, "3"),
                (-0.5, "-0.5"),
                (f64::INFINITY, "inf"),
                (-f64::INFINITY, "-inf"),
                (0.0, "0"),
                (-0.0, "0"),
                (0.1, "0.10000000000000001"),
                (0.0001, "0.0001"),
                (12.34e-5, "0.00012339999999999999"),
                (1e-5, "1.0000000000000001e-05"),
                (-2.5e-7, "-2.4999999999999999e-07"),
                (1e-19, "9.9999999999999998e-20"),
                (5e-324, "4.9406564584124654e-324"),
                (1e16, "10000000000000000"),
                (99999999999999990.0, "99999999999999984"),
                (1e17, "1e+17"),
                (123456789012345678.0, "1.2345678901234568e+17"),
                (1e23, "9.9999999999999992e+22"),
                (-1e300, "-1.0000000000000001e+300"),
            ]
        {
            show_score(score, &mut text);
            assert_eq!(text, shown);
            assert_eq!(parse_score(text.as_bytes()), Some(score));
        }
        assert_eq!(parse_score(b"+inf"), Some(f64::INFINITY));
        assert_eq!([parse_score(b"nan"), parse_score(b""), parse_score(b"1 ")], [None; 3]);
        let large = [b"1e308".as_slice(), b"1.7976931348623157e308", b"-Infinity", b"5e-324"];
        assert!(large.iter().all(|text| parse_score(text).is_some()));
        let beyond = [b"1e309".as_slice(), b"-1e400", b"1e-400", b"-0.1e-400", b"-nan", b" 1"];
        assert_eq!(beyond.map(parse_score), [None; 6]);
        assert_eq!([parse_score(b"0e400"), parse_score(b"-0.0e-9")], [Some(0.0); 2]);
        assert_eq!(
            [parse_bound(b"-1e400"), parse_bound(b"1e-400")],
            [Some(-f64::INFINITY), Some(0.0)]
        );
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn the_next_key_is_no_longer_than_a_key_may_be() {
        let next = |mut key: Vec<u8>| {
            next_key(&mut key);
            key
        };
        assert_eq!(next(b"ka".to_vec()), b"ka\0");
        let long = |end: &[u8]| [&vec![b'k'; MAX_KEY - end.len()], end].concat();
        assert_eq!(next(long(b"a")), long(b"b"));
        let mut above = long(b"b\xff\xff");
        above.truncate(MAX_KEY - 2);
        assert_eq!(next(long(b"a\xff\xff")), above);
    }

    proptest! {
        #[test]
        fn many_names_are_as_few(names in prop::collection::vec(0u8..60, 0..50), name in 0u8..60) {
            let all: Vec<[u8; 1]> = names.iter().map(|&n| [n]).collect();
            let each = || all.iter().map(|n| &n[..]);
            prop_assert_eq!(Names::of(each()).has(&[name]), names.contains(&name));
            let last = |i: usize| !names[i + 1..].contains(&names[i]);
            prop_assert_eq!(lasts(each()), (0..names.len()).map(last).collect::<Vec<_>>());
            let mut fields = Fields::of(&[]);
            let mut model: Vec<u8> = Vec::new();
            for (i, n) in all.iter().enumerate() {
                fields.set(n, &all[i / 2]);
                if !model.contains(&n[0]) {
                    model.push(n[0]);
                }
            }
            prop_assert_eq!(fields.all.iter().map(|f| f.0[0]).collect::<Vec<_>>(), model.clone());
            prop_assert_eq!(fields.find(&[name]), model.iter().position(|&n| n == name));
        }

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
            prop_assert_eq!(member_of(&record), None);
            record.clear();
            member_key(&key, &member, &mut record);
            prop_assert_eq!(member_of(&record), Some((&key[..], &member[..])));
        }
    }
}
