//! With data in the journal a cut leaves all files as they were after some operation, no older
//! than what was synced.

use std::collections::{BTreeMap, BTreeSet};

use files::mutation::{self, Mutation};
use files::{BLOCK, Disk, Files, FilesError, Inode, Journal, Kind, Memory, Names, Operation};
use files::{Options, Recorder, Type};
use port::random::Random;
use xxhash_rust::xxh3::xxh3_64;

use crate::cuts::{cut, turnover, used_disk};
use crate::disk::{Cuttable, Late};
use crate::journal::Failing;
use crate::model::{self, Model, What};
use crate::steps::{Next, next};
use crate::unawaited::Unawaited;

/// Of each name the file, its mode and links, how long it is, and a number for what it has.
type Picture = BTreeMap<Vec<u8>, (u64, u16, u32, u64, u64)>;

fn taken<D: Disk>(files: &mut Files<D>) -> Picture {
    let mut picture = Picture::new();
    for (path, inode) in model::tree_of(files) {
        let stat = files.stat(Inode(inode)).unwrap();
        let sum = match stat.kind {
            Type::File => xxh3_64(&model::read(files, Inode(inode))),
            Type::Link => xxh3_64(files.target(Inode(inode)).unwrap()),
            Type::Folder => 0,
        };
        picture.insert(path, (inode, stat.mode, stat.links, stat.size, sum));
    }
    picture
}

/// All that a history had, after each of its operations.
struct History {
    model: Model,
    pictures: Vec<Picture>,
    /// The last operation that changed the bytes of each file, and a number for them.
    bytes: BTreeMap<u64, (usize, u64)>,
    /// A cut leaves what was after that operation, or a later one.
    durable: usize,
}

impl History {
    fn of<D: Disk>(files: &mut Files<D>) -> Result<History, String> {
        let model = Model::of(files);
        model.check_now(files)?;
        let mut history =
            History { model, pictures: Vec::new(), bytes: BTreeMap::new(), durable: 0 };
        let inodes: Vec<u64> = history.model.nodes.keys().copied().collect();
        inodes.into_iter().for_each(|inode| history.look(inode));
        let picture = history.picture();
        (picture == taken(files)).then_some(()).ok_or("the model is not what there is")?;
        history.pictures.push(picture);
        Ok(history)
    }

    fn look(&mut self, inode: u64) {
        let Some(What::File(bytes)) = self.model.nodes.get(&inode).map(|node| &node.what) else {
            return;
        };
        let (now, sum) = (self.pictures.len(), xxh3_64(bytes));
        let last = self.bytes.entry(inode).or_insert((now, sum));
        if last.1 != sum {
            *last = (now, sum);
        }
    }

    fn picture(&self) -> Picture {
        let one = |(path, inode): (&Vec<u8>, &u64)| {
            let node = &self.model.nodes[inode];
            let (size, sum) = match &node.what {
                What::File(bytes) => (bytes.len(), self.bytes[inode].1),
                What::Link(path) => (path.len(), xxh3_64(path)),
                What::Folder(names) => (names.len(), 0),
            };
            (path.clone(), (*inode, node.mode, node.links, size as u64, sum))
        };
        self.model.tree().iter().map(one).collect()
    }

    fn apply(&mut self, operation: &Operation) {
        self.model.apply(operation);
        match operation {
            Operation::Create { inode, .. }
            | Operation::Write { inode, .. }
            | Operation::Truncate { inode, .. }
            | Operation::Allocate { inode, .. }
            | Operation::Punch { inode, .. } => self.look(inode.0),
            _ => {}
        }
        self.pictures.push(self.picture());
    }

    /// What a sync that has returned promises.
    fn promise(&mut self, operation: &Operation) {
        match operation {
            Operation::SyncAll => self.durable = self.pictures.len() - 1,
            Operation::Sync { inode, data } => {
                let node = &self.model.nodes[&inode.0];
                let named = if *data { node.made } else { node.named };
                let written = self.bytes.get(&inode.0).map_or(0, |last| last.0);
                self.durable = self.durable.max(named).max(written);
            }
            _ => {}
        }
    }

