//! What is where on the disk, and the superblock that says so. `docs/formats.md` draws it.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk::{BLOCK, Disk};
use crate::error::FilesError;
use crate::options::{Journal, Names, Options};

/// The newest version of the format: what has data in its journal. All else is of version 1.
pub const VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"ssdkitFS";
/// Bytes of a sector: what is written whole.
pub(crate) const SECTOR: usize = 512;
/// Where the journal's header is.
pub(crate) const JOURNAL_HEADER: u32 = 1;
/// Where the journal's ring begins.
pub(crate) const RING: u32 = 2;
/// The least blocks of a disk.
const LEAST_BLOCKS: u64 = 256;
/// The least blocks of a journal.
const LEAST_JOURNAL: u32 = 64;

/// What the superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) blocks: u32,
    /// Blocks of the journal's ring.
    pub(crate) ring: u32,
    pub(crate) options: Options,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

pub(crate) fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

impl Layout {
    /// The layout of a new file system.
    pub(crate) fn new(blocks: u64, options: Options) -> Result<Layout, FilesError> {
        let ring = options.journal_blocks.unwrap_or((blocks / 32).clamp(64, 8192) as u32);
        let ring = if options.journal == Journal::None { 0 } else { ring };
        let layout = Layout { blocks: blocks.min(u64::from(u32::MAX)) as u32, ring, options };
        layout.checked(blocks)
    }

    /// The first group of the table of inodes.
    pub(crate) fn table(&self) -> u32 {
        RING + self.ring
    }

    fn checked(self, blocks: u64) -> Result<Layout, FilesError> {
        let range = |what, value, range| Err(FilesError::Range { what, value, range });
        if !(LEAST_BLOCKS..1 << 32).contains(&blocks) {
            return range("the disk's size in blocks", blocks, "it must be 256 to 2^32 - 1");
        }
        let ring = u64::from(self.ring);
        let has_ring = self.options.journal != Journal::None;
        if has_ring && (self.ring < LEAST_JOURNAL || ring > blocks / 2) {
            return range("journal_blocks", ring, "it must be 64 to half of the disk");
        }
        if self.options.journal == Journal::Data && self.options.names != Names::WithFile {
            let what =
                "with data in the journal they come with the file: all changes have one order";
            return range("names", self.options.names as u64, what);
        }
        if self.options.dirty_pages < 64 {
            let pages = u64::from(self.options.dirty_pages);
            return range("dirty_pages", pages, "it must be at least 64");
        }
        Ok(self)
    }

    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        let options = &self.options;
        put(&mut bytes, 0, *MAGIC);
        let version = if options.journal == Journal::Data { VERSION } else { 1 };
        put(&mut bytes, 8, version.to_le_bytes());
        bytes[12] = options.journal as u8;
        bytes[13] = options.names as u8;
        bytes[14] = u8::from(options.replace_writes);
        bytes[15] = u8::from(options.discard);
        put(&mut bytes, 24, options.id.to_le_bytes());
        put(&mut bytes, 32, self.blocks.to_le_bytes());
        put(&mut bytes, 36, self.ring.to_le_bytes());
        put(&mut bytes, 40, options.dirty_pages.to_le_bytes());
        let sum = xxh3_64_with_seed(&bytes[24..SECTOR], word(&bytes, 8));
        put(&mut bytes, 16, sum.to_le_bytes());
        bytes
    }

    pub(crate) fn read<D: Disk>(disk: &mut D) -> Result<Layout, FilesError> {
        let mut bytes = [0; BLOCK];
        if disk.blocks() == 0 {
            return Err(FilesError::NotOurs);
        }
        disk.read(0, &mut bytes)?;
        if &bytes[..8] != MAGIC {
            return Err(FilesError::NotOurs);
        }
        if !(1..=VERSION).contains(&half(&bytes, 8)) {
            return Err(FilesError::Version(half(&bytes, 8)));
        }
        let damaged = |what| FilesError::Damaged { block: 0, what };
        if word(&bytes, 16) != xxh3_64_with_seed(&bytes[24..SECTOR], word(&bytes, 8)) {
            return Err(damaged("the superblock's checksum is wrong"));
        }
        let options = Options {
            journal: match bytes[12] {
                0 => Journal::Ordered,
                1 => Journal::Writeback,
                2 => Journal::None,
                3 if half(&bytes, 8) == VERSION => Journal::Data,
                _ => return Err(damaged("the kind of journal is not known")),
            },
            names: if bytes[13] == 0 { Names::WithFile } else { Names::OnlyWithFolder },
            replace_writes: bytes[14] != 0,
            discard: bytes[15] != 0,
            journal_blocks: Some(half(&bytes, 36)).filter(|&blocks| blocks > 0),
            dirty_pages: half(&bytes, 40),
            id: word(&bytes, 24),
        };
        let layout = Layout { blocks: half(&bytes, 32), ring: half(&bytes, 36), options };
        if u64::from(layout.blocks) > disk.blocks() {
            return Err(damaged("the superblock tells of more blocks than the disk has"));
        }
        if layout.options.journal == Journal::None && layout.ring > 0 {
            return Err(damaged("there is a journal where none should be"));
        }
        let blocks = u64::from(layout.blocks);
        layout.checked(blocks)
    }
}
