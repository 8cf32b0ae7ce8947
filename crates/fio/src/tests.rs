//! Job files on drives: figures, JSON, and what is refused.

mod explained;
mod files;

use std::collections::BTreeSet;

use bench::BenchArgs;
use clap::Parser;
use serde_json::Value;

use super::*;

const DRIVE: &str = "mem:znand,size=64M,store=none";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

/// The report of a bench of the drive.
fn bench(rest: &str) -> Value {
    let line = format!("bench {DRIVE} {rest}");
    let args = Line::parse_from(line.split_whitespace()).args;
    args.check().unwrap();
    let report = bench::measure(&args, &mut Watch::quiet()).unwrap().to_json();
    // Through text, as what it is compared with.
    serde_json::from_str(&report.to_string()).unwrap()
}

/// What is printed of files with these texts.
fn ran(drive: &str, texts: &[&str], format: Format) -> Result<String, Error> {
    let folder = tempfile::tempdir().unwrap();
    let file = |(n, text): (usize, &&str)| {
        let path = folder.path().join(format!("{n}.fio"));
        std::fs::write(&path, text).unwrap();
        path
    };
    let args = FioArgs {
        files: texts.iter().enumerate().map(file).collect(),
        drive: Some(drive.parse().unwrap()),
        output_format: format,
        ..FioArgs::default()
    };
    let mut out = Vec::new();
    run(&args, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(&ran(DRIVE, &[text], Format::JsonPlus).unwrap()).unwrap()
}

/// Whether a direction of a job has the figures of a bench's report.
fn is_same(told: &Value, report: &Value, ios: &Value) {
    assert_eq!(told["total_ios"], *ios);
    assert_eq!(told["iops"], report["iops"]);
    for (own, theirs) in [("min", "min"), ("max", "max"), ("mean", "mean")] {
        let own = told["clat_ns"][own].as_f64();
        assert_eq!(own, report["latency_ns"][theirs].as_f64(), "{theirs}");
    }
    for (own, theirs, needs) in [("50.000000", "p50", 20), ("99.000000", "p99", 1000)] {
        // fio has them of however few.
        if ios.as_u64() >= Some(needs) {
            assert_eq!(told["clat_ns"]["percentile"][own], report["latency_ns"][theirs]);
        }
    }
}

/// Where parts of blocks are written, more is programmed for the bytes than for the blocks.
#[test]
fn parts_of_blocks_are_told_by_bytes() {
    for (bs, told) in [("512", true), ("4k", false)] {
        let job = format!("[a]\nrw=randwrite\nnorandommap\nbs={bs}\nnumber_ios=20000\n");
        let text = ran("mem:znand,size=64M", &[&job], Format::Normal).unwrap();
        assert_eq!(text.contains(" of the bytes written, as a write of a part"), told, "{text}");
    }
}

#[test]
fn a_job_does_what_a_bench_does() {
    let told =
        json("[a]\nrw=randread\nnorandommap\nbs=4k\nioengine=libaio\niodepth=8\nnumber_ios=5000\n");
    let report = bench("--rw randread --qd 8 --ios 5k");
    is_same(&told["jobs"][0]["read"], &report, &report["ios"]);
    let told = json(
        "[a]\nrw=randwrite\nnorandommap\nbssplit=4k/60:64k/40\nioengine=libaio\niodepth=4\n\
         fsync=16\nrandseed=7\nruntime=20ms\ntime_based\n",
    );
    let rest = "--rw randwrite --bssplit 4k/60:64k/40 --qd 4 --flush-every 16 --seed 7 --time 20ms";
    let report = bench(rest);
    is_same(&told["jobs"][0]["write"], &report, &report["ios"]);
    assert_eq!(told["jobs"][0]["write"]["io_bytes"], report["bytes"]);
    assert_eq!(told["jobs"][0]["sync"]["total_ios"], report["flush"]["ios"]);
}

#[test]
fn jobs_at_once_do_what_loads_of_a_bench_do() {
    let told = json(
        "[global]\nioengine=libaio\nruntime=20ms\ntime_based\nnorandommap\n[reads]\nrw=randread\n\
         iodepth=4\n[writes]\nrw=write\nbs=64k\niodepth=2\n[arrive]\nrw=randread\niodepth=64\n\
         rate_iops=10000\n",
    );
    let report = bench(
        "--rw randread --qd 4 --time 20ms --job rw=write,bs=64k,qd=2 --job rw=randread,rate=10k",
    );
    for (n, op) in ["read", "write", "read"].into_iter().enumerate() {
        let load = &report["jobs"][n];
        is_same(&told["jobs"][n][op], load, &load["ios"]);
        assert_eq!(told["jobs"][n][op]["io_bytes"], load["bytes"]);
    }
    // Of fio's names, too.
    let names = "--rw randread --qd 4 --time 20ms --job readwrite=write,blocksize=64k,iodepth=2 \
                 --job rw=randread,rate=10k";
    assert_eq!(bench(names)["jobs"], report["jobs"]);
}

/// Each key that fio 3.33 prints is there, and no other.
#[test]
fn keys_are_fio_s() {
    fn walk(at: &str, value: &Value, keys: &mut BTreeSet<String>) {
        let whole = ["global options", "jobs.job options", "disk_util"];
        let is_list = at.ends_with("bins") || at.ends_with("percentile") || whole.contains(&at);
        match value {
            Value::Object(object) if !is_list => {
                for (key, value) in object {
                    let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                    walk(&at, value, keys);
                }
            }
            Value::Array(all) if !is_list => all.iter().for_each(|value| walk(at, value, keys)),
            _ => {
                keys.insert(at.into());
            }
        }
    }
    let mut own = BTreeSet::new();
    walk("", &json("[global]\nsize=4m\n[a]\nrw=randrw\nfsync=8\n"), &mut own);
    let theirs: BTreeSet<String> = include_str!("json.txt").lines().map(str::to_string).collect();
    // What fio has no place for is below one key of the program's.
    own.retain(|key| key.split('.').next() != Some("ssdkit"));
    let missing: Vec<_> = theirs.difference(&own).collect();
    // The time of the day in words, which `timestamp` has as a number.
    assert_eq!(missing, ["time"]);
    assert_eq!(own.difference(&theirs).count(), 0, "{:?}", own.difference(&theirs));
}

#[test]
fn sums_are_exact() {
    let told = json(
        "[a]\nrw=randrw\nrwmixread=70\nbssplit=4k/60:64k/40,8k\nioengine=libaio\niodepth=16\n\
         size=32m\nio_size=16m\npercentile_list=50:99.9\n",
    );
    let job = &told["jobs"][0];
    let number = |value: &Value| value.as_u64().unwrap();
    let (read, write) = (number(&job["read"]["io_bytes"]), number(&job["write"]["io_bytes"]));
    assert!((16 << 20..(16 << 20) + 65536).contains(&(read + write)), "{read} {write}");
    assert_eq!(write, 8192 * number(&job["write"]["total_ios"]));
    let bins = job["read"]["clat_ns"]["bins"].as_object().unwrap();
    assert_eq!(bins.values().map(number).sum::<u64>(), number(&job["read"]["total_ios"]));
    assert_eq!(job["read"]["clat_ns"]["percentile"].as_object().unwrap().len(), 2);
    let levels = ["latency_ns", "latency_us", "latency_ms"].map(|key| {
        let shares = job[key].as_object().unwrap().values();
        shares.map(|share| share.as_f64().unwrap()).sum::<f64>()
    });
    assert!((levels.iter().sum::<f64>() - 100.0).abs() < 1e-9, "{levels:?}");
    assert_eq!(job["iodepth_level"]["16"], 100.0);
    assert_eq!(job["job options"]["rwmixread"], "70");
}

#[test]
fn every_block_is_touched_once() {
    let told = json("[a]\nrw=randwrite\nsize=8m\n[b]\nstonewall\nrw=randtrim\nsize=8m\n");
    assert_eq!(told["jobs"][0]["write"]["total_ios"], 2048);
    assert_eq!(told["jobs"][1]["trim"]["io_bytes"], 8 << 20);
    assert_eq!((&told["jobs"][0]["groupid"], &told["jobs"][1]["groupid"]), (&0.into(), &1.into()));
}

/// Whichever is sooner, alone and beside another.
#[test]
fn a_job_ends_by_its_work_or_by_its_time() {
    let short = "[work]\nsize=1m\nruntime=1h\n";
    let long = "[time]\nruntime=2ms\nrate_iops=10000\n";
    for text in [format!("{short}{long}"), format!("{short}{long}stonewall\n")] {
        let told = json(&text);
        assert_eq!(told["jobs"][0]["read"]["total_ios"], 256);
        assert_eq!(told["jobs"][1]["read"]["total_ios"], 20, "{text}");
    }
    let told = json("[a]\nruntime=1ms\n");
    assert_eq!(told["jobs"][0]["read"]["runtime"], 1);
    // A rate ends with its work, too.
    let told = json("[a]\nrate_iops=10000\nsize=40k\nruntime=1h\n");
    assert_eq!(told["jobs"][0]["read"]["total_ios"], 10);
    assert_eq!(told["jobs"][0]["job_runtime"], 1);
}

#[test]
fn groups_are_told_together_and_files_follow_each_other() {
    let first = "[global]\nsize=4m\n[a]\nnumjobs=3\ngroup_reporting\n";
    let out = ran(DRIVE, &[first, "[b]\nrw=write\n"], Format::Json).unwrap();
    let told: Value = serde_json::from_str(&out).unwrap();
    let jobs = told["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs.iter().map(|job| job["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(jobs[0]["read"]["total_ios"], 3 * 1024);
    assert_eq!(
        (&jobs[1]["groupid"], &jobs[1]["write"]["io_bytes"]),
        (&1.into(), &(4 << 20).into())
    );
    assert!(jobs[0]["read"]["clat_ns"].get("bins").is_none());
}

/// Wrong data is another error than a request that failed, and either fails the command.
#[test]
fn what_went_wrong_is_an_error_of_its_job() {
    let sections = file::parse("a.fio", "[a]\n", &file::NOTHING).unwrap();
    let jobs = job::jobs(&sections, &mut Vec::new(), &[]).unwrap();
    let told = |wrong: bool, failed: bool| {
        let mut tally = load::tally::Tally::new();
        if wrong {
            tally.gave_wrong(|| "a block of another".into());
        }
        if failed {
            tally.failed(port::Time(5), true, || "a write".into());
        }
        Told {
            job: &jobs[0],
            group: 0,
            round: 0,
            clones: 1,
            asks: jobs[0].asks(),
            tally,
            cpu: (0.0, 0.0),
            wall: 0.0,
            wall_in_all: 0.0,
            round_ios: 0,
            is_alone: true,
            depth: None,
            known_void: None,
        }
    };
    for (wrong, failed, error) in
        [(false, false, 0), (false, true, 5), (true, false, 84), (true, true, 84)]
    {
        let told = told(wrong, failed);
        assert_eq!(told.problem().is_some(), error > 0);
        assert_eq!(json::output(&[told], &[], 0, false)["jobs"][0]["error"], error);
    }
}

/// A later job sees what an earlier one wrote.
#[test]
fn what_was_written_is_checked_from_job_to_job() {
    let text = "[global]\nsize=8m\nverify=crc32c\n[a]\nrw=randwrite\nbssplit=4k/50:12k/50\n\
                [b]\nstonewall\nrw=randrw\nbs=8k\n[c]\nstonewall\nrw=read\nbs=64k\n";
    let out = ran("mem:znand,size=64M", &[text], Format::Normal).unwrap();
    assert!(out.matches("errors      none").count() == 3, "{out}");
    assert!(out.contains("verify=crc32c is the program's own check"), "{out}");
    let both = ran("mem:znand,size=64M", &[&text.replace("stonewall\n", "")], Format::Normal);
    assert!(both.unwrap_err().to_string().contains("add stonewall to each"));
    let none = ran(DRIVE, &[text], Format::Normal);
    assert!(none.unwrap_err().to_string().contains("needs data to compare"));
}

/// Each pauses for itself while the others go on.
#[test]
fn jobs_pause_each_on_their_own() {
    let told = json(
        "[global]\nruntime=10ms\ntime_based\n[a]\nrw=randread\nthinktime=1000\nthinktime_blocks=4\n\
         [b]\nrw=randread\n",
    );
    let ios = |n: usize| told["jobs"][n]["read"]["total_ios"].as_u64().unwrap();
    assert!((36..=44).contains(&ios(0)), "{}", ios(0));
    assert!(ios(1) > 200, "{}", ios(1));
}

/// A pause that the end of the time cuts is in it: alone and beside others. fio 3.33 does
/// as many requests.
#[test]
fn a_pause_at_the_end_is_in_the_time() {
    let one = "rw=randread\nthinktime=2s\nthinktime_blocks=100\nruntime=1\ntime_based\n";
    for text in [format!("[a]\n{one}"), format!("[a]\n{one}[b]\n{one}")] {
        let told = json(&text);
        for job in told["jobs"].as_array().unwrap() {
            assert_eq!(job["read"]["total_ios"], 100);
            assert_eq!((&job["job_runtime"], &job["read"]["iops"]), (&1000.into(), &100.0.into()));
        }
    }
    // One that ends with its work has none after it.
    let work = one.replace("time_based", "number_ios=100");
    let told = json(&format!("[a]\n{work}"));
    assert_eq!(told["jobs"][0]["read"]["total_ios"], 100);
    assert!(told["jobs"][0]["job_runtime"].as_u64().unwrap() < 1000);
}

/// Who reads nothing but JSON must know it, too.
#[test]
fn json_tells_what_means_nothing_and_what_did_not_run() {
    let told = |text: &str, max_time: Option<u64>, format: Format| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let args = FioArgs {
            files: vec![file.path().into()],
            drive: Some(DRIVE.parse().unwrap()),
            output_format: format,
            precondition: Some(Precondition::None),
            max_time,
            ..FioArgs::default()
        };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let own = |text: &str, max_time| -> Value {
        let told = told(text, max_time, Format::Json);
        serde_json::from_str::<Value>(&told).unwrap()["ssdkit"].clone()
    };
    let void = own("[a]\nrw=randread\nthread\n", None);
    assert_eq!(void["void"][0]["jobname"], "a");
    assert!(void["notes"][0]["note"].as_str().unwrap().starts_with("thread is not done"));
    assert_eq!((&void["preconditioned"], &void["stopped"]), (&false.into(), &false.into()));
    let text = "[a]\nrw=write\nruntime=1h\ntime_based\n[b]\nstonewall\nrw=write\n";
    let stopped = own(text, Some(1));
    assert_eq!((&stopped["stopped"], &stopped["not_run"][0]), (&true.into(), &"b".into()));
    let text = told(text, Some(1), Format::Normal);
    assert!(text.ends_with("are those so far\nnot run     b\n"), "{text}");
}

#[test]
fn levels_and_shares_are_what_is_known() {
    let level =
        |text: &str, level: &str| json(text)["jobs"][0]["iodepth_level"][level].as_f64().unwrap();
    let few = "[a]\nrw=randread\nioengine=libaio\niodepth=32\nnumber_ios=4\n";
    assert_eq!((level(few, "32"), level(few, "4")), (0.0, 100.0));
    let pauses = "[a]\nrw=randread\nioengine=libaio\niodepth=8\nthinktime=1\nsize=64k\n";
    assert!(["1", "2", "4", "8"].iter().all(|name| level(pauses, name) == 0.0));
    let told = json("[global]\nruntime=20ms\ntime_based\nrw=randread\n[a]\n[b]\n");
    for job in [0, 1] {
        let share = told["jobs"][job]["read"]["bw_agg"].as_f64().unwrap();
        assert!((45.0..55.0).contains(&share), "{share}");
    }
    let text = ran(DRIVE, &["[a]\nrw=randtrim\nsize=1m\n"], Format::Normal).unwrap();
    assert!(text.contains("[a] group 0: 1.05 MB in"), "{text}");
}

#[test]
fn sizes_and_drives_that_do_not_fit_are_refused() {
    for (drive, text, told) in [
        (DRIVE, "[a]\nbs=512\n", "takes multiples of 4 KiB"),
        (DRIVE, "[a]\nsize=1g\n", "take a larger drive"),
        (DRIVE, "; nothing\n", "there is no job in it"),
        (
            DRIVE,
            "[a]\nioengine=libaio\niodepth=40000\nnumjobs=2\n",
            "at most 65536 requests out, with 4 GiB of buffers, all together: lower iodepth=",
        ),
        ("mem:znand,size=64M", "[a]\nbs=1m\nioengine=libaio\niodepth=8\nnumjobs=1000\n", "4 GiB"),
        ("null:", "[a]\n", "a null: drive keeps nothing"),
        (DRIVE, "[a]\nrw=randread\nthinktime=3650d\n", "more than 100 years"),
    ] {
        let error = ran(drive, &[text], Format::Normal).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
    let args = FioArgs { files: vec!["/nonexistent/a.fio".into()], ..FioArgs::default() };
    assert!(run(&args, &mut Vec::new()).unwrap_err().to_string().contains("a.fio"));
}

/// What others wrote is not held for damage.
#[test]
fn verify_refuses_what_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("a.fio"), folder.path().join("data"));
    std::fs::write(&path, [7; 1 << 16]).unwrap();
    let text = format!("[a]\nfilename={}\nrw=randrw\nverify=crc32c\n", path.display());
    std::fs::write(&file, text).unwrap();
    let args = FioArgs { files: vec![file], destroy: true, ..FioArgs::default() };
    let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("add --precondition seq"), "{error}");
    let args = FioArgs { precondition: Some(Precondition::Seq), ..args };
    run(&args, &mut Vec::new()).unwrap();
}

