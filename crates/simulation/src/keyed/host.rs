//! A host that asks by key, and remembers: what it asks, and whether the answers are those
//! that may be.
//!
//! Whatever is asked is beside it: what it sends stands in [`Host::queue`], and what completed
//! it is given. Fails by a [`Violation`] alone.

use port::{Buffer, KvDone, KvOp, KvReq, KvShape, PutIf, Ring, Status, Time};
use workload::Rng;

use super::listing::{LISTED, LONGEST_NAME, Listing, Order, name, names};
use super::model::{Model, Value};
use super::room::Room;
use crate::machine::{Violation, is_done, wrong};
use crate::rig::Rig;
use crate::words;

/// Requests that may be under way.
pub(crate) const MOST_AT_ONCE: usize = 32;

/// Bytes of a value: the number of each is in the first eight.
const SHORTEST: u64 = 8;
const LONGEST: u64 = 200_000;

/// How often a check reads what it does not get.
const TRIES: u32 = 4;

/// Stream of the random numbers that say what a put, get or listing is in particular.
const KINDS: u64 = 505;

/// A request under way.
#[derive(Clone, Debug)]
enum Open {
    Write {
        key: u64,
        number: u64,
        durable: bool,
        /// The most that values took since it was sent.
        taken: u64,
    },
    Get {
        key: u64,
        number: u64,
        /// Bytes of its buffer.
        room: usize,
        /// Blocks that could not be read before it was sent.
        unread: u64,
    },
    Exists {
        key: u64,
        number: u64,
        /// The same.
        unread: u64,
    },
    /// With the same.
    List(Listing, u64),
    /// What has ended before it, by key.
    Flush(Vec<(u64, u64)>),
}

/// What faults explain: none where nothing failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuse {
    /// Blocks of it that could not be read so far, in all.
    pub unread: u64,
    /// Those of them before power came, and before the start had ended.
    pub before_power: u64,
    pub before_work: u64,
    /// Something could not be written, or chunks are lost.
    pub unwritten: bool,
}

impl Excuse {
    /// Whether something could not be read since power came.
    fn is_unread(&self) -> bool {
        self.unread > self.before_power
    }

    /// Whether a request fails with reason that was sent when so many blocks had not been
    /// read: one was not since then, or the start did without some.
    fn has_reason(&self, unread: u64) -> bool {
        self.unread > unread || self.before_work > self.before_power
    }
}

/// What is asked, while nothing else is under way.
pub(crate) trait Site {
    fn rig(&mut self) -> &mut Rig;
    fn now(&self) -> Time;
    fn excuse(&self) -> Excuse;
    /// Waits for the answer to one request.
    fn act(&mut self, req: KvReq) -> Result<KvDone, Violation>;
}

/// See the head of this file.
pub(crate) struct Host {
    /// Keys that are used, bytes of most values at most, and requests at once.
    names: u64,
    most: u64,
    pub depth: usize,
    room: Room,
    kinds: Rng,
    /// What is known of the order of listings.
    order: Order,
    /// The outside of what is asked, as long as there is power.
    shape: Option<KvShape>,
    pub model: Model,
    /// What is to be sent.
    pub queue: Ring<KvReq>,
    open: [Option<Open>; MOST_AT_ONCE],
    free: Vec<usize>,
}

fn note(rig: &mut Rig, now: Time, key: u64, words: impl FnOnce() -> String) {
    rig.note(now, |traced| key == traced, words);
}

impl Host {
    /// One that has asked nothing yet.
    pub fn new(names: u64, most: u64, depth: usize, room: Room, seed: u64) -> Host {
        let mut host = Host {
            names,
            most,
            depth,
            room,
            kinds: Rng::new(seed, KINDS),
            order: Order::new(names),
            shape: None,
            model: Model::new(names),
            queue: Ring::new(MOST_AT_ONCE),
            open: [const { None }; MOST_AT_ONCE],
            free: Vec::with_capacity(MOST_AT_ONCE),
        };
        host.cut();
        host
    }

    /// What is asked is there.
    pub fn started(&mut self, shape: KvShape) {
        self.shape = Some(shape);
    }

