//! How far a journal is written: one sector, which is there whole or as it was.

use xxhash_rust::xxh3::xxh3_64;

use crate::{JournalError, Life};

/// The version of the format that this crate writes, and the only one that it
/// reads.
pub const VERSION: u32 = 1;

/// Bytes of a state; less than a sector.
pub const STATE_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"ssdkitNV";

/// What a journal begins with. Positions count the bytes that were ever
/// appended; they are multiples of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Bytes for entries.
    pub bytes: u64,
    /// Entries from here on are not known to be durable below.
    pub head: u64,
    /// Entries up to here were given to the port below.
    pub tail: u64,
    /// Entries up to here survive a crash of the host.
    pub synced: u64,
    /// Of the host, when this was written.
    pub life: Option<Life>,
}

impl State {
    /// Its bytes.
    pub fn encode(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let numbers = [self.bytes, self.head, self.tail, self.synced];
        for (place, number) in bytes[24..56].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[56..72].copy_from_slice(&self.life.unwrap_or_default());
        let sum = xxh3_64(&bytes[24..]);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The state in these bytes, of a journal with `space` bytes for entries.
    pub fn decode(bytes: &[u8; STATE_BYTES], space: u64) -> Result<State, JournalError> {
        let wrong = |what| Err(JournalError::State { what });
        if &bytes[..8] != MAGIC {
            return wrong("it does not begin with `ssdkitNV`");
        }
        let found = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
        if found != VERSION {
            return match found {
                0 => wrong("there is no version 0"),
                _ => Err(JournalError::Version { found, known: VERSION }),
            };
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if number(16) != xxh3_64(&bytes[24..]) {
            return wrong("its checksum is wrong");
        }
        if bytes[12..16].iter().chain(&bytes[72..]).any(|&byte| byte != 0) {
            return wrong("there is something where there is nothing");
        }
        let life: Life = bytes[56..72].try_into().expect("16 bytes");
        let life = Some(life).filter(|life| *life != Life::default());
        let state = State {
            bytes: number(24),
            head: number(32),
            tail: number(40),
            synced: number(48),
            life,
        };
        let State { head, tail, .. } = state;
        if state.bytes != space {
            return wrong("it is of a journal of another size");
        }
        // Positions never come near the end of their numbers.
        let order = head <= tail && tail - head <= space && tail < 1 << 62;
        if !order || (head | tail) % 64 != 0 || state.synced > tail {
            return wrong("its positions contradict each other");
        }
        Ok(state)
    }
}
