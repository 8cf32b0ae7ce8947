//! Tests of the report.

use super::*;
use serde_json::json;

fn row(second: u64, ios: u64) -> Row {
    Row {
        second: second as f64,
        seconds: 1.0,
        ios,
        iops: ios as f64,
        p50: Some(80_000),
        p999: Some(900_000),
        write_amplification: Some(2.5),
        programmed: None,
        free_chunks: Some(12),
        collections: Some(3),
        erases: Some(9),
        tail: None,
    }
}

fn summary(n: u64) -> Summary {
    Summary {
        mean: Some(104_600.0),
        min: Some(9_100),
        max: Some(5_200_000),
        n,
        p50: Some(85_000),
        p90: Some(190_000),
        p99: Some(720_000),
        p999: Some(2_100_000),
        p9999: (n >= 100_000).then_some(3_900_000),
        p99999: None,
    }
}

fn sample() -> Report {
    let direction = |ios: u64| Direction {
        ios,
        bytes: ios * 4096,
        iops: ios as f64 / 4.0,
        latency_ns: summary(ios),
        percentiles_within: None,
    };
    Report {
        drive: json!({"profile": "tlc", "size": 8589934592u64, "gc": {"policy": "greedy", "seen": null}}),
        workload: json!({"bs": 4096, "depth": 32, "order": "uniform"}),
        ios: 1_000_000,
        failed_requests: 0,
        bytes: 4_096_000_000,
        seconds: 4.0,
        wall_seconds: 8.7,
        void: None,
        iops: 250_000.0,
        bytes_per_second: 1.024e9,
        latency_ns: summary(1_000_000),
        distribution: Distribution::default(),
        percentiles_within: None,
        read: Some(direction(950_000)),
        write: Some(direction(50_000)),
        write_amplification: WriteAmplification::from_blocks(50_000, 75_000, 2_500, 500),
        steady: Some(SteadyState::new(false, 25, 5, ROUND_NS)),
        gc: Some(Gc { collections: 12, moved: 75_000, copied: 0 }),
        erases: Some(36),
        self_check_ns: Some(3_200),
        cpu: Cpu::new(0.6, 0.02, 0.62, 1_000_000).with_own(Some(31e6), 1_000_000),
        series: vec![row(0, 300_000), row(1, 280_000), row(2, 400_000), row(3, 20_000)],
        errors: 0,
        seed: 42,
        version: "0.1.0".to_owned(),
    }
}

const GOLDEN: &str = "\
ssdkit 0.1.0, seed 42

drive       gc.policy=greedy profile=tlc size=8589934592
workload    bs=4096 depth=32 order=uniform
run         1.00 M I/Os, 4.10 GB in 4.00 s of drive time
on the wall 8.70 s in all, of which 620 ms measuring

                   all       reads      writes
I/Os            1.00 M       950 k      50.0 k
IOPS             250 k       238 k      12.5 k
throughput   1.02 GB/s    973 MB/s   51.2 MB/s
latency                                          log scale
min            9.10 us     9.10 us     9.10 us   █
mean            105 us      105 us      105 us   █████████▉
p50            85.0 us     85.0 us     85.0 us   █████████▏
p90             190 us      190 us      190 us   ████████████
p99             720 us      720 us      720 us   ████████████████▉
p99.9          2.10 ms     2.10 ms     2.10 ms   ████████████████████▊
p99.99         3.90 ms     3.90 ms           -   ███████████████████████
p99.999              -           -           -
max            5.20 ms     5.20 ms     5.20 ms   ████████████████████████
            - insufficient samples: p99.99 needs 100 k I/Os, p99.999 needs 10.0 M I/Os

write amp.  2.560 = 1 user + 1.500 collection + 0.050 padding + 0.010 metadata
collection  12 runs, 75.0 k blocks moved; 36 erases
steady      steady state not reached after 25 rounds: figures may still move
IOPS        ▆▆█▁
over time   20.0 k to 400 k, a column is 1.00 s
processor   620 ns an I/O, 31 ns of it bench's (600 ms user, 20.0 ms system)
self-check  99.9 % of completions within 3.20 us of the model
errors      none
";

#[test]
fn the_text_is_as_designed() {
    let text = sample().to_text();
    assert_eq!(text, GOLDEN, "\n{text}");
}

