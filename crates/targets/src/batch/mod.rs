//! batch: a target with a multi-page write interface.
//!
//! After Do, Lomet and Picoli, "Improving CPU I/O Performance via SSD Controller
//! FTL Support for Batched Writes" (DaMoN 2019). The host writes buffers of many
//! unrelated logical pages (LPAGEs), each named by its LPID, and reads single
//! ones. A batch is acknowledged when it is durable; there is no write cache.
//!
//! Guarantees, section 3.1 of the paper:
//! - a read that completed before a batch was submitted sees nothing of it;
//! - a read submitted after a batch was acknowledged sees all of it;
//! - reads in between see a prefix, in the order of the log, of the batches on
//!   their way, each whole; and a read sees no less than one that completed
//!   before it was submitted;
//! - of each batch all pages appear or none, also after a power cut; and those
//!   that appear are a prefix in the order of the log.
//!
//! What may fail: a bad request gets a status and changes nothing. A program
//! that fails is done elsewhere. When the log or the checkpoint record cannot be
//! written any more ([`Batch::fault`]), writes are refused, and all that was
//! acknowledged can be read. Each request that was taken ends.
//!
//! The paper's words: RBLOCK is the drive's logical block of 4 KiB, WBLOCK a row
//! of a chunk, EBLOCK a chunk, TAG the out-of-band bytes. The batches of
//! collection and of tables' pages go through the log as the host's do.
//!
//! Files: `map`, `garbage`, `wear` the tables, `paged`, `dirty` and `oldest` what
//! is known of their pages, `tables` their pages by name, `page` names and TAGs,
//! `side` the side table; `record` the log's records, `log` its rows; `space`
//! chunks and streams; `write` a batch, `writes` its life, `read` reads and flushes;
//! `collect` collection, `refresh` chunks on request; `checkpoint`, `slot`
//! checkpoints and their record; `counters` what it tells of itself; `start` how a target is
//! made, `recover` how it is found, `restore` the tables then,
//! `rebuild` those that are damaged, `repair` those that turn out to be while the
//! target serves, `walk` the log as recovery reads it, `story`
//! what it says; `scan` what recovery is held
//! against, `mutation` ways to break all that on purpose. See `docs/targets/batch.md`.

mod checkpoint;
mod collect;
mod config;
mod counters;
mod dirty;
mod garbage;
mod location;
mod log;
mod map;
pub mod mutation;
mod oldest;
mod page;
mod paged;
mod read;
mod rebuild;
mod record;
mod recover;
mod refresh;
mod repair;
mod restore;
mod scan;
mod side;
mod slot;
mod space;
mod start;
mod story;
mod tables;
mod victim;
mod walk;
mod wear;
mod write;
mod writes;

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa};
use ftl::is_read;
use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, BatchShape, Buffer, Port, Ring, Time};
use port::{Slots as Table, Status};

pub use config::{BatchConfig, BatchError, Damaged};
pub use counters::{BatchCounters, Recovery};
pub use scan::ScanError;

use checkpoint::Checkpoint;
use collect::Collector;
use config::Layout;
use garbage::Garbage;
use log::Log;
use map::Map;
use read::{Flush, Read};
use repair::Repair;
use side::Side;
use slot::Slots;
use space::Space;
use wear::Wear;
use write::{Stage, Write};

const BLOCK: usize = BLOCK_BYTES as usize;

/// The drive during start-up.
type Runner<'a, D> = ftl::Runner<'a, D, BatchError>;

/// Batches of tables' pages that may be on their way, beside collection's.
const PAGE_WRITES: usize = 4;

/// Rows of tables' pages on their way at once.
const WHOLE_ROWS: usize = 32;

/// Pages of MAP being read or looked up, and reads through buffers of the
/// target's.
const BLOCK_BUFFERS: usize = 64;

/// Erases at once, and rows of the log and of a checkpoint record.
const OTHERS: usize = 64 + 4;

