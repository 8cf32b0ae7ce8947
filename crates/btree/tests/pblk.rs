//! The two stores over the block interface on a whole drive: pblk on an
//! open-channel device with the times of flash, in virtual time, cut at random
//! events.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use btree::{
    InPlaceConfig, InPlaceStore, Inline, LogConfig, LogStore, PageStore, StoreError, Tree,
};
use common::blocks::SMALL;
use common::{Checked, Fuse, Map, Mix, check_after_crash, contents, random_step};
use device::Device;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::{BLOCK_BYTES, BlockDone, BlockReq, Port, Ring, Shape, Time};
use targets::{Pblk, PblkConfig, Victim, with_reserve};
use workload::Rng;

type Target = Pblk<Device<RamMedium>>;

/// A drive that stops for ever after a number of events.
struct Fused {
    drive: Target,
    fuse: Fuse,
}

impl Port for Fused {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        if self.fuse.get() > 0 {
            self.drive.submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.fuse.get() > 0 { self.drive.next_event() } else { None }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.fuse.get() > 0 {
            self.fuse.set(self.fuse.get() - 1);
            self.drive.advance(to, done);
        }
    }
}

const DATA_CHUNKS: u32 = 12;

fn geometry() -> Geometry {
    let dim = Dimensions {
        groups: 2,
        pus: 2,
        chunks: DATA_CHUNKS,
        pages: 32,
        planes: 2,
        page_bytes: 16384,
    };
    Geometry::new(with_reserve(dim)).unwrap()
}

fn timing() -> Timing {
    Timing {
        read: vec![50_000],
        program: vec![600_000, 900_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        ..Timing::default()
    }
}

fn config(geometry: &Geometry) -> PblkConfig {
    let blocks = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
    let bytes = blocks * 75 / 100 * BLOCK_BYTES;
    PblkConfig { bytes, data_chunks: DATA_CHUNKS, victim: Victim::Greedy, seed: 7 }
}

/// A new drive.
fn fresh(fuse: &Fuse) -> (Fused, Shape) {
    let geometry = geometry();
    let medium = RamMedium::new(&geometry, BLOCK_BYTES as u32).unwrap();
    let device = Device::new(&geometry, &timing(), medium).unwrap();
    let drive = Pblk::new(device, config(&geometry)).unwrap();
    let shape = drive.shape();
    (Fused { drive, fuse: fuse.clone() }, shape)
}

/// The drive after a power cut.
fn cut(drive: Fused) -> (Fused, Shape, Time) {
    let device = drive.drive.into_device();
    let chunks = device.chunks().to_vec();
    let geometry = geometry();
    let device = Device::restore(&geometry, &timing(), device.cut(), &chunks).unwrap();
    drive.fuse.set(u64::MAX);
    let (target, now) = Pblk::recover(device, config(&geometry), Time::ZERO).unwrap();
    let shape = target.shape();
    (Fused { drive: target, fuse: drive.fuse }, shape, now)
}

const LOG: LogConfig = LogConfig {
    segment_blocks: 64,
    overhead: 100,
    durable: true,
    checkpoint_every: 200_000_000,
    batches: 4,
    collectors: 2,
    clock: btree::store::no_clock,
};

const IN_PLACE: InPlaceConfig = InPlaceConfig { max_batch: 64, clock: btree::store::no_clock };

fn lives<S: PageStore>(
    seeds: std::ops::Range<u64>,
    create: impl Fn(Fused, Shape) -> Result<S, StoreError>,
    open: impl Fn(Fused, Shape, Time) -> Result<S, StoreError>,
    into_drive: impl Fn(S) -> Fused,
) {
    for seed in seeds {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let (drive, shape) = fresh(&fuse);
        let store = create(drive, shape).unwrap();
        let mut checked = Checked::new(Tree::create(store, SMALL, Time::ZERO).unwrap(), Map::new());
        let mut rng = Rng::new(seed, 3);
        let mix = Mix { keys: 2500, longest: 9000, flush: 100, shrink: false };
        for round in 0..3 {
            fuse.set(200 + rng.below(4000));
            while checked.step(random_step(&mut rng, mix)) {}
            let unheard = checked.unheard();
            let (base, changes) = (checked.base, checked.changes);
            let (drive, shape, now) = cut(into_drive(checked.tree.into_store()));
            let store = open(drive, shape, now).unwrap();
            let mut tree = Tree::open(store, SMALL, now).unwrap();
            tree.verify().unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            let found = contents(&mut tree);
            check_after_crash(&base, &changes, &unheard, &found);
            checked = Checked::new(tree, found);
        }
    }
}

#[test]
fn a_log_outlives_power_cuts() {
    lives(
        0..4,
        |drive, shape| LogStore::create(Inline(drive), shape, LOG, Time::ZERO),
        |drive, shape, now| LogStore::open(Inline(drive), shape, LOG, now),
        |store| store.into_drive().0,
    );
}

#[test]
fn pages_in_place_outlive_power_cuts() {
    lives(
        0..4,
        |drive, shape| InPlaceStore::create(Inline(drive), shape, IN_PLACE, Time::ZERO),
        |drive, shape, now| InPlaceStore::open(Inline(drive), shape, IN_PLACE, now),
        |store| store.into_drive().0,
    );
}
