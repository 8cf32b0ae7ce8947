//! Start-up after a cut, or after a clean end.
//!
//! The root says where the directory is, the directory where the pages are.
//! The pages of the map stay where they are until they are asked for (`load`).
//! The chunk table, compared with what the drive says of its chunks, says
//! which rows were written after the checkpoint began; their tags are read,
//! and the log since. Of each block the copy with the highest number counts,
//! unless a record gave it up (`checkpoint` says why that is enough).
//!
//! On a drive that was never checkpointed all rows are such rows.
//!
//! Guarantees: every block that a completed flush or FUA covered is there,
//! trims too; any other is as one of its writes or trims left it. What is read
//! grows with what was written since the checkpoint, and by some bytes for each
//! chunk. A cut at any moment, also during recovery, leaves a drive that
//! recovers. Collection finds room to go on however full the drive was.
//!
//! Fails, and leaves the drive as it was, when no root can be read though
//! there was one, when the directory, the chunk table, the log or a tag that
//! is needed cannot be read, or when the drive stops answering. A map page
//! that cannot be read costs only its own blocks.
//!
//! What it writes: each parallel unit goes on with partly written chunks of data,
//! up to one for collection and one for each stream of the user. Others, those that
//! were left since they had aged, are padded to their end. Where the end of an open chunk
//! cannot be read yet, all are padded on by that before anything is read. A root that not
//! every mirror has is written anew to all.

use std::collections::BTreeSet;

use device::{Content, OpenChannel};
use flash::{Chunk, ChunkState, ErrorLevel, Ppa, TAG_BYTES, Tag};
use ftl::{Ended, Job, all_chunks, is_read, pieces};
use port::{Port, Ring, Status, Time};

use super::load::Load;
use super::meta::{place_word, word_place};
use super::mutation::{Mutation, is};
use super::record::{Kind, Record, is_whole, load_page, own};
use super::root::Root;
use super::scan::Scan;
use super::search::{Search, good_mirrors};
use super::space::OpenChunk;
use super::table::Use;
use super::units::PAD;
use super::{Memory, Pblk, PblkConfig, PblkError, WriteCounters};

/// The drive during start-up.
pub(super) type Runner<'a, D> = ftl::Runner<'a, D, PblkError>;

/// The highest sequence number that is believed; a drive never comes to it.
pub(super) const LAST_SEQ: u64 = 1 << 62;

/// Fails where a read did, with its first block that did.
fn check_read(job: &Job, ended: &Ended) -> Result<(), PblkError> {
    match ended.status {
        status if is_read(status) => Ok(()),
        Status::ABORTED => Err(PblkError::Recovery(Status::ABORTED)),
        status => {
            let first = ended.failed.trailing_zeros().min(job.count - 1);
            Err(PblkError::Unread { ppa: Ppa(job.ppa.0 + u64::from(first)), status })
        }
    }
}

/// Reads one block whole, and its tag.
pub(super) fn read_block<D: OpenChannel>(
    runner: &mut Runner<D>,
    ppa: Ppa,
    to: &mut Vec<u8>,
) -> Result<Tag, PblkError> {
    let mut tag = Tag::default();
    runner.run(std::iter::once(whole(ppa)), |job, ended| {
        check_read(&job, &ended)?;
        to.extend_from_slice(ended.data);
        tag = Tag::load(ended.tags);
        Ok(())
    })?;
    Ok(tag)
}

/// The read of one block, all of it.
fn whole(ppa: Ppa) -> Job {
    Job::read(Content::Whole, (ppa, 1))
}

/// What the last checkpoint says, as [`Pblk::peek`] finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// What was written up to it since the target was made.
    pub counters: WriteCounters,
    /// It was written by a shutdown. More may have been written since, which
    /// the medium knows.
    pub clean: bool,
    /// Its number; zero where there never was one.
    pub checkpoint: u64,
    /// What the target's tables take in memory.
    pub memory: Memory,
    /// So many chunks are offline that it takes no more writes.
    pub read_only: bool,
}

/// What becomes of the chunks with something in them.
#[derive(Default)]
struct Plan {
    /// Chunks of data of which a program failed: to be retired.
    failed: Vec<usize>,
    /// Chunks that are full, or will be when padded.
    full: Vec<usize>,
    /// A chunk and its blocks, from and to, that are padded.
    pad: Vec<(usize, u32, u32)>,
    /// Unit, and the chunk with which it goes on.
    collect: Vec<(usize, OpenChunk)>,
    user: Vec<(usize, OpenChunk)>,
}

