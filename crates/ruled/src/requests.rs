//! Requests: each block of one is decided by the rules, and done; how requests end.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::Ppa;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Pieces, Status, Time};
use rules::request::LONGEST;
use rules::{Address, Decision, Entry, Op, Request as Asked, Verdict, View};

use crate::control::{Answered, Known, Waiting};
use crate::rows::{Source, Stream};
use crate::{Cookie, DEPTH, ROWS, Ruled};

/// A request under way.
#[derive(Debug)]
pub(crate) struct Request {
    id: u64,
    op: BlockOp,
    status: Status,
    buffer: Pieces,
    /// Commands under way for it, and one while its blocks are decided.
    parts: u32,
    /// It ends only when all is durable that came up to this row.
    until: Option<u64>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            id: 0,
            op: BlockOp::Flush,
            status: Status::SUCCESS,
            buffer: Pieces::default(),
            parts: 0,
            until: None,
        }
    }
}

/// The request whose blocks are being decided.
#[derive(Debug)]
pub(crate) struct Work {
    slot: u32,
    asked: Asked,
    is_durable: bool,
    /// Its first block, the next one, and the one behind its last.
    first: u64,
    end: u64,
    /// What becomes of the next one, if that is decided.
    decision: Option<Decision>,
    /// The control plane is asked about the next one.
    waiting: Option<Waiting>,
    /// What it said before.
    answered: Option<Answered>,
    /// Neighbours that are to be read at once.
    run: Option<(Ppa, u32)>,
}

/// What came of a block.
enum Outcome {
    Done,
    Failed(Status),
    /// There is no room for now.
    Waits,
}

