//! What a claim tells of: the chunks that changed in its generation, as they were
//! at its end. Numbers are little-endian.
//!
//! ```text
//!  byte 0     40         44      48      52     56
//!       │state│ checksum │ count │ chunk │ life │ blocks, flags │ … │
//!       │     │ of 44..  │ (u32) │ (u32) │(u32) │ (u32)         │   │
//!       │     │ and the  │
//!       │     │ state's  │
//! ```
//!
//! Guarantees: where the sync of the generation has ended, each of them is found.
//! Where each is found, so is all that the generation did, but for blocks, which
//! are looked at beside, and for how programs failed that stored nothing.

use flash::ChunkState;

use crate::descriptor::Descriptor;
use crate::header::{STATE_BYTES, State, checksum, put_u32, u32_at};
use crate::layout::SLOT_BYTES;

/// Bytes of a claim before its chunks, and of each of these.
const HEAD: usize = STATE_BYTES + 8;
const ENTRY: usize = 12;

/// Most chunks of a claim.
pub const MOST: usize = (SLOT_BYTES - HEAD) / ENTRY;

/// The chunk was erased; it is offline. The rest is how many blocks are programmed.
const ERASED: u32 = 1 << 31;
const OFFLINE: u32 = 1 << 30;

/// A chunk of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its number in the file.
    pub number: u32,
    life: u32,
    blocks: u32,
}

impl Claimed {
    /// Chunk `number` as it is now.
    pub fn of(number: u32, chunk: &Descriptor) -> Claimed {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(chunk.next.is_some(), ERASED)
            | flag(chunk.chunk.state == ChunkState::Offline, OFFLINE);
        Claimed { number, life: chunk.chunk.wear, blocks: chunk.chunk.programmed | flags }
    }

    /// Whether this descriptor of it is as it was then, or a later one.
    pub fn is_in(&self, chunk: &Descriptor, generation: u64) -> bool {
        // The next life begins when its erase is durable.
        let has_begun = self.blocks & ERASED != 0 && chunk.chunk.wear > self.life;
        let is_same = *self == Claimed::of(self.number, chunk) || has_begun;
        chunk.generation > generation || chunk.generation == generation && is_same
    }
}

/// Puts the claim of a state at the start of `place`. Gives its bytes. At most [`MOST`]
/// chunks.
pub fn encode(
    state: &State,
    chunks: impl ExactSizeIterator<Item = Claimed>,
    place: &mut [u8],
) -> usize {
    let len = HEAD + chunks.len() * ENTRY;
    assert!(len <= SLOT_BYTES, "a claim has its place");
    let bytes = &mut place[..len];
    bytes[..STATE_BYTES].copy_from_slice(&State { claim: true, ..*state }.encode());
    put_u32(bytes, STATE_BYTES + 4, chunks.len() as u32);
    for (chunk, to) in chunks.zip(bytes[HEAD..].chunks_exact_mut(ENTRY)) {
        put_u32(to, 0, chunk.number);
        put_u32(to, 4, chunk.life);
        put_u32(to, 8, chunk.blocks);
    }
    let sum = sum(bytes);
    put_u32(bytes, STATE_BYTES, sum);
    len
}

/// The chunks of the claim in these bytes; none where they are damaged or another's.
///
/// # Panics
/// With fewer bytes than a place has.
pub fn decode(bytes: &[u8]) -> Option<Vec<Claimed>> {
    let count = u32_at(bytes, STATE_BYTES + 4) as usize;
    let all = bytes.get(..HEAD + count.min(MOST) * ENTRY)?;
    if count > MOST || u32_at(all, STATE_BYTES) != sum(all) {
        return None;
    }
    let chunk = |entry: &[u8]| Claimed {
        number: u32_at(entry, 0),
        life: u32_at(entry, 4),
        blocks: u32_at(entry, 8),
    };
    Some(all[HEAD..].chunks_exact(ENTRY).map(chunk).collect())
}

/// The checksum of the list, which is that of its state alone.
fn sum(bytes: &[u8]) -> u32 {
    checksum(&bytes[STATE_BYTES + 4..]) ^ u32_at(bytes, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Rng, random_chunk};
    use proptest::prelude::*;

    /// A claim in a place where something else was, without what lies behind it.
    fn claim(seed: u64, count: usize, bytes: &mut Vec<u8>) -> Vec<(Claimed, Descriptor)> {
        let mut rng = Rng(seed);
        let mut one = |number| {
            let chunk = crate::descriptor::at_rest(&random_chunk(&mut rng, 64), 64);
            let chunk = Descriptor { chunk, generation: 7, ..Descriptor::default() };
            (Claimed::of(number, &chunk), chunk)
        };
        let chunks: Vec<_> = (0..count as u32).map(&mut one).collect();
        let (clean, claim) = (false, false);
        let table = Some(seed);
        let state = State { session: 3, synced: 7, clean, claim, time: 0, told: 0, table };
        bytes.resize(SLOT_BYTES, 0x55);
        let len = encode(&state, chunks.iter().map(|(claimed, _)| *claimed), bytes);
        bytes.truncate(len);
        chunks
    }

    proptest! {
        #[test]
        fn it_comes_back(seed: u64, count in 0..=MOST, at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = Vec::new();
            let chunks = claim(seed, count, &mut bytes);
            let at = STATE_BYTES + at.index(bytes.len() - STATE_BYTES);
            bytes.resize(SLOT_BYTES, 0xee);
            let claimed = decode(&bytes).unwrap();
            prop_assert!(claimed.iter().eq(chunks.iter().map(|(claimed, _)| claimed)));
            for (claimed, chunk) in &chunks {
                prop_assert!(claimed.is_in(chunk, 7) && claimed.is_in(chunk, 6));
                prop_assert!(!claimed.is_in(chunk, 8));
                let mut fewer = *chunk;
                fewer.chunk.programmed ^= 1;
                prop_assert!(!claimed.is_in(&fewer, 7));
            }
            bytes[at] ^= flip;
            prop_assert_eq!(decode(&bytes), None);
        }
    }

    #[test]
    fn another_states_list_is_refused() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        claim(1, 5, &mut first);
        claim(2, 5, &mut second);
        second.truncate(STATE_BYTES);
        second.extend_from_slice(&first[STATE_BYTES..]);
        second.resize(SLOT_BYTES, 0);
        assert_eq!(decode(&second), None);
    }
}
