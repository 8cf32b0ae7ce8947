//! The port that makes a volatile cache below it one that outlives a cut.
//!
//! A write, trim or write zeroes is appended to the journal and committed
//! before the port below gets it; it completes when that one has taken it, so
//! reads go straight through and see what they should. A flush is answered at
//! once, and FUA is a plain write; where the store has a host below it, both
//! wait for a sync of the store.
//!
//! **Order.** A port does not say in which order two overlapping requests that
//! are inside together take effect. So there are none: what overlaps a write
//! under way waits here until that one has ended, and so do the changes that
//! come behind it; reads and flushes pass. Thus the journal's order is that of
//! the drive.
//!
//! **Space.** When the journal is half full, what is in it is flushed below as
//! soon as it has completed there; then its space is free. When it is full,
//! writes wait for that.
//!
//! **Errors.** A request that fails below may have changed some of its blocks.
//! Were only its entry dropped, an older one could be written over such a block
//! at the next start. So it is answered when all up to its entry has been
//! flushed below and is out of the journal. Where that flush fails, too, the
//! entry stays, for the next start to try again; until then, or until a flush
//! succeeds, its blocks are not read and nothing is written. What was not
//! permitted is noted in its entry, so that a start may leave it out.
//!
//! A flush below that fails is told by every flush until one below succeeds;
//! all that was acknowledged stays in the journal meanwhile, and goes to the
//! drive at the next start. When the journal fills up over it writes fail with
//! that status. The store syncs behind such a flush: if it is on the disk that
//! failed, the journal is to know. After an error of the store writes and flushes
//! fail, as nothing new can be protected. How a drive is served that refuses, at the
//! start, what its journal has, `start` says.

mod reclaim;

use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Slots, Status, Time};

use self::reclaim::{Failed, Reclaim};
use crate::busy::Busy;
use crate::mutation::{self, Mutation};
use crate::{Fill, Journal, JournalError, NonVolatile};

/// The number of a flush of our own.
const OWN: u64 = u64::MAX;

/// On a clock, a store that syncs is asked again after a quarter of the time that it took so
/// far, in ns, within these.
const RETRY: (u64, u64) = (20_000, 1_000_000);

/// What is kept of a request below.
#[derive(Clone, Copy, Default)]
struct Note {
    id: u64,
    offset: u64,
    len: u64,
    /// Its entry; of a write, trim or write zeroes.
    at: u64,
    fua: bool,
    changes: bool,
    /// Which of the two counts of requests under way it is in.
    half: bool,
}

/// What a protected cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries that were appended.
    pub entries: u64,
    /// Flushes of the port below, to make space.
    pub flushes: u64,
    /// Flushes that were asked for.
    pub asked: u64,
    /// Writes that waited for space.
    pub full: u64,
    /// Writes that waited for one that they overlap.
    pub met: u64,
}

/// A drive that is not written to: what its journal has could not be written.
pub(crate) struct Frozen {
    /// What the drive said.
    pub status: Status,
    /// First bytes and lengths of what only the journal has; nothing where the
    /// drive has it, but did not flush it.
    pub ranges: Vec<(u64, u64)>,
}

impl Frozen {
    /// One more that was refused so.
    pub fn hold(&mut self, status: Status, range: (u64, u64)) {
        self.status = self.status.and(status);
        self.ranges.push(range);
    }
}

/// A protected cache over `P`, with its journal in `N`.
pub struct Protected<P, N> {
    below: P,
    shape: Shape,
    journal: Journal<N>,
    slots: Slots<Note>,
    busy: Busy,
    /// On its way below.
    down: Ring<BlockReq>,
    came: Ring<BlockDone>,
    /// Completed.
    ready: Ring<BlockDone>,
    /// Completed once the store has synced what was written up to a number.
    synced: Ring<(u64, BlockDone)>,
    /// Changes that wait, in their order: the first for space, or for one that
    /// it overlaps.
    held: Ring<BlockReq>,
    /// At most as many as entries have room in the journal.
    failed: Vec<Failed>,
    reclaim: Reclaim,
    /// Requests that change something and are under way: before and after the
    /// making of space began, in turns.
    under_way: [u32; 2],
    half: bool,
    /// What the last flush of our own said.
    fault: Status,
    /// As one failed, the store syncs what was written up to this.
    doubt: Option<u64>,
    /// What the store said.
    broken: Option<JournalError>,
    frozen: Option<Frozen>,
    counters: Counters,
    now: Time,
    on_a_clock: bool,
    /// On a clock: when a sync under way began, and when the store is asked again.
    sync_came: Time,
    sync_ask: Time,
}

