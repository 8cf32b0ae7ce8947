//! RocksDB on a drive in memory.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{Image, disk};
use rocksdb_beside::db::{Db, Options, Reader};
use rocksdb_beside::files::Files;
use workload::Rng;

const OPTIONS: Options =
    Options { cache: 8 << 20, memtables: 512 << 10, sync: 0, background_jobs: 2 };
const MIB: u64 = 128;

fn create(options: &Options) -> (Arc<Mutex<Image>>, Db) {
    let image = Arc::default();
    let files = Files::create(disk(&image, MIB)).unwrap();
    (image, Db::open(files, options).unwrap())
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Random puts and deletes, in the database and in the model.
fn change(db: &Db, model: &mut Model, rng: &mut Rng, count: u32) {
    for i in 0..count {
        let key = rng.below(1500).to_be_bytes().to_vec();
        if rng.below(5) == 0 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![i as u8; rng.below(3000) as usize];
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn compare(db: &Db, model: &Model) {
    let mut reader = Reader::new();
    for key in 0..1500u64 {
        let key = key.to_be_bytes();
        let expected = model.get(key.as_slice()).map(Vec::as_slice);
        assert!(db.get(&mut reader, &key).unwrap() == expected, "key {key:?}");
    }
    let from = 700u64.to_be_bytes();
    let mut got = Vec::new();
    let count = db.scan(&from, 50, |key, value| got.push((key.to_vec(), value.to_vec()))).unwrap();
    let expected: Vec<_> =
        model.range(from.to_vec()..).take(50).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(count == 50 && got == expected);
    assert_eq!(db.file_error(), None);
}

#[test]
fn it_is_a_map_also_after_it_is_opened_again() {
    let (image, db) = create(&OPTIONS);
    let (mut model, mut rng) = (Model::new(), Rng::new(1, 0));
    change(&db, &mut model, &mut rng, 6000);
    compare(&db, &model);
    assert!(db.counters().flush_bytes > 1 << 20, "memtables were written");
    let files = db.close().unwrap();
    let db = Db::open(files, &OPTIONS).unwrap();
    compare(&db, &model);
    change(&db, &mut model, &mut rng, 3000);
    db.settle().unwrap();
    assert!(db.counters().compaction_written > 1 << 20, "and compacted");
    drop(db.close().unwrap());
    // Now from what is on the drive alone: all is in files that were synced.
    let files = Files::open(disk(&image, MIB)).unwrap();
    compare(&Db::open(files, &OPTIONS).unwrap(), &model);
}

#[test]
fn a_crash_loses_no_synced_write() {
    let options = Options { sync: 1, ..OPTIONS };
    let (image, db) = create(&options);
    let (mut model, mut rng) = (Model::new(), Rng::new(2, 0));
    for _ in 0..4 {
        change(&db, &mut model, &mut rng, 400);
        // Taken while RocksDB runs, flushes and compacts.
        let crashed = Arc::new(Mutex::new(image.lock().unwrap().crash()));
        let files = Files::open(disk(&crashed, MIB)).unwrap();
        compare(&Db::open(files, &options).unwrap(), &model);
    }
    assert!(db.files().disk().counters().flushes >= 1600, "each write was flushed");
}

#[test]
fn many_threads_share_it() {
    let (_, db) = create(&OPTIONS);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let db = &db;
            scope.spawn(move || {
                let (mut reader, mut rng) = (Reader::new(), Rng::new(thread, 0));
                for round in 0..600u64 {
                    let key = (thread << 32 | rng.below(100)).to_be_bytes();
                    let value = [key.as_slice(), &round.to_le_bytes(), &[7; 900]].concat();
                    db.put(&key, &value).unwrap();
                    let other = (rng.below(8) << 32 | rng.below(100)).to_be_bytes();
                    if let Some(value) = db.get(&mut reader, &other).unwrap() {
                        assert_eq!(value[..8], other);
                    }
                    assert!(db.get(&mut reader, &key).unwrap() == Some(&value[..]));
                }
            });
        }
    });
    assert_eq!(db.file_error(), None);
}

#[test]
fn a_full_drive_is_told() {
    let files = Files::create(disk(&Arc::default(), 6)).unwrap();
    let db = Db::open(files, &OPTIONS).unwrap();
    let failed = (0..10_000u64).find_map(|i| db.put(&i.to_be_bytes(), &[1; 1000]).err());
    assert!(failed.unwrap().to_string().contains("No space"));
}