#[test]
fn the_drive_is_that_of_the_jobs() {
    let jobs = |text: &str| {
        let sections = file::parse("a.fio", text, &file::NOTHING).unwrap();
        job::jobs(&sections, &mut Vec::new(), &[]).unwrap()
    };
    let named = |text: &str| named::drive(None, &jobs(text)).map_err(|e| e.to_string());
    let spec = named("[a]\nfilename=/nonexistent/x\nsize=1m\noffset=1m\n").unwrap();
    assert_eq!(spec.to_string(), "file:/nonexistent/x,size=2M,engine=psync,direct=no");
    // One that would be larger than can be counted is left to the drive.
    let far = named("[a]\nfilename=/nonexistent/x\nsize=1m\nnumjobs=3\noffset_increment=10000p\n");
    assert_eq!(far.unwrap().to_string(), "file:/nonexistent/x,direct=no");
    let spec = named("[a]\nfilename=/nonexistent/x\ndirect=1\n").unwrap();
    assert_eq!(spec.to_string(), "file:/nonexistent/x,engine=psync");
    // Several jobs by an engine that waits for each request would wait for each other.
    for (keys, engine, is_noted) in [
        ("ioengine=io_uring", "", false),
        ("ioengine=libaio", ",engine=libaio", false),
        ("ioengine=libaio\nnumjobs=3", ",engine=libaio", false),
        ("ioengine=pvsync2", ",engine=pvsync2", false),
        ("ioengine=pvsync2\nnumjobs=2", "", true),
        ("ioengine=psync\nrate_iops=9", "", true),
        ("ioengine=libaio\n[b]\nfilename=/n/x\ndirect=1\nioengine=psync", "", true),
        ("ioengine=posixaio", "", true),
    ] {
        let mut jobs = jobs(&format!("[a]\nfilename=/n/x\ndirect=1\n{keys}\n"));
        let drive = named::drive(None, &jobs).unwrap();
        assert_eq!(drive.to_string(), format!("file:/n/x{engine}"), "{keys}");
        named::note_engines(&drive, &mut jobs);
        let noted = jobs.iter().flat_map(|job| &job.notes).any(|note| note.contains("ioengine="));
        assert_eq!(noted, is_noted, "{keys}");
    }
    let mut cached = jobs("[a]\nfilename=/n/x\n");
    let drive = named::drive(None, &cached).unwrap();
    named::note_engines(&drive, &mut cached);
    assert!(cached[0].notes.iter().any(|note| note.starts_with("direct=0")), "{cached:?}");
    assert_eq!(named("[a]\nfilename=mem\\:tlc,size=1G\n").unwrap().to_string(), "mem:tlc,size=1G");
    for (text, told) in [
        ("[a]\n", "[a] names no filename="),
        ("[a]\nfilename=/a/b\n[b]\nfilename=/a/c\n", "a.fio:3: [b] names another drive"),
        ("[a]\nfilename=/a/b:/a/c\n", "a job has one drive"),
    ] {
        let error = named(text).unwrap_err();
        assert!(error.contains(told), "{text}: {error}");
    }
}

