//! How a batched target is set up, and why it cannot be.

use flash::{Geometry, Ppa};
use port::units::size_binary;
use port::{MAX_BATCH_PAGES, Status};
use thiserror::Error;

use super::map::PAGE_BYTES;
use super::paged::{PAGE_WORDS, pages_for};
use super::record::MAX_LINKS;

/// Chunks reserved for checkpoint records at the beginning of each of two
/// units.
pub(super) const SLOT_CHUNKS: u32 = 2;

/// How a batched target is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Logical pages: LPIDs are below it. At most [`BatchConfig::capacity`].
    pub pages: u64,
    /// Most pages of one batch, 1 to 511.
    pub max_pages: u32,
    /// Batches that may be inside at once, 1 to 256.
    pub batches: usize,
    /// Requests that may be inside at once, more than `batches`.
    pub depth: usize,
    /// Memory for pages of MAP, in bytes. The paper's: 512 MB for a MAP of 4 GB.
    pub cache_bytes: u64,
    /// FORWARD links of a log row: how many failed writes of the next row are
    /// survived, plus one. 1 to 8.
    pub forward_links: u32,
    /// Rows of log after which a checkpoint begins, at least 4. What recovery
    /// reads is at most about three times as much.
    pub log_rows: u64,
    /// Nanoseconds after which a checkpoint begins with the next request, or 0.
    /// The paper's: 10 s.
    pub checkpoint_every: u64,
    /// Chunks that are collected at once, 1 to 16.
    pub collectors: u32,
    /// Chunks open at once for what the host writes; 0 for one in each parallel
    /// unit, fewer on a drive of few chunks.
    pub user_lanes: u32,
    /// Chunks open at once for what collection moves, and as many for the pages
    /// of tables; 0 as above.
    pub side_lanes: u32,
}

impl BatchConfig {
    /// A set-up for a geometry: as many logical pages as there is room for with
    /// the part `spare` of the drive, 0 to 0.9, not used.
    pub fn for_geometry(geometry: &Geometry, spare: f64) -> BatchConfig {
        let rows = geometry.blocks() / u64::from(geometry.row_blocks());
        let mut config = BatchConfig {
            pages: 0,
            max_pages: MAX_BATCH_PAGES as u32,
            batches: 16,
            depth: 256,
            cache_bytes: 512 << 20,
            forward_links: 3,
            log_rows: (rows / 64).clamp(16, 16384),
            checkpoint_every: 10_000_000_000,
            collectors: if geometry.total_pus() > 8 { 4 } else { 1 },
            user_lanes: 0,
            side_lanes: 0,
        };
        config.pages = (geometry.blocks() as f64 * (1.0 - spare.clamp(0.0, 0.9))) as u64;
        // Fewer pages have smaller tables, and so more room.
        while config.pages > config.capacity(geometry) {
            config.pages = config.capacity(geometry);
        }
        config
    }

    /// Most logical pages that a drive of this geometry has room for.
    pub fn capacity(&self, geometry: &Geometry) -> u64 {
        let layout = Layout::of(geometry, self);
        let chunks = chunks_of(geometry).saturating_sub(layout.overhead);
        // So that of so many chunks one is always worth to be collected.
        let blocks = (chunks * u64::from(geometry.chunk_blocks()) * 15 / 16)
            .min(chunks * u64::from(layout.most_valid));
        let tables = (table_pages(geometry, blocks) * 9).div_ceil(8);
        blocks.saturating_sub(tables)
    }

    /// Checks all numbers.
    pub(super) fn check(&self, geometry: &Geometry) -> Result<Layout, BatchError> {
        let range = |what, value: u64, ok: bool, range| {
            if ok { Ok(()) } else { Err(BatchError::Range { what, value, range }) }
        };
        let n = u64::from(self.max_pages);
        range("max_pages", n, (1..=MAX_BATCH_PAGES as u64).contains(&n), "1 to 511")?;
        let n = self.batches as u64;
        range("batches", n, (1..=256).contains(&n), "1 to 256")?;
        let n = self.depth as u64;
        range("depth", n, self.depth > self.batches && n <= 1024, "more than batches, up to 1024")?;
        let n = u64::from(self.forward_links);
        range("forward_links", n, (1..=MAX_LINKS as u64).contains(&n), "1 to 8")?;
        range("log_rows", self.log_rows, (4..=1 << 24).contains(&self.log_rows), "4 to 16777216")?;
        let n = u64::from(self.collectors);
        range("collectors", n, (1..=16).contains(&n), "1 to 16")?;
        let capacity = self.capacity(geometry);
        let one = BatchConfig { pages: 1, ..*self };
        if one.capacity(geometry) == 0 {
            return Err(Layout::of(geometry, &one).too_small(geometry, &one));
        }
        if self.pages == 0 || self.pages > capacity {
            return Err(BatchError::Capacity { pages: self.pages, capacity });
        }
        let layout = Layout::of(geometry, self);
        if layout.cache_slots() < layout.least_slots {
            return Err(BatchError::Cache {
                bytes: self.cache_bytes,
                least: (layout.least_slots * PAGE_BYTES) as u64,
            });
        }
        Ok(layout)
    }
}

