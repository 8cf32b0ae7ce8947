//! The map cache: which pages of the map the drive's memory holds.
//!
//! Without one, all are held. With one, a request needs the pages of its blocks;
//! what is not held is read from where the last checkpoint wrote it, and the request
//! waits, and no other. A page that changed is written by the next checkpoint, as
//! ever, and before that it is not given up: where too many have changed that nobody
//! uses, a checkpoint begins. So a small cache costs a flash read a miss, and writes of map
//! pages as often as it is full of changes (after Gupta et al., DFTL, ASPLOS 2009).
//!
//! It is about time only: entries are in this process' memory in any case, and
//! recovery knows nothing of it. A page that was never written takes no read. What
//! collection moves is entered without a miss, as if by a journal of its own; a
//! request for many pages needs the first and the last.
//!
//! Guarantees: a request waits for each of its pages once, and then gets in, so none
//! waits for ever; a page that cannot be read is there all the same.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::TAG_BYTES;
use ftl::MapCacheCounters;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, OutOfMemory, Ring, Slots, Time};

use super::map::Map;
use super::mutation::{Mutation, is};
use super::{Cookie, DEPTH, Pblk};

/// Reads of pages that may be under way.
const READS: usize = 64;

/// The fewest pages that a cache holds: what two requests need.
pub const LEAST_MAP_PAGES: u64 = 4;

/// No page, and no request.
const NONE: u32 = u32::MAX;

/// What is known of a page.
#[derive(Clone, Copy)]
struct Page {
    /// The first request that waits for it.
    waits: u32,
    held: bool,
    /// Used since the hand went by.
    used: bool,
    /// On its way, or to be fetched.
    fetched: bool,
}

/// A request that waits for a page.
#[derive(Default)]
struct Parked {
    req: Option<BlockReq>,
    /// When it came.
    came: Time,
    /// What it waits for then.
    then: Option<u64>,
    next: u32,
}

/// A read of a page.
struct Read {
    page: u64,
    /// There while it is idle.
    buffer: Option<Buffer>,
}

/// The cache.
pub(super) struct MapCache {
    /// By number.
    pages: Vec<Page>,
    /// Those that are held or on their way, as the hand goes round; [`NONE`] for
    /// room.
    ring: Vec<u32>,
    hand: usize,
    count: usize,
    /// How often the hand went by a page that was unused and had changed.
    passed: usize,
    /// Nothing of it can be given up before something is written, or comes.
    pub is_stuck: bool,
    wanted: VecDeque<u64>,
    parked: Slots<Parked>,
    /// Of these, those whose pages are there.
    ready: VecDeque<u32>,
    reads: Vec<Read>,
    free: Vec<u32>,
    counters: MapCacheCounters,
}

impl MapCache {
    /// One of at most so many pages, of a map that has `pages`.
    pub fn new(most: u64, pages: u64) -> Result<MapCache, OutOfMemory> {
        let most = most.clamp(LEAST_MAP_PAGES, pages.max(LEAST_MAP_PAGES));
        let page = Page { waits: NONE, held: false, used: false, fetched: false };
        let each = BLOCK_BYTES as usize + TAG_BYTES;
        let read = |buffer| Read { page: 0, buffer: Some(buffer) };
        Ok(MapCache {
            pages: port::lazy::table(page, pages as usize, "the map cache")?.into(),
            ring: vec![NONE; most as usize],
            hand: 0,
            count: 0,
            passed: 0,
            is_stuck: false,
            wanted: VecDeque::with_capacity(2 * DEPTH),
            parked: Slots::new(DEPTH),
            ready: VecDeque::with_capacity(DEPTH),
            reads: Buffer::carve(READS, each)?.into_iter().map(read).collect(),
            free: (0..READS as u32).rev().collect(),
            counters: MapCacheCounters::default(),
        })
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.parked.live()
    }

    /// Whether pages are being read.
    pub fn is_reading(&self) -> bool {
        self.free.len() < READS
    }

    /// Those of these pages that are not held. They are to be fetched.
    fn ask(&mut self, needed: [u64; 2]) -> [Option<u64>; 2] {
        needed.map(|number| {
            let page = &mut self.pages[number as usize];
            page.used = true;
            if !page.held && !page.fetched {
                page.fetched = true;
                self.wanted.push_back(number);
            }
            (!page.held).then_some(number)
        })
    }

    /// A request waits for `page`, and then for another.
    fn park(&mut self, slot: u32, page: u64, then: Option<u64>) {
        let page = &mut self.pages[page as usize];
        let parked = &mut self.parked[slot];
        (parked.then, parked.next) = (then, page.waits);
        page.waits = slot;
    }

    /// A page is held from now on.
    fn arrived(&mut self, number: u64) {
        let page = &mut self.pages[number as usize];
        (page.held, page.used, page.fetched) = (true, true, false);
        self.is_stuck = false;
        let mut slot = std::mem::replace(&mut page.waits, NONE);
        // The last that came is the first of them.
        let first = self.ready.len();
        while slot != NONE {
            let Parked { then, next, .. } = self.parked[slot];
            match then.and_then(|page| self.ask([page; 2])[0]) {
                None if is(Mutation::ForgetParked) && next != NONE => {}
                Some(page) => self.park(slot, page, None),
                None => self.ready.push_back(slot),
            }
            slot = next;
        }
        self.ready.make_contiguous()[first..].reverse();
    }

