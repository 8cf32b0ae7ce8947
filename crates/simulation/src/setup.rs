//! Which drive, and which work, a seed stands for.

use device::LinkTiming;
use flash::Timing;
use flash::{Arbitration, Class, Dimensions, Geometry, MultiPlane, Queues, ReadCache, SlcCache};
use parity::mutation::Mutation;
use port::BLOCK_BYTES;
use targets::pblk::LEAST_MAP_PAGES;
use targets::{MAX_STREAMS, Pblk, Victim, with_reserve};
use workload::Rng;

use crate::layered::Layers;
use crate::nature::{Nature, Wear, damage, idle_collection, slc};
use crate::shared::Shares;
use crate::species::Species;
use crate::trouble::Troubles;

mod words;

/// Where the link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAt {
    /// There is none.
    Nowhere,
    /// Under the target: an open-channel drive.
    Below,
    /// Over the target: a conventional drive.
    Above,
}

/// Shares of the requests, in 1000, and their shape. What is left are writes.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Reads.
    pub reads: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Write zeroes.
    pub zeroes: u64,
    /// Of the writes, trims and write zeroes, those with FUA.
    pub fua: u64,
    /// Most blocks of a request.
    pub blocks: u64,
    /// Requests at once.
    pub depth: usize,
    /// Of the requests, those that go to the hot tenth of the drive.
    pub skew: u64,
    /// Most events between two requests.
    pub pause: u64,
}

/// A drive and its work.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its geometry.
    pub geometry: Geometry,
    /// Its times; all zero on a drive that takes none.
    pub timing: Timing,
    /// Bytes that the medium keeps of a block: 4096 or 8.
    pub kept: u32,
    /// Parts of blocks are read and written, too. Only where all is kept.
    pub parts: bool,
    /// Where the link is.
    pub link_at: LinkAt,
    /// The link's times.
    pub link: LinkTiming,
    /// The submission queues before a link above the target.
    pub queues: Queues,
    /// Bytes a second of the memory of its buffer; 0 for as fast as wanted. Only with a
    /// link above the target, and without queues.
    pub buffer_rate: u64,
    /// Rows of the target's write buffer; 0 for as many as where nobody says.
    pub buffer_rows: u64,
    /// Which target it has.
    pub species: Species,
    /// Logical bytes.
    pub bytes: u64,
    /// Chunks of each unit that hold data.
    pub data_chunks: u32,
    /// Streams of the target's user.
    pub streams: u32,
    /// How long nothing is inside before the target collects; 0 for never.
    pub idle_collection: u64,
    /// Which chunk is collected.
    pub victim: Victim,
    /// Decides what the drive draws.
    pub seed: u64,
    /// The work.
    pub work: Work,
    /// The faults.
    pub troubles: Troubles,
    /// There is a protected cache above the target.
    pub protected: bool,
    /// Units to a unit of the target, one of them parity; 0 without parity.
    pub parity: u32,
    /// Blocks of a unit of the map; 1 where the target's own is all there is.
    pub unit: u64,
    /// Pages of the map that the drive has memory for; 0 for all.
    pub map_pages: u64,
    /// Its read cache; where its size is 0 there is none.
    pub read_cache: ReadCache,
    /// The block layer above all, if there is one.
    pub layers: Option<Layers>,
    /// Which targets share the drive, where there are several.
    pub shares: Option<Shares>,
}

/// Stream of the random numbers that say how many streams a target has. With this
/// one the lives of `tests/it/found.rs` are what they were.
const STREAMS: u64 = 48;

/// Stream of the random numbers that say which queues a drive has, chosen as
/// [`STREAMS`].
const QUEUES: u64 = 71;

/// Stream of the random numbers that say what of open chunks cannot be read yet, chosen
/// as [`STREAMS`].
const WINDOW: u64 = 96;

/// Stream of the random numbers that say how many chunks may be open, chosen as
/// [`STREAMS`].
const OPENINGS: u64 = 131;

