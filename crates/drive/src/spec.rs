//! Drives by name: `mem:PROFILE[,key=value ...]`, `ssd:FILE[,copy=yes]`,
//! `null:[key=value ...]`, a block device or file, and `nbd:ADDRESS`.
//!
//! A name is read in two steps. [`DriveSpec`] is the name, parsed and checked
//! key by key, with no file opened; printing it gives a name that reads back
//! as the same. [`MemorySpec::resolve`] loads the profile, applies the keys and
//! derives capacity and chunks: a [`DriveConfig`].
//!
//! `spare` is (T - U) / T: T the physical pages that hold data, U the logical
//! ones. With `size` T is exact: it need not be whole chunks, and what is left
//! of the last chunk of each unit is reserve. The target's reserve is outside T,
//! kept free, and added on top, and so is parity: with `size` the flash is larger
//! by its part, without it the drive smaller.
//!
//! Each unit has two chunks open, so that a drive of few chunks a unit cannot
//! have any spare: one that was asked for and cannot be kept is refused; a
//! profile's is raised, and the report says to what.

use std::fmt;
use std::io;
use std::str::FromStr;

use drivefile::CacheMode;
use flash::profile::{KEYS, Key};
use flash::{Dimensions, Geometry, GeometryError, KeyError, Profile, ProfileError};
use measure::units::{self, UnitError};
use parity::{MAX_WIDTH, MIN_WIDTH, ParityError};
use port::BLOCK_BYTES;
use port::striped::{STRIPE, share};
use serde_json::{Value, json};
use targets::Victim;
use thiserror::Error;

use crate::fault_rules::Rules;

pub mod file;
mod null;
mod storage;

pub use file::FileSpec;
pub use null::NullSpec;
pub use storage::{Found, StorageSpec};

/// Bytes of a file of text, at most.
const MOST_TEXT: u64 = 1 << 20;

/// What the medium keeps of each logical block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// All of it, in memory.
    #[default]
    Memory,
    /// A 64-bit digest: enough to verify, not to serve.
    Checksum,
    /// Nothing.
    None,
}

impl Store {
    /// Bytes kept of each logical block.
    pub fn kept(self) -> u32 {
        match self {
            Store::Memory => BLOCK_BYTES as u32,
            Store::Checksum => 8,
            Store::None => 0,
        }
    }

    /// Its name in drive names.
    pub fn name(self) -> &'static str {
        match self {
            Store::Memory => "memory",
            Store::Checksum => "checksum",
            Store::None => "none",
        }
    }

    fn from_name(name: &str) -> Option<Store> {
        [Store::Memory, Store::Checksum, Store::None].into_iter().find(|s| s.name() == name)
    }
}

/// What the drive does with its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// They are durable after a flush, or with FUA.
    #[default]
    Volatile,
    /// They are durable when they complete: power loss does not end the cache.
    Protected,
}

impl Cache {
    /// Its name in drive names.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Volatile => "volatile",
            Cache::Protected => "protected",
        }
    }

    fn from_name(name: &str) -> Option<Cache> {
        [Cache::Volatile, Cache::Protected].into_iter().find(|c| c.name() == name)
    }
}

/// What translates addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetKind {
    /// The page-mapped block target.
    #[default]
    Pblk,
    /// The target with batched writes: pages by number, no blocks.
    Batch,
}

impl TargetKind {
    /// Its name in drive names.
    pub fn name(self) -> &'static str {
        match self {
            TargetKind::Pblk => "pblk",
            TargetKind::Batch => "batch",
        }
    }

    fn from_name(name: &str) -> Option<TargetKind> {
        [TargetKind::Pblk, TargetKind::Batch].into_iter().find(|t| t.name() == name)
    }
}

/// A policy by its name: greedy, fifo, random or d-choices:N, N from 1 to 1000.
fn victim_from_name(name: &str) -> Option<Victim> {
    Some(match name {
        "greedy" => Victim::Greedy,
        "fifo" => Victim::Fifo,
        "random" => Victim::Random,
        _ => {
            let d = name.strip_prefix("d-choices:")?.parse().ok()?;
            (1..=1000).contains(&d).then_some(Victim::DChoices(d))?
        }
    })
}

