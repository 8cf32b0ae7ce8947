//! A tree over a drive, its power, and a host that remembers.
//!
//! Everything that is read is held against the model; each operation must end,
//! once, and without an error but where a fault says why.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use btree::store::no_clock;
use btree::{BatchStore, Broken, Error, InPlaceStore, LogStore, Sink, StoreError, Tree};
use port::{BLOCK_BYTES, Shape, Status, Time};
use targets::Batch;

use super::model::{Model, Write};
use super::pages::{Line, Pages, Store};
use super::{Host, StoreKind, TreeBreak, may_fail};
use crate::battery::Battery;
use crate::drive::Drive;
use crate::life::Counts;
use crate::machine::{self, CHECK_BLOCKS, MOST_AT_ONCE, Violation};
use crate::power::Flash;
use crate::stack::Stack;
use crate::trouble::Troubles;

/// Starts that are refused one after the other, after which only those faults
/// are left that are for good.
const REFUSALS: u32 = 4;

/// How often a check asks for a key that it does not get.
const TRIES: u32 = 4;

/// Polls after which a tree is said to hang: no time passed in them.
const PATIENCE: u32 = 100_000;

/// The tag of a check's operation.
const CHECK: u64 = u64::MAX;

/// An operation under way.
#[derive(Clone, Debug)]
enum Open {
    Get(u64),
    /// From which key on, how many records at most, and after how many changes
    /// it was asked for.
    Scan(u64, u64, usize),
    Write(Vec<Write>),
    /// How many changes had been answered.
    Flush(usize),
    Check,
}

/// Keys and values, as bytes.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// What a tree says.
#[derive(Default)]
struct Heard {
    records: BTreeMap<u64, Records>,
    done: Vec<(u64, Result<btree::Outcome, Error>)>,
}

impl Sink for Heard {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        self.records.entry(tag).or_default().push((key.to_vec(), value.to_vec()));
    }

    fn done(&mut self, tag: u64, outcome: Result<btree::Outcome, Error>) {
        self.done.push((tag, outcome));
    }
}

/// The drive below the store, to be looked at.
enum Below {
    Blocks(Rc<RefCell<Stack>>),
    Batch(Rc<RefCell<Batch<Drive>>>),
}

/// A tree, its drive, and its host.
pub struct World {
    /// Which.
    pub host: Host,
    /// What was done.
    pub counts: Counts,
    /// The flash, and the power.
    pub flash: Flash,
    battery: Option<Battery>,
    tree: Option<Tree<Pages>>,
    below: Option<Below>,
    clock: Rc<Cell<Time>>,
    model: Model,
    open: BTreeMap<u64, Open>,
    /// Changes that were under way when power went.
    cut: Vec<Vec<Write>>,
    heard: Heard,
    tags: u64,
    broken: Option<TreeBreak>,
    /// Something was written to the flash; the tree was made.
    used: bool,
    made: bool,
    starts: u64,
    refusals: u32,
    told_of_end: bool,
    looks: u32,
    hash: u64,
    traced: Option<u64>,
    trace: Vec<String>,
}

fn wrong(key: Option<u64>, words: impl Into<String>) -> Violation {
    Violation { block: key, words: words.into() }
}

/// The bytes of a key: its number, and more of it than is looked at first.
fn key_bytes(key: u64) -> Vec<u8> {
    let mut bytes = (key as u32).to_be_bytes().to_vec();
    let len = [4, 12, 40, 300][(workload::rng::mix(key) % 4) as usize];
    bytes.resize(len, b'k');
    bytes
}

/// The bytes of a value: its number again and again, seldom many.
fn value_bytes(number: u64) -> Vec<u8> {
    let bits = workload::rng::mix(number);
    let most = match bits % 32 {
        0 => 9000,
        1..6 => 2000,
        _ => 300,
    };
    let len = 8 + (bits >> 8) % most;
    let mut bytes = number.to_le_bytes().repeat((len as usize).div_ceil(8));
    bytes.truncate(len as usize);
    bytes
}

