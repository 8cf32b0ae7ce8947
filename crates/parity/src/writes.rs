//! Writes: rows to their members, and the parity row when a stripe is whole.
//!
//! A write completes when its own rows are programmed, and the superblock's
//! first block, and, if it wrote the last row of a stripe, that stripe's parity
//! too. A failed program, of data or
//! parity, fails its write and closes the superblock early: what is on its way
//! to it ends, nothing more is written, and its last stripes stay without
//! parity.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, ChunkState, Ppa, block_bits};
use port::{Status, Whose};

use crate::commands::{Cookie, address, fill};
use crate::mutation::{self, Mutation};
use crate::parity::Parity;
use crate::superblock::{NONE, Stored};

impl<D: OpenChannel> Parity<D> {
    pub(crate) fn start_write(&mut self, cmd: VectorCmd) {
        if let Err((status, failed)) = self.enter_write(&cmd) {
            self.refuse(cmd, status, failed);
            return;
        }
        let sb = self.layout.upper.chunk_index(address(&cmd, 0));
        let of = &mut self.supers[sb];
        of.wp += u32::from(cmd.count);
        of.inside += 1;
        let id = self.enter(cmd);
        // What waits for the same superblock goes first.
        if self.waiting.is_empty() && self.try_write(id) {
            return;
        }
        self.waiting.push_back(id);
        self.stirred = true;
    }

    /// Whether a write is one of the superblock's next blocks.
    fn enter_write(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let (upper, n) = (&self.layout.upper, u32::from(cmd.count));
        let start = address(cmd, 0);
        let all = block_bits(0, n as usize);
        let in_turn = (0..n as usize).all(|i| address(cmd, i).0 == start.0 + i as u64);
        let sb = upper.chunk_index(start);
        let of = &self.supers[sb];
        if of.wp == 0 && self.members(sb).is_lame() {
            return Err((Status::OFFLINE_CHUNK, all));
        }
        if of.closed && of.wp < self.layout.size() {
            return Err((Status::CHUNK_EARLY_CLOSE, all));
        }
        if upper.block(start) != of.wp || of.wp == self.layout.size() {
            return Err((Status::OUT_OF_ORDER_WRITE, all));
        }
        let fits = n.is_multiple_of(upper.write_blocks()) && n <= self.layout.size() - of.wp;
        let stored = self.stored(cmd.content);
        let mixed = of.stored != Stored::Unknown && of.stored != stored;
        if !in_turn || !fits || mixed { Err((Status::INVALID_FIELD, all)) } else { Ok(()) }
    }

    fn stored(&self, content: Content) -> Stored {
        let is_whole = content == Content::Whole && u64::from(self.kept) < port::BLOCK_BYTES;
        if is_whole { Stored::Whole } else { Stored::Kept }
    }

