//! Figures 4, 5, 9 and 10 of the study: latency and bandwidth by depth, and what
//! polling saves, of the two drives in virtual time.
//!
//! What was fitted is shown and not judged. What is predicted is to be within a
//! tenth; what the paper says in words is a bound. Where the paper has a mean
//! and names no order, so that it is of both, one is held against it: reads in sequence of
//! the fast drive, random ones of the other. Fails as a bench does.

use super::super::{Reference, Row, Runs};
use super::drives::{Drives, Model, NVME, Seen, ULL};
use drive::error::Error;

const FIGURE_4: &str = "figure 4: latency by depth, random reads alone";
const FIGURE_5: &str = "figure 5: bandwidth by depth";
const FIGURE_9: &str = "figures 9 and 10: what polling saves, by the drives' own models";
/// A curve of which the text gives no number.
const CURVE: &str = "the curve has no numbers in the text";

/// A prediction is to be within a tenth.
pub const TENTH: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// With so many out a drive gives its most.
const DEEP: u64 = 256;
/// GB/s that the paper's introduction gives the conventional drive for reads; for writes it
/// has 1.2. Which of them its "total performance capacity" is, it does not say.
const CAPACITY: f64 = 2.4;

/// A figure that the drive's values were not fitted to.
pub fn predicted(figure: &str, what: &str, unit: &'static str, paper: f64, ours: f64) -> Row {
    Row::band(figure, what, unit, Reference::Paper(paper), Runs::one(ours), TENTH)
}

/// A figure that a value of the profile was fitted to.
pub fn fitted(
    figure: &str,
    what: &str,
    unit: &'static str,
    paper: f64,
    ours: f64,
    by: &str,
) -> Row {
    let why = format!("fitted, by {by} of the profile: it says nothing");
    Row::shown(figure, what, unit, Reference::Paper(paper), Runs::one(ours), &why)
}

/// All rows.
pub fn rows(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut rows = latency(drives)?;
    rows.extend(tails(drives)?);
    rows.extend(latency_by_depth(drives)?);
    rows.extend(saturation(drives)?);
    rows.extend(most(drives)?);
    rows.extend(polling(drives)?);
    Ok(rows)
}

const READS: &str = "--rw randread";
const IN_ORDER: &str = "--rw read";
const WRITES: &str = "--rw randwrite";
const WRITES_IN_ORDER: &str = "--rw write";

/// Figure 4a: the numbers of the text.
fn latency(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut mean = |model, load, depth| drives.few(model, load, depth).map(|seen| seen.mean());
    let predicted = |what: &str, paper, ours| predicted(FIGURE_4, what, "us", paper, ours);
    let fitted = |what: &str, paper, ours, by| fitted(FIGURE_4, what, "us", paper, ours, by);
    Ok(vec![
        fitted("ull: random reads, depth 1", 15.9, mean(ULL, READS, 1)?, "`controller`"),
        predicted("ull: reads in sequence, depth 1", 12.6, mean(ULL, IN_ORDER, 1)?),
        predicted("ull: writes, depth 1", 11.3, mean(ULL, WRITES, 1)?),
        fitted("nvme-2016: random reads, depth 1", 82.9, mean(NVME, READS, 1)?, "tR"),
        fitted(
            "nvme-2016: random reads, depth 32",
            159.0,
            mean(NVME, READS, 32)?,
            "the slow page in twelve",
        ),
        fitted("nvme-2016: writes, depth 1", 14.1, mean(NVME, WRITES, 1)?, "`controller`"),
        predicted("nvme-2016: writes, depth 2", 14.1, mean(NVME, WRITES, 2)?),
        predicted("nvme-2016: writes, depth 4", 14.1, mean(NVME, WRITES, 4)?),
        predicted("nvme-2016: writes, depth 32", 121.0, mean(NVME, WRITES, 32)?),
    ])
}

/// What the paper says of the tails of the one drive.
const FEW: &str = "\"ranging from a few us to hundreds us, for both the reads and writes\"";
/// Why the other's tail is shorter here.
const NO_TASKS: &str = "the paper lays them to tasks inside the drive, which without errors or \
                        writes this one has not";
const WHICH: &str = "not compared: the paper does not say of which writes, or of a drive in which \
                     state; here it is new, and written over as often as there are requests";

