//! Start-up with damaged tables: the pages of MAP, and where they are, by the
//! TAGs.
//!
//! GBITV has the blocks as valid that the tables lead to; a page of it may be
//! ahead of others or behind, but only by what the log tells. So of the blocks
//! that GBITV has on flash as valid and that no batch of the log names, and of
//! those that the log says to be new, the one with the newest LSN is what MAP
//! leads to. A block that the log names is not believed by its TAG: its chunk may
//! have been erased since, and written by a batch that never was.
//!
//! Where one of these blocks cannot be read, and neither the log nor another
//! table says what it is, it may be a page's newest copy: then pages that no
//! other block has are lost, and read as errors until they are written.

use std::collections::{BTreeMap, BTreeSet};

use device::{Content, OpenChannel};
use flash::{Ppa, TAG_BYTES, Tag};

use super::config::BatchError;
use super::garbage::Garbage;
use super::location::Location;
use super::map::Map;
use super::mutation::{Mutation, is};
use super::page::{Held, Kind, Page, held, is_whole};
use super::paged::PAGE_WORDS;
use super::record::What;
use super::restore::{DamagedPage, Lost, PAGES_AT_ONCE, on_flash};
use super::space::Use;
use super::story::{Findings, Told};
use super::walk::Trail;
use super::{Batch, Runner, is_read};

/// A block as the scan finds it.
pub(super) struct Scanned {
    pub at: Ppa,
    /// `None` where it cannot be read.
    pub tag: Option<Tag>,
    /// It was written whole.
    pub whole: bool,
}

/// The newest copies of logical pages: LSN and place.
pub(super) type Newest = BTreeMap<u64, (u64, Location)>;

/// A copy is as new as the newest, or newer.
pub(super) fn note(newest: &mut Newest, lpid: u64, copy: (u64, Location)) {
    let known = newest.entry(lpid).or_insert(copy);
    if known.0 <= copy.0 {
        *known = copy;
    }
}

impl<D: OpenChannel> Batch<D> {
    /// Reads the TAGs of all programmed blocks, in chunks with blocks that are
    /// `wanted`, and tells of these.
    pub(super) fn scan_tags(
        &mut self,
        wanted: impl Fn(Ppa) -> bool,
        mut each: impl FnMut(Scanned),
    ) -> Result<(), BatchError> {
        for chunk in 0..self.space.chunks.len() {
            if matches!(self.space.chunks[chunk].usage, Use::Gone | Use::Slot) {
                continue;
            }
            let (start, known) = (self.geometry.chunk_start(chunk).0, self.device.chunk(chunk));
            let blocks: Vec<Ppa> = (0..known.programmed)
                .map(|block| Ppa(start + u64::from(block)))
                .filter(|&at| self.device.failed_of(at, 1) == 0)
                .collect();
            if !blocks.iter().any(|&at| wanted(at)) {
                continue;
            }
            let mut tags = vec![None; blocks.len()];
            let mut runner = Runner::new(&mut self.device, self.now);
            runner.read(&blocks, Content::Tags, |i, block| {
                if is_read(block.status) {
                    tags[i] = Some(Tag::load(&block.tag[..TAG_BYTES]));
                }
                Ok(())
            })?;
            self.now = runner.now;
            let whole = tags.iter().flatten().any(|&tag| is_whole(tag));
            let found = blocks.into_iter().zip(tags).filter(|&(at, _)| wanted(at));
            found.for_each(|(at, tag)| each(Scanned { at, tag, whole }));
        }
        Ok(())
    }

    /// Finds the pages of MAP of damaged pages of MAP_S: those that the log does
    /// not name are the valid ones of their name.
    pub(super) fn find_map_pages(
        &mut self,
        trail: &Trail,
        findings: &Findings,
        lost: &Lost,
    ) -> Result<(), BatchError> {
        let tables = [Kind::MapS, Kind::Garbage, Kind::GarbageS, Kind::Wear].into_iter();
        let known: BTreeSet<Ppa> = tables
            .flat_map(|kind| self.pages_of(kind))
            .map(|page| self.place_of(page))
            .chain(lost.places.iter().copied())
            .filter_map(Location::ppa)
            .collect();
        let (mut newest, mut unread) = (Newest::new(), false);
        let lpids = self.config.pages;
        let base = self.untold(trail)?;
        self.scan_tags(
            |at| base.is_valid(at) && !known.contains(&at),
            |Scanned { at, tag, .. }| match tag.map(|tag| (held(tag, lpids), tag.seq)) {
                Some((Held::Page(Page { kind: Kind::Map, number }), lsn)) => {
                    note(&mut newest, number, (lsn, Location::at(at, true)));
                }
                Some(_) => {}
                None => unread = true,
            },
        )?;
        let otherwise = if unread { Location::LOST } else { Location::NONE };
        let count = self.map.pages();
        let pages = lost.small.iter().flat_map(|page| page * PAGE_WORDS..(page + 1) * PAGE_WORDS);
        for number in pages.take_while(|&number| number < count) {
            let page = Page { kind: Kind::Map, number: number as u64 };
            if findings.pages.get(&page).is_none_or(|&(lsn, _)| lsn == 0) {
                let found = newest.get(&page.number).map_or(otherwise, |copy| copy.1);
                self.map.restore_place(number, found);
            }
        }
        Ok(())
    }

