//! The index: of each key, by its 64-bit hash, where its newest record is.
//!
//! A cuckoo hash table of buckets of eight, after Pagh and Rodler (2001) and Fan and
//! others (MemC3, NSDI 2013): an entry is in one of two buckets, and the second is found
//! from the first and eight bits of the hash. So the table fills beyond 90 %, and the
//! entries of a first bucket can be found wherever they are: in the order of hashes,
//! which does not depend on which bucket an entry is in. How many keys begin in each 64
//! buckets is counted, and in 64 of these, and so on: a table with few keys is gone
//! through without a look at all its buckets.
//!
//! Guarantees: of a hash there is at most one entry; what is entered is found until it
//! is removed; a pass of [`Index::dump`] gives each entry that was there at its start,
//! and was neither changed nor removed since, at least once, and none that is not there
//! when it is given. Bounded: a look takes two buckets, an entry moves at most [`PATHS`]
//! others, and the next key is found behind at most 64 buckets, where it stands, and 64
//! more, and some counts. Fails where there is no room.

use port::OutOfMemory;
use port::lazy::table;
use port::random::mix;

use super::place::{Kind, Place};

/// Entries of a bucket.
const WIDTH: usize = 8;

/// Buckets that are looked into for room.
const PATHS: usize = 128;

/// Entries that may move behind a pass.
const STRAYS: usize = 1024;

/// Buckets that are counted together, and counts that are.
const FAN: usize = 64;

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key's hash.
    pub hash: u64,
    /// Its newest record; none where there is no entry.
    pub place: Place,
}

/// The table.
pub(super) struct Index {
    slots: Box<[Entry]>,
    /// By bucket: entries that belong there first, and are in their second.
    away: Box<[u16]>,
    /// How many entries of keys that are there have their first bucket in each
    /// [`FAN`] buckets, in `FAN` times as many, and so on.
    counts: Vec<Box<[u32]>>,
    /// Bits of a bucket's number.
    bits: u32,
    /// Entries, and as many as there are to be at most.
    len: usize,
    most: usize,
    /// Entries of keys that are deleted.
    gone: usize,
    /// Where the pass under way is, by slot.
    cursor: Option<usize>,
    /// What moved from before it to behind it.
    strays: Vec<Entry>,
}

impl Index {
    /// Buckets for so many keys.
    fn buckets(keys: u64) -> usize {
        // Ten of eleven places are taken when it is full.
        ((keys.saturating_mul(11) / 10).div_ceil(WIDTH as u64).max(2) as usize).next_power_of_two()
    }

    /// Entries for so many keys, at most: those that it has places for.
    pub fn places(keys: u64) -> usize {
        Index::buckets(keys) * WIDTH
    }

