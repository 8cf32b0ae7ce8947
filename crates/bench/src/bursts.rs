//! The bursts of a run, as reports tell them.

use std::fmt;

use load::bursts::{Burst, Ended, Pauses};
use measure::units;
use port::Time;
use serde_json::{Value, json};

/// The bursts of a run; in full the first thousand of them.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstReport {
    pauses: Pauses,
    /// When counting began.
    start: Time,
    bursts: Ended,
    /// Bytes of a request.
    bs: u64,
}

impl BurstReport {
    /// Of a run that pauses so, in which these ended. None where none did.
    pub fn new(pauses: Option<Pauses>, start: Time, bursts: Ended, bs: u64) -> Option<Self> {
        let pauses = pauses.filter(|_| bursts.count() > 0)?;
        Some(BurstReport { pauses, start, bursts, bs })
    }

    /// Bytes a second.
    fn rate(&self, burst: &Burst) -> f64 {
        let ns = (burst.end.since(burst.start)).max(1);
        burst.requests as f64 * self.bs as f64 * 1e9 / ns as f64
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.bursts.count()
    }

    /// As JSON: one object for each of the first thousand.
    pub fn to_json(&self) -> Value {
        let each = |burst: &Burst| {
            json!({
                "second": burst.start.since(self.start) as f64 / 1e9,
                "seconds": burst.end.since(burst.start) as f64 / 1e9,
                "requests": burst.requests,
                "bytes_per_second": self.rate(burst),
            })
        };
        self.bursts.first.iter().map(each).collect()
    }
}

impl fmt::Display for BurstReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |burst: &Burst| format!("{}/s", units::bytes_decimal(self.rate(burst)));
        let Ended { first, whole, slowest, last, cut } = &self.bursts;
        let each = units::exactly(self.pauses.each, "request");
        let apart = units::time_ns(self.pauses.ns as f64);
        match (first.first(), slowest, last) {
            (Some(first), Some(slowest), Some(last)) => write!(
                f,
                "{whole} of {each}, {apart} apart: {} the first, {} the slowest, {} the last",
                rate(first),
                rate(slowest),
                rate(last),
            )?,
            _ => write!(f, "none of {each}")?,
        }
        match cut {
            Some(cut) => {
                let had = units::exactly(cut.requests, "request");
                write!(f, "; the run ended in one, after {had} at {}", rate(cut))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use load::watch::Watch;

    use super::*;
    use crate::args::Line;
    use crate::measure;

    /// Each begins so long after the one before has ended, to the nanosecond; no request
    /// is missing, and the time of pauses is in no latency.
    #[test]
    fn a_run_pauses_between_them() {
        let line = "bench mem:ref,size=16M,store=none --rw randread --precondition seq --qd 4 \
                    --burst 100 --pause 10ms --ios 950";
        let args = Line::parse_from(line.split_whitespace()).args;
        args.check().unwrap();
        let outcome = measure(&args, &mut Watch::quiet()).unwrap();
        let bursts = &outcome.bursts.as_ref().unwrap().bursts.first;
        let requests: Vec<u64> = bursts.iter().map(|burst| burst.requests).collect();
        assert_eq!(requests, [100, 100, 100, 100, 100, 100, 100, 100, 100, 50]);
        assert!(bursts.windows(2).all(|two| two[1].start == two[0].end + 10_000_000));
        assert!(outcome.report.latency_ns.max.unwrap() < 10_000_000);
        assert_eq!(outcome.report.ios, 950);
        assert_eq!(outcome.to_json()["bursts_total"], 10);
        for (more, says) in [
            ("--rate 100", "with --rate"),
            ("--cores 2", "without a block layer"),
            ("--burst 1 --pause 1000000h", "at most 100 years"),
        ] {
            let line = match more.contains("--burst") {
                true => format!("{} {more}", line.split(" --burst").next().unwrap()),
                false => format!("{line} {more}"),
            };
            let error = Line::parse_from(line.split_whitespace()).args.check().unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn each_has_its_rate() {
        let pauses = Some(Pauses { each: 4, ns: 1_000_000 });
        let burst = |start, end, requests| Burst { start: Time(start), end: Time(end), requests };
        let (whole, cut) = (burst(0, 4_096, 4), burst(2_000_000_000, 2_000_008_192, 2));
        let bursts = Ended {
            first: vec![whole, cut],
            whole: 1,
            slowest: Some(whole),
            last: Some(whole),
            cut: Some(cut),
        };
        let report = BurstReport::new(pauses, Time::ZERO, bursts.clone(), 4096).unwrap();
        let json = report.to_json();
        assert_eq!(json[0]["bytes_per_second"], 4e9);
        assert_eq!((&json[1]["second"], &json[1]["requests"]), (&2.0.into(), &2.into()));
        let text = "1 of 4 requests, 1.00 ms apart: 4.00 GB/s the first, 4.00 GB/s the slowest, \
                    4.00 GB/s the last; the run ended in one, after 2 requests at 1.00 GB/s";
        assert_eq!((report.to_string().as_str(), report.count()), (text, 2));
        assert_eq!(BurstReport::new(pauses, Time::ZERO, Ended::default(), 4096), None);
        assert_eq!(BurstReport::new(None, Time::ZERO, bursts, 4096), None);
        let bursts = Ended { first: vec![cut], cut: Some(cut), ..Ended::default() };
        let report = BurstReport::new(pauses, Time::ZERO, bursts, 4096).unwrap();
        let text = "none of 4 requests; the run ended in one, after 2 requests at 1.00 GB/s";
        assert_eq!(report.to_string(), text);
    }
}
