//! What is done when something has happened: all that can be done, again and again, until
//! nothing can.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use port::{Buffer, Time};

use super::request::{Request, Stage};
use super::space::Use;
use super::{Cookie, ERASES, Kv};

impl<D: OpenChannel> Kv<D> {
    /// Erases chunks that nobody needs. One that failed is given up.
    fn clean(&mut self) -> bool {
        let mut any = false;
        while self.erasing < ERASES
            && let Some(chunk) = self.space.next_erase(self.packer.done(), self.settling)
        {
            any = true;
            self.erasing += 1;
            let failed = self.space.chunk(chunk).failed;
            let op = if failed { VectorOp::Retire } else { VectorOp::Reset };
            let (ppa, cookie) = (self.geometry.chunk_start(chunk), Cookie::Erase(chunk as u32));
            self.send(cookie, op, Content::Data, ppa, 1, Buffer::empty());
        }
        any
    }

    fn erase_done(&mut self, chunk: usize) {
        self.erasing -= 1;
        let failed = self.space.chunk(chunk).failed;
        self.space.erased(chunk, &self.device.chunk(chunk));
        self.counters.erases += u64::from(!failed);
        self.counters.retired += u64::from(failed);
        if self.space.chunk(chunk).used == Use::Offline {
            self.measure();
        }
    }

    /// Programs the row that is being filled, where somebody waits for that.
    fn pad(&mut self) -> bool {
        let Some(open) = self.packer.open().map(|row| row.number) else { return false };
        let waits = |held: &Request| held.stage == Stage::Programs && held.row >= open;
        let wanted = self.syncers > 0 && self.requests.iter().any(waits)
            || (self.space.free_chunks() <= self.enough_free() && self.space.waits_for_rows(open));
        if wanted {
            self.close_row();
        }
        wanted
    }

    /// Does all that can be done now.
    pub(super) fn pump(&mut self, now: Time) {
        loop {
            self.go_on(now);
            self.device.submit(now, &mut self.out);
            let stands = self.device.next_event().is_none() && self.out.is_empty();
            if !(stands && self.give_up(now)) {
                return;
            }
        }
    }

    fn go_on(&mut self, now: Time) {
        loop {
            self.short = false;
            let mut any = self.start_waiting(now);
            while let Some((slot, buffer)) = self.found.pop_front() {
                self.see_record(now, slot, true, buffer, 0);
                any = true;
            }
            any |= self.append(now);
            any |= self.send_rows(now);
            self.full = false;
            any |= self.send_again();
            any |= self.checkpoint();
            any |= self.collect();
            any |= self.move_rows();
            any |= self.pad();
            any |= self.sync(now);
            any |= self.clean();
            if !any {
                return;
            }
        }
    }

    /// A command of the drive is over.
    fn complete(&mut self, now: Time, done: VectorDone) {
        let VectorDone { cookie, status, buffer, .. } = done;
        match Cookie::unpack(cookie) {
            Cookie::Record(slot) => self.record_read(now, slot, status, buffer),
            Cookie::Packed(number) => self.row_done(number, status, buffer),
            Cookie::Row(slot, chunk) => {
                self.value_row_done(now, slot, chunk as usize, status, buffer);
            }
            Cookie::Fill(slot) => self.filled(now, slot, status, buffer),
            Cookie::Collect(row) => self.row_read(row, status, buffer),
            Cookie::MoverRecord => self.mover_record_read(status, buffer),
            Cookie::MoverRead => self.mover_row_read(status, buffer),
            Cookie::MoverWrite(chunk) => self.mover_row_written(chunk as usize, status, buffer),
            Cookie::Checkpoint => self.checkpoint_row_done(status, buffer),
            Cookie::Erase(chunk) => self.erase_done(chunk as usize),
            Cookie::Flush => self.synced(now, status),
        }
    }

    /// Lets all that is due at `to` happen.
    pub(super) fn work(&mut self, to: Time) {
        self.now = self.now.max(to);
        loop {
            if self.device.next_event().is_some_and(|at| at <= to) {
                self.device.advance(to, &mut self.device_done);
            }
            let (waiting, moved) = (self.out.len(), !self.device_done.is_empty());
            while let Some(done) = self.device_done.pop() {
                self.complete(self.now, done);
            }
            self.pump(self.now);
            let moved = moved || self.out.len() < waiting;
            if !moved || self.device.next_event().is_none_or(|at| at > to) {
                return;
            }
        }
    }
}
