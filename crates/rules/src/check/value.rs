//! What an expression is, and what it can be: kinds and ranges, from the leaves up.

use super::cases::{self, Case, constant};
use super::fail;
use super::names::Names;
use crate::bounds::Bounds;
use crate::error::{Problem, What};
use crate::request::{FIELDS, Field, LONGEST, Op};
use crate::syntax::{Application, Content, Expr, Kind, Place, Relation, Sum};

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Truth,
    Op,
    Number(Bounds),
    /// In ns.
    Time(Bounds),
    /// Of a block of these units, or none; always none.
    Address(Option<Bounds>),
}

impl Value {
    fn told(self) -> &'static str {
        match self {
            Value::Truth => "a condition",
            Value::Op => "an operation",
            Value::Number(_) => "a number",
            Value::Time(_) => "a time",
            Value::Address(_) => "an address",
        }
    }
}

/// What is known of a request and its application where an expression stands.
#[derive(Clone)]
pub(super) struct Env<'a> {
    pub(super) names: &'a Names<'a>,
    pub(super) application: &'a Application,
    /// What each field can be, but for what is known of addresses.
    known: [Bounds; FIELDS],
    /// What each field can be.
    pub(super) fields: [Bounds; FIELDS],
    /// No request comes here: only names and kinds are checked.
    is_dead: bool,
}

impl<'a> Env<'a> {
    /// Of any request of an application.
    pub(super) fn new(names: &'a Names<'a>, application: &'a Application) -> Env<'a> {
        let mut known = Field::ALL.map(Field::bounds);
        known[Field::Application as usize] = Bounds::one(application.number.into());
        let mut env = Env { names, application, known, fields: known, is_dead: false };
        let settles = env.settle();
        debug_assert!(settles, "an application has blocks");
        env
    }

    /// Derives what the address can be: one of the application's, or 0 where there is none.
    /// Whether it can be anything.
    fn settle(&mut self) -> bool {
        self.fields = self.known;
        let own = self.application.lba;
        let all = match self.known[Field::Op as usize].hi <= Op::Zero as u64 {
            true => own,
            false if self.known[Field::Op as usize].lo > Op::Zero as u64 => Bounds::one(0),
            false => own.hull(Bounds::one(0)),
        };
        let lba = &mut self.fields[Field::Lba as usize];
        let both = lba.both(all);
        *lba = both.unwrap_or(*lba);
        both.is_some()
    }

    /// The same in a case; `None` where it cannot be of this application.
    pub(super) fn narrowed(mut self, case: &Case) -> Option<Env<'a>> {
        for (known, bounds) in self.known.iter_mut().zip(case.fields) {
            *known = known.both(bounds)?;
        }
        self.settle().then_some(self)
    }

