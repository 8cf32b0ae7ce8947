//! Figures 6 to 8 of the study: reads among writes, collection and its time, and
//! power, of the two drives in virtual time.
//!
//! Rules as in [`device`](super::device). Fails as a bench does.

use super::super::{Reference, Row, Runs};
use super::device::{TENTH, fitted, predicted};
use super::drives::{Drives, Model, NVME, STEADY, Seen, ULL};
use drive::error::Error;

const FIGURE_6: &str = "figure 6: reads among writes";
const FIGURE_7: &str = "figure 7: collection, random writes at depth 16";
const POWER: &str = "figures 7a and 8: power";

/// Writes among the requests, in percent.
const SHARES: [u64; 4] = [20, 40, 60, 80];
/// Requests out while a drive collects.
const DEPTH: u64 = 16;
/// What a drive at rest takes, in W, as the paper has it.
const IDLE: f64 = 3.8;

/// All rows.
pub fn rows(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut rows = unhindered(drives)?;
    rows.extend(hindered(drives)?);
    rows.extend(collection(drives)?);
    rows.extend(over_time(drives)?);
    rows.extend(power(drives)?);
    Ok(rows)
}

/// Reads of which so many percent more of all requests are writes. Five nines are
/// told where `tails`.
fn among(drives: &mut Drives, model: Model, writes: u64, tails: bool) -> Result<Seen, Error> {
    let reads = 100 - writes;
    let prepared = if model == ULL { "--precondition seq" } else { STEADY };
    let load = format!("--rw randrw --read-percent {reads} {prepared}");
    if tails { drives.many(model, &load, 1, reads) } else { drives.few(model, &load, 1) }
}

/// The shares of writes that are run: of a short study only the first.
fn shares(drives: &Drives) -> &'static [u64] {
    if drives.scale.all_mixes { &SHARES } else { &SHARES[..1] }
}

const FLAT: &str =
    "\"sustainable latency behaviors irrespective of the amount of write operations\"";

/// The drive whose reads do not suffer.
fn unhindered(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let alone = drives.few(ULL, "--rw randread", 1)?.mean();
    let mut rows = Vec::new();
    for &share in shares(drives) {
        let ratio = Runs::one(among(drives, ULL, share, share == 20)?.mean() / alone);
        let what = format!("ull: reads with {share} % writes, over reads alone");
        rows.push(Row::within(FIGURE_6, &what, "x", FLAT, ratio, 0.9..=1.1));
    }
    let nines = among(drives, ULL, 20, true)?.nines();
    let says = "\"maintains its latency under 118us\"";
    let what = "ull: five nines of reads with 20 % writes";
    rows.push(Row::within(FIGURE_6, what, "us", says, nines, 0.0..=118.0));
    Ok(rows)
}

/// What so many percent of writes add to reads, in us: the paper's one figure of it. Of more
/// writes it says that latency "linearly increases".
const ADDED: (f64, f64) = (20.0, 54.0);
const FASTER: &str = "what reads wait for grows faster than the share of writes: the faster the \
                      reads give way, the more writes a second there are";

/// The drive whose reads do.
fn hindered(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let alone = drives.few(NVME, "--rw randread", 1)?.mean();
    let least = among(drives, NVME, 20, true)?;
    let what = "nvme-2016: reads with 20 % writes, over reads alone";
    let mut rows = vec![predicted(FIGURE_6, what, "x", 1.6, least.mean() / alone)];
    let what = "nvme-2016: what 20 % writes add to reads";
    rows.push(predicted(FIGURE_6, what, "us", ADDED.1, least.mean() - alone));
    for &share in &shares(drives)[1..] {
        let (seen, times) = (among(drives, NVME, share, false)?, share as f64 / ADDED.0);
        // Writes are as much of all bytes as of all requests.
        let is_faster = seen.rate() > least.rate();
        rows.push(by_a_line(share, times * ADDED.1, seen.mean() - alone, is_faster));
    }
    let what = "nvme-2016: five nines of reads with 20 % writes";
    let why = "fitted, by tBERS of the profile: it says nothing";
    let nines = least.nines();
    rows.push(Row::shown(FIGURE_6, what, "us", Reference::Paper(4500.0), nines, why));
    Ok(rows)
}

/// What so many percent of writes add, beside the line through what the paper has of the
/// least. `is_faster` where writes a second grew by more than their share.
fn by_a_line(share: u64, line: f64, more: f64, is_faster: bool) -> Row {
    let what = format!("nvme-2016: what {share} % writes add, by a line");
    let row = Row::band(FIGURE_6, &what, "us", Reference::Model(line), Runs::one(more), TENTH);
    row.explained_where(more > line && is_faster, FASTER)
}

/// A new drive that is written at random, and one that collects.
fn before_and_with(drives: &mut Drives, model: Model) -> Result<[Seen; 2], Error> {
    let before = drives.few(model, "--rw randwrite", DEPTH)?;
    Ok([before, drives.few(model, &format!("--rw randwrite {STEADY}"), DEPTH)?])
}

/// Collection takes no time off, but for what a mean is of chance.
const ONE: std::ops::RangeInclusive<f64> = -0.1..=1.0;
const UNDER_ONE: &str = "\"very sustained latency behavior [...] (less than 1us)\"";