    /// Room for a page: what was not used since the hand went by is given up, and,
    /// where that must be kept, has not changed. False where there is none.
    fn make_room(&mut self, number: u64, map: &Map, keeps_changes: bool) -> bool {
        if self.count < self.ring.len() {
            self.ring[self.count] = number as u32;
            self.count += 1;
            return true;
        }
        for _ in 0..2 * self.ring.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.ring.len();
            let old = self.ring[at];
            let page = &mut self.pages[old as usize];
            if std::mem::replace(&mut page.used, false) || !page.held {
                continue;
            }
            if keeps_changes && map.is_dirty(old.into()) {
                self.passed += 1;
                continue;
            }
            page.held = false;
            self.ring[at] = number as u32;
            return true;
        }
        self.is_stuck = true;
        false
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// What the map cache did, where there is one.
    pub fn map_cache(&self) -> Option<MapCacheCounters> {
        self.map_cache.as_ref().map(|cache| cache.counters)
    }

    /// Takes requests where not all pages are held.
    pub(super) fn submit_cached(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(req) = cmds.front() {
            let waiting = self.map_cache.as_ref().map_or(0, |cache| cache.waiting());
            let inside = self.host.requests.live() + self.host.ready.len() + waiting;
            if !self.has_room(req) || inside >= DEPTH {
                break;
            }
            let req = cmds.pop().expect("it was looked at");
            let needed = self.pages_of(&req);
            let cache = self.map_cache.as_mut().expect("there is one");
            let [first, last] = needed.map_or([None; 2], |needed| cache.ask(needed));
            let Some(page) = first.or(last) else {
                cache.counters.hits += 1;
                self.accept_late(now, req);
                continue;
            };
            cache.counters.misses += 1;
            let slot =
                cache.parked.take(Parked { req: Some(req), came: now, then: None, next: NONE });
            cache.park(slot, page, last.filter(|&last| last != page));
        }
        self.facts.news = true;
    }

    /// The first and the last page that a request needs, the same for one.
    fn pages_of(&self, req: &BlockReq) -> Option<[u64; 2]> {
        if req.op == BlockOp::Flush || !self.shape.check(req).is_ok() {
            return None;
        }
        let (first, last) = (req.offset / BLOCK_BYTES, (req.offset + req.len - 1) / BLOCK_BYTES);
        Some([self.map.page_of(first), self.map.page_of(last)])
    }

    /// Fetches what is wanted as far as there is room for it, and lets in whose
    /// pages are there.
    #[cold]
    pub(super) fn map_cache_step(&mut self, now: Time) {
        self.fetch_pages();
        loop {
            let cache = self.map_cache.as_mut().expect("there is one");
            let Some(&slot) = cache.ready.front() else { return };
            let req = cache.parked[slot].req.take().expect("it is parked");
            if !self.has_room(&req) {
                let cache = self.map_cache.as_mut().expect("there is one");
                cache.parked[slot].req = Some(req);
                return;
            }
            let cache = self.map_cache.as_mut().expect("there is one");
            let came = cache.parked[slot].came;
            cache.ready.pop_front();
            cache.parked.give(slot);
            if let Some(told) = &mut self.told {
                told.was_parked(came, now);
            }
            self.accept_late(now, req);
        }
    }

    /// Fetches what is wanted, as far as there is room for it.
    fn fetch_pages(&mut self) {
        let Some(mut cache) = self.map_cache.take() else { return };
        // Where nothing is written any more, what has changed stays so.
        let keeps_changes = !self.facts.read_only;
        while let Some(&page) = cache.wanted.front() {
            // The place is still good for as long as the checkpoint has not ended; one
            // that cannot end erases nothing.
            let is_ending = self.saved.checkpoint.is_ending() && !self.facts.dead;
            let at = self.saved.meta.page(page);
            if at.is_some() && (cache.free.is_empty() || is_ending) {
                break;
            }
            let is_stuck = cache.is_stuck && keeps_changes;
            if is_stuck || !cache.make_room(page, &self.map, keeps_changes) {
                let is_dirty = self.map.dirty_pages() > 0;
                self.facts.news |= is_dirty && self.saved.checkpoint.ask();
                break;
            }
            cache.wanted.pop_front();
            // What cannot be read yet is still in the buffer that it was written from.
            let Some(ppa) = at.filter(|&ppa| !self.window.is_on() || self.is_readable(ppa, 1))
            else {
                cache.arrived(page);
                continue;
            };
            let number = cache.free.pop().expect("one is free");
            let read = &mut cache.reads[number as usize];
            read.page = page;
            let buffer = read.buffer.take().expect("it is idle");
            cache.counters.read += 1;
            // Pages that nobody uses are to be written, so that they can be given up.
            if 8 * cache.passed > cache.ring.len() {
                cache.passed = 0;
                self.facts.news |= self.saved.checkpoint.ask();
            }
            let (cookie, op) = (Cookie::MapPage(number), VectorOp::Read);
            self.send(|| Self::run(cookie, op, ppa, 1, Content::Whole, buffer));
        }
        self.map_cache = Some(cache);
    }

    /// A page has been read, or cannot be: its entries are there in any case.
    #[cold]
    pub(super) fn map_page_done(&mut self, number: u32, done: VectorDone) {
        let cache = self.map_cache.as_mut().expect("it asked for a page");
        let read = &mut cache.reads[number as usize];
        read.buffer = Some(done.buffer);
        let page = read.page;
        cache.free.push(number);
        cache.arrived(page);
        self.facts.news = true;
    }
}
