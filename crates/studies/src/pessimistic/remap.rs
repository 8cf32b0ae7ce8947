//! Writes below the remap unit (Seppanen, sections II.A and V.A): what a drive that maps
//! 4 KiB does with less. In virtual time, on the paper's drive. Fails as a bench does.

use super::super::{Lab, Reference, Row, Runs};
use super::method::{PCIE, sized};
use drive::error::Error;

const REMAP: &str = "Seppanen, sections II.A and V.A: writes below the remap unit, virtual time";

/// All rows.
pub fn rows(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let drive = sized(PCIE, lab.options.pick("1G", "256M"));
    let ios = lab.options.pick("400k", "100k");
    let mut sizes = Vec::new();
    for bs in [512, 4096] {
        let args =
            format!("{drive} --rw randwrite --bs {bs} --qd 128 --ios {ios} --precondition seq");
        sizes.push(written(lab, &format!("random writes of {bs} B"), bs, &args)?);
    }
    let mut lone = Vec::new();
    for bs in [512, 4096] {
        let args = format!("{drive} --rw randwrite --bs {bs} --ios 20k --precondition seq");
        let bench = lab.bench(&format!("lone writes of {bs} B"), &args)?;
        lone.push(bench.report.latency_ns.mean.unwrap_or(f64::NAN) / 1e3);
    }
    let mut ways = Vec::new();
    for (what, how) in [("one by one", ""), ("combined", " --merge full --plug")] {
        let args =
            format!("{drive} --rw write --bs 512 --qd 128 --ios {ios} --precondition seq{how}");
        let args = format!("{args} --dispatch-depth 32");
        ways.push(written(lab, &format!("512 B in sequence, {what}"), 512, &args)?);
    }
    Ok(told(&sizes, &lone, &ways))
}

/// What came of writes.
#[derive(Clone, Copy, Debug)]
struct Written {
    iops: f64,
    /// Bytes programmed for each byte that was asked for.
    programmed: f64,
}

fn written(lab: &mut Lab, what: &str, bs: u64, args: &str) -> Result<Written, Error> {
    let report = lab.bench(what, args)?.report;
    // Of blocks that the host wrote, in whole or in part.
    let amplification = report.write_amplification.map_or(f64::NAN, |wa| wa.total);
    let asked = bs as f64 / port::BLOCK_BYTES as f64;
    Ok(Written { iops: report.iops, programmed: amplification / asked })
}

fn told(sizes: &[Written], lone: &[f64], ways: &[Written]) -> Vec<Row> {
    let one = Runs::one;
    let [small, whole] = [0, 1].map(|i| sizes[i]);
    let shown = |what: &str, unit, value| {
        Row::shown(
            REMAP,
            what,
            unit,
            Reference::Silent,
            one(value),
            "the paper has no figure of it",
        )
    };
    let order = |unit, says, pair: [(&str, f64); 2]| {
        Row::order(REMAP, unit, says, pair.map(|(name, value)| (name, one(value))))
    };
    let overhead =
        "\"Smaller writes would require read-modify-write transactions, adding overhead\"";
    let life = "\"and possibly reducing drive life\"";
    let combined =
        "\"These small transfers might be combined if the standard request queue is used\"";
    vec![
        shown("512 B", "IOPS", small.iops),
        shown("4 KiB", "IOPS", whole.iops),
        order("IOPS", overhead, [("4 KiB", whole.iops), ("512 B", small.iops)]),
        order("us", overhead, [("512 B, 1 outstanding", lone[0]), ("4 KiB", lone[1])]),
        order(
            "x",
            life,
            [("512 B: programmed a byte", small.programmed), ("4 KiB", whole.programmed)],
        ),
        order(
            "IOPS",
            combined,
            [("512 B in sequence, combined", ways[1].iops), ("one by one", ways[0].iops)],
        ),
    ]
}
