//! The options of `ssdkit bench`, parsed and checked.
//!
//! Parsing opens nothing and never panics. What clap cannot see (keys that
//! contradict each other) is checked by [`BenchArgs::check`], which ends with
//! exit code 2.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use drive::fault_rules::FaultArgs;
use drive::spec::DriveSpec;
use load::blocks::BlockArgs;
use load::driver::ClockKind;
use measure::options::{count, duration, time, whole};
use measure::units;
use port::SECTOR_BYTES;
use workload::Varied;

mod bursts;
mod check;
mod effective;
mod jobs;

pub use jobs::Job;
pub(crate) use jobs::of_job;

pub use bursts::BurstArgs;

/// What a workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// Sequential reads and writes, each on their own way.
    #[value(alias = "readwrite")]
    Rw,
    /// Random trims.
    #[value(alias = "randtrim")]
    Trim,
}

impl Rw {
    /// Whether addresses are random.
    pub fn is_random(self) -> bool {
        !matches!(self, Rw::Read | Rw::Write | Rw::Rw)
    }

    /// Whether both reads and writes are in it.
    pub fn is_mixed(self) -> bool {
        matches!(self, Rw::Rw | Rw::Randrw)
    }

    /// Whether it writes data.
    pub fn writes(self) -> bool {
        matches!(self, Rw::Write | Rw::Randwrite) || self.is_mixed()
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no value is hidden");
        f.write_str(value.get_name())
    }
}

/// What is done to a drive before it is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Precondition {
    /// Nothing: a fresh drive.
    #[default]
    None,
    /// What is used of it, its --range, is written twice over, in order by 128 KiB.
    Seq,
    /// All of it is, whatever its --range is.
    Whole,
    /// All of it is, then the workload itself runs until the drive is steady.
    Steady,
}

/// When requests of an open loop arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Fixed,
    /// At exponentially distributed ones.
    Poisson,
}

/// A share of the space and the share of the accesses that go there, in
/// percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Percent of the range that is hot, 1 to 99.
    pub space: u32,
    /// Percent of the accesses that go there, 1 to 99.
    pub accesses: u32,
}

impl FromStr for Hot {
    type Err = String;

    fn from_str(text: &str) -> Result<Hot, String> {
        let number = |s: &str| s.parse().ok().filter(|n| (1..=99).contains(n));
        let both = text.split_once(':').and_then(|(a, b)| Some((number(a)?, number(b)?)));
        both.map(|(space, accesses)| Hot { space, accesses }).ok_or_else(|| {
            "write SPACE:ACCESSES in percent from 1 to 99, for example 10:90".to_string()
        })
    }
}

/// A part of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes, not zero.
    pub len: u64,
}

impl FromStr for Range {
    type Err = String;

    /// `LENGTH` or `OFFSET+LENGTH`.
    fn from_str(text: &str) -> Result<Range, String> {
        let (offset, len) = text.split_once('+').unwrap_or(("0", text));
        let size = |s: &str| units::size(s).map_err(|e| e.to_string());
        let range = Range { offset: size(offset)?, len: size(len)? };
        let wrong = match () {
            () if range.len == 0 => "of 0 bytes nothing is used",
            () if range.offset.checked_add(range.len).is_none() => "it ends beyond all addresses",
            () => return Ok(range),
        };
        Err(format!("{wrong}: write LENGTH or OFFSET+LENGTH, for example 1G or 512M+1G"))
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many requests.
    Ios(u64),
    /// After so much drive time, in ns.
    Time(u64),
}

/// `ssdkit bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchCommand {
    /// The load, and the drive.
    #[command(flatten)]
    pub bench: BenchArgs,
    /// Run it so many times, 5 to 20, each on a new drive, with --seed and those that follow it.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(5..=20))]
    pub seeds: Option<u32>,
}

