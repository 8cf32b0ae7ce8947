//! The SLC cache's books: what each parallel unit has in its area, and what is
//! to be folded next.
//!
//! The area of a parallel unit is a ring of blocks, each programmed row by row with
//! one bit a cell and erased as a whole. A row of several wide pages, which the slow
//! cells take at once, is as many programs here, one after the other. A program
//! takes the next row; a fold takes the oldest; a block whose rows are all folded or
//! dropped is erased before it is programmed again. So all blocks of an area wear
//! alike.
//!
//! Where chunks lend an area its blocks, one that is written takes its block back:
//! one that is erased at once, else the parallel unit folds and erases the oldest
//! before it programs anything more.
//!
//! Guarantees: an area never holds more rows than it has; when a program begins it
//! has no more than its own and what free chunks lend; each row that was
//! cached is folded once, dropped once, or still there. It only keeps books:
//! times are the parallel units', bytes the medium's. Nothing here fails.

use flash::slc::WHOLE;
use flash::{Geometry, Ppa, SlcCache, Timing};

use port::lazy::table;
use port::{Lazy, OutOfMemory};

use crate::lending::Lending;
use crate::list::NONE;

/// What the SLC cache has done since the drive was made or restored, and what
/// it is. Rows are programs as the array had them: of one row, or a part of
/// it. A cache that is off has zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlcHealth {
    /// Rows that it has room for, in all areas.
    pub rows: u64,
    /// The same at most, when all chunks are free that may lend it some.
    pub most_rows: u64,
    /// Rows that it holds and that will be folded.
    pub cached: u64,
    /// Programs that it took.
    pub written: u64,
    /// Rows programmed into the slow cells out of it.
    pub folded: u64,
    /// Rows whose chunk was reset before they were folded.
    pub dropped: u64,
    /// Programs that found it full and went to the slow cells.
    pub direct: u64,
    /// Its blocks, at most.
    pub blocks: u64,
    /// Erases of them; its wear is `erases` / `blocks` each, evenly.
    pub erases: u64,
    /// Pages of one plane that were folded.
    pub folded_pages: u64,
}

port::sums!(
    SlcHealth:
        rows, most_rows, cached, written, folded, dropped, direct, blocks, erases, folded_pages
);

/// What a parallel unit is to do for its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// Read this row and program it into the slow cells.
    Fold(Ppa),
    /// Erase the oldest block.
    Erase,
}

/// A row in an area. One that was dropped has no blocks.
#[derive(Clone, Copy, Default)]
struct Row {
    ppa: Ppa,
    blocks: u8,
}

/// The area of one parallel unit. Rows are counted from its first on; row `n`
/// is in place `n % rows`.
struct Area {
    rows: Box<[Row]>,
    /// Blocks that it has: those in use at least.
    blocks: u64,
    /// Rows programmed, folded or dropped, and erased: each at most the one
    /// before, and at most all rows behind the first.
    written: u64,
    folded: u64,
    erased: u64,
    /// The number of the operation that stands for that work.
    op: u32,
    /// What the parallel unit does for it now.
    doing: Option<Upkeep>,
}

/// All areas of a drive.
pub(crate) struct Slc {
    pub config: SlcCache,
    geometry: Geometry,
    /// Rows of a block.
    block_rows: u64,
    areas: Box<[Area]>,
    /// Who lends blocks, where that is so.
    lending: Option<Lending>,
    /// A bit for each page of the drive: the SLC cache has it.
    pages: Lazy<u64>,
    counts: SlcHealth,
}

impl Slc {
    /// The cache of a drive, if it has one. `op` gives an operation's number for
    /// each parallel unit.
    pub fn new(
        geometry: &Geometry,
        timing: &Timing,
        mut op: impl FnMut() -> u32,
    ) -> Result<Option<Box<Slc>>, OutOfMemory> {
        let config = timing.slc;
        if !config.is_on() {
            return Ok(None);
        }
        let (block_rows, most, own) = blocks_per_pu(geometry, timing);
        let lending = match config.dynamic {
            true => Some(Lending::new(geometry, config.kept, (own, most))?),
            false => None,
        };
        let mut areas: Vec<Area> = (0..geometry.pu_slots()).map(|_| Area::none()).collect();
        let (mut rows, most_rows) = (0, most * block_rows);
        for pu in geometry.pus_channels_first() {
            let blocks = lending.as_ref().map_or(most, |lending| lending.blocks(pu));
            areas[pu] = Area::of(most_rows as usize, blocks, op())?;
            rows += blocks * block_rows;
        }
        let pages = page_slots(geometry);
        let units = u64::from(geometry.total_pus());
        let (most_rows, blocks) = (most_rows * units, most * units);
        let counts = SlcHealth { rows, most_rows, blocks, ..SlcHealth::default() };
        Ok(Some(Box::new(Slc {
            config,
            geometry: *geometry,
            block_rows,
            areas: areas.into(),
            lending,
            pages: Lazy::zeroed(pages.div_ceil(64), "the SLC cache's pages")?,
            counts,
        })))
    }

