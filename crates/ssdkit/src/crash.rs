//! `ssdkit crash`: a power-fault tester for anything that writes files.
//!
//! Runs a program once under the supervisor, which tells what it does to the files of a folder;
//! then cuts the power at many places of that, makes states of the files that each cut may leave,
//! and starts the check on each. Guarantees: the same seed finds the same; a state that was found
//! can be had again by its name. May fail: the program or the check cannot be started, the system
//! cannot supervise.

mod check;
mod finding;
mod hunt;

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use crash::{CrashError, Event, Explorer, Options, Tree};
use drive::error::Error;
use files::Operation;
use interpose::{Program, Recorder, RunError};
use measure::options::{duration, whole};
use measure::units;
use tempfile::TempDir;

use finding::Told;
use hunt::Hunt;

/// What `ssdkit crash --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit crash --check 'test ! -e new || grep -q end new' -- sh -c 'echo start >new; echo end >>new'
  ssdkit crash --setup 'sqlite3 t.db \"create table t(a)\"' \\
    --check 'test \"$(sqlite3 t.db \"pragma integrity_check\")\" = ok' -- \\
    sqlite3 t.db 'insert into t values (1)'
  ssdkit crash --cuts all --states 64 --check ./check.sh -- ./workload.sh
  ssdkit crash --at 17:3 --keep ./lost --check ./check.sh -- ./workload.sh";

/// `ssdkit crash`.
#[derive(Args, Clone, Debug)]
pub struct CrashArgs {
    /// A shell's command that says by exit code 0 that the files are as they may be. It runs in a
    /// folder with what a cut left; SSDKIT_SAID names a file with all that the program had printed
    /// by then.
    #[arg(long, value_name = "COMMAND")]
    pub check: String,
    /// A shell's command that runs before, in the folder; what it leaves is durable.
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,
    /// The folder that the program works in, and starts in [default: a new one that goes in the
    /// end]. What the program does to it stays.
    #[arg(long, value_name = "DIR")]
    pub map: Option<PathBuf>,
    /// States that are looked at; those that are the same as one before count, and are not
    /// checked again.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = measure::options::count)]
    pub states: u64,
    /// What random states come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// The file system's journal: what comes to the disk before what.
    #[arg(long, value_enum, default_value = "ordered")]
    pub journal: JournalArg,
    /// What makes the name of a new file durable: fsync of the file, or of its folder only.
    #[arg(long, value_enum, default_value = "file")]
    pub names: NamesArg,
    /// What of a write is all there or not at all, bytes.
    #[arg(long, value_enum, default_value = "4k")]
    pub tear: TearArg,
    /// How long a check may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: u64,
    /// Checks at once [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=256))]
    pub jobs: Option<usize>,
    /// Look at one state only, by its name.
    #[arg(long, value_name = "CUT:VARIANT", value_parser = name)]
    pub at: Option<(usize, u64)>,
    /// Leave the files of the first state that breaks the check, or of --at, in a new folder.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// States that are told of at most.
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole::<usize>(1..=10_000))]
    pub findings: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The program and what it is given. What it prints comes on standard error.
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

/// `--journal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JournalArg {
    /// Data of new blocks before what makes them reachable (ext4's default).
    Ordered,
    /// Only metadata have an order.
    Writeback,
    /// No journal: the next start drops what does not fit together.
    None,
}

/// `--names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NamesArg {
    /// fsync of the file makes its name durable, as with ext4.
    File,
    /// fsync of the folder does: all that POSIX promises.
    Folder,
}

/// `--tear`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TearArg {
    /// Blocks of 4096 bytes.
    #[value(name = "4k")]
    Block,
    /// Sectors of 512 bytes.
    #[value(name = "512")]
    Sector,
}

/// A state's name.
fn name(text: &str) -> Result<(usize, u64), String> {
    let parsed = text
        .split_once(':')
        .and_then(|(cut, variant)| Some((cut.parse().ok()?, variant.parse().ok()?)));
    parsed.ok_or_else(|| "a state is named CUT:VARIANT, as in 17:3".to_owned())
}

