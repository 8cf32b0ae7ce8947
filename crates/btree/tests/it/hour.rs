//! An hour of a drive's time over each store, durable, on a whole drive: mixed
//! load, pauses, power cuts at random events, also while a store is opened.
//! After each cut the tree is checked against a `BTreeMap`.
//!
//! Keys are of 12 to 192 bytes, values of 0 to 40 000. The keys are three for
//! each page of the store: up to two thirds of the pages are in use, and the
//! log and the drives collect all the time.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::AddAssign;
use std::rc::Rc;

use crate::common::blocks::{InPlace, Kind, OnBatches, OnBlocks, Shared, any};
use crate::common::drives::{Flash, Fused, batch_config, cut, fresh, pblk_config};
use crate::common::{Checked, Fuse, Map, Mix, check_after_crash, contents, no_fuse, random_step};
use btree::store::no_clock;
use btree::{BatchStore, LogConfig, LogStore, PageStore, StoreError, Tree, TreeConfig};
use port::{Shape, Time};
use targets::{Batch, Pblk};
use workload::Rng;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

/// A tree with a cache that is small, or as large as many of the pages in use.
fn tree_config(rng: &mut Rng) -> TreeConfig {
    let memory = [720 << 10, 2 << 20, 8 << 20][rng.below(3) as usize];
    TreeConfig { memory, operations: 16, dirty: 33, redo: true }
}

/// Segments of a size for a small drive; all else as it is by default.
fn log_config() -> LogConfig {
    LogConfig { segment_blocks: 64, ..LogConfig::default() }
}

/// What stores and drives did, added up over all lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    /// Chunks that the drive collected, and that it erased.
    collections: u64,
    erases: u64,
    /// Segments that the log on the host collected, and pages that it moved.
    segments: u64,
    moved: u64,
    /// Checkpoints of the log, or of the drive with batched writes.
    checkpoints: u64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.collections += other.collections;
        self.erases += other.erases;
        self.segments += other.segments;
        self.moved += other.moved;
        self.checkpoints += other.checkpoints;
    }
}

/// What an hour came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Report {
    /// The drive's time, in ns.
    time: u64,
    steps: u64,
    pauses: u64,
    cuts: u64,
    /// Of the cuts, those while a store was opened.
    cuts_in_opening: u64,
    /// Most records that were found after a cut, and most pages in use.
    records: u64,
    pages: u64,
    work: Work,
    /// Of each moment at which a step began.
    digest: u64,
}

/// A drive with power, and the store on it.
trait Rig {
    type Store: PageStore;

    /// A new store on a new drive.
    fn create(&self) -> Self::Store;

    /// The store that is there, on a drive that has just started.
    fn open(&self) -> Result<Self::Store, StoreError>;

    /// Cuts the power of a drive whose store is gone, and starts it again. Gives
    /// what the drive had done.
    fn cut(&self) -> Work;

    /// After how many events the power goes.
    fn fuse(&self) -> &Fuse;

    /// The drive's time since its last start.
    fn now(&self) -> Time;

    /// What the store did by itself.
    fn store_work(_store: &Self::Store) -> Work {
        Work::default()
    }
}

/// A store on blocks, over pblk.
struct OnPblk<K> {
    drive: Rc<RefCell<Pblk<Flash>>>,
    fuse: Fuse,
    clock: Rc<Cell<Time>>,
    /// What the drive's counters showed when it started: it keeps them.
    before: Cell<Work>,
    kind: PhantomData<K>,
}

impl<K: Kind> OnPblk<K> {
    fn new() -> OnPblk<K> {
        OnPblk {
            drive: Rc::new(RefCell::new(Pblk::new(fresh(), pblk_config()).unwrap())),
            fuse: no_fuse(),
            clock: Rc::default(),
            before: Cell::default(),
            kind: PhantomData,
        }
    }

