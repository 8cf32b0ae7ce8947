//! Listings: keys in the order of their hashes, read from their records.
//!
//! Guarantees: a key that is there all the while is listed, once; one that comes or goes
//! meanwhile may be listed or not. A record that cannot be read is left out, and said so
//! by the status.

use device::OpenChannel;
use port::{Buffer, Status, Time};

use super::Kv;
use super::mutation::{self, Mutation};
use super::place::Place;
use super::record::Record;

impl<D: OpenChannel> Kv<D> {
    /// Goes on with a listing.
    pub(super) fn list(&mut self, now: Time, slot: u32) {
        let cursor = self.requests[slot as usize].cursor;
        match self.index.next_from(cursor) {
            Some(entry) => {
                self.requests[slot as usize].cursor = entry.hash;
                self.read_record(slot, entry.place);
            }
            None => self.end_list(now, slot),
        }
    }

    /// A record of a listing was read.
    pub(super) fn see_key(
        &mut self,
        now: Time,
        slot: u32,
        is_read: bool,
        buffer: Buffer,
        at: usize,
    ) {
        let held = &mut self.requests[slot as usize];
        let place = self.index.find(held.cursor).unwrap_or(Place::NONE);
        let record = Record::read(&buffer.bytes()[at..]).filter(|_| is_read);
        let mut is_full = false;
        // One that was moved or deleted meanwhile is looked for again.
        let is_same = place == held.place;
        match record.filter(|_| is_same) {
            Some(record) => {
                let size = 1 + record.key.len();
                is_full = held.value.rest().len() < size;
                if !is_full {
                    let mut to = held.value.take(size);
                    to.bytes_mut()[0] = record.key.len() as u8;
                    to.bytes_mut()[1..].copy_from_slice(record.key);
                    held.value.give(to);
                    held.out += size as u64;
                }
            }
            None if is_same => held.status = Status::KEY_UNRECOVERED,
            None => {}
        }
        held.record.give(buffer);
        let goes_on = is_same || mutation::is(Mutation::SkipMoved);
        let next = if goes_on { held.cursor.checked_add(1) } else { Some(held.cursor) };
        match next.filter(|_| !is_full) {
            Some(next) => {
                held.cursor = next;
                self.list(now, slot);
            }
            None => self.end_list(now, slot),
        }
    }

    fn end_list(&mut self, now: Time, slot: u32) {
        let status = self.requests[slot as usize].status;
        self.end(now, slot, status);
    }
}
