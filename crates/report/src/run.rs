//! One run, as its report tells it.
//!
//! Fails where the text is no JSON, no report of a bench, or one that contradicts
//! itself so that it cannot be drawn.

use measure::{Distribution, Summary};
use serde::Deserialize;
use serde_json::Value;

use crate::fio;
use crate::maps::{Chunks, Dies};

/// What no figure is above: larger ones cannot be drawn, and 1e15 ns are 11 days.
pub(crate) const MOST: f64 = 1e15;

/// The time of a row's slowest requests together may be so many times as long.
const TAIL: f64 = 100.0;

/// Ends of a distribution at most: those of ours have eight a power of two.
const MOST_ENDS: usize = 600;

/// Why something is no report.
#[derive(Debug, thiserror::Error)]
pub enum Reading {
    /// Not JSON, or without what a report has.
    #[error("{name}: not the JSON of `ssdkit bench --json`, nor of fio: {why}")]
    NoReport {
        /// What was read.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A report that cannot be right.
    #[error("{name}: {what}")]
    Contradiction {
        /// What was read.
        name: String,
        /// What contradicts what.
        what: String,
    },
}

/// Latencies in ns. Percentiles without enough samples are `None`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub mean: Option<f64>,
    pub max: Option<f64>,
    pub n: u64,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub p9999: Option<f64>,
    pub p99999: Option<f64>,
}

impl Latency {
    /// All that it has.
    fn all(&self) -> impl Iterator<Item = f64> {
        let Latency { mean, max, n: _, p50, p90, p99, p999, p9999, p99999 } = *self;
        [mean, max, p50, p90, p99, p999, p9999, p99999].into_iter().flatten()
    }
}

/// The lowest and highest, in ns, that percentiles may be, where that is known.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[allow(missing_docs)]
pub struct Within {
    pub p50: Option<[f64; 2]>,
    pub p90: Option<[f64; 2]>,
    pub p99: Option<[f64; 2]>,
    pub p999: Option<[f64; 2]>,
    pub p9999: Option<[f64; 2]>,
}

impl Within {
    /// All that it has.
    fn all(&self) -> impl Iterator<Item = f64> {
        let Within { p50, p90, p99, p999, p9999 } = *self;
        [p50, p90, p99, p999, p9999].into_iter().flatten().flatten()
    }
}

/// A distribution without ends that have nothing.
fn filled(Distribution { below_ns, n }: Distribution) -> Distribution {
    let (below_ns, n) = below_ns.into_iter().zip(n).filter(|&(_, n)| n > 0).unzip();
    Distribution { below_ns, n }
}

/// Reads or writes alone.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Direction {
    pub iops: f64,
    pub latency_ns: Latency,
    /// Not of a report before there was this.
    pub percentiles_within: Option<Within>,
}

/// Blocks written for each of the user's, by reason.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Amplification {
    pub total: f64,
    pub user: f64,
    pub gc: f64,
    pub padding: f64,
    pub metadata: f64,
    /// Of the bytes that the host wrote, where parts of blocks were.
    pub of_bytes: Option<f64>,
}

/// What collection did.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Collection {
    pub collections: u64,
}

/// What parity cost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Parity {
    /// With parity; not where nothing was written.
    pub write_amplification: Option<f64>,
}

/// What an SLC cache cost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct SlcCache {
    /// With folds, and parity where there is any; not where the run cannot tell.
    pub write_amplification: Option<f64>,
}

/// How the search for a steady state ended.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Steady {
    pub reached: bool,
    pub rounds: u64,
    pub weaker: bool,
}

/// Processor time of what was measured.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Cpu {
    pub per_io_ns: f64,
}

/// Blocks programmed, by reason.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[allow(missing_docs)]
pub struct Programmed {
    pub user: f64,
    pub gc: f64,
    pub padding: f64,
    pub metadata: f64,
    #[serde(default)]
    pub parity: f64,
    #[serde(default)]
    pub folds: f64,
}

