//! Figures that cannot flatter: what failed, what means nothing, what is not
//! known, and what was never measured is told as that.

use std::path::Path;
use std::time::Instant;

use crate::common::{json, number, run};
use serde_json::Value;

/// A folder of its own.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Exit code, standard output as JSON where it is that, and standard error.
fn all(at: &Path, line: &str) -> (Option<i32>, Value, String) {
    let out = run(at, line);
    let json = serde_json::from_slice(&out.stdout).unwrap_or_default();
    (out.status.code(), json, String::from_utf8(out.stderr).unwrap())
}

/// So many arrivals take as many distances: the rate of a few is the one asked for.
#[test]
fn an_open_loop_has_the_rate_that_it_was_given() {
    let dir = folder();
    for (rest, seconds, ios) in [
        ("--rate 1 --time 1.5", 1.5, 2),
        ("--rate 10 --time 1.05", 1.05, 11),
        ("--rate 1000 --ios 1050", 1.05, 1050),
        ("--rate 10 --ios 1", 0.1, 1),
        ("--rate 10 --time 1.05 --ramp 500ms", 1.05, 11),
        ("--rate 10 --ios 11 --ramp 500ms", 1.1, 11),
    ] {
        let all = json(dir.path(), &format!("bench mem:tlc,size=16M --rw randwrite {rest}"));
        let got = all["seconds"].as_f64().unwrap();
        assert!((got - seconds).abs() < 1e-9 && number(&all["ios"]) == ios, "{rest}: {all}");
        let rows = all["series"].as_array().unwrap();
        let sum: f64 = rows.iter().map(|row| row["seconds"].as_f64().unwrap()).sum();
        assert!((sum - seconds).abs() < 1e-9, "{rest}: {rows:?}");
    }
}

/// What the text of a report says, and its JSON.
fn told(line: &str) -> (String, Value) {
    let dir = folder();
    let text = String::from_utf8(run(dir.path(), line).stdout).unwrap();
    (text, json(dir.path(), line))
}

#[test]
fn a_rate_that_the_drive_cannot_reach_is_told() {
    let line = "bench mem:tlc,size=256M,store=none --rw randwrite --rate";
    let (text, all) = told(&format!("{line} 1M --time 20ms"));
    assert!(text.contains("rate        1.00 M asked, ") && text.contains("a queue that grows"));
    let open = &all["open_loop"];
    assert!(open["behind"] == true && number(&open["asked"]) == 1_000_000, "{open}");
    assert!(open["reached"].as_f64().unwrap() < 900_000.0, "{open}");
    let (text, all) = told(&format!("{line} 1k --time 2s"));
    assert!(!text.contains("asked, ") && all["open_loop"]["behind"] == false, "{text}");
}

#[test]
fn a_new_drive_that_is_written_is_told() {
    let line = "bench mem:tlc,size=256M,store=none --qd 4 --ios 2k --rw";
    let (text, all) = told(&format!("{line} randwrite"));
    assert!(text.contains("new drive   not preconditioned: ") && all["new_drive"] == true);
    assert!(text.contains("rates fall once it was written over"), "{text}");
    assert!(all["open_loop"].is_null());
    let (text, _) = told(&format!("{line} randwrite --bs 64k").replace("2k", "41k"));
    assert!(text.contains("of the new drive and of the one that was written over"), "{text}");
    for rest in ["randread", "randwrite --precondition seq", "trim --precondition none"] {
        let (text, all) = told(&format!("{line} {rest}"));
        assert!(!text.contains("new drive ") && all["new_drive"] == false, "{rest}: {text}");
    }
}

/// A drive so small that it cannot have its profile's spare says why it has more.
#[test]
fn a_spare_that_was_raised_is_told() {
    let line = "--rw randwrite --ios 100";
    let (text, _) = told(&format!("bench mem:tlc,size=64M {line}"));
    assert!(text.contains("spare       0.8571, not the profile's 0.2: "), "{text}");
    for drive in ["mem:tlc,size=64M,spare=0.9", "mem:tlc,size=1G,store=none", "mem:ref,chunks=8"] {
        let (text, _) = told(&format!("bench {drive} {line}"));
        assert!(!text.contains("not the profile's"), "{text}");
    }
}

/// A drive that does not keep up is as fast after any ramp.
#[test]
fn an_overloaded_open_loop_counts_its_own_time() {
    let dir = folder();
    for ramp in ["", "--ramp 5ms", "--ramp 20ms"] {
        let drive = "null:completion_nsec=10us,servers=4 --clock virtual --rw randread";
        let all = json(dir.path(), &format!("bench {drive} --rate 800k --time 10ms {ramp}"));
        let iops = all["iops"].as_f64().unwrap();
        assert!((iops / 400e3 - 1.0).abs() < 0.03, "{ramp}: {iops}");
    }
}

