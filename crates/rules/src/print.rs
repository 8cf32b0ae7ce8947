//! From syntax tree to text, in the one way in which it is written. What is printed
//! parses to the same tree.

use std::fmt::{self, Display, Formatter};

use crate::bounds::Bounds;
use crate::parse::binds;
use crate::syntax::{
    Action, ActionKind, Application, Assign, Change, Content, Expr, Kind, Limit, Map, Most,
    Relation, Rule, Set, Slot, Sum,
};
use crate::token::{SIZES, TIMES};

/// A number with the largest unit that divides it.
struct InUnits(u64, &'static [(&'static str, u64)]);

impl Display for InUnits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let fits = |(_, size): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*size);
        match self.1.iter().find(fits) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            // A time is never without its unit.
            None if *self.1 == TIMES => write!(f, "{}ns", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

fn number(number: u64) -> InUnits {
    InUnits(number, &SIZES)
}

/// A range, half-open.
struct Range(Bounds);

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", number(self.0.lo), number(self.0.hi + 1))
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "set {}", self.name.text)?;
        let blank = |f: &mut Formatter<'_>, any: bool| if any { writeln!(f) } else { Ok(()) };
        blank(f, !self.applications.is_empty())?;
        self.applications.iter().try_for_each(|a| writeln!(f, "{a}"))?;
        let tables = self.maps.len() + self.counters.len() + self.timers.len() + self.limits.len();
        blank(f, tables > 0)?;
        self.maps.iter().try_for_each(|map| writeln!(f, "{map}"))?;
        for counter in &self.counters {
            writeln!(f, "counter {} {}", counter.name.text, Range(counter.bounds))?;
        }
        self.timers.iter().try_for_each(|name| writeln!(f, "timer {}", name.text))?;
        self.limits.iter().try_for_each(|limit| writeln!(f, "{limit}"))?;
        self.rules.iter().try_for_each(|rule| write!(f, "\n{rule}"))
    }
}

impl Display for Application {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "application {} lba {}", self.number, Range(self.lba))?;
        let parts = [
            ("units", self.units),
            ("streams", self.streams),
            ("channels", self.channels),
            ("remotes", self.remotes),
        ];
        for (word, bounds) in parts {
            if let Some(bounds) = bounds {
                write!(f, " {word} {}", Range(bounds))?;
            }
        }
        Ok(())
    }
}

impl Display for Map {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "map {}[{}] of ", self.name.text, number(self.entries))?;
        match self.content {
            Content::Number(bounds) => write!(f, "{}", Range(bounds)),
            Content::Address(units) => write!(f, "address in {}", Range(units)),
        }
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "limit {} ", self.name.text)?;
        match self.most {
            Most::Rate(rate, burst) => write!(f, "rate {} burst {}", number(rate), number(burst)),
            Most::Depth(depth) => write!(f, "depth {}", number(depth)),
            Most::Share(share) => write!(f, "share {}", number(share)),
        }
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "rule {} priority {}", self.name.text, self.priority)?;
        writeln!(f, "  when {}", self.when)?;
        for (n, change) in self.changes.iter().enumerate() {
            let end = if n + 1 < self.changes.len() { ";" } else { "" };
            writeln!(f, "  {} {change}{end}", if n == 0 { "do" } else { "  " })?;
        }
        for (n, action) in self.actions.iter().enumerate() {
            let end = if n + 1 < self.actions.len() { "," } else { "" };
            writeln!(f, "  {} {action}{end}", if n == 0 { "then" } else { "    " })?;
        }
        Ok(())
    }
}

/// An expression that must bind so tightly: in brackets, where it does not.
struct Tight<'e>(&'e Expr, u8);

