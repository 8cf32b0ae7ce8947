//! Collection: segments are read again, what lives is moved to the head.
//!
//! The victim is the segment with the fewest live pages. Its pages are found
//! through the headers of its records; those that the map still names are
//! copied, with what comes from other victims, until there is a record's worth.
//! A segment of which not all that lives was found is read page by page, those
//! that the map names. When a page of them is lost, cannot be read or has a wrong
//! seal, it stays where it is, and its segment with it, until the page is written
//! anew. The others are moved while there is room to spare: that gives none.
//!
//! When segments are scarce and no other is left, those with lost pages are tried
//! again, each once for each segment that was won: that are free beyond the most
//! since the last batch; and once more for a batch that finds no room. When nothing
//! was won by that, no room will ever come: it fails ([`StoreError::NoSpace`]).

use port::{BlockDone, BlockOp, BlockReq, Buffer};

use super::format::{Entry, Place, RecordHeader, Seals};
use super::layout::SLACK;
use super::{LEAST_ROOM, LogStore, RESERVE, State, Task, VICTIMS};
use crate::page::PAGE_BYTES;
use crate::store::awaited::Awaited;
use crate::store::{StoreError, check_seal};

/// What a collector is at.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// The segment is being read.
    Reading(u32),
    /// It was, and whether that went well.
    Read(u32, bool),
    /// Its pages are read one by one: the next of them is to be read, or is being
    /// read.
    Seeking(At),
    ReadingPage(At),
    /// Its pages are moved.
    Moving(At),
}

/// How far a victim has come.
#[derive(Clone, Copy, Debug)]
struct At {
    segment: u32,
    /// Which of its live pages is next.
    next: usize,
    /// How often that one was read.
    tries: u8,
    /// A live page is lost.
    lost: bool,
}

/// How often a page is read before it counts as lost.
const TRIES: u8 = 3;

/// One that collects a segment at a time.
pub(super) struct Collector {
    buffer: Option<Buffer>,
    /// What is before and behind the page that is being read.
    around: (Buffer, Buffer),
    /// The live pages of the segment, as far as they are known.
    pages: Vec<Entry>,
    phase: Phase,
}

impl Collector {
    pub(super) fn new(buffer: Buffer) -> Collector {
        let pages = Vec::with_capacity(buffer.len() / PAGE_BYTES);
        Collector { buffer: Some(buffer), around: Default::default(), pages, phase: Phase::Idle }
    }
}

