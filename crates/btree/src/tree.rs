//! The tree: operations in, completions out.
//!
//! Guarantees:
//! - Each operation takes effect whole, at one moment between its submission
//!   and its completion; a scan goes from leaf to leaf and sees each leaf as
//!   it is when it comes there. Operations that are under way at once may take
//!   effect in any order.
//! - After a crash each key has its value as of the last completed flush or a
//!   later one, a batch is there whole or not at all, and the tree is whole.
//! - Pages never take more memory than the budget.
//! - What fails changes nothing. After a failed write all later changes fail;
//!   reads go on.
//!
//! An operation runs in memory in one go. Where a page is missing it waits for
//! the page and starts again from the root: so nothing is ever half done, and
//! nothing is locked. A put of the key that was looked up last begins at the leaf
//! where that ended, if no page has given way since. Changed pages are written
//! later, many at once ([`crate::tree::write`]).

mod alloc;
mod change;
mod descend;
mod logged;
mod poll;
mod read;
mod replay;
mod verify;
mod worst;
mod write;

use std::collections::VecDeque;

use port::{Buffer, Ring, Time};

use crate::cache::{Cache, CacheCounters, FRAME_BYTES, LEAST_FRAMES, NONE};
use crate::error::Error;
use crate::op::{Body, Kind, Ops, Outcome, Sink, Write, encode};
use crate::page::{MAX_KEY, MAX_VALUE};
use crate::redo::Redo;
use crate::store::{AnyStore, PageStore, StoreDone, StoreError};

pub use verify::{Broken, Census};

/// Most levels of a tree: at seven separators a page, the least that fit, more
/// leaves than there can be pages.
const MAX_LEVELS: usize = 16;
/// What is wrong with a page that the store knows nothing of.
const NEVER_WRITTEN: &str = "it was never written";

/// Tries after which an operation is let alone with the cache. A try counts
/// when its page came, or when it was the oldest of those that waited.
const PATIENCE: u32 = 64;

/// How a tree is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeConfig {
    /// Memory for pages and what belongs to them, in bytes. The store's own
    /// ([`PageStore::memory`]) is not in it, nor are keys and values of
    /// operations that wait.
    pub memory: u64,
    /// Operations that may wait at once; at least 1.
    pub operations: usize,
    /// Share of the frames, in percent, that may be dirty before pages are
    /// written; 1 to 60.
    pub dirty: u8,
    /// Whether changes are logged, where the store has blocks for a redo log
    /// ([`PageStore::beside`]). What an earlier use has logged is done again in any case.
    pub redo: bool,
}

impl Default for TreeConfig {
    /// 64 MiB, 256 operations, 33 % dirty, changes logged where they can be.
    fn default() -> TreeConfig {
        TreeConfig { memory: 64 << 20, operations: 256, dirty: 33, redo: true }
    }
}

/// What a tree has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounters {
    /// Operations that were done at once.
    pub at_once: u64,
    /// Operations that had to wait.
    pub waited: u64,
    /// Batches written, and pages in them.
    pub batches: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Pages read ahead of a scan.
    pub read_ahead: u64,
    /// Pages that were split.
    pub splits: u64,
    /// Pages that were merged into a neighbour or given up empty.
    pub merges: u64,
}

/// Why an operation stops before its end.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// The page of this frame is being read.
    Page(u32),
    /// There is no room, for a frame or for a command; there will be.
    Stalled,
    /// There is no room until a batch has been written.
    Pressed,
    /// It cannot be done.
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Fail(error)
    }
}

/// The pages from the root to a leaf.
#[derive(Clone, Copy)]
struct Path {
    /// Of each page its frame, and which child leads on.
    steps: [(u32, usize); MAX_LEVELS],
    len: usize,
}

impl Path {
    fn leaf(&self) -> u32 {
        self.steps[self.len - 1].0
    }
}

/// Where a get ended: for a put that comes behind it.
#[derive(Clone, Copy)]
struct Way {
    /// The leaf's frame, and where in it the key is or would be.
    leaf: u32,
    at: usize,
    /// How often a page had left its frame or the tree.
    left: u64,
}

/// A batch on its way to the store.
#[derive(Default)]
struct Flight {
    frames: Vec<u32>,
    /// Its place in the order of batches; 0 when this is none.
    seq: u64,
}

