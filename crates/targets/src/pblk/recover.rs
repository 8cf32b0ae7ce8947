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
//! What it writes: each parallel unit goes on with up to two partly written
//! chunks of data, one for the user and one for collection. Others, those that
//! were left since they had aged, are padded to their end. A root that not
//! every mirror has is written anew to all.

use std::collections::BTreeMap;

use device::{Content, OpenChannel};
use flash::{Chunk, ChunkState, ErrorLevel, Geometry, Ppa, TAG_BYTES, Tag};
use ftl::{Ended, Job, all_chunks, is_read, pieces};
use port::{Port, Ring, Status, Time};

use super::load::{Gone, Load};
use super::map::Place;
use super::meta::{place_word, word_place};
use super::mutation::{Mutation, is};
use super::record::{Kind, Record, is_whole, load_page, own};
use super::recount::Recount;
use super::root::{Mirror, NoRoot, Root};
use super::space::OpenChunk;
use super::table::Use;
use super::units::PAD;
use super::{Memory, Pblk, PblkConfig, PblkError, WriteCounters};

/// The drive during start-up.
type Runner<'a, D> = ftl::Runner<'a, D, PblkError>;

/// The highest sequence number that is believed; a drive never comes to it.
const LAST_SEQ: u64 = 1 << 62;

/// Fails where a job did.
fn check(ended: &Ended) -> Result<(), PblkError> {
    if is_read(ended.status) { Ok(()) } else { Err(PblkError::Recovery(ended.status)) }
}

