//! Collection: segments are read again, what lives is moved to the head.
//!
//! The victim is the segment with the fewest live pages. Its pages are found
//! through the headers of its records; those that the map still names are
//! copied, with what comes from other victims, until there is a record's worth.
//! A segment that cannot be read at once is read page by page, those that the map
//! names. A page that cannot be read, or whose seal is wrong, stays where it is,
//! and its segment with it, until the page is written anew.

use port::{BlockDone, BlockOp, BlockReq, Buffer};

use super::format::{Entry, Place, RecordHeader, Seals};
use super::{LogStore, RESERVE, SLACK, State, Task};
use crate::page::PAGE_BYTES;
use crate::store::drive::Drive;
use crate::store::{StoreError, check_seal};

/// What a collector is at.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// The segment is being read.
    Reading(u32),
    Copying(Copying),
    /// Its pages are read one by one: the next of them is to be read, is being
    /// read, or waits to be moved.
    Seeking(Copying),
    ReadingPage(Copying),
    Holding(Copying),
}

/// How far a victim's pages have been copied.
#[derive(Clone, Copy, Debug)]
struct Copying {
    segment: u32,
    /// The record, by its offset, and the next page of it.
    offset: u32,
    page: u16,
    /// Live pages are damaged.
    bad: bool,
}

/// One that collects a segment at a time.
pub(super) struct Collector {
    buffer: Option<Buffer>,
    /// The end of the buffer, while a page is read into its front.
    rest: Buffer,
    /// The live pages of a segment that are read one by one, the last first.
    pages: Vec<Entry>,
    phase: Phase,
}

impl Collector {
    pub(super) fn new(buffer: Buffer) -> Collector {
        let pages = Vec::with_capacity(buffer.len() / PAGE_BYTES);
        Collector { buffer: Some(buffer), rest: Buffer::empty(), pages, phase: Phase::Idle }
    }
}

/// Segments that collection leaves free, so that opening has two.
const KEPT: usize = 2;