/// A flush that was asked for.
#[derive(Clone, Copy, Debug)]
struct Flush {
    tag: u64,
    /// Pages dirty since then or before are to be written.
    stamp: u64,
    /// The last batch that matters, once all are on their way.
    after: Option<u64>,
}

/// An ordered map from keys to values, in pages of a store.
pub struct Tree<S = AnyStore<'static>> {
    store: S,
    cache: Cache,
    ops: Ops,
    now: Time,
    done: Ring<StoreDone>,
    /// Operations that wait for room, oldest first.
    stalled: VecDeque<u32>,
    /// Operations that wait until a batch has been written, oldest first.
    held_up: VecDeque<u32>,
    /// The store has refused a read.
    full: bool,
    /// A batch has ended, or all may try again.
    written: bool,
    /// The operation that is running, and one that has waited too often.
    current: u32,
    starving: u32,
    flights: Vec<Flight>,
    /// Number of the last batch begun.
    batch_seq: u64,
    flushes: VecDeque<Flush>,
    /// How many of the first flushes the store's flush is for; 0 without one.
    flushing: usize,
    failed: Option<StoreError>,
    /// What was wrong with the last page that was no good.
    broken: Option<Error>,
    /// Pages above which they are written.
    soft: usize,
    hard: usize,
    /// The root, and how many levels there are.
    root_page: u64,
    levels: usize,
    /// Where the last get ended.
    way: Option<Way>,
    /// Pages that are free, with those that were never used.
    free_pages: u64,
    /// Changes of one operation on several pages belong together.
    together: bool,
    /// The group is wanted written, or room for pages.
    pressed: bool,
    /// Something was asked for since the last poll.
    asked: bool,
    /// Operations that had no room may have some now.
    retry: bool,
    /// Memory of its own for what is put together.
    lpids: Vec<u64>,
    /// Pages that are free, and that the store is not told of yet: of the newest,
    /// so many as there is room for.
    given_up: Vec<u64>,
    long: Vec<u8>,
    separator: Vec<u8>,
    upward: Vec<u8>,
    writes: Vec<u8>,
    loads: worst::Loads,
    /// The log of changes. While it is opened or made there is none.
    redo: Option<Redo>,
    /// A block beside the pages that was read.
    looked_up: Option<(Buffer, Result<(), StoreError>)>,
    counters: TreeCounters,
}

/// Batches on their way at once.
const FLIGHTS: usize = 8;

/// Store completions that are taken at once.
const DONE: usize = 256;

impl<S: PageStore> Tree<S> {
    /// Makes an empty tree in `store` at the time `now`; what was there is
    /// lost. It is durable when this returns.
    ///
    /// # Errors
    /// [`Error::Memory`] and [`Error::OutOfMemory`] for the cache,
    /// [`Error::Store`] when it cannot be written.
    pub fn create(store: S, config: TreeConfig, now: Time) -> Result<Tree<S>, Error> {
        let mut tree = Tree::empty(store, config, now)?;
        let redo = tree.make_log()?;
        tree.format()?;
        tree.settle()?;
        tree.redo = redo.filter(|_| config.redo);
        Ok(tree)
    }

    /// Opens the tree in `store` at the time `now`.
    ///
    /// # Errors
    /// As for [`Tree::create`], and [`Error::NotATree`] and
    /// [`Error::Damaged`] for what is there.
    pub fn open(store: S, config: TreeConfig, now: Time) -> Result<Tree<S>, Error> {
        let mut tree = Tree::empty(store, config, now)?;
        // It is the first page that is written, with the first flush.
        let meta = tree.page_now(0).map_err(|e| match e {
            Error::Damaged { page: 0, what: NEVER_WRITTEN } => Error::NotATree(
                "making it was cut short before its first page was written, and nothing was ever \
                 stored in it",
            ),
            e => e,
        })?;
        tree.check_meta(meta)?;
        let redo = tree.open_log()?;
        tree.redo = redo.filter(|_| config.redo);
        Ok(tree)
    }

