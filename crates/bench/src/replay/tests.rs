//! A replay against a bench of the same requests, and its ends.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::Parser;
use load::watch::{Observer, Watch, observed};
use port::BlockOp;
use workload::{Generator, Pattern};

use super::*;
use crate::{Outcome, measure};

#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    args: BenchArgs,
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ReplayArgs,
}

fn benched(line: &str) -> Outcome {
    let args = Bench::parse_from(format!("bench {line}").split_whitespace()).args;
    args.check().unwrap();
    measure(&args, &mut Watch::quiet()).unwrap()
}

/// What a line asks for, of a trace in `dir`.
fn args(dir: &Path, line: &str) -> ReplayArgs {
    let line = format!("replay {}/{line} --json", dir.display());
    Line::parse_from(line.split_whitespace()).args
}

fn replayed(dir: &Path, line: &str) -> Outcome {
    measure(&args(dir, line).bench().unwrap(), &mut Watch::quiet()).unwrap()
}

/// What a drive tells, without what is of the run.
fn figures(outcome: &Outcome) -> Value {
    let mut json = outcome.to_json();
    for other in ["workload", "wall_seconds", "cpu", "replay", "open_loop", "state_hash"] {
        json.as_object_mut().unwrap().remove(other);
    }
    json
}

/// The same without what depends on when the last request is followed by none.
fn latencies(outcome: &Outcome) -> [Value; 6] {
    let json = outcome.to_json();
    ["ios", "bytes", "latency_ns", "distribution", "write_amplification", "gc"]
        .map(|key| json[key].clone())
}

/// The requests of a bench of random 4 KiB, of seed 1, a line each, `gap` ns apart.
fn trace_of_a_bench(dir: &Path, bytes: u64, count: u64, gap: u64) {
    let mut generator = Generator::new(&Pattern::uniform(bytes, 50), 1, 0, 1).unwrap();
    let mut text = String::new();
    for n in 0..count {
        let access = generator.next();
        let kind = u8::from(access.op == BlockOp::Read);
        writeln!(text, "{} 0 {} 8 {kind}", 7 + n * gap, access.offset / 512).unwrap();
    }
    fs::write(dir.join("bench.txt"), text).unwrap();
}

const DRIVE: &str = "mem:tlc,size=64M";

#[test]
fn in_a_closed_loop_it_is_the_bench_of_the_same_requests() {
    let dir = tempfile::tempdir().unwrap();
    trace_of_a_bench(dir.path(), 64 << 20, 20_000, 10);
    for store in ["memory", "none"] {
        let drive = format!("{DRIVE},groups=2,pus=1,store={store}");
        let options = "--precondition seq --slowest 5 --json";
        let bench = benched(&format!("{drive} --rw randrw --qd 8 --ios 20k {options}"));
        let replay = replayed(
            dir.path(),
            &format!("bench.txt {drive} --pace closed --qd 8 --precondition seq --slowest 5"),
        );
        assert_eq!(figures(&replay), figures(&bench));
        assert_eq!(replay.state_hash, bench.state_hash);
        assert!(replay.report.gc.is_some_and(|gc| gc.moved > 0), "it collects");
    }
}

#[test]
fn at_the_recorded_pace_it_is_the_open_loop_of_the_same_requests() {
    let dir = tempfile::tempdir().unwrap();
    trace_of_a_bench(dir.path(), 64 << 20, 3000, 50_000);
    let drive = format!("{DRIVE},store=none");
    let bench = benched(&format!("{drive} --rw randrw --rate 20k --ios 3000 --json"));
    let replay = replayed(dir.path(), &format!("bench.txt {drive}"));
    assert_eq!(latencies(&replay), latencies(&bench));
    assert_eq!(replay.state_hash, bench.state_hash);
    let open = replay.open_loop.unwrap();
    assert!(open.asked == 20_000 && !open.behind, "{open:?}");
    // Ten times as fast is a rate ten times as high.
    let bench = benched(&format!("{drive} --rw randrw --rate 200k --ios 3000"));
    let replay = replayed(dir.path(), &format!("bench.txt {drive} --pace 10x"));
    assert_eq!(latencies(&replay), latencies(&bench));
    let fast = replayed(dir.path(), &format!("bench.txt {drive} --pace 10000x"));
    assert!(fast.open_loop.unwrap().behind, "{:?}", fast.open_loop);
}

#[test]
fn a_trace_that_was_captured_gives_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let drive = format!("{DRIVE},store=none");
    let workload = "--rw randrw --rate 100k --arrivals poisson --ios 3000";
    let trace = dir.path().join("run.trace");
    benched(&format!("{drive} {workload} --trace {}", trace.display()));
    let bench = benched(&format!("{drive} {workload}"));
    let replay = replayed(dir.path(), &format!("run.trace {drive}"));
    assert_eq!(latencies(&replay), latencies(&bench));
}

