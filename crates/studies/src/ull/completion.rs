//! Figures 9 to 16 of the study: polling, interrupts and hybrid polling, on live
//! drives below the block layer.
//!
//! The drives are as their hosts poll them: what interrupts cost is this machine's.
//! An interrupt wakes a thread that sleeps on an eventfd; hybrid polling sleeps for
//! half of the mean and polls, as Linux does. Signs and orders are judged, and the
//! paper's numbers stand beside. Fails as a live drive does.

use waiting::Strategy::{self, Hybrid, Interrupt, Poll};

use super::super::{Lab, Reference, Row, Runs};
use super::live::{Asked, Job, Measured, PATTERNS, Ran, Stage, Way};
use drive::error::Error;

/// The drives, without what interrupts cost in their own models.
pub const ULL: &str = "ull,controller=4800ns";
/// The conventional one.
pub const NVME: &str = "nvme-2016,controller=5700ns";

const FIGURE_9: &str = "figure 9, live: what polling saves on either drive";
const FIGURE_10: &str = "figure 10, live: mean latency, interrupts against polling";
const FIGURE_11: &str = "figure 11, live: five nines";
const FIGURE_13: &str = "figures 12 and 13, live: the load's processor";
const FIGURE_15: &str = "figures 14 and 15: where polling's time goes, and memory instructions";
const FIGURE_16: &str = "figure 16, live: hybrid polling";

/// Large requests of figure 16.
const LARGE: Asked = Asked { reads: true, random: true, bs: 32 << 10 };

/// Why hybrid polling may take all of a core.
const AWAKE: &str = "half of so short a time is over before the processor has been given away: \
                     setting the timer takes the time, and the sleeps below are next to none";
const OURS: &str = "what an interrupt costs is a thread's waking on this machine, not theirs";

/// All rows.
pub fn rows(lab: &mut Lab, stage: Option<&Stage>) -> Result<Vec<Row>, Error> {
    let all = All(Measured::new(lab, stage, jobs())?);
    Ok(all.rows())
}

fn jobs() -> Vec<Job> {
    let on = |drive, way, asked| Job { drive, way: Way::Layer(way), asked };
    let mut jobs = Vec::new();
    for asked in PATTERNS.into_iter().chain([LARGE]) {
        jobs.extend([Poll, Interrupt, Hybrid].map(|way| on(ULL, way, asked)));
    }
    for asked in PATTERNS.into_iter().filter(|asked| asked.random) {
        jobs.extend([Poll, Interrupt].map(|way| on(NVME, way, asked)));
    }
    jobs.push(on(NVME, Hybrid, PATTERNS[1]));
    jobs
}

/// What was measured.
struct All(Measured);

/// What a figure says that needs hardware counters.
pub fn not_measured(figure: &str, what: &str, unit: &'static str, paper: f64) -> Row {
    let none = "not measured here: it takes hardware counters of loads and stores \
                (perf_event_open), which this tree does not use; valgrind, which it does, slows \
                the code and not the drive";
    Row::shown(figure, what, unit, Reference::Paper(paper), Runs::new(vec![]), none)
}

/// What the second of two takes less than the first, in percent.
pub fn saved(first: &Runs, second: &Runs) -> Runs {
    first.with(second, |first, second| 100.0 * (1.0 - second / first))
}

impl All {
    fn rows(&self) -> Vec<Row> {
        let mut rows = self.either_drive();
        rows.extend(self.means());
        rows.extend(self.tails());
        rows.extend(self.processor());
        rows.extend(inside());
        rows.extend(self.hybrid());
        rows
    }

    fn of(&self, way: Strategy, asked: Asked, figure: fn(&Ran) -> f64) -> Runs {
        self.0.of(ULL, Way::Layer(way), asked, figure)
    }

    fn mean(&self, way: Strategy, asked: Asked) -> Runs {
        self.of(way, asked, |ran| ran.mean)
    }

    /// A figure of all patterns of 4 KiB that `which` has, as one: the mean of each turn's.
    fn over(&self, which: fn(Asked) -> bool, figure: impl Fn(Asked) -> Runs) -> Runs {
        let mut all = PATTERNS.into_iter().filter(|&asked| which(asked)).map(figure);
        let first = all.next().expect("each of the two has two");
        let second = all.next().expect("each of the two has two");
        first.with(&second, |a, b| (a + b) / 2.0)
    }

    fn saved_on(&self, drive: &'static str, asked: Asked) -> Runs {
        let mean = |way| self.0.of(drive, Way::Layer(way), asked, |ran| ran.mean);
        saved(&mean(Interrupt), &mean(Poll))
    }

