//! Limits: tenants that share all units, and a rule that paces the one that writes as much as it
//! can.

use std::sync::Arc;

use drive::spec::DriveConfig;
use drive::stack::build;
use drive::whole::Drive;
use measure::Histogram;
use port::random::Random;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use rules::{Budget, check, parse};

use super::super::lab::config;
use super::super::{Findings, Lab, Reference, Row, Runs};
use super::{DRIVE, SILENT, over};
use drive::error::Error;

const POINT: &str = "sec. 3: quality of service";
const MECHANISM: &str = "\"AppNVM provides a mechanism for a future framework to provide QoS\"";
/// Writes of the second tenant that are out at once.
const DEPTH: u64 = 16;

/// Two tenants with half of the blocks each, and a limit for the second's writes.
fn set(blocks: u64, units: u64, limit: &str) -> Result<rules::Checked, Error> {
    let half = blocks / 2;
    let (declared, rule) = match limit {
        "" => (String::new(), String::new()),
        limit => (
            format!("limit pace {limit}\n"),
            "rule pace priority 3 when application == 1 and op == write then limit pace\n".into(),
        ),
    };
    let text = format!(
        "set paced
         application 0 lba 0..{half} units 0..{units}
         application 1 lba {half}..{blocks} units 0..{units}
         {declared}{rule}rule write priority 2 when op == write then place
         rule rest priority 1 when op != write and op != idle then pass"
    );
    let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
    let set = parse(&text).map_err(|e| failed(&e))?;
    check(set, &Budget::default()).map_err(|all| failed(&all[0]))
}

/// Latencies of the first tenant's reads, and how many writes the second got done a second.
struct Seen {
    reads: Histogram,
    writes: f64,
}

/// Both at once, of a drive that was written whole: from `ramp` on, for `time` ns.
fn measure(
    config: &DriveConfig,
    seed: u64,
    writes: bool,
    (ramp, time): (u64, u64),
) -> Result<Seen, Error> {
    let mut drive = build(config, seed)?;
    let (mut cmds, mut done) = (Ring::new(64), Ring::new(64));
    let (blocks, mut random) = (config.logical_blocks(), Random::new(seed, 1));
    let mut now = Time::ZERO;
    let ask = |cmds: &mut Ring<BlockReq>, id: u64, op, block: u64| {
        let (fua, placement, queue, buffer) = (false, 0, 0, Buffer::empty());
        let (offset, len) = (block * BLOCK_BYTES, BLOCK_BYTES);
        cmds.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
    };
    // All is written once.
    let (mut next, mut out) = (0, 0);
    while next < blocks || out > 0 {
        while next < blocks && out < 32 {
            ask(&mut cmds, 0, BlockOp::Write, next);
            (next, out) = (next + 1, out + 1);
        }
        drive.submit(now, &mut cmds);
        out -= step(&mut drive, &mut now, &mut done)?.len() as u64;
    }
    let (half, from) = (blocks / 2, now + ramp);
    let mut seen = Seen { reads: Histogram::new(), writes: 0.0 };
    let (mut read_at, mut reads, mut writing) = (now, true, if writes { DEPTH } else { 0 });
    while now < from + time {
        if std::mem::take(&mut reads) {
            read_at = now;
            ask(&mut cmds, 0, BlockOp::Read, random.bits() % half);
        }
        for _ in 0..std::mem::take(&mut writing) {
            ask(&mut cmds, 1, BlockOp::Write, half + random.bits() % half);
        }
        drive.submit(now, &mut cmds);
        for id in step(&mut drive, &mut now, &mut done)? {
            let counts = now >= from;
            if id == 0 {
                reads = true;
                if counts {
                    seen.reads.record(now.since(read_at));
                }
            } else {
                writing += 1;
                seen.writes += f64::from(u8::from(counts));
            }
        }
    }
    seen.writes /= time as f64 / 1e9;
    Ok(seen)
}

/// Goes on to the next event, and gives what completed.
fn step<D: Drive>(
    drive: &mut D,
    now: &mut Time,
    done: &mut Ring<port::BlockDone>,
) -> Result<Vec<u64>, Error> {
    let lost = || Error::Failed("a request was lost".into());
    let at = drive.next_event().ok_or_else(lost)?;
    *now = at.max(*now);
    drive.advance(at, done);
    let failed = |status| Error::Failed(format!("a request failed: {status}"));
    let ended = done.drain().map(|done| match done.status.is_ok() {
        true => Ok(done.id),
        false => Err(failed(done.status)),
    });
    ended.collect()
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let name = format!("{DRIVE},target=rules");
    let drive = config(&name)?;
    let (blocks, units) = (drive.logical_blocks(), u64::from(drive.above.total_pus()));
    let times =
        lab.options.pick((150_000_000_000, 60_000_000_000), (60_000_000_000, 20_000_000_000));
    let mut of = |what: &str, limit: &str, writes: bool| {
        let rules = Some(Arc::new(set(blocks, units, limit)?));
        let drive = DriveConfig { rules, ..drive.clone() };
        let command = format!("(in this process: {name}, tenants with the set paced)");
        lab.note_step(what, command, drive.effective());
        measure(&drive, lab.options.seed, writes, times)
    };
    let alone = of("the reader alone", "", false)?;
    let free = of("without a limit", "", true)?;
    let paced = of("writes limited", "rate 100 burst 4", true)?;
    let us = |seen: &Seen, percent: f64| {
        let ns = seen.reads.percentile(percent);
        Runs::one(ns.map_or(f64::NAN, |ns| ns as f64 / 1e3))
    };
    let ratio = |seen: &Seen, percent| over(&us(seen, percent), &us(&alone, percent));
    let shown = |what: &str, unit: &'static str, runs: Runs| {
        Row::shown(POINT, what, unit, Reference::Silent, runs, SILENT)
    };
    let rows = vec![
        Row::within(
            POINT,
            "writes limited to 100 a second: writes",
            "1/s",
            MECHANISM,
            Runs::one(paced.writes),
            99.0..=101.0,
        ),
        Row::within(
            POINT,
            "writes limited: p99 of reads, over alone",
            "x",
            MECHANISM,
            ratio(&paced, 99.0),
            0.95..=1.05,
        ),
        Row::order(
            POINT,
            "us",
            MECHANISM,
            [("p99.9, no limit", us(&free, 99.9)), ("p99.9, limited", us(&paced, 99.9))],
        ),
        shown("writes limited: p99.9 of reads, over alone", "x", ratio(&paced, 99.9)),
        shown("no limit: p99 of reads, over alone", "x", ratio(&free, 99.0)),
        shown("no limit: p99.9 of reads, over alone", "x", ratio(&free, 99.9)),
        shown("no limit: writes", "1/s", Runs::one(free.writes)),
    ];
    Ok(Findings { rows, notes: vec![], pictures: vec![] })
}
