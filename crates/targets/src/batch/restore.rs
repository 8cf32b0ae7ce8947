//! Start-up: the tables, from their pages on flash and what these lack.
//!
//! Each page of MAP and MAP_S says in its TAG up to which LSN it holds all, so
//! what it lacks is done again exactly. GBITV is made from the locations that
//! the log names, new and prior ones: of all these the valid ones are those that
//! the tables lead to in the end.
//!
//! A page that cannot be read, or holds something else, is made anew where the
//! other tables say what was in it, and written with the next checkpoint: of
//! WEAR by what the drive counts; of GBITV and GBITV_S, and then all of GBITV, by
//! where MAP leads; of MAP_S and MAP by the TAGs of the blocks that GBITV has as
//! valid (`rebuild`). Fails where it takes both to make either.

use std::collections::BTreeSet;

use device::{Content, OpenChannel};
use flash::{Ppa, TAG_BYTES, Tag};
use port::{Lazy, OutOfMemory};

use super::config::{BatchError, Damaged};
use super::garbage::Garbage;
use super::location::Location;
use super::map::{Map, PAGE_BYTES, State, stored_entry};
use super::mutation::{Mutation, is};
use super::page::{Kind, Page};
use super::paged::{PAGE_WORDS, Paged};
use super::record::{Entry, What};
use super::slot::Checkpoint;
use super::story::{Findings, Told};
use super::walk::Trail;
use super::wear::Wear;
use super::{Batch, Runner, is_read};

/// Pages of MAP that are read at once.
pub(super) const PAGES_AT_ONCE: usize = 2048;

/// All that is known of a page of MAP that was made anew.
const ALL: u64 = u64::MAX;

/// A page of MAP: its number, its words, and up to which LSN it holds all.
pub(super) type MapPage = (usize, Vec<Location>, u64);

/// A page of MAP that is damaged, and how; `None` where its place is lost.
pub(super) type DamagedPage = (usize, Option<BatchError>);

/// What of the tables could not be read.
#[derive(Default)]
pub(super) struct Lost {
    /// Pages of MAP_S.
    pub small: BTreeSet<usize>,
    /// Something of GBITV or GBITV_S: what was found first.
    pub garbage: Option<BatchError>,
    /// Where the pages were that are written elsewhere.
    pub places: Vec<Location>,
    /// What was found first.
    error: Option<BatchError>,
}

impl Lost {
    fn note(&mut self, error: BatchError) {
        self.error.get_or_insert(error);
    }
}

/// The pages of MAP that the log names, and the entries there.
pub(super) struct Named {
    /// A bit for each entry.
    entries: Lazy<u64>,
    /// Of each page the last LSN that names it, plus one; 0 where none does.
    last: Lazy<u64>,
}

/// Words of [`Named::entries`] for a page.
const ENTRY_WORDS: usize = PAGE_WORDS / 64;

impl Named {
    fn new(pages: usize) -> Result<Named, OutOfMemory> {
        Ok(Named {
            entries: Lazy::zeroed(pages * ENTRY_WORDS, "the entries of the map in the log")?,
            last: Lazy::zeroed(pages, "the pages of the map in the log")?,
        })
    }

    /// The batch `lsn` names a page's entry.
    fn note(&mut self, lpid: u64, lsn: u64) {
        let (page, entry) = Map::split(lpid);
        self.entries[page * ENTRY_WORDS + entry / 64] |= 1 << (entry % 64);
        self.last[page] = self.last[page].max(lsn + 1);
    }

    /// The entries of a page that are looked at: those that are named, or all.
    fn of(&self, page: usize, all: bool) -> impl Iterator<Item = usize> + '_ {
        let word = move |entry: usize| self.entries[page * ENTRY_WORDS + entry / 64];
        (0..PAGE_WORDS).filter(move |&entry| all || word(entry) >> (entry % 64) & 1 == 1)
    }
}

/// Which pages of MAP a start looks at.
struct Scope<'a> {
    named: &'a Named,
    /// GBITV is damaged, and how: then all of them, and all their entries.
    garbage: Option<&'a BatchError>,
    /// Pages that are somewhere, and nobody knows where.
    nowhere: BTreeSet<usize>,
}

