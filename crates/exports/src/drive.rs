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
//! allocated after a seat is taken, but for a list of whom to wake. A turn
//! costs the same however many seats there are, as long as few of them wait for
//! each other. Who has much in the drive lets those have the lock first who have
//! little: they wait for one turn of one such user, however many there are. May
//! fail: the drive panicked, which is [`DriveLost`] for every
//! later caller.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use device::realtime::{RealTime, sleep_for};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::sched_yield;
use thiserror::Error;

mod places;

use places::{Place, Watch, wake};

/// How many users a drive can have at once.
pub const SEATS: usize = 1 << 14;

/// How many completions are taken from the drive at a time.
const DONE: usize = 256;
/// How often somebody who has kept others waiting looks whether one of them had
/// its turn, and how many of those with little go before one with much.
const YIELDS: usize = 64;
/// How long a drive that waits for its medium is left alone before it is asked again.
const AGAIN: Duration = Duration::from_millis(1);

/// The drive panicked while somebody used it; its state is not to be trusted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the drive stopped by a fault of its own; restart the program, and report what it printed")]
pub struct DriveLost;

struct Inner<P: Port> {
    real: RealTime<P>,
    done: Ring<BlockDone>,
    places: Vec<Place>,
    watch: Option<Watch>,
    stopping: bool,
    /// Places that wait for the drive, and those of them that were refused.
    busy: usize,
    refused: usize,
    /// Where the search for one that was refused begins.
    next_refused: usize,
    /// Places that are taken.
    seated: u64,
    /// Bells to ring when the lock is given back.
    wakes: Vec<Arc<OwnedFd>>,
    /// Somebody has had the lock and lets others have it first.
    is_aside: bool,
}

/// A drive behind a lock.
pub struct SharedDrive<P: Port> {
    inner: Mutex<Inner<P>>,
    /// Who waits for the lock, and how often somebody did and got it.
    waiting: AtomicUsize,
    waited: AtomicUsize,
    /// Those of them who have little in the drive.
    light: AtomicUsize,
    /// Of those who have much one at a time waits for the lock, and then until
    /// the others have had it.
    heavy: Mutex<()>,
    aside: Condvar,
    /// Memory for whom to wake, of those who change the drive without a seat.
    bells: Mutex<Vec<Arc<OwnedFd>>>,
    /// What is done to the drive when all are asked to finish.
    hurry: fn(&mut P, Time),
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Commands of this seat inside the drive.
    pub inside: usize,
    /// How many seats have, this one counted.
    pub users: usize,
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
    pub fn new(port: P) -> SharedDrive<P> {
        SharedDrive {
            inner: Mutex::new(Inner {
                real: RealTime::new(port),
                done: Ring::new(DONE),
                places: Vec::new(),
                watch: None,
                stopping: false,
                busy: 0,
                refused: 0,
                next_refused: 0,
                seated: 0,
                wakes: Vec::new(),
                is_aside: false,
            }),
            waiting: AtomicUsize::new(0),
            waited: AtomicUsize::new(0),
            light: AtomicUsize::new(0),
            heavy: Mutex::new(()),
            aside: Condvar::new(),
            bells: Mutex::default(),
            hurry: |_, _| (),
        }
    }

    /// The same, and `hurry` is done to it when all are asked to finish: what it holds back
    /// goes on then.
    pub fn hurried_by(self, hurry: fn(&mut P, Time)) -> SharedDrive<P> {
        SharedDrive { hurry, ..self }
    }

    /// The port again. What is still inside stays there.
    pub fn into_port(self) -> Result<P, DriveLost> {
        Ok(self.inner.into_inner().map_err(|_| DriveLost)?.real.into_port())
    }

