//! `ssdkit bench` from outside: the report's arithmetic, determinism, errors.

use std::path::Path;

use serde_json::Value;

use crate::common::{json, run, told};

/// The report of a run that must succeed.
fn report(rest: &str) -> Value {
    json(Path::new("."), &format!("bench {rest}"))
}

/// Exit code and message of a run that must fail.
fn failure(rest: &str) -> (Option<i32>, String) {
    let out = run(Path::new("."), &format!("bench {rest}"));
    assert!(out.stdout.is_empty(), "{rest} printed a result");
    told(&out)
}

fn number(json: &Value, path: &str) -> f64 {
    json.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {json}"))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Processor time of a run: it does not grow while a machine is busy with
/// something else.
fn worked(json: &Value) -> f64 {
    number(json, "/cpu/user_seconds") + number(json, "/cpu/system_seconds")
}

/// What holds for every report.
fn check(json: &Value) {
    for key in [
        "drive",
        "ios",
        "bytes",
        "seconds",
        "wall_seconds",
        "iops",
        "latency_ns",
        "write_amplification",
        "steady",
        "gc",
        "erases",
        "errors",
        "seed",
        "version",
        "series",
        "interrupted",
    ] {
        assert!(json.get(key).is_some(), "{key} in {json}");
    }
    let (ios, seconds) = (number(json, "/ios"), number(json, "/seconds"));
    if seconds > 0.0 {
        assert!(near(number(json, "/iops"), ios / seconds));
    }
    assert_eq!(number(json, "/latency_ns/n"), ios);
    if !json["write_amplification"].is_null() {
        let part = |key: &str| number(json, &format!("/write_amplification/{key}"));
        assert!(near(part("total"), 1.0 + part("gc") + part("padding") + part("metadata")));
    }
    let rows = json["series"].as_array().unwrap();
    if seconds > 0.0 {
        assert_eq!(rows.iter().map(|r| number(r, "/ios")).sum::<f64>(), ios);
    }
    assert_eq!(number(json, "/errors"), 0.0);
}

#[test]
fn every_kind_of_workload_runs() {
    for rw in ["read", "write", "randread", "randwrite", "randrw", "trim"] {
        let json = report(&format!(
            "mem:znand,size=64M,store=none --rw {rw} --qd 8 --threads 2 --ios 20k --precondition seq"
        ));
        check(&json);
        assert_eq!(number(&json, "/ios"), 20_000.0, "{rw}");
        let bytes = if rw == "trim" { 0.0 } else { 20_000.0 * 4096.0 };
        assert_eq!(number(&json, "/bytes"), bytes, "{rw}");
        assert_eq!(json.get("read").is_some(), rw == "randrw");
        assert!(number(&json, "/seconds") > 0.0);
    }
}

#[test]
fn both_directions_add_up() {
    let json = report(
        "mem:ref,size=64M --rw randrw --read-percent 70 --qd 32 --ios 50k --precondition seq",
    );
    check(&json);
    let (reads, writes) = (number(&json, "/read/ios"), number(&json, "/write/ios"));
    assert_eq!(reads + writes, 50_000.0);
    assert!((reads / 50_000.0 - 0.7).abs() < 0.01);
    let mean = |key: &str| number(&json, &format!("{key}/latency_ns/mean"));
    let both = (mean("/read") * reads + mean("/write") * writes) / 50_000.0;
    assert!((mean("") / both - 1.0).abs() < 1e-9);
}

#[test]
fn a_lone_read_takes_the_sum_of_its_parts() {
    let json = report("mem:ref,size=64M,store=none --rw randread --ios 1000 --precondition seq");
    assert_eq!(number(&json, "/latency_ns/min"), 87_301.0);
    assert_eq!(number(&json, "/latency_ns/mean"), 87_301.0);
    assert!(near(number(&json, "/seconds"), 87_301e-9 * 1000.0));
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let line = "mem:tlc,size=64M,victim=d-choices:3 --rw randrw --qd 16 --ios 40k --zipf 0.9 \
                --precondition seq --seed";
    let run = |seed: u32| {
        let mut json = report(&format!("{line} {seed}"));
        for key in ["wall_seconds", "cpu"] {
            json.as_object_mut().unwrap().remove(key).unwrap();
        }
        json
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5)["seconds"], run(6)["seconds"]);
}

