//! Which closed chunk is collected.
//!
//! A policy is told which chunks there are to choose from, and chooses. It need
//! not find the one with the fewest valid blocks: the target has an index for that
//! ([`crate::Least`]), which it also uses where a policy's choice would not free
//! enough.

use std::collections::VecDeque;

use flash::Geometry;
use port::OutOfMemory;
use port::lazy::table;
use port::random::Random;

/// A policy by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The one with the fewest valid blocks.
    #[default]
    Greedy,
    /// The oldest.
    Fifo,
    /// Any.
    Random,
    /// The one with the fewest valid blocks of this many drawn at random.
    DChoices(u32),
    /// The one that frees the most for what it costs, times its age: (1 - u) age / 2u, u the
    /// part that is valid (Kawaguchi, Nishioka, Motoda: A Flash-Memory Based File System,
    /// 1995); here a chunk's age is how many were closed since. Of data that are written at
    /// different rates it moves less than greedy, unless there is much spare.
    CostBenefit,
    /// One that somebody else wrote.
    Custom(Custom),
}

/// A policy that is none of this crate's.
#[derive(Clone, Copy, Debug)]
pub struct Custom {
    /// What it is called.
    pub name: &'static str,
    /// Makes one for a drive; the seed is for what it draws.
    pub policy: fn(&Geometry, u64) -> Box<dyn VictimPolicy>,
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        self.name == other.name
    }
}

impl Eq for Custom {}

impl Victim {
    /// Makes the policy for a drive.
    pub fn policy(
        self,
        geometry: &Geometry,
        seed: u64,
    ) -> Result<Box<dyn VictimPolicy>, OutOfMemory> {
        Ok(match self {
            Victim::Greedy => Box::new(Greedy),
            Victim::Fifo => Box::new(Fifo::new(geometry)?),
            Victim::Random => Box::new(Choices::new(geometry, seed, 1)),
            Victim::DChoices(d) => Box::new(Choices::new(geometry, seed, d)),
            Victim::CostBenefit => Box::new(CostBenefit::new(geometry)?),
            Victim::Custom(custom) => (custom.policy)(geometry, seed),
        })
    }
}

/// Chooses what to collect. Chunks are by [`Geometry::chunk_index`]. Nothing of
/// it is asked for a single block.
pub trait VictimPolicy: Send {
    /// A chunk has been erased so many times: when the drive starts, and after each erase.
    fn worn(&mut self, _chunk: usize, _wear: u32) {}

    /// A free chunk is opened, to be written.
    fn opened(&mut self, _chunk: usize) {}

    /// A chunk is full: it may be chosen.
    fn closed(&mut self, _chunk: usize) {}

    /// A closed chunk is none any more, though it was not chosen.
    fn left(&mut self, _chunk: usize) {}

    /// Chooses one of a unit's closed chunks, of which there is one, and forgets
    /// it: it may not be chosen again before it was closed again. `valid` gives
    /// the valid blocks of a chunk. `None` for the one that has the fewest: it is
    /// then said to have left.
    fn choose(&mut self, _unit: usize, _valid: &dyn Fn(usize) -> u32) -> Option<usize> {
        None
    }
}

/// The one with the fewest valid blocks.
struct Greedy;

impl VictimPolicy for Greedy {}

/// The closed chunks of each unit, and how a chunk's unit is found.
struct Closed {
    units: Vec<VecDeque<u32>>,
    chunk_bits: u32,
}

impl Closed {
    fn new(geometry: &Geometry) -> Closed {
        let units = vec![VecDeque::new(); geometry.pu_slots()];
        Closed { units, chunk_bits: geometry.chunk_bits() }
    }

    fn unit(&self, chunk: usize) -> usize {
        chunk >> self.chunk_bits
    }

    fn of(&mut self, chunk: usize) -> &mut VecDeque<u32> {
        let unit = self.unit(chunk);
        &mut self.units[unit]
    }

    fn left(&mut self, chunk: usize) {
        self.of(chunk).retain(|&closed| closed as usize != chunk);
    }
}

