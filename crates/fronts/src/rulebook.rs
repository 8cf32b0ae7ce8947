//! The rules of a served drive: which set it has, how often each rule matched, and another set
//! for it, asked for at its control socket.
//!
//! Guarantees: a set has no more of the drive than the one with which it began, and takes no
//! more memory and time than [`ENTRIES`] and [`STEPS`] say.

use exports::nbd::StopHandle;
use rules::syntax::Set;
use rules::{Budget, Problem, check, parse};
use serde_json::{Value, json};

use ruled::SetInstaller;

use crate::control::{Desk, refused};

/// Map entries that another set may have beyond those of the first.
const ENTRIES: u64 = 1 << 20;
/// Parts of expressions that a request may evaluate.
const STEPS: u64 = 1 << 20;
/// Characters of what a client calls its set.
const NAME: usize = 200;

/// What is asked of the rules is answered here.
pub(crate) struct Rulebook {
    installer: SetInstaller,
    /// What another set may have.
    budget: Budget,
}

impl Rulebook {
    pub fn new(installer: SetInstaller) -> Rulebook {
        let rules = installer.rules();
        let entries: u64 = rules.set().maps.iter().map(|map| map.entries).sum();
        let applications = Some(rules.set().applications.clone());
        Rulebook {
            installer,
            budget: Budget { entries: entries + ENTRIES, steps: STEPS, applications },
        }
    }

    fn list(&self) -> Value {
        let (now, next) = self.installer.all();
        let (number, rules) = next.unwrap_or(now);
        let set = rules.set();
        json!({
            "set": set.name.text,
            "number": number,
            "applications": set.applications.len(),
            "rules": set.rules.len(),
            "text": set.to_string(),
        })
    }

    fn counters(&self) -> Value {
        let ((number, rules), next) = self.installer.all();
        let next =
            next.map(|(number, rules)| json!({ "set": rules.set().name.text, "number": number }));
        let one = |(n, rule): (usize, &rules::syntax::Rule)| json!({ "rule": rule.name.text, "matched": rules.hits().of(n) });
        json!({
            "set": rules.set().name.text,
            "number": number,
            "next": next,
            "rules": rules.set().rules.iter().enumerate().map(one).collect::<Vec<_>>(),
            "undecided": rules.hits().undecided(),
        })
    }

    fn install(&self, name: &str, text: &str) -> Value {
        let wrong = |all: &[Problem]| {
            let told: String = all.iter().map(|problem| problem.render(name, text)).collect();
            let one = |problem: &Problem| {
                let (line, column) = problem.position(text);
                let (what, help) = (problem.what.to_string(), problem.what.help());
                json!({ "line": line, "column": column, "what": what, "help": help })
            };
            let problems: Vec<Value> = all.iter().map(one).collect();
            json!({ "error": told.trim_end(), "problems": problems })
        };
        let set: Set = match parse(text) {
            Ok(set) => set,
            Err(problem) => return wrong(&[problem]),
        };
        let checked = match check(set, &self.budget) {
            Ok(checked) => checked,
            Err(all) => return wrong(&all),
        };
        match self.installer.install(&checked) {
            Ok(number) => json!({ "set": checked.set().name.text, "number": number }),
            Err(e) => refused(&format!("{name}: {e}")),
        }
    }
}

impl Desk for Rulebook {
    fn answer(&self, asked: &Value, _wait: &mut dyn FnMut(&str), _stop: &StopHandle) -> Value {
        let text = |key: &str| asked.get(key).and_then(Value::as_str);
        if text("target").is_some() {
            return refused("this drive has one target, which is all of it: name none");
        }
        match text("ask") {
            Some("rules") => self.list(),
            Some("counters") => self.counters(),
            Some("install") => match text("text") {
                Some(set) => {
                    let name: String =
                        text("name").unwrap_or("the set").chars().take(NAME).collect();
                    self.install(&name, set)
                }
                None => refused("install needs a text"),
            },
            _ => refused("this drive is made of rules: it is asked for these by `ssdkit rules`"),
        }
    }
}
