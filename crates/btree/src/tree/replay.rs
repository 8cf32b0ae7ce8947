//! Making a redo log, and opening one: what its records say is done again
//! ([`crate::redo`]).
//!
//! Guarantees: what is read of the log is checked, and damage of it is an error;
//! nothing of the log is written before all its records are in pages that are durable.

use port::Buffer;

use super::Tree;
use crate::error::Error;
use crate::op::{Outcome, Sink, Write};
use crate::page::PAGE_BYTES;
use crate::redo::block::Head;
use crate::redo::record::{self, Next};
use crate::redo::{Redo, WRITE};
use crate::store::{PageStore, StoreDone, StoreError};

/// Blocks that are read at once.
const WIDTH: usize = 32;

/// What a place of the ring has.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Nothing, or what is no block of a log.
    #[default]
    Blank,
    Block(Head),
    Damaged(StoreError),
}

/// What opening has found: the blocks that it needs, and the number of the next one.
struct Chain {
    from: u64,
    end: u64,
    next: u64,
}

/// Hears how one operation ended.
struct One(Option<Result<Outcome, Error>>);

impl Sink for One {
    fn record(&mut self, _tag: u64, _key: &[u8], _value: &[u8]) {}

    fn done(&mut self, _tag: u64, outcome: Result<Outcome, Error>) {
        self.0 = Some(outcome);
    }
}

impl<S: PageStore> Tree<S> {
    /// Makes an empty log, where the store has room for one. What another tree
    /// has left there is behind it.
    pub(super) fn make_log(&mut self) -> Result<Option<Redo>, Error> {
        let blocks = self.store.beside().blocks;
        if blocks == 0 {
            return Ok(None);
        }
        let places = self.look_at_log(blocks)?;
        let next = highest(&places).map_or(1, |head| head.number + 1);
        self.mark(blocks, next).map(Some)
    }

    /// Does again what the log has, and begins it anew.
    pub(super) fn open_log(&mut self) -> Result<Option<Redo>, Error> {
        let blocks = self.store.beside().blocks;
        if blocks == 0 {
            return Ok(None);
        }
        let places = self.look_at_log(blocks)?;
        let chain = self.find_chain(&places)?;
        let replayed = self.replay(&chain)?;
        self.settle()?;
        let mut redo = self.mark(blocks, chain.next)?;
        redo.counters.replayed = replayed;
        Ok(Some(redo))
    }

    /// Writes a mark as the next block.
    fn mark(&mut self, blocks: u64, next: u64) -> Result<Redo, Error> {
        let mut redo = Redo::new(blocks, self.store.max_batch(), next, self.store.pages());
        redo.write_mark(&mut self.store);
        while !redo.is_durable() {
            match self.next_done()? {
                StoreDone::Write { id: WRITE, result } => result.map_err(Error::Store)?,
                other => unreachable!("nothing else was asked for: {other:?}"),
            }
            redo.end_write();
        }
        Ok(redo)
    }

    /// Waits for the store.
    fn next_done(&mut self) -> Result<StoreDone, Error> {
        loop {
            self.store.poll(self.now, &mut self.done);
            if let Some(done) = self.done.pop() {
                return Ok(done);
            }
            let at = self.store.wait().ok_or(Error::Store(StoreError::Gone))?;
            self.now = self.now.max(at);
        }
    }

    /// Reads the whole ring.
    fn look_at_log(&mut self, blocks: u64) -> Result<Vec<Place>, Error> {
        let no_memory = |_| Error::OutOfMemory((WIDTH * PAGE_BYTES) as u64);
        let mut idle = Buffer::carve(WIDTH, PAGE_BYTES).map_err(no_memory)?;
        let mut places = vec![Place::Blank; blocks as usize];
        let (first, mut begun, mut ended) = (self.store.pages(), 0, 0);
        while ended < blocks {
            while begun < blocks
                && self.store.can_read()
                && let Some(buffer) = idle.pop()
            {
                let taken = self.store.read(first + begun, buffer);
                assert!(taken.is_ok(), "there is room for it");
                begun += 1;
            }
            let StoreDone::Read { page, buffer, result } = self.next_done()? else {
                unreachable!("nothing but reads was asked for");
            };
            places[(page - first) as usize] = place(page - first, blocks, &buffer, result);
            idle.push(buffer);
            ended += 1;
        }
        Ok(places)
    }