#[test]
fn a_good_drive_passes_verification() {
    for rest in [
        "mem:ref,size=16M --rw randrw --bs 512 --qd 16 --ios 10k",
        "mem:ref,size=16M --rw randwrite --bs 12k --qd 16 --ios 5k --fua-every 5 --flush-every 7",
        "mem:znand,size=16M,side=host --rw write --bs 1M --qd 2 --ios 40",
        "mem:ref,size=16M --rw randrw --zipf 2 --qd 64 --ios 10k --precondition seq",
        "mem:ref,size=16M,store=checksum --rw randrw --hot 10:90 --qd 32 --ios 20k",
        "mem:ref,size=16M --rw trim --qd 4 --ios 1k --precondition seq",
        "mem:null,size=16M --rw randrw --qd 4 --ios 5k --range 1M+2M",
    ] {
        check(&report(&format!("{rest} --verify")));
    }
}

#[test]
fn flushes_are_reported_apart() {
    let json = report("mem:ref,size=64M,store=none --rw randwrite --ios 1k --flush-every 7");
    check(&json);
    assert!((142.0..=143.0).contains(&number(&json, "/flush/ios")));
    assert!(number(&json, "/write_amplification/padding") > 0.0);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    for arrivals in ["fixed", "poisson"] {
        let json = report(&format!(
            "mem:ref,size=64M,store=none --rw randread --rate 10k --arrivals {arrivals} --time 1s \
             --precondition seq"
        ));
        check(&json);
        assert!((number(&json, "/iops") / 10_000.0 - 1.0).abs() < 0.05, "{arrivals}");
    }
    // More than the drive can do: latency counts from the intended start.
    let json = report(
        "mem:ref,size=64M,store=none,groups=1,pus=1 --rw randread --rate 100k --time 500ms \
         --precondition seq",
    );
    assert_eq!(number(&json, "/ios"), 50_000.0);
    assert!(number(&json, "/iops") < 20_000.0);
    assert!(number(&json, "/latency_ns/max") > 2e9);
}

#[test]
fn time_and_ramp_are_drive_time() {
    let json = report(
        "mem:ref,size=64M,store=none --rw randread --qd 4 --time 2s --ramp 1s --precondition seq",
    );
    check(&json);
    assert!((2.0..2.01).contains(&number(&json, "/seconds")));
    let rows = json["series"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "a moment at the end is no row");
}

#[test]
fn the_wall_ends_nothing_in_virtual_time() {
    // A drive without time: a GiB of requests in no time is the end, whoever looks.
    let json = report("mem:null,size=64M,store=none --rw randread --bs 64k --time 1 --ramp 1ms");
    assert_eq!((number(&json, "/seconds"), number(&json, "/ios")), (0.0, 16384.0), "{json}");
    // The first writes take no time, as long as the buffer has room, and more time
    // passes on the wall than the run and its ramp have.
    let json = report("mem:ref,size=64M,store=none --rw write --time 1us --ramp 1us");
    assert!(number(&json, "/seconds") >= 1e-6, "{json}");
}

#[test]
fn steady_state_is_told() {
    let json = report(
        "mem:null,groups=1,pus=1,pages=64,size=16M,store=none --rw randwrite --precondition steady --ios 10k --qd 32",
    );
    assert_eq!(json["steady"]["rounds"].as_u64().map(|n| (5..=25).contains(&n)), Some(true));
    assert!(number(&json, "/write_amplification/gc") > 0.5);
    let json = report("mem:ref,size=16M,store=none --rw randread --precondition steady --ios 1k");
    assert_eq!(
        (json["steady"]["reached"].as_bool(), number(&json, "/steady/rounds")),
        (Some(true), 0.0)
    );
}

