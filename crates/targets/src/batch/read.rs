//! Reads, and flushes.
//!
//! A read looks MAP up once, when it is taken or when its page of MAP comes, and
//! reads what it finds. MAP changes in the order of the log, a batch at a time,
//! after all of it is durable; so a read sees whole batches, each that was
//! acknowledged before it was submitted, and never less than an earlier one saw.
//!
//! A target that takes no writes any more cannot make room in its cache: pages
//! that are ahead of flash stay. Then a read takes its entry out of the page of
//! MAP as flash has it. Such a page is not behind, since it is not in memory.

use device::{Content, OpenChannel, VectorOp};
use flash::{Ppa, TAG_BYTES, Tag};
use port::{BatchDone, BatchOp, Buffer, Status, Time};

use super::location::Location;
use super::map::{Map, PAGE_BYTES, State, stored_entry};
use super::page::{Kind, Page};
use super::write::Stage;
use super::{Batch, Cookie, is_read};

const NONE: u32 = u32::MAX;

/// A read at work.
#[derive(Default)]
pub(super) struct Read {
    pub id: u64,
    pub lpid: u64,
    pub buffer: Buffer,
    /// The next that waits for the same page of MAP.
    next: u32,
    at: Ppa,
}

/// A flush that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flush {
    pub id: u64,
    /// Host's batches that were taken before it.
    upto: u64,
}

/// What a read gets of a page that is nowhere.
fn nowhere(held: Location) -> Status {
    if held.is_lost() { Status::UNRECOVERED_READ } else { Status::UNWRITTEN }
}

impl<D: OpenChannel> Batch<D> {
    /// Takes a read that was checked.
    pub(super) fn take_read(&mut self, now: Time, id: u64, lpid: u64, buffer: Buffer) {
        let read = self.reads.take(Read { id, lpid, buffer, ..Read::default() });
        self.start_read(now, read);
    }

    /// Looks MAP up, or waits for its page.
    pub(super) fn start_read(&mut self, now: Time, id: u32) {
        let (page, entry) = Map::split(self.reads[id].lpid);
        let Some(slot) = self.hold_page(page) else {
            match self.fault {
                None => self.stalled.push_back(id),
                Some(_) => self.look_up(now, id),
            }
            return;
        };
        match self.map.slot(slot).state {
            State::Ready => {
                self.map.pin(slot);
                let held = self.map.get(slot, entry);
                self.map.unpin(slot);
                self.read_at(now, id, held);
            }
            State::Loading => {
                self.map.pin(slot);
                self.reads[id].next = self.map.slot(slot).waiters;
                self.map.slot_mut(slot).waiters = id;
            }
            State::Lost | State::Free => self.end_read(now, id, Status::UNRECOVERED_READ),
        }
    }

    /// Looks a page of MAP up that no slot can be had for, ever.
    #[cold]
    fn look_up(&mut self, now: Time, id: u32) {
        let (page, _) = Map::split(self.reads[id].lpid);
        let place = self.map.place(page);
        let Some(at) = place.ppa() else {
            self.end_read(now, id, nowhere(place));
            return;
        };
        self.reads[id].at = at;
        self.space.chunks[self.geometry.chunk_index(at)].readers += 1;
        self.look_ups.push_back(id);
        self.send_look_ups();
    }

    /// Reads pages of MAP that are looked up, as far as there are buffers.
    pub(super) fn send_look_ups(&mut self) {
        while !self.look_ups.is_empty() {
            let Some(buffer) = self.blocks.pop() else { return };
            let id = self.look_ups.pop_front().expect("it was looked at");
            let at = self.reads[id].at;
            self.send(Cookie::LookUp(id), VectorOp::Read, Content::Whole, at, 1, buffer);
        }
    }

    /// A page of MAP has come that is looked up, or cannot be read.
    pub(super) fn looked_up(&mut self, now: Time, id: u32, status: Status, buffer: Buffer) {
        self.leave_chunk(self.reads[id].at);
        let (number, entry) = Map::split(self.reads[id].lpid);
        let page = Page { kind: Kind::Map, number: number as u64 };
        let (data, tag) = buffer.bytes().split_at(PAGE_BYTES);
        let is_there = is_read(status) && page.matches(data, Tag::load(&tag[..TAG_BYTES]));
        let held = is_there.then(|| stored_entry(data, entry, &self.geometry)).flatten();
        self.blocks.push(buffer);
        match held {
            Some(held) => self.read_at(now, id, held),
            None => {
                self.counters.lost += 1;
                self.end_read(now, id, Status::UNRECOVERED_READ);
            }
        }
    }

