//! Entries of the maps: where they lead, and how it is written down that they lead nowhere.

use device::OpenChannel;
use flash::Ppa;
use rules::Address;

use crate::rows::{Source, Stream};
use crate::{Blocks, Forgotten, Ruled};

impl Blocks {
    /// Whether an entry leads to a copy of what a remote drive has.
    pub fn is_copy(&self, owner: u64) -> bool {
        self.copied > 0 && self.copies[(owner >> 6) as usize] >> (owner & 63) & 1 != 0
    }

    /// From now on it does, or does not.
    pub fn set_copy(&mut self, owner: u64, is_copy: bool) {
        if self.is_copy(owner) != is_copy {
            self.copies[(owner >> 6) as usize] ^= 1 << (owner & 63);
            self.copied = if is_copy { self.copied + 1 } else { self.copied - 1 };
        }
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// An entry leads to a block from now on, which is in a row of its unit. A start does not
    /// find copies: what says that the entry leads nowhere is still needed then.
    pub(crate) fn lead(&mut self, unit: usize, owner: u64, ppa: Ppa) {
        let (until, is_copy) = (self.space.row, self.blocks.is_copy(owner));
        if !self.forgotten.is_empty() && !is_copy {
            self.remember(owner);
        }
        if self.blocks.buried > 0
            && !is_copy
            && let Some(tomb) =
                std::mem::take(&mut self.blocks.tombs[owner as usize]).checked_sub(1)
        {
            self.blocks.buried -= 1;
            self.invalidate(Ppa(tomb), until);
        }
        let old = match self.entry(owner) {
            None => {
                std::mem::replace(&mut self.blocks.own[owner as usize], ppa.0 + 1).checked_sub(1)
            }
            Some(entry) => {
                let old = self.rules.state().address(entry).map(Address::place);
                let address = Address::new(unit as u16, ppa.0);
                self.rules.store(entry, address).expect("the checker has seen to the units");
                old
            }
        };
        if let Some(old) = old {
            self.invalidate(Ppa(old), until);
        }
    }

    /// Where an entry leads.
    pub(crate) fn leads(&self, owner: u64) -> Option<Ppa> {
        match self.entry(owner) {
            None => self.blocks.own[owner as usize].checked_sub(1).map(Ppa),
            Some(entry) => self.rules.state().address(entry).map(|at| Ppa(at.place())),
        }
    }

    /// An entry leads to this block no more.
    pub(crate) fn forget(&mut self, owner: u64, ppa: Ppa) {
        if self.blocks.is_copy(owner) {
            return self.invalidate(ppa, 0);
        }
        let chunk = self.geometry.chunk_index(ppa);
        // Its chunk is not erased before that is written down.
        self.invalidate(ppa, u64::MAX);
        self.blocks.given_up += 1;
        let number = self.blocks.given_up;
        self.forgotten.push(Forgotten { owner, chunk, number });
    }

    /// The same of the target's own map.
    pub(crate) fn forget_own(&mut self, lba: u64) {
        if let Some(ppa) = std::mem::take(&mut self.blocks.own[lba as usize]).checked_sub(1) {
            self.forget(lba, Ppa(ppa));
        }
    }

    /// What an entry led to was written over before it was written down that it leads nowhere,
    /// which is not needed any more.
    fn remember(&mut self, owner: u64) {
        if let Some(n) = self.forgotten.iter().position(|other| other.owner == owner) {
            let chunk = self.forgotten.swap_remove(n).chunk;
            self.is_down(chunk);
        }
    }

    /// One that led to a chunk is written down, in a row or by what was written over it.
    fn is_down(&mut self, chunk: usize) {
        if self.forgotten.iter().all(|other| other.chunk != chunk) {
            self.blocks.until[chunk] = self.space.row;
        }
    }

    /// Writes down which entries lead nowhere, as far as there is room.
    pub(crate) fn bury(&mut self) {
        if self.broken {
            // Nothing is written any more, nor erased: what was, is found again.
            self.forgotten.clear();
        }
        for n in (0..self.forgotten.len()).rev() {
            let Forgotten { owner, chunk, .. } = self.forgotten[n];
            let unit = self.unit_of(self.geometry.chunk_start(chunk));
            let Some(ppa) = self.tomb(unit, chunk, owner) else { continue };
            self.counters.metadata += 1;
            self.blocks.buried += 1;
            self.blocks.tombs[owner as usize] = ppa.0 + 1;
            self.forgotten.swap_remove(n);
            self.is_down(chunk);
        }
    }

    /// A block that says that an entry of a chunk leads nowhere, in its unit, or in any other
    /// where nothing will make room in that. `None` where there is no room for now.
    fn tomb(&mut self, unit: usize, chunk: usize, owner: u64) -> Option<Ppa> {
        if let Some(ppa) = self.put(unit, Stream::User, owner, &Source::Tomb) {
            return Some(ppa);
        }
        // Its chunk waits for this to be erased. It comes behind what was moved out of it: both
        // together are less than the chunk.
        if self.is_emptied(unit, chunk)
            && let Some(ppa) = self.put(unit, Stream::Collection, owner, &Source::Tomb)
        {
            return Some(ppa);
        }
        if self.makes_room(unit) {
            return None;
        }
        let mut all = 0..self.space.units.len();
        all.find_map(|unit| self.put(unit, Stream::User, owner, &Source::Tomb))
    }
}
