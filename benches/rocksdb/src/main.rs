//! `rocksdb-beside`: YCSB on RocksDB on an emulated drive.

use std::process::ExitCode;

use btree::StoreKind;
use clap::Parser;
use measure::units;
use rocksdb_beside::ycsb::{Beside, Measured, measure};
use serde_json::{Value, json};
use ssdkit::Error;
use ssdkit::drive::DriveSpec;
use ssdkit::ycsb::setup::size_for;
use ssdkit::ycsb::{self, CacheSize, Setup};
use workload::ycsb::Workload;

fn size(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|e| e.to_string())
}

/// A value tells its record and version.
fn value(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    let fits = (16..=1 << 20).contains(&bytes);
    fits.then_some(bytes as usize).ok_or_else(|| "a value has 16 B to 1 MiB".into())
}

fn workload(text: &str) -> Result<Workload, String> {
    text.to_ascii_lowercase().parse().map_err(|e: workload::ycsb::NoWorkload| e.to_string())
}

/// Two cores, as `0,1`.
fn cores(text: &str) -> Result<(usize, usize), String> {
    let pair = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    pair.ok_or_else(|| "write two cores, as 0,1".into())
}

/// YCSB on RocksDB on an emulated drive, beside `ssdkit ycsb`.
#[derive(Parser, Debug)]
struct Args {
    /// The drive, as `ssdkit bench` takes it; it must be in memory.
    #[arg(default_value = "mem:znand,planes=2,pages=64")]
    drive: String,
    /// A to F, or paper.
    #[arg(long, default_value = "paper", value_parser = workload)]
    ycsb: Workload,
    /// Records that are loaded.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    records: u64,
    /// Operations that are counted.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    ops: u64,
    /// Bytes of each value.
    #[arg(long, default_value = "1000", value_parser = value)]
    value: usize,
    /// Bytes for blocks, indexes, filters and memtables together.
    #[arg(long, value_parser = size)]
    cache: u64,
    /// Of these, for memtables at most [default: a quarter].
    #[arg(long, value_parser = size)]
    memtables: Option<u64>,
    /// Each write is durable when it returns.
    #[arg(long)]
    sync: bool,
    /// Operations under way at once, each on a thread.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=512))]
    threads: u64,
    /// RocksDB's threads for flushes and compactions.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(i32).range(1..=64))]
    background: i32,
    /// The host's core and the controller's.
    #[arg(long, default_value = "0,1", value_parser = cores)]
    cores: (usize, usize),
    /// Where random numbers begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Checks all that is read, and at the end all records.
    #[arg(long)]
    verify: bool,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
}

fn setup(args: &Args) -> Result<Setup, Error> {
    let DriveSpec::Memory(spec) = args.drive.parse()? else {
        return Err(Error::Usage(format!("{} is not in this process: take mem:", args.drive)));
    };
    if args.cache < 8 << 20 {
        return Err(Error::Usage("--cache must be 8M or more: memtables come out of it".into()));
    }
    Ok(Setup {
        drive: ycsb::drive(&spec, size_for(args.ycsb, args.records, args.ops, true, args.value))?,
        workload: args.ycsb,
        records: args.records,
        ops: args.ops,
        cache: CacheSize::Bytes(args.cache),
        store: StoreKind::Log.into(),
        value: args.value,
        durable: true,
        clients: args.threads as usize,
        controller: 0,
        seed: args.seed,
        real: true,
        verify: args.verify,
    })
}

