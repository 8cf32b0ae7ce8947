//! Ways to break what the target promises, to see that tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// What a read brought from a remote drive is kept though its block was changed
        /// meanwhile.
        KeepOlder,
        /// A read that waited serves what its entry leads to then, though that was given up
        /// meanwhile.
        ServeGivenUp,
    }
}