ftl::cookies! {
    /// What a completion of the drive belongs to, and which one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Cookie {
        /// A host's read.
        Read(id: u32 = 28),
        /// A host's read through a buffer of the target's.
        Bounce(id: u32 = 28),
        /// A page of MAP, to its slot.
        Load(slot: u32 = 28),
        /// A page of MAP that has no slot, for a host's read.
        LookUp(id: u32 = 28),
        /// A row of the log.
        Log,
        /// A row of pages: batch, row.
        Pages(id: u32 = 28, row: u32 = 28),
        /// A collector's read: collector, run.
        Survivors(collector: u32 = 28, run: u32 = 28),
        /// An erase or retirement: chunk.
        Erase(chunk: u32 = 28),
        /// A row of a checkpoint record.
        SlotRow,
        /// An erase of a slot's chunk.
        SlotErase,
        /// The drive's flush.
        Flush,
        /// A row that pages of MAP are searched in: reader.
        Repair(reader: u32 = 28),
    }
}

/// The target with batched writes over an open-channel drive.
pub struct Batch<D> {
    device: D,
    geometry: Geometry,
    config: BatchConfig,
    layout: Layout,
    shape: BatchShape,
    kept: usize,
    cached: bool,
    now: Time,

    map: Map,
    garbage: Garbage,
    wear: Wear,
    side: Side,
    space: Space,
    log: Log,
    slots: Slots,
    checkpoint: Checkpoint,
    collectors: Vec<Collector>,
    repair: Repair,

    /// The host's batches, then those of collection, then those of tables'
    /// pages.
    writes: Vec<Write>,
    /// Host's batches that are not put down for the log yet, oldest first.
    arrivals: VecDeque<u32>,
    /// How many came.
    arrived: u64,
    /// In the log and not installed, by LSN.
    order: VecDeque<u32>,
    /// Rows whose records are durable, to be programmed in this order.
    issue: VecDeque<(u32, u32)>,
    next_lsn: u64,
    /// All batches up to this LSN are installed.
    applied: u64,

    reads: Table<Read>,
    /// Reads that find no slot for their page of MAP.
    stalled: VecDeque<u32>,
    /// Reads that wait for a buffer of the target's: for the page, and for its
    /// page of MAP.
    bounces: VecDeque<u32>,
    look_ups: VecDeque<u32>,
    flushes: VecDeque<Flush>,
    /// Slots whose pages of MAP are to be read.
    loads: VecDeque<u32>,

    /// Chunks with nothing valid, each with the LSN that the durable log must
    /// say to be installed before it is erased.
    leaving: VecDeque<(usize, u64)>,
    erasing: usize,
    /// A host's batch waits for free chunks.
    short_of_room: bool,
    /// Somebody waits for a slot of the cache.
    short_of_slots: bool,
    clean_hand: usize,
    /// Chunks of which a program failed, but for those that are retired.
    failed: Vec<usize>,
    /// Chunks to be collected since somebody asked, in this order.
    asked: VecDeque<usize>,
    /// The next one to be looked at for its wear.
    looked: usize,
    /// Chunks that became collectable or free: a count.
    changes: u64,
    /// The state in which no victim was found.
    no_victim: u64,
    /// Checkpoints made in the hope for room.
    forced: u32,
    fault: Option<BatchError>,

    data_rows: Vec<Buffer>,
    whole_rows: Vec<Buffer>,
    blocks: Vec<Buffer>,
    slot_row: Option<Buffer>,
    scratch: Vec<(u64, u32)>,
    /// The drive's flush is on its way.
    syncing: bool,

    out: Ring<VectorCmd>,
    device_done: Ring<VectorDone>,
    ready: Ring<BatchDone>,
    counters: BatchCounters,
    recovery: Recovery,
}

impl<D: OpenChannel> Batch<D> {
    /// The outside of the target.
    pub fn shape(&self) -> &BatchShape {
        &self.shape
    }

    /// What it has done since it was started.
    pub fn counters(&self) -> BatchCounters {
        self.counters
    }

    /// What its start found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Why it takes no writes any more, if so.
    pub fn fault(&self) -> Option<&BatchError> {
        self.fault.as_ref()
    }