/// When requests begin, in ns.
fn starts(outcome: &Outcome) -> Vec<u64> {
    let json = outcome.to_json();
    let told = json["slowest"].as_array().unwrap().iter();
    let mut starts: Vec<u64> = told.map(|one| one["start_ns"].as_u64().unwrap()).collect();
    starts.sort_unstable();
    starts
}

#[test]
fn requests_begin_when_they_were_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let text = "9 0 0 8 0\n1838 0 8 1 1\n1838 0 0 4096 1\n10000012 0 64 8 0\n9000012 0 64 8 0\n";
    fs::write(dir.path().join("a.txt"), text).unwrap();
    let replay = replayed(dir.path(), &format!("a.txt {DRIVE} --slowest 9"));
    // The third is longer than a drive takes at once.
    let expected = [0, 1829, 1829, 1829, 10_000_003, 10_000_003];
    assert_eq!(starts(&replay), expected);
    let json = replay.to_json();
    let (fitted, read) = (&json["replay"]["fitted"], &json["replay"]["read"]);
    assert_eq!((&fitted["cut"], &fitted["pieces"]), (&1.into(), &2.into()), "{json}");
    assert_eq!((&read["requests"], &read["backwards"]), (&5.into(), &1.into()));
    assert_eq!(json["bytes"], 3 * 4096 + 512 + (2 << 20));
    let replay = replayed(dir.path(), &format!("a.txt {DRIVE} --slowest 9 --pace 0.5x --time 1ms"));
    assert_eq!(starts(&replay), [0, 3658, 3658, 3658]);
    let replay = replayed(dir.path(), &format!("a.txt {DRIVE} --slowest 9 --requests 2"));
    assert_eq!(starts(&replay), [0, 1829]);
}

#[test]
fn what_is_beyond_the_drive_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = "0 0 131064 16 0\n1000 0 999999 9 1\n2000 0 0 8 0\n";
    fs::write(dir.path().join("a.txt"), text).unwrap();
    let told = |beyond: &str| {
        let replay = replayed(dir.path(), &format!("a.txt {DRIVE} --beyond {beyond}"));
        assert_eq!(replay.report.failed_requests, 0, "none is outside");
        let mut text = Vec::new();
        replay.print(false, &mut text).unwrap();
        (replay.report.ios, String::from_utf8(text).unwrap())
    };
    for (beyond, ios, says) in [
        ("wrap", 4, "2 beyond the end, wrapped"),
        ("clamp", 3, "clamped"),
        ("reject", 1, "rejected"),
    ] {
        let (got, text) = told(beyond);
        assert!(got == ios && text.contains(says), "{beyond}: {got}, {text}");
        assert!(text.contains("replay      3 requests of the trace, format mqsim"), "{text}");
    }
}

#[test]
fn what_was_measured_before_trouble_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "1,R,0,4096,1\n1,W,0,4096,2\n1,R,0,40x6,3\n1,R,0,512,4\n")
        .unwrap();
    let replay = replayed(dir.path(), &format!("a.csv {DRIVE}"));
    assert_eq!(replay.report.ios, 2);
    let problem = replay.problem.clone().unwrap();
    assert!(problem.contains("a.csv: line 3 is broken"), "{problem}");
    assert_eq!(replay.print(true, &mut Vec::new()).unwrap_err().exit_code(), 1);
    let replay = replayed(dir.path(), &format!("a.csv {DRIVE} --broken skip"));
    assert_eq!((replay.report.ios, replay.problem.is_none()), (3, true));
    fs::write(dir.path().join("b.csv"), "1,R,0,4096,1\n2,W,0,4096,2\n").unwrap();
    let problem = replayed(dir.path(), &format!("b.csv {DRIVE}")).problem.unwrap();
    assert!(problem.contains("several volumes, `1` and `2` first"), "{problem}");
    let both = replayed(dir.path(), &format!("b.csv {DRIVE} --volume-size 32M"));
    assert_eq!((both.report.ios, both.problem.is_none()), (2, true));
}

