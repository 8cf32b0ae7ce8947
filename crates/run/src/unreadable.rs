//! Pages of files that the drive could not read when the folder was filled. The folder has zeros
//! there, which are not what the file has: who reads them gets an error until they are written.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use files::{BLOCK, DiskError, Inode, Operation};

const PAGE: u64 = BLOCK as u64;

/// Which pages, by file.
#[derive(Debug, Default)]
pub struct Unreadable {
    pages: HashMap<Inode, BTreeSet<u64>>,
    /// The files' paths, and of how many pages each.
    pub paths: Vec<(PathBuf, usize)>,
    /// What the drive said of the first.
    pub error: Option<DiskError>,
}

impl Unreadable {
    /// A page could not be read.
    pub fn add(&mut self, inode: Inode, page: u64, error: DiskError) {
        self.pages.entry(inode).or_default().insert(page);
        self.error.get_or_insert(error);
    }

    /// All of a file was read that can be, which has that path.
    pub fn is_read(&mut self, inode: Inode, path: impl FnOnce() -> PathBuf) {
        if let Some(pages) = self.pages.get(&inode) {
            self.paths.push((path(), pages.len()));
        }
    }

    /// What the drive said, where one of these pages could not be read.
    pub fn touched(&self, inode: Inode, pages: Range<u64>) -> Option<DiskError> {
        self.pages.get(&inode)?.range(pages).next().and(self.error)
    }

    /// Pages that are written whole, or go, have nothing that was to be read.
    pub fn note(&mut self, operation: &Operation) {
        if self.pages.is_empty() {
            return;
        }
        let (inode, gone) = match operation {
            Operation::Write { inode, offset, data } => {
                (inode, offset.div_ceil(PAGE)..(offset + data.len() as u64) / PAGE)
            }
            Operation::Punch { inode, offset, len } => {
                (inode, offset.div_ceil(PAGE)..offset.saturating_add(*len) / PAGE)
            }
            Operation::Truncate { inode, size } => (inode, size.div_ceil(PAGE)..u64::MAX),
            Operation::Forget { inode } => (inode, 0..u64::MAX),
            _ => return,
        };
        if let Some(pages) = self.pages.get_mut(inode) {
            pages.retain(|page| !gone.contains(page));
            if pages.is_empty() {
                self.pages.remove(inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use files::Request;
    use port::Status;

    use super::*;

    #[test]
    fn pages_are_unreadable_until_they_are_written_whole() {
        let error = DiskError {
            request: Request::Read,
            at: 7,
            blocks: 1,
            status: Status::UNRECOVERED_READ,
        };
        let (mut bad, inode) = (Unreadable::default(), Inode(5));
        [0, 3, 4, 9].into_iter().for_each(|page| bad.add(inode, page, error));
        bad.is_read(inode, || "data/big".into());
        bad.is_read(Inode(6), || unreachable!("all of it was read"));
        assert_eq!(bad.paths, [("data/big".into(), 4)]);
        assert_eq!(bad.touched(inode, 1..4), Some(error));
        assert_eq!((bad.touched(inode, 1..3), bad.touched(Inode(6), 0..9)), (None, None));
        // One is written whole, the next in a part.
        bad.note(&Operation::Write { inode, offset: 3 * PAGE - 1, data: vec![1; 4100] });
        assert_eq!((bad.touched(inode, 0..4), bad.touched(inode, 3..4)), (Some(error), None));
        bad.note(&Operation::Truncate { inode, size: 8 * PAGE + 1 });
        assert_eq!(bad.touched(inode, 5..99), None);
        bad.note(&Operation::Punch { inode, offset: 1, len: PAGE });
        assert!(bad.touched(inode, 0..1).is_some());
        bad.note(&Operation::Forget { inode });
        assert!(bad.pages.is_empty());
    }
}
