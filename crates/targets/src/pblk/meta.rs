//! The metadata stream: the target's own blocks on their way to flash, and
//! where they are.
//!
//! Own blocks are gathered into rows and striped over the parallel units, as
//! the user's are, into chunks of their own. The directory says where each page
//! of the map and of the chunk table is; it is itself kept in pages, and those
//! in the root.
//!
//! Guarantees: a unit keeps back as many free chunks as a checkpoint may need,
//! whatever the user does; a chunk is given back only when a durable root leads
//! to nothing in it. A row that fails goes to the next unit.

use std::collections::{BTreeMap, VecDeque};

use flash::{Dimensions, Geometry, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Buffer, Lazy, Lender, OutOfMemory};

use super::record::{Kind, page_tag};
use super::space::OpenChunk;
use super::units::PAD;

/// Chunks at the beginning of the first two parallel units that may hold roots.
pub(super) const ANCHORS: u32 = 3;

/// Directory entries of a page.
pub(super) const DIRECTORY_ENTRIES: u64 = BLOCK_BYTES / 8;

/// Rows of the log for each parallel unit between two checkpoints, as a part
/// of a chunk's rows.
const LOG_PART: u32 = 8;

/// Own chunks of each parallel unit, of a drive of which `data` chunks a unit
/// hold data: chunk `k` is written while others are not given back yet.
pub(super) fn metadata_chunks(dim: &Dimensions, data: u32) -> u32 {
    let pus = u64::from(dim.groups) * u64::from(dim.pus);
    let blocks = pus * u64::from(data) * dim.chunk_blocks();
    // Map pages at 8 bytes an entry, the chunk table, the directory of both.
    let map = blocks.div_ceil(BLOCK_BYTES / 8) + 1;
    let slots = pus.next_power_of_two() * 4 * u64::from(data.max(16)).next_power_of_two();
    let pages = map + slots.div_ceil(super::table::PAGE_ENTRIES as u64) + 1;
    let pages = pages + pages.div_ceil(DIRECTORY_ENTRIES) + 1;
    let rows = pages.div_ceil(dim.row_blocks().max(1)).div_ceil(pus) + 1;
    let log = 2 * u64::from(log_rows(dim.rows()));
    let span = (rows + log).div_ceil(u64::from(dim.rows().max(1))).max(1);
    u32::try_from(2 * span + 2).unwrap_or(u32::MAX)
}

/// Rows of the log that each parallel unit takes between two checkpoints.
pub(super) fn log_rows(rows: u32) -> u32 {
    (rows / LOG_PART).max(1)
}

/// What a row of own blocks is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Pages of the map, the chunk table or the directory.
    #[default]
    Pages,
    /// Pages of the log, up to this record.
    Log(u64),
    /// A part of a root, for this mirror.
    Root(usize),
}

/// A row of own blocks.
#[derive(Debug, Default)]
pub(super) struct MetaRow {
    pub buffer: Lender,
    pub filled: u32,
    pub purpose: Purpose,
    pub ppa: Ppa,
}

/// An own chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnChunk {
    /// Blocks in it that the directory leads to.
    pub live: u32,
    /// One more than the number of the last page of the log in it; 0 for none.
    pub log_end: u64,
    /// Rows on their way to it.
    pub rows: u32,
    /// It is being erased.
    pub erasing: bool,
    /// The drive wants it refreshed: the next checkpoint writes what it holds
    /// elsewhere.
    pub aged: bool,
    /// When it was opened.
    pub order: u64,
}

/// The stream, and the directory.
pub(super) struct Meta {
    geometry: Geometry,
    row: u32,
    pub rows: Vec<MetaRow>,
    pub free: Vec<u32>,
    /// By rank.
    pub open: Vec<Option<OpenChunk>>,
    next: usize,
    /// Own chunks, by index.
    pub chunks: BTreeMap<usize, OwnChunk>,
    orders: u64,
    /// Rows for which no unit has a chunk.
    pub stuck: VecDeque<u32>,
    /// By page: where it is.
    pages: Lazy<u64>,
    /// By page of the directory: where it is.
    pub directory: Vec<u64>,
    /// By page of the directory: changed since it was written.
    directory_dirty: Vec<bool>,
}

