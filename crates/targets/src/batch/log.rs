//! The log: a doubly linked list of rows.
//!
//! A row holds one or more records and, behind them, pages of their batches. It
//! is written at a link that the row before it named, in the order of its vector
//! of FORWARD links; a write that fails is tried at the next link. One row is
//! written at a time, and what comes meanwhile goes into the next one together:
//! so all rows before a durable one are durable.
//!
//! The rows that a recovery from one of the two newest checkpoint records reads
//! are *live*: chunks with such rows are not collected.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorOp};
use flash::{Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Buffer, Status, Time};

use super::config::BatchError;
use super::location::Location;
use super::page::{PAD, log_tag};
use super::record::{Entry, Header, MAX_LINKS, What, store};
use super::slot::Start;
use super::space::{Lane, Use};
use super::write::Stage;
use super::{Batch, Cookie};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A place for the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub at: Ppa,
    /// Its lane.
    pub lane: usize,
}

/// Something that waits for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub write: u32,
    /// Other places for pages that failed, or the first ones.
    pub amends: bool,
}

/// Records of an item in the row being written.
#[derive(Clone, Copy, Debug)]
struct Placed {
    item: Item,
    /// Parts of it in this row.
    from: u16,
    count: u16,
    last: bool,
}

/// A row of the live log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveRow {
    pub row: u64,
    pub at: Ppa,
    /// LSN of the first batch that begins in it or behind it.
    pub first: u64,
}

/// The row being written.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    at: Ppa,
    attempt: usize,
    done: u64,
    first: u64,
    /// Batches that never were, which it says.
    void: Option<(u64, u64)>,
    /// It is programmed and waits for the drive's flush.
    pub programmed: bool,
    syncing: bool,
}

/// The log.
pub(super) struct Log {
    pub lanes: Vec<Lane>,
    /// Where the next row is tried.
    pub links: Vec<Link>,
    /// The same of the row behind that being written.
    next_links: Vec<Link>,
    /// Number of the next row, or of that being written.
    pub row: u64,
    pub prev: Location,
    pub live: VecDeque<LiveRow>,
    pub queue: VecDeque<Item>,
    placed: Vec<Placed>,
    current: Option<Current>,
    /// All batches up to this are known to be installed by the durable log.
    pub durable_done: u64,
    /// A row is wanted for its done note alone.
    pub wants_done: bool,
    /// Batches that never were, to be said in the next row.
    pub void: Option<(u64, u64)>,
    buffer: Option<Buffer>,
    /// No row is written: the next one's places are not durable yet.
    pub held: bool,
    /// Rows written since the target started.
    pub written: u64,
}

impl Log {
    pub fn new(lanes: usize, buffer: Buffer) -> Log {
        Log {
            lanes: vec![Lane::floating(); lanes],
            links: Vec::with_capacity(MAX_LINKS),
            next_links: Vec::with_capacity(MAX_LINKS),
            row: 1,
            prev: Location::NONE,
            live: VecDeque::new(),
            queue: VecDeque::new(),
            placed: Vec::with_capacity(64),
            current: None,
            durable_done: 0,
            wants_done: false,
            void: None,
            buffer: Some(buffer),
            held: false,
            written: 0,
        }
    }

    /// Whether nothing is being written or waits.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty() && !self.wants_done && self.void.is_none()
    }

    /// Whether a row can be begun, and none is wanted for its done note. What is
    /// put down may wait for room.
    pub fn takes_a_row(&self) -> bool {
        self.current.is_none() && !self.wants_done && self.void.is_none()
    }

    /// Whether what is put down waits for room.
    pub fn waits_for_room(&self) -> bool {
        self.current.is_none() && !self.queue.is_empty() && !self.held
    }

    /// Whether the row being written waits for the drive's flush.
    pub fn wants_sync(&self) -> bool {
        self.current.is_some_and(|current| current.programmed && !current.syncing)
    }

    /// The drive's flush that was just sent covers what is programmed.
    pub fn note_sync(&mut self) {
        if let Some(current) = self.current.as_mut() {
            current.syncing = current.programmed;
        }
    }

    /// Whether that flush covered the row.
    pub fn is_synced(&self) -> bool {
        self.current.is_some_and(|current| current.syncing)
    }

    /// The row where a scan starts that needs the batches from `lsn` on.
    pub fn start_for(&self, lsn: u64) -> Option<(usize, Start)> {
        let behind = self.live.partition_point(|row| row.first <= lsn);
        let at = behind.saturating_sub(1);
        let row = self.live.get(at)?;
        Some((at, Start { at: Location::at(row.at, true), row: row.row }))
    }
}

