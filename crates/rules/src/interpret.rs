//! A slow evaluator, straight from the syntax tree: what a set means.
//!
//! It shares nothing with the compiled form and trusts nothing that the checker has proved:
//! each value, key, unit and address is looked at when it occurs, and what is outside is a
//! [`Crossing`]. Of a set that was checked there is none; tests hold the checker to that.

use std::collections::BTreeMap;

use port::BLOCK_BYTES;
use thiserror::Error;

use crate::decision::{Address, Collect, Decision, Depth, Entry, Fill, Migrate, Verdict};
use crate::request::{Field, LONGEST, Op, Request, View};
use crate::syntax::{
    Action, ActionKind, Application, Assign, Change, Content, Expr, Kind, Map, Most, Rule, Set,
    Slot, Sum,
};

/// Something that a checked set never does.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the words of each say what it is")]
pub enum Crossing {
    #[error("no entry {key} of {map}, which has {entries}")]
    Key { map: String, key: u128, entries: u64 },
    #[error("{name} does not hold {value}")]
    Value { name: String, value: u128 },
    #[error("application {application} has no {what} {value}")]
    Granted { application: u16, what: &'static str, value: u128 },
    #[error("a sum that has no value")]
    Sum,
    #[error("{0} is of the wrong kind")]
    Kind(String),
    #[error("there is no {0}")]
    Unknown(String),
    #[error("an action for another operation")]
    Op,
    #[error("more rules match without a verdict than may")]
    Hits,
}

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Truth(bool),
    Op(Op),
    Number(u128),
    Time(u128),
    Address(Option<Address>),
}

/// A set and its state. Entries take memory when they are set.
#[derive(Clone, Debug)]
pub struct Interpreter<'s> {
    set: &'s Set,
    counters: BTreeMap<&'s str, u128>,
    timers: BTreeMap<&'s str, u64>,
    due: BTreeMap<&'s str, u64>,
    numbers: BTreeMap<(&'s str, u128), u128>,
    addresses: BTreeMap<(&'s str, u128), Address>,
    /// Parts of expressions that the last decision evaluated.
    steps: u64,
}

/// A request, as expressions see it.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request,
    pub(crate) view: &'a View,
}

