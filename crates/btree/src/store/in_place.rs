//! The store that updates pages in place, over the block interface.
//!
//! Each page has its own block. A batch is first written to a journal, as one
//! record: a header that lists the pages, and the pages. When a flush has made
//! the record durable, the pages are written to their blocks; when that is
//! done the batch is. Guarantees are those of [`PageStore`]. Why they hold:
//! - The journal has slots in a ring; record n is in slot n modulo their
//!   number. Records have numbers without gaps. No page of a record is written
//!   to its block before that record and all before it are durable.
//! - The root block names the *tail*: all records before it are durable in
//!   their blocks. A slot is used again only when a durable root says so.
//! - Opening writes the pages of the records from the tail on once more, in
//!   order, up to the first that is not whole: blocks that were being written
//!   become whole, and records of which no page was written count, too, or do
//!   not, the last of them.
//! - Opening ends with a root of a new *epoch*, and takes only records of its
//!   root's epoch, so none that a crash left behind is taken later.
//!
//! ```text
//!  block  0  1     2 …                                a multiple of 64 …
//!         │ roots │ slots of 1 + max_batch blocks … │ pages …
//!
//!  root, block (number & 1)
//!  byte 0     8       12      16     24    32   40       48
//!       │magic│version│batch  │number│epoch│tail│ blocks │ 0 … │ checksum (4088) │
//!       │u64  │u32    │u32    │u64   │u64  │u64 │ u64    │
//!
//!  header of a record
//!  byte 0        8     12     16    24    32    40
//!       │checksum│magic│count │ seq │epoch│seals│ pages (u64) …
//!       │u64     │u32  │u32   │ u64 │u64  │u64  │
//! ```
//!
//! Numbers are little-endian, checksums XXH3 of 64 bits: of the block but
//! itself; `seals` of the pages' seals.

use std::collections::VecDeque;

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring, Shape, Time};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::blocks::{Blocks, buffer};
use super::drive::Drive;
use super::{Lap, PageStore, StoreDone, StoreError, Ticks, check_seal, no_clock, seal};
use crate::page::PAGE_BYTES;

const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"ssdkinpl");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"SJRN");
const VERSION: u32 = 1;
const LIST_AT: usize = 40;
const ROOT_SUM_AT: usize = PAGE_BYTES - 8;

/// Slots of the journal.
const SLOTS: u64 = 16;

/// Pages of a batch that are written to their blocks at once.
const WIDTH: usize = 32;

/// How a store in place is kept.
#[derive(Clone, Copy, Debug)]
pub struct InPlaceConfig {
    /// Most pages of a batch, 32 to 256.
    pub max_batch: u32,
    /// Measures where time goes.
    pub clock: fn() -> u64,
}

impl Default for InPlaceConfig {
    /// Batches of 255 pages, nothing measured.
    fn default() -> InPlaceConfig {
        InPlaceConfig { max_batch: 255, clock: no_clock }
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Being written to the journal.
    Journal,
    /// In the journal, perhaps not durable.
    Written,
    /// Durable there; pages are being written to their blocks.
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
    records: VecDeque<Record>,
    next: u64,
    epoch: u64,
    /// The number of the root, and the tail that the durable root names.
    root: u64,
    tail: u64,
    /// The tail of the root that is on its way, and whether it is written.
    rooting: Option<(u64, bool)>,
    /// Flushes begun when it was written.
    root_since: u64,
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
}

impl Layout {
    fn of(shape: &Shape, config: &InPlaceConfig) -> Result<Layout, StoreError> {
        let batch = config.max_batch;
        if !(32..=256).contains(&batch) {
            let (what, range) = ("pages of a batch", "32 to 256");
            return Err(StoreError::Shape { what, value: batch.into(), range });
        }
        let blocks = shape.bytes / BLOCK_BYTES;
        let first = (2 + SLOTS * (u64::from(batch) + 1)).next_multiple_of(64);
        let pages = blocks.saturating_sub(first);
        if pages < 64 {
            let (what, range) = ("blocks of the drive", "64 more than the journal takes");
            return Err(StoreError::Shape { what, value: blocks, range });
        }
        Ok(Layout { max_batch: batch, first, pages, blocks })
    }

