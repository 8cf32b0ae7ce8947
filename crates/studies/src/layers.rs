//! The block layers that a study compares, over a null driver that takes
//! sectors of 512 bytes.
//!
//! Guarantees: they differ in the block layer alone; nothing waits for a tag
//! while each core has at most [`DEPTH`] requests outstanding. Fails where a
//! layer cannot be: more cores or sockets than there may be.

use blkmq::driver::null::NullQueue;
use blkmq::{Config, Context, Driver, Merge, SchedulerKind, Spread, Topology, build};
use port::{BLOCK_BYTES, BlockDone, Ring, Shape};

use crate::baseline::{SqContext, raw, sq};
use drive::error::Error;

/// Requests outstanding of each core (thesis, section 4.2).
pub const DEPTH: usize = 32;

/// A block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// None: a queue of the driver for each core.
    Raw,
    /// The old one: one queue, one lock.
    Sq,
    /// Ours.
    Mq {
        /// Its staging queues.
        staging: Spread,
        /// The driver's queues.
        dispatch: Spread,
        /// Whether these share one set of tags.
        shared_tags: bool,
    },
}

/// What a name stands for.
const NAMES: [(&str, Layer); 9] = [
    ("raw", Layer::Raw),
    ("sq", Layer::Sq),
    ("mq:core/core", Layer::mq(Spread::PerCore, Spread::PerCore)),
    ("mq:core/socket", Layer::mq(Spread::PerCore, Spread::PerSocket)),
    ("mq:core/one", Layer::mq(Spread::PerCore, Spread::One)),
    ("mq:one/core", Layer::mq(Spread::One, Spread::PerCore)),
    ("mq:one/socket", Layer::mq(Spread::One, Spread::PerSocket)),
    ("mq:one/one", Layer::mq(Spread::One, Spread::One)),
    ("mq:tags", Layer::SHARED_TAGS),
];

impl Layer {
    /// Per-core queues that share one set of tags: a device with one command
    /// table, which all cores give requests to at once.
    pub const SHARED_TAGS: Layer =
        Layer::Mq { staging: Spread::PerCore, dispatch: Spread::PerCore, shared_tags: true };

    /// Ours, with so many queues.
    pub const fn mq(staging: Spread, dispatch: Spread) -> Layer {
        Layer::Mq { staging, dispatch, shared_tags: false }
    }

    /// Its name: for our own, staging and dispatch queues.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, layer)| *layer == self);
        found.map_or("mq", |(name, _)| name)
    }

    /// The layer of this name.
    pub fn named(name: &str) -> Result<Layer, Error> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, layer)| *layer).ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            Error::Usage(format!("there is no layer `{name}`; there are: {}", known.join(", ")))
        })
    }

    /// A way in for each core.
    pub fn ports(self, topology: Topology) -> Result<Ports, Error> {
        let cores = topology.cores();
        let sectors = |queues: usize, shared_tags| {
            // A queue, or a set of tags, for those that use it.
            let users = if shared_tags { cores } else { cores.div_ceil(queues) };
            Sectors { queues, depth: DEPTH * users, shared_tags }
        };
        Ok(match self {
            Layer::Raw => Ports::Raw(raw(sectors(cores, false), cores).map_err(refused)?),
            Layer::Sq => {
                let layer = sq(sectors(1, false), cores, SchedulerKind::None, Merge::Off);
                Ports::Sq(layer.map_err(refused)?)
            }
            Layer::Mq { staging, dispatch, shared_tags } => {
                let driver = sectors(dispatch.count(&topology), shared_tags);
                let config = Config { staging, ..Config::new(topology) };
                let config = Config { staging_depth: DEPTH * cores, ..config };
                Ports::Mq(build(&config, driver).map_err(refused)?.0)
            }
        })
    }
}

/// A layer that cannot be.
pub fn refused(e: blkmq::ConfigError) -> Error {
    Error::Usage(e.to_string())
}

/// A way in for each core, of one kind.
pub enum Ports {
    /// The driver's queues.
    Raw(Vec<NullQueue>),
    /// The old block layer's.
    Sq(Vec<SqContext<NullQueue>>),
    /// Ours.
    Mq(Vec<Context<NullQueue>>),
}

/// Does `$do` with the ports of any kind as `$ports`.
macro_rules! each_kind {
    ($all:expr, $ports:ident => $do:expr) => {
        match $all {
            $crate::layers::Ports::Raw($ports) => $do,
            $crate::layers::Ports::Sq($ports) => $do,
            $crate::layers::Ports::Mq($ports) => $do,
        }
    };
}
pub(crate) use each_kind;

/// The null driver's queues, as a device that keeps its data: one that may be
/// asked for 512 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sectors {
    /// Queues.
    pub queues: usize,
    /// Requests inside each at once.
    pub depth: usize,
    /// Whether they share one set of tags.
    pub shared_tags: bool,
}

/// The outside of it, whatever the queues.
pub const SHAPE: Shape =
    Shape { bytes: 250 << 30, kept: BLOCK_BYTES as u32, max_bytes: 1 << 20, depth: DEPTH };

impl Driver for Sectors {
    type Queue = NullQueue;

    fn shape(&self) -> Shape {
        Shape { depth: self.depth, ..SHAPE }
    }

    fn queues(&self) -> [usize; 3] {
        [self.queues, 0, 0]
    }

    fn shares_tags(&self) -> bool {
        self.shared_tags
    }

    fn entrance_bytes(&self) -> Option<u64> {
        Some(Ring::<BlockDone>::bytes(self.depth))
    }

    fn open(self) -> Vec<NullQueue> {
        (0..self.queues).map(|_| NullQueue::new(self.shape())).collect()
    }
}

#[cfg(test)]
mod tests {
    use port::{BlockOp, Port, Time};
    use workload::{Tight, TightOptions};

    use super::*;

    #[test]
    fn every_layer_takes_all_that_a_core_has_outstanding() {
        let topology = Topology::new(4, 2).unwrap();
        let load = TightOptions { op: BlockOp::Read, len: 512, depth: DEPTH, batch: 8, seed: 1 };
        for (name, layer) in NAMES {
            assert_eq!((Layer::named(name).unwrap(), layer.name()), (layer, name));
            each_kind!(layer.ports(topology).unwrap(), ports => {
                assert_eq!(ports.len(), 4);
                let mut all: Vec<_> = ports
                    .into_iter()
                    .map(|port| (port, Tight::new(&SHAPE, load).unwrap()))
                    .collect();
                for turn in 0..100 {
                    for (port, tight) in &mut all {
                        tight.turn(Time(turn), port);
                    }
                }
                for (port, tight) in &mut all {
                    assert!(tight.completed() >= 90 * 8, "{name}: {}", tight.completed());
                    assert_eq!((tight.errors(), port.next_event().is_some()), (0, true));
                }
            });
        }
        assert_eq!(Layer::named("qm").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn more_sockets_than_cores_are_refused() {
        assert!(Topology::new(2, 3).is_err());
        let topology = Topology::new(1, 1).unwrap();
        for (_, layer) in NAMES {
            assert!(layer.ports(topology).is_ok(), "one core may have any");
        }
    }
}
