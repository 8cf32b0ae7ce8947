//! The client of a key-value store: operations of YCSB in a closed loop, timed
//! and, if asked for, verified.
//!
//! A value tells whose it is: bytes 0 to 7 are its record's number, 8 to 15
//! its version, little-endian; the rest follows from these. With verification
//! each value is made anew and compared, and a version must be one that a
//! correct store may give: written, and not replaced before the operation was
//! submitted. Versions of writes of one record that overlap may come in any
//! order.

use std::collections::VecDeque;

use btree::{Outcome, Records, Sink};
use measure::Histogram;
use workload::ycsb::{self, Operation, Ycsb};

use drive::error::Error;

/// Bytes that say whose value it is.
const HEAD: usize = 16;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A record is read.
    #[default]
    Read,
    /// It is written anew, whole.
    Update,
    /// It is written for the first time.
    Insert,
    /// Records are read in the order of their keys.
    Scan,
    /// A record is read, then written anew.
    ReadModifyWrite,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
        }
    }
}

/// An operation under way.
#[derive(Clone, Copy, Debug, Default)]
struct Started {
    kind: Kind,
    record: u64,
    /// When, in ns.
    at: u64,
    /// The version that it writes, or the least that it may read.
    version: u32,
    /// It waits for a write.
    writes: bool,
    /// Whether its record was given.
    found: bool,
}

/// What is known of the versions of a record.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    /// The last that was submitted; 0 for none.
    last: u32,
    /// A read that is submitted now gives this one or a later.
    floor: u32,
    /// Writes under way, and the first version of those that overlap.
    inside: u32,
    first: u32,
}

/// Values that can be checked.
struct Verifier {
    versions: Vec<Versions>,
    expected: Vec<u8>,
}

/// A client.
pub struct Client {
    clock: Option<fn() -> u64>,
    /// In virtual time, the time.
    pub now: u64,
    started: Vec<Started>,
    free: Vec<u32>,
    /// Read to be written, and not yet written.
    rewrite: VecDeque<u32>,
    verifier: Option<Verifier>,
    version: u64,
    value: Vec<u8>,
    latency: [Histogram; 5],
    /// Whether the flush has ended that was asked for last.
    pub flushed: bool,
    /// Operations that ended, those that failed too: they have no latency.
    pub ended: u64,
    /// Inserts under way: the first of them, and of each from there on whether it
    /// still is.
    inserting: (u64, VecDeque<bool>),
    /// Records that were not there, and may not have to be.
    pub missing: u64,
    /// Operations that failed or gave what cannot be.
    pub failed: u64,
    /// What the first of these was.
    pub first_error: Option<String>,
}

/// Fills a value of a record.
fn fill(record: u64, version: u64, value: &mut [u8]) {
    let (head, rest) = value.split_at_mut(HEAD);
    head[..8].copy_from_slice(&record.to_le_bytes());
    head[8..].copy_from_slice(&version.to_le_bytes());
    ycsb::fill(record, version, rest);
}

/// The record and version that a value tells.
fn head(value: &[u8]) -> Option<(u64, u64)> {
    let (record, rest) = value.split_first_chunk::<8>()?;
    let version = rest.first_chunk::<8>()?;
    Some((u64::from_le_bytes(*record), u64::from_le_bytes(*version)))
}

impl Client {
    /// A client with `most` operations under way at once, whose values have `bytes`.
    /// `clock` gives real time; in virtual time it is set in [`Client::now`].
    pub fn new(most: usize, clock: Option<fn() -> u64>, verify: bool, bytes: usize) -> Client {
        let verifier = verify.then(|| Verifier { versions: Vec::new(), expected: vec![0; bytes] });
        let mut value = vec![0; bytes];
        fill(0, 0, &mut value);
        Client {
            clock,
            now: 0,
            started: vec![Started::default(); most],
            free: (0..most as u32).rev().collect(),
            rewrite: VecDeque::with_capacity(most),
            verifier,
            version: 0,
            value,
            latency: std::array::from_fn(|_| Histogram::new()),
            flushed: false,
            ended: 0,
            inserting: (0, VecDeque::with_capacity(most)),
            missing: 0,
            failed: 0,
            first_error: None,
        }
    }

