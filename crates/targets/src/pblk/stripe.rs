//! The stripe: which parallel unit takes the next row of the user's, and the chunks that
//! are open there.
//!
//! Guarantees: rows go round the units that can take one; one that rests lets others pass
//! while they are busy, and takes all when nobody else will come. Nothing here fails.

use flash::Geometry;
use port::Ring;

use super::config::MAX_STREAMS;
use super::ranks::Ranks;
use super::space::OpenChunk;

/// User rows at one parallel unit for each that it can program at once: one
/// being programmed, one behind it.
const ROWS_PER_PU: u32 = 2;

const _: () = assert!(size_of::<PuStripe>() == 64, "one line of the caches");

/// What the stripe knows of a parallel unit, in one line of the caches.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct PuStripe {
    pu: usize,
    /// By stream: set by [`Stripe::set_open`].
    pub open: [Option<OpenChunk>; MAX_STREAMS],
    /// Blocks left in these, not none where there is one.
    room: u32,
    /// User rows on their way.
    pub rows: u8,
    /// Of 256 turns, how many it lets pass, since it is more worn than others.
    rest: u8,
    /// The sum of these, up to 256.
    rested: u8,
    /// It lets this turn pass.
    passes: bool,
}

/// Round robin over the parallel units that can take a row, channels first.
pub(super) struct Stripe {
    /// By rank: the place in the round.
    pub pus: Vec<PuStripe>,
    /// Rank by parallel unit.
    ranks: Vec<u32>,
    /// Those that can take a row.
    pub able: Ranks,
    next: usize,
    /// Some let their turn pass, and no row was taken since.
    passing: bool,
    /// User rows at one parallel unit, at most.
    pub most: u8,
    /// Blocks of a chunk.
    size: u32,
    /// Full units of the user that wait for a parallel unit.
    pub ready: Ring<u32>,
    /// Units whose copies may be older than some on their way: of collection, and
    /// those of which a program failed. They wait while a checkpoint settles.
    pub older: Ring<u32>,
}

impl Stripe {
    /// For parallel units that program `at_once` rows at a time, and a buffer of so
    /// many rows of the user.
    pub fn new(geometry: &Geometry, at_once: u32, rows: usize) -> Stripe {
        let mut ranks = vec![u32::MAX; geometry.pu_slots()];
        let mut pus = Vec::new();
        for (rank, pu) in geometry.pus_channels_first().enumerate() {
            ranks[pu] = rank as u32;
            pus.push(PuStripe { pu, ..PuStripe::default() });
        }
        let able = Ranks::new(pus.len());
        let (ready, older) = (Ring::new(rows), Ring::new(rows + 2 * pus.len()));
        let most = ROWS_PER_PU.saturating_mul(at_once).min(u8::MAX.into()) as u8;
        let size = geometry.chunk_blocks();
        Stripe { pus, ranks, able, next: 0, passing: false, most, size, ready, older }
    }

    /// A parallel unit's place in the round.
    #[inline]
    pub fn rank(&self, pu: usize) -> usize {
        self.ranks[pu] as usize
    }

    /// The parallel unit at a place in the round.
    #[inline]
    pub fn pu(&self, rank: usize) -> usize {
        self.pus[rank].pu
    }

    /// A parallel unit goes on with a chunk that was begun before the start, in a
    /// stream that has none: which one it was of is not known.
    pub fn go_on(&mut self, pu: usize, open: OpenChunk) {
        let rank = self.rank(pu);
        let free = self.pus[rank].open.iter().position(Option::is_none);
        self.set_open(rank, free.expect("one for each stream"), Some(open));
    }

    /// The chunk of a stream is from now on that one, if any.
    #[inline]
    pub fn set_open(&mut self, rank: usize, stream: usize, open: Option<OpenChunk>) {
        let left = |open: Option<OpenChunk>| open.map_or(0, |open| self.size - open.next);
        let stripe = &mut self.pus[rank];
        stripe.room = stripe.room + left(open) - left(stripe.open[stream]);
        stripe.open[stream] = open;
    }

    /// Blocks left in the chunks open for the user at a place in the round.
    #[inline]
    pub fn room(&self, rank: usize) -> u32 {
        let left = |open: OpenChunk| self.size - open.next;
        debug_assert_eq!(self.pus[rank].room, self.opened(rank).map(left).sum::<u32>());
        self.pus[rank].room
    }

