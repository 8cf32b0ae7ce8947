//! The command line: what can be asked. Parsing opens nothing and never panics;
//! what clap cannot see each command checks, with exit code 2.

use ::fio::FioArgs;
use bench::{BenchCommand, ExplainCommand, ReplayArgs};
use clap::{Args, Parser, Subcommand};
use fronts::ServeArgs;
use measure::options::whole;
use metrics::TopArgs;
use run::RunArgs;
use speculation::SpeculateArgs;
use standard::TestArgs;
use studies::StudyArgs;
use twin::TwinArgs;
use ycsb::YcsbArgs;

use crate::compare::{self, CompareArgs};
use crate::crash::{self, CrashArgs};
use crate::manual::{self, CompletionsArgs, ManArgs};
use crate::rules::{self, RulesArgs};
use crate::sweep::{self, SweepArgs};
use crate::target::{self, TargetArgs};
use crate::trace::{self, TraceArgs};

pub mod fio;

const DRIVES: &str = "\
Drives:
  mem:PROFILE[,key=value...]   the whole stack in this process
  FILE, ssd:FILE[,copy=yes]    a drive file of `ssdkit create`; copy=yes: a copy of it in memory
  nbd:PATH, nbd:HOST:PORT      a drive that somebody serves (bench, replay, test, fio)
  channel:PATH                 the same by its channel in shared memory (bench, replay, test, fio)
  null:[key=value,...]         the bare null driver (bench, replay)
  PATH, file:PATH[,key=value]  a block device or file (bench, replay, test, fio)

  PROFILE is a name (see `ssdkit profiles`) or the path of a TOML file.
  size=8G       logical capacity; gives the number of chunks
  spare=0.2     (T - U) / T, T the physical and U the logical pages of data
  store=memory  what is kept: memory, checksum, none
  target=pblk   what translates: pblk, rules (a rule set); no blocks, for serve --redis and
                ycsb: batch (batched writes), kv (values by key); pblk/rules/kv: of each target
  rules=minimal the set of target=rules: a file, minimal, latency:N, throughput:N, longevity:N;
                of several such targets latency:2+minimal
  keys=1M       keys that target=kv has room for; one for each 4 KiB of its size
  victim=greedy how chunks to collect are chosen: greedy, cost-benefit, fifo, random, d-choices:10
  streams=1     streams in which writes of different placements are kept: 1 to 4
  parity=0      parallel units to a superblock with parity; 0: none
  shards=1      parts that share nothing, each with whole groups; not of a drive file
  targets=1     targets that share the device, each with a part of the addresses: up to 64
  placement=isolate  each has parallel units of its own; stripe: chunks of all of them
  units=1/7/8   so many units of each target; what is left is nobody's, for `ssdkit target`
  cache=volatile when writes are durable: volatile (after a flush), protected (at once)
  groups, pus, planes, chunks, pages, read, program, ...: any key of the profile

  null: submit_queues=1, poll_queues=0, hw_queue_depth=64, gb=250, shared_tags=no; and one that
  takes time: completion_nsec=10us, servers, shared_servers, mbps, slow=TIME:PERCENT
  file: size=1G (to make it), engine=io_uring|libaio|psync|pvsync2, direct=yes,
  poll=no|auto|iopoll|hybrid, queues, depth=128, read_only=no, sqpoll=TIME; what has a `/` in
  it is a path also without `file:`

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
  ssdkit bench mem:tlc,size=256M,store=none --rw randrw --qd 16 --ios 100k --seeds 5
  ssdkit bench mem:tlc,size=1G --rw randrw --verify --fault below:write,probability=1e-4 \
    --fault above:read,every=1000,delay=5ms

";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  ssdkit explain mem:tlc,size=1G --rw randrw --qd 16 --precondition seq --ios 100k
  ssdkit explain mem:tlc,size=1G --rw randrw --qd 16 --precondition seq --ios 100k \
    --what-if suspend=true --what-if pus=8
  ssdkit explain mem:tlc,size=1G --rw randread --qd 4 --job rw=randwrite,qd=8 --time 100ms
  ssdkit explain ./aged.ssd --rw randread --qd 8 --time 2s
  ssdkit explain --served 9100

";

const REPLAY_EXAMPLES: &str = "\
Examples:
  ssdkit replay hm_0.csv.gz mem:tlc,size=64G,store=none
  ssdkit replay hm_0.csv.gz mem:tlc,size=64G,store=none --pace 10x --time 1h
  ssdkit replay hm_0.csv.gz mem:tlc,size=64G,store=none --explain --what-if suspend=true
  ssdkit replay run.trace mem:tlc,size=1G --pace closed --qd 32
  ssdkit replay io.csv mem:tlc,size=16G --format alibaba --volume 419 --beyond clamp
  blkparse sda | ssdkit replay - ssd:aged.ssd,copy=yes --action d --volume-size 1G

