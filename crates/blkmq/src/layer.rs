//! A block layer, put together.
//!
//! [`build`] opens a driver's queues, makes the staging queues, and gives one
//! [`Context`] for each core. Fails where the configuration, the driver's
//! mapping or its number of queues cannot be, or memory ends; nothing was
//! opened then. How much it takes is told before, by [`tables`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use port::Shape;
use port::lazy::ask_for;
use tags::{SharedTags, inbox};

use crate::account::{LaneAccount, Monitor, StagingAccount};
use crate::config::{Config, MOST_QUEUES, MOST_TIMEOUT, Merge};
use crate::context::{Context, Lane};
use crate::dispatch::Dispatch;
use crate::driver::{Driver, HardwareQueue, QueueKind};
use crate::entrance::Below;
use crate::error::ConfigError;
use crate::held::Held;
use crate::merge::most_parts;
use crate::peers::Peers;
use crate::queue_tags::Tags;
use crate::scheduler::SchedulerKind;
use crate::staging::{Staging, StagingOptions};

pub use tables::tables;

/// A context for each core, and what reads their accounts.
pub type Layer<Q> = (Vec<Context<Q>>, Monitor);

/// Puts a block layer over `driver`.
pub fn build<D: Driver>(config: &Config, driver: D) -> Result<Layer<D::Queue>, ConfigError> {
    let builder = Builder::new(config, &driver)?;
    let bytes = builder.tables::<D::Queue>(driver.depth()).saturating_add(driver.tables());
    // All at once, since what takes it bit by bit may not say where it ends;
    // and a little more, for what is not counted.
    ask_for(bytes.saturating_add(bytes / 16), "the queues of a block layer")?;
    let opened = driver.open();
    if opened.len() != builder.plan.queues {
        return Err(ConfigError::Queues { opened: opened.len(), said: builder.plan.queues });
    }
    builder.build(opened)
}

/// Which core uses which queues.
struct Plan {
    /// Dispatch queues in all.
    queues: usize,
    /// The kinds that have queues of their own.
    kinds: Vec<QueueKind>,
    /// By core, then as `kinds`: its dispatch queue.
    maps: Vec<Vec<usize>>,
}

impl Plan {
    fn new<Q: HardwareQueue>(
        config: &Config,
        driver: &dyn Driver<Queue = Q>,
    ) -> Result<Plan, ConfigError> {
        let counts = driver.queues();
        ConfigError::range("queues of the driver", counts[0], 1, MOST_QUEUES)?;
        let queues = counts.iter().sum();
        ConfigError::range("queues of the driver", queues, 1, MOST_QUEUES)?;
        let staging = config.staging.count(&config.topology);
        ConfigError::range("staging queues", staging, 1, config.topology.cores())?;
        let timeout = usize::try_from(config.timeout).unwrap_or(usize::MAX);
        ConfigError::range("timeout", timeout, 1, MOST_TIMEOUT as usize)?;
        let kinds: Vec<QueueKind> =
            QueueKind::ALL.into_iter().filter(|&kind| counts[kind as usize] > 0).collect();
        let mut maps = Vec::new();
        for core in 0..config.topology.cores() {
            let mut map = Vec::new();
            for &kind in &kinds {
                let queue = driver.map(&config.topology, kind, core);
                let count = counts[kind as usize];
                if queue >= count {
                    let kind = kind.name();
                    return Err(ConfigError::Mapping { core, kind, queue, count });
                }
                map.push(counts[..kind as usize].iter().sum::<usize>() + queue);
            }
            maps.push(map);
        }
        Ok(Plan { queues, kinds, maps })
    }

    /// The place of each kind among a core's lanes.
    fn places(&self) -> [u8; 3] {
        let place = |kind: QueueKind| self.kinds.iter().position(|&k| k == kind).unwrap_or(0);
        QueueKind::ALL.map(|kind| place(kind) as u8)
    }
}

/// The dispatch queues over one queue of the driver, one for each staging queue
/// that feeds it: the number of that one, and a handle for each of its cores.
type Entrances<Q> = Vec<(usize, Vec<Held<Dispatch<Q>>>)>;

struct Builder<'a> {
    config: &'a Config,
    plan: Plan,
    shape: Shape,
    shares_tags: bool,
    /// Bytes of another entrance to a queue of the driver, if it has some.
    entrance: Option<u64>,
}