/// The name that [`victim_from_name`] reads.
fn victim_name(victim: Victim) -> String {
    match victim {
        Victim::Greedy => "greedy".into(),
        Victim::Fifo => "fifo".into(),
        Victim::Random => "random".into(),
        Victim::DChoices(d) => format!("d-choices:{d}"),
        Victim::Custom(custom) => custom.name.into(),
    }
}

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket: its path.
    Unix(String),
    /// A TCP socket: host and port.
    Tcp(String, u16),
}

impl FromStr for NbdAddress {
    type Err = DriveError;

    /// With a `:` and no `/` it is `HOST:PORT`, else a path.
    fn from_str(text: &str) -> Result<NbdAddress, DriveError> {
        let wrong = || DriveError::Address { text: text.into() };
        if text.contains('/') || !text.contains(':') {
            return if text.is_empty() { Err(wrong()) } else { Ok(NbdAddress::Unix(text.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        if host.is_empty() || !bare {
            return Err(wrong());
        }
        Ok(NbdAddress::Tcp(host.into(), port.parse().map_err(|_| wrong())?))
    }
}

/// The port of NBD where a URI names none.
const NBD_PORT: u16 = 10809;

impl NbdAddress {
    /// The drive of `nbd://HOST[:PORT]` or `nbd+unix:///?socket=PATH`, as `serve`
    /// prints them. The one drive that a server has is without a name.
    fn of_uri(text: &str) -> Result<DriveSpec, DriveError> {
        let wrong = || DriveError::Address { text: text.into() };
        if let Some(rest) = text.strip_prefix("nbd+unix:") {
            let path = rest.strip_prefix("///?socket=").or(rest.strip_prefix("//?socket="));
            let path = path.filter(|path| !path.is_empty()).ok_or_else(wrong)?;
            return Ok(DriveSpec::Nbd(NbdAddress::Unix(path.into())));
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(wrong)?;
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.is_empty() || host.contains(['/', '?', '@', '#']) {
            return Err(wrong());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.into() } else { format!("{host}:{NBD_PORT}") };
        let address: NbdAddress = address.parse().map_err(|_| wrong())?;
        Ok(DriveSpec::Nbd(address))
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => f.write_str(path),
            NbdAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// A drive's name, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveSpec {
    /// `mem:`: the whole stack in this process.
    Memory(MemorySpec),
    /// `nbd:`: a drive that somebody serves.
    Nbd(NbdAddress),
    /// `null:`: the bare null driver.
    Null(NullSpec),
    /// `file:`, or a path: a block device or file, or a drive file
    /// ([`DriveSpec::found`]).
    Storage(StorageSpec),
    /// `ssd:`: a drive file.
    File(FileSpec),
}

/// The name of a drive in memory, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySpec {
    /// A built-in profile, or the path of a TOML file.
    pub profile: String,
    /// Logical capacity in bytes, a multiple of 4 KiB; from geometry and spare
    /// when not given.
    pub size: Option<u64>,
    /// What is kept.
    pub store: Store,
    /// What translates.
    pub target: TargetKind,
    /// How victims are chosen.
    pub victim: Victim,
    /// Parallel units to a superblock with parity; 0 for none.
    pub parity: u32,
    /// What it does with its writes.
    pub cache: Cache,
    /// Shards that share its groups and addresses ([`port::Striped`]).
    pub shards: u32,
    /// Keys of the profile that are set again, in the order given.
    pub overrides: Vec<(String, String)>,
}

/// A drive that cannot be: what, where, and what to do.
#[derive(Debug, Error)]
pub enum DriveError {
    /// Not a drive's name at all.
    #[error(
        "`{text}` does not name a drive: write mem:PROFILE, nbd:ADDRESS, null:, or of a file \
         ssd:FILE or a path with a `/`, for example mem:ref,size=8G or ./drive.ssd"
    )]
    Scheme {
        /// What was given.
        text: String,
    },
    /// An NBD address that is neither a path nor host and port.
    #[error("`{text}` is no address: write a socket's path or HOST:PORT")]
    Address {
        /// What was given.
        text: String,
    },
    /// A part that is not `key=value`.
    #[error("`{part}` in the drive's name is not key=value, as in size=8G")]
    Part {
        /// What was given.
        part: String,
    },
    /// A key that no drive has.
    #[error("`{key}` is no key of a drive; the keys are: {known}")]
    UnknownKey {
        /// What was given.
        key: String,
        /// What there is.
        known: String,
    },
    /// A key that is there twice.
    #[error("`{key}` is given twice in the drive's name: leave one out")]
    Twice {
        /// Which.
        key: String,
    },
    /// A value that its key does not take.
    #[error("`{key}` cannot be `{value}` in the drive's name: it takes {takes}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// A key of a null drive that takes time, on one that takes none.
    #[error(
        "`{key}` is for a null drive that takes time: add completion_nsec, \
         for example completion_nsec=10us"
    )]
    NeedsTime {
        /// Which key.
        key: String,
    },
    /// A size that cannot be read.
    #[error("`size` in the drive's name: {0}")]
    Size(UnitError),
    /// A value that a key of the profile does not take.
    #[error("in the drive's name, {0}")]
    Key(#[from] KeyError),
    /// No such profile.
    #[error(
        "there is no profile `{name}`: the built-in ones are {known}; \
         a file's name has a `/` or ends in .toml"
    )]
    NoProfile {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A profile's file that cannot be read.
    #[error("cannot read the profile {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A profile that cannot be.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Keys that contradict each other.
    #[error(
        "size={} with spare={spare} needs {derived} chunks a parallel unit, \
         but chunks={given}: leave out size or chunks, or make them agree",
        show_size(*size)
    )]
    Contradiction {
        /// Logical bytes.
        size: u64,
        /// The spare that was asked for.
        spare: f64,
        /// What the two give.
        derived: u64,
        /// What was given.
        given: u32,
    },
    /// The drive cannot have that parity.
    #[error("`parity` in the drive's name: {0}")]
    Parity(#[from] ParityError),
    /// The chunks that each unit has open hold more than the spare leaves.
    #[error(
        "spare={spare} cannot be kept with size={} on {pus} parallel units of chunks of {}, each \
         with two of them open: take spare={nearest} or more, size={} or more, fewer groups \
         or pus, or fewer pages",
        show_size(*size), show_size(*chunk), show_size(*nearest_size)
    )]
    Spare {
        /// The spare that was asked for.
        spare: f64,
        /// Logical bytes.
        size: u64,
        /// Parallel units.
        pus: u32,
        /// Bytes of a chunk.
        chunk: u64,
        /// The least spare of a drive of this size.
        nearest: f64,
        /// The least size of a drive with this spare.
        nearest_size: u64,
    },
    /// No logical block is left.
    #[error("spare={spare} of {blocks} blocks leaves no logical block: make the drive larger")]
    Empty {
        /// The spare that was asked for.
        spare: f64,
        /// Data blocks in all.
        blocks: u64,
    },
    /// More than a geometry can address.
    #[error(
        "the drive with its reserve is too large: {source}; take a smaller size, or more groups \
         or pages"
    )]
    TooLarge {
        /// Which number.
        source: GeometryError,
    },
}