impl<D: OpenChannel> Pblk<D> {
    /// A target on a drive that this target wrote, after a power cut or a
    /// clean end. Gives it and the time at which it is ready: recovery drives
    /// the device itself, from `now` on.
    ///
    /// `config` is the one that the drive was made with.
    ///
    /// # Errors
    /// As [`Pblk::new`], and [`PblkError::Recovery`] with the drive's status
    /// when what is needed cannot be read, or a row not padded; with
    /// [`Status::ABORTED`] when the drive stops answering.
    /// [`PblkError::Root`] when there was a root and none is whole,
    /// [`PblkError::Version`] when another version wrote it, and
    /// [`PblkError::Mismatch`] when the drive was made otherwise.
    pub fn recover(device: D, config: PblkConfig, now: Time) -> Result<(Pblk<D>, Time), PblkError> {
        let mut pblk = Pblk::empty(device, config)?;
        let (padded, now) = pblk.pad_ends(now)?;
        let (root, is_everywhere, now) = pblk.find_root(now)?;
        let now = pblk.load_tables(&root, now)?;
        let (mut scan, mut load, now) = pblk.scan(&root, now)?;
        if is(Mutation::ForgetRecords) {
            scan.records.clear();
        }
        load.gone = scan.gone(root.settled);
        load.written = scan.newest(&load.gone);
        let given_up = scan.records.iter().map(|record| record.upto).max().unwrap_or(0);
        pblk.units.continue_after(root.seq.max(scan.highest).max(given_up));
        let last = scan.records.iter().map(|record| record.number).max().unwrap_or(0);
        let page = scan.log.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        let row_of = |&(_, ppa): &_| pblk.geometry.row_start(ppa);
        let mut rows: Vec<Ppa> = scan.log.iter().map(row_of).collect();
        rows.sort_unstable();
        rows.dedup();
        let rows = rows.len() as u64;
        // Also behind those that were never sent, but the pages know: their
        // numbers must not be others'.
        pblk.saved.log.continue_after(root.settled.max(last), root.log_page.max(page), rows);
        pblk.counters = root.counters;
        // They are in order now.
        let copies = scan.copies.iter().map(|copy| (copy.lba, copy.seq));
        let numbers = (root.seq, scan.highest, pblk.units.of_user().into());
        scan.recount.add(copies, numbers, pblk.geometry.row_blocks(), &mut pblk.counters);
        pblk.counters.padding += padded;
        let plan = pblk.plan(&scan);
        let now = pblk.pad(&plan, &scan, now)?;
        pblk.find_open();
        pblk.saved.checkpoint.rows = scan.rows;
        pblk.saved.checkpoint.root = root;
        pblk.go_on(&plan, is_everywhere, load, now);
        let now = pblk.await_root(is_everywhere, now)?;
        // What was written may have been erased since the last root.
        pblk.counters.user = pblk.counters.user.max(pblk.held_by_users());
        Ok((pblk, now))
    }

    /// What was programmed for the user since the counters were `before` was
    /// asked for before that: who lies above wrote it again, from a journal. It
    /// counts as the target's own, but for what the user must have written.
    pub fn count_as_own(&mut self, before: WriteCounters) {
        let counted = self.counters.user;
        self.counters.user = before.user.max(self.held_by_users()).min(counted);
        self.counters.metadata += counted - self.counters.user;
        self.counters.absorbed = before.absorbed;
    }

    /// Blocks of users that the chunks are known to hold.
    fn held_by_users(&self) -> u64 {
        let chunks = self.geometry.pus_channels_first().flat_map(|pu| {
            (0..self.geometry.chunks()).map(move |number| self.geometry.chunk_of(pu, number))
        });
        let of_users = chunks.filter(|chunk| !self.saved.meta.chunks.contains_key(chunk));
        of_users.map(|chunk| u64::from(self.space.valid_blocks(chunk))).sum()
    }