impl Scope<'_> {
    fn has(&self, page: usize) -> bool {
        self.garbage.is_some() || self.named.last[page] > 0 || self.nowhere.contains(&page)
    }

    /// The entries of a page whose blocks are to be valid.
    fn entries(&self, page: usize) -> impl Iterator<Item = usize> + '_ {
        self.named.of(page, self.garbage.is_some())
    }
}

impl<D: OpenChannel> Batch<D> {
    /// Reads pages of tables, each with the LSN up to which it holds all. Gives
    /// those that are damaged.
    pub(super) fn read_pages(
        &mut self,
        pages: &[(Page, Ppa)],
        mut each: impl FnMut(Page, &[u8], u64),
    ) -> Result<Vec<(Page, BatchError)>, BatchError> {
        let blocks: Vec<Ppa> = pages.iter().map(|&(_, at)| at).collect();
        let mut damaged = Vec::new();
        let mut runner = Runner::new(&mut self.device, self.now);
        runner.read(&blocks, Content::Whole, |i, block| {
            let (page, at) = pages[i];
            let tag = Tag::load(&block.tag[..TAG_BYTES]);
            let why = match is_read(block.status) {
                true if page.matches(block.data, tag) => None,
                true => Some(Damaged::Foreign),
                false => Some(Damaged::Unreadable(block.status)),
            };
            match why {
                None => each(page, block.data, tag.seq),
                Some(why) => damaged.push((page, BatchError::Table { at, why })),
            }
            Ok(())
        })?;
        self.now = runner.now;
        Ok(damaged)
    }

    /// MAP_T, GBITV_T, WEAR_S and below them MAP_S, GBITV_S, WEAR.
    pub(super) fn restore_tables(
        &mut self,
        record: &Checkpoint,
        findings: &Findings,
    ) -> Result<Lost, BatchError> {
        let lengths = [record.map_t.len(), record.garbage_t.len(), record.wear_s.len()];
        let tables = [self.map.tiny.len(), self.garbage.tiny.len(), self.wear.small.len()];
        if lengths != tables {
            return Err(BatchError::Checkpoint);
        }
        let fill = |to: &mut Paged, from: &[Location]| {
            from.iter().enumerate().for_each(|(page, &place)| to.set_place(page, place));
        };
        fill(&mut self.map.tiny, &record.map_t);
        fill(&mut self.garbage.tiny, &record.garbage_t);
        fill(&mut self.wear.small, &record.wear_s);
        for (&page, &(_, new)) in findings.pages.iter().filter(|(_, (lsn, _))| *lsn > record.lsn) {
            let number = page.number as usize;
            match page.kind {
                _ if !self.has_page(page) => {}
                Kind::MapS => self.map.tiny.set_place(number, new),
                Kind::GarbageS => self.garbage.tiny.set_place(number, new),
                Kind::Wear => self.wear.small.set_place(number, new),
                Kind::Map | Kind::Garbage => {}
            }
        }
        let mut lost = Lost::default();
        for kind in [Kind::MapS, Kind::GarbageS] {
            self.restore_small(kind, findings, record.first, &mut lost)?;
        }
        self.restore_wear(&mut lost)?;
        Ok(lost)
    }

