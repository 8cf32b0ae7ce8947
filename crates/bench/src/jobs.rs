//! Several loads at once: their measurement, and what is told of each by itself.
//!
//! Guarantees: each is told as it would be alone, over its own time: from when it began
//! to count to its last completion or, of an open one, to its end. So rates sum to the
//! whole's only where all end together. Nothing here panics; the loads may be refused by
//! the drive.

use measure::causes::Causes;
use measure::slowest::{Slow, Slowest};
use measure::why::{Asks, causes_json};
use measure::{Direction, Summary, units};
use port::{BlockOp, Shape};
use serde_json::{Value, json};

use crate::args::of_job;
use crate::outcome::OpenLoop;
use crate::{Bench, BenchArgs, Measured, load, pattern, plan, void, workload};
use drive::error::Error;
use flash::Queues;
use load::driver::Driver;
use load::tally::Tally;

/// What one load did.
#[derive(Clone)]
pub struct JobReport {
    args: BenchArgs,
    is_real: bool,
    queue: u8,
    read: Direction,
    write: Direction,
    ios: u64,
    seconds: f64,
    latency: Summary,
    iops: f64,
    failed: u64,
    /// Where it is an open loop: what was asked of it, and reached.
    pub open_loop: Option<OpenLoop>,
    /// Why its own rates and latencies mean nothing, if they do not.
    void: Option<String>,
    /// Where the time of its requests went, where that was asked for.
    pub causes: Option<Causes>,
    /// Its slowest requests, where they were asked for.
    pub slowest: Vec<Slow>,
}

impl JobReport {
    /// Of a load's tally, from which it takes where the time of its requests went: that is
    /// too large to be kept twice.
    fn new(args: &BenchArgs, queue: u8, own: &mut Tally, is_real: bool) -> JobReport {
        let seconds = own.seconds();
        let all = own.all();
        let (ios, failed) = (all.count(), own.failed);
        // A flush comes at its time as any other.
        let arrived = ios + failed + own.latency(BlockOp::Flush).count();
        JobReport {
            args: args.clone(),
            is_real,
            queue,
            read: own.direction(BlockOp::Read, seconds),
            write: own.direction(BlockOp::Write, seconds),
            ios,
            seconds,
            latency: all.summary(),
            iops: if seconds > 0.0 { ios as f64 / seconds } else { 0.0 },
            failed,
            open_loop: args.rate.map(|rate| OpenLoop::new(rate, arrived, seconds)),
            void: void(own, ios),
            causes: own.causes.take(),
            slowest: own.slowest.as_ref().map_or(Vec::new(), Slowest::all),
        }
    }

    /// What it asks a drive for. What is written in part is read before.
    pub(crate) fn asks(&self) -> Asks {
        let (a, writes) = (&self.args, self.args.rw.writes() && self.args.reads() < 100);
        Asks { reads: a.reads() > 0 || writes && !a.are_whole_blocks(), writes }
    }

    /// What its requests took, in ns.
    pub(crate) fn latency(&self) -> &Summary {
        &self.latency
    }

    /// Bytes read and written a second.
    fn bytes_per_second(&self) -> f64 {
        let bytes = (self.read.bytes + self.write.bytes) as f64;
        if self.seconds > 0.0 { bytes / self.seconds } else { 0.0 }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let both = self.read.ios > 0 && self.write.ios > 0;
        let mut json = json!({
            "workload": workload(&self.args, self.is_real),
            "queue": self.queue,
            "seconds": self.seconds,
            "void": self.void,
            "open_loop": self.open_loop.map(OpenLoop::to_json),
            "ios": self.ios,
            "failed_requests": self.failed,
            "bytes": self.read.bytes + self.write.bytes,
            "iops": self.iops,
            "bytes_per_second": self.bytes_per_second(),
            "latency_ns": self.latency,
        });
        if let Some(causes) = &self.causes {
            json["explained"] = causes_json(causes);
        }
        if both {
            (json["read"], json["write"]) = (json!(self.read), json!(self.write));
        }
        json
    }

    /// In a line: what was asked of it and, where figures of the whole mean something,
    /// what it did.
    pub fn to_text(&self, is_void: bool) -> String {
        let a = &self.args;
        let pace = match a.rate {
            Some(rate) => format!("{}/s", units::count(rate as f64)),
            None if a.threads > 1 => format!("{} x depth {}", a.threads, a.qd),
            None => format!("depth {}", a.qd),
        };
        let asked = format!("{} {}, {pace}, queue {}", a.rw, a.sizes(), self.queue);
        match &self.void {
            _ if is_void => asked,
            Some(why) => format!("{asked}: VOID, {why}"),
            None => format!("{asked}: {}", self.figures()),
        }
    }

