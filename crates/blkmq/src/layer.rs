//! A block layer, put together.
//!
//! [`build`] opens a driver's queues, makes the staging queues, and gives one
//! [`Context`] for each core. Fails where the configuration, the driver's
//! mapping or its number of queues cannot be, or memory ends; nothing was
//! opened then. How much it takes is told before, by [`tables`].

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use port::Shape;
use port::lazy::ask_for;
use tags::{SharedTags, inbox};

use crate::account::{LaneAccount, Monitor, StagingAccount};
use crate::config::{Config, MOST_QUEUES, MOST_TIMEOUT, Merge, Steering};
use crate::context::{Context, Lane};
use crate::dispatch::Dispatch;
use crate::driver::{Driver, HardwareQueue, QueueKind};
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
    /// How many cores use each dispatch queue.
    users: Vec<usize>,
}

impl Plan {
    fn new<D: Driver>(config: &Config, driver: &D) -> Result<Plan, ConfigError> {
        let counts = driver.queues();
        ConfigError::range("queues of the driver", counts[0], 1, MOST_QUEUES)?;
        let queues = counts.iter().sum();
        ConfigError::range("queues of the driver", queues, 1, MOST_QUEUES)?;
        let staging = config.staging.count(&config.topology);
        ConfigError::range("staging queues", staging, 1, config.topology.cores())?;
        let timeout = usize::try_from(config.timeout).unwrap_or(usize::MAX);
        ConfigError::range("timeout", timeout, 1, MOST_TIMEOUT as usize)?;
        let last = config.topology.cores() - 1;
        match config.steering {
            Steering::One(core) => ConfigError::range("the completing core", core, 0, last)?,
            Steering::Split(a, b) => {
                ConfigError::range("the first completing core", a, 0, last)?;
                ConfigError::range("the second completing core", b, 0, last)?;
            }
            Steering::Submitter | Steering::Finder => {}
        }
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
        let mut users = vec![0; queues];
        maps.iter().flatten().for_each(|&queue: &usize| users[queue] += 1);
        Ok(Plan { queues, kinds, maps, users })
    }

    /// The place of each kind among a core's lanes.
    fn places(&self) -> [u8; 3] {
        let place = |kind: QueueKind| self.kinds.iter().position(|&k| k == kind).unwrap_or(0);
        QueueKind::ALL.map(|kind| place(kind) as u8)
    }
}

/// A staging queue, if several cores have it.
type Shared = Option<Arc<Mutex<Staging>>>;

struct Builder<'a> {
    config: &'a Config,
    plan: Plan,
    shape: Shape,
    shares_tags: bool,
}

