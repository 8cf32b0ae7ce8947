//! What fio measured, as a report of a bench: its `--output-format=json` or `json+`, of fio 3 or
//! newer, and that of `ssdkit fio`.
//!
//! All jobs of the file are one run, so they must have run at once. Latency is from submission to
//! completion (`lat_ns`), percentiles of what fio has them of. Percentiles of several jobs, or of
//! reads and writes together, need the numbers of each latency that `json+` has. What fio does not
//! tell, rows over time above all, is not there. Fails where jobs ran one after the other, and
//! where it is no such output.

use measure::{Histogram, Summary};
use serde_json::{Map, Value, json};

/// Engines that have one request at a time, whatever `iodepth` says.
const SYNCHRONOUS: [&str; 6] = ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Percentiles of a report, and what each is called by fio.
const PERCENTILES: [(&str, f64, &str); 6] = [
    ("p50", 50.0, "50.000000"),
    ("p90", 90.0, "90.000000"),
    ("p99", 99.0, "99.000000"),
    ("p999", 99.9, "99.900000"),
    ("p9999", 99.99, "99.990000"),
    ("p99999", 99.999, "99.999000"),
];

/// The report of what fio's output tells.
pub(crate) fn report_of(output: &Value) -> Result<Value, String> {
    let jobs = output["jobs"].as_array().filter(|jobs| !jobs.is_empty());
    let jobs = jobs.ok_or("fio's, without jobs")?;
    if jobs.iter().any(|job| job["groupid"] != jobs[0]["groupid"]) {
        return Err("fio's, of jobs that ran one after the other: take one with `--section`".into());
    }
    let did = |side: &&Value| side["total_ios"].as_u64().is_some_and(|n| n > 0);
    let of = |way| jobs.iter().map(|job| &job[way]).filter(did).collect::<Vec<_>>();
    let [reads, writes, trims] = ["read", "write", "trim"].map(of);
    let sides = [&*reads, &*writes, &*trims].concat();
    if sides.iter().any(|side| side.get("lat").is_some()) {
        return Err("fio's, with latencies in us: measure with fio 3 or newer".into());
    }
    if sides.is_empty() {
        return Err("fio's, and nothing was read or written".into());
    }
    let (latency, distribution) = latency(&sides);
    let total = |key: &str| sum(&sides, key);
    let runtime =
        jobs.iter().flat_map(|job| ["read", "write", "trim"].map(|way| &job[way]["runtime"]));
    let seconds = runtime.filter_map(Value::as_f64).fold(0.0, f64::max) / 1e3;
    let options = options(output, jobs);
    Ok(json!({
        "version": output["fio version"],
        "seed": options.get("randseed").and_then(Value::as_u64).unwrap_or(0),
        "drive": drive(output, &options),
        "workload": workload(jobs, options),
        "ios": total("total_ios") as u64,
        "errors": 0,
        "failed_requests": 0,
        "seconds": seconds,
        "void": void(output, jobs),
        "iops": total("iops"),
        "bytes_per_second": total("bw_bytes"),
        "warnings": warnings(output, &sides, &latency),
        "latency_ns": latency,
        "distribution": distribution,
        "read": direction(&reads),
        "write": direction(&writes),
        "cpu": { "per_io_ns": processor(jobs) / total("total_ios").max(1.0) },
        "series": [],
    }))
}

fn sum(sides: &[&Value], key: &str) -> f64 {
    sides.iter().filter_map(|side| side[key].as_f64()).sum()
}

/// Reads or writes alone.
fn direction(sides: &[&Value]) -> Option<Value> {
    let iops = sum(sides, "iops");
    (!sides.is_empty()).then(|| json!({ "iops": iops, "latency_ns": latency(sides).0 }))
}

/// What fio has of a latency: all of it, or that of completion.
fn all_of(side: &Value) -> &Value {
    let is_there = |of: &&Value| of["N"].as_u64().is_some_and(|n| n > 0);
    Some(&side["lat_ns"]).filter(is_there).unwrap_or(&side["clat_ns"])
}

/// That which has percentiles.
fn ranked(side: &Value) -> &Value {
    let all = all_of(side);
    if all.get("percentile").is_some() { all } else { &side["clat_ns"] }
}

/// Mean, longest and percentiles, and how they lie.
fn latency(sides: &[&Value]) -> (Value, Value) {
    let all: Vec<&Value> = sides.iter().map(|side| all_of(side)).collect();
    let n = sum(&all, "N");
    let products = all.iter().filter_map(|of| Some(of["mean"].as_f64()? * of["N"].as_f64()?));
    let mut told = json!({
        "n": n as u64,
        "mean": (n > 0.0).then(|| products.sum::<f64>() / n),
        "max": all.iter().filter_map(|of| of["max"].as_f64()).reduce(f64::max),
    });
    let histogram = histogram(sides, n as u64);
    for (name, p, of_fio) in PERCENTILES {
        let value = match (&histogram, sides) {
            (Some(all), _) => all.percentile(p).map(|ns| ns as f64),
            (None, [side]) => ranked(side)["percentile"][of_fio].as_f64(),
            _ => None,
        };
        told[name] = json!(value.filter(|_| n as u64 >= Summary::samples(p)));
    }
    (told, json!(histogram.map(|all| all.distribution()).unwrap_or_default()))
}

