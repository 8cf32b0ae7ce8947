//! Start-up: from the checkpoint record, along the log, to a target that serves.
//!
//! The newest whole record of the slots says where the log begins. The log is
//! read to its end. Batches that a done note covers are installed; of the others
//! the flash locations are read and their TAGs compared, in order, up to the
//! first batch that is not complete. That one and all behind it were never
//! acknowledged, and they never were: the next row of the log says so before
//! anything else is written. A recovery that is cut before that row is durable
//! has changed nothing. Where none of the places for that row can be written any
//! more, a new checkpoint record names others first: a *detour*.
//!
//! Each page of MAP and MAP_S says in its TAG up to which LSN it holds all, so
//! what it lacks is done again exactly. GBITV is made from the locations that
//! the log names, new and prior ones: of all these the valid ones are those that
//! the tables lead to in the end.
//!
//! Fails, and leaves the drive as it was, when no record is whole though there
//! was one, when a row of the log or a page of a table cannot be read, or when
//! the drive stops answering.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use device::{Content, OpenChannel};
use flash::{Chunk, ChunkState, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Time};

use super::config::BatchError;
use super::location::Location;
use super::log::{Link, LiveRow};
use super::map::{Map, PAGE_BYTES, State};
use super::page::{Kind, Page, is_log, is_whole};
use super::paged::PAGE_WORDS;
use super::record::{Entry, MAX_LINKS, What};
use super::runner::Runner;
use super::slot::{Checkpoint, Detour, MAX_DETOURS, NoRecord};
use super::space::{Stream, Use};
use super::walk::{Row, walk, was_written};
use super::{Batch, BatchConfig, Recovery, is_read};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Pages of MAP that are read at once.
const PAGES_AT_ONCE: usize = 8192;

/// LSNs that are left out after a recovery: at least as many as the batches that
/// a row of the log begins, so that none comes again of a row that was lost.
const SKIPPED: u64 = 64;

/// A batch as the log has it.
#[derive(Default)]
struct Logged {
    what: What,
    parts: u16,
    seen: u16,
    /// The done note of its record: what was installed when it began.
    done: u64,
    entries: Vec<Entry>,
}

/// What the log says.
#[derive(Default)]
struct Story {
    batches: BTreeMap<u64, Logged>,
    /// Locations that were to hold a page and failed.
    failed: Vec<Location>,
    /// Pages that went elsewhere, of batches that began before the log that is
    /// read, and are installed.
    moved: Vec<Entry>,
    /// LSNs of batches that never were.
    void: Vec<RangeInclusive<u64>>,
    /// All batches up to this are installed.
    done: u64,
    /// The highest LSN.
    top: u64,
}

impl Story {
    /// Takes in the records of the log, in their order.
    fn of(rows: &mut [Row]) -> Story {
        let mut story = Story::default();
        for (header, entries) in rows.iter_mut().flat_map(|row| std::mem::take(&mut row.records)) {
            story.done = story.done.max(header.done);
            story.top = story.top.max(header.lsn);
            match header.what {
                What::Done => {}
                What::Void => {
                    let first = entries.first().map_or(u64::MAX, |entry| entry.id);
                    let mut from = story.batches.split_off(&first);
                    let behind = from.split_off(&(header.lsn + 1));
                    story.batches.extend(behind);
                    story.void.push(first..=header.lsn);
                }
                What::Amend => story.amend(header.lsn, entries),
                What::User | What::Collect | What::Meta => {
                    let batch = story.batches.entry(header.lsn).or_default();
                    (batch.what, batch.parts, batch.done) =
                        (header.what, header.parts, header.done);
                    batch.seen += 1;
                    batch.entries.extend(entries);
                }
            }
        }
        story
    }

    /// Pages of a batch failed and go elsewhere.
    fn amend(&mut self, lsn: u64, entries: Vec<Entry>) {
        let batch = self.batches.get_mut(&lsn);
        for entry in &entries {
            self.failed.push(entry.prior);
        }
        match batch {
            Some(batch) => {
                for Entry { id, new, .. } in entries {
                    if let Some(held) = batch.entries.iter_mut().find(|held| held.id == id) {
                        held.new = new;
                    }
                }
            }
            None => self.moved.extend(entries),
        }
    }
}

