//! Resets: all members that hold anything are erased.
//!
//! The member with the first row is erased first, and the others when that is
//! done; its erase count is the superblock's. So a cut leaves a superblock as it
//! was, or one whose first member is erased: then nothing of it is there (see
//! `superblock`), whatever the others still have. They are erased before it is
//! written again, and over a cache also flushed: programs may become durable
//! before erases of other chunks.
//!
//! Were some rows of an erased superblock to be found again, in its next life
//! by the erase count, the layer above would take them for newly written.
//!
//! A superblock of which a member is lost is offline once the others are
//! erased.
//!
//! A retirement is a reset that takes members out of use: those of which a
//! program failed, or else the one with the first row. So the superblock is
//! offline, also after a restart. Where a cut comes between the two, the member
//! is retired when the superblock is made ready for its next write.

use device::{OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, Chunk, ChunkState, Ppa, block_bits};
use port::{Buffer, Status, Whose};

use crate::commands::{Cookie, address, fill};
use crate::parity::Parity;
use crate::superblock::{Stored, Super};

impl<D: OpenChannel> Parity<D> {
    pub(crate) fn start_reset(&mut self, cmd: VectorCmd) {
        if let Err((status, failed)) = self.check_resets(&cmd) {
            self.refuse(cmd, status, failed);
            return;
        }
        let count = cmd.count;
        let id = self.enter(cmd);
        self.commands[id].left = u32::from(count);
        self.commands[id].again = (3 + self.layout.width) * u32::from(count);
        for i in 0..count {
            let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
            self.close(sb);
            let wear = self.members(sb).chunk(0).wear;
            let of = &mut self.supers[sb];
            of.life = of.life.max(wear) + 1;
            (of.wp, of.base, of.closed, of.told) = (0, 0, false, false);
            of.stored = Stored::Unknown;
            of.inside += 1;
            // What is written next waits until all members are erased.
            of.busy = true;
            self.send_reset(id, i);
        }
    }

    /// Whether all superblocks named can be erased.
    fn check_resets(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let upper = &self.layout.upper;
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        for i in 0..usize::from(cmd.count) {
            let ppa = address(cmd, i);
            let sb = upper.chunk_index(ppa);
            let twice = (0..i).any(|j| upper.chunk_index(address(cmd, j)) == sb);
            let of = &self.supers[sb];
            let wrong = if of.wp == 0 && self.members(sb).is_lame() {
                Status::OFFLINE_CHUNK
            } else if (of.wp == 0 && cmd.op == VectorOp::Reset)
                || of.inside > 0
                || twice
                || upper.block(ppa) != 0
            {
                Status::INVALID_RESET
            } else {
                continue;
            };
            status = status.and(wrong);
            failed |= block_bits(i, 1);
        }
        if failed == 0 { Ok(()) } else { Err((status, failed)) }
    }

    /// Erases the member with the first row, if that is written, else the
    /// others that are.
    fn send_reset(&mut self, id: u32, i: u8) {
        let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
        let members = if self.members(sb).is_begun() { 1 } else { self.layout.width };
        let (cookie, whose) = (Cookie::Reset(id, i), self.commands[id].cmd.whose);
        let retires = self.commands[id].cmd.op == VectorOp::Retire;
        let is_sent = (retires && self.retire_spoilt(sb, members, cookie, whose))
            || self.erase(sb, members, cookie, whose)
            || (retires && self.retire_first(sb, cookie, whose));
        if !is_sent {
            self.reset_over(id, i, sb);
        }
    }

    /// Erases those of the first `members` that are written. False where none
    /// is.
    pub(crate) fn erase(&mut self, sb: usize, members: u32, cookie: Cookie, whose: Whose) -> bool {
        self.send_erase(VectorOp::Reset, sb, members, is_written, cookie, whose)
    }

