//! A medium that damages what it stores, under checksums, and beside it what it
//! should have: so that the host knows which blocks may fail, and what they
//! were.

use faults::{CheckedMedium, FaultyMedium, MediumFault, MediumRule, PowerCut};
use flash::{Chunk, Medium, Moved, Ppa, RamMedium};
use port::OutOfMemory;

use crate::setup::Setup;

/// The medium, durable at once.
pub struct Damaged {
    medium: CheckedMedium<FaultyMedium<RamMedium>>,
    truth: RamMedium,
    /// By rule, whether it damages or refuses anything.
    harms: Vec<bool>,
}

impl Damaged {
    /// Damage by these rules, over an empty medium.
    pub fn new(
        setup: &Setup,
        below: RamMedium,
        rules: &[MediumRule],
        seed: u64,
    ) -> Result<Damaged, OutOfMemory> {
        let geometry = &setup.geometry;
        let faulty = FaultyMedium::new(geometry, below, rules, seed);
        let faulty = faulty.expect("the rules are for media");
        let medium = CheckedMedium::new(geometry, faulty)?;
        let harms = |rule: &MediumRule| !matches!(rule.fault, MediumFault::Slow { .. });
        let harms = rules.iter().map(harms).collect();
        Ok(Damaged { medium, truth: RamMedium::new(geometry, setup.kept)?, harms })
    }

    /// Reads a block as it was programmed.
    pub fn truth(&mut self, at: Ppa, data: &mut [u8], tag: &mut [u8]) -> Moved {
        self.truth.read(at, 1, data, tag)
    }

    /// How many operations were harmed, and how many reads found damage.
    pub fn struck(&self) -> (u64, u64) {
        let each = self.medium.below().struck().zip(&self.harms);
        let harmed = each.map(|(struck, &harms)| if harms { struck } else { 0 });
        (harmed.sum(), self.medium.refused())
    }
}

impl Medium for Damaged {
    fn kept(&self) -> u32 {
        self.medium.kept()
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let moved = self.medium.program(at, count, data, tags);
        if moved == Moved::Done {
            let known = self.truth.program(at, count, data, tags);
            debug_assert_eq!(known, Moved::Done);
        }
        moved
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        self.medium.read(at, count, data, tags)
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        let moved = self.medium.reset(chunk);
        if moved == Moved::Done {
            let known = self.truth.reset(chunk);
            debug_assert_eq!(known, Moved::Done);
        }
        moved
    }

    fn barrier(&mut self) -> Moved {
        self.medium.barrier()
    }

    fn is_cached(&self) -> bool {
        self.medium.is_cached()
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        self.medium.describe(chunk_index, chunk);
    }
}

impl PowerCut for Damaged {
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        self.medium.power_cut(seed, chunks);
    }
}
