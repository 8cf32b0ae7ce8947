//! Damaged, cut, and foreign files; a full disk. Always an error, never wrong
//! data, never a panic.

use std::io::ErrorKind;

use flash::{Chunk, Medium, Moved, Ppa};
use proptest::prelude::*;

use super::{Block, chunk, header, program, reads_as};
use crate::descriptor::DESCRIPTOR_BYTES;
use crate::disk::Disk;
use crate::layout::{Layout, STATE_PAGES, TABLE_OFFSET};
use crate::{DriveFile, FileError};

/// A drive, and what every block has. Chunk 0 was erased once and is full, one
/// is in part written, one was erased and is empty.
fn drive(kept: u32, close: bool) -> (Vec<u8>, Vec<Chunk>, Vec<(Ppa, Block)>) {
    let (header, disk) = (header(kept), Disk::default());
    let g = header.geometry;
    let mut drive = DriveFile::create_on(disk.storage(), &header, false).unwrap();
    let (mut expected, mut next) = (Vec::new(), 1);
    let mut fill = |drive: &mut DriveFile, index: usize, wear, blocks: u32| {
        let mut written = Vec::new();
        for block in (0..blocks).step_by(2) {
            let whole = kept == 4096 || block == 2;
            let pair = [Block { number: next, whole }, Block { number: next + 1, whole }];
            let at = Ppa(g.chunk_start(index).0 + u64::from(block));
            assert_eq!(program(drive, at, &pair), Moved::Done);
            drive.describe(index, &chunk(wear, block + 2, 8));
            written.extend([(at, pair[0]), (Ppa(at.0 + 1), pair[1])]);
            next += 2;
        }
        written
    };
    for index in [0, 5] {
        fill(&mut drive, index, 0, 8);
        assert_eq!(drive.reset(g.chunk_start(index)), Moved::Done);
        drive.describe(index, &chunk(1, 0, 8));
    }
    expected.extend(fill(&mut drive, 0, 1, 8));
    expected.extend(fill(&mut drive, 4, 0, 4));
    assert_eq!(drive.barrier(), Moved::Done);
    let mut chunks = vec![Chunk::default(); g.chunk_slots()];
    (chunks[0], chunks[4], chunks[5]) = (chunk(1, 8, 8), chunk(0, 4, 8), chunk(1, 0, 8));
    if close {
        drive.close().unwrap();
    }
    (disk.killed(), chunks, expected)
}

/// Opens a changed file; gives how many blocks cannot be read, or nothing
/// where it does not open.
fn look(disk: &Disk, chunks: &[Chunk], expected: &[(Ppa, Block)]) -> Option<usize> {
    let mut opened = DriveFile::open_on(disk.storage(), true, false).ok()?;
    assert_eq!(opened.chunks, chunks, "what was synced is told as it was");
    let mut lost = 0;
    for &(at, block) in expected {
        match reads_as(&mut opened.medium, at, block) {
            Some(right) => assert!(right, "wrong data of {at:?}"),
            None => lost += 1,
        }
    }
    Some(lost)
}

