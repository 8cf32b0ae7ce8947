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
//! The tables are read then, and what they lack is done again (`restore`).
//!
//! Fails, and leaves the drive as it was, when no record is whole though there
//! was one, when a row of the log cannot be read or pages of tables that take
//! each other to be made anew, or when the drive stops answering.

use std::collections::BTreeSet;

use device::{Content, OpenChannel};
use flash::{Chunk, ChunkState, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Time};

use super::config::BatchError;
use super::location::Location;
use super::log::{Link, LiveRow};
use super::mutation::{Mutation, is};
use super::page::{Held, Page, held, is_log, is_whole, log_tag};
use super::record::{Entry, MAX_LINKS, What};
use super::slot::{Checkpoint, Detour, MAX_DETOURS, NoRecord};
use super::space::{Stream, Use};
use super::story::{Findings, Logged, Story, Told};
use super::walk::{Known, Trail, walk, was_written};
use super::{Batch, BatchConfig, Recovery, Runner, is_read};

const BLOCK: usize = BLOCK_BYTES as usize;

/// LSNs that are left out after a recovery: at least as many as the batches that
/// a row of the log begins, so that none comes again of a row that was lost.
const SKIPPED: u64 = 64;

/// More rows than a log ever has.
const MANY_ROWS: u64 = 1 << 48;

impl<D: OpenChannel> Batch<D> {
    /// Starts a target on a drive: makes it new where nothing was ever written,
    /// or recovers what it holds. The drive is at work until [`Batch::now`].
    pub fn open(device: D, config: BatchConfig, now: Time) -> Result<Batch<D>, BatchError> {
        Batch::start(device, config, now, true)
    }

    /// Starts a target on a drive that has one: recovers what it holds.
    /// [`BatchError::Nothing`], and nothing is changed, where nothing is found.
    pub fn find(device: D, config: BatchConfig, now: Time) -> Result<Batch<D>, BatchError> {
        Batch::start(device, config, now, false)
    }

    fn start(
        device: D,
        config: BatchConfig,
        now: Time,
        may_be_new: bool,
    ) -> Result<Batch<D>, BatchError> {
        let mut target = Batch::build(device, config, now)?;
        let found = target.find_record()?;
        target.note_chunks();
        match found {
            Some(record) => target.restore(&record)?,
            None if !target.is_blank()? => return Err(BatchError::Checkpoint),
            None if !may_be_new => return Err(BatchError::Nothing),
            None => target.format()?,
        }
        target.recovery.time = target.now.since(now);
        Ok(target)
    }

