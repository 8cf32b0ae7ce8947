//! Files on a drive in memory.

mod common;

use std::sync::{Arc, Mutex};

use common::{Image, disk};
use rocksdb_beside::files::{FileError, Files, UNIT};

fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

#[test]
fn what_is_appended_is_read_at_any_offset() {
    let image = Arc::default();
    let files = Files::create(disk(&image, 16)).unwrap();
    let file = files.make("/db/a").unwrap();
    let all = bytes(3 * UNIT as usize + 777, 1);
    for (i, part) in all.chunks(10_001).enumerate() {
        files.append(&file, part).unwrap();
        if i % 7 == 0 {
            // Partial blocks are written again by what follows.
            files.sync(&file).unwrap();
        }
    }
    files.finish(&file).unwrap();
    assert_eq!(file.size(), all.len() as u64);
    for (offset, n) in
        [(0, all.len()), (1, 1), (4095, 2), (UNIT as usize - 3, 70_000), (5000, 4096)]
    {
        let mut to = vec![0; n];
        assert_eq!(files.read(&file, offset as u64, &mut to).unwrap(), n.min(all.len() - offset));
        assert!(to == all[offset..offset + n], "{n} bytes at {offset}");
    }
    let mut to = [0; 10];
    let end = all.len() as u64;
    assert_eq!(files.read(&file, end - 4, &mut to).unwrap(), 4);
    assert_eq!(files.read(&file, end, &mut to).unwrap(), 0);
    assert_eq!(files.read(&file, u64::MAX, &mut to).unwrap(), 0);
}

#[test]
fn a_crash_leaves_what_was_synced() {
    let image = Arc::default();
    let files = Files::create(disk(&image, 16)).unwrap();
    let (kept, lost) = (files.make("kept").unwrap(), files.make("lost").unwrap());
    let data = bytes(300_000, 2);
    files.append(&lost, &data).unwrap();
    files.append(&kept, &data).unwrap();
    files.make("removed").unwrap();
    files.rename("kept", "renamed").unwrap();
    files.remove("removed").unwrap();
    files.sync(&kept).unwrap();
    // Neither is made durable.
    files.append(&kept, &data).unwrap();
    files.remove("renamed").unwrap();

    let image = Arc::new(Mutex::new(image.lock().unwrap().crash()));
    let files = Files::open(disk(&image, 16)).unwrap();
    let mut names = Vec::new();
    files.list("", |name| names.push(name.to_string()));
    assert_eq!(names, ["lost", "renamed"]);
    assert_eq!(files.find("lost").unwrap().size(), 0);
    let file = files.find("renamed").unwrap();
    assert_eq!(file.size(), data.len() as u64);
    let mut to = vec![0; data.len()];
    files.read(&file, 0, &mut to).unwrap();
    assert!(to == data);
}

#[test]
fn space_comes_back_when_a_removal_is_durable_and_nobody_reads() {
    let image = Arc::default();
    let files = Files::create(disk(&image, 4)).unwrap();
    let data = bytes(2 * UNIT as usize, 3);
    let fill = |name: &str| -> Result<(), FileError> {
        let file = files.make(name)?;
        for _ in 0..4 {
            files.append(&file, &data)?;
        }
        files.sync(&file)
    };
    fill("a").unwrap();
    assert_eq!(fill("b"), Err(FileError::Full));
    files.remove("b").unwrap();
    let open = files.find("a").unwrap();
    files.remove("a").unwrap();
    files.commit().unwrap();
    let mut to = vec![0; data.len()];
    files.read(&open, 0, &mut to).unwrap();
    assert!(to == data, "it can be read while it is open");
    assert_eq!(fill("b"), Err(FileError::Full));
    drop(open);
    files.remove("b").unwrap();
    fill("b").unwrap();
}

#[test]
fn a_damaged_directory_is_told_and_the_one_before_serves() {
    let image: Arc<Mutex<Image>> = Arc::default();
    assert!(matches!(Files::open(disk(&image, 8)), Err(FileError::NoDirectory)));
    // Sequences 1 and 2 are of making; the even ones are in the first slot.
    let files = Files::create(disk(&image, 8)).unwrap();
    for name in ["third", "fourth"] {
        files.make(name).unwrap();
        files.commit().unwrap();
    }
    let count = |image: &Arc<Mutex<Image>>| {
        Files::open(disk(image, 8)).map(|files| {
            let mut n = 0;
            files.list("", |_| n += 1);
            n
        })
    };
    assert_eq!(count(&image), Ok(2));
    image.lock().unwrap().flip(0, 40);
    assert_eq!(count(&image), Ok(1));
    image.lock().unwrap().flip((1 << 20) / 4096, 5);
    assert_eq!(count(&image), Err(FileError::NoDirectory));
}

#[test]
fn names_that_are_not_there_are_told() {
    let files = Files::create(disk(&Arc::default(), 8)).unwrap();
    let missing = Err(FileError::Missing("x".into()));
    assert_eq!(files.find("x").map(drop), missing);
    assert_eq!(files.remove("x"), missing);
    assert_eq!(files.rename("x", "y"), missing);
    assert_eq!(files.make(&"n".repeat(70_000)).map(drop), Err(FileError::Name(70_000)));
    assert!(matches!(Files::create(disk(&Arc::default(), 2)), Err(FileError::Shape)));
}
