//! Ways to break the order of writes on purpose, to see that tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// Ordered data are written after the commit that makes them reachable.
        CommitBeforeData,
        /// No flush between a transaction and its commit record.
        NoFlushBeforeCommit,
        /// No flush after the commit record.
        NoFlushAfterCommit,
        /// Blocks are written in place before their transaction has its commit record.
        CheckpointBeforeCommit,
        /// A transaction without a commit record is replayed.
        ReplayHalf,
        /// Space of the journal is used again before what was there is durable in place.
        ReuseJournalEarly,
        /// Blocks of data are given to others before it is durable that they are free.
        ReuseDataEarly,
        /// Blocks of metadata are given to others while the journal would still write them.
        ReuseMetadataEarly,
        /// `fdatasync` takes a new size for something that may wait.
        SizeMayWait,
        /// The rest of the last block keeps its bytes when a file is cut.
        KeepTail,
        /// Data that belong into a transaction are written in place before it.
        DataBeforeCommit,
        /// A transaction has metadata without the data that belong to them.
        CommitWithoutData,
        /// Of a block that has several images in the journal not the newest comes to be in place.
        OldImageWins,
        /// Blocks that are given up lose their images before it is durable that they are nobody's.
        ForgetEarly,
        /// What is given up while a commit is under way is free with its end.
        FreeWithCommit,
        /// What changes while a commit is under way counts as its own.
        ChangeWithCommit,
        /// A transaction counts though its checksum says that it is not all there.
        BelieveRecord,
        /// A sync does not wait for the commit under way, which has what it asks for.
        SyncBesideCommit,
    }
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Those that matter with ordered data.
    pub const ORDERED: [Mutation; 10] = [
        Mutation::CommitBeforeData,
        Mutation::NoFlushBeforeCommit,
        Mutation::NoFlushAfterCommit,
        Mutation::CheckpointBeforeCommit,
        Mutation::ReplayHalf,
        Mutation::ReuseJournalEarly,
        Mutation::ReuseDataEarly,
        Mutation::ReuseMetadataEarly,
        Mutation::SizeMayWait,
        Mutation::KeepTail,
    ];

    /// Those that matter where data go through the journal. There no flush is before a commit
    /// record: the checksum in it finds what is missing.
    pub const DATA: [Mutation; 13] = [
        Mutation::NoFlushAfterCommit,
        Mutation::CheckpointBeforeCommit,
        Mutation::ReplayHalf,
        Mutation::ReuseJournalEarly,
        Mutation::KeepTail,
        Mutation::DataBeforeCommit,
        Mutation::CommitWithoutData,
        Mutation::OldImageWins,
        Mutation::ForgetEarly,
        Mutation::FreeWithCommit,
        Mutation::ChangeWithCommit,
        Mutation::BelieveRecord,
        Mutation::SyncBesideCommit,
    ];
}
