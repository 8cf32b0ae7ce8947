//! Migrations: a block moves to another unit, and its entry follows.
//!
//! The copy has the tag of the block, so a start takes either. The chunk in which it was is
//! erased only when the copy is programmed. So many are under way at most; others are not
//! made, and the rule may ask again.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::{Ppa, TAG_BYTES};
use port::{Buffer, Scratch};
use rules::decision::Migrate;

use crate::rows::{Source, Stream};
use crate::{Cookie, Ruled};

/// Migrations under way at most.
pub(crate) const MIGRATIONS: usize = 8;

/// How far one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// The block is not programmed yet.
    Waits,
    Reads,
    /// It has been read.
    IsHeld,
}

/// A block that moves.
#[derive(Debug)]
pub(crate) struct Migration {
    state: State,
    owner: u64,
    from: Ppa,
    to: usize,
    buffer: Scratch,
    /// What is in it.
    held: Buffer,
}

impl Migration {
    pub fn new(buffer: Scratch) -> Migration {
        let (owner, from, to, held) = (0, Ppa(0), 0, Buffer::empty());
        Migration { state: State::Free, owner, from, to, buffer, held }
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// A rule asks for a migration.
    pub(crate) fn asked_to_migrate(&mut self, asked: &Migrate) {
        let (owner, from, to) =
            (self.owner(asked.entry), Ppa(asked.from.place()), usize::from(asked.unit));
        let all = &mut self.migrations;
        let is_under_way = all.iter().any(|m| m.state != State::Free && m.owner == owner);
        if self.broken || usize::from(asked.from.unit()) == to || is_under_way {
            return;
        }
        let Some(n) = all.iter().position(|m| m.state == State::Free) else { return };
        self.migrating += 1;
        (all[n].state, all[n].owner, all[n].from, all[n].to) = (State::Waits, owner, from, to);
        self.migrate(n);
    }

    /// Goes on with all migrations.
    pub(crate) fn migrate_all(&mut self) {
        for n in 0..self.migrations.len() {
            if self.migrating == 0 {
                break;
            }
            if self.migrations[n].state != State::Free {
                self.migrate(n);
            }
        }
    }

    fn migrate(&mut self, n: usize) {
        let Migration { state, owner, from, to, .. } = self.migrations[n];
        if state == State::Reads {
            return;
        }
        // It was written over, given up or collected.
        if self.leads(owner) != Some(from) || self.broken {
            return self.end_migration(n);
        }
        if state == State::Waits {
            if self.buffered(self.unit_of(from), from).is_none() {
                self.migrations[n].state = State::Reads;
                self.blocks.readers[self.geometry.chunk_index(from)] += 1;
                let each = self.shape.kept as usize + TAG_BYTES;
                let buffer = self.migrations[n].buffer.take(each);
                let cookie = Cookie::Migrate(n);
                self.command(cookie, VectorOp::Read, Content::Tagged, (from, 1), buffer);
            }
            return;
        }
        let held = std::mem::replace(&mut self.migrations[n].held, Buffer::empty());
        let (data, tag) = held.bytes().split_at(self.shape.kept as usize);
        let put = self.put(to, Stream::User, owner, &Source::Moved(data, tag));
        self.migrations[n].held = held;
        if let Some(ppa) = put {
            self.counters.gc += 1;
            self.counters.moved += 1;
            self.lead(to, owner, ppa);
        }
        if put.is_some() || !self.makes_room(to) {
            self.end_migration(n);
        }
    }

    fn end_migration(&mut self, n: usize) {
        let migration = &mut self.migrations[n];
        if migration.state == State::IsHeld {
            let held = std::mem::replace(&mut migration.held, Buffer::empty());
            migration.buffer.give(held);
        }
        migration.state = State::Free;
        self.migrating -= 1;
    }

    /// The block of a migration was read; what cannot be read stays where it is.
    pub(crate) fn has_read(&mut self, n: usize, done: VectorDone) {
        let chunk = self.geometry.chunk_index(self.migrations[n].from);
        self.blocks.readers[chunk] -= 1;
        let migration = &mut self.migrations[n];
        (migration.held, migration.state) = (done.buffer, State::IsHeld);
        match ftl::is_read(done.status) {
            true => self.migrate(n),
            false => self.end_migration(n),
        }
    }
}
