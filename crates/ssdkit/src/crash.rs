//! `ssdkit crash`: a power-fault tester for anything that writes files.
//!
//! Runs a program once under the supervisor, which tells what it does to the files of a folder;
//! then cuts the power at many places of that, makes states of the files that each cut may leave,
//! and starts the check on each. Guarantees: the same seed finds the same; a state that was found
//! can be had again by its name. May fail: the program or the check cannot be started, the system
//! cannot supervise.

mod check;
mod difference;
mod finding;
mod hunt;

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use crash::{CrashError, Event, Explorer, Options, Tree};
use drive::error::Error;
use files::Operation;
use interpose::{Answer, Course, Program, Recorder, RunError, Wants, Watcher};
use measure::options::{duration, whole};
use measure::units;
use port::random::mix;
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use finding::Told;
use hunt::Hunt;

/// What `ssdkit crash --help` ends with.
pub const EXAMPLES: &str = "\
The check gets SSDKIT_FOLDER (where it is), SSDKIT_SAID (a file with all that the program had
printed by the cut) and SSDKIT_CUT (events before it). Exit codes: 0 all states held, 1 one did not
or something failed, 2 asked for something that cannot be.

Examples:
  ssdkit crash --check 'test ! -e new || grep -q end new' -- sh -c 'echo start >new; echo end >>new'
  ssdkit crash --setup 'sqlite3 t.db \"create table t(a)\"' \\
    --check 'test \"$(sqlite3 t.db \"pragma integrity_check\")\" = ok' -- \\
    sqlite3 t.db 'insert into t values (1)'
  ssdkit crash --states 100k --names folder --check \"$PWD/check.sh\" -- \"$PWD/workload.sh\"
  ssdkit crash --at 17:3 --keep lost --check \"$PWD/check.sh\" -- \"$PWD/workload.sh\"";

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
    #[arg(long, value_name = "N", default_value = "2000", value_parser = measure::options::count)]
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
    /// A file that replaces another, or was cut to nothing, is written back with the next commit,
    /// as by ext4's auto_da_alloc, which is on there by default and promised by nobody.
    #[arg(long)]
    pub replace_writes: bool,
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
    #[arg(long, value_name = "CUT:VARIANT[:RUN]", value_parser = name)]
    pub at: Option<Name>,
    /// Leave the files of the first state that breaks the check, or of --at, in DIR/files, as they
    /// are before the check, and what the program had said in DIR/said. DIR is made.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// When the program and all that it began are ended; without, they are waited for.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub run_timeout: Option<u64>,
    /// The program may end with any exit code.
    #[arg(long)]
    pub any_exit: bool,
    /// States that are told of at most.
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole::<usize>(1..=10_000))]
    pub findings: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The program and what it is given. What it prints comes on standard error.
    #[arg(value_name = "PROGRAM", required = true, last = true)]
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
    /// Data go through the journal: all is as it was after some call (ext4's data=journal).
    Data,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// After how many events power went.
    pub cut: usize,
    /// Which of the states that this may leave.
    pub variant: u64,
    /// Of which run it is: a number of all that the program did.
    pub run: Option<u16>,
}

fn name(text: &str) -> Result<Name, String> {
    let mut words = text.split(':');
    let mut next = || words.next();
    let parsed = next()
        .zip(next())
        .and_then(|(cut, variant)| Some((cut.parse().ok()?, variant.parse().ok()?)));
    let run = words.next().map(|run| u16::from_str_radix(run, 16)).transpose();
    match (parsed, run, words.next()) {
        (Some((cut, variant)), Ok(run), None) => Ok(Name { cut, variant, run }),
        _ => Err("a state is named CUT:VARIANT, or CUT:VARIANT:RUN, as in 17:3:09af".to_owned()),
    }
}