/// A drive takes energy at rest, too: for all of the time that a run has.
#[test]
fn an_open_loop_takes_energy_for_all_of_its_time() {
    let dir = folder();
    for rest in [
        "--rate 1 --ios 1",
        "--rate 1 --time 3",
        "--rate 2 --time 1 --ramp 100ms --arrivals poisson",
        "--rate 7 --ios 9 --ramp 230ms",
    ] {
        let line = format!("bench mem:tlc,size=64M,energy=true --rw randwrite --bs 64k {rest}");
        let all = json(dir.path(), &line);
        let (seconds, ios) = (all["seconds"].as_f64().unwrap(), number(&all["ios"]));
        let idle = all["energy"]["idle"].as_f64().unwrap();
        assert!((idle - 0.5 * seconds).abs() < 1e-6, "{rest}: {idle} J in {seconds} s");
        let program = all["energy"]["program"].as_f64().unwrap();
        assert!((program > 0.0) == (ios > 0), "{rest}: {program} J for {ios} requests");
    }
}

#[test]
fn requests_that_failed_are_in_no_latency() {
    let dir = folder();
    let line = "bench mem:ref,size=16M --rw randread --ios 1k --qd 4";
    let good = json(dir.path(), line);
    let half = json(dir.path(), &format!("{line} --fault above:read,every=2"));
    assert_eq!((number(&half["ios"]), number(&half["failed_requests"])), (500, 500));
    assert_eq!(number(&half["latency_ns"]["n"]), 500);
    assert_eq!(half["latency_ns"]["min"], good["latency_ns"]["min"], "failing took no time");
    let rate = half["ios"].as_f64().unwrap() / half["seconds"].as_f64().unwrap();
    assert!((half["iops"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{half}");
    assert_eq!(
        half["series"].as_array().unwrap().iter().map(|r| number(&r["ios"])).sum::<u64>(),
        500
    );
    assert!(half["void"].is_null() && good["failed_requests"] == 0);
    let text = run(dir.path(), &format!("{line} --fault above:read,every=2")).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("failed      500 requests, in no figure above; first: Read"), "{text}");
    // Which one it was, where the one request is kept in no slot, and where it is.
    let lone = "bench mem:ref,size=16M --rw randread --ios 1k --qd 1 --fault above:read,every=300";
    let told = |line: &str| {
        let text = String::from_utf8(run(dir.path(), line).stdout).unwrap();
        text.lines().find(|line| line.starts_with("failed")).expect("some did").to_string()
    };
    assert_eq!(told(lone), told(&format!("{lone} --verify")));
    // None that did what it was asked: nothing to tell.
    let none = json(dir.path(), &format!("{line} --fault above:read"));
    assert_eq!((&none["ios"], &none["iops"]), (&0.into(), &0.0.into()));
    assert!(none["void"].as_str().unwrap().contains("no request did what"), "{none}");
}

/// What a drive counts is told, of the measurement alone.
#[test]
fn the_energy_of_a_run_is_told_where_it_is_counted() {
    let dir = folder();
    let line = "bench mem:tlc,size=16M,energy=true --rw randread --ios 1k --seed 3";
    let (one, two) = (json(dir.path(), line), json(dir.path(), &format!("{line} --cores 2")));
    for json in [&one, &two] {
        let part = |name: &str| json["energy"][name].as_f64().unwrap();
        let parts: f64 = ["read", "program", "erase", "channel", "idle"].map(part).iter().sum();
        assert!((parts / part("joules") - 1.0).abs() < 1e-9 && part("read") > 0.0, "{json}");
        assert_eq!(part("program"), 0.0, "the drive was written before");
        assert!((part("joules_per_io") * 1e3 / part("joules") - 1.0).abs() < 1e-9);
    }
    let text = String::from_utf8(run(dir.path(), line).stdout).unwrap();
    assert!(text.contains("\nenergy      "), "{text}");
    let none = json(dir.path(), "bench mem:tlc,size=16M --rw randread --ios 10");
    assert!(none["energy"].is_null());
    // The ramp is in no figure.
    let line = "bench mem:tlc,size=16M,energy=true --rw randread --rate 1000 --time 100ms";
    let (one, two) = (json(dir.path(), line), json(dir.path(), &format!("{line} --ramp 1s")));
    let joules = |json: &serde_json::Value| json["energy"]["joules"].as_f64().unwrap();
    let ratio = joules(&two) / joules(&one);
    assert!((0.9..1.1).contains(&ratio), "{ratio}: {one} {two}");
    let below = json(dir.path(), &format!("{line} --ramp 1s --cores 2"));
    assert!(below["energy"].is_null());
    // So is what is left inside when a run is stopped.
    let left = "bench mem:tlc,size=16M,groups=1,pus=1,pages=48,energy=true --rw randread --qd 4 \
                --clock real --time 10s --max-time 300ms --precondition none \
                --fault above:read,from=101,delay=1h";
    for layer in ["", " --cores 1"] {
        let left = json(dir.path(), &format!("{left}{layer}"));
        assert!(left["left_inside"] == 4 && joules(&left) < 60.0, "{left}");
    }
}

/// A drive that has requests for an hour keeps nobody who has stopped, on the
/// real clock either; what is left inside is told.
#[test]
fn what_is_inside_is_not_waited_for_after_the_end() {
    let dir = folder();
    let small = "groups=1,pus=1,pages=64,size=16M";
    json(dir.path(), "create d.ssd --profile ref --size 16M");
    for drive in [
        &format!("mem:ref,{small} --fault above:write,delay=1h"),
        &format!("mem:ref,{small} --fault above:write,delay=1h --dispatch inline --timeout 1h"),
        &format!("mem:ref,{small} --fault above:write,delay=1h --dispatch hosted --timeout 1h"),
        "d.ssd --fault above:write,delay=1h",
        "null:completion_nsec=1h,servers=8 --timeout 1h",
        "null:completion_nsec=10us,lost_every=1 --timeout 1h",
    ] {
        let work = "--rw randwrite --qd 8 --precondition none --clock real --max-time 1s";
        let json = json(dir.path(), &format!("bench {drive} {work}"));
        let warnings = json["warnings"].to_string();
        assert!(warnings.contains("8 requests were still inside"), "{drive}: {json}");
        assert_eq!(json["left_inside"], 8);
        assert!(json["void"].is_string(), "{json}");
    }
    // A drive that hangs after a while has not done what it did in no time.
    let drive = format!("mem:ref,{small} --fault above:read,from=101,delay=1h");
    let hung = "--rw randread --qd 4 --clock real --time 10s --max-time 400ms";
    let json_ = json(dir.path(), &format!("bench {drive} {hung}"));
    assert!(number(&json_["ios"]) < 104 && json_["seconds"].as_f64().unwrap() > 0.3, "{json_}");
    // The file is sound, and none the worse for it.
    json(dir.path(), "bench ssd:d.ssd,copy=yes --rw randread --ios 10 --verify --precondition seq");
}

/// They come back when nobody wants them any more, too.
#[test]
fn requests_that_take_too_long_are_told_and_waited_for() {
    let dir = folder();
    for drive in [
        "mem:znand,size=64M --rw randrw --ios 300 --timeout 1us --verify",
        "mem:tlc,size=64M --rw randwrite --ios 2k --fua-every 10 --timeout 1ms --verify",
        "mem:tlc,size=16M,groups=2,pus=2,pages=48 --rw randwrite --fua-every 100 --time 1ms \
         --timeout 1ms --staging one --verify",
        "mem:tlc,size=16M --rw randrw --ios 500 --qd 8 --timeout 200us --cores 2 --verify",
    ] {
        let (code, json, text) = all(dir.path(), &format!("bench {drive} --json"));
        assert_eq!(code, Some(0), "{drive}: {text}");
        assert!(text.contains("timed out"), "{drive}: {text}");
        assert!(!text.contains("wrong data"), "{drive}: {text}");
        assert_eq!(number(&json["failed_requests"]), 0, "{drive}: {json}");
        assert_eq!(json["latency_ns"]["n"], json["ios"], "{drive}");
    }
}

#[test]
fn a_new_drive_that_is_read_is_written_first() {
    let dir = folder();
    for (rw, first) in [("randread", "seq"), ("randrw", "seq"), ("read", "seq"), ("write", "none")]
    {
        let report = json(dir.path(), &format!("bench mem:ref,size=16M --rw {rw} --ios 5k"));
        assert_eq!(report["workload"]["precondition"], first, "{rw}");
        assert!(report["void"].is_null() && report["iops"].as_f64().unwrap() > 0.0, "{report}");
    }
    for rw in ["randread", "randrw"] {
        let line = format!("bench mem:ref,size=16M --rw {rw} --ios 100 --precondition none");
        let report = json(dir.path(), &line);
        assert_eq!(report["workload"]["precondition"], "none");
        assert!(report["void"].as_str().is_some_and(|s| s.contains("never written")), "{report}");
        let out = run(dir.path(), &line);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.contains("VOID        rates and latencies mean nothing: "), "{text}");
        assert!(!text.contains("IOPS") && out.stderr.is_empty(), "{text}");
    }
    // A drive that takes no time has no rate either.
    let report = json(dir.path(), "bench mem:null,size=16M --rw randwrite --ios 100");
    assert!(report["void"].as_str().unwrap().contains("time stood still"), "{report}");
}

#[test]
fn a_new_drive_file_is_not_written_by_who_only_reads() {
    let dir = folder();
    let at = dir.path();
    json(at, "create a.ssd --profile ref --size 16M");
    let (code, _, text) = all(at, "bench a.ssd --rw randread --ios 10");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("nothing was ever written") && text.contains("--precondition seq"));
    // A copy of it in memory is as any drive in memory.
    let copy = json(at, "bench ssd:a.ssd,copy=yes --rw randread --ios 10");
    assert_eq!(copy["workload"]["precondition"], "seq");
    let file = json(at, "bench a.ssd --rw randread --ios 10 --precondition seq");
    assert!(file["void"].is_null(), "{file}");
    assert_eq!(json(at, "bench a.ssd --rw randread --ios 10")["workload"]["precondition"], "none");
    let (code, _, text) = all(at, "bench b.ssd --rw randread --ios 10");
    assert!(code == Some(2) && text.contains("ssdkit create b.ssd"), "{text}");
}

