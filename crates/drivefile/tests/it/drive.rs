//! A whole drive over a file: written, erased, flushed, closed, restored.

use device::{Content, Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use drivefile::{CacheMode, DriveFile, Header, Opened};
use flash::{Chunk, ChunkState, Ppa, Profile, Reliability, TAG_BYTES};
use port::{Buffer, Port, Ring, Status};

/// The drive, and what the next command is given.
struct Drive {
    device: Device<DriveFile>,
    cookie: u64,
}

impl Drive {
    /// Does one command, however long the disk takes.
    fn act(&mut self, op: VectorOp, content: Content, ppa: Ppa, count: u8, fill: u8) -> VectorDone {
        let (data, tag) = content.each(self.device.kept());
        let len = match op {
            VectorOp::Read | VectorOp::Write => (data + tag) * count as usize,
            _ => 0,
        };
        let mut buffer = Buffer::carve(1, len.max(1)).unwrap().pop().unwrap();
        if len == 0 {
            buffer = Buffer::empty();
        }
        buffer.bytes_mut().fill(fill);
        self.cookie += 1;
        let cookie = self.cookie;
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(4));
        cmds.put(|| VectorCmd::new(cookie, op, content, (ppa, count), buffer));
        let now = self.device.next_event().unwrap_or_default();
        self.device.submit(now, &mut cmds);
        loop {
            if let Some(done) = done.pop() {
                return done;
            }
            let event = self.device.next_event().expect("a command is inside");
            self.device.advance(event, &mut done);
        }
    }
}

fn profile() -> Profile {
    let mut profile = Profile::builtin("ref").unwrap();
    let geometry = [("groups", "2"), ("pus", "1"), ("chunks", "4"), ("pages", "4")];
    for (key, value) in geometry.into_iter().chain([("endurance", "20")]) {
        profile.set(key, value).unwrap();
    }
    profile
}

fn restore(opened: Opened) -> Drive {
    let (header, timing) = (opened.medium.header().clone(), profile().timing);
    let device = Device::restore(&header.geometry, &timing, opened.medium, &opened.chunks).unwrap();
    Drive { device, cookie: 0 }
}

#[test]
fn a_drive_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    for kept in [4096, 8] {
        let path = folder.path().join(format!("drive{kept}"));
        let geometry = profile().check().unwrap();
        let (text, drive) = (profile().to_toml(), String::new());
        let cache = CacheMode::Volatile;
        let header = Header { geometry, kept, cache, profile: text, drive };
        DriveFile::create(&path, &header).unwrap().close().unwrap();
        let mut drive = restore(DriveFile::open(&path, false).unwrap());
        assert!(drive.device.is_cached());
        let (row, first) = (geometry.row_blocks() as u8, geometry.chunk_start(1));
        // Twice to the end of the chunk, and once more a row: the second and
        // third life wait for a sync.
        for life in 0..2u8 {
            for at in (0..u64::from(geometry.chunk_blocks())).step_by(row.into()) {
                let at = Ppa(first.0 + at);
                let done = drive.act(VectorOp::Write, Content::Tagged, at, row, life);
                assert_eq!(done.status, Status::SUCCESS);
            }
            let done = drive.act(VectorOp::Reset, Content::Data, first, 1, 0);
            assert_eq!(done.status, Status::SUCCESS);
        }
        let done = drive.act(VectorOp::Write, Content::Whole, first, row, 9);
        assert_eq!(done.status, Status::SUCCESS);
        let done = drive.act(VectorOp::Flush, Content::Data, Ppa(0), 0, 0);
        assert_eq!(done.status, Status::SUCCESS);
        let before = drive.device.chunks().to_vec();
        assert_eq!((before[1].wear, before[1].programmed), (2, row.into()));
        drop(drive.device.cut());

        let opened = DriveFile::open(&path, false).unwrap();
        assert_eq!((opened.clean, opened.cut_chunks), (false, 0));
        let mut drive = restore(opened);
        assert_eq!(drive.device.chunks(), before);
        let done = drive.act(VectorOp::Read, Content::Whole, first, row, 0);
        assert_eq!(done.status, Status::SUCCESS);
        assert!(done.buffer.bytes().iter().all(|&byte| byte == 9));
        let done = drive.act(VectorOp::Read, Content::Tags, first, row, 0);
        assert_eq!(done.buffer.bytes(), &vec![9; row as usize * TAG_BYTES][..]);
        drive.device.cut().close().unwrap();

        let opened = DriveFile::open(&path, true).unwrap();
        assert!(opened.clean);
        assert_eq!(opened.medium.header().profile, profile().to_toml());
        let mut drive = restore(opened);
        assert_eq!(drive.device.chunk(1).state, ChunkState::Open);
        let at = Ppa(first.0 + u64::from(row));
        let done = drive.act(VectorOp::Write, Content::Tagged, at, row, 1);
        assert_eq!(done.status, Status::WRITE_FAILED_WRITE_NEXT_UNIT, "read only");
    }
}

