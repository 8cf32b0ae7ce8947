//! Large values: rows that go to the units in turn, straight from the caller's buffer
//! and straight into it.
//!
//! Guarantees: a value's rows are all programmed before its record is put anywhere. Rows
//! of one value are neighbours in their chunks wherever the values before and behind it
//! let them be. Where a program fails the value is written anew, [`TRIES`] times.

use device::{Content, OpenChannel, VectorOp};
use flash::Ppa;
use port::{Buffer, Status, Time};

use super::mutation::{self, Mutation};
use super::record::{Run, most_runs};
use super::request::{Room, Stage};
use super::space::Stream;
use super::{BLOCK, Cookie, Kv};

/// How often a value is written before its put fails.
const TRIES: u32 = 4;

/// Rows of one get under way at once.
pub(super) const READS: u32 = 32;

/// Where row `k` of a value is.
pub(super) fn locate(runs: &[Run], lanes: u16, k: u32, row_blocks: u32) -> Option<Ppa> {
    let (lane, mut left) = (k % u32::from(lanes), k / u32::from(lanes));
    for run in runs.iter().filter(|run| u32::from(run.lane) == lane) {
        if left < run.rows {
            return Some(Ppa(run.first.0 + u64::from(left * row_blocks)));
        }
        left -= run.rows;
    }
    None
}

impl<D: OpenChannel> Kv<D> {
    /// Begins to write the rows of a value.
    pub(super) fn write_rows(&mut self, now: Time, slot: u32) {
        let row = self.row_bytes() as u64;
        let held = &self.requests[slot as usize];
        let (hash, rows) = (held.hash, held.len.div_ceil(row));
        let needs = rows * row + row;
        if self.space.live() + self.promised + needs > self.limit {
            return self.refuse(now, slot, Status::CAPACITY_EXCEEDED);
        }
        // One that comes later is waited for when the rows are written.
        if self.entry_for(hash) == Room::None {
            return self.refuse(now, slot, Status::CAPACITY_EXCEEDED);
        }
        self.requests[slot as usize].rows = rows as u32;
        self.promised += rows * row;
        self.write_again(slot);
    }

    /// Puts a value down to be written from its first row on.
    fn write_again(&mut self, slot: u32) {
        let units = self.space.units_with_room(self.user_spare()).max(1);
        let held = &mut self.requests[slot as usize];
        let rows = held.rows as usize;
        let lanes = units.min(rows);
        (held.lanes, held.next, held.failed, held.stage) = (lanes as u16, 0, false, Stage::Rows);
        self.sends.push_back(slot);
    }

    pub(super) fn most_runs(&self) -> usize {
        most_runs(self.row_bytes())
    }

