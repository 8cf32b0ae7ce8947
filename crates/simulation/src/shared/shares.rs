//! Where the targets of a drive lie, and how large they are.

use std::ops::Range;

use flash::{Dimensions, Geometry};
use media::Place;
use port::BLOCK_BYTES;
use targets::kv::{KvConfig, reserve_chunks};
use targets::with_reserve;
use workload::Rng;

use crate::keyed::room::Room;
use crate::species::pblk::Part;

/// Which targets a drive has.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Those of blocks, in the order of their addresses, and bytes of each.
    pub blocks: Vec<(Place, u64)>,
    /// Chunks of each unit of theirs that hold data.
    pub data_chunks: u32,
    /// That of keys.
    pub keys: Place,
    /// How it is set up.
    pub config: KvConfig,
    /// So many of the others are found before it.
    pub before: usize,
    /// It is there.
    pub has_keys: bool,
}

/// Whose a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A target's of blocks, whose first block this is of the drive's.
    Blocks(u64),
    /// That of keys, or nobody's.
    Keys,
}

impl Shares {
    /// A random drive of one or two targets of blocks, of so many chunks of data a unit, and
    /// one of keys.
    pub(super) fn draw(rng: &mut Rng, data_chunks: u32, seed: u64) -> (Geometry, Shares) {
        let of_blocks = 1 + rng.below(2) as usize;
        let stripes = rng.below(2) == 0;
        let pages_at_once = rng.one_of(&[1, 1, 2, 3]);
        let one = Dimensions {
            groups: 1,
            pus: 1,
            chunks: data_chunks,
            pages: (3 + rng.below(7) as u32) * pages_at_once,
            planes: rng.one_of(&[1, 2, 2, 3]),
            page_bytes: if rng.below(2) == 0 { 4096 } else { 8192 },
            pages_at_once,
        };
        // Units of each target, that of keys last; those of all where they share them.
        let units: Vec<u32> = (0..=of_blocks).map(|_| 1 + rng.below(2) as u32).collect();
        let all: u32 = if stripes { units[0] * units[1] } else { units.iter().sum() };
        let groups = if all.is_multiple_of(2) { 1 + rng.below(2) as u32 } else { 1 };
        let of = |n: usize| if stripes { all } else { units[n] };
        let keys = 100 + rng.below(100);
        let own = Geometry::new(Dimensions { pus: of(of_blocks), ..one });
        let own = own.expect("the ranges are those of a geometry");
        // The fewer units a target has, the more of their chunks it needs for itself.
        let chunks_of_blocks = with_reserve(one).chunks;
        let chunks_of_keys = 8 + rng.below(6) as u32 + reserve_chunks(&own, keys);
        let (mut unit, mut chunk) = (0, 0);
        let mut place = |n: usize, chunks: u32| {
            let units = if stripes { (0..all).collect() } else { (unit..unit + of(n)).collect() };
            let place = Place { units, chunks: chunk..chunk + chunks };
            (unit, chunk) = if stripes { (unit, chunk + chunks) } else { (unit + of(n), chunk) };
            place
        };
        let fill = 45 + rng.below(35);
        let bytes = |n: usize| {
            let chunk = u64::from(own.chunk_blocks());
            (u64::from(data_chunks * of(n)) * chunk * fill / 100).max(1) * BLOCK_BYTES
        };
        let blocks = (0..of_blocks).map(|n| (place(n, chunks_of_blocks), bytes(n))).collect();
        let keys_at = place(of_blocks, chunks_of_keys);
        let chunks = if stripes { chunk } else { chunks_of_blocks.max(chunks_of_keys) };
        let whole = Dimensions { groups, pus: all / groups, chunks, ..one };
        let config = KvConfig {
            keys,
            spare: [0.1, 0.3, 0.5][rng.below(3) as usize],
            depth: 32,
            checkpoint_rows: [4, 20, 60, 1 << 30][rng.below(4) as usize],
            seed,
        };
        let before = rng.below(of_blocks as u64 + 1) as usize;
        let geometry = Geometry::new(whole).expect("the ranges are those of a geometry");
        let shares = Shares { blocks, data_chunks, keys: keys_at, config, before, has_keys: true };
        (geometry, shares)
    }

    /// Logical bytes of all.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The first address of a target of blocks.
    pub(super) fn first(&self, n: usize) -> u64 {
        self.blocks[..n].iter().map(|(_, bytes)| bytes).sum()
    }

    /// The blocks of a target of blocks.
    pub(super) fn blocks_of(&self, n: usize) -> Range<u64> {
        self.first(n) / BLOCK_BYTES..self.first(n + 1) / BLOCK_BYTES
    }

    /// By chunk, whose it is.
    pub(crate) fn homes(&self, geometry: &Geometry) -> Vec<Home> {
        let mut homes = vec![Home::Keys; geometry.chunk_slots()];
        for (n, (place, _)) in self.blocks.iter().enumerate() {
            for &pu in &pus(geometry, place) {
                let chunks = place.chunks.clone().map(|chunk| geometry.chunk_of(pu, chunk));
                chunks.for_each(|at| homes[at] = Home::Blocks(self.first(n) / BLOCK_BYTES));
            }
        }
        homes
    }

    /// What a target of blocks has of the flash.
    pub(super) fn part(&self, geometry: &Geometry, n: usize) -> Part {
        let (place, bytes) = &self.blocks[n];
        Part {
            pus: pus(geometry, place),
            chunks: place.chunks.clone(),
            data_chunks: self.data_chunks,
            chunk_blocks: geometry.chunk_blocks(),
            blocks: bytes / BLOCK_BYTES,
        }
    }

    /// What the target of keys has for values.
    pub(super) fn room(&self, geometry: &Geometry) -> Room {
        let own = self.keys.geometry(geometry).expect("it is the drive's");
        Room::of(&own, &self.config)
    }

    /// Units of the target of keys.
    pub(super) fn pus_of_keys(&self, geometry: &Geometry) -> Vec<usize> {
        pus(geometry, &self.keys)
    }
}

/// The units of a place, as the drive addresses them, in the order in which a target there has
/// them.
fn pus(geometry: &Geometry, place: &Place) -> Vec<usize> {
    let own = place.geometry(geometry).expect("it is the drive's");
    let unit = |of: &Geometry, n: u32| {
        let pus = of.dimensions().pus;
        of.pu_index(of.ppa(n / pus, n % pus, 0, 0))
    };
    let at = |pu: usize| (0..).find(|&n| unit(&own, n) == pu).expect("it is one of its units");
    own.pus_channels_first().map(|pu| unit(geometry, place.units[at(pu) as usize])).collect()
}
