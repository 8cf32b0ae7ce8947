//! The log as recovery reads it: from a row to the last, along the links.
//!
//! Of the places that a row names for the next one, the last in their order that
//! holds a row with the next number and the right back link is the next row: the
//! others before it failed, though some may be readable. The log ends where no
//! place holds one, and none was: a place that was written, and where no row can
//! be read that fits, is damage. No cut leaves such a row, over a cache either: what
//! a drive says was programmed was all there when it was started
//! ([`flash::Medium`]).
//!
//! Of the rows only their places stay in memory. Who needs what they say again
//! has them read again, many at once.

use device::{Content, OpenChannel};
use flash::{Geometry, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, Status};

use super::config::{BatchError, Damaged};
use super::location::Location;
use super::page::{is_log, log_tag};
use super::record::{Entry, Header, MAX_LINKS, What, parse};
use super::slot::{Detour, Start};
use super::story::{Story, Told};
use super::{Runner, is_read};

/// A record and its entries.
pub(super) type Record = (Header, Vec<Entry>);

/// A row of the log.
struct Row {
    at: Ppa,
    row: u64,
    links: [Location; MAX_LINKS],
    records: Vec<Record>,
}

/// What is at a place of the log.
enum Found {
    Row(Row),
    /// Nothing, or a row that is not all there.
    Nothing,
    /// Something that was written, and is no row that fits.
    Damaged(Damage),
}

/// What was written where a row could be, and is none that fits.
#[derive(Clone, Copy)]
struct Damage {
    at: Ppa,
    why: Damaged,
    /// Its TAG says that it is the row that is looked for.
    is_named: bool,
}

impl Damage {
    /// How much speaks for it that it is the row: another place may hold the row
    /// behind it, or what a chunk held before an erase that a cut has undone.
    fn weight(&self) -> u8 {
        if self.is_named { 2 } else { u8::from(self.why != Damaged::Foreign) }
    }
}

/// What a block of a row was read as: a record that fits, if it is one, and
/// whether its TAG is that of the row.
type Read = Result<(Option<Record>, bool), Status>;

/// What a row must have to be the one that is looked for.
#[derive(Clone, Copy)]
struct Wanted {
    row: u64,
    back: Option<Location>,
}

fn fits(header: &Header, wanted: Wanted, index: usize) -> bool {
    header.row == wanted.row
        && header.index as usize == index
        && wanted.back.is_none_or(|back| header.back == back)
}

/// Looks at places of the log, all at once.
fn look<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    places: &[Ppa],
    wanted: Wanted,
) -> Result<Vec<Found>, BatchError> {
    let row = geometry.row_blocks() as usize;
    let blocks = places.iter().flat_map(|at| (0..row as u64).map(|i| Ppa(at.0 + i)));
    let blocks: Vec<Ppa> = blocks.collect();
    let mut read: Vec<Read> = Vec::new();
    read.resize_with(blocks.len(), || Ok((None, false)));
    runner.read(&blocks, Content::Whole, |i, block| {
        read[i] = if is_read(block.status) {
            let record = parse(block.data, geometry);
            let record = record.filter(|(header, _)| fits(header, wanted, i % row));
            Ok((record, Tag::load(&block.tag[..TAG_BYTES]) == log_tag(wanted.row)))
        } else {
            Err(block.status)
        };
        Ok(())
    })?;
    let mut found = Vec::with_capacity(places.len());
    for (at, read) in places.iter().zip(read.chunks_mut(row)) {
        found.push(match row_of(*at, wanted.row, read) {
            // A row that is not all there was never durable.
            Found::Damaged(_) if !was_written(runner, geometry, Ppa(at.0 + row as u64 - 1)) => {
                Found::Nothing
            }
            found => found,
        });
    }
    Ok(found)
}