#[test]
fn the_real_clock_checks_itself() {
    let json =
        report("mem:znand,size=64M --rw randread --time 200ms --clock real --precondition seq");
    check(&json);
    assert!(number(&json, "/seconds") >= 0.2 && worked(&json) < 5.0, "{json}");
    // By their number, so that there are reads and writes however few fit into
    // a time.
    let json = report(
        "mem:znand,size=64M --rw randrw --qd 4 --ios 5k --clock real --verify --precondition seq",
    );
    check(&json);
    assert!(number(&json, "/self_check_ns") > 0.0);
    assert!(number(&json, "/read/latency_ns/min") >= 5_000.0);
    // Shards, without a link above them and with one.
    for profile in ["ref", "znand"] {
        let json = report(&format!(
            "mem:{profile},size=64M,shards=2 --rw randrw --qd 8 --ios 5k --bs 16k --clock real \
             --verify --precondition seq",
        ));
        check(&json);
        assert_eq!(number(&json, "/ios"), 5000.0, "{json}");
        // Those without one are polled by several cores, as many as there are shards
        // or more, and requests go over stripes.
        for cores in [2, 3] {
            let json = report(&format!(
                "mem:{profile},size=64M,shards=2 --rw randrw --qd 8 --ios 3k --bs 96k --clock real \
                 --precondition seq --flush-every 40 --cores {cores}",
            ));
            check(&json);
            assert_eq!(number(&json, "/ios"), 3000.0, "{json}");
            assert_eq!(
                json["block_layer"]["dispatch"].as_array().map_or(0, Vec::len),
                match profile {
                    "ref" => cores,
                    _ => 1,
                }
            );
        }
    }
}

#[test]
fn the_text_report_is_for_people() {
    let line = "bench mem:ref,size=64M,store=none --rw randread --ios 10k --precondition seq";
    let out = run(Path::new("."), line);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0));
    for word in ["IOPS", "p99.9", "87.3 us", "mem:ref,size=64M,store=none"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert!(out.stderr.is_empty(), "no bar where there is no terminal");
}

#[test]
fn what_cannot_be_is_refused_clearly() {
    for (line, words) in [
        ("mem:nand --rw read", "there is no profile `nand`"),
        ("mem:ref,size=1T,store=memory,groups=0 --rw read", "groups"),
        ("mem:ref,store=none --rw read --verify", "--verify needs data"),
        ("mem:ref,store=none --rw read --bs 512", "multiples of 4k"),
        ("mem:ref,store=checksum --rw read --bs 6k", "multiples of 4k"),
        (
            "mem:ref,size=64M --rw read --range 32M+33M",
            "--range ends at 65 MiB, but the drive has 64 MiB",
        ),
        ("mem:ref,size=64M --rw read --range 1k+33M", "not a multiple"),
        ("mem:ref,size=64M --rw randread --qd 60000 --threads 1000", "too many at once"),
        ("mem:ref,size=64M --rw randread --qd 8192 --bs 1M", "too many at once"),
        ("mem:ref,size=64M --rw randread --read-percent 3", "--read-percent is for"),
        ("mem:ref,unreadable=8,size=64M,parity=8 --rw read", "unreadable must be 0"),
        ("mem:ref,size=64M --rw trim --bs 512 --verify", "whole blocks"),
        ("mem:ref,size=64M --rw read --rate 2G", "rate"),
        ("nbd:/no/such/socket --rw read --rate 5", "closed loop"),
    ] {
        let (code, text) = failure(line);
        assert_eq!(code, Some(2), "{line}: {text}");
        assert!(text.contains(words), "{line}: {text}");
    }
    let (code, text) = failure("nbd:/no/such/socket --rw read");
    assert_eq!(code, Some(1));
    assert!(text.contains("is a server running there"), "{text}");
}

