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
use crate::life::Counts;
use crate::machine::Violation;
use crate::power::Flash;
use crate::trouble::{Strike, Struck};

/// Requests that may be under way.
const MOST_AT_ONCE: usize = 32;

/// Starts that are refused one after the other, after which only those faults
/// are left that are for good.
const REFUSALS: u32 = 4;

/// How often a check reads a page that it does not get.
const TRIES: u32 = 4;

/// Stream of the random numbers of breaks.
const STREAM: u64 = 16;

/// A request under way.
#[derive(Clone, Copy, Debug)]
enum Open {
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
    /// What was done.
    pub counts: Counts,
    /// The flash, and the power.
    pub flash: Flash,
    target: Option<Batch<Faulty>>,
    model: Model,
    /// LSNs that starts have left out.
    unused: Vec<RangeInclusive<u64>>,
    now: Time,
    queue: Ring<BatchReq>,
    done: Ring<BatchDone>,
    open: [Option<Open>; MOST_AT_ONCE],
    free: Vec<usize>,
    values: Vec<u64>,
    broken: Option<BatchBreak>,
    rng: Rng,
    starts: u64,
    refusals: u32,
    /// The host was told that the drive takes no more writes.
    told_of_end: bool,
    /// What had been struck when power came.
    before: Struck,
    hash: u64,
    traced: Option<u64>,
    trace: Vec<String>,
}

fn wrong(block: Option<u64>, words: impl Into<String>) -> Violation {
    Violation { block, words: words.into() }
}

/// Whether a batch that failed so is not there, whatever happens.
fn changes_nothing(status: Status) -> bool {
    matches!(status, Status::READ_ONLY | Status::UNRECOVERED_READ | Status::CAPACITY_EXCEEDED)
}

fn is_done(status: Status) -> bool {
    status.is_ok() || status == Status::HIGH_ECC
}

