//! Ways to break the target's promises on purpose, to see that its tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// Rows of an old value are given up before the record of the new one is programmed.
        EraseEarly,
        /// A flush is answered before the drive's.
        AckUnsynced,
        /// A flush does not wait for the records that came before it.
        FlushEarly,
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
        /// Of a large value the first rows are read in the place of those behind them.
        RowsAgain,
        /// Rows of a value that was written over or deleted count for ever.
        KeepRows,
        /// A put that is to make a key writes over one that is there.
        PutAnyway,
        /// A listing begins with the first key, whichever it is to begin with.
        ListAll,
    }
}