/// Chunks that a unit has open: for the user, and for collection.
const CHUNKS_OPEN: u128 = 2;

/// With so many chunks for data in a unit enough are closed: with fewer the
/// write amplification is off the formulas by more than 2 %, since what is in
/// the user's open chunk is of all ages.
const LEAST_CHUNKS: u128 = 6;

/// Chunks a unit that the batch target has open beside those of pblk.
const BATCH_CHUNKS: u32 = 2;

const STORES: &str = "memory, checksum or none";
const TARGETS: &str = "pblk or batch";
const WIDTHS: &str = "0 for none, or 3 to 64 parallel units";
const CACHES: &str = "volatile or protected";
const SHARDS: &str =
    "a divisor of the drive's groups, of size 64K or more for each; 1 with target=batch";
const VICTIMS: &str = "greedy, fifo, random or d-choices:N with N from 1 to 1000";

impl FromStr for DriveSpec {
    type Err = DriveError;

    /// What has a `/` before any `:` is a path, and what ends in `.ssd` without
    /// any `:`.
    fn from_str(text: &str) -> Result<DriveSpec, DriveError> {
        match text.split_once(':') {
            Some(("mem", rest)) => Ok(DriveSpec::Memory(MemorySpec::parse(rest)?)),
            Some(("nbd", rest)) if rest.starts_with("//") => NbdAddress::of_uri(text),
            Some(("nbd", rest)) => Ok(DriveSpec::Nbd(rest.parse()?)),
            Some(("nbd+unix", _)) => NbdAddress::of_uri(text),
            Some(("null", rest)) => Ok(DriveSpec::Null(NullSpec::parse(rest)?)),
            Some(("ssd", rest)) => Ok(DriveSpec::File(FileSpec::parse(rest)?)),
            Some(("file", rest)) => Ok(DriveSpec::Storage(StorageSpec::parse(rest)?)),
            Some((scheme, _)) if scheme.contains('/') => {
                Ok(DriveSpec::Storage(StorageSpec::parse(text)?))
            }
            None if text.contains('/') => Ok(DriveSpec::Storage(StorageSpec::parse(text)?)),
            // Whether there is such a file is seen when it is looked for.
            None if text.ends_with(".ssd") => Ok(DriveSpec::Storage(StorageSpec::parse(text)?)),
            _ => Err(DriveError::Scheme { text: text.into() }),
        }
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveSpec::Memory(spec) => spec.fmt(f),
            DriveSpec::Nbd(address) => write!(f, "nbd:{address}"),
            DriveSpec::Null(spec) => spec.fmt(f),
            DriveSpec::Storage(spec) => spec.fmt(f),
            DriveSpec::File(spec) => spec.fmt(f),
        }
    }
}