    /// Looks at what waits, oldest first, and does what can be done. Of one
    /// superblock nothing overtakes.
    pub(crate) fn retry_waiting(&mut self) {
        self.pass = self.pass.wrapping_add(1).max(1);
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { return };
            let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, 0));
            if self.supers[sb].pass == self.pass || !self.try_write(id) {
                self.supers[sb].pass = self.pass;
                self.waiting.push_back(id);
            }
        }
    }

    /// Sends a write that was entered. False where it has to wait.
    fn try_write(&mut self, id: u32) -> bool {
        let cmd = &self.commands[id].cmd;
        let (start, count) = (address(cmd, 0), u32::from(cmd.count));
        let stored = self.stored(cmd.content);
        let (sb, from) = (self.layout.upper.chunk_index(start), self.layout.upper.block(start));
        let of = self.supers[sb];
        if of.busy {
            return false;
        }
        if of.closed {
            let command = &mut self.commands[id];
            command.status = Status::CHUNK_EARLY_CLOSE;
            command.failed = block_bits(0, count as usize);
            self.supers[sb].wp -= count;
            self.end_write(id, sb);
            return true;
        }
        if of.open == NONE && !self.open(sb, from, stored) {
            return false;
        }
        let per_stripe = self.layout.stripe_blocks();
        let touched = (from + count).div_ceil(per_stripe) - from / per_stripe;
        if !self.make_room_for(touched as usize, sb) {
            return false;
        }
        self.gather(id, sb, from, count);
        self.counters.written += u64::from(count);
        self.send_write(id, sb, from);
        true
    }

    /// Finds room for stripes. False where there is none yet.
    pub(crate) fn make_room_for(&mut self, count: usize, except: usize) -> bool {
        while self.stripes.table.room() < count {
            if !self.close_oldest(except) {
                return false;
            }
        }
        true
    }

    /// Gives up the stripes of the superblock that was not written for longest
    /// and has nothing on its way.
    pub(crate) fn close_oldest(&mut self, except: usize) -> bool {
        let supers = &self.supers;
        let may = |sb: usize| sb != except && supers[sb].inside == 0 && !supers[sb].busy;
        let Some(open) = self.stripes.oldest(may) else { return false };
        let sb = self.stripes.opens[open].sb;
        self.close(sb);
        self.supers[sb].base = self.supers[sb].wp;
        true
    }

    /// Forgets the stripes of a superblock. Writes that wait for the parity of
    /// one do no more.
    pub(crate) fn close(&mut self, sb: usize) {
        let open = std::mem::replace(&mut self.supers[sb].open, NONE);
        if open == NONE {
            return;
        }
        while let Some(owner) = self.stripes.close_one(open) {
            if let Some(owner) = owner {
                self.write_part_done(owner, sb);
            }
        }
        self.stirred = true;
    }

    /// Adds the blocks of a write to the sums of their stripes.
    fn gather(&mut self, id: u32, sb: usize, from: u32, count: u32) {
        let (row, per_stripe) = (self.layout.row, self.layout.stripe_blocks());
        let (kept, stored) = (self.kept as usize, self.stored(self.commands[id].cmd.content));
        self.supers[sb].stored = stored;
        let open = self.supers[sb].open;
        self.stripes.touch(open);
        let mut block = from;
        while block < from + count {
            let (number, in_stripe) = (block / per_stripe, block % per_stripe);
            if in_stripe == 0 {
                let stripe = self.stripes.begin(sb, number, per_stripe, stored);
                self.stripes.opens[open].stripes.push_back(stripe);
            }
            let stripe = *self.stripes.opens[open].stripes.back().expect("it was begun");
            let n = (row - block % row).min(from + count - block);
            let command = &mut self.commands[id];
            let (each, tag) = command.cmd.content.each(self.kept);
            let (data, tags) = command.cmd.buffer.bytes().split_at(count as usize * each);
            let (first, blocks) = ((block - from) as usize, n as usize);
            let data = &data[first * each..][..blocks * each];
            let tags = &tags[first * tag..][..blocks * tag];
            let held = &mut self.stripes.table[stripe];
            held.add(kept, row as usize, (block % row) as usize, data, tags);
            block += n;
            if block.is_multiple_of(per_stripe) {
                held.owner = Some(id);
                command.left += 1;
            }
        }
    }

    /// Sends the blocks of a command to where they belong.
    fn send_write(&mut self, id: u32, sb: usize, from: u32) {
        let count = u32::from(self.commands[id].cmd.count);
        let base = self.layout.upper.chunk_start(sb).0 + u64::from(from);
        let held = &mut self.commands[id].cmd;
        let (op, content, buffer) = (held.op, held.content, std::mem::take(&mut held.buffer));
        let (ppa, whose) = (self.layout.home(Ppa(base)), held.whose);
        let mut cmd =
            VectorCmd { whose, ..VectorCmd::new(0, op, content, (ppa, count as u8), buffer) };
        if from % self.layout.row + count > self.layout.row {
            let mut list = self.list();
            let layout = &self.layout;
            fill(&mut list, (0..u64::from(count)).map(|i| layout.home(Ppa(base + i))));
            cmd.list = Some(list);
        }
        debug_assert!(cmd.list.is_some() || cmd.is_in_row(&self.layout.lower));
        self.send(Cookie::Command(id), cmd);
    }

    pub(crate) fn write_done(&mut self, id: u32, done: VectorDone) {
        let command = &mut self.commands[id];
        let (start, count) = (address(&command.cmd, 0), u32::from(command.cmd.count));
        let (sb, from) = (self.layout.upper.chunk_index(start), self.layout.upper.block(start));
        if done.status.is_ok() {
            self.programmed(sb, from, count);
        } else {
            command.status = command.status.and(done.status);
            command.failed |= done.failed;
            self.fail(sb);
        }
        self.write_part_done(id, sb);
        if from == 0 && !self.early.is_empty() {
            self.begun(sb);
        }
    }

    /// The program of a superblock's first block is over: the writes that
    /// waited for it are looked at again.
    fn begun(&mut self, sb: usize) {
        for _ in 0..self.early.len() {
            let id = self.early.remove(0);
            let of = self.layout.upper.chunk_index(address(&self.commands[id].cmd, 0));
            if of == sb { self.written(id, sb) } else { self.early.push(id) }
        }
    }

    /// All parts of a write are over. Where the superblock has not begun it
    /// waits for that, or fails: nothing would be there after a cut.
    fn written(&mut self, id: u32, sb: usize) {
        let command = &self.commands[id];
        let is_first = self.layout.upper.block(address(&command.cmd, 0)) == 0;
        if is_first || self.members(sb).is_begun() {
            self.end_write(id, sb);
        } else if self.supers[sb].closed {
            let command = &mut self.commands[id];
            command.status = command.status.and(Status::CHUNK_EARLY_CLOSE);
            command.failed = block_bits(0, usize::from(command.cmd.count));
            self.end_write(id, sb);
        } else {
            self.early.push(id);
        }
    }

    /// A program of a superblock failed: it is closed.
    pub(crate) fn fail(&mut self, sb: usize) {
        self.supers[sb].closed = true;
        self.close(sb);
    }

    /// Takes note that blocks are programmed, and sends parity rows that are
    /// due.
    fn programmed(&mut self, sb: usize, from: u32, count: u32) {
        let open = self.supers[sb].open;
        if open == NONE {
            return;
        }
        let per_stripe = self.layout.stripe_blocks();
        for i in 0..self.stripes.opens[open].stripes.len() {
            let id = self.stripes.opens[open].stripes[i];
            let stripe = &mut self.stripes.table[id];
            let start = stripe.number * per_stripe;
            let end = (from + count).min(start + per_stripe);
            stripe.left -= end.saturating_sub(from.max(start));
        }
        self.send_parity(sb, open);
    }

    /// Sends the parity rows whose turn it is: those of stripes that are
    /// programmed, in their order.
    fn send_parity(&mut self, sb: usize, open: u32) {
        for i in 0..self.stripes.opens[open].stripes.len() {
            let id = self.stripes.opens[open].stripes[i];
            let stripe = &mut self.stripes.table[id];
            if stripe.left > 0 {
                return;
            }
            if std::mem::replace(&mut stripe.sent, true) {
                continue;
            }
            let row = self.layout.row;
            let ppa = self.layout.at(self.layout.parity_chunk(sb), stripe.number * row);
            let (op, content, count) = (VectorOp::Write, stripe.content(), row as u8);
            let mut buffer = std::mem::take(&mut stripe.sum);
            if mutation::is(Mutation::WrongParity) {
                buffer.bytes_mut()[0] ^= 1;
            }
            debug_assert_eq!(buffer.len() % (row as usize), 0);
            let whose = stripe.owner.map_or(Whose::User, |owner| self.commands[owner].cmd.whose);
            let cmd = VectorCmd { whose, ..VectorCmd::new(0, op, content, (ppa, count), buffer) };
            self.counters.parity += u64::from(row);
            self.send(Cookie::Parity(id), cmd);
        }
    }

    pub(crate) fn parity_done(&mut self, id: u32, done: VectorDone) {
        let stripe = &mut self.stripes.table[id];
        stripe.sum = done.buffer;
        let (sb, owner) = (stripe.sb, stripe.owner.take());
        let open = self.supers[sb].open;
        if open != NONE {
            self.stripes.opens[open].stripes.retain(|&other| other != id);
        }
        self.stripes.give(id);
        self.stirred = true;
        let owner = owner.expect("a parity row is sent for the write that ended its stripe");
        if !done.status.is_ok() {
            let command = &mut self.commands[owner];
            command.status = command.status.and(done.status);
            command.failed |= block_bits(0, usize::from(command.cmd.count));
            self.fail(sb);
        }
        self.write_part_done(owner, sb);
    }

    /// A part of a write is over: its own rows, or a parity row.
    fn write_part_done(&mut self, id: u32, sb: usize) {
        let command = &mut self.commands[id];
        command.left -= 1;
        if command.left == 0 {
            self.written(id, sb);
        }
    }

    fn end_write(&mut self, id: u32, sb: usize) {
        self.complete(id);
        let of = &mut self.supers[sb];
        of.inside -= 1;
        if of.inside == 0 && of.wp == self.layout.size() {
            self.close(sb);
        } else if of.inside == 0 && of.wp == 0 {
            // It could not be made ready: the next write may have more luck.
            self.look_again(sb);
        }
        self.stirred = true;
    }

    /// Whether nothing of a superblock can be erased: all its members are free
    /// or lost.
    pub(crate) fn is_bare(&self, sb: usize) -> bool {
        let bare = |state| matches!(state, ChunkState::Free | ChunkState::Offline);
        self.members(sb).all().all(|chunk| bare(chunk.state))
    }
}
