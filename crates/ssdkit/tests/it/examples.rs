//! The examples in the documents of drive files do what they say.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{self, json, ssdkit, told};

/// The lines below `Examples:` that call this program, in order, to the next
/// heading.
pub fn examples(page: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands");
    let text = fs::read_to_string(folder.join(page)).unwrap();
    let below = text.split_once("\nExamples:").expect("a page has examples").1;
    let below = below.split("\n#").next().unwrap_or(below);
    // What follows a `#` is for who reads it.
    let line = |line: &str| {
        let line = line.strip_prefix("    ssdkit ")?;
        Some(line.split(" # ").next()?.trim_end().to_string())
    };
    below.lines().filter_map(line).collect()
}

/// The files that an example makes.
fn made(line: &str) -> Vec<&str> {
    const MAKES: [&str; 8] =
        ["create", "--snapshot", "--trace", "--report", "--html", "--out", "--picture", ">"];
    let words: Vec<&str> =
        line.split_whitespace().filter(|_| !line.starts_with("target")).collect();
    let pairs = words.windows(2).filter(|pair| MAKES.contains(&pair[0])).map(|pair| pair[1]);
    let copy = words.get(2).filter(|_| words[0] == "snapshot");
    pairs.chain(copy.copied()).collect()
}

/// Who works through the pages in one folder is not in his own way, and each line is a command.
#[test]
fn pages_make_files_of_their_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands");
    let mut makers = BTreeMap::new();
    for page in fs::read_dir(folder).unwrap() {
        let page = page.unwrap().file_name().into_string().unwrap();
        if !page.ends_with(".md") || ["README.md", "man.md"].contains(&page.as_str()) {
            continue;
        }
        for line in &examples(&page) {
            assert!(!line.contains("  "), "{page}: {line}: what is no command follows a `#`");
            for file in made(line) {
                let other = makers.insert(file.to_string(), page.clone());
                assert!(other.is_none_or(|other| other == page), "{page}: {file}");
            }
        }
    }
    assert!(makers.len() > 20, "{makers:?}");
}

/// Runs them in a folder of their own.
fn run(page: &str, only: impl Fn(&str) -> bool) {
    run_in(&tempfile::tempdir().unwrap(), page, only);
}

/// Runs them in a folder.
fn run_in(folder: &tempfile::TempDir, page: &str, only: impl Fn(&str) -> bool) {
    let lines: Vec<String> = examples(page).into_iter().filter(|line| only(line)).collect();
    assert!(lines.len() >= 3, "{page}: {lines:?}");
    for line in lines {
        let out = common::run(folder.path(), &line);
        let (code, errors) = told(&out);
        assert_eq!(code, Some(0), "{page}: ssdkit {line}: {errors}");
        assert!(!out.stdout.is_empty(), "{page}: ssdkit {line}");
    }
}

/// The report of a bench.
fn report(line: &str) -> serde_json::Value {
    json(Path::new("."), line)
}

#[test]
fn create_makes_drives() {
    run("create.md", |_| true);
}

#[test]
fn info_tells() {
    run("info.md", |_| true);
}

#[test]
fn standard_tests_are_run() {
    run("test.md", |_| true);
}

#[test]
fn studies_are_listed_run_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    run_in(&folder, "study.md", |_| true);
    let page = fs::read_to_string(folder.path().join("myths.html")).unwrap();
    assert!(page.contains("class=\"verdict pass\"") && !page.contains("class=\"verdict fail\""));
    let pictures = fs::read_dir(folder.path().join("pictures")).unwrap();
    assert_eq!(pictures.count(), page.matches("<figure><svg").count());
}

/// Where programs can be supervised: the page says what that takes. The last example ends with
/// the power.
#[test]
fn programs_are_run_on_drives() {
    let folder = tempfile::tempdir().unwrap();
    let ssdkit = |line: &str| common::run(folder.path(), line);
    let out = ssdkit("run --drive mem:tlc,size=64M --map data -- true");
    let errors = String::from_utf8(out.stderr).unwrap();
    if errors.contains("supervisor") {
        eprintln!("LEFT OUT: the examples of run.md: {errors}");
        return;
    }
    assert!(out.status.success(), "{errors}");
    let is_cut = |line: &str| line.contains("--cut-after");
    run_in(&folder, "run.md", |line| !is_cut(line));
    for line in examples("run.md").iter().filter(|line| is_cut(line)) {
        assert_eq!(ssdkit(line).status.code(), Some(137), "{line}");
    }
    let out = ssdkit("run --drive files.ssd --map data -- ls data");
    assert!(String::from_utf8(out.stdout).unwrap().starts_with("name\n"), "what was synced");
}

