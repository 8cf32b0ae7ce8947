//! The rule files of `examples/rules`: they are as they are printed but for comments, the
//! checker accepts them without a warning, and both evaluators do with them what they say.

use rules::decision::{Collect, Fill, Policy};
use rules::{
    Address, Budget, Checked, Compiled, Decision, Entry, Interpreter, Op, Request, State, Verdict,
    View, check, parse,
};

const FILES: [(&str, &str); 5] = [
    ("table1", include_str!("../../../../examples/rules/table1.rules")),
    ("minimal", include_str!("../../../../examples/rules/minimal.rules")),
    ("zoned", include_str!("../../../../examples/rules/zoned.rules")),
    ("tenants", include_str!("../../../../examples/rules/tenants.rules")),
    ("cache", include_str!("../../../../examples/rules/cache.rules")),
];

fn checked(name: &str) -> Checked {
    let text = FILES.iter().find(|file| file.0 == name).expect("there is one").1;
    let set = parse(text).unwrap_or_else(|e| panic!("{}", e.render(name, text)));
    check(set, &Budget::default()).unwrap_or_else(|problems| {
        let told: Vec<String> = problems.iter().map(|p| p.render(name, text)).collect();
        panic!("{}", told.join("\n"))
    })
}

/// A file, in both evaluators.
struct Both<'c> {
    checked: &'c Checked,
    compiled: Compiled,
    state: State,
    slow: Interpreter<'c>,
    view: View,
}

impl<'c> Both<'c> {
    fn new(checked: &'c Checked) -> Both<'c> {
        Both {
            compiled: Compiled::new(checked),
            state: State::new(checked.set()),
            slow: Interpreter::new(checked.set()),
            view: View { free: 50, ..View::default() },
            checked,
        }
    }

    /// What both say of a request, and the name of the rule.
    #[track_caller]
    fn ask(&mut self, request: Request) -> (Decision, &'c str) {
        let decision = self.slow.decide(&request, &self.view).unwrap();
        let fast = self.compiled.decide(&mut self.state, &request, &self.view);
        assert_eq!(fast, decision, "{request:?}");
        let rule = |n: u16| self.checked.set().rules[usize::from(n)].name.text.as_str();
        (decision, decision.rule.map_or("", rule))
    }

    /// The same of one block, of application 0.
    #[track_caller]
    fn block(&mut self, op: Op, lba: u64) -> (Verdict, &'c str) {
        let (decision, rule) = self.ask(request(0, op, lba, 4096));
        (decision.verdict, rule)
    }

    fn store(&mut self, entry: Entry, unit: u16, place: u64) -> Option<Address> {
        let address = Address::new(unit, place);
        self.slow.store(entry, address).unwrap();
        self.state.store(self.checked.set(), entry, address).unwrap();
        address
    }
}

fn request(application: u16, op: Op, lba: u64, size: u64) -> Request {
    Request { op, application, channel: 0, lba, size, placement: 0 }
}

#[test]
fn files_are_right_and_as_they_are_printed() {
    for (name, text) in FILES {
        let checked = checked(name);
        let warnings: Vec<String> =
            checked.warnings().iter().map(|warning| warning.what.to_string()).collect();
        // The paper's table has no more.
        let expected: &[&str] = match name {
            "table1" => &["no rule decides trim, zero, flush of application 0"],
            _ => &[],
        };
        assert_eq!(warnings, expected, "{name}");
        let words = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
            lines.flat_map(str::split_whitespace).map(str::to_string).collect()
        };
        assert_eq!(words(&checked.set().to_string()), words(text), "{name}");
    }
}

#[test]
fn table_1_writes_reads_and_collects() {
    let checked = checked("table1");
    let mut drive = Both::new(&checked);
    assert_eq!(drive.block(Op::Read, 7), (Verdict::Serve(None), "read"));
    // One unit after the other.
    let mut at = Vec::new();
    for n in 0..20u64 {
        let (verdict, rule) = drive.block(Op::Write, n % 10);
        let Verdict::Place { unit: Some(unit), stream: 0, entry: Some(entry) } = verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!((u64::from(unit), entry.key, rule), ((n + 1) % 8, n % 10, "write"));
        at.push(drive.store(entry, unit, n));
    }
    for lba in 0..10 {
        assert_eq!(drive.block(Op::Read, lba).0, Verdict::Serve(at[10 + lba as usize]));
    }
    // Short of chunks a write asks for collection, and is placed all the same.
    drive.view.free = 14;
    let (decision, rule) = drive.ask(request(0, Op::Write, 3, 4096));
    assert_eq!(decision.collect, Some(Collect { policy: Policy::Greedy, unit: None }));
    assert!(matches!(decision.verdict, Verdict::Place { .. }) && rule == "write");
    // The table says nothing of trims: the controller is asked. Others have no rules here.
    assert_eq!(drive.block(Op::Trim, 3), (Verdict::Ask, ""));
    assert_eq!(drive.ask(request(1, Op::Write, 3, 4096)).0.verdict, Verdict::Refuse);
    assert_eq!(drive.block(Op::Write, 256 << 10), (Verdict::Refuse, ""));
}