    /// The same where no request comes.
    pub(super) fn dead(&self) -> Env<'a> {
        Env { is_dead: true, ..self.clone() }
    }

    /// Something may be outside what it has to be in; that is no problem where no
    /// request comes.
    pub(super) fn outside(&self, what: What, at: Place) -> Result<(), Problem> {
        if self.is_dead { Ok(()) } else { fail(what, at) }
    }

    /// The same where a condition is true; `None` where it never is.
    fn where_true(&self, condition: &Expr) -> Result<Option<Env<'a>>, Problem> {
        let mut hull: Option<[Bounds; FIELDS]> = None;
        for case in cases::of(condition)? {
            let Some(env) = self.clone().narrowed(&case) else { continue };
            hull = Some(match hull {
                None => env.known,
                Some(all) => std::array::from_fn(|n| all[n].hull(env.known[n])),
            });
        }
        let narrowed = hull.map(|known| Env { known, ..self.clone() });
        Ok(narrowed.and_then(|mut env| env.settle().then_some(env)))
    }

    /// Checks a condition.
    pub(super) fn condition(&self, expr: &Expr) -> Result<(), Problem> {
        match self.value(expr)? {
            Value::Truth => Ok(()),
            other => kind("a condition", other, expr),
        }
    }

    pub(super) fn number(&self, expr: &Expr) -> Result<Bounds, Problem> {
        match self.value(expr)? {
            Value::Number(bounds) => Ok(bounds),
            other => kind("a number", other, expr),
        }
    }

    pub(super) fn time(&self, expr: &Expr) -> Result<Bounds, Problem> {
        match self.value(expr)? {
            Value::Time(bounds) => Ok(bounds),
            other => kind("a time", other, expr),
        }
    }

    /// Checks the key of a map.
    pub(super) fn key(&self, map: &str, entries: u64, key: &Expr) -> Result<(), Problem> {
        let has = Bounds { lo: 0, hi: entries - 1 };
        let bounds = self.number(key)?;
        match has.hold(bounds) {
            true => Ok(()),
            false => self.outside(What::Key { map: map.into(), has, key: bounds }, key.at),
        }
    }

    /// What an expression gives, checked.
    pub(super) fn value(&self, expr: &Expr) -> Result<Value, Problem> {
        Ok(match &expr.kind {
            Kind::Always => Value::Truth,
            Kind::Number(n) => Value::Number(Bounds::one(*n)),
            Kind::Time(ns) => Value::Time(Bounds::one(*ns)),
            Kind::None => Value::Address(None),
            Kind::Op(_) | Kind::Field(Field::Op) => Value::Op,
            Kind::Field(Field::Idle) => Value::Time(self.fields[Field::Idle as usize]),
            Kind::Field(field) => Value::Number(self.fields[*field as usize]),
            Kind::Counter(name) => Value::Number(self.names.counter(name, expr.at)?.bounds),
            Kind::Since(name) => {
                self.names.timer(name, expr.at)?;
                Value::Time(Bounds { lo: 0, hi: LONGEST })
            }
            Kind::Entry(name, key) => {
                let map = self.names.map(name, expr.at)?;
                self.key(name, map.entries, key)?;
                match map.content {
                    Content::Number(bounds) => Value::Number(bounds),
                    Content::Address(units) => Value::Address(Some(units)),
                }
            }
            Kind::Sum(sum, a, b) => self.sum(*sum, a, b, expr)?,
            Kind::Compare(relation, a, b) => self.compare(*relation, a, b)?,
            Kind::In(a, from, to) => self.range(a, from, to)?,
            Kind::And(a, b) => {
                self.condition(a)?;
                self.where_true(a)?.unwrap_or_else(|| self.dead()).condition(b)?;
                Value::Truth
            }
            Kind::Or(a, b) => {
                self.condition(a)?;
                self.condition(b)?;
                Value::Truth
            }
            Kind::Not(a) => {
                self.condition(a)?;
                Value::Truth
            }
        })
    }

    fn compare(&self, relation: Relation, a: &Expr, b: &Expr) -> Result<Value, Problem> {
        let (left, right) = (self.value(a)?, self.value(b)?);
        let only_equal = matches!(relation, Relation::Equal | Relation::Unequal);
        match (left, right) {
            (Value::Number(_), Value::Number(_)) | (Value::Time(_), Value::Time(_)) => {}
            (Value::Op, Value::Op) | (Value::Address(_), Value::Address(_)) if only_equal => {}
            (Value::Op | Value::Address(_), _) if !only_equal => {
                return kind("a number or a time", left, a);
            }
            (Value::Truth, _) => {
                return kind("a number, a time, an operation or an address", left, a);
            }
            (_, other) => return kind(left.told(), other, b),
        }
        Ok(Value::Truth)
    }

    fn range(&self, a: &Expr, from: &Expr, to: &Expr) -> Result<Value, Problem> {
        let (left, first, last) = (self.value(a)?, self.value(from)?, self.value(to)?);
        match (left, first, last) {
            (Value::Number(_), Value::Number(_), Value::Number(_))
            | (Value::Time(_), Value::Time(_), Value::Time(_)) => {}
            (Value::Number(_) | Value::Time(_), ..) => {
                let wrong = if left.told() == first.told() { (last, to) } else { (first, from) };
                return kind(left.told(), wrong.0, wrong.1);
            }
            _ => return kind("a number or a time", left, a),
        }
        match (constant(from), constant(to)) {
            (None, _) => kind("a number that is written out", first, from),
            (_, None) => kind("a number that is written out", last, to),
            (Some(from_at), Some(to_at)) if from_at >= to_at => fail(What::Empty, from.at),
            _ => Ok(Value::Truth),
        }
    }

    fn sum(&self, sum: Sum, a: &Expr, b: &Expr, whole: &Expr) -> Result<Value, Problem> {
        let (left, right) = (self.value(a)?, self.value(b)?);
        let (x, y, is_time) = match (sum, left, right) {
            (_, Value::Number(x), Value::Number(y)) => (x, y, false),
            (Sum::Divide, Value::Time(x), Value::Time(y)) => (x, y, false),
            (Sum::Multiply, Value::Number(x), Value::Time(y)) => (x, y, true),
            (Sum::Multiply | Sum::Divide, Value::Time(x), Value::Number(y)) => (x, y, true),
            (Sum::Multiply, Value::Time(_), _) => return kind("a number", right, b),
            (_, Value::Time(x), Value::Time(y)) => (x, y, true),
            (_, Value::Number(_) | Value::Time(_), _) => return kind(left.told(), right, b),
            _ => return kind("a number or a time", left, a),
        };
        let mut y = y;
        if matches!(sum, Sum::Divide | Sum::Remainder) && y.lo == 0 {
            self.outside(What::Zero, b.at)?;
            y = Bounds { lo: 1, hi: y.hi.max(1) };
        }
        let (xs, ys) = ((u128::from(x.lo), u128::from(x.hi)), (u128::from(y.lo), u128::from(y.hi)));
        let (lo, hi) = match sum {
            Sum::Add => (xs.0 + ys.0, xs.1 + ys.1),
            Sum::Subtract => (xs.0.saturating_sub(ys.1), xs.1.saturating_sub(ys.0)),
            Sum::Multiply => (xs.0 * ys.0, xs.1 * ys.1),
            Sum::Divide => (xs.0 / ys.1, xs.1 / ys.0),
            Sum::Remainder if xs.1 < ys.0 => xs,
            Sum::Remainder => (0, xs.1.min(ys.1 - 1)),
            Sum::Min => (xs.0.min(ys.0), xs.1.min(ys.1)),
            Sum::Max => (xs.0.max(ys.0), xs.1.max(ys.1)),
        };
        let most = u128::from(Bounds::ALL.hi);
        if hi > most {
            self.outside(What::Overflow, whole.at)?;
        }
        let bounds = Bounds { lo: lo.min(most) as u64, hi: hi.min(most) as u64 };
        Ok(if is_time { Value::Time(bounds) } else { Value::Number(bounds) })
    }
}

/// An expression is of the wrong kind.
pub(super) fn kind<T>(wanted: &'static str, found: Value, expr: &Expr) -> Result<T, Problem> {
    fail(What::Kind { wanted, found: found.told() }, expr.at)
}
