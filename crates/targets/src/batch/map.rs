//! MAP: where each logical page is, with MAP_S and MAP_T above it.
//!
//! MAP is in pages of 512 entries of 8 bytes, of which memory holds those that
//! fit in a budget. MAP_S is wholly in memory and says of each page of MAP where
//! it is on flash and in which slot of the cache. MAP_T says where the pages of
//! MAP_S are on flash; no read needs it.
//!
//! A page stays in its slot while it is pinned, and while memory is ahead of
//! flash. Of the others the clock takes one that was not used since it came by.

use flash::Geometry;
use port::{Lazy, OutOfMemory};

use super::dirty::Dirty;
use super::location::Location;
use super::oldest::Oldest;
use super::paged::{PAGE_WORDS, Paged, pages_for};

/// Bytes of a page of MAP.
pub(super) const PAGE_BYTES: usize = PAGE_WORDS * 8;

const NONE: u32 = u32::MAX;

/// An entry of a page as flash has it. `None` if the drive has no such block.
pub(super) fn stored_entry(page: &[u8], entry: usize, geometry: &Geometry) -> Option<Location> {
    let word = page[8 * entry..8 * entry + 8].try_into().expect("8 bytes");
    Location::from_flash(u64::from_le_bytes(word), geometry)
}

/// An entry of MAP_S: 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Root {
    /// Where the page is on flash.
    place: Location,
    /// Where it is in the cache.
    slot: u32,
}

/// What a slot of the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Free,
    /// A page that is on its way from flash.
    Loading,
    /// A page.
    Ready,
    /// A page that cannot be read. It goes when nobody waits for it.
    Lost,
}

/// A slot of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub page: u32,
    pub state: State,
    /// Users; the page does not leave.
    pub pins: u32,
    /// Used since the clock came by.
    used: bool,
    pub dirty: Dirty,
    /// The first read that waits for the page.
    pub waiters: u32,
}

/// MAP and MAP_S.
pub(super) struct Map {
    lpids: u64,
    roots: Vec<Root>,
    slots: Vec<Slot>,
    entries: Lazy<u64>,
    hand: usize,
    /// Slots that hold nothing, or a page that may leave at once.
    free: Vec<u32>,
    /// How many slots have changes that flash has not.
    pub dirty: usize,
    oldest: Oldest,
    /// MAP_T: where the pages of MAP_S are, and how far they are behind.
    pub tiny: Paged,
}

impl Map {
    /// A map of `lpids` logical pages with `slots` pages of it in memory.
    pub fn new(lpids: u64, slots: usize) -> Result<Map, OutOfMemory> {
        let pages = pages_for(lpids as usize);
        let slots = slots.min(pages);
        let slot = Slot {
            page: 0,
            state: State::Free,
            pins: 0,
            used: false,
            dirty: Dirty::default(),
            waiters: NONE,
        };
        Ok(Map {
            lpids,
            roots: vec![Root { place: Location::NONE, slot: NONE }; pages],
            slots: vec![slot; slots],
            entries: Lazy::zeroed(slots * PAGE_WORDS, "the pages of the map in memory")?,
            hand: 0,
            free: (0..slots as u32).rev().collect(),
            dirty: 0,
            oldest: Oldest::new(slots),
            tiny: Paged::new(pages_for(pages)),
        })
    }

    pub fn lpids(&self) -> u64 {
        self.lpids
    }

