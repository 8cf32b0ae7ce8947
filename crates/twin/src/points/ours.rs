//! Points from the reports of `ssdkit bench --json`.
//!
//! A drive in this process goes by the path `none`, a device or file by
//! `kernel`. Runs that are no closed loop of one submitter, of several loads, and those whose
//! figures mean nothing, are refused.

use serde_json::Value;

use super::{Asked, Direction, Figures, Point, Points, Run, stem};
use crate::error::TwinError;

/// Reads report number `n` of a file.
pub fn parse(path: &str, n: usize, report: &Value, points: &mut Points) -> Result<(), TwinError> {
    let at = format!("{path}: report {n}");
    let refuse = |what: String, remedy: &str| Err(TwinError::point(&at, what, remedy));
    let workload = &report["workload"];
    if let Some(why) = report["void"].as_str() {
        return refuse(format!("its figures mean nothing: {why}"), "leave it out");
    }
    if report["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()) {
        let remedy = "measure each alone, without --job";
        return refuse("a run of several loads is no point".into(), remedy);
    }
    if report["interrupted"].as_bool() == Some(true) {
        return refuse("it was stopped".into(), "run it to its end");
    }
    for key in ["failed_requests", "left_inside"] {
        if let Some(n) = report[key].as_u64().filter(|&n| n > 0) {
            let remedy = "take one in which each request did what it was asked";
            return refuse(format!("{key} is {n}"), remedy);
        }
    }
    if report["drive"]["direct"].as_bool() == Some(false) {
        return refuse(
            "it measured a page cache".into(),
            "leave direct=no out of the drive's name",
        );
    }
    if workload["threads"].as_u64().is_some_and(|threads| threads != 1) {
        return refuse("it has several threads".into(), "measure with --threads 1");
    }
    if let Some(key) = ["rate", "zipf", "hot", "fua_every", "flush_every", "pause_seconds"]
        .iter()
        .find(|key| !workload[**key].is_null())
    {
        let remedy = "only uniform closed loops are modelled: leave it out";
        return refuse(format!("it has {key}"), remedy);
    }
    let whole = |key: &str| workload[key].as_u64().and_then(|n| u32::try_from(n).ok());
    let read_percent = whole("read_percent").map(|percent| percent.min(255) as u8);
    let asked = Asked {
        rw: workload["rw"].as_str().unwrap_or_default(),
        read_percent,
        bs: whole("bs").unwrap_or(0),
        qd: whole("qd").unwrap_or(0),
    };
    let mut run = Run::new(&at, &asked)?;
    let name = report["drive"]["name"].as_str().or(report["drive"].as_str()).unwrap_or(stem(path));
    run.path =
        if name.starts_with("mem:") || name.starts_with("ssd:") { "none" } else { "kernel" }.into();
    for direction in [Direction::Read, Direction::Write] {
        let side = match run.only() {
            Some(only) if only == direction => report,
            Some(_) => continue,
            None => &report[direction.name()],
        };
        let us = |key: &str| side["latency_ns"][key].as_f64().map(|ns| ns / 1e3);
        let (mean_us, p50_us, p99_us) = (us("mean"), us("p50"), us("p99"));
        let measured = Figures { iops: side["iops"].as_f64(), mean_us, p50_us, p99_us };
        points.all.push(Point::new(at.clone(), name, run.clone(), Some(direction), measured)?);
    }
    Ok(())
}