impl MemorySpec {
    /// A profile with no key set.
    pub fn new(profile: &str) -> MemorySpec {
        MemorySpec {
            profile: profile.into(),
            size: None,
            store: Store::default(),
            target: TargetKind::default(),
            victim: Victim::default(),
            parity: 0,
            cache: Cache::default(),
            shards: 1,
            overrides: Vec::new(),
        }
    }

    /// What follows `mem:`.
    fn parse(text: &str) -> Result<MemorySpec, DriveError> {
        let (profile, rest) = text.split_once(',').map_or((text, None), |(p, r)| (p, Some(r)));
        if profile.trim().is_empty() {
            return Err(DriveError::Scheme { text: format!("mem:{text}") });
        }
        let mut spec = MemorySpec::new(profile.trim());
        for (key, value) in rest.map(pairs).transpose()?.unwrap_or_default() {
            spec.set(key, value)?;
        }
        Ok(spec)
    }

    /// Sets one key. A key of the profile is tried on a profile right away,
    /// so that a wrong value is found before anything is loaded.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), DriveError> {
        let wrong = |key, takes| DriveError::Value { key, value: value.into(), takes };
        match key {
            "size" => self.size = Some(size_of(value)?),
            "store" => {
                self.store = Store::from_name(value).ok_or_else(|| wrong("store", STORES))?;
            }
            "target" => {
                self.target =
                    TargetKind::from_name(value).ok_or_else(|| wrong("target", TARGETS))?;
            }
            "victim" => {
                self.victim = victim_from_name(value).ok_or_else(|| wrong("victim", VICTIMS))?;
            }
            "parity" => self.parity = width_of(value)?,
            "cache" => {
                self.cache = Cache::from_name(value).ok_or_else(|| wrong("cache", CACHES))?;
            }
            "shards" => {
                self.shards = number("shards", value)?;
                if self.shards == 0 {
                    return Err(wrong("shards", SHARDS));
                }
            }
            _ if KEYS.iter().any(|k| k.name == key) => {
                let mut any = Profile::builtin("null").expect("it is built in");
                any.set(key, value)?;
                self.overrides.push((key.into(), value.into()));
            }
            _ => return Err(DriveError::UnknownKey { key: key.into(), known: known_keys() }),
        }
        Ok(())
    }

    /// The profile with its keys set, and whether `chunks` was among them.
    fn profile(&self) -> Result<(Profile, bool), DriveError> {
        let mut profile = load(&self.profile)?;
        for (key, value) in &self.overrides {
            profile.set(key, value)?;
        }
        Ok((profile, self.overrides.iter().any(|(key, _)| key == "chunks")))
    }

    /// Loads the profile and derives the drive, with the chunks that the target
    /// needs beside the data: for open chunks, free ones and metadata.
    pub fn resolve(&self) -> Result<DriveConfig, DriveError> {
        let (mut profile, chunks_given) = self.profile()?;
        let (mut idle, mut more) = (0, 0);
        let groups = profile.dimensions.groups;
        let shards = self.shards;
        let is_batch = self.target == TargetKind::Batch;
        let is_short = self.size.is_some_and(|size| size < STRIPE * u64::from(shards));
        if shards > 1 && (is_batch || is_short || !groups.is_multiple_of(shards)) {
            let value = shards.to_string();
            return Err(DriveError::Value { key: "shards", value, takes: SHARDS });
        }
        // As if all shards were as large as the first; so are their units.
        let even = |size| share(size, shards as usize, 0).saturating_mul(shards.into());
        if let Some(size) = self.size {
            let size = even(size);
            let given = chunks_given.then_some(profile.dimensions.chunks);
            profile.dimensions.chunks = 1;
            let one = above(&profile.check()?, self.parity)?;
            let blocks = self.blocks_for(size, profile.spare, &one)?;
            let chunks = blocks.div_ceil(u64::from(one.chunk_blocks()));
            profile.dimensions.chunks = whole_chunks(chunks, size, profile.spare, given)?;
            if self.target == TargetKind::Pblk {
                idle = (chunks * u64::from(one.chunk_blocks()) - blocks) as u32;
            }
            if given.is_none() && self.parity == 0 {
                let groups = groups / shards;
                let dimensions = Dimensions { groups, ..profile.dimensions };
                let of_shard = Profile { dimensions, ..profile.clone() };
                more = more_for_bad_chunks(&of_shard, size / u64::from(shards));
            }
        }
        let checked = profile.check().map_err(|e| match e {
            // It follows from the size.
            ProfileError::Geometry { source, .. } if self.size.is_some() && !chunks_given => {
                DriveError::TooLarge { source }
            }
            e => e.into(),
        })?;
        let data = above(&checked, self.parity)?;
        let size = match self.size {
            Some(size) => size,
            None => {
                let size = logical_blocks(data.blocks(), profile.spare)? * BLOCK_BYTES;
                // All shards are of one size.
                if shards > 1 { size - size % (STRIPE * u64::from(shards)) } else { size }
            }
        };
        let of_shard = above(&part(&checked, shards), self.parity)?;
        let mut reserve = targets::reserve_chunks(&of_shard.dimensions()).saturating_add(more);
        if is_batch {
            reserve = reserve.saturating_add(BATCH_CHUNKS);
        }
        let chunks = data.chunks().saturating_add(reserve);
        let geometry = Geometry::new(Dimensions { chunks, ..profile.dimensions })
            .map_err(|source| DriveError::TooLarge { source })?;
        let above = above(&geometry, self.parity)?;
        let name = self.to_string();
        let faults = Rules::default();
        let spec = self.clone();
        Ok(DriveConfig { name, spec, profile, size, idle, reserve, geometry, above, faults })
    }

    /// The blocks of each unit that hold data, so that less the spare they are
    /// `size` bytes. `one` is the geometry with one chunk. A unit needs its open
    /// chunks beside what is closed: where that is more than the spare, one that
    /// was asked for is refused.
    fn blocks_for(&self, size: u64, spare: f64, one: &Geometry) -> Result<u64, DriveError> {
        let pus = u128::from(one.total_pus());
        let user = u128::from(size / BLOCK_BYTES);
        let blocks = (user * 1_000_000_000).div_ceil(left_of(spare)).div_ceil(pus);
        let chunk = u128::from(one.chunk_blocks());
        let least = least_blocks(user.div_ceil(pus), chunk);
        let too_large = |_| DriveError::TooLarge {
            source: GeometryError::Range {
                what: "chunks",
                value: u64::try_from(blocks.max(least) / chunk).unwrap_or(u64::MAX),
                range: "1 to 16777216",
            },
        };
        let is_asked = self.overrides.iter().any(|(key, _)| key == "spare");
        if blocks < least && is_asked && self.target == TargetKind::Pblk {
            let of = |blocks: f64| (blocks * (1.0 - spare)) as u64;
            let (open, some) = (CHUNKS_OPEN as f64, LEAST_CHUNKS as f64);
            let nearest_size = of((chunk * pus) as f64 * (open / spare).min(some)) * BLOCK_BYTES;
            return Err(DriveError::Spare {
                spare,
                size,
                pus: one.total_pus(),
                chunk: chunk as u64 * BLOCK_BYTES,
                nearest: ((1.0 - user as f64 / (least * pus) as f64) * 1e4).ceil() / 1e4,
                nearest_size: (nearest_size + 2 * pus as u64 * BLOCK_BYTES)
                    .next_multiple_of(1 << 20),
            });
        }
        u64::try_from(blocks.max(least)).map_err(too_large)
    }
}

