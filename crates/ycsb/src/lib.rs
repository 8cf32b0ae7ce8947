//! `ssdkit ycsb`: the Yahoo! Cloud Serving Benchmark on the tree, over each of its page
//! stores, and on a drive that keeps values by key.
//!
//! Files: [`setup`] what is run, [`controller`] the drive's controller, its speed
//! and its counters, [`counted`] what the host gives it to write, [`client`]
//! operations and their verification, [`measure`] one run or two by turns,
//! [`stores`] what they are over,
//! [`baton`] whose turn it is, [`measured`] what a run gave.
//!
//! Fails when options contradict each other or the drive, when the drive is
//! too small, and, after the report, when an operation failed or gave wrong
//! data.

pub mod baton;
pub mod client;
pub mod controller;
pub mod counted;
pub mod measure;
pub mod measured;
pub mod setup;
pub mod stores;

use std::io::Write;
use std::str::FromStr;

use ::measure::options::{count, duration, whole};
use ::measure::units;
use btree::{MAX_VALUE, Store, StoreKind};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use workload::ycsb::Workload;

pub use measured::{HostTime, Measured, TreeSize};
pub use setup::{CacheSize, Setup};

use drive::error::Error;
use drive::memory;
use drive::spec::{DriveConfig, DriveSpec, MemorySpec, TargetKind};
use load::driver::ClockKind;
use load::watch::Watch;
use port::MAX_VALUE_BYTES;

/// `ssdkit ycsb`.
#[derive(Args, Clone, Debug)]
pub struct YcsbArgs {
    /// The drive, for example mem:tlc; as large as the records need where it does not say.
    #[arg(value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// A to F of YCSB, or paper (75 % reads, 25 % updates, uniform).
    #[arg(long, value_name = "WORKLOAD", value_parser = workload)]
    pub workload: Workload,
    /// What keeps the pages of the tree; none with target=kv [default: batched; of target=rules
    /// log].
    #[arg(long, value_name = "STORE", value_parser = store_kind())]
    pub pages: Option<StoreKind>,
    /// Bytes of a value, 16 or more; keys have 8.
    #[arg(long, value_name = "SIZE", default_value = "1000", value_parser = value_size)]
    pub value: u64,
    /// Records that are loaded.
    #[arg(long, value_name = "COUNT", default_value = "100k", value_parser = count)]
    pub records: u64,
    /// Operations.
    #[arg(long, value_name = "COUNT", default_value = "200k", value_parser = count)]
    pub ops: u64,
    /// Memory for pages, in percent of the tree's pages or in bytes [default: 25%].
    #[arg(long, value_name = "PERCENT|SIZE")]
    pub memory: Option<CacheSize>,
    /// Without collection and checkpoints.
    #[arg(long)]
    pub not_durable: bool,
    /// Operations under way at once.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = whole::<u32>(1..=400))]
    pub clients: u32,
    /// How long each command occupies the controller, beside what this machine's processor
    /// takes for it [default: no time].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub controller_time: Option<u64>,
    /// Whose time it is.
    #[arg(long, value_enum, default_value_t = ClockKind::Virtual)]
    pub clock: ClockKind,
    /// Stop after so much time on the wall.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_time: Option<u64>,
    /// What all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Check all that is read, and at the end all records.
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A store of pages by its name.
fn store_kind() -> impl TypedValueParser<Value = StoreKind> {
    PossibleValuesParser::new(StoreKind::ALL.map(StoreKind::name))
        .map(|name| name.parse().expect("it is one of them"))
}

/// The size of a value.
fn value_size(text: &str) -> Result<u64, String> {
    let bytes = units::size(text).map_err(|e| e.to_string())?;
    match bytes {
        16..=MAX_VALUE_BYTES => Ok(bytes),
        _ => Err("a value has 16 bytes to 64 MiB".into()),
    }
}

/// A workload's name, in either case.
fn workload(text: &str) -> Result<Workload, String> {
    text.to_ascii_lowercase().parse().map_err(|e: workload::ycsb::NoWorkload| e.to_string())
}

/// The most memory in percent of the tree's pages.
const MOST_PERCENT: f64 = 1000.0;

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSize, String> {
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().ok();
            let is_part = |p: &f64| *p > 0.0 && *p <= MOST_PERCENT;
            return percent.filter(is_part).map(CacheSize::Percent).ok_or_else(|| {
                format!(
                    "write a part of the tree's pages, more than 0% and up to {MOST_PERCENT}%, \
                     as 25%, or bytes, as 64M"
                )
            });
        }
        match units::size(text) {
            Ok(0) => Err("a cache has more than no bytes".into()),
            bytes => bytes.map(CacheSize::Bytes).map_err(|e| e.to_string()),
        }
    }
}

/// The drive that `spec` names, as large as `size` where it does not say.
pub fn drive(spec: &MemorySpec, size: u64) -> Result<DriveConfig, Error> {
    let mut spec = spec.clone();
    let chunks = spec.overrides.iter().any(|(key, _)| key == "chunks");
    if spec.size.is_none() && !chunks {
        spec.size = Some(size);
    }
    let refuse = |text: &str| Err(Error::Usage(text.into()));
    if spec.store != drive::spec::Store::Memory {
        return refuse("ycsb needs a drive that keeps its data: take store=memory");
    }
    Ok(spec.resolve()?)
}

