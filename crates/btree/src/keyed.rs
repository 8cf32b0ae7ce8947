//! A drive that keeps values by key (`port::KvReq`), with the operations of a tree.
//!
//! Guarantees: each operation that was taken ends in one [`Sink::done`]; of one key puts
//! and deletes are done in the order in which they were asked for; what had ended before
//! a flush was asked for is durable when that has. Each put and delete is alone: there
//! are no batches. A scan is in the drive's order, which is none of the keys.
//!
//! Values are copied to and from buffers, which all together have a bound: an operation
//! for which there is no room waits for others. How long a value is, is known when it was
//! read: its buffer is as long as that of those before, and it is read again where that
//! was too short.
//!
//! Fails when a key or value is too long, when the drive does, and when there is no
//! memory for a value.

use std::collections::VecDeque;

use port::{Buffer, KvDone, KvOp, KvReq, KvShape, MAX_KEY_BYTES, PutIf, Ring, Scratch};
use port::{OutOfMemory, Status, Time};

use crate::error::Error;
use crate::op::{Outcome, Sink};
use crate::store::{Awaited, StoreError};

/// The least room of an operation for its value, in bytes.
const LEAST: usize = 4096;

/// The most bytes that a value is expected to have, so that a long one takes no room from
/// short ones after it: of longer ones a second read is little.
const MOST_EXPECTED: usize = 64 << 10;

/// The most room for keys of a scan, and the least: two of the longest.
const LISTED: usize = 64 << 10;
const LISTED_LEAST: usize = 2 * (1 + MAX_KEY_BYTES);

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// Its value: so much of it as is asked for, or all.
    #[default]
    Get,
    Head,
    Put,
    Delete,
    /// So many keys are still to be given, and so many were.
    Scan {
        left: u64,
        given: u64,
    },
    Flush,
}

/// An operation: the buffers of its key and value, of which `room` is the latter's.
struct Op {
    kind: Kind,
    tag: u64,
    key: Scratch,
    key_len: usize,
    value: Scratch,
    room: usize,
    /// Bytes of the value that are wanted, or that it has.
    want: usize,
}

/// How a drive is used.
#[derive(Clone, Copy, Debug)]
pub struct KeyedConfig {
    /// Operations that may wait at once.
    pub operations: usize,
    /// Bytes of buffers for values, about and at most; one value always has room.
    pub memory: u64,
    /// Keys that are there.
    pub keys: u64,
}

/// A drive that takes key-value requests, wherever it is.
pub type KeyedDrive<'a> = Box<dyn Awaited<Cmd = KvReq, Done = KvDone> + 'a>;

/// A drive that keeps values by key.
pub struct Keyed<'a> {
    drive: KeyedDrive<'a>,
    shape: KvShape,
    now: Time,
    ops: Vec<Op>,
    free: Vec<u32>,
    /// Those that wait for room for their values.
    waiting: VecDeque<u32>,
    out: Ring<KvReq>,
    done: Ring<KvDone>,
    /// Bytes of all values' buffers, and at most.
    held: u64,
    most: u64,
    /// About how long a value is, and a key.
    expected: usize,
    key_bytes: usize,
    keys: u64,
    /// Something was asked of the drive since it was last polled.
    asked: bool,
}

