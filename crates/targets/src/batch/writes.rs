//! The life of a batch: the host's, one of collection, or one of tables' pages.
//!
//! It is taken, its pages of MAP are brought into memory and stay there; then
//! its record waits for the next row of the log, with the rows that its pages
//! go to. When that row is durable the pages are programmed, all units at once.
//! Those that fail get other places and an RDESC_A, again and again. When all are
//! durable and all batches before it in the log are installed, its places are
//! entered into MAP and GBITV in one go, and it is acknowledged.

use std::ops::Range;

use device::{Content, OpenChannel, VectorOp};
use flash::{BlockBits, Ppa, TAG_BYTES, Tag};
use port::{BatchDone, BatchOp, BatchReq, Buffer, Desc, Status, Time};

use super::location::Location;
use super::log::Item;
use super::map::{Map, State};
use super::mutation::{Mutation, is};
use super::page::{Kind, PAD, Page};
use super::record::{Entry, What};
use super::space::Stream;
use super::write::{Row, Stage, Write};
use super::{BLOCK, Batch, Cookie};

/// Whether a batch has its pages of MAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    All,
    /// Some are on their way, or have no place yet.
    Waits,
    /// One cannot be read.
    Lost,
}

impl<D: OpenChannel> Batch<D> {
    /// Takes a host's batch that was checked. The caller saw an idle place.
    pub(super) fn take_batch(&mut self, req: BatchReq) {
        let idle = |w: &u32| self.writes[*w as usize].stage == Stage::Idle;
        let id = (0..self.config.batches as u32).find(idle).expect("the caller saw one");
        self.scratch.clear();
        let desc = Desc::parse(req.buffer.bytes()).expect("it was checked");
        self.scratch.extend(desc.lpids().enumerate().map(|(i, lpid)| (lpid, i as u32)));
        let written = desc.written() as u32;
        let write = &mut self.writes[id as usize];
        write.clear();
        // Of a page that comes twice the later write wins; then they are in
        // their order again.
        let taken = self.scratch.len();
        self.scratch.sort_unstable_by_key(|&(lpid, from)| (lpid, std::cmp::Reverse(from)));
        self.scratch.dedup_by_key(|page| page.0);
        self.scratch.sort_unstable_by_key(|page| page.1);
        for &(lpid, from) in &self.scratch {
            write.add(lpid, from, Location::NONE, 0);
            write.given_up += usize::from(from >= written);
        }
        self.counters.superseded += (taken - write.entries.len()) as u64;
        self.counters.given_up += write.given_up as u64;
        self.counters.user += (write.entries.len() - write.given_up) as u64;
        (write.stage, write.id, write.buffer) = (Stage::Gather, req.id, req.buffer);
        write.arrival = self.arrived;
        self.arrived += 1;
        self.arrivals.push_back(id);
    }

    /// Moves host's batches on to the log, oldest first, as far as there are
    /// free chunks and their pages of MAP are there. True if one moved.
    pub(super) fn admit(&mut self, now: Time) -> bool {
        let mut moved = false;
        while let Some(&id) = self.arrivals.front() {
            if !self.writes[id as usize].admitted && !self.has_room(id) {
                self.short_of_room = true;
                break;
            }
            (self.short_of_room, self.forced) = (false, 0);
            self.writes[id as usize].admitted = true;
            match self.gather(id) {
                Gathered::All => {
                    self.writes[id as usize].stage = Stage::Queued;
                    self.queue(id);
                }
                Gathered::Waits => break,
                Gathered::Lost => self.give_up(now, id, Status::UNRECOVERED_READ),
            }
            self.arrivals.pop_front();
            moved = true;
        }
        moved
    }

    /// Whether a batch is on its way. One of the host's that was not let in yet
    /// is not: it may wait for what asks.
    pub(super) fn is_under_way(&self) -> bool {
        let waits = |write: &Write| write.stream == Stream::User && write.stage == Stage::Gather;
        self.writes.iter().any(|write| write.stage != Stage::Idle && !waits(write))
    }

