//! Drives with batched writes: `target=batch`.
//!
//! Such a drive has pages by number and no blocks ([`targets::Batch`]), so it
//! has a key-value store on it: one that is served, or measured by `ssdkit ycsb`.
//! One in a file is made new when it is first started, and at no other time unless
//! asked, and found again later; its set-up follows from the drive's configuration.
//! What is below its target is as of any drive ([`Lower`]). May fail: the drive is
//! too small or has layers that its kind cannot have, or what it holds cannot be
//! recovered.

use std::time::Instant;

use device::{Device, OpenChannel};
use port::{BLOCK_BYTES, BatchDone, BatchReq, BatchShape, Port, Time};
use targets::batch::{BatchCounters, Recovery as Start};
use targets::{Batch, BatchConfig, BatchError};

use crate::backing::Backing;
use crate::error::Error;
use crate::fault_rules::Layer;
use crate::lower::{self, Flash, Lower};
use crate::memory;
use crate::restore::Recovery;
use crate::spec::{Cache, DriveConfig, Store, TargetKind};
use crate::stack::new_device;

/// Part of the flash that the drive keeps for itself.
const SPARE: f64 = 0.1;

/// A drive with batched writes, whatever is below its target.
pub trait BatchDrive: Port<Cmd = BatchReq, Done = BatchDone> + Send + 'static {
    /// Its outside.
    fn shape(&self) -> BatchShape;
    /// The time that it has come to.
    fn now(&self) -> Time;
    /// What it has done since it was started.
    fn counters(&self) -> BatchCounters;
    /// What its start found.
    fn recovery(&self) -> &Start;
    /// Why it takes no more writes, if that is so.
    fn fault(&self) -> Option<&BatchError>;
    /// Begins a checkpoint, as soon as one can be.
    fn request_checkpoint(&mut self);
    /// Whether a checkpoint was asked for, or is under way.
    fn is_checkpointing(&self) -> bool;
    /// Looks after what nobody reads: data that have grown old are written anew.
    fn tend(&mut self, now: Time);
    /// What is below it.
    fn lower(&self) -> &dyn Lower;
    /// What is below it.
    fn lower_mut(&mut self) -> &mut dyn Lower;
    /// Takes the target away, as a power cut does.
    fn into_lower(self: Box<Self>) -> Flash;
}

/// A drive of this kind.
pub type BoxedBatch = Box<dyn BatchDrive>;

impl BatchDrive for Batch<Flash> {
    fn shape(&self) -> BatchShape {
        *Batch::shape(self)
    }

    fn now(&self) -> Time {
        Batch::now(self)
    }

    fn counters(&self) -> BatchCounters {
        Batch::counters(self)
    }

    fn recovery(&self) -> &Start {
        Batch::recovery(self)
    }

    fn fault(&self) -> Option<&BatchError> {
        Batch::fault(self)
    }

    fn request_checkpoint(&mut self) {
        Batch::request_checkpoint(self);
    }

    fn is_checkpointing(&self) -> bool {
        Batch::is_checkpointing(self)
    }

    fn tend(&mut self, now: Time) {
        self.below_mut().device_mut().patrol(now);
        self.heed_notices(now);
    }

    fn lower(&self) -> &dyn Lower {
        self.below()
    }

    fn lower_mut(&mut self) -> &mut dyn Lower {
        self.below_mut()
    }

    fn into_lower(self: Box<Self>) -> Flash {
        self.into_below()
    }
}

/// Puts the target on what is below it: it starts what that holds, or new.
pub fn over(flash: Flash, set_up: BatchConfig) -> Result<BoxedBatch, BatchError> {
    Ok(Box::new(Batch::open(flash, set_up, Time::ZERO)?))
}

/// Whether there can be such a drive, wherever its bytes are.
pub fn check(config: &DriveConfig, seed: u64) -> Result<(), Error> {
    let medium = memory::medium(config, BLOCK_BYTES as u32)?;
    start(config, new_device(config, seed, medium.into())?).map(drop)
}

/// Makes a new drive on a device that holds nothing.
pub fn start(config: &DriveConfig, device: Device<Backing>) -> Result<BoxedBatch, Error> {
    open(config, device, true)
}

