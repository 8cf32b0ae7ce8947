//! Measured points: what ran, and what it gave.
//!
//! Files are CSV, fio's JSON, or that of `ssdkit bench`; which of them is seen by
//! what is in them. Guarantees: each figure of a point can be; no two points of one
//! run contradict each other, and what was measured twice is one point; what a model
//! has no run for is refused. Fails as [`TwinError`] says, never panics, whatever is in a file.

use std::fmt;
use std::path::Path;

use measure::file::text_of;
use measure::units;
use serde::Serialize;

use crate::error::TwinError;

mod agree;
mod csv;
mod fio;
mod ours;

/// Bytes of a file of points, at most.
const MOST_BYTES: u64 = 256 << 20;
/// Points, at most: what is kept back is chosen among all pairs of them.
const MOST_POINTS: usize = 4096;
/// The most requests out that are modelled: a link holds no more.
const MOST_DEPTH: u32 = 1024;

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Random reads and writes.
    Randrw,
}

impl Rw {
    const ALL: [(&'static str, Rw); 5] = [
        ("read", Rw::Read),
        ("write", Rw::Write),
        ("randread", Rw::Randread),
        ("randwrite", Rw::Randwrite),
        ("randrw", Rw::Randrw),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Rw::ALL[self as usize].0
    }
}

/// Which requests of a run a point tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Its reads.
    Read,
    /// Its writes.
    Write,
}

impl Direction {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// A closed loop of one job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Run {
    /// The way from the program to the drive, as the file calls it.
    pub path: String,
    /// What it does.
    pub rw: Rw,
    /// Reads among its requests, in percent.
    pub read_percent: u8,
    /// Bytes a request.
    pub bs: u32,
    /// Requests out.
    pub qd: u32,
}

impl Run {
    /// The run of these options, or why it cannot be modelled.
    fn new(at: &str, asked: &Asked) -> Result<Run, TwinError> {
        let Asked { rw, read_percent, bs, qd } = *asked;
        let Some(&(_, kind)) = Rw::ALL.iter().find(|(name, _)| *name == rw) else {
            let known = Rw::ALL.map(|(name, _)| name).join(", ");
            let what = format!("rw={rw} is not modelled");
            return Err(TwinError::point(at, what, format!("leave it out: modelled are {known}")));
        };
        let read_percent = match (kind, read_percent) {
            (Rw::Randrw, percent) => percent.unwrap_or(50),
            (Rw::Read | Rw::Randread, None | Some(100)) => 100,
            (Rw::Write | Rw::Randwrite, None | Some(0)) => 0,
            (_, Some(percent)) => {
                let what = format!("rw={rw} does not have {percent} % reads");
                return Err(TwinError::point(at, what, "leave the percentage out"));
            }
        };
        if read_percent > 100 {
            return Err(TwinError::point(at, "more than 100 % are reads", "write 0 to 100"));
        }
        if bs == 0 || !bs.is_multiple_of(4096) || bs > 1 << 20 {
            let what = format!("requests of {} are not modelled", units::size_binary(bs.into()));
            return Err(TwinError::point(
                at,
                what,
                "leave it out: 4k to 1M in multiples of 4k are",
            ));
        }
        if !(1..=MOST_DEPTH).contains(&qd) {
            let what = format!("depth {qd} is not modelled");
            return Err(TwinError::point(at, what, format!("leave it out: 1 to {MOST_DEPTH} are")));
        }
        Ok(Run { path: String::new(), rw: kind, read_percent, bs, qd })
    }

    /// By its plainest name: a mix of reads alone is reads.
    pub fn plain(&self) -> Run {
        let rw = match (self.rw, self.read_percent) {
            (Rw::Randrw, 100) => Rw::Randread,
            (Rw::Randrw, 0) => Rw::Randwrite,
            (rw, _) => rw,
        };
        Run { rw, ..self.clone() }
    }

    /// Whether addresses are random.
    pub fn is_random(&self) -> bool {
        !matches!(self.rw, Rw::Read | Rw::Write)
    }

    /// Whether both reads and writes are in it.
    pub fn is_mixed(&self) -> bool {
        (1..100).contains(&self.read_percent)
    }

    /// The direction of all its requests, unless it is mixed.
    fn only(&self) -> Option<Direction> {
        match self.read_percent {
            0 => Some(Direction::Write),
            100 => Some(Direction::Read),
            _ => None,
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.rw.name())?;
        if self.rw == Rw::Randrw {
            write!(f, " {} % reads", self.read_percent)?;
        }
        write!(f, ", {} bytes, depth {}", self.bs, self.qd)
    }
}

/// What a file asks of a run, before anybody has looked whether it can be.
struct Asked<'a> {
    rw: &'a str,
    read_percent: Option<u8>,
    bs: u32,
    qd: u32,
}

/// What was measured, or predicted. What is not known is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests a second.
    pub iops: Option<f64>,
    /// Mean of the total latency, in us.
    pub mean_us: Option<f64>,
    /// Median of the completion latency, in us.
    pub p50_us: Option<f64>,
    /// 99th percentile of the completion latency, in us.
    pub p99_us: Option<f64>,
}

