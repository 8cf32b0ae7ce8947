//! Our own traces, as requests in the order in which they were submitted.
//!
//! Records come as requests ended. Of these [`HELD`] are held, and the one submitted first
//! is given, so that the order is right where no request was outside while as many others
//! ended; what comes too late is told as such by its time. Memory is bounded. May fail: the
//! file is damaged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use blkmq::Life;
use port::BlockOp;
use trace::{Reader, TraceError};

use crate::reader::Request;

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
    is_over: bool,
}

impl Own {
    pub fn new(input: Box<dyn Read + Send>) -> Result<Own, TraceError> {
        let reader = Reader::new(input)?;
        Ok(Own { reader, held: BinaryHeap::new(), number: 0, is_over: false })
    }

    fn hold(&mut self, life: &Life) {
        let op = OPS.iter().position(|&op| op == life.op).unwrap_or(0) as u8;
        let Life { offset, len, fua, submitted, .. } = *life;
        let number = self.number;
        self.number += 1;
        self.held.push(Reverse(Held { submitted: submitted.0, number, offset, len, op, fua }));
    }

    /// The next request, its time from wherever the trace counts. After an error those that
    /// are held still come.
    pub fn next(&mut self) -> Result<Option<Request>, TraceError> {
        while !self.is_over && self.held.len() < HELD {
            match self.reader.next() {
                Some(Ok(life)) => self.hold(&life),
                Some(Err(e)) => {
                    self.is_over = true;
                    return Err(e);
                }
                None => self.is_over = true,
            }
        }
        let next = self.held.pop();
        Ok(next.map(|Reverse(held)| Request {
            at: held.submitted,
            op: OPS[usize::from(held.op)],
            fua: held.fua,
            offset: held.offset,
            len: held.len,
            volume: 0,
        }))
    }
}
