//! Several targets as one block target, which has their addresses one behind the other, and
//! beside it one that is asked by key.

use std::ops::Range;

use device::OpenChannel;
use ftl::{Memory, OneOf, Over, Start, Target, WriteCounters};
use media::{Claim, CreateError, MediaError, Partition, Place, Shared, depth_for_targets};
use port::{BlockDone, BlockReq, KvDone, KvReq, KvShape, Port, Ring, Shape, Time};
use targets::kv::KvError;
use targets::pblk::PblkError;
use targets::{Kv, KvTenant, Pblk, PblkConfig};
use thiserror::Error;

use super::Shares;
use crate::keyed;
use crate::power::Flash;
use crate::setup::Setup;
use crate::species::{Lower, Refusal, Subject};

type Part = Partition<Lower>;
type Tenant = OneOf<Pblk<Part>, KvTenant<Part>>;

/// See the head of this file.
pub struct Tenants {
    shared: Shared<Lower, Tenant>,
    shares: Shares,
    /// The number of the target of keys, where there is one, and of the last that left.
    keys: Option<usize>,
    left: Option<usize>,
}

/// Which targets there are, and how those of blocks are set up.
pub struct Several {
    shares: Shares,
    config: PblkConfig,
}

/// Why a target cannot be.
#[derive(Debug, Error)]
pub enum NoTenant {
    /// One of blocks: which.
    #[error("target {0} of blocks: {1}")]
    Blocks(usize, PblkError),
    /// That of keys.
    #[error(transparent)]
    Keys(#[from] KvError),
}

/// Which target.
#[derive(Clone, Copy)]
enum Which {
    Blocks(usize),
    Keys,
}

impl Several {
    /// All that are there, in the order in which they are found.
    fn all(&self) -> impl Iterator<Item = Which> {
        let Shares { blocks, before, has_keys, .. } = &self.shares;
        let keys = has_keys.then_some(Which::Keys);
        let first = (0..*before).map(Which::Blocks);
        first.chain(keys).chain((*before..blocks.len()).map(Which::Blocks))
    }

    fn claim(&self, device: &Lower, which: Which) -> Claim {
        match which {
            Which::Blocks(n) => {
                claim(&self.shares, device, &self.shares.blocks[n].0, self.shares.first(n))
            }
            Which::Keys => claim_of_keys(&self.shares, device),
        }
    }

    /// A target on its part: new, or found again from some time on.
    fn start(
        &self,
        which: Which,
        part: Part,
        found: Option<Time>,
    ) -> Result<(Tenant, Time), NoTenant> {
        match which {
            Which::Keys => {
                let config = self.shares.config;
                let (target, now) = match found {
                    Some(now) => Kv::recover(part, config, now)?,
                    None => (Kv::new(part, config)?, Time::ZERO),
                };
                Ok((Tenant::Second(KvTenant::new(target)), now))
            }
            Which::Blocks(n) => {
                let config = PblkConfig { bytes: self.shares.blocks[n].1, ..self.config };
                let started = match found {
                    Some(now) => Pblk::recover(part, config, now),
                    None => Pblk::new(part, config).map(|target| (target, Time::ZERO)),
                };
                let (target, now) = started.map_err(|why| NoTenant::Blocks(n, why))?;
                Ok((Tenant::First(target), now))
            }
        }
    }
}

fn claim(shares: &Shares, device: &Lower, place: &Place, first: u64) -> Claim {
    let depth = depth_for_targets(device.depth()) / (shares.blocks.len() + 1);
    let open_chunks = (u32::MAX, u32::MAX);
    Claim { place: place.clone(), first: Some(first), depth, open_chunks, chunk_time: 0 }
}

/// It has no addresses: it is behind all that have.
fn claim_of_keys(shares: &Shares, device: &Lower) -> Claim {
    claim(shares, device, &shares.keys, shares.bytes())
}

impl Subject for Tenants {
    fn config(setup: &Setup) -> Several {
        let shares = setup.shares.clone().expect("several targets share the drive");
        Several { shares, config: <Pblk<Lower> as Subject>::config(setup) }
    }

    fn may_refuse(error: &CreateError<NoTenant>, refusal: &Refusal) -> bool {
        let shares = refusal.setup.shares.as_ref().expect("several targets share the drive");
        match error {
            CreateError::Target(NoTenant::Blocks(n, why)) => {
                shares.part(&refusal.setup.geometry, *n).may_refuse(why, refusal)
            }
            CreateError::Target(NoTenant::Keys(why)) => keyed::may_refuse(why, refusal.keys_unread),
            CreateError::Media(_) => false,
        }
    }

    /// The targets that have some of these blocks.
    fn may_end(setup: &Setup, flash: &Flash, blocks: &Range<u64>) -> bool {
        let shares = setup.shares.as_ref().expect("several targets share the drive");
        let has_some = |n: &usize| {
            let own = shares.blocks_of(*n);
            own.start < blocks.end && blocks.start < own.end
        };
        let mut of_these = (0..shares.blocks.len()).filter(has_some);
        of_these.any(|n| shares.part(&setup.geometry, n).may_end(flash))
    }

