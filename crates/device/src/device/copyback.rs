//! Copies of rows inside their units, without the channel.
//!
//! After the copyback of ONFI ("Copyback Read" and "Copyback Program"): a page goes from
//! the array to its plane's register, and from there to another block of the plane. So a
//! copy of one whole row to one whole row of the same unit is one operation of that: two
//! commands, a tR for each page and a tPROG. It is taken like a write, so that the write
//! pointer moves when the command comes. Any other copy is a read and a write.
//!
//! Nothing is corrected on the way: with errors modelled, the chunk that the row goes to
//! is as old from then on as the one that it comes from, since what its data have
//! gathered with age goes with them. How many copies may follow each other is the
//! target's to keep to ([`flash::Timing::copyback`]).
//!
//! Where the medium cannot read the row, the program fails.

use flash::{Medium, Moved, TAG_BYTES};
use port::{Buffer, OutOfMemory};

use super::{Device, MAX_DEPTH};
use crate::command::{VectorCmd, VectorOp};
use crate::units::Op;

impl<M: Medium> Device<M> {
    /// Takes the memory that copies inside units need, if there are any.
    pub(super) fn prepare_copies(&mut self) -> Result<(), OutOfMemory> {
        if self.units.timing().copyback > 0 {
            let row = self.geometry.row_blocks() as usize * (self.kept as usize + TAG_BYTES);
            self.copied_row = Buffer::carve(1, row)?.remove(0);
            self.units.set_copies(MAX_DEPTH);
        }
        Ok(())
    }

    /// Whether a command is a copy of a row inside its unit.
    pub(super) fn is_inside(&self, cmd: &VectorCmd) -> bool {
        let (geometry, row) = (&self.geometry, u64::from(self.geometry.row_blocks()));
        if cmd.op != VectorOp::Copy || self.units.timing().copyback == 0 {
            return false;
        }
        let Some(list) = cmd.list.as_ref().filter(|_| u64::from(cmd.count) == row) else {
            return false;
        };
        let (from, to) = (list.from[0], list.to[0]);
        geometry.pu_index(from) == geometry.pu_index(to)
            && [(from, &list.from), (to, &list.to)].iter().all(|(first, all)| {
                let mut numbers = all[..row as usize].iter().zip(0..);
                geometry.in_row(*first) == 0 && numbers.all(|(at, i)| at.0 == first.0 + i)
            })
    }

    /// A copy inside its unit begins: it is a write from here on.
    pub(super) fn begin_inside(&mut self, id: u32) {
        let command = &mut self.commands[id];
        (command.inside, command.writing) = (true, true);
        let list = command.cmd.list.as_ref().expect("a copy has addresses");
        self.units.note_source(id, list.from[0]);
    }

    /// Moves the bytes of a copy. Asked again, it begins again: nothing has happened
    /// until the row is programmed.
    pub(super) fn move_inside(&mut self, op: &Op) -> Moved {
        let list = self.commands[op.cmd].cmd.list.as_ref().expect("a copy has addresses");
        let (from, row) = (list.from[op.first as usize], u32::from(op.count));
        let data = row as usize * self.kept as usize;
        let (data, tags) = self.copied_row.bytes_mut().split_at_mut(data);
        match self.medium.read(from, row, data, tags) {
            Moved::Done => self.medium.program(op.ppa, row, data, tags),
            other => other,
        }
    }

    /// Enters a copy. Comes before its chunk is changed.
    pub(super) fn account_inside(&mut self, op: &Op) {
        let list = self.commands[op.cmd].cmd.list.as_ref().expect("a copy has addresses");
        let from = self.geometry.chunk_index(list.from[op.first as usize]);
        let to = self.geometry.chunk_index(op.ppa);
        let pages = u32::from(op.count) / self.geometry.wide_page_blocks();
        self.counters.copybacks += 1;
        self.counters.reads += u64::from(pages);
        self.counters.blocks_read += u64::from(op.count);
        self.inherit_age(from, to, pages);
    }
}
