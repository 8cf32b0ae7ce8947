//! Rules as text: read and printed.
//!
//! ```text
//! write,offset=1G-2G,probability=0.01,count=3,status=write-fault,permanent
//! read,every=1000,delay=5ms
//! medium:bitrot,probability=1e-6
//! ```
//!
//! A rule is a word for what it strikes, then keys, each once, in any order,
//! between commas. A rule with a `delay` is a delay, one whose word begins
//! with `medium:` is for a medium, any other one is an operation fault. What
//! is printed is read back as the same rule. Nothing is guessed: what cannot
//! be read is a [`TextError`] that says what, where, and what would do.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use measure::units;
use port::Status;
use thiserror::Error;

use crate::rule::{
    Access, Delay, DelayRule, FaultRule, MediumFault, MediumRule, Operation, Place, Rule, Span,
    Trigger,
};

/// The longest delay: an hour, in ns.
const LONGEST_DELAY: u64 = 3_600_000_000_000;

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("fault rule {text:?}: at character {at}, {problem}")]
pub struct TextError {
    /// The rule as given.
    pub text: String,
    /// The character where the part begins that is wrong, from 1.
    pub at: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The first word is not known.
    #[error("{word:?} is nothing to strike; write one of {known}")]
    Word {
        /// What was given.
        word: String,
        /// What there is.
        known: String,
    },
    /// No such key.
    #[error("{key:?} is no key of this rule; its keys are {known}")]
    Key {
        /// What was given.
        key: String,
        /// What there is.
        known: &'static str,
    },
    /// The key was given before.
    #[error("{key:?} is given twice; give it once")]
    Twice {
        /// The key.
        key: String,
    },
    /// The value is not one that the key takes.
    #[error("{key:?} cannot be {value:?}: it takes {takes}")]
    Value {
        /// The key.
        key: String,
        /// What was given; nothing where there was no `=`.
        value: String,
        /// What it takes.
        takes: String,
    },
    /// Keys that are right by themselves and not together.
    #[error("{what}; leave one of them out")]
    Together {
        /// Which ones.
        what: &'static str,
    },
}

/// A word for each operation.
const OPERATIONS: [(&str, Operation); 8] = [
    ("any", Operation::Any),
    ("read", Operation::Read),
    ("write", Operation::Write),
    ("flush", Operation::Flush),
    ("trim", Operation::Trim),
    ("write-zeroes", Operation::WriteZeroes),
    ("reset", Operation::Reset),
    ("copy", Operation::Copy),
];

/// A word for what a medium is asked.
const ACCESSES: [(&str, Access); 5] = [
    ("any", Access::Any),
    ("program", Access::Program),
    ("read", Access::Read),
    ("reset", Access::Reset),
    ("flush", Access::Flush),
];

/// A word for each medium fault; of those with more to say, as it is without.
const MEDIUM_FAULTS: [(&str, MediumFault); 6] = [
    ("medium:torn", MediumFault::Torn),
    ("medium:lost", MediumFault::Lost),
    ("medium:misdirected", MediumFault::Misdirected),
    ("medium:bitrot", MediumFault::BitRot),
    ("medium:fail", MediumFault::Fail { on: Access::Any, permanent: false }),
    ("medium:slow", MediumFault::Slow { on: Access::Any, pending: 1 }),
];

/// A word for each status; others are written in hexadecimal.
const STATUSES: [(&str, Status); 18] = [
    ("invalid-opcode", Status::INVALID_OPCODE),
    ("invalid-field", Status::INVALID_FIELD),
    ("internal", Status::INTERNAL),
    ("aborted", Status::ABORTED),
    ("lba-out-of-range", Status::LBA_OUT_OF_RANGE),
    ("capacity-exceeded", Status::CAPACITY_EXCEEDED),
    ("read-only", Status::READ_ONLY),
    ("too-many-open-chunks", Status::TOO_MANY_OPEN_CHUNKS),
    ("write-fault", Status::WRITE_FAULT),
    ("unrecovered-read", Status::UNRECOVERED_READ),
    ("unwritten", Status::UNWRITTEN),
    ("offline-chunk", Status::OFFLINE_CHUNK),
    ("invalid-reset", Status::INVALID_RESET),
    ("high-ecc", Status::HIGH_ECC),
    ("write-next-unit", Status::WRITE_FAILED_WRITE_NEXT_UNIT),
    ("chunk-early-close", Status::CHUNK_EARLY_CLOSE),
    ("out-of-order-write", Status::OUT_OF_ORDER_WRITE),
    ("aborted-by-host", Status::ABORTED_BY_HOST),
];