impl<D: OpenChannel> Batch<D> {
    /// Opens chunks for the lanes that have none and gives the links for the
    /// row behind one in lane `after`.
    fn next_links(&mut self, after: usize) {
        let count = self.log.lanes.len();
        self.log.next_links.clear();
        for i in 1..=count {
            let lane = (after + i) % count;
            self.open_log_lane(lane);
            if let Some(at) = self.lane_at(lane) {
                self.log.next_links.push(Link { at, lane });
            }
        }
    }

    fn lane_at(&self, lane: usize) -> Option<Ppa> {
        let Lane { chunk, next, .. } = self.log.lanes[lane];
        Some(Ppa(self.geometry.chunk_start(chunk?).0 + u64::from(next)))
    }

    fn open_log_lane(&mut self, lane: usize) {
        if self.log.lanes[lane].chunk.is_some() {
            return;
        }
        let mut units = [usize::MAX; MAX_LINKS];
        for (unit, other) in units.iter_mut().zip(&self.log.lanes) {
            if let Some(chunk) = other.chunk {
                *unit = self.geometry.pu_index(self.geometry.chunk_start(chunk));
            }
        }
        let chunk = self.space.open(None, &self.wear, &units);
        (self.log.lanes[lane].chunk, self.log.lanes[lane].next) = (chunk, 0);
    }

    /// Makes the links for the first row of a new log.
    pub(super) fn begin_log(&mut self) {
        self.next_links(self.log.lanes.len() - 1);
        std::mem::swap(&mut self.log.links, &mut self.log.next_links);
    }

    /// Begins a row if there is something to write and none is under way. True
    /// if it did.
    pub(super) fn start_row(&mut self, now: Time) -> bool {
        let wanted = !self.log.queue.is_empty() || self.log.wants_done || self.log.void.is_some();
        let can = self.log.current.is_none() && !self.log.held && self.fault.is_none();
        if !wanted || !can {
            return false;
        }
        let first = self.next_lsn;
        let void = self.log.void;
        let mut room = self.geometry.row_blocks() as usize;
        self.log.placed.clear();
        if void.is_some() {
            room -= 1;
        }
        let mut i = 0;
        while room > 0 && i < self.log.queue.len() && self.log.placed.len() < 64 {
            let item = self.log.queue[i];
            if self.writes[item.write as usize].parts_done == 0 && !self.prepare(item) {
                i += 1;
                continue;
            }
            let write = &mut self.writes[item.write as usize];
            let count = (write.parts - write.parts_done).min(room as u16);
            let from = write.parts_done;
            write.parts_done += count;
            room -= count as usize;
            let last = write.parts_done == write.parts;
            self.log.placed.push(Placed { item, from, count, last });
            if last {
                self.log.queue.remove(i);
            }
        }
        if self.log.placed.is_empty() && void.is_none() && !self.log.wants_done {
            return false;
        }
        if self.log.placed.is_empty() && void.is_none() {
            room -= 1;
        }
        if self.log.links.is_empty() {
            self.fail_target(now, BatchError::NoSpace);
            return true;
        }
        if !self.settle_rows(room) {
            self.fail_target(now, BatchError::NoSpace);
            return true;
        }
        self.log.wants_done = false;
        self.log.current = Some(Current { done: self.applied, first, void, ..Current::default() });
        self.send_row();
        true
    }

    /// Decides which pages go into the row itself, behind its records, and
    /// takes rows for the others.
    fn settle_rows(&mut self, mut room: usize) -> bool {
        for i in 0..self.log.placed.len() {
            let Placed { item, from, last, .. } = self.log.placed[i];
            if from > 0 {
                continue;
            }
            let write = &mut self.writes[item.write as usize];
            write.in_row = if last { write.data().min(room) } else { 0 };
            room -= write.in_row;
            if !self.take_rows(item.write) {
                return false;
            }
        }
        true
    }