    /// Operations under way.
    pub fn live(&self) -> usize {
        self.started.len() - self.free.len()
    }

    /// The first record of which the insert has not ended, if there is one.
    pub fn inserting(&self) -> Option<u64> {
        let (first, under_way) = &self.inserting;
        (!under_way.is_empty()).then_some(*first)
    }

    /// An insert begins. Records are inserted in their order.
    fn insert_begins(&mut self, record: u64) {
        let (first, under_way) = &mut self.inserting;
        if under_way.is_empty() {
            *first = record;
        }
        under_way.push_back(true);
    }

    fn insert_ends(&mut self, record: u64) {
        let (first, under_way) = &mut self.inserting;
        under_way[(record - *first) as usize] = false;
        while under_way.front() == Some(&false) {
            under_way.pop_front();
            *first += 1;
        }
    }

    /// Forgets what it has counted, but for what failed.
    pub fn clear(&mut self) {
        self.latency.iter_mut().for_each(Histogram::clear);
        (self.ended, self.missing) = (0, 0);
    }

    /// Operations that ended and did not fail.
    pub fn succeeded(&self) -> u64 {
        self.latency.iter().map(Histogram::count).sum()
    }

    /// The latencies of one kind.
    pub fn latency(&self, kind: Kind) -> &Histogram {
        &self.latency[kind as usize]
    }

    #[inline]
    fn time(&self) -> u64 {
        self.clock.map_or(self.now, |clock| clock())
    }

    fn begin(&mut self, kind: Kind, record: u64) -> Option<u64> {
        let slot = self.free.pop()?;
        let floor = match &self.verifier {
            Some(v) => v.versions.get(record as usize).map_or(0, |one| one.floor),
            None => 0,
        };
        let at = self.time();
        self.started[slot as usize] =
            Started { kind, record, at, version: floor, writes: false, found: false };
        Some(u64::from(slot))
    }

    /// Submits the next write of a record that was read for it. False when
    /// there is none.
    pub fn rewrite(&mut self, store: &mut Records<'_>) -> Result<bool, Error> {
        let Some(slot) = self.rewrite.pop_front() else { return Ok(false) };
        self.write(store, u64::from(slot))?;
        Ok(true)
    }

    /// Submits an operation; there must be fewer than `most` under way.
    pub fn submit(&mut self, store: &mut Records<'_>, operation: Operation) -> Result<(), Error> {
        let (kind, record) = match operation {
            Operation::Read(record) => (Kind::Read, record),
            Operation::Update(record) => (Kind::Update, record),
            Operation::Insert(record) => (Kind::Insert, record),
            Operation::Scan(record, _) => (Kind::Scan, record),
            Operation::ReadModifyWrite(record) => (Kind::ReadModifyWrite, record),
        };
        let tag = self.begin(kind, record).expect("the caller saw room");
        if kind == Kind::Insert {
            self.insert_begins(record);
        }
        let key = ycsb::key(record);
        match operation {
            Operation::Update(_) | Operation::Insert(_) => return self.write(store, tag),
            Operation::Scan(_, count) => store.scan(tag, &key, count, self),
            Operation::Read(_) | Operation::ReadModifyWrite(_) => store.get(tag, &key, None, self),
        }
        .map_err(|e| Error::Failed(e.to_string()))
    }