/// Where the time of the slowest requests went sums to it, to the nanosecond.
#[test]
fn the_slowest_requests_tell_their_stories() {
    for (drive, load) in [
        ("mem:tlc,size=64M,side=device", "--rw randrw --qd 32 --ios 5k"),
        ("mem:ref,size=64M,side=host", "--rw randread --rate 200k --ios 5k"),
        ("mem:tlc,size=64M,shards=2", "--rw randrw --qd 4 --bs 512 --fua-every 3 --ios 3k"),
        // More than a drive takes, through a cache.
        ("mem:tlc,size=64M,read_cache=8m,read_ahead_depth=2", "--rw randread --qd 1100 --ios 5k"),
    ] {
        let json = report(&format!("{drive} {load} --precondition seq --slowest 7"));
        let slowest = json["slowest"].as_array().unwrap();
        let ns = |json: &Value| json.as_u64().expect("a whole number of ns");
        let times: Vec<u64> = slowest.iter().map(|slow| ns(&slow["latency_ns"])).collect();
        assert_eq!(times.len(), 7);
        assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
        assert_eq!(times[0], ns(&json["latency_ns"]["max"]));
        for slow in slowest {
            let parts = slow["parts"].as_array().unwrap();
            let sum: u64 = parts.iter().map(|part| ns(&part["ns"])).sum();
            assert_eq!(sum, ns(&slow["latency_ns"]), "{slow}");
            assert!(parts.iter().all(|part| part["part"] != "target"), "{slow}");
            assert!(parts.iter().any(|part| part["part"] != "queue"), "{slow}");
        }
        let same = report(&format!("{drive} {load} --precondition seq"));
        assert_eq!(same["state_hash"], json["state_hash"], "telling changes nothing");
        assert_eq!(same["latency_ns"], json["latency_ns"]);
    }
}

/// Of shards, too: what is cut, as flushes are, ends beside what is not.
#[test]
fn who_looks_at_shards_changes_nothing() {
    let line = "mem:ref,size=128M,shards=2 --rw randwrite --qd 100 --threads 4 --flush-every 10 \
                --ios 2k";
    let (plain, told) = (report(line), report(&format!("{line} --slowest 1")));
    for same in ["state_hash", "latency_ns", "flush", "seconds"] {
        assert_eq!(plain[same], told[same], "{same}");
    }
}

/// The sum of what is in a line of figures.
fn sum_of(line: &Value) -> f64 {
    line.as_str().unwrap().split(' ').map(|n| n.parse::<f64>().unwrap()).sum()
}

