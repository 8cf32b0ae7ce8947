//! Start-up: the index is found again.
//!
//! The newest whole checkpoint, which the tags of the chunks' last rows lead to; then
//! all rows of records from the one on that it names, in the order of their numbers, in
//! which the later record of a key counts; then the records of all large values, for
//! where their rows are. Nothing is written but, behind a cache, a checkpoint, where records
//! were found whose rows are not there.
//!
//! Guarantees: the index is as the records that are there make it: of each key that of
//! the highest row. Memory: the numbers of the rows, and [`AT_ONCE`] of them whole.
//! Fails where what was written cannot be read, and may tell of a key: then nothing says
//! of which.

use std::collections::{BTreeMap, BTreeSet};

use device::{Content, OpenChannel};
use flash::{ChunkState, Geometry, Ppa, TAG_BYTES, Tag};
use ftl::{Job, is_read};
use port::Time;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::checkpoint::{MOST_NUMBER, Part, read_part};
use super::mutation::{self, Mutation};
use super::place::{GRAIN, Kind, Place};
use super::record::{Record, Run, row_header};
use super::space::{Use, row_ppa};
use super::stream::{CHECKPOINT_ID, PACKED_ID, records};
use super::{Kv, KvConfig, KvError};

/// How often a record is read whose value's rows would be unknown.
const TRIES: u32 = 4;

/// Rows of records that are read at once.
const AT_ONCE: usize = 64;

type Runner<'a, D> = ftl::Runner<'a, D, KvError>;

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvRecovery {
    /// Number of the checkpoint; 0 for none.
    pub checkpoint: u64,
    /// Rows of records read behind it.
    pub rows: u64,
    /// Records in them.
    pub records: u64,
    /// Those of large values whose rows are not there.
    pub dropped: u64,
    /// Records of large values that were read for their rows.
    pub large: u64,
    /// Drive time that it took, in ns.
    pub time: u64,
}

/// A chunk with something in it.
#[derive(Clone, Copy, Debug)]
struct Found {
    chunk: usize,
    /// The tag of its last row that can be read.
    tag: Tag,
    /// A row behind that cannot be.
    is_damaged: bool,
}

/// The rows of a chunk that have something.
fn rows<'a, D: OpenChannel>(
    device: &'a D,
    geometry: &'a Geometry,
    chunk: usize,
) -> impl Iterator<Item = u32> + use<'a, D> {
    let (of, blocks) = (device.chunk(chunk), geometry.row_blocks());
    let programmed = if of.state == ChunkState::Offline { 0 } else { of.programmed / blocks };
    (0..programmed).filter(move |&row| device.failed_of(row_ppa(geometry, chunk, row), blocks) == 0)
}

impl<D: OpenChannel> Kv<D> {
    /// The target that a drive has, after a power cut or a clean end. `config` is the
    /// one that it was made with. Drives the device itself from `now` on; gives it and
    /// the time at which it is ready.
    pub fn recover(device: D, config: KvConfig, now: Time) -> Result<(Kv<D>, Time), KvError> {
        let mut kv = Kv::build(device, config)?;
        let geometry = kv.geometry;
        let chunks: Vec<Found> = {
            let mut runner = Runner::new(&mut kv.device, now);
            let found = find_chunks(&mut runner, &geometry)?;
            kv.now = runner.now;
            found
        };
        let whole = kv.load_checkpoint(&chunks)?;
        kv.replay(&chunks)?;
        let packed = chunks.iter().filter(|found| found.tag.id == PACKED_ID);
        let last = packed.map(|found| found.tag.seq).max().unwrap_or(0);
        kv.packer.next = kv.packer.next.max(last + kv.packer.most() + 1);
        for found in &chunks {
            kv.find_chunk(found, whole);
        }
        // Of a chunk in which no row can be told it is not known what it was for.
        for chunk in ftl::all_chunks(&geometry) {
            let of = kv.device.chunk(chunk);
            if of.programmed > 0 && kv.space.chunk(chunk).used == Use::Free {
                kv.space.found(chunk, Use::Packed, &of, false);
            }
        }
        kv.count_records()?;
        if kv.cached && kv.recovery.dropped > 0 && !mutation::is(Mutation::Unsettled) {
            kv.settle()?;
        }
        kv.recovery.time = kv.now.since(now);
        let ready = kv.now;
        Ok((kv, ready))
    }

    /// Writes a checkpoint, so that records whose rows are not there are never read again:
    /// a chunk that is erased twice, of which a cut undid the first, has the number of
    /// erases that they name. Until it is whole no chunk gets rows of large values.
    fn settle(&mut self) -> Result<(), KvError> {
        self.settling = true;
        self.checkpoint.asked = true;
        let before = self.checkpoint.whole;
        loop {
            self.pump(self.now);
            if self.checkpoint.whole > before {
                self.settling = false;
                return Ok(());
            }
            let at = self.device.next_event().ok_or(ftl::Halt::Stopped)?;
            self.work(at);
        }
    }