/// Reads one block whole, and its tag.
fn read_block<D: OpenChannel>(
    runner: &mut Runner<D>,
    ppa: Ppa,
    to: &mut Vec<u8>,
) -> Result<Tag, PblkError> {
    let mut tag = Tag::default();
    runner.run(std::iter::once(whole(ppa)), |_, ended| {
        check(&ended)?;
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

/// A copy that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    lba: u64,
    seq: u64,
    /// Equal numbers are copies of the same bytes, one of which collection
    /// made: then the one in a partly written chunk is taken, so that what
    /// collection had done stays done and its victim is all but empty.
    /// Collection may have no more room than it needs for what it had not done
    /// yet.
    in_open: bool,
    at: Ppa,
}

/// What was written since the checkpoint.
#[derive(Default)]
struct Scan {
    copies: Vec<Copy>,
    records: Vec<Record>,
    /// Pages of the log: number and where.
    log: Vec<(u64, Ppa)>,
    /// By chunk that was read: the highest number in it, and whether it holds
    /// own blocks.
    chunks: BTreeMap<usize, (u64, bool)>,
    /// The highest sequence number of all.
    highest: u64,
    /// Rows read.
    rows: u64,
    recount: Recount,
}

impl Scan {
    /// Takes note of one tag.
    fn see(&mut self, at: Ppa, chunk: usize, in_open: bool, blocks: u64, tag: Tag) {
        // Others are not this target's.
        if !(1..=LAST_SEQ).contains(&tag.seq) {
            return;
        }
        let newest = self.chunks.entry(chunk).or_default();
        if let Some((kind, number)) = own(tag.id) {
            newest.1 = true;
            self.recount.see_own();
            if kind == Kind::Log {
                self.log.push((number, at));
            }
            return;
        }
        newest.0 = newest.0.max(tag.seq);
        self.highest = self.highest.max(tag.seq);
        if tag.id < blocks {
            self.copies.push(Copy { lba: tag.id, seq: tag.seq, in_open, at });
        }
        if tag.id == PAD {
            self.recount.see_padding(tag.seq);
        }
    }

    /// The ranges that records gave up, each with what counts last.
    /// Those up to number `settled` are in the pages.
    fn gone(&mut self, settled: u64) -> Vec<Gone> {
        let mut ranges: BTreeMap<u64, Gone> = BTreeMap::new();
        self.records.sort_by_key(|record| record.number);
        for record in &self.records {
            let (lba, end) = (record.lba, record.lba.saturating_add(record.count.into()));
            // What lies across an end is cut there.
            for cut in [lba, end] {
                if let Some((_, gone)) = ranges.range_mut(..cut).next_back()
                    && gone.end > cut
                {
                    let rest = Gone { lba: cut, ..*gone };
                    gone.end = cut;
                    ranges.insert(cut, rest);
                }
            }
            let inside: Vec<u64> = ranges.range(lba..end).map(|(&lba, _)| lba).collect();
            for lba in inside {
                ranges.remove(&lba);
            }
            let Record { upto, lost, .. } = *record;
            let in_pages = record.number <= settled;
            ranges.insert(lba, Gone { lba, end, upto, lost, in_pages });
        }
        ranges.into_values().collect()
    }

    /// Of each block the copy that counts, unless it is among the `gone`.
    fn newest(&mut self, gone: &[Gone]) -> Vec<(u64, Place)> {
        self.copies.sort_unstable();
        let mut newest: Vec<(u64, Place)> = Vec::new();
        for of_block in self.copies.chunk_by(|a, b| a.lba == b.lba) {
            let last = match is(Mutation::OldestWins) {
                true => of_block[0],
                false => of_block[of_block.len() - 1],
            };
            let at = gone.partition_point(|gone| gone.end <= last.lba);
            let is_gone =
                gone.get(at).is_some_and(|gone| gone.lba <= last.lba && last.seq <= gone.upto);
            if !is_gone {
                newest.push((last.lba, Place::flash(last.at)));
            }
        }
        newest
    }
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
        let row = u64::from(pblk.geometry.row_blocks());
        let mut rows: Vec<u64> = scan.log.iter().map(|(_, ppa)| ppa.0 / row).collect();
        rows.sort_unstable();
        rows.dedup();
        let rows = rows.len() as u64;
        // Also behind those that were never sent, but the pages know: their
        // numbers must not be others'.
        pblk.log.continue_after(root.settled.max(last), root.log_page.max(page), rows);
        pblk.counters = root.counters;
        // They are in order now.
        let copies = scan.copies.iter().map(|copy| (copy.lba, copy.seq));
        let numbers = (root.seq, scan.highest, pblk.units.of_user().into());
        scan.recount.add(copies, numbers, row as u32, &mut pblk.counters);
        let plan = pblk.plan(&scan);
        let now = pblk.pad(&plan, &scan, now)?;
        pblk.checkpoint.rows = scan.rows;
        pblk.checkpoint.root = root;
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
        let of_users = chunks.filter(|chunk| !self.meta.chunks.contains_key(chunk));
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
        Ok(Peek { counters, clean, checkpoint: number, memory })
    }

    /// Finds the last whole root; an empty one when there never was one. Its
    /// number is the highest of all that were begun. Also says whether each
    /// mirror has it, and nothing newer.
    fn find_root(&mut self, now: Time) -> Result<(Root, bool, Time), PblkError> {
        let geometry = self.geometry;
        let mut runner = Runner::new(&mut self.device, now);
        let bytes = Root::bytes(self.meta.directory.len());
        let mut search = Search { bytes, ..Search::default() };
        for (m, mirror) in self.mirrors.iter_mut().enumerate() {
            for (i, &chunk) in mirror.chunks.iter().enumerate() {
                let programmed = runner.device.chunk(chunk).programmed;
                let found = search.chunk(&mut runner, &geometry, chunk, programmed, m)?;
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
        let good = good_mirrors(&self.device, &self.mirrors, geometry.chunk_blocks());
        let (highest, whole) = (search.highest, search.whole);
        let Some(root) = search.newest_root(good)? else {
            return Ok((Root::default(), true, now));
        };
        let has_it = |m: usize| whole[m].is_some_and(|(number, _)| number == root.number);
        let is_everywhere = highest <= root.number
            && (0..self.mirrors.len()).all(|m| !self.mirrors[m].is_usable() || has_it(m));
        let made = (self.map.blocks(), self.map.entry_bytes(), geometry.chunk_slots() as u64);
        let found = (root.blocks, root.entry, root.chunks);
        if found != made || root.directory.len() != self.meta.directory.len() {
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
            self.meta.directory.copy_from_slice(&root.directory);
        }
        let mut runner = Runner::new(&mut self.device, now);
        let meta = &mut self.meta;
        let places: Vec<Ppa> = root.directory.iter().filter_map(|&at| word_place(at)).collect();
        let mut wrong = false;
        runner.run(places.into_iter().map(whole), |job, ended| {
            check(&ended)?;
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
        let table = &mut self.table;
        runner.run(pages.into_iter().map(whole), |job, ended| {
            check(&ended)?;
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
        let (meta, blocks) = (&self.meta, self.map.blocks());
        let mut load = Load::new(&geometry, self.map.pages(), |page| meta.page(page))?;
        let mut scan = Scan::default();
        let mut by_pu: Vec<Vec<(usize, u32, u32)>> = vec![Vec::new(); geometry.pu_slots()];
        for chunk in all_chunks(&geometry) {
            let (of, entry) = (self.device.chunk(chunk), self.table.get(chunk));
            let same = of.wear == entry.wear;
            let (erases, next) = (of.wear.saturating_sub(entry.wear), entry.next.min(size));
            // A table without a root knows of no wear, nor does any of that of anchors.
            if root.number > 0 && !self.is_anchor(chunk) {
                scan.recount.see_erases(erases, size, next, entry.used == Use::Own);
            }
            load.erased[chunk] = !same || of.programmed == 0;
            let from = match entry.used {
                _ if !same => 0,
                Use::None => 0,
                Use::Data | Use::Own => entry.next,
            };
            let is_data = of.state != ChunkState::Offline && !self.is_anchor(chunk);
            if is_data && from < of.programmed {
                by_pu[geometry.pu_index(geometry.chunk_start(chunk))].push((
                    chunk,
                    from,
                    of.programmed,
                ));
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
        let mut runner = Runner::new(&mut self.device, now);
        runner.run(jobs, |job, ended| {
            scan.rows += 1;
            let chunk = geometry.chunk_index(job.ppa);
            // What a failed program was to write went elsewhere.
            let known = chunks[chunk].failed_of(geometry.block(job.ppa), job.count);
            if ended.failed == 0 || ended.failed & !known != 0 {
                check(&ended)?;
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
                let next = if i < 2 { programmed.next_multiple_of(row) } else { size };
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
            found.unwrap_or_else(|| self.table.get(*chunk).age)
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
            check(&ended)
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
            self.meta.own(chunk);
            self.space.found_own(pu);
            let of = self.device.chunk(chunk);
            let rank = self.stripe.rank(pu);
            self.chunks[chunk].failed = of.is_spoilt(size);
            let goes_on = !self.chunks[chunk].failed
                && of.programmed < geometry.chunk_blocks()
                && of.state == ChunkState::Open
                && of.programmed.is_multiple_of(row);
            if goes_on && self.meta.open[rank].is_none() {
                self.meta.open[rank] = Some(OpenChunk::new(chunk, of.programmed));
            }
        }
        for &(number, ppa) in &scan.log {
            let own = self.meta.chunks.get_mut(&geometry.chunk_index(ppa));
            let own = own.expect("it holds own blocks");
            own.log_end = own.log_end.max(number + 1);
        }
        self.meta.count_all();
        debug_assert!(plan.full.iter().all(|chunk| !self.meta.chunks.contains_key(chunk)));
        let is_free = |chunk: &usize| {
            let of = self.device.chunk(*chunk);
            of.programmed == 0 && of.state != ChunkState::Offline
        };
        let mut free: Vec<usize> = all_chunks(&geometry).filter(is_free).collect();
        free.retain(|&chunk| !self.is_anchor(chunk));
        free.sort_by_key(|&chunk| (self.device.chunk(chunk).wear, chunk));
        free.into_iter().for_each(|chunk| self.space.give(chunk));
    }

    /// Goes on where the target was. A root that not every mirror has is written
    /// anew, before what older ones lead to is erased: else the next start might
    /// take up an older one.
    fn go_on(&mut self, plan: &Plan, is_everywhere: bool, load: Box<Load>, now: Time) {
        let geometry = self.geometry;
        for chunk in all_chunks(&geometry) {
            if self.device.chunk(chunk).state == ChunkState::Offline && !self.is_anchor(chunk) {
                self.lose(chunk);
            }
        }
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
            self.collectors[rank].go_on(open);
        }
        for pu in geometry.pus_channels_first() {
            let rank = self.stripe.rank(pu);
            if self.space.pus[pu].free() == 0 {
                self.collectors[rank].rescue = true;
                self.space.lend(pu);
            }
            self.refresh(pu);
        }
        if is_everywhere {
            self.erase_dead_own(self.checkpoint.root.log_page);
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
        let number = self.checkpoint.root.number;
        while !is_everywhere && self.is_checkpointing(number) && !self.dead {
            let at = self.next_event().ok_or(PblkError::Recovery(Status::ABORTED))?;
            now = now.max(at);
            self.advance(now, &mut none);
        }
        Ok(now)
    }
}

/// The search for the last whole root.
#[derive(Default)]
struct Search {
    /// Bytes of a root of this target.
    bytes: usize,
    best: Option<Root>,
    /// The highest number that any root had.
    highest: u64,
    /// A root was there and is not whole, or cannot be read.
    damaged: bool,
    /// The highest number of a root of another version, and that.
    version: (u64, u64),
    /// By mirror: the highest number that a root that is damaged may have.
    suspect: [u64; 2],
    /// By mirror: the highest number, and in which of its chunks.
    newest: [(u64, usize); 2],
    /// By mirror: the last whole root, and its chunk.
    whole: [Option<(u64, usize)>; 2],
}

impl Search {
    /// The root that holds; none where there never was one. A damaged one that
    /// may be newer is gone past only if a `good` mirror shows that it was not
    /// finished: what only an older root leads to may be gone.
    fn newest_root(self, good: [bool; 2]) -> Result<Option<Root>, PblkError> {
        let number = self.best.as_ref().map_or(0, |best| best.number);
        if self.version.0 > number {
            return Err(PblkError::Version(self.version.1));
        }
        let shows = |m: usize| {
            let last = self.whole[m].map_or(0, |(last, _)| last);
            good[m] && last == number && self.suspect[m] <= number
        };
        let is_suspect = self.suspect.iter().any(|&suspect| suspect > number);
        let is_lost = self.best.is_none() && self.damaged;
        if is_lost || (is_suspect && !shows(0) && !shows(1)) {
            return Err(PblkError::Root);
        }
        Ok(self.best)
    }

    /// Looks for the last whole root of a chunk, from its end. Gives the
    /// highest number in it.
    fn chunk<D: OpenChannel>(
        &mut self,
        runner: &mut Runner<D>,
        geometry: &Geometry,
        chunk: usize,
        programmed: u32,
        mirror: usize,
    ) -> Result<u64, PblkError> {
        let row = geometry.row_blocks();
        let start = geometry.chunk_start(chunk).0;
        let of = runner.device.chunk(chunk);
        // A row that cannot be read, or is no part of a root; of a failed
        // program it is no loss.
        let (mut newest, mut unknown) = (0, false);
        let mut rows = programmed / row;
        while rows > 0 {
            let at = |row_number: u32| Ppa(start + u64::from(row_number * row));
            rows -= 1;
            let mut bytes = Vec::new();
            let Some((first, number)) = self.root_tag(runner, at(rows), &mut bytes)? else {
                unknown |= of.failed_of(rows * row, 1) == 0;
                continue;
            };
            newest = newest.max(number);
            self.highest = self.highest.max(number);
            // The root's first row, if all of it is in this chunk.
            let Some(begin) = rows.checked_sub(first / row) else {
                self.damaged = true;
                self.suspect[mirror] = self.suspect[mirror].max(number);
                continue;
            };
            bytes.clear();
            let mut all_read = true;
            let blocks = (begin * row..(rows + 1) * row).map(|block| Ppa(start + u64::from(block)));
            for ppa in blocks {
                if let Err(e) = read_block(runner, ppa, &mut bytes) {
                    stopped(&e)?;
                    all_read &= of.failed_of(geometry.block(ppa), 1) != 0;
                }
            }
            match Root::load(&bytes) {
                Ok(root) if root.number == number => {
                    let whole = &mut self.whole[mirror];
                    *whole = (*whole).max(Some((root.number, chunk)));
                    if unknown {
                        self.suspect[mirror] = self.suspect[mirror].max(root.number + 1);
                    }
                    if self.best.as_ref().is_none_or(|best| best.number < root.number) {
                        self.best = Some(root);
                    }
                    return Ok(newest);
                }
                // Its tag is damaged: these are not all its rows, or more.
                Ok(root) => {
                    self.damaged = true;
                    self.suspect[mirror] = self.suspect[mirror].max(number).max(root.number);
                }
                Err(wrong) => {
                    if let NoRoot::Version(version) = wrong {
                        self.version = self.version.max((number, version));
                    }
                    // The first rows of one that was not written to its end
                    // are no damage.
                    if !all_read || bytes.len() >= self.bytes {
                        self.damaged = true;
                        self.suspect[mirror] = self.suspect[mirror].max(number);
                    }
                    rows = begin;
                }
            }
        }
        if unknown {
            self.suspect[mirror] = u64::MAX;
        }
        Ok(newest)
    }

    /// The number of a row's first block in its root, and the root's. `None`
    /// for what is no part of a root or cannot be read.
    fn root_tag<D: OpenChannel>(
        &mut self,
        runner: &mut Runner<D>,
        at: Ppa,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<(u32, u64)>, PblkError> {
        match read_block(runner, at, bytes) {
            Err(e) => {
                stopped(&e)?;
                self.damaged |= !matches!(e, PblkError::Recovery(Status::UNWRITTEN));
                Ok(None)
            }
            Ok(tag) => match own(tag.id) {
                Some((Kind::Root, first)) => Ok(Some((first as u32, tag.seq))),
                _ => {
                    self.damaged = true;
                    Ok(None)
                }
            },
        }
    }
}

/// Only a block that cannot be read is gone past; not a drive that stops.
fn stopped(e: &PblkError) -> Result<(), PblkError> {
    match e {
        PblkError::Recovery(status) if *status != Status::ABORTED => Ok(()),
        _ => Err(PblkError::Recovery(Status::ABORTED)),
    }
}

/// Whether in a mirror no program failed of late: then it has every root that
/// was ever finished.
fn good_mirrors<D: OpenChannel>(device: &D, of: &[Mirror; 2], size: u32) -> [bool; 2] {
    let has_failed = |&chunk: &usize| device.chunk(chunk).is_spoilt(size);
    let is_good = |m: &Mirror| m.is_usable() && !m.chunks.iter().any(has_failed);
    [is_good(&of[0]), is_good(&of[1])]
}