    /// Sends rows of values, one value after the other.
    pub(super) fn send_rows(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&slot) = self.sends.front() {
            let held = &self.requests[slot as usize];
            if held.failed || held.next == held.rows {
                self.sends.pop_front();
                self.rows_over(now, slot);
            } else if self.row_programs == self.row_window {
                break;
            } else if let Some((chunk, row)) = self.space.take_row(Stream::Large, self.user_spare())
            {
                self.send_value_row(slot, chunk, row);
            } else {
                self.short = true;
                if !self.full {
                    break;
                }
                self.sends.pop_front();
                self.requests[slot as usize].status = Status::CAPACITY_EXCEEDED;
                self.requests[slot as usize].failed = true;
                self.rows_over(now, slot);
            }
            any = true;
        }
        any
    }

    fn send_value_row(&mut self, slot: u32, chunk: usize, row: u32) {
        let (ppa, blocks) = (self.space.row_ppa(chunk, row), self.geometry.row_blocks());
        let kept = self.kept * blocks as usize;
        self.row_programs += 1;
        self.promised -= self.space.row_bytes();
        self.space.begin_row(chunk);
        self.counters.user += u64::from(blocks);
        let most = self.most_runs();
        let held = &mut self.requests[slot as usize];
        let lane = (held.next % u32::from(held.lanes)) as u16;
        // The first runs are one of each lane, in their order: mostly there are no others.
        let last = match held.runs.len() <= usize::from(held.lanes) {
            true => held.runs.get_mut(usize::from(lane)),
            false => held.runs.iter_mut().rev().find(|run| run.lane == lane),
        };
        debug_assert!(last.as_ref().is_none_or(|run| run.lane == lane), "lanes have their turns");
        match last.filter(|run| run.goes_on(&self.geometry, ppa)) {
            Some(run) => run.rows += 1,
            None => {
                let wear = self.device.chunk(chunk).wear;
                held.runs.push(Run { first: ppa, lane, rows: 1, wear });
            }
        }
        held.failed |= held.runs.len() == most;
        held.next += 1;
        held.parts += 1;
        let left = held.value.rest().len();
        let buffer = if left >= kept {
            held.value.take(kept)
        } else {
            let mut buffer = held.tail.take(kept);
            let rest = held.value.take(left);
            buffer.bytes_mut()[..left].copy_from_slice(rest.bytes());
            buffer.bytes_mut()[left..].fill(0);
            held.value.give(rest);
            buffer
        };
        let cookie = Cookie::Row(slot, chunk as u32);
        self.send(cookie, VectorOp::Write, Content::Data, ppa, blocks as u8, buffer);
    }

    /// Takes a buffer back that a row travelled in.
    fn give_back(&mut self, slot: u32, buffer: Buffer) {
        let held = &mut self.requests[slot as usize];
        if held.value.has(&buffer) { held.value.give(buffer) } else { held.tail.give(buffer) }
    }

    /// A row of a value is programmed, or failed.
    pub(super) fn value_row_done(
        &mut self,
        now: Time,
        slot: u32,
        chunk: usize,
        status: Status,
        buffer: Buffer,
    ) {
        self.row_programs -= 1;
        self.space.chunk_mut(chunk).programs -= 1;
        self.space.note_empty(chunk);
        self.give_back(slot, buffer);
        if !status.is_ok() {
            self.fail_chunk(chunk);
        }
        let held = &mut self.requests[slot as usize];
        held.failed |= !status.is_ok();
        held.parts -= 1;
        if !self.sends.contains(&slot) {
            self.rows_over(now, slot);
        }
    }

    /// All rows of a value were sent: goes on when none is under way any more.
    pub(super) fn rows_over(&mut self, now: Time, slot: u32) {
        let held = &self.requests[slot as usize];
        if held.parts > 0 {
            return;
        }
        if !held.failed {
            if held.looked {
                self.requests[slot as usize].stage = Stage::Room;
                return self.appends.push_back(slot);
            }
            return self.look_up(now, slot);
        }
        let (status, tries) = (held.status, held.tries + 1);
        self.drop_rows(slot);
        self.requests[slot as usize].tries = tries;
        if !status.is_ok() || tries == TRIES {
            let held = &mut self.requests[slot as usize];
            let status = status.and(Status::WRITE_FAULT);
            let bytes = u64::from(held.rows) * self.space.row_bytes();
            held.rows = 0;
            self.promised -= bytes;
            return self.end(now, slot, status);
        }
        self.write_again(slot);
    }

    /// The rows that a put has written, or was to, count no more.
    pub(super) fn drop_rows(&mut self, slot: u32) {
        let runs = std::mem::take(&mut self.requests[slot as usize].runs);
        let bytes = self.space.row_bytes();
        for run in &runs {
            let chunk = self.space.chunk_of(run.first);
            self.space.chunk_mut(chunk).holds -= run.rows;
        }
        self.discount_runs(&runs, 0);
        let held = &mut self.requests[slot as usize];
        // What failed is to be written anew.
        self.promised += if held.failed { u64::from(held.next) * bytes } else { 0 };
        held.runs = runs;
        held.runs.clear();
        if held.failed {
            let value = std::mem::take(&mut held.value).whole();
            held.value = port::Pieces::new(value);
        }
    }

    /// A record leads to these rows from now on.
    pub(super) fn own(&mut self, runs: &[Run], hash: u64) {
        for run in runs {
            let chunk = self.space.chunk_of(run.first);
            self.space.chunk_mut(chunk).holds -= run.rows;
            self.set_owner(run, hash);
        }
    }

    /// Notes whose the rows of a run are.
    pub(super) fn set_owner(&mut self, run: &Run, hash: u64) {
        let first = self.space.row_number(run.first);
        self.owners[first..][..run.rows as usize].fill(hash);
    }

    /// Begins to read the rows of a value.
    pub(super) fn read_rows(&mut self, now: Time, slot: u32) {
        let kept = self.kept as u64;
        let held = &mut self.requests[slot as usize];
        let all = held.out.div_ceil(BLOCK as u64);
        let stored = if self.kept == BLOCK { held.out } else { all * kept };
        held.filled = stored.min(held.value.rest().len() as u64) as usize;
        let blocks = if kept == 0 { all } else { (held.filled as u64).div_ceil(kept) };
        held.tries = blocks as u32;
        held.rows = (blocks as u32).div_ceil(self.geometry.row_blocks());
        held.stage = Stage::Rows;
        self.read_more(now, slot);
    }

    /// Sends reads of a value's rows. Ends the get when all are there.
    fn read_more(&mut self, now: Time, slot: u32) {
        let row = self.geometry.row_blocks();
        loop {
            let held = &mut self.requests[slot as usize];
            if held.next == held.rows || held.failed {
                break;
            }
            if held.parts == READS {
                return;
            }
            let again = mutation::is(Mutation::RowsAgain);
            let next = if again { held.next % u32::from(held.lanes) } else { held.next };
            let Some(ppa) = locate(&held.old, held.lanes, next, row) else {
                (held.failed, held.status) = (true, Status::KEY_UNRECOVERED);
                break;
            };
            let blocks = row.min(held.tries - held.next * row);
            let (bytes, left) = (blocks as usize * self.kept, held.filled);
            let buffer = if bytes <= left {
                held.value.take(bytes)
            } else {
                held.last = held.value.take(left);
                held.tail.take(bytes)
            };
            held.filled -= bytes.min(left);
            held.next += 1;
            held.parts += 1;
            self.send(Cookie::Fill(slot), VectorOp::Read, Content::Data, ppa, blocks as u8, buffer);
        }
        let held = &self.requests[slot as usize];
        if held.parts == 0 {
            let status = held.status;
            self.end(now, slot, status);
        }
    }

    /// A row of a value was read.
    pub(super) fn filled(&mut self, now: Time, slot: u32, status: Status, buffer: Buffer) {
        let held = &mut self.requests[slot as usize];
        held.parts -= 1;
        if !ftl::is_read(status) {
            (held.failed, held.status) = (true, Status::KEY_UNRECOVERED);
        }
        if !held.value.has(&buffer) {
            let mut last = std::mem::take(&mut held.last);
            let len = last.len();
            last.bytes_mut().copy_from_slice(&buffer.bytes()[..len]);
            held.value.give(last);
        }
        self.give_back(slot, buffer);
        self.read_more(now, slot);
    }
}
