//! Commands done on the tree.
//!
//! A command takes the locks of its keys, reads their records, and then works
//! in stages, each of which reads, scans or writes and is followed by the next,
//! until there is a reply ([`super::work`]). Guarantees: a command on keys takes
//! effect whole, at a moment between its begin and its end, as if it were alone
//! with them; what it writes is one batch of the tree, so after a crash it is
//! there whole or not at all. Excepted are the deletion of a sorted set, that
//! of everything, and what overwrites sorted sets: they go in steps, after each
//! of which what is left is whole. A command that fails changes nothing, or
//! such steps only.
//!
//! One command at a time for each seat; a seat is a connection's.

use std::collections::VecDeque;
use std::ops::Range;

use btree::{Error as TreeError, Outcome, PageStore, Sink, Tree, Write};
use port::Time;
use thiserror::Error;

use super::command::{Command, Found};
use super::locks::{Claim, Locks};
use super::resp::{self, Args};
use super::value::{FORMAT, FORMAT_KEY, Value, main_key};

/// Longest reply, in bytes, about.
pub const MAX_REPLY: usize = 64 << 20;

/// Reads of one command that wait at once.
const READS: u32 = 64;

/// Memory that an idle seat keeps, in bytes.
const KEEP: usize = 64 << 10;

/// The number of a flush, above those of seats.
const FLUSH: u64 = u64::MAX;
/// Marks the parts of a number that are scans, and scans that want keys.
const SCAN: u32 = 1 << 31;
const KEYS: u32 = 1 << 30;

/// Bytes of a value that a scan for keys keeps: a sorted set's record.
const HEAD: usize = 9;

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
    /// A record cannot be read.
    #[error("ERR a record is damaged")]
    Damaged,
    /// The tree could not.
    #[error("ERR {0}")]
    Tree(#[from] TreeError),
}

/// A database cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The tree could not.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It holds something else.
    #[error("the store holds keys of something else than this server: take another drive")]
    Foreign,
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits; its seat will be in [`Database::next_ready`].
    Waits,
    /// The reply is there, and may be sent when that flush has ended.
    Done(u64),
}

/// A record of a scan: its key and its value.
type Record = (Range<usize>, Range<usize>);

/// What the tree has told a command.
#[derive(Default)]
pub struct Mail {
    bytes: Vec<u8>,
    values: Vec<Option<Range<usize>>>,
    records: Vec<Record>,
    outstanding: u32,
    error: Option<Refusal>,
}

impl Mail {
    fn clear(&mut self, values: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP);
        self.values.clear();
        self.values.resize(values, None);
        self.values.shrink_to(1024);
        self.records.clear();
    }

    /// Value `i` of those that were asked for.
    pub fn raw(&self, i: usize) -> Option<&[u8]> {
        self.values[i].clone().map(|place| &self.bytes[place])
    }

    /// The same, as a value of Redis.
    pub fn value(&self, i: usize) -> Result<Option<Value<'_>>, Refusal> {
        let value = self.raw(i).map(|bytes| Value::of(bytes).ok_or(Refusal::Damaged));
        value.transpose()
    }

    /// What a scan has found.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let bytes = &self.bytes;
        self.records.iter().map(|(key, value)| (&bytes[key.clone()], &bytes[value.clone()]))
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        if start + bytes.len() > MAX_REPLY {
            self.error = Some(Refusal::TooLong);
            return start..start;
        }
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// Where the tree tells.
#[derive(Default)]
struct Inbox {
    mails: Vec<Mail>,
    ready: VecDeque<u32>,
    /// Who asks at this moment and sees by itself.
    current: Option<u32>,
    flushed: Option<Result<(), TreeError>>,
}

