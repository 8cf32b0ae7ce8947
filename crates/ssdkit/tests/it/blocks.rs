//! The block layer from outside: every kind of drive through it, its accounts,
//! its traces, and what is refused. All files are in a directory of their own.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{json, run, ssdkit, told};

/// The report of a run that must succeed.
fn report(dir: &Path, rest: &str) -> Value {
    let json = json(dir, &format!("bench {rest}"));
    check(rest, &json);
    json
}

/// Exit code and message of a run that must fail.
fn failure(dir: &Path, rest: &str) -> (Option<i32>, String) {
    told(&run(dir, &format!("bench {rest}")))
}

fn count(json: &Value, path: &str) -> u64 {
    json.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {json}"))
}

fn sum(json: &Value, list: &str, key: &str) -> u64 {
    let list = json.pointer(list).and_then(Value::as_array).unwrap();
    list.iter().map(|one| count(one, key)).sum()
}

/// What holds of every report of a run through the layer without errors,
/// without a ramp and with nothing merged.
fn check(rest: &str, json: &Value) {
    assert_eq!(count(json, "/errors"), 0, "{rest}");
    let ios = count(json, "/ios");
    assert!(ios > 0, "{rest}");
    assert_eq!(sum(json, "/block_layer/cores", "/ios"), ios, "{rest}");
    let merged = sum(json, "/block_layer/staging", "/merged");
    let completed = sum(json, "/block_layer/dispatch", "/completed");
    assert_eq!(completed + merged, ios, "{rest}");
    assert_eq!(sum(json, "/block_layer/dispatch", "/in_flight"), 0, "{rest}");
    assert_eq!(sum(json, "/block_layer/dispatch", "/latency_ns/n"), ios, "{rest}");
    let warnings = json["warnings"].as_array().unwrap();
    let of_cache = |text: &&Value| text.as_str().unwrap().contains("page cache");
    let expected = usize::from(rest.contains("direct=no"));
    assert_eq!(warnings.iter().filter(of_cache).count(), expected, "{rest}: {warnings:?}");
    assert_eq!(warnings.len(), expected, "{rest}: {warnings:?}");
}

#[test]
fn null_drives_run_on_any_number_of_cores() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [
        "null: --rw randread --qd 32 --batch 32 --ios 20k",
        "null: --rw randrw --ios 20k",
        "null:submit_queues=2 --rw randwrite --qd 8 --cores 2 --ios 20k",
        "null: --rw read --qd 8 --cores 3 --ios 20k",
        "null:submit_queues=2,shared_tags=yes,hw_queue_depth=4 --rw trim --qd 8 --cores 2 --ios 9k",
        "null:poll_queues=1 --rw randread --qd 4 --ios 5k",
        "null:completion_nsec=20us,servers=2 --rw randread --qd 8 --cores 2 --staging one --ios 2k",
        "null:completion_nsec=20us --rw randread --rate 20k --cores 2 --ios 1001",
    ] {
        let json = report(dir.path(), rest);
        assert_eq!(json["workload"]["clock"], "real", "{rest}");
        let asked = rest.rsplit(' ').next().unwrap().replace('k', "000");
        assert_eq!(count(&json, "/ios").to_string(), asked, "{rest}");
    }
}

#[test]
fn a_timed_null_drive_takes_its_time_in_virtual_time() {
    let dir = tempfile::tempdir().unwrap();
    let line = "null:completion_nsec=10us,servers=4,slow=1ms:1 --rw randread --qd 8 --cores 2 \
                --clock virtual --ios 20k --seed";
    let run = |seed: u32| {
        let mut json = report(dir.path(), &format!("{line} {seed}"));
        for key in ["wall_seconds", "cpu", "seed"] {
            json.as_object_mut().unwrap().remove(key).unwrap();
        }
        json
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1)["seconds"], run(2)["seconds"]);
    // Four servers of 10 us each, always busy.
    let rest = "null:completion_nsec=10us,servers=4 --rw randread --qd 8 --clock virtual --ios 40k";
    let iops = report(dir.path(), rest)["iops"].as_f64().unwrap();
    assert!((iops / 400_000.0 - 1.0).abs() < 1e-3, "{iops}");
}

