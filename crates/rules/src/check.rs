//! The checker: what must be so before a rule set is installed.
//!
//! Of a set that it accepts it has proved, for every request and every state:
//!
//! - it ends: there are no loops, and at most [`Checked::steps`] parts of expressions are
//!   evaluated;
//! - no sum leaves 63 bits, nothing is divided by 0;
//! - every key is inside its map, every value inside what its counter or map holds;
//! - every unit, stream, channel and remote drive, and the units of every address, are
//!   among those that the request's application was given;
//! - where two rules of one priority can match one request, it makes no difference which is
//!   first, or the first goes on to the second;
//! - at most [`MOST_HITS`] rules without a verdict match one request.
//!
//! It may refuse a set that keeps all that, where it cannot prove it.

mod cases;
mod names;
mod odd;
mod steps;
mod ties;
mod value;

use crate::bounds::Bounds;
use crate::error::{Problem, What};
use crate::parse::{MOST_APPLICATIONS, MOST_RULES, MOST_TABLES};
use crate::request::Field;
use crate::syntax::{Application, Expr, Kind, Place, Set};
use crate::token::MOST_WORD;

pub(crate) use self::cases::constant;
pub use self::cases::{Case, MOST_CASES, Test};
use self::names::Names;
use self::odd::Decided;
use self::value::Env;

/// Rules without a verdict that may match one request.
pub const MOST_HITS: usize = 8;
/// Cases of all conditions together.
const MOST_ALL_CASES: usize = 1 << 14;
/// Parts of rules that are looked at in all, each for each case and application.
const MOST_LOOKS: u64 = 1 << 24;
/// Problems that are told, at most.
const MOST_PROBLEMS: usize = 50;

/// What a control plane lets a set have.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Entries of all maps together.
    pub entries: u64,
    /// Parts of expressions that one request may evaluate.
    pub steps: u64,
    /// What each application was given; `None` where that is what the set says.
    pub applications: Option<Vec<Application>>,
}

impl Default for Budget {
    /// 64 M entries (512 MiB), 1 M steps, and the applications that the set names.
    fn default() -> Budget {
        Budget { entries: 64 << 20, steps: 1 << 20, applications: None }
    }
}

/// A set that may be installed.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The set.
    set: Set,
    /// By rule: it matches where one of these holds.
    cases: Vec<Vec<Case>>,
    /// The most parts of expressions that a request can evaluate.
    steps: u64,
    /// What is odd, and does no harm.
    warnings: Vec<Problem>,
}

impl Checked {
    /// The set.
    pub fn set(&self) -> &Set {
        &self.set
    }

    /// By rule: it matches where one of these holds.
    pub fn cases(&self) -> &[Vec<Case>] {
        &self.cases
    }

