//! A key-value target that shares a drive with targets of blocks.
//!
//! To whoever has all of them it is a block target without a block: time goes on by that
//! port, and it is shut down as they are. Requests by key go in and come out beside it
//! ([`Over::keyed`]).
//!
//! Guarantees: those of [`Kv`]; as many requests are outside their owner's hands as
//! [`KvTenant::shape`] says, those that have completed and were not taken among them, so that
//! whoever does not take his delays nobody. Shutting down ends in a checkpoint. Fails as
//! [`Kv`] does.

use device::OpenChannel;
use ftl::{Memory, Over, Target, WriteCounters};
use port::random::mix;
use port::{BLOCK_BYTES, BlockDone, BlockReq, KvDone, KvReq, KvShape, Port, Ring, Shape, Time};

use super::{Kv, KvRecovery};

/// A key-value target beside targets of blocks.
pub struct KvTenant<D> {
    keys: Keys<D>,
    closes: bool,
}

/// The target, and where its requests by key go in and come out.
struct Keys<D> {
    kv: Kv<D>,
    /// What completed and was not taken.
    done: Ring<KvDone>,
    /// Requests that were taken in, and did not come out yet.
    outside: usize,
}

impl<D: OpenChannel> KvTenant<D> {
    /// The same target, beside others.
    pub fn new(kv: Kv<D>) -> KvTenant<D> {
        let done = Ring::new(kv.shape.depth);
        KvTenant { keys: Keys { kv, done, outside: 0 }, closes: false }
    }

    /// The outside of the target.
    pub fn shape(&self) -> &KvShape {
        &self.keys.kv.shape
    }

    /// What its start found.
    pub fn recovery(&self) -> &KvRecovery {
        self.keys.kv.recovery()
    }

    /// Keys that are there. Looks at the whole index.
    pub fn keys(&self) -> u64 {
        self.keys.kv.keys()
    }

    /// Bytes that count on flash, and that may at most.
    pub fn stored(&self) -> (u64, u64) {
        self.keys.kv.stored()
    }
}

impl<D: OpenChannel> Port for Keys<D> {
    type Cmd = KvReq;
    type Done = KvDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<KvReq>) {
        let kv = &mut self.kv;
        kv.now = kv.now.max(now);
        while self.outside < kv.shape.depth
            && let Some(req) = reqs.pop()
        {
            self.outside += 1;
            kv.take(kv.now, req);
        }
        kv.pump(kv.now);
    }

    fn next_event(&self) -> Option<Time> {
        self.done.front().map(|done| done.at)
    }

    fn advance(&mut self, _to: Time, done: &mut Ring<KvDone>) {
        self.outside -= self.done.pour(done);
    }
}

impl<D: OpenChannel> Port for KvTenant<D> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    /// Takes none: it has no blocks.
    fn submit(&mut self, _now: Time, _reqs: &mut Ring<BlockReq>) {}

    fn next_event(&self) -> Option<Time> {
        self.keys.kv.next_event()
    }

    fn advance(&mut self, to: Time, _done: &mut Ring<BlockDone>) {
        let Keys { kv, done, .. } = &mut self.keys;
        // What completed when it came goes first: there is room for all that is outside.
        kv.ready.pour(done);
        kv.advance(to, done);
    }
}

impl<D: OpenChannel> Target for KvTenant<D> {
    fn shape(&self) -> Shape {
        Shape { bytes: 0, kept: self.keys.kv.kept as u32, max_bytes: 0, depth: 1 }
    }

    fn counters(&self) -> WriteCounters {
        self.keys.kv.counters
    }

    fn free_chunks(&self) -> u64 {
        self.keys.kv.space.free_chunks() as u64
    }

    /// Bytes that count, in blocks.
    fn valid_blocks(&self, chunk: usize) -> u32 {
        self.keys.kv.space.chunk(chunk).live.div_ceil(BLOCK_BYTES) as u32
    }

    fn memory(&self) -> Memory {
        let kv = &self.keys.kv;
        let rows = kv.geometry.chunk_slots() as u64 * u64::from(kv.space.rows());
        Memory { map: kv.index.bytes(), valid: rows * 8, ..Memory::default() }
    }

    fn is_read_only(&self) -> bool {
        self.keys.kv.fault
    }

    fn state_hash(&self) -> u64 {
        let all = self.keys.kv.index.all();
        all.fold(0, |hash, entry| mix(hash ^ entry.hash).wrapping_add(entry.place.0))
    }

    fn close(&mut self, now: Time) {
        self.closes = true;
        let kv = &mut self.keys.kv;
        if !kv.fault {
            kv.checkpoint.asked = true;
            kv.now = kv.now.max(now);
            kv.pump(kv.now);
        }
    }

    fn is_closed(&self) -> bool {
        let kv = &self.keys.kv;
        let is_written = !kv.checkpoint.asked && !kv.checkpoint.is_at_work();
        self.closes && is_written && !kv.fault
    }
}

impl<D: OpenChannel> Over for KvTenant<D> {
    type Below = D;

    fn below(&self) -> &D {
        self.keys.kv.below()
    }

    fn below_mut(&mut self) -> &mut D {
        self.keys.kv.below_mut()
    }

    fn into_below(self: Box<Self>) -> D {
        self.keys.kv.into_below()
    }

    fn keyed(&mut self) -> Option<&mut dyn Port<Cmd = KvReq, Done = KvDone>> {
        Some(&mut self.keys)
    }
}
