//! Drives of several targets live in the simulator: random work on all of them, power cuts,
//! each target found again, and a check of all that was promised.

use device::OpenChannel;
use flash::{Dimensions, Geometry};
use ftl::{Memory, OneOf, Over, Start, Target, WriteCounters};
use media::{Claim, CreateError, Partition, Placement, Shared, depth_for_targets};
use port::{BLOCK_BYTES, BlockDone, BlockReq, Port, Ring, Shape, Time};
use ruled::{Ruled, RuledConfig, RuledError};
use rules::{Budget, check, parse};
use simulation::{Break, Lower, Setup, Subject, Troubles, lives, shows};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, with_reserve};
use thiserror::Error;

type Part = Partition<Lower>;

/// A target of either kind.
type Either = OneOf<Pblk<Part>, Ruled<Part>>;

/// Several targets as one, which has their addresses one behind the other.
struct Several(Shared<Lower, Either>);

/// What each target is like, how many there are, and where they lie.
struct Parts {
    config: PblkConfig,
    count: u32,
    placement: Placement,
    /// The one that is made of rules, of most drives.
    ruled: Option<u32>,
}

/// Bytes of each target: where the next begins.
const EACH: u64 = 1 << 20;

/// So many targets share units, or have some of their own.
fn parts(seed: u64, units: u32) -> (u32, Placement) {
    match seed % 4 {
        0 | 1 if units.is_multiple_of(2) => (2, Placement::Isolate),
        2 => (3, Placement::Stripe),
        _ => (2, Placement::Stripe),
    }
}

/// Which target is made of rules; none of a third of all drives.
fn ruled(seed: u64) -> Option<u32> {
    (seed / 4 % 3).checked_sub(1).map(|n| n as u32)
}

/// Room for whole targets, on flash without faults, some with a cache.
fn suit(setup: &mut Setup) {
    setup.troubles = Troubles { cached: setup.troubles.cached, ..Troubles::default() };
    (setup.timing.endurance, setup.timing.slc) = (u32::MAX, Default::default());
    (setup.parity, setup.protected, setup.layers, setup.streams) = (0, false, None, 1);
    (setup.timing.open_chunks, setup.timing.open_chunks_pu) = (u32::MAX, u32::MAX);
    (setup.buffer_rows, setup.timing.unreadable) = (0, 0);
    let dim = setup.geometry.dimensions();
    let (count, placement) = parts(setup.seed, setup.geometry.total_pus());
    // The units of one target, and chunks with a third more than it holds.
    let shares = placement == Placement::Stripe;
    let units = setup.geometry.total_pus() / if shares { 1 } else { count };
    let row = u64::from(units * setup.geometry.chunk_blocks());
    setup.data_chunks = (EACH / BLOCK_BYTES * 4 / 3).div_ceil(row).max(3) as u32;
    // The fewer units a target has, the more chunks it needs of each for itself.
    let one = Dimensions { groups: 1, pus: 1, chunks: setup.data_chunks, ..dim };
    let chunks = with_reserve(one).chunks * if shares { count } else { 1 };
    setup.geometry = Geometry::new(Dimensions { chunks, ..dim }).unwrap();
    setup.bytes = u64::from(count) * EACH;
    // Rules decide of whole blocks.
    setup.parts &= ruled(setup.seed).is_none();
}

impl Subject for Several {
    fn config(setup: &Setup) -> Parts {
        let (count, placement) = parts(setup.seed, setup.geometry.total_pus());
        let Setup { data_chunks, idle_collection, victim, seed, .. } = *setup;
        let (idle, streams, map_pages, write_buffer) = (0, 1, 0, 0);
        let config = PblkConfig {
            bytes: EACH,
            data_chunks,
            idle,
            streams,
            map_pages,
            write_buffer,
            idle_collection,
            victim,
            seed,
        };
        Parts { config, count, placement, ruled: ruled(seed) }
    }
}

