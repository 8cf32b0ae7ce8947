//! The server without sockets: clients of this process, in virtual time or in real time.
//!
//! Guarantees: those of a server with [`Sync::Always`](super::Sync): the commands of a client
//! take effect and are answered in their order, and a reply can be had when all is durable that
//! it tells of, while later commands go on. Nothing bounds how long a client's commands take,
//! and its replies are bounded by what it asks.

use btree::{Error as TreeError, Records};
use port::Time;
use thiserror::Error;
use waiting::speculate::Token;

use super::command;
use super::database::{Database, Progress};
use super::replies::Replies;
use super::resp::{self, Parser};
use super::server::Opened;

/// A client has nothing more to hear: a reply of its own waited for a flush that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the connection is closed: the store failed to make durable what a reply tells of")]
pub struct Closed;

/// A client.
struct Seat {
    /// The command that is executed.
    input: Vec<u8>,
    parser: Parser,
    replies: Replies,
    is_busy: bool,
}

/// The keys of a store, and clients.
pub struct Local {
    database: Database,
    seats: Vec<Seat>,
    failed: Option<TreeError>,
    now: Time,
}

impl Local {
    /// So many clients of `keys`, for which that has room.
    pub fn new(keys: Opened, clients: usize) -> Local {
        let database = keys.0;
        let longest = database.longest();
        let seat = |_| Seat {
            input: Vec::new(),
            parser: Parser::new(longest),
            replies: Replies::default(),
            is_busy: false,
        };
        Local { seats: (0..clients).map(seat).collect(), database, failed: None, now: Time::ZERO }
    }

    /// Begins a client's next command, of these words. False, and nothing is done, while it
    /// executes one; its replies may wait meanwhile.
    pub fn ask(&mut self, who: usize, words: &[&[u8]]) -> bool {
        let seat = &mut self.seats[who];
        if seat.is_busy {
            return false;
        }
        seat.input.clear();
        resp::array(&mut seat.input, words.len());
        words.iter().for_each(|word| resp::bulk(&mut seat.input, word));
        seat.replies.begin();
        let is_whole = seat.parser.parse(&seat.input);
        let args = seat.parser.args(&seat.input);
        let out = &mut seat.replies.out;
        let progress = match is_whole.map(|_| command::find(args)) {
            Err(error) => Err(format!("ERR {error}")),
            Ok(Err(words)) => Err(words),
            Ok(Ok(found)) => self
                .database
                .begin(who as u32, found, args, out)
                .ok_or_else(|| "ERR the command needs a connection".into()),
        };
        let progress = progress.unwrap_or_else(|words| {
            resp::error(out, &words);
            Progress::Done(Token::NONE)
        });
        self.take(who, progress);
        true
    }

    /// Whether a client's last command is executed still.
    pub fn is_busy(&self, who: usize) -> bool {
        self.seats[who].is_busy
    }

    /// Lets happen what is due at `now`: commands go on, flushes end and begin.
    pub fn poll(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.database.poll(now);
        while let Some(who) = self.database.next_ready() {
            let seat = &mut self.seats[who as usize];
            if seat.is_busy {
                let args = seat.parser.args(&seat.input);
                let progress = self.database.go_on(who, args, &mut seat.replies.out);
                self.take(who as usize, progress);
            }
        }
        if let Some(Err(error)) = self.database.flushed() {
            self.failed.get_or_insert(error);
        }
        self.database.trash.free(u64::MAX);
        if self.database.tokens().wants_flush() {
            self.database.flush();
        }
    }

    /// When to poll next.
    pub fn next_event(&self) -> Option<Time> {
        let is_ready = self.database.is_ready() || self.database.tokens().wants_flush();
        if is_ready { Some(self.now) } else { self.database.next_event() }
    }

    /// Appends what a client may see now, and did not get before.
    ///
    /// # Errors
    /// [`Closed`], from then on.
    pub fn replies(&mut self, who: usize, to: &mut Vec<u8>) -> Result<(), Closed> {
        let Seat { replies, is_busy, .. } = &mut self.seats[who];
        let end = replies.ready(self.database.tokens(), *is_busy);
        while replies.out.begin() < end {
            let bytes = replies.out.first(end);
            to.extend_from_slice(bytes);
            let len = bytes.len();
            replies.out.take(len);
        }
        to.extend(replies.last_words().into_iter().flatten());
        if replies.is_lost() { Err(Closed) } else { Ok(()) }
    }

    /// Why a flush failed, once one has: what is written from then on is lost.
    pub fn failed(&self) -> Option<&TreeError> {
        self.failed.as_ref()
    }

    /// What has the keys.
    pub fn records(&self) -> &Records<'static> {
        self.database.records()
    }

    /// Notes how far a command is.
    fn take(&mut self, who: usize, progress: Progress) {
        let seat = &mut self.seats[who];
        seat.is_busy = progress == Progress::Waits;
        if let Progress::Done(token) = progress {
            seat.parser.end();
            self.database.tie(&mut seat.replies, token);
        }
    }
}

#[cfg(test)]
mod tests;
