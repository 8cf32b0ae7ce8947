//! The syntax tree of a rule set. Where in the text a part stood is beside it, and
//! does not count when trees are compared.

use crate::bounds::Bounds;
use crate::decision::Policy;
use crate::request::{Field, Op};

/// A part of the text, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Its first byte.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
}

/// Places are never different: trees are compared by what they say.
impl PartialEq for Place {
    fn eq(&self, _: &Place) -> bool {
        true
    }
}

impl Eq for Place {}

/// A name, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where.
    pub at: Place,
}

/// A rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// What it is called.
    pub name: Name,
    /// For whom it is, and what these were given.
    pub applications: Vec<Application>,
    /// Maps.
    pub maps: Vec<Map>,
    /// Counters.
    pub counters: Vec<Counter>,
    /// Timers.
    pub timers: Vec<Name>,
    /// Limits.
    pub limits: Vec<Limit>,
    /// Rules, in their order.
    pub rules: Vec<Rule>,
}

/// An application, and what its rules may use. What is not named it has nothing of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its number.
    pub number: u16,
    /// Its logical blocks.
    pub lba: Bounds,
    /// Its parallel units.
    pub units: Option<Bounds>,
    /// Its streams; without, stream 0.
    pub streams: Option<Bounds>,
    /// Channels to which its requests may be sent.
    pub channels: Option<Bounds>,
    /// Remote drives to which its requests may be sent.
    pub remotes: Option<Bounds>,
    /// Where.
    pub at: Place,
}

/// What an entry of a map has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A number.
    Number(Bounds),
    /// The address of a block of these units, or none.
    Address(Bounds),
}

/// A map: entries from 0 up. An entry begins with the least number, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// What it is called.
    pub name: Name,
    /// How many entries.
    pub entries: u64,
    /// What an entry has.
    pub content: Content,
}

/// A counter, which begins with the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What it is called.
    pub name: Name,
    /// What it can be.
    pub bounds: Bounds,
}

/// How much a limit lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Most {
    /// Requests a second, and how many at once after a rest.
    Rate(u64, u64),
    /// Requests under way.
    Depth(u64),
    /// A weight among those that wait.
    Share(u64),
}

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it is called.
    pub name: Name,
    /// How much.
    pub most: Most,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is called.
    pub name: Name,
    /// A higher one is asked first; of equals the one that stands first.
    pub priority: u32,
    /// When it matches.
    pub when: Expr,
    /// What it changes then.
    pub changes: Vec<Change>,
    /// What is done then.
    pub actions: Vec<Action>,
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// What it is.
    pub kind: Kind,
    /// Where.
    pub at: Place,
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// `+`
    Add,
    /// `-`, down to 0.
    Subtract,
    /// `*`
    Multiply,
    /// `/`, rounded down.
    Divide,
    /// `%`
    Remainder,
    /// The lesser.
    Min,
    /// The greater.
    Max,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

impl Relation {
    /// Whether it is so of two numbers.
    #[inline]
    pub fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Relation::Equal => a == b,
            Relation::Unequal => a != b,
            Relation::Less => a < b,
            Relation::AtMost => a <= b,
            Relation::More => a > b,
            Relation::AtLeast => a >= b,
        }
    }

    /// The one that holds where this does not.
    pub fn opposite(self) -> Relation {
        match self {
            Relation::Equal => Relation::Unequal,
            Relation::Unequal => Relation::Equal,
            Relation::Less => Relation::AtLeast,
            Relation::AtMost => Relation::More,
            Relation::More => Relation::AtMost,
            Relation::AtLeast => Relation::Less,
        }
    }

    /// The one that holds with its sides changed.
    pub fn turned(self) -> Relation {
        match self {
            Relation::Less => Relation::More,
            Relation::AtMost => Relation::AtLeast,
            Relation::More => Relation::Less,
            Relation::AtLeast => Relation::AtMost,
            same => same,
        }
    }
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True of every request.
    Always,
    /// A number.
    Number(u64),
    /// A time, ns.
    Time(u64),
    /// No address.
    None,
    /// An operation.
    Op(Op),
    /// What is asked of the request or the drive.
    Field(Field),
    /// A counter.
    Counter(String),
    /// Time since a timer was started; drive time, if it never was.
    Since(String),
    /// An entry of a map.
    Entry(String, Box<Expr>),
    /// Arithmetic.
    Sum(Sum, Box<Expr>, Box<Expr>),
    /// A comparison.
    Compare(Relation, Box<Expr>, Box<Expr>),
    /// Whether it is in a range, of literals of one kind: from the first, below the second.
    In(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Both; the second is looked at only where the first is true.
    And(Box<Expr>, Box<Expr>),
    /// One of both.
    Or(Box<Expr>, Box<Expr>),
    /// Not.
    Not(Box<Expr>),
}

/// How a value is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assign {
    /// `=`
    Set,
    /// `+=`, up to the most.
    Raise,
    /// `-=`, down to the least.
    Lower,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of a counter.
    Counter(Name, Assign, Expr),
    /// Of an entry: map, key.
    Entry(Name, Expr, Assign, Expr),
    /// A timer starts.
    Start(Name),
}

/// An entry that an action names: map, key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The map.
    pub map: Name,
    /// The entry.
    pub key: Expr,
}

/// What is done, and where that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What.
    pub kind: ActionKind,
    /// Where.
    pub at: Place,
}

/// What is done. All up to `Pass` are verdicts; a rule has at most one, and without one the
/// rules behind it are asked, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// `place [unit E] [stream E] [into MAP[E]]`
    Place(Option<Expr>, Option<Expr>, Option<Slot>),
    /// `serve MAP[E]`
    Serve(Slot),
    /// `redirect E`
    Redirect(Expr),
    /// `remote E`
    Remote(Expr),
    /// `drop`
    Drop,
    /// `refuse`
    Refuse,
    /// `ask`
    Ask,
    /// `pass`
    Pass,
    /// `delay E`
    Delay(Expr),
    /// `limit NAME`
    Limit(Name),
    /// `collect POLICY [unit E]`
    Collect(Policy, Option<Expr>),
    /// `migrate MAP[E] to E`
    Migrate(Slot, Expr),
    /// `fill [unit E] into MAP[E]`
    Fill(Option<Expr>, Slot),
}

impl ActionKind {
    /// Whether it says what becomes of the request.
    pub fn is_verdict(&self) -> bool {
        use ActionKind::{Collect, Delay, Fill, Limit, Migrate};
        !matches!(self, Delay(_) | Limit(_) | Collect(..) | Migrate(..) | Fill(..))
    }
}

impl Rule {
    /// Whether it says what becomes of the request.
    pub fn decides(&self) -> bool {
        self.actions.iter().any(|action| action.kind.is_verdict())
    }
}

impl Set {
    /// The rules' numbers in the order in which they are asked.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rules.len()).collect();
        order.sort_by_key(|&rule| std::cmp::Reverse(self.rules[rule].priority));
        order
    }
}
