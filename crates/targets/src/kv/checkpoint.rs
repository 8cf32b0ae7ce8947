//! Checkpoints: the index, written to chunks of its own.
//!
//! A checkpoint is rows of entries; the last says that it is whole. It has a number,
//! and the number of the first row of records that was not programmed when it began, from
//! which on recovery reads them: what the index comes to while it is written is in these
//! rows, so it need not stand still.
//!
//! Guarantees: the last row is written when all rows of records that entries lead to are
//! durable, and all other rows of the checkpoint; the checkpoint before stays until then.
//! Where a program fails it is begun anew.
//!
//! ```text
//!   0  8  checksum of all that is behind it
//!   8  4  "KVCP"
//!  12  4  1 of the last row, else 0
//!  16  8  number of the checkpoint
//!  24  8  number of this row of it, from 0
//!  32  8  first row of records that recovery reads
//!  40  8  number of the whole checkpoint before, or 0
//!  48  8  entries in this row
//!  56  8  seed
//!  64  .  entries: hash, place
//! ```

use device::{Content, OpenChannel, VectorOp};
use flash::Tag;
use ftl::bytes::{is_sealed, put_word, seal, word};
use port::{BLOCK_BYTES, Buffer, OutOfMemory, Status};

use super::index::{Entry, Index};
use super::mutation::{self, Mutation};
use super::place::{GRAIN, Kind, Place};
use super::space::Stream;
use super::stream::{CHECKPOINT_ID, put_tags};
use super::{Cookie, Kv, WHOLE};

/// Rows of records and checkpoints have no higher numbers: a row's is in a cookie.
pub(super) const MOST_NUMBER: u64 = 1 << 56;

const MAGIC: u32 = u32::from_le_bytes(*b"KVCP");
const HEADER: usize = 64;
const ENTRY: usize = 16;

/// Rows of a checkpoint of an index for so many keys.
pub(super) fn checkpoint_rows(keys: u64, row_blocks: u32) -> u64 {
    let each = (u64::from(row_blocks) * BLOCK_BYTES - HEADER as u64) / ENTRY as u64;
    // Some entries come twice.
    (Index::places(keys) as u64 + 1024).div_ceil(each) + 1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Entries are put in the row.
    Fill,
    /// The row is to be written, or is on its way.
    Send,
    Sent,
    /// The last row waits for rows of records up to this one, and for the drive's flush.
    Rows(u64),
    Flush,
    Flushing,
}

/// The checkpoint under way, and what is known of those before.
pub(super) struct Checkpoint {
    stage: Stage,
    /// One is wanted before it is due.
    pub asked: bool,
    /// The highest number of all, and that of the newest whole one.
    pub number: u64,
    pub whole: u64,
    /// The first row of records that it is read with, and that of the one under way.
    pub from: u64,
    next_from: u64,
    /// How many whole ones were begun: by its last bits what was deleted is known to
    /// be older than one.
    pub epoch: u64,
    /// Chunks of the whole one, and of the one under way.
    pub chunks: Vec<usize>,
    writing: Vec<usize>,
    row: u64,
    count: usize,
    is_last: bool,
    buffer: Buffer,
    to: usize,
}

impl Checkpoint {
    pub fn new(blocks: usize) -> Result<Checkpoint, OutOfMemory> {
        Ok(Checkpoint {
            stage: Stage::Idle,
            asked: false,
            number: 0,
            whole: 0,
            from: 1,
            next_from: 1,
            epoch: 0,
            chunks: Vec::new(),
            writing: Vec::new(),
            row: 0,
            count: 0,
            is_last: false,
            buffer: Buffer::zeroed(blocks * WHOLE)?,
            to: 0,
        })
    }

    /// Whether one is under way.
    pub fn is_at_work(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// Whether nothing older of what was deleted at this age is read again: its row, and
    /// all before, were programmed when a checkpoint began that is whole. One that began
    /// later than the delete may still be read with rows that were on their way; when it
    /// was whole they were programmed, so the next one is not.
    pub fn covers(&self, age: u64) -> bool {
        let ago = self.epoch.wrapping_sub(age) & 3;
        let ago = ago + u64::from(ago > 0 && mutation::is(Mutation::ForgetDeleted));
        ago >= 3 || ago == 2 && !self.is_at_work() && self.whole == self.number
    }

    /// Whether it waits for the drive's flush; that one is sent; and is over.
    pub fn wants_flush(&self) -> bool {
        self.stage == Stage::Flush
    }

    pub fn flushing(&mut self) {
        if self.stage == Stage::Flush {
            self.stage = Stage::Flushing;
        }
    }

    pub fn flushed(&mut self, is_ok: bool) {
        if self.stage == Stage::Flushing && is_ok {
            self.stage = Stage::Send;
        }
    }
}

impl<D: OpenChannel> Kv<D> {
    /// Goes on with a checkpoint, or begins one.
    pub(super) fn checkpoint(&mut self) -> bool {
        match self.checkpoint.stage {
            Stage::Idle => self.begin_checkpoint(),
            Stage::Fill => self.fill_checkpoint(),
            Stage::Send => self.send_checkpoint(),
            Stage::Rows(end) => {
                let early = mutation::is(Mutation::CheckpointEarly);
                if self.packer.done() < end && !early {
                    let waits = self.packer.open().is_some_and(|row| row.number < end);
                    if waits {
                        self.close_row();
                    }
                    return waits;
                }
                let flush = self.cached && !early;
                self.checkpoint.stage = if flush { Stage::Flush } else { Stage::Send };
                true
            }
            Stage::Sent | Stage::Flush | Stage::Flushing => false,
        }
    }

