//! The drive's text, changed, and cut at any moment of it.

use super::{Rng, header};
use crate::disk::Disk;
use crate::text::MAX_CHANGED;
use crate::{DriveFile, FileError};

fn text(number: u64) -> String {
    format!("number = {number}\nrest = \"{}\"", "x".repeat((number * 977 % 9000) as usize))
}

/// Cut anywhere in changes, killed or crashed: the text is the old one or the new one, and
/// the new one from when a change has returned.
#[test]
fn a_cut_gives_the_old_text_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..600 {
        let (mut rng, disk) = (Rng(seed), Disk::default());
        let drive = DriveFile::create_on(disk.storage(), &header(8), false).unwrap();
        drive.close().unwrap();
        let (mut number, mut known) = (0, header(8).drive);
        // Cut again and again, also as it is opened.
        for _ in 0..4 {
            let opened = DriveFile::open_on(disk.storage(), false, false).unwrap();
            assert_eq!(opened.medium.header().drive, known, "seed {seed}");
            let mut changing = opened.medium.text().unwrap();
            disk.set_fuse(Some(rng.below(12)));
            let mut next = None;
            for _ in 0..5 {
                number += 1;
                match changing.change(&text(number)) {
                    Ok(()) => known = text(number),
                    Err(_) => {
                        next = Some(text(number));
                        break;
                    }
                }
            }
            drop((changing, opened));
            match rng.one_in(2) {
                true => disk.kill(),
                false => disk.crash(&mut rng),
            }
            let found = DriveFile::open_on(disk.storage(), true, false).unwrap();
            let found = found.medium.header().drive.clone();
            if Some(&found) == next.as_ref() {
                (new, known) = (new + 1, found);
            } else {
                old += u32::from(next.is_some());
                assert_eq!(found, known, "seed {seed}");
            }
        }
    }
    assert!(old > 100 && new > 100, "{old} old, {new} new");
}

#[test]
fn a_change_without_room_leaves_it_as_it_was() {
    let disk = Disk::default();
    let mut drive = DriveFile::create_on(disk.storage(), &header(8), false).unwrap();
    let mut changing = drive.text().unwrap();
    disk.fail_write(Some(0));
    assert!(changing.change("lost").unwrap_err().is_full());
    assert_eq!(flash::Medium::barrier(&mut drive), flash::Moved::Done);
    let long = "x".repeat(MAX_CHANGED + 1);
    assert!(matches!(changing.change(&long), Err(FileError::Range { .. })));
    changing.change(&long[1..]).unwrap();
    drop(changing);
    drive.close().unwrap();
    let opened = DriveFile::open_on(disk.storage(), false, false).unwrap();
    assert_eq!(opened.medium.header().drive, long[1..]);
}

/// A place that is damaged is told by its sum; the other one holds, or the drive is refused.
#[test]
fn damage_is_found() {
    let disk = Disk::default();
    let drive = DriveFile::create_on(disk.storage(), &header(8), false).unwrap();
    let mut changing = drive.text().unwrap();
    changing.change("first").unwrap();
    changing.change("second").unwrap();
    drop((changing, drive));
    let open = |image: Vec<u8>| {
        let opened = DriveFile::open_on(Disk::with(image).storage(), true, false);
        opened.map(|opened| opened.medium.header().drive.clone())
    };
    let good = disk.killed();
    assert_eq!(open(good.clone()).unwrap(), "second");
    let (first, second) = (224 << 10, 192 << 10);
    for at in [0, 4, 8, 16] {
        let mut image = good.clone();
        image[first + at] ^= 1;
        assert_eq!(open(image).unwrap(), "second");
        // The first does not stand for the second, which was complete.
        let mut image = good.clone();
        image[second + at] ^= 1;
        assert!(open(image).unwrap_err().to_string().contains("is lost"));
    }
}

/// A change that is refused where it is to be durable is none, whenever the drive is opened.
#[test]
fn a_change_that_cannot_be_durable_is_none() {
    for before in 0..3 {
        let disk = Disk::default();
        let drive = DriveFile::create_on(disk.storage(), &header(8), false).unwrap();
        let mut changing = drive.text().unwrap();
        (0..before).for_each(|n| changing.change(&text(n)).unwrap());
        let known = if before > 0 { text(before - 1) } else { header(8).drive };
        disk.refuse_durable(true);
        assert!(changing.change("refused").is_err());
        let image = Disk::with(disk.killed());
        let opened = DriveFile::open_on(image.storage(), true, false).unwrap();
        assert_eq!(opened.medium.header().drive, known);
    }
}

/// A file of before claims that has another text is read, and becomes one of now.
#[test]
fn the_version_before_keeps_its_text() {
    let disk = Disk::default();
    let drive = DriveFile::create_on(disk.storage(), &header(8), false).unwrap();
    let mut changing = drive.text().unwrap();
    changing.change("other").unwrap();
    drop(changing);
    drive.close().unwrap();
    let mut image = disk.killed();
    let named = crate::header::named(&image[..header(8).encode().len()], 4);
    image[8..16].copy_from_slice(&named);
    let disk = Disk::with(image);
    for (read_only, version) in [(true, 4), (false, 6)] {
        let opened = DriveFile::open_on(disk.storage(), read_only, false).unwrap();
        assert_eq!((&opened.medium.header().drive[..], disk.killed()[8]), ("other", version));
        opened.medium.text().unwrap().change("other").unwrap_or_else(|_| assert!(read_only));
        opened.medium.close().unwrap();
    }
}

#[test]
fn an_older_text_that_cannot_be_read_is_not_missed() {
    for (place, expected) in [(192 << 10, Some(text(3))), (224 << 10, None)] {
        let disk = Disk::default();
        let drive = DriveFile::create_on(disk.storage(), &header(8), false).unwrap();
        let mut changing = drive.text().unwrap();
        (1..=3).for_each(|number| changing.change(&text(number)).unwrap());
        drop(changing);
        drive.close().unwrap();
        disk.spoil(place);
        let opened = DriveFile::open_on(disk.storage(), true, false);
        let found = opened.ok().map(|opened| opened.medium.header().drive.clone());
        assert_eq!(found, expected, "{place}");
    }
}
