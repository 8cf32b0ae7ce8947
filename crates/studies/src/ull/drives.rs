//! The two drives of the study in virtual time: each load is run once, however
//! many rows rest on it.
//!
//! Guarantees: what a run told is one figure, the same for the same seed. Five
//! nines that fewer than ten million requests stand behind are marked, and the
//! slowest request is shown for them. Fails as a bench does.

use std::collections::BTreeMap;

use measure::{Row, Summary};

use super::super::{Lab, Options, Runs};
use drive::error::Error;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its profile.
    pub profile: &'static str,
    /// Its profile's key with which its host polls: 2.2 us less in `controller`, as
    /// interrupts cost.
    pub polled: &'static str,
}

/// The ultra-low-latency drive.
pub const ULL: Model = Model { profile: "ull", polled: "controller=4800ns" };
/// The conventional one.
pub const NVME: Model = Model { profile: "nvme-2016", polled: "controller=5700ns" };

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The capacity of either.
    pub size: &'static str,
    /// Requests behind a mean or a rate.
    pub few: u64,
    /// Requests behind five nines, where all are of one kind.
    pub many: u64,
    /// Whether all shares of writes are run, or only the least.
    pub all_mixes: bool,
    /// Drive time of collection over time, in s.
    pub seconds: u32,
    /// The capacities there: of the conventional drive, and of the other.
    pub over_time: [&'static str; 2],
}

impl Scale {
    /// As asked for.
    pub fn of(options: &Options) -> Scale {
        let full = Scale {
            size: "1G",
            few: 200_000,
            many: 10_000_000,
            all_mixes: true,
            seconds: 5,
            over_time: ["16G", "8G"],
        };
        let quick = Scale { few: 50_000, many: 100_000, all_mixes: false, seconds: 3, ..full };
        options.pick(full, quick)
    }
}

/// Preconditioned until it is steady.
pub const STEADY: &str = "--precondition steady --steady-rounds 3 --steady-round 1s";

/// What one run told.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Of reads, where there are writes as well; else of all.
    latency: Summary,
    /// Bytes a second.
    rate: f64,
    /// Of the drive, at rest included.
    watts: f64,
    /// Blocks programmed for each that was written; none where nothing was.
    pub programmed: Option<f64>,
    /// Mean latency in us of each second of drive time, of which there is one whole.
    pub seconds: Vec<f64>,
}

impl Seen {
    fn of(outcome: &bench::Outcome, depth: u64) -> Seen {
        let report = &outcome.report;
        let joules = outcome.energy.as_ref().map_or(f64::NAN, |energy| energy.joules());
        Seen {
            latency: report.read.map_or(report.latency_ns, |read| read.latency_ns),
            rate: report.bytes_per_second,
            watts: joules / report.seconds,
            programmed: report.write_amplification.as_ref().map(|of| of.total),
            seconds: seconds(&report.series, depth),
        }
    }

    /// Mean latency, in us.
    pub fn mean(&self) -> f64 {
        self.latency.mean.unwrap_or(f64::NAN) / 1e3
    }

    /// Five nines, in us.
    pub fn nines(&self) -> Runs {
        let us = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| ns as f64 / 1e3);
        match self.latency.p99999 {
            Some(ns) => Runs::one(us(Some(ns))),
            None => Runs::one(us(self.latency.max)).voided(
                "five nines need ten million requests, which --quick does not make: it is the \
                 slowest of those made",
            ),
        }
    }

    /// GB a second.
    pub fn rate(&self) -> f64 {
        self.rate / 1e9
    }

    /// Power, in W.
    pub fn watts(&self) -> f64 {
        self.watts
    }
}

/// Mean latency in us of each second, with `depth` requests out, by Little's law. One in
/// which no request ended is told with the next in which one did.
fn seconds(series: &[Row], depth: u64) -> Vec<f64> {
    let (mut all, mut silent) = (Vec::new(), 0.0);
    for row in series {
        let seconds = silent + row.seconds;
        if row.ios == 0 {
            silent = seconds;
            continue;
        }
        silent = 0.0;
        if seconds >= 0.5 {
            all.push(depth as f64 * 1e6 * seconds / row.ios as f64);
        }
    }
    all
}

/// Both drives, and what is known of them.
pub struct Drives<'l, 'o> {
    lab: &'l mut Lab<'o>,
    /// How much is run.
    pub scale: Scale,
    known: BTreeMap<String, Seen>,
}

