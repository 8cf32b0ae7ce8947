//! The root on its way to its mirrors.
//!
//! Guarantees: a mirror has a root whole or goes on to its next chunk. The chunk
//! with its root before that is not erased for it, unless it is the mirror's only
//! one and the other mirror keeps a root as new. A checkpoint ends when every
//! mirror has its root that has a chunk for roots: one that stayed behind would
//! show to a start that nothing newer was finished. Where no mirror takes a root
//! the drive turns read-only. Roots grow old as data do: they leave a chunk that
//! the drive wants refreshed, and what is left there is erased.

use device::{Content, OpenChannel, VectorOp};
use flash::{Ppa, Tag};
use port::{BLOCK_BYTES, Buffer, Status};

use super::ends::{END, end_behind};
use super::meta::Purpose;
use super::record::{Kind, own_id};
use super::root::{Mirror, Root};
use super::{Cookie, Pblk};

impl<D: OpenChannel> Pblk<D> {
    /// Writes the root to its mirrors. Where none takes it nothing more is written.
    pub(super) fn begin_root(&mut self) {
        let c = &mut self.saved.checkpoint;
        c.root.directory.clear();
        c.root.directory.extend_from_slice(&self.saved.meta.directory);
        let rows = Root::rows(c.root.directory.len(), self.geometry.row_blocks());
        let row_bytes = self.geometry.row_blocks() as usize * BLOCK_BYTES as usize;
        c.bytes.resize(rows as usize * row_bytes, 0);
        c.root.store(&mut c.bytes);
        if !self.send_root() {
            self.give_up_writing();
        }
    }

    /// Whether every mirror has the root that has a chunk for it.
    pub(super) fn is_everywhere(&self) -> bool {
        let number = self.saved.checkpoint.root.number;
        self.saved
            .mirrors
            .iter()
            .all(|mirror| !mirror.is_usable() || mirror.last_number() == number)
    }

    /// Sends the root to the mirrors that do not have it. False where there is
    /// none that can take it. What they have must be durable.
    pub(super) fn send_root(&mut self) -> bool {
        let has = self.saved.mirrors.each_ref().map(Mirror::last_number);
        for (held, others) in self.saved.mirrors.iter_mut().zip([has[1], has[0]]) {
            held.may_lose_last = others >= held.last_number();
        }
        for (mirror, number) in has.into_iter().enumerate() {
            if number != self.saved.checkpoint.root.number {
                self.begin_mirror(mirror);
            }
        }
        self.saved.mirrors.iter().any(|mirror| mirror.busy)
    }

    /// Sends the root's first row to a mirror, if that has room for a root.
    fn begin_mirror(&mut self, mirror: usize) {
        let has_room = self.make_room_for_root(mirror);
        let pads = if has_room { self.rows_of_end(mirror) } else { 0 };
        let held = &mut self.saved.mirrors[mirror];
        (held.done, held.pads, held.busy) = (0, pads, has_room);
        if has_room {
            self.send_root_row(mirror);
        }
    }

    /// Rows of padding behind a root that is the last one of a clean end: so that it can
    /// be read by who must not write.
    fn rows_of_end(&self, mirror: usize) -> u32 {
        if !self.window.is_on() || !self.saved.checkpoint.root.clean {
            return 0;
        }
        let (row, size) = (self.geometry.row_blocks(), self.geometry.chunk_blocks());
        let rows = Root::rows(self.saved.checkpoint.root.directory.len(), row);
        let end = self.saved.mirrors[mirror].next + rows * row;
        (end_behind(end, self.window.unreadable, row, size) - end) / row
    }

    /// Goes on to the mirror's next chunk where this one is full, and erases
    /// that. One of which a program has failed is retired. False where there is
    /// none.
    fn make_room_for_root(&mut self, mirror: usize) -> bool {
        let geometry = self.geometry;
        let rows = Root::rows(self.saved.checkpoint.root.directory.len(), geometry.row_blocks());
        let held = &self.saved.mirrors[mirror];
        if held.is_usable() && held.next + rows * geometry.row_blocks() <= geometry.chunk_blocks() {
            return true;
        }
        while self.next_anchor(mirror) {
            let chunk = self.saved.mirrors[mirror].chunk();
            let of = self.device.chunk(chunk);
            if of.is_spoilt(geometry.chunk_blocks()) {
                self.saved.mirrors[mirror].drop_current(geometry.chunk_blocks());
                self.send_retire(Cookie::Anchor(chunk as u32), chunk);
                continue;
            }
            if of.wp > 0 {
                self.erase_anchor(Cookie::Anchor(chunk as u32), chunk);
            }
            return true;
        }
        false
    }

