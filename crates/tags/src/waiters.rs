//! The line of users that found no tag.
//!
//! Guarantees, as long as tags that are out are given back some day and a
//! user that was woken tries:
//! - No lost wake: when a tag is free and somebody waits, somebody was woken
//!   and has not tried yet, or a user that holds tags will wake when it gives
//!   the last of them, or sooner.
//! - Nobody starves: a user that was woken and found nothing goes back to the
//!   front of its queue. From then until it is served no newcomer is let in,
//!   and while it has its turn nobody else is woken. So only those may still
//!   be faster that were woken before, and one from each queue.
//! - A user that was woken and neither tries nor leaves holds up nobody who
//!   polls: one in line that sees a free tag for [`PATIENCE`] polls wakes the
//!   next, also while another has its turn.
//!
//! Eight queues, used round robin by those who come and by those who wake, so
//! that they seldom meet at one lock. The order is that of coming while
//! nobody leaves before its turn; a queue is passed over at most seven times
//! in a row.
//!
//! # Why no wake is lost
//!
//! `gate` counts those whom newcomers must let pass: those in a queue, and
//! those woken for the second time. The first to raise it from 0 looks for a
//! tag once more after that; a giver looks at it after giving. One of the two
//! sees the other. Who finds it raised need not look: somebody before it is
//! still to leave, and who leaves wakes the next. Wakes are held back while a
//! user woken for the second time (`hungry`) has not tried; it either leaves,
//! and so wakes the next, or looks again after it is back in its queue.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, lock, order};

/// How many wait queues there are. Fewer under loom, which tries every order
/// of looking into them.
const QUEUES: usize = if cfg!(loom) { 2 } else { 8 };

/// Polls for which a user in line sees a free tag that nobody takes, before it
/// has the next one woken. A user that runs tries within fewer.
pub(crate) const PATIENCE: u32 = 64;

/// Where a user waits: what others may touch of it.
pub(crate) struct Seat {
    /// Set by who wakes, cleared by the user. On a line of its own, because
    /// the user polls it.
    woken: CachePadded<AtomicBool>,
}

impl Seat {
    pub(crate) fn new() -> Arc<Seat> {
        Arc::new(Seat { woken: CachePadded::new(AtomicBool::new(false)) })
    }

    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }
}

/// A user's place in the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    queue: usize,
    /// It was woken, found nothing and went back to the front.
    robbed: bool,
}

struct Entry {
    seat: Arc<Seat>,
    robbed: bool,
}

pub(crate) struct Line {
    /// How many users newcomers must let pass. Read for every request,
    /// written only when somebody waits.
    gate: CachePadded<AtomicU32>,
    slow: CachePadded<Slow>,
}

/// What only those touch that wait, and those that wake them.
struct Slow {
    /// Robbed users that were woken and have not tried yet.
    hungry: AtomicU32,
    /// Tags given back since the last wake.
    freed: AtomicU32,
    /// Tags given back for a wake, and users woken then.
    batch: u32,
    next_in: AtomicUsize,
    next_out: AtomicUsize,
    queues: [Mutex<VecDeque<Entry>>; QUEUES],
}

impl Line {
    pub(crate) fn new(depth: u32) -> Line {
        Line {
            gate: CachePadded::new(AtomicU32::new(0)),
            slow: CachePadded::new(Slow {
                hungry: AtomicU32::new(0),
                freed: AtomicU32::new(0),
                batch: (depth / 8).clamp(1, 8),
                next_in: AtomicUsize::new(0),
                next_out: AtomicUsize::new(0),
                queues: std::array::from_fn(|_| Mutex::new(VecDeque::new())),
            }),
        }
    }

    pub(crate) fn batch(&self) -> u32 {
        self.slow.batch
    }

    /// Makes room for `users` in each queue, so that waiting allocates
    /// nothing.
    pub(crate) fn reserve(&self, users: usize) {
        for queue in &self.slow.queues {
            let mut queue = lock!(queue);
            let more = users.saturating_sub(queue.len());
            queue.reserve(more);
        }
    }

