//! Conditions as cases: a condition is true where one of its cases is. A case is a range of
//! each field of the request, and tests beside it.
//!
//! What stands behind an `and` is in no case without what stands before it: a key that a
//! condition bounds is bounded wherever it is used. So `not (a and b)` is `not a`, or
//! `a and not b`.

use super::fail;
use crate::bounds::Bounds;
use crate::error::{Problem, What};
use crate::request::{FIELDS, Field};
use crate::syntax::{Expr, Kind, Relation, Sum};

/// Cases of a condition, at most.
pub const MOST_CASES: usize = 64;

/// Something beside the ranges of fields that must be so.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A value is in a range.
    Within(Expr, Bounds),
    /// A relation of two values.
    Compare(Relation, Expr, Expr),
}

/// All of these must be so.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// By number of the field, what it may be.
    pub fields: [Bounds; FIELDS],
    /// Tests beside them.
    pub tests: Vec<Test>,
}

impl Case {
    /// The one that is always so.
    pub fn always() -> Case {
        Case { fields: Field::ALL.map(Field::bounds), tests: vec![] }
    }

    /// Both; `None` where that cannot be.
    fn both(&self, other: &Case) -> Option<Case> {
        let mut case = self.clone();
        for (bounds, other) in case.fields.iter_mut().zip(other.fields) {
            *bounds = bounds.both(other)?;
        }
        for test in &other.tests {
            if self.tests.iter().any(|t| excludes(t, test)) {
                return None;
            }
            if !self.tests.contains(test) {
                case.tests.push(test.clone());
            }
        }
        Some(case)
    }

    /// Whether no request and state can be in both.
    pub fn excludes(&self, other: &Case) -> bool {
        self.fields.iter().zip(other.fields).any(|(a, b)| a.both(b).is_none())
            || self.tests.iter().any(|a| other.tests.iter().any(|b| excludes(a, b)))
    }

    /// Whether all of `other` is in it, as far as the fields say.
    pub fn holds(&self, other: &Case) -> bool {
        self.tests.is_empty() && self.fields.iter().zip(other.fields).all(|(a, b)| a.hold(b))
    }
}

/// Which of less, equal and more a relation allows.
fn mask(relation: Relation) -> u8 {
    [(0, 1, 1), (1, 1, 2), (1, 0, 4)]
        .into_iter()
        .map(|(a, b, bit)| if relation.holds(a, b) { bit } else { 0 })
        .sum()
}

/// Whether two tests cannot both be so.
fn excludes(a: &Test, b: &Test) -> bool {
    match (a, b) {
        (Test::Within(a, of), Test::Within(b, and)) => of.both(*and).is_none() && a == b,
        (Test::Compare(r, a, b), Test::Compare(s, c, d)) => {
            (mask(*r) & mask(*s) == 0 && a == c && b == d)
                || (mask(*r) & mask(s.turned()) == 0 && a == d && b == c)
        }
        _ => false,
    }
}

/// Cases, or why there are none: some are too many.
type Cases = Result<Vec<Case>, Problem>;

/// The cases of a condition.
pub(super) fn of(condition: &Expr) -> Cases {
    both(condition).0
}

/// The cases in which a condition is true, and those in which it is false: both at once, as
/// each is needed for either where conditions are nested.
fn both(expr: &Expr) -> (Cases, Cases) {
    let (is, not) = match &expr.kind {
        Kind::Always => (Ok(vec![Case::always()]), Ok(vec![])),
        Kind::Not(a) => {
            let (is, not) = both(a);
            (not, is)
        }
        Kind::And(a, b) => {
            let (a, b) = (both(a), both(b));
            (product(&a.0, &b.0), sum(&a.1, &product(&a.0, &b.1)))
        }
        Kind::Or(a, b) => {
            let (a, b) = (both(a), both(b));
            (sum(&a.0, &b.0), product(&a.1, &b.1))
        }
        Kind::Compare(relation, a, b) => {
            (Ok(compare(*relation, a, b)), Ok(compare(relation.opposite(), a, b)))
        }
        Kind::In(a, from, to) => {
            let (from, to) = (constant(from).unwrap_or(0), constant(to).unwrap_or(0));
            let mut not = within(a, Bounds::of(0, from));
            not.extend(within(a, above(to)));
            (Ok(within(a, Bounds::of(from, to))), Ok(not))
        }
        _ => unreachable!("a condition has a truth value: its kinds were checked"),
    };
    let few = |all: Vec<Case>| match all.len() > MOST_CASES {
        true => fail(What::Wide(MOST_CASES), expr.at),
        false => Ok(all),
    };
    (is.and_then(few), not.and_then(few))
}

