//! The memory and the places of all connections.
//!
//! Guarantees: what all connections together have taken is never more than the
//! budget. Each has what it began with for sure. What it needs beyond that it
//! takes here, in the order of asking, and gives back when it is idle, or at
//! once when somebody waits. A part is kept for connections that have little: they
//! stand in no line while there is some of it. Who waits for long has the connection shut down
//! that has held memory longest without going on: its client neither sent nor
//! took [`STEP`] bytes, no request was answered, and it does not wait for the
//! drive, whose slowness is nobody's fault.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use rustix::time::{ClockId, clock_gettime};

use super::protocol::MAX_REQUEST;
use crate::limits::Limits;

/// How long a connection may hold memory without going on while others wait
/// for it.
const STALL: Duration = Duration::from_secs(2);
/// Bytes to or from a client that count as going on.
const STEP: u64 = 64 << 10;

/// "Not silent", and "nothing is held".
const NEVER: u64 = u64::MAX;

/// What others see of a connection.
#[derive(Debug)]
pub struct Member {
    sock: OwnedFd,
    /// When it fell silent, in ms, or [`NEVER`] while it has something to do.
    silent: AtomicU64,
    /// When it last went on, in ms, or [`NEVER`] once it was told to go.
    finished: AtomicU64,
    /// It sleeps until the drive has done something for it.
    awaits_drive: AtomicBool,
    /// Bytes that it has beyond what it began with.
    extra: AtomicU64,
    /// Of these, so many were taken out of line.
    aside: AtomicU64,
    has_spoken: AtomicBool,
}

impl AsFd for Member {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sock.as_fd()
    }
}

/// What has no more than this is little, and the part of all memory that only
/// such connections get.
pub const LITTLE: u64 = 1 << 20;
const KEPT: u64 = 16;

struct State {
    left: u64,
    /// What those who have little took out of line: at most what is kept for them,
    /// so that the first in line has its turn.
    aside: u64,
    /// Who waits for memory, by number.
    line: VecDeque<usize>,
    members: Vec<Option<Arc<Member>>>,
    free: Vec<usize>,
    /// Most members at this moment, and how many there are.
    most: usize,
    count: usize,
}

/// Memory that is always there beyond what connections begin with: the longest
/// request finds room.
const LEAST: u64 = MAX_REQUEST as u64 + (1 << 20);

/// What all connections share.
pub struct Budget {
    limits: Limits,
    /// Most members.
    clients: usize,
    /// What is left for those only who have little.
    kept: u64,
    start: u64,
    state: Mutex<State>,
    came: Condvar,
    /// Of those who make much memory one does at a time.
    making: Mutex<()>,
    /// How long the line is.
    waiting: AtomicUsize,
    evicted: AtomicU64,
    warned: [AtomicBool; 5],
    /// The drive, or a part of it, has said that it takes no writes.
    pub read_only: AtomicBool,
    /// The disk below the drive has no room: no part of it takes writes.
    pub disk_full: AtomicBool,
}

impl Budget {
    /// A budget as `limits` say, for connections that begin with `own` bytes
    /// each; these are at most half of all.
    pub fn new(limits: Limits, own: u64) -> Budget {
        let most = (limits.memory / 2).checked_div(own).map_or(usize::MAX, |most| most as usize);
        let clients = limits.clients.min(most).max(1);
        let own = (clients + GUESTS) as u64 * own;
        let kept = limits.memory / KEPT;
        Budget {
            limits,
            clients,
            kept,
            start: coarse_ms(),
            state: Mutex::new(State {
                left: limits.memory.saturating_sub(own).max(LEAST + kept),
                aside: 0,
                line: VecDeque::new(),
                members: Vec::new(),
                free: Vec::new(),
                most: clients,
                count: 0,
            }),
            came: Condvar::new(),
            making: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            warned: [const { AtomicBool::new(false) }; 5],
            read_only: AtomicBool::new(false),
            disk_full: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under this lock can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one's turn to make more than [`LITTLE`]: to fill it with zeros takes
    /// a processor for milliseconds, and who needs none of it is to find one.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since it was made, by a clock that costs next to nothing and
    /// is some of them late.
    fn now(&self) -> u64 {
        coarse_ms() - self.start
    }

    /// How long a connection may take to negotiate.
    pub fn greeting(&self) -> Duration {
        self.limits.greeting
    }

    /// Connections that were shut down for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.state().count == 0
    }

    /// Whether somebody waits for memory.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Tells the operator, once.
    pub fn warn(&self, what: usize, words: &str) {
        if !self.warned[what].swap(true, Ordering::Relaxed) {
            (self.limits.warn)(words);
        }
    }

    /// Gives a client a place; gives it back when there is none.
    pub fn join(&self, sock: OwnedFd) -> Result<Membership<'_>, OwnedFd> {
        let now = self.now();
        let mut state = self.state();
        if state.count >= state.most {
            return Err(sock);
        }
        state.count += 1;
        let member = Arc::new(Member {
            sock,
            silent: AtomicU64::new(now),
            finished: AtomicU64::new(now),
            awaits_drive: AtomicBool::new(false),
            extra: AtomicU64::new(0),
            aside: AtomicU64::new(0),
            has_spoken: AtomicBool::new(false),
        });
        let place = state.free.pop().unwrap_or_else(|| {
            state.members.push(None);
            state.members.len() - 1
        });
        state.members[place] = Some(member.clone());
        Ok(Membership { budget: self, place, member, in_line: false, moved: Cell::new(0) })
    }