/// Also where something was written before, and most of what is read was not.
#[test]
fn what_was_never_written_is_no_fast_drive() {
    let dir = folder();
    let at = dir.path();
    json(at, "create a.ssd --profile tlc --size 64M groups=2 pus=2 pages=48");
    json(at, "bench a.ssd --rw randwrite --ios 100");
    let report = json(at, "bench a.ssd --rw randread --ios 2k --qd 4");
    assert!(report["void"].as_str().unwrap().contains("never written"), "{report}");
    json(at, "bench a.ssd --rw write --bs 64k --ios 1024 --destroy");
    let report = json(at, "bench a.ssd --rw randread --ios 2k --qd 4");
    assert!(report["void"].is_null(), "{report}");
}

#[test]
fn what_goes_wrong_on_purpose_meets_what_is_measured_only() {
    let dir = folder();
    let line = "bench mem:znand,size=8M,groups=2,pus=2,pages=16 --rw randrw --qd 8 --ios 2k \
                --precondition steady --steady-rounds 3 --steady-round 1ms --verify \
                --fault above:write,count=3";
    let report = json(dir.path(), line);
    assert_eq!((&report["errors"], &report["failed_requests"]), (&0.into(), &3.into()));
    let steady = &report["steady"];
    assert_eq!((&steady["window"], &steady["weaker"]), (&3.into(), &true.into()), "{steady}");
    assert!(number(&steady["rounds"]) >= 3, "{steady}");
    let text = String::from_utf8(run(dir.path(), line).stdout).unwrap();
    assert!(text.contains("by a weaker rule: 3 rounds of 1.00 ms"), "{text}");
}

