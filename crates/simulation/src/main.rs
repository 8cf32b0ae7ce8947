//! `simulate`: lives from seeds, scripts cut at every event, and breaks of
//! the contract that must be found.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use serde::Serialize;
use simulation::nature::Kind;
use simulation::script::{SCRIPTS, Script, drives};
use simulation::{Break, Counts, Outcome, Over, Plan, live};

/// Lines of a failing block's history that are printed.
const TRACE_LINES: usize = 60;

/// Seconds of processor time in which each break must be found: on the wall they
/// would be fewer lives on a machine that is busy.
const BREAK_SECONDS: f64 = 180.0;

/// The whole stack in virtual time: power cuts, recovery, and a check of all
/// that was promised.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// One life: this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed of many.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many lives; without, as many as there is time for.
    #[arg(long)]
    lives: Option<u64>,
    /// Cycles of a life: work, cut, recovery, check.
    #[arg(long, default_value_t = 32)]
    cycles: u64,
    /// Stop after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Stop after so many hours.
    #[arg(long)]
    hours: Option<f64>,
    /// Lives at once, each on a core of its own.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Print the history of this block; with --seed.
    #[arg(long)]
    trace: Option<u64>,
    /// Break the contract in this way; with --seed or to see what finds it.
    #[arg(long = "break", value_parser = broken)]
    broken: Option<Break>,
    /// Live with the batched target.
    #[arg(long)]
    batched: bool,
    /// Live with the block layer.
    #[arg(long, conflicts_with = "batched")]
    layered: bool,
    /// Live with the key-value tree.
    #[arg(long, conflicts_with_all = ["batched", "layered"])]
    tree: bool,
    /// Live with the key-value target.
    #[arg(long, conflicts_with_all = ["batched", "layered", "tree"])]
    keyed: bool,
    /// Live with the Redis server.
    #[arg(long, conflicts_with_all = ["batched", "layered", "tree", "keyed"])]
    served: bool,
    /// Live with targets of blocks and one of keys that share a drive.
    #[arg(long, conflicts_with_all = ["batched", "layered", "tree", "keyed", "served"])]
    shared: bool,
    /// Live only the lives whose drive, in words, has this; may be given again.
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Break the contract in every way, each until it is found.
    #[arg(long)]
    breaks: bool,
    /// Try every cut of every script, and no lives.
    #[arg(long)]
    scripts: bool,
    /// Do not stop at the first violation; print each.
    #[arg(long)]
    keep_going: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// What all lives are about, and the option that says so.
    fn over(&self) -> Option<(Over, &'static str)> {
        let all = [
            (self.batched, Over::Batches, " --batched"),
            (self.layered, Over::Layers, " --layered"),
            (self.tree, Over::Trees, " --tree"),
            (self.keyed, Over::Keys, " --keyed"),
            (self.served, Over::Served, " --served"),
            (self.shared, Over::Shared, " --shared"),
        ];
        all.into_iter().find(|one| one.0).map(|(_, over, option)| (over, option))
    }

    /// Whether the life of a seed is one of those that are to be lived.
    fn is_wanted(&self, seed: u64) -> bool {
        let words = || plan(self, seed).in_words();
        self.only.is_empty() || self.only.iter().all(|only| words().contains(only))
    }
}

fn broken(name: &str) -> Result<Break, String> {
    let known = || Break::all().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
    Break::named(name).ok_or_else(|| format!("the breaks are {}", known()))
}

