//! `ssdkit study`: the papers' experiments, repeated.
//!
//! A study is one file, or one with a folder. It measures in a [`Lab`] and gives an [`Outcome`]:
//! rows of ours, beside the paper's value where it gives one, each with a rule fixed
//! beforehand. A study never carries a value of ours.
//!
//! Files: [`row`] a claim and its verdict, [`runs`] repeated runs of a figure,
//! [`outcome`] what is printed, [`lab`] what measures, [`queue_pair`] a drive
//! on a thread of its own, [`file`] real storage, [`threads`] one load on many
//! cores, [`blocking`] threads with blocking calls, [`kernel_path`] a drive as a block
//! device of the kernel, [`kernel_runs`] runs on it, [`others`] who else had the cores,
//! [`layers`] block layers to compare,
//! [`baseline`] the old one and none, [`aio`] a front that shares, [`lines`] writes
//! to shared cache lines, [`instructions`] of functions, counted, [`scsi`] a command set
//! in between, [`page`](mod@page) what a browser shows, [`suite`] several studies one after
//! the other;
//! then a file for each study.
//!
//! Fails when there is no such study, when something could not be measured,
//! and, after printing, when a row that is judged did not pass. Of all studies one that
//! cannot be measured keeps no other from being so.

pub mod aio;
pub mod appnvm;
pub mod baseline;
pub mod batched;
pub mod blkmq;
pub mod blocking;
pub mod file;
pub mod instructions;
pub mod kernel_path;
pub mod kernel_runs;
pub mod lab;
pub mod layers;
pub mod lightnvm;
pub mod lines;
pub mod myths;
pub mod others;
pub mod outcome;
pub mod page;
pub mod pessimistic;
pub mod queue_pair;
pub mod row;
pub mod runs;
pub mod scsi;
pub mod simulator;
pub mod speculation;
pub mod suite;
pub mod threads;
pub mod ull;

use std::io::Write;
use std::path::PathBuf;

use ::blkmq::Topology;
use clap::Args;
use serde_json::{Value, json};

pub use lab::{Case, Lab, Run, SHARE, Turns};
pub use outcome::{Manifest, Outcome, Picture, Step};
pub use page::Files;
pub use row::{Reference, Row, Rule, Verdict};
pub use runs::Runs;

use drive::error::Error;
use load::watch::Watch;

/// `ssdkit study`.
#[derive(Args, Clone, Debug, Default)]
pub struct StudyArgs {
    /// Which study, or `all`; with nothing, the list.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Write a page for a browser, too: rows, pictures, how all was measured.
    #[arg(long, value_name = "FILE.html", requires = "name")]
    pub report: Option<PathBuf>,
    /// Write the pictures alone, too, as DIR/NAME.svg, over those that are there.
    #[arg(long, value_name = "DIR", requires = "name")]
    pub pictures: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// How it is run.
    #[command(flatten)]
    pub options: Options,
}

/// How a study is run.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Shorter runs, to see that it works: seconds, not minutes.
    #[arg(long, requires = "name")]
    pub quick: bool,
    /// What all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = measure::options::whole(0..=u64::MAX), requires = "name")]
    pub seed: u64,
    /// Where studies of real storage make a file [default: the system's
    /// directory for temporary files].
    #[arg(long, requires = "name")]
    pub dir: Option<PathBuf>,
    /// Cores that studies of many cores use [default: all].
    #[arg(long, value_name = "N", requires = "name")]
    pub cores: Option<usize>,
    /// Sockets that these are divided into, the first cores being in the first.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "name")]
    pub sockets: usize,
    /// Records of studies of key-value stores [default: the study's].
    #[arg(long, value_name = "COUNT", value_parser = measure::options::count, requires = "name")]
    pub records: Option<u64>,
    /// A case to be run for another process that watches it.
    #[arg(long, hide = true, requires = "name")]
    pub watched: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            quick: false,
            seed: 1,
            dir: None,
            cores: None,
            sockets: 1,
            records: None,
            watched: None,
        }
    }
}

impl Options {
    /// The directory for files.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The cores that a study of many may use, by their numbers in the system,
    /// and how they lie in sockets. Fails when there are not so many.
    pub fn topology(&self) -> Result<(Vec<usize>, Topology), Error> {
        let mut all = threads::cores()?;
        let cores = self.cores.unwrap_or(all.len());
        if cores == 0 || cores > all.len() {
            let has = all.len();
            return Err(Error::Usage(format!("--cores {cores}: this process may use 1 to {has}")));
        }
        all.truncate(cores);
        let topology = Topology::new(cores, self.sockets);
        Ok((all, topology.map_err(|e| Error::Usage(format!("--sockets {}: {e}", self.sockets)))?))
    }

