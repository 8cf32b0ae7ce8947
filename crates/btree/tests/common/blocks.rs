//! What the two stores over the block interface are tested with alike.

use std::cell::Cell;
use std::rc::Rc;

use btree::{Broken, Error, Inline, Outcome, PageStore, StoreError, Tree, TreeConfig};
use port::{BlockDone, BlockReq, Port, Shape, Time};
use workload::Rng;

use super::{
    Checked, Fuse, Heard, Map, MemoryDrive, Mix, Step, check_after_crash, contents, no_fuse,
    random_step, rest,
};

/// A kind of store.
pub trait Kind {
    type Store<P: Port<Cmd = BlockReq, Done = BlockDone>>: PageStore;

    fn create<P: Port<Cmd = BlockReq, Done = BlockDone>>(
        drive: P,
        shape: Shape,
    ) -> Result<Self::Store<P>, StoreError>;

    fn open<P: Port<Cmd = BlockReq, Done = BlockDone>>(
        drive: P,
        shape: Shape,
        now: Time,
    ) -> Result<Self::Store<P>, StoreError>;

    fn into_drive<P: Port<Cmd = BlockReq, Done = BlockDone>>(store: Self::Store<P>) -> Inline<P>;
}

pub const SMALL: TreeConfig = TreeConfig { memory: 720 << 10, operations: 16, dirty: 33 };

/// Blocks of the drive that most tests take: a few times what they store.
pub const BLOCKS: u64 = 4000;

pub fn create<K: Kind>(drive: MemoryDrive) -> Tree<K::Store<MemoryDrive>> {
    let shape = drive.shape;
    Tree::create(K::create(drive, shape).unwrap(), SMALL, Time::ZERO).unwrap()
}

pub fn open<K: Kind>(drive: MemoryDrive) -> Tree<K::Store<MemoryDrive>> {
    let shape = drive.shape;
    Tree::open(K::open(drive, shape, Time::ZERO).unwrap(), SMALL, Time::ZERO).unwrap()
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
        let drive = K::into_drive(checked.tree.into_store()).0;
        let mut tree = open::<K>(drive);
        assert_eq!(tree.verify().unwrap(), census);
        assert_eq!(contents(&mut tree), checked.map);
    }
}

pub fn crashes_lose_nothing_that_was_flushed<K: Kind>(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let mut checked =
            Checked::new(create::<K>(MemoryDrive::new(BLOCKS, seed, fuse.clone())), Map::new());
        let mut rng = Rng::new(seed, 3);
        let mix = Mix { keys: 300, longest: 9000, flush: 40, shrink: seed % 2 == 0 };
        for round in 0..5 {
            fuse.set(10 + rng.below(1500));
            while checked.step(random_step(&mut rng, mix)) {}
            let unheard = checked.unheard();
            let (base, changes) = (checked.base, checked.changes);
            let mut drive = K::into_drive(checked.tree.into_store()).0;
            fuse.set(u64::MAX);
            drive = drive.crash(seed * 100 + round, fuse.clone());
            drive = crash_while_opening::<K>(drive, &mut rng, &fuse);
            let mut tree = open::<K>(drive);
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
fn crash_while_opening<K: Kind>(drive: MemoryDrive, rng: &mut Rng, fuse: &Fuse) -> MemoryDrive {
    let shape = drive.shape;
    let shared = Rc::new(std::cell::RefCell::new(drive));
    for _ in 0..rng.below(3) {
        fuse.set(rng.below(60));
        let result = K::open(Shared(shared.clone()), shape, Time::ZERO);
        fuse.set(u64::MAX);
        drop(result);
        let drive = shared.replace(MemoryDrive::new(BLOCKS, 0, fuse.clone()));
        shared.replace(drive.crash(rng.bits(), fuse.clone()));
    }
    shared.replace(MemoryDrive::new(BLOCKS, 0, fuse.clone()))
}

/// A drive that several hold.
pub struct Shared(pub Rc<std::cell::RefCell<MemoryDrive>>);

impl Port for Shared {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut port::Ring<BlockReq>) {
        self.0.borrow_mut().submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.borrow().next_event()
    }

    fn advance(&mut self, to: Time, done: &mut port::Ring<BlockDone>) {
        self.0.borrow_mut().advance(to, done);
    }
}

pub fn a_cut_at_each_event<K: Kind>() {
    let mix = Mix { keys: 30, longest: 6000, flush: 3, shrink: false };
    let mut rng = Rng::new(9, 0);
    let steps: Vec<Step> = (0..160).map(|_| random_step(&mut rng, mix)).collect();
    let mut events = 1;
    loop {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let tree = create::<K>(MemoryDrive::new(BLOCKS, 4, fuse.clone()));
        let mut checked = Checked::new(tree, Map::new());
        fuse.set(events);
        let alive = checked.script(&steps);
        let unheard = checked.unheard();
        let (base, changes) = (checked.base, checked.changes);
        let drive = K::into_drive(checked.tree.into_store()).0.crash(events, no_fuse());
        let mut tree = open::<K>(drive);
        tree.verify().unwrap_or_else(|e| panic!("event {events}: {e}"));
        check_after_crash(&base, &changes, &unheard, &contents(&mut tree));
        if alive {
            break;
        }
        events += 1;
    }
    assert!(events > 20, "only {events} events");
}

/// Flips a byte in each of some blocks: all that is read afterwards is right
/// or an error.
pub fn damage_is_an_error<K: Kind>() {
    let mix = Mix { keys: 200, longest: 6000, flush: 50, shrink: false };
    let mut noticed = 0;
    for seed in 0..30 {
        let mut rng = Rng::new(seed, 5);
        let tree = create::<K>(MemoryDrive::new(BLOCKS, seed, no_fuse()));
        let mut checked = Checked::new(tree, Map::new());
        for _ in 0..300 {
            assert!(checked.step(random_step(&mut rng, mix)));
        }
        assert!(checked.finish() && checked.step(Step::Flush) && checked.finish());
        rest(&mut checked.tree);
        let mut drive = K::into_drive(checked.tree.into_store()).0;
        let written = drive.written();
        for _ in 0..5 {
            let block = written[rng.below(written.len() as u64) as usize];
            drive.flip(block, rng.below(4096) as usize);
        }
        let shape = drive.shape;
        let Ok(store) = K::open(drive, shape, Time::ZERO) else {
            noticed += 1;
            continue;
        };
        let Ok(mut tree) = Tree::open(store, SMALL, Time::ZERO) else {
            noticed += 1;
            continue;
        };
        match tree.verify() {
            Ok(_) => {}
            Err(Broken::Error(Error::Damaged { .. })) => noticed += 1,
            Err(other) => panic!("seed {seed}: {other}"),
        }
        for key in checked.map.keys() {
            let mut heard = Heard::default();
            tree.get(1, key, &mut heard).unwrap();
            while heard.done.is_empty() {
                assert!(tree.wait(&mut heard));
            }
            // A record of the log that is damaged takes those behind it with
            // it: an older value may be there then.
            assert!(
                matches!(
                    heard.done[0].1,
                    Ok(Outcome::Found | Outcome::Missing) | Err(Error::Damaged { .. })
                ),
                "{:?}",
                heard.done
            );
        }
    }
    assert!(noticed > 3, "{noticed} of 30 noticed");
}
