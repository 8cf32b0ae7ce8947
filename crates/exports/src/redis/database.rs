//! Commands done on a tree, or on a drive that keeps values by key.
//!
//! A command takes the locks of its keys, reads their records, and then works
//! in stages, each of which reads, scans or writes and is followed by the next,
//! until there is a reply ([`super::work`]). Guarantees: a command on keys takes
//! effect whole, at a moment between its begin and its end, as if it were alone
//! with them; what it writes is one batch of the tree, so after a crash it is
//! there whole or not at all. Members of a sorted set that it deleted or wrote over
//! go after that, some at a time. Excepted is the deletion of everything: it goes
//! in steps, after each of which what is left is whole. A command that fails
//! changes nothing, or such steps only.
//!
//! What reads one record takes no locks, so it never waits for another command:
//! the tree gives a record as it is at one moment, and a batch takes effect at
//! one moment. So it sees all that a command writes in a batch or nothing of it,
//! and of what goes in steps it may see some.
//!
//! On a drive a command with one key is so, too. What several keys are written by (MSET,
//! DEL) goes side by side, each key by itself: it is answered when all are there, and where
//! it fails, or after a crash, some may be. FLUSHALL goes in steps there as well.
//!
//! One command at a time for each seat; a seat is a connection's. A command
//! goes on for a slice of work at a time, counted in bytes, and then stands
//! behind all others that are ready; one call takes about a slice, and at most
//! what is linear in the command's own bytes.

use std::collections::VecDeque;

use btree::{Error as TreeError, Records};
use port::Time;
use thiserror::Error;
use waiting::speculate::{Token, Tokens};

use super::command::{Command, Found, Keys};
use super::job::{Common, Job, Next, State};
use super::locks::Locks;
use super::mail::{FLUSH, HEAD, HEADS, Inbox, MAX_REPLY, Mail, SCAN};
use super::mutation::{self, Mutation};
use super::replies::Replies;
use super::resp::{self, Args};
use super::rope::{Rope, Trash};
use super::server::Failure;
use super::value::main_key;

/// Reads of one command that wait at once.
const READS: u32 = 64;
/// The same of writes, where each is by itself.
const WRITES: u32 = 64;

/// Keys that a command reads at once which needs no more of them at a time.
pub const PORTION: usize = 64;

/// Work that a command does before it is another's turn, in bytes, and what it
/// does at once when it begins: a hundred that come together are over in a moment.
const SLICE: u64 = 512 << 10;
const FIRST: u64 = 64 << 10;
/// What an operation, a stage and a lock take.
const OPERATION: u64 = 512;
const LOCK: u64 = 8;

/// Of a job that nobody is at.
const AT_REST: &str = "one command of a seat at a time";

/// Of sorted sets on a drive that keeps values by key.
const UNORDERED: &str =
    "ERR sorted sets need an order of keys, which a drive with target=kv does not have";

/// What the tree said, in the client's numbers: each record has a byte more.
fn in_words(error: &TreeError) -> String {
    let longer = |what, n, most| format!("a {what} of {} bytes is longer than {}", n - 1, most - 1);
    match error {
        TreeError::KeyTooLong(n, most) => longer("key", *n, *most),
        TreeError::ValueTooLong(n, most) => longer("value", *n, *most),
        other => other.to_string(),
    }
}