    /// Shuts the connection down that was silent longest, if that was for long
    /// enough. Its place is free when its thread has noticed: until then the
    /// newcomer has one more than there are.
    pub fn make_room(&self) -> bool {
        let now = self.now();
        let mut state = self.state();
        let silent = |m: &&Arc<Member>| {
            let since = m.silent.load(Ordering::Relaxed);
            let enough = self.limits.silence(m.has_spoken.load(Ordering::Relaxed));
            since != NEVER && now.saturating_sub(since) >= enough.as_millis() as u64
        };
        let all = state.members.iter().flatten().filter(silent);
        let Some(oldest) = all.min_by_key(|m| m.silent.load(Ordering::Relaxed)).cloned() else {
            return false;
        };
        // It is not asked twice.
        oldest.silent.store(NEVER, Ordering::Relaxed);
        state.most = state.most.max(state.count + 1).min(self.clients + GUESTS);
        drop(state);
        self.shut(&oldest);
        true
    }

    fn shut(&self, member: &Member) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
        // It may be closed by the client already.
        let _ = shutdown(&member.sock, Shutdown::Both);
    }

    /// Shuts all connections down.
    pub fn shut_all(&self, how: Shutdown) {
        for member in self.state().members.iter().flatten() {
            // It may be closed by the client already.
            let _ = shutdown(&member.sock, how);
        }
        self.came.notify_all();
    }
}

fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Newcomers that may be there before those have left whose places they take.
const GUESTS: usize = 8;

/// A connection's part in the budget; given back when dropped.
pub struct Membership<'a> {
    budget: &'a Budget,
    place: usize,
    member: Arc<Member>,
    in_line: bool,
    /// Bytes that went to or came from the client since it last went on.
    moved: Cell<u64>,
}

impl<'a> Membership<'a> {
    /// The budget.
    pub fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// The connection, with its socket.
    pub fn member(&self) -> Arc<Member> {
        self.member.clone()
    }

    /// Notes that the client has said something that makes sense.
    pub fn spoke(&self) {
        self.member.has_spoken.store(true, Ordering::Relaxed);
    }

    /// Notes that the client has nothing to say from now on, or is not silent
    /// any more.
    pub fn silent(&self, is_silent: bool) {
        let since = if is_silent { self.budget.now() } else { NEVER };
        self.member.silent.store(since, Ordering::Relaxed);
    }

    /// Notes that it went on: a request has ended, or one began that needs
    /// memory.
    pub fn finished(&self) {
        self.moved.set(0);
        self.member.finished.store(self.budget.now(), Ordering::Relaxed);
    }

    /// Notes that so many bytes went to the client or came from it.
    #[inline]
    pub fn moved(&self, bytes: u64) {
        self.moved.set(self.moved.get() + bytes);
        if self.moved.get() >= STEP {
            self.finished();
        }
    }

    /// Notes that it waits for the drive from now on, or does not any more. The
    /// client's own time begins when it does not.
    pub fn awaits_drive(&self, does: bool) {
        if !does && self.extra() > 0 {
            self.finished();
        }
        self.member.awaits_drive.store(does, Ordering::Relaxed);
    }

