//! Ways to break promises on purpose, to see that tests find them.

port::mutations! {
    /// A way to break a promise.
    pub enum Mutation {
        /// What is written, and so a flush, is answered before the journal has it.
        AnswerUncommitted,
        /// A start replays what lies behind the journal's end, which is of a life before.
        ReplayOlder,
    }
}
