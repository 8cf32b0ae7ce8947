//! Checkpoints: fuzzy, incremental, and through the same log.
//!
//! A checkpoint begins at a moment T0, the LSN that is installed then. All pages
//! of tables that are ahead of flash by batches up to T0 are written like data,
//! as they are at their turn, while the drive serves. When they are installed no
//! page needs the log up to T0 any more, and the record says so: the redo scan
//! starts (RSSP) at the first batch that some page still needs. Pages that did
//! not change stay where they are.
//!
//! The log is kept from the RSSP of the record before on, so that recovery can
//! go back to that one if the newest is damaged. What the older one's tables lead
//! to may be erased by then; the log says where it went.

use device::{Content, OpenChannel, VectorOp};
use flash::{Ppa, TAG_BYTES};
use port::{BLOCK_BYTES, Buffer, Status, Time};

use super::config::BatchError;
use super::mutation::{Mutation, is};
use super::page::{Kind, Page, slot_tag};
use super::slot::{Checkpoint as Record, Detour, Slots, Start, Turn};
use super::write::Stage;
use super::writes::Gathered;
use super::{Batch, Cookie};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Pages of a batch of tables' pages: what a record holds.
pub(super) const PAGES_AT_ONCE: usize = 165;

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// None is under way.
    #[default]
    Idle,
    /// Pages are being written: the next table and the next page there.
    Pages(Kind, usize),
    /// All are on their way.
    Settling,
    /// A chunk of a slot is being erased.
    Erasing(usize),
    /// The record is being written, from this block of it on.
    Record(usize, u32),
    /// It is made durable.
    Syncing(usize),
}

/// Checkpoints.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    phase: Phase,
    /// Pages ahead by batches up to this are written.
    t0: u64,
    /// One is wanted.
    pub asked: bool,
    /// None begins: a start is at work, and its record would take all that was
    /// found for done, before the log says which batches never were.
    pub held: bool,
    /// When the last one began, and how many rows of log there were.
    pub began: Time,
    pub rows: u64,
    /// LSN of the last T0.
    last: u64,
    /// Number of the newest record, and where its scan starts.
    pub number: u64,
    pub start: Start,
    /// Detours of the log that is kept.
    pub detours: Vec<Detour>,
    /// The record being written.
    pub record: Record,
    bytes: Vec<u8>,
    pub syncing: bool,
}

impl Checkpoint {
    pub fn new(bytes: usize) -> Checkpoint {
        Checkpoint { bytes: vec![0; bytes], ..Checkpoint::default() }
    }

    /// Whether one is under way or asked for.
    pub fn is_at_work(&self) -> bool {
        self.phase != Phase::Idle || self.asked
    }

    /// Whether the record waits for the drive's flush.
    pub fn wants_sync(&self) -> bool {
        matches!(self.phase, Phase::Syncing(_)) && !self.syncing
    }
}

fn next_kind(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Map => Some(Kind::Garbage),
        Kind::Garbage => Some(Kind::Wear),
        Kind::Wear => Some(Kind::MapS),
        Kind::MapS => Some(Kind::GarbageS),
        Kind::GarbageS => None,
    }
}

impl<D: OpenChannel> Batch<D> {
    /// Begins a checkpoint if it is time, and goes on with one. True if
    /// anything happened.
    pub(super) fn checkpoint(&mut self, now: Time) -> bool {
        match self.checkpoint.phase {
            Phase::Idle => self.begin_checkpoint(now),
            Phase::Pages(kind, from) => self.write_pages(kind, from),
            Phase::Settling => self.settle(now),
            Phase::Erasing(_) | Phase::Record(..) | Phase::Syncing(_) => false,
        }
    }

    fn begin_checkpoint(&mut self, now: Time) -> bool {
        if self.checkpoint.held {
            return false;
        }
        let every = self.config.checkpoint_every;
        let rows = self.log.written - self.checkpoint.rows;
        let due = rows >= self.config.log_rows
            || (every > 0
                && now.since(self.checkpoint.began) >= every
                && self.applied > self.checkpoint.last);
        if !due && !self.checkpoint.asked {
            return false;
        }
        self.checkpoint.asked = false;
        (self.checkpoint.began, self.checkpoint.rows) = (now, self.log.written);
        (self.checkpoint.t0, self.checkpoint.last) = (self.applied, self.applied);
        self.checkpoint.phase = Phase::Pages(Kind::Map, 0);
        self.counters.checkpoints += 1;
        true
    }

