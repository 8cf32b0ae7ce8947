//! The segments of the log: what each is, and how much lives in it.

/// What has become of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// The head, or the one after it.
    Open,
    Closed,
    Collecting,
    /// All that lived in it is on its way to another.
    Moved,
    /// Nothing lives in it; so many checkpoints had begun then.
    Dead(u64),
    Trimming,
    /// It has a page that cannot be read.
    Stuck,
}

/// A segment, and what is in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub state: State,
    /// Blocks that the map names.
    pub live: u16,
    /// Records in it that the map has not learned of.
    pub records: u16,
    /// Reads under way.
    pub reads: u16,
    /// Pages that collection has copied and that the map has not learned of.
    /// Until it has, their blocks must not come to hold the same pages again.
    pub copied: u16,
}
