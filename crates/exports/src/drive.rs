//! One drive that many threads use, in real time.
//!
//! There is no thread for time. Whoever holds the lock polls the drive, for
//! all; a late poll delays what a client sees, never what the drive does. A
//! user sits in a [`Seat`]. Completions that are found for another seat go to
//! its outbox, and its bell (an eventfd) rings if it sleeps. Of the seats that
//! wait, one keeps watch: it wakes at the drive's next event, the others only
//! by their bells. With nothing outstanding nobody wakes at all.
//!
//! Guarantees: every command that was taken comes back exactly once, to the
//! seat that gave it, or is dropped when that seat has been left. Nothing is
//! allocated after a seat is taken. May fail: the drive panicked, which is
//! [`DriveLost`] for every later caller.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use device::realtime::RealTime;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use thiserror::Error;

/// How many users a drive can have at once.
pub const SEATS: usize = 64;

/// Waits shorter than this are spun: a sleep and a wake would cost as much.
const SPIN: Duration = Duration::from_micros(60);
/// How much earlier than the next event a sleep ends, to make up for the time
/// that waking takes: about this much in a virtual machine with idle cores.
/// What is left is spun.
const WAKE: Duration = Duration::from_micros(40);
/// How many completions are taken from the drive at a time.
const DONE: usize = 256;

/// The drive panicked while somebody used it; its state is not to be trusted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the drive stopped by a fault of its own; restart the program, and report what it printed")]
pub struct DriveLost;

/// One place at the drive.
#[derive(Debug, Default)]
struct Place {
    taken: bool,
    /// Commands inside the drive.
    inside: usize,
    /// The most that may be.
    limit: usize,
    /// Completions that others found.
    outbox: VecDeque<BlockDone>,
    /// Sleeps until its bell rings.
    asleep: bool,
    /// Has commands that the drive refused.
    refused: bool,
}

/// Who wakes at the drive's next event.
#[derive(Clone, Copy, Debug)]
struct Watch {
    seat: usize,
    /// When it wakes; for ever while it works, so that others may take over.
    until: Time,
}

struct Inner<P: Port> {
    real: RealTime<P>,
    done: Ring<BlockDone>,
    places: Vec<Place>,
    watch: Option<Watch>,
    stopping: bool,
}

/// A drive behind a lock.
pub struct SharedDrive<P: Port> {
    inner: Mutex<Inner<P>>,
    bells: Vec<OwnedFd>,
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Commands of this seat inside the drive.
    pub inside: usize,
    /// Whether other seats have commands inside.
    pub others: bool,
    /// Whether all are asked to finish and leave.
    pub stopping: bool,
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Do not: something is due now or very soon.
    Spin,
    /// Sleep until the bell rings or this much time has passed.
    Sleep(Option<Duration>),
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> SharedDrive<P> {
    /// Shares `port`, whose time begins now.
    pub fn new(port: P) -> Result<SharedDrive<P>, std::io::Error> {
        let bell = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(SharedDrive {
            inner: Mutex::new(Inner {
                real: RealTime::new(port),
                done: Ring::new(DONE),
                places: (0..SEATS).map(|_| Place::default()).collect(),
                watch: None,
                stopping: false,
            }),
            bells: (0..SEATS).map(bell).collect::<Result<_, Errno>>()?,
        })
    }

    /// The port again. What is still inside stays there.
    pub fn into_port(self) -> Result<P, DriveLost> {
        Ok(self.inner.into_inner().map_err(|_| DriveLost)?.real.into_port())
    }

    /// Takes a seat that will have at most `limit` commands inside; `None`
    /// when all are taken.
    pub fn sit(&self, limit: usize) -> Result<Option<Seat<'_, P>>, DriveLost> {
        let mut inner = self.lock()?;
        let free = |p: &Place| !p.taken && p.inside == 0;
        let Some(seat) = inner.places.iter().position(free) else {
            return Ok(None);
        };
        let place = &mut inner.places[seat];
        *place = Place { taken: true, limit, ..Place::default() };
        place.outbox.reserve_exact(limit);
        drop(inner);
        // A ring for the one who sat here before is no news for this one.
        clear(self.bells[seat].as_fd());
        Ok(Some(Seat { drive: self, seat }))
    }

