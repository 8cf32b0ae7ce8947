//! A drive, its power, and a host that remembers what it was promised.
//!
//! Everything that is read is checked against the contract, and each command
//! must complete, once, without an error. What does not is a [`Violation`].

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, SECTOR_BYTES};
use port::{Status, Time};
use thiserror::Error;

mod check;
mod excuse;
mod in_cache;
mod living;

use crate::battery::Battery;
use crate::breaks::Break;
use crate::buffers::Buffers;
use crate::contract::Contract;
use crate::life::Living;
use crate::power::Flash;
use crate::rig::Rig;
use crate::setup::Setup;
use crate::shared::Tenants;
use crate::species::Host;
use crate::stack::{Stack, protected_bytes};
use crate::trouble::Strike;
use crate::words;
use in_cache::InCache;

/// Requests that may be under way.
pub const MOST_AT_ONCE: usize = 32;

/// Blocks of one read of a check.
pub const CHECK_BLOCKS: u64 = 64;

/// The contract was broken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{words}")]
pub struct Violation {
    /// The block, where it is about one.
    pub block: Option<u64>,
    /// What was expected and what was seen.
    pub words: String,
}

/// A violation that concerns this block, page or key.
pub(crate) fn wrong(block: Option<u64>, words: impl Into<String>) -> Violation {
    Violation { block, words: words.into() }
}

/// Whether a request did what it was asked. What was read at the limit of what
/// can be corrected was read.
pub(crate) fn is_done(status: Status) -> bool {
    status.is_ok() || status == Status::HIGH_ECC
}

/// The memory of a setup's protected cache, if it has one.
pub(crate) fn battery(setup: &Setup, flash: &Flash, seed: u64) -> Option<Battery> {
    let bytes = protected_bytes(setup.kept);
    setup.protected.then(|| Battery::new(bytes, flash.shared_power(), seed))
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    op: BlockOp,
    /// Its first block, and how many it touches.
    block: u64,
    blocks: u64,
    /// Of a read, its first cell, and how many.
    cell: u64,
    cells: u64,
    /// When it was sent; of what writes, its place in the contract.
    at: u32,
    /// When it was sent, and when the oldest of those under way then was: no
    /// request that the block layer makes one with it was sent before.
    sent: u32,
    since: u32,
}

impl Request {
    /// What ended before this is settled for what this request, or one that was
    /// made one with it, does to a block.
    fn settled(&self, block: u64) -> u32 {
        let own = self.block..self.block + self.blocks;
        if own.contains(&block) { self.at } else { self.since }
    }
}

/// What a request is about: a range in sectors.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// What to do.
    pub op: BlockOp,
    /// With FUA.
    pub fua: bool,
    /// First sector.
    pub sector: u64,
    /// Sectors; none of a flush.
    pub count: u64,
}

/// A drive, its power, and its host.
pub struct Machine {
    /// Which drive.
    pub setup: Setup,
    /// What the host was promised.
    pub contract: Contract,
    /// The flash and its power, and what was done and seen.
    pub rig: Rig,
    /// The memory of the protected cache, if there is one.
    battery: Option<Battery>,
    drive: Option<Stack>,
    /// What a host asks that knows the drive's target, in the place of what it was
    /// to ask.
    host: Host,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    open: [Option<Request>; MOST_AT_ONCE],
    free: Vec<usize>,
    buffers: Buffers,
    /// Sectors of a cell.
    cell_sectors: u64,
    broken: Option<Break>,
    /// Something was written to the flash, or may have been.
    used: bool,
    /// In the last start something could not be read.
    start_struck: bool,
    /// Since a start last left the protected cache empty, a copy of a block of
    /// which that may have a part could not be read.
    lacks_a_part: bool,
    /// The last start did not give the drive what its protected cache has, and had
    /// reason not to.
    is_frozen: bool,
    /// What that may have.
    in_cache: InCache,
    /// All blocks were read since power came, so that a target has found all of its map,
    /// or had none to find.
    has_map: bool,
    /// Blocks of a target of keys that could not be read before power came, and before the
    /// start had ended.
    pub(crate) keys_unread: (u64, u64),
}

