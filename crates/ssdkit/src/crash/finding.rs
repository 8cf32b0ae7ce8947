//! What was found, in words and for programs.

use std::fmt::Write;

use crash::{Event, Variant};
use drive::error::Error;
use drive::say::harmless;
use files::Operation;
use measure::units;
use serde_json::{Value, json};

use super::doubt::Said;
use super::hunt::{Finding, Found};
use super::lives::Life;
use super::names::Names;
use super::{CrashArgs, difference};

/// All that is told.
pub struct Told<'a> {
    pub args: &'a CrashArgs,
    /// In which it was found, or the first.
    pub life: &'a Life,
    pub found: &'a Found,
}

impl Told<'_> {
    /// For people.
    pub fn to_text(&self) -> Result<String, Error> {
        let Told { args, life, found } = self;
        let run = &life.run;
        let syncs =
            self.life.explorer.events().iter().filter(|event| is_sync(event)).count() as u64;
        let operations = self.operations();
        let mut text = format!(
            "{}: {} on files, of them {}; {}\n",
            harmless(&program(args)),
            units::counted(operations, "operation"),
            units::counted(syncs, "sync"),
            match run.is_over {
                true => "ended by --run-timeout".to_string(),
                false => format!("exit code {}", run.code),
            }
        );
        if let Some(said) = Said::of(self.life.explorer.events()).text() {
            let _ = writeln!(text, "  {said} on standard output");
        }
        for call in &run.refused {
            let _ = writeln!(text, "  {call} was refused, so that nothing goes past");
        }
        let _ = writeln!(
            text,
            "{} after cuts, {} of them different, checked; {} broke the check",
            units::exactly(found.states, "state"),
            found.checked,
            found.broken.len()
        );
        if found.is_stopped {
            text += "stopped before its end\n";
        }
        for warning in &found.warnings {
            let _ = writeln!(text, "note: {warning}");
        }
        for finding in found.broken.iter().take(args.findings) {
            text += &self.finding(finding)?;
        }
        let left = found.broken.len().saturating_sub(args.findings);
        if left > 0 {
            let _ = writeln!(text, "\nand {left} more");
        }
        text += &found.missing.to_text();
        match (found.first(), &args.keep) {
            (Some((cut, variant)), None) => {
                let at = self.life.name(cut, variant);
                let _ = writeln!(text, "\nIts files: the same command with --at {at} --keep DIR");
            }
            (_, Some(keep)) if keep.join("files").exists() => {
                let keep = keep.display();
                let _ = writeln!(text, "\nIts files: cd {keep}/files; SSDKIT_SAID is ../said");
            }
            _ => {}
        }
        Ok(text)
    }

    /// The events beside a cut that changed something, or told somebody, in words.
    fn beside(&self, cut: usize) -> (Option<String>, Option<String>) {
        let tells = |event: &&Event| {
            !matches!(event, Event::Mark(_) | Event::Operation(Operation::Forget { .. }))
        };
        let events = self.life.explorer.events();
        let told = |n: usize| Names::before(&self.life.run, events, n).describe(&events[n]);
        let before = (0..cut).rev().find(|&n| tells(&&events[n]));
        let next = (cut..events.len()).find(|&n| tells(&&events[n]));
        (before.map(told), next.map(told))
    }

    fn finding(&self, finding: &Finding) -> Result<String, Error> {
        let Finding { cut, variant, broken } = finding;
        let mut text = format!("\n{}  ", self.life.name(*cut, *variant));
        if !self.life.before.is_empty() {
            let _ = write!(text, "in life {}, ", self.life.before.len() + 1);
        }
        text += "power went ";
        let (before, next) = self.beside(*cut);
        match before {
            Some(before) => _ = write!(text, "after {before}"),
            None => text += "before all",
        }
        if let Some(next) = next {
            let _ = write!(text, ", before {next}");
        }
        let _ = write!(text, "\n  {}", Variant::of(*variant));
        let differs = difference::of(&self.life.explorer, *cut, *variant)?.lines;
        for line in differs.iter().take(FILES) {
            let _ = write!(text, "\n  - {line}");
        }
        if differs.len() > FILES {
            let _ = write!(
                text,
                "\n  - and {} more",
                units::counted((differs.len() - FILES) as u64, "file")
            );
        }
        let _ = write!(text, "\n  {}", broken.how);
        for line in broken.said.lines() {
            let _ = write!(text, "\n  | {}", harmless(line));
        }
        Ok(text + "\n")
    }

    fn operations(&self) -> u64 {
        self.life
            .explorer
            .events()
            .iter()
            .filter(|event| matches!(event, Event::Operation(_)))
            .count() as u64
    }

    /// For programs.
    pub fn to_json(&self) -> Result<Value, Error> {
        let Told { args, life, found } = self;
        let run = &life.run;
        let said = Said::of(self.life.explorer.events());
        let mut findings = Vec::new();
        for finding in found.broken.iter().take(args.findings) {
            let (after, before) = self.beside(finding.cut);
            findings.push(json!({
                "state": self.life.name(finding.cut, finding.variant),
                "after": after,
                "before": before,
                "survived": Variant::of(finding.variant).to_string(),
                "differs": difference::of(&self.life.explorer, finding.cut, finding.variant)?.lines,
                "how": finding.broken.how.to_string(),
                "said": finding.broken.said,
            }));
        }
        Ok(json!({
            "program": args.program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "exit_code": (!run.is_over).then_some(run.code),
            "events": self.life.explorer.events().len(),
            "operations": self.operations(),
            "said_bytes": said.bytes,
            "said_writes": said.writes,
            "refused_calls": run.refused,
            "seed": args.seed,
            "life": life.before.len() + 1,
            "states": found.states,
            "checked": found.checked,
            "broken": found.broken.len(),
            "stopped": found.is_stopped,
            "warnings": found.warnings,
            "findings": findings,
            "missing": found.missing.to_json(),
        }))
    }
}

/// Lines of a finding that tell of files.
const FILES: usize = 6;

/// What the program is called, without its folder.
fn program(args: &CrashArgs) -> String {
    let path = std::path::Path::new(&args.program[0]);
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_sync(event: &Event) -> bool {
    matches!(event, Event::Operation(Operation::Sync { .. } | Operation::SyncAll))
}
