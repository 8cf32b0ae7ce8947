//! The blocks of metadata: as they are now, as the last commit had them, and what changed since.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{BLOCK, Page};
use crate::layout::SECTOR;
use crate::sector::{Place, seal};

/// A block that changed since the last commit.
#[derive(Clone, Debug)]
struct Change {
    /// What the last commit had there, if anything that counts.
    before: Option<Page>,
    /// Sectors that only a commit of names may write.
    held: u8,
}

/// All blocks of metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata {
    id: u64,
    pages: BTreeMap<u32, Page>,
    changed: BTreeMap<u32, Change>,
}

impl Metadata {
    pub(crate) fn new(id: u64) -> Metadata {
        Metadata { id, ..Metadata::default() }
    }

    /// A block as the disk has it.
    pub(crate) fn insert(&mut self, block: u32, page: Page) {
        self.pages.insert(block, page);
    }

    pub(crate) fn page(&self, block: u32) -> Option<&Page> {
        self.pages.get(&block)
    }

    pub(crate) fn sector(&self, place: Place) -> &[u8] {
        &self.pages[&place.block][place.bytes()]
    }

    /// A new block, of zeros.
    pub(crate) fn add(&mut self, block: u32) {
        self.pages.insert(block, Arc::new([0; BLOCK]));
        self.changed.insert(block, Change { before: None, held: 0 });
    }

    /// The block is metadata no more.
    pub(crate) fn remove(&mut self, block: u32) {
        self.pages.remove(&block);
        self.changed.remove(&block);
    }

    /// Changes a sector, and seals it; one that is all zeros then is free, and is not sealed.
    /// `held`: only a commit of names may write it.
    pub(crate) fn edit<T>(
        &mut self,
        place: Place,
        held: bool,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let page = self.pages.get_mut(&place.block).expect("a block of metadata");
        let changed = self
            .changed
            .entry(place.block)
            .or_insert_with(|| Change { before: Some(page.clone()), held: 0 });
        changed.held |= u8::from(held) << place.sector;
        let sector = &mut Arc::make_mut(page)[place.bytes()];
        let result = change(sector);
        if sector[8..12] != [0; 4] {
            seal(sector, self.id, place);
        }
        result
    }

    /// How many blocks changed since the last commit.
    pub(crate) fn changes(&self) -> usize {
        self.changed.len()
    }

    pub(crate) fn has_changed(&self, block: u32) -> bool {
        self.changed.contains_key(&block)
    }

    /// The blocks that changed since the last commit.
    pub(crate) fn changed_blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.changed.keys().copied()
    }

    /// What a commit writes of a block that changed; nothing if all of its changes wait for
    /// one of names.
    pub(crate) fn image(&self, block: u32, names: bool) -> Option<Page> {
        let change = self.changed.get(&block)?;
        let page = &self.pages[&block];
        if names || change.held == 0 {
            return Some(page.clone());
        }
        let mut image = **page;
        for sector in (0..8).filter(|n| change.held >> n & 1 == 1) {
            let bytes = sector * SECTOR..(sector + 1) * SECTOR;
            match &change.before {
                Some(before) => image[bytes.clone()].copy_from_slice(&before[bytes]),
                None => image[bytes].fill(0),
            }
        }
        let same = change.before.as_ref().is_some_and(|before| **before == image);
        let nothing = change.before.is_none() && image == [0; BLOCK];
        (!same && !nothing).then(|| Arc::new(image))
    }

    /// The image of a block was written.
    pub(crate) fn written(&mut self, block: u32, image: Page, names: bool) {
        let change = self.changed.get_mut(&block).expect("it changed");
        if names || change.held == 0 {
            self.changed.remove(&block);
        } else {
            change.before = Some(image);
        }
    }
}