/// Why a command is answered with an error.
#[derive(Clone, Debug, Error)]
pub enum Refusal {
    /// The key holds another type.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The command is not as it should be.
    #[error("ERR {0}")]
    Text(&'static str),
    /// The reply is too long.
    #[error("ERR the reply is longer than 64 MiB: ask for less at once")]
    TooLong,
    /// The server's clients have all the memory that they may.
    #[error("ERR the clients of this server hold all the memory that they may: ask for less")]
    Memory,
    /// The system has no memory for it.
    #[error("ERR the system has no more memory for this server: ask for less")]
    NoMemory,
    /// A record cannot be read.
    #[error("ERR a record is damaged")]
    Damaged,
    /// The tree could not.
    #[error("ERR {}", in_words(.0))]
    Tree(#[from] TreeError),
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits; its seat will be in [`Database::next_ready`].
    Waits,
    /// The reply is there, and may be seen when that token is durable.
    Done(Token),
}

/// The database.
pub struct Database {
    records: Records<'static>,
    inbox: Inbox,
    /// Of each seat; none while it is at work.
    jobs: Vec<Option<Box<Job>>>,
    locks: Locks,
    /// Seats whose commands found all operations of the tree under way.
    stalled: VecDeque<u32>,
    /// Seats whose commands have had their slice.
    yielded: VecDeque<u32>,
    /// What commands share.
    pub common: Common,
    /// Why not all keys were counted.
    uncounted: Option<TreeError>,
    /// Why nothing is written any more.
    pub failure: Failure,
    /// Which writes are durable.
    tokens: Tokens,
    /// Work that this call may do.
    slice: u64,
    /// Memory of commands and clients that is to be freed.
    pub trash: Trash,
}

impl Database {
    /// What has the keys.
    pub fn records(&self) -> &Records<'static> {
        &self.records
    }

    /// Bytes of the longest value, as far as there is room for it in a reply.
    pub fn longest(&self) -> usize {
        // The record has one byte more.
        self.records.longest().min(MAX_REPLY) - 1
    }

    /// Keys that are there, as far as they were counted.
    pub fn keys(&self) -> u64 {
        match &self.records {
            Records::Tree(_) => self.common.keys.try_into().unwrap_or(0),
            // One of them says how the others are to be read.
            Records::Drive(drive) => drive.keys().saturating_sub(1),
        }
    }

    /// Why some of the keys that were there are not counted.
    pub fn uncounted(&self) -> Option<&TreeError> {
        self.uncounted.as_ref()
    }

    /// What has the keys again.
    pub fn into_records(self) -> Records<'static> {
        self.records
    }

    /// Which writes are durable.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Begins a flush. One at a time.
    pub fn flush(&mut self) {
        self.tokens.begin_flush();
        self.records.flush(FLUSH).expect("one at a time");
    }

    /// How the flush ended, once it has.
    pub fn flushed(&mut self) -> Option<Result<(), TreeError>> {
        let ended = self.inbox.flushed.take()?;
        if let Err(error) = ended {
            self.failure.get_or_init(|| error);
        }
        self.tokens.end_flush(ended.is_ok());
        Some(ended)
    }

    /// A client's last reply is there: it waits for a token.
    pub fn tie(&mut self, replies: &mut Replies, token: Token) {
        replies.tie(token, &self.tokens, &mut self.trash);
    }

    /// Lets the tree go on. Then look at [`Database::next_ready`].
    pub fn poll(&mut self, now: Time) {
        self.records.poll(now, &mut self.inbox);
        if let Some(error) = self.records.failure() {
            self.failure.get_or_init(|| error);
        }
        self.inbox.ready.append(&mut self.stalled);
        self.inbox.ready.append(&mut self.yielded);
        // Else those who yield again and again would always be before them.
        self.inbox.ready.append(&mut self.locks.retry);
    }

    /// Work that the last call of [`Self::begin`] or [`Self::go_on`] has done,
    /// in bytes, about.
    pub fn spent(&self) -> u64 {
        self.inbox.work
    }

    /// Whether a command can go on without anything happening.
    pub fn is_ready(&self) -> bool {
        !(self.inbox.ready.is_empty() && self.yielded.is_empty() && self.locks.retry.is_empty())
    }

    fn job(&self, seat: u32) -> &Job {
        self.jobs[seat as usize].as_ref().expect(AT_REST)
    }

    /// Memory that a seat has, in bytes.
    pub fn memory(&self, seat: u32) -> usize {
        self.job(seat).memory() + self.inbox.mails[seat as usize].memory()
    }

    /// Makes a seat's command that only reads end with an error. False when
    /// it writes, or has not begun.
    pub fn refuse(&mut self, seat: u32) -> bool {
        let job = self.job(seat);
        let reads = job.found.is_some_and(|found| !found.writes);
        let refuses = reads && !matches!(job.state, State::Idle | State::Lock);
        if refuses {
            self.inbox.mails[seat as usize].error.get_or_insert(Refusal::Memory);
        }
        refuses
    }

