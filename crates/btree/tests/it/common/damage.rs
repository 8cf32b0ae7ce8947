//! Stores over the block interface on drives whose blocks are damaged: what was
//! flushed is there as it was, or an error.

use std::cell::Cell;
use std::rc::Rc;

use btree::{Broken, Error, Outcome, StoreError, Tree};
use port::Time;
use workload::Rng;

use super::blocks::{BLOCKS, Kind, SMALL, any, create, open, outcome, was};
use super::{
    Checked, Fuse, Heard, Map, MemoryDrive, Mix, Step, check_after_crash, contents, no_fuse,
    random_step, rest,
};

const MIX: Mix = Mix { keys: 200, longest: 6000, flush: 50, shrink: false };

/// Flips a byte in each of some blocks.
pub fn some_blocks<K: Kind>() {
    let mut noticed = 0;
    for seed in 0..30 {
        let mut rng = Rng::new(seed, 5);
        let (mut drive, map) = flushed::<K>(seed, 300, seed % 2 == 1);
        let written = drive.written();
        for _ in 0..5 {
            let block = written[rng.below(written.len() as u64) as usize];
            drive.flip(block, rng.below(4096) as usize);
        }
        let read = read_damaged::<K>(drive, &map).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        noticed += u32::from(read == Read::Noticed);
    }
    assert!(noticed > 3, "{noticed} of 30 noticed");
}

/// Flips a byte in one block, each in turn.
pub fn each_block<K: Kind>() {
    let (mut noticed, mut all) = (0, 0);
    for seed in 0..6 {
        let (drive, map) = flushed::<K>(seed, 150, seed % 2 == 1);
        for block in drive.written() {
            let mut damaged = drive.copy();
            damaged.flip(block, 100);
            if let Some(told) = refused_for::<K>(damaged.copy()) {
                assert_eq!(told, block, "seed {seed}");
            }
            let read = read_damaged::<K>(damaged, &map);
            let read = read.unwrap_or_else(|e| panic!("seed {seed}, block {block}: {e}"));
            noticed += u32::from(read == Read::Noticed);
            all += 1;
        }
    }
    assert!(all > 150 && noticed > all / 4, "{noticed} of {all} noticed");
}

/// Flips a byte in a head of the store, or of a record, each in turn, of what a
/// crash left.
pub fn each_head_after_a_crash<K: Kind>(crashes: u64) {
    let (mut noticed, mut all) = (0, 0);
    for seed in 0..crashes {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let mut rng = Rng::new(seed, 8);
        let drive = MemoryDrive::new(BLOCKS, seed, fuse.clone());
        let mut checked = Checked::new(create::<K>(drive), Map::new());
        fuse.set(200 + rng.below(1500));
        let mix = Mix { flush: 10, ..MIX };
        while checked.step(random_step(&mut rng, mix)) {}
        let unheard = checked.unheard();
        let (base, changes) = (checked.base, checked.changes);
        let drive =
            was::<MemoryDrive>(K::into_drive(checked.tree.into_store())).crash(seed, no_fuse());
        let is_record = |block: u64| {
            drive
                .peek(block)
                .is_some_and(|b| [b"SJRN", b"SLOG", b"SRDO"].iter().any(|m| b[8..12] == **m))
        };
        let heads = drive.written().into_iter().filter(|&block| block < 2 || is_record(block));
        for block in heads {
            let mut damaged = drive.copy();
            damaged.flip(block, 100);
            all += 1;
            let opened = open_damaged::<K>(damaged);
            let opened = opened.unwrap_or_else(|e| panic!("seed {seed}, block {block}: {e}"));
            let Some((mut tree, Read::Right)) = opened else {
                noticed += 1;
                continue;
            };
            check_after_crash(&base, &changes, &unheard, &contents(&mut tree));
        }
    }
    assert!(all > 6 * crashes && noticed > all / 10, "{noticed} of {all} noticed");
}