/// Stream of the random numbers that say which buffer a drive has, chosen as
/// [`STREAMS`].
const BUFFER: u64 = 499;

/// Stream of the random numbers that say which drives map units of several blocks.
const UNITS: u64 = 601;

/// Stream of the random numbers that say which drives are large.
const SIZE: u64 = 602;

/// Stream of the random numbers that say which drives have memory for a part of their map.
const MAP_CACHE: u64 = 603;

/// Stream of the random numbers that say which drives have a read cache.
const READ_CACHE: u64 = 607;

/// Stream of the random numbers that say what fails below parity.
const MEMBERS: u64 = 604;

/// Blocks of a page of the map.
pub(crate) const MAP_PAGE: u64 = BLOCK_BYTES / 4;

/// From `low` to `high`, both included.
fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

impl Setup {
    /// The setup of a seed.
    pub fn of(seed: u64) -> Setup {
        Setup::draw(seed, false)
    }

    /// The same, with parity in any case.
    fn draw(seed: u64, has_parity: bool) -> Setup {
        let mut rng = Rng::new(seed, 1);
        let rng = &mut rng;
        let whole = rng.below(8) == 0;
        let data_chunks = between(rng, 3, 6) as u32;
        let pages_at_once = rng.one_of(&[1, 1, 1, 2, 3, 4]);
        let dimensions = Dimensions {
            groups: between(rng, 1, 2) as u32,
            pus: if rng.below(3) == 0 { 2 } else { 1 },
            chunks: data_chunks,
            pages: between(rng, 2, 6) as u32 * pages_at_once,
            planes: rng.one_of(&[1, 1, 2, 2, 3, 6]),
            page_bytes: rng.one_of(&[4096, 8192, 16384, 16384]),
            pages_at_once,
        };
        let geometry =
            Geometry::new(with_reserve(dimensions)).expect("the ranges are those of a geometry");
        let link_at = rng.one_of(&[LinkAt::Nowhere, LinkAt::Below, LinkAt::Above]);
        let timing = timing(rng);
        let parts = whole && rng.below(4) > 0;
        let link = link(rng);
        let (bytes, victim) = fill(rng, &geometry, data_chunks);
        let mut setup = Setup {
            geometry,
            timing,
            kept: if whole { BLOCK_BYTES as u32 } else { 8 },
            parts,
            link_at,
            link,
            queues: Queues::default(),
            buffer_rate: 0,
            buffer_rows: 0,
            species: Species::of::<Pblk<_>>(),
            bytes,
            data_chunks,
            streams: 1,
            idle_collection: idle_collection(seed),
            victim,
            seed: rng.bits(),
            work: work(rng),
            troubles: Troubles::of(seed, &geometry),
            protected: false,
            parity: 0,
            unit: 1,
            map_pages: 0,
            read_cache: ReadCache::default(),
            layers: None,
            shares: None,
        };
        if has_parity {
            setup.troubles = Troubles::default();
        }
        setup.take_parity(seed, has_parity);
        setup.take_nature(seed);
        setup.take_streams(seed);
        setup.take_queues(seed);
        setup.take_buffer(seed);
        if Layers::chosen(seed) {
            setup.take_layers(seed);
        }
        setup
    }