    fn write(&mut self, store: &mut Records<'_>, tag: u64) -> Result<(), Error> {
        let mut value = std::mem::take(&mut self.value);
        let started = &mut self.started[tag as usize];
        started.writes = true;
        let record = started.record;
        match &mut self.verifier {
            Some(verifier) => {
                let known = verifier.versions.len().max(record as usize + 1);
                verifier.versions.resize(known, Versions::default());
                let one = &mut verifier.versions[record as usize];
                one.last += 1;
                if one.inside == 0 {
                    one.first = one.last;
                }
                one.inside += 1;
                started.version = one.last;
                fill(record, u64::from(one.last), &mut value);
            }
            None => {
                self.version += 1;
                value[..8].copy_from_slice(&record.to_le_bytes());
                value[8..HEAD].copy_from_slice(&self.version.to_le_bytes());
            }
        }
        let put = store.put(tag, &ycsb::key(record), &value, self);
        self.value = value;
        put.map_err(|e| Error::Failed(e.to_string()))
    }

    #[cold]
    fn fail(&mut self, what: String) {
        self.failed += 1;
        self.first_error.get_or_insert(what);
    }

    /// Checks a value against its key, and against the versions it may have.
    fn check(&mut self, started: Started, key: &[u8], value: &[u8]) {
        let Some(verifier) = &mut self.verifier else { return };
        let wrong = match head(value) {
            Some((record, version)) if value.len() == verifier.expected.len() => {
                fill(record, version, &mut verifier.expected);
                let last = verifier.versions.get(record as usize).map_or(0, |one| one.last);
                let least = if started.kind == Kind::Scan { 1 } else { started.version };
                if key != ycsb::key(record) || value != verifier.expected {
                    Some(format!("record {record}, version {version}, is not what was written"))
                } else if version > u64::from(last) || version < u64::from(least) {
                    Some(format!(
                        "record {record} has version {version}; it must be {least} to {last}"
                    ))
                } else {
                    None
                }
            }
            _ => Some(format!("a value has {} bytes", value.len())),
        };
        if let Some(what) = wrong {
            self.fail(what);
        }
    }

    /// A write has ended.
    fn written(&mut self, record: u64) {
        let Some(verifier) = &mut self.verifier else { return };
        let one = &mut verifier.versions[record as usize];
        one.inside -= 1;
        if one.inside == 0 {
            one.floor = one.first;
        }
    }
}

/// The tag of a flush.
const FLUSH: u64 = u64::MAX;

impl Client {
    /// Asks for all that was done to be durable, and says in
    /// [`Client::flushed`] when it is.
    pub fn flush(&mut self, store: &mut Records<'_>) {
        self.flushed = false;
        store.flush(FLUSH).expect("one at a time");
    }

    /// Whether records wait to be written that were read for it.
    #[inline]
    pub fn has_rewrites(&self) -> bool {
        !self.rewrite.is_empty()
    }
}

impl Sink for Client {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        let started = &mut self.started[tag as usize];
        started.found = true;
        let started = *started;
        if head(value)
            .is_none_or(|(record, _)| started.kind != Kind::Scan && record != started.record)
        {
            return self.fail(format!("a read of record {} gave another", started.record));
        }
        self.check(started, key, value);
    }

    fn done(&mut self, tag: u64, outcome: Result<Outcome, btree::Error>) {
        if tag == FLUSH {
            self.flushed = true;
            if let Err(e) = outcome {
                self.fail(format!("flush: {e}"));
            }
            return;
        }
        let started = self.started[tag as usize];
        if started.writes {
            self.written(started.record);
        }
        if started.kind == Kind::Insert {
            self.insert_ends(started.record);
        }
        let failed = match outcome {
            Err(e) => Some(format!("{} of record {}: {e}", started.kind.name(), started.record)),
            Ok(Outcome::Missing) if started.version > 0 => {
                Some(format!("record {} is missing", started.record))
            }
            Ok(Outcome::Missing) => {
                self.missing += 1;
                None
            }
            Ok(_) if started.kind == Kind::ReadModifyWrite && !started.writes => {
                self.rewrite.push_back(tag as u32);
                return;
            }
            Ok(_) => None,
        };
        match failed {
            Some(what) => self.fail(what),
            None => {
                let took = self.time() - started.at;
                self.latency[started.kind as usize].record(took);
            }
        }
        self.ended += 1;
        self.free.push(tag as u32);
    }
}

