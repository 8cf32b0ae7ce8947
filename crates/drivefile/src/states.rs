//! The two pages of states.
//!
//! Guarantees: the state of a generation goes to a place of its own in each page, and of
//! the other place, which has the state of the generation before, nothing is ever other
//! than that state: as its claim, or as a state that is known to hold. So however a write
//! is cut, one of the two generations is there whole, in each page that can be read. One
//! that has no claim is in the first page alone until the next sync has ended.
//!
//! A claim is one write: the two places that it goes to, and what lies between them once
//! more as it is. Between them is the state of the generation before. Where that is
//! written over its claim, it is over the first bytes of it, which lie in one sector: on
//! the disk is the one or the other, and the rest is that of both.

use std::io;

use crate::FileIo;
use crate::claim::{self, Claimed};
use crate::header::{STATE_BYTES, State};
use crate::layout::{SLOT_BYTES, STATE_PAGES, state_offsets};

/// Bytes of a page of states.
const PAGE_BYTES: usize = 2 * SLOT_BYTES;

/// One write has both pages.
const _: () = assert!(STATE_PAGES[0] + PAGE_BYTES as u64 == STATE_PAGES[1]);

/// What is in the pages of a file at work: the same, but that the second may still have the
/// claim of what the first has a state of.
pub struct States {
    page: Box<[u8; PAGE_BYTES]>,
}

impl States {
    /// Pages that have this state in each of their places. One that is written as a whole
    /// can be read again, whatever the disk had there.
    pub fn of(state: &State) -> States {
        let mut page = Box::new([0; PAGE_BYTES]);
        let places = page.chunks_exact_mut(SLOT_BYTES);
        places.for_each(|place| place[..STATE_BYTES].copy_from_slice(&state.encode()));
        States { page }
    }

    /// Writes all, durably, one page after the other: a state that begins a session. An
    /// older session's would have all blocks of this one thrown away.
    pub fn write_durable(&self, storage: &dyn FileIo) -> io::Result<()> {
        STATE_PAGES.iter().try_for_each(|&at| storage.write_durable(at, &self.page[..]))
    }

    /// Writes all.
    pub fn write(&self, storage: &dyn FileIo) -> io::Result<()> {
        STATE_PAGES.iter().try_for_each(|&at| storage.write(at, &self.page[..]))
    }

    /// Puts the claim of a state into its place. Gives its bytes. At most
    /// [`claim::MOST`] chunks.
    pub fn claim(
        &mut self,
        state: &State,
        chunks: impl ExactSizeIterator<Item = Claimed>,
    ) -> usize {
        claim::encode(state, chunks, self.place(state.synced))
    }

    /// Writes a claim that was put into its place to both pages.
    pub fn write_claim(
        &self,
        storage: &dyn FileIo,
        generation: u64,
        bytes: usize,
    ) -> io::Result<()> {
        let [at, _] = state_offsets(generation);
        let first = (at - STATE_PAGES[0]) as usize;
        storage.write_both(at, &self.page[first..], &self.page[..first + bytes])
    }

    /// Writes the state of a generation behind its sync, to the first page alone: where
    /// that is lost there is the claim.
    pub fn write_state(&mut self, storage: &dyn FileIo, state: &State) -> io::Result<()> {
        storage.write(state_offsets(state.synced)[0], self.put(state))
    }

    /// The same where there was no claim: durably, and then to the second page, too.
    pub fn write_unclaimed(&mut self, storage: &dyn FileIo, state: &State) -> io::Result<()> {
        let [first, second] = state_offsets(state.synced);
        let bytes = self.put(state);
        storage.write_durable(first, bytes)?;
        storage.write(second, bytes)
    }

    fn put(&mut self, state: &State) -> &[u8] {
        let bytes = &mut self.place(state.synced)[..STATE_BYTES];
        bytes.copy_from_slice(&state.encode());
        bytes
    }

    /// The place of a generation.
    fn place(&mut self, generation: u64) -> &mut [u8] {
        let first = (generation % 2) as usize * SLOT_BYTES;
        &mut self.page[first..first + SLOT_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Descriptor;
    use crate::disk::{Disk, Rng};
    use crate::layout::TABLE_OFFSET;
    use proptest::prelude::*;

    fn state(synced: u64) -> State {
        let (clean, claim) = (false, false);
        State { session: 1, synced, clean, claim, time: 0, told: 0, table: Some(synced) }
    }

    /// The generations that a page has a whole claim or a state of.
    fn told_by(page: &[u8]) -> Vec<u64> {
        let whole = |place: &[u8]| {
            let state = State::decode(place.first_chunk()?)?;
            let is_whole = !state.claim || claim::decode(place).is_some();
            is_whole.then_some(state.synced)
        };
        page.chunks_exact(SLOT_BYTES).filter_map(whole).collect()
    }

    /// Each page has the last generation whose sync has ended, or a later one.
    fn check(disk: &Disk, rng: &mut Rng, ended: u64) -> Result<(), TestCaseError> {
        for image in [disk.killed(), disk.certain(), disk.crashed(rng), disk.crashed(rng)] {
            for at in STATE_PAGES.map(|at| at as usize) {
                let told = told_by(&image[at..at + PAGE_BYTES]);
                prop_assert!(told.contains(&ended), "{told:?}, and {ended} had ended");
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_cut_leaves_what_had_ended_in_each_page(
            seed: u64, counts in prop::collection::vec(0..=claim::MOST, 1..12),
        ) {
            let (mut rng, disk) = (Rng(seed), Disk::default());
            let storage = disk.storage();
            storage.set_bytes(TABLE_OFFSET).unwrap();
            let mut states = States::of(&state(1));
            states.write_durable(&*storage).unwrap();
            for (generation, count) in (2..).zip(counts) {
                let chunk = |number| Claimed::of(number, &Descriptor::default());
                let chunks = (0..count as u32).map(chunk);
                let bytes = states.claim(&state(generation), chunks);
                states.write_claim(&*storage, generation, bytes).unwrap();
                check(&disk, &mut rng, generation - 1)?;
                storage.sync().unwrap();
                storage.note_synced();
                check(&disk, &mut rng, generation)?;
                states.write_state(&*storage, &state(generation)).unwrap();
                check(&disk, &mut rng, generation)?;
            }
        }
    }
}
