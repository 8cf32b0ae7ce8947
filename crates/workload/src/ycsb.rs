//! The workloads of the Yahoo! Cloud Serving Benchmark.
//!
//! After Cooper and others, "Benchmarking Cloud Serving Systems with YCSB"
//! (SoCC 2010), and the core workloads A to F as the benchmark's own files
//! define them; and that of Do, Lomet and Picoli (DaMoN 2019), section 7.1.
//! Records have numbers in the order of their insertion; their keys are spread
//! over all 64-bit numbers, so that neighbours in time are none in the order
//! of keys. Seeds decide everything. Nothing here fails.
//!
//! | workload | operations | records chosen |
//! |---|---|---|
//! | A | 50 % read, 50 % update | zipfian |
//! | B | 95 % read, 5 % update | zipfian |
//! | C | all read | zipfian |
//! | D | 95 % read, 5 % insert | latest |
//! | E | 95 % scan of 1 to 100, 5 % insert | zipfian |
//! | F | 50 % read, 50 % read-modify-write | zipfian |
//! | paper | 75 % read, 25 % update | uniform |

use std::fmt;
use std::str::FromStr;

use crate::rng::{Rng, mix};
use crate::zipf::Zipf;

/// Bytes of a record: ten fields of a hundred.
pub const RECORD_BYTES: usize = 1000;

/// Bytes of a key.
pub const KEY_BYTES: usize = 8;

/// The exponent of the zipfian distributions.
const THETA: f64 = 0.99;

/// Items from which the benchmark draws before it scatters them: the share of
/// the hottest does not depend on the number of records.
const SCATTERED: u64 = 10_000_000_000;

/// Longest scan.
const LONGEST_SCAN: u64 = 100;

/// A workload of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Workload {
    A,
    B,
    C,
    D,
    E,
    F,
    /// The batched-writes paper's.
    Paper,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 7] = [
        Workload::A,
        Workload::B,
        Workload::C,
        Workload::D,
        Workload::E,
        Workload::F,
        Workload::Paper,
    ];

    /// Operations in a hundred: read, update, insert, scan, read-modify-write.
    fn shares(self) -> [u64; 5] {
        match self {
            Workload::A => [50, 50, 0, 0, 0],
            Workload::B => [95, 5, 0, 0, 0],
            Workload::C => [100, 0, 0, 0, 0],
            Workload::D => [95, 0, 5, 0, 0],
            Workload::E => [0, 0, 5, 95, 0],
            Workload::F => [50, 0, 0, 0, 50],
            Workload::Paper => [75, 25, 0, 0, 0],
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::E => "e",
            Workload::F => "f",
            Workload::Paper => "paper",
        })
    }
}

/// A name that is no workload's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no workload {0:?}: take a, b, c, d, e, f or paper")]
pub struct NoWorkload(pub String);

impl FromStr for Workload {
    type Err = NoWorkload;

    fn from_str(name: &str) -> Result<Workload, NoWorkload> {
        let found = Workload::ALL.into_iter().find(|one| one.to_string() == name);
        found.ok_or_else(|| NoWorkload(name.to_owned()))
    }
}

/// What to do with which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read it.
    Read(u64),
    /// Write it anew.
    Update(u64),
    /// Write it for the first time.
    Insert(u64),
    /// Read so many from its key on.
    Scan(u64, u64),
    /// Read it, change a field, write it.
    ReadModifyWrite(u64),
}

enum Choice {
    Uniform,
    Zipfian(Zipf),
    Latest(Zipf),
}

/// A source of operations.
pub struct Ycsb {
    workload: Workload,
    choice: Choice,
    records: u64,
    /// Those before this one are there: they may be chosen.
    there: u64,
    rng: Rng,
}

impl Ycsb {
    /// The operations of `workload` on a store that has `records` records, at
    /// least one, numbered from 0.
    pub fn new(workload: Workload, records: u64, seed: u64) -> Ycsb {
        let records = records.max(1);
        let choice = match workload {
            Workload::Paper => Choice::Uniform,
            Workload::D => Choice::Latest(Zipf::new(records, THETA)),
            _ => Choice::Zipfian(Zipf::new(SCATTERED, THETA)),
        };
        Ycsb { workload, choice, records, there: records, rng: Rng::new(seed, 0) }
    }