impl<'s> Interpreter<'s> {
    /// A set, as it begins.
    pub fn new(set: &'s Set) -> Interpreter<'s> {
        Interpreter {
            set,
            counters: BTreeMap::new(),
            timers: BTreeMap::new(),
            due: BTreeMap::new(),
            numbers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            steps: 0,
        }
    }

    /// Parts of expressions that the last decision evaluated.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets a counter. Fails where there is none of that name, or it does not hold that.
    pub fn set_counter(&mut self, name: &str, value: u64) -> Result<(), Crossing> {
        let counter = self.set.counters.iter().find(|c| c.name.text == name);
        let counter = counter.ok_or_else(|| Crossing::Unknown(format!("counter {name}")))?;
        if !counter.bounds.has(value) {
            return Err(Crossing::Value { name: name.into(), value: value.into() });
        }
        self.counters.insert(&counter.name.text, value.into());
        Ok(())
    }

    /// Sets an entry of a map of numbers; of addresses, see [`Interpreter::store`].
    pub fn set_entry(&mut self, name: &str, key: u64, value: u64) -> Result<(), Crossing> {
        let map = self.map(name)?;
        self.bounded(map, key.into())?;
        self.put(map, key.into(), Value::Number(value.into()))
    }

    /// Stores where an entry's block is, as [`crate::State::store`].
    pub fn store(&mut self, entry: Entry, address: Option<Address>) -> Result<(), Crossing> {
        let unknown = || Crossing::Unknown(format!("map {}", entry.map));
        let map = self.set.maps.get(usize::from(entry.map)).ok_or_else(unknown)?;
        self.bounded(map, entry.key.into())?;
        self.put(map, entry.key.into(), Value::Address(address))
    }

    /// What becomes of a request, as [`crate::Compiled::decide`] says it.
    pub fn decide(&mut self, request: &Request, view: &View) -> Result<Decision, Crossing> {
        self.steps = 0;
        let Some((application, request)) = admitted(self.set, request) else {
            return Ok(Decision::bare(Verdict::Refuse));
        };
        let asked = Asked { request: &request, view };
        let mut hits: Vec<usize> = Vec::new();
        for number in by_priority(self.set) {
            let rule = &self.set.rules[number];
            if self.is_true(&rule.when, &asked)? {
                hits.push(number);
                if rule.decides() {
                    break;
                }
            }
        }
        if hits.iter().filter(|&&hit| !self.set.rules[hit].decides()).count() > 8 {
            return Err(Crossing::Hits);
        }
        let idle = request.op == Op::Idle;
        let mut decision = Decision::bare(if idle { Verdict::Pass } else { Verdict::Ask });
        for number in hits {
            let rule = &self.set.rules[number];
            self.carry_out(rule, application, &asked, &mut decision)?;
            if rule.decides() {
                decision.rule = Some(number as u16);
            }
        }
        Ok(decision)
    }

    fn carry_out(
        &mut self,
        rule: &'s Rule,
        application: &Application,
        asked: &Asked<'_>,
        decision: &mut Decision,
    ) -> Result<(), Crossing> {
        for change in &rule.changes {
            self.steps += 1;
            self.change(change, asked)?;
        }
        for action in &rule.actions {
            self.steps += 1;
            self.act(action, application, asked, decision)?;
        }
        Ok(())
    }

    fn change(&mut self, change: &'s Change, asked: &Asked<'_>) -> Result<(), Crossing> {
        match change {
            Change::Start(name) => {
                self.timers.insert(&name.text, asked.view.now);
            }
            Change::Counter(name, assign, value) => {
                let counter = self.set.counters.iter().find(|c| c.name == *name);
                let unknown = || Crossing::Unknown(format!("counter {}", name.text));
                let bounds = counter.ok_or_else(unknown)?.bounds;
                let was = self.counters.get(name.text.as_str()).copied();
                let value = self.number(value, asked)?;
                let was = was.unwrap_or(bounds.lo.into());
                let now = assigned(was, *assign, value, bounds.lo.into(), bounds.hi.into());
                if now < bounds.lo.into() || now > bounds.hi.into() {
                    return Err(Crossing::Value { name: name.text.clone(), value: now });
                }
                self.counters.insert(&name.text, now);
            }
            Change::Entry(name, key, assign, value) => {
                let map = self.map(&name.text)?;
                let key = self.number(key, asked)?;
                self.bounded(map, key)?;
                let mut value = self.value(value, asked)?;
                if let (Value::Number(new), Content::Number(bounds)) = (value, map.content) {
                    let Value::Number(was) = self.entry(map, key) else {
                        return Err(Crossing::Kind(name.text.clone()));
                    };
                    let (lo, hi) = (bounds.lo.into(), bounds.hi.into());
                    value = Value::Number(assigned(was, *assign, new, lo, hi));
                }
                self.put(map, key, value)?;
            }
        }
        Ok(())
    }

    fn act(
        &mut self,
        action: &'s Action,
        application: &Application,
        asked: &Asked<'_>,
        decision: &mut Decision,
    ) -> Result<(), Crossing> {
        let granted = |what, has: Option<crate::bounds::Bounds>, value: u128| {
            let is = u64::try_from(value).is_ok_and(|v| has.is_some_and(|has| has.has(v)));
            let number = application.number;
            let crossing = Crossing::Granted { application: number, what, value };
            if is { Ok(value as u16) } else { Err(crossing) }
        };
        let unit = |value| granted("units", application.units, value);
        let only = |op| if asked.request.op == op { Ok(()) } else { Err(Crossing::Op) };
        match &action.kind {
            ActionKind::Place(to, stream, into) => {
                only(Op::Write)?;
                let to = match to {
                    Some(to) => Some(unit(self.number(to, asked)?)?),
                    None => None,
                };
                let stream = match stream {
                    Some(stream) => self.number(stream, asked)?,
                    None => 0,
                };
                let has = application.streams.or(Some(crate::bounds::Bounds::one(0)));
                let stream = granted("streams", has, stream)?;
                let entry = match into {
                    Some(slot) => Some(self.slot(slot, asked)?),
                    None => None,
                };
                decision.verdict = Verdict::Place { unit: to, stream, entry };
            }
            ActionKind::Serve(slot) => {
                only(Op::Read)?;
                let at = self.lead(slot, asked)?;
                if let Some(address) = at {
                    unit(address.unit().into())?;
                }
                decision.verdict = Verdict::Serve(at);
            }
            ActionKind::Redirect(channel) => {
                let channel = self.number(channel, asked)?;
                let channel = granted("channels", application.channels, channel)?;
                decision.verdict = Verdict::Redirect(channel);
            }
            ActionKind::Remote(drive) => {
                let drive = self.number(drive, asked)?;
                let drive = granted("remotes", application.remotes, drive)?;
                decision.verdict = Verdict::Remote(drive);
            }
            ActionKind::Drop => decision.verdict = Verdict::Drop,
            ActionKind::Refuse => decision.verdict = Verdict::Refuse,
            ActionKind::Ask => decision.verdict = Verdict::Ask,
            ActionKind::Pass => decision.verdict = Verdict::Pass,
            ActionKind::Delay(time) => match self.value(time, asked)? {
                Value::Time(ns) => decision.delay = decision.delay.max(small(ns)?),
                _ => return Err(Crossing::Kind(time.to_string())),
            },
            ActionKind::Limit(name) => self.limit(&name.text, asked.view.now, decision)?,
            ActionKind::Collect(policy, of) => {
                let of = match of {
                    Some(of) => Some(unit(self.number(of, asked)?)?),
                    None => None,
                };
                decision.collect = decision.collect.or(Some(Collect { policy: *policy, unit: of }));
            }
            ActionKind::Fill(to, slot) => {
                only(Op::Read)?;
                let to = match to {
                    Some(to) => Some(unit(self.number(to, asked)?)?),
                    None => None,
                };
                let entry = self.slot(slot, asked)?;
                decision.fill = decision.fill.or(Some(Fill { unit: to, entry }));
            }
            ActionKind::Migrate(slot, to) => {
                let entry = self.slot(slot, asked)?;
                let to = unit(self.number(to, asked)?)?;
                if let Some(from) = self.lead(slot, asked)? {
                    unit(from.unit().into())?;
                    decision.migrate = decision.migrate.or(Some(Migrate { entry, from, unit: to }));
                }
            }
        }
        Ok(())
    }

    fn limit(&mut self, name: &'s str, now: u64, decision: &mut Decision) -> Result<(), Crossing> {
        let at = self.set.limits.iter().position(|limit| limit.name.text == name);
        let at = at.ok_or_else(|| Crossing::Unknown(format!("limit {name}")))?;
        match self.set.limits[at].most {
            Most::Rate(rate, burst) => {
                let due = self.due.get(name).copied().unwrap_or(0);
                let (wait, next) = crate::state::paced(due, now, rate, burst);
                self.due.insert(name, next);
                decision.delay = decision.delay.max(wait);
            }
            Most::Depth(most) => {
                let depth = Depth { limit: at as u16, most: most as u32 };
                decision.depth = decision.depth.or(Some(depth));
            }
            Most::Share(share) => decision.share = decision.share.or(Some(share as u32)),
        }
        Ok(())
    }

    fn map(&self, name: &str) -> Result<&'s Map, Crossing> {
        let map = self.set.maps.iter().find(|map| map.name.text == name);
        map.ok_or_else(|| Crossing::Unknown(format!("map {name}")))
    }

