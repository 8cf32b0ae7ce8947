//! A tree over a drive, its power, and a host that remembers.
//!
//! Everything that is read is held against the model; each operation must end,
//! once, and without an error but where a fault says why.

use std::collections::BTreeMap;

use btree::{Broken, Error, Sink, StoreError, Tree};
use port::Status;

use super::model::{Model, Write};
use super::pages::Pages;
use super::site::Site;
use super::{Host, TreeBreak, may_fail};
use crate::life::Living;
use crate::machine::{Violation, wrong};
use crate::trouble::{Struck, Troubles};
use crate::words;

/// How often a check asks for a key that it does not get.
const TRIES: u32 = 4;

/// Polls after which a tree is said to hang: no time passed in them.
pub(super) const PATIENCE: u32 = 100_000;

/// The tag of a check's operation.
const CHECK: u64 = u64::MAX;

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) enum Open {
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
pub(super) struct Heard {
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

/// A tree, its drive, and its host.
pub struct World {
    /// Where it stands.
    pub site: Site,
    pub(super) tree: Option<Tree<Pages>>,
    pub(super) model: Model,
    pub(super) open: BTreeMap<u64, Open>,
    /// Changes that were under way when power went.
    pub(super) cut: Vec<Vec<Write>>,
    pub(super) heard: Heard,
    pub(super) tags: u64,
    pub(super) broken: Option<TreeBreak>,
    pub(super) looks: u32,
    /// What faults had struck when power came.
    pub(super) before: Struck,
    /// Blocks that reads had not given by then, when last all of it was there: what was
    /// struck up to there costs nothing more.
    pub(super) whole: u64,
}

/// The bytes of a key: its number, and more of it than is looked at first.
fn key_bytes(key: u64) -> Vec<u8> {
    let mut bytes = (key as u32).to_be_bytes().to_vec();
    let len = [4, 12, 40, 300][(workload::rng::mix(key) % 4) as usize];
    bytes.resize(len, b'k');
    bytes
}

/// The bytes of a value, seldom many.
fn value_bytes(number: u64) -> Vec<u8> {
    let bits = workload::rng::mix(number);
    let most = match bits % 32 {
        0 => 9000,
        1..6 => 2000,
        _ => 300,
    };
    let len = 8 + (bits >> 8) % most;
    let mut bytes = vec![0; len as usize];
    words::fill(&mut bytes, number);
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
    pub(super) fn new(host: Host, broken: Option<TreeBreak>, traced: Option<u64>) -> World {
        World {
            tree: None,
            model: Model::new(host.keys),
            open: BTreeMap::new(),
            cut: Vec::new(),
            heard: Heard::default(),
            tags: 0,
            broken,
            looks: 0,
            before: Struck::default(),
            whole: 0,
            site: Site::new(host, traced),
        }
    }

    pub(super) fn note(&mut self, key: Option<u64>, words: impl FnOnce() -> String) {
        self.site.note(key, words);
    }

    /// The tree of a drive that starts; a new one if there is none yet.
    pub(super) fn start_tree(
        &mut self,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<Tree<Pages>, String> {
        let store = self.site.start(troubles, seed)?;
        self.site.tree(Pages::new(store, self.broken, seed))
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
        Ok(!self.site.rig.is_off())
    }

    fn begin(&mut self, open: Open) -> u64 {
        self.tags += 1;
        self.site.rig.counts.requests += 1;
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
    pub(super) fn write(&mut self, keys: &[(u64, bool)]) -> Result<(), Violation> {
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
    pub(super) fn get(&mut self, key: u64) -> Result<(), Violation> {
        if !self.wait_for(&[key], false)? {
            return Ok(());
        }
        self.site.rig.counts.reads += 1;
        let tag = self.begin(Open::Get(key));
        let (Some(tree), heard) = (&mut self.tree, &mut self.heard) else { return Ok(()) };
        let taken = tree.get(tag, &key_bytes(key), heard);
        self.taken(tag, taken)
    }

    /// Asks for so many records from a key on.
    pub(super) fn scan(&mut self, key: u64, count: u64) -> Result<(), Violation> {
        self.site.rig.counts.reads += 1;
        let tag = self.begin(Open::Scan(key, count, self.model.changes()));
        let (Some(tree), heard) = (&mut self.tree, &mut self.heard) else { return Ok(()) };
        let taken = tree.scan(tag, &key_bytes(key), count, heard);
        self.taken(tag, taken)
    }

    /// Asks for a flush.
    pub(super) fn flush(&mut self) -> Result<(), Violation> {
        self.site.rig.counts.flushes += 1;
        let tag = self.begin(Open::Flush(self.model.changes()));
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let taken = tree.flush(tag);
        self.taken(tag, taken)
    }

    pub(super) fn hangs(&self) -> Violation {
        let open: Vec<&Open> = self.open.values().collect();
        wrong(None, format!("the tree hangs; under way are {open:?}"))
    }

    /// After the tree was polled.
    pub(super) fn heard(&mut self) -> Result<(), Violation> {
        self.site.rig.flash.take_strikes();
        if self.site.rig.is_off() {
            // A host whose power is gone hears nothing more.
            self.heard = Heard::default();
            return if self.site.rig.flash.power().is_wasted() {
                Err(self.hangs())
            } else {
                Ok(())
            };
        }
        self.listen()
    }

    fn listen(&mut self) -> Result<(), Violation> {
        if self.site.rig.is_off() {
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
            self.site.rig.flash.power().progress();
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
            self.site.rig.see(number);
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
            _ => self.site.host.keys,
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
        self.site.rig.counts.errors += 1;
        self.note(None, || format!("{open:?} failed: {error}"));
        Ok(())
    }

    /// Whether the store may fail so: what failed in the flash says why.
    fn may_fail(&mut self, writes: bool, error: StoreError) -> bool {
        let faulty = may_fail(&self.site.host.setup);
        match error {
            StoreError::Drive { status: Status::UNRECOVERED_READ, .. } => {
                faulty && self.site.rig.flash.struck().reads > self.whole
            }
            StoreError::Drive { status: Status::READ_ONLY | Status::WRITE_FAULT, .. } => {
                let setup = &self.site.host.setup;
                let all = 0..setup.blocks();
                let flash = &self.site.rig.flash;
                let end = faulty && writes && setup.species.may_end(setup, flash, &all);
                self.site.rig.told_of_end |= end;
                writes && self.site.rig.told_of_end
            }
            StoreError::NoSpace { segments, .. } => {
                let end =
                    faulty && writes && segments > 0 && self.site.rig.flash.struck().reads > 0;
                self.site.rig.told_of_end |= end;
                end
            }
            _ => false,
        }
    }

    pub(super) fn check_keys(&mut self, at_rest: bool) -> Result<(), Violation> {
        let found = self.find_all()?;
        let when = if at_rest { "at rest" } else { "after a cut" };
        for (key, number) in found.iter().enumerate() {
            self.site.rig.see(number.unwrap_or(1));
            let (key, Some(number)) = (key as u64, *number) else { continue };
            self.note(Some(key), || format!("{when} it has {number}"));
            if at_rest {
                self.saw(key, number, when)?;
            }
        }
        let cut = std::mem::take(&mut self.cut);
        let settled = self.model.settle(&found, &cut);
        settled.map_err(|(key, words)| wrong(Some(key), format!("{when}, key {key}: {words}")))?;
        self.site.rig.hash = self.site.rig.hash.wrapping_add(self.site.clock.get().0);
        if self.verify()? && found.iter().all(Option::is_some) {
            self.whole = self.before.reads;
        }
        Ok(())
    }

    /// The tree is whole. False where a page cannot be read, and may be so.
    fn verify(&mut self) -> Result<bool, Violation> {
        let Some(tree) = &mut self.tree else { return Ok(false) };
        let verified = tree.verify();
        self.site.rig.flash.take_strikes();
        match verified {
            Ok(census) => {
                self.site.rig.see(census.records);
                Ok(true)
            }
            Err(Broken::Error(Error::Store(error))) if self.may_fail(false, error) => Ok(false),
            Err(error) => Err(wrong(None, format!("the tree is not whole: {error}"))),
        }
    }

    /// The number of each key, `None` where it cannot be read, and may be so.
    fn find_all(&mut self) -> Result<Vec<Option<u64>>, Violation> {
        let keys = self.site.host.keys;
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
            self.site.rig.counts.lost += u64::from(records.is_none());
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
        self.site.rig.flash.power().progress();
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