impl<'a> Builder<'a> {
    fn new<D: Driver>(config: &'a Config, driver: &D) -> Result<Builder<'a>, ConfigError> {
        let (shape, shares_tags) = (driver.shape(), driver.shares_tags());
        Ok(Builder { config, plan: Plan::new(config, driver)?, shape, shares_tags })
    }

    fn build<Q: HardwareQueue>(self, opened: Vec<Q>) -> Result<Layer<Q>, ConfigError> {
        let cores = self.config.topology.cores();
        let depths: Vec<usize> = opened.iter().map(HardwareQueue::depth).collect();
        let mut dispatch = self.dispatch(opened)?;
        let ways = self.ways();
        let (mut staging, staged) = self.staging(&ways)?;
        let shared: Vec<_> = staging.iter().map(|all| all.first()?.another()).collect();
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
                    queue: dispatch[queue].pop().expect("one for each core"),
                    number: queue as u32,
                    account,
                    staging_number: place as u32,
                    way: ways[place].get(core).map_or(0, |&way| way as usize),
                    siblings: self.siblings(queue, place, &shared),
                    lookers: self.lookers(core, queue),
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
                self.config,
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
        let alone = lane.staging.is_alone() && lane.queue.is_alone() && lane.lookers.is_none();
        let own = matches!(config.steering, Steering::Submitter | Steering::Finder);
        let none = config.scheduler == SchedulerKind::None;
        Lane {
            in_place: alone && own && config.merge == Merge::Off,
            direct: lane.staging.is_alone() && none && config.plug.is_none(),
            ..lane
        }
    }

    /// Who looks at the device behind a queue for a core that uses it; `None`
    /// when it does so itself. A queue that no completing core uses is looked
    /// at by those that use it.
    fn lookers(&self, core: usize, queue: usize) -> Option<[u32; 2]> {
        let named = match self.config.steering {
            Steering::Submitter | Steering::Finder => return None,
            Steering::One(one) => [one, one],
            Steering::Split(a, b) => [a, b],
        };
        let users: Vec<usize> =
            named.into_iter().filter(|&named| self.plan.maps[named].contains(&queue)).collect();
        match users[..] {
            [] => None,
            _ if users.contains(&core) => None,
            [one] => Some([one as u32; 2]),
            _ => Some(named.map(|named| named as u32)),
        }
    }

    /// The most requests that a core may have outside.
    fn limit(&self, core: usize, depths: &[usize]) -> usize {
        let map = &self.plan.maps[core];
        map.iter().map(|&queue| depths[queue] + self.config.staging_depth).sum()
    }

    /// The most completions that may be on their way to a core.
    fn inbox(&self, core: usize, limits: &[usize]) -> usize {
        // Each may be handed merged requests of its own staging queues.
        let merged = self.plan.kinds.len() * self.most_parts() / 2;
        let alone = self.plan.maps[core].iter().all(|&queue| self.plan.users[queue] == 1);
        match self.config.steering {
            // Nobody else finds its requests.
            Steering::Submitter | Steering::Finder if alone => 1,
            Steering::Submitter | Steering::Finder => limits[core] + merged,
            // One who finishes for others may have all their requests at once.
            Steering::One(_) | Steering::Split(..) => limits.iter().sum(),
        }
    }

    /// The number of a core's staging queue for a kind.
    fn place(&self, kind: usize, core: usize) -> usize {
        let topology = &self.config.topology;
        kind * self.config.staging.count(topology) + self.config.staging.place(topology, core)
    }

    /// A handle of each dispatch queue for each core that uses it.
    fn dispatch<Q: HardwareQueue>(
        &self,
        opened: Vec<Q>,
    ) -> Result<Vec<Vec<Held<Dispatch<Q>>>>, ConfigError> {
        let deepest = opened.iter().map(HardwareQueue::depth).max().unwrap_or(1);
        let over = Arc::new(AtomicBool::new(false));
        let depth = |n: usize| ConfigError::range("depth of the driver's queue", n, 1, 65_535);
        depth(deepest)?;
        let set = if self.shares_tags { Some(SharedTags::new(deepest as u32)?) } else { None };
        let mut all = Vec::new();
        for (number, queue) in opened.into_iter().enumerate() {
            depth(queue.depth())?;
            let users = self.plan.users[number];
            if users == 0 {
                all.push(Vec::new());
                continue;
            }
            let tags = match &set {
                Some(set) => Tags::shared(set.user()),
                None => Tags::own(queue.depth() as u32)?,
            };
            let (timeout, over) = (self.config.timeout, over.clone());
            let mut dispatch = Dispatch::new(number as u32, queue, tags, users, timeout, over)?;
            dispatch.fed_by(self.feeders(number));
            all.push(Held::among(dispatch, users));
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

    /// Other staging queues that feed a dispatch queue, if several cores have
    /// them and they merge.
    fn siblings(
        &self,
        queue: usize,
        own: usize,
        shared: &[Shared],
    ) -> Vec<(u32, Arc<Mutex<Staging>>)> {
        let mut all = Vec::new();
        for number in self.feeders(queue) {
            let known = all.iter().any(|&(n, _)| n == number);
            if number as usize == own || known || self.config.merge == Merge::Off {
                continue;
            }
            if let Some(staging) = &shared[number as usize] {
                all.push((number, staging.clone()));
            }
        }
        all
    }

    /// The staging queues from which requests come to a dispatch queue.
    fn feeders(&self, queue: usize) -> impl Iterator<Item = u32> {
        let lanes = self.plan.maps.iter().enumerate();
        lanes.filter_map(move |(core, map)| {
            let kind = map.iter().position(|&mapped| mapped == queue)?;
            Some(self.place(kind, core) as u32)
        })
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

mod tables;
