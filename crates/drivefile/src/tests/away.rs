//! A disk that is away for a while, and one with a damaged page: nothing is taken for lost
//! but what lies in that.

use flash::{Medium, Moved, Ppa};

use super::{Block, chunk, header, program, reads_as};
use crate::disk::Disk;
use crate::layout::Layout;
use crate::{DriveFile, FileError};

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
    disk.set_away(true);
    assert_eq!(reads_as(&mut drive, start, blocks(0..1)[0]), None);
    disk.set_away(false);
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
    disk.set_away(true);
    let other = drive.header().geometry.chunk_start(4);
    assert_eq!(program(&mut drive, other, &blocks(8..10)), Moved::Failed);
    disk.set_away(false);
    assert!(drive.error().is_some_and(|e| e.to_string().contains("writing a block")));
    assert_eq!(readable(&mut drive, start), [true; 8]);
}

#[test]
fn while_its_disk_is_away_a_drive_is_not_opened() {
    let disk = Disk::default();
    let (mut drive, start) = full(&disk);
    let other = drive.header().geometry.chunk_start(4);
    assert_eq!(program(&mut drive, other, &blocks(8..10)), Moved::Done);
    drop(drive);
    disk.set_away(true);
    assert!(DriveFile::open_on(disk.storage(), false, false).is_err());
    disk.set_away(false);
    let mut again = DriveFile::open_on(disk.storage(), false, false).unwrap().medium;
    assert_eq!(readable(&mut again, start), [true; 8]);
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
