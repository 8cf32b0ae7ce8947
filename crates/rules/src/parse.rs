//! From text to syntax tree.
//!
//! Any bytes give a tree or one typed problem, in time and memory in proportion to
//! their number: an expression has at most [`MOST_PARTS`] parts, so that no tree is deep.

mod expr;

pub(crate) use expr::binds;

use crate::bounds::Bounds;
use crate::decision::Policy;
use crate::error::{Problem, What};
use crate::request::{Field, MOST_BLOCKS, Op};
use crate::syntax::{
    Action, ActionKind, Application, Assign, Change, Content, Counter, Expr, Limit, Map, Most,
    Name, Place, Rule, Set, Slot,
};
use crate::token::{self, Token};

/// Bytes of a text, at most.
pub const MOST_BYTES: usize = 1 << 20;
/// Parts of an expression, at most.
pub const MOST_PARTS: usize = 200;
/// Rules of a set, at most.
pub const MOST_RULES: usize = 4096;
/// Applications of a set, at most.
pub const MOST_APPLICATIONS: usize = 256;
/// Maps, counters, timers and limits of a set, at most, of each.
pub const MOST_TABLES: usize = 256;
/// Changes and actions of a rule, at most, of each.
pub const MOST_STEPS: usize = 16;

/// Words that are no names.
const RESERVED: [&str; 43] = [
    "set",
    "application",
    "map",
    "counter",
    "timer",
    "limit",
    "rule",
    "priority",
    "when",
    "do",
    "then",
    "of",
    "address",
    "in",
    "and",
    "or",
    "not",
    "always",
    "none",
    "since",
    "start",
    "min",
    "max",
    "place",
    "unit",
    "stream",
    "serve",
    "redirect",
    "remote",
    "drop",
    "refuse",
    "ask",
    "pass",
    "delay",
    "collect",
    "migrate",
    "to",
    "into",
    "fill",
    "rate",
    "burst",
    "depth",
    "share",
];

/// The tree of a text.
pub fn parse(text: &str) -> Result<Set, Problem> {
    if text.len() > MOST_BYTES {
        return Err(Problem::new(What::Long(text.len()), Place::default()));
    }
    Parser::new(text)?.set()
}

