//! States are named by numbers.

use std::collections::BTreeSet;
use std::time::Instant;

use crash::{CrashError, Event, Explorer, Options, Variant, hash};
use files::{Inode, Journal, Names, Operation};
use port::random::Random;

use crate::program::{Program, left};

fn program(rounds: u64, len: usize) -> Program {
    let mut program = Program::default();
    for n in 0..8 {
        let name = format!("file{n}");
        program.create(&name);
        program.write(&name, 0, &vec![n as u8; len]);
    }
    program.begins();
    let mut random = Random::new(1, 1);
    for n in 0..rounds {
        let name = format!("file{}", random.below(8));
        match random.below(6) {
            0 => program.sync(&name),
            1 => program.truncate(&name, random.below(len as u64)),
            2 => program.say(n),
            _ => program.write(&name, random.below(len as u64), &vec![n as u8; 5000]),
        }
    }
    program
}

fn explorer(journal: Journal, names: Names, seed: u64) -> Explorer {
    let Program { initial, events, .. } = program(80, 20_000);
    let files = files::Options { journal, names, ..Default::default() };
    let options = Options { files, tear: true, seed, ..Options::default() };
    Explorer::new(&initial, events, options).unwrap()
}

#[test]
fn numbers_name_a_state_whatever_was_asked_before() {
    for journal in [Journal::Ordered, Journal::Writeback, Journal::None, Journal::Data] {
        let (one, two) =
            (explorer(journal, Names::WithFile, 5), explorer(journal, Names::WithFile, 5));
        let other = explorer(journal, Names::WithFile, 6);
        let (mut all, mut differ) = (BTreeSet::new(), 0);
        let ask = |explorer: &Explorer, n| {
            let (cut, variant) = explorer.choose(n);
            let mut state = explorer.state(cut, variant).unwrap();
            assert_eq!(state.files.check(), Vec::<String>::new());
            (explorer.hash(&mut state).unwrap(), hash(&mut state.files).unwrap())
        };
        let forwards: Vec<_> = (0..200).map(|n| ask(&one, n)).collect();
        for n in (0..200).rev() {
            assert_eq!(ask(&two, n), forwards[n as usize], "{journal:?}, state {n}");
            differ += u64::from(ask(&other, n) != forwards[n as usize]);
            all.insert(forwards[n as usize]);
        }
        // Where all has one order there are fewer.
        let least = if journal == Journal::Data { 50 } else { 100 };
        assert!(all.len() > least && differ > 50, "{} different, {differ}", all.len());
    }
}

#[test]
fn what_was_synced_is_there_and_all_is_what_is() {
    let mut program = Program::default();
    program.create("file");
    program.write("file", 0, &[1; 10_000]);
    program.sync("file");
    program.say(1);
    program.write("file", 4000, &[2; 3000]);
    program.create("other");
    let all = program.events.len();
    let explorer = Explorer::new(&[], program.events, Options::default()).unwrap();
    let mut nothing = left(&mut explorer.state(all, 0).unwrap());
    assert_eq!(nothing.remove("file").unwrap().0, [1; 10_000]);
    assert!(nothing.is_empty());
    let everything = left(&mut explorer.state(all, 1).unwrap());
    assert_eq!(everything["file"].0[4000..7000], [2; 3000]);
    assert!(everything.contains_key("other"));
    assert_eq!(explorer.output(all, 1), [1]);
    assert_eq!(explorer.output(3, 1), [0; 0]);
    assert!(left(&mut explorer.state(0, 1).unwrap()).is_empty());
    assert_eq!(explorer.state(all, 2).unwrap().variant, Variant::NoData);
}

#[test]
fn what_cannot_be_is_an_error() {
    let forget = Event::Operation(Operation::Forget { inode: Inode(9) });
    let wrong = Explorer::new(&[], vec![Event::Mark("a".into()), forget], Options::default());
    assert!(matches!(wrong, Err(CrashError::Event { number: 1, .. })));
    let none = Explorer::new(&[], Vec::new(), Options::default()).unwrap();
    assert!(matches!(none.state(1, 0), Err(CrashError::Cut { cut: 1, events: 0 })));
    let wrong =
        Explorer::new(&[Operation::Forget { inode: Inode(9) }], Vec::new(), Options::default());
    assert!(matches!(wrong, Err(CrashError::Initial(_))));
}

/// `cargo test --release -p ssdkit-crash -- --ignored --nocapture cost`
#[test]
#[ignore = "it prints times, and nothing is wrong with any"]
fn cost_of_a_state_of_a_megabyte() {
    let Program { initial, events, .. } = program(1000, 1 << 17);
    let explorer = Explorer::new(&initial, events, Options::default()).unwrap();
    let (begin, mut hashing) = (Instant::now(), 0.0);
    for n in 0..1000 {
        let (cut, variant) = explorer.choose(n);
        let mut state = explorer.state(cut, variant).unwrap();
        let before = Instant::now();
        explorer.hash(&mut state).unwrap();
        hashing += before.elapsed().as_secs_f64();
    }
    let all = begin.elapsed().as_secs_f64();
    println!("a state takes {:.0} us, its hash {:.0} us", (all - hashing) * 1e3, hashing * 1e3);
}

/// Of two pages of a file that were written one after the other the second may come alone.
#[test]
fn pages_of_one_file_come_in_any_order_among_the_first_states() {
    let mut program = Program::default();
    program.create("pages");
    program.write("pages", 0, &[1; 8192]);
    program.sync("pages");
    program.write("pages", 0, &[2; 4096]);
    program.write("pages", 4096, &[3; 4096]);
    let explorer = Explorer::new(&[], program.events, Options::default()).unwrap();
    let is_found = (0..100).any(|n| {
        let (cut, variant) = explorer.choose(n);
        let mut state = explorer.state(cut, variant).unwrap();
        let left = left(&mut state);
        left.get("pages")
            .is_some_and(|file| file.0.first() == Some(&1) && file.0.last() == Some(&3))
    });
    assert!(is_found);
}
