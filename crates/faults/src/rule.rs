//! Rules: which operations a fault or a delay strikes, and how.
//!
//! A rule is plain data. It is checked when a port is made with it, and read
//! from and printed as text by [`crate::text`].

use std::ops::Range;

use port::Status;
use port::random::Random;
use thiserror::Error;

/// What a command asks for, on a port of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// All of them.
    Any,
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush. It has no address.
    Flush,
    /// A trim (block ports).
    Trim,
    /// Write zeroes (block ports).
    WriteZeroes,
    /// A reset of chunks (vector ports).
    Reset,
    /// A copy inside the drive (vector ports). Its addresses are the sources
    /// and the targets.
    Copy,
}

impl Operation {
    /// Whether a rule for this one is a rule for `other`.
    pub fn takes(self, other: Operation) -> bool {
        self == Operation::Any || self == other
    }
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// Bytes of a block drive.
    Offset(Range<u64>),
    /// Packed physical addresses ([`flash::Ppa`]) of an open-channel drive or
    /// a medium.
    Ppa(Range<u64>),
}

impl Span {
    /// The numbers.
    pub fn range(&self) -> &Range<u64> {
        match self {
            Span::Offset(range) | Span::Ppa(range) => range,
        }
    }
}

/// When a rule strikes. What it counts are matches: a block request is one, a
/// vector command one for each of its addresses (a flush is one), an operation
/// of a medium one.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// Only what touches these addresses matches; all where there are none.
    pub span: Option<Span>,
    /// Strikes a match with this probability, above 0 and at most 1.
    pub probability: f64,
    /// The first match that it may strike, from 1.
    pub from: u64,
    /// Of the matches from `from` on, only every `every`-th, from 1.
    pub every: u64,
    /// How often it strikes; without end where there is none.
    pub count: Option<u64>,
}

impl Default for Trigger {
    /// Strikes every time.
    fn default() -> Trigger {
        Trigger { span: None, probability: 1.0, from: 1, every: 1, count: None }
    }
}

/// Whether the operation of a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The command never reaches the port below. A vector command fails in
    /// all its addresses, since none of them was done.
    Before,
    /// It is done below, then its completion is changed.
    After,
}

/// Makes operations fail.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// Which operations.
    pub operation: Operation,
    /// Which of them.
    pub trigger: Trigger,
    /// The answer; where there is none, what a drive would say
    /// ([`crate::Command::failure`]).
    pub status: Option<Status>,
    /// What was struck fails from then on, each time, uncounted: its addresses
    /// for the operations of the rule, or all flushes.
    pub permanent: bool,
    /// Where there is none: before on block ports; after on vector ports, as
    /// flash does, so that write pointers move on.
    pub place: Option<Place>,
}

/// How long a delay is: from `least` to `most` nanoseconds, each as likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Nanoseconds.
    pub least: u64,
    /// Nanoseconds, at least `least`.
    pub most: u64,
}

/// Makes operations late.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayRule {
    /// Which operations.
    pub operation: Operation,
    /// Which of them. A vector command is late by the sum over its addresses
    /// that are struck.
    pub trigger: Trigger,
    /// By how much.
    pub delay: Delay,
}

/// What a medium is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of them.
    Any,
    /// A program.
    Program,
    /// A read.
    Read,
    /// A reset.
    Reset,
    /// A barrier. It has no address.
    Flush,
}

impl Access {
    /// Whether a rule for this one is a rule for `other`.
    pub fn takes(self, other: Access) -> bool {
        self == Access::Any || self == other
    }
}

/// What goes wrong in a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumFault {
    /// A program says done and stores only some sectors: the first ones, or
    /// any.
    Torn,
    /// A program says done and stores nothing.
    Lost,
    /// A program says done and stores to another address of the chunk, or to
    /// the same place of another chunk.
    Misdirected,
    /// A byte of a stored block flips and stays so until the block is
    /// programmed again or its chunk reset. Counted in blocks read.
    BitRot,
    /// The medium cannot do it, and does nothing.
    Fail {
        /// What it cannot do.
        on: Access,
        /// Nor at any later time at these addresses.
        permanent: bool,
    },
    /// The medium answers [`flash::Moved::Pending`] before it does it.
    Slow {
        /// What takes it long.
        on: Access,
        /// How many times, from 1.
        pending: u32,
    },
}

impl MediumFault {
    /// What it strikes.
    pub fn access(self) -> Access {
        match self {
            MediumFault::Torn | MediumFault::Lost | MediumFault::Misdirected => Access::Program,
            MediumFault::BitRot => Access::Read,
            MediumFault::Fail { on, .. } | MediumFault::Slow { on, .. } => on,
        }
    }
}

/// Makes a medium damage, lose or refuse.
#[derive(Clone, Debug, PartialEq)]
pub struct MediumRule {
    /// What goes wrong.
    pub fault: MediumFault,
    /// When. Addresses are a [`Span::Ppa`].
    pub trigger: Trigger,
}

/// A rule of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// For a [`crate::FaultPort`].
    Fault(FaultRule),
    /// For a [`crate::DelayPort`].
    Delay(DelayRule),
    /// For a [`crate::FaultyMedium`].
    Medium(MediumRule),
}

/// A rule that can strike nothing where it was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WrongPort {
    /// The operation is of the other kind of port.
    #[error("{operation:?} is no operation of a {kind}; the operations there are {known}")]
    Operation {
        /// Which one.
        operation: Operation,
        /// What kind of port it is.
        kind: &'static str,
        /// What it has.
        known: &'static str,
    },
    /// The addresses are of the other kind.
    #[error("a {kind} is addressed by `{takes}`, not `{given}`")]
    Span {
        /// What kind of port it is.
        kind: &'static str,
        /// How it is addressed.
        takes: &'static str,
        /// How the rule is.
        given: &'static str,
    },
}

/// A trigger at work: what it counted so far.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    trigger: Trigger,
    seen: u64,
    struck: u64,
    random: Random,
}

impl Counter {
    /// The trigger of the rule number `index`.
    pub fn new(trigger: Trigger, seed: u64, index: usize) -> Counter {
        Counter { trigger, seen: 0, struck: 0, random: Random::new(seed, index as u64) }
    }

    /// How often it struck.
    pub fn struck(&self) -> u64 {
        self.struck
    }

    /// The rule's own random numbers.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The part of `range` that it is about.
    pub fn part_of(&self, range: &Range<u64>) -> Range<u64> {
        match &self.trigger.span {
            None => range.clone(),
            Some(span) => span.range().start.max(range.start)..span.range().end.min(range.end),
        }
    }

    /// Whether it has addresses, so that what has none is not for it.
    pub fn has_span(&self) -> bool {
        self.trigger.span.is_some()
    }

    /// Counts a match and says whether it is struck.
    pub fn strikes(&mut self) -> bool {
        let Trigger { probability, from, every, count, .. } = self.trigger;
        self.seen += 1;
        let late = self.seen < from || count.is_some_and(|count| self.struck >= count);
        if late || !(self.seen - from + 1).is_multiple_of(every) {
            return false;
        }
        let hit = probability >= 1.0 || self.random.chance(probability);
        self.struck += u64::from(hit);
        hit
    }
}
