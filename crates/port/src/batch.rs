//! The batched request: what a drive with a multi-page write interface takes.
//!
//! After Do, Lomet and Picoli, "Improving CPU I/O Performance via SSD
//! Controller FTL Support for Batched Writes" (DaMoN 2019), section 3. The host
//! sees logical pages (LPAGEs) of one size, each named by its LPID. One write
//! carries many unrelated pages: its buffer begins with a block that lists them
//! ([`Desc`]), and their data follow in the same order, which is the order of
//! the writes. Behind them the list may name pages that are *given up*: they have
//! no data, and read as never written.
//!
//! ```text
//!  Desc, one block of 4096 bytes, little-endian
//!   0  4   magic "DESC"
//!   4  2   version, 1
//!   6  2   count of pages, 1 to 511
//!   8  8   LPID of the first page
//!  16  8   LPID of the second …; with bit 63 that of a page that is given up
//! ```

use crate::{BLOCK_BYTES, Buffer, Status, Time};

/// Most pages of one batch: what one [`Desc`] lists.
pub const MAX_BATCH_PAGES: usize = (BLOCK_BYTES as usize - DESC_HEADER) / 8;

const DESC_MAGIC: u32 = u32::from_le_bytes(*b"DESC");
const DESC_VERSION: u16 = 1;
const DESC_HEADER: usize = 8;

/// Set in the LPID of a page that is given up.
const GIVEN_UP: u64 = 1 << 63;

/// What a batched request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchOp {
    /// Fill the buffer with the page.
    Read,
    /// Write the pages of the buffer and give up those that it names for that, all
    /// or none; complete when that is durable.
    WriteBatch,
    /// Complete when all batches that were taken before are durable or failed.
    /// No page, no buffer.
    Flush,
}

/// A request to a drive with a batched write interface.
#[derive(Debug)]
pub struct BatchReq {
    /// The caller's own number; comes back in the completion.
    pub id: u64,
    /// What to do.
    pub op: BatchOp,
    /// The page to read; 0 for other operations.
    pub lpid: u64,
    /// Of a read: [`BatchShape::kept`] bytes. Of a batch:
    /// [`BatchShape::batch_bytes`]: the [`Desc`], and the kept bytes of each
    /// page in its order. Empty for a flush.
    pub buffer: Buffer,
}

/// A completed batched request.
#[derive(Debug)]
pub struct BatchDone {
    /// The request's number.
    pub id: u64,
    /// What was asked.
    pub op: BatchOp,
    /// How it ended. A page that was never written, or was given up, is
    /// [`Status::UNWRITTEN`].
    pub status: Status,
    /// When the drive completed it, in drive time.
    pub at: Time,
    /// The request's buffer.
    pub buffer: Buffer,
}

/// The outside of a drive with a batched write interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Logical pages: LPIDs are below it.
    pub pages: u64,
    /// Bytes that the medium keeps of each page: [`BLOCK_BYTES`] when it keeps
    /// the data, 8 when it keeps a 64-bit digest.
    pub kept: u32,
    /// Most pages of one batch, at most [`MAX_BATCH_PAGES`].
    pub max_pages: u32,
    /// How many requests may be inside at once.
    pub depth: usize,
}

impl BatchShape {
    /// Bytes in the buffer of a batch that writes `count` pages.
    #[inline]
    pub fn batch_bytes(&self, count: usize) -> usize {
        BLOCK_BYTES as usize + count * self.kept as usize
    }

    /// Whether a request can be served at all: its pages, their count and its
    /// buffer. A batch is looked at whole: nothing of one that is refused is
    /// written.
    pub fn check(&self, req: &BatchReq) -> Status {
        match req.op {
            BatchOp::Flush if req.buffer.is_empty() => Status::SUCCESS,
            BatchOp::Read if req.lpid >= self.pages => Status::LBA_OUT_OF_RANGE,
            BatchOp::Read if req.buffer.len() == self.kept as usize => Status::SUCCESS,
            BatchOp::WriteBatch => match Desc::parse(req.buffer.bytes()) {
                Some(desc) => self.check_batch(&desc, req.buffer.len()),
                None => Status::INVALID_FIELD,
            },
            BatchOp::Read | BatchOp::Flush => Status::INVALID_FIELD,
        }
    }