    fn figures(&self) -> String {
        let time = |ns: Option<f64>| ns.map_or("-".into(), units::time_ns);
        let Summary { mean, p99, p999, .. } = self.latency;
        let behind = self.open_loop.is_some_and(|open| open.behind);
        format!(
            "{}/s{}, {}/s in {}, mean {}, p99 {}, p99.9 {}",
            units::count(self.iops),
            if behind { ", BEHIND" } else { "" },
            units::bytes_decimal(self.bytes_per_second()),
            units::time_ns(self.seconds * 1e9),
            time(mean),
            time(p99.map(|ns| ns as f64)),
            time(p999.map(|ns| ns as f64)),
        )
    }
}

impl Bench<'_> {
    /// Measures all loads at once, on a drive with such queues.
    pub fn measure_together(
        &mut self,
        driver: &mut dyn Driver,
        shape: &Shape,
        queues: &Queues,
    ) -> Result<Measured, Error> {
        let (jobs, given) = (self.args.all_jobs(), self.args.queues_of_jobs(queues)?);
        let depth = if queues.is_on() { queues.depth() as usize } else { shape.depth };
        let shape = &Shape { depth: depth.min(shape.depth), ..*shape };
        let mut loads = Vec::new();
        for (n, (job, &queue)) in jobs.iter().zip(&given).enumerate() {
            let load = pattern(job, shape).and_then(|pattern| load(job, shape, &pattern));
            loads.push(load.map_err(|e| of_job(n, e))?.in_queue(queue));
        }
        let (plan, is_real, mut reports) = (plan(self.args), driver.is_real(), Vec::new());
        let mut measured = self.timed(|runner| {
            let mut tallies = runner.run_together(driver, &mut loads, plan)?;
            for ((job, &queue), tally) in jobs.iter().zip(&given).zip(&mut tallies) {
                reports.push(JobReport::new(job, queue, tally, is_real));
            }
            let energy = tallies.iter().max_by_key(|tally| tally.end).map(|last| last.energy.1);
            let mut whole = Tally::merge(tallies);
            whole.energy.1 = energy.unwrap_or(whole.energy.1);
            whole.causes = joined(&reports);
            Ok(whole)
        })?;
        measured.jobs = reports;
        Ok(measured)
    }
}

