//! Drives that are simple, and a tree that is checked.

pub mod blocks;
pub mod damage;
pub mod drives;
mod memory;

use std::collections::{BTreeMap, HashMap, VecDeque};

use btree::{Error, Outcome, PageStore, Sink, Tree, Write};
use port::Time;
use workload::Rng;

pub use memory::*;

/// Keys and values.
pub type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Hears what comes out of a tree.
#[derive(Default)]
pub struct Heard {
    pub records: HashMap<u64, Records>,
    pub done: VecDeque<(u64, Result<Outcome, Error>)>,
}

impl Sink for Heard {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        self.records.entry(tag).or_default().push((key.to_vec(), value.to_vec()));
    }

    fn done(&mut self, tag: u64, outcome: Result<Outcome, Error>) {
        self.done.push_back((tag, outcome));
    }
}

/// What is done to a tree.
#[derive(Clone, Debug)]
pub enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Scan(Vec<u8>, u64),
    Batch(Changes),
    Flush,
}

impl Step {
    fn keys(&self) -> Vec<Vec<u8>> {
        match self {
            Step::Put(key, _) | Step::Delete(key) | Step::Get(key) => vec![key.clone()],
            Step::Batch(writes) => writes.iter().map(|write| write.0.clone()).collect(),
            Step::Scan(..) | Step::Flush => vec![],
        }
    }

    fn changes(&self) -> Changes {
        match self {
            Step::Put(key, value) => vec![(key.clone(), Some(value.clone()))],
            Step::Delete(key) => vec![(key.clone(), None)],
            Step::Batch(writes) => writes.clone(),
            Step::Get(_) | Step::Scan(..) | Step::Flush => vec![],
        }
    }
}

/// How random steps are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub keys: u64,
    pub longest: u64,
    /// One in so many is a flush.
    pub flush: u64,
    /// More deletes than puts.
    pub shrink: bool,
}

