//! What the log asks of the drive.

/// What a transfer is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Task {
    #[default]
    Opening,
    Page {
        page: u64,
        segment: u32,
    },
    Record(u64),
    Collect(u32),
    /// The tree's number of it; `None` for the log's own.
    Flush(Option<u32>, Covered),
    Trim(u32),
    CheckpointPart,
    CheckpointFlush(Covered),
    CheckpointHeader,
    /// A block beside the pages.
    ReadBeside(u64),
    WriteBeside(u8),
}

/// What a flush makes durable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Covered {
    /// The records before this one.
    pub records: u64,
    /// So many trims of segments, from the first on.
    pub trims: u64,
}

impl Task {
    /// What failed, if it does.
    pub fn what(&self) -> &'static str {
        match self {
            Task::Opening | Task::Page { .. } => "read a page",
            Task::Record(_) => "write a record of the log",
            Task::Collect(_) => "read a segment",
            Task::Flush(..) | Task::CheckpointFlush(_) => "flush",
            Task::Trim(_) => "trim a segment",
            Task::ReadBeside(_) => "read the redo log",
            Task::WriteBeside(_) => "write to the redo log",
            Task::CheckpointPart | Task::CheckpointHeader => "write a checkpoint",
        }
    }
}