    /// The blocks that are to be done again.
    fn find_chain(&self, places: &[Place]) -> Result<Chain, Error> {
        let (first, blocks) = (self.store.beside().first, places.len() as u64);
        let what = "what was changed since pages were last written, in the redo log";
        // What cannot be read may be what is missing.
        let unread = places.iter().find_map(|place| match place {
            Place::Damaged(error @ StoreError::Drive { .. }) => Some(*error),
            _ => None,
        });
        let damaged = |number: u64| {
            let block = first + number % blocks;
            Error::Store(unread.unwrap_or(StoreError::DamagedBlock { block, what }))
        };
        let Some(last) = highest(places) else {
            // Making a tree writes a mark before anything else.
            return Err(damaged(0));
        };
        let mut end = last.from;
        loop {
            match places[(end % blocks) as usize] {
                Place::Block(head) if head.number == end => end += 1,
                Place::Damaged(error @ StoreError::Drive { .. }) => return Err(error.into()),
                Place::Damaged(_) => return Err(damaged(end)),
                _ if end < last.durable => return Err(damaged(end)),
                _ => break,
            }
        }
        Ok(Chain { from: last.from, end, next: last.number + 1 })
    }

    /// Does the records of a chain again, in order. Gives how many there were.
    fn replay(&mut self, chain: &Chain) -> Result<u64, Error> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for number in chain.from..chain.end {
            // A write begins with a record, and ends with one, but for the last.
            let left = bytes.len();
            if self.read_block(number, &mut bytes)? && left > 0 {
                return Err(senseless());
            }
            count += self.replay_bytes(&mut bytes)?;
        }
        // What is left is of a write that was cut.
        Ok(count)
    }

    /// Does the records again that are whole, and leaves the rest.
    fn replay_bytes(&mut self, bytes: &mut Vec<u8>) -> Result<u64, Error> {
        let (mut rest, mut count) = (&bytes[..], 0);
        loop {
            match record::next(rest) {
                Next::Record(record, behind) => {
                    for write in record::writes(record) {
                        self.replay_one(write)?;
                    }
                    (rest, count) = (behind, count + 1);
                }
                Next::Cut => break,
                Next::Bad => return Err(senseless()),
            }
        }
        let done = bytes.len() - rest.len();
        bytes.drain(..done);
        Ok(count)
    }

    fn replay_one(&mut self, write: Write<'_>) -> Result<(), Error> {
        let mut one = One(None);
        match write.value {
            Some(value) => self.put(0, write.key, value, &mut one)?,
            None => self.delete(0, write.key, &mut one)?,
        }
        loop {
            if let Some(outcome) = one.0 {
                return outcome.map(drop);
            }
            if !self.wait(&mut one) {
                return Err(Error::Store(StoreError::Gone));
            }
        }
    }

    /// Appends the records of a block, which was looked at, to `bytes`. Gives whether a
    /// write begins with it.
    fn read_block(&mut self, number: u64, bytes: &mut Vec<u8>) -> Result<bool, Error> {
        // What the tree has under way may complete first.
        let blocks = self.store.beside().blocks;
        let page = self.store.pages() + number % blocks;
        let mut buffer =
            Buffer::zeroed(PAGE_BYTES).map_err(|_| Error::OutOfMemory(PAGE_BYTES as u64))?;
        loop {
            match self.store.read(page, buffer) {
                Ok(()) => break,
                Err(back) => buffer = back,
            }
            if !self.wait(&mut ()) {
                return Err(Error::Store(StoreError::Gone));
            }
        }
        self.looked_up = None;
        self.asked = true;
        loop {
            if let Some((buffer, result)) = self.looked_up.take() {
                result?;
                return match Head::read(buffer.bytes()) {
                    Some((head, records)) if head.number == number => {
                        bytes.extend_from_slice(records);
                        Ok(head.begins)
                    }
                    _ => Err(Error::Store(StoreError::Unusable(
                        "the redo log changed while it was read; open the store again",
                    ))),
                };
            }
            if !self.wait(&mut ()) {
                return Err(Error::Store(StoreError::Gone));
            }
        }
    }
}

fn senseless() -> Error {
    Error::Store(StoreError::Unusable("a record of the redo log makes no sense"))
}

/// What a place of a ring of `blocks` has.
fn place(at: u64, blocks: u64, buffer: &Buffer, result: Result<(), StoreError>) -> Place {
    match result {
        Ok(()) => match Head::read(buffer.bytes()) {
            Some((head, _)) if head.number % blocks == at => Place::Block(head),
            _ => Place::Blank,
        },
        Err(StoreError::Unwritten { .. }) => Place::Blank,
        Err(error) => Place::Damaged(error),
    }
}

/// The block with the highest number.
fn highest(places: &[Place]) -> Option<Head> {
    let heads = places.iter().filter_map(|place| match place {
        Place::Block(head) => Some(*head),
        Place::Blank | Place::Damaged(_) => None,
    });
    heads.max_by_key(|head| head.number)
}