#[test]
fn a_trimmed_block_is_nowhere() {
    let checked = checked("minimal");
    let mut drive = Both::new(&checked);
    let Verdict::Place { entry: Some(entry), .. } = drive.block(Op::Write, 9).0 else { panic!() };
    let address = drive.store(entry, 4, 1);
    assert_eq!(drive.block(Op::Read, 9).0, Verdict::Serve(address));
    assert_eq!(drive.block(Op::Trim, 9), (Verdict::Drop, "trim"));
    assert_eq!(drive.block(Op::Read, 9).0, Verdict::Serve(None));
    assert_eq!(drive.block(Op::Flush, 0), (Verdict::Pass, "flush"));
    drive.view = View { idle: 2_000_000, free: 12, ..View::default() };
    assert!(drive.ask(request(0, Op::Idle, 0, 0)).0.collect.is_some());
}

#[test]
fn a_zone_is_written_in_order() {
    let checked = checked("zoned");
    let mut drive = Both::new(&checked);
    let place = |unit| Verdict::Place { unit: Some(unit), stream: 0, entry: None };
    assert_eq!(drive.block(Op::Write, 4096), (place(1), "append"));
    assert_eq!(drive.block(Op::Write, 4096), (Verdict::Refuse, "out_of_order"));
    assert_eq!(drive.ask(request(0, Op::Write, 4097, 3 * 4096)).0.verdict, place(1));
    assert_eq!(drive.block(Op::Write, 4100).0, place(1));
    assert_eq!(drive.block(Op::Read, 4100), (Verdict::Pass, "read"));
    assert_eq!(drive.block(Op::Read, 4101), (Verdict::Drop, "unwritten"));
    assert_eq!(drive.block(Op::Trim, 4097), (Verdict::Refuse, "partial_reset"));
    assert_eq!(drive.block(Op::Trim, 4096), (Verdict::Pass, "reset"));
    assert_eq!(drive.block(Op::Write, 4096).0, place(1));
    // The whole zone, and nothing past its end.
    assert_eq!(drive.ask(request(0, Op::Write, 4097, 4096 * 4096)).1, "out_of_order");
    assert_eq!(drive.ask(request(0, Op::Write, 4097, 4095 * 4096)).1, "append");
    assert_eq!(drive.block(Op::Write, 8192).0, place(2));
}

#[test]
fn tenants_stay_on_their_units() {
    let checked = checked("tenants");
    let mut drive = Both::new(&checked);
    for n in 0..3000u64 {
        let application = 1 + (n % 3) as u16;
        let lba = ((u64::from(application) - 1) << 20) + n;
        drive.view.now = n * 1000;
        let (decision, _) = drive.ask(request(application, Op::Write, lba, 4096 << (n % 6)));
        let Verdict::Place { unit, .. } = decision.verdict else { panic!("{decision:?}") };
        let units = [0..8, 8..16, 16..20][usize::from(application) - 1].clone();
        assert!(unit.is_none_or(|unit| units.contains(&unit)));
        assert_eq!(decision.share, [Some(8), Some(2), None][usize::from(application) - 1]);
        assert_eq!(decision.depth.is_some(), application == 3);
        // Its burst of 100, and then one each half millisecond: of 1000 in 3 ms none is in time.
        assert_eq!(decision.delay > 0, application == 3 && n / 3 >= 100, "{n}");
    }
    let read = drive.ask(request(2, Op::Read, 1 << 20, 4096)).0;
    assert_eq!((read.verdict, read.delay), (Verdict::Pass, 0));
    let beyond = drive.ask(request(2, Op::Read, 5, 4096)).0;
    assert_eq!(beyond.verdict, Verdict::Refuse, "another's blocks");
}

#[test]
fn what_is_read_often_is_kept() {
    let checked = checked("cache");
    let mut drive = Both::new(&checked);
    let remote = Verdict::Remote(0);
    assert_eq!(drive.block(Op::Read, 70_000), (remote, "miss"));
    assert_eq!(drive.block(Op::Read, 70_000), (remote, "miss"));
    let (decision, rule) = drive.ask(request(0, Op::Read, 70_000, 4096));
    let Some(Fill { unit: Some(0), entry }) = decision.fill else { panic!("{decision:?}") };
    assert_eq!((decision.verdict, rule), (remote, "keep"));
    assert_eq!(drive.block(Op::Read, 70_000), (remote, "miss"), "not yet there");
    let address = drive.store(entry, 0, 5);
    assert_eq!(drive.block(Op::Read, 70_000), (Verdict::Serve(address), "hit"));
    // Another block of the same place, and a write, are not served from there.
    assert_eq!(drive.block(Op::Read, 70_000 - 65_536), (remote, "miss"));
    assert_eq!(drive.block(Op::Write, 70_000), (remote, "write"));
    assert_eq!(drive.block(Op::Read, 70_000).0, remote);
}
