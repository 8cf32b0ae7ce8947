//! Study `appnvm`: what an SSD made of rules does (Bjørling, Wei, Madsen, González, Swanson and
//! Bonnet, "AppNVM: A software-defined, application-driven SSD"; thesis, chapter 7).
//!
//! The paper has no measurement. So nothing is compared with numbers of its own; its claims are,
//! and bounds were fixed before the study was run as a whole. All of it is in virtual time.
//!
//! Files: [`minimal`] table 1 beside pblk; [`tenants`] one that reads beside one that writes;
//! [`limits`] the same by a limit; [`templates`] what each trades; [`learning`] requests that find no rule.

use super::{Findings, Lab, Runs, Study};
use drive::error::Error;
use measure::Summary;

mod learning;
mod limits;
mod minimal;
mod templates;
mod tenants;

/// The study.
pub const STUDY: Study = Study {
    name: "appnvm",
    about: "an SSD made of rules: table 1 beside pblk, tenants, templates, learning (AppNVM)",
    run,
};

/// The drive that all have, of eight parallel units, each with a channel of its own. It keeps no
/// data.
const DRIVE: &str = "mem:ref,size=1G,groups=8,pus=1,pages=64,spare=0.2,store=none";
/// Its MiB.
const MIB: u64 = 1024;
const SILENT: &str = "the paper gives no number";

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let mut all = minimal::findings(lab)?;
    all.join(tenants::findings(lab)?);
    all.join(limits::findings(lab)?);
    all.join(templates::findings(lab)?);
    all.join(learning::findings(lab)?);
    Ok(all)
}

/// A figure of the latencies of a run's reads, in us.
fn reads(outcome: &bench::Outcome, figure: fn(&Summary) -> Option<u64>) -> Runs {
    let report = &outcome.report;
    let summary = report.read.as_ref().map_or(report.latency_ns, |read| read.latency_ns);
    Runs::one(figure(&summary).map_or(f64::NAN, |ns| ns as f64 / 1e3))
}

/// Blocks programmed for each that was written.
fn amplification(outcome: &bench::Outcome) -> Runs {
    let amplification = outcome.report.write_amplification.as_ref();
    Runs::one(amplification.map_or(f64::NAN, |wa| wa.total))
}

/// One over the other.
fn over(a: &Runs, b: &Runs) -> Runs {
    Runs::one(a.median() / b.median())
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict};
    use super::*;
    use load::watch::Watch;

    /// Figures of virtual time depend on no machine: all that is judged passes.
    #[test]
    fn the_quick_study_passes() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        for row in &outcome.rows {
            assert_ne!(row.verdict(), Verdict::Fail, "{}", row.to_json());
        }
        let (passed, _, _) = outcome.tally();
        assert!(passed >= 8, "{}", outcome.to_json());
    }
}
