//! What is known of the collection of each parallel unit, and of each chunk.

use std::collections::VecDeque;

use flash::{Geometry, Ppa};
use port::{Buffer, OutOfMemory, Scratch};

use super::copies::UNKNOWN;
use super::limiter::CREDIT;
use super::space::OpenChunk;

/// Reads of one unit's collection that may be under way.
pub(super) const READS_PER_PU: u32 = 2;

/// How far a chunk's collection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) phase: Phase,
    /// Blocks read, or being read, that are not settled yet.
    pub(super) moving: u32,
    /// Rows on their way to it.
    pub(super) rows: u16,
    /// Of one that is being retired, or is, and of one that was left before its
    /// end, how far it was written.
    pub(super) end: u32,
    /// Its last row is programmed, but not all before it.
    pub(super) ended: bool,
    /// A program failed: it is never written again.
    pub(super) failed: bool,
    /// It is among those that were asked for.
    pub(super) asked: bool,
    /// A read has told that its error rate is high.
    pub(super) told: bool,
    /// How often what was copied to it inside its unit was copied since it was written.
    pub(super) copies: u8,
    /// The last record that gave up a block of it.
    pub(super) given_up: u64,
}

impl Stage {
    /// Of a chunk that is out of use, and was written up to `end`.
    pub(super) fn retired(end: u32) -> Stage {
        Stage { failed: true, end, copies: UNKNOWN, ..Stage::default() }
    }

    /// It is to be erased when nothing of it is needed any more.
    pub(super) fn begin_draining(&mut self) {
        self.phase = Phase::Draining;
    }

    /// It is being erased, or retired.
    pub(super) fn begin_erasing(&mut self) {
        self.phase = Phase::Erasing;
    }

    /// Whether it is being erased.
    pub fn is_erasing(&self) -> bool {
        self.phase == Phase::Erasing
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not a victim.
    #[default]
    None,
    /// Its blocks are being read.
    Reading,
    /// All were read; some are on their way.
    Draining,
    /// It is being erased.
    Erasing,
}

/// A collection read: where, how many blocks, and its buffer.
#[derive(Debug, Default)]
pub(super) struct Survivors {
    pub(super) first: Ppa,
    pub(super) count: u32,
    pub(super) buffer: Scratch,
}

impl Survivors {
    /// Buffers of `bytes` for all reads that may be under way.
    pub fn all(geometry: &Geometry, bytes: usize) -> Result<Vec<Survivors>, OutOfMemory> {
        let count = (geometry.total_pus() * READS_PER_PU) as usize;
        let one = |buffer| Survivors { first: Ppa(0), count: 0, buffer: Scratch::new(buffer) };
        Ok(Buffer::carve(count, bytes)?.into_iter().map(one).collect())
    }
}

/// The collection of one parallel unit. What each row looks at comes first, in
/// one line of the caches: of many units each line counts.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Collector {
    /// By [`Geometry::chunk_index`].
    pub(super) victim: Option<u32>,
    pub(super) open: Option<OpenChunk>,
    /// Where in the victim to look next.
    pub(super) next: u32,
    /// Blocks that may be moved for what the user wrote, times 256.
    pub(super) credit: i64,
    /// Blocks to move for each block written, times 256.
    pub(super) pace: i64,
    /// Victims of which all was read, and that are not erased yet.
    pub(super) draining: u32,
    /// Slots that reads under way will need.
    pub(super) promised: u32,
    /// Slots in rows that have not been sent.
    pub(super) gathered: u32,
    /// Read buffers that are free, as a bit set.
    pub(super) buffers: u32,
    /// The row being gathered: which of the two units, 0 or 1.
    pub(super) gathering: u32,
    /// Units that are full or being programmed, of the two.
    pub(super) busy: [bool; 2],
    /// Whether the victim will be free again.
    pub(super) wins: bool,
    /// The victim holds what nobody writes.
    pub(super) is_cold: bool,
    /// The victim was asked for: it is collected whatever room there is.
    pub(super) is_asked: bool,
    /// There was no free chunk at the start, or when nothing went on any more:
    /// until there is one, only the victim that needs the least room is sure to
    /// fit.
    pub(super) rescue: bool,
    /// Chunks to collect before all others, whatever they win.
    pub(super) asked: VecDeque<u32>,
    /// Blocks to be read by themselves, since a longer read failed.
    pub(super) again: VecDeque<Ppa>,
    /// The chunk that wear leveling looks at next.
    pub(super) looked: u32,
    /// Erases under way.
    pub(super) erasing: u32,
    /// When a row was last padded: the unit's level, and blocks of the user so far.
    pub(super) padded: Option<(i64, u64)>,
}

const _: () = assert!(std::mem::offset_of!(Collector, wins) < 64);

impl Collector {
    pub fn all(geometry: &Geometry) -> Vec<Collector> {
        let one = || Collector {
            victim: None,
            next: 0,
            open: None,
            asked: VecDeque::new(),
            again: VecDeque::new(),
            looked: 0,
            is_cold: false,
            is_asked: false,
            wins: true,
            draining: 0,
            erasing: 0,
            gathering: 0,
            busy: [false; 2],
            padded: None,
            promised: 0,
            gathered: 0,
            buffers: (1 << READS_PER_PU) - 1,
            credit: 0,
            pace: 0,
            rescue: false,
        };
        (0..geometry.total_pus()).map(|_| one()).collect()
    }

    /// Goes on with a chunk that was begun before the start.
    pub fn go_on(&mut self, open: OpenChunk) {
        self.open = Some(open);
    }

    /// Whether no read is under way, and no row on its way.
    pub fn is_at_rest(&self) -> bool {
        self.buffers == (1 << READS_PER_PU) - 1 && self.busy == [false; 2]
    }

    /// Whether it has no victim, no read under way and no row on its way: it
    /// goes on only if it is given something to do.
    pub fn is_idle(&self) -> bool {
        self.victim.is_none()
            && self.is_at_rest()
            && self.erasing == 0
            && self.asked.is_empty()
            && self.again.is_empty()
    }

    /// Whether the user has written enough for `count` blocks to be moved.
    #[inline]
    pub fn has_credit(&self, count: u32) -> bool {
        self.credit >= i64::from(count) * CREDIT
    }

    /// Units that are full or being programmed.
    pub(super) fn busy_units(&self) -> usize {
        self.busy.iter().filter(|&&busy| busy).count()
    }

    /// Begins a victim. It is to be done when the user has written what it
    /// frees.
    pub(super) fn begin(&mut self, chunk: usize, valid: u32, size: u32) {
        self.victim = Some(chunk as u32);
        self.next = 0;
        let freed = i64::from((size - valid).max(1));
        self.pace = i64::from(valid) * CREDIT / freed + 1;
        self.credit = 0;
        self.wins = true;
        (self.is_cold, self.is_asked) = (false, false);
    }

    /// Begins a chunk that was asked for: block by block with the user, since
    /// it may win nothing.
    pub(super) fn begin_asked(&mut self, chunk: usize, wins: bool) {
        self.victim = Some(chunk as u32);
        self.next = 0;
        self.pace = CREDIT;
        self.credit = 0;
        self.wins = wins;
        (self.is_cold, self.is_asked) = (wins, true);
    }
}