    /// Asks every seat to finish, now and later, and wakes all.
    pub fn stop(&self) -> Result<(), DriveLost> {
        let lost = self.lock().map(|mut inner| inner.stopping = true);
        // Also when the drive is lost: sleepers are to find that out.
        self.ring(u64::MAX);
        lost
    }

    /// Flushes the drive and waits for it. Gives the drive's answer, or
    /// [`Status::ABORTED`] when no seat is free to ask from.
    pub fn flush(&self) -> Result<Status, DriveLost> {
        let Some(seat) = self.sit(1)? else {
            return Ok(Status::ABORTED);
        };
        let (mut cmds, mut done) = (Ring::new(1), Vec::with_capacity(1));
        let flush = BlockReq {
            id: (seat.number() as u64) << 32,
            op: BlockOp::Flush,
            fua: false,
            offset: 0,
            len: 0,
            buffer: Buffer::empty(),
        };
        let _ = cmds.push(flush);
        loop {
            seat.turn(&mut cmds, &mut done)?;
            if let Some(done) = done.pop() {
                return Ok(done.status);
            }
            if let Wait::Sleep(time) = seat.wait()? {
                sleep(&mut [PollFd::from_borrowed_fd(seat.bell(), PollFlags::IN)], time);
                clear(seat.bell());
            }
        }
    }

    /// Lets `f` look after the drive, at the time it is given, if nobody has
    /// anything inside; those who have poll it. Gives how long it rests until
    /// its next event: with nobody there, that is the caller's to wait for.
    pub fn tend(&self, f: impl FnOnce(&mut P, Time)) -> Result<Option<Duration>, DriveLost> {
        let mut inner = self.lock()?;
        if inner.places.iter().any(|place| place.inside > 0 || place.refused) {
            return Ok(None);
        }
        let now = inner.real.clock().now();
        inner.real.tend(now, f);
        Ok(inner.real.idle_for())
    }

