//! A key-value target, a model of it, and power that goes.
//!
//! Of each key the model has what its puts and deletes left, in their order, since the
//! last that is known to be durable: after a cut the key is as one of these. Until then
//! each get gives exactly what the put or delete before it left.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use device::{Device, OpenChannel};
use faults::{Below, FaultPort, FaultRule, Fuse, PowerCut, Script, ScriptedMedium};
use flash::{Chunk, Dimensions, Geometry, Timing};
use port::random::{Random, mix};
use port::{Buffer, KvDone, KvOp, KvReq, Port, PutIf, Ring, Status, Time};
use targets::kv::{Kv, KvConfig, KvError};

pub type Target = Kv<Box<dyn OpenChannel>>;
type Shared = Rc<RefCell<Device<ScriptedMedium>>>;

/// A value: a number that its bytes are made of, and how many they are.
pub type Value = (u64, u64);

/// What a put or delete leaves.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Its number; it has ended.
    number: u64,
    ended: bool,
    value: Option<Value>,
}

pub fn fill(value: Value, bytes: &mut [u8]) {
    for (at, bytes) in bytes.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&mix(value.0 << 20 | at as u64).to_le_bytes()[..bytes.len()]);
    }
}

pub fn small(seed: u64) -> World {
    let dim =
        Dimensions { groups: 2, pus: 2, chunks: 12, pages: 8, planes: 2, ..Dimensions::LEAST };
    World::new(dim, seed, |geometry| ScriptedMedium::ram(geometry, 8, ()))
}

/// What the medium was told last of each chunk: what a cut leaves to be found.
struct Told(Rc<RefCell<Vec<Chunk>>>);

impl Script for Told {
    fn describe(&mut self, below: Below, chunk_index: usize, chunk: &Chunk) {
        self.0.borrow_mut()[chunk_index] = *chunk;
        below.describe(chunk_index, chunk);
    }
}

/// What survives a cut, and what is known of it.
pub struct World {
    pub geometry: Geometry,
    pub timing: Timing,
    pub config: KvConfig,
    medium: Option<ScriptedMedium>,
    told: Rc<RefCell<Vec<Chunk>>>,
    pub chunks: Vec<Chunk>,
    keys: BTreeMap<Vec<u8>, Vec<State>>,
    pub random: Random,
    numbers: u64,
    /// Different keys that are used, and the longest value.
    pub names: u64,
    pub most: u64,
    /// Values are of a row or more.
    pub large_only: bool,
    /// Requests and events between cuts, at most, by hundreds and thousands.
    pub pace: u64,
    /// What fails from power on.
    pub rules: Vec<FaultRule>,
    pub seen: BTreeMap<&'static str, u64>,
    fresh: bool,
}

/// A request inside.
enum Open {
    Write {
        key: Vec<u8>,
        number: u64,
        durable: bool,
    },
    Get {
        key: Vec<u8>,
        number: u64,
    },
    Exists {
        key: Vec<u8>,
        number: u64,
    },
    List,
    /// With the newest of each key that had ended.
    Flush(Vec<(Vec<u8>, u64)>),
}

/// A target at work.
pub struct Run {
    pub target: Target,
    device: Shared,
    pub fuse: Rc<Cell<u64>>,
    pub now: Time,
    open: BTreeMap<u64, Open>,
    queue: Ring<KvReq>,
    done: Ring<KvDone>,
    idle: u32,
}

impl World {
    pub fn new(dim: Dimensions, seed: u64, medium: impl Fn(&Geometry) -> ScriptedMedium) -> World {
        let geometry = Geometry::new(dim).unwrap();
        let timing = Timing {
            read: vec![50_000],
            program: vec![600_000, 900_000],
            erase: 3_000_000,
            command: 100,
            channel_rate: 400_000_000,
            ..Timing::default()
        };
        let told = Rc::new(RefCell::new(vec![Chunk::default(); geometry.chunk_slots()]));
        let medium = ScriptedMedium::new(medium(&geometry), Told(told.clone()));
        let device = Device::new(&geometry, &timing, medium).unwrap();
        let config = KvConfig {
            keys: 100,
            depth: 8,
            checkpoint_rows: 20,
            ..KvConfig::for_geometry(&geometry)
        };
        let chunks = device.chunks().to_vec();
        told.borrow_mut().clone_from(&chunks);
        World {
            geometry,
            timing,
            config,
            medium: Some(device.cut()),
            told,
            chunks,
            keys: BTreeMap::new(),
            random: Random::new(seed, 0),
            numbers: 0,
            names: 40,
            most: 100_000,
            large_only: false,
            pace: 4,
            rules: Vec::new(),
            seen: BTreeMap::new(),
            fresh: true,
        }
    }