    /// tPROG of a row in the cache.
    pub fn program_time(&self) -> u64 {
        u64::from(self.geometry.dimensions().pages_at_once) * self.config.program
    }

    /// tR of a row in the cache.
    pub fn read_time(&self) -> u64 {
        u64::from(self.geometry.dimensions().pages_at_once) * self.config.read
    }

    /// Bytes of memory that it takes, where there is one.
    pub fn tables(geometry: &Geometry, timing: &Timing) -> u64 {
        if !timing.slc.is_on() {
            return 0;
        }
        let (block_rows, blocks, _) = blocks_per_pu(geometry, timing);
        let rows = u64::from(geometry.total_pus()) * blocks * block_rows;
        let lending = if timing.slc.dynamic { Lending::tables(geometry) } else { 0 };
        rows.saturating_mul(size_of::<Row>() as u64) + page_slots(geometry) as u64 / 8 + lending
    }

    /// A program begins in the array: whether its area takes it. Otherwise it
    /// is a direct one.
    pub fn take(&mut self, pu: u32, ppa: Ppa, blocks: u8) -> bool {
        let area = &mut self.areas[pu as usize];
        if area.used() == area.blocks * self.block_rows {
            self.counts.direct += 1;
            return false;
        }
        let place = area.place(area.written);
        area.rows[place] = Row { ppa, blocks };
        area.written += 1;
        self.counts.written += 1;
        self.set_pages(ppa, blocks.into(), true);
        true
    }

    /// Whether all of some neighbours are in the cache.
    pub fn has(&self, ppa: Ppa, blocks: u32) -> bool {
        self.pages_of(ppa, blocks).all(|page| self.pages[page / 64] >> (page % 64) & 1 == 1)
    }

    /// A chunk is free, and lends its block at once; or it is not, and takes it back.
    pub fn set_free(&mut self, chunk: usize, is_free: bool) {
        let Some(lending) = &mut self.lending else { return };
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        if lending.set(pu, chunk, is_free) {
            self.settle(pu);
        }
    }

    /// An area has the blocks that it may have, and those that it cannot give back yet.
    fn settle(&mut self, pu: usize) {
        let Some(lending) = &self.lending else { return };
        let area = &mut self.areas[pu];
        let blocks = lending.blocks(pu).max(area.blocks_in_use(self.block_rows));
        let before = std::mem::replace(&mut area.blocks, blocks);
        self.counts.rows = self.counts.rows + blocks * self.block_rows - before * self.block_rows;
    }

    /// A program is about to begin: its chunk lends nothing any more. Whether the
    /// parallel unit must give back a block first.
    pub fn owes_before(&mut self, pu: u32, ppa: Ppa) -> bool {
        self.set_free(self.geometry.chunk_index(ppa), false);
        self.owes(pu)
    }

    /// Whether an area has a block that is not lent any more.
    pub fn owes(&self, pu: u32) -> bool {
        let area = &self.areas[pu as usize];
        self.lending.as_ref().is_some_and(|lending| area.blocks > lending.blocks(pu as usize))
    }

    /// What the parallel unit can do for its area, if anything.
    pub fn next(&mut self, pu: u32) -> Option<Upkeep> {
        let owes = self.owes(pu);
        let area = &mut self.areas[pu as usize];
        while area.folded < area.written && area.rows[area.place(area.folded)].blocks == 0 {
            area.folded += 1;
        }
        if owes && area.folded == area.written {
            // The rest of its last block is left as it is.
            area.written = area.written.next_multiple_of(self.block_rows);
            area.folded = area.written;
        }
        if area.folded - area.erased >= self.block_rows {
            return Some(Upkeep::Erase);
        }
        (area.folded < area.written).then(|| Upkeep::Fold(area.rows[area.place(area.folded)].ppa))
    }

