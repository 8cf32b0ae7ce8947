//! Ways to break what several targets promise together, to see that tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// A flush of all goes to the first target only.
        FlushFirst,
        /// Of a write that lies in two targets the last piece is not done.
        DropPiece,
        /// What is found again and keeps values by key has its chunks no more: they are
        /// anybody's.
        HandOn,
        /// What leaves takes a chunk of another target along.
        EraseNeighbour,
        /// What was left is erased, and stays nobody's.
        KeepLeft,
    }
}
