//! How commands come in: what is answered or done at once, and what becomes operations
//! of parallel units.
//!
//! Guarantees: a command that is refused changes nothing.

use flash::{BlockBits, Geometry, Medium, Moved, Ppa, block_bits};
use port::{Ring, Status, Time};

use super::{Device, Flush, RETRY};
use crate::command::{Content, MAX_ADDRESSES, VectorCmd, VectorDone, VectorOp};
use crate::units::{Op, OpKind};

impl<M: Medium> Device<M> {
    /// The command's runs, with the number of the first address: neighbours in one
    /// row of what is programmed, `to` there or by a write, else in one wide page.
    pub(super) fn for_each_run(
        geometry: &Geometry,
        cmd: &VectorCmd,
        to: bool,
        mut f: impl FnMut(Ppa, u8, u8),
    ) {
        let count = u64::from(cmd.count);
        let address = |i: u64| match &cmd.list {
            Some(list) if to => list.to[i as usize],
            Some(list) => list.from[i as usize],
            None => Ppa(cmd.ppa.0 + i),
        };
        let mut i = 0;
        while i < count {
            let start = address(i);
            let left = match to || cmd.op == VectorOp::Write {
                true => geometry.row_blocks() - geometry.in_row(start),
                false => geometry.wide_page_blocks() - geometry.in_wide_page(start),
            };
            let mut n = 1;
            while i + n < count && n < u64::from(left) && address(i + n).0 == start.0 + n {
                n += 1;
            }
            f(start, i as u8, n as u8);
            i += n;
        }
    }

    /// Takes the command at the front, which was let in.
    #[inline(always)]
    pub(super) fn start(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let cmd = cmds.front().expect("it was looked at");
        if self.may_read(cmd) && cmd.is_one_access(&self.geometry) {
            let id = self.enter(cmds);
            self.launch_one(now, id, OpKind::Read);
        } else {
            self.start_any(now, cmds);
        }
    }

    /// The same of any command.
    #[inline(never)]
    fn start_any(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let cmd = cmds.front().expect("it was looked at");
        let (op, checked) = (cmd.op, self.check(cmd));
        let answer = match checked {
            Ok(()) => self.instant.then(|| self.pass_write(cmd)).flatten(),
            Err(why) => Some(why),
        };
        if let Some((status, failed)) = answer {
            let VectorCmd { cookie, list, buffer, .. } = cmds.pop().expect("it was looked at");
            if self.units.tales.is_some() {
                self.tell_at_once(now);
            }
            self.ready.put(|| VectorDone { cookie, status, failed, at: now, list, buffer });
            return;
        }
        let id = self.enter(cmds);
        if op == VectorOp::Copy && self.is_inside(&self.commands[id].cmd) {
            self.begin_inside(id);
        } else if op == VectorOp::Copy {
            let scratch = self.copy_buffers.pop().expect("submit saw a copy buffer");
            self.commands[id].cmd.buffer = scratch;
        } else if op == VectorOp::Flush {
            self.flushes.push_back(Flush { came: now, ask: now, command: id });
            self.ask_barrier(now);
            return;
        }
        self.launch(now, id);
    }

    /// Puts the command at the front, which was checked, among those at work.
    #[inline(always)]
    pub(super) fn enter(&mut self, cmds: &mut Ring<VectorCmd>) -> u32 {
        let id = self.commands.take_as_is();
        let command = &mut self.commands[id];
        // Whoever had this place before left nothing in it that is to be dropped.
        debug_assert!(command.cmd.list.is_none() && command.cmd.buffer.is_empty());
        let cmd = cmds.pop().expect("it was looked at");
        std::mem::forget(std::mem::replace(&mut command.cmd, cmd));
        (command.failed, command.status, command.writing) = (0, Status::SUCCESS, false);
        command.inside = false;
        id
    }

    /// Asks the medium for the barrier of the oldest flush, and once more for
    /// the next: a barrier covers only what was done before it.
    #[inline(never)]
    pub(super) fn ask_barrier(&mut self, to: Time) {
        let time = self.drive_time(to);
        while let Some(flush) = self.flushes.front_mut() {
            if flush.ask > to && self.medium.has_news() != Some(true) {
                return;
            }
            // Off the clock time has stood still since it came.
            let (at, id) = (if self.on_a_clock { to } else { flush.ask }, flush.command);
            self.medium.note_time(time);
            match self.medium.barrier() {
                Moved::Pending => {
                    if self.on_a_clock {
                        let least =
                            if self.medium.has_news().is_some() { RETRY.1 } else { RETRY.0 };
                        flush.ask = to + (to.since(flush.came) / 4).clamp(least, RETRY.1);
                    }
                    return;
                }
                Moved::Done => {}
                Moved::Failed => self.commands[id].status = Status::WRITE_FAULT,
            }
            if let Some(tales) = &mut self.units.tales {
                tales.ends_apart(at, Some(flush.came), self.ready.is_empty());
            }
            self.flushes.pop_front();
            self.command_done(at, id);
        }
    }