/// What a part of the log does to a page of MAP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    page: u32,
    lsn: u64,
    entry: u16,
    collects: bool,
    new: Location,
    prior: Location,
}

impl<D: OpenChannel> Batch<D> {
    /// Starts a target on a drive: makes it new if the drive is empty, or
    /// recovers what it holds. The drive is at work until [`Batch::now`].
    pub fn open(device: D, config: BatchConfig, now: Time) -> Result<Batch<D>, BatchError> {
        let mut target = Batch::build(device, config, now)?;
        let found = target.find_record()?;
        target.note_chunks();
        match found {
            Some(record) => target.restore(&record)?,
            None => target.format()?,
        }
        target.recovery.time = target.now.since(now);
        Ok(target)
    }

    /// Finds the newest whole checkpoint record. `None` if there never was one.
    fn find_record(&mut self) -> Result<Option<Checkpoint>, BatchError> {
        let size = self.slots.record_blocks;
        let (mut best, mut damage): (Option<Checkpoint>, Option<NoRecord>) = (None, None);
        for i in 0..self.slots.chunks.len() {
            let index = self.slots.chunks[i].chunk;
            let chunk = self.device.chunk(index);
            self.space.chunks[index].usage = Use::Slot;
            let whole_records = chunk.programmed / size;
            let held = &mut self.slots.chunks[i];
            held.usable = chunk.state != ChunkState::Offline && !chunk.has_failed();
            let goes_on = chunk.wp.is_multiple_of(size) && chunk.state != ChunkState::Closed;
            held.next = if goes_on { chunk.wp } else { self.geometry.chunk_blocks() };
            for number in (0..whole_records).rev() {
                match self.read_record(index, number * size)? {
                    Ok(record) => {
                        self.slots.chunks[i].newest = record.number;
                        if best.as_ref().is_none_or(|best| best.number < record.number) {
                            best = Some(record);
                        }
                        break;
                    }
                    Err(why) => damage = damage.or(Some(why)),
                }
            }
        }
        if !self.slots.chunks.iter().any(|held| held.usable) {
            return Err(BatchError::Slots);
        }
        if let Some(best) = &best {
            // A damaged one may have the next number.
            self.checkpoint.number = best.number + if damage.is_some() { 2 } else { 0 };
        }
        match (best, damage) {
            (Some(best), _) => Ok(Some(best)),
            (None, None) => Ok(None),
            (None, Some(NoRecord::Damaged)) => Err(BatchError::Checkpoint),
            (None, Some(NoRecord::Version(version))) => Err(BatchError::Version(version)),
            (None, Some(NoRecord::Mismatch(found))) => {
                Err(BatchError::Mismatch { found, asked: self.config.pages })
            }
        }
    }

    fn read_record(
        &mut self,
        chunk: usize,
        block: u32,
    ) -> Result<Result<Checkpoint, NoRecord>, BatchError> {
        let start = self.geometry.chunk_start(chunk).0 + u64::from(block);
        let blocks: Vec<Ppa> =
            (0..u64::from(self.slots.record_blocks)).map(|i| Ppa(start + i)).collect();
        let mut bytes = vec![0; blocks.len() * BLOCK];
        let mut runner = Runner::new(&mut self.device, self.now);
        runner.read(&blocks, Content::Whole, |i, block| {
            if is_read(block.status) {
                bytes[i * BLOCK..][..BLOCK].copy_from_slice(block.data);
            }
            Ok(())
        })?;
        self.now = runner.now;
        Ok(Checkpoint::load(&bytes, &self.geometry, self.config.pages))
    }

    /// Takes note of what the drive says of its chunks.
    fn note_chunks(&mut self) {
        for unit in self.geometry.pus_channels_first() {
            for number in 0..self.geometry.chunks() {
                let index = self.geometry.chunk_of(unit, number);
                let chunk = self.device.chunk(index);
                self.wear.raise(index, chunk.wear);
                if self.space.chunks[index].usage == Use::Slot {
                    continue;
                }
                match chunk.state {
                    ChunkState::Offline => self.space.chunks[index].usage = Use::Gone,
                    ChunkState::Free => self.space.give(index),
                    ChunkState::Open | ChunkState::Closed => {
                        self.space.chunks[index].usage = Use::Closed;
                        self.space.chunks[index].failed = chunk.has_failed();
                        self.failed_waits |= chunk.has_failed();
                    }
                }
            }
        }
    }

