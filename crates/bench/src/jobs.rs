//! Several loads at once: their measurement, and what is told of each by itself.
//!
//! Guarantees: the rates of all sum to the whole's, as the time is the same for all.

use measure::{Direction, Histogram, Summary, units};
use port::{BlockOp, Shape};
use serde_json::{Value, json};

use crate::{Bench, BenchArgs, Measured, load, pattern, plan, workload};
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
    latency: Summary,
    iops: f64,
    failed: u64,
}

impl JobReport {
    fn new(args: &BenchArgs, queue: u8, own: &Tally, is_real: bool, seconds: f64) -> JobReport {
        let bytes = |latency: &Histogram| latency.count() * u64::from(args.bs);
        let of = |op| {
            let latency = own.latency(op);
            Direction::new(latency, bytes(latency), seconds)
        };
        let all = own.all();
        JobReport {
            args: args.clone(),
            is_real,
            queue,
            read: of(BlockOp::Read),
            write: of(BlockOp::Write),
            ios: all.count(),
            latency: all.summary(),
            iops: if seconds > 0.0 { all.count() as f64 / seconds } else { 0.0 },
            failed: own.failed,
        }
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> (u64, u64) {
        (self.read.bytes, self.write.bytes)
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let both = self.read.ios > 0 && self.write.ios > 0;
        let mut json = json!({
            "workload": workload(&self.args, self.is_real),
            "queue": self.queue,
            "ios": self.ios,
            "failed_requests": self.failed,
            "bytes": self.read.bytes + self.write.bytes,
            "iops": self.iops,
            "bytes_per_second": self.iops * f64::from(self.args.bs),
            "latency_ns": self.latency,
        });
        if both {
            (json["read"], json["write"]) = (json!(self.read), json!(self.write));
        }
        json
    }

    /// In a line.
    pub fn to_text(&self) -> String {
        let a = &self.args;
        let pace = match a.rate {
            Some(rate) => format!("{}/s", units::count(rate as f64)),
            None if a.threads > 1 => format!("{} x depth {}", a.threads, a.qd),
            None => format!("depth {}", a.qd),
        };
        let time = |ns: Option<f64>| ns.map_or("-".into(), units::time_ns);
        format!(
            "{} {}, {pace}, queue {}: {}/s, {}/s, mean {}, p99 {}",
            a.rw,
            units::size_binary(a.bs.into()),
            self.queue,
            units::count(self.iops),
            units::bytes_decimal(self.iops * f64::from(a.bs)),
            time(self.latency.mean),
            time(self.latency.p99.map(|ns| ns as f64)),
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
        for (job, &queue) in jobs.iter().zip(&given) {
            loads.push(load(job, shape, &pattern(job, shape)?)?.in_queue(queue));
        }
        let (plan, is_real, mut reports) = (plan(self.args), driver.is_real(), Vec::new());
        let mut measured = self.timed(|runner| {
            let tallies = runner.run_together(driver, &mut loads, plan)?;
            let began = tallies.iter().map(|tally| tally.start).min();
            let ended = tallies.iter().map(|tally| tally.end).max();
            let ns = began.zip(ended).map_or(0, |(began, ended)| ended.since(began));
            for ((job, &queue), tally) in jobs.iter().zip(&given).zip(&tallies) {
                reports.push(JobReport::new(job, queue, tally, is_real, ns as f64 / 1e9));
            }
            let energy = tallies.iter().max_by_key(|tally| tally.end).map(|last| last.energy.1);
            let mut whole = Tally::merge(tallies);
            whole.energy.1 = energy.unwrap_or(whole.energy.1);
            Ok(whole)
        })?;
        measured.jobs = reports;
        Ok(measured)
    }
}
