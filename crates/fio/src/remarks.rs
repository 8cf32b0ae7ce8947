//! What a reader must know of figures: that they mean nothing, that a run was stopped,
//! that jobs never began, what of a file was not done.
//!
//! It is in the text, in JSON below a key of its own, and with JSON on standard error, so
//! that nobody takes a figure for one that it is not. Nothing here fails.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::job::Job;
use crate::run::All;
use crate::told;

/// That what is read had been written.
pub const PRECONDITIONED: &str = "what jobs use of the drive was written twice over before";

/// What of a run is not in its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Whether what is used of the drive was written twice over before.
    pub is_preconditioned: bool,
    /// Whether somebody stopped it, or its time on the wall was over.
    pub is_stopped: bool,
    /// Names of jobs that never began, in order.
    pub not_run: Vec<String>,
    /// Jobs whose figures mean nothing, each once, and why.
    pub void: Vec<(String, String)>,
    /// Jobs that did not keep their rate, each once, and what they reached.
    pub behind: Vec<(String, String)>,
    /// What of a job's keys is not as in fio.
    pub notes: Vec<(String, String)>,
}

impl Remarks {
    /// Those of a run.
    pub fn of(jobs: &[Job], all: &All) -> Remarks {
        let mut seen = BTreeSet::new();
        let of_job = |n: usize| jobs[n].name.clone();
        let not_run = all.not_run.iter().filter(|task| seen.insert(task.job));
        let not_run = not_run.map(|task| of_job(task.job)).collect();
        let mut void: Vec<(String, String)> = Vec::new();
        let mut behind: Vec<(String, String)> = Vec::new();
        for one in &all.ran {
            let is_told = behind.last().is_some_and(|(name, _)| *name == of_job(one.task.job));
            let job = &jobs[one.task.job];
            let rate = job.pace.rate.filter(|_| !is_told);
            let behind_of = |rate| told::behind(&one.tally, rate, job.lasts.runtime);
            if let Some(words) = rate.and_then(behind_of) {
                behind.push((of_job(one.task.job), words));
            }
            let is_told = void.last().is_some_and(|(name, _)| *name == of_job(one.task.job));
            if let Some(why) = told::void(&one.tally, &one.void).filter(|_| !is_told) {
                void.push((of_job(one.task.job), why));
            }
        }
        let notes = jobs
            .iter()
            .flat_map(|job| job.notes.iter().map(|note| (job.name.clone(), note.clone())));
        Remarks {
            is_preconditioned: all.is_preconditioned,
            is_stopped: all.ran.iter().any(|one| one.tally.interrupted),
            not_run,
            void,
            behind,
            notes: notes.collect(),
        }
    }

    /// How the run ended, where not with all of it: a word and what it means.
    pub fn ended(&self) -> Vec<(&'static str, String)> {
        let mut ended = Vec::new();
        if self.is_stopped {
            ended.push(("stopped", "before its end: the figures are those so far".to_string()));
        }
        if !self.not_run.is_empty() {
            ended.push(("not run", self.not_run.join(", ")));
        }
        ended
    }

    /// A line of each.
    pub fn lines(&self) -> Vec<String> {
        let of_jobs = self.notes.iter().map(|(name, note)| format!("[{name}] {note}"));
        let void = self.void.iter().map(|(name, why)| format!("[{name}] VOID: {why}"));
        let behind = self.behind.iter().map(|(name, words)| format!("[{name}] BEHIND: {words}"));
        let before = self.is_preconditioned.then(|| PRECONDITIONED.to_string());
        let ended = self.ended().into_iter().map(|(what, words)| format!("{what}: {words}"));
        of_jobs.chain(before).chain(void).chain(behind).chain(ended).collect()
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let each = |all: &[(String, String)], what: &str| -> Vec<Value> {
            all.iter().map(|(name, words)| json!({ "jobname": name, what: words })).collect()
        };
        json!({
            "preconditioned": self.is_preconditioned,
            "stopped": self.is_stopped,
            "not_run": self.not_run,
            "void": each(&self.void, "why"),
            "behind": each(&self.behind, "rate"),
            "notes": each(&self.notes, "note"),
        })
    }
}