impl<D: OpenChannel> Ruled<D> {
    /// Whether a request can be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.work.is_none() && self.requests.live() + self.ready.len() < DEPTH
    }

    /// Takes a request.
    pub(crate) fn take(&mut self, now: Time, req: BlockReq) {
        let mut status = self.shape.check(&req);
        if status.is_ok() && !(req.offset | req.len).is_multiple_of(BLOCK_BYTES) {
            status = Status::INVALID_FIELD;
        }
        let changes = !matches!(req.op, BlockOp::Read | BlockOp::Flush);
        if status.is_ok() && changes && self.broken {
            status = Status::READ_ONLY;
        }
        let BlockReq { id, op, fua, offset, len, placement, queue, buffer, .. } = req;
        if !status.is_ok() {
            return self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
        }
        let buffer = Pieces::new(buffer);
        let until = None;
        let slot = self.requests.take(Request { id, op, status, buffer, parts: 1, until });
        let (first, blocks) = (offset / BLOCK_BYTES, len / BLOCK_BYTES);
        // A flush is decided once.
        let end = first + if op == BlockOp::Flush { 1 } else { blocks };
        let asked = Asked {
            op: op.into(),
            application: 0,
            channel: queue.into(),
            lba: first,
            size: if op == BlockOp::Flush { 0 } else { BLOCK_BYTES },
            placement,
        };
        let is_durable = op == BlockOp::Flush || (fua && changes);
        let (decision, waiting, answered, run) = (None, None, None, None);
        let work = Work { slot, asked, is_durable, first, end, decision, waiting, answered, run };
        self.carry_out(now, work);
    }

    /// Goes on with the request whose blocks are being decided, as far as there is room.
    pub(crate) fn go_on(&mut self, now: Time) {
        if let Some(work) = self.work.take() {
            self.carry_out(now, work);
        }
    }

    fn carry_out(&mut self, now: Time, mut work: Work) {
        while work.asked.lba < work.end {
            match self.block(now, &mut work) {
                Outcome::Waits => {
                    self.read_run(&mut work);
                    return self.work = Some(work);
                }
                Outcome::Failed(status) => {
                    let request = &mut self.requests[work.slot];
                    request.status = request.status.and(status);
                }
                Outcome::Done => {}
            }
            work.decision = None;
            work.asked.lba += 1;
        }
        self.read_run(&mut work);
        self.idle.since = now;
        let request = &mut self.requests[work.slot];
        if work.is_durable && request.status.is_ok() {
            request.until = Some(self.space.row);
            self.syncing.push(work.slot);
            self.sync(now);
        } else {
            self.part_done(now, work.slot, Status::SUCCESS);
        }
    }

    /// How the drive is, as rules see it.
    pub(crate) fn view(&self, now: Time) -> View {
        let idle = now.since(self.idle.since).min(LONGEST);
        View {
            now: now.0,
            idle,
            temperature: 0,
            free: (self.space.free * 100 / self.space.chunks) as u8,
        }
    }

    /// The number of the application that has a block; of the last one where none has.
    fn application_of(&mut self, lba: u64) -> u16 {
        let all = &self.rules.rules().set().applications;
        if !all[self.application].lba.has(lba)
            && let Some(at) = all.iter().position(|a| a.lba.has(lba))
        {
            self.application = at;
        }
        all[self.application].number
    }

    /// What becomes of the next block; `None` where that is not known yet.
    fn decision(&mut self, now: Time, work: &mut Work) -> Option<Decision> {
        if work.decision.is_some() {
            return work.decision;
        }
        if work.waiting.is_none() {
            work.asked.application = self.application_of(work.asked.lba);
            match self.decide_or_ask(now, &work.asked, work.answered) {
                Known::Now(decision) => return Some(self.decided(work, decision)),
                Known::Later(waiting) => work.waiting = Some(waiting),
            }
        }
        let waiting = work.waiting.take_if(|waiting| waiting.at <= now)?;
        let (decision, answered) = self.answer(now, &waiting);
        work.answered = answered;
        Some(self.decided(work, decision))
    }

    fn decided(&mut self, work: &mut Work, decision: Decision) -> Decision {
        work.decision = Some(decision);
        if decision.verdict == Verdict::Pass && matches!(work.asked.op, Op::Trim | Op::Zero) {
            self.forget_own(work.asked.lba);
        }
        decision
    }

    /// Does the next block, once it is decided.
    fn block(&mut self, now: Time, work: &mut Work) -> Outcome {
        let op = work.asked.op;
        let Some(decision) = self.decision(now, work) else { return Outcome::Waits };
        while let Some(&(owner, chunk)) = self.forgotten.last() {
            if !self.bury(owner, chunk) {
                return Outcome::Waits;
            }
        }
        match decision.verdict {
            Verdict::Place { unit, entry, .. } => self.write(work, unit, entry),
            Verdict::Pass if op == Op::Write => self.write(work, None, None),
            Verdict::Serve(address) => self.read(work, address.map(|at| Ppa(at.place()))),
            Verdict::Pass if op == Op::Read => {
                let at = self.blocks.own[work.asked.lba as usize].checked_sub(1);
                self.read(work, at.map(Ppa))
            }
            Verdict::Drop if op == Op::Read => self.read(work, None),
            Verdict::Drop | Verdict::Pass => Outcome::Done,
            Verdict::Refuse | Verdict::Ask | Verdict::Redirect(_) | Verdict::Remote(_) => {
                if op == Op::Read {
                    self.read(work, None);
                }
                Outcome::Failed(Status::ABORTED)
            }
        }
    }

    /// Asks the rules, and begins what they want beside a verdict.
    pub(crate) fn decide(&mut self, now: Time, asked: &Asked) -> Decision {
        let view = self.view(now);
        let decision = self.rules.decide(asked, &view);
        for n in 0..self.rules.state().released().len() {
            let (entry, address) = self.rules.state().released()[n];
            let owner = self.owner(entry);
            self.forget(owner, Ppa(address.place()));
        }
        if let Some(collect) = decision.collect {
            self.asked_to_collect(collect.unit, asked.application);
        }
        decision
    }

    /// Writes a block.
    fn write(&mut self, work: &Work, unit: Option<u16>, entry: Option<Entry>) -> Outcome {
        let unit = unit.map_or_else(|| self.next_unit(work.asked.application), usize::from);
        let owner = entry.map_or(work.asked.lba, |entry| self.owner(entry));
        let kept = self.shape.kept as usize;
        let at = (work.asked.lba - work.first) as usize * kept;
        // Nobody else asks for it meanwhile.
        let buffer = std::mem::take(&mut self.requests[work.slot].buffer);
        let source = Source::Data(&buffer.rest().bytes()[at..at + kept]);
        let placed = self.put(unit, Stream::User, owner + 1, &source);
        self.requests[work.slot].buffer = buffer;
        let Some(ppa) = placed else { return self.no_room(unit) };
        self.counters.user += 1;
        self.lead(unit, owner, ppa);
        Outcome::Done
    }

    /// There is no room in a unit: collection makes some, or nothing does.
    fn no_room(&mut self, unit: usize) -> Outcome {
        let rows = self.space.units[unit].rows.len();
        // Where only rows are missing they will be programmed, and nothing is collected.
        let waits = rows + 1 >= ROWS || self.collect(unit) || rows > 0;
        match !self.broken && waits {
            true => Outcome::Waits,
            false => Outcome::Failed(Status::CAPACITY_EXCEEDED),
        }
    }

    /// When the control plane answers next.
    pub(crate) fn answer_at(&self) -> Option<Time> {
        self.work.as_ref()?.waiting.map(|waiting| waiting.at)
    }

    /// The next unit of an application, in turn.
    fn next_unit(&mut self, application: u16) -> usize {
        let all = &self.rules.rules().set().applications;
        let units = all.iter().find(|a| a.number == application).and_then(|a| a.units);
        let (lo, count) = units.map_or((0, self.space.units.len()), |units| {
            (units.lo as usize, units.count() as usize)
        });
        self.space.turn = (self.space.turn + 1) % count;
        lo + self.space.turn
    }

    /// An entry leads to a block from now on, which is in the newest row of its unit.
    pub(crate) fn lead(&mut self, unit: usize, owner: u64, ppa: Ppa) {
        let old = self.leads(owner);
        let until = self.space.row;
        if let Some(old) = old {
            self.invalidate(old, until);
        }
        if self.blocks.buried > 0
            && let Some(tomb) =
                std::mem::take(&mut self.blocks.tombs[owner as usize]).checked_sub(1)
        {
            self.blocks.buried -= 1;
            self.invalidate(Ppa(tomb), until);
        }
        match self.entry(owner) {
            None => self.blocks.own[owner as usize] = ppa.0 + 1,
            Some(entry) => {
                let address = Address::new(unit as u16, ppa.0);
                self.rules.store(entry, address).expect("the checker has seen to the units");
            }
        }
    }

    /// Where an entry leads.
    pub(crate) fn leads(&self, owner: u64) -> Option<Ppa> {
        match self.entry(owner) {
            None => self.blocks.own[owner as usize].checked_sub(1).map(Ppa),
            Some(entry) => self.rules.state().address(entry).map(|at| Ppa(at.place())),
        }
    }

    /// An entry leads to this block no more.
    fn forget(&mut self, owner: u64, ppa: Ppa) {
        let chunk = self.geometry.chunk_index(ppa);
        // Its chunk is not erased before that is written down.
        self.invalidate(ppa, u64::MAX);
        self.forgotten.push((owner, chunk));
    }

    /// The same of the target's own map.
    fn forget_own(&mut self, lba: u64) {
        if let Some(ppa) = std::mem::take(&mut self.blocks.own[lba as usize]).checked_sub(1) {
            self.forget(lba, Ppa(ppa));
        }
    }

    /// Writes down that an entry leads nowhere. False where there is no room for now.
    fn bury(&mut self, owner: u64, chunk: usize) -> bool {
        let unit = self.unit_of(self.geometry.chunk_start(chunk));
        // What is moved has a chunk more: with it the one that waits for this is erased.
        let streams = [Stream::User, Stream::Collection];
        let put = streams
            .into_iter()
            .find_map(|s| self.put(unit, s, (owner + 1) | crate::TOMB, &Source::Tomb));
        let Some(ppa) = put else {
            self.collect(unit);
            return false;
        };
        self.counters.metadata += 1;
        self.blocks.buried += 1;
        self.blocks.tombs[owner as usize] = ppa.0 + 1;
        self.forgotten.pop();
        if self.forgotten.iter().all(|other| other.1 != chunk) {
            self.blocks.until[chunk] = self.space.row;
        }
        true
    }

    /// Reads a block: of nowhere zeros, of a buffer its bytes, of flash with its neighbours.
    fn read(&mut self, work: &mut Work, at: Option<Ppa>) -> Outcome {
        if let (Some(ppa), Some((first, count))) = (at, work.run)
            && ppa.0 == first.0 + u64::from(count)
            && self.geometry.row_start(ppa) == self.geometry.row_start(first)
        {
            work.run = Some((first, count + 1));
            return Outcome::Done;
        }
        self.read_run(work);
        let kept = self.shape.kept as usize;
        let Some(ppa) = at else {
            let mut zeros = self.requests[work.slot].buffer.take(kept);
            zeros.bytes_mut().fill(0);
            self.requests[work.slot].buffer.give(zeros);
            return Outcome::Done;
        };
        let unit = self.unit_of(ppa);
        if self.space.units[unit].rows.is_empty() || self.buffered(unit, ppa).is_none() {
            work.run = Some((ppa, 1));
            return Outcome::Done;
        }
        let mut piece = self.requests[work.slot].buffer.take(kept);
        let bytes = self.buffered(unit, ppa).expect("it was looked at");
        piece.bytes_mut().copy_from_slice(bytes);
        self.requests[work.slot].buffer.give(piece);
        Outcome::Done
    }

    /// Reads the neighbours that were found so far.
    fn read_run(&mut self, work: &mut Work) {
        let Some((ppa, count)) = work.run.take() else { return };
        let chunk = self.geometry.chunk_index(ppa);
        self.blocks.readers[chunk] += 1;
        let request = &mut self.requests[work.slot];
        request.parts += 1;
        let buffer = request.buffer.take(count as usize * self.shape.kept as usize);
        let cookie = Cookie::Read(work.slot, chunk);
        self.command(cookie, VectorOp::Read, Content::Data, (ppa, count), buffer);
    }

    /// A read has ended.
    pub(crate) fn read_done(&mut self, now: Time, slot: u32, chunk: usize, done: VectorDone) {
        self.blocks.readers[chunk] -= 1;
        self.requests[slot].buffer.give(done.buffer);
        let status = if ftl::is_read(done.status) { Status::SUCCESS } else { done.status };
        self.part_done(now, slot, status);
    }

    /// Requests whose rows are programmed ask the drive to make that durable, and end.
    pub(crate) fn sync(&mut self, now: Time) {
        for n in (0..self.syncing.len()).rev() {
            let slot = self.syncing[n];
            let until = self.requests[slot].until.unwrap_or(0);
            if !self.settle(until, false) {
                continue;
            }
            self.syncing.remove(n);
            if self.broken {
                self.part_done(now, slot, Status::WRITE_FAULT);
            } else if self.device.is_cached() {
                self.flush_device(Cookie::Flush(slot));
            } else {
                self.part_done(now, slot, Status::SUCCESS);
            }
        }
    }

    /// Asks the drive to make durable what was done.
    pub(crate) fn flush_device(&mut self, cookie: Cookie) {
        self.command(cookie, VectorOp::Flush, Content::Data, (Ppa(0), 0), Buffer::empty());
    }

    /// A part of a request is over; with the last it ends.
    pub(crate) fn part_done(&mut self, now: Time, slot: u32, status: Status) {
        let request = &mut self.requests[slot];
        request.status = request.status.and(status);
        request.parts -= 1;
        if request.parts == 0 {
            let Request { id, op, status, buffer, .. } = std::mem::take(request);
            self.requests.give(slot);
            self.ready.put(|| BlockDone { id, op, status, at: now, buffer: buffer.whole() });
        }
    }
}
