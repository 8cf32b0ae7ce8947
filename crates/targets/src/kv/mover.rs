//! Collection of chunks of large values: the rows of a value that are there go to
//! another chunk, and then a record says so.
//!
//! Guarantees: while rows of a value are moved no other request of its key is begun; the
//! old rows stay until the record that leads to the new ones is programmed. One row is
//! moved at a time. A value whose key is busy, or that would come to have too many runs,
//! is left where it is for now.

use device::{Content, OpenChannel, VectorOp};
use port::{Buffer, OutOfMemory, Scratch, Status};

use super::mutation::{self, Mutation};
use super::place::{Kind, Place};
use super::record::{Body, Record, Run, large_bytes};
use super::space::{Space, Stream};
use super::{Cookie, Kv, WHOLE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The next row that counts is looked for.
    Look,
    /// A record is read, or a row read or written.
    Busy,
    /// A record was read, and is in `key` and `runs`.
    Known,
    /// A row was read, and is to be written.
    Write,
    /// All rows were written.
    Enter,
}

/// The chunk whose rows are moved.
pub(super) struct Mover {
    chunk: Option<usize>,
    /// The next row that is looked at.
    row: u32,
    stage: Stage,
    /// Whose rows are moved: 0 nobody's.
    hash: u64,
    place: Place,
    key: Vec<u8>,
    len: u64,
    lanes: u16,
    /// Where the value is, and will be.
    runs: Vec<Run>,
    new: Vec<Run>,
    /// The run and row of it that are moved.
    at: (usize, u32),
    record: Scratch,
    data: Scratch,
    held: Buffer,
    /// Chunks of which something was left.
    stuck: Vec<usize>,
}

impl Mover {
    pub fn new(blocks: usize, kept: usize, most_runs: usize) -> Result<Mover, OutOfMemory> {
        Ok(Mover {
            chunk: None,
            row: 0,
            stage: Stage::Look,
            hash: 0,
            place: Place::NONE,
            key: Vec::with_capacity(port::MAX_KEY_BYTES),
            len: 0,
            lanes: 1,
            runs: Vec::with_capacity(most_runs),
            new: Vec::with_capacity(most_runs + 1),
            at: (0, 0),
            record: Scratch::new(Buffer::zeroed(blocks * WHOLE)?),
            data: Scratch::new(Buffer::zeroed(blocks * kept)?),
            held: Buffer::empty(),
            stuck: Vec::new(),
        })
    }

    /// Whether it has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.chunk.is_none()
    }

    /// Whether rows of this key's value are moved.
    pub fn locks(&self, hash: u64) -> bool {
        self.hash == hash && hash != 0 && !mutation::is(Mutation::MoveUnlocked)
    }

    /// Begins with a chunk.
    pub fn start(&mut self, chunk: usize) {
        (self.chunk, self.row, self.stage) = (Some(chunk), 0, Stage::Look);
    }

    /// Chunks that were left may be tried again.
    pub fn forget_stuck(&mut self, space: &mut Space) {
        self.stuck.drain(..).for_each(|chunk| space.chunk_mut(chunk).stuck = false);
    }
}

impl<D: OpenChannel> Kv<D> {
    /// Goes on with the chunk.
    pub(super) fn move_rows(&mut self) -> bool {
        let Some(chunk) = self.mover.chunk else { return false };
        match self.mover.stage {
            Stage::Look => self.look_for_row(chunk),
            Stage::Busy => return false,
            Stage::Known => self.next_row(chunk),
            Stage::Write => return self.write_moved(chunk),
            Stage::Enter => return self.enter_moved(chunk),
        }
        true
    }

    /// Finds the next row of a value that may be moved, and reads its record.
    fn look_for_row(&mut self, chunk: usize) {
        while self.mover.row < self.space.chunk(chunk).next && self.space.chunk(chunk).live > 0 {
            let hash =
                self.owners[self.space.row_number(self.space.row_ppa(chunk, self.mover.row))];
            let place = self.index.find(hash).filter(|place| place.kind() == Kind::Large);
            match place {
                Some(place) if hash != 0 && !self.is_busy(hash) => {
                    return self.read_mover_record(hash, place);
                }
                _ => self.mover.row += 1,
            }
        }
        if self.space.chunk(chunk).live > 0 {
            self.space.chunk_mut(chunk).stuck = true;
            self.mover.stuck.push(chunk);
        }
        self.mover.chunk = None;
    }

    fn read_mover_record(&mut self, hash: u64, place: Place) {
        (self.mover.hash, self.mover.place, self.mover.stage) = (hash, place, Stage::Busy);
        if let Some(bytes) = self.packer.find(place) {
            let record = Record::read(bytes);
            return learn(&mut self.mover, record);
        }
        let buffer = self.mover.record.take(place.blocks() * WHOLE);
        self.fetch_record(Cookie::MoverRecord, place, buffer);
    }

    /// The record of the value was read.
    pub(super) fn mover_record_read(&mut self, status: Status, buffer: Buffer) {
        let place = self.mover.place;
        self.space.chunk_mut(self.space.chunk_of(place.ppa())).holds -= 1;
        let bytes = &buffer.bytes()[place.offset()..];
        learn(&mut self.mover, Record::read(bytes).filter(|_| ftl::is_read(status)));
        self.mover.record.give(buffer);
    }

