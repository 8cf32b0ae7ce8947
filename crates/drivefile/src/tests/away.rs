//! A disk that is away for a while, and one with a damaged page: nothing is taken for lost
//! but what lies in that.

use std::io;
use std::ops::Range;

use flash::{Medium, Moved, Ppa, RamMedium};

use super::{Block, chunk, header, program, reads_as};
use crate::away::read_again;
use crate::disk::Disk;
use crate::file_io::is_unreadable;
use crate::layout::Layout;
use crate::{DriveFile, FileError, load, save};

const FROM_NOW: Range<u64> = 0..u64::MAX;
const NEVER: Range<u64> = 0..0;

/// A drive of which a chunk is full and durable, and where it begins.
fn full(disk: &Disk) -> (DriveFile, Ppa) {
    let header = header(4096);
    let mut drive = DriveFile::create_on(disk.storage(), &header, false).unwrap();
    let start = header.geometry.chunk_start(0);
    assert_eq!(program(&mut drive, start, &blocks(0..8)), Moved::Done);
    drive.describe(0, &chunk(0, 8, 8));
    assert_eq!(drive.barrier(), Moved::Done);
    (drive, start)
}

fn blocks(numbers: std::ops::Range<u64>) -> Vec<Block> {
    numbers.map(|number| Block { number, whole: true }).collect()
}

/// Which of the full chunk's blocks can be read.
fn readable(drive: &mut DriveFile, start: Ppa) -> Vec<bool> {
    let at = |n: u64| Ppa(start.0 + n);
    let reads = |block: Block| reads_as(drive, at(block.number), block) == Some(true);
    blocks(0..8).into_iter().map(reads).collect()
}

/// Who was told that a block is lost would write that down, or erase what it has.
#[test]
fn while_its_disk_is_away_a_drive_does_not_change() {
    let disk = Disk::default();
    let (mut drive, start) = full(&disk);
    disk.set_away(FROM_NOW);
    assert_eq!(reads_as(&mut drive, start, blocks(0..1)[0]), None);
    disk.set_away(NEVER);
    assert!(matches!(drive.error(), Some(FileError::Away { .. })), "{:?}", drive.error());
    assert!(drive.error().unwrap().to_string().contains("away"), "{:?}", drive.error());
    let other = drive.header().geometry.chunk_start(4);
    assert_eq!(program(&mut drive, other, &blocks(8..10)), Moved::Failed);
    assert_eq!(drive.reset(start), Moved::Failed);
    assert_eq!(drive.barrier(), Moved::Failed);
    assert_eq!(readable(&mut drive, start), [true; 8]);
    drop(drive);
    let mut again = DriveFile::open_on(disk.storage(), false, false).unwrap().medium;
    assert_eq!(readable(&mut again, start), [true; 8]);
    assert_eq!(again.reset(start), Moved::Done);
}

#[test]
fn a_write_to_a_disk_that_is_away_is_no_damage_of_its_blocks() {
    let disk = Disk::default();
    let (mut drive, start) = full(&disk);
    disk.set_away(FROM_NOW);
    let other = drive.header().geometry.chunk_start(4);
    assert_eq!(program(&mut drive, other, &blocks(8..10)), Moved::Failed);
    disk.set_away(NEVER);
    assert!(drive.error().is_some_and(|e| e.to_string().contains("writing a block")));
    assert_eq!(readable(&mut drive, start), [true; 8]);
}

/// Who is told that a program failed gives the chunk up.
#[test]
fn a_disk_that_is_away_for_a_moment_is_no_damage_of_a_write() {
    for lasts in 1..12 {
        let disk = Disk::default();
        let (mut drive, _) = full(&disk);
        disk.set_away(0..lasts);
        let other = drive.header().geometry.chunk_start(4);
        assert_eq!(program(&mut drive, other, &blocks(8..10)), Moved::Failed);
        assert!(drive.error().is_some(), "away for {lasts}");
    }
}