    pub fn note(&mut self, what: &'static str, count: u64) {
        *self.seen.entry(what).or_default() += count;
    }

    /// The medium, while power is off.
    pub fn medium(&mut self) -> &mut ScriptedMedium {
        self.medium.as_mut().expect("power is off")
    }

    /// Power comes, and goes again in recovery after `events`: then `None`.
    pub fn try_power_on(&mut self, events: u64) -> Result<Option<Run>, KvError> {
        let medium = self.medium.take().expect("power is off");
        let device = Device::restore(&self.geometry, &self.timing, medium, &self.chunks).unwrap();
        let below = Fuse::new(device, events);
        let (device, fuse) = (below.drive.clone(), below.left.clone());
        let seed = self.random.below(1 << 30);
        let below = FaultPort::new(below, &self.rules, seed).unwrap();
        let below: Box<dyn OpenChannel> = Box::new(below);
        let opened = match self.fresh {
            true => Kv::new(below, self.config).map(|target| (target, Time::ZERO)),
            false => Kv::recover(below, self.config, Time::ZERO),
        };
        let (target, now) = match opened {
            Ok(opened) if fuse.get() > 0 => opened,
            opened => {
                let error = opened.err();
                self.take_medium(device);
                return match error {
                    Some(e) if fuse.get() > 0 => Err(e),
                    _ => Ok(None),
                };
            }
        };
        self.fresh = false;
        let recovery = *target.recovery();
        self.note("rows", recovery.rows);
        self.note("dropped", recovery.dropped);
        self.note("large", recovery.large);
        self.note("from checkpoints", u64::from(recovery.checkpoint > 0));
        let depth = self.config.depth;
        let (queue, done) = (Ring::new(depth), Ring::new(depth));
        let open = BTreeMap::new();
        Ok(Some(Run { target, device, fuse, now, open, queue, done, idle: 0 }))
    }

    pub fn power_on(&mut self, events: u64) -> Option<Run> {
        self.try_power_on(events).unwrap()
    }

    fn take_medium(&mut self, device: Shared) {
        let device = Rc::try_unwrap(device).ok().expect("the target is gone").into_inner();
        let mut medium = device.cut();
        let seed = self.random.below(1 << 30);
        self.chunks.clone_from(&self.told.borrow());
        medium.power_cut(seed, &mut self.chunks);
        self.told.borrow_mut().clone_from(&self.chunks);
        self.medium = Some(medium);
    }

    /// Power goes.
    pub fn power_off(&mut self, run: Run) {
        let Run { target, device, .. } = run;
        let counters = target.counters();
        self.note("collections", counters.collections);
        self.note("moved", counters.moved);
        self.note("erases", counters.erases);
        self.note("metadata", counters.metadata);
        self.note("retired", counters.retired);
        self.note("rows of values moved", counters.gc);
        drop(target);
        self.take_medium(device);
    }

    pub fn name(&self, number: u64) -> Vec<u8> {
        let mut name = format!("key {number}").into_bytes();
        if number.is_multiple_of(7) {
            name.resize(255, b'.');
        }
        name
    }

    /// A length: mostly small, some of about a row, some of several.
    fn len(&mut self) -> u64 {
        let row = u64::from(self.geometry.row_blocks()) * 4096;
        let kind = if self.large_only { 11 } else { self.random.below(12) };
        let len = match kind {
            0 => 0,
            1..=6 => self.random.below(400),
            7..=8 => self.random.below(row),
            9 => row - 400 + self.random.below(800),
            _ if self.large_only => row + self.random.below(self.most),
            _ => self.random.below(self.most),
        };
        if self.large_only { len } else { len.min(self.most) }
    }

