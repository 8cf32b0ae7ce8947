//! Which block target a life has: [`Subject`] is what a target tells of itself to
//! live here, beside what every target is.
//!
//! A life needs no more of a target than [`ftl::Target`], so any crate can have its
//! own live here ([`crate::lives`]).

pub(crate) mod pblk;

use std::error::Error;
use std::fmt;
use std::ops::Range;

use device::{Buffered, Link, OpenChannel};
use ftl::{Over, Start};
use port::Time;

use crate::drive::Drive;
use crate::machine::Ask;
use crate::power::Flash;
use crate::setup::Setup;
use crate::shared::Tenants;

/// What is below a target here.
pub trait Below: OpenChannel {
    /// The drive.
    fn drive(&self) -> &Drive;
}

impl Below for Drive {
    fn drive(&self) -> &Drive {
        self
    }
}

impl Below for Link<Drive> {
    fn drive(&self) -> &Drive {
        self.below()
    }
}

impl Below for Buffered<Drive> {
    fn drive(&self) -> &Drive {
        self.below()
    }
}

/// A drive, perhaps behind a link or the memory of a buffer.
pub type Lower = Box<dyn Below>;

/// What a host asks that knows its target, in the place of what it was to ask.
pub type Host = Box<dyn FnMut(Ask) -> Ask>;

/// A start that was refused: why may it be?
pub struct Refusal<'a> {
    /// The drive.
    pub setup: &'a Setup,
    /// Its flash.
    pub flash: &'a Flash,
    /// Something could not be read in it.
    pub unread: bool,
    /// The same of a target of keys that shares the drive, which then is not in that.
    pub keys_unread: bool,
    /// Something could not be written.
    pub unwritten: bool,
}

/// A block target that can live here. The tags of what it writes for its user
/// have the number of the logical block, and of what it writes for itself one that
/// is higher: so it is known what faults concern.
pub trait Subject: Start<Below = Lower> + 'static {
    /// How it is set up on a drive of this kind.
    fn config(setup: &Setup) -> Self::Config;

    /// A host that knows the target as it is after a start, with nothing inside.
    /// What it asks is taken in that order.
    fn host(&self) -> Host {
        Box::new(|ask| ask)
    }

    /// Whether faults explain that a start was refused.
    fn may_refuse(_error: &Self::Error, _refusal: &Refusal) -> bool {
        false
    }

    /// Whether a drive has reason to take no more writes of some of these blocks.
    fn may_end(_setup: &Setup, _flash: &Flash, _blocks: &Range<u64>) -> bool {
        false
    }

    /// Which blocks may be lost with one of a target's own, of which this is the tag's id;
    /// `first` is that target's first block.
    fn lost_with(setup: &Setup, _first: u64, _id: u64) -> Range<u64> {
        0..setup.blocks()
    }

    /// Several targets, one of which may be asked by key.
    fn tenants(&mut self) -> Option<&mut Tenants> {
        None
    }
}

/// A target that lives.
pub trait Alive: Over<Below = Lower> {
    /// See [`Subject::host`].
    fn host(&self) -> Host;

    /// See [`Subject::tenants`].
    fn tenants(&mut self) -> Option<&mut Tenants>;
}

impl<T: Subject> Alive for T {
    fn host(&self) -> Host {
        Subject::host(self)
    }

    fn tenants(&mut self) -> Option<&mut Tenants> {
        Subject::tenants(self)
    }
}

/// A target, and when it is ready; or why it is not.
type Started = Result<(Box<dyn Alive>, Time), Box<dyn Error + Send + Sync>>;

/// Which target: a [`Subject`] whose type is forgotten.
#[derive(Clone, Copy)]
pub struct Species {
    start: fn(Lower, &Setup, bool) -> Started,
    may_refuse: fn(&(dyn Error + 'static), &Refusal) -> bool,
    may_end: fn(&Setup, &Flash, &Range<u64>) -> bool,
    lost_with: fn(&Setup, u64, u64) -> Range<u64>,
}

impl Species {
    /// That of a target.
    pub const fn of<T: Subject>() -> Species {
        Species {
            start: |lower, setup, fresh| {
                let config = T::config(setup);
                let (target, at) = match fresh {
                    true => (T::new(lower, &config)?, Time::ZERO),
                    false => T::recover(lower, &config, Time::ZERO)?,
                };
                Ok((Box::new(target), at))
            },
            may_refuse: |error, refusal| {
                error.downcast_ref().is_some_and(|error| T::may_refuse(error, refusal))
            },
            may_end: T::may_end,
            lost_with: T::lost_with,
        }
    }

    /// Starts it: anew on a drive that is `fresh`, else as that has it.
    pub fn start(self, lower: Lower, setup: &Setup, fresh: bool) -> Started {
        (self.start)(lower, setup, fresh)
    }

    /// See [`Subject::may_refuse`].
    pub fn may_refuse(self, error: &(dyn Error + 'static), refusal: &Refusal) -> bool {
        (self.may_refuse)(error, refusal)
    }

    /// See [`Subject::may_end`].
    pub fn may_end(self, setup: &Setup, flash: &Flash, blocks: &Range<u64>) -> bool {
        (self.may_end)(setup, flash, blocks)
    }

    /// See [`Subject::lost_with`].
    pub fn lost_with(self, setup: &Setup, first: u64, id: u64) -> Range<u64> {
        (self.lost_with)(setup, first, id)
    }
}

impl fmt::Debug for Species {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Species")
    }
}
