//! Fault rules as the command line gives them: what goes wrong on purpose, and
//! where in the stack.
//!
//! ```text
//! --fault RULE    above:read,delay=5ms,every=100      requests of the drive
//! --faults FILE   below:write,probability=1e-4        commands of its flash
//!                 medium:bitrot,probability=1e-6      bytes that it stores
//! ```
//!
//! A rule is one of [`faults::Rule`], with a word before it for where it is; a
//! rule without one is above. Several stand between semicolons, in a file also
//! on lines, where `#` begins a comment. Fails with where the rule was given,
//! the character, and a rule that would do.

use std::fmt;

use clap::Args;
use device::VectorCmd;
use faults::{Command, DelayRule, FaultRule, MediumRule, Rule, Span, WrongPort};
use port::BlockReq;
use serde_json::{Value, json};

use crate::error::Error;
use crate::spec::text_of;

/// A rule that is right, for who wrote one that is not.
const EXAMPLE: &str = "as in below:write,probability=0.001 or above:read,every=1000,delay=5ms";

/// The longest rule, in characters. What is wrong is quoted, and may be any file.
const LONGEST: usize = 300;

/// The options of a command that takes rules.
#[derive(Args, Clone, Debug, Default)]
pub struct FaultArgs {
    /// Something that goes wrong on purpose, for example below:write,probability=0.001; repeatable.
    #[arg(long = "fault", value_name = "RULE")]
    pub rules: Vec<String>,
    /// A file of such rules, one on each line.
    #[arg(long = "faults", value_name = "FILE")]
    pub file: Option<String>,
}

impl FaultArgs {
    /// Whether there are any.
    pub fn are_given(&self) -> bool {
        !self.rules.is_empty() || self.file.is_some()
    }

    /// All rules, read and checked; those of the file come last. What they
    /// draw comes from `seed`.
    pub fn read(&self, seed: u64) -> Result<Rules, Error> {
        let mut rules = Rules { seed, placed: Vec::new() };
        for text in &self.rules {
            rules.add(text, "--fault")?;
        }
        if let Some(path) = &self.file {
            let text = text_of(path)
                .map_err(|e| Error::Usage(format!("cannot read the rules in {path}: {e}")))?;
            for (i, line) in text.lines().enumerate() {
                let line = line.split('#').next().unwrap_or_default();
                rules.add(line, &format!("{path}, line {}", i + 1))?;
            }
        }
        if self.are_given() && rules.is_empty() {
            return Err(Error::Usage(format!("no fault rule was given: write one, {EXAMPLE}")));
        }
        Ok(rules)
    }
}

/// Where in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Above the target: block requests.
    Above,
    /// Below the target: vector commands of the flash.
    Below,
    /// In the medium: what is stored.
    Medium,
}

/// A rule in its layer.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    layer: Layer,
    rule: Rule,
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Layer::Above => write!(f, "above:{}", self.rule),
            Layer::Below => write!(f, "below:{}", self.rule),
            // It says so itself.
            Layer::Medium => self.rule.fmt(f),
        }
    }
}

/// What goes wrong in a drive: nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// What random strikes come from.
    seed: u64,
    placed: Vec<Placed>,
}

/// How often a rule struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The rule, as it may be given again.
    pub rule: String,
    /// How often; what it made fail for good fails again uncounted.
    pub times: u64,
}

impl Injected {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({ "rule": self.rule, "times": self.times })
    }
}