    /// An empty table with room for so many keys.
    pub fn new(keys: u64) -> Result<Index, OutOfMemory> {
        let buckets = Index::buckets(keys);
        let mut counts = Vec::new();
        let mut len = buckets.div_ceil(FAN);
        counts.push(table(0, len, "the index of keys")?);
        while len > FAN {
            len = len.div_ceil(FAN);
            counts.push(table(0, len, "the index of keys")?);
        }
        Ok(Index {
            counts,
            slots: table(Entry::default(), buckets * WIDTH, "the index of keys")?,
            away: table(0, buckets, "the index of keys")?,
            bits: buckets.trailing_zeros(),
            len: 0,
            most: keys as usize,
            gone: 0,
            cursor: None,
            strays: Vec::with_capacity(STRAYS),
        })
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let counts: usize = self.counts.iter().map(|counts| size_of_val(&**counts)).sum();
        (size_of_val(&*self.slots) + size_of_val(&*self.away) + counts) as u64
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many of them are of deleted keys: they go with checkpoints.
    pub fn gone(&self) -> usize {
        self.gone
    }

    /// The first bucket of a hash: they are in the order of hashes.
    fn first(&self, hash: u64) -> usize {
        (hash >> (64 - self.bits)) as usize
    }

    /// How far the second bucket is away, by bits of the hash: its other bits.
    fn distance(&self, number: u64) -> usize {
        (mix(number + 1) as usize | 1) & ((1 << self.bits) - 1)
    }

    /// The other bucket of an entry that is in this one.
    fn other(&self, bucket: usize, hash: u64) -> usize {
        bucket ^ self.distance(hash & 0xff)
    }

    /// Where an entry is.
    fn slot(&self, hash: u64) -> Option<usize> {
        let first = self.first(hash);
        [first, self.other(first, hash)].into_iter().find_map(|bucket| {
            let entries = &self.slots[bucket * WIDTH..][..WIDTH];
            let is = |entry: &Entry| entry.hash == hash && entry.place != Place::NONE;
            entries.iter().position(is).map(|at| bucket * WIDTH + at)
        })
    }

    /// A place without an entry.
    fn hole(&self, bucket: usize) -> Option<usize> {
        let entries = &self.slots[bucket * WIDTH..][..WIDTH];
        entries.iter().position(|entry| entry.place == Place::NONE).map(|at| bucket * WIDTH + at)
    }

    /// The newest record.
    pub fn find(&self, hash: u64) -> Option<Place> {
        self.slot(hash).map(|slot| self.slots[slot].place)
    }

    /// Enters the newest record, and gives the one before. Fails where there is no room.
    pub fn set(&mut self, hash: u64, place: Place) -> Result<Option<Place>, Full> {
        if let Some(slot) = self.slot(hash) {
            let before = std::mem::replace(&mut self.slots[slot].place, place);
            self.gone = self.gone + usize::from(is_gone(place)) - usize::from(is_gone(before));
            self.count(hash, before, place);
            return Ok(Some(before));
        }
        let slot = self.make_room(hash).ok_or(Full)?;
        self.put(slot, Entry { hash, place });
        self.len += 1;
        self.gone += usize::from(is_gone(place));
        Ok(None)
    }

    /// Whether a hash is there, or there is room for it: there are fewer keys than were
    /// asked for. What moves for it has moved then.
    pub fn has_room(&mut self, hash: u64) -> bool {
        self.slot(hash).is_some() || self.len < self.most && self.make_room(hash).is_some()
    }

    /// Removes an entry.
    pub fn remove(&mut self, hash: u64) {
        if let Some(slot) = self.slot(hash) {
            self.gone -= usize::from(is_gone(self.take(slot).place));
            self.len -= 1;
        }
    }

    fn put(&mut self, slot: usize, entry: Entry) {
        let first = self.first(entry.hash);
        self.away[first] += u16::from(slot / WIDTH != first);
        self.slots[slot] = entry;
        self.count(entry.hash, Place::NONE, entry.place);
    }

    fn take(&mut self, slot: usize) -> Entry {
        let entry = std::mem::take(&mut self.slots[slot]);
        let first = self.first(entry.hash);
        self.away[first] -= u16::from(slot / WIDTH != first);
        self.count(entry.hash, entry.place, Place::NONE);
        entry
    }

    /// Counts a key that comes or goes.
    fn count(&mut self, hash: u64, before: Place, after: Place) {
        if before.is_live() == after.is_live() {
            return;
        }
        let mut at = self.first(hash);
        for counts in &mut self.counts {
            at /= FAN;
            if after.is_live() { counts[at] += 1 } else { counts[at] -= 1 }
        }
    }

    /// A free place for a hash: where its buckets are full, entries move to their
    /// other buckets, on the shortest way to a free place.
    fn make_room(&mut self, hash: u64) -> Option<usize> {
        let first = self.first(hash);
        let second = self.other(first, hash);
        if let Some(slot) = self.hole(first).or_else(|| self.hole(second)) {
            return Some(slot);
        }
        // Of each bucket the slot that leads to it; of the first two none.
        let mut paths = [(0, usize::MAX); PATHS];
        (paths[0].0, paths[1].0) = (first, second);
        let (mut next, mut len) = (0, 2);
        while next < len {
            let bucket = paths[next].0;
            for slot in bucket * WIDTH..(bucket + 1) * WIDTH {
                let other = self.other(bucket, self.slots[slot].hash);
                if let Some(hole) = self.hole(other) {
                    return self.shift(&paths[..len], slot, hole);
                }
                if len < PATHS && paths[..len].iter().all(|path| path.0 != other) {
                    paths[len] = (other, slot);
                    len += 1;
                }
            }
            next += 1;
        }
        None
    }

    /// Moves the entries of a way, the last one first; gives the place that is free
    /// then. `None` where a pass has seen too many move.
    fn shift(&mut self, paths: &[(usize, usize)], last: usize, hole: usize) -> Option<usize> {
        let (mut from, mut to) = (last, hole);
        loop {
            if self.cursor.is_some_and(|cursor| from >= cursor && to < cursor) {
                if self.strays.len() == STRAYS {
                    return None;
                }
                self.strays.push(self.slots[from]);
            }
            let entry = self.take(from);
            self.put(to, entry);
            to = from;
            let path = paths.iter().find(|path| path.0 == to / WIDTH)?;
            if path.1 == usize::MAX {
                return Some(to);
            }
            from = path.1;
        }
    }

    /// Begins a pass, or ends it.
    pub fn set_pass(&mut self, on: bool) {
        self.cursor = on.then_some(0);
        self.strays.clear();
    }

    /// The next entry of the pass; `None` at its end, and while there is no pass.
    pub fn dump(&mut self) -> Option<Entry> {
        let cursor = self.cursor.as_mut()?;
        while *cursor < self.slots.len() {
            *cursor += 1;
            if self.slots[*cursor - 1].place != Place::NONE {
                return Some(self.slots[*cursor - 1]);
            }
        }
        // The copy of what has changed since, or is gone, says nothing.
        while let Some(stray) = self.strays.pop() {
            if self.find(stray.hash) == Some(stray.place) {
                return Some(stray);
            }
        }
        None
    }

    /// The first buckets, from this one on, that may be some key's.
    fn homes(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let next = move |mut bucket: usize| {
            'next: while bucket < self.away.len() {
                let mut size = FAN.pow(self.counts.len() as u32);
                for counts in self.counts.iter().rev() {
                    if counts[bucket / size] == 0 {
                        bucket = (bucket / size + 1) * size;
                        continue 'next;
                    }
                    size /= FAN;
                }
                return Some(bucket);
            }
            None
        };
        std::iter::successors(next(from), move |bucket| next(bucket + 1))
    }