/// The same of bytes, which may be no text.
pub fn parse_bytes(bytes: &[u8]) -> Result<Set, Problem> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text),
        Err(e) => {
            let start = e.valid_up_to();
            Err(Problem::new(What::NotText, Place { start, end: start + 1 }))
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    /// The token that is looked at.
    token: Token<'t>,
    at: Place,
    /// Where the one before it ended.
    last: usize,
    /// Parts of the expression so far.
    parts: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Parser<'t>, Problem> {
        let (token, at) = token::next(text, 0)?;
        Ok(Parser { text, token, at, last: 0, parts: 0 })
    }

    /// Goes on, and gives the token that was looked at.
    fn step(&mut self) -> Result<Token<'t>, Problem> {
        let token = self.token;
        self.last = self.at.end;
        (self.token, self.at) = token::next(self.text, self.at.end)?;
        Ok(token)
    }

    fn expected(&self, wanted: &'static str) -> Problem {
        Problem::new(What::Expected { wanted, found: self.token.told() }, self.at)
    }

    /// Takes a word or sign if it is the next.
    fn has(&mut self, text: &str) -> Result<bool, Problem> {
        let is = matches!(self.token, Token::Word(t) | Token::Sign(t) if t == text);
        if is {
            self.step()?;
        }
        Ok(is)
    }

    fn must(&mut self, text: &'static str) -> Result<(), Problem> {
        if self.has(text)? { Ok(()) } else { Err(self.expected(text)) }
    }

    /// What a set or rule is called: any word, as nothing else names them.
    fn title(&mut self, wanted: &'static str) -> Result<Name, Problem> {
        let Token::Word(word) = self.token else { return Err(self.expected(wanted)) };
        let name = Name { text: word.into(), at: self.at };
        self.step()?;
        Ok(name)
    }

    fn name(&mut self, wanted: &'static str) -> Result<Name, Problem> {
        let Token::Word(word) = self.token else { return Err(self.expected(wanted)) };
        if RESERVED.contains(&word) || Op::of(word).is_some() || Field::of(word).is_some() {
            return Err(Problem::new(What::Reserved(word.into()), self.at));
        }
        self.title(wanted)
    }

    fn number(&mut self, what: &'static str, most: u64) -> Result<u64, Problem> {
        let Token::Number(number) = self.token else { return Err(self.expected(what)) };
        if number > most {
            return Err(Problem::new(What::Past { what, most }, self.at));
        }
        self.step()?;
        Ok(number)
    }

    /// `A..B`, with B at most `most`.
    fn range(&mut self, what: &'static str, most: u64) -> Result<Bounds, Problem> {
        let start = self.at.start;
        let from = self.number(what, most)?;
        self.must("..")?;
        let to = self.number(what, most)?;
        let at = Place { start, end: self.last };
        Bounds::of(from, to).ok_or(Problem::new(What::Empty, at))
    }

    fn set(mut self) -> Result<Set, Problem> {
        self.must("set")?;
        let mut set = Set {
            name: self.title("the set's name")?,
            applications: vec![],
            maps: vec![],
            counters: vec![],
            timers: vec![],
            limits: vec![],
            rules: vec![],
        };
        loop {
            let at = self.at;
            let many = |what, count, most| match count < most {
                true => Ok(()),
                false => Err(Problem::new(What::Many(what, most), at)),
            };
            match self.token {
                Token::Word("application") => {
                    many("applications", set.applications.len(), MOST_APPLICATIONS)?;
                    set.applications.push(self.application()?);
                }
                Token::Word("map") => {
                    many("maps", set.maps.len(), MOST_TABLES)?;
                    set.maps.push(self.map()?);
                }
                Token::Word("counter") => {
                    many("counters", set.counters.len(), MOST_TABLES)?;
                    self.step()?;
                    let name = self.name("the counter's name")?;
                    let bounds = self.range("the counter's range", i64::MAX as u64)?;
                    set.counters.push(Counter { name, bounds });
                }
                Token::Word("timer") => {
                    many("timers", set.timers.len(), MOST_TABLES)?;
                    self.step()?;
                    set.timers.push(self.name("the timer's name")?);
                }
                Token::Word("limit") => {
                    many("limits", set.limits.len(), MOST_TABLES)?;
                    set.limits.push(self.limit()?);
                }
                Token::Word("rule") => {
                    many("rules", set.rules.len(), MOST_RULES)?;
                    set.rules.push(self.rule()?);
                }
                Token::End => return Ok(set),
                _ => {
                    let wanted = "application, map, counter, timer, limit or rule";
                    return Err(self.expected(wanted));
                }
            }
        }
    }

    fn application(&mut self) -> Result<Application, Problem> {
        let start = self.at.start;
        self.step()?;
        let number = self.number("the application's number", u16::MAX.into())? as u16;
        self.must("lba")?;
        let lba = self.range("its logical blocks", MOST_BLOCKS)?;
        let mut all = [None; 4];
        let words = ["units", "streams", "channels", "remotes"];
        let most = [crate::decision::Address::UNITS, 1 << 16, 1 << 16, 1 << 16];
        for (n, bounds) in all.iter_mut().enumerate() {
            if self.has(words[n])? {
                *bounds = Some(self.range("a range of numbers", most[n])?);
            }
        }
        let [units, streams, channels, remotes] = all;
        let at = Place { start, end: self.last };
        Ok(Application { number, lba, units, streams, channels, remotes, at })
    }

    fn map(&mut self) -> Result<Map, Problem> {
        self.step()?;
        let name = self.name("the map's name")?;
        self.must("[")?;
        let at = self.at;
        let entries = self.number("the number of entries", MOST_BLOCKS)?;
        if entries == 0 {
            return Err(Problem::new(What::Empty, at));
        }
        self.must("]")?;
        self.must("of")?;
        let content = if self.has("address")? {
            self.must("in")?;
            Content::Address(self.range("units", crate::decision::Address::UNITS)?)
        } else {
            Content::Number(self.range("numbers", i64::MAX as u64)?)
        };
        Ok(Map { name, entries, content })
    }

    fn limit(&mut self) -> Result<Limit, Problem> {
        self.step()?;
        let name = self.name("the limit's name")?;
        let kind = self.at;
        let most = if self.has("rate")? {
            let rate = self.number("requests a second", 1_000_000_000)?;
            self.must("burst")?;
            Most::Rate(rate, self.number("requests at once", 1 << 20)?)
        } else if self.has("depth")? {
            Most::Depth(self.number("requests under way", 1 << 20)?)
        } else if self.has("share")? {
            Most::Share(self.number("a weight", 1 << 20)?)
        } else {
            return Err(self.expected("rate, depth or share"));
        };
        match most {
            Most::Rate(0, _) | Most::Rate(_, 0) | Most::Depth(0) | Most::Share(0) => {
                Err(Problem::new(What::Empty, Place { start: kind.start, end: self.last }))
            }
            most => Ok(Limit { name, most }),
        }
    }

    fn rule(&mut self) -> Result<Rule, Problem> {
        self.step()?;
        let name = self.title("the rule's name")?;
        self.must("priority")?;
        let priority = self.number("a priority", u32::MAX.into())? as u32;
        self.must("when")?;
        let when = self.expr()?;
        let (mut changes, mut actions) = (vec![], vec![]);
        if self.has("do")? {
            loop {
                self.room("changes", changes.len())?;
                changes.push(self.change()?);
                if !self.has(";")? {
                    break;
                }
            }
        }
        if changes.is_empty() || matches!(self.token, Token::Word("then")) {
            self.must("then")?;
            loop {
                self.room("actions", actions.len())?;
                actions.push(self.action()?);
                if !self.has(",")? {
                    break;
                }
            }
        }
        Ok(Rule { name, priority, when, changes, actions })
    }

    fn room(&self, what: &'static str, count: usize) -> Result<(), Problem> {
        match count < MOST_STEPS {
            true => Ok(()),
            false => Err(Problem::new(What::Many(what, MOST_STEPS), self.at)),
        }
    }

    fn change(&mut self) -> Result<Change, Problem> {
        if self.has("start")? {
            return Ok(Change::Start(self.name("a timer")?));
        }
        let name = self.name("a counter, an entry, or start")?;
        let key = if self.has("[")? {
            let key = self.expr()?;
            self.must("]")?;
            Some(key)
        } else {
            None
        };
        let assign = if self.has("=")? {
            Assign::Set
        } else if self.has("+=")? {
            Assign::Raise
        } else if self.has("-=")? {
            Assign::Lower
        } else {
            return Err(self.expected("=, += or -="));
        };
        let value = self.expr()?;
        Ok(match key {
            Some(key) => Change::Entry(name, key, assign, value),
            None => Change::Counter(name, assign, value),
        })
    }

    fn slot(&mut self) -> Result<Slot, Problem> {
        let map = self.name("a map")?;
        self.must("[")?;
        let key = self.expr()?;
        self.must("]")?;
        Ok(Slot { map, key })
    }

    /// An expression behind a word, if that is the next.
    fn behind(&mut self, word: &'static str) -> Result<Option<Expr>, Problem> {
        if self.has(word)? { self.expr().map(Some) } else { Ok(None) }
    }

    fn action(&mut self) -> Result<Action, Problem> {
        let start = self.at.start;
        let Token::Word(word) = self.token else { return Err(self.expected("an action")) };
        let wanted = "place, serve, redirect, remote, drop, refuse, ask, pass, delay, limit, collect, migrate or fill";
        let unknown = self.expected(wanted);
        self.step()?;
        let kind = match word {
            "place" => {
                let (unit, stream) = (self.behind("unit")?, self.behind("stream")?);
                let slot = if self.has("into")? { Some(self.slot()?) } else { None };
                ActionKind::Place(unit, stream, slot)
            }
            "serve" => ActionKind::Serve(self.slot()?),
            "redirect" => ActionKind::Redirect(self.expr()?),
            "remote" => ActionKind::Remote(self.expr()?),
            "drop" => ActionKind::Drop,
            "refuse" => ActionKind::Refuse,
            "ask" => ActionKind::Ask,
            "pass" => ActionKind::Pass,
            "delay" => ActionKind::Delay(self.expr()?),
            "limit" => ActionKind::Limit(self.name("a limit")?),
            "collect" => {
                let words = Policy::ALL.into_iter();
                let policy = words.clone().find(|p| self.token == Token::Word(p.word()));
                let policy = policy.ok_or_else(|| self.expected("greedy, fifo or random"))?;
                self.step()?;
                ActionKind::Collect(policy, self.behind("unit")?)
            }
            "migrate" => {
                let slot = self.slot()?;
                self.must("to")?;
                ActionKind::Migrate(slot, self.expr()?)
            }
            "fill" => {
                let unit = self.behind("unit")?;
                self.must("into")?;
                ActionKind::Fill(unit, self.slot()?)
            }
            _ => return Err(unknown),
        };
        Ok(Action { kind, at: Place { start, end: self.last } })
    }
}
