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
//! Guarantees: an area never holds more rows than it has; each row that was
//! cached is folded once, dropped once, or still there. It only keeps books:
//! times are the parallel units', bytes the medium's. Nothing here fails.

use flash::slc::WHOLE;
use flash::{Geometry, Ppa, SlcCache, Timing};

use port::lazy::table;
use port::{Lazy, OutOfMemory};

use crate::list::NONE;

/// What the SLC cache has done since the drive was made or restored, and what
/// it is. Rows are programs as the array had them: of one row, or a part of
/// it. A cache that is off has zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlcHealth {
    /// Rows that it has room for, in all areas.
    pub rows: u64,
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
    /// Its blocks.
    pub blocks: u64,
    /// Erases of them; its wear is `erases` / `blocks` each, evenly.
    pub erases: u64,
    /// Pages of one plane that were folded.
    pub folded_pages: u64,
}

port::sums!(
    SlcHealth: rows, cached, written, folded, dropped, direct, blocks, erases, folded_pages
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
    /// Rows in use from which on an area is pressed.
    mark: u64,
    areas: Box<[Area]>,
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
        let (block_rows, blocks) = blocks_per_pu(geometry, timing);
        let rows = blocks * u64::from(block_rows);
        let mut areas: Vec<Area> = (0..geometry.pu_slots()).map(|_| Area::none()).collect();
        for pu in geometry.pus_channels_first() {
            areas[pu] = Area::of(rows as usize, op())?;
        }
        let pages = page_slots(geometry);
        let units = u64::from(geometry.total_pus());
        let mark = u128::from(rows) * u128::from(config.mark) / u128::from(WHOLE);
        let counts =
            SlcHealth { rows: rows * units, blocks: blocks * units, ..SlcHealth::default() };
        Ok(Some(Box::new(Slc {
            config,
            geometry: *geometry,
            block_rows: block_rows.into(),
            mark: mark as u64,
            areas: areas.into(),
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
        let (block_rows, blocks) = blocks_per_pu(geometry, timing);
        let rows = u64::from(geometry.total_pus()) * blocks * u64::from(block_rows);
        rows.saturating_mul(size_of::<Row>() as u64) + page_slots(geometry) as u64 / 8
    }

    /// A program begins in the array: whether its area takes it. Otherwise it
    /// is a direct one.
    pub fn take(&mut self, pu: u32, ppa: Ppa, blocks: u8) -> bool {
        let area = &mut self.areas[pu as usize];
        if area.used() == area.rows.len() as u64 {
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

    /// What the parallel unit can do for its area, if anything.
    pub fn next(&mut self, pu: u32) -> Option<Upkeep> {
        let area = &mut self.areas[pu as usize];
        while area.folded < area.written && area.rows[area.place(area.folded)].blocks == 0 {
            area.folded += 1;
        }
        if area.folded - area.erased >= self.block_rows {
            return Some(Upkeep::Erase);
        }
        (area.folded < area.written).then(|| Upkeep::Fold(area.rows[area.place(area.folded)].ppa))
    }

    /// Whether the area is so full that its parallel unit is not to wait.
    pub fn is_pressed(&self, pu: u32) -> bool {
        self.areas[pu as usize].used() >= self.mark
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

/// Rows of a block of the cache, and blocks that each parallel unit has.
fn blocks_per_pu(geometry: &Geometry, timing: &Timing) -> (u32, u64) {
    let (pages, at_once) = (geometry.dimensions().pages, geometry.dimensions().pages_at_once);
    // What is left over of a block when it has no room for a row is not used.
    let block_rows = (pages / timing.cell_bits(at_once) / at_once).max(1);
    (block_rows, timing.slc.blocks_per_pu(geometry, block_rows))
}

/// Pages of a drive, as they are addressed.
fn page_slots(geometry: &Geometry) -> usize {
    (1usize << geometry.address_bits()) / geometry.page_blocks() as usize
}

impl Area {
    /// That of a number that no unit has.
    fn none() -> Area {
        Area { rows: [].into(), written: 0, folded: 0, erased: 0, op: NONE, doing: None }
    }

    fn of(rows: usize, op: u32) -> Result<Area, OutOfMemory> {
        let rows = table(Row::default(), rows, "the SLC cache's rows")?;
        Ok(Area { rows, op, ..Area::none() })
    }

    fn place(&self, number: u64) -> usize {
        (number % self.rows.len() as u64) as usize
    }

    /// Rows that cannot be programmed until they are erased.
    fn used(&self) -> u64 {
        self.written - self.erased
    }
}
