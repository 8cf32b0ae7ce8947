//! Figures 17 to 22 of the study: a drive that is driven from user space and polled,
//! against one behind a kernel.
//!
//! The bypass is a queue pair that the load polls. Two ways stand for the kernel's
//! path, since none of its block devices can be had without being root: the block layer
//! of this tree with interrupts, where the kernel is there to sleep and be woken; and
//! NBD over a Unix socket, where each request and each answer goes through it and is
//! copied twice. What each way costs by itself is measured on a drive without time.
//! Fails as a live drive does.

use waiting::Strategy::Interrupt;

use super::super::{Lab, Reference, Row, Runs};
use super::completion::{NVME, ULL, not_measured, saved};
use super::live::{Asked, Job, Measured, PATTERNS, Ran, Stage, Way};
use drive::error::Error;

const FIGURE_17: &str = "figure 17, live: what bypass saves on either drive";
const FIGURE_18: &str = "figure 18, live: bypass against a kernel's path, 4 KiB";
const FIGURE_19: &str = "figure 19, live: what bypass saves of larger random reads";
const FIGURE_20: &str = "figure 20, live: the load's processor";
const FIGURE_21: &str = "figures 21 and 22: memory instructions";
const OWN: &str = "ours: what a way costs by itself, on a drive without time";

/// The drive without time.
const NULL: &str = "null";
/// The block layer with interrupts.
const WOKEN: Way = Way::Layer(Interrupt);
/// What stands for the kernel's path.
const WAYS: [(&str, Way); 2] = [("block layer", WOKEN), ("socket", Way::Socket)];
/// Sizes of requests.
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// A gain of less is none, in percent.
const NONE: f64 = 5.0;

const OURS: &str = "what a kernel's path costs is this machine's, and not theirs";

/// All rows.
pub fn rows(lab: &mut Lab, stage: Option<&Stage>) -> Result<Vec<Row>, Error> {
    Ok(All(Measured::new(lab, stage, jobs())?).rows())
}

fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut ask = |drive, ways: &[Way], asked| {
        for &way in ways {
            let job = Job { drive, way, asked };
            if !jobs.contains(&job) {
                jobs.push(job);
            }
        }
    };
    let all = [Way::Bypass, WOKEN, Way::Socket];
    SIZES.iter().for_each(|&bs| ask(ULL, &all, Asked::random_reads(bs)));
    PATTERNS.iter().for_each(|&asked| ask(ULL, &all, asked));
    PATTERNS.iter().filter(|asked| asked.random).for_each(|&asked| ask(NVME, &all[..2], asked));
    ask(NULL, &all, Asked::random_reads(SIZES[0]));
    jobs
}

/// What was measured.
struct All(Measured);

impl All {
    fn rows(&self) -> Vec<Row> {
        let mut rows = self.own();
        rows.extend(self.either_drive());
        rows.extend(self.small());
        rows.extend(self.large());
        rows.extend(self.processor());
        rows.push(not_measured(FIGURE_21, "loads, beside the kernel's path", "x", 23.0));
        rows.push(not_measured(FIGURE_21, "stores, beside the kernel's path", "x", 16.2));
        rows
    }

    fn mean(&self, way: Way, asked: Asked) -> Runs {
        self.0.of(ULL, way, asked, |ran| ran.mean)
    }

    /// What bypass saves of a way.
    fn gain(&self, drive: &'static str, way: Way, asked: Asked) -> Runs {
        let mean = |way| self.0.of(drive, way, asked, |ran| ran.mean);
        saved(&mean(way), &mean(Way::Bypass))
    }

    fn own(&self) -> Vec<Row> {
        let why = "the paper does not tell it";
        [
            ("bypass", Way::Bypass),
            ("block layer, interrupts", WOKEN),
            ("NBD, Unix socket", Way::Socket),
        ]
        .map(|(name, way)| {
            let ours = self.0.of(NULL, way, PATTERNS[1], |ran| ran.mean);
            Row::shown(OWN, name, "us", Reference::Silent, ours, why)
        })
        .into()
    }

    fn either_drive(&self) -> Vec<Row> {
        let says = "on the conventional drive what it saves is \"negligible\"";
        let mut rows = Vec::new();
        for (asked, paper) in PATTERNS.into_iter().filter(|asked| asked.random).zip([4.3, 11.1]) {
            let slow = self.gain(NVME, WOKEN, asked);
            let what = format!("nvme-2016: {}", asked.name());
            let paper = Reference::Paper(paper);
            rows.push(Row::shown(FIGURE_17, &what, "%", paper, slow.clone(), OURS));
            let first = format!("{}: saved on ull", asked.name());
            let pair = [(first, self.gain(ULL, WOKEN, asked)), ("on nvme-2016".into(), slow)];
            rows.push(Row::order(FIGURE_17, "%", says, pair));
        }
        rows
    }

    fn small(&self) -> Vec<Row> {
        let says = "\"can benefit from removing the complicated software stack from the I/O path\"";
        let mut rows = Vec::new();
        for (asked, paper) in PATTERNS.into_iter().zip([25.2, 6.3, 13.7, 13.3]) {
            for (name, way) in WAYS {
                let first = (format!("{}: {name}", asked.name()), self.mean(way, asked));
                let bypass = ("bypass".to_owned(), self.mean(Way::Bypass, asked));
                rows.push(Row::order(FIGURE_18, "us", says, [first, bypass]));
                let what = format!("{}: saved of {name}", asked.name());
                let (paper, gain) = (Reference::Paper(paper), self.gain(ULL, way, asked));
                rows.push(Row::shown(FIGURE_18, &what, "%", paper, gain, OURS));
            }
        }
        rows
    }

