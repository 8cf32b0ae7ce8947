//! What follows when something has happened.
//!
//! Requests and completions only enter facts: a row waits to be sent, or is
//! programmed; survivors were read; a chunk is erased; a row of a checkpoint is
//! written. Who enters something that others may wait for says so by `news`, of
//! a parallel unit by [`Pblk::touch`]. [`Pblk::pump`] then acts, in one order,
//! until nothing more follows. It is never called from what it calls.
//!
//! Guarantees: whatever a fact allows is done before time passes; at a given
//! moment nothing is half done but inside one step.

use device::{OpenChannel, VectorDone};
use port::Time;

use super::{Cookie, Pblk};

impl<D: OpenChannel> Pblk<D> {
    /// Something of a parallel unit has changed: its collection may go on, or it
    /// may take a row again.
    #[inline]
    pub(super) fn touch(&mut self, rank: usize) {
        self.facts.touched.set(rank, true);
        self.facts.news = true;
    }

    /// The same of all of them.
    pub(super) fn touch_all(&mut self) {
        (0..self.collectors.of.len()).for_each(|rank| self.touch(rank));
    }

    /// Acts on what has happened until nothing more follows.
    #[inline]
    pub(super) fn pump(&mut self, now: Time) {
        let acts = self.facts.news;
        while std::mem::take(&mut self.facts.news) {
            self.act(now);
        }
        if let Some(told) = &mut self.told
            && std::mem::take(&mut told.is_first) | acts
        {
            self.note_reason(now);
        }
    }

    /// Acts on what has happened, once.
    fn act(&mut self, now: Time) {
        if self.load.is_some() {
            self.load_step(now);
        } else if self.map_cache.is_some() {
            self.map_cache_step(now);
        }
        if self.openings.is_some() {
            self.make_openings();
        }
        if self.saved.log.wanted {
            self.send_log();
        }
        if !self.saved.meta.stuck.is_empty() {
            self.send_stuck_own_rows();
        }
        if !self.wire.erases.is_empty() {
            self.erase_waiting();
        }
        self.go_on_with_checkpoint();
        if !self.stripe.older.is_empty() {
            self.send_older();
        }
        self.tend_units();
        self.stage(now);
        self.send_ready();
        self.end_flushes(now);
    }

    /// Goes on with the collection of the units of which something has changed,
    /// and looks whether they can take a row again: older rows may wait for one.
    #[inline]
    fn tend_units(&mut self) {
        let mut first = 0;
        while let Some(mut touched) = self.facts.touched.take_word(first / 64) {
            while touched != 0 {
                let rank = first + touched.trailing_zeros() as usize;
                let pu = self.stripe.pu(rank);
                touched &= touched - 1;
                self.collect(pu);
                if !self.stripe.is_able_at(rank) {
                    self.refresh(pu);
                    self.facts.news |=
                        self.stripe.is_able_at(rank) && !self.stripe.older.is_empty();
                }
            }
            first += 64;
        }
    }

    /// Does what follows from what was asked of the target.
    #[inline]
    pub(super) fn follow(&mut self, now: Time) {
        self.pump(now);
        self.submit_out(now);
        self.look_for_end(now);
    }

    /// Handles what the drive has done, and what that leads to up to `to`.
    #[inline(never)]
    pub(super) fn handle_all(&mut self, to: Time) {
        while !self.wire.done.is_empty() {
            self.hear();
            let mut are_told = self.told.is_none();
            while let Some(done) = self.wire.done.front() {
                // Mostly so; the rest of it is not touched.
                if let Cookie::Read(request, chunk) = Cookie::unpack(done.cookie) {
                    let VectorDone { status, buffer, .. } =
                        self.wire.done.pop().expect("it was looked at");
                    self.end_read(chunk);
                    self.read_done(to, request, status, buffer);
                } else {
                    if !are_told {
                        self.hear_others();
                        are_told = true;
                    }
                    self.handle(to);
                }
            }
            self.take_notices();
            self.facts.news |= !self.wire.erases.is_empty();
            // Requests that wait for pages may wait for others to end, too.
            self.facts.news |= self.load.is_some();
            self.facts.news |= self.map_cache.as_ref().is_some_and(|cache| cache.waiting() > 0);
            self.pump(to);
            if self.wire.out.is_empty() {
                return;
            }
            if self.has_reads_to_tell() {
                self.make_stories();
            }
            // What is sent now may be done at once.
            self.device.submit(to, &mut self.wire.out);
            if self.device.next_event().is_some_and(|at| at <= to) {
                self.advance_again(to);
            }
        }
    }

    /// Lets the drive do what takes no time.
    #[inline(never)]
    fn advance_again(&mut self, to: Time) {
        self.device.advance(to, &mut self.wire.done);
    }

    /// Enters what the next completion says. What is rare is out of line, and marked
    /// cold: the code of the usual events fills the instruction cache as it is.
    #[inline(never)]
    fn handle(&mut self, now: Time) {
        let done = self.wire.done.pop().expect("the caller saw one");
        match Cookie::unpack(done.cookie) {
            Cookie::Read(..) => unreachable!("the caller ends reads"),
            Cookie::Partial(partial, chunk) => {
                self.end_read(chunk);
                self.partial_done(now, partial, done);
            }
            Cookie::Program(unit) => self.program_done(unit, done),
            Cookie::Survivors(buffer) => self.survivors_done(buffer, done),
            Cookie::Reset(chunk) => {
                self.opening_ended(chunk as usize, true);
                self.reset_done(chunk as usize, done.status);
            }
            Cookie::Own(row) => self.own_done(row, done),
            // A chunk that was not erased fails what is written to it next.
            Cookie::Anchor(chunk) => self.opening_ended(chunk as usize, true),
            Cookie::Retire(chunk) => {
                self.opening_ended(chunk as usize, true);
                self.retire_done(chunk as usize);
            }
            Cookie::Pad(chunk, first) => self.pad_done(chunk as usize, first, done.buffer),
            Cookie::Load(number) => self.load_done(number, done),
            Cookie::MapPage(number) => self.map_page_done(number, done),
            Cookie::Flush => self.flush_done(now, done.status),
            Cookie::Sync => self.checkpoint_synced(done.status),
        }
    }
}
