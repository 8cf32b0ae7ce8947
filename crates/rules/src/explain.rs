//! Which rule a request would hit, and why those before it do not match.

use crate::decision::Decision;
use crate::interpret::{Asked, Crossing, Interpreter, admitted, by_priority};
use crate::request::{Request, View};
use crate::syntax::{Expr, Kind, Set};

/// What is to be said of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number in the text.
    pub rule: usize,
    /// It matches.
    pub matches: bool,
    /// Where it does not: what of its condition is not so, and what is.
    pub why: Vec<String>,
}

/// What becomes of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The rules that are asked, in their order, up to the one that decides.
    pub rules: Vec<Told>,
    /// Whether the request is inside what its application was given.
    pub admitted: bool,
    /// What becomes of it.
    pub decision: Decision,
}

/// Explains a request in a state. Fails only for a set that was not checked.
pub fn explain(
    set: &Set,
    state: &Interpreter<'_>,
    request: &Request,
    view: &View,
) -> Result<Explained, Crossing> {
    let mut state = state.clone();
    let decision = state.clone().decide(request, view)?;
    let Some((_, request)) = admitted(set, request) else {
        return Ok(Explained { rules: vec![], admitted: false, decision });
    };
    let asked = Asked { request: &request, view };
    let mut rules = Vec::new();
    for rule in by_priority(set) {
        let when = &set.rules[rule].when;
        let matches = state.is_true(when, &asked)?;
        let mut why = Vec::new();
        if !matches {
            reasons(&mut state, when, false, &asked, &mut why)?;
        }
        rules.push(Told { rule, matches, why });
        if matches && set.rules[rule].decides() {
            break;
        }
    }
    Ok(Explained { rules, admitted: true, decision })
}

/// The comparisons by which a condition is what it is.
fn reasons(
    state: &mut Interpreter<'_>,
    expr: &Expr,
    is: bool,
    asked: &Asked<'_>,
    why: &mut Vec<String>,
) -> Result<(), Crossing> {
    match &expr.kind {
        Kind::Not(a) => reasons(state, a, !is, asked, why)?,
        // Of an `and` that is false the first that is, of one that is true both; of an `or`
        // the other way round.
        Kind::And(a, b) | Kind::Or(a, b) => {
            let one = matches!(expr.kind, Kind::And(..)) != is;
            if !one || state.is_true(a, asked)? == is {
                reasons(state, a, is, asked, why)?;
                if one {
                    return Ok(());
                }
            }
            reasons(state, b, is, asked, why)?;
        }
        Kind::Compare(_, a, b) => {
            let so = if is { "" } else { " is not so" };
            let mut values = Vec::new();
            for side in [a, b] {
                let value = state.told(side, asked)?;
                let text = side.to_string();
                if value != text && !matches!(side.kind, Kind::Number(_) | Kind::Time(_)) {
                    values.push(format!("{text} is {value}"));
                }
            }
            let values = if values.is_empty() { "always".into() } else { values.join(", ") };
            why.push(format!("`{expr}`{so}: {values}"));
        }
        Kind::In(a, ..) => {
            let so = if is { "" } else { " is not so" };
            why.push(format!("`{expr}`{so}: {a} is {}", state.told(a, asked)?));
        }
        _ => why.push(format!("`{expr}`")),
    }
    Ok(())
}
