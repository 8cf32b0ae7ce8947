//! What the stories of operations are made of: from when to when each one waited, and what
//! [occupied](crate::history) its parallel unit meanwhile.
//!
//! Noted is little, and a story is made of it when somebody asks for that. Array and channel
//! times are known, and what is left of an operation's time it waited for its channel.
//!
//! A die with several registers does several things at once, of which one is shown:
//! what has the array, or what came to it last where several reads have, or what will
//! have it next where nothing has. Planes that read by themselves have histories of their
//! own for reads of one plane. Data that still go out of a register are not shown: who
//! waits for that register alone is told of the read that was sensed last.
//! Nothing here fails.

use port::story::{Cause, Latest, Waits, Work};
use port::{Part, Story, Time, Whose};

use crate::history::Histories;
use crate::units::{Op, OpKind};

/// All that a die may do.
const WORKS: [Work; 3] = [Work::Read, Work::Program, Work::Erase];
/// The end of a wait that has not ended.
const NEVER: Time = Time(u64::MAX);

/// What an operation moves, and how.
#[derive(Clone, Copy, Default)]
pub(crate) struct Access {
    pub kind: OpKind,
    pub count: u8,
    pub tags: bool,
    pub inside: bool,
}

impl Access {
    #[inline]
    fn of(op: &Op) -> Access {
        Access { kind: op.kind, count: op.count, tags: op.tags, inside: op.inside }
    }
}

/// An operation's.
#[derive(Clone, Copy, Default)]
struct Tale {
    came: Time,
    /// When it began, or went on last.
    until: Time,
    /// Array time beside what its kind says.
    array: u64,
    /// The history of what it waits for, and from where on it is to be read.
    unit: u32,
    from: u32,
    cause: Cause,
    /// It did not come before somebody asked.
    is_known: bool,
    /// There is more that is told of few.
    has_more: bool,
}

/// What is told of few operations.
#[derive(Clone, Copy, Default)]
struct More {
    /// What was waited behind until then; what came after is in the history.
    waits: Waits,
    since: Time,
    /// In the array again.
    retries: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum How {
    /// With an operation.
    #[default]
    Op,
    /// As a flush.
    Flush,
    /// When it came.
    AtOnce,
}

/// What is told of a command that has ended.
#[derive(Clone, Copy, Default)]
struct Ended {
    tale: Tale,
    at: Time,
    access: Access,
    how: How,
    /// Where it has more.
    more: More,
}

/// A parallel unit, and its planes that something takes: what takes one of several is
/// shown to those that wait for that, and for all.
pub(crate) type Place = (u32, u8);

/// Those of all operations and parallel units, and of the commands that ended last.
pub(crate) struct Tales {
    ops: Box<[Tale]>,
    more: Box<[More]>,
    histories: Histories,
    /// Histories of a parallel unit: one, and one more for each plane that reads by itself.
    each: u32,
    ended: Latest<Ended>,
    /// When the last one ended.
    last: Time,
}

impl Tales {
    /// For operations that have these causes, as far as there are some, and parallel
    /// units that are occupied so, with so many planes that read by themselves; of `depth`
    /// commands, and of those that have ended and were not given yet nothing is known.
    pub fn new(
        ops: impl Iterator<Item = Cause>,
        units: impl Iterator<Item = Cause>,
        planes: u32,
        (depth, waiting): (usize, usize),
    ) -> Tales {
        let each = if planes > 1 { 1 + planes } else { 1 };
        let ops: Box<[Tale]> = ops.map(|cause| Tale { cause, ..Tale::default() }).collect();
        Tales {
            more: vec![More::default(); ops.len()].into(),
            ops,
            histories: Histories::new(
                units.flat_map(|cause| std::iter::repeat_n(cause, each as usize)),
            ),
            each,
            ended: Latest::new(depth, waiting),
            last: Time::ZERO,
        }
    }

    /// The number of the history of a place.
    #[inline]
    fn of(&self, (pu, planes): Place) -> u32 {
        let plane =
            if self.each > 1 && planes.is_power_of_two() { 1 + planes.trailing_zeros() } else { 0 };
        pu * self.each + plane
    }