    /// Sends the row to the link whose turn it is.
    fn send_row(&mut self) {
        let current = self.log.current.expect("a row is under way");
        let link = self.log.links[current.attempt];
        let row_blocks = self.geometry.row_blocks();
        // Its place is taken from here on, whatever becomes of it.
        self.chunk_mut(self.geometry.chunk_index(link.at)).log_rows += 1;
        let lane = &mut self.log.lanes[link.lane];
        lane.next += row_blocks;
        if lane.next == self.geometry.chunk_blocks() {
            let full = lane.chunk.take().expect("it has a chunk");
            self.chunk_mut(full).usage = Use::Closed;
        }
        self.next_links(link.lane);
        self.log.current = Some(Current { at: link.at, ..current });
        let mut buffer = self.log.buffer.take().expect("one row is written at a time");
        self.fill_row(link.at, &mut buffer);
        self.counters.log_rows += 1;
        let count = row_blocks as u8;
        self.send(Cookie::Log, VectorOp::Write, Content::Whole, link.at, count, buffer);
    }

    /// Puts records, pages and padding into the row's buffer.
    fn fill_row(&mut self, at: Ppa, buffer: &mut Buffer) {
        let row_blocks = self.geometry.row_blocks() as usize;
        let (data, tags) = buffer.bytes_mut().split_at_mut(row_blocks * BLOCK);
        let placed = std::mem::take(&mut self.log.placed);
        let current = self.log.current.expect("a row is under way");
        let records: usize = placed.iter().map(|placed| placed.count as usize).sum();
        let alone = usize::from(current.void.is_some() || records == 0);
        let records = records + alone;
        // Where the pages go must be known before the records are written.
        let mut block = records;
        for Placed { item, last, from, .. } in &placed {
            if *last && *from == 0 {
                let write = &self.writes[item.write as usize];
                let pages = write.data() - write.in_row..write.data();
                if current.attempt == 0 {
                    self.count_placed(item.write, pages.clone());
                }
                for n in pages {
                    self.set_new(item.write, n, Location::at(Ppa(at.0 + block as u64), true));
                    let bytes = &mut data[block * BLOCK..][..BLOCK];
                    self.fill_page(
                        item.write,
                        n,
                        bytes,
                        &mut tags[block * TAG_BYTES..][..TAG_BYTES],
                    );
                    block += 1;
                }
            }
        }
        self.counters.in_log += (block - records) as u64;
        for i in block..row_blocks {
            data[i * BLOCK..][..BLOCK].fill(0);
            Tag { id: PAD, seq: 0 }.store(&mut tags[i * TAG_BYTES..]);
        }
        let mut links = [Location::NONE; MAX_LINKS];
        for (to, link) in links.iter_mut().zip(&self.log.next_links) {
            *to = Location::at(link.at, true);
        }
        let (row, back, done) = (self.log.row, self.log.prev, current.done);
        let mut header = Header {
            row,
            back,
            done,
            links,
            records: records as u8,
            parts: 1,
            ..Header::default()
        };
        let mut blocks = data.chunks_exact_mut(BLOCK);
        let mut put = |header: &mut Header, entries: &mut dyn Iterator<Item = Entry>| {
            store(header, entries, blocks.next().expect("the records were counted"));
            log_tag(row).store(&mut tags[header.index as usize * TAG_BYTES..]);
            header.index += 1;
        };
        if let Some((from, to)) = current.void {
            (header.what, header.lsn, header.count) = (What::Void, to, 1);
            put(&mut header, &mut std::iter::once(Entry { id: from, ..Entry::default() }));
        } else if alone > 0 {
            header.what = What::Done;
            put(&mut header, &mut std::iter::empty());
        }
        for Placed { item, from, count, .. } in &placed {
            let write = &self.writes[item.write as usize];
            header.what = if item.amends { What::Amend } else { write.what() };
            (header.lsn, header.parts) = (write.lsn, write.parts);
            let each = header.what.capacity();
            for part in *from..from + count {
                let list = write.list.chunks(each).nth(part as usize).expect("parts were counted");
                (header.part, header.count) = (part, list.len() as u16);
                let entry = |&n: &u16| {
                    let entry = write.entries[n as usize];
                    let prior = if item.amends { write.was[n as usize] } else { entry.prior };
                    Entry { prior, ..entry }
                };
                put(&mut header, &mut list.iter().map(entry));
            }
        }
        self.log.placed = placed;
    }

