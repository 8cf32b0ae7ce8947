//! The log-structured store on the host, over the block interface.
//!
//! After LLAMA (Levandoski, Lomet and Sengupta, VLDB 2013) as used in Do, Lomet
//! and Picoli (DaMoN 2019), section 3.2.1: batches of pages are appended to a
//! log of segments; a map in memory says where each page is; segments are
//! collected, which reads them again and moves what lives; the map is written
//! by checkpoints; opening reads the last checkpoint and what the log has
//! since.
//!
//! Guarantees are those of [`PageStore`]. Why they hold:
//! - A batch is one *record*: a header that lists its pages and pages behind
//!   it, with checksums over all. It is there when all is.
//! - Records have numbers without gaps, and the map learns of them in that
//!   order, when they are on the drive; opening takes them in that order, up
//!   to the first that is not whole.
//! - Collection writes records, too, which say for each page from where it was
//!   moved. Such an entry counts only if the map names that place when its
//!   turn comes, at run time as at opening. So it cannot undo a newer write.
//!   A segment is not written again while copies of its pages are on their
//!   way, so that place holds no other write of the page.
//! - A checkpoint writes the map piece by piece while it changes. It names the
//!   first record that the map had not learned of when it began. All records
//!   from there on are taken again at opening; taken in order they give the
//!   same map whichever of them a piece had seen.
//! - The map names only what is on the drive, so a flush before a checkpoint's
//!   header makes durable all that it names.
//! - A segment in which nothing lives is written again only after a checkpoint
//!   that began later is durable: until then opening may read it.
//! - Opening writes a checkpoint with a new *epoch* before anything else, and
//!   takes only records of its checkpoint's epoch. So what a lost record left
//!   behind is never taken for a later one's.
//! - A segment is blank when its first record is written: it was trimmed, and a
//!   flush came after that, before it was free. So a block behind the last whole
//!   record is blank or of a record, as a crash leaves a block as it was or as it
//!   was to be. Opening fails at one that is neither: it was damaged.
//! - A record says which records were known to be durable when it was written.
//!   Opening fails where one of which something is blank is among those: it was
//!   lost. Only what was lost of those that the last flush made durable, and of
//!   which no later record knows, looks like a write that a crash cut short.
//! - Headers of checkpoints are in two blocks in turn, and a crash leaves a block
//!   as it was or as it was to be. One that is not whole was damaged, and opening
//!   fails: the older alone would take older pages for those that hold.
//!
//! In the non-durable mode there is no collection and no checkpoint but the
//! first; the log ends with [`StoreError::LogFull`].

mod checkpoint;
mod collect;
mod fewest;
mod format;
mod layout;
mod open;
mod records;
mod segment;
mod task;

use std::cell::Cell;
use std::collections::VecDeque;

use port::{BlockDone, BlockOp, BlockReq, Buffer, Lazy, Ring, Shape, Time};

use self::checkpoint::Checkpoint;
use self::collect::Collector;
use self::fewest::Fewest;
use self::format::{Entry, Place, Seals};
use self::layout::Layout;
pub use self::layout::LogConfig;
use self::segment::{Segment, State};
use self::task::{Covered, Task};
use super::awaited::Awaited;
use super::beside::{Beside, Writing};
use super::blocks::{Blocks, buffer};
use super::{Lap, PageStore, StoreDone, StoreError, Ticks, check_beside, check_seal, seal};
use crate::page::PAGE_BYTES;

/// What a log has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records of the tree's batches, and pages in them.
    pub records: u64,
    /// Pages that the tree wrote.
    pub pages: u64,
    /// Segments that were collected.
    pub collected: u64,
    /// Pages that collection moved.
    pub moved: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks that checkpoints wrote.
    pub checkpoint_blocks: u64,
    /// Blocks at segments' ends that were left empty.
    pub unused: u64,
    /// Records that opening took.
    pub recovered: u64,
}

port::sums!(
    LogCounters: records, pages, collected, moved, checkpoints, checkpoint_blocks, unused, recovered
);