    /// Reads the next row of the value that is in the chunk, or is done with it.
    fn next_row(&mut self, chunk: usize) {
        let (mut at, mut row) = self.mover.at;
        while let Some(&run) = self.mover.runs.get(at) {
            let is_here = self.space.chunk_of(run.first) == chunk;
            if is_here && row < run.rows {
                let blocks = self.geometry.row_blocks();
                let ppa = flash::Ppa(run.first.0 + u64::from(row * blocks));
                self.mover.at = (at, row);
                self.mover.stage = Stage::Busy;
                let buffer = self.mover.data.take(blocks as usize * self.kept);
                let cookie = Cookie::MoverRead;
                return self.send(cookie, VectorOp::Read, Content::Data, ppa, blocks as u8, buffer);
            }
            if !is_here {
                self.mover.new.push(run);
            }
            (at, row) = (at + 1, 0);
        }
        self.mover.at = (at, 0);
        let is_here = |run: &Run| self.space.chunk_of(run.first) == chunk;
        // A row that is another's by now, or that could not be read, is not moved.
        let moves = self.mover.runs.iter().any(is_here) && self.mover.new.len() <= self.most_runs();
        if moves { self.mover.stage = Stage::Enter } else { self.leave_value() }
    }

    /// A row was read.
    pub(super) fn mover_row_read(&mut self, status: Status, buffer: Buffer) {
        self.counters.moved += u64::from(self.geometry.row_blocks());
        if ftl::is_read(status) && self.mover.new.len() <= self.most_runs() {
            (self.mover.held, self.mover.stage) = (buffer, Stage::Write);
        } else {
            self.mover.data.give(buffer);
            self.leave_value();
        }
    }

    /// Writes it elsewhere.
    fn write_moved(&mut self, from: usize) -> bool {
        let Some((chunk, row)) = self.space.take_row(Stream::Moved, self.collect_spare()) else {
            return false;
        };
        debug_assert!(chunk != from);
        let (ppa, blocks) = (self.space.row_ppa(chunk, row), self.geometry.row_blocks());
        self.space.begin_row(chunk);
        self.counters.gc += u64::from(blocks);
        let wear = self.device.chunk(chunk).wear;
        let lane = self.mover.runs[self.mover.at.0].lane;
        match self.mover.new.last_mut() {
            Some(run)
                if run.lane == lane && self.mover.at.1 > 0 && run.goes_on(&self.geometry, ppa) =>
            {
                run.rows += 1;
            }
            _ => self.mover.new.push(Run { first: ppa, lane, rows: 1, wear }),
        }
        let buffer = std::mem::take(&mut self.mover.held);
        self.mover.stage = Stage::Busy;
        let cookie = Cookie::MoverWrite(chunk as u32);
        self.send(cookie, VectorOp::Write, Content::Data, ppa, blocks as u8, buffer);
        true
    }

    /// It was written, or failed.
    pub(super) fn mover_row_written(&mut self, chunk: usize, status: Status, buffer: Buffer) {
        self.space.chunk_mut(chunk).programs -= 1;
        self.space.note_empty(chunk);
        self.mover.data.give(buffer);
        if status.is_ok() {
            self.mover.at.1 += 1;
            self.mover.stage = Stage::Known;
        } else {
            self.fail_chunk(chunk);
            self.leave_value();
        }
    }

    /// Puts a record with the new places in the stream.
    fn enter_moved(&mut self, chunk: usize) -> bool {
        let size = large_bytes(self.mover.key.len(), self.mover.new.len());
        if !self.make_room(size, self.collect_spare()) {
            return false;
        }
        let mover = &self.mover;
        let body = Body::Large { len: mover.len, lanes: mover.lanes, runs: &mover.new };
        let (place, row) = self.packer.put(&mover.key, &body, 0);
        self.moved_bytes += size;
        let hash = mover.hash;
        self.enter(hash, place, row, &[]);
        for at in 0..self.mover.runs.len() {
            let run = self.mover.runs[at];
            if self.space.chunk_of(run.first) == chunk {
                self.discount_runs(&[run], row);
                self.set_owner(&run, 0);
            }
        }
        for at in 0..self.mover.new.len() {
            let run = self.mover.new[at];
            if !self.mover.runs.contains(&run) {
                self.own(&[run], hash);
            }
        }
        self.unlock_value();
        true
    }

    /// Where no chunk can come any more for what is moved: leaves the value. Whether there
    /// is one.
    pub(super) fn give_up_value(&mut self) -> bool {
        let waits = matches!(self.mover.stage, Stage::Write | Stage::Enter);
        if waits {
            if self.mover.stage == Stage::Write {
                let held = std::mem::take(&mut self.mover.held);
                self.mover.data.give(held);
            }
            self.leave_value();
        }
        waits
    }

    /// Leaves a value where it is: what was written of it counts no more.
    fn leave_value(&mut self) {
        for at in 0..self.mover.new.len() {
            let run = self.mover.new[at];
            if !self.mover.runs.contains(&run) {
                self.space.chunk_mut(self.space.chunk_of(run.first)).holds -= run.rows;
                self.discount_runs(&[run], 0);
            }
        }
        self.unlock_value();
    }

    fn unlock_value(&mut self) {
        (self.mover.hash, self.mover.stage) = (0, Stage::Look);
        self.mover.row += 1;
        self.unlocked = true;
    }
}

/// Takes note of what the record of a value says; of one that is none, nothing.
fn learn(mover: &mut Mover, record: Option<Record<'_>>) {
    (mover.stage, mover.at) = (Stage::Known, (0, 0));
    mover.key.clear();
    mover.runs.clear();
    mover.new.clear();
    if let Some(record) = record.filter(|record| record.kind == Kind::Large) {
        mover.key.extend_from_slice(record.key);
        (mover.len, mover.lanes) = (record.len, record.lanes());
        mover.runs.extend(record.runs());
    }
}