/// Everything goes wrong now and then.
fn model() -> Reliability {
    Reliability {
        errors: true,
        rber_base: 4e-3,
        read_disturb: 1e-6,
        read_retries: 2,
        program_failure: 0.3,
        erase_failure: 0.05,
        failure_power: 0.1,
        endurance_cliff: false,
        correctable: 60,
        ..Reliability::default()
    }
}

fn restore_with(opened: Opened) -> Drive {
    let (header, timing) = (opened.medium.header().clone(), profile().timing);
    let g = &header.geometry;
    let device = Device::restore_with(g, &timing, &model(), 7, opened.medium, &opened.chunks);
    Drive { device: device.unwrap(), cookie: 0 }
}

/// Reads all that was programmed. Where a program failed it cannot be read.
fn read_all(drive: &mut Drive) {
    for index in 0..drive.device.chunks().len() {
        let chunk = drive.device.chunk(index);
        let start = profile().check().unwrap().chunk_start(index);
        if chunk.state == ChunkState::Offline {
            continue;
        }
        for block in 0..chunk.programmed {
            let at = Ppa(start.0 + u64::from(block));
            let done = drive.act(VectorOp::Read, Content::Tagged, at, 1, 0);
            if chunk.failed_of(block, 1) != 0 {
                assert_eq!(done.status, Status::UNRECOVERED_READ);
            } else if done.status == Status::SUCCESS {
                assert!(done.buffer.bytes().iter().all(|&byte| byte == chunk.wear as u8));
            }
        }
    }
}

#[test]
fn what_went_wrong_is_known_after_every_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, geometry) = (folder.path().join("drive"), profile().check().unwrap());
    let (text, drive) = (profile().to_toml(), String::new());
    let cache = CacheMode::Volatile;
    let header = Header { geometry, kept: 8, cache, profile: text, drive };
    DriveFile::create(&path, &header).unwrap().close().unwrap();
    let row = geometry.row_blocks() as u8;
    let (mut failed, mut early, mut offline) = (0, 0, 0);
    for round in 0..40 {
        let mut drive = restore_with(DriveFile::open(&path, false).unwrap());
        for index in 0..drive.device.chunks().len() {
            let start = geometry.chunk_start(index);
            let chunk = drive.device.chunk(index);
            if chunk.state == ChunkState::Closed {
                drive.act(VectorOp::Reset, Content::Data, start, 1, 0);
            }
            // Not always to its end, and often without a block that is good.
            for _ in 0..(round + index) % 7 {
                let chunk = drive.device.chunk(index);
                if !matches!(chunk.state, ChunkState::Free | ChunkState::Open) {
                    break;
                }
                let at = Ppa(start.0 + u64::from(chunk.wp));
                drive.act(VectorOp::Write, Content::Tagged, at, row, chunk.wear as u8);
            }
        }
        read_all(&mut drive);
        let done = drive.act(VectorOp::Flush, Content::Data, Ppa(0), 0, 0);
        assert_eq!(done.status, Status::SUCCESS);
        let before = drive.device.chunks().to_vec();
        let medium = drive.device.cut();
        assert!(medium.error().is_none(), "{:?}", medium.error());
        if round % 2 == 0 {
            medium.close().unwrap();
        } else {
            drop(medium);
        }
        let told = DriveFile::open(&path, true).unwrap().chunks;
        for (told, before) in told.iter().zip(&before) {
            // Few reads may be forgotten, and those of a chunk without a block.
            assert!(told.reads <= before.reads && before.reads - told.reads < 1024);
            let known = |chunk: &Chunk| Chunk { reads: 0, ..*chunk };
            if told.state == ChunkState::Offline {
                assert_eq!((told.state, told.wear), (before.state, before.wear));
                offline += 1;
            } else {
                assert_eq!(known(told), known(before));
            }
            failed += usize::from(told.has_failed());
            early += usize::from(told.is_closed_early(geometry.chunk_blocks()));
        }
    }
    assert!(failed > 20 && early > 4 && offline > 4, "{failed} {early} {offline}");
}

#[test]
fn reads_are_kept_and_ask_nothing_of_a_file_that_is_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, geometry) = (folder.path().join("drive"), profile().check().unwrap());
    let (text, drive) = (profile().to_toml(), String::new());
    let cache = CacheMode::Volatile;
    let header = Header { geometry, kept: 0, cache, profile: text, drive };
    DriveFile::create(&path, &header).unwrap().close().unwrap();
    for (read_only, expected) in [(false, 1024), (false, 2048), (true, 2048)] {
        let mut drive = restore_with(DriveFile::open(&path, read_only).unwrap());
        let start = geometry.chunk_start(2);
        let row = geometry.row_blocks() as u8;
        if drive.device.chunk(2).state == ChunkState::Free {
            drive.act(VectorOp::Write, Content::Tagged, start, row, 0);
        }
        let reads = drive.device.chunk(2).reads;
        while drive.device.chunk(2).reads < reads + 1024 {
            drive.act(VectorOp::Read, Content::Tagged, start, row, 0);
        }
        let medium = drive.device.cut();
        assert!(medium.error().is_none());
        medium.close().unwrap();
        let told = DriveFile::open(&path, true).unwrap().chunks[2].reads;
        assert!((expected..expected + 8).contains(&told), "{told}, {expected}");
    }
}
