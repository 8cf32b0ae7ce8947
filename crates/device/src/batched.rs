//! The host's library for a hosted drive with batched writes.
//!
//! One [`BatchHost`] for each thread and queue. Batches may overlap: they are
//! begun and awaited apart. Guarantees are the drive's: a batch is durable when
//! it was awaited, and reads see whole batches, each that was awaited before.
//!
//! Fails with what the drive said, or when it is gone. What a caller gives wrong
//! (a page of another length, too many pages, an LPID past the end) is an error
//! before anything is sent.

use std::collections::BTreeMap;

use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, BatchShape, Buffer, Desc, Ring, Status};
use thiserror::Error;

use crate::hosted::Queue;

/// What went wrong with a request.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BatchHostError {
    /// The drive refused it, or could not do it.
    #[error("the drive answered: {0}")]
    Drive(Status),
    /// The drive is gone.
    #[error("the drive is gone")]
    Gone,
    /// A page of another length than the drive keeps.
    #[error("a page has {got} bytes, but the drive keeps {kept}")]
    Length {
        /// What was given.
        got: usize,
        /// What the drive keeps of a page.
        kept: usize,
    },
    /// No page, or more than a batch takes.
    #[error("a batch of {got} pages: it takes 1 to {most}")]
    Count {
        /// How many were given.
        got: usize,
        /// How many a batch takes.
        most: usize,
    },
    /// A page past the end.
    #[error("page {lpid} is past the end: there are {pages}")]
    Range {
        /// Which page.
        lpid: u64,
        /// How many there are.
        pages: u64,
    },
    /// No memory.
    #[error("no memory: {0}")]
    Memory(String),
}

impl From<port::OutOfMemory> for BatchHostError {
    fn from(e: port::OutOfMemory) -> BatchHostError {
        BatchHostError::Memory(e.to_string())
    }
}

/// A batch that was begun, to be awaited.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a batch is durable only when it was awaited"]
pub struct Ticket(u64);

/// One queue to a hosted drive with batched writes.
pub struct BatchHost {
    queue: Queue<BatchReq, BatchDone>,
    shape: BatchShape,
    cmds: Ring<BatchReq>,
    done: Ring<BatchDone>,
    /// Completions that nobody has awaited yet, by number.
    over: BTreeMap<u64, BatchDone>,
    ids: u64,
}

impl BatchHost {
    /// A host on `queue` to a drive of this shape.
    pub fn new(queue: Queue<BatchReq, BatchDone>, shape: BatchShape) -> BatchHost {
        let depth = queue.depth();
        BatchHost {
            queue,
            shape,
            cmds: Ring::new(1),
            done: Ring::new(depth),
            over: BTreeMap::new(),
            ids: 0,
        }
    }

    /// The outside of the drive.
    pub fn shape(&self) -> &BatchShape {
        &self.shape
    }

    fn check_page(&self, lpid: u64, len: usize) -> Result<(), BatchHostError> {
        let (pages, kept) = (self.shape.pages, self.shape.kept as usize);
        if lpid >= pages {
            return Err(BatchHostError::Range { lpid, pages });
        }
        if len != kept {
            return Err(BatchHostError::Length { got: len, kept });
        }
        Ok(())
    }

    /// Begins to write pages, all or none, in this order: of one that comes
    /// twice the later counts. Waits only where the queue is full.
    pub fn begin_batch(&mut self, pages: &[(u64, &[u8])]) -> Result<Ticket, BatchHostError> {
        let most = self.shape.max_pages as usize;
        if pages.is_empty() || pages.len() > most {
            return Err(BatchHostError::Count { got: pages.len(), most });
        }
        for (lpid, bytes) in pages {
            self.check_page(*lpid, bytes.len())?;
        }
        let lpids: Vec<u64> = pages.iter().map(|page| page.0).collect();
        let mut buffer = Buffer::zeroed(self.shape.batch_bytes(pages.len()))?;
        let bytes = buffer.bytes_mut();
        Desc::write(&lpids, bytes);
        let mut at = BLOCK_BYTES as usize;
        for (_, page) in pages {
            bytes[at..at + page.len()].copy_from_slice(page);
            at += page.len();
        }
        self.send(BatchOp::WriteBatch, 0, buffer).map(Ticket)
    }

    /// Waits until a batch is durable.
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), BatchHostError> {
        self.end(ticket.0).map(drop)
    }

    /// Writes pages, all or none, and waits until they are durable.
    pub fn write_batch(&mut self, pages: &[(u64, &[u8])]) -> Result<(), BatchHostError> {
        let ticket = self.begin_batch(pages)?;
        self.wait(ticket)
    }

    /// Reads a page. False if it was never written; then `to` is as it was.
    pub fn read(&mut self, lpid: u64, to: &mut [u8]) -> Result<bool, BatchHostError> {
        self.check_page(lpid, to.len())?;
        let id = self.send(BatchOp::Read, lpid, Buffer::zeroed(to.len())?)?;
        match self.end(id) {
            Ok(buffer) => {
                to.copy_from_slice(buffer.bytes());
                Ok(true)
            }
            Err(BatchHostError::Drive(Status::UNWRITTEN)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits until all batches that were begun are durable or failed.
    pub fn flush(&mut self) -> Result<(), BatchHostError> {
        let id = self.send(BatchOp::Flush, 0, Buffer::empty())?;
        self.end(id).map(drop)
    }

    fn send(&mut self, op: BatchOp, lpid: u64, buffer: Buffer) -> Result<u64, BatchHostError> {
        self.ids += 1;
        let id = self.ids;
        self.cmds.put(|| BatchReq { id, op, lpid, buffer });
        while self.queue.submit(&mut self.cmds) == 0 {
            if self.queue.is_closed() || self.queue.outside() == 0 {
                self.cmds.pop();
                return Err(BatchHostError::Gone);
            }
            self.poll();
        }
        Ok(id)
    }

    /// Waits for completions and keeps them.
    fn poll(&mut self) {
        self.queue.wait(None);
        self.queue.poll(&mut self.done);
        while let Some(done) = self.done.pop() {
            self.over.insert(done.id, done);
        }
    }

    /// Waits until a request is over, and gives its buffer.
    fn end(&mut self, id: u64) -> Result<Buffer, BatchHostError> {
        loop {
            if let Some(done) = self.over.remove(&id) {
                let read = done.status.is_ok() || done.status == Status::HIGH_ECC;
                return if read {
                    Ok(done.buffer)
                } else {
                    Err(BatchHostError::Drive(done.status))
                };
            }
            if self.queue.is_closed() && !self.queue.has_completions() {
                return Err(BatchHostError::Gone);
            }
            self.poll();
        }
    }
}