impl Programmed {
    /// By reason, as [`crate::charts`] names them.
    pub fn parts(&self) -> [f64; 6] {
        let Programmed { user, gc, padding, metadata, parity, folds } = *self;
        [user, gc, padding, metadata, parity, folds]
    }
}

/// Where the time of the slowest requests of a row went.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Tail {
    pub parts: Vec<TailPart>,
}

/// A part of it.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct TailPart {
    pub part: String,
    pub behind: Option<String>,
    pub ns: f64,
}

/// What happened in some time.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub second: f64,
    pub seconds: f64,
    pub iops: f64,
    pub p50: Option<f64>,
    pub p999: Option<f64>,
    pub write_amplification: Option<f64>,
    pub free_chunks: Option<f64>,
    /// Not of a report before there was this, as `tail`.
    pub programmed: Option<Programmed>,
    /// Nor where nobody asked.
    pub tail: Option<Tail>,
}

/// What the report of a run says.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Run {
    /// What it is called here: the name of its file.
    #[serde(skip)]
    pub name: String,
    pub version: String,
    pub seed: u64,
    pub drive: Value,
    pub workload: Value,
    pub ios: u64,
    pub errors: u64,
    pub failed_requests: u64,
    pub seconds: f64,
    pub void: Option<String>,
    pub iops: f64,
    pub bytes_per_second: f64,
    pub latency_ns: Latency,
    pub distribution: Distribution,
    /// Not of a report before there was this.
    pub percentiles_within: Option<Within>,
    pub read: Option<Direction>,
    pub write: Option<Direction>,
    pub write_amplification: Option<Amplification>,
    /// Where the drive tells.
    pub gc: Option<Collection>,
    pub steady: Option<Steady>,
    pub cpu: Cpu,
    pub series: Vec<Row>,
    #[serde(default)]
    pub interrupted: bool,
    #[serde(default)]
    pub new_drive: bool,
    pub open_loop: Option<OpenLoop>,
    #[serde(default)]
    pub warnings: Vec<String>,
    #[serde(default)]
    pub jobs: Vec<Job>,
    #[serde(default)]
    pub block_layer: Value,
    /// Where they tell; not of a report before there was this, as `chunks`.
    pub dies: Option<Dies>,
    pub parity: Option<Parity>,
    pub slc_cache: Option<SlcCache>,
    pub chunks: Option<Chunks>,
}

/// One of several loads.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Job {
    pub workload: Value,
    pub queue: u64,
    pub iops: f64,
    pub latency_ns: Latency,
    pub open_loop: Option<OpenLoop>,
}

/// What an open loop was asked for, and reached.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct OpenLoop {
    pub asked: f64,
    pub reached: f64,
    pub behind: bool,
}

/// The run that the JSON of another program tells, or why it is none; `None` where it is of none
/// that is known.
fn another(text: &str) -> Option<Result<Run, String>> {
    // fio has its remarks before it, where both go to the same place.
    let begin = if text.contains("\"fio version\"") { text.find('{')? } else { 0 };
    let json: Value = serde_json::from_str(&text[begin..]).ok()?;
    if json.get("fio version").is_some() {
        let report = fio::report_of(&json);
        return Some(report.and_then(|it| serde_json::from_value(it).map_err(|e| e.to_string())));
    }
    if json.get("seeds").is_some() {
        return Some(Err(
            "it is of several seeds: take one of its `runs`, as by jq '.runs[0]'".into()
        ));
    }
    json.get("verdict")?;
    Some(Err("it is of `ssdkit test`, which has tables of its own".into()))
}

impl Run {
    /// What the text of a report says that is called `name`.
    ///
    /// # Errors
    /// When it is no report of a bench, nor fio's.
    pub fn from_text(name: &str, text: &str) -> Result<Run, Reading> {
        let run = serde_json::from_str(text);
        let run = run.or_else(|e| another(text).unwrap_or_else(|| Err(e.to_string())));
        Run::checked(name, run)
    }

