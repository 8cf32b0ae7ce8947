//! A drive with layers that most have not: parity across superblocks, and
//! things that go wrong on purpose.
//!
//! ```text
//! DelayPort, FaultPort      above:   requests are late, or fail
//! Link, target
//! Parity                             where the drive has it
//! DelayPort, FaultPort      below:   the flash's commands
//! Device
//! CheckedMedium, FaultyMedium        what is stored; only with such rules
//! medium
//! ```
//!
//! With the link on the other side of the target it is between parity and the
//! lower ports. So what the flash fails to give, parity rebuilds. This chain is
//! put together when a drive is made; a drive without rules and parity has none
//! of it. Rules strike from [`Drive::begin_faults`] on, so that a drive is
//! recovered and preconditioned without, and no longer when it is ended:
//! what is damaged stays so. Fails as making a drive does.

use device::{
    Counters, Device, Link, LinkTiming, Notice, OpenChannel, SlcHealth, VectorCmd, VectorDone,
};
use faults::{CheckedMedium, DelayPort, FaultPort, FaultyMedium};
use flash::{Chunk, Energy, Geometry, Medium, Ppa, Side, Timing};
use parity::{Parity, ParityCounters};
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};
use targets::pblk::{Memory, PblkError};
use targets::{Pblk, WriteCounters};

use crate::backing::Backing;
use crate::drive::{DriveConfig, DriveError};
use crate::error::Error;
use crate::fault_rules::{Injected, Layer, Rules};
use crate::stack::{Drive, Ended, Observed, new_device, new_target, old_device, shut_down, target};

/// A medium that may be damaged, and knows when it is.
type Damaged = CheckedMedium<FaultyMedium<Backing>>;

/// A device with the lower ports before it.
type Struck<M> = DelayPort<FaultPort<Device<M>>>;

/// What is below the target, whatever it is made of.
trait Lower: OpenChannel + Send {
    /// From now on these rules strike.
    fn set_rules(&mut self, rules: &Rules);
    /// How often the rules of a layer and kind struck.
    fn times(&self, layer: Layer, is_delay: bool) -> Vec<u64>;
    fn set_on_a_clock(&mut self, on_a_clock: bool);
    /// The SLC cache of the device.
    fn slc(&self) -> SlcHealth;
    /// The energy that its device has taken until `now`, where that is counted.
    fn energy(&self, now: Time) -> Energy;
    /// Looks for data that have grown old where nobody reads.
    fn patrol(&mut self, now: Time);
    fn medium(&self) -> &Backing;
    fn counters(&self) -> Counters;
    fn state_hash(&self) -> u64;
    fn take_apart(self: Box<Self>) -> (Vec<Chunk>, Backing);
    /// What was done for the sake of parity, where there is any.
    fn parity(&self) -> Option<ParityCounters> {
        None
    }
}

/// A medium with another below it, or none.
trait Stored: Medium + Send {
    fn set_rules(&mut self, _rules: &Rules) {}
    fn times(&self) -> Vec<u64> {
        Vec::new()
    }
    fn lowest(&self) -> &Backing;
    fn into_lowest(self) -> Backing;
}

impl Stored for Backing {
    fn lowest(&self) -> &Backing {
        self
    }

    fn into_lowest(self) -> Backing {
        self
    }
}

impl Stored for Damaged {
    fn set_rules(&mut self, rules: &Rules) {
        let seed = rules.seed(Layer::Medium, false);
        self.below_mut().set_rules(&rules.medium(), seed).expect(CHECKED);
    }

    fn times(&self) -> Vec<u64> {
        self.below().struck().collect()
    }

    fn lowest(&self) -> &Backing {
        self.below().below()
    }

    fn into_lowest(self) -> Backing {
        self.into_below().into_below()
    }
}

/// Rules were checked when they were read.
const CHECKED: &str = "each rule is in a layer that it can strike";

/// Sets the rules of a layer's two ports.
fn set_rules<P>(port: &mut DelayPort<FaultPort<P>>, layer: Layer, rules: &Rules)
where
    P: Port,
    P::Cmd: faults::Command<Done = P::Done>,
    P::Done: faults::Completion,
{
    port.set_rules(&rules.delays(layer), rules.seed(layer, true)).expect(CHECKED);
    let port = port.below_mut();
    port.set_rules(&rules.faults(layer), rules.seed(layer, false)).expect(CHECKED);
}

/// Puts a layer's two ports before `below`, without rules.
fn two_ports<P>(below: P) -> DelayPort<FaultPort<P>>
where
    P: Port,
    P::Cmd: faults::Command<Done = P::Done>,
    P::Done: faults::Completion,
{
    let port = FaultPort::new(below, &[], 0).expect(CHECKED);
    DelayPort::new(port, &[], 0).expect(CHECKED)
}

impl<L: Stored> Lower for Struck<L> {
    fn set_rules(&mut self, rules: &Rules) {
        set_rules(self, Layer::Below, rules);
        self.below_mut().below_mut().medium_mut().set_rules(rules);
    }