    /// Whether the drive panicked.
    pub fn is_lost(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner<P>>, DriveLost> {
        self.inner.lock().map_err(|_| DriveLost)
    }

    /// Rings the bells in `set`, one bit a seat.
    fn ring(&self, mut set: u64) {
        while set != 0 {
            let seat = set.trailing_zeros() as usize;
            set &= set - 1;
            // A full counter rings as well.
            let _ = rustix::io::write(&self.bells[seat], &1u64.to_ne_bytes());
        }
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Inner<P> {
    /// Takes all that is due at `now`: completions of `seat` to `out`, others
    /// to their outboxes. Gives how many there were, and whom to wake.
    fn poll(&mut self, now: Time, seat: usize, out: &mut Vec<BlockDone>) -> (usize, u64) {
        let (mut found, mut wake) = (0, 0);
        loop {
            self.real.poll(now, &mut self.done);
            let n = self.done.len();
            found += n;
            for mut done in self.done.drain() {
                let to = (done.id >> 32) as usize;
                done.id &= u64::from(u32::MAX);
                let place = &mut self.places[to];
                place.inside -= 1;
                if to == seat {
                    out.push(done);
                } else if place.taken {
                    place.outbox.push_back(done);
                    wake |= u64::from(place.asleep) << to;
                }
            }
            if n < self.done.capacity() {
                break;
            }
        }
        if found > 0 {
            wake |= self.those(seat, |p| p.refused && p.asleep);
        }
        (found, wake)
    }

    /// The other seats of which `is` holds, one bit each.
    fn those(&self, seat: usize, is: impl Fn(&Place) -> bool) -> u64 {
        let bit = |(i, p)| u64::from(i != seat && is(p)) << i;
        self.places.iter().enumerate().map(bit).fold(0, |a, b| a | b)
    }

    /// Ends the watch of `seat`, if it has it. Gives who is to take it over; also
    /// where nobody has it: `seat` may have been asked to, and need not wait any
    /// more.
    fn hand_over(&mut self, seat: usize) -> u64 {
        if self.watch.is_some_and(|w| w.seat != seat) {
            return 0;
        }
        self.watch = None;
        let waiting = self.those(seat, |p| p.asleep && (p.inside > 0 || p.refused));
        waiting & waiting.wrapping_neg()
    }
}

/// A place at the drive, for one user. Left when dropped; what it still has
/// inside is then dropped when it completes.
pub struct Seat<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> {
    drive: &'a SharedDrive<P>,
    seat: usize,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Seat<'_, P> {
    /// Which seat this is, from 0 to [`SEATS`] less one.
    pub fn number(&self) -> usize {
        self.seat
    }

    /// Rings when somebody found a completion for a seat that sleeps.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.drive.bells[self.seat].as_fd()
    }

    /// One turn: submits a prefix of `cmds`, lets all happen that is due, and
    /// puts this seat's completions at the end of `done`. What stays in
    /// `cmds` was refused; try again after the next wait. A command's number
    /// is the seat's times 2^32 plus the caller's own, below 2^32, which
    /// comes back alone.
    ///
    /// # Panics
    /// When more commands would be inside than the seat was taken for.
    pub fn turn(
        &self,
        cmds: &mut Ring<BlockReq>,
        done: &mut Vec<BlockDone>,
    ) -> Result<Turn, DriveLost> {
        let me = self.seat;
        let mut guard = self.drive.lock()?;
        let inner = &mut *guard;
        let now = inner.real.clock().now();
        // Events before `now` come before commands that arrive now.
        let (_, mut wake) = inner.poll(now, me, done);
        let place = &inner.places[me];
        assert!(place.inside + cmds.len() <= place.limit, "a seat keeps to its limit");
        while !cmds.is_empty() {
            let before = cmds.len();
            inner.real.submit(now, cmds);
            inner.places[me].inside += before - cmds.len();
            let (found, also) = inner.poll(now, me, done);
            wake |= also;
            if found == 0 {
                break;
            }
        }
        let place = &mut inner.places[me];
        done.extend(place.outbox.drain(..));
        place.asleep = false;
        place.refused = !cmds.is_empty();
        let (inside, refused) = (place.inside, place.refused);
        if inside == 0 && !refused {
            wake |= inner.hand_over(me);
        } else if let Some(watch) = inner.watch.as_mut().filter(|w| w.seat == me) {
            watch.until = Time(u64::MAX);
        }
        let others = inner.those(me, |p| p.inside > 0 || p.refused) != 0;
        let stopping = inner.stopping;
        drop(guard);
        self.drive.ring(wake);
        Ok(Turn { inside, others, stopping })
    }

    /// How to wait for the next completion. Until the next
    /// [`turn`](Self::turn), the bell rings for it.
    pub fn wait(&self) -> Result<Wait, DriveLost> {
        let me = self.seat;
        let mut guard = self.drive.lock()?;
        let inner = &mut *guard;
        if !inner.places[me].outbox.is_empty() {
            return Ok(Wait::Spin);
        }
        let wait = match inner.real.port().next_event() {
            // What refused it is over, and nothing else will wake anybody.
            None if inner.places[me].refused => Wait::Spin,
            None => Wait::Sleep(None),
            Some(at) if inner.watch.is_some_and(|w| w.seat != me && w.until <= at) => {
                Wait::Sleep(None)
            }
            Some(at) => {
                inner.watch = Some(Watch { seat: me, until: at });
                let time = Duration::from_nanos(at.since(inner.real.clock().now()));
                if time < SPIN { Wait::Spin } else { Wait::Sleep(Some(time - WAKE)) }
            }
        };
        inner.places[me].asleep = wait != Wait::Spin;
        Ok(wait)
    }

    /// Says that this seat will be away for a time that it cannot tell, so
    /// that another one keeps watch.
    pub fn away(&self) -> Result<(), DriveLost> {
        let wake = self.drive.lock()?.hand_over(self.seat);
        self.drive.ring(wake);
        Ok(())
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Drop for Seat<'_, P> {
    fn drop(&mut self) {
        // A lost drive needs no seat back.
        let Ok(mut inner) = self.drive.lock() else { return };
        let place = &mut inner.places[self.seat];
        (place.taken, place.asleep, place.refused) = (false, false, false);
        place.outbox = VecDeque::new();
        let wake = inner.hand_over(self.seat);
        drop(inner);
        self.drive.ring(wake);
    }
}

/// Sleeps until one of `fds` is ready or `time` has passed.
pub(crate) fn sleep(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    // A duration too long for the system is as good as for ever.
    let time = time.and_then(|t| t.try_into().ok());
    // An interrupted sleep is a short one: callers look again.
    let _ = poll(fds, time.as_ref());
}

/// Takes back all rings of a bell.
pub(crate) fn clear(bell: BorrowedFd<'_>) {
    // Nothing to read: it had not rung.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Completes everything at a time that the test can change.
    struct Gate {
        opens: Arc<AtomicU64>,
        held: VecDeque<BlockReq>,
    }

    impl Port for Gate {
        type Cmd = BlockReq;
        type Done = BlockDone;

        fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
            self.held.extend(cmds.drain());
        }

        fn next_event(&self) -> Option<Time> {
            self.held.front().map(|_| Time(self.opens.load(Ordering::Relaxed)))
        }

        fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
            while let Some(cmd) = self.held.pop_front() {
                let BlockReq { id, op, buffer, .. } = cmd;
                done.push(BlockDone { id, op, status: Status::SUCCESS, at: to, buffer }).unwrap();
            }
        }
    }

    const FAR: u64 = 3_600_000_000_000;

    fn gate() -> (SharedDrive<Gate>, Arc<AtomicU64>) {
        let opens = Arc::new(AtomicU64::new(FAR));
        let port = Gate { opens: opens.clone(), held: VecDeque::new() };
        (SharedDrive::new(port).unwrap(), opens)
    }

    /// Refuses what comes first, and has nothing else to do.
    struct Shy {
        refuses: u32,
        taken: Option<BlockReq>,
    }

    impl Port for Shy {
        type Cmd = BlockReq;
        type Done = BlockDone;

        fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
            match self.refuses.checked_sub(1) {
                Some(left) => self.refuses = left,
                None => self.taken = cmds.pop(),
            }
        }

        fn next_event(&self) -> Option<Time> {
            self.taken.as_ref().map(|_| Time::ZERO)
        }

        fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
            if let Some(BlockReq { id, op, buffer, .. }) = self.taken.take() {
                done.push(BlockDone { id, op, status: Status::SUCCESS, at: to, buffer }).unwrap();
            }
        }
    }

    #[test]
    fn a_drive_is_looked_after_when_nobody_uses_it() {
        let (drive, opens) = gate();
        assert_eq!(drive.tend(|_, _| ()), Ok(None), "it rests for ever");
        let mut times = 0;
        let seat = drive.sit(1).unwrap().unwrap();
        turn(&seat, Some(1));
        assert_eq!(drive.tend(|_, _| times += 1), Ok(None));
        assert_eq!(times, 0, "who has something inside sees to it");
        opens.store(0, Ordering::Relaxed);
        while turn(&seat, None).is_empty() {}
        // What that begins has a time of its own.
        opens.store(FAR, Ordering::Relaxed);
        let left = drive.tend(|gate, _| {
            let (op, buffer) = (BlockOp::Flush, Buffer::empty());
            gate.held.push_back(BlockReq { id: 0, op, fua: false, offset: 0, len: 0, buffer });
        });
        let left = left.unwrap().expect("something is to come");
        assert!(left > Duration::ZERO && left <= Duration::from_nanos(FAR));
    }

    #[test]
    fn who_was_refused_asks_again() {
        let drive = SharedDrive::new(Shy { refuses: 3, taken: None }).unwrap();
        // It would sleep for ever.
        assert_eq!(drive.flush(), Ok(Status::SUCCESS));
    }

    /// A turn of `seat` with one flush, numbered `id`, or none; gives what
    /// completed.
    fn turn<P>(seat: &Seat<'_, P>, id: Option<u64>) -> Vec<u64>
    where
        P: Port<Cmd = BlockReq, Done = BlockDone>,
    {
        let (mut cmds, mut done) = (Ring::new(1), Vec::new());
        if let Some(id) = id {
            let id = (seat.number() as u64) << 32 | id;
            let buffer = Buffer::empty();
            let op = BlockOp::Flush;
            cmds.push(BlockReq { id, op, fua: false, offset: 0, len: 0, buffer }).unwrap();
        }
        seat.turn(&mut cmds, &mut done).unwrap();
        done.iter().map(|d| d.id).collect()
    }

    fn rang<P: Port<Cmd = BlockReq, Done = BlockDone>>(seat: &Seat<'_, P>) -> bool {
        rustix::io::read(seat.bell(), &mut [0u8; 8]).is_ok()
    }

    #[test]
    fn completions_find_their_seat_and_ring_its_bell() {
        let (drive, opens) = gate();
        let (a, b) = (drive.sit(4).unwrap().unwrap(), drive.sit(4).unwrap().unwrap());
        assert!(turn(&a, Some(7)).is_empty());
        assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
        opens.store(0, Ordering::Relaxed);
        assert_eq!(turn(&b, Some(8)), [8]);
        assert!(rang(&a) && !rang(&b));
        assert_eq!(a.wait().unwrap(), Wait::Spin);
        assert_eq!(turn(&a, None), [7]);
    }

    #[test]
    fn one_keeps_watch_and_hands_over() {
        let (drive, _) = gate();
        let (a, b) = (drive.sit(4).unwrap().unwrap(), drive.sit(4).unwrap().unwrap());
        turn(&a, Some(0));
        turn(&b, Some(0));
        assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
        assert_eq!(b.wait().unwrap(), Wait::Sleep(None));
        a.away().unwrap();
        assert!(rang(&b));
        assert!(matches!(b.wait().unwrap(), Wait::Sleep(Some(_))));
        assert_eq!(a.wait().unwrap(), Wait::Sleep(None));
        drop(b);
        assert!(rang(&a));
    }

    /// Completes one command whenever it is opened.
    struct Valve(Gate);

    impl Port for Valve {
        type Cmd = BlockReq;
        type Done = BlockDone;

        fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
            self.0.submit(now, cmds);
        }

        fn next_event(&self) -> Option<Time> {
            self.0.next_event()
        }

        fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
            if self.0.opens.swap(FAR, Ordering::Relaxed) == 0 {
                let behind = self.0.held.split_off(1);
                self.0.advance(to, done);
                self.0.held = behind;
            }
        }
    }

    #[test]
    fn who_is_asked_to_watch_and_is_done_asks_another() {
        let opens = Arc::new(AtomicU64::new(FAR));
        let gate = Gate { opens: opens.clone(), held: VecDeque::new() };
        let drive = SharedDrive::new(Valve(gate)).unwrap();
        let sit = || drive.sit(4).unwrap().unwrap();
        let (a, b, c) = (sit(), sit(), sit());
        turn(&b, Some(0));
        turn(&a, Some(0));
        turn(&c, Some(0));
        assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
        assert_eq!(b.wait().unwrap(), Wait::Sleep(None));
        assert_eq!(c.wait().unwrap(), Wait::Sleep(None));
        drop(a);
        assert!(rang(&b) && !rang(&c));
        opens.store(0, Ordering::Relaxed);
        assert_eq!(turn(&b, None), [0]);
        assert!(rang(&c), "or it would sleep for ever");
    }

    #[test]
    fn a_seat_is_free_when_nothing_of_it_is_inside() {
        let (drive, opens) = gate();
        let a = drive.sit(4).unwrap().unwrap();
        let first = a.number();
        turn(&a, Some(0));
        drop(a);
        let b = drive.sit(4).unwrap().unwrap();
        assert_ne!(b.number(), first);
        opens.store(0, Ordering::Relaxed);
        assert!(turn(&b, None).is_empty());
        let c = drive.sit(4).unwrap().unwrap();
        assert_eq!(c.number(), first);
        assert!(turn(&c, None).is_empty());
        let rest: Vec<_> = (2..SEATS).map(|_| drive.sit(1).unwrap().unwrap()).collect();
        assert!(drive.sit(1).unwrap().is_none());
        assert_eq!(drive.flush(), Ok(Status::ABORTED));
        drop(rest);
        assert_eq!(drive.flush(), Ok(Status::SUCCESS));
    }
}
