//! An entry of a journal: what one write, trim or write zeroes did.

use port::BlockOp;
use xxhash_rust::xxh3::xxh3_64;

use crate::mutation::{self, Mutation};

/// Bytes of an entry before its data, and what entries begin at multiples of.
pub const ENTRY_BYTES: usize = 64;

/// An entry without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub at: u64,
    /// What it does: write, trim or write zeroes.
    pub op: BlockOp,
    /// First byte on the drive.
    pub offset: u64,
    /// Bytes on the drive.
    pub len: u64,
    /// Bytes of data that follow.
    pub data: u32,
    /// Checksum of the data.
    pub sum: u64,
    /// The drive did not permit it when it was sent.
    pub refused: bool,
}

impl Entry {
    /// Bytes that an entry with so much data takes.
    #[inline]
    pub fn space(data: usize) -> u64 {
        (ENTRY_BYTES + data).next_multiple_of(ENTRY_BYTES) as u64
    }

    /// Its bytes.
    #[inline]
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (i, number) in [self.at, self.offset, self.len, self.sum].into_iter().enumerate() {
            bytes[8 + 8 * i..16 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&self.data.to_le_bytes());
        bytes[44] = match self.op {
            BlockOp::Trim => 2,
            BlockOp::WriteZeroes => 3,
            _ => 1,
        };
        bytes[45] = self.refused.into();
        let sum = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The entry in these bytes, which should be that at `at`; else what is
    /// wrong.
    pub fn decode(bytes: &[u8; ENTRY_BYTES], at: u64) -> Result<Entry, &'static str> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if number(0) != xxh3_64(&bytes[8..]) {
            return Err("its checksum is wrong");
        }
        let op = match bytes[44] {
            1 => BlockOp::Write,
            2 => BlockOp::Trim,
            3 => BlockOp::WriteZeroes,
            _ => return Err("its operation is unknown"),
        };
        let data = u32::from_le_bytes(bytes[40..44].try_into().expect("4 bytes"));
        let refused = match bytes[45] {
            0 => false,
            1 => true,
            _ => return Err("what became of it is unknown"),
        };
        let (offset, len, sum) = (number(16), number(24), number(32));
        let entry = Entry { at, op, offset, len, data, sum, refused };
        if number(8) != at && !mutation::is(Mutation::ReplayOlder) {
            return Err("it belongs elsewhere");
        }
        if bytes[46..].iter().any(|&byte| byte != 0) {
            return Err("there is something where there is nothing");
        }
        if op != BlockOp::Write && data > 0 {
            return Err("it has data and should have none");
        }
        Ok(entry)
    }
}
