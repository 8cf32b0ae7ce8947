//! kv: a target that keeps values by key.
//!
//! After Bjørling, "Operating System Support for High-Performance Solid State Drives"
//! (2016), chapter 6, section 4.3: a hash table leads from keys to physical blocks, with
//! no map below the key. Its values are blocks of the flash; here small ones are packed,
//! as in NVMKV, and large ones go over all parallel units.
//!
//! Guarantees:
//! - a put or delete that completed is seen by what comes after it; of one key they are
//!   done in the order in which they came;
//! - what completed before a successful flush, or with `durable`, is there after a power
//!   cut, unless another put or delete of its key came after it; any other key is as one
//!   of its puts or deletes left it, whole;
//! - a get reads its record and compares the key: two keys of one hash are never taken
//!   for each other.
//!
//! What may fail: a bad request gets a status and changes nothing. There may be no room
//! for a value, or for a key (`CAPACITY_EXCEEDED`). A program that fails is done
//! elsewhere. A record or row that cannot be read is its key's error
//! (`KEY_UNRECOVERED`). When records cannot be written, or the drive's flush fails,
//! puts and deletes are refused (`READ_ONLY`). Each request that was taken ends.
//!
//! Files: `place` where records are, `index` the table of them, `record` their bytes,
//! `space` chunks, `stream` the rows that are being filled, `rows` those on their way;
//! `request` the life of requests, `large` rows of large values, `list` listings;
//! `collect` and `mover` collection of chunks of records and of large values;
//! `checkpoint` checkpoints, `start` and `recover` how a target is made and found again;
//! `pump` what is done when something has happened; `tenant` the target beside targets of
//! blocks; `mutation` ways to break all that on
//! purpose. See `docs/targets/kv.md`.

mod checkpoint;
mod collect;
mod config;
mod index;
mod large;
mod list;
mod mover;
pub mod mutation;
mod place;
mod pump;
mod record;
mod recover;
mod request;
mod rows;
mod space;
mod start;
mod stream;
mod tenant;

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa, TAG_BYTES};
use ftl::WriteCounters;
use port::lazy::Lazy;
use port::{BLOCK_BYTES, Buffer, KvDone, KvReq, KvShape, Port, Ring, Time};

pub use config::{KvConfig, KvError, reserve_chunks};
pub use recover::KvRecovery;
pub use tenant::KvTenant;

use checkpoint::Checkpoint;
use collect::Collector;
use config::Layout;
use index::Index;
use mover::Mover;
use request::Request;
use space::Space;
use stream::Packer;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Bytes of a block that is kept whole, with its tag.
const WHOLE: usize = BLOCK + TAG_BYTES;

/// Erases under way at once.
const ERASES: usize = 16;

ftl::cookies! {
    /// What a completion of the drive belongs to.
    #[derive(Clone, Copy, Debug)]
    enum Cookie {
        /// A record, for a request.
        Record(slot: u32 = 16),
        /// A row of records: its number.
        Packed(number: u64 = 60),
        /// A row of a value that is written: request, chunk.
        Row(slot: u32 = 16, chunk: u32 = 32),
        /// A row of a value that is read.
        Fill(slot: u32 = 16),
        /// A row that is collected.
        Collect(row: u32 = 32),
        /// The record of a value that is moved; a row of it that is read; and written.
        MoverRecord,
        MoverRead,
        MoverWrite(chunk: u32 = 32),
        /// A row of a checkpoint.
        Checkpoint,
        /// An erase.
        Erase(chunk: u32 = 32),
        /// The drive's flush.
        Flush,
    }
}

/// A target with a key-value interface over an open-channel drive.
pub struct Kv<D> {
    device: D,
    geometry: Geometry,
    config: KvConfig,
    layout: Layout,
    shape: KvShape,
    kept: usize,
    cached: bool,
    now: Time,

    index: Index,
    space: Space,
    packer: Packer,
    /// By row of the drive: the hash of the key whose value has it; 0 of nobody's.
    owners: Lazy<u64>,