fn find<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|&(_, item)| item)
}

fn name<T: PartialEq>(table: &[(&'static str, T)], item: &T) -> Option<&'static str> {
    table.iter().find(|(_, i)| i == item).map(|&(name, _)| name)
}

fn words<T>(table: &[(&str, T)]) -> String {
    let names: Vec<&str> = table.iter().map(|&(name, _)| name).collect();
    names.join(", ")
}

/// The keys of each kind of rule, for errors.
const FAULT_KEYS: &str = "offset, ppa, probability, from, every, count, status, permanent, \
                          before, after; or delay";
const DELAY_KEYS: &str = "offset, ppa, probability, from, every, count, delay";

/// Who gives a time to `after` means another thing than it does.
const NO_TIME: &str = "no value, and says that the operation is done before it fails; a rule knows \
                       no time: from=N spares the first N - 1 requests, count=N ends it after N";

fn medium_keys(fault: MediumFault) -> &'static str {
    match fault {
        MediumFault::Fail { .. } => "ppa, probability, from, every, count, on, permanent",
        MediumFault::Slow { .. } => "ppa, probability, from, every, count, on, pending",
        _ => "ppa, probability, from, every, count",
    }
}

/// A part between commas.
#[derive(Clone, Copy)]
struct Part<'a> {
    key: &'a str,
    value: Option<&'a str>,
    /// Bytes before it.
    at: usize,
}

impl Part<'_> {
    /// The value, as `read` reads it.
    fn value<T>(
        &self,
        takes: impl fmt::Display,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Problem> {
        self.value.and_then(read).ok_or_else(|| Problem::Value {
            key: self.key.into(),
            value: self.value.unwrap_or_default().into(),
            takes: takes.to_string(),
        })
    }

    /// A key without a value.
    fn flag(&self) -> Result<bool, Problem> {
        match self.value {
            None => Ok(true),
            Some(value) => Err(Problem::Value {
                key: self.key.into(),
                value: value.into(),
                takes: "no value; leave out the `=` and what follows".into(),
            }),
        }
    }
}

/// The parts of a rule.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut at = 0;
    let part = |piece| {
        let piece: &str = piece;
        let (key, value) = match piece.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (piece.trim(), None),
        };
        let part = Part { key, value, at: at + piece.len() - piece.trim_start().len() };
        at += piece.len() + 1;
        part
    };
    text.split(',').map(part).collect()
}

/// A range, as `read` reads its two ends.
fn range(text: &str, read: impl Fn(&str) -> Option<u64>) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    let range = read(start.trim())?..read(end.trim())?;
    (!range.is_empty()).then_some(range)
}

/// A number, decimal or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    let digits = |s: &str, radix| {
        let plain = s.bytes().all(|b| b.is_ascii_hexdigit());
        if plain { u64::from_str_radix(s, radix).ok() } else { None }
    };
    match text.strip_prefix("0x") {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    }
}

fn positive(text: &str) -> Option<u64> {
    number(text).filter(|&n| n > 0)
}

fn status(text: &str) -> Option<Status> {
    let code = |text: &str| number(text).filter(|&n| text.starts_with("0x") && n <= 0x7ff);
    let coded = || code(text).map(|n| Status(n as u16)).filter(|s| !s.is_ok());
    find(&STATUSES, text).or_else(coded)
}

fn delay(text: &str) -> Option<Delay> {
    let read = |s: &str| units::duration_ns(s).ok();
    let (least, most) = match text.split_once('-') {
        Some((least, most)) => (read(least)?, read(most)?),
        None => (read(text)?, read(text)?),
    };
    (least <= most && most <= LONGEST_DELAY).then_some(Delay { least, most })
}

/// A span that was not given before.
fn new_span(trigger: &Trigger, span: Span) -> Result<Option<Span>, Problem> {
    match trigger.span {
        Some(_) => Err(Problem::Together { what: "`offset` is for block ports, `ppa` for others" }),
        None => Ok(Some(span)),
    }
}