    /// Fails where a study could not be run with them: known before anything is measured,
    /// whichever study minds.
    fn check(&self) -> Result<(), Error> {
        self.topology()?;
        if self.records.is_some() {
            batched::check(self)?;
        }
        match &self.dir {
            Some(dir) if !dir.is_dir() => {
                Err(Error::Usage(format!("--dir {}: there is no such directory", dir.display())))
            }
            _ => Ok(()),
        }
    }

    /// Fails where this study has no use for one of them.
    fn check_of(&self, study: &Study) -> Result<(), Error> {
        let asked = [
            ("--records", self.records.is_some(), batched::STUDY.name),
            ("--sockets", self.sockets != 1, blkmq::STUDY.name),
        ];
        match asked.into_iter().find(|(_, is_asked, of)| *is_asked && study.name != *of) {
            Some((option, _, of)) => Err(Error::Usage(format!(
                "{option} is for study {of}, and for `{}`; {} has no use for it",
                suite::NAME,
                study.name
            ))),
            None => Ok(()),
        }
    }

    /// `full`, or `quick` if that was asked for.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// What a study finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Rows, in the paper's order.
    pub rows: Vec<Row>,
    /// What a reader must know to read them.
    pub notes: Vec<String>,
    /// Pictures, if it draws any.
    pub pictures: Vec<Picture>,
}

impl Findings {
    /// Rows and notes, without a picture.
    pub fn new(rows: Vec<Row>, notes: Vec<String>) -> Findings {
        Findings { rows, notes, pictures: Vec::new() }
    }

    /// These, and then those.
    pub fn join(&mut self, more: Findings) {
        self.rows.extend(more.rows);
        self.notes.extend(more.notes);
        self.pictures.extend(more.pictures);
    }
}

/// A study.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// Measures.
    pub run: fn(&mut Lab) -> Result<Findings, Error>,
}

impl Study {
    /// All studies.
    pub const ALL: [Study; 9] = [
        appnvm::STUDY,
        batched::STUDY,
        blkmq::STUDY,
        lightnvm::STUDY,
        myths::STUDY,
        pessimistic::STUDY,
        simulator::STUDY,
        speculation::STUDY,
        ull::STUDY,
    ];

    /// The study of this name.
    pub fn named(name: &str) -> Result<Study, Error> {
        let found = Study::ALL.into_iter().find(|study| study.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Study::ALL.iter().map(|study| study.name).collect();
            let known = known.join(", ");
            Error::Usage(format!("there is no study `{name}`; there are: {known}, and `all`"))
        })
    }

    /// Runs it.
    pub fn measure(&self, options: &Options, watch: &mut Watch) -> Result<Outcome, Error> {
        let mut lab = Lab::new(options, watch);
        let findings = (self.run)(&mut lab)?;
        Ok(lab.finish(self, findings))
    }
}

/// Runs the study that was named, or all, or lists them, to `out`.
pub fn run(args: &StudyArgs, out: &mut dyn Write) -> Result<(), Error> {
    let Some(name) = &args.name else { return list(args.json, out) };
    if name == suite::NAME {
        args.options.check()?;
        return suite::run(&Study::ALL, args, out);
    }
    let study = Study::named(name)?;
    if let Some(case) = &args.options.watched {
        return match study.name == lightnvm::STUDY.name {
            true => lightnvm::be_watched(case, &args.options),
            false => lines::be_watched(case, &args.options, out),
        };
    }
    args.options.check()?;
    args.options.check_of(&study)?;
    one(study, args, out)
}

/// Runs one.
fn one(study: Study, args: &StudyArgs, out: &mut dyn Write) -> Result<(), Error> {
    let files = Files::new(args)?;
    let mut watch = Watch::terminal(None)?;
    let outcome = study.measure(&args.options, &mut watch);
    watch.end();
    let ran = [(study, outcome)];
    // What was measured is told, whatever becomes of its files.
    let written = if ran[0].1.is_ok() { files.write(&ran, true) } else { Ok(()) };
    let [(_, outcome)] = ran;
    both(outcome?.print(args.json, out), written)
}

/// Two things that were tried one after the other: where both failed, both are told.
fn both(first: Result<(), Error>, then: Result<(), Error>) -> Result<(), Error> {
    match (first, then) {
        (Err(first), Err(then)) => Err(Error::Failed(format!("{first}. {then}"))),
        (first, then) => first.and(then),
    }
}

