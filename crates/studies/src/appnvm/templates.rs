//! Templates side by side, of four applications: all write in bursts with rests between; and one
//! reads while the others write.

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::{DRIVE, MIB, SILENT, amplification, reads};
use drive::error::Error;

const POINT: &str = "sec. 2: template rules";
const TRADE: &str = "\"These rules may tradeoff parameters such as performance, predictability and \
                     media life depending on application requirements\"";
const NAMES: [&str; 3] = ["latency", "throughput", "longevity"];

const APPLICATIONS: u64 = 4;

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let part = MIB / APPLICATIONS;
    let (ramp, time) = lab.options.pick((1200, 300), (480, 120));
    let (mut bursts, mut beside) = (Vec::new(), Vec::new());
    for name in NAMES {
        let drive = format!("{DRIVE},target=rules,rules={name}:{APPLICATIONS}");
        // All write in bursts, with rests between.
        let line = format!(
            "{drive} --rw randwrite --qd 16 --pause 2s --burst 1000 --precondition whole \
             --ramp {ramp}s --time {time}s"
        );
        bursts.push(lab.bench(&format!("{name}, bursts"), &line)?);
        // One reads, the others write all the while.
        let line = format!(
            "{drive} --rw randread --qd 1 --range 0+{part}M --precondition whole --ramp 200s \
             --time 20s --job rw=randwrite,rate=1000,range={part}M+{}M",
            (APPLICATIONS - 1) * part
        );
        beside.push(lab.bench(&format!("{name}, reads beside writes"), &line)?);
    }
    let read = |n: usize| reads(&beside[n], |s| s.p999);
    let written = |n: usize| reads(&bursts[n], |s| s.p999);
    let mean =
        |n: usize| Runs::one(bursts[n].report.latency_ns.mean.map_or(f64::NAN, |mean| mean / 1e3));
    let worn = |n: usize| amplification(&bursts[n]);
    let of = |name: &str, n: usize, figure: &dyn Fn(usize) -> Runs| {
        (format!("{name}, {}", NAMES[n]), figure(n))
    };
    let [latency, throughput, longevity] = [0, 1, 2];
    let falls = |unit, name, from, to, figure: &dyn Fn(usize) -> Runs| {
        Row::order(POINT, unit, TRADE, [of(name, from, figure), of(name, to, figure)])
    };
    let mut rows = vec![
        falls("us", "p99.9 of reads beside writes", throughput, latency, &read),
        falls("us", "p99.9 of reads beside writes", longevity, latency, &read),
        falls("us", "mean of a burst's writes", latency, throughput, &mean),
        falls("us", "mean of a burst's writes", longevity, throughput, &mean),
        falls("x", "write amplification", latency, longevity, &worn),
        falls("x", "write amplification", throughput, longevity, &worn),
    ];
    for (n, name) in NAMES.iter().enumerate() {
        let shown = |text: &str, unit: &'static str, runs: Runs| {
            Row::shown(POINT, &format!("{name}: {text}"), unit, Reference::Silent, runs, SILENT)
        };
        rows.push(shown("p99.9 of reads beside writes", "us", read(n)));
        rows.push(shown("p99.9 of a burst's writes", "us", written(n)));
        rows.push(shown("mean of a burst's writes", "us", mean(n)));
        rows.push(shown("write amplification", "x", worn(n)));
    }
    Ok(Findings { rows, notes: vec![], pictures: vec![] })
}