    /// Records that there are, with those that were inserted.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// All records before `record` are there by now: their inserts have ended, as the
    /// benchmark wants it of what it reads. At first these are all that it began with.
    #[inline]
    pub fn are_there(&mut self, record: u64) {
        if record == self.there {
            return;
        }
        self.there = record.clamp(1, self.records);
        if let Choice::Latest(zipf) = &mut self.choice {
            *zipf = Zipf::new(self.there, THETA);
        }
    }

    /// The next operation.
    #[inline]
    pub fn draw(&mut self) -> Operation {
        let mut drawn = self.rng.below(100);
        let [read, update, insert, scan, _] = self.workload.shares();
        let mut is = |share: u64| {
            let is = drawn < share;
            drawn = drawn.wrapping_sub(share);
            is
        };
        if is(read) {
            Operation::Read(self.choose())
        } else if is(update) {
            Operation::Update(self.choose())
        } else if is(insert) {
            self.insert()
        } else if is(scan) {
            let record = self.choose();
            Operation::Scan(record, 1 + self.rng.below(LONGEST_SCAN))
        } else {
            Operation::ReadModifyWrite(self.choose())
        }
    }

    fn insert(&mut self) -> Operation {
        self.records += 1;
        Operation::Insert(self.records - 1)
    }

    fn choose(&mut self) -> u64 {
        match &self.choice {
            Choice::Uniform => self.rng.below(self.there),
            Choice::Zipfian(zipf) => loop {
                let record = scatter(zipf.draw(&mut self.rng)) % self.records;
                if record < self.there {
                    return record;
                }
            },
            Choice::Latest(zipf) => self.there - 1 - zipf.draw(&mut self.rng),
        }
    }
}

/// Spreads ranks over the records as the benchmark does: FNV-1a, 64 bits, of
/// the rank's eight bytes, the lowest first, without its sign.
fn scatter(rank: u64) -> u64 {
    let hash = rank.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash as i64).unsigned_abs()
}

/// The key of a record: one of its own.
#[inline]
pub fn key(record: u64) -> [u8; KEY_BYTES] {
    mix(record.wrapping_add(0x9e37_79b9_7f4a_7c15)).to_be_bytes()
}