    /// Nothing is under way any more.
    pub fn cut(&mut self) {
        self.shape = None;
        while self.queue.pop().is_some() {}
        self.open = [const { None }; MOST_AT_ONCE];
        self.free.clear();
        self.free.extend((0..MOST_AT_ONCE).rev());
    }

    pub fn under_way(&self) -> usize {
        MOST_AT_ONCE - self.free.len()
    }

    /// What is under way, in words.
    pub fn in_words(&self) -> String {
        format!("{:?}", self.open.iter().flatten().collect::<Vec<_>>())
    }

    fn shape(&self) -> &KvShape {
        self.shape.as_ref().expect("there is power")
    }

    /// One more request. There is room for it.
    pub fn ask(&mut self, rng: &mut Rng, excuse: Excuse, rig: &mut Rig, now: Time) {
        let key = rng.below(self.names);
        let durable = rng.one_in(8);
        match rng.below(100) {
            0..50 => {
                // Now and then one that goes over several rows.
                let most = if rng.one_in(16) { LONGEST } else { self.most };
                self.put(key, SHORTEST + rng.below(most - SHORTEST + 1), durable, rig, now);
            }
            50..62 => self.delete(key, durable, rig, now),
            62..92 if self.kinds.one_in(6) => self.exists(key, excuse.unread, rig),
            62..92 => self.get(key, excuse.unread, rig),
            92..94 => self.list(excuse.unread, rig),
            _ => self.flush(rig),
        }
    }

    /// Listings under way may see a write that is asked for now.
    fn tell_listings(&mut self, key: u64, is_there: bool) {
        for open in self.open.iter_mut().flatten() {
            if let Open::List(listing, _) = open {
                let (stays, comes) = &mut listing.there[key as usize];
                (*stays, *comes) = (*stays && is_there, *comes || is_there);
            }
        }
    }

    fn put(&mut self, key: u64, len: u64, durable: bool, rig: &mut Rig, now: Time) {
        let number = self.model.number();
        let name = name(key);
        let stored = self.shape().stored(name.len(), len);
        let mut value = Buffer::zeroed(stored).expect("memory for a value");
        words::fill(value.bytes_mut(), number);
        self.model.write(key, number, Some((number, len)));
        self.tell_listings(key, true);
        let only = self.kinds.one_of(&[PutIf::Exists, PutIf::Absent, PutIf::Any, PutIf::Any]);
        let only = if self.kinds.one_in(3) { only } else { PutIf::Any };
        note(rig, now, key, || format!("value {number} of {len} bytes is put, {only:?}"));
        let open = Open::Write { key, number, durable, taken: self.note_taken() };
        self.send(KvOp::Put(only), durable, (name, len, value), open, rig);
    }

    /// Takes note, for all writes under way, of what values take now that another was sent,
    /// and gives it.
    fn note_taken(&mut self) -> u64 {
        let now = self.model.taken(|len| self.room.taken(len));
        for open in self.open.iter_mut().flatten() {
            if let Open::Write { taken, .. } = open {
                *taken = now.max(*taken);
            }
        }
        now
    }

    fn delete(&mut self, key: u64, durable: bool, rig: &mut Rig, now: Time) {
        let number = self.model.number();
        self.model.write(key, number, None);
        self.tell_listings(key, false);
        note(rig, now, key, || format!("it is deleted, {number}"));
        let open = Open::Write { key, number, durable, taken: 0 };
        self.send(KvOp::Delete, durable, (name(key), 0, Buffer::empty()), open, rig);
    }

    fn get(&mut self, key: u64, unread: u64, rig: &mut Rig) {
        let number = self.model.number();
        let lens = self.model.before(key, number).flatten().map(|(_, len)| len);
        let room = lens.max().map_or(64, |len| self.shape().stored(LONGEST_NAME, len));
        let value = Buffer::zeroed(room).expect("memory for a value");
        rig.counts.reads += 1;
        let open = Open::Get { key, number, room, unread };
        self.send(KvOp::Get, false, (name(key), 0, value), open, rig);
    }

    fn exists(&mut self, key: u64, unread: u64, rig: &mut Rig) {
        let number = self.model.number();
        let asked = (name(key), 0, Buffer::empty());
        rig.counts.reads += 1;
        self.send(KvOp::Exists, false, asked, Open::Exists { key, number, unread }, rig);
    }

