//! A sector of metadata: 512 bytes with a checksum, whole or not at all after a cut. Each has
//! a header and records of some bytes: names in a folder, extents of a file, pieces of a path.
//! A sector of zeros is free.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::layout::{SECTOR, half, put, word};

/// Bytes of the header.
pub(crate) const HEADER: usize = 48;
/// Bytes for records, each with two for its length.
pub(crate) const BODY: usize = SECTOR - HEADER;

/// What a sector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Use {
    /// The first of a group of the table of inodes.
    Group = 0x4752_5053,
    /// An inode.
    Inode = 0x4e4f_4453,
    /// More records of an inode.
    More = 0x524f_4d53,
}

/// Where a sector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) block: u32,
    /// From 0 to 7.
    pub(crate) sector: u8,
}

impl Place {
    pub(crate) fn bytes(self) -> std::ops::Range<usize> {
        let at = usize::from(self.sector) * SECTOR;
        at..at + SECTOR
    }

    fn seed(self, id: u64) -> u64 {
        id ^ (u64::from(self.block) << 3 | u64::from(self.sector)).rotate_left(20)
    }
}

/// What stands in a sector's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) used_as: Use,
    /// The inode whose it is; of a group, how many blocks it has.
    pub(crate) owner: u64,
    /// The block that continues it, or 0.
    pub(crate) next: u32,
    /// Which sector of the inode's it is, the inode's own being 0.
    pub(crate) number: u32,
    /// Bytes of a file.
    pub(crate) size: u64,
    /// Permission bits.
    pub(crate) mode: u16,
    /// Of an inode: 1 file, 2 folder, 3 link.
    pub(crate) kind: u8,
}

impl Header {
    pub(crate) fn new(used_as: Use, owner: u64) -> Header {
        Header { used_as, owner, next: 0, number: 0, size: 0, mode: 0, kind: 0 }
    }

    /// The header of a sector that is sealed there. `None`: it is something else.
    pub(crate) fn read(bytes: &[u8], id: u64, place: Place) -> Option<Header> {
        let header = Header::peek(bytes)?;
        (used(bytes) <= BODY && word(bytes, 0) == sum(bytes, id, place)).then_some(header)
    }

    /// The header of a sector, sound or not. `None`: it is none of metadata.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Header> {
        let all = [Use::Group, Use::Inode, Use::More];
        let used_as = *all.iter().find(|&&used_as| used_as as u32 == half(bytes, 8))?;
        Some(Header {
            used_as,
            owner: word(bytes, 16),
            next: half(bytes, 24),
            number: half(bytes, 28),
            size: word(bytes, 32),
            mode: u16::from_le_bytes([bytes[40], bytes[41]]),
            kind: bytes[14],
        })
    }

    /// Writes the header, and leaves the records.
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        put(bytes, 8, (self.used_as as u32).to_le_bytes());
        bytes[14] = self.kind;
        put(bytes, 16, self.owner.to_le_bytes());
        put(bytes, 24, self.next.to_le_bytes());
        put(bytes, 28, self.number.to_le_bytes());
        put(bytes, 32, self.size.to_le_bytes());
        put(bytes, 40, self.mode.to_le_bytes());
    }
}

fn sum(bytes: &[u8], id: u64, place: Place) -> u64 {
    xxh3_64_with_seed(&bytes[8..SECTOR], place.seed(id))
}

/// Sets the checksum.
pub(crate) fn seal(bytes: &mut [u8], id: u64, place: Place) {
    let sum = sum(bytes, id, place);
    put(bytes, 0, sum.to_le_bytes());
}

/// Bytes of the records.
fn used(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[12], bytes[13]]))
}

fn set_used(bytes: &mut [u8], used: usize) {
    put(bytes, 12, (used as u16).to_le_bytes());
}

/// Bytes that are free for records.
pub(crate) fn room(bytes: &[u8]) -> usize {
    BODY - used(bytes)
}

/// Bytes that a record takes.
pub(crate) fn space(record: usize) -> usize {
    record + 2
}

/// The records, and where each is in the sector. Ends early where a length makes no sense.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let end = HEADER + used(bytes).min(BODY);
    let mut at = HEADER;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let from = at + 2;
        if at + 2 > end || from + len > end {
            return None;
        }
        at = from + len;
        Some((from, &bytes[from..from + len]))
    })
}

/// Appends a record for which there is room.
pub(crate) fn push(bytes: &mut [u8], record: &[u8]) {
    let at = HEADER + used(bytes);
    put(bytes, at, (record.len() as u16).to_le_bytes());
    bytes[at + 2..at + 2 + record.len()].copy_from_slice(record);
    set_used(bytes, at + space(record.len()) - HEADER);
}

/// Takes out the record that is at `from`.
pub(crate) fn remove(bytes: &mut [u8], from: usize, len: usize) {
    let end = HEADER + used(bytes);
    bytes.copy_within(from + len..end, from - 2);
    bytes[end - space(len)..end].fill(0);
    set_used(bytes, end - space(len) - HEADER);
}

/// Takes out all records.
pub(crate) fn clear(bytes: &mut [u8]) {
    bytes[HEADER..].fill(0);
    set_used(bytes, 0);
}

/// Whether the records fill what is used.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    records(bytes).map(|(_, record)| space(record.len())).sum::<usize>() == used(bytes)
}
