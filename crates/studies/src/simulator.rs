//! Study `simulator`: random 4 KB writes to four kinds of drive (Bjørling's
//! thesis, chapter 5, figure 2).
//!
//! The text gives no height of any bar of figure 2, so nothing is held
//! against one. What it says in words of pairs of bars is held as an order.
//! Beside that: the simulated drive against the sum of its parts, the same
//! drive live against itself in virtual time, and the drive of chapter 6,
//! table 3. Then [`software`] its collection, wear leveling and accounts, and [`live`] a
//! file system of the kernel on it.

pub mod live;
pub mod software;

use std::time::{Duration, Instant};

use port::BLOCK_BYTES;
use serde_json::{Value, json};
use workload::Pattern;

use super::file::Target;
use super::lab::config;
use super::queue_pair::QueuePair;
use super::{Findings, Lab, Reference, Row, Run, Runs, Study, kernel_runs};
use drive::error::Error;
use drive::spec::DriveConfig;
use drive::stack;
use load::cpu::CpuTime;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::watch::Watch;

/// The study.
pub const STUDY: Study = Study {
    name: "simulator",
    about: "a simulated drive beside a null device, memory and real storage, and live below a \
            file system (thesis, ch. 5)",
    run,
};

const FIGURE: &str = "thesis ch. 5, figure 2: random 4 KB write IOPS";
const TABLE: &str = "thesis ch. 6: OpenSSD (table 3) and the NVMe null device (section 6)";
const OURS: &str = "ours: the simulator against itself";
const NO_BAR: &str = "the bars of the figure have no numbers in the text";

/// Requests outstanding, but where depth 1 is said.
const DEPTH: usize = 32;
/// Simulated NAND: 8 channels of 8 dies, data kept in memory.
const NAND: &str = "mem:ref,size=1G";
/// A drive without time, data kept in memory. Three quarters to spare, so that
/// collection finds next to nothing to move.
const MEMORY: &str = "mem:null,size=128M,spare=0.75";
/// The same, keeping nothing: a null device.
const NULL: &str = "mem:null,size=128M,spare=0.75,store=none";
/// The NVMe null device of chapter 6: 380 MB/s of 4 KB.
const NULL_OF_CHAPTER_6: f64 = 380e6 / BLOCK_BYTES as f64;
/// Random writes of table 3, OpenSSD with LightNVM.
const TABLE_3: f64 = 4058.0;

/// What all of them gave, in IOPS.
struct Measured {
    null_pair: Runs,
    null_pair_alone: Runs,
    null_inline_alone: Runs,
    nand_virtual: Runs,
    nand_live: Runs,
    memory: Runs,
    storage: Runs,
    storage_how: &'static str,
    openssd: Runs,
    openssd_few: Runs,
}

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    kernel_runs::check(lab)?;
    let measured = measure(lab)?;
    let mut rows = figure(&measured);
    rows.extend(table(&measured));
    rows.extend(itself(&measured, programs_per_second(&config(NAND)?)));
    rows.extend(software::rows(lab)?);
    rows.extend(live::rows(lab, &measured.null_pair)?);
    Ok(Findings::new(rows, notes(&measured)))
}

fn measure(lab: &mut Lab) -> Result<Measured, Error> {
    let nand =
        |time: &str| format!("{NAND} --rw randwrite --qd {DEPTH} --ramp 100ms --time {time}");
    let null = |drive: &str, qd: usize, time: &str| {
        format!("{drive} --rw randwrite --qd {qd} --ramp 300ms --time {time} --clock real")
    };
    let (nand, time) = (nand(lab.options.pick("900ms", "200ms")), lab.options.pick("1s", "200ms"));
    let openssd =
        |keys: &str| format!("mem:openssd,size=256M{keys} --rw randwrite --qd 2 --ios 32768");
    let nand_live = format!("{nand} --clock real");
    let (storage, storage_how) = storage(lab)?;
    Ok(Measured {
        storage,
        storage_how,
        null_pair: null_pair(lab, DEPTH)?,
        nand_virtual: lab.iops("simulated NAND, virtual time", &nand)?,
        nand_live: lab.iops("simulated NAND, live", &nand_live)?,
        memory: lab.iops("memory", &null(MEMORY, DEPTH, time))?,
        null_pair_alone: null_pair(lab, 1)?,
        null_inline_alone: lab.iops("null device, no queue pair, depth 1", &null(NULL, 1, time))?,
        openssd: lab.iops("OpenSSD profile", &openssd(""))?,
        openssd_few: lab.iops("OpenSSD profile, 1 PU a channel", &openssd(",pus=1"))?,
    })
}

