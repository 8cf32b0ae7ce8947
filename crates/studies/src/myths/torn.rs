//! What a power cut leaves of pages that were to change together: old and new ones, or all
//! of one kind.
//!
//! Each time a new drive has the pages in their first version. Then the second is written,
//! and somewhere in the time that this takes the power is cut. The drive is recovered, and
//! the pages are read back.

use device::Device;
use flash::RamMedium;
use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, BlockDone, BlockOp, BlockReq, Buffer, Desc};
use port::{Port, Ring, Time};
use targets::Pblk;
use workload::Rng;

use super::super::lab::config;
use super::super::{Lab, Row, Runs};
use super::atomic::{PAGES, POINT, SAYS, ended_well, one};
use drive::backing::Backing;
use drive::batched::{self, BoxedBatch};
use drive::error::Error;
use drive::spec::DriveConfig;
use drive::stack::{self, new_device, old_device};

/// A small drive that keeps its data.
const DRIVE: &str = "mem:ref,erase=3ms,groups=2,pus=2,chunks=24,pages=32";
/// The power is cut at most so long after the second version was asked for, in ns: a little
/// more than either drive needs for it.
const LATEST: u64 = 2_000_000;

/// A drive that takes pages.
trait Pages: Sized {
    /// A new one.
    fn new(config: &DriveConfig, device: Device<Backing>) -> Result<Self, Error>;
    /// Writes the pages, each of which says its version, and gives up when it is `until`.
    fn write(&mut self, version: u8, until: Time) -> Result<(), Error>;
    /// The time that it has come to.
    fn now(&self) -> Time;
    /// Takes its flash away.
    fn into_device(self) -> Device<Backing>;
    /// The drive that such flash has.
    fn recover(config: &DriveConfig, device: Device<Backing>) -> Result<Self, Error>;
    /// The version of each page.
    fn read(&mut self) -> Result<Vec<u8>, Error>;
}

/// The rows of this point.
pub fn rows(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let cuts = lab.options.pick(400, 60);
    let batch = torn::<Batched>(lab, ",target=batch", cuts)?;
    let plain = torn::<Plain>(lab, "", cuts)?;
    let command = format!(
        "{cuts} power cuts of {DRIVE}, with either target, while {PAGES} pages are written over: \
         in one batch, and one by one with FUA, all at once"
    );
    lab.note_step("power cuts", command, config(DRIVE)?.effective());
    let percent = |torn: u32| Runs::one(100.0 * f64::from(torn) / f64::from(cuts));
    Ok(vec![
        Row::within(
            POINT,
            "transactions that power cuts tear, atomic write",
            "%",
            SAYS,
            percent(batch),
            0.0..=0.0,
        ),
        Row::sign(
            POINT,
            "transactions that power cuts tear, plain writes",
            "%",
            SAYS,
            percent(plain),
            true,
        ),
    ])
}

/// Of so many cuts, those that left pages of both versions.
fn torn<P: Pages>(lab: &mut Lab, more: &str, cuts: u32) -> Result<u32, Error> {
    let config = config(&format!("{DRIVE}{more}"))?;
    let mut rng = Rng::new(lab.options.seed, 3);
    let mut torn = 0;
    for _ in 0..cuts {
        if !lab.watch.look(0.0) {
            return Err(Error::Failed("stopped before its end".into()));
        }
        let medium = RamMedium::new(&config.geometry, BLOCK_BYTES as u32)?;
        let mut drive = P::new(&config, new_device(&config, lab.options.seed, medium.into())?)?;
        drive.write(1, Time(u64::MAX))?;
        let cut = drive.now() + rng.below(LATEST);
        drive.write(2, cut)?;
        let device = drive.into_device();
        let chunks = device.chunks().to_vec();
        let device = old_device(&config, lab.options.seed, device.cut(), &chunks, 0)?;
        let versions = P::recover(&config, device)?.read()?;
        if versions.iter().any(|version| !(1..=2).contains(version)) {
            return Err(Error::Failed(format!("pages are lost: versions {versions:?}")));
        }
        torn += u32::from(versions.iter().any(|version| *version != versions[0]));
    }
    Ok(torn)
}

/// Lets what happens until then happen. Gives how many requests ended, and the time.
fn pass<P: Port + ?Sized>(
    drive: &mut P,
    (mut now, until): (Time, Time),
    (queue, done): (&mut Ring<P::Cmd>, &mut Ring<P::Done>),
    wanted: u64,
) -> Time {
    let mut ended = 0;
    drive.submit(now, queue);
    while let Some(at) = drive.next_event().filter(|&at| ended < wanted && at <= until) {
        now = now.max(at);
        drive.advance(now, done);
        ended += std::iter::from_fn(|| done.pop()).count() as u64;
        drive.submit(now, queue);
    }
    now
}

