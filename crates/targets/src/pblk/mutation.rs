//! Ways to break the target's promises on purpose, to see that the simulator finds them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// A checkpoint leaves out every third changed page of the map.
        SkipPage,
        /// A checkpoint takes open chunks for full.
        SkipOpenChunks,
        /// A trim changes memory only.
        TrimInMemory,
        /// A flush does not wait for the records of trims.
        FlushWithoutLog,
        /// A flush does not wait for the last row.
        FlushEarly,
        /// A chunk is erased before the records that gave its blocks up are
        /// durable.
        EraseBeforeRecord,
        /// A checkpoint does not wait for the rows that are on their way.
        NoSettling,
        /// The root is written before what it leads to.
        RootFirst,
        /// Of two copies recovery takes the older.
        OldestWins,
        /// Recovery forgets what was given up.
        ForgetRecords,
        /// Copies that no longer count are sent all the same.
        SendStale,
        /// A chunk is erased while a user reads it.
        EraseUnderReads,
        /// A block that another stream gathers is not written over there: it has two
        /// copies whose numbers say nothing of their order.
        GatherTwice,
        /// A row that cannot be read yet is not kept in memory.
        ReleaseEarly,
        /// A start does not pad what cannot be read yet.
        LeaveWindow,
        /// Of several requests that wait for a page of the map only the first is answered.
        ForgetParked,
        /// Zeroes are written sector by sector.
        TearZeroes,
    }
}
