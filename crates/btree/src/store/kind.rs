//! The stores of pages by their names, as drives best have them.

use std::fmt;
use std::str::FromStr;

use port::{BatchDone, BatchReq, BatchShape, BlockDone, BlockReq, Shape, Time};

use super::{
    AnyStore, Awaited, BatchStore, Beside, InPlaceConfig, InPlaceStore, LogConfig, LogStore,
    StoreError, in_place, log, no_clock,
};
use crate::PAGE_BYTES;

/// Most pages of a batch.
const BATCH: usize = 256;
/// The least pages of a drive with batched writes on which a new store gets a redo log.
const LEAST_LOGGED: u64 = 4096;

/// What keeps the pages of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// A drive with batched writes.
    #[default]
    Batched,
    /// A log on the host, over the block interface.
    Log,
    /// Each page in its place with a journal, over the block interface.
    InPlace,
}

impl StoreKind {
    /// All there are.
    pub const ALL: [StoreKind; 3] = [StoreKind::Batched, StoreKind::Log, StoreKind::InPlace];

    /// The store whose head is in the first two blocks of a drive; `None` when
    /// there is no whole one.
    pub fn of(blocks: &[u8]) -> Option<StoreKind> {
        blocks.chunks_exact(PAGE_BYTES).take(2).find_map(|block| {
            let log = log::is_head(block).then_some(StoreKind::Log);
            log.or(in_place::is_head(block).then_some(StoreKind::InPlace))
        })
    }

    /// Opens the store of this kind on a drive with blocks, or makes a new one: with the redo log
    /// that is best for the drive, or none where that does not fit.
    ///
    /// # Panics
    ///
    /// If it is a store for batched writes.
    pub fn on_blocks<'a>(
        self,
        drive: impl Awaited<Cmd = BlockReq, Done = BlockDone> + 'a,
        shape: Shape,
        opens: bool,
        now: Time,
    ) -> Result<AnyStore<'a>, StoreError> {
        let best = Beside::best(shape.bytes / PAGE_BYTES as u64);
        let redo = |least_bytes: u64| if least_bytes <= shape.bytes { best } else { 0 };
        match self {
            StoreKind::InPlace => {
                let make = if opens { InPlaceStore::open } else { InPlaceStore::create };
                let config = InPlaceConfig { redo: best, ..InPlaceConfig::default() };
                let config = InPlaceConfig { redo: redo(config.least_bytes()), ..config };
                Ok(Box::new(make(drive, shape, config, now)?))
            }
            StoreKind::Log => {
                let make = if opens { LogStore::open } else { LogStore::create };
                let config = LogConfig { redo: best, ..LogConfig::default() };
                let config = LogConfig { redo: redo(config.least_bytes()), ..config };
                Ok(Box::new(make(drive, shape, config, now)?))
            }
            StoreKind::Batched => unreachable!("a drive with blocks has no store for batches"),
        }
    }

    /// The store on a drive with batched writes. A new one has the redo log that is best, where
    /// the drive is not too small.
    pub fn on_batches<'a>(
        drive: impl Awaited<Cmd = BatchReq, Done = BatchDone> + 'a,
        shape: BatchShape,
        opens: bool,
    ) -> Result<AnyStore<'a>, StoreError> {
        let most = BATCH.min(shape.max_pages as usize);
        let redo = if opens || shape.pages < LEAST_LOGGED { 0 } else { Beside::best(shape.pages) };
        Ok(Box::new(BatchStore::new(drive, shape, most, no_clock)?.with_redo(redo)?))
    }

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Batched => "batched",
            StoreKind::Log => "log",
            StoreKind::InPlace => "in-place",
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StoreKind {
    type Err = String;

    fn from_str(name: &str) -> Result<StoreKind, String> {
        let found = StoreKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("`{name}` keeps no pages: write batched, log or in-place"))
    }
}

/// What keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A tree, whose pages are kept so.
    Tree(StoreKind),
    /// The drive itself, by key.
    Keyed,
}

impl Store {
    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Store::Tree(kind) => kind.name(),
            Store::Keyed => "kv",
        }
    }
}

impl FromStr for Store {
    type Err = String;

    fn from_str(name: &str) -> Result<Store, String> {
        match name.parse() {
            Ok(kind) => Ok(Store::Tree(kind)),
            Err(_) if name == "kv" => Ok(Store::Keyed),
            Err(_) => Err(format!("`{name}` is no store: write log, in-place, batched or kv")),
        }
    }
}