impl<D: Drive<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
    /// Goes on with collection: a victim's pages at most for each collector.
    /// False when there was nothing to do.
    pub(super) fn collect(&mut self) -> bool {
        let mut worked = false;
        for number in 0..self.collectors.len() {
            match self.collectors[number].phase {
                Phase::Reading(_) | Phase::ReadingPage(_) => {}
                Phase::Copying(copying) => {
                    self.copy(number, copying);
                    worked = true;
                }
                Phase::Seeking(at) => worked |= self.seek(number, at),
                Phase::Holding(at) => worked |= self.move_held(number, at),
                Phase::Idle => {
                    if let Some(victim) = self.victim() {
                        self.read_victim(number, victim);
                        worked = true;
                    }
                }
            }
        }
        let idle = self.collectors.iter().all(|one| matches!(one.phase, Phase::Idle));
        if idle && self.free.len() <= RESERVE + 2 {
            self.send_moving();
        }
        worked
    }

    /// The segment to collect next, if the log takes more space than it may.
    fn victim(&mut self) -> Option<u32> {
        let room = u64::from(self.layout.segment_blocks) - 1;
        let allowed = self.live * u64::from(100 + self.config.overhead) / 100 + 4 * room;
        let moved = self.segments_being_moved();
        let occupied = self.occupied() - moved;
        let scarce = ((self.free.len() + self.dead.len()) as u64 + moved) < SLACK - RESERVE as u64;
        if self.blocks.room() <= 16 || (occupied * room <= allowed && !scarce) {
            return None;
        }
        let segments = &self.segments;
        let live = |number: usize| {
            let segment = &segments[number];
            (segment.state == State::Closed && segment.records == 0).then_some(segment.live)
        };
        let number = self.fewest.find(segments.len(), live)?;
        debug_assert_eq!(
            Some(number),
            (0..segments.len()).filter(|&n| live(n).is_some()).min_by_key(|&n| live(n))
        );
        (u64::from(segments[number].live) * 100 < room * 95).then_some(number as u32)
    }

    /// Segments that will be dead when what is being moved has been.
    fn segments_being_moved(&self) -> u64 {
        let busy = self.collectors.iter().filter(|one| !matches!(one.phase, Phase::Idle)).count();
        busy as u64 + self.moved_segments
    }

    fn read_victim(&mut self, number: usize, victim: u32) {
        let collector = &mut self.collectors[number];
        collector.phase = Phase::Reading(victim);
        let buffer = collector.buffer.take().expect("an idle collector has its buffer");
        self.segments[victim as usize].state = State::Collecting;
        let block = self.layout.block(Place { segment: victim, ..Place::default() });
        self.blocks.transfer(BlockOp::Read, block, buffer, Task::Collect(number as u32));
    }

    pub(super) fn collect_read(
        &mut self,
        number: u32,
        result: Result<(), StoreError>,
        buffer: Buffer,
    ) {
        let collector = &mut self.collectors[number as usize];
        if let Phase::ReadingPage(at) = collector.phase {
            return self.page_read(number, at, result, buffer);
        }
        collector.buffer = Some(buffer);
        let Phase::Reading(segment) = collector.phase else { unreachable!("it was being read") };
        let at = Copying { segment, offset: 0, page: 0, bad: false };
        if result.is_ok() {
            collector.phase = Phase::Copying(at);
            return;
        }
        // Where the whole cannot be read, parts of it may still be, one by one.
        collector.phase = Phase::Seeking(at);
        collector.pages.clear();
        let of = |block: u32| block > 0 && self.layout.segment_of(block) == segment;
        let live = self.map.iter().enumerate().filter(|&(_, &block)| of(block));
        collector.pages.extend(live.map(|(page, &old)| Entry { page: page as u64, old }));
    }

    /// Reads the next page of a segment that is read one by one. False without
    /// room for a command.
    fn seek(&mut self, number: usize, at: Copying) -> bool {
        let collector = &mut self.collectors[number];
        let Some(&Entry { page, old }) = collector.pages.last() else {
            self.segment_done(number, at);
            return true;
        };
        if self.map[page as usize] != old {
            // It was written anew meanwhile.
            collector.pages.pop();
            return true;
        }
        if self.blocks.room() <= 4 {
            return false;
        }
        let mut rest = collector.buffer.take().expect("its buffer is back");
        let front = rest.split_to(PAGE_BYTES);
        (collector.rest, collector.phase) = (rest, Phase::ReadingPage(at));
        self.blocks.transfer(BlockOp::Read, u64::from(old), front, Task::Collect(number as u32));
        true
    }

    fn page_read(
        &mut self,
        number: u32,
        mut at: Copying,
        result: Result<(), StoreError>,
        mut front: Buffer,
    ) {
        let collector = &mut self.collectors[number as usize];
        let joined = front.join(std::mem::take(&mut collector.rest));
        assert!(joined.is_ok(), "it was cut from there");
        collector.buffer = Some(front);
        if result.is_ok() {
            collector.phase = Phase::Holding(at);
            return;
        }
        let entry = collector.pages.pop().expect("it was read");
        at.bad |= self.map[entry.page as usize] == entry.old;
        collector.phase = Phase::Seeking(at);
    }

    /// Moves the page that was read. False without room.
    fn move_held(&mut self, number: usize, mut at: Copying) -> bool {
        let collector = &mut self.collectors[number];
        let buffer = collector.buffer.take().expect("its buffer is back");
        let entry = *collector.pages.last().expect("it was read");
        let body = &buffer.bytes()[..PAGE_BYTES];
        let is_live = self.map[entry.page as usize] == entry.old;
        let seal = check_seal(entry.page, body).filter(|_| is_live);
        let moved = seal.is_none_or(|seal| self.move_page(entry, body, seal));
        at.bad |= is_live && seal.is_none();
        let collector = &mut self.collectors[number];
        collector.buffer = Some(buffer);
        if moved {
            collector.pages.pop();
            collector.phase = Phase::Seeking(at);
        }
        moved
    }

    /// Copies what lives of a victim, as far as there is room.
    fn copy(&mut self, number: usize, mut at: Copying) {
        let buffer = self.collectors[number].buffer.take().expect("its buffer is back");
        let done = self.copy_records(&mut at, &buffer);
        let collector = &mut self.collectors[number];
        collector.buffer = Some(buffer);
        collector.phase = Phase::Copying(at);
        if done {
            self.segment_done(number, at);
        }
    }

    /// All live pages of a segment were looked at.
    fn segment_done(&mut self, number: usize, at: Copying) {
        self.collectors[number].phase = Phase::Idle;
        self.counters.collected += 1;
        // Whether any were not found shows when the map has learned of the others.
        self.moved_segments += u64::from(!at.bad);
        self.segments[at.segment as usize].state = if at.bad { State::Stuck } else { State::Moved };
        self.look_at(at.segment);
    }

    /// False when there is no room to go on.
    fn copy_records(&mut self, at: &mut Copying, buffer: &Buffer) -> bool {
        let bytes = buffer.bytes();
        let blocks = self.layout.segment_blocks;
        while at.offset < blocks {
            let record = &bytes[at.offset as usize * PAGE_BYTES..];
            let Some(header) = RecordHeader::read(record) else { break };
            if at.offset + 1 + u32::from(header.count) > blocks {
                break;
            }
            while at.page < header.count {
                let i = usize::from(at.page);
                let Entry { page, .. } = Entry::read(record, i);
                let place = Place { segment: at.segment, offset: at.offset, seq: 0 };
                let block = self.layout.block(place) as u32 + 1 + i as u32;
                if self.map.get(page as usize) == Some(&block) {
                    let body = &record[(i + 1) * PAGE_BYTES..(i + 2) * PAGE_BYTES];
                    match check_seal(page, body) {
                        Some(seal) if !self.move_page(Entry { page, old: block }, body, seal) => {
                            return false;
                        }
                        Some(_) => {}
                        None => at.bad = true,
                    }
                }
                at.page += 1;
            }
            at.offset += 1 + u32::from(header.count);
            at.page = 0;
        }
        true
    }

    /// Puts a page to those that are moved next. False without room.
    fn move_page(&mut self, entry: Entry, body: &[u8], seal: u64) -> bool {
        if self.moving.entries.len() >= self.best_move() {
            self.send_moving();
        }
        let count = self.moving.entries.len();
        let Some(buffer) = &mut self.moving.buffer else { return false };
        if count + 1 >= self.layout.segment_blocks as usize {
            return false;
        }
        buffer.bytes_mut()[(count + 1) * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(body);
        self.moving.entries.push(entry);
        let segment = self.layout.segment_of(entry.old);
        self.segments[segment as usize].copied += 1;
        self.moving.seals.add(seal);
        true
    }

    /// What fills the head, so that no block is left empty.
    fn best_move(&self) -> usize {
        match self.head_room() {
            0..16 => self.layout.segment_blocks as usize - 1,
            room => room,
        }
    }

    /// Writes what is to be moved, if that is possible now.
    fn send_moving(&mut self) {
        let count = self.moving.entries.len();
        if count == 0 || self.moving.buffer.is_none() || self.blocks.room() <= 4 {
            return;
        }
        if count > self.head_room() && (self.free.len() <= KEPT || !self.turn_over()) {
            return;
        }
        let buffer = self.moving.buffer.take().expect("it is there");
        let entries = std::mem::take(&mut self.moving.entries);
        let seals = std::mem::take::<Seals>(&mut self.moving.seals);
        self.append(buffer, &entries, None, seals.sum());
        self.counters.moved += count as u64;
        self.moving.entries = entries;
        self.moving.entries.clear();
    }
}
