//! Tenants: one that reads at depth 1 beside one that writes at a rate, each with half of the
//! blocks; with units of their own by rules, and without.

use super::super::{Findings, Lab, Reference, Row};
use super::{DRIVE, MIB, SILENT, over, reads};
use drive::error::Error;

const POINT: &str = "sec. 1: predictability and control of placement";
const PREDICTABLE: &str = "\"stronger predictability and more control of how the SSD decided to \
                           place data\"";

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let time = lab.options.pick("--ramp 300s --time 60s", "--ramp 150s --time 20s");
    let half = MIB / 2;
    let mut of = |what: &str, rules: &str, writes: &str| {
        let line = format!(
            "{DRIVE},target=rules,rules={rules} --rw randread --qd 1 \
             --range 0+{half}M --precondition whole {time}{writes}"
        );
        lab.bench(what, &line)
    };
    let paced = format!(" --job rw=randwrite,rate=1000,range={half}M+{half}M");
    let alone = of("the reader alone", "latency:2", "")?;
    let own = of("units of their own", "latency:2", &paced)?;
    let shared = of("units shared", "throughput:2", &paced)?;
    let p999 = |outcome: &bench::Outcome| reads(outcome, |s| s.p999);
    let rows = vec![
        Row::within(
            POINT,
            "units of its own: p99.9 of reads, over alone",
            "x",
            PREDICTABLE,
            over(&p999(&own), &p999(&alone)),
            0.95..=1.05,
        ),
        Row::order(
            POINT,
            "us",
            PREDICTABLE,
            [("p99.9, units shared", p999(&shared)), ("p99.9, units of its own", p999(&own))],
        ),
        Row::shown(
            POINT,
            "units shared: p99.9 of reads, over alone",
            "x",
            Reference::Silent,
            over(&p999(&shared), &p999(&alone)),
            SILENT,
        ),
    ];
    Ok(Findings { rows, notes: vec![], pictures: vec![] })
}
