//! Drives of several targets for tests, and how they are asked.

use std::convert::Infallible;

use device::{Device, OpenChannel};
use flash::{Dimensions, Geometry, RamMedium, Timing};
use media::{Claim, Partition, Place, Placement, Shared};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, Victim, with_reserve};

pub const BLOCK: u64 = 4096;

/// Chunks of each unit that hold a target's data.
const DATA_CHUNKS: u32 = 8;

pub type Flash = Device<RamMedium>;
pub type Drive = Shared<Flash, Pblk<Partition<Flash>>>;

/// The geometry of a target of so many units.
fn dimensions(groups: u32, pus: u32) -> Dimensions {
    with_reserve(Dimensions {
        groups,
        pus,
        chunks: DATA_CHUNKS,
        pages: 4,
        planes: 1,
        page_bytes: 16384,
        pages_at_once: 1,
    })
}

pub fn timing() -> Timing {
    Timing {
        read: vec![50_000],
        program: vec![600_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        ..Timing::default()
    }
}

/// A device of so many groups of units, with chunks for so many targets on each.
pub fn flash(groups: u32, pus: u32, targets_a_unit: u32, timing: &Timing) -> Flash {
    // The fewer units a target has, the more of their chunks it needs for itself.
    let chunks = dimensions(1, 1).chunks * targets_a_unit;
    let geometry = Geometry::new(Dimensions { chunks, ..dimensions(groups, pus) }).unwrap();
    Device::new(&geometry, timing, RamMedium::new(&geometry, BLOCK as u32).unwrap()).unwrap()
}

pub fn claim(place: Place, depth: usize) -> Claim {
    Claim { place, first: None, depth, open_chunks: (u32::MAX, u32::MAX), chunk_time: 0 }
}

pub fn config(geometry: &Geometry) -> PblkConfig {
    let blocks = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
    PblkConfig {
        bytes: blocks * 3 / 4 * BLOCK,
        data_chunks: DATA_CHUNKS,
        idle: 0,
        streams: 1,
        map_pages: 0,
        write_buffer: 0,
        idle_collection: 0,
        victim: Victim::Greedy,
        seed: 7,
    }
}

pub fn pblk(partition: Partition<Flash>) -> Result<Pblk<Partition<Flash>>, PblkError> {
    let config = config(partition.geometry());
    Pblk::new(partition, config)
}

/// A drive of so many targets that share it evenly.
pub fn shared(placement: Placement, targets: u32, groups: u32, pus: u32, timing: &Timing) -> Drive {
    let a_unit = if placement == Placement::Stripe { targets } else { 1 };
    let device = flash(groups, pus, a_unit, timing);
    let geometry = *device.geometry();
    let mut drive = Shared::new(device);
    for n in 0..targets {
        let place = placement.place(&geometry, targets, n).unwrap();
        assert_eq!(drive.create(&claim(place, 128), pblk).unwrap(), n as usize);
    }
    drive
}

/// The same drive, found again after a cut.
pub fn found(drive: Drive, places: Vec<Place>) -> (Drive, Time) {
    let device = drive.into_device();
    let (geometry, timing) = (*device.geometry(), device.timing().clone());
    let chunks = device.chunks().to_vec();
    let device = Device::restore(&geometry, &timing, device.cut(), &chunks).unwrap();
    let mut drive = Shared::new(device);
    let mut now = Time::ZERO;
    for place in places {
        let find = |partition: Partition<Flash>, now| {
            let config = config(partition.geometry());
            Pblk::recover(partition, config, now)
        };
        let found = drive.found(&claim(place, 128), now, find).unwrap();
        assert!(found.lost.is_none(), "{:?}", found.lost);
        now = found.ready;
    }
    (drive, now)
}

pub fn request(id: u64, op: BlockOp, offset: u64, len: u64, fill: u8) -> BlockReq {
    let is_data = matches!(op, BlockOp::Read | BlockOp::Write);
    let mut buffer = Buffer::zeroed(if is_data { len as usize } else { 0 }).unwrap();
    buffer.bytes_mut().fill(fill);
    BlockReq { id, op, fua: false, placement: 0, queue: 0, offset, len, buffer }
}

/// Asks one thing and waits for it.
pub fn act<P>(drive: &mut P, now: Time, req: BlockReq) -> (BlockDone, Time)
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.push(req).unwrap();
    let mut now = now;
    loop {
        drive.submit(now, &mut cmds);
        let at = drive.next_event().expect("it is inside");
        now = now.max(at);
        drive.advance(at, &mut done);
        if let Some(done) = done.pop() {
            return (done, now);
        }
    }
}

/// Lets all that is under way end.
pub fn rest<P>(drive: &mut P, now: Time) -> Time
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let (mut done, mut now) = (Ring::new(8), now);
    while let Some(at) = drive.next_event() {
        now = now.max(at);
        drive.advance(at, &mut done);
        assert!(done.is_empty(), "nobody asked anything");
    }
    now
}

/// That a target cannot be made.
pub fn never(_: Partition<Flash>) -> Result<Pblk<Partition<Flash>>, Infallible> {
    unreachable!("its chunks cannot be had")
}
