//! Queue pairs: how commands and completions pass between two threads.
//!
//! Guarantees: a pair is two bounded rings, each of one producer and one
//! consumer; nothing is lost, doubled or reordered in it. At most `depth`
//! commands of a pair are outside its host's hands at once, so there is always
//! room for their completions and the drive never waits for its host. A
//! [`Doorbell`] wakes the other side: ringing costs a fence and a load while
//! that side is awake, and a system call only when it sleeps. Only getting a
//! doorbell from the system can fail.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use port::Ring;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use tags::Armed;

/// The host's end of a queue pair.
pub struct HostEnd<C, D> {
    submission: Producer<C>,
    completion: Consumer<D>,
    outside: usize,
    depth: usize,
}

/// The drive's end of a queue pair.
pub struct DriveEnd<C, D> {
    submission: Consumer<C>,
    completion: Producer<D>,
}

/// Makes a queue pair for at most `depth` commands, at least one.
pub fn queue_pair<C, D>(depth: usize) -> (HostEnd<C, D>, DriveEnd<C, D>) {
    let depth = depth.max(1);
    let (submission, taken) = RingBuffer::new(depth);
    let (given, completion) = RingBuffer::new(depth);
    let host = HostEnd { submission, completion, outside: 0, depth };
    (host, DriveEnd { submission: taken, completion: given })
}

impl<C, D> HostEnd<C, D> {
    /// Moves a prefix of `cmds` into the pair; what stays did not fit. Gives
    /// how many were moved.
    pub fn submit(&mut self, cmds: &mut Ring<C>) -> usize {
        let n = cmds.len().min(self.depth - self.outside).min(self.submission.slots());
        if n == 0 {
            return 0;
        }
        let chunk = self.submission.write_chunk_uninit(n).expect("the room was counted");
        let moved = chunk.fill_from_iter(std::iter::from_fn(|| cmds.pop()).take(n));
        self.outside += moved;
        moved
    }

    /// Moves completions into `done` while it has room. Gives how many.
    pub fn poll(&mut self, done: &mut Ring<D>) -> usize {
        let n = done.room().min(self.completion.slots());
        if n == 0 {
            return 0;
        }
        let chunk = self.completion.read_chunk(n).expect("they were counted");
        for item in chunk {
            done.put(|| item);
        }
        self.outside -= n;
        n
    }

    /// Whether a completion can be polled.
    pub fn has_completions(&self) -> bool {
        self.completion.slots() > 0
    }

    /// Commands submitted and not yet polled.
    pub fn outside(&self) -> usize {
        self.outside
    }

    /// Most commands that may be outside at once.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl<C, D> DriveEnd<C, D> {
    /// Takes at most `most` commands, oldest first, and gives each to `f`.
    pub fn take(&mut self, most: usize, mut f: impl FnMut(C)) -> usize {
        let n = most.min(self.submission.slots());
        if n == 0 {
            return 0;
        }
        let chunk = self.submission.read_chunk(n).expect("they were counted");
        chunk.into_iter().for_each(&mut f);
        n
    }

    /// Whether a command waits.
    pub fn has_commands(&self) -> bool {
        self.submission.slots() > 0
    }

    /// Gives a completion to the host.
    ///
    /// # Panics
    /// When it answers no command of this pair: only then is there no room.
    pub fn complete(&mut self, done: D) {
        let pushed = self.completion.push(done);
        assert!(pushed.is_ok(), "a pair has room for each command's completion");
    }

    /// Gives completions to the host, all at once.
    ///
    /// # Panics
    /// When one answers no command of this pair: only then is there no room.
    pub fn complete_all(&mut self, done: &mut Ring<D>) {
        let n = done.len();
        if n == 0 {
            return;
        }
        let chunk = self.completion.write_chunk_uninit(n);
        let chunk = chunk.expect("a pair has room for each command's completion");
        chunk.fill_from_iter(done.drain());
    }

    /// Completions that the host has not polled.
    pub fn waiting(&self) -> usize {
        self.completion.buffer().capacity() - self.completion.slots()
    }
}

/// What one thread sleeps on and others ring.
///
/// The sleeper arms it, looks once more whether there is work, and sleeps; who
/// brings work brings it first and then rings. Either the sleeper sees the
/// work or the ringer sees it armed.
pub struct Doorbell {
    fd: OwnedFd,
    armed: Armed,
}

