//! Our own traces, as requests in the order in which they were submitted.
//!
//! Records come as requests ended. Of these [`HELD`] are held, and the one submitted first
//! is given, so that the order is right where no request was outside while as many others
//! ended; what comes too late is told as such by its time. What was submitted before the
//! trace began (in a ramp) is passed. Memory is bounded. May fail: the file is damaged; it
//! is told when all that was read before was given.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use blkmq::Life;
use port::BlockOp;
use trace::Reader;

use crate::error::ReadError;
use crate::format::MOST_ADDRESS;
use crate::reader::{Next, Request};

/// Records held: more than can be outside at once.
const HELD: usize = 1 << 17;

/// A record that is held, in the order in which they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    submitted: u64,
    /// Of those submitted at once, which ended first.
    number: u64,
    offset: u64,
    len: u64,
    op: u8,
    fua: bool,
}

/// Operations by the numbers under which they are held.
const OPS: [BlockOp; 5] =
    [BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Trim, BlockOp::WriteZeroes];

/// A trace of ours.
pub(crate) struct Own {
    reader: Reader<Box<dyn Read + Send>>,
    held: BinaryHeap<Reverse<Held>>,
    number: u64,
    /// Requests of no length that were left out.
    empty: u64,
    is_over: bool,
    /// What is wrong with the file, until it is told.
    problem: Option<ReadError>,
}

impl Own {
    pub fn new(input: Box<dyn Read + Send>) -> Result<Own, ReadError> {
        let (reader, held) = (Reader::new(input)?, BinaryHeap::new());
        Ok(Own { reader, held, number: 0, empty: 0, is_over: false, problem: None })
    }

    /// Requests of no length that were left out so far.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// Requests of which there is no record, as the end of the file says; 0 before it.
    pub fn dropped(&self) -> u64 {
        self.reader.totals().map_or(0, |totals| totals.dropped)
    }

    /// Holds a record. A checksum says that it is what was written, not that it can be.
    fn hold(&mut self, life: &Life) -> Result<(), ReadError> {
        if life.submitted < self.reader.about().start {
            return Ok(());
        }
        let Life { op, fua, submitted, .. } = *life;
        let is_flush = op == BlockOp::Flush;
        let (offset, len) = if is_flush { (0, 0) } else { (life.offset, life.len) };
        if len == 0 && !is_flush {
            self.empty += 1;
            return Ok(());
        }
        if offset.checked_add(len).is_none_or(|end| end > MOST_ADDRESS) {
            return Err(ReadError::Record { number: self.reader.records() });
        }
        let op = OPS.iter().position(|&known| known == op).unwrap_or(0) as u8;
        let number = self.number;
        self.number += 1;
        self.held.push(Reverse(Held { submitted: submitted.0, number, offset, len, op, fua }));
        Ok(())
    }

    /// Reads a record and holds it.
    fn read(&mut self) -> Result<(), ReadError> {
        match self.reader.next() {
            Some(life) => self.hold(&life?),
            None => {
                self.is_over = true;
                Ok(())
            }
        }
    }

    /// The next request, its time from wherever the trace counts; or that it is to be asked
    /// again, after so many records as are held. An error comes behind those that are held.
    pub fn next(&mut self) -> Result<Next, ReadError> {
        for _ in 0..HELD {
            if self.is_over || self.held.len() == HELD {
                break;
            }
            if let Err(e) = self.read() {
                (self.is_over, self.problem) = (true, Some(e));
            }
        }
        if !self.is_over && self.held.len() < HELD {
            return Ok(Next::Later);
        }
        match self.held.pop() {
            Some(Reverse(held)) => Ok(Next::Request(Request {
                at: held.submitted,
                op: OPS[usize::from(held.op)],
                fua: held.fua,
                offset: held.offset,
                len: held.len,
                volume: 0,
            })),
            None => self.problem.take().map_or(Ok(Next::End), Err),
        }
    }
}