/// What is printed at the end.
#[derive(Default, Serialize)]
struct Report {
    from: u64,
    /// The first seed that was not tried.
    to: u64,
    cycles_each: u64,
    seconds: f64,
    cycles_per_minute: f64,
    /// Processor time, of all jobs together.
    cpu_seconds: f64,
    cycles_per_cpu_minute: f64,
    #[serde(flatten)]
    counts: Counts,
    /// Over all lives; the order does not matter.
    hash: String,
    /// Seeds, and what they found.
    violations: Vec<(u64, String)>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let good = if args.breaks {
        find_breaks(&args)
    } else if args.scripts {
        try_scripts()
    } else {
        many(&args)
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan(args: &Args, seed: u64) -> Plan {
    let Args { cycles, broken, trace: traced, .. } = *args;
    let over = args.over().map(|(over, _)| over);
    Plan { seed, cycles, broken, traced, over }
}

/// A life; a panic of the stack is a violation, too. Where something is broken
/// on purpose only that of an assertion is, and is not printed: another one
/// found nothing.
fn caught(plan: &Plan) -> Outcome {
    simulation::note_panics(plan.broken.is_some());
    let lived = std::panic::catch_unwind(|| live(plan));
    lived.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        let said = words.unwrap_or_default();
        let counts = plan.broken.is_none() || simulation::meant(&said);
        let words = format!("panicked: {said}");
        let violation = counts.then_some(simulation::Violation { block: None, words });
        Outcome { counts: Counts::default(), hash: 0, violation, trace: Vec::new() }
    })
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Lives until all seeds, or the time, are used up.
fn many(args: &Args) -> bool {
    let (from, lives) = match args.seed {
        Some(seed) => (seed, Some(1)),
        None => (args.from, args.lives),
    };
    let minutes = args.hours.map(|hours| hours * 60.0).or(args.minutes);
    let minutes = minutes.unwrap_or(if lives.is_some() { f64::INFINITY } else { 1.0 });
    let (start, cpu_before) = (Instant::now(), cpu_seconds());
    let (next, stop) = (AtomicU64::new(from), AtomicBool::new(false));
    let report = Mutex::new((Report::default(), 0u64));
    let worker = || loop {
        let late = start.elapsed().as_secs_f64() >= minutes * 60.0;
        if late || stop.load(Ordering::Relaxed) {
            return;
        }
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if lives.is_some_and(|lives| seed >= from + lives) {
            return;
        }
        if !args.is_wanted(seed) {
            continue;
        }
        let outcome = caught(&plan(args, seed));
        let mut report = report.lock().expect("no thread panics while it holds it");
        report.0.counts += outcome.counts;
        report.0.to = report.0.to.max(seed + 1);
        report.1 = report.1.wrapping_add(workload::rng::mix(outcome.hash ^ seed));
        if args.trace.is_some() {
            outcome.trace.iter().for_each(|line| eprintln!("{line}"));
        }
        if let Some(violation) = outcome.violation {
            report.0.violations.push((seed, violation.words.clone()));
            explain(args, seed, violation.block);
            stop.store(!args.keep_going, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..args.jobs.max(1)).for_each(|_| {
            scope.spawn(worker);
        });
    });
    let (mut report, hash) = report.into_inner().expect("all threads ended");
    (report.from, report.cycles_each, report.hash) = (from, args.cycles, format!("{hash:016x}"));
    report.seconds = start.elapsed().as_secs_f64();
    report.cycles_per_minute = report.counts.cycles as f64 * 60.0 / report.seconds;
    report.cpu_seconds = cpu_seconds() - cpu_before;
    report.cycles_per_cpu_minute = report.counts.cycles as f64 * 60.0 / report.cpu_seconds;
    print(args, &report);
    report.violations.is_empty()
}

/// Prints what a violation is about, how to see it again, and its block's
/// history.
fn explain(args: &Args, seed: u64, block: Option<u64>) {
    let outcome = caught(&Plan { traced: block, ..plan(args, seed) });
    let words = outcome.violation.map_or("not seen again".into(), |v| v.words);
    eprintln!("seed {seed}: {words}");
    eprintln!("  drive: {}", plan(args, seed).in_words());
    let skip = outcome.trace.len().saturating_sub(TRACE_LINES);
    outcome.trace[skip..].iter().for_each(|line| eprintln!("  {line}"));
    let trace = block.map_or(String::new(), |block| format!(" --trace {block}"));
    let over = args.over().map_or("", |(_, option)| option);
    let broken = args.broken.map_or(String::new(), |one| format!(" --break {one:?}"));
    eprintln!("again: simulate --seed {seed} --cycles {}{over}{broken}{trace}", args.cycles);
}

fn kind(kind: &Kind) -> String {
    format!("{} lives, {} cycles", kind.lives, kind.cycles)
}

fn print(args: &Args, report: &Report) {
    if args.json {
        println!("{}", serde_json::to_string(report).expect("a report is plain data"));
        return;
    }
    let c = &report.counts;
    println!(
        "seeds {}..{} of {} cycles: {} lives",
        report.from, report.to, report.cycles_each, c.lives
    );
    println!(
        "{} cycles in {:.1} s, {:.0} a minute, {:.0} a minute of processor time; {} with collection",
        c.cycles,
        report.seconds,
        report.cycles_per_minute,
        report.cycles_per_cpu_minute,
        c.cycles_collecting
    );
    println!(
        "{} cuts at work, {} of them of a cache, {} in recovery, {} of these after its first \
         program; {} clean closes",
        c.cuts, c.cached_cuts, c.cut_recoveries, c.cut_writing_recoveries, c.clean_closes
    );
    println!(
        "{} requests: {} reads, {} flushes, {} trims, {} with FUA",
        c.requests, c.reads, c.flushes, c.trims, c.fua
    );
    let s = &c.struck;
    println!(
        "faults: {} blocks not read, {} programs, {} erases failed, {} operations late",
        s.reads, s.programs, s.erases, s.delays
    );
    println!(
        "{} errors to the host, {} blocks lost, {} recoveries refused, {} ends of life, {} drives \
         replaced, {} lives without a drive",
        c.errors, c.lost, c.refusals, c.ends_of_life, c.replaced, c.over
    );
    println!(
        "flash that wears: {}; {} chunks went bad, {} were from the factory; SLC caches: {}",
        kind(&c.wearing),
        c.bad_chunks - c.factory_bad,
        c.factory_bad,
        kind(&c.slc)
    );
    println!(
        "protected caches: {}; {} starts frozen, {} blocks withheld",
        kind(&c.protected),
        c.frozen,
        c.withheld
    );
    println!(
        "drive files: {}; {} kills, {} crashes, {} syncs that lost something, {} stops by other \
         errors, {} not opened as the disk was away",
        kind(&c.on_disk),
        c.disk.disk_kills,
        c.disk.disk_crashes,
        c.disk.disk_errors,
        c.disk.disk_stops,
        c.disk.disk_away
    );
    println!("block layer: {}; {} requests merged", kind(&c.layered), c.merged);
    println!("maps of larger units: {}", kind(&c.coarse));
    println!(
        "maps not all in memory: {}; {} pages read as they were needed",
        kind(&c.mapped),
        c.map_reads
    );
    println!("read caches: {}; {} reads answered", kind(&c.read_cached), c.cache_hits);
    println!(
        "parity: {}; {} blocks not read by members, {} superblocks closed for that",
        kind(&c.parity),
        s.members,
        s.closed
    );
    println!("trees: {}", kind(&c.trees));
    println!(
        "Redis servers: {}; {} replies seen, {} cuts after a failed write or flush",
        kind(&c.served),
        c.replies,
        c.failed_stores
    );
    println!("key-value target: {}", kind(&c.keyed));
    println!(
        "targets of blocks and keys: {}; {} targets of keys left, {} came",
        kind(&c.shared),
        c.tenants_left,
        c.tenants_came
    );
    println!("batched target: {}; {} batches", kind(&c.batched), c.batches);
    println!(
        "media that damage: {}; {} operations harmed, {} reads found damage",
        kind(&c.damaged),
        s.damage,
        s.detected
    );
    println!("{} collections, {} blocks copied, {} erases", c.collections, c.copied, c.erases);
    println!("{} violations; hash {}", report.violations.len(), report.hash);
}

/// Tries each break on lives until it is found.
fn find_breaks(args: &Args) -> bool {
    let mut all = true;
    for broken in Break::all() {
        let start = cpu_seconds();
        let (mut cycles, mut found) = (0, None);
        for seed in args.from.. {
            let outcome = caught(&Plan { broken: Some(broken), ..plan(args, seed) });
            cycles += outcome.counts.cycles;
            if let Some(violation) = outcome.violation {
                found = Some((seed, violation.words));
            }
            if found.is_some() || cpu_seconds() - start > BREAK_SECONDS {
                break;
            }
        }
        let seconds = cpu_seconds() - start;
        all &= found.is_some();
        print_break(args, broken, cycles, seconds, found);
    }
    all
}

fn print_break(
    args: &Args,
    broken: Break,
    cycles: u64,
    seconds: f64,
    found: Option<(u64, String)>,
) {
    if args.json {
        let found = found.map(|(seed, words)| serde_json::json!({ "seed": seed, "saw": words }));
        let name = format!("{broken:?}");
        println!(
            "{}",
            serde_json::json!({ "break": name, "cycles": cycles, "seconds": seconds, "found": found })
        );
        return;
    }
    let (seed, words) = match &found {
        Some((seed, words)) => (format!("seed {seed}"), words.as_str()),
        None => ("NOT FOUND".into(), ""),
    };
    let short: String = words.chars().take(90).collect();
    println!("{:<18} {cycles:>6} cycles {seconds:>7.3} s  {seed}: {short}", format!("{broken:?}"));
}

/// Tries every cut of every script on every drive.
fn try_scripts() -> bool {
    let mut good = true;
    for (name, text) in SCRIPTS {
        let script = Script::parse(name, text).expect("the scripts are tested");
        for (drive, setup) in &drives() {
            let start = Instant::now();
            match script.explore(setup) {
                Ok(explored) => println!(
                    "{name} on {drive}: {} runs, {} cut, {} in recovery, {} collections, {:.2} s",
                    explored.runs,
                    explored.cut,
                    explored.cut_recoveries,
                    explored.collections,
                    start.elapsed().as_secs_f64()
                ),
                Err(found) => {
                    good = false;
                    println!("VIOLATION on {drive}: {found}");
                }
            }
        }
    }
    good
}