    /// Some targets keep their user's writes in several streams.
    fn take_streams(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, STREAMS);
        if rng.below(3) > 0 {
            return;
        }
        self.streams = between(&mut rng, 2, MAX_STREAMS as u64) as u32;
        let dim = self.geometry.dimensions();
        let dim = Dimensions { chunks: dim.chunks + self.streams - 1, ..dim };
        self.geometry = Geometry::new(dim).expect("a few chunks more");
    }

    /// Of some drives the last blocks of open chunks cannot be read yet. Parity takes none
    /// of these.
    pub(crate) fn take_window(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, WINDOW);
        if rng.below(6) > 0 || self.parity > 0 {
            return;
        }
        let most = self.geometry.chunk_blocks() - 1;
        let few = rng.one_of(&[1, 4, 8, 12]).min(most);
        let any = between(&mut rng, 1, most.into()) as u32;
        self.timing.unreadable = rng.one_of(&[few, few, any, most]);
    }

    /// Some drives limit how many chunks are open: to what the target needs, or a few
    /// more. Parity takes none of these.
    pub(crate) fn take_openings(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, OPENINGS);
        if rng.below(5) > 0 || self.parity > 0 {
            return;
        }
        let units = self.geometry.total_pus();
        let [all, of_pu] = [units * (self.streams + 2) + units.min(2), self.streams + 3];
        let few = [(0, 0), (0, 2), (u32::MAX - all, 0), (0, u32::MAX - of_pu), (2, 1)];
        let more = rng.one_of(&few);
        (self.timing.open_chunks, self.timing.open_chunks_pu) = (all + more.0, of_pu + more.1);
    }

    /// Some drives have a map of several pages: rows enough a chunk, and longer requests.
    pub(crate) fn take_size(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, SIZE);
        if rng.below(32) > 0 || self.troubles.fatal {
            return;
        }
        let wanted = between(&mut rng, 1, 4) * MAP_PAGE + rng.below(MAP_PAGE);
        self.grow(wanted);
        self.work.blocks = self.work.blocks.max(rng.one_of(&[8, 32]));
    }

    /// Some drives have memory for four pages of their map, which has more: pages are read
    /// and written all the time.
    pub(crate) fn take_map_cache(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, MAP_CACHE);
        if rng.below(64) > 0 || self.troubles.fatal {
            return;
        }
        let wanted = between(&mut rng, 5, 7) * MAP_PAGE + rng.below(MAP_PAGE);
        self.grow(wanted);
        self.map_pages = LEAST_MAP_PAGES;
    }

    /// Some drives have a read cache, above what else there is but the block layer. Below
    /// submission queues no drive has one.
    pub(crate) fn take_read_cache(&mut self, seed: u64, always: bool) {
        let mut rng = Rng::new(seed, READ_CACHE);
        if (rng.below(6) == 0 || always) && !self.queues.is_on() {
            self.read_cache = ReadCache {
                size: rng.one_of(&[64 << 10, 256 << 10, 4 << 20]),
                line: 4096 << rng.below(5),
                depth: rng.one_of(&[0, 1, 8]),
            };
        }
    }

    /// More rows a chunk, for so many logical blocks at least.
    fn grow(&mut self, wanted: u64) {
        let times = wanted.div_ceil(self.blocks());
        let dim = self.geometry.dimensions();
        let dim = Dimensions { pages: dim.pages * times as u32, ..dim };
        self.geometry = Geometry::new(dim).expect("more rows a chunk");
        self.bytes *= times;
    }

    /// Some drives map units of several blocks, and change a part of one by writing it anew.
    /// Not where operations fail: what one costs is its unit. Nor below a link.
    pub(crate) fn take_units(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, UNITS);
        let Troubles { operations, wear, damage, .. } = &self.troubles;
        let fails = !operations.is_empty() || wear.is_some() || !damage.is_empty();
        if rng.below(4) == 0 && !fails && self.link_at != LinkAt::Above {
            self.unit = rng.one_of(&[2, 4]);
        }
    }

    /// Some drives have several submission queues before their link. Not where a
    /// protected cache is above that: no drive has one there, and it takes for granted
    /// that what it sends keeps its order.
    fn take_queues(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, QUEUES);
        let rng = &mut rng;
        let fits = self.link_at == LinkAt::Above && self.link.cores > 0 && !self.protected;
        if !fits || rng.below(2) == 0 {
            return;
        }
        let count = between(rng, 1, 4) as u32;
        let classes = rng.below(5);
        self.queues = Queues {
            count,
            depth: rng.one_of(&[1, 2, 8, 32]),
            arbitration: rng.one_of(&[Arbitration::RoundRobin, Arbitration::Weighted]),
            burst: rng.one_of(&[0, 1, 4]),
            classes: (0..classes).map(|_| rng.one_of(&Class::ALL)).collect(),
            weights: [0; 3].map(|_: u32| between(rng, 1, 4) as u32),
        };
    }

    /// Of some drives with a link above the target data cross the memory of a buffer, and
    /// some have a small one.
    fn take_buffer(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, BUFFER);
        if self.link_at == LinkAt::Above && !self.queues.is_on() {
            self.buffer_rate = rng.one_of(&[0, 100_000_000, 2_000_000_000]);
        }
        if self.parity == 0 && self.buffer_rate > 0 {
            self.buffer_rows = rng.one_of(&[0, 8, 11, 40]);
        }
    }

    /// Puts the block layer of a seed above all.
    pub fn take_layers(&mut self, seed: u64) {
        let mut layers = Layers::of(seed);
        if self.protected {
            // How much its journal has is known of requests as they are sent.
            layers.config.merge = Default::default();
        }
        self.layers = Some(layers);
    }

    /// Whether requests are made one on their way.
    pub fn merges(&self) -> bool {
        self.layers.as_ref().is_some_and(Layers::merges)
    }

    fn take_nature(&mut self, seed: u64) {
        let Nature { wears, slc: has_slc, protected, damages } = Nature::of(seed);
        self.protected = protected;
        // What wears out, or is damaged, below parity is its own tests' matter.
        let (wears, damages) = (wears && self.parity == 0, damages && self.parity == 0);
        if wears {
            let wear = Wear::of(seed);
            self.timing.endurance = wear.endurance;
            self.data_chunks += wear.spare;
            let data = Dimensions { chunks: self.data_chunks, ..self.geometry.dimensions() };
            self.geometry = Geometry::new(with_reserve(data)).expect("a few chunks more");
            self.troubles.wear = Some(wear);
        }
        // What a cut leaves of a cache is damage enough.
        if damages && !self.troubles.cached {
            self.troubles.damage = damage(seed);
        }
        if has_slc {
            self.timing.slc = slc(seed);
        }
    }

    /// The setup of a seed with nothing that may fail, and no cache: what is
    /// broken on purpose is to be told from that.
    pub fn sound(seed: u64) -> Setup {
        let mut setup = Setup::of(seed);
        setup.troubles = Troubles::default();
        (setup.timing.endurance, setup.timing.slc) = (u32::MAX, SlcCache::default());
        setup.protected = false;
        setup
    }

    /// The setup of a seed with parity, and just the faults below it that show what is
    /// broken in it.
    pub(crate) fn to_rebuild(seed: u64, broken: Mutation) -> Setup {
        let mut setup = Setup::draw(seed, true);
        (setup.timing.slc, setup.protected) = (SlcCache::default(), false);
        match broken {
            // A cut takes rows, and some of them cannot be put back.
            Mutation::ForgetTaken => {
                setup.troubles.cached = true;
                setup.troubles.put_back = true;
            }
            Mutation::GiveUpAtOnce | Mutation::WrongParity => {
                setup.troubles.fail_reads(3e-2, false)
            }
        }
        setup
    }

    /// Puts a protected cache above the target.
    pub(crate) fn take_protection(&mut self, seed: u64) {
        (self.protected, self.queues) = (true, Queues::default());
        if self.layers.is_some() {
            self.take_layers(seed);
        }
    }

    /// Leaves out what wears out or damages, and what can never be read.
    pub(crate) fn leave_out_harm(&mut self) {
        (self.troubles.wear, self.timing.endurance) = (None, u32::MAX);
        self.troubles.damage.clear();
        self.troubles.operations.retain(|rule| rule.trigger.span.is_none());
        self.troubles.fatal = false;
    }

    /// Some drives have parity: more units, as full as the drive was. Not where
    /// operations fail already: which do below parity, [`Setup::take_member_faults`] says.
    fn take_parity(&mut self, seed: u64, always: bool) {
        let mut rng = Rng::new(seed, 12);
        let rng = &mut rng;
        if (rng.below(8) > 0 && !always) || !self.troubles.operations.is_empty() {
            return;
        }
        let data_chunks = self.data_chunks;
        let space = |of: &Geometry| u64::from(data_chunks * of.chunk_blocks() * of.total_pus());
        let fill = self.blocks() * 100 / space(&self.geometry);
        self.parity = between(rng, 3, 4) as u32;
        let (width, units) = (self.parity, between(rng, 1, 2) as u32);
        let of_width = if width == 4 && rng.below(2) == 0 { (2, 2) } else { (width, 1) };
        let dim = Dimensions {
            groups: of_width.0,
            pus: of_width.1 * units,
            chunks: data_chunks,
            ..self.geometry.dimensions()
        };
        let seen = Dimensions { groups: 1, pus: units, pages: dim.pages * (width - 1), ..dim };
        let chunks = with_reserve(seen).chunks;
        let geometry = Geometry::new(Dimensions { chunks, ..dim });
        self.geometry = geometry.expect("the ranges are those of a geometry");
        self.bytes = space(&self.seen()) * fill / 100 * BLOCK_BYTES;
    }

    /// Below some drives with parity operations fail. Not over a cache, which may lose what
    /// parity is to give back.
    pub(crate) fn take_member_faults(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, MEMBERS);
        if self.parity > 0 && !self.troubles.cached && rng.below(2) == 0 {
            self.troubles.fail_members(&mut rng);
        }
    }

    /// The geometry that a target sees: with parity, of superblocks.
    pub fn seen(&self) -> Geometry {
        match self.parity {
            0 => self.geometry,
            width => parity::geometry(&self.geometry, width).expect("the width divides the units"),
        }
    }

    /// Logical blocks.
    pub fn blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES
    }
}