/// Fills a record's fields: `version` says how often it was written.
pub fn fill(record: u64, version: u64, fields: &mut [u8]) {
    let mut word = mix(record ^ mix(version));
    for eight in fields.chunks_mut(8) {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        eight.copy_from_slice(&word.to_le_bytes()[..eight.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const DRAWS: usize = 200_000;

    fn near(got: f64, expected: f64, what: &str) {
        // Five standard deviations of a count.
        let tolerance = 5.0 * (expected.max(1.0)).sqrt();
        assert!((got - expected).abs() <= tolerance, "{what}: {got}, not {expected}");
    }

    fn records(workload: Workload, records: u64) -> Vec<u64> {
        let mut ycsb = Ycsb::new(workload, records, 1);
        let chosen = |operation| match operation {
            Operation::Read(record)
            | Operation::Update(record)
            | Operation::Scan(record, _)
            | Operation::ReadModifyWrite(record) => Some(record),
            Operation::Insert(_) => None,
        };
        (0..DRAWS).filter_map(|_| chosen(ycsb.draw())).collect()
    }

    #[test]
    fn operations_come_in_their_shares() {
        for workload in Workload::ALL {
            let mut ycsb = Ycsb::new(workload, 1000, 3);
            let mut seen = [0u32; 5];
            for _ in 0..DRAWS {
                let kind = match ycsb.draw() {
                    Operation::Read(_) => 0,
                    Operation::Update(_) => 1,
                    Operation::Insert(_) => 2,
                    Operation::Scan(_, count) => {
                        assert!((1..=100).contains(&count));
                        3
                    }
                    Operation::ReadModifyWrite(_) => 4,
                };
                seen[kind] += 1;
            }
            for (got, share) in seen.into_iter().zip(workload.shares()) {
                assert!(share > 0 || got == 0, "workload {workload}: {seen:?}");
                near(f64::from(got), share as f64 * DRAWS as f64 / 100.0, "an operation");
            }
        }
    }

    #[test]
    fn the_paper_chooses_evenly() {
        let all = records(Workload::Paper, 1000);
        let mut seen = vec![0u32; 1000];
        all.iter().for_each(|&record| seen[record as usize] += 1);
        let expected = all.len() as f64 / 1000.0;
        let chi: f64 = seen.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        // 999 degrees of freedom: 1143 is passed once in a thousand seeds.
        assert!(chi < 1143.0, "chi-square {chi}");
    }

    #[test]
    fn zipfian_ranks_are_scattered() {
        // The benchmark's own constant: the sum of k^-0.99 up to 10^10.
        const ZETA: f64 = 26.469_028_201_783_02;
        let all = records(Workload::C, 100_000);
        let mut seen: HashMap<u64, u32> = HashMap::new();
        all.iter().for_each(|&record| *seen.entry(record).or_default() += 1);
        for rank in [0u64, 1, 2, 9] {
            let share = ((rank + 1) as f64).powf(-THETA) / ZETA;
            let got = f64::from(seen[&(scatter(rank) % 100_000)]);
            // What other ranks add by falling on the same record is less.
            near(got, share * DRAWS as f64, "a rank");
        }
        assert!(all.iter().all(|&record| record < 100_000));
        assert!(seen.len() > 40_000, "{} records", seen.len());
    }

    #[test]
    fn the_latest_are_read_most() {
        let mut ycsb = Ycsb::new(Workload::D, 10_000, 5);
        let (mut reads, mut newest, mut last) = (0u32, 0u32, 9_999);
        for _ in 0..DRAWS {
            match ycsb.draw() {
                Operation::Insert(record) => {
                    assert_eq!(record, last + 1);
                    last = record;
                    ycsb.are_there(last + 1);
                }
                Operation::Read(record) => {
                    assert!(record <= last);
                    reads += 1;
                    newest += u32::from(record == last);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ycsb.records(), last + 1);
        // 10 000 records at first, twice as many at the end.
        let zeta = |n: u64| (1..=n).map(|k| (k as f64).powf(-THETA)).sum::<f64>();
        let (low, high) = (1.0 / zeta(20_000), 1.0 / zeta(10_000));
        let got = f64::from(newest) / f64::from(reads);
        assert!((low * 0.95..high * 1.05).contains(&got), "{got}, not {low} to {high}");
    }

    /// What may not be there yet is not chosen, and is once it is.
    #[test]
    fn inserts_under_way_are_not_chosen() {
        for workload in [Workload::D, Workload::E] {
            let mut ycsb = Ycsb::new(workload, 100, 5);
            let mut newest = |until: u64| {
                let chosen = |operation| match operation {
                    Operation::Read(record) | Operation::Scan(record, _) => record,
                    _ => 0,
                };
                ycsb.are_there(until);
                (0..20_000).map(|_| chosen(ycsb.draw())).max().unwrap()
            };
            assert_eq!([newest(100), newest(103)], [99, 102], "{workload}");
        }
    }

    #[test]
    fn keys_differ_and_contents_tell_versions() {
        let keys: HashSet<[u8; 8]> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
        let mut two = [[0; RECORD_BYTES]; 2];
        fill(7, 1, &mut two[0]);
        fill(7, 2, &mut two[1]);
        assert_ne!(two[0], two[1]);
        let first = two[0];
        fill(7, 1, &mut two[1]);
        assert_eq!(first, two[1]);
    }

    #[test]
    fn names_come_back() {
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        assert_eq!("g".parse::<Workload>(), Err(NoWorkload("g".into())));
    }

    #[test]
    fn the_hash_is_the_benchmarks() {
        // FNV-1a of eight zero bytes.
        assert_eq!(scatter(0), 0xa8c7_f832_281a_39c5_u64.wrapping_neg());
    }
}