    /// From now on a parallel unit, or a plane of it, is shown to be occupied by this.
    /// As of all below that say so, true where what is inside is to be [brought up to
    /// date](Tales::read) that came to this parallel unit.
    #[inline(never)]
    #[must_use]
    fn turn(&mut self, now: Time, at: Place, cause: Cause) -> bool {
        if self.each == 1 {
            return self.histories.turn(now, at.0, cause);
        }
        let (first, own) = (at.0 * self.each, self.of(at));
        let others = if own == first { first + 1..first + self.each } else { first..first + 1 };
        let mut is_due = self.histories.turn(now, own, cause);
        others.for_each(|unit| is_due |= self.histories.turn(now, unit, cause));
        is_due
    }

    /// An operation came to a place, where it waits.
    pub fn came_to(&mut self, now: Time, at: Place, id: u32, cause: Cause) {
        let unit = self.of(at);
        self.note(now, unit, id, cause, NEVER);
    }

    /// The same where a parallel unit has one history; it waits there, or begins.
    #[inline(always)]
    #[must_use]
    pub fn came(&mut self, now: Time, pu: u32, id: u32, cause: Cause, waits: bool) -> bool {
        self.note(now, pu, id, cause, if waits { NEVER } else { now });
        !waits && !self.histories.occupies(pu, cause) && self.turn(now, (pu, 0), cause)
    }

    #[inline(always)]
    fn note(&mut self, came: Time, unit: u32, id: u32, cause: Cause, until: Time) {
        let from = self.histories.turns(unit);
        let (array, is_known, has_more) = (0, true, false);
        let tale = Tale { came, until, array, unit, from, cause, is_known, has_more };
        self.ops[id as usize] = tale;
    }

    /// An operation that waited begins, or goes on.
    #[inline]
    #[must_use]
    pub fn begins(&mut self, now: Time, at: Place, id: u32) -> bool {
        let tale = &mut self.ops[id as usize];
        tale.until = now;
        let cause = tale.cause;
        let is_same = self.each == 1 && self.histories.occupies(at.0, cause);
        !is_same && self.turn(now, at, cause)
    }

    /// An operation that waited begins, beside what its parallel unit is at.
    #[inline]
    pub fn loads(&mut self, now: Time, id: u32) {
        self.ops[id as usize].until = now;
    }