    fn either_drive(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let says = "on the conventional drive \"polling unfortunately has no performance impact\"";
        for (asked, paper) in PATTERNS.into_iter().filter(|asked| asked.random).zip([2.2, 11.2]) {
            let slow = self.saved_on(NVME, asked);
            let what = format!("nvme-2016: {}, saved", asked.name());
            let paper = Reference::Paper(paper);
            rows.push(Row::shown(FIGURE_9, &what, "%", paper, slow.clone(), OURS));
            let first = format!("{}: saved on ull", asked.name());
            let pair = [(first, self.saved_on(ULL, asked)), ("on nvme-2016".into(), slow)];
            rows.push(Row::order(FIGURE_9, "%", says, pair));
        }
        rows
    }

    fn means(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let says = "\"polling improves the performance compared to the conventional interrupt-based \
                    I/O completion\"";
        for asked in PATTERNS {
            let first = format!("{}: interrupts", asked.name());
            let pair =
                [(first, self.mean(Interrupt, asked)), ("polled".into(), self.mean(Poll, asked))];
            rows.push(Row::order(FIGURE_10, "us", says, pair));
        }
        let paper = [("reads", true, 11.8, 9.6, 16.3), ("writes", false, 11.2, 9.2, 13.5)];
        for (name, reads, woken, polled, saves) in paper {
            let which =
                if reads { |asked: Asked| asked.reads } else { |asked: Asked| !asked.reads };
            let mean = |way| self.over(which, |asked| self.mean(way, asked));
            let mut shown = |what: &str, unit, paper, ours| {
                let (what, paper) = (format!("{name}: {what}"), Reference::Paper(paper));
                rows.push(Row::shown(FIGURE_10, &what, unit, paper, ours, OURS));
            };
            shown("interrupts", "us", woken, mean(Interrupt));
            shown("polled", "us", polled, mean(Poll));
            shown("what polling saves", "%", saves, saved(&mean(Interrupt), &mean(Poll)));
        }
        rows
    }

    /// Three nines: five would take a hundred seconds a run.
    fn tails(&self) -> Vec<Row> {
        let why = "99.9 %, as five nines need ten million requests, 100 s a run and more; and a tail \
                   is what this machine's other work makes of it";
        let paper = [("reads", true, 12.5), ("writes", false, 11.4)];
        let row = |(name, reads, paper)| {
            let which =
                if reads { |asked: Asked| asked.reads } else { |asked: Asked| !asked.reads };
            let nines = |way| self.over(which, |asked| self.of(way, asked, |ran| ran.nines));
            let more = nines(Poll).with(&nines(Interrupt), |poll, int| 100.0 * (poll / int - 1.0));
            let what = format!("{name}: what polling has more");
            Row::shown(FIGURE_11, &what, "%", Reference::Paper(paper), more, why)
        };
        paper.map(row).into()
    }

    fn processor(&self) -> Vec<Row> {
        let cpu = |way| self.over(|asked| asked.random, |asked| self.of(way, asked, |ran| ran.cpu));
        let sleeps =
            |way| self.over(|asked| asked.random, |asked| self.of(way, asked, |ran| ran.sleeps));
        let asleep = "of a core that sleeps this machine counts the waking, too";
        let within = |what, says, ours, range| Row::within(FIGURE_13, what, "%", says, ours, range);
        let mut rows = vec![
            within(
                "polled",
                "96.4 % of the processor in the kernel alone",
                cpu(Poll),
                90.0..=105.0,
            ),
            within("hybrid", "58 and 56 %", cpu(Hybrid), 35.0..=75.0)
                .explained_where(sleeps(Hybrid).median() < 0.5, AWAKE),
            Row::shown(
                FIGURE_13,
                "interrupts",
                "%",
                Reference::Paper(17.6),
                cpu(Interrupt),
                asleep,
            ),
            Row::order(
                FIGURE_13,
                "%",
                "hybrid polling takes \"2.2x more than the conventional interrupt-driven method\"",
                [("polled", cpu(Poll)), ("hybrid", cpu(Hybrid)), ("interrupts", cpu(Interrupt))],
            ),
        ];
        let long = self.0.of(NVME, Way::Layer(Hybrid), PATTERNS[1], |ran| ran.cpu);
        let (what, why) = ("hybrid, reads of nvme-2016", "the paper has it of the other drive");
        rows.push(Row::shown(FIGURE_13, what, "%", Reference::Silent, long, why));
        for way in [Poll, Hybrid, Interrupt] {
            let (what, why) = (format!("{}: sleeps", way.name()), "the paper counts none");
            let ours = sleeps(way);
            rows.push(Row::shown(FIGURE_13, &what, "a request", Reference::Silent, ours, why));
        }
        rows
    }

