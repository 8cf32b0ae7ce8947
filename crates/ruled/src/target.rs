//! The target as others see it: a port, and one of the block targets.

use device::OpenChannel;
use ftl::{Memory, Over, Start, Target, WriteCounters};
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time, Turn, turn_by_events};
use rules::{Op, Request as Asked};

use crate::fits;
use crate::{Cookie, End, FORGOTTEN, Ruled, RuledConfig, RuledError, TOMB};

/// How long after the last request the rules are asked about idle time, ns: each time twice as
/// long, from the first to the last.
const IDLE: (u64, u64) = (1_000_000, 16_000_000_000);

/// So many requests ahead it is fetched what the next will look at.
const AHEAD: usize = 8;

impl<D: OpenChannel> Ruled<D> {
    /// When the rules are asked next about idle time.
    fn idle_at(&self) -> Option<Time> {
        let is_idle = self.requests.live() == 0 && !self.end.closing;
        (is_idle && self.idle.after <= IDLE.1).then(|| self.idle.since + self.idle.after)
    }

    fn ask_idle(&mut self, now: Time) {
        self.idle.after *= 2;
        self.look();
        for n in 0..self.rules.rules().set().applications.len() {
            let application = self.rules.rules().set().applications[n].number;
            let asked =
                Asked { op: Op::Idle, application, channel: 0, lba: 0, size: 0, placement: 0 };
            if self.forgotten.len() < FORGOTTEN {
                self.decide(now, &asked);
            }
        }
    }

    /// What the drive has done.
    fn handle_all(&mut self, to: Time) {
        while let Some(done) = self.device_done.pop() {
            match Cookie::unpack(done.cookie) {
                Cookie::One(slot, chunk) => self.one_done(to, slot, chunk, done),
                Cookie::Read(slot, chunk, weighed) => {
                    self.read_done(to, slot, (chunk, weighed != 0), done);
                }
                Cookie::Migrate(n) => self.has_read(n, done),
                Cookie::Row(row) => self.programmed(to, row, done),
                Cookie::Move(unit) => self.moved(unit, done),
                Cookie::Reset(unit) => self.erased(unit, &done),
                Cookie::Flush(slot) => self.part_done(to, slot, done.status),
                Cookie::Close => self.end.is_down = done.status.is_ok() && !self.broken,
            }
        }
    }

    /// Whether nothing happens here before something of the drive has ended.
    fn waits_for_the_drive(&self) -> bool {
        self.ready.is_empty()
            && self.remotes.sides.is_empty()
            && self.requests.live() > 0
            && self.waits.next().is_none()
            && !self.end.closing
    }

    /// What has waited goes on.
    fn pump(&mut self, now: Time) {
        loop {
            let before = (self.forgotten.len(), self.counters.collections, self.space.seq);
            if !self.forgotten.is_empty() {
                self.bury();
            }
            if self.space.collected > 0 {
                (0..self.space.units.len()).for_each(|unit| self.step(unit));
            }
            self.migrate_all();
            self.let_go(now);
            let after = (self.forgotten.len(), self.counters.collections, self.space.seq);
            // What is to be written down may have room by what went on since.
            if self.forgotten.is_empty() || before == after {
                break;
            }
        }
        if !self.syncing.is_empty() {
            self.sync(now);
        }
        let End { closing, is_sent, .. } = self.end;
        if closing && !is_sent && self.forgotten.is_empty() && self.settle(u64::MAX, None) {
            self.end.is_sent = true;
            match self.device.is_cached() {
                true => self.flush_device(Cookie::Close),
                false => self.end.is_down = !self.broken,
            }
        }
        // What remote drives fail to do costs nothing that lies here.
        let End { is_down, closed, has_failed, .. } = self.end;
        self.end.closed = closed || is_down && !has_failed && self.end_remotes();
    }
}