/// Takes a key of the trigger. False when it is none.
fn trigger_key(trigger: &mut Trigger, part: &Part<'_>) -> Result<bool, Problem> {
    const COUNT: &str = "a number from 1";
    match part.key {
        "offset" => {
            let takes = "two sizes, as 1G-2G, the second being the larger and not included";
            let read = part.value(takes, |v| range(v, |end| units::size(end).ok()))?;
            trigger.span = new_span(trigger, Span::Offset(read))?;
        }
        "ppa" => {
            let takes =
                "two addresses, as 0x100-0x200, the second being the larger and not included";
            let read = part.value(takes, |v| range(v, number))?;
            trigger.span = new_span(trigger, Span::Ppa(read))?;
        }
        "probability" => {
            let sane = |p: &f64| *p > 0.0 && *p <= 1.0;
            let read = |v: &str| v.parse().ok().filter(sane);
            trigger.probability = part.value("a number above 0 and at most 1", read)?;
        }
        "from" => trigger.from = part.value(COUNT, positive)?,
        "every" => trigger.every = part.value(COUNT, positive)?,
        "count" => trigger.count = Some(part.value(COUNT, positive)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn unknown(part: &Part<'_>, known: &'static str) -> Problem {
    Problem::Key { key: part.key.into(), known }
}

/// Reads the keys of a rule, each of which `take` takes.
fn each_key(
    keys: &[Part<'_>],
    mut take: impl FnMut(&Part<'_>) -> Result<(), Problem>,
) -> Result<(), (usize, Problem)> {
    for (i, part) in keys.iter().enumerate() {
        if keys[..i].iter().any(|before| before.key == part.key) {
            return Err((part.at, Problem::Twice { key: part.key.into() }));
        }
        take(part).map_err(|problem| (part.at, problem))?;
    }
    Ok(())
}

fn read_fault(operation: Operation, keys: &[Part<'_>]) -> Result<FaultRule, (usize, Problem)> {
    let trigger = Trigger::default();
    let mut rule = FaultRule { operation, trigger, status: None, permanent: false, place: None };
    each_key(keys, |part| {
        match part.key {
            "status" => {
                let takes = format!("{}, or a code as 0x281", words(&STATUSES));
                rule.status = Some(part.value(takes, status)?);
            }
            "permanent" => rule.permanent = part.flag()?,
            "before" | "after" => {
                match part.key {
                    "after" if part.value.is_some() => part.value(NO_TIME, |_| None)?,
                    _ => _ = part.flag()?,
                }
                let place = if part.key == "after" { Place::After } else { Place::Before };
                if rule.place.replace(place).is_some() {
                    let what = "a fault is `before` or `after` its operation";
                    return Err(Problem::Together { what });
                }
            }
            _ if trigger_key(&mut rule.trigger, part)? => {}
            _ => return Err(unknown(part, FAULT_KEYS)),
        }
        addressed(operation == Operation::Flush, &rule.trigger)
    })?;
    Ok(rule)
}

fn read_delay(operation: Operation, keys: &[Part<'_>]) -> Result<DelayRule, (usize, Problem)> {
    let delay_of = Delay { least: 0, most: 0 };
    let mut rule = DelayRule { operation, trigger: Trigger::default(), delay: delay_of };
    each_key(keys, |part| {
        match part.key {
            "delay" => {
                let takes = "a time as 5ms, or two as 1ms-5ms, the second not below the first; \
                             an hour at most";
                rule.delay = part.value(takes, delay)?;
            }
            _ if trigger_key(&mut rule.trigger, part)? => {}
            _ => return Err(unknown(part, DELAY_KEYS)),
        }
        addressed(operation == Operation::Flush, &rule.trigger)
    })?;
    Ok(rule)
}

fn read_medium(fault: MediumFault, keys: &[Part<'_>]) -> Result<MediumRule, (usize, Problem)> {
    let mut rule = MediumRule { fault, trigger: Trigger::default() };
    each_key(keys, |part| {
        match (part.key, &mut rule.fault) {
            ("on", MediumFault::Fail { on, .. } | MediumFault::Slow { on, .. }) => {
                *on = part.value(words(&ACCESSES), |v| find(&ACCESSES, v))?;
            }
            ("permanent", MediumFault::Fail { permanent, .. }) => *permanent = part.flag()?,
            ("pending", MediumFault::Slow { pending, .. }) => {
                let read = |v: &str| positive(v).and_then(|n| u32::try_from(n).ok());
                *pending = part.value("a number from 1 to 4294967295", read)?;
            }
            ("offset", _) => return Err(unknown(part, medium_keys(fault))),
            _ if trigger_key(&mut rule.trigger, part)? => {}
            _ => return Err(unknown(part, medium_keys(fault))),
        }
        addressed(rule.fault.access() == Access::Flush, &rule.trigger)
    })?;
    Ok(rule)
}

/// A flush has no address.
fn addressed(is_flush: bool, trigger: &Trigger) -> Result<(), Problem> {
    match is_flush && trigger.span.is_some() {
        true => Err(Problem::Together { what: "a flush has no address" }),
        false => Ok(()),
    }
}

impl FromStr for Rule {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Rule, TextError> {
        let all = parts(text);
        let (head, keys) = all.split_first().expect("a split text has a part");
        let word = if head.value.is_none() { head.key } else { "" };
        let is_delay = keys.iter().any(|part| part.key == "delay");
        let read = match (find(&MEDIUM_FAULTS, word), find(&OPERATIONS, word)) {
            (Some(fault), _) => read_medium(fault, keys).map(Rule::Medium),
            (_, Some(operation)) if is_delay => read_delay(operation, keys).map(Rule::Delay),
            (_, Some(operation)) => read_fault(operation, keys).map(Rule::Fault),
            (None, None) => {
                let known = format!("{}, {}", words(&OPERATIONS), words(&MEDIUM_FAULTS));
                Err((head.at, Problem::Word { word: head.key.into(), known }))
            }
        };
        read.map_err(|(at, problem)| {
            let at = text[..at.min(text.len())].chars().count() + 1;
            TextError { text: text.into(), at, problem }
        })
    }
}

/// A number in the largest unit of which it is a whole multiple.
struct InUnits(u64, &'static [(&'static str, u64)]);

const SIZES: &[(&str, u64)] = &[("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("k", 1 << 10)];
const TIMES: &[(&str, u64)] = &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl fmt::Display for InUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InUnits(n, units) = *self;
        match units.iter().find(|(_, unit)| n > 0 && n.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", n / unit),
            // A time of zero needs a unit, too.
            None => write!(f, "{n}{}", units.last().filter(|u| u.1 == 1).map_or("", |u| u.0)),
        }
    }
}

impl fmt::Display for Trigger {
    /// Each key that is not as it is by default, with a comma before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.span {
            None => {}
            Some(Span::Offset(r)) => {
                write!(f, ",offset={}-{}", InUnits(r.start, SIZES), InUnits(r.end, SIZES))?;
            }
            Some(Span::Ppa(r)) => write!(f, ",ppa={:#x}-{:#x}", r.start, r.end)?,
        }
        match self.probability {
            1.0 => {}
            p if p < 1e-3 => write!(f, ",probability={p:e}")?,
            p => write!(f, ",probability={p}")?,
        }
        if self.from != 1 {
            write!(f, ",from={}", self.from)?;
        }
        if self.every != 1 {
            write!(f, ",every={}", self.every)?;
        }
        self.count.map_or(Ok(()), |count| write!(f, ",count={count}"))
    }
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", name(&OPERATIONS, &self.operation).unwrap_or_default(), self.trigger)?;
        match self.status.map(|status| (status, name(&STATUSES, &status))) {
            None => {}
            Some((_, Some(word))) => write!(f, ",status={word}")?,
            Some((status, None)) => write!(f, ",status={:#x}", status.0)?,
        }
        if self.permanent {
            f.write_str(",permanent")?;
        }
        f.write_str(match self.place {
            None => "",
            Some(Place::Before) => ",before",
            Some(Place::After) => ",after",
        })
    }
}

impl fmt::Display for DelayRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delay { least, most } = self.delay;
        let operation = name(&OPERATIONS, &self.operation).unwrap_or_default();
        write!(f, "{operation}{},delay={}", self.trigger, InUnits(least, TIMES))?;
        if least == most { Ok(()) } else { write!(f, "-{}", InUnits(most, TIMES)) }
    }
}

impl fmt::Display for MediumRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = |other: &MediumFault| {
            std::mem::discriminant(other) == std::mem::discriminant(&self.fault)
        };
        let known = MEDIUM_FAULTS.iter().find(|(_, fault)| same(fault));
        write!(f, "{}{}", known.map_or("", |k| k.0), self.trigger)?;
        let on = |on: &Access| name(&ACCESSES, on).unwrap_or_default();
        match &self.fault {
            MediumFault::Fail { on: access, permanent } => {
                write!(f, ",on={}{}", on(access), if *permanent { ",permanent" } else { "" })
            }
            MediumFault::Slow { on: access, pending } => {
                write!(f, ",on={},pending={pending}", on(access))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Fault(rule) => rule.fmt(f),
            Rule::Delay(rule) => rule.fmt(f),
            Rule::Medium(rule) => rule.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
