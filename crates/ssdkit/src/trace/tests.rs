//! Tests of `ssdkit trace`, on the trace of a small run in virtual time.

use std::path::Path;

use blkmq::driver::timed::{Slow, Timed, TimedOptions};
use blkmq::{Driver, HardwareQueue};
use clap::Parser;
use port::{BlockDone, BlockReq, Buffer, Ring, Status};
use trace::{Tap, Tracer, Watch, Writer};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: TraceArgs,
}

/// The page that shows the command.
const PAGE: &str = include_str!("../../../../docs/commands/trace.md");

/// Where the traces of others are that it shows.
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands/traces");

/// As `ssdkit bench --trace` writes it for such a drive.
const CONFIG: &str = "\
drive = null:submit_queues=2,hw_queue_depth=3,completion_nsec=10us,servers=2,slow=100us:12.5
batch = 1
cores = 2
merge = off
pinned = false
scheduler = none
sockets = 1
staging = core
timeout_ns = 30000000000";

/// The run that the page shows: two queues of two servers, of which one
/// request in eight takes ten times as long, and a submitter for each that
/// has three requests out and looks each 3 us.
fn run_traced(path: &Path, each: u64) {
    let slow = Some(Slow { completion_nsec: 100_000, in_65536: 8192 });
    let options = TimedOptions {
        submit_queues: 2,
        hw_queue_depth: 3,
        servers: Some(2),
        slow,
        ..TimedOptions::default()
    };
    let (mut tracer, mut taps) = Tracer::new(2, 4 * each as usize);
    tracer.start_file(path, &About { start: Time(0), config: CONFIG.into() }).unwrap();
    for (core, queue) in Timed::new(options).unwrap().open().iter_mut().enumerate() {
        core_runs(core as u16, queue, &mut taps[core], each);
    }
    let totals = tracer.stop().unwrap();
    assert_eq!(totals, Totals { records: 2 * each, dropped: 0 });
}

/// One core's part of it: a request waits in `staged` while three are out.
fn core_runs(core: u16, queue: &mut impl HardwareQueue, tap: &mut Tap, each: u64) {
    let mut out: [Option<Life>; 3] = [None; 3];
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(3));
    let (mut issued, mut ended) = (0, 0);
    for now in (0..).map(|turn| Time(turn * 3_000)) {
        queue.advance(now, &mut done);
        for BlockDone { id, at, status, .. } in done.drain() {
            let life = out[id as usize].take().unwrap();
            tap.record(Life { completed: at, seen: now, status, ..life });
            ended += 1;
        }
        if ended == each {
            return;
        }
        while let Some(tag) = out.iter().position(Option::is_none).filter(|_| issued < each) {
            // One arrives each 14 us, and is dispatched when there is a tag.
            let submitted = Time(issued * 14_000);
            if submitted > now {
                break;
            }
            let (op, offset, len) = (BlockOp::Read, (issued * 7 % 64) * 4096, 4096);
            let (id, buffer) = (tag as u64, Buffer::empty());
            cmds.push(BlockReq::new(id, op, offset, len, buffer)).unwrap();
            queue.submit(now, &mut cmds);
            assert!(cmds.is_empty(), "its depth is three");
            out[tag] = Some(Life {
                id: issued,
                core,
                staging: core,
                queue: core,
                tag: tag as u32,
                op,
                fua: false,
                offset,
                len,
                status: Status::SUCCESS,
                parts: 1,
                submitted,
                dispatched: now,
                completed: now,
                seen: now,
            });
            issued += 1;
        }
    }
}

/// What a command line prints, its file in `dir`, and how it ends.
fn shown(line: &str, dir: &Path) -> (String, Result<(), Error>) {
    let words = line.split_whitespace().skip(1);
    let words = words.map(|word| match word {
        "run.trace" => dir.join(word).into_os_string(),
        "msr.csv" => Path::new(TRACES).join(word).into_os_string(),
        other => other.into(),
    });
    let args = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}")).args;
    let mut out = Vec::new();
    let end = run(&args, &mut out);
    (String::from_utf8(out).unwrap(), end)
}