#[test]
fn a_file_is_made_written_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let (code, text) = failure(at, "./drive --rw randread");
    assert_eq!(code, Some(2));
    assert!(text.contains("add its size to be made"), "{text}");
    // The file systems that tests run on may have no direct access.
    let drive = "file:drive,size=16M,direct=no";
    for more in [
        "--precondition seq --rw randrw --qd 8 --verify --ios 2k --destroy",
        "--rw randread --qd 8 --cores 2 --ios 2k",
        "--rw randread --qd 8 --cores 2 --ios 2k --completion adaptive",
        "--rw read --bs 64k --qd 4 --ios 500 --completion hybrid",
        "--rw randread --rate 2k --time 100ms --completion interrupt",
    ] {
        let json = report(at, &format!("{drive} {more}"));
        assert_eq!(count(&json, "/drive/size_bytes"), 16 << 20);
        assert_eq!(json["drive"]["read_only"], !more.contains("--destroy"));
        assert_eq!(json["interrupted"], false, "{more}");
        assert!(json["warnings"].to_string().contains("page cache"), "{json:#}");
    }
    assert_eq!(std::fs::metadata(at.join("drive")).unwrap().len(), 16 << 20);
}

/// By each engine what was written is read back, in files as they are made.
#[test]
fn other_engines_read_what_they_wrote() {
    let dir = tempfile::tempdir().unwrap();
    for engine in ["libaio", "psync", "pvsync2"] {
        let drive = format!("file:{engine},size=16M,engine={engine},direct=no");
        let json = report(
            dir.path(),
            &format!(
                "{drive} --rw randrw --qd 8 --ios 2k --bssplit 4k/60:64k/40 --fua-every 9 --verify \
                 --destroy"
            ),
        );
        assert_eq!(json["drive"]["engine"], engine);
        assert_eq!((count(&json, "/ios"), count(&json, "/errors")), (2000, 0), "{engine}");
    }
    for (keys, says) in [
        ("engine=psync,depth=2", "has one request at a time"),
        ("engine=libaio,poll=auto", "cannot poll: leave polling out"),
        ("engine=pvsync2,poll=hybrid", "as iopoll does"),
        ("engine=libaio,sqpoll=1s", "leave sqpoll out"),
    ] {
        let (code, text) = failure(dir.path(), &format!("file:libaio,{keys} --rw randread"));
        assert!(code == Some(2) && text.contains(says), "{keys}: {text}");
    }
}

#[test]
fn nothing_is_written_over_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let data = vec![7; 1 << 20];
    std::fs::write(at.join("data"), &data).unwrap();
    for (rest, says) in [
        ("./data --rw randwrite", "--destroy"),
        ("./data --rw trim --bs 4k", "--destroy"),
        ("file:data --rw randread --precondition seq", "--destroy"),
        ("file:data,size=2M --rw randwrite --destroy", "leave out size"),
        ("./data,read_only=yes --rw randwrite --destroy", "takes no writes"),
        ("file:none,size=1M,read_only=yes --rw read", "nothing is made"),
        (". --rw read", "does not name a drive"),
        ("./ --rw read", "a directory"),
    ] {
        let (code, text) = failure(at, rest);
        assert_eq!(code, Some(2), "{rest}: {text}");
        assert!(text.contains(says), "{rest}: {text}");
    }
    report(at, "./data,direct=no --rw randread --ios 100");
    assert_eq!(std::fs::read(at.join("data")).unwrap(), data);
    assert!(!at.join("none").exists());
}

#[test]
fn a_drive_below_an_empty_layer_is_the_same_drive() {
    let dir = tempfile::tempdir().unwrap();
    let line = "mem:tlc,size=64M --rw randrw --qd 16 --ios 20k --precondition seq";
    let out = run(dir.path(), &format!("bench {line} --json"));
    let bare: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(bare.get("block_layer").is_none());
    let below = report(dir.path(), &format!("{line} --cores 1"));
    for key in ["state_hash", "seconds", "latency_ns", "write_amplification", "series"] {
        assert_eq!(bare[key], below[key], "{key}");
    }
}

#[test]
fn cores_have_their_shares_of_a_drive() {
    let dir = tempfile::tempdir().unwrap();
    let json = report(
        dir.path(),
        "mem:ref,size=64M --rw randrw --qd 16 --ios 20k --precondition seq --verify --cores 2 \
         --scheduler fair --weights 1,4 --dispatch-depth 8",
    );
    let of = |core: u32| count(&json, &format!("/block_layer/cores/{core}/ios")) as f64;
    assert!((of(1) / of(0) - 4.0).abs() < 0.1, "{} and {}", of(0), of(1));
    assert_eq!(count(&json, "/block_layer/staging/0/inserted"), 20_000);
    assert_eq!(json["block_layer"]["config"]["staging"], "one");
    assert_eq!(json["block_layer"]["config"]["weights"], serde_json::json!([1, 4]));
}

#[test]
fn cores_that_want_the_same_get_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [
        "null:completion_nsec=5us --rw randread --qd 300 --cores 2 --clock virtual --ios 20k",
        "mem:ref,size=16M --rw randrw --qd 1000 --cores 2 --dispatch-depth 4 --staging one \
         --scheduler fair --ios 20k",
    ] {
        let json = report(dir.path(), rest);
        let of = |core: u32| count(&json, &format!("/block_layer/cores/{core}/ios")) as f64;
        assert!((of(1) / of(0) - 1.0).abs() < 0.2, "{rest}: {} and {}", of(0), of(1));
    }
}

