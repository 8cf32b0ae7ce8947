//! ruled: a block target in which a rule set decides what becomes of each request.
//!
//! Each block of a request is asked for by itself. The set's maps of addresses are the
//! target's map tables; blocks that a rule places without an entry, and requests that pass,
//! go by a map of the target's own. Whose a request is follows from its block: it is the
//! first application's that has it.
//!
//! Guarantees the contract of `docs/architecture.md` for blocks. A write completes when it
//! is in a row of its unit's buffer; a flush programs the rows that are gathered. Of each
//! block its tag says which entry it is for and when it was written, so a start reads all
//! tags and takes the newest of each. An entry that is given up is a block of its own, which
//! says so. Counters, timers and maps of numbers begin anew with each start.
//!
//! Each request waits by itself: for a time, its limit, room in its unit, or the control plane.
//! Of one that is to end nothing waits for a time ([`ftl::Target::set_hurried`]).
//!
//! Blocks may go to remote drives, and what is read there be kept here: an older block never
//! stands for a newer one. What a remote drive fails to do is its requests' failure alone.
//!
//! Refused: parts of blocks; drives that limit open chunks or make recent writes wait; sets
//! that send requests to other channels (redirect). What a set leaves open the control plane
//! decides, if there is one, else it fails. A program that fails makes the target read-only.

mod collect;
mod control;
mod entries;
mod fits;
mod install;
mod migrate;
pub mod mutation;
mod reads;
mod recover;
mod remotes;
mod requests;
mod rows;
mod target;
#[cfg(test)]
mod tests;
mod waits;
mod work;

use device::{OpenChannel, VectorCmd, VectorDone};
use flash::Geometry;
use ftl::{Halt, WriteCounters};
use port::{
    BLOCK_BYTES, BlockDone, Buffer, Lazy, OutOfMemory, Ring, Scratch, Shape, Slots, Status,
};
use rules::parse::MOST_APPLICATIONS;
use rules::syntax::Content;
use rules::{Checked, Compiled, Entry, Live};
use thiserror::Error;

use collect::Collection;
use control::Asking;
pub use control::{ControlPlane, Misses};
pub use fits::{nobodys, refuses_flushes};
pub use install::SetInstaller;
use install::Suits;
use migrate::{MIGRATIONS, Migration};
use remotes::Remotes;
pub use remotes::{Remote, RemoteDrive, RemoteError};
use requests::Request;
use rows::{Ends, Row, Unit};
use waits::Waits;

/// Requests that may be inside at once, those that wait among them.
const DEPTH: usize = 256;
/// Blocks of the longest read or write.
const MAX_BLOCKS: usize = device::MAX_ADDRESSES;
/// Rows of a unit that are gathered or on their way, of both its streams.
const ROWS: usize = 6;
/// Entries that were given up and not written down, at which no more is decided.
const FORGOTTEN: usize = 256;
/// Chunks of each unit that hold nothing: two open ones, one for collection to move to, one
/// that is collected.
pub const RESERVE: u32 = 4;

/// How the target is set up.
#[derive(Clone, Debug)]
pub struct RuledConfig {
    /// Logical capacity in bytes; a multiple of 4096.
    pub bytes: u64,
    /// The rule set. Its units are the drive's, channels first.
    pub rules: Checked,
    /// Who is asked what rules leave open; without, that fails.
    pub control: Option<ControlPlane>,
    /// Its remote drives, by their numbers in the rules. Where one is larger, the capacity
    /// that is shown is its.
    pub remotes: Vec<RemoteDrive>,
}