/// A load, and a drive.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The drive, for example mem:ref,size=8G.
    #[arg(value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// What to do.
    #[arg(long, alias = "readwrite", value_enum)]
    pub rw: Rw,
    /// Reads among the requests of rw and randrw, in percent [default: 50].
    #[arg(long, alias = "rwmixread", value_name = "PERCENT",
          value_parser = whole::<u32>(0..=100))]
    pub read_percent: Option<u32>,
    /// Bytes a request, 512 to 1M.
    #[arg(long, alias = "blocksize", value_name = "SIZE", default_value = "4k",
          value_parser = block_size)]
    pub bs: u32,
    /// Sizes of requests with their shares in percent, as 4k/60:64k/40; of reads, and after a comma of writes.
    #[arg(long, value_name = "SIZE/PERCENT:...", conflicts_with = "bs")]
    pub bssplit: Option<Varied>,
    /// Requests outstanding, of each thread.
    #[arg(long, alias = "iodepth", value_name = "DEPTH", default_value_t = 1,
          value_parser = whole::<u32>(1..=65536))]
    pub qd: u32,
    /// Submitters; those of a core share one thread of the system.
    #[arg(long, alias = "numjobs", value_name = "N", default_value_t = 1,
          value_parser = whole::<u32>(1..=1024))]
    pub threads: u32,
    /// End after so many requests [default: 1M, unless --time].
    #[arg(long, value_name = "COUNT", value_parser = count, conflicts_with = "time")]
    pub ios: Option<u64>,
    /// End after so much drive time.
    #[arg(long, alias = "runtime", value_name = "TIME", value_parser = duration)]
    pub time: Option<u64>,
    /// Drive time before counting begins.
    #[arg(long, alias = "ramp-time", value_name = "TIME", value_parser = time)]
    pub ramp: Option<u64>,
    /// End after so much time on the wall; what is in the drive then has 0.3 s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_time: Option<u64>,
    /// A load at the same time as that of --rw: rw=..., and bs, qd, rate and more of its own, and queue=N.
    #[arg(long = "job", value_name = "KEY=VALUE,...")]
    pub jobs: Vec<Job>,
    /// Open loop: so many requests a second arrive, however long they take.
    #[arg(long, value_name = "RATE", value_parser = count)]
    pub rate: Option<u64>,
    /// How the requests of an open loop arrive.
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    pub arrivals: Arrivals,
    /// What to do to the drive before [default: seq for a new drive that is read, else none].
    #[arg(long, value_enum)]
    pub precondition: Option<Precondition>,
    /// Rounds that must agree for the steady state, 3 to 100 [default: 5].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(3..=100))]
    pub steady_rounds: Option<u32>,
    /// The least drive time of such a round; an overwrite of the drive is always in it [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub steady_round: Option<u64>,
    /// Whose time it is [default: virtual for mem: and drive files that are not hosted, else real].
    #[arg(long, value_enum)]
    pub clock: Option<ClockKind>,
    /// What all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Part of the drive to use: LENGTH or OFFSET+LENGTH.
    #[arg(long, value_name = "RANGE")]
    pub range: Option<Range>,
    /// Skewed addresses after Zipf's law, theta above 0 and at most 5.
    #[arg(long, value_name = "THETA", value_parser = theta, conflicts_with = "hot")]
    pub zipf: Option<f64>,
    /// Skewed addresses: so many percent of the space get so many of the accesses.
    #[arg(long, value_name = "SPACE:ACCESSES")]
    pub hot: Option<Hot>,
    /// Writes to the hot part say so: a drive with streams=2 keeps them apart.
    #[arg(long, requires = "hot")]
    pub placement: bool,
    /// Every so many writes, one is durable when it completes.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    pub fua_every: Option<u32>,
    /// After every so many writes, a flush.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    pub flush_every: Option<u32>,
    /// Write recognisable data and check all that is read.
    #[arg(long)]
    pub verify: bool,
    /// Write over what is on a block device or file, in a drive file, or behind a server.
    #[arg(long)]
    pub destroy: bool,
    /// Save the drive in a new drive file when it is preconditioned, then measure.
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<String>,
    /// Tell of the slowest requests where their time went: so many, 1 to 1000.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1000))]
    pub slowest: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write a page with pictures, too, for a browser.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Keep what pictures of dies need also where no page is written.
    #[arg(skip)]
    pub pictures: bool,
    /// Keep where the time of all requests went, for `ssdkit explain`.
    #[arg(skip)]
    pub explains: bool,
    /// The trace that is measured, for `ssdkit replay`.
    #[arg(skip)]
    pub replay: Option<crate::replay::Replay>,
    /// Pauses.
    #[command(flatten)]
    pub bursts: BurstArgs,
    /// What goes wrong on purpose while it is measured.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// The block layer above the drive.
    #[command(flatten)]
    pub blocks: BlockArgs,
}

/// A command line of these options alone, as tests write it.
#[cfg(test)]
#[derive(clap::Parser)]
pub(crate) struct Line {
    #[command(flatten)]
    pub args: BenchArgs,
}

/// A request's size.
fn block_size(text: &str) -> Result<u32, String> {
    let bytes = units::size(text).map_err(|e| e.to_string())?;
    if !(SECTOR_BYTES..=1 << 20).contains(&bytes) || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err("a request is 512 bytes to 1M, in multiples of 512".into());
    }
    Ok(bytes as u32)
}

/// The skew of Zipf's law.
fn theta(text: &str) -> Result<f64, String> {
    let theta = text.parse::<f64>().ok().filter(|t| *t > 0.0 && *t <= 5.0);
    theta.ok_or_else(|| "write a number above 0 and at most 5, for example 0.99".into())
}