/// Runs, cuts and checks, and tells `out`.
pub fn run(args: &CrashArgs, out: &mut dyn Write) -> Result<(), Error> {
    if let Some(keep) = &args.keep
        && keep.symlink_metadata().is_ok()
    {
        return Err(Error::Usage(format!("--keep {}: it is there already", keep.display())));
    }
    let own = match &args.map {
        Some(_) => None,
        None => Some(work_folder("program")?),
    };
    let folder = own.as_ref().map(|own| own.path()).or(args.map.as_deref());
    let folder = folder.unwrap_or(Path::new("."));
    let run = record(args, folder)?;
    let explorer = explorer(args, run.initial.clone(), run.events.clone())?;
    let hunt = Hunt::new(args, &explorer)?;
    hunt.holds_without_a_cut(args)?;
    let found = match args.at {
        Some(state) => hunt.one(state)?,
        None => hunt.all(args)?,
    };
    if let (Some(keep), Some((cut, variant))) = (&args.keep, args.at.or(found.first())) {
        let mut state = explorer.state(cut, variant).map_err(failed)?;
        Tree::new(keep).and_then(|tree| tree.extract(&mut state.files)).map_err(failed)?;
    }
    let told = Told { args, run: &run, explorer: &explorer, found: &found };
    match args.json {
        true => writeln!(out, "{:#}", told.to_json())?,
        false => write!(out, "{}", told.to_text())?,
    }
    out.flush()?;
    match found.broken.len() {
        0 => Ok(()),
        n => Err(Error::Failed(format!(
            "{} of {} broke the check",
            n,
            units::counted(found.checked, "state")
        ))),
    }
}

/// What a program did.
struct Recorded {
    initial: Vec<Operation>,
    events: Vec<Event>,
    /// How it ended.
    code: i32,
    /// Calls that were refused.
    refused: Vec<&'static str>,
}

/// Runs the setup and the program.
fn record(args: &CrashArgs, folder: &Path) -> Result<Recorded, Error> {
    let system = |doing: &str, e: std::io::Error| Error::system(doing, &e);
    if let Some(setup) = &args.setup {
        let status =
            Command::new("sh").args(["-c", setup]).current_dir(folder).stdout(errors()?).status();
        let status = status.map_err(|e| system("run --setup", e))?;
        if !status.success() {
            return Err(Error::Failed(format!("--setup failed: {status}")));
        }
    }
    let folders = [folder.to_owned()];
    let mut tree = interpose::Tree::of(folder, &mut |_, _| None).map_err(supervision)?;
    let mut initial = Vec::new();
    tree.contents(&folders, &mut |operation| initial.push(operation)).map_err(supervision)?;
    let program = Program {
        command: args.program.clone(),
        environment: vec![("SSDKIT_FOLDER".into(), folder.into())],
        folder: Some(folder.to_owned()),
        stdio: [None, Some(errors()?), None],
    };
    let mut recorder = Recorder::with_outputs();
    let ended = interpose::run(&program, &mut tree, &mut recorder).map_err(supervision)?;
    let event = |event| match event {
        interpose::Event::Operation(operation) => Event::Operation(operation),
        interpose::Event::Output { stream, data } => Event::Output { stream, data },
        interpose::Event::Exit { code, .. } => Event::Mark(format!("a process ends with {code}")),
    };
    let events = recorder.events.into_iter().map(event).collect();
    Ok(Recorded { initial, events, code: ended.code, refused: recorder.refused })
}

/// Standard error, for what is not the report.
fn errors() -> Result<OwnedFd, Error> {
    let own = stderr().as_fd().try_clone_to_owned();
    own.map_err(|e| Error::system("use standard error", &e))
}

fn explorer(
    args: &CrashArgs,
    initial: Vec<Operation>,
    events: Vec<Event>,
) -> Result<Explorer, Error> {
    let files = files::Options {
        journal: match args.journal {
            JournalArg::Ordered => files::Journal::Ordered,
            JournalArg::Writeback => files::Journal::Writeback,
            JournalArg::None => files::Journal::None,
        },
        names: match args.names {
            NamesArg::File => files::Names::WithFile,
            NamesArg::Folder => files::Names::OnlyWithFolder,
        },
        ..files::Options::default()
    };
    let tear = args.tear == TearArg::Sector;
    let options = Options { files, tear, seed: args.seed, ..Options::default() };
    Explorer::new(&initial, events, options).map_err(failed)
}

/// A folder that goes in the end: in memory, where the system has such.
fn work_folder(what: &str) -> Result<TempDir, Error> {
    let prefix = format!("ssdkit-crash-{what}-");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(&prefix);
    let folder = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
    folder.map_err(|e| Error::system("make a folder", &e))
}

fn failed(e: CrashError) -> Error {
    Error::Failed(e.to_string())
}

fn supervision(e: RunError) -> Error {
    match e {
        RunError::NoProgram { .. } | RunError::Folder { .. } | RunError::Overlap(_) => {
            Error::Usage(e.to_string())
        }
        e => Error::Failed(e.to_string()),
    }
}
