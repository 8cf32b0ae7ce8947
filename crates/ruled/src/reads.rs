//! Reads: of nowhere, of a buffer, and of flash, neighbours at once.

use std::ops::Range;

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::Ppa;
use port::{BlockDone, BlockOp, Buffer, Status, Time};
use rules::Entry;

use crate::waits::Wait;
use crate::work::{Block, Outcome};
use crate::{Cookie, Ruled};

/// Neighbours that are to be read at once. Their chunk is kept from the first of them on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    first: Ppa,
    count: u32,
    is_weighed: bool,
}

impl<D: OpenChannel> Ruled<D> {
    /// Reads a block: of nowhere zeros, of a buffer its bytes, of flash with its neighbours.
    pub(crate) fn read(
        &mut self,
        slot: u32,
        run: &mut Option<Run>,
        at: Option<Ppa>,
        weighed: Option<&Block>,
    ) -> Outcome {
        if let (Some(ppa), Some(run)) = (at, &mut *run)
            && ppa.0 == run.first.0 + u64::from(run.count)
            && self.geometry.row_start(ppa) == self.geometry.row_start(run.first)
        {
            run.count += 1;
            return Outcome::Done;
        }
        self.read_run(slot, run);
        let kept = self.shape.kept as usize;
        let Some(ppa) = at else {
            let mut zeros = self.requests[slot].buffer.take(kept);
            zeros.bytes_mut().fill(0);
            self.requests[slot].buffer.give(zeros);
            return Outcome::Done;
        };
        let unit = self.unit_of(ppa);
        if self.space.units[unit].rows.is_empty() || self.buffered(unit, ppa).is_none() {
            let is_weighed = weighed.is_some();
            if weighed.is_some_and(|block| !block.is_its_turn) && self.waits_to_read(unit) {
                return Outcome::Waits(Wait::Unit { unit, is_read: true });
            }
            self.blocks.readers[self.geometry.chunk_index(ppa)] += 1;
            *run = Some(Run { first: ppa, count: 1, is_weighed });
            return Outcome::Done;
        }
        let mut piece = self.requests[slot].buffer.take(kept);
        let bytes = self.buffered(unit, ppa).expect("it was looked at");
        piece.bytes_mut().copy_from_slice(bytes);
        self.requests[slot].buffer.give(piece);
        Outcome::Done
    }

    /// The map that serves all of these blocks, where that needs no decision.
    #[inline]
    pub(crate) fn serves(&mut self, blocks: Range<u64>) -> Option<u16> {
        self.look();
        let application = self.application_of(blocks.start);
        self.rules.rules().serves(application, blocks.start, blocks.end)
    }

    /// Reads one block that a map serves, without a decision: one command and nothing else.
    #[inline]
    pub(crate) fn read_one(&mut self, now: Time, id: u64, entry: Entry, mut buffer: Buffer) {
        self.idle.since = now;
        let at = self.rules.state().address(entry).map(|at| Ppa(at.place()));
        let unit = at.map_or(0, |ppa| self.unit_of(ppa));
        let is_near = !self.space.units[unit].rows.is_empty();
        match at {
            None => buffer.bytes_mut().fill(0),
            Some(ppa) => match is_near.then(|| self.buffered(unit, ppa)).flatten() {
                Some(bytes) => buffer.bytes_mut().copy_from_slice(bytes),
                None => {
                    let chunk = self.geometry.chunk_index(ppa);
                    self.blocks.readers[chunk] += 1;
                    let slot = self.requests.take_as_is();
                    self.requests[slot].id = id;
                    let cookie = Cookie::One(slot, chunk);
                    return self.command(cookie, VectorOp::Read, Content::Data, (ppa, 1), buffer);
                }
            },
        }
        self.ready.put(|| read(id, Status::SUCCESS, now, buffer));
    }

    /// A read of one block has ended.
    #[inline]
    pub(crate) fn one_done(&mut self, now: Time, slot: u32, chunk: usize, done: VectorDone) {
        self.blocks.readers[chunk] -= 1;
        let id = self.requests[slot].id;
        self.requests.give(slot);
        let status = if ftl::is_read(done.status) { Status::SUCCESS } else { done.status };
        self.ready.put(|| read(id, status, now, done.buffer));
    }

    /// Reads blocks that one map serves, without a decision.
    pub(crate) fn read_all(&mut self, now: Time, slot: u32, map: u16, blocks: Range<u64>) {
        let mut run = None;
        for key in blocks {
            let at = self.rules.state().address(Entry { map, key });
            self.read(slot, &mut run, at.map(|at| Ppa(at.place())), None);
        }
        self.read_run(slot, &mut run);
        self.idle.since = now;
        self.part_done(now, slot, Status::SUCCESS);
    }

    /// Reads the neighbours that were found so far.
    pub(crate) fn read_run(&mut self, slot: u32, run: &mut Option<Run>) {
        let Some(Run { first, count, is_weighed }) = run.take() else { return };
        let chunk = self.geometry.chunk_index(first);
        if is_weighed {
            let unit = self.unit_of(first);
            self.waits.queues[unit].reads += 1;
        }
        let request = &mut self.requests[slot];
        request.parts += 1;
        let buffer = request.buffer.take(count as usize * self.shape.kept as usize);
        let cookie = Cookie::Read(slot, chunk, is_weighed.into());
        self.command(cookie, VectorOp::Read, Content::Data, (first, count), buffer);
    }

    /// A read has ended.
    pub(crate) fn read_done(
        &mut self,
        now: Time,
        slot: u32,
        (chunk, is_weighed): (usize, bool),
        done: VectorDone,
    ) {
        self.blocks.readers[chunk] -= 1;
        if is_weighed {
            let unit = self.unit_of(self.geometry.chunk_start(chunk));
            self.waits.queues[unit].reads -= 1;
        }
        self.requests[slot].buffer.give(done.buffer);
        let status = if ftl::is_read(done.status) { Status::SUCCESS } else { done.status };
        self.part_done(now, slot, status);
    }
}

/// A read that has ended.
#[inline]
fn read(id: u64, status: Status, at: Time, buffer: Buffer) -> BlockDone {
    BlockDone { id, op: BlockOp::Read, status, at, buffer }
}