    /// Ends a seat's command that waits for its locks, without a reply. False
    /// when it does not.
    pub fn cancel(&mut self, seat: u32) -> bool {
        let Some(job) = self.jobs[seat as usize].as_mut() else { return false };
        let waits = job.state == State::Lock;
        if waits {
            self.locks.forget(seat, &job.claim);
            job.end(&mut self.trash);
        }
        waits
    }

    /// Gives all memory of a seat back whose last command is over.
    pub fn leave(&mut self, seat: u32) {
        self.jobs[seat as usize] = Some(Box::default());
        self.inbox.mails[seat as usize] = Mail::default();
    }

    /// The next seat whose command can go on.
    pub fn next_ready(&mut self) -> Option<u32> {
        let ready = self.inbox.ready.pop_front();
        ready.or_else(|| self.locks.retry.pop_front())
    }

    /// When to poll next, if that is known.
    pub fn next_event(&self) -> Option<Time> {
        self.records.next_event()
    }

    /// Begins a command that needs the store. The seat's last one is over. `None`
    /// where it needs nothing of that; then nothing was done.
    pub fn begin(
        &mut self,
        seat: u32,
        found: Found,
        args: Args<'_>,
        out: &mut Rope,
    ) -> Option<Progress> {
        self.inbox.work = 0;
        if found.command.needs_order() && !self.common.is_ordered {
            resp::error(out, UNORDERED);
            Some(Progress::Done(Token::NONE))
        } else if found.command == Command::DbSize {
            resp::int(out, self.keys() as i64);
            Some(Progress::Done(self.seen_all()))
        } else if found.keys != Keys::None || found.command.goes_through_all() {
            Some(self.begin_on_keys(seat, found, args, out))
        } else {
            None
        }
    }

    /// The token of all that there is: for who tells how many keys there are, or goes through
    /// them.
    pub fn seen_all(&mut self) -> Token {
        if mutation::is(Mutation::SizeUntied) {
            return Token::NONE;
        }
        if self.locks.is_anything_written() { self.tokens.issue() } else { self.tokens.newest() }
    }

    fn begin_on_keys(
        &mut self,
        seat: u32,
        found: Found,
        args: Args<'_>,
        out: &mut Rope,
    ) -> Progress {
        let job = self.jobs[seat as usize].as_mut().expect(AT_REST);
        job.found = Some(found);
        (job.state, job.stage, job.again) = (State::Lock, 0, false);
        (job.count, job.more_keys, job.reply, job.next) = (0, 0, out.end(), 0);
        (job.heads, job.steps) = (found.command.wants_heads(), 0);
        job.asked.clear();
        if found.command == Command::FlushAll {
            job.claim.on_everything();
        } else {
            job.claim.on(found.keys.of(args), found.writes);
        }
        if found.command.reads_one_record() {
            job.claim.only_looks();
        }
        let most = if found.command.goes_in_portions() { PORTION } else { usize::MAX };
        for key in found.keys.of(args).take(most) {
            job.asked.push(|to| main_key(key, to));
        }
        self.call(seat, args, out, FIRST)
    }

    /// Goes on with a command that is ready. `args` are those that it began
    /// with.
    pub fn go_on(&mut self, seat: u32, args: Args<'_>, out: &mut Rope) -> Progress {
        self.call(seat, args, out, SLICE)
    }

    fn call(&mut self, seat: u32, args: Args<'_>, out: &mut Rope, slice: u64) -> Progress {
        self.slice = slice;
        let mut job = self.jobs[seat as usize].take().expect(AT_REST);
        self.inbox.work = 0;
        let progress = self.advance(seat, &mut job, args, out);
        self.jobs[seat as usize] = Some(job);
        progress
    }

