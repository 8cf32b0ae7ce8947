//! "SSDs behave as to the non-volatile memory they contain" (section 2.3, 1): a die alone
//! beside the drive that is made of such dies.
//!
//! That the drive takes writes at all places has no row: a bench of which a request fails
//! ends the study.

use device::VectorOp;
use flash::Ppa;
use port::{self, Status};
use report::Plot;
use workload::Rng;

use super::super::lab::config;
use super::super::{Findings, Lab, Reference, Row, Runs};
use super::chip::{Chips, share};
use super::{drive, picture, power_of_two, thousands};
use drive::error::Error;
use drive::spec::DriveConfig;

const POINT: &str = "sec. 2.3 (1): \"SSDs behave as to the non-volatile memory they contain\"";
const REFUSES: &str = "\"(C3) writes must be sequential within a block\"";

/// One die of the drive.
const CHIP: &str = "mem:ref,groups=1,pus=1,erase=3ms,store=none";
/// Commands of a kind that it gets, fewer than a chunk has rows.
const COMMANDS: u32 = 200;
/// Requests out for the most that a drive does, and where else it is measured.
const DEPTHS: [u32; 6] = [1, 4, 16, 64, 256, 1024];

/// What one die does.
struct Chip {
    /// A lone write of a row, a lone read of a block, in ns.
    write: f64,
    read: f64,
    /// Blocks a second.
    writes: f64,
    reads: f64,
    /// Of writes at random places, in percent.
    refused: f64,
}

/// What a drive does with so many out: requests a second.
struct Curve(Vec<(u32, f64)>);

impl Curve {
    fn most(&self) -> f64 {
        self.0.iter().map(|point| point.1).fold(0.0, f64::max)
    }
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let chip = chip(lab)?;
    let name = drive(lab, "");
    let (mut writes, mut reads) = (Curve(vec![]), Curve(vec![]));
    let (mut lone_write, mut lone_read) = (f64::NAN, f64::NAN);
    let ios = lab.options.pick("50k", "10k");
    for depth in DEPTHS {
        for (rw, curve, lone) in
            [("randwrite", &mut writes, &mut lone_write), ("randread", &mut reads, &mut lone_read)]
        {
            let args = format!("{name} --rw {rw} --qd {depth} --ios {ios}");
            let outcome = lab.bench(&format!("{rw}, depth {depth}"), &args)?;
            curve.0.push((depth, outcome.report.iops));
            if depth == 1 {
                *lone = outcome.report.latency_ns.mean.unwrap_or(f64::NAN);
            }
        }
    }
    let rows = rows(&name, &chip, (&writes, &reads), (lone_write, lone_read))?;
    let pictures = plot(&chip, &writes, &reads).and_then(|plot| picture("myths-chip", &plot));
    Ok(Findings { rows, notes: vec![], pictures: pictures.into_iter().collect() })
}

fn rows(
    name: &str,
    chip: &Chip,
    (writes, reads): (&Curve, &Curve),
    (lone_write, lone_read): (f64, f64),
) -> Result<Vec<Row>, Error> {
    let config = config(name)?;
    let us = |ns: f64| Runs::one(ns / 1e3);
    let dies = f64::from(config.geometry.total_pus());
    let link = &config.profile.link;
    let beside = (link.controller + 2 * link.latency + link.wire(port::BLOCK_BYTES)) as f64;
    let parallel = parallel(&config, chip.reads);
    let of = |curve: &Curve, chip: f64| Runs::one(curve.most() / chip);
    Ok(vec![
        Row::order(
            POINT,
            "us",
            "\"a write I/O request completes as soon as it hits the cache\"",
            [("a die's write", us(chip.write)), ("the drive's", us(lone_write))],
        ),
        Row::band(
            POINT,
            "the drive's lone read, by hand: die, controller, link",
            "us",
            Reference::Model(chip.read / 1e3 + beside / 1e3),
            us(lone_read),
            0.99..=1.01,
        ),
        Row::band(
            POINT,
            "writes a second, drive / die: as many as dies",
            "x",
            Reference::Model(dies),
            of(writes, chip.writes),
            0.9..=1.1,
        ),
        Row::band(
            POINT,
            "reads a second, drive / die: what channels let pass",
            "x",
            Reference::Model(parallel),
            of(reads, chip.reads),
            0.8..=1.02,
        ),
        Row::within(
            POINT,
            "writes at random places that a die refuses",
            "%",
            REFUSES,
            Runs::one(chip.refused),
            90.0..=100.0,
        ),
    ])
}

