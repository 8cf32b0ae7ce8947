//! Resets: all members that hold anything are erased.
//!
//! The erase count of a superblock is that of the member with its first row.
//! That one is erased each time, so no other is erased more often: where the
//! power went before its first row was programmed, and others have something,
//! its first page is programmed before. So a superblock is never taken for
//! what it was before its erase.
//!
//! A superblock of which a member is lost is offline once the others are
//! erased.

use device::{OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{ChunkState, Ppa};
use port::Status;

use crate::commands::{Command, Cookie, address, bits, fill};
use crate::parity::Parity;
use crate::superblock::Stored;

impl<D: OpenChannel> Parity<D> {
    pub(crate) fn start_reset(&mut self, cmd: VectorCmd) {
        if let Err((status, failed)) = self.check_resets(&cmd) {
            self.refuse(cmd, status, failed);
            return;
        }
        let count = cmd.count;
        let id = self.commands.take(Command::new(cmd));
        self.commands[id].left = u32::from(count);
        self.commands[id].again = self.layout.width * u32::from(count);
        for i in 0..count {
            let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
            self.close(sb);
            let wear = self.members(sb).chunk(0).wear;
            let of = &mut self.supers[sb];
            of.life = of.life.max(wear) + 1;
            (of.wp, of.base, of.closed, of.told) = (0, 0, false, false);
            of.stored = Stored::Unknown;
            of.inside += 1;
            if self.members(sb).chunk(0).state == ChunkState::Free && !self.is_bare(sb) {
                self.supers[sb].busy = true;
                self.touches.push_back((id, i));
            } else {
                self.send_reset(id, i);
            }
        }
        self.pump_touches();
    }

    /// Whether all superblocks named can be erased.
    fn check_resets(&self, cmd: &VectorCmd) -> Result<(), (Status, u64)> {
        let upper = &self.layout.upper;
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        for i in 0..usize::from(cmd.count) {
            let ppa = address(cmd, i);
            let sb = upper.chunk_index(ppa);
            let twice = (0..i).any(|j| upper.chunk_index(address(cmd, j)) == sb);
            let of = &self.supers[sb];
            let wrong = if of.wp == 0 && self.members(sb).is_lame() {
                Status::OFFLINE_CHUNK
            } else if of.wp == 0 || of.inside > 0 || twice || upper.block(ppa) != 0 {
                Status::INVALID_RESET
            } else {
                continue;
            };
            status = status.and(wrong);
            failed |= bits(i, 1);
        }
        if failed == 0 { Ok(()) } else { Err((status, failed)) }
    }

    /// Programs first pages, as long as there are lanes.
    pub(crate) fn pump_touches(&mut self) {
        while self.lanes.room() > 0
            && let Some((id, i)) = self.touches.pop_front()
        {
            let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
            self.touch(sb, id, i);
        }
    }

    /// The first page of a superblock is programmed.
    pub(crate) fn touched(&mut self, id: u32, i: u8) {
        let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
        self.supers[sb].busy = false;
        self.send_reset(id, i);
    }

    /// Erases the members of a superblock that are written.
    fn send_reset(&mut self, id: u32, i: u8) {
        let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
        let mut list = self.list();
        let (layout, device) = (&self.layout, &self.device);
        let is_written = |chunk: &usize| {
            matches!(device.chunk(*chunk).state, ChunkState::Open | ChunkState::Closed)
        };
        let written = layout.chunks(sb).filter(is_written).map(|chunk| layout.at(chunk, 0));
        let count = fill(&mut list, written);
        if count == 0 {
            self.lists.push(list);
            self.reset_over(id, i, sb);
            return;
        }
        let buffer = port::Buffer::empty();
        let (op, content, list) = (VectorOp::Reset, Default::default(), Some(list));
        let cmd = VectorCmd { cookie: 0, op, content, count, ppa: Ppa(0), list, buffer };
        self.send(Cookie::Reset(id, i), cmd);
    }

    pub(crate) fn reset_done(&mut self, id: u32, i: u8, mut done: VectorDone) {
        self.lists.extend(done.list.take());
        let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i.into()));
        let command = &mut self.commands[id];
        if !done.status.is_ok() {
            command.status = command.status.and(done.status);
            command.failed |= bits(i.into(), 1);
            // One at its end makes the drive refuse all; the others are erased
            // without it.
            if done.status == Status::OFFLINE_CHUNK && command.again > 0 {
                command.again -= 1;
                if !self.is_bare(sb) && self.supers[sb].wp == 0 {
                    self.send_reset(id, i);
                    return;
                }
            }
        }
        self.reset_over(id, i, sb);
    }

    fn reset_over(&mut self, id: u32, i: u8, sb: usize) {
        let is_lame = self.members(sb).is_lame();
        let command = &mut self.commands[id];
        if is_lame {
            command.status = command.status.and(Status::OFFLINE_CHUNK);
            command.failed |= bits(i.into(), 1);
        }
        let has_failed = command.failed >> i & 1 == 1;
        command.left -= 1;
        let is_last = command.left == 0;
        let of = &mut self.supers[sb];
        of.inside -= 1;
        if has_failed && of.inside == 0 {
            let (life, pass) = (of.life, of.pass);
            self.supers[sb] = self.members(sb).survey();
            (self.supers[sb].life, self.supers[sb].pass) = (life, pass);
        } else if has_failed {
            self.fail(sb);
        }
        self.stirred = true;
        if is_last {
            self.complete(id);
        }
    }
}