/// The key and the number of a record; what is wrong with it in words.
fn parse(key: &[u8], value: &[u8]) -> Result<(u64, u64), String> {
    let number = key.first_chunk::<4>().map(|bytes| u64::from(u32::from_be_bytes(*bytes)));
    let Some(of) = number.filter(|&number| key_bytes(number) == key) else {
        return Err(format!("there never was a key {key:?}"));
    };
    let number = value.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    match number.filter(|&number| number > 0 && value_bytes(number) == value) {
        Some(number) => Ok((of, number)),
        None => Err(format!("key {of} has {} bytes that were never written", value.len())),
    }
}

impl World {
    /// A new drive, without power. `traced` is a key whose history is kept.
    pub fn new(host: Host, broken: Option<TreeBreak>, traced: Option<u64>) -> World {
        let seed = host.setup.seed;
        let flash = Flash::new(&host.setup, None, seed).expect("memory for a small drive");
        World {
            counts: Counts::default(),
            battery: machine::battery(&host.setup, &flash, seed),
            flash,
            tree: None,
            below: None,
            clock: Rc::default(),
            model: Model::new(host.keys),
            open: BTreeMap::new(),
            cut: Vec::new(),
            heard: Heard::default(),
            tags: 0,
            broken,
            used: false,
            made: false,
            starts: 0,
            refusals: 0,
            told_of_end: false,
            looks: 0,
            hash: 0,
            traced,
            trace: Vec::new(),
            host,
        }
    }

    /// The end of a life: the hash of all that was seen, what was done, and the
    /// traced key's history.
    pub fn end(mut self) -> (u64, Counts, Vec<String>) {
        self.power_down();
        self.count_flash();
        (self.hash, self.counts, self.trace)
    }

    /// Whether power is gone.
    pub fn is_off(&self) -> bool {
        self.flash.power().is_gone()
    }

    /// Operations under way.
    pub fn under_way(&self) -> u64 {
        self.open.len() as u64
    }

    /// Chunks collected since power came.
    pub fn collections(&self) -> u64 {
        match &self.below {
            Some(Below::Blocks(stack)) => stack.borrow().counters().collections,
            Some(Below::Batch(target)) => target.borrow().counters().collections,
            None => 0,
        }
    }

    /// Whether the host was told, since power came, that no more is written.
    pub fn is_told_of_end(&self) -> bool {
        self.told_of_end
    }

    fn note(&mut self, key: Option<u64>, words: impl FnOnce() -> String) {
        if self.traced.is_some_and(|traced| key.is_none_or(|key| key == traced)) {
            self.trace.push(format!("{:>12} ns  {}", self.clock.get().0, words()));
        }
    }

    fn see(&mut self, what: u64) {
        self.hash = (self.hash ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    /// Power comes, and goes instead of the event after `events`. False when it
    /// went before the tree was there, or there was reason to refuse.
    pub fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.tree.is_none(), "power comes after it went");
        self.flash.power().on(events);
        (self.clock, self.looks) = (Rc::default(), 0);
        self.starts += 1;
        self.told_of_end = false;
        let for_good = self.host.setup.troubles.for_good();
        let faulty = self.refusals < REFUSALS;
        let troubles = if faulty { self.host.setup.troubles.clone() } else { for_good };
        let started = self.start(&troubles);
        self.flash.take_strikes();
        match started {
            _ if self.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.is_off() => {
                self.below = None;
                self.counts.cut_recoveries += 1;
                self.note(None, || format!("power goes in recovery, after {events} events"));
                Ok(false)
            }
            Ok(tree) => {
                self.note(None, || "power comes; the tree is there".into());
                self.tree = Some(tree);
                (self.refusals, self.made) = (0, true);
                Ok(true)
            }
            Err(words) if may_fail(&self.host.setup) && self.is_struck() => {
                self.flash.power().off();
                self.below = None;
                self.counts.refusals += 1;
                self.refusals += 1;
                self.note(None, || format!("the start is refused: {words}"));
                Ok(false)
            }
            Err(words) => Err(wrong(None, format!("recovery failed: {words}"))),
        }
    }

