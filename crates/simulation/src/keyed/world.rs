//! A key-value target over a drive, its power, and a host that remembers.

use port::{Buffer, KvDone, KvOp, KvReq, Port, PutIf, Ring, Status, Time};
use targets::Kv;

use super::Drive;
use super::model::{Model, Value};
use crate::drive::Drive as Below;
use crate::machine::{Violation, is_done, wrong};
use crate::rig::Rig;

/// Requests that may be under way.
pub(super) const MOST_AT_ONCE: usize = 32;

/// Bytes of a value: the number of each is in the first eight.
pub(super) const SHORTEST: u64 = 8;
pub(super) const LONGEST: u64 = 200_000;

/// Bytes of a key at most, and for keys of a listing among writes.
const LONGEST_NAME: usize = 9;
const LISTED: usize = 200;

/// A request under way.
#[derive(Clone, Debug)]
pub(super) enum Open {
    Write {
        key: u64,
        number: u64,
        durable: bool,
    },
    Get {
        key: u64,
        number: u64,
    },
    /// Of each key whether it is there all the while, and whether it may be there.
    List(Vec<(bool, bool)>),
    /// What has ended before it, by key.
    Flush(Vec<(u64, u64)>),
}

/// A drive, its power, and its host.
pub struct World {
    /// Which drive.
    pub drive: Drive,
    /// The flash and its power, and what was done and seen.
    pub rig: Rig,
    pub(super) target: Option<Kv<Below>>,
    pub(super) model: Model,
    pub(super) now: Time,
    pub(super) queue: Ring<KvReq>,
    pub(super) done: Ring<KvDone>,
    pub(super) open: [Option<Open>; MOST_AT_ONCE],
    pub(super) free: Vec<usize>,
}

fn name(key: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(1 + key as usize % LONGEST_NAME).expect("memory for a key");
    let bytes = buffer.bytes_mut();
    bytes.fill(b'k');
    bytes[0] = key as u8;
    buffer
}

/// The keys of a listing.
fn names(mut listing: &[u8]) -> Vec<u64> {
    let mut keys = Vec::new();
    while let Some((&bytes, rest)) = listing.split_first() {
        let (key, behind) = rest.split_at(bytes.into());
        keys.push(u64::from(key[0]));
        listing = behind;
    }
    keys
}

/// A listing among writes has each key that is there all the while, as far as it went, and
/// none that never was.
fn listed(there: &[(bool, bool)], done: &KvDone) -> Result<(), Violation> {
    let keys = names(&done.value.bytes()[..done.len as usize]);
    let is_whole = done.len as usize + 1 + LONGEST_NAME <= LISTED;
    for (key, &(stays, comes)) in (0..).zip(there) {
        let count = keys.iter().filter(|&&listed| listed == key).count();
        if count < usize::from(is_whole && stays) || count > usize::from(comes) {
            let words = format!("listed {count} times: there {stays}, maybe {comes}");
            return Err(wrong(Some(key), words));
        }
    }
    Ok(())
}

/// All of a value's bytes tell its number.
fn fill(bytes: &mut [u8], number: u64) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = number.to_le_bytes()[at % 8];
    }
}

impl World {
    /// A new drive, without power. `traced` is a key whose history is kept.
    pub(super) fn new(drive: Drive, traced: Option<u64>) -> World {
        let mut world = World {
            rig: Rig::new(&drive.setup, None, traced),
            target: None,
            model: Model::new(drive.names),
            now: Time::ZERO,
            queue: Ring::new(MOST_AT_ONCE),
            done: Ring::new(MOST_AT_ONCE),
            open: [const { None }; MOST_AT_ONCE],
            free: Vec::with_capacity(MOST_AT_ONCE),
            drive,
        };
        world.forget();
        world
    }

    /// Nothing is under way.
    pub(super) fn forget(&mut self) {
        self.open = [const { None }; MOST_AT_ONCE];
        self.free.clear();
        self.free.extend((0..MOST_AT_ONCE).rev());
    }

    pub(super) fn note(&mut self, key: Option<u64>, words: impl FnOnce() -> String) {
        self.rig.note(self.now, |traced| key.is_none_or(|key| key == traced), words);
    }

