//! The rate limiter: how a parallel unit is shared by user and collection.
//!
//! The *level* of a unit is the room that it has, in blocks: its free chunks,
//! what is left of its open ones, and what its victims will give back of what
//! collection has gone through. A user row lowers it by a row; moving a row of
//! survivors raises it by the blocks between them that were given up; an erase
//! changes nothing. So the level has no jumps, and pacing by it is smooth.
//!
//! What a unit holds, live or stale, is what its chunks have less the level. So
//! the level says how much spare the unit has, and it is kept within a narrow
//! band. At its lower bound as many blocks hold data as may: below it a unit
//! takes no user row, so that at saturation the user gets what collection wins,
//! row by row, however full the victim is. Others take the row meanwhile. In the
//! band collection moves for each user row what that row costs, times a factor
//! that falls from 2 at the lower bound to nothing at the upper one, above which
//! nothing is collected, but while the drive is [`idle`](super::idle).

use device::OpenChannel;

use super::Pblk;
use super::collector::Collector;
use super::programs::USER_LEAVES;

/// One block of credit.
pub(super) const CREDIT: i64 = 256;

impl<D: OpenChannel> Pblk<D> {
    /// The room of a parallel unit, in blocks.
    #[inline]
    pub(super) fn level(&self, pu: usize, rank: usize) -> i64 {
        let size = i64::from(self.geometry.chunk_blocks());
        let c = &self.collectors.of[rank];
        let open = c.open.map_or(0, |open| size - i64::from(open.next));
        let open = open + i64::from(self.stripe.room(rank));
        let won = if c.victim.is_some() && c.wins { i64::from(c.next) } else { 0 };
        let taken = i64::from(self.gathered(rank) + c.promised);
        (self.space.pus[pu].free() as i64 + i64::from(c.draining)) * size + open + won - taken
    }

    /// Whether the user may write a row to a parallel unit, as far as the level
    /// goes.
    #[inline]
    pub(super) fn has_level(&self, pu: usize, rank: usize) -> bool {
        let space = &self.space.pus[pu];
        space.has_plenty() || self.level(pu, rank) >= i64::from(space.low)
    }

    /// Whether there is something to collect for: the level is below its upper
    /// bound, or the user has no chunk to write to and none will come.
    #[inline(always)]
    pub(super) fn wants_room(&self, pu: usize, rank: usize) -> bool {
        !self.space.pus[pu].has_plenty() && self.is_short(pu, rank)
    }

    #[inline(never)]
    fn is_short(&self, pu: usize, rank: usize) -> bool {
        self.level(pu, rank) < i64::from(self.space.pus[pu].high) || self.is_starved(pu, rank)
    }

    /// Whether the user has no chunk to write to, and none is being erased.
    #[inline]
    pub(super) fn is_starved(&self, pu: usize, rank: usize) -> bool {
        !self.has_chunk(pu, rank) && self.collectors.of[rank].erasing == 0
    }

    /// Whether the user has a chunk to write to, or can take one.
    #[inline]
    pub(super) fn has_chunk(&self, pu: usize, rank: usize) -> bool {
        self.stripe.has_open(rank) || self.space.pus[pu].free() > USER_LEAVES
    }

    /// Whether collection has nothing to do in a parallel unit: then the level
    /// will not rise, and the user goes on while there are chunks, which gives
    /// collection something to win.
    pub(super) fn cannot_collect(&self, pu: usize, rank: usize) -> bool {
        self.load.is_none() && self.collectors.of[rank].is_idle() && !self.space.can_win(pu)
    }

    /// The user wrote a row to a parallel unit: its collection may go on by as
    /// much as the level asks for.
    #[inline]
    pub(super) fn user_wrote(&mut self, pu: usize, rank: usize) {
        let Collector { victim: Some(_), pace, .. } = self.collectors.of[rank] else { return };
        let level = self.level(pu, rank);
        self.counters.held += self.space.usable_blocks(pu).saturating_add_signed(-level);
        self.counters.held_rows += 1;
        let above = (i64::from(self.space.pus[pu].high) - level).max(0);
        let (row, band) = (self.geometry.row_blocks(), i64::from(self.space.band()));
        self.collectors.of[rank].credit += 2 * i64::from(row) * pace * above.min(band) / band;
    }
}
