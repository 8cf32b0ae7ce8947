//! Each test on a small drive whose answer is known, and each reason to be void.

use clap::Parser;
use load::tally::Tally;
use measure::Gauges;
use port::{BlockOp, Time};
use targets::WriteCounters;

use super::*;
use crate::session::{Access, means_something};

/// What bounds [`CORE`] with requests of 4 KiB, in requests a second: the link.
const MOST: f64 = 1e9 / 4096.0;
/// A controller of one core, which does 250 k commands a second, with a link of 1 GB/s.
const CORE: &str = "mem:znand,cores=1,core_read=4us,core_write=4us,link_rate=1GB/s,size=32M";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: TestArgs,
}

fn try_test(line: &str) -> Result<Outcome, Error> {
    let args = Line::parse_from(format!("test {line}").split_whitespace()).args;
    let (test, drive) = (Test::named(&args.name.unwrap())?, args.drive.unwrap().found()?);
    test.measure(&drive, &args.options, &mut Watch::quiet())
}

fn test(line: &str) -> Outcome {
    try_test(line).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// A server has 1 GiB for its clients, twice 1 MiB for each request that may be out.
#[test]
fn a_server_is_asked_for_what_a_test_needs() {
    let most = |line: &str| {
        let args = Line::parse_from(format!("test {line}").split_whitespace()).args;
        let test = Test::named(&args.name.unwrap()).unwrap();
        test.most_out(&args.drive.unwrap().found().unwrap(), &args.options)
    };
    for test in Test::ALL.iter().filter(|test| !test.needs_arrivals) {
        assert!(most(&format!("{} channel:/c", test.name)) <= 256, "{}", test.name);
    }
    assert_eq!(most("iops channel:/c --qd 4"), 8);
    assert_eq!(most("iops /dev/sdb"), 1024);
}

fn figure(outcome: &Outcome, name: &str) -> Option<f64> {
    let found = outcome.found.figures.iter().find(|figure| figure.name == name);
    found.unwrap_or_else(|| panic!("{name} in {outcome:?}")).value
}

fn near(what: &str, ours: f64, known: f64, by: f64) {
    assert!((ours / known - 1.0).abs() < by, "{what}: {ours} for {known}");
}

#[test]
fn the_matrix_is_bounded_by_core_and_link() {
    let outcome = test(&format!("iops {CORE},store=none --quick"));
    assert!(matches!(outcome.verdict, Verdict::Steady(_)), "{}", outcome.headline());
    let table = &outcome.found.tables[0];
    assert_eq!((table.rows.len(), table.columns.len()), (7, 7), "of a drive of whole blocks");
    let row = |name: &str| {
        let row = table.rows.iter().find(|row| row.0 == name).unwrap();
        row.1.iter().map(|iops| iops.unwrap()).collect::<Vec<f64>>()
    };
    for name in ["100/0", "0/100"] {
        let iops = row(name);
        // Columns are from the largest to the smallest.
        assert!(iops.windows(2).all(|pair| pair[0] < 1.02 * pair[1]), "{name}: {iops:?}");
    }
    let reads = row("100/0");
    near("4 KiB reads", reads[6], MOST, 0.03);
    near("1 MiB reads", reads[0], 1e9 / f64::from(1 << 20), 0.05);
    // A round is told where the window began.
    let search = &outcome.found.searches[0];
    assert_eq!(search.first() + search.window, search.rounds);
}

#[test]
fn throughput_is_the_link_s() {
    let outcome = test(&format!("throughput {CORE},store=none --quick"));
    for (size, values) in &outcome.found.tables[0].rows {
        near(size, values[0].unwrap(), 1e9, 0.05);
        assert!(values[1].unwrap() < 1.01e9, "{values:?}");
    }
    assert_eq!(outcome.found.searches.len(), 2);
    assert_eq!(outcome.to_json()["rounds"][1]["of"], "128 KiB");
}

#[test]
fn latency_is_of_one_request_at_a_time() {
    let outcome = test(&format!("latency {CORE},store=memory --quick"));
    let table = &outcome.found.tables[0];
    assert_eq!(table.rows.len(), 9, "parts of blocks, too");
    let bench = |name: &str| table.rows.iter().find(|row| row.0 == name).unwrap().1[0].unwrap();
    assert!(bench("100/0 8 KiB") > bench("100/0 4 KiB"), "{table:?}");
    // 512 bytes are written by way of a read.
    assert!(bench("0/100 512 B") > bench("0/100 4 KiB"), "{table:?}");
}

/// Reads that come after writes are not those of a drive that still programs them.
#[test]
fn a_run_has_nothing_of_the_one_before_it() {
    let outcome = test("latency mem:tlc,size=64M,pages=12,store=none --quick");
    let row = outcome.found.tables[0].rows.iter().find(|row| row.0 == "100/0 8 KiB").unwrap();
    let [mean, longest] = [0, 4].map(|column| row.1[column].unwrap());
    assert!(longest < 3.0 * mean, "{row:?}");
}

/// All that is physical is written before anything is collected.
#[test]
fn the_cliff_is_where_the_drive_is_physically_full() {
    let outcome = test("write-saturation mem:datacenter-tlc,size=512M,store=none --quick");
    let spare = outcome.drive.1["spare"].as_f64().unwrap();
    let cliff = figure(&outcome, "cliff").expect("it has one");
    let full = 1.0 / (1.0 - spare);
    assert!((full - 0.1..full + 0.25).contains(&cliff), "{cliff} for {full}");
    let (fresh, steady) =
        (figure(&outcome, "empty drive, 5 to 25 % of the first fill"), figure(&outcome, "steady"));
    assert!(steady < fresh, "{}", outcome.headline());
}

#[test]
fn the_knee_is_below_what_the_drive_does() {
    let outcome = test(&format!("open-loop {CORE},store=none --quick --read-percent 100"));
    assert_eq!(outcome.verdict, Verdict::Done, "reads alone leave the drive as it is");
    near("the most", figure(&outcome, "the most, closed loop").unwrap(), MOST, 0.02);
    let knee = figure(&outcome, "knee, of the most").expect("a queue grows");
    assert!((40.0..100.0).contains(&knee), "{knee}");
    let reached = &outcome.found.tables[0].rows[4].1;
    near("half of it", reached[1].unwrap(), MOST / 2.0, 0.03);
}

/// One core of 4 us, a link of 1 GB/s, and reads of znand of 3 us: what each pattern takes
/// follows.
#[test]
fn patterns_cost_what_they_are_made_of() {
    let outcome = test(&format!("uflip {CORE},store=memory --quick"));
    assert_eq!(outcome.verdict, Verdict::Done);
    let tables = &outcome.found.tables;
    let table = |name: &str| tables.iter().find(|table| table.name == name).unwrap();
    let column = |name: &str, of: &str| -> Vec<f64> {
        let table = table(name);
        let at = table.columns.iter().position(|column| column == of).unwrap();
        table.rows.iter().map(|row| row.1[at].unwrap()).collect()
    };
    // A request takes its bytes' time on the link, and more.
    let reads = column("granularity", "RR");
    assert_eq!(reads.len(), 10, "512 B to 256 KiB");
    for (n, ns) in reads.iter().enumerate() {
        assert!(*ns > (512 << n) as f64, "{reads:?}");
    }
    assert!(reads.is_sorted(), "{reads:?}");
    near("256 KiB by 128 KiB", reads[9] - reads[8], f64::from(128 << 10), 0.1);
    // Sixteen at once are as fast as the link.
    let at_once = column("parallelism", "RR");
    near("16 at once", at_once[4], 16.0 * f64::from(32 << 10), 0.05);
    // Reads have no order, and do not mind another.
    for name in ["partitioning", "order"] {
        for ns in column(name, "SR") {
            near(name, ns, at_once[0], 0.1);
        }
    }
    // A shift of a sector makes of each write parts of two blocks.
    let shifted = column("alignment", "RW");
    assert!(shifted[1] > shifted[0] && shifted.len() == 7, "{shifted:?}");
    // Half of the one and half of the other.
    let mixed = column("mix", "SR/RR");
    near("mix", mixed[0], at_once[0], 0.1);
    assert_eq!(table("locality").rows.len(), 11, "32 KiB to 32 MiB");
    assert_eq!((table("pause").rows.len(), table("bursts").rows.len()), (10, 3));
}

#[test]
fn a_lone_reader_waits_for_programs() {
    let outcome = test("interference mem:tlc,size=32M,store=none,suspend=false --quick");
    assert_eq!(outcome.settings["period_seconds"], 5.0);
    assert!(outcome.to_text().contains("runs of 5.00 s, "), "{}", outcome.to_text());
    let ratio = figure(&outcome, "p99 beside 16 writes by that alone").unwrap();
    assert!(ratio > 5.0, "{}", outcome.headline());
    let writes = &outcome.found.tables[1].rows;
    assert!(writes[0].1[0].is_none() && writes[3].1[0] > Some(100e6), "{writes:?}");
}

/// Of four blocks of a stripe one is parity: it is in what is told as write amplification.
#[test]
fn parity_is_in_write_amplification() {
    let of = |keys: &str| {
        let drive = format!("mem:tlc,groups=1,pus=4,pages=24,size=32M,store=none,spare=0.6{keys}");
        let outcome = test(&format!("write-saturation {drive} --quick"));
        let told = outcome.found.figures.last().unwrap();
        assert!(told.name.starts_with("write amplification"), "{told:?}");
        told.value.unwrap()
    };
    let (without, with) = (of(""), of(",parity=4"));
    assert!(with > 1.25 * without, "{without} {with}");
}

/// A drive without idle collection gives nothing back in a pause but its empty write
/// buffer, and what it collected when it began, which are none of it.
#[test]
fn idle_time_gives_nothing_back_where_nothing_uses_it() {
    let drive = "mem:tlc,groups=2,pus=2,pages=24,size=64M,store=none";
    let outcome = test(&format!("recovery {drive} --quick"));
    let gain = figure(&outcome, "most after a pause, beside that without").unwrap();
    assert!((0.95..1.05).contains(&gain), "{}", outcome.headline());
}

#[test]
fn the_others_measure_all_they_say() {
    let recovery = test(&format!("recovery {CORE},store=none --quick"));
    assert_eq!((recovery.found.tables[0].rows.len(), recovery.found.curves.len()), (5, 5));
    assert_eq!(recovery.found.curves[0].points.len(), 3);
    // Of 32 requests of 1 MiB a point needs eight.
    let cross = test(&format!("cross-stimulus {CORE},store=none --quick --qd 2"));
    assert_eq!(cross.found.tables[0].rows.len(), 3);
    let points = &cross.found.curves[0].points;
    assert_eq!(points.len(), 4 + 20 + 2 * 4);
    assert!(
        (points[0].0 - 0.125).abs() < 1e-9 && (points[31].0 - 3.875).abs() < 1e-9,
        "{points:?}"
    );
    assert!(cross.found.curves[1].points.is_empty(), "p99 of eight requests");
    let pessimistic = test(&format!("pessimistic {CORE},store=memory --quick"));
    assert_eq!(pessimistic.settings["qd"], 128);
    assert_eq!(pessimistic.settings["period_seconds"], 0.02);
    assert_eq!(pessimistic.found.tables[3].columns, ["reads, N", "writes, N"]);
    let rates = &pessimistic.found.tables[0];
    assert_eq!(rates.rows.len(), 8);
    near("4 KiB reads", rates.rows[3].1[0].unwrap(), MOST, 0.05);
    // Smaller ones are bounded by the core, though a write of a part of a block reads first.
    near("512 B writes", rates.rows[0].1[1].unwrap(), 250e3, 0.05);
}

fn void(outcome: &Outcome) -> &str {
    let Verdict::Void(why) = &outcome.verdict else { panic!("{}", outcome.headline()) };
    assert!(outcome.found.tables.is_empty() && outcome.to_text().starts_with("VOID: "));
    assert_eq!(outcome.to_json()["void"], *why);
    let mut out = Vec::new();
    assert_eq!(outcome.print(false, &mut out).unwrap_err().exit_code(), 1);
    why
}

#[test]
fn what_means_nothing_is_void() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image").display().to_string();
    let cached = test(&format!("iops file:{path},size=16M,direct=no --quick"));
    assert!(void(&cached).contains("page cache"), "{cached:?}");
    let still = test("throughput mem:null,size=16M,store=none --quick");
    assert!(void(&still).contains("stood still"), "{still:?}");
    let few = test(&format!("latency {CORE},store=none --quick --period 1ms"));
    assert!(void(&few).contains("too few samples for p99.9 of 100/0 8 KiB"), "{few:?}");
    let few = test(&format!("cross-stimulus {CORE},store=none --quick"));
    assert!(void(&few).contains("a drive fill is 32 of 1 MiB, and a point needs 128"), "{few:?}");
    let few = test(&format!("open-loop {CORE},store=none --quick --period 1ms"));
    assert!(void(&few).contains("too few samples for p99 of requests at 10 %"), "{few:?}");
}

