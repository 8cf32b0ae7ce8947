//! Tenants: one that reads at depth 1 beside seven that write at random and collect.
//!
//! The reader has one parallel unit of 64, so that the others have nearly all of the drive.
//! A unit of its own ends waiting for dies; where units share a channel, transfers of others
//! are still waited for.

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::{reads, us};
use drive::error::Error;

const POINT: &str = "sec. 4: targets on parallel units of their own";
const PREDICTABLE: &str = "\"explicitly manage the queue for each separate PU in an SSD and thus \
                           achieve predictable I/O latency\"";

/// Units of the tenants: the reader's, and those of seven writers.
const UNITS: [u64; 8] = [1, 9, 9, 9, 9, 9, 9, 9];
/// The flash of `ref` with a link; little spare, so that collection is dear. No data.
const DRIVE: &str = "mem:ref,side=host,spare=0.11,store=none,link_latency=500ns,link_rate=3.2GB/s";
const CHANNELS: &str = "groups=64,pus=1";
const SHARED_CHANNELS: &str = "groups=8,pus=8";

struct Tenants<'l, 'a> {
    lab: &'l mut Lab<'a>,
    /// MiB of a unit.
    unit: u64,
    keys: &'static str,
    times: &'static str,
}

impl Tenants<'_, '_> {
    /// The tenants, or the reader alone, on a drive with these keys.
    fn run(&mut self, what: &str, keys: &str, beside: bool) -> Result<bench::Outcome, Error> {
        let unit = self.unit;
        let (mut at, mut jobs) = (UNITS[0] * unit, String::new());
        for units in &UNITS[1..] {
            jobs += &format!(" --job rw=randwrite,qd=16,range={at}M+{}M", units * unit);
            at += units * unit;
        }
        let (jobs, times) = if beside { (&jobs[..], self.times) } else { ("", "--time 10s") };
        let line = format!(
            "{DRIVE},{},{keys} --rw randread --qd 1 --range 0+{}M --precondition whole {times}{jobs}",
            self.keys,
            UNITS[0] * unit,
        );
        self.lab.bench(what, &line)
    }
}

/// The units of the tenants, as a drive's name has them.
fn units() -> String {
    let units: Vec<_> = UNITS.iter().map(u64::to_string).collect();
    format!("units={}", units.join("/"))
}

/// Blocks programmed for each that the writers wrote.
fn amplification(outcome: &bench::Outcome) -> Runs {
    let amplification = outcome.report.write_amplification.as_ref();
    Runs::one(amplification.map_or(f64::NAN, |wa| wa.total))
}

/// What the writers wrote a second.
fn written(outcome: &bench::Outcome) -> f64 {
    outcome.report.write.as_ref().map_or(f64::NAN, |write| write.iops)
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let (keys, unit, times) = lab.options.pick(
        ("size=8G", 128, "--ramp 90s --time 15s"),
        ("size=1G,pages=64", 16, "--ramp 12s --time 10s"),
    );
    let mut tenants = Tenants { lab, unit, keys, times };
    let own = format!("{CHANNELS},{}", units());
    let alone = tenants.run("the reader alone", &own, false)?;
    let isolated = tenants.run("isolated", &own, true)?;
    let together = tenants.run("not isolated", CHANNELS, true)?;
    let on_channels = format!("{SHARED_CHANNELS},{}", units());
    let shared = tenants.run("isolated, channels shared", &on_channels, true)?;
    let p9999 = |outcome: &bench::Outcome| us(reads(outcome), |s| s.p9999);
    let over_alone =
        |outcome: &bench::Outcome| Runs::one(p9999(outcome).median() / p9999(&alone).median());
    let p999 = |outcome: &bench::Outcome| us(reads(outcome), |s| s.p999);
    let writes = Runs::one(written(&isolated) / written(&together));
    let silent = "the paper gives no number";
    let rows = vec![
        Row::within(
            POINT,
            "write amplification of the seven",
            "x",
            silent,
            amplification(&isolated),
            3.0..=f64::INFINITY,
        ),
        Row::within(
            POINT,
            "isolated: p99.99 of reads, over alone",
            "x",
            PREDICTABLE,
            over_alone(&isolated),
            0.0..=1.2,
        ),
        Row::within(
            POINT,
            "writes of the seven, isolated over not",
            "x",
            silent,
            writes,
            0.95..=f64::INFINITY,
        ),
        Row::order(
            POINT,
            "us",
            PREDICTABLE,
            [("p99.9, not isolated", p999(&together)), ("p99.9, isolated", p999(&isolated))],
        ),
        Row::order(
            POINT,
            "us",
            PREDICTABLE,
            [
                ("p99.99, units of channels that are shared", p9999(&shared)),
                ("p99.99, of channels of their own", p9999(&isolated)),
            ],
        ),
        Row::shown(
            POINT,
            "the reader alone: p99.99",
            "us",
            Reference::Silent,
            p9999(&alone),
            silent,
        ),
        Row::shown(
            POINT,
            "channels shared: p99.99 of reads, over alone",
            "x",
            Reference::Silent,
            over_alone(&shared),
            silent,
        ),
        Row::shown(
            POINT,
            "not isolated: p99.9 of reads",
            "us",
            Reference::Silent,
            p999(&together),
            silent,
        ),
    ];
    Ok(Findings { rows, notes: vec![], pictures: vec![] })
}