fn timing(rng: &mut Rng) -> Timing {
    if rng.below(6) == 0 {
        return Timing::default();
    }
    let read = between(rng, 3, 60);
    Timing {
        read: vec![read * 1000],
        program: rng
            .one_of(&[&[600_000, 900_000][..], &[100_000], &[200_000, 700_000, 1_500_000]])
            .to_vec(),
        erase: between(rng, 1, 10) * 500_000,
        command: 100,
        channel_rate: rng.one_of(&[0, 400_000_000, 1_200_000_000]),
        tags_on_channel: rng.below(2) == 0,
        reads_first: rng.below(4) > 0,
        read_burst: rng.one_of(&[1, 4, 64]),
        suspend: rng.below(2) == 0,
        suspend_time: 5_000,
        resume_time: 5_000,
        suspend_limit: between(rng, 1, 8) as u32,
        suspend_transfer: rng.below(4) == 0,
        // Not drawn, so that each seed's world stays what it was else.
        cache_registers: read.is_multiple_of(3),
        plane_reads: read.is_multiple_of(4),
        copyback: (read % 3) as u32,
        shared_reads: read.is_multiple_of(5),
        multi_plane_reads: match read % 7 {
            0 => MultiPlane::SamePage,
            1 => MultiPlane::SameType,
            _ => MultiPlane::None,
        },
        ..Timing::default()
    }
}

