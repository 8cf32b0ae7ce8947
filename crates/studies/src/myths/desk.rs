//! A drive on a desk: one load after the other, in virtual time, for what is no single
//! bench.
//!
//! Fails when the drive cannot be, a request fails, or somebody stops it.

use port::{BlockOp, Shape};
use workload::{Arrivals, Pattern, Rate};

use super::super::lab::config;
use drive::error::Error;
use drive::spec::DriveConfig;
use drive::stack;
use drive::whole::Boxed;
use load::driver::Virtual;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::tally::Tally;
use load::watch::Watch;

/// The drive.
pub struct Desk {
    driver: Virtual<Boxed>,
    /// Its effective configuration.
    pub config: DriveConfig,
    /// Its outside.
    pub shape: Shape,
    seed: u64,
}

impl Desk {
    /// A new drive of this name.
    pub fn new(name: &str, seed: u64) -> Result<Desk, Error> {
        let config = config(name)?;
        let drive = stack::build(&config, seed)?;
        let shape = drive.shape();
        Ok(Desk { driver: Virtual::new(drive), config, shape, seed })
    }

    /// So many requests of a pattern, `depth` of them out at a time.
    pub fn run(
        &mut self,
        pattern: &Pattern,
        depth: u32,
        ios: u64,
        watch: &mut Watch,
    ) -> Result<Tally, Error> {
        self.paced(pattern, Pace::Closed { depth }, ios, watch)
    }

    /// So many requests of a pattern, of which so many arrive a second.
    pub fn at_rate(
        &mut self,
        pattern: &Pattern,
        rate: u64,
        ios: u64,
        watch: &mut Watch,
    ) -> Result<Tally, Error> {
        let arrivals = Arrivals::new(Rate::Fixed(rate), self.seed, (0, 1));
        let arrivals = arrivals.map_err(|e| Error::Usage(e.to_string()))?;
        self.paced(pattern, Pace::Open(arrivals), ios, watch)
    }

    fn paced(
        &mut self,
        pattern: &Pattern,
        pace: Pace,
        ios: u64,
        watch: &mut Watch,
    ) -> Result<Tally, Error> {
        let mut load = Load::new(&self.shape, pattern, pace, 1, self.seed)?;
        let plan = Plan { ramp: 0, until: Until::Ios(ios), count: true };
        let tally = Runner::new(watch).run(&mut self.driver, &mut load, plan)?;
        match tally.problem() {
            Some(what) => Err(Error::Failed(what)),
            None if tally.interrupted => Err(Error::Failed("stopped before its end".into())),
            None => Ok(tally),
        }
    }
}

/// Requests a second.
pub fn iops(tally: &Tally) -> f64 {
    tally.all().count() as f64 / tally.seconds()
}

/// Blocks programmed for each that the host wrote.
pub fn amplification(tally: &Tally) -> f64 {
    let of = |of: fn(&targets::WriteCounters) -> u64| of(&tally.after) - of(&tally.before);
    let user = of(|c| c.user);
    (user + of(|c| c.gc) + of(|c| c.padding) + of(|c| c.metadata)) as f64 / user as f64
}

/// Trims that ended.
pub fn trims(tally: &Tally) -> u64 {
    tally.latency(BlockOp::Trim).count()
}
