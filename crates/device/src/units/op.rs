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
    #[inline]
    pub(super) fn of(self, whose: Whose) -> Cause {
        let work = match self {
            OpKind::Read => Work::Read,
            OpKind::Program => Work::Program,
            OpKind::Erase => Work::Erase,
        };
        Cause::new(work, whose)
    }
}

/// How a read has its page from the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sensing {
    /// By a sensing of its own, which others may share.
    #[default]
    Own,
    /// The same, of one that shares no other's.
    Alone,
    /// Another's gave its page.
    Shared,
    /// It was sensed at the same time as another's, on another plane.
    Joined,
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
    /// A program of what is in its unit already: nothing comes over the channel.
    pub inside: bool,
    /// Whether a read was sensed with another.
    pub(super) sensing: Sensing,
    /// Where its die has several registers, the planes that it takes.
    pub(super) planes: u8,
    /// Reads that went before it after it had begun.
    pub(super) suspended: u32,
}

impl Op {
    pub fn new(cmd: u32, kind: OpKind, ppa: Ppa, first: u8, count: u8) -> Op {
        let sensing = Sensing::Own;
        let (tags, inside, planes, suspended) = (false, false, 0, 0);
        Op { next: NONE, cmd, ppa, first, count, kind, tags, inside, sensing, planes, suspended }
    }

    /// The same, of which only the tags are wanted, or not.
    pub fn of_tags(self, tags: bool) -> Op {
        Op { tags, ..self }
    }

    /// The same, of which the data are in its unit already, or not.
    pub fn inside(self, inside: bool) -> Op {
        Op { inside, ..self }
    }

    /// Whether a read was sensed with another's.
    #[inline]
    pub fn is_shared(&self) -> bool {
        matches!(self.sensing, Sensing::Shared | Sensing::Joined)
    }

    /// Array reads of its own: none where another's gave its page.
    #[inline]
    pub fn sensings(&self) -> u32 {
        u32::from(self.sensing != Sensing::Shared)
    }
}

impl Linked for Op {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}
