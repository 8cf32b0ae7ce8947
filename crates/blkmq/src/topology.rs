//! Cores and sockets, and how queues are spread over them.
//!
//! A *core* here is a submitter: a thread that has a context of its own,
//! pinned or not. Nothing here fails but [`Topology::new`].

use crate::error::ConfigError;

/// The most cores.
pub const MOST_CORES: usize = 4096;

/// How many cores there are, and how they lie in sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    cores: usize,
    sockets: usize,
}

impl Topology {
    /// `cores` cores in `sockets` sockets, evenly: the first socket has the
    /// first cores.
    pub fn new(cores: usize, sockets: usize) -> Result<Topology, ConfigError> {
        ConfigError::range("cores", cores, 1, MOST_CORES)?;
        ConfigError::range("sockets", sockets, 1, cores)?;
        Ok(Topology { cores, sockets })
    }

    /// How many cores.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// How many sockets.
    pub fn sockets(&self) -> usize {
        self.sockets
    }

    /// The socket of a core.
    pub fn socket(&self, core: usize) -> usize {
        core * self.sockets / self.cores
    }
}

/// How many queues a level has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One for all cores.
    One,
    /// One for each socket.
    PerSocket,
    /// One for each core.
    PerCore,
    /// So many, each for neighbouring cores.
    Count(usize),
}

impl Spread {
    /// How many queues that makes.
    pub fn count(self, topology: &Topology) -> usize {
        match self {
            Spread::One => 1,
            Spread::PerSocket => topology.sockets(),
            Spread::PerCore => topology.cores(),
            Spread::Count(n) => n,
        }
    }

    /// The queue of a core.
    pub fn place(self, topology: &Topology, core: usize) -> usize {
        match self {
            Spread::One => 0,
            Spread::PerSocket => topology.socket(core),
            Spread::PerCore => core,
            Spread::Count(n) => (core * n / topology.cores()).min(n.saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_topologies_are_refused() {
        assert!(Topology::new(0, 1).is_err());
        assert!(Topology::new(2, 3).is_err());
        assert!(Topology::new(2, 0).is_err());
        assert!(Topology::new(MOST_CORES + 1, 1).is_err());
    }

    proptest! {
        #[test]
        fn every_queue_has_a_core_and_every_core_a_queue(
            cores in 1usize..70, sockets in 1usize..9, queues in 1usize..70,
        ) {
            let topology = Topology::new(cores, sockets.min(cores)).unwrap();
            let spreads =
                [Spread::One, Spread::PerSocket, Spread::PerCore, Spread::Count(queues.min(cores))];
            for spread in spreads {
                let count = spread.count(&topology);
                let mut fed = vec![0; count];
                for core in 0..cores {
                    fed[spread.place(&topology, core)] += 1;
                }
                let (least, most) = (fed.iter().min().unwrap(), fed.iter().max().unwrap());
                prop_assert!(*least >= 1 && most - least <= 1, "{spread:?}: {fed:?}");
            }
        }
    }
}