impl Display for Tight<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if binds(&self.0.kind) < self.1 { write!(f, "({})", self.0) } else { self.0.fmt(f) }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let own = binds(&self.kind);
        // Signs go from the left: what is on the right must bind more tightly.
        let two = |f: &mut Formatter<'_>, left, sign: &str, right| {
            write!(f, "{} {sign} {}", Tight(left, own), Tight(right, own + 1))
        };
        match &self.kind {
            Kind::Always => f.write_str("always"),
            Kind::Number(n) => number(*n).fmt(f),
            Kind::Time(ns) => InUnits(*ns, &TIMES).fmt(f),
            Kind::None => f.write_str("none"),
            Kind::Op(op) => f.write_str(op.word()),
            Kind::Field(field) => f.write_str(field.word()),
            Kind::Counter(name) => f.write_str(name),
            Kind::Since(name) => write!(f, "since({name})"),
            Kind::Entry(name, key) => write!(f, "{name}[{key}]"),
            Kind::Sum(Sum::Min, a, b) => write!(f, "min({a}, {b})"),
            Kind::Sum(Sum::Max, a, b) => write!(f, "max({a}, {b})"),
            Kind::Sum(sum, a, b) => two(f, a, sum.sign(), b),
            Kind::Compare(relation, a, b) => two(f, a, relation.sign(), b),
            Kind::In(a, from, to) => {
                two(f, a, "in", from)?;
                write!(f, "..{}", Tight(to, own + 1))
            }
            Kind::And(a, b) => two(f, a, "and", b),
            Kind::Or(a, b) => two(f, a, "or", b),
            Kind::Not(a) => write!(f, "not {}", Tight(a, own)),
        }
    }
}

impl Sum {
    /// Its sign or word.
    pub fn sign(self) -> &'static str {
        match self {
            Sum::Add => "+",
            Sum::Subtract => "-",
            Sum::Multiply => "*",
            Sum::Divide => "/",
            Sum::Remainder => "%",
            Sum::Min => "min",
            Sum::Max => "max",
        }
    }
}

impl Relation {
    /// Its sign.
    pub fn sign(self) -> &'static str {
        match self {
            Relation::Equal => "==",
            Relation::Unequal => "!=",
            Relation::Less => "<",
            Relation::AtMost => "<=",
            Relation::More => ">",
            Relation::AtLeast => ">=",
        }
    }
}

impl Display for Assign {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Assign::Set => "=",
            Assign::Raise => "+=",
            Assign::Lower => "-=",
        })
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Change::Counter(name, assign, value) => write!(f, "{} {assign} {value}", name.text),
            Change::Entry(name, key, assign, value) => {
                write!(f, "{}[{key}] {assign} {value}", name.text)
            }
            Change::Start(name) => write!(f, "start {}", name.text),
        }
    }
}

impl Display for Slot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.map.text, self.key)
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let with = |f: &mut Formatter<'_>, word: &str, expr: &Option<Expr>| match expr {
            Some(expr) => write!(f, " {word} {expr}"),
            None => Ok(()),
        };
        match &self.kind {
            ActionKind::Place(unit, stream, slot) => {
                f.write_str("place")?;
                with(f, "unit", unit)?;
                with(f, "stream", stream)?;
                slot.as_ref().map_or(Ok(()), |slot| write!(f, " into {slot}"))
            }
            ActionKind::Serve(slot) => write!(f, "serve {slot}"),
            ActionKind::Redirect(channel) => write!(f, "redirect {channel}"),
            ActionKind::Remote(drive) => write!(f, "remote {drive}"),
            ActionKind::Drop => f.write_str("drop"),
            ActionKind::Refuse => f.write_str("refuse"),
            ActionKind::Ask => f.write_str("ask"),
            ActionKind::Pass => f.write_str("pass"),
            ActionKind::Delay(time) => write!(f, "delay {time}"),
            ActionKind::Limit(name) => write!(f, "limit {}", name.text),
            ActionKind::Collect(policy, unit) => {
                write!(f, "collect {}", policy.word())?;
                with(f, "unit", unit)
            }
            ActionKind::Migrate(slot, unit) => write!(f, "migrate {slot} to {unit}"),
            ActionKind::Fill(unit, slot) => {
                f.write_str("fill")?;
                with(f, "unit", unit)?;
                write!(f, " into {slot}")
            }
        }
    }
}