    fn empty(store: S, config: TreeConfig, now: Time) -> Result<Tree<S>, Error> {
        let TreeConfig { memory, operations, dirty, .. } = config;
        let fixed = (operations * 256) as u64;
        let frames = memory.saturating_sub(fixed) / FRAME_BYTES;
        if frames < LEAST_FRAMES as u64 {
            return Err(Error::Memory(memory, LEAST_FRAMES as u64 * FRAME_BYTES + fixed));
        }
        let cache = Cache::new(frames as usize).ok_or(Error::OutOfMemory(memory))?;
        let hard = cache.len() * 3 / 4;
        let soft = (cache.len() * usize::from(dirty.clamp(1, 60)) / 100).min(hard);
        let most = store.max_batch();
        let flight = |_| Flight { frames: Vec::with_capacity(most), seq: 0 };
        Ok(Tree {
            store,
            cache,
            ops: Ops::new(operations.max(1)),
            now,
            done: Ring::new(DONE),
            stalled: VecDeque::with_capacity(operations.max(1)),
            held_up: VecDeque::with_capacity(operations.max(1)),
            full: false,
            written: false,
            current: NONE,
            starving: NONE,
            flights: (0..FLIGHTS).map(flight).collect(),
            batch_seq: 0,
            flushes: VecDeque::new(),
            flushing: 0,
            failed: None,
            broken: None,
            soft,
            hard,
            root_page: 0,
            levels: 1,
            way: None,
            free_pages: 0,
            together: false,
            pressed: false,
            asked: false,
            retry: false,
            lpids: Vec::with_capacity(most),
            given_up: Vec::with_capacity(most),
            long: Vec::new(),
            separator: Vec::with_capacity(MAX_KEY),
            upward: Vec::with_capacity(MAX_KEY),
            writes: Vec::new(),
            loads: worst::Loads::default(),
            redo: None,
            looked_up: None,
            counters: TreeCounters::default(),
        })
    }

    /// Why all changes fail from now on: a write failed.
    #[inline]
    pub fn failure(&self) -> Option<Error> {
        self.failed.map(Error::Store)
    }

    /// The page store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The page store, to wait for its drive. What is done to it otherwise may
    /// break the tree.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The page store again. What was not flushed is lost; what the drive has
    /// under way stays so.
    pub fn into_store(self) -> S {
        self.store
    }

    /// What the tree has done.
    pub fn counters(&self) -> TreeCounters {
        self.counters
    }

    /// What its cache has done.
    pub fn cache_counters(&self) -> CacheCounters {
        self.cache.counters
    }

    /// Memory for pages and what belongs to them, in bytes: at most the
    /// budget.
    pub fn memory(&self) -> u64 {
        self.cache.len() as u64 * FRAME_BYTES
    }

    /// Operations that wait.
    pub fn waiting(&self) -> usize {
        // With a log, flushes of the pages are its own.
        let flushes = match &self.redo {
            Some(redo) => redo.commits.len(),
            None => self.flushes.len(),
        };
        self.ops.live() + flushes
    }

    /// Pages in use, with those that only hold the tree together.
    pub fn pages(&self) -> u64 {
        self.pages_used()
    }

    /// Levels from the root to the leaves, at least 1.
    pub fn levels(&self) -> usize {
        self.height()
    }

    /// Looks a key up. The record goes to `sink`, at once or from a later
    /// [`Tree::poll`].
    ///
    /// # Errors
    /// Of this and all that follow: [`Error::Busy`] and limits at once; all
    /// else comes through `sink`.
    pub fn get(&mut self, tag: u64, key: &[u8], sink: &mut impl Sink) -> Result<(), Error> {
        self.admit(key, &[])?;
        let result = self.try_get(tag, key, sink);
        self.end(result, Kind::Get, tag, key, &[], sink);
        Ok(())
    }

    /// Gives a key a value.
    pub fn put(
        &mut self,
        tag: u64,
        key: &[u8],
        value: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.admit(key, value)?;
        let result = self.try_put(key, value).map(|()| Outcome::Stored);
        self.end(result, Kind::Put, tag, key, value, sink);
        Ok(())
    }

    /// Takes a key out.
    pub fn delete(&mut self, tag: u64, key: &[u8], sink: &mut impl Sink) -> Result<(), Error> {
        self.admit(key, &[])?;
        let result = self.try_delete(key);
        self.end(result, Kind::Delete, tag, key, &[], sink);
        Ok(())
    }

    /// Gives up to `count` records from `key` on, in the order of the keys.
    pub fn scan(
        &mut self,
        tag: u64,
        key: &[u8],
        count: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.admit(key, &[])?;
        let id = self.ops.take(Kind::Scan { left: count, given: 0 }, tag, key, &[]);
        self.run_counted(id, sink);
        Ok(())
    }

