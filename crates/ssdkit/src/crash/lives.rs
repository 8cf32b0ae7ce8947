//! The lives of the program: each time that it is started, what it did, and what cuts of that may
//! leave. The first begins with what the setup left, each other with a state that a cut of the one
//! before may have left, and which the check has held of.
//!
//! Guarantees: seed and options say which states lives begin in, whatever the number of threads;
//! what the lives before had said counts as said. May fail: the program cannot be started, or,
//! started again, ends with an error.

use std::collections::HashSet;
use std::fs;
use std::io::stderr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crash::{Event, Explorer, Options, Tree};
use drive::error::Error;
use drive::memory;
use files::Operation;
use interpose::{Answer, Course, Program, Recorder, RunError, Wants, Watcher};
use measure::units;
use port::random::{Random, mix};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::hunt::{Found, Hunt};
use super::{CrashArgs, JournalArg, Name, NamesArg, TearArg, doubt, failed};

/// One life of the program.
pub struct Life {
    /// What it did.
    pub run: Recorded,
    /// What cuts of it may leave.
    pub explorer: Explorer,
    /// The names of the states that the lives before ended in.
    pub before: Vec<String>,
    /// What those had said by then.
    said: Vec<u8>,
}

impl Life {
    /// After the setup.
    pub fn first(args: &CrashArgs, folder: &Path) -> Result<Self, Error> {
        set_up(args, folder)?;
        is_there(args, folder)?;
        let life = Self::start(args, folder, Vec::new(), Vec::new())?;
        life.run.is_of_use(args, folder, life.explorer.events())?;
        Ok(life)
    }

    fn start(
        args: &CrashArgs,
        folder: &Path,
        before: Vec<String>,
        said: Vec<u8>,
    ) -> Result<Self, Error> {
        let (run, events) = record(args, folder)?;
        let explorer = explorer(args, &run.initial, events)?;
        Ok(Self { run, explorer, before, said })
    }

    /// Makes the folder a state of this life, and starts the program again.
    fn next(&self, args: &CrashArgs, folder: &Path, at: (usize, u64)) -> Result<Self, Error> {
        let (cut, variant) = at;
        let mut state = self.explorer.state(cut, variant).map_err(failed)?;
        let tree = Tree::new(folder).map_err(failed)?;
        tree.extract(&mut state.files).map_err(failed)?;
        let before = self.chain(cut, variant);
        let next = Self::start(args, folder, before, self.said_before(cut))?;
        if next.run.code != 0 && !args.any_exit {
            return Err(Error::Failed(format!(
                "{} was started again on the state {} and ended with exit code {}: have it go on \
                 from what a cut leaves; where it need not, add --any-exit",
                args.program[0].to_string_lossy(),
                next.before.join("/"),
                next.run.code
            )));
        }
        Ok(next)
    }

    /// All that was said by that cut, as the next life finds it: what the cut left of a
    /// line is a line of its own, and not the beginning of the next life's first.
    fn said_before(&self, cut: usize) -> Vec<u8> {
        let mut said = self.said(cut);
        if said.last().is_some_and(|&last| last != b'\n') {
            said.push(b'\n');
        }
        said
    }

    /// All that was said by that cut.
    pub fn said(&self, cut: usize) -> Vec<u8> {
        [&self.said[..], &self.explorer.output(cut, 1)].concat()
    }

    /// The name of a state.
    pub fn name(&self, cut: usize, variant: u64) -> String {
        self.chain(cut, variant).join("/")
    }

    fn chain(&self, cut: usize, variant: u64) -> Vec<String> {
        let own = format!("{cut}:{variant}:{:04x}", self.run.number);
        self.before.iter().cloned().chain([own]).collect()
    }

    /// Fails where the name is of a life in which the program did something else.
    fn has(&self, name: &Name) -> Result<(usize, u64), Error> {
        match name.run {
            Some(named) if named != self.run.number => {
                let (now, at) = (self.run.number, "what it did then, or run with --keep at once");
                Err(Error::Failed(format!(
                    "the state is of run {named:04x}, and this run, {now:04x}, did something else: \
                     have the program do {at}"
                )))
            }
            _ => Ok((name.cut, name.variant)),
        }
    }

    fn changes_files(&self) -> bool {
        self.explorer.events().iter().any(|event| matches!(event, Event::Operation(_)))
    }
}

/// Looks at the states that are asked for. What was found is of the life that comes with it, but
/// for the numbers of states, which are of all.
pub fn look(args: &CrashArgs, first: Life, folder: &Path) -> Result<(Life, Found), Error> {
    let hunt = Hunt::new(args, &first, args.states)?;
    hunt.holds_without_a_cut(args)?;
    let Some(at) = &args.at else {
        let warnings = doubt::of(&first, &hunt)?;
        let found = hunt.all(args)?;
        let (life, mut found) = live_on(args, first, found, folder)?;
        found.warnings.splice(0..0, warnings);
        return Ok((life, found));
    };
    let mut life = first;
    for name in &at.before {
        let state = life.has(name)?;
        life = life.next(args, folder, state)?;
    }
    let found = Hunt::new(args, &life, 1)?.one(life.has(&at.last)?)?;
    Ok((life, found))
}

