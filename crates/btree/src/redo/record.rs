//! A record of the redo log: the writes of one operation.
//!
//! ```text
//!  byte 0      4             8              12
//!       │bytes │ key's length│ value's length│ key │ value │ the next write …
//!       │u32   │ u32         │ u32           │
//! ```
//!
//! `bytes` counts what is behind it. A value's length of all ones says that the key
//! is taken out. A put or a delete is one write, a batch several ([`crate::op::encode`]).

use crate::op::{Write, append, decode};
use crate::page::{MAX_KEY, MAX_VALUE};

/// Bytes of the record of one write.
pub(crate) fn size_of_one(key: &[u8], value: Option<&[u8]>) -> usize {
    12 + key.len() + value.map_or(0, <[u8]>::len)
}

/// Bytes of the record of encoded writes.
pub(crate) fn size_of(writes: &[u8]) -> usize {
    4 + writes.len()
}

/// Appends the record of one write.
pub(crate) fn put_one(key: &[u8], value: Option<&[u8]>, to: &mut Vec<u8>) {
    let bytes = size_of_one(key, value) as u32 - 4;
    to.extend_from_slice(&bytes.to_le_bytes());
    append(&[Write { key, value }], to);
}

/// Appends the record of encoded writes.
pub(crate) fn put(writes: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&(writes.len() as u32).to_le_bytes());
    to.extend_from_slice(writes);
}

/// What comes next in the bytes of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A record, its writes encoded, and what is behind it.
    Record(&'a [u8], &'a [u8]),
    /// Only the beginning of one, or nothing.
    Cut,
    /// What is no record.
    Bad,
}

/// The next record.
pub(crate) fn next(bytes: &[u8]) -> Next<'_> {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Next::Cut };
    let Some((record, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else {
        return Next::Cut;
    };
    if is_whole(record) { Next::Record(record, rest) } else { Next::Bad }
}

/// Whether these are encoded writes that a tree can have made.
fn is_whole(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Some((key, rest)) = bytes.split_first_chunk::<4>() else { return false };
        let Some((value, rest)) = rest.split_first_chunk::<4>() else { return false };
        let (key, value) = (u32::from_le_bytes(*key), u32::from_le_bytes(*value));
        let value = if value == u32::MAX { 0 } else { value as usize };
        if key as usize > MAX_KEY || value > MAX_VALUE || key as usize + value > rest.len() {
            return false;
        }
        bytes = &rest[key as usize + value..];
    }
    true
}

/// The writes of a record.
pub(crate) fn writes(record: &[u8]) -> impl Iterator<Item = Write<'_>> {
    decode(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(
            all in prop::collection::vec(
                prop::collection::vec(
                    (prop::collection::vec(any::<u8>(), 0..40),
                     prop::option::of(prop::collection::vec(any::<u8>(), 0..90))),
                    1..4,
                ),
                0..6,
            ),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for writes in &all {
                let before = bytes.len();
                if let [(key, value)] = &writes[..] {
                    put_one(key, value.as_deref(), &mut bytes);
                    prop_assert_eq!(bytes.len() - before, size_of_one(key, value.as_deref()));
                } else {
                    let writes: Vec<Write<'_>> = writes
                        .iter()
                        .map(|(key, value)| Write { key, value: value.as_deref() })
                        .collect();
                    let mut encoded = Vec::new();
                    append(&writes, &mut encoded);
                    put(&encoded, &mut bytes);
                    prop_assert_eq!(bytes.len() - before, size_of(&encoded));
                }
                ends.push(bytes.len());
            }
            let cut = cut.index(bytes.len() + 1);
            let mut rest = &bytes[..cut];
            let mut found = 0;
            while let Next::Record(record, behind) = next(rest) {
                let got: Vec<_> = writes(record)
                    .map(|w| (w.key.to_vec(), w.value.map(<[u8]>::to_vec)))
                    .collect();
                prop_assert_eq!(&got, &all[found]);
                (rest, found) = (behind, found + 1);
            }
            prop_assert_eq!(next(rest), Next::Cut);
            prop_assert_eq!(found, ends.iter().filter(|&&end| end <= cut).count());
        }

        #[test]
        fn anything_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Next::Record(record, behind) = next(rest) {
                for write in writes(record) {
                    prop_assert!(write.key.len() <= MAX_KEY);
                }
                rest = behind;
            }
        }
    }
}
