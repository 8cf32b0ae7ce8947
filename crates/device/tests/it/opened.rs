//! No more chunks are open than the drive allows, exactly.

use crate::common::{Rig, cmd, drive, geometry, list_cmd};
use device::{Content, Device, OpenChannel, VectorCmd, VectorOp};
use faults::{Below, Script, ScriptedMedium};
use flash::{ChunkState, Geometry, Moved, Ppa, RamMedium, SlcCache, SlcSize, TAG_BYTES, Timing};
use port::{Buffer, Status};

use VectorOp::{Copy, Reset, Retire, Write};

const FULL: Status = Status::TOO_MANY_OPEN_CHUNKS;

/// Limits of the drive and of a unit.
fn limits(all: u32, of_pu: u32) -> Timing {
    Timing { program: vec![10], open_chunks: all, open_chunks_pu: of_pu, ..Timing::default() }
}

fn rig(g: &Geometry, timing: &Timing) -> Rig<Device<RamMedium>> {
    Rig::new(drive(g, timing, 0), 64)
}

/// Does a command, and gives how it ended and which addresses failed.
fn ends<P>(rig: &mut Rig<P>, cmd: VectorCmd) -> (Status, u128)
where
    P: port::Port<Cmd = VectorCmd, Done = device::VectorDone>,
{
    rig.submit(rig.now.0, cmd);
    rig.drain();
    let done = rig.all.pop().expect("it completed");
    (done.status, done.failed)
}

fn open<M: flash::Medium>(rig: &Rig<Device<M>>) -> usize {
    rig.port.chunks().iter().filter(|chunk| chunk.state == ChunkState::Open).count()
}

/// A row of a chunk.
fn row_of(g: &Geometry, pu: u32, chunk: u32, row: u32) -> VectorCmd {
    let at = g.ppa(0, pu, chunk, row * g.row_blocks());
    cmd(0, Write, at, g.row_blocks() as u8)
}

/// The first row of each of these chunks of unit 0, with one command.
fn rows_of(g: &Geometry, chunks: &[u32]) -> VectorCmd {
    let row = g.row_blocks();
    let all = chunks.iter().flat_map(|&chunk| (0..row).map(move |block| (chunk, block)));
    let all: Vec<Ppa> = all.map(|(chunk, block)| g.ppa(0, 0, chunk, block)).collect();
    list_cmd(0, Write, &all, &[])
}

const OK: (Status, u128) = (Status::SUCCESS, 0);

#[test]
fn so_many_are_open_and_not_one_more() {
    let g = geometry(1, 2, 1);
    let whole = u128::from((1u64 << g.row_blocks()) - 1);
    for (all, of_pu) in [(3, u32::MAX), (u32::MAX, 2), (3, 2)] {
        let mut rig = rig(&g, &limits(all, of_pu));
        let mut count = [0, 0];
        for (pu, chunk) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            let fits = count[0] + count[1] < all && count[pu as usize] < of_pu;
            let want = if fits { OK } else { (FULL, whole) };
            assert_eq!(
                ends(&mut rig, row_of(&g, pu, chunk, 0)),
                want,
                "{all} {of_pu} {pu} {chunk}"
            );
            count[pu as usize] += u32::from(fits);
            // What was refused changes nothing, and those that are open go on.
            assert_eq!(open(&rig) as u32, count[0] + count[1]);
            assert_eq!(
                ends(&mut rig, row_of(&g, 0, 0, pu * 3 + chunk + 1)).0,
                match pu * 3 + chunk {
                    5 => Status::LBA_OUT_OF_RANGE,
                    _ => Status::SUCCESS,
                }
            );
            if pu * 3 + chunk == 4 {
                // Its last row is taken: it is closed.
                count[0] -= 1;
            }
        }
    }
}

#[test]
fn ends_erases_and_retirements_leave_room() {
    let g = geometry(1, 1, 1);
    let mut rig = rig(&g, &limits(1, u32::MAX));
    assert_eq!(ends(&mut rig, row_of(&g, 0, 0, 0)), OK);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 1, 0)).0, FULL);
    assert_eq!(ends(&mut rig, cmd(0, Reset, g.ppa(0, 0, 0, 0), 1)), OK);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 1, 0)), OK);
    assert_eq!(ends(&mut rig, cmd(0, Retire, g.ppa(0, 0, 1, 0), 1)), OK);
    for row in 0..g.dimensions().rows() {
        assert_eq!(ends(&mut rig, row_of(&g, 0, 2, row)), OK);
        let want = if row + 1 < g.dimensions().rows() { FULL } else { Status::SUCCESS };
        assert_eq!(ends(&mut rig, row_of(&g, 0, 3, 0)).0, want, "behind row {row}");
    }
    // Closed ones that are erased leave no room: they had none.
    assert_eq!(ends(&mut rig, cmd(0, Reset, g.ppa(0, 0, 2, 0), 1)), OK);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 2, 0)).0, FULL);
    assert_eq!(open(&rig), 1);
}

