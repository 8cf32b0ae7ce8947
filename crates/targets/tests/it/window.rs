//! Drives whose open chunks end with blocks that cannot be read yet: what is in memory
//! meanwhile, for how long, and that nothing of it is lost.

use device::Device;
use flash::{Dimensions, Geometry, RamMedium, SlcCache, SlcSize, Timing};
use port::{BLOCK_BYTES, BlockOp, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const DATA_CHUNKS: u32 = 8;
const ROW: u64 = 4;
const PUS: u64 = 2;
const CHUNK: u64 = 64;

type Host = crate::host::Host<Pblk<Device<RamMedium>>, Geometry>;

fn timing(unreadable: u32) -> Timing {
    Timing {
        read: vec![1_000],
        program: vec![5_000],
        erase: 3_000,
        unreadable,
        ..Timing::default()
    }
}

fn geometry(streams: u32) -> Geometry {
    let dim = Dimensions {
        pus: PUS as u32,
        chunks: DATA_CHUNKS,
        pages: (CHUNK / ROW) as u32,
        page_bytes: 16384,
        ..Dimensions::LEAST
    };
    let dim = with_reserve(dim);
    Geometry::new(Dimensions { chunks: dim.chunks + streams - 1, ..dim }).unwrap()
}

fn config(g: &Geometry, streams: u32) -> PblkConfig {
    let space = u64::from(DATA_CHUNKS * g.chunk_blocks() * g.total_pus());
    PblkConfig { streams, ..PblkConfig::new(space * 3 / 4 * BLOCK_BYTES, DATA_CHUNKS, 7) }
}

fn host(timing: &Timing, streams: u32) -> Host {
    let g = geometry(streams);
    let device = Device::new(&g, timing, RamMedium::new(&g, 8).unwrap()).unwrap();
    Host::new(Pblk::new(device, config(&g, streams)).unwrap(), Time::ZERO, g)
}

/// Power goes, and comes back.
fn restart(host: Host, timing: &Timing) -> Host {
    let (g, config) = (host.more, host.drive.config());
    let device = host.drive.into_device();
    let chunks = device.chunks().to_vec();
    let device = Device::restore(&g, timing, device.cut(), &chunks).unwrap();
    let (drive, now) = Pblk::recover(device, config, host.now).unwrap();
    Host::new(drive, now, g)
}

/// No cache.
fn none() -> SlcCache {
    SlcCache::default()
}

fn blocks_read(host: &Host) -> u64 {
    host.drive.device().counters().blocks_read
}

/// Rows of a unit that are held: as many as its open chunk has unreadable.
fn held(rows: u64, unreadable: u64) -> u64 {
    let in_chunk = rows % (CHUNK / ROW);
    in_chunk.min(unreadable.div_ceil(ROW))
}

/// After each row of each unit exactly those are in memory that cannot be read: they
/// take no read, and all others one.
#[test]
fn what_cannot_be_read_is_in_memory_and_nothing_else() {
    for unreadable in [0, 1, 4, 5, 8, 12, 63] {
        let mut host = host(&timing(unreadable), 1);
        for rows in 1..=2 * CHUNK / ROW {
            for block in 0..PUS * ROW {
                let block = (rows - 1) * PUS * ROW + block;
                host.good(BlockOp::Write, block, block + 1);
            }
            host.rest();
            let held = PUS * held(rows, unreadable.into());
            assert_eq!(host.drive.held_rows() as u64, held, "{unreadable}: after {rows} rows");
            let (all, before) = (rows * PUS * ROW, blocks_read(&host));
            for block in 0..all {
                assert_eq!(host.good(BlockOp::Read, block, 0), block + 1);
            }
            assert_eq!(blocks_read(&host) - before, all - held * ROW);
        }
    }
}

/// A flush waits for programs, not until what it covers can be read.
#[test]
fn a_flush_does_not_wait_until_it_can_be_read() {
    for unreadable in [0, 60] {
        let mut host = host(&timing(unreadable), 1);
        for block in 0..ROW {
            host.good(BlockOp::Write, block, 1);
        }
        let before = host.now;
        host.good(BlockOp::Flush, 0, 0);
        assert_eq!(host.now - before, 5_000);
        assert_eq!(host.drive.held_rows() as u64, u64::from(unreadable > 0));
    }
}

/// However it is written, no more is held than open chunks may have unreadable: those
/// of the streams and of collection. All is there.
#[test]
fn no_more_is_held_than_there_are_open_chunks() {
    let slc = SlcCache { size: SlcSize::Share(10_000), program: 1_000, read: 500, ..none() };
    for (streams, unreadable, copyback) in [(1, 8, 0), (1, 30, 3), (3, 12, 2), (2, 63, 0)] {
        for slc in [none(), slc] {
            let timing = Timing { copyback, slc, ..timing(unreadable) };
            let mut host = host(&timing, streams);
            let blocks = config(&host.more, streams).bytes / BLOCK_BYTES;
            let most = PUS * u64::from(streams + 1) * u64::from(unreadable).div_ceil(ROW);
            let (mut values, mut seen, mut random) = (vec![0; blocks as usize], 0, 1u64);
            for value in 1..=blocks * 10 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(99);
                let block = if value <= blocks { value - 1 } else { (random >> 33) % blocks };
                host.placement = (random % u64::from(streams)) as u8;
                values[block as usize] = value;
                host.good(BlockOp::Write, block, value);
                let held = host.drive.held_rows() as u64;
                assert!(held <= most, "{held} of {most}");
                seen = seen.max(held);
            }
            assert!(host.drive.counters().collections > 20 && 2 * seen > most, "{seen} of {most}");
            for (block, &value) in values.iter().enumerate() {
                assert_eq!(host.good(BlockOp::Read, block as u64, 0), value);
            }
        }
    }
}

