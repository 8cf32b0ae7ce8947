//! Garbage collection.
//!
//! Of the closed chunks the one with the most garbage is taken, of units that
//! lack free chunks first. GBITV says
//! which of its blocks are valid; they are read with their TAGs, which say whose
//! pages they are. Logical pages go through the log to chunks of collection's
//! own; pages of tables are written anew from memory. When nothing valid is left
//! the chunk is erased, but not before the durable log says that all batches
//! are installed that its blocks were garbage by: else a recovery would look
//! for those in it.
//!
//! Chunks that hold live log are not taken. A chunk with a valid block that
//! cannot be read stays until that page is written anew; one with a block whose
//! page of MAP cannot be read, until that is made anew.

use device::{Content, OpenChannel, VectorOp};
use flash::{BlockBits, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Buffer, Status, Time};

use super::location::Location;
use super::map::Map;
use super::mutation::{Mutation, is};
use super::page::{Held, Page, held, is_whole};
use super::record::What;
use super::space::Use;
use super::write::{Stage, Write};
use super::writes::Gathered;
use super::{Batch, Cookie, is_read};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Chunks that may be erased at once.
const ERASES: usize = 64;

/// What a collector does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// The first TAG of a row is read: it says how the chunk is written.
    Probing,
    /// To look for the next valid blocks.
    Looking,
    /// They are being read.
    Reading,
    /// Their pages of MAP are being brought into memory.
    Gathering,
    /// They are being written.
    Moving,
    /// A batch behind this one is to be installed before the chunk is looked
    /// at again: some of its pages are being written anew.
    Waiting(u64),
}

/// Neighbouring blocks that are being read.
#[derive(Debug, Default)]
struct Run {
    at: Ppa,
    count: u32,
    failed: BlockBits,
    /// Of the buffer: what is read into, and what is left over.
    piece: Buffer,
    rest: Buffer,
}

/// One of those that collect.
#[derive(Debug)]
pub(super) struct Collector {
    phase: Phase,
    victim: Option<usize>,
    /// The chunk is written in whole blocks.
    whole: bool,
    /// Blocks before this one were looked at.
    next: u32,
    runs: Vec<Run>,
    /// Of these, those in use, and those on their way.
    used: usize,
    reading: usize,
    /// A valid block could not be read.
    lost: bool,
    /// Something was moved since the chunk was begun, or begun again.
    moved: bool,
    /// Bytes of a block in the runs.
    each: usize,
    /// Its batch of logical pages, and of tables' pages, by number.
    pub data: u32,
    pub pages: u32,
}

impl Collector {
    pub fn new(data: u32, pages: u32, buffers: Vec<Buffer>) -> Collector {
        let run = |rest| Run { rest, ..Run::default() };
        Collector {
            phase: Phase::Idle,
            victim: None,
            whole: false,
            next: 0,
            runs: buffers.into_iter().map(run).collect(),
            used: 0,
            reading: 0,
            lost: false,
            moved: false,
            each: 0,
            data,
            pages,
        }
    }

    /// The bytes of a page that was read: run in the upper half, block in the
    /// lower.
    pub fn bytes_of(&self, from: u32) -> &[u8] {
        let (run, block) = ((from >> 16) as usize, (from & 0xffff) as usize);
        &self.runs[run].piece.bytes()[block * self.each..][..self.each]
    }

    /// What could not be moved may be moved now.
    pub fn look_again(&mut self) {
        (self.lost, self.moved) = (false, true);
    }
}

/// Rows that a collector reads at once.
pub(super) fn runs_of(row_blocks: u32) -> usize {
    (What::Collect.capacity() / row_blocks as usize).max(32)
}

impl<D: OpenChannel> Batch<D> {
    /// Goes on with collection and erases. True if anything happened.
    pub(super) fn collect(&mut self, now: Time) -> bool {
        let mut any = self.erase_leaving();
        for c in 0..self.collectors.len() {
            while self.collector_step(now, c) {
                any = true;
            }
        }
        if self.short_of_room && !any {
            any = self.look_for_end(now);
        }
        any
    }