    /// MAP_S or GBITV_S: its pages, and what they lack.
    fn restore_small(
        &mut self,
        kind: Kind,
        findings: &Findings,
        first: u64,
        lost: &mut Lost,
    ) -> Result<(), BatchError> {
        let (tiny, below) = match kind {
            Kind::MapS => (&self.map.tiny, Kind::Map),
            _ => (&self.garbage.tiny, Kind::Garbage),
        };
        let pages = on_flash(kind, tiny.places());
        let mut lsns = vec![0; tiny.len()];
        let mut places: Vec<(usize, Location)> = Vec::new();
        let geometry = self.geometry;
        let damaged = self.read_pages(&pages, |page, bytes, lsn| {
            let number = page.number as usize;
            lsns[number] = lsn;
            for i in 0..PAGE_WORDS {
                let place = stored_entry(bytes, i, &geometry).unwrap_or(Location::NONE);
                places.push((number * PAGE_WORDS + i, place));
            }
        })?;
        for (page, error) in damaged {
            self.write_elsewhere(page, first, lost, error);
        }
        let mut set = |number: usize, place: Location, lsn: Option<u64>| match below {
            Kind::Map if number < self.map.pages() => {
                self.map.restore_place(number, place);
                if let Some(lsn) = lsn {
                    self.map.tiny.touch(number / PAGE_WORDS, lsn);
                }
            }
            Kind::Garbage if number < self.garbage.small.len() => {
                self.garbage.small.set_place(number, place);
                if let Some(lsn) = lsn {
                    self.garbage.tiny.touch(number / PAGE_WORDS, lsn);
                }
            }
            _ => {}
        };
        for (number, place) in places {
            set(number, place, None);
        }
        let of_below = findings.pages.iter().filter(|(page, _)| page.kind == below);
        let mut written: Vec<(u64, Page, Location)> =
            of_below.map(|(&page, &(lsn, new))| (lsn, page, new)).collect();
        // So that a page is behind flash from the first of them on.
        written.sort_unstable();
        for (lsn, page, new) in written {
            let number = page.number as usize;
            if lsns.get(number / PAGE_WORDS).is_some_and(|&held| lsn > held) {
                set(number, new, Some(lsn));
            }
        }
        Ok(())
    }

    /// A page of MAP_S, GBITV_S or WEAR is damaged: its next copy goes elsewhere.
    fn write_elsewhere(&mut self, page: Page, first: u64, lost: &mut Lost, error: BatchError) {
        lost.places.push(self.place_of(page));
        lost.note(error.clone());
        self.recovery.rebuilt += 1;
        let number = page.number as usize;
        match page.kind {
            Kind::MapS => {
                lost.small.insert(number);
                self.map.tiny.set_place(number, Location::NONE);
                self.map.tiny.touch(number, first);
            }
            Kind::Wear => {
                self.wear.small.set_place(number, Location::NONE);
                self.wear.change(number);
            }
            _ => {
                lost.garbage.get_or_insert(error);
                self.garbage.tiny.set_place(number, Location::NONE);
                self.garbage.tiny.touch(number, first);
            }
        }
    }

    /// WEAR: its pages, where the drive has not counted more.
    fn restore_wear(&mut self, lost: &mut Lost) -> Result<(), BatchError> {
        let mut wear = std::mem::replace(&mut self.wear, Wear::new(&self.geometry));
        let pages = on_flash(Kind::Wear, wear.small.places());
        let read = self.read_pages(&pages, |page, bytes, _| wear.load(page.number as usize, bytes));
        self.wear = wear;
        for (page, error) in read? {
            self.write_elsewhere(page, 0, lost, error);
        }
        for unit in self.geometry.pus_channels_first() {
            for number in 0..self.geometry.chunks() {
                let chunk = self.geometry.chunk_of(unit, number);
                self.wear.raise(chunk, self.device.chunk(chunk).wear);
            }
        }
        Ok(())
    }

    /// GBITV: its pages; and of all locations that the log names, none is valid
    /// until the tables are found to lead there.
    /// Gives what the log names of MAP.
    pub(super) fn restore_garbage(
        &mut self,
        record: &Checkpoint,
        trail: &Trail,
        findings: &Findings,
        lost: &mut Lost,
    ) -> Result<Named, BatchError> {
        let (lsn, lpids) = (record.first, self.config.pages);
        self.load_garbage(lsn, lost)?;
        if !lost.small.is_empty() {
            self.find_map_pages(trail, findings, lost)?;
        }
        for &place in &lost.places {
            self.garbage.set_garbage(place, lsn);
        }
        let mut named = Named::new(self.map.pages())?;
        let garbage = &mut self.garbage;
        let mut runner = Runner::new(&mut self.device, self.now);
        trail.tell(&mut runner, &self.geometry, |told| match told {
            Told::Failed(at) => garbage.set_garbage(at, lsn),
            Told::Moved(entry) => {
                garbage.set_garbage(entry.new, lsn);
                // Nothing is done again; MAP says whether it is still there.
                if entry.id < lpids {
                    named.note(entry.id, 0);
                }
            }
            Told::Batch(number, batch) => {
                for entry in &batch.entries {
                    garbage.set_garbage(entry.new, lsn);
                    garbage.set_garbage(entry.prior, lsn);
                    if batch.what != What::Meta && entry.id < lpids {
                        named.note(entry.id, number);
                    }
                }
            }
        })?;
        self.now = runner.now;
        let all = Kind::ALL.into_iter().filter(|_| lost.garbage.is_some());
        let all: Vec<Page> = all.flat_map(|kind| self.pages_of(kind)).collect();
        for page in findings.pages.keys().copied().chain(all) {
            if self.has_page(page) {
                self.garbage.set_valid(self.place_of(page), lsn);
            }
        }
        Ok(named)
    }

