//! fio's JSON, as fio 3.33 prints it.
//!
//! Guarantees: each key means what fio's does; times are drive time. What is not known
//! is as fio prints it where it does not know: zeros, with no samples. Nothing here fails.

use measure::why::causes_json;
use measure::{Histogram, Row};
use port::BlockOp;
use serde_json::{Map, Value, json};

use crate::told::Told;

/// Its version, as programs that read fio's output look for it, and whose it is.
pub const VERSION: &str = concat!("fio-3.33-ssdkit-", env!("CARGO_PKG_VERSION"));
/// What fio says of a job that has ended.
const NO_ETA: u64 = 0;
/// fio's ends of latencies, in ns and us, then in ms.
const LEVELS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// The system's numbers of what went wrong.
const EIO: u32 = 5;
const EILSEQ: u32 = 84;

/// All of it; `globals` are the keys of `[global]`, `now_ms` the time of the day.
pub fn output(told: &[Told], globals: &[(String, String)], now_ms: u64, plus: bool) -> Value {
    json!({
        "fio version": VERSION,
        "timestamp": now_ms / 1000,
        "timestamp_ms": now_ms,
        "global options": options(globals),
        "jobs": told.iter().map(|one| job(one, told, plus)).collect::<Vec<_>>(),
        "disk_util": [],
    })
}

fn options(keys: &[(String, String)]) -> Value {
    keys.iter()
        .map(|(key, value)| (key.clone(), Value::from(&**value)))
        .collect::<Map<_, _>>()
        .into()
}

fn job(told: &Told, all_told: &[Told], plus: bool) -> Value {
    let direction = |op| direction(told, group_rate(told.group, all_told, op), op, plus);
    let tally = &told.tally;
    let error = if tally.wrong > 0 {
        EILSEQ
    } else if tally.errors() > 0 {
        EIO
    } else {
        0
    };
    let all = tally.all();
    let mut json = json!({
        "jobname": told.job.name,
        "groupid": told.group,
        "error": error,
        "eta": NO_ETA,
        "elapsed": told.seconds().ceil().max(1.0) as u64,
        "job options": options(&told.job.own),
        "read": direction(BlockOp::Read),
        "write": direction(BlockOp::Write),
        "trim": direction(BlockOp::Trim),
        "sync": sync(told, plus),
        "job_runtime": millis(told.seconds()),
        "usr_cpu": percent(told.cpu.0, told.wall),
        "sys_cpu": percent(told.cpu.1, told.wall),
        "ctx": 0,
        "majf": 0,
        "minf": 0,
        "iodepth_level": depths(told, all.count()),
        "iodepth_submit": batches(all.count()),
        "iodepth_complete": batches(all.count()),
        "latency_ns": levels(&all, 1, false),
        "latency_us": levels(&all, 1_000, false),
        "latency_ms": levels(&all, 1_000_000, true),
        "latency_depth": told.job.pace.depth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    });
    if let Some(text) = &told.job.description {
        json["desc"] = text.clone().into();
    }
    json
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

/// KiB a second of one kind of request of a group: of all its bytes, over its longest job.
fn group_rate(group: u32, all: &[Told], op: BlockOp) -> f64 {
    let own = || all.iter().filter(|one| one.group == group && one.tally.bytes(op) > 0);
    let bytes: u64 = own().map(|one| one.tally.bytes(op)).sum();
    let seconds = own().map(Told::seconds).fold(0.0, f64::max);
    if seconds > 0.0 { bytes as f64 / 1024.0 / seconds } else { 0.0 }
}

/// A kind of request, of which its group has so many KiB a second.
fn direction(told: &Told, group: f64, op: BlockOp, plus: bool) -> Value {
    let (tally, latency) = (&told.tally, told.tally.latency(op));
    let ios = latency.count();
    let (bytes, seconds) = (tally.bytes(op), if ios > 0 { told.seconds() } else { 0.0 });
    let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let mut json = json!({
        "io_bytes": bytes,
        "io_kbytes": bytes >> 10,
        "bw_bytes": rate(bytes) as u64,
        "bw": rate(bytes) as u64 >> 10,
        "iops": rate(ios),
        "runtime": millis(seconds),
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": times(&Histogram::new()),
        "clat_ns": times(latency),
        "lat_ns": times(latency),
    });
    json["clat_ns"] = detailed(told, latency, plus);
    // Bytes of a row are known where all requests have one size.
    let each = told.job.one_size().filter(|bs| bytes == ios * bs);
    samples(&mut json, &told.rows_of(op), (each.unwrap_or(0), group));
    json
}

/// Samples of a second of drive time each, of requests of so many bytes, in a group of so
/// many KiB a second.
fn samples(json: &mut Value, rows: &[Row], (bytes, group): (u64, f64)) {
    let iops: Vec<f64> = rows.iter().map(|row| row.iops).collect();
    let bw: Vec<f64> = if bytes > 0 {
        iops.iter().map(|iops| iops * bytes as f64 / 1024.0).collect()
    } else {
        Vec::new()
    };
    let (iops, bw) = (Spread::of(&iops), Spread::of(&bw));
    json["bw_min"] = (bw.min as u64).into();
    json["bw_max"] = (bw.max as u64).into();
    json["bw_agg"] = percent(bw.mean, group).min(100.0).into();
    json["bw_mean"] = bw.mean.into();
    json["bw_dev"] = bw.deviation.into();
    json["bw_samples"] = bw.n.into();
    json["iops_min"] = (iops.min as u64).into();
    json["iops_max"] = (iops.max as u64).into();
    json["iops_mean"] = iops.mean.into();
    json["iops_stddev"] = iops.deviation.into();
    json["iops_samples"] = iops.n.into();
}

/// How samples lie.
#[derive(Default)]
struct Spread {
    n: usize,
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of(samples: &[f64]) -> Spread {
        let n = samples.len();
        if n == 0 {
            return Spread::default();
        }
        let mean = samples.iter().sum::<f64>() / n as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum();
        Spread {
            n,
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 },
        }
    }
}

