//! The control plane's seam: who is asked about a request that no rule decided, or for which a
//! rule says `ask`. It may answer with other rules, so that what comes next is decided without
//! it (AppNVM, thesis chapter 7).

use crate::check::Checked;
use crate::request::{Request, View};
use crate::syntax::Set;

/// A request that was not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The request: of a long one, the first block that was not decided.
    pub request: Request,
    /// The rule that said `ask`, by its number in the text; none where no rule decided.
    pub rule: Option<u16>,
}

/// What the control plane says to a miss.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Another set takes the place of the one in use, and decides anew. The drive installs it
    /// only if it suits it; and where that leaves the request undecided, it fails.
    Install(Box<Checked>),
    /// It fails. So do the blocks of the request that are missed by the same set.
    Refuse,
    /// The drive does what it does without rules, with all such blocks of the request.
    Pass,
}

/// A control plane. What it answers follows from what it was asked: it looks at no clock, and
/// does no I/O.
pub trait Control: Send {
    /// What becomes of a miss, with the set in use and how the drive is when it answers.
    fn miss(&mut self, miss: &Miss, set: &Set, view: &View) -> Answer;
}
