//! What a block target tells of itself in numbers.

/// What was written, in logical blocks, and why; and what collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounters {
    /// Programmed for the user.
    pub user: u64,
    /// Programmed by collection.
    pub gc: u64,
    /// Programmed to fill a row for a flush; or in vain, in a row of the user that
    /// failed and went elsewhere.
    pub padding: u64,
    /// Programmed for the target's own records.
    pub metadata: u64,
    /// Blocks written over while still in the buffer; never programmed.
    pub absorbed: u64,
    /// Chunks collected.
    pub collections: u64,
    /// Blocks read by collection.
    pub moved: u64,
    /// Chunks erased.
    pub erases: u64,
    /// Chunks given up because a program of theirs failed.
    pub retired: u64,
    /// Logical blocks of which the newest copy in flash could not be read.
    pub lost: u64,
    /// Chunks that the drive wanted refreshed, put down to be collected, or to be
    /// left by what the target keeps for itself.
    pub refreshed: u64,
    /// Little worn chunks put down to be collected, to level wear.
    pub leveled: u64,
    /// The sum, over `held_rows`, of the blocks that held data, live or stale, in
    /// the unit that a user's row went to. Not kept over a restart.
    pub held: u64,
    /// User's rows that went to a unit of which a chunk was being collected. Not
    /// kept over a restart.
    pub held_rows: u64,
    /// Of `gc`, what was copied inside its unit and did not come down to it again. Not
    /// kept over a restart.
    pub copied: u64,
    /// Blocks read for the user that were never written, or trimmed: in no time.
    /// Not kept over a restart.
    pub nothing: u64,
}

port::sums!(
    WriteCounters: user, gc, padding, metadata, absorbed, collections, moved, erases, retired, lost,
    refreshed, leveled, held, held_rows, copied, nothing
);

/// What a map cache did: where not all of the map is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCacheCounters {
    /// Requests whose pages were held.
    pub hits: u64,
    /// Requests that waited for one.
    pub misses: u64,
    /// Pages that were read.
    pub read: u64,
}

port::sums!(MapCacheCounters: hits, misses, read);

impl WriteCounters {
    /// How many numbers are kept.
    pub const WORDS: usize = 12;

    /// All that are kept, in an order that formats keep.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let c = self;
        [
            c.user,
            c.gc,
            c.padding,
            c.metadata,
            c.absorbed,
            c.collections,
            c.moved,
            c.erases,
            c.retired,
            c.lost,
            c.refreshed,
            c.leveled,
        ]
    }

    /// The opposite of [`WriteCounters::words`].
    pub fn from_words(words: [u64; Self::WORDS]) -> WriteCounters {
        let [user, gc, padding, metadata, absorbed, collections, moved, erases, ..] = words;
        let [.., retired, lost, refreshed, leveled] = words;
        WriteCounters {
            user,
            gc,
            padding,
            metadata,
            absorbed,
            collections,
            moved,
            erases,
            retired,
            lost,
            refreshed,
            leveled,
            ..WriteCounters::default()
        }
    }

    /// Physical blocks that held data in the mean since `before`, of a drive of
    /// `pus` parallel units: T of the formulas as it came out. `None` where
    /// nothing was collected.
    pub fn held_since(&self, before: &WriteCounters, pus: u32) -> Option<f64> {
        let rows = self.held_rows.checked_sub(before.held_rows).filter(|&rows| rows > 0)?;
        let held = self.held.checked_sub(before.held)?;
        Some(held as f64 / rows as f64 * f64::from(pus))
    }
}

/// Bytes of memory that the target's tables take when the drive is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The map.
    pub map: u64,
    /// Where the map's pages are on flash.
    pub directory: u64,
    /// Which blocks are valid, and how many of each chunk.
    pub valid: u64,
    /// What the last checkpoint says of the chunks, and how far their
    /// collection is.
    pub chunks: u64,
    /// The write buffer's blocks, all 4096 bytes of each.
    pub write_buffer: u64,
    /// The same of what is programmed and cannot be read yet, in all chunks that may
    /// be open.
    pub held: u64,
}

port::sums!(Memory: map, directory, valid, chunks, write_buffer, held);

impl Memory {
    /// All tables, without what buffers blocks.
    pub fn total(&self) -> u64 {
        self.map.saturating_add(self.directory + self.valid + self.chunks)
    }
}
