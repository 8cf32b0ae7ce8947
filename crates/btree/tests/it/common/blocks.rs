//! What the two stores over the block interface are tested with alike.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use btree::{
    Error, InPlaceConfig, InPlaceStore, Inline, MAX_KEY, MAX_VALUE, Outcome, PageStore, StoreError,
    Tree, TreeConfig, Write,
};
use port::{BatchDone, BatchReq, BlockDone, BlockReq, Port, Ring, Shape, Status, Time};
use workload::Rng;

use super::{
    Checked, Fuse, Heard, Map, MemoryDrive, Mix, Step, check_after_crash, contents, no_fuse,
    random_step, rest,
};

/// A drive of any type: with one for all, a store is compiled once.
pub trait AnyPort<C, D>: Port<Cmd = C, Done = D> + Any {}

impl<P: Port + Any> AnyPort<P::Cmd, P::Done> for P {}

/// The drive below the stores over blocks, and over batches.
pub type Below<C, D> = Inline<Box<dyn AnyPort<C, D>>>;
pub type OnBlocks = Below<BlockReq, BlockDone>;
pub type OnBatches = Below<BatchReq, BatchDone>;

/// A drive as a store takes it.
pub fn any<P: Port + Any>(drive: P) -> Below<P::Cmd, P::Done> {
    Inline(Box::new(drive))
}

/// What it was.
pub fn was<P: Port + Any>(drive: Below<P::Cmd, P::Done>) -> P {
    let drive: Box<dyn Any> = drive.0;
    *drive.downcast().expect("it was made of this one")
}

/// The same while a store has it.
pub fn is<P: Port + Any>(drive: &mut Below<P::Cmd, P::Done>) -> &mut P {
    let drive: &mut dyn Any = &mut *drive.0;
    drive.downcast_mut().expect("it was made of this one")
}

/// A kind of store.
pub trait Kind {
    type Store: PageStore;

    fn create(drive: OnBlocks, shape: Shape) -> Result<Self::Store, StoreError>;

    fn open(drive: OnBlocks, shape: Shape, now: Time) -> Result<Self::Store, StoreError>;

    fn into_drive(store: Self::Store) -> OnBlocks;
}

/// The store that updates pages in place.
pub struct InPlace;

/// How it is set up.
pub const IN_PLACE: InPlaceConfig =
    InPlaceConfig { max_batch: 64, redo: 0, clock: btree::store::no_clock };

impl Kind for InPlace {
    type Store = InPlaceStore<OnBlocks>;

    fn create(drive: OnBlocks, shape: Shape) -> Result<Self::Store, StoreError> {
        InPlaceStore::create(drive, shape, IN_PLACE, Time::ZERO)
    }

    fn open(drive: OnBlocks, shape: Shape, now: Time) -> Result<Self::Store, StoreError> {
        InPlaceStore::open(drive, shape, IN_PLACE, now)
    }

    fn into_drive(store: Self::Store) -> OnBlocks {
        store.into_drive()
    }
}

/// Tests of one kind of store each: what is tested alike, by the name that it has there.
macro_rules! tests_of {
    ($kind:ty: $($name:ident = $module:ident::$test:ident($($argument:expr),*);)*) => {
        $(#[test]
        fn $name() {
            $module::$test::<$kind>($($argument),*);
        })*
    };
}
pub(crate) use tests_of;

pub const SMALL: TreeConfig =
    TreeConfig { memory: 720 << 10, operations: 16, dirty: 33, redo: true };

/// Blocks of the drive that most tests take: a few times what they store.
pub const BLOCKS: u64 = 4000;

pub fn create<K: Kind>(drive: MemoryDrive) -> Tree<K::Store> {
    let shape = drive.shape;
    Tree::create(K::create(any(drive), shape).unwrap(), SMALL, Time::ZERO).unwrap()
}

pub fn open<K: Kind>(drive: MemoryDrive) -> Tree<K::Store> {
    let shape = drive.shape;
    Tree::open(K::open(any(drive), shape, Time::ZERO).unwrap(), SMALL, Time::ZERO).unwrap()
}

