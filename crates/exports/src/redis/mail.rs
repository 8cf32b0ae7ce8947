//! What the tree has told the commands that wait for it.
//!
//! Guarantees: what is kept for one command is at most [`MAX_REPLY`] bytes and
//! what the numbers of its parts take; [`Inbox::work`] grows with all that is
//! told, so that who asks can stop in time.

use std::collections::VecDeque;
use std::ops::Range;

use btree::{Error as TreeError, Outcome, Sink};

use super::database::Refusal;
use super::value::Value;
use crate::grow::grow;

/// Longest reply, in bytes, about.
pub const MAX_REPLY: usize = 64 << 20;

/// Memory that each part of an idle seat keeps, in bytes.
pub const KEEP: usize = 16 << 10;

/// The number of a flush, above those of seats.
pub const FLUSH: u64 = u64::MAX;
/// Marks the parts of a number that are scans, and what wants the beginning of
/// each value only.
pub const SCAN: u32 = 1 << 31;
pub const HEADS: u32 = 1 << 30;

/// Bytes of a value that are its beginning: a sorted set's record.
pub const HEAD: usize = 9;

/// What it takes to tell a record, beside its bytes.
const RECORD: u64 = 128;

/// A record of a scan: its key and its value.
type Record = (Range<usize>, Range<usize>);

/// What the tree has told a command.
#[derive(Default)]
pub struct Mail {
    bytes: Vec<u8>,
    values: Vec<Option<Range<usize>>>,
    records: Vec<Record>,
    /// Operations that have not ended.
    pub outstanding: u32,
    /// Why the command fails.
    pub error: Option<Refusal>,
}

impl Mail {
    /// Empties it, with room for so many values.
    pub fn clear(&mut self, values: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP);
        self.values.clear();
        self.values.shrink_to(values.max(KEEP / size_of::<Option<Range<usize>>>()));
        if grow(&mut self.values, values).is_ok() {
            self.values.resize(values, None);
        } else {
            self.error.get_or_insert(Refusal::NoMemory);
        }
        self.records.clear();
        self.records.shrink_to(KEEP / size_of::<Record>());
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
            + self.values.capacity() * size_of::<Option<Range<usize>>>()
            + self.records.capacity() * size_of::<Record>()
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
            self.error.get_or_insert(Refusal::TooLong);
        }
        if grow(&mut self.bytes, bytes.len()).is_err() {
            self.error.get_or_insert(Refusal::NoMemory);
        }
        if self.error.is_some() {
            return start..start;
        }
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// Where the tree tells.
#[derive(Default)]
pub struct Inbox {
    /// Of each seat.
    pub mails: Vec<Mail>,
    /// Seats for which all has ended.
    pub ready: VecDeque<u32>,
    /// Who asks at this moment and sees by itself.
    pub current: Option<u32>,
    /// How a flush ended.
    pub flushed: Option<Result<(), TreeError>>,
    /// What was told, in bytes, about.
    pub work: u64,
}

impl Sink for Inbox {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        let (mail, part) = (&mut self.mails[(tag >> 32) as usize], tag as u32);
        let value = if part & HEADS != 0 { &value[..value.len().min(HEAD)] } else { value };
        self.work += RECORD + (key.len() + value.len()) as u64;
        if part & SCAN == 0 {
            mail.values[(part & !HEADS) as usize] = Some(mail.keep(value));
            return;
        }
        let record = (mail.keep(key), mail.keep(value));
        match grow(&mut mail.records, 1) {
            Ok(()) => mail.records.push(record),
            Err(_) => _ = mail.error.get_or_insert(Refusal::NoMemory),
        }
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
            mail.error.get_or_insert(error.into());
        }
        if mail.outstanding == 0 && self.current != Some(seat) {
            self.ready.push_back(seat);
        }
    }
}