/// All latencies, where the numbers of all `n` are told.
fn histogram(sides: &[&Value], n: u64) -> Option<Histogram> {
    let (mut all, mut left) = (Histogram::new(), n);
    for side in sides {
        for (ns, n) in ranked(side)["bins"].as_object()? {
            let n = n.as_u64()?;
            left = left.checked_sub(n)?;
            all.record_many(ns.parse().ok()?, n);
        }
    }
    (left == 0).then_some(all)
}

/// The options that all jobs have alike, of each its own before the global one.
fn options(output: &Value, jobs: &[Value]) -> Map<String, Value> {
    let global = output["global options"].as_object().cloned().unwrap_or_default();
    let of = |job: &Value| {
        let mut all = global.clone();
        all.extend(job["job options"].as_object().cloned().unwrap_or_default());
        all
    };
    let mut alike = of(&jobs[0]);
    for job in &jobs[1..] {
        let other = of(job);
        alike.retain(|key, value| other.get(key) == Some(value));
    }
    alike.into_iter().map(|(key, value)| (key, number(value))).collect()
}

/// A number, or a size with fio's letters, as a number.
fn number(value: Value) -> Value {
    let Some(text) = value.as_str() else { return value };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &*text[digits.len()..].to_ascii_lowercase() {
        "" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().zip(scale);
    let number = number.and_then(|(number, scale)| number.checked_mul(1 << scale));
    number.map_or(value, Value::from)
}

/// What was measured.
fn drive(output: &Value, options: &Map<String, Value>) -> Value {
    let of = |key: &str, other: &str| options.get(key).cloned().unwrap_or_else(|| other.into());
    output["ssdkit"].get("drive").cloned().unwrap_or_else(|| {
        let is_direct = options.get("direct") == Some(&json!(1));
        let (name, engine) = (of("filename", "not said"), of("ioengine", "psync"));
        json!({ "name": name, "engine": engine, "direct": is_direct })
    })
}

/// The options as a report of a bench names them, where it has them; others by fio's names.
fn workload(jobs: &[Value], mut options: Map<String, Value>) -> Value {
    let mut take = |of: &[&str]| of.iter().filter_map(|key| options.remove(*key)).next_back();
    let engine = take(&["ioengine"]).unwrap_or_else(|| "psync".into());
    let is_synchronous = engine.as_str().is_some_and(|engine| SYNCHRONOUS.contains(&engine));
    let depth = take(&["iodepth"]).filter(|_| !is_synchronous).unwrap_or_else(|| 1.into());
    let rw = take(&["readwrite", "rw"]).unwrap_or_else(|| match jobs.len() {
        1 => "read".into(),
        _ => Value::Null,
    });
    let threads = take(&["numjobs"]).unwrap_or_else(|| jobs.len().into());
    let bs = take(&["blocksize", "bs"]).unwrap_or_else(|| 4096.into());
    let mix = take(&["rwmixread"]);
    take(&["name"]);
    take(&["filename"]);
    take(&["direct"]);
    take(&["randseed"]);
    let known = json!({ "rw": rw, "bs": bs, "qd": depth, "threads": threads, "read_percent": mix });
    options.extend(known.as_object().cloned().unwrap_or_default());
    options.into()
}

/// Why the figures mean nothing, if they do not.
fn void(output: &Value, jobs: &[Value]) -> Option<String> {
    let failed = jobs.iter().find(|job| job["error"].as_i64().is_some_and(|error| error != 0));
    if let Some(job) = failed {
        let name = job["jobname"].as_str().unwrap_or("");
        return Some(format!("job {name} ended with error {}", job["error"]));
    }
    output["ssdkit"]["void"][0]["why"].as_str().map(str::to_owned)
}

/// What is to be known of the figures.
fn warnings(output: &Value, sides: &[&Value], latency: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(words) = output["ssdkit"]["behind"][0]["rate"].as_str() {
        all.push(words.to_owned());
    }
    let enough = latency["n"].as_u64().is_some_and(|n| n >= Summary::samples(50.0));
    if enough && latency["p50"].is_null() {
        all.push(
            "percentiles of several jobs, or of reads and writes together, need fio's \
             --output-format=json+"
                .into(),
        );
    }
    let [whole, submitted] = ["lat_ns", "slat_ns"].map(|key| {
        let of = sides.iter().map(|side| &side[key]);
        of.filter_map(|of| Some(of["mean"].as_f64()? * of["N"].as_f64()?)).sum::<f64>()
    });
    if submitted > 0.05 * whole && sides.iter().any(|side| ranked(side) == &side["clat_ns"]) {
        let part = 100.0 * submitted / whole;
        all.push(format!(
            "percentiles are without the time of submission, {part:.0} % of all: fio's \
             lat_percentiles=1 has it"
        ));
    }
    all
}

/// Processor time of all jobs, in ns.
fn processor(jobs: &[Value]) -> f64 {
    let of = |job: &Value| {
        let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
        Some(percent / 100.0 * job["job_runtime"].as_f64()? * 1e6)
    };
    jobs.iter().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Run;

    /// What fio 3.33 printed with `--output-format=json+` of two jobs, without what is not read.
    const SAMPLE: &str = include_str!("fio/sample.json");

    fn sample() -> Value {
        serde_json::from_str(SAMPLE).unwrap()
    }

    fn run(output: &Value) -> Run {
        Run::from_text("fio.json", &output.to_string()).unwrap()
    }

    #[test]
    fn jobs_that_ran_at_once_are_one_run() {
        let one = run(&sample());
        let [reads, writes] = [one.read.unwrap(), one.write.unwrap()];
        let of = |job: usize, way: &str, key: &str| sample()["jobs"][job][way][key].clone();
        let all = |way: &str, key: &str| {
            of(0, way, key).as_f64().unwrap() + of(1, way, key).as_f64().unwrap()
        };
        assert_eq!((one.ios, one.latency_ns.n), (120, 120));
        assert_eq!(reads.latency_ns.n as f64, all("read", "total_ios"));
        assert_eq!((reads.iops, writes.iops), (all("read", "iops"), all("write", "iops")));
        assert!((one.iops - reads.iops - writes.iops).abs() < 1e-6);
        // Of all together, as their numbers of each latency say.
        let median = one.latency_ns.p50.unwrap();
        let sides = [reads.latency_ns.p50, writes.latency_ns.p50].map(|p50| p50.unwrap());
        let (low, high) = (sides[0].min(sides[1]), sides[0].max(sides[1]));
        assert!((low..=high).contains(&median), "{low} {median} {high}");
        assert_eq!(one.distribution.n.iter().sum::<u64>(), 120);
        assert_eq!((one.latency_ns.p99, one.depth()), (None, Some(8.0)));
        assert_eq!(one.workload["bs"], 4096);
        assert_eq!(one.drive["name"], "/dev/nvme0n1");
        let doubts = one.doubts();
        assert!(doubts.iter().any(|doubt| doubt.contains("lat_percentiles=1")), "{doubts:?}");
        assert!(doubts.iter().any(|doubt| doubt.contains("too few I/Os")), "{doubts:?}");
        // fio's remarks come first where all went to one place.
        let remarked = format!("note: both iodepth >= 1 and synchronous\n{SAMPLE}");
        assert_eq!(Run::from_text("f", &remarked).unwrap().ios, 120);
    }

    #[test]
    fn without_numbers_of_each_latency_a_percentile_is_of_one_side_alone() {
        let mut plain = sample();
        for job in plain["jobs"].as_array_mut().unwrap() {
            for way in ["read", "write"] {
                job[way]["clat_ns"].as_object_mut().unwrap().remove("bins");
            }
        }
        let two = run(&plain);
        assert_eq!((two.latency_ns.p50, two.read.unwrap().latency_ns.p50), (None, None));
        assert!(two.doubts().iter().any(|doubt| doubt.contains("json+")), "{:?}", two.doubts());
        assert!(crate::charts::all(&[two]).iter().all(|chart| chart.name != "latency"));
        plain["jobs"].as_array_mut().unwrap().pop();
        let fio = &plain["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"];
        assert_eq!(run(&plain).read.unwrap().latency_ns.p50, fio.as_f64());
    }

    #[test]
    fn what_is_no_run_is_refused_and_what_failed_is_void() {
        let told =
            |output: &Value| Run::from_text("f", &output.to_string()).unwrap_err().to_string();
        assert!(told(&json!({ "fio version": "fio-3.33", "jobs": [] })).contains("without jobs"));
        let mut rounds = sample();
        rounds["jobs"][1]["groupid"] = 1.into();
        assert!(told(&rounds).contains("--section"));
        let mut nothing = sample();
        nothing["jobs"] = json!([{ "groupid": 0, "read": { "total_ios": 0 } }]);
        assert!(told(&nothing).contains("nothing was read"));
        let mut old = sample();
        old["jobs"][0]["read"]["lat"] = json!({ "mean": 1.0 });
        assert!(told(&old).contains("fio 3"));
        let mut failed = sample();
        failed["jobs"][1]["error"] = 5.into();
        assert!(run(&failed).doubts()[0].contains("void: job a ended with error 5"));
        // More of a latency than there were requests is not believed, nor added up past the end.
        let mut many = sample();
        many["jobs"][0]["read"]["clat_ns"]["bins"]["50000"] = json!(u64::MAX);
        assert!(run(&many).distribution.n.is_empty());
        let mut wild = sample();
        wild["jobs"][0]["read"]["iops"] = json!(-1e9);
        assert!(told(&wild).contains("cannot be"));
    }

    #[test]
    fn sizes_have_fios_letters() {
        let of = |text: &str| number(text.into());
        assert_eq!([of("4k"), of("16"), of("1M")], [4096, 16, 1 << 20].map(Value::from));
        for other in ["4k,64k", "zipf:1.1", "/dev/x", "", "99999999999g"] {
            assert_eq!(of(other), other);
        }
    }
}