/// What the blocks of a row come to, if they were written.
fn row_of(at: Ppa, row: u64, read: &mut [Read]) -> Found {
    let is_named = matches!(read[0], Ok((_, true)));
    let damaged = |why| Found::Damaged(Damage { at, why, is_named });
    let mut records: Vec<Record> = Vec::new();
    while records.first().is_none_or(|first| records.len() < first.0.records as usize) {
        match read.get_mut(records.len()).map(|read| std::mem::replace(read, Ok((None, false)))) {
            Some(Ok((Some(record), _))) => records.push(record),
            Some(Ok((None, _))) | None => return damaged(Damaged::Foreign),
            Some(Err(status)) => return damaged(Damaged::Unreadable(status)),
        }
    }
    let links = records[0].0.links;
    Found::Row(Row { at, row, links, records })
}

/// Whether the drive says that a block was programmed, and not in vain.
pub(super) fn was_written<D: OpenChannel>(
    runner: &Runner<D>,
    geometry: &Geometry,
    at: Ppa,
) -> bool {
    let chunk = runner.device.chunk(geometry.chunk_index(at));
    let block = geometry.block(at);
    block < chunk.programmed && runner.device.failed_of(at, 1) == 0
}

/// Where a row of the log is that was read once.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub at: Ppa,
    pub row: u64,
    /// LSN of the first batch that begins in it.
    pub begins: Option<u64>,
    records: u8,
}

/// The log as it was found: all its rows, in order.
pub(super) struct Trail {
    /// At least one.
    pub rows: Vec<Known>,
    /// The places that the last row names.
    pub links: [Location; MAX_LINKS],
    /// LSN of the first batch that is not complete.
    pub end: Option<u64>,
}

impl Trail {
    pub fn last(&self) -> Known {
        *self.rows.last().expect("it has a first")
    }

    /// Takes a row in and gives its records on.
    fn add(&mut self, row: Row, each: &mut impl FnMut(Record)) {
        let begins = |what| matches!(what, What::User | What::Collect | What::Meta);
        let headers = row.records.iter().map(|(header, _)| header);
        let begins = headers.filter(|h| begins(h.what) && h.part == 0).map(|h| h.lsn).min();
        let records = row.records.len() as u8;
        self.rows.push(Known { at: row.at, row: row.row, begins, records });
        self.links = row.links;
        row.records.into_iter().for_each(each);
    }

    /// Reads the log again and tells what it says. Its rows are known, so many
    /// are read at once.
    pub fn tell<D: OpenChannel>(
        &self,
        runner: &mut Runner<D>,
        geometry: &Geometry,
        mut each: impl FnMut(Told),
    ) -> Result<(), BatchError> {
        let mut story = Story::default();
        let row_bytes = geometry.row_blocks() as usize * BLOCK_BYTES as usize;
        for rows in self.rows.chunks((READ_AGAIN / row_bytes).max(1)) {
            for record in read_again(runner, geometry, rows)? {
                story.take(record, &mut each);
            }
        }
        story.end(self.end, &mut each);
        Ok(())
    }
}

/// Bytes of the log that are read again at once.
const READ_AGAIN: usize = 32 << 20;

/// The records of rows that were read before.
fn read_again<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    rows: &[Known],
) -> Result<Vec<Record>, BatchError> {
    // Neighbours in the log lie in few chunks. In this order many units read.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|&n| (geometry.block(rows[n].at), rows[n].at));
    let of_row = |&n: &usize| (0..rows[n].records).map(move |index| (n, index));
    let wanted: Vec<(usize, u8)> = order.iter().flat_map(of_row).collect();
    let blocks: Vec<Ppa> =
        wanted.iter().map(|&(n, index)| Ppa(rows[n].at.0 + u64::from(index))).collect();
    let mut read: Vec<(usize, u8, Record)> = Vec::with_capacity(blocks.len());
    runner.read(&blocks, Content::Whole, |i, block| {
        let ((n, index), at) = (wanted[i], blocks[i]);
        if !is_read(block.status) {
            return Err(BatchError::Log { at, why: Damaged::Unreadable(block.status) });
        }
        let wanted = Wanted { row: rows[n].row, back: None };
        let record = parse(block.data, geometry);
        let record = record.filter(|(header, _)| fits(header, wanted, index as usize));
        read.push((n, index, record.ok_or(BatchError::Log { at, why: Damaged::Foreign })?));
        Ok(())
    })?;
    read.sort_unstable_by_key(|&(n, index, _)| (n, index));
    Ok(read.into_iter().map(|(_, _, record)| record).collect())
}

