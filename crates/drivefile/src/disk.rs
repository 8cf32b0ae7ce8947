//! A simulated disk behind a page cache, for tests: it may crash, fill up, or
//! fail.
//!
//! A kill keeps what the cache has, and a crash of the host after it loses that
//! all the same. What cannot be written back is not tried again: the cache has
//! it, the disk does not, and each opening of the file is told once, one that
//! comes later only if nobody was told.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use port::random::{STEP, mix};

use crate::FileIo;

/// What a disk writes as a whole.
const SECTOR: u64 = 512;

/// What is given back as a whole.
const PAGE: usize = 4096;

/// Numbers that look random, from a seed.
pub struct Rng(pub u64);

impl Rng {
    /// A number below `n` (SplitMix64).
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0) % n
    }

    /// True once in so many times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A simulated disk. A sync covers what was written before it began, and has
/// ended when that is noted, or the durable write that follows it begins: so what
/// comes between, while a sync is under way, is not covered.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// What the cache has: what is read.
    cached: Vec<u8>,
    /// What is on the disk for certain.
    durable: Vec<u8>,
    /// Writes that may be on the disk.
    pending: Vec<(u64, Vec<u8>)>,
    /// Where the cache has what was given up, and the disk may not.
    given_up: Vec<Range<usize>>,
    /// By page, whether it was ever written.
    written: Vec<bool>,
    /// All of its space is taken.
    preallocated: bool,
    /// How many of the pending writes came before the last sync began.
    synced: usize,
    /// After so many more changes everything fails.
    fuse: Option<u64>,
    /// After so many more written bytes it is full.
    room: Option<u64>,
    /// After so many more writes one fails.
    bad_write: Option<u64>,
    /// After so many more syncs one fails.
    bad_sync: Option<u64>,
    /// What is to be durable at once is written and not known to be.
    refuses_durable: bool,
    /// How often something could not be written back, and of how many of these
    /// times anybody was told.
    errors: u64,
    told: u64,
    /// Something was lost so since this was last asked.
    lost: bool,
    /// Something was refused since the process began.
    refused: bool,
    /// Pages that it cannot read until they are written as a whole.
    unreadable: BTreeSet<usize>,
    /// Which reads and writes, in their order, it can not do, and how many were asked for.
    away: Range<u64>,
    asked: u64,
}

/// An opening of the file.
struct Opening {
    disk: Disk,
    /// Errors that it was told of.
    told: Mutex<u64>,
}

impl Disk {
    /// A disk with this content.
    pub fn with(image: Vec<u8>) -> Disk {
        let written = vec![true; image.len().div_ceil(PAGE)];
        let inner = Inner { cached: image.clone(), durable: image, written, ..Inner::default() };
        Disk(Arc::new(Mutex::new(inner)))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics while it has this")
    }

    /// The file, opened.
    pub fn storage(&self) -> Arc<dyn FileIo> {
        let inner = self.inner();
        // It is told of an error that nobody was told of.
        let told = inner.errors - u64::from(inner.errors > inner.told);
        drop(inner);
        Arc::new(Opening { disk: self.clone(), told: Mutex::new(told) })
    }

    /// The process is killed. What it wrote is in the cache.
    pub fn kill(&self) {
        let inner = &mut *self.inner();
        (inner.fuse, inner.room) = (None, None);
        (inner.bad_write, inner.bad_sync) = (None, None);
        // A sync under way has not ended.
        inner.synced = 0;
        inner.refused = false;
    }

    /// The host crashes, as [`Disk::crashed`] says.
    pub fn crash(&self, rng: &mut Rng) {
        self.kill();
        let inner = &mut *self.inner();
        let mut left = std::mem::take(&mut inner.given_up);
        let kept = rng.below(5);
        for (offset, bytes) in std::mem::take(&mut inner.pending) {
            survive(&mut inner.durable, offset, &bytes, kept, rng);
            left.push(offset as usize..offset as usize + bytes.len());
        }
        for range in left {
            inner.cached[range.clone()].copy_from_slice(&inner.durable[range]);
        }
        (inner.errors, inner.told, inner.lost) = (0, 0, false);
    }

    /// What it holds after the process was killed.
    pub fn killed(&self) -> Vec<u8> {
        self.inner().cached.clone()
    }

    /// What it may hold after the host crashed: of what was not synced any
    /// sectors, and the older of two versions of a sector never over the newer.
    pub fn crashed(&self, rng: &mut Rng) -> Vec<u8> {
        let inner = self.inner();
        let mut image = inner.durable.clone();
        let kept = rng.below(5);
        for (offset, bytes) in &inner.pending {
            survive(&mut image, *offset, bytes, kept, rng);
        }
        image
    }