    /// Makes a new target: a first row of log, and a record that leads to it.
    fn format(&mut self) -> Result<(), BatchError> {
        self.recovery.fresh = true;
        self.begin_log();
        self.log.wants_done = true;
        self.run_until(|target| target.log.is_idle())?;
        self.checkpoint.asked = true;
        self.run_until(|target| !target.checkpoint.is_at_work())
    }

    /// Lets the drive work until something is so.
    fn run_until(&mut self, is_so: impl Fn(&Batch<D>) -> bool) -> Result<(), BatchError> {
        self.pump(self.now);
        while !is_so(self) {
            if let Some(fault) = &self.fault {
                return Err(fault.clone());
            }
            let at = self.device.next_event().ok_or(BatchError::Stopped)?;
            self.work(at.max(self.now));
        }
        Ok(())
    }

    /// Recovers what the drive holds.
    fn restore(&mut self, record: &Checkpoint) -> Result<(), BatchError> {
        let mut rows = self.walk_log(record)?;
        let firsts: Vec<Option<u64>> = rows.iter().map(first_of).collect();
        let mut story = Story::of(&mut rows);
        story.top = story.top.max(record.lsn);
        story.done = story.done.max(record.lsn);
        story.top = story.top.max(story.done);
        let last = story.top + SKIPPED;
        let end = self.find_end(&story)?;
        let void = end.map(|from| (from, last));
        self.recovery.unused = std::mem::take(&mut story.void);
        self.recovery.unused.push(end.unwrap_or(story.top + 1)..=last);
        if let Some(from) = end {
            self.recovery.dropped = story.batches.split_off(&from).len() as u64;
        }
        let entries = story.batches.values().map(|batch| batch.entries.len() as u64).sum();
        self.recovery = Recovery {
            checkpoint: record.number,
            rows: rows.len() as u64,
            entries,
            ..std::mem::take(&mut self.recovery)
        };
        (self.applied, self.next_lsn) = (last, last + 1);
        self.restore_tables(record, &story)?;
        self.restore_garbage(record, &story)?;
        self.restore_map(record, &story)?;
        self.restore_log(record, &rows, &firsts, story.done);
        self.resume_streams()?;
        if self.log.links.is_empty() {
            self.detour(record, rows.last().expect("it has a first").row)?;
        }
        self.log.void = void;
        if void.is_some() {
            let is_said = |target: &Batch<D>| target.log.void.is_none() || target.fault.is_some();
            self.run_until(is_said)?;
        }
        Ok(())
    }

    /// Reads the log: from where it was kept for the record before, if it still
    /// is, so that it is kept on; else from where this record needs it.
    fn walk_log(&mut self, record: &Checkpoint) -> Result<Vec<Row>, BatchError> {
        let geometry = self.geometry;
        let mut runner = Runner::new(&mut self.device, self.now);
        let is_start = |row: &Row| {
            row.row == record.start.row && Location::at(row.at, true) == record.start.at
        };
        let mut rows = None;
        if record.before.row > 0 {
            let older = walk(&mut runner, &geometry, record.before, &record.detours);
            rows = older.ok().filter(|rows| rows.iter().any(is_start));
        }
        let rows = match rows {
            Some(rows) => rows,
            None => walk(&mut runner, &geometry, record.start, &record.detours)?,
        };
        self.now = runner.now;
        Ok(rows)
    }

    /// Reads the flash locations of batches that no done note covers. Gives the
    /// LSN of the first that is not complete, if there is one.
    fn find_end(&mut self, story: &Story) -> Result<Option<u64>, BatchError> {
        let geometry = self.geometry;
        let cached = self.cached;
        for (&lsn, batch) in story.batches.range(story.done + 1..) {
            self.recovery.verified += 1;
            if batch.seen != batch.parts {
                return Ok(Some(lsn));
            }
            let blocks: Vec<Ppa> =
                batch.entries.iter().filter_map(|entry| entry.new.ppa()).collect();
            let mut complete = blocks.len() == batch.entries.len();
            let mut unread = Vec::new();
            let mut runner = Runner::new(&mut self.device, self.now);
            runner.read(&blocks, Content::Tags, |i, block| {
                let (entry, tag) = (&batch.entries[i], block.tag);
                if is_read(block.status) {
                    complete &= is_of(batch, lsn, entry, Tag::load(&tag[..TAG_BYTES]));
                } else {
                    unread.push(blocks[i]);
                }
                Ok(())
            })?;
            // A drive without a cache had programmed what it says that it has.
            complete &= unread.iter().all(|&at| !cached && was_written(&runner, &geometry, at));
            self.now = runner.now;
            if !complete {
                return Ok(Some(lsn));
            }
        }
        Ok(None)
    }