    /// What the last checkpoint says of a drive, without opening it: nothing
    /// is written, and little more than the root is read.
    ///
    /// # Errors
    /// As [`Pblk::recover`], but of the root alone.
    pub fn peek(device: D, config: PblkConfig) -> Result<Peek, PblkError> {
        let mut pblk = Pblk::empty(device, config)?;
        let memory = pblk.memory();
        let (root, ..) = pblk.find_root(Time::ZERO)?;
        let Root { counters, clean, number, .. } = root;
        pblk.lose_offline();
        let read_only = pblk.is_read_only();
        Ok(Peek { counters, clean, checkpoint: number, memory, read_only })
    }

    /// Finds the last whole root; an empty one when there never was one. Its
    /// number is the highest of all that were begun. Also says whether each
    /// mirror has it, and nothing newer.
    fn find_root(&mut self, now: Time) -> Result<(Root, bool, Time), PblkError> {
        let geometry = self.geometry;
        let mut runner = Runner::new(&mut self.device, now);
        let bytes = Root::bytes(self.saved.meta.directory.len());
        let mut search = Search { bytes, ..Search::default() };
        let unreadable = self.window.unreadable;
        for (m, mirror) in self.saved.mirrors.iter_mut().enumerate() {
            for (i, &chunk) in mirror.chunks.iter().enumerate() {
                let of = runner.device.chunk(chunk);
                let (programmed, readable) = (of.programmed, of.readable(unreadable));
                let found = search.chunk(&mut runner, &geometry, chunk, readable, m)?;
                let newest = search.newest[m].0;
                if programmed > 0 && found.max(1) > newest {
                    search.newest[m] = (found.max(1), i);
                }
            }
            // The next goes behind the newest.
            mirror.current = search.newest[m].1;
            mirror.last = search.whole[m];
            let programmed = mirror.chunks.get(mirror.current);
            let programmed = programmed.map_or(0, |&chunk| runner.device.chunk(chunk).programmed);
            let size = geometry.chunk_blocks();
            let is_bad = |&chunk: &usize| runner.device.chunk(chunk).is_spoilt(size);
            let is_bad = mirror.chunks.get(mirror.current).is_some_and(is_bad);
            let whole_rows = programmed.is_multiple_of(geometry.row_blocks()) && !is_bad;
            mirror.next = if whole_rows { programmed } else { geometry.chunk_blocks() };
        }
        let now = runner.now;
        let good = good_mirrors(&self.device, &self.saved.mirrors, geometry.chunk_blocks());
        let (highest, whole) = (search.highest, search.whole);
        let Some(root) = search.newest_root(good)? else {
            return Ok((Root::default(), true, now));
        };
        let has_it = |m: usize| whole[m].is_some_and(|(number, _)| number == root.number);
        let is_everywhere = highest <= root.number
            && (0..self.saved.mirrors.len())
                .all(|m| !self.saved.mirrors[m].is_usable() || has_it(m));
        let made = (self.map.blocks(), self.map.entry_bytes(), geometry.chunk_slots() as u64);
        let found = (root.blocks, root.entry, root.chunks);
        if found != made || root.directory.len() != self.saved.meta.directory.len() {
            return Err(PblkError::Mismatch { found: root.blocks, config: self.map.blocks() });
        }
        if root.directory.iter().filter_map(|&at| word_place(at)).any(|at| !geometry.contains(at)) {
            return Err(PblkError::Root);
        }
        Ok((Root { number: highest.max(root.number), ..root }, is_everywhere, now))
    }

