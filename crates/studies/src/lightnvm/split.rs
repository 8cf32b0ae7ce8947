//! Who keeps which duties (LightNVM, figure 1): all in the drive, all in the host, and some
//! in each. In virtual time, of one drive whose translation layer is below its link, or
//! above it.
//!
//! Shared here means: the host decides what is collected and where to, the drive moves it
//! inside a die (`copyback`); and the drive keeps of each block whose it is, as the host
//! said with the write (thesis, chapter 6, section 4.3), from which the host finds its map
//! again after a cut.

use device::{Device, Link, OpenChannel};
use flash::{Profile, RamMedium};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Time, random};
use serde_json::json;
use targets::{Pblk, PblkConfig, with_reserve};

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::through;
use crate::ull::drives::STEADY;
use drive::error::Error;

const FIGURE: &str = "figure 1: who keeps which duties";
const SPLIT: &str = "\"splits the responsibility such that the host only manages log-structured \
                     writes, media management using device feedback, and wear-leveling\"";
const SILENT: &str = "the paper gives no number";

/// A drive on a link that the user's writes nearly fill. No data.
const DRIVE: &str = "mem:tlc,store=none,link_rate=200MB/s";
const WAYS: [(&str, &str); 3] = [
    ("in the drive", "side=device"),
    ("in the host", "side=host"),
    ("shared", "side=host,copyback=3"),
];

/// What a way of sharing duties comes to.
struct Way {
    iops: f64,
    amplification: f64,
    /// Mean of lone reads, in us.
    read: f64,
}

fn way(lab: &mut Lab, (name, keys): (&str, &str)) -> Result<Way, Error> {
    let (size, ios) = lab.options.pick(("1G", "100k"), ("256M", "30k"));
    let drive = format!("{DRIVE},size={size},{keys}");
    let lone = format!("{drive} --rw randread --ios 5k --precondition seq");
    let lone = lab.bench(&format!("duties {name}: a read alone"), &lone)?.report;
    // Long writes, so that some rows stay whole and can be copied.
    let steady = format!("{drive} --rw randwrite --hot 10:90 --bs 64k --qd 32 --ios {ios}");
    let steady = format!("{steady} {STEADY}");
    let report = lab.bench(&format!("duties {name}: writes"), &steady)?.report;
    let wrote = report.write_amplification.as_ref();
    let amplification = wrote.map_or(f64::NAN, |wa| wa.total);
    let read = lone.latency_ns.mean.unwrap_or(f64::NAN) / 1e3;
    Ok(Way { iops: report.iops, amplification, read })
}

/// What a start after a cut came to.
struct Start {
    /// Until the target takes requests, in ms of drive time.
    ready: f64,
    /// Blocks that were neither as they were flushed nor as they were written since.
    lost: u64,
    /// Blocks on the link, both ways, for each that was written before the cut; none where
    /// the target is below it.
    crossed: Option<f64>,
}

/// A target below its link has the device at once; one above it by the link.
trait Between: OpenChannel + Sized {
    fn over(device: Device<RamMedium>, profile: &Profile) -> Self;
    fn device(self) -> Device<RamMedium>;
    /// Bytes of data that the link above the device has carried.
    fn carried(&self) -> Option<u64>;
}

impl Between for Device<RamMedium> {
    fn over(device: Device<RamMedium>, _profile: &Profile) -> Self {
        device
    }

    fn device(self) -> Device<RamMedium> {
        self
    }

    fn carried(&self) -> Option<u64> {
        None
    }
}

impl Between for Link<Device<RamMedium>> {
    fn over(device: Device<RamMedium>, profile: &Profile) -> Self {
        Link::new(profile.link, device)
    }

    fn device(self) -> Device<RamMedium> {
        self.into_below()
    }

    fn carried(&self) -> Option<u64> {
        Some(Link::carried(self))
    }
}

/// Bytes that the medium keeps of a block: a digest, here its version.
const KEPT: u32 = 8;

/// A block request with a version for data.
fn request(id: u64, op: BlockOp, block: u64, version: u64, mut buffer: Buffer) -> BlockReq {
    let data = op != BlockOp::Flush;
    if data {
        buffer.bytes_mut().copy_from_slice(&version.to_le_bytes());
    }
    let (offset, len) = if data { (block * BLOCK_BYTES, BLOCK_BYTES) } else { (0, 0) };
    BlockReq::new(id, op, offset, len, buffer)
}

/// The block of write `id`: each once, then any.
fn target_of(id: u64, blocks: u64, seed: u64) -> u64 {
    if id < blocks { id } else { random::mix(seed ^ id) % blocks }
}

