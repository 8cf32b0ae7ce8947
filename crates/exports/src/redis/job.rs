//! A command under way: what it has asked for, what it will write, and what it
//! keeps from one stage to the next.

use std::collections::VecDeque;

use btree::Write;

use super::command::Found;
use super::glob::Pattern;
use super::locks::Claim;
use super::mail::KEEP;
use super::rope::{Rope, Trash};

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
        self.ends.shrink_to(KEEP / size_of::<usize>());
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Appends what `make` puts behind its argument.
    pub fn push(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        make(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Number `i`.
    pub fn get(&self, i: usize) -> &[u8] {
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
    /// To go on with what it has, when others have had their turn.
    Later,
    /// [`Job::writes`] written, all or none, and then the next stage.
    Write,
    /// The same, and then the end: the reply is there.
    WriteAndEnd,
    /// Nothing: the reply is there.
    End,
}

/// Where a command is: idle, before its locks, before a step, or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Idle,
    Lock,
    Next(Next),
    /// The next read of [`Job::asked`].
    Reads(usize),
    Told(Next),
    /// The next of the writes that are asked for one by one.
    Writes(Next, usize),
}

/// A command under way.
#[derive(Default)]
pub struct Job {
    /// Which command.
    pub found: Option<Found>,
    /// Where it is.
    pub state: State,
    /// Its locks.
    pub claim: Claim,
    /// It has stood in line for them.
    pub again: bool,
    /// Where the reply begins.
    pub reply: u64,
    /// How many stages are over, for [`super::work`] to set.
    pub stage: u8,
    /// Record keys to get.
    pub asked: List,
    /// Of each value that is got or put, the beginning is enough.
    pub heads: bool,
    /// Which of the parts that a stage goes through is next.
    pub next: usize,
    /// Which arguments are keys of sorted sets whose members are to go.
    pub sets: Vec<usize>,
    /// What SCAN looks for.
    pub pattern: Option<Pattern>,
    /// What a stage has taken, beside the bytes of its reply.
    pub steps: u64,
    /// Where to scan from.
    pub from: Vec<u8>,
    /// Keys of records to write, and their values; `None` to delete.
    pub writes: List,
    pub values: List,
    pub deletes: Vec<bool>,
    /// How many keys more there are when it is written.
    pub more_keys: i64,
    /// A number that the command keeps.
    pub count: u64,
    /// Another.
    pub left: u64,
    /// A reply that is put together.
    pub text: Rope,
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

    /// All writes.
    pub fn as_writes(&self) -> Vec<Write<'_>> {
        let write = |i: usize| Write {
            key: self.writes.get(i),
            value: (!self.deletes[i]).then(|| self.values.get(i)),
        };
        (0..self.writes.len()).map(write).collect()
    }

    /// Forgets the writes.
    pub fn clear_writes(&mut self) {
        self.writes.clear();
        self.values.clear();
        self.deletes.clear();
        self.deletes.shrink_to(KEEP);
        self.more_keys = 0;
    }

    /// Ends the command.
    pub fn end(&mut self, trash: &mut Trash) {
        if self.has_writes() {
            self.clear_writes();
        }
        if self.asked.bytes.capacity() > KEEP {
            trash.put(std::mem::take(&mut self.asked.bytes));
        }
        self.asked.clear();
        if self.text.memory() > 0 {
            trash.put_all(std::mem::take(&mut self.text).into_pieces());
        }
        self.sets.clear();
        self.sets.shrink_to(64);
        self.claim.shrink();
        self.pattern = None;
        self.state = State::Idle;
    }

    /// Memory that it has, in bytes. The tree keeps the writes once more while
    /// they wait.
    pub fn memory(&self) -> usize {
        self.asked.memory()
            + 2 * (self.writes.memory() + self.values.memory())
            + self.deletes.capacity()
            + self.from.capacity()
            + self.text.memory()
            + self.sets.capacity() * size_of::<usize>()
            + self.claim.memory()
            + self.pattern.as_ref().map_or(0, Pattern::memory)
    }
}

/// Where scans over all keys are, by number.
#[derive(Default)]
pub struct Cursors {
    next: u64,
    known: VecDeque<(u64, Vec<u8>)>,
}

/// Cursors that are remembered.
const CURSORS: usize = 1024;

impl Cursors {
    /// The last record key before a cursor.
    pub fn find(&self, cursor: u64) -> Option<&[u8]> {
        let i = self.known.binary_search_by_key(&cursor, |known| known.0).ok()?;
        Some(&self.known[i].1)
    }

    /// A new cursor behind a record key.
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
    /// Whether records are in the order of their keys, and written in batches.
    pub is_ordered: bool,
}
