//! The store over the batched interface: the drive does the work.
//!
//! A batch of pages is one `WriteBatch`, a page is read by its number. There
//! is no map, no collection and no checkpoint on the host. A batch completes
//! when it is durable. Pages that are given up the drive moves no more.

use port::{
    BLOCK_BYTES, BatchDone, BatchOp, BatchReq, BatchShape, Buffer, Desc, Ring, Status, Time,
};

use super::awaited::Awaited;
use super::beside::Beside;
use super::{Lap, PageStore, StoreDone, StoreError, Ticks, check_seal, seal};
use crate::page::PAGE_BYTES;

/// Batches that may be on their way at once.
const BATCHES: usize = 8;

/// Numbers of requests: what it is in the high half.
const READ: u64 = 1 << 32;
const WRITE: u64 = 2 << 32;
const FLUSH: u64 = 3 << 32;

/// Pages behind the batched interface of a drive.
pub struct BatchStore<D> {
    drive: D,
    shape: BatchShape,
    now: Time,
    cmds: Ring<BatchReq>,
    done: Ring<BatchDone>,
    /// Commands taken and not completed, and of them writes and flushes.
    inside: usize,
    others: usize,
    /// There are commands that the drive has not seen.
    fresh: bool,
    spare: Vec<Buffer>,
    /// Pages that the next batch gives up.
    given_up: Vec<u64>,
    failed: Option<StoreError>,
    /// The last pages of the drive that are a redo log's.
    redo: u64,
    /// Those of a write.
    redo_pages: Vec<u64>,
    clock: fn() -> u64,
    ticks: Ticks,
}

impl<D: Awaited<Cmd = BatchReq, Done = BatchDone>> BatchStore<D> {
    /// The store on `drive`, whose outside is `shape`, in batches of at most
    /// `max_batch` pages. `clock` measures where time goes
    /// ([`super::no_clock`] for nothing).
    ///
    /// # Errors
    /// [`StoreError::Shape`] when the drive does not keep the data, takes too
    /// few requests or too small batches.
    pub fn new(
        drive: D,
        shape: BatchShape,
        max_batch: usize,
        clock: fn() -> u64,
    ) -> Result<BatchStore<D>, StoreError> {
        let refuse = |what, value, range| Err(StoreError::Shape { what, value, range });
        if u64::from(shape.kept) != BLOCK_BYTES {
            return refuse("bytes kept of a block", shape.kept.into(), "4096");
        }
        if shape.depth < 2 * BATCHES {
            return refuse("depth", shape.depth as u64, "at least 16");
        }
        let max_batch = max_batch.min(shape.max_pages as usize);
        if max_batch < 32 {
            return refuse("pages of a batch", max_batch as u64, "at least 32");
        }
        let shape = BatchShape { max_pages: max_batch as u32, ..shape };
        let spare = (0..BATCHES)
            .map(|_| Buffer::zeroed(shape.batch_bytes(max_batch)))
            .collect::<Result<_, _>>()
            .map_err(|_| StoreError::Shape {
                what: "pages of a batch",
                value: max_batch as u64,
                range: "such that the memory for 8 batches can be had",
            })?;
        Ok(BatchStore {
            drive,
            shape,
            now: Time::ZERO,
            cmds: Ring::new(shape.depth),
            done: Ring::new(shape.depth),
            inside: 0,
            others: 0,
            fresh: false,
            spare,
            given_up: Vec::with_capacity(max_batch),
            failed: None,
            redo: 0,
            redo_pages: Vec::with_capacity(max_batch),
            clock,
            ticks: Ticks::default(),
        })
    }

    /// The same with the last `redo` pages of the drive beside it, for a redo log of
    /// a new tree. Of one that is opened page 0 says so.
    ///
    /// # Errors
    /// [`StoreError::Shape`] when it is not 0 and not 16 to half of the pages.
    pub fn with_redo(mut self, redo: u64) -> Result<BatchStore<D>, StoreError> {
        Beside::of(self.all_pages(), redo)?;
        self.redo = redo;
        Ok(self)
    }

    fn all_pages(&self) -> u64 {
        self.shape.pages.min(READ)
    }

