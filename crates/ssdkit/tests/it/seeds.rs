//! `bench --seeds`: the same run of several seeds.

use serde_json::Value;

use crate::common::{json_of, ssdkit, told};

const LINE: &str = "bench mem:tlc,groups=1,pus=4,pages=48,size=64M,store=none --rw randwrite --qd 8 \
                    --ios 4k --precondition seq";

fn json(line: &str) -> Value {
    json_of(&ssdkit(&format!("{line} --json")).output().expect("it runs"), line)
}

#[test]
fn each_seed_is_a_run_of_its_own() {
    let all = json(&format!("{LINE} --seed 3 --seeds 5"));
    assert_eq!(all["seeds"], serde_json::json!([3, 4, 5, 6, 7]));
    let runs = all["runs"].as_array().expect("a report each");
    let figures = all["figures"].as_array().expect("figures");
    let iops = figures.iter().find(|figure| figure["name"] == "IOPS").expect("one is the rate");
    for (n, run) in runs.iter().enumerate() {
        assert_eq!((&run["seed"], &run["iops"]), (&(3 + n).into(), &iops["values"][n]));
    }
    // As it would be alone.
    assert_eq!(json(&format!("{LINE} --seed 5"))["iops"], runs[2]["iops"]);
    let of = |key: &str| iops[key].as_f64().expect("a number");
    assert!(of("least") < of("median") && of("median") < of("most"), "{iops}");
    assert!(of("within") > 0.0 && of("within") < 0.2 * of("mean"), "{iops}");
    let out = ssdkit(&format!("{LINE} --seed 3 --seeds 5")).output().expect("it runs");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.starts_with("5 runs, of the seeds 3 to 7\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("write amplification ")), "{text}");
}

/// Rates and latencies that mean nothing are in no table.
#[test]
fn of_void_runs_only_what_is_of_no_time_is_told() {
    let line = "bench mem:null,size=64M --rw randwrite --ios 1k --seeds 5";
    let out = ssdkit(line).output().expect("it runs");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.contains("    - void: "), "{text}");
    assert!(!text.contains("IOPS") && !text.contains("latency"), "{text}");
    assert!(text.contains("write amplification "), "{text}");
}

#[test]
fn what_is_of_one_run_is_refused() {
    for (line, why) in [
        ("--seeds 4", "5 to 20"),
        ("--seeds 5 --snapshot new.ssd", "of one run"),
        ("--seeds 5 --slowest 3", "of one run"),
        ("--seeds 9 --report r.html", "up to 8 runs"),
        ("--seeds 5 --seed 18446744073709551615", "no seeds behind"),
    ] {
        let out = ssdkit(&format!("{LINE} {line}")).output().expect("it runs");
        let (code, said) = told(&out);
        assert_eq!(code, Some(2), "{line}");
        assert!(said.contains(why), "{line}: {said}");
    }
    let out = ssdkit("bench null: --rw randread --ios 10 --seeds 5").output().expect("it runs");
    let (code, said) = told(&out);
    assert_eq!((code, said.contains("a new drive")), (Some(2), true), "{said}");
}