    /// GBITV as flash has it; or, where something of it is lost, with no block
    /// valid, to be written whole.
    fn load_garbage(&mut self, first: u64, lost: &mut Lost) -> Result<(), BatchError> {
        let mut garbage = std::mem::replace(&mut self.garbage, Garbage::new(&self.geometry)?);
        let pages = on_flash(Kind::Garbage, garbage.small.places());
        let read = self.read_pages(&pages, |page, bytes, _| {
            garbage.load(page.number as usize, bytes);
        });
        self.garbage = garbage;
        for (_, error) in read? {
            lost.note(error.clone());
            lost.garbage.get_or_insert(error);
            self.recovery.rebuilt += 1;
        }
        if lost.garbage.is_none() {
            self.garbage.count();
            return Ok(());
        }
        self.garbage.forget(first);
        // MAP_S is found by GBITV only.
        match lost.error.take().filter(|_| !lost.small.is_empty()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// MAP: what its pages on flash lack is done again; and the locations that
    /// the log names are valid where MAP leads to them. Where GBITV is made anew,
    /// all locations are.
    pub(super) fn restore_map(
        &mut self,
        record: &Checkpoint,
        trail: &Trail,
        named: &Named,
        lost: &Lost,
    ) -> Result<(), BatchError> {
        let nowhere = (0..self.map.pages()).filter(|&page| self.map.place(page).is_lost());
        let garbage = lost.garbage.as_ref();
        let scope = Scope { named, garbage, nowhere: nowhere.collect() };
        let mut held = vec![0; self.map.slots()];
        let mut from = 0;
        loop {
            let mut taken = Vec::new();
            from = self.take_pages(record, trail, &scope, from, &mut held, &mut taken)?;
            if taken.is_empty() {
                return Ok(());
            }
            self.redo(trail, &held)?;
            for slot in taken {
                let page = self.map.slot(slot).page as usize;
                for entry in scope.entries(page) {
                    self.garbage.set_valid(self.map.get(slot, entry), record.first);
                }
                self.map.unpin(slot);
            }
        }
    }

    /// Reads the pages of MAP that are in scope, from page `from` on. Those that
    /// may lack something, or are made anew, go to slots and are pinned there, as
    /// many as there are slots for. `held` is by slot: up to which LSN all of the
    /// page is there. Gives the page behind the last that was seen to.
    fn take_pages(
        &mut self,
        record: &Checkpoint,
        trail: &Trail,
        scope: &Scope,
        from: usize,
        held: &mut [u64],
        taken: &mut Vec<u32>,
    ) -> Result<usize, BatchError> {
        let mut next = (from..self.map.pages()).filter(|&page| scope.has(page)).peekable();
        while next.peek().is_some() {
            let pages: Vec<usize> = next.by_ref().take(PAGES_AT_ONCE).collect();
            let (mut read, damaged) = self.read_map(&pages)?;
            if !damaged.is_empty() {
                let anew = self.rebuild_map(trail, damaged, scope.garbage)?;
                read.iter_mut().for_each(|page| {
                    if let Some(words) = anew.get(&page.0) {
                        (page.1, page.2) = (words.clone(), ALL);
                    }
                });
            }
            for (page, words, lsn) in read {
                if lsn != ALL && scope.named.last[page] <= lsn + 1 {
                    let valid = scope.entries(page).map(|entry| words[entry]);
                    valid.for_each(|at| self.garbage.set_valid(at, record.first));
                    continue;
                }
                let Some(slot) = self.map.take_slot(page, State::Ready) else {
                    if taken.is_empty() {
                        return Err(self.too_few_slots(scope, page));
                    }
                    return Ok(page);
                };
                for (entry, &word) in words.iter().enumerate() {
                    self.map.put(slot, entry, word);
                }
                self.map.pin(slot);
                if lsn == ALL {
                    self.map.touch(slot, record.first);
                }
                held[slot as usize] = lsn;
                taken.push(slot);
            }
        }
        Ok(self.map.pages())
    }

    /// All slots hold pages that flash has not, and so will those from `from` on
    /// that lack something: the cache would hold all of these.
    #[cold]
    fn too_few_slots(&mut self, scope: &Scope, from: usize) -> BatchError {
        let pages: Vec<usize> = (from..self.map.pages()).filter(|&page| scope.has(page)).collect();
        let mut slots = self.map.slots();
        for pages in pages.chunks(PAGES_AT_ONCE) {
            let (read, damaged) = match self.read_map(pages) {
                Ok(found) => found,
                Err(error) => return error,
            };
            let anew: BTreeSet<usize> = damaged.into_iter().map(|(page, _)| page).collect();
            let lacks =
                |page: &&MapPage| anew.contains(&page.0) || scope.named.last[page.0] > page.2 + 1;
            slots += read.iter().filter(lacks).count();
        }
        BatchError::Cache { bytes: self.config.cache_bytes, least: (slots * PAGE_BYTES) as u64 }
    }

    /// Pages of MAP as flash has them, and up to which LSN each holds all; and
    /// those that are damaged, or of which nobody knows where they are.
    pub(super) fn read_map(
        &mut self,
        pages: &[usize],
    ) -> Result<(Vec<MapPage>, Vec<DamagedPage>), BatchError> {
        let empty = |&page: &usize| (page, vec![Location::NONE; PAGE_WORDS], 0);
        let mut read: Vec<MapPage> = pages.iter().map(empty).collect();
        let (mut places, mut damaged) = (Vec::new(), Vec::new());
        for &number in pages {
            let (place, page) =
                (self.map.place(number), Page { kind: Kind::Map, number: number as u64 });
            places.extend(place.ppa().map(|at| (page, at)));
            damaged.extend(place.is_lost().then_some((number, None)));
        }
        let geometry = self.geometry;
        let unreadable = self.read_pages(&places, |page, bytes, lsn| {
            let at = pages.binary_search(&(page.number as usize)).expect("it was asked for");
            let (_, words, held) = &mut read[at];
            *held = lsn;
            for (entry, word) in words.iter_mut().enumerate() {
                *word = stored_entry(bytes, entry, &geometry).unwrap_or(Location::NONE);
            }
        })?;
        damaged.extend(unreadable.into_iter().map(|(page, e)| (page.number as usize, Some(e))));
        self.recovery.map_pages += places.len() as u64;
        Ok((read, damaged))
    }

    /// Does again what the pinned pages of MAP lack.
    fn redo(&mut self, trail: &Trail, held: &[u64]) -> Result<(), BatchError> {
        let (map, lpids) = (&mut self.map, self.config.pages);
        let mut runner = Runner::new(&mut self.device, self.now);
        trail.tell(&mut runner, &self.geometry, |told| {
            let Told::Batch(lsn, batch) = told else { return };
            let entries = batch.entries.iter().filter(|entry| entry.id < lpids);
            for &Entry { id, new, prior, .. } in entries.filter(|_| batch.what != What::Meta) {
                let (page, entry) = Map::split(id);
                let Some(slot) = map.slot_of(page) else { continue };
                if map.slot(slot).pins == 0 || lsn <= held[slot as usize] {
                    continue;
                }
                if new == Location::NONE && is(Mutation::KeepGivenUp) {
                    continue;
                }
                // What collection moved counts only where nothing newer came.
                if batch.what != What::Collect || map.get(slot, entry) == prior {
                    map.set(slot, entry, new, lsn);
                }
            }
        })?;
        self.now = runner.now;
        Ok(())
    }
}

/// The pages of a table that are on flash.
pub(super) fn on_flash(kind: Kind, places: &[Location]) -> Vec<(Page, Ppa)> {
    let pages = places.iter().enumerate();
    let page =
        |(n, place): (usize, &Location)| Some((Page { kind, number: n as u64 }, place.ppa()?));
    pages.filter_map(page).collect()
}