/// Segments that the user leaves to collection.
const RESERVE: usize = 4;

/// Transfers that the log's own work leaves room for.
const LEAST_ROOM: usize = 16;

/// How many times the whole log may be collected without a batch and without one
/// more free segment: then collection wins nothing, and ends.
const VICTIMS: usize = 4;

/// A record on its way.
struct Record {
    place: Place,
    count: u16,
    /// The tree's number of it; `None` for collection.
    id: Option<u32>,
    /// Back from the drive.
    buffer: Option<Buffer>,
}

/// Pages in a log over a block drive.
pub struct LogStore<D> {
    blocks: Blocks<D, Task>,
    config: LogConfig,
    layout: Layout,
    beside: Writing,
    /// Where each page is: its block; 0 for none.
    map: Lazy<u32>,
    segments: Vec<Segment>,
    /// To find the one to collect.
    fewest: Fewest,
    free: VecDeque<u32>,
    dead: VecDeque<u32>,
    /// Segments whose trim is under way, and those that were trimmed, in that
    /// order, but perhaps not durably.
    trimming: u32,
    trimmed: VecDeque<u32>,
    /// Trims that were done, and those that a flush which was begun makes durable.
    trims: u64,
    flushing: u64,
    /// Segments with pages that cannot be read, and how many of them may be tried
    /// again.
    stuck: VecDeque<u32>,
    retries: usize,
    /// The most segments that were free since the last batch came, and how many
    /// may be collected before there are more.
    most_free: usize,
    victims_left: usize,
    /// No room for a batch will come.
    out_of_room: bool,
    /// A batch asked for room then; and all that is lost was tried again for it.
    asked: Cell<bool>,
    tried: bool,
    live: u64,
    head: Place,
    next: u32,
    epoch: u64,
    /// Records that the map has not learned of, in order.
    records: VecDeque<Record>,
    spare: Vec<Buffer>,
    collectors: Vec<Collector>,
    /// Pages that collection moves, to become a record.
    moving: Moving,
    /// Segments whose pages are on their way to others.
    moved_segments: u64,
    /// The end of the buffer whose front is the map's last part.
    part_rest: Option<Buffer>,
    checkpoint: Checkpoint,
    /// One past the highest page that was ever written.
    mapped: u64,
    out: VecDeque<StoreDone>,
    /// All records before are durable.
    flushed: u64,
    failed: Option<StoreError>,
    ticks: Ticks,
    counters: LogCounters,
}

/// Whether a block is a checkpoint's header, of whatever version.
pub(super) fn is_head(block: &[u8]) -> bool {
    format::CheckpointHeader::read(block).is_some()
}

/// The pages that collection moves next.
struct Moving {
    /// Free for use, unless it is on its way.
    buffer: Option<Buffer>,
    entries: Vec<Entry>,
    seals: Seals,
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
    /// The drive, before anything is known of it.
    fn blocks(drive: D, shape: Shape, config: &LogConfig) -> Result<Blocks<D, Task>, StoreError> {
        Layout::of(&shape, config, 0)?;
        Blocks::new(drive, shape, u64::from(config.segment_blocks))
    }

