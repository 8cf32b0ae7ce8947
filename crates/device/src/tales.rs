//! What the stories of operations are made of: who occupied each parallel unit and
//! for how long, and from when to when each operation waited.
//!
//! A parallel unit has a clock for each cause, which runs while it is occupied by
//! that. An operation that waits notes how they stand, and what they have moved on
//! by when it begins is what it waited behind. Mostly one of them has run all the
//! while, and they need not be compared. Array and channel times are known, and what
//! is left of an operation's time it waited for its channel. Nothing here fails.

use port::story::{Cause, Waited, Waits};
use port::{Stories, Time};

/// An operation's.
#[derive(Clone, Copy)]
struct Tale {
    /// When it came; nothing of one that came before somebody asked.
    came: Option<Time>,
    cause: Cause,
    /// How often its parallel unit had turned to something else when it came; none
    /// of one that was suspended.
    turns: Option<u32>,
    /// While it waits, the clocks of its parallel unit as they stood when it began
    /// to, less what it had waited before; when it has begun, all that it waited.
    waits: Waits,
    waited: Waited,
    array: u64,
    retries: u64,
}

/// How clocks have moved on since they stood so.
#[inline]
fn since(stand: &Waits, before: &Waits) -> Waits {
    let mut moved = *stand;
    moved.iter_mut().zip(before).for_each(|(ns, before)| *ns = ns.wrapping_sub(*before));
    moved
}

/// A parallel unit's clocks.
#[derive(Clone, Copy)]
struct Clocks {
    stand: Waits,
    /// The one that runs, since when it was not looked at, and how often another
    /// began to.
    cause: Cause,
    since: Time,
    turns: u32,
}

impl Clocks {
    /// How they stand now.
    #[inline]
    fn look(&mut self, now: Time) -> &Waits {
        self.stand[self.cause.number()] += now.since(self.since);
        self.since = now;
        &self.stand
    }

    /// From now on that one runs.
    #[inline]
    fn turn(&mut self, now: Time, cause: Cause) {
        if self.cause != cause {
            self.look(now);
            self.cause = cause;
            self.turns = self.turns.wrapping_add(1);
        }
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
        let (came, turns, waited) = (None, None, Waited::Not);
        let (waits, array, retries) = (Waits::default(), 0, 0);
        let tale = |cause| Tale { came, cause, turns, waits, waited, array, retries };
        let clocks = |cause| Clocks { stand: waits, cause, since: Time::ZERO, turns: 0 };
        Tales { ops: ops.map(tale).collect(), units: units.map(clocks).collect() }
    }

    /// An operation came to a parallel unit, and waits there, or begins.
    #[inline]
    pub fn came(&mut self, now: Time, pu: u32, id: u32, cause: Cause, waits: bool) {
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.units[pu as usize]);
        (tale.came, tale.cause, tale.waited) = (Some(now), cause, Waited::Not);
        (tale.array, tale.retries) = (0, 0);
        if waits {
            tale.turns = Some(clocks.turns);
            tale.waits = *clocks.look(now);
        } else {
            clocks.turn(now, cause);
        }
    }

    /// An operation that waited begins, or goes on.
    #[cold]
    pub fn begins(&mut self, now: Time, pu: u32, id: u32) {
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.units[pu as usize]);
        tale.waited = match tale.came {
            Some(came) if tale.turns == Some(clocks.turns) => {
                Waited::Behind(clocks.cause, now.since(came))
            }
            _ => Waited::All(since(clocks.look(now), &tale.waits)),
        };
        clocks.turn(now, tale.cause);
    }

    /// An operation is suspended, which takes so long of the array.
    #[cold]
    pub fn suspended(&mut self, now: Time, pu: u32, id: u32, time: u64) {
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.units[pu as usize]);
        let mut waited = match tale.waited {
            Waited::All(waited) => waited,
            _ => Waits::default(),
        };
        if let Waited::Behind(cause, ns) = tale.waited {
            waited[cause.number()] = ns;
        }
        tale.waits = since(clocks.look(now), &waited);
        let own = &mut tale.waits[clocks.cause.number()];
        *own = own.wrapping_add(time);
        (tale.turns, tale.array) = (None, tale.array + time);
    }

    /// A parallel unit works for the drive itself.
    #[cold]
    pub fn keeps(&mut self, now: Time, pu: u32, cause: Cause) {
        self.units[pu as usize].turn(now, cause);
    }

    /// An operation takes so much array time more, and of its own accord.
    #[inline]
    pub fn takes(&mut self, id: u32, time: u64) {
        self.ops[id as usize].array += time;
    }

    /// The same of a read that is repeated.
    #[cold]
    pub fn repeats(&mut self, id: u32, time: u64) {
        self.ops[id as usize].retries += time;
    }

    /// Tells of an operation that ends: its data and command took so long on the
    /// channel, and beside what it said itself so long in the array.
    #[inline]
    pub fn ends(&self, now: Time, id: u32, [transfer, array]: [u64; 2], stories: &mut Stories) {
        let tale = &self.ops[id as usize];
        match tale.came {
            Some(came) => {
                let took = [transfer, array + tale.array, tale.retries];
                stories.tell(came).be_operation(now, &tale.waited, took);
            }
            None => _ = stories.tell(Time::ZERO),
        }
    }
}
