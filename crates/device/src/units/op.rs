//! One access of one parallel unit.

use flash::Ppa;
use port::Whose;
use port::story::{Cause, Work};

use crate::list::{Linked, NONE};

/// What an operation does to the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OpKind {
    #[default]
    Read,
    Program,
    Erase,
}

impl OpKind {
    /// What it is to those that wait behind it.
    pub(super) fn of(self, whose: Whose) -> Cause {
        let work = match self {
            OpKind::Read => Work::Read,
            OpKind::Program => Work::Program,
            OpKind::Erase => Work::Erase,
        };
        Cause::new(work, whose)
    }
}

/// One access of one parallel unit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Op {
    next: u32,
    /// The command it belongs to. [`NONE`] where the parallel unit keeps its SLC
    /// area: that is an erase, whatever it does.
    pub cmd: u32,
    /// First block.
    pub ppa: Ppa,
    /// Which of the command's addresses is `ppa`.
    pub first: u8,
    /// Blocks.
    pub count: u8,
    pub kind: OpKind,
    /// A read of which only the tags are wanted.
    pub tags: bool,
    /// Where its die has several registers, the planes that it takes.
    pub(super) planes: u8,
    /// Reads that went before it after it had begun.
    pub(super) suspended: u32,
}

impl Op {
    pub fn new(cmd: u32, kind: OpKind, ppa: Ppa, first: u8, count: u8) -> Op {
        Op { next: NONE, cmd, ppa, first, count, kind, tags: false, planes: 0, suspended: 0 }
    }

    /// The same, of which only the tags are wanted, or not.
    pub fn of_tags(self, tags: bool) -> Op {
        Op { tags, ..self }
    }
}

impl Linked for Op {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}