/// What is to keep the records, if it can do what is asked for.
fn store(spec: &MemorySpec, y: &YcsbArgs) -> Result<Store, Error> {
    let refuse = |text: String| Err(Error::Usage(text));
    if spec.target != TargetKind::Kv {
        let most = MAX_VALUE as u64;
        let pages = y.pages.unwrap_or(match spec.target {
            TargetKind::Rules => StoreKind::Log,
            _ => StoreKind::default(),
        });
        return match pages {
            _ if y.value > most => refuse(format!(
                "a value of the tree has at most {}: lower --value, or take a drive with target=kv",
                units::size_binary(most)
            )),
            StoreKind::Log | StoreKind::InPlace if spec.target == TargetKind::Batch => {
                refuse("a drive with target=batch has no blocks: leave --pages out".into())
            }
            StoreKind::Batched if spec.target == TargetKind::Rules => refuse(
                "--pages batched makes another target of a drive of rules: take --pages log".into(),
            ),
            kind => Ok(Store::Tree(kind)),
        };
    }
    let what = match y {
        _ if y.workload == Workload::E => {
            return refuse(
                "workload E scans in the order of keys, and a drive with target=kv has none: take \
                 another workload, or target=pblk"
                    .into(),
            );
        }
        _ if y.pages.is_some() => "no pages (--pages)",
        _ if y.memory.is_some() => "no cache of pages (--memory)",
        _ if y.not_durable => "always collection and checkpoints (--not-durable)",
        _ => return Ok(Store::Keyed),
    };
    refuse(format!("a drive with target=kv has {what}: leave that out"))
}

/// What the command line asks for.
fn setup(args: &YcsbArgs) -> Result<Setup, Error> {
    let refuse = |text: &str| Err(Error::Usage(text.into()));
    let DriveSpec::Memory(spec) = &args.drive else {
        return refuse("ycsb needs a drive in this process: take mem:");
    };
    let (y, workload) = (args, args.workload);
    let durable = !y.not_durable;
    let store = store(spec, y)?;
    if !durable && store == Store::Tree(StoreKind::InPlace) {
        return refuse("a store in place has neither collection nor checkpoints to leave out");
    }
    if y.records > 2_000_000_000 || y.ops > 1_000_000_000_000 {
        return refuse("--records is at most 2 000 M, --ops at most 1 000 000 M");
    }
    let value = y.value as usize;
    let mut spec = spec.clone();
    if store == Store::Keyed && spec.keys == 0 {
        spec.keys = setup::keys_for(workload, y.records, y.ops);
    }
    let mut drive = drive(&spec, setup::size_for(workload, y.records, y.ops, durable, value))?;
    if store == Store::Tree(StoreKind::Batched) {
        drive.spec.target = TargetKind::Batch;
    }
    Ok(Setup {
        drive,
        workload,
        records: y.records,
        ops: y.ops,
        cache: y.memory.unwrap_or(CacheSize::Percent(25.0)),
        store,
        value,
        durable,
        clients: y.clients as usize,
        controller: y.controller_time.unwrap_or(0),
        seed: args.seed,
        real: args.clock == ClockKind::Real,
        verify: args.verify,
    })
}

/// Runs, and prints the report to `out`.
pub fn run(args: &YcsbArgs, out: &mut dyn Write) -> Result<(), Error> {
    let setup = setup(args)?;
    memory::ask_records(setup.needs())?;
    let mut watch = Watch::terminal(args.max_time.map(std::time::Duration::from_nanos))?;
    let measured = measure::measure(&setup, &mut watch);
    watch.end();
    let measured = measured?;
    if args.json {
        writeln!(out, "{:#}", to_json(&setup, &measured))?;
    } else {
        write!(out, "{}", to_text(&setup, &measured))?;
    }
    match &measured.first_error {
        Some(first) => Err(Error::Failed(format!(
            "{} operations failed or gave wrong data, first: {first}",
            measured.errors
        ))),
        None => Ok(()),
    }
}

