//! The order of rules: that no two of one priority leave open what becomes of a request,
//! and that few enough go on to others.

use super::{Case, MOST_HITS};
use crate::error::{Problem, What};
use crate::syntax::Set;

/// Looks at all pairs that matter.
pub(super) fn look(
    set: &Set,
    cases: &[Vec<Case>],
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    let order = set.order();
    for (n, &late) in order.iter().enumerate() {
        let rule = &set.rules[late];
        let before = order[..n].iter().rev();
        let same = before.take_while(|&&early| set.rules[early].priority == rule.priority);
        for &early in same {
            let first = &set.rules[early];
            let differ = first.changes != rule.changes || first.actions != rule.actions;
            if first.decides() && differ && meet(&cases[early], &cases[late]) {
                let (first, second) = (first.name.text.clone(), rule.name.text.clone());
                problems.push(Problem::new(What::Tie { first, second }, rule.name.at));
                break;
            }
        }
    }
    hits(set, cases, problems);
    shadows(set, cases, &order, warnings);
}

/// Whether a request and state can be in a case of both.
fn meet(a: &[Case], b: &[Case]) -> bool {
    a.iter().any(|a| b.iter().any(|b| !a.excludes(b)))
}

/// No more rules go on than a rule meets of them, and itself.
fn hits(set: &Set, cases: &[Vec<Case>], problems: &mut Vec<Problem>) {
    let go_on: Vec<usize> = (0..set.rules.len()).filter(|&n| !set.rules[n].decides()).collect();
    for &rule in &go_on {
        if cases[rule].is_empty() {
            continue;
        }
        let others = go_on.iter().filter(|&&other| other != rule);
        let met = others.filter(|&&other| meet(&cases[rule], &cases[other])).take(MOST_HITS);
        if met.count() == MOST_HITS {
            problems.push(Problem::new(What::Hits(MOST_HITS), set.rules[rule].name.at));
            return;
        }
    }
}

/// Rules that no request comes to.
fn shadows(set: &Set, cases: &[Vec<Case>], order: &[usize], warnings: &mut Vec<Problem>) {
    let mut deciding: Vec<usize> = Vec::new();
    for &rule in order {
        let shadow = deciding.iter().find(|&&early| {
            !cases[rule].is_empty()
                && cases[rule].iter().all(|case| cases[early].iter().any(|all| all.holds(case)))
        });
        if let Some(&early) = shadow {
            let what = What::Shadowed(set.rules[early].name.text.clone());
            warnings.push(Problem::new(what, set.rules[rule].name.at));
        }
        let plain = cases[rule].iter().any(|case| case.tests.is_empty());
        if set.rules[rule].decides() && plain {
            deciding.push(rule);
        }
    }
}
