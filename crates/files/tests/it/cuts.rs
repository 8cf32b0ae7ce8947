//! After a cut at any request there is what was promised, and a broken promise is found.

use files::mutation::{self, Mutation};
use files::{BLOCK, Disk, Fate, Files, FilesError, Journal, Memory, Names, Operation};
use files::{Options, Recorder};
use port::random::Random;

use crate::disk::Cuttable;
use crate::model::Model;
use crate::steps::{Next, next};

/// A run with cuts, in a number that gives it again.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    journal: Journal,
    names: Names,
    torn: bool,
    /// The disk is nearly full, and blocks change their owners soon.
    full: bool,
}

/// A disk full of what others left.
pub fn used_disk(blocks: u64) -> Memory {
    let mut disk = Memory::new(blocks);
    for at in 0..blocks {
        disk.write(at, &[0xd0 | at as u8 & 7; BLOCK]).unwrap();
    }
    disk
}

/// What a cut leaves, by chance: each write, those up to some, all or none.
pub fn cut(disk: &Recorder, random: &mut Random, torn: bool) -> Memory {
    let writes = disk.unflushed().len() as u64;
    let (way, point) = (random.below(6), random.below(writes + 1));
    let torn = torn && random.below(2) == 0;
    disk.cut(|n| match way {
        0 => Fate::Lost,
        1 => Fate::Kept,
        2 if (n as u64) < point => Fate::Kept,
        2 => Fate::Lost,
        3 if (n as u64) == point => Fate::Lost,
        3 => Fate::Kept,
        _ if torn && random.below(3) == 0 => Fate::Torn(random.bits() as u8),
        _ if random.below(2) == 0 => Fate::Kept,
        _ => Fate::Lost,
    })
}

/// Mounts what a cut left, now and then with another cut while it is mounted, and checks it.
fn check(model: &Model, disk: &Recorder, random: &mut Random, torn: bool) -> Result<(), String> {
    let left = cut(disk, random, torn);
    let mount = |disk| Files::mount(disk).map_err(|error| format!("it does not mount: {error}"));
    let every = random.below(4);
    if every == 0 {
        let mut files = mount(left)?;
        model.check_cut(&mut files, torn)?;
        let tree = crate::model::tree_of(&files);
        files.apply(&Operation::SyncAll).map_err(|error| error.to_string())?;
        let mut files = mount_memory(files.into_disk())?;
        if crate::model::tree_of(&files) != tree {
            return Err("names changed by a mount".into());
        }
        return model.check_cut(&mut files, torn);
    }
    let files = Files::mount(Cuttable::new(left, every)).map_err(|error| error.to_string())?;
    let moments = files.disk().moments.take();
    for moment in moments.iter().chain([&files.disk().disk]) {
        let left = cut(moment, random, torn);
        model.check_cut(&mut mount_memory(left)?, torn)?;
    }
    Ok(())
}

fn mount_memory(disk: Memory) -> Result<Files<Memory>, String> {
    Files::mount(disk).map_err(|error| format!("it does not mount: {error}"))
}