    /// The tree of a drive that starts; a new one if there is none yet.
    fn start(&mut self, troubles: &Troubles) -> Result<Tree<Pages>, String> {
        let seed = self.host.setup.seed.wrapping_add(self.starts);
        let store = match self.host.store {
            StoreKind::Batch(config) => self.start_batch(config, troubles, seed)?,
            StoreKind::Log(_) | StoreKind::InPlace(_) => self.start_blocks(troubles, seed)?,
        };
        let (pages, now) = (Pages::new(store, self.broken, seed), self.clock.get());
        let tree = if self.made {
            Tree::open(pages, self.host.tree, now)
        } else {
            Tree::create(pages, self.host.tree, now)
        };
        tree.map_err(|error| self.refused(error))
    }

    /// Why a store or tree is not there. What only damage explains is nobody's
    /// excuse.
    fn refused(&self, error: Error) -> String {
        match error {
            Error::Store(StoreError::Drive { .. }) => error.to_string(),
            _ if self.is_off() => error.to_string(),
            _ => panic!("a tree that was only cut does not open: {error}"),
        }
    }

    fn start_batch(
        &mut self,
        config: targets::BatchConfig,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<Store, String> {
        let fresh = !std::mem::replace(&mut self.used, true);
        let powered = self.flash.drive(&self.host.setup.timing, fresh, seed);
        let powered = powered.expect("memory for a drive");
        let below = Drive::new(powered, &self.flash, troubles, seed);
        let below = below.expect("the rules are for vector commands");
        let target = Batch::open(below, config, Time::ZERO).map_err(|error| error.to_string())?;
        self.clock.set(target.now());
        let (shape, target) = (*target.shape(), Rc::new(RefCell::new(target)));
        self.below = Some(Below::Batch(target.clone()));
        let store = BatchStore::new(self.line(target), shape, shape.max_pages as usize, no_clock);
        Ok(Store::Batch(Box::new(store.expect("such a drive will do"))))
    }

    fn start_blocks(&mut self, troubles: &Troubles, seed: u64) -> Result<Store, String> {
        let fresh = !std::mem::replace(&mut self.used, true);
        let setup = &self.host.setup;
        let below = (&self.flash, self.battery.as_ref());
        let started = Stack::start(setup, below, fresh, troubles, seed);
        let (stack, at) = started.map_err(|error| error.to_string())?;
        let stack = stack.layered(setup, None, seed);
        self.clock.set(at);
        let max_bytes = CHECK_BLOCKS * BLOCK_BYTES;
        let shape = Shape { max_bytes, depth: MOST_AT_ONCE, ..stack.shape() };
        let stack = Rc::new(RefCell::new(stack));
        self.below = Some(Below::Blocks(stack.clone()));
        let line = self.line(stack);
        let store = match (self.host.store, self.made) {
            (StoreKind::Log(config), false) => {
                LogStore::create(line, shape, config, at).map(|s| Store::Log(Box::new(s)))
            }
            (StoreKind::Log(config), true) => {
                LogStore::open(line, shape, config, at).map(|s| Store::Log(Box::new(s)))
            }
            (StoreKind::InPlace(config), false) => {
                InPlaceStore::create(line, shape, config, at).map(|s| Store::InPlace(Box::new(s)))
            }
            (StoreKind::InPlace(config), true) => {
                InPlaceStore::open(line, shape, config, at).map(|s| Store::InPlace(Box::new(s)))
            }
            (StoreKind::Batch(_), _) => unreachable!("it is over another target"),
        };
        store.map_err(|error| self.refused(Error::Store(error)))
    }

    fn line<P>(&self, port: Rc<RefCell<P>>) -> Line<P> {
        Line { port, power: self.flash.shared_power().clone(), clock: self.clock.clone() }
    }

    /// Whether anything failed on this flash.
    fn is_struck(&self) -> bool {
        let struck = self.flash.struck();
        struck.reads + struck.programs + struck.erases > 0
    }

    /// Whether so many starts were refused that nothing can be expected.
    pub fn is_hopeless(&self) -> bool {
        self.refusals > 2 * REFUSALS
    }

    /// Power is gone, or goes now.
    pub fn power_down(&mut self) {
        self.flash.power().off();
        self.note(None, || "power goes".into());
        if self.tree.take().is_some() {
            self.counts.cuts += 1;
            self.counts.cached_cuts += u64::from(self.host.setup.troubles.cached);
            self.counts.ends_of_life += u64::from(self.told_of_end);
        }
        let (counts, below) = (&mut self.counts, self.below.take());
        match &below {
            Some(Below::Blocks(stack)) => {
                let (stack, counters) = (stack.borrow(), stack.borrow().counters());
                counts.collections += counters.collections;
                counts.erases += counters.erases;
                counts.struck.delays += stack.delays();
                counts.merged += stack.merged();
            }
            Some(Below::Batch(target)) => {
                let (target, counters) = (target.borrow(), target.borrow().counters());
                counts.collections += counters.collections;
                counts.erases += counters.erases;
                counts.struck.delays += target.below().delays();
            }
            None => {}
        }
        for open in std::mem::take(&mut self.open).into_values() {
            if let Open::Write(writes) = open {
                self.cut.push(writes);
            }
        }
        self.heard = Heard::default();
    }

    fn count_flash(&mut self) {
        self.counts.add_flash(&self.flash);
    }

    /// A new drive in the place of one that is of no more use.
    pub fn replace(&mut self) {
        self.power_down();
        self.count_flash();
        let seed = self.host.setup.seed.wrapping_add(self.starts);
        self.flash = Flash::new(&self.host.setup, None, seed).expect("memory for a small drive");
        self.battery = machine::battery(&self.host.setup, &self.flash, seed);
        self.model.replace();
        self.cut.clear();
        (self.used, self.made, self.refusals) = (false, false, 0);
    }

    /// Waits until no write of these keys is under way, nor, where they are to
    /// be written, a read. False when power went.
    fn wait_for(&mut self, keys: &[u64], writes: bool) -> Result<bool, Violation> {
        let busy = |open: &Open| match open {
            Open::Get(key) => writes && keys.contains(key),
            Open::Write(all) => all.iter().any(|(key, _)| keys.contains(key)),
            Open::Scan(..) | Open::Flush(_) | Open::Check => false,
        };
        while self.open.values().any(busy) {
            if !self.step()? {
                return Ok(false);
            }
        }
        Ok(!self.is_off())
    }

    fn begin(&mut self, open: Open) -> u64 {
        self.tags += 1;
        self.counts.requests += 1;
        self.open.insert(self.tags, open);
        self.tags
    }

    /// What the tree took, or would not take.
    fn taken(&mut self, tag: u64, taken: Result<(), Error>) -> Result<(), Violation> {
        if let Err(error) = taken {
            self.heard.done.push((tag, Err(error)));
        }
        self.listen()
    }

    /// Puts keys, or deletes them; several in a batch.
    pub fn write(&mut self, keys: &[(u64, bool)]) -> Result<(), Violation> {
        let all: Vec<u64> = keys.iter().map(|one| one.0).collect();
        if !self.wait_for(&all, true)? {
            return Ok(());
        }
        let model = &mut self.model;
        let number = |&(key, puts): &(u64, bool)| (key, if puts { model.number() } else { 0 });
        let writes: Vec<Write> = keys.iter().map(number).collect();
        for &(key, number) in &writes {
            self.note(Some(key), || format!("{number} is sent"));
        }
        // What comes twice has its last value.
        let mut last: Vec<Write> = Vec::new();
        for &(key, number) in &writes {
            last.retain(|one| one.0 != key);
            last.push((key, number));
        }
        let tag = self.begin(Open::Write(last));
        let bytes: Vec<(Vec<u8>, Option<Vec<u8>>)> = writes
            .iter()
            .map(|&(key, number)| (key_bytes(key), (number > 0).then(|| value_bytes(number))))
            .collect();
        let (Some(tree), heard) = (&mut self.tree, &mut self.heard) else { return Ok(()) };
        let taken = match &bytes[..] {
            [(key, Some(value))] => tree.put(tag, key, value, heard),
            [(key, None)] => tree.delete(tag, key, heard),
            several => {
                let writes: Vec<btree::Write<'_>> = several
                    .iter()
                    .map(|(key, value)| btree::Write { key, value: value.as_deref() })
                    .collect();
                tree.batch(tag, &writes, heard)
            }
        };
        self.taken(tag, taken)
    }

    /// Looks a key up.
    pub fn get(&mut self, key: u64) -> Result<(), Violation> {
        if !self.wait_for(&[key], false)? {
            return Ok(());
        }
        self.counts.reads += 1;
        let tag = self.begin(Open::Get(key));
        let (Some(tree), heard) = (&mut self.tree, &mut self.heard) else { return Ok(()) };
        let taken = tree.get(tag, &key_bytes(key), heard);
        self.taken(tag, taken)
    }

    /// Asks for so many records from a key on.
    pub fn scan(&mut self, key: u64, count: u64) -> Result<(), Violation> {
        self.counts.reads += 1;
        let tag = self.begin(Open::Scan(key, count, self.model.changes()));
        let (Some(tree), heard) = (&mut self.tree, &mut self.heard) else { return Ok(()) };
        let taken = tree.scan(tag, &key_bytes(key), count, heard);
        self.taken(tag, taken)
    }

    /// Asks for a flush.
    pub fn flush(&mut self) -> Result<(), Violation> {
        self.counts.flushes += 1;
        let tag = self.begin(Open::Flush(self.model.changes()));
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let taken = tree.flush(tag);
        self.taken(tag, taken)
    }

    fn hangs(&self) -> Violation {
        let open: Vec<&Open> = self.open.values().collect();
        wrong(None, format!("the tree hangs; under way are {open:?}"))
    }

    /// Lets the next thing happen. False when nothing will, or power is gone.
    pub fn step(&mut self) -> Result<bool, Violation> {
        let Some(tree) = &mut self.tree else { return Ok(false) };
        let Some(at) = tree.next_event().filter(|_| !self.flash.power().is_gone()) else {
            let hangs = self.flash.power().is_wasted() || (!self.is_off() && self.under_way() > 0);
            return if hangs { Err(self.hangs()) } else { Ok(false) };
        };
        let before = self.clock.get();
        tree.poll(at, &mut self.heard);
        self.heard()?;
        self.looks = if self.clock.get() > before { 0 } else { self.looks + 1 };
        if self.looks > PATIENCE { Err(self.hangs()) } else { Ok(!self.is_off()) }
    }

    /// After the tree was polled.
    fn heard(&mut self) -> Result<(), Violation> {
        self.flash.take_strikes();
        if self.is_off() {
            // A host whose power is gone hears nothing more.
            self.heard = Heard::default();
            return if self.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(()) };
        }
        self.listen()
    }

