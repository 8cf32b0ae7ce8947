//! The file: there and back, and damage.

use super::*;

#[test]
fn a_record_lies_where_the_drawing_says() {
    let record = encode(&Life { status: Status(0x281), ..life(0x0102) });
    assert_eq!(record.len(), RECORD_BYTES);
    assert_eq!(record[0..8], [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(record[56..72], [7, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0x81, 2, 1, 0, 1, 1]);
}

#[test]
fn an_empty_trace_is_a_trace() {
    let bytes = written(&[], &[], 5);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.about(), about("depth = 4"));
    assert!(reader.next().is_none());
    assert_eq!(reader.totals(), Some(Totals { records: 0, dropped: 5 }));
}

#[test]
fn a_file_that_was_cut_is_read_up_to_there() {
    let lives: Vec<Life> = (0..1100).map(life).collect();
    let bytes = written(&lives, &[2], 0);
    let ends = |at: usize| at as u64;
    for cut in (0..bytes.len()).step_by(7).chain([8, 12, 32, 41, bytes.len() - 1]) {
        let (got, error) = read(&bytes[..cut]);
        assert_eq!(got[..], lives[..got.len()], "cut at {cut}");
        match error.unwrap() {
            TraceError::NotATrace => assert!(cut < 8),
            TraceError::Truncated { at, records } => {
                assert_eq!((at, records), (ends(cut), got.len() as u64));
            }
            e => panic!("cut at {cut}: {e}"),
        }
    }
    // The first block has 3 records, and each full block 512.
    let first = 41 + 12 + 3 * RECORD_BYTES;
    assert_eq!(read(&bytes[..first]).0.len(), 3);
    assert_eq!(read(&bytes[..bytes.len() - 24]).0.len(), 1100);
}

#[test]
fn a_later_version_and_other_files_are_told_apart() {
    let mut bytes = written(&[life(1)], &[], 0);
    bytes[8] = 2;
    assert!(matches!(read(&bytes).1, Some(TraceError::Version { found: 2 })));
    assert!(matches!(read(&bytes[..12]).1, Some(TraceError::Version { found: 2 })));
    for other in [&b""[..], b"ssdkitRX and more", b"#!/bin/sh"] {
        assert!(matches!(read(other).1, Some(TraceError::NotATrace)));
    }
}

#[test]
fn missing_doubled_and_strange_blocks_are_seen() {
    let bytes = written(&[life(1), life(2)], &[0], 0);
    let (start, block) = (41, 12 + RECORD_BYTES);
    let without: Vec<u8> = [&bytes[..start], &bytes[start + block..]].concat();
    assert!(matches!(read(&without).1, Some(TraceError::Count { said: 2, read: 1 })));
    let doubled: Vec<u8> = [&bytes[..start + block], &bytes[start..]].concat();
    assert!(matches!(read(&doubled).1, Some(TraceError::Count { said: 2, read: 3 })));
    let longer: Vec<u8> = [&bytes[..], b"x"].concat();
    assert!(matches!(read(&longer).1, Some(TraceError::Damaged { .. })));
    // A block that is whole and has an operation that this version does not
    // know: the checksum is right, the record is not.
    let mut strange = bytes.clone();
    strange[start + 12 + 70] = 9;
    let crc = crc32fast::hash(&strange[start + 8..start + block]);
    strange[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    let (got, error) = read(&strange);
    let at = (start + 12) as u64;
    assert!(got.is_empty());
    assert!(
        matches!(error, Some(TraceError::Damaged { what: "record", at: a, records: 0 }) if a == at)
    );
}

#[test]
fn a_long_configuration_is_refused_and_the_longest_is_not() {
    let mut out = Vec::new();
    let long = about(&"x".repeat(MOST_CONFIG + 1));
    let error = Writer::new(&mut out, &long).err().unwrap();
    assert!(matches!(error, TraceError::ConfigTooLong { bytes } if bytes == MOST_CONFIG + 1));
    assert!(out.is_empty());
    let longest = about(&"x".repeat(MOST_CONFIG));
    Writer::new(&mut out, &longest).unwrap().finish(0).unwrap();
    assert_eq!(*Reader::new(&out[..]).unwrap().about(), longest);
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        lives in proptest::collection::vec(any_life(), 0..1200),
        flushes in proptest::collection::vec(0usize..1200, 0..5),
        dropped: u64,
    ) {
        let (got, error) = read(&written(&lives, &flushes, dropped));
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(got, lives);
    }

    #[test]
    fn any_flipped_bit_is_found(count in 0u64..600, at: prop::sample::Index, bit in 0u8..8) {
        let lives: Vec<Life> = (0..count).map(life).collect();
        let mut bytes = written(&lives, &[1], 0);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (got, error) = read(&bytes);
        prop_assert!(error.is_some(), "byte {at} was flipped");
        prop_assert_eq!(&got[..], &lives[..got.len()]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(read(&bytes).1.is_some());
        // Behind a good header, so that the rest is looked at as well.
        for head in [&b""[..], b"RECS", b"TEND"] {
            let start = &written(&[], &[], 0)[..41];
            prop_assert!(read(&[start, head, &bytes].concat()).1.is_some());
        }
    }

    #[test]
    fn any_record_is_a_life_or_none(mut record in any::<[u8; RECORD_BYTES]>(), op in 0u8..7) {
        record[70] = op;
        record[71] &= 3;
        match decode(&record) {
            Some(life) => prop_assert_eq!(encode(&life), record),
            None => prop_assert!(op > 4 || record[71] > 1),
        }
    }
}
