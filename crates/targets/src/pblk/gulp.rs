//! Collection on a drive that takes no time: many survivors at once.
//!
//! Where reads and programs are done at once, nothing is gained by two reads
//! under way. Survivors are read by the dozen instead, so that the map entries
//! of all of them are fetched while the first are moved. The rules are those
//! of `collect`: what is read has rows to go to, and collection keeps pace
//! with the user, in gulps.

use device::OpenChannel;
use flash::{Ppa, TAG_BYTES, Tag};

use super::Pblk;
use super::failures::{is_lost, is_read};
use super::limiter::CREDIT;

/// Survivors read before the first is moved.
const GULP: usize = 32;

/// Survivors that have been read.
pub(super) struct Gulp {
    at: [Ppa; GULP],
    tags: [u8; GULP * TAG_BYTES],
    /// The kept bytes of each.
    data: Vec<u8>,
}

impl Gulp {
    /// Room for survivors of `kept` bytes each.
    pub fn new(kept: usize) -> Box<Gulp> {
        let data = vec![0; GULP * kept];
        Box::new(Gulp { at: [Ppa(0); GULP], tags: [0; GULP * TAG_BYTES], data })
    }
}

/// What became of a gulp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gulped {
    /// Some blocks of the victim were dealt with.
    Some,
    /// There is no room for survivors.
    Full,
    /// The drive does not read at once.
    No,
}

impl<D: OpenChannel> Pblk<D> {
    /// Whether a unit's collection has to wait until the user has written
    /// more. Only on a drive that takes no time.
    #[inline]
    pub(super) fn waits_for_gulp(&self, pu: usize, rank: usize) -> bool {
        let c = &self.collectors[rank];
        c.victim.is_some() && !c.has_credit(GULP as u32) && !self.is_urgent(pu, rank)
    }

    /// The same where a victim is known to be under way and the level not low.
    #[inline]
    pub(super) fn waits_calmly(&self, pu: usize, rank: usize) -> bool {
        let has_credit = self.collectors[rank].has_credit(GULP as u32);
        !has_credit && self.has_chunk(pu, rank)
    }

    /// Moves the next survivors of a victim, as many as have rows to go to.
    pub(super) fn gulp(&mut self, pu: usize, rank: usize, chunk: usize) -> Gulped {
        let most = (GULP as u32).min(self.rows_left(pu, rank));
        let Some(mut gulp) = self.gulp.take() else { return Gulped::No };
        let gulped = match self.read_gulp(&mut gulp, rank, chunk, most as usize) {
            _ if most == 0 => Gulped::Full,
            None => Gulped::No,
            Some(count) => self.move_gulp(&gulp, rank, chunk, count),
        };
        self.gulp = Some(gulp);
        gulped
    }

    /// Reads up to `most` survivors. Gives how many; `None` where the drive
    /// does not read at once. After one that cannot be read, each is read by
    /// itself, so that only those are lost that cannot be.
    fn read_gulp(
        &mut self,
        gulp: &mut Gulp,
        rank: usize,
        chunk: usize,
        most: usize,
    ) -> Option<usize> {
        let (kept, start) = (self.kept, self.geometry.chunk_start(chunk).0);
        let (mut n, mut longest) = (0, usize::MAX);
        while n < most {
            let from = self.collectors[rank].next;
            let Some((block, run)) = self.space.next_valid_run(chunk, from) else { break };
            let count = (run as usize).min(most - n).min(longest);
            let ppa = Ppa(start + u64::from(block));
            let data = &mut gulp.data[n * kept..(n + count) * kept];
            let tags = &mut gulp.tags[n * TAG_BYTES..(n + count) * TAG_BYTES];
            let Some(status) = self.device.read_at_once(ppa, count as u32, data, tags) else {
                return if n > 0 { Some(n) } else { None };
            };
            if is_lost(status) && count > 1 {
                longest = 1;
                continue;
            }
            self.collectors[rank].next = block + count as u32;
            if is_lost(status) {
                self.lose_at(ppa);
            } else if is_read(status) {
                for i in 0..count {
                    gulp.at[n + i] = Ppa(ppa.0 + i as u64);
                    self.map.prefetch(Tag::load(&tags[i * TAG_BYTES..]).id);
                }
                n += count;
            }
        }
        Some(n)
    }

    /// Moves the first `count` survivors of a gulp; those that find no room
    /// are read again later.
    fn move_gulp(&mut self, gulp: &Gulp, rank: usize, chunk: usize, count: usize) -> Gulped {
        self.chunks[chunk].moving += count as u32;
        let mut moved = 0;
        // Reads under way as commands have been promised theirs.
        while moved < count && self.has_gathering_room(rank) {
            let tag = Tag::load(&gulp.tags[moved * TAG_BYTES..]);
            let bytes = &gulp.data[moved * self.kept..(moved + 1) * self.kept];
            self.gather(rank, gulp.at[moved], tag, bytes);
            moved += 1;
        }
        self.chunks[chunk].moving -= (count - moved) as u32;
        self.collectors[rank].credit -= moved as i64 * CREDIT;
        self.counters.moved += moved as u64;
        if moved == count {
            return Gulped::Some;
        }
        self.collectors[rank].next = self.geometry.block(gulp.at[moved]);
        Gulped::Full
    }
}