    /// What is known of a key before an operation with this number.
    fn before(&self, key: &[u8], number: u64) -> Option<Value> {
        let states = self.keys.get(key)?;
        states.iter().rev().find(|state| state.number < number)?.value
    }

    /// Keys that are there.
    fn present(&self) -> BTreeSet<Vec<u8>> {
        let is = |states: &Vec<State>| states.last().is_some_and(|state| state.value.is_some());
        self.keys.iter().filter(|(_, states)| is(states)).map(|(key, _)| key.clone()).collect()
    }

    /// Nothing of a key from before this operation can come back.
    fn settle(&mut self, key: &[u8], number: u64) {
        let states = self.keys.get_mut(key).unwrap();
        let first = states.iter().position(|state| state.number >= number).unwrap_or(states.len());
        let stays = states.get(first).is_some_and(|state| state.number == number);
        states.drain(..if stays { first } else { first.saturating_sub(1) });
    }

    /// After a cut: all keys are as one of their states, and are listed.
    pub fn check(&mut self, run: &mut Run) {
        let keys: Vec<Vec<u8>> = self.keys.keys().cloned().collect();
        for key in keys {
            let states = self.keys[&key].clone();
            let most = states.iter().filter_map(|state| state.value).map(|value| value.1).max();
            let room = run.target.shape().stored(key.len(), most.unwrap_or(0)).max(4096);
            let done = run.ask(self, KvOp::Get, &key, room);
            let is = |value: Option<Value>| match value {
                None => done.status == Status::KEY_NOT_FOUND,
                Some(value) => done.status.is_ok() && same(run, &key, value, &done),
            };
            let state = states.iter().rev().find(|state| is(state.value));
            let Some(&state) = state else {
                panic!(
                    "{} is none of {states:?}, but {} with {} bytes",
                    String::from_utf8_lossy(&key),
                    done.status,
                    done.len
                );
            };
            self.keys.insert(key, vec![State { ended: true, ..state }]);
        }
        self.check_list(run);
    }

    /// A listing, in parts, has all keys that are there and no other.
    pub fn check_list(&mut self, run: &mut Run) {
        let (mut listed, mut from) = (BTreeSet::new(), Vec::new());
        loop {
            let room = 2 * 256 + self.random.below(2000) as usize;
            let done = run.ask(self, KvOp::List, &from, room);
            assert!(done.status.is_ok(), "{}", done.status);
            let mut bytes = &done.value.bytes()[..done.len as usize];
            let mut more = false;
            while let Some((&len, rest)) = bytes.split_first() {
                let (key, rest) = rest.split_at(len.into());
                if key != from {
                    more = true;
                    assert!(listed.insert(key.to_vec()), "a key is listed twice");
                }
                bytes = rest;
                from = key.to_vec();
            }
            if !more {
                break;
            }
        }
        assert!(listed == self.present(), "other keys are listed than are there");
    }
}

/// Whether a get gave a value, as much of it as there was room for.
fn same(run: &Run, key: &[u8], value: Value, done: &KvDone) -> bool {
    let stored = run.target.shape().stored(key.len(), value.1);
    let mut bytes = vec![0; stored];
    fill(value, &mut bytes);
    let len = stored.min(done.value.len());
    done.len == value.1 && done.value.bytes()[..len] == bytes[..len]
}

impl Run {
    pub fn is_on(&self) -> bool {
        self.fuse.get() > 0
    }

    /// Submits a request with a key, and a value of so many bytes.
    fn submit(
        &mut self,
        world: &mut World,
        op: KvOp,
        durable: bool,
        (key, len, value): (&[u8], u64, Buffer),
        open: Open,
    ) -> u64 {
        world.numbers += 1;
        let id = world.numbers;
        let mut name = Buffer::zeroed(key.len()).unwrap();
        name.bytes_mut().copy_from_slice(key);
        self.open.insert(id, open);
        self.queue.push(KvReq { id, op, durable, key: name, len, value }).unwrap();
        self.target.submit(self.now, &mut self.queue);
        assert!(self.queue.is_empty(), "there was room");
        id
    }