/// Has lives begin in states that the first one left, and ends with the first that breaks the
/// check.
fn live_on(
    args: &CrashArgs,
    first: Life,
    mut found: Found,
    folder: &Path,
) -> Result<(Life, Found), Error> {
    let each = args.states.div_ceil(args.chains);
    let mut begun = HashSet::new();
    for chain in 0..args.chains {
        let mut life = None;
        for number in 1..args.lives {
            if found.is_over() {
                return Ok((first, found));
            }
            let from = life.as_ref().unwrap_or(&first);
            // One of those that were looked at, so that the check held of it.
            let looked = if number == 1 { args.states } else { each };
            let mut random = Random::new(args.seed ^ mix(chain), number);
            let (cut, variant) = from.explorer.choose(random.below(looked));
            let mut state = from.explorer.state(cut, variant).map_err(failed)?;
            let hash = from.explorer.hash(&mut state).map_err(failed)?;
            // What the lives before had said is a part of it.
            if !begun.insert(xxh3_64_with_seed(&from.said(cut), hash)) {
                break;
            }
            let next = from.next(args, folder, (cut, variant))?;
            if !next.changes_files() {
                break;
            }
            let its = Hunt::new(args, &next, each)?.all(args)?;
            found = found.and(its);
            if found.is_over() {
                return Ok((next, found));
            }
            life = Some(next);
        }
    }
    Ok((first, found))
}

/// What a program did.
pub struct Recorded {
    pub initial: Vec<Operation>,
    /// How it ended.
    pub code: i32,
    /// It was ended, as its time was over.
    pub is_over: bool,
    /// Calls that were refused.
    pub refused: Vec<&'static str>,
    /// Of which run it is.
    pub number: u16,
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

/// Runs the setup.
fn set_up(args: &CrashArgs, folder: &Path) -> Result<(), Error> {
    let system = |doing: &str, e: std::io::Error| Error::system(doing, &e);
    if let Some(setup) = &args.setup {
        let status =
            Command::new("sh").args(["-c", setup]).current_dir(folder).stdout(errors()?).status();
        let status = status.map_err(|e| system("run --setup", e))?;
        if !status.success() {
            return Err(Error::Failed(format!("--setup failed: {status}")));
        }
    }
    Ok(())
}

/// Fails where a program that is named from the folder that it starts in is not there.
fn is_there(args: &CrashArgs, folder: &Path) -> Result<(), Error> {
    let program = Path::new(&args.program[0]);
    // One without a slash is looked for on the path.
    let is_named_so = program.as_os_str().as_encoded_bytes().contains(&b'/');
    if !is_named_so || program.is_absolute() || folder.join(program).exists() {
        return Ok(());
    }
    let here = fs::canonicalize(program).ok();
    let whole = here.map_or(String::new(), |path| format!(", as {}", path.display()));
    Err(Error::Usage(format!(
        "{} is not in {}, where it starts: name it by its whole path{whole}",
        program.display(),
        folder.display(),
    )))
}

/// Fails where what is in the folder, all of which is kept in memory, has no room there.
fn ask_memory(folder: &Path) -> Result<(), Error> {
    let (mut below, mut bytes) = (vec![folder.to_owned()], 0);
    let device = fs::metadata(folder).map(|about| about.dev()).ok();
    // Twice: as it was, and as files of a cut.
    let free = memory::free() / 2;
    while let Some(at) = below.pop() {
        // What cannot be read is told by who reads it.
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() && Some(about.dev()) == device => {
                    below.push(entry.path());
                }
                Ok(about) if about.is_file() => bytes += about.blocks() * 512,
                _ => {}
            }
        }
        if bytes > free {
            return Err(Error::Usage(format!(
                "{} has more than {} in files, and all that is there when the program begins is \
                 kept in memory: map a folder that has only what the program needs",
                folder.display(),
                units::bytes_decimal(bytes as f64),
            )));
        }
    }
    Ok(())
}

/// Runs the program on what is in the folder.
fn record(args: &CrashArgs, folder: &Path) -> Result<(Recorded, Vec<Event>), Error> {
    let folders = [folder.to_owned()];
    ask_memory(folder)?;
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
    if ended.was_asked && ended.code != 0 && !args.any_exit {
        let text = "stopped while the program ran: nothing is cut";
        return Err(Error::Failed(text.to_owned()));
    }
    let event = |event| match event {
        interpose::Event::Operation(operation) => Event::Operation(operation),
        interpose::Event::Output { stream, data } => Event::Output { stream, data },
        interpose::Event::Exit { code, .. } => Event::Mark(format!("a process ends with {code}")),
    };
    let events: Vec<Event> = recorder.events.into_iter().map(event).collect();
    let number = number(&events);
    let is_over = ended.was_stopped;
    // Who is ended on purpose did not fail.
    let code = if is_over { 0 } else { ended.code };
    Ok((Recorded { initial, code, is_over, refused: recorder.refused, number }, events))
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

fn supervision(e: RunError) -> Error {
    match e {
        RunError::Folder { .. } => Error::Usage(e.to_string()),
        e if e.is_usage() => Error::Usage(e.to_string()),
        e => Error::Failed(e.to_string()),
    }
}