    /// The next page of a table that is due.
    fn due(&mut self, kind: Kind, from: usize, lsn: u64) -> Option<(usize, u64)> {
        let page = match kind {
            Kind::Map => {
                let slot = self.map.due(from, lsn)?;
                return Some((slot, u64::from(self.map.slot(slot as u32).page)));
            }
            Kind::Garbage => self.garbage.small.due(from, lsn)?,
            Kind::Wear => self.wear.due(from)?,
            Kind::MapS => self.map.tiny.due(from, lsn)?,
            Kind::GarbageS => self.garbage.tiny.due(from, lsn)?,
        };
        Some((page, page as u64))
    }

    /// An idle batch for tables' pages.
    fn idle_pages(&self) -> Option<u32> {
        let own = |id: &u32| {
            let write = &self.writes[*id as usize];
            write.stage == Stage::Idle && write.owner.is_none()
        };
        (self.config.batches as u32..self.writes.len() as u32).find(own)
    }

    /// Puts pages down to be written, a batch at a time.
    fn write_pages(&mut self, mut kind: Kind, mut from: usize) -> bool {
        let Some(id) = self.idle_pages() else { return false };
        let t0 = self.checkpoint.t0;
        self.writes[id as usize].clear();
        let phase = loop {
            if self.writes[id as usize].entries.len() == PAGES_AT_ONCE {
                break Phase::Pages(kind, from);
            }
            if let Some((at, number)) = self.due(kind, from, t0) {
                self.write_page(id, Page { kind, number });
                from = at + 1;
                continue;
            }
            match next_kind(kind) {
                Some(next) => (kind, from) = (next, 0),
                None => break Phase::Settling,
            }
        };
        self.checkpoint.phase = phase;
        self.send_pages(id);
        true
    }

    /// One page more in a batch of tables' pages. Of MAP, it is in memory.
    fn write_page(&mut self, id: u32, page: Page) {
        self.set_page_busy(page, true);
        self.writes[id as usize].add(page.name(), 0, super::location::Location::NONE, 0);
    }

    fn send_pages(&mut self, id: u32) {
        if self.writes[id as usize].entries.is_empty() {
            return;
        }
        let gathered = self.gather(id);
        assert_eq!(gathered, Gathered::All, "its pages are in memory");
        self.writes[id as usize].stage = Stage::Queued;
        self.queue(id);
    }

    /// Writes changed pages of MAP so that their slots can be taken. True if a
    /// batch of them was put down.
    pub(super) fn clean(&mut self) -> bool {
        let slots = self.map.slots();
        let many = slots < self.map.pages() && self.map.dirty > slots / 2;
        if !many && !std::mem::take(&mut self.short_of_slots) {
            return false;
        }
        let Some(id) = self.idle_pages() else { return false };
        self.writes[id as usize].clear();
        let mut from = self.clean_hand;
        for _ in 0..PAGES_AT_ONCE {
            let Some(slot) = self.map.due(from, u64::MAX - 1) else {
                from = 0;
                break;
            };
            let number = u64::from(self.map.slot(slot as u32).page);
            self.write_page(id, Page { kind: Kind::Map, number });
            from = slot + 1;
        }
        self.clean_hand = from;
        let any = !self.writes[id as usize].entries.is_empty();
        self.send_pages(id);
        any
    }

    /// The first LSN that some page needs the log for.
    fn oldest(&mut self) -> u64 {
        let tables = [&mut self.garbage.small, &mut self.garbage.tiny, &mut self.map.tiny];
        let oldest = tables.into_iter().map(super::paged::Paged::oldest).min().unwrap_or(u64::MAX);
        oldest.min(self.map.oldest()).min(self.applied + 1)
    }

    /// When all pages are installed, begins the record.
    fn settle(&mut self, now: Time) -> bool {
        if self.oldest() <= self.checkpoint.t0 {
            // Some are on their way; if none is, they were not written.
            let on_way = self.is_under_way();
            if !on_way {
                self.checkpoint.phase = Phase::Pages(Kind::Map, 0);
            }
            return !on_way;
        }
        self.make_record(now);
        true
    }