    /// What is wrong with these files after a cut, if anything.
    fn check<D: Disk>(&self, files: &mut Files<D>) -> Result<(), String> {
        let told = files.check();
        if !told.is_empty() {
            return Err(format!("{told:?}"));
        }
        let found = taken(files);
        if self.pictures[self.durable..].contains(&found) {
            return Ok(());
        }
        let old = self.pictures.iter().rposition(|picture| *picture == found);
        let last = self.pictures.last().unwrap();
        let differ: Vec<_> = found.iter().filter(|one| last.get(one.0) != Some(one.1)).collect();
        Err(format!(
            "not as after {} to {}: {old:?}: {differ:?} of {last:?}",
            self.durable,
            self.pictures.len() - 1
        ))
    }
}

fn mount<D: Disk>(disk: D) -> Result<Files<D>, String> {
    Files::mount(disk).map_err(|error| format!("it does not mount: {error}"))
}

/// Checks what a cut leaves, and what a cut of the mount leaves. How many states that were.
fn look(
    history: &History,
    disk: &Recorder,
    random: &mut Random,
    torn: bool,
) -> Result<u64, String> {
    let left = cut(disk, random, torn);
    let every = random.below(6);
    if every > 3 {
        history.check(&mut mount(left)?)?;
        return Ok(1);
    }
    let files = mount(Cuttable::new(left, every))?;
    let moments = files.disk().moments.take();
    for moment in moments.iter().chain([&files.disk().disk]) {
        history.check(&mut mount(cut(moment, random, torn))?)?;
    }
    Ok(moments.len() as u64 + 1)
}

fn look_at_moments(
    history: &History,
    disk: &Cuttable,
    random: &mut Random,
    torn: bool,
) -> Result<u64, String> {
    let moments = disk.moments.take();
    moments.iter().try_fold(0, |sum, moment| Ok(sum + look(history, moment, random, torn)?))
}

fn options(random: &mut Random) -> Options {
    Options {
        journal: Journal::Data,
        journal_blocks: Some(64 + random.below(40) as u32),
        replace_writes: random.below(4) == 0,
        discard: random.below(3) == 0,
        dirty_pages: if random.below(2) == 0 { 64 } else { 1000 },
        id: 9,
        ..Options::default()
    }
}

/// What is done as step `now`; in a full disk first a file that has nearly all of it.
fn step(history: &mut History, random: &mut Random, now: usize, full: Option<u64>) -> Option<Next> {
    let bits = random.bits();
    let mut step = (bits as u8, (bits >> 8) as u16, (bits >> 24) as u16, (bits >> 32) as u32);
    let Some(free) = full else { return next(&mut history.model, step, now) };
    if now < 3 {
        step = [(0, 0, 3, 0), (25, 0, 0, 0), (32, 0, 0, 0)][now];
    } else {
        (step.0, step.2) = turnover(step.0, step.2);
    }
    match next(&mut history.model, step, now)? {
        Next::Operation(Operation::Allocate { inode, .. }) if now < 3 => {
            let (offset, len) = (1 << 20, free.saturating_sub(60) * BLOCK as u64);
            Some(Next::Operation(Operation::Allocate { inode, offset, len, keep_size: true }))
        }
        next => Some(next),
    }
}

