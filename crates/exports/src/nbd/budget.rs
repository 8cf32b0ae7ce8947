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
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// With so much beyond the least, and nothing kept for who has little.
    fn budget(more: u64) -> Budget {
        let limits = Limits { clients: 3, greeting: Duration::ZERO, ..Limits::default() };
        let budget = Budget::new(Limits { memory: LEAST + more, ..limits }, 0);
        budget.state().left = LEAST + more;
        Budget { kept: 0, ..budget }
    }

    fn sock() -> (OwnedFd, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (a.into(), b)
    }

    fn join(budget: &Budget) -> Membership<'_> {
        budget.join(sock().0).map_err(drop).unwrap()
    }

    #[test]
    fn no_more_is_taken_than_there_is_and_all_comes_back() {
        let budget = budget(400);
        let (mut a, mut b) = (join(&budget), join(&budget));
        assert!(a.take(400) && b.take(LEAST) && !a.take(1));
        a.give(150);
        assert!(b.take(150) && !b.take(1));
        drop(a);
        assert!(b.take(250) && !b.take(1));
        b.give(LEAST + 400);
        assert!(b.take(LEAST + 400));
    }

    #[test]
    fn memory_is_given_in_the_order_of_asking() {
        let budget = budget(0);
        let [mut a, mut b, mut c] = [(); 3].map(|()| join(&budget));
        assert!(a.take(LEAST));
        b.wait(LITTLE + 500);
        assert!(budget.is_pressed());
        a.give(LITTLE + 300);
        assert!(!c.take(LITTLE + 100), "another waits");
        assert!(!b.take(LITTLE + 500));
        a.give(LITTLE + 400);
        assert!(b.take(LITTLE + 500) && !c.take(LITTLE + 201) && c.take(200));
        assert!(!budget.is_pressed());
    }

    #[test]
    fn who_gives_up_leaves_the_line() {
        let budget = budget(0);
        let [mut a, mut b, mut c] = [(); 3].map(|()| join(&budget));
        assert!(a.take(LEAST));
        b.wait(LITTLE + 500);
        a.give(LEAST);
        assert!(!c.take(LITTLE + 1), "another is first");
        b.leave();
        assert!(c.take(LITTLE + 1) && !budget.is_pressed());
    }

    /// Who has little waits neither for those who have much nor behind them.
    #[test]
    fn a_part_is_kept_for_who_has_little() {
        let limits = Limits { clients: 3, memory: 64 << 20, ..Limits::default() };
        let budget = Budget::new(limits, 0);
        let [mut a, mut b, mut c] = [(); 3].map(|()| join(&budget));
        let kept = limits.memory / KEPT;
        assert!(a.take(limits.memory - kept) && !a.take(1));
        b.wait(8 << 20);
        assert!(c.take(LITTLE / 2) && c.take(LITTLE / 2), "nobody else is asked");
        assert!(!c.take(1), "that is not little any more");
        a.give((8 << 20) - 1);
        assert!(!b.take(8 << 20), "what is kept stays so");
        // What was taken of it is not kept twice.
        a.give(1);
        assert!(b.take(8 << 20));
        assert_eq!(budget.state().left, kept - LITTLE);
    }

    /// Who has little passes the line with what is kept for such, and no more: what
    /// others give back is for who waits.
    #[test]
    fn who_has_little_does_not_keep_the_first_in_line_waiting() {
        let limits = Limits { clients: 30, memory: 64 << 20, ..Limits::default() };
        let budget = Budget::new(limits, 0);
        let all: Vec<_> = (0..28).map(|_| join(&budget)).collect();
        let (mut first, mut rest) = (join(&budget), all);
        let mut large = join(&budget);
        let kept = limits.memory / KEPT;
        assert!(large.take(limits.memory - kept - 8 * LITTLE));
        let (before, after) = rest.split_at_mut(8);
        assert!(before.iter_mut().all(|one| one.take(LITTLE)), "nobody waits");
        first.wait(2 << 20);
        let passed = after.iter_mut().filter_map(|one| one.take(LITTLE).then_some(())).count();
        assert_eq!(passed as u64 * LITTLE, kept);
        // Each gives back and would have as much again.
        let mut again = 0;
        for one in before.iter_mut() {
            one.give(LITTLE);
            again += usize::from(one.take(LITTLE));
        }
        assert!(again == 0 && first.take(2 << 20), "{again} of 8 passed");
    }

    #[test]
    fn who_does_not_go_on_is_shut_down_for_who_waits() {
        use std::io::Read;
        let budget = budget(0);
        let (mine, mut other) = sock();
        let mut a = budget.join(mine).map_err(drop).unwrap();
        let mut b = join(&budget);
        assert!(a.take(LEAST));
        b.wait(500);
        assert_eq!(budget.evicted(), 0, "not at once");
        std::thread::sleep(STALL + Duration::from_millis(10));
        b.wait(500);
        assert_eq!(budget.evicted(), 1);
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        drop(a);
        assert!(b.take(500));
    }

    /// As if it had not gone on since the budget was made.
    fn long_ago(member: &Membership<'_>) {
        member.member.finished.store(0, Ordering::Relaxed);
    }

    #[test]
    fn who_goes_on_or_waits_for_the_drive_stays() {
        let mut budget = budget(0);
        // As if it had been made long ago.
        budget.start = budget.start.saturating_sub(60_000);
        let (mut a, mut b) = (join(&budget), join(&budget));
        assert!(a.take(LEAST));
        let mut evicted_after = |a: &Membership<'_>, what: &dyn Fn(&Membership<'_>)| {
            long_ago(a);
            what(a);
            b.wait(500);
            budget.evicted()
        };
        assert_eq!(evicted_after(&a, &|a| a.finished()), 0, "a request ended");
        let slowly = |a: &Membership<'_>| (0..STEP / 4096).for_each(|_| a.moved(4096));
        assert_eq!(evicted_after(&a, &slowly), 0, "bytes move");
        a.awaits_drive(true);
        assert_eq!(evicted_after(&a, &|_| {}), 0, "the drive is slow");
        assert_eq!(evicted_after(&a, &|a| a.awaits_drive(false)), 0, "its time begins");
        assert_eq!(evicted_after(&a, &|a| a.moved(1)), 1, "a drop is no stream");
    }

    #[test]
    fn silent_ones_give_way_once_each() {
        let budget = budget(0);
        let all = [(); 3].map(|()| join(&budget));
        all[0].silent(false);
        all[2].spoke();
        assert!(budget.join(sock().0).is_err());
        assert!(budget.make_room() && !budget.make_room());
        let guest = join(&budget);
        assert!(budget.join(sock().0).is_err());
        drop((all, guest));
        assert!(budget.is_empty());
    }
}
