//! A full batched target under a steady load: no batch waits long for room.

use device::{Device, OpenChannel};
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Profile};
use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, Buffer, Desc, Port, Ring, Time};
use targets::{Batch, BatchConfig};

/// Pages of a batch, and batches at once.
const PAGES: usize = 32;
const AT_ONCE: u64 = 4;

/// Overwrites pages at random for `rounds` times the drive's pages; gives how
/// long the batches of the last half took, in ns, sorted.
fn overwrite(drive: &mut Batch<Box<dyn OpenChannel>>, pages: u64, rounds: u64) -> Vec<u64> {
    let (mut cmds, mut done) = (Ring::<BatchReq>::new(8), Ring::<BatchDone>::new(8));
    let (mut now, mut inside, mut next, mut seed) = (drive.now(), 0, 0, 1u64);
    let all = rounds * pages / PAGES as u64;
    let (mut began, mut took) = (vec![Time::ZERO; all as usize], Vec::new());
    while next < all || inside > 0 {
        while next < all && inside < AT_ONCE {
            let lpids: Vec<u64> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) % pages
            })
            .take(PAGES)
            .collect();
            let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize + 8 * PAGES).unwrap();
            Desc::write(&lpids, &[], buffer.bytes_mut());
            began[next as usize] = now;
            let req = BatchReq { id: next, op: BatchOp::WriteBatch, lpid: 0, buffer };
            assert!(cmds.push(req).is_ok());
            (next, inside) = (next + 1, inside + 1);
        }
        drive.submit(now, &mut cmds);
        if let Some(at) = drive.next_event() {
            now = now.max(at);
            drive.advance(now, &mut done);
        }
        while let Some(one) = done.pop() {
            assert!(one.status.is_ok(), "{}", one.status);
            inside -= 1;
            if one.id >= all / 2 {
                took.push(now.since(began[one.id as usize]));
            }
        }
    }
    took.sort_unstable();
    took
}

/// Chunks that collection frees are of all units: on a few of them the host's
/// writes would go one behind the other.
#[test]
fn writes_go_to_all_units_when_collection_runs() {
    let profile = Profile::builtin("znand").unwrap();
    let dim = Dimensions { groups: 4, pus: 4, chunks: 150, pages: 32, ..Dimensions::LEAST };
    let geometry = Geometry::new(dim).unwrap();
    let device =
        Device::new(&geometry, &profile.timing, ScriptedMedium::ram(&geometry, 8, ())).unwrap();
    let config = BatchConfig {
        pages: geometry.blocks() / 2,
        log_rows: 1 << 10,
        checkpoint_every: 0,
        ..BatchConfig::for_geometry(&geometry, 0.0)
    };
    let mut drive =
        Batch::open(Box::new(device) as Box<dyn OpenChannel>, config, Time::ZERO).unwrap();
    let took = overwrite(&mut drive, config.pages, 4);
    let (middle, most) = (took[took.len() / 2], took[took.len() - 1]);
    assert!(drive.counters().collections > 1000);
    assert!(most < 8 * middle, "a batch took {most} ns, that in the middle {middle}");
}
