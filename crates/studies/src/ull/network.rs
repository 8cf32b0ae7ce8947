//! Figure 23 of the study: a client and a server, over NBD and TCP on this machine.
//!
//! The server polls its drive, as one over a bypass does. The paper holds it against a
//! server in the kernel, with a file system at the client: neither is to be had
//! without being root. What is measured is how much of the drives' difference a client
//! sees. Of that the paper says nothing: behind a server it has the fast drive alone. So it
//! is held against our own expectation. Fails as a live drive does.

use super::super::{Lab, Reference, Row, Runs};
use super::completion::{NVME, ULL};
use super::live::{Asked, Job, Measured, PATTERNS, Stage, Way};
use drive::error::Error;

const FIGURE_23: &str = "figure 23: a server and its client, over NBD and TCP, 4 KiB";

const KERNEL: &str = "not measured here: it is a server over a bypass against one in the kernel, \
                      with ext4 at the client, which takes block devices of the kernel";

const ONE_DRIVE: &str = "the paper has one drive behind a server";

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
    rows.extend(at_the_client(&all));
    Ok(rows)
}

/// Both drives behind a server.
fn at_the_client(all: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for asked in kinds() {
        let what = |of: &str| format!("{}: {of}", asked.name());
        let mut shown = |of: &str, unit, ours| {
            let silent = Reference::Silent;
            rows.push(Row::shown(FIGURE_23, &what(of), unit, silent, ours, ONE_DRIVE));
        };
        for (name, drive) in [("nvme-2016, at the client", NVME), ("ull, at the client", ULL)] {
            shown(name, "us", all.of(drive, Way::Tcp, asked, |ran| ran.mean));
        }
        shown("nvme-2016 / ull, in this process", "x", times(all, Way::Bypass, asked));
        let at_client = times(all, Way::Tcp, asked);
        rows.push(more_than_one(&what("nvme-2016 / ull, at the client"), at_client));
    }
    let [reads, writes] = kinds().map(|asked| times(all, Way::Tcp, asked));
    // Both drives take writes into their buffers, and so differ less in them.
    let over = reads.with(&writes, |reads, writes| reads / writes);
    rows.push(more_than_one("this of random reads / of random writes", over));
    rows
}

/// What is to be more than one, as we have it.
fn more_than_one(what: &str, ours: Runs) -> Row {
    Row::band(FIGURE_23, what, "x", Reference::Model(1.0), ours, 1.0..=f64::INFINITY)
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

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::super::live::Ran;
    use super::*;

    /// Of a drive so many times as slow as the other behind a server, in reads and writes.
    fn rows(reads: f64, writes: f64) -> Vec<Row> {
        let mut jobs = Vec::new();
        for (drive, way) in
            [(ULL, Way::Bypass), (NVME, Way::Bypass), (ULL, Way::Tcp), (NVME, Way::Tcp)]
        {
            jobs.extend(kinds().map(|asked| Job { drive, way, asked }));
        }
        at_the_client(&Measured::made_up(jobs, |job| {
            let times = if job.asked.reads { reads } else { writes };
            let mean = if job.drive == NVME { 10.0 * times } else { 10.0 };
            Ran { mean, median: mean, nines: mean, cpu: 99.0, other_cpu: 99.0, sleeps: 0.0 }
        }))
    }

    #[test]
    fn what_is_expected_is_ours_and_judged() {
        let failed =
            |rows: &[Row]| rows.iter().filter(|row| row.verdict() == Verdict::Fail).count();
        let as_expected = rows(5.0, 1.1);
        assert_eq!((as_expected.len(), failed(&as_expected)), (9, 0));
        for row in &as_expected {
            let json = row.to_json();
            assert!(json["paper"].is_null() && json["paper_says"].is_null(), "{json}");
        }
        assert_eq!(failed(&rows(0.9, 0.8)), 2);
        assert_eq!(failed(&rows(1.1, 5.0)), 1);
    }
}