/// Requests of 100 us each, of which one in a hundred was seen so late.
fn tally(late: u64) -> Tally {
    let mut tally = Tally::new();
    tally.begin(Time(0), WriteCounters::default(), Gauges::default());
    for n in 1..=1000 {
        tally.go_on(Time(n * 100_000), Gauges::default);
        tally.record(BlockOp::Write, 4096, Time(n * 100_000), 100_000);
        tally.late.record(if n % 100 == 0 { late } else { 10 });
    }
    tally.finish(WriteCounters::default(), Gauges::default());
    tally
}

#[test]
fn what_was_seen_late_or_failed_is_void() {
    let why = |tally: &Tally| match means_something(tally, 4096) {
        Err(Halt::Void(why)) => why,
        other => panic!("{other:?}"),
    };
    means_something(&tally(9_000), 4096).unwrap();
    assert!(why(&tally(20_000)).starts_with("clock check failed"));
    let mut failed = tally(0);
    failed.failed(Time(5), true, || "write of block 7".into());
    assert_eq!(why(&failed), "1 requests failed, first: write of block 7");
}

#[test]
fn a_drive_that_is_not_steady_fails_with_its_figures() {
    let mut outcome = test(&format!("cross-stimulus {CORE},store=none --quick --qd 1"));
    outcome.verdict = Verdict::NotSteady(25);
    let mut out = Vec::new();
    assert_eq!(outcome.print(false, &mut out).unwrap_err().exit_code(), 1);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("NOT STEADY after 25 rounds: back at 90 %"), "{text}");
    assert!(text.contains("1 MiB sequential"), "{text}");
}