    fn slot(&self, seq: u64) -> u64 {
        2 + seq % SLOTS * (u64::from(self.max_batch) + 1)
    }
}

impl<D: Drive<Cmd = BlockReq, Done = BlockDone>> InPlaceStore<D> {
    /// Makes an empty store on `drive`, whose outside is `shape`, at the time
    /// `now`. What was there is lost.
    ///
    /// # Errors
    /// [`StoreError::Shape`] for a drive that is too small or keeps no data;
    /// [`StoreError::Drive`].
    pub fn create(
        drive: D,
        shape: Shape,
        config: InPlaceConfig,
        now: Time,
    ) -> Result<InPlaceStore<D>, StoreError> {
        let mut store = InPlaceStore::empty(drive, shape, config)?;
        store.blocks.advance(now);
        store.blocks.command_now(BlockOp::Trim, shape.bytes / BLOCK_BYTES)?;
        store.blocks.flush_now()?;
        store.start(0, 0, 1)?;
        Ok(store)
    }

    /// Opens the store on `drive`.
    ///
    /// # Errors
    /// As for [`InPlaceStore::create`], and [`StoreError::Unusable`] when
    /// there is none.
    pub fn open(
        drive: D,
        shape: Shape,
        config: InPlaceConfig,
        now: Time,
    ) -> Result<InPlaceStore<D>, StoreError> {
        let mut store = InPlaceStore::empty(drive, shape, config)?;
        store.blocks.advance(now);
        let root = store.find_root()?;
        let mut seq = root.tail;
        while store.take_record(seq, root.epoch)? {
            seq += 1;
        }
        store.blocks.flush_now()?;
        store.start(root.number, root.epoch, seq)?;
        Ok(store)
    }

