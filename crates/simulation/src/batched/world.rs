//! A batched target over a drive, its power, and a host that remembers.
//!
//! Everything that is read is held against the model; each request must end,
//! once, and without an error but where a fault says why: the model and the
//! flash are asked for that, not the target.

use std::ops::RangeInclusive;

use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, Buffer, Desc, Port, Ring, Status, Time};
use targets::Batch;
use targets::batch::BatchError;
use workload::Rng;

use super::model::Model;
use super::{BatchBreak, Drive};
use crate::drive::Drive as Faulty;
use crate::machine::{Violation, is_done, wrong};
use crate::rig::Rig;
use crate::trouble::{Strike, Struck};
use crate::words;

/// Requests that may be under way.
pub(super) const MOST_AT_ONCE: usize = 32;

/// How often a check reads a page that it does not get.
const TRIES: u32 = 4;

/// Stream of the random numbers of breaks.
const STREAM: u64 = 16;

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Open {
    Batch(u64),
    Read {
        lpid: u64,
        floor: u64,
    },
    /// Batches up to this one were taken before it.
    Flush(u64),
}

/// A drive, its power, and its host.
pub struct World {
    /// Which drive.
    pub drive: Drive,
    /// The flash and its power, and what was done and seen.
    pub rig: Rig,
    pub(super) target: Option<Batch<Faulty>>,
    pub(super) model: Model,
    /// LSNs that starts have left out.
    pub(super) unused: Vec<RangeInclusive<u64>>,
    pub(super) now: Time,
    pub(super) queue: Ring<BatchReq>,
    pub(super) done: Ring<BatchDone>,
    pub(super) open: [Option<Open>; MOST_AT_ONCE],
    pub(super) free: Vec<usize>,
    pub(super) values: Vec<u64>,
    pub(super) broken: Option<BatchBreak>,
    pub(super) rng: Rng,
    /// What had been struck when power came.
    pub(super) before: Struck,
}

/// Whether a batch that failed so is not there, whatever happens.
pub(super) fn changes_nothing(status: Status) -> bool {
    matches!(status, Status::READ_ONLY | Status::UNRECOVERED_READ | Status::CAPACITY_EXCEEDED)
}

impl World {
    /// A new drive, without power. `traced` is a page whose history is kept.
    pub(super) fn new(drive: Drive, broken: Option<BatchBreak>, traced: Option<u64>) -> World {
        World {
            rig: Rig::new(&drive.setup, None, traced),
            target: None,
            model: Model::new(drive.config.pages),
            unused: Vec::new(),
            now: Time::ZERO,
            queue: Ring::new(MOST_AT_ONCE),
            done: Ring::new(MOST_AT_ONCE),
            open: [None; MOST_AT_ONCE],
            free: Vec::with_capacity(MOST_AT_ONCE),
            values: Vec::new(),
            broken,
            rng: Rng::new(drive.setup.seed, STREAM),
            before: Struck::default(),
            drive,
        }
    }

    pub(super) fn note(&mut self, lpids: &[u64], words: impl FnOnce() -> String) {
        self.rig.note(self.now, |traced| lpids.is_empty() || lpids.contains(&traced), words);
    }

    /// Whether a start may fail: something could not be read in it, or it could
    /// not write what it must.
    pub(super) fn may_refuse(&self, error: &BatchError) -> bool {
        match error {
            BatchError::Log { .. } | BatchError::Table { .. } | BatchError::Checkpoint => {
                self.rig.flash.struck().reads > self.before.reads
            }
            BatchError::LogExhausted { .. }
            | BatchError::SlotsExhausted
            | BatchError::Slots
            | BatchError::NoSpace => self.may_end(),
            _ => false,
        }
    }

    /// Whether the drive has reason to take no more writes: as many programs
    /// failed as a row of the log has places, or there is no more room.
    fn may_end(&self) -> bool {
        let failed = self.rig.flash.struck().programs - self.before.programs;
        failed >= u64::from(self.drive.config.forward_links) || self.has_no_room()
    }

    /// Whether so many chunks were lost that its pages have no more room.
    fn has_no_room(&self) -> bool {
        let (config, geometry) = (&self.drive.config, &self.drive.setup.geometry);
        let lost = u64::from(self.hurt()) * u64::from(geometry.chunk_blocks());
        lost > 0 && config.pages + lost > config.capacity(geometry)
    }