    /// Reads the directory, and the chunk table.
    fn load_tables(&mut self, root: &Root, now: Time) -> Result<Time, PblkError> {
        if !root.directory.is_empty() {
            self.saved.meta.directory.copy_from_slice(&root.directory);
        }
        let mut runner = Runner::new(&mut self.device, now);
        let meta = &mut self.saved.meta;
        let places: Vec<Ppa> = root.directory.iter().filter_map(|&at| word_place(at)).collect();
        let mut wrong = false;
        runner.run(places.into_iter().map(whole), |job, ended| {
            check_read(&job, &ended)?;
            let tag = Tag::load(ended.tags);
            let is_page = |own: &(Kind, u64)| own.0 == Kind::Directory && is_whole(tag, ended.data);
            let number = own(tag.id).filter(is_page);
            let number = number.map(|own| own.1).filter(|&n| n < meta.directory.len() as u64);
            match number {
                Some(n) if meta.directory[n as usize] == place_word(Some(job.ppa)) => {
                    wrong |= !meta.load_directory(n, ended.data);
                }
                _ => wrong = true,
            }
            Ok(())
        })?;
        if wrong {
            return Err(PblkError::Root);
        }
        let map_pages = self.map.pages();
        let pages: Vec<Ppa> = (map_pages..meta.len()).filter_map(|page| meta.page(page)).collect();
        let table = &mut self.saved.table;
        runner.run(pages.into_iter().map(whole), |job, ended| {
            check_read(&job, &ended)?;
            let tag = Tag::load(ended.tags);
            match own(tag.id).filter(|_| is_whole(tag, ended.data)) {
                Some((Kind::Page, n))
                    if (map_pages..meta.len()).contains(&n) && meta.page(n) == Some(job.ppa) =>
                {
                    table.load(n - map_pages, ended.data);
                }
                _ => wrong = true,
            }
            Ok(())
        })?;
        if wrong { Err(PblkError::Root) } else { Ok(runner.now) }
    }

    /// Reads what was written since the checkpoint: tags, then the log.
    fn scan(&mut self, root: &Root, now: Time) -> Result<(Scan, Box<Load>, Time), PblkError> {
        let geometry = self.geometry;
        let size = geometry.chunk_blocks();
        let (meta, blocks) = (&self.saved.meta, self.map.blocks());
        let mut load = Load::new(&geometry, self.map.pages(), |page| meta.page(page))?;
        let mut scan = Scan::default();
        let mut by_pu: Vec<Vec<(usize, u32, u32)>> = vec![Vec::new(); geometry.pu_slots()];
        for chunk in all_chunks(&geometry) {
            let (of, entry) = (self.device.chunk(chunk), self.saved.table.get(chunk));
            let same = of.wear == entry.wear;
            let (erases, next) = (of.wear.saturating_sub(entry.wear), entry.next.min(size));
            // A table without a root knows of no wear, nor does any of that of anchors.
            if root.number > 0 && !self.is_anchor(chunk) {
                scan.recount.see_erases(erases, size, next, entry.used == Use::Own);
            }
            let has_data = same && entry.used == Use::Data;
            load.ends[chunk] = if has_data { entry.next.min(of.programmed) } else { 0 };
            let from = match entry.used {
                _ if !same => 0,
                Use::None => 0,
                Use::Data | Use::Own => entry.next,
            };
            let is_data = of.state != ChunkState::Offline && !self.is_anchor(chunk);
            let end = of.readable(self.window.unreadable);
            if is_data && from < end {
                by_pu[geometry.pu_index(geometry.chunk_start(chunk))].push((chunk, from, end));
            }
            if same && entry.used == Use::Own && entry.next > 0 && of.programmed > 0 {
                scan.chunks.insert(chunk, (0, true));
            }
        }
        let of_pu = |chunks: Vec<(usize, u32, u32)>| {
            chunks
                .into_iter()
                .flat_map(move |(chunk, from, to)| pieces(&geometry, chunk, from..to))
                .map(|piece| Job::read(Content::Tags, piece))
        };
        // All units at once.
        let mut units: Vec<_> = by_pu.into_iter().map(of_pu).collect();
        let mut turn = 0;
        let jobs = std::iter::from_fn(|| {
            while !units.is_empty() {
                turn %= units.len();
                if let Some(job) = units[turn].next() {
                    turn += 1;
                    return Some(job);
                }
                drop(units.remove(turn));
            }
            None
        });
        let chunks: Vec<Chunk> =
            (0..geometry.chunk_slots()).map(|i| self.device.chunk(i)).collect();
        let failed = self.failed_blocks();
        let mut runner = Runner::new(&mut self.device, now);
        runner.run(jobs, |job, ended| {
            scan.rows += 1;
            let chunk = geometry.chunk_index(job.ppa);
            // What a failed program was to write went elsewhere.
            let is_known = |i: u32| failed.contains(&Ppa(job.ppa.0 + u64::from(i)));
            let mut unread = (0..job.count).filter(|&i| ended.failed >> i & 1 == 1);
            if ended.failed == 0 || !unread.all(is_known) {
                check_read(&job, &ended)?;
            }
            let in_open = chunks[chunk].programmed < size;
            for (i, tag) in ended.tags.chunks_exact(TAG_BYTES).enumerate() {
                if ended.failed >> i & 1 == 1 {
                    continue;
                }
                scan.see(Ppa(job.ppa.0 + i as u64), chunk, in_open, blocks, Tag::load(tag));
            }
            Ok(())
        })?;
        scan.log.retain(|(number, _)| *number >= root.log_page);
        let mut page = Vec::new();
        for &(_, ppa) in &scan.log {
            page.clear();
            read_block(&mut runner, ppa, &mut page)?;
            let records = load_page(&page).ok_or(PblkError::Log)?;
            let inside = |record: &Record| record.lba.saturating_add(record.count.into()) <= blocks;
            for record in records.filter(|record| record.number > root.record) {
                if !inside(&record) || record.upto > LAST_SEQ {
                    return Err(PblkError::Log);
                }
                scan.records.push(record);
            }
        }
        Ok((scan, Box::new(load), runner.now))
    }