    fn lost_with(setup: &Setup, first: u64, id: u64) -> Range<u64> {
        let shares = setup.shares.as_ref().expect("several targets share the drive");
        let is_its = |n: &usize| shares.blocks_of(*n).start == first;
        let whose = (0..shares.blocks.len()).find(is_its).expect("a target begins there");
        let own = shares.part(&setup.geometry, whose).lost_with(id);
        first + own.start..first + own.end
    }

    fn tenants(&mut self) -> Option<&mut Tenants> {
        Some(self)
    }
}

impl Start for Tenants {
    type Config = Several;
    type Error = CreateError<NoTenant>;

    fn new(device: Lower, several: &Several) -> Result<Tenants, Self::Error> {
        let (mut shared, mut keys) = (Shared::new(device), None);
        for which in several.all() {
            let claim = several.claim(shared.media().device(), which);
            let make = |part| Ok::<_, NoTenant>(several.start(which, part, None)?.0);
            let number = shared.create(&claim, make)?;
            keys = if matches!(which, Which::Keys) { Some(number) } else { keys };
        }
        Ok(Tenants { shared, shares: several.shares.clone(), keys, left: None })
    }

    fn recover(
        device: Lower,
        several: &Several,
        now: Time,
    ) -> Result<(Tenants, Time), Self::Error> {
        let (mut shared, mut now, mut keys) = (Shared::new(device), now, None);
        for which in several.all() {
            let claim = several.claim(shared.media().device(), which);
            let find = |part, now| several.start(which, part, Some(now));
            let found = shared.found(&claim, now, find)?;
            now = found.lost.map_or(Ok(found.ready), |why| Err(CreateError::Target(why)))?;
            keys = if matches!(which, Which::Keys) { Some(found.number) } else { keys };
        }
        shared.media_mut().clear(now);
        Ok((Tenants { shared, shares: several.shares.clone(), keys, left: None }, now))
    }
}

impl Tenants {
    fn all(&self) -> impl Iterator<Item = &Tenant> {
        self.shared.numbers().iter().map(|&n| self.shared.target(n))
    }

    /// The outside of the target of keys, where there is one.
    pub(super) fn shape_of_keys(&self) -> Option<KvShape> {
        match self.shared.target(self.keys?) {
            OneOf::Second(keys) => Some(*keys.shape()),
            OneOf::First(_) => None,
        }
    }

    /// Takes requests by key, as many as there is room for.
    pub(super) fn submit_keys(&mut self, now: Time, reqs: &mut Ring<KvReq>) {
        if let Some(keys) = self.keys {
            self.shared.submit_keys(keys, now, reqs).expect("it serves");
        }
    }

    /// Gives what completed by key, also of a target that leaves.
    pub(super) fn take_keys(&mut self, done: &mut Ring<KvDone>) {
        let serves = self.keys.or(self.left);
        if let Some(keys) = serves.filter(|&keys| !self.shared.is_gone(keys)) {
            self.shared.take_keys(keys, done).expect("it is there");
        }
    }

    /// Has the target of keys leave, with all that it has.
    pub(super) fn remove_keys(&mut self, now: Time) -> Result<(), MediaError> {
        self.left = self.keys.take();
        self.shared.remove(self.left.expect("there is one"), now)
    }

    /// Whether the target that left is gone.
    pub(super) fn are_keys_gone(&self) -> bool {
        self.left.is_none_or(|keys| self.shared.is_gone(keys))
    }

    /// A target of keys comes, where none is: no chunk may be anybody's.
    pub(super) fn create_keys(&mut self) -> Result<(), CreateError<NoTenant>> {
        let config = self.shares.config;
        let claim = claim_of_keys(&self.shares, self.shared.media().device());
        let make = |part| Ok::<_, NoTenant>(Tenant::Second(KvTenant::new(Kv::new(part, config)?)));
        let number = self.shared.create(&claim, make)?;
        self.keys.get_or_insert(number);
        Ok(())
    }
}

impl Port for Tenants {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.shared.submit(now, reqs);
    }

    fn next_event(&self) -> Option<Time> {
        self.shared.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.shared.advance(to, done);
    }
}

impl Target for Tenants {
    fn shape(&self) -> Shape {
        self.shared.shape()
    }

    fn counters(&self) -> WriteCounters {
        self.all().map(Target::counters).chain([self.shared.gone()]).sum()
    }

    fn free_chunks(&self) -> u64 {
        self.all().map(Target::free_chunks).sum()
    }

    fn valid_blocks(&self, chunk: usize) -> u32 {
        let owner = self.shared.media().owner(chunk);
        owner.map_or(0, |(n, its)| self.shared.target(n).valid_blocks(its))
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
        self.shared.heed_notices(now);
    }

    fn close(&mut self, now: Time) {
        self.shared.close(now);
    }

    fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }
}

impl Over for Tenants {
    type Below = Lower;

    fn below(&self) -> &Lower {
        self.shared.media().device()
    }

    fn below_mut(&mut self) -> &mut Lower {
        self.shared.media_mut().device_mut()
    }

    fn into_below(self: Box<Self>) -> Lower {
        self.shared.into_device()
    }
}
