//! How a file system behaves. It is chosen when it is made, and kept on the disk.

/// What the journal promises about data, as `data=` of ext4 says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Journal {
    /// Data of newly allocated blocks are on the disk before what makes them reachable. Data
    /// that replace others in place have no order.
    #[default]
    Ordered,
    /// Only metadata have an order: a block may be reachable before its data are there, and then
    /// shows what was there before.
    Writeback,
    /// There is no journal. Metadata are written in place, in any order, and the next mount drops
    /// what does not fit together, as fsck would.
    None,
    /// Data go through the journal with the metadata: a cut leaves the files as they were after
    /// some operation, all of them. Names come with the file ([`Names::WithFile`]).
    Data,
}

/// What makes the name of a file durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Names {
    /// `fsync` of the file, as with ext4.
    #[default]
    WithFile,
    /// Only `fsync` of a folder, or a commit that the file system makes for itself: all that
    /// POSIX promises.
    OnlyWithFolder,
}

/// How a file system behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the journal promises about data.
    pub journal: Journal,
    /// What makes a name durable.
    pub names: Names,
    /// A file that replaces another by rename, or was cut to nothing, is written back with the
    /// next commit, as with `auto_da_alloc` of ext4. Portable programs do not rely on it.
    pub replace_writes: bool,
    /// Blocks that are given up are trimmed.
    pub discard: bool,
    /// Blocks of the journal, at least 64; by default a 32nd of the disk, from 64 to 8192.
    pub journal_blocks: Option<u32>,
    /// Pages of 4 KiB that may be dirty; from then on they are written back. At least 64.
    pub dirty_pages: u32,
    /// A number by which what was written here is told from what others left on the disk.
    pub id: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            journal: Journal::default(),
            names: Names::default(),
            replace_writes: false,
            discard: false,
            journal_blocks: None,
            dirty_pages: 16384,
            id: 0,
        }
    }
}