    fn bounded(&self, map: &Map, key: u128) -> Result<(), Crossing> {
        let (name, entries) = (map.name.text.clone(), map.entries);
        let crossing = Crossing::Key { map: name, key, entries };
        if key < entries.into() { Ok(()) } else { Err(crossing) }
    }

    fn entry(&self, map: &'s Map, key: u128) -> Value {
        let at = (map.name.text.as_str(), key);
        match map.content {
            Content::Number(bounds) => {
                Value::Number(self.numbers.get(&at).copied().unwrap_or(bounds.lo.into()))
            }
            Content::Address(_) => Value::Address(self.addresses.get(&at).copied()),
        }
    }

    fn put(&mut self, map: &'s Map, key: u128, value: Value) -> Result<(), Crossing> {
        let (name, at) = (map.name.text.as_str(), (map.name.text.as_str(), key));
        let crossing = |value| Err(Crossing::Value { name: name.into(), value });
        match (map.content, value) {
            (Content::Number(bounds), Value::Number(n)) => {
                if n < bounds.lo.into() || n > bounds.hi.into() {
                    return crossing(n);
                }
                self.numbers.insert(at, n);
            }
            (Content::Address(_), Value::Address(None)) => {
                self.addresses.remove(&at);
            }
            (Content::Address(units), Value::Address(Some(address))) => {
                if !units.has(address.unit().into()) {
                    return crossing(address.number().into());
                }
                self.addresses.insert(at, address);
            }
            _ => return Err(Crossing::Kind(name.into())),
        }
        Ok(())
    }

