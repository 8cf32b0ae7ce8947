//! What is simulated, by a seed.

use workload::Rng;

use crate::breaks::Break;
use crate::setup::Setup;
use crate::trouble::Troubles;
use crate::{batched, keyed, served, shared, tree};

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed: the drive, the work, and the cuts.
    pub seed: u64,
    /// Cycles of work, cut, recovery and check.
    pub cycles: u64,
    /// What is broken, to see whether it is found.
    pub broken: Option<Break>,
    /// A block whose history is kept.
    pub traced: Option<u64>,
    /// What it is about, whatever the seed says.
    pub over: Option<Over>,
}

impl Plan {
    /// What it is about: what can show what is broken, or what the seed says.
    pub fn stack(&self) -> Over {
        let chosen = |one_in: u64| Rng::new(self.seed, STREAM).below(one_in) == 0;
        let keys = Rng::new(self.seed, STREAM + 2).below(keyed::ONE_IN) == 0;
        let trees = Rng::new(self.seed, STREAM + 1).below(tree::ONE_IN) == 0;
        let serves = Rng::new(self.seed, STREAM + 3).below(served::ONE_IN) == 0;
        let shares = Rng::new(self.seed, STREAM + 4).below(shared::ONE_IN) == 0;
        match (self.broken, self.over) {
            (Some(Break::Batch(_)), _) => Over::Batches,
            (Some(Break::Layer(_)), _) => Over::Layers,
            (Some(Break::Tree(_)), _) => Over::Trees,
            (Some(Break::Keyed(_)), Some(Over::Shared)) => Over::Shared,
            (Some(Break::Keyed(_)), _) => Over::Keys,
            (Some(Break::Shared(_)), _) => Over::Shared,
            (Some(Break::Served(_)), _) => Over::Served,
            // Any target may be over a drive file.
            (Some(Break::File(_)), Some(over)) => over,
            (Some(_), _) => Over::Blocks,
            (None, Some(over)) => over,
            (None, None) if BATCHED_ONE_IN.is_some_and(chosen) => Over::Batches,
            (None, None) if trees => Over::Trees,
            (None, None) if keys => Over::Keys,
            (None, None) if serves => Over::Served,
            (None, None) if shares => Over::Shared,
            (None, None) => Over::Blocks,
        }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        match self.stack() {
            Over::Blocks | Over::Layers => self.setup().in_words(),
            Over::Batches => batched::Drive::of(self).in_words(),
            Over::Keys => keyed::Drive::of(self).in_words(),
            Over::Trees => tree::Host::of(self).in_words(),
            Over::Served => served::Served::of(self).in_words(),
            Over::Shared => shared::Drive::of(self).in_words(),
        }
    }

    /// Its drive and work.
    pub fn setup(&self) -> Setup {
        // What is broken is found where nothing else goes wrong, and also where
        // other things do.
        let sound = self.broken.is_some() && self.seed.is_multiple_of(2);
        let mut setup = match self.broken {
            Some(Break::Parity(mutation)) => Setup::to_rebuild(self.seed, mutation),
            _ if sound => Setup::sound(self.seed),
            _ => Setup::of(self.seed),
        };
        if matches!(self.broken, Some(Break::Protected(_))) {
            setup.take_protection(self.seed);
        }
        if matches!(self.broken, Some(Break::File(_))) {
            let (cached, on_disk, disk) = (true, true, true);
            setup.troubles = Troubles { cached, on_disk, disk, ..Troubles::default() };
        }
        if self.stack() == Over::Layers {
            setup.take_layers(self.seed);
        }
        if matches!(self.stack(), Over::Blocks | Over::Layers) {
            if !sound && !matches!(self.broken, Some(Break::Parity(_))) {
                setup.take_member_faults(self.seed);
            }
            setup.take_size(self.seed);
            setup.take_map_cache(self.seed);
            setup.take_window(self.seed);
            setup.take_openings(self.seed);
            setup.take_units(self.seed);
            let always = matches!(self.broken, Some(Break::ReadCache(_)));
            setup.take_read_cache(self.seed, always);
        }
        setup
    }
}

/// What a life is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The block target, in some lives below the block layer.
    Blocks,
    /// The block target below the block layer.
    Layers,
    /// The batched target.
    Batches,
    /// The key-value target.
    Keys,
    /// The key-value tree.
    Trees,
    /// The Redis server.
    Served,
    /// Targets of blocks and one of keys on one drive.
    Shared,
}

/// One life in so many is of the batched target.
pub const BATCHED_ONE_IN: Option<u64> = Some(8);

/// Stream of the random number that says what a life is about.
const STREAM: u64 = 17;
