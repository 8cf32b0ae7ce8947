//! What a run of YCSB is: the drive, the store, the workload, and how much of
//! it. Nothing fails.

use btree::{PAGE_BYTES, StoreKind};
use workload::ycsb::{KEY_BYTES, RECORD_BYTES, Workload};

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
    pub store: StoreKind,
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

impl Setup {
    /// Bytes of the cache while the store is loaded: enough that few pages are
    /// written more than a few times.
    pub fn loading_cache(&self) -> u64 {
        (self.records * 1024).max(8 << 20)
    }

    /// Bytes of memory that the run is sure to take when it is loaded: the
    /// records are on the flash then, and in the cache.
    pub fn needs(&self) -> u64 {
        let records = self.records * (KEY_BYTES + RECORD_BYTES) as u64;
        let tables = Needs::of(&self.drive).tables;
        [records, self.loading_cache(), BESIDES].into_iter().fold(tables, u64::saturating_add)
    }
}

/// Bytes of a drive that such a load needs: twice what lives, with room for
/// the metadata; and without collection all that is written besides.
pub fn size_for(workload: Workload, records: u64, ops: u64, durable: bool) -> u64 {
    let inserts = if matches!(workload, Workload::D | Workload::E) { ops / 10 } else { 0 };
    let live = (records + inserts) * 4608 + (48 << 20);
    let rewritten = match workload {
        Workload::C => 0,
        Workload::A | Workload::F => 2 * ops / 3,
        _ => ops / 3,
    };
    // Operations that warm the cache are at most twice its pages.
    let grown = if durable { 0 } else { (rewritten + records / 3) * (PAGE_BYTES as u64 + 512) };
    (live + grown).next_multiple_of(1 << 20)
}