/// Runs, cuts and checks, and tells `out`.
pub fn run(args: &CrashArgs, out: &mut dyn Write) -> Result<(), Error> {
    if args.journal == JournalArg::Data && args.names == NamesArg::Folder {
        return Err(Error::Usage(
            "--journal data has one order for all changes, so that names come with the file: leave \
             --names folder out, or take another journal"
                .to_owned(),
        ));
    }
    if let Some(keep) = &args.keep {
        let wrong = |e| Error::Usage(format!("--keep {}: {e}", keep.display()));
        std::fs::create_dir(keep).map_err(wrong)?;
    }
    let ended = run_all(args, out);
    if let Some(keep) = &args.keep {
        // Where nothing was found nothing is in it.
        let _ = std::fs::remove_dir(keep);
    }
    ended
}

fn run_all(args: &CrashArgs, out: &mut dyn Write) -> Result<(), Error> {
    let own = match &args.map {
        Some(_) => None,
        None => Some(work_folder("program")?),
    };
    let folder = own.as_ref().map(|own| own.path()).or(args.map.as_deref());
    let folder = folder.unwrap_or(Path::new("."));
    // The program starts in it, so it is named in full.
    let folder = std::fs::canonicalize(folder)
        .map_err(|e| Error::Usage(format!("--map {}: {e}", folder.display())))?;
    let folder = &folder;
    let (run, events) = record(args, folder)?;
    run.is_of_use(args, folder, &events)?;
    let explorer = explorer(args, &run.initial, events)?;
    let hunt = Hunt::new(args, &explorer)?;
    hunt.holds_without_a_cut(args)?;
    let found = match args.at {
        Some(Name { run: Some(named), .. }) if named != run.number => {
            let (now, at) = (run.number, "what it did then, or run with --keep at once");
            return Err(Error::Failed(format!(
                "the state is of run {named:04x}, and this run, {now:04x}, did something else: have \
                 the program do {at}"
            )));
        }
        Some(Name { cut, variant, .. }) => hunt.one((cut, variant))?,
        None => hunt.all(args)?,
    };
    let first = args.at.map(|at| (at.cut, at.variant)).or(found.first());
    if let (Some(keep), Some((cut, variant))) = (&args.keep, first) {
        leave(keep, &explorer, cut, variant)?;
    }
    let told = Told { args, run: &run, explorer: &explorer, found: &found };
    match args.json {
        true => writeln!(out, "{:#}", told.to_json()?)?,
        false => write!(out, "{}", told.to_text()?)?,
    }
    out.flush()?;
    match found.broken.len() {
        0 if found.is_stopped => Err(Error::Failed("stopped before its end".to_owned())),
        0 => Ok(()),
        n => {
            let of = units::counted(found.checked, "state");
            Err(Error::Failed(format!("{n} of {of} broke the check")))
        }
    }
}

/// Leaves the files of a state, and what the program had said, in a new folder.
fn leave(keep: &Path, explorer: &Explorer, cut: usize, variant: u64) -> Result<(), Error> {
    let mut state = explorer.state(cut, variant).map_err(failed)?;
    let files = Tree::new(&keep.join("files")).map_err(failed)?;
    files.extract(&mut state.files).map_err(failed)?;
    let said = std::fs::write(keep.join("said"), explorer.output(cut, 1));
    said.map_err(|e| Error::system(&format!("write to {}", keep.display()), &e))
}

/// What a program did.
struct Recorded {
    initial: Vec<Operation>,
    /// How it ended.
    code: i32,
    /// Calls that were refused.
    refused: Vec<&'static str>,
    /// Of which run it is.
    number: u16,
}

impl Recorded {
    /// Whether cuts of it say anything.
    fn is_of_use(&self, args: &CrashArgs, folder: &Path, events: &[Event]) -> Result<(), Error> {
        let program = args.program[0].to_string_lossy();
        let operations = events.iter().any(|event| matches!(event, Event::Operation(_)));
        if self.code != 0 && !args.any_exit {
            return Err(Error::Failed(format!(
                "{program} ended with exit code {}: nothing is cut; where that is right, add --any-exit",
                self.code
            )));
        }
        if !operations {
            return Err(Error::Failed(format!(
                "{program} changed no file in {}, where it started: nothing is cut; have it work \
                 there, or name its folder with --map",
                folder.display()
            )));
        }
        Ok(())
    }
}

