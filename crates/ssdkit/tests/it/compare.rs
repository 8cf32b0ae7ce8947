//! Reports side by side, from the command line.

use crate::common::{all, json, run};

#[test]
fn two_drives_are_told_apart_from_two_seeds_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |drive: &str, rest: &str, to: &str| {
        let line = format!(
            "bench mem:tlc,size=64M,store=none{drive} --rw randrw --qd 8 --precondition seq --time \
             7s --json {rest}"
        );
        std::fs::write(dir.path().join(to), run(dir.path(), &line).stdout).unwrap();
    };
    bench("", "", "a.json");
    bench("", "--seed 2", "same.json");
    bench(",suspend=true", "", "other.json");
    let compared = json(dir.path(), "compare a.json same.json other.json");
    let iops = &compared["figures"][0]["runs"];
    assert_eq!(iops[2]["told_apart"], true, "{iops}");
    // Another seed is within three times what is said with 95 %.
    let by = |key: &str| iops[1][key].as_f64().unwrap();
    assert!(by("difference").abs() < 1.5 * by("difference_waver"), "{iops}");
    let names: Vec<_> = compared["settings"].as_array().unwrap().iter().collect();
    let has = |name: &str| names.iter().any(|setting| setting["name"] == name);
    assert!(has("seed") && has("drive.profile.timing.suspend") && has("drive.name"), "{names:?}");
    assert!(!has("drive.spare_in_effect"), "{names:?}");
    let (text, _, code) = all(dir.path(), "compare a.json other.json");
    assert!(code == Some(0) && text.contains("set differently") && text.contains(" ± "), "{text}");
}

#[test]
fn pages_are_written_where_they_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let bench = "bench mem:znand,size=16M --rw randwrite --ios 20k";
    let (report, _, _) = all(dir.path(), &format!("{bench} --report one.html --json"));
    std::fs::write(dir.path().join("a.json"), report).unwrap();
    let page = std::fs::read_to_string(dir.path().join("one.html")).unwrap();
    assert!(page.contains("<figure id=\"latency\"><svg") && page.contains("a new drive"), "{page}");
    let compare = "compare a.json --html one.html --pictures .";
    assert_eq!(all(dir.path(), compare).2, Some(0), "a page is written over");
    assert!(dir.path().join("latency.svg").exists());
    // A report, and what is no report.
    for line in [&format!("{bench} --report a.json"), "compare a.json --html a.json"] {
        let (_, why, code) = all(dir.path(), line);
        assert!(code == Some(2) && why.contains("there is something else"), "{why}");
    }
    for (file, text) in [("fio.json", r#"{"fio version": "fio-3.33", "jobs": []}"#), ("e", "")] {
        std::fs::write(dir.path().join(file), text).unwrap();
        let (_, why, code) = all(dir.path(), &format!("compare a.json {file}"));
        assert!(code == Some(2) && why.contains("not the JSON of `ssdkit bench"), "{why}");
    }
    assert_eq!(all(dir.path(), "compare a.json /dev/zero").2, Some(2));
    std::fs::write(dir.path().join("latency.svg"), "SSDKIT").unwrap();
    let (_, why, code) = all(dir.path(), "compare a.json --pictures .");
    assert!(code == Some(2) && why.contains("there is something else"), "{why}");
    let explain = "explain mem:tlc,size=16M --rw randread --ios 100 --report a.html";
    let (_, why, code) = all(dir.path(), explain);
    assert!(code == Some(2) && why.contains("--report"), "{why}");
    assert!(why.contains("explaining makes none"), "also of replay --explain: {why}");
    let (help, _, code) = all(dir.path(), "explain --help");
    let is_hidden = help.contains("--slowest") && !help.contains("--report");
    assert!(code == Some(0) && is_hidden, "what is refused is not offered: {help}");
    // What fails leaves no empty page.
    assert_eq!(all(dir.path(), "bench nbd:none.sock --rw read --report new.html").2, Some(1));
    assert!(!dir.path().join("new.html").exists());
}

/// What a job of fio's and a bench of the same options do is the same, and so is what is told.
#[test]
fn fios_output_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let job = "[a]\nrw=randread\nnorandommap\niodepth=4\nnumber_ios=20000\nioengine=libaio\n";
    std::fs::write(dir.path().join("a.fio"), job).unwrap();
    let drive = "mem:tlc,size=64M,store=none";
    let fio = format!("fio a.fio --drive {drive} --output-format json+ --output fio.json");
    assert_eq!(all(dir.path(), &fio).2, Some(0));
    let bench = format!("bench {drive} --rw randread --qd 4 --ios 20k --precondition seq --json");
    std::fs::write(dir.path().join("a.json"), all(dir.path(), &bench).0).unwrap();
    let (report, why, code) = all(dir.path(), "compare a.json fio.json --json");
    assert_eq!(code, Some(0), "{why}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let figures = report["figures"].as_array().unwrap();
    for name in ["IOPS", "throughput", "latency: mean", "latency: p50", "latency: p99"] {
        let figure = figures.iter().find(|figure| figure["name"] == name).unwrap();
        let difference = figure["runs"][1]["difference"].as_f64();
        assert!(difference.is_some_and(|by| by.abs() < 0.01), "{name}: {figure:#}");
    }
    let settings = report["settings"].as_array().unwrap();
    let drive = settings.iter().find(|of| of["name"].as_str().unwrap().starts_with("drive."));
    assert!(drive.is_none(), "{settings:?}");
}