/// Numbers are told in few digits.
#[test]
fn the_smallest_share_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.fio");
    let keys = "rw=randread\nsize=64k\nrandom_distribution";
    for (given, told) in [("pareto:1e-320", "Pareto 1e-320,"), ("zipf:1.2", "Zipf 1.2,")] {
        std::fs::write(&file, format!("[a]\n{keys}={given}\n")).unwrap();
        let args = FioArgs { files: vec![file.clone()], parse_only: true, ..FioArgs::default() };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(told), "{text}");
    }
}

/// A job that cannot keep its rate ends when its time is over, but for what is out.
#[test]
fn a_job_that_is_behind_ends_in_its_time() {
    let text = "[a]\nrw=randread\nioengine=libaio\niodepth=4\nrate_iops=10000000\nruntime=10ms\n\
                time_based\n[b]\nrw=randread\niodepth=1\nruntime=10ms\ntime_based\n";
    for text in [text, text.split("[b]").next().unwrap()] {
        let all = json(text);
        let read = &all["jobs"][0]["read"];
        let (ios, ms) = (read["total_ios"].as_u64().unwrap(), read["runtime"].as_u64().unwrap());
        assert!((10..=11).contains(&ms) && (100..100_000).contains(&ios), "{ms} {ios}");
        let behind = &all["ssdkit"]["behind"][0];
        assert_eq!(behind["jobname"], "a");
        let text = ran(DRIVE, &[text], Format::Normal).unwrap();
        assert!(text.contains("[a] BEHIND: 10000000 a second asked, "), "{text}");
    }
    // However few it does of what was due: of some hundred nothing else could be told.
    let slow = "[a]\nrw=randread\nioengine=psync\nrate_iops=200000\nruntime=20ms\ntime_based\n";
    let of_tlc = |text: &str| -> Value {
        let told = ran("mem:tlc,size=64M,store=none", &[text], Format::Json).unwrap();
        serde_json::from_str(&told).unwrap()
    };
    let all = of_tlc(slow);
    assert!(all["jobs"][0]["read"]["total_ios"].as_u64().unwrap() < 1000);
    assert_eq!(all["ssdkit"]["behind"][0]["jobname"], "a");
    let all = of_tlc(&slow.replace("20ms", "400us"));
    assert_eq!(all["ssdkit"]["behind"], Value::Array(vec![]), "a few tell nothing");
}

