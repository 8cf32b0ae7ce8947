//! The fronts of a drive of blocks: NBD, application channels, or both at once; and beside
//! them Redis, where a target of it keeps values by key.
//!
//! Guarantees: each answers what was received before it ends, and whichever ends last
//! flushes last. Where one fails the other is stopped. Fails as they do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use drive::error::Error;
use drive::lent::Lent;
use drive::shared::{Damaged, Shared};
use drive::spec::DriveConfig;
use drive::whole::{Boxed, Drive, PartOf};
use exports::channels::{self, Served};
use exports::nbd::{self, Export, Exports, NotServable, StopHandle};
use exports::{SharedDrive, listen::ListenAddr, redis};
use load::threads::no_thread;

use crate::args::ServeArgs;
use crate::keys::KeyedTarget;

/// What they are, at least one.
pub(crate) struct Fronts {
    pub nbd: Option<nbd::Server>,
    pub channel: Option<channels::Server>,
    pub redis: Option<redis::Server>,
    /// How long a channel's thread looks for requests.
    pub linger: Duration,
    pub stop: StopHandle,
}

/// What they tell at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reports {
    pub nbd: nbd::Report,
    pub channel: channels::Report,
    pub redis: redis::Report,
}

impl Reports {
    /// Clients that were turned away.
    pub fn refused(&self) -> u64 {
        self.nbd.refused + self.channel.refused + self.redis.refused
    }

    /// Clients that broke their protocol.
    pub fn faults(&self) -> u64 {
        self.nbd.faults + self.channel.faults + self.redis.faults
    }

    /// Clients that were served.
    pub fn connections(&self) -> u64 {
        self.nbd.connections + self.channel.channels + self.redis.connections
    }

    /// What is not on the drive, where its last flush failed.
    pub fn unflushed(&self) -> Option<Error> {
        let blocks = self.nbd.unflushed.or(self.channel.unflushed).map(|status| {
            format!(
                "the drive did not take the last flush: {status}; what clients did not flush may \
                 be lost"
            )
        });
        blocks.or(self.redis.unflushed.as_ref().map(not_stored)).map(Error::Failed)
    }

    /// Clients that gave way to others.
    pub fn evicted(&self) -> u64 {
        self.nbd.evicted + self.redis.evicted
    }
}

/// What clients are told of a drive.
pub(crate) struct Told {
    /// Over NBD.
    pub exports: Option<Exports>,
    /// Over Redis.
    pub keys: Option<KeyedTarget>,
    served: Served,
}

impl Told {
    /// What is served where, in words: a line for blocks, and one for keys.
    pub fn text(&self, name: &str, size: &str, at: &[(&str, String)]) -> String {
        let of = |is_redis: bool| {
            let its = at.iter().filter(|(front, _)| (*front == "redis") == is_redis);
            its.map(|(_, at)| at.as_str()).collect::<Vec<_>>().join(" and ")
        };
        let blocks = of(false);
        let blocks = (!blocks.is_empty()).then(|| format!("serving {name} ({size}) at {blocks}"));
        let keys = self.keys.as_ref();
        let keys =
            keys.map(|one| format!("serving the keys of {} of {name} at {}", one.name, of(true)));
        blocks.into_iter().chain(keys).collect::<Vec<_>>().join("\n")
    }
}

impl Fronts {
    /// What clients are told of a drive. Fails where it cannot be served.
    pub fn served(&self, drive: &Boxed, target: Option<&str>) -> Result<Told, Error> {
        let (shape, is_read_only) = (drive.shape(), drive.fault().is_some());
        let export = self.nbd.as_ref().map(|_| with_targets(drive)).transpose();
        let export = export.map_err(|e| Error::Usage(e.to_string()))?;
        let exports = export.map(Exports::new);
        let keys = self.redis.as_ref().map(|_| KeyedTarget::find(drive, target)).transpose()?;
        Ok(Told { exports, keys, served: Served { shape, is_read_only, linger: self.linger } })
    }

