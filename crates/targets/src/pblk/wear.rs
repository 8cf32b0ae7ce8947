//! Wear leveling.
//!
//! Dynamic: rows go to the least worn free chunk of their unit.
//!
//! Static: a chunk that holds what nobody writes is never collected, and stays
//! behind while the others wear. With each erase a few chunks of the unit are
//! looked at; one that is 1 part in [`BEHIND`] of the endurance behind the mean
//! of its unit is collected, its blocks go to the most worn free chunk that is
//! not as far ahead, and it is used itself. Each chunk is moved for that at most
//! once while the others wear by as much: with an endurance of E, that adds at
//! most [`BEHIND`] / E to the erases.
//!
//! Across units: one that is more worn than the mean lets turns of the stripe
//! pass, where another unit can take the row or soon may.

use device::OpenChannel;

use super::Pblk;
use super::meta::ANCHORS;

/// How far a chunk may fall behind, as a part of the endurance: 1 in this.
const BEHIND: u64 = 150;

/// A unit that is this part of the endurance ahead, 1 in this, rests most.
const AHEAD: u64 = 200;

/// Of 256 turns, the most that a unit lets pass.
const MOST_REST: u64 = 192;

/// Chunks looked at after each erase.
const LOOKS: u32 = 16;

impl<D: OpenChannel> Pblk<D> {
    /// Erases by which a chunk may be apart from the mean of its unit before
    /// something is done.
    pub(super) fn wear_apart(&self) -> u32 {
        (u64::from(self.device.timing().endurance) / BEHIND).max(2) as u32
    }

    /// A chunk of a unit was erased: looks whether the unit is ahead, and
    /// whether one of a few chunks has fallen behind, which is put down to be
    /// collected. Bounded: one at a time in each unit.
    pub(super) fn level_wear(&mut self, pu: usize, rank: usize) {
        // Not those for roots, which are hardly ever erased.
        let chunks = u64::from(self.geometry.chunks() - ANCHORS);
        let endurance = u64::from(self.device.timing().endurance);
        let wear = self.space.pus[pu].wear;
        let mean = self.space.total_wear() / u64::from(self.geometry.total_pus());
        let ahead = wear.saturating_sub(mean) * AHEAD * MOST_REST / (chunks * endurance.max(1));
        self.stripe.rest(rank, ahead.min(MOST_REST) as u8);
        if !self.collectors.of[rank].asked.is_empty() {
            return;
        }
        let behind = u64::from(self.wear_apart());
        for _ in 0..LOOKS.min(self.geometry.chunks()) {
            let number = self.collectors.of[rank].looked;
            let next = number + 1;
            self.collectors.of[rank].looked = if next == self.geometry.chunks() { 0 } else { next };
            let chunk = self.geometry.chunk_of(pu, number);
            let is_behind = u64::from(self.space.wear(chunk)) + behind < wear / chunks;
            if is_behind && self.space.is_closed(chunk) && self.ask(chunk) {
                self.counters.leveled += 1;
                return;
            }
        }
    }
}
