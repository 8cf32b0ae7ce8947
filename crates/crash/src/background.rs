//! What a kernel does by itself: pages are written back, metadata committed, at any time.

use std::collections::BTreeSet;

use files::{Disk, Fate, Files, FilesError, Inode, Journal, Memory, Operation, Recorder};
use files::{SECTORS, WriteBack};
use port::random::Random;

use crate::choice::Variant;
use crate::event::Event;

/// Does what a kernel may do; that there is no room for it is no error.
fn write_back(files: &mut Files<Recorder>, what: WriteBack) -> Result<(), FilesError> {
    match files.write_back(what) {
        Err(FilesError::NoRoom { .. }) => Ok(()),
        done => done,
    }
}

/// One thing by chance.
pub(crate) fn anything(files: &mut Files<Recorder>, random: &mut Random) -> Result<(), FilesError> {
    let dirty: Vec<(Inode, u32)> = files.dirty().collect();
    let way = random.below(10);
    if dirty.is_empty() || way < 3 {
        let what = if way == 0 { WriteBack::Checkpoint } else { WriteBack::Commit };
        return write_back(files, what);
    }
    let (inode, page) = dirty[random.below(dirty.len() as u64) as usize];
    let (first, count) = match random.below(4) {
        0 => (page, 1),
        1 => (page, 1 + random.below(16) as u32),
        2 => (0, page + 1),
        _ => (0, u32::MAX),
    };
    let what = match files.options().journal {
        Journal::Writeback if way < 6 => WriteBack::Allocate { inode, first, count },
        _ => WriteBack::Pages { inode, first, count },
    };
    write_back(files, what)
}

fn all_of(files: &mut Files<Recorder>, inode: Inode) -> Result<(), FilesError> {
    write_back(files, WriteBack::Pages { inode, first: 0, count: u32::MAX })
}

fn one_page(files: &mut Files<Recorder>, (inode, first): (Inode, u32)) -> Result<(), FilesError> {
    write_back(files, WriteBack::Pages { inode, first, count: 1 })
}

/// Of the pages that are dirty the one that was written last, or so many before it.
fn last_page(files: &Files<Recorder>, events: &[Event], before: u64) -> Option<(Inode, u32)> {
    let dirty: BTreeSet<(Inode, u32)> = files.dirty().collect();
    let mut seen = BTreeSet::new();
    for event in events.iter().rev() {
        let Event::Operation(Operation::Write { inode, offset, data }) = event else { continue };
        let end = (offset + data.len() as u64).div_ceil(4096);
        for page in (offset / 4096..end).rev() {
            let page = (*inode, page as u32);
            if dirty.contains(&page) && seen.insert(page) && seen.len() as u64 > before {
                return Some(page);
            }
        }
        if seen.len() == dirty.len() {
            break;
        }
    }
    None
}

/// Brings about a planned variant: what is written back before the cut. The cut then leaves all
/// that was written, but of the last `.1` writes only the first `.2` sectors.
pub(crate) fn plan(
    files: &mut Files<Recorder>,
    variant: Variant,
    events: &[Event],
    tear: bool,
) -> Result<(usize, usize), FilesError> {
    let mut dirty: Vec<Inode> = files.dirty().map(|(inode, _)| inode).collect();
    dirty.dedup();
    let nth = |n: u64| dirty.get(n as usize % dirty.len().max(1)).copied();
    match variant {
        Variant::Nothing | Variant::Random(_) => return Ok((usize::MAX, 0)),
        Variant::All => dirty.iter().try_for_each(|&inode| all_of(files, inode))?,
        Variant::NoData if files.options().journal == Journal::Writeback => {
            for &inode in &dirty {
                write_back(files, WriteBack::Allocate { inode, first: 0, count: u32::MAX })?;
            }
        }
        Variant::NoData => {}
        Variant::OnlyData => {
            dirty.iter().try_for_each(|&inode| all_of(files, inode))?;
            return Ok((0, 0));
        }
        Variant::OneFile(n) => nth(n).into_iter().try_for_each(|inode| all_of(files, inode))?,
        Variant::AllButOne(n) => {
            let but = nth(n);
            let others = dirty.iter().filter(|&&inode| Some(inode) != but);
            others.into_iter().try_for_each(|&inode| all_of(files, inode))?;
        }
        Variant::OnlyPage(n) => {
            let page = last_page(files, events, n);
            page.into_iter().try_for_each(|page| one_page(files, page))?;
        }
        Variant::AllButPage(n) => {
            let but = last_page(files, events, n);
            let pages: Vec<(Inode, u32)> =
                files.dirty().filter(|&page| Some(page) != but).collect();
            pages.into_iter().try_for_each(|page| one_page(files, page))?;
        }
        Variant::PartOfLast(n) => return part_of_last(files, &dirty, n, events, tear),
    }
    write_back(files, WriteBack::Commit)?;
    Ok((0, 0))
}

