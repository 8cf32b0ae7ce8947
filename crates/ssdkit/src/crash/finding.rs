//! What was found, in words and for programs.

use std::collections::HashMap;
use std::fmt::Write;

use crash::{Event, Explorer, Variant};
use drive::say::harmless;
use files::{Inode, Kind, Operation};
use measure::units;
use serde_json::{Value, json};

use super::hunt::{Finding, Found};
use super::{CrashArgs, Recorded};

/// All that is told.
pub struct Told<'a> {
    pub args: &'a CrashArgs,
    pub run: &'a Recorded,
    pub explorer: &'a Explorer,
    pub found: &'a Found,
}

impl Told<'_> {
    /// For people.
    pub fn to_text(&self) -> String {
        let Told { args, run, found, .. } = self;
        let syncs = run.events.iter().filter(|event| is_sync(event)).count() as u64;
        let operations = self.operations();
        let mut text = format!(
            "{} did {} to its files, of them {}, and ended with {}\n",
            harmless(&program(args)),
            units::counted(operations, "thing"),
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
        let names = Names::of(run);
        for finding in found.broken.iter().take(args.findings) {
            text += &self.finding(finding, &names);
        }
        let left = found.broken.len().saturating_sub(args.findings);
        if left > 0 {
            let _ = writeln!(text, "\nand {left} more");
        }
        if let (Some((cut, variant)), None) = (found.first(), args.at) {
            let _ = writeln!(
                text,
                "\nThe files of the first: the same command with --at {cut}:{variant} --keep DIR"
            );
        }
        text
    }

    fn finding(&self, finding: &Finding, names: &Names) -> String {
        let Finding { cut, variant, broken } = finding;
        let event = |n: Option<usize>| n.and_then(|n| self.explorer.events().get(n));
        let mut text = format!("\n{cut}:{variant}  power went ");
        if let Some(before) = event(cut.checked_sub(1)) {
            let _ = write!(text, "after {}", names.describe(before));
        } else {
            text += "before the first";
        }
        if let Some(next) = event(Some(*cut)) {
            let _ = write!(text, ", before {}", names.describe(next));
        }
        let _ = write!(
            text,
            "\n  of what was not synced there is {}\n  {}",
            survived(*variant),
            broken.how
        );
        for line in broken.said.lines() {
            let _ = write!(text, "\n  | {}", harmless(line));
        }
        text + "\n"
    }

    fn operations(&self) -> u64 {
        self.run.events.iter().filter(|event| matches!(event, Event::Operation(_))).count() as u64
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let Told { args, run, found, .. } = self;
        let names = Names::of(run);
        let event = |n: Option<usize>| {
            let event = n.and_then(|n| self.explorer.events().get(n));
            event.map(|event| names.describe(event))
        };
        let broken = found.broken.iter().take(args.findings).map(|finding| {
            json!({
                "state": format!("{}:{}", finding.cut, finding.variant),
                "after": event(finding.cut.checked_sub(1)),
                "before": event(Some(finding.cut)),
                "survived": survived(finding.variant),
                "how": finding.broken.how.to_string(),
                "said": finding.broken.said,
            })
        });
        json!({
            "program": args.program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "exit_code": run.code,
            "events": run.events.len(),
            "operations": self.operations(),
            "refused_calls": run.refused,
            "seed": args.seed,
            "states": found.states,
            "checked": found.checked,
            "broken": found.broken.len(),
            "findings": broken.collect::<Vec<_>>(),
        })
    }
}

/// What the program is called, without its folder.
fn program(args: &CrashArgs) -> String {
    let path = std::path::Path::new(&args.program[0]);
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_sync(event: &Event) -> bool {
    matches!(event, Event::Operation(Operation::Sync { .. } | Operation::SyncAll))
}

/// What a variant leaves.
fn survived(variant: u64) -> &'static str {
    match Variant::of(variant) {
        Variant::Nothing => "nothing",
        Variant::All => "all",
        Variant::NoData => "all but the data: names and sizes",
        Variant::OnlyData => "only the data that need no metadata",
        Variant::OneFile(_) => "all metadata, and the data of one file",
        Variant::AllButOne(_) => "all but the data of one file",
        Variant::PartOfLast(_) => "all but a part of the last write",
        Variant::Random(_) => {
            "what had been written back by chance, and some of what was on its way"
        }
    }
}

/// What files are called, or were last.
struct Names(HashMap<Inode, String>);

impl Names {
    fn of(run: &Recorded) -> Names {
        let mut names = Names(HashMap::from([(Inode::ROOT, ".".to_owned())]));
        let done = run.events.iter().filter_map(|event| match event {
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
                return format!("it printed {:?} to {stream}", text.trim_end());
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
