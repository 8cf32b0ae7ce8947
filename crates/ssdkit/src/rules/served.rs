//! The rules of a drive that is served, asked for at its socket.
//!
//! Fails with exit code 1 where nobody answers there, or what is asked is refused.

use std::io::Write;
use std::path::Path;

use measure::units;
use serde_json::{Value, json};

use super::Source;
use drive::error::Error;
use drive::say::harmless;

/// A drive that is served, and how it is asked.
pub struct Served<'a> {
    /// Its control socket.
    pub socket: &'a Path,
    /// Which of its targets, where that is said.
    pub target: Option<&'a str>,
    /// Whether what it says is printed as it is.
    pub json: bool,
}

impl Served<'_> {
    /// What it says. What it refuses is told: as JSON among the results, too.
    fn ask(&self, mut asked: Value, out: &mut dyn Write) -> Result<Value, Error> {
        if let Some(target) = self.target {
            asked["target"] = target.into();
        }
        let answer = fronts::ask(self.socket, &asked, &mut |_| ())?;
        if self.json {
            writeln!(out, "{answer:#}")?;
            out.flush()?;
        }
        match answer.get("error").and_then(Value::as_str) {
            // Its lines are those of a compiler.
            Some(why) => {
                let lines: Vec<String> =
                    why.lines().map(|line| harmless(line).to_string()).collect();
                Err(Error::Failed(lines.join("\n")))
            }
            None => Ok(answer),
        }
    }

    /// Tells the set.
    pub fn list(&self, out: &mut dyn Write) -> Result<(), Error> {
        let answer = self.ask(json!({ "ask": "rules" }), out)?;
        if !self.json {
            for line in answer["text"].as_str().unwrap_or_default().lines() {
                writeln!(out, "{}", harmless(line))?;
            }
        }
        Ok(())
    }

    /// Tells how often each rule matched.
    pub fn counters(&self, out: &mut dyn Write) -> Result<(), Error> {
        let answer = self.ask(json!({ "ask": "counters" }), out)?;
        if self.json {
            return Ok(());
        }
        let text = |value: &Value| harmless(value.as_str().unwrap_or_default()).to_string();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        writeln!(out, "{}, set {} of this run", text(&answer["set"]), number(&answer["number"]))?;
        if let Some(next) = answer["next"].as_object() {
            let (set, number) = (text(&next["set"]), number(&next["number"]));
            writeln!(out, "{set}, set {number}, comes with the next request")?;
        }
        for one in answer["rules"].as_array().into_iter().flatten() {
            let matched = units::exactly(number(&one["matched"]), "time");
            writeln!(out, "{:<24}{matched}", text(&one["rule"]))?;
        }
        writeln!(
            out,
            "{:<24}{}",
            "undecided",
            units::exactly(number(&answer["undecided"]), "request")
        )?;
        Ok(())
    }

    /// Installs a set.
    pub fn install(&self, source: &Source, out: &mut dyn Write) -> Result<(), Error> {
        // What is no UTF-8 is told as `check` tells it: the drive is not asked.
        let text = std::str::from_utf8(&source.bytes).map_err(|_| {
            Error::Usage(format!("{}: this is not UTF-8: write it as UTF-8", source.name))
        })?;
        let asked = json!({ "ask": "install", "name": source.name, "text": text });
        let answer = self.ask(asked, out)?;
        if !self.json {
            let name = answer["set"].as_str().unwrap_or_default();
            writeln!(out, "{}: set {} of this run", harmless(name), answer["number"])?;
        }
        Ok(())
    }
}
