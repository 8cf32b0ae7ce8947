//! What the stories of operations are made of: who occupied each parallel unit and
//! for how long, and from when to when each operation waited.
//!
//! A parallel unit has a clock for each cause, which runs while it is occupied by
//! that. An operation that waits notes how they stand, and what they have moved on
//! by when it begins is what it waited behind. Mostly one of them has run all the
//! while, and they need not be compared. Array and channel times are known, and what
//! is left of an operation's time it waited for its channel.
//!
//! A die with several registers does several things at once, of which one is shown:
//! what has the array, or what came to it last where several reads have, or what will
//! have it next where nothing has. Planes that read by themselves have clocks of their
//! own for reads of one plane. Data that still go out of a register are not shown: who
//! waits for that register alone is told of the read that was sensed last.
//! Nothing here fails.

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

/// A parallel unit, and its planes that something takes: what takes one of several is
/// shown to those that wait for that, and for all.
pub(crate) type Place = (u32, u8);

/// Those of all operations and parallel units.
pub(crate) struct Tales {
    ops: Vec<Tale>,
    /// Of each parallel unit one, and one more for each plane that reads by itself.
    clocks: Vec<Clocks>,
    each: usize,
}

impl Tales {
    /// For operations that have these causes, as far as there are some, and parallel
    /// units that are occupied so, with so many planes that read by themselves.
    pub fn new(
        ops: impl Iterator<Item = Cause>,
        units: impl Iterator<Item = Cause>,
        planes: u32,
    ) -> Tales {
        let each = if planes > 1 { 1 + planes as usize } else { 1 };
        let (came, turns, waited) = (None, None, Waited::Not);
        let (waits, array, retries) = (Waits::default(), 0, 0);
        let tale = |cause| Tale { came, cause, turns, waits, waited, array, retries };
        let clocks = |cause| Clocks { stand: waits, cause, since: Time::ZERO, turns: 0 };
        let clocks = units.flat_map(|cause| std::iter::repeat_n(clocks(cause), each));
        Tales { ops: ops.map(tale).collect(), clocks: clocks.collect(), each }
    }

    /// The number of the clocks of a place.
    #[inline]
    fn of(&self, (pu, planes): Place) -> usize {
        let plane =
            if self.each > 1 && planes.is_power_of_two() { 1 + planes.trailing_zeros() } else { 0 };
        pu as usize * self.each + plane as usize
    }

    /// From now on a parallel unit, or a plane of it, is shown to be occupied by this.
    #[inline]
    fn turn(&mut self, now: Time, at: Place, cause: Cause) {
        let (first, own) = (at.0 as usize * self.each, self.of(at));
        self.clocks[own].turn(now, cause);
        if self.each > 1 {
            let others = if own == first { 1..self.each } else { 0..1 };
            others.for_each(|clock| self.clocks[first + clock].turn(now, cause));
        }
    }

    /// An operation came to a parallel unit, and waits there, or begins.
    #[inline]
    pub fn came(&mut self, now: Time, at: Place, id: u32, cause: Cause, waits: bool) {
        let own = self.of(at);
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.clocks[own]);
        (tale.came, tale.cause, tale.waited) = (Some(now), cause, Waited::Not);
        (tale.array, tale.retries) = (0, 0);
        if waits {
            tale.turns = Some(clocks.turns);
            tale.waits = *clocks.look(now);
        } else {
            self.turn(now, at, cause);
        }
    }

    /// An operation that waited begins, or goes on.
    #[cold]
    pub fn begins(&mut self, now: Time, at: Place, id: u32) {
        self.loads(now, at, id);
        self.turn(now, at, self.ops[id as usize].cause);
    }

    /// An operation that waited begins, beside what its parallel unit is at.
    #[cold]
    pub fn loads(&mut self, now: Time, at: Place, id: u32) {
        let own = self.of(at);
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.clocks[own]);
        tale.waited = match tale.came {
            Some(came) if tale.turns == Some(clocks.turns) => {
                Waited::Behind(clocks.cause, now.since(came))
            }
            _ => Waited::All(since(clocks.look(now), &tale.waits)),
        };
    }

    /// A read that waited shares the sensing of another, and the time of it that is
    /// still to come if it is not over.
    pub fn shares(&mut self, now: Time, at: Place, id: u32, is_sensing: bool) {
        self.loads(now, at, id);
        if is_sensing {
            let tale = &mut self.ops[id as usize];
            tale.array = tale.array.wrapping_sub(now.0);
        }
    }

    /// The sensing is over that a read shared.
    pub fn is_sensed(&mut self, now: Time, id: u32) {
        let tale = &mut self.ops[id as usize];
        tale.array = tale.array.wrapping_add(now.0);
    }

    /// An operation is suspended, which takes so long of the array.
    #[cold]
    pub fn suspended(&mut self, now: Time, at: Place, id: u32, time: u64) {
        let own = self.of(at);
        let (tale, clocks) = (&mut self.ops[id as usize], &mut self.clocks[own]);
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

    /// A parallel unit works for the drive itself, which an operation stands for.
    #[cold]
    pub fn keeps(&mut self, now: Time, pu: u32, id: u32, cause: Cause) {
        self.ops[id as usize].cause = cause;
        self.turn(now, (pu, 0), cause);
    }

    /// Nothing has the array of a parallel unit: what is to have it is shown.
    #[cold]
    pub fn awaits(&mut self, now: Time, pu: u32, id: u32) {
        self.turn(now, (pu, 0), self.ops[id as usize].cause);
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