/// A target that cannot be set up.
#[derive(Debug, Error)]
pub enum RuledError {
    /// The capacity is not whole blocks, or has no place.
    #[error("{bytes} bytes are not whole blocks from 1 to {most}; make the drive smaller")]
    Bytes {
        /// What was asked for.
        bytes: u64,
        /// Blocks that there is room for.
        most: u64,
    },
    /// The set is for more units than there are.
    #[error("application {application} is given units up to {wants}, and the drive has {has}")]
    Units {
        /// Whose.
        application: u16,
        /// How many units that would be.
        wants: u64,
        /// How many there are.
        has: u64,
    },
    /// An application has more blocks than its units hold.
    #[error(
        "application {application} has {blocks} blocks, and its {units} units hold {most}: \
         give it more units, or fewer blocks"
    )]
    Room {
        /// Whose.
        application: u16,
        /// How many blocks of the drive it has.
        blocks: u64,
        /// How many units.
        units: u64,
        /// How many blocks these hold.
        most: u64,
    },
    /// A map of the set is for more units than there are.
    #[error("a map has addresses of units up to {wants}, and the drive has {has}")]
    MapUnits {
        /// How many units that would be.
        wants: u64,
        /// How many there are.
        has: u64,
    },
    /// The set is for more remote drives than there are.
    #[error("application {application} is given remote drives up to {wants}, and there are {has}")]
    Remotes {
        /// Whose.
        application: u16,
        /// How many that would be.
        wants: u64,
        /// How many there are.
        has: u64,
    },
    /// A remote drive cannot be used.
    #[error("remote drive {number}: {what}")]
    Remote {
        /// Which, by its number in the rules.
        number: usize,
        /// Why.
        what: String,
    },
    /// The set does what the target does not.
    #[error("rule {rule}: this target does not {action}; leave that out")]
    Action {
        /// Which rule.
        rule: String,
        /// What.
        action: &'static str,
    },
    /// What is on the drive was written with another capacity, or other maps of addresses.
    #[error("the drive was written with another capacity or other maps of addresses: give those")]
    Written,
    /// What was written cannot be read: an older block would stand for a newer one.
    #[error("what is on the drive cannot be read: {0}; the drive is left as it is")]
    Unread(Status),
    /// Maps of addresses changed; with remote drives, any maps.
    #[error(
        "the maps of addresses must be those of the set before, at the same places, and on a \
         drive with a remote drive so must all maps"
    )]
    Maps,
    /// The drive makes recent writes wait before they can be read, or limits its open chunks.
    #[error("this drive has unreadable blocks or limits its open chunks: 0 and none are needed")]
    Drive,
    /// The drive stopped answering, or there is no memory.
    #[error(transparent)]
    Halt(#[from] Halt),
}

impl From<OutOfMemory> for RuledError {
    fn from(e: OutOfMemory) -> RuledError {
        RuledError::Halt(e.into())
    }
}

ftl::cookies! {
    /// What a completion of the drive belongs to.
    #[derive(Clone, Copy, Debug)]
    enum Cookie {
        /// A part of a read: request, chunk, whether it has a weight.
        Read(request: u32 = 16, chunk: usize = 42, weight: u32 = 2),
        /// A row's program.
        Row(row: u32 = 16),
        /// A read for a unit's collection.
        Move(unit: usize = 16),
        /// A read for a migration.
        Migrate(migration: usize = 16),
        /// The erase of a unit's victim.
        Reset(unit: usize = 16),
        /// The drive's flush for a request.
        Flush(request: u32 = 16),
        /// The drive's flush for the end.
        Close,
        /// A read of one block that needs no decision: request, chunk.
        One(request: u32 = 16, chunk: usize = 42),
    }
}

/// The bit of a tag's id that says that the entry leads nowhere.
const TOMB: u64 = 1 << 47;
/// The bit of a tag's id that says that it is a copy of what a remote drive has.
const COPY: u64 = 1 << 46;
/// Where in a tag's id it stands which capacity and maps wrote it.
const WRITER: u32 = 48;

/// An entry that was given up, of which that is to be written down.
#[derive(Clone, Copy, Debug)]
struct Forgotten {
    owner: u64,
    /// The chunk to which it led.
    chunk: usize,
    /// How many were given up until then.
    number: u64,
}

/// Which blocks are whose. The owner of a block is the entry that leads to it, and the id of
/// its tag: those of the target's own map first, then those of each of the set's maps.
struct Blocks {
    /// The target's own map: one more than each block's physical address, or 0.
    own: Lazy<u64>,
    /// By owner, one more than the address of the block that says that it leads nowhere.
    tombs: Lazy<u64>,
    /// How many of these there are.
    buried: u64,
    /// By owner, a bit of each that leads to a copy, or did last; and how many these are.
    copies: Lazy<u64>,
    copied: u64,
    /// Entries that were given up so far.
    given_up: u64,
    /// By map of the set, the owner of its first entry; maps of numbers have none.
    firsts: Vec<u64>,
    /// Of which capacity and maps of addresses they are, in 16 bits, as it stands in each tag.
    writer: u64,
    /// By physical address, a bit of each that is valid.
    bits: Lazy<u64>,
    /// By chunk, its valid blocks.
    valid: Vec<u32>,
    /// By chunk, the number of the newest row that must be programmed before its erase.
    until: Vec<u64>,
    /// By chunk, reads of the user under way.
    readers: Vec<u32>,
}