/// Operations that read each record once.
pub struct All(u64, u64);

impl All {
    /// Records 0 to `records` - 1.
    pub fn new(records: u64) -> All {
        All(0, records)
    }
}

/// Where operations come from.
pub trait Source {
    /// The next one, while records from `inserting` on may not be there.
    fn next(&mut self, inserting: Option<u64>) -> Operation;
}

impl Source for Ycsb {
    #[inline]
    fn next(&mut self, inserting: Option<u64>) -> Operation {
        self.are_there(inserting.unwrap_or(self.records()));
        self.draw()
    }
}

impl Source for All {
    fn next(&mut self, _inserting: Option<u64>) -> Operation {
        let record = self.0 % self.1.max(1);
        self.0 += 1;
        Operation::Read(record)
    }
}

/// Inserts records in their order.
pub struct Fill(pub u64);

impl Source for Fill {
    #[inline]
    fn next(&mut self, _inserting: Option<u64>) -> Operation {
        self.0 += 1;
        Operation::Insert(self.0 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::ycsb::RECORD_BYTES;

    fn value(record: u64, version: u64) -> Vec<u8> {
        let mut value = vec![0; RECORD_BYTES];
        fill(record, version, &mut value);
        value
    }

    /// A client that has written record 3 three times and reads it.
    fn reader() -> (Client, u64) {
        let mut client = Client::new(4, None, true, RECORD_BYTES);
        let verifier = client.verifier.as_mut().unwrap();
        verifier.versions = vec![Versions::default(); 8];
        verifier.versions[3] = Versions { last: 3, floor: 2, inside: 1, first: 3 };
        let tag = client.begin(Kind::Read, 3).unwrap();
        (client, tag)
    }

    #[test]
    fn what_a_correct_store_may_give_is_right() {
        for version in [2, 3] {
            let (mut client, tag) = reader();
            client.record(tag, &ycsb::key(3), &value(3, version));
            client.done(tag, Ok(Outcome::Found));
            assert_eq!((client.failed, client.ended), (0, 1), "{:?}", client.first_error);
        }
    }

    #[test]
    fn what_it_may_not_give_is_found() {
        let mut torn = value(3, 3);
        torn[700] ^= 1;
        let short = value(3, 3)[..999].to_vec();
        for wrong in [value(3, 1), value(3, 4), value(2, 1), torn, short, vec![]] {
            let (mut client, tag) = reader();
            client.record(tag, &ycsb::key(3), &wrong);
            assert_eq!(client.failed, 1);
        }
        let (mut client, tag) = reader();
        client.done(tag, Ok(Outcome::Missing));
        assert_eq!(client.failed, 1);
    }

    #[test]
    fn what_failed_is_in_no_rate_and_no_latency() {
        let (mut client, tag) = reader();
        client.done(tag, Err(btree::Error::Full(1)));
        assert_eq!((client.failed, client.ended, client.succeeded()), (1, 1, 0));
        let tag = client.begin(Kind::Read, 5).unwrap();
        client.done(tag, Ok(Outcome::Missing));
        assert_eq!((client.missing, client.ended, client.succeeded()), (1, 2, 1));
        client.clear();
        assert_eq!((client.missing, client.ended, client.failed), (0, 0, 1));
    }

    #[test]
    fn a_read_behind_all_writes_gives_none_from_before() {
        let (mut client, _) = reader();
        client.written(3);
        let tag = client.begin(Kind::Read, 3).unwrap();
        client.record(tag, &ycsb::key(3), &value(3, 2));
        assert_eq!(client.failed, 1);
    }
}