pub fn it_is_a_map<K: Kind>() {
    for (seed, longest) in [(1, 300), (2, 20_000)] {
        let mut rng = Rng::new(seed, 7);
        let mix = Mix { keys: 1500, longest, flush: 300, shrink: false };
        let tree = create::<K>(MemoryDrive::new(BLOCKS, seed, no_fuse()));
        let mut checked = Checked::new(tree, Map::new());
        for _ in 0..5000 {
            assert!(checked.step(random_step(&mut rng, mix)));
        }
        assert!(checked.finish() && checked.step(Step::Flush) && checked.finish());
        let census = checked.tree.verify().unwrap();
        assert_eq!(census.records, checked.map.len() as u64);
        assert_eq!(contents(&mut checked.tree), checked.map);
        // And again after it was opened anew.
        rest(&mut checked.tree);
        let drive: MemoryDrive = was(K::into_drive(checked.tree.into_store()));
        let mut tree = open::<K>(drive);
        assert_eq!(tree.verify().unwrap(), census);
        assert_eq!(contents(&mut tree), checked.map);
    }
}

/// What is cut: a kind of store, with the drive that is below it.
pub trait Cut {
    type Store: PageStore;
    /// Blocks or pages of the drive.
    const ROOM: u64 = BLOCKS;
    /// Events until it is cut, at most.
    const EVENTS: u64 = 1500;
    /// One in so many steps is a flush.
    const FLUSH: u64 = 40;
    /// What is cut at each event, and how many steps of it.
    const SCRIPT: (Mix, u64) = (Mix { keys: 30, longest: 6000, flush: 3, shrink: false }, 160);

    fn new(room: u64, seed: u64, fuse: &Fuse) -> Tree<Self::Store>;

    /// The tree after a cut, and after more of them while it is opened if there is a `rng`.
    fn cut(store: Self::Store, seed: u64, fuse: &Fuse, rng: Option<&mut Rng>) -> Tree<Self::Store>;
}

impl<K: Kind> Cut for K {
    type Store = K::Store;

    fn new(room: u64, seed: u64, fuse: &Fuse) -> Tree<K::Store> {
        create::<K>(MemoryDrive::new(room, seed, fuse.clone()))
    }

    fn cut(store: K::Store, seed: u64, fuse: &Fuse, rng: Option<&mut Rng>) -> Tree<K::Store> {
        let mut drive = was::<MemoryDrive>(K::into_drive(store)).crash(seed, fuse.clone());
        if let Some(rng) = rng {
            drive = crash_while_opening::<K>(drive, rng, fuse);
        }
        open::<K>(drive)
    }
}

pub fn crashes_lose_nothing_that_was_flushed<C: Cut>(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let mut checked = Checked::new(C::new(C::ROOM, seed, &fuse), Map::new());
        let mut rng = Rng::new(seed, 3);
        let mix = Mix { keys: 300, longest: 9000, flush: C::FLUSH, shrink: seed % 2 == 0 };
        for round in 0..5 {
            fuse.set(10 + rng.below(C::EVENTS));
            while checked.step(random_step(&mut rng, mix)) {}
            let unheard = checked.unheard();
            let (base, changes) = (checked.base, checked.changes);
            fuse.set(u64::MAX);
            let store = checked.tree.into_store();
            let mut tree = C::cut(store, seed * 100 + round, &fuse, Some(&mut rng));
            let census = tree.verify().unwrap_or_else(|e| panic!("seed {seed} {round}: {e}"));
            let found = contents(&mut tree);
            assert_eq!(census.records, found.len() as u64);
            check_after_crash(&base, &changes, &unheard, &found);
            checked = Checked::new(tree, found);
        }
    }
}

/// Opens a few times, and crashes each time before that has ended. What a
/// drive was when the store is gone, only the store knew: so the drive is
/// shared here.
pub fn crash_while_opening<K: Kind>(drive: MemoryDrive, rng: &mut Rng, fuse: &Fuse) -> MemoryDrive {
    let shape = drive.shape;
    let shared = Rc::new(RefCell::new(drive));
    for _ in 0..rng.below(3) {
        let most = [60, 600][rng.below(2) as usize];
        fuse.set(rng.below(most));
        let result = K::open(any(Shared(shared.clone())), shape, Time::ZERO);
        drop(result.map(|store| Tree::open(store, SMALL, Time::ZERO)));
        fuse.set(u64::MAX);
        let drive = shared.replace(MemoryDrive::new(BLOCKS, 0, fuse.clone()));
        shared.replace(drive.crash(rng.bits(), fuse.clone()));
    }
    shared.replace(MemoryDrive::new(BLOCKS, 0, fuse.clone()))
}

