//! Ways to break the order of writing on purpose, to see that tests find them.

port::mutations! {
    /// A way to break it.
    pub enum Mutation {
        /// A claim is believed, whatever is found of what it tells of.
        BelieveClaim,
        /// Of what a claim tells of descriptors are looked at, and no blocks.
        BelieveBlocks,
        /// A claim is never believed: what was flushed counts as not synced.
        DenyClaim,
        /// A barrier is done when its sync has begun.
        DoneEarly,
        /// The space of an erased chunk is given back before the sync of its generation.
        GiveBackUnsynced,
        /// It is given back when that sync has ended, and not the one behind it.
        GiveBackAtOnce,
        /// An erased chunk is programmed then.
        ReuseAtOnce,
        /// What cannot be read as the disk is away is taken for lost.
        TakeForLost,
        /// A descriptor that cannot be written stops nothing.
        GoOnUnwritten,
    }
}

#[cfg(any(test, feature = "mutations"))]
impl Mutation {
    /// Those that a cut alone shows.
    pub const CUT: [Mutation; 5] = [
        Mutation::BelieveClaim,
        Mutation::BelieveBlocks,
        Mutation::DenyClaim,
        Mutation::DoneEarly,
        Mutation::GiveBackUnsynced,
    ];

    /// Those that a disk shows which fails reads or writes.
    pub const FAILING: [Mutation; 2] = [Mutation::TakeForLost, Mutation::GoOnUnwritten];

    /// Those that a cut shows where what came with the last sync is damaged, too.
    pub const DAMAGED: [Mutation; 2] = [Mutation::GiveBackAtOnce, Mutation::ReuseAtOnce];
}