/// Where blocks are written.
struct Space {
    /// By number of the rules.
    units: Vec<Unit>,
    /// By the geometry's number, that of the rules.
    unit_of_pu: Vec<u16>,
    /// Free chunks of all units, and all chunks; the first of the second in percent.
    free: u32,
    chunks: u32,
    free_percent: u8,
    collections: Vec<Collection>,
    /// Units of which a chunk is collected.
    collected: u32,
    rows: Slots<Row>,
    ends: Ends,
    /// The number of the newest row, and of the newest block.
    row: u64,
    seq: u64,
    /// By application of the set, the unit that was placed on last where no rule says which.
    turns: Box<[usize]>,
}

impl Space {
    /// Chunks were taken or erased.
    fn count_free(&mut self, more: i32) {
        self.free = self.free.saturating_add_signed(more);
        self.free_percent = (self.free * 100 / self.chunks) as u8;
    }
}

/// Bytes of memory that the tables and buffers of a target take, when it is full.
pub fn tables(geometry: &Geometry, bytes: u64, rules: &Checked, kept: u32) -> u64 {
    let (mut entries, mut state) = (bytes / BLOCK_BYTES, 0);
    for map in &rules.set().maps {
        state += map.entries;
        entries += if matches!(map.content, Content::Address(_)) { map.entries } else { 0 };
    }
    let row = u64::from(geometry.row_blocks()) * (u64::from(kept) + flash::TAG_BYTES as u64);
    let maps = 8 * (bytes / BLOCK_BYTES + entries + state + (1 << geometry.address_bits()));
    maps + u64::from(geometry.total_pus()) * (ROWS as u64 + 1) * row
}

/// How far the target is shut down.
#[derive(Default)]
struct End {
    closing: bool,
    /// The drive's own flush is under way, or over; and all that lies here is durable.
    is_sent: bool,
    is_down: bool,
    closed: bool,
    /// Flushes of remote drives under way for it, and whether one failed.
    flushes: usize,
    has_failed: bool,
}

/// When the rules are asked about idle time.
struct Idle {
    /// How long after the last request, ns.
    after: u64,
    /// The last request.
    since: port::Time,
}

/// A rule set over an open-channel drive.
pub struct Ruled<D> {
    device: D,
    geometry: Geometry,
    shape: Shape,
    rules: Live,
    installer: SetInstaller,
    asking: Asking,
    /// The application of the last request, by its number in the set.
    application: usize,
    blocks: Blocks,
    space: Space,
    requests: Slots<Request>,
    waits: Waits,
    forgotten: Vec<Forgotten>,
    remotes: Remotes,
    migrations: Vec<Migration>,
    /// How many of these are under way.
    migrating: usize,
    /// Requests that wait for rows to be programmed.
    syncing: Vec<u32>,
    broken: bool,
    end: End,
    idle: Idle,
    out: Ring<VectorCmd>,
    device_done: Ring<VectorDone>,
    ready: Ring<BlockDone>,
    counters: WriteCounters,
}