    /// The entry with the least hash that is not below this one, of keys that are
    /// there.
    pub fn next_from(&self, hash: u64) -> Option<Entry> {
        self.homes(self.first(hash)).find_map(|first| self.least(first, hash))
    }

    /// The same of those with this first bucket.
    fn least(&self, first: usize, hash: u64) -> Option<Entry> {
        let fits = |entry: &&Entry| entry.place.is_live() && entry.hash >= hash;
        let home = self.slots[first * WIDTH..][..WIDTH].iter().filter(fits);
        let of_first = |entry: &&Entry| self.first(entry.hash) == first;
        let least = home.filter(of_first).min_by_key(|entry| entry.hash);
        let away = if self.away[first] == 0 { 0 } else { 1 << 8 };
        let others = (0..away).map(|number| first ^ self.distance(number));
        let others = others.flat_map(|bucket| &self.slots[bucket * WIDTH..][..WIDTH]);
        let others = others.filter(fits).filter(of_first).min_by_key(|entry| entry.hash);
        least.into_iter().chain(others).min_by_key(|entry| entry.hash).copied()
    }

    /// All entries, in no order.
    pub fn all(&self) -> impl Iterator<Item = Entry> + '_ {
        self.slots.iter().filter(|entry| entry.place != Place::NONE).copied()
    }
}

fn is_gone(place: Place) -> bool {
    place.kind() == Kind::Gone
}

