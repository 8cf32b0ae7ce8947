//! Data that were written before a drive file was closed are as old when it is
//! opened as they were, and older where the caller says so.

use device::{Content, Device, VectorCmd, VectorDone, VectorOp};
use drivefile::{CacheMode, DriveFile, Header};
use flash::{Dimensions, Geometry, Ppa, Reliability, Timing};
use port::{Buffer, Port, Ring, Status, Time};

const DAY: u64 = 86_400_000_000_000;

/// Unreadable for sure after some ten days.
fn reliability() -> Reliability {
    Reliability {
        errors: true,
        rber_base: 1e-3,
        retention_time: DAY,
        correctable: 40,
        ..Reliability::default()
    }
}

fn geometry() -> Geometry {
    let dim = Dimensions { chunks: 4, pages: 4, page_bytes: 8192, ..Dimensions::LEAST };
    Geometry::new(dim).unwrap()
}

fn act(device: &mut Device<DriveFile>, now: Time, op: VectorOp, ppa: Ppa) -> VectorDone {
    let count = if op == VectorOp::Flush { 0 } else { 2 };
    let buffer = Buffer::zeroed(8 * count as usize).unwrap();
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    let content = Content::Data;
    cmds.put(|| VectorCmd::new(0, op, content, (ppa, count), buffer));
    device.submit(now, &mut cmds);
    while done.is_empty() {
        let at = device.next_event().expect("it is inside").max(now);
        device.advance(at, &mut done);
    }
    done.pop().unwrap()
}

/// Opens the drive after `away` ns and reads.
fn read_after(path: &std::path::Path, away: u64) -> (Status, u64) {
    let opened = DriveFile::open(path, false).unwrap();
    let (g, t) = (geometry(), Timing::default());
    let mut device =
        Device::restore_with(&g, &t, &reliability(), 1, opened.medium, &opened.chunks).unwrap();
    device.let_time_pass(away);
    let status = act(&mut device, Time::ZERO, VectorOp::Read, g.chunk_start(0)).status;
    let time = device.drive_time(Time::ZERO);
    device.cut().close().unwrap();
    (status, time)
}

#[test]
fn data_are_as_old_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for (days, away, expected) in [
        (0, 0, Status::SUCCESS),
        (60, 0, Status::UNRECOVERED_READ),
        (0, 60, Status::UNRECOVERED_READ),
    ] {
        let path = folder.path().join(format!("drive{days}-{away}"));
        let (profile, drive) = (String::new(), String::new());
        let cache = CacheMode::Volatile;
        let header = Header { geometry: geometry(), kept: 8, cache, profile, drive };
        let medium = DriveFile::create(&path, &header).unwrap();
        let (g, t) = (geometry(), Timing::default());
        let mut device = Device::with(&g, &t, &reliability(), 1, medium).unwrap();
        let later = Time(days * DAY);
        let first = g.chunk_start(0);
        assert_eq!(act(&mut device, Time::ZERO, VectorOp::Write, first).status, Status::SUCCESS);
        assert_eq!(act(&mut device, Time::ZERO, VectorOp::Read, first).status, Status::SUCCESS);
        // It grows old here, or while the drive is off.
        assert_eq!(act(&mut device, later, VectorOp::Flush, Ppa(0)).status, Status::SUCCESS);
        device.cut().close().unwrap();
        let (status, time) = read_after(&path, away * DAY);
        assert_eq!((status, time), (expected, (days + away) * DAY));
        // The clock never goes back, whatever was said of the time away.
        assert_eq!(read_after(&path, 0).1, days * DAY);
    }
}