    /// Bytes that it has beyond what it began with.
    #[inline]
    pub fn extra(&self) -> u64 {
        self.member.extra.load(Ordering::Relaxed)
    }

    fn is_its_turn(&self, state: &State) -> bool {
        state.line.front().is_none_or(|&first| first == self.place)
    }

    /// Whether it may have so much more now.
    fn may_take(&self, state: &State, bytes: u64) -> bool {
        let (has_little, kept) = (self.extra() + bytes <= LITTLE, self.budget.kept);
        match (has_little, self.is_its_turn(state)) {
            (true, true) => state.left >= bytes,
            (true, false) => state.left >= bytes && state.aside + bytes <= kept,
            (false, true) => state.left >= bytes + kept - state.aside,
            (false, false) => false,
        }
    }

    /// Takes memory, unless it is others' turn or there is not enough.
    pub fn take(&mut self, bytes: u64) -> bool {
        let mut state = self.budget.state();
        if !self.may_take(&state, bytes) {
            return false;
        }
        state.left -= bytes;
        if !self.is_its_turn(&state) {
            state.aside += bytes;
            self.member.aside.fetch_add(bytes, Ordering::Relaxed);
        }
        if self.extra() == 0 {
            self.finished();
        }
        self.member.extra.fetch_add(bytes, Ordering::Relaxed);
        self.leave_line(&mut state);
        true
    }

    /// Gives memory back.
    pub fn give(&mut self, bytes: u64) {
        if bytes > 0 {
            self.give_to(&mut self.budget.state(), bytes);
        }
    }

    /// What was taken out of line is given back first.
    fn give_to(&self, state: &mut State, bytes: u64) {
        let aside = self.member.aside.load(Ordering::Relaxed).min(bytes);
        state.left += bytes;
        state.aside -= aside;
        self.member.aside.fetch_sub(aside, Ordering::Relaxed);
        self.member.extra.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.came.notify_all();
    }

    fn leave_line(&mut self, state: &mut State) {
        if std::mem::take(&mut self.in_line) {
            state.line.retain(|&place| place != self.place);
            self.budget.waiting.store(state.line.len(), Ordering::Relaxed);
            // It may be the next one's turn.
            self.budget.came.notify_all();
        }
    }

    /// It does not wait any more.
    pub fn leave(&mut self) {
        let budget = self.budget;
        self.leave_line(&mut budget.state());
    }

    /// Waits a moment for so much memory. Who has waited long enough, and is
    /// the first to, has somebody shut down who does not go on.
    pub fn wait(&mut self, bytes: u64) {
        let mut state = self.budget.state();
        if !std::mem::replace(&mut self.in_line, true) {
            state.line.push_back(self.place);
            self.budget.waiting.store(state.line.len(), Ordering::Relaxed);
            self.finished();
        }
        if !self.may_take(&state, bytes) {
            let moment = Duration::from_millis(100);
            state = self
                .budget
                .came
                .wait_timeout(state, moment)
                .map_or_else(|e| e.into_inner().0, |waited| waited.0);
        }
        if state.line.front() == Some(&self.place) && !self.may_take(&state, bytes) {
            self.relieve(&state);
        }
    }

    /// Shuts down who has held memory for long without going on.
    fn relieve(&self, state: &State) {
        let now = self.budget.now();
        let stalls = |m: &&Arc<Member>| {
            m.extra.load(Ordering::Relaxed) > 0
                && !m.awaits_drive.load(Ordering::Relaxed)
                && now.saturating_sub(m.finished.load(Ordering::Relaxed)) > STALL.as_millis() as u64
        };
        let all = state.members.iter().flatten().filter(stalls);
        if let Some(worst) = all.min_by_key(|m| m.finished.load(Ordering::Relaxed)) {
            // It is not asked twice.
            worst.finished.store(NEVER, Ordering::Relaxed);
            self.budget.warn(
                1,
                "clients hold all the memory that they may: those that do not go on are closed \
                 (--client-memory)",
            );
            self.budget.shut(worst);
        }
    }
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        self.give_to(&mut state, self.extra());
        self.leave_line(&mut state);
        state.members[self.place] = None;
        state.free.push(self.place);
        state.count -= 1;
        state.most = self.budget.clients.max(state.count);
        self.budget.came.notify_all();
    }
}

#[cfg(test)]
mod tests;
