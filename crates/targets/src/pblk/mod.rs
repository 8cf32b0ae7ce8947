//! pblk: a fully associative block target.
//!
//! Any logical block may be anywhere. Writes are gathered into rows, by stream, striped
//! over the parallel units, and complete when they are in the buffer; a flush
//! or FUA completes when they are in flash. What collection moves goes to
//! chunks of its own. After the host-based translation layer of `003`
//! (LightNVM, section 3) and of Linux.
//!
//! Guarantees: a read sees every write and trim that completed before it was
//! submitted; at any time flash and buffer together hold the newest copy of
//! each block, and flash alone the newest one that was flushed; reads never
//! wait for collection above the drive. Bad requests and device errors come
//! back as the request's status.
//!
//! Files: [`map`] where each block is, [`space`] chunks and victims,
//! [`units`] rows on their way, `requests` how requests come in and end, `writes`
//! the way into the buffer, `flushes` what ends when it is in flash, `stripe` where its next row
//! goes, `programs` the way there, `pump` what follows when something has happened. `collect` is garbage
//! collection, `collector` what is known of it, `limiter` its pace, `idle` when nobody asks, `wear` leveling,
//! `refresh` chunks moved on request, `failures` what becomes of what fails, `window`
//! what is programmed and cannot be read yet, `openings` chunks that are open where that is limited, `end` of a drive without room, `hints` what is fetched into the caches, `stories` where
//! a request's time went. What makes it durable: `checkpoint` writes the map, `own` and `meta` are the stream that it
//! goes with and where its pages are, `mirrors` and `root` where all begins, `table`
//! what is known of chunks, `log` what was given up, `record` the bytes of these;
//! `start` how a target is made, `recover` how it is found, with `ends` of open chunks, `search` for the root and `scan` of what came after it,
//! `load` the map's pages then, `map_cache` which of them are held. `target` is what all block targets have.

mod checkpoint;
mod collect;
mod collector;
mod config;
mod copies;
mod end;
mod ends;
mod failures;
mod flushes;
mod hints;
mod idle;
mod limiter;
mod load;
mod log;
mod map;
mod map_cache;
mod memory;
mod meta;
mod mirrors;
pub mod mutation;
mod openings;
mod own;
mod programs;
mod pump;
mod ranks;
mod readers;
mod record;
mod recount;
mod recover;
mod refresh;
mod requests;
mod root;
mod scan;
mod search;
mod space;
mod start;
mod stories;
mod stripe;
mod table;
mod target;
mod units;
mod wear;
mod window;
mod writes;

use std::collections::{BTreeMap, VecDeque};

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa};
use port::story::Wanted;
use port::{BlockDone, BlockReq, Buffer, Port, Ring, Shape, Slots, Story, Time};
use port::{Turn, turn_by_events};
use xxhash_rust::xxh3::Xxh3;

pub use config::{
    MAX_STREAMS, Most, PblkConfig, PblkError, held_blocks, own_blocks, reserve_chunks, with_reserve,
};
pub use ftl::{Memory, Victim, WriteCounters};
pub use map_cache::LEAST_MAP_PAGES;
pub use memory::tables;
pub use recover::Peek;

use checkpoint::Checkpoint;
use collector::{Collector, Stage, Survivors};
use copies::Lists;
use flushes::Flush;
use hints::Hints;
use idle::Idle;
use load::Load;
use log::Log;
use map::Map;
use map_cache::MapCache;
use meta::Meta;
use openings::Openings;
use ranks::Ranks;
use readers::Readers;
use requests::{Partial, Request};
use root::Mirror;
use space::Space;
use stories::Told;
use stripe::Stripe;
use table::Table;
use units::Units;
use window::Window;

/// Requests that may be inside at once.
const DEPTH: usize = 1024;

/// The longest read or write.
const MAX_BYTES: u64 = 1 << 20;

/// Requests for parts of a block that may be inside at once.
const PARTIALS: usize = 256;

/// Of these, those that writes leave to a read, which needs two at most. A write
/// may keep its own until collection makes room, which may itself wait for reads:
/// after a start nothing is collected before all that wait for a page are let in.
const PARTIALS_OF_READS: usize = 2;

/// Commands that wait for the drive before requests are refused.
const BACKLOG: usize = 1024;

/// Rows of own blocks beside those that a checkpoint has on their way: for the
/// log and the root.
const OWN_ROWS: usize = 5;

/// The user's side: what was asked for and has not ended.
struct Host {
    requests: Slots<Request>,
    partials: Slots<Partial>,
    /// A block of memory for each part of one.
    scratch: Vec<Buffer>,
    /// Writes whose blocks are not all in the buffer yet, oldest first.
    waiting: Ring<u32>,
    /// Parts of blocks whose old bytes have arrived, to be put in the buffer.
    merges: VecDeque<u32>,
    /// Flushes and FUA writes, with what must be programmed.
    flushes: VecDeque<Flush>,
    /// Of these, those that the drive's flush under way covers.
    syncing: usize,
    /// What has ended.
    ready: Ring<BlockDone>,
}