impl Doorbell {
    /// A doorbell.
    pub fn new() -> io::Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell { fd, armed: Armed::new() })
    }

    /// Says that this thread is about to sleep. Look for work after it.
    pub fn arm(&self) {
        self.armed.arm();
    }

    /// Says that this thread does not sleep after all.
    pub fn disarm(&self) {
        self.armed.disarm();
    }

    /// Whether the other side sleeps or is about to. Call it after bringing
    /// work.
    pub fn is_armed(&self) -> bool {
        self.armed.is_armed()
    }

    /// Wakes the sleeper, if there is one. Gives whether it was armed.
    pub fn ring(&self) -> bool {
        if !self.armed.take() {
            return false;
        }
        // Only a full counter refuses, and then the sleeper is awake.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
        true
    }

    /// Sleeps until it rings, or for `timeout`. True when it rang. Leaves it
    /// disarmed.
    pub fn sleep(&self, timeout: Option<Duration>) -> bool {
        let limit = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        let fd = self.fd.as_fd();
        let woken = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], limit.as_ref());
        self.disarm();
        // A signal ends the sleep early; the caller looks and sleeps again.
        if !matches!(woken, Ok(n) if n > 0) {
            return false;
        }
        let mut count = [0; 8];
        // Another thread cannot have read it: one sleeps, the others ring.
        !matches!(read(&self.fd, &mut count), Err(Errno::AGAIN))
    }

    /// For a caller's own event loop: readable when it rang.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn a_pair_is_two_bounded_queues(
            depth in 1usize..9, steps in prop::collection::vec((0u8..5, 1usize..9), 1..200),
        ) {
            let (mut host, mut drive) = queue_pair::<u64, u64>(depth);
            let (mut next, mut expected) = (0u64, 0u64);
            let (mut inside, mut done) = (std::collections::VecDeque::new(), Ring::new(4));
            let (mut cmds, mut ending) = (Ring::new(16), Ring::new(9));
            for (what, n) in steps {
                match what {
                    0 => {
                        while cmds.len() < n {
                            cmds.push(next).unwrap();
                            next += 1;
                        }
                        let before = host.outside();
                        let moved = host.submit(&mut cmds);
                        prop_assert_eq!(moved, n.max(cmds.len() + moved).min(depth - before));
                        prop_assert!(host.outside() <= depth);
                    }
                    1 => {
                        drive.take(n, |c| inside.push_back(c));
                    }
                    2 => {
                        for c in inside.drain(..n.min(inside.len())) {
                            drive.complete(c);
                        }
                    }
                    3 => {
                        let n = n.min(inside.len());
                        inside.drain(..n).for_each(|c| ending.put(|| c));
                        drive.complete_all(&mut ending);
                        prop_assert!(ending.is_empty());
                    }
                    _ => {
                        prop_assert_eq!(host.has_completions(), drive.waiting() > 0);
                        let moved = host.poll(&mut done);
                        prop_assert!(moved <= 4);
                        for d in done.drain() {
                            prop_assert_eq!(d, expected);
                            expected += 1;
                        }
                    }
                }
            }
            prop_assert!(expected + host.outside() as u64 + cmds.len() as u64 == next);
        }
    }

    #[test]
    fn nobody_sleeps_through_work() {
        // One thread counts up, the other waits for each number.
        const ROUNDS: u64 = 2000;
        let bell = Arc::new(Doorbell::new().unwrap());
        let (mut host, mut drive) = queue_pair::<u64, u64>(1);
        let ringer = bell.clone();
        let thread = std::thread::spawn(move || {
            let mut cmds = Ring::new(1);
            let mut done = Ring::new(1);
            for i in 0..ROUNDS {
                cmds.push(i).unwrap();
                while host.submit(&mut cmds) == 0 {
                    host.poll(&mut done);
                    done.drain().for_each(drop);
                    std::thread::yield_now();
                }
                ringer.ring();
            }
        });
        let mut sum = 0;
        let mut taken = 0;
        while taken < ROUNDS {
            bell.arm();
            if !drive.has_commands() {
                bell.sleep(None);
            }
            bell.disarm();
            let mut got = Vec::new();
            taken += drive.take(1, |c| got.push(c)) as u64;
            for c in got {
                sum += c;
                drive.complete(c);
            }
        }
        thread.join().unwrap();
        assert_eq!(sum, ROUNDS * (ROUNDS - 1) / 2);
    }

    #[test]
    fn a_bell_nobody_waits_for_does_not_ring() {
        let bell = Doorbell::new().unwrap();
        assert!(!bell.ring());
        bell.arm();
        assert!(bell.ring());
        assert!(!bell.ring(), "once is enough");
        assert!(bell.sleep(None), "it rang before the sleep");
        bell.arm();
        assert!(!bell.sleep(Some(Duration::from_micros(50))), "nothing rang");
        assert!(!bell.is_armed());
    }
}
