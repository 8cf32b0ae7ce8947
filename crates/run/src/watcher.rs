//! Who carries out on the drive what the program does to its files, and says when each call is
//! done. The kernel's own part is played here, too: the page cache, and what writes back dirty
//! pages and commits the journal now and then.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use files::{BLOCK, Files, FilesError, Inode, Operation, WriteBack};
use interpose::{Answer, Course, Errno, Room, Transfer, Wants, Watcher, Way};
use port::Time;

use crate::args::Cut;
use crate::cached::{Cached, pages};
use crate::counts::{Counts, READS, WRITES, kind};
use crate::engine::DriveDisk;
use crate::room;
use crate::speculation::Speculation;
use crate::unreadable::Unreadable;
use crate::waits::{Again, Over, Waits};

/// As ext4 commits its journal, and the kernel writes back what has been dirty for long.
const COMMIT: Duration = Duration::from_secs(5);
const EXPIRE: Duration = Duration::from_secs(30);
/// Pages that were written and stay in memory, of 4 KiB: 64 MiB.
const KEPT: usize = 16384;
/// Pages that are read ahead of a sequential reader, as Linux' 128 KiB.
const AHEAD: u64 = 32;

/// What makes something durable, or writes past the page cache.
enum Work {
    Change(Operation),
    Direct(WriteBack),
}

/// The files on the drive, and what was done to them.
pub struct OnDrive {
    pub files: Files<DriveDisk>,
    disk: DriveDisk,
    cached: Cached,
    /// What the folder has zeros in place of.
    pub unreadable: Unreadable,
    waits: Waits,
    /// What waits until the drive is done with what goes ahead, and by which ticket.
    queue: Vec<(u64, Instant, Work)>,
    /// What was lost of a file in a turn, which lasts until then.
    lost: HashMap<Inode, (Instant, Errno)>,
    pub counts: Counts,
    pub changes: u64,
    cut: Option<Cut>,
    pub is_cut: bool,
    /// Of syncs that are answered before they are done, where they are.
    pub speculation: Option<Speculation>,
    /// Syncs that are to be durable up to a number when they are answered, and by which ticket.
    late: VecDeque<(u64, u64)>,
    /// What rings when a disk has done what the drive waits for.
    bell: Option<OwnedFd>,
    /// A change that the kernel's view has and the drive has not, and why.
    pub diverged: Option<String>,
    /// Calls that met an error of the drive.
    pub told: u64,
    /// The call in progress is one of them: it may be told in pieces.
    is_told: bool,
    is_aborted: bool,
    refused: Vec<&'static str>,
    begun: Instant,
    commit_at: Instant,
    write_at: Instant,
}

impl OnDrive {
    /// Its time begins now.
    pub fn new(
        mut files: Files<DriveDisk>,
        disk: DriveDisk,
        cut: Option<Cut>,
        speculation: Option<Speculation>,
    ) -> Self {
        let now = Instant::now();
        disk.begin();
        files.keep_pages(KEPT);
        Self {
            files,
            disk,
            cached: Cached::default(),
            unreadable: Unreadable::default(),
            waits: Waits::default(),
            queue: Vec::new(),
            lost: HashMap::new(),
            counts: Counts::default(),
            changes: 0,
            cut,
            is_cut: cut == Some(Cut::Changes(0)),
            speculation,
            late: VecDeque::new(),
            bell: None,
            diverged: None,
            told: 0,
            is_told: false,
            is_aborted: false,
            refused: Vec::new(),
            begun: now,
            commit_at: now + COMMIT,
            write_at: now + EXPIRE,
        }
    }

    /// Nobody waits from now on for the disk in which the drive has its bytes, where a commit is
    /// begun that nobody may have to wait for.
    pub fn set_patient(&mut self) -> std::io::Result<()> {
        self.bell = Some(self.disk.bell()?);
        Ok(())
    }

    /// Calls that were refused, as they would go past.
    pub fn refused(&self) -> &[&'static str] {
        &self.refused
    }