/// The rows of figure 2.
fn figure(m: &Measured) -> Vec<Row> {
    let silent = |what: &str, runs: &Runs, why: &str| {
        Row::shown(FIGURE, what, "IOPS", Reference::Silent, runs.clone(), why)
    };
    let cost =
        m.null_pair_alone.with(&m.null_inline_alone, |pair, inline| 1e9 / pair - 1e9 / inline);
    let storage = "real storage, for OpenSSD";
    vec![
        silent("real storage, in the place of OpenSSD", &m.storage, NO_BAR),
        silent("null device behind a queue pair", &m.null_pair, NO_BAR),
        silent("simulated NAND, 8 channels, live", &m.nand_live, NO_BAR),
        silent("memory", &m.memory, NO_BAR),
        Row::order(
            FIGURE,
            "IOPS",
            "in-memory \"shows the IOPS without simulating NVM timings\"",
            [("memory", m.memory.clone()), ("simulated NAND, live", m.nand_live.clone())],
        ),
        Row::order(
            FIGURE,
            "IOPS",
            "the null device \"completes an IO as it is submitted\", OpenSSD has SATA and flash",
            [("null device", m.null_pair.clone()), (storage, m.storage.clone())],
        ),
        Row::order(
            FIGURE,
            "IOPS",
            "OpenSSD gives \"tens of thousands IOPS\"; it is simulated to get beyond (ch. 8)",
            [("simulated NAND", m.nand_virtual.clone()), ("profile openssd", m.openssd.clone())],
        ),
        Row::sign(
            FIGURE,
            "a queue pair's cost: null device, depth 1",
            "ns",
            "the null device \"shows the overhead of communicating with the hardware\"",
            cost,
            true,
        ),
        Row::shown(
            FIGURE,
            "memory / null device behind a queue pair",
            "x",
            Reference::Silent,
            m.memory.with(&m.null_pair, |memory, null| memory / null),
            "their null device is bound by the PCIe bus, ours by nothing like it: no copy, no bus",
        ),
    ]
}

/// The rows of chapter 6.
fn table(m: &Measured) -> Vec<Row> {
    let shown = |what: &str, paper, runs: &Runs, why: &str| {
        Row::shown(TABLE, what, "IOPS", Reference::Paper(paper), runs.clone(), why)
    };
    let assumed = "parallel units a channel and buffer are not in the text: 4 PUs are assumed";
    let few = "as above, with the least that 2 channels can have";
    let bus = "380 MB/s is their bus; ours has none";
    vec![
        shown("OpenSSD, host-managed, random write, depth 2", TABLE_3, &m.openssd, assumed),
        shown("the same, 1 parallel unit a channel", TABLE_3, &m.openssd_few, few),
        shown("NVMe null device, 4 KB, 380 MB/s", NULL_OF_CHAPTER_6, &m.null_pair, bus),
    ]
}

/// The rows that hold the simulator against itself. `model` is the sum of its
/// parts, in IOPS.
fn itself(m: &Measured, model: f64) -> Vec<Row> {
    let live = Reference::Model(m.nand_virtual.median());
    vec![
        Row::band(
            OURS,
            "simulated NAND: all dies programming, by hand",
            "IOPS",
            Reference::Model(model),
            m.nand_virtual.clone(),
            0.98..=1.02,
        ),
        Row::band(
            OURS,
            "simulated NAND: live against virtual time",
            "IOPS",
            live,
            m.nand_live.clone(),
            0.9..=1.05,
        ),
    ]
}

fn notes(m: &Measured) -> Vec<String> {
    vec![
        format!("real storage: {}, {DEPTH} writers of depth 1, on this machine's own disk", m.storage_how),
        "drives are fresh and collect next to nothing, as in ch. 6 (\"no garbage collection was \
         run\"); ch. 5 does not say"
            .into(),
        "depth 2 in ch. 6 is Little's law on table 3: IOPS times average latency is 1.99 to 2.00 in \
         every row"
            .into(),
        "table 3's firmware FTL, 721 IOPS, reads, modifies and writes below 16 KB: it is in study \
         lightnvm"
            .into(),
        "the byte-addressable interface is not here: in ch. 5 \"currently only 4K block IOs are \
         supported\""
            .into(),
        "the published bars of FRP and Moneta-D are not in the text and not repeated".into(),
        "a value in brackets is our own prediction, not the paper's; the rule of a row was fixed \
         before it was run"
            .into(),
    ]
}

/// Blocks a second that a drive programs when each die does nothing else:
/// command, transfer, tPROG, one after the other. Right where the channels
/// have time left, as a die programs for longer than the others transfer.
fn programs_per_second(config: &DriveConfig) -> f64 {
    let (geometry, timing) = (&config.geometry, &config.profile.timing);
    let row = geometry.row_blocks();
    let types = timing.program.len() as u64;
    let program = timing.program.iter().sum::<u64>() / types;
    let each = timing.command + timing.transfer(row) + program;
    f64::from(geometry.total_pus()) * f64::from(row) * 1e9 / each as f64
}