/// Chunks that are not reserved for checkpoint records.
fn chunks_of(geometry: &Geometry) -> u64 {
    let all = u64::from(geometry.total_pus()) * u64::from(geometry.chunks());
    all.saturating_sub(2 * u64::from(SLOT_CHUNKS))
}

/// Pages of all tables of a drive with `lpids` logical pages.
fn table_pages(geometry: &Geometry, lpids: u64) -> u64 {
    let map = lpids.div_ceil(PAGE_WORDS as u64);
    let chunk_words = u64::from(geometry.chunk_blocks()).div_ceil(64);
    let garbage = (geometry.chunk_slots() as u64 * chunk_words).div_ceil(PAGE_WORDS as u64);
    let wear = (geometry.chunk_slots() as u64).div_ceil(1024);
    map + map.div_ceil(512) + garbage + garbage.div_ceil(512) + wear
}

/// Chunks that rows of log for the host's batches may take below the reserve.
const HOST_LOG: usize = 2;

/// Rows that a victim costs beside those of its pages: in the log, which two
/// rows of it tell of, and in checkpoints, which these bring nearer.
fn victim_rows(geometry: &Geometry, config: &BatchConfig) -> u32 {
    let tables = table_pages(geometry, 1).div_ceil(u64::from(geometry.row_blocks()));
    1 + (2 * (1 + tables)).div_ceil(config.log_rows.max(1)) as u32
}

/// What follows from geometry and set-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub user_lanes: usize,
    pub side_lanes: usize,
    pub log_lanes: usize,
    /// No chunk is opened for the host's pages while no more than so many are
    /// free.
    pub reserve: usize,
    /// Nor is any of the host's batches let in while no more than so many are: a
    /// batch takes a row of the log, too, so that without this small ones would
    /// take all that is left to collection, tables and log.
    pub floor: usize,
    /// Most valid blocks of a chunk that is worth to be collected: more than what
    /// that costs is free then.
    pub most_valid: u32,
    /// Chunks that never hold data that counts: open, pinned by the log, or in
    /// reserve.
    pub overhead: u64,
    /// Slots that the cache has at least, so that nothing waits for ever.
    pub least_slots: usize,
    wanted_slots: usize,
}

impl Layout {
    fn of(geometry: &Geometry, config: &BatchConfig) -> Layout {
        let units = geometry.total_pus() as usize;
        let chunks = chunks_of(geometry) as usize;
        let lanes = |asked: u32, each: usize| match asked as usize {
            0 => (chunks / each).clamp(1, units),
            asked => asked,
        };
        let (user_lanes, side_lanes) =
            (lanes(config.user_lanes, 12), lanes(config.side_lanes, 24).min(8));
        let log_lanes = config.forward_links as usize;
        let rows = u64::from(geometry.chunk_blocks() / geometry.row_blocks());
        let pinned = (3 * config.log_rows).div_ceil(rows) + log_lanes as u64 + 1;
        let wanted_slots = (config.cache_bytes / PAGE_BYTES as u64) as usize;
        // What a checkpoint writes at once.
        let tables = table_pages(geometry, config.pages).min(2 * wanted_slots as u64);
        let tables = tables.div_ceil(u64::from(geometry.chunk_blocks())) as usize;
        let cost = victim_rows(geometry, config);
        let floor = 2 * config.collectors as usize + 2 * side_lanes + log_lanes + tables + 2;
        let reserve = floor + HOST_LOG;
        let open = user_lanes + 2 * side_lanes;
        let least = config.max_pages as usize + 128 * config.collectors as usize + 16;
        Layout {
            user_lanes,
            side_lanes,
            log_lanes,
            reserve,
            floor,
            most_valid: geometry.chunk_blocks().saturating_sub(cost * geometry.row_blocks()),
            overhead: (reserve + open) as u64 + pinned,
            least_slots: least.min(pages_for(config.pages as usize)),
            wanted_slots,
        }
    }

    pub fn cache_slots(&self) -> usize {
        self.wanted_slots
    }

