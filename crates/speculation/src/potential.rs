//! `ssdkit speculate potential`: how many instructions a program runs after an I/O until it must
//! wait for it, as in table 2 of the paper.
//!
//! The program runs twice: by itself, which says how often a second it calls, and under the tool
//! that counts, which says the rest. Guarantees: instructions are exact, and all calls are
//! counted. May fail: the tool cannot be built, the program cannot be started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use clap::Args;
use drive::error::Error;
use measure::units;
use serde_json::{Value, json};

use crate::counts::{Cell, Counts, Linker, Program, Reason, Reasons, all};
use crate::names::name;
use crate::tool::{Tool, ToolError};

/// What `ssdkit speculate potential --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit speculate potential -- dd if=/bin/ls of=/tmp/copy bs=4k
  ssdkit speculate potential -- sh -c 'gzip -c /bin/bash > /tmp/bash.gz'
  ssdkit speculate potential --before 'rm -f /tmp/t.db' -- sqlite3 /tmp/t.db 'create table t(a)'
  ssdkit speculate potential --once --json -- tar cf /tmp/etc.tar /etc/hosts";

/// Of all that a call was stopped by, reasons below this share are left out, as in the paper.
const SHARE: f64 = 0.05;

/// `ssdkit speculate potential`.
#[derive(Args, Clone, Debug)]
pub struct PotentialArgs {
    /// A shell's command that runs before each of the two runs, to have what the program finds
    /// there the same.
    #[arg(long, value_name = "COMMAND")]
    pub before: Option<String>,
    /// Run the program only once, and do not tell how often a second it calls.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The program and what it is given. What it prints comes on standard error.
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    pub program: Vec<OsString>,
}

/// A program that is to be measured.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The program and what it is given.
    pub program: &'a [OsString],
    /// The folder that it starts in; this process's without.
    pub folder: Option<&'a Path>,
    /// A shell's command that runs before.
    pub before: Option<&'a str>,
}

/// What was found out of a program.
pub struct Potential {
    /// What was counted.
    pub counts: Counts,
    /// How it ended when it was counted.
    pub status: ExitStatus,
    /// How long that took, s.
    pub seconds: f64,
}

/// Runs the program, and tells `out`.
pub fn run(args: &PotentialArgs, out: &mut dyn Write) -> Result<(), Error> {
    let tool = tool()?;
    let run = Run { program: &args.program, folder: None, before: args.before.as_deref() };
    let mut alone = Command::new(&args.program[0]);
    alone.args(&args.program[1..]);
    let alone = if args.once { None } else { Some(run.timed(&mut alone)?) };
    let potential = run.counted(&tool)?;
    let failed = alone.filter(|alone| !alone.0.success()).map(|alone| alone.0);
    let failed = failed.or((!potential.status.success()).then_some(potential.status));
    let report = Report { potential, alone: alone.map(|alone| alone.1) };
    match args.json {
        true => writeln!(out, "{:#}", report.to_json(args))?,
        false => write!(out, "{}", report.to_text(args))?,
    }
    out.flush()?;
    match failed {
        Some(status) => Err(Error::Failed(format!(
            "the program {}: what it did until then was counted",
            ended(status)
        ))),
        None => Ok(()),
    }
}

/// What counts.
pub fn tool() -> Result<Tool, Error> {
    Tool::build().map_err(|e| match e {
        ToolError::System(doing, e) => Error::system(doing, &e),
        e => Error::Failed(e.to_string()),
    })
}

