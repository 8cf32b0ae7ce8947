//! Figure 3: reads at depth 1 beside writes of 64 KiB, isolated and mixed.

use report::Plot;

use super::super::{Findings, Lab, Row, Runs};
use super::{picture, reads, us};
use drive::error::Error;
use measure::{Summary, units};

const FIGURE: &str = "figure 3";
const FLAT: &str = "\"As writes increase, performance remains stable on the OCSSD\"";
const RISES: &str = "\"higher read latency are introduced even for light workloads (20% writes)\"";

/// Writes among the requests, in percent, and how the paper has them.
const SHARES: [(f64, &str); 4] =
    [(0.0, "100/0"), (20.0, "80/20"), (34.0, "66/33"), (50.0, "50/50")];

/// A drive of today's flash, of which half reads and half is written. It keeps no data.
const DRIVE: &str = "mem:datacenter-tlc,side=host,store=none";

/// One run, of a drive of so many targets.
fn run(
    lab: &mut Lab,
    targets: u32,
    share: (f64, &str),
    alone: f64,
) -> Result<bench::Outcome, Error> {
    let time = lab.options.pick("--ramp 1s --time 5s", "--ramp 200ms --time 1s");
    let (size, half) = lab.options.pick(("8G", "4G"), ("2G", "1G"));
    let rate = (alone * share.0 / (100.0 - share.0)).round();
    let writes = match share.0 {
        0.0 => String::new(),
        _ => format!(" --job rw=write,bs=64k,rate={rate},range={half}+{half}"),
    };
    let how = if targets > 1 { "isolated" } else { "mixed" };
    let line = format!(
        "{DRIVE},size={size},targets={targets} --rw randread --qd 1 --range 0+{half} --precondition whole {time}{writes}"
    );
    lab.bench(&format!("{how}, {}", share.1), &line)
}

/// The reads of all shares, of a drive of so many targets.
fn all(lab: &mut Lab, targets: u32) -> Result<Vec<Option<Summary>>, Error> {
    let alone = run(lab, targets, SHARES[0], 0.0)?;
    let mut all = vec![reads(&alone)];
    for share in &SHARES[1..] {
        all.push(reads(&run(lab, targets, *share, alone.report.iops)?));
    }
    Ok(all)
}

/// The rows of this figure.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let (isolated, mixed) = (all(lab, 2)?, all(lab, 1)?);
    let ratio = |figure: fn(&Summary) -> Option<u64>| {
        let (first, last) = (us(isolated[0], figure), us(isolated[3], figure));
        Runs::one(last.median() / first.median())
    };
    let mean = |summary: Option<Summary>| {
        Runs::one(summary.and_then(|s| s.mean).unwrap_or(f64::NAN) / 1e3)
    };
    let falling = |of: &dyn Fn(Option<Summary>) -> Runs| {
        let named = SHARES.iter().zip(&mixed).rev();
        named
            .map(|((_, name), &summary)| (format!("mixed {name}"), of(summary)))
            .collect::<Vec<_>>()
    };
    let rows = vec![
        Row::within(
            FIGURE,
            "isolated: p99.9 of 50/50, over 100/0",
            "x",
            FLAT,
            ratio(|s| s.p999),
            0.95..=1.05,
        ),
        Row::within(
            FIGURE,
            "isolated: p99 of 50/50, over 100/0",
            "x",
            FLAT,
            ratio(|s| s.p99),
            0.95..=1.05,
        ),
        Row::order(FIGURE, "us", RISES, falling(&mean)),
        Row::order(
            FIGURE,
            "us",
            RISES,
            [
                ("p99.9, mixed 80/20", us(mixed[1], |s| s.p999)),
                ("p99.9, isolated 50/50", us(isolated[3], |s| s.p999)),
            ],
        ),
    ];
    let pictures = picture("lightnvm-latency", &plot(&isolated, &mixed));
    Ok(Findings { rows, notes: vec![], pictures: pictures.into_iter().collect() })
}

fn plot(isolated: &[Option<Summary>], mixed: &[Option<Summary>]) -> Plot {
    let line = |how: &str, share: usize, summary: &Option<Summary>| {
        let s = summary.as_ref()?;
        let points = [(0.3, s.p50), (1.0, s.p90), (2.0, s.p99), (3.0, s.p999)];
        let points = points.iter().filter_map(|&(x, ns)| Some((x, ns? as f64))).collect();
        Some((format!("{how} {}", SHARES[share].1), points))
    };
    let of = |how: &'static str, all: &[Option<Summary>]| {
        let lines = all.iter().enumerate().filter_map(|(n, one)| line(how, n, one));
        lines.collect::<Vec<_>>()
    };
    Plot {
        caption:
            "Latency that so many of the reads stay below, beside writes of 64 KiB to the same \
                  parallel units (mixed) or to others (isolated)."
                .into(),
        along: ("share of reads", |nines| {
            format!("{} %", (1e4 * (1.0 - 10f64.powf(-nines))).round() / 100.0)
        }),
        height: ("latency", units::time_ns),
        is_log: true,
        lines: [of("isolated", &isolated[3..]), of("mixed", mixed)].concat(),
    }
}