    /// Reads pages of tables, each with the LSN up to which it holds all.
    fn read_pages(
        &mut self,
        pages: &[(Page, Location)],
        mut each: impl FnMut(Page, &[u8], u64),
    ) -> Result<(), BatchError> {
        let blocks: Vec<Ppa> = pages.iter().filter_map(|(_, place)| place.ppa()).collect();
        let mut runner = Runner::new(&mut self.device, self.now);
        runner.read(&blocks, Content::Whole, |i, block| {
            let at = blocks[i];
            if !is_read(block.status) {
                return Err(BatchError::Table { at, status: block.status });
            }
            let (page, tag) = (pages[i].0, Tag::load(&block.tag[..TAG_BYTES]));
            if !page.matches(block.data, tag) {
                return Err(BatchError::Table { at, status: port::Status::SUCCESS });
            }
            each(page, block.data, tag.seq);
            Ok(())
        })?;
        self.now = runner.now;
        Ok(())
    }

    /// MAP_T, GBITV_T, WEAR_S and below them MAP_S, GBITV_S, WEAR.
    fn restore_tables(&mut self, record: &Checkpoint, story: &Story) -> Result<(), BatchError> {
        let lengths = [record.map_t.len(), record.garbage_t.len(), record.wear_s.len()];
        let tables = [self.map.tiny.len(), self.garbage.tiny.len(), self.wear.small.len()];
        if lengths != tables {
            return Err(BatchError::Checkpoint);
        }
        let fill = |to: &mut super::paged::Paged, from: &[Location]| {
            from.iter().enumerate().for_each(|(page, &place)| to.set_place(page, place));
        };
        fill(&mut self.map.tiny, &record.map_t);
        fill(&mut self.garbage.tiny, &record.garbage_t);
        fill(&mut self.wear.small, &record.wear_s);
        for (_, page, new) in pages_of(story).filter(|&(lsn, ..)| lsn > record.lsn) {
            let number = page.number as usize;
            match page.kind {
                _ if !self.has_page(page) => {}
                Kind::MapS => self.map.tiny.set_place(number, new),
                Kind::GarbageS => self.garbage.tiny.set_place(number, new),
                Kind::Wear => self.wear.small.set_place(number, new),
                Kind::Map | Kind::Garbage => {}
            }
        }
        for kind in [Kind::MapS, Kind::GarbageS] {
            self.restore_small(kind, story)?;
        }
        let mut wear = std::mem::replace(&mut self.wear, super::wear::Wear::new(&self.geometry));
        let pages: Vec<(Page, Location)> = on_flash(Kind::Wear, wear.small.places());
        self.read_pages(&pages, |page, bytes, _| wear.load(page.number as usize, bytes))?;
        std::mem::swap(&mut self.wear, &mut wear);
        for index in 0..self.geometry.chunk_slots() {
            self.wear.raise(index, wear.get(index));
        }
        Ok(())
    }

