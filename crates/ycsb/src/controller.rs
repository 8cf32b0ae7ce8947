//! The controller of a measured drive: tells others what it does, and may be
//! slower than this machine's processor.
//!
//! A port over any port. Each command occupies the controller for a time of
//! its own, one after the other, before it reaches what is below; with none it
//! passes at once. Counters are published for the host's thread. Nothing fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drive::batched::{BatchDrive, BoxedBatch};
use drive::kv::KvDrive;
use drive::lower;
use drive::whole::{Boxed, Observed};
use port::{Port, Ring, Time};

/// Commands that may wait for the controller.
const DEPTH: usize = 1024;

/// What a drive has done, in blocks and in times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Blocks of the host that were programmed.
    pub user: u64,
    /// Blocks programmed, with those of collection and of the drive's own.
    pub programmed: u64,
    /// Chunks collected.
    pub collections: u64,
    /// Checkpoints of a drive that takes batches.
    pub checkpoints: u64,
}

port::sums!(Work: user, programmed, collections, checkpoints);

/// What tells its work.
pub trait Works {
    /// What its target has done so far.
    fn work(&self) -> Work;
    /// Blocks programmed beside: parity, and folds out of an SLC cache; none where it has
    /// neither.
    fn beside(&self) -> Option<u64>;
}

impl Works for Boxed {
    #[inline]
    fn work(&self) -> Work {
        let c = self.counters();
        Work {
            user: c.user,
            programmed: c.user + c.gc + c.padding + c.metadata,
            collections: c.collections,
            checkpoints: 0,
        }
    }

    fn beside(&self) -> Option<u64> {
        self.parity_blocks().into_iter().chain(self.folded_blocks()).reduce(|a, b| a + b)
    }
}

impl Works for BoxedBatch {
    #[inline]
    fn work(&self) -> Work {
        let c = self.counters();
        Work {
            user: c.placed,
            programmed: c.programmed,
            collections: c.collections,
            checkpoints: c.checkpoints,
        }
    }

    fn beside(&self) -> Option<u64> {
        lower::beside(BatchDrive::lower(&**self)).into_iter().flatten().reduce(|a, b| a + b)
    }
}

impl Works for KvDrive {
    #[inline]
    fn work(&self) -> Work {
        let c = self.target().counters();
        Work {
            user: c.user,
            programmed: c.user + c.gc + c.padding + c.metadata,
            collections: c.collections,
            checkpoints: 0,
        }
    }

    fn beside(&self) -> Option<u64> {
        lower::beside(self.lower()).into_iter().flatten().reduce(|a, b| a + b)
    }
}

/// A drive's work, to be seen from another thread: each number is one that was
/// true, not all at the same moment.
#[derive(Debug, Default)]
pub struct Published([AtomicU64; 4]);

impl Published {
    /// What the drive has done so far.
    pub fn work(&self) -> Work {
        let at = |i: usize| self.0[i].load(Ordering::Relaxed);
        Work { user: at(0), programmed: at(1), collections: at(2), checkpoints: at(3) }
    }

    #[inline]
    fn publish(&self, w: &Work) {
        let all = [w.user, w.programmed, w.collections, w.checkpoints];
        for (to, n) in self.0.iter().zip(all) {
            to.store(n, Ordering::Relaxed);
        }
    }
}

/// The controller in front of `P`.
pub struct Controller<P: Port> {
    below: P,
    /// Nanoseconds for each command.
    each: u64,
    free: Time,
    /// Commands and when the controller is done with them.
    busy: Ring<(Time, P::Cmd)>,
    ready: Ring<P::Cmd>,
    published: Arc<Published>,
    /// Whether it programs anything beside its target's.
    has_beside: bool,
}

impl<P: Port + Works> Controller<P> {
    /// The controller in front of `below`, which takes `each` ns for a command.
    pub fn new(below: P, each: u64) -> Controller<P> {
        Controller {
            has_beside: below.beside().is_some(),
            below,
            each,
            free: Time::ZERO,
            busy: Ring::new(DEPTH),
            ready: Ring::new(DEPTH),
            published: Arc::default(),
        }
    }

    /// Tells others what it has done.
    fn publish(&self) {
        let mut work = self.below.work();
        if self.has_beside {
            work.programmed += self.below.beside().unwrap_or(0);
        }
        self.published.publish(&work);
    }

    /// Where its work is published.
    pub fn published(&self) -> Arc<Published> {
        self.published.clone()
    }
}

impl<P: Port + Works> Port for Controller<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        if self.each == 0 {
            return self.below.submit(now, cmds);
        }
        while self.busy.len() + self.ready.len() < DEPTH {
            let Some(cmd) = cmds.pop() else { return };
            self.free = self.free.max(now) + self.each;
            let kept = self.busy.push((self.free, cmd));
            assert!(kept.is_ok(), "the ring has room for all that are let in");
        }
    }

    fn next_event(&self) -> Option<Time> {
        let ours = self.busy.front().map(|busy| busy.0);
        [ours, self.below.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        loop {
            if self.below.next_event().is_some_and(|at| at <= to) {
                self.below.advance(to, done);
            }
            while self.busy.front().is_some_and(|busy| busy.0 <= to) {
                let Some((_, cmd)) = self.busy.pop() else { break };
                let kept = self.ready.push(cmd);
                assert!(kept.is_ok(), "the ring has room for all that are let in");
            }
            let before = self.ready.len();
            if before > 0 {
                self.below.submit(to, &mut self.ready);
            }
            if self.ready.len() == before || done.room() == 0 {
                break;
            }
        }
        self.publish();
    }

    #[inline]
    fn hint(&self, cmd: &P::Cmd) {
        self.below.hint(cmd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes each command, a number, when it comes.
    struct Echo(Ring<u64>, Time);

    impl Port for Echo {
        type Cmd = u64;
        type Done = (u64, Time);

        fn submit(&mut self, now: Time, cmds: &mut Ring<u64>) {
            while let Some(cmd) = cmds.pop() {
                self.0.push(cmd).unwrap();
            }
            self.1 = now;
        }

        fn next_event(&self) -> Option<Time> {
            (!self.0.is_empty()).then_some(self.1)
        }

        fn advance(&mut self, to: Time, done: &mut Ring<(u64, Time)>) {
            while let Some(cmd) = self.0.pop() {
                done.push((cmd, to)).unwrap();
            }
        }
    }

    impl Works for Echo {
        fn work(&self) -> Work {
            Work { user: 7, programmed: 10, ..Work::default() }
        }

        fn beside(&self) -> Option<u64> {
            Some(5)
        }
    }

    #[test]
    fn commands_occupy_it_one_after_the_other() {
        let mut drive = Controller::new(Echo(Ring::new(8), Time::ZERO), 100);
        let published = drive.published();
        let (mut cmds, mut done) = (Ring::new(8), Ring::new(8));
        for cmd in 0..3 {
            cmds.push(cmd).unwrap();
        }
        drive.submit(Time(50), &mut cmds);
        let mut seen = Vec::new();
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
            while let Some(one) = done.pop() {
                seen.push(one);
            }
        }
        assert_eq!(seen, [(0, Time(150)), (1, Time(250)), (2, Time(350))]);
        assert_eq!((published.work().user, published.work().programmed), (7, 15));
    }
}