    /// A log that has `redo` blocks beside it.
    fn empty(
        blocks: Blocks<D, Task>,
        shape: Shape,
        config: LogConfig,
        redo: u64,
    ) -> Result<LogStore<D>, StoreError> {
        let layout = Layout::of(&shape, &config, redo)?;
        let bytes = config.segment_blocks as usize * PAGE_BYTES;
        let buffers = |count| (0..count).map(|_| buffer(bytes)).collect::<Result<Vec<_>, _>>();
        let map = Lazy::zeroed(layout.pages as usize, "the map of pages");
        let map = map.map_err(|_| StoreError::Shape {
            what: "pages",
            value: layout.pages,
            range: "such that there is memory for the map",
        })?;
        let none = Segment { state: State::Free, live: 0, records: 0, reads: 0, copied: 0 };
        let collectors = if config.durable { config.collectors } else { 0 };
        let place = Place { segment: 0, offset: 0, seq: 1 };
        Ok(LogStore {
            blocks,
            beside: Writing::new(redo.min(u64::from(config.segment_blocks) - 1) as usize)?,
            map,
            segments: vec![none; layout.segments as usize],
            fewest: Fewest::new(layout.segments as usize),
            free: VecDeque::with_capacity(layout.segments as usize),
            dead: VecDeque::with_capacity(layout.segments as usize),
            trimming: 0,
            trimmed: VecDeque::with_capacity(layout.segments as usize),
            trims: 0,
            flushing: 0,
            stuck: VecDeque::new(),
            retries: 0,
            most_free: 0,
            victims_left: VICTIMS * layout.segments as usize,
            out_of_room: false,
            asked: Cell::new(false),
            tried: false,
            live: 0,
            head: place,
            next: 0,
            epoch: 0,
            records: VecDeque::with_capacity(config.batches + 2),
            spare: buffers(config.batches)?,
            collectors: buffers(collectors)?.into_iter().map(Collector::new).collect(),
            moving: Moving {
                buffer: buffers(usize::from(config.durable))?.pop(),
                entries: Vec::with_capacity(config.segment_blocks as usize),
                seals: Seals::default(),
            },
            moved_segments: 0,
            part_rest: None,
            checkpoint: Checkpoint::new(place)?,
            mapped: 0,
            out: VecDeque::with_capacity(shape.depth),
            flushed: 0,
            failed: None,
            ticks: Ticks::default(),
            counters: LogCounters::default(),
            config,
            layout,
        })
    }

    /// What the log has done.
    pub fn counters(&self) -> LogCounters {
        self.counters
    }

    /// Segments with pages that could not be read when they were collected.
    pub fn unreadable(&self) -> usize {
        self.stuck.len()
    }

    /// The drive.
    pub fn drive_mut(&mut self) -> &mut D {
        self.blocks.drive_mut()
    }

    /// The drive again.
    pub fn into_drive(self) -> D {
        self.blocks.into_drive()
    }

    /// Pages that a record at the head may have; 0 when it is full.
    fn head_room(&self) -> usize {
        (self.layout.segment_blocks - self.head.offset).saturating_sub(1) as usize
    }

    /// Goes on to the next segment. False when none is free after it.
    fn turn_over(&mut self) -> bool {
        let Some(after) = self.free.pop_front() else { return false };
        self.counters.unused += u64::from(self.layout.segment_blocks - self.head.offset);
        let old = self.head.segment;
        self.segments[old as usize].state = State::Closed;
        self.head = Place { segment: self.next, offset: 0, seq: self.head.seq };
        self.segments[after as usize].state = State::Open;
        self.next = after;
        self.look_at(old);
        true
    }

    fn fail(&mut self, error: StoreError) {
        self.failed.get_or_insert(error);
    }

    /// Something has completed.
    fn finish(&mut self, task: Task, result: Result<(), StoreError>, buffer: Buffer) {
        match task {
            Task::Opening => unreachable!("opening waits for what it asks"),
            Task::Page { page, segment } => {
                let start = (self.config.clock)();
                self.segments[segment as usize].reads -= 1;
                let result = result.and_then(|()| {
                    check_seal(page, buffer.bytes()).map(|_| ()).ok_or(StoreError::Damaged { page })
                });
                self.ticks.reading += (self.config.clock)() - start;
                self.out.push_back(StoreDone::Read { page, buffer, result });
            }
            Task::Record(seq) => {
                let first = self.records.front().expect("it is on its way").place.seq;
                self.records[(seq - first) as usize].buffer = Some(buffer);
                if let Err(error) = result {
                    self.fail(error);
                }
            }
            Task::Flush(id, covered) => {
                self.flush_done(covered, result);
                if let Some(id) = id {
                    let result = self.failed.map_or(Ok(()), Err);
                    self.out.push_back(StoreDone::Flush { id, result });
                }
            }
            Task::Collect(number) => self.collect_read(number, result, buffer),
            Task::Trim(segment) => {
                if let Err(error) = result {
                    self.fail(error);
                }
                self.trimming -= 1;
                self.trims += 1;
                self.trimmed.push_back(segment);
            }
            Task::CheckpointFlush(covered) => {
                self.flush_done(covered, result);
                self.checkpoint_step(task, Ok(()), buffer);
            }
            Task::CheckpointPart | Task::CheckpointHeader => {
                self.checkpoint_step(task, result, buffer);
            }
            Task::ReadBeside(page) => {
                let result = result.and_then(|()| check_beside(page, buffer.bytes()));
                self.out.push_back(StoreDone::Read { page, buffer, result });
            }
            Task::WriteBeside(part) => {
                if let Err(error) = result {
                    self.fail(error);
                }
                if let Some(id) = self.beside.end(part, buffer) {
                    let result = self.failed.map_or(Ok(()), Err);
                    self.out.push_back(StoreDone::Write { id, result });
                }
            }
        }
    }

