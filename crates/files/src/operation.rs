//! What a program does to its files: one operation each, in the order in which they happened.
//! Whoever runs the program makes them; the file layer carries them out.

/// The number of a file, as long as it lives. Who makes an operation that creates a file chooses
/// a number that none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode(pub u64);

impl Inode {
    /// The folder that all others are in.
    pub const ROOT: Inode = Inode(1);
}

/// What a new file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names of others.
    Folder,
    /// A path, as its bytes.
    Link(Vec<u8>),
}

/// One thing that a program did. Names are bytes without `/`, not empty, at most 255.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new file, empty, under a name that nothing has. `mode` is its permission bits.
    Create {
        /// The folder that it is in.
        parent: Inode,
        /// Its name there.
        name: Vec<u8>,
        /// Which file.
        inode: Inode,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        mode: u16,
    },
    /// Another name of a file.
    Link {
        /// The folder that it is in.
        parent: Inode,
        /// Its name there.
        name: Vec<u8>,
        /// Which file.
        inode: Inode,
    },
    /// The name goes, and with the last one the file, once nobody has it open ([`Self::Forget`]).
    /// A folder is empty.
    Remove {
        /// The folder that it is in.
        parent: Inode,
        /// Its name there.
        name: Vec<u8>,
    },
    /// A file without a name that was open is closed: it goes. So does one that nobody had open:
    /// until this is said of a file whose last name went it stays, and keeps its room.
    Forget {
        /// Which file.
        inode: Inode,
    },
    /// A new name in place of the old; what had the new name is removed, or gets the old one.
    Rename {
        /// Folder and name that it had.
        from: (Inode, Vec<u8>),
        /// Folder and name that it gets.
        to: (Inode, Vec<u8>),
        /// The two change places.
        exchange: bool,
    },
    /// Bytes from `offset` on; what lies between the end and `offset` reads as zeros.
    Write {
        /// Which file.
        inode: Inode,
        /// In bytes.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// As long as `size`: cut, or zeros after the end.
    Truncate {
        /// Which file.
        inode: Inode,
        /// In bytes.
        size: u64,
    },
    /// Room for these bytes, which read as they did, or as zeros; the size grows to hold them
    /// unless `keep_size`.
    Allocate {
        /// Which file.
        inode: Inode,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u64,
        /// Whether the size stays.
        keep_size: bool,
    },
    /// These bytes read as zeros from now on, and the room is given up. The size stays.
    Punch {
        /// Which file.
        inode: Inode,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u64,
    },
    /// The permission bits.
    Mode {
        /// Which file.
        inode: Inode,
        /// Permission bits.
        mode: u16,
    },
    /// `fsync`; with `data` `fdatasync`: returns when what was done to the file before is durable.
    Sync {
        /// Which file.
        inode: Inode,
        /// What is not needed to read the data again may wait.
        data: bool,
    },
    /// `sync` and `syncfs`: all files.
    SyncAll,
}