    /// MAP_S or GBITV_S: its pages, and what they lack.
    fn restore_small(&mut self, kind: Kind, story: &Story) -> Result<(), BatchError> {
        let (tiny, below) = match kind {
            Kind::MapS => (&self.map.tiny, Kind::Map),
            _ => (&self.garbage.tiny, Kind::Garbage),
        };
        let pages = on_flash(kind, tiny.places());
        let mut lsns = vec![0; tiny.len()];
        let mut places: Vec<(usize, Location)> = Vec::new();
        let geometry = self.geometry;
        self.read_pages(&pages, |page, bytes, lsn| {
            let number = page.number as usize;
            lsns[number] = lsn;
            for (i, word) in bytes.chunks_exact(8).enumerate() {
                let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                let place = Location::from_flash(word, &geometry).unwrap_or(Location::NONE);
                places.push((number * PAGE_WORDS + i, place));
            }
        })?;
        let mut set = |number: usize, place: Location, lsn: Option<u64>| match below {
            Kind::Map if number < self.map.pages() => {
                self.map.restore_place(number, place);
                if let Some(lsn) = lsn {
                    self.map.tiny.dirty(number / PAGE_WORDS).touch(lsn);
                }
            }
            Kind::Garbage if number < self.garbage.small.len() => {
                self.garbage.small.set_place(number, place);
                if let Some(lsn) = lsn {
                    self.garbage.tiny.dirty(number / PAGE_WORDS).touch(lsn);
                }
            }
            _ => {}
        };
        for (number, place) in places {
            set(number, place, None);
        }
        for (lsn, page, new) in pages_of(story).filter(|(_, page, _)| page.kind == below) {
            let number = page.number as usize;
            if lsns.get(number / PAGE_WORDS).is_some_and(|&held| lsn > held) {
                set(number, new, Some(lsn));
            }
        }
        Ok(())
    }

    /// GBITV: its pages; and of all locations that the log names, none is valid
    /// until the tables are found to lead there.
    fn restore_garbage(&mut self, record: &Checkpoint, story: &Story) -> Result<(), BatchError> {
        let pages = on_flash(Kind::Garbage, self.garbage.small.places());
        let mut garbage =
            std::mem::replace(&mut self.garbage, super::garbage::Garbage::new(&self.geometry)?);
        let read = self.read_pages(&pages, |page, bytes, _| {
            garbage.load(page.number as usize, bytes);
        });
        std::mem::swap(&mut self.garbage, &mut garbage);
        read?;
        self.garbage.count();
        let lsn = record.first;
        for entry in story.batches.values().flat_map(|batch| &batch.entries) {
            self.garbage.set_garbage(entry.new, lsn);
            self.garbage.set_garbage(entry.prior, lsn);
        }
        for &failed in &story.failed {
            self.garbage.set_garbage(failed, lsn);
        }
        for entry in &story.moved {
            self.garbage.set_garbage(entry.new, lsn);
        }
        let moved = story.moved.iter().filter_map(|entry| Page::from_name(entry.id));
        for page in pages_of(story).map(|(_, page, _)| page).chain(moved) {
            if self.has_page(page) {
                self.garbage.set_valid(self.place_of(page), lsn);
            }
        }
        Ok(())
    }

    /// MAP: what its pages on flash lack is done again; and the locations that
    /// the log names are valid where MAP leads to them.
    fn restore_map(&mut self, record: &Checkpoint, story: &Story) -> Result<(), BatchError> {
        let mut changes: Vec<Change> = Vec::new();
        for (&lsn, batch) in &story.batches {
            if batch.what == What::Meta {
                continue;
            }
            for &Entry { id, new, prior, .. } in &batch.entries {
                if id < self.config.pages {
                    let (page, entry) = Map::split(id);
                    let collects = batch.what == What::Collect;
                    let (page, entry) = (page as u32, entry as u16);
                    changes.push(Change { page, lsn, entry, collects, new, prior });
                }
            }
        }
        // Of those that went elsewhere nothing is done again; MAP says whether
        // they are still there.
        for &Entry { id, new, prior, .. } in story.moved.iter().filter(|e| e.id < self.config.pages)
        {
            let (page, entry) = Map::split(id);
            let (page, entry) = (page as u32, entry as u16);
            changes.push(Change { page, lsn: 0, entry, collects: false, new, prior });
        }
        changes.sort_unstable();
        let groups: Vec<&[Change]> = changes.chunk_by(|a, b| a.page == b.page).collect();
        for groups in groups.chunks(PAGES_AT_ONCE) {
            let page = |group: &&[Change]| u64::from(group[0].page);
            let pages: Vec<(Page, Location)> = groups
                .iter()
                .map(|group| Page { kind: Kind::Map, number: page(group) })
                .map(|page| (page, self.place_of(page)))
                .filter(|(_, place)| place.ppa().is_some())
                .collect();
            let mut held: BTreeMap<u64, (Vec<u8>, u64)> = BTreeMap::new();
            self.read_pages(&pages, |page, bytes, lsn| {
                held.insert(page.number, (bytes.to_vec(), lsn));
            })?;
            self.recovery.map_pages += pages.len() as u64;
            for group in groups {
                let (bytes, lsn) =
                    held.remove(&page(group)).unwrap_or_else(|| (vec![0; PAGE_BYTES], 0));
                self.restore_page(record, group, &bytes, lsn)?;
            }
        }
        Ok(())
    }