impl<'a> Builder<'a> {
    fn new<Q: HardwareQueue>(
        config: &'a Config,
        driver: &dyn Driver<Queue = Q>,
    ) -> Result<Builder<'a>, ConfigError> {
        Ok(Builder {
            config,
            plan: Plan::new(config, driver)?,
            shape: driver.shape(),
            shares_tags: driver.shares_tags(),
            entrance: driver.entrance_bytes(),
        })
    }

    fn build<Q: HardwareQueue>(self, opened: Vec<Q>) -> Result<Layer<Q>, ConfigError> {
        let cores = self.config.topology.cores();
        let depths: Vec<usize> = opened.iter().map(HardwareQueue::depth).collect();
        let mut dispatch = self.dispatch(opened)?;
        let ways = self.ways();
        let (mut staging, staged) = self.staging(&ways)?;
        let limits: Vec<usize> = (0..cores).map(|core| self.limit(core, &depths)).collect();
        let deepest = depths.iter().copied().max().unwrap_or(1);
        let parts = self.most_parts();
        let room = |core: usize| inbox(self.inbox(core, &limits));
        let inboxes = (0..cores).map(room).collect::<Result<Vec<_>, _>>()?;
        let (inboxes, senders): (Vec<_>, Vec<_>) = inboxes.into_iter().unzip();
        let peers = Arc::new(Peers::new(senders));
        let mut accounts: Vec<Vec<Arc<LaneAccount>>> = vec![Vec::new(); self.plan.queues];
        let mut contexts = Vec::new();
        for (core, inbox) in inboxes.into_iter().enumerate() {
            let mut lanes = Vec::new();
            for (kind, &queue) in self.plan.maps[core].iter().enumerate() {
                let account = Arc::new(LaneAccount::default());
                accounts[queue].push(account.clone());
                let place = self.place(kind, core);
                let mut lane = Lane {
                    staging: staging[place].pop().expect("one for each core"),
                    staged: staged[place].clone(),
                    queue: handle(&mut dispatch[queue], place).expect("one for each core"),
                    number: queue as u32,
                    account,
                    staging_number: place as u32,
                    way: ways[place].get(core).map_or(0, |&way| way as usize),
                    in_place: false,
                    direct: false,
                };
                lane.staging.lock().add_user(lane.way);
                lanes.push(self.finish(lane));
            }
            let (kinds, limit, peers) = (self.plan.places(), limits[core], peers.clone());
            let core = core as u32;
            contexts.push(Context::new(
                core,
                lanes,
                kinds,
                (self.config, self.shape),
                inbox,
                peers,
                limit,
                deepest,
                parts.max(1),
            )?);
        }
        Ok((contexts, Monitor { staging: staged, dispatch: accounts }))
    }

    /// Decides which ways a lane is short.
    fn finish<Q>(&self, lane: Lane<Q>) -> Lane<Q> {
        let config = self.config;
        let alone = lane.staging.is_alone() && lane.queue.is_alone();
        let none = config.scheduler == SchedulerKind::None;
        Lane {
            in_place: alone && config.merge == Merge::Off,
            direct: lane.staging.is_alone() && none && config.plug.is_none(),
            ..lane
        }
    }

    /// The most requests that a core may have outside.
    fn limit(&self, core: usize, depths: &[usize]) -> usize {
        let map = &self.plan.maps[core];
        map.iter().map(|&queue| depths[queue] + self.config.staging_depth).sum()
    }

    /// The most completions that may be on their way to a core, from those that
    /// share a staging and a dispatch queue with it.
    fn inbox(&self, core: usize, limits: &[usize]) -> usize {
        let shares = |(kind, &queue): (usize, &usize)| {
            let place = self.place(kind, core);
            self.entrances(queue).iter().any(|&(known, users)| known == place && users > 1)
        };
        if !self.plan.maps[core].iter().enumerate().any(shares) {
            return 1;
        }
        // Each may be handed merged requests of its own staging queues.
        limits[core] + self.plan.kinds.len() * self.most_parts() / 2
    }

    /// The number of a core's staging queue for a kind.
    fn place(&self, kind: usize, core: usize) -> usize {
        let topology = &self.config.topology;
        kind * self.config.staging.count(topology) + self.config.staging.place(topology, core)
    }

    /// The staging queues that feed a queue of the driver, and by how many cores.
    fn entrances(&self, queue: usize) -> Vec<(usize, usize)> {
        let mut all: Vec<(usize, usize)> = Vec::new();
        for (core, map) in self.plan.maps.iter().enumerate() {
            let Some(kind) = map.iter().position(|&mapped| mapped == queue) else { continue };
            let place = self.place(kind, core);
            // Neighbours have the same, or the next.
            match all.iter_mut().rfind(|(known, _)| *known == place) {
                Some((_, users)) => *users += 1,
                None => all.push((place, 1)),
            }
        }
        all
    }

    /// The dispatch queues over each queue of the driver.
    fn dispatch<Q: HardwareQueue>(&self, opened: Vec<Q>) -> Result<Vec<Entrances<Q>>, ConfigError> {
        let deepest = opened.iter().map(HardwareQueue::depth).max().unwrap_or(1);
        let over = Arc::new(AtomicBool::new(false));
        let depth = |n: usize| ConfigError::range("depth of the driver's queue", n, 1, 65_535);
        depth(deepest)?;
        let of = |tags: usize, users| SharedTags::for_users(tags as u32, users);
        let users = (0..opened.len()).map(|queue| self.entrances(queue).len()).sum();
        let set = if self.shares_tags { Some(of(deepest, users)?) } else { None };
        let mut all = Vec::new();
        for (number, queue) in opened.into_iter().enumerate() {
            depth(queue.depth())?;
            let entrances = self.entrances(number);
            let tags = set.as_ref().map_or(queue.depth(), |set| set.depth() as usize);
            let ways = Below::ways(queue, entrances.len(), tags)?;
            // Entrances of the driver's own share its places; else whoever is
            // inside keeps to them.
            let set = match &set {
                Some(set) => Some(set.clone()),
                None if ways.len() > 1 && ways[0].own().is_some() => Some(of(tags, ways.len())?),
                None => None,
            };
            let mut dispatch = Vec::new();
            for (i, ((place, users), way)) in entrances.into_iter().zip(ways).enumerate() {
                let tags = match &set {
                    Some(set) => Tags::shared(set.user()),
                    None => Tags::own(tags as u32)?,
                };
                let name = (number as u32, i as u16);
                let bounds = (self.shape.max_bytes, self.config.timeout);
                let queue = Dispatch::new(name, way, tags, users, bounds, over.clone())?;
                dispatch.push((place, Held::among(queue, users)));
            }
            all.push(dispatch);
        }
        Ok(all)
    }

    /// The most parts of a merged request; none where nothing is merged.
    fn most_parts(&self) -> usize {
        match self.config.merge {
            Merge::Off => 0,
            Merge::Simple | Merge::Full => most_parts(self.config.staging_depth, &self.shape),
        }
    }

    /// Of each staging queue, by core: its way to the core's dispatch queue.
    /// Nothing where there is but one.
    fn ways(&self) -> Vec<Vec<u32>> {
        let staging = self.config.staging.count(&self.config.topology);
        let mut fed: Vec<Vec<usize>> = vec![Vec::new(); self.plan.kinds.len() * staging];
        let mut ways: Vec<Vec<u32>> = vec![Vec::new(); fed.len()];
        for kind in 0..self.plan.kinds.len() {
            for (core, map) in self.plan.maps.iter().enumerate() {
                let place = self.place(kind, core);
                let (fed, ways) = (&mut fed[place], &mut ways[place]);
                // Neighbours use the same queue, or the next.
                let known = fed.iter().rposition(|&queue| queue == map[kind]);
                let way = known.unwrap_or_else(|| {
                    fed.push(map[kind]);
                    fed.len() - 1
                });
                if way > 0 {
                    ways.resize(core, 0);
                    ways.push(way as u32);
                }
            }
        }
        ways
    }

    /// A handle of each staging queue for each core that uses it.
    #[allow(clippy::type_complexity)]
    fn staging(
        &self,
        ways: &[Vec<u32>],
    ) -> Result<(Vec<Vec<Held<Staging>>>, Vec<Arc<StagingAccount>>), ConfigError> {
        let mut all = Vec::new();
        for (place, ways) in ways.iter().enumerate() {
            let users = self.staging_users(place);
            let options = self.staging_options(ways.clone(), users);
            all.push(Held::among(Staging::new(&options)?, users));
        }
        let accounts = all.iter().map(|_| Arc::default()).collect();
        Ok((all, accounts))
    }

    /// How many cores use a staging queue.
    fn staging_users(&self, place: usize) -> usize {
        let (topology, spread) = (&self.config.topology, self.config.staging);
        let number = place % spread.count(topology);
        (0..topology.cores()).filter(|&core| spread.place(topology, core) == number).count()
    }

    fn staging_options(&self, ways: Vec<u32>, users: usize) -> StagingOptions {
        let config = self.config;
        StagingOptions {
            depth: config.staging_depth,
            scheduler: config.scheduler.clone(),
            merge: config.merge,
            merge_idle: config.merge_idle,
            plug: config.plug,
            cores: config.topology.cores(),
            ways,
            shared: users > 1,
            shape: self.shape,
        }
    }
}

/// A handle of the dispatch queue that staging queue `place` feeds.
fn handle<Q>(entrances: &mut Entrances<Q>, place: usize) -> Option<Held<Dispatch<Q>>> {
    entrances.iter_mut().find(|(known, _)| *known == place)?.1.pop()
}

mod tables;
