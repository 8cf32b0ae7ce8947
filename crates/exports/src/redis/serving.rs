//! The loop of the server: who has its turn, and for how long.
//!
//! Each step takes what the sockets and the drive tell, then gives turns. First
//! those have theirs who come fresh, then for a while those who have had a
//! slice and want more, then commands that go on. A turn and a slice are
//! counted work, so that a step takes a few milliseconds, whatever one client
//! asks for.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use btree::{Records, Sleeper};
use device::realtime::sleep_for;
use port::Time;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use waiting::speculate::Token;

use super::client::Client;
use super::command::{self, Command, Found};
use super::database::{Database, Progress, Refusal};
use super::resp::{self, Parser};
use super::server::{Options, Report, ServeError, Sync};
use crate::drive::clear;
use crate::grow;
use crate::listen::{Listener, StopHandle};

/// Bytes of replies that may wait for a client before its next command.
const UNREAD: usize = 1 << 20;
/// Work of one connection before it is another's turn, in bytes, and what a
/// command takes beside its bytes and its work in the store.
const SLICE: usize = 256 << 10;
/// The same of one that comes fresh: a thousand of them are over in a moment.
const FIRST: usize = 16 << 10;
const COMMAND: usize = 1 << 10;
/// A command of more bytes than this is asked memory for before it begins: for what
/// it takes beside its reply and what it is told.
const LONG: usize = 64 << 10;
/// How long those who come fresh, and those who go on, have before others are
/// looked at.
const FRESH: Duration = Duration::from_millis(4);
const LATER: Duration = Duration::from_millis(2);
/// Bytes of what clients had that are freed before others have their turn, and
/// when that and what clients have is more than they may.
const FREED: u64 = 4 << 20;
const FREED_PRESSED: u64 = 16 << 20;
/// How long clients may hold up a stop.
const GRACE: Duration = Duration::from_secs(5);
/// The longest that a flush waits for those whom the last one answered, in ns.
const GATHER: u64 = 1_000_000;
/// After so many turns it is looked whether a flush has ended, where half of all wait for the next.
const LOOK: usize = 4;
/// A flush of less than this, in ns, may hold up who comes meanwhile.
const SHORT: u64 = 2_000_000;
/// How often [`Sync::EverySecond`] flushes, in ns.
const SECOND: u64 = 1_000_000_000;

pub(super) const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const BELL: u64 = u64::MAX - 2;

/// A server at work.
pub(super) struct Serving<'a> {
    /// `None` when it is stopping.
    pub(super) listener: Option<Listener>,
    /// When the listener is looked at again, after there was no descriptor.
    pub(super) deaf_until: Option<Instant>,
    pub(super) database: Database,
    sleeper: &'a Sleeper,
    pub(super) options: Options,
    pub(super) wakes: OwnedFd,
    events: Vec<epoll::Event>,
    pub(super) clients: Vec<Option<Client>>,
    pub(super) free: Vec<u32>,
    /// Who has something to do: news, or more than it had time for.
    fresh: VecDeque<u32>,
    later: VecDeque<u32>,
    /// Who has replies that wait for the next flush, and whose first wait for that under way.
    /// Nobody is in both; and room for the next of these lists.
    pub(super) holding: Vec<u32>,
    pub(super) flushing: Vec<u32>,
    waited: Vec<u32>,
    /// When the last flush began, and how long the one before it took, in ns.
    flush_at: Time,
    flush_took: u64,
    /// When a flush ended last and its replies were sent, when the last came since then that
    /// waits for the next, and how long each took, in ns: the server, the system and the client.
    answered_at: Time,
    held_at: Time,
    each_took: u64,
    /// How many the next flush waits for, and until when. Where a flush takes longer than the
    /// commands of all, it waits for all who waited: else two halves of them would take turns,
    /// each with flushes of its own. Where it is shorter they do: the commands of one half come
    /// and are executed while the flush of the other is under way. So it begins when half of them
    /// wait, though others have something to say: those would else be in it, and all in one.
    gather: usize,
    gather_until: Time,
    half: usize,
    pub(super) report: Report,
    pub(super) start: Instant,
    /// When this step began.
    pub(super) now: Instant,
    /// Memory of all clients, in bytes, and of those of them that end.
    pub(super) memory: u64,
    pub(super) ending: u64,
    /// Who has been silent for a while, and when that was counted.
    pub(super) silent: usize,
    pub(super) silent_at: Instant,
    /// What was warned of.
    pub(super) has_warned: [bool; 4],
}