impl Machine {
    /// A new drive, without power. `traced` is a block whose history is kept.
    pub fn new(setup: Setup, broken: Option<Break>, traced: Option<u64>) -> Machine {
        let rig = Rig::new(&setup, broken, traced);
        let cells_per_block = if setup.parts { BLOCK_BYTES / SECTOR_BYTES } else { 1 };
        let mut contract = Contract::new(setup.blocks(), cells_per_block);
        contract.protected = setup.protected;
        let pieces = setup.blocks().div_ceil(CHECK_BLOCKS);
        Machine {
            contract,
            battery: battery(&setup, &rig.flash, setup.seed),
            rig,
            drive: None,
            host: Box::new(|ask| ask),
            now: Time::ZERO,
            queue: Ring::new(MOST_AT_ONCE),
            done: Ring::new(MOST_AT_ONCE),
            open: [None; MOST_AT_ONCE],
            free: Vec::with_capacity(MOST_AT_ONCE),
            buffers: Buffers::new(setup.kept, setup.work.blocks, pieces),
            cell_sectors: BLOCK_BYTES / SECTOR_BYTES / cells_per_block,
            broken,
            used: false,
            start_struck: false,
            lacks_a_part: false,
            is_frozen: false,
            in_cache: InCache::of(&setup),
            has_map: false,
            keys_unread: (0, 0),
            setup,
        }
    }

    /// Adds a line to the trace, if it is about the traced block or all.
    fn note(&mut self, blocks: Option<(u64, u64)>, words: impl FnOnce() -> String) {
        let about = |traced| blocks.is_none_or(|(at, count)| (at..at + count).contains(&traced));
        self.rig.note(self.now, about, words);
    }

    /// The time that it has come to.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The targets of a drive of several, as long as there is power.
    pub(crate) fn tenants(&mut self) -> Option<&mut Tenants> {
        self.drive.as_mut()?.tenants()
    }

    /// Nothing is in the protected cache any more.
    fn empty_cache(&mut self) {
        self.in_cache.clear();
        self.lacks_a_part = false;
    }

    /// Tells the contract what faults struck.
    pub(crate) fn take_strikes(&mut self) {
        if self.setup.troubles.is_none() {
            return;
        }
        for strike in self.rig.flash.take_strikes() {
            match strike {
                Strike::Copy { block, values } if block < self.setup.blocks() => {
                    self.note(Some((block, 1)), || format!("a copy cannot be read: {values:x?}"));
                    self.contract.strike(block, values);
                    self.lacks_a_part |= self.in_cache.may_have(block);
                }
                Strike::Copy { .. } => {}
                // What is read again of a map that was found is not needed.
                Strike::Own { .. } if self.has_map && self.setup.map_pages > 0 => {}
                Strike::Own { first, id } => {
                    let blocks = self.setup.species.lost_with(&self.setup, first, id);
                    self.contract.strike_map(blocks);
                }
                Strike::Keys => {}
            }
        }
    }

    /// Shuts the drive down in good order. Nothing may be under way. False when
    /// power went before it was.
    pub fn close(&mut self) -> Result<bool, Violation> {
        assert_eq!(self.under_way(), 0, "a drive is shut down at rest");
        while self.drive.as_ref().is_some_and(|drive| !drive.is_idle()) {
            if !self.step()? {
                return Ok(false);
            }
        }
        self.drive = self.drive.take().map(|drive| drive.close(self.now));
        loop {
            let Some(drive) = &mut self.drive else { return Ok(false) };
            let (closed, next) = (drive.is_closed(), drive.next_event());
            if self.rig.flash.power().is_wasted() {
                return Err(self.hangs());
            } else if self.rig.is_off() {
                return Ok(false);
            } else if closed {
                break;
            }
            let Some(at) = next else {
                // What is in the buffer has nowhere to go.
                let ends = self.may_end();
                return if ends { Ok(false) } else { Err(wrong(None, "the shutdown hangs")) };
            };
            self.now = self.now.max(at);
            drive.advance(self.now, &mut self.done);
            self.take_strikes();
        }
        let cleared = self.drive.as_mut().map_or(Ok(()), Stack::clear);
        if let Err(error) = cleared {
            // Power went: all of it is still there, and is written again.
            let words = || format!("the cache is not cleared: {error}");
            return if self.rig.is_off() { Ok(false) } else { Err(wrong(None, words())) };
        }
        self.rig.flash.close();
        self.contract.closed();
        if !self.is_frozen && !self.may_withhold() {
            // What a frozen drive has there stays, and what was not taken since.
            self.empty_cache();
        }
        self.rig.counts.clean_closes += 1;
        self.note(None, || "the drive is shut down".into());
        Ok(true)
    }