#[test]
fn a_changed_byte_anywhere_is_found() {
    for (kept, close) in [(8, true), (8, false), (0, true), (4096, false)] {
        let (image, chunks, expected) = drive(kept, close);
        assert_eq!(look(&Disk::with(image.clone()), &chunks, &expected), Some(0));
        let layout = Layout::new(&header(kept).geometry, kept);
        let (mut refused, mut lost) = (0, 0);
        for at in 0..image.len() {
            // Zeros between the parts have no meaning; data are tried in places.
            let unused =
                image[at] == 0 && !(layout.entry(Ppa(0))..layout.len).contains(&(at as u64));
            if unused && at > 512 || at as u64 >= layout.data(Ppa(0)) && at % 37 != 0 {
                continue;
            }
            let mut changed = image.clone();
            changed[at] ^= 1 << (at % 8);
            match look(&Disk::with(changed), &chunks, &expected) {
                Some(blocks) => {
                    assert!(blocks <= 1, "byte {at} takes {blocks} blocks");
                    lost += blocks;
                }
                None => refused += 1,
            }
        }
        // Each byte of the header and of three descriptors; of twelve blocks,
        // each byte of the entries, and of the data some.
        assert!(refused > 64 && refused < 400, "{refused}");
        assert!(lost > 12 * 32, "{lost}");
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (image, ..) = drive(8, true);
    for len in (0..image.len()).filter(|len| len % 512 < 2 || *len < 300) {
        let disk = Disk::with(image[..len].to_vec());
        let error = DriveFile::open_on(disk.storage(), false, false).map(|_| ()).unwrap_err();
        match len {
            0 => assert!(matches!(error, FileError::Empty), "{error}"),
            1..64 => assert!(matches!(error, FileError::Foreign), "{error}"),
            _ => assert!(
                matches!(error, FileError::Length { .. } | FileError::Header { .. }),
                "{error}"
            ),
        }
    }
    let mut long = image;
    long.push(0);
    let error = DriveFile::open_on(Disk::with(long).storage(), true, false).map(|_| ());
    assert!(error.unwrap_err().to_string().contains("cut or extended"));
}

#[test]
fn a_damaged_descriptor_names_its_chunk() {
    let (mut image, ..) = drive(0, true);
    // Chunk 4 by index is the second of the second unit: the fifth in the file.
    let number = Layout::new(&header(0).geometry, 0).number(4) as u64;
    image[(TABLE_OFFSET + DESCRIPTOR_BYTES as u64 * number) as usize + 8] ^= 1;
    let error = DriveFile::open_on(Disk::with(image).storage(), true, false).map(|_| ());
    assert!(error.unwrap_err().to_string().contains("descriptor of chunk 4 "));
}

#[test]
fn one_page_of_states_is_enough() {
    let (image, chunks, expected) = drive(8, true);
    for damaged in [vec![0], vec![1], vec![0, 1]] {
        let mut image = image.clone();
        for &copy in &damaged {
            let page = STATE_PAGES[copy] as usize;
            (image[page + 9], image[page + 2048 + 9]) = (0xee, 0xee);
        }
        let found = look(&Disk::with(image), &chunks, &expected);
        assert_eq!(found, if damaged.len() == 1 { Some(0) } else { None });
    }
}

#[test]
fn older_blocks_and_those_of_others_are_refused() {
    let (image, chunks, expected) = drive(4096, true);
    let layout = Layout::new(&header(4096).geometry, 4096);
    let (to, from) = (expected[1].0, expected[10].0);
    // All of another block, with its entry: a write that went astray.
    let mut astray = image.clone();
    let data = layout.data(from) as usize;
    astray.copy_within(data..data + 4096, layout.data(to) as usize);
    let entry = layout.entry(from) as usize;
    astray.copy_within(entry..entry + 32, layout.entry(to) as usize);
    assert_eq!(look(&Disk::with(astray), &chunks, &expected), Some(1));
    // Half of the data: a torn write.
    let mut torn = image;
    let data = layout.data(from) as usize;
    torn.copy_within(data..data + 2048, layout.data(to) as usize);
    assert_eq!(look(&Disk::with(torn), &chunks, &expected), Some(1));
}

#[test]
fn a_full_disk_is_an_error_that_stays() {
    let (image, chunks, expected) = drive(4096, true);
    for room in (0..40_000).step_by(1111) {
        let disk = Disk::with(image.clone());
        let mut drive = DriveFile::open_on(disk.storage(), false, false).unwrap().medium;
        disk.set_room(Some(room));
        let at = Ppa(drive.header().geometry.chunk_start(4).0 + 4);
        let pair = [Block { number: 1000, whole: true }; 2];
        let first = program(&mut drive, at, &pair);
        drive.describe(4, &chunk(0, 6, 8));
        let second = program(&mut drive, Ppa(at.0 + 2), &pair);
        drive.describe(4, &chunk(0, 8, 8));
        let flushed = drive.barrier();
        if room < 16384 {
            assert_eq!(second, Moved::Failed);
        }
        let Some(error) = drive.error().cloned() else {
            assert_eq!((first, second, flushed), (Moved::Done, Moved::Done, Moved::Done));
            continue;
        };
        assert!(matches!(error, FileError::System { kind: ErrorKind::StorageFull, .. }), "{error}");
        assert!(error.to_string().contains("make room"), "{error}");
        // It stays, reads go on, and nothing that was there is lost.
        assert_eq!(flushed, Moved::Failed);
        disk.set_room(None);
        assert_eq!(drive.reset(at), Moved::Failed);
        assert!(expected.iter().all(|&(at, block)| reads_as(&mut drive, at, block) == Some(true)));
        assert!(drive.close().is_err());
        let again = DriveFile::open_on(Disk::with(disk.killed()).storage(), true, false).unwrap();
        assert!(again.chunks[4].programmed >= chunks[4].programmed && !again.clean);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_file_makes_it_panic(
        kept in prop::sample::select(vec![8u32, 4096]), close: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        let (mut image, _, expected) = drive(kept, close);
        let used: Vec<usize> = (0..image.len()).filter(|&at| image[at] != 0).collect();
        for (at, byte) in changes {
            // The checksum of the header is spared in half of the cases by chance.
            image[used[at.index(used.len())]] = byte;
        }
        let Ok(mut opened) = DriveFile::open_on(Disk::with(image).storage(), false, false) else {
            return Ok(());
        };
        for (at, block) in expected {
            prop_assert_ne!(reads_as(&mut opened.medium, at, block), Some(false));
        }
    }
}
