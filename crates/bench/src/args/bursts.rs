//! The options of bursts.

use clap::Args;
use drive::error::Error;
use load::bursts::Pauses;
use load::runner::Until;
use measure::options::{count, duration};

use super::End;

/// Requests in bursts.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct BurstArgs {
    /// Closed loop: after every burst so long a pause, from when its last request has ended.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub pause: Option<u64>,
    /// Requests of a burst [default: 1].
    #[arg(long, value_name = "COUNT", value_parser = count, requires = "pause")]
    pub burst: Option<u64>,
}

impl BurstArgs {
    /// How a load pauses, if it does.
    pub fn pauses(&self) -> Option<Pauses> {
        self.pause.map(|ns| Pauses { each: self.burst.unwrap_or(1), ns })
    }

    /// Whether a run of an open loop or not, through a block layer or not, may pause.
    pub fn check(&self, is_open: bool, has_layer: bool) -> Result<(), Error> {
        let what = match self.pause {
            Some(_) if is_open => "with --rate requests arrive when they are due",
            Some(_) if has_layer => {
                "it is for a drive without a block layer: mem: or a drive file without the options \
                 from --cores to --batch, or nbd:"
            }
            _ => return Ok(()),
        };
        Err(Error::Usage(format!(
            "--pause is for a closed loop of one core, and {what}: leave it out"
        )))
    }

    /// Whether the pauses of a run that ends so end before drive time does.
    pub fn check_time(&self, end: End) -> Result<(), Error> {
        let until = match end {
            End::Ios(ios) => Until::Ios(ios),
            End::Time(time) => Until::Time(time),
        };
        if self.pauses().is_some_and(|pauses| !pauses.are_over_in_time(until)) {
            let text = "--pause: the pauses of a run take at most 100 years together: take \
                        shorter ones, or fewer by --ios, --time or --burst";
            return Err(Error::Usage(text.into()));
        }
        Ok(())
    }
}