    fn slot(&mut self, slot: &Slot, asked: &Asked<'_>) -> Result<Entry, Crossing> {
        let key = self.number(&slot.key, asked)?;
        self.steps += 1;
        let map = self.map(&slot.map.text)?;
        self.bounded(map, key)?;
        let number = self.set.maps.iter().position(|other| other.name == map.name);
        Ok(Entry { map: number.expect("it was found") as u16, key: small(key)? })
    }

    /// Where an entry leads.
    fn lead(&mut self, slot: &Slot, asked: &Asked<'_>) -> Result<Option<Address>, Crossing> {
        let entry = self.slot(slot, asked)?;
        match self.entry(self.map(&slot.map.text)?, entry.key.into()) {
            Value::Address(address) => Ok(address),
            _ => Err(Crossing::Kind(slot.map.text.clone())),
        }
    }

    fn number(&mut self, expr: &Expr, asked: &Asked<'_>) -> Result<u128, Crossing> {
        match self.value(expr, asked)? {
            Value::Number(number) => Ok(number),
            _ => Err(Crossing::Kind(expr.to_string())),
        }
    }

    /// Whether a condition is true.
    pub(crate) fn is_true(&mut self, expr: &Expr, asked: &Asked<'_>) -> Result<bool, Crossing> {
        match self.value(expr, asked)? {
            Value::Truth(truth) => Ok(truth),
            _ => Err(Crossing::Kind(expr.to_string())),
        }
    }

    /// An expression's value in words.
    pub(crate) fn told(&mut self, expr: &Expr, asked: &Asked<'_>) -> Result<String, Crossing> {
        Ok(match self.value(expr, asked)? {
            Value::Truth(truth) => truth.to_string(),
            Value::Op(op) => op.word().into(),
            Value::Number(number) => number.to_string(),
            Value::Time(ns) => port::Time(small(ns)?).to_string(),
            Value::Address(None) => "none".into(),
            Value::Address(Some(address)) => address.to_string(),
        })
    }

    fn value(&mut self, expr: &Expr, asked: &Asked<'_>) -> Result<Value, Crossing> {
        self.steps += 1;
        Ok(match &expr.kind {
            Kind::Always => Value::Truth(true),
            Kind::Number(n) => Value::Number((*n).into()),
            Kind::Time(ns) => Value::Time((*ns).into()),
            Kind::None => Value::Address(None),
            Kind::Op(op) => Value::Op(*op),
            Kind::Field(field) => asked.field(*field),
            Kind::Counter(name) => {
                let counter = self.set.counters.iter().find(|c| c.name.text == *name);
                let unknown = || Crossing::Unknown(format!("counter {name}"));
                let least = counter.ok_or_else(unknown)?.bounds.lo.into();
                Value::Number(self.counters.get(name.as_str()).copied().unwrap_or(least))
            }
            Kind::Since(name) => {
                let start = self.timers.get(name.as_str()).copied().unwrap_or(0);
                Value::Time(asked.view.now.saturating_sub(start).min(LONGEST).into())
            }
            Kind::Entry(name, key) => {
                let key = self.number(key, asked)?;
                let map = self.map(name)?;
                self.bounded(map, key)?;
                self.entry(map, key)
            }
            Kind::Sum(sum, a, b) => sum_of(*sum, self.value(a, asked)?, self.value(b, asked)?)?,
            Kind::Compare(relation, a, b) => {
                let order = order(self.value(a, asked)?, self.value(b, asked)?)?;
                let (a, b) = (1 + order as i8, 1);
                Value::Truth(relation.holds(a as u64, b))
            }
            Kind::In(a, from, to) => {
                let a = self.value(a, asked)?;
                let (from, to) = (self.value(from, asked)?, self.value(to, asked)?);
                Value::Truth(order(a, from)?.is_ge() && order(a, to)?.is_lt())
            }
            Kind::And(a, b) => Value::Truth(self.is_true(a, asked)? && self.is_true(b, asked)?),
            Kind::Or(a, b) => Value::Truth(self.is_true(a, asked)? || self.is_true(b, asked)?),
            Kind::Not(a) => Value::Truth(!self.is_true(a, asked)?),
        })
    }
}