/// There is no room for the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use port::random::Random;

    use super::*;

    #[test]
    fn it_is_a_map_that_lists_in_order_and_takes_ten_of_eleven() {
        for (seed, keys) in (0..20).zip([1, 5, 14, 58, 465, 7447].into_iter().cycle()) {
            let mut random = Random::new(seed, 0);
            let (mut index, mut model) = (Index::new(keys).unwrap(), BTreeMap::new());
            let places = Index::places(keys);
            let mut full = 0;
            for step in 1..6 * places as u64 {
                let hash = random.bits();
                let known = model.range(hash..).next().map(|(&hash, _)| hash);
                match (random.below(8), known) {
                    (0, Some(known)) => {
                        index.remove(known);
                        model.remove(&known);
                    }
                    (1, Some(known)) => {
                        assert_eq!(
                            index.set(known, Place(step)),
                            Ok(model.insert(known, Place(step)))
                        );
                    }
                    _ if index.has_room(hash) => {
                        assert_eq!(index.set(hash, Place(step)), Ok(None));
                        model.insert(hash, Place(step));
                    }
                    _ => {
                        // In a few buckets chance counts.
                        let least = if keys < 100 { keys * 9 / 10 } else { keys };
                        assert!(model.len() as u64 >= least, "{} of {keys} keys", model.len());
                        full += 1;
                    }
                }
                assert_eq!(index.len(), model.len());
                let from = random.bits();
                let next = model.range(from..).next();
                let next = next.map(|(&hash, &place)| Entry { hash, place });
                assert_eq!(index.next_from(from), next);
            }
            assert!(model.iter().all(|(&hash, &place)| index.find(hash) == Some(place)));
            assert!(full > 0);
        }
    }

    #[test]
    fn a_pass_gives_what_stays_though_it_moves() {
        for seed in 0..50 {
            let mut random = Random::new(seed, 1);
            let mut index = Index::new(200).unwrap();
            let mut stay = BTreeMap::new();
            while stay.len() < 180 {
                let hash = random.bits();
                index.set(hash, Place(5)).unwrap();
                stay.insert(hash, false);
            }
            index.set_pass(true);
            while let Some(entry) = index.dump() {
                stay.entry(entry.hash).and_modify(|seen| *seen = true);
                let _ = index.set(random.bits(), Place(6));
            }
            assert!(stay.values().all(|&seen| seen), "seed {seed}");
        }
    }

    #[test]
    fn a_pass_gives_nothing_that_changed_or_went_after_it_moved() {
        let mut moved = 0;
        for seed in 0..50 {
            let mut random = Random::new(seed, 2);
            let mut index = Index::new(200).unwrap();
            while index.len() < 180 {
                index.set(random.bits(), Place(5)).unwrap();
            }
            index.set_pass(true);
            while let Some(entry) = index.dump() {
                assert_eq!(index.find(entry.hash), Some(entry.place), "seed {seed}");
                let _ = index.set(random.bits(), Place(6));
                let strays = index.strays.clone();
                moved += strays.len();
                for (at, stray) in strays.iter().enumerate() {
                    match at % 3 {
                        0 => index.remove(stray.hash),
                        1 => drop(index.set(stray.hash, Place(7))),
                        _ => {}
                    }
                }
            }
        }
        assert!(moved > 0);
    }

    /// A step of a listing of few keys in a large table looks at few buckets, also where
    /// many were deleted.
    #[test]
    fn a_step_looks_at_few_buckets() {
        let mut random = Random::new(7, 3);
        let mut index = Index::new(1 << 20).unwrap();
        let gone = Place::new(flash::Ppa(5), 0, 32, Kind::Gone, 0);
        for _ in 0..50_000 {
            let hash = random.bits();
            index.set(hash, Place(5)).unwrap();
            index.set(hash, gone).unwrap();
        }
        let looks = |index: &Index, hash: u64| {
            let mut looks = 0;
            let homes = index.homes(index.first(hash)).inspect(|_| looks += 1);
            let found = homes.filter_map(|first| index.least(first, hash)).next();
            assert_eq!(found, index.next_from(hash));
            looks
        };
        assert_eq!(looks(&index, 0), 0, "no key is there");
        let mut keys: Vec<u64> = (0..20).map(|_| random.bits()).collect();
        for &key in &keys {
            index.set(key, Place(6)).unwrap();
        }
        keys.sort_unstable();
        let mut hash = 0;
        for key in keys {
            let most = looks(&index, hash);
            assert!(most <= 2 * FAN, "{most} buckets");
            assert_eq!(index.next_from(hash), Some(Entry { hash: key, place: Place(6) }));
            hash = key + 1;
        }
        assert!(looks(&index, hash) <= FAN);
        let beside = index.bytes() - (index.slots.len() * 16 + index.away.len() * 2) as u64;
        assert!(beside * 80 < index.slots.len() as u64, "{beside} bytes");
    }
}