";

const FIO_EXAMPLES: &str = "\
Examples:
  ssdkit fio randread.fio --drive mem:tlc,size=1G
  ssdkit fio database.fio --drive mem:datacenter-tlc,size=1G --output-format json+ --output db.json
  ssdkit fio groups.fio --drive ./drive.ssd --destroy --section random
  ssdkit fio mixed.fio --drive mem:tlc,size=1G --explain
  ssdkit fio mixed.fio --parse-only

";

const TEST_EXAMPLES: &str = "\
Examples:
  ssdkit test --list
  ssdkit test iops mem:tlc,size=1G --report iops.html
  ssdkit test write-saturation mem:tlc,size=1G,store=none
  ssdkit test latency ./drive.ssd --destroy --json
  ssdkit test open-loop ssd:aged.ssd,copy=yes --as-is --read-percent 100
  ssdkit test throughput /dev/nvme0n1 --destroy --period 10s

";

const YCSB_EXAMPLES: &str = "\
Examples:
  ssdkit ycsb mem:tlc --workload A --pages log --clock real
  ssdkit ycsb mem:tlc --workload paper --records 1M --ops 2M --memory 10% --json

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
pub enum Command {
    /// Run a workload on a drive and report.
    #[command(after_help = format!("{BENCH_EXAMPLES}{DRIVES}"))]
    Bench(Box<BenchCommand>),
    /// Run a workload on a drive, or look at a served one, and tell why its requests took
    /// what they took.
    #[command(after_help = format!("{EXPLAIN_EXAMPLES}{DRIVES}"))]
    Explain(ExplainCommand),
    /// Run the requests of a trace on a drive and report.
    #[command(after_help = format!("{REPLAY_EXAMPLES}{DRIVES}"))]
    Replay(ReplayArgs),
    /// Run fio's job files as they are, and print a report or fio's JSON.
    #[command(after_help = format!("{FIO_EXAMPLES}{DRIVES}"))]
    Fio(FioArgs),
    /// Run a standard test of a drive by name, or list the tests.
    #[command(after_help = format!("{TEST_EXAMPLES}{DRIVES}"))]
    Test(TestArgs),
    /// Run many benches: a grid, a list or drawn points, here or on a cluster.
    #[command(after_help = sweep::EXAMPLES)]
    Sweep(SweepArgs),
    /// Hold reports of benches side by side: what differs, and what is noise.
    #[command(after_help = compare::EXAMPLES)]
    Compare(CompareArgs),
    /// Serve a drive over NBD, or a key-value store on it to Redis clients, until interrupted.
    #[command(after_help = format!("{SERVE_EXAMPLES}{DRIVES}"))]
    Serve(ServeArgs),
    /// Run a program with folders on a drive: its timing, its faults, and power cuts.
    #[command(after_help = format!("{RUN_EXAMPLES}{DRIVES}"))]
    Run(RunArgs),
    /// Watch a drive that is served with --metrics.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Run YCSB on a key-value store on a drive and report.
    #[command(after_help = format!("{YCSB_EXAMPLES}{DRIVES}"))]
    Ycsb(YcsbArgs),
    /// Cut the power under a program at many places, and check what its files are then.
    #[command(after_help = crash::EXAMPLES)]
    Crash(Box<CrashArgs>),
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
                      ssdkit study simulator --quick --json\n  \
                      ssdkit study all --quick --report studies.html")]
    Study(StudyArgs),
    /// Find out how far programs could go on while their I/O is under way.
    #[command(after_help = "Examples:\n  ssdkit speculate potential -- sh -c \
                      'gzip -c /bin/bash > /tmp/bash.gz'\n  ssdkit speculate strategies --quick")]
    Speculate(SpeculateArgs),
    /// Fit a profile to measurements of a drive.
    #[command(after_help = TWIN_EXAMPLES)]
    Twin(TwinArgs),
    /// Show what a request trace says, or what one of another kind asks for in sum.
    #[command(after_help = trace::EXAMPLES)]
    Trace(TraceArgs),
    /// Check a rule set for a drive, print it, or tell which rule a request would hit.
    #[command(after_help = rules::EXAMPLES)]
    Rules(RulesArgs),
    /// List, create and remove targets of a drive that is served with --control.
    #[command(after_help = target::EXAMPLES)]
    Target(TargetArgs),
    /// Print what a shell completes.
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print a manual page.
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(ManArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  ssdkit run --drive mem:tlc,size=1G --map data -- sqlite3 data/a.db \
    \"create table t(a); insert into t values (1);\"
  ssdkit run --drive ./drive.ssd --map data -- git clone https://example.org/a.git data/a
  ssdkit run --drive ./drive.ssd --map data --cut-after 100 -- sh -c 'cp -r /etc data; sync'
  ssdkit run --drive mem:tlc,size=1G --map data --fault above:write,every=100 -- ./program

A read that failed is asked for again, and what was written in this run is in memory. So a program
sees a read fail by `permanent`, of a drive file that was written in a run before:
  ssdkit run --drive ./drive.ssd --map data --fault read,count=1,permanent -- cat data/file

";

const SERVE_EXAMPLES: &str = "\
Examples:
  ssdkit serve mem:ref,size=1G --nbd /tmp/ssd.sock
  nbdinfo 'nbd+unix:///?socket=/tmp/ssd.sock'
  ssdkit serve mem:tlc,size=4G --nbd 127.0.0.1:10809
  ssdkit serve mem:tlc,size=4G --nbd /tmp/ssd.sock --fault medium:bitrot,probability=1e-4
  ssdkit serve mem:znand,size=1G --redis 127.0.0.1:6379 --sync everysec
  ssdkit serve ./keys.ssd --redis /tmp/redis.sock
  ssdkit serve mem:tlc,size=1G,target=pblk/kv --nbd /tmp/ssd.sock --redis /tmp/keys.sock
  ssdkit serve mem:tlc,size=1G,units=8/8 --nbd /tmp/ssd.sock --control /tmp/control.sock
  ssdkit serve mem:tlc,size=4G --nbd /tmp/ssd.sock --metrics 9100

";

const TOP_EXAMPLES: &str = "\
Examples:
  ssdkit serve mem:tlc,size=1G --nbd /tmp/ssd.sock --metrics 9100
  ssdkit top 9100
  ssdkit top 9100 --once --interval 5s
  ssdkit top 127.0.0.1:9100 --once --json";

const TWIN_EXAMPLES: &str = "\
Examples:
  ssdkit twin points.csv --family tlc --out mine.toml
  ssdkit twin fio-*.json --family tlc --holdout 0.3 --evaluations 500
  ssdkit twin points.csv --family znand --where drive=a --fit read=10us..100us --fit host_kernel=0us..9us
  ssdkit bench mem:./mine.toml --rw randread --qd 32
  ssdkit twin --measure /dev/nvme0n1 --destroy > points.json";

const CREATE_EXAMPLES: &str = "\
Examples:
  ssdkit create drive.ssd --profile tlc --size 8G --spare 0.1
  ssdkit create large.ssd --profile ref --size 1T --store checksum groups=8 suspend=true
  ssdkit serve ./drive.ssd --nbd /tmp/ssd.sock
  ssdkit bench ./drive.ssd --rw randwrite --qd 32 --time 5s --destroy

K, M, G and T are binary.";

const INFO_EXAMPLES: &str = "\
Examples:
  ssdkit info drive.ssd
  ssdkit info ./drive.ssd --json
  ssdkit info mem:ref,size=1T           # what such a drive would be";

const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  ssdkit snapshot drive.ssd before.ssd
  ssdkit bench mem:tlc,size=1G --rw randwrite --precondition steady --snapshot aged.ssd
  ssdkit bench ssd:aged.ssd,copy=yes --rw randread --qd 32   # the aged drive, in memory";

const PROFILES_EXAMPLES: &str = "\
Examples:
  ssdkit profiles
  ssdkit profiles znand > mine.toml     # then edit it, and use mem:./mine.toml
  ssdkit profiles mem:ref,read=50us     # the effective profile of a drive";

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
    /// How chunks to collect are chosen: greedy, cost-benefit, fifo, random, d-choices:N [default: greedy].
    #[arg(long, value_name = "POLICY")]
    pub victim: Option<String>,
    /// When writes are durable: volatile (after a flush), protected (when they complete) [default: volatile].
    #[arg(long, value_name = "KIND")]
    pub cache: Option<String>,
    /// What the random numbers of the drive's policies come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=i64::MAX as u64))]
    pub seed: u64,
    /// Take all of the file's space now, by writing it, and keep it: syncs are shorter.
    #[arg(long)]
    pub preallocate: bool,
    /// Replace a drive file that is there.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Keys of the profile that are set again, and of the drive, as in its name: target=,
    /// targets=, units=, keys=, rules=, parity= (`ssdkit bench --help` has them all).
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

/// A key and what it is set to.
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, for example suspend=true")?;
    Ok((key.trim().into(), value.trim().into()))
}

#[cfg(test)]
mod tests;