/// The same with percentiles, and with `plus` all latencies.
fn detailed(told: &Told, latency: &Histogram, plus: bool) -> Value {
    let mut json = times(latency);
    if latency.count() > 0 {
        let of = |p: &f64| (format!("{p:.6}"), latency.percentile(*p).unwrap_or(0).into());
        json["percentile"] = told.job.percentiles.iter().map(of).collect::<Map<_, _>>().into();
        if plus {
            let cells = latency.cells().map(|(ns, n)| (ns.to_string(), n.into()));
            json["bins"] = cells.collect::<Map<_, _>>().into();
        }
    }
    json
}

fn times(latency: &Histogram) -> Value {
    json!({
        "min": latency.min().unwrap_or(0),
        "max": latency.max().unwrap_or(0),
        "mean": latency.mean().unwrap_or(0.0),
        "stddev": latency.deviation(),
        "N": latency.count(),
    })
}

/// Flushes.
fn sync(told: &Told, plus: bool) -> Value {
    let latency = told.tally.latency(BlockOp::Flush);
    json!({ "total_ios": latency.count(), "lat_ns": detailed(told, latency, plus) })
}

/// How many requests were out when each began, in percent, by fio's steps. A closed loop
/// has all that it may from its first requests on; of one that pauses and of an open one it
/// is not known.
fn depths(told: &Told, ios: u64) -> Value {
    let steps = [("1", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 16), ("32", 32), (">=64", 64)];
    let depth = told.depth.unwrap_or(0);
    let own = steps.iter().rposition(|&(_, from)| from <= depth).filter(|_| ios > 0);
    let of = |(n, (name, _)): (usize, &(&str, u32))| {
        (name.to_string(), Value::from(if own == Some(n) { 100.0 } else { 0.0 }))
    };
    steps.iter().enumerate().map(of).collect::<Map<_, _>>().into()
}

/// Requests submitted or completed at once: fio's step up to four holds one.
fn batches(ios: u64) -> Value {
    let four = if ios > 0 { 100.0 } else { 0.0 };
    json!({ "0": 0.0, "4": four, "8": 0.0, "16": 0.0, "32": 0.0, "64": 0.0, ">=64": 0.0 })
}

/// Shares of latencies by their size, in units of so many ns: those below each end and not
/// below the one before.
fn levels(all: &Histogram, unit: u64, is_last: bool) -> Value {
    let first = if unit == 1 { 0 } else { unit };
    let (mut from, mut json) = (first, Map::new());
    let share = |from: u64, end: u64| {
        let cells = all.cells().filter(|&(ns, _)| ns >= from && ns < end);
        percent(cells.map(|cell| cell.1).sum::<u64>() as f64, all.count() as f64)
    };
    for level in LEVELS {
        json.insert(level.to_string(), share(from, level * unit).into());
        from = level * unit;
    }
    if is_last {
        json.insert("2000".into(), share(from, 2000 * unit).into());
        json.insert(">=2000".into(), share(2000 * unit, u64::MAX).into());
    }
    json.into()
}

/// Where the time of a job's requests went, where that was kept.
pub fn explained(told: &Told) -> Option<Value> {
    let causes = told.tally.causes.as_ref()?;
    Some(json!({ "jobname": told.job.name, "explained": causes_json(causes) }))
}