fn collection(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let [new, full] = before_and_with(drives, ULL)?;
    let adds = Runs::one(full.mean() - new.mean());
    let [before, with] = before_and_with(drives, NVME)?;
    let what = "nvme-2016: writes with collection, over before";
    Ok(vec![
        Row::within(FIGURE_7, "ull: what collection adds to a write", "us", UNDER_ONE, adds, ONE),
        predicted(FIGURE_7, "nvme-2016: writes before collection", "us", 52.0, before.mean()),
        fitted(FIGURE_7, what, "x", 6.3, with.mean() / before.mean(), "spare"),
    ])
}

const SHARPLY: &str = "\"the write latency of NVMe SSD sharply increases once GCs begin\"";
const FIRST: &str = "the paper draws it over time: a second of a drive's time is a figure here";

/// Figure 7b's axis: seconds of a drive that was written in order and then is at random.
fn over_time(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let slow = drives.over_time(NVME, DEPTH)?.seconds;
    let fast = drives.over_time(ULL, DEPTH)?.seconds;
    let slowest = |of: &[f64]| of.iter().copied().fold(f64::NAN, f64::max);
    let first = |of: &[f64]| of.first().copied().unwrap_or(f64::NAN);
    let mut rows = Vec::new();
    for (model, of) in [(NVME, &slow), (ULL, &fast)] {
        for (second, &us) in of.iter().enumerate() {
            let what = format!("{}: a write in second {}", model.profile, second + 1);
            let us = Runs::one(us);
            rows.push(Row::shown(FIGURE_7, &what, "us", Reference::Silent, us, FIRST));
        }
    }
    let pair = [("nvme-2016: slowest second", slowest(&slow)), ("its first", first(&slow))];
    let pair = pair.map(|(name, us)| (name, Runs::one(us)));
    rows.push(Row::order(FIGURE_7, "us", SHARPLY, pair));
    let more = Runs::one(slowest(&fast) - first(&fast));
    let what = "ull: its slowest second, over its first";
    rows.push(Row::within(FIGURE_7, what, "us", UNDER_ONE, more, ONE));
    Ok(rows)
}

const FLASH_ONLY: &str = "energies of the profiles are of the flash and its channels alone: what a \
                          controller and its memory take more at work is not modelled";
const MOVES: &str = "with collection it programs what it moves, too; the paper's is a drive whose \
                     flash takes less of the whole";

fn power(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for model in [ULL, NVME] {
        let above = drives.few(model, "--rw randread", 1)?.watts() - IDLE;
        let what = format!("{}: random reads, above an idle drive", model.profile);
        rows.push(less_than("W", &what, 0.3, above));
    }
    let mut less = 0.0;
    let patterns = ["read", "randread", "write", "randwrite"];
    for pattern in patterns {
        let load = format!("--rw {pattern}");
        let mut watts = |model| drives.few(model, &load, 1).map(|seen| seen.watts());
        less += 100.0 * (1.0 - watts(ULL)? / watts(NVME)?) / patterns.len() as f64;
    }
    let what = "ull takes less than nvme-2016, mean of four patterns";
    rows.push(less_than("%", what, 30.0, less));
    let [before, with] = before_and_with(drives, NVME)?.map(|seen| seen.watts());
    let says = "\"power consumption of NVMe SSD decrease when it starts GCs\"";
    let what = "nvme-2016: what collection takes more";
    rows.push(Row::sign(POWER, what, "W", says, Runs::one(with - before), false));
    let [before, with] = before_and_with(drives, ULL)?;
    let more = 100.0 * (with.watts() / before.watts() - 1.0);
    rows.push(collecting(more, with.programmed > before.programmed));
    Ok(rows)
}

/// A figure of power, which is known to be too small where it is less than the paper's.
fn less_than(unit: &'static str, what: &str, paper: f64, ours: f64) -> Row {
    predicted(POWER, what, unit, paper, ours).explained_where(ours < paper, FLASH_ONLY)
}

/// What collection takes more, in percent. `moves` where more is programmed with it.
fn collecting(more: f64, moves: bool) -> Row {
    let paper = 12.0;
    let row = predicted(POWER, "ull: what collection takes more", "%", paper, more);
    row.explained_where(more > paper && moves, MOVES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason is given where it was seen, and not for a failure of another kind.
    #[test]
    fn a_failure_has_the_reason_that_was_seen() {
        let why = |row: Row| row.failed_since().map(str::to_owned);
        assert_eq!(why(by_a_line(80, 216.0, 295.0, true)), Some(FASTER.into()));
        assert_eq!(why(by_a_line(80, 216.0, 295.0, false)), None);
        assert_eq!(why(by_a_line(80, 216.0, 100.0, true)), None);
        assert_eq!(why(less_than("W", "w", 0.3, 0.02)), Some(FLASH_ONLY.into()));
        assert_eq!(why(less_than("W", "w", 0.3, 3.0)), None);
        assert_eq!(why(collecting(39.0, true)), Some(MOVES.into()));
        assert_eq!([why(collecting(39.0, false)), why(collecting(1.0, true))], [None, None]);
    }

    #[test]
    fn a_line_is_ours_and_not_the_papers() {
        let json = by_a_line(40, 108.0, 104.0, true).to_json();
        assert_eq!((&json["model"], &json["verdict"]), (&108.0.into(), &"pass".into()));
        assert!(json["paper"].is_null(), "{json}");
    }
}
