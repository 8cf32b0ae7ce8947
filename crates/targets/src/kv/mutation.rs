//! Ways to break the target's promises on purpose, to see that its tests find them.
//! Only with the feature `mutations`, which nothing but tests has; without it every
//! question is answered no, at compile time.

/// A way to break a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Rows of an old value are given up before the record of the new one is programmed.
    EraseEarly,
    /// A flush is answered before the drive's.
    AckUnsynced,
    /// A start does not heed what was deleted.
    SkipDeleted,
    /// Of a large value one row is not looked at in recovery.
    ForgetRow,
    /// A checkpoint ends before the rows that it leads to are programmed.
    CheckpointEarly,
    /// What was deleted is forgotten with the first checkpoint that began after it.
    ForgetDeleted,
    /// A start behind a cache leaves records whose rows are not there.
    Unsettled,
    /// Rows of a value are moved while requests of its key go on.
    MoveUnlocked,
    /// A listing leaves out keys whose records are moved meanwhile.
    SkipMoved,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 9] = [
        Mutation::EraseEarly,
        Mutation::AckUnsynced,
        Mutation::SkipDeleted,
        Mutation::ForgetRow,
        Mutation::CheckpointEarly,
        Mutation::ForgetDeleted,
        Mutation::Unsettled,
        Mutation::MoveUnlocked,
        Mutation::SkipMoved,
    ];
}

#[cfg(feature = "mutations")]
mod current {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static CURRENT: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// From now on this thread's targets break this promise, or none.
    pub fn set(mutation: Option<Mutation>) {
        CURRENT.set(mutation);
    }

    pub(crate) fn is(mutation: Mutation) -> bool {
        CURRENT.get() == Some(mutation)
    }
}

#[cfg(not(feature = "mutations"))]
mod current {
    #[inline(always)]
    pub(crate) fn is(_: super::Mutation) -> bool {
        false
    }
}

pub(crate) use current::is;
#[cfg(feature = "mutations")]
pub use current::set;
