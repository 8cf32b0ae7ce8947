//! Collection on a drive that copies rows inside its dies: what of it is copied, how
//! often in turn, and that all is as it was written.

use device::{Device, OpenChannel};
use faults::{FaultPort, FaultRule, Operation, Trigger};
use flash::{ChunkState, Dimensions, Geometry, RamMedium, Timing};
use port::{BLOCK_BYTES, BlockOp, Time};
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const DATA_CHUNKS: u32 = 8;
const ROW: u64 = 4;

type HostOf<P> = crate::host::Host<P, Geometry>;
type Host = HostOf<Pblk<Device<RamMedium>>>;

fn timing(copyback: u32) -> Timing {
    Timing { read: vec![1_000], program: vec![5_000], erase: 3_000, copyback, ..Timing::default() }
}

fn config(g: &Geometry) -> PblkConfig {
    let space = u64::from(DATA_CHUNKS * g.chunk_blocks() * g.total_pus());
    PblkConfig {
        victim: Victim::Fifo,
        ..PblkConfig::new(space * 3 / 4 * BLOCK_BYTES, DATA_CHUNKS, 7)
    }
}

fn device(copyback: u32) -> (Device<RamMedium>, Geometry) {
    let dim = Dimensions {
        pus: 2,
        chunks: DATA_CHUNKS,
        pages: 16,
        page_bytes: 16384,
        ..Dimensions::LEAST
    };
    let g = Geometry::new(with_reserve(dim)).unwrap();
    let device = Device::new(&g, &timing(copyback), RamMedium::new(&g, 8).unwrap()).unwrap();
    (device, g)
}

fn host(copyback: u32) -> Host {
    let (device, g) = device(copyback);
    Host::new(Pblk::new(device, config(&g)).unwrap(), Time::ZERO, g)
}

/// Fills the drive, then writes over the first row of each four, so often.
fn work(host: &mut Host, rounds: u64) {
    let blocks = config(&host.more).bytes / BLOCK_BYTES;
    for value in 1..=rounds {
        let cold = |block: &u64| value == 1 || (block / ROW).is_multiple_of(4);
        for block in (0..blocks).filter(cold) {
            host.good(BlockOp::Write, block, 1000 * value + block);
        }
    }
    host.good(BlockOp::Flush, 0, 0);
    host.rest();
}

fn check(host: &mut Host, rounds: u64) {
    for block in 0..config(&host.more).bytes / BLOCK_BYTES {
        let value = if (block / ROW).is_multiple_of(4) { rounds } else { 1 };
        assert_eq!(host.good(BlockOp::Read, block, 0), 1000 * value + block);
    }
}

#[test]
fn whole_rows_are_copied_as_often_as_the_drive_allows() {
    let mut gc = Vec::new();
    for most in [0u32, 1, 3] {
        let mut host = host(most);
        work(&mut host, 60);
        check(&mut host, 60);
        let (counters, device) = (host.drive.counters(), host.drive.device().counters());
        assert_eq!(counters.copied, device.copybacks * ROW);
        // Of each so many and one that follow each other, the last is written.
        let share = counters.copied as f64 / counters.gc as f64;
        let allowed = f64::from(most) / f64::from(most + 1);
        assert!(share <= allowed, "{share} of {allowed}");
        assert!(share >= 0.7 * allowed, "{share} of {allowed}");
        gc.push(counters.gc);
    }
    assert!(gc[0] > 2000, "{gc:?}");
}

/// A copy that fails is written, and is no copy.
#[test]
fn only_copies_that_went_well_count() {
    let (device, g) = device(3);
    // One address of the twentieth copy. What fails costs a chunk, of which this drive
    // has few, so no more is written.
    let trigger = Trigger { from: 20 * ROW, count: Some(1), ..Trigger::default() };
    let rule = FaultRule {
        operation: Operation::Copy,
        trigger,
        status: None,
        permanent: false,
        place: None,
    };
    let faulty = FaultPort::new(device, &[rule], 1).unwrap();
    let mut host = HostOf::new(Pblk::new(faulty, config(&g)).unwrap(), Time::ZERO, g);
    let blocks = config(&g).bytes / BLOCK_BYTES;
    for value in 0.. {
        let hot = |block: &u64| value == 0 || (block / ROW).is_multiple_of(4);
        for block in (0..blocks).filter(hot) {
            if host.drive.device().struck().sum::<u64>() == 0 {
                host.good(BlockOp::Write, block, block);
            }
        }
        if host.drive.device().struck().sum::<u64>() > 0 {
            break;
        }
    }
    host.rest();
    let begun = host.drive.device().below().counters().copybacks;
    let copied = host.drive.counters().copied / ROW;
    // One that goes well to a chunk in which another has failed is written, too: of each
    // unit two rows are on their way at most.
    assert!(begun >= 20 && (begun - 2..begun).contains(&copied), "{copied} of {begun}");
}

/// Of what is there at a start it is not known how often it was copied.
#[test]
fn what_is_found_is_written_before_it_is_copied() {
    let mut host = host(3);
    work(&mut host, 20);
    assert!(host.drive.counters().copied > 0);
    let Host { drive, more: g, .. } = host;
    let device = drive.into_device();
    let chunks: Vec<_> = (0..g.chunk_slots()).map(|index| device.chunk(index)).collect();
    let device = Device::restore(&g, &timing(3), device.cut(), &chunks).unwrap();
    let (drive, now) = Pblk::recover(device, config(&g), Time::ZERO).unwrap();
    let mut host = Host::new(drive, now, g);
    let before = host.drive.counters().gc;
    let mut value = 0;
    while host.drive.counters().gc < before + 100 {
        value += 1;
        host.good(BlockOp::Write, value % ROW, value);
    }
    assert_eq!(host.drive.counters().copied, 0);
}

/// What is collected since its error rate rises is corrected on its way.
#[test]
fn what_is_refreshed_is_written() {
    let mut host = host(3);
    work(&mut host, 2);
    let before = host.drive.counters();
    let g = host.more;
    let full = |&chunk: &usize| host.drive.device().chunk(chunk).state == ChunkState::Closed;
    let chunks: Vec<_> = (0..g.chunk_slots()).filter(full).collect();
    let asked = chunks.iter().filter(|&&chunk| {
        let asked = host.drive.refresh_chunk(host.now, g.chunk_start(chunk));
        host.rest();
        asked
    });
    assert!(asked.count() > 4);
    let after = host.drive.counters();
    assert!(after.gc >= before.gc + 4 * ROW, "{after:?}");
    assert_eq!(after.copied, before.copied);
}