/// Of each row the slowest, and blocks by reason, sum to what is told of the whole; what
/// is told of dies and chunks is what the run did, and changes nothing of it.
#[test]
fn what_changes_over_a_run_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let line = "bench mem:tlc,size=64M,groups=2,pus=2,side=device --rw randrw --qd 8 --time 3s \
                --precondition seq";
    let plain = crate::common::json(dir.path(), line);
    let told = crate::common::json(dir.path(), &format!("{line} --slowest 3 --report a.html"));
    for same in ["state_hash", "latency_ns", "chunks", "write_amplification"] {
        assert_eq!(plain[same], told[same], "telling changes nothing");
    }
    assert!(plain["dies"].is_null() && plain["series"][0]["tail"].is_null(), "nobody asked");
    let rows = told["series"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    let of = |reason: &str| -> f64 {
        rows.iter().map(|row| row["programmed"][reason].as_f64().unwrap()).sum()
    };
    let amplification = |reason: &str| told["write_amplification"][reason].as_f64().unwrap();
    assert!(of("gc") > 0.0);
    for reason in ["gc", "padding", "metadata"] {
        assert!((of(reason) / of("user") - amplification(reason)).abs() < 1e-9, "{reason}");
    }
    assert!(rows[0]["programmed"]["folds"].is_null() && rows[0]["programmed"]["parity"].is_null());
    let mut slowest = 0;
    for row in rows {
        let tail = &row["tail"];
        let parts = tail["parts"].as_array().unwrap();
        let sum: u64 = parts.iter().map(|part| part["ns"].as_u64().unwrap()).sum();
        assert_eq!((tail["requests"].as_u64(), tail["ns"].as_u64()), (Some(16), Some(sum)));
        assert!(tail["from_ns"].as_f64() >= row["p50"].as_f64(), "{row}");
        slowest = slowest.max(sum);
    }
    assert!(slowest > told["slowest"][0]["latency_ns"].as_u64().unwrap());
    let (dies, chunks) = (&told["dies"], &told["chunks"]);
    let spans = dies["ends"].as_array().unwrap();
    assert_eq!(spans.last().unwrap().as_f64(), told["seconds"].as_f64());
    assert!(spans.len() >= 32, "{spans:?}");
    for die in 0..4 {
        let busy = sum_of(&dies["busy"][die]) / spans.len() as f64;
        assert!((50.0..=100.0).contains(&busy), "a drive that waits for its dies: {busy}");
        assert!(sum_of(&chunks["erases"][die]) > 0.0 && sum_of(&chunks["valid"][die]) > 0.0);
        let states = chunks["states"][die].as_str().unwrap();
        assert!(states.chars().all(|state| "foc".contains(state)), "{states}");
    }
    assert!(dies["busy"][4].is_null() && dies["pus"] == 2 && chunks["pus"] == 2);
    // With what is beside write amplification.
    let line = "bench mem:tlc,size=64M,groups=2,pus=4,slc_cache=4M,parity=4,store=none \
                --rw randwrite --qd 8 --time 1s --precondition seq --report b.html";
    let told = crate::common::json(dir.path(), line);
    let first = &told["series"][0]["programmed"];
    let blocks = |of: &str| first[of].as_u64().unwrap_or(0);
    assert!(blocks("folds") > 0 && blocks("parity") > 0, "{first}");
    assert_eq!(told["parity"]["parity_blocks"].as_u64(), first["parity"].as_u64());
    assert!(told["chunks"]["valid"].is_null() && told["dies"]["busy"][7].is_string());
    // Of a drive that does not tell.
    let told = crate::common::json(dir.path(), "bench null: --rw randread --ios 1k");
    assert!(told["dies"].is_null() && told["chunks"].is_null());
}

#[test]
fn who_cannot_tell_of_the_slowest_says_so() {
    for (line, why) in [
        ("null: --rw randread", "null: drives"),
        ("nbd:/nowhere --rw randread", "nbd: drives"),
        ("file:/nowhere --rw randread", "devices and files"),
        ("mem:ref,size=64M --rw randwrite --clock real", "--clock virtual"),
        ("mem:ref,size=64M --rw randwrite --merge full", "block layer"),
        ("mem:ref,size=64M,cache=protected --rw randwrite", "cache=volatile"),
        ("mem:ref,size=64M --rw randwrite --fault above:read,count=1", "fault rules"),
    ] {
        let (code, message) = failure(&format!("{line} --ios 10 --slowest 3"));
        assert_eq!(code, Some(2), "{line}: {message}");
        assert!(message.contains(why), "{line}: {message}");
    }
}

/// A controller of one core, by which all commands must go.
const ONE_CORE: &str = "mem:znand,size=64M,store=none,cores=1,core_read=4us,core_write=4us";

