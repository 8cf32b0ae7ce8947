//! Which commands are let in: each is checked against the geometry and the
//! rules of chunks before anything happens; one that is taken is entered into
//! the chunks, and one that is refused changes nothing.

use flash::{BlockBits, Chunk, ChunkState, Medium, Ppa, block_bits};
use port::Status;

use super::Device;
use crate::command::{Content, MAX_ADDRESSES, VectorCmd, VectorOp};

impl<M: Medium> Device<M> {
    /// Whether a command can be done; a write or reset is then entered into
    /// the chunks. What the chunk lets be read of one run, which is the usual
    /// case, is on the drive.
    #[inline(always)]
    pub(super) fn check(&mut self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        if self.may_read(cmd) { Ok(()) } else { self.check_any(cmd) }
    }

    /// Whether a command is a read of one run which can be done.
    #[inline(always)]
    pub(super) fn may_read(&self, cmd: &VectorCmd) -> bool {
        let n = cmd.count as usize;
        let is_run = cmd.list.is_none() && (1..=MAX_ADDRESSES).contains(&n);
        let (data, tag) = cmd.content.each(self.kept);
        cmd.op == VectorOp::Read
            && is_run
            && cmd.buffer.len() == n * (data + tag)
            && self.can_read(cmd.ppa, u32::from(cmd.count))
    }

    /// The same of any command, and what is wrong with one.
    #[inline(never)]
    fn check_any(&mut self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let n = cmd.count as usize;
        let length_ok = cmd.buffer.len() == cmd.buffer_bytes(self.kept);
        if cmd.op == VectorOp::Flush && length_ok {
            return Ok(());
        }
        let tags_written = cmd.op == VectorOp::Write && cmd.content == Content::Tags;
        if n == 0 || n > MAX_ADDRESSES || !length_ok || tags_written {
            return Err((Status::INVALID_FIELD, 0));
        }
        if cmd.list.is_some() {
            self.check_list(cmd)?;
        } else {
            self.check_run_address(cmd)?;
        }
        match cmd.op {
            VectorOp::Copy if self.is_inside(cmd) => {
                self.check_reads(cmd)?;
                self.enter_writes(cmd, true)
            }
            VectorOp::Read | VectorOp::Copy => self.check_reads(cmd),
            VectorOp::Write if cmd.list.is_none() => self.enter_run(cmd),
            VectorOp::Write => self.enter_writes(cmd, false),
            VectorOp::Reset | VectorOp::Retire => self.enter_resets(cmd),
            VectorOp::Flush => Ok(()),
        }
    }

    /// Whether `count` blocks can be read.
    #[inline]
    pub(super) fn can_read(&self, ppa: Ppa, count: u32) -> bool {
        let (index, block) = (self.geometry.chunk_index(ppa), self.geometry.block(ppa));
        if self.is_whole(index) {
            return block + count <= self.geometry.chunk_blocks();
        }
        let window = self.units.timing().unreadable;
        self.chunks.get(index).is_some_and(|chunk| chunk.read(block, count, window).is_ok())
    }

    /// Whether a run lies in one chunk of the drive.
    fn check_run_address(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let n = cmd.count as usize;
        if cmd.op == VectorOp::Copy || (cmd.op.erases() && n != 1) {
            return Err((Status::INVALID_FIELD, 0));
        }
        let end = self.geometry.block(cmd.ppa) + u32::from(cmd.count);
        if !self.geometry.contains(cmd.ppa) || end > self.geometry.chunk_blocks() {
            return Err((Status::LBA_OUT_OF_RANGE, block_bits(0, n)));
        }
        Ok(())
    }

    #[inline(never)]
    fn check_list(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let list = cmd.list.as_ref().expect("the caller saw a list");
        let mut failed = 0;
        for i in 0..cmd.count as usize {
            let to_ok = cmd.op != VectorOp::Copy || self.geometry.contains(list.to[i]);
            if !self.geometry.contains(list.from[i]) || !to_ok {
                failed |= block_bits(i, 1);
            }
        }
        if failed == 0 { Ok(()) } else { Err((Status::LBA_OUT_OF_RANGE, failed)) }
    }

    #[inline]
    fn check_read(&self, ppa: Ppa, count: u8) -> Result<(), Status> {
        let chunk = &self.chunks[self.geometry.chunk_index(ppa)];
        chunk.read(self.geometry.block(ppa), u32::from(count), self.units.timing().unreadable)
    }

