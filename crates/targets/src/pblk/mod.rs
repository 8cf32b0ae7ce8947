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
//! the way into the buffer, `flushes` what ends when it is in flash, `programs` the
//! way there, `pump` what follows when something has happened. `collect` is garbage
//! collection, `collector` what is known of it, `limiter` its pace, `idle` when nobody asks, `wear` leveling,
//! `refresh` chunks moved on request, `failures` what becomes of what fails, `window`
//! what is programmed and cannot be read yet, `openings` chunks that are open where that is limited, `end` of a drive without room, `hints` what is fetched into the caches, `stories` where
//! a request's time went. What makes it durable: `checkpoint` writes the map, `own` and `meta` are the stream that it
//! goes with and where its pages are, `mirrors` and `root` where all begins, `table`
//! what is known of chunks, `log` what was given up, `record` the bytes of these;
//! `recover` start-up, with `ends` of open chunks, `search` for the root and `scan` of what came after it,
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
mod stories;
mod table;
mod target;
mod units;
mod wear;
mod window;
mod writes;

use std::collections::{BTreeMap, VecDeque};

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{ChunkState, Dimensions, Geometry, Ppa, TAG_BYTES};
use port::lazy::table;
use port::story::Wanted;
use port::{BLOCK_BYTES, BlockDone, BlockReq, Buffer, Port, Ring, Shape, Slots, Story, Time};
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
use meta::{ANCHORS, Meta, log_rows, metadata_chunks};
use openings::Openings;
use programs::Stripe;
use ranks::Ranks;
use readers::Readers;
use requests::{Partial, Request};
use root::{Mirror, Root};
use space::Space;
use stories::Told;
use table::Table;
use units::Units;
use window::{Window, held_rows};

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
    /// A target on a drive whose chunks are all free, or offline from the
    /// factory. A drive with too few that are not is read-only.
    pub fn new(device: D, config: PblkConfig) -> Result<Pblk<D>, PblkError> {
        let mut pblk = Pblk::empty(device, config)?;
        let geometry = pblk.geometry;
        for pu in geometry.pus_channels_first() {
            for chunk in (0..geometry.chunks()).map(|n| geometry.chunk_of(pu, n)) {
                if pblk.is_anchor(chunk) {
                    continue;
                } else if pblk.device.chunk(chunk).state == ChunkState::Offline {
                    pblk.lose(chunk);
                } else {
                    pblk.space.give(chunk);
                }
            }
            pblk.refresh(pu);
        }
        Ok(pblk)
    }

    /// Whether a chunk is kept for roots. Only the first two units have some;
    /// the others leave as many unused, so that all wear alike.
    fn is_anchor(&self, chunk: usize) -> bool {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        chunk - self.geometry.chunk_of(pu, 0) < ANCHORS as usize
    }

    /// A target that knows nothing of the drive's chunks yet.
    fn empty(device: D, config: PblkConfig) -> Result<Pblk<D>, PblkError> {
        let geometry = *device.geometry();
        check(&device, &config)?;
        let kept = device.kept();
        let row = geometry.row_blocks();
        let pus = geometry.total_pus();
        let at_once = device.rows_at_once();
        let rows = config::buffer_rows(config.write_buffer, &geometry, at_once);
        let row_bytes = row as usize * (kept as usize + TAG_BYTES);
        let keeps_data = u64::from(kept) == BLOCK_BYTES;
        let slots = geometry.chunk_slots();
        let blocks = config.bytes / BLOCK_BYTES;
        let pages = Map::pages_of(blocks, geometry.address_bits()) + Table::pages_of(slots);
        let meta = Meta::new(&geometry, pus as usize + OWN_ROWS, pages)?;
        let mirrors = mirrors(&device)?;
        let root_bytes = Root::rows(meta.directory.len(), row) as usize * row as usize;
        let own = metadata_chunks(&geometry.dimensions(), config.data_chunks);
        let partials = if keeps_data { PARTIALS } else { 0 };
        let mut space = Space::new(&geometry, &config, own)?;
        for pu in geometry.pus_channels_first() {
            for chunk in (ANCHORS..geometry.chunks()).map(|number| geometry.chunk_of(pu, number)) {
                space.note_wear(chunk, device.chunk(chunk).wear);
            }
        }
        let log_rows = u64::from(log_rows(geometry.dimensions().rows())) * u64::from(pus);
        let unreadable = device.timing().unreadable;
        let held = held_rows(&geometry, config.streams, unreadable);
        let units = Units::new(rows as u32, pus, row, kept, held)?;
        let mut pblk = Pblk {
            wire: Wire {
                out: Ring::new(2 * BACKLOG + 16 * pus as usize),
                done: Ring::new(device.depth()),
                erases: Vec::new(),
            },
            shape: Shape { bytes: config.bytes, kept, max_bytes: MAX_BYTES, depth: DEPTH },
            kept: kept as usize,
            host: Host {
                requests: Slots::new(DEPTH),
                partials: Slots::new(partials),
                scratch: Buffer::carve(partials, BLOCK_BYTES as usize)?,
                waiting: Ring::new(DEPTH),
                merges: VecDeque::with_capacity(PARTIALS),
                flushes: VecDeque::with_capacity(DEPTH),
                syncing: 0,
                ready: Ring::new(DEPTH),
            },
            map: Map::new(config.bytes / BLOCK_BYTES, geometry.address_bits())?,
            load: None,
            map_cache: map_cache(&config, geometry.address_bits())?,
            space,
            window: Window::new(unreadable, &geometry, held, &units),
            openings: Openings::new(&geometry, device.timing())?,
            units,
            stripe: Stripe::new(&geometry, at_once, rows as usize),
            collectors: Collectors {
                of: Collector::all(&geometry),
                survivors: Survivors::all(&geometry, row_bytes)?,
                holders: BTreeMap::new(),
                searches: 0,
                lists: Lists::new(2 * pus, device.copies_inside()),
            },
            chunks: table(Stage::default(), slots, "the target's chunks")?,
            readers: Readers::new(slots)?,
            saved: Saved {
                checkpoint: Checkpoint::new(root_bytes * BLOCK_BYTES as usize, pus, slots)?,
                mirrors,
                meta,
                table: Table::new(slots)?,
                log: Log::new(row, log_rows),
            },
            facts: Facts {
                news: false,
                touched: Ranks::new(pus as usize),
                read_only: false,
                dead: false,
            },
            idle: Idle::new(config.idle_collection),
            counters: WriteCounters::default(),
            hints: Hints::default(),
            told: None,
            device,
            geometry,
            config,
        };
        pblk.forget_copies();
        Ok(pblk)
    }

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

    /// Gives the drive what waits for it.
    #[inline]
    fn submit_out(&mut self, now: Time) {
        if !self.wire.out.is_empty() {
            self.device.submit(now, &mut self.wire.out);
        }
    }
}

