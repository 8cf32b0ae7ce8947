//! Drives that limit how many chunks are open: what is refused, and that one with just
//! room enough never runs into its limits.

use device::Device;
use flash::{ChunkState, Dimensions, Geometry, RamMedium, SlcCache, SlcSize, Timing};
use port::random::mix;
use port::{BLOCK_BYTES, BlockOp, Time};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, with_reserve};

const DATA_CHUNKS: u32 = 8;

type Host = crate::host::Host<Pblk<Device<RamMedium>>, Geometry>;

/// With limits that leave room for so many chunks more than the target needs, in all and
/// in each parallel unit.
pub fn limited(timing: Timing, geometry: &Geometry, streams: u32, more: (u32, u32)) -> Timing {
    let units = geometry.total_pus();
    let (all, of_pu) = (units * (streams + 2) + units.min(2), streams + 3);
    Timing { open_chunks: all + more.0, open_chunks_pu: of_pu + more.1, ..timing }
}

fn timing() -> Timing {
    Timing { read: vec![1_000], program: vec![5_000], erase: 3_000, ..Timing::default() }
}

fn geometry(pus: u32, streams: u32) -> Geometry {
    let dim =
        Dimensions { pus, chunks: DATA_CHUNKS, pages: 6, page_bytes: 16384, ..Dimensions::LEAST };
    let dim = with_reserve(dim);
    Geometry::new(Dimensions { chunks: dim.chunks + streams - 1, ..dim }).unwrap()
}

fn config(g: &Geometry, streams: u32) -> PblkConfig {
    let space = u64::from(DATA_CHUNKS * g.chunk_blocks() * g.total_pus());
    PblkConfig { streams, ..PblkConfig::new(space * 3 / 4 * BLOCK_BYTES, DATA_CHUNKS, 7) }
}

fn device(g: &Geometry, timing: &Timing) -> Device<RamMedium> {
    Device::new(g, timing, RamMedium::new(g, 8).unwrap()).unwrap()
}

/// Open chunks of the drive, and of the parallel unit with the most.
fn open(host: &Host) -> (u32, u32) {
    let (g, device) = (host.more, host.drive.device());
    let of = |pu| {
        let all = (0..g.chunks()).map(|n| device.chunks()[g.chunk_of(pu, n)]);
        all.filter(|chunk| chunk.state == ChunkState::Open).count() as u32
    };
    let all: Vec<u32> = g.pus_channels_first().map(of).collect();
    (all.iter().sum(), all.into_iter().max().unwrap_or(0))
}

#[test]
fn limits_below_what_is_needed_are_refused_with_the_numbers() {
    for (pus, streams, needed, needed_of_pu) in [(1, 1, 4, 4), (2, 1, 8, 4), (3, 2, 14, 5)] {
        let g = geometry(pus, streams);
        let make = |most, most_of_pu| {
            let timing = Timing { open_chunks: most, open_chunks_pu: most_of_pu, ..timing() };
            Pblk::new(device(&g, &timing), config(&g, streams)).map(|_| ())
        };
        let none = u32::MAX;
        for (most, most_of_pu) in [(needed, needed_of_pu), (needed, none), (none, needed_of_pu)] {
            assert!(make(most, most_of_pu).is_ok());
        }
        for (most, most_of_pu) in [(needed - 1, none), (none, needed_of_pu - 1), (1, 1)] {
            let e = make(most, most_of_pu).unwrap_err();
            let says = format!("{needed} chunks are open at a time, up to {needed_of_pu} of");
            assert!(e.to_string().starts_with(&says), "{e}");
            assert!(matches!(e, PblkError::OpenChunks { .. }));
        }
        let e = make(needed - 1, none).unwrap_err().to_string();
        assert!(
            e.contains(&format!("open_chunks is {} and open_chunks_pu none", needed - 1)),
            "{e}"
        );
    }
}

/// With room for what is needed and no more a drive lives as any other: it takes no
/// write that is refused (of that a chunk would be retired), and after each request no
/// more are open than may be. `openings_at_once.rs` looks after each event.
#[test]
fn a_drive_with_just_room_enough_never_runs_into_its_limits() {
    for (pus, streams, copyback, more) in [
        (1, 1, 0, (0, 0)),
        (2, 1, 0, (0, 9)),
        (2, 1, 3, (9, 0)),
        (3, 2, 0, (0, 0)),
        (2, 3, 2, (1, 0)),
    ] {
        for slc in
            [SlcCache::default(), SlcCache { size: SlcSize::Share(20_000), ..SlcCache::default() }]
        {
            let g = geometry(pus, streams);
            let timing = limited(Timing { copyback, slc, ..timing() }, &g, streams, more);
            let mut host = Host::new(
                Pblk::new(device(&g, &timing), config(&g, streams)).unwrap(),
                Time::ZERO,
                g,
            );
            let blocks = config(&g, streams).bytes / BLOCK_BYTES;
            let mut values = vec![0; blocks as usize];
            let mut most = (0, 0);
            for value in 1..30 * blocks {
                let draw = mix(value + u64::from(pus));
                let block = if value <= blocks { value - 1 } else { draw % blocks };
                host.placement = (draw >> 40) as u8 % streams as u8;
                host.good(BlockOp::Write, block, value);
                values[block as usize] = value;
                if draw >> 50 & 63 == 0 {
                    host.good(BlockOp::Flush, 0, 0);
                }
                let (all, of_pu) = open(&host);
                assert!(all <= timing.open_chunks && of_pu <= timing.open_chunks_pu);
                most = (most.0.max(all), most.1.max(of_pu));
            }
            assert!(most.0 > pus * (streams + 1), "{most:?} of {}", timing.open_chunks);
            host.rest();
            assert_eq!(host.drive.counters().retired, 0);
            for (block, &value) in (0..).zip(&values) {
                assert_eq!(host.good(BlockOp::Read, block, 0), value);
            }
        }
    }
}
