//! The stacks that are simulated: a target, a drive, and a link somewhere.

use device::Link;
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};
use targets::pblk::PblkError;
use targets::{Pblk, WriteCounters};

use crate::drive::Drive;
use crate::power::Flash;
use crate::setup::{LinkAt, Setup};
use crate::trouble::Troubles;

/// A block drive, from the host's side down to the flash.
pub enum Stack {
    /// No link.
    Bare(Box<Pblk<Drive>>),
    /// An open-channel drive behind a link.
    Below(Box<Pblk<Link<Drive>>>),
    /// A conventional drive behind a link.
    Above(Box<Link<Pblk<Drive>>>),
}

/// Calls the same of whichever stack it is.
macro_rules! each {
    ($stack:expr, $port:ident => $call:expr) => {
        match $stack {
            Stack::Bare($port) => $call,
            Stack::Below($port) => $call,
            Stack::Above($port) => $call,
        }
    };
}

impl Stack {
    /// The stack of a setup over flash: `fresh` where nothing was written to
    /// it, else recovered. It has these troubles, decided by `seed`. Gives it and the time at
    /// which it is ready.
    pub fn start(
        setup: &Setup,
        flash: &Flash,
        fresh: bool,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<(Stack, Time), PblkError> {
        let drive = flash.drive(&setup.timing, fresh, seed)?;
        let drive = Drive::new(drive, flash, troubles, seed);
        let drive = drive.expect("the rules are for vector commands");
        let config = setup.config;
        Ok(match setup.link_at {
            LinkAt::Below => {
                let (pblk, at) = start(Link::new(setup.link, drive), config, fresh)?;
                (Stack::Below(Box::new(pblk)), at)
            }
            LinkAt::Nowhere => {
                let (pblk, at) = start(drive, config, fresh)?;
                (Stack::Bare(Box::new(pblk)), at)
            }
            LinkAt::Above => {
                let (pblk, at) = start(drive, config, fresh)?;
                (Stack::Above(Box::new(Link::new(setup.link, pblk))), at)
            }
        })
    }

    /// The outside of the drive.
    pub fn shape(&self) -> Shape {
        match self {
            Stack::Bare(pblk) => pblk.shape(),
            Stack::Below(pblk) => pblk.shape(),
            Stack::Above(link) => link.below().shape(),
        }
    }

    /// What the target wrote and collected since power came.
    pub fn counters(&self) -> WriteCounters {
        match self {
            Stack::Bare(pblk) => pblk.counters(),
            Stack::Below(pblk) => pblk.counters(),
            Stack::Above(link) => link.below().counters(),
        }
    }

    /// Whether the target takes no more writes.
    pub fn is_read_only(&self) -> bool {
        match self {
            Stack::Bare(pblk) => pblk.is_read_only(),
            Stack::Below(pblk) => pblk.is_read_only(),
            Stack::Above(link) => link.below().is_read_only(),
        }
    }

    /// The drive below the target.
    pub fn drive(&self) -> &Drive {
        match self {
            Stack::Bare(pblk) => pblk.device(),
            Stack::Below(pblk) => pblk.device().below(),
            Stack::Above(link) => link.below().device(),
        }
    }

    /// A hash of the target and of the drive.
    pub fn state_hash(&self) -> u64 {
        let target = match self {
            Stack::Bare(pblk) => pblk.state_hash(),
            Stack::Below(pblk) => pblk.state_hash(),
            Stack::Above(link) => link.below().state_hash(),
        };
        workload::rng::mix(target) ^ self.drive().state_hash()
    }

    /// Shuts the target down; nothing is inside. See [`Pblk::close`].
    pub fn close(&mut self, now: Time) {
        match self {
            Stack::Bare(pblk) => pblk.close(now),
            Stack::Below(pblk) => pblk.close(now),
            Stack::Above(link) => link.below_mut().close(now),
        }
    }

    /// Whether it is shut down, and all is durable.
    pub fn is_closed(&self) -> bool {
        match self {
            Stack::Bare(pblk) => pblk.is_closed(),
            Stack::Below(pblk) => pblk.is_closed(),
            Stack::Above(link) => link.below().is_closed(),
        }
    }

    /// As [`Port::submit`].
    #[inline]
    pub fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        each!(self, port => port.submit(now, reqs));
    }

    /// As [`Port::next_event`].
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        each!(self, port => port.next_event())
    }

    /// As [`Port::advance`].
    #[inline]
    pub fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        each!(self, port => port.advance(to, done));
    }
}

fn start<D: device::OpenChannel>(
    drive: D,
    config: targets::PblkConfig,
    fresh: bool,
) -> Result<(Pblk<D>, Time), PblkError> {
    if fresh {
        return Ok((Pblk::new(drive, config)?, Time::ZERO));
    }
    Pblk::recover(drive, config, Time::ZERO)
}