    fn begin_checkpoint(&mut self) -> bool {
        let held = &mut self.checkpoint;
        let rows = self.packer.end() - held.from;
        if self.fault || !(held.asked || rows >= self.config.checkpoint_rows) {
            return false;
        }
        // One that was not ended took its turn.
        held.epoch += u64::from(held.whole == held.number);
        held.number += 1;
        held.asked = false;
        // One that is on its way may yet go elsewhere.
        held.next_from = self.packer.done();
        (held.row, held.count, held.is_last) = (0, 0, false);
        held.stage = Stage::Fill;
        self.index.set_pass(true);
        true
    }

    fn fill_checkpoint(&mut self) -> bool {
        let most = (self.row_bytes() - HEADER) / ENTRY;
        while self.checkpoint.count < most {
            let Some(Entry { hash, place }) = self.index.dump() else {
                self.checkpoint.is_last = true;
                self.checkpoint.stage = Stage::Rows(self.packer.end());
                return true;
            };
            if place.kind() == Kind::Gone {
                if self.checkpoint.covers(place.age()) {
                    self.index.remove(hash);
                    self.space.discount(self.space.chunk_of(place.ppa()), place.len() as u64, 0);
                }
                continue;
            }
            let at = HEADER + self.checkpoint.count * ENTRY;
            let bytes = self.checkpoint.buffer.bytes_mut();
            put_word(bytes, at, hash);
            put_word(bytes, at + 8, place.0);
            self.checkpoint.count += 1;
        }
        self.checkpoint.stage = Stage::Send;
        true
    }

    fn send_checkpoint(&mut self) -> bool {
        let Some((chunk, row)) = self.space.take_row(Stream::Checkpoint, 0) else {
            return false;
        };
        let (blocks, seed) = (self.geometry.row_blocks(), self.config.seed);
        let size = self.row_bytes();
        let held = &mut self.checkpoint;
        let bytes = held.buffer.bytes_mut();
        bytes[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(held.is_last).to_le_bytes());
        let words = [held.number, held.row, held.next_from, held.whole, held.count as u64, seed];
        words.iter().enumerate().for_each(|(i, &word)| put_word(bytes, 16 + 8 * i, word));
        bytes[HEADER + held.count * ENTRY..size].fill(0);
        seal(&mut bytes[..size], 0);
        put_tags(bytes, blocks as usize, Tag { id: CHECKPOINT_ID, seq: held.number });
        (held.stage, held.to) = (Stage::Sent, chunk);
        held.row += 1;
        let buffer = std::mem::take(&mut held.buffer);
        if held.writing.last() != Some(&chunk) {
            held.writing.push(chunk);
            self.space.count(chunk, GRAIN as u64);
        }
        self.space.chunk_mut(chunk).programs += 1;
        self.counters.metadata += u64::from(blocks);
        let ppa = self.space.row_ppa(chunk, row);
        self.send(Cookie::Checkpoint, VectorOp::Write, Content::Whole, ppa, blocks as u8, buffer);
        true
    }

    /// A row of it is programmed, or failed.
    pub(super) fn checkpoint_row_done(&mut self, status: Status, buffer: Buffer) {
        let chunk = self.checkpoint.to;
        self.space.chunk_mut(chunk).programs -= 1;
        self.checkpoint.buffer = buffer;
        self.checkpoint.count = 0;
        if !status.is_ok() {
            self.fail_chunk(chunk);
            self.checkpoint.asked = true;
        } else if !self.checkpoint.is_last {
            self.checkpoint.stage = Stage::Fill;
            return;
        }
        self.checkpoint.stage = Stage::Idle;
        self.index.set_pass(false);
        let writing = std::mem::take(&mut self.checkpoint.writing);
        let leaves = if status.is_ok() {
            (self.checkpoint.whole, self.checkpoint.from) =
                (self.checkpoint.number, self.checkpoint.next_from);
            std::mem::replace(&mut self.checkpoint.chunks, writing)
        } else {
            writing
        };
        for chunk in leaves {
            self.space.close(chunk);
            self.space.discount(chunk, GRAIN as u64, 0);
        }
        // The next one has chunks of its own.
        let open = self.checkpoint.chunks.last().copied();
        open.into_iter().for_each(|chunk| self.space.close(chunk));
    }
}

/// What a row of a checkpoint says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub is_last: bool,
    pub number: u64,
    pub row: u64,
    pub from: u64,
    pub before: u64,
    pub seed: u64,
}

/// Reads a row; `None` where it is none, or damaged.
pub(super) fn read_part(bytes: &[u8]) -> Option<(Part, impl Iterator<Item = Entry> + '_)> {
    let is_part = bytes[8..12] == MAGIC.to_le_bytes() && is_sealed(bytes, 0);
    let count = word(bytes, 48) as usize;
    let part = Part {
        is_last: bytes[12] == 1,
        number: word(bytes, 16),
        row: word(bytes, 24),
        from: word(bytes, 32),
        before: word(bytes, 40),
        seed: word(bytes, 56),
    };
    let entry = |at: usize| Entry { hash: word(bytes, at), place: Place(word(bytes, at + 8)) };
    let places = bytes[HEADER.min(bytes.len())..].len() / ENTRY;
    let is_part = is_part && part.number <= MOST_NUMBER && part.from <= MOST_NUMBER;
    is_part.then(|| (part, (0..count.min(places)).map(move |i| entry(HEADER + i * ENTRY))))
}
