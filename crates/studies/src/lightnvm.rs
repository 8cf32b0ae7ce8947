//! Study `lightnvm`: targets that share a drive and do not meet (Bjørling, González and
//! Bonnet, "LightNVM: The Linux Open-Channel SSD Subsystem", the extended abstract of their
//! paper at FAST 2017; thesis, chapter 6).
//!
//! Most of it is in virtual time, on drives whose translation layer is on the host, as the
//! paper's is. Isolated means that a target has parallel units of its own.
//!
//! Files: of the abstract [`latency`] figure 3, reads beside more and more writes,
//! [`tenants`] one that reads beside seven that write and collect, which the paper does not
//! have, and [`split`] figure 1, who keeps which duties; of the thesis [`overhead`] what
//! translation costs, beside [`memory`], [`components`] where it is spent, by [`stages`],
//! [`openssd`] the host beside firmware, [`values`] values by key beside pages. [`through`]
//! sends requests to a target of the library.

use report::Plot;

use super::{Findings, Lab, Options, Picture, Runs, Study};
use drive::error::Error;
use measure::Summary;

mod components;
mod latency;
mod memory;
mod openssd;
mod overhead;
mod split;
mod stages;
mod tenants;
mod through;
mod values;

/// The study.
pub const STUDY: Study = Study {
    name: "lightnvm",
    about: "translation in the host: what it costs, what it brings, and targets that do not wait \
            for each other (thesis, ch. 6, and LightNVM)",
    run,
};

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let mut all = overhead::findings(lab)?;
    all.join(components::findings(lab)?);
    all.join(openssd::findings(lab)?);
    all.join(values::findings(lab)?);
    all.join(split::findings(lab)?);
    all.join(latency::findings(lab)?);
    all.join(tenants::findings(lab)?);
    all.notes.extend(notes());
    Ok(all)
}

/// A case that another process watches.
pub fn be_watched(case: &str, options: &Options) -> Result<(), Error> {
    match case.split_once(',') {
        Some((components::CASE, rest)) => components::be_watched(rest, options),
        Some((values::CASE, rest)) => values::be_watched(rest),
        _ => Err(Error::Usage(format!("there is no case `{case}` to be watched"))),
    }
}

fn notes() -> [String; 3] {
    [
        "the paper's streams are vector commands of an application; here each is of a page-mapped \
         target (pblk), which buffers writes in the host: writes end at once, and what reads wait \
         for is the flash"
            .into(),
        "100/0 to 50/50 is the share of requests: writes arrive at a rate that is that part of what \
         reads alone do; the paper does not say how its own is kept"
            .into(),
        "the drives are chosen, none is fitted to the paper's: figure 3 has no number but its axis. \
         The rule of a row was fixed before the study was run as a whole"
            .into(),
    ]
}

/// A figure of latencies, in us.
fn us(summary: Option<Summary>, figure: fn(&Summary) -> Option<u64>) -> Runs {
    let ns = summary.as_ref().and_then(figure);
    Runs::one(ns.map_or(f64::NAN, |ns| ns as f64 / 1e3))
}

/// The latencies of a run's reads.
fn reads(outcome: &bench::Outcome) -> Option<Summary> {
    Some(outcome.report.read.as_ref().map_or(outcome.report.latency_ns, |read| read.latency_ns))
}

/// The picture of a plot.
fn picture(name: &'static str, plot: &Plot) -> Option<Picture> {
    Some(Picture { name, caption: plot.caption.clone(), svg: plot.svg()? })
}

#[cfg(test)]
mod tests {
    use super::super::{Row, Verdict};
    use super::*;
    use load::watch::Watch;

    /// Figures of virtual time depend on no machine: all of them that are judged pass. Those
    /// of the processor's time are there.
    #[test]
    fn the_quick_study_passes_and_draws() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let on_a_processor = |row: &&Row| {
            ["figures 6 and 7", "table 4"].iter().any(|figure| row.figure().starts_with(figure))
        };
        let (live, of_drives): (Vec<&Row>, Vec<&Row>) =
            outcome.rows.iter().partition(on_a_processor);
        assert_eq!((live.len(), of_drives.len()), (19, 47), "{}", outcome.to_json());
        for row in of_drives {
            assert_ne!(row.verdict(), Verdict::Fail, "{}", row.to_json());
        }
        for row in live {
            let is_void = matches!(row.verdict(), Verdict::NotGated(_));
            assert!(is_void || !row.show_ours().contains("NaN"), "{}", row.to_json());
        }
        let names: Vec<&str> = outcome.pictures.iter().map(|picture| picture.name).collect();
        assert_eq!(names, ["lightnvm-overhead", "lightnvm-openssd", "lightnvm-latency"]);
    }

    #[test]
    fn cases_that_are_not_there_are_refused() {
        for case in ["", "components", "x,read,5"] {
            assert_eq!(be_watched(case, &Options::default()).unwrap_err().exit_code(), 2);
        }
    }
}
