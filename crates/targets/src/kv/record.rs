//! Records, and the rows that they are packed in: bytes on flash, little-endian.
//!
//! ```text
//!  a row                             a record, padded to 32 bytes
//!   0  8  checksum of 8 to 31         0  8  checksum of all that is behind it
//!   8  4  "KVRW"                      8  1  0x4B
//!  12  4  end of the records          9  1  kind: 0 small, 1 large, 2 deleted
//!  16  8  number, from 1             10  1  version, 1
//!  24  8  seed                       11  1  bytes of the key
//!  32  .  records                    12  4  bytes of the value
//!                                    16  .  key; then the value, or of a large one
//!  a run                              0  2    units over which its rows go in turn
//!   0  8  first block; lane << 48     2  2    runs
//!   8  4  rows                        4  .    the runs
//!  12  4  erases of the chunk
//! ```
//!
//! The rows of a large value go over *lanes* in turn: row `k` is row `k / lanes` of
//! lane `k % lanes`, whose rows are those of its runs, in their order.

use flash::{Geometry, Ppa};
use ftl::bytes::{is_sealed, put_word, seal, word};

use super::place::{GRAIN, Kind};

/// Bytes of a row before its records.
pub(super) const ROW_HEADER: usize = GRAIN;

const ROW_MAGIC: u32 = u32::from_le_bytes(*b"KVRW");
const RECORD_MAGIC: u8 = 0x4B;
const VERSION: u8 = 1;
const HEADER: usize = 16;
const LARGE_HEADER: usize = 4;
const RUN_BYTES: usize = 16;
const LANE_AT: u32 = 48;

/// Bytes of a record with the key and value of so many bytes.
pub(super) fn small_bytes(key: usize, value: usize) -> usize {
    (HEADER + key + value).next_multiple_of(GRAIN)
}

/// Bytes of a record of a large value with so many runs.
pub(super) fn large_bytes(key: usize, runs: usize) -> usize {
    (HEADER + key + LARGE_HEADER + runs * RUN_BYTES).next_multiple_of(GRAIN)
}

/// Most bytes of key and value together in one record in a row.
pub(super) fn most_small(row_bytes: usize) -> usize {
    row_bytes - ROW_HEADER - HEADER
}

/// Most runs of a large value.
pub(super) fn most_runs(row_bytes: usize) -> usize {
    (row_bytes - ROW_HEADER - HEADER - port::MAX_KEY_BYTES - LARGE_HEADER) / RUN_BYTES
}

/// Neighbouring rows of a large value in one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// The first block of the first row.
    pub first: Ppa,
    /// Which of the lanes they are of.
    pub lane: u16,
    /// How many rows.
    pub rows: u32,
    /// How often the chunk had been erased when they were written.
    pub wear: u32,
}

impl Run {
    /// Whether the row that begins here comes next in the run: chunks may be neighbours.
    pub fn goes_on(&self, geometry: &Geometry, ppa: Ppa) -> bool {
        let end = self.first.0 + u64::from(self.rows * geometry.row_blocks());
        end == ppa.0 && geometry.chunk_index(self.first) == geometry.chunk_index(ppa)
    }

    /// Whether it is rows of one chunk of the drive.
    pub fn is_of(&self, geometry: &Geometry) -> bool {
        let row = geometry.row_blocks();
        let is_in = |ppa| geometry.contains(ppa) && geometry.block(ppa).is_multiple_of(row);
        let blocks = u64::from(self.rows) * u64::from(row);
        self.rows > 0
            && is_in(self.first)
            && u64::from(geometry.block(self.first)) + blocks <= u64::from(geometry.chunk_blocks())
    }

    fn load(bytes: &[u8]) -> Run {
        let (place, rest) = (word(bytes, 0), word(bytes, 8));
        let first = Ppa(place & ((1 << LANE_AT) - 1));
        Run { first, lane: (place >> LANE_AT) as u16, rows: rest as u32, wear: (rest >> 32) as u32 }
    }

    fn store(&self, bytes: &mut [u8]) {
        put_word(bytes, 0, self.first.0 | u64::from(self.lane) << LANE_AT);
        put_word(bytes, 8, u64::from(self.rows) | u64::from(self.wear) << 32);
    }
}