    /// From any key on, or of all.
    fn list(&mut self, unread: u64, rig: &mut Rig) {
        let value = Buffer::zeroed(LISTED).expect("memory for keys");
        let there = (0..self.names).map(|key| self.model.since_ended(key)).collect();
        let any = self.kinds.below(self.names);
        let from = (self.kinds.below(2) == 0).then_some(any);
        let first = from.map_or(Buffer::empty(), name);
        let open = Open::List(Listing { from, there }, unread);
        self.send(KvOp::List, false, (first, 0, value), open, rig);
    }

    /// A flush.
    pub fn flush(&mut self, rig: &mut Rig) {
        rig.counts.flushes += 1;
        let open = Open::Flush(self.model.ended());
        self.send(KvOp::Flush, false, (Buffer::empty(), 0, Buffer::empty()), open, rig);
    }

    fn send(
        &mut self,
        op: KvOp,
        durable: bool,
        (key, len, value): (Buffer, u64, Buffer),
        open: Open,
        rig: &mut Rig,
    ) {
        let slot = self.free.pop().expect("the caller saw room");
        self.open[slot] = Some(open);
        rig.counts.requests += 1;
        self.queue.put(|| KvReq { id: slot as u64, op, durable, key, len, value });
    }

    /// A request ended.
    pub fn completed(
        &mut self,
        done: KvDone,
        excuse: Excuse,
        rig: &mut Rig,
        now: Time,
    ) -> Result<(), Violation> {
        let slot = done.id as usize;
        let Some(open) = self.open[slot].take() else {
            return Err(wrong(None, format!("request {slot} ended twice")));
        };
        self.free.push(slot);
        rig.flash.power().progress();
        match open {
            Open::Write { key, number, durable, taken } => {
                let lacks = self.room.may_lack(taken);
                self.wrote((key, number, durable), &done, (lacks, excuse), rig, now)
            }
            Open::Get { unread, .. } | Open::Exists { unread, .. } | Open::List(_, unread)
                if excuse.has_reason(unread) && done.status == Status::KEY_UNRECOVERED =>
            {
                rig.counts.errors += 1;
                Ok(())
            }
            Open::Get { key, number, room, .. } => {
                let seen = self.seen(key, room, &done, rig)?;
                if self.model.before(key, number).any(|expected| seen == expected) {
                    return Ok(());
                }
                let expected: Vec<Value> = self.model.before(key, number).collect();
                Err(wrong(Some(key), format!("a get gives {seen:?}, and it is {expected:?}")))
            }
            Open::Exists { key, number, .. } => {
                let len = match done.status {
                    Status::KEY_NOT_FOUND => None,
                    status if is_done(status) => Some(done.len),
                    status => {
                        return Err(wrong(Some(key), format!("whether it is there: {status}")));
                    }
                };
                let mut lens = self.model.before(key, number).map(|value| value.map(|of| of.1));
                if lens.any(|expected| len == expected) {
                    return Ok(());
                }
                let expected: Vec<Value> = self.model.before(key, number).collect();
                Err(wrong(
                    Some(key),
                    format!("it is said to have {len:?} bytes, and is {expected:?}"),
                ))
            }
            Open::List(listing, _) if is_done(done.status) => {
                let is_whole = done.len as usize + 1 + LONGEST_NAME <= LISTED;
                let keys = names(&done);
                let checked = listing.check(&keys, is_whole, &self.order);
                checked.and_then(|()| self.order.learn(&keys)).map_err(|(key, why)| wrong(key, why))
            }
            Open::Flush(ended) if is_done(done.status) => {
                ended.into_iter().for_each(|(key, number)| self.model.settle(key, number));
                Ok(())
            }
            Open::Flush(_) if excuse.unwritten && done.status == Status::WRITE_FAULT => {
                rig.counts.errors += 1;
                rig.told_of_end = true;
                Ok(())
            }
            open => Err(wrong(None, format!("{open:?}: {}", done.status))),
        }
    }

