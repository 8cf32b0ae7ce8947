//! How a drive is: its chunks and their wear in one summary, computed when it is asked for;
//! its energy, and how long its arrays worked, since it was made or restored.

use flash::{Cause, Chunk, ChunkState, Energy, Medium};
use port::Time;

use super::Device;
use crate::slc::SlcHealth;

/// How the wear of some chunks is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// The fewest erases of a chunk.
    pub least: u32,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub most: u32,
}

/// How a drive is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    /// Chunks in all.
    pub chunks: u64,
    /// Free, open and closed ones. Those closed early are among the closed.
    pub free: u64,
    /// Written in part.
    pub open: u64,
    /// Written to their end, or closed early.
    pub closed: u64,
    /// Bad from the factory.
    pub factory_bad: u64,
    /// Grown bad since: an erase failed, or the endurance was at its end.
    pub grown_bad: u64,
    /// Given up by the target.
    pub retired: u64,
    /// Erases of all chunks that were not bad from the factory.
    pub wear: Wear,
}

impl Wear {
    /// Of chunks with these erases.
    pub fn of(wear: &[u32]) -> Wear {
        let sum: u64 = wear.iter().map(|&erases| u64::from(erases)).sum();
        let least = wear.iter().copied().min().unwrap_or(0);
        let most = wear.iter().copied().max().unwrap_or(0);
        Wear { least, mean: sum as f64 / wear.len().max(1) as f64, most }
    }
}

impl<M: Medium> Device<M> {
    /// The energy taken until `now`; zero where it is not counted.
    pub fn energy(&self, now: Time) -> Energy {
        self.flaws.costs.sum(&self.energy_counts(), now.0)
    }

    /// The SLC cache; zeros where there is none.
    pub fn slc_health(&self) -> SlcHealth {
        self.units.slc_health()
    }

    /// From then on its parallel units say how long their arrays work, what they are at
    /// included; or no more.
    pub fn set_die_clocks(&mut self, from: Option<Time>) {
        self.units.set_die_clocks(from);
    }

    /// How long the arrays of its parallel units worked since they say so, in ns, by unit,
    /// channel by channel; what they are at counts to its end, as if it were over. Planes
    /// that read by themselves count each. Nothing where nobody asked.
    pub fn worked(&self) -> impl Iterator<Item = u64> + '_ {
        self.of_units(|pu| self.units.worked(pu))
    }

    /// The same until `now`: of what they are at so much as is over.
    pub fn worked_until(&self, now: Time) -> impl Iterator<Item = u64> + '_ {
        self.of_units(move |pu| self.units.worked_until(now, pu))
    }

    /// What is told of each parallel unit, channel by channel.
    fn of_units<'a>(
        &'a self,
        of: impl Fn(usize) -> Option<u64> + Clone + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let g = &self.geometry;
        let (groups, pus) = (g.dimensions().groups, g.dimensions().pus);
        (0..groups).flat_map(move |group| {
            let of = of.clone();
            (0..pus).filter_map(move |pu| of(g.pu_index(g.ppa(group, pu, 0, 0))))
        })
    }

    /// How its chunks are.
    pub fn health(&self) -> Health {
        let g = &self.geometry;
        let chunks = || {
            let of_unit = |pu| (0..g.chunks()).map(move |n| &self.chunks[g.chunk_of(pu, n)]);
            g.pus_channels_first().flat_map(of_unit)
        };
        let count = |f: fn(&Chunk) -> bool| chunks().filter(|&c| f(c)).count() as u64;
        let offline = |cause| chunks().filter(|c| c.why_offline() == Some(cause)).count() as u64;
        let used = chunks().filter(|c| c.why_offline() != Some(Cause::Factory));
        Health {
            chunks: chunks().count() as u64,
            free: count(|c| c.state == ChunkState::Free),
            open: count(|c| c.state == ChunkState::Open),
            closed: count(|c| c.state == ChunkState::Closed),
            factory_bad: offline(Cause::Factory),
            grown_bad: offline(Cause::Grown),
            retired: offline(Cause::Retired),
            wear: Wear::of(&used.map(|c| c.wear).collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_of_all_chunks() {
        let wear = Wear::of(&[15, 1, 16, 159, 160]);
        assert_eq!((wear.least, wear.mean, wear.most), (1, 351.0 / 5.0, 160));
        assert_eq!(Wear::of(&[]), Wear::default());
        assert_eq!(Wear::of(&[u32::MAX; 2]).mean, f64::from(u32::MAX));
    }
}