/// Requests that fail are in no figure, and their buffers are replaced.
#[test]
fn requests_that_fail_move_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    trace_of_a_bench(dir.path(), 64 << 20, 2000, 1000);
    let mut bench = args(dir.path(), &format!("bench.txt {DRIVE}")).bench().unwrap();
    bench.faults.rules.push("above:write,every=10".into());
    let outcome = measure(&bench, &mut Watch::quiet()).unwrap();
    let report = &outcome.report;
    assert!(report.failed_requests > 50, "{}", report.failed_requests);
    assert_eq!(report.ios + report.failed_requests, 2000);
    assert_eq!(report.bytes, report.ios * 4096);
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "1,R,0,4096,1\n").unwrap();
    fs::write(dir.path().join("b.csv"), "what is this\n").unwrap();
    let refused = |line: &str| {
        let error = args(dir.path(), line).bench().unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
        error.to_string()
    };
    for (line, why) in [
        ("a.csv mem:tlc,size=64M --qd 4", "--qd is for --pace closed"),
        ("a.csv nbd:/tmp/x --destroy", "take --pace closed"),
        ("a.csv nbd:/tmp/x --pace closed", "add --destroy"),
        ("b.csv mem:tlc,size=64M", "b.csv: its first lines are of no known format"),
        ("c.csv mem:tlc,size=64M", "c.csv: No such file"),
        ("a.csv mem:tlc,size=64M --steady-rounds 4", "--precondition steady"),
    ] {
        let told = refused(line);
        assert!(told.contains(why), "{line}: {told}");
    }
    // It would write over what it reads.
    std::os::unix::fs::symlink("a.csv", dir.path().join("link")).unwrap();
    for drive in ["a.csv", "link"] {
        let told = refused(&format!("a.csv {}/{drive} --destroy", dir.path().display()));
        assert!(told.contains("it is the trace and the drive"), "{told}");
    }
}

/// A write and a flush in turns, 5 ms apart, of which the rate has the writes.
#[test]
fn flushes_are_in_neither_rate() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::from("fio version 3 iolog\n");
    for n in 0..1100 {
        let (write, sync) = (10_000 * n, 10_000 * n + 5000);
        writeln!(text, "{write} /f write {} 4096\n{sync} /f sync 0 0", 4096 * n).unwrap();
    }
    fs::write(dir.path().join("a.log"), text).unwrap();
    let replay = replayed(dir.path(), &format!("a.log {DRIVE}"));
    let open = replay.open_loop.unwrap();
    assert!(open.asked == 99 && !open.behind, "{open:?}");
}

/// What came before a long quiet time is no rate that lasted until it was stopped in it.
#[test]
fn a_quiet_time_is_no_slow_drive() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..1500).map(|n| format!("{} 0 {} 8 1\n", n * 1000, n * 8)).collect();
    fs::write(dir.path().join("a.txt"), lines + "999000000000 0 0 8 1\n").unwrap();
    let bench = args(dir.path(), "a.txt null:gb=1,completion_nsec=1us --clock real").bench();
    let mut watch = Watch::until(std::time::Duration::from_millis(600));
    let replay = measure(&bench.unwrap(), &mut watch).unwrap();
    let (open, json) = (replay.open_loop.unwrap(), replay.to_json());
    assert!(replay.interrupted && !open.behind && open.asked < 10_000, "{open:?}");
    // The last was read, and not asked for.
    assert_eq!(json["replay"]["fitted"]["taken"], 1500);
}

#[test]
fn a_trace_without_times_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let text = "fio version 2 iolog\n/f add\n/f write 0 4096\n/f write 4096 4096\n";
    fs::write(dir.path().join("a.log"), text).unwrap();
    let told = |options: &str| {
        let replay = replayed(dir.path(), &format!("a.log {DRIVE} {options}"));
        replay.warnings.iter().any(|text| text.contains("take --pace closed"))
    };
    assert!(told("") && !told("--pace closed"));
}

/// Of a trace whose times only go back no request is later than the first: that is what it is
/// told as, and not as one of one time.
#[test]
fn a_trace_whose_times_go_back_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..6).map(|n| format!("{},a,0,Write,0,4096,1\n", 5 - n % 2 * 4)).collect();
    fs::write(dir.path().join("a.csv"), lines).unwrap();
    let replay = replayed(dir.path(), &format!("a.csv {DRIVE}"));
    let text = replay.warnings.join("\n");
    assert!(text.contains("no request of the trace is later than its first (3 requests"), "{text}");
    assert!(!text.contains("one time"), "{text}");
}