/// A drive that several hold.
pub struct Shared<P>(pub Rc<RefCell<P>>);

impl<P: Port> Port for Shared<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.0.borrow_mut().submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.borrow().next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        self.0.borrow_mut().advance(to, done);
    }
}

pub fn a_cut_at_each_event<C: Cut>() {
    let ((mix, count), mut rng) = (C::SCRIPT, Rng::new(9, 0));
    let steps: Vec<Step> = (0..count).map(|_| random_step(&mut rng, mix)).collect();
    let mut events = 1;
    loop {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let mut checked = Checked::new(C::new(C::ROOM, 4, &fuse), Map::new());
        fuse.set(events);
        let alive = checked.script(&steps);
        let unheard = checked.unheard();
        let (base, changes) = (checked.base, checked.changes);
        let mut tree = C::cut(checked.tree.into_store(), events, &no_fuse(), None);
        tree.verify().unwrap_or_else(|e| panic!("event {events}: {e}"));
        check_after_crash(&base, &changes, &unheard, &contents(&mut tree));
        if alive {
            break;
        }
        events += 1;
    }
    assert!(events > 20, "only {events} events");
}

/// Waits for the one thing that was asked for.
pub fn outcome<S: PageStore>(tree: &mut Tree<S>, heard: &mut Heard) -> Result<Outcome, Error> {
    while heard.done.is_empty() {
        assert!(tree.wait(heard), "the drive is there");
    }
    heard.done.pop_front().expect("it is there").1
}

/// Keys and values over the limit, alone and in a batch, change nothing; those
/// at the limit are taken.
pub fn limits_are_errors<K: Kind>() {
    let mut tree = create::<K>(MemoryDrive::new(BLOCKS, 1, no_fuse()));
    let mut heard = Heard::default();
    let long = vec![1; MAX_VALUE + 1];
    let (key, value) = (&long[..MAX_KEY + 1], &long[..]);
    assert_eq!(tree.put(1, key, b"", &mut heard), Err(Error::KeyTooLong(MAX_KEY + 1, MAX_KEY)));
    assert_eq!(tree.get(1, key, &mut heard), Err(Error::KeyTooLong(MAX_KEY + 1, MAX_KEY)));
    assert_eq!(tree.delete(1, key, &mut heard), Err(Error::KeyTooLong(MAX_KEY + 1, MAX_KEY)));
    assert_eq!(tree.scan(1, key, 1, &mut heard), Err(Error::KeyTooLong(MAX_KEY + 1, MAX_KEY)));
    assert_eq!(
        tree.put(1, b"k", value, &mut heard),
        Err(Error::ValueTooLong(MAX_VALUE + 1, MAX_VALUE))
    );
    let good = Write { key: b"a", value: Some(b"1") };
    for (bad, error) in [
        (Write { key, value: None }, Error::KeyTooLong(MAX_KEY + 1, MAX_KEY)),
        (Write { key: b"k", value: Some(value) }, Error::ValueTooLong(MAX_VALUE + 1, MAX_VALUE)),
    ] {
        assert_eq!(tree.batch(1, &[good, bad], &mut heard), Err(error));
    }
    assert!(heard.done.is_empty());
    // More pages than are written at once; or than there are, which is no want of room.
    let write = Write { key: b"k", value: Some(&long[..MAX_VALUE]) };
    for writes in [20, BLOCKS as usize / 10] {
        tree.batch(1, &vec![write; writes], &mut heard).unwrap();
        let refused = outcome(&mut tree, &mut heard);
        assert!(matches!(refused, Err(Error::BatchTooLarge { .. })), "{refused:?}");
    }
    assert!(contents(&mut tree).is_empty());
    tree.put(1, &long[..MAX_KEY], &long[..MAX_VALUE], &mut heard).unwrap();
    assert_eq!(outcome(&mut tree, &mut heard), Ok(Outcome::Stored));
    tree.flush(1).unwrap();
    assert_eq!(outcome(&mut tree, &mut heard), Ok(Outcome::Flushed));
    rest(&mut tree);
    let drive: MemoryDrive = was(K::into_drive(tree.into_store()));
    let mut tree = open::<K>(drive.crash(1, no_fuse()));
    let map = Map::from([(long[..MAX_KEY].to_vec(), long[..MAX_VALUE].to_vec())]);
    assert_eq!(contents(&mut tree), map);
}