    /// Chunks that are of no more use.
    pub(super) fn hurt(&self) -> u32 {
        let geometry = &self.drive.setup.geometry;
        geometry.pus_channels_first().map(|pu| self.rig.flash.hurt(pu, 0..geometry.chunks())).sum()
    }

    /// Takes note of what was struck since.
    pub(super) fn take_strikes(&mut self) {
        if self.drive.setup.troubles.is_none() {
            return;
        }
        for strike in self.rig.flash.take_strikes() {
            match strike {
                Strike::Copy { block, values } if block < self.drive.config.pages => {
                    self.note(&[block], || format!("a copy cannot be read: {values:?}"));
                    self.model.strike(block, values[0]);
                }
                Strike::Copy { .. } | Strike::Keys => {}
                Strike::Own { .. } => self.model.strike_own(),
            }
        }
    }

    /// Sends a batch that writes some pages and gives up those of others that may
    /// be.
    pub(super) fn write(&mut self, lpids: &[u64], others: &[u64]) -> Result<(), Violation> {
        let batch = self.model.take(lpids, &mut self.values);
        let mut given_up: Vec<u64> = Vec::new();
        for &lpid in others.iter().filter(|lpid| !lpids.contains(lpid)) {
            if self.model.may_give_up(lpid) {
                self.model.give_up(lpid);
                given_up.push(lpid);
            }
        }
        self.note(&given_up, || format!("batch {batch} gives it up"));
        let traced = lpids.iter().rposition(|&lpid| self.rig.traces(lpid));
        let value = traced.map_or(0, |at| self.values[at]);
        self.note(lpids, || format!("batch {batch} is sent, value {value}"));
        self.rig.counts.batches += 1;
        let mut sent = lpids;
        match self.broken {
            Some(BatchBreak::Tear) if lpids.len() > 1 && self.rng.below(32) == 0 => {
                sent = &lpids[..lpids.len() - 1];
            }
            Some(BatchBreak::Drop) if self.rng.below(32) == 0 => return self.acked(batch),
            _ => {}
        }
        let kept = self.drive.setup.kept as usize;
        let bytes = BLOCK_BYTES as usize + sent.len() * kept;
        let mut buffer = Buffer::zeroed(bytes).expect("memory for a batch");
        Desc::write(sent, &given_up, buffer.bytes_mut());
        let pages = buffer.bytes_mut()[BLOCK_BYTES as usize..].chunks_exact_mut(kept);
        for (page, value) in pages.zip(&self.values) {
            words::fill(page, *value);
        }
        if self.broken == Some(BatchBreak::AckEarly) {
            self.acked(batch)?;
        }
        self.send(BatchOp::WriteBatch, 0, buffer, Open::Batch(batch))
    }

    /// Sends a read of a page.
    pub(super) fn read(&mut self, lpid: u64) -> Result<(), Violation> {
        let open = Open::Read { lpid, floor: self.model.floor() };
        self.rig.counts.reads += 1;
        let buffer = self.page_buffer();
        self.send(BatchOp::Read, lpid, buffer, open)
    }

    /// The value of a page that was read, if that is whole.
    fn value(&self, done: &BatchDone) -> Option<u64> {
        let bytes = done.buffer.bytes();
        if bytes.len() == self.drive.setup.kept as usize { words::value(bytes) } else { None }
    }

    fn page_buffer(&self) -> Buffer {
        let mut buffer = Buffer::zeroed(self.drive.setup.kept as usize).expect("memory for a page");
        // Of no batch, should the read leave it as it is.
        buffer.bytes_mut().fill(0xee);
        buffer
    }

    /// Sends a flush.
    pub(super) fn flush(&mut self) -> Result<(), Violation> {
        self.rig.counts.flushes += 1;
        let open = Open::Flush(self.model.taken());
        self.send(BatchOp::Flush, 0, Buffer::empty(), open)
    }

