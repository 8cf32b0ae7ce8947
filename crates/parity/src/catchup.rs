//! Lanes, for what takes several steps, and the first of it: a superblock that
//! was written before the start, or that lost its place among the open ones,
//! is made ready to be written on.
//!
//! Stripe by stripe, from the first of which a row is missing: the rows that are
//! there are read for the sum; a row that is missing under its parity is the sum
//! of the others, any other that is owed is padded with zeros; then the parity
//! row is programmed, if the stripe is whole, else the sum is gone on with. A
//! cut at any moment leaves a superblock of which the same is to be done.
//!
//! What cannot be programmed, or be read in three tries, closes the superblock early.

use device::{OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::TAG_BYTES;
use port::{BLOCK_BYTES, Buffer, OutOfMemory, Scratch, Slots, Status, Whose};

use crate::commands::Cookie;
use crate::mutation::{self, Mutation};
use crate::parity::Parity;
use crate::reads::Plan;
use crate::superblock::Stored;

/// What a lane is for.
pub(crate) enum Job {
    /// Reading blocks of a command one by one, or rebuilding them.
    Repair(Plan),
    /// Making a superblock ready.
    CatchUp(CatchUp),
    /// Erasing what the members of a superblock have that is not begun.
    Clean(usize),
    /// Making the erase of a superblock durable, by a flush of this number.
    Flush(usize, u64),
}

/// How far a superblock is ready.
#[derive(Clone, Copy)]
pub(crate) struct CatchUp {
    sb: usize,
    /// The stripe that it is at, and its place in the table.
    number: u32,
    stripe: u32,
    /// Reads of all members, pads of those with data, the parity.
    step: u32,
    /// How often its read failed.
    failed: u32,
}

/// How often a row is read: an error may pass.
const TRIES: u32 = 3;

/// A place for work of several steps, one command at a time.
pub(crate) struct Lane {
    buffer: Scratch,
    pub job: Job,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane { buffer: Scratch::default(), job: Job::Clean(0) }
    }
}

impl Lane {
    /// Gives each lane its buffer.
    pub fn furnish(lanes: &mut Slots<Lane>, count: usize) -> Result<(), OutOfMemory> {
        let bytes = device::MAX_ADDRESSES * (BLOCK_BYTES as usize + TAG_BYTES);
        for (id, buffer) in (0..).zip(Buffer::carve(count, bytes)?) {
            lanes[id].buffer = Scratch::new(buffer);
        }
        Ok(())
    }

    /// The first `bytes` of its buffer.
    pub fn take(&mut self, bytes: usize) -> Buffer {
        self.buffer.take(bytes)
    }

    /// Takes them back.
    pub fn give(&mut self, buffer: Buffer) {
        self.buffer.give(buffer);
    }
}

impl<D: OpenChannel> Parity<D> {
    /// Opens a superblock of which `from` blocks are written. False where it
    /// has to be made ready first, or there is no room yet.
    pub(crate) fn open(&mut self, sb: usize, from: u32, stored: Stored) -> bool {
        if from == 0 && !self.is_clean(sb) {
            self.clean(sb);
            return false;
        }
        if self.stripes.opens.room() == 0 && !self.close_oldest(sb) {
            return false;
        }
        let least = self.members(sb).all().map(|chunk| chunk.programmed).min();
        let number = least.unwrap_or(0) / self.layout.row;
        let is_ready = self.is_ready(sb, from);
        if !is_ready && (self.lanes.room() == 0 || !self.make_room_for(1, sb)) {
            return false;
        }
        let open = self.stripes.open(sb);
        let of = &mut self.supers[sb];
        debug_assert_eq!(of.base, from, "what was written is known when it is opened");
        (of.open, of.stored) = (open, stored);
        if is_ready {
            return true;
        }
        of.busy = true;
        let stripe = self.stripes.begin(sb, number, 0, stored);
        let lane = self.lanes.take_as_is();
        self.catch_up(lane, CatchUp { sb, number, stripe, step: 0, failed: 0 });
        false
    }