    /// Takes a seat that will have at most `limit` commands inside; `None`
    /// when all are taken, or there is no descriptor for its bell.
    pub fn sit(&self, limit: usize) -> Result<Option<Seat<'_, P>>, DriveLost> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let Ok(bell) = eventfd(0, flags).map(Arc::new) else { return Ok(None) };
        let mut inner = self.lock()?;
        let free = inner.places.iter().position(|p| !p.taken && p.inside == 0);
        let seat = free.unwrap_or(inner.places.len());
        if seat == SEATS {
            return Ok(None);
        }
        if free.is_none() {
            inner.places.push(Place::default());
        }
        let place = &mut inner.places[seat];
        *place = Place { taken: true, limit, bell: Some(bell.clone()), ..Place::default() };
        place.outbox.reserve_exact(limit);
        inner.seated += 1;
        let (wakes, is_heavy) = (RefCell::default(), Cell::new(false));
        Ok(Some(Seat { drive: self, seat, bell, wakes, is_heavy }))
    }

    /// Asks every seat to finish, now and later, and wakes all; hurries the drive. Where that
    /// waits for its medium this waits, too.
    pub fn stop(&self) -> Result<(), DriveLost> {
        // Also when the drive is lost: sleepers are to find that out.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.stopping = true;
        let bells: Vec<_> = inner.places.iter().filter_map(|p| p.bell.clone()).collect();
        drop(inner);
        ring(&bells);
        while self.change(self.hurry)?.is_none() {
            std::thread::sleep(AGAIN);
        }
        Ok(())
    }

    /// Flushes the drive and waits for it. Gives the drive's answer, or
    /// [`Status::ABORTED`] when no seat is free to ask from.
    pub fn flush(&self) -> Result<Status, DriveLost> {
        let Some(seat) = self.sit(1)? else {
            return Ok(Status::ABORTED);
        };
        let (op, buffer) = (BlockOp::Flush, Buffer::empty());
        let flush =
            BlockReq { id: 0, op, fua: false, placement: 0, queue: 0, offset: 0, len: 0, buffer };
        Ok(seat.ask(flush)?.status)
    }

    /// Lets `f` look after the drive, at the time it is given, if nobody has
    /// anything inside; those who have poll it. Gives how long it rests until
    /// its next event: with nobody there, that is the caller's to wait for.
    pub fn tend(&self, f: impl FnOnce(&mut P, Time)) -> Result<Option<Duration>, DriveLost> {
        let mut inner = self.lock()?;
        if inner.busy > 0 {
            return Ok(None);
        }
        let now = inner.real.clock().now();
        inner.real.tend(now, f);
        Ok(inner.real.idle_for())
    }

    /// Lets `f` change something of the drive itself, at the time it is given, after all that
    /// is due by then; what comes of it happens when somebody polls the drive, as this does.
    /// Gives what `f` does; nothing where the drive waits for its medium, to be tried again.
    pub fn change<R>(&self, f: impl FnOnce(&mut P, Time) -> R) -> Result<Option<R>, DriveLost> {
        // Before the drive, so that nobody has to wait for one that rings.
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = self.lock()?;
        let inner = &mut *guard;
        let (now, mut changed) = (inner.real.clock().now(), None);
        // All that completes is others'.
        inner.poll_for_all(now, SEATS, |_| ());
        inner.real.tend(now, |port, at| changed = Some(f(port, at)));
        inner.poll_for_all(now, SEATS, |_| ());
        inner.wake_watch();
        std::mem::swap(&mut inner.wakes, &mut bells);
        drop(guard);
        ring(&bells);
        bells.clear();
        Ok(changed)
    }

    /// Lets `f` look at the drive and the time that it has come to, with the drive held:
    /// it should not take long.
    pub fn look<R>(&self, f: impl FnOnce(&P, Time) -> R) -> Result<R, DriveLost> {
        let inner = self.lock()?;
        Ok(f(inner.real.port(), inner.real.now()))
    }

    /// How many have a seat.
    pub fn seated(&self) -> Result<u64, DriveLost> {
        Ok(self.lock()?.seated)
    }

    /// Whether the drive panicked.
    pub fn is_lost(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner<P>>, DriveLost> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(_)) => Err(DriveLost),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                self.light.fetch_add(1, Ordering::Relaxed);
                let inner = self.inner.lock().map_err(|_| DriveLost);
                self.light.fetch_sub(1, Ordering::Relaxed);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.waited.fetch_add(1, Ordering::Relaxed);
                // Without the lock nobody is known to be aside, so all may be.
                if inner.as_ref().is_ok_and(|inner| inner.is_aside) || inner.is_err() {
                    self.aside.notify_one();
                }
                inner
            }
        }
    }

    /// The same for who has much in the drive: after those who have little.
    fn lock_after_others(&self) -> Result<MutexGuard<'_, Inner<P>>, DriveLost> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = self.heavy.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.inner.lock().map_err(|_| DriveLost);
        let before = self.waited.load(Ordering::Relaxed);
        let passed = || self.waited.load(Ordering::Relaxed).wrapping_sub(before);
        while let Ok(guard) = inner.as_mut()
            && self.light.load(Ordering::Relaxed) > 0
            && passed() < YIELDS
        {
            guard.is_aside = true;
            inner = inner.and_then(|guard| self.aside.wait(guard).map_err(|_| DriveLost));
        }
        if let Ok(guard) = inner.as_mut() {
            guard.is_aside = false;
        }
        drop(turn);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waited.fetch_add(1, Ordering::Relaxed);
        inner
    }
}