    /// Free chunks that collection keeps.
    fn low_mark(&self) -> usize {
        self.layout.reserve + self.layout.user_lanes
    }

    /// Whether more room will come without a further decision. What waits for a
    /// row of the log, and so may wait for room itself, gives none. No row is
    /// being written.
    pub(super) fn expects_room(&self) -> bool {
        let goes_on = |id: u32| self.writes[id as usize].is_placed();
        let gives = |collector: &Collector| match collector.phase {
            Phase::Idle => false,
            Phase::Moving => goes_on(collector.data) || goes_on(collector.pages),
            Phase::Waiting(_) => self.writes.iter().any(Write::is_placed),
            Phase::Probing | Phase::Looking | Phase::Reading | Phase::Gathering => true,
        };
        !self.leaving.is_empty() || self.erasing > 0 || self.collectors.iter().any(gives)
    }

    fn collector_step(&mut self, now: Time, c: usize) -> bool {
        match self.collectors[c].phase {
            Phase::Idle => self.choose(c),
            Phase::Looking => self.look(c),
            Phase::Gathering => self.gather_survivors(now, c),
            Phase::Waiting(lsn) => {
                let goes_on = self.applied > lsn || !self.is_under_way();
                if goes_on {
                    (self.collectors[c].next, self.collectors[c].phase) = (0, Phase::Looking);
                }
                goes_on
            }
            Phase::Probing | Phase::Reading | Phase::Moving => false,
        }
    }

    /// Takes a victim if room is short or a chunk failed.
    fn choose(&mut self, c: usize) -> bool {
        let coming = self.leaving.len() + self.erasing;
        let low = self.space.free() + coming < self.low_mark();
        let wanted = low || (self.short_of_room && coming == 0);
        // Where nothing changed since none was found, none is found now.
        let state = self.applied + self.changes;
        let asked = !self.failed.is_empty() || !self.asked.is_empty();
        if !(wanted || asked) || self.no_victim == state {
            return false;
        }
        let Some(victim) = self.victim(wanted) else {
            self.no_victim = state;
            return false;
        };
        self.space.begin(victim);
        self.counters.collections += 1;
        let collector = &mut self.collectors[c];
        (collector.victim, collector.next) = (Some(victim), 0);
        (collector.lost, collector.moved) = (false, false);
        if self.garbage.valid(victim) == 0 {
            self.victim_done(c);
            return true;
        }
        if self.kept == BLOCK {
            (collector.whole, collector.phase) = (true, Phase::Looking);
            return true;
        }
        collector.phase = Phase::Probing;
        let at = self.geometry.chunk_start(victim);
        self.read_run(c, at, 1, Content::Tags);
        true
    }

    /// Finds the next valid blocks of the victim and reads them.
    fn look(&mut self, c: usize) -> bool {
        let victim = self.collectors[c].victim.expect("it has one");
        let row = self.geometry.row_blocks();
        let start = self.geometry.chunk_start(victim).0;
        let (mut found, mut next) = (0, self.collectors[c].next);
        let content = if self.collectors[c].whole { Content::Whole } else { Content::Tagged };
        let (data, tag) = content.each(self.kept as u32);
        let collector = &mut self.collectors[c];
        (collector.used, collector.each) = (0, data);
        debug_assert_eq!(tag, TAG_BYTES);
        while self.collectors[c].used < self.collectors[c].runs.len() {
            let Some(first) = self.garbage.next_valid(victim, next) else {
                next = self.geometry.chunk_blocks();
                break;
            };
            let end = (first / row + 1) * row;
            let (mut last, mut valid) = (first, 0);
            for block in first..end {
                if self.garbage.is_valid(Ppa(start + u64::from(block))) {
                    (last, valid) = (block, valid + 1);
                }
            }
            if found + valid > What::Collect.capacity() {
                break;
            }
            (found, next) = (found + valid, end);
            let at = Ppa(start + u64::from(first));
            self.read_run(c, at, last - first + 1, content);
        }
        self.collectors[c].next = next;
        if found == 0 {
            self.chunk_looked_at(c);
            return true;
        }
        self.collectors[c].phase = Phase::Reading;
        true
    }

