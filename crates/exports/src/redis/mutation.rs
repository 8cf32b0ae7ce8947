//! Ways to break the promises of commands and replies on purpose, to see that tests find them.

/// A way to break a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Replies go out before what they tell of is durable.
    ReleaseEarly,
    /// The reply of a command that only reads waits for nothing.
    ReadUntied,
    /// The number of keys waits for nothing, nor what goes through them.
    SizeUntied,
    /// Once a flush has failed replies wait for nothing.
    FailedShown,
    /// Every second count of a counter is not written.
    LoseCount,
    /// A scan names nothing.
    ScanNothing,
    /// What several keys are written by is no batch.
    SplitBatch,
    /// A deletion says that nothing was there.
    DeleteUntold,
    /// SETNX writes though the key is there, and says that it did not.
    SetAnyway,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// All of them; first those of when replies are seen.
    pub const ALL: [Mutation; 9] = [
        Mutation::ReleaseEarly,
        Mutation::ReadUntied,
        Mutation::SizeUntied,
        Mutation::FailedShown,
        Mutation::LoseCount,
        Mutation::ScanNothing,
        Mutation::SplitBatch,
        Mutation::DeleteUntold,
        Mutation::SetAnyway,
    ];
}

#[cfg(feature = "mutations")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread breaks this promise, or none.
#[cfg(feature = "mutations")]
pub fn set(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

#[cfg(feature = "mutations")]
pub(super) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(super) fn is(_: Mutation) -> bool {
    false
}
