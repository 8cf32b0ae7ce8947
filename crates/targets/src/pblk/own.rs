//! Own rows: where pages of map, chunk table, directory and log go.
//!
//! Pages are gathered in a row, and rows go to parallel units in turn, to
//! chunks of their own. Guarantees: a page counts as moved only when its row is
//! programmed; a row that fails goes elsewhere; an own chunk is erased when
//! nothing leads to it any more. Where no unit has a chunk for a row it waits,
//! and where none will come the drive turns read-only.

use std::collections::BTreeSet;

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::Ppa;
use port::{Buffer, Whose};

use super::checkpoint::PAGES_LEAVE;
use super::meta::Purpose;
use super::record::{Kind, own};
use super::{Cookie, Pblk};

impl<D: OpenChannel> Pblk<D> {
    /// The row that pages are gathered in, if there is one.
    pub(super) fn own_row(&mut self) -> Option<u32> {
        if self.saved.checkpoint.gathering.is_none() {
            let pus = self.geometry.total_pus() as usize;
            let most = if self.saved.checkpoint.is_late() { pus } else { (pus / 8).max(1) };
            if self.saved.checkpoint.outstanding >= most {
                return None;
            }
            self.saved.checkpoint.gathering = self.saved.meta.take_row(Purpose::Pages, PAGES_LEAVE);
        }
        self.saved.checkpoint.gathering
    }

    pub(super) fn send_full_own_row(&mut self, row: u32) {
        if self.saved.meta.is_full(row) {
            self.saved.checkpoint.gathering = None;
            self.saved.checkpoint.outstanding += 1;
            self.send_own_row(row);
        }
    }

    /// The last row of a kind, full or not.
    pub(super) fn send_last_own_row(&mut self) {
        let Some(row) = self.saved.checkpoint.gathering.take() else { return };
        if self.saved.meta.rows[row as usize].filled == 0 {
            self.saved.meta.free.push(row);
            return;
        }
        self.saved.checkpoint.outstanding += 1;
        self.send_own_row(row);
    }

    /// Sends a row of own blocks to the next parallel unit, or keeps it until
    /// one has a chunk for it.
    pub(super) fn send_own_row(&mut self, row: u32) {
        self.saved.meta.pad(row, self.saved.checkpoint.root.number);
        self.resend_own_row(row);
    }

    fn resend_own_row(&mut self, row: u32) {
        let (space, stripe) = (&self.space, &self.stripe);
        let mut able = self.saved.meta.choose(|rank| space.has_own(stripe.pu(rank)));
        if able.is_none() && self.saved.meta.chunks.values().all(|own| !own.erasing) {
            // Failures have used up what is for own blocks: data may have more, of
            // which they need one to go on.
            let least = if self.is_at_work() { 2 } else { 1 };
            able = self.saved.meta.choose(|rank| space.has_free(stripe.pu(rank), least));
        }
        let Some(rank) = able else {
            // One comes back that is being erased; or what a unit keeps back is
            // lent to collection, or still has old copies in it. Whether that ever
            // comes is looked at when the drive has nothing to do.
            self.saved.meta.stuck.push_back(row);
            return;
        };
        let pu = self.stripe.pu(rank);
        let at = match self.saved.meta.open[rank] {
            Some(open) => open,
            None => {
                let open = self.space.open_own(pu).expect("an able unit has a chunk");
                self.saved.meta.own(open.chunk());
                // Where it was lent, data have one less.
                self.refresh(pu);
                open
            }
        };
        self.saved.meta.open[rank] = self.advance_open(at);
        let ppa = Ppa(self.geometry.chunk_start(at.chunk()).0 + u64::from(at.next));
        let own = self.saved.meta.chunks.get_mut(&at.chunk()).expect("it is open");
        own.rows += 1;
        let held = &mut self.saved.meta.rows[row as usize];
        held.ppa = ppa;
        if let Purpose::Log(_) = held.purpose {
            own.log_end = self.saved.log.page;
        }
        self.write_own(row, ppa);
    }

    /// Sends the rows for which there was no chunk, or of which a program failed.
    pub(super) fn send_stuck_own_rows(&mut self) {
        for _ in 0..self.saved.meta.stuck.len() {
            if let Some(row) = self.saved.meta.stuck.pop_front() {
                self.resend_own_row(row);
            }
        }
    }

    /// Programs a row of own blocks at `ppa`.
    pub(super) fn write_own(&mut self, row: u32, ppa: Ppa) {
        let count = self.geometry.row_blocks();
        let buffer = self.saved.meta.rows[row as usize].buffer.lend();
        self.counters.metadata += u64::from(count);
        self.saved.checkpoint.written += 1;
        // Recovery reads these, too.
        self.saved.checkpoint.rows += 1;
        let (cookie, op) = (Cookie::Own(row), VectorOp::Write);
        self.send_write(|| Self::run(cookie, op, ppa, count, Content::Whole, buffer));
    }

