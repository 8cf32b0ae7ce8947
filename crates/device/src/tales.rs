//! What the stories of operations are made of: who occupied each parallel unit and
//! for how long, and from when to when each operation waited.
//!
//! A parallel unit has a clock for each cause, which runs while it is occupied by
//! that. An operation that waits notes how they stand, and what they have moved on
//! by when it begins is what it waited behind. Array and channel times are known,
//! and what is left of an operation's time it waited for its channel. Nothing here
//! fails.

use port::story::{Cause, Waits};
use port::{Story, Time};

/// An operation's.
#[derive(Clone, Copy)]
struct Tale {
    /// When it came; nothing of one that came before somebody asked.
    came: Option<Time>,
    cause: Cause,
    /// Whether it waits, or waited: the clocks of its parallel unit then, less what
    /// it had waited before; when it has begun, all that it waited.
    waits: bool,
    waited: Waits,
    array: u64,
    retries: u64,
}

impl Tale {
    /// It begins or ceases to wait, as its parallel unit's clocks stand so.
    #[inline]
    fn turn(&mut self, stand: &Waits) {
        self.waited.iter_mut().zip(stand).for_each(|(own, stand)| *own = stand.wrapping_sub(*own));
    }
}

/// A parallel unit's clocks.
#[derive(Clone, Copy)]
struct Clocks {
    stand: Waits,
    cause: Cause,
    since: Time,
}

impl Clocks {
    /// How they stand now.
    #[inline]
    fn look(&mut self, now: Time) -> &Waits {
        self.stand[self.cause.number()] += now.since(self.since);
        self.since = now;
        &self.stand
    }
}

/// Those of all operations and parallel units.
pub(crate) struct Tales {
    ops: Vec<Tale>,
    units: Vec<Clocks>,
}

impl Tales {
    /// For operations that have these causes, as far as there are some, and parallel
    /// units that are occupied so.
    pub fn new(ops: impl Iterator<Item = Cause>, units: impl Iterator<Item = Cause>) -> Tales {
        let waits = Waits::default();
        let tale =
            |cause| Tale { came: None, cause, waits: false, waited: waits, array: 0, retries: 0 };
        let clocks = |cause| Clocks { stand: waits, cause, since: Time::ZERO };
        Tales { ops: ops.map(tale).collect(), units: units.map(clocks).collect() }
    }

    /// An operation came to a parallel unit, and waits there, or begins.
    #[cold]
    pub fn came(&mut self, now: Time, pu: u32, id: u32, cause: Cause, waits: bool) {
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.units[pu as usize]);
        (tale.came, tale.cause) = (Some(now), cause);
        (tale.array, tale.retries, tale.waits) = (0, 0, waits);
        let stand = clocks.look(now);
        if waits {
            tale.waited = *stand;
        } else {
            clocks.cause = cause;
        }
    }

    /// An operation that waited begins, or goes on.
    #[cold]
    pub fn begins(&mut self, now: Time, pu: u32, id: u32) {
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.units[pu as usize]);
        tale.turn(clocks.look(now));
        clocks.cause = tale.cause;
    }

    /// An operation is suspended, which takes so long of the array.
    #[cold]
    pub fn suspended(&mut self, now: Time, pu: u32, id: u32, time: u64) {
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.units[pu as usize]);
        if !std::mem::replace(&mut tale.waits, true) {
            tale.waited = Waits::default();
        }
        tale.turn(clocks.look(now));
        let own = &mut tale.waited[clocks.cause.number()];
        *own = own.wrapping_add(time);
        tale.array += time;
    }

    /// A parallel unit works for the drive itself.
    #[cold]
    pub fn keeps(&mut self, now: Time, pu: u32, cause: Cause) {
        self.units[pu as usize].look(now);
        self.units[pu as usize].cause = cause;
    }

    /// An operation takes so much array time more, and of its own accord.
    #[cold]
    pub fn takes(&mut self, id: u32, time: u64) {
        self.ops[id as usize].array += time;
    }

    /// The same of a read that is repeated.
    #[cold]
    pub fn repeats(&mut self, id: u32, time: u64) {
        self.ops[id as usize].retries += time;
    }

    /// The story of an operation that ends: its data and command took so long on the
    /// channel.
    #[inline]
    pub fn ends(&self, now: Time, id: u32, transfer: u64) -> Option<Story> {
        let tale = &self.ops[id as usize];
        let waited = tale.waits.then_some(&tale.waited);
        let known = [transfer, tale.array, tale.retries];
        Some(Story::of_operation((tale.came?, now), waited, known))
    }
}