    /// Whether the area is so full that its parallel unit is not to wait.
    pub fn is_pressed(&self, pu: u32) -> bool {
        let area = &self.areas[pu as usize];
        let rows = u128::from(area.blocks * self.block_rows);
        u128::from(area.used()) >= rows * u128::from(self.config.mark) / u128::from(WHOLE)
    }

    /// The operation that stands for what the parallel unit does for its area.
    pub fn op(&self, pu: u32) -> u32 {
        self.areas[pu as usize].op
    }

    /// The parallel unit begins to do this.
    pub fn begin(&mut self, pu: u32, upkeep: Upkeep) {
        self.areas[pu as usize].doing = Some(upkeep);
    }

    /// It has done what it began.
    pub fn end(&mut self, pu: u32) {
        let area = &mut self.areas[pu as usize];
        match area.doing.take().expect("it began") {
            Upkeep::Erase => {
                area.erased += self.block_rows;
                self.counts.erases += 1;
                self.settle(pu as usize);
            }
            Upkeep::Fold(_) => {
                let Row { ppa, blocks } = area.rows[area.place(area.folded)];
                area.folded += 1;
                self.counts.folded += 1;
                self.counts.folded_pages += self.pages_of(ppa, blocks.into()).count() as u64;
                self.set_pages(ppa, blocks.into(), false);
            }
        }
    }

    /// A chunk is reset: its rows need not be folded. One that is being folded
    /// will have been.
    pub fn forget(&mut self, chunk: usize) {
        let geometry = self.geometry;
        let area = &mut self.areas[geometry.pu_index(geometry.chunk_start(chunk))];
        let folding = u64::from(matches!(area.doing, Some(Upkeep::Fold(_))));
        for number in area.folded + folding..area.written {
            let place = area.place(number);
            let row = &mut area.rows[place];
            if row.blocks > 0 && geometry.chunk_index(row.ppa) == chunk {
                row.blocks = 0;
                self.counts.dropped += 1;
            }
        }
        self.set_pages(geometry.chunk_start(chunk), geometry.chunk_blocks(), false);
    }

    /// What it has done, and what it is.
    pub fn health(&self) -> SlcHealth {
        let c = self.counts;
        SlcHealth { cached: c.written - c.folded - c.dropped, ..c }
    }

    /// The numbers of pages, through the whole (sparse) drive.
    fn pages_of(&self, ppa: Ppa, blocks: u32) -> impl Iterator<Item = usize> + use<> {
        let page = u64::from(self.geometry.page_blocks());
        (ppa.0 / page) as usize..(ppa.0 + u64::from(blocks)).div_ceil(page) as usize
    }

    fn set_pages(&mut self, ppa: Ppa, blocks: u32, cached: bool) {
        for page in self.pages_of(ppa, blocks) {
            let bit = 1 << (page % 64);
            if cached {
                self.pages[page / 64] |= bit;
            } else {
                self.pages[page / 64] &= !bit;
            }
        }
    }
}

/// Rows of a block of the cache, blocks that each parallel unit has at most, and its
/// own of these.
fn blocks_per_pu(geometry: &Geometry, timing: &Timing) -> (u64, u64, u64) {
    let (pages, at_once) = (geometry.dimensions().pages, geometry.dimensions().pages_at_once);
    // What is left over of a block when it has no room for a row is not used.
    let block_rows = (pages / timing.cell_bits(at_once) / at_once).max(1);
    let (most, own) = timing.slc.blocks_per_pu(geometry, block_rows);
    (block_rows.into(), most, own)
}

/// Pages of a drive, as they are addressed.
fn page_slots(geometry: &Geometry) -> usize {
    (1usize << geometry.address_bits()) / geometry.page_blocks() as usize
}

impl Area {
    /// That of a number that no unit has.
    fn none() -> Area {
        Area { rows: [].into(), blocks: 0, written: 0, folded: 0, erased: 0, op: NONE, doing: None }
    }

    fn of(rows: usize, blocks: u64, op: u32) -> Result<Area, OutOfMemory> {
        let rows = table(Row::default(), rows, "the SLC cache's rows")?;
        Ok(Area { rows, blocks, op, ..Area::none() })
    }

    fn place(&self, number: u64) -> usize {
        (number % self.rows.len() as u64) as usize
    }

    /// Rows that cannot be programmed until they are erased.
    fn used(&self) -> u64 {
        self.written - self.erased
    }

    /// Blocks with such rows in them.
    fn blocks_in_use(&self, block_rows: u64) -> u64 {
        self.written.div_ceil(block_rows) - self.erased / block_rows
    }
}
