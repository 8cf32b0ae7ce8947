//! The replies of a connection, of which some wait until what they tell of is durable.
//!
//! Guarantees: replies go out in the order of their commands, and none before its token is
//! durable and those of all before it. Where a token fails whose reply waits, an error goes out in
//! its place, and then nothing more: nobody knows how many replies behind it are lost with it. It
//! does not go out where the client has not yet taken all before it. A reply that is ready only
//! after its token has failed becomes an error in its place.

use waiting::speculate::{Fate, Lost, Outputs, Token, Tokens};

use super::mutation::{self, Mutation};
use super::resp;
use super::rope::{Rope, Trash};

/// Places at which replies wait: two groups of writes are not durable at most, the one that is
/// flushed and the next, and where several replies wait for one, the first stands for all.
const HELD: usize = 2;

/// What a client is told in place of a reply whose token has failed.
const NOT_DURABLE: &str = "ERR the store failed to make durable what the reply would tell of, and \
                           may lose it: see the server's messages, and start it again";

/// Replies that were not sent.
pub struct Replies {
    /// Their bytes.
    pub out: Rope,
    /// Where the reply of the last command begins.
    begin: u64,
    /// Where replies begin that wait.
    held: Outputs<u64>,
    /// Where the first begins that must not be seen, and whether that was told.
    lost: Option<u64>,
    is_told: bool,
}

impl Default for Replies {
    fn default() -> Replies {
        let held = Outputs::new(HELD);
        Replies { out: Rope::default(), begin: 0, held, lost: None, is_told: false }
    }
}

impl Replies {
    /// The next command begins, whose reply comes behind all others.
    pub fn begin(&mut self) {
        self.begin = self.out.end();
    }

    /// Bytes of the last command's reply so far.
    pub fn last(&self) -> u64 {
        self.out.end() - self.begin
    }

    /// The last command's reply is there: it may go out when `token` is durable.
    pub fn tie(&mut self, token: Token, tokens: &Tokens, trash: &mut Trash) {
        match tokens.fate(token) {
            _ if mutation::is(Mutation::ReleaseEarly) => {}
            Fate::Durable => {}
            Fate::Failed if mutation::is(Mutation::FailedShown) => {}
            Fate::Failed => {
                trash.put_all(self.out.cut(self.begin));
                resp::error(&mut self.out, NOT_DURABLE);
            }
            Fate::Pending => {
                self.settle(tokens);
                // One behind another that waits as long waits with it.
                if self.held.last().is_none_or(|last| last < token) {
                    let tied = self.held.tie(self.begin, token);
                    tied.expect("two groups are not durable at most");
                }
            }
        }
    }

    /// The place before which all may go out now. The last command `is_busy` where its reply is
    /// not whole.
    pub fn ready(&mut self, tokens: &Tokens, is_busy: bool) -> u64 {
        self.settle(tokens);
        let end = if is_busy { self.begin } else { self.out.end() };
        self.lost.or(self.held.front().copied()).unwrap_or(end)
    }

    /// What goes out in the place of the first reply that must not be seen, once, when all before
    /// it has gone.
    pub fn last_words(&mut self) -> Option<Vec<u8>> {
        if self.lost != Some(self.out.begin()) || std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        let mut words = Rope::default();
        resp::error(&mut words, NOT_DURABLE);
        Some(words.first(u64::MAX).to_vec())
    }

    /// Forgets places whose tokens are known.
    fn settle(&mut self, tokens: &Tokens) {
        while let Some(known) = self.held.next(tokens) {
            if let Err(Lost(place)) = known {
                self.lost.get_or_insert(place);
            }
        }
    }

    /// What the first reply waits for that waits for a flush.
    pub fn waits_for(&self) -> Option<Token> {
        self.held.first()
    }

    /// Whether one waited that must not be seen: there is nothing to say any more but
    /// [`Self::last_words`].
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Memory that they have, in bytes.
    pub fn memory(&self) -> usize {
        self.out.memory() + HELD * size_of::<(u64, Token)>()
    }
}
