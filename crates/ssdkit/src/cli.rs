//! The command line: what can be asked, parsed and checked.
//!
//! Parsing opens nothing and never panics. What clap cannot see (keys that
//! contradict each other) is checked by [`BenchArgs::check`] and
//! [`ServeArgs::check`]; both end with exit code 2.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use measure::units;

use crate::blocks::BlockArgs;
use crate::drive::{DriveSpec, NbdAddress, Store};
use crate::error::Error;
use crate::fault_rules::FaultArgs;
use crate::manual::{self, CompletionsArgs, ManArgs};
use crate::study::Options;
use crate::trace::{self, TraceArgs};
use crate::ycsb::YcsbArgs;

const DRIVES: &str = "\
Drives:
  mem:PROFILE[,key=value...]   the whole stack in this process
  FILE, ssd:FILE[,copy=yes]    a drive file of `ssdkit create`; copy=yes: a copy of it in memory
  nbd:PATH, nbd:HOST:PORT      a drive that somebody serves (bench only)
  null:[key=value,...]         the bare null driver (bench only)
  PATH, file:PATH[,key=value]  a block device or file (bench only)

  PROFILE is a name (see `ssdkit profiles`) or the path of a TOML file.
  size=8G       logical capacity; gives the number of chunks
  spare=0.2     (T - U) / T, T the physical and U the logical pages of data
  store=memory  what is kept: memory, checksum, none
  target=pblk   what translates: pblk, batch (batched writes: no blocks, for serve --redis)
  victim=greedy how chunks to collect are chosen: greedy, fifo, random, d-choices:10
  parity=0      parallel units to a superblock with parity; 0: none
  cache=volatile when writes are durable: volatile (after a flush), protected (at once)
  groups, pus, planes, chunks, pages, read, program, ...: any key of the profile

  null: submit_queues=1, poll_queues=0, hw_queue_depth=64, gb=250, shared_tags=no; and one that
  takes time: completion_nsec=10us, servers, shared_servers, mbps, slow=TIME:PERCENT
  file: size=1G (to make it), direct=yes, poll=no|auto|iopoll|hybrid, queues, depth=128,
  read_only=no, sqpoll=TIME; what has a `/` in it is a path also without `file:`

  K, M, G and T are binary in drives and block sizes, decimal in counts and rates. An
  option's time without a unit is in seconds; in drives and fault rules it has its unit.";

const EXAMPLES: &str = "\
Examples:
  ssdkit                          the main job: make a drive, age it, measure it
  ssdkit bench mem:ref --rw randread --qd 64
  ssdkit bench mem:tlc,size=4G --rw randrw --read-percent 70 --qd 32 --precondition steady
  ssdkit bench /dev/nvme0n1 --rw randread --qd 32 --time 10s
  ssdkit serve mem:znand,size=1G --nbd /tmp/ssd.sock
  ssdkit create drive.ssd --profile tlc --size 8G
  ssdkit info drive.ssd
  ssdkit profiles znand";

const BENCH_EXAMPLES: &str = "\
Examples:
  ssdkit bench mem:ref --rw randread --bs 4k --qd 64 --ios 5M
  ssdkit bench mem:ref,store=none --rw randwrite --qd 256 --precondition steady --time 5s
  ssdkit bench mem:znand --rw randrw --read-percent 70 --rate 100k --json
  ssdkit bench nbd:/tmp/ssd.sock --rw randwrite --verify --time 10s --destroy
  ssdkit bench null:submit_queues=2 --rw randread --cores 2 --qd 32 --batch 32 --time 1s
  ssdkit bench null:completion_nsec=10us,servers=4 --rw randread --qd 8 --clock virtual
  ssdkit bench file:/tmp/drive,size=1G --rw randrw --qd 32 --time 5s --completion adaptive
  ssdkit bench mem:ref --rw randwrite --cores 2 --qd 64 --dispatch-depth 8 --scheduler fair \
    --weights 1,4 --trace run.trace
  ssdkit bench mem:tlc,size=1G --rw randread --precondition seq --snapshot aged.ssd --ios 10k
  ssdkit bench ssd:aged.ssd,copy=yes --rw randwrite --qd 32 --ios 100k
  ssdkit bench mem:tlc,size=1G --rw randrw --verify --fault below:write,probability=1e-4 \
    --fault above:read,every=1000,delay=5ms
  ssdkit bench mem:tlc --ycsb A --store log --clock real