/// The oldest, by what is in it.
struct Fifo {
    /// Oldest first.
    closed: Closed,
    /// By chunk: of an open one the tick at which it was opened, of a closed one the
    /// sum of that and of the one at which it was closed, twice the mean time of
    /// what is in it. The user's chunks take as many times longer to fill as there
    /// is write amplification: in the order in which they are closed, what is in
    /// them would stay for longer than what collection moves.
    written: Box<[u32]>,
    /// By unit: chunks that were opened or closed so far.
    ticks: Box<[u32]>,
}

impl Fifo {
    fn new(geometry: &Geometry) -> Result<Fifo, OutOfMemory> {
        let what = "the target's chunks";
        let written = table(0, geometry.chunk_slots(), what)?;
        let ticks = table(0, geometry.pu_slots(), what)?;
        Ok(Fifo { closed: Closed::new(geometry), written, ticks })
    }

    fn tick(&mut self, chunk: usize) -> u32 {
        let ticks = &mut self.ticks[self.closed.unit(chunk)];
        *ticks += 1;
        *ticks
    }
}

impl VictimPolicy for Fifo {
    fn opened(&mut self, chunk: usize) {
        self.written[chunk] = self.tick(chunk);
    }

    /// Those that a start found come in their order.
    fn closed(&mut self, chunk: usize) {
        self.written[chunk] += self.tick(chunk);
        let (written, closed) = (&self.written, self.closed.of(chunk));
        let at = closed.partition_point(|&other| written[other as usize] <= written[chunk]);
        closed.insert(at, chunk as u32);
    }

    fn left(&mut self, chunk: usize) {
        self.closed.left(chunk);
    }

    fn choose(&mut self, unit: usize, _valid: &dyn Fn(usize) -> u32) -> Option<usize> {
        self.closed.units[unit].pop_front().map(|chunk| chunk as usize)
    }
}

/// The one with the fewest valid blocks of some that are drawn.
struct Choices {
    closed: Closed,
    random: Random,
    d: u32,
}

impl Choices {
    fn new(geometry: &Geometry, seed: u64, d: u32) -> Choices {
        Choices { closed: Closed::new(geometry), random: Random::new(seed, 0), d }
    }
}

impl VictimPolicy for Choices {
    fn closed(&mut self, chunk: usize) {
        self.closed.of(chunk).push_back(chunk as u32);
    }

    fn left(&mut self, chunk: usize) {
        self.closed.left(chunk);
    }

    fn choose(&mut self, unit: usize, valid: &dyn Fn(usize) -> u32) -> Option<usize> {
        let closed = &mut self.closed.units[unit];
        let mut draw = || {
            let at = self.random.below(closed.len() as u64) as usize;
            let chunk = closed[at] as usize;
            (valid(chunk), at, chunk)
        };
        let (_, at, chunk) = (0..self.d).map(|_| draw()).min()?;
        closed.swap_remove_back(at);
        Some(chunk)
    }
}

/// The one that frees the most for what it costs, times its age.
struct CostBenefit {
    closed: Closed,
    blocks: u32,
    /// By chunk: its unit's tick at which it was closed.
    since: Box<[u32]>,
    /// By unit: chunks that were closed so far. So age is in what was written.
    ticks: Box<[u32]>,
}

impl CostBenefit {
    fn new(geometry: &Geometry) -> Result<CostBenefit, OutOfMemory> {
        let what = "the target's chunks";
        let since = table(0, geometry.chunk_slots(), what)?;
        let ticks = table(0, geometry.pu_slots(), what)?;
        let (closed, blocks) = (Closed::new(geometry), geometry.chunk_blocks());
        Ok(CostBenefit { closed, blocks, since, ticks })
    }
}

impl VictimPolicy for CostBenefit {
    /// Those that a start found come in their order.
    fn closed(&mut self, chunk: usize) {
        let ticks = &mut self.ticks[self.closed.unit(chunk)];
        *ticks += 1;
        self.since[chunk] = *ticks;
        self.closed.of(chunk).push_back(chunk as u32);
    }

    fn left(&mut self, chunk: usize) {
        self.closed.left(chunk);
    }