impl<'l, 'o> Drives<'l, 'o> {
    /// Of which nothing is known yet.
    pub fn new(lab: &'l mut Lab<'o>, scale: Scale) -> Drives<'l, 'o> {
        Drives { lab, scale, known: BTreeMap::new() }
    }

    /// A load of [`Scale::few`] requests: options of `ssdkit bench`.
    pub fn few(&mut self, model: Model, load: &str, depth: u64) -> Result<Seen, Error> {
        let load = format!("{load} --qd {depth} --ios {}", self.scale.few);
        self.see(model.profile, self.scale.size, &load, depth)
    }

    /// The same, of a drive whose host polls.
    pub fn polled(&mut self, model: Model, load: &str) -> Result<Seen, Error> {
        let profile = format!("{},{}", model.profile, model.polled);
        let load = format!("{load} --qd 1 --ios {}", self.scale.few);
        self.see(&profile, self.scale.size, &load, 1)
    }

    /// A load of so many requests that five nines of `percent` of them can be told.
    pub fn many(
        &mut self,
        model: Model,
        load: &str,
        depth: u64,
        percent: u64,
    ) -> Result<Seen, Error> {
        // A tenth more, as shares are drawn.
        let ios = self.scale.many * 110 / percent;
        let load = format!("{load} --qd {depth} --ios {ios}");
        self.see(model.profile, self.scale.size, &load, depth)
    }

    /// Random writes for [`Scale::seconds`] to a larger drive that was written in order.
    pub fn over_time(&mut self, model: Model, depth: u64) -> Result<Seen, Error> {
        let [slow, fast] = self.scale.over_time;
        let size = if model == NVME { slow } else { fast };
        let seconds = self.scale.seconds;
        let load = format!("--rw randwrite --qd {depth} --precondition seq --time {seconds}s");
        self.see(model.profile, size, &load, depth)
    }

    fn see(&mut self, profile: &str, size: &str, load: &str, depth: u64) -> Result<Seen, Error> {
        // Counting energy changes no time.
        let args =
            format!("mem:{profile},size={size},store=none,energy=true,idle_power=3.8W {load}");
        if let Some(seen) = self.known.get(&args) {
            return Ok(seen.clone());
        }
        let rw = load.split_whitespace().nth(1).unwrap_or_default();
        let what = format!("{profile} {rw}, depth {depth}");
        let seen = Seen::of(&self.lab.bench(&what, &args)?, depth);
        self.known.insert(args, seen.clone());
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TINY;
    use super::*;
    use load::watch::Watch;

    #[test]
    fn a_second_in_which_nothing_ended_is_the_slowest() {
        let row = |ios: u64, seconds: f64| Row {
            second: 0.0,
            seconds,
            ios,
            iops: ios as f64 / seconds,
            p50: None,
            p999: None,
            write_amplification: None,
            programmed: None,
            free_chunks: None,
            collections: None,
            erases: None,
            tail: None,
        };
        let series = [row(100, 1.0), row(0, 1.0), row(0, 1.0), row(50, 1.0), row(3, 0.1)];
        assert_eq!(seconds(&series, 1), [1e4, 6e4]);
    }

    #[test]
    fn a_load_is_run_once() {
        let options = Options::default();
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let mut drives = Drives::new(&mut lab, TINY);
        let first = drives.few(ULL, "--rw randread", 1).unwrap();
        assert_eq!(drives.few(ULL, "--rw randread", 1).unwrap(), first);
        assert!(drives.few(ULL, "--rw randread", 32).unwrap().mean() > first.mean());
        assert_eq!(drives.known.len(), 2);
        assert!((16.0..16.5).contains(&first.mean()), "{first:?}");
        // The flash that a drive at work adds to one at rest.
        assert!(first.watts() > 3.8 && first.watts() < 4.0, "{first:?}");
        assert!(first.nines().void().is_some_and(|why| why.contains("--quick")));
    }

    #[test]
    fn a_mix_tells_of_its_reads() {
        let options = Options::default();
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let mut drives = Drives::new(&mut lab, TINY);
        let mix = drives.many(NVME, "--rw randrw --read-percent 50", 1, 50).unwrap();
        let alone = drives.few(NVME, "--rw randread", 1).unwrap();
        // With its writes, which are short, it would be less.
        assert!(mix.mean() > alone.mean(), "{mix:?} {alone:?}");
    }
}
