//! A host that knows what a drive may have.

use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use workload::Rng;

use super::fickle::{BLOCKS, Fickle};
use crate::{LEAST_BYTES, NonVolatile, NvRam, Protected, Started, format};

/// An empty journal, the smallest: full after 32 entries of up to 8 blocks.
pub fn ram() -> NvRam {
    ram_of(LEAST_BYTES as usize)
}

/// An empty journal in so many bytes.
pub fn ram_of(bytes: usize) -> NvRam {
    let mut ram = NvRam::new(bytes);
    format(&mut ram).unwrap();
    ram
}

/// Something that a block may have.
#[derive(Clone, Copy, Debug)]
struct Value {
    value: u64,
    /// When it was submitted, and when it ended.
    from: u64,
    ended: Option<u64>,
}

/// A request in flight.
struct Flight {
    id: u64,
    op: BlockOp,
    fua: bool,
    first: usize,
    count: usize,
    from: u64,
}

/// What a host knows.
pub struct Known {
    pub rng: Rng,
    blocks: Vec<Vec<Value>>,
    flights: Vec<Flight>,
    /// Counts submissions and completions.
    clock: u64,
    /// The store has a host that may crash: only what is flushed is durable.
    hosted: bool,
    /// Writes that ended well and are not known to be durable: blocks, when
    /// they were submitted and ended.
    ended: Vec<(usize, usize, u64, u64)>,
}

impl Known {
    /// What a write that is now known to last leaves of what was before it.
    fn lasts(&mut self, first: usize, count: usize, from: u64) {
        for values in &mut self.blocks[first..first + count] {
            values.retain(|value| value.from >= from || value.ended.is_none_or(|at| at > from));
        }
    }

    /// A request ended.
    fn note(&mut self, done: &BlockDone) {
        let at = self.flights.iter().position(|flight| flight.id == done.id).unwrap();
        let flight = self.flights.swap_remove(at);
        self.clock += 1;
        let Flight { op, fua, first, count, from, .. } = flight;
        match op {
            BlockOp::Read => {
                let read = done.buffer.bytes().chunks_exact(8);
                for (i, bytes) in read.enumerate().filter(|_| done.status.is_ok()) {
                    self.sees(first + i, from, bytes);
                }
            }
            BlockOp::Flush if done.status.is_ok() => {
                let (durable, rest): (Vec<_>, Vec<_>) =
                    self.ended.iter().partition(|(.., ended)| *ended < from);
                self.ended = rest;
                for (first, count, from, _) in durable {
                    self.lasts(first, count, from);
                }
            }
            BlockOp::Flush => {}
            _ => {
                let clock = self.clock;
                for values in self.blocks.iter_mut().skip(first).take(count) {
                    if let Some(value) = values.iter_mut().find(|value| value.from == from) {
                        value.ended = Some(clock);
                    }
                }
                if !done.status.is_ok() {
                    // It is there or not.
                } else if self.hosted && !fua {
                    self.ended.push((first, count, from, clock));
                } else {
                    self.lasts(first, count, from);
                }
            }
        }
    }

    /// A block was read.
    fn sees(&mut self, lba: usize, from: u64, bytes: &[u8]) {
        let found = u64::from_le_bytes(bytes.try_into().unwrap());
        let values = &mut self.blocks[lba];
        assert!(values.iter().any(|v| v.value == found), "block {lba}: {found}, not {values:?}");
        // With nothing else under way it stays so: there is no way back.
        if !self.hosted && values.iter().all(|v| v.ended.is_some_and(|ended| ended < from)) {
            values.retain(|v| v.value == found);
        }
    }
}

/// A drive with a host.
pub struct Host<N: NonVolatile> {
    pub port: Protected<Fickle, N>,
    pub below: Fickle,
    pub started: Started,
    pub now: Time,
    pub known: Known,
    done: Ring<BlockDone>,
    queue: Ring<BlockReq>,
}

impl<N: NonVolatile> Host<N> {
    /// A host of a drive that has nothing on it.
    pub fn new(below: Fickle, store: N, seed: u64) -> Host<N> {
        let zero = Value { value: 0, from: 0, ended: Some(0) };
        let known = Known {
            rng: Rng::new(seed, 3),
            blocks: vec![vec![zero]; BLOCKS],
            flights: Vec::new(),
            clock: 1,
            hosted: false,
            ended: Vec::new(),
        };
        Host::again(below, store, known)
    }

