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

use device::{Content, OpenChannel};
use flash::{Chunk, ChunkState, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Lazy, OutOfMemory, Time};

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
use super::story::{Findings, Logged, Story, Told};
use super::walk::{Known, Trail, walk, was_written};
use super::{Batch, BatchConfig, Recovery, is_read};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Pages of MAP that are read at once.
const PAGES_AT_ONCE: usize = 2048;

/// A page of MAP: its number, its words, and up to which LSN it holds all.
type MapPage = (usize, Vec<Location>, u64);

/// LSNs that are left out after a recovery: at least as many as the batches that
/// a row of the log begins, so that none comes again of a row that was lost.
const SKIPPED: u64 = 64;

/// The pages of MAP that the log names, and the entries there.
struct Named {
    /// A bit for each entry.
    entries: Lazy<u64>,
    /// Of each page the last LSN that names it, plus one; 0 where none does.
    last: Lazy<u64>,
}

/// Words of [`Named::entries`] for a page.
const ENTRY_WORDS: usize = PAGE_WORDS / 64;

impl Named {
    fn new(pages: usize) -> Result<Named, OutOfMemory> {
        Ok(Named {
            entries: Lazy::zeroed(pages * ENTRY_WORDS, "the entries of the map in the log")?,
            last: Lazy::zeroed(pages, "the pages of the map in the log")?,
        })
    }

    /// The batch `lsn` names a page's entry.
    fn note(&mut self, lpid: u64, lsn: u64) {
        let (page, entry) = Map::split(lpid);
        self.entries[page * ENTRY_WORDS + entry / 64] |= 1 << (entry % 64);
        self.last[page] = self.last[page].max(lsn + 1);
    }

