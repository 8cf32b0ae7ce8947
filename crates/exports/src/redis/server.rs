//! The server: one thread for all connections and the store.
//!
//! Guarantees: commands of a connection take effect one after the other, in
//! their order, and so are answered; those of different connections that have no
//! key in common wait for the drive side by side. With [`Sync::Always`] no reply
//! is sent before all is durable that it tells of, and one flush serves all that
//! were ready when it began. A client can only harm its own connection: what it
//! sends and what it does not read is bounded. On stop, what was received is
//! answered, then the store is flushed.
//!
//! When a flush fails, connections that wait for it are closed without an
//! answer, later writes are refused, reads go on, and [`Server::run`] ends with
//! the error.

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use btree::{Error as TreeError, PageStore, Tree};
use device::hosted::Bell;
use device::realtime::Clock;
use port::Time;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use thiserror::Error;

use super::command::{self, Command, Keys};
use super::database::{Database, OpenError, Progress};
use super::glob;
use super::resp::{self, Args, Parser};
use crate::listen::{ListenAddr, ListenError, Listener, StopHandle};

/// Bytes of replies that may wait for a client before its next command.
const UNREAD: usize = 1 << 20;
/// Bytes that are read at once.
const READ: usize = 16 << 10;
/// Memory for input and replies that an idle connection keeps.
const KEEP: usize = 64 << 10;
/// Commands of one connection before it is another's turn.
const TURN: usize = 64;
/// How long clients may hold up a stop.
const GRACE: Duration = Duration::from_secs(5);
/// How often [`Sync::EverySecond`] flushes, in ns.
const SECOND: u64 = 1_000_000_000;

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const BELL: u64 = u64::MAX - 2;

/// When writes are durable: Redis' `appendfsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When they are answered.
    #[default]
    Always,
    /// At most about a second later.
    EverySecond,
    /// When the server has stopped, or the cache gave way.
    No,
}

impl Sync {
    /// What Redis calls it.
    pub fn name(self) -> &'static str {
        match self {
            Sync::Always => "always",
            Sync::EverySecond => "everysec",
            Sync::No => "no",
        }
    }
}

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When writes are durable.
    pub sync: Sync,
    /// Most connections; others are refused.
    pub clients: usize,
}

impl Default for Options {
    /// Always, 1000 connections.
    fn default() -> Options {
        Options { sync: Sync::Always, clients: 1000 }
    }
}

/// What happened while serving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Connections that were served.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// Connections that were closed because the client broke the protocol.
    pub faults: u64,
    /// Commands that were answered.
    pub commands: u64,
    /// Flushes of the store.
    pub flushes: u64,
}

/// Serving could not begin, or did not end well.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The store holds no database.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system refused something that serving needs.
    #[error("cannot serve: {0}")]
    System(#[from] io::Error),
    /// A flush failed.
    #[error("the store did not take a flush: {0}; what was written since the last one may be lost")]
    Flush(TreeError),
    /// The drive is gone.
    #[error("the drive is gone; what was written since the last flush may be lost")]
    Gone,
}

impl From<Errno> for ServeError {
    fn from(e: Errno) -> ServeError {
        ServeError::System(e.into())
    }
}

/// A server that listens.
pub struct Server {
    listener: Listener,
}

impl Server {
    /// Listens on `addr`.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(addr: &ListenAddr) -> Result<Server, ListenError> {
        Ok(Server { listener: Listener::bind(addr)? })
    }

    /// Where it listens: with the port that the system chose, when it was asked
    /// to.
    ///
    /// # Errors
    /// What the system says.
    pub fn addr(&self) -> Result<ListenAddr, io::Error> {
        self.listener.addr()
    }

    /// Serves `tree`, whose drive rings `bell`, by `clock`, until `stop`. Gives
    /// the tree again, flushed, with nothing under way in its drive.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn run<S: PageStore>(
        self,
        tree: Tree<S>,
        bell: &Bell,
        clock: Clock,
        options: Options,
        stop: &StopHandle,
    ) -> Result<(Report, Tree<S>), ServeError> {
        let database = Database::open(tree, options.clients)?;
        let wakes = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd: BorrowedFd<'_>, who| {
            epoll::add(&wakes, fd, epoll::EventData::new_u64(who), epoll::EventFlags::IN)
        };
        watch(self.listener.fd(), LISTENER)?;
        watch(stop.bell(), STOP)?;
        watch(bell.as_fd(), BELL)?;
        let serving = Serving {
            listener: Some(self.listener),
            database,
            bell,
            clock,
            options,
            wakes,
            events: Vec::with_capacity(256),
            clients: (0..options.clients).map(|_| None).collect(),
            free: (0..options.clients as u32).rev().collect(),
            turns: VecDeque::new(),
            holding: Vec::new(),
            flushing: None,
            flushed: 0,
            flush_at: Time::ZERO,
            failed: None,
            report: Report::default(),
            start: Instant::now(),
        };
        serving.run(stop)
    }
}