    /// Where they listen: each by what it is, at least one.
    pub fn addresses(&self, args: &ServeArgs) -> io::Result<Vec<(&'static str, String)>> {
        let nbd = self.nbd.as_ref().map(nbd::Server::addr).transpose()?;
        let nbd = nbd.map(|at| ("nbd", at.to_string()));
        let channel = args.channel.as_ref();
        let channel = channel.map(|path| ("channel", format!("channel:{}", path.display())));
        let redis = self.redis.as_ref().map(redis::Server::addr).transpose()?;
        let redis = redis.map(|at| match at {
            ListenAddr::Unix(path) => path.display().to_string(),
            ListenAddr::Tcp(at) => at.to_string(),
        });
        Ok(nbd.into_iter().chain(channel).chain(redis.map(|at| ("redis", at))).collect())
    }

    /// Serves until stopped.
    pub fn run(
        self,
        told: &Told,
        drive: &Arc<SharedDrive<Lent>>,
        how: (&ServeArgs, &DriveConfig),
    ) -> Result<Reports, Error> {
        let Fronts { nbd, channel, redis, stop, .. } = self;
        let failed = |e: nbd::ServeError| Error::Failed(e.to_string());
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let stop = &stop;
        std::thread::scope(|scope| {
            let by_channel = |server: channels::Server| {
                let run = move || {
                    let _others = StopsOthers(stop);
                    server.run(told.served, drive, stop).map_err(failed)
                };
                thread("channels").spawn_scoped(scope, run).map_err(|e| no_thread(&e))
            };
            let by_key = |(server, keys): (redis::Server, &'_ KeyedTarget)| {
                let keys = keys.clone();
                let run = move || {
                    let _others = StopsOthers(stop);
                    keys.serve(server, drive.clone(), how, stop)
                };
                thread("keys").spawn_scoped(scope, run).map_err(|e| no_thread(&e))
            };
            let channel = channel.map(by_channel).transpose()?;
            let redis = redis.zip(told.keys.as_ref()).map(by_key).transpose();
            let redis = redis.inspect_err(|_| stop.stop())?;
            let nbd = match (nbd, &told.exports) {
                (Some(server), Some(exports)) => {
                    let report = server.run(exports, drive, stop);
                    stop.stop();
                    report
                }
                _ => Ok(nbd::Report::default()),
            };
            let channel = channel.map(|thread| thread.join().unwrap_or_else(|_| died("channels")));
            let redis = redis.map(|thread| thread.join().unwrap_or_else(|_| died("keys")));
            let channel = channel.unwrap_or(Ok(channels::Report::default()))?;
            let redis = redis.unwrap_or(Ok(redis::Report::default()))?;
            Ok(Reports { nbd: nbd.map_err(failed)?, channel, redis })
        })
    }
}

/// What became of a store that failed.
pub(crate) fn not_stored(error: &btree::Error) -> String {
    format!("the store failed: {error}; what was written since its last flush may be lost")
}

/// Ends the other fronts when one has ended, also by a panic.
struct StopsOthers<'a>(&'a StopHandle);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A thread of a front panicked.
fn died<R>(front: &str) -> Result<R, Error> {
    Err(Error::Failed(format!("the thread of {front} died: report it")))
}

/// Exports a drive, and each of several targets that it has; who asks for one that is damaged
/// is told so.
pub(crate) fn with_targets(drive: &Boxed) -> Result<Export, NotServable> {
    let whole = Export::new(drive.shape())?;
    // What keeps values by key has no addresses.
    let parts = (0..drive.targets()).filter_map(|n| drive.part(n));
    let mut parts = parts.filter(|part| part.bytes > 0);
    let export = parts.try_fold(whole, |export, PartOf { name, first, bytes }| {
        export.with_part(name, &format!("target {name} of an ssdkit drive"), (first, bytes))
    })?;
    let damaged = drive.shared().map_or(&[][..], Shared::damaged).iter();
    let refuse = |export: Export, one: &Damaged| {
        export.refusing(&one.name, &format!("target {} is damaged: {}", one.name, one.why))
    };
    Ok(damaged.fold(export, refuse).read_only(drive.fault().is_some()))
}