/// Writes a drive of `blocks` once and then over at random, flushes, writes on, cuts its
/// power amid that, and starts it again.
fn start<D: Between>(blocks: u64, seed: u64) -> Result<Start, Error> {
    let bytes = blocks * BLOCK_BYTES;
    let (profile, data) = through::data("tlc", bytes * 5 / 4)?;
    let geometry = through::geometry(with_reserve(data))?;
    let config = through::pblk_config(bytes, &data, seed);
    let medium = RamMedium::new(&geometry, KEPT)?;
    let device = Device::new(&geometry, &profile.timing, medium)?;
    let mut pblk = Pblk::new(D::over(device, &profile), config)?;
    let mut flushed = vec![0; blocks as usize];
    let end = |done: BlockDone| (done.status, done.buffer);
    let writes = 2 * blocks;
    let to = |id| target_of(id, blocks, seed);
    let write = |id: u64, buffer| request(id, BlockOp::Write, to(id), id + 1, buffer);
    (0..writes).for_each(|id| flushed[to(id) as usize] = id + 1);
    let mut buffers = Buffer::carve(128, KEPT as usize)?;
    let now = through::send(&mut pblk, Time::ZERO, writes, &mut buffers, write, end)?;
    let flush = |id, buffer| request(id, BlockOp::Flush, 0, 0, buffer);
    let now = through::send(&mut pblk, now, 1, &mut vec![Buffer::empty()], flush, end)?;
    // What ended of these is in part on flash, in part on its way, in part in the buffer only.
    let (since, mut sent) = ([blocks, blocks / 2], writes);
    let more = |id: u64, buffer| {
        sent = sent.max(writes + id + 1);
        write(writes + id, buffer)
    };
    through::begin(&mut pblk, now, since, &mut buffers, more, end)?;
    let link = pblk.into_device();
    let written = (writes + since[1]) * BLOCK_BYTES;
    let crossed = link.carried().map(|bytes| bytes as f64 / written as f64);
    let device = link.device();
    let (chunks, medium) = (device.chunks().to_vec(), device.cut());
    let device = Device::restore(&geometry, &profile.timing, medium, &chunks)?;
    let (mut pblk, ready) = recovered(D::over(device, &profile), config)?;
    let mut lost = 0;
    let read = |id: u64, buffer| request(id, BlockOp::Read, id, 0, buffer);
    let check = |done: BlockDone| {
        let is = u64::from_le_bytes(done.buffer.bytes().try_into().expect("8 bytes"));
        let is_newer = (writes + 1..=sent).contains(&is) && to(is - 1) == done.id;
        lost += u64::from(is != flushed[done.id as usize] && !is_newer);
        (done.status, done.buffer)
    };
    let mut buffers = Buffer::carve(128, KEPT as usize)?;
    through::send(&mut pblk, ready, blocks, &mut buffers, read, check)?;
    Ok(Start { ready: ready.0 as f64 / 1e6, lost, crossed })
}

fn recovered<D: OpenChannel>(device: D, config: PblkConfig) -> Result<(Pblk<D>, Time), Error> {
    Pblk::recover(device, config, Time::ZERO).map_err(|e| Error::Failed(e.to_string()))
}

/// The rows of this figure.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let [drive, host, shared] = WAYS;
    let (drive, host, shared) = (way(lab, drive)?, way(lab, host)?, way(lab, shared)?);
    let (blocks, seed) = (lab.options.pick(1 << 17, 1 << 14), lab.options.seed);
    lab.watch.phase("starts after a cut");
    let starts = [start::<Device<RamMedium>>(blocks, seed)?, start::<Link<_>>(blocks, seed)?];
    let command = format!(
        "profile tlc, {blocks} blocks written twice, flushed, half of it written again, cut, started"
    );
    lab.note_step("starts after a cut", command, json!({ "blocks": blocks }));
    let mut rows = of_ways(&drive, &host, &shared);
    rows.extend(of_starts(&starts));
    let notes = vec![
        "figure 1 (c), of what a drive of ours does: it keeps bad blocks, errors and their \
         correction, tells by notices what should be written anew, and moves rows inside dies; \
         what is not here is a drive that keeps the host's map and gives it back as one: the host \
         keeps its map in checkpoints of its own, and finds what came later by the addresses that \
         the drive has kept with each block"
            .into(),
    ];
    Ok(Findings::new(rows, notes))
}

fn of_ways(drive: &Way, host: &Way, shared: &Way) -> Vec<Row> {
    let one = Runs::one;
    let ratio = |what, value, within| Row::within(FIGURE, what, "x", SILENT, one(value), within);
    let shown = |what: &str, unit, value| {
        Row::shown(FIGURE, what, unit, Reference::Silent, one(value), SILENT)
    };
    vec![
        ratio("a read alone: in the host, over in the drive", host.read / drive.read, 0.99..=1.01),
        ratio(
            "write amplification: in the host, over in the drive",
            host.amplification / drive.amplification,
            0.95..=1.05,
        ),
        Row::order(
            FIGURE,
            "IOPS",
            SPLIT,
            [
                ("writes of 64 KiB: in the drive", one(drive.iops)),
                ("shared", one(shared.iops)),
                ("in the host", one(host.iops)),
            ],
        ),
        shown("write amplification, in the host", "x", host.amplification),
    ]
}

fn of_starts([drive, host]: &[Start; 2]) -> Vec<Row> {
    let says = "\"On device bring up, the mapping table is loaded from disk\"";
    let lost = (drive.lost + host.lost) as f64;
    let shown = |what: &str, unit, value, why| {
        Row::shown(FIGURE, what, unit, Reference::Silent, Runs::one(value), why)
    };
    let crossed = host.crossed.unwrap_or(f64::NAN);
    vec![
        Row::within(
            FIGURE,
            "flushed blocks that were not found after a cut amid writes",
            "blocks",
            "\"communicate the mapping directly to the device\"",
            Runs::one(lost),
            0.0..=0.0,
        ),
        shown("over the link a block written, in the host, 4 KiB", "blocks", crossed, SILENT),
        shown("start after a cut, in the host", "ms", host.ready, says),
        shown("the same, in the drive", "ms", drive.ready, says),
    ]
}