    /// One page of MAP: `changes` in the order of the log, to the page as flash
    /// has it, which holds all up to `held`.
    fn restore_page(
        &mut self,
        record: &Checkpoint,
        changes: &[Change],
        bytes: &[u8],
        held: u64,
    ) -> Result<(), BatchError> {
        let mut words: Vec<Location> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .map(|word| Location::from_flash(word, &self.geometry).unwrap_or(Location::NONE))
            .collect();
        let mut first = None;
        for change in changes.iter().filter(|change| change.lsn > held) {
            let word = &mut words[change.entry as usize];
            if !change.collects || *word == change.prior {
                *word = change.new;
                first = first.or(Some(change.lsn));
            }
        }
        for change in changes {
            self.garbage.set_valid(words[change.entry as usize], record.first);
        }
        let Some(first) = first else { return Ok(()) };
        let page = changes[0].page as usize;
        let Some(slot) = self.map.take_slot(page, State::Ready) else {
            let bytes = self.config.cache_bytes;
            return Err(BatchError::Cache { bytes, least: bytes + PAGE_BYTES as u64 });
        };
        for (entry, &word) in words.iter().enumerate() {
            self.map.put(slot, entry, word);
        }
        self.map.touch(slot, first);
        Ok(())
    }

    /// The log goes on where it ended.
    fn restore_log(
        &mut self,
        record: &Checkpoint,
        rows: &[Row],
        firsts: &[Option<u64>],
        done: u64,
    ) {
        let mut first = self.next_lsn;
        let mut live: Vec<LiveRow> = Vec::with_capacity(rows.len());
        for (row, begins) in rows.iter().zip(firsts).rev() {
            first = begins.unwrap_or(first).min(first);
            live.push(LiveRow { row: row.row, at: row.at, first });
        }
        for row in live.into_iter().rev() {
            let index = self.geometry.chunk_index(row.at);
            self.space.chunks[index].log_rows += 1;
            self.log.live.push_back(row);
        }
        let last = rows.last().expect("it has a first");
        (self.log.row, self.log.prev) = (last.row + 1, Location::at(last.at, true));
        self.log.durable_done = done;
        self.log.written = rows.len() as u64;
        self.checkpoint.start = record.start;
        self.checkpoint.detours.clone_from(&record.detours);
        self.checkpoint.began = self.now;
        let more = record.detours.iter().filter(|detour| detour.row == last.row);
        let links = last.links.iter().chain(more.flat_map(|detour| &detour.links));
        let links = links.filter_map(|link| link.ppa()).filter(|at| {
            let (index, block) = (self.geometry.chunk_index(*at), self.geometry.block(*at));
            let chunk = self.device.chunk(index);
            let open = matches!(chunk.state, ChunkState::Free | ChunkState::Open);
            open && chunk.wp == block && !chunk.has_failed()
        });
        let links: Vec<Ppa> = links.collect();
        for (lane, at) in links.into_iter().enumerate().take(self.log.lanes.len()) {
            let (index, block) = (self.geometry.chunk_index(at), self.geometry.block(at));
            if self.space.chunks[index].usage == Use::Free {
                self.space.take(index);
            }
            self.space.chunks[index].usage = Use::Open;
            (self.log.lanes[lane].chunk, self.log.lanes[lane].next) = (Some(index), block);
            self.log.links.push(Link { at, lane });
        }
    }