    /// A row of own blocks is programmed, or failed.
    #[cold]
    pub(super) fn own_done(&mut self, number: u32, done: VectorDone) {
        self.facts.news = true;
        let row = &mut self.saved.meta.rows[number as usize];
        row.buffer.reclaim(done.buffer);
        let (ppa, purpose) = (row.ppa, row.purpose);
        self.opening_ended(self.geometry.chunk_index(ppa), false);
        if let Purpose::Root(mirror) = purpose {
            self.saved.meta.free.push(number);
            self.root_row_done(mirror, done.status);
        } else {
            let chunk = self.geometry.chunk_index(ppa);
            self.saved.meta.chunks.get_mut(&chunk).expect("it is written to").rows -= 1;
            if !done.status.is_ok() {
                self.chunks[chunk].failed = true;
                let rank = self.stripe.rank(self.geometry.pu_index(ppa));
                if self.saved.meta.open[rank].is_some_and(|open| open.chunk() == chunk) {
                    self.saved.meta.open[rank] = None;
                }
                self.saved.meta.stuck.push_back(number);
                return;
            }
            self.place_own_row(number, ppa);
            self.saved.meta.free.push(number);
            match purpose {
                Purpose::Log(last) => self.log_programmed(last),
                _ => self.saved.checkpoint.outstanding -= 1,
            }
        }
    }

    /// Enters where the pages of a row are.
    fn place_own_row(&mut self, number: u32, ppa: Ppa) {
        for i in 0..self.geometry.row_blocks() {
            let at = Ppa(ppa.0 + u64::from(i));
            match own(self.saved.meta.tag(number, i).id) {
                Some((Kind::Page, page)) => self.saved.meta.set_page(page, at),
                Some((Kind::Directory, page)) => self.saved.meta.set_directory(page, at),
                _ => {}
            }
        }
    }

    /// An own chunk is to be written anew. False where that is under way.
    pub(super) fn refresh_own(&mut self, chunk: usize) -> bool {
        let own = self.saved.meta.chunks.get_mut(&chunk).expect("an own chunk");
        if own.erasing || std::mem::replace(&mut own.aged, true) {
            return false;
        }
        self.saved.checkpoint.ask();
        true
    }

    /// The own chunks that are to be written anew, none of them open any more. One
    /// that has to stay open may be asked for again.
    pub(super) fn leave_aged(&mut self) -> BTreeSet<usize> {
        let geometry = self.geometry;
        let mut left = BTreeSet::new();
        for (&chunk, own) in self.saved.meta.chunks.iter_mut().filter(|(_, own)| own.aged) {
            let pu = geometry.pu_index(geometry.chunk_start(chunk));
            let open = &mut self.saved.meta.open[self.stripe.rank(pu)];
            let is_open = open.is_some_and(|open| open.chunk() == chunk);
            own.aged = !is_open || self.space.can_leave_own(pu);
            if own.aged && !own.erasing {
                open.take_if(|_| is_open);
                left.insert(chunk);
            }
        }
        left
    }

    /// Erases own chunks to which nothing leads any more, and retires those of
    /// which a program failed.
    pub(super) fn erase_dead_own(&mut self, log_page: u64) {
        let geometry = self.geometry;
        let mut dead = Vec::new();
        for (&chunk, own) in &mut self.saved.meta.chunks {
            let rank = self.stripe.rank(geometry.pu_index(geometry.chunk_start(chunk)));
            let is_open = self.saved.meta.open[rank].is_some_and(|open| open.chunk() == chunk);
            let needed = is_open || own.live > 0 || own.rows > 0 || own.log_end > log_page;
            if !needed && !own.erasing {
                own.erasing = true;
                dead.push(chunk);
            }
        }
        for chunk in dead {
            if self.chunks[chunk].failed {
                let pu = geometry.pu_index(geometry.chunk_start(chunk));
                self.saved.meta.chunks.remove(&chunk);
                self.space.keep_back(pu);
                // One less for data: this one does not come back.
                self.retire(chunk);
                continue;
            }
            let (cookie, ppa) = (Cookie::Reset(chunk as u32), geometry.chunk_start(chunk));
            self.send_write(|| {
                let op = VectorOp::Reset;
                let cmd = Self::run(cookie, op, ppa, 1, Content::Data, Buffer::empty());
                VectorCmd { whose: Whose::Metadata, ..cmd }
            });
        }
    }
}