/// Where the time of all loads' requests went, where that was asked for.
fn joined(reports: &[JobReport]) -> Option<Causes> {
    reports.iter().filter_map(|job| job.causes.as_ref()).fold(None, |all, one| {
        let mut all = all.unwrap_or_else(Causes::new);
        all.join(one);
        Some(all)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use load::watch::Watch;

    use super::*;
    use crate::args::Line;
    use crate::{Outcome, measure};

    /// A controller of one core, which does 250 k commands a second.
    fn measured(rest: &str) -> Outcome {
        of_a_drive("znand,queues=2,cores=1,core_read=4us,core_write=4us", rest)
    }

    fn of_a_drive(drive: &str, rest: &str) -> Outcome {
        let line = format!("bench mem:{drive},size=64M,store=none {rest} --time 50ms");
        let args = Line::parse_from(line.split_whitespace()).args;
        args.check().unwrap();
        measure(&args, &mut Watch::quiet()).unwrap()
    }

    fn text(outcome: &Outcome) -> String {
        let mut out = Vec::new();
        outcome.print(false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Requests of another load make up for none of its own.
    #[test]
    fn an_open_load_is_judged_by_its_own_requests() {
        let outcome = measured("--rw randread --rate 50k --job rw=randread,rate=400k");
        let judged = |n: usize| outcome.jobs[n].open_loop.unwrap();
        assert!(!judged(0).behind && judged(1).behind, "{:?} {:?}", judged(0), judged(1));
        // The core does 250 k, of which the first load has its 50 k while it goes on.
        assert!((judged(0).reached / 50e3 - 1.0).abs() < 0.02, "{:?}", judged(0));
        assert_eq!(outcome.open_loop, Some(judged(0)));
        let json = outcome.to_json();
        assert_eq!(json["jobs"][1]["open_loop"]["behind"], true);
        let text = text(&outcome);
        assert!(text.contains("rate        load 1: 400"), "{text}");
        assert!(!text.contains("load 0:") && text.matches(", BEHIND").count() == 1, "{text}");
        let outcome = measured("--rw randread --rate 400k --job rw=randread,qd=64");
        assert!(outcome.open_loop.unwrap().behind, "another's requests are none of its own");
        let outcome = measured("--rw randread --qd 4 --job rw=randread,qd=4");
        assert!(outcome.jobs.iter().all(|job| job.open_loop.is_none()));
    }

    /// One that drains for long takes nothing from another's rate.
    #[test]
    fn each_has_its_own_time() {
        let outcome = measured("--rw randread --qd 8 --job rw=randread,rate=400k");
        let [closed, open] = &outcome.jobs[..] else { panic!("two") };
        assert!((0.05..0.051).contains(&closed.seconds), "{}", closed.seconds);
        assert!(open.seconds > 0.1, "{}", open.seconds);
        assert_eq!(outcome.report.seconds, open.seconds);
        assert_eq!(closed.iops, closed.ios as f64 / closed.seconds);
        assert_eq!(open.ios, 20_000);
        // In turn, while there are two.
        assert!((closed.iops / 125e3 - 1.0).abs() < 0.02, "{}", closed.iops);
        assert!(text(&outcome).contains(", p99.9 "));
    }

    #[test]
    fn what_is_wrong_with_one_is_told_with_its_number() {
        let parsed = |job: &str| {
            let line = format!(
                "bench mem:znand,size=64M,store=none --rw randread --time 1ms --job rw=randwrite {job}"
            );
            Line::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())
        };
        let args = parsed("--job rw=randread,hot=10:90,placement=yes,range=60M+64M").unwrap().args;
        assert!(args.jobs[1].args.placement);
        args.check().unwrap();
        let Err(error) = measure(&args, &mut Watch::quiet()) else { panic!("past its end") };
        assert!(error.to_string().starts_with("--job, number 2: --range ends at"), "{error}");
        let args = parsed("--job rw=randread,hot=10:90,placement=no").unwrap().args;
        assert!(!args.jobs[1].args.placement);
        for (job, says) in [
            ("queue=0,queue=1", "queue= is there twice"),
            ("placement,placement=no", "placement is there twice"),
            ("placement=maybe", "placement= is yes or no"),
            ("qd=1,qd=2", "--qd"),
        ] {
            let Err(text) = parsed(&format!("--job rw=randread,{job}")) else { panic!("{job}") };
            assert!(text.contains(says), "{text}");
        }
    }

    /// Bytes are those of each request, and what is written of any size is found again.
    #[test]
    fn requests_may_have_several_sizes() {
        let rest =
            "--rw randread --precondition seq --job rw=randrw,bssplit=4k/60:64k/40,iodepth=2";
        let outcome = measured(rest);
        let json = outcome.jobs[1].to_json();
        let number = |key: &str| json[key].as_u64().unwrap();
        assert_eq!(json["workload"]["bssplit"], "4k/60:64k/40");
        let blocks = number("bytes") as f64 / 4096.0 / number("ios") as f64;
        assert!((blocks / (0.6 + 16.0 * 0.4) - 1.0).abs() < 0.1, "{blocks}");
        let (read, write) = (&json["read"]["bytes"], &json["write"]["bytes"]);
        assert_eq!(read.as_u64().unwrap() + write.as_u64().unwrap(), number("bytes"));
        assert!(text(&outcome).contains("randrw 4k/60:64k/40, depth 2"));
        for rw in ["randrw", "rw"] {
            let line = format!(
                "bench mem:znand,size=64M --rw {rw} --bssplit 4k/50:12k/30:512/20,8k/ --qd 8 \
                 --ios 2k --verify"
            );
            let args = Line::parse_from(line.split_whitespace()).args;
            args.check().unwrap();
            let outcome = measure(&args, &mut Watch::quiet()).unwrap();
            assert_eq!((outcome.problem, outcome.report.ios), (None, 2000), "{rw}");
        }
        let line = "bench mem:znand --rw randread --bssplit 4k/50:8k/50 --pause 1ms";
        let args = Line::parse_from(line.split_whitespace()).args;
        assert!(args.check().unwrap_err().to_string().contains("take --bs"));
    }

    #[test]
    fn trims_move_no_bytes() {
        let outcome = measured("--rw randread --precondition seq --job rw=trim,range=0+4M");
        let json = outcome.jobs[1].to_json();
        assert!(json["ios"].as_u64().unwrap() > 0, "{json}");
        assert_eq!((&json["bytes"], &json["bytes_per_second"]), (&0.into(), &0.0.into()));
    }

    /// Where figures of the whole mean nothing, those of its parts do not.
    #[test]
    fn what_is_void_shows_no_figure_of_a_load() {
        let outcome = measured("--rw randread --precondition none --job rw=randread");
        assert!(outcome.report.void.is_some());
        let text = text(&outcome);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("load ")).collect();
        let asked = |n| format!("load {n}      randread 4 KiB, depth 1, queue {n}");
        assert_eq!(lines, [asked(0), asked(1)]);
    }

    /// Each load's time is told of by itself, exactly, and together they are the whole;
    /// a reader beside a writer waits behind its programs.
    #[test]
    fn each_load_tells_where_its_time_went() {
        let line = "bench mem:tlc,size=64M,store=none --rw randread --qd 4 --precondition seq \
                    --job rw=randwrite,qd=8 --job rw=randread,rate=5k --time 50ms --slowest 7";
        let args = Line::parse_from(line.split_whitespace()).args;
        let plain = BenchArgs { slowest: None, ..args.clone() };
        let plain = measure(&plain, &mut Watch::quiet()).unwrap();
        let args = BenchArgs { explains: true, ..args };
        args.check().unwrap();
        let outcome = measure(&args, &mut Watch::quiet()).unwrap();
        let (told, untold) = (outcome.to_json(), plain.to_json());
        assert_eq!(told["latency_ns"], untold["latency_ns"], "asking changes nothing");
        let sum = |causes: &Causes| {
            let all = causes.kinds().into_iter().filter_map(|(_, kind)| kind.slowest(1.0));
            all.fold((0, 0), |sum, of| (sum.0 + of.requests, sum.1 + of.sum.ns()))
        };
        let mut whole = (0, 0);
        for (n, job) in outcome.jobs.iter().enumerate() {
            let (requests, ns) = sum(job.causes.as_ref().unwrap());
            assert_eq!(requests, job.ios);
            let mean = job.latency.mean.unwrap();
            assert!((ns as f64 / requests as f64 / mean - 1.0).abs() < 1e-9, "{n}: {mean}");
            whole = (whole.0 + requests, whole.1 + ns);
            let parts = &told["jobs"][n]["explained"];
            assert_eq!(parts["reads"].as_array().unwrap().is_empty(), n == 1, "{parts}");
        }
        assert_eq!(sum(outcome.causes.as_ref().unwrap()), whole);
        let behind = outcome.jobs[0].causes.as_ref().unwrap().kinds()[0].1.slowest(0.01).unwrap();
        let most = behind.sum.parts().max_by_key(|part| part.2).unwrap();
        assert_eq!((most.0, most.1), ("die", Some("program of user")));
        // The slowest of all, whoever's they are.
        let slowest = told["slowest"].as_array().unwrap();
        let ns: Vec<_> = slowest.iter().map(|one| one["latency_ns"].as_u64().unwrap()).collect();
        assert!(ns.len() == 7 && ns.is_sorted_by(|a, b| a >= b), "{ns:?}");
        assert_eq!(Some(ns[0]), outcome.jobs.iter().filter_map(|job| job.latency.max).max());
        assert!(slowest.iter().all(|one| one["load"].as_u64().unwrap() < 3));
        for one in slowest {
            let parts =
                one["parts"].as_array().unwrap().iter().map(|of| of["ns"].as_u64().unwrap());
            assert_eq!(one["latency_ns"], parts.sum::<u64>());
        }
        let mut many = args;
        many.jobs = vec![many.jobs[0].clone(); measure::why::MOST_LOADS];
        assert!(many.check().unwrap_err().to_string().contains("32 loads at most"));
    }

    /// None could go on.
    #[test]
    fn where_time_stands_still_all_end() {
        for rate in ["qd=4", "rate=10k", "rate=10k,rw=randwrite"] {
            let rw = if rate.contains("rw=") { "" } else { "rw=randread," };
            let rest = format!("--rw randread --qd 8 --precondition none --job {rw}{rate}");
            let outcome = of_a_drive("null", &rest);
            assert!(
                outcome.report.void.as_ref().unwrap().contains("stood still"),
                "{rate}: {:?}",
                outcome.report.void
            );
            assert!(outcome.report.seconds < 0.001, "{rate}: {}", outcome.report.seconds);
            let (ios, still) = (outcome.report.ios, load::runner::STILL_BYTES / 4096);
            assert!((still..still + 64).contains(&ios), "{rate}: {ios}");
        }
    }
}