#[test]
fn several_loads_are_told_by_themselves_and_together() {
    let queues = "queues=3,arbitration=wrr,queue_classes=high/medium/low,class_weights=5/2/1";
    let loads = "--rw randread --qd 64 --job rw=randread,qd=64 --job rw=randread,qd=64";
    for (queues, parts) in [(queues, [5.0, 2.0, 1.0]), ("queues=1", [1.0; 3])] {
        let json = report(&format!("{ONE_CORE},{queues} {loads} --time 400ms"));
        check(&json);
        let jobs = json["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 3);
        let sum = |path| -> f64 { jobs.iter().map(|job| number(job, path)).sum() };
        for path in ["/ios", "/bytes", "/latency_ns/n"] {
            assert_eq!(sum(path), number(&json, path), "{path}");
        }
        // Each is over its own time: they end within what drains.
        for path in ["/iops", "/bytes_per_second"] {
            assert!((sum(path) / number(&json, path) - 1.0).abs() < 0.01, "{path}");
        }
        assert!((number(&json, "/iops") / 250_000.0 - 1.0).abs() < 0.01, "the core is busy");
        for (job, part) in jobs.iter().zip(parts) {
            let share = number(job, "/iops") / number(&json, "/iops");
            let asked = part / parts.iter().sum::<f64>();
            assert!((share / asked - 1.0).abs() < 0.02, "{queues}: {share} for {asked}");
        }
    }
}

#[test]
fn loads_of_any_kind_go_together() {
    let json = report(&format!(
        "{ONE_CORE},queues=2 --rw randread --job rw=write,bs=16k,threads=2,qd=4,queue=0 \
         --job rw=randrw,rate=10k,read_percent=30,queue=1 --ramp 10ms --time 300ms"
    ));
    let jobs = json["jobs"].as_array().unwrap();
    assert_eq!([0, 1, 2].map(|n| number(&jobs[n], "/queue")), [0.0, 0.0, 1.0]);
    assert!((number(&jobs[2], "/ios") - 3_000.0).abs() <= 1.0, "{json}");
    assert!(number(&jobs[2], "/write/bytes") > 4096.0 * 1_900.0);
    assert_eq!(number(&jobs[1], "/bytes"), 16384.0 * number(&jobs[1], "/ios"));
    let both: f64 = ["/read/bytes", "/write/bytes"].map(|path| number(&json, path)).iter().sum();
    assert_eq!(number(&json, "/bytes"), both);
    assert_eq!(number(&json, "/errors"), 0.0);
    for (rest, says) in [
        ("--job rw=read", "add --time"),
        ("--time 1ms --job rw=fly", "invalid value 'fly'"),
        ("--time 1ms --job bs=4k", "--rw"),
        ("--time 1ms --job rw=read,time=3s", "`time` is none of"),
        ("--time 1ms --job rw=read,read_percent=3", "number 1: --read-percent is for"),
        ("--time 1ms --job rw=read,queue=2", "there is no queue 2"),
        ("--time 1ms --job rw=read,qd=600", "queue 1 holds 512 commands"),
        ("--time 1ms --job rw=read --verify", "know one load"),
        ("--time 1ms --job rw=read --precondition steady", "take --precondition seq"),
        ("--time 1ms --job rw=read --cores 2", "know one load"),
    ] {
        let (code, text) = failure(&format!("{ONE_CORE},queues=2 --rw randread {rest}"));
        assert_eq!(code, Some(2), "{rest}: {text}");
        assert!(text.contains(says), "{rest}: {text}");
    }
    let (code, text) = failure("null: --rw randread --time 1ms --job rw=read");
    assert!(code == Some(2) && text.contains("of this process"), "{text}");
}

/// Loads that keep no bytes and follow each other have a loop of their own; where the
/// slowest are kept they go the way of all others. Figures are the same, whatever ends
/// them.
#[test]
fn plain_loads_are_measured_as_all_others() {
    let dir = tempfile::tempdir().unwrap();
    for line in [
        "tlc --rw randread --qd 1 --time 20ms --precondition seq",
        "tlc --rw randwrite --qd 8 --time 30ms --ramp 10ms",
        "tlc --rw randwrite --qd 1 --time 10ms",
        "tlc --rw randrw --qd 1 --time 20ms --ramp 3ms --precondition seq",
        "tlc --rw randwrite --qd 4 --fua-every 3 --time 10ms",
        "tlc --rw randrw --qd 4 --time 2s --precondition seq",
        "tlc --rw randrw --qd 16 --hot 10:80 --time 10ms --precondition seq",
        "ref --rw trim --qd 4 --time 1ms --precondition seq",
        "ref --rw randrw --qd 8 --threads 3 --ios 5k --precondition seq",
        "ref --rw randread --qd 32 --time 10ms --bs 16k --precondition seq",
        "null --rw randrw --qd 4 --ios 5k",
        "null --rw randread --bs 64k --time 1s --ramp 1ms",
    ] {
        let line = format!("bench mem:{}", line.replacen(' ', ",size=16M,store=none ", 1));
        let plain = crate::common::json(dir.path(), &line);
        // Where the slowest are kept the short way is left for those; explained, all are
        // asked for their story, and none goes by it.
        let kept = crate::common::json(dir.path(), &format!("{line} --slowest 2"));
        let other = crate::common::json(dir.path(), &line.replacen("bench", "explain", 1));
        assert_eq!(kept["slowest"][0], other["slowest"][0], "{line}");
        for same in [
            "ios",
            "seconds",
            "bytes",
            "latency_ns",
            "distribution",
            "state_hash",
            "failed_requests",
        ] {
            assert_eq!(plain[same], other[same], "{same}: {line}");
            assert_eq!(kept[same], other[same], "{same}: {line}");
        }
        // What the slowest of a row waited for is told only where they are kept.
        let rows = |json: &Value| {
            let mut rows = json["series"].clone();
            for row in rows.as_array_mut().unwrap() {
                row.as_object_mut().unwrap().remove("tail");
            }
            rows
        };
        assert_eq!(rows(&plain), rows(&other), "{line}");
        assert_eq!(kept["series"], other["series"], "{line}");
    }
}

/// What of the processor's time is the tool's own: of a run with turns enough. Drivers take
/// some of it, too, so it is less than the whole.
#[test]
fn the_tool_tells_what_it_takes_itself() {
    // Of the null driver's requests, of which nobody else asks much, a part that cannot be
    // overlooked.
    let lines = [
        ("null: --rw randread --qd 32 --ios 1M", 0.05),
        ("null: --rw randread --qd 4 --ios 200k", 0.05),
        ("null: --rw randread --qd 1 --ios 200k", 0.05),
        ("mem:ref,size=16M,store=none --rw randrw --qd 4 --ios 100k --slowest 9", 0.005),
        ("mem:ref,size=16M,store=none --rw randrw --qd 4 --ios 100k --precondition seq", 0.005),
        ("mem:ref,size=16M --rw randrw --qd 4 --ios 50k --precondition seq --verify", 0.005),
        ("mem:ref,size=16M,store=none --rw randread --job rw=write,bs=4k,qd=4 --time 500ms", 0.005),
    ];
    for (line, least) in lines {
        let json = report(line);
        let (own, all) = (number(&json, "/cpu/own_per_io_ns"), number(&json, "/cpu/per_io_ns"));
        assert!(least * all < own && own < all, "{line}: {own} of {all}");
    }
    for line in ["null: --rw randread --ios 100", "mem:ref,size=16M --rw randread --ios 100"] {
        assert!(report(line)["cpu"]["own_per_io_ns"].is_null(), "{line}");
    }
}

/// Requests of the ramp that end late are in no row.
#[test]
fn rows_end_with_the_run() {
    let json = report(
        "mem:tlc,groups=1,pus=1,size=2G,store=none --rw randrw --bs 1M --qd 128 --ramp 100ms \
         --ios 1 --precondition seq",
    );
    let rows = json["series"].as_array().unwrap();
    let seconds: f64 = rows.iter().map(|row| row["seconds"].as_f64().unwrap()).sum();
    assert!((seconds - number(&json, "/seconds")).abs() < 1e-6, "{seconds} s: {json}");
}