impl<'a> Keyed<'a> {
    /// A drive of this outside.
    ///
    /// # Errors
    /// When there is no memory for the buffers.
    pub fn new(
        drive: KeyedDrive<'a>,
        shape: KvShape,
        config: KeyedConfig,
        now: Time,
    ) -> Result<Keyed<'a>, OutOfMemory> {
        // One is for a flush.
        let count = config.operations.max(1) + 1;
        let keys = Buffer::carve(count, MAX_KEY_BYTES)?;
        let values = Buffer::carve(count, LEAST)?;
        let op = |(key, value)| Op {
            kind: Kind::Get,
            tag: 0,
            key: Scratch::new(key),
            key_len: 0,
            value: Scratch::new(value),
            room: LEAST,
            want: 0,
        };
        Ok(Keyed {
            drive,
            shape,
            now,
            ops: keys.into_iter().zip(values).map(op).collect(),
            free: (0..count as u32).rev().collect(),
            waiting: VecDeque::with_capacity(count),
            out: Ring::new(count),
            done: Ring::new(count),
            held: (count * LEAST) as u64,
            most: config.memory,
            expected: LEAST,
            key_bytes: 32,
            keys: config.keys,
            asked: false,
        })
    }

    /// Keys that are there.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of the longest value.
    pub fn longest(&self) -> usize {
        self.shape.max_value as usize
    }

    /// Bytes of buffers for values.
    pub fn memory(&self) -> u64 {
        self.held
    }

    /// Operations that wait.
    pub fn waiting(&self) -> usize {
        self.ops.len() - self.free.len()
    }

    /// The drive, to wait for it.
    pub fn drive_mut(&mut self) -> &mut KeyedDrive<'a> {
        &mut self.drive
    }

    /// Looks a key up; with `head` the first bytes of its value will do, so many.
    ///
    /// # Errors
    /// Of this and all that follow: [`Error::Busy`] and limits at once; all else comes
    /// through `sink`.
    pub fn get(
        &mut self,
        tag: u64,
        key: &[u8],
        head: Option<usize>,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let kind = if head.is_some() { Kind::Head } else { Kind::Get };
        let slot = self.take(kind, tag, key, 0)?;
        let op = &mut self.ops[slot as usize];
        op.want = head.unwrap_or(self.expected);
        self.send(slot, sink);
        Ok(())
    }

    /// Gives a key a value.
    pub fn put(
        &mut self,
        tag: u64,
        key: &[u8],
        value: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        if self.free.len() > 1 && !self.has_room(value.len()) {
            // It cannot wait: nobody would keep its value.
            return Err(Error::Busy(self.waiting()));
        }
        let slot = self.take(Kind::Put, tag, key, value.len())?;
        if !self.grow(slot, value.len(), sink) {
            return Ok(());
        }
        let op = &mut self.ops[slot as usize];
        op.want = value.len();
        let mut buffer = op.value.take(value.len());
        buffer.bytes_mut().copy_from_slice(value);
        self.send_with(slot, buffer);
        Ok(())
    }

    /// Takes a key out.
    pub fn delete(&mut self, tag: u64, key: &[u8]) -> Result<(), Error> {
        let slot = self.take(Kind::Delete, tag, key, 0)?;
        self.send_with(slot, Buffer::empty());
        Ok(())
    }

    /// Gives up to `count` keys behind `key` in the drive's order, or from the first on,
    /// without values.
    pub fn scan(
        &mut self,
        tag: u64,
        key: &[u8],
        count: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let slot = self.take(Kind::Scan { left: count, given: 0 }, tag, key, 0)?;
        self.list(slot, sink);
        Ok(())
    }

    /// Makes durable what has ended so far.
    pub fn flush(&mut self, tag: u64) -> Result<(), Error> {
        let slot = self.free.pop().ok_or(Error::Busy(self.ops.len()))?;
        let op = &mut self.ops[slot as usize];
        (op.kind, op.tag, op.key_len) = (Kind::Flush, tag, 0);
        self.send_with(slot, Buffer::empty());
        Ok(())
    }

    /// Lets happen what is due at `now`. Time never goes back.
    pub fn poll(&mut self, now: Time, sink: &mut impl Sink) {
        self.now = self.now.max(now);
        loop {
            self.asked = false;
            self.drive.submit(self.now, &mut self.out);
            let moved = self.drive.advance_due(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                self.complete(done, sink);
            }
            if !moved && !self.asked {
                return;
            }
        }
    }

    /// When to poll next; `None` when there is no reason to, or when a drive on another
    /// thread has the next word.
    pub fn next_event(&self) -> Option<Time> {
        if self.asked { Some(self.now) } else { self.drive.next_event() }
    }

    /// Waits, if there is anything to wait for, and polls. False when nothing will ever
    /// happen.
    pub fn wait(&mut self, sink: &mut impl Sink) -> bool {
        let next = if self.asked { Some(self.now) } else { self.drive.wait() };
        next.inspect(|&at| self.poll(at, sink)).is_some()
    }

    fn take(&mut self, kind: Kind, tag: u64, key: &[u8], value: usize) -> Result<u32, Error> {
        if self.free.len() <= 1 {
            return Err(Error::Busy(self.ops.len() - 1));
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyTooLong(key.len(), MAX_KEY_BYTES));
        }
        if value as u64 > self.shape.max_value {
            return Err(Error::ValueTooLong(value, self.shape.max_value as usize));
        }
        let slot = self.free.pop().expect("there are two");
        let op = &mut self.ops[slot as usize];
        (op.kind, op.tag) = (kind, tag);
        op.set_key(key);
        Ok(slot)
    }

    /// Whether a value of so many bytes has room, or nobody else has any.
    fn has_room(&self, bytes: usize) -> bool {
        let others: u64 = self.held - self.idle();
        bytes <= LEAST || others + room_of(bytes) as u64 <= self.most || self.waiting() == 0
    }

    /// Bytes of buffers of those that do nothing.
    fn idle(&self) -> u64 {
        self.free.iter().map(|&slot| self.ops[slot as usize].room as u64).sum()
    }

    /// Sees that an operation has room for so many bytes. Where there is no memory it
    /// ends, and there is none.
    fn grow(&mut self, slot: u32, bytes: usize, sink: &mut impl Sink) -> bool {
        let op = &mut self.ops[slot as usize];
        if bytes <= op.room {
            return true;
        }
        let room = room_of(bytes);
        self.held += (room - op.room) as u64;
        while self.held > self.most
            && let Some(&idle) =
                self.free.iter().find(|&&idle| self.ops[idle as usize].room > LEAST)
        {
            let op = &mut self.ops[idle as usize];
            let Ok(least) = Buffer::zeroed(LEAST) else { break };
            self.held -= (op.room - LEAST) as u64;
            (op.value, op.room) = (Scratch::new(least), LEAST);
        }
        let op = &mut self.ops[slot as usize];
        match Buffer::zeroed(room) {
            Ok(buffer) => {
                (op.value, op.room) = (Scratch::new(buffer), room);
                true
            }
            Err(_) => {
                self.held -= (room - op.room) as u64;
                self.end(slot, Err(Error::OutOfMemory(room as u64)), sink);
                false
            }
        }
    }

    /// Sends a request that is to be given something, when there is room for it.
    fn send(&mut self, slot: u32, sink: &mut impl Sink) {
        let op = &self.ops[slot as usize];
        let (want, others) = (op.want, self.waiting() > 1 + self.waiting.len());
        if want > op.room && others && !self.has_room(want) {
            return self.waiting.push_back(slot);
        }
        if self.grow(slot, want, sink) {
            let buffer = self.ops[slot as usize].value.take(want);
            self.send_with(slot, buffer);
        }
    }

    fn send_with(&mut self, slot: u32, value: Buffer) {
        let op = &mut self.ops[slot as usize];
        let (kind, len) = match op.kind {
            Kind::Get | Kind::Head => (KvOp::Get, 0),
            Kind::Put => (KvOp::Put(PutIf::Any), value.len() as u64),
            Kind::Delete => (KvOp::Delete, 0),
            Kind::Scan { .. } => (KvOp::List, 0),
            Kind::Flush => (KvOp::Flush, 0),
        };
        let (id, key) = (u64::from(slot), op.key.take(op.key_len));
        self.out.put(|| KvReq { id, op: kind, durable: false, key, len, value });
        self.asked = true;
    }

    /// Asks for the next keys of a scan.
    fn list(&mut self, slot: u32, sink: &mut impl Sink) {
        let op = &mut self.ops[slot as usize];
        let Kind::Scan { left, .. } = op.kind else { return };
        // The one that was given last comes once more.
        let wanted = (left as usize).saturating_add(2).saturating_mul(1 + self.key_bytes);
        op.want = wanted.clamp(LISTED_LEAST, LISTED);
        self.send(slot, sink);
    }

    /// A request is over.
    fn complete(&mut self, done: KvDone, sink: &mut impl Sink) {
        let KvDone { id, status, len, key, value, .. } = done;
        let op = &mut self.ops[id as usize];
        op.key.give(key);
        let result = match op.kind {
            Kind::Get | Kind::Head if status.is_ok() => {
                return self.read(id as u32, len, value, sink);
            }
            Kind::Scan { .. } if status.is_ok() || status == Status::KEY_UNRECOVERED => {
                return self.listed(id as u32, status, len, value, sink);
            }
            Kind::Put if status.is_ok() => {
                self.keys += u64::from(len == 0);
                Ok(Outcome::Stored)
            }
            Kind::Delete if status.is_ok() => {
                self.keys = self.keys.saturating_sub(1);
                Ok(Outcome::Deleted)
            }
            Kind::Flush if status.is_ok() => Ok(Outcome::Flushed),
            _ if status == Status::KEY_NOT_FOUND => Ok(Outcome::Missing),
            kind => Err(kind.failed(status)),
        };
        if !matches!(op.kind, Kind::Delete | Kind::Flush) {
            op.value.give(value);
        }
        self.end(id as u32, result, sink);
    }

    /// A value was read, which has so many bytes.
    fn read(&mut self, slot: u32, len: u64, value: Buffer, sink: &mut impl Sink) {
        let op = &mut self.ops[slot as usize];
        let len = len as usize;
        if op.kind == Kind::Get {
            self.expected = match len > self.expected {
                true => room_of(len).min(self.shape.max_value as usize).min(MOST_EXPECTED),
                false => (self.expected - (self.expected - len) / 16).max(LEAST),
            };
            if len > value.len() {
                op.value.give(value);
                op.want = len;
                return self.send(slot, sink);
            }
        }
        let key = op.key.take(op.key_len);
        sink.record(op.tag, key.bytes(), &value.bytes()[..len.min(value.len())]);
        op.key.give(key);
        op.value.give(value);
        self.end(slot, Ok(Outcome::Found), sink);
    }

    /// Keys were listed, so many bytes of them.
    fn listed(&mut self, slot: u32, status: Status, len: u64, value: Buffer, sink: &mut impl Sink) {
        let op = &mut self.ops[slot as usize];
        let Kind::Scan { mut left, mut given } = op.kind else { return };
        let mut keys = &value.bytes()[..len as usize];
        let (mut last, from) = (None, op.key.take(op.key_len));
        while let Some((&bytes, rest)) = keys.split_first()
            && let Some((key, rest)) = rest.split_at_checked(usize::from(bytes))
            && left > 0
        {
            keys = rest;
            last = Some(key);
            if key == from.bytes() {
                continue;
            }
            self.key_bytes = (self.key_bytes * 7 + key.len()).div_ceil(8);
            sink.record(op.tag, key, &[]);
            (left, given) = (left - 1, given + 1);
        }
        op.key.give(from);
        // The drive stops where a key does not fit, or at the end.
        let is_over = value.len() - len as usize > MAX_KEY_BYTES;
        if let Some(last) = last {
            op.set_key(last);
        }
        op.value.give(value);
        op.kind = Kind::Scan { left, given };
        match status {
            Status::SUCCESS if left > 0 && !is_over => self.list(slot, sink),
            Status::SUCCESS => self.end(slot, Ok(Outcome::Scanned(given)), sink),
            status => self.end(slot, Err(Kind::Scan { left, given }.failed(status)), sink),
        }
    }

    /// Ends an operation; others may have room now.
    fn end(&mut self, slot: u32, result: Result<Outcome, Error>, sink: &mut impl Sink) {
        self.free.push(slot);
        sink.done(self.ops[slot as usize].tag, result);
        if let Some(next) = self.waiting.pop_front() {
            self.send(next, sink);
        }
    }
}

impl Op {
    fn set_key(&mut self, key: &[u8]) {
        let mut to = self.key.take(key.len());
        to.bytes_mut().copy_from_slice(key);
        self.key.give(to);
        self.key_len = key.len();
    }
}

impl Kind {
    /// What the drive failed to do.
    #[cold]
    fn failed(self, status: Status) -> Error {
        let what = match self {
            Kind::Get | Kind::Head => "read a value",
            Kind::Put => "store a value",
            Kind::Delete => "delete a key",
            Kind::Scan { .. } => "list its keys",
            Kind::Flush => "flush",
        };
        Error::Store(StoreError::Drive { what, status })
    }
}

/// Bytes of the buffer for so many.
fn room_of(bytes: usize) -> usize {
    bytes.next_power_of_two().max(LEAST)
}