fn link(rng: &mut Rng) -> LinkTiming {
    let rate = rng.one_of(&[0, 1_000_000_000, 3_200_000_000]);
    let (controller, latency) = (rng.below(5_000), rng.below(10_000));
    // The rest of what was drawn, so that each seed's world stays what it was else.
    LinkTiming {
        controller,
        latency,
        rate,
        entries: latency % 2 == 0,
        cores: (controller % 4) as u32,
        core_read: latency % 1_000,
        core_write: latency % 3_000,
        core_block: controller % 500,
    }
}

/// How many logical bytes, and what is collected.
fn fill(rng: &mut Rng, geometry: &Geometry, data_chunks: u32) -> (u64, Victim) {
    let space = u64::from(data_chunks * geometry.chunk_blocks() * geometry.total_pus());
    let fill = if rng.below(8) == 0 { between(rng, 80, 95) } else { between(rng, 50, 75) };
    let victim = match rng.below(6) {
        0 => Victim::Fifo,
        1 => Victim::Random,
        2 => Victim::DChoices(between(rng, 1, 4) as u32),
        3 => Victim::CostBenefit,
        _ => Victim::Greedy,
    };
    ((space * fill / 100).max(1) * BLOCK_BYTES, victim)
}

fn work(rng: &mut Rng) -> Work {
    let trims = if rng.below(3) == 0 { 0 } else { between(rng, 5, 120) };
    Work {
        reads: between(rng, 50, 450),
        flushes: between(rng, 5, 50),
        trims,
        zeroes: trims / 3,
        fua: rng.one_of(&[0, 20, 60]),
        blocks: rng.one_of(&[1, 1, 2, 4, 8]),
        depth: rng.one_of(&[1, 2, 4, 8, 16, 32]),
        skew: rng.one_of(&[0, 0, 500, 900]),
        pause: rng.one_of(&[0, 2, 6]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_all_kinds_of_drives() {
        let all: Vec<Setup> = (0..400).map(Setup::of).collect();
        let some = |f: &dyn Fn(&Setup) -> bool| all.iter().filter(|s| f(s)).count() >= 10;
        assert!(some(&|s| s.kept == 8) && some(&|s| s.kept == 4096 && !s.parts));
        assert!(some(&|s| s.parts) && some(&|s| s.timing.is_instant()));
        assert!(some(&|s| s.timing.suspend) && some(&|s| s.work.depth == 32));
        for at in [LinkAt::Nowhere, LinkAt::Below, LinkAt::Above] {
            assert!(some(&|s| s.link_at == at));
        }
        for victim in [Victim::Greedy, Victim::Fifo, Victim::Random] {
            assert!(some(&|s| s.victim == victim));
        }
        for streams in 1..=MAX_STREAMS as u32 {
            assert!(some(&|s| s.streams == streams));
        }
        for count in 1..=4 {
            assert!(all.iter().any(|s| s.queues.is_on() && s.queues.count == count));
        }
        assert!(all.iter().any(|s| s.queues.is_on() && s.layers.is_some()));
        assert!(some(&|s| s.buffer_rate > 0 && s.kept == 8));
        assert!(some(&|s| s.buffer_rows == 8) && some(&|s| s.buffer_rows == 40));
        assert!(all.iter().any(|s| s.buffer_rows == 8 && s.streams == MAX_STREAMS as u32));
        assert!(all.iter().any(|s| s.buffer_rate > 0 && s.protected));
        assert!(all.iter().any(|s| s.buffer_rate > 0 && s.parity > 0));
        assert!(some(&|s| s.queues.is_on() && s.work.depth > 8));
        assert!(some(&|s| s.parity > 0) && some(&|s| s.idle_collection > 0));
        assert!(all.iter().any(|s| s.parity > 0 && s.troubles.cached));
        let fill = |s: &Setup| {
            let seen = s.seen();
            // Those that are there to be lost come on top.
            let spare = s.troubles.wear.as_ref().map_or(0, |wear| wear.spare);
            let chunks = s.data_chunks - spare;
            let space = chunks * seen.chunk_blocks() * seen.total_pus();
            s.blocks() * 100 / u64::from(space)
        };
        assert!(all.iter().all(|s| (45..=95).contains(&fill(s))));
        let mut larger = all.clone();
        larger.iter_mut().zip(0..).for_each(|(setup, seed)| setup.take_size(seed));
        assert!(larger.iter().filter(|s| s.blocks() > MAP_PAGE * 2).count() >= 5);
        assert!(larger.iter().all(|s| (45..=95).contains(&fill(s))));
        assert!(some(&|s| fill(s) >= 85) && some(&|s| fill(s) < 60));
    }

    #[test]
    fn a_seed_is_one_setup() {
        assert_eq!(Setup::of(7).in_words(), Setup::of(7).in_words());
        assert_ne!(Setup::of(7).in_words(), Setup::of(8).in_words());
    }
}