    fn check_batch(&self, desc: &Desc<'_>, bytes: usize) -> Status {
        if desc.count() > self.max_pages as usize || bytes != self.batch_bytes(desc.written()) {
            return Status::INVALID_FIELD;
        }
        if desc.lpids().any(|lpid| lpid >= self.pages) {
            return Status::LBA_OUT_OF_RANGE;
        }
        Status::SUCCESS
    }
}

/// The list of a batch's pages, in the first block of its buffer.
#[derive(Clone, Copy, Debug)]
pub struct Desc<'a> {
    lpids: &'a [u8],
}

impl<'a> Desc<'a> {
    /// Writes the list of pages that are written, and of those that are given up,
    /// into the first block of `buffer`.
    ///
    /// # Panics
    /// With no page or more than [`MAX_BATCH_PAGES`], and if `buffer` is
    /// shorter than a block.
    pub fn write(lpids: &[u64], given_up: &[u64], buffer: &mut [u8]) {
        let count = lpids.len() + given_up.len();
        assert!((1..=MAX_BATCH_PAGES).contains(&count), "a batch of {count} pages");
        let block = &mut buffer[..BLOCK_BYTES as usize];
        block[..4].copy_from_slice(&DESC_MAGIC.to_le_bytes());
        block[4..6].copy_from_slice(&DESC_VERSION.to_le_bytes());
        block[6..8].copy_from_slice(&(count as u16).to_le_bytes());
        let (listed, rest) = block[DESC_HEADER..].split_at_mut(count * 8);
        let given_up = given_up.iter().map(|lpid| lpid | GIVEN_UP);
        for (entry, lpid) in listed.chunks_exact_mut(8).zip(lpids.iter().copied().chain(given_up)) {
            entry.copy_from_slice(&lpid.to_le_bytes());
        }
        rest.fill(0);
    }

