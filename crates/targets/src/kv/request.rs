//! Requests: which wait for which, how a key is looked up, and how puts and deletes
//! become records.
//!
//! Guarantees: of one key puts and deletes are done one after the other, in the order
//! in which they came, and gets and `Exists` between those that they came between. A
//! record is appended only for a key that was looked up: of a hash there is one key.

use device::{Content, OpenChannel, VectorOp};
use port::{Buffer, KvDone, KvOp, KvReq, Pieces, PutIf, Scratch, Status, Time};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::mutation::{self, Mutation};
use super::place::{Kind, Place};
use super::record::{Body, Record, Run};
use super::{Cookie, Kv};

/// What a request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    /// Requests of its key that came before.
    Key,
    /// The record of its key.
    Record,
    /// Room for its record.
    Room,
    /// Rows of its value, to be written or read.
    Rows,
    /// The rows of records up to its own.
    Programs,
    /// The drive's flush: to be sent, or under way.
    Flush,
    Flushing,
}

/// Whether there is an entry of the index for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Here,
    /// When a checkpoint is over.
    Later,
    None,
}

/// A request.
#[derive(Default)]
pub(super) struct Request {
    pub stage: Stage,
    pub id: u64,
    pub op: Option<KvOp>,
    pub durable: bool,
    pub hash: u64,
    pub key: Buffer,
    pub len: u64,
    pub status: Status,
    /// The record that was looked at, and whether its key was looked up.
    pub place: Place,
    pub looked: bool,
    /// The row of its record.
    pub row: u64,
    /// What the completion says of bytes.
    pub out: u64,
    /// Its buffer, and what of it was filled.
    pub value: Pieces,
    pub filled: usize,
    /// For a record; for the last row of a value; and the end of the buffer that this
    /// is for.
    pub record: Scratch,
    pub tail: Scratch,
    pub last: Buffer,
    /// Rows of its value, those that were sent, and those under way.
    pub rows: u32,
    pub next: u32,
    pub parts: u32,
    pub failed: bool,
    pub tries: u32,
    pub lanes: u16,
    /// Where they are, and where those of the value before are.
    pub runs: Vec<Run>,
    pub old: Vec<Run>,
    /// Of a listing, the least hash that it has not seen.
    pub cursor: u64,
}

impl Request {
    /// What its record has beside the key.
    fn body(&self) -> Body<'_> {
        match self.op {
            Some(KvOp::Delete) => Body::Gone,
            _ if self.runs.is_empty() => Body::Small(self.value.rest().bytes()),
            _ => Body::Large { len: self.len, lanes: self.lanes, runs: &self.runs },
        }
    }
}

