//! Study `ull`: two drives and what stands above them (Koh et al., *Faster than
//! Flash: An In-Depth Study of System Challenges for Emerging Ultra-Low Latency
//! SSDs*).
//!
//! Files: [`drives`] the two in virtual time, [`device`] their latency and
//! bandwidth, [`interference`] mixes, collection and power; [`live`] a live drive and
//! the ways to it, [`completion`] polling and interrupts, [`bypass`] with and without
//! a kernel, [`network`] a server and its client.

pub mod bypass;
pub mod completion;
pub mod device;
pub mod drives;
pub mod interference;
pub mod live;
pub mod network;

use super::{Findings, Lab, Study};
use drive::error::Error;
use drives::{Drives, Scale};
use live::Stage;

/// The study.
pub const STUDY: Study = Study {
    name: "ull",
    about: "an ultra-low-latency and a conventional drive, completion, kernel bypass and a server \
            (Faster than Flash)",
    run,
};

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let (scale, stage) = (Scale::of(lab.options), Stage::new(lab)?);
    all(lab, scale, stage.as_ref())
}

fn all(lab: &mut Lab, scale: Scale, stage: Option<&Stage>) -> Result<Findings, Error> {
    let mut drives = Drives::new(lab, scale);
    let mut rows = device::rows(&mut drives)?;
    rows.extend(interference::rows(&mut drives)?);
    rows.extend(completion::rows(lab, stage)?);
    rows.extend(bypass::rows(lab, stage)?);
    rows.extend(network::rows(lab, stage)?);
    Ok(Findings::new(rows, notes()))
}

fn notes() -> Vec<String> {
    [
        "a figure in virtual time is one run; what is fitted, and by which values, is in the heads \
         of the profiles ull and nvme-2016; a rule of a predicted figure is a tenth",
        "live drives are as a host polls them, 2.2 us less in `controller`: what interrupts cost \
         is then this machine's, a thread that sleeps on an eventfd and is woken",
        "live, one request is out at a time; the load has a core, and the device or the server the \
         next; the device never sleeps, being the hardware; drives keep no data",
        "of the load's processor all is counted, in the kernel and out of it; sleeps are how often \
         its thread gave the processor away by itself",
        "the kernel's path of figures 17 to 20 is the block layer of this tree with interrupts, \
         where the kernel is entered to sleep and to wake, or NBD over a Unix socket, where it \
         takes and copies each request and each answer; its own block devices, ublk, loop and FUSE \
         take root or modules",
        "a file system at the client (figure 23) and the kernel's NBD server are not measured: they \
         take block devices of the kernel; the paper has one drive behind a server, the ull, so that \
         rows of two are held against our own expectation, in brackets",
        "where the paper has means of reads or writes and names no order (of figures 4, 9 and 10), \
         they are of both, and one is held against them: reads in sequence of ull, random ones of \
         nvme-2016, and random writes, which take as long as those in sequence",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Reference, Row, Runs, Verdict};
    use super::*;
    use load::watch::Watch;

    /// Drives on which what is lasting does not show.
    pub const TINY: Scale = Scale {
        size: "96M",
        few: 5_000,
        many: 10_000,
        all_mixes: true,
        seconds: 2,
        over_time: ["256M", "256M"],
    };

    /// All of it, on drives too small for some of its figures. What fails says why, or
    /// rests on their size.
    #[test]
    fn the_whole_study_has_all_rows() {
        let options = Options { quick: true, ..Options::default() };
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let mut stage = Stage::new(&lab).unwrap();
        stage.iter_mut().for_each(|stage| stage.time = 1_000_000);
        let rows = all(&mut lab, TINY, stage.as_ref()).unwrap().rows;
        let seconds = rows.iter().filter(|row| row.what().contains("in second")).count();
        assert!((2..=4).contains(&seconds), "{seconds}");
        assert_eq!(rows.len() - seconds, 165);
        let of = |what: &str| {
            let mut found = rows.iter().filter(|row| row.what() == what);
            let row = found.next().unwrap_or_else(|| panic!("{what}"));
            assert!(found.next().is_none(), "{what} twice");
            (row.verdict(), row.to_json())
        };
        for what in [
            "ull: reads in sequence, depth 1",
            "nvme-2016: writes, depth 32",
            "ull: random reads, 16 entries",
            "ull: reads with 80 % writes, over reads alone",
            "nvme-2016: writes before collection",
            "ull: writes polled",
        ] {
            assert_eq!(of(what).0, Verdict::Pass, "{}", of(what).1);
        }
        for what in [
            "nvme-2016: writes of 4 KiB, of its reads' 2.4 GB/s",
            "nvme-2016: polling saves of random writes",
            "ull: random reads, above an idle drive",
        ] {
            let (verdict, json) = of(what);
            assert!(verdict == Verdict::Fail && json["reason"].is_string(), "{json}");
        }
        let (fitted, json) = of("ull: random reads, depth 1");
        assert!(matches!(fitted, Verdict::NotGated(why) if why.contains("`controller`")), "{json}");
        for what in [
            "nvme-2016: what 40 % writes add, by a line",
            "random reads: nvme-2016 / ull, at the client",
        ] {
            let (_, json) = of(what);
            assert!(json["paper"].is_null() && json["paper_says"].is_null(), "{json}");
            assert!(json["model"].is_number(), "{json}");
        }
        // A figure that rests on the paper's own difference.
        assert!(matches!(of("ull: reads in sequence polled").0, Verdict::NotGated(_)));
        // What makes no sense below zero is bounded there.
        for what in [
            "ull: five nines of reads with 20 % writes",
            "ull: what collection adds to a write",
            "nvme-2016: polling saves of random reads",
        ] {
            let (_, json) = of(what);
            assert!(json["rule"].as_str().unwrap().starts_with("within "), "{json}");
        }
        let (unknown, json) = of("loads, beside the kernel's path");
        assert!(matches!(unknown, Verdict::NotGated(why) if why.contains("not measured")));
        assert!(json["ratio"].is_null() && json["ours"]["median"].is_null(), "{json}");
    }

    #[test]
    fn a_prediction_is_judged_by_a_tenth_and_a_fit_is_not() {
        let verdict = |ours| device::predicted("f", "w", "us", 10.0, ours).verdict();
        assert_eq!((verdict(11.0), verdict(11.1)), (Verdict::Pass, Verdict::Fail));
        let fitted = device::fitted("f", "w", "us", 10.0, 20.0, "`x`");
        assert!(matches!(fitted.verdict(), Verdict::NotGated(why) if why.contains("`x`")));
        let silent = Row::shown("f", "w", "us", Reference::Silent, Runs::one(1.0), "silent");
        assert_eq!(silent.ratio(), None);
    }
}