/// What a record has beside its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// The value.
    Small(&'a [u8]),
    /// Where the value of so many bytes is.
    Large { len: u64, lanes: u16, runs: &'a [Run] },
    /// That the key is deleted.
    Gone,
}

impl Body<'_> {
    /// Bytes of a record with this key.
    pub fn bytes(&self, key: &[u8]) -> usize {
        match self {
            Body::Small(value) => small_bytes(key.len(), value.len()),
            Body::Large { runs, .. } => large_bytes(key.len(), runs.len()),
            Body::Gone => small_bytes(key.len(), 0),
        }
    }

    /// Of what kind the record is.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Small(_) => Kind::Small,
            Body::Large { .. } => Kind::Large,
            Body::Gone => Kind::Gone,
        }
    }

    /// Writes a record; `bytes` are all of its.
    pub fn write(&self, key: &[u8], bytes: &mut [u8]) {
        let len = match self {
            Body::Small(value) => value.len() as u64,
            Body::Large { len, .. } => *len,
            Body::Gone => 0,
        };
        bytes[8..12].copy_from_slice(&[RECORD_MAGIC, self.kind() as u8, VERSION, key.len() as u8]);
        bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        let (name, rest) = bytes[HEADER..].split_at_mut(key.len());
        name.copy_from_slice(key);
        let end = match self {
            Body::Small(value) => {
                rest[..value.len()].copy_from_slice(value);
                value.len()
            }
            Body::Large { lanes, runs, .. } => {
                rest[..2].copy_from_slice(&lanes.to_le_bytes());
                rest[2..4].copy_from_slice(&(runs.len() as u16).to_le_bytes());
                let places = rest[LARGE_HEADER..].chunks_exact_mut(RUN_BYTES);
                runs.iter().zip(places).for_each(|(run, to)| run.store(to));
                LARGE_HEADER + runs.len() * RUN_BYTES
            }
            Body::Gone => 0,
        };
        rest[end..].fill(0);
        seal(bytes, 0);
    }
}

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Of what kind.
    pub kind: Kind,
    /// Of which key.
    pub key: &'a [u8],
    /// Bytes of the value.
    pub len: u64,
    /// The value, or where it is.
    rest: &'a [u8],
    /// All its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, which may go on behind it. `None` where
    /// there is none, or it is damaged.
    pub fn read(bytes: &'a [u8]) -> Option<Record<'a>> {
        let head = bytes.get(..HEADER)?;
        let [magic, kind, version, key] = head[8..12].try_into().expect("4 bytes");
        if magic != RECORD_MAGIC || version != VERSION {
            return None;
        }
        let len = u64::from(u32::from_le_bytes(head[12..16].try_into().expect("4 bytes")));
        let key = usize::from(key);
        let (kind, size) = match kind {
            0 => (Kind::Small, small_bytes(key, usize::try_from(len).ok()?)),
            1 => {
                let runs = bytes.get(HEADER + key + 2..)?.get(..2)?;
                (Kind::Large, large_bytes(key, u16::from_le_bytes([runs[0], runs[1]]).into()))
            }
            2 => (Kind::Gone, small_bytes(key, 0)),
            _ => return None,
        };
        let bytes = bytes.get(..size).filter(|bytes| is_sealed(bytes, 0))?;
        let (key, rest) = bytes[HEADER..].split_at(key);
        let record = Record { kind, key, len, rest, bytes };
        (kind != Kind::Large || record.lanes() > 0).then_some(record)
    }

    /// The value of a small one.
    pub fn value(&self) -> &'a [u8] {
        &self.rest[..self.len as usize]
    }

    /// Lanes of a large one.
    pub fn lanes(&self) -> u16 {
        u16::from_le_bytes([self.rest[0], self.rest[1]])
    }

    /// Runs of a large one.
    pub fn runs(&self) -> impl Iterator<Item = Run> + 'a {
        let count = usize::from(u16::from_le_bytes([self.rest[2], self.rest[3]]));
        self.rest[LARGE_HEADER..].chunks_exact(RUN_BYTES).take(count).map(Run::load)
    }
}