    /// Says what a chunk is for.
    fn find_chunk(&mut self, found: &Found, whole: u64) {
        let of = self.device.chunk(found.chunk);
        match found.tag.id {
            PACKED_ID => self.space.found(found.chunk, Use::Packed, &of, true),
            CHECKPOINT_ID => {
                self.space.found(found.chunk, Use::Checkpoint, &of, false);
                if found.tag.seq == whole {
                    self.space.count(found.chunk, GRAIN as u64);
                    self.checkpoint.chunks.push(found.chunk);
                }
            }
            // Behind a cache a record may be there though its rows are not: they are not
            // to be those of another value then.
            _ => self.space.found(found.chunk, Use::Large, &of, !self.cached),
        }
    }

    /// Loads the newest whole checkpoint, and gives its number.
    fn load_checkpoint(&mut self, chunks: &[Found]) -> Result<u64, KvError> {
        let (geometry, seed) = (self.geometry, self.config.seed);
        let size = self.row_bytes();
        let of: Vec<&Found> = chunks.iter().filter(|found| found.tag.id == CHECKPOINT_ID).collect();
        let mut jobs = Vec::new();
        for found in &of {
            let all = rows(&self.device, &geometry, found.chunk);
            jobs.extend(all.map(|row| row_ppa(&geometry, found.chunk, row)));
        }
        // By number and row: where, and what it says.
        let mut parts: BTreeMap<(u64, u64), (Ppa, Part)> = BTreeMap::new();
        let mut damaged = Vec::new();
        let blocks = geometry.row_blocks();
        let read = |ppa: &Ppa| Job::read(Content::Whole, (*ppa, blocks));
        let mut runner = Runner::new(&mut self.device, self.now);
        runner.run(jobs.iter().map(read), |job, ended| {
            let part = if is_read(ended.status) { read_part(&ended.data[..size]) } else { None };
            match part {
                Some((part, _)) => drop(parts.insert((part.number, part.row), (job.ppa, part))),
                None => damaged.push(job.ppa),
            }
            Ok(())
        })?;
        if let Some((_, part)) = parts.values().find(|(_, part)| part.seed != seed) {
            return Err(KvError::Seed { found: part.seed, given: seed });
        }
        let is_whole = |part: &&Part| {
            part.is_last && (0..part.row).all(|row| parts.contains_key(&(part.number, row)))
        };
        let whole = parts.values().rev().map(|(_, part)| part).find(is_whole);
        let number = whole.map_or(0, |part| part.number);
        let is_newer = |ppa: &Ppa| {
            let chunk = geometry.chunk_index(*ppa);
            of.iter().any(|found| found.chunk == chunk && found.tag.seq > number)
        };
        if let Some(&ppa) = damaged.iter().find(|ppa| is_newer(ppa)) {
            return Err(KvError::Damaged { what: "a checkpoint", ppa });
        }
        if whole.is_none() && parts.values().any(|(_, part)| part.before > 0) {
            return Err(KvError::Checkpoint);
        }
        let (keys, geometry) = (self.config.keys, self.geometry);
        let mut places: Vec<Ppa> = Vec::new();
        if let Some(whole) = whole {
            (self.checkpoint.from, self.packer.next) = (whole.from, whole.from);
            places.extend((0..=whole.row).map(|row| parts[&(number, row)].0));
        }
        let index = &mut self.index;
        runner.run(places.iter().map(read), |job, ended| {
            let damaged = KvError::Damaged { what: "a checkpoint", ppa: job.ppa };
            let Some((_, entries)) = read_part(&ended.data[..size]) else { return Err(damaged) };
            for entry in entries {
                if !entry.place.is_of(&geometry) {
                    return Err(damaged);
                }
                index.set(entry.hash, entry.place).map_err(|_| KvError::Keys(keys))?;
            }
            Ok(())
        })?;
        self.now = runner.now;
        (self.checkpoint.whole, self.recovery.checkpoint) = (number, number);
        self.checkpoint.number = parts.keys().next_back().map_or(0, |&(number, _)| number);
        Ok(number)
    }