    /// Does all of `writes`, in their order, or none; also after a crash.
    pub fn batch(
        &mut self,
        tag: u64,
        writes: &[Write<'_>],
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.admit(&[], &[])?;
        for write in writes {
            self.admit(write.key, write.value.unwrap_or_default())?;
        }
        let mut bytes = std::mem::take(&mut self.writes);
        encode(writes, &mut bytes);
        let result = self.try_batch(&bytes).map(|()| Outcome::Stored);
        self.end(result, Kind::Batch, tag, &[], &bytes, sink);
        self.writes = bytes;
        Ok(())
    }

    /// Makes what was done so far durable. Ends in a later [`Tree::poll`].
    ///
    /// # Errors
    /// [`Error::Busy`] when as many flushes are under way as operations may be.
    pub fn flush(&mut self, tag: u64) -> Result<(), Error> {
        if let Some(taken) = self.commit(tag) {
            return taken;
        }
        if self.flushes.len() >= self.ops.len() {
            return Err(Error::Busy(self.flushes.len()));
        }
        self.flushes.push_back(Flush { tag, stamp: self.cache.stamp(), after: None });
        self.asked = true;
        Ok(())
    }

    fn admit(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.ops.is_full() {
            return Err(Error::Busy(self.ops.len()));
        }
        if key.len() > MAX_KEY {
            return Err(Error::KeyTooLong(key.len(), MAX_KEY));
        }
        if value.len() > MAX_VALUE {
            return Err(Error::ValueTooLong(value.len(), MAX_VALUE));
        }
        Ok(())
    }

    /// Ends a first try: tells of it, or lets the operation wait.
    fn end(
        &mut self,
        result: Result<Outcome, Stop>,
        kind: Kind,
        tag: u64,
        key: &[u8],
        value: &[u8],
        sink: &mut impl Sink,
    ) {
        match result {
            Ok(outcome) => {
                self.counters.at_once += 1;
                sink.done(tag, Ok(outcome));
            }
            Err(Stop::Fail(error)) => sink.done(tag, Err(error)),
            Err(stop) => {
                self.counters.waited += 1;
                let id = self.ops.take(kind, tag, key, value);
                self.park(id, stop);
            }
        }
    }

    /// Lets an operation wait.
    fn park(&mut self, id: u32, stop: Stop) {
        self.asked = true;
        let frame = match stop {
            Stop::Page(frame) => frame,
            Stop::Pressed => return self.held_up.push_back(id),
            Stop::Stalled | Stop::Fail(_) => return self.stalled.push_back(id),
        };
        self.ops.set_next(id, NONE);
        let (first, last) = self.cache[frame].waiters;
        if first == NONE {
            self.cache.frame_mut(frame).waiters = (id, id);
        } else {
            self.ops.set_next(last, id);
            self.cache.frame_mut(frame).waiters = (first, id);
        }
    }

    /// Counts a try of an operation that has a slot, and tries it.
    fn run_counted(&mut self, id: u32, sink: &mut impl Sink) {
        if self.ops.tried(id) > PATIENCE && self.starving == NONE {
            self.starving = id;
        }
        self.run(id, sink);
    }

    /// Tries an operation that has a slot.
    fn run(&mut self, id: u32, sink: &mut impl Sink) {
        let mut body = self.ops.body(id);
        self.current = id;
        let result = self.attempt(&mut body, sink);
        self.current = NONE;
        let tag = body.tag;
        self.ops.restore(id, body);
        let outcome = match result {
            Ok(outcome) => Ok(outcome),
            Err(Stop::Fail(error)) => Err(error),
            Err(stop) => return self.park(id, stop),
        };
        self.release(id);
        sink.done(tag, outcome);
    }

    fn release(&mut self, id: u32) {
        if self.starving == id {
            self.starving = NONE;
            self.retry = true;
        }
        self.ops.give(id);
    }

    fn attempt(&mut self, body: &mut Body, sink: &mut impl Sink) -> Result<Outcome, Stop> {
        match body.kind {
            Kind::Get => self.try_get(body.tag, &body.key, sink),
            Kind::Put => self.try_put(&body.key, &body.value).map(|()| Outcome::Stored),
            Kind::Delete => self.try_delete(&body.key),
            Kind::Scan { .. } => self.try_scan(body, sink),
            Kind::Batch => self.try_batch(&body.value).map(|()| Outcome::Stored),
        }
    }
}