    /// The most parts of expressions that a request can evaluate.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What is odd, and does no harm.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

/// Checks a set. Fails with what is wrong, the first problem of each rule and so many
/// problems in all; never with none. Takes time and memory in proportion to the text, and
/// no more than its bounds say.
pub fn check(set: Set, budget: &Budget) -> Result<Checked, Vec<Problem>> {
    look(set, budget).map_err(|mut problems| {
        problems.truncate(MOST_PROBLEMS);
        problems
    })
}

fn look(set: Set, budget: &Budget) -> Result<Checked, Vec<Problem>> {
    let mut problems = Vec::new();
    within(&set, budget, &mut problems);
    let names = Names::new(&set, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (mut all, mut warnings) = (Vec::new(), Vec::new());
    let (mut count, mut looks) = (0, MOST_LOOKS);
    let mut decided = Decided::new(&set);
    for rule in &set.rules {
        match rule_of(&set, &names, rule, (&mut looks, &mut decided), &mut warnings) {
            Ok(cases) => {
                count += cases.len();
                all.push(cases);
            }
            Err(problem) => problems.push(problem),
        }
        let is_too_much = count > MOST_ALL_CASES;
        if is_too_much {
            let what = What::Many("cases of conditions", MOST_ALL_CASES);
            problems.push(Problem::new(what, rule.name.at));
        }
        if is_too_much || problems.len() >= MOST_PROBLEMS {
            break;
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let steps = steps(&set, &all);
    if steps > budget.steps {
        let what = What::Over { what: "steps a request", wants: steps, most: budget.steps };
        problems.push(Problem::new(what, set.name.at));
    }
    if problems.is_empty() {
        ties::look(&set, &all, &mut problems, &mut warnings);
        warnings.extend(odd::shared(&set).into_iter().chain(decided.left(&set)));
        warnings.truncate(MOST_PROBLEMS);
    }
    match problems.is_empty() {
        true => Ok(Checked { set, cases: all, steps, warnings }),
        false => Err(problems),
    }
}

/// Checks a rule, and gives its cases.
fn rule_of(
    set: &Set,
    names: &Names<'_>,
    rule: &crate::syntax::Rule,
    (looks, decided): (&mut u64, &mut Decided),
    warnings: &mut Vec<Problem>,
) -> Result<Vec<Case>, Problem> {
    for application in &set.applications {
        let env = Env::new(names, application);
        env.condition(&rule.when)?;
    }
    let cases = cases::of(&rule.when)?;
    let (cases_of_all, each) = (cases.len() * set.applications.len(), 1 + steps::parts(rule));
    let left = looks.checked_sub(cases_of_all as u64 * each);
    let too_many = || What::Many("parts of rules, for each case and application", 1 << 24);
    *looks = left.ok_or_else(|| Problem::new(too_many(), rule.name.at))?;
    let mut matches = false;
    for case in &cases {
        for (n, application) in set.applications.iter().enumerate() {
            if let Some(env) = Env::new(names, application).narrowed(case) {
                matches = true;
                if rule.decides() {
                    decided.some(n, env.fields[Field::Op as usize]);
                }
                steps::check(rule, &env)?;
            }
        }
    }
    if let (false, Some(any)) = (matches, set.applications.first()) {
        steps::check(rule, &Env::new(names, any).dead())?;
        warnings.push(Problem::new(What::Never, rule.name.at));
    }
    Ok(cases)
}

/// Checks what a set declares against what any may have: one that was made of others was not
/// a text.
fn bounded(set: &Set, problems: &mut Vec<Problem>) {
    for (what, count, most) in [
        ("applications", set.applications.len(), MOST_APPLICATIONS),
        ("maps", set.maps.len(), MOST_TABLES),
        ("counters", set.counters.len(), MOST_TABLES),
        ("timers", set.timers.len(), MOST_TABLES),
        ("limits", set.limits.len(), MOST_TABLES),
        ("rules", set.rules.len(), MOST_RULES),
    ] {
        if count > most {
            problems.push(Problem::new(What::Many(what, most), set.name.at));
        }
    }
    let tables = set.counters.iter().map(|c| &c.name).chain(set.maps.iter().map(|m| &m.name));
    let tables = tables.chain(&set.timers).chain(set.limits.iter().map(|l| &l.name));
    let names = tables.chain(set.rules.iter().map(|rule| &rule.name)).chain([&set.name]);
    let long = names.filter(|name| name.text.len() > MOST_WORD);
    problems.extend(long.map(|name| Problem::new(What::Word(MOST_WORD), name.at)));
}

/// Checks what a set declares against what it may have.
fn within(set: &Set, budget: &Budget, problems: &mut Vec<Problem>) {
    bounded(set, problems);
    let wants = set.maps.iter().fold(0u64, |sum, map| sum.saturating_add(map.entries));
    if wants > budget.entries {
        let what = What::Over { what: "map entries", wants, most: budget.entries };
        let largest = set.maps.iter().max_by_key(|map| map.entries);
        problems.push(Problem::new(what, largest.map_or(set.name.at, |map| map.name.at)));
    }
    if set.applications.is_empty() {
        let what = What::Expected {
            wanted: "an application for which the rules are",
            found: "none: write `application 0 lba 0..1M`".into(),
        };
        problems.push(Problem::new(what, set.name.at));
    }
    for (n, application) in set.applications.iter().enumerate() {
        if set.applications[..n].iter().any(|a| a.number == application.number) {
            let what = What::Twice("application", application.number.to_string());
            problems.push(Problem::new(what, application.at));
        }
        if let Some(given) = &budget.applications {
            let given = given.iter().find(|a| a.number == application.number);
            problems.extend(beyond(application, given));
        }
    }
}

/// What an application asks for that it was not given.
fn beyond(asks: &Application, given: Option<&Application>) -> Option<Problem> {
    let parts = |a: &Application| {
        [
            ("lba", Some(a.lba)),
            ("units", a.units),
            // Who names none has the first.
            ("streams", Some(a.streams.unwrap_or(Bounds::one(0)))),
            ("channels", a.channels),
            ("remotes", a.remotes),
        ]
    };
    let none =
        [("lba", None), ("units", None), ("streams", None), ("channels", None), ("remotes", None)];
    let given = given.map_or(none, parts);
    parts(asks).into_iter().zip(given).find_map(|((what, wants), (_, has))| {
        let wants = wants.filter(|wants| !has.is_some_and(|has| has.hold(*wants)))?;
        let has = has.map_or("none".into(), |has: Bounds| has.to_string());
        let what = What::Beyond { application: asks.number, what, wants, has };
        Some(Problem::new(what, asks.at))
    })
}

/// The most parts that a request can evaluate: all conditions, as they stand or case by case,
/// and the largest rules' changes and actions.
fn steps(set: &Set, all: &[Vec<Case>]) -> u64 {
    let mut conditions = 0;
    let mut largest = 0;
    for (rule, cases) in set.rules.iter().zip(all) {
        let tests = cases.iter().flat_map(|case| &case.tests).map(|test| match test {
            Test::Within(a, _) => 1 + parts(a),
            Test::Compare(_, a, b) => 1 + parts(a) + parts(b),
        });
        conditions += parts(&rule.when).max(tests.sum());
        largest = largest.max(steps::parts(rule));
    }
    conditions + largest * (MOST_HITS as u64 + 1)
}

/// The parts of an expression.
fn parts(expr: &Expr) -> u64 {
    1 + match &expr.kind {
        Kind::Entry(_, a) | Kind::Not(a) => parts(a),
        Kind::Sum(_, a, b) | Kind::Compare(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) => {
            parts(a) + parts(b)
        }
        Kind::In(a, from, to) => parts(a) + parts(from) + parts(to),
        _ => 0,
    }
}

/// A problem at a place.
fn fail<T>(what: What, at: Place) -> Result<T, Problem> {
    Err(Problem::new(what, at))
}