/// How many times the reads of a die a drive can do: as many as it has dies, or fewer where
/// its channels, each with a command and a block at a time, do not let them pass.
fn parallel(config: &DriveConfig, of_a_die: f64) -> f64 {
    let timing = &config.profile.timing;
    let each = (timing.command + timing.transfer(1)) as f64;
    let channels = f64::from(config.geometry.dimensions().groups);
    (channels * 1e9 / each / of_a_die).min(f64::from(config.geometry.total_pus()))
}

/// Measures a die.
fn chip(lab: &mut Lab) -> Result<Chip, Error> {
    let mut chips = Chips::of(CHIP, lab.options.seed)?;
    let row = chips.geometry.row_blocks();
    let start = |chunk: u32| chips.geometry.chunk_start(chips.geometry.chunk_of(0, chunk));
    let (second, third) = (start(1), start(2));
    let ns = |(begin, end): (u64, u64)| (end - begin) as f64;
    let rate = |ended: &[super::chip::Ended], blocks: u32| {
        // Per cent of the time that all blocks would take at 1 ns each.
        share(ended, |_| u64::from(blocks)) * 1e7
    };
    let programmed = chips.stream(VectorOp::Write, 1, COMMANDS, row);
    let read = chips.stream(VectorOp::Read, 1, COMMANDS, 1);
    let lone = chips.alone(VectorOp::Write, second, row);
    let lone_read = chips.alone(VectorOp::Read, second, 1);
    let mut rng = Rng::new(lab.options.seed, 1);
    let rows = u64::from(chips.geometry.chunk_blocks() / row);
    let mut refused = 0;
    for _ in 0..COMMANDS {
        let ppa = Ppa(third.0 + rng.below(rows) * u64::from(row));
        refused += u32::from(chips.alone(VectorOp::Write, ppa, row).status != Status::SUCCESS);
    }
    let configuration = config(CHIP)?.effective();
    let command = format!("vector commands to {CHIP}, {COMMANDS} of each kind");
    lab.note_step("a die alone", command, configuration);
    Ok(Chip {
        write: ns(lone.span()),
        read: ns(lone_read.span()),
        writes: rate(&programmed, row),
        reads: rate(&read, 1),
        refused: 100.0 * f64::from(refused) / f64::from(COMMANDS),
    })
}

fn plot(chip: &Chip, writes: &Curve, reads: &Curve) -> Option<Plot> {
    let line = |name: &str, curve: &Curve| {
        let points = curve.0.iter().map(|&(depth, iops)| (f64::from(depth).log2(), iops));
        (name.to_string(), points.collect::<Vec<_>>())
    };
    let flat = |name: &str, iops: f64| {
        let depth = |depth: &u32| (f64::from(*depth).log2(), iops);
        (name.to_string(), DEPTHS.iter().map(depth).collect())
    };
    Some(Plot {
        caption: "Blocks of 4 KiB a second, of a drive and of one of its dies, by how many \
                  requests are out."
            .into(),
        along: ("requests out", power_of_two),
        height: ("blocks a second", thousands),
        is_log: true,
        lines: vec![
            line("the drive's reads", reads),
            line("the drive's writes", writes),
            flat("a die's reads", chip.reads),
            flat("a die's writes", chip.writes),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 dies on 8 channels, of which a read keeps its own busy for 10 us or more.
    #[test]
    fn commands_take_their_channels() {
        let of = |command: &str| {
            let config = config(&format!("mem:ref,store=none,command={command}")).unwrap();
            (config.profile.timing.transfer(1) as f64, parallel(&config, 11_000.0))
        };
        let (transfer, without) = of("0ns");
        assert!((without - 8e9 / transfer / 11_000.0).abs() < 1e-9, "{without}");
        let (_, with) = of("10us");
        assert!((with - 8e9 / (transfer + 1e4) / 11_000.0).abs() < 1e-9, "{with}");
        let config = config("mem:ref,store=none").unwrap();
        assert_eq!(parallel(&config, 1.0), 64.0);
    }
}
