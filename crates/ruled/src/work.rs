//! Requests under way: each block of one is decided by the rules, and done.

use device::OpenChannel;
use flash::Ppa;
use port::{Status, Time};
use rules::decision::Depth;
use rules::request::LONGEST;
use rules::{Decision, Entry, Op, Request as Asked, Verdict, View};

use crate::control::{Answered, Waiting, is_miss};
use crate::reads::Run;
use crate::remotes::Far;
use crate::rows::{Source, Stream};
use crate::waits::Wait;
use crate::{FORGOTTEN, ROWS, Ruled};

/// A request whose blocks are being decided.
#[derive(Debug)]
pub(crate) struct Work {
    pub slot: u32,
    pub asked: Asked,
    pub is_durable: bool,
    /// Its first block, and the one behind its last; the next one is asked for.
    pub first: u64,
    pub end: u64,
    /// What becomes of the next one, if that is decided.
    pub block: Option<Block>,
    /// The control plane is asked about the next one.
    pub waiting: Option<Waiting>,
    /// What it said before.
    pub answered: Option<Answered>,
    /// Neighbours that are to be read at once.
    pub run: Option<Run>,
    /// Neighbours that are to go to a remote drive at once.
    pub far: Option<Far>,
    /// Something was done here, and not only at a remote drive.
    pub is_here: bool,
}

/// A block that was decided and is not done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub todo: Todo,
    /// For how long it waits first, ns.
    delay: u64,
    /// The limit for which it waits first.
    pub depth: Option<Depth>,
    /// Its weight among those that wait for a unit.
    pub share: Option<u32>,
    /// It waited for its unit.
    pub is_its_turn: bool,
}

/// What is to be done with a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Todo {
    Write {
        unit: usize,
        owner: u64,
    },
    /// A read of where an entry leads then.
    Read {
        owner: u64,
    },
    /// A read that waited, whose entry was given up: the rules are asked again.
    Again,
    /// It goes to this remote drive.
    Remote(usize),
    Zeros,
    Nothing,
    Fail(Status),
}

/// What came of a block.
pub(crate) enum Outcome {
    Done,
    Failed(Status),
    Waits(Wait),
}

impl<D: OpenChannel> Ruled<D> {
    /// Goes on with a request, as far as its blocks need not wait.
    pub(crate) fn carry_out(&mut self, now: Time, mut work: Work) {
        if let Some(wait) = self.do_blocks(now, &mut work) {
            self.hold(work, wait);
        }
    }

    /// Does its blocks; for what the next one waits, if one does.
    #[inline]
    fn do_blocks(&mut self, now: Time, work: &mut Work) -> Option<Wait> {
        while work.asked.lba < work.end {
            match self.block(now, work) {
                Outcome::Waits(wait) => {
                    self.read_run(work.slot, &mut work.run);
                    self.send_far(work);
                    return Some(wait);
                }
                Outcome::Failed(status) => {
                    let request = &mut self.requests[work.slot];
                    request.status = request.status.and(status);
                }
                Outcome::Done => {}
            }
            work.block = None;
            work.asked.lba += 1;
        }
        self.read_run(work.slot, &mut work.run);
        self.send_far(work);
        self.idle.since = now;
        let request = &mut self.requests[work.slot];
        if work.is_durable && work.is_here && request.status.is_ok() {
            request.given_up = self.blocks.given_up;
            self.syncing.push(work.slot);
            self.sync(now);
        } else {
            self.part_done(now, work.slot, Status::SUCCESS);
        }
        None
    }

    /// How the drive is, as rules see it.
    pub(crate) fn view(&self, now: Time) -> View {
        let idle = now.since(self.idle.since).min(LONGEST);
        View { now: now.0, idle, temperature: 0, free: self.space.free_percent }
    }

    /// The number of the application that has a block; of the last one where none has.
    #[inline]
    pub(crate) fn application_of(&mut self, lba: u64) -> u16 {
        let all = &self.rules.rules().set().applications;
        let has = |at: usize| all.get(at).is_some_and(|a| a.lba.has(lba));
        if !has(self.application) || (0..self.application).any(has) {
            self.application = (0..all.len()).find(|&at| has(at)).unwrap_or(all.len() - 1);
        }
        all[self.application].number
    }