    fn read_run(&mut self, c: usize, at: Ppa, count: u32, content: Content) {
        let (data, tag) = content.each(self.kept as u32);
        let collector = &mut self.collectors[c];
        let number = collector.used;
        let run = &mut collector.runs[number];
        let mut whole = std::mem::take(&mut run.piece);
        whole.join(std::mem::take(&mut run.rest)).expect("it was cut from there");
        let piece = whole.split_to(count as usize * (data + tag));
        (run.at, run.count, run.failed, run.rest) = (at, count, 0, whole);
        collector.each = data;
        collector.used += 1;
        collector.reading += 1;
        self.space.chunks[self.geometry.chunk_index(at)].readers += 1;
        let cookie = Cookie::Survivors(c as u32, number as u32);
        self.send(cookie, VectorOp::Read, content, at, count as u8, piece);
    }

    /// Survivors have come, or the first TAG of a victim.
    pub(super) fn survivors_done(
        &mut self,
        c: u32,
        number: u32,
        (status, failed): (Status, BlockBits),
        buffer: Buffer,
    ) {
        let c = c as usize;
        let collector = &mut self.collectors[c];
        let run = &mut collector.runs[number as usize];
        run.piece = buffer;
        if !is_read(status) {
            run.failed = if failed == 0 { BlockBits::MAX } else { failed };
        }
        collector.reading -= 1;
        let at = run.at;
        self.counters.collect_reads += 1;
        self.leave_chunk(at);
        let collector = &mut self.collectors[c];
        if collector.reading > 0 {
            return;
        }
        if collector.phase == Phase::Probing {
            self.probed(c);
            return;
        }
        self.sort_survivors(c);
        self.collectors[c].phase = Phase::Gathering;
    }

    /// The first TAG of a row of the victim has come. All rows of a chunk are
    /// written alike, so where one cannot be read the next one will do.
    fn probed(&mut self, c: usize) {
        let collector = &mut self.collectors[c];
        let (victim, run) = (collector.victim.expect("it has one"), &collector.runs[0]);
        collector.used = 0;
        let next = collector.next + self.geometry.row_blocks();
        if run.failed != 0 && next < self.device.chunk(victim).programmed {
            collector.next = next;
            let at = Ppa(self.geometry.chunk_start(victim).0 + u64::from(next));
            self.read_run(c, at, 1, Content::Tags);
            return;
        }
        collector.whole = run.failed == 0 && is_whole(Tag::load(run.piece.bytes()));
        (collector.phase, collector.next) = (Phase::Looking, 0);
    }

    /// Makes batches of what was read: of logical pages, and of tables' pages.
    fn sort_survivors(&mut self, c: usize) {
        let (data, pages) = (self.collectors[c].data as usize, self.collectors[c].pages as usize);
        for write in [data, pages] {
            self.writes[write].clear();
            self.writes[write].stage = Stage::Gather;
        }
        let each = self.collectors[c].each;
        for number in 0..self.collectors[c].used {
            let (start, count) =
                (self.collectors[c].runs[number].at, self.collectors[c].runs[number].count);
            for i in 0..count {
                let at = Ppa(start.0 + u64::from(i));
                if !self.garbage.is_valid(at) {
                    continue;
                }
                let run = &self.collectors[c].runs[number];
                let tags = run.piece.bytes().get(count as usize * each..).unwrap_or_default();
                let tag =
                    tags.get(i as usize * TAG_BYTES..).filter(|bytes| bytes.len() >= TAG_BYTES);
                let tag = tag.filter(|_| run.failed >> i & 1 == 0).map(Tag::load);
                let from = (number as u32) << 16 | i;
                match tag.map(|tag| (held(tag, self.map.lpids()), tag.seq)) {
                    Some((Held::Data(lpid), seq)) => {
                        self.writes[data].add(lpid, from, Location::at(at, false), seq);
                    }
                    Some((Held::Page(page), _)) if self.is_at(page, at) => {
                        if !self.is_page_busy(page) {
                            self.writes[pages].add(page.name(), 0, Location::NONE, 0);
                        }
                    }
                    _ => self.collectors[c].lost = true,
                }
            }
        }
    }