    /// Whether the host's stream has room for a batch and for those that were
    /// let in and have no places yet, there are chunks for their records, and the
    /// log is not too long.
    fn has_room(&self, id: u32) -> bool {
        let row = self.geometry.row_blocks() as usize;
        let data = |write: &Write| write.entries.len() - write.given_up;
        let rows = |write: &Write| (data(write).div_ceil(row) * row) as u64;
        let waits = |write: &&Write| write.stage == Stage::Queued && write.lsn == 0;
        let users = &self.writes[..self.config.batches];
        let waiting: u64 = users.iter().filter(waits).map(rows).sum();
        let need = waiting + rows(&self.writes[id as usize]);
        self.space.free() > self.layout.floor
            && self.space.room(Stream::User, self.layout.reserve) >= need
            && (self.log.live.len() as u64) < 4 * self.config.log_rows
    }

    /// Pins the pages of MAP of a batch, and asks for those that are not there.
    pub(super) fn gather(&mut self, id: u32) -> Gathered {
        let (mut at, count) = {
            let write = &self.writes[id as usize];
            (write.acquired, write.entries.len())
        };
        while at < count {
            if let Some(page) = self.writes[id as usize].map_page(at) {
                let Some(slot) = self.hold_page(page) else { break };
                self.map.pin(slot);
            }
            at += 1;
        }
        let write = &mut self.writes[id as usize];
        write.acquired = at;
        while write.loaded < at {
            if let Some(page) = write.map_page(write.loaded) {
                let slot = self.map.slot_of(page).expect("it is pinned");
                match self.map.slot(slot).state {
                    State::Ready => {}
                    State::Lost => return Gathered::Lost,
                    State::Loading | State::Free => return Gathered::Waits,
                }
            }
            write.loaded += 1;
        }
        if at < count { Gathered::Waits } else { Gathered::All }
    }

    /// Takes the page out of a batch whose page of MAP is lost.
    pub(super) fn leave_lost(&mut self, id: u32) {
        let write = &mut self.writes[id as usize];
        let n = write.loaded;
        let page = write.map_page(n).expect("it needs one");
        write.entries.remove(n);
        write.from.remove(n);
        write.acquired -= 1;
        let slot = self.map.slot_of(page).expect("it is pinned");
        self.map.unpin(slot);
    }

    /// Puts a batch down for the log.
    pub(super) fn queue(&mut self, id: u32) {
        let write = &mut self.writes[id as usize];
        let count = write.entries.len();
        write.list.clear();
        write.list.extend(0..count as u16);
        write.was.clear();
        write.was.resize(count, Location::NONE);
        (write.parts, write.parts_done) = (count.div_ceil(write.what().capacity()) as u16, 0);
        self.log.queue.push_back(Item { write: id, amends: false });
    }

    /// Gives a batch its place in the log, and each page its prior location.
    /// False where its stream has no room yet.
    pub(super) fn prepare(&mut self, item: Item) -> bool {
        let write = &self.writes[item.write as usize];
        let row = self.geometry.row_blocks() as usize;
        let blocks = (write.data().div_ceil(row) * row) as u64;
        if self.space.room(write.stream, 0) < blocks && self.expects_room() {
            return false;
        }
        if item.amends {
            let write = &mut self.writes[item.write as usize];
            for &n in &write.list {
                write.was[n as usize] = write.entries[n as usize].new;
            }
            return true;
        }
        let lsn = self.next_lsn;
        self.next_lsn += 1;
        self.order.push_back(item.write);
        self.writes[item.write as usize].lsn = lsn;
        for n in 0..self.writes[item.write as usize].entries.len() {
            let write = &self.writes[item.write as usize];
            let id = write.entries[n].id;
            let prior = match write.stream {
                Stream::User => self.newest(id),
                Stream::Collect => write.entries[n].prior,
                Stream::Meta => self.place_of(Page::from_name(id).expect("it was named here")),
            };
            self.writes[item.write as usize].entries[n].prior = prior;
        }
        true
    }

    /// Where the newest copy of a page is, or will be. Its page of MAP is there.
    fn newest(&self, lpid: u64) -> Location {
        let (page, entry) = Map::split(lpid);
        let slot = self.map.slot_of(page).expect("it is pinned");
        let held = self.map.get(slot, entry);
        if held.is_pending() {
            return self.side.get(lpid).expect("a mark leads to the side table");
        }
        held
    }

