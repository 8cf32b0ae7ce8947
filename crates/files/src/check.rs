//! Whether all that a file system keeps fits together: what fsck would look for.

use crate::disk::Disk;
use crate::error::FilesError;
use crate::files::Files;
use crate::load::load;
use crate::node::{Content, Node};

impl<D: Disk> Files<D> {
    /// Reads all metadata again, as it is in memory, and tells in words of all that does not fit
    /// together, or differs from what is worked with. Takes time that goes with all metadata.
    pub fn check(&self) -> Vec<String> {
        let meta = &self.store.meta;
        let lost = |block: u32| {
            let what = "it should be a block of metadata, and is none";
            FilesError::Damaged { block: block.into(), what }
        };
        let loaded =
            match load(&self.layout, &mut |block| meta.page(block).cloned().ok_or(lost(block))) {
                Ok(loaded) => loaded,
                Err(error) => return vec![error.to_string()],
            };
        let findings = loaded.findings.iter();
        let mut told: Vec<String> =
            findings.map(|finding| format!("block {}: {}", finding.block, finding.what)).collect();
        for (inode, node) in &self.nodes {
            let Some(found) = loaded.nodes.get(inode) else {
                told.push(format!("inode {} is not on the disk", inode.0));
                continue;
            };
            // Sizes of what has dirty pages may be ahead of the disk's; those pages are nowhere.
            let content = match &node.content {
                Content::File { extents, .. } => {
                    Content::File { extents: extents.clone(), dirty: Default::default() }
                }
                other => other.clone(),
            };
            let same = found.content == content
                && (found.mode, found.links()) == (node.mode, node.links())
                && found.disk_size == node.disk_size;
            if !same {
                told.push(format!("inode {} is not on the disk as it is here", inode.0));
            }
            if (found.bag.place(), found.bag.blocks()) != (node.bag.place(), node.bag.blocks()) {
                told.push(format!("the records of inode {} are elsewhere", inode.0));
            }
            if node.disk_size > node.size {
                told.push(format!("inode {} is longer on the disk", inode.0));
            }
        }
        let unknown = loaded.nodes.keys().filter(|inode| !self.nodes.contains_key(inode));
        told.extend(unknown.map(|inode| format!("inode {} is only on the disk", inode.0)));
        told.extend(self.check_space(loaded.space));
        told.extend(self.check_dirty());
        told
    }

    /// Whether what is taken is what files have, and what may not be given away yet.
    fn check_space(&self, mut found: crate::space::Space) -> Vec<String> {
        let mut told = Vec::new();
        for run in self.store.space.pending() {
            if !found.claim(run.start, run.len) {
                told.push(format!("blocks from {} on are given up and in use", run.start));
            }
        }
        if !found.same_taken(&self.store.space) {
            told.push("blocks are taken that nothing has, or the other way round".into());
        }
        told
    }

    fn check_dirty(&self) -> Vec<String> {
        let (mut pages, mut unmapped) = (0, 0);
        let (mut told, mut files) = (Vec::new(), 0);
        for (&inode, node) in &self.nodes {
            if let Content::File { extents, dirty } = &node.content {
                files += usize::from(!dirty.is_empty());
                let is_listed = self.dirty_files.contains(&(node.dirty_since, inode));
                if is_listed == dirty.is_empty() {
                    told.push(format!("{} is dirty and in no list, or the other way", inode.0));
                }
                pages += dirty.len();
                let new = dirty.keys().filter(|&&page| extents.part(page, 1).start.is_none());
                unmapped += new.count() as u64;
            }
        }
        if files != self.dirty_files.len() {
            told.push(format!("{files} files are dirty, and more are listed"));
        }
        for &(inode, page) in &self.running.ordered {
            let is_dirty = |node: &Node| match &node.content {
                Content::File { extents, dirty } => {
                    dirty.contains_key(&page) && extents.block(page).is_some()
                }
                _ => false,
            };
            if !self.nodes.get(&inode).is_some_and(|node| is_dirty(node)) {
                told.push(format!("page {page} of {} has an order and is not dirty", inode.0));
            }
        }
        if unmapped > 0 && self.journals_data() {
            told.push(format!("{unmapped} pages that belong into the journal have no blocks"));
        }
        if pages != self.dirty {
            told.push(format!("{pages} pages are dirty, and {} are counted", self.dirty));
        }
        if unmapped != self.store.space.reserved() {
            let reserved = self.store.space.reserved();
            told.push(format!("{reserved} blocks are reserved for {unmapped} pages"));
        }
        told
    }
}
