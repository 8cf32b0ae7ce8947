//! Rows of records on their way: where each goes, what becomes of one that fails, and who
//! waits for them to be durable.
//!
//! Guarantees: what waits for a row ends when all rows up to it are programmed, and behind
//! a cache after a flush of the drive that was sent then; when one has failed, nothing is
//! told durable any more. A row that fails is sent elsewhere before another is begun; its
//! records are there from then on.

use device::{Content, OpenChannel, VectorOp};
use flash::Ppa;
use port::{Buffer, Status, Time};

use super::mutation::{self, Mutation};
use super::place::Place;
use super::request::Stage;
use super::space::Stream;
use super::{BLOCK, Cookie, Kv};

impl<D: OpenChannel> Kv<D> {
    /// Sees to it that the open row takes a record of so many bytes; so many chunks are
    /// to stay free. Where fewer are, the open chunk's rows are collection's alone: it opens
    /// the last chunks only to give back more, which users would fill before it can.
    pub(super) fn make_room(&mut self, bytes: usize, spare: usize) -> bool {
        if self.packer.fits(bytes) {
            return true;
        }
        self.close_row();
        if !self.packer.has_buffer() || self.packer.failed().is_some() {
            return false;
        }
        let is_low = spare > self.collect_spare() && self.space.free_chunks() < spare;
        let row = if is_low { None } else { self.space.take_row(Stream::Packed, spare) };
        let Some((chunk, row)) = row else {
            self.short = true;
            return false;
        };
        self.space.chunk_mut(chunk).programs += 1;
        self.packer.start(self.space.row_ppa(chunk, row));
        true
    }

    /// Programs the row that is being filled.
    pub(super) fn close_row(&mut self) {
        let used = self.packer.open().map_or(0, |row| row.end.div_ceil(BLOCK));
        let Some((ppa, number, buffer)) = self.packer.close() else { return };
        // Both fill the same rows.
        let moved = (self.moved_bytes / BLOCK).min(used);
        self.moved_bytes -= moved * BLOCK;
        self.counters.gc += moved as u64;
        self.counters.user += (used - moved) as u64;
        self.counters.padding += u64::from(self.geometry.row_blocks()) - used as u64;
        self.send_row(ppa, number, buffer);
    }

    pub(super) fn send_row(&mut self, ppa: Ppa, number: u64, buffer: Buffer) {
        let blocks = self.geometry.row_blocks() as u8;
        self.send(Cookie::Packed(number), VectorOp::Write, Content::Whole, ppa, blocks, buffer);
    }

    /// A row of records is programmed, or failed.
    pub(super) fn row_done(&mut self, number: u64, status: Status, buffer: Buffer) {
        let ppa = self.packer.place_of(number);
        let chunk = self.space.chunk_of(ppa);
        self.space.chunk_mut(chunk).programs -= 1;
        if !status.is_ok() {
            self.fail_chunk(chunk);
        }
        self.packer.sent(number, buffer, status.is_ok());
    }

    /// A program failed: the chunk takes no more.
    pub(super) fn fail_chunk(&mut self, chunk: usize) {
        self.space.chunk_mut(chunk).failed = true;
        self.space.close(chunk);
    }

    /// Sends a row that failed elsewhere; its records are there then.
    pub(super) fn send_again(&mut self) -> bool {
        let Some(row) = self.packer.failed() else { return false };
        let (number, from) = (row.number, row.ppa);
        self.close_row();
        let Some((chunk, at)) = self.space.take_row(Stream::Packed, 0) else {
            return false;
        };
        let to = self.space.row_ppa(chunk, at);
        self.space.chunk_mut(chunk).programs += 1;
        self.counters.padding += u64::from(self.geometry.row_blocks());
        let buffer = self.packer.send_again(number, to);
        for (at, record) in super::stream::records(buffer.bytes()) {
            let Some(record) = record else { continue };
            let hash = self.hash(record.key);
            let Some(held) = self.index.find(hash) else { continue };
            let place = |row| Place::new(row, at, record.bytes.len(), record.kind, held.age());
            if held == place(from) {
                self.enter(hash, place(to), number, &[]);
            }
        }
        self.send_row(to, number, buffer);
        true
    }

    /// Ends requests whose records are durable.
    pub(super) fn sync(&mut self, now: Time) -> bool {
        if self.syncers == 0 && !self.checkpoint.wants_flush() {
            return false;
        }
        let (mut any, done) = (false, self.packer.done());
        let early = mutation::is(Mutation::AckUnsynced);
        for slot in 0..self.requests.len() {
            if self.requests[slot].stage == Stage::Programs && self.requests[slot].row < done {
                any = true;
                if self.cached && self.fault {
                    self.end(now, slot as u32, Status::WRITE_FAULT);
                } else if self.cached && !early {
                    self.requests[slot].stage = Stage::Flush;
                } else {
                    self.end(now, slot as u32, Status::SUCCESS);
                }
            }
        }
        let wants = self.requests.iter().any(|held| held.stage == Stage::Flush);
        // After one that failed no flush says anything.
        if self.syncing || self.fault || !(wants || self.checkpoint.wants_flush()) {
            return any;
        }
        self.syncing = true;
        for held in self.requests.iter_mut().filter(|held| held.stage == Stage::Flush) {
            held.stage = Stage::Flushing;
        }
        self.checkpoint.flushing();
        self.send(Cookie::Flush, VectorOp::Flush, Content::Data, Ppa(0), 0, Buffer::empty());
        true
    }

    /// The drive's flush is over.
    pub(super) fn synced(&mut self, now: Time, status: Status) {
        self.syncing = false;
        self.fault |= !status.is_ok();
        self.checkpoint.flushed(status.is_ok());
        for slot in 0..self.requests.len() {
            // Those that wait for the next one get none, either.
            let waits = self.requests[slot].stage == Stage::Flush && !status.is_ok();
            if waits || self.requests[slot].stage == Stage::Flushing {
                let status = if status.is_ok() { status } else { Status::WRITE_FAULT };
                self.end(now, slot as u32, status);
            }
        }
    }
}