/// With the job files beside the page.
#[test]
fn job_files_of_fio_are_run() {
    let folder = tempfile::tempdir().unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/fio");
    for file in fs::read_dir(files).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    run_in(&folder, "fio.md", |_| true);
}

/// With the rule files of the examples; the output that the page shows is theirs.
#[test]
fn rule_sets_are_checked_printed_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in fs::read_dir(root.join("examples/rules")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    run_in(&folder, "rules.md", |_| true);
    let rules = |line: &str| common::run(folder.path(), line);
    let page = fs::read_to_string(root.join("docs/commands/rules.md")).unwrap();
    let shown = page.split_once("    $ ssdkit ").unwrap().1.split("\n\n").next().unwrap();
    let (line, expected) = shown.split_once('\n').unwrap();
    let expected = expected.replace("\n    ", "\n");
    let out = String::from_utf8(rules(line).stdout).unwrap();
    assert_eq!(out.trim_end(), expected.trim_start());
    // What docs/rules.md says of a set that is wrong.
    let page = fs::read_to_string(root.join("docs/rules.md")).unwrap();
    let shown = page.split_once("    $ ssdkit rules check mine.rules\n").unwrap().1;
    let expected: Vec<&str> = shown.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let wrong = "set wrong\napplication 0 lba 0..256K units 0..8\nmap app0[1K] of address in 0..8\n\
        rule trim priority 0\n  when op == trim\n  do app0[lba] = none\n  then drop\n";
    fs::write(folder.path().join("mine.rules"), wrong).unwrap();
    let out = rules("rules check mine.rules");
    assert_eq!(out.status.code(), Some(1));
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(told.trim_end().ends_with(&expected.join("\n")), "{told}");
    let json = rules("rules check mine.rules --json");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["problems"][0]["line"], &json["problems"][0]["column"]),
        (&6.into(), &11.into())
    );
    for line in ["rules check nope", "rules explain mine.rules --op x", "rules check ."] {
        assert_eq!(rules(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn power_goes_under_programs() {
    run("crash.md", |_| true);
}

#[test]
fn programs_are_counted() {
    run("speculate.md", |_| true);
    // Who is to be counted is told apart from what was asked.
    let potential =
        |args: &[&str]| told(&ssdkit("speculate potential").args(args).output().unwrap());
    let (code, told) = potential(&["--once", "--", "no-such-program"]);
    assert!(code == Some(1) && told.contains("no-such-program"), "{told}");
    let (code, told) = potential(&["--once", "--", "false"]);
    assert!(code == Some(1) && told.contains("exit code 1"), "{told}");
    let (code, told) = potential(&["--once", "--before", "exit 3", "--", "true"]);
    assert!(code == Some(1) && told.contains("exit code 3"), "{told}");
    assert_eq!(potential(&[]).0, Some(2));
}

#[test]
fn a_store_is_measured() {
    run("ycsb.md", |_| true);
}

/// With the measurements that the page has.
#[test]
fn a_twin_is_fitted_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/twin.md");
    let page = fs::read_to_string(page).unwrap();
    let below = page.split_once("`points.csv`:\n\n").unwrap().1;
    let points: Vec<&str> = below.lines().map_while(|line| line.strip_prefix("    ")).collect();
    fs::write(folder.path().join("points.csv"), points.join("\n")).unwrap();
    run_in(&folder, "twin.md", |_| true);
    assert!(folder.path().join("twin.toml").exists());
}

/// What docs/commands/explain.md says: parts sum exactly, all requests are in them,
/// and suspension helps reads that wait for programs.
#[test]
fn causes_sum_to_what_requests_took() {
    let lines = examples("explain.md");
    let [plain, what_if, map, loads] = &lines[..] else { panic!("four examples: {lines:?}") };
    let page = include_str!("../../../../docs/commands/explain.md");
    for example in [plain, loads] {
        let out = ssdkit(example).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        for line in text.lines().take(12).filter(|line| !line.is_empty()) {
            assert!(page.contains(line.trim_end()), "the page has not: {line}");
        }
    }
    let report = report(what_if);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    for (kind, op) in [("reads", "read"), ("writes", "write")] {
        let shares = report["explained"][kind].as_array().unwrap();
        assert_eq!(shares.len(), 5);
        for share in shares {
            let parts = share["parts"].as_array().unwrap();
            let sum: u64 = parts.iter().map(|part| number(&part["ns"])).sum();
            assert_eq!(sum, number(&share["ns"]), "{share}");
        }
        assert_eq!(shares[0]["requests"], report[op]["ios"]);
        let mean = number(&shares[0]["ns"]) as f64 / number(&shares[0]["requests"]) as f64;
        let told = report[op]["latency_ns"]["mean"].as_f64().unwrap();
        assert!((mean / told - 1.0).abs() < 1e-9, "{mean} {told}");
    }
    let p99 = |report: &serde_json::Value| number(&report["read"]["latency_ns"]["p99"]);
    let runs = report["what_if"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert!(runs[0]["set"] == "suspend=true" && 10 * p99(&runs[0]["run"]) < p99(&report));
    let out = ssdkit(map).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("% map") && text.contains("map_cache=none"), "{text}");
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let refused = |line: &str| {
        let (code, text) = told(&ssdkit(line).output().unwrap());
        assert_eq!(code, Some(2), "{line}");
        text
    };
    for (line, why) in [
        ("explain null: --rw randread", "do not tell where time goes"),
        ("explain mem:tlc,size=64M --rw randread --what-if suspend", "KEY=VALUE"),
        ("explain mem:tlc,size=64M --rw randread --what-if no=1", "is no key of a drive"),
        ("explain mem:tlc,size=64M --rw randread --what-if chunks=2", "chunks"),
        ("explain mem:tlc,size=64M --rw randread --clock real", "virtual"),
    ] {
        let told = refused(line);
        assert!(told.contains(why), "{line}: {told}");
    }
}

/// With the traces that lie beside the pages.
#[test]
fn traces_are_summed_up_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/traces");
    for trace in fs::read_dir(traces).unwrap() {
        let trace = trace.unwrap();
        fs::copy(trace.path(), folder.path().join(trace.file_name())).unwrap();
    }
    run_in(&folder, "trace.md", |_| true);
    run_in(&folder, "replay.md", |_| true);
    assert!(folder.path().join("spc.html").exists());
}

#[test]
fn snapshots_are_drives() {
    run("snapshot.md", |_| true);
}

/// What docs/controller.md says of its examples: a core's bound, what a queue of its
/// own is worth, and what reading ahead is.
#[test]
fn the_controller_bounds_and_reads_ahead() {
    let lines = examples("../controller.md");
    let [bound, queues, buffer, ahead, without, sleepy] = &lines[..] else {
        panic!("six examples: {lines:?}")
    };
    let moved = report(buffer)["bytes_per_second"].as_f64().expect("a rate");
    assert!((0.9..=1.01).contains(&(moved / 250e6)), "{moved}: in and out at 500 MB/s");
    let queues = report(queues);
    let of = |place: &str| queues.pointer(place).and_then(|iops| iops.as_f64()).expect("a rate");
    let (lone, all) = (of("/jobs/0/iops"), of("/iops"));
    assert!(lone > 3.0 * all / 33.0, "{lone} of {all}: no 33 that wait are before it");
    let sleepy = report(sleepy);
    assert!(sleepy["power"]["sleep_exits"].as_u64() > Some(50), "{sleepy}");
    let [bound, ahead, without] = [bound, ahead, without].map(|line| report(line));
    let asked = |report: &serde_json::Value, cache: &str| {
        let count = |what: &str| report[cache][what].as_u64().expect("a count");
        (count("hits"), count("hits") + count("misses"))
    };
    let (hits, reads) = asked(&ahead, "read_cache");
    assert!(reads == 5000 && hits > 4000, "{hits} of {reads}");
    assert!(ahead["map_cache"].is_null() && without["read_cache"].is_null());
    let iops = |report: &serde_json::Value| report["iops"].as_f64().expect("requests a second");
    let (bound, ahead, without) = (iops(&bound), iops(&ahead), iops(&without));
    assert!((0.99..=1.001).contains(&(bound / 250_000.0)), "{bound}: 4 us each");
    assert!(ahead > 4.0 * without, "{ahead} against {without}");
}

/// Of the map of a drive without memory so much is held as it has, in every shard.
#[test]
fn the_map_cache_tells_what_it_did() {
    for shards in [1, 2] {
        let line = format!(
            "bench mem:client-qlc,size=64M,store=none,read_cache=none,map_cache=16k,shards={shards} \
             --rw randread --qd 4 --ios 4000 --precondition seq"
        );
        let report = report(&line);
        let [hits, misses, pages] = ["hits", "misses", "pages_read"]
            .map(|what| report["map_cache"][what].as_u64().expect("a count"));
        assert_eq!(hits + misses, 4000, "{report}");
        assert!(misses > 1000 && pages > 1000 && pages <= misses, "{report}");
    }
    // What is read back to verify is no part of the run; a ramp is, and that is told.
    let line = "bench mem:client-qlc,size=64M,read_cache=none,map_cache=16k \
                --rw randread --qd 4 --ios 4000 --precondition seq --verify";
    let asked = |report: &serde_json::Value| {
        ["hits", "misses"].iter().map(|what| report["map_cache"][what].as_u64().unwrap()).sum()
    };
    let verified = report(line);
    let reads: u64 = asked(&verified);
    assert!(reads == 4000 && verified["warnings"].is_null(), "{verified}");
    let ramped = report(&format!("{line} --ramp 1ms"));
    let reads: u64 = asked(&ramped);
    assert!(reads > 4000 && ramped["warnings"].to_string().contains("ramp"), "{ramped}");
}

/// What docs/slc-cache.md says of its examples: a burst, a fall, and a drive
/// without a cache.
#[test]
fn the_slc_cache_is_fast_until_it_is_full() {
    let lines = examples("../slc-cache.md");
    let [burst, fall, without] = &lines[..] else { panic!("three examples: {lines:?}") };
    let iops = |report: &serde_json::Value, second: usize| {
        report["series"][second]["iops"].as_f64().expect("a second of the series")
    };
    let (burst, fall, without) = (report(burst), report(fall), report(without));
    let slow = iops(&without, 5);
    assert!(iops(&burst, 0) > 8.0 * slow, "3052 against 336");
    assert!(iops(&fall, 0) > 3.0 * slow, "1246 against 336");
    let after = iops(&fall, 5);
    assert!((0.97..1.03).contains(&(after / slow)), "{after} against {slow}");
}

/// What docs/parity.md says of its examples: a unit's reads fail, and requests
/// with them; with parity none does.
#[test]
fn parity_gives_back_a_lost_unit() {
    let lines = examples("../parity.md");
    let [without, with] = &lines[..] else { panic!("two examples: {lines:?}") };
    let [without, with] = [without, with].map(|line| report(line));
    let failed = |report: &serde_json::Value| report["failed_requests"].as_u64().unwrap();
    assert!(failed(&without) > 1000 && without["parity"].is_null(), "{without}");
    assert_eq!((failed(&with), &with["parity"]["lost_blocks"]), (0, &0.into()), "{with}");
    assert!(with["parity"]["rebuilt_blocks"].as_u64().unwrap() > 500, "{with}");
}

#[test]
fn benches_use_them() {
    let of_files = |line: &str| line.contains("aged.ssd") || line.contains("--fua-every");
    run("bench.md", |line| of_files(line) || line.contains("--slowest"));
}

/// What docs/coming-from.md says of its profiles: latencies and rates are those that follow from
/// the parameters.
#[test]
fn profiles_of_other_simulators_do_what_their_parameters_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("examples/profiles");
    fs::create_dir_all(&profiles).unwrap();
    for name in ["femu.toml", "mqsim.toml"] {
        fs::copy(root.join("examples/profiles").join(name), profiles.join(name)).unwrap();
    }
    let page = fs::read_to_string(root.join("docs/coming-from.md")).unwrap();
    let lines: Vec<&str> = page.lines().filter_map(|it| it.strip_prefix("    ssdkit ")).collect();
    let [shown, read, write, mqsim, create] = lines[..] else { panic!("{lines:?}") };
    for line in [shown, create] {
        let out = common::run(folder.path(), line);
        assert!(out.status.success(), "{line}: {}", told(&out).1);
    }
    let mean = |of: &serde_json::Value| of["latency_ns"]["mean"].as_f64().unwrap();
    let femu = json(folder.path(), read);
    assert!((mean(&femu) / 40e3 - 1.0).abs() < 1e-3, "{femu}");
    assert_eq!(femu["drive"]["size_bytes"], 4u64 << 30, "{femu}");
    let femu = json(folder.path(), write);
    assert!((mean(&femu) / 200e3 - 1.0).abs() < 1e-3, "{femu}");
    let many = write.replace("--qd 1 ", "--qd 64 ").replace("--ios 1000", "--ios 100k");
    let iops = json(folder.path(), &many)["iops"].as_f64().unwrap();
    assert!((300e3..=320e3).contains(&iops), "{iops} of 64 units of 200 us");
    let mqsim = json(folder.path(), mqsim);
    // A page is read, and a page's bytes go out at 333 MB/s; a request's over the link at 400.
    let read = "bench mem:./examples/profiles/mqsim.toml,size=2G,store=none,map_cache=none --rw \
                randread --qd 1 --ios 1000 --precondition seq";
    let lone = mean(&json(folder.path(), read));
    let expected = 75e3 + 4096.0 / 0.333 + 4096.0 / 0.4;
    assert!((lone / expected - 1.0).abs() < 0.01, "{lone} for {expected}");
    assert!(mqsim["write_amplification"]["total"].as_f64() > Some(1.0), "{mqsim}");
}
