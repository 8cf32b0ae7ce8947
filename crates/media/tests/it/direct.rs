//! An application with units of its own, beside a page-mapped target that works.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{ChunkState, Ppa};
use media::{MediaError, Place};
use port::{BlockOp, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;

use crate::world::{BLOCK, Drive, act, claim, flash, pblk, request, rest, timing};

/// A drive with a target on the first two units, and an application on the last two.
fn world() -> (Drive, usize) {
    let device = flash(2, 2, 1, &timing());
    let chunks = device.geometry().chunks();
    let mut drive = media::Shared::new(device);
    let place = |units: Vec<u32>| Place { units, chunks: 0..chunks };
    drive.create(&claim(place(vec![0, 1]), 128), pblk).unwrap();
    let application = drive.open(&claim(place(vec![2, 3]), 64)).unwrap();
    (drive, application)
}

fn command(op: VectorOp, ppa: Ppa, count: u8, fill: u8) -> VectorCmd {
    let bytes = if matches!(op, VectorOp::Read | VectorOp::Write) { count as usize } else { 0 };
    let mut buffer = Buffer::zeroed(bytes * BLOCK as usize).unwrap();
    buffer.bytes_mut().fill(fill);
    let (content, whose) = (Content::Data, Default::default());
    VectorCmd { cookie: 7, op, content, whose, count, ppa, list: None, buffer }
}

/// One command of the application, waited for while the target works, too.
fn ask(drive: &mut Drive, application: usize, now: &mut Time, cmd: VectorCmd) -> VectorDone {
    let (mut cmds, mut done, mut theirs) = (Ring::new(1), Ring::new(1), Ring::new(64));
    cmds.push(cmd).unwrap();
    drive.submit_direct(application, *now, &mut cmds);
    loop {
        drive.take_direct(application, &mut done);
        if let Some(done) = done.pop() {
            return done;
        }
        let at = drive.next_event().expect("it is inside");
        *now = (*now).max(at);
        drive.advance(at, &mut theirs);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Chunks are written in order, read and erased, as by a model of them; what is against
    /// the rules is refused; and the neighbour's data are its own.
    #[test]
    fn an_application_asks_its_own_flash(steps in proptest::collection::vec((0..6u8, 0..8usize, 0..16u32), 1..80)) {
        let (mut drive, application) = world();
        let mut now = Time::ZERO;
        for block in 0..16 {
            (_, now) = act(&mut drive, now, request(0, BlockOp::Write, block * BLOCK, BLOCK, 3));
        }
        let geometry = *drive.partition(application).geometry();
        prop_assert_eq!(geometry.total_pus(), 2);
        let row = geometry.row_blocks();
        let chunks: Vec<usize> = ftl::all_chunks(&geometry).take(8).collect();
        // By chunk: what each row was written with.
        let mut model = vec![Vec::new(); chunks.len()];
        for (n, (op, chunk, at)) in steps.into_iter().enumerate() {
            let start = geometry.chunk_start(chunks[chunk]).0;
            let rows = &mut model[chunk];
            let fill = n as u8 + 1;
            let at_row = |row_number: u32| Ppa(start + u64::from(row_number * row));
            let mut ask = |cmd| ask(&mut drive, application, &mut now, cmd);
            match op {
                0..=2 => {
                    // A full chunk takes its first row no more.
                    let is_full = rows.len() as u32 * row >= geometry.chunk_blocks();
                    let next = if is_full { 0 } else { rows.len() as u32 };
                    let done = ask(command(VectorOp::Write, at_row(next), row as u8, fill));
                    prop_assert_eq!(done.status.is_ok(), !is_full);
                    prop_assert_eq!(done.cookie, 7);
                    if !is_full {
                        rows.push(fill);
                    }
                }
                3 => {
                    let at = at % geometry.dimensions().rows();
                    let done = ask(command(VectorOp::Read, at_row(at), row as u8, 0));
                    match rows.get(at as usize) {
                        Some(fill) => prop_assert!(done.buffer.bytes().iter().all(|b| b == fill)),
                        None => prop_assert_eq!(done.status, Status::UNWRITTEN),
                    }
                }
                4 => {
                    let done = ask(command(VectorOp::Reset, Ppa(start), 1, 0));
                    prop_assert_eq!(done.status.is_ok(), !rows.is_empty());
                    rows.clear();
                }
                _ => {
                    // Out of order, where the chunk has so many rows, and of nobody: a unit
                    // that it does not have.
                    prop_assume!(rows.len() as u32 + 1 < geometry.dimensions().rows());
                    let done = ask(command(VectorOp::Write, at_row(rows.len() as u32 + 1), row as u8, 9));
                    prop_assert!(!done.status.is_ok());
                    let beyond = geometry.ppa(2, 0, 0, 0);
                    let done = ask(command(VectorOp::Read, beyond, 1, 0));
                    prop_assert!(!done.status.is_ok());
                }
            }
            let of = drive.chunk(application, chunks[chunk]);
            prop_assert_eq!(of.wp, model[chunk].len() as u32 * row);
        }
        for block in 0..16 {
            let (done, at) = act(&mut drive, now, request(0, BlockOp::Read, block * BLOCK, BLOCK, 9));
            prop_assert!(done.buffer.bytes().iter().all(|&b| b == 3));
            now = at;
        }
    }
}

#[test]
fn what_an_application_had_is_erased_and_given_to_others() {
    let (mut drive, application) = world();
    let mut now = Time::ZERO;
    let geometry = *drive.partition(application).geometry();
    let row = geometry.row_blocks() as u8;
    let first = geometry.chunk_start(geometry.chunk_of(0, 0));
    assert!(
        ask(&mut drive, application, &mut now, command(VectorOp::Write, first, row, 1))
            .status
            .is_ok()
    );
    let mut cmds = Ring::new(1);
    cmds.push(command(VectorOp::Read, first, row, 0)).unwrap();
    drive.submit_direct(application, now, &mut cmds);
    assert!(matches!(drive.close_direct(application, now), Err(MediaError::Busy(_))));
    now = rest(&mut drive, now);
    assert!(matches!(drive.close_direct(application, now), Err(MediaError::Busy(_))), "not taken");
    drive.take_direct(application, &mut Ring::new(1));
    drive.close_direct(application, now).unwrap();
    rest(&mut drive, now);
    let chunks = drive.media().device().geometry().chunks();
    let place = Place { units: vec![2, 3], chunks: 0..chunks };
    let again = drive.open(&claim(place, 64)).unwrap();
    let chunk = drive.chunk(again, geometry.chunk_of(0, 0));
    assert_eq!((chunk.state, chunk.wear), (ChunkState::Free, 1));
}