    fn is_at(&self, page: Page, at: Ppa) -> bool {
        self.has_page(page) && self.place_of(page).ppa() == Some(at)
    }

    /// Goes on when the survivors' pages of MAP are there.
    fn gather_survivors(&mut self, now: Time, c: usize) -> bool {
        let (data, pages) = (self.collectors[c].data, self.collectors[c].pages);
        let gathered = [self.gather_readable(c, data), self.gather_readable(c, pages)];
        if gathered.contains(&Gathered::Waits) {
            return false;
        }
        self.collectors[c].phase = Phase::Moving;
        for id in [data, pages] {
            self.keep_current(id);
            if self.writes[id as usize].entries.is_empty() {
                self.give_up(now, id, Status::SUCCESS);
            } else {
                self.collectors[c].moved = true;
                self.writes[id as usize].stage = Stage::Queued;
                self.queue(id);
            }
        }
        true
    }

    /// Pins the pages of MAP of survivors. Those whose page cannot be read stay
    /// where they are.
    fn gather_readable(&mut self, c: usize, id: u32) -> Gathered {
        loop {
            let gathered = self.gather(id);
            if gathered != Gathered::Lost {
                return gathered;
            }
            self.collectors[c].lost = true;
            self.leave_lost(id);
        }
    }

    /// Leaves out what is no longer current, or will not be soon.
    pub(super) fn keep_current(&mut self, id: u32) {
        let mut kept = 0;
        for n in 0..self.writes[id as usize].entries.len() {
            let entry = self.writes[id as usize].entries[n];
            let stays = match self.writes[id as usize].stream {
                super::space::Stream::Meta => {
                    let page = Page::from_name(entry.id).expect("it was named here");
                    let stays = !self.is_page_busy(page);
                    if stays {
                        self.set_page_busy(page, true);
                    } else {
                        self.let_page_go(page);
                    }
                    stays
                }
                _ => {
                    let (page, at) = Map::split(entry.id);
                    let slot = self.map.slot_of(page).expect("it is pinned");
                    let held = self.map.get(slot, at);
                    let stays = held.ppa() == entry.prior.ppa() && !held.is_pending();
                    if stays {
                        // With its mark, as MAP has it.
                        self.writes[id as usize].entries[n].prior = held;
                    } else {
                        self.map.unpin(slot);
                    }
                    stays
                }
            };
            if stays {
                let write = &mut self.writes[id as usize];
                write.entries.swap(kept, n);
                write.from.swap(kept, n);
                kept += 1;
            }
        }
        let write = &mut self.writes[id as usize];
        write.entries.truncate(kept);
        write.from.truncate(kept);
        (write.acquired, write.loaded) = (kept, kept);
    }

    fn let_page_go(&mut self, page: Page) {
        if page.kind == super::page::Kind::Map {
            let slot = self.map.slot_of(page.number as usize).expect("it is pinned");
            self.map.unpin(slot);
        }
    }

