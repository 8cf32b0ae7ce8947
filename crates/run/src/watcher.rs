//! Who carries out on the drive what the program does to its files, and says when each call is
//! done. The kernel's own part is played here, too: the page cache, and what writes back dirty
//! pages and commits the journal now and then.

use std::time::{Duration, Instant};

use files::{Files, FilesError, Inode, Operation, WriteBack};
use interpose::{Answer, Course, Errno, Transfer, Wants, Watcher, Way};
use port::Time;

use crate::args::Cut;
use crate::cached::{Cached, pages};
use crate::engine::DriveDisk;

/// As ext4 commits its journal, and the kernel writes back what has been dirty for long.
const COMMIT: Duration = Duration::from_secs(5);
const EXPIRE: Duration = Duration::from_secs(30);
/// Blocks that stay free of data, so that what has filled a drive can be removed again: as many
/// as some changes of names may need.
const RESERVE: u64 = 256;
/// Pages that are read ahead of a sequential reader, as Linux' 128 KiB.
const AHEAD: u64 = 32;

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// How long the drive kept them, in all.
    pub time: Duration,
    /// Bytes, of those that have any.
    pub bytes: u64,
}

/// The kinds that are told apart, and their names.
pub const KINDS: [&str; 6] = ["writes", "reads", "syncs", "names", "sizes", "modes"];

const READS: usize = 1;

fn kind(operation: &Operation) -> usize {
    match operation {
        Operation::Write { .. } => 0,
        Operation::Sync { .. } | Operation::SyncAll => 2,
        Operation::Create { .. }
        | Operation::Link { .. }
        | Operation::Remove { .. }
        | Operation::Forget { .. }
        | Operation::Rename { .. } => 3,
        Operation::Truncate { .. } | Operation::Allocate { .. } | Operation::Punch { .. } => 4,
        Operation::Mode { .. } => 5,
    }
}

/// The files on the drive, and what was done to them.
pub struct OnDrive {
    pub files: Files<DriveDisk>,
    disk: DriveDisk,
    cached: Cached,
    /// By [`KINDS`].
    pub calls: [Calls; KINDS.len()],
    pub changes: u64,
    cut: Option<Cut>,
    pub is_cut: bool,
    /// A change that the kernel's view has and the drive has not, and why.
    pub diverged: Option<String>,
    is_aborted: bool,
    refused: Vec<&'static str>,
    begun: Instant,
    commit_at: Instant,
    write_at: Instant,
}

impl OnDrive {
    /// Its time begins now.
    pub fn new(files: Files<DriveDisk>, disk: DriveDisk, cut: Option<Cut>) -> Self {
        let now = Instant::now();
        disk.begin();
        Self {
            files,
            disk,
            cached: Cached::default(),
            calls: [Calls::default(); KINDS.len()],
            changes: 0,
            cut,
            is_cut: false,
            diverged: None,
            is_aborted: false,
            refused: Vec::new(),
            begun: now,
            commit_at: now + COMMIT,
            write_at: now + EXPIRE,
        }
    }

    /// Calls that were refused, as they would go past.
    pub fn refused(&self) -> &[&'static str] {
        &self.refused
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
        let calls = &mut self.calls[kind];
        calls.count += 1;
        calls.bytes += bytes;
        calls.time += at.map_or(Duration::ZERO, |at| at.saturating_duration_since(came));
        Answer { at, error }
    }

    fn failed(&mut self, e: &FilesError) -> Errno {
        self.is_aborted |= matches!(e, FilesError::Aborted);
        Errno::from_raw_os_error(e.errno())
    }