fn run(plan: Plan) -> Result<u64, String> {
    let Plan { seed, journal, names, torn, full } = plan;
    let mut random = Random::new(seed, 0);
    let blocks = 256 + random.below(200);
    let options = Options {
        journal,
        names,
        journal_blocks: Some(64),
        replace_writes: random.below(4) == 0,
        discard: random.below(4) == 0,
        id: 9,
        ..Options::default()
    };
    let files = Files::format(used_disk(blocks), options).unwrap();
    let disk = Cuttable::new(files.into_disk(), 1 + random.below(4));
    let mut files = Files::mount(disk).unwrap();
    let (mut model, mut cuts) = (Model::new(journal, names), 0);
    for now in 0..20 + random.below(120) as usize {
        let bits = random.bits();
        let mut step = (bits as u8, (bits >> 8) as u16, (bits >> 24) as u16, (bits >> 32) as u32);
        if full && now < 3 {
            // A file that has nearly all of the disk, so that blocks change their owners soon.
            step = [(0, 0, 3, 0), (25, 0, 0, 0), (32, 0, 0, 0)][now];
        } else if full {
            (step.0, step.2) = turnover(step.0, step.2);
        }
        let operation = match next(&mut model, step, now) {
            Some(Next::Operation(operation)) => operation,
            Some(Next::WriteBack(what)) => {
                let done = files.write_back(what);
                if !matches!(done, Ok(()) | Err(FilesError::NoRoom { .. })) {
                    return Err(format!("{done:?}"));
                }
                cuts += check_moments(&model, &files, &mut random, torn)
                    .map_err(|error| format!("step {now}, {what:?}: {error}"))?;
                continue;
            }
            Some(Next::Cut) => {
                check(&model, &files.disk().disk, &mut random, torn)
                    .map_err(|error| format!("step {now}: {error}"))?;
                cuts += 1;
                continue;
            }
            None => continue,
        };
        let operation = match operation {
            Operation::Allocate { inode, .. } if full && now < 3 => {
                let len = (files.free_blocks() - 60) * BLOCK as u64;
                Operation::Allocate { inode, offset: 1 << 20, len, keep_size: true }
            }
            operation => operation,
        };
        match files.apply(&operation) {
            Ok(()) => model.apply(&operation),
            Err(FilesError::NoRoom { .. }) => continue,
            Err(error) => return Err(format!("step {now}: {error}")),
        }
        cuts += check_moments(&model, &files, &mut random, torn)
            .map_err(|error| format!("step {now}, {operation:?}: {error}"))?;
        model.promise(&operation);
        if matches!(operation, Operation::Sync { .. }) {
            check(&model, &files.disk().disk, &mut random, torn)
                .map_err(|error| format!("step {now}, after {operation:?}: {error}"))?;
            cuts += 1;
        }
    }
    model.check_now(&mut files)?;
    Ok(cuts)
}

/// Makes of a step one of those by which blocks of metadata become blocks of data.
pub fn turnover(what: u8, b: u16) -> (u8, u16) {
    match what % 16 {
        0..=2 => (0, 2),
        3..=5 => (6, b),
        6..=8 => (8, b),
        9 | 10 => (14, b),
        11 | 12 => (31, b),
        13 => (28, b),
        14 => (0, 3),
        _ => (41, b),
    }
}

/// Cuts where the disk was in the middle of what was done last.
fn check_moments(
    model: &Model,
    files: &Files<Cuttable>,
    random: &mut Random,
    torn: bool,
) -> Result<u64, String> {
    let moments = files.disk().moments.take();
    moments.iter().try_for_each(|moment| check(model, moment, random, torn))?;
    Ok(moments.len() as u64)
}

fn plan(seed: u64, journal: Journal) -> Plan {
    let torn = seed & 2 == 0;
    let names = if seed & 1 == 0 { Names::WithFile } else { Names::OnlyWithFolder };
    Plan { seed, journal, names, torn, full: seed.is_multiple_of(5) }
}

fn many(journal: Journal) {
    let runs = std::env::var("FILES_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(300);
    let (mut cuts, from) = (0, if runs > 300 { 1_000_000 } else { 0 });
    for seed in from..from + runs {
        let plan = plan(seed, journal);
        cuts += run(plan).unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    }
    println!("{cuts} cuts in {runs} runs");
    assert!(cuts > 10 * runs, "only {cuts} cuts");
}

#[test]
fn cuts_with_ordered_data_leave_what_was_promised() {
    many(Journal::Ordered);
}

#[test]
fn cuts_with_data_in_any_order_leave_what_was_promised() {
    many(Journal::Writeback);
}

#[test]
fn cuts_without_a_journal_leave_what_was_synced() {
    many(Journal::None);
}

#[test]
fn each_broken_promise_is_found() {
    let mut missed = Vec::new();
    for broken in Mutation::ORDERED {
        mutation::set(Some(broken));
        let full = broken == Mutation::ReuseMetadataEarly;
        let found = (0..3000).find(|&seed| {
            let run =
                std::panic::catch_unwind(|| run(Plan { full, ..plan(seed, Journal::Ordered) }));
            !matches!(run, Ok(Ok(_)))
        });
        mutation::set(None);
        match found {
            Some(seed) => println!("{broken:?}: seed {seed}"),
            None => missed.push(broken),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