    fn advance(&mut self, seat: u32, job: &mut Job, args: Args<'_>, out: &mut Rope) -> Progress {
        let Some(found) = job.found else { return Progress::Waits };
        loop {
            let mail = &mut self.inbox.mails[seat as usize];
            if mail.outstanding > 0 {
                // What is still under way ends first.
                return Progress::Waits;
            }
            if self.inbox.work >= self.slice {
                self.yielded.push_back(seat);
                return Progress::Waits;
            }
            let result = match (mail.error.take(), job.state) {
                (Some(refusal), _) => Err(refusal),
                (None, State::Idle) => return Progress::Waits,
                (None, State::Lock) => {
                    if !self.locks.take(
                        seat,
                        &mut job.claim,
                        std::mem::replace(&mut job.again, true),
                    ) {
                        return Progress::Waits;
                    }
                    self.inbox.work += job.claim.len() as u64 * LOCK;
                    mail.clear(job.asked.len());
                    Ok(State::Reads(0))
                }
                (None, State::Next(Next::Later)) => {
                    self.inbox.work = self.inbox.work.max(self.slice);
                    Ok(State::Told(Next::Later))
                }
                (None, State::Next(Next::Get)) => {
                    self.inbox.mails[seat as usize].clear(job.asked.len());
                    Ok(State::Reads(0))
                }
                (None, State::Next(next))
                    if (!self.common.is_ordered || mutation::is(Mutation::SplitBatch))
                        && matches!(next, Next::Write | Next::WriteAndEnd) =>
                {
                    Ok(State::Writes(next, 0))
                }
                (None, State::Writes(next, at)) if at == job.writes.len() => Ok(State::Told(next)),
                (None, State::Writes(next, at)) => match self.write(seat, job, at) {
                    Err(Refusal::Tree(TreeError::Busy(_))) => {
                        if self.inbox.mails[seat as usize].outstanding == 0 {
                            self.stalled.push_back(seat);
                        }
                        return Progress::Waits;
                    }
                    written => written.map(|at| State::Writes(next, at)),
                },
                (None, State::Next(next)) => match self.ask(seat, job, next) {
                    Err(Refusal::Tree(TreeError::Busy(_))) => {
                        self.stalled.push_back(seat);
                        return Progress::Waits;
                    }
                    asked => asked.map(|()| State::Told(next)),
                },
                (None, State::Reads(next)) if next < job.asked.len() => {
                    match self.read(seat, job, next) {
                        Err(Refusal::Tree(TreeError::Busy(_))) => {
                            if self.inbox.mails[seat as usize].outstanding == 0 {
                                self.stalled.push_back(seat);
                            }
                            return Progress::Waits;
                        }
                        read => read.map(State::Reads),
                    }
                }
                (None, State::Told(next)) if matches!(next, Next::Write | Next::WriteAndEnd) => {
                    self.locks.wrote(&job.claim, self.tokens.issue());
                    self.inbox.work += job.claim.len() as u64 * LOCK;
                    self.common.keys += job.more_keys;
                    job.clear_writes();
                    if next == Next::WriteAndEnd {
                        Ok(State::Next(Next::End))
                    } else {
                        self.work(seat, job, found, args, out)
                    }
                }
                (None, State::Reads(_) | State::Told(_)) => self.work(seat, job, found, args, out),
            };
            match result {
                Ok(State::Next(Next::End)) => return self.end(seat, job, found),
                Ok(state) => job.state = state,
                // What is under way ends first: it is told to this command.
                Err(refusal) if self.inbox.mails[seat as usize].outstanding > 0 => {
                    self.inbox.mails[seat as usize].error = Some(refusal);
                    return Progress::Waits;
                }
                Err(refusal) => {
                    if !self.common.is_ordered && job.has_writes() {
                        // Some of them may be there.
                        self.locks.wrote(&job.claim, self.tokens.issue());
                    }
                    self.trash.put_all(out.cut(job.reply));
                    resp::error(out, &refusal.to_string());
                    return self.end(seat, job, found);
                }
            }
        }
    }

    /// The next stage of a command.
    fn work(
        &mut self,
        seat: u32,
        job: &mut Job,
        found: Found,
        args: Args<'_>,
        out: &mut Rope,
    ) -> Result<State, Refusal> {
        let mail = &self.inbox.mails[seat as usize];
        let before = out.end();
        let next = super::work::work(found.command, job, mail, &mut self.common, args, out);
        let reply = out.end() - before;
        self.inbox.work += OPERATION + reply + std::mem::take(&mut job.steps);
        if out.is_short() || job.text.is_short() {
            return Err(Refusal::NoMemory);
        }
        next.map(State::Next)
    }

