//! Pages of MAP that turn out to be damaged while the target serves: made anew by
//! the TAGs of all valid blocks.
//!
//! GBITV is exact in memory, so of each logical page one block is valid, and its
//! TAG says whose it is. While a page of MAP is away nothing that it leads to
//! changes: batches with its LPIDs are refused, and collection leaves their
//! blocks where they are. So its entries can be gathered in one go over the
//! drive, whatever happens to other pages meanwhile.
//!
//! Where a valid block cannot be read, and no table says that it is a page of
//! its own, it may be any logical page that is not found: those are lost, and
//! read as errors until they are written.

use std::collections::BTreeSet;

use device::{Content, OpenChannel, VectorOp};
use flash::{BlockBits, Geometry, Ppa, TAG_BYTES, Tag};
use port::{Buffer, OutOfMemory, Status};

use super::collect::Collector;
use super::location::Location;
use super::map::{Map, State};
use super::page::{Held, Kind, held, is_whole};
use super::paged::PAGE_WORDS;
use super::rebuild::{Newest, note};
use super::{Batch, Cookie, is_read};

/// Pages that are held in memory while they are made anew, or wait for that.
/// Others are found again when somebody asks for them.
const PAGES: usize = 8;

/// Rows that are read at once.
pub(super) const REPAIR_READS: usize = 16;

/// The pages of MAP that are being made anew, and what was found of them.
pub(super) struct Repair {
    /// Their slots, pinned. Those that the search is for come first.
    slots: Vec<u32>,
    searched: usize,
    /// The parallel units, and how many of their rows were looked at.
    units: Vec<usize>,
    next: u64,
    /// The rows that are being read, and the readers that have nothing to do.
    rows: Vec<Ppa>,
    idle: Vec<(u32, Buffer)>,
    newest: Newest,
    /// Chunks that are written in whole blocks.
    whole: BTreeSet<usize>,
    /// Valid blocks that cannot be read.
    unread: BTreeSet<Ppa>,
}

impl Repair {
    pub fn new(geometry: &Geometry) -> Result<Repair, OutOfMemory> {
        let bytes = geometry.row_blocks() as usize * TAG_BYTES;
        let buffers = Buffer::carve(REPAIR_READS, bytes)?;
        Ok(Repair {
            slots: Vec::with_capacity(PAGES),
            searched: 0,
            units: geometry.pus_channels_first().collect(),
            next: 0,
            rows: vec![Ppa(0); REPAIR_READS],
            idle: (0..).zip(buffers).collect(),
            newest: Newest::new(),
            whole: BTreeSet::new(),
            unread: BTreeSet::new(),
        })
    }
}

impl<D: OpenChannel> Batch<D> {
    /// The page of MAP in a slot cannot be read: it is to be made anew.
    #[cold]
    pub(super) fn lose_page(&mut self, slot: u32) {
        self.map.slot_mut(slot).state = State::Lost;
        self.counters.lost += 1;
        if self.repair.slots.len() < PAGES && self.fault.is_none() {
            self.map.pin(slot);
            self.repair.slots.push(slot);
        }
    }

    /// Goes on with the search. True if pages were made anew.
    pub(super) fn repair(&mut self) -> bool {
        if self.repair.slots.is_empty() {
            return false;
        }
        if self.repair.searched == 0 {
            (self.repair.searched, self.repair.next) = (self.repair.slots.len(), 0);
        }
        while !self.repair.idle.is_empty() {
            let Some(at) = self.next_row_with_data() else { break };
            let (reader, buffer) = self.repair.idle.pop().expect("it was looked at");
            self.repair.rows[reader as usize] = at;
            self.space.chunks[self.geometry.chunk_index(at)].readers += 1;
            let count = self.geometry.row_blocks() as u8;
            let (cookie, op) = (Cookie::Repair(reader), VectorOp::Read);
            self.send(cookie, op, Content::Tags, at, count, buffer);
        }
        let over = self.repair.idle.len() == REPAIR_READS;
        if over {
            self.search_done();
        }
        over
    }