    /// Retires those of the first `members` of which a program failed. False
    /// where none did.
    pub(crate) fn retire_spoilt(
        &mut self,
        sb: usize,
        members: u32,
        cookie: Cookie,
        whose: Whose,
    ) -> bool {
        let size = self.layout.chunk_blocks_below();
        let is_spoilt = |chunk: &Chunk| is_written(chunk) && chunk.is_spoilt(size);
        self.send_erase(VectorOp::Retire, sb, members, is_spoilt, cookie, whose)
    }

    /// Retires the member with the first row. False where one is offline.
    fn retire_first(&mut self, sb: usize, cookie: Cookie, whose: Whose) -> bool {
        !self.members(sb).is_lame()
            && self.send_erase(VectorOp::Retire, sb, 1, |_| true, cookie, whose)
    }

    /// Erases or retires those of the first `members` that are `chosen`. False
    /// where none is.
    fn send_erase(
        &mut self,
        op: VectorOp,
        sb: usize,
        members: u32,
        chosen: impl Fn(&Chunk) -> bool,
        cookie: Cookie,
        whose: Whose,
    ) -> bool {
        let mut list = self.list();
        let (layout, device) = (&self.layout, &self.device);
        let chunks = layout.chunks(sb).take(members as usize);
        let chosen = chunks.filter(|&chunk| chosen(&device.chunk(chunk)));
        let count = fill(&mut list, chosen.map(|chunk| layout.at(chunk, 0)));
        if count == 0 {
            self.lists.push(list);
            return false;
        }
        let (content, list, buffer) = (Default::default(), Some(list), Buffer::empty());
        let cmd = VectorCmd { cookie: 0, op, content, whose, count, ppa: Ppa(0), list, buffer };
        self.send(cookie, cmd);
        true
    }

    pub(crate) fn reset_done(&mut self, id: u32, i: u8, mut done: VectorDone) {
        self.lists.extend(done.list.take());
        let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
        let is_begun = self.members(sb).is_begun();
        let command = &mut self.commands[id];
        if !done.status.is_ok() && !is_wanted(command.cmd.op, done.status) {
            command.status = command.status.and(done.status);
            command.failed |= block_bits(i.into(), 1);
        }
        // One at its end makes the drive refuse all; the others are erased
        // without it. Without the first they stay as they are.
        let may_go_on = matches!(done.status, Status::SUCCESS | Status::OFFLINE_CHUNK);
        if may_go_on && !is_begun && command.again > 0 {
            command.again -= 1;
            self.send_reset(id, i);
        } else {
            self.reset_over(id, i, sb);
        }
    }

    fn reset_over(&mut self, id: u32, i: u8, sb: usize) {
        let is_lame = self.members(sb).is_lame();
        let command = &mut self.commands[id];
        if is_lame && !is_wanted(command.cmd.op, Status::OFFLINE_CHUNK) {
            command.status = command.status.and(Status::OFFLINE_CHUNK);
            command.failed |= block_bits(i.into(), 1);
        }
        let has_failed = command.failed >> i & 1 == 1;
        command.left -= 1;
        let is_last = command.left == 0;
        let of = &mut self.supers[sb];
        of.inside -= 1;
        of.busy = false;
        of.erased = self.flushes;
        if has_failed && of.inside == 0 {
            self.look_again(sb);
        } else if has_failed {
            self.fail(sb);
        }
        self.stirred = true;
        if is_last {
            self.complete(id);
        }
    }

    /// A superblock is what its members are, as at a start.
    pub(crate) fn look_again(&mut self, sb: usize) {
        let Super { life, pass, erased, .. } = self.supers[sb];
        self.supers[sb] = Super { life, pass, erased, ..self.members(sb).survey() };
    }
}

/// Whether a chunk has anything to erase.
fn is_written(chunk: &Chunk) -> bool {
    matches!(chunk.state, ChunkState::Open | ChunkState::Closed)
}

/// Whether a status says what a command wants: to be offline.
fn is_wanted(op: VectorOp, status: Status) -> bool {
    op == VectorOp::Retire && status == Status::OFFLINE_CHUNK
}