    /// Lets some time pass.
    pub fn pass(&mut self, ns: u64) -> Result<(), Violation> {
        let until = Time(self.clock.get().0 + ns);
        while self.tree.as_ref().and_then(Tree::next_event).is_some_and(|at| at <= until) {
            if !self.step()? {
                return Ok(());
            }
        }
        if let Some(tree) = &mut self.tree {
            tree.poll(until, &mut self.heard);
        }
        self.heard()
    }

    /// Until all that was asked for has ended. False when power went.
    pub fn drain(&mut self) -> Result<bool, Violation> {
        while self.under_way() > 0 {
            if !self.step()? {
                return Ok(false);
            }
        }
        Ok(!self.is_off())
    }

    fn listen(&mut self) -> Result<(), Violation> {
        if self.is_off() {
            return Ok(());
        }
        for (tag, outcome) in std::mem::take(&mut self.heard.done) {
            if tag == CHECK {
                self.heard.done.push((tag, outcome));
                continue;
            }
            let records = self.heard.records.remove(&tag).unwrap_or_default();
            let Some(open) = self.open.remove(&tag) else {
                return Err(wrong(None, format!("operation {tag} ended twice")));
            };
            self.flash.power().progress();
            self.looks = 0;
            self.ended(open, outcome, records)?;
        }
        Ok(())
    }

