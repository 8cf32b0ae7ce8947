//! Points from fio's `--output-format=json` and `json+`, of fio 3 or newer.
//!
//! A job's options are its own over the global ones. What makes a job another
//! thing than a closed loop of one submitter on a bare drive is refused by name:
//! `numjobs`, rates, think times, a page cache, several block sizes. An engine of
//! SPDK's goes by the path `bypass`, any other by `kernel`.

use serde_json::{Map, Value};

use super::{Asked, Direction, Figures, Point, Points, Run, size, stem};
use crate::error::TwinError;

/// Options that make a job something else when they are there at all.
const OTHERS: [&str; 11] = [
    "rate",
    "rate_iops",
    "thinktime",
    "bsrange",
    "bssplit",
    "bs_unaligned",
    "fsync",
    "fdatasync",
    "sync",
    "end_fsync",
    "random_distribution",
];

/// Engines that have one request at a time, whatever `iodepth` says.
const SYNCHRONOUS: [&str; 6] = ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Reads one output of fio's.
pub fn parse(path: &str, output: &Value, points: &mut Points) -> Result<(), TwinError> {
    let not = |what: String| TwinError::Format { path: path.into(), what };
    let empty = Map::new();
    let global = output.get("global options").and_then(Value::as_object).unwrap_or(&empty);
    let jobs = output["jobs"].as_array().ok_or_else(|| not("`jobs` is no list".into()))?;
    for (n, job) in jobs.iter().enumerate() {
        let name = job["jobname"].as_str().unwrap_or("without a name");
        let at = format!("{path}: job {} ({name})", n + 1);
        let own = job.get("job options").and_then(Value::as_object).unwrap_or(&empty);
        let option = |key: &str| {
            own.get(key).or_else(|| global.get(key)).map(|value| match value.as_str() {
                Some(text) => text.to_string(),
                None => value.to_string(),
            })
        };
        points.all.extend(points_of(path, &at, job, option)?);
    }
    Ok(())
}

/// The points of a job: one, or of mixed ones two.
fn points_of(
    path: &str,
    at: &str,
    job: &Value,
    option: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Point>, TwinError> {
    let refuse = |what: String, remedy: &str| Err(TwinError::point(at, what, remedy));
    if let Some(error) = job["error"].as_i64().filter(|&error| error != 0) {
        return refuse(format!("it failed with error {error}"), "leave the job out");
    }
    if let Some(n) = option("numjobs").filter(|n| n != "1") {
        let remedy = "percentiles of several jobs do not add up: measure with numjobs=1, and depth";
        return refuse(format!("numjobs={n}"), remedy);
    }
    if let Some(key) = OTHERS.iter().find(|key| option(key).is_some()) {
        let remedy = "only closed loops with one block size are modelled: leave the job out";
        return refuse(format!("it has {key}={}", option(key).unwrap_or_default()), remedy);
    }
    let engine = option("ioengine").unwrap_or_else(|| "psync".into());
    let is_bypass = engine.contains("spdk");
    if !is_bypass && option("direct").as_deref() != Some("1") {
        return refuse("without direct=1 it measured a page cache".into(), "measure with direct=1");
    }
    let rw = option("rw").or_else(|| option("readwrite")).unwrap_or_else(|| "read".into());
    let read_percent = match rw.as_str() {
        "randrw" => Some(percent(at, &option)?),
        _ => None,
    };
    let bs = option("bs").or_else(|| option("blocksize")).unwrap_or_else(|| "4k".into());
    let mut depth = option("iodepth").unwrap_or_else(|| "1".into());
    if SYNCHRONOUS.contains(&engine.as_str()) {
        depth = "1".into();
    }
    let asked = Asked {
        rw: &rw,
        read_percent,
        bs: size(at, &bs, "only closed loops with one block size are modelled: leave the job out")?,
        qd: depth.parse().map_err(|_| {
            TwinError::point(at, format!("iodepth={depth} is no depth"), "give fio's own JSON")
        })?,
    };
    let mut run = Run::new(at, &asked)?;
    run.path = if is_bypass { "bypass" } else { "kernel" }.into();
    let drive = option("filename").unwrap_or_else(|| stem(path).into());
    let mut points = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let side = &job[direction.name()];
        if run.only().is_none_or(|only| only == direction) {
            let measured = figures(at, side)?;
            points.push(Point::new(at.into(), &drive, run.clone(), Some(direction), measured)?);
        }
    }
    Ok(points)
}

/// The share of reads of a mixed job.
fn percent(at: &str, option: impl Fn(&str) -> Option<String>) -> Result<u8, TwinError> {
    let read = option("rwmixread").map(|text| (text, false));
    let mix = read.or_else(|| option("rwmixwrite").map(|text| (text, true)));
    let Some((text, of_writes)) = mix else { return Ok(50) };
    let percent = text.parse::<u8>().ok().filter(|&percent| percent <= 100);
    let percent = percent.ok_or_else(|| {
        TwinError::point(at, format!("its mix is {text}"), "write 0 to 100 percent")
    })?;
    Ok(if of_writes { 100 - percent } else { percent })
}

/// What fio measured of one direction.
fn figures(at: &str, side: &Value) -> Result<Figures, TwinError> {
    let us = |value: &Value| value.as_f64().map(|ns| ns / 1e3);
    if side.get("lat").is_some() {
        return Err(TwinError::point(at, "its latencies are in us", "measure with fio 3 or newer"));
    }
    let percentiles = &side["clat_ns"]["percentile"];
    let measured = Figures {
        iops: side["iops"].as_f64(),
        mean_us: us(&side["lat_ns"]["mean"]),
        p50_us: us(&percentiles["50.000000"]),
        p99_us: us(&percentiles["99.000000"]),
    };
    match measured.iops {
        None => Err(TwinError::point(at, "it has no iops: it is not fio's", "give fio's JSON")),
        Some(_) => Ok(measured),
    }
}
