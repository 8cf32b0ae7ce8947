//! When a drive sleeps, and when it is too warm to go on at its full speed.
//!
//! Here is what a profile says of it; what a drive does with it is in
//! docs/controller.md. Nothing here fails.

/// Most sleep states of a drive.
pub const MAX_SLEEP_STATES: usize = 4;

/// A drive's power states and its temperature. Times are in ns, temperatures in
/// thousandths of a degree Celsius.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// When it sleeps, and how deeply.
    pub sleep: Sleep,
    /// How warm it gets, and when that is too warm.
    pub temperature: Temperature,
}

impl Power {
    /// Whether there is any of it.
    pub fn is_on(&self) -> bool {
        self.sleep.is_on() || self.temperature.is_on()
    }
}

/// A drive's sleep states, from the lightest to the deepest: the non-operational power
/// states of NVM Express, which it enters by itself (Autonomous Power State
/// Transition). As many of each list; a profile's check sees to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// So long nothing is inside when it enters each, in ns; empty for never. Rising.
    pub after: Vec<u64>,
    /// What the first command waits then, in ns.
    pub wake: Vec<u64>,
    /// What it takes meanwhile, in mW, in place of what it takes at all times. Falling.
    pub power: Vec<u64>,
}

impl Default for Sleep {
    fn default() -> Sleep {
        Sleep { after: Vec::new(), wake: vec![0], power: vec![0] }
    }
}

impl Sleep {
    /// Whether it ever sleeps.
    pub fn is_on(&self) -> bool {
        !self.after.is_empty()
    }
}

/// A drive's temperature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Temperature {
    /// What is around it.
    pub ambient: u64,
    /// Kelvins that a watt makes it warmer in the end, in thousandths; 0 for no
    /// temperature at all.
    pub resistance: u64,
    /// How long 1 - 1/e of a change of its temperature takes.
    pub time: u64,
    /// From here on it throttles,
    pub throttle_from: u64,
    /// until it is down to this.
    pub throttle_until: u64,
    /// Bytes a second that it takes while it throttles; 0 where it never does.
    pub throttle_rate: u64,
}

impl Temperature {
    /// Whether it has one.
    pub fn is_on(&self) -> bool {
        self.resistance > 0
    }
}