/// A drive with what was flushed to it: so many steps, and one more with a flush
/// of its own; on the way the store is opened a second time, or not.
fn flushed<K: Kind>(seed: u64, steps: u64, again: bool) -> (MemoryDrive, Map) {
    let mut rng = Rng::new(seed, 5);
    let tree = create::<K>(MemoryDrive::new(BLOCKS, seed, no_fuse()));
    let mut checked = Checked::new(tree, Map::new());
    let flush = |checked: &mut Checked<K::Store>| {
        assert!(checked.finish() && checked.step(Step::Flush) && checked.finish());
        rest(&mut checked.tree);
    };
    for step in 0..steps {
        assert!(checked.step(random_step(&mut rng, MIX)));
        if again && step == steps / 2 {
            flush(&mut checked);
            let drive: MemoryDrive = was(K::into_drive(checked.tree.into_store()));
            checked = Checked::new(open::<K>(drive), checked.map);
        }
    }
    flush(&mut checked);
    assert!(checked.step(Step::Put(b"last".to_vec(), vec![7; 300])));
    flush(&mut checked);
    let drive: MemoryDrive = was(K::into_drive(checked.tree.into_store()));
    (drive.crash(0, no_fuse()), checked.map)
}

/// How a drive with damage was read.
#[derive(PartialEq, Eq)]
enum Read {
    /// All of it.
    Right,
    /// Something is an error.
    Noticed,
}

type Opened<K> = (Tree<<K as Kind>::Store>, Read);

/// Opens what is on a drive with damage, and reads all of it. `None` if that is
/// refused. Gives what is wrong, if something is.
fn open_damaged<K: Kind>(drive: MemoryDrive) -> Result<Option<Opened<K>>, String> {
    let shape = drive.shape;
    let store = match K::open(any(drive), shape, Time::ZERO) {
        Ok(store) => store,
        Err(StoreError::Unusable(_) | StoreError::DamagedBlock { .. }) => return Ok(None),
        Err(other) => return Err(format!("the store is refused: {other}")),
    };
    let mut tree = match Tree::open(store, SMALL, Time::ZERO) {
        Ok(tree) => tree,
        Err(error) if is_damage(error) => return Ok(None),
        Err(other) => return Err(format!("the tree is refused: {other}")),
    };
    match tree.verify() {
        Ok(_) => Ok(Some((tree, Read::Right))),
        Err(Broken::Error(error)) if is_damage(error) => Ok(Some((tree, Read::Noticed))),
        Err(other) => Err(other.to_string()),
    }
}

/// The block for which opening refuses a drive.
fn refused_for<K: Kind>(drive: MemoryDrive) -> Option<u64> {
    let shape = drive.shape;
    match K::open(any(drive), shape, Time::ZERO).err()? {
        StoreError::DamagedBlock { block, .. } => Some(block),
        _ => None,
    }
}

fn is_damage(error: Error) -> bool {
    use StoreError::{Damaged, DamagedBlock};
    matches!(error, Error::Damaged { .. } | Error::Store(Damaged { .. } | DamagedBlock { .. }))
}

/// Reads what is on a drive with damage: what is no error must be as in `map`.
/// Else gives what is wrong.
fn read_damaged<K: Kind>(drive: MemoryDrive, map: &Map) -> Result<Read, String> {
    let Some((mut tree, read)) = open_damaged::<K>(drive)? else { return Ok(Read::Noticed) };
    if read == Read::Right {
        let found = contents(&mut tree);
        let wrong = map.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
        return match found == *map {
            true => Ok(read),
            false => Err(format!("{} records, {wrong} of {} wrong", found.len(), map.len())),
        };
    }
    for (key, value) in map {
        let mut heard = Heard::default();
        tree.get(1, key, &mut heard).unwrap();
        match outcome(&mut tree, &mut heard) {
            Ok(Outcome::Found) if heard.records[&1][0].1 == *value => {}
            Err(error) if is_damage(error) => {}
            other => return Err(format!("key {key:02x?}: {other:?}")),
        }
    }
    Ok(read)
}
