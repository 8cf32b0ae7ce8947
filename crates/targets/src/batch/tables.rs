//! The pages of all tables under their names, and those of MAP on their way
//! from flash.

use device::{Content, OpenChannel, VectorOp};
use flash::{TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Buffer, Status, Time};

use super::location::Location;
use super::map::State;
use super::page::{Kind, Page};
use super::{Batch, Cookie, is_read};

const BLOCK: usize = BLOCK_BYTES as usize;

impl<D: OpenChannel> Batch<D> {
    /// Where a page of a table is on flash.
    pub(super) fn place_of(&self, page: Page) -> Location {
        let number = page.number as usize;
        match page.kind {
            Kind::Map => self.map.place(number),
            Kind::MapS => self.map.tiny.place(number),
            Kind::Garbage => self.garbage.small.place(number),
            Kind::GarbageS => self.garbage.tiny.place(number),
            Kind::Wear => self.wear.small.place(number),
        }
    }

    /// Whether a page is of a table of this drive.
    pub(super) fn has_page(&self, page: Page) -> bool {
        let count = match page.kind {
            Kind::Map => self.map.pages(),
            Kind::MapS => self.map.tiny.len(),
            Kind::Garbage => self.garbage.small.len(),
            Kind::GarbageS => self.garbage.tiny.len(),
            Kind::Wear => self.wear.small.len(),
        };
        page.number < count as u64
    }

    /// All pages of a table.
    pub(super) fn pages_of(&self, kind: Kind) -> impl Iterator<Item = Page> + '_ {
        let pages = (0..).map(move |number| Page { kind, number });
        pages.take_while(|&page| self.has_page(page))
    }

    /// A page is being written by some batch.
    pub(super) fn is_page_busy(&mut self, page: Page) -> bool {
        let number = page.number as usize;
        match page.kind {
            Kind::Map => match self.map.slot_of(number) {
                Some(slot) => self.map.slot(slot).dirty.busy,
                None => false,
            },
            Kind::MapS => self.map.tiny.dirty(number).busy,
            Kind::Garbage => self.garbage.small.dirty(number).busy,
            Kind::GarbageS => self.garbage.tiny.dirty(number).busy,
            Kind::Wear => self.wear.small.dirty(number).busy,
        }
    }

    /// A batch is going to write a page, or will not after all. A page of MAP
    /// is there.
    pub(super) fn set_page_busy(&mut self, page: Page, busy: bool) {
        let number = page.number as usize;
        match page.kind {
            Kind::Map => {
                if let Some(slot) = self.map.slot_of(number) {
                    self.map.slot_mut(slot).dirty.busy = busy;
                }
            }
            Kind::MapS => self.map.tiny.dirty(number).busy = busy,
            Kind::Garbage => self.garbage.small.dirty(number).busy = busy,
            Kind::GarbageS => self.garbage.tiny.dirty(number).busy = busy,
            Kind::Wear => self.wear.small.dirty(number).busy = busy,
        }
    }

    /// Copies a page as it is now, to be written.
    pub(super) fn store_page(&mut self, page: Page, to: &mut [u8]) {
        let number = page.number as usize;
        match page.kind {
            Kind::Map => {
                let slot = self.map.slot_of(number).expect("it is pinned");
                self.map.slot_mut(slot).dirty.begin();
                self.map.store(slot, to);
            }
            Kind::MapS => {
                self.map.tiny.dirty(number).begin();
                self.map.store_small(number, to);
            }
            Kind::Garbage => {
                self.garbage.small.dirty(number).begin();
                self.garbage.store(number, to);
            }
            Kind::GarbageS => {
                self.garbage.tiny.dirty(number).begin();
                self.garbage.small.store(number, to);
            }
            Kind::Wear => self.wear.store(number, to),
        }
        self.counters.table_pages += 1;
    }

    /// A page is at `to` now, by the batch `lsn`.
    pub(super) fn page_installed(&mut self, page: Page, to: Location, lsn: u64) {
        let number = page.number as usize;
        match page.kind {
            Kind::Map => {
                self.map.set_place(number, to, lsn);
                let slot = self.map.slot_of(number).expect("it is pinned");
                self.map.written(slot);
            }
            Kind::MapS => {
                self.map.tiny.set_place(number, to);
                self.map.tiny.dirty(number).end();
            }
            Kind::Garbage => {
                self.garbage.small.set_place(number, to);
                self.garbage.small.dirty(number).end();
                self.garbage.tiny.touch(number / super::paged::PAGE_WORDS, lsn);
            }
            Kind::GarbageS => {
                self.garbage.tiny.set_place(number, to);
                self.garbage.tiny.dirty(number).end();
            }
            Kind::Wear => {
                self.wear.small.set_place(number, to);
                self.wear.small.dirty(number).end();
            }
        }
    }

    /// The slot of a page of MAP. If the page is nowhere in memory it is asked
    /// for. `None` if no slot can be had now.
    pub(super) fn hold_page(&mut self, page: usize) -> Option<u32> {
        if let Some(slot) = self.map.slot_of(page) {
            return Some(slot);
        }
        let place = self.map.place(page);
        let state = if place == Location::NONE { State::Ready } else { State::Loading };
        let Some(slot) = self.map.take_slot(page, state) else {
            self.short_of_slots = true;
            return None;
        };
        if state == State::Loading {
            self.counters.map_loads += 1;
            self.loads.push_back(slot);
            self.send_loads();
        }
        Some(slot)
    }

    /// Reads pages of MAP that were asked for, as far as there are buffers.
    pub(super) fn send_loads(&mut self) {
        while !self.loads.is_empty() {
            let Some(buffer) = self.blocks.pop() else { return };
            let slot = self.loads.pop_front().expect("it was looked at");
            let place = self.map.place(self.map.slot(slot).page as usize);
            let at = place.ppa().expect("it is on flash");
            self.space.chunks[self.geometry.chunk_index(at)].readers += 1;
            self.send(Cookie::Load(slot), VectorOp::Read, Content::Whole, at, 1, buffer);
        }
    }

    /// A page of MAP has come, or cannot be read.
    pub(super) fn load_done(&mut self, now: Time, slot: u32, status: Status, buffer: Buffer) {
        let page = Page { kind: Kind::Map, number: u64::from(self.map.slot(slot).page) };
        let at = self.map.place(page.number as usize).ppa().expect("it is on flash");
        self.leave_chunk(at);
        let (data, tag) = buffer.bytes().split_at(BLOCK);
        if is_read(status) && page.matches(data, Tag::load(&tag[..TAG_BYTES])) {
            self.map.load(slot, data);
        } else {
            self.lose_page(slot);
        }
        self.blocks.push(buffer);
        self.wake_reads(now, slot);
        let held = self.map.slot(slot);
        if held.state == State::Lost && held.pins == 0 {
            self.map.pin(slot);
            self.map.unpin(slot);
        }
    }
}
