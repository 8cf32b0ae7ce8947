//! Candidates that are no drive, as keys contradict each other: how many there were, why,
//! and which of the choices that were asked for no drive has.
//!
//! Guarantees: every candidate that was tried is counted, and each that is no drive with
//! its reason; reasons beyond the first [`REASONS`] are counted together.

use std::collections::BTreeMap;

use measure::units;
use serde::Serialize;

use crate::parameter::Parameter;

/// So many reasons are told apart.
const REASONS: usize = 8;

/// Why some candidates are no drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What is wrong with them.
    pub why: String,
    /// How many there were.
    pub candidates: u64,
    /// The first of them: its parameters.
    pub example: String,
}

/// What was tried, and what of it is no drive.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    tried: u64,
    dropped: u64,
    reasons: Vec<Reason>,
    /// Of each choice how often it was tried, and how often that was no drive.
    choices: BTreeMap<String, (u64, u64)>,
}

impl Dropped {
    /// A candidate was tried; `why` it is no drive, where it is none.
    pub fn note(&mut self, parameters: &[Parameter], at: &[f64], why: Option<String>) {
        let set = |(one, &at): (&Parameter, &f64)| format!("{}={}", one.name, one.value(at));
        let both = || parameters.iter().zip(at);
        self.tried += 1;
        for choice in both().filter(|(one, _)| one.choices().is_some()) {
            let (tried, dropped) = self.choices.entry(set(choice)).or_default();
            (*tried, *dropped) = (*tried + 1, *dropped + u64::from(why.is_some()));
        }
        let Some(why) = why else { return };
        self.dropped += 1;
        if let Some(known) = self.reasons.iter_mut().find(|reason| reason.why == why) {
            known.candidates += 1;
        } else if self.reasons.len() < REASONS {
            let example = both().map(set).collect::<Vec<_>>().join(",");
            self.reasons.push(Reason { why, candidates: 1, example });
        }
    }

    /// Whether none that was tried is a drive.
    pub fn is_all(&self) -> bool {
        self.tried > 0 && self.dropped == self.tried
    }

    /// Why, those of most candidates first.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut all = self.reasons.clone();
        all.sort_by_key(|reason| std::cmp::Reverse(reason.candidates));
        all
    }

    /// Choices that were tried and that no drive has.
    pub fn never(&self) -> Vec<&str> {
        let all = self.choices.iter().filter(|(_, (tried, dropped))| tried == dropped);
        all.map(|(choice, _)| choice.as_str()).collect()
    }

    /// All of it, a line each; nothing where all are drives.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.dropped == 0 {
            return lines;
        }
        lines.push(format!("{} of {} candidates are no drive", self.dropped, self.tried));
        lines.extend(self.reasons().iter().map(Reason::line));
        let told: u64 = self.reasons.iter().map(|reason| reason.candidates).sum();
        if told < self.dropped {
            lines.push(format!("no drive: {} for other reasons", self.dropped - told));
        }
        let never = self.never();
        if !never.is_empty() {
            lines.push(format!("no drive that was tried has {}", never.join(", ")));
        }
        lines
    }
}

impl Reason {
    /// In words.
    fn line(&self) -> String {
        let count = units::exactly(self.candidates, "candidate");
        format!("no drive: {count}, the first of them {}: {}", self.example, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_with_its_reason() {
        let base = flash::Profile::builtin("ref").unwrap();
        let parse = |text| Parameter::parse(text, &base).unwrap();
        let parameters = [parse("queues=1|2"), parse("read=20us..80us")];
        let mut all = Dropped::default();
        assert!(!all.is_all() && all.lines().is_empty());
        all.note(&parameters, &[0.9, 0.5], Some("no core".into()));
        assert!(all.is_all());
        all.note(&parameters, &[0.8, 1.0], Some("no core".into()));
        all.note(&parameters, &[0.1, 0.0], None);
        all.note(&parameters, &[0.1, 0.0], Some("another".into()));
        assert!(!all.is_all());
        assert_eq!(all.never(), ["queues=2"]);
        let lines = all.lines();
        assert_eq!(lines[0], "3 of 4 candidates are no drive");
        assert!(lines[1].contains("2 candidates") && lines[1].ends_with("no core"), "{lines:?}");
        assert!(lines[1].contains("queues=2,read=40"), "{lines:?}");
        for n in 0..20 {
            all.note(&parameters, &[0.1, 0.0], Some(format!("reason {n}")));
        }
        let told: u64 = all.reasons().iter().map(|reason| reason.candidates).sum();
        assert_eq!((all.reasons().len(), told), (REASONS, 9));
        assert!(all.lines().contains(&"no drive: 14 for other reasons".to_string()));
    }
}
