//! The map after a start: its pages come from flash when they are asked for,
//! the others meanwhile.
//!
//! What was written after the checkpoint lies over the pages: each page is
//! patched when it has come. From the patched pages follows which blocks in
//! flash are valid; so nothing is collected before all have come.
//!
//! A request whose pages are not there waits for them, and no other. A page
//! that cannot be read makes its blocks read as errors until they are written
//! again, but for those that lie over it.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::{Geometry, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, OutOfMemory, Ring, Time};

use super::failures::is_read;
use super::map::Place;
use super::record::{Kind, is_whole, own};
use super::{Cookie, DEPTH, Pblk};

/// Reads under way for each parallel unit, at most.
const READS_PER_PU: usize = 1;

/// Reads that requests wait for and that may be under way beside those.
const WANTED: usize = 16;

/// Blocks that a record gave up, no two overlapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub lba: u64,
    pub end: u64,
    /// Copies up to this number do not count.
    pub upto: u64,
    pub lost: bool,
    /// The pages know it, and what came after: it says only which copies that
    /// were found do not count.
    pub in_pages: bool,
}

/// A read of neighbours in one row.
#[derive(Clone, Copy, Debug)]
struct Job {
    ppa: Ppa,
    count: u32,
}

/// What is not there yet.
pub(super) struct Load {
    /// A bit for each page of the map.
    absent: Vec<u64>,
    left: u64,
    /// By reading: what it reads, no block when it is idle.
    reads: Vec<(Job, Buffer)>,
    free: Vec<u32>,
    /// All that is to be read, in turn over the parallel units.
    jobs: std::vec::IntoIter<Job>,
    /// Which page is where, by address.
    at: Vec<(Ppa, u64)>,
    /// Pages that requests wait for.
    wanted: VecDeque<u64>,
    parked: VecDeque<(Time, BlockReq)>,
    /// What lies over the pages: by block, and by range.
    pub written: Vec<(u64, Place)>,
    pub gone: Vec<Gone>,
    /// By chunk, its blocks to which pages lead: none where it was erased since the
    /// checkpoint.
    pub ends: Vec<u32>,
}

impl Load {
    /// Everything that `place` says is on flash is to come, of `pages` pages.
    pub fn new(
        geometry: &Geometry,
        pages: u64,
        place: impl Fn(u64) -> Option<Ppa>,
    ) -> Result<Load, OutOfMemory> {
        let pus = geometry.total_pus() as usize;
        let count = pus * READS_PER_PU + WANTED;
        let bytes = geometry.row_blocks() as usize * (BLOCK_BYTES as usize + TAG_BYTES);
        let none = Job { ppa: Ppa(0), count: 0 };
        let reads = Buffer::carve(count, bytes)?.into_iter().map(|buffer| (none, buffer)).collect();
        let words = (pages as usize).div_ceil(64);
        let mut load = Load {
            absent: vec![u64::MAX; words],
            left: pages,
            reads,
            free: (0..count as u32).rev().collect(),
            jobs: Vec::new().into_iter(),
            at: (0..pages).filter_map(|page| Some((place(page)?, page))).collect(),
            wanted: VecDeque::new(),
            parked: VecDeque::with_capacity(DEPTH),
            written: Vec::new(),
            gone: Vec::new(),
            ends: vec![0; geometry.chunk_slots()],
        };
        load.at.sort_unstable();
        load.jobs = load.plan(geometry).into_iter();
        Ok(load)
    }