    /// Tells of a command that is done when it comes.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_at_once(&mut self, now: Time) {
        if let Some(tales) = &mut self.units.tales {
            tales.ends_apart(now, None, self.ready.is_empty());
        }
    }

    /// Tells of a command, if it ends with what this parallel unit has done. A copy is two
    /// operations and more, of which nothing is told.
    #[inline]
    pub(super) fn tell(&mut self, now: Time, pu: u32, op: &Op) {
        let command = &self.commands[op.cmd];
        if command.left == 1 && command.cmd.op != VectorOp::Copy {
            self.units.tell(now, pu, op, self.ready.is_empty());
        }
    }

    /// Whether a command is one access, and none is under way: where no
    /// operation takes time it is then done when it comes.
    #[inline]
    fn passes(&self, cmd: &VectorCmd) -> bool {
        let is_quiet = self.instant && self.commands.live() == 0;
        is_quiet && cmd.is_one_access(&self.geometry)
    }

    /// Does a read when it comes. False, and nothing has happened, where it goes
    /// the way of all others.
    #[inline]
    pub(super) fn pass_read(&mut self, cmd: &mut VectorCmd) -> bool {
        let (kept, count) = (self.medium.kept(), u32::from(cmd.count));
        let is_read = cmd.op == VectorOp::Read && count > 0 && self.passes(cmd);
        if !is_read || cmd.buffer.len() != cmd.buffer_bytes(kept) || !self.can_read(cmd.ppa, count)
        {
            return false;
        }
        let data = count as usize * cmd.content.each(kept).0;
        let (data, tags) = cmd.buffer.bytes_mut().split_at_mut(data);
        // Which blocks it is that fail is found out by an operation.
        if self.medium.read(cmd.ppa, count, data, tags) != Moved::Done {
            return false;
        }
        self.counters.reads += 1;
        self.counters.blocks_read += u64::from(count);
        true
    }

    /// Does a write that was let in when it comes. `None` where it goes the way of
    /// all others.
    #[inline]
    fn pass_write(&mut self, cmd: &VectorCmd) -> Option<(Status, BlockBits)> {
        if cmd.op != VectorOp::Write || !self.passes(cmd) {
            return None;
        }
        let count = u32::from(cmd.count);
        let data = count as usize * cmd.content.each(self.medium.kept()).0;
        let (data, tags) = cmd.buffer.bytes().split_at(data);
        let moved = self.medium.program(cmd.ppa, count, data, tags);
        if moved == Moved::Pending {
            return None;
        }
        self.counters.programs += 1;
        self.counters.blocks_programmed += u64::from(count);
        if moved == Moved::Failed {
            self.program_failed(cmd.ppa, count);
            return Some((self.program_status(cmd.ppa), block_bits(0, count as usize)));
        }
        self.programmed(self.geometry.chunk_index(cmd.ppa), count);
        Some((Status::SUCCESS, 0))
    }

    /// Gives the command's operations to the parallel units.
    #[inline(always)]
    pub(super) fn launch(&mut self, now: Time, id: u32) {
        let command = &self.commands[id];
        let kind = match command.cmd.op {
            VectorOp::Write => OpKind::Program,
            VectorOp::Reset | VectorOp::Retire => OpKind::Erase,
            VectorOp::Copy if command.writing => OpKind::Program,
            VectorOp::Read | VectorOp::Copy => OpKind::Read,
            VectorOp::Flush => unreachable!("a flush is no operation of a unit"),
        };
        if command.cmd.is_one_access(&self.geometry) {
            self.launch_one(now, id, kind);
        } else {
            self.launch_many(now, id, kind);
        }
    }

    /// Gives the one operation of a command to its parallel unit.
    #[inline(always)]
    fn launch_one(&mut self, now: Time, id: u32, kind: OpKind) {
        let command = &mut self.commands[id];
        command.left = 1;
        let cmd = &command.cmd;
        if kind == OpKind::Read && cmd.content != Content::Data {
            self.medium.hint_tag(cmd.ppa);
        }
        let op = Op::new(id, kind, cmd.ppa, 0, cmd.count).of_tags(cmd.content == Content::Tags);
        let finished = self.units.enqueue(now, op, cmd.whose);
        if finished.is_some() {
            self.finish_at_once(now, finished);
        }
    }

    /// Gives the operations of a command of several runs to the parallel units.
    #[inline(never)]
    fn launch_many(&mut self, now: Time, id: u32, kind: OpKind) {
        let command = &mut self.commands[id];
        let cmd = &command.cmd;
        let (tags, whose) = (cmd.content == Content::Tags, cmd.whose);
        let inside = command.inside;
        let mut ops = [(Ppa(0), 0u8, 0u8); MAX_ADDRESSES];
        let mut n = 0;
        if kind == OpKind::Erase {
            let list = cmd.list.as_ref().expect("one reset was handled above");
            for (i, &ppa) in list.from[..cmd.count as usize].iter().enumerate() {
                ops[i] = (ppa, i as u8, 1);
            }
            n = cmd.count as usize;
        } else {
            Self::for_each_run(&self.geometry, cmd, command.writing, |ppa, first, count| {
                ops[n] = (ppa, first, count);
                n += 1;
            });
        }
        command.left = n as u32;
        for &(ppa, first, count) in &ops[..n] {
            let op = Op::new(id, kind, ppa, first, count).of_tags(tags).inside(inside);
            let finished = self.units.enqueue(now, op, whose);
            self.finish_at_once(now, finished);
        }
    }
}