";

/// A solid-state drive in software, the host stack above it, and the tools to
/// measure it.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ssdkit",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do; with nothing, the main job.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Main job: print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Main job: what all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
}

/// What can be done.
#[derive(Clone, Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, and it is parsed once")]
pub enum Command {
    /// Run a workload on a drive and report.
    #[command(after_help = format!("{BENCH_EXAMPLES}{DRIVES}"))]
    Bench(BenchArgs),
    /// Serve a drive over NBD, or a key-value store on it to Redis clients, until interrupted.
    #[command(after_help = format!("{SERVE_EXAMPLES}{DRIVES}"))]
    Serve(ServeArgs),
    /// Make a drive in a file.
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Tell what a drive is and how it is.
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Copy a drive file that nobody has open.
    #[command(after_help = SNAPSHOT_EXAMPLES)]
    Snapshot(SnapshotArgs),
    /// List the profiles, or print one as TOML.
    #[command(after_help = PROFILES_EXAMPLES)]
    Profiles(ProfilesArgs),
    /// Run a study of a paper, or list the studies.
    #[command(after_help = "Examples:\n  ssdkit study\n  ssdkit study simulator\n  \
                      ssdkit study simulator --quick --json")]
    Study(StudyArgs),
    /// Show what a request trace says.
    #[command(after_help = trace::EXAMPLES)]
    Trace(TraceArgs),
    /// Print what a shell completes.
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print a manual page.
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(ManArgs),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  ssdkit serve mem:ref,size=1G --nbd /tmp/ssd.sock
  nbdinfo 'nbd+unix:///?socket=/tmp/ssd.sock'
  ssdkit serve mem:tlc,size=4G --nbd 127.0.0.1:10809
  ssdkit serve mem:tlc,size=4G --nbd /tmp/ssd.sock --fault medium:bitrot,probability=1e-4
  ssdkit serve mem:znand,size=1G --redis 127.0.0.1:6379 --sync everysec
  ssdkit serve ./keys.ssd --redis /tmp/redis.sock

";

const CREATE_EXAMPLES: &str = "\
Examples:
  ssdkit create drive.ssd --profile tlc --size 8G --spare 0.1
  ssdkit create drive.ssd --profile ref --size 1T --store checksum groups=8 suspend=true
  ssdkit serve ./drive.ssd --nbd /tmp/ssd.sock
  ssdkit bench ./drive.ssd --rw randwrite --qd 32 --time 5s --destroy

K, M, G and T are binary.";

const INFO_EXAMPLES: &str = "\
Examples:
  ssdkit info drive.ssd
  ssdkit info ./drive.ssd --json
  ssdkit info mem:ref,size=1T           what such a drive would be";

const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  ssdkit snapshot drive.ssd before.ssd
  ssdkit bench mem:tlc,size=1G --rw randwrite --precondition steady --snapshot aged.ssd
  ssdkit bench ssd:aged.ssd,copy=yes --rw randread --qd 32   the aged drive, in memory";

const PROFILES_EXAMPLES: &str = "\
Examples:
  ssdkit profiles
  ssdkit profiles znand > mine.toml     then edit it and use mem:./mine.toml
  ssdkit profiles mem:ref,read=50us     the effective profile of a drive";

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
    /// Random trims.
    #[value(alias = "randtrim")]
    Trim,
}

impl Rw {
    /// Whether addresses are random.
    pub fn is_random(self) -> bool {
        !matches!(self, Rw::Read | Rw::Write)
    }

    /// Whether it writes data.
    pub fn writes(self) -> bool {
        matches!(self, Rw::Write | Rw::Randwrite | Rw::Randrw)
    }
}