    fn drive(&self) -> (BlockDrive, Shape) {
        let shape = self.drive.borrow().shape();
        let mut drive = Fused::new(Shared(self.drive.clone()), &self.fuse);
        drive.clock = self.clock.clone();
        (drive, shape)
    }

    fn drive_work(&self) -> Work {
        let counters = self.drive.borrow().counters();
        Work { collections: counters.collections, erases: counters.erases, ..Work::default() }
    }
}

type BlockDrive = Fused<Shared<Pblk<Flash>>>;

impl<K: Hourly> Rig for OnPblk<K> {
    type Store = K::Store;

    fn create(&self) -> Self::Store {
        let (drive, shape) = self.drive();
        K::create(any(drive), shape).unwrap()
    }

    fn open(&self) -> Result<Self::Store, StoreError> {
        let (drive, shape) = self.drive();
        K::open(any(drive), shape, self.now())
    }

    fn cut(&self) -> Work {
        let (now, before) = (self.drive_work(), self.before.get());
        // A drive is needed in its place meanwhile.
        let none = Pblk::new(fresh(), pblk_config()).unwrap();
        let device = cut(self.drive.replace(none).into_device());
        let (drive, at) = Pblk::recover(device, pblk_config(), Time::ZERO).unwrap();
        self.drive.replace(drive);
        self.clock.set(at);
        self.before.set(self.drive_work());
        Work {
            collections: now.collections - before.collections,
            erases: now.erases - before.erases,
            ..Work::default()
        }
    }

    fn fuse(&self) -> &Fuse {
        &self.fuse
    }

    fn now(&self) -> Time {
        self.clock.get()
    }

    fn store_work(store: &Self::Store) -> Work {
        K::work(store)
    }
}

/// A kind of store that tells what it did.
trait Hourly: Kind {
    fn work(store: &Self::Store) -> Work;
}

struct Log;

impl Kind for Log {
    type Store = LogStore<OnBlocks>;

    fn create(drive: OnBlocks, shape: Shape) -> Result<Self::Store, StoreError> {
        LogStore::create(drive, shape, log_config(), Time::ZERO)
    }

    fn open(drive: OnBlocks, shape: Shape, now: Time) -> Result<Self::Store, StoreError> {
        LogStore::open(drive, shape, log_config(), now)
    }

    fn into_drive(store: Self::Store) -> OnBlocks {
        store.into_drive()
    }
}

impl Hourly for Log {
    fn work(store: &Self::Store) -> Work {
        let counters = store.counters();
        Work {
            segments: counters.collected,
            moved: counters.moved,
            checkpoints: counters.checkpoints,
            ..Work::default()
        }
    }
}

impl Hourly for InPlace {
    fn work(_store: &Self::Store) -> Work {
        Work::default()
    }
}

/// The store over the target with batched writes.
struct OnBatch {
    drive: Rc<RefCell<Batch<Flash>>>,
    fuse: Fuse,
    clock: Rc<Cell<Time>>,
}

impl OnBatch {
    fn new() -> OnBatch {
        let drive = Batch::open(fresh(), batch_config(), Time::ZERO).unwrap();
        let clock = Rc::new(Cell::new(drive.now()));
        OnBatch { drive: Rc::new(RefCell::new(drive)), fuse: no_fuse(), clock }
    }
}

impl Rig for OnBatch {
    type Store = BatchStore<OnBatches>;

    fn create(&self) -> Self::Store {
        self.open().unwrap()
    }

    fn open(&self) -> Result<Self::Store, StoreError> {
        let shape = *self.drive.borrow().shape();
        let mut drive = Fused::new(Shared(self.drive.clone()), &self.fuse);
        drive.clock = self.clock.clone();
        BatchStore::new(any(drive), shape, 256, no_clock)
    }