impl Figures {
    /// Their names in files.
    pub const NAMES: [&'static str; 4] = ["iops", "mean_us", "p50_us", "p99_us"];

    /// In the order of [`Figures::NAMES`].
    pub fn each(&self) -> [Option<f64>; 4] {
        [self.iops, self.mean_us, self.p50_us, self.p99_us]
    }
}

/// One measured point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Of which drive.
    pub drive: String,
    /// In which run.
    #[serde(flatten)]
    pub run: Run,
    /// Of which requests of it.
    pub direction: Direction,
    /// What they took.
    pub measured: Figures,
    /// Where it stands: file, and line or job.
    pub at: String,
}

impl Point {
    /// A point of `direction`, or why it cannot be one.
    fn new(
        at: String,
        drive: &str,
        run: Run,
        direction: Option<Direction>,
        measured: Figures,
    ) -> Result<Point, TwinError> {
        let direction = match (run.only(), direction) {
            (Some(only), Some(told)) if only != told => {
                let what = format!("{run} has no {}s", told.name());
                return Err(TwinError::point(&at, what, "correct rw or direction"));
            }
            (only, told) => only.or(told).ok_or_else(|| {
                let what = format!("{run} has reads and writes");
                TwinError::point(&at, what, "say with direction which of them this is")
            })?,
        };
        agree::possible(&at, &measured)?;
        Ok(Point { drive: drive.into(), run, direction, measured, at })
    }

    /// Whether both tell of the same requests of the same run: of one drive, or with
    /// the same figures, whatever the drive is called.
    pub fn is_same_as(&self, other: &Point) -> bool {
        (self.run.plain(), self.direction) == (other.run.plain(), other.direction)
            && (self.drive == other.drive || self.measured == other.measured)
    }

    /// What `--where KEY=` compares.
    pub fn value(&self, key: &str) -> Option<String> {
        Some(match key {
            "drive" => self.drive.clone(),
            "path" => self.run.path.clone(),
            "rw" => self.run.rw.name().into(),
            "read_percent" => self.run.read_percent.to_string(),
            "direction" => self.direction.name().into(),
            "bs" => self.run.bs.to_string(),
            "qd" => self.run.qd.to_string(),
            _ => return None,
        })
    }

    /// Whether what `--where KEY=` compares is this, as people write it.
    pub fn is(&self, key: &str, value: &str) -> bool {
        let value = value.trim();
        self.value(key).is_some_and(|own| own == value)
            || key == "bs" && units::size(value).is_ok_and(|bytes| bytes == u64::from(self.run.bs))
    }
}

/// Points, and what of their files was ignored.
#[derive(Debug, Default)]
pub struct Points {
    /// The points, in the order of the files.
    pub all: Vec<Point>,
    /// Columns that nobody knows, by file.
    pub ignored: Vec<String>,
}

/// Reads files.
pub fn read(paths: &[String]) -> Result<Points, TwinError> {
    let mut points = Points::default();
    for path in paths {
        let text = text_of(Path::new(path), MOST_BYTES);
        let text = text.map_err(|source| TwinError::Read { path: path.clone(), source })?;
        parse(path, &text, &mut points)?;
        if points.all.len() > MOST_POINTS {
            let what = format!("there are more than {MOST_POINTS} points with those of it");
            return Err(TwinError::Format { path: path.clone(), what });
        }
    }
    points.all = agree::agree(points.all)?;
    Ok(points)
}

/// Reads one file's text.
fn parse(path: &str, text: &str, points: &mut Points) -> Result<(), TwinError> {
    // fio may tell something before its JSON.
    let start = text.find(['{', '[']).filter(|&at| {
        let before = &text[..at];
        before.trim().is_empty() || before.lines().all(|line| line.starts_with("fio"))
    });
    let Some(start) = start else { return csv::parse(path, text, points) };
    let before = text[..start].lines().count().saturating_sub(1);
    let mut found = 0;
    for value in serde_json::Deserializer::from_str(&text[start..]).into_iter() {
        let value: serde_json::Value = value.map_err(|e| {
            let what = format!("line {} is not JSON: {e}", before + e.line());
            TwinError::Format { path: path.into(), what }
        })?;
        let objects = match &value {
            serde_json::Value::Array(all) => all.as_slice(),
            one => std::slice::from_ref(one),
        };
        for object in objects {
            found += 1;
            // A bench of several loads has `jobs`, too.
            if object.get("workload").is_some() {
                ours::parse(path, found, object, points)?;
            } else if object.get("jobs").is_some() {
                fio::parse(path, object, points)?;
            } else {
                let what = "it is JSON with neither fio's `jobs` nor a bench's `workload`".into();
                return Err(TwinError::Format { path: path.into(), what });
            }
        }
    }
    Ok(())
}

/// A block size, as people write it: `4096`, `4k`.
fn size(at: &str, text: &str, remedy: &str) -> Result<u32, TwinError> {
    let bytes = units::size(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| TwinError::point(at, format!("bs={text} is not one size"), remedy))
}

/// The name of a file without folder and ending: a drive's, where nobody names it.
fn stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|name| name.to_str()).unwrap_or("drive")
}

#[cfg(test)]
mod tests;