fn json(line: &str, dir: &Path) -> Value {
    let (text, end) = shown(line, dir);
    end.unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_pages_examples_run_and_the_first_prints_what_it_shows() {
    let dir = tempfile::tempdir().unwrap();
    run_traced(&dir.path().join("run.trace"), 100);
    let examples: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("    $ ")).collect();
    assert!(examples.len() >= 3, "{examples:?}");
    for line in &examples {
        shown(line, dir.path()).1.unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    for line in examples.iter().filter(|line| line.contains("--slowest 4") || line.contains("msr"))
    {
        let (text, _) = shown(line, dir.path());
        let indented: Vec<String> =
            text.lines().map(|line| format!("    {line}").trim_end().to_string()).collect();
        let page: Vec<&str> = PAGE.lines().map(str::trim_end).collect();
        let is_there = page.windows(indented.len()).any(|part| part == indented);
        assert!(is_there, "{line} prints now:\n{text}");
    }
}

#[test]
fn a_summary_of_our_own_and_what_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run_traced(&dir.path().join("run.trace"), 100);
    let json = json("ssdkit trace run.trace --summary --json", dir.path());
    assert_eq!((&json["format"], &json["reads"]["requests"]), (&json!("ssdkit"), &json!(200)));
    assert_eq!(json["working_set"]["blocks"], 64);
    let (_, end) = shown("ssdkit trace msr.csv --from 1s", dir.path());
    assert!(end.unwrap_err().to_string().contains("are for traces of ssdkit bench"));
    // Long gaps are counted as one, and that is said.
    let day = 86_400_000_000u64;
    let days: String = [1, 2, day, 2 * day].map(|us| format!("1,R,0,512,{us}\n")).concat();
    std::fs::write(dir.path().join("run.trace"), days).unwrap();
    let (text, end) = shown("ssdkit trace run.trace", dir.path());
    end.unwrap();
    assert!(text.contains("some gaps are of 4398 s or more"), "{text}");
    // What was read until then is told.
    std::fs::write(dir.path().join("run.trace"), "1,R,0,512,1\n1,R,0,512,2\n1,R,x,512,3\n")
        .unwrap();
    let (text, end) = shown("ssdkit trace run.trace", dir.path());
    assert!(text.contains("requests    2 in 1.00 us") && !text.contains("4398 s"), "{text}");
    let end = end.unwrap_err();
    assert!(end.exit_code() == 1 && end.to_string().contains("line 3 is broken"), "{end}");
    std::fs::write(dir.path().join("run.trace"), "").unwrap();
    let end = shown("ssdkit trace run.trace", dir.path()).1.unwrap_err();
    assert!(end.exit_code() == 2 && end.to_string().contains("it is empty"), "{end}");
}

#[test]
fn json_has_the_same_as_the_text() {
    let dir = tempfile::tempdir().unwrap();
    run_traced(&dir.path().join("run.trace"), 100);
    let json = json("ssdkit trace run.trace --json --slowest 3", dir.path());
    assert_eq!((&json["records"], &json["dropped"]), (&json!(200), &json!(0)));
    assert_eq!((&json["problem"], &json["shown"]), (&Value::Null, &json!(200)));
    let queues = json["queues"].as_array().unwrap();
    let requests: u64 = queues.iter().map(|q| q["requests"].as_u64().unwrap()).sum();
    assert_eq!((queues.len(), requests), (2, 200));
    assert_eq!(queues[0]["deepest"], 3);
    let slowest = json["slowest"].as_array().unwrap();
    let part = |life: &Value, name: &str| life[name].as_u64().unwrap();
    assert_eq!(slowest.len(), 3);
    for life in slowest {
        let parts = ["staged_ns", "device_ns", "late_ns"].map(|name| part(life, name));
        assert_eq!(parts.iter().sum::<u64>(), part(life, "total_ns"), "{life}");
    }
    let ids: std::collections::HashSet<u64> = slowest.iter().map(|l| part(l, "id")).collect();
    assert_eq!(ids.len(), 3, "{slowest:?}");
    assert!(slowest.is_sorted_by(|a, b| part(a, "total_ns") >= part(b, "total_ns")));
    assert_eq!(
        queues.iter().map(|q| part(&q["total"], "max_ns")).max(),
        Some(part(&slowest[0], "total_ns"))
    );
}