#[test]
fn a_command_opens_all_its_chunks_or_none() {
    let g = geometry(1, 1, 1);
    let mut rig = rig(&g, &limits(2, u32::MAX));
    let third = u128::from((1u64 << g.row_blocks()) - 1) << (2 * g.row_blocks());
    assert_eq!(ends(&mut rig, rows_of(&g, &[0, 1, 2])), (FULL, third));
    assert_eq!(open(&rig), 0);
    assert_eq!(ends(&mut rig, rows_of(&g, &[0, 2])), OK);
    assert_eq!(ends(&mut rig, rows_of(&g, &[1])).0, FULL);
    // Its first row ends a chunk, and its second one opens another.
    let (row, rows) = (g.row_blocks(), g.dimensions().rows());
    for number in 1..rows - 1 {
        assert_eq!(ends(&mut rig, row_of(&g, 0, 0, number)), OK);
    }
    let of = |chunk, number: u32| (0..row).map(move |i| g.ppa(0, 0, chunk, number * row + i));
    let both = |a, b| [a, b].into_iter().flat_map(|(c, n)| of(c, n)).collect::<Vec<_>>();
    let (last, first) = ((0, rows - 1), (1, 0));
    assert_eq!(ends(&mut rig, list_cmd(0, Write, &both(first, last), &[])).0, FULL);
    assert_eq!(ends(&mut rig, list_cmd(0, Write, &both(last, first), &[])), OK);
    assert_eq!(open(&rig), 2);
}

#[test]
fn copies_open_chunks_as_writes_do() {
    let g = geometry(1, 1, 1);
    let row = g.row_blocks();
    let run = |chunk| (0..row).map(|i| g.ppa(0, 0, chunk, i)).collect::<Vec<_>>();
    for copyback in [0, 1] {
        let timing = Timing { copyback, ..limits(2, u32::MAX) };
        let mut rig = rig(&g, &timing);
        assert_eq!(ends(&mut rig, row_of(&g, 0, 0, 0)), OK);
        assert_eq!(ends(&mut rig, list_cmd(0, Copy, &run(0), &run(1))), OK, "{copyback}");
        assert_eq!(ends(&mut rig, list_cmd(0, Copy, &run(0), &run(2))).0, FULL, "{copyback}");
        assert_eq!((open(&rig), rig.port.chunk(g.chunk_index(g.ppa(0, 0, 2, 0))).wp), (2, 0));
    }
}

#[test]
fn folds_open_nothing() {
    let g = geometry(1, 1, 1);
    let slc = SlcCache { size: SlcSize::Share(50_000), read: 1, program: 2, ..SlcCache::default() };
    let mut rig = rig(&g, &Timing { slc, ..limits(1, u32::MAX) });
    (0..g.dimensions().rows()).for_each(|row| {
        assert_eq!(ends(&mut rig, row_of(&g, 0, 0, row)), OK);
    });
    assert!(rig.port.slc_health().folded > 0, "{:?}", rig.port.slc_health());
    assert_eq!((ends(&mut rig, row_of(&g, 0, 1, 0)), open(&rig)), (OK, 1));
    assert_eq!(ends(&mut rig, row_of(&g, 0, 2, 0)).0, FULL);
}

/// Programs of chunk 0 fail.
struct Failing(Geometry);

impl Script for Failing {
    fn program(&mut self, below: Below, at: Ppa, n: u32, data: &[u8], tags: &[u8]) -> Moved {
        match self.0.chunk_index(at) {
            0 => Moved::Failed,
            _ => below.program(at, n, data, tags),
        }
    }
}

#[test]
fn one_of_which_programs_failed_is_open_until_it_is_closed_early() {
    let g = geometry(1, 1, 1);
    let medium = ScriptedMedium::ram(&g, 0, Failing(g));
    let mut rig = Rig::new(Device::new(&g, &limits(1, u32::MAX), medium).unwrap(), 64);
    for row in 0..2 {
        let ended = ends(&mut rig, row_of(&g, 0, 0, row)).0;
        assert_eq!(ended, Status::WRITE_FAILED_WRITE_NEXT_UNIT);
        assert_eq!(ends(&mut rig, row_of(&g, 0, 1, 0)).0, FULL);
    }
    assert_eq!(ends(&mut rig, row_of(&g, 0, 0, 2)).0, Status::CHUNK_EARLY_CLOSE);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 1, 0)), OK);
}

/// After a cut the ends that were on their way are none: more are open than may be.
#[test]
fn after_a_cut_none_is_opened_until_there_are_fewer() {
    let g = geometry(1, 1, 1);
    let timing = limits(1, u32::MAX);
    let mut rig = rig(&g, &timing);
    let rows = g.dimensions().rows();
    (0..rows - 1).for_each(|row| assert_eq!(ends(&mut rig, row_of(&g, 0, 0, row)), OK));
    let chunks = {
        // Its last row is on its way, and the next chunk is begun.
        rig.submit(rig.now.0, row_of(&g, 0, 0, rows - 1));
        rig.submit(rig.now.0, row_of(&g, 0, 1, 0));
        let mut chunks = rig.port.chunks().to_vec();
        chunks[1].program(g.row_blocks());
        chunks
    };
    let medium = rig.port.cut();
    let mut rig = Rig::new(Device::restore(&g, &timing, medium, &chunks).unwrap(), 64);
    assert_eq!(open(&rig), 2);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 2, 0)).0, FULL);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 0, rows - 1)), OK);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 2, 0)).0, FULL, "one is open still");
    (1..rows).for_each(|row| assert_eq!(ends(&mut rig, row_of(&g, 0, 1, row)), OK));
    assert_eq!(ends(&mut rig, row_of(&g, 0, 2, 0)), OK);
}

/// Where no operation takes time writes take another way.
#[test]
fn instant_drives_have_limits() {
    let g = geometry(1, 1, 1);
    let mut rig = rig(&g, &Timing { program: vec![0], ..limits(1, u32::MAX) });
    let tagged = VectorCmd {
        content: Content::Tagged,
        buffer: Buffer::zeroed(g.row_blocks() as usize * TAG_BYTES).unwrap(),
        ..row_of(&g, 0, 0, 0)
    };
    assert_eq!(ends(&mut rig, tagged), OK);
    assert_eq!(ends(&mut rig, row_of(&g, 0, 1, 0)).0, FULL);
}
