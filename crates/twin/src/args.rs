//! The options of `ssdkit twin`.

use std::str::FromStr;

use clap::Args;
use drive::spec::DriveSpec;
use measure::options::{duration, whole};

/// `ssdkit twin`.
#[derive(Args, Clone, Debug)]
pub struct TwinArgs {
    /// Measurements: CSV, fio's JSON, or that of `ssdkit bench`.
    #[arg(value_name = "FILE", required_unless_present = "measure")]
    pub files: Vec<String>,
    /// Where the search begins: a profile's name, or the path of a TOML file.
    #[arg(long, value_name = "NAME|FILE.toml", required_unless_present = "measure")]
    pub family: Option<String>,
    /// Measure a block device or file instead, and print a report of each run: a file of points.
    #[arg(long, value_name = "DRIVE", conflicts_with_all = ["files", "family"])]
    pub measure: Option<DriveSpec>,
    /// Write over all of what --measure measures.
    #[arg(long, requires = "measure")]
    pub destroy: bool,
    /// How long each run of --measure takes.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration,
          requires = "measure")]
    pub time: u64,
    /// Keys of the profile that all candidates have.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
    /// A parameter to search: NAME=LOW..HIGH[:log|:linear], NAME=xLOW..xHIGH (times what the
    /// family has) or NAME=A|B|...; a key of the profile, or host_PATH [default: see the manual].
    #[arg(long, value_name = "NAME=RANGE")]
    pub fit: Vec<String>,
    /// Only points of which this is so: drive, path, rw, read_percent, direction, bs or qd; values
    /// with a comma between them.
    #[arg(long = "where", value_name = "KEY=VALUE,...", value_parser = key_value)]
    pub only: Vec<(String, String)>,
    /// Points to fit: all, or every:N, of N runs the first.
    #[arg(long = "use", value_name = "all|every:N", default_value = "all",
          conflicts_with_all = ["holdout", "folds"])]
    pub used: Used,
    /// Keep so many of the runs back, above 0 and below 1: chosen so that what is fitted covers
    /// them, and by the seed.
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with = "folds")]
    pub holdout: Option<f64>,
    /// Fit as often, each time with one part kept back, then once with all.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(2..=100))]
    pub folds: Option<u32>,
    /// Measurements that are only compared with what the twin gives.
    #[arg(long, value_name = "FILE")]
    pub against: Vec<String>,
    /// Candidates that are tried, at most, in each fit.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = whole::<u64>(1..=1_000_000))]
    pub evaluations: u64,
    /// What all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Write the fitted profile to a new file.
    #[arg(long, value_name = "FILE.toml")]
    pub out: Option<String>,
    /// Replace the file of --out if it is there.
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Which runs are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// All.
    All,
    /// The first of so many.
    Every(usize),
}

impl FromStr for Used {
    type Err = String;

    fn from_str(text: &str) -> Result<Used, String> {
        let every = |n: &str| n.parse().ok().filter(|n| (2..=1000).contains(n)).map(Used::Every);
        match text.strip_prefix("every:") {
            None if text == "all" => Ok(Used::All),
            rest => {
                rest.and_then(every).ok_or_else(|| "write all, or every:N with N from 2".into())
            }
        }
    }
}

/// A key and what it is set to.
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, for example qd=1,16")?;
    Ok((key.trim().into(), value.trim().into()))
}

/// A part of a whole, neither nothing nor all.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "write a number above 0 and below 1, for example 0.3".into())
}