    /// The drive.
    pub fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }

    /// The drive again.
    pub fn into_drive(self) -> D {
        self.drive
    }

    fn push(&mut self, req: BatchReq) {
        self.inside += 1;
        self.others += usize::from(req.op != BatchOp::Read);
        self.fresh = true;
        let pushed = self.cmds.push(req);
        assert!(pushed.is_ok(), "the ring holds the drive's depth");
    }

    /// Lets happen what is due at `now`. False when nothing has completed.
    fn advance(&mut self, now: Time) -> bool {
        self.drive.advance_due(now, &mut self.done)
    }

    /// Gives the drive what waits. False when it takes nothing.
    fn submit(&mut self) -> bool {
        self.fresh = false;
        let before = self.cmds.len();
        if before > 0 {
            self.drive.submit(self.now, &mut self.cmds);
        }
        self.cmds.len() < before
    }

    fn finish(&mut self, done: BatchDone) -> StoreDone {
        self.inside -= 1;
        self.others -= usize::from(done.op != BatchOp::Read);
        let id = done.id as u32;
        if done.op == BatchOp::Read {
            return self.finish_read(done);
        }
        let what = if done.op == BatchOp::Flush { "flush" } else { "write a batch" };
        let mut result = StoreError::drive(what, done.status);
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        } else if self.failed.is_some() {
            result = Err(StoreError::Stopped);
        }
        if done.op == BatchOp::Flush {
            return StoreDone::Flush { id, result };
        }
        self.give_back(done.buffer);
        StoreDone::Write { id, result }
    }

    /// Puts a batch's buffer together with the rest of it, which stayed here.
    fn give_back(&mut self, mut front: Buffer) {
        let rest = self.spare.iter().position(|rest| front.adjoins(rest) && !rest.is_empty());
        if front.len() < self.shape.batch_bytes(self.max_batch())
            && let Some(rest) = rest
        {
            let rest = self.spare.swap_remove(rest);
            let joined = front.join(rest);
            assert!(joined.is_ok(), "they adjoin");
        }
        self.spare.push(front);
    }

    fn finish_read(&mut self, done: BatchDone) -> StoreDone {
        let start = (self.clock)();
        let page = done.id & (READ - 1);
        let mut result = StoreError::drive("read a page", done.status);
        if done.status == Status::UNWRITTEN {
            result = Err(StoreError::Unwritten { page });
        } else if result.is_ok() && check_seal(page, done.buffer.bytes()).is_none() {
            result = Err(StoreError::Damaged { page });
        }
        self.ticks.reading += (self.clock)() - start;
        StoreDone::Read { page, buffer: done.buffer, result }
    }

    /// A whole batch buffer, if one is free.
    fn whole(&self) -> Option<usize> {
        let bytes = self.shape.batch_bytes(self.max_batch());
        self.spare.iter().position(|buffer| buffer.len() == bytes)
    }
}

impl<D: Awaited<Cmd = BatchReq, Done = BatchDone>> PageStore for BatchStore<D> {
    fn pages(&self) -> u64 {
        self.all_pages() - self.redo
    }

    fn max_batch(&self) -> usize {
        self.shape.max_pages as usize
    }

    fn can_read(&self) -> bool {
        // Writes and flushes always find room.
        self.inside - self.others < self.shape.depth - 2 * BATCHES
    }

    fn read(&mut self, page: u64, buffer: Buffer) -> Result<(), Buffer> {
        if !self.can_read() {
            return Err(buffer);
        }
        self.push(BatchReq { id: READ | page, op: BatchOp::Read, lpid: page, buffer });
        Ok(())
    }

    fn can_write(&self) -> bool {
        self.others < 2 * BATCHES && self.whole().is_some()
    }

    fn give_up(&mut self, pages: &[u64]) {
        self.given_up.extend_from_slice(pages);
    }

    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
        let start = (self.clock)();
        let whole = self.whole().expect("the caller saw room");
        let mut buffer = self.spare.swap_remove(whole);
        let front = buffer.split_to(self.shape.batch_bytes(pages.len()));
        if !buffer.is_empty() {
            self.spare.push(buffer);
        }
        let mut buffer = front;
        Desc::write(pages, &self.given_up, buffer.bytes_mut());
        self.given_up.clear();
        let bodies = buffer.bytes_mut()[BLOCK_BYTES as usize..].chunks_exact_mut(PAGE_BYTES);
        for (i, (body, &page)) in bodies.zip(pages).enumerate() {
            copy(i, body);
            seal(page, body);
        }
        self.ticks.writing += (self.clock)() - start;
        self.push(BatchReq { id: WRITE | u64::from(id), op: BatchOp::WriteBatch, lpid: 0, buffer });
    }

    fn flush(&mut self, id: u32) -> bool {
        if self.others >= 2 * BATCHES {
            return false;
        }
        let buffer = Buffer::empty();
        self.push(BatchReq { id: FLUSH | u64::from(id), op: BatchOp::Flush, lpid: 0, buffer });
        true
    }

    fn beside(&self) -> Beside {
        Beside { first: self.pages(), blocks: self.redo }
    }

    fn expect_beside(&mut self, blocks: u64) -> bool {
        let fits = Beside::of(self.all_pages(), blocks).is_ok();
        if fits {
            self.redo = blocks;
        }
        fits
    }

    fn can_write_beside(&self) -> bool {
        self.can_write()
    }

    /// A batch that completes is durable, and here it is whole or not there.
    fn write_beside(
        &mut self,
        id: u32,
        at: u64,
        count: usize,
        copy: &mut dyn FnMut(usize, &mut [u8]),
    ) {
        let (first, redo) = (self.pages(), self.redo);
        let mut pages = std::mem::take(&mut self.redo_pages);
        pages.clear();
        pages.extend((0..count as u64).map(|i| first + (at + i) % redo));
        self.write(id, &pages, copy);
        self.redo_pages = pages;
    }

    fn poll(&mut self, now: Time, done: &mut Ring<StoreDone>) {
        self.now = self.now.max(now);
        let mut lap = Lap::start(self.clock);
        let completed = self.advance(now);
        let submitted = self.submit();
        lap.end(completed || submitted, &mut self.ticks.submission);
        while done.room() > 0
            && let Some(one) = self.done.pop()
        {
            let one = self.finish(one);
            done.put(|| one);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.fresh || !self.done.is_empty() {
            return Some(self.now);
        }
        self.drive.next_event()
    }

    fn wait(&mut self) -> Option<Time> {
        if !self.done.is_empty() {
            return Some(self.now);
        }
        self.submit();
        self.drive.wait()
    }

    fn memory(&self) -> u64 {
        (BATCHES * self.shape.batch_bytes(self.max_batch())) as u64
    }

    fn ticks(&self) -> Ticks {
        self.ticks
    }
}