    fn wrote(
        &mut self,
        (key, number, durable): (u64, u64, bool),
        done: &KvDone,
        (lacks_room, excuse): (bool, Excuse),
        rig: &mut Rig,
        now: Time,
    ) -> Result<(), Violation> {
        let was_there = self.model.before(key, number).any(|value| value.is_some());
        let was_gone = self.model.before(key, number).any(|value| value.is_none());
        let is_put = matches!(done.op, KvOp::Put(_));
        // A put says whether there was a value.
        let replaced = !is_put || done.len == 1;
        let may_be = if replaced { was_there } else { was_gone };
        let only = match done.op {
            KvOp::Put(PutIf::Exists) => replaced,
            KvOp::Put(PutIf::Absent) => !replaced,
            _ => true,
        };
        match done.status {
            status if is_done(status) && may_be && only => {
                note(rig, now, key, || format!("{number} is answered"));
                self.model.wrote(key, number, durable);
                Ok(())
            }
            Status::KEY_NOT_FOUND
                if matches!(done.op, KvOp::Put(PutIf::Exists) | KvOp::Delete) && was_gone =>
            {
                self.model.refused(key, number);
                Ok(())
            }
            Status::KEY_EXISTS if done.op == KvOp::Put(PutIf::Absent) && was_there => {
                self.model.refused(key, number);
                Ok(())
            }
            // A delete has room, but where chunks are lost, or cannot be collected; so has a
            // put while values take little.
            Status::CAPACITY_EXCEEDED
                if is_put && lacks_room || excuse.is_unread() || excuse.unwritten =>
            {
                rig.counts.errors += 1;
                note(rig, now, key, || format!("{number} has no room"));
                self.model.refused(key, number);
                Ok(())
            }
            Status::READ_ONLY | Status::WRITE_FAULT if excuse.unwritten => {
                rig.counts.errors += 1;
                rig.told_of_end |= done.status == Status::READ_ONLY;
                note(rig, now, key, || format!("{number} failed"));
                match done.status {
                    Status::READ_ONLY => self.model.refused(key, number),
                    _ => self.model.failed(key, number),
                }
                Ok(())
            }
            status => {
                let was = (was_there, was_gone);
                Err(wrong(
                    Some(key),
                    format!("write {number}, there before or not {was:?}: {status}"),
                ))
            }
        }
    }

    /// What a get gave that had room for so many bytes.
    fn seen(
        &self,
        key: u64,
        room: usize,
        done: &KvDone,
        rig: &mut Rig,
    ) -> Result<Value, Violation> {
        if done.status == Status::KEY_NOT_FOUND {
            rig.see(1);
            return Ok(None);
        }
        if !is_done(done.status) {
            return Err(wrong(Some(key), format!("a get: {}", done.status)));
        }
        let (stored, bytes) = (self.shape().stored(done.key.len(), done.len), done.value.bytes());
        if bytes.len() != room {
            let words = format!("a get with room for {room} bytes comes back with {}", bytes.len());
            return Err(wrong(Some(key), words));
        }
        // As much of it as there is room for.
        let bytes = &bytes[..stored.min(room)];
        let Some(number) = words::value(bytes) else {
            return Err(wrong(Some(key), "bytes that are not those of a value"));
        };
        rig.see(number);
        Ok(Some((number, done.len)))
    }

    /// Gets all keys, and lists those that are there.
    pub fn check(&mut self, at_rest: bool, site: &mut impl Site) -> Result<(), Violation> {
        let when = if at_rest { "at rest" } else { "after a cut" };
        let room = self.shape().stored(LONGEST_NAME, LONGEST).max(self.shape().small as usize);
        let mut value = Buffer::zeroed(room).expect("memory for a value");
        let mut is_whole = true;
        for key in 0..self.names {
            let Some(done) = self.read(key, &mut value, site)? else {
                is_whole = false;
                self.model.lost(key);
                site.rig().counts.lost += 1;
                continue;
            };
            let seen = self.seen(key, room, &done, site.rig())?;
            value = done.value;
            let found = self.model.found(key, seen, at_rest);
            found.map_err(|words| wrong(Some(key), format!("{when}: {words}")))?;
            let now = site.now();
            note(site.rig(), now, key, || format!("{when} it is {seen:?}"));
        }
        if is_whole {
            self.check_list(site)?;
        }
        let now = site.now().0;
        site.rig().hash = site.rig().hash.wrapping_add(now);
        Ok(())
    }

