//! The slowest requests in a report: each with where its time went.

use load::tally::Tally;
use measure::slowest::{Slow, Slowest};
use measure::why::{Why, request_json};
use port::Time;
use serde_json::Value;

use crate::jobs::JobReport;

/// The slowest requests of a run.
#[derive(Clone, Debug)]
pub struct SlowestReport {
    /// When counting began.
    began: Time,
    /// Each, of several loads with the number of its own.
    all: Vec<(Option<usize>, Slow)>,
}

impl SlowestReport {
    /// So many at most of a run, and of its loads, where it has several; `None` where
    /// nobody asked for any.
    pub fn of(most: Option<u32>, tally: &Tally, jobs: &[JobReport]) -> Option<SlowestReport> {
        let alone = tally.slowest.iter().filter(|_| jobs.is_empty()).flat_map(Slowest::all);
        let alone = alone.map(|slow| (None, slow));
        let of = |(n, job): (usize, &JobReport)| {
            job.slowest.clone().into_iter().map(move |slow| (Some(n), slow))
        };
        let mut all: Vec<_> = alone.chain(jobs.iter().enumerate().flat_map(of)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1));
        all.truncate(most? as usize);
        Some(SlowestReport { began: tally.start, all })
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let one = |(load, slow): &(Option<usize>, Slow)| {
            let mut json = request_json(slow);
            json["start_ns"] = slow.story.start().since(self.began).into();
            if let Some(load) = load {
                json["load"] = (*load).into();
            }
            json
        };
        self.all.iter().map(one).collect()
    }

    /// As a table, with what else is known of the run, at most so wide, but for what is wider alone.
    pub fn to_text(&self, why: &Why, columns: usize) -> String {
        let begun = |slow: &Slow| slow.story.start().since(self.began);
        let all = self.all.iter().map(|(load, slow)| (slow, begun(slow), *load));
        why.requests(all, "begun", columns)
    }
}
