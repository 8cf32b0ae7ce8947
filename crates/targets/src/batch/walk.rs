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

/// Looks at a place of the log.
fn look<D: OpenChannel>(
    runner: &mut Runner<D>,
    geometry: &Geometry,
    at: Ppa,
    wanted: Wanted,
) -> Result<Found, BatchError> {
    let mut records = Vec::new();
    let mut damaged = None;
    let count = {
        let mut first = None;
        runner.read(&[at], Content::Whole, |_, block| {
            if is_read(block.status) {
                first = parse(block.data, geometry).filter(|(header, _)| fits(header, wanted, 0));
            } else {
                damaged = Some(block.status);
            }
            Ok(())
        })?;
        let Some(first) = first else {
            return Ok(match damaged.filter(|_| was_written(runner, geometry, at)) {
                Some(status) => Found::Damaged(status),
                None => Found::Nothing,
            });
        };
        let count = first.0.records as usize;
        records.push(first);
        count
    };
    if count > geometry.row_blocks() as usize {
        return Ok(Found::Nothing);
    }
    let rest: Vec<Ppa> = (1..count as u64).map(|i| Ppa(at.0 + i)).collect();
    let mut others: Vec<Option<Record>> = vec![None; rest.len()];
    runner.read(&rest, Content::Whole, |i, block| {
        if is_read(block.status) {
            others[i] =
                parse(block.data, geometry).filter(|(header, _)| fits(header, wanted, i + 1));
        } else {
            damaged = Some(block.status);
        }
        Ok(())
    })?;
    for other in others {
        match other {
            Some(record) => records.push(record),
            None => {
                return Ok(match damaged {
                    Some(status) => Found::Damaged(status),
                    None => Found::Nothing,
                });
            }
        }
    }
    let links = records[0].0.links;
    Ok(Found::Row(Row { at, row: wanted.row, links, records }))
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
    match look(runner, geometry, at, Wanted { row: start.row, back: None })? {
        Found::Row(row) => rows.push(row),
        Found::Damaged(status) => return Err(BatchError::Log { at, status }),
        Found::Nothing => return Err(BatchError::Log { at, status: Status::SUCCESS }),
    }
    loop {
        let last = rows.last().expect("it has a first");
        let wanted = Wanted { row: last.row + 1, back: Some(Location::at(last.at, true)) };
        let more = detours.iter().filter(|detour| detour.row == last.row);
        let links = last.links.iter().chain(more.flat_map(|detour| &detour.links));
        let links: Vec<Ppa> = links.filter_map(|link| link.ppa()).collect();
        let (mut next, mut damage) = (None, None);
        for at in links.into_iter().rev() {
            match look(runner, geometry, at, wanted)? {
                Found::Row(row) => {
                    next = Some(row);
                    break;
                }
                Found::Damaged(status) => damage = Some((at, status)),
                Found::Nothing => {}
            }
        }
        match (next, damage) {
            (Some(row), _) => rows.push(row),
            (None, Some((at, status))) => return Err(BatchError::Log { at, status }),
            (None, None) => return Ok(rows),
        }
    }
}