    /// Does the next block, once it is decided.
    fn block(&mut self, now: Time, work: &mut Work) -> Outcome {
        let held = work.block.take();
        let mut block = match held.filter(|block| !matches!(block.todo, Todo::Again)) {
            Some(block) => block,
            None => match self.decision(now, work) {
                // It has waited, and has its place among those of a limit or not.
                Ok(block) if held.is_some() => {
                    let has_place = self.requests[work.slot].limit.is_some();
                    Block { delay: 0, depth: block.depth.filter(|_| !has_place), ..block }
                }
                Ok(block) => block,
                Err(wait) => return Outcome::Waits(wait),
            },
        };
        let outcome = match self.is_held_back(now, work.slot, &mut block) {
            Some(wait) => Outcome::Waits(wait),
            None => self.do_block(work, &block),
        };
        if matches!(outcome, Outcome::Waits(_)) {
            work.block = Some(block);
        }
        outcome
    }

    /// What becomes of the next block, or for what that waits.
    #[inline]
    fn decision(&mut self, now: Time, work: &mut Work) -> Result<Block, Wait> {
        if self.forgotten.len() >= FORGOTTEN {
            return Err(Wait::Tombs);
        }
        if work.waiting.is_none() {
            self.look();
            work.asked.application = self.application_of(work.asked.lba);
            let given_up = self.blocks.given_up;
            let decision = self.decide(now, &work.asked);
            work.is_here |= self.blocks.given_up != given_up;
            if !is_miss(&decision) {
                return Ok(self.planned(work, &decision));
            }
            if let Some(decision) = self.missed(now, work, decision) {
                return Ok(self.planned(work, &decision));
            }
        }
        let Some(waiting) = work.waiting.take_if(|waiting| waiting.at <= now) else {
            return Err(Wait::Until(work.waiting.map_or(now, |waiting| waiting.at)));
        };
        let (decision, answered) = self.answer(now, &waiting);
        work.answered = answered;
        work.is_here = true;
        Ok(self.planned(work, &decision))
    }

    /// What is to be done by a decision.
    #[inline]
    fn planned(&mut self, work: &Work, decision: &Decision) -> Block {
        let op = work.asked.op;
        let todo = match decision.verdict {
            Verdict::Place { unit, entry, .. } => self.placed(&work.asked, unit, entry),
            Verdict::Pass if op == Op::Write => self.placed(&work.asked, None, None),
            Verdict::Serve(_) => match self.rules.state().served() {
                Some(entry) => Todo::Read { owner: self.owner(entry) },
                None => Todo::Zeros,
            },
            Verdict::Pass if op == Op::Read => Todo::Read { owner: work.asked.lba },
            Verdict::Drop if op == Op::Read => Todo::Zeros,
            Verdict::Pass if matches!(op, Op::Trim | Op::Zero) => {
                self.forget_own(work.asked.lba);
                self.bury();
                Todo::Nothing
            }
            Verdict::Drop | Verdict::Pass => Todo::Nothing,
            Verdict::Remote(remote) => {
                if let Some(fill) = &decision.fill {
                    self.asked_to_fill(work, fill);
                }
                Todo::Remote(remote.into())
            }
            Verdict::Refuse | Verdict::Ask | Verdict::Redirect(_) => {
                Todo::Fail(Status::ACCESS_DENIED)
            }
        };
        let Decision { delay, depth, share, .. } = *decision;
        Block { todo, delay, depth, share, is_its_turn: false }
    }

    fn placed(&mut self, asked: &Asked, unit: Option<u16>, entry: Option<Entry>) -> Todo {
        let unit = unit.map_or_else(|| self.next_unit(asked.application), usize::from);
        let owner = entry.map_or(asked.lba, |entry| self.owner(entry));
        self.remotes.keep_no_more(|fill| fill.owner == owner);
        Todo::Write { unit, owner }
    }

    /// For what a block waits before it is done.
    #[inline]
    fn is_held_back(&mut self, now: Time, slot: u32, block: &mut Block) -> Option<Wait> {
        if let Some(at) = self.waits.until(now, std::mem::take(&mut block.delay)) {
            return Some(Wait::Until(at));
        }
        if let Some(depth) = block.depth {
            let request = &mut self.requests[slot];
            if request.limit.is_none() {
                if !self.waits.enter(depth.limit, depth.most) {
                    return Some(Wait::Limit);
                }
                request.limit = Some(depth.limit);
            }
            block.depth = None;
        }
        None
    }

