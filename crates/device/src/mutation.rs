//! Ways to break promises on purpose, to see that tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// A read cache keeps what it read, also beside a write.
        KeepChanged,
    }
}
