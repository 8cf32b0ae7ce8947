//! The store that updates pages in place, over the block interface.
//!
//! Each page has its own block. A batch is first written to a journal, as one
//! record: a header that lists the pages, and the pages. When a flush has made
//! the record durable, and another the root that says so, the pages are written
//! to their blocks; when that is done the batch is. Guarantees are those of
//! [`PageStore`]. Why they hold:
//! - The journal has slots in a ring; record n is in slot n modulo their
//!   number. Records have numbers without gaps.
//! - The root names the *tail*: all records before it are durable in their
//!   blocks. A slot is used again only when a durable root says so.
//! - The root says up to which record all were *durable* in the journal. No
//!   page of a record is written to its block before a durable root says that
//!   of the record. So one that is not whole was damaged if the root says that
//!   it was durable: opening fails, and changes nothing. If the root does not,
//!   a crash may have cut it short; then no page of it or of a later one is in
//!   its block, and no batch behind it was completed: it counts as never
//!   written, and so do those behind it.
//! - Roots are in two blocks in turn. A crash leaves a block as it was or as it
//!   was to be, so both are whole, and the newer holds. One that is not was
//!   damaged: opening fails, as the older one alone would take older pages for
//!   those that hold.
//! - Opening looks at all records from the tail on first, up to the one that
//!   does not count. It makes the root say of all of them that they are durable;
//!   then it writes their pages once more, in order: blocks that were being
//!   written become whole. Cut at any moment it finds the same records again.
//! - Opening ends with a root of a new *epoch*, and takes only records of its
//!   root's epoch, so none that a crash left behind is taken later.

mod format;
mod open;

use std::collections::VecDeque;

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring, Shape, Time};
use xxhash_rust::xxh3::Xxh3;

use self::format::{Header, Root};
use super::awaited::Awaited;
use super::beside::{Beside, Writing};
use super::blocks::{Blocks, buffer};
use super::{
    Lap, PageStore, StoreDone, StoreError, Ticks, check_beside, check_seal, no_clock, seal,
};
use crate::page::PAGE_BYTES;

/// Slots of the journal.
const SLOTS: u64 = 16;

/// Pages of a batch that are written to their blocks at once.
const WIDTH: usize = 32;

/// How a store in place is kept.
#[derive(Clone, Copy, Debug)]
pub struct InPlaceConfig {
    /// Most pages of a batch, 32 to 256.
    pub max_batch: u32,
    /// Blocks of the drive's end that a new store leaves to a redo log, 16 to half of
    /// them; 0 for none. Opening goes by what the store has.
    pub redo: u64,
    /// Measures where time goes.
    pub clock: fn() -> u64,
}