/// What was flushed and could not be read before a cut can be after it. Cuts that follow
/// each other with nothing written between pad once.
#[test]
fn a_start_pads_what_cannot_be_read_and_does_so_once() {
    for unreadable in [1, 8, 13] {
        let timing = timing(unreadable);
        let mut host = host(&timing, 1);
        let blocks = 11 * ROW;
        for block in 0..blocks {
            host.good(BlockOp::Write, block, block + 1);
        }
        host.good(BlockOp::Flush, 0, 0);
        let programmed = |host: &Host| -> u64 {
            let chunks = host.drive.device().chunks();
            chunks.iter().map(|chunk| u64::from(chunk.programmed)).sum()
        };
        let before = programmed(&host);
        host = restart(host, &timing);
        // Each of the two chunks that are open, to where a row ends behind the first
        // block that can be read again.
        let ends = [6 * ROW, 5 * ROW]
            .map(|at| (at + u64::from(unreadable) + 1).next_multiple_of(ROW) - at);
        assert_eq!(programmed(&host) - before, ends.iter().sum::<u64>());
        assert_eq!(host.drive.counters().padding, ends.iter().sum::<u64>());
        for _ in 0..3 {
            let before = programmed(&host);
            host = restart(host, &timing);
            assert_eq!(programmed(&host), before);
            for block in 0..blocks {
                assert_eq!(host.good(BlockOp::Read, block, 0), block + 1);
            }
        }
        // One more row, and its chunk is padded on.
        host.good(BlockOp::Write, 0, 99);
        host.good(BlockOp::Flush, 0, 0);
        let before = programmed(&host);
        host = restart(host, &timing);
        assert!(programmed(&host) > before);
        assert_eq!(host.good(BlockOp::Read, 0, 0), 99);
    }
}

/// After a clean end the root is found though it was the last that was written.
#[test]
fn a_clean_end_is_found() {
    for unreadable in [8, 63] {
        let timing = timing(unreadable);
        let mut host = host(&timing, 1);
        for value in 0..400 {
            host.good(BlockOp::Write, value % 100, value);
        }
        host.drive.close(host.now);
        host.rest();
        assert!(host.drive.is_closed());
        let counters = host.drive.counters();
        // The chunks for roots, of each unit the first three, are not padded again.
        let of_roots = |host: &Host| -> Vec<u32> {
            let (g, device) = (host.more, host.drive.device());
            let chunks = g.pus_channels_first().map(|pu| g.chunk_of(pu, 0));
            chunks.flat_map(|c| (c..c + 3).map(|c| device.chunks()[c].programmed)).collect()
        };
        let before = of_roots(&host);
        assert!(before.iter().any(|&blocks| blocks > 0));
        host = restart(host, &timing);
        assert_eq!(of_roots(&host), before);
        assert_eq!(host.drive.counters().user, counters.user);
        (0..100).for_each(|block| assert_eq!(host.good(BlockOp::Read, block, 0), 300 + block));
    }
}

/// Who looks at a drive without writing finds the root of a clean end.
#[test]
fn a_clean_end_is_found_by_who_only_looks() {
    for unreadable in [0, 1, 8, 30] {
        let timing = timing(unreadable);
        let mut host = host(&timing, 1);
        for value in 0..400 {
            host.good(BlockOp::Write, value % 100, value);
        }
        host.drive.close(host.now);
        host.rest();
        let (g, config, user) = (host.more, host.drive.config(), host.drive.counters().user);
        let device = host.drive.into_device();
        let chunks = device.chunks().to_vec();
        let device = Device::restore(&g, &timing, device.cut(), &chunks).unwrap();
        let peek = Pblk::peek(device, config).unwrap();
        assert_eq!((peek.clean, peek.counters.user), (true, user));
    }
}