    /// Whether no block holds a page of the host's: making a target that was cut
    /// leaves rows of the log and pages of tables, and torn blocks in the first
    /// row of a chunk. The log begins behind such rows, so that none of them is
    /// taken for a later one.
    fn is_blank(&mut self) -> Result<bool, BatchError> {
        let (row, lpids) = (self.geometry.row_blocks(), self.config.pages);
        for index in 0..self.space.chunks.len() {
            if matches!(self.space.chunks[index].usage, Use::Slot | Use::Gone) {
                continue;
            }
            let programmed = self.device.chunk(index).programmed;
            let start = self.geometry.chunk_start(index).0;
            let blocks: Vec<Ppa> =
                (0..u64::from(programmed)).map(|block| Ppa(start + block)).collect();
            let (mut blank, mut top) = (true, 0);
            let mut runner = Runner::new(&mut self.device, self.now);
            runner.read(&blocks, Content::Tags, |_, block| {
                let tag = Tag::load(&block.tag[..TAG_BYTES]);
                let is_row = tag == log_tag(tag.seq) && tag.seq < MANY_ROWS;
                top = if is_read(block.status) && is_row { top.max(tag.seq) } else { top };
                let is_page = tag.seq > 0 && matches!(held(tag, lpids), Held::Data(_));
                blank &= if is_read(block.status) { !is_page } else { programmed <= row };
                Ok(())
            })?;
            self.now = runner.now;
            self.log.row = self.log.row.max(top + 1);
            if !blank {
                return Ok(false);
            }
        }
        Ok(true)
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
            held.usable = chunk.state != ChunkState::Offline
                && !chunk.is_spoilt(self.geometry.chunk_blocks());
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
                        let failed = chunk.is_spoilt(self.geometry.chunk_blocks());
                        self.space.chunks[index].usage = Use::Closed;
                        self.space.chunks[index].failed = failed;
                        if failed {
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
        self.checkpoint.held = true;
        let (mut trail, mut story, mut findings) = self.walk_log(record)?;
        let mut note = |told: Told| findings.note(told);
        story.is_done(record.lsn, &mut note);
        story.top = story.top.max(story.done);
        let last = story.top + SKIPPED;
        trail.end = self.find_end(&story)?;
        let looked_for = self.looked_for(&story);
        let void = trail.end.map(|from| (from, last)).filter(|_| !is(Mutation::NoVoid));
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
        let mut lost = self.restore_tables(record, &findings)?;
        let named = self.restore_garbage(record, &trail, &findings, &mut lost)?;
        self.restore_map(record, &trail, &named, &lost)?;
        self.restore_log(record, &trail, story.done);
        // What was made anew is soon on flash.
        self.checkpoint.asked = self.recovery.rebuilt > 0;
        self.resume_streams()?;
        self.erase_empty(&looked_for)?;
        if self.log.links.is_empty() {
            self.detour(record, trail.last().row)?;
        }
        self.say_what_never_was(void, last)?;
        self.checkpoint.held = false;
        Ok(())
    }

    /// Says in the log which batches never were, as this start found.
    fn say_what_never_was(
        &mut self,
        void: Option<(u64, u64)>,
        last: u64,
    ) -> Result<(), BatchError> {
        self.log.void = void;
        if void.is_none() {
            return Ok(());
        }
        let is_said = |target: &Batch<D>| target.log.durable_done >= last || target.fault.is_some();
        self.run_until(is_said)
    }

    /// The chunks that the next start may look into: of the batches that no done
    /// note covers, the places of their pages, and where those were before.
    fn looked_for(&self, story: &Story) -> BTreeSet<usize> {
        let entries = story.open.values().flat_map(|batch| &batch.entries);
        let places = entries.flat_map(|entry| [entry.new, entry.prior]);
        places.filter_map(|place| Some(self.geometry.chunk_index(place.ppa()?))).collect()
    }

    /// Where there are few free chunks, those are erased that hold nothing, before
    /// anything is written. So what starts that were cut have spoiled is room
    /// again, however many they were.
    fn erase_empty(&mut self, looked_for: &BTreeSet<usize>) -> Result<(), BatchError> {
        if self.space.free() > self.layout.floor {
            return Ok(());
        }
        let chunks = (0..self.geometry.chunk_slots()).filter(|chunk| !looked_for.contains(chunk));
        for chunk in chunks {
            if self.garbage.valid(chunk) == 0 && self.space.can_go(chunk, 0) {
                self.space.begin(chunk);
                self.chunk_mut(chunk).usage = Use::Leaving;
                self.leaving.push_back((chunk, 0));
            }
        }
        self.log.held = true;
        let is_over = |target: &Batch<D>| {
            let waits = target.leaving.iter().any(|&(_, after)| after == 0);
            (target.erasing == 0 && !waits) || target.fault.is_some()
        };
        self.run_until(is_over)?;
        self.log.held = false;
        Ok(())
    }

    /// Reads the log: from where it was kept for the record before, if it still
    /// is, so that it is kept on; else from where this record needs it.
    fn walk_log(&mut self, record: &Checkpoint) -> Result<(Trail, Story, Findings), BatchError> {
        let geometry = self.geometry;
        let doubted = self.checkpoint.number > record.number;
        let mut runner = Runner::new(&mut self.device, self.now);
        let mut read = |start| {
            let (mut story, mut findings) = (Story::default(), Findings::default());
            let take = |record| story.take(record, &mut |told: Told| findings.note(told));
            let trail = walk(&mut runner, &geometry, start, &record.detours, doubted, take)?;
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
        for (&lsn, batch) in story.open.iter().filter(|_| !is(Mutation::NoVerify)) {
            self.recovery.verified += 1;
            if batch.seen != batch.parts {
                return Ok(Some(lsn));
            }
            // Of the host's pages those that are nowhere were given up.
            let is_written =
                |entry: &&Entry| batch.what != What::User || entry.new != Location::NONE;
            let entries: Vec<&Entry> = batch.entries.iter().filter(is_written).collect();
            let blocks: Vec<Ppa> = entries.iter().filter_map(|entry| entry.new.ppa()).collect();
            let mut complete = blocks.len() == entries.len();
            let mut unread = Vec::new();
            let mut runner = Runner::new(&mut self.device, self.now);
            runner.read(&blocks, Content::Tags, |i, block| {
                let (entry, tag) = (entries[i], block.tag);
                if is_read(block.status) {
                    complete &= is_of(batch, lsn, entry, Tag::load(&tag[..TAG_BYTES]));
                } else {
                    unread.push(blocks[i]);
                }
                Ok(())
            })?;
            // What the drive says that it has was there, and was damaged since.
            complete &= unread.iter().all(|&at| was_written(&runner, &geometry, at));
            self.now = runner.now;
            if !complete {
                return Ok(Some(lsn));
            }
        }
        Ok(None)
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
        let is_over =
            |target: &Batch<D>| target.checkpoint.number >= number || target.fault.is_some();
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