/// Rings bells.
fn ring(bells: &[Arc<OwnedFd>]) {
    for bell in bells {
        // A full counter rings as well.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Inner<P> {
    /// Takes all that is due at `now`: completions of `seat` to `out`, others
    /// to their outboxes. Gives how many there were.
    #[inline]
    fn poll(&mut self, now: Time, seat: usize, out: &mut Ring<BlockDone>) -> usize {
        if self.others(seat) {
            return self.poll_for_all(now, seat, |done| out.put(|| done));
        }
        // All that completes is this seat's, and has room there, as it was inside.
        let before = out.len();
        self.real.poll(now, out);
        let found = out.len() - before;
        if found > 0 {
            self.left(seat, found);
        }
        found
    }

    /// So many commands of a seat have left the drive.
    #[inline]
    fn left(&mut self, seat: usize, count: usize) {
        let place = &mut self.places[seat];
        place.inside -= count;
        self.busy -= usize::from(!place.is_busy());
    }

    /// The same where more than one seat has commands inside; `mine` is given those of `seat`.
    fn poll_for_all(&mut self, now: Time, seat: usize, mut mine: impl FnMut(BlockDone)) -> usize {
        let mut found = 0;
        loop {
            self.real.poll(now, &mut self.done);
            let n = self.done.len();
            found += n;
            while let Some(done) = self.done.pop() {
                let to = (done.id >> 32) as usize;
                self.left(to, 1);
                let place = &mut self.places[to];
                if to == seat {
                    mine(done);
                } else if place.taken {
                    place.outbox.push_back(done);
                    wake(place, &mut self.wakes);
                }
            }
            if n < self.done.capacity() {
                break;
            }
        }
        if found > 0 && self.refused > 0 {
            self.wake_refused(seat, found);
        }
        found
    }

    /// Wakes seats that were refused, one for each command that has left the
    /// drive, in turn.
    fn wake_refused(&mut self, seat: usize, most: usize) {
        let (count, mut left) = (self.places.len(), most.min(self.refused));
        for i in 0..count {
            let at = (self.next_refused + i) % count;
            if left > 0 && at != seat && self.places[at].refused {
                wake(&mut self.places[at], &mut self.wakes);
                left -= 1;
                if left == 0 {
                    self.next_refused = at + 1;
                    return;
                }
            }
        }
    }

    /// Wakes who keeps watch, where something is to happen before the end of that sleep.
    fn wake_watch(&mut self) {
        let next = self.real.port().next_event();
        if let Some(Watch { seat, until }) = self.watch
            && next.is_some_and(|at| at < until)
        {
            wake(&mut self.places[seat], &mut self.wakes);
        }
    }

    /// Notes whether `seat` was refused.
    fn set_refused(&mut self, seat: usize, refused: bool) {
        let place = &mut self.places[seat];
        let before = (place.is_busy(), place.refused);
        place.refused = refused;
        self.busy = self.busy + usize::from(place.is_busy()) - usize::from(before.0);
        self.refused = self.refused + usize::from(refused) - usize::from(before.1);
    }

    /// Whether others wait for the drive.
    fn others(&self, seat: usize) -> bool {
        self.busy > usize::from(self.places[seat].is_busy())
    }

    /// Ends the watch of `seat`, if it has it, and wakes who is to take it over;
    /// also where nobody has it: `seat` may have been asked to, and need not
    /// wait any more.
    fn hand_over(&mut self, seat: usize) {
        if self.watch.is_some_and(|w| w.seat != seat) {
            return;
        }
        self.watch = None;
        if self.others(seat) {
            let mut places = self.places.iter_mut().enumerate();
            let next = places.find(|(i, p)| *i != seat && p.asleep && p.is_busy());
            if let Some((_, place)) = next {
                wake(place, &mut self.wakes);
            }
        }
    }
}

/// A place at the drive, for one user. Left when dropped; what it still has
/// inside is then dropped when it completes.
pub struct Seat<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> {
    drive: &'a SharedDrive<P>,
    seat: usize,
    bell: Arc<OwnedFd>,
    /// Memory for whom to wake.
    wakes: RefCell<Vec<Arc<OwnedFd>>>,
    /// It has much in the drive.
    is_heavy: Cell<bool>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Seat<'_, P> {
    /// Which seat this is, below [`SEATS`].
    pub fn number(&self) -> usize {
        self.seat
    }

    /// Says whether it has much in the drive from now on, so that its turns come
    /// after those of others.
    pub fn set_heavy(&self, is_heavy: bool) {
        self.is_heavy.set(is_heavy);
    }

    /// Rings when somebody found a completion for a seat that sleeps.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// One turn: submits a prefix of `cmds`, lets all happen that is due, and
    /// puts this seat's completions at the end of `done`. What stays in
    /// `cmds` was refused; try again after the next wait. A command's number
    /// is the seat's times 2^32 plus the caller's own, below 2^32.
    ///
    /// # Panics
    /// When more commands would be inside than the seat was taken for, or `done` has no
    /// room for as many.
    pub fn turn(
        &self,
        cmds: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Turn, DriveLost> {
        let me = self.seat;
        let is_heavy = self.is_heavy.get();
        let guard = if is_heavy { self.drive.lock_after_others() } else { self.drive.lock() };
        let mut guard = guard?;
        let inner = &mut *guard;
        let now = inner.real.clock().now();
        assert!(done.room() >= inner.places[me].limit, "all that completes has room");
        // Events before `now` come before commands that arrive now.
        inner.poll(now, me, done);
        let place = &inner.places[me];
        assert!(place.inside + cmds.len() <= place.limit, "a seat keeps to its limit");
        while !cmds.is_empty() {
            let before = cmds.len();
            inner.real.submit(now, cmds);
            let place = &mut inner.places[me];
            let was_busy = place.is_busy();
            place.inside += before - cmds.len();
            inner.busy = inner.busy + usize::from(place.is_busy()) - usize::from(was_busy);
            if inner.poll(now, me, done) == 0 {
                break;
            }
        }
        inner.set_refused(me, !cmds.is_empty());
        let place = &mut inner.places[me];
        place.outbox.drain(..).for_each(|one| done.put(|| one));
        place.asleep = false;
        let inside = place.inside;
        if !place.is_busy() {
            inner.hand_over(me);
        } else if let Some(watch) = inner.watch.as_mut().filter(|w| w.seat == me) {
            watch.until = Time(u64::MAX);
        }
        let stopping = inner.stopping;
        let users = inner.busy + usize::from(!inner.places[me].is_busy());
        self.ring(guard);
        Ok(Turn { inside, users, stopping })
    }

    /// Does one request and waits for it, with nothing else of this seat inside.
    /// Its number is the seat's.
    pub fn ask(&self, req: BlockReq) -> Result<BlockDone, DriveLost> {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        cmds.put(|| BlockReq { id: (self.seat as u64) << 32, ..req });
        loop {
            self.turn(&mut cmds, &mut done)?;
            if let Some(done) = done.pop() {
                return Ok(done);
            }
            if let Wait::Sleep(time) = self.wait()? {
                sleep(&mut [PollFd::from_borrowed_fd(self.bell(), PollFlags::IN)], time);
                clear(self.bell());
            }
        }
    }

    /// Gives the lock back and rings the bells that are due.
    fn ring(&self, mut inner: MutexGuard<'_, Inner<P>>) {
        if inner.wakes.is_empty() {
            return;
        }
        let mut bells = self.wakes.borrow_mut();
        std::mem::swap(&mut inner.wakes, &mut bells);
        drop(inner);
        ring(&bells);
        bells.clear();
    }

    /// Lets somebody who waits for the lock have it first: for who keeps the
    /// drive busy for long, turn after turn.
    pub fn let_others(&self) {
        let waited = self.drive.waited.load(Ordering::Relaxed);
        for _ in 0..YIELDS {
            if self.drive.waiting.load(Ordering::Relaxed) == 0
                || self.drive.waited.load(Ordering::Relaxed) != waited
            {
                return;
            }
            sched_yield();
        }
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
                sleep_for(time).map_or(Wait::Spin, |time| Wait::Sleep(Some(time)))
            }
        };
        let place = &mut inner.places[me];
        (place.asleep, place.rung) = (wait != Wait::Spin, false);
        Ok(wait)
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Drop for Seat<'_, P> {
    fn drop(&mut self) {
        // A lost drive needs no seat back.
        let Ok(mut inner) = self.drive.lock() else { return };
        inner.set_refused(self.seat, false);
        let place = &mut inner.places[self.seat];
        (place.taken, place.asleep) = (false, false);
        (place.outbox, place.bell) = (VecDeque::new(), None);
        inner.seated -= 1;
        inner.hand_over(self.seat);
        self.ring(inner);
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
mod tests;
