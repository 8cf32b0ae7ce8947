//! Table 1: a minimal SSD in rules, beside pblk on the same flash.

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::{DRIVE, SILENT, amplification, over, reads};
use drive::error::Error;

const TABLE: &str = "table 1";
const MINIMAL: &str = "\"A simple set of rules which implement a minimally functional SSD\"";

/// The rows of this table.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let time = lab.options.pick("--ramp 120s --time 60s", "--ramp 60s --time 10s");
    let mut of = |target: &str, what: &str, load: &str| {
        let line = format!("{DRIVE},target={target} --rw {load} --precondition seq {time}");
        lab.bench(&format!("{target}, {what}"), &line)
    };
    let read = "randread --qd 16";
    let write = "randwrite --qd 16";
    let (pblk, ruled) = (of("pblk", "reads", read)?, of("rules", "reads", read)?);
    let iops = |outcome: &bench::Outcome| Runs::one(outcome.report.iops);
    let (written, by_rules) = (of("pblk", "writes", write)?, of("rules", "writes", write)?);
    let p999 = |outcome: &bench::Outcome| reads(outcome, |s| s.p999);
    let rows = vec![
        Row::within(
            TABLE,
            "random reads a second, rules over pblk",
            "x",
            MINIMAL,
            over(&iops(&ruled), &iops(&pblk)),
            0.95..=1.05,
        ),
        Row::within(
            TABLE,
            "p99.9 of reads, rules over pblk",
            "x",
            MINIMAL,
            over(&p999(&ruled), &p999(&pblk)),
            0.9..=1.1,
        ),
        Row::shown(
            TABLE,
            "random writes a second, rules over pblk",
            "x",
            Reference::Silent,
            over(&iops(&by_rules), &iops(&written)),
            SILENT,
        ),
        Row::shown(
            TABLE,
            "write amplification, pblk",
            "x",
            Reference::Silent,
            amplification(&written),
            SILENT,
        ),
        Row::shown(
            TABLE,
            "write amplification, rules",
            "x",
            Reference::Silent,
            amplification(&by_rules),
            SILENT,
        ),
    ];
    Ok(Findings { rows, notes: vec![], pictures: vec![] })
}