    fn end(&mut self, seat: u32, job: &mut Job, found: Found) -> Progress {
        let seen = if !found.writes && mutation::is(Mutation::ReadUntied) {
            Token::NONE
        } else if found.command == Command::Scan {
            self.seen_all()
        } else if found.command == Command::FlushAll {
            self.tokens.newest()
        } else if found.command.reads_one_record() && self.locks.is_written(&job.claim) {
            // It may have seen what is not known to be written yet: the next flush has it.
            self.tokens.issue()
        } else {
            self.locks.seen(&job.claim)
        };
        self.locks.give(&mut job.claim);
        job.end(&mut self.trash);
        self.inbox.mails[seat as usize].clear(0);
        Progress::Done(seen)
    }

    /// Begins reads from `next` on; gives which is next then.
    fn read(&mut self, seat: u32, job: &Job, mut next: usize) -> Result<usize, Refusal> {
        self.inbox.current = Some(seat);
        let mut result = Ok(());
        let heads = if job.heads { u64::from(HEADS) } else { 0 };
        while next < job.asked.len()
            && self.inbox.mails[seat as usize].outstanding < READS
            && self.inbox.work < self.slice
        {
            self.inbox.mails[seat as usize].outstanding += 1;
            self.inbox.work += OPERATION;
            let tag = u64::from(seat) << 32 | heads | next as u64;
            let head = job.heads.then_some(HEAD);
            result = self.records.get(tag, job.asked.get(next), head, &mut self.inbox);
            if result.is_err() {
                self.inbox.mails[seat as usize].outstanding -= 1;
                break;
            }
            next += 1;
        }
        self.inbox.current = None;
        result?;
        Ok(next)
    }

    /// Begins writes of single records from `next` on; gives which is next then.
    fn write(&mut self, seat: u32, job: &Job, mut next: usize) -> Result<usize, Refusal> {
        self.inbox.current = Some(seat);
        let mut result = Ok(());
        while next < job.writes.len()
            && self.inbox.mails[seat as usize].outstanding < WRITES
            && self.inbox.work < self.slice
        {
            self.inbox.mails[seat as usize].outstanding += 1;
            self.inbox.work += OPERATION + job.values.get(next).len() as u64;
            let splits = mutation::is(Mutation::SplitBatch);
            self.inbox.work += if splits { self.slice } else { 0 };
            let (tag, key) = (u64::from(seat) << 32, job.writes.get(next));
            result = match job.deletes[next] {
                true => self.records.delete(tag, key, &mut self.inbox),
                false => self.records.put(tag, key, job.values.get(next), &mut self.inbox),
            };
            if result.is_err() {
                self.inbox.mails[seat as usize].outstanding -= 1;
                break;
            }
            next += 1;
        }
        self.inbox.current = None;
        match result {
            Err(TreeError::Busy(_)) if self.inbox.mails[seat as usize].outstanding > 0 => Ok(next),
            result => result.map(|()| next).map_err(Refusal::from),
        }
    }

    /// Begins a scan or a write.
    fn ask(&mut self, seat: u32, job: &Job, next: Next) -> Result<(), Refusal> {
        let tag = u64::from(seat) << 32;
        self.inbox.mails[seat as usize].outstanding = 1;
        self.inbox.current = Some(seat);
        let (records, inbox) = (&mut self.records, &mut self.inbox);
        inbox.work += OPERATION * (1 + job.writes.len() as u64);
        let result = match next {
            Next::Scan { count, keys } => {
                inbox.mails[seat as usize].clear(0);
                let part = SCAN | if keys { HEADS } else { 0 };
                records.scan(tag | u64::from(part), &job.from, count, inbox)
            }
            _ if job.writes.len() == 1 && job.deletes[0] => {
                records.delete(tag, job.writes.get(0), inbox)
            }
            _ if job.writes.len() == 1 => {
                records.put(tag, job.writes.get(0), job.values.get(0), inbox)
            }
            _ => records.batch(tag, &job.as_writes(), inbox),
        };
        inbox.current = None;
        if result.is_err() {
            inbox.mails[seat as usize].outstanding = 0;
        }
        Ok(result?)
    }
}

mod opening;
#[cfg(test)]
pub(super) mod tests;

pub use opening::OpenError;
