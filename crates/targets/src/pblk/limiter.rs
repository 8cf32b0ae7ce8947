//! The rate limiter: how a parallel unit is shared by user and collection.
//!
//! The *level* of a unit is the room that it has, in blocks: its free chunks,
//! what is left of its open ones, and what its victims will give back of what
//! collection has gone through. A user row lowers it by a row; moving a row of
//! survivors raises it by the blocks between them that were given up; an erase
//! changes nothing. So the level has no jumps, and pacing by it is smooth.
//!
//! Below [`LOW`] a unit takes no user row, so that at saturation the user gets
//! what collection wins, row by row, however full the victim is. Others take
//! the row meanwhile. Above, collection moves for each user row what that row
//! costs, times a factor that falls from [`LOW`] over [`EVEN`], where it is 1,
//! to nothing at [`HIGH`].

use device::OpenChannel;

use super::Pblk;
use super::collect::Collector;

/// The level, in eighths of a chunk, below which the user waits.
const LOW: i64 = 18;

/// The level, in eighths of a chunk, which collection holds while the user
/// writes less than the unit can take.
const EVEN: i64 = 30;

/// The level, in eighths of a chunk, at which collection waits until the unit
/// is idle.
const HIGH: i64 = 42;

/// Free chunks that are above [`LOW`] by themselves, less the two rows that
/// collection may have gathered.
pub(super) const PLENTY: usize = 5;

/// One block of credit.
pub(super) const CREDIT: i64 = 256;

impl<D: OpenChannel> Pblk<D> {
    /// The room of a parallel unit, in blocks.
    #[inline]
    pub(super) fn level(&self, pu: usize, rank: usize) -> i64 {
        let size = i64::from(self.geometry.chunk_blocks());
        let c = &self.collectors[rank];
        let left = |open: super::space::OpenChunk| size - i64::from(open.next);
        let open = self.stripe.open(rank).map_or(0, left) + c.open.map_or(0, left);
        let won = if c.victim.is_some() && c.wins { i64::from(c.next) } else { 0 };
        let taken = i64::from(self.gathered(rank) + c.promised);
        (self.space.pus[pu].free() as i64 + i64::from(c.draining)) * size + open + won - taken
    }

    /// Whether the user may write a row to a parallel unit, as far as the level
    /// goes. With so many free chunks it is high whatever else there is.
    #[inline]
    pub(super) fn has_level(&self, pu: usize, rank: usize) -> bool {
        self.space.pus[pu].free() >= PLENTY || self.is_level(pu, rank)
    }

    fn is_level(&self, pu: usize, rank: usize) -> bool {
        self.level(pu, rank) * 8 >= LOW * i64::from(self.geometry.chunk_blocks())
    }

    /// The user wrote a row to a parallel unit: its collection may go on by as
    /// much as the level asks for. True when it is under way and the level does
    /// not make the user wait.
    #[inline]
    pub(super) fn user_wrote(&mut self, pu: usize, rank: usize) -> bool {
        let Collector { victim: Some(_), pace, .. } = self.collectors[rank] else { return false };
        let size = i64::from(self.geometry.chunk_blocks());
        let above = (HIGH * size - self.level(pu, rank) * 8).max(0);
        let row = i64::from(self.geometry.row_blocks());
        self.collectors[rank].credit += row * pace * above / ((HIGH - EVEN) * size);
        above <= (HIGH - LOW) * size
    }
}