/// Whether there is a row of the log behind `row`, of which one of these places may
/// hold what is left: by the TAGs behind the places, and of the first block of
/// each chunk. No row is written before the one before it is durable, so behind one
/// that a cut took there is none; and rows of an earlier use of a chunk have lower
/// numbers.
fn has_row_behind<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    places: &[Ppa],
    row: u64,
) -> Result<bool, BatchError> {
    let step = geometry.row_blocks() as usize;
    let mut blocks: Vec<Ppa> = Vec::new();
    for unit in geometry.pus_channels_first() {
        for number in 0..geometry.chunks() {
            let chunk = geometry.chunk_of(unit, number);
            let start = geometry.chunk_start(chunk).0;
            let is_there = runner.device.chunk(chunk).programmed > 0;
            blocks.extend(is_there.then_some(Ppa(start)));
        }
    }
    for at in places {
        let chunk = geometry.chunk_index(*at);
        let start = geometry.chunk_start(chunk).0;
        let rest = geometry.block(*at)..runner.device.chunk(chunk).programmed;
        blocks.extend(rest.step_by(step).map(|block| Ppa(start + u64::from(block))));
    }
    let mut any = false;
    runner.read(&blocks, Content::Tags, |_, block| {
        let tag = Tag::load(&block.tag[..TAG_BYTES]);
        any |= is_read(block.status) && is_log(tag) && tag.seq > row;
        Ok(())
    })?;
    Ok(any)
}

/// Reads the log from `start` to its end. Its first row must be there. Behind
/// the places that a row names come those of its detour. Gives each record on as
/// it comes. `doubted`: a newer checkpoint record was damaged, which may have named
/// other places for the row behind the last.
pub(super) fn walk<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    start: Start,
    detours: &[Detour],
    doubted: bool,
    mut each: impl FnMut(Record),
) -> Result<Trail, BatchError> {
    let at = start.at.ppa().ok_or(BatchError::Checkpoint)?;
    let mut trail = Trail { rows: Vec::new(), links: [Location::NONE; MAX_LINKS], end: None };
    match look(runner, geometry, &[at], Wanted { row: start.row, back: None })?.pop() {
        Some(Found::Row(row)) => trail.add(row, &mut each),
        Some(Found::Damaged(Damage { why, .. })) => return Err(BatchError::Log { at, why }),
        _ => return Err(BatchError::Log { at, why: Damaged::Foreign }),
    }
    loop {
        let last = trail.last();
        let wanted = Wanted { row: last.row + 1, back: Some(Location::at(last.at, true)) };
        let more = detours.iter().filter(|detour| detour.row == last.row);
        let links = trail.links.iter().chain(more.flat_map(|detour| &detour.links));
        let links: Vec<Ppa> = links.filter_map(|link| link.ppa()).collect();
        let (mut next, mut damage) = (None, None);
        for found in look(runner, geometry, &links, wanted)? {
            match found {
                Found::Row(row) => next = Some(row),
                Found::Damaged(other) => damage = heavier(damage, other),
                Found::Nothing => {}
            }
        }
        match (next, damage) {
            (Some(row), _) => trail.add(row, &mut each),
            (None, Some(damage)) if was_a_row(runner, geometry, &links, wanted.row, damage)? => {
                return Err(BatchError::Log { at: damage.at, why: damage.why });
            }
            (None, _) if doubted && has_row_behind(runner, geometry, &links, last.row)? => {
                return Err(BatchError::Checkpoint);
            }
            (None, _) => return Ok(trail),
        }
    }
}

/// Of what was found at several places that for which most speaks.
fn heavier(damage: Option<Damage>, other: Damage) -> Option<Damage> {
    damage.filter(|damage| damage.weight() > other.weight()).or(Some(other))
}

/// Whether a row was there of which this is left, so that the log is damaged. What
/// can be read and says nothing of being that row may be another thing: only a row
/// behind it says that there was one.
fn was_a_row<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    places: &[Ppa],
    row: u64,
    damage: Damage,
) -> Result<bool, BatchError> {
    if damage.weight() > 0 {
        return Ok(true);
    }
    has_row_behind(runner, geometry, places, row)
}