impl Run<'_> {
    /// Runs it and counts. Fails where nothing was counted.
    pub fn counted(&self, tool: &Tool) -> Result<Potential, Error> {
        let to = tempfile::NamedTempFile::new().map_err(|e| Error::system("make a file", &e))?;
        let (status, seconds) = self.timed(&mut tool.command(to.path(), self.program))?;
        let text = fs::read_to_string(to.path());
        let text = text.map_err(|e| Error::system("read what was counted", &e))?;
        let counts = Counts::parse(&text).map_err(|e| Error::Failed(e.to_string()))?;
        if counts.reports == 0 {
            let program = self.program[0].to_string_lossy();
            let text = format!("nothing was counted of {program}: it {}", ended(status));
            return Err(Error::Failed(text));
        }
        Ok(Potential { counts, status, seconds })
    }

    /// Runs a command with what comes before it. How it ended, and how long it took, s.
    fn timed(&self, command: &mut Command) -> Result<(ExitStatus, f64), Error> {
        let folder = self.folder.unwrap_or(Path::new("."));
        if let Some(before) = self.before {
            let mut shell = Command::new("sh");
            shell.args(["-c", before]).current_dir(folder).stdout(to_errors()?);
            let status = shell.status().map_err(|e| Error::system("run --before", &e))?;
            if !status.success() {
                return Err(Error::Failed(format!("--before {}", ended(status))));
            }
        }
        let began = Instant::now();
        let status = command.current_dir(folder).stdout(to_errors()?).status().map_err(|e| {
            Error::system(&format!("run {}", self.program[0].to_string_lossy()), &e)
        })?;
        Ok((status, began.elapsed().as_secs_f64()))
    }
}

/// What is told of a program.
struct Report {
    potential: Potential,
    /// How long it took by itself, s.
    alone: Option<f64>,
}

/// Standard error, for what is not the report.
fn to_errors() -> Result<Stdio, Error> {
    use std::os::fd::AsFd;
    let own = io::stderr().as_fd().try_clone_to_owned();
    Ok(File::from(own.map_err(|e| Error::system("use standard error", &e))?).into())
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    }
}

/// Stretches below which nothing is said of a program's kind.
const FEW: u64 = 12;

/// The paper's three kinds of programs, by instructions from one write to what must wait for it,
/// or of a program that does not write, from a read.
pub fn class(program: &Program) -> &'static str {
    let cell = deciding(program);
    match cell.count {
        0 => "no I/O on files",
        few if few < FEW => "little I/O on files",
        _ => kind(&cell),
    }
}

/// The stretches that say of which kind a program is.
pub fn deciding(program: &Program) -> Cell {
    let writes = after(program, false);
    if writes.count > 0 { writes } else { after(program, true) }
}

/// The kind of a program with these stretches, however few they are.
pub fn kind(cell: &Cell) -> &'static str {
    match cell.mean() {
        mean if mean < 3_000.0 => "pure I/O",
        mean if mean < 100_000.0 => "I/O intensive",
        _ => "compute intensive",
    }
}

/// All stretches of a program after its reads, or after what it writes and waits for.
pub fn after(program: &Program, reads: bool) -> Cell {
    let mut sum = Cell::default();
    let calls = program.calls.iter().filter(|(call, _)| is_read(**call) == reads);
    calls.for_each(|(_, reasons)| sum.add(&all(reasons)));
    sum
}

fn is_read(call: i64) -> bool {
    [libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_preadv2]
        .contains(&call)
}

/// What it stopped at, the most frequent first, and of how many that is the share.
fn stops(reasons: &Reasons) -> Vec<(String, f64)> {
    let count = all(reasons).count.max(1) as f64;
    let mut stops: Vec<_> = reasons
        .iter()
        .map(|(reason, cell)| {
            let name = match reason {
                Reason::Buffer => "buffer".to_owned(),
                Reason::Shared => "shared memory".to_owned(),
                Reason::Call(call) => name(*call),
            };
            (name, cell.count as f64 / count)
        })
        .collect();
    stops.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    stops
}

impl Report {
    /// Programs with I/O, the one with the most instructions first.
    fn programs(&self) -> Vec<(&String, &Program)> {
        let mut programs: Vec<_> = self.potential.counts.programs.iter().collect();
        programs.retain(|(_, program)| !program.calls.is_empty());
        programs.sort_by_key(|(_, program)| std::cmp::Reverse(program.instructions));
        programs
    }

    fn rate(&self, calls: u64) -> Option<f64> {
        self.alone.map(|seconds| calls as f64 / seconds)
    }

