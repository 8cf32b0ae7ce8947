//! Section 3, as far as software can: the log on memory that persists and the rest on
//! flash, and trims.

use measure::formula;
use workload::{Order, Pattern};

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::desk::{Desk, amplification, trims};
use super::{DRIVE, drive};
use drive::error::Error;

const LOG: &str = "section 3: log writes to persistent memory, the rest to flash";
const SYNCHRONOUS: &str = "\"synchronous patterns (log writes ...) should be directed to PCM-based \
                           SSDs ..., while asynchronous patterns ... to flash-based SSDs\"";
const TRIM: &str = "section 3: trim";
const UNMAPPED: &str = "\"a range of logical addresses were no longer used and could thus be \
                        un-mapped by the FTL\"";

/// The log's part of a drive that has pages, too, and the pages'.
const LOG_BYTES: &str = "64M";
/// What trims are measured on.
const SMALL: &str = "size=256M,groups=2";
/// The longest trim.
const TRIM_BYTES: u64 = 1 << 20;

/// The rows of these points.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let mut rows = log(lab)?;
    rows.extend(trim(lab)?);
    Ok(Findings::new(rows, vec![]))
}

/// Commits and pages a second, where a log has one durable write of 4 KiB at a time.
struct Commits {
    log: f64,
    pages: f64,
}

fn log(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let flash = beside(lab, "log beside pages on flash", "")?;
    let protected = beside(lab, "log beside pages, protected cache", ",cache=protected")?;
    let time = lab.options.pick("1s", "200ms");
    let args =
        format!("mem:pcm,size=64M,store=none --rw write --bs 4k --fua-every 1 --time {time}");
    let pcm = lab.bench("log on phase-change memory", &args)?.report.iops;
    let name = drive(lab, "");
    let (offset, length) = lab.options.pick(("64M", "960M"), ("64M", "192M"));
    let args = format!(
        "{name} --rw randrw --qd 16 --range {offset}+{length} --time {time} --precondition whole"
    );
    let pages = lab.bench("pages on flash alone", &args)?.report.iops;
    let order = |what, ours: [(&str, f64); 2]| {
        let ours = ours.map(|(name, iops)| (name, Runs::one(iops)));
        Row::order(LOG, what, SYNCHRONOUS, ours)
    };
    Ok(vec![
        order("commits/s", [("log on PCM", pcm), ("log beside pages on flash", flash.log)]),
        order("pages/s", [("pages alone on flash", pages), ("pages beside the log", flash.pages)]),
        order(
            "commits/s",
            [("log in the drive's protected memory", protected.log), ("on its flash", flash.log)],
        ),
    ])
}

/// A log and pages on one drive.
fn beside(lab: &mut Lab, what: &str, more: &str) -> Result<Commits, Error> {
    let name = drive(lab, more);
    let time = lab.options.pick("1s", "200ms");
    let length = lab.options.pick("960M", "192M");
    let args = format!(
        "{name} --rw write --bs 4k --fua-every 1 --range {LOG_BYTES} \
         --job rw=randrw,qd=16,range={LOG_BYTES}+{length} --time {time} --precondition whole"
    );
    let outcome = lab.bench(what, &args)?;
    let of = |job: usize| {
        let jobs = outcome.jobs.get(job).map(|job| job.to_json());
        jobs.and_then(|job| job["iops"].as_f64()).unwrap_or(f64::NAN)
    };
    Ok(Commits { log: of(0), pages: of(1) })
}

/// Random writes to half of a full drive, before and after the other half is trimmed.
fn trim(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let name = format!("{DRIVE},{SMALL}");
    let mut desk = Desk::new(&name, lab.options.seed)?;
    let (bytes, half) = (desk.shape.bytes, desk.shape.bytes / 2);
    desk.run(&Pattern::precondition(bytes), 32, bytes / (128 << 10), lab.watch)?;
    let blocks = half / port::BLOCK_BYTES;
    let writes = Pattern::uniform(half, 0);
    let full = steady(&mut desk, &writes, lab)?;
    let (order, trim_percent) = (Order::Sequential, 100);
    let gone = Pattern { offset: half, bs: TRIM_BYTES, order, trim_percent, ..writes };
    let trimmed = trims(&desk.run(&gone, 1, half / TRIM_BYTES, lab.watch)?);
    let after = steady(&mut desk, &writes, lab)?;
    let config = &desk.config;
    let all = u64::from(config.data_chunks()) * u64::from(config.above.total_pus());
    let physical = (all * u64::from(config.above.chunk_blocks())) as f64;
    let model = formula::greedy(1.0 - blocks as f64 / physical, config.above.chunk_blocks());
    let command = format!(
        "{name}: filled, {} random writes to its first half, {trimmed} trims of 1 MiB of the \
         second, the same writes again; the last third of each is counted",
        6 * blocks
    );
    lab.note_step("trims", command, config.effective());
    Ok(vec![
        Row::order(
            TRIM,
            "x",
            UNMAPPED,
            [("write amplification, half unused", Runs::one(full)), ("trimmed", Runs::one(after))],
        ),
        Row::band(
            TRIM,
            "write amplification, trimmed: the formula",
            "x",
            Reference::Model(model.unwrap_or(f64::NAN)),
            Runs::one(after),
            0.95..=1.05,
        ),
    ])
}

/// Write amplification of such writes when they have gone on for long.
fn steady(desk: &mut Desk, writes: &Pattern, lab: &mut Lab) -> Result<f64, Error> {
    let blocks = writes.length / port::BLOCK_BYTES;
    desk.run(writes, 64, 4 * blocks, lab.watch)?;
    Ok(amplification(&desk.run(writes, 64, 2 * blocks, lab.watch)?))
}