impl Default for InPlaceConfig {
    /// Batches of 255 pages, no redo log, nothing measured.
    fn default() -> InPlaceConfig {
        InPlaceConfig { max_batch: 255, redo: 0, clock: no_clock }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Task {
    #[default]
    Opening,
    Page(u64),
    Record(u64),
    /// A page of a record goes to its block.
    Home(u64),
    Root,
    Flush,
    /// A block beside the pages.
    ReadBeside(u64),
    WriteBeside(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Being written to the journal.
    Journal,
    /// In the journal, perhaps not durable.
    Written,
    /// Durable there; no durable root says so yet.
    Durable,
    /// One does; pages are being written to their blocks.
    Home,
    /// Written to their blocks, perhaps not durable.
    Done,
}

/// A batch, until its pages are durable in their blocks.
struct Record {
    seq: u64,
    id: u32,
    phase: Phase,
    /// Flushes that had begun when it came to this phase: later ones cover it.
    since: u64,
    buffer: Buffer,
    /// The pages, each with its place in the record, in the order of blocks.
    order: Vec<(u64, u16)>,
    begun: usize,
    ended: usize,
}

/// Pages in their places on a block drive.
pub struct InPlaceStore<D> {
    blocks: Blocks<D, Task>,
    config: InPlaceConfig,
    layout: Layout,
    beside: Writing,
    records: VecDeque<Record>,
    next: u64,
    epoch: u64,
    /// The number of the root, and what the durable root says: the tail, and
    /// the first record that it does not call durable.
    root: u64,
    tail: u64,
    durable: u64,
    /// The root that is on its way, and the flushes begun when it was written.
    rooting: Option<(Root, Option<u64>)>,
    root_buffer: Option<Buffer>,
    spare: Vec<Buffer>,
    /// Room for pages on the way to their blocks.
    bounce: Vec<Buffer>,
    orders: Vec<Vec<(u64, u16)>>,
    /// Flushes of the drive that were begun, and whether one is under way.
    flushes: u64,
    flushing: bool,
    /// The tree's flushes: those for the drive's next, and for the one under
    /// way.
    asked: VecDeque<u32>,
    answering: VecDeque<u32>,
    out: VecDeque<StoreDone>,
    failed: Option<StoreError>,
    ticks: Ticks,
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    max_batch: u32,
    first: u64,
    pages: u64,
    blocks: u64,
    beside: Beside,
}

/// The least pages of a store.
const LEAST_PAGES: u64 = 64;

impl InPlaceConfig {
    /// The smallest drive that such a store fits, in bytes.
    pub fn least_bytes(&self) -> u64 {
        (Layout::first(self.max_batch) + LEAST_PAGES + self.redo) * BLOCK_BYTES
    }
}

impl Layout {
    /// The first block of pages, behind the journal.
    fn first(max_batch: u32) -> u64 {
        (2 + SLOTS * (u64::from(max_batch) + 1)).next_multiple_of(64)
    }

    fn of(shape: &Shape, config: &InPlaceConfig, redo: u64) -> Result<Layout, StoreError> {
        let batch = config.max_batch;
        if !(32..=256).contains(&batch) {
            let (what, range) = ("pages of a batch", "32 to 256");
            return Err(StoreError::Shape { what, value: batch.into(), range });
        }
        let beside = Beside::of(shape.bytes / BLOCK_BYTES, redo)?;
        let blocks = beside.first;
        let first = Layout::first(batch);
        let pages = blocks.saturating_sub(first);
        if pages < LEAST_PAGES {
            let (what, range) = ("blocks of the drive", "64 more than the journal takes");
            return Err(StoreError::Shape { what, value: blocks, range });
        }
        Ok(Layout { max_batch: batch, first, pages, blocks, beside })
    }

    fn slot(&self, seq: u64) -> u64 {
        2 + seq % SLOTS * (u64::from(self.max_batch) + 1)
    }
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> InPlaceStore<D> {
    /// The drive, before anything is known of it.
    fn blocks(
        drive: D,
        shape: Shape,
        config: &InPlaceConfig,
    ) -> Result<Blocks<D, Task>, StoreError> {
        Layout::of(&shape, config, 0)?;
        Blocks::new(drive, shape, u64::from(config.max_batch) + 1)
    }

    /// A store that has `redo` blocks beside it.
    fn empty(
        blocks: Blocks<D, Task>,
        shape: Shape,
        config: InPlaceConfig,
        redo: u64,
    ) -> Result<InPlaceStore<D>, StoreError> {
        let layout = Layout::of(&shape, &config, redo)?;
        let slot = u64::from(layout.max_batch) + 1;
        let most = layout.max_batch.into();
        let buffers =
            |count, bytes| (0..count).map(|_| buffer(bytes)).collect::<Result<Vec<_>, _>>();
        Ok(InPlaceStore {
            blocks,
            config,
            layout,
            beside: Writing::new(redo.min(most) as usize)?,
            records: VecDeque::with_capacity(SLOTS as usize),
            next: 1,
            epoch: 0,
            root: 0,
            tail: 1,
            durable: 1,
            rooting: None,
            root_buffer: Some(buffer(PAGE_BYTES)?),
            spare: buffers(SLOTS as usize / 2, slot as usize * PAGE_BYTES)?,
            bounce: buffers(WIDTH, PAGE_BYTES)?,
            orders: (0..SLOTS).map(|_| Vec::with_capacity(slot as usize)).collect(),
            flushes: 0,
            flushing: false,
            asked: VecDeque::new(),
            answering: VecDeque::new(),
            out: VecDeque::with_capacity(shape.depth),
            failed: None,
            ticks: Ticks::default(),
        })
    }

    /// The drive.
    pub fn drive_mut(&mut self) -> &mut D {
        self.blocks.drive_mut()
    }

    /// The drive again.
    pub fn into_drive(self) -> D {
        self.blocks.into_drive()
    }

    fn root_of(&self, tail: u64, durable: u64) -> Root {
        Root {
            max_batch: self.layout.max_batch,
            number: self.root,
            epoch: self.epoch,
            tail,
            blocks: self.layout.blocks,
            durable,
            beside: self.layout.beside.blocks,
        }
    }

    fn finish(&mut self, task: Task, result: Result<(), StoreError>, buffer: Buffer) {
        if let Err(error) = result
            && !matches!(task, Task::Page(_) | Task::ReadBeside(_))
        {
            self.failed.get_or_insert(error);
        }
        match task {
            Task::Opening => unreachable!("opening waits for what it asks"),
            Task::Page(page) => {
                let start = (self.config.clock)();
                let result = result.and_then(|()| {
                    check_seal(page, buffer.bytes()).map(|_| ()).ok_or(StoreError::Damaged { page })
                });
                self.ticks.reading += (self.config.clock)() - start;
                self.out.push_back(StoreDone::Read { page, buffer, result });
            }
            Task::Record(seq) => {
                let since = self.flushes;
                let record = self.record(seq);
                let rest = std::mem::replace(&mut record.buffer, buffer);
                let joined = record.buffer.join(rest);
                assert!(joined.is_ok(), "they adjoin");
                (record.phase, record.since) = (Phase::Written, since);
            }
            Task::Home(seq) => {
                self.bounce.push(buffer);
                let since = self.flushes;
                let record = self.record(seq);
                record.ended += 1;
                if record.ended == record.order.len() {
                    (record.phase, record.since) = (Phase::Done, since);
                    let id = record.id;
                    let result = self.failed.map_or(Ok(()), Err);
                    self.out.push_back(StoreDone::Write { id, result });
                }
            }
            Task::Root => {
                self.root_buffer = Some(buffer);
                if let Some((_, written)) = &mut self.rooting {
                    *written = Some(self.flushes);
                }
            }
            Task::Flush => self.flushed(),
            Task::ReadBeside(page) => {
                let result = result.and_then(|()| check_beside(page, buffer.bytes()));
                self.out.push_back(StoreDone::Read { page, buffer, result });
            }
            Task::WriteBeside(part) => {
                if let Some(id) = self.beside.end(part, buffer) {
                    let result = self.failed.map_or(Ok(()), Err);
                    self.out.push_back(StoreDone::Write { id, result });
                }
            }
        }
    }

    fn record(&mut self, seq: u64) -> &mut Record {
        let first = self.records.front().expect("it is on its way").seq;
        &mut self.records[(seq - first) as usize]
    }

    /// A flush of the drive has completed: what was written before it began is
    /// durable.
    fn flushed(&mut self) {
        self.flushing = false;
        let before = self.flushes;
        while let Some(id) = self.answering.pop_front() {
            let result = self.failed.map_or(Ok(()), Err);
            self.out.push_back(StoreDone::Flush { id, result });
        }
        if self.failed.is_some() {
            return;
        }
        if let Some((root, Some(since))) = self.rooting
            && since < before
        {
            (self.tail, self.durable) = (root.tail, root.durable);
            self.rooting = None;
        }
        // In order: a record is durable when all before it are.
        for record in &mut self.records {
            match record.phase {
                Phase::Journal => break,
                Phase::Written if record.since < before => record.phase = Phase::Durable,
                Phase::Written => break,
                Phase::Durable if record.seq < self.durable => record.phase = Phase::Home,
                Phase::Durable | Phase::Home | Phase::Done => {}
            }
        }
        while let Some(record) = self.records.front()
            && record.phase == Phase::Done
            && record.since < before
        {
            let record = self.records.pop_front().expect("it is there");
            self.spare.push(record.buffer);
            self.orders.push(record.order);
        }
    }

    /// Writes pages to their blocks and roots, and flushes.
    /// False when there was nothing to do.
    fn work(&mut self) -> bool {
        let before = self.blocks.room();
        if self.failed.is_some() {
            self.give_up();
        } else {
            self.write_home();
            self.write_root();
        }
        // A record behind one that is still being written gains nothing yet.
        let mut phases = self.records.iter().map(|record| record.phase);
        let next = phases.find(|phase| matches!(phase, Phase::Journal | Phase::Written));
        let done = self.records.front().is_some_and(|record| record.phase == Phase::Done);
        // Slots of batches that are done are wanted when half are in use.
        let written = next == Some(Phase::Written)
            || matches!(self.rooting, Some((_, Some(_))))
            || (self.records.len() as u64 >= SLOTS / 2 && done);
        let wanted = (written && self.failed.is_none()) || !self.asked.is_empty();
        if wanted && !self.flushing && self.blocks.room() > 4 {
            self.flushes += 1;
            self.flushing = true;
            self.answering.append(&mut self.asked);
            self.blocks.command(BlockOp::Flush, 0, 0, Task::Flush);
        }
        self.blocks.room() < before
    }

    /// After a failure: batches that are not under way end.
    fn give_up(&mut self) {
        let error = self.failed.unwrap_or(StoreError::Stopped);
        for record in &mut self.records {
            let idle = matches!(record.phase, Phase::Written | Phase::Durable)
                || (record.phase == Phase::Home && record.begun == record.ended);
            if idle {
                record.phase = Phase::Done;
                self.out.push_back(StoreDone::Write { id: record.id, result: Err(error) });
            }
        }
    }

    fn write_home(&mut self) {
        for record in self.records.iter_mut().filter(|record| record.phase == Phase::Home) {
            while record.begun < record.order.len() && self.blocks.room() > 8 {
                let Some(mut bounce) = self.bounce.pop() else { return };
                let (page, at) = record.order[record.begun];
                let from = (usize::from(at) + 1) * PAGE_BYTES;
                bounce.bytes_mut().copy_from_slice(&record.buffer.bytes()[from..from + PAGE_BYTES]);
                let block = self.layout.first + page;
                self.blocks.transfer(BlockOp::Write, block, bounce, Task::Home(record.seq));
                record.begun += 1;
            }
            // The next record may have the same pages: it comes after.
            if record.ended < record.order.len() {
                return;
            }
        }
    }

    /// Writes a root, when more records are durable than the last one says, or
    /// enough slots are free but for it.
    fn write_root(&mut self) {
        let tail = self.records.front().map_or(self.next, |record| record.seq);
        let waits = |record: &&Record| matches!(record.phase, Phase::Journal | Phase::Written);
        let durable = self.records.iter().find(waits).map_or(self.next, |record| record.seq);
        let wanted = durable > self.durable || tail >= self.tail + SLOTS / 4;
        if !wanted || self.rooting.is_some() || self.blocks.room() <= 4 {
            return;
        }
        let Some(mut block) = self.root_buffer.take() else { return };
        self.root += 1;
        let root = self.root_of(tail, durable);
        root.write(block.bytes_mut());
        self.rooting = Some((root, None));
        self.blocks.transfer(BlockOp::Write, self.root & 1, block, Task::Root);
    }
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> PageStore for InPlaceStore<D> {
    fn pages(&self) -> u64 {
        self.layout.pages
    }

    fn max_batch(&self) -> usize {
        self.layout.max_batch as usize
    }

    fn can_read(&self) -> bool {
        self.blocks.has_read_room()
    }

    fn read(&mut self, page: u64, buffer: Buffer) -> Result<(), Buffer> {
        if !self.can_read() {
            return Err(buffer);
        }
        if page < self.layout.pages && self.next == 1 {
            // There never was a record. A page that was lost is none of those.
            let result = Err(StoreError::Unwritten { page });
            self.out.push_back(StoreDone::Read { page, buffer, result });
            return Ok(());
        }
        let (block, task) = match page.checked_sub(self.layout.pages) {
            None => (self.layout.first + page, Task::Page(page)),
            Some(at) => (self.layout.beside.first + at, Task::ReadBeside(page)),
        };
        self.blocks.transfer(BlockOp::Read, block, buffer, task);
        Ok(())
    }

    fn can_write(&self) -> bool {
        let slot = self.next < self.tail + SLOTS;
        self.failed.is_some() || (slot && !self.spare.is_empty() && self.blocks.room() > 4)
    }

    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
        assert!((1..=self.max_batch()).contains(&pages.len()), "a batch of {}", pages.len());
        if let Some(error) = self.failed {
            self.out.push_back(StoreDone::Write { id, result: Err(error) });
            return;
        }
        let start = (self.config.clock)();
        let mut buffer = self.spare.pop().expect("the caller saw room");
        let mut seals = Xxh3::new();
        let bodies = buffer.bytes_mut()[PAGE_BYTES..].chunks_exact_mut(PAGE_BYTES);
        for (i, (body, &page)) in bodies.zip(pages).enumerate() {
            copy(i, body);
            seals.update(&seal(page, body).to_le_bytes());
        }
        let seq = self.next;
        self.next += 1;
        let header =
            Header { count: pages.len() as u32, seq, epoch: self.epoch, seals: seals.digest() };
        header.write(pages, buffer.bytes_mut());
        let mut order = self.orders.pop().expect("as many as records");
        order.clear();
        order.extend(pages.iter().zip(0..).map(|(&page, i)| (page, i)));
        order.sort_unstable();
        let front = buffer.split_to((pages.len() + 1) * PAGE_BYTES);
        self.blocks.transfer(BlockOp::Write, self.layout.slot(seq), front, Task::Record(seq));
        let phase = Phase::Journal;
        let record = Record { seq, id, phase, since: 0, buffer, order, begun: 0, ended: 0 };
        self.records.push_back(record);
        self.ticks.writing += (self.config.clock)() - start;
    }

    fn flush(&mut self, id: u32) -> bool {
        self.asked.push_back(id);
        true
    }

    fn beside(&self) -> Beside {
        self.layout.beside
    }

    fn can_write_beside(&self) -> bool {
        self.beside.is_free() && self.blocks.room() > 4
    }

    fn write_beside(
        &mut self,
        id: u32,
        at: u64,
        count: usize,
        copy: &mut dyn FnMut(usize, &mut [u8]),
    ) {
        if let Some(error) = self.failed {
            return self.out.push_back(StoreDone::Write { id, result: Err(error) });
        }
        let InPlaceStore { layout, beside, blocks, .. } = self;
        let Beside { first, blocks: all } = layout.beside;
        beside.begin((id, layout.pages), (at, count, all), copy, |part, at, buffer| {
            blocks.write_durably(first + at, buffer, Task::WriteBeside(part));
        });
    }

    fn poll(&mut self, now: Time, done: &mut Ring<StoreDone>) {
        let mut lap = Lap::start(self.config.clock);
        let completed = self.blocks.advance(now);
        lap.end(completed, &mut self.ticks.submission);
        while let Some(finished) = self.blocks.pop() {
            let result = StoreError::drive(finished.tag.what(), finished.status);
            self.finish(finished.tag, result, finished.buffer);
        }
        // What completions took was counted where it was long.
        lap.end(completed, &mut 0);
        let worked = self.work();
        lap.end(worked, &mut self.ticks.writing);
        let submitted = self.blocks.submit();
        lap.end(submitted, &mut self.ticks.submission);
        while done.room() > 0
            && let Some(one) = self.out.pop_front()
        {
            done.put(|| one);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let asked = !self.asked.is_empty() && !self.flushing;
        if !self.out.is_empty() || asked {
            return Some(self.blocks.now());
        }
        self.blocks.next_event()
    }

    fn wait(&mut self) -> Option<Time> {
        let asked = !self.asked.is_empty() && !self.flushing;
        if !self.out.is_empty() || asked {
            return Some(self.blocks.now());
        }
        self.blocks.wait()
    }

    fn memory(&self) -> u64 {
        let slot = u64::from(self.layout.max_batch) + 1;
        let beside = self.layout.beside.blocks.min(slot - 1);
        (SLOTS / 2 * slot + WIDTH as u64 + 1 + beside) * PAGE_BYTES as u64
    }

    fn ticks(&self) -> Ticks {
        self.ticks
    }
}

impl Task {
    fn what(&self) -> &'static str {
        match self {
            Task::Opening | Task::Page(_) => "read a page",
            Task::ReadBeside(_) => "read the redo log",
            Task::WriteBeside(_) => "write to the redo log",
            Task::Record(_) => "write to the journal",
            Task::Home(_) => "write a page",
            Task::Root => "write the root",
            Task::Flush => "flush",
        }
    }
}

/// Whether a block is a root, of whatever version.
pub(super) fn is_head(block: &[u8]) -> bool {
    Root::read(block).is_some()
}