    /// Takes rows for the pages of a batch that do not go into the row of the
    /// log. False if there are none.
    pub(super) fn take_rows(&mut self, id: u32) -> bool {
        let row_blocks = self.geometry.row_blocks();
        let write = &mut self.writes[id as usize];
        write.rows.clear();
        let outside = write.data() - write.in_row;
        let whole = write.stream == Stream::Meta;
        let mut at = 0;
        while at < outside {
            let write = &mut self.writes[id as usize];
            let Some(start) = self.space.row(write.stream, &self.wear, 0) else { return false };
            let count = (outside - at).min(row_blocks as usize);
            write.rows.push(Row { at: start, from: at as u16, count: count as u16 });
            for i in 0..count {
                let place = Location::at(Ppa(start.0 + i as u64), whole);
                self.set_new(id, at + i, place);
            }
            at += count;
        }
        self.mark_given_up(id);
        true
    }

    /// The newest copies of the pages that a batch gives up are nowhere.
    fn mark_given_up(&mut self, id: u32) {
        let write = &self.writes[id as usize];
        for n in &write.list[write.data()..] {
            let lpid = write.entries[*n as usize].id;
            let (page, entry) = Map::split(lpid);
            let slot = self.map.slot_of(page).expect("it is pinned");
            let held = self.map.get(slot, entry);
            self.map.put(slot, entry, held.pending(true));
            self.side.set(lpid, Location::NONE, write.lsn);
        }
    }

    /// The page at position `n` of a batch's list goes to `to`.
    pub(super) fn set_new(&mut self, id: u32, n: usize, to: Location) {
        let write = &mut self.writes[id as usize];
        let entry = &mut write.entries[write.list[n] as usize];
        let old = std::mem::replace(&mut entry.new, to);
        let (lpid, lsn, stream, prior) = (entry.id, write.lsn, write.stream, entry.prior);
        if let Some(old) = old.ppa() {
            self.chunk_mut(self.geometry.chunk_index(old)).pending -= 1;
        }
        let at = to.ppa().expect("a place for a page");
        self.chunk_mut(self.geometry.chunk_index(at)).pending += 1;
        // A copy by collection that a newer one has overtaken will not count: who
        // comes next does not replace it.
        let overtaken = stream == Stream::Collect
            && !self.side.is_of(lpid, lsn)
            && self.newest(lpid).ppa() != prior.ppa();
        if stream != Stream::Meta && !overtaken {
            let (page, entry) = Map::split(lpid);
            let slot = self.map.slot_of(page).expect("it is pinned");
            let held = self.map.get(slot, entry);
            self.map.put(slot, entry, held.pending(true));
            self.side.set(lpid, to, lsn);
        }
    }

    /// Puts the page at position `n` of a batch's list into a block of a row,
    /// and its TAG. What the medium does not keep is zeros.
    pub(super) fn fill_page(&mut self, id: u32, n: usize, data: &mut [u8], tag: &mut [u8]) {
        let write = &self.writes[id as usize];
        let n = write.list[n] as usize;
        let (entry, from, kept) = (write.entries[n], write.from[n], self.kept);
        let tagged = match write.stream {
            Stream::User => {
                let bytes = &write.buffer.bytes()[BLOCK + from as usize * kept..][..kept];
                data[..kept].copy_from_slice(bytes);
                data[kept..].fill(0);
                Tag { id: entry.id, seq: write.lsn }
            }
            Stream::Collect => {
                let owner = write.owner.expect("a collector made it") as usize;
                data[..kept].copy_from_slice(&self.collectors[owner].bytes_of(from)[..kept]);
                data[kept..].fill(0);
                Tag { id: entry.id, seq: entry.seq }
            }
            Stream::Meta => {
                let page = Page::from_name(entry.id).expect("it was named here");
                self.store_page(page, data);
                page.tag(data, self.applied)
            }
        };
        tagged.store(tag);
    }

    /// The record of a batch, or its RDESC_A, is durable.
    pub(super) fn record_durable(&mut self, id: u32) {
        let write = &mut self.writes[id as usize];
        write.stage = Stage::Writing;
        write.outstanding = write.rows.len() as u32;
        self.issue.extend((0..write.rows.len() as u32).map(|row| (id, row)));
        if write.outstanding == 0 {
            self.pages_written(id);
        }
    }