    /// Whether newcomers may take. A hint that may be old.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == 0
    }

    /// Whether somebody waits who cannot see tags that were given back just
    /// before, by a `SeqCst` read-modify-write.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        order();
        self.gate.load(Ordering::SeqCst) != 0
    }

    /// Puts a user at the end. It must look for tags once more, after a
    /// `SeqCst` fence, when the second value says so.
    pub(crate) fn enrol(&self, seat: &Arc<Seat>) -> (Place, bool) {
        let queue = self.slow.next_in.fetch_add(1, Ordering::Relaxed) % QUEUES;
        let mut entries = lock!(self.slow.queues[queue]);
        seat.woken.store(false, Ordering::Relaxed);
        entries.push_back(Entry { seat: seat.clone(), robbed: false });
        let before = self.gate.fetch_add(1, Ordering::SeqCst);
        (Place { queue, robbed: false }, before == 0)
    }

    /// Puts a user back that was woken and found nothing, at the front. It
    /// must look for tags once more, after a `SeqCst` fence.
    pub(crate) fn back_to_front(&self, seat: &Arc<Seat>, place: Place) -> Place {
        let mut entries = lock!(self.slow.queues[place.queue]);
        seat.woken.store(false, Ordering::Relaxed);
        entries.push_front(Entry { seat: seat.clone(), robbed: true });
        self.slow.next_out.store(place.queue, Ordering::Relaxed);
        if place.robbed {
            // Its part of the gate stays until it leaves.
            self.slow.hungry.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.gate.fetch_add(1, Ordering::SeqCst);
        }
        Place { robbed: true, ..place }
    }

    /// Lets a user go, woken or not, and wakes the next.
    pub(crate) fn leave(&self, seat: &Arc<Seat>, place: Place) {
        let mut entries = lock!(self.slow.queues[place.queue]);
        let own = entries.iter().position(|entry| Arc::ptr_eq(&entry.seat, seat));
        if let Some(own) = own {
            entries.remove(own);
        } else if place.robbed {
            self.slow.hungry.fetch_sub(1, Ordering::AcqRel);
        }
        if own.is_some() || place.robbed {
            self.gate.fetch_sub(1, Ordering::SeqCst);
        }
        seat.woken.store(false, Ordering::Relaxed);
        drop(entries);
        self.wake(1);
    }

    /// Counts `n` tags given back by a user that holds no more when `last`,
    /// and wakes when they make a batch.
    #[cold]
    pub(crate) fn freed(&self, n: u32, last: bool) {
        let freed = self.slow.freed.fetch_add(n, Ordering::AcqRel).saturating_add(n);
        if last || freed >= self.slow.batch {
            let freed = self.slow.freed.swap(0, Ordering::AcqRel);
            self.wake(freed.clamp(1, self.slow.batch));
        }
    }

    /// Wakes up to `n` users, in order.
    #[cold]
    pub(crate) fn wake(&self, n: u32) {
        for _ in 0..n {
            // A read-modify-write, because it must see the newest value: who
            // lowers it after this sees the tags given back before this.
            if self.slow.hungry.fetch_add(0, Ordering::AcqRel) > 0 {
                return;
            }
            if !self.wake_next() {
                return;
            }
        }
    }

    /// Wakes the first in line, also while another has its turn: takes it out of its
    /// queue and sets its flag. False when nobody is in line.
    #[cold]
    pub(crate) fn wake_next(&self) -> bool {
        let first = self.slow.next_out.load(Ordering::Relaxed);
        for i in 0..QUEUES {
            let queue = (first + i) % QUEUES;
            let mut entries = lock!(self.slow.queues[queue]);
            let Some(entry) = entries.pop_front() else { continue };
            if entry.robbed {
                self.slow.hungry.fetch_add(1, Ordering::AcqRel);
            } else {
                self.gate.fetch_sub(1, Ordering::SeqCst);
            }
            entry.seat.woken.store(true, Ordering::Release);
            self.slow.next_out.store((queue + 1) % QUEUES, Ordering::Relaxed);
            return true;
        }
        false
    }
}