    pub fn has_room(&self, world: &World) -> bool {
        self.open.len() < world.config.depth
    }

    pub fn put(&mut self, world: &mut World, key: &[u8], len: u64, only: PutIf, durable: bool) {
        let value = (world.numbers + 1, len);
        let mut buffer = Buffer::zeroed(self.target.shape().stored(key.len(), len)).unwrap();
        fill(value, buffer.bytes_mut());
        self.write(world, KvOp::Put(only), key, Some(value), buffer, durable);
    }

    pub fn delete(&mut self, world: &mut World, key: &[u8], durable: bool) {
        self.write(world, KvOp::Delete, key, None, Buffer::empty(), durable);
    }

    fn write(
        &mut self,
        world: &mut World,
        op: KvOp,
        key: &[u8],
        value: Option<Value>,
        buffer: Buffer,
        durable: bool,
    ) {
        let number = world.numbers + 1;
        let first = State { number: 0, ended: true, value: None };
        let states = world.keys.entry(key.to_vec()).or_insert(vec![first]);
        states.push(State { number, ended: false, value });
        let open = Open::Write { key: key.to_vec(), number, durable };
        let len = value.map_or(0, |value| value.1);
        assert_eq!(self.submit(world, op, durable, (key, len, buffer), open), number);
    }

    pub fn flush(&mut self, world: &mut World) {
        let ended =
            |states: &Vec<State>| states.iter().rev().find(|state| state.ended).map(|s| s.number);
        let all = world.keys.iter().filter_map(|(key, states)| Some((key.clone(), ended(states)?)));
        let open = Open::Flush(all.collect());
        self.submit(world, KvOp::Flush, false, (&[], 0, Buffer::empty()), open);
    }

    /// A random request.
    pub fn submit_random(&mut self, world: &mut World) {
        let number = world.random.below(world.names);
        let key = world.name(number);
        let durable = world.random.below(4) == 0;
        match world.random.below(100) {
            0..40 => {
                let only = match world.random.below(8) {
                    0 => PutIf::Exists,
                    1 => PutIf::Absent,
                    _ => PutIf::Any,
                };
                let len = world.len();
                self.put(world, &key, len, only, durable);
            }
            40..58 => self.delete(world, &key, durable),
            58..85 => {
                let number = world.numbers + 1;
                let room = if world.random.below(4) == 0 { world.len() } else { world.most };
                let room = self.target.shape().stored(key.len(), room).max(8);
                let value = Buffer::zeroed(room).unwrap();
                let open = Open::Get { key: key.clone(), number };
                self.submit(world, KvOp::Get, false, (&key, 0, value), open);
            }
            85..92 => {
                let number = world.numbers + 1;
                let open = Open::Exists { key: key.clone(), number };
                self.submit(world, KvOp::Exists, false, (&key, 0, Buffer::empty()), open);
            }
            92..95 => {
                let value = Buffer::zeroed(1000).unwrap();
                self.submit(world, KvOp::List, false, (&key, 0, value), Open::List);
            }
            _ => self.flush(world),
        }
    }

    /// The next event. False where there is none.
    pub fn step(&mut self, world: &mut World) -> bool {
        let Some(at) = self.target.next_event() else { return false };
        self.now = self.now.max(at);
        self.target.advance(self.now, &mut self.done);
        self.idle = if self.done.is_empty() { self.idle + 1 } else { 0 };
        assert!(self.idle < 100_000, "events without end: {:?}", self.target.counters());
        while let Some(done) = self.done.pop() {
            self.complete(world, done);
        }
        true
    }