/// Figure 4b.
fn tails(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut of = |model, load| drives.many(model, load, 1, 100);
    let (reads, writes) = (of(ULL, READS)?, of(ULL, WRITES)?);
    let (slow, slow_writes) = (of(NVME, READS)?, of(NVME, WRITES)?);
    let within = |what: &str, seen: &Seen| {
        Row::within(FIGURE_4, what, "us", FEW, seen.nines(), 1.0..=1000.0)
    };
    let over = |seen: &Seen| seen.nines().map(|nines| nines / seen.mean());
    let (slow, slow_writes) = (over(&slow), over(&slow_writes));
    let writes_what = "nvme-2016: five nines of writes, over the mean";
    Ok(vec![
        within("ull: five nines of random reads, depth 1", &reads),
        within("ull: five nines of random writes, depth 1", &writes),
        tail(slow),
        Row::shown(FIGURE_4, writes_what, "x", Reference::Paper(108.0), slow_writes, WHICH),
    ])
}

/// Five nines of the other's reads, over their mean.
fn tail(ours: Runs) -> Row {
    let (what, paper) = ("nvme-2016: five nines of reads, over the mean", 17.9);
    let is_shorter = ours.median() < paper;
    Row::band(FIGURE_4, what, "x", Reference::Paper(paper), ours, TENTH)
        .explained_where(is_shorter, NO_TASKS)
}

/// Figure 4's curves, and five nines where they are deepest.
fn latency_by_depth(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for model in [ULL, NVME] {
        for depth in [2, 4, 8, 16, 32] {
            let mean = Runs::one(drives.few(model, READS, depth)?.mean());
            let what = format!("{}: random reads, depth {depth}, mean", model.profile);
            rows.push(Row::shown(FIGURE_4, &what, "us", Reference::Silent, mean, CURVE));
        }
        let nines = drives.many(model, READS, 32, 100)?.nines();
        let what = format!("{}: random reads, depth 32, five nines", model.profile);
        rows.push(Row::shown(FIGURE_4, &what, "us", Reference::Silent, nines, CURVE));
    }
    Ok(rows)
}

/// A rate in percent of the most, random reads with [`DEEP`] out.
fn of_most(drives: &mut Drives, model: Model, load: &str, depth: u64) -> Result<f64, Error> {
    let most = drives.few(model, READS, DEEP)?.rate();
    Ok(100.0 * drives.few(model, load, depth)?.rate() / most)
}

/// Figure 5a, and both drives' curves.
fn saturation(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut share = |load, depth| of_most(drives, ULL, load, depth);
    let predicted = |what: &str, paper, ours| predicted(FIGURE_5, what, "% of most", paper, ours);
    let fitted = |what: &str, paper, ours, by| fitted(FIGURE_5, what, "% of most", paper, ours, by);
    let mut rows = vec![
        fitted("ull: reads in sequence, 8 entries", 100.0, share(IN_ORDER, 8)?, "`core_read`"),
        predicted("ull: random reads, 16 entries", 100.0, share(READS, 16)?),
        predicted("ull: writes in sequence", 90.0, share(WRITES_IN_ORDER, 32)?),
        fitted("ull: random writes", 87.0, share(WRITES, 32)?, "`core_write`"),
    ];
    for model in [ULL, NVME] {
        for depth in [1, 2, 4, 8, 32, 128] {
            let share = Runs::one(of_most(drives, model, READS, depth)?);
            let what = format!("{}: random reads, {depth} entries", model.profile);
            rows.push(Row::shown(FIGURE_5, &what, "% of most", Reference::Silent, share, CURVE));
        }
    }
    Ok(rows)
}

const FORTY: &str = "the paper has 2.4 GB/s of reads and 1.2 of writes, and does not say of which it \
                     is 40 %; its own 121 us at depth 32 are 45 % of the one and 90 % of the other, \
                     so that one of its two figures is of another state of the drive";
const MOST: &str = "\"the bandwidth [...] for random reads outperforms that of all other I/O \
                    patterns [...] with higher queue depths (more than 128)\"";