impl<D: OpenChannel> Ruled<D> {
    /// A target of which nothing is written.
    fn empty(device: D, config: &RuledConfig) -> Result<Ruled<D>, RuledError> {
        let geometry = *device.geometry();
        if device.timing().unreadable > 0 || device.timing().limits_open() {
            return Err(RuledError::Drive);
        }
        let (blocks, kept) = (config.bytes / BLOCK_BYTES, device.kept());
        let total = u64::from(geometry.total_pus());
        let chunks = u64::from(geometry.chunks().saturating_sub(RESERVE));
        let most = total * chunks * u64::from(geometry.chunk_blocks());
        if blocks == 0 || blocks > most || !config.bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(RuledError::Bytes { bytes: config.bytes, most });
        }
        let suits = Suits::new(&config.rules, total, config.remotes.len() as u64)?;
        let remotes = Remotes::new(&config.remotes, kept)?;
        let bytes = config.bytes.max(remotes.bytes());
        let blocks = bytes / BLOCK_BYTES;
        let row_blocks = geometry.row_blocks() as usize;
        let mut firsts = vec![blocks];
        for map in &config.rules.set().maps {
            let entries = if matches!(map.content, Content::Address(_)) { map.entries } else { 0 };
            firsts.push(firsts[firsts.len() - 1] + entries);
        }
        let entries = firsts.pop().unwrap_or(blocks) as usize;
        let (addresses, slots) = (1usize << geometry.address_bits(), geometry.chunk_slots());
        let (units, rows) = (geometry.total_pus() as usize, geometry.total_pus() as usize * ROWS);
        let row_bytes = row_blocks * (kept as usize + flash::TAG_BYTES);
        let row = |buffer| Row { buffer, ..Row::default() };
        let mut held = Slots::new(rows);
        for (n, buffer) in Buffer::carve(rows, row_bytes)?.into_iter().enumerate() {
            held[n as u32] = row(port::Lender::new(buffer));
        }
        let collection = |buffer| Collection::new(Scratch::new(buffer));
        let collections = Buffer::carve(units, row_bytes)?.into_iter().map(collection).collect();
        let all = geometry.pus_channels_first().map(|pu| Unit::new(&geometry, &device, pu));
        let all: Vec<Unit> = all.collect();
        let mut unit_of_pu = vec![0; geometry.pu_slots()];
        for (unit, pu) in geometry.pus_channels_first().enumerate() {
            unit_of_pu[pu] = unit as u16;
        }
        let shape = Shape { bytes, kept, max_bytes: MAX_BLOCKS as u64 * BLOCK_BYTES, depth: DEPTH };
        let commands = DEPTH * (MAX_BLOCKS + 1) + rows + 2 * units + MIGRATIONS + 1;
        install::ask_for_maps(config.rules.set())?;
        let (rules, installer) = Live::new(Compiled::new(&config.rules));
        let owned = Blocks {
            own: Lazy::zeroed(blocks as usize, "the target's map")?,
            tombs: Lazy::zeroed(entries, "the target's trims")?,
            buried: 0,
            copies: Lazy::zeroed(entries.div_ceil(64), "the target's copies")?,
            copied: 0,
            given_up: 0,
            firsts,
            writer: writer(bytes, &config.rules) << WRITER,
            bits: Lazy::zeroed(addresses.div_ceil(64), "the target's blocks")?,
            valid: vec![0; slots],
            until: vec![0; slots],
            readers: vec![0; slots],
        };
        let mut space = Space {
            unit_of_pu,
            free: all.iter().map(|unit| unit.free.len() as u32).sum(),
            chunks: geometry.chunks() * geometry.total_pus(),
            units: all,
            collections,
            collected: 0,
            rows: held,
            ends: Ends::default(),
            free_percent: 0,
            row: 0,
            seq: 0,
            turns: vec![0; MOST_APPLICATIONS].into(),
        };
        space.count_free(0);
        let each = kept as usize + flash::TAG_BYTES;
        let migration = |buffer| Migration::new(Scratch::new(buffer));
        let migrations = Buffer::carve(MIGRATIONS, each)?.into_iter().map(migration).collect();
        let released = (rules::check::MOST_HITS + 1) * rules::parse::MOST_STEPS;
        Ok(Ruled {
            geometry,
            shape,
            rules,
            installer: SetInstaller { installer, suits },
            asking: Asking::new(config.control.as_ref()),
            application: 0,
            blocks: owned,
            space,
            requests: Slots::new(DEPTH),
            waits: Waits::new(units),
            forgotten: Vec::with_capacity(FORGOTTEN + released),
            remotes,
            migrations,
            migrating: 0,
            syncing: Vec::with_capacity(DEPTH),
            broken: false,
            end: End::default(),
            idle: Idle { after: u64::MAX, since: port::Time::ZERO },
            out: Ring::new(commands),
            device_done: Ring::new(commands),
            ready: Ring::new(DEPTH),
            counters: WriteCounters::default(),
            device,
        })
    }

    /// Installs another set, as [`SetInstaller::install`] does.
    pub fn install(&mut self, rules: &Checked) -> Result<u64, RuledError> {
        self.installer.install(rules)
    }

    /// Who installs other sets, from any thread.
    pub fn installer(&self) -> SetInstaller {
        self.installer.clone()
    }

    /// What became of requests that rules left open.
    pub fn misses(&self) -> &std::sync::Arc<Misses> {
        &self.asking.misses
    }

    /// The set that decides.
    pub fn rules(&self) -> &Live {
        &self.rules
    }

    /// The owner of an entry of the set's maps.
    fn owner(&self, entry: Entry) -> u64 {
        self.blocks.firsts[usize::from(entry.map)] + entry.key
    }

    /// The entry of an owner; `None` for those of the target's own map.
    fn entry(&self, owner: u64) -> Option<Entry> {
        let map = self.blocks.firsts.partition_point(|&first| first <= owner).checked_sub(1)?;
        Some(Entry { map: map as u16, key: owner - self.blocks.firsts[map] })
    }
}

/// A number for the capacity and the maps of addresses, by which owners are numbered; never
/// that of what pads rows.
fn writer(bytes: u64, rules: &Checked) -> u64 {
    let mut hash = port::random::mix(bytes);
    for (n, map) in install::addresses(rules) {
        hash = port::random::mix(hash ^ map.entries ^ (n as u64) << 48);
    }
    hash % 0xffff
}