    /// Reads of whole rows, the units taking turns.
    fn plan(&self, geometry: &Geometry) -> Vec<Job> {
        // By turn: the how-many-th read of its unit it is.
        let mut jobs: Vec<(u32, Job)> = Vec::new();
        let mut turns = vec![0u32; geometry.pu_slots()];
        for &(ppa, _) in &self.at {
            match jobs.last_mut() {
                Some((_, job)) if geometry.row_start(ppa) == geometry.row_start(job.ppa) => {
                    job.count = (ppa.0 - job.ppa.0) as u32 + 1;
                }
                _ => {
                    let turn = &mut turns[geometry.pu_index(ppa)];
                    jobs.push((*turn, Job { ppa, count: 1 }));
                    *turn += 1;
                }
            }
        }
        jobs.sort_by_key(|&(turn, _)| turn);
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// Whether a page is not there.
    #[inline]
    pub fn is_absent(&self, page: u64) -> bool {
        self.absent[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    /// A page is there.
    fn arrived(&mut self, page: u64) {
        self.absent[(page / 64) as usize] &= !(1 << (page % 64));
        self.left -= 1;
    }

    /// Whether a read of a block is under way.
    fn is_asked(&self, at: Ppa) -> bool {
        let covers = |job: &Job| (job.ppa.0..job.ppa.0 + u64::from(job.count)).contains(&at.0);
        self.reads.iter().any(|(job, _)| covers(job))
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.parked.len()
    }

    /// The pages that are at an address: one, where nothing is damaged.
    fn pages_at(&self, ppa: Ppa) -> std::ops::Range<usize> {
        let from = self.at.partition_point(|entry| entry.0 < ppa);
        from..self.at.partition_point(|entry| entry.0 <= ppa)
    }

    /// Whether all is there, and nothing waits.
    fn is_done(&self) -> bool {
        self.left == 0 && self.parked.is_empty() && self.free.len() == self.reads.len()
    }

    /// Where all was read and pages are missing, which came damaged among
    /// others, asks for each of them alone. False where that is not so.
    fn ask_for_the_rest(&mut self, pages: u64) -> bool {
        let is_idle = self.free.len() == self.reads.len() && self.wanted.is_empty();
        if self.left == 0 || !is_idle || !self.jobs.as_slice().is_empty() {
            return false;
        }
        let missing = (0..pages).filter(|&page| self.is_absent(page));
        let missing: Vec<u64> = missing.collect();
        self.wanted.extend(missing);
        true
    }

    /// What lies over a page's blocks: first what was given up, then what was
    /// written.
    fn gone_in(&self, blocks: &std::ops::Range<u64>) -> &[Gone] {
        let from = self.gone.partition_point(|gone| gone.end <= blocks.start);
        let to = self.gone.partition_point(|gone| gone.lba < blocks.end);
        &self.gone[from..to.max(from)]
    }

    fn written_in(&self, blocks: &std::ops::Range<u64>) -> &[(u64, Place)] {
        let from = self.written.partition_point(|(lba, _)| *lba < blocks.start);
        let to = self.written.partition_point(|(lba, _)| *lba < blocks.end);
        &self.written[from..to]
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Begins to load: pages that were never written are there at once.
    pub(super) fn begin_load(&mut self, mut load: Box<Load>) {
        for page in 0..self.map.pages() {
            if self.saved.meta.page(page).is_none() {
                self.install_page(&mut load, page, None);
            }
        }
        self.load = Some(load);
        self.facts.news = true;
    }

    /// Takes requests while pages are missing.
    pub(super) fn submit_loading(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(req) = cmds.front() {
            let waiting = self.load.as_ref().map_or(0, |load| load.waiting());
            if !self.has_room(req)
                || self.host.requests.live() + self.host.ready.len() + waiting >= DEPTH
            {
                break;
            }
            let req = cmds.pop().expect("it was looked at");
            if self.needs_page(&req) {
                self.park(now, req);
            } else {
                self.accept_late(now, req);
            }
        }
        self.facts.news = true;
    }

    /// The first page that a request needs and that is not there.
    fn missing_page(&self, req: &BlockReq) -> Option<u64> {
        let load = self.load.as_ref()?;
        if req.op == BlockOp::Flush || !self.shape.check(req).is_ok() {
            return None;
        }
        let last = self.map.page_of((req.offset + req.len - 1) / BLOCK_BYTES);
        let first = self.map.page_of(req.offset / BLOCK_BYTES);
        (first..=last).find(|&page| load.is_absent(page))
    }

    fn needs_page(&self, req: &BlockReq) -> bool {
        self.missing_page(req).is_some()
    }

    /// A request waits for its pages. Those of a long one come in their turn.
    fn park(&mut self, came: Time, req: BlockReq) {
        let page = self.missing_page(&req);
        let load = self.load.as_mut().expect("something is missing");
        load.wanted.extend(page);
        load.parked.push_back((came, req));
    }

    /// Reads what is wanted, and as much of the rest as may be under way.
    fn load_more(&mut self) {
        let Some(mut load) = self.load.take() else { return };
        while let Some(page) = load.wanted.pop_front() {
            let Some(number) = load.free.last().copied() else {
                load.wanted.push_front(page);
                break;
            };
            let asked = self.saved.meta.page(page).is_some_and(|at| load.is_asked(at));
            if load.is_absent(page) && !asked {
                load.free.pop();
                let ppa = self.saved.meta.page(page).expect("others are there at once");
                self.read_pages(&mut load, number, Job { ppa, count: 1 });
            }
        }
        while load.free.len() > WANTED {
            let Some(job) = load.jobs.next() else { break };
            let number = load.free.pop().expect("it was counted");
            self.read_pages(&mut load, number, job);
        }
        if !load.is_done() {
            if load.ask_for_the_rest(self.map.pages()) {
                self.load = Some(load);
                return self.load_more();
            }
            self.load = Some(load);
            return;
        }
        self.touch_all();
    }

    fn read_pages(&mut self, load: &mut Load, number: u32, job: Job) {
        let (held, whole) = &mut load.reads[number as usize];
        *held = job;
        let buffer = whole.split_to(job.count as usize * (BLOCK_BYTES as usize + TAG_BYTES));
        let (cookie, op) = (Cookie::Load(number), VectorOp::Read);
        self.send(|| Self::run(cookie, op, job.ppa, job.count, Content::Whole, buffer));
    }

    /// Pages have been read, or cannot be.
    #[cold]
    pub(super) fn load_done(&mut self, number: u32, done: VectorDone) {
        let mut load = self.load.take().expect("a read is under way");
        let (job, rest) = &mut load.reads[number as usize];
        let (job, mut buffer) = (*job, done.buffer);
        let (pages, tags) = buffer.bytes().split_at(job.count as usize * BLOCK_BYTES as usize);
        let mut retry = Vec::new();
        let blocks = pages.chunks_exact(BLOCK_BYTES as usize).zip(tags.chunks_exact(TAG_BYTES));
        let blocks: Vec<_> = (job.ppa.0..).map(Ppa).zip(blocks).collect();
        let whole = std::mem::take(rest);
        for (i, (ppa, (page, tag))) in blocks.into_iter().enumerate() {
            if is_read(done.status) || (done.failed != 0 && done.failed >> i & 1 == 0) {
                let tag = Tag::load(tag);
                let number = own(tag.id).filter(|own| own.0 == Kind::Page);
                if let Some((_, number)) = number
                    && number < self.map.pages()
                    && self.saved.meta.page(number) == Some(ppa)
                    && is_whole(tag, page)
                {
                    if load.is_absent(number) {
                        self.install_page(&mut load, number, Some(page));
                    }
                } else if job.count == 1 {
                    retry.push(ppa);
                }
                // Else it is none of them, or it is tried alone when all else
                // is done.
            } else {
                retry.push(ppa);
            }
        }
        let joined = buffer.join(whole);
        assert!(joined.is_ok(), "the rest of the buffer");
        load.reads[number as usize] = (Job { ppa: Ppa(0), count: 0 }, buffer);
        load.free.push(number);
        self.pages_failed(&mut load, job, &retry);
        self.load = Some(load);
    }

    /// Lets in what can be let in, and reads on.
    #[cold]
    pub(super) fn load_step(&mut self, now: Time) {
        self.unpark(now);
        self.load_more();
    }

    /// Of several pages that failed, each is tried alone; one alone is lost.
    fn pages_failed(&mut self, load: &mut Load, job: Job, failed: &[Ppa]) {
        for &ppa in failed {
            for at in load.pages_at(ppa) {
                let page = load.at[at].1;
                if load.is_absent(page) {
                    self.page_failed(load, job, page);
                }
            }
        }
    }

    fn page_failed(&mut self, load: &mut Load, job: Job, page: u64) {
        if job.count > 1 {
            return load.wanted.push_back(page);
        }
        for lba in self.map.blocks_of(page) {
            self.map.install(lba, Place::LOST);
        }
        self.finish_page(load, page);
        self.map.touch(page);
    }

    /// A page has come; `None` for one that was never written.
    fn install_page(&mut self, load: &mut Load, page: u64, bytes: Option<&[u8]>) {
        let blocks = self.map.blocks_of(page);
        if let Some(bytes) = bytes {
            for (at, lba) in blocks.enumerate() {
                let place = self.map.decode(bytes, at).unwrap_or(Place::LOST);
                self.map.install(lba, place);
            }
        }
        self.finish_page(load, page);
    }

    /// Patches a page and counts its blocks as valid.
    fn finish_page(&mut self, load: &mut Load, page: u64) {
        let blocks = self.map.blocks_of(page);
        let mut changed = false;
        for gone in load.gone_in(&blocks).iter().filter(|gone| !gone.in_pages) {
            let place = if gone.lost { Place::LOST } else { Place::UNMAPPED };
            for lba in gone.lba.max(blocks.start)..gone.end.min(blocks.end) {
                self.map.install(lba, place);
            }
            changed = true;
        }
        let written = load.written_in(&blocks);
        for &(lba, place) in written {
            self.map.install(lba, place);
        }
        changed |= !written.is_empty();
        for lba in blocks {
            let Some(ppa) = self.map.get(lba).ppa() else { continue };
            let leads = || self.geometry.block(ppa) < load.ends[self.geometry.chunk_index(ppa)];
            let over = |written: &[(u64, Place)]| {
                written.binary_search_by_key(&lba, |entry| entry.0).is_ok()
            };
            // Damage that no checksum showed; not to be seen on a drive that
            // only this target wrote.
            let wrong = !self.geometry.contains(ppa)
                || self.space.is_valid(ppa)
                || (!leads() && !over(load.written_in(&(lba..lba + 1))));
            if wrong {
                self.map.install(lba, Place::LOST);
                changed = true;
            } else {
                self.space.set_valid(ppa);
            }
        }
        if changed {
            self.map.touch(page);
        }
        load.arrived(page);
    }

    /// Lets requests in whose pages have come.
    fn unpark(&mut self, now: Time) {
        let waiting = self.load.as_ref().map_or(0, |load| load.waiting());
        for _ in 0..waiting {
            let load = self.load.as_mut().expect("requests wait");
            let (came, req) = load.parked.pop_front().expect("they were counted");
            if self.needs_page(&req) || !self.has_room(&req) {
                self.park(came, req);
            } else {
                if let Some(told) = &mut self.told {
                    told.was_parked(came, now);
                }
                self.accept_late(now, req);
            }
        }
    }
}