    /// Nothing that was ever there takes room when it was deleted: values may be put again.
    pub fn check_room(&mut self, site: &mut impl Site) -> Result<(), Violation> {
        for key in 0..self.names {
            let done = site.act(request(KvOp::Delete, name(key), Buffer::empty()))?;
            if !is_done(done.status) && done.status != Status::KEY_NOT_FOUND {
                return self.has_none(key, done.status, 0, site);
            }
        }
        let done = site.act(request(KvOp::Flush, Buffer::empty(), Buffer::empty()))?;
        if !is_done(done.status) {
            return self.has_none(0, done.status, 0, site);
        }
        self.model.replace();
        let mut taken = 0;
        for key in 0..self.names {
            taken += self.room.taken(self.most);
            if self.room.may_lack(taken) {
                break;
            }
            let (number, name) = (self.model.number(), name(key));
            let stored = self.shape().stored(name.len(), self.most);
            let mut value = Buffer::zeroed(stored).expect("memory for a value");
            words::fill(value.bytes_mut(), number);
            let put = KvReq { len: self.most, ..request(KvOp::Put(PutIf::Any), name, value) };
            let done = site.act(put)?;
            if !is_done(done.status) {
                return self.has_none(key, done.status, taken, site);
            }
            self.model.write(key, number, Some((number, self.most)));
            self.model.wrote(key, number, false);
        }
        Ok(())
    }

    /// A request of [`Host::check_room`] failed: it may where chunks are lost.
    fn has_none(
        &self,
        key: u64,
        status: Status,
        taken: u64,
        site: &mut impl Site,
    ) -> Result<(), Violation> {
        let excuse = site.excuse();
        if excuse.is_unread() || excuse.unwritten {
            return Ok(());
        }
        let words = format!("all was deleted, and values of {taken} bytes put of {:?}", self.room);
        Err(wrong(Some(key), format!("{words}: {status}")))
    }

    /// Reads a key into `value`, which what it gives has; nothing where that fails again and
    /// again, with a reason. What was there before is no value of this key.
    fn read(
        &self,
        key: u64,
        value: &mut Buffer,
        site: &mut impl Site,
    ) -> Result<Option<KvDone>, Violation> {
        for _ in 0..TRIES {
            let unread = site.excuse().unread;
            let done = site.act(request(KvOp::Get, name(key), std::mem::take(value)))?;
            if done.status != Status::KEY_UNRECOVERED || !site.excuse().has_reason(unread) {
                return Ok(Some(done));
            }
            *value = done.value;
        }
        Ok(None)
    }

    fn check_list(&mut self, site: &mut impl Site) -> Result<(), Violation> {
        let value = Buffer::zeroed(4096).expect("memory");
        let unread = site.excuse().unread;
        let done = site.act(request(KvOp::List, Buffer::empty(), value))?;
        if done.status == Status::KEY_UNRECOVERED && site.excuse().has_reason(unread) {
            return Ok(());
        }
        let mut listed = names(&done);
        self.order.learn(&listed).map_err(|(key, why)| wrong(key, why))?;
        listed.sort_unstable();
        let there: Vec<u64> = (0..self.names).filter(|&key| self.model.is_there(key)).collect();
        if listed != there {
            return Err(wrong(None, format!("{listed:?} are listed, and {there:?} are there")));
        }
        Ok(())
    }
}

/// One request of a check.
fn request(op: KvOp, key: Buffer, value: Buffer) -> KvReq {
    KvReq { id: 0, op, durable: false, key, len: 0, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_lost_explains_what_was_sent_before_that() {
        let excuse = Excuse { unread: 7, before_power: 5, before_work: 5, unwritten: false };
        assert!(excuse.is_unread() && excuse.has_reason(6));
        assert!(!excuse.has_reason(7), "nothing failed since it was sent");
        let in_start = Excuse { before_work: 6, ..excuse };
        assert!(in_start.has_reason(7), "the start did without it");
        let before = Excuse { before_power: 7, before_work: 7, ..excuse };
        assert!(!before.is_unread() && !before.has_reason(7));
    }
}