/// A drive with atomic writes.
struct Batched {
    drive: BoxedBatch,
    now: Time,
}

impl Pages for Batched {
    fn new(config: &DriveConfig, device: Device<Backing>) -> Result<Batched, Error> {
        let drive = batched::start(config, device)?;
        Ok(Batched { now: drive.now(), drive })
    }

    fn write(&mut self, version: u8, until: Time) -> Result<(), Error> {
        let pages: Vec<u64> = (0..PAGES).collect();
        let mut buffer = Buffer::zeroed(self.drive.shape().batch_bytes(pages.len()))?;
        Desc::write(&pages, &[], buffer.bytes_mut());
        buffer.bytes_mut()[BLOCK_BYTES as usize..].fill(version);
        let (mut queue, mut done) = (Ring::<BatchReq>::new(1), Ring::<BatchDone>::new(1));
        queue.put(|| BatchReq { id: 0, op: BatchOp::WriteBatch, lpid: 0, buffer });
        self.now = pass(&mut self.drive, (self.now, until), (&mut queue, &mut done), 1);
        Ok(())
    }

    fn now(&self) -> Time {
        self.now
    }

    fn into_device(self) -> Device<Backing> {
        self.drive.into_lower().into_device()
    }

    fn recover(config: &DriveConfig, device: Device<Backing>) -> Result<Batched, Error> {
        let (drive, _) = batched::recover(config, device, false, false)?;
        Ok(Batched { now: drive.now(), drive })
    }

    fn read(&mut self) -> Result<Vec<u8>, Error> {
        let mut versions = Vec::new();
        let (mut queue, mut done) = (Ring::<BatchReq>::new(1), Ring::<BatchDone>::new(1));
        for lpid in 0..PAGES {
            let buffer = Buffer::zeroed(BLOCK_BYTES as usize)?;
            queue.put(|| BatchReq { id: 0, op: BatchOp::Read, lpid, buffer });
            self.now = one(&mut self.drive, self.now, &mut queue, &mut done)?;
            let read = done.pop();
            ended_well(read.as_ref().map(|done| done.status))?;
            versions.extend(read.map(|done| done.buffer.bytes()[0]));
        }
        Ok(versions)
    }
}

/// A drive without, whose pages are written one by one, all at once.
struct Plain {
    drive: Pblk<Device<Backing>>,
    now: Time,
}

fn request(op: BlockOp, page: u64, version: u8) -> Result<BlockReq, Error> {
    let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize)?;
    buffer.bytes_mut().fill(version);
    let (offset, len, fua) = (page * BLOCK_BYTES, BLOCK_BYTES, op == BlockOp::Write);
    Ok(BlockReq { fua, ..BlockReq::new(page, op, offset, len, buffer) })
}

impl Pages for Plain {
    fn new(config: &DriveConfig, device: Device<Backing>) -> Result<Plain, Error> {
        let drive = stack::new_target(config, device, stack::target(config, 0))?;
        Ok(Plain { drive, now: Time::ZERO })
    }

    fn write(&mut self, version: u8, until: Time) -> Result<(), Error> {
        let room = PAGES as usize;
        let (mut queue, mut done) = (Ring::<BlockReq>::new(room), Ring::<BlockDone>::new(room));
        for page in 0..PAGES {
            let request = request(BlockOp::Write, page, version)?;
            queue.put(|| request);
        }
        self.now = pass(&mut self.drive, (self.now, until), (&mut queue, &mut done), PAGES);
        Ok(())
    }

    fn now(&self) -> Time {
        self.now
    }

    fn into_device(self) -> Device<Backing> {
        self.drive.into_device()
    }

    fn recover(config: &DriveConfig, device: Device<Backing>) -> Result<Plain, Error> {
        let recovered = Pblk::recover(device, stack::target(config, 0), Time::ZERO);
        let (drive, now) = recovered.map_err(|e| Error::Failed(e.to_string()))?;
        Ok(Plain { drive, now })
    }

    fn read(&mut self) -> Result<Vec<u8>, Error> {
        let mut versions = Vec::new();
        let (mut queue, mut done) = (Ring::<BlockReq>::new(1), Ring::<BlockDone>::new(1));
        for page in 0..PAGES {
            let request = request(BlockOp::Read, page, 0)?;
            queue.put(|| request);
            self.now = one(&mut self.drive, self.now, &mut queue, &mut done)?;
            let read = done.pop();
            ended_well(read.as_ref().map(|done| done.status))?;
            versions.extend(read.map(|done| done.buffer.bytes()[0]));
        }
        Ok(versions)
    }
}