    /// What a report says that was just made.
    ///
    /// # Errors
    /// As [`Run::from_text`].
    pub fn from_json(name: &str, report: Value) -> Result<Run, Reading> {
        Run::checked(name, serde_json::from_value(report).map_err(|e| e.to_string()))
    }

    fn checked(name: &str, run: Result<Run, String>) -> Result<Run, Reading> {
        let name = name.to_owned();
        let run = run.map_err(|why| Reading::NoReport { name: name.clone(), why })?;
        match run.contradiction() {
            Some(what) => Err(Reading::Contradiction { name, what }),
            None => Ok(Run { name, distribution: filled(run.distribution), ..run }),
        }
    }

    /// What cannot be right, if anything.
    fn contradiction(&self) -> Option<String> {
        let Distribution { below_ns, n } = &self.distribution;
        if below_ns.len() != n.len() || !below_ns.is_sorted() {
            return Some(
                "the ends of `distribution` do not rise, or are not as many as its n".into(),
            );
        }
        if n.len() > MOST_ENDS {
            return Some(format!("`distribution` has more than {MOST_ENDS} ends"));
        }
        let sum = n.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
        // fio tells it only where it is asked to.
        if sum != Some(self.latency_ns.n) && !n.is_empty() {
            let n = self.latency_ns.n;
            return Some(format!("`distribution` has not as many I/Os as `latency_ns`, {n}"));
        }
        let mut figures = vec![self.iops, self.bytes_per_second, self.seconds, self.cpu.per_io_ns];
        figures.extend(self.depth());
        if let Some(open) = self.open_loop {
            figures.extend([open.asked, open.reached]);
        }
        let directions = self.read.iter().chain(&self.write);
        let parts = directions.clone().map(|part| (part.iops, part.latency_ns));
        let loads = self.jobs.iter().map(|job| (job.iops, job.latency_ns));
        for (iops, latency) in parts.chain(loads).chain([(self.iops, self.latency_ns)]) {
            figures.push(iops);
            figures.extend(latency.all());
        }
        let within = directions.filter_map(|part| part.percentiles_within.as_ref());
        figures.extend(within.chain(&self.percentiles_within).flat_map(Within::all));
        if let Some(all) = self.write_amplification {
            let Amplification { total, user, gc, padding, metadata, of_bytes } = all;
            figures.extend([total, user, gc, padding, metadata]);
            figures.extend(of_bytes);
        }
        figures.extend(self.parity.and_then(|parity| parity.write_amplification));
        figures.extend(self.slc_cache.and_then(|cache| cache.write_amplification));
        for row in &self.series {
            figures.extend([row.second, row.seconds, row.iops]);
            figures.extend([row.p50, row.p999, row.write_amplification].into_iter().flatten());
            figures.extend(row.programmed.iter().flat_map(Programmed::parts));
            let tail = row.tail.iter().flat_map(|tail| &tail.parts);
            figures.extend(tail.map(|part| part.ns / TAIL));
        }
        let beyond = |x: &f64| !(0.0..=MOST).contains(x);
        let beyond = figures.into_iter().find(beyond)?;
        Some(format!("{beyond} cannot be a rate, a time, a depth or a ratio: 0 to {MOST:e} can"))
    }