impl Asked<'_> {
    fn field(&self, field: Field) -> Value {
        let Asked { request, view } = self;
        Value::Number(match field {
            Field::Op => return Value::Op(request.op),
            Field::Idle => return Value::Time(view.idle.min(LONGEST).into()),
            Field::Application => request.application.into(),
            Field::Channel => request.channel.into(),
            Field::Lba => request.lba.into(),
            Field::Size => request.size.into(),
            Field::Placement => request.placement.into(),
            Field::Temperature => view.temperature.into(),
            Field::Free => view.free.into(),
        })
    }
}

/// The application of a request that it is allowed, and the request as rules see it.
pub(crate) fn admitted<'s>(set: &'s Set, request: &Request) -> Option<(&'s Application, Request)> {
    let application = set.applications.iter().find(|a| a.number == request.application)?;
    if !matches!(request.op, Op::Read | Op::Write | Op::Trim | Op::Zero) {
        return Some((application, Request { lba: 0, size: 0, ..*request }));
    }
    let bytes = u128::from(request.lba) * u128::from(BLOCK_BYTES) + u128::from(request.size);
    let inside = application.lba.has(request.lba)
        && bytes <= (u128::from(application.lba.hi) + 1) * u128::from(BLOCK_BYTES);
    inside.then_some((application, *request))
}

/// Numbers of the rules: the highest priority first, and of equals the first in the text.
pub(crate) fn by_priority(set: &Set) -> Vec<usize> {
    let mut all: Vec<usize> = (0..set.rules.len()).collect();
    all.sort_by(|&a, &b| set.rules[b].priority.cmp(&set.rules[a].priority).then(a.cmp(&b)));
    all
}

fn assigned(was: u128, assign: Assign, value: u128, lo: u128, hi: u128) -> u128 {
    match assign {
        Assign::Set => value,
        Assign::Raise => hi.min(was + value),
        Assign::Lower => lo.max(was.saturating_sub(value)),
    }
}

fn small(value: u128) -> Result<u64, Crossing> {
    u64::try_from(value).map_err(|_| Crossing::Sum)
}

/// How two values of one kind stand to each other.
fn order(a: Value, b: Value) -> Result<std::cmp::Ordering, Crossing> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) | (Value::Time(a), Value::Time(b)) => Ok(a.cmp(&b)),
        (Value::Op(a), Value::Op(b)) => Ok(a.cmp(&b)),
        (Value::Address(a), Value::Address(b)) => Ok(a.cmp(&b)),
        _ => Err(Crossing::Kind(format!("{a:?} beside {b:?}"))),
    }
}

fn sum_of(sum: Sum, a: Value, b: Value) -> Result<Value, Crossing> {
    let (x, y, is_time) = match (sum, a, b) {
        (_, Value::Number(x), Value::Number(y)) => (x, y, false),
        (Sum::Divide, Value::Time(x), Value::Time(y)) => (x, y, false),
        (Sum::Multiply, Value::Number(x), Value::Time(y)) => (x, y, true),
        (Sum::Multiply | Sum::Divide, Value::Time(x), Value::Number(y)) => (x, y, true),
        (Sum::Multiply, ..) => return Err(Crossing::Kind("a product".into())),
        (_, Value::Time(x), Value::Time(y)) => (x, y, true),
        _ => return Err(Crossing::Kind(format!("{a:?} beside {b:?}"))),
    };
    let result = match sum {
        Sum::Add => x.checked_add(y),
        Sum::Subtract => Some(x.saturating_sub(y)),
        Sum::Multiply => x.checked_mul(y),
        Sum::Divide => x.checked_div(y),
        Sum::Remainder => x.checked_rem(y),
        Sum::Min => Some(x.min(y)),
        Sum::Max => Some(x.max(y)),
    };
    let result = result.filter(|&n| n < 1 << 63).ok_or(Crossing::Sum)?;
    Ok(if is_time { Value::Time(result) } else { Value::Number(result) })
}