/// A history with cuts, in a number that gives it again. How many states were looked at.
fn run(seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed, 0);
    let mut unawaited = Unawaited::of(seed);
    let (torn, full) = (seed & 1 == 0, seed.is_multiple_of(5));
    let blocks = 300 + random.below(200);
    let options = options(&mut random);
    let files = Files::format(used_disk(blocks), options).unwrap();
    let every = 1 + random.below(4);
    let looks = unawaited.looks();
    let late = |disk| Late::new(Cuttable::new(disk, every), looks);
    let mut files = Files::mount(late(files.into_disk())).unwrap();
    let (mut history, mut states) = (History::of(&mut files)?, 0);
    for now in 0..20 + random.below(140) as usize {
        let told = |error: &dyn std::fmt::Display| format!("step {now}, unawaited: {error}");
        let is_over = unawaited.go_on(&mut files).map_err(|error| told(&error))?;
        states += look_at_moments(&history, &files.disk().disk, &mut random, torn)
            .map_err(|error| told(&error))?;
        if is_over {
            unawaited
                .next((history.pictures.len() - 1, &mut history.durable), &mut files)
                .map_err(|error| told(&error))?;
        }
        let free = full.then(|| files.free_blocks());
        match step(&mut history, &mut random, now, free) {
            Some(Next::WriteBack(what)) => {
                files.write_back(what).map_err(|error| format!("step {now}: {error}"))?;
                states += look_at_moments(&history, &files.disk().disk, &mut random, torn)
                    .map_err(|error| format!("step {now}, {what:?}: {error}"))?;
            }
            Some(Next::Cut) => {
                let disk = &files.disk().disk.disk;
                states += look(&history, disk, &mut random, torn)
                    .map_err(|error| format!("step {now}: {error}"))?;
                if random.below(3) > 0 {
                    continue;
                }
                // Life goes on with what the cut left.
                files = mount(late(cut(disk, &mut random, torn)))?;
                history.check(&mut files).map_err(|error| format!("step {now}: {error}"))?;
                (history, unawaited.durable) = (History::of(&mut files)?, None);
            }
            Some(Next::Operation(operation)) => {
                let done = files.apply(&operation);
                // A commit inside of it is one of what was before.
                states += look_at_moments(&history, &files.disk().disk, &mut random, torn)
                    .map_err(|error| format!("step {now}, in {operation:?}: {error}"))?;
                match done {
                    Ok(()) => history.apply(&operation),
                    Err(FilesError::NoRoom { .. }) => continue,
                    Err(error) => return Err(format!("step {now}: {error}")),
                }
                history.promise(&operation);
                if matches!(operation, Operation::Sync { .. } | Operation::SyncAll) {
                    states += look(&history, &files.disk().disk.disk, &mut random, torn)
                        .map_err(|error| format!("step {now}, after {operation:?}: {error}"))?;
                }
            }
            None => {}
        }
        if now % 16 == 0 {
            history.model.check_now(&mut files).map_err(|error| format!("step {now}: {error}"))?;
        }
    }
    history.model.check_now(&mut files)?;
    Ok(states)
}