    /// What a drive would have that has room for anything.
    fn too_small(&self, geometry: &Geometry, config: &BatchConfig) -> BatchError {
        let slots = 2 * u64::from(SLOT_CHUNKS);
        BatchError::Small {
            chunks: u64::from(geometry.total_pus()) * u64::from(geometry.chunks()),
            rows: geometry.chunk_blocks() / geometry.row_blocks(),
            // More of them have more lanes.
            enough_chunks: (self.overhead + slots) * 3 / 2 + 8,
            enough_rows: victim_rows(geometry, config) + 2,
        }
    }
}

/// What is wrong with a block that must be there.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// It cannot be read: what the drive said.
    #[error("it cannot be read ({0})")]
    Unreadable(Status),
    /// Something else is there.
    #[error("something else is there")]
    Foreign,
}

/// Why a batched target cannot be set up, or takes no more writes.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// A number is outside its range.
    #[error("{what} = {value} is out of range: it must be {range}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// No room for so many pages, or none at all.
    #[error("{pages} logical pages are not 1 to {capacity}, which is what the drive has room for")]
    Capacity {
        /// What was asked for.
        pages: u64,
        /// What there is room for.
        capacity: u64,
    },
    /// No room for anything.
    #[error(
        "{chunks} chunks of {rows} rows are too small: {enough_chunks} of {enough_rows} would do"
    )]
    Small {
        /// What there is.
        chunks: u64,
        /// And of how many rows.
        rows: u32,
        /// What would do.
        enough_chunks: u64,
        /// And of how many rows.
        enough_rows: u32,
    },
    /// The cache of MAP pages is too small.
    #[error(
        "a cache of {} is too small: batches need {} (cache_bytes)",
        size_binary(*bytes), size_binary(*least)
    )]
    Cache {
        /// What was asked for.
        bytes: u64,
        /// What is needed.
        least: u64,
    },
    /// The drive makes recent writes wait before they can be read.
    #[error(
        "the last {0} blocks of an open chunk cannot be read on this drive: unreadable must be 0"
    )]
    Unreadable(u32),
    /// The drive limits how many chunks are open.
    #[error("this drive limits its open chunks: open_chunks and open_chunks_pu must be none")]
    OpenChunks,
    /// The drive cannot hold the target's own records.
    #[error("the drive has no good chunks for checkpoint records at the beginning of its units")]
    Slots,
    /// There was a checkpoint, and no record of one is whole; or there is none on
    /// a drive that was written; or the newest is damaged, and it alone led to rows of
    /// the log that are there.
    #[error("no checkpoint record that is whole leads to what the drive held")]
    Checkpoint,
    /// Nothing was ever written to the drive, and it is not to be made new.
    #[error("the drive holds nothing")]
    Nothing,
    /// Another version wrote the drive.
    #[error("the drive was written by another version (format {0}, this one reads 1 and 2)")]
    Version(u32),
    /// The drive was made with another number of pages or geometry.
    #[error("the drive was made with {found} logical pages, not {asked}, or another geometry")]
    Mismatch {
        /// What was found.
        found: u64,
        /// What was asked for.
        asked: u64,
    },
    /// A row of the log that must be there cannot be read.
    #[error("the log is damaged at {at:?}: {why}")]
    Log {
        /// Where.
        at: Ppa,
        /// What is wrong with it.
        why: Damaged,
    },
    /// A page of a table is damaged, and so is what it would be made anew from.
    #[error("a page of the tables at {at:?} is damaged, and others that say the same: {why}")]
    Table {
        /// Where.
        at: Ppa,
        /// What is wrong with it.
        why: Damaged,
    },
    /// The drive answers no more.
    #[error("the drive stopped answering")]
    Stopped,
    /// All places of the forward vector failed. The target takes no writes any
    /// more; all that was acknowledged can be read.
    #[error("row {row} of the log failed at all {tried} of its forward links")]
    LogExhausted {
        /// Which row.
        row: u64,
        /// How many links were tried.
        tried: usize,
    },
    /// No place for a checkpoint record is left. As above.
    #[error("no chunk is left to write a checkpoint record to")]
    SlotsExhausted,
    /// The drive's flush failed: nothing can be made durable. As above.
    #[error("the drive could not make its writes durable: {0}")]
    Flush(Status),
    /// No free chunk is left for the log or for the tables. As above.
    #[error("no free chunk is left for the target's own records")]
    NoSpace,
    /// No memory.
    #[error("no memory: {0}")]
    Memory(String),
}

impl From<ftl::Halt> for BatchError {
    fn from(halt: ftl::Halt) -> BatchError {
        match halt {
            ftl::Halt::Stopped => BatchError::Stopped,
            ftl::Halt::Memory(e) => e.into(),
        }
    }
}

impl From<port::OutOfMemory> for BatchError {
    fn from(e: port::OutOfMemory) -> BatchError {
        BatchError::Memory(e.to_string())
    }
}