    /// Whether the power was to be cut, and was not.
    pub fn is_uncut(&self) -> bool {
        self.cut.is_some() && !self.is_cut
    }

    /// The answer to a call of that kind, which came at these times of wall and drive. One that
    /// asked nothing of the drive waits for nobody who did.
    fn answer(
        &mut self,
        kind: usize,
        (came, since): (Instant, Time),
        bytes: u64,
        error: Option<Errno>,
    ) -> Answer {
        let at = self.disk.until(since);
        self.counts.keeps(kind, came, bytes, at);
        Answer { at, ticket: None, error }
    }

    /// A call meets an error.
    fn told(&mut self, e: &FilesError) -> Errno {
        self.count_told();
        self.failed(e)
    }

    /// The call in progress counts once.
    fn count_told(&mut self) {
        self.told += u64::from(!std::mem::replace(&mut self.is_told, true));
    }

    fn failed(&mut self, e: &FilesError) -> Errno {
        // The first to hear of it need not be the last to change something.
        self.is_aborted |= matches!(e, FilesError::Aborted) || self.files.failure().is_some();
        Errno::from_raw_os_error(e.errno())
    }

    /// Writes back all dirty pages.
    fn write_dirty(&mut self) {
        let mut runs: Vec<(Inode, u32, u32)> = Vec::new();
        for (inode, page) in self.files.dirty() {
            match runs.last_mut() {
                Some(run) if run.0 == inode && run.1 + run.2 == page => run.2 += 1,
                _ => runs.push((inode, page, 1)),
            }
        }
        for (inode, first, count) in runs {
            // Its error is told by the next sync.
            let _ = self.files.write_back(WriteBack::Pages { inode, first, count });
        }
    }

    /// Makes durable what syncs asked for that were answered and nobody waited for.
    pub fn finish(&mut self) -> Result<(), FilesError> {
        match self.speculation.as_ref().and_then(Speculation::awaited) {
            Some(_) => self.files.apply(&Operation::SyncAll),
            None => Ok(()),
        }
    }

    /// Makes durable what syncs asked for that were answered, when the drive is done with those
    /// before.
    fn commit_answered(&mut self, now: Instant) {
        let Self { files, disk, speculation, .. } = self;
        let Some(speculation) = speculation.as_mut().filter(|it| !it.is_stopped()) else { return };
        let Err(error) = Self::go_on(files, disk, speculation, now) else { return };
        // What was tried since does not tell what went wrong.
        let error = files.failure().map_or(error, FilesError::from);
        let errno = Errno::from_raw_os_error(error.errno());
        self.is_aborted |= files.failure().is_some();
        let durable = speculation.fail(error, self.late.iter().map(|it| it.0));
        if speculation.failed.is_none() {
            for (number, ticket) in self.late.drain(..) {
                self.waits.end(ticket, (number > durable).then_some(errno));
            }
        }
    }

    /// Goes on with the commit that is under way, and begins the next.
    fn go_on(
        files: &mut Files<DriveDisk>,
        disk: &DriveDisk,
        speculation: &mut Speculation,
        now: Instant,
    ) -> Result<(), FilesError> {
        let look = |files: &mut Files<DriveDisk>, speculation: &mut Speculation| {
            let looked = files.is_committed();
            // What it found done may still be under way on the drive.
            speculation.end(files.commits_over(), disk.until(Time::ZERO).unwrap_or(now));
            looked
        };
        speculation.note(files.commits_begun());
        speculation.join(now, files.commits_over());
        look(files, speculation)?;
        if speculation.wants_commit(now) && files.commits_over() == files.commits_begun() {
            files.begin_commit()?;
            speculation.began(now, files.commits_begun());
            look(files, speculation)?;
        }
        Ok(())
    }

    /// What the kernel does by itself; its errors are told by the next sync.
    fn write_back(&mut self, now: Instant) {
        if now >= self.write_at {
            self.write_at = now + EXPIRE;
            // With speculation a commit has all that is dirty.
            if self.speculation.is_none() {
                self.write_dirty();
            }
        }
        if now >= self.commit_at {
            self.commit_at = now + COMMIT;
            match &mut self.speculation {
                Some(speculation) => speculation.wish(),
                None => drop(self.files.write_back(WriteBack::Commit)),
            }
        }
    }