fn list(json: bool, out: &mut dyn Write) -> Result<(), Error> {
    if json {
        let all = Study::ALL.map(|s| json!({ "name": s.name, "about": s.about }));
        writeln!(out, "{:#}", Value::from_iter(all))?;
        return Ok(());
    }
    for study in Study::ALL {
        writeln!(out, "{:<12} {}", study.name, study.about)?;
    }
    writeln!(out, "{:<12} all of these, one after the other", suite::NAME)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: StudyArgs,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        Ok(Line::try_parse_from(&words[1..])?.args.options)
    }

    #[test]
    fn options_are_read_from_the_command_line() {
        let all = ["ssdkit", "study", "simulator", "--quick", "--seed", "9", "--dir", "/x"];
        let dir = Some(PathBuf::from("/x"));
        let expected = Options { quick: true, seed: 9, dir, ..Options::default() };
        assert_eq!(parse(&all).unwrap(), expected);
        let cores = ["ssdkit", "study", "blkmq", "--cores", "4", "--sockets", "2"];
        let parsed = parse(&cores).unwrap();
        assert_eq!((parsed.cores, parsed.sockets), (Some(4), 2));
        assert_eq!(parse(&["ssdkit", "study"]).unwrap(), Options::default());
        assert!(parse(&["ssdkit", "study", "--quick"]).is_err());
    }

    #[test]
    fn cores_that_are_not_there_are_refused() {
        let of = |cores, sockets| Options { cores, sockets, ..Options::default() }.topology();
        let (all, topology) = of(None, 1).unwrap();
        assert_eq!(all.len(), topology.cores());
        for (cores, sockets) in [(Some(0), 1), (Some(all.len() + 1), 1), (Some(1), 2), (None, 0)] {
            assert_eq!(of(cores, sockets).unwrap_err().exit_code(), 2);
        }
    }

    /// By whichever study, and by all of them, of which none is begun.
    #[test]
    fn options_that_cannot_be_are_told_before_anything_is_measured() {
        let cores = Options { cores: Some(usize::MAX), ..Options::default() };
        let records = Options { records: Some(3_000_000_000), ..Options::default() };
        let too_many = Options { records: Some(1_999_999_999), ..Options::default() };
        let dir = Options { dir: Some("/nonexistent".into()), ..Options::default() };
        for (options, says) in
            [(cores, "--cores"), (records, "--records"), (too_many, "--records"), (dir, "--dir")]
        {
            for name in ["all", "myths"] {
                let (name, options) = (Some(name.into()), options.clone());
                let mut out = Vec::new();
                let args = StudyArgs { name, options, ..StudyArgs::default() };
                let error = run(&args, &mut out).unwrap_err();
                assert!(error.exit_code() == 2 && error.to_string().contains(says), "{error}");
                assert!(out.is_empty());
            }
        }
    }

    #[test]
    fn a_study_refuses_what_it_has_no_use_for() {
        let records = Options { records: Some(1000), ..Options::default() };
        let sockets = Options { cores: Some(2), sockets: 2, ..Options::default() };
        for (options, says, other) in [
            (records, "--records is for study batched", "blkmq"),
            (sockets, "--sockets", "batched"),
        ] {
            let refused = options.check_of(&Study::named(other).unwrap()).unwrap_err();
            assert!(refused.exit_code() == 2 && refused.to_string().contains(says), "{refused}");
            assert!(Study::ALL.iter().any(|study| options.check_of(study).is_ok()));
        }
    }

    /// Its directory is gone when its page is to be written.
    const LOST: Study = Study {
        name: "lost",
        about: "a study",
        run: |lab| {
            std::fs::remove_dir_all(lab.options.dir()).unwrap();
            let row = Row::sign("f", "fails", "x", "says", Runs::one(1.0), false);
            Ok(Findings::new(vec![row], vec![]))
        },
    };

    #[test]
    fn a_row_that_fails_hides_no_page_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        let options = Options { dir: Some(sub.clone()), ..Options::default() };
        let report = Some(sub.join("page.html"));
        let mut out = Vec::new();
        let args = StudyArgs { report, options, ..StudyArgs::default() };
        let error = one(LOST, &args, &mut out).unwrap_err().to_string();
        for says in ["study lost: 1 of 1 rows failed: fails", "cannot write", "page.html"] {
            assert!(error.contains(says), "{says}: {error}");
        }
        assert!(String::from_utf8(out).unwrap().contains("0 passed, 1 failed"));
    }

    #[test]
    fn studies_are_listed_and_found() {
        let printed = |json| {
            let mut out = Vec::new();
            let args = StudyArgs { json, ..StudyArgs::default() };
            run(&args, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let json: Value = serde_json::from_str(&printed(true)).unwrap();
        for (i, study) in Study::ALL.iter().enumerate() {
            assert!(printed(false).contains(study.name));
            assert_eq!(json[i]["name"], study.name);
            assert_eq!(Study::named(study.name).unwrap().about, study.about);
        }
        let error = Study::named("none").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("simulator"), "{error}");
    }
}
