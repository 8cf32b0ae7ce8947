//! Ways to break the target's promises on purpose, to see that its tests find
//! them. Only with the feature `mutations`, which nothing but tests has; without
//! it every question is answered no, at compile time.

/// A way to break a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A chunk is erased before the log says that what made it garbage is
    /// installed.
    EraseEarly,
    /// A batch is acknowledged before the drive's flush.
    AckUnsynced,
    /// A start does not say which batches never were.
    NoVoid,
    /// A start takes batches for complete without looking at their pages.
    NoVerify,
    /// What collection moved counts, though something newer came.
    StaleCollect,
    /// The log is let go that pages of tables still need.
    ForgetLog,
    /// Blocks stay valid that were written anew.
    KeepPrior,
    /// A start forgets which pages were given up.
    KeepGivenUp,
    /// A start that makes a page of MAP anew believes the TAGs of blocks that the
    /// log names.
    BelieveTags,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 9] = [
        Mutation::EraseEarly,
        Mutation::AckUnsynced,
        Mutation::NoVoid,
        Mutation::NoVerify,
        Mutation::StaleCollect,
        Mutation::ForgetLog,
        Mutation::KeepPrior,
        Mutation::KeepGivenUp,
        Mutation::BelieveTags,
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