    fn cut(&self) -> Work {
        let counters = self.drive.borrow().counters();
        // A drive is needed in its place meanwhile.
        let none = Batch::open(fresh(), batch_config(), Time::ZERO).unwrap();
        let device = cut(self.drive.replace(none).into_below());
        let drive = Batch::open(device, batch_config(), Time::ZERO).unwrap();
        self.clock.set(drive.now());
        self.drive.replace(drive);
        Work {
            collections: counters.collections,
            erases: counters.erases,
            checkpoints: counters.checkpoints,
            ..Work::default()
        }
    }

    fn fuse(&self) -> &Fuse {
        &self.fuse
    }

    fn now(&self) -> Time {
        self.clock.get()
    }
}

/// Some thousand steps or seconds of one kind of load.
#[derive(Clone, Copy, Debug)]
struct Phase {
    mix: Mix,
    /// Most steps are on a tenth of the keys.
    skewed: bool,
    /// Time between steps; 0 when each comes as soon as it can.
    gap: u64,
    steps: u64,
}

impl Phase {
    fn random(rng: &mut Rng, keys: u64) -> Phase {
        let longest = [300, 2000, 9000, 40_000][rng.below(4) as usize];
        let mix = Mix { keys, longest, flush: 20 + rng.below(180), shrink: rng.below(6) == 0 };
        let skewed = rng.below(2) == 0;
        let burst = rng.below(4) == 0;
        let gap = if burst { 0 } else { 100_000 + rng.below(4_000_000) };
        Phase { mix, skewed, gap, steps: 300 + rng.below(2700) }
    }
}

/// A rig in use.
struct Life<'a, R: Rig> {
    rig: &'a R,
    checked: Checked<R::Store>,
    rng: &'a mut Rng,
    report: &'a mut Report,
    keys: u64,
}

impl<R: Rig> Life<'_, R> {
    /// A step of a phase. False when the power is gone.
    fn step(&mut self, phase: Phase) -> bool {
        let few = phase.skewed && self.rng.below(10) < 8;
        let keys = if few { phase.mix.keys / 10 } else { phase.mix.keys };
        let alive = self.checked.step(random_step(self.rng, Mix { keys, ..phase.mix }));
        let report = &mut *self.report;
        report.steps += 1;
        report.digest = workload::rng::mix(report.digest ^ self.rig.now().0);
        alive
    }

    /// Lets the drive's time go on by so much.
    fn idle(&mut self, from: Time, time: u64) -> Time {
        let until = Time(from.0.max(self.rig.now().0) + time);
        self.checked.idle_until(until);
        until
    }

    /// A phase without a cut. Gives the time.
    fn load(&mut self, mut now: Time) -> Time {
        if self.rng.below(8) == 0 {
            self.report.pauses += 1;
            let time = 2 * SECOND + self.rng.below(30 * SECOND);
            return self.idle(now, time);
        }
        let phase = Phase::random(self.rng, self.keys);
        for _ in 0..phase.steps {
            assert!(self.step(phase), "the power is on");
            if phase.gap > 0 {
                now = self.idle(now, phase.gap);
            }
        }
        now.max(self.rig.now())
    }

    /// Load, or a pause and then load, until the power goes. Gives the time.
    fn end(&mut self, mut now: Time) -> Time {
        let phase = Phase::random(self.rng, self.keys);
        self.rig.fuse().set(1 + self.rng.below(3000));
        if self.rng.below(4) == 0 {
            let time = self.rng.below(20 * SECOND);
            now = self.idle(now, time);
        }
        while self.step(phase) {
            if phase.gap > 0 {
                now = self.idle(now, phase.gap);
            }
        }
        now.max(self.rig.now())
    }
}

/// Cuts the power, a few times more while the store is opened, and opens it.
fn restart<R: Rig>(rig: &R, rng: &mut Rng, report: &mut Report) -> Tree<R::Store> {
    report.work += rig.cut();
    report.cuts += 1;
    for _ in 0..rng.below(3) {
        rig.fuse().set(rng.below(300));
        if let Ok(store) = rig.open() {
            let _ = Tree::open(store, tree_config(rng), rig.now());
        }
        rig.fuse().set(u64::MAX);
        report.time += rig.now().0;
        report.work += rig.cut();
        report.cuts += 1;
        report.cuts_in_opening += 1;
    }
    rig.fuse().set(u64::MAX);
    Tree::open(rig.open().unwrap(), tree_config(rng), rig.now()).unwrap()
}

