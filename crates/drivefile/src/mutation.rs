//! Ways to break the order of writing on purpose, to see that tests find them.

/// A way to break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A claim is believed, whatever is found of what it tells of.
    BelieveClaim,
    /// Of what a claim tells of descriptors are looked at, and no blocks.
    BelieveBlocks,
    /// A claim is never believed: what was flushed counts as not synced.
    DenyClaim,
    /// A barrier is done when its sync has begun.
    DoneEarly,
}

#[cfg(any(test, feature = "disk"))]
impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 4] =
        [Mutation::BelieveClaim, Mutation::BelieveBlocks, Mutation::DenyClaim, Mutation::DoneEarly];
}

#[cfg(any(test, feature = "disk"))]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread breaks the order so, or not.
#[cfg(any(test, feature = "disk"))]
pub fn set(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

#[cfg(any(test, feature = "disk"))]
pub(crate) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(any(test, feature = "disk")))]
#[inline(always)]
pub(crate) fn is(_: Mutation) -> bool {
    false
}
