//! A store on a drive that keeps values by key (`target=kv`), without a tree.
//!
//! Guarantees: what the drive does. Fails when the drive cannot be recovered, or there
//! is no memory for values on their way.

use btree::{Keyed, KeyedConfig, Records, StoreKind};
use device::Link;
use drive::error::Error;
use drive::kv::{self, KvDrive};
use drive::lower;
use drive::spec::file::OpenFile;
use port::Time;

use super::tended::Tended;
use super::{Driven, Listening, OPERATIONS, Serving, Stored, come_back, failed, refuse};
use crate::args::ServeArgs;
use drive::restore::OpenDevice;

/// Memory for values on their way where nobody says how much, in bytes.
pub(crate) const MEMORY: u64 = 256 << 20;

/// How such a drive is made anew.
pub(super) const ANEW: &str = "with `ssdkit create --force`, or of several targets this one with \
                               `ssdkit target remove` and `ssdkit target create`";

/// Such a drive has neither pages nor anything else that may be on it.
pub(crate) fn check(args: &ServeArgs) -> Result<(), Error> {
    if let Some(pages) = args.pages.map(StoreKind::name) {
        return refuse(format!(
            "--pages {pages} keeps the pages of a tree, and the drive has values by key \
             (target=kv) and no pages: leave --pages out"
        ));
    }
    match args.destroy {
        true => refuse(format!(
            "--destroy makes a new store on a drive, and one with target=kv is its store: send \
             FLUSHALL, or make it anew: {ANEW}"
        )),
        false => Ok(()),
    }
}

/// Serves from such a drive in a file, or from a copy of it in memory.
pub(super) fn file(
    args: &ServeArgs,
    open: OpenFile,
    copy: bool,
    server: Listening,
    out: &mut dyn std::io::Write,
) -> Result<(), Error> {
    let is_new = open.is_new();
    let OpenDevice { config, seed, device, clean, doubt } = OpenDevice::of(open, copy)?;
    let (drive, recovery) = doubt.found(kv::recover(&config, seed, device, clean))?;
    let recovery = Some(recovery);
    Serving { args, config: &config, is_new, recovery, server, out }.keyed(drive)
}

impl Serving<'_> {
    /// Serves from a drive that keeps values by key.
    pub(super) fn keyed(self, mut target: KvDrive) -> Result<(), Error> {
        let (shape, rules) = (target.shape(), &self.config.faults);
        let (keys, (_, bytes)) = (target.target().keys(), target.target().stored());
        target.lower_mut().device_mut().set_on_a_clock(true);
        target.lower_mut().set_rules(rules);
        // Of one that is watched units say how long they worked.
        let from = self.server.2.as_ref().map(|_| Time::ZERO);
        target.lower_mut().device_mut().set_die_clocks(from);
        let wakes = target.lower().device().medium().wakes();
        let link = Link::new(lower::link_above(self.config), target);
        let Driven { drive, back, at } =
            Driven::new(Tended::new(link), wakes, self.server.2.is_some())?;
        let clock = at.sleeper.clock();
        let memory = self.args.memory.unwrap_or(MEMORY);
        let config = KeyedConfig { operations: OPERATIONS, memory, keys };
        let keyed = Keyed::new(Box::new(drive), shape, config, clock.now());
        let records = Records::Drive(Box::new(keyed.map_err(failed)?));
        let kept = Stored { records, bytes, was_there: !self.is_new };
        let end = || {
            let target = come_back(&back)?.into_below();
            let injected = lower::injected(target.lower(), rules);
            let ended = match target.lower().device().medium().outlives() {
                true => kv::end(target, clock.now()),
                false => Ok(()),
            };
            Ok((injected, ended))
        };
        self.serve(kept, "values by key", at, Box::new(end))
    }
}
