//! Tests of what is told of runs side by side.

use super::*;

#[test]
fn what_differs_in_long_texts_is_seen() {
    let apart = |texts: &[&str]| apart(&texts.iter().map(|&t| t.into()).collect::<Vec<_>>());
    let ends = ["mem:datacenter-tlc,size=1G,store=none", "mem:client-tlc,size=1G,store=none"];
    assert_eq!(apart(&ends), ["mem:datacenter-…", "mem:client-…"]);
    let begins = ["a/long/path/to/a/drive.ssd", "a/long/path/to/a/other.ssd"];
    assert_eq!(apart(&begins), ["…/drive.…", "…/other.…"]);
    let longer = [
        "mem:datacenter-tlc,size=1G,store=none,cores=4",
        "mem:datacenter-tlc,size=1G,store=none,cores=4,qos=1",
    ];
    assert_eq!(apart(&longer), ["…,cores=4", "…,cores=4,qos=1"]);
    assert_eq!(apart(&["short", "other"]), ["short", "other"]);
    assert_eq!(apart(&["", "a text that is too long for it"]), ["", "… is too long for it"]);
    assert_eq!(apart(&["one text that is too long for it"]), ["… is too long for it"]);
}
use crate::run::tests::{report, run};

#[test]
fn the_same_run_twice_differs_in_nothing() {
    let runs = [run("a", &[1e5, 1.1e5, 9e4, 1e5, 1e5]), run("b", &[1e5, 1.1e5, 9e4, 1e5, 1e5])];
    let comparison = Comparison::new(&runs);
    for figure in &comparison.figures {
        if let Some(difference) = figure.difference(1) {
            assert_eq!(difference.by, 0.0, "{}", figure.name);
            assert_ne!(difference.is_told_apart(), Some(true), "{}", figure.name);
        }
    }
    assert!(comparison.settings.is_empty());
    assert!(comparison.to_text().contains("nothing is set differently"));
}

#[test]
fn a_difference_is_held_against_what_both_waver_by() {
    let rows = |mean: f64, by: f64| [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0].map(|s| mean + s * by);
    let of = |a: [f64; 6], b: [f64; 6]| {
        Comparison::new(&[run("a", &a), run("b", &b)]).figures[0].difference(1).unwrap()
    };
    // Six rows 1 % off, five degrees of freedom: 2.571 * 0.010954 / sqrt(6); those of the
    // other go the other way.
    let steady = of(rows(1e5, 1e3), rows(1.1e5, -1.1e3));
    assert!((steady.by - 0.1).abs() < 1e-9);
    let waver = 2.2 * 2.571 * 0.010_954 / 6f64.sqrt();
    assert!((steady.waver.unwrap() - waver).abs() < 1e-5, "{steady:?}");
    assert_eq!(steady.is_told_apart(), Some(true));
    assert_eq!(of(rows(1e5, 3e4), rows(1.1e5, -3e4)).is_told_apart(), Some(false));
}

/// Of half reads, half writes it is now that of the one, now that of the other.
#[test]
fn a_median_that_jumps_from_seed_to_seed_is_not_told_apart() {
    let with = |p50: f64, within: Value| {
        let mut json = report(&[1e5; 6]);
        json["latency_ns"]["p50"] = p50.into();
        json["percentiles_within"] = json!({ "p50": within });
        Run::from_json("a", json).unwrap()
    };
    let beyond = |a: Run, b: Run| {
        let comparison = Comparison::new(&[a, b]);
        let median = comparison.figures.iter().find(|f| f.name == "latency: p50").unwrap();
        median.difference(1).unwrap().is_told_apart()
    };
    let wide = json!([8500, 69_000]);
    for (a, b) in [(8544.0, 68_864.0), (68_864.0, 8544.0), (8544.0, 8544.0)] {
        assert_eq!(beyond(with(a, wide.clone()), with(b, wide.clone())), Some(false));
    }
    let (a, b) = (with(1e5, json!([99_000, 101_000])), with(1.05e5, json!([104_000, 106_000])));
    assert_eq!(beyond(a, b), Some(true));
    // Whichever is held against which.
    let pairs = [
        (69_000.0, json!([8500, 70_000]), 8544.0, json!([8500, 8600]), false),
        (8544.0, json!([8500, 69_000]), 69_000.0, json!([68_000, 70_000]), false),
        (7440.0, json!([7400, 69_000]), 7000.0, json!([6900, 7100]), true),
    ];
    for (a, a_within, b, b_within, expected) in pairs {
        let run = |value, within: &Value| with(value, within.clone());
        assert_eq!(beyond(run(a, &a_within), run(b, &b_within)), Some(expected), "{a}, {b}");
        assert_eq!(beyond(run(b, &b_within), run(a, &a_within)), Some(expected), "{b}, {a}");
    }
    assert_eq!(beyond(with(1e5, Value::Null), with(2e5, wide)), None);
}