#[test]
fn a_window_has_only_what_was_alive_in_it() {
    let dir = tempfile::tempdir().unwrap();
    run_traced(&dir.path().join("run.trace"), 100);
    let json = json("ssdkit trace run.trace --from 20us --to 60us --json", dir.path());
    let shown_lives = json["slowest"].as_array().unwrap();
    assert_eq!(json["records"], 200);
    assert!((4..30).contains(&json["shown"].as_u64().unwrap()), "{json}");
    for life in shown_lives {
        let at = life["at_ns"].as_u64().unwrap();
        assert!(at < 60_000 && at + life["total_ns"].as_u64().unwrap() >= 20_000, "{life}");
    }
    let (text, _) = shown("ssdkit trace run.trace --from 20us --to 60us", dir.path());
    assert!(text.contains("from 0.020 ms to 0.060 ms"), "{text}");
    let (text, end) = shown("ssdkit trace run.trace --from 900s", dir.path());
    assert!(end.is_ok() && text.contains("; 0 shown\nnone was under way"), "{text}");
    let (_, end) = shown("ssdkit trace run.trace --from 2us --to 1us", dir.path());
    assert_eq!(end.unwrap_err().exit_code(), 2);
}

#[test]
fn a_damaged_file_is_shown_up_to_the_damage_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    let mut bytes = Vec::new();
    let about = About { start: Time(0), config: "\x1b[31mred".into() };
    let mut writer = Writer::new(&mut bytes, &about).unwrap();
    let life = Life {
        id: 1,
        core: 0,
        staging: 0,
        queue: 0,
        tag: NO_TAG,
        op: BlockOp::Write,
        fua: true,
        offset: 0,
        len: 512,
        status: Status::ABORTED_BY_HOST,
        parts: 0,
        submitted: Time(5),
        dispatched: Time(9),
        completed: Time(9),
        seen: Time(9),
    };
    for _ in 0..2 {
        writer.put(&life).unwrap();
        writer.flush().unwrap();
    }
    writer.finish(0).unwrap();
    let last_block = bytes.len() - 24 - 1;
    bytes[last_block] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (text, end) = shown("ssdkit trace run.trace", dir.path());
    let error = end.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("checksum of the block"), "{error}");
    assert!(text.starts_with("1 requests, not whole; 1 shown"), "{text}");
    assert!(text.contains("write fua") && text.contains("merged  aborted by the host"), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let (text, end) = shown("ssdkit trace run.trace --json", dir.path());
    let json: Value = serde_json::from_str(&text).unwrap();
    assert!(end.is_err() && json["dropped"].is_null() && json["problem"].is_string());
    assert!(json["slowest"][0]["tag"].is_null());
}

/// What has no rate is told as what it is: requests of one time, or times that only go back.
#[test]
fn what_has_no_rate_says_why() {
    let dir = tempfile::tempdir().unwrap();
    for (times, why) in
        [([5; 4], "all requests have one time"), ([5, 1, 5, 1], "later than the first")]
    {
        let lines = times.map(|at| format!("{at},a,0,Write,0,4096,1\n")).concat();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, lines).unwrap();
        let (text, end) = shown(&format!("ssdkit trace {}", path.display()), dir.path());
        assert!(end.is_ok() && text.contains(why), "{text}");
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = || {
        let (text, end) = shown("ssdkit trace run.trace", dir.path());
        assert!(text.is_empty());
        let error = end.unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    assert!(refused().contains("run.trace"), "it is not there");
    std::fs::write(dir.path().join("run.trace"), "some text").unwrap();
    assert!(refused().contains("of no known format"));
}

/// A trace is not written over what is none, which may be a drive.
#[test]
fn another_file_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    (0..2).for_each(|_| run_traced(&dir.path().join("run.trace"), 4));
    let drive = dir.path().join("drive.ssd");
    std::fs::write(&drive, [7; 10_000]).unwrap();
    let about = About { start: Time(0), config: String::new() };
    let error = Tracer::new(1, 16).0.start_file(&drive, &about).unwrap_err().to_string();
    assert!(error.contains("no request trace"), "{error}");
    assert_eq!(std::fs::read(&drive).unwrap(), [7; 10_000]);
}