/// Rounds are as flat before data are moved. With so much spare that is after ten drive
/// fills, which nobody waits for; with half of it after two, and then one is steady.
#[test]
fn a_drive_that_has_moved_nothing_is_not_steady() {
    let drive = "mem:tlc,groups=1,pus=2,pages=48,size=16M,store=none";
    let outcome = test(&format!("iops {drive},spare=0.9 --quick --period 500us"));
    assert!(matches!(outcome.verdict, Verdict::NotSteady(15)), "{}", outcome.headline());
    let told = outcome.notes.iter().filter(|note| note.contains("has not collected yet"));
    assert_eq!(told.count(), 1, "once: {:?}", outcome.notes);
    let outcome = test(&format!("iops {drive},spare=0.5 --quick --period 10ms"));
    assert!(!outcome.to_text().contains("collected"), "{}", outcome.to_text());
}

/// A drive that collects late has more spare than its profile, and the note says of what it
/// speaks; a smaller drive would have even more.
#[test]
fn a_raised_spare_is_called_that_and_the_examples_have_none() {
    let drive = "mem:tlc,groups=1,pus=2,size=8M,store=none";
    let outcome = test(&format!("write-saturation {drive} --quick"));
    let raised = outcome.notes.iter().find(|note| note.contains("not the profile's"));
    assert!(raised.unwrap().starts_with("spare 0."), "{:?}", outcome.notes);
    assert!(!crate::session::NOT_COLLECTED.contains("smaller drive"));
    let page = include_str!("../../../docs/commands/test.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("    ssdkit test "));
    let mut drives = 0;
    for line in lines.filter(|line| line.contains(" mem:")) {
        let args = Line::parse_from(format!("test {line}").split_whitespace()).args;
        let drive::DriveSpec::Memory(spec) = args.drive.unwrap().found().unwrap() else { continue };
        let config = spec.resolve().unwrap();
        assert_eq!(config.raised_spare(), None, "{line}");
        drives += 1;
    }
    assert!(drives > 4, "{drives} examples");
}

/// Nobody tells whether a file is empty: it is who takes it as it is that says so.
#[test]
fn that_a_file_is_empty_is_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image").display().to_string();
    std::fs::write(&path, vec![1; 4 << 20]).unwrap();
    for name in ["write-saturation", "cross-stimulus"] {
        let line = format!("{name} file:{path} --quick --destroy --as-is --qd 1");
        let outcome = test(&line);
        let told = outcome.notes.iter().any(|note| note.contains("is the word of who took it"));
        assert!(told && outcome.settings["as_is"] == true, "{outcome:?}");
        assert_eq!(outcome.to_json()["comparable"], false);
        assert!(!outcome.headline().contains("is not empty"), "{}", outcome.headline());
    }
}

