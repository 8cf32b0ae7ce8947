//! Lives of the batched target: batches, reads and flushes on a small drive,
//! cut at any event and recovered.

use flash::{Dimensions, Geometry};
use targets::BatchConfig;
use targets::batch::mutation::Mutation;
use workload::Rng;

use crate::breaks::Break;
use crate::life::{Outcome, live_with};
use crate::plan::Plan;
use crate::setup::Setup;
use world::World;

mod living;
mod model;
mod world;

/// Stream of the random numbers of these drives.
const STREAM: u64 = 15;

/// What these lives do not find: a chunk that is needed again between its erase
/// and the next row of the log, and a page of MAP that is made anew in the start
/// behind one that dropped batches. The target's own tests do.
const NOT_YET: [Mutation; 2] = [Mutation::EraseEarly, Mutation::BelieveTags];

/// A break of the contract with this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchBreak {
    /// A batch is answered when it is sent.
    AckEarly,
    /// One batch in 32 is sent without its last page.
    Tear,
    /// One batch in 32 is answered and dropped.
    Drop,
    /// The target itself breaks a promise.
    Inside(Mutation),
}

impl BatchBreak {
    /// All of them that these lives find.
    pub fn all() -> impl Iterator<Item = BatchBreak> {
        let inside = Mutation::ALL.into_iter().filter(|one| !NOT_YET.contains(one));
        let outside = [BatchBreak::AckEarly, BatchBreak::Tear, BatchBreak::Drop];
        outside.into_iter().chain(inside.map(BatchBreak::Inside))
    }
}

/// A drive for the batched target.
pub struct Drive {
    /// Its flash and its faults.
    pub setup: Setup,
    /// The target's configuration.
    pub config: BatchConfig,
    /// Requests at once.
    pub depth: usize,
    /// Most pages of most batches.
    pub pages: u64,
}

impl Drive {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Drive {
        let mut setup = plan.setup();
        let mut rng = Rng::new(plan.seed, STREAM);
        let rng = &mut rng;
        setup.leave_out_harm();
        (setup.protected, setup.parity) = (false, 0);
        let pages_at_once = rng.one_of(&[1, 1, 2, 3]);
        let dimensions = Dimensions {
            groups: 1 + rng.below(2) as u32,
            pus: 1 + rng.below(2) as u32,
            chunks: 24 + rng.below(8) as u32,
            pages: (4 + rng.below(10) as u32) * pages_at_once,
            planes: rng.one_of(&[1, 2, 2, 3, 6]),
            page_bytes: if rng.below(2) == 0 { 4096 } else { 8192 },
            pages_at_once,
        };
        let (batches, log_rows) = (1 + rng.below(6) as usize, 4 + rng.below(12));
        let max_pages = if rng.below(3) == 0 { 40 } else { 12 };
        let links = 1 + rng.below(3) as u32;
        let config = |geometry: &Geometry| BatchConfig {
            max_pages,
            batches,
            depth: 32,
            log_rows,
            checkpoint_every: 0,
            forward_links: links,
            ..BatchConfig::for_geometry(geometry, 0.1)
        };
        let (geometry, mut config) = with_room(dimensions, config, 64);
        setup.geometry = geometry;
        let fill = 50 + rng.below(51);
        config.pages = (config.capacity(&setup.geometry) * fill / 100).max(1);
        let depth = [1, 4, 16, 31][rng.below(4) as usize];
        Drive { setup, config, depth, pages: [1, 4, 12][rng.below(3) as usize] }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let dim = self.setup.geometry.dimensions();
        format!("batched: {dim:?}, {:?}, {}", self.config, self.setup.troubles.in_words())
    }
}

/// A drive with so many more chunks and rows that there is room for so many pages,
/// and the configuration of the target there.
pub(crate) fn with_room(
    dimensions: Dimensions,
    config: impl Fn(&Geometry) -> BatchConfig,
    pages: u64,
) -> (Geometry, BatchConfig) {
    let larger = |more: u32| {
        let Dimensions { chunks, pages, pages_at_once, .. } = dimensions;
        let (chunks, pages) = (chunks + 4 * more, pages + more / 4 * pages_at_once);
        let larger = Geometry::new(Dimensions { chunks, pages, ..dimensions });
        larger.expect("the ranges are those of a geometry")
    };
    let mut all = (0..).map(larger).map(|geometry| (geometry, config(&geometry)));
    let fits = |(geometry, config): &(Geometry, BatchConfig)| config.capacity(geometry) >= pages;
    all.find(fits).expect("there is no end of them")
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    let broken = match plan.broken {
        Some(Break::Batch(broken)) => Some(broken),
        _ => None,
    };
    live_with(plan, World::new(Drive::of(plan), broken, plan.traced))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also the ones that are made larger, where several pages are programmed at once.
    #[test]
    fn each_seed_has_a_drive() {
        for seed in 700_000..702_000 {
            let drive =
                Drive::of(&Plan { seed, cycles: 1, broken: None, traced: None, over: None });
            assert!(drive.config.pages > 0);
        }
    }
}
