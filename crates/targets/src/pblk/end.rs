//! The end of room: rows wait, and nothing under way will give any.
//!
//! Guarantees: a drive that can go on does; one that cannot is read-only, and
//! nobody waits for what will not come.

use device::OpenChannel;
use port::Time;

use super::Pblk;
use super::collector::Collector;

impl<D: OpenChannel> Pblk<D> {
    /// A chunk is worn out or retired. When the others have no more room than
    /// the data and one chunk a unit for what is in the buffer, or half of the
    /// spare where that is less, the drive turns read-only.
    pub(super) fn lose(&mut self, chunk: usize) {
        let left = self.space.lose(chunk);
        // Its level has fallen by a chunk.
        let rank = self.rank_of_chunk(chunk);
        self.collectors.of[rank].padded = None;
        let (size, pus) = (self.geometry.chunk_blocks(), u64::from(self.geometry.total_pus()));
        let spare = self.config.unit_blocks(size) * pus - self.map.blocks();
        let needed = self.map.blocks() + (pus * u64::from(size)).min(spare / 2);
        if left <= needed {
            self.stop_writing();
        }
        self.refresh(self.stripe.pu(rank));
        self.touch(rank);
    }

    /// Nothing new can be made durable any more: the drive turns read-only, and
    /// flushes that wait fail.
    pub(super) fn give_up_writing(&mut self) {
        self.facts.dead = true;
        self.stop_writing();
    }

    /// Turns read-only: writes that wait for the buffer are given up.
    pub(super) fn stop_writing(&mut self) {
        self.facts.read_only = true;
        self.facts.news = true;
    }

    /// Rows that wait for room, the target's own too.
    #[inline]
    pub(super) fn waiting_rows(&self) -> usize {
        self.stripe.waiting() + self.saved.meta.stuck.len()
    }

    /// Looks whether rows wait for room that nothing under way will give.
    #[inline]
    pub(super) fn look_for_end(&mut self, now: Time) {
        if self.waiting_rows() > 0 && self.wire.out.is_empty() && self.device.next_event().is_none()
        {
            self.end_without_room(now);
        }
    }

    /// Whether the drive has a command that will give room or needs it. One
    /// that stopped answering still has them.
    pub(super) fn is_at_work(&self) -> bool {
        let busy: usize = self.collectors.of.iter().map(Collector::busy_units).sum();
        let at_work = |(rank, c): (usize, &Collector)| {
            c.promised > 0 || c.erasing > 0 || self.stripe.rows(self.stripe.pu(rank)) > 0
        };
        let older = (0..self.stripe.older.len()).filter_map(|i| self.stripe.older.get(i));
        let moved = older.filter(|&&unit| !self.units.is_user(unit));
        busy > moved.count()
            || self.collectors.of.iter().enumerate().any(at_work)
            || self.saved.meta.chunks.values().any(|own| own.erasing || own.rows > 0)
    }

    /// Erases the closed chunks of a unit that hold nothing valid: that takes no
    /// room, of which the victims that were begun may have had all.
    fn erase_empty(&mut self, pu: usize) {
        let rank = self.stripe.rank(pu);
        for number in 0..self.geometry.chunks() {
            let chunk = self.geometry.chunk_of(pu, number);
            if self.space.is_closed(chunk) && self.space.valid_blocks(chunk) == 0 {
                self.space.take(chunk);
                self.collectors.of[rank].draining += 1;
                self.chunks[chunk].begin_draining();
                self.try_erase(chunk);
            }
        }
    }

    /// Where rows wait and the drive does nothing, tries all units once more,
    /// lending each a chunk that is kept back; if that changes nothing, the drive
    /// is at its end.
    #[cold]
    fn end_without_room(&mut self, now: Time) {
        if self.facts.dead || self.is_at_work() || self.load.is_some() {
            return;
        }
        let waiting = self.waiting_rows();
        for rank in 0..self.collectors.of.len() {
            let pu = self.stripe.pu(rank);
            // As after a start: only the victim that needs the least room fits.
            self.collectors.of[rank].rescue |= self.space.pus[pu].free() == 0;
            // Victims of which all was read are free when that is written.
            let c = &self.collectors.of[rank];
            self.space.lend_one(pu, c.draining > 0 && c.busy_units() > 0);
            if self.space.pus[pu].free() == 0 && self.collectors.of[rank].open.is_none() {
                // What cuts left of a chunk may be all the room that there is.
                self.collectors.of[rank].open = self.stripe.take_open(rank);
            }
            self.erase_empty(pu);
            self.touch(rank);
        }
        self.pump(now);
        self.submit_out(now);
        // On a drive that takes no time all may be done by now.
        let is_stuck = self.waiting_rows() >= waiting && !self.is_at_work();
        if !is_stuck || self.device.next_event().is_some() {
            return;
        }
        if self.saved.meta.stuck.is_empty() {
            self.stop_writing();
            self.fail_flushes(now);
        } else {
            self.give_up_writing();
        }
        self.pump(now);
        self.submit_out(now);
    }
}

#[cfg(test)]
mod tests {
    use device::Device;
    use flash::{Dimensions, Geometry, RamMedium, Timing};
    use port::{BlockOp, BlockReq, Buffer, Port, Ring, Status};

    use super::*;
    use crate::{PblkConfig, with_reserve};

    /// Else it waits for rows that are never programmed.
    #[test]
    fn a_durable_write_that_is_given_up_is_answered() {
        let chunks = 8;
        let dim = Dimensions { chunks, pages: 6, page_bytes: 8192, ..Dimensions::LEAST };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let timing = Timing { program: vec![600_000], ..Timing::default() };
        let medium = RamMedium::new(&geometry, 8).unwrap();
        let device = Device::new(&geometry, &timing, medium).unwrap();
        let mut pblk = Pblk::new(device, PblkConfig::new(60 * 4096, chunks, 7)).unwrap();
        let (mut reqs, mut done) = (Ring::new(40), Ring::new(40));
        for id in 0..40 {
            let buffer = Buffer::zeroed(8).unwrap();
            let req = BlockReq::new(id, BlockOp::Write, id * 4096, 4096, buffer);
            reqs.put(|| BlockReq { fua: id == 39, ..req });
        }
        pblk.submit(Time::ZERO, &mut reqs);
        pblk.stop_writing();
        pblk.pump(Time::ZERO);
        pblk.advance(Time::ZERO, &mut done);
        let last = done.drain().find(|one| one.id == 39).expect("it is answered");
        assert_eq!(last.status, Status::READ_ONLY);
    }
}