    /// A batch of a collector, or of tables' pages, is over.
    pub(super) fn side_done(&mut self, id: u32) {
        let Some(owner) = self.writes[id as usize].owner else { return };
        let c = owner as usize;
        if self.collectors[c].phase != Phase::Moving {
            return;
        }
        let (data, pages) = (self.collectors[c].data, self.collectors[c].pages);
        let idle = |id: u32| self.writes[id as usize].stage == Stage::Idle;
        if idle(data) && idle(pages) {
            self.collectors[c].phase = Phase::Looking;
        }
    }

    /// All valid blocks of the victim were looked at once.
    fn chunk_looked_at(&mut self, c: usize) {
        let victim = self.collectors[c].victim.expect("it has one");
        if self.garbage.valid(victim) == 0 {
            self.victim_done(c);
            return;
        }
        let on_way = self.is_under_way();
        let collector = &mut self.collectors[c];
        if !collector.lost && (std::mem::take(&mut collector.moved) || on_way) {
            // What is being written anew will be garbage.
            collector.phase = Phase::Waiting(self.applied);
            return;
        }
        (collector.victim, collector.phase) = (None, Phase::Idle);
        self.space.end(victim);
        self.chunk_mut(victim).stuck = true;
        self.counters.stuck += 1;
    }

    /// Nothing in the victim is valid.
    fn victim_done(&mut self, c: usize) {
        let victim = self.collectors[c].victim.take().expect("it has one");
        self.collectors[c].phase = Phase::Idle;
        self.chunk_mut(victim).usage = Use::Leaving;
        self.leaving.push_back((victim, self.applied));
    }

    /// Erases chunks that hold nothing any more, as far as the durable log lets
    /// them go.
    fn erase_leaving(&mut self) -> bool {
        let (mut any, mut held) = (false, false);
        for _ in 0..self.leaving.len() {
            let (chunk, after) = self.leaving.pop_front().expect("they were counted");
            let early = after > self.log.durable_done && !is(Mutation::EraseEarly);
            held |= early;
            if early || self.space.chunks[chunk].readers > 0 || self.erasing >= ERASES {
                self.leaving.push_back((chunk, after));
                continue;
            }
            self.space.chunks[chunk].usage = Use::Erasing;
            self.erasing += 1;
            self.counters.erases += 1;
            let failed = self.space.chunks[chunk].failed;
            let op = if failed { VectorOp::Retire } else { VectorOp::Reset };
            let at = self.geometry.chunk_start(chunk);
            self.send(Cookie::Erase(chunk as u32), op, Content::Data, at, 1, Buffer::empty());
            any = true;
        }
        let short = self.short_of_room || self.space.free() < self.low_mark();
        if held && self.log.takes_a_row() && short {
            self.log.wants_done = true;
            any = true;
        }
        any
    }

    /// An erase or retirement is over.
    pub(super) fn erase_done(&mut self, chunk: usize, status: Status) {
        self.erasing -= 1;
        self.changes += 1;
        self.wear.raise(chunk, self.device.chunk(chunk).wear);
        if status.is_ok() && !self.space.chunks[chunk].failed {
            self.space.give(chunk);
            self.level_wear();
        } else {
            self.space.end(chunk);
            self.space.chunks[chunk].usage = Use::Gone;
            self.failed.retain(|&failed| failed != chunk);
            self.counters.retired += 1;
        }
    }

    /// A host's batch waits for room and nothing was done. Where the log holds
    /// chunks, checkpoints let them go; where that does not help, there is no
    /// room.
    #[cold]
    fn look_for_end(&mut self, now: Time) -> bool {
        let at_work = self.expects_room()
            || !self.order.is_empty()
            || !self.log.is_idle()
            || self.checkpoint.is_at_work();
        if at_work {
            return false;
        }
        if self.forced < 3 {
            self.forced += 1;
            self.checkpoint.asked = true;
            return true;
        }
        self.forced = 0;
        let id = self.arrivals.pop_front().expect("it waits for room");
        self.short_of_room = false;
        self.give_up(now, id, Status::CAPACITY_EXCEEDED);
        true
    }
}