/// The collection of all parallel units.
struct Collectors {
    /// By rank.
    of: Vec<Collector>,
    /// Reads of survivors.
    survivors: Vec<Survivors>,
    /// By victim, of each of its blocks whose it is: since one of some victim
    /// could not be read.
    holders: BTreeMap<usize, Vec<u64>>,
    /// Passes over the map for that.
    searches: u64,
    lists: Lists,
}

/// What makes map and trims durable.
struct Saved {
    checkpoint: Checkpoint,
    mirrors: [Mirror; 2],
    meta: Meta,
    table: Table,
    log: Log,
}

/// What has happened and decides what can be done.
struct Facts {
    /// Something was not acted on yet.
    news: bool,
    /// Parallel units of which that is so: their collection may go on, or they
    /// may take a row again.
    touched: Ranks,
    /// So many chunks are worn out that nothing more is written.
    read_only: bool,
    /// Nothing can be made durable any more.
    dead: bool,
}

/// What goes to the drive, and has come back.
struct Wire {
    out: Ring<VectorCmd>,
    done: Ring<VectorDone>,
    /// Chunks to be erased when what is before them has gone out: with chunks that
    /// hold nothing more there is no bound to how many there are at once.
    erases: Vec<u32>,
}

/// The block target over an open-channel drive.
pub struct Pblk<D> {
    device: D,
    wire: Wire,
    geometry: Geometry,
    config: PblkConfig,
    shape: Shape,
    kept: usize,
    host: Host,
    map: Map,
    /// Pages of the map that are not there yet.
    load: Option<Box<Load>>,
    /// Which pages are held, where not all are.
    map_cache: Option<Box<MapCache>>,
    space: Space,
    units: Units,
    window: Window,
    /// What is open, where that is limited.
    openings: Option<Box<Openings>>,
    stripe: Stripe,
    collectors: Collectors,
    /// By chunk: how far its collection is.
    chunks: Box<[Stage]>,
    readers: Readers,
    saved: Saved,
    facts: Facts,
    idle: Idle,
    counters: WriteCounters,
    hints: Hints,
    told: Option<Box<Told>>,
}

const _: () = assert!(DEPTH <= 1 << 16 && PARTIALS <= 1 << 16, "a number is 16 bits of a cookie");