    fn times(&self, layer: Layer, is_delay: bool) -> Vec<u64> {
        match (layer, is_delay) {
            (Layer::Below, true) => self.struck().collect(),
            (Layer::Below, false) => self.below().struck().collect(),
            (Layer::Medium, false) => self.below().below().medium().times(),
            _ => Vec::new(),
        }
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.below_mut().below_mut().set_on_a_clock(on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        self.below().below().slc_health()
    }

    fn energy(&self, now: Time) -> Energy {
        self.below().below().energy(now)
    }

    fn patrol(&mut self, now: Time) {
        self.below_mut().below_mut().patrol(now);
    }

    fn medium(&self) -> &Backing {
        self.below().below().medium().lowest()
    }

    fn counters(&self) -> Counters {
        self.below().below().counters()
    }

    fn state_hash(&self) -> u64 {
        self.below().below().state_hash()
    }

    fn take_apart(self: Box<Self>) -> (Vec<Chunk>, Backing) {
        let device = self.into_below().into_below();
        (device.chunks().to_vec(), device.cut().into_lowest())
    }
}

impl<L: Stored> Lower for Link<Struck<L>> {
    fn set_rules(&mut self, rules: &Rules) {
        Lower::set_rules(self.below_mut(), rules);
    }

    fn times(&self, layer: Layer, is_delay: bool) -> Vec<u64> {
        Lower::times(self.below(), layer, is_delay)
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        Lower::set_on_a_clock(self.below_mut(), on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        Lower::slc(self.below())
    }

    fn energy(&self, now: Time) -> Energy {
        Lower::energy(self.below(), now)
    }

    fn patrol(&mut self, now: Time) {
        Lower::patrol(self.below_mut(), now);
    }

    fn medium(&self) -> &Backing {
        Lower::medium(self.below())
    }

    fn counters(&self) -> Counters {
        Lower::counters(self.below())
    }

    fn state_hash(&self) -> u64 {
        Lower::state_hash(self.below())
    }

    fn take_apart(self: Box<Self>) -> (Vec<Chunk>, Backing) {
        Box::new(self.into_below()).take_apart()
    }
}

impl<D: Lower> Lower for Parity<D> {
    fn set_rules(&mut self, rules: &Rules) {
        self.below_mut().set_rules(rules);
    }

    fn times(&self, layer: Layer, is_delay: bool) -> Vec<u64> {
        self.below().times(layer, is_delay)
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.below_mut().set_on_a_clock(on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        self.below().slc()
    }

    fn energy(&self, now: Time) -> Energy {
        self.below().energy(now)
    }

    fn patrol(&mut self, now: Time) {
        self.below_mut().patrol(now);
    }

    fn medium(&self) -> &Backing {
        self.below().medium()
    }

    fn counters(&self) -> Counters {
        self.below().counters()
    }

    fn state_hash(&self) -> u64 {
        self.below().state_hash()
    }

    fn take_apart(self: Box<Self>) -> (Vec<Chunk>, Backing) {
        Box::new(self.into_below()).take_apart()
    }

    fn parity(&self) -> Option<ParityCounters> {
        Some(Parity::counters(self))
    }
}

/// All that is below the target.
struct Flash(Box<dyn Lower>);

impl Port for Flash {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        self.0.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn next_inside(&self) -> Option<Time> {
        self.0.next_inside()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.0.advance(to, done);
    }

    fn hint(&self, cmd: &VectorCmd) {
        self.0.hint(cmd);
    }
}

/// What is done at once would pass the ports by, so that is declined.
impl OpenChannel for Flash {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn timing(&self) -> &Timing {
        self.0.timing()
    }

    fn kept(&self) -> u32 {
        self.0.kept()
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        self.0.chunk(chunk_index)
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn is_cached(&self) -> bool {
        self.0.is_cached()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.0.take_notice()
    }

    fn hint_block(&self, ppa: Ppa) {
        self.0.hint_block(ppa);
    }

    fn rows_at_once(&self) -> u32 {
        self.0.rows_at_once()
    }
}

/// Of a drive that is there again: its chunks, and for how long it was off, in
/// ns. Nothing of a new one.
type Found<'a> = Option<(&'a [Chunk], u64)>;

/// The device that is there again, or a new one.
fn device<L: Medium>(
    config: &DriveConfig,
    seed: u64,
    medium: L,
    found: Found<'_>,
) -> Result<Device<L>, Error> {
    match found {
        Some((chunks, away)) => old_device(config, seed, medium, chunks, away),
        None => new_device(config, seed, medium),
    }
}

impl Flash {
    /// The flash of a drive on a medium that holds what was found.
    fn new(
        config: &DriveConfig,
        seed: u64,
        medium: Backing,
        found: Found<'_>,
    ) -> Result<Flash, Error> {
        if config.faults.medium().is_empty() {
            return Flash::before(config, device(config, seed, medium, found)?);
        }
        let geometry = &config.geometry;
        let medium = FaultyMedium::new(geometry, medium, &[], 0).expect(CHECKED);
        let chunks = found.map_or(&[][..], |(chunks, _)| chunks);
        let medium: Damaged = CheckedMedium::over(geometry, medium, chunks)?;
        Flash::before(config, device(config, seed, medium, found)?)
    }

