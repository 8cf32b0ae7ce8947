//! Collection of chunks of records: what counts is put into the stream again.
//!
//! Guarantees: a record is moved only while it is the newest of its key, at the moment
//! in which it is put into its new row; the chunk is erased when that is programmed.
//! One chunk is collected at a time. What cannot be read stays where it is, and its
//! chunk with it.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorOp};
use flash::Ppa;
use port::{Buffer, OutOfMemory, Status};

use super::place::{Kind, Place};
use super::record::{Record, row_header};
use super::request::Stage;
use super::space::Use;
use super::{Cookie, Kv, WHOLE};

/// Rows that are read at once.
pub(super) const ROWS: usize = 4;

/// A row that was read.
struct Found {
    ppa: Ppa,
    buffer: Buffer,
    /// The next record.
    at: usize,
}

/// The collection under way.
pub(super) struct Collector {
    pub victim: Option<usize>,
    next: u32,
    reads: usize,
    free: Vec<Buffer>,
    found: VecDeque<Found>,
    /// Chunks collected since there was enough room.
    vain: usize,
}

impl Collector {
    pub fn new(blocks: usize) -> Result<Collector, OutOfMemory> {
        let free = Buffer::carve(ROWS, blocks * WHOLE)?;
        let found = VecDeque::with_capacity(ROWS);
        Ok(Collector { victim: None, next: 0, reads: 0, free, found, vain: 0 })
    }
}

impl<D: OpenChannel> Kv<D> {
    /// Goes on with collection, or begins one.
    pub(super) fn collect(&mut self) -> bool {
        match self.collector.victim {
            Some(chunk) => self.collect_rows(chunk),
            // No chunk is to be opened for values then.
            None if self.settling => false,
            None if self.mover.is_idle() => self.choose(),
            None => false,
        }
    }

    /// Chooses a chunk, where few are free.
    fn choose(&mut self) -> bool {
        if self.space.free_chunks() > self.enough_free() {
            self.collector.vain = 0;
            return false;
        }
        // What is being erased comes first.
        if !self.space.dying.is_empty() || self.erasing > 0 {
            return false;
        }
        let victim = self.space.victim();
        let chunk_bytes = u64::from(self.space.rows()) * self.space.row_bytes();
        // Where nobody waits, only what gives room however records fill their rows.
        let gives = |chunk: usize| self.space.chunk(chunk).live * 3 <= chunk_bytes;
        let victim = victim.filter(|&chunk| self.short || gives(chunk));
        let Some(chunk) = victim.filter(|_| self.collector.vain <= 2 * self.usable) else {
            self.collector.vain = 0;
            self.full = self.short && self.has_blocked_put();
            self.mover.forget_stuck(&mut self.space);
            return self.full;
        };
        self.collector.vain += 1;
        self.counters.collections += 1;
        if self.space.chunk(chunk).used == Use::Large {
            self.mover.start(chunk);
        } else {
            // It may become empty while its rows are read: it is erased when they were.
            self.space.chunk_mut(chunk).holds += 1;
            (self.collector.victim, self.collector.next) = (Some(chunk), 0);
        }
        true
    }

    fn has_blocked_put(&self) -> bool {
        let is_put = |&slot: &u32| self.requests[slot as usize].op != Some(port::KvOp::Delete);
        !self.sends.is_empty() || self.appends.iter().any(is_put)
    }

    fn collect_rows(&mut self, chunk: usize) -> bool {
        let mut any = false;
        while let Some(mut found) = self.collector.found.pop_front() {
            let at = found.at;
            let is_done = self.move_records(chunk, &mut found);
            any |= is_done || found.at > at;
            if !is_done {
                self.collector.found.push_front(found);
                break;
            }
            self.collector.free.push(found.buffer);
        }
        let rows = self.space.chunk(chunk).next;
        if self.space.chunk(chunk).live == 0 {
            // Nothing is left to be moved.
            self.collector.next = rows;
        }
        while self.collector.next < rows && !self.collector.free.is_empty() {
            any = true;
            let row = self.collector.next;
            self.collector.next += 1;
            let blocks = self.geometry.row_blocks();
            let (ppa, cookie) = (self.space.row_ppa(chunk, row), Cookie::Collect(row));
            if self.device.failed_of(ppa, blocks) != 0 {
                continue;
            }
            let buffer = self.collector.free.pop().expect("it was looked at");
            self.collector.reads += 1;
            self.send(cookie, VectorOp::Read, Content::Whole, ppa, blocks as u8, buffer);
        }
        let is_over = self.collector.next == rows
            && self.collector.reads == 0
            && self.collector.found.is_empty();
        if is_over {
            let is_empty = self.space.chunk(chunk).live == 0;
            let held = self.space.chunk_mut(chunk);
            (held.stuck, held.holds) = (!is_empty, held.holds - 1);
            self.collector.victim = None;
        }
        any || is_over
    }

    /// A row was read.
    pub(super) fn row_read(&mut self, row: u32, status: Status, buffer: Buffer) {
        let chunk = self.collector.victim.expect("its rows are read");
        self.collector.reads -= 1;
        self.counters.moved += u64::from(self.geometry.row_blocks());
        let is_row = ftl::is_read(status) && row_header(buffer.bytes()).is_some();
        if !is_row {
            return self.collector.free.push(buffer);
        }
        let (ppa, at) = (self.space.row_ppa(chunk, row), super::record::ROW_HEADER);
        self.collector.found.push_back(Found { ppa, buffer, at });
    }

    /// Moves what counts of a row. False where there is no room for now.
    fn move_records(&mut self, chunk: usize, found: &mut Found) -> bool {
        let bytes = &found.buffer.bytes()[..self.row_bytes()];
        let (end, ..) = row_header(bytes).expect("it was looked at");
        while found.at < end {
            let Some(record) = Record::read(&bytes[found.at..end]) else { return true };
            let (hash, size) = (self.hash(record.key), record.bytes.len());
            let held = self.index.find(hash).unwrap_or(Place::NONE);
            let here = Place::new(found.ppa, found.at, size, record.kind, held.age());
            if held == here {
                if record.kind == Kind::Gone && self.checkpoint.covers(held.age()) {
                    self.index.remove(hash);
                    self.space.discount(chunk, size as u64, 0);
                } else if self.make_room(size, self.collect_spare()) {
                    let (place, row) = self.packer.copy(&record, held.age());
                    self.enter(hash, place, row, &[]);
                    self.moved_bytes += size;
                } else {
                    return false;
                }
            }
            found.at += size;
        }
        true
    }

    /// Where nothing is under way, and so nothing can give room: what waits for it ends.
    pub(super) fn give_up(&mut self, now: port::Time) -> bool {
        // Others may wait for its key.
        if self.give_up_value() {
            return true;
        }
        let mut any = false;
        while let Some(slot) = self.appends.pop_front() {
            any = true;
            self.refuse(now, slot, Status::CAPACITY_EXCEEDED);
        }
        while let Some(slot) = self.sends.pop_front() {
            any = true;
            let held = &mut self.requests[slot as usize];
            (held.failed, held.status) = (true, Status::CAPACITY_EXCEEDED);
            self.rows_over(now, slot);
        }
        if self.packer.failed().is_some() && !self.fault {
            // No row is left for records that were acknowledged.
            (self.fault, any) = (true, true);
        }
        for slot in 0..self.requests.len() {
            if self.fault && self.requests[slot].stage == Stage::Programs {
                any = true;
                self.end(now, slot as u32, Status::WRITE_FAULT);
            }
        }
        any
    }
}
