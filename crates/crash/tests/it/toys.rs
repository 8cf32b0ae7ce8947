//! Thirteen programs, each with a bug in how it syncs that is known from real ones, and without.

use std::collections::HashSet;

use crash::{Event, Explorer, Options, hash};
use files::{Journal, Names, Operation};
use xxhash_rust::xxh3::xxh3_64;

use crate::program::{Left, Program, left};

/// States in which a bug must be found, and that a correct program must survive.
const FIND_WITHIN: u64 = 1_000;
const SURVIVE: u64 = 10_000;

/// How often each program does what it does.
const ROUNDS: u64 = 6;

/// A program, and what must hold after a cut, where it had said that so much was done.
struct Toy {
    name: &'static str,
    run: fn(&mut Program, bool),
    check: fn(&Left, u64) -> Result<(), String>,
    names: Names,
    journal: Journal,
    tear: bool,
}

const PLAIN: Toy = Toy {
    name: "",
    run: |_, _| {},
    check: |_, _| Ok(()),
    names: Names::WithFile,
    journal: Journal::Ordered,
    tear: false,
};

/// Bytes of version `n`, with a checksum in front.
fn version(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![n as u8 + 1; len];
    bytes[8] = n as u8;
    let sum = xxh3_64(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Which version these bytes are, if they are whole.
fn version_of(bytes: &[u8]) -> Option<u64> {
    let sum = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes.len() > 8 && xxh3_64(&bytes[8..]) == sum).then(|| u64::from(bytes[8]))
}

fn whole(left: &Left, name: &str) -> Result<u64, String> {
    let (bytes, _) = left.get(name).ok_or(format!("{name} is gone"))?;
    version_of(bytes).ok_or(format!("{name} is damaged, {} bytes", bytes.len()))
}

/// How many records of 100 bytes are whole, up to the first that is not.
fn records(left: &Left, name: &str) -> u64 {
    let Some((bytes, _)) = left.get(name) else { return 0 };
    let good = bytes.chunks(100).zip(1..);
    good.take_while(|(record, n)| version_of(record) == Some(*n)).count() as u64
}

fn at_least(found: u64, said: u64) -> Result<(), String> {
    if found >= said {
        Ok(())
    } else {
        Err(format!("{said} is said to be done, and {found} is there"))
    }
}

fn with_file(program: &mut Program, name: &str, bytes: &[u8]) {
    program.create(name);
    program.write(name, 0, bytes);
    program.begins();
}

/// Replaces a file by a new one: written, synced, renamed.
fn replace(program: &mut Program, name: &str, bytes: &[u8], sync: bool) {
    program.create("new");
    program.write("new", 0, bytes);
    if sync {
        program.sync("new");
    }
    program.rename("new", name);
    if sync {
        program.sync_folder();
    }
}

fn toys() -> Vec<Toy> {
    vec![
        Toy {
            name: "a file renamed over another without a sync",
            run: |program, correct| {
                with_file(program, "config", &version(0, 5000));
                for n in 1..=ROUNDS {
                    replace(program, "config", &version(n, 5000), correct);
                }
            },
            check: |left, _| whole(left, "config").map(drop),
            ..PLAIN
        },
        Toy {
            name: "a record acknowledged before it is synced",
            run: |program, correct| {
                with_file(program, "log", &[]);
                for n in 1..=ROUNDS {
                    program.append("log", &version(n, 100));
                    if correct {
                        program.sync("log");
                    }
                    program.say(n);
                    program.sync("log");
                }
            },
            check: |left, said| at_least(records(left, "log"), said),
            ..PLAIN
        },
        Toy {
            name: "a write-ahead log without a barrier before the data",
            run: |program, correct| {
                with_file(program, "log", &[]);
                with_file(program, "data", &version(0, 4096));
                for n in 1..=ROUNDS {
                    program.append("log", &version(n, 100));
                    if correct {
                        program.sync("log");
                    }
                    program.write("data", 0, &version(n, 4096));
                    program.sync("log");
                    program.sync("data");
                }
            },
            check: |left, _| {
                let (logged, data) = (records(left, "log"), whole(left, "data")?);
                at_least(logged, data)
            },
            ..PLAIN
        },
        Toy {
            name: "a pointer written before what it points to",
            run: |program, correct| {
                with_file(program, "heap", &[]);
                with_file(program, "pointer", &version(0, 100));
                for n in 1..=ROUNDS {
                    program.append("heap", &version(n, 100));
                    if correct {
                        program.sync("heap");
                    }
                    program.write("pointer", 0, &version(n, 100));
                    program.sync("pointer");
                }
            },
            check: |left, _| at_least(records(left, "heap"), whole(left, "pointer")?),
            ..PLAIN
        },
        Toy {
            name: "a log that trusts its length",
            run: |program, correct| {
                // Whoever reads the one checks each record.
                let log = if correct { "checked" } else { "trusted" };
                with_file(program, log, &[]);
                for n in 1..=ROUNDS {
                    program.append(log, &version(n, 100));
                    if n % 3 == 0 {
                        program.sync(log);
                        program.say(n);
                    }
                }
            },
            check: |left, said| {
                at_least(records(left, "checked").max(records(left, "trusted")), said)?;
                let len = left.get("trusted").map_or(0, |file| file.0.len() as u64 / 100);
                at_least(records(left, "trusted"), len)
            },
            ..PLAIN
        },
        Toy {
            name: "a new file synced, and not its folder",
            run: |program, correct| {
                program.begins();
                for n in 1..=ROUNDS {
                    let name = format!("file{n}");
                    program.create(&name);
                    program.write(&name, 0, &version(n, 500));
                    program.sync(&name);
                    if correct {
                        program.sync_folder();
                    }
                    program.say(n);
                }
            },
            check: |left, said| {
                (1..=said).try_for_each(|n| whole(left, &format!("file{n}")).map(drop))
            },
            names: Names::OnlyWithFolder,
            ..PLAIN
        },
        Toy {
            name: "two pages written in place as if they were one",
            run: |program, correct| {
                with_file(program, "state", &version(0, 8192));
                for n in 1..=ROUNDS {
                    if correct {
                        replace(program, "state", &version(n, 8192), true);
                    } else {
                        program.write("state", 0, &version(n, 8192));
                        program.sync("state");
                    }
                }
            },
            check: |left, _| whole(left, "state").map(drop),
            ..PLAIN
        },
        Toy {
            name: "the old generation removed before the new one is durable",
            run: |program, correct| {
                with_file(program, "gen0", &version(0, 5000));
                for n in 1..=ROUNDS {
                    let (old, new) = (format!("gen{}", n - 1), format!("gen{n}"));
                    program.create(&new);
                    program.write(&new, 0, &version(n, 5000));
                    if correct {
                        program.sync(&new);
                        program.sync_folder();
                    }
                    program.remove(&old);
                }
            },
            check: |left, _| {
                let any = left.keys().any(|name| whole(left, name).is_ok());
                if any { Ok(()) } else { Err("no generation is whole".into()) }
            },
            ..PLAIN
        },
        Toy {
            name: "a file cut to nothing and written again",
            run: |program, correct| {
                with_file(program, "config", &version(0, 300));
                for n in 1..=ROUNDS {
                    if correct {
                        replace(program, "config", &version(n, 300), true);
                    } else {
                        program.truncate("config", 0);
                        program.write("config", 0, &version(n, 300));
                        program.sync("config");
                    }
                }
            },
            check: |left, _| whole(left, "config").map(drop),
            ..PLAIN
        },
        Toy {
            name: "a log emptied before the rename that replaces it is durable",
            run: |program, correct| {
                with_file(program, "log", &[]);
                with_file(program, "base", &version(0, 3000));
                for n in 1..=ROUNDS {
                    program.append("log", &version(n, 100));
                    program.sync("log");
                    program.say(n);
                    program.create("new");
                    program.write("new", 0, &version(n, 3000));
                    program.sync("new");
                    program.rename("new", "base");
                    if correct {
                        program.sync_folder();
                    }
                    program.truncate("log", 0);
                    program.sync("log");
                }
            },
            check: |left, said| {
                let logged = left["log"].0.chunks(100).filter_map(version_of).max().unwrap_or(0);
                at_least(logged.max(whole(left, "base")?), said)
            },
            names: Names::OnlyWithFolder,
            ..PLAIN
        },
        Toy {
            name: "fdatasync for what it does not cover",
            run: |program, correct| {
                with_file(program, "secret", &version(0, 100));
                for n in 1..=ROUNDS {
                    program.mode("secret", 0o600 + n as u16);
                    if correct {
                        program.sync("secret")
                    } else {
                        program.sync_data("secret")
                    }
                    program.say(n);
                }
            },
            check: |left, said| at_least(u64::from(left["secret"].1).saturating_sub(0o600), said),
            ..PLAIN
        },
        Toy {
            name: "a page in place whose write is torn",
            run: |program, correct| {
                with_file(program, "slots", &[version(0, 4096), version(0, 4096)].concat());
                for n in 1..=ROUNDS {
                    let slot = if correct { n % 2 } else { 0 };
                    program.write("slots", slot * 4096, &version(n, 4096));
                    if !correct {
                        program.write("slots", 4096, &version(n, 4096));
                    }
                    program.sync("slots");
                    program.say(n);
                }
            },
            check: |left, said| {
                let newest = left["slots"].0.chunks(4096).filter_map(version_of).max();
                at_least(newest.ok_or("both slots are torn")?, said)
            },
            tear: true,
            ..PLAIN
        },
        Toy {
            name: "blocks that show what others had",
            run: |program, correct| {
                with_file(program, "old", &[7; 40_000]);
                program.remove("old");
                program.create("log");
                for n in 1..=ROUNDS {
                    program.append("log", &version(n, 5000));
                    if correct {
                        program.sync("log");
                    }
                    program.create("done");
                    program.write("done", 0, &version(n, 100));
                    program.sync("done");
                    program.rename("done", "newest");
                    program.sync_folder();
                }
            },
            check: |left, _| {
                let Some(_) = left.get("newest") else { return Ok(()) };
                let newest = whole(left, "newest")?;
                let log = left.get("log").map_or(&[][..], |file| &file.0);
                let good = log.chunks(5000).zip(1..);
                let good = good.take_while(|(bytes, n)| version_of(bytes) == Some(*n)).count();
                at_least(good as u64, newest)
            },
            journal: Journal::Writeback,
            ..PLAIN
        },
    ]
}

/// A toy without the syncs that it has while it runs: nothing but the order of its calls.
fn unsynced(toy: &Toy, correct: bool) -> Program {
    let mut program = Program::default();
    (toy.run)(&mut program, correct);
    program.events.retain(|event| !matches!(event, Event::Operation(Operation::Sync { .. })));
    program
}

fn with_data_in_the_journal(program: Program, tear: bool) -> Explorer {
    let files = files::Options { journal: Journal::Data, ..Default::default() };
    let options = Options { files, tear, seed: 1, ..Options::default() };
    Explorer::new(&program.initial, program.events, options).unwrap()
}

/// Whatever variant: what is left is what was after some call, however few syncs there are.
#[test]
fn with_data_in_the_journal_calls_keep_their_order() {
    let mut looked_at = 0;
    for (toy, correct) in toys().iter().flat_map(|toy| [(toy, false), (toy, true)]) {
        let explorer = with_data_in_the_journal(unsynced(toy, correct), toy.tear);
        let events = explorer.events().len();
        let all = (0..=events).map(|cut| hash(&mut explorer.state(cut, 1).unwrap().files).unwrap());
        let all: Vec<u64> = all.collect();
        let mut late = 0;
        let variants = |cut| (cut as u64 % 4..40).step_by(4).map(move |variant| (cut, variant));
        let each = (0..=events).flat_map(variants);
        for (cut, variant) in each.chain((0..200).map(|n| explorer.choose(n))) {
            let mut state = explorer.state(cut, variant).unwrap();
            let found = hash(&mut state.files).unwrap();
            let at = all[..=cut].iter().rposition(|&sum| sum == found);
            let at = at.unwrap_or_else(|| panic!("{}: cut {cut}, variant {variant}", toy.name));
            late += usize::from(at < cut);
            looked_at += 1;
        }
        assert!(late > 20, "{}: hardly anything is lost", toy.name);
    }
    println!("{looked_at} states");
}

/// Programs that only rely on the order of their calls need no sync there, and those that said
/// too much are found as ever.
#[test]
fn with_data_in_the_journal_only_lost_tails_are_found() {
    let (mut whole, mut lost) = (0, Vec::new());
    for toy in toys() {
        let explorer = with_data_in_the_journal(unsynced(&toy, false), toy.tear);
        let (mut order, mut tail) = (Ok(()), Ok(()));
        for n in 0..FIND_WITHIN / 2 {
            let (cut, variant) = explorer.choose(n);
            let left = left(&mut explorer.state(cut, variant).unwrap());
            let said = explorer.output(cut, 1).last().map_or(0, |&n| u64::from(n));
            order = order.and((toy.check)(&left, 0));
            tail = tail.and((toy.check)(&left, said));
        }
        match (order, tail) {
            (Ok(()), Ok(())) => whole += 1,
            (Ok(()), Err(_)) => lost.push(toy.name),
            // It has a moment itself in which there is nothing.
            (Err(_), _) => assert_eq!(toy.name, "a file cut to nothing and written again"),
        }
    }
    assert_eq!((whole, lost.len()), (6, 6), "{lost:?}");
}

/// The first state in which something is wrong.
fn first_wrong(toy: &Toy, correct: bool, states: u64) -> Option<(u64, String)> {
    let mut program = Program::default();
    (toy.run)(&mut program, correct);
    let files = files::Options { names: toy.names, journal: toy.journal, ..Default::default() };
    let options = Options { files, tear: toy.tear, seed: 1, ..Options::default() };
    let explorer = Explorer::new(&program.initial, program.events, options).unwrap();
    let mut seen = HashSet::new();
    for n in 0..states {
        let (cut, variant) = explorer.choose(n);
        let mut state = explorer.state(cut, variant).unwrap();
        if !seen.insert(explorer.hash(&mut state).unwrap()) {
            continue;
        }
        let said = explorer.output(cut, 1).last().map_or(0, |&n| u64::from(n));
        if let Err(what) = (toy.check)(&left(&mut state), said) {
            return Some((n, format!("cut {cut}, {:?}: {what}", state.variant)));
        }
    }
    println!("{}: {} different states of {states}", toy.name, seen.len());
    None
}

#[test]
fn each_bug_is_found() {
    let mut missed = Vec::new();
    for toy in toys() {
        match first_wrong(&toy, false, FIND_WITHIN) {
            Some((n, what)) => println!("{}: state {n}: {what}", toy.name),
            None => missed.push(toy.name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn what_is_correct_survives() {
    for toy in toys() {
        if let Some((n, what)) = first_wrong(&toy, true, SURVIVE) {
            panic!("{}: state {n}: {what}", toy.name);
        }
    }
}
