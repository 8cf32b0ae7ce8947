//! Ways to break promises on purpose, to see that tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// A row that a cut took counts as lost when it cannot be put back.
        ForgetTaken,
        /// A superblock takes no more writes when one read fails while it is made ready.
        GiveUpAtOnce,
        /// A parity row is of other bytes than those that were written.
        WrongParity,
    }
}
