//! Ways to break the promises of commands and replies on purpose, to see that tests find them.

port::mutations! {
    /// A way to break a promise. First those of when replies are seen.
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
}