    /// Has pages read from the drive that are not in memory, and some ahead of who reads in a row.
    /// The reads that bring them.
    fn read(&mut self, inode: Inode, offset: u64, len: u64) -> Result<Vec<u64>, FilesError> {
        let size = self.files.stat(inode)?.size.div_ceil(4096);
        let wanted = pages(offset, len);
        let mut reads = self.waits.coming(inode, wanted.clone());
        if let Some(first) = self.cached.missing(inode, wanted.clone()) {
            let before = wanted.start.saturating_sub(1)..wanted.start;
            let is_in_a_row = self.cached.missing(inode, before).is_none();
            reads.extend(self.fetch(inode, first.start..wanted.end)?);
            if is_in_a_row {
                self.fetch(inode, wanted.end..(wanted.end + AHEAD).min(size).max(wanted.end))?;
            }
        }
        Ok(reads)
    }

    /// Begins to read those of these pages that are not in memory.
    fn fetch(&mut self, inode: Inode, wanted: Range<u64>) -> Result<Option<u64>, FilesError> {
        let (mut runs, mut missing, mut at) = (Vec::new(), Vec::new(), wanted.start);
        while let Some(run) = self.cached.missing(inode, at..wanted.end) {
            at = run.end;
            runs.extend(self.files.runs(inode, run.start * 4096, (run.end - run.start) * 4096)?);
            missing.push(run);
        }
        missing.iter().for_each(|run| self.cached.add(inode, run.clone()));
        Ok(self.begin(inode, missing, &runs))
    }

    /// Begins to read runs of blocks, if there are any, which bring these pages into memory.
    fn begin(&mut self, inode: Inode, pages: Vec<Range<u64>>, runs: &[Range<u64>]) -> Option<u64> {
        if runs.is_empty() {
            return None;
        }
        let read = self.disk.read_along(runs);
        self.waits.begun(read, inode, pages);
        Some(read)
    }

    /// The answer to a call that waits for these reads.
    fn answer_after(
        &mut self,
        reads: &[u64],
        came: Instant,
        bytes: u64,
        wanted: Option<(Inode, Range<u64>)>,
    ) -> Answer {
        self.counts.count(READS, came, bytes);
        if reads.is_empty() {
            return Answer::NOW;
        }
        let ticket = self.waits.open(READS, came);
        self.waits.wait_for(ticket, reads);
        if let Some((inode, pages)) = wanted {
            self.waits.wants(ticket, inode, pages);
        }
        Answer { ticket: Some(ticket), ..Answer::NOW }
    }

    /// Has work done when the drive is done with what goes ahead: that of several calls, which
    /// came meanwhile, together.
    fn in_turn(&mut self, kind: usize, came: Instant, work: Work) -> Answer {
        let ticket = self.waits.open(kind, came);
        self.queue.push((ticket, came, work));
        self.take_turn(came);
        Answer { ticket: Some(ticket), ..Answer::NOW }
    }

    /// The answer to a sync: at once, or when it is durable, or when it was done.
    fn answer_sync(&mut self, sync: &Operation, came: Instant) -> Answer {
        let Self { files, speculation, .. } = self;
        // What has failed since the last look is told, too.
        let can = files.failure().is_none();
        let Some(speculation) = speculation.as_mut().filter(|it| can && it.is_on()) else {
            return self.in_turn(kind(sync), came, Work::Change(sync.clone()));
        };
        speculation.note(files.commits_begun());
        let ticket = if speculation.answers() {
            speculation.answer();
            None
        } else {
            let ticket = self.waits.open(kind(sync), came);
            self.late.push_back((speculation.answer_late(), ticket));
            Some(ticket)
        };
        self.commit_answered(came);
        Answer { ticket, ..Answer::NOW }
    }