/// Writes the header of a row whose records end at `end`.
pub(super) fn seal_row(bytes: &mut [u8], end: usize, number: u64, seed: u64) {
    bytes[8..12].copy_from_slice(&ROW_MAGIC.to_le_bytes());
    bytes[12..16].copy_from_slice(&(end as u32).to_le_bytes());
    put_word(bytes, 16, number);
    put_word(bytes, 24, seed);
    seal(&mut bytes[..ROW_HEADER], 0);
}

/// Where the records of a row end, and its number and seed; `None` where it is none.
pub(super) fn row_header(bytes: &[u8]) -> Option<(usize, u64, u64)> {
    let head = bytes.get(..ROW_HEADER)?;
    let end = u32::from_le_bytes(head[12..16].try_into().expect("4 bytes")) as usize;
    let is_row = head[8..12] == ROW_MAGIC.to_le_bytes() && is_sealed(head, 0);
    (is_row && end <= bytes.len()).then(|| (end, word(head, 16), word(head, 24)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_the_drive_has_not_are_told() {
        let geometry = Geometry::new(flash::Dimensions {
            pus: 3,
            chunks: 5,
            pages: 8,
            planes: 2,
            ..flash::Dimensions::LEAST
        })
        .unwrap();
        let last = geometry.chunk_start(geometry.chunk_of(2, 4)).0;
        let is_of =
            |first, rows| Run { first: Ppa(first), lane: 0, rows, wear: 0 }.is_of(&geometry);
        assert!(is_of(last, 8) && is_of(last + 14, 1));
        assert!(!is_of(last, 0) && !is_of(last + 1, 1) && !is_of(last + 14, 2));
        assert!(!is_of(last, u32::MAX) && !is_of(last + 16, 1) && !is_of((1 << 48) - 2, 1));
        let is_of = |ppa, at, len| {
            super::super::place::Place::new(Ppa(ppa), at, len, Kind::Small, 0).is_of(&geometry)
        };
        assert!(is_of(last, 32, 8192 - 32) && is_of(last + 1, 4064, 32));
        assert!(!is_of(last + 1, 4064, 64) && !is_of(last + 16, 0, 32));
    }

    #[test]
    fn records_come_back_as_they_were() {
        let runs: Vec<Run> = (0..5u64)
            .map(|n| Run { first: Ppa(n << 30), lane: n as u16, rows: 7, wear: 1 << 30 })
            .collect();
        let large = Body::Large { len: 64 << 20, lanes: 5, runs: &runs };
        for body in [Body::Small(b""), Body::Small(&[7; 100]), large, Body::Gone] {
            for key in [&b"k"[..], &[b'x'; 255]] {
                let mut bytes = vec![0xAA; 4096];
                let size = body.bytes(key);
                body.write(key, &mut bytes[..size]);
                let record = Record::read(&bytes).unwrap();
                assert_eq!((record.kind, record.key), (body.kind(), key));
                assert_eq!(record.bytes.len(), size);
                match body {
                    Body::Small(value) => assert_eq!(record.value(), value),
                    Body::Large { len, lanes, .. } => {
                        assert_eq!((record.len, record.lanes()), (len, lanes));
                        assert!(record.runs().eq(runs.iter().copied()));
                    }
                    Body::Gone => assert_eq!(record.len, 0),
                }
                for at in 0..size {
                    bytes[at] ^= 0x10;
                    assert!(Record::read(&bytes).is_none(), "byte {at}");
                    bytes[at] ^= 0x10;
                }
                assert!(Record::read(&bytes[..size - 1]).is_none());
            }
        }
        let mut bytes = vec![0; 64];
        Body::Large { len: 9, lanes: 0, runs: &runs[..1] }.write(b"k", &mut bytes);
        assert!(Record::read(&bytes).is_none(), "no rows go over no lanes");
        let mut row = vec![0; 4096];
        seal_row(&mut row, 100, 1 << 40, 9);
        assert_eq!(row_header(&row), Some((100, 1 << 40, 9)));
        row[20] ^= 1;
        assert_eq!(row_header(&row), None);
    }
}