    /// The latest time that it was told. After a start it is later than the time
    /// that was given: the drive was at work.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The drive below.
    pub fn below(&self) -> &D {
        &self.device
    }

    /// The drive below, to be told what is no command.
    pub fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Takes the target away; what is on its way is lost.
    pub fn into_below(self) -> D {
        self.device
    }

    /// Asks for a checkpoint; it begins when the one under way, if any, is over.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint.asked = true;
    }

    /// Whether a checkpoint is under way or asked for.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_at_work()
    }

    /// Rows of log since the last checkpoint began.
    pub fn log_rows(&self) -> u64 {
        self.log.written - self.checkpoint.rows
    }

    /// A chunk, to be changed. It may be a candidate for collection then.
    #[inline]
    fn chunk_mut(&mut self, chunk: usize) -> &mut space::Chunk {
        self.garbage.by_valid.suspect(chunk);
        &mut self.space.chunks[chunk]
    }

    /// A program of a chunk failed.
    #[cold]
    fn fail_chunk(&mut self, chunk: usize) {
        self.garbage.by_valid.suspect(chunk);
        self.space.fail(chunk);
        if !self.failed.contains(&chunk) {
            self.failed.push(chunk);
        }
    }

    fn send(
        &mut self,
        cookie: Cookie,
        op: VectorOp,
        content: Content,
        ppa: Ppa,
        count: u8,
        buffer: Buffer,
    ) {
        if op == VectorOp::Write {
            self.counters.programmed += u64::from(count);
        }
        let cookie = cookie.pack();
        self.out.put(|| VectorCmd::new(cookie, op, content, (ppa, count), buffer));
    }

    /// Requests inside.
    fn inside(&self) -> usize {
        let users = self.writes[..self.config.batches].iter();
        let batches = users.filter(|write| write.stage != Stage::Idle).count();
        batches + self.reads.live() + self.flushes.len() + self.ready.len()
    }

    /// Does all that can be done now.
    fn pump(&mut self, now: Time) {
        loop {
            let mut any = self.install(now);
            if self.fault.is_none() {
                any |= self.admit(now);
                any |= self.checkpoint(now);
                any |= self.clean();
                any |= self.repair();
                any |= self.collect(now);
                any |= self.start_row(now);
            }
            any |= self.send_rows();
            any |= self.retry_reads(now);
            any |= self.sync();
            if !any {
                break;
            }
        }
        self.device.submit(now, &mut self.out);
        let waits = self.fault.is_none() && self.log.waits_for_room();
        if waits && self.device.next_event().is_none() {
            // Nothing is under way that could give any.
            self.fail_target(now, BatchError::NoSpace);
        }
    }

    /// Goes on with reads that found no slot or buffer.
    fn retry_reads(&mut self, now: Time) -> bool {
        self.send_loads();
        self.send_bounces();
        self.send_look_ups();
        let count = self.stalled.len();
        for _ in 0..count {
            let id = self.stalled.pop_front().expect("they were counted");
            self.start_read(now, id);
        }
        self.stalled.len() < count
    }

    /// On a drive with a cache: has it made durable what is programmed and
    /// waits for that.
    fn sync(&mut self) -> bool {
        if !self.cached || self.syncing {
            return false;
        }
        let waits = |write: &Write| write.stage == Stage::Written;
        let wanted = self.log.wants_sync()
            || self.checkpoint.wants_sync()
            || self.order.iter().any(|&id| waits(&self.writes[id as usize]));
        if !wanted {
            return false;
        }
        self.syncing = true;
        self.log.note_sync();
        self.checkpoint.syncing = self.checkpoint.wants_sync();
        for &id in &self.order {
            let write = &mut self.writes[id as usize];
            write.syncing = waits(write);
        }
        self.send(Cookie::Flush, VectorOp::Flush, Content::Data, Ppa(0), 0, Buffer::empty());
        true
    }

    fn sync_done(&mut self, now: Time, status: Status) {
        self.syncing = false;
        if !status.is_ok() {
            self.fail_target(now, BatchError::Flush(status));
            return;
        }
        for &id in &self.order {
            let write = &mut self.writes[id as usize];
            if std::mem::take(&mut write.syncing) {
                write.stage = Stage::Synced;
            }
        }
        if self.log.is_synced() {
            self.row_durable();
        }
        if self.checkpoint.syncing {
            self.record_durable_at_slot();
        }
    }

    /// A command of the drive is over.
    fn complete(&mut self, now: Time, done: VectorDone) {
        let VectorDone { cookie, status, failed, buffer, .. } = done;
        match Cookie::unpack(cookie) {
            Cookie::Read(id) => self.read_done(now, id, status, buffer),
            Cookie::Bounce(id) => self.bounce_done(now, id, status, buffer),
            Cookie::Load(slot) => self.load_done(now, slot, status, buffer),
            Cookie::LookUp(id) => self.looked_up(now, id, status, buffer),
            Cookie::Log => self.row_done(now, status, buffer),
            Cookie::Pages(id, row) => self.pages_done(now, id, row, (status, failed), buffer),
            Cookie::Survivors(c, run) => self.survivors_done(c, run, (status, failed), buffer),
            Cookie::Erase(chunk) => self.erase_done(chunk as usize, status),
            Cookie::SlotRow => self.record_row_done(now, status, buffer),
            Cookie::SlotErase => self.slot_erased(now, status),
            Cookie::Flush => self.sync_done(now, status),
            Cookie::Repair(reader) => self.row_searched(reader, (status, failed), buffer),
        }
    }

    fn take(&mut self, now: Time, req: BatchReq) {
        let status = self.shape.check(&req);
        let refused = match req.op {
            BatchOp::WriteBatch if status.is_ok() && self.fault.is_some() => Status::READ_ONLY,
            _ => status,
        };
        if !refused.is_ok() {
            let BatchReq { id, op, buffer, .. } = req;
            match op {
                BatchOp::Read => {
                    self.counters.reads += 1;
                    self.counters.failed_reads += 1;
                }
                BatchOp::WriteBatch => self.counters.failed_batches += 1,
                BatchOp::Flush => {}
            }
            self.ready.put(|| BatchDone { id, op, status: refused, at: now, buffer });
            return;
        }
        match req.op {
            BatchOp::Read => self.take_read(now, req.id, req.lpid, req.buffer),
            BatchOp::WriteBatch => self.take_batch(req),
            BatchOp::Flush => self.take_flush(now, req.id),
        }
    }

    /// Lets all that is due at `to` happen.
    fn work(&mut self, to: Time) {
        self.now = self.now.max(to);
        loop {
            if self.device.next_event().is_some_and(|at| at <= to) {
                self.device.advance(to, &mut self.device_done);
            }
            let (waiting, moved) = (self.out.len(), !self.device_done.is_empty());
            while let Some(done) = self.device_done.pop() {
                self.complete(self.now, done);
            }
            self.take_notices();
            self.pump(self.now);
            let moved = moved || self.out.len() < waiting;
            if !moved || self.device.next_event().is_none_or(|at| at > to) {
                return;
            }
        }
    }
}

impl<D: OpenChannel> Port for Batch<D> {
    type Cmd = BatchReq;
    type Done = BatchDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BatchReq>) {
        self.now = self.now.max(now);
        let mut room = self.config.depth - self.inside();
        while room > 0 {
            let Some(req) = cmds.front() else { break };
            let users = &self.writes[..self.config.batches];
            if req.op == BatchOp::WriteBatch && users.iter().all(|write| write.stage != Stage::Idle)
            {
                break;
            }
            let req = cmds.pop().expect("it was looked at");
            self.take(self.now, req);
            room -= 1;
        }
        self.pump(self.now);
    }

    fn next_event(&self) -> Option<Time> {
        match self.ready.front() {
            Some(done) => Some(done.at),
            None => self.device.next_event(),
        }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BatchDone>) {
        if self.ready.is_empty() {
            self.work(to);
        }
        self.ready.pour(done);
    }
}