    /// The range of a request in cells. A trim takes only whole blocks.
    fn cells(&self, ask: &Ask) -> (u64, u64) {
        let (mut first, mut end) = (ask.sector, ask.sector + ask.count);
        if ask.op == BlockOp::Trim {
            first = first.next_multiple_of(BLOCK_BYTES / SECTOR_BYTES);
            end = (end - end % (BLOCK_BYTES / SECTOR_BYTES)).max(first);
        }
        (first / self.cell_sectors, (end - first) / self.cell_sectors)
    }

    /// Sends a request. There must be room: at most [`MOST_AT_ONCE`].
    pub fn send(&mut self, ask: Ask) -> Result<(), Violation> {
        let ask = (self.host)(ask);
        let slot = self.free.pop().expect("the caller saw room");
        let (cell, cells) = self.cells(&ask);
        let per_block = BLOCK_BYTES / SECTOR_BYTES;
        let block = ask.sector / per_block;
        let blocks = (ask.sector + ask.count).div_ceil(per_block) - block;
        let at = match ask.op {
            BlockOp::Read => self.contract.sent(),
            BlockOp::Flush => self.contract.sent(),
            BlockOp::Write => self.contract.begin(cell, cells, false, ask.fua),
            BlockOp::Trim | BlockOp::WriteZeroes => self.contract.begin(cell, cells, true, ask.fua),
        };
        let sent = self.contract.now();
        let since = self.open.iter().flatten().map(|request| request.sent).min().unwrap_or(sent);
        self.open[slot] = Some(Request { op: ask.op, block, blocks, cell, cells, at, sent, since });
        self.rig.counts.note(ask.op, ask.fua);
        if !matches!(ask.op, BlockOp::Read | BlockOp::Flush) {
            let data = if ask.op == BlockOp::Write { self.stored(ask.count) } else { 0 };
            self.in_cache.sent(slot, (block, blocks), data);
            let parts = [ask.sector, ask.sector + ask.count].into_iter();
            let mut parts = parts.filter(|end| self.setup.protected && end % per_block > 0);
            self.lacks_a_part |= parts.any(|end| self.contract.may_be_lost(end / per_block));
        }
        let about = (ask.op != BlockOp::Flush).then_some((block, blocks));
        self.note(about, || format!("sent {ask:?} as {slot}, at {at} of the contract"));
        if let Some(status) = self.answers_itself(ask.op) {
            let (id, op, at, buffer) = (slot as u64, ask.op, self.now, Buffer::empty());
            return self.completed(BlockDone { id, op, status, at, buffer });
        }
        let req = self.request(slot, ask, cell, cells, at);
        self.queue.push(req).expect("there is a place for each");
        self.submit();
        if self.rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(()) }
    }

    /// What a broken host answers without asking the drive.
    fn answers_itself(&self, op: BlockOp) -> Option<Status> {
        let now_and_then = self.rig.counts.requests.is_multiple_of(512);
        match (self.broken?, op) {
            (Break::DropFlush, BlockOp::Flush) => Some(Status::SUCCESS),
            (Break::DropTrim, BlockOp::Trim | BlockOp::WriteZeroes) => Some(Status::SUCCESS),
            (Break::EndEarly, BlockOp::Write) if now_and_then => Some(Status::READ_ONLY),
            (Break::Withhold, BlockOp::Read) if now_and_then => Some(Status::UNRECOVERED_READ),
            _ => None,
        }
    }

    fn request(&mut self, slot: usize, ask: Ask, cell: u64, cells: u64, at: u32) -> BlockReq {
        let Ask { op, fua, sector, count } = ask;
        let (offset, len) = match op {
            BlockOp::Flush => (0, 0),
            _ => (sector * SECTOR_BYTES, count * SECTOR_BYTES),
        };
        let buffer = match op {
            BlockOp::Read | BlockOp::Write => self.buffer(slot, op, len),
            _ => Buffer::empty(),
        };
        let fua = fua && self.broken != Some(Break::DropFua);
        // Any, for each write another, and sometimes one that there is not.
        let drawn = u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let placement = (drawn % u64::from(self.setup.streams + 1)) as u8;
        let queue = self.queue_of(at / 8);
        let mut req = BlockReq { id: slot as u64, op, fua, placement, queue, offset, len, buffer };
        if op == BlockOp::Write {
            let each = req.buffer.len() / cells as usize;
            for (i, bytes) in req.buffer.bytes_mut().chunks_exact_mut(each).enumerate() {
                words::fill(bytes, self.contract.value(at, cell + i as u64));
            }
        }
        req
    }

    /// Any queue, sometimes one that there is not; some requests in a row by the same,
    /// as else few could be made one.
    fn queue_of(&self, few: u32) -> u8 {
        let queues = &self.setup.queues;
        let drawn = u64::from(few).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if queues.is_on() { (drawn % u64::from(queues.count + 1)) as u8 } else { 0 }
    }

    /// Bytes that are kept of so many sectors.
    fn stored(&self, sectors: u64) -> u64 {
        sectors * SECTOR_BYTES * u64::from(self.setup.kept) / BLOCK_BYTES
    }

    fn buffer(&mut self, slot: usize, op: BlockOp, len: u64) -> Buffer {
        let stored = self.stored(len / SECTOR_BYTES);
        let mut buffer = self.buffers.request(slot, stored as usize);
        if op == BlockOp::Read {
            self.buffers.mark(&mut buffer);
        }
        buffer
    }

    fn submit(&mut self) {
        if let Some(drive) = &mut self.drive
            && !self.queue.is_empty()
        {
            drive.submit(self.now, &mut self.queue);
        }
    }

    fn hangs(&self) -> Violation {
        let open: Vec<&Request> = self.open.iter().flatten().collect();
        let counters = self.drive.as_ref().map(Stack::counters);
        wrong(None, format!("the drive hangs; it did {counters:?}; under way are {open:?}"))
    }

    fn completed(&mut self, done: BlockDone) -> Result<(), Violation> {
        let slot = done.id as usize;
        let Some(request) = self.open.get_mut(slot).and_then(Option::take) else {
            return Err(wrong(None, format!("request {slot} completed twice: {done:?}")));
        };
        self.free.push(slot);
        self.rig.flash.power().progress();
        if !is_done(done.status) {
            self.buffers.request_done(slot, done.buffer);
            self.in_cache.failed(slot);
            return self.failed(&request, done.status);
        }
        match request.op {
            BlockOp::Flush => self.contract.flushed(request.at),
            BlockOp::Read => {
                let seen =
                    |contract: &Contract, cell, value| contract.may_read(cell, value, request.at);
                let cells = (request.cell, request.cells);
                self.compare(cells, done.buffer.bytes(), "a read", seen)?;
                self.saw(cells, done.buffer.bytes(), request.at);
            }
            _ => {
                self.in_cache.done(slot);
                self.contract.end(request.at);
            }
        }
        self.buffers.request_done(slot, done.buffer);
        let about = (request.op != BlockOp::Flush).then_some((request.block, request.blocks));
        self.note(about, || format!("done {:?} {slot}", request.op));
        Ok(())
    }
}