/// Lines of which few are wanted are the same as these alone, and somebody who stops it is
/// heard among them.
#[test]
fn many_lines_that_are_not_wanted_hold_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut few, mut all) = (String::new(), String::new());
    let others = "2,R,0,512,5\n".repeat(40_000);
    for n in 0..5 {
        let line = format!("1,W,{},4096,{}\n", n * 8192, 7 + n * 10);
        few += &line;
        all += &(line + &others);
    }
    fs::write(dir.path().join("few.csv"), few).unwrap();
    fs::write(dir.path().join("all.csv"), &all).unwrap();
    for pace in ["--pace recorded", "--pace closed --qd 2"] {
        let figures = |name: &str| {
            let line = format!("{name}.csv {DRIVE} --volume 1 --slowest 9 {pace}");
            let replay = replayed(dir.path(), &line);
            (starts(&replay), figures(&replay))
        };
        assert_eq!(figures("all"), figures("few"), "{pace}");
    }
    fs::write(dir.path().join("all.csv"), all + "broken\n").unwrap();
    let bench = args(dir.path(), &format!("all.csv {DRIVE} --volume 1 --precondition none"));
    let mut watch = Watch::until(std::time::Duration::ZERO);
    let replay = measure(&bench.bench().unwrap(), &mut watch).unwrap();
    assert!(replay.interrupted && replay.problem.is_none(), "{:?}", replay.problem);
}

/// A drive without time is asked for as many bytes as end a run, not as many requests of
/// the longest.
#[test]
fn small_requests_that_take_no_time_count_by_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    trace_of_a_bench(dir.path(), 64 << 20, 5000, 10);
    let replay =
        replayed(dir.path(), "bench.txt mem:null,size=64M --pace closed --qd 8 --time 10s");
    assert_eq!(replay.report.ios, 5000);
}

/// A trace is explained as a bench of the same requests is, and again on another drive;
/// a stream is read once.
#[test]
fn a_trace_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    trace_of_a_bench(dir.path(), 64 << 20, 400, 2_000);
    let line = format!("bench.txt {DRIVE} --explain --what-if suspend=true");
    let told = |line: &str| {
        let mut out = Vec::new();
        run(&args(dir.path(), line), &mut out).unwrap();
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    let json = told(&line);
    let all = &json["explained"]["reads"][0];
    let parts = all["parts"].as_array().unwrap();
    assert_eq!(all["ns"], parts.iter().map(|part| part["ns"].as_u64().unwrap()).sum::<u64>());
    assert_eq!(json["ios"], 400);
    assert_eq!(json["slowest"].as_array().unwrap().len(), 3);
    let again = &json["what_if"][0];
    assert_eq!((&again["set"], &again["run"]["ios"]), (&"suspend=true".into(), &400.into()));
    let plain = figures(&replayed(dir.path(), &format!("bench.txt {DRIVE}")));
    assert_eq!(plain["latency_ns"], json["latency_ns"]);
    let suspended = figures(&replayed(dir.path(), &format!("bench.txt {DRIVE},suspend=true")));
    assert_eq!(suspended["latency_ns"], again["run"]["latency_ns"]);
    let stream = Line::parse_from(["replay", "-", DRIVE, "--explain", "--what-if", "pus=8"]).args;
    let stream = Replay { args: Arc::new(stream), reader: Arc::default() };
    assert!(stream.is_a_stream());
    let refused = |rest: &str| {
        let line = format!("bench.txt {DRIVE} {rest}");
        let words = format!("replay {}/{line}", dir.path().display());
        match Line::try_parse_from(words.split_whitespace()) {
            Ok(line) => run(&line.args, &mut Vec::new()).unwrap_err().to_string(),
            Err(e) => e.to_string(),
        }
    };
    assert!(refused("--what-if suspend=true").contains("--explain"));
    assert!(refused("--explain --what-if no=1").contains("is no key"));
    assert!(refused("--explain --report a.html").contains("explaining makes none"));
}

/// What an observer says of going on.
struct Says(bool);

impl Observer for Says {
    fn phase(&self, _: &str) {}

    fn look(&self, _: f64) -> bool {
        self.0
    }
}

/// Says nothing, and is woken by signals.
struct Woken(u32);

impl Read for Woken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0 += 1;
        if self.0 < 9 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(0) }
    }
}

#[test]
fn a_signal_ends_the_wait_of_an_input_that_says_nothing() {
    let read = || Stoppable(Woken(0)).read_to_end(&mut Vec::new());
    assert_eq!(read().unwrap(), 0, "nobody watches");
    assert_eq!(observed(Arc::new(Says(true)), read).unwrap(), 0);
    let stopped = observed(Arc::new(Says(false)), read).unwrap_err();
    assert_eq!(stopped.to_string(), "it was stopped");
}

/// What brings the drive to its steady state is not what is replayed.
#[test]
fn help_says_what_steady_is() {
    use clap::CommandFactory;
    let help = Line::command().render_long_help().to_string();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("steady: That, then not the trace, but random requests of 4 KiB"));
    assert!(!words.contains("the workload itself"), "{help}");
}
