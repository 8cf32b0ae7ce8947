//! Drives that keep values by key: `target=kv`.
//!
//! Such a drive takes key-value requests and has no blocks ([`targets::Kv`]). How many
//! keys it has room for is a part of its configuration (`keys=`), as is its size, which
//! is what its records may take. What is below its target is as of any drive
//! ([`Lower`]). One in a file is found again as it was left. May fail: the drive is too
//! small or has layers that its kind cannot have, or what it holds cannot be recovered.

use std::time::Instant;

use device::{Device, OpenChannel};
use flash::Geometry;
use ftl::Halt;
use port::{BLOCK_BYTES, BlockOp, KvDone, KvOp, KvReq, KvShape, Port, Ring, Status, Time};
use targets::kv::{Kv, KvConfig, KvError, KvRecovery};

use crate::backing::Backing;
use crate::batched::refuse_layers;
use crate::error::Error;
use crate::live::Work;
use crate::lower::{self, Flash, Lower};
use crate::memory;
use crate::restore::Recovery;
use crate::spec::DriveConfig;
use crate::stack::{new_device, old_device};

/// Operations of blocks that requests are counted as.
const KINDS: usize = 4;

/// A drive that keeps values by key, and counts what is asked of it.
pub struct KvDrive {
    target: Kv<Flash>,
    works: [Work; KINDS],
}

impl KvDrive {
    fn new(target: Kv<Flash>) -> KvDrive {
        KvDrive { target, works: Default::default() }
    }

    /// The target.
    pub fn target(&self) -> &Kv<Flash> {
        &self.target
    }

    /// What its start found.
    pub fn recovery(&self) -> &KvRecovery {
        self.target.recovery()
    }

    /// Its outside.
    pub fn shape(&self) -> KvShape {
        *self.target.shape()
    }

    /// What is below it.
    pub fn lower(&self) -> &dyn Lower {
        self.target.below()
    }

    /// What is below it.
    pub fn lower_mut(&mut self) -> &mut dyn Lower {
        self.target.below_mut()
    }

    /// Its requests, counted as those of a block drive that are most like them: gets,
    /// listings and `Exists` as reads, puts as writes, deletes as trims.
    pub fn works(&self) -> impl Iterator<Item = &Work> {
        self.works.iter()
    }

    fn count(&mut self, done: &KvDone) {
        let (op, bytes) = match done.op {
            KvOp::Get | KvOp::List => (BlockOp::Read, done.len.min(done.value.len() as u64)),
            KvOp::Exists => (BlockOp::Read, 0),
            KvOp::Put(_) => (BlockOp::Write, done.value.len() as u64),
            KvOp::Delete => (BlockOp::Trim, 0),
            KvOp::Flush => (BlockOp::Flush, 0),
        };
        let is_answer = matches!(done.status, Status::KEY_NOT_FOUND | Status::KEY_EXISTS);
        let work = &mut self.works[op as usize];
        work.requests += 1;
        match done.status.is_ok() || is_answer {
            true => work.bytes += if is_answer { 0 } else { bytes },
            false => work.failures += 1,
        }
    }
}

impl Port for KvDrive {
    type Cmd = KvReq;
    type Done = KvDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<KvReq>) {
        self.target.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.target.next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<KvDone>) {
        let first = done.len();
        self.target.advance(to, done);
        for at in first..done.len() {
            if let Some(one) = done.get(at) {
                self.count(one);
            }
        }
    }
}

/// Whether there can be such a drive, wherever its bytes are.
pub fn check(config: &DriveConfig, seed: u64) -> Result<(), Error> {
    let medium = memory::medium(config, BLOCK_BYTES as u32)?;
    start(config, seed, new_device(config, seed, medium.into())?).map(drop)
}

/// Makes a drive on a device that holds nothing, or finds what is on it.
pub fn start(config: &DriveConfig, seed: u64, device: Device<Backing>) -> Result<KvDrive, Error> {
    refuse_layers(config)?;
    let flash = lower::before(config, device, None)?;
    let set_up = set_up(config, seed, flash.geometry());
    let opened = Kv::recover(flash, set_up, Time::ZERO);
    let (target, _) = opened.map_err(|e| why(config, e))?;
    Ok(KvDrive::new(target))
}

/// How such a target is set up on what it has.
pub(crate) fn set_up(config: &DriveConfig, seed: u64, geometry: &Geometry) -> KvConfig {
    KvConfig { seed, ..KvConfig::for_size(geometry, config.keys(), config.size) }
}

/// Why such a target cannot be, or is not found again.
pub(crate) fn why(config: &DriveConfig, e: KvError) -> Error {
    let text = format!("{}: {e}", config.name);
    match e {
        KvError::Memory(e) | KvError::Halt(Halt::Memory(e)) => Error::Memory(e),
        KvError::Range { .. }
        | KvError::TooSmall { .. }
        | KvError::Unreadable(_)
        | KvError::OpenChunks => Error::Usage(text),
        _ => Error::Failed(text),
    }
}

/// Finds what a device holds, and tells how.
pub fn recover(
    config: &DriveConfig,
    seed: u64,
    device: Device<Backing>,
    clean: bool,
) -> Result<(KvDrive, Recovery), Error> {
    let began = Instant::now();
    let drive = start(config, seed, device)?;
    let recovery =
        Recovery { wall: began.elapsed(), drive: drive.target.now(), clean, journal: None };
    Ok((drive, recovery))
}