#[test]
fn what_goes_through_the_layer_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [
        "mem:ref,size=16M --rw write --qd 64 --ios 8k --merge full --plug",
        "mem:ref,size=16M --rw randrw --qd 64 --ios 8k --scheduler deadline --dispatch-depth 4",
        "mem:ref,size=16M --rw randrw --bs 512 --qd 32 --cores 4 --sockets 2 --staging socket --ios 8k",
        "mem:ref,size=16M --rw randrw --qd 32 --cores 2 --merge simple --rate 50k --ios 8k",
        "mem:ref,size=16M --rw randrw --qd 16 --ios 2k --clock real --batch 4",
        "mem:ref,size=16M --rw randrw --qd 16 --ios 2k --dispatch hosted --precondition seq",
        "mem:ref,size=16M --rw randrw --qd 16 --ios 2k --dispatch hosted:2 --completion adaptive",
    ] {
        let json = report(dir.path(), &format!("{rest} --verify"));
        let merged = sum(&json, "/block_layer/staging", "/merged");
        assert_eq!(merged > 1000, rest.contains("merge full"), "{rest}: {merged} merged");
    }
}

#[test]
fn threads_share_a_drive() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [
        "mem:ref,size=16M --rw randrw --qd 8 --cores 2 --ios 4k --clock real",
        "mem:ref,size=16M --rw randrw --qd 8 --cores 2 --ios 4k --dispatch hosted",
        "mem:ref,size=16M --rw randrw --qd 8 --cores 2 --ios 4k --dispatch hosted:2",
        "mem:ref,size=16M --rw randrw --qd 8 --cores 2 --threads 2 --ios 4k --dispatch hosted:2 \
         --completion hybrid",
    ] {
        let json = report(dir.path(), &format!("{rest} --precondition seq"));
        assert_eq!(count(&json, "/ios"), 4000, "{rest}");
        assert_eq!(count(&json, "/block_layer/cores/0/ios"), 2000, "{rest}");
        assert!(json["self_check_ns"].as_u64().is_some(), "{rest}");
        assert!(count(&json, "/latency_ns/min") > 0, "{rest}");
    }
}

/// Cores that are done, and look no more, while others are not.
#[test]
fn no_core_waits_for_one_that_is_done() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [
        "mem:ref,size=16M --rw write --qd 64 --threads 4 --cores 4 --sockets 2 \
         --dispatch hosted:4 --staging one",
        "mem:ref,size=16M --rw randread --qd 8 --cores 2 --dispatch hosted:2 --scheduler fair \
         --precondition seq",
        "mem:ref,size=16M,slc_cache=1M --rw randrw --bs 3k --qd 32 --threads 5 --cores 4 \
         --scheduler fair --dispatch hosted:2 --dispatch-depth 1 --precondition seq",
        "mem:ref,size=16M --rw randrw --qd 16 --cores 3 --dispatch hosted:3 --staging one \
         --scheduler deadline --completion adaptive --precondition seq",
    ] {
        for seed in 0..3 {
            let json = report(dir.path(), &format!("{rest} --ios 2k --seed {seed}"));
            assert_eq!(count(&json, "/ios"), 2000, "{rest}");
        }
    }
}

#[test]
fn requests_of_a_drive_that_works_are_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let line = "bench mem:ref,size=16M --rw randrw --ios 300 --timeout 1us --verify --json";
    let out = run(dir.path(), line);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((count(&json, "/ios"), count(&json, "/errors")), (300, 0));
    assert!(sum(&json, "/block_layer/dispatch", "/timed_out") > 0);
    assert!(json["warnings"].to_string().contains("timed out"), "{}", json["warnings"]);
}

#[test]
fn a_trace_has_every_request() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [
        "mem:ref,size=16M --rw randrw --qd 16 --ios 3k --cores 2 --precondition seq",
        "null:completion_nsec=20us --rw randread --qd 4 --ios 3k --cores 2",
        "file:drive,size=16M,direct=no --rw randread --qd 4 --ios 3k",
    ] {
        report(dir.path(), &format!("{rest} --trace run.trace"));
        let out = run(dir.path(), "trace run.trace --json");
        assert_eq!(out.status.code(), Some(0), "{rest}");
        let trace: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!((count(&trace, "/records"), count(&trace, "/dropped")), (3000, 0), "{rest}");
        assert_eq!(sum(&trace, "/queues", "/failed"), 0, "{rest}");
        assert!(trace["config"].as_str().unwrap().contains("scheduler = none"), "{rest}");
    }
    let (code, text) = failure(dir.path(), "null: --rw read --ios 1 --trace no/such/file");
    assert_eq!(code, Some(1));
    assert!(text.contains("no/such/file"), "{text}");
}

