//! How much memory a block layer takes, told before it is built.

use measure::LiveHistogram;

use super::Builder;
use crate::account::LaneAccount;
use crate::config::Config;
use crate::context::{Context, Lane};
use crate::dispatch::Dispatch;
use crate::driver::{Driver, HardwareQueue};
use crate::entrance::joint_bytes;
use crate::error::ConfigError;
use crate::staging::Staging;

/// Bytes of memory that [`build`](super::build) takes for a block layer over
/// `driver`, with what the driver's queues take when they are opened. What is
/// left out does not depend on how deep or how many queues are.
pub fn tables<D: Driver>(config: &Config, driver: &D) -> Result<u64, ConfigError> {
    let builder = Builder::new(config, driver)?;
    Ok(builder.tables::<D::Queue>(driver.depth()).saturating_add(driver.tables()))
}

impl Builder<'_> {
    /// What is taken besides the driver's, over queues of `depth` requests.
    pub(super) fn tables<Q: HardwareQueue>(&self, depth: usize) -> u64 {
        let dispatch = (0..self.plan.queues).map(|queue| self.entrances(queue).len());
        let dispatch = dispatch.map(|users| self.dispatch_bytes::<Q>(users, depth));
        let dispatch = dispatch.fold(0, u64::saturating_add);
        let staging = self.ways().into_iter().enumerate().map(|(place, ways)| {
            let users = self.staging_users(place);
            Staging::bytes(&self.staging_options(ways, users))
        });
        let staging = staging.fold(0, u64::saturating_add);
        [dispatch, staging, self.contexts::<Q>(depth)].into_iter().fold(0, u64::saturating_add)
    }

    /// What the dispatch queues over one of the driver's take.
    fn dispatch_bytes<Q: HardwareQueue>(&self, users: usize, depth: usize) -> u64 {
        let own = (users as u64).saturating_mul(Dispatch::<Q>::bytes(depth));
        let entrances = match self.entrance {
            _ if users < 2 => 0,
            Some(each) => (users as u64 - 1).saturating_mul(each),
            None => joint_bytes(depth, users, depth),
        };
        own.saturating_add(entrances)
    }

    /// What all cores' contexts take.
    fn contexts<Q: HardwareQueue>(&self, depth: usize) -> u64 {
        let lane = size_of::<Lane<Q>>() + size_of::<LaneAccount>();
        let lanes = self.plan.kinds.len() as u64 * (lane as u64 + LiveHistogram::BYTES);
        let depths = vec![depth; self.plan.queues];
        let cores = self.config.topology.cores();
        let limits: Vec<usize> = (0..cores).map(|core| self.limit(core, &depths)).collect();
        let parts = self.most_parts().max(1);
        let one = |core: usize| {
            let rings = Context::<Q>::bytes(limits[core], depth, parts, self.inbox(core, &limits));
            rings + lanes + size_of::<Context<Q>>() as u64
        };
        (0..cores).map(one).fold(0, u64::saturating_add)
    }
}