    fn do_block(&mut self, work: &mut Work, block: &Block) -> Outcome {
        if let Todo::Remote(remote) = block.todo
            && work.asked.op != Op::Flush
        {
            return self.go_far(work, remote, block.is_its_turn);
        }
        // Pieces of the request's buffer are taken in its order.
        self.send_far(work);
        work.is_here = true;
        match block.todo {
            Todo::Nothing | Todo::Remote(_) if work.asked.op == Op::Flush => {
                self.flush_remotes(work.slot, &block.todo);
                Outcome::Done
            }
            Todo::Write { unit, owner } => self.write(work, unit, owner, block.is_its_turn),
            Todo::Read { owner } => {
                let at = self.leads(owner);
                let weighed = block.share.is_some().then_some(block);
                self.read(work.slot, &mut work.run, at, weighed)
            }
            Todo::Zeros => self.read(work.slot, &mut work.run, None, None),
            Todo::Nothing | Todo::Remote(_) | Todo::Again => Outcome::Done,
            Todo::Fail(status) => {
                if work.asked.op == Op::Read {
                    self.read(work.slot, &mut work.run, None, None);
                }
                Outcome::Failed(status)
            }
        }
    }

    /// Asks the rules, and begins what they want beside a verdict.
    #[inline]
    pub(crate) fn decide(&mut self, now: Time, asked: &Asked) -> Decision {
        let view = self.view(now);
        let decision = self.rules.decide_as_it_is(asked, &view);
        if !self.rules.state().released().is_empty() {
            self.release();
        }
        if let Some(collect) = decision.collect {
            self.asked_to_collect(collect.unit, asked.application);
        }
        if let Some(migrate) = decision.migrate {
            self.asked_to_migrate(&migrate);
        }
        decision
    }

    /// Gives up what the last decision did.
    #[cold]
    fn release(&mut self) {
        for n in 0..self.rules.state().released().len() {
            let (entry, address) = self.rules.state().released()[n];
            let owner = self.owner(entry);
            self.remotes.keep_no_more(|fill| fill.owner == owner);
            if let Some(address) = address {
                self.waits.ask_again(owner);
                self.forget(owner, Ppa(address.place()));
            }
        }
        self.bury();
    }

    /// Writes a block.
    fn write(&mut self, work: &Work, unit: usize, owner: u64, is_its_turn: bool) -> Outcome {
        if !is_its_turn && !self.waits.queues[unit].is_free(false) {
            return Outcome::Waits(Wait::Unit { unit, is_read: false });
        }
        let kept = self.shape.kept as usize;
        let at =
            (work.asked.lba - work.first) as usize * kept - self.requests[work.slot].taken(kept);
        // Nobody else asks for it meanwhile.
        let buffer = std::mem::take(&mut self.requests[work.slot].buffer);
        let source = Source::Data(&buffer.rest().bytes()[at..at + kept]);
        let has_room = self.has_room(unit);
        let placed = has_room.then(|| self.put(unit, Stream::User, owner, &source)).flatten();
        self.requests[work.slot].buffer = buffer;
        let Some(ppa) = placed else {
            return match self.makes_room(unit) {
                true => Outcome::Waits(Wait::Unit { unit, is_read: false }),
                false => Outcome::Failed(self.full()),
            };
        };
        self.counters.user += 1;
        self.blocks.set_copy(owner, false);
        self.lead(unit, owner, ppa);
        self.collect_ahead(unit);
        Outcome::Done
    }

    /// Whether there will be room in a unit: what is under way makes some, or collection that
    /// begins now.
    pub(crate) fn makes_room(&mut self, unit: usize) -> bool {
        let is_sent = |&id| self.space.rows[id].is_sent;
        let of = &self.space.units[unit];
        let are_sent = of.rows.iter().any(is_sent);
        // Where only rows are missing nothing is collected for it.
        let only_rows = are_sent && of.rows.len() + 1 >= ROWS;
        !self.broken && (only_rows || (self.collect(unit) && !self.is_stuck(unit)) || are_sent)
    }

    /// Why a block has no room.
    pub(crate) fn full(&self) -> Status {
        if self.broken { Status::READ_ONLY } else { Status::CAPACITY_EXCEEDED }
    }

    /// The next unit of an application, in turn.
    pub(crate) fn next_unit(&mut self, application: u16) -> usize {
        let all = &self.rules.rules().set().applications;
        let at = all.iter().position(|a| a.number == application).unwrap_or(0);
        let units = all.get(at).and_then(|a| a.units);
        let (lo, count) = units.map_or((0, self.space.units.len()), |units| {
            (units.lo as usize, units.count() as usize)
        });
        // Each has a turn of its own: else those that share units fall into step.
        let turn = self.space.turns[at] + 1;
        // The first that has room, if any has.
        let turns = (turn..turn + count).map(|turn| turn % count);
        let mut free = turns.filter(|turn| self.has_room(lo + turn));
        let turn = free.next().unwrap_or(turn % count);
        self.space.turns[at] = turn;
        lo + turn
    }
}
