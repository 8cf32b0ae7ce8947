//! `ssdkit crash`: a power-fault tester for anything that writes files.
//!
//! Runs a program once under the supervisor, which tells what it does to the files of a folder;
//! then cuts the power at many places of that, makes states of the files that each cut may leave,
//! and starts the check on each. Guarantees: the same seed finds the same; a state that was found
//! can be had again by its name. May fail: the program or the check cannot be started, the system
//! cannot supervise.

mod check;
mod difference;
mod doubt;
mod finding;
mod hunt;
mod lives;
mod missing;
mod names;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use crash::{CrashError, Tree};
use drive::error::Error;
use measure::options::{duration, whole};
use measure::units;
use tempfile::TempDir;

use finding::Told;
use lives::Life;

/// What `ssdkit crash --help` ends with.
pub const EXAMPLES: &str = "\
The check gets SSDKIT_FOLDER (where it is), SSDKIT_SAID (a file with all that the program had
printed by the cut) and SSDKIT_CUT (events before it). Most programs hold back what they print to a
pipe, and so say it late, or only when they end: have them print at once, by `stdbuf -oL`,
`python -u` or fflush. Exit codes: 0 all states held, 1 one did not or something failed, 2 asked for
something that cannot be.

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
    /// How often the program is started: from the second time on, on a state that a cut of the time
    /// before left, which then is cut in its turn.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "map",
        value_parser = whole::<u64>(1..=100))]
    pub lives: u64,
    /// With --lives: in how many states of the first life a second one begins. They share --states
    /// once more for each life.
    #[arg(long, value_name = "N", default_value = "16", value_parser = whole::<u64>(1..=1_000_000))]
    pub chains: u64,
    /// Look at one state only, by its name; of a later life the states that it came from stand
    /// before it.
    #[arg(long, value_name = "CUT:VARIANT[:RUN][/...]", value_parser = at)]
    pub at: Option<At>,
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

/// The state to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Those that the lives before ended in, the first one first.
    pub before: Vec<Name>,
    /// Itself.
    pub last: Name,
}

fn at(text: &str) -> Result<At, String> {
    let (before, last) = text.rsplit_once('/').map_or((None, text), |(a, b)| (Some(a), b));
    let before = before.into_iter().flat_map(|it| it.split('/')).map(name);
    Ok(At { before: before.collect::<Result<_, _>>()?, last: name(last)? })
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
    if args.map.is_some() && args.at.as_ref().is_some_and(|at| !at.before.is_empty()) {
        return Err(Error::Usage(
            "a state of a later life is made in a folder of its own: leave --map out".to_owned(),
        ));
    }
    if let Some(keep) = &args.keep {
        let wrong = |e: std::io::Error| {
            let why = match e.kind() {
                ErrorKind::AlreadyExists => {
                    "it is there already: remove it, or name another".into()
                }
                _ => e.to_string(),
            };
            Error::Usage(format!("--keep {}: {why}", keep.display()))
        };
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
    if folder.file_name().is_none() {
        return Err(Error::Usage("--map /: take a folder in it".to_owned()));
    }
    let folder = &folder;
    let (life, found) = lives::look(args, Life::first(args, folder)?, folder)?;
    let first = args.at.as_ref().map(|at| (at.last.cut, at.last.variant)).or(found.first());
    if let (Some(keep), Some((cut, variant))) = (&args.keep, first) {
        leave(keep, &life, cut, variant)?;
    }
    let told = Told { args, life: &life, found: &found };
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
fn leave(keep: &Path, life: &Life, cut: usize, variant: u64) -> Result<(), Error> {
    let mut state = life.explorer.state(cut, variant).map_err(failed)?;
    let files = Tree::new(&keep.join("files")).map_err(failed)?;
    files.extract(&mut state.files).map_err(failed)?;
    let said = std::fs::write(keep.join("said"), life.said(cut));
    said.map_err(|e| Error::system(&format!("write to {}", keep.display()), &e))
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
