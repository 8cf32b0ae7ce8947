//! The compiled form against the interpreter, on generated sets; and the interpreter's own
//! look at whether a set that was accepted stays inside what it has.

use port::random::Random;
use rules::{Address, Budget, Compiled, Interpreter, State, Verdict, check, parse};

use crate::generate::Generator;

/// What became of so many sets.
#[derive(Debug, Default)]
pub struct Counts {
    pub sets: u64,
    pub accepted: u64,
    pub requests: u64,
    /// Requests that a rule decided.
    pub decided: u64,
}

/// One set and a few requests, through both.
fn life(seed: u64, counts: &mut Counts) {
    let mut generator = Generator::new(seed);
    let text = generator.set();
    counts.sets += 1;
    let set = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {}", e.render("text", &text)));
    let Ok(checked) = check(set, &Budget::default()) else { return };
    counts.accepted += 1;
    let compiled = Compiled::new(&checked);
    let mut state = State::new(checked.set());
    let mut slow = Interpreter::new(checked.set());
    let (mut now, mut place) = (0, 0);
    for _ in 0..12 {
        now += generator.random.below(3_000);
        let (request, view) = (generator.request(), generator.view(now));
        let decision = slow.decide(&request, &view);
        let decision = decision.unwrap_or_else(|e| panic!("seed {seed}: {e}: {request:?}\n{text}"));
        assert!(slow.steps() <= checked.steps(), "seed {seed}: {}\n{text}", slow.steps());
        let fast = compiled.decide(&mut state, &request, &view);
        assert_eq!(fast, decision, "seed {seed}: {request:?} {view:?}\n{text}");
        counts.requests += 1;
        counts.decided += u64::from(decision.rule.is_some());
        let mut stores = Vec::new();
        if let Verdict::Place { unit, entry: Some(entry), .. } = decision.verdict {
            let unit = unit.unwrap_or_else(|| generator.any_unit(request.application));
            stores.push((entry, unit));
        }
        stores.extend(decision.fill.map(|fill| (fill.entry, fill.unit.unwrap_or(0))));
        stores.extend(decision.migrate.map(|migrate| (migrate.entry, migrate.unit)));
        for (entry, unit) in stores {
            place += 1;
            let address = Address::new(unit, place);
            slow.store(entry, address).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            state.store(checked.set(), entry, address).unwrap();
            assert_eq!(state.address(entry), address);
        }
    }
}

/// So many sets from a seed on.
fn lives(from: u64, count: u64) -> Counts {
    let mut counts = Counts::default();
    (from..from + count).for_each(|seed| life(seed, &mut counts));
    counts
}

#[test]
fn both_decide_the_same_and_none_leaves_what_it_has() {
    let counts = lives(0, 20_000);
    // A generator of which nothing is accepted, or nothing matches, tests nothing.
    assert!(counts.accepted * 3 > counts.sets, "{counts:?}");
    assert!(counts.decided * 5 > counts.requests, "{counts:?}");
}

/// `make soak`: PROGRAMS sets from PROGRAMS_SEED on.
#[test]
#[ignore = "long"]
fn programs_stay_inside_what_they_have() {
    let number = |name: &str, or: u64| {
        std::env::var(name).map_or(or, |text| text.parse().expect("a whole number"))
    };
    let (count, seed) = (number("PROGRAMS", 1_000_000), number("PROGRAMS_SEED", 0));
    let counts = lives(seed << 32, count);
    println!("{counts:?}");
}

/// What was accepted is not accepted only because nothing was looked at: the interpreter
/// finds sets that were not checked.
#[test]
fn the_interpreter_sees_what_the_checker_refuses() {
    let mut crossings = 0;
    for seed in 0..3_000 {
        let mut generator = Generator::new(seed);
        let set = parse(&generator.set()).unwrap();
        if check(set.clone(), &Budget::default()).is_ok() {
            continue;
        }
        let mut slow = Interpreter::new(&set);
        for now in 0..12 {
            let (request, view) = (generator.request(), generator.view(now * 1_000));
            crossings += u64::from(slow.decide(&request, &view).is_err());
        }
    }
    assert!(crossings > 300, "{crossings}");
}

/// What a checked set is printed as is the same set.
#[test]
fn printed_and_read_again_a_set_is_the_same() {
    for seed in 0..3_000 {
        let set = parse(&Generator::new(seed).set()).unwrap();
        let text = set.to_string();
        let again = parse(&text).unwrap_or_else(|e| panic!("{}", e.render("text", &text)));
        assert_eq!(again, set, "seed {seed}");
        assert_eq!(again.to_string(), text, "seed {seed}");
    }
}

/// Any bytes, and texts with a few bytes changed, give a tree or a problem that can be told.
#[test]
fn no_bytes_panic() {
    let mut random = Random::new(1, 1);
    let words =
        ["rule", "when", "(", "[", "m0", "..", "not", "and", "==", "9", "K", "\n", "é", "#"];
    for seed in 0..20_000 {
        let mut bytes = match seed % 3 {
            0 => (0..random.below(80)).map(|_| random.bits() as u8).collect(),
            _ => Generator::new(seed).set().into_bytes(),
        };
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            let word = words[random.below(words.len() as u64) as usize];
            match random.below(3) {
                0 => drop(bytes.splice(at..at, word.bytes())),
                1 => bytes.truncate(at),
                _ => drop(bytes.splice(at..(at + 3).min(bytes.len()), [random.bits() as u8])),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match rules::parse_bytes(&bytes) {
            Ok(set) => match check(set, &Budget::default()) {
                Ok(checked) => drop(Compiled::new(&checked)),
                Err(problems) => {
                    assert!(!problems.is_empty());
                    problems.iter().for_each(|p| assert!(!p.render("a", &text).is_empty()));
                }
            },
            Err(problem) => assert!(problem.render("a", &text).contains("error: ")),
        }
    }
}

/// What is deep, long or many is refused, and soon.
#[test]
fn the_greatest_texts_are_bounded() {
    let deep = |open: &str| format!("set a rule r priority 0 when {}", open.repeat(200_000));
    for text in [deep("("), deep("not "), deep("m["), deep("min("), deep("1 + "), deep("1 < ")] {
        assert!(parse(&text).is_err());
    }
    assert!(parse(&" ".repeat(2 << 20)).is_err());
    let rules = |n: usize| {
        let rule = |n| format!("rule r{n} priority {n} when lba == {n} then drop\n");
        format!("set a application 0 lba 0..9999\n{}", (0..n).map(rule).collect::<String>())
    };
    assert!(parse(&rules(4097)).is_err());
    let checked = check(parse(&rules(4096)).unwrap(), &Budget::default()).unwrap();
    let compiled = Compiled::new(&checked);
    assert!(compiled.bytes() < 4 << 20, "{}", compiled.bytes());
}
