//! Room for clients: places, descriptors and memory.
//!
//! Guarantees: no client takes another's share of the memory or, by being
//! silent, the place of a newcomer; and nothing sleeps where there is something
//! to do.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{SendFlags, send};

use super::client::Client;
use super::serving::{LISTENER, Serving};
use crate::listen::Guest;

/// Clients that are taken before others have their turn, where few wait for one,
/// and where many do: who comes faster than it is served stands before the door,
/// not before those who are in.
const GUESTS: usize = 16;
const FEW_GUESTS: usize = 4;
/// How long nobody is taken when there is no descriptor for anybody.
const DEAF: Duration = Duration::from_millis(100);
/// Who has said nothing for so long is not expected to say something at once.
const SILENT: Duration = Duration::from_secs(1);

impl Serving<'_> {
    /// Takes clients.
    pub(super) fn accept(&mut self) {
        for _ in 0..GUESTS.saturating_sub(self.waiting()).max(FEW_GUESTS) {
            let Some(listener) = &mut self.listener else { return };
            match listener.accept() {
                Guest::Nobody => return,
                Guest::Gone => {}
                Guest::Client(sock) => {
                    if self.free.is_empty() {
                        self.make_room();
                    }
                    self.seat(sock);
                }
                Guest::Unseated => {
                    self.warn(0, "there are no more file descriptors for clients: raise the limit (ulimit -n)");
                    if self.make_room() {
                        continue;
                    }
                    self.report.refused += 1;
                    if !self.listener.as_mut().is_some_and(|listener| listener.turn_away()) {
                        return self.listen_not();
                    }
                }
            }
        }
    }

    /// Gives a client a place, or turns it away.
    fn seat(&mut self, sock: OwnedFd) {
        let Some(who) = self.free.pop() else {
            self.report.refused += 1;
            let words = b"-ERR max number of clients reached\r\n";
            // It may have gone.
            let _ = send(&sock, words, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            return;
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let watched = rustix::io::ioctl_fionbio(&sock, true)
            .and_then(|()| epoll::add(&self.wakes, &sock, EventData::new_u64(who.into()), flags));
        if watched.is_err() {
            // The system has no memory for it.
            self.report.refused += 1;
            return self.free.push(who);
        }
        self.report.connections += 1;
        self.clients[who as usize] = Some(Client::new(sock, self.now, self.database.longest()));
        self.count(who);
        self.give_turn(who, true);
    }

    /// Closes the client that was silent longest, if that was for long enough.
    fn make_room(&mut self) -> bool {
        let limits = self.options.limits;
        let is_silent = |c: &Client| {
            !c.is_busy
                && self.now.saturating_duration_since(c.heard) >= limits.silence(c.has_spoken)
        };
        let silent = self.clients.iter().enumerate().filter_map(|(i, client)| {
            client.as_ref().filter(|c| is_silent(c)).map(|c| (c.heard, i as u32))
        });
        let Some((_, who)) = silent.min() else { return false };
        self.evict(who);
        true
    }

    /// Counts now and then who has said nothing for a while, and waits for nothing.
    pub(super) fn count_silent(&mut self) {
        if self.now.saturating_duration_since(self.silent_at) < SILENT {
            return;
        }
        self.silent_at = self.now;
        let is_silent = |c: &Client| {
            !(c.is_busy || c.is_holding) && self.now.saturating_duration_since(c.heard) >= SILENT
        };
        self.silent = 0;
        for client in self.clients.iter_mut().flatten() {
            client.is_silent = is_silent(client);
            self.silent += usize::from(client.is_silent);
        }
    }

    /// Looks away from newcomers for a while.
    fn listen_not(&mut self) {
        self.deaf_until = Some(self.now + DEAF);
        self.watch_listener(EventFlags::empty());
    }

    /// Looks at newcomers again when it is time.
    pub(super) fn listen_again(&mut self) {
        if self.deaf_until.is_some_and(|until| self.now >= until) {
            self.deaf_until = None;
            self.watch_listener(EventFlags::IN);
        }
    }

    fn watch_listener(&self, flags: EventFlags) {
        if let Some(listener) = &self.listener {
            // It is watched already, so this needs nothing.
            let _ = epoll::modify(&self.wakes, listener.fd(), EventData::new_u64(LISTENER), flags);
        }
    }

    /// Frees the place of a client.
    pub(super) fn leave(&mut self, who: u32) {
        if let Some(client) = self.clients[who as usize].take() {
            self.memory -= client.counted;
            self.ending -= client.ending;
            self.silent -= usize::from(client.is_silent);
            if client.is_holding {
                // It is turned away: others are not to wait for it.
                self.holding.retain(|&other| other != who);
                self.flushing.retain(|&other| other != who);
            }
            self.database.leave(who);
            let Client { input, replies, .. } = client;
            self.database.trash.put(input);
            self.database.trash.put_all(replies.out.into_pieces());
            self.free.push(who);
        }
    }

    /// Notes how much memory a client has, and sees that all have no more than
    /// they may.
    pub(super) fn count(&mut self, who: u32) {
        self.recount(who);
        if self.is_too_much() {
            self.relieve();
        }
    }

    /// Whether clients have more than they may. What ends stands beside that,
    /// but it is not to become more and more.
    fn is_too_much(&self) -> bool {
        let most = self.options.limits.memory;
        self.memory - self.ending > most || self.beyond() > 0
    }

    /// Bytes that clients and what is to be freed have beyond all bounds.
    fn beyond(&self) -> u64 {
        let most = self.options.limits.memory;
        (self.memory + self.database.trash.bytes()).saturating_sub(most + most / 2)
    }

    fn recount(&mut self, who: u32) {
        let Some(client) = &mut self.clients[who as usize] else { return };
        let memory = (client.memory() + self.database.memory(who)) as u64;
        let ending = if client.is_broken || client.is_refused { memory } else { 0 };
        self.memory = self.memory - client.counted + memory;
        self.ending = self.ending - client.ending + ending;
        (client.counted, client.ending) = (memory, ending);
    }

    /// Ends what clients do that have most, until all together have no more
    /// than they may. A command that only reads is answered with an error;
    /// else the client is closed. Who keeps to its share stays.
    fn relieve(&mut self) {
        self.database.trash.free(self.beyond());
        // Of those who are there: closing who has little would gain nothing.
        let there = self.clients.len() - self.free.len();
        let share = self.options.limits.memory / there.max(1) as u64;
        while self.is_too_much() {
            let greedy = self.clients.iter().enumerate().filter_map(|(i, client)| {
                let client = client.as_ref().filter(|c| c.ending == 0 && c.counted > share)?;
                Some((client.counted, i as u32))
            });
            let Some((_, who)) = greedy.max() else { return };
            self.warn(1, "clients hold all the memory that they may: those with most are refused or closed (--client-memory)");
            if self.database.refuse(who) {
                // It ends when what it reads is there; until then it takes no
                // more, and is not looked at again.
                self.report.evicted += 1;
                if let Some(client) = &mut self.clients[who as usize] {
                    client.is_refused = true;
                }
                self.recount(who);
            } else {
                self.evict(who);
                // What it had is to be freed: that counts until it is.
                self.database.trash.free(self.beyond());
            }
        }
    }

    /// Closes a client for which the system has no memory.
    pub(super) fn deny(&mut self, who: u32) {
        self.warn(2, "the system has no more memory for clients: those that need it are refused or closed (ulimit -v)");
        self.evict(who);
    }

    /// Closes a client.
    fn evict(&mut self, who: u32) {
        self.report.evicted += 1;
        let Some(client) = &mut self.clients[who as usize] else { return };
        client.is_busy &= !self.database.cancel(who);
        if client.unread() == 0 && !client.is_busy {
            let words = b"-ERR closed: the server needs the room for other clients\r\n";
            // It may have gone.
            let _ = send(&client.sock, words, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        client.is_broken = true;
        if client.is_busy {
            self.recount(who);
        } else {
            self.leave(who);
        }
    }

    /// Says that the store takes no more writes, and why.
    #[cold]
    pub(super) fn warn_of_failure(&mut self) {
        let Some(error) = self.database.failure.get().filter(|_| !self.has_warned[3]) else {
            return;
        };
        let words = format!("{error}; from now on the store can only be read");
        self.warn(3, &words);
    }

    /// Tells the operator, once.
    fn warn(&mut self, what: usize, words: &str) {
        if !std::mem::replace(&mut self.has_warned[what], true) {
            (self.options.limits.warn)(words);
        }
    }
}