fn open(
    config: &DriveConfig,
    device: Device<Backing>,
    may_be_new: bool,
) -> Result<BoxedBatch, Error> {
    refuse_layers(config)?;
    let flash = lower::before(config, device, None)?;
    let most = BatchConfig::for_geometry(flash.geometry(), SPARE);
    let set_up = BatchConfig { pages: (config.size / BLOCK_BYTES).min(most.pages), ..most };
    let opened = match may_be_new {
        true => over(flash, set_up),
        false => {
            Batch::find(flash, set_up, Time::ZERO).map(|target| Box::new(target) as BoxedBatch)
        }
    };
    opened.map_err(|e| {
        let text = format!("{}: {e}", config.name);
        match e {
            BatchError::Range { .. }
            | BatchError::Capacity { .. }
            | BatchError::Small { .. }
            | BatchError::Cache { .. }
            | BatchError::Unreadable(_)
            | BatchError::OpenChunks
            | BatchError::Slots => Error::Usage(text),
            BatchError::Nothing => Error::Usage(format!(
                "{} was used before and has nothing on it now: add --destroy to make a new store",
                config.name
            )),
            _ => Error::Failed(text),
        }
    })
}

/// Starts what a device holds, or a new drive where that may be; and tells how
/// it was found.
pub fn recover(
    config: &DriveConfig,
    device: Device<Backing>,
    clean: bool,
    may_be_new: bool,
) -> Result<(BoxedBatch, Recovery), Error> {
    let began = Instant::now();
    let target = open(config, device, may_be_new)?;
    let (wall, drive) = (began.elapsed(), target.now());
    Ok((target, Recovery { wall, drive, clean, journal: None }))
}

/// Refuses what such a drive cannot have, and one that keeps values by key neither.
pub fn refuse_layers(config: &DriveConfig) -> Result<(), Error> {
    let what = match &config.spec {
        spec if spec.cache != Cache::Volatile => "protected cache",
        spec if spec.store != Store::Memory => "other store than memory",
        spec if spec.shards > 1 => "shards (shards=)",
        spec if spec.is_shared() => "several targets (target=, targets=, units=)",
        spec if spec.streams > 1 => "streams (streams=)",
        _ if config.profile.cache.is_on() => "read cache (read_cache=)",
        _ if config.profile.buffer_rate > 0 => "buffer with a rate (buffer_rate=)",
        _ if config.profile.queues.is_on() => "submission queues (queues=, queue_depth=)",
        _ if config.profile.power.is_on() => "power states (sleep_after=, thermal_resistance=)",
        _ if config.profile.write_buffer > 0 => "write buffer of a size (write_buffer=)",
        _ if config.profile.has_units() => "mapping unit of its own (map_unit=)",
        _ if config.profile.map_cache > 0 => "map cache (map_cache=)",
        _ if config.profile.idle_collection > 0 => "idle collection (idle_collection=)",
        _ if config.faults.has(Layer::Above) => "fault of requests (above:)",
        _ => return Ok(()),
    };
    let (drive, instead) = match config.spec.target {
        TargetKind::Kv => {
            ("a drive with values by key (target=kv)", "target=pblk with --pages log")
        }
        TargetKind::Batch => ("a drive with batched writes", "target=pblk with --pages log"),
        TargetKind::Pblk | TargetKind::Rules => ("a drive with batched writes", "--pages log"),
    };
    let name = &config.name;
    Err(Error::Usage(format!("{name}: {drive} has no {what}: leave it out, or take {instead}")))
}