/// The fewest blocks of a unit that hold data, of which `user` are logical, in
/// chunks of `chunk`: with fewer nothing would be closed to be collected.
fn least_blocks(user: u128, chunk: u128) -> u128 {
    (user + CHUNKS_OPEN * chunk).min(LEAST_CHUNKS * chunk)
}

impl fmt::Display for MemorySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem:{}", self.profile)?;
        if let Some(size) = self.size {
            write!(f, ",size={}", show_size(size))?;
        }
        if self.store != Store::default() {
            write!(f, ",store={}", self.store.name())?;
        }
        if self.target != TargetKind::default() {
            write!(f, ",target={}", self.target.name())?;
        }
        if self.victim != Victim::default() {
            write!(f, ",victim={}", victim_name(self.victim))?;
        }
        if self.parity > 0 {
            write!(f, ",parity={}", self.parity)?;
        }
        if self.cache != Cache::default() {
            write!(f, ",cache={}", self.cache.name())?;
        }
        if self.shards > 1 {
            write!(f, ",shards={}", self.shards)?;
        }
        self.overrides.iter().try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

/// A drive with all its numbers.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// The name it came from.
    pub name: String,
    /// What is stored, and how victims are chosen.
    pub spec: MemorySpec,
    /// The profile with all keys set. Its `chunks` are those that hold data.
    pub profile: Profile,
    /// Logical capacity in bytes (U), a multiple of 4 KiB.
    pub size: u64,
    /// Blocks a parallel unit, of the chunks that hold data, that hold none.
    pub idle: u32,
    /// Chunks a parallel unit on top of those that hold data.
    pub reserve: u32,
    /// The geometry of the device: data and reserve.
    pub geometry: Geometry,
    /// What the target sees: that, or with parity fewer and larger units.
    pub above: Geometry,
    /// What goes wrong in it on purpose; nothing unless it was asked for.
    pub faults: Rules,
}