    #[inline(never)]
    fn check_reads(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        Self::for_each_run(&self.geometry, cmd, false, |ppa, first, count| {
            for i in 0..count {
                if let Err(e) = self.check_read(Ppa(ppa.0 + u64::from(i)), 1) {
                    status = status.and(e);
                    failed |= block_bits(usize::from(first + i), 1);
                }
            }
        });
        if failed == 0 { Ok(()) } else { Err((status, failed)) }
    }

    /// Moves the write pointer of the chunk of one run. What is wrong with a
    /// bad one is found row by row.
    #[inline]
    fn enter_run(&mut self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        if self.opened.is_some() {
            return self.enter_writes(cmd, false);
        }
        let (unit, size) = (self.geometry.write_blocks(), self.geometry.chunk_blocks());
        let chunk = &mut self.chunks[self.geometry.chunk_index(cmd.ppa)];
        let block = self.geometry.block(cmd.ppa);
        match chunk.write(block, u32::from(cmd.count), unit, size) {
            Ok(()) => Ok(()),
            Err(_) => self.enter_writes(cmd, false),
        }
    }

    /// Moves the write pointers of all that is written, run by run, or of nothing:
    /// what an earlier run closes leaves room for what a later one opens. Apart, as
    /// what it saves needs much of the stack.
    #[inline(never)]
    pub(super) fn enter_writes(
        &mut self,
        cmd: &VectorCmd,
        to: bool,
    ) -> Result<(), (Status, BlockBits)> {
        let (unit, size) = (self.geometry.write_blocks(), self.geometry.chunk_blocks());
        let mut saved = [(0usize, Chunk::default()); MAX_ADDRESSES];
        let (mut entered, mut wrong) = (0, None);
        let (geometry, chunks) = (&self.geometry, &mut self.chunks);
        let mut opened = self.opened.as_deref_mut();
        Self::for_each_run(geometry, cmd, to, |ppa, first, count| {
            if wrong.is_some() {
                return;
            }
            let index = geometry.chunk_index(ppa);
            saved[entered] = (index, chunks[index]);
            entered += 1;
            let mut written =
                chunks[index].write(geometry.block(ppa), u32::from(count), unit, size);
            if let Some(opened) = &mut opened
                && written.is_ok()
            {
                let (is_open, pu) =
                    (chunks[index].state == ChunkState::Open, geometry.pu_index(ppa));
                if is_open && saved[entered - 1].1.state == ChunkState::Free && !opened.has_room(pu)
                {
                    written = Err(Status::TOO_MANY_OPEN_CHUNKS);
                } else {
                    opened.note(index, pu, is_open);
                }
            }
            if let Err(status) = written {
                wrong = Some((status, block_bits(first as usize, count as usize)));
            }
        });
        let Some(wrong) = wrong else { return Ok(()) };
        for &(index, chunk) in saved[..entered].iter().rev() {
            self.chunks[index] = chunk;
            if self.opened.is_some() {
                self.note_whole(index);
            }
        }
        Err(wrong)
    }

    /// Resets or retires all chunks named, or none. A chunk of which a reset is
    /// on its way is refused. One at the end of its endurance goes offline and
    /// is reported; the others stay as they were.
    #[inline(never)]
    fn enter_resets(&mut self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let address = |i: usize| cmd.list.as_ref().map_or(cmd.ppa, |list| list.from[i]);
        let (retires, cliff) = (cmd.op == VectorOp::Retire, self.cliff);
        let enter = |chunk: &mut Chunk| if retires { chunk.retire() } else { chunk.reset(cliff) };
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        for i in 0..cmd.count as usize {
            let index = self.geometry.chunk_index(address(i));
            let twice = (0..i).any(|j| self.geometry.chunk_index(address(j)) == index);
            let mut trial = self.chunks[index];
            // Free, but its reset is on its way: it is not erased once more.
            let is_erasing = trial.state == ChunkState::Free
                && self.erasing[index / 64] >> (index % 64) & 1 == 1;
            let result = if twice || is_erasing || self.geometry.block(address(i)) != 0 {
                Err(Status::INVALID_RESET)
            } else {
                enter(&mut trial)
            };
            if let Err(e) = result {
                if trial.state == ChunkState::Offline {
                    self.chunks[index] = trial;
                    self.note_whole(index);
                    self.note_free(index);
                    self.describe(index);
                }
                status = status.and(e);
                failed |= block_bits(i, 1);
            }
        }
        if failed != 0 {
            return Err((status, failed));
        }
        for i in 0..cmd.count as usize {
            let index = self.geometry.chunk_index(address(i));
            let entered = enter(&mut self.chunks[index]);
            entered.expect("the trial went well");
            self.erasing[index / 64] |= 1 << (index % 64);
            self.units.forget(index);
            self.note_whole(index);
        }
        Ok(())
    }
}