    fn empty(drive: D, shape: Shape, config: InPlaceConfig) -> Result<InPlaceStore<D>, StoreError> {
        let layout = Layout::of(&shape, &config)?;
        let slot = u64::from(layout.max_batch) + 1;
        let buffers =
            |count, bytes| (0..count).map(|_| buffer(bytes)).collect::<Result<Vec<_>, _>>();
        Ok(InPlaceStore {
            blocks: Blocks::new(drive, shape, slot)?,
            config,
            layout,
            records: VecDeque::with_capacity(SLOTS as usize),
            next: 1,
            epoch: 0,
            root: 0,
            tail: 1,
            rooting: None,
            root_since: 0,
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

    fn find_root(&mut self) -> Result<Root, StoreError> {
        let mut block = buffer(PAGE_BYTES)?;
        let mut best: Option<Root> = None;
        for at in 0..2 {
            block = self.blocks.read_now(at, block)?;
            if let Some(root) = Root::read(block.bytes()) {
                let root = root.map_err(StoreError::Unusable)?;
                if best.is_none_or(|best| best.number < root.number) {
                    best = Some(root);
                }
            }
        }
        let root = best.ok_or(StoreError::Unusable("there is no root of a store in place"))?;
        if root.max_batch != self.layout.max_batch || root.blocks != self.layout.blocks {
            let what = "the store is for another drive or size of batches";
            return Err(StoreError::Unusable(what));
        }
        Ok(root)
    }

    /// Writes the pages of a record to their blocks, if it is there and whole.
    fn take_record(&mut self, seq: u64, epoch: u64) -> Result<bool, StoreError> {
        let at = self.layout.slot(seq);
        let block = self.blocks.read_now(at, buffer(PAGE_BYTES)?)?;
        let Some(header) = Header::read(block.bytes(), self.layout.max_batch) else {
            return Ok(false);
        };
        if header.seq != seq || header.epoch != epoch {
            return Ok(false);
        }
        let count = header.count as usize;
        let mut pages = self.blocks.read_now(at + 1, buffer(count * PAGE_BYTES)?)?;
        let mut seals = Xxh3::new();
        for (i, body) in pages.bytes().chunks_exact(PAGE_BYTES).enumerate() {
            let page = Header::page(block.bytes(), i);
            match check_seal(page, body) {
                Some(seal) if page < self.layout.pages => seals.update(&seal.to_le_bytes()),
                _ => return Ok(false),
            }
        }
        if seals.digest() != header.seals {
            return Ok(false);
        }
        for i in 0..count {
            let page = Header::page(block.bytes(), i);
            let body = pages.split_to(PAGE_BYTES);
            self.blocks.write_now(self.layout.first + page, body)?;
        }
        Ok(true)
    }

    /// Begins a new epoch with the record `seq`; all before are durable.
    fn start(&mut self, number: u64, epoch: u64, seq: u64) -> Result<(), StoreError> {
        (self.root, self.epoch) = (number + 1, epoch + 1);
        (self.next, self.tail) = (seq, seq);
        let mut block = buffer(PAGE_BYTES)?;
        self.root_of(seq).write(block.bytes_mut());
        self.blocks.write_now(self.root & 1, block)?;
        self.blocks.flush_now()
    }

    fn root_of(&self, tail: u64) -> Root {
        Root {
            max_batch: self.layout.max_batch,
            number: self.root,
            epoch: self.epoch,
            tail,
            blocks: self.layout.blocks,
        }
    }

    fn finish(&mut self, task: Task, result: Result<(), StoreError>, buffer: Buffer) {
        if let Err(error) = result
            && !matches!(task, Task::Page(_))
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
                let flushes = self.flushes;
                if let Some((tail, _)) = self.rooting {
                    self.rooting = Some((tail, true));
                    self.root_since = flushes;
                }
            }
            Task::Flush => self.flushed(),
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
        if let Some((tail, true)) = self.rooting
            && self.root_since < before
        {
            self.tail = tail;
            self.rooting = None;
        }
        // In order: a record is durable when all before it are.
        for record in &mut self.records {
            match record.phase {
                Phase::Journal => break,
                Phase::Written if record.since < before => record.phase = Phase::Home,
                Phase::Written => break,
                Phase::Home | Phase::Done => {}
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

    /// Writes pages to their blocks, flushes, and moves the tail.
    /// False when there was nothing to do.
    fn work(&mut self) -> bool {
        let before = self.blocks.room();
        if self.failed.is_some() {
            self.give_up();
        } else {
            self.write_home();
            self.move_tail();
        }
        // A record behind one that is still being written gains nothing yet.
        let mut phases = self.records.iter().map(|record| record.phase);
        let next = phases.find(|phase| matches!(phase, Phase::Journal | Phase::Written));
        let done = self.records.front().is_some_and(|record| record.phase == Phase::Done);
        // Slots of batches that are done are wanted when half are in use.
        let written = next == Some(Phase::Written)
            || matches!(self.rooting, Some((_, true)))
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
            let idle = matches!(record.phase, Phase::Written)
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

    /// Writes a root, when enough slots are free but for it.
    fn move_tail(&mut self) {
        let tail = self.records.front().map_or(self.next, |record| record.seq);
        if self.rooting.is_some() || tail < self.tail + SLOTS / 4 {
            return;
        }
        let Some(mut block) = self.root_buffer.take() else { return };
        self.root += 1;
        self.root_of(tail).write(block.bytes_mut());
        self.rooting = Some((tail, false));
        self.blocks.transfer(BlockOp::Write, self.root & 1, block, Task::Root);
    }
}

impl<D: Drive<Cmd = BlockReq, Done = BlockDone>> PageStore for InPlaceStore<D> {
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
        self.blocks.transfer(BlockOp::Read, self.layout.first + page, buffer, Task::Page(page));
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
        (SLOTS / 2 * slot + WIDTH as u64 + 1) * PAGE_BYTES as u64
    }

    fn ticks(&self) -> Ticks {
        self.ticks
    }
}

impl Task {
    fn what(&self) -> &'static str {
        match self {
            Task::Opening | Task::Page(_) => "read a page",
            Task::Record(_) => "write to the journal",
            Task::Home(_) => "write a page",
            Task::Root => "write the root",
            Task::Flush => "flush",
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Whether a block is a root, of whatever version.
pub(super) fn is_head(block: &[u8]) -> bool {
    Root::read(block).is_some()
}

/// The root of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Root {
    max_batch: u32,
    number: u64,
    epoch: u64,
    tail: u64,
    blocks: u64,
}

impl Root {
    fn write(&self, block: &mut [u8]) {
        block[..PAGE_BYTES].fill(0);
        block[..8].copy_from_slice(&ROOT_MAGIC.to_le_bytes());
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.max_batch.to_le_bytes());
        let words = [self.number, self.epoch, self.tail, self.blocks];
        for (to, word) in block[16..48].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&block[..ROOT_SUM_AT]);
        block[ROOT_SUM_AT..PAGE_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// `None` if it is none, or damaged. Another version is an error.
    fn read(block: &[u8]) -> Option<Result<Root, &'static str>> {
        let good = u64_at(block, ROOT_SUM_AT) == xxh3_64(&block[..ROOT_SUM_AT]);
        if u64_at(block, 0) != ROOT_MAGIC || !good {
            return None;
        }
        if u32_at(block, 8) != VERSION {
            return Some(Err("the store was written by another version"));
        }
        Some(Ok(Root {
            max_batch: u32_at(block, 12),
            number: u64_at(block, 16),
            epoch: u64_at(block, 24),
            tail: u64_at(block, 32),
            blocks: u64_at(block, 40),
        }))
    }
}

/// The header of a record, but for its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    count: u32,
    seq: u64,
    epoch: u64,
    seals: u64,
}

impl Header {
    fn write(&self, pages: &[u64], to: &mut [u8]) {
        let block = &mut to[..PAGE_BYTES];
        block[8..12].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        block[12..16].copy_from_slice(&self.count.to_le_bytes());
        let words = [self.seq, self.epoch, self.seals];
        let all = words.iter().chain(pages).copied().chain(std::iter::repeat(0));
        for (to, word) in block[16..].chunks_exact_mut(8).zip(all) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&block[8..]);
        block[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// `None` if it is none, or damaged.
    fn read(block: &[u8], max_batch: u32) -> Option<Header> {
        if u32_at(block, 8) != RECORD_MAGIC || u64_at(block, 0) != xxh3_64(&block[8..]) {
            return None;
        }
        let count = u32_at(block, 12);
        (1..=max_batch).contains(&count).then(|| Header {
            count,
            seq: u64_at(block, 16),
            epoch: u64_at(block, 24),
            seals: u64_at(block, 32),
        })
    }

    /// The number of page `i` of the record.
    fn page(block: &[u8], i: usize) -> u64 {
        u64_at(block, LIST_AT + 8 * i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(
            pages in prop::collection::vec(any::<u64>(), 1..=256), words in any::<[u64; 4]>(),
            flip in 0usize..4096 * 8,
        ) {
            let [seq, epoch, seals, blocks] = words;
            let header = Header { count: pages.len() as u32, seq, epoch, seals };
            let mut block = vec![0xAA; PAGE_BYTES];
            header.write(&pages, &mut block);
            prop_assert_eq!(Header::read(&block, 256), Some(header));
            let read: Vec<u64> = (0..pages.len()).map(|i| Header::page(&block, i)).collect();
            prop_assert_eq!(read, pages);
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(Header::read(&block, 256), None);
            let root = Root { max_batch: 64, number: seq, epoch, tail: seals, blocks };
            root.write(&mut block);
            prop_assert_eq!(Root::read(&block), Some(Ok(root)));
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(Root::read(&block), None);
        }
    }
}