    /// The chunks open for the user at a place in the round.
    #[inline]
    pub fn opened(&self, rank: usize) -> impl Iterator<Item = OpenChunk> + '_ {
        self.pus[rank].open.iter().flatten().copied()
    }

    /// Whether a chunk is open for the user at a place in the round.
    #[inline]
    pub fn has_open(&self, rank: usize) -> bool {
        self.room(rank) > 0
    }

    /// A chunk open for the user at a place in the round is so no longer.
    pub fn take_open(&mut self, rank: usize) -> Option<OpenChunk> {
        let stream = self.pus[rank].open.iter().position(Option::is_some)?;
        let open = self.pus[rank].open[stream];
        self.set_open(rank, stream, None);
        open
    }

    /// A chunk is no longer open for the user, if it was.
    pub fn leave(&mut self, rank: usize, chunk: usize) {
        for stream in 0..MAX_STREAMS {
            if self.pus[rank].open[stream].is_some_and(|open| open.chunk() == chunk) {
                self.set_open(rank, stream, None);
            }
        }
    }

    /// User rows on their way to a parallel unit.
    #[inline]
    pub fn rows(&self, pu: usize) -> u8 {
        self.pus[self.ranks[pu] as usize].rows
    }

    /// No user row is on its way to a parallel unit, and no chunk is open for
    /// one.
    pub fn is_idle(&self, pu: usize) -> bool {
        let rank = self.rank(pu);
        self.pus[rank].rows == 0 && !self.has_open(rank)
    }

    /// Full units that wait for a parallel unit.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.older.len()
    }

    /// User rows at all parallel units, at most.
    pub fn most_rows(&self) -> usize {
        self.pus.len() * usize::from(self.most)
    }

    /// Whether any parallel unit can take a row.
    #[inline]
    pub fn is_able(&self) -> bool {
        !self.able.is_empty()
    }

    /// Whether the parallel unit at a place in the round can.
    pub fn is_able_at(&self, rank: usize) -> bool {
        self.able.has(rank)
    }

    /// Of 256 turns, `rest` are let pass by a parallel unit.
    pub fn rest(&mut self, rank: usize, rest: u8) {
        self.pus[rank].rest = rest;
    }

    /// The next rank that can take a row. One that lets its turn pass has the
    /// next one, so that a row never waits for it.
    #[inline]
    pub fn choose(&mut self) -> Option<usize> {
        let rank = self.choose_next()?;
        if self.pus[rank].rest > 0 {
            return self.choose_rested(rank);
        }
        if self.passing {
            self.end_passing();
        }
        Some(rank)
    }

    /// Goes on from a unit that may let its turn pass, to one that does not.
    /// Where no other can take the row now, it waits for one that does not rest
    /// and has a row on its way: a drive that has as much to do as it can is
    /// leveled, too.
    #[cold]
    fn choose_rested(&mut self, first: usize) -> Option<usize> {
        let mut rank = first;
        while self.lets_pass(rank) {
            rank = self.choose_next()?;
            if rank == first {
                if self.pus.iter().any(|pu| pu.rest == 0 && pu.rows > 0) {
                    return None;
                }
                break;
            }
        }
        self.end_passing();
        Some(rank)
    }

    /// Whether a unit lets this turn pass; asked again for the same row it
    /// says the same.
    fn lets_pass(&mut self, rank: usize) -> bool {
        let stripe = &mut self.pus[rank];
        if !stripe.passes {
            (stripe.rested, stripe.passes) = stripe.rested.overflowing_add(stripe.rest);
            self.passing |= stripe.passes;
        }
        stripe.passes
    }

    /// A unit takes the row.
    #[cold]
    fn end_passing(&mut self) {
        self.pus.iter_mut().for_each(|pu| pu.passes = false);
        self.passing = false;
    }

    #[inline(always)]
    fn choose_next(&mut self) -> Option<usize> {
        let rank = self.able.next(self.next)?;
        self.next = if rank + 1 == self.pus.len() { 0 } else { rank + 1 };
        Some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn a_unit_that_rests_waits_for_others_that_are_busy() {
        let dim = Dimensions { pus: 2, chunks: 4, pages: 4, ..Dimensions::LEAST };
        let mut stripe = Stripe::new(&Geometry::new(dim).unwrap(), 1, 8);
        stripe.able.set(0, true);
        stripe.rest(0, 192);
        stripe.pus[1].rows = 1;
        // Of four rows it takes one; asked again for the same row it says the
        // same, until the other one has taken it.
        let mut taken = [0; 2];
        for _ in 0..400 {
            let mut rank = stripe.choose();
            if rank.is_none() {
                assert_eq!(stripe.choose(), None);
                stripe.able.set(1, true);
                rank = stripe.choose();
                stripe.able.set(1, false);
            }
            taken[rank.unwrap()] += 1;
        }
        assert_eq!(taken, [100, 300]);
        // Nobody else will come: it takes all.
        stripe.pus[1].rows = 0;
        assert!((0..100).all(|_| stripe.choose() == Some(0)));
        // Nor do two that rest wait for each other.
        stripe.able.set(1, true);
        stripe.rest(1, 192);
        (stripe.pus[0].rows, stripe.pus[1].rows) = (1, 1);
        assert!((0..100).all(|_| stripe.choose().is_some()));
    }
}
