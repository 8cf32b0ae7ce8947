//! Collection while nobody asks for anything.
//!
//! When no request has been inside for the time that the configuration says, each
//! parallel unit collects as if it wanted room: the victim with the fewest valid
//! blocks, chunk by chunk, until a part of its spare is free or no victim is worth
//! it. The next request ends that; what is under way ends by itself.
//!
//! Guarantees: it comes to rest. Between two requests it begins once, each victim wins
//! blocks, and nobody makes others stale; then there is no event left. A drive
//! that is being shut down does not begin it, nor does one with something inside,
//! even if that never ends.

use device::OpenChannel;
use port::Time;

use super::Pblk;

/// Idle collection: whether it goes on, and when it begins.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// How long nothing is inside before; 0 for never.
    wait: u64,
    /// When it begins, if nothing is inside then. None where it has begun since the
    /// last request.
    due: Option<Time>,
    /// It has begun.
    on: bool,
}

impl Idle {
    /// After `wait` ns; 0 for never.
    pub fn new(wait: u64) -> Idle {
        Idle { wait, ..Idle::default() }
    }

    /// Somebody asks for something.
    #[inline]
    pub fn end(&mut self, now: Time) {
        if self.wait > 0 {
            (self.due, self.on) = (Some(now + self.wait), false);
        }
    }

    /// Whether it may have to be looked at as time passes.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.due.is_some()
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Whether requests are inside, or what they will need is under way.
    fn is_asked(&self) -> bool {
        let has_parked = || self.map_cache.as_ref().is_some_and(|cache| cache.waiting() > 0);
        self.host.requests.live() > 0 || self.load.is_some() || has_parked()
    }

    /// The next event, where the drive's is `below`.
    #[inline(never)]
    pub(super) fn next_or_idle(&self, below: Option<Time>) -> Option<Time> {
        let due = self.idle.due.filter(|_| !self.is_asked());
        [below, due].into_iter().flatten().min()
    }

    /// Time is about to pass up to `to`: what is inside may be through then.
    #[inline(never)]
    pub(super) fn put_idle_off(&mut self, to: Time) {
        if self.is_asked() {
            self.idle.due = Some(to + self.idle.wait);
        }
    }

    /// Begins when it is time.
    #[inline(never)]
    pub(super) fn begin_idle(&mut self, to: Time) {
        if self.idle.due.is_some_and(|due| due <= to) && !self.is_asked() {
            (self.idle.due, self.idle.on) = (None, true);
            self.touch_all();
            self.follow(to);
        }
    }

    /// Whether a parallel unit collects though it has room enough: until its victim
    /// is through and its level high enough.
    #[inline]
    pub(super) fn collects_idly(&self, pu: usize, rank: usize) -> bool {
        self.idle.on && self.wants_idle_room(pu, rank)
    }

    #[inline(never)]
    fn wants_idle_room(&self, pu: usize, rank: usize) -> bool {
        let has_victim = self.collectors.of[rank].victim.is_some();
        !self.facts.read_only
            && (has_victim || self.level(pu, rank) < i64::from(self.space.pus[pu].rested))
    }
}