impl DriveConfig {
    /// A shard of it: a part of its groups and of its addresses.
    pub fn shard(&self, shard: u32) -> DriveConfig {
        let shards = self.spec.shards;
        if shards == 1 {
            return self.clone();
        }
        let mut one = self.clone();
        one.spec.shards = 1;
        one.size = share(self.size, shards as usize, shard as usize);
        one.profile.dimensions.groups /= shards;
        one.profile.energy.idle /= u64::from(shards);
        one.geometry = part(&self.geometry, shards);
        one.above = match self.spec.parity {
            0 => one.geometry,
            width => parity::geometry(&one.geometry, width).expect("it was resolved so"),
        };
        one
    }

    /// Chunks a parallel unit that hold data (T).
    pub fn data_chunks(&self) -> u32 {
        self.profile.dimensions.chunks
    }

    /// Chunks a parallel unit in all.
    pub fn total_chunks(&self) -> u32 {
        self.geometry.chunks()
    }

    /// What a file of it does with its writes, and with how large a journal: a
    /// sixteenth of the drive, from 8 to 32 MiB. What that holds is written
    /// again after a cut, and each half of it costs a flush in the drive.
    pub fn cache_mode(&self) -> CacheMode {
        match self.spec.cache {
            Cache::Volatile => CacheMode::Volatile,
            Cache::Protected => {
                let journal = (self.size / 16).clamp(8 << 20, 32 << 20);
                CacheMode::Protected { journal: journal.next_multiple_of(4096) }
            }
        }
    }

    /// Physical blocks that hold data (T), without those that hold parity.
    pub fn data_blocks(&self) -> u64 {
        let chunk = u64::from(self.above.chunk_blocks());
        let of_unit = u64::from(self.data_chunks()) * chunk - u64::from(self.idle);
        u64::from(self.above.total_pus()) * of_unit
    }

    /// What to take instead, where too many chunks are bad from the factory.
    pub fn with_more_chunks(&self) -> String {
        match self.spec.parity {
            0 => format!("name size={} and leave out chunks, so that", show_size(self.size)),
            _ => "take more spare, or a larger size, so that".into(),
        }
    }

    /// Bytes of flash, of those in the geometry, that parity takes.
    pub fn parity_bytes(&self) -> u64 {
        (self.geometry.blocks() - self.above.blocks()) * BLOCK_BYTES
    }

    /// Logical blocks (U).
    pub fn logical_blocks(&self) -> u64 {
        self.size / BLOCK_BYTES
    }