    fn ended(
        &mut self,
        open: Open,
        outcome: Result<btree::Outcome, Error>,
        records: Records,
    ) -> Result<(), Violation> {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.failed(&open, error),
        };
        let parsed: Result<Vec<_>, _> = records.iter().map(|(k, v)| parse(k, v)).collect();
        let records = parsed.map_err(|words| wrong(None, format!("{open:?}: {words}")))?;
        for &(_, number) in &records {
            self.see(number);
        }
        match open {
            Open::Get(key) => {
                let number = match (outcome, &records[..]) {
                    (btree::Outcome::Found, [(of, number)]) if *of == key => *number,
                    (btree::Outcome::Missing, []) => 0,
                    _ => {
                        let words = format!("a get of key {key}: {outcome:?}, {records:?}");
                        return Err(wrong(Some(key), words));
                    }
                };
                self.saw(key, number, "a get")
            }
            Open::Scan(from, count, since) => self.scanned(from, count, since, &records),
            Open::Write(writes) => {
                let says = match (outcome, &writes[..]) {
                    (btree::Outcome::Stored, _) => None,
                    (btree::Outcome::Deleted, &[(key, 0)]) => Some((key, true)),
                    (btree::Outcome::Missing, &[(key, 0)]) => Some((key, false)),
                    _ => return Err(wrong(None, format!("{writes:?} says {outcome:?}"))),
                };
                if let Some((key, there)) = says
                    && !self.model.now(key).any(|number| (number > 0) == there)
                {
                    let words = format!("a delete of key {key} says {outcome:?}");
                    return Err(wrong(Some(key), words));
                }
                for &(key, number) in &writes {
                    self.note(Some(key), || format!("{number} is answered"));
                }
                self.model.change(&writes);
                Ok(())
            }
            Open::Flush(changes) => {
                self.note(None, || format!("a flush after {changes} changes is answered"));
                self.model.flushed(changes);
                Ok(())
            }
            Open::Check => Ok(()),
        }
    }

    fn saw(&mut self, key: u64, number: u64, what: &str) -> Result<(), Violation> {
        let saw = self.model.saw(key, number);
        saw.map_err(|words| wrong(Some(key), format!("{what} of key {key}: {words}")))
    }

    /// What a scan gave: each key that did not change meanwhile as it is.
    fn scanned(
        &mut self,
        from: u64,
        count: u64,
        since: usize,
        records: &[(u64, u64)],
    ) -> Result<(), Violation> {
        let ordered = records.windows(2).all(|two| two[0].0 < two[1].0);
        let begins = records.first().is_none_or(|first| first.0 >= from);
        if !ordered || !begins || records.len() as u64 > count {
            return Err(wrong(None, format!("a scan of {count} from {from}: {records:?}")));
        }
        let full = records.len() as u64 == count;
        let end = match records.last() {
            Some(last) if full => last.0 + 1,
            None if full => from,
            _ => self.host.keys,
        };
        let mut given = records.iter().peekable();
        for key in from..end {
            let number = given.next_if(|one| one.0 == key).map_or(0, |one| one.1);
            if !self.model.changed_since(key, since) {
                self.saw(key, number, "a scan")?;
            }
        }
        Ok(())
    }

    /// An operation failed, and changed nothing.
    fn failed(&mut self, open: &Open, error: Error) -> Result<(), Violation> {
        let writes = matches!(open, Open::Write(_) | Open::Flush(_));
        let allowed = match error {
            Error::BatchTooLarge { .. } => matches!(open, Open::Write(all) if all.len() > 1),
            Error::Full(pages) => {
                writes && self.tree.as_ref().is_some_and(|tree| tree.pages() * 10 > pages * 9)
            }
            Error::Store(error) => self.may_fail(writes, error),
            _ => false,
        };
        if !allowed {
            return Err(wrong(None, format!("{open:?} failed: {error}")));
        }
        self.counts.errors += 1;
        self.note(None, || format!("{open:?} failed: {error}"));
        Ok(())
    }

    /// Whether the store may fail so: what failed in the flash says why.
    fn may_fail(&mut self, writes: bool, error: StoreError) -> bool {
        let faulty = may_fail(&self.host.setup);
        match error {
            StoreError::Drive { status: Status::UNRECOVERED_READ, .. } => {
                faulty && self.flash.struck().reads > 0
            }
            StoreError::Drive { status: Status::READ_ONLY | Status::WRITE_FAULT, .. } => {
                let setup = &self.host.setup;
                let end = faulty && writes && setup.species.may_end(setup, &self.flash);
                self.told_of_end |= end;
                writes && self.told_of_end
            }
            StoreError::NoSpace { segments, .. } => {
                let end = faulty && writes && segments > 0 && self.flash.struck().reads > 0;
                self.told_of_end |= end;
                end
            }
            _ => false,
        }
    }

    /// Reads all: after a cut, or at rest, when nothing may be missing.
    pub fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        let found = self.find_all()?;
        let when = if at_rest { "at rest" } else { "after a cut" };
        for (key, number) in found.iter().enumerate() {
            self.see(number.unwrap_or(1));
            let (key, Some(number)) = (key as u64, *number) else { continue };
            self.note(Some(key), || format!("{when} it has {number}"));
            if at_rest {
                self.saw(key, number, when)?;
            }
        }
        let cut = std::mem::take(&mut self.cut);
        let settled = self.model.settle(&found, &cut);
        settled.map_err(|(key, words)| wrong(Some(key), format!("{when}, key {key}: {words}")))?;
        self.hash = self.hash.wrapping_add(self.clock.get().0);
        self.verify()
    }

    /// The tree is whole.
    fn verify(&mut self) -> Result<(), Violation> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let verified = tree.verify();
        self.flash.take_strikes();
        match verified {
            Ok(census) => {
                self.see(census.records);
                Ok(())
            }
            Err(Broken::Error(Error::Store(error))) if self.may_fail(false, error) => Ok(()),
            Err(error) => Err(wrong(None, format!("the tree is not whole: {error}"))),
        }
    }

    /// The number of each key, `None` where it cannot be read, and may be so.
    fn find_all(&mut self) -> Result<Vec<Option<u64>>, Violation> {
        let keys = self.host.keys;
        if let Some(records) = self.ask(None)? {
            let mut found = vec![Some(0); keys as usize];
            for (key, number) in records {
                found[key as usize] = Some(number);
            }
            return Ok(found);
        }
        let mut found = Vec::new();
        for key in 0..keys {
            let mut records = None;
            for _ in 0..TRIES {
                records = self.ask(Some(key))?;
                if records.is_some() {
                    break;
                }
            }
            self.counts.lost += u64::from(records.is_none());
            found.push(records.map(|records| records.first().map_or(0, |one| one.1)));
        }
        Ok(found)
    }

    /// Reads one key, or all. `None` where it cannot be read, and may be so.
    fn ask(&mut self, key: Option<u64>) -> Result<Option<Vec<(u64, u64)>>, Violation> {
        let (Some(tree), heard) = (&mut self.tree, &mut self.heard) else { return Ok(None) };
        let taken = match key {
            Some(key) => tree.get(CHECK, &key_bytes(key), heard),
            None => tree.scan(CHECK, &[], u64::MAX, heard),
        };
        taken.map_err(|error| wrong(key, format!("a check: {error}")))?;
        self.open.insert(CHECK, Open::Check);
        while self.heard.done.is_empty() {
            if !self.step()? {
                return Err(self.hangs());
            }
        }
        self.open.remove(&CHECK);
        self.flash.power().progress();
        let (_, outcome) = self.heard.done.pop().expect("it was looked at");
        let records = self.heard.records.remove(&CHECK).unwrap_or_default();
        match outcome {
            Ok(_) => {
                let parsed: Result<_, _> = records.iter().map(|(k, v)| parse(k, v)).collect();
                parsed.map(Some).map_err(|words| wrong(key, format!("a check: {words}")))
            }
            Err(Error::Store(error)) if self.may_fail(false, error) => Ok(None),
            Err(error) => Err(wrong(key, format!("a check of {key:?}: {error}"))),
        }
    }
}