/// A connection.
struct Client {
    sock: OwnedFd,
    /// What was received; the command that is next begins at `start`.
    input: Vec<u8>,
    start: usize,
    parser: Parser,
    /// Replies, of which `sent` bytes are sent.
    out: Vec<u8>,
    sent: usize,
    /// Bytes of replies that are no more in `out`.
    before: u64,
    /// Where the reply of a command under way begins.
    reply: usize,
    /// Replies that wait: where they begin, counted from the first reply ever,
    /// and for which flush.
    held: VecDeque<(u64, u64)>,
    readable: bool,
    writable: bool,
    /// The client sends no more; what it sent may still be there to read.
    is_ending: bool,
    /// No more commands are taken; replies are still sent.
    is_closing: bool,
    /// Nothing can be sent any more.
    is_broken: bool,
    is_busy: bool,
    /// It is in `turns`, or in `holding`.
    has_turn: bool,
    is_holding: bool,
}

impl Client {
    fn new(sock: OwnedFd) -> Client {
        Client {
            sock,
            input: Vec::new(),
            start: 0,
            parser: Parser::default(),
            out: Vec::new(),
            sent: 0,
            before: 0,
            reply: 0,
            held: VecDeque::new(),
            readable: true,
            writable: true,
            is_ending: false,
            is_closing: false,
            is_broken: false,
            is_busy: false,
            has_turn: false,
            is_holding: false,
        }
    }

    /// Reads what there is, at most [`READ`] bytes.
    fn read(&mut self) {
        if self.start == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEEP);
            self.start = 0;
        } else if self.start >= READ {
            self.input.drain(..self.start);
            self.start = 0;
        }
        self.input.reserve(READ);
        let room = self.input.capacity() - self.input.len();
        match rustix::io::read(&self.sock, spare_capacity(&mut self.input)) {
            Ok(0) => (self.readable, self.is_closing) = (false, true),
            // Less than there was room for is all there was; the end is told
            // apart, unless that was told already.
            Ok(n) => self.readable = n == room || self.is_ending,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => self.readable = false,
            Err(_) => (self.readable, self.is_broken) = (false, true),
        }
    }

    /// Sends what may be sent once that flush has ended.
    fn send(&mut self, flushed: u64) {
        while self.held.front().is_some_and(|held| held.1 <= flushed) {
            self.held.pop_front();
        }
        let end = if self.is_busy { self.reply } else { self.out.len() };
        let end = self.held.front().map_or(end, |held| (held.0 - self.before) as usize);
        while self.sent < end && self.writable && !self.is_broken {
            match send(&self.sock, &self.out[self.sent..end], SendFlags::NOSIGNAL) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(_) => self.is_broken = true,
            }
        }
        // A command under way knows where its reply begins.
        if self.is_busy {
            return;
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEEP);
        } else if self.sent >= KEEP {
            self.out.drain(..self.sent);
        } else {
            return;
        }
        self.before += self.sent as u64;
        self.sent = 0;
    }

    /// Whether all is done.
    fn is_over(&self) -> bool {
        !(self.is_busy || self.has_turn || self.is_holding)
            && (self.is_broken || (self.is_closing && self.sent == self.out.len()))
    }
}

struct Serving<'a, S> {
    /// `None` when it is stopping.
    listener: Option<Listener>,
    database: Database<S>,
    bell: &'a Bell,
    clock: Clock,
    options: Options,
    wakes: OwnedFd,
    events: Vec<epoll::Event>,
    clients: Vec<Option<Client>>,
    free: Vec<u32>,
    /// Who has something to do.
    turns: VecDeque<u32>,
    /// Who has replies that wait for a flush.
    holding: Vec<u32>,
    /// The flush that is under way, and the last that has ended.
    flushing: Option<u64>,
    flushed: u64,
    /// When the last one began.
    flush_at: Time,
    failed: Option<TreeError>,
    report: Report,
    start: Instant,
}