    /// Begins a flush. The caller saw that there is room.
    fn begin_flush(&mut self, task: impl FnOnce(Covered) -> Task) {
        let records = self.records.front().map_or(self.head.seq, |record| record.place.seq);
        let covered = Covered { records, trims: self.trims };
        self.flushing = self.trims;
        self.blocks.command(BlockOp::Flush, 0, 0, task(covered));
    }

    /// What a flush covered is durable: segments that were trimmed are free.
    fn flush_done(&mut self, covered: Covered, result: Result<(), StoreError>) {
        if let Err(error) = result {
            return self.fail(error);
        }
        self.flushed = self.flushed.max(covered.records);
        let durable = self.trims - self.trimmed.len() as u64;
        for _ in durable..covered.trims {
            let segment = self.trimmed.pop_front().expect("it was counted");
            self.segments[segment as usize].state = State::Free;
            self.free.push_back(segment);
        }
        if self.free.len() > self.most_free {
            self.most_free = self.free.len();
            self.renew_tries();
        }
    }

    /// Notices a segment in which nothing lives any more.
    fn look_at(&mut self, number: u32) {
        let begun = self.checkpoint.begun();
        let segment = &mut self.segments[number as usize];
        self.fewest.lower(number as usize, segment.live);
        let closed = matches!(segment.state, State::Closed | State::Stuck | State::Moved);
        if closed && segment.live == 0 && segment.records == 0 && segment.copied == 0 {
            match segment.state {
                State::Moved => self.moved_segments -= 1,
                State::Stuck => self.stuck.retain(|&stuck| stuck != number),
                _ => {}
            }
            segment.state = State::Dead(begun);
            self.dead.push_back(number);
        }
    }

