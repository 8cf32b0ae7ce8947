//! The stream of records: rows that are filled in memory, and those on their way to
//! flash.
//!
//! Guarantees: a record is in one row, of one place, which is known when it is put
//! there; rows have ascending numbers, and what is in a later one was put there later;
//! the bytes of a row can be read here until it is programmed. Fails where no buffer or
//! no row is free.

use std::collections::VecDeque;

use flash::{Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Buffer, Lender, OutOfMemory};

use super::place::Place;
use super::record::{Body, ROW_HEADER, Record, row_header, seal_row};

const BLOCK: usize = BLOCK_BYTES as usize;

/// The tag's id of a row of records, and of one of a checkpoint.
pub(super) const PACKED_ID: u64 = 1 << 56 | 1;
pub(super) const CHECKPOINT_ID: u64 = 1 << 56 | 2;

/// Writes the tags of a row's blocks behind them.
pub(super) fn put_tags(bytes: &mut [u8], blocks: usize, tag: Tag) {
    bytes[blocks * BLOCK..].chunks_exact_mut(TAG_BYTES).for_each(|to| tag.store(to));
}

/// What is known of a row that is not programmed.
#[derive(Debug)]
pub(super) struct Row {
    /// Its number.
    pub number: u64,
    /// Its first block.
    pub ppa: Ppa,
    /// Where its records end.
    pub end: usize,
    buffer: Lender,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Records are put in.
    Open,
    /// It is on its way.
    Sent,
    /// It has to go elsewhere.
    Failed,
    Programmed,
}

impl Row {
    /// The bytes of its blocks.
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.buffer.bytes();
        &bytes[..bytes.len() / (BLOCK + TAG_BYTES) * BLOCK]
    }
}

/// The rows that are not programmed.
pub(super) struct Packer {
    /// By number; the last one may be open.
    rows: VecDeque<Row>,
    free: Vec<Lender>,
    most: u64,
    blocks: usize,
    seed: u64,
    /// The number of the next row.
    pub next: u64,
}

impl Packer {
    /// With so many buffers for rows of so many blocks; the next row has this number.
    pub fn new(buffers: usize, blocks: usize, seed: u64) -> Result<Packer, OutOfMemory> {
        let free = Buffer::carve(buffers, blocks * (BLOCK + TAG_BYTES))?;
        let free: Vec<Lender> = free.into_iter().map(Lender::new).collect();
        let rows = VecDeque::with_capacity(buffers);
        Ok(Packer { rows, free, most: buffers as u64, blocks, seed, next: 1 })
    }

    /// Rows that may be not programmed at once: by less than so many the numbers of two
    /// rows of a chunk differ, where the second has the lower one.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Rows below this number are programmed.
    pub fn done(&self) -> u64 {
        self.rows.front().map_or(self.next, |row| row.number)
    }

    /// Rows below this number hold all records so far.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// The row that is being filled.
    pub fn open(&self) -> Option<&Row> {
        self.rows.back().filter(|row| row.stage == Stage::Open)
    }

    /// Whether the open row takes a record of so many bytes.
    pub fn fits(&self, bytes: usize) -> bool {
        self.open().is_some_and(|row| row.end + bytes <= self.blocks * BLOCK)
    }

    /// Whether there is a buffer for another row.
    pub fn has_buffer(&self) -> bool {
        !self.free.is_empty()
    }

    /// Opens a row at this place. The one before is closed, and there is a buffer.
    pub fn start(&mut self, ppa: Ppa) {
        debug_assert!(self.open().is_none());
        let buffer = self.free.pop().expect("the caller saw a buffer");
        let (number, end) = (self.next, ROW_HEADER);
        self.next += 1;
        self.rows.push_back(Row { number, ppa, end, buffer, stage: Stage::Open });
    }

    /// Puts a record in the open row, where it fits. Gives its place and row.
    pub fn put(&mut self, key: &[u8], body: &Body<'_>, epoch: u64) -> (Place, u64) {
        let size = body.bytes(key);
        let (place, number, to) = self.room(size, body.kind(), epoch);
        body.write(key, to);
        (place, number)
    }

    /// Puts a record there as it is.
    pub fn copy(&mut self, record: &Record<'_>, age: u64) -> (Place, u64) {
        let (place, number, to) = self.room(record.bytes.len(), record.kind, age);
        to.copy_from_slice(record.bytes);
        (place, number)
    }

    fn room(&mut self, size: usize, kind: super::place::Kind, age: u64) -> (Place, u64, &mut [u8]) {
        let row = self.rows.back_mut().expect("a row is open");
        let at = row.end;
        row.end += size;
        let place = Place::new(row.ppa, at, size, kind, age);
        (place, row.number, &mut row.buffer.bytes_mut()[at..at + size])
    }

    /// Closes the open row. Gives its place, and its bytes to be programmed.
    pub fn close(&mut self) -> Option<(Ppa, u64, Buffer)> {
        let (blocks, seed) = (self.blocks, self.seed);
        let row = self.rows.back_mut().filter(|row| row.stage == Stage::Open)?;
        let bytes = row.buffer.bytes_mut();
        seal_row(bytes, row.end, row.number, seed);
        bytes[row.end..blocks * BLOCK].fill(0);
        put_tags(bytes, blocks, Tag { id: PACKED_ID, seq: row.number });
        row.stage = Stage::Sent;
        Some((row.ppa, row.number, row.buffer.lend()))
    }

    fn at(&mut self, number: u64) -> &mut Row {
        let first = self.rows.front().expect("a row is on its way").number;
        &mut self.rows[(number - first) as usize]
    }

    /// Where a row is.
    pub fn place_of(&mut self, number: u64) -> Ppa {
        self.at(number).ppa
    }

    /// A row is programmed, or is to go elsewhere.
    pub fn sent(&mut self, number: u64, buffer: Buffer, is_programmed: bool) {
        let row = self.at(number);
        row.buffer.reclaim(buffer);
        row.stage = if is_programmed { Stage::Programmed } else { Stage::Failed };
        while self.rows.front().is_some_and(|row| row.stage == Stage::Programmed) {
            let row = self.rows.pop_front().expect("it was looked at");
            self.free.push(row.buffer);
        }
    }

    /// The first row that has to go elsewhere.
    pub fn failed(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.stage == Stage::Failed)
    }

    /// It goes there. Gives its bytes to be programmed.
    pub fn send_again(&mut self, number: u64, ppa: Ppa) -> Buffer {
        let row = self.at(number);
        (row.ppa, row.stage) = (ppa, Stage::Sent);
        row.buffer.lend()
    }

    /// The bytes of a record from its place on, where its row is not programmed.
    pub fn find(&self, place: Place) -> Option<&[u8]> {
        let holds = |row: &&Row| {
            let from = place.ppa().0.wrapping_sub(row.ppa.0);
            from < self.blocks as u64 && row.stage != Stage::Programmed
        };
        let row = self.rows.iter().find(holds)?;
        let from = (place.ppa().0 - row.ppa.0) as usize * BLOCK + place.offset();
        row.bytes().get(from..from + place.len())
    }
}

/// The records of a row, each with where it begins.
pub(super) fn records(row: &[u8]) -> impl Iterator<Item = (usize, Option<Record<'_>>)> {
    let end = row_header(row).map_or(0, |(end, ..)| end);
    let mut at = ROW_HEADER;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let record = Record::read(&row[at..end]);
        let from = at;
        at = record.map_or(end, |record| at + record.bytes.len());
        Some((from, record))
    })
}