    fn large(&self) -> Vec<Row> {
        let says = "\"the benefits of SPDK with ULL SSD become negligible when the request size \
                    increases\"";
        let mut rows = Vec::new();
        for (name, way) in WAYS {
            let gains = SIZES.map(|bs| (bs, self.gain(ULL, way, Asked::random_reads(bs))));
            for (bs, gain) in &gains[1..] {
                let what = format!("{} KiB: saved of {name}", bs >> 10);
                let why = "the curve has no numbers in the text";
                rows.push(Row::shown(FIGURE_19, &what, "%", Reference::Silent, gain.clone(), why));
            }
            let of = |i: usize| (format!("{} KiB", gains[i].0 >> 10), gains[i].1.clone());
            let first = (format!("saved of {name}: 4 KiB"), gains[0].1.clone());
            let order = Row::order(FIGURE_19, "%", says, [first, of(2), of(4)]);
            // What it saves of the largest is not nothing.
            let lasts = gains[4].1.median() >= NONE;
            rows.push(order.explained_where(lasts, DEARER));
            let what = format!("first size with less than {NONE} %, of {name}");
            let first = first_without(&gains);
            let is_late = lasts || first.median() > 128.0;
            let knee = Row::knee(FIGURE_19, &what, "KiB", 64.0, first, 32.0..=128.0);
            rows.push(knee.explained_where(is_late, DEARER));
        }
        rows
    }

    fn processor(&self) -> Vec<Row> {
        let cpu = |way| self.0.of(ULL, way, PATTERNS[1], |ran| ran.cpu);
        let server = |ran: &Ran| ran.other_cpu;
        let says = "\"SPDK consumes all the CPU resources\"";
        let shown = |what, paper, ours| Row::shown(FIGURE_20, what, "%", paper, ours, OURS);
        vec![
            Row::within(
                FIGURE_20,
                "bypass, random reads",
                "%",
                says,
                cpu(Way::Bypass),
                90.0..=105.0,
            ),
            shown("block layer, interrupts", Reference::Paper(25.0), cpu(WOKEN)),
            shown("socket: the client", Reference::Paper(25.0), cpu(Way::Socket)),
            shown(
                "socket: the server and its drive",
                Reference::Silent,
                self.0.of(ULL, Way::Socket, PATTERNS[1], server),
            ),
        ]
    }
}

/// Why a gain lasts to larger requests.
const DEARER: &str = "this way costs more by itself (above) than the paper's, of which bypass saves \
                      1 to 3 us; and a socket more the longer a request is, as it is copied";

/// The first size whose gain is none; no number where all have one.
fn first_without(gains: &[(u64, Runs)]) -> Runs {
    let first = gains.iter().find(|(_, gain)| gain.median() < NONE);
    let at = first.map_or(f64::NAN, |(bs, _)| (bs >> 10) as f64);
    match gains.iter().find_map(|(_, gain)| gain.void()) {
        Some(why) => Runs::one(at).voided(why),
        None => Runs::one(at),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    /// Where a kernel's path costs so much a request, and a byte.
    fn failed(request: f64, byte: f64) -> Vec<String> {
        let ran = |job: &Job| {
            let device = if job.drive == NVME { 80.0 } else { 10.0 };
            let bytes = job.asked.bs as f64;
            let (more, cpu) = match job.way {
                Way::Bypass => (0.0, 100.0),
                _ => (request + byte * bytes, 25.0),
            };
            let mean = device + bytes / 2000.0 + more;
            Ran { mean, median: mean, nines: mean, cpu, other_cpu: 0.0, sleeps: 1.0 }
        };
        let rows = All(Measured::made_up(jobs(), ran)).rows();
        let failed = rows.iter().filter(|row| row.verdict() == Verdict::Fail);
        failed.map(|row| row.what().to_owned()).collect()
    }

    #[test]
    fn a_path_that_copies_nothing_is_the_papers() {
        assert_eq!(failed(2.2, 0.0), [""; 0]);
        // One that copies costs large requests, too.
        let knees = failed(2.2, 0.001);
        assert!(knees.iter().any(|what| what.starts_with("first size")), "{knees:?}");
        let contrary = failed(-2.2, 0.0);
        assert_eq!(contrary.iter().filter(|what| what.ends_with("> bypass")).count(), 8);
    }

    #[test]
    fn a_gain_ends_at_the_first_size_that_has_none() {
        let gains =
            |all: [f64; 3]| [4 << 10, 64 << 10, 1 << 20].into_iter().zip(all.map(Runs::one));
        let first = |all| first_without(&gains(all).collect::<Vec<_>>()).median();
        assert_eq!(first([20.0, 4.0, 1.0]), 64.0);
        assert_eq!(first([20.0, 9.0, -1.0]), 1024.0);
        assert!(first([20.0, 9.0, 6.0]).is_nan());
        let mut all: Vec<_> = gains([20.0, 4.0, 1.0]).collect();
        all[2].1 = Runs::one(1.0).voided("busy");
        assert_eq!(first_without(&all).void(), Some("busy"));
    }
}