/// Shuts a drive down that nobody uses, at `now`: its next start reads no log.
pub fn end(mut drive: BoxedBatch, now: Time) -> Result<(), Error> {
    lower::calm(drive.lower_mut());
    let at = now.max(drive.now());
    let at = lower::settle(&mut *drive, at);
    if drive.fault().is_none() {
        drive.request_checkpoint();
    }
    lower::settle(&mut *drive, at);
    let fault = drive.fault().map(|e| Error::Failed(e.to_string()));
    lower::put_away(drive.into_lower(), fault)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fault_rules::FaultArgs;
    use crate::spec::DriveSpec;
    use crate::stack::old_device;
    use port::{BatchOp, Buffer, Desc, Ring};

    const PAGES: u64 = 40;

    /// One request at `now`; gives what came of it, and when.
    pub fn act<P>(drive: &mut P, now: Time, op: BatchOp, lpid: u64, buffer: Buffer) -> BatchDone
    where
        P: Port<Cmd = BatchReq, Done = BatchDone>,
    {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        cmds.put(|| BatchReq { id: 0, op, lpid, buffer });
        drive.submit(now, &mut cmds);
        loop {
            let at = drive.next_event().expect("it is inside");
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                return done;
            }
        }
    }

    /// A small drive with that target.
    pub fn config_of(target: &str, rest: &str, rules: &[&str]) -> DriveConfig {
        let name = format!("mem:tlc,size=16M,groups=2,pus=2,pages=16,target={target}{rest}");
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        let rules = rules.iter().map(|rule| rule.to_string()).collect();
        let faults = FaultArgs { rules, file: None }.read(1).unwrap();
        DriveConfig { faults, ..spec.resolve().unwrap() }
    }

    fn config(rest: &str, rules: &[&str]) -> DriveConfig {
        config_of("batch", rest, rules)
    }

    /// Pages are written, the power is cut, and all are there.
    #[test]
    fn what_is_below_goes_together() {
        for rest in ["", ",parity=4", ",side=host", ",parity=4,side=host"] {
            for rules in [&[][..], &["below:write,delay=1us", "medium:slow,probability=1"]] {
                let config = config(rest, rules);
                let medium = memory::medium(&config, BLOCK_BYTES as u32).unwrap();
                let device = new_device(&config, 1, medium.into()).unwrap();
                let mut drive = start(&config, device).unwrap();
                drive.lower_mut().set_rules(&config.faults);
                let mut now = drive.now();
                for page in 0..PAGES {
                    let mut buffer = Buffer::zeroed(2 * BLOCK_BYTES as usize).unwrap();
                    Desc::write(&[page], &[], buffer.bytes_mut());
                    buffer.bytes_mut()[BLOCK_BYTES as usize..].fill(page as u8 + 1);
                    let done = act(&mut drive, now, BatchOp::WriteBatch, 0, buffer);
                    assert!(done.status.is_ok(), "{rest}: {:?}", done.status);
                    now = done.at;
                }
                let struck = lower::injected(drive.lower(), &config.faults);
                assert!(struck.iter().all(|one| one.times > 0), "{rest}: {struck:?}");
                let device = drive.into_lower().into_device();
                let chunks = device.chunks().to_vec();
                let medium = device.cut().into_lowest();
                let device = old_device(&config, 1, medium, &chunks, 0).unwrap();
                let (mut drive, _) = recover(&config, device, false, false).unwrap();
                let mut now = drive.now();
                for page in 0..PAGES {
                    let buffer = Buffer::zeroed(BLOCK_BYTES as usize).unwrap();
                    let done = act(&mut drive, now, BatchOp::Read, page, buffer);
                    assert!(done.status.is_ok(), "{rest}: {:?}", done.status);
                    assert!(done.buffer.bytes().iter().all(|&b| b == page as u8 + 1), "{rest}");
                    now = done.at;
                }
            }
        }
    }

    /// On either side a page passes the link once each way.
    #[test]
    fn a_link_is_paid_once() {
        let took = ["device", "host"].map(|side| {
            let config = config(&format!(",side={side},link_latency=200us,link_rate=none"), &[]);
            let medium = memory::medium(&config, BLOCK_BYTES as u32).unwrap();
            let target = start(&config, new_device(&config, 1, medium.into()).unwrap()).unwrap();
            let mut now = target.now();
            let mut drive = device::Link::new(lower::link_above(&config), target);
            let mut buffer = Buffer::zeroed(2 * BLOCK_BYTES as usize).unwrap();
            Desc::write(&[0], &[], buffer.bytes_mut());
            now = act(&mut drive, now, BatchOp::WriteBatch, 0, buffer).at;
            now = act(&mut drive, now, BatchOp::Flush, 0, Buffer::empty()).at;
            let buffer = Buffer::zeroed(BLOCK_BYTES as usize).unwrap();
            act(&mut drive, now, BatchOp::Read, 0, buffer).at.since(now)
        });
        assert!(took.iter().all(|&ns| (400_000..600_000).contains(&ns)), "{took:?}");
    }

    #[test]
    fn what_it_cannot_have_is_refused() {
        for (rest, rules) in
            [(",cache=protected", &[][..]), (",store=none", &[]), ("", &["above:read,delay=1us"])]
        {
            for target in ["batch", "kv"] {
                let config = config_of(target, rest, rules);
                assert_eq!(refuse_layers(&config).unwrap_err().exit_code(), 2, "{target}{rest}");
            }
        }
        // A target=pblk drive that is to keep pages in batches.
        let Ok(DriveSpec::Memory(spec)) = "mem:znand,shards=2".parse() else { panic!() };
        assert_eq!(refuse_layers(&spec.resolve().unwrap()).unwrap_err().exit_code(), 2);
    }
}