    fn complete(&mut self, world: &mut World, done: KvDone) {
        let status = done.status;
        match self.open.remove(&done.id).expect("it was submitted") {
            Open::Write { key, number, durable } => {
                let was = world.before(&key, number).is_some();
                let expected = match done.op {
                    KvOp::Put(PutIf::Exists) | KvOp::Delete if !was => Status::KEY_NOT_FOUND,
                    KvOp::Put(PutIf::Absent) if was => Status::KEY_EXISTS,
                    _ => Status::SUCCESS,
                };
                let states = world.keys.get_mut(&key).unwrap();
                if status.is_ok() {
                    assert_eq!(status, expected, "{:?}", done.op);
                    let replaced = matches!(done.op, KvOp::Put(_)) && was;
                    assert_eq!(done.len, u64::from(replaced), "{:?}", done.op);
                    states.iter_mut().filter(|s| s.number == number).for_each(|s| s.ended = true);
                    if durable {
                        world.settle(&key, number);
                    }
                    world.note("writes", 1);
                } else if status == Status::WRITE_FAULT && done.value.len() < 4096 {
                    // It may be there or not.
                } else {
                    let failures =
                        [Status::CAPACITY_EXCEEDED, Status::READ_ONLY, Status::WRITE_FAULT];
                    assert!(
                        status == expected || failures.contains(&status),
                        "{status} for {expected}"
                    );
                    states.retain(|state| state.number != number);
                    world.note("refused", u64::from(status == Status::CAPACITY_EXCEEDED));
                }
            }
            Open::Get { key, number } => match world.before(&key, number) {
                None => assert_eq!(status, Status::KEY_NOT_FOUND),
                Some(value) => {
                    assert!(status.is_ok(), "{status}");
                    assert!(same(self, &key, value, &done), "another value than {value:?}");
                    world.note("gets", 1);
                }
            },
            Open::Exists { key, number } => match world.before(&key, number) {
                None => assert_eq!(status, Status::KEY_NOT_FOUND),
                Some(value) => assert_eq!((status, done.len), (Status::SUCCESS, value.1)),
            },
            Open::List => assert!(status.is_ok(), "{status}"),
            Open::Flush(ended) if status.is_ok() => {
                ended.iter().for_each(|(key, number)| world.settle(key, *number));
                world.note("flushes", 1);
            }
            Open::Flush(_) => assert_eq!(status, Status::WRITE_FAULT),
        }
    }

    /// Until nothing is inside, or power goes.
    pub fn drain(&mut self, world: &mut World) {
        while self.is_on() && (self.step(world) || !self.open.is_empty()) {
            let hangs = self.target.next_event().is_none() && !self.open.is_empty();
            assert!(!hangs || !self.is_on(), "{} requests hang", self.open.len());
        }
    }

    /// A request, and what becomes of it.
    pub fn ask(&mut self, world: &mut World, op: KvOp, key: &[u8], room: usize) -> KvDone {
        let room = if op == KvOp::Flush { 0 } else { room };
        let value = Buffer::zeroed(room).unwrap();
        let id = self.submit(world, op, false, (key, 0, value), Open::List);
        loop {
            let at = self.target.next_event().expect("a request hangs");
            self.now = self.now.max(at);
            self.target.advance(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                if done.id == id {
                    self.open.remove(&id);
                    return done;
                }
                self.complete(world, done);
            }
        }
    }

    /// Random work until so many requests were submitted or power goes.
    pub fn work(&mut self, world: &mut World, count: u64) {
        let mut left = count;
        while left > 0 && self.is_on() {
            for _ in 0..world.random.below(6) {
                if self.has_room(world) {
                    self.submit_random(world);
                    left = left.saturating_sub(1);
                }
            }
            for _ in 0..1 + world.random.below(4) {
                let goes_on = self.step(world) || self.open.is_empty() || !self.is_on();
                assert!(goes_on, "{} requests hang", self.open.len());
            }
        }
    }
}

pub const LONG: u64 = u64::MAX / 2;

/// Random work with cuts at random events, some of them in recovery.
pub fn cuts(world: &mut World, rounds: u64) {
    for _ in 0..rounds {
        let mut run = loop {
            let events = if world.random.below(4) == 0 { 1 + world.random.below(60) } else { LONG };
            match world.power_on(events) {
                Some(run) => break run,
                None => world.note("cut recoveries", 1),
            }
        };
        if run.fuse.get() < LONG / 2 {
            world.power_off(run);
            continue;
        }
        world.check(&mut run);
        let events = 1 + world.random.below(750 * world.pace);
        run.fuse.set(events);
        let count = 1 + world.random.below(100 * world.pace);
        run.work(world, count);
        if run.is_on() {
            run.drain(world);
        }
        world.power_off(run);
        world.note("cuts", 1);
    }
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    world.power_off(run);
}