/// Whenever it goes, for however long: who was told that blocks are lost which were not synced
/// would cut them off.
#[test]
fn while_its_disk_is_away_a_drive_is_not_opened() {
    let disk = Disk::default();
    let (mut drive, start) = full(&disk);
    let other = drive.header().geometry.chunk_start(4);
    assert_eq!(program(&mut drive, other, &blocks(8..16)), Moved::Done);
    drive.describe(4, &chunk(0, 8, 8));
    drop(drive);
    let image = disk.killed();
    for (goes, lasts) in (0..60).flat_map(|goes| [1, 9, 40, 999].map(|lasts| (goes, lasts))) {
        let disk = Disk::with(image.clone());
        disk.set_away(goes..goes + lasts);
        drop(DriveFile::open_on(disk.storage(), false, false));
        disk.kill();
        disk.set_away(NEVER);
        let mut again = DriveFile::open_on(disk.storage(), false, false).unwrap();
        let at = format!("away from {goes} on for {lasts}");
        assert_eq!((again.cut_chunks, again.chunks[4].programmed), (0, 8), "{at}");
        assert_eq!(readable(&mut again.medium, start), [true; 8], "{at}");
        assert_eq!(reads_as(&mut again.medium, other, blocks(8..9)[0]), Some(true), "{at}");
    }
}

#[test]
fn a_damaged_page_loses_its_block_and_stops_nothing() {
    let disk = Disk::default();
    let (mut drive, start) = full(&disk);
    let layout = Layout::new(&drive.header().geometry, 4096);
    disk.spoil(layout.data(Ppa(start.0 + 3)) as usize);
    let mut expected = [true; 8];
    expected[3] = false;
    assert_eq!(readable(&mut drive, start), expected);
    assert!(drive.error().is_none());
    assert_eq!(drive.reset(start), Moved::Done);
    assert_eq!(drive.barrier(), Moved::Done);
}

/// Of a file of this many MiB a page is read of which those around it, so many bytes in each
/// direction, are damaged, too.
fn read_amid_damage(mib: usize, around: usize) -> io::Result<()> {
    let disk = Disk::with(vec![1; mib << 20]);
    let at = mib << 19;
    for page in (at - around..=at + around).step_by(4096) {
        disk.spoil(page);
    }
    read_again(&*disk.storage(), at as u64, &mut [0; 4096])
}

#[test]
fn damage_of_some_mib_is_damage() {
    for around in [0, 4096, 2 << 20] {
        let read = read_amid_damage(80, around);
        assert!(read.as_ref().is_err_and(is_unreadable), "{around}: {read:?}");
    }
    assert!(!read_amid_damage(80, 16 << 20).is_err_and(|e| is_unreadable(&e)));
    // What is next to it in a small file is all that there is.
    assert!(!read_amid_damage(4, 1 << 20).is_err_and(|e| is_unreadable(&e)));
}

/// Zeros may be a hole, which is read without the disk.
#[test]
fn zeros_prove_no_disk() {
    let mut image = vec![0; 80 << 20];
    image[..4096].fill(1);
    let disk = Disk::with(image);
    disk.spoil(0);
    disk.spoil(40 << 20);
    let read = read_again(&*disk.storage(), 40 << 20, &mut [0; 4096]);
    assert!(!read.as_ref().is_err_and(is_unreadable), "{read:?}");
}

/// Whoever copies it would take what is not read for lost.
#[test]
fn of_a_drive_whose_disk_is_away_there_is_no_copy() {
    let disk = Disk::default();
    let (drive, start) = full(&disk);
    let header = drive.header().clone();
    drop(drive);
    let mut opened = DriveFile::open_on(disk.storage(), false, false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.ssd");
    disk.set_away(FROM_NOW);
    let mut memory = RamMedium::new(&header.geometry, header.kept).unwrap();
    let loaded = load(&mut opened, &mut memory);
    assert!(matches!(loaded, Err(FileError::Away { .. })), "{loaded:?}");
    let is_sound = |drive: &DriveFile| drive.error().cloned().map_or(Ok(()), Err);
    let saved = save(&path, &header, &opened.chunks, &mut opened.medium, is_sound);
    assert!(matches!(saved, Err(FileError::Away { .. })), "{saved:?}");
    assert!(!path.exists());
    disk.set_away(NEVER);
    assert_eq!(readable(&mut opened.medium, start), [true; 8]);
}