    /// Segments with something in them.
    fn occupied(&self) -> u64 {
        u64::from(self.layout.segments) - (self.free.len() + self.dead.len()) as u64
    }
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> PageStore for LogStore<D> {
    fn pages(&self) -> u64 {
        self.layout.pages
    }

    fn max_batch(&self) -> usize {
        self.layout.segment_blocks as usize - 1
    }

    /// What fills the segment, so that no block is left empty.
    fn best_batch(&self) -> usize {
        match self.head_room() {
            0..16 => self.max_batch(),
            room => room,
        }
    }

    fn can_read(&self) -> bool {
        self.blocks.has_read_room()
    }

    fn read(&mut self, page: u64, buffer: Buffer) -> Result<(), Buffer> {
        if !self.can_read() {
            return Err(buffer);
        }
        if let Some(at) = page.checked_sub(self.layout.pages) {
            let block = self.layout.beside.first + at;
            self.blocks.transfer(BlockOp::Read, block, buffer, Task::ReadBeside(page));
            return Ok(());
        }
        let block = self.map[page as usize];
        if block == 0 {
            // Where no page is, none was ever written: else one has been lost.
            let result = Err(match self.mapped {
                0 => StoreError::Unwritten { page },
                _ => StoreError::Damaged { page },
            });
            self.out.push_back(StoreDone::Read { page, buffer, result });
            return Ok(());
        }
        let segment = self.layout.segment_of(block);
        self.segments[segment as usize].reads += 1;
        let task = Task::Page { page, segment };
        self.blocks.transfer(BlockOp::Read, u64::from(block), buffer, task);
        Ok(())
    }

    fn can_write(&self) -> bool {
        if self.failed.is_some() {
            return true;
        } else if self.out_of_room {
            self.asked.set(true);
            return self.tried;
        }
        let space = !self.config.durable || self.free.len() > RESERVE;
        space && self.free_buffer().is_some() && self.blocks.room() > 4
    }

    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
        assert!((1..=self.max_batch()).contains(&pages.len()), "a batch of {}", pages.len());
        if self.out_of_room {
            self.fail(self.no_space());
        } else if self.failed.is_none() && pages.len() > self.head_room() && !self.turn_over() {
            self.fail(StoreError::LogFull);
        }
        if let Some(error) = self.failed {
            self.out.push_back(StoreDone::Write { id, result: Err(error) });
            return;
        }
        let start = (self.config.clock)();
        let free = self.free_buffer().expect("the caller saw room");
        let mut buffer = self.spare.swap_remove(free);
        let mut seals = Seals::default();
        let bodies = buffer.bytes_mut()[PAGE_BYTES..].chunks_exact_mut(PAGE_BYTES);
        for (i, (body, &page)) in bodies.zip(pages).enumerate() {
            copy(i, body);
            seals.add(seal(page, body));
        }
        let mut entries = [Entry::default(); 256];
        for (entry, &page) in entries.iter_mut().zip(pages) {
            entry.page = page;
        }
        self.append(buffer, &entries[..pages.len()], Some(id), seals.sum());
        (self.most_free, self.victims_left) = (0, VICTIMS * self.segments.len());
        (self.asked, self.tried) = (Cell::new(false), false);
        self.counters.records += 1;
        self.counters.pages += pages.len() as u64;
        self.ticks.writing += (self.config.clock)() - start;
    }

    fn flush(&mut self, id: u32) -> bool {
        if self.blocks.room() <= 4 {
            return false;
        }
        self.begin_flush(|covered| Task::Flush(Some(id), covered));
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
        let LogStore { layout, beside, blocks, .. } = self;
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
        self.learn();
        // What completions took was counted where it was long.
        lap.end(completed, &mut 0);
        if self.config.durable && self.failed.is_none() {
            if self.is_to_try_again() {
                self.tried = true;
                self.renew_tries();
            }
            let worked = self.collect();
            lap.end(worked, &mut self.ticks.collection);
            let worked = self.checkpoint_work();
            lap.end(worked, &mut self.ticks.checkpoint);
            self.out_of_room = self.is_out_of_room();
        }
        let submitted = self.blocks.submit();
        lap.end(submitted, &mut self.ticks.submission);
        while done.room() > 0
            && let Some(one) = self.out.pop_front()
        {
            done.put(|| one);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if !self.out.is_empty() || self.is_to_try_again() {
            return Some(self.blocks.now());
        }
        let due = self.checkpoint_due().map(|at| at.max(self.blocks.now()));
        [self.blocks.next_event(), due].into_iter().flatten().min()
    }

    fn wait(&mut self) -> Option<Time> {
        if !self.out.is_empty() || self.is_to_try_again() {
            return Some(self.blocks.now());
        }
        self.blocks.wait()
    }

    fn memory(&self) -> u64 {
        let segment = u64::from(self.layout.segment_blocks) * PAGE_BYTES as u64;
        let buffers = (self.config.batches + self.collectors.len() + 1) as u64 * segment
            + self.layout.beside.blocks.min(255) * PAGE_BYTES as u64;
        let segments = (self.segments.len() * (size_of::<Segment>() + 12)) as u64;
        self.layout.pages * 4 + segments + buffers + checkpoint::MEMORY
    }

    fn ticks(&self) -> Ticks {
        self.ticks
    }

    fn log(&self) -> Option<LogCounters> {
        Some(self.counters)
    }
}
