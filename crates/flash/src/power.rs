//! When a drive sleeps, and when it is too warm to go on at its full speed.
//!
//! Here is what a profile says of it; what a drive does with it is in
//! docs/controller.md. Nothing here fails.

/// A drive's power states and its temperature. Times are in ns, temperatures in
/// thousandths of a degree Celsius.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// So long nothing is inside, and the drive sleeps; 0 for never.
    pub sleep_after: u64,
    /// What the first command waits then.
    pub wake: u64,
    /// What it takes while it sleeps, in mW, in place of what it takes at all times.
    pub sleep_power: u64,
    /// What is around it.
    pub ambient: u64,
    /// Kelvins that a watt makes it warmer in the end, in thousandths; 0 for no
    /// temperature at all.
    pub resistance: u64,
    /// How long 1 - 1/e of a change of its temperature takes.
    pub thermal_time: u64,
    /// From here on it throttles,
    pub throttle_from: u64,
    /// until it is down to this.
    pub throttle_until: u64,
    /// Bytes a second that it takes while it throttles; 0 where it never does.
    pub throttle_rate: u64,
}

impl Power {
    /// Whether there is any of it.
    pub fn is_on(&self) -> bool {
        self.sleep_after > 0 || self.resistance > 0
    }
}