    /// The entries of a page.
    fn of(&self, page: usize) -> impl Iterator<Item = usize> + '_ {
        (0..PAGE_WORDS).filter(move |entry| {
            self.entries[page * ENTRY_WORDS + entry / 64] >> (entry % 64) & 1 == 1
        })
    }
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
                    Err(why @ NoRecord::Version(_)) => damage = Some(why),
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
            // It may be the newest: what is older is not the drive then.
            (_, Some(NoRecord::Version(version))) => Err(BatchError::Version(version)),
            (Some(best), _) => Ok(Some(best)),
            (None, None) => Ok(None),
            (None, Some(NoRecord::Damaged)) => Err(BatchError::Checkpoint),
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
                        if chunk.has_failed() {
                            self.failed.push(index);
                        }
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
        let (mut trail, mut story, mut findings) = self.walk_log(record)?;
        let mut note = |told: Told| findings.note(told);
        story.is_done(record.lsn, &mut note);
        story.top = story.top.max(story.done);
        let last = story.top + SKIPPED;
        trail.end = self.find_end(&story)?;
        let void = trail.end.map(|from| (from, last));
        self.recovery.unused = std::mem::take(&mut story.void);
        self.recovery.unused.push(trail.end.unwrap_or(story.top + 1)..=last);
        self.recovery.dropped = story.end(trail.end, &mut note) as u64;
        self.recovery = Recovery {
            checkpoint: record.number,
            rows: trail.rows.len() as u64,
            entries: findings.entries,
            ..std::mem::take(&mut self.recovery)
        };
        (self.applied, self.next_lsn) = (last, last + 1);
        self.restore_tables(record, &findings)?;
        let named = self.restore_garbage(record, &trail, &findings)?;
        self.restore_map(record, &trail, &named)?;
        self.restore_log(record, &trail, story.done);
        self.resume_streams()?;
        if self.log.links.is_empty() {
            self.detour(record, trail.last().row)?;
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
    fn walk_log(&mut self, record: &Checkpoint) -> Result<(Trail, Story, Findings), BatchError> {
        let geometry = self.geometry;
        let mut runner = Runner::new(&mut self.device, self.now);
        let mut read = |start| {
            let (mut story, mut findings) = (Story::default(), Findings::default());
            let take = |record| story.take(record, &mut |told: Told| findings.note(told));
            let trail = walk(&mut runner, &geometry, start, &record.detours, take)?;
            Ok::<_, BatchError>((trail, story, findings))
        };
        let is_start = |row: &Known| {
            row.row == record.start.row && Location::at(row.at, true) == record.start.at
        };
        let mut found = None;
        if record.before.row > 0 {
            found = read(record.before).ok().filter(|(trail, ..)| trail.rows.iter().any(is_start));
        }
        let found = match found {
            Some(found) => found,
            None => read(record.start)?,
        };
        self.now = runner.now;
        Ok(found)
    }

    /// Reads the flash locations of the batches that no done note covers. Gives the
    /// LSN of the first that is not complete, if there is one.
    fn find_end(&mut self, story: &Story) -> Result<Option<u64>, BatchError> {
        let geometry = self.geometry;
        let cached = self.cached;
        for (&lsn, batch) in &story.open {
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
    fn restore_tables(
        &mut self,
        record: &Checkpoint,
        findings: &Findings,
    ) -> Result<(), BatchError> {
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
        for (&page, &(_, new)) in findings.pages.iter().filter(|(_, (lsn, _))| *lsn > record.lsn) {
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
            self.restore_small(kind, findings)?;
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
    fn restore_small(&mut self, kind: Kind, findings: &Findings) -> Result<(), BatchError> {
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
        let of_below = findings.pages.iter().filter(|(page, _)| page.kind == below);
        let mut written: Vec<(u64, Page, Location)> =
            of_below.map(|(&page, &(lsn, new))| (lsn, page, new)).collect();
        // So that a page is behind flash from the first of them on.
        written.sort_unstable();
        for (lsn, page, new) in written {
            let number = page.number as usize;
            if lsns.get(number / PAGE_WORDS).is_some_and(|&held| lsn > held) {
                set(number, new, Some(lsn));
            }
        }
        Ok(())
    }

    /// GBITV: its pages; and of all locations that the log names, none is valid
    /// until the tables are found to lead there.
    /// Gives what the log names of MAP.
    fn restore_garbage(
        &mut self,
        record: &Checkpoint,
        trail: &Trail,
        findings: &Findings,
    ) -> Result<Named, BatchError> {
        let pages = on_flash(Kind::Garbage, self.garbage.small.places());
        let mut garbage =
            std::mem::replace(&mut self.garbage, super::garbage::Garbage::new(&self.geometry)?);
        let read = self.read_pages(&pages, |page, bytes, _| {
            garbage.load(page.number as usize, bytes);
        });
        std::mem::swap(&mut self.garbage, &mut garbage);
        read?;
        self.garbage.count();
        let (lsn, lpids) = (record.first, self.config.pages);
        let mut named = Named::new(self.map.pages())?;
        let garbage = &mut self.garbage;
        let mut runner = Runner::new(&mut self.device, self.now);
        trail.tell(&mut runner, &self.geometry, |told| match told {
            Told::Failed(at) => garbage.set_garbage(at, lsn),
            Told::Moved(entry) => {
                garbage.set_garbage(entry.new, lsn);
                // Nothing is done again; MAP says whether it is still there.
                if entry.id < lpids {
                    named.note(entry.id, 0);
                }
            }
            Told::Batch(number, batch) => {
                for entry in &batch.entries {
                    garbage.set_garbage(entry.new, lsn);
                    garbage.set_garbage(entry.prior, lsn);
                    if batch.what != What::Meta && entry.id < lpids {
                        named.note(entry.id, number);
                    }
                }
            }
        })?;
        self.now = runner.now;
        for &page in findings.pages.keys() {
            if self.has_page(page) {
                self.garbage.set_valid(self.place_of(page), lsn);
            }
        }
        Ok(named)
    }

    /// MAP: what its pages on flash lack is done again; and the locations that
    /// the log names are valid where MAP leads to them.
    fn restore_map(
        &mut self,
        record: &Checkpoint,
        trail: &Trail,
        named: &Named,
    ) -> Result<(), BatchError> {
        let mut held = vec![0; self.map.slots()];
        let mut from = 0;
        loop {
            let mut taken = Vec::new();
            from = self.take_pages(record, named, from, &mut held, &mut taken)?;
            if taken.is_empty() {
                return Ok(());
            }
            self.redo(trail, &held)?;
            for slot in taken {
                let page = self.map.slot(slot).page as usize;
                for entry in named.of(page) {
                    self.garbage.set_valid(self.map.get(slot, entry), record.first);
                }
                self.map.unpin(slot);
            }
        }
    }

    /// Reads the pages of MAP that the log names, from page `from` on. Those that
    /// may lack something go to slots and are pinned there, as many as there are
    /// slots for. `held` is by slot: up to which LSN flash has all of the page.
    /// Gives the page behind the last that was seen to.
    fn take_pages(
        &mut self,
        record: &Checkpoint,
        named: &Named,
        from: usize,
        held: &mut [u64],
        taken: &mut Vec<u32>,
    ) -> Result<usize, BatchError> {
        let mut next = (from..self.map.pages()).filter(|&page| named.last[page] > 0).peekable();
        while next.peek().is_some() {
            let pages: Vec<usize> = next.by_ref().take(PAGES_AT_ONCE).collect();
            for (page, words, lsn) in self.read_map(&pages)? {
                if named.last[page] <= lsn + 1 {
                    let valid = named.of(page).map(|entry| words[entry]);
                    valid.for_each(|at| self.garbage.set_valid(at, record.first));
                    continue;
                }
                let Some(slot) = self.map.take_slot(page, State::Ready) else {
                    if taken.is_empty() {
                        let bytes = self.config.cache_bytes;
                        return Err(BatchError::Cache { bytes, least: bytes + PAGE_BYTES as u64 });
                    }
                    return Ok(page);
                };
                for (entry, &word) in words.iter().enumerate() {
                    self.map.put(slot, entry, word);
                }
                self.map.pin(slot);
                held[slot as usize] = lsn;
                taken.push(slot);
            }
        }
        Ok(self.map.pages())
    }

    /// Pages of MAP as flash has them, and up to which LSN each holds all.
    fn read_map(&mut self, pages: &[usize]) -> Result<Vec<MapPage>, BatchError> {
        let empty = |&page: &usize| (page, vec![Location::NONE; PAGE_WORDS], 0);
        let mut read: Vec<MapPage> = pages.iter().map(empty).collect();
        let name = |&page: &usize| Page { kind: Kind::Map, number: page as u64 };
        let places = pages.iter().map(name).map(|page| (page, self.place_of(page)));
        let places: Vec<(Page, Location)> =
            places.filter(|(_, place)| place.ppa().is_some()).collect();
        let geometry = self.geometry;
        self.read_pages(&places, |page, bytes, lsn| {
            let at = pages.binary_search(&(page.number as usize)).expect("it was asked for");
            let (_, words, held) = &mut read[at];
            *held = lsn;
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                let flash = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                *word = Location::from_flash(flash, &geometry).unwrap_or(Location::NONE);
            }
        })?;
        self.recovery.map_pages += places.len() as u64;
        Ok(read)
    }

    /// Does again what the pinned pages of MAP lack.
    fn redo(&mut self, trail: &Trail, held: &[u64]) -> Result<(), BatchError> {
        let (map, lpids) = (&mut self.map, self.config.pages);
        let mut runner = Runner::new(&mut self.device, self.now);
        trail.tell(&mut runner, &self.geometry, |told| {
            let Told::Batch(lsn, batch) = told else { return };
            let entries = batch.entries.iter().filter(|entry| entry.id < lpids);
            for &Entry { id, new, prior, .. } in entries.filter(|_| batch.what != What::Meta) {
                let (page, entry) = Map::split(id);
                let Some(slot) = map.slot_of(page) else { continue };
                if map.slot(slot).pins == 0 || lsn <= held[slot as usize] {
                    continue;
                }
                // What collection moved counts only where nothing newer came.
                if batch.what != What::Collect || map.get(slot, entry) == prior {
                    map.set(slot, entry, new, lsn);
                }
            }
        })?;
        self.now = runner.now;
        Ok(())
    }

    /// The log goes on where it ended.
    fn restore_log(&mut self, record: &Checkpoint, trail: &Trail, done: u64) {
        let mut first = self.next_lsn;
        let mut live: Vec<LiveRow> = Vec::with_capacity(trail.rows.len());
        for row in trail.rows.iter().rev() {
            first = row.begins.unwrap_or(first).min(first);
            live.push(LiveRow { row: row.row, at: row.at, first });
        }
        for row in live.into_iter().rev() {
            let index = self.geometry.chunk_index(row.at);
            self.space.chunks[index].log_rows += 1;
            self.log.live.push_back(row);
        }
        let last = trail.last();
        (self.log.row, self.log.prev) = (last.row + 1, Location::at(last.at, true));
        self.log.durable_done = done;
        self.log.written = trail.rows.len() as u64;
        self.checkpoint.start = record.start;
        self.checkpoint.detours.clone_from(&record.detours);
        self.checkpoint.began = self.now;
        let more = record.detours.iter().filter(|detour| detour.row == last.row);
        let links = trail.links.iter().chain(more.flat_map(|detour| &detour.links));
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

/// The pages of a table that are on flash.
fn on_flash(kind: Kind, places: &[Location]) -> Vec<(Page, Location)> {
    let pages = places.iter().enumerate().filter(|(_, place)| place.ppa().is_some());
    pages.map(|(n, &place)| (Page { kind, number: n as u64 }, place)).collect()
}