    fn choose(&mut self, unit: usize, valid: &dyn Fn(usize) -> u32) -> Option<usize> {
        let (since, now) = (&self.since, self.ticks[unit] + 1);
        let closed = &mut self.closed.units[unit];
        // As fractions, benefit over cost, so that nothing is rounded. What costs nothing
        // is above all: of such the oldest.
        let fraction = |chunk: u32| {
            let (valid, age) = (valid(chunk as usize), now - since[chunk as usize]);
            (u128::from(self.blocks - valid) * u128::from(age), u128::from(valid))
        };
        let better = |a: (u128, u128), b: (u128, u128)| match (a.1, b.1) {
            (0, 0) => a.0 > b.0,
            _ => a.0 * b.1 > b.0 * a.1,
        };
        let mut best = (0, fraction(*closed.front()?));
        for (at, &chunk) in closed.iter().enumerate().skip(1) {
            let its = fraction(chunk);
            if better(its, best.1) {
                best = (at, its);
            }
        }
        closed.remove(best.0).map(|chunk| chunk as usize)
    }
}

#[cfg(test)]
mod tests {
    use flash::Dimensions;

    use super::*;

    /// A policy for two units of 8 chunks, and the chunks of each.
    fn policy(victim: Victim) -> (Box<dyn VictimPolicy>, [Vec<usize>; 2], [usize; 2]) {
        let dim = Dimensions { groups: 2, chunks: 8, pages: 4, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let units: Vec<usize> = geometry.pus_channels_first().collect();
        let of = |unit: usize| (0..8).map(|n| geometry.chunk_of(unit, n)).collect();
        let (chunks, units) = ([of(units[0]), of(units[1])], [units[0], units[1]]);
        (victim.policy(&geometry, 1).unwrap(), chunks, units)
    }

    #[test]
    fn the_oldest_is_that_with_the_oldest_data() {
        let (mut fifo, [first, second], units) = policy(Victim::Fifo);
        // That of the user takes long to fill: what is in it is older than what
        // collection moved meanwhile, but not than what it moved before.
        for chunk in [first[0], first[1], first[2]] {
            fifo.opened(chunk);
        }
        fifo.closed(first[1]);
        fifo.opened(first[3]);
        for chunk in [first[3], first[0], first[2]] {
            fifo.closed(chunk);
        }
        fifo.opened(second[0]);
        fifo.closed(second[0]);
        fifo.left(first[0]);
        let order: Vec<_> = std::iter::from_fn(|| fifo.choose(units[0], &|_| 0)).collect();
        assert_eq!(order, [first[1], first[3], first[2]]);
        assert_eq!(fifo.choose(units[1], &|_| 0), Some(second[0]));
    }

    #[test]
    fn of_many_draws_the_one_with_the_fewest_is_chosen_and_forgotten() {
        let (mut choices, [first, _], units) = policy(Victim::DChoices(1000));
        first.iter().for_each(|&chunk| choices.closed(chunk));
        choices.left(first[3]);
        let valid = |chunk: usize| (chunk * 5 % 8) as u32;
        let mut order: Vec<usize> = Vec::new();
        while order.len() < 7 {
            order.extend(choices.choose(units[0], &valid));
        }
        let mut sorted: Vec<usize> = first.iter().copied().filter(|&c| c != first[3]).collect();
        sorted.sort_by_key(|&chunk| valid(chunk));
        assert_eq!(order, sorted);
    }

    #[test]
    fn the_best_is_that_which_frees_most_for_its_cost_times_its_age() {
        // Four blocks to a chunk, closed in their order: ages 8 to 1.
        let (mut policy, [first, _], units) = policy(Victim::CostBenefit);
        first.iter().for_each(|&chunk| policy.closed(chunk));
        policy.left(first[7]);
        // Benefits: 0 of 4, 7 * 2/2, 6 * 3/1, 5 * 1/3, free, 3 * 2/2, free.
        let valid = [4, 2, 1, 3, 0, 2, 0, 0];
        let valid = |chunk: usize| valid[first.iter().position(|&c| c == chunk).unwrap()];
        let order: Vec<usize> = std::iter::from_fn(|| policy.choose(units[0], &valid)).collect();
        assert_eq!(order, [4, 6, 2, 1, 5, 3, 0].map(|n| first[n]));
    }

    #[test]
    fn greedy_leaves_it_to_the_index() {
        let (mut greedy, [first, _], units) = policy(Victim::Greedy);
        greedy.closed(first[0]);
        assert_eq!(greedy.choose(units[0], &|_| 0), None);
    }
}