/// A drive that wears out while it is filled or written over.
#[test]
fn what_fails_in_preparation_is_void() {
    for (test_name, endurance, when) in [
        ("iops", "1,erase_failure=0.9", "filled"),
        ("iops", "2", "written over at random"),
        ("open-loop", "2", "brought to its steady state"),
    ] {
        let drive = format!(
            "mem:tlc,groups=1,pus=2,pages=48,size=64M,store=none,errors=true,endurance={endurance}"
        );
        let outcome = test(&format!("{test_name} {drive} --quick --period 1ms"));
        let why = format!("while the drive was {when}, ");
        assert!(void(&outcome).starts_with(&why), "{}", outcome.headline());
        assert!(
            void(&outcome).contains("requests failed, first: Write of"),
            "{}",
            outcome.headline()
        );
    }
}

#[test]
fn what_is_not_as_the_test_has_it_is_not_comparable() {
    let mut outcome = test(&format!("write-saturation {CORE},store=none"));
    assert!(outcome.is_comparable() && outcome.to_json()["comparable"] == true);
    outcome.verdict = Verdict::NotSteady(25);
    assert_eq!(outcome.to_json()["comparable"], false);
    let other = test(&format!("write-saturation {CORE},store=none --qd 16"));
    assert_eq!(other.to_json()["comparable"], false);
    assert!(other.to_text().contains("options     not those of the test"), "{}", other.to_text());
}

