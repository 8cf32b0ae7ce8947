//! Outputs that are held back until what they tell of is durable.

use std::collections::VecDeque;

use thiserror::Error;

use super::tokens::{Fate, Token, Tokens};

/// There is no room for an output; here it is again. Wait for a flush, then tie it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("as many outputs wait for durability as there is room for: wait for a flush")]
pub struct Full<O>(pub O);

/// An output that must not be seen: a write failed that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a write that this depends on failed: what it tells of may be lost")]
pub struct Lost<O>(pub O);

/// The outputs of one stream, a connection for instance: they come out in the order in which
/// they were tied. A bounded number is held.
#[derive(Debug)]
pub struct Outputs<O> {
    waiting: VecDeque<(O, Token)>,
    most: usize,
}

impl<O> Outputs<O> {
    /// Room for `most` outputs, which is taken now.
    pub fn new(most: usize) -> Outputs<O> {
        Outputs { waiting: VecDeque::with_capacity(most), most }
    }

    /// Holds an output back until `token` is durable: the newest of the writes that it depends
    /// on.
    ///
    /// # Errors
    /// [`Full`] when it holds as many as it may.
    pub fn tie(&mut self, output: O, token: Token) -> Result<(), Full<O>> {
        if self.waiting.len() == self.most {
            return Err(Full(output));
        }
        self.waiting.push_back((output, token));
        Ok(())
    }

    /// The next output, once it is known what becomes of it.
    pub fn next(&mut self, tokens: &Tokens) -> Option<Result<O, Lost<O>>> {
        let fate = tokens.fate(self.waiting.front()?.1);
        if fate == Fate::Pending {
            return None;
        }
        let (output, _) = self.waiting.pop_front()?;
        Some(if fate == Fate::Durable { Ok(output) } else { Err(Lost(output)) })
    }

    /// The output that is next, known or not.
    pub fn front(&self) -> Option<&O> {
        self.waiting.front().map(|(output, _)| output)
    }

    /// What the output waits for that is next.
    pub fn first(&self) -> Option<Token> {
        self.waiting.front().map(|&(_, token)| token)
    }

    /// What the output waits for that was tied last.
    pub fn last(&self) -> Option<Token> {
        self.waiting.back().map(|&(_, token)| token)
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