/// What is done to a drive before it is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Precondition {
    /// Nothing: a fresh drive.
    #[default]
    None,
    /// Twice its capacity of 128 KiB sequential writes.
    Seq,
    /// That, then the workload itself until it is steady.
    Steady,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockKind {
    /// The drive's: jumps from event to event.
    Virtual,
    /// The processor's.
    Real,
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
        if range.len == 0 || range.offset.checked_add(range.len).is_none() {
            return Err("write LENGTH or OFFSET+LENGTH, for example 1G or 512M+1G".into());
        }
        Ok(range)
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
pub struct BenchArgs {
    /// The drive, for example mem:ref,size=8G.
    #[arg(value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// What to do.
    #[arg(
        long,
        alias = "readwrite",
        value_enum,
        required = false,
        required_unless_present = "ycsb",
        default_value_if("ycsb", clap::builder::ArgPredicate::IsPresent, "randrw")
    )]
    pub rw: Rw,
    /// Reads among the requests of randrw, in percent [default: 50].
    #[arg(long, alias = "rwmixread", value_name = "PERCENT",
          value_parser = whole::<u32>(0..=100))]
    pub read_percent: Option<u32>,
    /// Bytes a request, 512 to 1M.
    #[arg(long, alias = "blocksize", value_name = "SIZE", default_value = "4k",
          value_parser = block_size)]
    pub bs: u32,
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
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// What goes wrong on purpose while it is measured.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// The block layer above the drive.
    #[command(flatten)]
    pub blocks: BlockArgs,
    /// A key-value store on the drive.
    #[command(flatten)]
    pub ycsb: YcsbArgs,
}

/// `ssdkit serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The drive, for example mem:ref,size=8G.
    #[arg(value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// Where to listen for NBD clients: a socket's path or HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<NbdAddress>,
    /// Where to listen for Redis clients: a socket's path or HOST:PORT. The drive then holds a
    /// key-value store.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "nbd")]
    pub redis: Option<NbdAddress>,
    /// Redis: when writes are durable, as appendfsync [default: always].
    #[arg(long, value_enum, requires = "redis")]
    pub sync: Option<SyncWhen>,
    /// Redis: what keeps the pages [default: batched for mem: drives and with target=batch; else
    /// what is on the drive, or log].
    #[arg(long, value_enum, requires = "redis")]
    pub pages: Option<Pages>,
    /// Redis: memory for pages, 8M or more [default: 64M].
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "redis")]
    pub memory: Option<u64>,
    /// Memory for what all clients have sent and are to get, 128M or more [default: 1G].
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub client_memory: Option<u64>,
    /// Redis: make a new store, whatever is on the drive file.
    #[arg(long, requires = "redis")]
    pub destroy: bool,
    /// What the random numbers of a mem: drive's policies and of faults come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// What goes wrong on purpose.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// Print one JSON object when ready and one at the end.
    #[arg(long)]
    pub json: bool,
}

/// When writes of Redis clients are durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SyncWhen {
    /// When they are answered.
    #[default]
    Always,
    /// At most about a second later.
    Everysec,
    /// When the server has stopped, or earlier.
    No,
}

/// What keeps the pages of a key-value store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// A drive with batched writes.
    #[default]
    Batched,
    /// A log on the host, over the block interface.
    Log,
    /// Each page in its place with a journal, over the block interface.
    InPlace,
}

/// The least memory for clients, in bytes: some of the longest requests.
const CLIENT_MEMORY: u64 = 128 << 20;

