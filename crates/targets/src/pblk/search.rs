//! The search for the last whole root.

use device::OpenChannel;
use flash::{Geometry, Ppa};

use super::PblkError;
use super::ends::END;
use super::record::{Kind, own};
use super::recover::{Runner, read_block};
use super::root::{Mirror, NoRoot, Root};

/// What a row of a chunk for roots is.
enum Row {
    /// Part of a root: the number of its first block there, and the root's.
    Root(u32, u64),
    /// Padding of a start.
    Padding,
    /// It cannot be read, or is no part of a root.
    Unknown,
}

/// The search for the last whole root.
#[derive(Default)]
pub(super) struct Search {
    /// Bytes of a root of this target.
    pub(super) bytes: usize,
    pub(super) best: Option<Root>,
    /// The highest number that any root had.
    pub(super) highest: u64,
    /// A root was there and is not whole, or cannot be read.
    pub(super) damaged: bool,
    /// The highest number of a root of another version, and that.
    pub(super) version: (u64, u64),
    /// By mirror: the highest number that a root that is damaged may have.
    pub(super) suspect: [u64; 2],
    /// By mirror: the highest number, and in which of its chunks.
    pub(super) newest: [(u64, usize); 2],
    /// By mirror: the last whole root, and its chunk.
    pub(super) whole: [Option<(u64, usize)>; 2],
}

impl Search {
    /// The root that holds; none where there never was one. A damaged one that
    /// may be newer is gone past only if a `good` mirror shows that it was not
    /// finished: what only an older root leads to may be gone.
    pub(super) fn newest_root(self, good: [bool; 2]) -> Result<Option<Root>, PblkError> {
        let number = self.best.as_ref().map_or(0, |best| best.number);
        if self.version.0 > number {
            return Err(PblkError::Version(self.version.1));
        }
        let shows = |m: usize| {
            let last = self.whole[m].map_or(0, |(last, _)| last);
            good[m] && last == number && self.suspect[m] <= number
        };
        let is_suspect = self.suspect.iter().any(|&suspect| suspect > number);
        let is_lost = self.best.is_none() && self.damaged;
        if is_lost || (is_suspect && !shows(0) && !shows(1)) {
            return Err(PblkError::Root);
        }
        Ok(self.best)
    }

    /// Looks for the last whole root of a chunk, from the last of its blocks that
    /// can be read, of which there are so many. Gives the highest number in it.
    pub(super) fn chunk<D: OpenChannel>(
        &mut self,
        runner: &mut Runner<D>,
        geometry: &Geometry,
        chunk: usize,
        readable: u32,
        mirror: usize,
    ) -> Result<u64, PblkError> {
        let row = geometry.row_blocks();
        let start = geometry.chunk_start(chunk).0;
        // A row that cannot be read, or is no part of a root; of a failed
        // program it is no loss.
        let (mut newest, mut unknown) = (0, false);
        let mut rows = readable / row;
        while rows > 0 {
            let at = |row_number: u32| Ppa(start + u64::from(row_number * row));
            rows -= 1;
            let mut bytes = Vec::new();
            let (first, number) = match self.row(runner, at(rows), &mut bytes)? {
                Row::Root(first, number) => (first, number),
                Row::Padding => continue,
                Row::Unknown => {
                    let is_loss = runner.device.failed_of(at(rows), 1) == 0;
                    (unknown, self.damaged) = (unknown | is_loss, self.damaged | is_loss);
                    continue;
                }
            };
            newest = newest.max(number);
            self.highest = self.highest.max(number);
            // The root's first row, if all of it is in this chunk.
            let Some(begin) = rows.checked_sub(first / row) else {
                self.damaged = true;
                self.suspect[mirror] = self.suspect[mirror].max(number);
                continue;
            };
            bytes.clear();
            let mut all_read = true;
            let blocks = (begin * row..(rows + 1) * row).map(|block| Ppa(start + u64::from(block)));
            for ppa in blocks {
                if let Err(e) = read_block(runner, ppa, &mut bytes) {
                    stopped(e)?;
                    all_read &= runner.device.failed_of(ppa, 1) != 0;
                }
            }
            match Root::load(&bytes) {
                Ok(root) if root.number == number => {
                    let whole = &mut self.whole[mirror];
                    *whole = (*whole).max(Some((root.number, chunk)));
                    if unknown {
                        self.suspect[mirror] = self.suspect[mirror].max(root.number + 1);
                    }
                    if self.best.as_ref().is_none_or(|best| best.number < root.number) {
                        self.best = Some(root);
                    }
                    return Ok(newest);
                }
                // Its tag is damaged: these are not all its rows, or more.
                Ok(root) => {
                    self.damaged = true;
                    self.suspect[mirror] = self.suspect[mirror].max(number).max(root.number);
                }
                Err(wrong) => {
                    if let NoRoot::Version(version) = wrong {
                        self.version = self.version.max((number, version));
                    }
                    // The first rows of one that was not written to its end
                    // are no damage.
                    if !all_read || bytes.len() >= self.bytes {
                        self.damaged = true;
                        self.suspect[mirror] = self.suspect[mirror].max(number);
                    }
                    rows = begin;
                }
            }
        }
        if unknown {
            self.suspect[mirror] = u64::MAX;
        }
        Ok(newest)
    }

    /// What a row is.
    fn row<D: OpenChannel>(
        &self,
        runner: &mut Runner<D>,
        at: Ppa,
        bytes: &mut Vec<u8>,
    ) -> Result<Row, PblkError> {
        match read_block(runner, at, bytes) {
            Err(e) => stopped(e).map(|()| Row::Unknown),
            Ok(tag) if tag.id == END => Ok(Row::Padding),
            Ok(tag) => match own(tag.id) {
                Some((Kind::Root, first)) => Ok(Row::Root(first as u32, tag.seq)),
                _ => Ok(Row::Unknown),
            },
        }
    }
}

/// Only a block that cannot be read is gone past; not a drive that stops.
fn stopped(e: PblkError) -> Result<(), PblkError> {
    match e {
        PblkError::Unread { .. } => Ok(()),
        e => Err(e),
    }
}

/// Whether in a mirror no program failed of late: then it has every root that
/// was ever finished.
pub(super) fn good_mirrors<D: OpenChannel>(device: &D, of: &[Mirror; 2], size: u32) -> [bool; 2] {
    let has_failed = |&chunk: &usize| device.chunk(chunk).is_spoilt(size);
    let is_good = |m: &Mirror| m.is_usable() && !m.chunks.iter().any(has_failed);
    [is_good(&of[0]), is_good(&of[1])]
}