    /// Heeds the rows of records since the checkpoint.
    fn replay(&mut self, chunks: &[Found]) -> Result<(), KvError> {
        let (geometry, from) = (self.geometry, self.checkpoint.from);
        let damaged = |ppa| KvError::Damaged { what: "a row of records", ppa };
        let mut firsts = Vec::new();
        for found in chunks.iter().filter(|found| found.tag.id == PACKED_ID) {
            if found.is_damaged {
                return Err(damaged(geometry.chunk_start(found.chunk)));
            }
            // A row that failed may be behind later ones.
            if found.tag.seq >= from.saturating_sub(self.packer.most()) {
                let all = rows(&self.device, &geometry, found.chunk);
                firsts.extend(all.map(|row| row_ppa(&geometry, found.chunk, row)));
            }
        }
        let mut numbers: Vec<(u64, Ppa)> = Vec::new();
        let mut runner = Runner::new(&mut self.device, self.now);
        runner.run(
            firsts.iter().map(|&ppa| Job::read(Content::Tags, (ppa, 1))),
            |job, ended| {
                if !is_read(ended.status) {
                    return Err(damaged(job.ppa));
                }
                let tag = Tag::load(&ended.tags[..TAG_BYTES]);
                if tag.seq >= from {
                    numbers.push((tag.seq, job.ppa));
                }
                Ok(())
            },
        )?;
        self.now = runner.now;
        numbers.sort_unstable();
        // What is for something else has no rows of large values.
        let is_other = |found: &&Found| matches!(found.tag.id, PACKED_ID | CHECKPOINT_ID);
        let others: BTreeSet<usize> =
            chunks.iter().filter(is_other).map(|found| found.chunk).collect();
        let (size, blocks) = (self.row_bytes(), geometry.row_blocks());
        for some in numbers.chunks(AT_ONCE) {
            let mut read: BTreeMap<(u64, Ppa), Vec<u8>> = BTreeMap::new();
            let number: BTreeMap<Ppa, u64> =
                some.iter().map(|&(number, ppa)| (ppa, number)).collect();
            let mut runner = Runner::new(&mut self.device, self.now);
            let jobs = some.iter().map(|row| Job::read(Content::Whole, (row.1, blocks)));
            runner.run(jobs, |job, ended| {
                if !is_read(ended.status) {
                    return Err(damaged(job.ppa));
                }
                read.insert((number[&job.ppa], job.ppa), ended.data[..size].to_vec());
                Ok(())
            })?;
            self.now = runner.now;
            for ((number, ppa), bytes) in read {
                self.replay_row(number, ppa, &bytes, &others)?;
            }
        }
        Ok(())
    }

    fn replay_row(
        &mut self,
        number: u64,
        ppa: Ppa,
        bytes: &[u8],
        others: &BTreeSet<usize>,
    ) -> Result<(), KvError> {
        let damaged = || KvError::Damaged { what: "a row of records", ppa };
        let (_, named, seed) = row_header(bytes).ok_or_else(damaged)?;
        if seed != self.config.seed {
            return Err(KvError::Seed { found: seed, given: self.config.seed });
        }
        if named != number {
            return Err(damaged());
        }
        self.recovery.rows += 1;
        for (at, record) in records(bytes) {
            let record = record.ok_or_else(damaged)?;
            self.recovery.records += 1;
            let is_there = |run: Run| {
                self.is_there(&run) && !others.contains(&self.geometry.chunk_index(run.first))
            };
            if record.kind == Kind::Large && !record.runs().all(is_there) {
                self.recovery.dropped += 1;
                continue;
            }
            if record.kind == Kind::Gone && mutation::is(Mutation::SkipDeleted) {
                continue;
            }
            let hash = xxh3_64_with_seed(record.key, self.config.seed).max(1);
            let place = Place::new(ppa, at, record.bytes.len(), record.kind, 0);
            let keys = self.config.keys;
            self.index.set(hash, place).map_err(|_| KvError::Keys(keys))?;
        }
        Ok(())
    }

    /// Whether the rows of a run are those that were written for it.
    fn is_there(&self, run: &Run) -> bool {
        if !run.is_of(&self.geometry) {
            return false;
        }
        let chunk = self.device.chunk(self.geometry.chunk_index(run.first));
        let rows = run.rows - u32::from(mutation::is(Mutation::ForgetRow));
        let blocks = self.geometry.row_blocks();
        let end = self.geometry.block(run.first) + rows * blocks;
        let is_missing = |row: u32| {
            let first = Ppa(run.first.0 + u64::from(row * blocks));
            self.device.failed_of(first, blocks) != 0
        };
        chunk.wear == run.wear
            && end <= chunk.programmed
            && chunk.state != ChunkState::Offline
            && !(0..rows).any(is_missing)
    }