    /// Whether a superblock ends with a whole stripe and nothing is owed.
    fn is_ready(&self, sb: usize, from: u32) -> bool {
        let members = self.members(sb);
        let rows = from / self.layout.stripe_blocks() * self.layout.row;
        let mut all = members.all();
        from.is_multiple_of(self.layout.stripe_blocks()) && all.all(|c| c.programmed >= rows)
    }

    /// Blocks of a stripe that member `of` has, and that it should have.
    fn have_and_want(&self, at: &CatchUp, of: u32) -> (u32, u32) {
        let (row, members) = (self.layout.row, self.members(at.sb));
        let of_stripe = |blocks: u32| blocks.saturating_sub(at.number * row).min(row);
        let base = self.supers[at.sb].base;
        (of_stripe(members.chunk(of).programmed), of_stripe(members.owed(of, base)))
    }

    /// Does the next step.
    fn catch_up(&mut self, lane: u32, mut at: CatchUp) {
        let (width, per_stripe) = (self.layout.width, self.layout.stripe_blocks());
        let (parity, base) = (self.layout.data_members(), self.supers[at.sb].base);
        while at.number * per_stripe < base {
            if at.step == 2 * width {
                if (at.number + 1) * per_stripe > base {
                    break;
                }
                at = self.next_stripe(at);
                continue;
            }
            let (of, is_read) = (at.step % width, at.step < width);
            let (have, want) = self.have_and_want(&at, of);
            let chunk = self.layout.chunk(at.sb, of);
            if is_read && have > 0 {
                return self.step(lane, at, VectorOp::Read, chunk, 0, have);
            } else if !is_read && have < want {
                let missing = u64::from(want - have);
                if of == parity {
                    self.counters.parity += missing;
                } else {
                    self.counters.padded += missing;
                }
                return self.step(lane, at, VectorOp::Write, chunk, have, want);
            }
            at.step += 1;
        }
        self.ready_to_write(lane, at);
    }

    /// The stripe behind this one, of which nothing is missing any more.
    fn next_stripe(&mut self, at: CatchUp) -> CatchUp {
        let (sb, number, stored) = (at.sb, at.number + 1, self.supers[at.sb].stored);
        self.stripes.give(at.stripe);
        // There is room: one was just given back.
        let stripe = self.stripes.begin(sb, number, 0, stored);
        CatchUp { sb, number, stripe, step: 0, failed: 0 }
    }

    /// Sends one command: the blocks `from` to `to` of a stripe's row.
    fn step(&mut self, lane: u32, at: CatchUp, op: VectorOp, chunk: usize, from: u32, to: u32) {
        let stripe = &self.stripes.table[at.stripe];
        let (content, each) = (stripe.content(), stripe.each(self.kept as usize));
        let (row, blocks) = (self.layout.row as usize, (to - from) as usize);
        let mut buffer = self.lanes[lane].take(blocks * (each + TAG_BYTES));
        if op == VectorOp::Write {
            // The parity is the sum, and so is a row of which it is there.
            let parity = self.layout.data_members();
            let summed = match chunk == self.layout.chunk(at.sb, parity) {
                true => to,
                false => self.have_and_want(&at, parity).0.clamp(from, to),
            };
            let (from, n) = (from as usize, (summed - from) as usize);
            let (sums, sum_tags) = stripe.sum.bytes().split_at(row * each);
            let (data, tags) = buffer.bytes_mut().split_at_mut(blocks * each);
            data.fill(0);
            tags.fill(0);
            data[..n * each].copy_from_slice(&sums[from * each..][..n * each]);
            tags[..n * TAG_BYTES].copy_from_slice(&sum_tags[from * TAG_BYTES..][..n * TAG_BYTES]);
        }
        let (ppa, whose) =
            (self.layout.at(chunk, at.number * self.layout.row + from), Whose::Metadata);
        self.lanes[lane].job = Job::CatchUp(at);
        let cmd =
            VectorCmd { whose, ..VectorCmd::new(0, op, content, (ppa, blocks as u8), buffer) };
        self.send(Cookie::Lane(lane), cmd);
    }

