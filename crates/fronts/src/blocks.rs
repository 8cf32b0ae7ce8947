//! The fronts of a drive of blocks: NBD, application channels, or both at once.
//!
//! Guarantees: each answers what was received before it ends, and whichever ends last
//! flushes last. Where one fails the other is stopped. Fails as they do.

use std::io;
use std::time::Duration;

use drive::error::Error;
use drive::lent::Lent;
use drive::shared::{Damaged, Shared};
use drive::whole::{Boxed, Drive, PartOf};
use exports::channels::{self, Served};
use exports::nbd::{self, Export, Exports, NotServable, StopHandle};
use exports::{SharedDrive, listen::ListenAddr};
use load::threads::no_thread;

use crate::args::ServeArgs;

/// What they are, at least one.
pub(crate) struct Fronts {
    pub nbd: Option<nbd::Server>,
    pub channel: Option<channels::Server>,
    /// How long a channel's thread looks for requests.
    pub linger: Duration,
    pub stop: StopHandle,
}

/// What they tell at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reports {
    pub nbd: nbd::Report,
    pub channel: channels::Report,
}

impl Reports {
    /// Clients that were turned away.
    pub fn refused(&self) -> u64 {
        self.nbd.refused + self.channel.refused
    }

    /// Clients that broke their protocol.
    pub fn faults(&self) -> u64 {
        self.nbd.faults + self.channel.faults
    }
}

/// What clients are told of a drive.
pub(crate) struct Told {
    /// Over NBD.
    pub exports: Option<Exports>,
    served: Served,
}

impl Fronts {
    /// What clients are told of a drive. Fails where it cannot be served.
    pub fn served(&self, drive: &Boxed) -> Result<Told, Error> {
        let (shape, is_read_only) = (drive.shape(), drive.fault().is_some());
        let export = self.nbd.as_ref().map(|_| with_targets(drive)).transpose();
        let export = export.map_err(|e| Error::Usage(e.to_string()))?;
        let exports = export.map(Exports::new);
        Ok(Told { exports, served: Served { shape, is_read_only, linger: self.linger } })
    }

    /// Where they listen.
    pub fn addresses(&self, args: &ServeArgs) -> io::Result<Vec<String>> {
        let nbd = self.nbd.as_ref().map(nbd::Server::addr).transpose()?;
        let nbd = nbd.as_ref().map(ListenAddr::to_string);
        let channel = args.channel.as_ref().map(|path| format!("channel:{}", path.display()));
        Ok(nbd.into_iter().chain(channel).collect())
    }

    /// Serves until stopped.
    pub fn run(self, told: &Told, drive: &SharedDrive<Lent>) -> Result<Reports, Error> {
        let Fronts { nbd, channel, stop, .. } = self;
        let failed = |e: nbd::ServeError| Error::Failed(e.to_string());
        std::thread::scope(|scope| {
            let by_channel = |server: channels::Server| {
                let builder = std::thread::Builder::new().name("channels".into());
                let stop = &stop;
                builder.spawn_scoped(scope, move || {
                    let report = server.run(told.served, drive, stop);
                    stop.stop();
                    report
                })
            };
            let by_channel = channel.map(by_channel).transpose().map_err(|e| no_thread(&e))?;
            let nbd = match (nbd, &told.exports) {
                (Some(server), Some(exports)) => {
                    let report = server.run(exports, drive, &stop);
                    stop.stop();
                    report
                }
                _ => Ok(nbd::Report::default()),
            };
            let channel = by_channel.map(|thread| thread.join());
            let died = |_| Err(Error::Failed("the channels' thread died: report it".into()));
            let channel = channel.map(|ended| ended.map_or_else(died, |r| r.map_err(failed)));
            let channel = channel.unwrap_or(Ok(channels::Report::default()))?;
            Ok(Reports { nbd: nbd.map_err(failed)?, channel })
        })
    }
}

/// Exports a drive, and each of several targets that it has; who asks for one that is damaged
/// is told so.
pub(crate) fn with_targets(drive: &Boxed) -> Result<Export, NotServable> {
    let whole = Export::new(drive.shape())?;
    let mut parts = (0..drive.targets()).filter_map(|n| drive.part(n));
    let export = parts.try_fold(whole, |export, PartOf { name, first, bytes }| {
        export.with_part(name, &format!("target {name} of an ssdkit drive"), (first, bytes))
    })?;
    let damaged = drive.shared().map_or(&[][..], Shared::damaged).iter();
    let refuse = |export: Export, one: &Damaged| {
        export.refusing(&one.name, &format!("target {} is damaged: {}", one.name, one.why))
    };
    Ok(damaged.fold(export, refuse).read_only(drive.fault().is_some()))
}