/// What was measured is told although its trace has no room; then it fails.
#[test]
fn a_trace_that_cannot_be_written_loses_no_report() {
    let dir = tempfile::tempdir().unwrap();
    for clock in ["virtual", "real"] {
        let line = format!(
            "ulimit -f 64; exec {} bench null:completion_nsec=1us --rw randread --ios 30k \
             --clock {clock} --trace run.trace --json",
            env!("CARGO_BIN_EXE_ssdkit")
        );
        let out = Command::new("sh").args(["-c", &line]).current_dir(dir.path()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{clock}: {text}");
        assert!(text.contains("run.trace: cannot write the trace"), "{clock}: {text}");
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(count(&json, "/ios"), 30_000, "{clock}");
    }
}

#[test]
fn a_faulty_device_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = failure(
        dir.path(),
        "null:completion_nsec=10us,lost_every=50 --rw randread --qd 8 --clock virtual --ios 1k \
         --timeout 1ms",
    );
    assert_eq!(code, Some(1));
    assert!(text.contains("timed out") && text.contains("and 12 more like these"), "{text}");
    assert!(text.contains("20 requests failed"), "{text}");
}

/// What was measured until the device went is told, and the command fails.
#[test]
fn a_device_that_goes_in_the_middle_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let drive = "null:completion_nsec=10us,gone_after=500 --clock virtual";
    let out = run(dir.path(), &format!("bench {drive} --rw randread --qd 8 --ios 1k --json"));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("gone") && text.contains("requests failed"), "{text}");
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let (ios, failed) = (count(&json, "/ios"), count(&json, "/failed_requests"));
    assert!((1..=500).contains(&ios) && failed > 0, "{ios} done, {failed} failed: {text}");
}

/// A file is cut to nothing under a run, at some time in the middle of it: the report
/// has what was read until then, and the command fails.
#[test]
fn a_file_that_is_cut_in_the_middle_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    // On a busy machine the cut may come before a run or after it: then with a longer one.
    for ios in [1_000u32, 4_000, 16_000] {
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let line = format!("bench file:disk,direct=no --rw randread --rate 2k --ios {ios} --json");
        let mut command = ssdkit(&line);
        let child = command
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(u64::from(ios) / 4));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let json: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        let in_time = json["ios"].as_u64() > Some(0) && json["failed_requests"].as_u64() > Some(0);
        if !in_time {
            continue;
        }
        assert_eq!(out.status.code(), Some(1), "{text}");
        assert!(text.contains("unrecovered read error"), "{text}");
        assert_eq!(count(&json, "/ios") + count(&json, "/failed_requests"), u64::from(ios));
        assert_eq!(count(&json, "/latency_ns/n"), count(&json, "/ios"), "of what was read");
        return;
    }
    panic!("no cut fell into a run");
}

#[test]
fn what_cannot_be_is_refused_clearly() {
    let dir = tempfile::tempdir().unwrap();
    for (rest, says) in [
        ("null:submit_queues=0 --rw read", "submit_queues = 0 is out of range"),
        ("null:gb=0 --rw read", "gb = 0 is out of range"),
        (
            "mem:ref,size=16M --rw read --cores 2 --dispatch hosted:2 --scheduler fair --weights 1,4",
            "each core has one of its own",
        ),
        ("null: --rw read --cores 1000 --pin --ios 1k", "cannot be pinned to processor"),
        ("null: --rw read --qd 1000 --cores 1000", "too many at once"),
        (
            "mem:ref,size=16M --rw read --cores 2 --dispatch hosted --completion adaptive",
            "a queue for each of the 2 cores",
        ),
        ("file:a,size=1M,poll=auto --rw read --completion interrupt", "--completion poll"),
    ] {
        let (code, text) = failure(dir.path(), rest);
        assert_eq!(code, Some(2), "{rest}: {text}");
        assert!(text.contains(says), "{rest}: {text}");
    }
}

/// The page of the command: what it shows can be done.
#[test]
fn the_examples_of_the_page_run() {
    const PAGE: &str = include_str!("../../../../docs/commands/bench.md");
    let (_, section) = PAGE.split_once("## The block layer").expect("the page has the section");
    let section = section.split("\n## ").next().expect("there is a first part");
    let dir = tempfile::tempdir().unwrap();
    let examples: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("    ssdkit ")).collect();
    assert!(examples.len() >= 8, "{examples:?}");
    for example in examples {
        let out = run(dir.path(), example);
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{example}: {errors}");
        assert!(!out.stdout.is_empty(), "{example}");
    }
}