    fn hybrid(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let says = "hybrid polling \"exhibits 5% longer latency, compared to the polled-mode\", and \
                    \"can reduce the I/O latency 8.2%, at most\", against interrupts";
        let over = "a sleep ends too late: of so short a wait half is less than a waking takes here, \
                    as the paper has it of sleeps that are \"highly inaccurate\"";
        for asked in PATTERNS.into_iter().chain([LARGE]) {
            let (kib, name) = (asked.bs >> 10, asked.name());
            let named = |way: Strategy| (way.name().to_owned(), self.mean(way, asked));
            let (_, hybrid) = named(Hybrid);
            let (first, mean) =
                (format!("{name}, {kib} KiB: interrupt"), self.mean(Interrupt, asked));
            let all = [(first, mean.clone()), named(Hybrid), named(Poll)];
            let is_late = hybrid.median() > mean.median();
            rows.push(Row::order(FIGURE_16, "us", says, all).explained_where(is_late, over));
            let mut shown = |what: &str, paper, ours| {
                let (what, paper) = (format!("{name}, {kib} KiB: {what}"), Reference::Paper(paper));
                rows.push(Row::shown(FIGURE_16, &what, "%", paper, ours, OURS));
            };
            shown("what hybrid saves", 8.2, saved(&mean, &hybrid));
        }
        rows
    }
}

/// What a profiler would tell.
fn inside() -> Vec<Row> {
    let none = "not measured here: it is of the kernel's own functions, by a profiler";
    let polls = Reference::Paper(84.0);
    vec![
        Row::shown(
            FIGURE_15,
            "of polling's time, in the polling",
            "%",
            polls,
            Runs::new(vec![]),
            none,
        ),
        not_measured(FIGURE_15, "loads of polling, more than of interrupts", "%", 137.0),
        not_measured(FIGURE_15, "stores of polling, more than of interrupts", "%", 78.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    /// As the paper has it, where a waking costs `waking` us, a nap costs `nap`, and
    /// hybrid polling uses so much of a core, with so many `sleeps` a request.
    fn rows(waking: f64, nap: f64, (hybrid, sleeps): (f64, f64)) -> Vec<Row> {
        let ran = |job: &Job| {
            let device = if job.drive == ULL { 10.0 } else { 80.0 };
            let (more, cpu) = match job.way {
                Way::Layer(Poll) => (0.0, 99.0),
                Way::Layer(Hybrid) => (nap, hybrid),
                _ => (waking, 18.0),
            };
            let mean = device + more;
            Ran { mean, median: mean, nines: mean, cpu, other_cpu: 0.0, sleeps }
        };
        All(Measured::made_up(jobs(), ran)).rows()
    }

    fn failed(rows: &[Row]) -> Vec<&str> {
        rows.iter().filter(|row| row.verdict() == Verdict::Fail).map(Row::what).collect()
    }

    #[test]
    fn the_papers_machine_passes_and_its_contrary_does_not() {
        let papers = rows(2.2, 0.7, (57.0, 1.0));
        assert_eq!(failed(&papers), [""; 0]);
        let judged = papers.iter().filter(|row| row.verdict() == Verdict::Pass).count();
        // Two drives, four means, the processor, and hybrid polling.
        assert_eq!(judged, 2 + 4 + 3 + 5);
        let contrary = rows(-2.2, -0.7, (57.0, 1.0));
        assert_eq!(failed(&contrary).len(), 2 + 4 + 5);
        let busy = rows(2.2, 0.7, (99.5, 1.0));
        assert_eq!(failed(&busy), ["hybrid", "polled > hybrid > interrupts"]);
        let saved = papers.iter().find(|row| row.what() == "reads: what polling saves").unwrap();
        let json = saved.to_json();
        let ours = json["ours"]["median"].as_f64().unwrap();
        assert!((ours - 100.0 * 2.2 / 12.2).abs() < 1e-9, "{json}");
    }

    /// A reason is given where it was seen, and not for a failure of another kind.
    #[test]
    fn a_failure_has_the_reason_that_was_seen() {
        let why = |rows: &[Row], what: &str| {
            let row = rows.iter().find(|row| row.what() == what).expect(what);
            (row.verdict() == Verdict::Fail, row.failed_since().map(str::to_owned))
        };
        let order = "random reads, 4 KiB: interrupt > hybrid > poll";
        let awake = rows(2.2, 9.0, (98.0, 0.0));
        assert_eq!(why(&awake, "hybrid"), (true, Some(AWAKE.into())));
        assert!(matches!(why(&awake, order), (true, Some(why)) if why.contains("too late")));
        let other = rows(2.2, -0.7, (20.0, 1.0));
        assert_eq!((why(&other, "hybrid"), why(&other, order)), ((true, None), (true, None)));
    }
}