/// Why a target cannot be.
#[derive(Debug, Error)]
enum Wrong {
    #[error(transparent)]
    Pblk(#[from] PblkError),
    #[error(transparent)]
    Ruled(#[from] RuledError),
}

/// A block drive in rules.
fn rules(part: &Part) -> RuledConfig {
    let (blocks, units) = (EACH / BLOCK_BYTES, part.geometry().total_pus());
    let text = format!(
        "set minimal
         application 0 lba 0..{blocks} units 0..{units}
         map l2p[{blocks}] of address in 0..{units}
         counter next 0..{units}
         rule write priority 1 when op == write
           do next = (next + 1) % {units} then place unit next into l2p[lba]
         rule read priority 1 when op == read then serve l2p[lba]
         rule trim priority 1 when op == trim or op == zero do l2p[lba] = none then drop
         rule flush priority 1 when op == flush then pass"
    );
    let rules = check(parse(&text).unwrap(), &Budget::default());
    let rules = rules.unwrap_or_else(|all| panic!("{}", all[0].render("rules", &text)));
    RuledConfig { bytes: EACH, rules, control: None, remotes: Vec::new() }
}

/// The claim of a target.
fn claim(device: &Lower, parts: &Parts, n: u32) -> Claim {
    let place = parts.placement.place(device.geometry(), parts.count, n).unwrap();
    let depth = depth_for_targets(device.depth()) / parts.count as usize;
    Claim { place, first: None, depth, open_chunks: (u32::MAX, u32::MAX), chunk_time: 0 }
}

impl Start for Several {
    type Config = Parts;
    type Error = CreateError<Wrong>;

    fn new(device: Lower, parts: &Parts) -> Result<Several, Self::Error> {
        let mut shared = Shared::new(device);
        for n in 0..parts.count {
            let claim = claim(shared.media().device(), parts, n);
            shared.create(&claim, |part: Part| {
                Ok::<_, Wrong>(match parts.ruled == Some(n) {
                    true => {
                        let config = rules(&part);
                        Either::Second(Ruled::new(part, &config)?)
                    }
                    false => Either::First(Pblk::new(part, parts.config)?),
                })
            })?;
        }
        Ok(Several(shared))
    }

    fn recover(device: Lower, parts: &Parts, now: Time) -> Result<(Several, Time), Self::Error> {
        let (mut shared, mut now) = (Shared::new(device), now);
        for n in 0..parts.count {
            let claim = claim(shared.media().device(), parts, n);
            let find = |part: Part, now| {
                Ok::<_, Wrong>(match parts.ruled == Some(n) {
                    true => {
                        let config = rules(&part);
                        let (target, now) = Ruled::recover(part, &config, now)?;
                        (Either::Second(target), now)
                    }
                    false => {
                        let (target, now) = Pblk::recover(part, parts.config, now)?;
                        (Either::First(target), now)
                    }
                })
            };
            let found = shared.found(&claim, now, find)?;
            now = found.lost.map_or(Ok(found.ready), |e| Err(CreateError::Target(e)))?;
        }
        Ok((Several(shared), now))
    }
}

impl Several {
    fn all(&self) -> impl Iterator<Item = &Either> {
        self.0.numbers().iter().map(|&n| self.0.target(n))
    }
}

impl Port for Several {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.0.submit(now, reqs);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.0.advance(to, done);
    }
}

impl Target for Several {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn counters(&self) -> WriteCounters {
        self.all().map(Target::counters).sum()
    }

    fn free_chunks(&self) -> u64 {
        self.all().map(Target::free_chunks).sum()
    }

    fn valid_blocks(&self, chunk: usize) -> u32 {
        let owner = self.0.media().owner(chunk);
        owner.map_or(0, |(n, its)| self.0.target(n).valid_blocks(its))
    }

    fn memory(&self) -> Memory {
        self.all().map(Target::memory).sum()
    }

    fn is_read_only(&self) -> bool {
        self.all().any(Target::is_read_only)
    }

    fn state_hash(&self) -> u64 {
        self.all().fold(0, |hash: u64, target| hash.rotate_left(1) ^ target.state_hash())
    }

    fn heed_notices(&mut self, now: Time) {
        self.0.heed_notices(now);
    }

    fn close(&mut self, now: Time) {
        self.0.close(now);
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Over for Several {
    type Below = Lower;

    fn below(&self) -> &Lower {
        self.0.media().device()
    }

    fn below_mut(&mut self) -> &mut Lower {
        self.0.media_mut().device_mut()
    }

    fn into_below(self: Box<Self>) -> Lower {
        self.0.into_device()
    }
}

#[test]
fn several_targets_keep_the_contract() {
    let counts = lives::<Several>(0..150, 8, suit).unwrap();
    assert_eq!((counts.lives, counts.cycles), (150, 1200));
    assert!(counts.cached_cuts > 50 && counts.clean_closes > 50, "{counts:?}");
    assert!(counts.erases > 1000 && counts.fua > 1000, "{counts:?}");
}

#[test]
fn what_is_broken_below_is_found() {
    for broken in [Break::DropFlush, Break::LoseProgram, Break::EraseNeighbour] {
        shows::<Several>(broken, 0..200, 8, suit).unwrap();
    }
}

/// Each promise that targets of blocks keep together only is found when it is broken.
#[test]
fn what_is_broken_is_found() {
    use media::mutation::{Mutation, set};
    for mutation in [Mutation::FlushFirst, Mutation::DropPiece] {
        let breaks = |seed: &u64| {
            set(Some(mutation));
            let broken = lives::<Several>(*seed..*seed + 1, 8, suit).is_err();
            set(None);
            broken
        };
        let seed = (0..400).find(breaks).unwrap_or_else(|| panic!("{mutation:?} is not found"));
        lives::<Several>(seed..seed + 1, 8, suit).unwrap();
    }
}
