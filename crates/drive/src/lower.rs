//! What is below a target: the device, and before it what the drive has of these.
//!
//! ```text
//! Parity                  across parallel units
//! Link                    of a drive whose translation layer is on the host
//! Buffered                of one that buffers itself, what crosses its memory
//! DelayPort, FaultPort    the flash's commands are late, or fail
//! Device
//! ```
//!
//! Each of them is over any other, by a call through a table for each event, so
//! each is compiled once; where a drive has none, its target is compiled for the
//! device itself. Fails where parity does not fit the drive's geometry.

use device::{BufferMemory, Buffered, Device, Link, OpenChannel};
use faults::{DelayPort, FaultPort};
use flash::{LinkTiming, Side};
use parity::{Parity, ParityCounters};
use port::{Port, Ring, Time};

use crate::backing::Backing;
use crate::error::Error;
use crate::fault_rules::{Injected, Layer, Rules};
use crate::patience::let_happen;
use crate::spec::{DriveConfig, DriveError};

/// What is below a target, whatever it is made of.
pub trait Lower: OpenChannel + Send + 'static {
    /// The device.
    fn device(&self) -> &Device<Backing>;
    /// The device.
    fn device_mut(&mut self) -> &mut Device<Backing>;
    /// The device without what is before it; what is inside that is lost.
    fn into_device(self: Box<Self>) -> Device<Backing>;
    /// What was done for the sake of parity, where there is any.
    fn parity(&self) -> Option<ParityCounters> {
        None
    }
    /// Superblocks that miss a member, where there is parity.
    fn degraded(&self) -> usize {
        0
    }
    /// From now on these rules strike here.
    fn set_rules(&mut self, _rules: &Rules) {}
    /// From now on none of them makes anything late, also of what is inside.
    fn hurry(&mut self, _now: Time) {}
    /// How often the rules for the flash's commands struck: faults or delays.
    fn struck(&self, _is_delay: bool) -> Vec<u64> {
        Vec::new()
    }
}

/// What is below the target of any drive.
pub type Flash = Box<dyn Lower>;

/// The two ports in which the rules of a layer strike.
pub type Struck<P> = DelayPort<FaultPort<P>>;

/// Rules were checked when they were read.
const CHECKED: &str = "each rule is in a layer that it can strike";

/// Puts the two ports before `below`, without rules.
pub fn two_ports<P>(below: P) -> Struck<P>
where
    P: Port,
    P::Cmd: faults::Command<Done = P::Done>,
    P::Done: faults::Completion,
{
    let port = FaultPort::new(below, &[], 0).expect(CHECKED);
    DelayPort::new(port, &[], 0).expect(CHECKED)
}

/// From now on those of the rules that are for `layer` strike in its ports.
pub fn set_rules<P>(port: &mut Struck<P>, layer: Layer, rules: &Rules)
where
    P: Port,
    P::Cmd: faults::Command<Done = P::Done>,
    P::Done: faults::Completion,
{
    port.set_rules(&rules.delays(layer), rules.seed(layer, true)).expect(CHECKED);
    let port = port.below_mut();
    port.set_rules(&rules.faults(layer), rules.seed(layer, false)).expect(CHECKED);
}

/// How often the rules in two ports struck: faults or delays.
pub fn struck<P>(port: &Struck<P>, is_delay: bool) -> Vec<u64>
where
    P: Port,
    P::Cmd: faults::Command<Done = P::Done>,
    P::Done: faults::Completion,
{
    if is_delay { port.struck().collect() } else { port.below().struck().collect() }
}

/// How often each rule for what is below a target struck.
pub fn injected(lower: &dyn Lower, rules: &Rules) -> Vec<Injected> {
    rules.injected(|layer, is_delay| match layer {
        Layer::Above => Vec::new(),
        Layer::Below => lower.struck(is_delay),
        Layer::Medium => lower.device().medium().struck(),
    })
}

/// From now on no rule strikes, and nobody keeps time: the drive is to be ended.
pub fn calm(lower: &mut dyn Lower) {
    lower.set_rules(&Rules::default());
    lower.device_mut().set_on_a_clock(false);
}

/// Lets all happen that a drive does by itself, from `now` on. Gives the time.
pub fn settle<P: Port + ?Sized>(drive: &mut P, now: Time) -> Time {
    drive.submit(now, &mut Ring::new(1));
    let_happen(drive, now, |_, _| true)
}

/// Puts away what a drive was on, and tells of what failed: there, or else above.
pub fn put_away(flash: Flash, fault: Option<Error>) -> Result<(), Error> {
    let medium = flash.into_device().cut();
    match medium.fault().map(|(why, _)| why).or(fault) {
        Some(fault) => Err(fault),
        None => medium.put_away(),
    }
}

/// The link of a drive whose target is on the host; else one that takes no time.
fn link_below(config: &DriveConfig) -> LinkTiming {
    if config.profile.side == Side::Host { config.profile.link } else { LinkTiming::default() }
}

