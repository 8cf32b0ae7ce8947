//! The size of the write buffer: what completes before a program ends, what is refused,
//! and that a small one loses nothing and stands still nowhere.

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, with_reserve};

const BLOCK: u64 = 4096;
/// Blocks of a row: a page of 16 KiB on each of two planes.
const ROW: u64 = 8;
const UNITS: u64 = 4;

type Drive = Pblk<Device<ScriptedMedium>>;

fn drive(write_buffer: u64, streams: u32) -> Result<Drive, PblkError> {
    let dim = Dimensions {
        groups: 2,
        pus: 2,
        chunks: 20,
        pages: 16,
        planes: 2,
        page_bytes: 16384,
        pages_at_once: 1,
    };
    let mut dim = with_reserve(dim);
    dim.chunks += streams - 1;
    let geometry = Geometry::new(dim).unwrap();
    let timing = Timing { read: vec![50_000], program: vec![600_000], ..Timing::default() };
    let device = Device::new(&geometry, &timing, ScriptedMedium::ram(&geometry, 0, ())).unwrap();
    let config = PblkConfig {
        streams,
        write_buffer,
        ..PblkConfig::new(UNITS * 20 * 128 * BLOCK * 4 / 5, 20, 3)
    };
    Pblk::new(device, config)
}

fn write(id: u64, placement: u8) -> BlockReq {
    let (op, offset, len) = (BlockOp::Write, id * BLOCK, BLOCK);
    let (fua, queue, buffer) = (false, 0, Buffer::empty());
    BlockReq { id, op, fua, placement, queue, offset, len, buffer }
}

/// Writes each of 800 blocks once, all asked for at the beginning. Gives when each
/// completed, in that order.
fn times(mut drive: Drive, streams: u64) -> Vec<Time> {
    let (mut queue, mut done) = (Ring::new(1024), Ring::<BlockDone>::new(64));
    (0..800).for_each(|id| queue.put(|| write(id, (id % streams) as u8)));
    drive.submit(Time::ZERO, &mut queue);
    assert!(queue.is_empty());
    let mut all = Vec::new();
    while let Some(at) = drive.next_event().filter(|_| all.len() < 800) {
        drive.advance(at, &mut done);
        all.extend(done.drain().inspect(|done| assert!(done.status.is_ok())).map(|done| done.at));
    }
    all
}

#[test]
fn so_many_blocks_complete_before_a_program_ends() {
    // Nobody says: four rows a unit. What is no whole row is left out.
    for (bytes, rows) in [(0, 16), (8 * ROW * BLOCK, 8), (12 * ROW * BLOCK - 1, 11), (3 << 20, 96)]
    {
        let all = times(drive(bytes, 1).unwrap(), 1);
        let at_once = all.iter().filter(|&&at| at == Time::ZERO).count() as u64;
        assert_eq!((at_once, all.len()), ((rows * ROW).min(800), 800), "{bytes} bytes");
        // From then on as programs end, of which four units do one each at a time.
        let next = all.iter().filter(|&&at| at == Time(600_000)).count() as u64;
        assert_eq!(next, (UNITS * ROW).min(800 - at_once), "{bytes} bytes");
    }
}

#[test]
fn the_smallest_serves_all_streams() {
    for streams in 1..=4 {
        let all = times(drive(8 * ROW * BLOCK, streams).unwrap(), streams.into());
        assert_eq!(all.len(), 800, "{streams} streams");
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for bytes in [1, 8 * ROW * BLOCK - 1, (1 << 30) + 1] {
        let Err(e) = drive(bytes, 1) else { panic!("{bytes} bytes") };
        let text = e.to_string();
        assert!(text.contains("write_buffer") && text.contains("256 KiB to 1 GiB"), "{text}");
    }
}