    /// The page of MAP has come that reads wait for, or never will.
    pub(super) fn wake_reads(&mut self, now: Time, slot: u32) {
        let mut next = std::mem::replace(&mut self.map.slot_mut(slot).waiters, NONE);
        while next != NONE {
            let id = next;
            next = self.reads[id].next;
            let (_, entry) = Map::split(self.reads[id].lpid);
            if self.map.slot(slot).state == State::Ready {
                let held = self.map.get(slot, entry);
                self.read_at(now, id, held);
            } else {
                self.end_read(now, id, Status::UNRECOVERED_READ);
            }
            self.map.unpin(slot);
        }
    }

    fn read_at(&mut self, now: Time, id: u32, held: Location) {
        let Some(at) = held.ppa() else {
            self.end_read(now, id, nowhere(held));
            return;
        };
        self.reads[id].at = at;
        self.space.chunks[self.geometry.chunk_index(at)].readers += 1;
        if held.is_whole() && self.kept != port::BLOCK_BYTES as usize {
            self.bounces.push_back(id);
            self.send_bounces();
            return;
        }
        let buffer = std::mem::take(&mut self.reads[id].buffer);
        self.send(Cookie::Read(id), VectorOp::Read, Content::Data, at, 1, buffer);
    }

    /// Reads pages that were written whole, on a medium that keeps less of the
    /// others: through a buffer of the target's.
    pub(super) fn send_bounces(&mut self) {
        while !self.bounces.is_empty() {
            let Some(buffer) = self.blocks.pop() else { return };
            let id = self.bounces.pop_front().expect("it was looked at");
            let at = self.reads[id].at;
            self.send(Cookie::Bounce(id), VectorOp::Read, Content::Whole, at, 1, buffer);
        }
    }

    /// A read is back.
    pub(super) fn read_done(&mut self, now: Time, id: u32, status: Status, buffer: Buffer) {
        self.reads[id].buffer = buffer;
        self.leave_chunk(self.reads[id].at);
        self.end_read(now, id, status);
    }

    /// A read is back in a buffer of the target's.
    pub(super) fn bounce_done(&mut self, now: Time, id: u32, status: Status, buffer: Buffer) {
        if is_read(status) {
            let kept = self.kept;
            self.reads[id].buffer.bytes_mut()[..kept].copy_from_slice(&buffer.bytes()[..kept]);
        }
        self.blocks.push(buffer);
        self.leave_chunk(self.reads[id].at);
        self.end_read(now, id, status);
    }

    /// A read of a chunk is over.
    pub(super) fn leave_chunk(&mut self, at: Ppa) {
        self.space.chunks[self.geometry.chunk_index(at)].readers -= 1;
    }

    fn end_read(&mut self, now: Time, id: u32, status: Status) {
        let read = &mut self.reads[id];
        let buffer = std::mem::take(&mut read.buffer);
        let done = BatchDone { id: read.id, op: BatchOp::Read, status, at: now, buffer };
        self.reads.give(id);
        self.counters.reads += 1;
        let is_empty = status == Status::UNWRITTEN;
        self.counters.empty_reads += u64::from(is_empty);
        self.counters.failed_reads += u64::from(!status.is_ok() && !is_empty);
        self.ready.put(|| done);
    }

    /// Takes a flush.
    pub(super) fn take_flush(&mut self, now: Time, id: u64) {
        self.flushes.push_back(Flush { id, upto: self.arrived });
        self.look_flushes(now);
    }

    /// Ends the flushes that wait for no batch any more.
    pub(super) fn look_flushes(&mut self, now: Time) {
        if self.flushes.is_empty() {
            return;
        }
        let users = self.writes[..self.config.batches].iter();
        let open = users.filter(|write| write.stage != Stage::Idle).map(|write| write.arrival);
        let oldest = open.min().unwrap_or(u64::MAX);
        while let Some(&Flush { id, upto }) = self.flushes.front() {
            if oldest < upto {
                return;
            }
            self.flushes.pop_front();
            self.counters.flushes += 1;
            let (op, status) = (BatchOp::Flush, Status::SUCCESS);
            self.ready.put(|| BatchDone { id, op, status, at: now, buffer: Buffer::empty() });
        }
    }
}