    /// Blocks that an operation may take.
    fn needs(operation: &Operation) -> u64 {
        let blocks = |offset, len| {
            let pages = pages(offset, len);
            pages.end - pages.start
        };
        match operation {
            Operation::Write { offset, data, .. } => blocks(*offset, data.len() as u64) + RESERVE,
            Operation::Allocate { offset, len, .. } => blocks(*offset, *len) + RESERVE,
            Operation::Create { .. } | Operation::Link { .. } => RESERVE,
            _ => 0,
        }
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

    /// What the kernel does by itself; its errors are told by the next sync.
    fn write_back(&mut self, now: Instant) {
        if now >= self.write_at {
            self.write_at = now + EXPIRE;
            self.write_dirty();
        }
        if now >= self.commit_at {
            self.commit_at = now + COMMIT;
            let _ = self.files.write_back(WriteBack::Commit);
        }
    }

    /// Reads pages from the drive that are not in memory; of the rest nothing.
    fn read(&mut self, inode: Inode, offset: u64, len: u64) -> Result<(), FilesError> {
        let size = self.files.stat(inode)?.size.div_ceil(4096);
        let wanted = pages(offset, len);
        let is_sequential = wanted.start == 0
            || self.cached.missing(inode, wanted.start - 1..wanted.start).is_none();
        let end = if is_sequential { (wanted.end + AHEAD).min(size) } else { wanted.end };
        // What is there already needs no reading ahead.
        if self.cached.missing(inode, wanted.clone()).is_none() {
            return Ok(());
        }
        let mut at = wanted.start;
        while let Some(run) = self.cached.missing(inode, at..end.max(wanted.end)) {
            at = run.end;
            self.fetch(inode, run.start * 4096, (run.end - run.start) * 4096)?;
            self.cached.add(inode, run);
        }
        Ok(())
    }

    /// Reads from the drive whatever is in memory; bytes are the kernel's view's.
    fn fetch(&mut self, inode: Inode, offset: u64, len: u64) -> Result<(), FilesError> {
        let mut buffer = vec![0; len.min(1 << 20) as usize];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let piece = buffer.len().min((end - at) as usize);
            let got = self.files.read(inode, at, &mut buffer[..piece])?;
            if got == 0 {
                break;
            }
            at += got as u64;
        }
        Ok(())
    }
}

impl Watcher for OnDrive {
    fn wants(&self) -> Wants {
        Wants { reads: true, outputs: false }
    }

    fn before(&mut self, operation: &Operation) -> Result<(), Errno> {
        if self.cut == Some(Cut::Changes(self.changes)) {
            self.is_cut = true;
        }
        let is_sync = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
        if self.is_cut {
            return Err(Errno::IO);
        }
        if self.is_aborted && !is_sync {
            return Err(Errno::ROFS);
        }
        match Self::needs(operation) {
            0 => Ok(()),
            needed => match self.files.has_room(needed) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::NOSPC),
                Err(e) => Err(self.failed(&e)),
            },
        }
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        let came = (Instant::now(), self.disk.now());
        self.changes += 1;
        self.cached.note(operation);
        let bytes = match operation {
            Operation::Write { data, .. } => data.len() as u64,
            _ => 0,
        };
        let error = self.files.apply(operation).err().map(|e| {
            let is_sync = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
            if !is_sync && self.diverged.is_none() {
                self.diverged = Some(e.to_string());
            }
            self.failed(&e)
        });
        self.answer(kind(operation), came, bytes, error)
    }

    fn transfer(&mut self, transfer: &Transfer) -> Answer {
        let came = (Instant::now(), self.disk.now());
        let Transfer { inode, offset, len, way } = *transfer;
        let range = pages(offset, len);
        let dirty = WriteBack::Pages {
            inode,
            first: range.start as u32,
            count: (range.end - range.start) as u32,
        };
        let done = match way {
            Way::Read => self.read(inode, offset, len),
            Way::DirectRead => {
                self.files.write_back(dirty).and_then(|()| self.fetch(inode, offset, len))
            }
            Way::DirectWrite => self.files.write_back(dirty),
        };
        let error = done.err().map(|e| self.failed(&e));
        match way {
            // It was counted.
            Way::DirectWrite => Answer { at: self.disk.until(came.1), error },
            _ => self.answer(READS, came, len, error),
        }
    }

    fn refused(&mut self, call: &'static str) {
        self.refused.push(call);
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
        let next = self.commit_at.min(self.write_at);
        Course::Go(Some(cut_at.map_or(next, |at| at.min(next))))
    }
}