impl<'a> Serving<'a> {
    /// Begins to listen.
    pub(super) fn new(
        listener: Listener,
        database: Database,
        sleeper: &'a Sleeper,
        options: Options,
        stop: &StopHandle,
    ) -> Result<Serving<'a>, ServeError> {
        let wakes = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd: BorrowedFd<'_>, who| {
            epoll::add(&wakes, fd, epoll::EventData::new_u64(who), epoll::EventFlags::IN)
        };
        watch(listener.fd(), LISTENER)?;
        watch(stop.bell(), STOP)?;
        watch(sleeper.bell().fd().as_fd(), BELL)?;
        let (clients, now) = (options.limits.clients, Instant::now());
        Ok(Serving {
            listener: Some(listener),
            deaf_until: None,
            database,
            sleeper,
            options,
            wakes,
            events: Vec::with_capacity(1024),
            clients: (0..clients).map(|_| None).collect(),
            free: (0..clients as u32).rev().collect(),
            fresh: VecDeque::new(),
            later: VecDeque::new(),
            holding: Vec::new(),
            flushing: Vec::new(),
            waited: Vec::new(),
            flush_at: Time::ZERO,
            flush_took: u64::MAX,
            answered_at: Time::ZERO,
            held_at: Time::ZERO,
            each_took: 0,
            gather: 0,
            gather_until: Time::ZERO,
            half: usize::MAX,
            report: Report::default(),
            start: now,
            now,
            memory: 0,
            ending: 0,
            silent: 0,
            silent_at: now,
            has_warned: [false; 4],
        })
    }

    /// Serves until `stop`.
    pub(super) fn run(
        mut self,
        stop: &StopHandle,
    ) -> Result<(Report, Records<'static>), ServeError> {
        let mut until = None;
        loop {
            if stop.is_stopped() && self.listener.is_some() {
                // It stays as it is.
                let _ = epoll::delete(&self.wakes, stop.bell());
                self.stop_taking();
                until = Some(Instant::now() + GRACE);
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if self.listener.is_none() && (is_late || self.free.len() == self.clients.len()) {
                break;
            }
            self.sleep(until)?;
            self.step();
        }
        self.last_flush()?;
        self.report.unflushed = self.database.failure.get().copied();
        Ok((self.report, self.database.into_records()))
    }

    /// Takes no more clients, and of those that are there what they have sent.
    fn stop_taking(&mut self) {
        self.listener = None;
        for i in 0..self.clients.len() {
            if let Some(client) = &mut self.clients[i] {
                // It may have gone.
                let _ = shutdown(&client.sock, Shutdown::Read);
                (client.readable, client.is_ending) = (true, true);
                self.give_turn(i as u32, true);
            }
        }
    }

    /// Makes all durable, and waits until the drive has nothing to do.
    fn last_flush(&mut self) -> Result<(), ServeError> {
        self.fresh.clear();
        self.later.clear();
        self.clients.clear();
        // Nobody is left to wait for it.
        self.database.trash.free(u64::MAX);
        while self.database.tokens().is_flushing() || self.database.tokens().wants_flush() {
            if self.database.tokens().wants_flush() {
                self.flush();
            }
            self.sleep(None)?;
            clear(self.sleeper.bell().fd().as_fd());
            self.poll();
            while self.database.next_ready().is_some() {}
            self.end_flush();
        }
        Ok(())
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, until: Option<Instant>) -> Result<(), ServeError> {
        self.events.clear();
        self.sleeper.bell().arm();
        let left = self.time_left(until);
        let woken = self.wait(left);
        self.sleeper.bell().disarm();
        match woken {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits for what sockets and bells tell, at most so long. What epoll itself is told to wait
    /// is whole milliseconds, a hundred times what a drive may take. Mostly something has come
    /// while there was work, and then that is one call.
    fn wait(&mut self, left: Option<Duration>) -> Result<usize, Errno> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let told = left.map(|_| &at_once);
        let found = epoll::wait(&self.wakes, spare_capacity(&mut self.events), told)?;
        let Some(left) = left.filter(|left| found == 0 && !left.is_zero()) else {
            return Ok(found);
        };
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.wakes, PollFlags::IN)], Some(&left))?;
        epoll::wait(&self.wakes, spare_capacity(&mut self.events), told)
    }

    /// How long to sleep until there is something to do anyway.
    fn time_left(&self, until: Option<Instant>) -> Option<Duration> {
        let is_busy = !(self.fresh.is_empty() && self.later.is_empty());
        if is_busy || self.database.trash.bytes() > 0 || self.database.is_ready() {
            return Some(Duration::ZERO);
        }
        let now = self.sleeper.clock().now();
        let from_now = |at: Time| Duration::from_nanos(at.since(now));
        let wakes = [until, self.deaf_until].into_iter().flatten().min();
        let wakes = wakes.map(|at| at.saturating_duration_since(Instant::now()));
        let store = self.database.next_event();
        let store = store.map(|at| sleep_for(from_now(at)).unwrap_or_default());
        let flush = self.flush_due().map(from_now);
        [wakes, store, flush].into_iter().flatten().min()
    }

    /// When the next flush begins, where one is wanted.
    fn flush_due(&self) -> Option<Time> {
        if !self.database.tokens().wants_flush() {
            return None;
        }
        match self.options.sync {
            Sync::Always if self.holding.len() < self.gather => Some(self.gather_until),
            Sync::Always => Some(Time::ZERO),
            Sync::EverySecond => Some(self.flush_at + SECOND),
            Sync::No => None,
        }
    }

    /// Does what there is to do.
    fn step(&mut self) {
        self.now = Instant::now();
        self.listen_again();
        self.count_silent();
        for i in 0..self.events.len() {
            let event = self.events[i];
            match event.data.u64() {
                LISTENER => self.accept(),
                STOP => {}
                BELL => clear(self.sleeper.bell().fd().as_fd()),
                who => self.hear(who as u32, event.flags),
            }
        }
        let held = self.holding.len();
        self.give_turns();
        if self.holding.len() > held {
            self.held_at = self.sleeper.clock().now();
        }
        if self.flush_due().is_some_and(|at| at <= self.sleeper.clock().now()) {
            self.flush();
        }
        self.poll();
        let begin = Instant::now();
        while let Some(who) = self.database.next_ready() {
            self.go_on(who);
            if begin.elapsed() > LATER {
                break;
            }
        }
        self.end_flush();
        if self.database.failure.get().is_some() {
            self.warn_of_failure();
        }
        let all = self.memory + self.database.trash.bytes();
        let is_pressed = all > self.options.limits.memory;
        self.database.trash.free(if is_pressed { FREED_PRESSED } else { FREED });
    }

    /// Turns for who comes fresh, and then for who wants more.
    fn give_turns(&mut self) {
        for _ in 0..self.fresh.len() {
            let Some(who) = self.fresh.pop_front() else { break };
            self.turn(who, FIRST);
            if self.holding.len() >= self.half {
                self.flush_half();
            }
            if self.now.elapsed() > FRESH {
                break;
            }
        }
        let begin = Instant::now();
        for _ in 0..self.later.len() {
            let Some(who) = self.later.pop_front() else { break };
            self.turn(who, SLICE);
            if begin.elapsed() > LATER {
                break;
            }
        }
    }

    /// Lets the store and its drive go on. While all who are there wait for the flush, but for
    /// those who have been silent, that may be made on this thread, if the last one was short.
    fn poll(&mut self) {
        // At the end there are none, and all seats are free.
        let there = self.clients.len().saturating_sub(self.free.len() + self.silent);
        let is_busy = !(self.fresh.is_empty() && self.later.is_empty());
        let is_idle = self.database.tokens().is_flushing()
            && self.holding.len() + self.flushing.len() == there
            && self.flush_took < SHORT
            && !is_busy;
        self.sleeper.set_idle(is_idle);
        self.database.poll(self.sleeper.clock().now());
    }

    /// Begins a flush for the half that waits, while the other has its turns; where one is under
    /// way, looks now and then whether that has ended.
    fn flush_half(&mut self) {
        self.held_at = self.sleeper.clock().now();
        if self.database.tokens().is_flushing() {
            if self.holding.len().is_multiple_of(LOOK) {
                self.poll();
                self.end_flush();
            }
        } else if self.flush_due() == Some(Time::ZERO) {
            self.flush();
            self.poll();
        }
    }

    fn flush(&mut self) {
        self.flush_at = self.sleeper.clock().now();
        let took = self.held_at.since(self.answered_at);
        self.each_took = took / self.holding.len().max(1) as u64;
        self.flushing.append(&mut self.holding);
        self.database.flush();
        self.report.flushes += 1;
    }

    /// Ends a flush, and sends the replies that waited for it. The next one is under way
    /// meanwhile, where somebody waits for that.
    fn end_flush(&mut self) {
        while let Some(result) = self.database.flushed() {
            let now = self.sleeper.clock().now();
            self.flush_took = now.since(self.flush_at);
            let mut waited = std::mem::take(&mut self.waited);
            waited.append(&mut self.flushing);
            if result.is_err() {
                // No other comes.
                waited.append(&mut self.holding);
            }
            let all = waited.len() + self.holding.len();
            let overlaps = self.flush_took < all as u64 * self.each_took;
            (self.gather, self.half) =
                if overlaps { (0, all.div_ceil(2)) } else { (all, usize::MAX) };
            if self.gather == 0
                && self.flush_due().is_some_and(|at| at <= self.sleeper.clock().now())
            {
                self.flush();
                self.poll();
            }
            for who in waited.drain(..) {
                if let Some(Some(client)) = self.clients.get_mut(who as usize) {
                    debug_assert!(client.is_holding, "it is listed once");
                    client.is_holding = false;
                    self.finish(who);
                }
            }
            (self.waited, self.answered_at) = (waited, now);
            // The last of them has its answer only now.
            self.gather_until = self.sleeper.clock().now() + (self.flush_took / 4).min(GATHER);
        }
    }

    /// Notes what a socket tells.
    fn hear(&mut self, who: u32, flags: epoll::EventFlags) {
        use epoll::EventFlags as F;
        let Some(client) = &mut self.clients[who as usize] else { return };
        let ends = flags.intersects(F::RDHUP | F::HUP | F::ERR);
        client.readable |= ends || flags.contains(F::IN);
        client.is_ending |= ends;
        client.writable |= ends || flags.contains(F::OUT);
        client.is_gone |= flags.intersects(F::HUP | F::ERR);
        if client.is_gone {
            // What only reads ends when it goes on.
            self.database.refuse(who);
        }
        self.give_turn(who, true);
    }

    pub(super) fn give_turn(&mut self, who: u32, is_fresh: bool) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        if !std::mem::replace(&mut client.has_turn, true) {
            let line = if is_fresh { &mut self.fresh } else { &mut self.later };
            line.push_back(who);
        }
    }

    /// How many come fresh that have not had their turn.
    pub(super) fn waiting(&self) -> usize {
        self.fresh.len()
    }

    /// Takes commands of a client, as far as they are there, it reads the
    /// replies and its slice lasts.
    fn turn(&mut self, who: u32, slice: usize) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        client.has_turn = false;
        let mut work = 0;
        loop {
            let Some(client) = &mut self.clients[who as usize] else { return };
            if client.is_busy || client.is_broken {
                break;
            }
            if client.unread() > UNREAD {
                client.read_ahead();
                break;
            }
            match client.parser.parse(&client.input[client.start..]) {
                _ if client.is_closing && client.start == client.input.len() => break,
                Ok(false) if !client.readable || client.is_closing => break,
                Ok(_) if work >= slice => {
                    self.give_turn(who, false);
                    break;
                }
                Ok(true) => work += self.execute(who),
                Ok(false) => work += client.read(),
                Err(error) => {
                    self.report.faults += 1;
                    resp::error(&mut client.replies.out, &format!("ERR {error}"));
                    client.is_closing = true;
                    client.input.clear();
                    (client.start, client.readable) = (0, false);
                    client.parser = Parser::default();
                    break;
                }
            }
        }
        self.finish(who);
    }

    /// Sends what can be sent, and closes what is over.
    pub(super) fn finish(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        if client.lacks_memory() {
            return self.deny(who);
        }
        let was_full = client.unread() > UNREAD;
        let is_more = client.send(self.database.tokens(), self.now);
        let has_room = was_full && client.unread() <= UNREAD;
        if client.is_broken && client.is_busy {
            // Nobody waits for its reply: what only reads ends when it goes on.
            client.is_busy = !self.database.cancel(who);
            self.database.refuse(who);
        }
        client.tidy();
        if let Some(token) = client.replies.waits_for()
            && !client.is_broken
            && !std::mem::replace(&mut client.is_holding, true)
        {
            let is_soon = self.database.tokens().is_under_way(token);
            if is_soon { &mut self.flushing } else { &mut self.holding }.push(who);
        }
        if is_more || has_room {
            self.give_turn(who, false);
        }
        if self.clients[who as usize].as_ref().is_some_and(Client::is_over) {
            self.leave(who);
        } else {
            self.count(who);
        }
    }

    /// Begins the command that is whole. Gives what that takes, in bytes.
    fn execute(&mut self, who: u32) -> usize {
        let Some(client) = &mut self.clients[who as usize] else { return 0 };
        let work = COMMAND + client.parser.understood();
        (client.heard, client.has_spoken) = (self.now, true);
        self.silent -= usize::from(std::mem::take(&mut client.is_silent));
        client.replies.begin();
        let Client { parser, input, start, replies, .. } = client;
        let out = &mut replies.out;
        let args = parser.args(&input[*start..]);
        let is_for_nobody = |found: Found| !found.writes && found.command != Command::Quit;
        if args.is_empty() || (client.is_gone && command::find(args).is_ok_and(is_for_nobody)) {
            *start += parser.end();
            return work;
        }
        let understood = parser.understood();
        if understood > LONG && grow::ask(understood * 8).is_err() {
            resp::error(out, &Refusal::NoMemory.to_string());
            self.take(who, Progress::Done(Token::NONE));
            return work;
        }
        let mut stored = 0;
        let progress = match command::find(args) {
            Err(words) => {
                resp::error(out, &words);
                Progress::Done(Token::NONE)
            }
            Ok(found) => match self.database.begin(who, found, args, out) {
                Some(progress) => {
                    stored = self.database.spent() as usize;
                    progress
                }
                None => Progress::Done(self.answer(who, found.command)),
            },
        };
        self.take(who, progress);
        let reply = self.clients[who as usize].as_ref().map_or(0, |c| c.replies.last());
        work + reply as usize + stored
    }

    /// Goes on with a command under way.
    fn go_on(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        if !client.is_busy {
            return;
        }
        let args = client.parser.args(&client.input[client.start..]);
        let progress = self.database.go_on(who, args, &mut client.replies.out);
        self.take(who, progress);
        match progress {
            Progress::Waits => self.count(who),
            Progress::Done(_) => self.give_turn(who, false),
        }
    }

    /// Notes how far a command is.
    fn take(&mut self, who: u32, progress: Progress) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        client.is_busy = progress == Progress::Waits;
        client.is_refused &= client.is_busy;
        let Progress::Done(token) = progress else { return };
        self.report.commands += 1;
        client.start += client.parser.end();
        if self.options.sync == Sync::Always {
            self.database.tie(&mut client.replies, token);
        }
    }
}
