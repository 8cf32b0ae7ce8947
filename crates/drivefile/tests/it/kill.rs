//! A process that writes a drive file is killed, again and again.
//!
//! What it said was flushed is there, and every block that the file tells of
//! reads as it was written.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use drivefile::{CacheMode, DriveFile, Header, Opened};
use flash::{Chunk, ChunkState, Dimensions, Geometry, Medium, Moved, Ppa, TAG_BYTES, Tag};

/// Where the child finds its drive.
const DRIVE: &str = "DRIVEFILE_KILL_TEST";

const KEPT: usize = 4096;

fn geometry() -> Geometry {
    let dim =
        Dimensions { groups: 2, chunks: 2, pages: 16, page_bytes: 16384, ..Dimensions::LEAST };
    Geometry::new(dim).unwrap()
}

/// The tag of a block, which is all over its data.
fn tag(at: Ppa, wear: u32) -> Tag {
    Tag { id: at.0, seq: wear.into() }
}

fn contents(at: Ppa, wear: u32) -> ([u8; KEPT], [u8; TAG_BYTES]) {
    let (mut data, mut bytes) = ([0; KEPT], [0; TAG_BYTES]);
    tag(at, wear).store(&mut bytes);
    data.chunks_mut(TAG_BYTES).for_each(|part| part.copy_from_slice(&bytes));
    (data, bytes)
}

/// Writes one chunk after the other, erases what is full, and says what was
/// flushed, until it is killed.
#[test]
#[ignore = "the child of the test below"]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(DRIVE) else { return };
    let Opened { mut medium, mut chunks, .. } = DriveFile::open(Path::new(&path), false).unwrap();
    let (geometry, mut out) = (geometry(), std::io::stdout());
    loop {
        for (index, chunk) in chunks.iter_mut().enumerate() {
            let start = geometry.chunk_start(index);
            if chunk.programmed == geometry.chunk_blocks() {
                assert_eq!(medium.reset(start), Moved::Done);
                *chunk = Chunk { wear: chunk.wear + 1, ..Chunk::default() };
                medium.describe(index, chunk);
            }
            while chunk.programmed < geometry.chunk_blocks() {
                let at = Ppa(start.0 + u64::from(chunk.programmed));
                let blocks = (at.0..at.0 + 4).map(|at| contents(Ppa(at), chunk.wear));
                let (data, tags): (Vec<_>, Vec<_>) = blocks.unzip();
                while medium.program(at, 4, data.as_flattened(), tags.as_flattened())
                    == Moved::Pending
                {}
                let wp = chunk.programmed + 4;
                *chunk = Chunk { state: ChunkState::Open, wp, programmed: wp, ..*chunk };
                medium.describe(index, chunk);
                if wp % 12 == 0 {
                    while medium.barrier() == Moved::Pending {}
                    assert!(medium.error().is_none());
                    writeln!(out, "flushed {index} {} {wp}", chunk.wear).unwrap();
                    out.flush().unwrap();
                }
            }
        }
    }
}

/// Checks every block; gives how far each chunk is.
fn check(path: &Path) -> Vec<(u32, u32)> {
    let mut opened = DriveFile::open(path, false).unwrap();
    for (index, chunk) in opened.chunks.iter().enumerate() {
        let start = geometry().chunk_start(index);
        for at in (start.0..start.0 + u64::from(chunk.programmed)).map(Ppa) {
            let (mut data, mut tags) = ([0; KEPT], [0; TAG_BYTES]);
            assert_eq!(opened.medium.read(at, 1, &mut data, &mut tags), Moved::Done);
            assert_eq!(Tag::load(&tags), tag(at, chunk.wear));
            assert_eq!((data, tags), contents(at, chunk.wear));
        }
    }
    opened.chunks.iter().map(|chunk| (chunk.wear, chunk.programmed)).collect()
}

#[test]
fn what_was_said_to_be_flushed_survives_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let (profile, drive) = (String::new(), String::new());
    let (geometry, cache) = (geometry(), CacheMode::Volatile);
    let header = Header { geometry, kept: KEPT as u32, cache, profile, drive };
    DriveFile::create(&path, &header).unwrap().close().unwrap();
    let mut flushed = vec![(0, 0); geometry.chunk_slots()];
    for kill in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "kill::writes_until_it_is_killed"])
            .env(DRIVE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen <= kill * 3 {
            let line = lines.next().expect("it goes on until it is killed").unwrap();
            seen += i32::from(note(&line, &mut flushed));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said until then counts, too.
        lines.map_while(Result::ok).for_each(|line| {
            note(&line, &mut flushed);
        });
        let found = check(&path);
        for (found, flushed) in found.iter().zip(&flushed) {
            assert!(found >= flushed, "kill {kill}: {flushed:?} was flushed, {found:?} is there");
        }
    }
    assert!(flushed.iter().any(|point| point.0 > 0), "chunks were erased");
}

/// Takes note of what the child said. False where it said something else.
fn note(line: &str, flushed: &mut [(u32, u32)]) -> bool {
    let Some((_, words)) = line.split_once("flushed ") else { return false };
    let mut numbers = words.split(' ').map(str::parse::<u32>);
    let [Some(Ok(index)), Some(Ok(wear)), Some(Ok(programmed))] =
        [numbers.next(), numbers.next(), numbers.next()]
    else {
        return false;
    };
    flushed[index as usize] = (wear, programmed);
    true
}