    /// The blocks whose programs failed.
    fn failed_blocks(&self) -> BTreeSet<Ppa> {
        let (device, geometry) = (&self.device, &self.geometry);
        let spoilt = all_chunks(geometry).filter(|&chunk| device.chunk(chunk).has_failed());
        let rows = spoilt.flat_map(|at| pieces(geometry, at, 0..device.chunk(at).programmed));
        let blocks = rows.flat_map(|(ppa, count)| {
            let failed = device.failed_of(ppa, count);
            let failed = (0..u64::from(count)).filter(move |i| failed >> i & 1 == 1);
            failed.map(move |i| Ppa(ppa.0 + i))
        });
        blocks.collect()
    }

    /// Decides what becomes of each chunk of data.
    fn plan(&self, scan: &Scan) -> Plan {
        let size = self.geometry.chunk_blocks();
        let row = self.geometry.row_blocks();
        let mut plan = Plan::default();
        for pu in self.geometry.pus_channels_first() {
            let mut partly = Vec::new();
            for chunk in (0..self.geometry.chunks()).map(|n| self.geometry.chunk_of(pu, n)) {
                let of = self.device.chunk(chunk);
                let is_own = scan.chunks.get(&chunk).is_some_and(|found| found.1);
                let is_data = of.state != ChunkState::Offline && !self.is_anchor(chunk) && !is_own;
                if !is_data || of.programmed == 0 {
                    continue;
                } else if of.is_spoilt(size) {
                    plan.failed.push(chunk);
                } else if of.programmed == size {
                    plan.full.push(chunk);
                } else {
                    partly.push((of.programmed, chunk));
                }
            }
            // The one with the most room is collection's.
            partly.sort_unstable();
            for (i, &(programmed, chunk)) in partly.iter().enumerate() {
                let goes_on = i <= self.config.streams as usize;
                let next = if goes_on { programmed.next_multiple_of(row) } else { size };
                plan.pad.push((chunk, programmed, next));
                match i {
                    _ if next == size => plan.full.push(chunk),
                    0 => plan.collect.push((pu, OpenChunk::new(chunk, next))),
                    _ => plan.user.push((pu, OpenChunk::new(chunk, next))),
                }
            }
        }
        // The policies that want the oldest.
        let age = |chunk: &usize| {
            let found = scan.chunks.get(chunk).map(|found| found.0);
            found.unwrap_or_else(|| self.saved.table.get(*chunk).age)
        };
        plan.full.sort_by_key(age);
        plan
    }

    /// Pads what is to be padded.
    fn pad(&mut self, plan: &Plan, scan: &Scan, now: Time) -> Result<Time, PblkError> {
        let geometry = self.geometry;
        let mut runner = Runner::new(&mut self.device, now);
        let pads = plan.pad.iter();
        let pads = pads.flat_map(|&(chunk, from, to)| pieces(&geometry, chunk, from..to));
        let tag = Tag { id: PAD, seq: scan.highest.max(1) };
        let pads = pads.map(|piece| Job::fill(tag, piece));
        let counters = &mut self.counters;
        runner.run(pads, |job, ended| {
            counters.padding += u64::from(job.count);
            match ended.status {
                status if status.is_ok() => Ok(()),
                status => Err(PblkError::Recovery(status)),
            }
        })?;
        let now = runner.now;
        self.adopt(plan, scan);
        Ok(now)
    }

