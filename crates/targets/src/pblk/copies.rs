//! Rows of survivors that are copied inside their unit.
//!
//! A row of which all is valid is gathered by itself, and where the drive copies rows
//! inside units ([`OpenChannel::copies_inside`]) it is sent as a copy: its data, which
//! collection has read and so has seen corrected, need not go back. They stay in the
//! buffer as of any row: if the copy fails they are written elsewhere.
//!
//! The drive corrects nothing on that way. So each chunk knows how often data of it were
//! copied since they were last written, and when that is as often as the drive allows,
//! they are written. Of what was there before a start that is not known, and counts as
//! too often; so does what is collected because somebody asked for it, be it the drive as
//! its error rate rises.

use device::{Addresses, Content, OpenChannel, VectorCmd, VectorOp};
use flash::{ChunkState, Ppa};
use port::{Buffer, Whose};

use super::units::PAD;
use super::{Cookie, Pblk};

/// Copies of a chunk of which they are not known.
pub(super) const UNKNOWN: u8 = u8::MAX;

/// Lists of addresses for the copies that may be under way: of each collection unit one.
/// None where rows are not copied.
#[derive(Debug, Default)]
pub(super) struct Lists(Vec<Option<Box<Addresses>>>);

impl Lists {
    /// For so many units, if the drive copies rows.
    pub fn new(units: u32, copies_inside: u32) -> Lists {
        let units = if copies_inside > 0 { units } else { 0 };
        Lists((0..units).map(|_| Some(Box::default())).collect())
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// The copies of what the chunks hold at the start are not known.
    pub(super) fn forget_copies(&mut self) {
        if self.device.copies_inside() == 0 {
            return;
        }
        for chunk in 0..self.chunks.len() {
            if self.device.chunk(chunk).state != ChunkState::Free {
                self.chunks[chunk].copies = UNKNOWN;
            }
        }
    }

    /// Whether survivors that were read are a row that is to be gathered by itself: all
    /// of one, and all valid.
    pub(super) fn is_whole_row(&self, first: Ppa, count: u32) -> bool {
        self.device.copies_inside() > 0
            && count == self.geometry.row_blocks()
            && self.geometry.in_row(first) == 0
            && (0..u64::from(count)).all(|i| self.space.is_valid(Ppa(first.0 + i)))
    }

    /// A whole row is about to be gathered: it is not to be mixed with what is gathered
    /// already, if the other unit is free.
    pub(super) fn set_row_apart(&mut self, rank: usize) {
        let c = &mut self.collectors.of[rank];
        let unit = self.units.collection(rank as u32, c.gathering);
        let (here, other) = (c.gathering as usize, c.gathering ^ 1);
        if !c.busy[here] && !c.busy[other as usize] && self.units.unit(unit).filled > 0 {
            c.gathering = other;
        }
    }

    /// Where the row of a unit of collection comes from, if it can be copied to `to`.
    pub(super) fn copied_from(&self, unit: u32, to: Ppa) -> Option<Ppa> {
        let most = self.device.copies_inside();
        if most == 0 || self.units.unit(unit).failed || self.units.unit(unit).padding > 0 {
            return None;
        }
        let slot = |i| self.units.slot(self.units.slot_number(unit, i));
        let from = slot(0).old.ppa()?;
        let row = self.geometry.row_blocks();
        let is_row = self.geometry.in_row(from) == 0
            && self.geometry.pu_index(from) == self.geometry.pu_index(to)
            && (0..row).all(|i| {
                let at = Some(Ppa(from.0 + u64::from(i)));
                slot(i).lba != PAD && slot(i).old.ppa() == at
            });
        let copies = u32::from(self.chunks[self.geometry.chunk_index(from)].copies);
        (is_row && copies < most).then_some(from)
    }

    /// Sends a row of survivors as a copy.
    pub(super) fn copy_row(&mut self, unit: u32, from: Ppa, to: Ppa, whose: Whose) {
        let copies = self.chunks[self.geometry.chunk_index(from)].copies + 1;
        let chunk = &mut self.chunks[self.geometry.chunk_index(to)];
        chunk.copies = chunk.copies.max(copies);
        let row = self.geometry.row_blocks();
        let number = (unit - self.units.of_user()) as usize;
        let mut list = self.collectors.lists.0[number].take().expect("one for each unit");
        for i in 0..row as usize {
            let at = i as u64;
            (list.from[i], list.to[i]) = (Ppa(from.0 + at), Ppa(to.0 + at));
        }
        self.send_write(|| {
            let (cookie, op) = (Cookie::Program(unit), VectorOp::Copy);
            let cmd = Self::run(cookie, op, to, row, Content::Data, Buffer::empty());
            VectorCmd { whose, list: Some(list), ..cmd }
        });
    }

    /// A copy has come back, with its list.
    pub(super) fn copy_ended(&mut self, unit: u32, list: Box<Addresses>, went_well: bool) {
        let number = (unit - self.units.of_user()) as usize;
        self.collectors.lists.0[number] = Some(list);
        self.units.unit_mut(unit).failed = !went_well;
    }
}
