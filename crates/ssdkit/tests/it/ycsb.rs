//! `ssdkit ycsb` and the study `batched`, from outside.

use std::path::Path;

use crate::common::{json, number, run};
use serde_json::Value;

/// A drive that is small and whose chunks are.
const DRIVE: &str = "mem:znand,groups=2,pus=2,pages=64";

fn bench(rest: &str) -> Value {
    json(Path::new("."), &format!("ycsb {DRIVE} --workload {rest}"))
}

fn of(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {report}"))
}

#[test]
fn all_stores_and_workloads_give_what_was_written() {
    for (store, workload) in [
        ("batched", "A"),
        ("batched", "d"),
        ("log", "F"),
        ("log", "E"),
        ("in-place", "B"),
        ("log --not-durable", "paper"),
        ("batched --not-durable", "C"),
    ] {
        let report = bench(&format!(
            "{workload} --pages {store} --records 2k --ops 3k --clients 16 --verify"
        ));
        assert_eq!((number(&report["ops"]), number(&report["errors"])), (3000, 0), "{report}");
        let counted: u64 = report["latency_ns"]
            .as_object()
            .map(|all| all.values().map(|one| number(&one["n"])).sum())
            .unwrap();
        assert_eq!(counted, 3000, "{report}");
        assert!(of(&report, "/seconds") > 0.0 && number(&report["tree"]["pages"]) > 500);
        assert_eq!(report["host_ns_per_op"], Value::Null);
    }
}

/// In so short a run much of what the store gave the drive is still in its buffer: it is
/// not counted as programmed for the store.
#[test]
fn no_drive_programs_less_than_its_store_gave_it() {
    for store in ["--pages batched", "--pages log", "--pages in-place", ",target=kv"] {
        let (drive, store) = match store.strip_prefix(',') {
            Some(target) => (format!("mem:tlc,{target}"), ""),
            None => ("mem:tlc".to_owned(), store),
        };
        let line = format!("ycsb {drive} --workload A {store} --records 20k --ops 2k");
        let report = json(Path::new("."), &line);
        let drive = of(&report, "/write_amplification/drive");
        assert!((1.0..4.0).contains(&drive), "{line}: {drive}");
        assert_eq!(report["new_drive"], number(&report["drive_work"]["collections"]) == 0);
    }
}

/// A drive that keeps values by key, without a tree; values short and long.
#[test]
fn values_by_key_are_what_was_written() {
    for (workload, value, more) in [
        ("A", "16", ""),
        ("D", "1000", ""),
        ("F", "100", "--controller-time 2us"),
        ("paper", "70k", ""),
        ("B", "5k", "--clock real"),
    ] {
        let report = json(
            Path::new("."),
            &format!(
                "ycsb {DRIVE},target=kv --workload {workload} --value {value} --records 1k --ops \
                 1500 --clients 16 --verify {more}"
            ),
        );
        assert_eq!((number(&report["ops"]), number(&report["errors"])), (1500, 0), "{report}");
        assert_eq!((&report["tree"], &report["cache"]), (&Value::Null, &Value::Null));
        assert_eq!(report["setup"]["store"], "kv");
    }
}

#[test]
fn virtual_time_repeats_itself() {
    for store in ["batched", "log"] {
        let line = format!("paper --pages {store} --records 2k --ops 3k --clients 16 --seed 5");
        let (mut once, mut again) = (bench(&line), bench(&line));
        for report in [&mut once, &mut again] {
            // What the drive still has in its buffer counts.
            assert!(of(report, "/write_amplification/store") >= 1.0, "{report}");
            report["version"] = Value::Null;
        }
        assert_eq!(once, again);
    }
}

