//! Ways to break the contract, from outside the target and inside it, to show
//! that each is found: a checker that finds nothing may have looked at nothing.

use std::cell::Cell;
use std::sync::Once;

use flash::{Chunk, Geometry, Medium, Moved, Ppa, TAG_BYTES, Tag};
use targets::pblk::mutation::Mutation;
use workload::Rng;

use crate::batched::BatchBreak;
use crate::early::EarlyDone;
use crate::layered::LayerBreak;
use crate::store::Store;
use crate::tree::TreeBreak;
use crate::{keyed, served, shared};

/// One way to break the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// A flush is answered and not done.
    DropFlush,
    /// FUA is forgotten on the way to the target.
    DropFua,
    /// A trim or write zeroes is answered and not done.
    DropTrim,
    /// Now and then the drive says that it takes no more writes.
    EndEarly,
    /// Now and then the drive says that a block cannot be read.
    Withhold,
    /// A program is said to be done when it is sent.
    EarlyDone,
    /// One program in 32 stores nothing, and says that it did.
    LoseProgram,
    /// One program in 32 stores its first two blocks in each other's place.
    SwapBlocks,
    /// One program in 32 stores half of its first block.
    TearBlock,
    /// One read in 64 gives the tags of the read before it.
    StaleTags,
    /// Tags are stored with every second number only.
    SameSeq,
    /// The drive forgets one change in 32 of a chunk's descriptor.
    ForgetDescriptor,
    /// An erase takes the first row of a neighbouring chunk with it.
    EraseNeighbour,
    /// One read in 64 gives the block beside the first.
    MisdirectRead,
    /// One read in 64 has a wrong bit.
    RotBit,
    /// The drive file breaks its order of writing.
    File(drivefile::mutation::Mutation),
    /// Parity breaks a promise.
    Parity(parity::mutation::Mutation),
    /// The read cache does.
    ReadCache(device::mutation::Mutation),
    /// The protected cache does.
    Protected(nvram::mutation::Mutation),
    /// The target itself breaks a promise.
    Inside(Mutation),
    /// In the block layer.
    Layer(LayerBreak),
    /// In the tree or its store.
    Tree(TreeBreak),
    /// With the batched target.
    Batch(BatchBreak),
    /// The key-value target breaks a promise.
    Keyed(targets::kv::mutation::Mutation),
    /// The Redis server breaks a promise.
    Served(exports::redis::mutation::Mutation),
    /// Targets that share a drive break a promise.
    Shared(media::mutation::Mutation),
}

impl Break {
    /// Those from outside the target.
    const OUTSIDE: [Break; 15] = [
        Break::DropFlush,
        Break::DropFua,
        Break::DropTrim,
        Break::EndEarly,
        Break::Withhold,
        Break::EarlyDone,
        Break::LoseProgram,
        Break::SwapBlocks,
        Break::TearBlock,
        Break::StaleTags,
        Break::SameSeq,
        Break::ForgetDescriptor,
        Break::EraseNeighbour,
        Break::MisdirectRead,
        Break::RotBit,
    ];

    /// All of them that must be found, those inside the targets last.
    pub fn all() -> impl Iterator<Item = Break> {
        let blocks = Break::OUTSIDE.into_iter().chain(LayerBreak::ALL.map(Break::Layer));
        let blocks = blocks.chain(TreeBreak::ALL.map(Break::Tree));
        let blocks = blocks.chain(drivefile::mutation::Mutation::CUT.map(Break::File));
        let blocks = blocks.chain(drivefile::mutation::Mutation::FAILING.map(Break::File));
        let blocks = blocks.chain(parity::mutation::Mutation::ALL.map(Break::Parity));
        let blocks = blocks.chain(device::mutation::Mutation::ALL.map(Break::ReadCache));
        let blocks = blocks.chain(nvram::mutation::Mutation::ALL.map(Break::Protected));
        let blocks = blocks.chain(Mutation::ALL.map(Break::Inside));
        let blocks = blocks.chain(BatchBreak::all().map(Break::Batch));
        let blocks = blocks.chain(keyed::breaks().map(Break::Keyed));
        let blocks = blocks.chain(served::breaks().map(Break::Served));
        blocks.chain(shared::breaks().map(Break::Shared))
    }

