//! Ways to break the target's promises on purpose, to see that its tests find them.

port::mutations! {
    /// A way to break a promise.
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
}