    /// A read that waited shares the sensing of another, and the time of it that is
    /// still to come if it is not over.
    pub fn shares(&mut self, now: Time, id: u32, is_sensing: bool) {
        self.loads(now, id);
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

    /// An operation is suspended, which takes so long of the array, and waits from then on.
    #[cold]
    pub fn suspended(&mut self, now: Time, at: Place, id: u32, time: u64) {
        if !self.ops[id as usize].is_known {
            return;
        }
        let unit = self.of(at);
        let turns = self.histories.turns(unit);
        self.read_of(now, id);
        let (tale, more) = (&mut self.ops[id as usize], &mut self.more[id as usize]);
        more.since = now + time;
        (tale.until, tale.unit, tale.from) = (NEVER, unit, turns);
        tale.array += time;
    }

    /// A parallel unit works for the drive itself, which an operation stands for.
    #[cold]
    #[must_use]
    pub fn keeps(&mut self, now: Time, pu: u32, id: u32, cause: Cause) -> bool {
        self.ops[id as usize].cause = cause;
        self.turn(now, (pu, 0), cause)
    }

    /// Nothing has the array of a parallel unit: what is to have it is shown.
    #[cold]
    #[must_use]
    pub fn awaits(&mut self, now: Time, pu: u32, id: u32) -> bool {
        self.turn(now, (pu, 0), self.ops[id as usize].cause)
    }

    /// An operation takes so much array time more, and of its own accord.
    #[inline]
    pub fn takes(&mut self, id: u32, time: u64) {
        self.ops[id as usize].array += time;
    }

    /// The same of a read that is repeated.
    #[cold]
    pub fn repeats(&mut self, id: u32, time: u64) {
        self.more_of(id).retries += time;
    }

    /// What is told of few, of one of which it is.
    fn more_of(&mut self, id: u32) -> &mut More {
        let (tale, more) = (&mut self.ops[id as usize], &mut self.more[id as usize]);
        if !tale.has_more {
            tale.has_more = true;
            *more = More { since: tale.came, ..More::default() };
        }
        more
    }

    /// Reads the history of what an operation waits for, or waited, up to now.
    fn read_of(&mut self, now: Time, id: u32) {
        self.more_of(id);
        let (tale, more) = (&mut self.ops[id as usize], &mut self.more[id as usize]);
        let until = tale.until.min(now);
        self.histories.read(tale.unit, tale.from, (more.since, until), &mut more.waits);
        more.since = more.since.max(until);
        tale.from = self.histories.turns(tale.unit);
    }

    /// The same where it is soon written over.
    pub fn read(&mut self, now: Time, id: u32) {
        let tale = &self.ops[id as usize];
        if tale.is_known && self.histories.is_old(tale.unit, tale.from) {
            self.read_of(now, id);
        }
    }

    /// A command ends with this operation; `is_first` where all that ended before were
    /// given, as below.
    #[inline]
    pub fn ends(&mut self, now: Time, (id, op): (u32, &Op), is_first: bool) {
        let tale = &self.ops[id as usize];
        let ended = next(&mut self.ended, &mut self.last, now, is_first);
        // As a piece: field by field it would take twice as much.
        ended.tale = *tale;
        (ended.at, ended.access, ended.how) = (now, Access::of(op), How::Op);
        if tale.has_more {
            ended.more = self.more[id as usize];
        }
    }

    /// A command ends that is no operation: one that is done when it comes, or a flush that
    /// came then.
    #[cold]
    pub fn ends_apart(&mut self, now: Time, flush: Option<Time>, is_first: bool) {
        let came = flush.unwrap_or(now);
        let how = if flush.is_some() { How::Flush } else { How::AtOnce };
        let tale = Tale { came, until: came, is_known: true, ..Tale::default() };
        let ended = next(&mut self.ended, &mut self.last, now, is_first);
        (ended.tale, ended.at, ended.how) = (tale, now, how);
    }

    /// Tells the story of a command that so many ended before in place of another; false
    /// where there was none. `took` says how long it takes of the channel and, by its kind, of
    /// the array. Of one that is forgotten it is empty.
    pub fn tell_of(
        &self,
        number: u64,
        story: &mut Story,
        took: impl Fn(&Access) -> [u64; 2],
    ) -> bool {
        let Some(ended) = self.ended.get(number).filter(|ended| ended.tale.is_known) else {
            *story = Story::default();
            return number < self.ended.count();
        };
        let Ended { tale, at, access, how, more } = ended;
        if *how == How::Flush {
            story.restart(tale.came);
            story.pass(Part::Flush, *at);
            return true;
        }
        let [transfer, array] = if *how == How::Op { took(access) } else { [0; 2] };
        let retries = if tale.has_more { more.retries } else { 0 };
        let took = [transfer, array.wrapping_add(tale.array), retries];
        story.of_operation((tale.came, *at), took, |waits| self.add_waits(ended, waits));
        true
    }

    /// Adds what a command waited for its die.
    #[inline]
    fn add_waits(&self, Ended { tale, more, .. }: &Ended, waits: &mut Waits) {
        let mut since = tale.came;
        if tale.has_more {
            (*waits, since) = (more.waits, more.since);
        }
        if tale.until > since {
            self.histories.read(tale.unit, tale.from, (since, tale.until), waits);
        }
    }

    /// As [`crate::OpenChannel::waited_behind`].
    pub fn waited_behind(&self, number: u64, whose: [Whose; 2]) -> Option<(u64, [u64; 2])> {
        let Ended { tale, more, at, .. } = self.ended.get(number)?;
        if !tale.is_known {
            return None;
        }
        // A bit for each cause that is of these.
        let causes = |whose| WORKS.map(|work| Cause::new(work, whose).number());
        let masks = whose.map(|whose| causes(whose).iter().fold(0, |mask, n| mask | 1u32 << n));
        let (mut sums, mut since) = ([0; 2], tale.came);
        if tale.has_more {
            sums = whose.map(|whose| causes(whose).iter().map(|&n| more.waits[n]).sum());
            since = more.since;
        }
        if tale.until > since {
            let span = (since, tale.until);
            self.histories.for_each(tale.unit, tale.from, span, |cause, ns| {
                for (sum, mask) in sums.iter_mut().zip(masks) {
                    *sum += ns * u64::from(mask >> cause.number() & 1);
                }
            });
        }
        Some((at.since(tale.came), sums))
    }
}

/// The place of a command that ends. Where all before it were given, and time has gone on
/// since, these are forgotten.
#[inline]
fn next<'a>(
    ended: &'a mut Latest<Ended>,
    last: &mut Time,
    now: Time,
    is_first: bool,
) -> &'a mut Ended {
    if is_first && now != *last {
        ended.forget();
    }
    *last = now;
    ended.tell()
}