impl Sink for Inbox {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        let (mail, part) = (&mut self.mails[(tag >> 32) as usize], tag as u32);
        if part & SCAN == 0 {
            mail.values[part as usize] = Some(mail.keep(value));
            return;
        }
        let value = if part & KEYS != 0 { &value[..value.len().min(HEAD)] } else { value };
        let record = (mail.keep(key), mail.keep(value));
        mail.records.push(record);
    }

    fn done(&mut self, tag: u64, outcome: Result<Outcome, TreeError>) {
        if tag == FLUSH {
            self.flushed = Some(outcome.map(drop));
            return;
        }
        let seat = (tag >> 32) as u32;
        let mail = &mut self.mails[seat as usize];
        mail.outstanding -= 1;
        if let Err(error) = outcome {
            mail.error = Some(error.into());
        }
        if mail.outstanding == 0 && self.current != Some(seat) {
            self.ready.push_back(seat);
        }
    }
}

/// Byte strings, one behind the other.
#[derive(Default)]
pub struct List {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl List {
    /// Without any.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP);
        self.ends.clear();
        self.ends.shrink_to(1024);
    }

    /// Appends what `make` puts behind its argument.
    pub fn push(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        make(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }
}

/// What a command wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The values of [`Job::asked`].
    Get,
    /// So many records from [`Job::from`] on; of the values only the beginning
    /// when it wants keys.
    Scan {
        /// How many.
        count: u64,
        /// Whether it wants keys.
        keys: bool,
    },
    /// [`Job::writes`] written, all or none, and then the next stage.
    Write,
    /// The same, and then the end: the reply is there.
    WriteAndEnd,
    /// Nothing: the reply is there.
    End,
}

/// Where a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Lock,
    Next(Next),
    /// The next read of [`Job::asked`].
    Reads(usize),
    Told(Next),
}

/// A command under way.
#[derive(Default)]
pub struct Job {
    found: Option<Found>,
    state: State,
    claim: Claim,
    again: bool,
    /// Where the reply begins.
    reply: usize,
    /// How many stages are over, for [`super::work`] to set.
    pub stage: u8,
    /// Record keys to get.
    pub asked: List,
    /// Where to scan from.
    pub from: Vec<u8>,
    /// Keys of records to write, and their values; `None` to delete.
    pub writes: List,
    values: List,
    deletes: Vec<bool>,
    /// How many keys more there are when it is written.
    pub more_keys: i64,
    /// A number that the command keeps.
    pub count: u64,
    /// Another.
    pub left: u64,
    /// The stage that clearing a sorted set goes back to.
    pub back: u8,
    /// And a text, or the key of a sorted set that is cleared.
    pub text: Vec<u8>,
}

impl Job {
    /// Adds a write.
    pub fn put(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>)) {
        self.writes.push(key);
        self.values.push(value);
        self.deletes.push(false);
    }

    /// Adds a deletion.
    pub fn delete(&mut self, key: impl FnOnce(&mut Vec<u8>)) {
        self.writes.push(key);
        self.values.push(|_| {});
        self.deletes.push(true);
    }

    /// Whether there is anything to write.
    pub fn has_writes(&self) -> bool {
        self.writes.len() > 0
    }

    fn clear_writes(&mut self) {
        self.writes.clear();
        self.values.clear();
        self.deletes.clear();
        self.more_keys = 0;
    }
}

/// Where scans over all keys are, by number.
pub struct Cursors {
    next: u64,
    known: VecDeque<(u64, Vec<u8>)>,
}

/// Cursors that are remembered.
const CURSORS: usize = 1024;

impl Cursors {
    /// The last key before a cursor.
    pub fn find(&self, cursor: u64) -> Option<&[u8]> {
        let i = self.known.binary_search_by_key(&cursor, |known| known.0).ok()?;
        Some(&self.known[i].1)
    }

    /// A new cursor behind `key`.
    pub fn add(&mut self, key: &[u8]) -> u64 {
        if self.known.len() == CURSORS {
            self.known.pop_front();
        }
        self.next += 1;
        self.known.push_back((self.next, key.to_vec()));
        self.next
    }
}

/// What commands see beside their keys.
pub struct Common {
    /// How many keys there are.
    pub keys: i64,
    /// Where scans are.
    pub cursors: Cursors,
}

