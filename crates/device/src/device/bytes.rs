//! What operations do to the medium and to what is known of chunks, when they happen.
//!
//! Guarantees: an operation is entered once, when its bytes were moved. Where the medium
//! has not moved them yet nothing has changed.

use flash::{ChunkState, Medium, Moved, Ppa};
use port::Time;

use super::{Device, RETRY};
use crate::command::{Content, VectorOp};
use crate::units::{Op, OpKind};

impl<M: Medium> Device<M> {
    /// The medium has not moved the bytes yet: it is asked again. Whether time goes on
    /// meanwhile.
    #[cold]
    pub(super) fn wait_for_bytes(&mut self, now: Time, pu: u32) -> bool {
        let at = if self.on_a_clock { now + RETRY.0 } else { now };
        self.units.retry(now, at, pu);
        self.on_a_clock
    }

    /// Moves the bytes of an operation, and enters it when they were. Here are reads
    /// that give nothing; all others are out of line.
    #[inline(always)]
    pub(super) fn move_bytes(&mut self, now: Time, pu: u32, op: &Op) -> Moved {
        if op.kind != OpKind::Read || !self.gives_nothing || self.closely {
            return self.move_any_bytes(now, pu, op);
        }
        let cmd = &self.commands[op.cmd].cmd;
        if cmd.content != Content::Data || cmd.op == VectorOp::Copy {
            return self.move_any_bytes(now, pu, op);
        }
        self.counters.reads += 1;
        self.counters.blocks_read += u64::from(op.count);
        Moved::Done
    }

    /// The same of any operation.
    #[inline(never)]
    fn move_any_bytes(&mut self, now: Time, pu: u32, op: &Op) -> Moved {
        let mut moved = Moved::Failed;
        if !self.closely {
            moved = self.transfer(op, 0, op.count);
            if moved == Moved::Failed && op.kind == OpKind::Read {
                // Which of its blocks was it?
                self.look_closely();
            }
        }
        if self.closely {
            moved = self.move_closely(pu, op);
        }
        if moved != Moved::Pending {
            self.account(now, pu, op, moved);
        }
        moved
    }

    /// Moves the bytes of `count` blocks of an operation, from its `from`th on.
    #[inline(always)]
    pub(super) fn transfer(&mut self, op: &Op, from: u8, count: u8) -> Moved {
        let command = &mut self.commands[op.cmd];
        let is_copy = command.cmd.op == VectorOp::Copy;
        let content = if is_copy { Content::Tagged } else { command.cmd.content };
        // Bytes of a block, and of its tag.
        let (kept, tag) = content.each(self.kept);
        let (first, blocks) = ((op.first + from) as usize, count as usize);
        let total = command.cmd.count as usize;
        if blocks == total && op.kind == OpKind::Read {
            // All that the command reads: mostly so.
            let (data, tags) = command.cmd.buffer.bytes_mut().split_at_mut(blocks * kept);
            return self.medium.read(op.ppa, count.into(), data, &mut tags[..blocks * tag]);
        }
        let data = first * kept..(first + blocks) * kept;
        // Relative to the start of the data; the end of it without tags.
        let (tag_first, tag_bytes) = (first * tag, blocks * tag);
        let tag_start = (total - first) * kept + tag_first;
        let ppa = Ppa(op.ppa.0 + u64::from(from));
        let chunk = self.geometry.chunk_index(ppa);
        match op.kind {
            OpKind::Read => {
                let (front, rest) = command.cmd.buffer.bytes_mut().split_at_mut(data.end);
                let tags = &mut rest[tag_start - blocks * kept..][..tag_bytes];
                self.medium.read(ppa, count.into(), &mut front[data.start..], tags)
            }
            // The erase before it failed.
            OpKind::Program if self.chunks[chunk].state == ChunkState::Offline => Moved::Failed,
            OpKind::Program if op.inside => self.move_inside(op),
            OpKind::Program => {
                let bytes = command.cmd.buffer.bytes();
                let tags = &bytes[data.start + tag_start..][..tag_bytes];
                self.medium.program(ppa, count.into(), &bytes[data], tags)
            }
            OpKind::Erase => self.medium.reset(ppa),
        }
    }

    /// Tells the medium what is known of a chunk.
    #[inline]
    pub(super) fn describe(&mut self, index: usize) {
        self.medium.describe(index, &self.chunks[index]);
    }

    /// Enters an operation that has happened.
    #[inline(always)]
    fn account(&mut self, now: Time, pu: u32, op: &Op, moved: Moved) {
        if self.closely {
            self.account_closely(now, pu, op);
        }
        let blocks = op.count as u32;
        match op.kind {
            OpKind::Read => {
                self.counters.reads += 1;
                self.counters.blocks_read += u64::from(blocks);
            }
            OpKind::Program => {
                self.counters.programs += 1;
                self.counters.blocks_programmed += u64::from(blocks);
                if op.inside {
                    self.account_inside(op);
                }
                if moved == Moved::Failed {
                    self.program_failed(op.ppa, blocks);
                } else {
                    self.programmed(self.geometry.chunk_index(op.ppa), blocks);
                }
            }
            OpKind::Erase => {
                let index = self.geometry.chunk_index(op.ppa);
                self.counters.erases += 1;
                self.erasing[index / 64] &= !(1 << (index % 64));
                if moved == Moved::Done {
                    self.chunks[index].erased();
                }
                self.note_free(index);
                self.describe(index);
            }
        }
    }

    /// Blocks of a chunk are programmed.
    #[inline]
    pub(super) fn programmed(&mut self, index: usize, blocks: u32) {
        self.chunks[index].program(blocks);
        if self.chunks[index].programmed == self.geometry.chunk_blocks() {
            self.note_whole(index);
        }
        self.describe(index);
    }

    #[inline(always)]
    pub(super) fn op_done(&mut self, now: Time, pu: u32, op: &Op, moved: Moved) {
        if moved == Moved::Failed || self.closely {
            self.judge(pu, op, moved);
        }
        let command = &mut self.commands[op.cmd];
        command.left -= 1;
        if command.left == 0 {
            self.command_done(now, op.cmd);
        }
    }

    /// Enters in its command how an operation that is looked at closely went.
    #[inline(never)]
    fn judge(&mut self, pu: u32, op: &Op, moved: Moved) {
        if moved != Moved::Failed {
            self.op_went_well(pu);
            return;
        }
        let (status, failed) = self.op_failed(pu, op);
        let command = &mut self.commands[op.cmd];
        command.status = command.status.and(status);
        command.failed |= failed;
    }
}