    /// After `changes` more changes everything fails; or nothing does.
    pub fn set_fuse(&self, changes: Option<u64>) {
        self.inner().fuse = changes;
    }

    /// After `bytes` more written bytes it is full.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.inner().room = bytes;
    }

    /// After `writes` more one fails and nothing of it is written, as one that
    /// finds the disk full while another gives space back; or none does. Those
    /// that are durable at once do not count.
    pub fn fail_write(&self, writes: Option<u64>) {
        self.inner().bad_write = writes;
    }

    /// After `syncs` more one fails; or none does.
    pub fn fail_sync(&self, syncs: Option<u64>) {
        self.inner().bad_sync = syncs;
    }

    /// Whether what is to be durable at once is written and refused.
    pub fn refuse_durable(&self, refuses: bool) {
        self.inner().refuses_durable = refuses;
    }

    /// Some of what waits to be written back cannot be.
    pub fn lose(&self) {
        self.inner().lose();
    }

    /// Whether something could not be written back since this was last asked.
    pub fn take_lost(&self) -> bool {
        std::mem::take(&mut self.inner().lost)
    }

    /// Whether it refused anything since the process began, so that a file has reason to stop,
    /// or not to be opened.
    pub fn has_refused(&self) -> bool {
        self.inner().refused
    }

    /// The page of this byte cannot be read any more, nor a part of it be written, as the
    /// system reads the rest of it for that. Written as a whole it is good again.
    #[cfg(test)]
    pub(crate) fn spoil(&self, byte: usize) {
        self.inner().unreadable.insert(byte / PAGE);
    }

    /// A file on it has all of its space from the start.
    pub fn set_preallocated(&self, preallocated: bool) {
        self.inner().preallocated = preallocated;
    }

    /// It can not do these of the next reads and writes. What it has stays.
    pub fn set_away(&self, which: Range<u64>) {
        let inner = &mut *self.inner();
        (inner.away, inner.asked) = (which, 0);
    }

    /// What is on it for certain: nothing else survived a crash of the host.
    #[cfg(test)]
    pub(crate) fn certain(&self) -> Vec<u8> {
        self.inner().durable.clone()
    }

    /// Whether everything fails from now on.
    #[cfg(test)]
    pub(crate) fn is_gone(&self) -> bool {
        self.inner().fuse == Some(0)
    }
}

/// Some sectors of a write are on the disk: of each five of them `kept`.
fn survive(image: &mut [u8], offset: u64, bytes: &[u8], kept: u64, rng: &mut Rng) {
    let mut at = 0;
    while at < bytes.len() {
        let left = SECTOR - (offset + at as u64) % SECTOR;
        let n = (left as usize).min(bytes.len() - at);
        if rng.below(4) < kept {
            let to = offset as usize + at;
            image[to..to + n].copy_from_slice(&bytes[at..at + n]);
        }
        at += n;
    }
}