impl Rules {
    /// Whether any is for this layer.
    pub fn has(&self, layer: Layer) -> bool {
        self.placed.iter().any(|one| one.layer == layer)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Reads the rules in `text`, which was given at `place`.
    fn add(&mut self, text: &str, place: &str) -> Result<(), Error> {
        let mut at = 0;
        for part in text.split(';') {
            if !part.trim().is_empty() {
                self.placed.push(placed(text, part, at, place)?);
            }
            at += part.chars().count() + 1;
        }
        Ok(())
    }

    /// A seed for the rules of one kind in one layer.
    pub fn seed(&self, layer: Layer, is_delay: bool) -> u64 {
        let stream = layer as u64 * 2 + u64::from(is_delay);
        self.seed.wrapping_mul(8).wrapping_add(stream)
    }

    fn of<T>(&self, layer: Layer, pick: impl Fn(&Rule) -> Option<T>) -> Vec<T> {
        let here = self.placed.iter().filter(|placed| placed.layer == layer);
        here.filter_map(|placed| pick(&placed.rule)).collect()
    }

    /// The operation faults of a layer.
    pub fn faults(&self, layer: Layer) -> Vec<FaultRule> {
        self.of(layer, |rule| if let Rule::Fault(rule) = rule { Some(rule.clone()) } else { None })
    }

    /// The delays of a layer.
    pub fn delays(&self, layer: Layer) -> Vec<DelayRule> {
        self.of(layer, |rule| if let Rule::Delay(rule) = rule { Some(rule.clone()) } else { None })
    }

    /// The faults of the medium.
    pub fn medium(&self) -> Vec<MediumRule> {
        let pick =
            |rule: &Rule| if let Rule::Medium(rule) = rule { Some(rule.clone()) } else { None };
        self.of(Layer::Medium, pick)
    }

    /// How often each rule struck, in the order in which they were given.
    /// `times` gives the numbers of a layer's faults or delays, in theirs.
    pub fn injected(&self, times: impl Fn(Layer, bool) -> Vec<u64>) -> Vec<Injected> {
        let mut left: Vec<_> = [Layer::Above, Layer::Below, Layer::Medium]
            .into_iter()
            .flat_map(|layer| [false, true].map(|is_delay| (layer, is_delay)))
            .map(|kind| (kind, times(kind.0, kind.1).into_iter()))
            .collect();
        let next = |placed: &Placed| {
            let kind = (placed.layer, matches!(placed.rule, Rule::Delay(_)));
            let of_kind = left.iter_mut().find(|(k, _)| *k == kind);
            let times = of_kind.and_then(|(_, times)| times.next()).unwrap_or(0);
            Injected { rule: placed.to_string(), times }
        };
        self.placed.iter().map(next).collect()
    }

    /// The rules, as JSON.
    pub fn to_json(&self) -> Value {
        self.placed.iter().map(Placed::to_string).collect()
    }
}

/// The rule `part`, which begins `before` characters into `text`.
fn placed(text: &str, part: &str, before: usize, place: &str) -> Result<Placed, Error> {
    let mut quoted = text.trim_end().to_string();
    if quoted.chars().nth(LONGEST).is_some() {
        let rule: String = part.trim().chars().take(LONGEST).collect();
        quoted = format!("…{rule}…");
    }
    let wrong = |at: usize, what: &dyn fmt::Display| {
        Error::Usage(format!("{place}, {quoted:?}: at character {at}, {what}; {EXAMPLE}"))
    };
    if part.chars().count() > LONGEST {
        return Err(wrong(before + 1, &format!("a rule has at most {LONGEST} characters")));
    }
    let body = part.trim_start();
    let before = before + part.chars().count() - body.chars().count();
    let (layer, rest) = match body.split_once(':') {
        Some(("above", rest)) => (Layer::Above, rest),
        Some(("below", rest)) => (Layer::Below, rest),
        _ => (Layer::Above, body),
    };
    let skipped = before + body.chars().count() - rest.chars().count();
    let rule: Rule = rest
        .trim_end()
        .parse()
        .map_err(|e: faults::TextError| wrong(skipped + e.at, &e.problem))?;
    let layer = match (&rule, layer) {
        (Rule::Medium(_), _) if rest.len() == body.len() => Layer::Medium,
        (Rule::Medium(_), _) => {
            let what =
                "a rule for the medium says where it is by itself: leave out the word before";
            return Err(wrong(before + 1, &what));
        }
        (_, layer) => layer,
    };
    match check(layer, &rule) {
        Ok(()) => Ok(Placed { layer, rule }),
        Err(e) => {
            let what = format!(
                "{e}: write {} before it, if that is where it belongs",
                match layer {
                    Layer::Above => "`below:`",
                    _ => "`above:`",
                }
            );
            Err(wrong(before + 1, &what))
        }
    }
}

/// Whether a rule can strike anything in its layer.
fn check(layer: Layer, rule: &Rule) -> Result<(), WrongPort> {
    let (operation, span): (_, Option<&Span>) = match rule {
        Rule::Fault(rule) => (rule.operation, rule.trigger.span.as_ref()),
        Rule::Delay(rule) => (rule.operation, rule.trigger.span.as_ref()),
        // The text knows no other addresses than the medium's.
        Rule::Medium(_) => return Ok(()),
    };
    match layer {
        Layer::Above => BlockReq::check(operation, span),
        _ => VectorCmd::check(operation, span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rules: &[&str]) -> Result<Rules, Error> {
        let rules = rules.iter().map(|rule| rule.to_string()).collect();
        FaultArgs { rules, file: None }.read(1)
    }

    #[test]
    fn rules_find_their_layers_and_are_counted_in_their_order() {
        let rules = read(&[
            "medium:bitrot,probability=1e-6",
            "read,delay=5ms; below:write,count=2",
            "above:trim,permanent;below:reset,delay=1ms-2ms;below:read",
        ])
        .unwrap();
        assert_eq!(rules.faults(Layer::Above).len(), 1);
        assert_eq!((rules.delays(Layer::Above).len(), rules.delays(Layer::Below).len()), (1, 1));
        assert_eq!((rules.faults(Layer::Below).len(), rules.medium().len()), (2, 1));
        let injected = rules.injected(|layer, is_delay| match (layer, is_delay) {
            (Layer::Above, false) => vec![1],
            (Layer::Above, true) => vec![2],
            (Layer::Below, false) => vec![3, 4],
            (Layer::Below, true) => vec![5],
            (Layer::Medium, false) => vec![6],
            (Layer::Medium, true) => vec![],
        });
        let times: Vec<u64> = injected.iter().map(|one| one.times).collect();
        assert_eq!(times, [6, 2, 3, 1, 5, 4]);
        let again: Vec<&str> = injected.iter().map(|one| one.rule.as_str()).collect();
        assert_eq!(read(&again).unwrap(), rules, "what is printed reads back");
        assert_ne!(rules.seed(Layer::Above, true), rules.seed(Layer::Below, false));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, at, says) in [
            ("wriet,count=3", 1, "nothing to strike"),
            ("below:wriet", 7, "nothing to strike"),
            ("read; write,chance=1", 13, "no key of this rule"),
            (" below:read,count=0", 13, "it takes a number from 1"),
            ("reset", 1, "write `below:` before it"),
            ("read;below:trim", 6, "write `above:` before it"),
            ("below:read,offset=0-1M", 1, "write `above:` before it"),
            ("read,ppa=0-1", 1, "write `below:` before it"),
            ("below:medium:torn", 1, "leave out the word before"),
            ("medium:torn,offset=0-1M", 13, "no key of this rule"),
        ] {
            let error = read(&[text]).unwrap_err();
            let words = error.to_string();
            assert!(words.contains(&format!("at character {at}, ")), "{text}: {words}");
            assert!(words.contains(says) && words.contains(EXAMPLE), "{text}: {words}");
            assert_eq!(error.exit_code(), 2);
        }
        let many = format!("{}wriet", "below:read,every=3;".repeat(40));
        let words = read(&[&many]).unwrap_err().to_string();
        assert!(words.contains("…wriet…") && words.contains("at character 761"), "{words}");
        assert!(read(&[" ; "]).unwrap_err().to_string().contains("no fault rule"));
    }

    #[test]
    fn a_file_has_comments_and_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules");
        let file = path.to_str().unwrap().to_string();
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            FaultArgs { rules: vec!["flush".into()], file: Some(file.clone()) }.read(1)
        };
        let rules = of("# all of it\n\nbelow:write,every=3 # now and then\nread;trim\n").unwrap();
        assert_eq!(rules.faults(Layer::Above).len(), 3);
        assert_eq!(rules.faults(Layer::Below).len(), 1);
        let words = of("read\nbelow:raed\n").unwrap_err().to_string();
        assert!(words.contains("rules, line 2") && words.contains("at character 7"), "{words}");
    }
}