/// Those in which one of two is so.
fn sum(a: &Cases, b: &Cases) -> Cases {
    let mut all = a.clone()?;
    all.extend_from_slice(b.as_ref().map_err(Problem::clone)?);
    Ok(all)
}

/// Those in which two are so.
fn product(a: &Cases, b: &Cases) -> Cases {
    let (a, b) = (a.as_ref().map_err(Problem::clone)?, b.as_ref().map_err(Problem::clone)?);
    Ok(a.iter().flat_map(|a| b.iter().filter_map(|b| a.both(b))).collect())
}

/// From a number on.
fn above(from: u64) -> Option<Bounds> {
    (from <= Bounds::ALL.hi).then_some(Bounds { lo: from, hi: Bounds::ALL.hi })
}

/// The case, if any, in which a value is in a range.
fn within(expr: &Expr, bounds: Option<Bounds>) -> Vec<Case> {
    let Some(bounds) = bounds else { return vec![] };
    let mut case = Case::always();
    match expr.kind {
        Kind::Field(field) => match bounds.both(field.bounds()) {
            Some(bounds) => case.fields[field as usize] = bounds,
            None => return vec![],
        },
        _ => case.tests.push(Test::Within(expr.clone(), bounds)),
    }
    vec![case]
}

fn compare(relation: Relation, a: &Expr, b: &Expr) -> Vec<Case> {
    let (relation, a, b, number) = match (constant(a), constant(b)) {
        (Some(a), Some(b)) => {
            return if relation.holds(a, b) { vec![Case::always()] } else { vec![] };
        }
        (_, Some(number)) => (relation, a, b, Some(number)),
        (Some(number), _) => (relation.turned(), b, a, Some(number)),
        _ => (relation, a, b, None),
    };
    let Some(number) = number else {
        let test = Test::Compare(relation, a.clone(), b.clone());
        return vec![Case { tests: vec![test], ..Case::always() }];
    };
    let ranges = match relation {
        Relation::Equal => [Some(Bounds::one(number)), None],
        Relation::Unequal => [Bounds::of(0, number), above(number + 1)],
        Relation::Less => [Bounds::of(0, number), None],
        Relation::AtMost => [Bounds::of(0, number + 1), None],
        Relation::More => [above(number + 1), None],
        Relation::AtLeast => [above(number), None],
    };
    ranges.into_iter().flat_map(|range| within(a, range)).collect()
}

/// The number that an expression is in every request and state, if it names none; a sum that
/// leaves the numbers of the language is none.
pub(crate) fn constant(expr: &Expr) -> Option<u64> {
    let number = match &expr.kind {
        Kind::Number(n) | Kind::Time(n) => *n,
        Kind::Op(op) => *op as u64,
        Kind::None => 0,
        Kind::Sum(sum, a, b) => {
            let (a, b) = (constant(a)?, constant(b)?);
            match sum {
                Sum::Add => a.checked_add(b)?,
                Sum::Subtract => a.saturating_sub(b),
                Sum::Multiply => a.checked_mul(b)?,
                Sum::Divide => a.checked_div(b)?,
                Sum::Remainder => a.checked_rem(b)?,
                Sum::Min => a.min(b),
                Sum::Max => a.max(b),
            }
        }
        _ => return None,
    };
    (number <= Bounds::ALL.hi).then_some(number)
}