/// Where the tag of block `at` is, of a row of `row` blocks.
fn tag_at(row: u32, at: u32) -> usize {
    row as usize * BLOCK_BYTES as usize + at as usize * TAG_BYTES
}

/// Where something is, as the directory says it: 0 for nowhere.
pub(super) fn place_word(ppa: Option<Ppa>) -> u64 {
    ppa.map_or(0, |ppa| ppa.0 + 1)
}

/// What [`place_word`] wrote.
pub(super) fn word_place(word: u64) -> Option<Ppa> {
    word.checked_sub(1).map(Ppa)
}

impl Meta {
    /// A stream with `rows` rows, for `pages` pages.
    pub fn new(geometry: &Geometry, rows: usize, pages: u64) -> Result<Meta, OutOfMemory> {
        let row = geometry.row_blocks();
        let bytes = row as usize * (BLOCK_BYTES as usize + TAG_BYTES);
        let buffers = Buffer::carve(rows, bytes)?.into_iter().map(Lender::new);
        let directory = pages.div_ceil(DIRECTORY_ENTRIES) as usize;
        Ok(Meta {
            geometry: *geometry,
            row,
            rows: buffers.map(|buffer| MetaRow { buffer, ..MetaRow::default() }).collect(),
            free: (0..rows as u32).rev().collect(),
            open: vec![None; geometry.total_pus() as usize],
            next: 0,
            chunks: BTreeMap::new(),
            orders: 0,
            stuck: VecDeque::new(),
            pages: Lazy::zeroed(pages as usize, "where the map's pages are")?,
            directory: vec![0; directory],
            directory_dirty: vec![false; directory],
        })
    }

    /// Pages in all.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Where a page is.
    pub fn page(&self, page: u64) -> Option<Ppa> {
        word_place(self.pages[page as usize])
    }

    /// A block for which the directory has `word` is no longer there, or is
    /// there now.
    fn count(&mut self, word: u64, by: i32) {
        let Some(ppa) = word_place(word) else { return };
        let chunk = self.geometry.chunk_index(ppa);
        let own = self.chunks.get_mut(&chunk).expect("own blocks are in own chunks");
        own.live = own.live.checked_add_signed(by).expect("as many go as came");
    }

    /// A page is at `ppa` now.
    pub fn set_page(&mut self, page: u64, ppa: Ppa) {
        let old = std::mem::replace(&mut self.pages[page as usize], place_word(Some(ppa)));
        self.count(old, -1);
        self.count(place_word(Some(ppa)), 1);
        self.directory_dirty[(page / DIRECTORY_ENTRIES) as usize] = true;
    }

    /// A page of the directory is at `ppa` now.
    pub fn set_directory(&mut self, number: u64, ppa: Ppa) {
        let old = std::mem::replace(&mut self.directory[number as usize], place_word(Some(ppa)));
        self.count(old, -1);
        self.count(place_word(Some(ppa)), 1);
    }

    /// Takes the next page of the directory from `from` on that changed since
    /// it was written.
    pub fn take_dirty_directory(&mut self, from: u64) -> Option<u64> {
        let at = (from as usize..self.directory.len()).find(|&n| self.directory_dirty[n])?;
        self.directory_dirty[at] = false;
        Some(at as u64)
    }

    /// Marks the pages of the directory that lie in a chunk as changed.
    pub fn touch_directory_in(&mut self, chunk: usize) {
        for (word, dirty) in self.directory.iter().zip(&mut self.directory_dirty) {
            if word_place(*word).is_some_and(|ppa| self.geometry.chunk_index(ppa) == chunk) {
                *dirty = true;
            }
        }
    }