    fn target(&self) -> &Kv<Below> {
        self.target.as_ref().expect("there is power")
    }

    /// Listings under way may see a write that is asked for now.
    fn tell_listings(&mut self, key: u64, is_there: bool) {
        for open in self.open.iter_mut().flatten() {
            if let Open::List(keys) = open {
                let (stays, comes) = &mut keys[key as usize];
                (*stays, *comes) = (*stays && is_there, *comes || is_there);
            }
        }
    }

    pub(super) fn put(&mut self, key: u64, len: u64, durable: bool) -> Result<(), Violation> {
        let number = self.model.number();
        let name = name(key);
        let stored = self.target.as_ref().map_or(0, |kv| kv.shape().stored(name.len(), len));
        let mut value = Buffer::zeroed(stored).expect("memory for a value");
        fill(value.bytes_mut(), number);
        self.model.write(key, number, Some((number, len)));
        self.tell_listings(key, true);
        self.note(Some(key), || format!("value {number} of {len} bytes is put"));
        let open = Open::Write { key, number, durable };
        self.send(KvOp::Put(PutIf::Any), durable, name, len, value, open)
    }

    pub(super) fn delete(&mut self, key: u64, durable: bool) -> Result<(), Violation> {
        let number = self.model.number();
        self.model.write(key, number, None);
        self.tell_listings(key, false);
        self.note(Some(key), || format!("it is deleted, {number}"));
        let open = Open::Write { key, number, durable };
        self.send(KvOp::Delete, durable, name(key), 0, Buffer::empty(), open)
    }

    pub(super) fn get(&mut self, key: u64) -> Result<(), Violation> {
        let number = self.model.number();
        let room = match self.model.before(key, number) {
            Some((_, len)) => self.target.as_ref().map_or(0, |kv| kv.shape().stored(9, len)),
            None => 64,
        };
        let value = Buffer::zeroed(room).expect("memory for a value");
        self.rig.counts.reads += 1;
        self.send(KvOp::Get, false, name(key), 0, value, Open::Get { key, number })
    }

    pub(super) fn list(&mut self) -> Result<(), Violation> {
        let value = Buffer::zeroed(LISTED).expect("memory for keys");
        let keys = (0..self.drive.names).map(|key| self.model.since_ended(key)).collect();
        self.send(KvOp::List, false, Buffer::empty(), 0, value, Open::List(keys))
    }

    pub(super) fn flush(&mut self) -> Result<(), Violation> {
        self.rig.counts.flushes += 1;
        let open = Open::Flush(self.model.ended());
        self.send(KvOp::Flush, false, Buffer::empty(), 0, Buffer::empty(), open)
    }