#[test]
fn json_has_the_agreed_keys() {
    let json = sample().to_json();
    let keys = [
        "drive",
        "workload",
        "ios",
        "bytes",
        "seconds",
        "wall_seconds",
        "void",
        "failed_requests",
        "iops",
        "bytes_per_second",
        "latency_ns",
        "read",
        "write",
        "write_amplification",
        "steady",
        "gc",
        "erases",
        "self_check_ns",
        "cpu",
        "series",
        "errors",
        "seed",
        "version",
    ];
    for key in keys {
        assert!(json.get(key).is_some(), "{key} is missing");
    }
    for key in ["mean", "min", "max", "n", "p50", "p90", "p99", "p999", "p9999", "p99999"] {
        assert!(json["latency_ns"].get(key).is_some(), "latency_ns.{key} is missing");
    }
    assert_eq!(json["latency_ns"]["p9999"], 3_900_000);
    assert_eq!(json["latency_ns"]["p99999"], Value::Null);
    assert_eq!(json["write"]["latency_ns"]["p9999"], Value::Null);
    assert_eq!(json["write_amplification"]["total"], 2.56);
    assert_eq!(
        json["steady"],
        json!({
            "reached": false, "rounds": 25, "window": 5, "round_seconds": 60.0, "weaker": false
        })
    );
    assert_eq!(json["series"][3]["iops"], 20_000.0);
    assert_eq!(json["series"][0]["second"], 0.0);
}

#[test]
fn what_did_not_happen_is_left_out() {
    let mut r = sample();
    (r.read, r.write, r.self_check_ns, r.write_amplification) = (None, None, None, None);
    let json = r.to_json();
    assert!(json.get("read").is_none() && json.get("self_check_ns").is_none());
    assert_eq!(json["write_amplification"], Value::Null);
    let text = r.to_text();
    assert!(text.contains("nothing was written"));
    assert!(!text.contains("self-check") && !text.contains("reads"));
}

#[test]
fn an_empty_run_prints() {
    let mut r = sample();
    (r.ios, r.bytes, r.seconds, r.iops) = (0, 0, 0.0, 0.0);
    (r.latency_ns, r.read, r.write) = (Summary::default(), None, None);
    r.series.clear();
    r.cpu = Cpu::new(0.1, 0.1, 0.2, 0).with_own(Some(5.0), 0);
    assert_eq!(r.cpu.own_per_io_ns, None);
    r.steady = Some(SteadyState::new(true, 7, 5, ROUND_NS));
    let text = r.to_text();
    assert!(text.contains("insufficient samples: p50 needs 20 I/Os, p90 needs 100"));
    assert!(text.contains("reached after 7 rounds"));
    assert!(!text.contains("NaN") && !text.contains("inf"));
}

#[test]
fn an_own_part_above_the_whole_is_not_known() {
    let of = |own| Cpu::new(0.3, 0.1, 0.5, 1000).with_own(own, 1000).own_per_io_ns;
    assert_eq!(
        [of(Some(1e5)), of(Some(4e8)), of(Some(4.1e8)), of(None)].map(|own| own.map(f64::round)),
        [Some(100.0), Some(400_000.0), None, None]
    );
}

#[test]
fn failures_are_loud() {
    let r = Report { errors: 3, ..sample() };
    assert!(r.to_text().contains("3 I/OS FAILED"));
}

/// A drive's name is shown whole: what two runs differ in may be at its end.
#[test]
fn a_long_name_is_broken_and_not_cut() {
    let mut report = sample();
    let name = "mem:znand,size=256M,store=none,victim=random,groups=2,pus=2,pages=64,spare=0.2,x=1";
    report.drive = json!({ "name": name });
    let text = report.to_text_in(80);
    let joined: String = text.split_whitespace().collect();
    assert!(joined.contains(&format!("name={name}")), "{text}");
}

#[test]
fn the_text_stays_small() {
    let mut r = sample();
    let long: serde_json::Map<String, Value> =
        (0..100).map(|i| (format!("key{i}"), json!("wört\n".repeat(i)))).collect();
    (r.drive, r.workload) = (Value::Object(long.clone()), Value::Object(long));
    r.series = (0..2048).map(|i| row(i, i)).collect();
    let text = r.to_text();
    assert!(text.lines().count() <= MAX_LINES, "{} lines", text.lines().count());
    for columns in [0, 60, 70, 80, 90, 200] {
        for line in r.to_text_in(columns).lines() {
            let wide = line.chars().count();
            assert!(wide <= columns.clamp(NARROW, WIDTH), "{columns} columns: {line}");
        }
    }
}

