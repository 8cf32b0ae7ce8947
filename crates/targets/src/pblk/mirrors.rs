//! The root on its way to its mirrors.
//!
//! Guarantees: a mirror has a root whole or goes on to its next chunk; the
//! chunk with the root before it is not erased for it. Where no mirror takes a
//! root the drive turns read-only. Roots grow old as data do: they leave a chunk
//! that the drive wants refreshed, and what is left there is erased.

use device::{Content, OpenChannel, VectorOp};
use flash::{Ppa, Tag};
use port::{BLOCK_BYTES, Buffer, Status, Time};

use super::meta::Purpose;
use super::record::{Kind, own_id};
use super::root::Root;
use super::{Cookie, Pblk};

impl<D: OpenChannel> Pblk<D> {
    /// Writes the root to its mirrors.
    pub(super) fn begin_root(&mut self, now: Time) {
        let c = &mut self.checkpoint;
        c.root.directory.clear();
        c.root.directory.extend_from_slice(&self.meta.directory);
        let rows = Root::rows(c.root.directory.len(), self.geometry.row_blocks());
        let row_bytes = self.geometry.row_blocks() as usize * BLOCK_BYTES as usize;
        c.bytes.resize(rows as usize * row_bytes, 0);
        c.root.store(&mut c.bytes);
        for mirror in 0..self.mirrors.len() {
            if self.mirrors[mirror].is_usable() {
                self.mirrors[mirror].done = 0;
                self.make_room_for_root(mirror, rows);
                self.send_root_row(mirror);
            }
        }
        if !self.mirrors.iter().any(|mirror| mirror.busy) {
            self.give_up_writing(now);
        }
    }

    /// Goes on to the mirror's next chunk where this one is full, and erases
    /// that. One of which a program has failed is retired.
    fn make_room_for_root(&mut self, mirror: usize, rows: u32) {
        let geometry = self.geometry;
        let held = &self.mirrors[mirror];
        if held.next + rows * geometry.row_blocks() <= geometry.chunk_blocks() {
            return;
        }
        let chunk = loop {
            self.mirrors[mirror].go_on();
            if !self.mirrors[mirror].is_usable() {
                return;
            }
            let chunk = self.mirrors[mirror].chunk();
            if !self.device.chunk(chunk).has_failed() {
                break chunk;
            }
            self.mirrors[mirror].drop_current();
            self.send_retire(Cookie::Anchor(mirror as u32), chunk);
        };
        if self.device.chunk(chunk).wp > 0 {
            self.erase_anchor(Cookie::Anchor(mirror as u32), chunk);
        }
    }

    /// A chunk for roots is to be written anew: the next root, soon to be, goes to
    /// another one. One with older roots only is erased, since a start looks there,
    /// too, and takes what it cannot read for a root that is lost. False where
    /// there is nothing to do, or it cannot be done now: not during a checkpoint,
    /// whose root may be written and not be durable.
    pub(super) fn refresh_anchor(&mut self, chunk: usize) -> bool {
        let number = self.rank_of_chunk(chunk);
        let (of, size) = (self.device.chunk(chunk), self.geometry.chunk_blocks());
        let Some(mirror) = self.mirrors.get_mut(number) else { return false };
        let is_current = mirror.is_usable() && mirror.chunk() == chunk;
        let has_other = mirror.chunks.len() > usize::from(is_current);
        if of.wp == 0 || !has_other || !self.checkpoint.is_idle() {
            return false;
        }
        if is_current || mirror.last == Some(chunk) {
            if is_current {
                mirror.next = size;
            }
            return self.checkpoint.ask();
        }
        let cookie = Cookie::Anchor(number as u32);
        if of.has_failed() {
            self.send_retire(cookie, chunk);
        } else {
            self.erase_anchor(cookie, chunk);
        }
        true
    }

    fn erase_anchor(&mut self, cookie: Cookie, chunk: usize) {
        let ppa = self.geometry.chunk_start(chunk);
        self.send(|| Self::run(cookie, VectorOp::Reset, ppa, 1, Content::Data, Buffer::empty()));
    }

    /// Sends the next row of the root to a mirror, if that is usable.
    fn send_root_row(&mut self, mirror: usize) {
        self.mirrors[mirror].busy = self.mirrors[mirror].is_usable();
        if !self.mirrors[mirror].busy {
            return;
        }
        let row = self.meta.take_row(Purpose::Root(mirror), 0).expect("pages are all written");
        let count = self.geometry.row_blocks();
        let held = &mut self.mirrors[mirror];
        let ppa = Ppa(self.geometry.chunk_start(held.chunk()).0 + u64::from(held.next));
        held.next += count;
        let first = held.done * count;
        for i in first..first + count {
            let tag =
                Tag { id: own_id(Kind::Root, u64::from(i)), seq: self.checkpoint.root.number };
            let start = i as usize * BLOCK_BYTES as usize;
            let bytes = &self.checkpoint.bytes[start..start + BLOCK_BYTES as usize];
            self.meta.add(row, tag, |to| to.copy_from_slice(bytes));
        }
        self.meta.rows[row as usize].ppa = ppa;
        self.write_own(row, ppa);
    }

    /// A row of a root is programmed. One that failed is begun again in the
    /// mirror's next chunk.
    pub(super) fn root_row_done(&mut self, now: Time, mirror: usize, status: Status) {
        let rows = Root::rows(self.checkpoint.root.directory.len(), self.geometry.row_blocks());
        let held = &mut self.mirrors[mirror];
        if !status.is_ok() {
            (held.done, held.next) = (0, self.geometry.chunk_blocks());
            held.drop_current();
            if held.is_usable() {
                self.make_room_for_root(mirror, rows);
            }
            self.send_root_row(mirror);
        } else if held.done + 1 < rows {
            held.done += 1;
            self.send_root_row(mirror);
        } else {
            (held.busy, held.last) = (false, Some(held.chunk()));
        }
        if !self.mirrors.iter().any(|mirror| mirror.is_usable()) {
            self.give_up_writing(now);
        }
    }
}
