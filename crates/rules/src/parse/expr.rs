//! Expressions. From the loosest: `or`, `and`, `not`, one comparison, `+ -`, `* / %`.

use super::{MOST_PARTS, Parser};
use crate::error::{Problem, What};
use crate::request::{Field, Op};
use crate::syntax::{Expr, Kind, Place, Relation, Sum};
use crate::token::Token;

/// How tightly `or` and `and` bind; comparisons are between these and arithmetic.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARE: u8 = 4;
const ADD: u8 = 5;
const MULTIPLY: u8 = 6;
const ATOM: u8 = 7;

/// What stands between two sides.
enum Between {
    Or,
    And,
    Compare(Relation),
    In,
    Sum(Sum),
}

impl Parser<'_> {
    /// A whole expression.
    pub(super) fn expr(&mut self) -> Result<Expr, Problem> {
        self.parts = 0;
        self.tight(OR)
    }

    /// Fails where the expression has become too large.
    fn bounded(&self) -> Result<(), Problem> {
        match self.parts > MOST_PARTS {
            true => Err(Problem::new(What::Deep(MOST_PARTS), self.at)),
            false => Ok(()),
        }
    }

    fn between(&self) -> Option<(Between, u8)> {
        let (Token::Word(text) | Token::Sign(text)) = self.token else { return None };
        Some(match text {
            "or" => (Between::Or, OR),
            "and" => (Between::And, AND),
            "in" => (Between::In, COMPARE),
            "==" => (Between::Compare(Relation::Equal), COMPARE),
            "!=" => (Between::Compare(Relation::Unequal), COMPARE),
            "<" => (Between::Compare(Relation::Less), COMPARE),
            "<=" => (Between::Compare(Relation::AtMost), COMPARE),
            ">" => (Between::Compare(Relation::More), COMPARE),
            ">=" => (Between::Compare(Relation::AtLeast), COMPARE),
            "+" => (Between::Sum(Sum::Add), ADD),
            "-" => (Between::Sum(Sum::Subtract), ADD),
            "*" => (Between::Sum(Sum::Multiply), MULTIPLY),
            "/" => (Between::Sum(Sum::Divide), MULTIPLY),
            "%" => (Between::Sum(Sum::Remainder), MULTIPLY),
            _ => return None,
        })
    }

    /// An expression whose signs bind at least so tightly.
    fn tight(&mut self, least: u8) -> Result<Expr, Problem> {
        let start = self.at.start;
        let mut left = self.first(least)?;
        while let Some((between, binds)) = self.between()
            && binds >= least
        {
            self.step()?;
            self.parts += 1;
            self.bounded()?;
            let right = Box::new(self.tight(binds + 1)?);
            let kind = match between {
                Between::Or => Kind::Or(Box::new(left), right),
                Between::And => Kind::And(Box::new(left), right),
                Between::Compare(relation) => Kind::Compare(relation, Box::new(left), right),
                Between::Sum(sum) => Kind::Sum(sum, Box::new(left), right),
                Between::In => {
                    self.must("..")?;
                    self.parts += 1;
                    Kind::In(Box::new(left), right, Box::new(self.tight(binds + 1)?))
                }
            };
            left = Expr { kind, at: Place { start, end: self.last } };
        }
        Ok(left)
    }

    /// What an expression begins with.
    fn first(&mut self, least: u8) -> Result<Expr, Problem> {
        let start = self.at.start;
        self.parts += 1;
        self.bounded()?;
        if self.has("(")? {
            let inner = self.tight(OR)?;
            self.must(")")?;
            return Ok(inner);
        }
        let kind = match self.token {
            Token::Word("not") if least <= NOT => {
                self.step()?;
                Kind::Not(Box::new(self.tight(NOT)?))
            }
            Token::Number(number) => self.literal(Kind::Number(number))?,
            Token::Time(ns) => self.literal(Kind::Time(ns))?,
            Token::Word("always") => self.literal(Kind::Always)?,
            Token::Word("none") => self.literal(Kind::None)?,
            Token::Word("since") => {
                self.step()?;
                self.must("(")?;
                let name = self.name("a timer")?.text;
                self.must(")")?;
                Kind::Since(name)
            }
            Token::Word(word @ ("min" | "max")) => {
                self.step()?;
                self.must("(")?;
                let left = Box::new(self.tight(OR)?);
                self.must(",")?;
                let right = Box::new(self.tight(OR)?);
                self.must(")")?;
                Kind::Sum(if word == "min" { Sum::Min } else { Sum::Max }, left, right)
            }
            Token::Word(word) => match (Op::of(word), Field::of(word)) {
                (Some(op), _) => self.literal(Kind::Op(op))?,
                (_, Some(field)) => self.literal(Kind::Field(field))?,
                _ => self.named()?,
            },
            _ => return Err(self.expected("a value or condition")),
        };
        Ok(Expr { kind, at: Place { start, end: self.last } })
    }

    fn literal(&mut self, kind: Kind) -> Result<Kind, Problem> {
        self.step()?;
        Ok(kind)
    }

    /// A counter or an entry.
    fn named(&mut self) -> Result<Kind, Problem> {
        let name = self.name("a counter, a map or a field")?.text;
        if !self.has("[")? {
            return Ok(Kind::Counter(name));
        }
        let key = Box::new(self.tight(OR)?);
        self.must("]")?;
        Ok(Kind::Entry(name, key))
    }
}

/// How tightly the outermost sign of an expression binds.
pub(crate) fn binds(kind: &Kind) -> u8 {
    match kind {
        Kind::Or(..) => OR,
        Kind::And(..) => AND,
        Kind::Not(_) => NOT,
        Kind::Compare(..) | Kind::In(..) => COMPARE,
        Kind::Sum(Sum::Add | Sum::Subtract, ..) => ADD,
        Kind::Sum(Sum::Multiply | Sum::Divide | Sum::Remainder, ..) => MULTIPLY,
        _ => ATOM,
    }
}