/// A number of all that was done, by which runs are told apart.
fn number(events: &[Event]) -> u16 {
    let number = events.iter().fold(0, |before, event| match event {
        // What may be long is not written out first.
        Event::Operation(Operation::Write { inode, offset, data }) => {
            xxh3_64_with_seed(data, mix(before ^ inode.0) ^ offset)
        }
        Event::Output { stream, data } => xxh3_64_with_seed(data, mix(before) ^ u64::from(*stream)),
        other => xxh3_64_with_seed(format!("{other:?}").as_bytes(), before),
    });
    number as u16
}

/// Writes down what happens, and ends the program when its time is over.
struct Watching {
    recorder: Recorder,
    until: Option<Instant>,
}

impl Watcher for Watching {
    fn wants(&self) -> Wants {
        self.recorder.wants()
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        self.recorder.after(operation)
    }

    fn output(&mut self, stream: u32, data: &[u8]) {
        self.recorder.output(stream, data);
    }

    fn refused(&mut self, call: &'static str) {
        self.recorder.refused(call);
    }

    fn exiting(&mut self, process: u32, code: i32) {
        self.recorder.exiting(process, code);
    }

    fn course(&mut self) -> Course {
        match self.until {
            Some(until) if until <= Instant::now() => Course::Stop,
            until => Course::Go(until),
        }
    }
}

/// Runs the setup and the program.
fn record(args: &CrashArgs, folder: &Path) -> Result<(Recorded, Vec<Event>), Error> {
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
    let (mut shown, output) = shown()?;
    let program = Program {
        command: args.program.clone(),
        environment: vec![("SSDKIT_FOLDER".into(), folder.into())],
        folder: Some(folder.to_owned()),
        stdio: [None, Some(output), None],
    };
    let until = args.run_timeout.map(|ns| Instant::now() + Duration::from_nanos(ns));
    let mut watching = Watching { recorder: Recorder::with_outputs(), until };
    let ended = interpose::run(&program, &mut tree, &mut watching).map_err(supervision)?;
    let recorder = watching.recorder;
    drop(program);
    let _ = shown.wait();
    let event = |event| match event {
        interpose::Event::Operation(operation) => Event::Operation(operation),
        interpose::Event::Output { stream, data } => Event::Output { stream, data },
        interpose::Event::Exit { code, .. } => Event::Mark(format!("a process ends with {code}")),
    };
    let events: Vec<Event> = recorder.events.into_iter().map(event).collect();
    let number = number(&events);
    let is_over = until.is_some_and(|until| until <= Instant::now());
    // Who is ended on purpose did not fail.
    let code = if is_over { 0 } else { ended.code };
    Ok((Recorded { initial, code, refused: recorder.refused, number }, events))
}

/// A pipe whose bytes come on standard error, by a process: of its own, so that what the program
/// prints there is told from what it prints on standard error.
fn shown() -> Result<(Child, OwnedFd), Error> {
    let system = |e| Error::system("show what the program prints", &e);
    let mut cat = Command::new("cat");
    let mut shown = cat.stdin(Stdio::piped()).stdout(errors()?).spawn().map_err(system)?;
    let pipe = shown.stdin.take().expect("it was asked for");
    Ok((shown, pipe.into()))
}

/// Standard error, for what is not the report.
fn errors() -> Result<OwnedFd, Error> {
    let own = stderr().as_fd().try_clone_to_owned();
    own.map_err(|e| Error::system("use standard error", &e))
}

fn explorer(
    args: &CrashArgs,
    initial: &[Operation],
    events: Vec<Event>,
) -> Result<Explorer, Error> {
    let files = files::Options {
        journal: match args.journal {
            JournalArg::Ordered => files::Journal::Ordered,
            JournalArg::Writeback => files::Journal::Writeback,
            JournalArg::None => files::Journal::None,
            JournalArg::Data => files::Journal::Data,
        },
        names: match args.names {
            NamesArg::File => files::Names::WithFile,
            NamesArg::Folder => files::Names::OnlyWithFolder,
        },
        replace_writes: args.replace_writes,
        ..files::Options::default()
    };
    let tear = args.tear == TearArg::Sector;
    let options = Options { files, tear, seed: args.seed, ..Options::default() };
    Explorer::new(initial, events, options).map_err(failed)
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