    /// (T - U) / T as it came out: that of the name or the profile, but for a
    /// block a unit, or more where a unit's open chunks need it.
    pub fn spare(&self) -> f64 {
        let data = self.data_blocks();
        (data - self.logical_blocks()) as f64 / data as f64
    }

    /// Why it has more spare than its profile, where nobody asked for it.
    pub fn raised_spare(&self) -> Option<String> {
        let (spare, of_profile) = (self.spare(), self.profile.spare);
        let is_asked = self.spec.overrides.iter().any(|(key, _)| key == "spare");
        // Whole blocks a unit raise it a little.
        let raised = self.spec.target == TargetKind::Pblk && spare > of_profile * 1.05;
        (raised && self.spec.size.is_some() && !is_asked).then(|| {
            let logical = self.logical_blocks() as f64
                / f64::from(self.above.total_pus())
                / f64::from(self.above.chunk_blocks());
            format!(
                "{spare:.4}, not the profile's {of_profile}: of so small a drive each of {} units \
                 holds {logical:.1} chunks, and has two open beside them",
                self.above.total_pus(),
            )
        })
    }

    /// The effective configuration, for reports: every number, none implied.
    pub fn effective(&self) -> Value {
        let spec = &self.spec;
        let mut json = json!({
            "name": self.name,
            "size_bytes": self.size,
            "spare": self.spare(),
            "data_bytes": self.data_blocks() * BLOCK_BYTES,
            "physical_bytes": self.geometry.blocks() * BLOCK_BYTES,
            "parallel_units": self.geometry.total_pus(),
            "chunk_bytes": u64::from(self.geometry.chunk_blocks()) * BLOCK_BYTES,
            "data_chunks_per_pu": self.data_chunks(),
            "idle_blocks_per_pu": self.idle,
            "reserve_chunks_per_pu": self.reserve,
            "total_chunks_per_pu": self.total_chunks(),
            "store": spec.store.name(),
            "target": spec.target.name(),
            "victim": victim_name(spec.victim),
            "cache": spec.cache.name(),
            "shards": spec.shards,
            "profile": self.profile.to_table(),
        });
        if spec.parity > 0 {
            json["parity"] = json!({
                "width": spec.parity,
                "bytes": self.parity_bytes(),
                "superblock_bytes": u64::from(self.above.chunk_blocks()) * BLOCK_BYTES,
            });
        }
        if !self.faults.is_empty() {
            json["faults"] = self.faults.to_json();
        }
        json
    }
}

/// A built-in profile, or the one in a file.
pub fn load(name: &str) -> Result<Profile, DriveError> {
    if let Some(profile) = Profile::builtin(name) {
        return Ok(profile);
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        let known = Profile::names().collect::<Vec<_>>().join(", ");
        return Err(DriveError::NoProfile { name: name.into(), known });
    }
    let text = text_of(name).map_err(|source| DriveError::Read { path: name.into(), source })?;
    Ok(Profile::from_toml(&text, name)?)
}