/// Shuts a drive down that nobody uses, at `now`: a checkpoint is written, so that its
/// next start reads few rows.
pub fn end(mut drive: KvDrive, now: Time) -> Result<(), Error> {
    lower::calm(drive.lower_mut());
    let at = now.max(drive.target.now());
    let at = lower::settle(&mut drive, at);
    if !drive.target.is_read_only() {
        drive.target.request_checkpoint();
    }
    lower::settle(&mut drive, at);
    let failed = drive.target.is_read_only();
    let fault = failed.then(|| Error::Failed("the drive could not write its records".into()));
    lower::put_away(drive.target.into_below(), fault)
}

/// A drive as a power cut left it, found again.
pub fn cut(config: &DriveConfig, seed: u64, drive: KvDrive) -> Result<KvDrive, Error> {
    let device = drive.target.into_below().into_device();
    let chunks = device.chunks().to_vec();
    start(config, seed, old_device(config, seed, device.cut().into_lowest(), &chunks, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;
    use port::{Buffer, PutIf};

    fn buffer(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len()).unwrap();
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// One request; gives what came of it.
    fn act<P>(drive: &mut P, now: &mut Time, op: KvOp, key: &[u8], value: Buffer) -> KvDone
    where
        P: Port<Cmd = KvReq, Done = KvDone>,
    {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        let len = if matches!(op, KvOp::Put(_)) { value.len() as u64 } else { 0 };
        cmds.put(|| KvReq { id: 0, op, durable: true, key: buffer(key), len, value });
        drive.submit(*now, &mut cmds);
        loop {
            let at = drive.next_event().expect("it is inside");
            *now = at.max(*now);
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                return done;
            }
        }
    }

    fn config(rest: &str, rules: &[&str]) -> DriveConfig {
        crate::batched::tests::config_of("kv", rest, rules)
    }

    fn new(config: &DriveConfig) -> KvDrive {
        let medium = memory::medium(config, BLOCK_BYTES as u32).unwrap();
        start(config, 1, new_device(config, 1, medium.into()).unwrap()).unwrap()
    }

    fn value(key: usize) -> Vec<u8> {
        let len = if key.is_multiple_of(5) { 300_000 } else { key * 37 };
        (0..len).map(|at| (at * 7 + key) as u8).collect()
    }

    /// Values small and large are put, the power is cut, and all are there.
    #[test]
    fn what_is_below_goes_together() {
        for rest in ["", ",parity=4", ",side=host", ",parity=4,side=host", ",keys=1000"] {
            for rules in [&[][..], &["below:write,delay=1us", "medium:slow,probability=1"]] {
                let config = config(rest, rules);
                let mut drive = new(&config);
                drive.lower_mut().set_rules(&config.faults);
                let mut now = drive.target.now();
                for key in 0..20 {
                    let op = KvOp::Put(PutIf::Any);
                    let name = key.to_string();
                    let done = act(&mut drive, &mut now, op, name.as_bytes(), buffer(&value(key)));
                    assert!(done.status.is_ok(), "{rest}: {:?}", done.status);
                }
                let struck = lower::injected(drive.lower(), &config.faults);
                assert!(struck.iter().all(|one| one.times > 0), "{rest}: {struck:?}");
                let writes = &drive.works[BlockOp::Write as usize];
                assert_eq!((writes.requests, writes.failures), (20, 0), "{rest}");
                let mut drive = cut(&config, 1, drive).unwrap();
                let mut now = drive.target.now();
                for key in 0..20 {
                    let room = Buffer::zeroed(300_000).unwrap();
                    let name = key.to_string();
                    let done = act(&mut drive, &mut now, KvOp::Get, name.as_bytes(), room);
                    let len = done.len as usize;
                    assert!(done.status.is_ok(), "{rest}: {:?}", done.status);
                    assert!(done.value.bytes()[..len] == value(key), "{rest}: {key}");
                }
                assert_eq!(drive.target.keys(), 20);
            }
        }
    }

    /// On either side a value passes the link once each way.
    #[test]
    fn a_link_is_paid_once() {
        let took = ["device", "host"].map(|side| {
            let config = config(&format!(",side={side},link_latency=200us,link_rate=none"), &[]);
            let target = new(&config);
            let mut now = target.target.now();
            let mut drive = device::Link::new(lower::link_above(&config), target);
            let put = KvOp::Put(PutIf::Any);
            act(&mut drive, &mut now, put, b"key", buffer(b"value"));
            let before = now;
            act(&mut drive, &mut now, KvOp::Get, b"key", Buffer::zeroed(9).unwrap());
            now.since(before)
        });
        assert!(took.iter().all(|&ns| (400_000..600_000).contains(&ns)), "{took:?}");
    }

    /// A drive has room for as many keys and bytes as its name says.
    #[test]
    fn it_has_the_room_that_its_name_says() {
        for rest in ["", ",keys=100", ",keys=200000", ",parity=4,keys=50000"] {
            let config = config(rest, &[]);
            let (_, room) = new(&config).target.stored();
            assert!(room >= 16 << 20, "{rest}: {room}");
            assert!(room < 17 << 20 || config.spare() < 0.05, "{rest}: {room}");
        }
        assert_eq!((config("", &[]).keys(), config(",keys=7", &[]).keys()), (4096, 7));
    }

    #[test]
    fn what_it_cannot_have_is_refused() {
        for name in ["mem:znand,shards=2,target=kv", "mem:tlc,keys=7", "mem:tlc,keys=0,target=kv"] {
            let spec = name.parse();
            let Ok(DriveSpec::Memory(spec)) = spec else { continue };
            assert!(spec.resolve().is_err(), "{name}");
        }
    }
}