    fn make_record(&mut self, now: Time) {
        let first = if is(Mutation::ForgetLog) { self.applied + 1 } else { self.oldest() };
        let (_, start) = self.log.start_for(first).expect("the log has a row");
        let checkpoint = &mut self.checkpoint;
        let record = &mut checkpoint.record;
        record.number = checkpoint.number + 1;
        record.pages = self.config.pages;
        (record.lsn, record.first) = (self.applied, first);
        (record.before, record.start) = (checkpoint.start, start);
        let fill = |to: &mut Vec<super::location::Location>, from: &[_]| {
            to.clear();
            to.extend_from_slice(from);
        };
        fill(&mut record.map_t, self.map.tiny.places());
        fill(&mut record.garbage_t, self.garbage.tiny.places());
        fill(&mut record.wear_s, self.wear.small.places());
        let kept = record.before.row.min(record.start.row);
        checkpoint.detours.retain(|detour| detour.row >= kept);
        record.detours.clear();
        record.detours.extend_from_slice(&checkpoint.detours);
        self.write_record(now);
    }

    /// Writes the record that was made.
    pub(super) fn write_record(&mut self, now: Time) {
        let checkpoint = &mut self.checkpoint;
        checkpoint.record.store(&self.geometry, &mut checkpoint.bytes);
        self.take_turn(now);
    }

    /// Finds the place for the record.
    fn take_turn(&mut self, now: Time) {
        match self.slots.turn(self.checkpoint.number + 1) {
            Some(Turn::Write(i)) => {
                self.checkpoint.phase = Phase::Record(i, 0);
                self.send_record(i, 0);
            }
            Some(Turn::Erase(i)) => {
                self.checkpoint.phase = Phase::Erasing(i);
                let chunk = self.slots.chunks[i].chunk;
                let at = self.geometry.chunk_start(chunk);
                let (op, content) = (VectorOp::Reset, Content::Data);
                self.send(Cookie::SlotErase, op, content, at, 1, Buffer::empty());
            }
            None => {
                self.checkpoint.phase = Phase::Idle;
                self.fail_target(now, BatchError::SlotsExhausted);
            }
        }
    }

    /// A chunk of a slot was erased.
    pub(super) fn slot_erased(&mut self, now: Time, status: Status) {
        let Phase::Erasing(i) = self.checkpoint.phase else { return };
        let held = &mut self.slots.chunks[i];
        (held.next, held.newest) = (0, 0);
        held.usable = status.is_ok();
        self.take_turn(now);
    }

    /// Writes a row of the record.
    fn send_record(&mut self, i: usize, block: u32) {
        let row = self.geometry.row_blocks() as usize;
        let at = Ppa(self.slots.at(&self.geometry, i).0 + u64::from(block));
        let mut buffer = self.slot_row.take().expect("one row is written at a time");
        let (data, tags) = buffer.bytes_mut().split_at_mut(row * BLOCK);
        data.copy_from_slice(&self.checkpoint.bytes[block as usize * BLOCK..][..row * BLOCK]);
        for (n, tag) in tags.chunks_exact_mut(TAG_BYTES).enumerate() {
            slot_tag(self.checkpoint.number + 1, u64::from(block) + n as u64).store(tag);
        }
        let (op, content) = (VectorOp::Write, Content::Whole);
        self.send(Cookie::SlotRow, op, content, at, row as u8, buffer);
    }

    /// A row of the record is over.
    pub(super) fn record_row_done(&mut self, now: Time, status: Status, buffer: Buffer) {
        self.slot_row = Some(buffer);
        let Phase::Record(i, block) = self.checkpoint.phase else { return };
        if !status.is_ok() {
            self.counters.failed_programs += 1;
            self.slots.chunks[i].usable = false;
            self.take_turn(now);
            return;
        }
        let next = block + self.geometry.row_blocks();
        if next < self.slots.record_blocks {
            self.checkpoint.phase = Phase::Record(i, next);
            self.send_record(i, next);
            return;
        }
        self.checkpoint.phase = Phase::Syncing(i);
        if !self.cached {
            self.record_durable_at_slot();
        }
    }

    /// The record is durable: the log before that of the older record can go.
    pub(super) fn record_durable_at_slot(&mut self) {
        let Phase::Syncing(i) = self.checkpoint.phase else { return };
        let checkpoint = &mut self.checkpoint;
        checkpoint.number += 1;
        let held = &mut self.slots.chunks[i];
        held.next += self.slots.record_blocks;
        held.newest = checkpoint.number;
        let before = std::mem::replace(&mut checkpoint.start, checkpoint.record.start);
        (checkpoint.phase, checkpoint.syncing) = (Phase::Idle, false);
        self.changes += 1;
        self.truncate_log(before);
    }
}

/// Bytes of a record, whole rows.
pub(super) fn record_bytes(slots: &Slots) -> usize {
    slots.record_blocks as usize * BLOCK
}