impl<D: OpenChannel> Port for Ruled<D> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        (0..AHEAD).for_each(|n| self.fetch(reqs, n));
        while self.can_take()
            && let Some(req) = reqs.pop()
        {
            self.fetch(reqs, AHEAD - 1);
            self.idle.after = IDLE.0;
            self.take(now, req);
        }
        if !self.forgotten.is_empty() {
            self.pump(now);
        }
        self.device.submit(now, &mut self.out);
        self.remotes.submit(now);
    }

    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|done| done.at);
        ready.or_else(|| {
            let own = self.idle_at().into_iter().chain(self.waits.next());
            let own = own.chain(self.remotes.next_event());
            self.device.next_event().into_iter().chain(own).min()
        })
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.device.next_event().is_some_and(|at| at <= to) {
            self.device.advance(to, &mut self.device_done);
        }
        self.handle_all(to);
        self.advance_remotes(to);
        if self.ready.is_empty() && self.idle_at().is_some_and(|at| at <= to) {
            self.ask_idle(to);
        }
        self.wake(to);
        self.pump(to);
        self.device.submit(to, &mut self.out);
        self.remotes.submit(to);
        self.ready.pour(done);
    }

    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        reqs: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Turn {
        if !reqs.is_empty() {
            self.submit(now, reqs);
        }
        while reqs.is_empty() && self.waits_for_the_drive() {
            match self.device.turn(now, until, &mut self.out, &mut self.device_done) {
                Turn::Completed(at) => {
                    self.handle_all(at);
                    self.pump(at);
                    self.device.submit(at, &mut self.out);
                    self.ready.pour(done);
                    if !done.is_empty() {
                        return Turn::Completed(at);
                    }
                }
                nothing_more => return nothing_more,
            }
        }
        turn_by_events(self, until, reqs, done)
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.rules.hint(req.offset / port::BLOCK_BYTES);
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// Fetches what the decision about a request will look at.
    #[inline]
    fn fetch(&self, reqs: &Ring<BlockReq>, n: usize) {
        if let Some(req) = reqs.get(n) {
            self.rules.hint(req.offset / port::BLOCK_BYTES);
        }
    }
}

impl<D: OpenChannel> Target for Ruled<D> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn counters(&self) -> WriteCounters {
        self.counters
    }

    fn free_chunks(&self) -> u64 {
        u64::from(self.space.free)
    }

    fn valid_blocks(&self, chunk: usize) -> u32 {
        self.blocks.valid[chunk]
    }

    fn memory(&self) -> Memory {
        let map = 8 * (self.blocks.own.len() + self.blocks.tombs.len()) as u64
            + self.rules.state().bytes();
        let valid = 8 * self.blocks.bits.len() as u64 + 16 * self.blocks.valid.len() as u64;
        Memory { map, valid, ..Memory::default() }
    }

    fn is_read_only(&self) -> bool {
        self.broken
    }

    fn state_hash(&self) -> u64 {
        let mix = |hash: u64, word: u64| port::random::mix(hash ^ word);
        let entries = (0..self.blocks.tombs.len() as u64).filter_map(|owner| {
            let tomb = self.blocks.tombs[owner as usize].checked_sub(1).map(|ppa| ppa | TOMB);
            Some((owner, self.leads(owner).map(|ppa| ppa.0).or(tomb)?))
        });
        entries.fold(self.space.seq, |hash, (owner, at)| mix(mix(hash, owner), at))
    }

    fn set_hurried(&mut self, is_hurried: bool, now: Time) {
        self.hurry(is_hurried, now);
        self.pump(now);
        self.device.submit(now, &mut self.out);
        self.remotes.submit(now);
    }

    fn close(&mut self, now: Time) {
        self.end.closing = true;
        self.pump(now);
        self.device.submit(now, &mut self.out);
        self.remotes.submit(now);
    }

    fn is_closed(&self) -> bool {
        self.end.closed
    }
}

impl<D: OpenChannel> Over for Ruled<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.device
    }

    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn into_below(self: Box<Self>) -> D {
        self.device
    }
}

impl<D: OpenChannel> Start for Ruled<D> {
    type Config = RuledConfig;
    type Error = RuledError;

    fn new(device: D, config: &RuledConfig) -> Result<Self, RuledError> {
        let target = Ruled::empty(device, config)?;
        fits::fits(&config.rules, target.shape.bytes, target.most_of_unit())?;
        Ok(target)
    }

    fn recover(device: D, config: &RuledConfig, now: Time) -> Result<(Self, Time), RuledError> {
        Ruled::found(device, config, now)
    }
}
