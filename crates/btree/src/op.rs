//! Operations: what is asked of a tree, and where it waits.

use crate::cache::NONE;
use crate::error::Error;

/// How an operation ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key of a get was there; its value was given.
    Found,
    /// The key of a get or delete was not there.
    Missing,
    /// A put or batch is done.
    Stored,
    /// The key of a delete is gone.
    Deleted,
    /// A scan has given so many records.
    Scanned(u64),
    /// What was done before the flush was asked for is durable.
    Flushed,
}

/// Who hears of operations. Calls come from within the tree's own; each
/// operation that was taken ends in one [`Sink::done`].
pub trait Sink {
    /// A record that a get or scan has found.
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]);

    /// An operation has ended.
    fn done(&mut self, tag: u64, outcome: Result<Outcome, Error>);
}

/// Nobody listens.
impl Sink for () {
    fn record(&mut self, _tag: u64, _key: &[u8], _value: &[u8]) {}
    fn done(&mut self, _tag: u64, _outcome: Result<Outcome, Error>) {}
}

/// One write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its new value; `None` deletes the key.
    pub value: Option<&'a [u8]>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Get,
    Put,
    Delete,
    Scan {
        left: u64,
        given: u64,
    },
    Batch,
}

/// An operation that may have to wait.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    pub(crate) key: Vec<u8>,
    /// The value of a put, or the writes of a batch ([`encode`]).
    pub(crate) value: Vec<u8>,
}

/// A value's memory that an idle operation keeps, in bytes.
const KEEP: usize = 4096;

struct Op {
    body: Body,
    next: u32,
    tries: u32,
}

/// All operations.
pub(crate) struct Ops {
    ops: Vec<Op>,
    free: Vec<u32>,
}

impl Ops {
    pub(crate) fn new(count: usize) -> Ops {
        let op = |_| Op { body: Body::default(), next: NONE, tries: 0 };
        Ops { ops: (0..count).map(op).collect(), free: (0..count as u32).rev().collect() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn live(&self) -> usize {
        self.ops.len() - self.free.len()
    }

    /// Takes a slot and fills it.
    pub(crate) fn take(&mut self, kind: Kind, tag: u64, key: &[u8], value: &[u8]) -> u32 {
        let id = self.free.pop().expect("the caller saw room");
        let op = &mut self.ops[id as usize];
        (op.body.kind, op.body.tag, op.next, op.tries) = (kind, tag, NONE, 0);
        op.body.key.clear();
        op.body.key.extend_from_slice(key);
        op.body.value.clear();
        op.body.value.extend_from_slice(value);
        id
    }

    pub(crate) fn give(&mut self, id: u32) {
        self.ops[id as usize].body.value.clear();
        self.ops[id as usize].body.value.shrink_to(KEEP);
        self.free.push(id);
    }

    /// Takes the body out, to be put back by [`Ops::restore`].
    pub(crate) fn body(&mut self, id: u32) -> Body {
        std::mem::take(&mut self.ops[id as usize].body)
    }

    pub(crate) fn restore(&mut self, id: u32, body: Body) {
        self.ops[id as usize].body = body;
    }

    /// Counts another try; gives how many there were.
    pub(crate) fn tried(&mut self, id: u32) -> u32 {
        let op = &mut self.ops[id as usize];
        op.tries += 1;
        op.tries
    }

    pub(crate) fn next(&self, id: u32) -> u32 {
        self.ops[id as usize].next
    }

    pub(crate) fn set_next(&mut self, id: u32, next: u32) {
        self.ops[id as usize].next = next;
    }
}

/// Writes of a batch, one behind the other: length of the key (u32), length of
/// the value (u32, all ones to delete), key, value.
pub(crate) fn encode(writes: &[Write<'_>], to: &mut Vec<u8>) {
    to.clear();
    append(writes, to);
}

/// Appends writes as [`encode`] does.
pub(crate) fn append(writes: &[Write<'_>], to: &mut Vec<u8>) {
    for write in writes {
        let value = write.value.unwrap_or_default();
        let len = write.value.map_or(u32::MAX, |value| value.len() as u32);
        to.extend_from_slice(&(write.key.len() as u32).to_le_bytes());
        to.extend_from_slice(&len.to_le_bytes());
        to.extend_from_slice(write.key);
        to.extend_from_slice(value);
    }
}

/// The writes that were encoded.
pub(crate) fn decode(mut bytes: &[u8]) -> impl Iterator<Item = Write<'_>> {
    std::iter::from_fn(move || {
        let (key, rest) = bytes.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at(u32::from_le_bytes(*key) as usize);
        let len = u32::from_le_bytes(*len);
        let deletes = len == u32::MAX;
        let (value, rest) = rest.split_at(if deletes { 0 } else { len as usize });
        bytes = rest;
        Some(Write { key, value: (!deletes).then_some(value) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_come_back() {
        let writes = [
            Write { key: b"a", value: Some(b"1") },
            Write { key: b"", value: None },
            Write { key: b"bb", value: Some(b"") },
        ];
        let mut bytes = vec![9];
        encode(&writes, &mut bytes);
        assert_eq!(decode(&bytes).collect::<Vec<_>>(), writes);
    }

    #[test]
    fn an_idle_operation_keeps_little() {
        let mut ops = Ops::new(1);
        let id = ops.take(Kind::Put, 1, b"k", &[0; 100_000]);
        assert!(ops.is_full());
        ops.give(id);
        assert!(ops.ops[0].body.value.capacity() <= KEEP && ops.live() == 0);
    }
}