    /// The one of this name, as `Debug` writes it.
    pub fn named(name: &str) -> Option<Break> {
        Break::all().find(|one| format!("{one:?}").eq_ignore_ascii_case(name))
    }

    /// From now on this thread breaks this promise, if it is one of the crates below, until what
    /// this gives is dropped.
    pub(crate) fn plant(broken: Option<Break>) -> Planted {
        match broken {
            Some(Break::File(one)) => drivefile::mutation::set(Some(one)),
            Some(Break::Parity(one)) => parity::mutation::set(Some(one)),
            Some(Break::ReadCache(one)) => device::mutation::set(Some(one)),
            Some(Break::Protected(one)) => nvram::mutation::set(Some(one)),
            Some(Break::Inside(one)) => targets::pblk::mutation::set(Some(one)),
            Some(Break::Batch(BatchBreak::Inside(one))) => targets::batch::mutation::set(Some(one)),
            Some(Break::Keyed(one)) => targets::kv::mutation::set(Some(one)),
            Some(Break::Served(one)) => exports::redis::mutation::set(Some(one)),
            Some(Break::Shared(one)) => media::mutation::set(Some(one)),
            _ => {}
        }
        Planted
    }
}

/// A break that is planted. With it goes whatever this thread breaks, also where a life panics.
pub(crate) struct Planted;

impl Drop for Planted {
    fn drop(&mut self) {
        drivefile::mutation::set(None);
        parity::mutation::set(None);
        device::mutation::set(None);
        nvram::mutation::set(None);
        targets::pblk::mutation::set(None);
        targets::batch::mutation::set(None);
        targets::kv::mutation::set(None);
        exports::redis::mutation::set(None);
        media::mutation::set(None);
    }
}

/// What goes wrong with flash.
pub(crate) struct Wrong {
    broken: Option<Break>,
    geometry: Geometry,
    rng: Rng,
    last_tags: Vec<u8>,
}

impl Wrong {
    pub fn new(broken: Option<Break>, geometry: &Geometry, seed: u64) -> Wrong {
        Wrong { broken, geometry: *geometry, rng: Rng::new(seed, 9), last_tags: Vec::new() }
    }

    /// What says that programs are done, where that is broken.
    pub fn early(&self) -> Option<EarlyDone> {
        (self.broken == Some(Break::EarlyDone)).then(EarlyDone::default)
    }

    fn is(&mut self, broken: Break, one_in: u64) -> bool {
        self.broken == Some(broken) && self.rng.below(one_in) == 0
    }

    pub fn program(
        &mut self,
        medium: &mut Store,
        powered: bool,
        at: Ppa,
        count: u32,
        data: &[u8],
        tags: &[u8],
    ) -> Moved {
        let each = data.len() / count as usize;
        if !powered {
            return Moved::Failed;
        }
        if self.is(Break::LoseProgram, 32) {
            return Moved::Done;
        }
        let (mut data, mut tags) = (data.to_vec(), tags.to_vec());
        if count > 1 && self.is(Break::SwapBlocks, 32) {
            let (first, rest) = data.split_at_mut(each);
            first.swap_with_slice(&mut rest[..each]);
        }
        if self.is(Break::TearBlock, 32) {
            data[each / 2..each].fill(0);
        }
        if self.broken == Some(Break::SameSeq) {
            for bytes in tags.chunks_exact_mut(TAG_BYTES) {
                let tag = Tag::load(bytes);
                Tag { seq: (tag.seq & !1).max(1), ..tag }.store(bytes);
            }
        }
        medium.program(at, count, &data, &tags)
    }

