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