impl<S: PageStore> Serving<'_, S> {
    fn run(mut self, stop: &StopHandle) -> Result<(Report, Tree<S>), ServeError> {
        let mut until = None;
        loop {
            if stop.is_stopped() && self.listener.is_some() {
                self.stop_taking();
                until = Some(Instant::now() + GRACE);
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if self.listener.is_none() && (is_late || self.free.len() == self.clients.len()) {
                break;
            }
            self.sleep(until)?;
            self.step()?;
        }
        self.last_flush()?;
        match self.failed {
            Some(error) => Err(ServeError::Flush(error)),
            None => Ok((self.report, self.database.into_tree())),
        }
    }

    /// Takes no more clients, and of those that are there what they have sent.
    fn stop_taking(&mut self) {
        self.listener = None;
        for i in 0..self.clients.len() {
            if let Some(client) = &mut self.clients[i] {
                // It may have gone.
                let _ = shutdown(&client.sock, Shutdown::Read);
                (client.readable, client.is_ending) = (true, true);
                self.give_turn(i as u32);
            }
        }
    }

    /// Makes all durable, and waits until the drive has nothing to do.
    fn last_flush(&mut self) -> Result<(), ServeError> {
        self.turns.clear();
        self.clients.clear();
        while self.flushing.is_some() || (self.database.is_dirty() && self.failed.is_none()) {
            if self.flushing.is_none() {
                self.flush();
            }
            self.sleep(None)?;
            self.bell.clear();
            self.database.poll(self.clock.now());
            while self.database.next_ready().is_some() {}
            self.end_flush();
        }
        Ok(())
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, until: Option<Instant>) -> Result<(), ServeError> {
        self.events.clear();
        self.bell.arm();
        let left = self.time_left(until);
        let left =
            left.map(|ns| Timespec { tv_sec: (ns / SECOND) as i64, tv_nsec: (ns % SECOND) as _ });
        let slept = epoll::wait(&self.wakes, spare_capacity(&mut self.events), left.as_ref());
        self.bell.disarm();
        match slept {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if self.bell.is_closed() && self.database.next_event().is_none() {
            return Err(ServeError::Gone);
        }
        Ok(())
    }

    /// Nanoseconds until there is something to do anyway.
    fn time_left(&self, until: Option<Instant>) -> Option<u64> {
        if !self.turns.is_empty() || self.bell.is_closed() {
            return Some(0);
        }
        let now = self.clock.now();
        let stop = until.map(|until| until.saturating_duration_since(Instant::now()));
        let stop = stop.map(|left| left.as_nanos() as u64);
        let store = self.database.next_event().map(|at| at.since(now));
        let waits = self.options.sync == Sync::EverySecond
            && self.database.is_dirty()
            && self.flushing.is_none()
            && self.failed.is_none();
        let flush = waits.then(|| (self.flush_at + SECOND).since(now));
        [stop, store, flush].into_iter().flatten().min()
    }

    /// Does what there is to do.
    fn step(&mut self) -> Result<(), ServeError> {
        for i in 0..self.events.len() {
            let event = self.events[i];
            match event.data.u64() {
                LISTENER => self.accept()?,
                STOP => {}
                BELL => self.bell.clear(),
                who => self.hear(who as u32, event.flags),
            }
        }
        for _ in 0..self.turns.len() {
            let Some(who) = self.turns.pop_front() else { break };
            self.turn(who);
        }
        self.database.poll(self.clock.now());
        while let Some(who) = self.database.next_ready() {
            self.go_on(who);
        }
        self.end_flush();
        let now = self.clock.now();
        let is_due = match self.options.sync {
            Sync::Always => true,
            Sync::EverySecond => now >= self.flush_at + SECOND,
            Sync::No => false,
        };
        if is_due && self.database.is_dirty() && self.flushing.is_none() && self.failed.is_none() {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.flush_at = self.clock.now();
        self.flushing = Some(self.database.flush());
        self.report.flushes += 1;
    }

    /// Ends a flush, and sends the replies that waited for it.
    fn end_flush(&mut self) {
        let Some(result) = self.database.flushed() else { return };
        let flush = self.flushing.take();
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        } else {
            self.flushed = flush.unwrap_or(self.flushed);
        }
        for who in std::mem::take(&mut self.holding) {
            if let Some(Some(client)) = self.clients.get_mut(who as usize) {
                client.is_holding = false;
                client.is_broken |= self.failed.is_some();
                self.finish(who);
            }
        }
    }

    /// Takes clients.
    fn accept(&mut self) -> Result<(), ServeError> {
        while let Some(listener) = &self.listener {
            let sock = match listener.accept() {
                Ok(sock) => sock,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client left, or there are too many open files: neither
                // lasts, and neither is a reason to leave the others.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(10));
                    return Ok(());
                }
            };
            rustix::io::ioctl_fionbio(&sock, true)?;
            let Some(who) = self.free.pop() else {
                self.report.refused += 1;
                let words = b"-ERR max number of clients reached\r\n";
                // It may have gone.
                let _ = send(&sock, words, SendFlags::NOSIGNAL);
                continue;
            };
            let flags = epoll::EventFlags::IN
                | epoll::EventFlags::OUT
                | epoll::EventFlags::RDHUP
                | epoll::EventFlags::ET;
            epoll::add(&self.wakes, &sock, epoll::EventData::new_u64(who.into()), flags)?;
            self.report.connections += 1;
            self.clients[who as usize] = Some(Client::new(sock));
            self.give_turn(who);
        }
        Ok(())
    }

    /// Notes what a socket tells.
    fn hear(&mut self, who: u32, flags: epoll::EventFlags) {
        use epoll::EventFlags as F;
        let Some(client) = &mut self.clients[who as usize] else { return };
        let ends = flags.intersects(F::RDHUP | F::HUP | F::ERR);
        client.readable |= ends || flags.contains(F::IN);
        client.is_ending |= ends;
        client.writable |= ends || flags.contains(F::OUT);
        self.give_turn(who);
    }

    fn give_turn(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        if !std::mem::replace(&mut client.has_turn, true) {
            self.turns.push_back(who);
        }
    }

    /// Takes commands of a client, as far as they are there and it reads the
    /// replies.
    fn turn(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        client.has_turn = false;
        let mut commands = 0;
        loop {
            let Some(client) = &mut self.clients[who as usize] else { return };
            let unread = client.out.len() - client.sent > UNREAD;
            if client.is_busy || client.is_broken || unread {
                break;
            }
            match client.parser.parse(&client.input[client.start..]) {
                _ if client.is_closing && client.start == client.input.len() => break,
                Ok(true) if commands == TURN => {
                    self.give_turn(who);
                    break;
                }
                Ok(true) => {
                    commands += 1;
                    self.execute(who);
                }
                Ok(false) if client.readable && !client.is_closing => client.read(),
                Ok(false) => break,
                Err(error) => {
                    self.report.faults += 1;
                    resp::error(&mut client.out, &format!("ERR {error}"));
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
    fn finish(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        let was_full = client.out.len() - client.sent > UNREAD;
        client.send(self.flushed);
        let is_full = client.out.len() - client.sent > UNREAD;
        let waits = !client.held.is_empty() && self.failed.is_none();
        if waits && !std::mem::replace(&mut client.is_holding, true) {
            self.holding.push(who);
        }
        if was_full && !is_full {
            self.give_turn(who);
        }
        if self.clients[who as usize].as_ref().is_some_and(Client::is_over) {
            self.clients[who as usize] = None;
            self.free.push(who);
        }
    }

    /// Begins the command that is whole.
    fn execute(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        client.reply = client.out.len();
        let Client { parser, input, start, out, .. } = client;
        let args = parser.args(&input[*start..]);
        if args.is_empty() {
            *start += parser.end();
            return;
        }
        let progress = match command::find(args) {
            Err(words) => {
                resp::error(out, &words);
                Progress::Done(0)
            }
            Ok(found) if found.keys != Keys::None => self.database.begin(who, found, args, out),
            Ok(found) => match found.command {
                Command::Scan | Command::FlushAll => self.database.begin(who, found, args, out),
                _ => {
                    let mut client = self.clients[who as usize].take();
                    if let Some(client) = &mut client {
                        self.at_once(client, found.command);
                    }
                    self.clients[who as usize] = client;
                    Progress::Done(0)
                }
            },
        };
        self.take(who, progress);
    }

    /// Goes on with a command under way.
    fn go_on(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        if !client.is_busy {
            return;
        }
        let args = client.parser.args(&client.input[client.start..]);
        let progress = self.database.go_on(who, args, &mut client.out);
        self.take(who, progress);
        if progress != Progress::Waits {
            self.give_turn(who);
        }
    }

    /// Notes how far a command is.
    fn take(&mut self, who: u32, progress: Progress) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        client.is_busy = progress == Progress::Waits;
        let Progress::Done(flush) = progress else { return };
        self.report.commands += 1;
        client.start += client.parser.end();
        let waits = self.options.sync == Sync::Always && self.failed.is_none();
        if waits && flush > self.flushed {
            client.held.push_back((client.before + client.reply as u64, flush));
        }
    }

    /// A command that needs nothing of the store.
    fn at_once(&mut self, client: &mut Client, command: Command) {
        let Client { parser, input, start, out, is_closing, .. } = client;
        let args = parser.args(&input[*start..]);
        match command {
            Command::Ping if args.len() > 2 => {
                resp::error(out, "ERR wrong number of arguments for 'ping' command");
            }
            Command::Ping if args.len() == 2 => resp::bulk(out, args.get(1)),
            Command::Ping => resp::simple(out, "PONG"),
            Command::Echo => resp::bulk(out, args.get(1)),
            Command::Quit => {
                resp::simple(out, "OK");
                *is_closing = true;
            }
            Command::Select if args.get(1) == b"0" => resp::simple(out, "OK"),
            Command::Select => resp::error(out, "ERR DB index is out of range"),
            Command::DbSize => resp::int(out, self.database.common.keys),
            Command::Info => resp::bulk(out, self.info().as_bytes()),
            Command::Config => self.config(args, out),
            Command::Client => match args.get(1).to_ascii_lowercase().as_slice() {
                b"setname" | b"setinfo" => resp::simple(out, "OK"),
                _ => resp::error(out, "ERR unknown subcommand"),
            },
            // Clients that ask what commands there are manage without.
            _ => resp::array(out, 0),
        }
        if *is_closing {
            input.truncate(*start + parser.understood());
        }
    }

    fn config(&self, args: Args<'_>, out: &mut Vec<u8>) {
        if !args.get(1).eq_ignore_ascii_case(b"get") || args.len() < 3 {
            return resp::error(out, "ERR only CONFIG GET is known");
        }
        let clients = self.options.clients.to_string();
        let all = [
            ("save", ""),
            ("appendonly", "yes"),
            ("appendfsync", self.options.sync.name()),
            ("maxclients", &clients),
            ("databases", "1"),
        ];
        let asked = |name: &str| {
            let mut patterns = args.from(2).map(<[u8]>::to_ascii_lowercase);
            patterns.any(|pattern| glob::matches(&pattern, name.as_bytes()))
        };
        let found = all.into_iter().filter(|(name, _)| asked(name));
        resp::array(out, 2 * found.clone().count());
        for (name, value) in found {
            resp::bulk(out, name.as_bytes());
            resp::bulk(out, value.as_bytes());
        }
    }

    fn info(&self) -> String {
        let tree = self.database.tree();
        let (counters, cache) = (tree.counters(), tree.cache_counters());
        let mut text = String::from("# Server\r\nredis_version:7.0.0\r\nserver_name:ssdkit\r\n");
        let mut say = |name: &str, value: u64| {
            // Writing to memory does not fail.
            let _ = write!(text, "{name}:{value}\r\n");
        };
        let clients = self.clients.len() - self.free.len();
        say("uptime_in_seconds", self.start.elapsed().as_secs());
        say("connected_clients", clients as u64);
        say("total_connections_received", self.report.connections);
        say("rejected_connections", self.report.refused);
        say("total_commands_processed", self.report.commands);
        say("flushes", self.report.flushes);
        say("cache_bytes", tree.memory());
        say("cache_lookups", cache.lookups);
        say("cache_misses", cache.misses);
        say("pages", tree.pages());
        say("pages_written", counters.pages_written);
        let keys = self.database.common.keys;
        let _ = write!(text, "# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\n");
        text
    }
}