/// The parts of the host's time, in ns.
pub fn parts(host: &HostTime) -> [(&'static str, u64); 7] {
    [
        ("tree", host.tree()),
        ("submission", host.store.submission),
        ("writing", host.store.writing),
        ("reading", host.store.reading),
        ("collection", host.store.collection),
        ("checkpoint", host.store.checkpoint),
        ("waiting", host.waiting),
    ]
}

/// The run's set-up.
pub fn configuration(setup: &Setup) -> Value {
    json!({
        "drive": setup.drive.effective(),
        "workload": setup.workload.to_string(),
        "records": setup.records,
        "ops": setup.ops,
        "cache": match setup.cache {
            CacheSize::Percent(part) => json!({ "percent": part }),
            CacheSize::Bytes(bytes) => json!({ "bytes": bytes }),
        },
        "store": setup.store.name(),
        "value_bytes": setup.value,
        "durable": setup.durable,
        "clients": setup.clients,
        "controller_ns": setup.controller,
        "clock": if setup.real { "real" } else { "virtual" },
        "verify": setup.verify,
        "seed": setup.seed,
    })
}

/// As one JSON object.
pub fn to_json(setup: &Setup, m: &Measured) -> Value {
    let latency: serde_json::Map<String, Value> = m
        .latency
        .iter()
        .map(|(kind, latency)| (kind.name().into(), json!(latency.summary())))
        .collect();
    let each = |ns: u64| ns as f64 / m.ops as f64;
    let host: serde_json::Map<String, Value> =
        parts(&m.host).into_iter().map(|(name, ns)| (name.into(), each(ns).into())).collect();
    json!({
        "setup": configuration(setup),
        "ops": m.ops,
        "seconds": m.seconds,
        "ops_per_second": m.rate(),
        "latency_ns": latency,
        "tree": m.tree.map(|tree| json!({
            "pages": tree.pages,
            "levels": tree.levels,
            "pages_written": m.pages_written,
        })),
        "cache": m.tree.map(|tree| json!({
            "bytes": tree.cache_bytes,
            "misses_per_op": m.misses_per_op,
        })),
        "host_ns_per_op": setup.real.then_some(host),
        "processor_share": m.share,
        "log": m.log.map(|log| json!({
            "collected": log.collected,
            "moved": log.moved,
            "checkpoints": log.checkpoints,
            "checkpoint_blocks": log.checkpoint_blocks,
        })),
        "drive_work": {
            "taken": m.tree.map(|_| m.blocks_written),
            "programmed": m.work.programmed,
            "collections": m.work.collections,
            "checkpoints": m.work.checkpoints,
        },
        "write_amplification": {
            "store": m.store_amplification(),
            "drive": m.drive_amplification(),
        },
        "new_drive": m.new_drive,
        "missing": m.missing,
        "errors": m.errors,
        "interrupted": m.interrupted,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn percentiles(latency: &::measure::Histogram) -> String {
    let (all, show) = (latency.summary(), |ns: Option<u64>| {
        ns.map_or("-".into(), |ns| units::time_ns(ns as f64))
    });
    let (half, most, nearly) = (show(all.p50), show(all.p99), show(all.p999));
    format!("{} ops, median {half}, 99 % {most}, 99.9 % {nearly}", latency.count())
}

/// In words.
fn to_text(setup: &Setup, m: &Measured) -> String {
    let mut text = format!(
        "ycsb {} on {}, store {}{}, {} clients, {} time\n",
        setup.workload,
        setup.drive.name,
        setup.store.name(),
        if setup.durable { "" } else { ", not durable" },
        setup.clients,
        if setup.real { "real" } else { "virtual" },
    );
    let mut line = |what: &str, says: String| text += &format!("  {what:<12} {says}\n");
    line(
        "throughput",
        format!(
            "{} ops/s, {} ops in {}",
            units::count(m.rate()),
            m.ops,
            units::time_ns(m.seconds * 1e9)
        ),
    );
    for (kind, latency) in &m.latency {
        line(kind.name(), percentiles(latency));
    }
    let (records, value) = (setup.records, units::size_binary(setup.value as u64));
    match m.tree {
        Some(TreeSize { pages, levels, cache_bytes }) => {
            line("tree", format!("{records} records of {value}, {pages} pages, {levels} levels"));
            let bytes = units::bytes_decimal(cache_bytes as f64);
            line("cache", format!("{bytes}, {:.2} misses an op", m.misses_per_op));
        }
        None => line("records", format!("{records} of {value}")),
    }
    if setup.real {
        let each = |ns: u64| units::time_ns(ns as f64 / m.ops as f64);
        let parts = parts(&m.host).map(|(name, ns)| format!("{name} {}", each(ns)));
        line("host, an op", format!("{} busy: {}", each(m.host.busy()), parts.join(", ")));
    } else {
        line("host", "its work takes no time: this is the drive's".into());
    }
    let amplification = |part: Option<f64>| part.map_or("-".into(), |x| format!("{x:.2}"));
    let drive = amplification(m.drive_amplification());
    line(
        "writes",
        match m.tree {
            Some(_) => format!(
                "{} pages of the tree; store writes {} times as much, drive {drive} times that",
                m.pages_written,
                amplification(m.store_amplification()),
            ),
            None => format!("{} blocks of records; drive {drive} times that", m.work.user),
        },
    );
    if let Some(log) = &m.log {
        line(
            "log",
            format!(
                "{} segments collected, {} pages moved, {} checkpoints",
                log.collected, log.moved, log.checkpoints
            ),
        );
    }
    let collections = units::exactly(m.work.collections, "collection");
    line(
        "drive",
        match m.tree {
            Some(_) => format!("{collections}, {} checkpoints", m.work.checkpoints),
            None => collections,
        },
    );
    if m.new_drive {
        let text = "it never collected: rates fall once it was written over; more --ops, or a \
                    smaller size=";
        line("new drive", text.into());
    }
    if m.interrupted {
        line("stopped", "before its end: the figures are those so far".into());
    }
    text
}
