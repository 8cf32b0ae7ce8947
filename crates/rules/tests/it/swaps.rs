//! Sets that change under load.

use rules::{Budget, Compiled, Live, Op, Request, Verdict, View, check, parse};

fn compiled(text: &str) -> Compiled {
    let set = parse(text).unwrap_or_else(|e| panic!("{}", e.render("text", text)));
    Compiled::new(&check(set, &Budget::default()).unwrap_or_else(|e| panic!("{e:?}")))
}

/// A set whose two rules show its number: one counts it and goes on, one decides.
fn numbered(number: u64) -> Compiled {
    let delay = number % 1000;
    let channel = number % 7;
    compiled(&format!(
        "set s{number}
         application 0 lba 0..1K channels 0..7
         counter total 0..1T
         counter of_this{number} 0..1T
         rule count priority 1 when always do total += 1; of_this{number} += 1 then delay {delay}ns
         rule go priority 0 when op == read then redirect {channel}"
    ))
}

const READ: Request =
    Request { op: Op::Read, application: 0, channel: 0, lba: 5, size: 4096, placement: 0 };

/// 10,000 sets are installed from another thread while requests run: each request is decided,
/// and by one set as a whole; the count that all sets declare goes on over all of them.
#[test]
fn ten_thousand_swaps_lose_no_request() {
    const SWAPS: u64 = 10_000;
    let (mut live, installer) = Live::new(numbered(0));
    let installing = std::thread::spawn(move || {
        for number in 1..=SWAPS {
            assert_eq!(installer.install(numbered(number)), number);
            while installer.taken() < number {
                std::thread::yield_now();
            }
        }
    });
    let (mut requests, mut seen, mut last) = (0u64, 1, 0);
    while live.number() < SWAPS || requests < 2 * SWAPS {
        let decision = live.decide(&READ, &View::default());
        requests += 1;
        if requests % 64 == 0 {
            std::thread::yield_now();
        }
        let number = live.number();
        assert!(number == last || number == last + 1, "none is left out");
        seen += u64::from(number != last);
        last = number;
        assert_eq!(decision.delay, number % 1000, "both rules are of set {number}");
        assert_eq!(decision.verdict, Verdict::Redirect((number % 7) as u16));
        assert_eq!(decision.rule, Some(1));
    }
    installing.join().unwrap();
    assert_eq!(seen, SWAPS + 1);
    let set = live.rules().set().clone();
    assert_eq!(live.state().counter(&set, "total"), Some(requests));
}

#[test]
fn what_is_declared_the_same_is_kept() {
    let text = |more: &str, heat: u64, rate: u64| {
        format!(
            "set a application 0 lba 0..100 units 0..2
             {more}
             map l2p[100] of address in 0..2
             map heat[{heat}] of 0..9
             counter n 0..50
             timer t
             limit l rate {rate} burst 1
             rule write priority 1 when op == write
               do heat[lba % 10] += 1; n += 2; start t then limit l, place unit 1 into l2p[lba]
             rule old priority 0 when since(t) > 5us and heat[3] > 0 and n == 2 then refuse"
        )
    };
    let (mut live, installer) = Live::new(compiled(&text("", 10, 1000)));
    let write = Request { op: Op::Write, lba: 3, ..READ };
    let view = |now| View { now, ..View::default() };
    let decision = live.decide(&write, &view(100_000));
    let Verdict::Place { unit: Some(1), entry: Some(entry), .. } = decision.verdict else {
        panic!("{decision:?}")
    };
    let address = rules::Address::new(1, 77);
    live.store(entry, address).unwrap();
    installer.install(compiled(&text("map first[5] of 0..2 counter m 0..2", 10, 1000)));
    assert_eq!(live.decide(&READ, &view(105_000)).verdict, Verdict::Ask);
    assert_eq!(live.number(), 1);
    assert_eq!(live.decide(&READ, &view(105_001)).verdict, Verdict::Refuse, "timer and counters");
    let moved = rules::Entry { map: 1, ..entry };
    assert_eq!(live.state().address(moved), address);
    assert_eq!(live.decide(&write, &view(105_001)).delay, 1_000_000 - 5_001, "the limit's pace");
    // Another size, another rate: anew.
    installer.install(compiled(&text("", 12, 500)));
    assert_eq!(live.decide(&READ, &view(200_000)).verdict, Verdict::Ask);
    assert_eq!(live.state().address(entry), address);
    assert_eq!(live.decide(&write, &view(200_000)).delay, 0);
    // An entry that there is no more is an error.
    let stray = rules::Entry { map: 0, key: 100 };
    assert!(live.store(stray, address).is_err());
    assert!(live.store(entry, rules::Address::new(5, 1)).is_err());
}

/// Where one waits and another comes, the newer is used.
#[test]
fn the_newest_is_used() {
    let (mut live, installer) = Live::new(numbered(0));
    installer.install(numbered(1));
    installer.install(numbered(2));
    assert_eq!((live.number(), installer.taken()), (0, 0));
    assert_eq!(live.decide(&READ, &View::default()).verdict, Verdict::Redirect(2));
    assert_eq!((live.number(), installer.taken()), (2, 2));
}

/// What a rule has counted goes on in a set that has a rule of its name, wherever it stands;
/// who installs sees it.
#[test]
fn counts_go_on_by_name() {
    let with =
        |rules: &str| compiled(&format!("set a application 0 lba 0..1K channels 0..2 {rules}"));
    let (mut live, installer) = Live::new(with(
        "rule b priority 1 when op == read and lba == 5 then delay 1us
         rule a priority 0 when op == read then redirect 1",
    ));
    let counts = |installer: &rules::Installer| {
        let rules = installer.rules();
        let named = |n: usize| (rules.set().rules[n].name.text.clone(), rules.hits().of(n));
        ((0..rules.set().rules.len()).map(named).collect::<Vec<_>>(), rules.hits().undecided())
    };
    let ask =
        |live: &mut Live, op, lba| live.decide(&Request { op, lba, ..READ }, &View::default());
    for lba in 3..7 {
        ask(&mut live, Op::Read, lba);
    }
    ask(&mut live, Op::Write, 0);
    // Idle time that no rule decides, and what is outside, are no misses.
    ask(&mut live, Op::Idle, 0);
    ask(&mut live, Op::Read, 2000);
    assert_eq!(counts(&installer), (vec![("b".into(), 1), ("a".into(), 4)], 1));
    installer.install(with(
        "rule a priority 0 when op == read then redirect 0
         rule aa priority 0 when op == write then refuse
         rule c priority 0 when op == trim then refuse",
    ));
    // The old one is seen until the drive has taken the new one.
    assert_eq!(counts(&installer).0.len(), 2);
    ask(&mut live, Op::Write, 0);
    let expected = vec![("a".into(), 4), ("aa".into(), 1), ("c".into(), 0)];
    assert_eq!(counts(&installer), (expected, 1));
}

/// Whoever has the drive may install at once; what was brought to it meanwhile is used instead.
#[test]
fn what_waits_is_not_replaced() {
    let (mut live, installer) = Live::new(numbered(0));
    assert!(live.replace(numbered(1)));
    assert_eq!((live.number(), installer.taken()), (1, 1));
    installer.clone().install(numbered(2));
    assert!(!live.replace(numbered(3)));
    assert_eq!(live.number(), 2);
    assert_eq!(live.decide(&READ, &View::default()).verdict, Verdict::Redirect(2));
}
