//! `ssdkit fio`: fio's job files, run as they are on drives of the program.
//!
//! Files: [`file`] a job file as text, [`value`] its values, [`keys`] all keys of fio and
//! what becomes of each, [`job`] a section as a job, [`plan`] jobs on a drive, [`run`] the
//! running of them, [`told`] what was done, [`remarks`] what a reader must know of it,
//! `text` and [`json`] that as text and as fio's JSON. Loads, runner and drives are those of `ssdkit bench`.
//!
//! Fails with the line where a file is wrong or asks for what cannot be followed, and,
//! after the report, where a request failed.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::stand::StandArgs;
use clap::{Args, ValueEnum};
use drive::error::Error;
use drive::say::say;
use drive::spec::{DriveSpec, Found, text_of};
use load::driver::ClockKind;
use load::watch::{Watch, columns};
use measure::options::duration;
use measure::why::WIDE;

pub mod error;
pub mod file;
pub mod job;
pub mod json;
pub mod keys;
mod named;
pub mod plan;
pub mod remarks;
pub mod run;
mod text;
pub mod told;
pub mod value;

pub use error::JobError;
pub use job::Job;

use crate::file::{Key, Outside};
use crate::remarks::{PRECONDITIONED, Remarks};
use crate::run::How;
use crate::told::Told;

/// How results are printed, by fio's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A report for a terminal.
    #[default]
    Normal,
    /// fio's JSON.
    Json,
    /// The same with all latencies.
    #[value(name = "json+")]
    JsonPlus,
}

/// What is done to a drive before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precondition {
    /// Nothing.
    None,
    /// What jobs use of it is written twice over, in order by 128 KiB.
    Seq,
}

/// `ssdkit fio`.
#[derive(Args, Clone, Debug, Default)]
pub struct FioArgs {
    /// fio's job files; the first job of each waits for those of the one before.
    #[arg(value_name = "FILE.fio", required = true)]
    pub files: Vec<PathBuf>,
    /// The drive, in place of all that the files name.
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<DriveSpec>,
    /// How results are printed.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output_format: Format,
    /// Print fio's JSON, as --output-format json does.
    #[arg(long, conflicts_with = "output_format")]
    pub json: bool,
    /// Tell where the time of each job's requests went, too, as `ssdkit explain` does.
    #[arg(long)]
    pub explain: bool,
    /// Write results to a file, over what is in it.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Run only the section of this name; repeatable.
    #[arg(long, value_name = "NAME")]
    pub section: Vec<String>,
    /// Read the files, print what they ask for, and run nothing.
    #[arg(long, conflicts_with_all = ["json", "output_format", "output", "explain"])]
    pub parse_only: bool,
    /// What to do to the drive before [default: seq for a new drive that is read, else none].
    #[arg(long, value_enum)]
    pub precondition: Option<Precondition>,
    /// Whose time it is [default: virtual for mem: and drive files, else real].
    #[arg(long, value_enum)]
    pub clock: Option<ClockKind>,
    /// Write over what is on a block device or file, in a drive file, or behind a server.
    #[arg(long)]
    pub destroy: bool,
    /// End after so much time on the wall.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_time: Option<u64>,
}

/// Runs the files, and prints to `out` or to the file that was named.
pub fn run(args: &FioArgs, out: &mut dyn Write) -> Result<(), Error> {
    let Read { mut jobs, globals, files } = read(args)?;
    if args.parse_only {
        write!(out, "{}", text::became(&jobs))?;
        return Ok(());
    }
    let drive = named::drive(args.drive.as_ref(), &jobs)?;
    named::note_engines(&drive, &mut jobs);
    // Before a file is made for it.
    if args.explain && !matches!(drive, DriveSpec::Memory(_) | DriveSpec::File(_)) {
        let text = "--explain: only drives of this process tell: take mem: or a drive file";
        return Err(Error::Usage(text.into()));
    }
    let writes = jobs.iter().any(Job::writes) || args.precondition == Some(Precondition::Seq);
    // A file that is made now, or on which nothing is, is filled before it is read.
    let is_filled = match &drive {
        DriveSpec::Storage(spec) if !spec.read_only => {
            matches!(spec.find()?, Found::Nothing | Found::Hollow(_))
        }
        _ => false,
    };
    let output = args.output.as_ref().map(|path| open(path, &files, &drive)).transpose()?;
    let how = How {
        stand: StandArgs {
            drive,
            seed: jobs.first().map_or(1, |job| job.seed),
            writes: writes || is_filled,
            destroy: args.destroy,
            clock: args.clock,
            depth: jobs.iter().map(slots).sum::<u64>().min(1 << 16) as usize,
            // What fills the drive is not longer than that.
            most: jobs.iter().map(|job| job.access.sizes.most()).fold(128 << 10, u64::max),
        },
        explains: args.explain,
        preconditions: args.precondition.map(|kind| kind == Precondition::Seq),
    };
    let mut watch = Watch::terminal(args.max_time.map(Duration::from_nanos))?;
    let all = run::run(&jobs, &how, &mut watch);
    watch.end();
    let all = all?;
    let format = if args.json { Format::Json } else { args.output_format };
    if format != Format::Normal {
        // fio's JSON has no place for it that anyone looks at.
        Remarks::of(&jobs, &all).lines().iter().for_each(say);
    }
    let printed = print(&jobs, &globals, all, format);
    match output {
        None => out.write_all(printed.text.as_bytes())?,
        Some((path, mut file)) => {
            let written = file.set_len(0).and_then(|()| file.write_all(printed.text.as_bytes()));
            let what = format!("write --output {}", path.display());
            written.map_err(|e| Error::system(&what, &e))?;
        }
    }
    out.flush()?;
    printed.problem.map_or(Ok(()), |problem| Err(Error::Failed(problem)))
}