    /// The superblock can be written on.
    fn ready_to_write(&mut self, lane: u32, at: CatchUp) {
        let (per_stripe, of) = (self.layout.stripe_blocks(), &mut self.supers[at.sb]);
        of.busy = false;
        let written = of.base % per_stripe;
        if written > 0 {
            self.stripes.table[at.stripe].left = per_stripe - written;
            self.stripes.opens[of.open].stripes.push_back(at.stripe);
        } else {
            self.stripes.give(at.stripe);
        }
        self.lanes.give(lane);
        self.stirred = true;
    }

    fn catch_up_done(&mut self, lane: u32, mut at: CatchUp, done: VectorDone) {
        let is_read = at.step < self.layout.width;
        if !matches!(done.status, Status::SUCCESS | Status::HIGH_ECC) {
            self.lanes[lane].give(done.buffer);
            at.failed += 1;
            let tries = if mutation::is(Mutation::GiveUpAtOnce) { 1 } else { TRIES };
            if is_read && at.failed < tries {
                return self.catch_up(lane, at);
            }
            self.lanes.give(lane);
            self.stripes.give(at.stripe);
            self.supers[at.sb].busy = false;
            self.fail(at.sb);
            self.stirred = true;
            return;
        }
        if is_read {
            let stripe = &mut self.stripes.table[at.stripe];
            let each = stripe.each(self.kept as usize);
            let count = done.buffer.len() / (each + TAG_BYTES);
            self.counters.read += count as u64;
            let (data, tags) = done.buffer.bytes().split_at(count * each);
            stripe.add(self.kept as usize, self.layout.row as usize, 0, data, tags);
        }
        self.lanes[lane].give(done.buffer);
        (at.step, at.failed) = (at.step + 1, 0);
        self.catch_up(lane, at);
    }

    pub(crate) fn lane_done(&mut self, lane: u32, mut done: VectorDone) {
        self.lists.extend(done.list.take());
        self.stirred = true;
        match &mut self.lanes[lane].job {
            Job::CatchUp(at) => {
                let at = *at;
                self.catch_up_done(lane, at, done);
            }
            Job::Repair(plan) => {
                let plan = std::mem::take(plan);
                self.repair_done(lane, plan, done);
            }
            Job::Clean(sb) => {
                let sb = *sb;
                self.lanes.give(lane);
                let of = &mut self.supers[sb];
                (of.busy, of.erased) = (false, self.flushes);
                if !self.is_bare(sb) || self.members(sb).is_lame() {
                    self.fail(sb);
                }
            }
            Job::Flush(sb, number) => {
                let (sb, number) = (*sb, *number);
                self.lanes.give(lane);
                self.supers[sb].busy = false;
                self.flush_done(number, done.status);
                if !done.status.is_ok() {
                    self.fail(sb);
                }
            }
        }
    }

    /// Whether a superblock of which nothing is there can be begun: nothing of
    /// before is in its members, and that is durable.
    fn is_clean(&self, sb: usize) -> bool {
        let is_durable = !self.device.is_cached() || self.flushed > self.supers[sb].erased;
        is_durable && self.is_bare(sb)
    }

    /// Does what is to be done for that. Nothing where there is no lane.
    fn clean(&mut self, sb: usize) {
        if self.lanes.room() == 0 {
            return;
        }
        let lane = self.lanes.take_as_is();
        self.supers[sb].busy = true;
        let (all, cookie, whose) = (self.layout.width, Cookie::Lane(lane), Whose::Metadata);
        self.lanes[lane].job =
            if self.retire_spoilt(sb, all, cookie, whose) || self.erase(sb, all, cookie, whose) {
                Job::Clean(sb)
            } else {
                Job::Flush(sb, self.send_flush(Cookie::Lane(lane), Buffer::empty()))
            };
    }
}