/// The link of a drive whose target is in it; else one that takes no time.
pub fn link_above(config: &DriveConfig) -> LinkTiming {
    if config.profile.side == Side::Device { config.profile.link } else { LinkTiming::default() }
}

/// Blocks programmed beside those of a target: of parity with what was padded for it, and
/// folded out of an SLC cache. None where there is no such thing.
pub fn beside(lower: &dyn Lower) -> [Option<u64>; 2] {
    let parity = lower.parity().map(|parity| parity.parity + parity.padded);
    let (slc, row) = (lower.device().slc_health(), lower.device().geometry().row_blocks());
    let folds = (slc.blocks > 0).then_some(slc.folded * u64::from(row));
    [parity, folds]
}

/// The memory of a drive's buffer, where that has a rate: for all of its shards one.
pub fn buffer(config: &DriveConfig) -> Option<BufferMemory> {
    let rate = config.profile.buffer_rate;
    (rate > 0).then(|| BufferMemory::new(rate))
}

/// What a drive has before its device, with the memory of its buffer, if it has one.
pub fn before(
    config: &DriveConfig,
    device: Device<Backing>,
    buffer: Option<&BufferMemory>,
) -> Result<Flash, Error> {
    let mut flash: Flash = Box::new(device);
    if !config.faults.is_empty() {
        flash = Box::new(two_ports(flash));
    }
    if let Some(memory) = buffer {
        flash = Box::new(Buffered::new(memory.clone(), flash));
    }
    let link = link_below(config);
    if !link.is_instant() {
        flash = Box::new(Link::new(link, flash));
    }
    Ok(match config.spec.parity {
        0 => flash,
        width => Box::new(Parity::new(flash, width).map_err(DriveError::from)?),
    })
}

impl Lower for Device<Backing> {
    fn device(&self) -> &Device<Backing> {
        self
    }

    fn device_mut(&mut self) -> &mut Device<Backing> {
        self
    }

    fn into_device(self: Box<Self>) -> Device<Backing> {
        *self
    }

    fn set_rules(&mut self, rules: &Rules) {
        let seed = rules.seed(Layer::Medium, false);
        self.medium_mut().set_rules(&rules.medium(), seed).expect(CHECKED);
    }
}

impl Lower for Flash {
    fn device(&self) -> &Device<Backing> {
        (**self).device()
    }

    fn device_mut(&mut self) -> &mut Device<Backing> {
        (**self).device_mut()
    }

    fn into_device(self: Box<Self>) -> Device<Backing> {
        (*self).into_device()
    }

    fn parity(&self) -> Option<ParityCounters> {
        (**self).parity()
    }

    fn degraded(&self) -> usize {
        (**self).degraded()
    }

    fn set_rules(&mut self, rules: &Rules) {
        (**self).set_rules(rules);
    }

    fn hurry(&mut self, now: Time) {
        (**self).hurry(now);
    }

    fn struck(&self, is_delay: bool) -> Vec<u64> {
        (**self).struck(is_delay)
    }
}

/// What is the same of all that lie over one below.
macro_rules! as_below {
    () => {
        fn device(&self) -> &Device<Backing> {
            self.below().device()
        }

        fn device_mut(&mut self) -> &mut Device<Backing> {
            self.below_mut().device_mut()
        }

        fn into_device(self: Box<Self>) -> Device<Backing> {
            self.into_below().into_device()
        }

        fn set_rules(&mut self, rules: &Rules) {
            self.below_mut().set_rules(rules);
        }

        fn hurry(&mut self, now: Time) {
            self.below_mut().hurry(now);
        }

        fn struck(&self, is_delay: bool) -> Vec<u64> {
            self.below().struck(is_delay)
        }
    };
}

impl Lower for Link<Flash> {
    as_below!();
}

impl Lower for Buffered<Flash> {
    as_below!();
}

impl Lower for Parity<Flash> {
    as_below!();

    fn parity(&self) -> Option<ParityCounters> {
        Some(self.counters())
    }

    fn degraded(&self) -> usize {
        Parity::degraded(self)
    }
}

impl Lower for Struck<Flash> {
    fn device(&self) -> &Device<Backing> {
        self.below().below().device()
    }

    fn device_mut(&mut self) -> &mut Device<Backing> {
        self.below_mut().below_mut().device_mut()
    }

    fn into_device(self: Box<Self>) -> Device<Backing> {
        self.into_below().into_below().into_device()
    }

    fn set_rules(&mut self, rules: &Rules) {
        set_rules(self, Layer::Below, rules);
        self.below_mut().below_mut().set_rules(rules);
    }

    fn hurry(&mut self, now: Time) {
        DelayPort::hurry(self, now);
    }

    fn struck(&self, is_delay: bool) -> Vec<u64> {
        struck(self, is_delay)
    }
}