    /// Goes on to the mirror's next chunk, be it that with its last root where this
    /// is its only one and may go. False where there is none.
    fn next_anchor(&mut self, mirror: usize) -> bool {
        let [first, second] = &mut self.saved.mirrors;
        let (held, other) = if mirror == 0 { (first, second) } else { (second, first) };
        if held.leave_chunk() {
            return true;
        }
        if !held.may_lose_last {
            return false;
        }
        // Now the other has the only one.
        (held.last, other.may_lose_last) = (None, false);
        held.leave_chunk()
    }

    /// A chunk for roots is to be written anew: the next root, soon to be, goes to
    /// another one, or there again where it is its mirror's only one and the other
    /// mirror keeps a root as new meanwhile. One with older roots only is erased, since a start looks there,
    /// too, and takes what it cannot read for a root that is lost. False where
    /// there is nothing to do, or it cannot be done now: not during a checkpoint,
    /// whose root may be written and not be durable.
    pub(super) fn refresh_anchor(&mut self, chunk: usize) -> bool {
        let number = self.rank_of_chunk(chunk);
        let (of, size) = (self.device.chunk(chunk), self.geometry.chunk_blocks());
        let last = self.saved.mirrors.each_ref().map(Mirror::last_number);
        let Some(mirror) = self.saved.mirrors.get_mut(number) else { return false };
        let is_kept = last[number] > 0 && last[1 - number] >= last[number];
        let is_current = mirror.is_usable() && mirror.chunk() == chunk;
        let is_last = mirror.last.is_some_and(|(_, last)| last == chunk);
        let has_other = mirror.chunks.len() > usize::from(is_current) || is_kept;
        if of.wp == 0 || !has_other || !self.saved.checkpoint.is_idle() {
            return false;
        }
        if is_current || is_last {
            if is_current {
                mirror.next = size;
            }
            return self.saved.checkpoint.ask();
        }
        let cookie = Cookie::Anchor(chunk as u32);
        if of.is_spoilt(size) {
            self.send_retire(cookie, chunk);
        } else {
            self.erase_anchor(cookie, chunk);
        }
        true
    }

    fn erase_anchor(&mut self, cookie: Cookie, chunk: usize) {
        let ppa = self.geometry.chunk_start(chunk);
        self.send_write(|| {
            Self::run(cookie, VectorOp::Reset, ppa, 1, Content::Data, Buffer::empty())
        });
    }

    /// Sends the next row of the root to a mirror, which has room for it.
    fn send_root_row(&mut self, mirror: usize) {
        let row =
            self.saved.meta.take_row(Purpose::Root(mirror), 0).expect("pages are all written");
        let count = self.geometry.row_blocks();
        let held = &mut self.saved.mirrors[mirror];
        let ppa = Ppa(self.geometry.chunk_start(held.chunk()).0 + u64::from(held.next));
        held.next += count;
        let rows = Root::rows(self.saved.checkpoint.root.directory.len(), count);
        let (done, left) = (held.done, rows + held.pads - held.done - 1);
        let end = Tag { id: END, seq: (held.next + left * count).into() };
        let first = done * count;
        for i in first..first + count {
            if done >= rows {
                self.saved.meta.add(row, end, |to| to.fill(0));
                continue;
            }
            let tag = Tag {
                id: own_id(Kind::Root, u64::from(i)),
                seq: self.saved.checkpoint.root.number,
            };
            let start = i as usize * BLOCK_BYTES as usize;
            let bytes = &self.saved.checkpoint.bytes[start..start + BLOCK_BYTES as usize];
            self.saved.meta.add(row, tag, |to| to.copy_from_slice(bytes));
        }
        self.saved.meta.rows[row as usize].ppa = ppa;
        self.write_own(row, ppa);
    }

    /// A row of a root is programmed. One that failed is begun again in the
    /// mirror's next chunk.
    pub(super) fn root_row_done(&mut self, mirror: usize, status: Status) {
        let number = self.saved.checkpoint.root.number;
        let rows =
            Root::rows(self.saved.checkpoint.root.directory.len(), self.geometry.row_blocks());
        let held = &mut self.saved.mirrors[mirror];
        if !status.is_ok() {
            held.drop_current(self.geometry.chunk_blocks());
            self.begin_mirror(mirror);
        } else if held.done + 1 < rows + held.pads {
            held.done += 1;
            self.send_root_row(mirror);
        } else {
            (held.busy, held.last) = (false, Some((number, held.chunk())));
        }
        if self.saved.mirrors.iter().all(|mirror| !mirror.busy && mirror.last_number() != number) {
            self.give_up_writing();
        }
    }
}