    /// Why its figures are to be taken with care, the worst first.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(why) = &self.void {
            doubts.push(format!("void: {why}"));
        }
        // Older reports have no warning of it.
        let is_warned = self.warnings.iter().any(|warning| warning.contains("page cache"));
        if self.drive["direct"] == false && !is_warned {
            doubts.push("through the system's page cache (direct=no)".into());
        }
        if self.errors > 0 {
            doubts.push(format!("{} requests failed or gave wrong data", self.errors));
        } else if self.failed_requests > 0 {
            doubts.push(format!("{} requests failed, as was asked for", self.failed_requests));
        }
        if self.interrupted {
            doubts.push("stopped before its end".into());
        }
        if self.new_drive {
            let collected = self.gc.is_some_and(|gc| gc.collections > 0);
            let what = match collected {
                true => "a new drive that was written over: figures are of both its states",
                false => "a new drive: rates fall once it was written over",
            };
            doubts.push(what.into());
        }
        match self.steady {
            Some(Steady { reached: false, rounds, .. }) => {
                doubts.push(format!("no steady state after {rounds} rounds"));
            }
            Some(Steady { weaker: true, .. }) => {
                doubts.push("steady by a weaker rule than the full one".into());
            }
            None if self.writes() && !self.new_drive => {
                doubts.push("no steady state was sought: rates may still fall".into());
            }
            _ => {}
        }
        for (number, job) in self.jobs.iter().enumerate() {
            if let Some(OpenLoop { asked, reached, behind: true }) = job.open_loop {
                doubts.push(format!(
                    "load {number}: {reached:.0} of {asked:.0} requests a second: a queue that grows"
                ));
            }
        }
        // Of several loads it is the first one's, told above.
        let alone = self.open_loop.filter(|_| self.jobs.is_empty());
        if let Some(OpenLoop { asked, reached, behind: true }) = alone {
            doubts
                .push(format!("{reached:.0} of {asked:.0} requests a second: a queue that grows"));
        }
        if self.latency_ns.n < Summary::samples(99.9) {
            doubts.push(format!("too few I/Os for a 99.9th percentile: {}", self.ios));
        }
        doubts.extend(self.warnings.iter().cloned());
        doubts
    }

    /// Requests that were outstanding all the time, where that is known: of one closed
    /// loop without pauses.
    pub fn depth(&self) -> Option<f64> {
        let pauses = !self.workload["pause_seconds"].is_null();
        if self.open_loop.is_some() || pauses || !self.jobs.is_empty() {
            return None;
        }
        let cores = self.block_layer["config"]["cores"].as_f64().unwrap_or(1.0);
        let threads = self.workload["threads"].as_f64().unwrap_or(1.0);
        Some(self.workload["qd"].as_f64()? * threads * cores)
    }

    /// Whether any load writes.
    fn writes(&self) -> bool {
        let loads = self.jobs.iter().map(|job| &job.workload).chain([&self.workload]);
        loads.into_iter().any(|of| {
            matches!(of["rw"].as_str(), Some("write" | "randwrite" | "rw" | "randrw" | "trim"))
        })
    }

    /// Its reads, or writes, alone: also of one that has nothing else.
    pub fn only(&self, reads: bool) -> Option<Direction> {
        let given = if reads { self.read } else { self.write };
        let all = match self.workload["rw"].as_str() {
            Some("read" | "randread") => reads,
            Some("write" | "randwrite") => !reads,
            _ => return given,
        };
        let Run { iops, latency_ns, percentiles_within, .. } = *self;
        let whole = Direction { iops, latency_ns, percentiles_within };
        given.or((all && self.jobs.is_empty()).then_some(whole))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A report of so many I/Os a second, in rows of a second.
    pub(crate) fn report(iops: &[f64]) -> Value {
        let row = |(i, iops): (usize, &f64)| {
            json!({ "second": i, "seconds": 1.0, "iops": iops, "ios": iops, "p50": 1e5, "p999": 2e6,
                    "write_amplification": 2.0, "free_chunks": 9, "collections": 1, "erases": 1 })
        };
        let n = iops.iter().sum::<f64>() as u64;
        let mean = n as f64 / iops.len() as f64;
        json!({
            "version": "0.1.0", "seed": 1, "drive": { "name": "mem:ref" },
            "workload": { "rw": "randrw", "qd": 32 }, "ios": n, "errors": 0, "failed_requests": 0,
            "seconds": iops.len(), "void": null, "iops": mean, "bytes_per_second": 4096.0 * mean,
            "latency_ns": { "mean": 3.2e10 / mean, "min": 8000, "max": 4_000_000, "n": n,
                "p50": 1e5, "p90": 5e5, "p99": 1e6, "p999": 2e6, "p9999": null, "p99999": null },
            "distribution": { "below_ns": [98_304, 2_097_152], "n": [n / 2, n - n / 2] },
            "write_amplification":
                { "total": 2.0, "user": 1.0, "gc": 0.9, "padding": 0.0, "metadata": 0.1 },
            "steady": { "reached": true, "rounds": 5, "window": 5, "round_seconds": 1.0,
                "weaker": false },
            "cpu": { "user_seconds": 1.0, "system_seconds": 0.0, "wall_seconds": 1.0,
                "per_io_ns": 700.0 },
            "series": iops.iter().enumerate().map(row).collect::<Vec<_>>(),
            "open_loop": null,
        })
    }

    /// The same, with all that a report may have beside it.
    pub(crate) fn full_report(iops: &[f64]) -> Value {
        let mut all = report(iops);
        for row in all["series"].as_array_mut().unwrap() {
            row["programmed"] = json!({ "user": 100, "gc": 50, "padding": 0, "metadata": 25 });
            row["tail"] = json!({ "requests": 16, "from_ns": 10, "ns": 400, "parts": [
                { "part": "die", "behind": "program of user", "ns": 300 },
                { "part": "array", "ns": 100 },
            ] });
        }
        all["dies"] = json!({ "pus": 2, "ends": [1.0, 2.0, 3.0],
            "busy": ["0 55 55", "100 100 100", "0 0 0", "9 10 11"] });
        all["chunks"] = json!({ "pus": 2, "each": 1, "states": ["fcoc", "cccx", "cccc", "ffff"],
            "erases": ["1 2 3 4", "1 1 1 9", "5 5 5 5", "1 1 1 1"],
            "valid": ["0 55 10 99", "0 0 0 0", "95 95 95 95", "0 0 0 0"] });
        all
    }

    pub(crate) fn run(name: &str, iops: &[f64]) -> Run {
        Run::from_json(name, report(iops)).unwrap()
    }

    #[test]
    fn what_is_no_report_is_refused_with_what_it_lacks() {
        let text =
            |json: Value| Run::from_text("a.json", &json.to_string()).unwrap_err().to_string();
        assert!(Run::from_text("a.json", "{").unwrap_err().to_string().starts_with("a.json: not"));
        assert!(text(json!({ "jobs": [] })).contains("missing field"));
        assert!(text(json!({ "test": "iops", "verdict": "done" })).contains("`ssdkit test`"));
        let mut lacks = report(&[1e5]);
        lacks.as_object_mut().unwrap().remove("series");
        assert!(text(lacks).contains("`series`"));
        let mut few = report(&[1e5]);
        few["distribution"]["n"][0] = 0.into();
        assert!(text(few).contains("as many I/Os"));
        let mut falls = report(&[1e5]);
        falls["distribution"]["below_ns"] = json!([5, 4]);
        assert!(text(falls).contains("do not rise"));
        for wrong in ["mean", "p50", "p99999"] {
            let mut wild = report(&[1e5]);
            wild["latency_ns"][wrong] = 1e300.into();
            assert!(text(wild).contains("cannot be a rate"), "{wrong}");
        }
        let mut many = report(&[1e5]);
        many["distribution"] = json!({ "below_ns": vec![1; 601], "n": vec![0; 601] });
        assert!(text(many).contains("more than 600"));
        let mut past = report(&[1e5]);
        past["series"][0]["second"] = json!(-1.0);
        assert!(text(past).contains("-1 cannot be"));
    }

    #[test]
    fn what_was_not_told_before_may_be_missing_and_is_checked_where_it_is_there() {
        let old = run("a", &[1e5; 5]);
        assert!(old.dies.is_none() && old.chunks.is_none() && old.series[0].tail.is_none());
        let full = Run::from_json("a", full_report(&[1e5; 5])).unwrap();
        assert_eq!(full.series[0].programmed.unwrap().parts(), [100.0, 50.0, 0.0, 25.0, 0.0, 0.0]);
        let refused = |at: &str, value: Value| {
            let mut json = full_report(&[1e5; 5]);
            *json.pointer_mut(at).unwrap() = value;
            Run::from_json("a", json).unwrap_err().to_string()
        };
        assert!(refused("/dies/busy/0", "1 2".into()).contains("a line of `dies`"));
        assert!(refused("/chunks/states/3", "fff".into()).contains("`chunks`"));
        assert!(refused("/series/0/programmed/gc", json!(-1)).contains("-1 cannot be"));
        assert!(refused("/series/0/tail/parts/0/ns", json!(-100)).contains("-1 cannot be"));
    }

    #[test]
    fn what_was_outstanding_is_of_all_threads_or_not_known() {
        let with = |key: &str, value: Value| {
            let mut json = report(&[1e5; 5]);
            json["workload"][key] = value;
            Run::from_json("a", json).unwrap()
        };
        assert_eq!(with("threads", 4.into()).depth(), Some(128.0));
        assert_eq!(with("pause_seconds", 0.5.into()).depth(), None);
        for (qd, threads) in [(1e308, 1e308), (1e8, 1e8), (-4.0, 1.0), (4.0, -1.0)] {
            let mut wild = report(&[1e5; 5]);
            wild["workload"]["qd"] = qd.into();
            wild["workload"]["threads"] = threads.into();
            let told = Run::from_json("a", wild).unwrap_err().to_string();
            assert!(told.starts_with("a: ") && told.contains("cannot be a rate"), "{told}");
        }
        let mut several = report(&[1e5; 5]);
        several["jobs"] = json!([{ "workload": { "rw": "write", "qd": 8 }, "queue": 1, "iops": 5.0,
            "latency_ns": { "n": 5 }, "open_loop": null }]);
        assert_eq!(Run::from_json("a", several).unwrap().depth(), None);
    }

    /// Write amplification of bytes is a row where a run has it, and must be a ratio.
    #[test]
    fn what_bytes_cost_is_compared() {
        let mut parts = report(&[1e5; 6]);
        parts["write_amplification"]["of_bytes"] = 16.5.into();
        let of =
            |json: &Value| crate::Comparison::new(&[Run::from_json("a", json.clone()).unwrap()]);
        let told = of(&parts).to_text();
        assert!(told.contains("write amplification by bytes") && told.contains("16.5"), "{told}");
        assert!(!of(&report(&[1e5; 6])).to_text().contains("by bytes"));
        parts["write_amplification"]["of_bytes"] = 1e300.into();
        assert!(Run::from_json("a", parts).is_err());
    }

    #[test]
    fn doubts_are_told() {
        assert!(run("a", &[1e5; 6]).doubts().is_empty());
        let mut falls = report(&[1e5; 6]);
        falls["steady"] = Value::Null;
        let falls = Run::from_json("a", falls).unwrap();
        assert!(falls.doubts()[0].starts_with("no steady state was sought"));
        let mut new = report(&[1e5; 6]);
        new["new_drive"] = true.into();
        for (collections, says) in [(0, "rates fall"), (1, "both its states")] {
            new["gc"] = json!({ "collections": collections, "moved": 3, "copied": 0 });
            let doubts = Run::from_json("a", new.clone()).unwrap().doubts();
            assert!(doubts.len() == 1 && doubts[0].contains(says), "{doubts:?}");
        }
        let mut doubtful = report(&[10.0]);
        doubtful["void"] = "it read nothing".into();
        doubtful["steady"]["reached"] = false.into();
        doubtful["latency_ns"]["p999"] = Value::Null;
        doubtful["warnings"] = json!(["a ramp"]);
        let doubts = Run::from_json("a", doubtful).unwrap().doubts();
        let begins = ["void: it", "no steady state", "too few I/Os", "a ramp"];
        assert_eq!(doubts.len(), begins.len());
        for (doubt, begin) in doubts.iter().zip(begins) {
            assert!(doubt.starts_with(begin), "{doubt}");
        }
    }
}