#[test]
fn a_cut_leaves_all_as_it_was_after_some_operation() {
    let runs = std::env::var("FILES_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(300);
    let from = if runs > 300 { 1_000_000 } else { 0 };
    let mut states = 0;
    for seed in from..from + runs {
        states += run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    println!("{states} states in {runs} runs");
    assert!(states > 40 * runs, "only {states} states");
}

/// Two cuts in a row: what the first left of a transaction must not count by what the second left
/// of the next one, which has blocks like it.
#[test]
fn a_transaction_that_was_lost_does_not_come_back() {
    run(1_000_702).unwrap();
}

#[test]
fn each_broken_promise_about_data_is_found() {
    let mut missed = Vec::new();
    for broken in Mutation::DATA {
        mutation::set(Some(broken));
        let found = (0..2000).find_map(|seed| {
            let run = std::panic::catch_unwind(|| run(seed));
            match run {
                Ok(Ok(_)) => None,
                Ok(Err(what)) => Some((seed, what)),
                Err(_) => Some((seed, "it panics".into())),
            }
        });
        mutation::set(None);
        match found {
            Some((seed, what)) => println!("{broken:?}: seed {seed}: {:.90}", what),
            None => missed.push(broken),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Whatever write fails, of the journal or in place: nothing is lost but what no sync covered.
#[test]
fn a_write_that_fails_leaves_what_was_after_some_operation() {
    let mut failed = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed, 7);
        let files = Files::format(used_disk(300), options(&mut random)).unwrap();
        // The mount writes the journal's header.
        let at = 2 + random.below(60);
        let disk = Failing { disk: files.into_disk(), writes: 0, fails: at..at + 1 };
        let mut unawaited = Unawaited::of(seed);
        let mut files = Files::mount(Late::new(disk, unawaited.looks())).unwrap();
        let mut history = History::of(&mut files).unwrap();
        for now in 0..150 {
            let begun = match unawaited.go_on(&mut files) {
                Ok(true) => {
                    unawaited.next((history.pictures.len() - 1, &mut history.durable), &mut files)
                }
                other => other.map(drop),
            };
            let next = step(&mut history, &mut random, now, None);
            let done = match (begun, next) {
                (Err(error), _) => Err(error),
                (_, Some(Next::WriteBack(what))) => files.write_back(what),
                (_, Some(Next::Operation(operation))) => {
                    let done = files.apply(&operation);
                    if done.is_ok() {
                        history.apply(&operation);
                        history.promise(&operation);
                    }
                    done
                }
                _ => Ok(()),
            };
            match done {
                Ok(()) | Err(FilesError::NoRoom { .. }) => continue,
                Err(error) => assert!(matches!(error, FilesError::Disk(_)), "{error}"),
            }
            failed += 1;
            assert_eq!(files.apply(&Operation::SyncAll), Err(FilesError::Aborted));
            history.model.check_now(&mut files).unwrap();
            let mut files = mount(files.into_disk().disk.disk).unwrap();
            history.check(&mut files).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            break;
        }
    }
    assert!(failed > 200, "only {failed} failed");
}

fn with_file(options: Options, blocks: u64) -> Files<Cuttable> {
    let files = Files::format(used_disk(blocks), options).unwrap();
    let mut files = Files::mount(Cuttable::new(files.into_disk(), 1)).unwrap();
    let (parent, kind) = (Inode::ROOT, Kind::File);
    let create =
        Operation::Create { parent, name: b"f".to_vec(), inode: Inode(2), kind, mode: 0o600 };
    files.apply(&create).unwrap();
    files
}

#[test]
fn of_a_write_larger_than_the_ring_the_first_pages_are_there() {
    let journal_blocks = Some(64);
    let options = Options { journal: Journal::Data, journal_blocks, ..Options::default() };
    let mut files = with_file(options, 2000);
    let old = vec![1; 300 * BLOCK + 77];
    files.apply(&Operation::Write { inode: Inode(2), offset: 0, data: old.clone() }).unwrap();
    files.apply(&Operation::SyncAll).unwrap();
    files.disk().moments.take();
    let (offset, mut seen) = (1000, BTreeSet::new());
    let new = vec![2; 400 * BLOCK];
    files.apply(&Operation::Write { inode: Inode(2), offset: 1000, data: new }).unwrap();
    let mut random = Random::new(1, 1);
    let moments = files.disk().moments.take();
    for moment in moments.iter().flat_map(|moment| [moment; 4]) {
        let mut files = mount(cut(moment, &mut random, true)).unwrap();
        let bytes = model::read(&mut files, Inode(2));
        let written = bytes.iter().filter(|&&byte| byte == 2).count();
        let mut expected = old.clone();
        expected.resize(expected.len().max(offset + written), 0);
        expected[offset..offset + written].fill(2);
        assert!(bytes == expected, "{written} bytes, {} long", bytes.len());
        assert!(written == 400 * BLOCK || written == 0 || (written + offset) % BLOCK == 0);
        seen.insert(written);
    }
    assert!(seen.len() > 8, "{seen:?}");
    // What a transaction holds is whole or not there.
    let data = vec![3; 40 * BLOCK];
    files.apply(&Operation::Write { inode: Inode(2), offset: 0, data }).unwrap();
    files.apply(&Operation::SyncAll).unwrap();
    for moment in files.disk().moments.take() {
        let mut files = mount(cut(&moment, &mut random, true)).unwrap();
        let bytes = model::read(&mut files, Inode(2));
        assert!([0, 40 * BLOCK].contains(&bytes.iter().filter(|&&byte| byte == 3).count()));
    }
}

#[test]
fn a_file_in_many_pieces_is_cut_at_once() {
    let journal_blocks = Some(64);
    let options = Options { journal: Journal::Data, journal_blocks, ..Options::default() };
    let mut files = with_file(options, 6000);
    files.disk().moments.take();
    for n in 0..2000u64 {
        let offset = (n * 7919 % 2000) * 8192;
        let data = vec![n as u8 | 1; 4096];
        files.apply(&Operation::Write { inode: Inode(2), offset, data }).unwrap();
    }
    files.apply(&Operation::SyncAll).unwrap();
    let before = model::read(&mut files, Inode(2));
    files.disk().moments.take();
    let (offset, len) = (8192 * 100 + 5, 8192 * 1500);
    files.apply(&Operation::Punch { inode: Inode(2), offset, len }).unwrap();
    let punched = model::read(&mut files, Inode(2));
    files.apply(&Operation::Truncate { inode: Inode(2), size: 8192 * 50 + 9 }).unwrap();
    let after = model::read(&mut files, Inode(2));
    files.apply(&Operation::SyncAll).unwrap();
    assert_eq!(files.check(), Vec::<String>::new());
    let (mut random, mut seen) = (Random::new(1, 1), [0; 3]);
    let (moments, last) = (files.disk().moments.take(), &files.disk().disk);
    for moment in moments.iter().chain([last]).flat_map(|moment| [moment; 4]) {
        let bytes = model::read(&mut mount(cut(moment, &mut random, true)).unwrap(), Inode(2));
        let all = [&before, &punched, &after];
        seen[all.iter().position(|one| **one == bytes).expect("whole or not there")] += 1;
    }
    assert!(seen[0] > 0 && seen[2] > 0, "{seen:?}");
}

#[test]
fn names_come_with_the_file_and_an_older_program_refuses_it() {
    let (journal, names) = (Journal::Data, Names::OnlyWithFolder);
    let error = Files::format(Memory::new(512), Options { journal, names, ..Options::default() });
    assert!(error.unwrap_err().to_string().starts_with("names is 1: with data in the journal"));
    let options = Options { journal, ..Options::default() };
    let mut block = [0; BLOCK];
    let mut disk = Files::format(Memory::new(512), options).unwrap().into_disk();
    disk.read(0, &mut block).unwrap();
    assert_eq!((block[8], block[12]), (2, 3));
    let mut disk = Files::format(Memory::new(512), Options::default()).unwrap().into_disk();
    disk.read(0, &mut block).unwrap();
    assert_eq!((block[8], block[12]), (1, 0));
}

#[test]
fn files_that_come_and_go_are_not_written_in_place() {
    let mut files = with_file(Options { journal: Journal::Data, ..Options::default() }, 2000);
    files.apply(&Operation::SyncAll).unwrap();
    files.write_back(files::WriteBack::Checkpoint).unwrap();
    let write = Operation::Write { inode: Inode(2), offset: 0, data: vec![7; 10 * BLOCK] };
    for operation in [write, Operation::SyncAll, Operation::Truncate { inode: Inode(2), size: 0 }] {
        files.apply(&operation).unwrap();
    }
    files.write_back(files::WriteBack::Commit).unwrap();
    files.disk().moments.take();
    files.write_back(files::WriteBack::Checkpoint).unwrap();
    let written = files.disk().moments.borrow().iter().map(|disk| disk.unflushed().len()).max();
    assert!(written < Some(8), "{written:?}");
}

/// Blocks that go from file to file, again and again, while the ring has what others had there.
fn change_owners(seed: u64) -> Result<(u64, usize), String> {
    let mut random = Random::new(seed, 3);
    let journal_blocks = Some(250);
    let options = Options { journal: Journal::Data, journal_blocks, ..Options::default() };
    let mut files = with_file(options, 600);
    let len = (files.free_blocks() - 49) * BLOCK as u64;
    files.apply(&Operation::Allocate { inode: Inode(2), offset: 0, len, keep_size: true }).unwrap();
    files.apply(&Operation::SyncAll).unwrap();
    files.write_back(files::WriteBack::Checkpoint).unwrap();
    files.disk().moments.take();
    let (mut history, mut states, mut several) = (History::of(&mut files)?, 0, 0);
    for n in 0..40 {
        let (inode, gone) = (Inode(10 + n), Inode(8 + n));
        let name = |inode: Inode| format!("f{}", inode.0).into_bytes();
        let (parent, kind) = (Inode::ROOT, Kind::File);
        let mut operations = vec![
            Operation::Create { parent, name: name(inode), inode, kind, mode: 0o600 },
            Operation::Write { inode, offset: 0, data: vec![n as u8; 3 * BLOCK] },
            Operation::Sync { inode, data: false },
        ];
        if n >= 2 {
            operations.push(Operation::Remove { parent, name: name(gone) });
            operations.push(Operation::Forget { inode: gone });
        }
        for operation in operations {
            files.apply(&operation).map_err(|error| format!("{n}, {operation:?}: {error}"))?;
            states += look_at_moments(&history, files.disk(), &mut random, true)?;
            history.apply(&operation);
            history.promise(&operation);
        }
        several = several.max(owned_by_several(&mut files.disk().disk.clone()));
    }
    history.model.check_now(&mut files)?;
    Ok((states, several))
}

/// How many blocks there are of which the ring has what several files had in them.
fn owned_by_several(disk: &mut Recorder) -> usize {
    let mut owners: BTreeMap<u32, BTreeSet<u8>> = BTreeMap::new();
    let (mut list, mut image) = ([0; BLOCK], [0; BLOCK]);
    for at in 2..252 {
        disk.read(at, &mut list).unwrap();
        let half = |at: usize| u32::from_le_bytes(list[at..at + 4].try_into().unwrap());
        let blocks = if list[8..12] == *b"SJLS" { half(12) } else { 0 };
        for n in 0..blocks {
            disk.read(2 + (at - 1 + u64::from(n)) % 250, &mut image).unwrap();
            // Of data all bytes are the same.
            if image.iter().all(|&byte| byte == image[0]) {
                owners.entry(half(24 + 4 * n as usize)).or_default().insert(image[0]);
            }
        }
    }
    owners.values().filter(|owners| owners.len() > 1).count()
}

#[test]
fn what_a_block_was_is_never_written_over_what_it_is() {
    let (mut states, mut several) = (0, 0);
    for seed in 0..8 {
        let (more, blocks) = change_owners(seed).unwrap();
        (states, several) = (states + more, several.max(blocks));
    }
    assert!(states > 2000 && several > 8, "{states} states, {several} blocks");
}

/// Where every page is an extent of its own no operation changes more than it said before: a
/// commit asserts that. Each state is one between two operations.
#[test]
fn in_pieces_no_operation_changes_more_than_it_said() {
    let journal_blocks = Some(64);
    let options = Options { journal: Journal::Data, journal_blocks, ..Options::default() };
    let mut files = with_file(options, 6000);
    // Free blocks lie alone.
    for n in 0..100 {
        let (offset, data) = (n * 20 * BLOCK as u64, vec![9; 20 * BLOCK]);
        files.apply(&Operation::Write { inode: Inode(2), offset, data }).unwrap();
    }
    for n in 0..1000 {
        let (offset, len) = (n * 2 * BLOCK as u64, BLOCK as u64);
        files.apply(&Operation::Punch { inode: Inode(2), offset, len }).unwrap();
    }
    let (parent, inode, kind) = (Inode::ROOT, Inode(3), Kind::File);
    let offset = 3000 * BLOCK as u64;
    let len = (files.free_blocks() - 2600) * BLOCK as u64;
    for operation in [
        Operation::Allocate { inode: Inode(2), offset, len, keep_size: true },
        Operation::Create { parent, name: b"g".to_vec(), inode, kind, mode: 0o600 },
        Operation::SyncAll,
    ] {
        files.apply(&operation).unwrap();
    }
    let mut random = Random::new(1, 5);
    let (mut bytes, mut sums) = (Vec::new(), BTreeSet::new());
    for n in 0..1000u32 {
        sums.insert(xxh3_64(&bytes));
        let (offset, len) = (random.below(2000 * 4096), 1 + random.below(36 * 4096));
        let (from, to) = (offset as usize, (offset + len) as usize);
        let operation = match random.below(16) {
            0..=9 => {
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].fill(n as u8);
                Operation::Write { inode, offset, data: vec![n as u8; len as usize] }
            }
            10..=13 => {
                // Now and then much of it.
                let len = if n % 5 == 0 { 50 * len } else { len };
                let to = (offset + len) as usize;
                let end = to.min(bytes.len());
                bytes[from.min(end)..end].fill(0);
                Operation::Punch { inode, offset, len }
            }
            14 => Operation::Allocate { inode, offset, len, keep_size: true },
            _ => {
                bytes.resize(from, 0);
                Operation::Truncate { inode, size: offset }
            }
        };
        files.disk().moments.take();
        files.apply(&operation).unwrap_or_else(|error| panic!("{n}: {error}"));
        if n % 10 == 0 {
            let moments = files.disk().moments.take();
            for moment in moments.iter().chain([&files.disk().disk]).step_by(3) {
                let mut files = mount(cut(moment, &mut random, true)).unwrap();
                let sum = xxh3_64(&model::read(&mut files, inode));
                assert!(sums.contains(&sum), "{n}: in the middle of something");
            }
            assert_eq!(files.check(), Vec::<String>::new());
            assert!(model::read(&mut files, inode) == bytes, "{n}");
        }
    }
}