    /// The host is there again, and starts the drive.
    pub fn again(below: Fickle, store: N, mut known: Known) -> Host<N> {
        known.flights.clear();
        known.ended.clear();
        let started = Protected::start(below.clone(), Fickle::shape(), store, Time::ZERO);
        let (port, started) = started.unwrap_or_else(|e| panic!("{e}"));
        let (done, queue) = (Ring::new(40), Ring::new(40));
        Host { port, below, started, now: started.ready, known, done, queue }
    }

    /// From now on only what is flushed lasts.
    pub fn on_a_host(mut self) -> Host<N> {
        self.known.hosted = true;
        self
    }

    /// Power goes.
    pub fn cut(self) -> (Fickle, N, Known) {
        let (below, store) = self.port.cut();
        below.cut();
        (below, store, self.known)
    }

    /// Puts a request into the queue. Gives its number.
    pub fn ask(&mut self, op: BlockOp, first: u64, count: u64, fua: bool) -> u64 {
        let known = &mut self.known;
        known.clock += 1;
        let (id, from) = (known.clock, known.clock);
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = Buffer::zeroed(if data { 8 * count as usize } else { 0 }).unwrap();
        let changes = !matches!(op, BlockOp::Read | BlockOp::Flush);
        let value = if op == BlockOp::Write { from } else { 0 };
        if op == BlockOp::Write {
            buffer.bytes_mut().chunks_exact_mut(8).for_each(|b| {
                b.copy_from_slice(&value.to_le_bytes());
            });
        }
        let (offset, len) = (first * 4096, count * 4096);
        let (first, count) = (first as usize, count as usize);
        if changes && first + count <= BLOCKS {
            for values in &mut known.blocks[first..first + count] {
                values.push(Value { value, from, ended: None });
            }
        }
        known.flights.push(Flight { id, op, fua, first, count, from });
        self.queue.put(|| BlockReq { fua, ..BlockReq::new(id, op, offset, len, buffer) });
        id
    }

    /// Goes on to the next event. False: there is none.
    pub fn turn(&mut self) -> bool {
        if !self.queue.is_empty() {
            self.port.submit(self.now, &mut self.queue);
        }
        let Some(event) = self.port.next_event() else { return false };
        self.now = self.now.max(event);
        self.port.advance(event, &mut self.done);
        true
    }

    /// Whether no more can be asked now.
    pub fn is_full(&self) -> bool {
        self.queue.room() == 0
    }

    /// Goes on to the next event, and notes what ended.
    pub fn pass(&mut self) -> bool {
        let any = self.turn();
        while let Some(done) = self.done.pop() {
            self.known.note(&done);
        }
        any
    }

    /// One request, alone.
    pub fn one(&mut self, op: BlockOp, first: u64, count: u64, fua: bool) -> BlockDone {
        let id = self.ask(op, first, count, fua);
        loop {
            assert!(self.turn(), "it is inside");
            while let Some(done) = self.done.pop() {
                self.known.note(&done);
                if done.id == id {
                    return done;
                }
            }
        }
    }

    /// Lets everything end.
    pub fn settle(&mut self) {
        while self.pass() {}
        assert!(self.port.is_idle() && self.known.flights.is_empty() && self.queue.is_empty());
    }

    /// Does this and that for a while; things are in flight when it ends.
    pub fn work(&mut self) {
        for _ in 0..self.known.rng.below(250) {
            let rng = &mut self.known.rng;
            let (kind, fua) = (rng.below(100), rng.below(8) == 0);
            let count = 1 + rng.below(8);
            let first = rng.below(BLOCKS as u64 - count + 1);
            let op = match kind {
                0..8 => BlockOp::Flush,
                8..20 => BlockOp::Read,
                20..28 => BlockOp::Trim,
                28..34 => BlockOp::WriteZeroes,
                _ => BlockOp::Write,
            };
            if self.queue.room() > 0 && self.known.flights.len() < 40 {
                match op {
                    BlockOp::Flush => self.ask(op, 0, 0, false),
                    BlockOp::Read => self.ask(op, first, count, false),
                    _ => self.ask(op, first, count, fua),
                };
            }
            for _ in 0..self.known.rng.below(3) {
                self.pass();
            }
        }
    }

    /// Reads everything, with nothing in flight: it is what it may be, and
    /// stays so.
    pub fn verify(&mut self) {
        self.settle();
        for lba in 0..BLOCKS {
            let done = self.one(BlockOp::Read, lba as u64, 1, false);
            assert!(done.status.is_ok());
            let found = u64::from_le_bytes(done.buffer.bytes().try_into().unwrap());
            let known = &mut self.known;
            let held = *known.blocks[lba].iter().rev().find(|v| v.value == found).unwrap();
            // What is there was there before anything that comes.
            known.blocks[lba] = vec![Value { ended: Some(known.clock), ..held }];
        }
    }
}
