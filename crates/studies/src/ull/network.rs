//! Figure 23 of the study: a client and a server, over NBD and TCP on this machine.
//!
//! The server polls its drive, as one over a bypass does. The paper holds it against a
//! server in the kernel, with a file system at the client: neither is to be had
//! without being root. What is measured is how much of the drives' difference a client
//! sees. Fails as a live drive does.

use super::super::{Lab, Reference, Row, Runs};
use super::completion::{NVME, ULL};
use super::live::{Asked, Job, Measured, PATTERNS, Stage, Way};
use drive::error::Error;

const FIGURE_23: &str = "figure 23: a server and its client, over NBD and TCP, 4 KiB";

const KERNEL: &str = "not measured here: it is a server over a bypass against one in the kernel, \
                      with ext4 at the client, which takes block devices of the kernel";

/// All rows.
pub fn rows(lab: &mut Lab, stage: Option<&Stage>) -> Result<Vec<Row>, Error> {
    let mut jobs = Vec::new();
    for drive in [ULL, NVME] {
        for way in [Way::Bypass, Way::Tcp] {
            jobs.extend(kinds().map(|asked| Job { drive, way, asked }));
        }
    }
    let all = Measured::new(lab, stage, jobs)?;
    let mut rows = Vec::new();
    for (asked, paper) in PATTERNS.into_iter().zip([39.0, 38.0, 3.7, 4.6]) {
        let what = format!("{}: what a server over a bypass saves", asked.name());
        let none = Runs::new(vec![]);
        rows.push(Row::shown(FIGURE_23, &what, "%", Reference::Paper(paper), none, KERNEL));
    }
    for asked in kinds() {
        rows.extend(seen_by_a_client(&all, asked));
    }
    let says = "a server's gain is large for reads and small for writes: theirs lose it to the file \
                system, ours since both drives take writes into their buffers";
    let [reads, writes] = kinds().map(|asked| times(&all, Way::Tcp, asked));
    let pair = [("nvme-2016 over ull: random reads", reads), ("random writes", writes)];
    rows.push(Row::order(FIGURE_23, "x", says, pair));
    Ok(rows)
}

/// Random reads and random writes.
fn kinds() -> [Asked; 2] {
    [PATTERNS[1], PATTERNS[3]]
}

/// How much longer the conventional drive takes.
fn times(all: &Measured, way: Way, asked: Asked) -> Runs {
    let [slow, fast] = [NVME, ULL].map(|drive| all.of(drive, way, asked, |ran| ran.mean));
    slow.with(&fast, |slow, fast| slow / fast)
}

fn seen_by_a_client(all: &Measured, asked: Asked) -> Vec<Row> {
    let name = asked.name();
    let says = "an ultra-low-latency drive is the faster one behind a server, too";
    let mean = |drive| all.of(drive, Way::Tcp, asked, |ran| ran.mean);
    let silent = "the paper has one drive behind a server";
    let shown = |what: &str, unit, ours| {
        let what = format!("{name}: {what}");
        Row::shown(FIGURE_23, &what, unit, Reference::Silent, ours, silent)
    };
    let pair = [(format!("{name}: nvme-2016"), mean(NVME)), ("ull".to_owned(), mean(ULL))];
    vec![
        Row::order(FIGURE_23, "us", says, pair),
        shown("nvme-2016 over ull, in this process", "x", times(all, Way::Bypass, asked)),
        shown("nvme-2016 over ull, at the client", "x", times(all, Way::Tcp, asked)),
    ]
}