impl ServeArgs {
    /// Whether the drive can be served, as far as its name tells.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Usage(text));
        let address = self.nbd.as_ref().or(self.redis.as_ref());
        match address {
            None => {
                let text = "nowhere to listen: take --nbd ADDRESS to serve blocks, or \
                            --redis ADDRESS to serve keys";
                return refuse(text.into());
            }
            Some(NbdAddress::Unix(path)) if path.bytes().all(|b| b.is_ascii_digit()) => {
                return refuse(format!(
                    "`{path}` would be a socket file of that name: take HOST:PORT, as in \
                     127.0.0.1:{path}, or ./{path} if a file is meant"
                ));
            }
            Some(_) => {}
        }
        if self.client_memory.is_some_and(|bytes| bytes < CLIENT_MEMORY) {
            return refuse("--client-memory is less than 128M: raise it".into());
        }
        crate::memory::ask_clients(self.client_memory.unwrap_or(0))?;
        if self.redis.is_some() {
            crate::redis::check(self)?;
        } else if self.sync.is_some()
            || self.pages.is_some()
            || self.memory.is_some()
            || self.destroy
        {
            return Err(Error::Usage(
                "--sync, --pages, --memory and --destroy are for --redis: leave them out".into(),
            ));
        }
        match &self.drive {
            DriveSpec::Memory(spec) => self.check_kept(spec.store),
            DriveSpec::File(_) => Ok(()),
            DriveSpec::Nbd(_) => {
                Err(Error::Usage("an nbd: drive is served already: take a mem: drive".into()))
            }
            DriveSpec::Storage(spec) if !Path::new(&spec.path).exists() => Err(Error::Usage(
                format!("{}: there is no such file; make it with `ssdkit create`", spec.path),
            )),
            DriveSpec::Null(_) | DriveSpec::Storage(_) => Err(Error::Usage(
                "only mem: drives and drive files are served: take one, or make one with \
                 `ssdkit create`"
                    .into(),
            )),
        }
    }

    /// Whether a drive that keeps so much can be served.
    pub fn check_kept(&self, store: Store) -> Result<(), Error> {
        match store {
            Store::Memory => Ok(()),
            store => Err(Error::Usage(format!(
                "store={} keeps no data to serve: take store=memory",
                store.name()
            ))),
        }
    }
}

/// `ssdkit create`.
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    /// The file to make.
    #[arg(value_name = "FILE")]
    pub file: String,
    /// A profile's name (see `ssdkit profiles`), or the path of a TOML file.
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub profile: String,
    /// Logical capacity [default: from the profile's geometry and spare].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// (T - U) / T, T the physical and U the logical pages of data [default: the profile's].
    #[arg(long, value_name = "PART")]
    pub spare: Option<String>,
    /// What is kept of each block: memory (all of it), checksum, none [default: memory].
    #[arg(long, value_name = "WHAT")]
    pub store: Option<String>,
    /// How chunks to collect are chosen: greedy, fifo, random, d-choices:N [default: greedy].
    #[arg(long, value_name = "POLICY")]
    pub victim: Option<String>,
    /// When writes are durable: volatile (after a flush), protected (when they complete) [default: volatile].
    #[arg(long, value_name = "KIND")]
    pub cache: Option<String>,
    /// What the random numbers of the drive's policies come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=i64::MAX as u64))]
    pub seed: u64,
    /// Replace a drive file that is there.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Keys of the profile that are set again, as in a drive's name.
    #[arg(value_name = "KEY=VALUE", value_parser = key_value)]
    pub keys: Vec<(String, String)>,
}

/// `ssdkit info`.
#[derive(Args, Clone, Debug)]
pub struct InfoArgs {
    /// A drive file, or a mem: drive.
    #[arg(value_name = "DRIVE")]
    pub drive: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ssdkit snapshot`.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArgs {
    /// The drive file; nobody may have it open for writing.
    #[arg(value_name = "FILE")]
    pub file: String,
    /// The copy, which must not exist.
    #[arg(value_name = "COPY")]
    pub copy: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ssdkit profiles`.
#[derive(Args, Clone, Debug)]
pub struct ProfilesArgs {
    /// A profile's name, the path of a TOML file, or a mem: drive.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ssdkit study`.
#[derive(Args, Clone, Debug)]
pub struct StudyArgs {
    /// Which study; with nothing, the list.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// How it is run.
    #[command(flatten)]
    pub options: Options,
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no value is hidden");
        f.write_str(value.get_name())
    }
}

mod check;
mod effective;
pub mod fio;
mod values;

use values::{block_size, key_value, theta};
pub(crate) use values::{count, duration, time, whole};

#[cfg(test)]
mod tests;