ftl::cookies! {
    /// What a completion of the drive belongs to, and which one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Cookie {
        /// A user read: request, chunk.
        Read(request: u32 = 16, chunk: usize = 44),
        /// The old bytes of a part of a block: partial, chunk.
        Partial(partial: u32 = 16, chunk: usize = 44),
        /// A program: unit.
        Program(unit: u32 = 32),
        /// A collection read: its buffer.
        Survivors(buffer: u32 = 32),
        /// An erase: chunk.
        Reset(chunk: u32 = 32),
        /// A program of own blocks: row.
        Own(row: u32 = 32),
        /// An erase, or retirement, of a chunk for roots: chunk.
        Anchor(chunk: u32 = 32),
        /// A retirement: chunk.
        Retire(chunk: u32 = 32),
        /// Padding of a chunk that was left: chunk, its first block.
        Pad(chunk: u32 = 32, first: u32 = 25),
        /// A read of pages of the map: which.
        Load(number: u32 = 32),
        /// A read of a page of the map that was not held: which.
        MapPage(number: u32 = 32),
        /// The drive's flush for the user's.
        Flush,
        /// The drive's flush for a checkpoint.
        Sync,
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// The outside of the drive.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Takes the memory for all its tables now, so that real time never waits
    /// for the system to find it.
    pub fn populate(&self) {
        self.map.populate();
        self.space.populate();
    }

    /// How it was set up.
    pub fn config(&self) -> PblkConfig {
        self.config
    }

    /// The drive below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The drive below, to be told how it is to err while nothing is inside.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// What was written and collected so far.
    pub fn counters(&self) -> WriteCounters {
        self.counters
    }

    /// Free chunks of all parallel units.
    pub fn free_chunks(&self) -> u64 {
        self.space.all_free()
    }

    /// Bytes of memory that its tables and buffers take.
    pub fn memory(&self) -> Memory {
        memory::of_all(&self.device, &self.config)
    }

    /// Rows sent since the last whole checkpoint began: what recovery would
    /// read.
    pub fn since_checkpoint(&self) -> u64 {
        self.saved.checkpoint.since()
    }

    /// Data rows after which the next checkpoint begins.
    pub fn checkpoint_rows(&self) -> u64 {
        self.saved.checkpoint.interval()
    }

    /// Whether it takes no more writes: too much is worn out, or nothing can be
    /// made durable any more.
    pub fn is_read_only(&self) -> bool {
        self.facts.read_only
    }

    /// Whether pages of the map have not been read since the start.
    pub fn is_loading(&self) -> bool {
        self.load.is_some()
    }

    /// Takes the target away, as a power cut does: what was only in its buffer
    /// is lost.
    pub fn into_device(self) -> D {
        self.device
    }

    /// A hash of the map and all counters: equal where two runs were equal.
    pub fn state_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for lba in 0..self.map.blocks() {
            let ppa = self.map.get(lba).ppa().map_or(u64::MAX, |ppa| ppa.0);
            hash.update(&ppa.to_le_bytes());
        }
        let c = self.counters;
        for word in [c.user, c.gc, c.padding, c.metadata, c.absorbed, c.collections, c.moved] {
            hash.update(&word.to_le_bytes());
        }
        hash.update(&self.space.total_valid().to_le_bytes());
        hash.digest()
    }

    /// Sends a command down. Requests are refused long before the backlog is
    /// full.
    #[inline(always)]
    fn send(&mut self, make: impl FnOnce() -> VectorCmd) {
        self.wire.out.put(make);
    }

    /// A command for `count` neighbours.
    #[inline(always)]
    fn run(
        cookie: Cookie,
        op: VectorOp,
        ppa: Ppa,
        count: u32,
        content: Content,
        buffer: Buffer,
    ) -> VectorCmd {
        let (whose, cookie, count) = (cookie.whose(), cookie.pack(), count as u8);
        VectorCmd { whose, ..VectorCmd::new(cookie, op, content, (ppa, count), buffer) }
    }

    /// Whether nothing happens here before the drive has completed something.
    #[inline]
    fn waits_for_the_drive(&self) -> bool {
        self.host.ready.is_empty()
            && self.wire.out.is_empty()
            && !self.idle.is_waiting()
            && (self.waiting_rows() == 0 || !self.device.has_work_of_its_own())
    }

    /// Gives what has ended, as far as there is room.
    #[inline]
    fn give(&mut self, done: &mut Ring<BlockDone>) {
        self.host.ready.pour(done);
        if !self.host.ready.is_empty() && self.has_reads_to_tell() {
            self.make_stories();
        }
    }

    /// Gives the drive what waits for it.
    #[inline]
    fn submit_out(&mut self, now: Time) {
        if !self.wire.out.is_empty() {
            self.device.submit(now, &mut self.wire.out);
        }
    }
}

impl<D: OpenChannel> Port for Pblk<D> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        if !cmds.is_empty() {
            self.idle.end(now);
        }
        if self.load.is_some() {
            self.submit_loading(now, cmds);
        } else if self.map_cache.is_some() {
            self.submit_cached(now, cmds);
        } else {
            self.fetch_first(cmds);
            while let Some(req) = cmds.front() {
                if !self.has_room(req) {
                    break;
                }
                self.fetch_next(cmds);
                let req = cmds.pop().expect("it was looked at");
                self.accept(now, req);
            }
        }
        self.follow(now);
    }

    #[inline(always)]
    fn next_event(&self) -> Option<Time> {
        match self.host.ready.front() {
            Some(done) => Some(done.at),
            None if self.idle.is_waiting() => self.next_or_idle(self.device.next_event()),
            None => self.device.next_event(),
        }
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.idle.is_waiting() {
            self.put_idle_off(to);
        }
        self.device.advance(to, &mut self.wire.done);
        if !self.wire.done.is_empty() {
            self.handle_all(to);
        }
        // Also where nothing was done for this target: a drive that had work of
        // its own may be through with it.
        self.look_for_end(to);
        if self.idle.is_waiting() {
            self.begin_idle(to);
        }
        self.give(done);
    }

    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Turn {
        if !cmds.is_empty() {
            self.submit(now, cmds);
        }
        while cmds.is_empty() && self.waits_for_the_drive() {
            match self.device.turn(now, until, &mut self.wire.out, &mut self.wire.done) {
                Turn::Completed(at) => {
                    self.handle_all(at);
                    self.look_for_end(at);
                    self.give(done);
                    if !done.is_empty() {
                        return Turn::Completed(at);
                    }
                }
                nothing_more => return nothing_more,
            }
        }
        turn_by_events(self, until, cmds, done)
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.hint_request(req);
    }

    fn set_stories(&mut self, on: bool) {
        self.device.set_stories(on);
        self.told = on.then(|| Told::new(self.host.ready.len()));
    }

    fn tell_only(&mut self, wanted: Wanted) {
        if let Some(told) = &mut self.told {
            told.tell_only(wanted);
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.tell_of(number, story)
    }
}
