//! What changes may need at most: pages, frames for them, and how many pages
//! they change.
//!
//! Guarantees: what is done needs no more. A batch's bound counts each page
//! once, however many of its writes change it, so what a batch may have in it
//! depends on the tree: one whose writes find room in their leaves changes
//! those alone; of any other each write that makes its record larger may split
//! its leaf, and the pages above split by their separators, of which at least
//! seven fit. A put that makes its record no larger splits nothing, however full
//! a merge has made its leaf: it takes the place of what it takes out. So what
//! only deletes and counts anew needs no pages, and a full store can be emptied.

use super::alloc::TRUNK_LISTED;
use super::{Stop, Tree};
use crate::op::decode;
use crate::page::{MAX_SLOTS, ROOM, Value, is_inline, overflow_pages};
use crate::redo::room::Need;
use crate::store::PageStore;

/// What a change may need at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worst {
    /// Pages that it takes.
    pub pages: usize,
    /// Frames for them, and for lists of free pages.
    pub frames: usize,
    /// Pages that it changes, new ones included.
    pub changed: usize,
}

/// What a batch does to a leaf, in bytes and in writes.
#[derive(Default)]
struct Load {
    leaf: u32,
    added: usize,
    removed: usize,
    puts: usize,
    /// Puts that make their record larger.
    grows: usize,
    deletes: usize,
    shrunk: Slots,
    /// Nothing but the leaf changes, in whatever order.
    simple: bool,
}

/// Of a leaf as it was, the records that a batch has made smaller or taken out.
#[derive(Default)]
struct Slots([u64; MAX_SLOTS.div_ceil(64)]);

impl Slots {
    fn add(&mut self, slot: Option<usize>) {
        if let Some(i) = slot {
            self.0[i / 64] |= 1 << (i % 64);
        }
    }

    fn has(&self, slot: Option<usize>) -> bool {
        slot.is_some_and(|i| self.0[i / 64] >> (i % 64) & 1 != 0)
    }
}

/// What a batch does: kept, so that no batch allocates.
#[derive(Default)]
pub(super) struct Loads {
    leaves: Vec<Load>,
    /// The pages above them, each with its level.
    above: Vec<(u32, usize)>,
    /// Pages of long values, new and given up.
    long: usize,
    freed: usize,
    need: Need,
}

impl Loads {
    fn clear(&mut self) {
        self.leaves.clear();
        self.above.clear();
        (self.long, self.freed, self.need) = (0, 0, Need::default());
    }

    /// What all of it may need in a tree of `height` levels.
    fn worst(&self, height: usize) -> Worst {
        let Loads { leaves, above, long, freed, .. } = self;
        let (long, freed) = (*long, *freed);
        let part = |load: &&Load| !load.simple;
        if leaves.iter().all(|load| load.simple) {
            return Worst { pages: 0, frames: 0, changed: leaves.len() };
        }
        // A merge fills another leaf up, which may be one of the batch's.
        let merges = leaves.iter().filter(part).any(|load| load.deletes > 0);
        let some = |load: &&Load| merges || part(load);
        let grows: usize = leaves.iter().filter(some).map(|load| load.grows).sum();
        let deletes: usize = if merges { leaves.iter().map(|load| load.deletes).sum() } else { 0 };
        let pages = long + new_pages(grows, above, height);
        // A delete may take out its leaf and all that is above only that.
        let freed = freed + long + deletes * height;
        let lists = 2 + freed / TRUNK_LISTED;
        // Page 0; a root that comes or goes.
        let others = 3;
        let changed = leaves.len() + deletes + above.len() + pages + lists + others;
        Worst { pages, frames: pages + lists, changed }
    }
}

/// Pages that `puts` splits of leaves may take, in a tree with those `above`.
///
/// A page that was split has room for one more separator in each half: so of
/// those that come to a level, each page that was there may split at the first,
/// and for each split beyond there are two.
fn new_pages(puts: usize, above: &[(u32, usize)], height: usize) -> usize {
    let (mut pages, mut come) = (puts, puts);
    for level in 1..height {
        let there = above.iter().filter(|&&(_, at)| at == level).count();
        come = come.min(there + come / 2);
        pages += come;
    }
    // The root's splits: each makes a level, whose page splits like any other.
    while come > 0 {
        pages += 1 + come / 2;
        come /= 2;
    }
    pages
}

