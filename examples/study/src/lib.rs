//! A study in one file: what spare does to random overwrites.
//!
//! Greedy collection of uniform random overwrites moves fewer blocks the more
//! spare a drive has, so that more of them fit in a second.

use drive::Error;
use studies::{Findings, Lab, Row, Study};

/// The study. One of ssdkit's own would be listed in `Study::ALL`.
pub const STUDY: Study =
    Study { name: "spare", about: "random overwrites against the spare of a drive", run };

/// How the drive is overwritten, after its name.
const LOAD: &str = "--rw randwrite --qd 32 --precondition seq --ios";

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let ios = lab.options.pick(2_000_000, 40_000);
    let mut of = |spare: &str| {
        let drive = format!("mem:ref,size=32M,groups=2,pus=2,pages=64,store=none,spare={spare}");
        let runs = lab.iops(&format!("spare {spare}"), &format!("{drive} {LOAD} {ios}"))?;
        Ok::<_, Error>((format!("spare {spare}"), runs))
    };
    let ours = vec![of("0.6")?, of("0.4")?, of("0.25")?];
    let says = "more spare, fewer blocks to move";
    let row = Row::order("random 4 KiB overwrites", "IOPS", says, ours);
    let notes = vec!["In virtual time: the same seed gives the same figures.".into()];
    Ok(Findings::new(vec![row], notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::watch::Watch;
    use studies::{Options, Verdict};

    #[test]
    fn more_spare_is_faster() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let verdicts: Vec<Verdict> = outcome.rows.iter().map(Row::verdict).collect();
        assert_eq!(verdicts, [Verdict::Pass], "{:?}", outcome.rows);
    }
}