/// The map cache of a drive that has one.
fn map_cache(config: &PblkConfig, address_bits: u32) -> Result<Option<Box<MapCache>>, PblkError> {
    if config.map_pages == 0 {
        return Ok(None);
    }
    let pages = Map::pages_of(config.bytes / BLOCK_BYTES, address_bits);
    Ok(Some(Box::new(MapCache::new(config.map_pages, pages)?)))
}

/// The chunks for roots, of the first two parallel units, or of the only one.
fn mirrors<D: OpenChannel>(device: &D) -> Result<[Mirror; 2], PblkError> {
    let geometry = *device.geometry();
    let mut mirrors: [Mirror; 2] = Default::default();
    for (mirror, pu) in mirrors.iter_mut().zip(geometry.pus_channels_first()) {
        let chunks = (0..ANCHORS).map(|number| geometry.chunk_of(pu, number));
        let good = |&chunk: &usize| device.chunk(chunk).state != ChunkState::Offline;
        mirror.chunks = chunks.filter(good).collect();
    }
    if mirrors.iter().any(Mirror::is_usable) { Ok(mirrors) } else { Err(PblkError::Anchors) }
}

/// Whether this configuration works on this drive.
fn check<D: OpenChannel>(device: &D, config: &PblkConfig) -> Result<(), PblkError> {
    let geometry = device.geometry();
    if config.bytes == 0 || !config.bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(PblkError::Capacity(config.bytes));
    }
    let of_data = Dimensions { chunks: config.data_chunks, ..geometry.dimensions() };
    if config.streams == 0 || config.streams as usize > MAX_STREAMS {
        return Err(PblkError::Streams(config.streams));
    }
    let reserve = reserve_chunks(&of_data, config.streams);
    if u64::from(geometry.chunks()) < u64::from(config.data_chunks) + u64::from(reserve) {
        let (chunks, data) = (geometry.chunks(), config.data_chunks);
        return Err(PblkError::TooFewChunks { chunks, data, reserve });
    }
    let (timing, needed) = (device.timing(), openings::needed(geometry, config.streams));
    if timing.open_chunks < needed.0 || timing.open_chunks_pu < needed.1 {
        return Err(PblkError::OpenChunks {
            most: Most(timing.open_chunks),
            most_of_pu: Most(timing.open_chunks_pu),
            needed: needed.0,
            needed_of_pu: needed.1,
        });
    }
    config::check_buffer(config.write_buffer, geometry, device.rows_at_once())?;
    if config.victim == Victim::DChoices(0) {
        return Err(PblkError::NoChoices(0));
    }
    let size = geometry.chunk_blocks();
    if config.idle >= size {
        return Err(PblkError::Idle { idle: config.idle, size });
    }
    let space = u64::from(geometry.total_pus()) * config.unit_blocks(size) * BLOCK_BYTES;
    if config.bytes >= space {
        return Err(PblkError::NoSpare { bytes: config.bytes, space });
    }
    Ok(())
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
        self.host.ready.pour(done);
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
                    self.host.ready.pour(done);
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
            told.stories.tell_only(wanted);
        }
    }

    fn story(&self, number: u64) -> Option<&Story> {
        self.told.as_ref()?.stories.get(number)
    }
}