    /// The list in the first block of `buffer`. `None` if it is none: another
    /// magic or version, no page or too many, a page that is written behind one that
    /// is given up, or less than a block.
    pub fn parse(buffer: &'a [u8]) -> Option<Desc<'a>> {
        let block = buffer.get(..BLOCK_BYTES as usize)?;
        let magic = u32::from_le_bytes(block[..4].try_into().ok()?);
        let version = u16::from_le_bytes(block[4..6].try_into().ok()?);
        let count = usize::from(u16::from_le_bytes(block[6..8].try_into().ok()?));
        let good = magic == DESC_MAGIC
            && version == DESC_VERSION
            && (1..=MAX_BATCH_PAGES).contains(&count);
        let desc = good.then(|| Desc { lpids: &block[DESC_HEADER..][..count * 8] })?;
        desc.words().is_sorted_by_key(|word| word & GIVEN_UP).then_some(desc)
    }

    /// How many pages are written: the first of the list.
    pub fn written(&self) -> usize {
        self.words().take_while(|word| word & GIVEN_UP == 0).count()
    }

    /// How many pages.
    #[inline]
    pub fn count(&self) -> usize {
        self.lpids.len() / 8
    }

    /// The pages' LPIDs, in the order of their writes. One may come twice: the
    /// later write wins. Behind those that are written those that are given up.
    #[inline]
    pub fn lpids(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.words().map(|word| word & !GIVEN_UP)
    }

    #[inline]
    fn words(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.lpids.chunks_exact(8).map(|lpid| u64::from_le_bytes(lpid.try_into().expect("8 bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: BatchShape = BatchShape { pages: 100, kept: 8, max_pages: 16, depth: 4 };

    fn batch(lpids: &[u64], bytes: usize) -> BatchReq {
        let mut buffer = Buffer::zeroed(bytes).unwrap();
        Desc::write(lpids, &[], buffer.bytes_mut());
        BatchReq { id: 0, op: BatchOp::WriteBatch, lpid: 0, buffer }
    }

    fn other(op: BatchOp, lpid: u64, bytes: usize) -> BatchReq {
        BatchReq { id: 0, op, lpid, buffer: Buffer::zeroed(bytes).unwrap() }
    }

    #[test]
    fn a_list_comes_back_as_it_was() {
        assert_eq!(MAX_BATCH_PAGES, 511);
        let all: Vec<u64> = (0..511).map(|i| i * 7 + (1 << 40)).collect();
        for lpids in [&all[..1], &all[..16], &all[..]] {
            let mut block = vec![0xAA; 4096];
            Desc::write(lpids, &[], &mut block);
            let desc = Desc::parse(&block).unwrap();
            assert_eq!(desc.count(), lpids.len());
            assert_eq!(desc.lpids().collect::<Vec<u64>>(), lpids);
        }
    }

    #[test]
    fn pages_are_given_up_behind_those_that_are_written() {
        let mut block = vec![0; 4096];
        for (lpids, given_up) in [(&[5, 6][..], &[7][..]), (&[], &[1, 2, 3])] {
            Desc::write(lpids, given_up, &mut block);
            let desc = Desc::parse(&block).unwrap();
            assert_eq!((desc.count(), desc.written()), (3, lpids.len()));
            assert_eq!(desc.lpids().collect::<Vec<u64>>(), [lpids, given_up].concat());
        }
        let mut req = batch(&[5, 6], 4096 + 2 * 8);
        Desc::write(&[5, 6], &[99], req.buffer.bytes_mut());
        assert_eq!(SHAPE.check(&req), Status::SUCCESS);
        Desc::write(&[5, 6], &[100], req.buffer.bytes_mut());
        assert_eq!(SHAPE.check(&req), Status::LBA_OUT_OF_RANGE);
        Desc::write(&[], &[5], &mut block);
        block[6] = 2;
        assert!(Desc::parse(&block).is_none(), "page 0 is written behind one that is given up");
    }

    #[test]
    fn a_bad_list_is_none() {
        let mut block = vec![0; 4096];
        Desc::write(&[1, 2], &[], &mut block);
        assert!(Desc::parse(&block[..4095]).is_none());
        for (byte, value) in [(0, b'X'), (4, 2), (6, 0), (7, 2)] {
            let mut bad = block.clone();
            bad[byte] = value;
            assert!(Desc::parse(&bad).is_none(), "byte {byte}");
        }
    }

    #[test]
    fn requests_are_checked_whole() {
        let good = 4096 + 3 * 8;
        assert_eq!(SHAPE.check(&batch(&[5, 99, 5], good)), Status::SUCCESS);
        assert_eq!(SHAPE.check(&batch(&[5, 100, 5], good)), Status::LBA_OUT_OF_RANGE);
        assert_eq!(SHAPE.check(&batch(&[5, 99, 5], good + 8)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&batch(&[1; 17], 4096 + 17 * 8)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&other(BatchOp::WriteBatch, 0, 4096 + 8)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&other(BatchOp::Read, 99, 8)), Status::SUCCESS);
        assert_eq!(SHAPE.check(&other(BatchOp::Read, 100, 8)), Status::LBA_OUT_OF_RANGE);
        assert_eq!(SHAPE.check(&other(BatchOp::Read, 99, 16)), Status::INVALID_FIELD);
        assert_eq!(SHAPE.check(&other(BatchOp::Flush, 0, 0)), Status::SUCCESS);
        assert_eq!(SHAPE.check(&other(BatchOp::Flush, 0, 8)), Status::INVALID_FIELD);
    }
}