    /// Sends rows of pages whose records are durable, in their order, as far as
    /// there are buffers. True if one went.
    pub(super) fn send_rows(&mut self) -> bool {
        let mut sent = false;
        while let Some(&(id, row)) = self.issue.front() {
            let whole = self.writes[id as usize].stream == Stream::Meta;
            if self.writes[id as usize].stage != Stage::Writing {
                // It was given up.
                self.issue.pop_front();
                continue;
            }
            let pool = if whole { &mut self.whole_rows } else { &mut self.data_rows };
            let Some(mut buffer) = pool.pop() else { break };
            self.issue.pop_front();
            let content = if whole { Content::Whole } else { Content::Tagged };
            let (each, _) = content.each(self.kept as u32);
            let Row { at, from, count } = self.writes[id as usize].rows[row as usize];
            let blocks = self.geometry.row_blocks() as usize;
            let (data, tags) = buffer.bytes_mut().split_at_mut(blocks * each);
            for i in 0..count as usize {
                let (data, tag) = (&mut data[i * each..][..each], &mut tags[i * TAG_BYTES..]);
                self.fill_page(id, from as usize + i, data, &mut tag[..TAG_BYTES]);
            }
            data[count as usize * each..].fill(0);
            for tag in tags.chunks_exact_mut(TAG_BYTES).skip(count as usize) {
                Tag { id: PAD, seq: 0 }.store(tag);
            }
            self.counters.padding += (blocks - count as usize) as u64;
            self.count_placed(id, from as usize..(from + count) as usize);
            let cookie = Cookie::Pages(id, row);
            self.send(cookie, VectorOp::Write, content, at, blocks as u8, buffer);
            sent = true;
        }
        sent
    }

    /// Counts pages of a batch, by positions in its list, whose row is sent. What failed
    /// before was counted then.
    pub(super) fn count_placed(&mut self, id: u32, positions: Range<usize>) {
        let write = &self.writes[id as usize];
        if write.stream == Stream::User {
            let is_new = |n: &&u16| write.was[**n as usize] == Location::NONE;
            self.counters.placed += write.list[positions].iter().filter(is_new).count() as u64;
        }
    }

    /// A row of pages is over.
    pub(super) fn pages_done(
        &mut self,
        now: Time,
        id: u32,
        row: u32,
        (status, failed): (Status, BlockBits),
        buffer: Buffer,
    ) {
        let write = &mut self.writes[id as usize];
        if write.stream == Stream::Meta {
            self.whole_rows.push(buffer);
        } else {
            self.data_rows.push(buffer);
        }
        let Row { at, from, count } = write.rows[row as usize];
        let mut bits = 0;
        if !status.is_ok() {
            bits = if failed == 0 { BlockBits::MAX } else { failed };
            self.counters.failed_programs += 1;
            self.fail_chunk(self.geometry.chunk_index(at));
        }
        let write = &mut self.writes[id as usize];
        if write.stage != Stage::Writing {
            return;
        }
        let bad = (0..count).filter(|i| bits >> i & 1 == 1);
        write.failed.extend(bad.map(|i| write.list[(from + i) as usize]));
        write.outstanding -= 1;
        if write.outstanding > 0 {
            return;
        }
        if write.failed.is_empty() {
            self.pages_written(id);
            return;
        }
        std::mem::swap(&mut write.list, &mut write.failed);
        write.failed.clear();
        write.given_up = 0;
        write.stage = Stage::Amending;
        (write.parts, write.parts_done) =
            (write.list.len().div_ceil(What::Amend.capacity()) as u16, 0);
        self.counters.amended += write.list.len() as u64;
        if self.fault.is_some() {
            self.fail_behind(now, id);
            return;
        }
        // Before what has not begun: all behind it waits for it.
        let begun = self
            .log
            .queue
            .front()
            .is_some_and(|item| self.writes[item.write as usize].parts_done > 0);
        self.log.queue.insert(usize::from(begun), Item { write: id, amends: true });
    }

    /// All pages of a batch are programmed.
    fn pages_written(&mut self, id: u32) {
        let syncs = self.cached && !is(Mutation::AckUnsynced);
        let stage = if syncs { Stage::Written } else { Stage::Synced };
        self.writes[id as usize].stage = stage;
    }