/// Reads and writes of a mix have what their own percentiles are within.
#[test]
fn percentiles_of_reads_and_of_writes_are_told_apart_by_their_own() {
    let with = |p99: f64, within: Value| {
        let mut json = report(&[1e5; 6]);
        let mut part = json!({ "iops": 5e4, "latency_ns": json["latency_ns"].clone() });
        part["latency_ns"]["p99"] = p99.into();
        part["percentiles_within"] = json!({ "p99": within });
        json["read"] = part;
        Run::from_json("a", json).unwrap()
    };
    let told = |a: Run, b: Run| {
        let comparison = Comparison::new(&[a, b]);
        let of = |name: &str| comparison.figures.iter().find(|f| f.name == name).unwrap();
        assert_eq!(of("reads: p50").difference(1).unwrap().is_told_apart(), None);
        of("reads: p99").difference(1).unwrap().is_told_apart()
    };
    let narrow = |p99: f64| with(p99, json!([p99 * 0.99, p99 * 1.01]));
    assert_eq!(told(narrow(1e5), narrow(1.1e5)), Some(true));
    assert_eq!(told(narrow(1e5), narrow(1.01e5)), Some(false));
    assert_eq!(told(narrow(1e5), with(1.1e5, json!([9e4, 1.2e5]))), Some(false));
    assert_eq!(told(narrow(1e5), with(2e5, Value::Null)), None);
}

#[test]
fn what_is_set_differently_is_named() {
    let mut other = report(&[1e5; 5]);
    other["workload"]["qd"] = 64.into();
    other["drive"]["profile"]["timing"]["suspend"] = true.into();
    let runs = [run("a", &[1e5; 5]), Run::from_json("b", other).unwrap()];
    let settings = Comparison::new(&runs).settings;
    let of = |name: &str, a: &str, b: &str| Setting {
        name: name.into(),
        values: vec![a.into(), b.into()],
    };
    let expected = [of("drive.profile.timing.suspend", "", "true"), of("workload.qd", "32", "64")];
    assert_eq!(settings, expected);
}

#[test]
fn what_parity_and_folds_cost_is_told_where_it_is_known() {
    let mut folds = report(&[1e5; 5]);
    let text = |of: &Value| Comparison::new(&[Run::from_json("a", of.clone()).unwrap()]).to_text();
    for unknown in [Value::Null, json!({ "write_amplification": null })] {
        (folds["slc_cache"], folds["parity"]) = (unknown.clone(), unknown);
        assert!(!text(&folds).contains("folds") && !text(&folds).contains("parity"));
    }
    folds["slc_cache"] = json!({ "write_amplification": 3.25 });
    folds["parity"] = json!({ "write_amplification": 2.5, "lost_blocks": 0 });
    let text = text(&folds);
    for (name, value) in [("", "2.000"), (" with parity", "2.500"), (" with folds", "3.250")] {
        let line = format!("\n{:<32}{value:>14}\n", format!("write amplification{name}"));
        assert!(text.contains(&line), "{text}");
    }
    folds["slc_cache"]["write_amplification"] = (-1).into();
    assert!(Run::from_json("a", folds).is_err());
}

#[test]
fn loads_are_held_against_each_other_by_number() {
    let with = |qd: u64, p999: f64| {
        let mut json = report(&[1e5; 5]);
        let job = |rw: &str, qd: u64, p999: f64| {
            json!({ "workload": { "rw": rw, "qd": qd }, "queue": 0, "iops": 5e4,
                    "latency_ns": { "mean": 1e5, "n": 50, "p999": p999 }, "open_loop": null })
        };
        json["jobs"] = json!([job("randread", 1, p999), job("write", qd, 1e6)]);
        Run::from_json("a", json).unwrap()
    };
    let comparison = Comparison::new(&[with(64, 1e6), with(128, 2e6)]);
    let by = |name: &str| {
        comparison.figures.iter().find(|f| f.name == name).and_then(|f| f.difference(1))
    };
    assert_eq!(by("load 0: p99.9").map(|d| d.by), Some(1.0));
    let names: Vec<&str> = comparison.settings.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["load 1.qd"]);
}

#[test]
fn nothing_steers_the_terminal() {
    let mut wild = report(&[1e5; 5]);
    let steer = "\u{1b}]0;owned\u{7}";
    wild["warnings"] = json!([steer]);
    wild["version"] = steer.into();
    wild["drive"][steer] = steer.into();
    let runs = [run("a", &[1e5; 5]), Run::from_json(steer, wild).unwrap()];
    let text = Comparison::new(&runs).to_text();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn a_run_alone_has_no_differences() {
    let text = Comparison::new(&[run("a", &[1e5; 5])]).to_text();
    assert!(text.contains("IOPS") && !text.contains('%'), "{text}");
}

/// What has no place beside the first run is below, with the first one again.
#[test]
fn runs_fit_the_terminal() {
    let runs: Vec<Run> = (0..8)
        .map(|n| {
            let mut one = report(&[1e5; 5]);
            one["seed"] = n.into();
            Run::from_json(&format!("run {n}"), one).unwrap()
        })
        .collect();
    let comparison = Comparison::new(&runs);
    assert_eq!(comparison.to_text(), comparison.to_text_in(400));
    let of = |text: &str| text.lines().filter(|line| line.starts_with("IOPS ")).count();
    for (columns, blocks) in [(0, 7), (80, 7), (120, 4), (200, 2), (400, 1)] {
        let text = comparison.to_text_in(columns);
        assert_eq!(of(&text), blocks, "{columns}: {text}");
        let seeds: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("seed "))
            .flat_map(str::split_whitespace)
            .collect();
        // Each is there, and the first one once a block.
        assert_eq!((1..8).filter(|n| seeds.contains(&n.to_string().as_str())).count(), 7);
        let is_table = |line: &&str| line.starts_with(['I', 'l', 's']) && columns >= 80;
        let longest = text.lines().filter(is_table).map(|line| line.chars().count()).max();
        assert!(longest.unwrap_or(0) <= columns.max(80), "{columns}: {text}");
    }
}
