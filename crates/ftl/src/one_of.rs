//! A block target of one of two kinds, where it is known only when it is made which.
//!
//! Guarantees: it is that target, in all that it does; what it costs is a branch a call.
//! Nothing fails.

use port::{BlockDone, BlockReq, KvDone, KvReq, Port, Ring, Shape, Time, Turn};

use crate::{MapCacheCounters, Memory, Over, Target, WriteCounters};

/// A block target of one of two kinds, over a drive of the same type.
#[derive(Debug)]
pub enum OneOf<A, B> {
    /// One of the first kind.
    First(A),
    /// One of the second.
    Second(B),
}

use OneOf::{First, Second};

/// Does the same with whichever it is.
macro_rules! with {
    ($one:expr, $target:ident => $work:expr) => {
        match $one {
            First($target) => $work,
            Second($target) => $work,
        }
    };
}

impl<A: Target, B: Target> Port for OneOf<A, B> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        with!(self, target => target.submit(now, cmds));
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        with!(self, target => target.next_event())
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        with!(self, target => target.advance(to, done));
    }

    #[inline]
    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Turn {
        with!(self, target => target.turn(now, until, cmds, done))
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        with!(self, target => target.hint(req));
    }
}

impl<A: Target, B: Target> Target for OneOf<A, B> {
    fn shape(&self) -> Shape {
        with!(self, target => target.shape())
    }

    fn counters(&self) -> WriteCounters {
        with!(self, target => target.counters())
    }

    fn free_chunks(&self) -> u64 {
        with!(self, target => target.free_chunks())
    }

    fn valid_blocks(&self, chunk: usize) -> u32 {
        with!(self, target => target.valid_blocks(chunk))
    }

    fn memory(&self) -> Memory {
        with!(self, target => target.memory())
    }

    fn map_cache(&self) -> Option<MapCacheCounters> {
        with!(self, target => target.map_cache())
    }

    fn populate(&self) {
        with!(self, target => target.populate());
    }

    fn is_read_only(&self) -> bool {
        with!(self, target => target.is_read_only())
    }

    fn state_hash(&self) -> u64 {
        with!(self, target => target.state_hash())
    }

    fn heed_notices(&mut self, now: Time) {
        with!(self, target => target.heed_notices(now));
    }

    fn set_hurried(&mut self, is_hurried: bool, now: Time) {
        with!(self, target => target.set_hurried(is_hurried, now));
    }

    fn count_as_own(&mut self, before: WriteCounters) {
        with!(self, target => target.count_as_own(before));
    }

    fn close(&mut self, now: Time) {
        with!(self, target => target.close(now));
    }

    fn is_closed(&self) -> bool {
        with!(self, target => target.is_closed())
    }
}

impl<A: Over, B: Over<Below = A::Below>> Over for OneOf<A, B> {
    type Below = A::Below;

    #[inline]
    fn below(&self) -> &A::Below {
        with!(self, target => target.below())
    }

    #[inline]
    fn below_mut(&mut self) -> &mut A::Below {
        with!(self, target => target.below_mut())
    }

    fn into_below(self: Box<Self>) -> A::Below {
        match *self {
            First(target) => Box::new(target).into_below(),
            Second(target) => Box::new(target).into_below(),
        }
    }

    fn keyed(&mut self) -> Option<&mut dyn Port<Cmd = KvReq, Done = KvDone>> {
        with!(self, target => target.keyed())
    }
}