    /// On a target that takes no writes any more: a batch cannot be finished,
    /// so none behind it can be.
    #[cold]
    fn fail_behind(&mut self, now: Time, id: u32) {
        let at = self.order.iter().position(|&other| other == id).unwrap_or(0);
        while self.order.len() > at {
            let last = self.order.pop_back().expect("it is not empty");
            self.give_up(now, last, Status::WRITE_FAULT);
        }
    }

    /// Installs what is durable, in the order of the log. True if anything was.
    pub(super) fn install(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&id) = self.order.front() {
            if self.writes[id as usize].stage != Stage::Synced {
                break;
            }
            self.order.pop_front();
            match self.writes[id as usize].stream {
                Stream::Meta => self.install_pages(id),
                Stream::User | Stream::Collect => self.install_data(id),
            }
            self.applied = self.writes[id as usize].lsn;
            self.finish(now, id, Status::SUCCESS);
            any = true;
        }
        any
    }

    /// Enters a batch of logical pages into MAP and GBITV.
    fn install_data(&mut self, id: u32) {
        let collects = self.writes[id as usize].stream == Stream::Collect;
        let lsn = self.writes[id as usize].lsn;
        for n in 0..self.writes[id as usize].entries.len() {
            let Entry { id: lpid, new, prior, .. } = self.writes[id as usize].entries[n];
            let (page, entry) = Map::split(lpid);
            let slot = self.map.slot_of(page).expect("it is pinned");
            let held = self.map.get(slot, entry);
            let last = self.side.remove(lpid, lsn);
            if let Some(at) = new.ppa() {
                self.chunk_mut(self.geometry.chunk_index(at)).pending -= 1;
            }
            let was = held.pending(false);
            // What collection moved counts only where nothing newer came.
            if !collects || was == prior || is(Mutation::StaleCollect) {
                if !is(Mutation::KeepPrior) {
                    self.garbage.set_garbage(was, lsn);
                }
                self.garbage.set_valid(new, lsn);
                self.map.set(slot, entry, new.pending(held.is_pending() && !last), lsn);
            } else if last {
                self.map.put(slot, entry, was);
            }
            self.map.unpin(slot);
        }
    }

    /// Enters a batch of tables' pages.
    fn install_pages(&mut self, id: u32) {
        let lsn = self.writes[id as usize].lsn;
        for n in 0..self.writes[id as usize].entries.len() {
            let Entry { id: name, new, .. } = self.writes[id as usize].entries[n];
            let page = Page::from_name(name).expect("it was named here");
            let at = new.ppa().expect("it was written");
            self.chunk_mut(self.geometry.chunk_index(at)).pending -= 1;
            self.garbage.set_garbage(self.place_of(page), lsn);
            self.garbage.set_valid(new, lsn);
            self.page_installed(page, new, lsn);
            if page.kind == Kind::Map {
                let slot = self.map.slot_of(page.number as usize).expect("it is pinned");
                self.map.unpin(slot);
            }
        }
    }

    /// A batch comes to nothing: its pages of MAP are let go.
    pub(super) fn give_up(&mut self, now: Time, id: u32, status: Status) {
        for n in 0..self.writes[id as usize].acquired {
            if let Some(page) = self.writes[id as usize].map_page(n) {
                let slot = self.map.slot_of(page).expect("it is pinned");
                self.map.unpin(slot);
            }
        }
        self.writes[id as usize].acquired = 0;
        self.finish(now, id, status);
    }

    /// A batch is over.
    pub(super) fn finish(&mut self, now: Time, id: u32, status: Status) {
        let write = &mut self.writes[id as usize];
        write.stage = Stage::Idle;
        match write.stream {
            Stream::User => {
                let buffer = std::mem::take(&mut write.buffer);
                let done =
                    BatchDone { id: write.id, op: BatchOp::WriteBatch, status, at: now, buffer };
                self.ready.put(|| done);
                self.counters.batches += u64::from(status.is_ok());
                self.counters.failed_batches += u64::from(!status.is_ok());
                self.look_flushes(now);
            }
            Stream::Collect | Stream::Meta => self.side_done(id),
        }
    }
}