    fn to_text(&self, args: &PotentialArgs) -> String {
        let words: Vec<_> = args.program.iter().map(|word| word.to_string_lossy()).collect();
        let mut text =
            format!("Instructions after an I/O until something must wait for it: {}\n", {
                drive::say::harmless(&words.join(" "))
            });
        for (program, of) in self.programs() {
            let program = drive::say::harmless(program);
            let instructions = units::count(of.instructions as f64);
            text += &format!("\n{program}: {}, {instructions} instructions\n", class(of));
            text += &row(
                "after",
                "calls",
                "a second",
                ["mean", "deviation", "median", "longest"],
                "stops at",
            );
            for (call, reasons) in &of.calls {
                let cell = all(reasons);
                let rate = self.rate(cell.count).map_or("-".into(), units::count);
                let figures = [cell.mean(), cell.deviation(), cell.median(), cell.longest as f64];
                let figures = figures.map(units::count);
                let stops: Vec<String> = stops(reasons)
                    .into_iter()
                    .filter(|stop| stop.1 >= SHARE)
                    .map(|(name, share)| format!("{name} {:.0} %", 100.0 * share))
                    .collect();
                let count = units::count(cell.count as f64);
                let figures = figures.each_ref().map(String::as_str);
                text += &row(&name(*call), &count, &rate, figures, &stops.join(", "));
            }
            text += &linker(&of.linker);
        }
        if self.programs().is_empty() {
            text += "\nNo I/O on files.\n";
        }
        let counted = units::time_ns(self.potential.seconds * 1e9);
        text += &match self.alone {
            Some(seconds) => {
                let alone = units::time_ns(seconds * 1e9);
                format!("\nIt took {alone} by itself, and {counted} counted.\n")
            }
            None => format!("\nIt took {counted} counted.\n"),
        };
        if self.potential.counts.left_out > 0 {
            let left_out = units::count(self.potential.counts.left_out as f64);
            text += &format!("Left out for want of room: {left_out} things to look at.\n");
        }
        text
    }

    fn to_json(&self, args: &PotentialArgs) -> Value {
        let words: Vec<_> = args.program.iter().map(|word| word.to_string_lossy()).collect();
        let calls_of = |calls: &BTreeMap<i64, Reasons>| {
            let calls = calls.iter().map(|(call, reasons)| {
                let cell = all(reasons);
                let stops = stops(reasons).into_iter();
                json!({
                    "call": name(*call),
                    "count": cell.count,
                    "per_second": self.rate(cell.count),
                    "instructions": {
                        "mean": cell.mean(),
                        "deviation": cell.deviation(),
                        "median": cell.median(),
                        "longest": cell.longest,
                    },
                    "stops": stops.map(|(at, share)| json!({ "at": at, "share": share }))
                        .collect::<Vec<_>>(),
                })
            });
            calls.collect::<Vec<_>>()
        };
        let programs = self.programs().into_iter().map(|(program, of)| {
            json!({
                "program": program,
                "class": class(of),
                "instructions": of.instructions,
                "calls": calls_of(&of.calls),
                "linker": {
                    "instructions": of.linker.instructions,
                    "calls": calls_of(&of.linker.calls),
                },
            })
        });
        json!({
            "command": words,
            "programs": programs.collect::<Vec<_>>(),
            "seconds": self.alone,
            "counted_seconds": self.potential.seconds,
            "left_out": self.potential.counts.left_out,
        })
    }
}

/// What the dynamic linker did, if there was one, as a line.
fn linker(linker: &Linker) -> String {
    if linker.instructions == 0 {
        return String::new();
    }
    let instructions = units::count(linker.instructions as f64);
    let calls = linker.calls.iter().map(|(call, reasons)| {
        format!(", {} {}", units::count(all(reasons).count as f64), name(*call))
    });
    let calls: String = calls.collect();
    format!("  before, the dynamic linker: {instructions} instructions{calls}\n")
}

/// A line of the table.
fn row(after: &str, calls: &str, rate: &str, figures: [&str; 4], stops: &str) -> String {
    let [mean, deviation, median, longest] = figures;
    format!(
        "  {after:<16} {calls:>7} {rate:>9} {mean:>8} {deviation:>9} {median:>8} {longest:>8}  {stops}\n"
    )
}
