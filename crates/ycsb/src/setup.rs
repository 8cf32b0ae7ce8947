//! What a run of YCSB is: the drive, the store, the workload, and how much of
//! it. Nothing fails.

use btree::{OVERFLOW_BYTES, PAGE_BYTES, Store};
use workload::ycsb::{KEY_BYTES, Workload};

use drive::memory::Needs;
use drive::spec::DriveConfig;

/// How large the cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// In percent of the tree's pages when it is loaded.
    Percent(f64),
    /// In bytes.
    Bytes(u64),
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The flash, its link, and the conventional drive above.
    pub drive: DriveConfig,
    /// The workload.
    pub workload: Workload,
    /// Records that are loaded.
    pub records: u64,
    /// Operations that are counted.
    pub ops: u64,
    /// The cache.
    pub cache: CacheSize,
    /// The store.
    pub store: Store,
    /// Bytes of a value, 16 or more.
    pub value: usize,
    /// With collection and checkpoints.
    pub durable: bool,
    /// Operations under way at once.
    pub clients: usize,
    /// Nanoseconds for which each command occupies the controller, beside what
    /// this machine's processor takes for it.
    pub controller: u64,
    /// What all random numbers come from.
    pub seed: u64,
    /// In real time.
    pub real: bool,
    /// Checks all that is read, and at the end all records.
    pub verify: bool,
}

/// What a run takes beside its drive's tables, its cache, and its records: the
/// buffers and queues of store and controller.
const BESIDES: u64 = 24 << 20;

/// What a record of the tree takes beside its value, in bytes, and the longest value
/// that is not in pages of its own.
const BESIDE_VALUE: u64 = 24;
const LONGEST_INLINE: u64 = 2000;

impl Setup {
    /// Bytes of the cache while the store is loaded: enough that few pages are
    /// written more than a few times.
    pub fn loading_cache(&self) -> u64 {
        (self.records * (self.value as u64 + BESIDE_VALUE)).max(8 << 20)
    }

    /// Bytes of buffers for values on their way, of a store without a tree: room for all
    /// that may be.
    pub fn buffers(&self) -> u64 {
        2 * (self.clients as u64 + 1) * (self.value as u64).next_power_of_two().max(4096)
    }

    /// Bytes of memory that the run is sure to take when it is loaded: the
    /// records are on the flash then, and in the cache.
    pub fn needs(&self) -> u64 {
        let records = self.records * (KEY_BYTES + self.value) as u64;
        let tables = Needs::of(&self.drive).tables;
        let cache = match self.store {
            Store::Tree(_) => self.loading_cache(),
            Store::Keyed => self.buffers(),
        };
        [records, cache, BESIDES].into_iter().fold(tables, u64::saturating_add)
    }
}

/// Records that a workload inserts, at most.
fn inserts(workload: Workload, ops: u64) -> u64 {
    if matches!(workload, Workload::D | Workload::E) { ops / 10 } else { 0 }
}

/// Keys that a drive has room for which keeps such a load by key.
pub fn keys_for(workload: Workload, records: u64, ops: u64) -> u64 {
    // A few more: the last places of its index are hard to find.
    (records + inserts(workload, ops)) * 11 / 10 + 1000
}

/// Bytes of a drive that such a load needs: twice what lives, with room for
/// the metadata; and without collection all that is written besides.
pub fn size_for(workload: Workload, records: u64, ops: u64, durable: bool, value: usize) -> u64 {
    let value = value as u64;
    let (each, page) = match value {
        0..=LONGEST_INLINE => ((value + BESIDE_VALUE) * 9 / 2, PAGE_BYTES as u64 + 512),
        _ => {
            let pages = value.div_ceil(OVERFLOW_BYTES as u64) * PAGE_BYTES as u64;
            (pages * 9 / 4 + 512, pages + PAGE_BYTES as u64)
        }
    };
    let live = (records + inserts(workload, ops)) * each + (48 << 20);
    let rewritten = match workload {
        Workload::C => 0,
        Workload::A | Workload::F => 2 * ops / 3,
        _ => ops / 3,
    };
    // Operations that warm the cache are at most twice its pages.
    let grown = if durable { 0 } else { (rewritten + records / 3) * page };
    (live + grown).next_multiple_of(1 << 20)
}