/// The value of a page: all its words are one.
fn value(bytes: &[u8]) -> Option<u64> {
    let same = bytes.chunks_exact(8).all(|word| word == &bytes[..8]);
    same.then(|| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")))
}

impl World {
    /// A new drive, without power. `traced` is a page whose history is kept.
    pub fn new(drive: Drive, broken: Option<BatchBreak>, traced: Option<u64>) -> World {
        let seed = drive.setup.seed;
        let flash = Flash::new(&drive.setup, None, seed).expect("memory for a small drive");
        World {
            counts: Counts::default(),
            flash,
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
            rng: Rng::new(seed, STREAM),
            starts: 0,
            refusals: 0,
            told_of_end: false,
            before: Struck::default(),
            hash: 0,
            traced,
            trace: Vec::new(),
            drive,
        }
    }

    /// The end of a life: the hash of all that was seen, what was done, and the
    /// traced page's history.
    pub fn end(mut self) -> (u64, Counts, Vec<String>) {
        self.power_down();
        self.count_flash();
        (self.hash, self.counts, self.trace)
    }

    /// Whether power is gone.
    pub fn is_off(&self) -> bool {
        self.flash.power().is_gone()
    }

    /// Requests under way.
    pub fn under_way(&self) -> u64 {
        (MOST_AT_ONCE - self.free.len()) as u64
    }

    /// Chunks taken to be collected since power came.
    pub fn collections(&self) -> u64 {
        self.target.as_ref().map_or(0, |target| target.counters().collections)
    }

    /// Whether the host was told, since power came, that the drive takes no more
    /// writes.
    pub fn is_told_of_end(&self) -> bool {
        self.told_of_end
    }

    fn note(&mut self, lpids: &[u64], words: impl FnOnce() -> String) {
        if self.traced.is_some_and(|traced| lpids.is_empty() || lpids.contains(&traced)) {
            self.trace.push(format!("{:>12} ns  {}", self.now.0, words()));
        }
    }

    /// Power comes, and goes instead of the event after `events`. False when it
    /// went before the drive was ready, or the drive had reason to refuse.
    pub fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.target.is_none(), "power comes after it went");
        self.flash.power().on(events);
        (self.now, self.open) = (Time::ZERO, [None; MOST_AT_ONCE]);
        self.free.clear();
        self.free.extend((0..MOST_AT_ONCE).rev());
        self.starts += 1;
        self.told_of_end = false;
        self.before = self.flash.struck();
        self.model.power_up();
        let (setup, fresh) = (&self.drive.setup, self.starts == 1);
        let seed = setup.seed.wrapping_add(self.starts);
        let for_good = setup.troubles.for_good();
        let troubles = if self.refusals < REFUSALS { &setup.troubles } else { &for_good };
        let powered = self.flash.drive(&setup.timing, fresh, seed).expect("memory for a drive");
        let below = Faulty::new(powered, &self.flash, troubles, seed);
        let below = below.expect("the rules are for vector commands");
        let opened = Batch::open(below, self.drive.config, Time::ZERO);
        // A start that is refused for what it cannot read has changed nothing.
        let is_unread = matches!(
            opened,
            Err(BatchError::Log { .. } | BatchError::Table { .. } | BatchError::Checkpoint)
        );
        if self.take_strikes() && self.drive.setup.troubles.cached && !is_unread {
            self.model.may_go_back();
        }
        match opened {
            _ if self.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.is_off() => {
                self.counts.cut_recoveries += 1;
                self.note(&[], || format!("power goes in recovery, after {events} events"));
                Ok(false)
            }
            Ok(target) => {
                self.unused.extend(target.recovery().unused.iter().cloned());
                self.now = target.now();
                self.note(&[], || format!("power comes: {:?}", target.recovery()));
                self.target = Some(target);
                self.refusals = 0;
                Ok(true)
            }
            Err(error) if self.may_refuse(&error) => {
                self.flash.power().off();
                self.counts.refusals += 1;
                self.refusals += 1;
                self.note(&[], || format!("the start is refused: {error}"));
                Ok(false)
            }
            Err(error) => Err(wrong(None, format!("recovery failed: {error}"))),
        }
    }

    /// Whether a start may fail: something could not be read in it, or it could
    /// not write what it must.
    fn may_refuse(&self, error: &BatchError) -> bool {
        match error {
            BatchError::Log { .. } | BatchError::Table { .. } | BatchError::Checkpoint => {
                self.flash.struck().reads > self.before.reads
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
        let failed = self.flash.struck().programs - self.before.programs;
        failed >= u64::from(self.drive.config.forward_links) || self.has_no_room()
    }

    /// Whether so many chunks were lost that its pages have no more room.
    fn has_no_room(&self) -> bool {
        let (config, geometry) = (&self.drive.config, &self.drive.setup.geometry);
        let lost = u64::from(self.hurt()) * u64::from(geometry.chunk_blocks());
        lost > 0 && config.pages + lost > config.capacity(geometry)
    }

    /// Chunks that are of no more use.
    fn hurt(&self) -> u32 {
        let geometry = &self.drive.setup.geometry;
        geometry.pus_channels_first().map(|pu| self.flash.hurt(pu, 0..geometry.chunks())).sum()
    }

    /// Whether so many starts were refused that nothing can be expected.
    pub fn is_hopeless(&self) -> bool {
        self.refusals > 2 * REFUSALS && self.hurt() > 0
    }

    /// True where something was struck. A start may take that for torn: it reads
    /// blocks of its own, and the copies of the last batches, among them those of
    /// collection, of pages that a check has settled.
    fn take_strikes(&mut self) -> bool {
        if self.drive.setup.troubles.is_none() {
            return false;
        }
        let strikes = self.flash.take_strikes();
        let mut any = false;
        for strike in strikes {
            match strike {
                Strike::Copy { block, values } if block < self.drive.config.pages => {
                    self.note(&[block], || format!("a copy cannot be read: {values:?}"));
                    any = true;
                    self.model.strike(block, values[0]);
                }
                Strike::Copy { .. } => {}
                Strike::Own => {
                    any = true;
                    self.model.strike_own()
                }
            }
        }
        any
    }

    /// Power is gone, or goes now.
    pub fn power_down(&mut self) {
        self.flash.power().off();
        self.note(&[], || "power goes".into());
        if let Some(target) = self.target.take() {
            let counters = target.counters();
            self.counts.cuts += 1;
            self.counts.cached_cuts += u64::from(self.drive.setup.troubles.cached);
            self.counts.collections += counters.collections;
            self.counts.erases += counters.erases;
            self.counts.ends_of_life += u64::from(self.told_of_end);
            self.counts.struck.delays += target.below().delays();
        }
        while self.queue.pop().is_some() {}
        // Answers that nobody sees any more: a batch that was refused is not there,
        // though those behind it may be.
        while let Some(done) = self.done.pop() {
            if let Some(Open::Batch(batch)) = self.open[done.id as usize]
                && changes_nothing(done.status)
            {
                self.model.drop_batch(batch);
            }
        }
    }

    fn count_flash(&mut self) {
        self.counts.add_flash(&self.flash);
    }

    /// A new drive in the place of one that is of no more use.
    pub fn replace(&mut self) {
        self.power_down();
        self.count_flash();
        let seed = self.drive.setup.seed.wrapping_add(self.starts);
        self.flash = Flash::new(&self.drive.setup, None, seed).expect("memory for a small drive");
        self.model.replace();
        self.unused.clear();
        self.refusals = 0;
    }

    /// Sends a batch that writes some pages and gives up those of others that may
    /// be.
    pub fn write(&mut self, lpids: &[u64], others: &[u64]) -> Result<(), Violation> {
        let batch = self.model.take(lpids, &mut self.values);
        let mut given_up: Vec<u64> = Vec::new();
        for &lpid in others.iter().filter(|lpid| !lpids.contains(lpid)) {
            if self.model.may_give_up(lpid) {
                self.model.give_up(lpid);
                given_up.push(lpid);
            }
        }
        self.note(&given_up, || format!("batch {batch} gives it up"));
        let traced = self.traced.and_then(|traced| lpids.iter().rposition(|&lpid| lpid == traced));
        let value = traced.map_or(0, |at| self.values[at]);
        self.note(lpids, || format!("batch {batch} is sent, value {value}"));
        self.counts.batches += 1;
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
            page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
        }
        if self.broken == Some(BatchBreak::AckEarly) {
            self.acked(batch)?;
        }
        self.send(BatchOp::WriteBatch, 0, buffer, Open::Batch(batch))
    }

    /// Sends a read of a page.
    pub fn read(&mut self, lpid: u64) -> Result<(), Violation> {
        let open = Open::Read { lpid, floor: self.model.floor() };
        self.counts.reads += 1;
        let buffer = self.page_buffer();
        self.send(BatchOp::Read, lpid, buffer, open)
    }

    fn page_buffer(&self) -> Buffer {
        let mut buffer = Buffer::zeroed(self.drive.setup.kept as usize).expect("memory for a page");
        // Of no batch, should the read leave it as it is.
        buffer.bytes_mut().fill(0xee);
        buffer
    }

    /// Sends a flush.
    pub fn flush(&mut self) -> Result<(), Violation> {
        self.counts.flushes += 1;
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
        self.counts.requests += 1;
        self.queue.put(|| BatchReq { id: slot as u64, op, lpid, buffer });
        self.submit();
        if self.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(()) }
    }

    fn submit(&mut self) {
        if let Some(target) = &mut self.target
            && !self.queue.is_empty()
        {
            target.submit(self.now, &mut self.queue);
        }
    }

    fn hangs(&self) -> Violation {
        let open: Vec<&Open> = self.open.iter().flatten().collect();
        let counters = self.target.as_ref().map(Batch::counters);
        let fault = self.target.as_ref().and_then(Batch::fault);
        wrong(None, format!("the drive hangs: {counters:?}, {fault:?}; under way are {open:?}"))
    }

    /// Lets the next thing happen. False when nothing will, or power is gone.
    pub fn step(&mut self) -> Result<bool, Violation> {
        let Some(target) = &mut self.target else { return Ok(false) };
        if self.flash.power().is_gone() {
            return if self.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(false) };
        }
        let Some(at) = target.next_event() else {
            return if self.under_way() > 0 { Err(self.hangs()) } else { Ok(false) };
        };
        self.now = self.now.max(at);
        target.advance(self.now, &mut self.done);
        self.take_strikes();
        // What ends in the moment of the cut never reaches the host.
        if self.flash.power().is_gone() {
            return if self.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(false) };
        }
        while let Some(done) = self.done.pop() {
            self.completed(done)?;
        }
        self.submit();
        Ok(true)
    }

    /// Until all that was sent has ended. False when power went.
    pub fn drain(&mut self) -> Result<bool, Violation> {
        while self.under_way() > 0 {
            if !self.step()? {
                return Ok(false);
            }
        }
        Ok(!self.is_off())
    }

    fn acked(&mut self, batch: u64) -> Result<(), Violation> {
        if self.model.ack(batch)
            || matches!(self.broken, Some(BatchBreak::AckEarly | BatchBreak::Drop))
        {
            return Ok(());
        }
        Err(wrong(None, format!("batch {batch} is answered after one that came later")))
    }

    fn completed(&mut self, done: BatchDone) -> Result<(), Violation> {
        let slot = done.id as usize;
        let Some(open) = self.open[slot].take() else {
            return Err(wrong(None, format!("request {slot} ended twice")));
        };
        self.free.push(slot);
        self.flash.power().progress();
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
        self.told_of_end |= matches!(status, Status::READ_ONLY | Status::WRITE_FAULT);
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
        self.counts.errors += 1;
        self.note(&[], words);
        Ok(())
    }

    fn read_done(&mut self, lpid: u64, floor: u64, done: &BatchDone) -> Result<(), Violation> {
        let seen = match done.status {
            Status::UNWRITTEN => Some(0),
            status if is_done(status) => value(done.buffer.bytes()),
            status => {
                let explained = self.model.may_fail(lpid, floor);
                let allowed = status == Status::UNRECOVERED_READ && explained;
                return self.failed(allowed, || format!("a read of page {lpid}: {status}"));
            }
        };
        self.hash =
            (self.hash ^ seen.unwrap_or(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let Some(seen) = seen else { return Err(wrong(Some(lpid), "a page whose words differ")) };
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

    /// Reads all: after a cut, or at rest, when nothing may be missing.
    pub fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
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
            self.hash = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        self.hash = self.hash.wrapping_add(self.now.0);
        self.verify()
    }

    /// Where all can be read, the TAGs of all blocks say the same as the tables.
    fn verify(&mut self) -> Result<(), Violation> {
        let Some(target) = &mut self.target else { return Ok(()) };
        if !self.drive.setup.troubles.is_none() || !self.starts.is_multiple_of(4) {
            return Ok(());
        }
        let verified = target.verify(&self.unused);
        self.now = target.now();
        if self.is_off() {
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
        if self.is_off() {
            return Err(self.hangs());
        }
        if !self.done.is_empty() {
            self.flash.power().progress();
        }
        Ok(())
    }

    /// What a check's read gave, if it gave anything.
    fn checked(&self, done: &BatchDone) -> Result<Option<u64>, Violation> {
        let lpid = done.id;
        match done.status {
            Status::UNWRITTEN => Ok(Some(0)),
            status if is_done(status) => match value(done.buffer.bytes()) {
                Some(value) => Ok(Some(value)),
                None => Err(wrong(Some(lpid), "a page whose words differ")),
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
        self.counts.lost += 1;
        self.note(&[lpid], || format!("page {lpid} is lost"));
        Ok(None)
    }
}