    fn send(
        &mut self,
        op: BatchOp,
        lpid: u64,
        buffer: Buffer,
        open: Open,
    ) -> Result<(), Violation> {
        let slot = self.free.pop().expect("the caller saw room");
        self.open[slot] = Some(open);
        self.rig.counts.requests += 1;
        self.queue.put(|| BatchReq { id: slot as u64, op, lpid, buffer });
        self.submit();
        if self.rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(()) }
    }

    pub(super) fn submit(&mut self) {
        if let Some(target) = &mut self.target
            && !self.queue.is_empty()
        {
            target.submit(self.now, &mut self.queue);
        }
    }

    pub(super) fn hangs(&self) -> Violation {
        let open: Vec<&Open> = self.open.iter().flatten().collect();
        let counters = self.target.as_ref().map(Batch::counters);
        let fault = self.target.as_ref().and_then(Batch::fault);
        wrong(None, format!("the drive hangs: {counters:?}, {fault:?}; under way are {open:?}"))
    }

    fn acked(&mut self, batch: u64) -> Result<(), Violation> {
        if self.model.ack(batch)
            || matches!(self.broken, Some(BatchBreak::AckEarly | BatchBreak::Drop))
        {
            return Ok(());
        }
        Err(wrong(None, format!("batch {batch} is answered after one that came later")))
    }

    pub(super) fn completed(&mut self, done: BatchDone) -> Result<(), Violation> {
        let slot = done.id as usize;
        let Some(open) = self.open[slot].take() else {
            return Err(wrong(None, format!("request {slot} ended twice")));
        };
        self.free.push(slot);
        self.rig.flash.power().progress();
        match open {
            Open::Batch(batch) if is_done(done.status) => {
                self.note(&[], || format!("batch {batch} is answered"));
                self.acked(batch)
            }
            Open::Batch(batch) => self.batch_failed(batch, done.status),
            Open::Read { lpid, floor } => self.read_done(lpid, floor, &done),
            Open::Flush(batch) => self.flush_done(batch, done.status),
        }
    }

    fn batch_failed(&mut self, batch: u64, status: Status) -> Result<(), Violation> {
        if changes_nothing(status) {
            self.model.drop_batch(batch);
        }
        let allowed = match status {
            Status::READ_ONLY => self.may_end(),
            Status::UNRECOVERED_READ => self.model.is_own_struck(),
            Status::CAPACITY_EXCEEDED => self.has_no_room(),
            // It may be there after a cut, but nothing that came after it.
            Status::WRITE_FAULT => self.may_end(),
            _ => false,
        };
        self.failed(allowed, || format!("batch {batch}: {status}"))?;
        self.rig.told_of_end |= matches!(status, Status::READ_ONLY | Status::WRITE_FAULT);
        Ok(())
    }

    fn failed(&mut self, allowed: bool, words: impl Fn() -> String) -> Result<(), Violation> {
        if self.drive.setup.troubles.is_none() || !allowed {
            let fault = self.target.as_ref().and_then(Batch::fault);
            return Err(wrong(
                None,
                format!("{}, {fault:?}, {} chunks lost", words(), self.hurt()),
            ));
        }
        self.rig.counts.errors += 1;
        self.note(&[], words);
        Ok(())
    }

    fn read_done(&mut self, lpid: u64, floor: u64, done: &BatchDone) -> Result<(), Violation> {
        let seen = match done.status {
            Status::UNWRITTEN => Some(0),
            status if is_done(status) => self.value(done),
            status => {
                let explained = self.model.may_fail(lpid, floor);
                let allowed = status == Status::UNRECOVERED_READ && explained;
                return self.failed(allowed, || format!("a read of page {lpid}: {status}"));
            }
        };
        self.rig.see(seen.unwrap_or(1));
        let Some(seen) = seen else {
            return Err(wrong(Some(lpid), "a page whose words are not those of a value"));
        };
        let read = self.model.read(lpid, seen, floor);
        read.map_err(|words| wrong(Some(lpid), format!("a read of page {lpid}: {words}")))
    }

    fn flush_done(&mut self, batch: u64, status: Status) -> Result<(), Violation> {
        if !is_done(status) {
            let allowed = status == Status::WRITE_FAULT && self.may_end();
            return self.failed(allowed, || format!("a flush: {status}"));
        }
        let before = |open: &&Open| matches!(open, Open::Batch(number) if *number <= batch);
        match self.open.iter().flatten().find(before) {
            Some(open) => Err(wrong(None, format!("a flush ended before {open:?}"))),
            None => Ok(()),
        }
    }

    pub(super) fn check_pages(&mut self, at_rest: bool) -> Result<(), Violation> {
        let pages = self.drive.config.pages;
        let mut values = vec![None; pages as usize];
        let (mut next, mut open, mut missed) = (0, 0u64, Vec::new());
        while next < pages || open > 0 {
            while next < pages && self.queue.room() > 0 && open < MOST_AT_ONCE as u64 - 1 {
                let (op, lpid, buffer) = (BatchOp::Read, next, self.page_buffer());
                self.queue.put(|| BatchReq { id: next, op, lpid, buffer });
                (next, open) = (next + 1, open + 1);
            }
            self.wait()?;
            while let Some(done) = self.done.pop() {
                open -= 1;
                match self.checked(&done)? {
                    Some(value) => values[done.id as usize] = Some(value),
                    None => missed.push(done.id),
                }
            }
        }
        for lpid in missed {
            values[lpid as usize] = self.read_again(lpid)?;
        }
        let when = if at_rest { "at rest" } else { "after a cut" };
        if at_rest {
            let floor = self.model.taken().min(self.model.floor());
            for (lpid, value) in
                values.iter().enumerate().filter_map(|(i, v)| Some((i as u64, (*v)?)))
            {
                let read = self.model.read(lpid, value, floor);
                read.map_err(|words| wrong(Some(lpid), format!("{when}, page {lpid}: {words}")))?;
            }
        }
        let settled = self.model.settle(&values);
        settled
            .map_err(|(lpid, words)| wrong(Some(lpid), format!("{when}, page {lpid}: {words}")))?;
        for value in values.into_iter().flatten() {
            self.rig.see(value);
        }
        self.rig.hash = self.rig.hash.wrapping_add(self.now.0);
        self.verify()
    }

    /// Where all can be read, the TAGs of all blocks say the same as the tables.
    fn verify(&mut self) -> Result<(), Violation> {
        let Some(target) = &mut self.target else { return Ok(()) };
        if !self.drive.setup.troubles.is_none() || !self.rig.starts.is_multiple_of(4) {
            return Ok(());
        }
        let verified = target.verify(&self.unused);
        self.now = target.now();
        if self.rig.is_off() {
            return Err(self.hangs());
        }
        verified.map(drop).map_err(|e| wrong(None, format!("the tables: {e}")))
    }

    fn wait(&mut self) -> Result<(), Violation> {
        self.submit();
        let target = self.target.as_mut().expect("there is power");
        let at = target.next_event().ok_or_else(|| wrong(None, "a check's read hangs"))?;
        self.now = self.now.max(at);
        target.advance(self.now, &mut self.done);
        self.take_strikes();
        if self.rig.is_off() {
            return Err(self.hangs());
        }
        if !self.done.is_empty() {
            self.rig.flash.power().progress();
        }
        Ok(())
    }

    /// What a check's read gave, if it gave anything.
    fn checked(&self, done: &BatchDone) -> Result<Option<u64>, Violation> {
        let lpid = done.id;
        match done.status {
            Status::UNWRITTEN => Ok(Some(0)),
            status if is_done(status) => match self.value(done) {
                Some(value) => Ok(Some(value)),
                None => Err(wrong(Some(lpid), "a page whose words are not those of a value")),
            },
            Status::UNRECOVERED_READ if !self.drive.setup.troubles.is_none() => Ok(None),
            status => Err(wrong(Some(lpid), format!("a check of page {lpid}: {status}"))),
        }
    }

    /// Reads a page by itself that was not read at once. `None` where it is
    /// lost, and may be.
    fn read_again(&mut self, lpid: u64) -> Result<Option<u64>, Violation> {
        for _ in 0..TRIES {
            let (op, buffer) = (BatchOp::Read, self.page_buffer());
            self.queue.put(|| BatchReq { id: lpid, op, lpid, buffer });
            while self.done.is_empty() {
                self.wait()?;
            }
            let done = self.done.pop().expect("it was looked at");
            if let Some(value) = self.checked(&done)? {
                return Ok(Some(value));
            }
        }
        if !self.model.may_fail(lpid, self.model.floor()) {
            return Err(wrong(Some(lpid), format!("page {lpid} is lost, and no fault says why")));
        }
        self.rig.counts.lost += 1;
        self.note(&[lpid], || format!("page {lpid} is lost"));
        Ok(None)
    }
}