    /// The row's program is over.
    pub(super) fn row_done(&mut self, now: Time, status: Status, buffer: Buffer) {
        self.log.buffer = Some(buffer);
        if status.is_ok() {
            self.log.current.as_mut().expect("a row was under way").programmed = true;
            if !self.cached {
                self.row_durable();
            }
            return;
        }
        let current = self.log.current.as_mut().expect("a row was under way");
        current.attempt += 1;
        let (at, attempt) = (current.at, current.attempt);
        self.counters.failed_programs += 1;
        let chunk = self.geometry.chunk_index(at);
        self.chunk_mut(chunk).log_rows -= 1;
        self.fail_log_chunk(chunk);
        if self.fault.is_some() {
            self.log.current = None;
            return;
        }
        if attempt < self.log.links.len() {
            self.send_row();
            return;
        }
        let (row, tried) = (self.log.row, attempt);
        self.log.current = None;
        self.fail_target(now, BatchError::LogExhausted { row, tried });
    }

    fn fail_log_chunk(&mut self, chunk: usize) {
        for lane in &mut self.log.lanes {
            lane.chunk.take_if(|open| *open == chunk);
        }
        self.fail_chunk(chunk);
    }

    /// The row is durable: its batches' pages may be written.
    pub(super) fn row_durable(&mut self) {
        let current = self.log.current.take().expect("a row was under way");
        self.log.written += 1;
        self.log.live.push_back(LiveRow {
            row: self.log.row,
            at: current.at,
            first: current.first,
        });
        self.log.row += 1;
        self.log.prev = Location::at(current.at, true);
        std::mem::swap(&mut self.log.links, &mut self.log.next_links);
        self.log.durable_done = current.done;
        if current.void.is_some() {
            self.log.void = None;
        }
        let placed = std::mem::take(&mut self.log.placed);
        for Placed { item, last, .. } in &placed {
            if *last {
                self.record_durable(item.write);
            }
        }
        self.log.placed = placed;
    }

    /// Lets the rows before the live log's row `at` go.
    pub(super) fn truncate_log(&mut self, start: Start) {
        while self.log.live.front().is_some_and(|row| row.row < start.row) {
            let row = self.log.live.pop_front().expect("it was looked at");
            self.chunk_mut(self.geometry.chunk_index(row.at)).log_rows -= 1;
        }
    }

    /// Something went wrong for good: no more is written. What was acknowledged
    /// stays, what is on its way and needs the log no more goes on; all else
    /// fails.
    #[cold]
    pub(super) fn fail_target(&mut self, now: Time, error: BatchError) {
        // What was programmed and not made durable never will be.
        let no_sync = matches!(error, BatchError::Flush(_));
        self.fault.get_or_insert(error);
        // The row on its way, if there is one, may still become durable: then it
        // is the row of batches that failed.
        self.log.placed.clear();
        self.log.queue.clear();
        self.log.void = None;
        self.log.wants_done = false;
        // In the order of the log all that can still be installed is before the
        // first that cannot.
        let mut lost = false;
        for i in 0..self.order.len() {
            let id = self.order[i];
            let stage = self.writes[id as usize].stage;
            lost |= match stage {
                Stage::Synced => false,
                Stage::Writing | Stage::Written => no_sync,
                _ => true,
            };
            if lost {
                self.give_up(now, id, Status::WRITE_FAULT);
            }
        }
        let writes = &self.writes;
        self.order.retain(|&id| writes[id as usize].stage != Stage::Idle);
        for id in 0..self.writes.len() as u32 {
            if matches!(self.writes[id as usize].stage, Stage::Gather | Stage::Queued) {
                self.give_up(now, id, Status::WRITE_FAULT);
            }
        }
        self.arrivals.clear();
        self.short_of_room = false;
    }
}