/// What stands in a file. Nothing else is read: a pipe may say nothing for
/// ever, and a device may never end.
pub fn text_of(path: &str) -> io::Result<String> {
    let about = std::fs::metadata(path)?;
    if about.is_file() && about.len() <= MOST_TEXT {
        return std::fs::read_to_string(path);
    }
    let text = format!("it is no file, or has more than {}", units::size_binary(MOST_TEXT));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The geometry of one of some shards, whose number divides the groups.
fn part(geometry: &Geometry, shards: u32) -> Geometry {
    let groups = geometry.dimensions().groups / shards;
    Geometry::new(Dimensions { groups, ..geometry.dimensions() }).expect("fewer groups will do")
}

/// What a target on a drive of this geometry sees, with parity of a width or
/// none.
fn above(geometry: &Geometry, parity: u32) -> Result<Geometry, ParityError> {
    match parity {
        0 => Ok(*geometry),
        width => parity::geometry(geometry, width),
    }
}

/// Parts of a billion that the spare leaves: whole numbers keep `spare=0.7` of
/// ten blocks at three blocks.
fn left_of(spare: f64) -> u128 {
    1_000_000_000 - (spare * 1e9).round() as u128
}

/// U for T blocks, rounded down.
fn logical_blocks(data: u64, spare: f64) -> Result<u64, DriveError> {
    let blocks = (u128::from(data) * left_of(spare) / 1_000_000_000) as u64;
    if blocks == 0 {
        return Err(DriveError::Empty { spare, blocks: data });
    }
    Ok(blocks)
}

/// `derived` chunks a parallel unit. Refused when `given` is another number.
fn whole_chunks(
    derived: u64,
    size: u64,
    spare: f64,
    given: Option<u32>,
) -> Result<u32, DriveError> {
    match given {
        Some(given) if u64::from(given) != derived => {
            Err(DriveError::Contradiction { size, spare, derived, given })
        }
        _ => u32::try_from(derived).map_err(|_| DriveError::TooLarge {
            source: GeometryError::Range { what: "chunks", value: derived, range: "1 to 16777216" },
        }),
    }
}

/// Chunks a parallel unit to be added to the reserve where so many may be bad
/// from the factory that a drive of this size has no room to be written: a small
/// one, of few chunks. As many as are expected, and six deviations.
fn more_for_bad_chunks(profile: &Profile, size: u64) -> u32 {
    let share = match &profile.reliability {
        model if model.errors => model.factory_bad,
        _ => return 0,
    };
    let dim = profile.dimensions;
    let pus = u64::from(dim.groups) * u64::from(dim.pus);
    let Ok(data) = profile.check() else { return 0 };
    let full = size.div_ceil(u64::from(data.chunk_blocks()) * BLOCK_BYTES);
    let enough = |more: &u32| {
        let all =
            u64::from(dim.chunks) + u64::from(targets::reserve_chunks(&dim).saturating_add(*more));
        let expected = (pus * all) as f64 * share;
        let bad = (expected + 6.0 * expected.sqrt()).ceil() as u64;
        // With no more than one a unit beside those that are full of data it can
        // only be read.
        pus * u64::from(dim.chunks + more) > full + pus + bad
    };
    // A drive of which most is bad cannot be made up for.
    if share == 0.0 { 0 } else { (0..=dim.chunks.max(64)).find(enough).unwrap_or(0) }
}

/// The `key=value` parts of a drive's name, each key once.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, DriveError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for part in text.split(',') {
        let (key, value) =
            part.split_once('=').ok_or_else(|| DriveError::Part { part: part.into() })?;
        let (key, value) = (key.trim(), value.trim());
        if pairs.iter().any(|(seen, _)| *seen == key) {
            return Err(DriveError::Twice { key: key.into() });
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// A number without a unit.
fn number<T: FromStr>(key: &'static str, value: &str) -> Result<T, DriveError> {
    let takes = "a number";
    value.parse().map_err(|_| DriveError::Value { key, value: value.into(), takes })
}

/// Yes or no.
fn flag(key: &'static str, value: &str) -> Result<bool, DriveError> {
    match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(DriveError::Value { key, value: value.into(), takes: "yes or no" }),
    }
}

/// A time that [`units::duration_ns`] reads back: the largest unit that leaves
/// a whole number.
fn time_text(ns: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let fits = units.into_iter().find(|(_, unit)| ns > 0 && ns.is_multiple_of(*unit));
    let (name, unit) = fits.unwrap_or(("ns", 1));
    format!("{}{name}", ns / unit)
}

/// A logical capacity: at least a block, and a multiple of it.
fn size_of(value: &str) -> Result<u64, DriveError> {
    let bytes = units::size(value).map_err(DriveError::Size)?;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        let takes = "a multiple of 4 KiB (4096 bytes) that is not zero, for example 8G; GB is \
                     decimal, 10^9 bytes, and seldom one";
        return Err(DriveError::Value { key: "size", value: value.into(), takes });
    }
    Ok(bytes)
}

/// A width of parity, or 0 for none.
fn width_of(value: &str) -> Result<u32, DriveError> {
    let takes = WIDTHS;
    match number("parity", value) {
        Ok(width) if width == 0 || (MIN_WIDTH..=MAX_WIDTH).contains(&width) => Ok(width),
        _ => Err(DriveError::Value { key: "parity", value: value.into(), takes }),
    }
}

/// A size that [`units::size`] reads back: the largest binary unit that
/// leaves a whole number.
fn show_size(bytes: u64) -> String {
    units::size_binary(bytes).replace(' ', "").replace("iB", "").replace('B', "")
}

/// All keys that a drive's name may have.
fn known_keys() -> String {
    let own = ["size", "store", "target", "victim", "parity", "cache", "shards"];
    own.into_iter().chain(KEYS.iter().map(|k: &Key| k.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