    /// The bytes of a page of the directory.
    pub fn encode_directory(&self, number: u64, to: &mut [u8]) {
        let first = (number * DIRECTORY_ENTRIES) as usize;
        let words = self.pages[first..].iter().chain(std::iter::repeat(&0));
        for (bytes, word) in to.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Takes the entries of a page of the directory that was read. False when
    /// one leads outside the drive.
    pub fn load_directory(&mut self, number: u64, bytes: &[u8]) -> bool {
        let first = (number * DIRECTORY_ENTRIES) as usize;
        for (word, bytes) in self.pages[first..].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            if word_place(*word).is_some_and(|ppa| !self.geometry.contains(ppa)) {
                return false;
            }
        }
        true
    }

    /// Counts what the directory leads to, chunk by chunk, as loaded. Chunks
    /// that it leads to become own chunks.
    pub fn count_all(&mut self) {
        let words: Vec<u64> = self.pages.iter().chain(&self.directory).copied().collect();
        for ppa in words.iter().filter_map(|&word| word_place(word)) {
            self.chunks.entry(self.geometry.chunk_index(ppa)).or_default();
        }
        words.into_iter().for_each(|word| self.count(word, 1));
    }

    /// A chunk becomes an own one.
    pub fn own(&mut self, chunk: usize) {
        self.orders += 1;
        let order = self.orders;
        self.chunks.entry(chunk).or_default().order = order;
    }

    /// A row to gather; none while all are on their way, or would leave less
    /// than `leave`.
    pub fn take_row(&mut self, purpose: Purpose, leave: usize) -> Option<u32> {
        if self.free.len() <= leave {
            return None;
        }
        let number = self.free.pop()?;
        let row = &mut self.rows[number as usize];
        (row.filled, row.purpose) = (0, purpose);
        Some(number)
    }

    /// Adds a block to a row. `fill` writes its 4096 bytes.
    pub fn add(&mut self, number: u32, tag: Tag, fill: impl FnOnce(&mut [u8])) {
        let (row, block) = (self.row as usize, BLOCK_BYTES as usize);
        let held = &mut self.rows[number as usize];
        let at = held.filled as usize;
        assert!(at < row, "the caller saw room");
        held.filled += 1;
        let bytes = held.buffer.bytes_mut();
        fill(&mut bytes[at * block..(at + 1) * block]);
        tag.store(&mut bytes[row * block + at * TAG_BYTES..]);
    }

    /// Adds a page to a row, with its checksum in the tag. `fill` writes its
    /// 4096 bytes.
    pub fn add_page(
        &mut self,
        row: u32,
        (kind, page): (Kind, u64),
        checkpoint: u64,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let mut tag = Tag::default();
        let at = self.rows[row as usize].filled;
        self.add(row, tag, |bytes| {
            fill(bytes);
            tag = page_tag(kind, page, checkpoint, bytes);
        });
        tag.store(&mut self.rows[row as usize].buffer.bytes_mut()[tag_at(self.row, at)..]);
    }

    pub fn is_full(&self, number: u32) -> bool {
        self.rows[number as usize].filled == self.row
    }

    /// Fills the rest of a row with padding.
    pub fn pad(&mut self, number: u32, seq: u64) {
        for _ in self.rows[number as usize].filled..self.row {
            self.add(number, Tag { id: PAD, seq }, |bytes| bytes.fill(0));
        }
    }

    /// The tag of block `at` of a row.
    pub fn tag(&self, number: u32, at: u32) -> Tag {
        Tag::load(&self.rows[number as usize].buffer.bytes()[tag_at(self.row, at)..])
    }

    /// The rank whose turn it is, of those that have a chunk open, or for
    /// which `can_open` holds.
    pub fn choose(&mut self, can_open: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.open.len();
        let able = |rank: &usize| self.open[*rank].is_some() || can_open(*rank);
        let rank = (0..count).map(|i| (self.next + i) % count).find(able)?;
        self.next = (rank + 1) % count;
        Some(rank)
    }
}