impl<D: OpenChannel> Kv<D> {
    /// The hash of a key. Zero is nobody's.
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.config.seed).max(1)
    }

    /// Takes a request; there is room.
    pub(super) fn take(&mut self, now: Time, req: KvReq) {
        let writes = matches!(req.op, KvOp::Put(_) | KvOp::Delete);
        let status = match self.shape.check(&req) {
            status if status.is_ok() && writes && self.fault => Status::READ_ONLY,
            // What an earlier flush was to make durable may be lost.
            status if status.is_ok() && self.fault && req.op == KvOp::Flush => Status::WRITE_FAULT,
            status => status,
        };
        if !status.is_ok() {
            let KvReq { id, op, key, value, .. } = req;
            return self.ready.put(|| KvDone { id, op, status, len: 0, at: now, key, value });
        }
        let slot = self.free.pop().expect("the caller saw room");
        let hash = if req.key.is_empty() { 0 } else { self.hash(req.key.bytes()) };
        let held = &mut self.requests[slot as usize];
        (held.id, held.op, held.durable, held.hash) = (req.id, Some(req.op), req.durable, hash);
        (held.key, held.len, held.value) = (req.key, req.len, Pieces::new(req.value));
        (held.status, held.place, held.looked) = (Status::SUCCESS, Place::NONE, false);
        (held.row, held.out, held.filled, held.tries) = (0, 0, 0, 0);
        (held.rows, held.next, held.parts, held.failed) = (0, 0, 0, false);
        held.runs.clear();
        held.old.clear();
        held.cursor = if mutation::is(Mutation::ListAll) { 0 } else { hash };
        match req.op {
            KvOp::Flush => {
                held.row = self.packer.end() - 1;
                if mutation::is(Mutation::FlushEarly) {
                    held.row = 0;
                }
                held.stage = Stage::Programs;
                self.syncers += 1;
            }
            KvOp::List => self.list(now, slot),
            _ if self.is_locked(slot, self.waiting.len()) => {
                self.requests[slot as usize].stage = Stage::Key;
                self.waiting.push_back(slot);
            }
            _ => self.start(now, slot),
        }
    }

    /// Whether a request has to wait for others of its key: those that were begun, or
    /// the first so many of those that wait.
    fn is_locked(&self, slot: u32, ahead: usize) -> bool {
        let held = &self.requests[slot as usize];
        let shares = |op: Option<KvOp>| matches!(op, Some(KvOp::Get | KvOp::Exists));
        let blocks = |other: &Request| {
            other.hash == held.hash
                && !matches!(other.op, Some(KvOp::List))
                && !(shares(held.op) && shares(other.op))
        };
        let begun = |other: &&Request| !matches!(other.stage, Stage::Idle | Stage::Key);
        let others = self.requests.iter().enumerate();
        let mut others = others.filter(|&(at, _)| at != slot as usize).map(|(_, other)| other);
        let mut waiting = self.waiting.iter().take(ahead);
        self.mover.locks(held.hash)
            || others.any(|other| begun(&other) && blocks(other))
            || waiting.any(|&other| blocks(&self.requests[other as usize]))
    }

    /// Whether a request of this hash has begun that is no listing.
    pub(super) fn is_busy(&self, hash: u64) -> bool {
        let is = |held: &Request| {
            held.hash == hash
                && !matches!(held.stage, Stage::Idle | Stage::Key)
                && !matches!(held.op, Some(KvOp::List))
        };
        self.requests.iter().any(is)
    }

    /// Begins what no longer has to wait for its key.
    pub(super) fn start_waiting(&mut self, now: Time) -> bool {
        if !std::mem::take(&mut self.unlocked) {
            return false;
        }
        let mut at = 0;
        while let Some(&slot) = self.waiting.get(at) {
            if self.is_locked(slot, at) {
                at += 1;
            } else {
                self.waiting.remove(at);
                self.start(now, slot);
            }
        }
        true
    }

    fn start(&mut self, now: Time, slot: u32) {
        let held = &mut self.requests[slot as usize];
        let is_large = self.shape.is_large(held.key.len(), held.len);
        match held.op {
            Some(KvOp::Put(PutIf::Any)) if is_large => self.write_rows(now, slot),
            _ => self.look_up(now, slot),
        }
    }

    /// Looks for the record of a key.
    pub(super) fn look_up(&mut self, now: Time, slot: u32) {
        let hash = self.requests[slot as usize].hash;
        match self.index.find(hash).filter(|place| place.is_live()) {
            Some(place) => self.read_record(slot, place),
            None => self.looked_up(now, slot, false),
        }
    }

    /// Reads a record for a request.
    pub(super) fn read_record(&mut self, slot: u32, place: Place) {
        let held = &mut self.requests[slot as usize];
        (held.place, held.stage) = (place, Stage::Record);
        if let Some(bytes) = self.packer.find(place) {
            let mut buffer = held.record.take(bytes.len());
            buffer.bytes_mut().copy_from_slice(bytes);
            return self.found.push_back((slot, buffer));
        }
        let buffer = held.record.take(place.blocks() * super::WHOLE);
        self.fetch_record(Cookie::Record(slot), place, buffer);
    }

    /// Reads a record from flash: its chunk stays until that has ended.
    pub(super) fn fetch_record(&mut self, cookie: Cookie, place: Place, buffer: Buffer) {
        let (ppa, blocks) = (place.ppa(), place.blocks() as u8);
        self.space.chunk_mut(self.space.chunk_of(ppa)).holds += 1;
        self.send(cookie, VectorOp::Read, Content::Whole, ppa, blocks, buffer);
    }

    /// A record was read from flash.
    pub(super) fn record_read(&mut self, now: Time, slot: u32, status: Status, buffer: Buffer) {
        let place = self.requests[slot as usize].place;
        self.space.chunk_mut(self.space.chunk_of(place.ppa())).holds -= 1;
        self.see_record(now, slot, ftl::is_read(status), buffer, place.offset());
    }

    /// A record is there, `at` so many bytes of a buffer.
    pub(super) fn see_record(
        &mut self,
        now: Time,
        slot: u32,
        is_read: bool,
        buffer: Buffer,
        at: usize,
    ) {
        let held = &mut self.requests[slot as usize];
        let (place, op) = (held.place, held.op.expect("it is taken"));
        if op == KvOp::List {
            return self.see_key(now, slot, is_read, buffer, at);
        }
        if self.index.find(held.hash) != Some(place) {
            // It was moved meanwhile.
            held.record.give(buffer);
            return self.look_up(now, slot);
        }
        let record = Record::read(&buffer.bytes()[at..]).filter(|_| is_read);
        let is_same = record.map(|record| record.key == held.key.bytes());
        let mut status = Status::SUCCESS;
        if let (Some(record), Some(true)) = (record, is_same) {
            held.out = record.len;
            match (record.kind, op) {
                (Kind::Small, KvOp::Get) => {
                    let len = held.value.rest().len().min(record.value().len());
                    let mut value = held.value.take(len);
                    value.bytes_mut().copy_from_slice(&record.value()[..len]);
                    held.value.give(value);
                }
                (Kind::Large, _) => {
                    let is_owned = |run: &Run| {
                        run.is_of(&self.geometry) && {
                            let owners = &self.owners[self.space.row_number(run.first)..];
                            owners[..run.rows as usize].iter().all(|&owner| owner == held.hash)
                        }
                    };
                    // Of a record that the start could not read no row was counted, and
                    // its rows may be others' by now.
                    held.old.extend(record.runs().filter(is_owned));
                    if op == KvOp::Get && held.old.len() < record.runs().count() {
                        (held.out, status) = (0, Status::KEY_UNRECOVERED);
                    }
                    held.lanes = if op == KvOp::Get { record.lanes() } else { held.lanes };
                }
                _ => {}
            }
        } else if is_same.is_none() && matches!(op, KvOp::Get | KvOp::Exists) {
            status = Status::KEY_UNRECOVERED;
        }
        let is_value = record.is_some_and(|record| record.kind == Kind::Large);
        held.record.give(buffer);
        match (op, is_same) {
            (KvOp::Get, Some(true)) if is_value && status.is_ok() => self.read_rows(now, slot),
            (KvOp::Get | KvOp::Exists, None | Some(true)) => self.end(now, slot, status),
            // Two keys of one hash: the second has no room.
            (KvOp::Put(_), Some(false)) => self.refuse(now, slot, Status::CAPACITY_EXCEEDED),
            // What cannot be read is written over.
            (_, is_same) => self.looked_up(now, slot, is_same != Some(false)),
        }
    }

    /// A key is there or not.
    fn looked_up(&mut self, now: Time, slot: u32, is_there: bool) {
        let held = &mut self.requests[slot as usize];
        held.looked = true;
        let is_large = self.shape.is_large(held.key.len(), held.len);
        match (held.op, is_there) {
            (Some(KvOp::Put(PutIf::Exists) | KvOp::Get | KvOp::Exists | KvOp::Delete), false) => {
                self.refuse(now, slot, Status::KEY_NOT_FOUND);
            }
            (Some(KvOp::Put(PutIf::Absent)), true) if !mutation::is(Mutation::PutAnyway) => {
                self.refuse(now, slot, Status::KEY_EXISTS);
            }
            (Some(KvOp::Put(_)), _) if is_large && held.runs.is_empty() => {
                self.write_rows(now, slot);
            }
            _ => {
                (held.out, held.stage) = (0, Stage::Room);
                self.appends.push_back(slot);
            }
        }
    }

    /// Appends the records for which there is room.
    pub(super) fn append(&mut self, now: Time) -> bool {
        let mut any = false;
        for _ in 0..self.appends.len() {
            let slot = self.appends.pop_front().expect("they were counted");
            match self.append_one(slot) {
                Ok(true) => {
                    any = true;
                    let held = &mut self.requests[slot as usize];
                    if held.durable {
                        held.stage = Stage::Programs;
                        self.syncers += 1;
                    } else {
                        self.end(now, slot, Status::SUCCESS);
                    }
                }
                Ok(false) => self.appends.push_back(slot),
                Err(status) => {
                    any = true;
                    self.refuse(now, slot, status);
                }
            }
        }
        any
    }

    /// Appends the record of a request. False where there is no room for now.
    fn append_one(&mut self, slot: u32) -> Result<bool, Status> {
        if self.fault {
            return Err(Status::READ_ONLY);
        }
        let held = &self.requests[slot as usize];
        let (is_put, hash) = (held.op != Some(KvOp::Delete), held.hash);
        let size = held.body().bytes(held.key.bytes());
        let old = self.index.find(hash).unwrap_or(Place::NONE);
        let more = (size as u64).saturating_sub(old.len() as u64);
        if is_put && self.space.live() + self.promised + more > self.limit {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let spare = if is_put { self.user_spare() } else { self.delete_spare() };
        if !self.make_room(size, spare) {
            return if self.full && is_put { Err(Status::CAPACITY_EXCEEDED) } else { Ok(false) };
        }
        match self.entry_for(hash) {
            Room::Here => {}
            Room::Later if !self.full => return Ok(false),
            Room::Later | Room::None => return Err(Status::CAPACITY_EXCEEDED),
        }
        let held = &mut self.requests[slot as usize];
        let epoch = self.checkpoint.epoch;
        let (place, row) = self.packer.put(held.key.bytes(), &held.body(), epoch);
        held.row = row;
        held.out = u64::from(is_put && old.is_live());
        let (runs, old) = (std::mem::take(&mut held.runs), std::mem::take(&mut held.old));
        self.enter(hash, place, row, &old);
        self.own(&runs, hash);
        let held = &mut self.requests[slot as usize];
        (held.runs, held.old) = (runs, old);
        Ok(true)
    }

    /// Whether the index has an entry for a key. What was deleted gives its entry back with
    /// checkpoints, which are asked for; and while one is under way fewer entries can move.
    pub(super) fn entry_for(&mut self, hash: u64) -> Room {
        if self.index.has_room(hash) {
            return Room::Here;
        }
        let (gone, is_at_work) = (self.index.gone() > 0, self.checkpoint.is_at_work());
        self.checkpoint.asked |= gone;
        if gone || is_at_work { Room::Later } else { Room::None }
    }

    /// Enters a record that was put in a row; the rows of the value before count no more.
    pub(super) fn enter(&mut self, hash: u64, place: Place, row: u64, old: &[Run]) {
        let before = self.index.set(hash, place).ok().flatten();
        self.space.count(self.space.chunk_of(place.ppa()), place.len() as u64);
        if let Some(before) = before {
            self.space.discount(self.space.chunk_of(before.ppa()), before.len() as u64, row);
        }
        let early = mutation::is(Mutation::EraseEarly);
        let old = if mutation::is(Mutation::KeepRows) { &[] } else { old };
        self.discount_runs(old, if early { 0 } else { row });
    }

    /// Rows of a value count no more.
    pub(super) fn discount_runs(&mut self, runs: &[Run], row: u64) {
        let bytes = self.space.row_bytes();
        for run in runs {
            let chunk = self.space.chunk_of(run.first);
            self.space.discount(chunk, u64::from(run.rows) * bytes, row);
        }
    }

    /// Ends a request that did nothing; rows that it has written count no more.
    pub(super) fn refuse(&mut self, now: Time, slot: u32, status: Status) {
        self.requests[slot as usize].out = 0;
        self.drop_rows(slot);
        self.end(now, slot, status);
    }

    /// Ends a request.
    pub(super) fn end(&mut self, now: Time, slot: u32, status: Status) {
        let held = &mut self.requests[slot as usize];
        let op = held.op.take().expect("it was taken");
        let stage = std::mem::take(&mut held.stage);
        let syncs = matches!(stage, Stage::Programs | Stage::Flush | Stage::Flushing);
        self.syncers -= usize::from(syncs);
        let value = std::mem::take(&mut held.value).whole();
        let (id, len, key) = (held.id, held.out, std::mem::take(&mut held.key));
        self.free.push(slot);
        self.unlocked = true;
        self.ready.put(|| KvDone { id, op, status, len, at: now, key, value });
    }
}