impl<P, N> Protected<P, N>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
    N: NonVolatile,
{
    pub(crate) fn assemble(
        below: P,
        shape: Shape,
        journal: Journal<N>,
        now: Time,
        frozen: Option<Frozen>,
    ) -> Protected<P, N> {
        let depth = shape.depth.max(1);
        Protected {
            below,
            shape,
            journal,
            slots: Slots::new(depth),
            busy: Busy::new(),
            down: Ring::new(depth + 1),
            came: Ring::new(depth + 1),
            ready: Ring::new(depth),
            synced: Ring::new(depth),
            held: Ring::new(depth),
            failed: Vec::new(),
            reclaim: Reclaim::Idle,
            under_way: [0; 2],
            half: false,
            fault: Status::SUCCESS,
            doubt: None,
            broken: None,
            frozen,
            counters: Counters::default(),
            now,
            on_a_clock: false,
            sync_came: now,
            sync_ask: now,
        }
    }

    /// Whether its time is a clock's. If not, time stands still while the store syncs, so that
    /// nothing depends on how long that takes. On a clock only what waits for it is late.
    pub fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.on_a_clock = on_a_clock;
    }

    /// The port below.
    pub fn below(&self) -> &P {
        &self.below
    }

    /// The port below, to set it up: what goes past the cache is not protected.
    pub fn below_mut(&mut self) -> &mut P {
        &mut self.below
    }

    /// Its outside, that of the port below.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How full the journal is.
    pub fn fill(&self) -> Fill {
        self.journal.fill()
    }

    /// What it did.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The first error of the store. Nothing is written after it.
    pub fn error(&self) -> Option<&JournalError> {
        self.broken.as_ref()
    }

    /// What the drive said that could not take what its journal has: then it
    /// is only read.
    pub fn frozen(&self) -> Option<Status> {
        self.frozen.as_ref().map(|frozen| frozen.status)
    }

    /// Whether a read of these bytes fails since they are only in the journal.
    pub fn withholds(&self, offset: u64, len: u64) -> bool {
        let meets = |&(at, n): &(u64, u64)| at < offset + len && offset < at + n;
        let unsure = |f: &Failed| f.answer.is_none() && meets(&(f.offset, f.len));
        self.frozen.as_ref().is_some_and(|frozen| frozen.ranges.iter().any(meets))
            || self.failed.iter().any(unsure)
    }

    /// Whether nothing is inside and no space is being made.
    pub fn is_idle(&self) -> bool {
        self.inside() == 0 && self.reclaim == Reclaim::Idle && !self.journal.is_syncing()
    }

    /// Power goes: what outlives it.
    pub fn cut(self) -> (P, N) {
        (self.below, self.journal.into_store())
    }

    /// Takes it off the port below, with nothing inside. When all that was
    /// taken there is durable, the journal is [cleared](Journal::clear). There
    /// is none where it must be kept, as the drive did not take what it has.
    pub fn into_below(self) -> (P, Option<Journal<N>>) {
        let kept = self.frozen.is_some() || !self.failed.is_empty();
        (self.below, Some(self.journal).filter(|_| !kept))
    }

    fn inside(&self) -> usize {
        let waiting = self.held.len() + self.failed_waiting();
        self.slots.live() + self.ready.len() + self.synced.len() + waiting
    }

    /// Requests that failed and are not answered.
    #[inline]
    fn failed_waiting(&self) -> usize {
        self.failed.iter().filter(|failed| failed.answer.is_some()).count()
    }

    /// Whether what was answered as failed is in the journal still: until a flush has
    /// succeeded, and the store has synced that its space is free.
    #[inline]
    fn is_stuck(&self) -> bool {
        self.failed.iter().any(|failed| failed.answer.is_none())
    }

    /// Ends a request that did not go below.
    fn answer(&mut self, req: BlockReq, status: Status) {
        let (at, BlockReq { id, op, buffer, .. }) = (self.now, req);
        self.ready.put(|| BlockDone { id, op, status, at, buffer });
    }

    /// Why nothing is written any more.
    fn refusal(&self) -> Option<Status> {
        match (&self.frozen, &self.broken) {
            (Some(frozen), _) => Some(frozen.status),
            (None, Some(_)) => Some(Status::WRITE_FAULT),
            (None, None) => None,
        }
    }

    /// Takes a request in.
    #[inline]
    fn take(&mut self, req: BlockReq) {
        let status = self.shape.check(&req);
        if !status.is_ok() {
            return self.answer(req, status);
        }
        match req.op {
            BlockOp::Read => self.read(req),
            BlockOp::Flush => self.flush(req),
            _ => self.change(req),
        }
    }

    #[inline]
    fn read(&mut self, req: BlockReq) {
        if self.withholds(req.offset, req.len) {
            return self.answer(req, Status::UNRECOVERED_READ);
        }
        self.send(req, Note::default());
    }

    /// Puts a request on its way below, for which there is a slot.
    #[inline]
    fn send(&mut self, mut req: BlockReq, note: Note) {
        let slot = self.slots.take(Note { id: req.id, ..note });
        req.id = u64::from(slot);
        self.down.put(|| req);
    }

    /// What completed before is in the journal.
    fn flush(&mut self, req: BlockReq) {
        self.counters.asked += 1;
        let status = self.refusal().unwrap_or(self.fault);
        if !status.is_ok() {
            self.answer(req, status);
            if self.reclaim == Reclaim::Idle && self.refusal().is_none() {
                self.begin_reclaim();
            }
            return;
        }
        let (at, BlockReq { id, op, buffer, .. }) = (self.now, req);
        let done = BlockDone { id, op, status, at, buffer };
        self.after_sync(done);
    }

    /// Completes something when what was written before now is synced.
    #[inline]
    fn after_sync(&mut self, done: BlockDone) {
        let need = self.journal.written();
        match self.sync_to(need) {
            Ok(true) if self.synced.is_empty() => self.ready.put(|| done),
            Ok(_) => self.synced.put(|| (need, done)),
            Err(e) => {
                self.ready.put(|| BlockDone { status: Status::WRITE_FAULT, ..done });
                self.fail(e);
            }
        }
    }

    /// Whether what was written up to `need` is durable; sees to it that it will be.
    #[inline]
    fn sync_to(&mut self, need: u64) -> Result<bool, JournalError> {
        let was_syncing = self.journal.is_syncing();
        if self.on_a_clock && was_syncing && self.now < self.sync_ask {
            return Ok(false);
        }
        let synced = self.journal.sync_to(need)?;
        if !synced {
            self.sync_came = if was_syncing { self.sync_came } else { self.now };
            let took = self.now.since(self.sync_came);
            self.sync_ask = self.now + (took / 4).clamp(RETRY.0, RETRY.1);
        }
        Ok(synced)
    }

    /// A write, trim or write zeroes.
    #[inline]
    fn change(&mut self, req: BlockReq) {
        let fault = Some(self.fault).filter(|fault| self.is_stuck() && !fault.is_ok());
        if let Some(status) = self.refusal().or(fault) {
            return self.answer(req, status);
        }
        if !self.held.is_empty() || self.is_stuck() {
            self.held.put(|| req);
        } else if !self.journal.has_room(req.buffer.len()) {
            self.counters.full += 1;
            self.held.put(|| req);
        } else if self.busy.meets(req.offset, req.len) {
            self.counters.met += 1;
            self.held.put(|| req);
        } else {
            self.enter(req);
        }
    }

    /// Writes a request into the journal, and sends it.
    #[inline]
    fn enter(&mut self, mut req: BlockReq) {
        let range = (req.offset, req.len);
        let at = match self.journal.append(req.op, range, req.buffer.bytes()) {
            Ok(at) => at,
            Err(e) => {
                self.answer(req, Status::WRITE_FAULT);
                return self.fail(e);
            }
        };
        self.counters.entries += 1;
        self.busy.enter(range.0, range.1);
        self.under_way[usize::from(self.half)] += 1;
        let fua = std::mem::take(&mut req.fua);
        let (offset, len) = range;
        let half = self.half;
        self.send(req, Note { id: 0, offset, len, at, fua, changes: true, half });
        let Fill { bytes, used } = self.journal.fill();
        if used > bytes / 2 && self.reclaim == Reclaim::Idle && self.fault.is_ok() {
            self.begin_reclaim();
        }
    }

    /// Commits what was appended, and sends it. Nothing is below that is not
    /// in the journal. Says whether the port below took all.
    #[inline]
    fn send_down(&mut self) -> bool {
        if self.journal.is_open() && !mutation::is(Mutation::AnswerUncommitted) {
            if self.broken.is_none()
                && let Err(e) = self.journal.commit()
            {
                self.fail(e);
            }
            if self.broken.is_some() {
                self.take_back();
            }
        }
        if !self.down.is_empty() {
            self.below.submit(self.now, &mut self.down);
        }
        self.down.is_empty()
    }

    /// What was not committed does not go below.
    #[cold]
    fn take_back(&mut self) {
        for _ in 0..self.down.len() {
            let Some(req) = self.down.pop() else { break };
            let changes = req.id != OWN && self.slots[req.id as u32].changes;
            // What waits below a full port was committed before.
            if changes && self.slots[req.id as u32].at >= self.journal.committed() {
                let (at, BlockReq { id, op, buffer, .. }) = (self.now, req);
                self.ended(BlockDone { id, op, status: Status::WRITE_FAULT, at, buffer });
            } else {
                self.down.put(|| req);
            }
        }
    }

    /// The store failed.
    #[cold]
    fn fail(&mut self, error: JournalError) {
        self.broken.get_or_insert(error);
        self.journal.forget_sync();
        self.doubt = None;
        self.reclaim = match self.reclaim {
            // Its completion is still to come.
            Reclaim::Flush(to) => Reclaim::Flush(to),
            _ => Reclaim::Idle,
        };
        while let Some((_, done)) = self.synced.pop() {
            self.ready.put(|| BlockDone { status: Status::WRITE_FAULT, ..done });
        }
        self.answer_failed();
        self.refuse_held(Status::WRITE_FAULT);
    }

    /// Something completed below.
    #[inline]
    fn ended(&mut self, mut done: BlockDone) {
        if done.id == OWN {
            return self.flushed(done.status);
        }
        let slot = done.id as u32;
        let Note { id, offset, len, at, fua, changes, half } = self.slots[slot];
        self.slots.give(slot);
        done.id = id;
        if changes {
            self.under_way[usize::from(half)] -= 1;
            // What was not committed did not go below.
            if !done.status.is_ok() && at < self.journal.committed() {
                if done.status == Status::ACCESS_DENIED
                    && self.broken.is_none()
                    && let Err(e) = self.journal.refuse(at)
                {
                    self.fail(e);
                }
                return self.failed_below(Failed { at, offset, len, answer: Some(done) });
            }
            self.busy.leave(offset, len);
            if fua && done.status.is_ok() {
                if self.broken.is_some() {
                    done.status = Status::WRITE_FAULT;
                } else {
                    return self.after_sync(done);
                }
            }
        }
        self.ready.put(|| done);
    }

    /// Goes on with the first change that waits. Says whether anything happened.
    fn resume(&mut self) -> bool {
        let Some(req) = self.held.front() else { return false };
        if self.is_stuck() {
            return false;
        }
        if !self.journal.has_room(req.buffer.len()) {
            if self.reclaim == Reclaim::Idle {
                self.begin_reclaim();
                return true;
            }
            return false;
        }
        if self.busy.meets(req.offset, req.len) {
            return false;
        }
        let Some(req) = self.held.pop() else { return false };
        self.enter(req);
        true
    }

    /// Completes what waited for a sync. Says whether anything did.
    fn look_at_sync(&mut self) -> bool {
        let mut any = false;
        while let Some(&(need, _)) = self.synced.front() {
            match self.sync_to(need) {
                Ok(true) => {
                    let now = self.now;
                    if let Some((_, done)) = self.synced.pop() {
                        self.ready.put(|| BlockDone { at: done.at.max(now), ..done });
                    }
                }
                Ok(false) => return any,
                Err(e) => self.fail(e),
            }
            any = true;
        }
        any
    }

    /// All that needs nothing from below to go on. Says whether anything did.
    #[inline]
    fn step(&mut self) -> bool {
        let mut any = false;
        if self.reclaim != Reclaim::Idle {
            any |= self.reclaim();
        }
        if !self.synced.is_empty() {
            any |= self.look_at_sync();
        }
        if self.doubt.is_some() {
            any |= self.look_at_doubt();
        }
        if !self.held.is_empty() {
            any |= self.resume();
        }
        any
    }
}

impl<P, N> Port for Protected<P, N>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
    N: NonVolatile,
{
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.now = self.now.max(now);
        if !self.down.is_empty() && !self.send_down() {
            return;
        }
        while self.inside() < self.shape.depth {
            let Some(req) = cmds.pop() else { break };
            self.take(req);
        }
        while self.step() {}
        self.send_down();
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|done| done.at);
        let sync_ask = if self.on_a_clock { self.sync_ask } else { self.now };
        let sync = self.journal.is_syncing().then_some(sync_ask);
        [ready, sync, self.below.next_event()].into_iter().flatten().min()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.now = self.now.max(to);
        let to = self.now;
        loop {
            if self.below.next_event().is_some_and(|at| at <= to) {
                self.below.advance(to, &mut self.came);
            }
            let mut moved = !self.came.is_empty();
            while let Some(one) = self.came.pop() {
                self.ended(one);
            }
            while self.step() {
                moved = true;
            }
            let waiting = self.down.len();
            self.send_down();
            moved |= self.down.len() < waiting;
            if !moved {
                break;
            }
        }
        self.ready.pour(done);
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.below.hint(req);
    }
}
