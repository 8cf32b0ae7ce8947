//! What a study found: rows, notes, and how to repeat it.
//!
//! Guarantees: text and JSON come from the same rows, and both carry what a
//! reader needs to run it again. Fails when the output cannot be written, and,
//! after printing, when a row was judged and did not pass.

use std::io::Write;

use serde_json::{Value, json};

use super::row::{Row, Verdict};
use drive::error::Error;

/// How something was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it measured.
    pub what: String,
    /// The command that does the same, or what to call it.
    pub command: String,
    /// The effective configuration of what was measured.
    pub configuration: Value,
    /// What a reader must know of what it gave.
    pub notes: Vec<String>,
}

/// What a reader needs to repeat a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The version of the program.
    pub version: &'static str,
    /// What all random numbers came from.
    pub seed: u64,
    /// Whether it was the short form.
    pub quick: bool,
    /// Processors that it could use.
    pub processors: usize,
    /// How long it took on the wall, in seconds.
    pub wall_seconds: f64,
    /// How each figure was measured.
    pub steps: Vec<Step>,
}

impl Manifest {
    /// All but the steps, in a line.
    pub fn text(&self) -> String {
        format!(
            "ssdkit {}, seed {}, {} processors, {:.0} s{}",
            self.version,
            self.seed,
            self.processors,
            self.wall_seconds,
            if self.quick { ", quick: shorter runs" } else { "" }
        )
    }
}

/// A picture of what a study measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// A word for it, which names its file.
    pub name: &'static str,
    /// What it shows.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

/// What a study found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The study's name.
    pub study: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its rows, in the paper's order.
    pub rows: Vec<Row>,
    /// What a reader must know to read them.
    pub notes: Vec<String>,
    /// Pictures, if it draws any.
    pub pictures: Vec<Picture>,
    /// How to repeat it.
    pub manifest: Manifest,
}

impl Outcome {
    /// How many rows passed, failed, and were not judged.
    pub fn tally(&self) -> (usize, usize, usize) {
        let mut tally = (0, 0, 0);
        for row in &self.rows {
            match row.verdict() {
                Verdict::Pass => tally.0 += 1,
                Verdict::Fail => tally.1 += 1,
                Verdict::NotGated(_) => tally.2 += 1,
            }
        }
        tally
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let m = &self.manifest;
        let step = |s: &Step| {
            json!({ "what": s.what, "command": s.command, "configuration": s.configuration,
                "notes": s.notes })
        };
        let (passed, failed, not_gated) = self.tally();
        json!({
            "study": self.study,
            "about": self.about,
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "passed": passed,
            "failed": failed,
            "not_gated": not_gated,
            "notes": self.notes,
            "manifest": {
                "version": m.version,
                "seed": m.seed,
                "quick": m.quick,
                "processors": m.processors,
                "wall_seconds": m.wall_seconds,
                "steps": m.steps.iter().map(step).collect::<Vec<_>>(),
            },
        })
    }

    /// Prints it. Fails afterwards when a judged row did not pass.
    pub fn print(&self, json: bool, out: &mut dyn Write) -> Result<(), Error> {
        if json {
            writeln!(out, "{:#}", self.to_json())?;
        } else {
            self.write_text(out)?;
        }
        out.flush()?;
        self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)))
    }

    /// Which judged rows did not pass, in words, if there are any.
    pub fn failure(&self) -> Option<String> {
        let failed = |row: &&Row| row.verdict() == Verdict::Fail;
        let failed: Vec<&str> = self.rows.iter().filter(failed).map(Row::what).collect();
        let (some, all) = (failed.len(), self.rows.len());
        let which = failed.join("; ");
        (some > 0).then(|| format!("study {}: {some} of {all} rows failed: {which}", self.study))
    }

    /// What came of it, before the rows.
    fn write_summary(&self, out: &mut dyn Write) -> Result<(), Error> {
        let (passed, failed, not_gated) = self.tally();
        writeln!(out, "{passed} passed, {failed} failed, {not_gated} not gated")?;
        if passed + failed == 0 {
            writeln!(out, "nothing was judged: the last column says why, row by row")?;
        }
        let rows = self.rows.iter().filter(|row| row.verdict() == Verdict::Fail);
        for row in rows {
            writeln!(out, "  failed: {} ({})", row.what(), row.figure())?;
        }
        writeln!(out)?;
        Ok(())
    }

    /// Prints it as text.
    pub fn write_text(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "study {}: {}\n", self.study, self.about)?;
        self.write_summary(out)?;
        writeln!(
            out,
            "{:<52} {:>9} {:>25} {:>7} {:>7}  {:<15} verdict",
            "", "paper", "ours", "spread", "ratio", "rule"
        )?;
        let mut figure = "";
        let mut reasons = Vec::new();
        for row in &self.rows {
            if row.figure() != figure {
                figure = row.figure();
                writeln!(out, "{figure}")?;
            }
            write_row(row, &mut reasons, out)?;
        }
        writeln!(out)?;
        for (i, reason) in reasons.iter().enumerate() {
            writeln!(out, "[{}] not gated: {reason}", i + 1)?;
        }
        for note in &self.notes {
            writeln!(out, "- {note}")?;
        }
        writeln!(out, "\n{}", self.manifest.text())?;
        for step in &self.manifest.steps {
            writeln!(out, "  {:<36} {}", step.what, step.command)?;
            for note in &step.notes {
                writeln!(out, "      note: {note}")?;
            }
        }
        Ok(())
    }
}

