//! The log as recovery reads it: from a row to the last, along the links.
//!
//! Of the places that a row names for the next one, the last in their order that
//! holds a row with the next number and the right back link is the next row: the
//! others before it failed, though some may be readable. The log ends where no
//! place holds one.

use device::{Content, OpenChannel};
use flash::{Geometry, Ppa};
use port::Status;

use super::config::BatchError;
use super::is_read;
use super::location::Location;
use super::record::{Entry, Header, MAX_LINKS, parse};
use super::runner::Runner;
use super::slot::{Detour, Start};

/// A record and its entries.
pub(super) type Record = (Header, Vec<Entry>);

/// A row of the log.
pub(super) struct Row {
    pub at: Ppa,
    pub row: u64,
    pub links: [Location; MAX_LINKS],
    pub records: Vec<Record>,
}

/// What is at a place of the log.
enum Found {
    Row(Row),
    /// Nothing, or no row of the log that fits.
    Nothing,
    /// Something that was written and cannot be read.
    Damaged(Status),
}

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
    let mut read: Vec<Result<Option<Record>, Status>> = Vec::new();
    read.resize_with(blocks.len(), || Ok(None));
    runner.read(&blocks, Content::Whole, |i, block| {
        read[i] = if is_read(block.status) {
            Ok(parse(block.data, geometry).filter(|(header, _)| fits(header, wanted, i % row)))
        } else {
            Err(block.status)
        };
        Ok(())
    })?;
    let mut found = Vec::with_capacity(places.len());
    for (at, read) in places.iter().zip(read.chunks_mut(row)) {
        found.push(row_of(runner, geometry, *at, wanted.row, read));
    }
    Ok(found)
}

/// What the blocks of a row come to.
fn row_of<D: OpenChannel>(
    runner: &Runner<D>,
    geometry: &Geometry,
    at: Ppa,
    row: u64,
    read: &mut [Result<Option<Record>, Status>],
) -> Found {
    let last = Ppa(at.0 + read.len() as u64 - 1);
    let damaged = |status| {
        // A row that is not all there was never durable.
        if was_written(runner, geometry, last) { Found::Damaged(status) } else { Found::Nothing }
    };
    let count = match &read[0] {
        Ok(Some((header, _))) => header.records as usize,
        Ok(None) => return Found::Nothing,
        Err(status) => return damaged(*status),
    };
    let mut records = Vec::with_capacity(count);
    for i in 0..count {
        match read.get_mut(i).map(|read| std::mem::replace(read, Ok(None))) {
            Some(Ok(Some(record))) => records.push(record),
            Some(Ok(None)) | None => return Found::Nothing,
            Some(Err(status)) => return damaged(status),
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
    block < chunk.programmed && chunk.failed_of(block, 1) == 0
}

/// Reads the log from `start` to its end. Its first row must be there. Behind
/// the places that a row names come those of its detour.
pub(super) fn walk<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    start: Start,
    detours: &[Detour],
) -> Result<Vec<Row>, BatchError> {
    let at = start.at.ppa().ok_or(BatchError::Checkpoint)?;
    let mut rows: Vec<Row> = Vec::new();
    match look(runner, geometry, &[at], Wanted { row: start.row, back: None })?.pop() {
        Some(Found::Row(row)) => rows.push(row),
        Some(Found::Damaged(status)) => return Err(BatchError::Log { at, status }),
        _ => return Err(BatchError::Log { at, status: Status::SUCCESS }),
    }
    loop {
        let last = rows.last().expect("it has a first");
        let wanted = Wanted { row: last.row + 1, back: Some(Location::at(last.at, true)) };
        let more = detours.iter().filter(|detour| detour.row == last.row);
        let links = last.links.iter().chain(more.flat_map(|detour| &detour.links));
        let links: Vec<Ppa> = links.filter_map(|link| link.ppa()).collect();
        let (mut next, mut damage) = (None, None);
        let found = look(runner, geometry, &links, wanted)?;
        for (&at, found) in links.iter().zip(found) {
            match found {
                Found::Row(row) => next = Some(row),
                Found::Damaged(status) => damage = Some((at, status)),
                Found::Nothing => {}
            }
        }
        match (next, damage) {
            (Some(row), _) => rows.push(row),
            (None, Some((at, status))) => {
                // Over a cache a cut may tear the last row, which was not
                // durable. The row behind it, if there is one, says that it was.
                let behind = Wanted { row: last.row + 2, back: None };
                let found = look(runner, geometry, &links, behind)?;
                let torn = !found.iter().any(|found| matches!(found, Found::Row(_)));
                if runner.device.is_cached() && torn {
                    return Ok(rows);
                }
                return Err(BatchError::Log { at, status });
            }
            (None, None) => return Ok(rows),
        }
    }
}
