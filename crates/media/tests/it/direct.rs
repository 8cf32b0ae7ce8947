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

/// All leave at once, while another has all that it was promised inside.
#[test]
fn many_leave_at_once() {
    let device = flash(4, 4, 1, &timing());
    let (chunks, depth) = (device.geometry().chunks(), media::depth_for_targets(device.depth()));
    let mut drive: Drive = media::Shared::new(device);
    let mut now = Time::ZERO;
    let place = |units: Vec<u32>| Place { units, chunks: 0..chunks };
    let small: Vec<_> =
        (0..12).map(|unit| drive.open(&claim(place(vec![unit]), 1)).unwrap()).collect();
    let large = drive.open(&claim(place(vec![12, 13, 14, 15]), depth - 12)).unwrap();
    for &one in &small {
        let geometry = *drive.partition(one).geometry();
        for chunk in ftl::all_chunks(&geometry) {
            let row = geometry.row_blocks() as u8;
            let write = command(VectorOp::Write, geometry.chunk_start(chunk), row, 1);
            assert!(ask(&mut drive, one, &mut now, write).status.is_ok());
        }
    }
    small.iter().for_each(|&one| drive.close_direct(one, now).unwrap());
    let mut cmds = Ring::new(depth);
    let geometry = *drive.partition(large).geometry();
    for _ in 0..depth - 12 {
        cmds.put(|| command(VectorOp::Read, geometry.chunk_start(geometry.chunk_of(0, 0)), 1, 0));
    }
    drive.submit_direct(large, now, &mut cmds);
    assert!(cmds.is_empty(), "it has what it was promised");
    rest(&mut drive, now);
    let mut done = Ring::new(depth);
    drive.take_direct(large, &mut done);
    assert_eq!(done.len(), depth - 12);
    for unit in 0..12 {
        drive.open(&claim(place(vec![unit]), 1)).unwrap();
    }
}

/// A turn ends when something has completed for an application, at its time.
#[test]
fn turns_end_for_applications_too() {
    let device = flash(2, 2, 1, &timing());
    let chunks = device.geometry().chunks();
    let mut drive: Drive = media::Shared::new(device);
    let place = |unit| Place { units: vec![unit], chunks: 0..chunks };
    let both = [0, 1].map(|unit| drive.open(&claim(place(unit), 8)).unwrap());
    let geometry = *drive.partition(both[0]).geometry();
    let (row, start) = (geometry.row_blocks(), geometry.chunk_start(geometry.chunk_of(0, 0)).0);
    let mut cmds = Ring::new(1);
    for (one, rows) in both.into_iter().zip([1, 4]) {
        for n in 0..rows {
            let ppa = Ppa(start + u64::from(n * row));
            cmds.put(|| command(VectorOp::Write, ppa, row as u8, 1));
            drive.submit_direct(one, Time::ZERO, &mut cmds);
        }
    }
    let (mut none, mut out, mut done) = (Ring::new(1), Ring::new(8), Ring::new(8));
    let mut seen = 0;
    while let port::Turn::Completed(at) = drive.turn(Time::ZERO, None, &mut none, &mut out) {
        both.iter().for_each(|&one| drive.take_direct(one, &mut done));
        for done in done.drain() {
            assert_eq!(done.at, at);
            seen += 1;
        }
    }
    assert_eq!(seen, 5);
}

/// What a cut left of a target that nobody names any more is handed out to nobody.
#[test]
fn what_is_written_is_not_handed_out() {
    let (mut drive, application) = world();
    let mut now = Time::ZERO;
    let geometry = *drive.partition(application).geometry();
    let first = geometry.chunk_start(geometry.chunk_of(0, 0));
    let write = command(VectorOp::Write, first, geometry.row_blocks() as u8, 1);
    ask(&mut drive, application, &mut now, write);
    let device = drive.into_device();
    let (all, timing) = (*device.geometry(), device.timing().clone());
    let chunks = device.chunks().to_vec();
    let device = device::Device::restore(&all, &timing, device.cut(), &chunks).unwrap();
    let mut drive: Drive = media::Shared::new(device);
    let place = Place { units: vec![2, 3], chunks: 0..all.chunks() };
    let e = drive.open(&claim(place.clone(), 8)).unwrap_err();
    assert!(e.to_string().contains("chunk 0 of unit 2 is written"), "{e}");
    assert!(drive.create(&claim(place, 64), pblk).is_err());
    let place = Place { units: vec![2, 3], chunks: 1..all.chunks() };
    drive.create(&claim(place, 64), pblk).unwrap();
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