/// A row. Why it is not judged is said once for all rows of which that is so:
/// `reasons` has them, in the order of their numbers.
fn write_row(row: &Row, reasons: &mut Vec<String>, out: &mut dyn Write) -> Result<(), Error> {
    let verdict = match row.verdict() {
        Verdict::NotGated(why) => {
            let known = reasons.iter().position(|reason| *reason == why);
            let number = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            format!("[{}]", number + 1)
        }
        judged => judged.to_string(),
    };
    // What is too long takes of the blanks behind it.
    let over = row.what().chars().count().saturating_sub(50);
    writeln!(
        out,
        "  {:<50} {:>left$} {:>25} {:>7} {:>7}  {:<15} {}",
        row.what(),
        row.show_reference(),
        row.show_ours(),
        row.show_spread(),
        row.show_ratio(),
        row.rule().to_string(),
        verdict,
        left = 9usize.saturating_sub(over),
    )?;
    if let Some(words) = row.words() {
        writeln!(out, "      paper: {words}")?;
    }
    if let Some(why) = row.failed_since() {
        writeln!(out, "      failed: {why}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::row::Reference;
    use super::super::runs::Runs;
    use super::*;

    fn outcome(ours: f64) -> Outcome {
        let rows = vec![
            Row::band("fig. 1", "w", "IOPS", Reference::Paper(100.0), Runs::one(ours), 0.9..=1.1),
            Row::shown("fig. 1", "x", "IOPS", Reference::Silent, Runs::one(1.0), "not in the text"),
        ];
        let manifest = Manifest {
            version: "0",
            seed: 1,
            quick: true,
            processors: 2,
            wall_seconds: 1.0,
            steps: vec![],
        };
        let (notes, pictures) = (vec!["n".into()], vec![]);
        Outcome { study: "s", about: "a", rows, notes, pictures, manifest }
    }

    #[test]
    fn a_failed_row_fails_the_command_after_printing() {
        for json in [false, true] {
            let mut out = Vec::new();
            outcome(100.0).print(json, &mut out).unwrap();
            let mut out = Vec::new();
            let error = outcome(50.0).print(json, &mut out).unwrap_err();
            assert_eq!(error.exit_code(), 1);
            assert!(error.to_string().contains("1 of 2 rows failed: w"), "{error}");
            assert!(String::from_utf8(out).unwrap().contains("not in the text"));
        }
    }

    #[test]
    fn a_summary_comes_first_and_each_reason_once() {
        let mut outcome = outcome(50.0);
        let shown = outcome.rows[1].clone();
        outcome.rows.push(shown);
        let mut out = Vec::new();
        outcome.print(false, &mut out).unwrap_err();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2..4], ["0 passed, 1 failed, 2 not gated", "  failed: w (fig. 1)"]);
        assert_eq!(text.matches("not in the text").count(), 1, "{text}");
        assert_eq!(text.matches("[1]").count(), 3, "two rows and the reason:\n{text}");
    }

    #[test]
    fn a_study_that_judged_nothing_says_so() {
        let text = |ours: f64, judged: usize| {
            let mut outcome = outcome(ours);
            outcome.rows.drain(..1 - judged);
            let mut out = Vec::new();
            outcome.print(false, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(text(100.0, 0).contains("0 passed, 0 failed, 1 not gated\nnothing was judged"));
        assert!(!text(100.0, 1).contains("nothing was judged"));
    }

    /// A long name moves no column that has room.
    #[test]
    fn columns_stand_below_each_other() {
        let row = |what: &str| {
            let row = Row::shown("f", what, "x", Reference::Silent, Runs::one(1.5), "why");
            let mut out = Vec::new();
            write_row(&row, &mut Vec::new(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let [short, long] = ["a".repeat(9), "a".repeat(56)].map(|what| row(&what));
        assert_eq!(short.find(" x "), long.find(" x "), "{short}{long}");
    }

    #[test]
    fn json_has_every_row() {
        let json = outcome(105.0).to_json();
        assert_eq!((&json["passed"], &json["not_gated"]), (&1.into(), &1.into()));
        assert_eq!(json["rows"][0]["ratio"], 1.05);
        assert_eq!(json["rows"][0]["verdict"], "pass");
        assert_eq!(json["rows"][1]["ratio"], Value::Null);
    }
}