impl<S: PageStore> Tree<S> {
    /// What the write of a value may need; of `None`, a delete.
    pub(super) fn worst(&self, key: usize, value: Option<usize>) -> Worst {
        let height = self.height();
        // Page 0, a list of free pages, and what a root's coming or going
        // changes.
        let others = 4;
        let Some(value) = value else {
            return Worst { pages: 0, frames: 2, changed: 2 * height + others };
        };
        let long = if is_inline(key, value) { 0 } else { overflow_pages(value) };
        // Each level may split, and the root once more.
        let pages = long + height + 1;
        Worst { pages, frames: pages + 2, changed: pages + height + others }
    }

    /// What a batch may need, all of whose leaves are there; and what doing it again does.
    pub(super) fn worst_of(&mut self, bytes: &[u8]) -> Result<(Worst, Need), Stop> {
        let mut loads = std::mem::take(&mut self.loads);
        loads.clear();
        let result = self.count(bytes, &mut loads);
        let all = (loads.worst(self.height()), loads.need);
        self.loads = loads;
        result.map(|()| all)
    }

    fn count(&mut self, bytes: &[u8], loads: &mut Loads) -> Result<(), Stop> {
        let height = self.height();
        for write in decode(bytes) {
            let mut level = height;
            let above = &mut loads.above;
            let leaf = self.descend(write.key, |frame, _| {
                level -= 1;
                if !above.iter().any(|&(seen, _)| seen == frame) {
                    above.push((frame, level));
                }
            })?;
            let at = loads.leaves.iter().position(|load| load.leaf == leaf).unwrap_or_else(|| {
                let load = Load { leaf, simple: true, ..Load::default() };
                loads.leaves.push(load);
                loads.leaves.len() - 1
            });
            self.load(loads, at, write.key, write.value);
        }
        Ok(())
    }

    /// Counts a write to what its leaf gets and gives up.
    fn load(&self, loads: &mut Loads, at: usize, key: &[u8], value: Option<&[u8]>) {
        let load = &mut loads.leaves[at];
        let view = self.cache.view(load.leaf);
        let slot = view.search(key).ok();
        let old = slot.map(|i| view.value(i));
        if let Some(long @ Value::Overflow(..)) = old {
            loads.freed += long.pages().count();
            load.simple = false;
        }
        loads.need += match value {
            Some(value) => Need::put(key.len(), value.len(), old),
            None => Need::delete(),
        };
        let old = old.map_or(0, |old| old.cost(key.len()));
        let Some(value) = value else {
            load.deletes += 1;
            load.removed += old;
            load.shrunk.add(slot);
            // What an earlier write put there may be taken out again.
            let nothing = old == 0 && load.puts == 0;
            load.simple &= nothing || view.used().saturating_sub(load.removed) >= ROOM / 4;
            return;
        };
        let long = if is_inline(key.len(), value.len()) { 0 } else { overflow_pages(value.len()) };
        let new = match long {
            0 => Value::Inline(value).cost(key.len()),
            pages => Value::long_cost(key.len(), pages),
        };
        load.puts += 1;
        load.grows += usize::from(new > old || load.shrunk.has(slot));
        if new < old {
            load.removed += old - new;
            load.shrunk.add(slot);
        }
        loads.long += long;
        load.simple &= long == 0;
        load.added += new.saturating_sub(old);
        load.simple &= load.added <= view.room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pages_are_few_above() {
        // A leaf alone splits, and has a root then.
        assert_eq!(new_pages(1, &[], 1), 2);
        assert_eq!(new_pages(0, &[(1, 1)], 2), 0);
        // A hundred leaves below four pages below the root.
        let above = [(0, 2), (1, 1), (2, 1), (3, 1), (4, 1)];
        assert!((150..=230).contains(&new_pages(100, &above, 3)), "{}", new_pages(100, &above, 3));
    }
}
