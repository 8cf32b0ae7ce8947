//! Stacks: a drive's configuration made into layers.
//!
//! Where the link is decides the kind: none, above the device (an open-channel
//! drive, its translation layer on the host), or above the target (a
//! conventional drive). Each kind is a type of its own, so that what runs on
//! it is compiled for it and the hot loop has no call through a table: a
//! [`Visitor`] is given the one that was built.
//!
//! May fail: no memory for its tables, or a profile that the target cannot
//! work on.

use device::{Counters, Device, Link};
use flash::{RamMedium, Side};
use port::{BlockDone, BlockReq, Port, Shape};
use targets::{Pblk, PblkConfig, WriteCounters};

use crate::drive::DriveConfig;
use crate::error::Error;

/// A device in memory.
pub type Raw = Device<RamMedium>;

/// Something that takes block requests, and may tell what it does.
pub trait Observed: Port<Cmd = BlockReq, Done = BlockDone> {
    /// What its target wrote and collected; zeros where nobody tells.
    fn counters(&self) -> WriteCounters {
        WriteCounters::default()
    }

    /// Free chunks of all parallel units; zero where nobody tells.
    fn free_chunks(&self) -> u64 {
        0
    }
}

/// A whole block drive, whatever it is made of.
pub trait Drive: Observed + Send + 'static {
    /// Its outside.
    fn shape(&self) -> Shape;
    /// What its device did.
    fn device_counters(&self) -> Counters;
    /// A hash of target and device: equal where two runs were equal. Reads
    /// the whole map.
    fn state_hash(&self) -> u64;
}

/// What gives a device's figures, with a link before it or none.
pub trait Below: device::OpenChannel + Send + 'static {
    /// What it did.
    fn device_counters(&self) -> Counters;
    /// A hash of its state.
    fn device_hash(&self) -> u64;
}

impl Below for Raw {
    fn device_counters(&self) -> Counters {
        self.counters()
    }

    fn device_hash(&self) -> u64 {
        self.state_hash()
    }
}

impl Below for Link<Raw> {
    fn device_counters(&self) -> Counters {
        self.below().counters()
    }

    fn device_hash(&self) -> u64 {
        self.below().state_hash()
    }
}

impl<D: Below> Observed for Pblk<D> {
    fn counters(&self) -> WriteCounters {
        Pblk::counters(self)
    }

    fn free_chunks(&self) -> u64 {
        Pblk::free_chunks(self)
    }
}

impl<D: Below> Drive for Pblk<D> {
    fn shape(&self) -> Shape {
        Pblk::shape(self)
    }

    fn device_counters(&self) -> Counters {
        self.device().device_counters()
    }

    fn state_hash(&self) -> u64 {
        Pblk::state_hash(self) ^ self.device().device_hash().rotate_left(32)
    }
}

impl<D: Observed> Observed for Link<D> {
    fn counters(&self) -> WriteCounters {
        self.below().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.below().free_chunks()
    }
}

impl<D: Drive> Drive for Link<D> {
    fn shape(&self) -> Shape {
        self.below().shape()
    }

    fn device_counters(&self) -> Counters {
        self.below().device_counters()
    }

    fn state_hash(&self) -> u64 {
        self.below().state_hash()
    }
}

/// A drive in memory.
pub enum Stack {
    /// The link takes no time, so there is none.
    Plain(Pblk<Raw>),
    /// The translation layer on the host, above the link.
    Host(Pblk<Link<Raw>>),
    /// The translation layer in the drive, below the link.
    Device(Link<Pblk<Raw>>),
}

/// What is done with a drive, whatever its kind.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Does it.
    fn visit<D: Drive>(self, drive: D) -> Self::Out;
}

impl Stack {
    /// Builds the drive, empty. `seed` decides what its policies draw.
    pub fn build(config: &DriveConfig, seed: u64) -> Result<Stack, Error> {
        Stack::over(config, seed, RamMedium::new(&config.geometry, config.spec.store.kept())?)
    }

    /// The same, with all its memory taken now: a drive whose real time is
    /// measured does not wait for the system's.
    pub fn build_populated(config: &DriveConfig, seed: u64) -> Result<Stack, Error> {
        let medium = RamMedium::new(&config.geometry, config.spec.store.kept())?;
        medium.populate();
        let stack = Stack::over(config, seed, medium)?;
        match &stack {
            Stack::Plain(drive) => drive.populate(),
            Stack::Host(drive) => drive.populate(),
            Stack::Device(link) => link.below().populate(),
        }
        Ok(stack)
    }

    fn over(config: &DriveConfig, seed: u64, medium: RamMedium) -> Result<Stack, Error> {
        let geometry = &config.geometry;
        let device = Device::new(geometry, &config.profile.timing, medium)?;
        let target = PblkConfig {
            bytes: config.size,
            data_chunks: config.data_chunks(),
            victim: config.spec.victim,
            seed,
        };
        let timing = config.profile.link;
        Ok(match config.profile.side {
            _ if timing.is_instant() => Stack::Plain(Pblk::new(device, target)?),
            Side::Host => Stack::Host(Pblk::new(Link::new(timing, device), target)?),
            Side::Device => Stack::Device(Link::new(timing, Pblk::new(device, target)?)),
        })
    }

    /// Gives the drive to `visitor`.
    pub fn visit<V: Visitor>(self, visitor: V) -> V::Out {
        match self {
            Stack::Plain(drive) => visitor.visit(drive),
            Stack::Host(drive) => visitor.visit(drive),
            Stack::Device(drive) => visitor.visit(drive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::DriveSpec;
    use targets::RESERVE_CHUNKS;

    struct Kind;
    impl Visitor for Kind {
        type Out = (u64, u32, u64);
        fn visit<D: Drive>(self, drive: D) -> Self::Out {
            (drive.shape().bytes, drive.shape().kept, drive.free_chunks())
        }
    }

    fn build(name: &str) -> Stack {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        Stack::build(&spec.resolve(RESERVE_CHUNKS).unwrap(), 1).unwrap()
    }

    #[test]
    fn link_and_side_decide_the_kind() {
        assert!(matches!(build("mem:null,size=64M"), Stack::Plain(_)));
        assert!(matches!(build("mem:znand,size=64M"), Stack::Device(_)));
        assert!(matches!(build("mem:znand,size=64M,side=host"), Stack::Host(_)));
    }

    #[test]
    fn all_kinds_show_the_same_outside() {
        let of =
            |rest: &str| build(&format!("mem:znand,size=64M,store=checksum{rest}")).visit(Kind);
        let (bytes, kept, free) = of("");
        assert_eq!((bytes, kept), (64 << 20, 8));
        assert!(free > 0);
        assert_eq!(of(",side=host"), of(""));
        assert_eq!(of(",link_latency=0ns,link_rate=none,controller=0ns"), of(""));
    }
}