#[test]
fn a_quick_test_says_that_it_is_not_comparable_and_repeats() {
    let line = format!("write-saturation {CORE},store=none --quick --seed 3");
    let [mut first, mut again] = [test(&line), test(&line)];
    (first.wall_seconds, again.wall_seconds) = (0.0, 0.0);
    assert_eq!(first.to_json(), again.to_json());
    assert!(first.headline().ends_with("(quick: not comparable)"));
    assert_eq!(first.to_json()["comparable"], false);
    let page = first.to_page();
    assert!(page.contains("<figure><svg") && page.contains("not comparable"));
}

#[test]
fn what_cannot_be_is_refused() {
    for (line, why) in [
        ("iops null:", "never fills"),
        ("none mem:ref", "there is no test `none`; there are: iops"),
        ("iops mem:ref,size=16M --as-is", "is new"),
        ("iops mem:ref,size=16M --read-percent 50", "--read-percent"),
        ("latency mem:ref,size=16M --qd 4", "--qd"),
        ("write-saturation mem:ref,size=16M --period 1s", "--period"),
        ("iops nbd:/nowhere", "--destroy"),
        ("iops ./nowhere,size=16M --clock virtual", "--clock virtual"),
    ] {
        let error = try_test(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
        assert!(error.to_string().contains(why), "{line}: {error}");
    }
}

#[test]
fn all_are_listed() {
    let mut out = Vec::new();
    list(false, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), Test::ALL.len());
    for test in Test::ALL {
        assert_eq!(Test::named(test.name).unwrap().about, test.about);
        assert!(text.contains(test.name));
    }
}

/// Requests in turns mean as little on a drive without time as others.
#[test]
fn requests_in_turns_are_looked_at() {
    fn run(session: &mut Session) -> Result<Findings, Halt> {
        let access = Access::random(4096, 100, 1);
        let (mut a, mut b) = (session.load(&access)?, session.load(&access)?);
        session.measure_in_turns([(&mut a, 3), (&mut b, 1)], (2, 2)).map(|_| Findings::default())
    }
    let test = Test { run, ..Test::named("uflip").unwrap() };
    let line = "test uflip mem:null,size=64M,store=none --quick";
    let args = Line::parse_from(line.split_whitespace()).args;
    let drive = args.drive.unwrap().found().unwrap();
    let outcome = test.measure(&drive, &args.options, &mut Watch::quiet()).unwrap();
    let Verdict::Void(why) = &outcome.verdict else { panic!("{}", outcome.headline()) };
    assert!(why.contains("stood still"), "{why}");
}