/// A block is lost: what needs it is a typed error, all else is read and
/// changed as before, and nothing is gone but the block.
pub fn a_lost_page_is_an_error<K: Kind>() {
    let mix = Mix { keys: 300, longest: 6000, flush: 50, shrink: false };
    let (mut unread, mut unchanged, mut unopened) = (0, 0, 0);
    for seed in 0..30 {
        let mut rng = Rng::new(seed, 6);
        let tree = create::<K>(MemoryDrive::new(BLOCKS, seed, no_fuse()));
        let mut checked = Checked::new(tree, Map::new());
        for _ in 0..600 {
            assert!(checked.step(random_step(&mut rng, mix)));
        }
        assert!(checked.finish() && checked.step(Step::Flush) && checked.finish());
        rest(&mut checked.tree);
        let mut map = checked.map;
        let drive: MemoryDrive = was(K::into_drive(checked.tree.into_store()));
        let (shape, written) = (drive.shape, drive.written());
        let shared = Rc::new(RefCell::new(drive));
        let store = K::open(any(Shared(shared.clone())), shape, Time::ZERO).unwrap();
        let mut tree = Tree::open(store, SMALL, Time::ZERO).unwrap();
        let lost = written[rng.below(written.len() as u64) as usize];
        shared.borrow_mut().lost.push(lost);

        unread += gets(&mut tree, &map);
        unchanged += puts(&mut tree, &mut map, &mut rng);
        rest(&mut tree);
        drop(tree);
        // Opened again: whole, or a typed error.
        let again = K::open(any(Shared(shared.clone())), shape, Time::ZERO).map_err(Error::Store);
        match again.and_then(|store| Tree::open(store, SMALL, Time::ZERO)) {
            Ok(mut tree) => {
                gets(&mut tree, &map);
                rest(&mut tree);
            }
            Err(error) => {
                is_lost(error);
                unopened += 1;
            }
        }
        // The block can be read after all: everything is there.
        shared.borrow_mut().lost.clear();
        let drive = shared.replace(MemoryDrive::new(BLOCKS, 0, no_fuse()));
        let mut tree = open::<K>(drive.crash(seed, no_fuse()));
        tree.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(contents(&mut tree), map, "seed {seed}");
    }
    assert!(unread > 5 && unchanged > 0, "{unread} {unchanged} {unopened}");
}

/// Whether this is how a lost block is told of.
fn is_lost(error: Error) {
    let typed =
        matches!(error, Error::Store(StoreError::Drive { status: Status::UNRECOVERED_READ, .. }));
    assert!(typed, "{error}");
}

/// Gets all that there should be. Gives how many could not be read.
fn gets<S: PageStore>(tree: &mut Tree<S>, map: &Map) -> usize {
    let mut unread = 0;
    for (key, value) in map {
        let mut heard = Heard::default();
        tree.get(1, key, &mut heard).unwrap();
        match outcome(tree, &mut heard) {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Found);
                assert_eq!(&heard.records[&1][0].1, value);
            }
            Err(error) => {
                is_lost(error);
                unread += 1;
            }
        }
    }
    unread
}

/// Changes a third of what is there, and flushes. Gives how many could not be
/// changed.
fn puts<S: PageStore>(tree: &mut Tree<S>, map: &mut Map, rng: &mut Rng) -> usize {
    let mut unchanged = 0;
    let mut heard = Heard::default();
    for (key, value) in map.iter_mut().filter(|_| rng.below(3) == 0) {
        let new = vec![value.len() as u8; value.len() / 2];
        tree.put(1, key, &new, &mut heard).unwrap();
        match outcome(tree, &mut heard) {
            Ok(_) => *value = new,
            Err(error) => {
                is_lost(error);
                unchanged += 1;
            }
        }
    }
    tree.flush(1).unwrap();
    assert_eq!(outcome(tree, &mut heard), Ok(Outcome::Flushed));
    unchanged
}