    requests: Vec<Request>,
    free: Vec<u32>,
    /// Those that wait for others of their key, for room for their record, and to send
    /// rows of their values; and records that were found in memory.
    waiting: VecDeque<u32>,
    appends: VecDeque<u32>,
    sends: VecDeque<u32>,
    found: VecDeque<(u32, Buffer)>,
    /// Requests that wait for rows of records, or for the drive's flush.
    syncers: usize,
    /// A key may be free.
    unlocked: bool,
    /// Rows of values under way, and at most.
    row_programs: usize,
    row_window: usize,
    /// Bytes of rows of values that are still to be sent.
    promised: u64,
    /// Bytes that may count at most, and chunks that are not offline.
    limit: u64,
    usable: usize,

    collector: Collector,
    mover: Mover,
    checkpoint: Checkpoint,
    recovery: KvRecovery,
    /// Somebody waits for a free chunk; collection gives none.
    short: bool,
    full: bool,
    erasing: usize,
    /// Chunks of large values are not erased yet.
    settling: bool,
    /// The drive's flush is on its way.
    syncing: bool,
    /// No more records can be made durable.
    fault: bool,
    /// Bytes of records that collection put in the stream, and are not counted yet.
    moved_bytes: usize,

    out: Ring<VectorCmd>,
    device_done: Ring<VectorDone>,
    ready: Ring<KvDone>,
    counters: WriteCounters,
}

impl<D: OpenChannel> Kv<D> {
    /// The outside of the target.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// What it has written and collected since it was started, in blocks.
    pub fn counters(&self) -> WriteCounters {
        self.counters
    }

    /// What its start found.
    pub fn recovery(&self) -> &KvRecovery {
        &self.recovery
    }

    /// Whether it takes no more puts and deletes.
    pub fn is_read_only(&self) -> bool {
        self.fault
    }

    /// Entries of the index: keys, and those that were deleted lately.
    pub fn entries(&self) -> usize {
        self.index.len()
    }

    /// Keys that are there. Looks at the whole index.
    pub fn keys(&self) -> u64 {
        self.index.all().filter(|entry| entry.place.is_live()).count() as u64
    }

    /// The time that it has come to.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Bytes that count on flash, and that may at most.
    pub fn stored(&self) -> (u64, u64) {
        (self.space.live(), self.limit)
    }

    /// Asks for a checkpoint; it begins when the one under way, if any, is over.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint.asked = true;
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

    fn row_bytes(&self) -> usize {
        self.geometry.row_blocks() as usize * BLOCK
    }

    /// Chunks that are to stay free of what is put, of what is deleted, and of what
    /// collection moves: there is always room for a checkpoint, and then for that.
    fn user_spare(&self) -> usize {
        self.layout.checkpoint + 3
    }

    fn delete_spare(&self) -> usize {
        self.layout.checkpoint + 2
    }

    fn collect_spare(&self) -> usize {
        self.layout.checkpoint
    }

    /// Free chunks with which there is no need to collect.
    fn enough_free(&self) -> usize {
        self.user_spare() + self.space.units().max(2)
    }

    #[inline]
    fn send(
        &mut self,
        cookie: Cookie,
        op: VectorOp,
        content: Content,
        ppa: Ppa,
        count: u8,
        buffer: Buffer,
    ) {
        let cookie = cookie.pack();
        self.out.put(|| VectorCmd::new(cookie, op, content, (ppa, count), buffer));
    }
}

impl<D: OpenChannel> Port for Kv<D> {
    type Cmd = KvReq;
    type Done = KvDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<KvReq>) {
        self.now = self.now.max(now);
        while self.free.len() > self.ready.len()
            && let Some(req) = reqs.pop()
        {
            self.take(self.now, req);
        }
        self.pump(self.now);
    }

    fn next_event(&self) -> Option<Time> {
        match self.ready.front() {
            Some(done) => Some(done.at),
            None => self.device.next_event(),
        }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<KvDone>) {
        if self.ready.is_empty() {
            self.work(to);
        }
        self.ready.pour(done);
    }
}