    /// Gives each chunk its place: free, or of the target's own blocks.
    fn adopt(&mut self, plan: &Plan, scan: &Scan) {
        let geometry = self.geometry;
        let (row, size) = (geometry.row_blocks(), geometry.chunk_blocks());
        for (&chunk, _) in scan.chunks.iter().filter(|(_, found)| found.1) {
            let pu = geometry.pu_index(geometry.chunk_start(chunk));
            self.saved.meta.own(chunk);
            self.space.found_own(pu);
            let of = self.device.chunk(chunk);
            let rank = self.stripe.rank(pu);
            self.chunks[chunk].failed = of.is_spoilt(size);
            let goes_on = !self.chunks[chunk].failed
                && of.programmed < geometry.chunk_blocks()
                && of.state == ChunkState::Open
                && of.programmed.is_multiple_of(row);
            if goes_on && self.saved.meta.open[rank].is_none() {
                self.saved.meta.open[rank] = Some(OpenChunk::new(chunk, of.programmed));
            }
        }
        for &(number, ppa) in &scan.log {
            let own = self.saved.meta.chunks.get_mut(&geometry.chunk_index(ppa));
            let own = own.expect("it holds own blocks");
            own.log_end = own.log_end.max(number + 1);
        }
        self.saved.meta.count_all();
        debug_assert!(plan.full.iter().all(|chunk| !self.saved.meta.chunks.contains_key(chunk)));
        let is_free = |chunk: &usize| {
            let of = self.device.chunk(*chunk);
            of.programmed == 0 && of.state != ChunkState::Offline
        };
        let mut free: Vec<usize> = all_chunks(&geometry).filter(is_free).collect();
        free.retain(|&chunk| !self.is_anchor(chunk));
        free.sort_by_key(|&chunk| (self.device.chunk(chunk).wear, chunk));
        free.into_iter().for_each(|chunk| self.space.give(chunk));
    }

    /// The chunks that are offline are no room.
    fn lose_offline(&mut self) {
        for chunk in all_chunks(&self.geometry) {
            if self.device.chunk(chunk).state == ChunkState::Offline && !self.is_anchor(chunk) {
                self.lose(chunk);
            }
        }
    }

    /// Goes on where the target was. A root that not every mirror has is written
    /// anew, before what older ones lead to is erased: else the next start might
    /// take up an older one.
    fn go_on(&mut self, plan: &Plan, is_everywhere: bool, load: Box<Load>, now: Time) {
        let geometry = self.geometry;
        self.lose_offline();
        plan.full.iter().for_each(|&chunk| self.space.close(chunk));
        plan.failed.iter().for_each(|&chunk| self.found_failed(chunk));
        for &(pu, open) in &plan.user {
            self.stripe.go_on(pu, open);
        }
        for (_, open) in plan.user.iter().chain(&plan.collect) {
            let level = self.device.chunk(open.chunk()).level;
            self.chunks[open.chunk()].told = level >= ErrorLevel::High;
        }
        for &(pu, open) in &plan.collect {
            let rank = self.stripe.rank(pu);
            self.collectors.of[rank].go_on(open);
        }
        for pu in geometry.pus_channels_first() {
            let rank = self.stripe.rank(pu);
            if self.space.pus[pu].free() == 0 {
                self.collectors.of[rank].rescue = true;
                self.space.lend(pu);
            }
            self.refresh(pu);
        }
        if is_everywhere {
            self.erase_dead_own(self.saved.checkpoint.root.log_page);
        } else {
            self.renew_root();
        }
        self.begin_load(load);
        self.pump(now);
        self.submit_out(now);
    }

    /// The host is served only when every mirror has the root. Gives the time at
    /// which that is so.
    fn await_root(&mut self, is_everywhere: bool, now: Time) -> Result<Time, PblkError> {
        let (mut now, mut none) = (now, Ring::new(1));
        let number = self.saved.checkpoint.root.number;
        while !is_everywhere && self.is_checkpointing(number) && !self.facts.dead {
            let at = self.next_event().ok_or(PblkError::Recovery(Status::ABORTED))?;
            now = now.max(at);
            self.advance(now, &mut none);
        }
        Ok(now)
    }
}
