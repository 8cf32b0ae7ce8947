//! Pages of the batched target that the host gives up.

use device::{Device, OpenChannel};
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Timing};
use port::random::Random;
use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, Buffer, Desc, Port, Ring, Status, Time};
use targets::{Batch, BatchConfig};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Pages of a batch.
const PAGES: usize = 16;

type Target = Batch<Box<dyn OpenChannel>>;

/// A new target that is mostly full.
fn target() -> (Target, BatchConfig) {
    let dim =
        Dimensions { groups: 2, chunks: 60, pages: 16, page_bytes: 16384, ..Dimensions::LEAST };
    let geometry = Geometry::new(dim).unwrap();
    let medium = ScriptedMedium::ram(&geometry, 8, ());
    let device = Device::new(&geometry, &Timing::default(), medium).unwrap();
    let config = BatchConfig { log_rows: 64, ..BatchConfig::for_geometry(&geometry, 0.0) };
    let config = BatchConfig { pages: config.capacity(&geometry) * 9 / 10, ..config };
    let device: Box<dyn OpenChannel> = Box::new(device);
    (Batch::open(device, config, Time::ZERO).unwrap(), config)
}

/// One request, to its end.
fn ask(target: &mut Target, op: BatchOp, lpid: u64, buffer: Buffer) -> BatchDone {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.put(|| BatchReq { id: 0, op, lpid, buffer });
    target.submit(target.now(), &mut cmds);
    while done.is_empty() {
        let at = target.next_event().expect("it is inside");
        target.advance(at, &mut done);
    }
    done.pop().expect("it was waited for")
}

/// A batch.
fn write(target: &mut Target, lpids: &[u64], given_up: &[u64]) {
    let mut buffer = Buffer::zeroed(BLOCK + 8 * lpids.len()).unwrap();
    Desc::write(lpids, given_up, buffer.bytes_mut());
    for (page, lpid) in buffer.bytes_mut()[BLOCK..].chunks_exact_mut(8).zip(lpids) {
        page.copy_from_slice(&(lpid + 1).to_le_bytes());
    }
    assert_eq!(ask(target, BatchOp::WriteBatch, 0, buffer).status, Status::SUCCESS);
}

fn read(target: &mut Target, lpid: u64) -> (Status, u64) {
    let done = ask(target, BatchOp::Read, lpid, Buffer::zeroed(8).unwrap());
    (done.status, u64::from_le_bytes(done.buffer.bytes().try_into().unwrap()))
}

/// Of a full target every fourth page is written again and again, in any order, after
/// the others were given up, or not. Gives how many blocks were programmed then.
fn programmed(gives_up: bool) -> u64 {
    let (mut target, config) = target();
    let (some, others): (Vec<u64>, Vec<u64>) = (0..config.pages).partition(|lpid| lpid % 4 == 0);
    let all: Vec<u64> = (0..config.pages).collect();
    all.chunks(PAGES).for_each(|lpids| write(&mut target, lpids, &[]));
    if gives_up {
        others.chunks(PAGES).for_each(|lpids| write(&mut target, &[], lpids));
        assert_eq!(target.counters().given_up, others.len() as u64);
    }
    let before = target.counters().programmed;
    let mut random = Random::new(1, 0);
    for _ in 0..12 * some.len() / PAGES {
        let any = || some[random.below(some.len() as u64) as usize];
        let lpids: Vec<u64> = std::iter::repeat_with(any).take(PAGES).collect();
        write(&mut target, &lpids, &[]);
    }
    let counters = target.counters();
    assert!(gives_up || counters.collections > 20, "{counters:?}");
    counters.programmed - before
}

#[test]
fn pages_that_were_given_up_are_not_moved() {
    let (moved, not) = (programmed(false), programmed(true));
    assert!(not * 4 < moved * 3, "{not} blocks, and {moved} where nothing is given up");
}

#[test]
fn what_is_given_up_reads_as_never_written_also_after_a_start() {
    let (mut target, config) = target();
    write(&mut target, &[1, 2, 3], &[]);
    // Of a page that comes twice the later wins: it is given up.
    write(&mut target, &[3, 4, 5], &[1, 5, 9]);
    let check = |target: &mut Target| {
        for (lpid, value) in [(2, 3), (3, 4), (4, 5)] {
            assert_eq!(read(target, lpid), (Status::SUCCESS, value));
        }
        for lpid in [1, 5, 9] {
            assert_eq!(read(target, lpid).0, Status::UNWRITTEN, "page {lpid}");
        }
    };
    check(&mut target);
    for _ in 0..2 {
        target = Batch::find(target.into_below(), config, Time::ZERO).unwrap();
        check(&mut target);
    }
    write(&mut target, &[1], &[2]);
    assert_eq!(read(&mut target, 1), (Status::SUCCESS, 2));
    assert_eq!(read(&mut target, 2).0, Status::UNWRITTEN);
}
