//! What a batched target tells of itself in numbers, and of its start.

use std::ops::RangeInclusive;

/// What the target has done since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounters {
    /// Batches acknowledged.
    pub batches: u64,
    /// Batches that failed, refused ones too.
    pub failed_batches: u64,
    /// Logical pages taken to be written, those that came again later in their batch not.
    pub user: u64,
    /// Those of them that were programmed, each once however often its program failed.
    pub placed: u64,
    /// Logical pages given up.
    pub given_up: u64,
    /// Pages of batches that came again later in their batch: never written.
    pub superseded: u64,
    /// Reads completed, failed ones too.
    pub reads: u64,
    /// Those of them that failed.
    pub failed_reads: u64,
    /// Those of them whose page was never written, or given up.
    pub empty_reads: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Blocks programmed to fill rows of pages.
    pub padding: u64,
    /// Rows of log written, failed tries too.
    pub log_rows: u64,
    /// Blocks of them that are pages of batches: of the host, collection or tables.
    pub in_log: u64,
    /// Pages of tables written.
    pub table_pages: u64,
    /// Pages of MAP read.
    pub map_loads: u64,
    /// Programs that failed.
    pub failed_programs: u64,
    /// Pages that went elsewhere, by an RDESC_A.
    pub amended: u64,
    /// Chunks taken to be collected.
    pub collections: u64,
    /// Reads of rows by collection.
    pub collect_reads: u64,
    /// Chunks erased.
    pub erases: u64,
    /// Chunks given up.
    pub retired: u64,
    /// Chunks that stay since a block that counts cannot be read.
    pub stuck: u64,
    /// Chunks that the drive wanted refreshed, put down to be collected.
    pub refreshed: u64,
    /// Chunks put down to be collected since others are worn more.
    pub leveled: u64,
    /// Pages of MAP that could not be read.
    pub lost: u64,
    /// Of these, those that were made anew.
    pub repaired: u64,
    /// Checkpoints begun.
    pub checkpoints: u64,
    /// Blocks programmed in all.
    pub programmed: u64,
}

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The drive was empty.
    pub fresh: bool,
    /// Number of the checkpoint record that was used.
    pub checkpoint: u64,
    /// Rows of log read.
    pub rows: u64,
    /// Entries of records read.
    pub entries: u64,
    /// Batches whose flash locations were read, as no done record covers them.
    pub verified: u64,
    /// Batches that had begun and were dropped.
    pub dropped: u64,
    /// LSNs that no batch has: of those that this start dropped, and some more
    /// that a lost row of the log may have named; and the same of earlier starts
    /// that the log tells of.
    pub unused: Vec<RangeInclusive<u64>>,
    /// Pages of MAP read.
    pub map_pages: u64,
    /// Damaged pages of tables that were made anew.
    pub rebuilt: u64,
    /// Drive time that it took, in ns.
    pub time: u64,
}