/// The database.
pub struct Database<S> {
    tree: Tree<S>,
    inbox: Inbox,
    jobs: Vec<Job>,
    locks: Locks,
    /// Seats whose commands found all operations of the tree under way.
    stalled: VecDeque<u32>,
    /// What commands share.
    pub common: Common,
    /// The flush that is next to begin, and whether it has anything to do.
    next_flush: u64,
    is_dirty: bool,
}

impl<S: PageStore> Database<S> {
    /// The database in `tree`, for so many seats. Waits for the tree, and reads
    /// it whole to count the keys.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(mut tree: Tree<S>, seats: usize) -> Result<Database<S>, OpenError> {
        let mut look = Look::default();
        let wait = |tree: &mut Tree<S>, look: &mut Look| {
            while look.ended.is_none() {
                if !tree.wait(look) {
                    return Err(TreeError::Store(btree::StoreError::Gone));
                }
            }
            look.ended.take().unwrap_or(Ok(()))
        };
        tree.scan(0, b"", u64::MAX, &mut look)?;
        wait(&mut tree, &mut look)?;
        if look.records > 0 && !look.is_ours {
            return Err(OpenError::Foreign);
        }
        if look.records == 0 {
            tree.put(0, FORMAT_KEY, FORMAT, &mut look)?;
            wait(&mut tree, &mut look)?;
        }
        Ok(Database {
            tree,
            inbox: Inbox {
                mails: (0..seats).map(|_| Mail::default()).collect(),
                ..Inbox::default()
            },
            jobs: (0..seats).map(|_| Job::default()).collect(),
            locks: Locks::new(),
            stalled: VecDeque::new(),
            common: Common {
                keys: look.keys,
                cursors: Cursors { next: 0, known: VecDeque::new() },
            },
            next_flush: 1,
            is_dirty: true,
        })
    }

    /// The tree.
    pub fn tree(&self) -> &Tree<S> {
        &self.tree
    }

    /// The tree again.
    pub fn into_tree(self) -> Tree<S> {
        self.tree
    }

    /// Whether there is something that was not flushed.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Begins a flush; gives its number. One at a time.
    pub fn flush(&mut self) -> u64 {
        self.tree.flush(FLUSH);
        self.is_dirty = false;
        self.next_flush += 1;
        self.next_flush - 1
    }

    /// How the flush ended, once it has.
    pub fn flushed(&mut self) -> Option<Result<(), TreeError>> {
        self.inbox.flushed.take()
    }

    /// Lets the tree go on. Then look at [`Database::next_ready`].
    pub fn poll(&mut self, now: Time) {
        self.tree.poll(now, &mut self.inbox);
        self.inbox.ready.append(&mut self.stalled);
    }

    /// The next seat whose command can go on.
    pub fn next_ready(&mut self) -> Option<u32> {
        let ready = self.inbox.ready.pop_front();
        ready.or_else(|| self.locks.retry.pop_front())
    }

    /// When to poll next, if that is known.
    pub fn next_event(&self) -> Option<Time> {
        self.tree.next_event()
    }

    /// Begins a command on keys. The seat's last one is over.
    pub fn begin(
        &mut self,
        seat: u32,
        found: Found,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) -> Progress {
        let job = &mut self.jobs[seat as usize];
        job.found = Some(found);
        (job.state, job.stage, job.again) = (State::Lock, 0, false);
        (job.count, job.more_keys, job.reply) = (0, 0, out.len());
        job.text.clear();
        job.asked.clear();
        if found.command == Command::FlushAll {
            job.claim.on_everything();
        } else {
            job.claim.on(found.keys.of(args), found.writes);
        }
        for key in found.keys.of(args) {
            job.asked.push(|to| main_key(key, to));
        }
        self.go_on(seat, args, out)
    }

    /// Goes on with a command that is ready. `args` are those that it began
    /// with.
    pub fn go_on(&mut self, seat: u32, args: Args<'_>, out: &mut Vec<u8>) -> Progress {
        let mut job = std::mem::take(&mut self.jobs[seat as usize]);
        let progress = self.advance(seat, &mut job, args, out);
        self.jobs[seat as usize] = job;
        progress
    }

    fn advance(&mut self, seat: u32, job: &mut Job, args: Args<'_>, out: &mut Vec<u8>) -> Progress {
        let Some(found) = job.found else { return Progress::Waits };
        loop {
            let failed = self.inbox.mails[seat as usize].error.take();
            if self.inbox.mails[seat as usize].outstanding > 0 {
                // What is still under way ends first.
                self.inbox.mails[seat as usize].error = failed;
                return Progress::Waits;
            }
            let result = match (failed, job.state) {
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
                    Ok(State::Next(Next::Get))
                }
                (None, State::Next(Next::Get)) => {
                    self.inbox.mails[seat as usize].clear(job.asked.len());
                    Ok(State::Reads(0))
                }
                (None, State::Next(Next::End)) => return self.end(job, found),
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
                    self.locks.wrote(&job.claim, self.next_flush);
                    self.is_dirty = true;
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
                Ok(state) => job.state = state,
                Err(refusal) => {
                    out.truncate(job.reply);
                    resp::error(out, &refusal.to_string());
                    return self.end(job, found);
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
        out: &mut Vec<u8>,
    ) -> Result<State, Refusal> {
        job.reply = out.len();
        let mail = &self.inbox.mails[seat as usize];
        super::work::work(found.command, job, mail, &mut self.common, args, out).map(State::Next)
    }

    fn end(&mut self, job: &mut Job, found: Found) -> Progress {
        let seen = match found.command {
            Command::Scan | Command::FlushAll => self.locks.seen_all(),
            _ => self.locks.seen(&job.claim),
        };
        self.locks.give(&mut job.claim);
        job.clear_writes();
        job.state = State::Idle;
        Progress::Done(seen)
    }

    /// Begins reads from `next` on; gives which is next then.
    fn read(&mut self, seat: u32, job: &Job, mut next: usize) -> Result<usize, Refusal> {
        self.inbox.current = Some(seat);
        let mut result = Ok(());
        while next < job.asked.len() && self.inbox.mails[seat as usize].outstanding < READS {
            self.inbox.mails[seat as usize].outstanding += 1;
            let tag = u64::from(seat) << 32 | next as u64;
            result = self.tree.get(tag, job.asked.get(next), &mut self.inbox);
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

    /// Begins a scan or a write.
    fn ask(&mut self, seat: u32, job: &Job, next: Next) -> Result<(), Refusal> {
        let tag = u64::from(seat) << 32;
        self.inbox.mails[seat as usize].outstanding = 1;
        self.inbox.current = Some(seat);
        let (tree, inbox) = (&mut self.tree, &mut self.inbox);
        let result = match next {
            Next::Scan { count, keys } => {
                inbox.mails[seat as usize].clear(0);
                let part = SCAN | if keys { KEYS } else { 0 };
                tree.scan(tag | u64::from(part), &job.from, count, inbox)
            }
            _ if job.writes.len() == 1 && job.deletes[0] => {
                tree.delete(tag, job.writes.get(0), inbox)
            }
            _ if job.writes.len() == 1 => {
                tree.put(tag, job.writes.get(0), job.values.get(0), inbox)
            }
            _ => {
                let write = |i: usize| Write {
                    key: job.writes.get(i),
                    value: (!job.deletes[i]).then(|| job.values.get(i)),
                };
                let writes: Vec<Write<'_>> = (0..job.writes.len()).map(write).collect();
                tree.batch(tag, &writes, inbox)
            }
        };
        inbox.current = None;
        if result.is_err() {
            inbox.mails[seat as usize].outstanding = 0;
        }
        Ok(result?)
    }
}

/// What is in a tree when it is opened.
#[derive(Default)]
struct Look {
    records: u64,
    keys: i64,
    is_ours: bool,
    ended: Option<Result<(), TreeError>>,
}

impl Sink for Look {
    fn record(&mut self, _tag: u64, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.keys += i64::from(key.first() == Some(&b'k'));
        self.is_ours |= (key, value) == (FORMAT_KEY, FORMAT);
    }

    fn done(&mut self, _tag: u64, outcome: Result<Outcome, TreeError>) {
        self.ended = Some(outcome.map(drop));
    }
}