    /// Counts what each chunk has of records and of large values, whose records are read.
    fn count_records(&mut self) -> Result<(), KvError> {
        let mut large: BTreeMap<(Ppa, u32), Vec<(u64, Place)>> = BTreeMap::new();
        for entry in self.index.all() {
            let chunk = self.space.chunk_of(entry.place.ppa());
            if self.space.chunk(chunk).used == Use::Free {
                return Err(KvError::Damaged { what: "a record", ppa: entry.place.ppa() });
            }
            self.space.count(chunk, entry.place.len() as u64);
            if entry.place.kind() == Kind::Large {
                let at = (entry.place.ppa(), entry.place.blocks() as u32);
                large.entry(at).or_default().push((entry.hash, entry.place));
            }
        }
        let mut runs: Vec<(u64, Run)> = Vec::new();
        let mut left: Vec<(Ppa, u32)> = large.keys().copied().collect();
        for _ in 0..TRIES {
            let mut again = Vec::new();
            let mut runner = Runner::new(&mut self.device, self.now);
            let jobs = left.iter().map(|&piece| Job::read(Content::Whole, piece));
            runner.run(jobs, |job, ended| {
                let piece = (job.ppa, job.count);
                let from = runs.len();
                for &(hash, place) in &large[&piece] {
                    let record = ended.data.get(place.offset()..).and_then(Record::read);
                    let record = record.filter(|record| record.kind == Kind::Large);
                    let Some(record) = record.filter(|_| is_read(ended.status)) else {
                        runs.truncate(from);
                        again.push(piece);
                        break;
                    };
                    runs.extend(record.runs().map(|run| (hash, run)));
                }
                Ok(())
            })?;
            self.now = runner.now;
            left = again;
        }
        self.recovery.large = large.values().map(|of| of.len() as u64).sum();
        // Of a value that is not all there nothing is: its gets fail.
        let is_lost = |(hash, run): &(u64, Run)| (!self.is_there(run)).then_some(*hash);
        let lost: BTreeSet<u64> = runs.iter().filter_map(is_lost).collect();
        for (hash, run) in runs.into_iter().filter(|(hash, _)| !lost.contains(hash)) {
            let chunk = self.space.chunk_of(run.first);
            self.space.count(chunk, u64::from(run.rows) * self.space.row_bytes());
            self.set_owner(&run, hash);
        }
        if !left.is_empty() {
            self.keep_unknown();
        }
        Ok(())
    }

    /// Keeps all chunks that have a row of which nobody says whose it is: it may be of a
    /// value whose record could not be read. The next start looks again.
    fn keep_unknown(&mut self) {
        for chunk in ftl::all_chunks(&self.geometry) {
            let held = self.space.chunk(chunk);
            let first = self.space.row_number(self.geometry.chunk_start(chunk));
            let owners = &self.owners[first..][..held.next as usize];
            if held.used == Use::Large && owners.contains(&0) {
                self.space.count(chunk, GRAIN as u64);
                self.space.chunk_mut(chunk).stuck = true;
            }
        }
    }
}

/// Reads the tag of the last row of each chunk; where that cannot be read, of the one
/// before.
fn find_chunks<D: OpenChannel>(
    runner: &mut Runner<'_, D>,
    geometry: &Geometry,
) -> Result<Vec<Found>, KvError> {
    let last = |device: &D, chunk: usize, below: u32| {
        let row = rows(device, geometry, chunk).take_while(|&row| row < below).last()?;
        Some((chunk, row))
    };
    let chunks = ftl::all_chunks(geometry);
    let mut left: Vec<(usize, u32)> =
        chunks.filter_map(|chunk| last(&*runner.device, chunk, u32::MAX)).collect();
    let (mut found, mut is_damaged) = (Vec::new(), false);
    while !left.is_empty() {
        let jobs = left
            .iter()
            .map(|&(chunk, row)| Job::read(Content::Tags, (row_ppa(geometry, chunk, row), 1)));
        let mut tags = BTreeMap::new();
        runner.run(jobs, |job, ended| {
            let tag = is_read(ended.status).then(|| Tag::load(&ended.tags[..TAG_BYTES]));
            tags.insert(geometry.chunk_index(job.ppa), tag);
            Ok(())
        })?;
        let mut next = Vec::new();
        for (chunk, row) in left {
            match (tags[&chunk], last(&*runner.device, chunk, row)) {
                (Some(tag), _)
                    if matches!(tag.id, PACKED_ID | CHECKPOINT_ID) && tag.seq > MOST_NUMBER =>
                {
                    let ppa = row_ppa(geometry, chunk, row);
                    return Err(KvError::Damaged { what: "a tag", ppa });
                }
                (Some(tag), _) => found.push(Found { chunk, tag, is_damaged }),
                (None, Some(before)) => next.push(before),
                (None, None) => {
                    let ppa = row_ppa(geometry, chunk, row);
                    return Err(KvError::Damaged { what: "a chunk", ppa });
                }
            }
        }
        (left, is_damaged) = (next, true);
    }
    Ok(found)
}