/// Requests out at once of a job.
fn slots(job: &Job) -> u64 {
    u64::from(job.pace.depth) * u64::from(job.company.clones)
}

/// What stands in all files.
struct Read {
    jobs: Vec<Job>,
    /// The keys of `[global]`.
    globals: Vec<Key>,
    /// The files, those that are included too.
    files: Vec<PathBuf>,
}

fn read(args: &FioArgs) -> Result<Read, Error> {
    let (mut jobs, mut globals) = (Vec::new(), Vec::new());
    let files = RefCell::new(args.files.clone());
    let mut missing = args.section.clone();
    for path in &args.files {
        let name = path.display().to_string();
        let text = text_of(&name).map_err(|e| Error::Usage(format!("{name}: {e}")))?;
        let variable = |name: &str| std::env::var(name).ok();
        let include = |file: &str, name: &str| {
            let (path, text) = include(file, name)?;
            files.borrow_mut().push(path.clone().into());
            Ok((path, text))
        };
        let outside = Outside { variable: &variable, include: &include };
        let sections = file::parse(&name, &text, &outside)?;
        missing.retain(|name| !sections.iter().any(|one| !one.is_global() && one.name == *name));
        let mut more = job::jobs(&sections, &mut globals, &args.section)?;
        if let Some(first) = more.first_mut().filter(|_| !jobs.is_empty()) {
            first.company.waits = true;
        }
        jobs.extend(more);
    }
    if jobs.is_empty() || !missing.is_empty() {
        let what = match missing.is_empty() {
            true => "there is no job in it: write [NAME] and keys below it".to_string(),
            false => format!("there is no section {}: correct --section", missing.join(", ")),
        };
        return Err(Error::Usage(format!("{}: {what}", args.files[0].display())));
    }
    plan::rounds(&jobs)?;
    Ok(Read { jobs, globals, files: files.into_inner() })
}

/// The path and the text of a file that another includes: as fio looks for it, from where
/// the program runs, or else from beside the other.
fn include(file: &str, name: &str) -> Result<(String, String), String> {
    let beside = Path::new(file).with_file_name(name).display().to_string();
    let path = if Path::new(name).exists() { name.into() } else { beside };
    let text = text_of(&path).map_err(|e| e.to_string())?;
    Ok((path, text))
}

/// The file that results go to, which is none that is read or is the drive. It is emptied
/// when they are there.
fn open<'a>(
    path: &'a Path,
    files: &[PathBuf],
    drive: &DriveSpec,
) -> Result<(&'a Path, File), Error> {
    let place = |path: &Path| path.metadata().ok().map(|data| (data.dev(), data.ino()));
    let is = |other: &Path| other == path || place(path).is_some_and(|at| place(other) == Some(at));
    if files.iter().any(|file| is(file)) || drive.is_file(path) {
        let what = "it is a job file, one that is included, or the drive of this run: name another \
                    file";
        return Err(Error::Usage(format!("--output {}: {what}", path.display())));
    }
    let wrong = |why: &dyn Display| Error::Usage(format!("--output {}: {why}", path.display()));
    // Before it is opened: at a pipe that nobody reads that would never end.
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        return Err(wrong(&"it is no file"));
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    Ok((path, file.map_err(|e| wrong(&e))?))
}

/// What is printed, and why the command fails, if it does.
struct Printed {
    text: String,
    problem: Option<String>,
}

fn print(jobs: &[Job], globals: &[Key], all: run::All, format: Format) -> Printed {
    let (about, remarks) = (all.about.clone(), Remarks::of(jobs, &all));
    let file_failed = all.file_failed.clone();
    let told = Told::all(jobs, all);
    let of_jobs = told.iter().filter_map(Told::problem);
    let problems: Vec<String> = file_failed.into_iter().chain(of_jobs).collect();
    let problem = (!problems.is_empty()).then(|| problems.join("; "));
    if format != Format::Normal {
        let globals = job::valued(globals);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as u64);
        let mut value = json::output(&told, &globals, now, format == Format::JsonPlus);
        value["ssdkit"] = remarks.to_json();
        value["ssdkit"]["drive"] = about.drive;
        let explained: Vec<_> = told.iter().filter_map(json::explained).collect();
        if !explained.is_empty() {
            value["ssdkit"]["explained"] = explained.into();
        }
        return Printed { text: format!("{value:#}\n"), problem };
    }
    let mut text = text::became(jobs);
    if remarks.is_preconditioned {
        text += &format!("{PRECONDITIONED}\n");
    }
    for one in &told {
        text += &format!("\n{}\n", text::heading(one));
        text += &text::report(one, &about).to_text_in(columns());
        let flushes = one.tally.latency(port::BlockOp::Flush);
        if let Some(mean) = flushes.mean() {
            let mean = measure::units::time_ns(mean);
            text += &format!("flushes     {}, {mean} on average\n", flushes.count());
        }
        if let Some(percentiles) = text::percentiles(one) {
            text += &format!("percentiles {percentiles}\n");
        }
        if one.tally.causes.is_some() && one.void().is_none() {
            text += &format!("\n{}", one.why(&told).tables(WIDE));
        }
    }
    for (name, words) in &remarks.behind {
        text += &format!("[{name}] BEHIND: {words}\n");
    }
    for (what, words) in remarks.ended() {
        text += &format!("{what:<12}{words}\n");
    }
    Printed { text, problem }
}

#[cfg(test)]
mod tests;
