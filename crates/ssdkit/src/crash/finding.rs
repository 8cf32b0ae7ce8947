//! What was found, in words and for programs.

use std::collections::HashMap;
use std::fmt::Write;

use crash::{Event, Variant};
use drive::error::Error;
use drive::say::harmless;
use files::{Inode, Kind, Operation};
use measure::units;
use serde_json::{Value, json};

use super::hunt::{Finding, Found};
use super::lives::{Life, Recorded};
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
            "{}: {} on files, of them {}; exit code {}\n",
            harmless(&program(args)),
            units::counted(operations, "operation"),
            units::counted(syncs, "sync"),
            run.code
        );
        for call in &run.refused {
            let _ = writeln!(text, "  {call} was refused, so that nothing goes past");
        }
        let _ = writeln!(
            text,
            "{} after cuts, {} of them different, checked; {} broke the check",
            units::counted(found.states, "state"),
            found.checked,
            found.broken.len()
        );
        if found.is_stopped {
            text += "stopped before its end\n";
        }
        let names = Names::of(run, self.life.explorer.events());
        for finding in found.broken.iter().take(args.findings) {
            text += &self.finding(finding, &names)?;
        }
        let left = found.broken.len().saturating_sub(args.findings);
        if left > 0 {
            let _ = writeln!(text, "\nand {left} more");
        }
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

    /// The events beside a cut that changed something, or told somebody.
    fn beside(&self, cut: usize) -> (Option<&Event>, Option<&Event>) {
        let tells = |event: &&Event| {
            !matches!(event, Event::Mark(_) | Event::Operation(Operation::Forget { .. }))
        };
        let events = self.life.explorer.events();
        (events[..cut].iter().rev().find(tells), events[cut..].iter().find(tells))
    }

    fn finding(&self, finding: &Finding, names: &Names) -> Result<String, Error> {
        let Finding { cut, variant, broken } = finding;
        let mut text = format!("\n{}  ", self.life.name(*cut, *variant));
        if !self.life.before.is_empty() {
            let _ = write!(text, "in life {}, ", self.life.before.len() + 1);
        }
        text += "power went ";
        let (before, next) = self.beside(*cut);
        match before {
            Some(before) => _ = write!(text, "after {}", names.describe(before)),
            None => text += "before all",
        }
        if let Some(next) = next {
            let _ = write!(text, ", before {}", names.describe(next));
        }
        let _ = write!(text, "\n  {}", Variant::of(*variant));
        let differs = difference::of(&self.life.explorer, finding.cut, finding.variant)?;
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
        let names = Names::of(run, self.life.explorer.events());
        let shown = |event: Option<&Event>| event.map(|event| names.describe(event));
        let mut findings = Vec::new();
        for finding in found.broken.iter().take(args.findings) {
            let (after, before) = self.beside(finding.cut);
            findings.push(json!({
                "state": self.life.name(finding.cut, finding.variant),
                "after": shown(after),
                "before": shown(before),
                "survived": Variant::of(finding.variant).to_string(),
                "differs": difference::of(&self.life.explorer, finding.cut, finding.variant)?,
                "how": finding.broken.how.to_string(),
                "said": finding.broken.said,
            }));
        }
        Ok(json!({
            "program": args.program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "exit_code": run.code,
            "events": self.life.explorer.events().len(),
            "operations": self.operations(),
            "refused_calls": run.refused,
            "seed": args.seed,
            "life": life.before.len() + 1,
            "states": found.states,
            "checked": found.checked,
            "broken": found.broken.len(),
            "stopped": found.is_stopped,
            "findings": findings,
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

/// What files are called, or were last.
struct Names(HashMap<Inode, String>);

impl Names {
    fn of(run: &Recorded, events: &[Event]) -> Names {
        let mut names = Names(HashMap::from([(Inode::ROOT, ".".to_owned())]));
        let done = events.iter().filter_map(|event| match event {
            Event::Operation(operation) => Some(operation),
            _ => None,
        });
        for operation in run.initial.iter().chain(done) {
            if let Operation::Create { parent, name, inode, .. }
            | Operation::Link { parent, name, inode } = operation
            {
                let path = names.path(*parent, name);
                names.0.insert(*inode, path);
            }
        }
        names
    }

    fn path(&self, parent: Inode, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        match self.0.get(&parent).filter(|_| parent != Inode::ROOT) {
            Some(parent) => format!("{parent}/{name}"),
            None => name.into_owned(),
        }
    }

    fn get(&self, inode: &Inode) -> &str {
        self.0.get(inode).map_or("a file", String::as_str)
    }

    /// An event in words.
    fn describe(&self, event: &Event) -> String {
        let operation = match event {
            Event::Operation(operation) => operation,
            Event::Output { stream, data } => {
                let text = String::from_utf8_lossy(&data[..data.len().min(40)]);
                let to = match stream {
                    1 => "standard output".to_owned(),
                    2 => "standard error".to_owned(),
                    n => format!("stream {n}"),
                };
                return format!("{text:?} went to {to}");
            }
            Event::Mark(text) => return text.clone(),
        };
        harmless(&match operation {
            Operation::Create { parent, name, kind, .. } => {
                let what = match kind {
                    Kind::File => "file",
                    Kind::Folder => "folder",
                    Kind::Link(_) => "link",
                };
                format!("creating {what} {}", self.path(*parent, name))
            }
            Operation::Link { parent, name, .. } => format!("linking {}", self.path(*parent, name)),
            Operation::Remove { parent, name } => format!("removing {}", self.path(*parent, name)),
            Operation::Forget { .. } => "closing a file without a name".to_owned(),
            Operation::Rename { from, to, .. } => {
                format!("renaming {} to {}", self.path(from.0, &from.1), self.path(to.0, &to.1))
            }
            Operation::Write { inode, offset, data } => {
                format!("writing {} B at {offset} of {}", data.len(), self.get(inode))
            }
            Operation::Truncate { inode, size } => {
                format!("cutting {} to {size} B", self.get(inode))
            }
            Operation::Allocate { inode, .. } => format!("allocating room of {}", self.get(inode)),
            Operation::Punch { inode, .. } => format!("punching a hole in {}", self.get(inode)),
            Operation::Mode { inode, .. } => format!("changing the mode of {}", self.get(inode)),
            Operation::Sync { inode, data: true } => format!("fdatasync of {}", self.get(inode)),
            Operation::Sync { inode, data: false } => format!("fsync of {}", self.get(inode)),
            Operation::SyncAll => "sync".to_owned(),
        })
    }
}