/// Late flushes are late requests, of a run of some hundred, too.
#[test]
fn a_log_whose_flushes_are_late_is_behind() {
    let log = "[log]\nrw=write\nfdatasync=1\nrate_iops=2000\nruntime=100ms\ntime_based\n\
               [pages]\nrw=randrw\nioengine=libaio\niodepth=16\nruntime=100ms\ntime_based\n";
    let of = |drive: &str| -> Value {
        let all: Value = serde_json::from_str(&ran(drive, &[log], Format::Json).unwrap()).unwrap();
        all["ssdkit"]["behind"].clone()
    };
    assert_eq!(of("mem:tlc,size=64M,store=none")[0]["jobname"], "log");
    assert_eq!(of("mem:znand,size=64M,store=none"), Value::Array(vec![]));
}

/// Percentiles that a job asks for are in the text, too.
#[test]
fn percentiles_of_a_list_are_told() {
    let text =
        "[a]\nrw=randrw\nsize=1m\npercentile_list=10:99.95\n[b]\nstonewall\nrw=write\nsize=1m\n";
    let text = ran(DRIVE, &[text], Format::Normal).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("percentiles ")).collect();
    let [line] = &lines[..] else { panic!("{text}") };
    assert!(line.contains("reads p10 ") && line.contains("; writes p10 "), "{line}");
    assert!(line.matches(", p99.95 ").count() == 2, "{line}");
}