/// All but a part of the last write that is dirty.
fn part_of_last(
    files: &mut Files<Recorder>,
    dirty: &[Inode],
    n: u64,
    events: &[Event],
    tear: bool,
) -> Result<(usize, usize), FilesError> {
    let last = events.iter().rev().find_map(|event| match event {
        Event::Operation(Operation::Write { inode, offset, data }) if !data.is_empty() => {
            let (first, last) = (offset / 4096, (offset + data.len() as u64 - 1) / 4096);
            dirty.contains(inode).then_some((*inode, first as u32, (last - first) as u32 + 1))
        }
        _ => None,
    });
    for &inode in dirty {
        match last {
            Some((of, first, count)) if of == inode => {
                write_back(files, WriteBack::Pages { inode, first: 0, count: first })?;
                let (first, count) = (first.saturating_add(count), u32::MAX);
                write_back(files, WriteBack::Pages { inode, first, count })?;
            }
            _ => all_of(files, inode)?,
        }
    }
    let Some((inode, first, count)) = last else {
        write_back(files, WriteBack::Commit)?;
        return Ok((0, 0));
    };
    // None, a quarter, half or three quarters of its pages.
    let whole = (u64::from(count) * n / 4) as u32;
    write_back(files, WriteBack::Pages { inode, first, count: whole })?;
    if !tear {
        write_back(files, WriteBack::Commit)?;
        return Ok((0, 0));
    }
    // Where the blocks are there already nothing holds the page back; where they are new the
    // commit would wait for all of the page.
    write_back(files, WriteBack::Commit)?;
    let before = files.disk().unflushed().len();
    write_back(files, WriteBack::Pages { inode, first: first + whole, count: 1 })?;
    Ok((files.disk().unflushed().len() - before, 1 + 2 * n as usize % SECTORS))
}

/// What a cut leaves of the last `writes` writes only the first sectors of.
pub(crate) fn cut_planned(disk: &Recorder, (writes, sectors): (usize, usize)) -> Memory {
    let from = disk.unflushed().len().saturating_sub(writes);
    let mask = ((1u16 << sectors) - 1) as u8;
    disk.cut(|n| match (n < from, mask) {
        (true, _) => Fate::Kept,
        (false, 0) => Fate::Lost,
        (false, mask) => Fate::Torn(mask),
    })
}

/// What a cut leaves by chance of what was on its way.
pub(crate) fn cut_anyhow(disk: &Recorder, random: &mut Random, tear: bool) -> Memory {
    let writes = disk.unflushed().len() as u64;
    let (way, point) = (random.below(6), random.below(writes + 1) as usize);
    let torn = tear && random.below(2) == 0;
    let mask = |random: &mut Random| match random.below(3) {
        0 => random.bits() as u8,
        _ => (1u16 << random.below(SECTORS as u64)) as u8 - 1,
    };
    disk.cut(|n| match way {
        0 => Fate::Lost,
        1 => Fate::Kept,
        2 | 3 if n == point && torn => Fate::Torn(mask(random)),
        2 if n < point => Fate::Kept,
        2 => Fate::Lost,
        3 if n == point => Fate::Lost,
        3 => Fate::Kept,
        // Several at once may be half there.
        4 if torn => Fate::Torn(mask(random)),
        _ if torn && random.below(4) == 0 => Fate::Torn(mask(random)),
        _ if random.below(2) == 0 => Fate::Kept,
        _ => Fate::Lost,
    })
}

/// Fills a disk with what others left on it, so that what shows it is seen.
pub(crate) fn used_disk(blocks: u64) -> Memory {
    let mut disk = Memory::new(blocks);
    let mut bytes = [0; files::BLOCK];
    for (word, n) in bytes.chunks_exact_mut(8).zip(1..) {
        word.copy_from_slice(&port::random::mix(n).to_le_bytes());
    }
    let page = std::sync::Arc::new(bytes);
    (0..disk.blocks()).for_each(|at| disk.set(at, Some(page.clone())));
    disk
}
