//! What is wrong with a rule set: what, where in the text, and what to do.

use std::fmt::Write;

use thiserror::Error;

use crate::bounds::Bounds;
use crate::syntax::Place;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the words of each say what it is")]
pub enum What {
    #[error("the text has {0} bytes")]
    Long(usize),
    #[error("this is not UTF-8")]
    NotText,
    #[error("nothing begins with {0:?}")]
    Character(char),
    #[error("the number is more than 2^63 - 1")]
    Large,
    #[error("the word has more than {0} characters")]
    Word(usize),
    #[error("{0:?} is no unit")]
    Unit(String),
    #[error("expected {wanted}, found {found}")]
    Expected { wanted: &'static str, found: String },
    #[error("{0:?} is a word of the language")]
    Reserved(String),
    #[error("the expression has more than {0} parts")]
    Deep(usize),
    #[error("there are more than {1} {0}")]
    Many(&'static str, usize),
    #[error("there is a second {0} {1}")]
    Twice(&'static str, String),
    #[error("there is no {kind} {name}")]
    Unknown { kind: &'static str, name: String, near: Option<String> },
    #[error("the range is empty")]
    Empty,
    #[error("{what} goes up to {most}")]
    Past { what: &'static str, most: u64 },
    #[error("expected {wanted}, and this is {found}")]
    Kind { wanted: &'static str, found: &'static str },
    #[error("the result may be more than 2^63 - 1")]
    Overflow,
    #[error("the divisor may be 0")]
    Zero,
    #[error("{map} has the entries {has}, and the key may be {key}")]
    Key { map: String, has: Bounds, key: Bounds },
    #[error("{name} holds {has}, and the value may be {value}")]
    Value { name: String, has: Bounds, value: Bounds },
    #[error("{name} holds addresses of the units {has}, and these may be of {value}")]
    Units { name: String, has: Bounds, value: Bounds },
    #[error("application {application} has no {what}")]
    Nothing { application: u16, what: &'static str },
    #[error("application {application} has the {what} {has}, and this may be {value}")]
    Granted { application: u16, what: &'static str, has: Bounds, value: Bounds },
    #[error("{action} is for a {op}, and the rule may match others")]
    Op { action: &'static str, op: &'static str },
    #[error("the delay may be more than {0} s")]
    Delay(u64),
    #[error("a second verdict: a rule has one")]
    Verdicts,
    #[error("the set asks for {wants} {what}, and may have {most}")]
    Over { what: &'static str, wants: u64, most: u64 },
    #[error("the set asks for the {what} {wants} for application {application}, which has {has}")]
    Beyond { application: u16, what: &'static str, wants: Bounds, has: String },
    #[error("the condition has more than {0} cases")]
    Wide(usize),
    #[error("no rule decides {ops} of application {application}")]
    Undecided { application: u16, ops: String },
    #[error("applications {first} and {second} both name the blocks {lba}")]
    Shared { first: u16, second: u16, lba: Bounds },
    #[error("the rule never matches")]
    Never,
    #[error("no request comes to this rule: {0} decides all that it matches")]
    Shadowed(String),
    #[error("{first} and {second} have the same priority and can match the same request")]
    Tie { first: String, second: String },
    #[error("more than {0} rules without a verdict can match one request")]
    Hits(usize),
}

impl What {
    /// What to do about it.
    pub fn help(&self) -> String {
        use What::*;
        let text = match self {
            Long(_) => "a rule set has 1 MiB at most",
            NotText => "write it as UTF-8",
            Character(_) => "remove it; comments begin with #",
            Large => "write a smaller one",
            Word(_) => "choose a shorter name",
            Unit(_) => "sizes have K, M, G or T; times ns, us, ms, s or min",
            Expected { found, .. } if found == "`=`" => "to compare write ==",
            Expected { .. } => "docs/rules.md has the language",
            Reserved(_) => "choose another name",
            Deep(_) => "cut the rule into several",
            Many(..) => "cut the set into several",
            Twice(..) => "remove one, or give it another name",
            Unknown { near: Some(near), .. } => return format!("do you mean {near}?"),
            Unknown { .. } => "declare it before the rules",
            Empty => "a range a..b goes from a up to, and without, b",
            Past { .. } => "write a smaller one",
            Kind { found: "an operation", .. } => "compare operations by == or !=",
            Kind { wanted: "none, set by =", .. } => {
                "an entry of addresses is set by place, fill or migrate, and cleared by `= none`"
            }
            Kind { .. } => "write times with a unit, and compare like with like",
            Overflow => "bound the values by a condition, or by min(...) or %",
            Zero => "divide by max(1, ...)",
            Key { .. } => "bound the key by a condition that stands before, or by %",
            Value { .. } => "bound the value by min(...) or %, or write += or -=, which stop there",
            Units { .. } => "keep them in a map of these units",
            Nothing { what, .. } => return format!("add {what} to its line, or do without"),
            Granted { .. } => "bound it by a condition, min(...) or %, or match fewer applications",
            Op { op, .. } => return format!("add `op == {op}` to the condition"),
            Delay(_) => "bound it, by min or %",
            Verdicts => "leave one, or make two rules",
            Over { .. } => "make the maps smaller, or ask the control plane for more",
            Beyond { has, .. } if has == "none" => {
                "`ssdkit rules list` prints the applications of a drive, and what each has"
            }
            Beyond { .. } => "ask for less: `ssdkit rules list` prints what each has on a drive",
            Wide(_) => "cut the rule into several",
            Undecided { .. } => {
                "it goes to the control plane, and fails where there is none: add a rule, with `then pass` or `then drop`"
            }
            Shared { first, .. } => {
                return format!(
                    "application {first} has them, as it stands first: let them differ"
                );
            }
            Never => "remove it, or mend its condition",
            Shadowed(_) => "give it a higher priority, or remove it",
            Tie { first, .. } => {
                return format!(
                    "{first} would be first, as it stands first: give one a higher priority, or let them exclude each other"
                );
            }
            Hits(_) => "let them exclude each other, or put them together",
        };
        text.into()
    }

    /// Whether the set can be installed all the same.
    pub fn is_warning(&self) -> bool {
        use What::*;
        matches!(self, Never | Shadowed(_) | Undecided { .. } | Shared { .. })
    }
}

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct Problem {
    /// What.
    pub what: What,
    /// Where.
    pub at: Place,
}

impl Problem {
    /// Something wrong at a place.
    pub fn new(what: What, at: Place) -> Problem {
        Problem { what, at }
    }

    /// Line and column of where it begins, from 1; columns are characters.
    pub fn position(&self, text: &str) -> (usize, usize) {
        let before = before(text, self.at.start);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        (line, before[start..].chars().count() + 1)
    }

    /// As a compiler tells it: file, line, column, the line with a caret below, and
    /// what to do.
    pub fn render(&self, file: &str, text: &str) -> String {
        let (line, column) = self.position(text);
        let kind = if self.what.is_warning() { "warning" } else { "error" };
        let mut out = format!("{file}:{line}:{column}: {kind}: {}\n", self.what);
        let source = text.lines().nth(line - 1).unwrap_or("");
        let chars: Vec<char> = source.chars().collect();
        // A long line is shown around the place.
        let from = if chars.len() > WIDTH { (column - 1).saturating_sub(WIDTH / 2) } else { 0 };
        let shown = chars.iter().skip(from).take(WIDTH);
        let shown: String = shown.map(|&c| if c.is_control() { ' ' } else { c }).collect();
        let marked = text.get(self.at.start..self.at.end).unwrap_or("").lines().next();
        let marked = marked.unwrap_or("").chars().count();
        let marks = marked.clamp(1, WIDTH.min(chars.len().saturating_sub(column - 1)).max(1));
        let margin = line.to_string().len();
        let _ = writeln!(out, "{line} | {}", shown.trim_end());
        let gap = column - 1 - from;
        let _ = writeln!(out, "{:margin$} | {:gap$}{}", "", "", "^".repeat(marks));
        let _ = writeln!(out, "{:margin$} = {}", "", self.what.help());
        out
    }
}

/// The characters of a line that are shown.
const WIDTH: usize = 100;

/// The text before a byte, or before the character that the byte is in.
fn before(text: &str, mut at: usize) -> &str {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_a_caret() {
        let text = "set a\nrule ü when lba == x\n";
        let start = text.find('x').unwrap();
        let what = What::Unknown { kind: "counter", name: "x".into(), near: None };
        let problem = Problem::new(what, Place { start, end: start + 1 });
        assert_eq!(
            problem.render("a.rules", text),
            "a.rules:2:20: error: there is no counter x\n\
             2 | rule ü when lba == x\n  |                    ^\n  = declare it before the rules\n"
        );
        let end = Problem::new(What::NotText, Place { start: 999, end: 1000 });
        assert!(
            end.render("a", text).starts_with("a:3:1: error: this is not UTF-8\n3 | \n  | ^\n")
        );
    }
}