    pub fn read(
        &mut self,
        medium: &mut Store,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        let mut from = at;
        if count == 1 && self.is(Break::MisdirectRead, 64) {
            from = Ppa(at.0 ^ 1);
        }
        let moved = medium.read(from, count, data, tags);
        if !data.is_empty() && self.is(Break::RotBit, 64) {
            let bit = self.rng.below(data.len() as u64 * 8);
            data[bit as usize / 8] ^= 1 << (bit % 8);
        }
        if !tags.is_empty() {
            let now = tags.to_vec();
            if self.last_tags.len() == now.len() && self.is(Break::StaleTags, 64) {
                tags.copy_from_slice(&self.last_tags);
            }
            self.last_tags = now;
        }
        moved
    }

    /// Before a chunk is erased.
    pub fn reset(&mut self, medium: &mut Store, chunks: &[Chunk], chunk: Ppa) {
        if self.broken != Some(Break::EraseNeighbour) {
            return;
        }
        let index = self.geometry.chunk_index(chunk) ^ 1;
        let row = self.geometry.row_blocks();
        if index < chunks.len() && chunks[index].programmed >= row {
            let kept = medium.kept() as usize;
            let mut tags = vec![0; row as usize * TAG_BYTES];
            let gone = Tag { id: u64::MAX, seq: 1 };
            tags.chunks_exact_mut(TAG_BYTES).for_each(|tag| gone.store(tag));
            let at = self.geometry.chunk_start(index);
            medium.program(at, row, &vec![0; row as usize * kept], &tags);
        }
    }

    /// The drive says what it knows of a chunk. Whether that is forgotten.
    pub fn forgets(&mut self) -> bool {
        self.is(Break::ForgetDescriptor, 32)
    }
}

/// How panics begin that nobody meant: what went wrong was not looked for.
const NOT_MEANT: [&str; 13] = [
    "index out of bounds",
    "attempt to ",
    "called `",
    "internal error",
    "range ",
    "slice index",
    "source slice length",
    "copy_from_slice",
    "mid > len",
    "capacity overflow",
    "already borrowed",
    "already mutably borrowed",
    "explicit panic",
];

/// This file's name behind that of the folder of all crates.
const HERE: &str = "simulation/src/breaks.rs";

thread_local! {
    /// The file of the last panic of this thread.
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
    /// Whether panics of this thread are not told.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// From now on it is remembered where this thread panics, for [`meant`]; a
/// panic is told as before, or not at all if `quiet`.
pub fn note_panics(quiet: bool) {
    static NOTED: Once = Once::new();
    QUIET.set(quiet);
    NOTED.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            LAST.set(panic.location().map(|at| at.file().into()));
            if !QUIET.get() {
                told(panic);
            }
        }));
    });
}

/// Whether the last panic of this thread, which said this, is that of an
/// assertion in what is simulated, which states what must hold: not that of
/// code that went on with what cannot be, and not the simulator's own.
pub fn meant(said: &str) -> bool {
    let within = LAST.take().is_some_and(|file| is_simulated(&file));
    within && !NOT_MEANT.iter().any(|begin| said.starts_with(begin))
}

/// Whether a source file is of this repository and not of the simulator.
fn is_simulated(file: &str) -> bool {
    let crates = file!().strip_suffix(HERE).expect("this is its name");
    file.strip_prefix(crates).is_some_and(|file| !file.starts_with("simulation/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::live_with_blocks;
    use crate::plan::{Over, Plan};
    use crate::setup::Setup;

    /// Else it would not be the break that they show.
    #[test]
    fn lives_that_show_breaks_of_parity_keep_the_contract_without() {
        for broken in parity::mutation::Mutation::ALL {
            for seed in 0..120 {
                let over = Some(Over::Blocks);
                let plan = Plan { seed, cycles: 8, broken: None, traced: None, over };
                let outcome = live_with_blocks(&plan, Setup::to_rebuild(seed, broken));
                assert_eq!(outcome.violation, None, "{broken:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn the_simulators_files_are_not_what_it_simulates() {
        let own = file!();
        let crates = own.strip_suffix(HERE).unwrap();
        assert!(is_simulated(&format!("{crates}targets/src/pblk/map.rs")));
        assert!(!is_simulated(own) && !is_simulated(&format!("{crates}simulation/tests/it/x.rs")));
        assert!(!is_simulated("/rustc/0/library/core/src/option.rs"));
    }
}