fn to_json(args: &Args, beside: &Beside, m: &Measured) -> Value {
    let latency: serde_json::Map<String, Value> =
        m.latency.iter().map(|(kind, l)| (kind.name().into(), json!(l.summary()))).collect();
    let (c, d, w) = (&m.counters, &m.disk, &m.work);
    json!({
        "drive": args.drive, "workload": args.ycsb.to_string(), "records": args.records,
        "value": args.value,
        "cache": beside.cache, "memtables": beside.memtables, "sync": beside.sync,
        "threads": beside.threads, "seed": args.seed,
        "ops": m.ops, "seconds": m.seconds, "ops_per_second": m.rate(), "latency_ns": latency,
        "host_cpu_ns_per_op": m.host_cpu.map(|ns| ns as f64 / m.ops as f64),
        "rocksdb": {
            "block_hits": c.block_hits, "block_misses": c.block_misses, "stalls_us": c.stalls_us,
            "wal_bytes": c.wal_bytes, "flush_bytes": c.flush_bytes,
            "compaction_read": c.compaction_read, "compaction_written": c.compaction_written,
        },
        "disk": {
            "reads": d.reads, "blocks_read": d.blocks_read, "writes": d.writes,
            "blocks_written": d.blocks_written, "flushes": d.flushes,
        },
        "drive_work": {
            "user": w.user, "programmed": w.programmed, "collections": w.collections,
        },
        "missing": m.missing, "errors": m.errors,
    })
}

fn to_text(args: &Args, beside: &Beside, m: &Measured) -> String {
    let (c, d, w) = (&m.counters, &m.disk, &m.work);
    let mb = |bytes: u64| units::bytes_decimal(bytes as f64);
    let mut text = format!(
        "ycsb {} on {}, RocksDB, {}, {} threads\n  throughput   {} ops/s, {} ops in {:.3} s\n",
        args.ycsb,
        args.drive,
        if beside.sync { "each write synced" } else { "log written as it fills" },
        beside.threads,
        units::count(m.rate()),
        m.ops,
        m.seconds,
    );
    for (kind, latency) in &m.latency {
        let at = |p: f64| latency.percentile(p).map_or("-".into(), |ns| units::time_ns(ns as f64));
        let (half, most) = (at(50.0), at(99.0));
        text +=
            &format!("  {:<12} {} ops, median {half}, 99 % {most}\n", kind.name(), latency.count());
    }
    let lookups = (c.block_hits + c.block_misses).max(1);
    text += &format!(
        "  cache        {}, of it memtables {}; {:.1} % of data blocks missed\n",
        mb(beside.cache),
        mb(beside.memtables),
        c.block_misses as f64 * 100.0 / lookups as f64,
    );
    if let Some(ns) = m.host_cpu {
        text += &format!(
            "  host, an op  {} of processor time, {:.0} % of one core\n",
            units::time_ns(ns as f64 / m.ops as f64),
            ns as f64 / m.seconds / 1e7,
        );
    }
    text += &format!(
        "  writes       log {}, memtables {}, compaction {}; held up {:.3} s\n",
        mb(c.wal_bytes),
        mb(c.flush_bytes),
        mb(c.compaction_written),
        c.stalls_us as f64 / 1e6,
    );
    text += &format!(
        "  drive        {} reads of {}, {} written, {} flushes; programmed {} blocks\n",
        d.reads,
        mb(d.blocks_read * port::BLOCK_BYTES),
        mb(d.blocks_written * port::BLOCK_BYTES),
        d.flushes,
        w.programmed,
    );
    text
}

fn run(args: &Args) -> Result<(), Error> {
    let setup = setup(args)?;
    let beside = Beside {
        cache: args.cache,
        memtables: args.memtables.unwrap_or(args.cache / 4),
        sync: args.sync,
        threads: args.threads as usize,
        background: args.background,
        cores: Some(args.cores),
    };
    let measured = measure(&setup, &beside)?;
    if args.json {
        println!("{:#}", to_json(args, &beside, &measured));
    } else {
        print!("{}", to_text(args, &beside, &measured));
    }
    match measured.first_error {
        Some(first) => Err(Error::Failed(format!(
            "{} operations failed or gave wrong data, first: {first}",
            measured.errors
        ))),
        None => Ok(()),
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rocksdb-beside: {e}");
            ExitCode::FAILURE
        }
    }
}
