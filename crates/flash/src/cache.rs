//! What a controller keeps of what was read, and of the map.

/// A read cache. Off where it has no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCache {
    /// Bytes that it keeps; 0 for none.
    pub size: u64,
    /// Bytes of a line: 4 KiB times a power of two, at most 256 KiB. What follows a
    /// read in sequence up to the end of its line is read ahead.
    pub line: u32,
    /// Reads that may be inside while something is read ahead; 0 for never.
    pub depth: u32,
}

impl Default for ReadCache {
    fn default() -> ReadCache {
        ReadCache { size: 0, line: 64 << 10, depth: 0 }
    }
}

impl ReadCache {
    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.size > 0
    }
}