#[test]
fn in_real_time_the_host_is_accounted_for() {
    for store in ["batched", "log"] {
        let report =
            bench(&format!("paper --pages {store} --records 2k --ops 2k --verify --clock real"));
        assert_eq!(number(&report["errors"]), 0);
        let parts = report["host_ns_per_op"].as_object().unwrap();
        let sum: f64 = parts.values().map(|part| part.as_f64().unwrap()).sum();
        let all = of(&report, "/seconds") * 1e9 / 2000.0;
        assert!((sum / all - 1.0).abs() < 0.01, "{sum} of {all}: {report}");
        assert!(of(&report, "/host_ns_per_op/tree") > 0.0);
    }
}

#[test]
fn a_slower_controller_makes_less() {
    let rate = |more: &str| {
        of(&bench(&format!("C --records 2k --ops 3k --memory 10% {more}")), "/ops_per_second")
    };
    assert!(rate("") > 2.0 * rate("--controller-time 100us"));
}

#[test]
fn what_is_stopped_tells_what_it_measured() {
    for clock in ["virtual", "real"] {
        let report =
            bench(&format!("C --records 1k --ops 900M --clock {clock} --verify --max-time 4s"));
        assert_eq!((&report["interrupted"], number(&report["errors"])), (&true.into(), 0));
        let (ops, seconds) = (number(&report["ops"]), of(&report, "/seconds"));
        let counted: u64 =
            report["latency_ns"].as_object().unwrap().values().map(|l| number(&l["n"])).sum();
        assert!(ops > 0 && ops == counted && seconds > 0.0, "{report}");
    }
    let line = format!("ycsb {DRIVE} --workload C --records 2M --max-time 100ms");
    let out = run(Path::new("."), &line);
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{errors}");
    assert!(errors.contains("before anything was measured"), "{errors}");
}

#[test]
fn what_contradicts_is_refused() {
    for (rest, says) in [
        ("paper --rw read", "--rw"),
        ("paper --qd 4", "--qd"),
        ("paper --pages batch", "batched, log, in-place"),
        ("G", "no workload"),
        ("A --memory 0%", "more than 0% and up to 1000%"),
        ("A --memory 1001%", "more than 0% and up to 1000%"),
        ("A --memory 0", "more than no bytes"),
        ("A --pages in-place --not-durable", "in place"),
    ] {
        let out = run(Path::new("."), &format!("ycsb {DRIVE} --workload {rest}"));
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{rest}: {errors}");
        assert!(errors.contains(says), "{rest}: {errors}");
    }
    for (drive, says) in [
        ("null:", "mem:"),
        ("mem:znand,store=none", "store=memory"),
        ("mem:znand,target=kv,cache=protected", "no protected cache"),
        ("mem:znand,target=kv --pages log", "no pages"),
        ("mem:znand,target=kv --memory 10%", "no cache of pages"),
        ("mem:znand,target=batch --pages log", "no blocks"),
        ("mem:znand --value 70k", "at most 65024 B"),
        ("mem:znand --value 8", "16 bytes to 64 MiB"),
        ("mem:znand,size=1M,pages=64", "pages are in use"),
        ("mem:znand,size=64M,target=pblk/kv", "no several targets"),
        ("mem:znand,size=64M,targets=2", "no several targets"),
        ("mem:znand,streams=2", "no streams"),
        ("mem:znand,shards=2", "target=pblk with --pages log"),
    ] {
        let out = run(Path::new("."), &format!("ycsb {drive} --workload A --records 2k"));
        assert!(matches!(out.status.code(), Some(1 | 2)) && out.stdout.is_empty(), "{drive}");
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(errors.contains(says), "{drive}: {errors}");
    }
}

/// Whether rows pass depends on the machine; that they are there does not.
#[test]
#[ignore = "in real time: needs two idle processors, and minutes without"]
fn the_quick_study_has_all_rows() {
    let out = run(Path::new("."), "study batched --quick --records 2k --json");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| {
        panic!("{e}: {}", String::from_utf8_lossy(&out.stderr));
    });
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 6 + 2 * 8 + 1 + 4 + 2 * 3 + 2 * 3 + 2);
    for row in rows {
        assert!(row["ours"]["median"].as_f64().is_some(), "{row}");
    }
}