/// Segments that collection leaves free, so that opening has two.
const KEPT: usize = 2;

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
    /// Goes on with collection until all that is left waits for something. False
    /// when there was nothing to do.
    pub(super) fn collect(&mut self) -> bool {
        let mut worked = false;
        while (0..self.collectors.len()).any(|number| self.collect_step(number)) {
            worked = true;
        }
        let idle = self.collectors.iter().all(|one| matches!(one.phase, Phase::Idle));
        if idle && self.is_short() {
            self.send_moving();
        }
        worked
    }

    /// Whether every block counts: pages are moved as soon as they are there, and
    /// no end of a segment is left empty.
    fn is_short(&self) -> bool {
        self.free.len() <= RESERVE + 2
    }

    /// The next step of a collector. False when it waits.
    fn collect_step(&mut self, number: usize) -> bool {
        match self.collectors[number].phase {
            Phase::Reading(_) | Phase::ReadingPage(_) => false,
            Phase::Read(segment, whole) => {
                self.find_live(number, segment, whole);
                true
            }
            Phase::Seeking(at) => self.seek(number, at),
            Phase::Moving(at) => self.move_pages(number, at),
            Phase::Idle => {
                let victim = self.victim();
                if let Some(victim) = victim {
                    self.read_victim(number, victim);
                }
                victim.is_some()
            }
        }
    }

    /// Whether no segment is free for a batch, and nothing is on its way, or
    /// left to be tried, that would free one.
    pub(super) fn is_out_of_room(&self) -> bool {
        let waits = |one: &Collector| matches!(one.phase, Phase::Idle | Phase::Moving(_));
        self.free.len() <= RESERVE
            && self.records.is_empty()
            && self.dead.is_empty()
            && self.trimming == 0
            && self.trimmed.is_empty()
            && self.checkpoint.is_idle()
            && self.blocks.room() > LEAST_ROOM
            && self.collectors.iter().all(waits)
    }

    /// Whether a batch waits for what was not tried again since it came: what could
    /// not be read when the tries were used up may be readable now.
    pub(super) fn is_to_try_again(&self) -> bool {
        self.out_of_room && self.asked.get() && !self.tried && self.failed.is_none()
    }

    /// All that is lost may be tried again, and the log be collected.
    pub(super) fn renew_tries(&mut self) {
        self.victims_left = VICTIMS * self.segments.len();
        self.retries = self.stuck.len();
    }

    pub(super) fn no_space(&self) -> StoreError {
        let first = self.stuck.front().copied().unwrap_or_default();
        StoreError::NoSpace {
            segments: self.stuck.len() as u64,
            of: self.layout.segments.into(),
            block: self.layout.block(Place { segment: first, ..Place::default() }),
        }
    }

    /// The segment to collect next, if the log takes more space than it may.
    fn victim(&mut self) -> Option<u32> {
        let room = u64::from(self.layout.segment_blocks) - 1;
        let allowed = self.live * u64::from(100 + self.config.overhead) / 100 + 4 * room;
        let moved = self.segments_being_moved();
        let occupied = self.occupied() - moved;
        let scarce = ((self.free.len() + self.dead.len()) as u64 + moved) < SLACK - RESERVE as u64;
        let enough = occupied * room <= allowed && !scarce;
        if self.blocks.room() <= LEAST_ROOM || enough || self.victims_left == 0 {
            return None;
        }
        let segments = &self.segments;
        let live = |number: usize| {
            let segment = &segments[number];
            (segment.state == State::Closed && segment.records == 0).then_some(segment.live)
        };
        let fewest = self.fewest.find(segments.len(), live);
        debug_assert_eq!(
            fewest,
            (0..segments.len()).filter(|&n| live(n).is_some()).min_by_key(|&n| live(n))
        );
        let gives = |&number: &usize| u64::from(segments[number].live) * 100 < room * 95;
        let victim = match fewest.filter(gives) {
            Some(number) => Some(number as u32),
            None if scarce && self.retries > 0 => {
                self.retries -= 1;
                self.stuck.pop_front()
            }
            None => None,
        };
        self.victims_left -= usize::from(victim.is_some());
        victim
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
        match collector.phase {
            Phase::Reading(segment) => {
                collector.buffer = Some(buffer);
                collector.phase = Phase::Read(segment, result.is_ok());
            }
            Phase::ReadingPage(at) => self.page_read(number as usize, at, result.is_ok(), buffer),
            _ => unreachable!("nothing was being read"),
        }
    }

    /// Lists what lives in a segment that was read. Where not all of it is there,
    /// it is read one by one.
    fn find_live(&mut self, number: usize, segment: u32, whole: bool) {
        let at = At { segment, next: 0, tries: 0, lost: false };
        let mut pages = std::mem::take(&mut self.collectors[number].pages);
        pages.clear();
        if whole {
            self.list_found(number, segment, &mut pages);
        }
        let all = pages.len() == usize::from(self.segments[segment as usize].live);
        if !all {
            pages.clear();
            let of = |block: u32| block > 0 && self.layout.segment_of(block) == segment;
            let mapped = self.map[..self.mapped as usize].iter();
            let live = mapped.enumerate().filter(|&(_, &block)| of(block));
            pages.extend(live.map(|(page, &old)| Entry { page: page as u64, old }));
        }
        let collector = &mut self.collectors[number];
        collector.pages = pages;
        collector.phase = if all { Phase::Moving(at) } else { Phase::Seeking(at) };
    }

    /// Lists what lives in a segment by the headers of its records, if it is
    /// whole.
    fn list_found(&self, number: usize, segment: u32, pages: &mut Vec<Entry>) {
        let buffer = self.collectors[number].buffer.as_ref();
        let mut rest = buffer.expect("its buffer is back").bytes();
        let mut block = self.layout.block(Place { segment, ..Place::default() }) as u32;
        while !rest.is_empty()
            && let Some(header) = RecordHeader::read(rest)
            && let Some((record, behind)) =
                rest.split_at_checked((usize::from(header.count) + 1) * PAGE_BYTES)
        {
            for (i, body) in record.chunks_exact(PAGE_BYTES).skip(1).enumerate() {
                let Entry { page, .. } = Entry::read(record, i);
                let old = block + 1 + i as u32;
                if self.map.get(page as usize) == Some(&old) && check_seal(page, body).is_some() {
                    pages.push(Entry { page, old });
                }
            }
            block += u32::from(header.count) + 1;
            rest = behind;
        }
    }

    /// Reads the next page of a segment that is read one by one. False without
    /// room for a command.
    fn seek(&mut self, number: usize, at: At) -> bool {
        let collector = &mut self.collectors[number];
        let Some(&Entry { page, old }) = collector.pages.get(at.next) else {
            collector.phase = Phase::Moving(At { next: 0, ..at });
            return true;
        };
        if self.map[page as usize] != old {
            // It was written anew meanwhile.
            collector.pages.swap_remove(at.next);
            collector.phase = Phase::Seeking(At { tries: 0, ..at });
            return true;
        }
        if self.blocks.room() <= 4 {
            return false;
        }
        let mut behind = collector.buffer.take().expect("its buffer is back");
        let before = behind.split_to(self.layout.offset(old));
        let body = behind.split_to(PAGE_BYTES);
        (collector.around, collector.phase) = ((before, behind), Phase::ReadingPage(at));
        self.blocks.transfer(BlockOp::Read, u64::from(old), body, Task::Collect(number as u32));
        true
    }

    fn page_read(&mut self, number: usize, mut at: At, read: bool, body: Buffer) {
        let collector = &mut self.collectors[number];
        let Entry { page, old } = collector.pages[at.next];
        at.tries += 1;
        if read && check_seal(page, body.bytes()).is_some() {
            (at.next, at.tries) = (at.next + 1, 0);
        } else if at.tries == TRIES {
            collector.pages.swap_remove(at.next);
            at.lost |= self.map[page as usize] == old;
            at.tries = 0;
        }
        let (mut before, behind) = std::mem::take(&mut collector.around);
        let joined = before.join(body).and_then(|()| before.join(behind));
        assert!(joined.is_ok(), "it was cut from there");
        (collector.buffer, collector.phase) = (Some(before), Phase::Seeking(at));
    }

    /// Puts what lives of a victim to what is moved, as far as there is room.
    /// False when there was none.
    fn move_pages(&mut self, number: usize, mut at: At) -> bool {
        let collector = &mut self.collectors[number];
        let buffer = collector.buffer.take().expect("its buffer is back");
        let pages = std::mem::take(&mut collector.pages);
        let first = at.next;
        let to_spare = |log: &Self| !at.lost || log.free.len() > RESERVE + 2;
        while to_spare(self)
            && let Some(&entry) = pages.get(at.next)
        {
            let body = &buffer.bytes()[self.layout.offset(entry.old)..][..PAGE_BYTES];
            if self.map[entry.page as usize] == entry.old && !self.move_page(entry, body) {
                break;
            }
            at.next += 1;
        }
        let done = at.next == pages.len() || !to_spare(self);
        let collector = &mut self.collectors[number];
        (collector.buffer, collector.pages) = (Some(buffer), pages);
        collector.phase = Phase::Moving(at);
        if done {
            self.segment_done(number, at);
        }
        done || at.next > first
    }

    /// All that can be moved of a segment is on its way.
    fn segment_done(&mut self, number: usize, at: At) {
        self.collectors[number].phase = Phase::Idle;
        self.counters.collected += 1;
        if at.lost {
            self.segments[at.segment as usize].state = State::Stuck;
            self.stuck.push_back(at.segment);
        } else {
            self.segments[at.segment as usize].state = State::Moved;
            self.moved_segments += 1;
        }
        self.look_at(at.segment);
    }

    /// Puts a page to those that are moved next. False without room.
    fn move_page(&mut self, entry: Entry, body: &[u8]) -> bool {
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
        let seal = *body.first_chunk().expect("a page begins with its seal");
        self.moving.seals.add(u64::from_le_bytes(seal));
        true
    }

    /// What fills the head, so that no block is left empty.
    fn best_move(&self) -> usize {
        match self.head_room() {
            room @ 1..16 if self.is_short() => room,
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