#[test]
fn only_what_is_missing_is_said_to_be() {
    let mut r = sample();
    (r.read, r.write) = (None, None);
    let text = r.to_text();
    let said = text.lines().find(|line| line.contains("insufficient")).unwrap();
    assert_eq!(said.trim(), "- insufficient samples: p99.999 needs 10.0 M I/Os");
    r.latency_ns.p99999 = Some(4_000_000);
    assert!(!r.to_text().contains("insufficient"));
}

#[test]
fn what_is_void_shows_no_figure() {
    let void = Some("nothing was ever written".to_owned());
    let r = Report { void, ..sample() };
    let text = r.to_text();
    assert!(text.contains("VOID        rates and latencies mean nothing: nothing was ever"));
    for word in ["p50", "throughput", "over time"] {
        assert!(!text.contains(word), "{word} in\n{text}");
    }
    assert!(text.contains("write amp.  2.560"), "what was counted holds");
    assert_eq!(r.to_json()["void"], "nothing was ever written");
    assert_eq!(sample().to_json()["void"], Value::Null);
}

#[test]
fn few_requests_a_second_are_told_with_their_fraction() {
    for (iops, told) in [(1.5, "1.50"), (11.4, "11"), (0.75, "0.75")] {
        let text = Report { iops, read: None, write: None, ..sample() }.to_text();
        assert!(text.lines().any(|line| line.split_whitespace().eq(["IOPS", told])), "{text}");
    }
}

#[test]
fn what_parts_had_programmed_is_told_by_bytes() {
    let of = |blocks: u64| {
        let all = WriteAmplification::from_blocks(1000, 500, 0, 0).unwrap();
        Report { write_amplification: Some(all.with_bytes(1000, blocks << 12)), ..sample() }
    };
    // A unit of four blocks is programmed for each that was written.
    let parts = of(250);
    assert_eq!(parts.to_json()["write_amplification"]["of_bytes"], 6.0);
    assert!(parts.to_text().contains("\n            6.000 of the bytes written"));
    // What was on its way at the beginning is nothing to tell of.
    for whole in [of(1000), of(990)] {
        assert_eq!(whole.to_json()["write_amplification"].get("of_bytes"), None);
        assert!(!whole.to_text().contains("of the bytes written"));
    }
}

#[test]
fn what_a_drive_does_not_tell_is_unknown() {
    let mut r = sample();
    (r.gc, r.erases, r.write_amplification) = (None, None, None);
    let text = r.to_text();
    assert!(text.contains("write amp.  unknown: this drive does not tell"), "{text}");
    assert!(!text.contains("collection") && !text.contains("erases"), "{text}");
    assert_eq!((&r.to_json()["gc"], &r.to_json()["erases"]), (&Value::Null, &Value::Null));
    let row = row(0, 5).of_an_unknown_drive();
    assert_eq!((row.ios, row.free_chunks, row.erases), (5, None, None));
}

#[test]
fn a_weaker_rule_is_named() {
    let text = |window, round_ns| {
        let steady = Some(SteadyState::new(true, 7, window, round_ns));
        Report { steady, ..sample() }.to_text()
    };
    assert!(text(5, ROUND_NS).contains("reached after 7 rounds\n"));
    let short = text(3, 15_000_000_000).replace("\n            ", " ");
    let rule = "by a weaker rule: 3 rounds of 15.0 s or more instead of 5 of 60.0 s";
    assert!(short.contains(rule), "{short}");
}

#[test]
fn bars_and_sparks_cover_their_range() {
    let log_bar = |ns, from, to| super::log_bar(ns, from, to, BAR);
    assert_eq!(log_bar(100.0, 100.0, 10_000.0), "█");
    assert_eq!(log_bar(10_000.0, 100.0, 10_000.0), "█".repeat(BAR));
    assert_eq!(log_bar(1_000.0, 100.0, 10_000.0), "█".repeat(12) + "▌");
    assert_eq!(log_bar(5.0, 5.0, 5.0), "█");
    assert_eq!((spark(0.0, 9.0), spark(9.0, 9.0), spark(4.5, 9.0)), ('▁', '█', '▄'));
    assert_eq!(spark(0.0, 0.0), '▁');
}