    /// Does all the work that waits, if it is its turn.
    fn take_turn(&mut self, now: Instant) {
        if self.queue.is_empty() || self.disk.until(Time::ZERO).is_some_and(|at| at > now) {
            return;
        }
        let queue = std::mem::take(&mut self.queue);
        // Data first, so that one commit and one flush do for all.
        let data = |files: &mut Files<DriveDisk>, work: &Work| match work {
            Work::Direct(what) => files.write_back(*what),
            Work::Change(Operation::Sync { inode, .. }) if queue.len() > 1 => {
                files.write_back(WriteBack::Pages { inode: *inode, first: 0, count: u32::MAX })
            }
            Work::Change(_) => Ok(()),
        };
        let written: Vec<_> =
            queue.iter().map(|(_, _, work)| data(&mut self.files, work)).collect();
        // What is lost of a file is told to all who came for it before that was known.
        let mut lost = std::mem::take(&mut self.lost);
        for ((ticket, came, work), written) in queue.into_iter().zip(written) {
            let done = match &work {
                Work::Direct(_) => written,
                Work::Change(operation) => written.and(self.files.apply(operation)),
            };
            let mut error = done.err().map(|e| self.failed(&e));
            let at = self.disk.until(Time::ZERO).unwrap_or(now);
            if let Work::Change(Operation::Sync { inode, .. }) = work {
                let told = lost.get(&inode).filter(|it| came <= it.0).map(|it| it.1);
                self.lost.extend(error.map(|errno| (inode, (at, errno))));
                lost.extend(error.map(|errno| (inode, (at, errno))));
                error = error.or(told);
            }
            self.waits.end_at(ticket, at, error);
        }
    }

    /// Has the pages of a call read again, alone, where a read failed that was for others, too.
    fn ask_again(&mut self, again: &Again) {
        let mut reads = self.waits.coming(again.inode, again.wanted.clone());
        reads.extend(self.fetch(again.inode, again.wanted.clone()).ok().flatten());
        self.waits.asked_again(again, &reads);
    }
}

impl Watcher for OnDrive {
    fn wants(&self) -> Wants {
        let effects = self.speculation.is_some();
        Wants { reads: true, effects, room: true, ..Wants::default() }
    }

    fn bell(&mut self) -> Option<OwnedFd> {
        self.bell.take()
    }

    fn begins(&mut self) {
        self.is_told = false;
        self.counts.begins();
    }