#[test]
fn who_stops_preconditioning_is_told_what_was_reached() {
    let dir = folder();
    let line = "bench mem:tlc,size=256M --rw randwrite --precondition steady --max-time 1ms";
    let (code, _, text) = all(dir.path(), line);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("before anything was measured: the drive was being"), "{text}");
    assert!(text.contains("% done") || text.contains("round"), "{text}");
}

#[test]
fn all_of_the_time_on_the_wall_is_told() {
    let dir = folder();
    let report = json(dir.path(), "bench mem:ref,size=64M --rw randread --ios 10");
    let (wall, measured) = (&report["wall_seconds"], &report["cpu"]["wall_seconds"]);
    let (wall, measured) = (wall.as_f64().unwrap(), measured.as_f64().unwrap());
    // Two overwrites beside ten requests.
    assert!(wall > 2.0 * measured && measured > 0.0, "{wall} {measured}");
}

#[test]
fn capacities_are_told_as_they_were_given() {
    let dir = folder();
    let text = run(dir.path(), "bench mem:ref,size=16M --rw write --ios 10").stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("size=16MiB"), "{text}");
}

#[test]
fn a_wrong_name_is_the_only_thing_that_is_told() {
    let dir = folder();
    let (code, _, text) = all(dir.path(), "bench mem:tcl --rw randread");
    assert_eq!(code, Some(2));
    assert!(text.starts_with("ssdkit: there is no profile `tcl`"), "{text}");
}

#[test]
fn what_is_no_file_is_not_read() {
    let dir = folder();
    let at = dir.path();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        at.join("fifo.toml"),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    let began = Instant::now();
    for line in [
        "profiles /dev/zero",
        "profiles ./fifo.toml",
        "info mem:./fifo.toml",
        "bench mem:./fifo.toml --rw read",
        "bench mem:ref,size=16M --rw read --faults fifo.toml",
        "trace fifo.toml",
        "trace /dev/zero",
        "trace .",
        "bench null: --rw read --ios 1 --trace fifo.toml",
    ] {
        let (code, _, text) = all(at, line);
        assert_eq!(code, Some(2), "{line}: {text}");
        assert!(text.contains("it is no file"), "{line}: {text}");
    }
    assert!(began.elapsed().as_secs() < 120);
}