    /// Pages of MAP.
    pub fn pages(&self) -> usize {
        self.roots.len()
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The page of an LPID, and its entry there.
    #[inline]
    pub fn split(lpid: u64) -> (usize, usize) {
        (lpid as usize / PAGE_WORDS, lpid as usize % PAGE_WORDS)
    }

    /// Where a page is on flash.
    pub fn place(&self, page: usize) -> Location {
        self.roots[page].place
    }

    /// A page is at `to` on flash, by the batch `lsn`.
    pub fn set_place(&mut self, page: usize, to: Location, lsn: u64) {
        self.roots[page].place = to;
        self.tiny.touch(page / PAGE_WORDS, lsn);
    }

    /// The slot that has a page, or will have it.
    #[inline]
    pub fn slot_of(&self, page: usize) -> Option<u32> {
        let slot = self.roots[page].slot;
        (slot != NONE).then_some(slot)
    }

    #[inline]
    pub fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    pub fn pin(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.pins += 1;
        slot.used = true;
    }

    /// One user less. A page that cannot be read goes with the last.
    pub fn unpin(&mut self, slot: u32) {
        let held = &mut self.slots[slot as usize];
        held.pins -= 1;
        if held.pins == 0 && held.state == State::Lost {
            self.drop_page(slot);
        }
    }

    fn drop_page(&mut self, slot: u32) {
        let held = &mut self.slots[slot as usize];
        held.state = State::Free;
        self.roots[held.page as usize].slot = NONE;
        self.free.push(slot);
    }

    /// A slot for a page that has none: empty, or that of a page that may go.
    /// `None` where all are pinned or ahead of flash.
    pub fn take_slot(&mut self, page: usize, state: State) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.evict()?,
        };
        let held = &mut self.slots[slot as usize];
        (held.page, held.state, held.used) = (page as u32, state, true);
        (held.pins, held.dirty, held.waiters) = (0, Dirty::default(), NONE);
        self.roots[page].slot = slot;
        let start = slot as usize * PAGE_WORDS;
        self.entries[start..start + PAGE_WORDS].fill(0);
        Some(slot)
    }

    fn evict(&mut self) -> Option<u32> {
        for _ in 0..2 * self.slots.len() {
            let slot = self.hand as u32;
            self.hand = (self.hand + 1) % self.slots.len();
            let held = &mut self.slots[slot as usize];
            let stays = held.state != State::Ready
                || held.pins > 0
                || held.dirty.is_dirty()
                || held.dirty.busy;
            if !stays && !std::mem::take(&mut held.used) {
                self.roots[held.page as usize].slot = NONE;
                return Some(slot);
            }
        }
        None
    }

    /// The entry of an LPID whose page is there.
    #[inline]
    pub fn get(&self, slot: u32, entry: usize) -> Location {
        Location::from_word(self.entries[slot as usize * PAGE_WORDS + entry])
    }

    /// Sets an entry, without taking note of a change.
    pub fn put(&mut self, slot: u32, entry: usize, to: Location) {
        self.entries[slot as usize * PAGE_WORDS + entry] = to.word();
    }

    /// Sets an entry by the batch `lsn`.
    pub fn set(&mut self, slot: u32, entry: usize, to: Location, lsn: u64) {
        self.put(slot, entry, to);
        self.touch(slot, lsn);
    }

    /// Takes note that a page was changed by the batch `lsn`.
    pub fn touch(&mut self, slot: u32, lsn: u64) {
        let Map { slots, oldest, .. } = self;
        let dirty = &mut slots[slot as usize].dirty;
        self.dirty += usize::from(!dirty.is_dirty());
        if dirty.touch(lsn) {
            oldest.note(slot as usize, lsn, |slot, lsn| slots[slot].dirty.needs(lsn));
        }
    }

    /// A copy of a page is installed.
    pub fn written(&mut self, slot: u32) {
        let dirty = &mut self.slots[slot as usize].dirty;
        let was = dirty.is_dirty();
        dirty.end();
        self.dirty -= usize::from(was && !dirty.is_dirty());
    }

    /// A page as it is on flash.
    pub fn store(&self, slot: u32, to: &mut [u8]) {
        let entries = &self.entries[slot as usize * PAGE_WORDS..][..PAGE_WORDS];
        for (bytes, &word) in to.chunks_exact_mut(8).zip(entries) {
            let flash = Location::from_word(word).pending(false);
            bytes.copy_from_slice(&flash.word().to_le_bytes());
        }
    }

    /// Takes a page from flash into its slot.
    pub fn load(&mut self, slot: u32, from: &[u8]) {
        let entries = &mut self.entries[slot as usize * PAGE_WORDS..][..PAGE_WORDS];
        for (word, bytes) in entries.iter_mut().zip(from.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        self.slots[slot as usize].state = State::Ready;
    }

    /// A page of MAP_S as it is on flash.
    pub fn store_small(&self, page: usize, to: &mut [u8]) {
        to.fill(0);
        let roots = &self.roots[page * PAGE_WORDS..];
        for (bytes, root) in to.chunks_exact_mut(8).zip(roots) {
            bytes.copy_from_slice(&root.place.word().to_le_bytes());
        }
    }

    /// Sets where a page of MAP is, in recovery.
    pub fn restore_place(&mut self, page: usize, place: Location) {
        self.roots[page].place = place;
    }

    /// The first slot from `from` on whose page is due for the log up to `lsn`.
    pub fn due(&self, from: usize, lsn: u64) -> Option<usize> {
        let due = |slot: &Slot| slot.state == State::Ready && slot.dirty.is_due(lsn);
        (from..self.slots.len()).find(|&slot| due(&self.slots[slot]))
    }

    /// The first LSN that recovery must read for any page of MAP.
    pub fn oldest(&mut self) -> u64 {
        let slots = &self.slots;
        self.oldest.first(|slot, lsn| slots[slot].dirty.needs(lsn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Ppa;

    #[test]
    fn pinned_and_changed_pages_stay() {
        let mut map = Map::new(5 * 512, 3).unwrap();
        let slots: Vec<u32> =
            (0..3).map(|page| map.take_slot(page, State::Ready).unwrap()).collect();
        map.pin(slots[0]);
        map.set(slots[1], 7, Location::at(Ppa(4), false), 3);
        let slot = map.take_slot(3, State::Ready).unwrap();
        assert_eq!((slot, map.slot_of(2), map.dirty), (slots[2], None, 1));
        map.pin(slot);
        assert_eq!(map.take_slot(4, State::Ready), None);
        map.slot_mut(slots[1]).dirty.begin();
        assert_eq!((map.oldest(), map.take_slot(4, State::Ready)), (3, None));
        map.written(slots[1]);
        assert_eq!((map.dirty, map.take_slot(4, State::Ready)), (0, Some(slots[1])));
    }

    #[test]
    fn marks_do_not_go_to_flash() {
        let mut map = Map::new(512, 9).unwrap();
        assert_eq!((map.slots(), map.pages()), (1, 1));
        let slot = map.take_slot(0, State::Ready).unwrap();
        let place = Location::at(Ppa(77), true);
        map.put(slot, 3, place.pending(true));
        let mut bytes = vec![0; PAGE_BYTES];
        map.store(slot, &mut bytes);
        map.load(slot, &bytes);
        assert_eq!(map.get(slot, 3), place);
    }
}