    fn before(&mut self, operation: &Operation) -> Result<(), Errno> {
        let is_sync = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
        if self.is_cut {
            return Err(Errno::IO);
        }
        if self.is_aborted && !is_sync {
            self.count_told();
            return Err(Errno::ROFS);
        }
        if room::is_too_large(operation) {
            return Err(Errno::FBIG);
        }
        match room::needs(operation, &self.files) {
            0 => Ok(()),
            needed => match self.files.has_room(needed) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::NOSPC),
                Err(e) => Err(self.told(&e)),
            },
        }
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        if self.is_cut {
            // One call may make several changes.
            return Answer { error: Some(Errno::IO), ..Answer::NOW };
        }
        let came = (Instant::now(), self.disk.now());
        self.changes += 1;
        self.is_cut = matches!(self.cut, Some(Cut::Changes(most)) if self.changes >= most);
        self.cached.note(operation);
        self.unreadable.note(operation);
        let is_sync = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
        if is_sync {
            self.counts.count(kind(operation), came.0, 0);
            return self.answer_sync(operation, came.0);
        }
        let bytes = match operation {
            Operation::Write { data, .. } => data.len() as u64,
            _ => 0,
        };
        let error = self.files.apply(operation).err().map(|e| {
            self.diverged.get_or_insert_with(|| e.to_string());
            self.told(&e)
        });
        self.answer(kind(operation), came, bytes, error)
    }

    fn transfer(&mut self, transfer: &Transfer) -> Answer {
        let came = Instant::now();
        let Transfer { inode, offset, len, way } = *transfer;
        let range = pages(offset, len);
        let count = (range.end - range.start) as u32;
        let dirty = WriteBack::Pages { inode, first: range.start as u32, count };
        let bad = self.unreadable.touched(inode, range.clone());
        if let Some(e) = bad.filter(|_| way != Way::DirectWrite) {
            return Answer { error: Some(self.told(&e.into())), ..Answer::NOW };
        }
        let reads = match way {
            Way::Read => self.read(inode, offset, len),
            Way::DirectRead => {
                let written = self.files.write_back(dirty);
                let runs = written.and_then(|()| self.files.runs(inode, offset, len));
                runs.map(|runs| self.begin(inode, Vec::new(), &runs).into_iter().collect())
            }
            Way::DirectWrite => return self.in_turn(WRITES, came, Work::Direct(dirty)),
        };
        match reads {
            Ok(reads) => {
                let wanted = (way == Way::Read).then_some((inode, range));
                self.answer_after(&reads, came, len, wanted)
            }
            Err(e) => Answer { error: Some(self.told(&e)), ..Answer::NOW },
        }
    }

    fn room(&mut self) -> Option<Room> {
        let (blocks, free) = self.files.room();
        let free = free.saturating_sub(room::RESERVE);
        Some(Room { block: BLOCK as u64, blocks, free })
    }

    fn over(&mut self) -> Option<(u64, Option<Errno>)> {
        if self.waits.is_empty() {
            return None;
        }
        while let Some((read, result)) = self.disk.over() {
            let error = result.err().map(|e| Errno::from_raw_os_error(FilesError::from(e).errno()));
            let (lost, again) = self.waits.read_over(read, error);
            if let Some((inode, pages)) = lost {
                pages.into_iter().for_each(|run| self.cached.remove(inode, run));
            }
            again.iter().for_each(|it| self.ask_again(it));
        }
        let now = Instant::now();
        let durable = self.speculation.as_ref().map_or(0, Speculation::durable);
        while let Some((_, ticket)) = self.late.pop_front_if(|it| it.0 <= durable) {
            self.waits.end(ticket, None);
        }
        let Over { ticket, kind, since, error } = self.waits.next(now)?;
        self.counts.kept(kind, now.saturating_duration_since(since));
        self.told += u64::from(error.is_some());
        Some((ticket, error))
    }

    fn refused(&mut self, call: &'static str) {
        self.refused.push(call);
    }

    fn awaited(&mut self) -> Option<u64> {
        let speculation = self.speculation.as_mut()?;
        speculation.pass(Instant::now());
        speculation.awaited()
    }

    fn holds(&mut self, number: u64) {
        if let Some(speculation) = &mut self.speculation {
            speculation.hold(number);
        }
    }

    fn reached(&mut self) -> u64 {
        self.speculation.as_ref().map_or(u64::MAX, Speculation::durable)
    }

    fn shares(&mut self) {
        if let Some(speculation) = &mut self.speculation {
            speculation.is_off = true;
        }
    }

    fn course(&mut self) -> Course {
        let now = Instant::now();
        let cut_at = match self.cut {
            Some(Cut::Time(after)) => Some(self.begun + after),
            _ => None,
        };
        self.is_cut |= cut_at.is_some_and(|at| now >= at);
        if self.is_cut {
            return Course::Stop;
        }
        self.write_back(now);
        self.commit_answered(now);
        self.take_turn(now);
        let mut next = self.commit_at.min(self.write_at);
        let turn = match self.queue.is_empty() {
            true => None,
            false => self.disk.until(Time::ZERO),
        };
        let others = [self.waits.next_due(), self.disk.next_look(), turn];
        next = others.into_iter().flatten().fold(next, Instant::min);
        if let Some(speculation) = &self.speculation {
            if speculation.failed.is_some() {
                return Course::Stop;
            }
            next = speculation.until().map_or(next, |at| at.min(next));
        }
        Course::Go(Some(cut_at.map_or(next, |at| at.min(next))))
    }
}

#[cfg(test)]
mod tests;