/// Lives of a store until so much of the drive's time is over.
fn simulate<R: Rig>(rig: &R, seed: u64, time: u64) -> Report {
    let mut report = Report::default();
    let mut rng = Rng::new(seed, 13);
    let store = rig.create();
    let keys = store.pages() * 3;
    let mut checked =
        Checked::new(Tree::create(store, tree_config(&mut rng), rig.now()).unwrap(), Map::new());
    let mix = Mix { keys, longest: 9000, flush: 200, shrink: false };
    for _ in 0..keys {
        assert!(checked.step(random_step(&mut rng, mix)));
    }
    while report.time < time {
        let (rng, report) = (&mut rng, &mut report);
        let end = rig.now().0 + 5 * SECOND + rng.below(MINUTE);
        let mut life = Life { rig, checked, rng, report, keys };
        let mut now = rig.now();
        while now.0 < end {
            now = life.load(now);
        }
        now = life.end(now);

        let Life { checked: cut, rng, report, .. } = life;
        report.time += now.0;
        let unheard = cut.unheard();
        let (base, changes) = (cut.base, cut.changes);
        let store = cut.tree.into_store();
        report.work += R::store_work(&store);
        drop(store);
        let mut tree = restart(rig, rng, report);
        let census = tree.verify().unwrap_or_else(|e| panic!("{report:?}: {e}"));
        let found = contents(&mut tree);
        assert_eq!(census.records, found.len() as u64);
        check_after_crash(&base, &changes, &unheard, &found);
        report.records = report.records.max(census.records);
        report.pages = report.pages.max(tree.pages());
        checked = Checked::new(tree, found);
    }
    report
}

/// A minute, twice: the same seed has the same history.
fn a_minute<R: Rig>(rig: impl Fn() -> R) {
    let report = simulate(&rig(), 1, MINUTE);
    assert_eq!(report, simulate(&rig(), 1, MINUTE));
    assert!(report.cuts > 0 && report.work.erases > 0, "{report:?}");
}

/// The hour, from the seed `HOUR_SEED`, or 2.
fn an_hour<R: Rig>(rig: R) -> Report {
    let seed = std::env::var("HOUR_SEED").map_or(2, |seed| seed.parse().expect("a number"));
    println!("seed {seed}");
    let report = simulate(&rig, seed, 60 * MINUTE);
    println!("{report:#?}");
    assert!(report.cuts > 60 && report.cuts_in_opening > 30, "{report:?}");
    assert!(report.steps > 100_000 && report.pauses > 30, "{report:?}");
    assert!(report.work.collections > 500, "{report:?}");
    report
}

#[test]
fn a_minute_over_a_log() {
    a_minute(OnPblk::<Log>::new);
}

#[test]
fn a_minute_in_place() {
    a_minute(OnPblk::<InPlace>::new);
}

#[test]
fn a_minute_of_batches() {
    a_minute(OnBatch::new);
}

#[test]
#[ignore = "an hour of simulated load"]
fn an_hour_over_a_log() {
    let work = an_hour(OnPblk::<Log>::new()).work;
    assert!(work.segments > 500 && work.moved > 10_000 && work.checkpoints > 300, "{work:?}");
}

#[test]
#[ignore = "an hour of simulated load"]
fn an_hour_in_place() {
    an_hour(OnPblk::<InPlace>::new());
}

#[test]
#[ignore = "an hour of simulated load"]
fn an_hour_of_batches() {
    let work = an_hour(OnBatch::new()).work;
    assert!(work.checkpoints > 60, "{work:?}");
}