/// Figure 5b.
fn most(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut rate = |load, depth| drives.few(NVME, load, depth).map(|seen| seen.rate());
    let random = rate(READS, DEEP)?;
    let (in_order, writes) = (rate(IN_ORDER, DEEP)?, rate(WRITES, DEEP)?);
    let writes_in_order = rate(WRITES_IN_ORDER, DEEP)?;
    let what = "nvme-2016: random reads, the most";
    let mut rows = vec![
        fitted(FIGURE_5, what, "GB/s", 1.8, random, "`core_read`"),
        predicted(FIGURE_5, "nvme-2016: reads in sequence, the most", "GB/s", 1.8, in_order),
        of_capacity(100.0 * writes / CAPACITY),
    ];
    for (name, other) in [
        ("in sequence", in_order),
        ("random writes", writes),
        ("writes in sequence", writes_in_order),
    ] {
        let pair = [("random reads", random), (name, other)];
        let pair = pair.map(|(name, rate)| (name, Runs::one(rate)));
        rows.push(Row::order(FIGURE_5, "GB/s", MOST, pair));
    }
    Ok(rows)
}

/// What it writes, in percent of [`CAPACITY`].
fn of_capacity(ours: f64) -> Row {
    let (what, paper) = ("nvme-2016: writes of 4 KiB, of its reads' 2.4 GB/s", 40.0);
    predicted(FIGURE_5, what, "%", paper, ours).explained_where(ours > paper, FORTY)
}

const SAVES: &str = "\"less than 2.2% and 11.2%, on average, respectively\"";
/// What polling is here, by the paper's figures of reads.
const OWN_DIFFERENCE: &str = "the 2.2 us that the paper's own two figures differ by, less in \
                              `controller`";
/// Why polling saves more of the conventional drive.
const OWN_US: &str = "the host's part is taken from the other drive, in us: it is less here";

/// Figures 9 and 10, with the cost of interrupts as the paper has it.
fn polling(drives: &mut Drives) -> Result<Vec<Row>, Error> {
    let mut saved = |load| -> Result<Runs, Error> {
        let (woken, polled) =
            (drives.few(NVME, load, 1)?.mean(), drives.polled(NVME, load)?.mean());
        Ok(Runs::one(100.0 * (1.0 - polled / woken)))
    };
    let (reads, writes) = (saved(READS)?, saved(WRITES)?);
    let predicted = |what: &str, paper, ours| predicted(FIGURE_9, what, "us", paper, ours);
    let mut mean = |load| drives.few(ULL, load, 1).map(|seen| seen.mean());
    let (read, write) = (mean(IN_ORDER)?, mean(WRITES)?);
    let mut mean = |load| drives.polled(ULL, load).map(|seen| seen.mean());
    let (polled_read, polled_write) = (mean(IN_ORDER)?, mean(WRITES)?);
    Ok(vec![
        saves("random reads", 2.2, reads),
        saves("random writes", 11.2, writes),
        predicted("ull: reads in sequence with interrupts", 11.8, read),
        predicted("ull: writes with interrupts", 11.2, write),
        fitted(FIGURE_9, "ull: reads in sequence polled", "us", 9.6, polled_read, OWN_DIFFERENCE),
        predicted("ull: writes polled", 9.2, polled_write),
    ])
}

/// What polling saves of the conventional drive, in percent, and `most` by the paper.
fn saves(of: &str, most: f64, ours: Runs) -> Row {
    let (what, is_more) = (format!("nvme-2016: polling saves of {of}"), ours.median() > most);
    Row::within(FIGURE_9, &what, "%", SAVES, ours, 0.0..=most).explained_where(is_more, OWN_US)
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    /// A reason is given where it was seen, and not for a failure of another kind.
    #[test]
    fn a_failure_has_the_reason_that_was_seen() {
        let fails = |row: Row, why: Option<&str>| {
            assert_eq!(row.verdict(), Verdict::Fail, "{}", row.to_json());
            assert_eq!(row.failed_since(), why, "{}", row.to_json());
        };
        fails(tail(Runs::one(5.5)), Some(NO_TASKS));
        fails(tail(Runs::one(50.0)), None);
        fails(of_capacity(48.8), Some(FORTY));
        fails(of_capacity(20.0), None);
        fails(saves("reads", 2.2, Runs::one(2.6)), Some(OWN_US));
        // Polling that costs time saves none.
        fails(saves("reads", 2.2, Runs::one(-1.0)), None);
    }
}