    /// Makes damaged pages of MAP anew: the words of each, with all that the log
    /// says. Fails where GBITV is damaged, too, as `garbage` says.
    pub(super) fn rebuild_map(
        &mut self,
        trail: &Trail,
        damaged: Vec<DamagedPage>,
        garbage: Option<&BatchError>,
    ) -> Result<BTreeMap<usize, Vec<Location>>, BatchError> {
        let pages: BTreeSet<usize> = damaged.iter().map(|&(page, _)| page).collect();
        if let Some(garbage) = garbage {
            let error = damaged.into_iter().find_map(|(_, error)| error);
            return Err(error.unwrap_or_else(|| garbage.clone()));
        }
        self.recovery.rebuilt += pages.len() as u64;
        let lpids = self.config.pages;
        let is_of = |lpid: u64| lpid < lpids && pages.contains(&Map::split(lpid).0);
        let mut newest = self.newest_in_log(trail, is_of)?;
        let base = self.untold(trail)?;
        let mut unread = BTreeSet::new();
        self.scan_tags(
            |at| base.is_valid(at),
            |Scanned { at, tag, whole }| match tag.map(|tag| (held(tag, lpids), tag.seq)) {
                Some((Held::Data(lpid), lsn)) if is_of(lpid) => {
                    // Of the same copy the log knows the last place.
                    if newest.get(&lpid).is_none_or(|copy| copy.0 < lsn) {
                        newest.insert(lpid, (lsn, Location::at(at, whole)));
                    }
                }
                Some(_) => {}
                None => {
                    unread.insert(at);
                }
            },
        )?;
        self.explain(&pages, &mut unread)?;
        let otherwise = if unread.is_empty() { Location::NONE } else { Location::LOST };
        let word = |lpid: u64| match newest.get(&lpid) {
            Some(copy) => copy.1,
            None if lpid < lpids => otherwise,
            None => Location::NONE,
        };
        let words = |page: usize| (page * PAGE_WORDS..).take(PAGE_WORDS).map(|n| word(n as u64));
        Ok(pages.iter().map(|&page| (page, words(page).collect())).collect())
    }

    /// The newest copies of some logical pages that the log names.
    fn newest_in_log(
        &mut self,
        trail: &Trail,
        is_of: impl Fn(u64) -> bool,
    ) -> Result<Newest, BatchError> {
        let mut newest = Newest::new();
        let mut runner = Runner::new(&mut self.device, self.now);
        trail.tell(&mut runner, &self.geometry, |told| {
            let Told::Batch(lsn, batch) = told else { return };
            let entries = batch.entries.iter().filter(|entry| is_of(entry.id));
            for entry in entries.filter(|_| batch.what != What::Meta) {
                let lsn = if batch.what == What::Collect { entry.seq } else { lsn };
                note(&mut newest, entry.id, (lsn, entry.new));
            }
        })?;
        self.now = runner.now;
        Ok(newest)
    }

    /// GBITV as flash has it, without the blocks that batches of the log name.
    fn untold(&mut self, trail: &Trail) -> Result<Garbage, BatchError> {
        let mut garbage = Garbage::new(&self.geometry)?;
        let pages = on_flash(Kind::Garbage, self.garbage.small.places());
        let damaged = self.read_pages(&pages, |page, bytes, _| {
            garbage.load(page.number as usize, bytes);
        })?;
        if let Some((_, error)) = damaged.into_iter().next() {
            return Err(error);
        }
        garbage.count();
        if is(Mutation::BelieveTags) {
            return Ok(garbage);
        }
        let mut runner = Runner::new(&mut self.device, self.now);
        trail.tell(&mut runner, &self.geometry, |told| {
            let Told::Batch(lsn, batch) = told else { return };
            for entry in &batch.entries {
                garbage.set_garbage(entry.new, lsn);
                garbage.set_garbage(entry.prior, lsn);
            }
        })?;
        self.now = runner.now;
        Ok(garbage)
    }

    /// Leaves out, of valid blocks that cannot be read, those of which it is known
    /// that none of the pages of MAP in `pages` leads there.
    fn explain(
        &mut self,
        pages: &BTreeSet<usize>,
        unread: &mut BTreeSet<Ppa>,
    ) -> Result<(), BatchError> {
        if unread.is_empty() {
            return Ok(());
        }
        let mut gone = |place: Location| place.ppa().is_some_and(|at| unread.remove(&at));
        for kind in Kind::ALL {
            for page in self.pages_of(kind) {
                gone(self.place_of(page));
            }
        }
        let others: Vec<usize> =
            (0..self.map.pages()).filter(|page| !pages.contains(page)).collect();
        for others in others.chunks(PAGES_AT_ONCE) {
            let (read, _) = self.read_map(others)?;
            for (_, words, _) in read {
                words.into_iter().for_each(|word| {
                    gone(word);
                });
            }
        }
        Ok(())
    }
}