    fn send(
        &mut self,
        op: KvOp,
        durable: bool,
        key: Buffer,
        len: u64,
        value: Buffer,
        open: Open,
    ) -> Result<(), Violation> {
        let slot = self.free.pop().expect("the caller saw room");
        self.open[slot] = Some(open);
        self.rig.counts.requests += 1;
        self.queue.put(|| KvReq { id: slot as u64, op, durable, key, len, value });
        self.submit();
        if self.rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(()) }
    }

    pub(super) fn submit(&mut self) {
        if let Some(target) = &mut self.target
            && !self.queue.is_empty()
        {
            target.submit(self.now, &mut self.queue);
        }
    }

    pub(super) fn hangs(&self) -> Violation {
        let open: Vec<&Open> = self.open.iter().flatten().collect();
        let counters = self.target.as_ref().map(Kv::counters);
        wrong(None, format!("the drive hangs: {counters:?}; under way are {open:?}"))
    }

    pub(super) fn completed(&mut self, done: KvDone) -> Result<(), Violation> {
        let slot = done.id as usize;
        let Some(open) = self.open[slot].take() else {
            return Err(wrong(None, format!("request {slot} ended twice")));
        };
        self.free.push(slot);
        self.rig.flash.power().progress();
        match open {
            Open::Write { key, number, durable } => self.wrote(key, number, durable, &done),
            Open::Get { key, number } => {
                let expected = self.model.before(key, number);
                let seen = self.seen(key, &done)?;
                if seen == expected {
                    return Ok(());
                }
                Err(wrong(Some(key), format!("a get gives {seen:?}, and it is {expected:?}")))
            }
            Open::List(there) if is_done(done.status) => listed(&there, &done),
            Open::Flush(ended) if is_done(done.status) => {
                ended.into_iter().for_each(|(key, number)| self.model.settle(key, number));
                Ok(())
            }
            open => Err(wrong(None, format!("{open:?}: {}", done.status))),
        }
    }

    fn wrote(
        &mut self,
        key: u64,
        number: u64,
        durable: bool,
        done: &KvDone,
    ) -> Result<(), Violation> {
        let was = self.model.before(key, number).is_some();
        let is_put = matches!(done.op, KvOp::Put(_));
        match done.status {
            status if is_done(status) && (is_put || was) => {
                self.note(Some(key), || format!("{number} is answered"));
                self.model.wrote(key, number, durable);
                Ok(())
            }
            Status::KEY_NOT_FOUND if !is_put && !was => {
                self.model.refused(key, number);
                Ok(())
            }
            Status::CAPACITY_EXCEEDED if is_put => {
                self.rig.counts.errors += 1;
                self.note(Some(key), || format!("{number} has no room"));
                self.model.refused(key, number);
                Ok(())
            }
            status => {
                Err(wrong(Some(key), format!("write {number}, there before {was}: {status}")))
            }
        }
    }

    /// What a get gave.
    fn seen(&mut self, key: u64, done: &KvDone) -> Result<Value, Violation> {
        if done.status == Status::KEY_NOT_FOUND {
            self.rig.see(1);
            return Ok(None);
        }
        if !is_done(done.status) {
            return Err(wrong(Some(key), format!("a get: {}", done.status)));
        }
        let name = done.key.len();
        let stored = self.target().shape().stored(name, done.len).min(done.value.len());
        let bytes = &done.value.bytes()[..stored];
        let mut word = [0; 8];
        word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let number = u64::from_le_bytes(word);
        let mut expected = vec![0; stored];
        fill(&mut expected, number);
        if bytes != expected {
            return Err(wrong(Some(key), "a value whose bytes are of several"));
        }
        self.rig.see(number);
        Ok(Some((number, done.len)))
    }

    /// Gets all keys, and lists those that are there.
    pub(super) fn check_keys(&mut self, at_rest: bool) -> Result<(), Violation> {
        for key in 0..self.drive.names {
            let shape = self.target().shape();
            let room = shape.stored(9, LONGEST).max(shape.small as usize);
            let value = Buffer::zeroed(room).expect("memory for a value");
            let done = self.act(KvOp::Get, name(key), value)?;
            let seen = self.seen(key, &done)?;
            let when = if at_rest { "at rest" } else { "after a cut" };
            let found = self.model.found(key, seen, at_rest);
            found.map_err(|words| wrong(Some(key), format!("{when}: {words}")))?;
            self.note(Some(key), || format!("{when} it is {seen:?}"));
        }
        let done = self.act(KvOp::List, Buffer::empty(), Buffer::zeroed(4096).expect("memory"))?;
        let mut listed = names(&done.value.bytes()[..done.len as usize]);
        listed.sort_unstable();
        let there: Vec<u64> =
            (0..self.drive.names).filter(|&key| self.model.is_there(key)).collect();
        if listed != there {
            return Err(wrong(None, format!("{listed:?} are listed, and {there:?} are there")));
        }
        self.rig.hash = self.rig.hash.wrapping_add(self.now.0);
        Ok(())
    }

    /// One request while nothing else is under way.
    fn act(&mut self, op: KvOp, key: Buffer, value: Buffer) -> Result<KvDone, Violation> {
        self.queue.put(|| KvReq { id: 0, op, durable: false, key, len: 0, value });
        loop {
            self.submit();
            if let Some(done) = self.done.pop() {
                self.rig.flash.power().progress();
                return Ok(done);
            }
            let target = self.target.as_mut().expect("there is power");
            let at = target.next_event().ok_or_else(|| wrong(None, "a check's request hangs"))?;
            self.now = self.now.max(at);
            target.advance(self.now, &mut self.done);
            if self.rig.is_off() {
                return Err(self.hangs());
            }
        }
    }
}