impl Inner {
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => {
                self.refused = true;
                Err(io::Error::other("the power is gone"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The first `count` pending writes are on the disk.
    fn settle(&mut self, count: usize) {
        for (offset, bytes) in self.pending.drain(..count) {
            let start = offset as usize;
            self.durable[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        self.synced = 0;
    }

    /// What waits to be written back is, in part; all of it is taken for
    /// written.
    fn lose(&mut self) {
        // A sync that is under way has covered what came before it.
        self.settle(self.synced);
        let mut rng = Rng(self.errors ^ self.pending.len() as u64);
        for (offset, bytes) in std::mem::take(&mut self.pending) {
            let range = offset as usize..offset as usize + bytes.len();
            if rng.one_in(2) {
                self.durable[range.clone()].copy_from_slice(&bytes);
            }
            self.given_up.push(range);
        }
        (self.synced, self.errors, self.lost) = (0, self.errors + 1, true);
    }

    /// A sync begins, which may fail.
    fn begin_sync(&mut self) {
        match &mut self.bad_sync {
            Some(0) => {
                self.bad_sync = None;
                self.lose();
            }
            Some(left) => *left -= 1,
            None => {}
        }
    }

    /// A write begins, which may fail.
    fn begin_write(&mut self) -> io::Result<()> {
        match &mut self.bad_write {
            Some(0) => {
                (self.bad_write, self.refused) = (None, true);
                return Err(ErrorKind::StorageFull.into());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    /// Fails where the disk cannot read a page of these, or could not and has all of it
    /// written now.
    fn check_pages(&mut self, range: &Range<usize>, is_written: bool) -> io::Result<()> {
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let whole = |page: usize| page * PAGE >= range.start && (page + 1) * PAGE <= range.end;
        let lost = self.unreadable.range(pages).find(|&&page| !(is_written && whole(page)));
        let is_away = self.away.contains(&self.asked);
        self.asked += 1;
        if lost.is_some() || is_away {
            self.refused = true;
            return Err(rustix::io::Errno::IO.into());
        }
        if is_written {
            self.unreadable.retain(|&page| !whole(page));
        }
        Ok(())
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.burn()?;
        self.check_pages(&(offset as usize..offset as usize + bytes.len()), true)?;
        if let Some(room) = &mut self.room {
            let Some(left) = room.checked_sub(bytes.len() as u64) else {
                self.refused = true;
                return Err(ErrorKind::StorageFull.into());
            };
            *room = left;
        }
        let range = offset as usize..offset as usize + bytes.len();
        self.written[range.start / PAGE..range.end.div_ceil(PAGE)].fill(true);
        self.cached[range].copy_from_slice(bytes);
        self.pending.push((offset, bytes.to_vec()));
        Ok(())
    }
}

impl Opening {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.disk.inner()
    }

    /// An error that this opening was not told of.
    fn check(&self, inner: &mut Inner) -> io::Result<()> {
        let mut told = self.told.lock().expect("nothing panics while it has this");
        if *told == inner.errors {
            return Ok(());
        }
        (*told, inner.told) = (inner.errors, inner.errors);
        inner.refused = true;
        Err(io::Error::other("the disk lost a write"))
    }
}

impl FileIo for Opening {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut inner = self.inner();
        let end = offset as usize + bytes.len();
        inner.check_pages(&(offset as usize..end), false)?;
        let from = inner.cached.get(offset as usize..end).ok_or(ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(from);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inner = &mut *self.inner();
        inner.begin_write()?;
        inner.put(offset, bytes)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inner = &mut *self.inner();
        inner.burn()?;
        // The sync before it has returned.
        inner.settle(inner.synced);
        inner.put(offset, bytes)?;
        if inner.refuses_durable {
            inner.refused = true;
            return Err(io::Error::other("a sync failed before"));
        }
        // It may be on the disk before it is known to be.
        inner.burn()?;
        inner.begin_sync();
        self.check(inner)?;
        let last = inner.pending.pop();
        let mut older = std::mem::replace(&mut inner.pending, last.into_iter().collect());
        inner.settle(1);
        // What it wrote over comes no more.
        let end = offset + bytes.len() as u64;
        older.retain(|(at, older)| *at < offset || at + older.len() as u64 > end);
        inner.pending = older;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let inner = &mut *self.inner();
        inner.burn()?;
        inner.begin_sync();
        self.check(inner)?;
        inner.synced = inner.pending.len();
        Ok(())
    }

    fn note_synced(&self) {
        let inner = &mut *self.inner();
        inner.settle(inner.synced);
    }

    fn reread(&self, offset: u64, len: u64) -> io::Result<()> {
        let inner = &mut *self.inner();
        let asked = offset as usize..offset.saturating_add(len) as usize;
        // Like the system, it may forget more than it was asked to.
        let gone: Vec<_> = std::mem::take(&mut inner.given_up);
        let (gone, stays) = gone
            .into_iter()
            .partition(|range: &Range<usize>| range.start < asked.end && asked.start < range.end);
        inner.given_up = stays;
        for range in gone {
            inner.cached[range.clone()].copy_from_slice(&inner.durable[range]);
        }
        for (offset, bytes) in &inner.pending {
            inner.cached[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let inner = &mut *self.inner();
        let (start, end) = (offset as usize, (offset + len) as usize);
        for page in start / PAGE..end.div_ceil(PAGE) {
            if inner.written[page] {
                let (from, to) = (start.max(page * PAGE), end.min((page + 1) * PAGE));
                inner.put(from as u64, &vec![0; to - from])?;
            }
        }
        Ok(())
    }

    fn is_preallocated(&self) -> bool {
        self.inner().preallocated
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.inner().cached.len() as u64)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let inner = &mut *self.inner();
        let bytes = bytes as usize;
        if inner.cached.is_empty() {
            // Memory that is not touched costs nothing.
            (inner.cached, inner.durable) = (vec![0; bytes], vec![0; bytes]);
        }
        inner.cached.resize(bytes, 0);
        inner.durable.resize(bytes, 0);
        inner.written.resize(bytes.div_ceil(PAGE), false);
        Ok(())
    }

    fn used(&self) -> io::Result<u64> {
        self.bytes()
    }
}