/// The null device behind a queue pair.
fn null_pair(lab: &mut Lab, depth: usize) -> Result<Runs, Error> {
    let config = config(NULL)?;
    let (seed, time) = (lab.options.seed, lab.options.pick(1_000_000_000, 200_000_000));
    let plan = Plan { ramp: 300_000_000, until: Until::Time(time), count: true };
    let what = format!("null device, queue pair, depth {depth}");
    let command = format!("{NULL} on a device thread, as `bench --rw randwrite --qd {depth}`");
    lab.repeat(&what, command, config.effective(), |watch| {
        null_pair_once(&config, depth, plan, seed, watch)
    })
}

fn null_pair_once(
    config: &DriveConfig,
    depth: usize,
    plan: Plan,
    seed: u64,
    watch: &mut Watch,
) -> Result<Run, Error> {
    let drive = stack::build(config, seed)?;
    let shape = drive.shape();
    let pattern = Pattern::uniform(shape.bytes, 0);
    let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: depth as u32 }, 1, seed)?;
    let mut pair = QueuePair::start(drive, depth, None)?;
    let mut runner = Runner::new(watch);
    let (wall, cpu) = (Instant::now(), CpuTime::now());
    let run = runner.run(&mut pair, &mut load, plan);
    let (wall, (user, system)) = (wall.elapsed().as_secs_f64(), CpuTime::now().since(&cpu));
    let tally = match run {
        Ok(tally) => tally,
        Err(error) => {
            pair.leave();
            return Err(error);
        }
    };
    pair.stop();
    if let Some(what) = tally.problem() {
        return Err(Error::Failed(what));
    }
    if tally.interrupted {
        return Err(Error::Failed("stopped before its end".into()));
    }
    let value = tally.all().count() as f64 / tally.seconds();
    // Two threads, both polling.
    Ok(Run { value, share: Some((user + system) / (2.0 * wall)) })
}

/// Real storage, and how it is written.
fn storage(lab: &mut Lab) -> Result<(Runs, &'static str), Error> {
    let (bytes, ms) = lab.options.pick((256 << 20, 2000), (32 << 20, 200));
    let seed = lab.options.seed;
    lab.watch.phase("writing a file");
    let target = Target::create(&lab.options.dir(), bytes)?;
    let configuration: Value =
        json!({ "size_bytes": bytes, "how": target.how(), "threads": DEPTH, "bs": BLOCK_BYTES });
    let command = format!("random 4 KiB writes to a file, {}", target.how());
    let runs = lab.repeat("real storage", command, configuration, |watch| {
        if !watch.look(0.0) {
            return Err(Error::Failed("stopped before its end".into()));
        }
        let time = Duration::from_millis(ms);
        let value = target.random_writes(DEPTH as u32, time, seed)?;
        Ok(Run { value, share: None })
    })?;
    let in_memory = "the file system is in memory, so it is no storage: give another --dir";
    let runs = if target.in_memory() { runs.voided(in_memory) } else { runs };
    Ok((runs, target.how()))
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict};
    use super::*;

    #[test]
    fn the_reference_drive_can_be_summed_by_hand() {
        // 64 dies of 2 blocks each 750 us and two blocks on the channel.
        let by_hand = 128.0 / (750e-6 + 24.601e-6);
        let ratio = programs_per_second(&config(NAND).unwrap()) / by_hand;
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    }

    /// What does not depend on this machine passes; all else is there.
    #[test]
    fn the_quick_study_has_all_rows() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { quick: true, dir: Some(dir.path().into()), ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let has_path = super::super::kernel_path::missing().is_none();
        let json = outcome.to_json();
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 30);
        assert_eq!(
            json["manifest"]["steps"].as_array().unwrap().len(),
            if has_path { 16 } else { 14 }
        );
        // Without the kernel's path its rows have no runs.
        let rows = rows
            .iter()
            .filter(|row| has_path || !row["figure"].as_str().unwrap().contains("live:"));
        let number = |v: &Value| v["median"].as_f64().is_some_and(|x| x.is_finite());
        for row in rows {
            let ours = &row["ours"];
            let all = ours
                .as_array()
                .map_or(number(ours), |all| all.iter().all(|one| number(&one["runs"])));
            assert!(all, "{row}");
        }
        for what in [
            "simulated NAND > profile openssd",
            "simulated NAND: all dies programming, by hand",
            "write amplification, by the formula",
            "most worn chunk from the mean: unleveled > leveled",
            "requests, by each core's account",
            "in flight, by them, in the end",
        ] {
            let row = outcome.rows.iter().find(|row| row.what() == what).unwrap();
            assert_eq!(row.verdict(), Verdict::Pass, "{}", row.to_json());
        }
    }
}