    /// The next row with a valid block, of all units in turn.
    fn next_row_with_data(&mut self) -> Option<Ppa> {
        let row = self.geometry.row_blocks();
        let rows = u64::from(self.geometry.chunk_blocks() / row);
        let units = self.repair.units.len() as u64;
        while self.repair.next < u64::from(self.geometry.chunks()) * rows * units {
            let at = self.repair.next;
            self.repair.next += 1;
            let (unit, number) = (self.repair.units[(at % units) as usize], at / units / rows);
            let chunk = self.geometry.chunk_of(unit, number as u32);
            if self.garbage.valid(chunk) == 0 {
                continue;
            }
            let first = self.geometry.chunk_start(chunk).0 + at / units % rows * u64::from(row);
            if (first..first + u64::from(row)).any(|at| self.garbage.is_valid(Ppa(at))) {
                return Some(Ppa(first));
            }
        }
        None
    }

    /// The TAGs of a row have come, or not.
    pub(super) fn row_searched(
        &mut self,
        reader: u32,
        (status, failed): (Status, BlockBits),
        buffer: Buffer,
    ) {
        let start = self.repair.rows[reader as usize];
        self.leave_chunk(start);
        let failed = match (is_read(status), failed) {
            (true, _) => 0,
            (false, 0) => BlockBits::MAX,
            (false, bits) => bits,
        };
        for (i, tag) in buffer.bytes().chunks_exact(TAG_BYTES).enumerate() {
            let (at, tag) = (Ppa(start.0 + i as u64), Tag::load(tag));
            let is_there = failed >> i & 1 == 0;
            if is_there && is_whole(tag) {
                self.repair.whole.insert(self.geometry.chunk_index(at));
            }
            if !self.garbage.is_valid(at) {
                continue;
            }
            match held(tag, self.map.lpids()) {
                _ if !is_there => {
                    self.repair.unread.insert(at);
                }
                Held::Data(lpid) if self.is_searched(lpid) => {
                    note(&mut self.repair.newest, lpid, (tag.seq, Location::at(at, false)));
                }
                _ => {}
            }
        }
        self.repair.idle.push((reader, buffer));
    }

    /// Whether the page of MAP of an LPID is one of those that the search is for.
    fn is_searched(&self, lpid: u64) -> bool {
        let slot = self.map.slot_of(Map::split(lpid).0);
        slot.is_some_and(|slot| self.repair.slots[..self.repair.searched].contains(&slot))
    }

    /// All valid blocks were looked at: the pages are there again.
    fn search_done(&mut self) {
        let mut unread = std::mem::take(&mut self.repair.unread);
        if !unread.is_empty() {
            let tables = Kind::ALL.into_iter().flat_map(|kind| self.pages_of(kind));
            for at in tables.filter_map(|page| self.place_of(page).ppa()) {
                unread.remove(&at);
            }
        }
        let otherwise = if unread.is_empty() { Location::NONE } else { Location::LOST };
        for n in 0..self.repair.searched {
            let slot = self.repair.slots[n];
            let first = u64::from(self.map.slot(slot).page) * PAGE_WORDS as u64;
            for (entry, lpid) in (first..self.map.lpids()).enumerate().take(PAGE_WORDS) {
                let found = self.repair.newest.get(&lpid).and_then(|copy| copy.1.ppa());
                let is_whole = |at| self.repair.whole.contains(&self.geometry.chunk_index(at));
                let place = found.map_or(otherwise, |at| Location::at(at, is_whole(at)));
                self.map.put(slot, entry, place);
            }
            self.map.slot_mut(slot).state = State::Ready;
            self.map.touch(slot, self.applied.max(1));
            self.map.unpin(slot);
        }
        self.counters.repaired += self.repair.searched as u64;
        self.repair.slots.drain(..self.repair.searched);
        self.repair.searched = 0;
        self.repair.newest.clear();
        self.repair.whole.clear();
        self.checkpoint.asked = true;
        self.look_again();
    }

    /// Chunks with blocks that had to stay since their page of MAP was away are
    /// looked at again.
    fn look_again(&mut self) {
        self.changes += 1;
        for chunk in 0..self.space.chunks.len() {
            if self.space.chunks[chunk].stuck {
                self.chunk_mut(chunk).stuck = false;
            }
        }
        self.collectors.iter_mut().for_each(Collector::look_again);
    }
}