    /// None of the places for the row behind `row` can be written: power went
    /// while they were, or they failed. A new record names others: that which
    /// was used, but for this.
    fn detour(&mut self, record: &Checkpoint, row: u64) -> Result<(), BatchError> {
        self.begin_log();
        let mut links = [Location::NONE; MAX_LINKS];
        for (to, link) in links.iter_mut().zip(&self.log.links) {
            *to = Location::at(link.at, true);
        }
        let detours = &mut self.checkpoint.detours;
        // Of this row another detour was as bad.
        detours.retain(|detour| detour.row != row);
        if detours.len() == MAX_DETOURS || self.log.links.is_empty() {
            self.fault = Some(BatchError::LogExhausted { row: row + 1, tried: MAX_DETOURS });
            return Ok(());
        }
        detours.push(Detour { row, links });
        let (number, before) = (self.checkpoint.number + 1, record.start);
        let detours = detours.clone();
        self.checkpoint.record = Checkpoint { number, before, detours, ..record.clone() };
        self.log.held = true;
        self.write_record(self.now);
        let is_over = |target: &Batch<D>| !target.checkpoint.is_at_work() || target.fault.is_some();
        self.run_until(is_over)?;
        self.log.held = false;
        // So that detours do not gather.
        self.checkpoint.asked = true;
        Ok(())
    }

    /// Streams go on with the chunks that are partly written. Others of these
    /// are as good as full.
    fn resume_streams(&mut self) -> Result<(), BatchError> {
        let row = self.geometry.row_blocks();
        let goes_on = |index: &usize, chunk: &Chunk| {
            self.space.chunks[*index].usage == Use::Closed
                && chunk.state == ChunkState::Open
                && !chunk.has_failed()
                && chunk.wp == chunk.programmed
                && chunk.wp.is_multiple_of(row)
        };
        let open: Vec<(usize, u32)> = (0..self.geometry.chunk_slots())
            .map(|index| (index, self.device.chunk(index)))
            .filter(|(index, chunk)| goes_on(index, chunk))
            .map(|(index, chunk)| (index, chunk.wp))
            .collect();
        let starts: Vec<Ppa> =
            open.iter().map(|&(index, _)| self.geometry.chunk_start(index)).collect();
        let mut tags = vec![None; starts.len()];
        let mut runner = Runner::new(&mut self.device, self.now);
        runner.read(&starts, Content::Tags, |i, block| {
            if is_read(block.status) {
                tags[i] = Some(Tag::load(&block.tag[..TAG_BYTES]));
            }
            Ok(())
        })?;
        self.now = runner.now;
        for (&(index, wp), tag) in open.iter().zip(tags) {
            match tag {
                Some(tag) if is_log(tag) => {}
                Some(tag) if is_whole(tag) => {
                    self.space.resume(Stream::Meta, index, wp);
                }
                Some(_) => {
                    let _ = self.space.resume(Stream::User, index, wp)
                        || self.space.resume(Stream::Collect, index, wp);
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// The first batch that begins in a row of the log.
fn first_of(row: &Row) -> Option<u64> {
    let begins = |what| matches!(what, What::User | What::Collect | What::Meta);
    let headers = row.records.iter().map(|(header, _)| header);
    headers.filter(|h| begins(h.what) && h.part == 0).map(|h| h.lsn).min()
}

/// Whether a TAG is that of a page of a batch.
fn is_of(batch: &Logged, lsn: u64, entry: &Entry, tag: Tag) -> bool {
    match batch.what {
        What::Meta => {
            let since = batch.done <= tag.seq && tag.seq < lsn;
            since && Page::from_name(entry.id).is_some_and(|page| page.is_tagged(tag))
        }
        What::Collect => tag == Tag { id: entry.id, seq: entry.seq },
        _ => tag == Tag { id: entry.id, seq: lsn },
    }
}

/// The pages of tables that the log says were written: LSN, page, where.
fn pages_of(story: &Story) -> impl Iterator<Item = (u64, Page, Location)> + '_ {
    let tables = story.batches.iter().filter(|(_, batch)| batch.what == What::Meta);
    tables.flat_map(|(&lsn, batch)| {
        let pages = batch.entries.iter().map(|entry| (Page::from_name(entry.id), entry.new));
        pages.filter_map(move |(page, new)| Some((lsn, page?, new)))
    })
}

/// The pages of a table that are on flash.
fn on_flash(kind: Kind, places: &[Location]) -> Vec<(Page, Location)> {
    let pages = places.iter().enumerate().filter(|(_, place)| place.ppa().is_some());
    pages.map(|(n, &place)| (Page { kind, number: n as u64 }, place)).collect()
}