pub fn random_key(rng: &mut Rng, mix: Mix) -> Vec<u8> {
    let number = rng.below(mix.keys);
    // Keys of several lengths with parts in common.
    let mut key = format!("{:04x}", workload::rng::mix(number) & 0xffff).into_bytes();
    key.resize(4 + (number % 7) as usize * (number % 31) as usize, b'k');
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn random_value(rng: &mut Rng, mix: Mix) -> Vec<u8> {
    let len = match rng.below(20) {
        0 => rng.below(mix.longest + 1),
        1..5 => rng.below(2200.min(mix.longest + 1)),
        _ => rng.below(300.min(mix.longest + 1)),
    };
    let word = rng.bits().to_le_bytes();
    (0..len as usize).map(|i| word[i % 8]).collect()
}

pub fn random_step(rng: &mut Rng, mix: Mix) -> Step {
    if rng.below(mix.flush) == 0 {
        return Step::Flush;
    }
    let puts = if mix.shrink { 2 } else { 5 };
    match rng.below(12) {
        n if n < puts => Step::Put(random_key(rng, mix), random_value(rng, mix)),
        n if n < 7 => Step::Delete(random_key(rng, mix)),
        7..9 => Step::Get(random_key(rng, mix)),
        9 => Step::Scan(random_key(rng, mix), rng.below(40)),
        _ => {
            let mut writes: Changes = vec![];
            for _ in 0..1 + rng.below(3) {
                let key = random_key(rng, mix);
                let value = (rng.below(3) > 0).then(|| random_value(rng, mix));
                writes.push((
                    key,
                    value.map(|mut value| {
                        value.truncate(2000);
                        value
                    }),
                ));
            }
            Step::Batch(writes)
        }
    }
}

/// What a tree is compared with.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What one step changes: keys and their new values, if any.
pub type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn apply(map: &mut Map, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

/// A tree with a model beside it. Steps that touch the same key wait for each
/// other, so that the model knows the order.
pub struct Checked<S> {
    pub tree: Tree<S>,
    /// What the tree has now.
    pub map: Map,
    /// What it had at the last completed flush, and all changes since.
    pub base: Map,
    pub changes: VecDeque<Changes>,
    /// How many changes there had been at each flush that is under way,
    /// counted from the first of all.
    flushes: HashMap<u64, u64>,
    forgotten: u64,
    /// Each step, and how many changes there had been.
    under_way: HashMap<u64, (Step, u64)>,
    next_tag: u64,
    heard: Heard,
    /// Steps under way at most.
    pub width: usize,
    /// Puts and batches that found the store full, if that may be.
    pub refused: Option<u64>,
}

impl<S: PageStore> Checked<S> {
    pub fn new(tree: Tree<S>, map: Map) -> Checked<S> {
        Checked {
            tree,
            base: map.clone(),
            changes: VecDeque::new(),
            map,
            flushes: HashMap::new(),
            forgotten: 0,
            under_way: HashMap::new(),
            next_tag: 1,
            heard: Heard::default(),
            width: 8,
            refused: None,
        }
    }

    /// Lets things go on. False when the drive is gone.
    pub fn turn(&mut self) -> bool {
        let alive = self.tree.wait(&mut self.heard);
        self.listen();
        alive
    }

    fn listen(&mut self) {
        while let Some((tag, outcome)) = self.heard.done.pop_front() {
            let records = self.heard.records.remove(&tag).unwrap_or_default();
            let (step, since) = self.under_way.remove(&tag).expect("it was asked for");
            self.check(tag, step, since, outcome, records);
        }
    }

    fn check(
        &mut self,
        tag: u64,
        step: Step,
        since: u64,
        outcome: Result<Outcome, Error>,
        records: Records,
    ) {
        let larger = self.makes_larger(&step);
        if let (Some(refused), Step::Put(..) | Step::Batch(_), Err(Error::Full(_))) =
            (&mut self.refused, &step, outcome)
        {
            assert!(larger, "{step:?}: refused, though it makes nothing larger");
            *refused += 1;
            return;
        }
        let outcome = outcome.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        match &step {
            Step::Get(key) => {
                let expected = self.map.get(key);
                assert_eq!(outcome == Outcome::Found, expected.is_some(), "get of {key:?}");
                assert_eq!(records.first().map(|one| &one.1), expected, "get of {key:?}");
            }
            Step::Scan(key, count) => {
                assert_eq!(outcome, Outcome::Scanned(records.len() as u64));
                assert!(records.len() as u64 <= *count);
                assert!(records.windows(2).all(|two| two[0].0 < two[1].0));
                assert!(records.iter().all(|one| one.0 >= *key));
                // Of a moment only when nothing changed meanwhile.
                if since == self.changed() {
                    let expected: Vec<_> = self
                        .map
                        .range(key.clone()..)
                        .take(*count as usize)
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect();
                    assert_eq!(records, expected, "scan from {key:?}");
                }
            }
            Step::Flush => {
                let at = self.flushes.remove(&tag).expect("it was asked for");
                while self.forgotten < at {
                    let changes = self.changes.pop_front().expect("it was counted");
                    apply(&mut self.base, &changes);
                    self.forgotten += 1;
                }
            }
            Step::Delete(key) => {
                let there = self.map.contains_key(key);
                assert_eq!(outcome == Outcome::Deleted, there, "delete of {key:?}");
                self.change(&step);
            }
            Step::Put(..) | Step::Batch(_) => self.change(&step),
        }
    }

    /// Whether some record gets larger, in its leaf or in pages: all else needs no page.
    fn makes_larger(&self, step: &Step) -> bool {
        let is_long = |key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len() > 2000;
        step.changes().iter().any(|(key, value)| {
            let (Some(value), old) = (value, self.map.get(key)) else { return false };
            old.is_none_or(|old| {
                old.len() < value.len()
                    || is_long(key, old)
                        && (matches!(step, Step::Batch(_)) || (9..2020).contains(&value.len()))
            })
        })
    }

    /// How many changes there were.
    fn changed(&self) -> u64 {
        self.forgotten + self.changes.len() as u64
    }

    fn change(&mut self, step: &Step) {
        let changes = step.changes();
        apply(&mut self.map, &changes);
        self.changes.push_back(changes);
    }

    /// Does a step, as soon as its keys are not in use. False when the drive
    /// is gone.
    pub fn step(&mut self, step: Step) -> bool {
        // A put after a get may begin where that ended.
        if let Step::Put(key, _) = &step
            && self.next_tag.is_multiple_of(2)
            && !self.step(Step::Get(key.clone()))
        {
            return false;
        }
        loop {
            let keys = step.keys();
            let busy = self.under_way.len() >= self.width
                || self
                    .under_way
                    .values()
                    .any(|(other, _)| other.keys().iter().any(|key| keys.contains(key)));
            if !busy {
                break;
            }
            if !self.turn() {
                return false;
            }
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        self.under_way.insert(tag, (step.clone(), self.changed()));
        let heard = &mut self.heard;
        let taken = match &step {
            Step::Put(key, value) => self.tree.put(tag, key, value, heard),
            Step::Delete(key) => self.tree.delete(tag, key, heard),
            Step::Get(key) => self.tree.get(tag, key, heard),
            Step::Scan(key, count) => self.tree.scan(tag, key, *count, heard),
            Step::Batch(writes) => {
                let writes: Vec<Write<'_>> = writes
                    .iter()
                    .map(|(key, value)| Write { key, value: value.as_deref() })
                    .collect();
                self.tree.batch(tag, &writes, heard)
            }
            Step::Flush => {
                self.flushes.insert(tag, self.changed());
                self.tree.flush(tag).unwrap();
                Ok(())
            }
        };
        taken.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        self.listen();
        true
    }

    /// Waits for all steps. False when the drive is gone.
    pub fn finish(&mut self) -> bool {
        while !self.under_way.is_empty() {
            if !self.turn() {
                return false;
            }
        }
        true
    }

    /// Lets all happen that happens until `at`.
    pub fn idle_until(&mut self, at: Time) {
        while self.tree.next_event().is_some_and(|next| next <= at) {
            let next = self.tree.next_event().expect("it was there");
            self.tree.poll(next, &mut self.heard);
            self.listen();
        }
        self.tree.poll(at, &mut self.heard);
        self.listen();
    }

    /// Does steps, and waits for each flush. False when the drive is gone.
    pub fn script(&mut self, steps: &[Step]) -> bool {
        let mut one = |step: &Step| {
            self.step(step.clone()) && (!matches!(step, Step::Flush) || self.finish())
        };
        steps.iter().all(&mut one) && self.finish()
    }

    /// Steps whose end was not heard: their changes may have been made.
    pub fn unheard(&self) -> Vec<Changes> {
        self.under_way.values().map(|one| one.0.changes()).filter(|all| !all.is_empty()).collect()
    }
}

/// Waits until nothing is under way in a tree's drive.
pub fn rest<S: PageStore>(tree: &mut Tree<S>) {
    while tree.wait(&mut ()) {}
}

/// All that a tree has.
pub fn contents<S: PageStore>(tree: &mut Tree<S>) -> Map {
    let mut heard = Heard::default();
    tree.scan(0, b"", u64::MAX, &mut heard).unwrap();
    while heard.done.is_empty() {
        assert!(tree.wait(&mut heard), "the drive is there");
    }
    let (_, outcome) = heard.done.pop_front().unwrap();
    let records = heard.records.remove(&0).unwrap_or_default();
    assert_eq!(outcome, Ok(Outcome::Scanned(records.len() as u64)));
    records.into_iter().collect()
}

/// Whether what is there after a crash may be: each key as of the last flush or
/// as a later change left it, or one whose end was not heard; and the changes
/// of a batch all or none.
pub fn check_after_crash(
    base: &Map,
    changes: &VecDeque<Changes>,
    unheard: &[Changes],
    found: &Map,
) {
    let all: Vec<&Changes> = changes.iter().chain(unheard).collect();
    let mut by_key: BTreeMap<&Vec<u8>, Vec<Option<&Vec<u8>>>> = BTreeMap::new();
    for (key, value) in all.iter().copied().flatten() {
        by_key.entry(key).or_default().push(value.as_ref());
    }
    for key in base.keys().chain(found.keys()).chain(by_key.keys().copied()) {
        let value = found.get(key);
        let later = by_key.get(key).is_some_and(|values| values.contains(&value));
        assert!(
            later || base.get(key) == value,
            "key {key:?} has {:?} bytes after the crash",
            value.map(Vec::len)
        );
    }
    for batch in all.iter().filter(|changes| changes.len() > 1) {
        // Keys that nothing else changed tell whether it is there.
        let alone: Vec<_> = batch
            .iter()
            .filter(|(key, value)| by_key[key].len() == 1 && base.get(key) != value.as_ref())
            .collect();
        let there = alone.iter().filter(|(key, value)| found.get(key) == value.as_ref()).count();
        assert!(there == 0 || there == alone.len(), "a batch is there in part");
    }
}