    /// Puts the lower ports before a device, the link where it is there, and
    /// parity.
    fn before<L: Stored + 'static>(
        config: &DriveConfig,
        device: Device<L>,
    ) -> Result<Flash, Error> {
        let struck = two_ports(device);
        match config.profile.side {
            Side::Device => Flash::protected(config, struck),
            Side::Host => Flash::protected(config, Link::new(config.profile.link, struck)),
        }
    }

    /// Parity over it, where the drive has that.
    fn protected<D: Lower + 'static>(config: &DriveConfig, below: D) -> Result<Flash, Error> {
        Ok(match config.spec.parity {
            0 => Flash(Box::new(below)),
            width => Flash(Box::new(Parity::new(below, width).map_err(DriveError::from)?)),
        })
    }
}

/// A drive with fault rules, parity, or both.
pub struct Layered {
    port: DelayPort<FaultPort<Link<Pblk<Flash>>>>,
    rules: Rules,
}

impl Layered {
    /// A new drive.
    pub fn new(config: &DriveConfig, seed: u64, medium: Backing) -> Result<Layered, Error> {
        let flash = Flash::new(config, seed, medium, None)?;
        Ok(Layered::above(config, new_target(config, flash, target(config, seed))?))
    }

    /// The drive that a medium holds, as [`crate::stack::Stack::recover`]
    /// finds it.
    pub fn recover(
        config: &DriveConfig,
        seed: u64,
        medium: Backing,
        chunks: &[Chunk],
        away: u64,
    ) -> Result<(Layered, Time), Error> {
        let flash = Flash::new(config, seed, medium, Some((chunks, away)))?;
        let failed = |source: PblkError| Error::Recovery { name: config.name.clone(), source };
        let (pblk, at) = Pblk::recover(flash, target(config, seed), Time::ZERO).map_err(failed)?;
        Ok((Layered::above(config, pblk), at))
    }

    fn above(config: &DriveConfig, pblk: Pblk<Flash>) -> Layered {
        let timing = match config.profile.side {
            Side::Device => config.profile.link,
            // It is below: this one takes no time.
            Side::Host => LinkTiming::default(),
        };
        Layered { port: two_ports(Link::new(timing, pblk)), rules: config.faults.clone() }
    }

    fn pblk(&self) -> &Pblk<Flash> {
        self.port.below().below().below()
    }

    fn pblk_mut(&mut self) -> &mut Pblk<Flash> {
        self.port.below_mut().below_mut().below_mut()
    }

    /// From now on these rules strike.
    fn set_rules(&mut self, rules: &Rules) {
        set_rules(&mut self.port, Layer::Above, rules);
        self.pblk_mut().device_mut().0.set_rules(rules);
    }
}

impl Port for Layered {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.port.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.port.next_event()
    }

    fn next_inside(&self) -> Option<Time> {
        self.port.next_inside()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.port.advance(to, done);
    }

    fn hint(&self, cmd: &BlockReq) {
        self.port.hint(cmd);
    }
}

impl Observed for Layered {
    fn counters(&self) -> WriteCounters {
        self.pblk().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.pblk().free_chunks()
    }

    fn energy(&self, now: Time) -> Energy {
        self.pblk().device().0.energy(now)
    }
}

impl Drive for Layered {
    fn shape(&self) -> Shape {
        self.pblk().shape()
    }

    fn device_counters(&self) -> Counters {
        self.pblk().device().0.counters()
    }

    fn state_hash(&self) -> u64 {
        self.pblk().state_hash() ^ self.pblk().device().0.state_hash().rotate_left(32)
    }

    fn memory(&self) -> Memory {
        self.pblk().memory()
    }

    fn populate(&self) {
        self.pblk().populate();
    }

    fn fault(&self) -> Option<(Error, bool)> {
        self.pblk().device().0.medium().fault()
    }

    fn outlives(&self) -> bool {
        self.pblk().device().0.medium().outlives()
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.pblk_mut().device_mut().0.set_on_a_clock(on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        self.pblk().device().0.slc()
    }

    fn tend(&mut self, now: Time) {
        let pblk = self.pblk_mut();
        pblk.device_mut().0.patrol(now);
        pblk.heed_notices(now);
    }

    fn parity(&self) -> Option<ParityCounters> {
        self.pblk().device().0.parity()
    }

    fn begin_faults(&mut self) {
        let rules = self.rules.clone();
        self.set_rules(&rules);
    }

    fn injected(&self) -> Vec<Injected> {
        self.rules.injected(|layer, is_delay| match (layer, is_delay) {
            (Layer::Above, true) => self.port.struck().collect(),
            (Layer::Above, false) => self.port.below().struck().collect(),
            _ => self.pblk().device().0.times(layer, is_delay),
        })
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        self.set_rules(&Rules::default());
        self.set_on_a_clock(false);
        let pblk = self.port.into_below().into_below().into_below();
        let (flash, at, closed) = shut_down(pblk, now);
        let (chunks, medium) = flash.0.take_apart();
        Ended::of(medium, chunks, at, closed)
    }
}
